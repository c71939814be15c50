// SPDX-License-Identifier: MIT
// distill.c: a run from a teacher's name to a judged student, in a folder from which it goes on after any interruption.
//
// Each stage leaves one file that appears whole (labels grow, with checksums); a stage whose file is there is not run again.
// Everything is drawn from the seed, so that an interrupted run ends in the same bits as one that was not.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlff_train.h"
#include "train/data/dataset.h"
#include "train/distill.h"
#include "train/judging/verdict.h"

enum { TEXT_BYTES = 8192 };

// The files of a run's folder.
enum file { CONFIG, SAMPLES, LABELS, CHECKPOINT, BEST, HISTORY, STUDENT, VERDICT, REPORT, N_FILES };
static const char *const file_names[N_FILES] = {"config.json",         "samples.extxyz",   "labels.mlff",
                                                "checkpoint",          "best.safetensors", "history.jsonl",
                                                "student.safetensors", "verdict.json",     "report.html"};

typedef struct distill {
    mlff_distill_config config;
    mlff_distill_options options;
    char text[TEXT_BYTES]; // strings of the configuration
    char *path[N_FILES];
    const char *stage;
    bool is_new;                         // the folder holds no configuration yet
    mlff_teacher *teacher, *own_teacher; // own: opened here
    mlff_samples *seeds, *samples;
    mlff_dataset *train, *validation, *test;
    mlff_model *student;
    mlff_verdict *verdict;
} distill;

mlff_distill_options mlff_distill_options_default(void)
{
    return (mlff_distill_options){.struct_size = sizeof(mlff_distill_options)};
}

// ---- progress -------------------------------------------------------------------------------------------------------

static mlff_status tell(const distill *d, double fraction, int milestone, const char *format, ...) MLFF_PRINTF(4, 5);
static mlff_status tell(const distill *d, double fraction, int milestone, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (!d->options.callback) return MLFF_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const mlff_distill_progress progress = {.stage = d->stage, .fraction = fraction, .text = text, .milestone = milestone};
    if (d->options.callback(d->options.context, &progress) == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_INTERRUPTED, "stopped during %s; the same command goes on from there", d->stage);
}

static bool is_there(const distill *d, enum file file)
{
    return access(d->path[file], F_OK) == 0;
}

// ---- folder and configuration -----------------------------------------------------------------------------------------

// Files that a killed run was writing: a run's file name, a dot and eight hexadecimal digits (base_output).
static void remove_unfinished(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) return;
    // cppcheck-suppress readdirCalled ; safe in glibc: no other thread has this stream
    for (const struct dirent *entry; (entry = readdir(directory));)
        for (int k = 0; k < N_FILES; k++) {
            const size_t length = strlen(file_names[k]);
            const char *digits = entry->d_name + length + 1;
            if (strncmp(entry->d_name, file_names[k], length) == 0 && entry->d_name[length] == '.' && strlen(digits) == 8 &&
                strspn(digits, "0123456789abcdef") == 8)
                unlinkat(dirfd(directory), entry->d_name, 0);
        }
    closedir(directory);
}

static mlff_status make_paths(distill *d, const char *folder)
{
    for (int k = 0; k < N_FILES; k++) {
        base_text path = {0};
        base_text_add(&path, "%s/%s", folder, file_names[k]);
        d->path[k] = path.text;
        if (path.status != MLFF_OK) return path.status;
    }
    if (access(folder, F_OK) == 0 && !base_is_folder(folder))
        return mlff_fail(MLFF_ERR_IO, "%s: is a file; a run needs a folder", folder);
    remove_unfinished(folder);
    return MLFF_OK;
}

// Makes a new run's folder and freezes its configuration: once the teacher and the systems are known to be there, so that a mistyped
// name leaves nothing behind.
static mlff_status begin_folder(const distill *d, const char *folder)
{
    if (!d->is_new) return MLFF_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return mlff_fail(MLFF_ERR_IO, "%s: cannot make this folder: %s", folder, strerror(errno));
    return mlff_distill_config_save(&d->config, d->path[CONFIG]);
}

// The configuration of a new run, or that of the folder, compared with what is asked for.
static mlff_status settle_config(distill *d, const mlff_distill_config *asked)
{
    mlff_status status = MLFF_OK;
    base_text wanted = {0};
    char *there = NULL;
    size_t length;
    if (!is_there(d, CONFIG)) {
        if (!asked) return mlff_fail(MLFF_ERR_IO, "%s: there is no run to go on with", d->path[CONFIG]);
        d->config = *asked;
        d->is_new = true;
        if (!asked->teacher || !asked->systems)
            return mlff_fail(MLFF_ERR_USAGE, "mlff_distill: a teacher and at least one system must be given");
        return MLFF_OK;
    }
    MLFF_TRY(mlff_distill_preset("standard", &d->config));
    d->config.core_repulsion = 0; // of a folder from before this setting
    MLFF_TRY(mlff_distill_config_read(d->path[CONFIG], &d->config, d->text, sizeof d->text));
    if (!d->config.teacher || !d->config.systems)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: teacher or systems are missing", d->path[CONFIG]);
    if (!asked) goto done;
    distill_config_write(asked, &wanted);
    MLFF_TRY(wanted.status);
    MLFF_TRY(base_read_file(d->path[CONFIG], 1 << 20, &there, &length));
    if (strcmp(there, wanted.text) != 0)
        status = mlff_fail(MLFF_ERR_VALUE, "%s: is of another run; go on with --resume, or give another folder", d->path[CONFIG]);
done:
    base_free(there);
    base_text_free(&wanted);
    return status;
}

// "ethanol,water.xyz": a built-in system where there is one of this name, else a file with all its frames.
static mlff_status make_seeds(distill *d)
{
    mlff_status status = MLFF_OK;
    int n_builders;
    const mlff_builder_info *builders = mlff_builders(&n_builders);
    char *list = base_strdup(d->config.systems), *rest = list, *name;
    if (!list) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_samples_create(&d->seeds));
    while ((name = strtok_r(rest, ",", &rest))) {
        bool built_in = false;
        for (int k = 0; k < n_builders; k++) built_in = built_in || strcmp(builders[k].name, name) == 0;
        if (built_in) {
            mlff_system *system = NULL;
            MLFF_TRY(mlff_system_build(name, d->config.n_atoms, d->config.seed, &system));
            status = mlff_samples_add(d->seeds, system, name);
            mlff_system_destroy(system);
        } else {
            status = mlff_samples_read(d->seeds, name);
        }
        if (status != MLFF_OK) goto done;
    }
    if (mlff_samples_size(d->seeds) == 0) MLFF_FAIL(MLFF_ERR_USAGE, "\"%s\" names no system", d->config.systems);
    for (int64_t k = 0; k < mlff_samples_size(d->seeds); k++)
        MLFF_TRY(mlff_teacher_check(d->teacher, mlff_samples_get(d->seeds, k, NULL), NULL));
done:
    base_free(list);
    return status;
}

static mlff_status open_teacher(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_teacher_info info;
    d->teacher = d->options.teacher;
    if (!d->teacher) {
        options.device = d->options.device;
        options.n_threads = d->options.n_threads;
        MLFF_TRY(mlff_teacher_open(d->config.teacher, &options, &d->own_teacher));
        d->teacher = d->own_teacher;
    }
    mlff_teacher_info_get(d->teacher, &info);
    MLFF_TRY(tell(d, 0, 1, "teacher %s: %s", info.name, info.description));
done:
    return status;
}

// ---- sample and label -------------------------------------------------------------------------------------------------

static int while_sampling(void *context, const mlff_sample_progress *p)
{
    return tell(context, (double)p->n_done / (double)p->n_total, 0,
                "%s: %" PRId64 " of %" PRId64 " candidates, %" PRId64 " rejected", p->method, p->n_done, p->n_total,
                p->n_rejected) != MLFF_OK;
}

static mlff_status sample_stage(distill *d)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_sample_options options = mlff_sample_options_default();
    d->stage = "sample";
    MLFF_TRY(mlff_samples_create(&d->samples));
    if (is_there(d, SAMPLES)) return mlff_samples_read(d->samples, d->path[SAMPLES]);
    options.n_samples = c->n_structures;
    options.n_temperatures = 3;
    options.temperatures[0] = c->lowest_kelvin;
    options.temperatures[1] = sqrt(c->lowest_kelvin * c->highest_kelvin);
    options.temperatures[2] = c->highest_kelvin;
    options.seed = c->seed;
    options.closest = fmax(options.closest, c->core_repulsion);
    options.callback = while_sampling;
    options.context = d;
    MLFF_TRY(mlff_sample(d->teacher, d->seeds, &options, d->samples));
    if (c->n_probes > 0) MLFF_TRY(mlff_samples_add_probes(d->samples, c->n_probes, 0.01, c->seed));
    MLFF_TRY(mlff_samples_write(d->samples, d->path[SAMPLES]));
    const int64_t n_seeds = mlff_samples_size(d->seeds);
    MLFF_TRY(tell(d, 1, 1, "%" PRId64 " structures around %" PRId64 " seed%s, %g to %g K", mlff_samples_size(d->samples), n_seeds,
                  n_seeds == 1 ? "" : "s", c->lowest_kelvin, c->highest_kelvin));
done:
    return status;
}

static int while_labelling(void *context, const mlff_label_progress *p)
{
    const double rate = p->elapsed_s > 0 ? (double)(p->n_done - p->n_before) / p->elapsed_s : 0;
    return tell(context, (double)p->n_done / (double)p->n_total, 0,
                "%" PRId64 " of %" PRId64 " labels, %.0f/s, %" PRId64 " failed", p->n_done, p->n_total, rate,
                p->n_failed) != MLFF_OK;
}

static mlff_status label_stage(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_shard *shard = NULL;
    mlff_shard_info info;
    mlff_label_progress progress = {0};
    mlff_label_options options = mlff_label_options_default();
    d->stage = "label";
    options.callback = while_labelling;
    options.context = d;
    MLFF_TRY(mlff_shard_open(d->path[LABELS], d->teacher, &shard));
    MLFF_TRY(mlff_shard_label(shard, d->teacher, d->samples, &options, &progress));
    mlff_shard_info_get(shard, &info);
    MLFF_TRY(tell(d, 1, 1, "%" PRId64 " labels, %" PRId64 " structures could not be labelled", info.n_labels, info.n_failed));
    mlff_shard *closed = shard;
    shard = NULL;
    MLFF_TRY(mlff_shard_close(closed));
done:
    if (shard) (void)mlff_shard_close(shard);
    return status;
}

// Validation chooses the best weights for dynamics: structures with a force above VERDICT_STRAINED would decide its mean.
static mlff_status keep_usual(const mlff_dataset *from, mlff_dataset **to_out)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(mlff_dataset_create(to_out));
    for (size_t k = 0; k < from->n_frames; k++)
        if (verdict_largest_force(from->frames[k].system) <= VERDICT_STRAINED)
            MLFF_TRY(dataset_add_copy(*to_out, &from->frames[k]));
    if ((*to_out)->n_frames == 0)
        MLFF_FAIL(MLFF_ERR_VALUE, "every structure for validation has a force above %g eV/Å", VERDICT_STRAINED);
done:
    return status;
}

// A tenth each for the test and the validation, by trajectory.
static mlff_status split_data(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *all = NULL, *rest = NULL, *validation = NULL;
    MLFF_TRY(mlff_dataset_create(&all));
    MLFF_TRY(mlff_dataset_read(all, d->path[LABELS]));
    MLFF_TRY(mlff_dataset_check(all));
    MLFF_TRY(mlff_dataset_split(all, 0.1, d->config.seed, &rest, &d->test));
    MLFF_TRY(mlff_dataset_split(rest, 0.1, d->config.seed + 1, &d->train, &validation));
    MLFF_TRY(keep_usual(validation, &d->validation));
done:
    mlff_dataset_destroy(validation);
    mlff_dataset_destroy(all);
    mlff_dataset_destroy(rest);
    return status;
}

// ---- train ------------------------------------------------------------------------------------------------------------

static int while_training(void *context, const mlff_fit_progress *p)
{
    const bool best = p->validated && p->best_step == p->step;
    return tell(context, (double)p->step / (double)p->n_steps,
                best && 10 * (p->step - 1) / p->n_steps != 10 * p->step / p->n_steps,
                "step %" PRId64 " of %" PRId64 ", %.0f structures/s, best %.2f meV/Å, %.0f s left", p->step, p->n_steps,
                p->structures_per_s, 1e3 * p->best.force_mae, p->remaining_s) != MLFF_OK;
}

static mlff_status new_student(distill *d, mlff_model **model_out)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_model *bare = NULL;
    double shifts[119];
    char features[16], layers[16], radial[16], cutoff[32], core[32], seed[24], elements[512];
    bool present[119] = {false};
    size_t length = 0;
    for (int64_t s = 0; s < mlff_samples_size(d->seeds); s++) {
        const mlff_system *system = mlff_samples_get(d->seeds, s, NULL);
        for (int i = 0; i < system->n_atoms; i++) present[system->species[i]] = true;
    }
    for (int z = 1; z < 119; z++)
        if (present[z] && length < sizeof elements)
            length +=
                (size_t)snprintf(elements + length, sizeof elements - length, "%s%s", length ? "," : "", mlff_element_symbol(z));
    snprintf(features, sizeof features, "%d", c->n_features);
    snprintf(layers, sizeof layers, "%d", c->n_layers);
    snprintf(radial, sizeof radial, "%d", c->n_radial);
    snprintf(cutoff, sizeof cutoff, "%.17g", c->cutoff_angstrom);
    snprintf(core, sizeof core, "%.17g", c->core_repulsion);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    const mlff_setting settings[] = {{"n_features", features},
                                     {"n_layers", layers},
                                     {"n_radial", radial},
                                     {"cutoff", cutoff},
                                     {"cutoff_function", "mollifier"},
                                     {"core_repulsion", core},
                                     {"elements", elements},
                                     {"seed", seed},
                                     {0}};
    MLFF_TRY(mlff_dataset_shifts(d->train, shifts));
    MLFF_TRY(mlff_model_create("painn", settings, &bare));
    MLFF_TRY(mlff_model_with_shifts(bare, shifts, model_out));
done:
    mlff_model_destroy(bare);
    return status;
}

static mlff_status note_origin(distill *d, const mlff_training_errors *best)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_info teacher;
    char text[400];
    mlff_teacher_info_get(d->teacher, &teacher);
    MLFF_TRY(mlff_model_note(d->student, "teacher", teacher.name));
    MLFF_TRY(mlff_model_note(d->student, "teacher_hash", teacher.hash));
    MLFF_TRY(mlff_model_note(d->student, "systems", d->config.systems));
    snprintf(text, sizeof text, "%" PRId64 " structures, %g to %g K", mlff_dataset_size(d->train), d->config.lowest_kelvin,
             d->config.highest_kelvin);
    MLFF_TRY(mlff_model_note(d->student, "data", text));
    snprintf(text, sizeof text, "%g", d->config.highest_kelvin);
    MLFF_TRY(mlff_model_note(d->student, "highest_kelvin", text));
    snprintf(text, sizeof text, "validation: forces %.2f meV/Å, energy %.3f meV/atom (mean absolute)", 1e3 * best->force_mae,
             1e3 * best->energy_mae);
    MLFF_TRY(mlff_model_note(d->student, "error", text));
done:
    return status;
}

static mlff_status train_stage(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_model *fresh = NULL;
    mlff_trainer *trainer = NULL;
    mlff_training_errors best = {0};
    mlff_trainer_options options = mlff_trainer_options_default();
    mlff_fit_options fit = mlff_fit_options_default();
    d->stage = "train";
    if (is_there(d, STUDENT)) return mlff_model_load(d->path[STUDENT], &d->student);
    options.device = d->options.device;
    options.n_threads = d->options.n_threads;
    options.seed = d->config.seed;
    options.batch_size = d->config.batch_size;
    options.n_steps = d->config.n_steps;
    options.learning_rate = d->config.learning_rate;
    options.loss.huber_forces = d->config.huber_forces;
    if (d->config.n_probes > 0) options.loss.hessian_weight = 0.1 * options.loss.forces_weight;
    fit.checkpoint = d->path[CHECKPOINT];
    fit.best = d->path[BEST];
    fit.history = d->path[HISTORY];
    fit.checkpoint_every = 10;
    fit.callback = while_training;
    fit.context = d;
    MLFF_TRY(new_student(d, &fresh));
    MLFF_TRY(mlff_trainer_create(fresh, d->train, &options, &trainer));
    MLFF_TRY(mlff_trainer_fit(trainer, d->validation, &fit, &d->student));
    mlff_trainer_best(trainer, &best);
    MLFF_TRY(note_origin(d, &best));
    MLFF_TRY(mlff_model_save(d->student, d->path[STUDENT]));
    unlink(d->path[BEST]);
    unlink(d->path[CHECKPOINT]);
    MLFF_TRY(tell(d, 1, 1, "%" PRId64 " steps on %" PRId64 " structures: forces %.2f meV/Å, energy %.3f meV/atom (validation)",
                  d->config.n_steps, mlff_dataset_size(d->train), 1e3 * best.force_mae, 1e3 * best.energy_mae));
done:
    mlff_trainer_destroy(trainer);
    mlff_model_destroy(fresh);
    return status;
}

// ---- verdict ----------------------------------------------------------------------------------------------------------

static int while_judging(void *context, const char *what, double fraction)
{
    return tell(context, fraction, 0, "%s", what) != MLFF_OK;
}

static mlff_status verdict_stage(distill *d, int *passed_out)
{
    mlff_status status = MLFF_OK;
    const mlff_distill_config *c = &d->config;
    mlff_verdict_options options = mlff_verdict_options_default();
    mlff_teacher_info info;
    d->stage = "verdict";
    mlff_teacher_info_get(d->teacher, &info);
    const mlff_force_field teacher = {info.name, mlff_teacher_forces, d->teacher};
    options.device = d->options.device;
    options.n_threads = d->options.n_threads;
    options.seed = c->seed;
    options.nve_ps = c->nve_ps;
    options.hot_ps = c->hot_ps;
    options.hot_runs = c->hot_runs;
    options.compare_ps = c->compare_ps;
    options.max_force_error = c->max_force_error;
    options.max_energy_error = c->max_energy_error;
    options.max_drift = c->max_drift;
    options.min_speed = c->min_speed;
    options.callback = while_judging;
    options.context = d;
    MLFF_TRY(mlff_verdict_create(d->student, &teacher, d->test, mlff_samples_get(d->seeds, 0, NULL), &options, &d->verdict));
    MLFF_TRY(distill_report(d->verdict, d->student, d->test, d->path[HISTORY], &d->config, d->path[REPORT]));
    MLFF_TRY(mlff_verdict_save(d->verdict, d->path[VERDICT]));
    *passed_out = mlff_verdict_passed(d->verdict);
    int n;
    const mlff_bar *bars = mlff_verdict_bars(d->verdict, &n);
    static const char *const states[] = {"passed", "FAILED", "FAILED (not measured)"};
    for (int k = 0; k < n; k++)
        MLFF_TRY(tell(d, 1, 1, "%-14s %-7s %10.4g %s (%s %.4g): %s", bars[k].name, states[bars[k].state], bars[k].value,
                      bars[k].unit, bars[k].at_least ? "at least" : "at most", bars[k].limit, bars[k].text));
done:
    return status;
}

// ---- the run ----------------------------------------------------------------------------------------------------------

static void release(distill *d)
{
    for (int k = 0; k < N_FILES; k++) base_free(d->path[k]);
    mlff_samples_destroy(d->seeds);
    mlff_samples_destroy(d->samples);
    mlff_dataset_destroy(d->train);
    mlff_dataset_destroy(d->validation);
    mlff_dataset_destroy(d->test);
    mlff_verdict_destroy(d->verdict);
    mlff_model_destroy(d->student);
    mlff_teacher_destroy(d->own_teacher);
    base_free(d);
}

mlff_status mlff_distill(const mlff_distill_config *config, const char *folder, const mlff_distill_options *options,
                         int *passed_out)
{
    mlff_status status = MLFF_OK;
    distill *d = NULL;
    mlff_distill_options chosen = mlff_distill_options_default();
    if (!folder || !passed_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_distill: folder and passed_out must be given");
    MLFF_TRY(base_take_options("mlff_distill", "mlff_distill_options", options, sizeof chosen, &chosen));
    if (!(d = base_alloc(1, sizeof *d, "a run"))) return MLFF_ERR_MEMORY;
    d->options = chosen;
    d->stage = "sample";
    MLFF_TRY(make_paths(d, folder));
    MLFF_TRY(settle_config(d, config));
    MLFF_TRY(open_teacher(d));
    MLFF_TRY(make_seeds(d));
    MLFF_TRY(begin_folder(d, folder));
    MLFF_TRY(sample_stage(d));
    MLFF_TRY(label_stage(d));
    MLFF_TRY(split_data(d));
    MLFF_TRY(train_stage(d));
    MLFF_TRY(verdict_stage(d, passed_out));
done:
    if (d) release(d);
    return status;
}
