/* SPDX-License-Identifier: MIT */
/* json.h: a small JSON writer: keys in the order they are written, indented, arrays of numbers on one line. */
#ifndef PROFILE_JSON_H
#define PROFILE_JSON_H

#include "base/base.h"

typedef struct json {
    base_text text;
    int depth;
    bool empty; /* nothing yet in the innermost object or array */
    bool flat;  /* inside an array of numbers: on one line */
    bool html;  /* inside a page: nothing in a text can end the script element around it */
} json;

/* A key is NULL for an element of an array and for the outermost value. */
void json_open(json *j, const char *key, char bracket);
void json_close(json *j, char bracket);
void json_number(json *j, const char *key, double value);
void json_integer(json *j, const char *key, int64_t value);
void json_string(json *j, const char *key, const char *value);
void json_boolean(json *j, const char *key, int value); /* < 0: null */
void json_numbers(json *j, const char *key, const double *values, int64_t n);
/* Ends the text and hands it out, or fails with what went wrong on the way and frees it. */
mlff_status json_take(json *j, char **text_out);

/* ---- json_fields.c: numbers of a struct by name, out and in */

typedef struct json_field {
    const char *key;
    size_t offset;
    bool integer; /* int64_t, else double */
} json_field;
#define JSON_NUMBER(type, field)                                                                                                 \
    {                                                                                                                            \
#field, offsetof(type, field), false                                                                                     \
    }
#define JSON_INTEGER(type, field)                                                                                                \
    {                                                                                                                            \
#field, offsetof(type, field), true                                                                                      \
    }
struct cJSON;
void json_fields_write(json *j, const void *record, const json_field *fields, int n_fields);
/* What is null or not there is NaN, or 0 of an integer. `path` and `what` ("gpu_kernels") begin error texts. */
mlff_status json_fields_read(const char *path, const char *what, const struct cJSON *object, void *record,
                             const json_field *fields, int n_fields);
/* A text that has to be there, freed with base_free; replaces *value. */
mlff_status json_text_read(const char *path, const char *what, const struct cJSON *object, const char *key, char **value);

#endif
