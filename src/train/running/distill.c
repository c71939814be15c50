// SPDX-License-Identifier: MIT
// distill.c: a run from a teacher's name to a judged student, in a folder from which it goes on after any interruption.
//
// Each stage leaves one file that appears whole (labels grow, with checksums); a stage whose file is there is not run again.
// Everything is drawn from the seed, so that an interrupted run ends in the same bits as one that was not.
#include "distill.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/judging/verdict_kept.h"
#include "train/sampling/samples.h"

static const char *const file_names[DISTILL_N_FILES] = {[DISTILL_CONFIG] = "config.json",
                                                        [DISTILL_MADE_WITH] = "made-with.json",
                                                        [DISTILL_SAMPLES_RECORDED] = "samples.recorded",
                                                        [DISTILL_SAMPLES] = "samples.extxyz",
                                                        [DISTILL_LABELS] = "labels.mlff",
                                                        [DISTILL_HISTORY] = "history.jsonl",
                                                        [DISTILL_STUDENT] = "student.safetensors",
                                                        [DISTILL_BASELINE_RECORDED] = "baseline.recorded",
                                                        [DISTILL_BASELINE_SAMPLES] = "baseline.extxyz",
                                                        [DISTILL_BASELINE_LABELS] = "baseline.mlff",
                                                        [DISTILL_BASELINE] = "baseline.safetensors",
                                                        [DISTILL_VERDICT_PARTS] = "verdict-parts.jsonl",
                                                        [DISTILL_VERDICT] = "verdict.json",
                                                        [DISTILL_REPORT] = "report.html"};
// Models that are trained, with files of their trainings beside them.
static const distill_file trained[] = {DISTILL_STUDENT, DISTILL_BASELINE};
// Those that each round has: name, a dash, the round's number, suffix.
static const char *const round_names[] = {"explored-", "labels-", "round-", "young-"};

mlff_distill_options mlff_distill_options_default(void)
{
    return (mlff_distill_options){.struct_size = sizeof(mlff_distill_options)};
}

// ---- progress -------------------------------------------------------------------------------------------------------

mlff_status distill_tell(const distill *d, double fraction, int milestone, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (!d->options.callback) return MLFF_OK;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    const mlff_distill_progress progress = {.stage = d->stage, .fraction = fraction, .text = text, .milestone = milestone};
    if (d->options.callback(d->options.context, &progress) == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_INTERRUPTED, "stopped during %s; the same command goes on from there", d->stage);
}

// ---- folder and configuration -----------------------------------------------------------------------------------------

bool distill_is_there(const distill *d, distill_file file)
{
    return access(d->path[file], F_OK) == 0;
}

char *distill_path(const distill *d, const char *name, int k, const char *suffix)
{
    base_text path = {0};
    base_text_add(&path, "%s/%s-%d%s", d->folder, name, k, suffix);
    if (path.status != MLFF_OK) base_text_free(&path);
    return path.text;
}

// Is this the name of a file that a killed run was writing: a run's file name, a dot and eight hexadecimal digits (base_output)?
static bool is_unfinished(const char *name)
{
    const size_t length = strlen(name);
    if (length < 10) return false;
    const char *dot = name + length - 9;
    const size_t stem = length - 9;
    if (*dot != '.' || strspn(dot + 1, "0123456789abcdef") != 8) return false;
    for (int k = 0; k < DISTILL_N_FILES; k++)
        if (strlen(file_names[k]) == stem && strncmp(name, file_names[k], stem) == 0) return true;
    for (size_t k = 0; k < sizeof trained / sizeof *trained; k++)
        if (distill_is_of_training(name, stem, file_names[trained[k]])) return true;
    for (size_t k = 0; k < sizeof round_names / sizeof *round_names; k++)
        if (strncmp(name, round_names[k], strlen(round_names[k])) == 0 && isdigit((unsigned char)name[strlen(round_names[k])]))
            return true;
    return false;
}

// Of a process that was killed before the run existed: its settings.
static bool is_unfinished_setting(const char *name)
{
    return is_unfinished(name) && (strncmp(name, file_names[DISTILL_MADE_WITH], strlen(file_names[DISTILL_MADE_WITH])) == 0 ||
                                   strncmp(name, file_names[DISTILL_CONFIG], strlen(file_names[DISTILL_CONFIG])) == 0);
}

static void remove_unfinished(const char *folder, bool (*is_one)(const char *name))
{
    DIR *directory = opendir(folder);
    if (!directory) return;
    // cppcheck-suppress readdirCalled ; safe in glibc: no other thread has this stream
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (is_one(entry->d_name)) unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
}

// One process works in a folder: another would remove files that this one has not finished.
static mlff_status lock_folder(distill *d)
{
    if ((d->lock = open(d->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return mlff_fail(MLFF_ERR_IO, "%s: cannot be opened: %s", d->folder, strerror(errno));
    return base_lock(d->lock, d->folder, "a run");
}

static mlff_status make_paths(distill *d, const char *folder)
{
    d->folder = folder;
    for (int k = 0; k < DISTILL_N_FILES; k++) {
        base_text path = {0};
        base_text_add(&path, "%s/%s", folder, file_names[k]);
        d->path[k] = path.text;
        if (path.status != MLFF_OK) return path.status;
    }
    return MLFF_OK;
}

static mlff_status take_folder(distill *d, const char *folder)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(make_paths(d, folder));
    if (access(folder, F_OK) != 0) return MLFF_OK;
    if (!base_is_folder(folder)) return mlff_fail(MLFF_ERR_IO, "%s: is a file; a run needs a folder", folder);
    MLFF_TRY(lock_folder(d));
    if (distill_is_there(d, DISTILL_MADE_WITH) || distill_is_there(d, DISTILL_CONFIG)) // other folders have files of other kinds
        remove_unfinished(folder, is_unfinished);
done:
    return status;
}

mlff_status distill_refuse_found(const char *path)
{
    if (access(path, F_OK) != 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_VALUE, "%s: is of another run, whose config.json is gone; remove it, or give another folder", path);
}

// A new run takes no files of an earlier one, whose settings are unknown or others.
static mlff_status check_is_empty(const distill *d)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < DISTILL_N_FILES; k++)
        if (k != DISTILL_MADE_WITH && !(k == DISTILL_LABELS && d->options.labels)) MLFF_TRY(distill_refuse_found(d->path[k]));
    for (size_t k = 0; k < sizeof trained / sizeof *trained; k++) MLFF_TRY(distill_training_check_absent(d->path[trained[k]]));
    MLFF_TRY(distill_rounds_check_absent(d));
done:
    return status;
}

// The run is continued from other directories, and its folder is moved: files in the folder are named relative to it, others by their
// real paths. A path with a comma would be two names.
static mlff_status keep_names(distill *d)
{
    mlff_status status = MLFF_OK;
    char whole[PATH_MAX], inside[PATH_MAX];
    char *list = base_strdup(d->config.systems), *rest = list, *name;
    if (!list) return MLFF_ERR_MEMORY;
    if (!realpath(d->folder, inside)) MLFF_FAIL(MLFF_ERR_IO, "%s: cannot be opened: %s", d->folder, strerror(errno));
    const size_t length = strlen(inside);
    while ((name = strtok_r(rest, ",", &rest))) {
        if (!samples_is_built_in(name) && realpath(name, whole)) {
            const bool is_inside = strncmp(whole, inside, length) == 0 && whole[length] == '/';
            char *kept = is_inside && !samples_is_built_in(whole + length + 1) ? whole + length + 1 : whole;
            if (!strchr(kept, ',')) name = kept;
        }
        base_text_add(&d->system_names, "%s%s", d->system_names.length > 0 ? "," : "", name);
    }
    MLFF_TRY(d->system_names.status);
    if (d->system_names.length > DISTILL_TEXT_BYTES / 2)
        MLFF_FAIL(MLFF_ERR_LIMIT, "the names of the files of structures are too long together; join some of the files");
    d->config.systems = d->system_names.text;
done:
    base_free(list);
    return status;
}

// A teacher that is a file of that name, not one of the search path.
static void keep_teacher(distill *d)
{
    struct stat found;
    const char *name = d->config.teacher;
    if (name && stat(name, &found) == 0 && S_ISREG(found.st_mode) && realpath(name, d->teacher_path))
        d->config.teacher = d->teacher_path;
}

// Makes a new run's folder and freezes its configuration: once the teacher and the systems are known to be there, so that a mistyped
// name leaves nothing behind.
static mlff_status begin_folder(distill *d, const char *folder)
{
    mlff_status status = MLFF_OK;
    if (d->is_new && mkdir(folder, 0777) != 0 && errno != EEXIST)
        return mlff_fail(MLFF_ERR_IO, "%s: cannot make this folder: %s", folder, strerror(errno));
    if (d->lock < 0) MLFF_TRY(lock_folder(d));
    if (d->is_new && distill_is_there(d, DISTILL_CONFIG)) {
        d->is_late = true;
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: was made by another process since this one began", d->path[DISTILL_CONFIG]);
    }
    if (d->is_new) MLFF_TRY(check_is_empty(d));
    if (d->is_new && d->options.labels) MLFF_TRY(distill_labels_save(d));
    if (d->is_new && d->config.systems) MLFF_TRY(keep_names(d));
    if (d->is_new) keep_teacher(d);
    if (d->is_new || !distill_is_there(d, DISTILL_MADE_WITH))
        MLFF_TRY(mlff_distill_config_save(&d->config, d->path[DISTILL_MADE_WITH]));
    if (d->is_new) MLFF_TRY(mlff_distill_config_save(&d->config, d->path[DISTILL_CONFIG])); // last: with it the run exists
    if (d->is_new) remove_unfinished(folder, is_unfinished_setting);
done:
    return status;
}

static mlff_status read_settings(const char *path, mlff_distill_config *config, char text[DISTILL_TEXT_BYTES])
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(mlff_distill_preset("standard", config));
    config->core_repulsion = config->nearer = 0; // of a folder from before these settings
    config->n_rounds = config->baseline = 0;
    MLFF_TRY(mlff_distill_config_read(path, config, text, DISTILL_TEXT_BYTES));
    if (distill_config_check(config) != MLFF_OK) status = mlff_fail(MLFF_ERR_FORMAT, "%s: %s", path, mlff_last_error());
done:
    return status;
}

// config.json may have been edited: the files that are there must have been made with its settings.
static mlff_status check_made_with(const distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_distill_config made;
    char text[DISTILL_TEXT_BYTES], difference[DISTILL_DIFFERENCE_BYTES];
    if (!distill_is_there(d, DISTILL_MADE_WITH)) return MLFF_OK; // of a folder from before it
    MLFF_TRY(read_settings(d->path[DISTILL_MADE_WITH], &made, text));
    MLFF_TRY(distill_config_same(&d->config, &made, true, difference));
    if (difference[0])
        status = mlff_fail(MLFF_ERR_VALUE,
                           "%s: has %s, with which the files of this run were made; restore it, or begin a run in another folder",
                           d->path[DISTILL_CONFIG], difference);
done:
    return status;
}

// The configuration of a new run, or that of the folder, compared with what is asked for.
static mlff_status settle_config(distill *d, const mlff_distill_config *given)
{
    mlff_status status = MLFF_OK;
    mlff_distill_config taken = {0};
    const mlff_distill_config *asked = given ? &taken : NULL;
    char difference[DISTILL_DIFFERENCE_BYTES];
    MLFF_TRY(base_take_options("mlff_distill", "mlff_distill_config", given, sizeof taken, &taken));
    if (given && !taken.optimizer) taken.optimizer = "adamw";
    if (!distill_is_there(d, DISTILL_CONFIG)) {
        if (!asked)
            return mlff_fail(MLFF_ERR_IO,
                             "%s: there is no run to go on with; name the folder of one, or begin one with a teacher or labels",
                             d->path[DISTILL_CONFIG]);
        d->config = *asked;
        d->given_systems = asked->systems;
        d->config.labels_hash = d->config.systems_hash = NULL;
        d->is_new = true;
        return distill_config_check(asked);
    }
    MLFF_TRY(read_settings(d->path[DISTILL_CONFIG], &d->config, d->text));
    MLFF_TRY(check_made_with(d));
    if (!asked) goto done;
    MLFF_TRY(distill_config_same(asked, &d->config, false, difference));
    if (difference[0])
        status = mlff_fail(MLFF_ERR_VALUE, "%s: is of another run: asked for is %s; resume it, or give another folder",
                           d->path[DISTILL_CONFIG], difference);
    if (asked->labels && !d->options.labels) d->config.labels = asked->labels; // their files may have moved
    d->given_systems = asked->systems;
done:
    return status;
}

// ---- systems and teacher ----------------------------------------------------------------------------------------------

// Conformers of one molecule are one system of the verdict; other molecules in the file are not judged.
static void warn_of_others(const mlff_samples *seeds, int64_t first, const char *name)
{
    char judged[64], other[64];
    const char *origin;
    mlff_system_formula(mlff_samples_get(seeds, first, &origin), judged, sizeof judged);
    for (int64_t k = first + 1; k < mlff_samples_size(seeds); k++) {
        mlff_system_formula(mlff_samples_get(seeds, k, &origin), other, sizeof other);
        if (strcmp(judged, other) == 0) continue;
        base_warn(
            "%s: has structures of several compositions; the verdict measures speed and dynamics of the first alone (%s): give "
            "others, as %s, by files of their own",
            name, judged, other);
        return;
    }
}

// The file that a name in the folder's settings stands for. Runs were begun with names relative to the directory of their first call:
// where no such file is there, the folder may have been moved with it.
static mlff_status find_file(const distill *d, const char *name, base_text *path)
{
    const char *slash = strrchr(name, '/');
    for (int k = 0; k < 3; k++) {
        path->length = 0;
        if (k == 1)
            base_text_add(path, "%s", name);
        else
            base_text_add(path, "%s/%s", d->folder, k == 0 || !slash ? name : slash + 1);
        if (path->status != MLFF_OK || access(path->text, F_OK) == 0) return path->status;
    }
    path->length = 0;
    base_text_add(path, "%s", name);
    return path->status;
}

// Adds what a name stands for to the seeds, and its first structure to the systems.
static mlff_status add_seeds(distill *d, const char *name)
{
    mlff_status status = MLFF_OK;
    const int64_t first = mlff_samples_size(d->seeds);
    const char *origin;
    base_text path = {0};
    if (!d->given_systems && !samples_is_built_in(name)) {
        MLFF_TRY(find_file(d, name, &path));
        name = path.text;
    }
    MLFF_TRY(mlff_samples_add_named(d->seeds, d->teacher, name, d->config.n_atoms, d->config.seed));
    const mlff_system *system = mlff_samples_get(d->seeds, first, &origin);
    MLFF_TRY(mlff_samples_add(d->systems, system, origin));
    warn_of_others(d->seeds, first, name);
done:
    base_text_free(&path);
    return status;
}

// Positions to 1e-6 Å: those of built-in systems may differ in their last bits between machines.
static void hash_seeds(const mlff_samples *seeds, char text[SHA256_TEXT_BYTES])
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    sha256_begin(&hash);
    for (int64_t k = 0; k < mlff_samples_size(seeds); k++) {
        const char *origin;
        const mlff_system *s = mlff_samples_get(seeds, k, &origin);
        sha256_add(&hash, &s->n_atoms, sizeof s->n_atoms);
        sha256_add(&hash, s->species, (size_t)s->n_atoms * sizeof *s->species);
        sha256_add(&hash, s->periodic, sizeof s->periodic);
        for (size_t i = 0; i < 3 * (size_t)s->n_atoms + 9; i++) {
            const int64_t rounded = llround(1e6 * (i < 9 ? s->cell[i] : s->positions[i - 9]));
            sha256_add(&hash, &rounded, sizeof rounded);
        }
    }
    sha256_end(&hash, digest);
    sha256_text(digest, text);
}

// A file of structures may have changed since the run began.
static mlff_status check_seeds(distill *d)
{
    hash_seeds(d->seeds, d->systems_hash);
    if (d->config.systems_hash && strcmp(d->config.systems_hash, d->systems_hash) != 0)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "%s: the structures are not those that the run in %s began with; restore the file, or give another folder",
            d->given_systems ? d->given_systems : d->config.systems, d->folder);
    if (d->is_new) d->config.systems_hash = d->systems_hash;
    return MLFF_OK;
}

// "ethanol,water.xyz": a built-in system where there is one of this name, else a file with all its frames.
static mlff_status make_seeds(distill *d)
{
    mlff_status status = MLFF_OK;
    const char *names = d->given_systems ? d->given_systems : d->config.systems;
    char *list = base_strdup(names), *rest = list, *name;
    if (!list) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_samples_create(&d->seeds));
    MLFF_TRY(mlff_samples_create(&d->systems));
    while ((name = strtok_r(rest, ",", &rest))) MLFF_TRY(add_seeds(d, name));
    if (mlff_samples_size(d->seeds) == 0)
        MLFF_FAIL(MLFF_ERR_USAGE, "\"%s\" names no system; give built-in systems or files of structures", names);
    if (mlff_samples_size(d->systems) > VERDICT_MAX_SYSTEMS)
        MLFF_FAIL(MLFF_ERR_LIMIT,
                  "%" PRId64 " systems are more than the %d that a verdict judges; put some into one file of seeds",
                  mlff_samples_size(d->systems), VERDICT_MAX_SYSTEMS);
    for (int64_t k = 0; k < mlff_samples_size(d->seeds); k++) {
        const char *origin;
        const mlff_system *seed = mlff_samples_get(d->seeds, k, &origin);
        MLFF_TRY(mlff_teacher_check(d->teacher, seed, origin));
    }
    MLFF_TRY(check_seeds(d));
done:
    base_free(list);
    return status;
}

// A calculator has a name, by which it cannot be opened: "ase:MODULE.CLASS", or the caller's word.
static mlff_status open_named(distill *d, const mlff_teacher_options *options)
{
    const char *name = d->config.teacher;
    const bool is_ase = strncmp(name, "ase:", 4) == 0;
    const mlff_status status = is_ase ? MLFF_ERR_IO : mlff_teacher_open(name, options, &d->own_teacher);
    if (is_ase || (status == MLFF_ERR_IO && !d->is_new && !strpbrk(name, "./")))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "teacher %s: %s a calculator of Python, which only Python calls: there distill(...) of "
                         "mlff_distiller.training, with the same arguments and out=\"%s\", %s",
                         name, is_ase ? "is" : "no model has this name; it may be", d->folder,
                         d->is_new ? "begins the run" : "continues the run");
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
        MLFF_TRY(open_named(d, &options));
        d->teacher = d->own_teacher;
    }
    mlff_teacher_info_get(d->teacher, &info);
    MLFF_TRY(distill_tell(d, 0, 1, "teacher %s: %s", info.name, info.description));
done:
    return status;
}

static bool same_atoms(const mlff_system *a, const mlff_system *b)
{
    return a->n_atoms == b->n_atoms && memcmp(a->species, b->species, (size_t)a->n_atoms * sizeof *a->species) == 0 &&
           memcmp(a->periodic, b->periodic, sizeof a->periodic) == 0;
}

// The verdict's systems as the teacher relaxed them: samples begin with the seeds that it can compute. A rough structure has other bonds than
// those that dynamics must keep.
static void take_relaxed(distill *d, const mlff_samples *samples)
{
    size_t next = 0, k = 0; // of the samples and of the systems
    for (size_t i = 0; i < d->seeds->n && k < d->systems->n && next < samples->n; i++) {
        const mlff_system *seed = d->seeds->samples[i].system, *relaxed = samples->samples[next].system;
        mlff_system *system = d->systems->samples[k].system;
        const size_t n_bytes = 3 * (size_t)seed->n_atoms * sizeof *seed->positions;
        const bool is_there = same_atoms(seed, relaxed) && strcmp(seed->config_type, relaxed->config_type) == 0;
        if (same_atoms(seed, system) && memcmp(seed->positions, system->positions, n_bytes) == 0) {
            if (is_there) memcpy(system->positions, relaxed->positions, n_bytes);
            k++;
        }
        next += is_there;
    }
}

// ---- the first structures ---------------------------------------------------------------------------------------------

static mlff_status first_data(distill *d)
{
    mlff_status status = MLFF_OK;
    mlff_samples *samples = NULL;
    const int64_t n = d->config.n_structures - d->config.n_rounds * distill_round_size(&d->config);
    d->stage = "sample";
    MLFF_TRY(mlff_samples_create(&samples));
    MLFF_TRY(distill_sample(d, DISTILL_SAMPLES, DISTILL_SAMPLES_RECORDED, n, d->config.n_probes, d->config.seed, samples));
    take_relaxed(d, samples);
    d->stage = "label";
    MLFF_TRY(distill_label(d, samples, d->path[DISTILL_LABELS]));
    MLFF_TRY(distill_data_create(&d->data));
    MLFF_TRY(distill_add_labels(d, d->path[DISTILL_LABELS], d->config.seed, &d->data));
done:
    mlff_samples_destroy(samples);
    return status;
}

// ---- verdict ----------------------------------------------------------------------------------------------------------

static int while_judging(void *context, const char *what, double fraction)
{
    return distill_tell(context, fraction, 0, "%s", what) != MLFF_OK;
}

static mlff_verdict_options verdict_options(distill *d)
{
    const mlff_distill_config *c = &d->config;
    mlff_verdict_options options = mlff_verdict_options_default();
    options.device = d->options.device, options.n_threads = d->options.n_threads, options.seed = c->seed;
    options.nve_ps = c->nve_ps, options.hot_ps = c->hot_ps, options.compare_ps = c->compare_ps, options.speed_s = c->speed_s,
    options.hot_runs = c->hot_runs;
    options.max_force_error = c->max_force_error, options.max_energy_error = c->max_energy_error;
    options.max_drift = c->max_drift, options.min_speed = c->min_speed;
    options.n_pressed = d->teacher ? c->n_pressed : 0; // a config.json of before the bar has no 0 without a teacher
    options.n_dynamics = d->teacher ? c->n_dynamics : 0, options.max_pressure_error = c->max_pressure_error;
    options.systems = d->systems, options.baseline = d->baseline, options.trained_on = d->data.train;
    options.callback = while_judging, options.context = d;
    return options;
}

static mlff_status tell_bars(const distill *d)
{
    static const char *const states[] = {"passed", "FAILED", "FAILED (not measured)"};
    mlff_status status = MLFF_OK;
    int n;
    const mlff_bar *bars = mlff_verdict_bars(d->verdict, &n);
    for (int k = 0; k < n; k++) {
        char value[24] = "-", limit[24] = "-";
        if (isfinite(bars[k].value)) snprintf(value, sizeof value, "%.4g", bars[k].value);
        if (isfinite(bars[k].limit)) snprintf(limit, sizeof limit, "%.4g", bars[k].limit);
        MLFF_TRY(distill_tell(d, 1, 1, "%-14s %-7s %10s %s (%s %s): %s%s%s", bars[k].name, states[bars[k].state], value,
                              base_unit(bars[k].unit, bars[k].value), bars[k].at_least ? "at least" : "at most", limit,
                              bars[k].system, bars[k].system[0] ? ": " : "", bars[k].text));
    }
done:
    return status;
}

// Bars of before are those of this student and this teacher.
static mlff_status open_kept(const distill *d, const mlff_teacher_info *teacher, mlff_device device, verdict_kept **kept_out)
{
    mlff_status status = MLFF_OK;
    char student[SHA256_TEXT_BYTES];
    base_text origin = {0};
    MLFF_TRY(sha256_file(d->path[DISTILL_STUDENT], student));
    base_text_add(&origin, "student %s, teacher %s", student, d->teacher ? teacher->hash : "none");
    MLFF_TRY(origin.status);
    MLFF_TRY(verdict_kept_open(d->path[DISTILL_VERDICT_PARTS], origin.text, device, kept_out));
done:
    base_text_free(&origin);
    return status;
}

static mlff_status verdict_stage(distill *d, int *passed_out)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options options = verdict_options(d);
    mlff_teacher_info info = {0};
    verdict_kept *kept = NULL;
    d->stage = "verdict";
    if (d->teacher) mlff_teacher_info_get(d->teacher, &info);
    const mlff_force_field teacher = {info.name, mlff_teacher_forces, d->teacher};
    MLFF_TRY(open_kept(d, &info, options.device, &kept));
    MLFF_TRY(verdict_create(d->student, d->teacher ? &teacher : NULL, d->data.test, NULL, &options, kept, &d->verdict));
    if (d->verdict->n_kept > 0)
        MLFF_TRY(distill_tell(d, 1, 1, "%d of %d bars were measured before, with the same settings: %s has them",
                              d->verdict->n_kept, d->verdict->n_bars, d->path[DISTILL_VERDICT_PARTS]));
    MLFF_TRY(distill_report(d));
    MLFF_TRY(mlff_verdict_save(d->verdict, d->path[DISTILL_VERDICT]));
    *passed_out = mlff_verdict_passed(d->verdict);
    MLFF_TRY(tell_bars(d));
done:
    return status;
}

// ---- the run ----------------------------------------------------------------------------------------------------------

void distill_release(distill *d)
{
    for (int k = 0; k < DISTILL_N_FILES; k++) base_free(d->path[k]);
    mlff_samples_destroy(d->seeds);
    mlff_samples_destroy(d->systems);
    mlff_dataset_destroy(d->labelled);
    base_text_free(&d->system_names);
    base_text_free(&d->labels);
    base_text_free(&d->labels_hash);
    distill_data_free(&d->data);
    mlff_verdict_destroy(d->verdict);
    mlff_model_destroy(d->student);
    mlff_model_destroy(d->baseline);
    mlff_teacher_destroy(d->own_teacher);
    if (d->lock >= 0) close(d->lock);
    base_free(d);
}

// *is_late_out: another process began the run meanwhile.
static mlff_status run(const mlff_distill_config *config, const char *folder, const mlff_distill_options *options,
                       int *passed_out, bool *is_late_out)
{
    mlff_status status = MLFF_OK;
    mlff_trainer_optimizer optimizer; // a wrong name fails before anything is computed
    distill *d = base_alloc(1, sizeof *d, "a run");
    if (!d) return MLFF_ERR_MEMORY;
    d->lock = -1;
    d->options = *options;
    d->stage = "sample";
    MLFF_TRY(take_folder(d, folder));
    MLFF_TRY(settle_config(d, config));
    MLFF_TRY(distill_optimizer(&d->config, &optimizer));
    d->core_repulsion = d->config.core_repulsion;
    if (d->config.labels) MLFF_TRY(distill_labels_read(d));
    if (d->config.teacher) MLFF_TRY(open_teacher(d));
    MLFF_TRY(d->config.labels ? distill_labels_divide(d) : make_seeds(d));
    MLFF_TRY(begin_folder(d, folder));
    if (!d->config.labels) MLFF_TRY(first_data(d));
    MLFF_TRY(distill_rounds(d));
    MLFF_TRY(distill_train_student(d));
    MLFF_TRY(distill_train_baseline(d));
    MLFF_TRY(verdict_stage(d, passed_out));
done:
    *is_late_out = d->is_late;
    distill_release(d);
    return status;
}

mlff_status mlff_distill(const mlff_distill_config *config, const char *folder, const mlff_distill_options *options,
                         int *passed_out)
{
    mlff_distill_options chosen = mlff_distill_options_default();
    bool is_late;
    if (!folder || !passed_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_distill: folder and passed_out must be given");
    mlff_status status = base_take_options("mlff_distill", "mlff_distill_options", options, sizeof chosen, &chosen);
    if (status != MLFF_OK) return status;
    status = run(config, folder, &chosen, passed_out, &is_late);
    if (is_late)
        status = run(config, folder, &chosen, passed_out, &is_late); // the folder has a run, which this one may be the same as
    return status;
}

mlff_status distill_data_read(distill *d, const char *folder)
{
    mlff_status status = MLFF_OK;
    d->stage = "read";
    MLFF_TRY(make_paths(d, folder));
    MLFF_TRY(read_settings(d->path[DISTILL_CONFIG], &d->config, d->text));
    MLFF_TRY(distill_data_create(&d->data));
    if (d->config.labels) {
        MLFF_TRY(distill_labels_read(d));
        MLFF_TRY(distill_divide(d->labelled, d->config.seed, &d->data));
    } else {
        MLFF_TRY(distill_add_labels(d, d->path[DISTILL_LABELS], d->config.seed, &d->data));
        MLFF_TRY(distill_rounds_read(d));
    }
done:
    return status;
}
