// SPDX-License-Identifier: MIT
// fuzz_cif.c: libFuzzer on the reader of CIF and mmCIF files.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read("a.cif", data, size);
    return 0;
}
