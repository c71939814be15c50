// SPDX-License-Identifier: MIT
// gpu_kernels_json.c: a report on kernels as JSON and back.
#include <cjson/cJSON.h>

#include "profile/sensors/gpu_kernels.h"

#define NUMBER(field) JSON_NUMBER(kernel_report, field)
#define INTEGER(field) JSON_INTEGER(kernel_report, field)
static const json_field fields[] = {INTEGER(n_steps),   NUMBER(step_ms),     NUMBER(busy_ms),        NUMBER(gap_ms),
                                    NUMBER(wait_ms),    NUMBER(host_ms),     NUMBER(integrate_ms),   NUMBER(usual_ms),
                                    NUMBER(after_ms),   NUMBER(open_ms),     NUMBER(cost_ms),        INTEGER(n_dropped),
                                    INTEGER(n_invalid), INTEGER(n_left_out), INTEGER(cupti_version), INTEGER(n_windows),
                                    NUMBER(run_share),  NUMBER(kernels_us),  NUMBER(clocks_us)};
static const json_field row_fields[] = {
    {"calls_per_step", offsetof(kernel_row, calls), false}, JSON_NUMBER(kernel_row, busy_us), JSON_NUMBER(kernel_row, sum_us)};
static const json_field stage_fields[] = {JSON_NUMBER(kernel_stage, busy_us), JSON_NUMBER(kernel_stage, until_next_us),
                                          JSON_NUMBER(kernel_stage, clock_us)};
enum { N_FIELDS = sizeof fields / sizeof *fields, N_OF_ROW = 3, N_OF_STAGE = 3 };

void kernels_write(json *j, const kernel_report *report)
{
    if (!report) return;
    json_open(j, "gpu_kernels", '{');
    json_fields_write(j, report, fields, N_FIELDS);
    json_open(j, "kernels", '[');
    for (int i = 0; i < report->n_rows; i++) {
        json_open(j, NULL, '{');
        json_string(j, "name", report->rows[i].name);
        json_string(j, "stage", report->rows[i].stage);
        json_fields_write(j, &report->rows[i], row_fields, N_OF_ROW);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "stages", '[');
    for (int i = 0; i < report->n_stages; i++) {
        json_open(j, NULL, '{');
        json_string(j, "name", report->stages[i].name);
        json_fields_write(j, &report->stages[i], stage_fields, N_OF_STAGE);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
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
    static const char what[] = "gpu_kernels";
    mlff_status status = MLFF_OK;
    kernel_report *report = NULL;
    const cJSON *rows, *stages, *item;
    if (!object || cJSON_IsNull(object)) return MLFF_OK;
    MLFF_TRY(array_of(path, object, "kernels", &rows));
    MLFF_TRY(array_of(path, object, "stages", &stages));
    report = base_alloc(1, sizeof *report, "a report on kernels");
    if (!report) return MLFF_ERR_MEMORY;
    report->rows = base_alloc((size_t)cJSON_GetArraySize(rows), sizeof *report->rows, "kernels");
    report->stages = base_alloc((size_t)cJSON_GetArraySize(stages), sizeof *report->stages, "stages of kernels");
    if (!report->rows || !report->stages) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(json_fields_read(path, what, object, report, fields, N_FIELDS));
    cJSON_ArrayForEach(item, rows)
    {
        kernel_row *row = &report->rows[report->n_rows++];
        MLFF_TRY(json_text_read(path, what, item, "name", &row->name));
        MLFF_TRY(json_text_read(path, what, item, "stage", &row->stage));
        MLFF_TRY(json_fields_read(path, what, item, row, row_fields, N_OF_ROW));
    }
    cJSON_ArrayForEach(item, stages)
    {
        kernel_stage *stage = &report->stages[report->n_stages++];
        MLFF_TRY(json_text_read(path, what, item, "name", &stage->name));
        MLFF_TRY(json_fields_read(path, what, item, stage, stage_fields, N_OF_STAGE));
    }
    *report_out = report;
    report = NULL;
done:
    kernel_report_free(report);
    return status;
}
