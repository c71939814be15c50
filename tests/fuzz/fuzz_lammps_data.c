// SPDX-License-Identifier: MIT
// fuzz_lammps_data.c: libFuzzer on the reader of LAMMPS data files.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read("a.data", data, size);
    return 0;
}
