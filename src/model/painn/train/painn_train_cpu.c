// SPDX-License-Identifier: MIT
// painn_train_cpu.c: training backend of PaiNN in float32 on the CPU.
//
// A batch is cut into groups of some 48 atoms, whole frames each; a thread takes a group through all passes (forward, reverse, loss,
// tangents, gradient) while its activations are in the caches. Groups belong to up to 16 slots, each with a gradient of its own,
// which are added up in order: how groups are cut and summed depends on the batch only, so that results have the same bits for any
// number of threads.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/cpu.h"
#include "painn_train_cpu.h"

// One call, as all threads see it.
typedef struct job {
    painn_train_cpu *cpu;
    const mlff_loss *loss;
    enum train_vector which; // weights to use
    bool with_gradient;
    const train_update *update; // NULL: no update
    _Atomic int next;           // slot, or group without gradient
    _Atomic int next_matrix;    // of SOAP
    double square;
    bool finite;
} job;

// ---- buffers --------------------------------------------------------------------------------------------------------------

static mlff_status regrow(float **array, size_t count, const char *what)
{
    base_free(*array);
    *array = base_alloc(count, sizeof **array, what);
    return *array ? MLFF_OK : MLFF_ERR_MEMORY;
}

// Rows for the species of a set, in addition to those present.
static mlff_status add_species(painn_train_cpu *c, const train_set *set)
{
    mlff_status status = MLFF_OK;
    int before = c->n_rows;
    for (int64_t i = 0; i < set->n_atoms; i++) {
        int z = set->species[i];
        if (c->species_row[z] >= 0) continue;
        c->species_row[z] = c->n_rows;
        c->row_species[c->n_rows++] = z;
    }
    if (c->n_rows == before) return MLFF_OK;
    size_t rows = (size_t)c->n_rows, F = (size_t)c->F;
    c->packed = -1;
    c->groups_stale = true; // their arrays of species grow too
    MLFF_TRY(regrow(&c->embedding, rows * F, "weights"));
    MLFF_TRY(regrow(&c->a0, rows * F, "weights"));
    MLFF_TRY(regrow(&c->slope0, rows * F, "weights"));
    MLFF_TRY(regrow(&c->curve0, rows * F, "weights"));
    MLFF_TRY(regrow(&c->x0, rows * 3 * F, "weights"));
done:
    if (status != MLFF_OK) { // no row is there
        c->n_rows = 0;
        for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) c->species_row[z] = -1;
        c->set = NULL;
    }
    return status;
}

// Most atoms of a group: two groups' aim, or one structure (a probe has two) if that is more. Of the set alone, so that groups do
// not depend on what was evaluated before.
static int64_t most_atoms(const train_set *set)
{
    int64_t largest = set->largest_frame * (set->probe_step ? 2 : 1);
    return largest > 2 * CPU_GROUP_ATOMS ? largest : 2 * CPU_GROUP_ATOMS;
}

// Groups as large as any batch of this set can need.
static mlff_status prepare(painn_train_cpu *c, const train_set *set)
{
    mlff_status status = MLFF_OK;
    int64_t pairs_per_atom = 0;
    MLFF_TRY(add_species(c, set));
    for (int64_t k = 0; k < set->n_frames; k++) {
        int64_t atoms = set->first_atom[k + 1] - set->first_atom[k];
        int64_t edges = set->first_pair[set->first_atom[k + 1]] - set->first_pair[set->first_atom[k]];
        int64_t density = (edges / 2 + atoms - 1) / atoms;
        if (density > pairs_per_atom) pairs_per_atom = density;
    }
    int64_t n_atoms = most_atoms(set);
    int64_t n_pairs = n_atoms * pairs_per_atom + 1;
    if (n_pairs > INT32_MAX / 64)
        MLFF_FAIL(MLFF_ERR_LIMIT, "structures of %d atoms are too large to train on", set->largest_frame);
    if (n_atoms > c->group_atoms || n_pairs > c->group_pairs) c->groups_stale = true;
    if (n_atoms > c->group_atoms) c->group_atoms = (int)n_atoms;
    if (n_pairs > c->group_pairs) c->group_pairs = (int)n_pairs;
    const size_t filters = (size_t)c->parameters.n_layers * 2 * 3 * (size_t)c->F * (size_t)c->group_pairs;
    c->keeps_filters = sizeof(float) * filters <= CPU_KEPT_FILTERS;
    for (int t = 0; c->groups_stale && t < c->n_threads; t++) {
        cpu_group *g = &c->groups[t];
        base_free(g->arena);
        g->arena = NULL;
        size_t floats = painn_train_cpu_layout(c, g, c->group_atoms, c->group_pairs);
        if (!(g->arena = base_alloc(floats, sizeof(float), "a training step"))) return MLFF_ERR_MEMORY;
        painn_train_cpu_layout(c, g, c->group_atoms, c->group_pairs);
    }
    c->groups_stale = false;
done:
    return status;
}

// Is frame k + 1 of the batch the second half of k's probe?
static bool next_is_second(const train_batch *batch, int k)
{
    return k + 1 < batch->n_frames && batch->set->probe_step && batch->set->probe_step[batch->frames[k]] > 0 &&
           batch->frames[k + 1] == batch->frames[k] + 1;
}

// Cuts the batch into n_groups: whole frames, a probe's two frames together, near to equal numbers of atoms.
static mlff_status cut(painn_train_cpu *c, bool with_gradient)
{
    mlff_status status = MLFF_OK;
    const train_batch *batch = &c->batch;
    // An even number, so that two threads have equal shares.
    int wanted = (batch->n_atoms + 2 * CPU_GROUP_ATOMS - 1) / (2 * CPU_GROUP_ATOMS) * 2, started = 0;
    if (wanted > batch->n_frames) wanted = batch->n_frames;
    size_t most = (size_t)batch->n_frames;
    MLFF_TRY(base_grow(&c->group_begin, &c->group_capacity, most + 1, sizeof *c->group_begin, "a batch"));
    MLFF_TRY(base_grow(&c->group_sums, &c->group_sums_capacity, most, sizeof *c->group_sums, "a batch"));
    c->n_groups = 0;
    for (int k = 0, next; k < batch->n_frames; k = next) {
        next = k + 1 + (next_is_second(batch, k) ? 1 : 0);
        bool due =
            k == 0 || batch->first_atom[next] - batch->first_atom[c->group_begin[c->n_groups - 1]] > most_atoms(batch->set);
        for (; started < wanted && batch->first_atom[k] >= (int64_t)batch->n_atoms * started / wanted; started++) due = true;
        if (due) c->group_begin[c->n_groups++] = k;
    }
    c->group_begin[c->n_groups] = batch->n_frames;
    int per_slot = (c->n_groups + CPU_MAX_SLOTS - 1) / CPU_MAX_SLOTS;
    c->n_slots = (c->n_groups + per_slot - 1) / per_slot;
    int room = c->n_slots + c->n_slots / 2 + 1; // later batches of as many structures may have more atoms
    bool missing = with_gradient && !c->slots[c->n_slots - 1];
    for (int s = 0; missing && s < room && s < CPU_MAX_SLOTS; s++)
        if (!c->slots[s]) MLFF_TRY(regrow(&c->slots[s], c->slot_floats, "a gradient"));
done:
    return status;
}

// ---- a team's work --------------------------------------------------------------------------------------------------------

static void run_group(job *j, int thread, int index, float *slot)
{
    painn_train_cpu *c = j->cpu;
    cpu_group *g = &c->groups[thread];
    train_sums *sums = &c->group_sums[index];
    g->begin = c->group_begin[index];
    g->end = c->group_begin[index + 1];
    *sums = (train_sums){.finite = true};
    painn_train_cpu_base(c, g);
    sums->loss = train_batch_loss(&c->batch, g->begin, g->end, j->loss, sums);
    if (slot) painn_train_cpu_gradient(c, g, slot);
}

static void run_slot(job *j, int thread, int s)
{
    painn_train_cpu *c = j->cpu;
    cpu_group *g = &c->groups[thread];
    memset(c->slots[s], 0, sizeof(float) * c->slot_floats);
    memset(g->species_x_bar, 0, sizeof(float) * (size_t)c->n_rows * 3 * (size_t)c->F);
    for (int k = c->n_groups * s / c->n_slots; k < c->n_groups * (s + 1) / c->n_slots; k++) run_group(j, thread, k, c->slots[s]);
    painn_train_cpu_finish_slot(c, g, c->slots[s]);
}

static void update(job *j, const team_member *member)
{
    painn_train_cpu *c = j->cpu;
    const train_update *u = j->update;
    const train_layout *layout = &c->backend.layout;
    double norm = sqrt(j->square), scale = u->clip > 0 && norm > u->clip ? u->clip / norm : 1;
    nn_adamw a = {.gradient_scale = (float)scale,
                  .beta1 = (float)u->beta1,
                  .beta2 = (float)u->beta2,
                  .epsilon = (float)u->epsilon,
                  .rate = (float)(u->learning_rate / u->correction1),
                  .root_scale = (float)(1 / sqrt(u->correction2)),
                  .average_factor = (float)(1 - u->average)};
    int64_t begin = layout->n_parameters * member->thread / member->n,
            end = layout->n_parameters * (member->thread + 1) / member->n;
    for (int t = 0; t < layout->n_tensors; t++) {
        const train_tensor *tensor = &layout->tensors[t];
        int64_t from = tensor->offset > begin ? tensor->offset : begin, to = tensor->offset + tensor->n_elements;
        if (to > end) to = end;
        if (from >= to || (c->soap.of_tensor && c->soap.of_tensor[t] >= 0)) continue;
        a.keep = tensor->decays ? (float)(1 - u->learning_rate * u->weight_decay) : 1.0f;
        c->gradient->adamw(&a, (size_t)(to - from), c->total + from, c->vectors[TRAIN_WEIGHTS] + from,
                           c->vectors[TRAIN_MOMENT1] + from, c->vectors[TRAIN_MOMENT2] + from, c->vectors[TRAIN_AVERAGE] + from);
    }
    for (int k; (k = atomic_fetch_add(&j->next_matrix, 1)) < c->soap.n_matrices;)
        soap_step(&c->soap.matrices[k], u, a.gradient_scale, c->gradient, c->total, c->vectors[TRAIN_WEIGHTS],
                  c->vectors[TRAIN_MOMENT1], c->vectors[TRAIN_MOMENT2], c->vectors[TRAIN_AVERAGE], c->vectors[TRAIN_SOAP],
                  c->soap_scratch[member->thread]);
}

static void compute(job *j, const team_member *member)
{
    painn_train_cpu *c = j->cpu;
    if (c->packed != (int)j->which) painn_train_cpu_pack(c, j->which, member);
    int n = j->with_gradient ? c->n_slots : c->n_groups;
    for (int k; (k = atomic_fetch_add(&j->next, 1)) < n;)
        if (j->with_gradient)
            run_slot(j, member->thread, k);
        else
            run_group(j, member->thread, k, NULL);
    team_barrier(member);
    if (!j->with_gradient) return;
    painn_train_cpu_reduce(c, member);
    team_barrier(member);
    if (member->thread == 0) {
        double loss = 0;
        for (int k = 0; k < c->n_groups; k++) loss += c->group_sums[k].loss;
        for (int k = 0; k < painn_train_cpu_n_parts(c); k++) j->square += c->squares[k];
        j->finite = isfinite(loss) && isfinite(j->square);
    }
    team_barrier(member);
    if (j->update && j->finite) update(j, member);
}

// Far from their centers, Gaussians and what is multiplied by them are subnormal.
static void work(void *context, const team_member *member)
{
    const uint64_t rounding = cpu_flush_subnormals();
    compute(context, member);
    cpu_rounding_restore(rounding);
}

static void run(job *j, train_sums *sums)
{
    painn_train_cpu *c = j->cpu;
    int n_tasks = j->with_gradient ? c->n_slots : c->n_groups;
    team_run(n_tasks < c->n_threads && !j->with_gradient ? n_tasks : c->n_threads, work, j);
    for (int k = 0; k < c->n_groups; k++) train_sums_add(sums, &c->group_sums[k]);
}

// ---- the contract ---------------------------------------------------------------------------------------------------------

static mlff_status set_data(train_backend *backend, const train_set *set)
{
    painn_train_cpu *c = (painn_train_cpu *)backend;
    mlff_status status = prepare(c, set);
    c->set = status == MLFF_OK ? set : NULL;
    return status;
}

static mlff_status run_batch(painn_train_cpu *c, const int32_t *frames, int n_frames, job *j, train_sums *sums)
{
    mlff_status status = MLFF_OK;
    if (!c->set) MLFF_FAIL(MLFF_ERR_USAGE, "no data are set to train on");
    if (c->groups_stale) MLFF_TRY(prepare(c, c->set)); // after a failure
    MLFF_TRY(train_batch_begin(&c->batch, c->set, frames, n_frames));
    MLFF_TRY(cut(c, true));
    j->cpu = c;
    j->which = TRAIN_WEIGHTS;
    j->with_gradient = true;
    run(j, sums);
done:
    return status;
}

static mlff_status step(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss, const train_update *u)
{
    mlff_status status = MLFF_OK;
    painn_train_cpu *c = (painn_train_cpu *)backend;
    job j = {.loss = loss, .update = u};
    MLFF_TRY(run_batch(c, frames, n_frames, &j, &c->sums));
    c->sums.n_steps++;
    c->sums.finite = c->sums.finite && j.finite;
    if (j.finite) c->packed = -1;
done:
    return status;
}

static mlff_status gradient(train_backend *backend, const int32_t *frames, int n_frames, const mlff_loss *loss,
                            double *gradient_out, double *loss_out)
{
    mlff_status status = MLFF_OK;
    painn_train_cpu *c = (painn_train_cpu *)backend;
    job j = {.loss = loss};
    train_sums sums = {0};
    MLFF_TRY(run_batch(c, frames, n_frames, &j, &sums));
    for (int64_t k = 0; k < backend->layout.n_parameters; k++) gradient_out[k] = (double)c->total[k];
    *loss_out = sums.loss;
done:
    return status;
}

enum { EVALUATE_FRAMES = 1024 }; // at a time

static mlff_status evaluate(train_backend *backend, const train_set *set, const mlff_loss *loss, train_sums *sums_out)
{
    mlff_status status = MLFF_OK;
    painn_train_cpu *c = (painn_train_cpu *)backend;
    train_sums sums = {.finite = true};
    MLFF_TRY(prepare(c, set));
    MLFF_TRY(base_grow(&c->frames, &c->frames_capacity, EVALUATE_FRAMES + 1, sizeof *c->frames, "a batch"));
    for (int64_t frame = 0; frame < set->n_frames;) {
        int n = 0;
        job j = {.cpu = c, .loss = loss, .which = TRAIN_AVERAGE};
        while (frame < set->n_frames && n < EVALUATE_FRAMES) {
            c->frames[n++] = (int32_t)frame;
            if (set->probe_step && set->probe_step[frame] > 0) c->frames[n++] = (int32_t)++frame;
            frame++;
        }
        MLFF_TRY(train_batch_begin(&c->batch, set, c->frames, n));
        c->batch.total_frames = set->n_frames;
        c->batch.total_atoms = set->n_atoms;
        MLFF_TRY(cut(c, false));
        run(&j, &sums);
    }
    sums.n_steps = 1;
    sums.finite = isfinite(sums.loss);
    *sums_out = sums;
done:
    return status;
}

static mlff_status take_sums(train_backend *backend, train_sums *sums_out)
{
    painn_train_cpu *c = (painn_train_cpu *)backend;
    *sums_out = c->sums;
    c->sums = (train_sums){.finite = true};
    return MLFF_OK;
}

static mlff_status get(train_backend *backend, enum train_vector which, double *values_out)
{
    const float *values = ((painn_train_cpu *)backend)->vectors[which];
    const int64_t n = train_vector_size(backend, which);
    for (int64_t k = 0; k < n; k++) values_out[k] = (double)values[k];
    return MLFF_OK;
}

static mlff_status set(train_backend *backend, enum train_vector which, const double *values)
{
    painn_train_cpu *c = (painn_train_cpu *)backend;
    const int64_t n = train_vector_size(backend, which);
    for (int64_t k = 0; k < n; k++) c->vectors[which][k] = (float)values[k];
    c->packed = -1;
    return MLFF_OK;
}

static void destroy(train_backend *backend)
{
    if (!backend) return;
    painn_train_cpu *c = (painn_train_cpu *)backend;
    painn_train_cpu_free_weights(c);
    for (int k = 0; k < TRAIN_VECTORS; k++) base_free(c->vectors[k]);
    for (int s = 0; s < CPU_MAX_SLOTS; s++) base_free(c->slots[s]);
    for (int t = 0; t < c->n_threads; t++) {
        base_free(c->groups[t].arena);
        base_free(c->soap_scratch[t]);
    }
    soap_plan_free(&c->soap);
    void *arrays[] = {c->embedding, c->a0, c->slope0, c->curve0, c->x0, c->frames, c->group_begin, c->group_sums, c->total};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    train_batch_free(&c->batch);
    train_layout_free(&backend->layout);
    base_free(c);
}

static mlff_status create_soap(painn_train_cpu *c)
{
    mlff_status status = MLFF_OK;
    double *begin = NULL;
    MLFF_TRY(soap_plan_create(&c->backend.layout, NN_PAD, &c->soap));
    c->backend.n_soap_values = c->soap.n_state;
    const size_t n = (size_t)c->soap.n_state;
    MLFF_TRY(regrow(&c->vectors[TRAIN_SOAP], n, "SOAP"));
    for (int t = 0; t < c->n_threads; t++) MLFF_TRY(regrow(&c->soap_scratch[t], c->soap.n_scratch, "SOAP"));
    if (!(begin = base_alloc(n, sizeof *begin, "SOAP"))) MLFF_TRY(MLFF_ERR_MEMORY);
    soap_begin(&c->soap, begin);
    for (size_t k = 0; k < n; k++) c->vectors[TRAIN_SOAP][k] = (float)begin[k];
done:
    base_free(begin);
    return status;
}

static mlff_status create_vectors(painn_train_cpu *c, const mlff_model *model)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)c->backend.layout.n_parameters;
    double *values = base_alloc(n, sizeof *values, "weights");
    if (!values) return MLFF_ERR_MEMORY;
    for (int k = 0; k < TRAIN_SOAP; k++) MLFF_TRY(regrow(&c->vectors[k], n, "weights"));
    MLFF_TRY(regrow(&c->total, n, "a gradient"));
    train_layout_read(&c->backend.layout, model, values);
    for (size_t k = 0; k < n; k++) c->vectors[TRAIN_WEIGHTS][k] = c->vectors[TRAIN_AVERAGE][k] = (float)values[k];
done:
    base_free(values);
    return status;
}

mlff_status painn_train_cpu_create(const mlff_model *model, const train_backend_options *options, train_backend **backend_out)
{
    mlff_status status = MLFF_OK;
    painn_train_cpu *c = base_alloc(1, sizeof *c, "a trainer");
    if (!c) return MLFF_ERR_MEMORY;
    c->backend = (train_backend){.set_data = set_data,
                                 .step = step,
                                 .gradient = gradient,
                                 .evaluate = evaluate,
                                 .sums = take_sums,
                                 .get = get,
                                 .set = set,
                                 .destroy = destroy};
    c->sums.finite = true;
    c->packed = -1;
    c->parameters = *(const painn_parameters *)model->parameters;
    c->activation = (enum nn_activation)c->parameters.activation;
    c->nn = nn_kernels_get(cpu_vector_path(options->cpu_path), NN_FLOAT32); // weights are packed again in each step
    c->gradient = nn_gradient_kernels_get(options->cpu_path);
    c->painn = painn_kernels_get(options->cpu_path);
    c->train = painn_train_kernels_get(options->cpu_path);
    c->n_threads = team_size(options->n_threads);
    c->F = nn_padded(c->parameters.n_features);
    c->K1 = c->parameters.n_radial + 1;
    int n_layers = c->parameters.n_layers;
    c->skips_last = n_layers == 1 || c->parameters.layer[n_layers - 1].M2 != c->parameters.layer[0].M2;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) c->species_row[z] = -1;
    MLFF_TRY(painn_trainable_create(model, &c->backend.layout, &c->trainable));
    MLFF_TRY(create_vectors(c, model));
    if (options->optimizer == MLFF_SOAP) MLFF_TRY(create_soap(c));
    MLFF_TRY(painn_train_cpu_plan_weights(c));
    *backend_out = &c->backend;
    c = NULL;
done:
    destroy((train_backend *)c);
    return status;
}
