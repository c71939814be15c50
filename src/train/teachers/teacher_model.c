// SPDX-License-Identifier: MIT
// teacher_model.c: a model file as teacher: structures go through the evaluator in batches.
#include <math.h>
#include <string.h>

#include "base/helper_thread.h"
#include "model/evaluator/evaluator.h"
#include "model/model.h"
#include "teacher.h"

// Atoms of one call of the evaluator, on each device: enough to fill a processor, little enough that an error costs few repeats.
enum { BATCH_ATOMS_CPU = 2048, BATCH_ATOMS_GPU = 32768 };

// A call's arrays, which are kept from one to the next, and the structures that they are of. `labels` NULL: none wait for their results.
typedef struct call {
    mlff_batch batch;
    size_t most_systems, most_atoms;
    int32_t *first_atom, *species;
    double *positions, *cells, *charges, *spins;
    unsigned char *periodic;
    double *energies, *forces, *stresses, *atom_energies, *energy_deviations, *force_deviations;
    const mlff_system *const *systems;
    mlff_label *labels;
} call;

// While the evaluator computes one call, a thread hands out the labels of the one before and prepares the next in its arrays.
typedef struct model_state {
    mlff_model *model;
    const mlff_model *source; // `model`, or the caller's
    mlff_evaluator *evaluator;
    mlff_evaluator *stepping; // of model_forces, whose structures follow one another; NULL before the first
    call calls[2], alone;     // `alone`: of one structure
    helper_thread helper;
} model_state;

static void call_free(call *c)
{
    void *arrays[] = {c->first_atom,    c->species,           c->positions,       c->cells,  c->charges,
                      c->spins,         c->periodic,          c->energies,        c->forces, c->stresses,
                      c->atom_energies, c->energy_deviations, c->force_deviations};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    *c = (call){0};
}

static mlff_status call_reserve(call *c, size_t n_systems, size_t n_atoms)
{
    if (n_systems <= c->most_systems && n_atoms <= c->most_atoms) return MLFF_OK;
    if (n_systems < c->most_systems) n_systems = c->most_systems;
    if (n_atoms < c->most_atoms) n_atoms = c->most_atoms;
    call_free(c);
    *c = (call){.first_atom = base_alloc(n_systems + 1, sizeof(int32_t), "a batch"),
                .species = base_alloc(n_atoms, sizeof(int32_t), "a batch"),
                .positions = base_alloc(3 * n_atoms, sizeof(double), "a batch"),
                .cells = base_alloc(9 * n_systems, sizeof(double), "a batch"),
                .charges = base_alloc(n_systems, sizeof(double), "a batch"),
                .spins = base_alloc(n_systems, sizeof(double), "a batch"),
                .periodic = base_alloc(3 * n_systems, 1, "a batch"),
                .energies = base_alloc(n_systems, sizeof(double), "energies"),
                .forces = base_alloc(3 * n_atoms, sizeof(double), "forces"),
                .stresses = base_alloc(6 * n_systems, sizeof(double), "stresses"),
                .atom_energies = base_alloc(n_atoms, sizeof(double), "atom energies"),
                .energy_deviations = base_alloc(n_systems, sizeof(double), "deviations"),
                .force_deviations = base_alloc(3 * n_atoms, sizeof(double), "deviations")};
    const bool complete = c->first_atom && c->species && c->positions && c->cells && c->charges && c->spins && c->periodic &&
                          c->energies && c->forces && c->stresses && c->atom_energies && c->energy_deviations &&
                          c->force_deviations;
    if (!complete) {
        call_free(c);
        return MLFF_ERR_MEMORY;
    }
    c->most_systems = n_systems;
    c->most_atoms = n_atoms;
    return MLFF_OK;
}

static mlff_status call_prepare(call *c, const mlff_system *const *systems, int n, mlff_label *labels)
{
    size_t n_all = 0;
    for (int s = 0; s < n; s++) n_all += (size_t)systems[s]->n_atoms;
    const mlff_status status = call_reserve(c, (size_t)n, n_all);
    if (status != MLFF_OK) return status;
    for (int s = 0; s < n; s++) {
        const mlff_system *system = systems[s];
        const size_t first = (size_t)c->first_atom[s], n_atoms = (size_t)system->n_atoms;
        c->first_atom[s + 1] = (int32_t)(first + n_atoms);
        for (size_t i = 0; i < n_atoms; i++) c->species[first + i] = system->species[i];
        memcpy(c->positions + 3 * first, system->positions, 3 * n_atoms * sizeof(double));
        memcpy(c->cells + 9 * (size_t)s, system->cell, sizeof system->cell);
        memcpy(c->periodic + 3 * (size_t)s, system->periodic, 3);
        c->charges[s] = system->charge;
        c->spins[s] = system->spin;
    }
    c->systems = systems;
    c->labels = labels;
    c->batch = (mlff_batch){.n_systems = n,
                            .first_atom = c->first_atom,
                            .species = c->species,
                            .positions = c->positions,
                            .cells = c->cells,
                            .periodic = c->periodic,
                            .charges = c->charges,
                            .spins = c->spins};
    return MLFF_OK;
}

// The largest over atoms of sqrt(Σ_c σ_c²).
static double largest_deviation(const double *deviations, int n_atoms)
{
    double largest = 0;
    for (int i = 0; i < n_atoms; i++) {
        const double *d = deviations + 3 * (size_t)i;
        largest = fmax(largest, d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    }
    return sqrt(largest);
}

static mlff_status take_label(const mlff_teacher *teacher, const call *c, int s, const mlff_system *system, mlff_label *label)
{
    const size_t first = (size_t)c->first_atom[s], n_atoms = (size_t)system->n_atoms;
    const bool bulk = system->periodic[0] && system->periodic[1] && system->periodic[2];
    mlff_status status = teacher_label_allocate(label, system->n_atoms, teacher->facts.has_atom_energies);
    if (status != MLFF_OK) return status;
    label->energy = c->energies[s];
    memcpy(label->forces, c->forces + 3 * first, 3 * n_atoms * sizeof(double));
    if (label->atom_energies) memcpy(label->atom_energies, c->atom_energies + first, n_atoms * sizeof(double));
    if (teacher->facts.has_stress && bulk) memcpy(label->stress, c->stresses + 6 * (size_t)s, sizeof label->stress);
    if (teacher->facts.n_members > 1 && teacher->options.deviations) {
        label->energy_deviation = c->energy_deviations[s];
        label->force_deviation = largest_deviation(c->force_deviations + 3 * first, system->n_atoms);
    }
    return MLFF_OK;
}

static mlff_status take_labels(const mlff_teacher *teacher, call *c)
{
    mlff_status status = MLFF_OK;
    for (int s = 0; c->labels && s < c->batch.n_systems && status == MLFF_OK; s++)
        status = take_label(teacher, c, s, c->systems[s], &c->labels[s]);
    c->labels = NULL;
    return status;
}

static mlff_status evaluate(mlff_teacher *teacher, const call *c)
{
    const model_state *state = teacher->state;
    const bool deviations = teacher->facts.n_members > 1 && teacher->options.deviations;
    bool any_cell = false;
    for (int s = 0; s < c->batch.n_systems; s++) any_cell = any_cell || c->systems[s]->periodic[0];
    const mlff_results results = {.energies = c->energies,
                                  .forces = c->forces,
                                  .stresses = teacher->facts.has_stress && any_cell ? c->stresses : NULL,
                                  .atom_energies = teacher->facts.has_atom_energies ? c->atom_energies : NULL,
                                  .energy_deviations = deviations ? c->energy_deviations : NULL,
                                  .force_deviations = deviations ? c->force_deviations : NULL};
    return mlff_evaluator_compute(state->evaluator, &c->batch, &results);
}

// Where a structure of a call is bad, as the last error says: each by itself, or that one fails.
static mlff_status evaluate_each(mlff_teacher *teacher, call *c)
{
    mlff_status status = MLFF_OK;
    call *alone = &((model_state *)teacher->state)->alone;
    if (c->batch.n_systems == 1) {
        teacher_label_fail(c->labels, MLFF_ERR_VALUE);
        goto done;
    }
    for (int s = 0; s < c->batch.n_systems; s++) {
        MLFF_TRY(call_prepare(alone, c->systems + s, 1, c->labels + s));
        status = evaluate(teacher, alone);
        if (status == MLFF_ERR_VALUE)
            teacher_label_fail(&c->labels[s], status);
        else
            MLFF_TRY(status);
        if (status == MLFF_OK) MLFF_TRY(take_labels(teacher, alone));
    }
    status = MLFF_OK;
done:
    c->labels = NULL;
    return status;
}

// Structures from `begin` on that are one call. Calls are of about the same size: a GPU captures its step again for another class of sizes,
// which a small rest would be.
static int end_of_call(const mlff_system *const *systems, int begin, int n, int64_t *n_left, int64_t most)
{
    const int64_t n_calls = (*n_left + most - 1) / most, share = n_calls > 0 ? (*n_left + n_calls - 1) / n_calls : 0;
    int end = begin;
    int64_t n_atoms = 0;
    for (; end < n && (end == begin || (n_atoms < share && n_atoms + systems[end]->n_atoms <= most)); end++)
        n_atoms += systems[end]->n_atoms;
    *n_left -= n_atoms;
    return end;
}

// What is done beside a call that is computed, in the arrays of the other one.
typedef struct beside {
    const mlff_teacher *teacher;
    call *other;
    const mlff_system *const *systems; // of the next call
    mlff_label *labels;
    int n; // 0: there is none
    mlff_status status;
} beside;

static void work_beside(void *context)
{
    beside *b = context;
    b->status = take_labels(b->teacher, b->other);
    if (b->status == MLFF_OK && b->n > 0) b->status = call_prepare(b->other, b->systems, b->n, b->labels);
}

static mlff_status compute_call(mlff_teacher *teacher, call *c, beside *b)
{
    model_state *state = teacher->state;
    const bool in_thread = (b->n > 0 || b->other->labels) && (state->helper.begun || helper_begin(&state->helper));
    if (in_thread) helper_start(&state->helper, work_beside, b);
    mlff_status status = evaluate(teacher, c);
    if (status == MLFF_ERR_VALUE) status = evaluate_each(teacher, c);
    if (in_thread)
        helper_wait(&state->helper);
    else
        work_beside(b);
    if (status == MLFF_OK && b->status != MLFF_OK)
        status = mlff_fail(b->status, "out of memory: a batch of structures or their labels");
    return status;
}

static mlff_status model_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    mlff_status status = MLFF_OK;
    model_state *state = teacher->state;
    int64_t n_left = 0;
    for (int k = 0; k < n; k++) n_left += systems[k]->n_atoms;
    int begin = 0, end = end_of_call(systems, 0, n, &n_left, teacher->facts.batch_atoms), k = 0;
    if (n > 0) MLFF_TRY(call_prepare(&state->calls[0], systems, end, labels));
    for (; begin < n; k++) {
        const int next = end_of_call(systems, end, n, &n_left, teacher->facts.batch_atoms);
        beside b = {teacher, &state->calls[1 - k % 2], systems + end, labels + end, next - end, MLFF_OK};
        MLFF_TRY(compute_call(teacher, &state->calls[k % 2], &b));
        begin = end;
        end = next;
    }
    if (k > 0) status = take_labels(teacher, &state->calls[(k - 1) % 2]);
done:
    state->calls[0].labels = state->calls[1].labels = NULL; // after a failure they are not given out
    return status;
}

static mlff_status model_forces(mlff_teacher *teacher, const mlff_batch *batch, double *energies, double *forces,
                                double *deviations)
{
    model_state *state = teacher->state;
    if (!state->stepping) {
        mlff_evaluator_options options = mlff_evaluator_options_default();
        options.device = teacher->options.device;
        options.precision = teacher->options.precision;
        options.n_threads = teacher->options.n_threads;
        const mlff_status status = mlff_evaluator_create(state->source, &options, &state->stepping);
        if (status != MLFF_OK) return status;
    }
    const mlff_results results = {.energies = energies, .forces = forces, .force_deviations = deviations};
    if (!teacher->expects_magnitudes) return mlff_evaluator_compute(state->stepping, batch, &results);
    const bool expected = evaluator_expect_magnitudes(state->stepping, true);
    const mlff_status status = mlff_evaluator_compute(state->stepping, batch, &results);
    evaluator_expect_magnitudes(state->stepping, expected);
    return status;
}

static void model_state_free(model_state *state)
{
    if (!state) return;
    helper_end(&state->helper);
    for (int k = 0; k < 2; k++) call_free(&state->calls[k]);
    call_free(&state->alone);
    mlff_evaluator_destroy(state->evaluator);
    mlff_evaluator_destroy(state->stepping);
    mlff_model_destroy(state->model);
    base_free(state);
}

static void model_destroy(mlff_teacher *teacher)
{
    model_state_free(teacher->state);
}

static const teacher_kind model_kind = {.compute = model_compute, .forces = model_forces, .destroy = model_destroy};

// Labels have forces; those that are no derivative of the energy are told, for a student's always are.
static mlff_status check_forces(const mlff_model *model)
{
    if (!(mlff_model_outputs(model) & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces, which labels need; take another teacher", model->name);
    if (!model_is_conservative(model))
        base_warn("the teacher %s predicts forces that are not the derivative of its energy; a student's are, so that it cannot "
                  "fit both "
                  "exactly",
                  model->name);
    return MLFF_OK;
}

// A teacher around state->model, which it takes only on success.
static mlff_status make_teacher(const mlff_model *model, const mlff_teacher_options *options, model_state *state,
                                mlff_teacher **teacher_out)
{
    mlff_status status = MLFF_OK;
    mlff_teacher *teacher = NULL;
    mlff_model_info info;
    mlff_evaluator_info made;
    mlff_evaluator_options evaluator = mlff_evaluator_options_default();

    MLFF_TRY(check_forces(model));
    mlff_model_info_get(model, &info);
    evaluator.device = options->device;
    evaluator.devices = options->devices;
    evaluator.n_devices = options->n_devices;
    evaluator.precision = options->precision;
    evaluator.n_threads = options->n_threads;
    evaluator.skin_angstrom = 0; // structures come in any order
    MLFF_TRY(mlff_evaluator_create(model, &evaluator, &state->evaluator));
    mlff_evaluator_info_get(state->evaluator, &made); // options->device is not what runs where options->devices are given
    MLFF_TRY(teacher_allocate(&model_kind, options, &teacher));
    teacher->options.device = made.device;
    teacher->facts.batch_atoms = made.device.kind == MLFF_CUDA ? BATCH_ATOMS_GPU : BATCH_ATOMS_CPU; // of a device
    if (options->n_devices > 1) teacher->facts.batch_atoms *= options->n_devices;
    snprintf(teacher->facts.name, sizeof teacher->facts.name, "%.200s", info.name);
    snprintf(teacher->facts.description, sizeof teacher->facts.description, "%s", info.description);
    teacher->facts.n_members = info.n_members > 0 ? info.n_members : 1;
    teacher->facts.has_atom_energies = info.has_atom_energies;
    teacher->facts.of_charges = mlff_model_depends_on_charge(model);
    teacher->facts.has_stress = (mlff_model_outputs(model) & MLFF_OUTPUT_STRESS) != 0;
    teacher->facts.n_elements = info.n_elements;
    if (info.n_elements > 0) memcpy(teacher->facts.elements, info.elements, (size_t)info.n_elements);
    state->source = model;
    teacher->state = state;
    *teacher_out = teacher;
done:
    return status;
}

mlff_status teacher_model_open(const char *name, const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    mlff_status status = MLFF_OK;
    char *path = NULL, hash[SHA256_TEXT_BYTES];
    mlff_model_info info;
    model_state *state = base_alloc(1, sizeof *state, "a teacher");

    if (!state) return MLFF_ERR_MEMORY;
    const char *dot = strrchr(name, '.');
    if (dot && (strcmp(dot, ".extxyz") == 0 || strcmp(dot, ".xyz") == 0))
        MLFF_FAIL(MLFF_ERR_USAGE, "%s: labelled structures are not a teacher; mlff train and mlff distill --labels train on them",
                  name);
    MLFF_TRY(mlff_model_load(name, &state->model));
    MLFF_TRY(model_path_find(name, &path));
    MLFF_TRY(sha256_file(path, hash));
    MLFF_TRY(make_teacher(state->model, options, state, teacher_out));
    state = NULL;
    memcpy((*teacher_out)->facts.hash, hash, sizeof hash);
    mlff_model_info_get(((model_state *)(*teacher_out)->state)->model, &info);
    if (!info.trained) base_warn("the teacher %s is untrained: its labels mean nothing", info.name);
done:
    base_free(path);
    model_state_free(state);
    return status;
}

// Of a model that may be in no file: its tensors.
static void hash_model(const mlff_model *model, char text[SHA256_TEXT_BYTES])
{
    sha256 hash;
    unsigned char digest[SHA256_BYTES];
    sha256_begin(&hash);
    for (size_t k = 0; k < model->file.n_tensors; k++) {
        const model_tensor *tensor = &model->file.tensors[k];
        sha256_add(&hash, tensor->name, strlen(tensor->name) + 1);
        sha256_add(&hash, tensor->data, (size_t)tensor->n_elements * (tensor->is_double ? sizeof(double) : sizeof(float)));
    }
    sha256_end(&hash, digest);
    sha256_text(digest, text);
}

mlff_status mlff_teacher_create_model(const mlff_model *model, const mlff_teacher_options *given, mlff_teacher **teacher_out)
{
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_status status = base_take_options(__func__, "mlff_teacher_options", given, sizeof options, &options);
    if (status != MLFF_OK) return status;
    model_state *state = base_alloc(1, sizeof *state, "a teacher");
    if (!state) return MLFF_ERR_MEMORY;
    status = make_teacher(model, &options, state, teacher_out);
    if (status == MLFF_OK)
        hash_model(model, (*teacher_out)->facts.hash);
    else
        model_state_free(state);
    return status;
}
