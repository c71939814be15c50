// SPDX-License-Identifier: MIT
// history.c: the lines of history.jsonl that a run goes on after, and their figure.
#include "history.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/drawing.h"

static const size_t most_bytes = (size_t)1 << 30;

// The step that a line begins with, as a training run writes it.
static bool step_of(const char *line, int64_t *step_out)
{
    static const char key[] = "{\"step\": ";
    char number[24];
    if (strncmp(line, key, strlen(key)) != 0) return false;
    line += strlen(key);
    const size_t length = strspn(line, "0123456789");
    if (length >= sizeof number || line[length] != ',') return false;
    snprintf(number, sizeof number, "%.*s", (int)length, line);
    return base_parse_int64(number, step_out);
}

mlff_status history_read(const char *path, int64_t last_step, base_text *lines)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t length = 0;
    int64_t step = -1;
    if (access(path, F_OK) != 0) return MLFF_OK;
    MLFF_TRY(base_read_file(path, most_bytes, &text, &length));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const int64_t before = step;
        if (!step_of(line, &step) || step <= before || step > last_step) break;
        base_text_add(lines, "%.*s", (int)(end - line + 1), line);
    }
    status = lines->status;
done:
    base_free(text);
    return status;
}

enum { VALIDATION, TRAINING, STEP, COLUMNS };
typedef struct curve {
    double *value[COLUMNS]; // validation and training force error, meV/Å, and their step
    size_t n, capacity[COLUMNS];
} curve;

static double error_at(const cJSON *line, const char *part)
{
    const cJSON *errors = cJSON_GetObjectItemCaseSensitive(line, part);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(errors, "force_mae_ev_per_angstrom");
    return cJSON_IsNumber(item) ? 1e3 * item->valuedouble : NAN;
}

static mlff_status add_line(curve *to, const cJSON *line)
{
    mlff_status status = MLFF_OK;
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
    const double values[COLUMNS] = {error_at(line, "validation"), error_at(line, "training"),
                                    cJSON_IsNumber(step) ? step->valuedouble : NAN};
    const double before = to->n > 0 ? to->value[STEP][to->n - 1] : 0;
    for (int side = VALIDATION; side <= TRAINING; side++)
        if (!(values[side] >= 1e-12 && values[side] <= 1e12)) return MLFF_OK; // no error, or none that an axis could show
    if (!(values[STEP] > before && values[STEP] <= 1e15)) return MLFF_OK;
    for (int column = 0; column < COLUMNS; column++) {
        MLFF_TRY(base_grow(&to->value[column], &to->capacity[column], to->n + 1, sizeof **to->value, "a curve"));
        to->value[column][to->n] = values[column];
    }
    to->n++;
done:
    return status;
}

static mlff_status read_curve(const char *path, curve *to)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t length;
    MLFF_TRY(base_read_file(path, most_bytes, &text, &length));
    for (char *line = text, *end; status == MLFF_OK && (end = strchr(line, '\n')); line = end + 1) {
        cJSON *json = cJSON_ParseWithLength(line, (size_t)(end - line));
        status = add_line(to, json);
        cJSON_Delete(json);
    }
done:
    base_free(text);
    return status;
}

mlff_status history_draw(const char *path, base_text *page)
{
    curve c = {0};
    drawing_axis y = {.low = INFINITY, .logarithmic = true, .label = "force error, meV/Å"};
    const mlff_status status = read_curve(path, &c);
    if (status != MLFF_OK || c.n < 2) goto done;
    const drawing_axis x = {.high = c.value[STEP][c.n - 1], .label = "step"};
    for (size_t k = 0; k < c.n; k++)
        for (int side = VALIDATION; side <= TRAINING; side++) {
            y.low = fmin(y.low, 0.8 * c.value[side][k]);
            y.high = fmax(y.high, 1.25 * c.value[side][k]);
        }
    drawing_begin(page,
                  "Learning curve: mean absolute force error of training batches (gray) and of the averaged weights on the "
                  "validation structures (blue)",
                  &x, &y);
    drawing_curve(page, &x, &y, "minor", c.value[STEP], c.value[TRAINING], (int)c.n);
    drawing_curve(page, &x, &y, "major", c.value[STEP], c.value[VALIDATION], (int)c.n);
    drawing_end(page);
done:
    for (int column = 0; column < COLUMNS; column++) base_free(c.value[column]);
    return status != MLFF_OK ? status : page->status;
}
