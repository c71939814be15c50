// SPDX-License-Identifier: MIT
// ani_gpu.c: ANI on one GPU: constants, memory and plan of a step, and the order of its kernels. Calls, neighbor rows, memory and graphs
// are in src/gpu/evaluator.
#include "ani_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/evaluator/gpu_registry.h"

enum { WIDE_FROM = 2048 /* atoms */ };

// Tiles and clusters of the networks, those that take least time first.
enum { N_SHAPES = 6 };
static const struct {
    int tile, cluster;
} shapes[N_SHAPES] = {{16, 8}, {16, 4}, {16, 2}, {32, 4}, {32, 2}, {32, 1}};

typedef struct ani_evaluator {
    gpu_evaluator base;    // first: what the plugin returns
    ani_gpu_step step;     // its gpu is base.step
    void *operands;        // device memory
    int at_once[N_SHAPES]; // clusters that run at once
} ani_evaluator;

// ---- a step ---------------------------------------------------------------------------------------------------------

static size_t arena(gpu_evaluator *base, const gpu_step *gpu, void *at)
{
    const ani_evaluator *e = (const ani_evaluator *)base;
    ani_gpu_step step = e->step;
    step.gpu = *gpu;
    // With many tiles, a block computes members one after the other and accumulates their adjoints: less memory.
    step.n_parts = gpu->neighbors.atom_capacity <= 4096    ? step.n_members
                   : gpu->neighbors.atom_capacity <= 65536 ? (step.n_members + 1) / 2
                                                           : 1;
    const size_t bytes = ani_gpu_arena(&step, at);
    if (at) ((ani_evaluator *)base)->step = step;
    return bytes;
}

// Tiles of slots as small, and clusters that share a tile's columns as large, as run all at once. A species' last tile is not full: one
// tile more than atoms fill. Tiles of 16 slots without a cluster take longer than tiles of 32 in a cluster.
static void plan(const gpu_evaluator *base, gpu_plan *plan)
{
    const ani_evaluator *e = (const ani_evaluator *)base;
    const int members = e->step.n_members, atoms = plan->n_atoms;
    const bool clusters = e->step.n_parts == members;
    plan->tile = atoms >= WIDE_FROM ? ANI_GPU_MAX_TILE : 64;
    plan->cluster = 1;
    for (int k = 0; k < N_SHAPES; k++) {
        const int n = ((atoms + shapes[k].tile - 1) / shapes[k].tile + 1) * members;
        if (n > e->at_once[k] || (shapes[k].cluster > 1 && !clusters)) continue;
        plan->tile = shapes[k].tile;
        plan->cluster = shapes[k].cluster;
        break;
    }
    if (base->forced.tile > 0) plan->tile = base->forced.tile;
    if (base->forced.cluster > 0 && clusters && base->capability >= 90) plan->cluster = base->forced.cluster;
    if (plan->tile == ANI_GPU_MAX_TILE && (e->step.wgmma_blocks == 0 || plan->wide)) plan->tile = 64;
    while (plan->tile > 16 && plan->tile < ANI_GPU_MAX_TILE &&
           ani_gpu_network_bytes(&e->step, plan->tile) > (size_t)base->shared_bytes)
        plan->tile /= 2;
    if (plan->tile >= 64) plan->cluster = 1;
}

static ani_gpu_step step_of(const gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan)
{
    ani_gpu_step step = ((const ani_evaluator *)base)->step;
    step.gpu = *gpu;
    if (ani_gpu_chained(plan)) step.gpu.follows_motion = 0; // the sort of atoms is in between
    step.tile = plan->tile;
    step.cluster = plan->cluster;
    if (plan->wide) step.value_scale = ANI_GPU_WIDE_SCALE, step.value_unit = 1 / ANI_GPU_WIDE_SCALE;
    step.warm_code = plan->overlap &&
                     plan->n_atoms <= plan->n_multiprocessors; // one block on each multiprocessor, concurrent with the networks
    return step;
}

// Whether a kernel of its own finds the pairs' reverses; else that of the AEVs' reverse, or of the networks of large systems, does.
static bool searches_apart(const gpu_step *gpu, const gpu_plan *plan)
{
    return plan->forces && (gpu->neighbors.given_pairs == 2 || (!ani_gpu_chained(plan) && plan->tile < ANI_GPU_MAX_TILE));
}

// Few atoms: one chain of kernels, in which the list's first kernel overlaps with the sort of atoms. Many: longer kernels on a side stream.
static mlff_status enqueue_rows(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    const ani_gpu_step step = step_of(base, gpu, plan);
    const int chained = ani_gpu_chained(plan);
    gpu_plan rows = *plan;
    if (chained) {
        rows.chained = plan->overlap;
        CUDA_TRY(ani_gpu_launch_arrange(&step, plan, stream), "launching the sort of atoms");
    } else {
        CUDA_TRY(cudaEventRecord(base->forked, stream), "forking");
        CUDA_TRY(cudaStreamWaitEvent(base->side, base->forked, 0), "forking");
        CUDA_TRY(ani_gpu_launch_arrange(&step, plan, base->side), "launching the sort of atoms");
        CUDA_TRY(cudaEventRecord(base->joined, base->side), "joining");
    }
    if (!ani_gpu_fuses_search(&step, plan))
        CUDA_TRY(gpu_launch_neighbors(&step.gpu, &rows, stream), "launching the neighbor search");
    if (!chained) CUDA_TRY(cudaStreamWaitEvent(stream, base->joined, 0), "joining");
    if (searches_apart(gpu, plan)) {
        CUDA_TRY(cudaEventRecord(base->forked, stream), "forking");
        CUDA_TRY(cudaStreamWaitEvent(base->side, base->forked, 0), "forking");
        CUDA_TRY(gpu_launch_reverse(gpu, plan, base->side), "launching the reverse pairs");
        CUDA_TRY(cudaEventRecord(base->joined, base->side), "joining");
    }
done:
    return status;
}

static mlff_status enqueue_model(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    const ani_gpu_step step = step_of(base, gpu, plan);
    const int apart = ani_gpu_sums_apart(&step, plan);
    CUDA_TRY(ani_gpu_launch_aev(&step, plan, stream), "launching the AEVs");
    CUDA_TRY(plan->tile == ANI_GPU_MAX_TILE ? ani_gpu_launch_wgmma(&step, plan, stream)
                                            : ani_gpu_launch_network(&step, plan, stream),
             "launching the networks");
    if (searches_apart(gpu, plan)) CUDA_TRY(cudaStreamWaitEvent(stream, base->joined, 0), "joining");
    if (apart) {
        CUDA_TRY(cudaEventRecord(base->forked, stream), "forking");
        CUDA_TRY(cudaStreamWaitEvent(base->side, base->forked, 0), "forking");
        CUDA_TRY(ani_gpu_launch_sums(&step, plan, base->side), "launching the sums");
        CUDA_TRY(cudaEventRecord(base->joined, base->side), "joining");
    }
    if (plan->forces) CUDA_TRY(ani_gpu_launch_aev_back(&step, plan, stream), "launching the AEVs' reverse");
    CUDA_TRY(ani_gpu_launch_forces(&step, plan, stream), "launching the forces");
    if (apart) CUDA_TRY(cudaStreamWaitEvent(stream, base->joined, 0), "joining");
done:
    return status;
}

static void read_stamps(const gpu_evaluator *base, int forces, double *time_ns)
{
    const uint64_t *t = base->io.stamps;
    uint64_t last = t[0];
    for (int stage = 0; stage < ANI_GPU_STAMP_END; stage++) {
        // Without forces the backward stages leave no stamps, nor does a block whose member was not requested.
        const int left_out = !forces && (stage + 1 == ANI_GPU_STAMP_NETWORK_BACK || stage + 1 == ANI_GPU_STAMP_AEV_BACK);
        const uint64_t next = left_out || t[stage + 1] < last ? last : t[stage + 1];
        time_ns[stage] = (double)(next - last);
        last = next;
    }
    if (!forces) { // what follows the beginning of the networks belongs to them
        time_ns[ANI_GPU_STAMP_NETWORK] += time_ns[ANI_GPU_STAMP_AEV_BACK];
        time_ns[ANI_GPU_STAMP_AEV_BACK] = 0;
    }
}

// The kernels are the same; their scale factor differs.
static mlff_status widen(gpu_evaluator *base)
{
    (void)base;
    return MLFF_OK;
}

static void release(gpu_evaluator *base)
{
    cuda_release(base->device, ((ani_evaluator *)base)->operands);
}

static const int tiles[] = {16, 32, 64, ANI_GPU_MAX_TILE, -1};
static const gpu_kind ani_kind = {.tiles = tiles,
                                  .arena = arena,
                                  .plan = plan,
                                  .enqueue_rows = enqueue_rows,
                                  .enqueue_model = enqueue_model,
                                  .widen = widen,
                                  .read_stamps = read_stamps,
                                  .release = release};

// ---- making one -----------------------------------------------------------------------------------------------------

static mlff_status create_stages(gpu_evaluator *base)
{
    static const mlff_stage stages[ANI_GPU_STAMP_END] = {
        {"transfer", "forward", -1, "input check, wrapping"},
        {"neighbors", "forward", -1, "geometry, atoms by species"},
        [ANI_GPU_STAMP_RADIAL] = {"aev_radial", "forward", -1, "cutoffs, sort of neighbors"},
        [ANI_GPU_STAMP_ANGULAR] = {"aev_angular", "forward", -1, ""},
        [ANI_GPU_STAMP_NETWORK] = {"network", "forward", -1, ""},
        [ANI_GPU_STAMP_NETWORK_BACK] = {"network_backward", "backward", -1, ""},
        [ANI_GPU_STAMP_AEV_BACK] = {"aev_backward", "backward", -1, "pair gradients"},
        [ANI_GPU_STAMP_FORCES] = {"forces", "backward", -1, "geometry"},
        [ANI_GPU_STAMP_SUMS] = {"sums", "", -1, "energy, stress, transfer"}};
    return gpu_evaluator_set_stages(base, stages, ANI_GPU_STAMP_END, ANI_GPU_STAMP_END + 1);
}

// Context of gpu_evaluator_upload.
typedef struct packed_ani {
    const device_model *model;
    const int *members;
    int n_members;
    gpu_packer operands;
    ani_gpu_step *step;
} packed_ani;

static void pack_ani(void *context, void *block, size_t *bytes, const void *base)
{
    packed_ani *p = context;
    ani_gpu_pack(p->model->parameters, p->model->model, p->members, p->n_members, block, bytes, base, &p->operands, p->step);
}

static size_t bytes_of(const ani_gpu_source *source)
{
    return sizeof(float) * (size_t)source->in * (size_t)source->out;
}

// Copies the model's weights to the GPU, each layer as it is, for as long as the kernel needs that makes the operands from them.
static mlff_status write_operands(ani_evaluator *e, const packed_ani *packed)
{
    mlff_status status = MLFF_OK;
    const int n = e->step.n_members * e->step.n_species * ANI_GPU_MAX_HIDDEN, device = e->base.device;
    void *memory = NULL;
    const void *listed, *at;
    ani_gpu_source *sources = calloc((size_t)n, sizeof *sources);
    gpu_packer weights = {0};
    if (!sources) return host.fail(MLFF_ERR_MEMORY, "out of memory: the weights of %d layers", n);
    ani_gpu_list_sources(packed->model->parameters, packed->members, packed->n_members, sources);
    gpu_pack(&weights, sizeof *sources * (size_t)n, &listed);
    for (int k = 0; k < n; k++) gpu_pack(&weights, bytes_of(&sources[k]), &at);
    PLUGIN_TRY(cuda_allocate(device, weights.at, "the model's weights", &memory));
    weights = (gpu_packer){.base = memory};
    gpu_pack(&weights, sizeof *sources * (size_t)n, &listed);
    for (int k = 0; k < n; k++) {
        gpu_pack(&weights, bytes_of(&sources[k]), &at);
        CUDA_TRY(cuda_copy((void *)(uintptr_t)at, sources[k].weight, bytes_of(&sources[k]), cudaMemcpyHostToDevice),
                 "copying the model to the GPU");
        sources[k].weight = at;
    }
    CUDA_TRY(cuda_copy(memory, sources, sizeof *sources * (size_t)n, cudaMemcpyHostToDevice), "copying the model to the GPU");
    CUDA_TRY(ani_gpu_launch_operands(&e->step, listed, e->base.stream), "writing the operands");
    CUDA_TRY(cuda_wait(e->base.stream, 0), "writing the operands");
done:
    cuda_release(device, memory);
    free(sources);
    return status;
}

static mlff_status upload(ani_evaluator *e, packed_ani *packed)
{
    mlff_status status = MLFF_OK;
    size_t bytes;
    pack_ani(packed, NULL, &bytes, NULL); // counts the operands
    PLUGIN_TRY(cuda_allocate(e->base.device, packed->operands.at, "the model", &e->operands));
    packed->operands.base = e->operands;
    PLUGIN_TRY(gpu_evaluator_upload(&e->base, pack_ani, packed));
    e->base.constant_bytes += packed->operands.at;
    status = write_operands(e, packed);
done:
    return status;
}

static mlff_status create(const device_model *described, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out)
{
    mlff_status status = MLFF_OK;
    int wide = 0, members[ANI_MAX_MEMBERS];
    const mlff_model *model = described->model;
    const ani_parameters *parameters = described->parameters;
    const int n_members = described->n_members ? described->n_members : parameters->n_members;
    for (int m = 0; m < n_members; m++) members[m] = described->n_members ? described->members[m] : m;
    const char *lacks = ani_gpu_lacks(parameters);
    if (lacks) return host.fail(MLFF_ERR_UNSUPPORTED, "%s: on the GPU an ANI has %s; use device cpu", model->name, lacks);
    if (options->precision == MLFF_TF32 || options->precision == MLFF_BF16)
        return host.fail(MLFF_ERR_UNSUPPORTED,
                         "ANI has no reduced-precision mode: its energies need float32; use precision float32");
    ani_evaluator *e = calloc(1, sizeof *e);
    if (!e) return host.fail(MLFF_ERR_MEMORY, "out of memory: an evaluator");
    gpu_evaluator *base = &e->base;
    PLUGIN_TRY(gpu_evaluator_open(base, &ani_kind, model->name, options));
    if (options->halo) base->step.neighbors.ghost_pairs = GPU_GHOST_PAIRS_GIVEN;
    if (base->hopper) CUDA_TRY(ani_gpu_prepare_wgmma(base->shared_bytes, &wide), "setting up the kernels");
    e->step.wgmma_blocks = wide ? base->n_multiprocessors : 0;
    e->step.gpu = base->step;
    PLUGIN_TRY(upload(e, &(packed_ani){described, members, n_members, {0}, &e->step}));
    PLUGIN_TRY(create_stages(base));
    base->step = e->step.gpu;
    base->n_members = n_members;
    if (ani_gpu_network_bytes(&e->step, 16) > (size_t)base->shared_bytes) {
        status = host.fail(MLFF_ERR_UNSUPPORTED, "%s: its networks need %zu KB of shared memory, this GPU has %d; use device cpu",
                           model->name, ani_gpu_network_bytes(&e->step, 16) / 1024, base->shared_bytes / 1024);
        goto done;
    }
    for (int row = FIRST_ROW; ani_gpu_aev_bytes(&e->step, row) <= (size_t)base->shared_bytes; row += 16) base->row_limit = row;
    CUDA_TRY(ani_gpu_prepare_network(base->shared_bytes), "setting up the kernels");
    CUDA_TRY(ani_gpu_prepare_aev(base->shared_bytes), "setting up the kernels");
    for (int k = 0; k < N_SHAPES; k++)
        if (shapes[k].cluster == 1) // two of these blocks on a multiprocessor
            e->at_once[k] = 2 * base->n_multiprocessors;
        else if (base->capability >= 90 && ani_gpu_network_bytes(&e->step, shapes[k].tile) <= (size_t)base->shared_bytes)
            e->at_once[k] = ani_gpu_clusters_at_once(&e->step, shapes[k].tile, shapes[k].cluster);
    *evaluator_out = base;
    e = NULL;
done:
    if (e) gpu_evaluator_destroy(&e->base);
    return status;
}

static const gpu_kernel kernels[] = {{"count_species_kernel", "forward/neighbors"},
                                     {"sort_species_kernel", "forward/neighbors"},
                                     {"aev_kernel", "forward/aev_radial"},  // and angular
                                     {"network_kernel", "forward/network"}, // and backward
                                     {"network_wgmma_kernel", "forward/network"},
                                     {"aev_back_kernel", "backward/aev_backward"},
                                     {"forces_kernel", "backward/forces"},
                                     {"sums_kernel", "sums"},
                                     {"operands_kernel", ""}, // once, before the steps
                                     {0}};

extern const gpu_architecture ani_gpu_architecture;
const gpu_architecture ani_gpu_architecture = {
    .name = "ani",
    .model_bytes = sizeof(mlff_model),
    .parameters_bytes = sizeof(ani_parameters),
    .create = create,
    .kernels = kernels,
};
