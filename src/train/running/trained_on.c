// SPDX-License-Identifier: MIT
// trained_on.c: the structures that a student was trained on, found again by what its metadata say.
//
// A student's metadata have the SHA-256 of its training structures. The file that they came from is named from the student's folder, with
// the choice that was made of it; a student in the folder of its run is found by the settings there. A trained model that the training began
// with is named in the same way: its own metadata say what it was trained on.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sha256.h"
#include "device/team.h"
#include "distill.h"
#include "model/model.h"
#include "train/data/dataset.h"
#include "train/sampling/sample_geometry.h"

// "/a/b" of "/a/b/c", in place; "." of a name without a folder.
static void cut_to_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    else
        snprintf(path, PATH_MAX, ".");
}

// The way from one folder to a file: "../../data/a.extxyz". Both are absolute and without links.
static void add_way(base_text *text, const char *folder, const char *file)
{
    size_t shared = 1;
    for (size_t k = 1; folder[k - 1] && file[k - 1] && folder[k - 1] == file[k - 1]; k++)
        if (file[k] == '/' && (folder[k] == '/' || !folder[k])) shared = k + 1;
    for (const char *at = folder + (strlen(folder) < shared ? strlen(folder) : shared); *at;
         at += strcspn(at, "/"), at += *at == '/')
        base_text_add(text, "../");
    base_text_add(text, "%s", file + shared);
}

static mlff_status note_number(mlff_model *model, const char *key, double value)
{
    base_text text = {0};
    base_text_add_number(&text, value, 1, 17);
    const mlff_status status = text.status == MLFF_OK ? mlff_model_note(model, key, text.text) : text.status;
    base_text_free(&text);
    return status;
}

// Notes the way from the model's folder to a file, where there is one: not from or to a stream.
static mlff_status note_file(mlff_model *model, const char *key, const char *model_path, const char *path, bool *noted_out)
{
    mlff_status status = MLFF_OK;
    char folder[PATH_MAX], whole[PATH_MAX], file[PATH_MAX];
    base_text way = {0};
    *noted_out = false;
    if (!model_path || !path || base_is_stream(path)) return MLFF_OK;
    if (!base_link_target(model_path, folder)) snprintf(folder, sizeof folder, "%s", model_path); // a link's target is written
    cut_to_folder(folder);
    if (!realpath(folder, whole) || !realpath(path, file)) return MLFF_OK; // standard input
    add_way(&way, whole, file);
    MLFF_TRY(way.status);
    MLFF_TRY(mlff_model_note(model, key, way.text));
    *noted_out = true;
done:
    base_text_free(&way);
    return status;
}

// The trained model that a training began with: its file, and the SHA-256 of that; the name alone where it cannot be found again.
static mlff_status note_begun_with(mlff_model *model, const char *model_path, const char *begun_with)
{
    mlff_status status = MLFF_OK;
    char path[PATH_MAX], hash[SHA256_TEXT_BYTES];
    bool noted;
    MLFF_TRY(mlff_model_note(model, "begun_with", begun_with));
    if (mlff_model_find(begun_with, path, sizeof path) != MLFF_OK || sha256_file(path, hash) != MLFF_OK) return MLFF_OK;
    MLFF_TRY(note_file(model, "begun_with", model_path, path, &noted));
    if (noted) MLFF_TRY(mlff_model_note(model, "begun_with_hash", hash));
done:
    return status;
}

typedef struct nearest_search {
    const mlff_dataset *data;
    double *nearest;     // [threads] parts of the sum of covalent radii
    mlff_status *status; // [threads]
} nearest_search;

static void find_nearest(void *context, const team_member *member)
{
    const nearest_search *s = context;
    double nearest = 1, closest = 1;
    mlff_status status = MLFF_OK;
    for (size_t f = (size_t)member->thread; f < s->data->n_frames && status == MLFF_OK; f += (size_t)member->n) {
        status = sample_closest(s->data->frames[f].system, &closest);
        if (closest > 0) nearest = fmin(nearest, closest);
    }
    s->nearest[member->thread] = nearest;
    s->status[member->thread] = status;
}

mlff_status distill_note_nearest(const mlff_dataset *train, bool begun_with, mlff_model *model)
{
    mlff_status status = MLFF_OK;
    const double before = begun_with ? mlff_model_nearest(model) : 1;
    double nearest[TEAM_MAX], all = before;
    mlff_status found[TEAM_MAX] = {MLFF_OK};
    weights_remove(&model->file, "training.nearest_of_covalent");
    if (isnan(before)) return MLFF_OK; // not known
    for (int t = 0; t < TEAM_MAX; t++) nearest[t] = 1;
    team_run(team_size(train->n_threads), find_nearest, &(nearest_search){train, nearest, found});
    for (int t = 0; t < TEAM_MAX; t++) all = fmin(all, nearest[t]);
    for (int t = 0; t < TEAM_MAX; t++)
        if (found[t] != MLFF_OK) MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: distances of the structures");
    status = note_number(model, "nearest_of_covalent", floor(1e4 * all) / 1e4);
done:
    return status;
}

mlff_status mlff_model_note_data(mlff_model *model, const mlff_dataset *train, const char *model_path,
                                 const mlff_data_origin *origin)
{
    mlff_status status = MLFF_OK;
    char text[80];
    bool noted;
    // Those of a training before are not of these structures.
    static const char *const of_before[] = {"training.data_file",          "training.data_split", "training.data_seed",
                                            "training.data_largest_force", "training.begun_with", "training.begun_with_hash"};
    for (size_t k = 0; k < sizeof of_before / sizeof *of_before; k++) weights_remove(&model->file, of_before[k]);
    MLFF_TRY(mlff_dataset_hash(train, text));
    MLFF_TRY(mlff_model_note(model, "data_hash", text));
    snprintf(text, sizeof text, "%" PRId64 " structure%s", mlff_dataset_size(train), base_plural(mlff_dataset_size(train)));
    MLFF_TRY(mlff_model_note(model, "data", text));
    MLFF_TRY(distill_note_nearest(train, origin && origin->begun_with, model));
    if (origin && origin->begun_with) MLFF_TRY(note_begun_with(model, model_path, origin->begun_with));
    if (!origin) goto done;
    MLFF_TRY(note_file(model, "data_file", model_path, origin->path, &noted));
    if (!noted) goto done;
    snprintf(text, sizeof text, "%" PRId64, (int64_t)origin->seed); // as it is read
    if (origin->split > 0) MLFF_TRY(note_number(model, "data_split", origin->split));
    if (origin->split > 0) MLFF_TRY(mlff_model_note(model, "data_seed", text));
    if (isfinite(origin->largest_force)) MLFF_TRY(note_number(model, "data_largest_force", origin->largest_force));
done:
    return status;
}

// ---- finding it again

static const char *find_note(const mlff_model *model, const char *wanted)
{
    const char *key, *value;
    for (int k = 0; (key = mlff_model_metadata(model, k, &value)); k++)
        if (strncmp(key, "training.", strlen("training.")) == 0 && strcmp(key + strlen("training."), wanted) == 0) return value;
    return NULL;
}

// The file that the metadata name, and the choice that was made of it.
static mlff_status read_file(const mlff_model *model, const char *path, int n_threads, mlff_dataset **train_out)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *all = NULL, *validation = NULL;
    mlff_read_options options = mlff_read_options_default();
    const char *largest = find_note(model, "data_largest_force"), *split = find_note(model, "data_split"),
               *seed = find_note(model, "data_seed");
    double fraction;
    int64_t seed_value;
    options.n_threads = n_threads;
    if (largest && !base_parse_double(largest, &options.largest_force))
        return mlff_fail(MLFF_ERR_FORMAT, "training.data_largest_force is \"%.40s\", no number", largest);
    MLFF_TRY(mlff_dataset_create(&all));
    MLFF_TRY(mlff_dataset_read_some(all, path, &options, NULL));
    if (split) {
        if (!seed || !base_parse_double(split, &fraction) || !base_parse_int64(seed, &seed_value))
            MLFF_FAIL(MLFF_ERR_FORMAT, "training.data_split or training.data_seed is no number");
        MLFF_TRY(mlff_dataset_split(all, fraction, (uint64_t)seed_value, train_out, &validation));
    } else {
        *train_out = all;
        all = NULL;
    }
done:
    mlff_dataset_destroy(all);
    mlff_dataset_destroy(validation);
    return status;
}

// The data of the run whose folder the student lies in.
static mlff_status read_run(const char *folder, int n_threads, mlff_dataset **train_out)
{
    mlff_status status = MLFF_OK;
    distill *d = base_alloc(1, sizeof *d, "a run");
    if (!d) return MLFF_ERR_MEMORY;
    d->lock = -1;
    d->options = mlff_distill_options_default();
    d->options.n_threads = n_threads;
    MLFF_TRY(distill_data_read(d, folder));
    *train_out = d->data.train;
    d->data.train = NULL;
done:
    distill_release(d);
    return status;
}

// Why a student's training data are not known any more: told, since a verdict then says less than the user may expect.
static mlff_status warn_of(const char *model_path, mlff_status status)
{
    if (status == MLFF_ERR_MEMORY || status == MLFF_ERR_INTERRUPTED) return status;
    mlff_warn("%s: the structures that it was trained on are not found again, and a test is not compared with them: %s",
              model_path, mlff_last_error());
    return MLFF_OK;
}

mlff_status distill_check_trained_on(const mlff_dataset *train, const mlff_model *model, const char *path)
{
    char hash[SHA256_TEXT_BYTES];
    const char *noted = find_note(model, "data_hash");
    const mlff_status status = noted ? mlff_dataset_hash(train, hash) : MLFF_OK;
    if (status != MLFF_OK || !noted || strcmp(hash, noted) == 0) return status;
    return mlff_fail(MLFF_ERR_VALUE,
                     "%s: its metadata tell of other training structures than those that this version chooses of the same "
                     "labels, and the test "
                     "may have some of them; remove it, and it is trained again",
                     path);
}

// Of the last training alone; NULL where they are not known.
static mlff_status read_last(const mlff_model *model, const char *model_path, int n_threads, mlff_dataset **data_out)
{
    mlff_status status = MLFF_OK;
    mlff_dataset *train = NULL;
    base_text path = {0};
    char folder[PATH_MAX], hash[SHA256_TEXT_BYTES];
    const char *noted = find_note(model, "data_hash"), *file = find_note(model, "data_file");
    *data_out = NULL;
    if (!noted || !realpath(model_path, folder)) return MLFF_OK;
    cut_to_folder(folder);
    base_text_add(&path, "%s/%s", folder, file ? file : "made-with.json"); // other programs write a config.json too
    MLFF_TRY(path.status);
    struct stat found;
    if (stat(path.text, &found) != 0 || !S_ISREG(found.st_mode)) goto done; // a pipe would be waited for
    status = file ? read_file(model, path.text, n_threads, &train) : read_run(folder, n_threads, &train);
    if (status == MLFF_OK) status = mlff_dataset_hash(train, hash);
    if (status == MLFF_OK && strcmp(hash, noted) != 0)
        status = mlff_fail(MLFF_ERR_VALUE, "%s has changed since: its SHA-256 is not that of the metadata",
                           file ? file : "its run's folder");
    if (status != MLFF_OK) {
        status = warn_of(model_path, status);
        goto done;
    }
    *data_out = train;
    train = NULL;
done:
    mlff_dataset_destroy(train);
    base_text_free(&path);
    return status;
}

// The model that a training began with, and its file in `path`, which holds that of `model` before; NULL where it is not there any more.
static mlff_status load_begun_with(const mlff_model *model, char path[PATH_MAX], mlff_model **begun_out)
{
    mlff_status status = MLFF_OK;
    base_text text = {0};
    struct stat found;
    char folder[PATH_MAX], hash[SHA256_TEXT_BYTES];
    const char *noted = find_note(model, "begun_with_hash"), *file = find_note(model, "begun_with");
    *begun_out = NULL;
    if (!noted || !file || !realpath(path, folder)) return MLFF_OK;
    cut_to_folder(folder);
    base_text_add(&text, "%s/%s", folder, file);
    MLFF_TRY(text.status);
    if (stat(text.text, &found) != 0 || !S_ISREG(found.st_mode) || !realpath(text.text, path)) goto done;
    status = sha256_file(path, hash);
    if (status == MLFF_OK && strcmp(hash, noted) == 0) status = mlff_model_load(path, begun_out);
    if (status != MLFF_OK) status = warn_of(path, status);
done:
    base_text_free(&text);
    return status;
}

static mlff_status add_all(mlff_dataset *to, const mlff_dataset *from)
{
    mlff_status status = MLFF_OK;
    for (size_t f = 0; f < from->n_frames && status == MLFF_OK; f++) status = dataset_add_copy(to, &from->frames[f]);
    return status;
}

mlff_status mlff_model_training_data(const mlff_model *model, const char *model_path, int n_threads, mlff_dataset **data_out,
                                     int *complete_out)
{
    enum { MOST_TRAININGS = 100 }; // models that name each other have no end
    mlff_status status = MLFF_OK;
    mlff_dataset *all = NULL, *data = NULL;
    mlff_model *begun = NULL, *next = NULL;
    char path[PATH_MAX], hash[SHA256_TEXT_BYTES] = "";
    bool complete = true;
    *data_out = NULL;
    if (snprintf(path, sizeof path, "%s", model_path) >= PATH_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", model_path);
    for (int n = 0; model; n++) {
        const char *noted = find_note(model, "data_hash");
        const bool again = noted && strcmp(noted, hash) == 0; // the same structures as in the training after it
        if (!again) MLFF_TRY(read_last(model, path, n_threads, &data));
        complete = complete && (again || data);
        snprintf(hash, sizeof hash, "%s", noted && (again || data) ? noted : "");
        if (all && data) MLFF_TRY(add_all(all, data));
        if (all)
            mlff_dataset_destroy(data);
        else
            all = data;
        data = NULL;
        if (!find_note(model, "begun_with")) break;
        if (n < MOST_TRAININGS) MLFF_TRY(load_begun_with(model, path, &next));
        mlff_model_destroy(begun);
        model = begun = next;
        next = NULL;
    }
    if (complete_out) *complete_out = complete && model;
    *data_out = all;
    all = NULL;
done:
    mlff_dataset_destroy(all);
    mlff_dataset_destroy(data);
    mlff_model_destroy(begun);
    return status;
}
