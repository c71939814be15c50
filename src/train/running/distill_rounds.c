// SPDX-License-Identifier: MIT
// distill_rounds.c: rounds of exploration: a committee of young students runs dynamics, and the frames on which it disagrees most,
// or at which a trajectory breaks, are labelled and join the data.
//
// An exploration is finished once explored-K.json is there, a round once its record is there; then its structures are in a file of their
// own and the young students are gone.
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "distill.h"
#include "train/fitting/train_record.h"
#include "train/judging/verdict.h"
#include "train/sampling/samples.h"

#define STILL_FALLING 0.95      // of the round before: above it the deviation no longer falls
enum { YOUNG_STEPS_PART = 10 }; // a young student takes this part of the steps
enum { MOST_RECORD_BYTES = 1 << 30 };

// Of one structure that was labelled: what the committee did not know, and how wrong its first member was (eV/Å).
typedef struct deviation_error {
    double deviation, error;
} deviation_error;

typedef struct explore_round {
    int k;
    char *samples, *met, *labels, *record; // paths; met: of the record that has no labels yet
    char *student[DISTILL_MAX_COMMITTEE];
    int64_t n_structures;
    double upper_deviation; // eV/Å, 90th percentile over the frames that the committee met
} explore_round;

static void round_free(explore_round *r)
{
    base_free(r->samples);
    base_free(r->met);
    base_free(r->labels);
    base_free(r->record);
    for (int m = 0; m < DISTILL_MAX_COMMITTEE; m++) base_free(r->student[m]);
}

static mlff_status round_paths(const distill *d, int k, explore_round *r)
{
    static const char *const names[DISTILL_MAX_COMMITTEE] = {"young-0", "young-1", "young-2", "young-3",
                                                             "young-4", "young-5", "young-6", "young-7"};
    *r = (explore_round){.k = k};
    r->samples = distill_path(d, "explored", k, ".extxyz");
    r->met = distill_path(d, "explored", k, ".json");
    r->labels = distill_path(d, "labels", k, ".mlff");
    r->record = distill_path(d, "round", k, ".json");
    bool all = r->samples && r->met && r->labels && r->record;
    for (int m = 0; m < DISTILL_MAX_COMMITTEE; m++) {
        r->student[m] = distill_path(d, names[m], k, ".safetensors");
        all = all && r->student[m];
    }
    return all ? MLFF_OK : MLFF_ERR_MEMORY;
}

// ---- the record

static void add_pairs(base_text *text, const deviation_error *pairs, int64_t n)
{
    for (int side = 0; side < 2; side++) {
        base_text_add(text, side ? "], \"error_ev_per_angstrom\": [" : ", \"deviation_ev_per_angstrom\": [");
        for (int64_t k = 0; k < n; k++) base_text_add(text, "%s%.6g", k ? ", " : "", side ? pairs[k].error : pairs[k].deviation);
    }
    base_text_add(text, "]");
}

static mlff_status write_record(const char *path, const explore_round *r, const mlff_explore_info *info, int committee,
                                const deviation_error *pairs, int64_t n_pairs)
{
    base_text text = {0};
    base_text_add(&text, "{");
    record_integer(&text, true, "round", r->k);
    record_integer(&text, false, "structures", r->n_structures);
    record_integer(&text, false, "committee", committee);
    record_integer(&text, false, "trajectories", info->n_trajectories);
    record_integer(&text, false, "bond_alarms", info->n_bond_alarms);
    record_integer(&text, false, "deviation_alarms", info->n_deviation_alarms);
    record_integer(&text, false, "frames", info->n_frames);
    record_number(&text, false, "median_deviation_ev_per_angstrom", info->median_deviation);
    record_number(&text, false, "upper_deviation_ev_per_angstrom", info->upper_deviation);
    add_pairs(&text, pairs, n_pairs);
    base_text_add(&text, "}\n");
    const mlff_status status = base_text_write(&text, path);
    base_text_free(&text);
    return status;
}

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

// The record of an exploration whose structures may have no labels yet. False where it is not there or not readable, or its structures
// are gone.
static bool read_met(const explore_round *r, int64_t *n_structures_out, mlff_explore_info *info_out)
{
    static const char *const keys[] = {"structures", "trajectories", "bond_alarms", "deviation_alarms", "frames"};
    enum { N_COUNTS = sizeof keys / sizeof *keys };
    double n[N_COUNTS];
    char *text = NULL;
    size_t length;
    if (access(r->met, F_OK) != 0 || base_read_file(r->met, MOST_RECORD_BYTES, &text, &length) != MLFF_OK) return false;
    cJSON *json = cJSON_ParseWithLength(text, length);
    bool good = true;
    for (int k = 0; k < N_COUNTS; k++) {
        n[k] = number_of(json, keys[k]);
        good = good && n[k] >= 0 && n[k] <= 1e9;
    }
    if (good) {
        *n_structures_out = (int64_t)n[0];
        *info_out = (mlff_explore_info){.n_trajectories = (int)n[1],
                                        .n_bond_alarms = (int)n[2],
                                        .n_deviation_alarms = (int)n[3],
                                        .n_frames = (int64_t)n[4],
                                        .median_deviation = number_of(json, "median_deviation_ev_per_angstrom"),
                                        .upper_deviation = number_of(json, "upper_deviation_ev_per_angstrom")};
    }
    cJSON_Delete(json);
    base_free(text);
    return good && (n[0] == 0 || access(r->samples, F_OK) == 0);
}

mlff_status distill_round_read(const char *path, int64_t *n_structures_out, double *upper_deviation_out)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t length;
    cJSON *json = NULL;
    MLFF_TRY(base_read_file(path, MOST_RECORD_BYTES, &text, &length));
    json = cJSON_ParseWithLength(text, length);
    const double n = number_of(json, "structures");
    if (!(n >= 0 && n <= 1e9 && n == floor(n)))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: is not a record of a round; remove it, and the round runs again", path);
    *n_structures_out = (int64_t)n;
    *upper_deviation_out = number_of(json, "upper_deviation_ev_per_angstrom");
done:
    cJSON_Delete(json);
    base_free(text);
    return status;
}

// ---- exploring

static int while_exploring(void *context, const mlff_sample_progress *p)
{
    return distill_tell(context, (double)p->n_done / (double)p->n_total, 0,
                        "dynamics by partly trained students: %" PRId64 " ended by an alarm", p->n_rejected) != MLFF_OK;
}

// Enough trajectories that some ten frames are met for each that is kept.
static mlff_explore_options options_of(distill *d, int k)
{
    const mlff_distill_config *c = &d->config;
    mlff_explore_options options = mlff_explore_options_default();
    options.n_samples = distill_round_size(c);
    options.temperatures[0] = c->lowest_kelvin;
    options.temperatures[1] = sqrt(c->lowest_kelvin * c->highest_kelvin);
    options.temperatures[2] = c->highest_kelvin;
    options.duration_fs = 2000;
    const double frames = options.n_temperatures * options.duration_fs / options.interval_fs;
    options.n_trajectories = (int)fmax(4, ceil(10 * (double)options.n_samples / frames));
    options.closest = VERDICT_PRESSED_TO;
    options.strain = c->strain;
    options.seed = c->seed + 100 * (uint64_t)k;
    options.callback = while_exploring;
    options.context = d;
    return options;
}

static mlff_status train_committee(distill *d, const explore_round *r, mlff_model **students, mlff_teacher **committee)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_teacher_options options = mlff_teacher_options_default();
    options.device = d->options.device;
    options.n_threads = d->options.n_threads;
    for (int m = 0; m < c->committee; m++) {
        const uint64_t seed = c->seed + 100 * (uint64_t)r->k + 1 + (uint64_t)m;
        const int64_t n_steps = c->n_steps < YOUNG_STEPS_PART ? 1 : c->n_steps / YOUNG_STEPS_PART;
        MLFF_TRY(distill_train(d, &d->data, r->student[m], seed, n_steps, false, NULL, &students[m]));
        MLFF_TRY(mlff_teacher_create_model(students[m], &options, &committee[m]));
    }
done:
    return status;
}

// Those of `met` from index `first` on, as a file of their own.
static mlff_status write_new(const mlff_samples *met, int64_t first, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_samples *new = NULL;
    MLFF_TRY(mlff_samples_create(&new));
    for (int64_t k = first; k < mlff_samples_size(met); k++) {
        const char *origin;
        const mlff_system *system = mlff_samples_get(met, k, &origin);
        MLFF_TRY(mlff_samples_add(new, system, origin));
    }
    MLFF_TRY(mlff_samples_write(new, path));
done:
    mlff_samples_destroy(new);
    return status;
}

// ---- deviation against error

static double largest_error(const mlff_system *labelled, const double *forces)
{
    double largest = 0;
    for (int i = 0; i < labelled->n_atoms; i++) {
        double square = 0;
        for (int c = 3 * i; c < 3 * i + 3; c++) square += pow(forces[c] - labelled->label_forces[c], 2);
        largest = fmax(largest, square);
    }
    return sqrt(largest);
}

static mlff_status pair_of(mlff_teacher *const *committee, int n_members, const mlff_system *labelled, deviation_error *pair)
{
    mlff_status status = MLFF_OK;
    mlff_label said[DISTILL_MAX_COMMITTEE] = {0}, *labels[DISTILL_MAX_COMMITTEE];
    bool all = labelled->label_forces != NULL;
    *pair = (deviation_error){NAN, NAN};
    for (int m = 0; m < n_members; m++) {
        labels[m] = &said[m];
        MLFF_TRY(mlff_teacher_compute(committee[m], &labelled, 1, &said[m]));
        all = all && said[m].status == MLFF_OK;
    }
    if (!all) goto done;
    pair->error = largest_error(labelled, said[0].forces);
    if (n_members > 1) pair->deviation = sample_deviation(labels, n_members, 0, labelled->n_atoms);
done:
    for (int m = 0; m < n_members; m++) mlff_label_clear(&said[m]);
    return status;
}

// Of every structure of the round that has a label; *n_out of them, without those for which a member fails.
static mlff_status find_pairs(const distill *d, const explore_round *r, mlff_teacher *const *committee,
                              deviation_error **pairs_out, int64_t *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *labels = NULL;
    mlff_system *system = NULL;
    MLFF_TRY(mlff_dataset_create(&labels));
    MLFF_TRY(mlff_dataset_read(labels, r->labels));
    const int64_t n = mlff_dataset_size(labels);
    if (!(*pairs_out = base_alloc((size_t)n, sizeof **pairs_out, "deviations"))) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int64_t k = 0; k < n; k++) {
        MLFF_TRY(mlff_dataset_get(labels, k, &system));
        MLFF_TRY(pair_of(committee, d->config.committee, system, &(*pairs_out)[*n_out]));
        *n_out += isfinite((*pairs_out)[*n_out].deviation) && isfinite((*pairs_out)[*n_out].error);
        mlff_system_destroy(system);
        system = NULL;
    }
done:
    mlff_system_destroy(system);
    mlff_dataset_destroy(labels);
    return status;
}

// ---- a round

// Labels of the structures as they are in their file, so that every run labels the same digits.
static mlff_status label_round(distill *d, const explore_round *r)
{
    mlff_status status = MLFF_OK;
    mlff_samples *met = NULL;
    MLFF_TRY(mlff_samples_create(&met));
    MLFF_TRY(mlff_samples_read(met, r->samples));
    MLFF_TRY(distill_label(d, met, r->labels));
done:
    mlff_samples_destroy(met);
    return status;
}

// What the committee meets, into files. `known`: all structures so far, from which new ones shall differ.
static mlff_status meet(distill *d, explore_round *r, mlff_teacher *const *committee, mlff_samples *known,
                        mlff_explore_info *info)
{
    mlff_status status = MLFF_OK;
    const mlff_explore_options options = options_of(d, r->k);
    const int64_t before = mlff_samples_size(known);
    MLFF_TRY(mlff_explore(committee, d->config.committee, d->seeds, &options, known, info));
    r->n_structures = mlff_samples_size(known) - before;
    MLFF_TRY(distill_tell(d, 1, 1,
                          "round %d: %" PRId64 " of %" PRId64
                          " frame%s to be labelled; deviation of the committee up to %.3f eV/Å in "
                          "90 %% of them; %d of %d %s ended by an alarm",
                          r->k, r->n_structures, info->n_frames, base_plural(info->n_frames), info->upper_deviation,
                          info->n_bond_alarms + info->n_deviation_alarms, info->n_trajectories,
                          info->n_trajectories == 1 ? "trajectory" : "trajectories"));
    if (r->n_structures > 0) MLFF_TRY(write_new(known, before, r->samples));
    MLFF_TRY(write_record(r->met, r, info, d->config.committee, NULL, 0));
done:
    return status;
}

// Trains the committee, explores, unless that was done before the run was interrupted, has the teacher label what was met, and records
// the round.
static mlff_status explore(distill *d, explore_round *r, mlff_samples *known)
{
    mlff_status status = MLFF_OK;
    mlff_model *students[DISTILL_MAX_COMMITTEE] = {0};
    mlff_teacher *committee[DISTILL_MAX_COMMITTEE] = {0};
    deviation_error *pairs = NULL;
    int64_t n_pairs = 0;
    mlff_explore_info info;
    MLFF_TRY(train_committee(d, r, students, committee));
    if (!read_met(r, &r->n_structures, &info))
        MLFF_TRY(meet(d, r, committee, known, &info));
    else if (r->n_structures > 0)
        MLFF_TRY(mlff_samples_read(known, r->samples));
    r->upper_deviation = info.upper_deviation;
    if (r->n_structures > 0) {
        MLFF_TRY(label_round(d, r));
        MLFF_TRY(find_pairs(d, r, committee, &pairs, &n_pairs));
    }
    MLFF_TRY(write_record(r->record, r, &info, d->config.committee, pairs, n_pairs));
done:
    for (int m = 0; m < DISTILL_MAX_COMMITTEE; m++) {
        mlff_teacher_destroy(committee[m]);
        mlff_model_destroy(students[m]);
    }
    base_free(pairs);
    return status;
}

static mlff_status add_round(distill *d, const explore_round *r)
{
    d->n_explored += r->n_structures;
    d->n_rounds++;
    return distill_add_labels(d, r->labels, d->config.seed + 2 * (uint64_t)r->k, &d->data);
}

static mlff_status run_round(distill *d, explore_round *r, mlff_samples *known)
{
    mlff_status status = MLFF_OK;
    d->stage = "round";
    bool is_done = access(r->record, F_OK) == 0;
    if (is_done) {
        MLFF_TRY(distill_round_read(r->record, &r->n_structures, &r->upper_deviation));
        if (r->n_structures > 0 && access(r->samples, F_OK) != 0) {
            MLFF_TRY(distill_tell(d, 0, 1, "%s is gone: round %d runs again", r->samples, r->k));
            is_done = false;
        }
    }
    if (!is_done)
        MLFF_TRY(explore(d, r, known));
    else if (r->n_structures > 0)
        MLFF_TRY(mlff_samples_read(known, r->samples));
    for (int m = 0; m < DISTILL_MAX_COMMITTEE; m++) unlink(r->student[m]);
    unlink(r->met);
    if (r->n_structures == 0) goto done;
    MLFF_TRY(label_round(d, r)); // nothing to do but to see that they are this teacher's
    MLFF_TRY(add_round(d, r));
done:
    return status;
}

mlff_status distill_rounds_check_absent(const distill *d)
{
    mlff_status status = MLFF_OK;
    explore_round r = {0};
    for (int k = 1; k <= d->config.n_rounds; k++) {
        MLFF_TRY(round_paths(d, k, &r));
        const char *const files[] = {r.samples, r.met, r.labels, r.record};
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) MLFF_TRY(distill_refuse_found(files[f]));
        for (int m = 0; m < DISTILL_MAX_COMMITTEE; m++) MLFF_TRY(distill_training_check_absent(r.student[m]));
        round_free(&r);
        r = (explore_round){0};
    }
done:
    round_free(&r);
    return status;
}

mlff_status distill_rounds_read(distill *d)
{
    mlff_status status = MLFF_OK;
    explore_round r = {0};
    for (int k = 1; k <= d->config.n_rounds; k++) {
        MLFF_TRY(round_paths(d, k, &r));
        if (access(r.record, F_OK) != 0) break; // the rounds ended before
        MLFF_TRY(distill_round_read(r.record, &r.n_structures, &r.upper_deviation));
        if (r.n_structures > 0) MLFF_TRY(add_round(d, &r));
        round_free(&r);
        r = (explore_round){0};
    }
done:
    round_free(&r);
    return status;
}

mlff_status distill_rounds(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_samples *known = NULL;
    explore_round r = {0};
    double before = NAN;
    if (d->config.n_rounds == 0) return MLFF_OK;
    MLFF_TRY(mlff_samples_create(&known));
    MLFF_TRY(mlff_samples_read(known, d->path[DISTILL_SAMPLES]));
    for (int k = 1; k <= d->config.n_rounds; k++) {
        MLFF_TRY(round_paths(d, k, &r));
        MLFF_TRY(run_round(d, &r, known));
        if (r.upper_deviation > STILL_FALLING * before) {
            MLFF_TRY(distill_tell(d, 1, 1, "the committee's deviation no longer falls: no more rounds"));
            break;
        }
        before = r.upper_deviation;
        round_free(&r);
        r = (explore_round){0};
    }
done:
    round_free(&r);
    mlff_samples_destroy(known);
    return status;
}
