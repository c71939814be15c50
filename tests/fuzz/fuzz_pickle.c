// SPDX-License-Identifier: MIT
// fuzz_pickle.c: any bytes as a pickle: refused or read, and what was read can be looked at.
#include "model/import/pickle.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    pickle *p = NULL;
    if (pickle_parse((const char *)bytes, length, "fuzz", &p) != MLFF_OK) return 0;
    const pickle_value *root = pickle_root(p);
    volatile const char *seen = pickle_class(root);
    seen = pickle_class(pickle_get(pickle_state(root), "_modules"));
    seen = pickle_text(pickle_get(root, "key"), "");
    (void)seen;
    pickle_destroy(p);
    return 0;
}
