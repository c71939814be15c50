// SPDX-License-Identifier: MIT
// kernels_json.c: a report on kernels as JSON and back.
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "kernels.h"

static const struct {
    const char *key;
    size_t offset;
    bool integer;
} fields[] = {
#define NUMBER(field)                                                                                                            \
    {                                                                                                                            \
#field, offsetof(kernel_report, field), false                                                                            \
    }
#define INTEGER(field)                                                                                                           \
    {                                                                                                                            \
#field, offsetof(kernel_report, field), true                                                                             \
    }
    INTEGER(n_steps), NUMBER(step_ms),      NUMBER(busy_ms),    NUMBER(gap_ms),      NUMBER(wait_ms),
    NUMBER(host_ms),  NUMBER(integrate_ms), NUMBER(usual_ms),   NUMBER(after_ms),    NUMBER(open_ms),
    NUMBER(cost_ms),  INTEGER(n_dropped),   INTEGER(n_invalid), INTEGER(n_left_out), INTEGER(cupti_version),
#undef NUMBER
#undef INTEGER
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

void kernels_write(json *j, const kernel_report *report)
{
    if (!report) return;
    json_open(j, "gpu_kernels", '{');
    for (int k = 0; k < N_FIELDS; k++) {
        const char *at = (const char *)report + fields[k].offset;
        if (fields[k].integer)
            json_integer(j, fields[k].key, *(const int64_t *)(const void *)at);
        else
            json_number(j, fields[k].key, *(const double *)(const void *)at);
    }
    json_open(j, "kernels", '[');
    for (int i = 0; i < report->n_rows; i++) {
        const kernel_row *row = &report->rows[i];
        json_open(j, NULL, '{');
        json_string(j, "name", row->name);
        json_string(j, "stage", row->stage);
        json_number(j, "calls_per_step", row->calls);
        json_number(j, "busy_us", row->busy_us);
        json_number(j, "sum_us", row->sum_us);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "stages", '[');
    for (int i = 0; i < report->n_stages; i++) {
        const kernel_stage *stage = &report->stages[i];
        json_open(j, NULL, '{');
        json_string(j, "name", stage->name);
        json_number(j, "busy_us", stage->busy_us);
        json_number(j, "until_next_us", stage->until_next_us);
        json_number(j, "clock_us", stage->clock_us);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

// A number of the object; NaN for null and where there is none.
static mlff_status number(const char *path, const cJSON *object, const char *key, double *value_out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *value_out = NAN;
    if (!item || cJSON_IsNull(item)) return MLFF_OK;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || fabs(item->valuedouble) > 1e15)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"gpu_kernels\" holds a \"%s\" that is no number such as are measured", path, key);
    *value_out = item->valuedouble;
    return MLFF_OK;
}

static mlff_status text(const char *path, const cJSON *object, const char *key, char **value_out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"gpu_kernels\" has a row without the text \"%s\"", path, key);
    return profile_set(value_out, item->valuestring);
}

static mlff_status array_of(const char *path, const cJSON *object, const char *key, const cJSON **array_out)
{
    *array_out = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsArray(*array_out) || cJSON_GetArraySize(*array_out) > KERNELS_MAX_ROWS)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: \"gpu_kernels\" needs an array \"%s\" of at most %d rows", path, key,
                         KERNELS_MAX_ROWS);
    return MLFF_OK;
}

mlff_status kernels_read(const char *path, const cJSON *object, kernel_report **report_out)
{
    mlff_status status = MLFF_OK;
    kernel_report *report = NULL;
    const cJSON *array, *item;
    if (!object || cJSON_IsNull(object)) return MLFF_OK;
    report = base_alloc(1, sizeof *report, "a report on kernels");
    if (!report) return MLFF_ERR_MEMORY;
    for (int k = 0; k < N_FIELDS; k++) {
        double value;
        char *at = (char *)report + fields[k].offset;
        MLFF_TRY(number(path, object, fields[k].key, &value));
        if (fields[k].integer)
            *(int64_t *)(void *)at = isnan(value) ? 0 : (int64_t)value;
        else
            *(double *)(void *)at = value;
    }
    MLFF_TRY(array_of(path, object, "kernels", &array));
    report->rows = base_alloc((size_t)cJSON_GetArraySize(array), sizeof *report->rows, "kernels");
    if (!report->rows) MLFF_TRY(MLFF_ERR_MEMORY);
    cJSON_ArrayForEach(item, array)
    {
        kernel_row *row = &report->rows[report->n_rows++];
        MLFF_TRY(text(path, item, "name", &row->name));
        MLFF_TRY(text(path, item, "stage", &row->stage));
        MLFF_TRY(number(path, item, "calls_per_step", &row->calls));
        MLFF_TRY(number(path, item, "busy_us", &row->busy_us));
        MLFF_TRY(number(path, item, "sum_us", &row->sum_us));
    }
    MLFF_TRY(array_of(path, object, "stages", &array));
    report->stages = base_alloc((size_t)cJSON_GetArraySize(array), sizeof *report->stages, "stages of kernels");
    if (!report->stages) MLFF_TRY(MLFF_ERR_MEMORY);
    cJSON_ArrayForEach(item, array)
    {
        kernel_stage *stage = &report->stages[report->n_stages++];
        MLFF_TRY(text(path, item, "name", &stage->name));
        MLFF_TRY(number(path, item, "busy_us", &stage->busy_us));
        MLFF_TRY(number(path, item, "until_next_us", &stage->until_next_us));
        MLFF_TRY(number(path, item, "clock_us", &stage->clock_us));
    }
    *report_out = report;
    report = NULL;
done:
    kernel_report_free(report);
    return status;
}
