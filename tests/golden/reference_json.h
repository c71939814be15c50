/* SPDX-License-Identifier: MIT */
/* reference_json.h: numbers of files of references in JSON; a test fails where one is missing. */
#ifndef REFERENCE_JSON_H
#define REFERENCE_JSON_H

#include <cjson/cJSON.h>

#include "support.h"

SUPPORT cJSON *read_json(const char *path)
{
    char *text = NULL;
    size_t length = 0;
    assert_ok(base_read_file(path, 1 << 28, &text, &length));
    cJSON *json = cJSON_Parse(text);
    base_free(text);
    assert_non_null(json);
    return json;
}

SUPPORT double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

SUPPORT int count_of(const cJSON *object, const char *key)
{
    return (int)number_of(object, key);
}

/* An array of at most `most` numbers; returns how many. */
SUPPORT int read_numbers(const cJSON *object, const char *key, double *values, int most)
{
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, key))
    {
        assert_true(n < most);
        values[n++] = item->valuedouble;
    }
    return n;
}

#endif
