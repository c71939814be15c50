// SPDX-License-Identifier: MIT
// fuzz_poscar.c: libFuzzer on the reader of POSCAR files.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read("POSCAR", data, size);
    return 0;
}
