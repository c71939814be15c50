// SPDX-License-Identifier: MIT
// fuzz_extxyz.c: libFuzzer on the reader of extended XYZ files.
#include "fuzz/fuzz_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read("frames.extxyz", data, size);
    return 0;
}
