/* SPDX-License-Identifier: MIT */
/* json_members.h: members of an object of a report that may come from anywhere. All fail with MLFF_ERR_FORMAT, or MLFF_ERR_MEMORY. */
#ifndef PROFILE_JSON_MEMBERS_H
#define PROFILE_JSON_MEMBERS_H

#include <cjson/cJSON.h>

#include "profile/profile.h"

typedef struct loader {
    const char *path; /* of the file; begins error texts */
    const cJSON *object;
    const char *inside; /* "stages[3]." or "" */
} loader;

enum { REQUIRED = 1, MAY_BE_NULL = 2, MAY_BE_NEGATIVE = 4 }; /* rules */

/* "a number", "an object": for texts. */
const char *member_type_text(const cJSON *item);
/* Absent or null leave *value as it is. */
mlff_status member_number(const loader *l, const char *key, int rules, double *value);
mlff_status member_integer(const loader *l, const char *key, int rules, int64_t min, int64_t max, int64_t *value);
mlff_status member_text(const loader *l, const char *key, int rules, char **text); /* replaces *text */
mlff_status member_boolean(const loader *l, const char *key, bool *value);
/* An array of finite numbers of 0 or more, which has to be there; freed with base_free. */
mlff_status member_numbers(const loader *l, const char *key, double **values_out, int64_t *n_out);
/* An array (or an object); NULL if it is absent. */
mlff_status member_get(const loader *l, const char *key, bool array, const cJSON **item_out);

#endif
