// SPDX-License-Identifier: MIT
// json_members.c: members of a JSON object by name and type, with texts that say what is wrong and where.
#include <math.h>

#include "json_members.h"

const char *member_type_text(const cJSON *item)
{
    if (cJSON_IsNumber(item)) return "a number";
    if (cJSON_IsString(item)) return "a text";
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsObject(item)) return "an object";
    return cJSON_IsNull(item) ? "null" : "true or false";
}

static mlff_status wrong_type(const loader *l, const char *key, const cJSON *item, const char *expected)
{
    return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s%s\" is %s, expected %s", l->path, l->inside, key, member_type_text(item),
                     expected);
}

static mlff_status find(const loader *l, const char *key, bool required, const cJSON **item_out)
{
    *item_out = cJSON_GetObjectItemCaseSensitive(l->object, key);
    if (!*item_out && required)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: key \"%s%s\" is missing; is this the JSON of a profile, and whole?", l->path,
                         l->inside, key);
    return MLFF_OK;
}

mlff_status member_number(const loader *l, const char *key, int rules, double *value)
{
    const cJSON *item;
    mlff_status status = find(l, key, rules & REQUIRED, &item);
    if (status != MLFF_OK || !item) return status;
    if (cJSON_IsNull(item) && rules & MAY_BE_NULL) return MLFF_OK;
    if (!cJSON_IsNumber(item)) return wrong_type(l, key, item, rules & MAY_BE_NULL ? "a number or null" : "a number");
    if (!isfinite(item->valuedouble))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s%s\" is larger than a number can be", l->path, l->inside, key);
    if (item->valuedouble < 0.0 && !(rules & MAY_BE_NEGATIVE))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s%s\" is %g; it cannot be negative", l->path, l->inside, key,
                         item->valuedouble);
    *value = item->valuedouble;
    return MLFF_OK;
}

mlff_status member_integer(const loader *l, const char *key, int rules, int64_t min, int64_t max, int64_t *value)
{
    double number = NAN;
    mlff_status status = member_number(l, key, rules | MAY_BE_NEGATIVE, &number);
    if (status != MLFF_OK || isnan(number)) return status;
    if (number != floor(number) || number < (double)min || number > (double)max)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"%s%s\" is %g, expected a whole number from %lld to %lld", l->path, l->inside,
                         key, number, (long long)min, (long long)max);
    *value = (int64_t)number;
    return MLFF_OK;
}

mlff_status member_text(const loader *l, const char *key, int rules, char **text)
{
    const cJSON *item;
    mlff_status status = find(l, key, rules & REQUIRED, &item);
    if (status != MLFF_OK || !item) return status;
    if (cJSON_IsNull(item) && rules & MAY_BE_NULL) return MLFF_OK;
    if (!cJSON_IsString(item)) return wrong_type(l, key, item, rules & MAY_BE_NULL ? "a text or null" : "a text");
    return profile_set(text, item->valuestring);
}

mlff_status member_boolean(const loader *l, const char *key, bool *value)
{
    const cJSON *item;
    (void)find(l, key, false, &item);
    if (!item) return MLFF_OK;
    if (!cJSON_IsBool(item)) return wrong_type(l, key, item, "true or false");
    *value = cJSON_IsTrue(item);
    return MLFF_OK;
}

mlff_status member_numbers(const loader *l, const char *key, double **values_out, int64_t *n_out)
{
    mlff_status status = MLFF_OK;
    const cJSON *array, *item;
    double *values = NULL;
    int64_t n = 0;
    MLFF_TRY(find(l, key, true, &array));
    if (!cJSON_IsArray(array)) return wrong_type(l, key, array, "an array of numbers");
    values = base_alloc((size_t)cJSON_GetArraySize(array), sizeof *values, key);
    if (!values) return MLFF_ERR_MEMORY;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble < 0.0)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: \"%s\"[%lld] is not a finite number of 0 or more", l->path, key, (long long)n);
        values[n++] = item->valuedouble;
    }
    *values_out = values;
    *n_out = n;
    values = NULL;
done:
    base_free(values);
    return status;
}

mlff_status member_get(const loader *l, const char *key, bool array, const cJSON **item_out)
{
    const cJSON *item;
    (void)find(l, key, false, &item);
    if (item && !(array ? cJSON_IsArray(item) : cJSON_IsObject(item)))
        return wrong_type(l, key, item, array ? "an array" : "an object");
    *item_out = item;
    return MLFF_OK;
}
