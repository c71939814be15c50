// SPDX-License-Identifier: MIT
// fuzz_pdb.c: libFuzzer on the reader of PDB files.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read("a.pdb", data, size);
    return 0;
}
