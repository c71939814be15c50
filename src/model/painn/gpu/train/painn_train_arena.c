// SPDX-License-Identifier: MIT
// painn_train_arena.c: memory of a training step, the weight matrices' products, and where each tensor's gradient comes from.
#include <string.h>

#include "painn_trainer_gpu.h"

typedef struct placer {
    char *base; /* NULL: only counts */
    size_t at;
} placer;

static void *place(placer *p, size_t bytes)
{
    void *there = p->base && bytes ? p->base + p->at : NULL;
    p->at = (p->at + bytes + 255) / 256 * 256;
    return there;
}

static float *place_floats(placer *p, size_t n)
{
    return place(p, sizeof(float) * n);
}

static painn_dual place_dual(placer *p, size_t n)
{
    painn_dual dual;
    dual.value = place_floats(p, n);
    dual.tangent = place_floats(p, n);
    return dual;
}

// ---- arrays -------------------------------------------------------------------------------------------------------------

// The first layer's input does not depend on positions: tangents of its message network are 0, and then no adjoint of a value is used.
static void place_message_net(placer *p, painn_train_layer *L, size_t NF, bool first)
{
    const size_t there = first ? 0 : NF;
    L->h = (painn_dual){place_floats(p, NF), place_floats(p, there)};
    L->a = (painn_dual){place_floats(p, NF), place_floats(p, there)};
    L->x = (painn_dual){place_floats(p, (first ? 2 : 3) * NF), place_floats(p, 3 * there)};
    L->x_bar = (painn_dual){place_floats(p, 3 * there), place_floats(p, 3 * NF)};
    L->h_bar = (painn_dual){place_floats(p, there), place_floats(p, NF)};
    L->a_bar = place_floats(p, there);
}

static void place_layer(placer *p, painn_train_step *s, int l, const painn_dual *shared)
{
    painn_train_layer *L = &s->layer[l];
    const size_t NF = (size_t)s->atom_capacity * (size_t)s->n_features;
    painn_dual *single[] = {&L->g, &L->s, &L->t, &L->g_bar}, *triple[] = {&L->mu1, &L->y_bar};
    for (size_t k = 0; k < sizeof single / sizeof *single; k++) *single[k] = place_dual(p, NF);
    for (size_t k = 0; k < sizeof triple / sizeof *triple; k++) *triple[k] = place_dual(p, 3 * NF);
    L->s_bar = place_floats(p, NF);
    L->k = place_floats(p, NF);
    place_message_net(p, L, NF, l == 0);
    L->context = place_dual(p, 2 * NF);
    L->y = place_dual(p, 2 * NF);
    L->VB = place_dual(p, 6 * NF);
    L->VB_bar = place_dual(p, 6 * NF);
    L->q1_bar = (painn_dual){place_floats(p, NF), shared[0].tangent};
    L->mu1_bar = (painn_dual){place_floats(p, 3 * NF), shared[1].tangent};
    s->filter_sums_of[l] = place_floats(p, (size_t)s->filter_sums * (size_t)s->basis_rows * 3 * (size_t)s->n_features);
}

// Features at the borders of layers. Of adjoints two tangents, used in turn, suffice: q̄̇ and μ̄̇ of one border lead to the next.
static void place_borders(placer *p, painn_train_step *s)
{
    const size_t NF = (size_t)s->atom_capacity * (size_t)s->n_features;
    float *q_tangent[2], *mu_tangent[2];
    for (int k = 0; k < 2; k++) {
        q_tangent[k] = place_floats(p, NF);
        mu_tangent[k] = place_floats(p, 3 * NF);
    }
    for (int l = 0; l <= s->n_layers; l++) {
        s->q[l] = l ? place_dual(p, NF) : (painn_dual){place_floats(p, NF), NULL};
        s->mu[l] = l && l < s->n_layers ? place_dual(p, 3 * NF) : (painn_dual){0}; // μ⁰ = 0, the last μ is not used
        s->q_bar[l] = (painn_dual){l ? place_floats(p, NF) : NULL, q_tangent[l % 2]};
        s->mu_bar[l] = l && l < s->n_layers ? (painn_dual){place_floats(p, 3 * NF), mu_tangent[l % 2]} : (painn_dual){0};
    }
}

static void place_pairs(placer *p, painn_train_step *s)
{
    const size_t P = (size_t)s->pair_capacity;
    s->neighbor = place(p, sizeof(int32_t) * P);
    s->reverse = place(p, sizeof(int32_t) * P);
    s->edge = place_floats(p, 4 * P);
    s->edge_tangent = place_floats(p, 4 * P);
    s->basis_halves = place(p, sizeof(float) * 64 * ((P + 7) / 8 * 8));
    s->pair_gradient = place_floats(p, (size_t)s->n_features / 16 * 4 * P);
}

// The copy of a slot, and operands of products, which all branches read.
static void place_shared(placer *p, painn_train_step *branch, int n)
{
    const size_t room = (size_t)branch->frame_capacity;
    gpu_train_call *call = place(p, branch->slot_bytes);
    float *operands = place_floats(p, 2 * painn_operands_size(branch));
    void *filter_halves = place(p, sizeof(float) * 4 * 12 * 32 * (size_t)(branch->n_layers * branch->n_features / 16));
    for (int k = 0; k < n; k++) {
        painn_train_step *s = &branch[k];
        s->operands = operands;
        s->filter_halves = filter_halves;
        s->counts_turn = k == 0;
        if (!call) continue;
        s->call = call + k;
        s->set_atom = (int64_t *)(void *)((int32_t *)(void *)(call + n) + (size_t)k * painn_train_list((int)room));
        s->set_pair = s->set_atom + room;
        s->frames = (int32_t *)(void *)(s->set_pair + room);
        s->first_atom = s->frames + room;
        s->first_pair = s->first_atom + room + 1;
    }
}

static void place_frames(placer *p, painn_train_step *s)
{
    const size_t room = (size_t)s->frame_capacity;
    s->frame_sums = place(p, sizeof(double) * GPU_TRAIN_FRAME_SUMS * room);
    s->frame_shares = place(p, sizeof(double) * PAINN_TRAIN_FRAME_SHARES * PAINN_TRAIN_FRAME_TOTALS * room);
}

static void place_step(placer *p, painn_train_step *s)
{
    const size_t N = (size_t)s->atom_capacity, NF = N * (size_t)s->n_features, H = (size_t)s->n_hidden;
    int32_t **integers[] = {&s->species, &s->frame, &s->element};
    struct {
        float **array;
        size_t width;
    } floats[] = {{&s->atom_energy, 1}, {&s->c, 1}, {&s->v, 3}, {&s->readout_term, H + PAINN_TRAIN_TERM_PAD}};
    const painn_dual shared[2] = {{NULL, place_floats(p, NF)}, {NULL, place_floats(p, 3 * NF)}};
    place_frames(p, s);
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) *integers[k] = place(p, sizeof(int32_t) * N);
    s->row = place(p, sizeof(int32_t) * (N + 1));
    for (size_t k = 0; k < sizeof floats / sizeof *floats; k++) *floats[k].array = place_floats(p, floats[k].width * N);
    s->force_error = place(p, sizeof(double) * N);
    s->z = place_dual(p, H * N);
    s->z_bar = place_dual(p, H * N);
    place_borders(p, s);
    for (int l = 0; l < s->n_layers; l++) place_layer(p, s, l, shared);
    s->embedding_sums = place_floats(p, (N + PAINN_TRAIN_EMBEDDING_ATOMS - 1) / PAINN_TRAIN_EMBEDDING_ATOMS *
                                            (size_t)(s->n_elements * s->n_features));
    place_pairs(p, s);
}

// ---- gradients of weights -----------------------------------------------------------------------------------------------

enum { MAX_PARTS = 11 * PAINN_TRAIN_MAX_LAYERS + 4 + MLFF_MAX_ATOMIC_NUMBER };

_Static_assert((int)PAINN_TRAIN_MAX_JOBS <= (int)GPU_WEIGHT_JOBS, "one launch has all jobs");
_Static_assert((int)GPU_TRAIN_BRANCHES *(int)PAINN_TRAIN_MAX_LAYERS <= (int)GPU_GRADIENT_SOURCES, "sources of a shared tensor");

typedef struct gradient_tables {
    gpu_weight_job job[GPU_TRAIN_BRANCHES * PAINN_TRAIN_MAX_JOBS];
    gpu_gradient_part part[MAX_PARTS];
    int n_jobs, n_parts;
    int branch, first_job; // of the branch whose jobs are added
    int atoms;             // capacity
    int tile, split_rows;
} gradient_tables;

// Adds a source to the part at `offset`, which is made if it is not there: layers may share tensors.
static void add_part(gradient_tables *t, gpu_gradient_part part, gpu_gradient_source source)
{
    int k = 0;
    while (k < t->n_parts && t->part[k].offset != part.offset) k++;
    if (k == t->n_parts) t->part[t->n_parts++] = part;
    source.branch = t->branch;
    t->part[k].source[t->part[k].n_sources++] = source;
}

static void add_job(gradient_tables *t, placer *p, gpu_weight_job job, int64_t weight, int64_t bias)
{
    const int tiles_out = (job.n_out + t->tile - 1) / t->tile;
    const int tiles_in = (job.n_in + t->tile - 1) / t->tile;
    const int size = job.n_out * job.n_in, stride = size + (job.has_bias ? job.n_out : 0);
    job.n_tiles = tiles_out * (tiles_in ? tiles_in : 1);
    job.split_rows = t->split_rows;
    job.n_splits = (t->atoms * job.rows_per_atom + t->split_rows - 1) / t->split_rows;
    job.partial = place_floats(p, (size_t)stride * (size_t)job.n_splits);
    if (t->n_jobs > t->first_job)
        job.first_block = t->job[t->n_jobs - 1].first_block + t->job[t->n_jobs - 1].n_tiles * t->job[t->n_jobs - 1].n_splits;
    t->job[t->n_jobs++] = job;
    const gpu_gradient_source source = {job.partial, stride, job.split_rows, job.rows_per_atom, 0, 0};
    if (size) add_part(t, (gpu_gradient_part){.offset = weight, .n_rows = 1, .n_columns = size}, source);
    gpu_gradient_source behind = source;
    if (behind.partial) behind.partial += size;
    if (job.has_bias && size) add_part(t, (gpu_gradient_part){.offset = bias, .n_rows = 1, .n_columns = job.n_out}, behind);
}

static gpu_weight_job job_of(painn_dual left, int n_out, painn_dual right, int n_in, int rows_per_atom, int has_bias)
{
    return (gpu_weight_job){left.value, left.tangent, right.value, right.tangent, n_out, n_in, rows_per_atom, has_bias, 0, 0, 0,
                            0,          NULL};
}

static void add_layer(gradient_tables *t, placer *p, const painn_train_step *s, int l)
{
    const int F = s->n_features, K = s->n_radial;
    const painn_train_layer *L = &s->layer[l];
    add_job(t, p, job_of(L->h_bar, F, s->q[l], F, 1, 1), s->weights.layer[l].W1, s->weights.layer[l].b1);
    add_job(t, p, job_of(L->x_bar, 3 * F, L->a, F, 1, 1), s->weights.layer[l].W2, s->weights.layer[l].b2);
    add_job(t, p, job_of(L->VB_bar, 2 * F, L->mu1, F, 3, 0), s->weights.layer[l].U, 0);
    add_job(t, p, job_of(L->g_bar, F, L->context, 2 * F, 1, 1), s->weights.layer[l].M1, s->weights.layer[l].c1);
    add_job(t, p, job_of(L->y_bar, 3 * F, L->s, F, 1, 1), s->weights.layer[l].M2, s->weights.layer[l].c2);
    gpu_gradient_source source = {s->filter_sums_of[l], (int64_t)s->basis_rows * 3 * F, 0, 0, s->filter_sums, 0};
    add_part(t, (gpu_gradient_part){.offset = s->weights.layer[l].filter_weight, .n_rows = 3 * F, .n_columns = K}, source);
    if (source.partial) source.partial += (size_t)K * 3 * (size_t)F;
    add_part(t, (gpu_gradient_part){.offset = s->weights.layer[l].filter_bias, .n_rows = 1, .n_columns = 3 * F}, source);
}

static void add_readout(gradient_tables *t, placer *p, const painn_train_step *s)
{
    const int H = s->n_hidden;
    add_job(t, p, job_of(s->z_bar, H, s->q[s->n_layers], s->n_features, 1, 1), s->weights.O1, s->weights.o1);
    const painn_dual term = {s->readout_term, s->readout_term}, nothing = {0};
    add_job(t, p, job_of(term, H + PAINN_TRAIN_TERM_PAD, nothing, 0, 1, 1), 0, 0);
    const gpu_weight_job *job = &t->job[t->n_jobs - 1];
    gpu_gradient_source source = {job->partial, H + PAINN_TRAIN_TERM_PAD, job->split_rows, 1, 0, 0};
    add_part(t, (gpu_gradient_part){.offset = s->weights.O2, .n_rows = 1, .n_columns = H}, source);
    if (source.partial) source.partial += H;
    add_part(t, (gpu_gradient_part){.offset = s->weights.o2, .n_rows = 1, .n_columns = 1}, source);
}

static void add_embedding(gradient_tables *t, const painn_train_step *s, const painn_gpu_set *set)
{
    const int F = s->n_features;
    for (int e = 0; e < s->n_elements; e++) {
        const gpu_gradient_source source = {s->embedding_sums ? s->embedding_sums + (size_t)e * (size_t)F : NULL,
                                            (int64_t)s->n_elements * F,
                                            PAINN_TRAIN_EMBEDDING_ATOMS,
                                            1,
                                            0,
                                            0};
        add_part(t,
                 (gpu_gradient_part){.offset = s->weights.embedding + (int64_t)set->element[e] * F, .n_rows = 1, .n_columns = F},
                 source);
    }
}

// Tiles of a matrix of `out` F rows and `in` F columns.
static int tiles_of(int F, int tile, int out, int in)
{
    return (out * F + tile - 1) / tile * ((in * F + tile - 1) / tile);
}

// Rows of a split, as few as let all blocks of tiles and splits run at once: a second round would last as long as the first.
static int split_rows_of(const painn_train_step *s, int tile, int n_multiprocessors)
{
    enum { LEAST = 64, STEP = 16, OTHERS = 4 }; // others: tiles of the readout and of its column sums
    const int F = s->n_features, at_once = GPU_WEIGHT_THREADS / (2 * tile) * n_multiprocessors;
    const int rows_tiles = tiles_of(F, tile, 1, 1) + tiles_of(F, tile, 1, 2) + 2 * tiles_of(F, tile, 3, 1); // W1, M1, W2 and M2
    for (int rows = LEAST;; rows += STEP) {
        const int splits = (s->atom_capacity + rows - 1) / rows, vector_splits = (3 * s->atom_capacity + rows - 1) / rows;
        const int blocks =
            s->n_layers * (rows_tiles * splits + tiles_of(F, tile, 2, 1) * vector_splits) + OTHERS * splits; // vectors: U
        if (blocks <= at_once || splits == 1) return rows;
    }
}

// How many partial sums the elements of a part have in the largest batch.
static int partial_sums_of(const gpu_gradient_part *part, int atoms)
{
    int n = 0;
    for (int k = 0; k < part->n_sources; k++) {
        const gpu_gradient_source *s = &part->source[k];
        n += s->rows_per_sum ? (atoms * s->rows_per_atom + s->rows_per_sum - 1) / s->rows_per_sum : s->n_sums;
    }
    return n;
}

static void fill_tables(const painn_trainer *trainer, placer *p, const painn_train_step *branch, int n, gradient_tables *t)
{
    const int tile = trainer->weight_tile;
    *t = (gradient_tables){
        .atoms = branch->atom_capacity, .tile = tile, .split_rows = split_rows_of(branch, tile, trainer->n_multiprocessors)};
    for (int k = 0; k < n; k++) {
        t->branch = k;
        t->first_job = t->n_jobs;
        for (int l = 0; l < branch[k].n_layers; l++) add_layer(t, p, &branch[k], l);
        add_readout(t, p, &branch[k]);
        add_embedding(t, &branch[k], &trainer->training);
    }
    int block = 0;
    for (int k = 0; k < t->n_parts; k++) {
        gpu_gradient_part *part = &t->part[k];
        part->n_shares = partial_sums_of(part, t->atoms) > GPU_GRADIENT_SHARES ? GPU_GRADIENT_SHARES : 1;
        part->first_block = block;
        block += gpu_gradient_blocks(part);
    }
}

// ---- all of it ----------------------------------------------------------------------------------------------------------

static size_t place_arena(painn_trainer *trainer, char *base, painn_train_step *branch, int n, gradient_tables *t,
                          gpu_optimizer *o)
{
    placer p = {base, 0};
    place_shared(&p, branch, n);
    for (int k = 0; k < n; k++) place_step(&p, &branch[k]);
    fill_tables(trainer, &p, branch, n, t);
    const gpu_gradient_part *last = &t->part[t->n_parts - 1];
    o->n_parts = t->n_parts;
    o->n_blocks = last->first_block + gpu_gradient_blocks(last);
    trainer->jobs = place(&p, sizeof *t->job * (size_t)t->n_jobs);
    o->parts = place(&p, sizeof *t->part * (size_t)t->n_parts);
    o->squares = place(&p, sizeof(double) * (size_t)o->n_blocks);
    o->n_branches = n;
    for (int k = 0; k < n; k++) o->branch[k] = (gpu_train_branch){branch[k].call, branch[k].frame_sums};
    return p.at;
}

// One for the atoms of a block's warps; a block for each 16 features, all blocks at once.
static int filter_sums_of(const painn_train_step *s, int n_multiprocessors)
{
    const int warps = PAINN_TRAIN_EDGE_THREADS / 32,
              most = PAINN_TRAIN_GRADIENT_BLOCKS * n_multiprocessors / (s->n_features / 16);
    const int wanted = (s->atom_capacity + warps - 1) / warps;
    return wanted < most ? wanted : most > 0 ? most : 1;
}

static mlff_status create_slots(painn_trainer *trainer, painn_train_step *s)
{
    mlff_status status = MLFF_OK;
    void *slots = NULL;
    if (trainer->slots) cudaFreeHost(trainer->slots);
    trainer->slots = NULL;
    const size_t of_branch = sizeof(gpu_train_call) + sizeof(int32_t) * painn_train_list(s->frame_capacity);
    s->slot_bytes = ((size_t)s->n_branches * of_branch + 63) / 64 * 64;
    CUDA_TRY(cudaHostAlloc(&slots, s->slot_bytes * PAINN_TRAIN_SLOTS, cudaHostAllocMapped | cudaHostAllocPortable),
             "page-locked memory for batches");
    memset(slots, 0, s->slot_bytes * PAINN_TRAIN_SLOTS);
    trainer->slots = slots;
    s->slots = slots;
done:
    return status;
}

mlff_status painn_train_arena_create(painn_trainer *trainer, int n_branches, int n_frames, int n_atoms, int n_pairs)
{
    mlff_status status = MLFF_OK;
    painn_train_step step = trainer->step;
    static _Thread_local gradient_tables tables; // too large for a stack
    CUDA_TRY(cuda_wait(trainer->stream, 0), "waiting for the last step");
    painn_trainer_forget_graphs(trainer);
    cuda_release(trainer->device, trainer->arena);
    trainer->arena = NULL;
    trainer->step.atom_capacity = trainer->step.frame_capacity = trainer->step.pair_capacity = trainer->n_branches = 0;
    step.n_branches = n_branches;
    step.frame_capacity = n_frames;
    step.atom_capacity = n_atoms;
    step.pair_capacity = n_pairs > 0 ? n_pairs : 1;
    step.n_elements = trainer->training.n_elements;
    step.filter_sums = filter_sums_of(&step, trainer->n_multiprocessors);
    PLUGIN_TRY(create_slots(trainer, &step));
    for (int k = 0; k < n_branches; k++) trainer->branch[k] = step;
    const size_t bytes = place_arena(trainer, NULL, trainer->branch, n_branches, &tables, &trainer->optimizer);
    PLUGIN_TRY(cuda_allocate(trainer->device, bytes, "a training step; choose a smaller batch size", &trainer->arena));
    place_arena(trainer, trainer->arena, trainer->branch, n_branches, &tables, &trainer->optimizer);
    trainer->n_jobs = tables.n_jobs / n_branches;
    const gpu_weight_job *last = &tables.job[trainer->n_jobs - 1];
    trainer->n_job_blocks = last->first_block + last->n_tiles * last->n_splits;
    CUDA_TRY(cuda_copy(trainer->jobs, tables.job, sizeof *tables.job * (size_t)tables.n_jobs, cudaMemcpyHostToDevice),
             "copying tables to the GPU");
    CUDA_TRY(cuda_copy((void *)(uintptr_t)trainer->optimizer.parts, tables.part, sizeof *tables.part * (size_t)tables.n_parts,
                       cudaMemcpyHostToDevice),
             "copying tables to the GPU");
    trainer->step = step;
    trainer->n_branches = n_branches;
done:
    return status;
}
