// SPDX-License-Identifier: MIT
// verdict_kept.c: bars that were measured before a verdict was interrupted, in a file of one JSON object a line.
//
//   {"part": "nve", "system": 0, "origin": SHA-256, "key": SHA-256 of all that its bars depend on, "bars": [...], "curves": [...],
//    "times": [...]}
//
// A part whose key is not that of the file, or which is not readable, is measured. A part of another origin, which is of another student
// or teacher, stays in the file until the verdict of that origin is complete. Numbers are written so that they read back to the same bits.
#include "verdict_kept.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "device/loaded_code.h"
#include "train/fitting/train_record.h"

enum { MOST_BYTES = 1 << 28, MOST_VALUES = 4096 };

typedef struct kept_part {
    char *line;
    cJSON *json; // of the line
} kept_part;

struct verdict_kept {
    char *path, *origin;
    char origin_hash[SHA256_TEXT_BYTES], build[SHA256_TEXT_BYTES];
    kept_part *parts; // [n]
    size_t n, capacity;
    size_t file_bytes; // that it had
    bool warned;       // that it cannot be written
    bool in_use;       // has parts of this verdict
};

static void part_free(kept_part *part)
{
    base_free(part->line);
    cJSON_Delete(part->json);
}

void verdict_kept_free(verdict_kept *kept)
{
    if (!kept) return;
    for (size_t k = 0; k < kept->n; k++) part_free(&kept->parts[k]);
    base_free(kept->parts);
    base_free(kept->path);
    base_free(kept->origin);
    base_free(kept);
}

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

// Takes the text of a line, also on failure. A line that is no part is left out.
static mlff_status add_line(verdict_kept *kept, char *line)
{
    kept_part part = {.line = line, .json = cJSON_Parse(line)};
    mlff_status status = MLFF_OK;
    if (text_of(part.json, "part") && text_of(part.json, "key")) {
        MLFF_TRY(base_grow(&kept->parts, &kept->capacity, kept->n + 1, sizeof *kept->parts, "bars"));
        kept->parts[kept->n++] = part;
        return MLFF_OK;
    }
done:
    part_free(&part);
    return status;
}

static void hash_text(const char *text, char hash_out[SHA256_TEXT_BYTES])
{
    unsigned char digest[SHA256_BYTES];
    sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end(&hash, digest);
    sha256_text(digest, hash_out);
}

mlff_status verdict_kept_open(const char *path, const char *origin, mlff_device device, verdict_kept **kept_out)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t length = 0;
    verdict_kept *kept = base_alloc(1, sizeof *kept, "bars");
    if (!kept) return MLFF_ERR_MEMORY;
    kept->path = base_strdup(path);
    kept->origin = base_strdup(origin);
    if (!kept->path || !kept->origin) MLFF_TRY(MLFF_ERR_MEMORY);
    hash_text(origin, kept->origin_hash);
    device_code_hash(device, kept->build);
    if (access(path, F_OK) == 0) MLFF_TRY(base_read_file(path, MOST_BYTES, &text, &length));
    kept->file_bytes = length;
    for (char *at = text, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        char *line = base_strdup(at);
        if (!line) MLFF_TRY(MLFF_ERR_MEMORY);
        MLFF_TRY(add_line(kept, line));
    }
    *kept_out = kept;
    kept = NULL;
done:
    base_free(text);
    verdict_kept_free(kept);
    return status;
}

bool verdict_kept_is_foreign(const verdict_kept *kept)
{
    return kept->n == 0 && kept->file_bytes > 0;
}

// ---- what a part depends on

static void add_system(sha256 *hash, const mlff_system *system)
{
    const size_t n = (size_t)system->n_atoms;
    sha256_add(hash, &system->n_atoms, sizeof system->n_atoms);
    sha256_add(hash, system->species, n * sizeof *system->species);
    sha256_add(hash, system->positions, 3 * n * sizeof *system->positions);
    sha256_add(hash, system->cell, sizeof system->cell);
    sha256_add(hash, system->periodic, sizeof system->periodic);
    sha256_add(hash, &system->charge, sizeof system->charge);
    sha256_add(hash, &system->spin, sizeof system->spin);
    if (system->masses) sha256_add(hash, system->masses, n * sizeof *system->masses);
    if (system->fixed) sha256_add(hash, system->fixed, n);
}

static void add_settings(const mlff_verdict *verdict, enum verdict_part part, base_text *text)
{
    const mlff_verdict_options *o = &verdict->options;
    switch (part) {
    case VERDICT_SPEED: base_text_add(text, "speed %d %a %a", o->n_threads, o->speed_s, o->min_speed); break;
    case VERDICT_NVE: base_text_add(text, "nve %a %a %a", o->nve_ps, o->temperature_kelvin, o->max_drift); break;
    case VERDICT_HOT: base_text_add(text, "hot %a %a %d", o->hot_ps, o->hot_kelvin, o->hot_runs); break;
    case VERDICT_CORE: base_text_add(text, "core %a", o->hot_kelvin); break;
    case VERDICT_PRESSED: base_text_add(text, "pressed %d", o->n_pressed); break;
    case VERDICT_OWN:
        base_text_add(text, "own %d %a %a %a %a", o->n_dynamics, o->temperature_kelvin, o->hot_kelvin, o->max_force_error,
                      verdict->teacher_error);
        break;
    case VERDICT_COMPARE: base_text_add(text, "compare %a %a", o->compare_ps, o->temperature_kelvin); break;
    }
}

static mlff_status key_of(const verdict_run *run, enum verdict_part part, char key[SHA256_TEXT_BYTES])
{
    const mlff_verdict_options *o = &run->verdict->options;
    mlff_device_info device = {.struct_size = sizeof device};
    unsigned char digest[SHA256_BYTES];
    base_text text = {0};
    sha256 hash;
    mlff_status status = mlff_device_info_get(o->device, &device);
    if (status != MLFF_OK) return status;
    base_text_add(&text, "build %s; %s; %s; seed %" PRIu64 ", %a fs; ", run->verdict->kept->build, run->verdict->kept->origin,
                  device.name, o->seed, o->timestep_fs);
    add_settings(run->verdict, part, &text);
    status = text.status;
    if (status == MLFF_OK) {
        sha256_begin(&hash);
        sha256_add(&hash, text.text, text.length);
        add_system(&hash, run->start);
        sha256_end(&hash, digest);
        sha256_text(digest, key);
    }
    base_text_free(&text);
    return status;
}

// ---- reading

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static bool is_part(const kept_part *part, const char *name, int system)
{
    const char *found = text_of(part->json, "part");
    return found && strcmp(found, name) == 0 && number_of(part->json, "system") == system;
}

static const cJSON *find_part(const verdict_kept *kept, const char *name, int system, const char *key)
{
    for (size_t k = 0; k < kept->n; k++) {
        const char *found = text_of(kept->parts[k].json, "key");
        if (is_part(&kept->parts[k], name, system) && found && strcmp(found, key) == 0) return kept->parts[k].json;
    }
    return NULL;
}

// n numbers of an array; false if it has another number of them.
static bool read_numbers(const cJSON *object, const char *key, double *values, int n)
{
    const cJSON *item, *array = cJSON_GetObjectItemCaseSensitive(object, key);
    int k = 0;
    if (cJSON_GetArraySize(array) != n) return false;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsNumber(item)) return false;
        values[k++] = item->valuedouble;
    }
    return true;
}

// The name and the unit of a bar are those of the JSON, which the verdict keeps.
static bool take_bar(mlff_verdict *verdict, const cJSON *item)
{
    const char *name = text_of(item, "name"), *unit = text_of(item, "unit"), *text = text_of(item, "text");
    const double state = number_of(item, "state"), at_least = number_of(item, "at_least");
    if (!name || !unit || !text || !(state >= MLFF_BAR_PASSED && state <= MLFF_BAR_NOT_MEASURED) || isnan(at_least) ||
        verdict->n_bars == VERDICT_MAX_BARS)
        return false;
    mlff_bar *bar = verdict_add(verdict, name, unit, number_of(item, "value"), number_of(item, "uncertainty"),
                                number_of(item, "limit"), at_least != 0);
    bar->state = (mlff_bar_state)state;
    verdict_say(bar, "%s", text);
    return true;
}

static bool take_curve(mlff_verdict *verdict, const cJSON *item)
{
    const char *of = text_of(item, "of");
    const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "teacher"));
    if (!of || n < 1 || n > MOST_VALUES || verdict->n_curves == 2 * VERDICT_MAX_SYSTEMS) return false;
    double *values = base_alloc(2 * (size_t)n, sizeof *values, "a curve");
    const bool good = values && read_numbers(item, "teacher", values, n) && read_numbers(item, "student", values + n, n);
    if (good) {
        verdict_curve *curve = &verdict->curves[verdict->n_curves++];
        *curve = (verdict_curve){.of = of, .n = n, .step = number_of(item, "step"), .teacher = values, .student = values + n};
        snprintf(curve->system, sizeof curve->system, "%s", verdict->system);
    } else {
        base_free(values);
    }
    return good;
}

typedef struct counts {
    int bars, curves, times;
} counts;

static counts count(const mlff_verdict *verdict)
{
    return (counts){verdict->n_bars, verdict->n_curves, verdict->n_times};
}

// All that the part added; false, and the verdict as it was, where the JSON has something else.
static bool take_part(mlff_verdict *verdict, const cJSON *part)
{
    const counts before = count(verdict);
    double times[2];
    const cJSON *item;
    bool good = true;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(part, "bars")) good = good && take_bar(verdict, item);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(part, "curves")) good = good && take_curve(verdict, item);
    if (good && verdict->n_times < VERDICT_MAX_SYSTEMS && read_numbers(part, "times", times, 2)) {
        verdict_times *to = &verdict->times[verdict->n_times++];
        *to = (verdict_times){.student_us = times[0], .teacher_us = times[1]};
        snprintf(to->system, sizeof to->system, "%s", verdict->system);
    }
    if (good && verdict->n_bars > before.bars) return true;
    while (verdict->n_curves > before.curves) base_free(verdict->curves[--verdict->n_curves].teacher);
    verdict->n_bars = before.bars;
    verdict->n_times = before.times;
    return false;
}

// ---- writing

static void add_numbers(base_text *text, const char *key, const double *values, int n)
{
    base_text_add(text, ", \"%s\": [", key);
    for (int k = 0; k < n; k++) {
        if (k) base_text_add(text, ", ");
        base_text_add_number(text, values[k], 6, 17);
    }
    base_text_add(text, "]");
}

static void add_bar(base_text *text, const mlff_bar *bar, bool first)
{
    base_text_add(text, first ? "{" : ", {");
    record_text(text, true, "name", bar->name);
    record_text(text, false, "unit", bar->unit);
    record_exact(text, false, "value", bar->value);
    record_exact(text, false, "uncertainty", bar->uncertainty);
    record_exact(text, false, "limit", bar->limit);
    record_integer(text, false, "at_least", bar->at_least);
    record_integer(text, false, "state", bar->state);
    record_text(text, false, "text", bar->text);
    base_text_add(text, "}");
}

static void add_curve(base_text *text, const verdict_curve *curve, bool first)
{
    base_text_add(text, first ? "{" : ", {");
    record_text(text, true, "of", curve->of);
    record_exact(text, false, "step", curve->step);
    add_numbers(text, "teacher", curve->teacher, curve->n);
    add_numbers(text, "student", curve->student, curve->n);
    base_text_add(text, "}");
}

static void add_part(base_text *text, const mlff_verdict *verdict, counts before)
{
    base_text_add(text, ", \"bars\": [");
    for (int k = before.bars; k < verdict->n_bars; k++) add_bar(text, &verdict->bars[k], k == before.bars);
    base_text_add(text, "], \"curves\": [");
    for (int k = before.curves; k < verdict->n_curves; k++) add_curve(text, &verdict->curves[k], k == before.curves);
    base_text_add(text, "]");
    if (verdict->n_times > before.times) {
        const verdict_times *times = &verdict->times[before.times];
        add_numbers(text, "times", (double[]){times->student_us, times->teacher_us}, 2);
    }
}

static void begin_line(base_text *text, const verdict_kept *kept, const char *name, int system, const char *key)
{
    base_text_add(text, "{");
    record_text(text, true, "part", name);
    record_integer(text, false, "system", system);
    record_text(text, false, "origin", kept->origin_hash);
    record_text(text, false, "key", key);
}

// A part without an origin is of a build before there were any, whose keys no verdict has any more.
static bool is_own(const verdict_kept *kept, const kept_part *part)
{
    const char *origin = text_of(part->json, "origin");
    return !origin || strcmp(origin, kept->origin_hash) == 0;
}

// Removes lines of a part, and of runs of a comparison once this is a part itself.
static void remove_parts(verdict_kept *kept, const char *name, int system)
{
    size_t n = 0;
    for (size_t k = 0; k < kept->n; k++) {
        if (is_own(kept, &kept->parts[k]) && is_part(&kept->parts[k], name, system))
            part_free(&kept->parts[k]);
        else
            kept->parts[n++] = kept->parts[k];
    }
    kept->n = n;
}

// Ends the line, which replaces an earlier one of this part, and writes the file. A file that cannot be written costs no bar.
static mlff_status end_line(verdict_kept *kept, base_text *line, const char *name, int system)
{
    mlff_status status = MLFF_OK;
    base_text all = {0};
    base_text_add(line, "}");
    MLFF_TRY(line->status);
    remove_parts(kept, name, system);
    status = add_line(kept, line->text);
    *line = (base_text){0};
    MLFF_TRY(status);
    for (size_t k = 0; k < kept->n; k++) base_text_add(&all, "%s\n", kept->parts[k].line);
    MLFF_TRY(all.status);
    if (base_text_write(&all, kept->path) == MLFF_OK) {
        kept->in_use = true;
        goto done;
    }
    if (kept->warned) goto done;
    kept->warned = true;
    mlff_warn("%s; a verdict that is interrupted measures these bars again", mlff_last_error());
done:
    base_text_free(line);
    base_text_free(&all);
    return status;
}

bool verdict_kept_in_use(const verdict_kept *kept)
{
    return kept->in_use;
}

mlff_status verdict_kept_finish(const verdict_kept *kept)
{
    mlff_status status = MLFF_OK;
    base_text others = {0};
    for (size_t k = 0; k < kept->n; k++)
        if (!is_own(kept, &kept->parts[k])) base_text_add(&others, "%s\n", kept->parts[k].line);
    MLFF_TRY(others.status);
    if (others.length > 0)
        status = base_text_write(&others, kept->path);
    else if (unlink(kept->path) != 0 && errno != ENOENT)
        status = mlff_fail(MLFF_ERR_IO, "%s: %s", kept->path, strerror(errno));
done:
    base_text_free(&others);
    return status;
}

// ---- parts

static const char *const part_names[] = {
    [VERDICT_SPEED] = "speed",     [VERDICT_NVE] = "nve", [VERDICT_HOT] = "hot",        [VERDICT_CORE] = "core",
    [VERDICT_PRESSED] = "pressed", [VERDICT_OWN] = "own", [VERDICT_COMPARE] = "compare"};

static void run_name(int k, char name[16])
{
    snprintf(name, 16, "run %d", k);
}

// An undecided speed may be decided on another day.
static bool is_worth_keeping(const mlff_verdict *verdict, enum verdict_part part, counts before)
{
    for (int k = before.bars; k < verdict->n_bars; k++) {
        const mlff_bar *bar = &verdict->bars[k];
        if (isinf(bar->value) || isinf(bar->uncertainty) || isinf(bar->limit)) return false; // no numbers of JSON
        if (part == VERDICT_SPEED && bar->state == MLFF_BAR_NOT_MEASURED) return false;
    }
    return verdict->n_bars > before.bars;
}

mlff_status verdict_measure(const verdict_run *run, enum verdict_part part, mlff_status (*measure)(const verdict_run *run))
{
    mlff_status status = MLFF_OK;
    mlff_verdict *verdict = run->verdict;
    const counts before = count(verdict);
    char key[SHA256_TEXT_BYTES];
    base_text line = {0};
    if (!verdict->kept) return measure(run);
    MLFF_TRY(key_of(run, part, key));
    const cJSON *found = find_part(verdict->kept, part_names[part], run->system, key);
    if (found && take_part(verdict, found)) {
        verdict->n_kept += verdict->n_bars - before.bars;
        verdict->kept->in_use = true;
        goto done;
    }
    MLFF_TRY(measure(run));
    if (!is_worth_keeping(verdict, part, before)) goto done;
    for (int k = 0; part == VERDICT_COMPARE && k < VERDICT_RUNS; k++) {
        char name[16];
        run_name(k, name);
        remove_parts(verdict->kept, name, run->system);
    }
    begin_line(&line, verdict->kept, part_names[part], run->system, key);
    add_part(&line, verdict, before);
    MLFF_TRY(end_line(verdict->kept, &line, part_names[part], run->system));
done:
    base_text_free(&line);
    return status;
}

bool verdict_kept_run(const verdict_run *run, int k, const verdict_values *values, int n)
{
    char name[16], key[SHA256_TEXT_BYTES];
    bool good = run->verdict->kept && key_of(run, VERDICT_COMPARE, key) == MLFF_OK;
    run_name(k, name);
    const cJSON *found = good ? find_part(run->verdict->kept, name, run->system, key) : NULL;
    good = found != NULL;
    for (int v = 0; v < n; v++) good = good && read_numbers(found, values[v].name, values[v].values, values[v].n);
    if (good) run->verdict->kept->in_use = true;
    return good;
}

mlff_status verdict_keep_run(const verdict_run *run, int k, const verdict_values *values, int n)
{
    mlff_status status = MLFF_OK;
    char name[16], key[SHA256_TEXT_BYTES];
    base_text line = {0};
    if (!run->verdict->kept) return MLFF_OK;
    run_name(k, name);
    MLFF_TRY(key_of(run, VERDICT_COMPARE, key));
    begin_line(&line, run->verdict->kept, name, run->system, key);
    for (int v = 0; v < n; v++) add_numbers(&line, values[v].name, values[v].values, values[v].n);
    MLFF_TRY(end_line(run->verdict->kept, &line, name, run->system));
done:
    base_text_free(&line);
    return status;
}
