/* SPDX-License-Identifier: MIT */
/* read_text.h: what the tests of file readers share: a text read as a file of some name, texts that must be refused. */
#ifndef READ_TEXT_H
#define READ_TEXT_H

#include "atoms/atoms.h"
#include "support.h"

SUPPORT int n_warnings;

SUPPORT void count_warnings(void *context, const char *text)
{
    (void)context;
    (void)text;
    n_warnings++;
}

SUPPORT mlff_status read_first(const char *name, const char *text, mlff_system **system_out)
{
    mlff_reader *reader = NULL;
    mlff_status status = atoms_reader_open_bytes(name, text, strlen(text), &reader);
    if (status == MLFF_OK) status = mlff_reader_next(reader, system_out);
    mlff_reader_destroy(reader);
    return status;
}

SUPPORT mlff_system *read_text(const char *name, const char *text)
{
    mlff_system *system = NULL;
    mlff_status status = read_first(name, text, &system);
    if (status != MLFF_OK) fail_msg("%s\nof:\n%s", mlff_last_error(), text);
    assert_non_null(system);
    return system;
}

typedef struct bad_text {
    const char *text;
    mlff_status status;
    const char *error; // part of it, with its line
} bad_text;

SUPPORT void refuse_all(const char *name, const bad_text *cases, size_t n)
{
    int64_t bytes = base_allocated_bytes();
    for (size_t k = 0; k < n; k++) {
        mlff_system *system = NULL;
        mlff_status status = read_first(name, cases[k].text, &system);
        const char *error = mlff_last_error();
        if (status != cases[k].status || system)
            fail_msg("%s, expected %s: %s\nof:\n%s", mlff_status_name(status), mlff_status_name(cases[k].status), error,
                     cases[k].text);
        if (strncmp(error, name, strlen(name)) != 0 || !strstr(error, cases[k].error))
            fail_msg("'%s' lacks '%s'", error, cases[k].error);
        if (strchr(error, '\n')) fail_msg("'%s' is more than a line", error);
    }
    assert_int_equal(base_allocated_bytes(), bytes);
}

#endif
