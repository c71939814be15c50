/* SPDX-License-Identifier: MIT */
/* test_folder.h: what the tests of files share: a folder of their own that must be empty at the end, files of a text, frames counted. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include "unit/read_text.h"

SUPPORT char folder[] = P_tmpdir "/mlff-files-XXXXXX";

SUPPORT const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

SUPPORT int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

SUPPORT int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); // fails the group if a test left a file behind
}

SUPPORT void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}
SUPPORT int count_frames(const char *path)
{
    mlff_reader *reader;
    int n = 0;
    assert_ok(mlff_reader_open(path, NULL, &reader));
    for (mlff_system *system;; n++) {
        assert_ok(mlff_reader_next(reader, &system));
        if (!system) break;
        mlff_system_destroy(system);
    }
    mlff_reader_destroy(reader);
    return n;
}

#endif
