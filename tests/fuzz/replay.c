// SPDX-License-Identifier: MIT
// replay.c: runs a fuzz target on the files of its corpus, whole, cut short and with single bytes changed, without libFuzzer:
//   replay_X FOLDER
// Changes come from a fixed seed. The input lies in a block of exactly its size, so that a sanitizer sees a read beyond it.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz_file.h"

enum { CUTS = 40, CHANGES = 100 };
static int64_t n_runs;

static void run(const char *bytes, size_t length)
{
    unsigned char *copy = malloc(length ? length : 1);
    if (!copy) abort();
    memcpy(copy, bytes, length);
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
    n_runs++;
}

static void replay(const char *path, uint64_t stream)
{
    char *bytes;
    size_t length;
    fuzz_demand(base_read_file(path, 1 << 24, &bytes, &length) == MLFF_OK, "the corpus can be read");
    for (int pass = 0; pass < 2; pass++) { // buffers that a target keeps have their size after the first
        const int64_t held = base_allocated_bytes();
        run(bytes, length);
        for (uint64_t k = 0; k < CUTS && length > 0; k++)
            run(bytes, (size_t)(base_random_uniform(1, stream, k) * (double)length));
        for (uint64_t k = 0; k < CHANGES && length > 0; k++) {
            const size_t at = (size_t)(base_random_uniform(2, stream, k) * (double)length);
            const char kept = bytes[at];
            bytes[at] = (char)(base_random_uniform(3, stream, k) * 256);
            run(bytes, length);
            bytes[at] = kept;
        }
        fuzz_demand(pass == 0 || base_allocated_bytes() <= held, "no memory is lost");
    }
    base_free(bytes);
}

int main(int argc, char **argv)
{
    int n_files = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[1024];
        uint64_t stream = 0;
        if (entry->d_name[0] == '.') continue;
        for (const char *c = entry->d_name; *c; c++) stream = stream * 131 + (unsigned char)*c;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        replay(path, stream);
        n_files++;
    }
    closedir(folder);
    printf("%d files, %lld executions\n", n_files, (long long)n_runs);
    return n_files > 0 ? 0 : 1;
}
