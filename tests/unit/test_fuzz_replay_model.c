// SPDX-License-Identifier: MIT
// Replays the kept corpora of the model readers' fuzz targets, whole, truncated and with bytes flipped: no crash, no
// leak, whatever the input. Flips come from a fixed seed.
#include <dirent.h>

#include "support.h"

#define LLVMFuzzerTestOneInput fuzz_pickle
#include "fuzz/fuzz_pickle.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_schnetpack
#include "fuzz/fuzz_schnetpack.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_fnx
#include "fuzz/fuzz_fnx.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_neurochem
#include "fuzz/fuzz_neurochem.c"
#undef LLVMFuzzerTestOneInput

typedef int target_function(const unsigned char *bytes, size_t length);

// The input in a block of exactly its size, so that a sanitizer sees a read beyond it.
static void run_exact(target_function *target, const char *bytes, size_t length)
{
    unsigned char *copy = malloc(length ? length : 1);
    memcpy(copy, bytes, length);
    target(copy, length);
    free(copy);
}

static void replay_file(target_function *target, const char *path, uint64_t stream)
{
    enum { TRUNCATIONS = 60, FLIPS = 150 };
    char *bytes;
    size_t length;
    assert_ok(base_read_file(path, 1 << 24, &bytes, &length));
    int64_t held = base_allocated_bytes();
    run_exact(target, bytes, length);
    for (uint64_t i = 0; i < TRUNCATIONS && length > 0; i++)
        run_exact(target, bytes, (size_t)(base_random_uniform(1, stream, i) * (double)length));
    for (uint64_t i = 0; i < FLIPS && length > 0; i++) {
        size_t at = (size_t)(base_random_uniform(2, stream, i) * (double)length);
        char kept = bytes[at];
        bytes[at] = (char)(base_random_uniform(3, stream, i) * 256);
        run_exact(target, bytes, length);
        bytes[at] = kept;
    }
    if (base_allocated_bytes() != held) fail_msg("%s: %lld bytes are lost", path, (long long)(base_allocated_bytes() - held));
    base_free(bytes);
}

static void replay(target_function *target, const char *folder)
{
    int n_files = 0;
    DIR *directory = opendir(folder);
    if (!directory) fail_msg("%s: no such folder; tests run in the repository's root", folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        char path[512];
        uint64_t stream = 0;
        for (const char *c = entry->d_name; *c; c++) stream = stream * 131 + (unsigned char)*c;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay_file(target, path, stream);
        n_files++;
    }
    closedir(directory);
    assert_true(n_files >= 3);
}

static void pickles(void **state)
{
    (void)state;
    replay(fuzz_pickle, "tests/fuzz/corpus/pickle");
}

static void model_files(void **state)
{
    (void)state;
    replay(fuzz_safetensors, "tests/fuzz/corpus/safetensors");
}

static void schnetpack_saves(void **state)
{
    (void)state;
    replay(fuzz_schnetpack, "tests/fuzz/corpus/schnetpack");
}

static void fennol_files(void **state)
{
    (void)state;
    replay(fuzz_fnx, "tests/fuzz/corpus/fnx");
}

static void neurochem_texts(void **state)
{
    (void)state;
    replay(fuzz_neurochem, "tests/fuzz/corpus/neurochem");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pickles),      cmocka_unit_test(model_files),     cmocka_unit_test(schnetpack_saves),
        cmocka_unit_test(fennol_files), cmocka_unit_test(neurochem_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
