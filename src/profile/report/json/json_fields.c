// SPDX-License-Identifier: MIT
// json_fields.c: numbers of a struct as members of a JSON object, and back; a report may come from anywhere.
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "json.h"

void json_fields_write(json *j, const void *record, const json_field *fields, int n_fields)
{
    for (int k = 0; k < n_fields; k++) {
        int64_t integer;
        double number;
        const char *at = (const char *)record + fields[k].offset;
        memcpy(&integer, at, sizeof integer);
        memcpy(&number, at, sizeof number);
        if (fields[k].integer)
            json_integer(j, fields[k].key, integer);
        else
            json_number(j, fields[k].key, number);
    }
}

mlff_status json_fields_read(const char *path, const char *what, const cJSON *object, void *record, const json_field *fields,
                             int n_fields)
{
    for (int k = 0; k < n_fields; k++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, fields[k].key);
        double number = NAN;
        char *at = (char *)record + fields[k].offset;
        if (item && !cJSON_IsNull(item)) {
            if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 1e15))
                return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s\" holds a \"%s\" that is not a measured number", path, what,
                                 fields[k].key);
            number = item->valuedouble;
        }
        int64_t integer = isnan(number) ? 0 : (int64_t)number;
        memcpy(at, fields[k].integer ? (const void *)&integer : (const void *)&number, sizeof number);
    }
    return MLFF_OK;
}

mlff_status json_text_read(const char *path, const char *what, const cJSON *object, const char *key, char **value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item)) return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s\" lacks the text \"%s\"", path, what, key);
    char *copy = base_strdup(item->valuestring);
    if (!copy) return MLFF_ERR_MEMORY;
    base_free(*value);
    *value = copy;
    return MLFF_OK;
}
