// SPDX-License-Identifier: MIT
// test_fuzz_replay_atoms.c: the fuzzers' corpus through the readers, also cut short and with single bytes changed:
// nothing may crash, leak or break a promise. Names that end in -good are whole and must be read.
#include <dirent.h>

#include "fuzz/fuzz_reader.h"
#include "support.h"

enum { MAX_CUTS = 400, MAX_CHANGES = 400 };

static void replay_file(const char *name, const char *path)
{
    static const char changes[] = {0, ' ', '\n', '"', '9', '-', 'e', (char)0xff};
    char *bytes;
    size_t length;
    assert_ok(base_read_file(path, (size_t)1 << 20, &bytes, &length));
    int64_t n_frames = fuzz_read(name, bytes, length);
    if (strstr(path, "-good") && n_frames == 0) fail_msg("%s: %s", path, mlff_last_error());

    size_t cut_step = length / MAX_CUTS + 1, change_step = length / MAX_CHANGES + 1;
    for (size_t cut = 0; cut < length; cut += cut_step) fuzz_read(name, bytes, cut);
    for (size_t at = 0; at < length; at += change_step) {
        char kept = bytes[at];
        for (size_t k = 0; k < sizeof changes; k++) {
            bytes[at] = changes[k];
            fuzz_read(name, bytes, length);
        }
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] = (char)(kept ^ (1 << bit));
            fuzz_read(name, bytes, length);
        }
        bytes[at] = kept;
    }
    base_free(bytes);
}

static void replay_folder(const char *folder, const char *name, int n_least)
{
    int64_t bytes = base_allocated_bytes();
    int n_files = 0;
    DIR *stream = opendir(folder);
    if (!stream) fail_msg("%s is not there; run from the repository's root", folder);
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] == '.') continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        replay_file(name, path);
        n_files++;
    }
    closedir(stream);
    assert_true(n_files >= n_least);
    assert_int_equal(base_allocated_bytes(), bytes);
}

static void replays_extxyz(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/extxyz", "frames.extxyz", 10);
}

static void replays_poscar(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/poscar", "POSCAR", 5);
}

static void replays_pdb(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/pdb", "a.pdb", 2);
}

static void replays_cif(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/cif", "a.cif", 3);
}

static void replays_lammps_data(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/lammps_data", "a.data", 2);
}

// The name says nothing: the content decides.
static void replays_unnamed(void **state)
{
    (void)state;
    replay_folder("tests/fuzz/corpus/extxyz", "file", 10);
    replay_folder("tests/fuzz/corpus/poscar", "file", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_extxyz), cmocka_unit_test(replays_poscar),      cmocka_unit_test(replays_pdb),
        cmocka_unit_test(replays_cif),    cmocka_unit_test(replays_lammps_data), cmocka_unit_test(replays_unnamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
