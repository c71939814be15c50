// SPDX-License-Identifier: MIT
// distill_config.c: settings of a distillation, their presets and their JSON.
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "distill.h"
#include "mlff_distill.h"
#include "train/fitting/train_record.h"

#define MOST_SEED (UINT64_C(1) << 53) // above, numbers of JSON are no longer each integer

enum kind { TEXT, INTEGER, LONG, SEED, NUMBER };
enum use { FILES, VERDICT }; // the files of a run are made with it, or only its verdict, which is measured each time

// Every member once: its name in JSON, where it is, and what it may be.
static const struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    double least, most;
    enum use use;
} fields[] = {
#define FIELD_OF(member, kind, least, most, use)                                                                                 \
    {                                                                                                                            \
#member, kind, offsetof(mlff_distill_config, member), least, most, use                                                   \
    }
#define FIELD(member, kind, least, most) FIELD_OF(member, kind, least, most, FILES)
#define JUDGE(member, kind, least, most) FIELD_OF(member, kind, least, most, VERDICT)
    FIELD(teacher, TEXT, 0, 0),
    FIELD(systems, TEXT, 0, 0),
    FIELD(systems_hash, TEXT, 0, 0),
    FIELD(labels, TEXT, 0, 0),
    FIELD(labels_hash, TEXT, 0, 0),
    FIELD(n_atoms, INTEGER, 0, 1e7),
    FIELD(seed, SEED, 0, (double)MOST_SEED),
    FIELD(n_structures, INTEGER, 0, 1e9),
    FIELD(lowest_kelvin, NUMBER, 1, 1e5),
    FIELD(highest_kelvin, NUMBER, 1, 1e5),
    FIELD(n_probes, INTEGER, 0, 100),
    FIELD(n_rounds, INTEGER, 0, 8),
    FIELD(committee, INTEGER, 1, DISTILL_MAX_COMMITTEE),
    FIELD(max_teacher_deviation, NUMBER, 0, 1e6),
    FIELD(n_features, INTEGER, 4, 1024),
    FIELD(n_layers, INTEGER, 1, 16),
    FIELD(n_radial, INTEGER, 2, 256),
    FIELD(cutoff_angstrom, NUMBER, 1, 20),
    FIELD(core_repulsion, NUMBER, 0, 1),
    FIELD(batch_size, INTEGER, 1, 1 << 20),
    FIELD(n_steps, LONG, 1, 1e12),
    FIELD(learning_rate, NUMBER, 1e-9, 1),
    FIELD(huber_forces, NUMBER, 0, 1e6),
    FIELD(optimizer, TEXT, 0, 0),
    FIELD(nearer, NUMBER, 0, 1),
    FIELD(strain, NUMBER, 0, 0.3),
    JUDGE(baseline, INTEGER, 0, 1),
    JUDGE(nve_ps, NUMBER, 0, 1e6),
    JUDGE(hot_ps, NUMBER, 0, 1e6),
    JUDGE(compare_ps, NUMBER, 0, 1e6),
    JUDGE(speed_s, NUMBER, 0.01, 3600),
    JUDGE(hot_runs, INTEGER, 1, 1000),
    JUDGE(max_force_error, NUMBER, 0, 1e6),
    JUDGE(max_energy_error, NUMBER, 0, 1e6),
    JUDGE(max_drift, NUMBER, 0, 1e6),
    JUDGE(min_speed, NUMBER, 0, 1e6),
    JUDGE(n_pressed, INTEGER, 0, 1e6),
    JUDGE(n_dynamics, INTEGER, 0, 1e6),
    JUDGE(max_pressure_error, NUMBER, 0, 1e6),
#undef JUDGE
#undef FIELD
#undef FIELD_OF
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

mlff_status mlff_distill_preset(const char *name, mlff_distill_config *config_out)
{
    static const struct {
        const char *name, *optimizer;
        int n_structures, n_rounds, n_features, n_layers, hot_runs;
        int64_t n_steps;
        double learning_rate, huber_forces, nve_ps, hot_ps, compare_ps, max_force_error, max_pressure_error;
    } presets[] = {{"demo", "adamw", 1000, 0, 32, 2, 1, 30000, 6e-3, 0.1, 5, 5, 0, 0.1, 0.3},
                   {"quick", "soap", 2000, 0, 64, 2, 2, 25000, 2.5e-3, 0.1, 10, 20, 0, 0.06, 0.2},
                   {"standard", "soap", 8000, 2, 64, 2, 3, 200000, 2e-3, 0.03, 20, 50, 20, 0.03, 0.1},
                   {"thorough", "soap", 30000, 4, 128, 3, 3, 600000, 1e-3, 0.03, 50, 300, 60, 0.02, 0.05}};
    for (size_t k = 0; name && k < sizeof presets / sizeof *presets; k++) {
        if (strcmp(presets[k].name, name) != 0) continue;
        *config_out = (mlff_distill_config){.struct_size = sizeof(mlff_distill_config),
                                            .n_structures = presets[k].n_structures,
                                            .lowest_kelvin = 300,
                                            .highest_kelvin = 1000,
                                            .n_rounds = presets[k].n_rounds,
                                            .committee = 2,
                                            .baseline = presets[k].n_rounds > 0,
                                            .n_features = presets[k].n_features,
                                            .n_layers = presets[k].n_layers,
                                            .n_radial = 20,
                                            .cutoff_angstrom = 5,
                                            .core_repulsion = 0.7,
                                            .batch_size = 8,
                                            .learning_rate = presets[k].learning_rate,
                                            .huber_forces = presets[k].huber_forces,
                                            .optimizer = presets[k].optimizer,
                                            .nearer = 0.03,
                                            .strain = 0.03,
                                            .n_steps = presets[k].n_steps,
                                            .nve_ps = presets[k].nve_ps,
                                            .hot_ps = presets[k].hot_ps,
                                            .compare_ps = presets[k].compare_ps,
                                            .speed_s = 1.2,
                                            .hot_runs = presets[k].hot_runs,
                                            .max_force_error = presets[k].max_force_error,
                                            .max_energy_error = 0.005,
                                            .max_drift = 5e-5,
                                            .min_speed = 1,
                                            .n_pressed = 1024,
                                            .n_dynamics = 64,
                                            .max_pressure_error = presets[k].max_pressure_error};
        return MLFF_OK;
    }
    return mlff_fail(MLFF_ERR_USAGE, "preset \"%.40s\" is unknown; there are demo, quick, standard and thorough",
                     name ? name : "");
}

void mlff_distill_use_labels(mlff_distill_config *config, const char *labels)
{
    config->labels = labels;
    config->n_structures = config->n_rounds = config->n_probes = config->baseline = 0;
    config->core_repulsion = 1;
    if (!config->teacher) config->min_speed = config->compare_ps = config->n_pressed = config->n_dynamics = 0;
}

// Settings of a run that samples cannot be those of one from labels: all are named at once, as an edited preset has several.
static mlff_status check_for_labels(const mlff_distill_config *c)
{
    const bool alone = !c->teacher;
    const struct {
        const char *name;
        bool is_wrong;
    } settings[] = {{"n_rounds", c->n_rounds > 0},
                    {"n_probes", c->n_probes > 0},
                    {"min_speed", alone && c->min_speed > 0},
                    {"compare_ps", alone && c->compare_ps > 0}};
    char names[64] = "";
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        const size_t length = strlen(names);
        if (settings[k].is_wrong) snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", settings[k].name);
    }
    if (!names[0]) return MLFF_OK;
    const bool labels = settings[0].is_wrong || settings[1].is_wrong, measures = settings[2].is_wrong || settings[3].is_wrong;
    return mlff_fail(MLFF_ERR_USAGE,
                     "with labels set %s to 0: %s%s%s; mlff distill --labels FILE --print-config prints settings of such a run",
                     names, labels ? "rounds and Hessian probes need a teacher that labels" : "", labels && measures ? ", " : "",
                     measures ? "min_speed and compare_ps need a teacher to measure beside" : "");
}

static double value_of(const mlff_distill_config *config, const struct field *field)
{
    const void *at = (const char *)config + field->offset;
    switch (field->kind) {
    case INTEGER: return *(const int *)at;
    case LONG: return (double)*(const int64_t *)at;
    case SEED: return (double)*(const uint64_t *)at;
    default: return *(const double *)at;
    }
}

// config.json with other values would not be read, and a committee has no room for more students.
static mlff_status check_ranges(const mlff_distill_config *c)
{
    if (c->seed > MOST_SEED)
        return mlff_fail(MLFF_ERR_USAGE, "seed is %" PRIu64 "; it must be an integer from 0 to %" PRIu64, c->seed, MOST_SEED);
    for (int k = 0; k < N_FIELDS; k++) {
        const struct field *field = &fields[k];
        if (field->kind == TEXT) continue;
        const double value = value_of(c, field);
        if (!(value >= field->least && value <= field->most))
            return mlff_fail(MLFF_ERR_USAGE, "%s is %.10g; it must be a number from %g to %g", field->name, value, field->least,
                             field->most);
    }
    if (c->highest_kelvin < c->lowest_kelvin) return mlff_fail(MLFF_ERR_USAGE, "highest_kelvin is below lowest_kelvin");
    return MLFF_OK;
}

mlff_status distill_config_check(const mlff_distill_config *c)
{
    const mlff_status in_range = check_ranges(c);
    if (in_range != MLFF_OK) return in_range;
    const bool is_whole =
        c->labels ? c->n_structures == 0 || c->n_structures >= DISTILL_FEWEST_LABELS : c->n_structures >= DISTILL_FEWEST_SAMPLES;
    if (!c->labels && (!c->teacher || !c->systems))
        return mlff_fail(MLFF_ERR_USAGE, "a teacher and at least one system must be given, or labels");
    if (c->labels && (c->systems || c->n_atoms > 0))
        return mlff_fail(MLFF_ERR_USAGE, "labels have structures of their own: systems and n_atoms go without them");
    if (c->labels) {
        const mlff_status status = check_for_labels(c);
        if (status != MLFF_OK) return status;
    }
    if (!is_whole)
        return mlff_fail(MLFF_ERR_USAGE, "n_structures is %d; give %d or more%s", c->n_structures,
                         c->labels ? DISTILL_FEWEST_LABELS : DISTILL_FEWEST_SAMPLES, c->labels ? ", or 0 for all" : "");
    return MLFF_OK;
}

mlff_status distill_optimizer(const mlff_distill_config *config, mlff_trainer_optimizer *optimizer_out)
{
    const char *name = config->optimizer;
    if (!name || strcmp(name, "adamw") == 0)
        *optimizer_out = MLFF_ADAMW;
    else if (strcmp(name, "soap") == 0)
        *optimizer_out = MLFF_SOAP;
    else
        return mlff_fail(MLFF_ERR_USAGE, "optimizer \"%.40s\" is unknown; there are adamw and soap", name);
    return MLFF_OK;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

// "name": value
static void write_field(const mlff_distill_config *config, const struct field *field, base_text *text)
{
    const void *at = (const char *)config + field->offset;
    switch (field->kind) {
    case TEXT: record_names(text, true, field->name, *(const char *const *)at); break;
    case INTEGER: record_integer(text, true, field->name, *(const int *)at); break;
    case LONG: record_integer(text, true, field->name, *(const int64_t *)at); break;
    case SEED: record_integer(text, true, field->name, (int64_t) * (const uint64_t *)at); break;
    case NUMBER: record_exact(text, true, field->name, *(const double *)at); break;
    }
}

mlff_status mlff_distill_config_save(const mlff_distill_config *config, const char *path)
{
    base_text text = {0};
    base_text_add(&text, "{\n  ");
    for (int k = 0; k < N_FIELDS; k++) {
        if (k) base_text_add(&text, ",\n  ");
        write_field(config, &fields[k], &text);
    }
    base_text_add(&text, "\n}\n");
    mlff_status status = base_text_write(&text, path);
    base_text_free(&text);
    return status;
}

static mlff_status take_text(const char *path, const struct field *field, const cJSON *item, char **room, size_t *left, char *at)
{
    if (cJSON_IsNull(item)) return MLFF_OK;
    if (!cJSON_IsString(item)) return mlff_fail(MLFF_ERR_FORMAT, "%s: %s is not a text", path, field->name);
    const size_t bytes = strlen(item->valuestring) + 1;
    if (bytes > *left) return mlff_fail(MLFF_ERR_LIMIT, "%s: %s is too long", path, field->name);
    memcpy(*room, item->valuestring, bytes);
    *(const char **)at = *room;
    *room += bytes;
    *left -= bytes;
    return MLFF_OK;
}

static mlff_status take_number(const char *path, const struct field *field, const cJSON *item, void *at)
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    const bool whole = field->kind == NUMBER || value == floor(value);
    if (!(value >= field->least && value <= field->most) || !whole)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: %s must be a %snumber from %g to %g", path, field->name,
                         field->kind == NUMBER ? "" : "whole ", field->least, field->most);
    switch (field->kind) {
    case INTEGER: *(int *)at = (int)value; break;
    case LONG: *(int64_t *)at = (int64_t)value; break;
    case SEED: *(uint64_t *)at = (uint64_t)value; break;
    default: *(double *)at = value; break;
    }
    return MLFF_OK;
}

// The code of an escape \uXXXX, 0 where there is none.
static unsigned escape_at(const char *text)
{
    char digits[5] = "";
    if (text[0] != '\\' || text[1] != 'u') return 0;
    memcpy(digits, text + 2, strnlen(text + 2, 4));
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (unsigned)strtoul(digits, NULL, 16) : 0;
}

// In place of \udc80 to \udcff, which stand for bytes that are no UTF-8 (record_names) and which cJSON refuses, those bytes.
static void restore_names(char *text, size_t *length)
{
    size_t to = 0;
    for (size_t from = 0; from < *length;) {
        const unsigned code = escape_at(text + from);
        size_t n = code >= 0xd800 && code < 0xdc00 && escape_at(text + from + 6) ? 12
                   : code                                                        ? 6
                                                                                 : 1; // 12: a pair is one character
        if (n == 1 && text[from] == '\\' && from + 1 < *length) n = 2;
        if (code >= 0xdc80 && code <= 0xdcff)
            text[to++] = (char)(code & 0xff);
        else
            memmove(text + to, text + from, n), to += n;
        from += n;
    }
    text[to] = 0;
    *length = to;
}

mlff_status mlff_distill_config_read(const char *path, mlff_distill_config *config, char *text, size_t text_bytes)
{
    mlff_status status = MLFF_OK;
    char *bytes = NULL;
    size_t length = 0;
    cJSON *root = NULL;
    mlff_distill_config read = *config;
    MLFF_TRY(base_read_file(path, 1 << 20, &bytes, &length));
    if (memchr(bytes, 0, length) || base_json_has_zero(bytes, length)) // which would end a text early
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: a zero byte in the text; remove it", path);
    restore_names(bytes, &length);
    const char *end = NULL;
    root = cJSON_ParseWithLengthOpts(bytes, length, &end, 0);
    if (!cJSON_IsObject(root)) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not a JSON object", path);
    end += strspn(end, " \t\r\n");
    if (*end) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: something follows the JSON object: \"%.20s\"; remove it", path, end);
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        int k = 0;
        while (k < N_FIELDS && strcmp(fields[k].name, item->string) != 0) k++;
        if (k == N_FIELDS)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: \"%.60s\" is not a setting; mlff distill --print-config shows them", path,
                      item->string);
        void *at = (char *)&read + fields[k].offset;
        MLFF_TRY(fields[k].kind == TEXT ? take_text(path, &fields[k], item, &text, &text_bytes, at)
                                        : take_number(path, &fields[k], item, at));
    }
    if (read.highest_kelvin < read.lowest_kelvin) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: highest_kelvin is below lowest_kelvin", path);
    *config = read;
done:
    cJSON_Delete(root);
    base_free(bytes);
    return status;
}

// ---- a run's settings and those that are asked for -------------------------------------------------------------------------

static int count_names(const char *list)
{
    int n = list != NULL;
    for (; list && (list = strchr(list, ',')); list++) n++;
    return n;
}

// The folder has the real path of a teacher's file, the caller may name it otherwise.
static bool is_same_file(const char *a, const char *b)
{
    return a && b && base_same_file(a, b);
}

// Labels and structures are told by their hashes, wherever their files are; what is asked for has none before they are read.
static bool is_compared(const struct field *field, const mlff_distill_config *asked, const mlff_distill_config *made,
                        bool files_alone)
{
    if (field->use == VERDICT) return !files_alone;
    if (field->offset == offsetof(mlff_distill_config, teacher)) return !is_same_file(asked->teacher, made->teacher);
    if (field->offset == offsetof(mlff_distill_config, labels)) return !asked->labels != !made->labels;
    if (field->offset == offsetof(mlff_distill_config, systems) && made->systems_hash)
        return count_names(asked->systems) != count_names(made->systems);
    if (field->offset == offsetof(mlff_distill_config, systems_hash)) return false; // compared with the structures themselves
    return field->offset != offsetof(mlff_distill_config, labels_hash) || files_alone;
}

mlff_status distill_config_same(const mlff_distill_config *asked, const mlff_distill_config *made, bool files_alone,
                                char difference[DISTILL_DIFFERENCE_BYTES])
{
    mlff_status status = MLFF_OK;
    base_text texts[2] = {{0}};
    difference[0] = 0;
    for (int k = 0; k < N_FIELDS && !difference[0]; k++) {
        if (!is_compared(&fields[k], asked, made, files_alone)) continue;
        for (int side = 0; side < 2; side++) {
            texts[side].length = 0;
            write_field(side ? made : asked, &fields[k], &texts[side]);
            MLFF_TRY(texts[side].status);
        }
        if (strcmp(texts[0].text, texts[1].text) == 0) continue;
        const char *value = strstr(texts[1].text, ": ") + 2;
        snprintf(difference, DISTILL_DIFFERENCE_BYTES, "%.80s in place of %.80s", texts[0].text, value);
    }
done:
    for (int side = 0; side < 2; side++) base_text_free(&texts[side]);
    return status;
}
