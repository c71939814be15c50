// SPDX-License-Identifier: MIT
// checkpoint.c: the whole state of a training run in one file (safetensors): the backend's vectors in float64, and in the
// metadata the step, the schedule's memory, what the run is of, and a checksum.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "trainer.h"

static const char *const vector_names[TRAIN_VECTORS] = {[TRAIN_WEIGHTS] = "weights",
                                                        [TRAIN_AVERAGE] = "average",
                                                        [TRAIN_MOMENT1] = "moment1",
                                                        [TRAIN_MOMENT2] = "moment2",
                                                        [TRAIN_SOAP] = "soap"};

// Without SOAP its vector, the last one, is absent.
static int n_vectors(const mlff_trainer *t)
{
    return t->backend->n_soap_values > 0 ? TRAIN_VECTORS : TRAIN_SOAP;
}

// Everything a run's bits depend on beside the data; threads and device may change.
static void describe_run(const mlff_trainer *t, base_text *text)
{
    const mlff_trainer_options *o = &t->options;
    const mlff_loss *w = &o->loss;
    const char *model = t->model->description, *one = strstr(model, ", 1 layer,");
    // One layer is "1 layers" here, as in checkpoints that were written when all texts said so.
    base_text_add(text, "%.*s%s%s; %" PRId64 " parameters; %" PRId64 " structures %016" PRIx64 "; ",
                  one ? (int)(one - model) : (int)strlen(model), model, one ? ", 1 layers" : "",
                  one ? one + strlen(", 1 layer") : "", t->backend->layout.n_parameters, t->set->n_frames, t->data_hash);
    base_text_add(text, "seed %" PRIu64 ", batch %d, steps %" PRId64 ", precision %d; ", o->seed, o->batch_size, o->n_steps,
                  (int)o->precision);
    base_text_add(text, "loss %a %a %a %a %a %d %a, boost %a; ", w->energy_weight, w->forces_weight, w->stress_weight,
                  w->atom_energies_weight, w->hessian_weight, w->energy_per_atom, w->huber_forces, o->energy_boost);
    base_text_add(text, "rate %a to %a, warm-up %a, schedule %d %a %d; ", o->learning_rate, o->learning_rate_end, o->warm_up,
                  (int)o->schedule, o->plateau_factor, o->plateau_patience);
    if (o->optimizer == MLFF_SOAP) base_text_add(text, "SOAP %d %a, ", o->soap_interval, o->soap_decay);
    base_text_add(text, "AdamW %a %a %a %a, clip %a, average %a", o->beta1, o->beta2, o->epsilon, o->weight_decay, o->clip,
                  o->average);
}

// "precision 2": what the number of an enumeration stands for, in its place.
static void name_choice(char *shown, size_t bytes)
{
    static const char *const names[][5] = {{"float32", "float32", "float64", "tf32", "bf16"}, {"cosine", "plateau", "constant"}};
    static const char *const keys[] = {"precision ", "schedule "};
    for (int k = 0; k < 2; k++) {
        const size_t length = strlen(keys[k]);
        const char digit = strncmp(shown, keys[k], length) == 0 ? shown[length] : 0;
        if (digit < '0' || digit > '4' || !names[k][digit - '0']) continue;
        base_text text = {0};
        base_text_add(&text, "%s%s%s", keys[k], names[k][digit - '0'], shown + length + 1);
        if (text.status == MLFF_OK) snprintf(shown, bytes, "%s", text.text);
        base_text_free(&text);
    }
}

// A part of that text, up to the next separator, for people: numbers in decimal, no hash.
static size_t read_part(const char *text, char *shown, size_t bytes)
{
    size_t length = strcspn(text, ";,"), used = 0;
    while (text[length] == ',' && text[length + 1] != ' ') length += 1 + strcspn(text + length + 1, ";,");
    shown[0] = 0;
    for (size_t at = 0; at < length && used < bytes - 1;) {
        const size_t n = strcspn(text + at, " ;,"), n_word = at + n < length ? n : length - at;
        char word[64], *end = word;
        snprintf(word, sizeof word, "%.*s", (int)n_word, text + at);
        const double value = strtod(word, &end);
        const bool is_number = *end == 0 && strchr(word, 'x') && strchr(word, 'p');
        const bool is_hash = n_word == 16 && strspn(word, "0123456789abcdef") == 16;
        if (is_number)
            used += (size_t)base_format(shown + used, bytes - used, "%s%.6g", used ? " " : "", value);
        else if (!is_hash && n_word > 0)
            used += (size_t)snprintf(shown + used, bytes - used, "%s%s", used ? " " : "", word);
        at += n_word + 1;
    }
    name_choice(shown, bytes);
    while (text[length] == ';' || text[length] == ',' || text[length] == ' ') length++;
    return length;
}

// The first part of two descriptions of runs that is not the same in both: "steps 20", "steps 40".
static void find_difference(const char *saved, const char *asked, char was[96], char is[96])
{
    for (size_t n_saved = 0, n_asked = 0; *saved || *asked; saved += n_saved, asked += n_asked) {
        n_saved = read_part(saved, was, 96);
        n_asked = read_part(asked, is, 96);
        if (n_saved != n_asked || strncmp(saved, asked, n_saved) != 0) return;
    }
}

static uint64_t checksum(const model_weights *state)
{
    uint64_t hash = 14695981039346656037u; // FNV-1a, of 64-bit words
    for (int v = 0; v < TRAIN_VECTORS; v++) {
        const model_tensor *tensor = weights_find(state, vector_names[v]);
        for (int64_t k = 0; tensor && k < tensor->n_elements; k++) {
            uint64_t word;
            memcpy(&word, (double *)tensor->data + k, sizeof word);
            hash = (hash ^ word) * 1099511628211u;
        }
    }
    return hash;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t k = 0; k < n; k++) hash = (hash ^ ((const unsigned char *)bytes)[k]) * 1099511628211u;
    return hash;
}

// The weights that the training began with, which those of a checkpoint do not tell any more.
static void find_begun_with(const mlff_trainer *t, char text[17])
{
    uint64_t hash = 14695981039346656037u;
    for (size_t k = 0; k < t->model->file.n_tensors; k++) {
        const model_tensor *tensor = &t->model->file.tensors[k];
        hash = hash_bytes(hash, tensor->name, strlen(tensor->name) + 1);
        hash = hash_bytes(hash, tensor->data, (size_t)tensor->n_elements * (tensor->is_double ? sizeof(double) : sizeof(float)));
    }
    snprintf(text, 17, "%016" PRIx64, hash);
}

mlff_status trainer_identify(mlff_trainer *t)
{
    mlff_status status = MLFF_OK;
    base_text run = {0};
    const int64_t n = train_vector_size(t->backend, TRAIN_WEIGHTS);
    double *weights = base_alloc((size_t)n, sizeof *weights, "weights");
    if (!weights) return MLFF_ERR_MEMORY;
    MLFF_TRY(t->backend->get(t->backend, TRAIN_WEIGHTS, weights));
    describe_run(t, &run);
    MLFF_TRY(run.status);
    uint64_t hash = hash_bytes(14695981039346656037u, run.text, strlen(run.text));
    hash = hash_bytes(hash, t->best_by, strlen(t->best_by));
    hash = hash_bytes(hash, weights, (size_t)n * sizeof *weights);
    snprintf(t->identity, sizeof t->identity, "%016" PRIx64, hash);
done:
    base_free(weights);
    base_text_free(&run);
    return status;
}

// The errors of the best weights, as they are written: eight numbers, those without labels NaN.
#define BEST_FORMAT(f) f " " f " " f " " f " " f " " f " " f " " f
static mlff_status read_best(const model_weights *state, const char *path, mlff_training_errors *best)
{
    const char *text = weights_get(state, "best");
    double frames, atoms;
    locale_t callers = uselocale(base_c_locale());
    const int n_read = text ? sscanf(text, BEST_FORMAT("%lf"), &frames, &atoms, &best->loss, &best->energy_mae,
                                     &best->energy_rmse, &best->force_mae, &best->force_rmse, &best->stress_mae)
                            : 0;
    uselocale(callers);
    if (n_read != 8 || !(frames >= 0 && frames < 1e15 && atoms >= 0 && atoms < 1e15))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its errors of the best weights are not readable", path);
    best->n_frames = (int64_t)frames;
    best->n_atoms = (int64_t)atoms;
    return MLFF_OK;
}

// Sums of the steps since the last validation, in whole numbers and others.
#define SUMS_FORMAT(f) f " " f " " f " " f " " f " " f " " f " " f " " f " " f " " f " " f " %d"
static mlff_status write_sums(mlff_trainer *t, model_weights *state)
{
    const train_sums *s = &t->sums;
    mlff_status status = trainer_collect_sums(t);
    if (status != MLFF_OK) return status;
    return weights_set(state, "sums", SUMS_FORMAT("%.17g"), s->loss, (double)s->n_steps, (double)s->n_frames, (double)s->n_atoms,
                       s->energy_absolute, s->energy_square, s->force_absolute, s->force_square, s->stress_absolute,
                       (double)s->n_energies, (double)s->n_force_components, (double)s->n_stresses, s->finite);
}

// Checkpoints that were written before had none.
static mlff_status read_sums(const model_weights *state, const char *path, train_sums *sums)
{
    const char *text = weights_get(state, "sums");
    double n[6] = {0};
    int finite = 1;
    train_sums s = {0};
    locale_t callers = uselocale(base_c_locale());
    const int n_read = text ? sscanf(text, SUMS_FORMAT("%lf"), &s.loss, &n[0], &n[1], &n[2], &s.energy_absolute, &s.energy_square,
                                     &s.force_absolute, &s.force_square, &s.stress_absolute, &n[3], &n[4], &n[5], &finite)
                            : 13;
    uselocale(callers);
    bool good = n_read == 13;
    for (int k = 0; k < 6; k++) good = good && n[k] >= 0 && n[k] < 1e18;
    if (!good) return mlff_fail(MLFF_ERR_FORMAT, "%s: its sums of errors are not readable", path);
    s.n_steps = (int64_t)n[0], s.n_frames = (int64_t)n[1], s.n_atoms = (int64_t)n[2];
    s.n_energies = (int64_t)n[3], s.n_force_components = (int64_t)n[4], s.n_stresses = (int64_t)n[5];
    s.finite = finite != 0;
    *sums = s;
    return MLFF_OK;
}

mlff_status mlff_trainer_save(mlff_trainer *t, const char *path)
{
    mlff_status status = MLFF_OK;
    model_weights state = {0};
    base_text run = {0};
    char begun_with[17];
    if (!t || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_save: trainer and path must be given");
    const mlff_training_errors *b = &t->best;
    for (int v = 0; v < n_vectors(t); v++) {
        const int64_t n = train_vector_size(t->backend, (enum train_vector)v);
        model_tensor *tensor = weights_add(&state, vector_names[v], 1, 1, &n);
        if (!tensor) MLFF_TRY(MLFF_ERR_MEMORY);
        MLFF_TRY(t->backend->get(t->backend, (enum train_vector)v, tensor->data));
    }
    describe_run(t, &run);
    MLFF_TRY(run.status);
    MLFF_TRY(weights_check_finite(&state, path));
    MLFF_TRY(weights_set(&state, "format", MODEL_CHECKPOINT_FORMAT));
    MLFF_TRY(weights_set(&state, "run", "%s", run.text));
    MLFF_TRY(weights_set(&state, "step", "%" PRId64, t->step));
    MLFF_TRY(weights_set(&state, "plateau_scale", "%.17g", t->plateau_scale));
    MLFF_TRY(weights_set(&state, "plateau_best", "%.17g", t->plateau_best));
    MLFF_TRY(weights_set(&state, "plateau_waited", "%d", t->plateau_waited));
    MLFF_TRY(weights_set(&state, "best", BEST_FORMAT("%.17g"), (double)b->n_frames, (double)b->n_atoms, b->loss, b->energy_mae,
                         b->energy_rmse, b->force_mae, b->force_rmse, b->stress_mae));
    MLFF_TRY(weights_set(&state, "best_step", "%" PRId64, t->best_step));
    MLFF_TRY(write_sums(t, &state));
    MLFF_TRY(weights_set(&state, "elapsed_s", "%.17g", t->elapsed_s));
    find_begun_with(t, begun_with);
    if (t->best_by[0]) MLFF_TRY(weights_set(&state, "best_by", "%s", t->best_by));
    if (t->best_by[0]) MLFF_TRY(weights_set(&state, "begun_with", "%s", begun_with));
    if (t->identity[0]) MLFF_TRY(weights_set(&state, "identity", "%s", t->identity));
    MLFF_TRY(weights_set(&state, "checksum", "%016" PRIx64, checksum(&state)));
    MLFF_TRY(weights_write(&state, path));
done:
    weights_free(&state);
    base_text_free(&run);
    return status;
}

// The metadata `key` as a number in range; plateau_best may be infinite.
static mlff_status number_of(const model_weights *state, const char *path, const char *key, double least, double most,
                             double *value_out)
{
    const char *text = weights_get(state, key);
    if (text && strcmp(text, "inf") == 0 && isinf(most)) {
        *value_out = most;
        return MLFF_OK;
    }
    if (!text || !base_parse_double(text, value_out) || !(*value_out >= least && *value_out <= most))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: its %s is \"%.40s\": not a checkpoint this program wrote", path, key,
                         text ? text : "absent");
    return MLFF_OK;
}

static mlff_status check_format(const char *path, const model_weights *state)
{
    const char *format = weights_get(state, "format");
    if (format && strcmp(format, MODEL_CHECKPOINT_FORMAT) == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_FORMAT, "%s: not a training checkpoint", path);
}

static mlff_status check_sum(const char *path, const model_weights *state)
{
    char sum[32];
    const char *said = weights_get(state, "checksum");
    snprintf(sum, sizeof sum, "%016" PRIx64, checksum(state));
    if (said && strcmp(said, sum) == 0) return MLFF_OK;
    return mlff_fail(MLFF_ERR_FORMAT, "%s: its checksum does not match its content: the file is damaged", path);
}

static mlff_status check_run(const mlff_trainer *t, const char *path, const model_weights *state)
{
    mlff_status status = MLFF_OK;
    base_text run = {0};
    char own[17];
    const char *saved = weights_get(state, "run"), *best_by = weights_get(state, "best_by"),
               *begun_with = weights_get(state, "begun_with"); // checkpoints that were written before had none
    MLFF_TRY(check_format(path, state));
    describe_run(t, &run);
    MLFF_TRY(run.status);
    if (!saved || strcmp(saved, run.text) != 0) {
        char was[96], is[96];
        find_difference(saved ? saved : "", run.text, was, is);
        if (strcmp(was, is) == 0) // but for the hash
            MLFF_FAIL(
                MLFF_ERR_VALUE,
                "%s: is of another run, with other training data (%s); resume with those and the seed it was begun with, or "
                "begin again",
                path, was);
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: is of another run, with %s where this has %s; resume with what it was begun with, or begin again", path,
                  was, is);
    }
    if (t->best_by[0] && best_by && strcmp(best_by, t->best_by) != 0)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: is of a run with other structures for validation, which choose its best weights; resume with those it was "
                  "begun with, or begin again",
                  path);
    find_begun_with(t, own);
    if (t->best_by[0] && begun_with && strcmp(begun_with, own) != 0)
        MLFF_FAIL(
            MLFF_ERR_VALUE,
            "%s: is of a training that began with other weights; resume with the student that it began with, or begin again",
            path);
    for (int v = 0; v < n_vectors(t); v++) {
        const model_tensor *tensor = weights_find(state, vector_names[v]);
        if (!tensor || !tensor->is_double || tensor->n_elements != train_vector_size(t->backend, (enum train_vector)v))
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its tensor \"%s\" is missing or has another size", path, vector_names[v]);
    }
    MLFF_TRY(check_sum(path, state));
done:
    base_text_free(&run);
    return status;
}

mlff_status mlff_trainer_restore(mlff_trainer *t, const char *path)
{
    mlff_status status = MLFF_OK;
    model_weights state = {0};
    double step = 0, scale = 0, plateau = 0, waited = 0, best_step = 0, elapsed = 0;
    train_sums sums;
    mlff_training_errors best = {0};
    if (!t || !path) return mlff_fail(MLFF_ERR_USAGE, "mlff_trainer_restore: trainer and path must be given");
    MLFF_TRY(weights_read(path, &state));
    MLFF_TRY(check_run(t, path, &state));
    const char *identity = weights_get(&state, "identity"); // checkpoints that were written before had none
    MLFF_TRY(number_of(&state, path, "step", 0, (double)t->options.n_steps, &step));
    MLFF_TRY(number_of(&state, path, "plateau_scale", 0, 1, &scale));
    MLFF_TRY(number_of(&state, path, "plateau_best", -DBL_MAX, INFINITY, &plateau));
    MLFF_TRY(number_of(&state, path, "plateau_waited", 0, 1e9, &waited));
    MLFF_TRY(read_best(&state, path, &best));
    MLFF_TRY(number_of(&state, path, "best_step", 0, (double)t->options.n_steps, &best_step));
    MLFF_TRY(read_sums(&state, path, &sums));
    if (weights_get(&state, "elapsed_s")) MLFF_TRY(number_of(&state, path, "elapsed_s", 0, 1e15, &elapsed));
    MLFF_TRY(trainer_collect_sums(t)); // those of steps that are given up
    for (int v = 0; v < n_vectors(t); v++)
        MLFF_TRY(t->backend->set(t->backend, (enum train_vector)v, weights_find(&state, vector_names[v])->data));
    t->sums = sums;
    t->elapsed_s = elapsed;
    t->step = (int64_t)step;
    t->plateau_scale = scale;
    t->plateau_best = plateau;
    t->plateau_waited = (int)waited;
    t->best = best;
    t->best_step = (int64_t)best_step;
    snprintf(t->identity, sizeof t->identity, "%s", identity ? identity : "");
done:
    weights_free(&state);
    return status;
}

// ---- what a checkpoint says of its training

// The parts of describe_run that people want to know; false where one is missing.
static bool read_run(const char *run, mlff_checkpoint_info *info)
{
    const char *end = run ? strstr(run, "; ") : NULL, *seed = end ? strstr(end, "; seed ") : NULL,
               *rate = seed ? strstr(seed, "; rate ") : NULL;
    if (!rate) return false;
    snprintf(info->model, sizeof info->model, "%.*s", (int)(end - run), run);
    info->model[base_whole_length(info->model, sizeof info->model)] = 0;
    char *one = strstr(info->model, ", 1 layers,"), *untrained = strstr(info->model, ", untrained"); // as it is written there
    if (untrained) *untrained = 0;
    if (one) memmove(one + strlen(", 1 layer"), one + strlen(", 1 layers"), strlen(one + strlen(", 1 layers")) + 1);
    info->optimizer = strstr(rate, "; SOAP ") || strstr(rate, ", SOAP ") ? MLFF_SOAP : MLFF_ADAMW;
    locale_t callers = uselocale(base_c_locale());
    const int n_read =
        sscanf(end, "; %" SCNd64 " parameters; %" SCNd64, &info->n_parameters, &info->n_structures) +
        sscanf(seed, "; seed %" SCNu64 ", batch %d, steps %" SCNd64, &info->seed, &info->batch_size, &info->n_steps) +
        sscanf(rate, "; rate %la", &info->learning_rate);
    uselocale(callers);
    return n_read == 6;
}

mlff_status mlff_checkpoint_info_get(const char *path, mlff_checkpoint_info *info_out)
{
    mlff_status status = MLFF_OK;
    model_weights state = {0};
    double step, best_step;
    mlff_checkpoint_info info = {0};
    if (!path || !info_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_checkpoint_info_get: path and info_out must be given");
    info.struct_size = info_out->struct_size;
    if (info.struct_size < sizeof info.struct_size || info.struct_size > sizeof info)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_checkpoint_info_get: struct_size is %zu; set it to sizeof(mlff_checkpoint_info)",
                         info.struct_size);
    status = weights_read(path, &state);
    if (status == MLFF_OK) status = check_format(path, &state);
    if (status == MLFF_ERR_FORMAT) status = mlff_fail(MLFF_ERR_UNSUPPORTED, "%s", mlff_last_error());
    MLFF_TRY(status);
    MLFF_TRY(check_sum(path, &state));
    if (!read_run(weights_get(&state, "run"), &info))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: its description of the run is not readable: not a checkpoint this program wrote", path);
    MLFF_TRY(number_of(&state, path, "step", 0, (double)info.n_steps, &step));
    MLFF_TRY(number_of(&state, path, "best_step", 0, (double)info.n_steps, &best_step));
    MLFF_TRY(read_best(&state, path, &info.best));
    if (weights_get(&state, "elapsed_s")) MLFF_TRY(number_of(&state, path, "elapsed_s", 0, 1e15, &info.elapsed_s));
    info.step = (int64_t)step;
    info.best_step = (int64_t)best_step;
    memcpy(info_out, &info, info.struct_size); // a caller built with an earlier header has less room
done:
    weights_free(&state);
    return status;
}

mlff_status mlff_checkpoint_best_path(const char *checkpoint, char *text, size_t text_bytes)
{
    static const char suffix[] = ".checkpoint";
    if (!checkpoint || !text) return mlff_fail(MLFF_ERR_USAGE, "mlff_checkpoint_best_path: checkpoint and text must be given");
    size_t stem = strlen(checkpoint);
    const size_t own = strlen(suffix);
    if (stem > own && checkpoint[stem - own - 1] != '/' && strcmp(checkpoint + stem - own, suffix) == 0) stem -= own;
    const int length = snprintf(text, text_bytes, "%.*s.best.safetensors", (int)stem, checkpoint);
    if (length >= 0 && (size_t)length < text_bytes) return MLFF_OK;
    return mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", checkpoint);
}
