// SPDX-License-Identifier: MIT
// painn_gpu.c: PaiNN on one GPU: constants, memory and plan of a step, and the order of its kernels. Calls, neighbor rows, memory and
// graphs are in src/gpu/evaluator.
#include <stdlib.h>

#include "gpu/evaluator/gpu_registry.h"
#include "painn_gpu.h"
#include "train/painn_trainer_gpu.h"

typedef struct painn_gpu_evaluator {
    gpu_evaluator base;                       // first: what the plugin returns
    painn_gpu_step step;                      // its gpu is base.step
    painn_gpu_step wide;                      // matrices of steps with plan.wide, once one was needed
    void *wide_constants;                     // on the device; NULL: none was needed yet
    const painn_parameters *parameters;       // borrowed from the model
    int large_tiles;                          // 1: tiles of 32 atoms fit into shared memory
    int shared_table;                         // 1: a slice of a filter table fits
    int fused_tiles[PAINN_GPU_TWO_TILES + 1]; // tiles of 8 atoms that the fused layers hold at once, for each kind of cluster
} painn_gpu_evaluator;

// ---- a step -------------------------------------------------------------------------------------------------------------

static size_t arena(gpu_evaluator *base, const gpu_step *gpu, void *at)
{
    painn_gpu_evaluator *e = (painn_gpu_evaluator *)base;
    painn_gpu_step step = e->step;
    step.gpu = *gpu;
    const size_t bytes = painn_gpu_arena(&step, at);
    if (at) e->step = step;
    return bytes;
}

// With few atoms the rows are built by some 16 blocks, so that the fused layers can be set up on other multiprocessors meanwhile. If they
// need more than half of all multiprocessors, the row blocks form clusters too: this leaves others free in groups as clusters of the fused
// layers need them.
void painn_gpu_plan_rows(gpu_plan *plan, int n_features)
{
    enum { FEW_BLOCKS = 16, MOST_WARPS = 12 };
    plan->row_warps = plan->row_cluster = 0;
    if (!plan->fused) return;
    const int tiles = (plan->n_atoms + PAINN_GPU_TILE_ATOMS - 1) / PAINN_GPU_TILE_ATOMS,
              clusters = plan->fused == PAINN_GPU_TWO_TILES ? (tiles + 1) / 2 : tiles,
              warps = (plan->n_atoms + FEW_BLOCKS - 1) / FEW_BLOCKS, blocks = PAINN_GPU_TILE_BLOCKS(n_features);
    plan->row_warps = warps < MOST_WARPS ? warps : MOST_WARPS;
    if (2 * clusters * blocks > plan->n_multiprocessors) plan->row_cluster = blocks;
}

// Atoms of a wgmma tile: of the sizes that fit the arrays, the one whose waves of blocks take least time. A tile of 8 n atoms takes some
// 5 + 3.4 n µs with 128 features; with 64 a multiprocessor has two blocks.
static int choose_tile(const gpu_evaluator *base, int n_atoms, int n_features)
{
    const int at_once = base->n_multiprocessors * (128 / n_features);
    int tile = 8, best = 0;
    for (int size = 8; size <= 32; size += 8) {
        const int n = (n_atoms + size - 1) / size;
        const int time = (12 + size) * ((n + at_once - 1) / at_once);
        if (n * size > base->step.neighbors.atom_capacity || (best > 0 && time > best)) continue;
        best = time;
        tile = size;
    }
    return tile;
}

// The kind of fused layers that holds all tiles at once; 0: none. Its indices have 32 bits, which larger arrays exceed: 3 KB for each
// atom, 128 bytes of gradients for each neighbor.
static int choose_fused(const painn_gpu_evaluator *e, int n_atoms)
{
    const gpu_neighbors *list = &e->base.step.neighbors;
    const int tiles = (n_atoms + PAINN_GPU_TILE_ATOMS - 1) / PAINN_GPU_TILE_ATOMS, forced = e->base.forced.fused;
    const int64_t atoms = list->atom_capacity + 1;
    int fused = 0;
    for (int kind = PAINN_GPU_TWO_TILES; kind > 0; kind--)
        if (tiles <= e->fused_tiles[kind]) fused = kind;
    if (forced == 0 || (forced > 0 && forced <= PAINN_GPU_TWO_TILES && tiles <= e->fused_tiles[forced])) fused = forced;
    const bool fits =
        atoms * 6 * e->step.n_features * (int64_t)sizeof(float) <= UINT32_MAX && atoms * list->row_capacity * 32 <= UINT32_MAX;
    return fits ? fused : 0;
}

// Small molecules have short rows, of which a warp takes four at a time if there are enough for the warps of a block.
static bool takes_four_rows(const painn_gpu_evaluator *e, const gpu_plan *plan)
{
    enum { FEWEST_ROWS = 48, LARGEST = 16 };
    const int blocks = plan->n_multiprocessors / (e->step.n_features / PAINN_GPU_SLICE); // that share the rows
    return plan->isolated && plan->small > 0 && plan->small <= LARGEST && plan->n_atoms >= FEWEST_ROWS * blocks;
}

static void plan_of_painn(const gpu_evaluator *base, gpu_plan *plan)
{
    const painn_gpu_evaluator *e = (const painn_gpu_evaluator *)base;
    const gpu_plan *forced = &base->forced;
    plan->wgmma = e->step.n_features >= 64 && base->hopper && e->large_tiles && !plan->wide;
    if (plan->wgmma && forced->tile > 0) plan->wgmma = forced->wgmma > 0;
    plan->tile = !plan->wgmma ? 16 : forced->tile > 0 ? forced->tile : choose_tile(base, plan->n_atoms, e->step.n_features);
    plan->edge_mode = plan->n_atoms <= 96 || !e->shared_table ? PAINN_GPU_ROW_BLOCK
                      : takes_four_rows(e, plan)              ? PAINN_GPU_SHORT_ROWS
                                                              : PAINN_GPU_TABLE_SHARED;
    if (forced->edge_mode > 0) plan->edge_mode = forced->edge_mode;
    plan->fused = plan->wide ? 0 : choose_fused(e, plan->n_atoms);
    painn_gpu_plan_rows(plan, e->step.n_features);
}

static painn_gpu_step step_of(const gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan)
{
    const painn_gpu_evaluator *e = (const painn_gpu_evaluator *)base;
    painn_gpu_step step = e->step;
    step.gpu = *gpu;
    if (!plan->wide) return step;
    for (int l = 0; l < step.n_layers; l++) {
        const painn_gpu_layer *from = &e->wide.layer[l];
        painn_gpu_layer *to = &step.layer[l];
        to->U = from->U, to->M1 = from->M1, to->M2 = from->M2, to->W1 = from->W1, to->W2 = from->W2;
        to->Ut = from->Ut, to->M1t = from->M1t, to->M2t = from->M2t, to->W1t = from->W1t, to->W2t = from->W2t;
    }
    step.O1 = e->wide.O1;
    step.O1t = e->wide.O1t;
    step.weight_unit = e->wide.weight_unit;
    return step;
}

// With fused layers the forces kernel searches for the pairs' reverses itself.
static int uses_fused_layers(const gpu_evaluator *e, const gpu_step *step, const gpu_plan *plan)
{
    return plan->fused && step->neighbors.given_pairs != 2 && !e->has_halo;
}

// Whether layers are computed for fewer than all atoms, as some are ghosts.
static bool computes_fewer(const gpu_evaluator *e, const gpu_step *step, const gpu_plan *plan)
{
    return e->has_halo || (e->ghosts && !uses_fused_layers(e, step, plan));
}

// The step of the atoms that are at most k edges away from an owned one. With halo hooks all layers are of owned atoms.
static painn_gpu_step step_of_reach(const gpu_evaluator *e, const painn_gpu_step *full, const gpu_plan *plan, int k)
{
    painn_gpu_step step = *full;
    if (computes_fewer(e, &full->gpu, plan)) step.gpu.call = full->calls + (e->has_halo ? 0 : k);
    return step;
}

// The reverse of message l: of the senders, and of receivers' adjoints below. With halo hooks the senders are the owned atoms, and all
// receivers have adjoints.
static painn_gpu_step step_of_senders(const gpu_evaluator *e, const painn_gpu_step *full, const gpu_plan *plan, int l)
{
    const int L = full->n_layers;
    painn_gpu_step step = *full;
    if (l > 0 || e->has_halo) step = step_of_reach(e, full, plan, L - l);
    step.call_above = e->has_halo ? full->gpu.call : step_of_reach(e, full, plan, L - l - 1).gpu.call;
    return step;
}

// The transpose of an asymmetric list is needed by the backward pass, indices of reverses only by the forces. With many atoms every kernel
// of the chain fills the GPU, and the search would delay the next one's blocks.
static cudaStream_t stream_of_search(const gpu_evaluator *e, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream)
{
    enum { MANY_ATOMS = 2048 };
    return step->neighbors.given_pairs == 2 ? stream : plan->n_atoms < MANY_ATOMS ? e->side : e->background;
}

static mlff_status enqueue_rows(gpu_evaluator *e, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(gpu_launch_neighbors(step, plan, stream), "launching the neighbor search");
    const painn_gpu_step full = step_of(e, step, plan);
    const int fused = uses_fused_layers(e, step, plan), SPARE_WARPS = 4 * PAINN_GPU_SPARE * PAINN_GPU_SPARE_BLOCKS;
    if (plan->forces && !fused) {
        cudaStream_t side = stream_of_search(e, step, plan, stream);
        CUDA_TRY(cudaEventRecord(e->forked, stream), "forking");
        CUDA_TRY(cudaStreamWaitEvent(side, e->forked, 0), "forking");
        gpu_plan search = *plan;
        if (side == e->side && search.n_atoms > SPARE_WARPS)
            search.n_atoms = SPARE_WARPS; // for the grid: its warps walk over all rows
        CUDA_TRY(gpu_launch_reverse(step, &search, side), "launching the reverse pairs");
        CUDA_TRY(painn_gpu_launch_core(&full, &search, side), "launching the core repulsion");
        CUDA_TRY(cudaEventRecord(e->joined, side), "joining");
    } else if (!fused) {
        CUDA_TRY(painn_gpu_launch_core(&full, plan, stream), "launching the core repulsion");
    }
    if (!computes_fewer(e, step, plan)) return MLFF_OK;
    CUDA_TRY(cudaMemsetAsync(full.reach, 0, sizeof *full.reach * ((size_t)full.n_layers + 1), stream), "launching the ghosts");
    CUDA_TRY(painn_gpu_launch_ghosts(&full, plan, !e->has_halo, stream), "launching the ghosts");
done:
    return status;
}

// With halo hooks: ghosts' values of an array of floats come from their owners, in any layout.
static mlff_status exchange(gpu_evaluator *e, int layer, int stage, float *data, int width, cudaStream_t stream)
{
    const mlff_halo_array array = {data, width, sizeof(float)};
    return e->has_halo ? gpu_evaluator_exchange(e, layer, stage, &array, stream) : MLFF_OK;
}

static mlff_status enqueue_model(gpu_evaluator *e, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    const painn_gpu_step full = step_of(e, gpu, plan), *step = &full;
    const int L = step->n_layers, fused = uses_fused_layers(e, gpu, plan), separate = painn_gpu_sums_separate(step, plan);
    if (fused) CUDA_TRY(painn_gpu_launch_fused(step, plan, stream), "launching the layers");
    for (int l = 0; l < L && !fused; l++) {
        const painn_gpu_step rows = step_of_reach(e, step, plan, L - 1 - l);
        CUDA_TRY(painn_gpu_launch_message(&rows, plan, l, stream), "launching a message");
        CUDA_TRY(painn_gpu_launch_update(&rows, plan, l, 0, stream), "launching an update");
        if (l + 1 < L) PLUGIN_TRY(exchange(e, l, 3 + 2 * l, step->state[l + 1], 6 * step->n_features, stream));
    }
    if (separate) {
        // Concurrent with the backward pass, after the search for reverses.
        CUDA_TRY(cudaEventRecord(e->forked, stream), "forking");
        CUDA_TRY(cudaStreamWaitEvent(e->side, e->forked, 0), "forking");
        CUDA_TRY(cudaStreamWaitEvent(e->side, e->joined, 0), "joining");
        CUDA_TRY(painn_gpu_launch_sums(step, plan, e->side), "launching the sums");
        CUDA_TRY(cudaEventRecord(e->joined, e->side), "joining");
    }
    if (plan->forces) {
        for (int l = L - 1; l >= 0 && !fused; l--) {
            const painn_gpu_step senders = step_of_senders(e, step, plan, l), rows = step_of_reach(e, step, plan, L - l);
            PLUGIN_TRY(exchange(e, l, 2 * L + 1 + 2 * (L - 1 - l), step->adjoint, 4 * step->n_features, stream));
            CUDA_TRY(painn_gpu_launch_edges(&senders, plan, l, stream), "launching a message's reverse");
            if (l == 0) break;
            CUDA_TRY(painn_gpu_launch_update(&rows, plan, l, 1, stream), "launching an update's reverse");
        }
        if (!fused || separate) CUDA_TRY(cudaStreamWaitEvent(stream, e->joined, 0), "joining");
    }
    CUDA_TRY(painn_gpu_launch_forces(step, plan, fused, stream), "launching the forces");
done:
    return status;
}

static void read_stamps_of_painn(const gpu_evaluator *base, int forces, double *time_ns)
{
    const painn_gpu_evaluator *e = (const painn_gpu_evaluator *)base;
    const uint64_t *t = base->io.stamps;
    int L = e->step.n_layers, last = 4 * L + 3, k = 0;
    for (int stage = 0; stage < last; stage++) {
        if (!forces && stage >= 2 + 2 * L && stage < last - 1) {
            time_ns[k++] = 0;
            continue;
        }
        int next = stage + 1;
        if (!forces && stage == 1 + 2 * L) next = last - 1;
        // Concurrent work may end before the previous stage.
        time_ns[k++] = t[next] > t[stage] ? (double)(t[next] - t[stage]) : 0.0;
    }
}

static void pack_wide(void *context, void *block, size_t *bytes, const void *base)
{
    painn_gpu_evaluator *e = context;
    painn_gpu_pack_wide(e->parameters, block, bytes, base, &e->wide);
}

static mlff_status widen(gpu_evaluator *base)
{
    painn_gpu_evaluator *e = (painn_gpu_evaluator *)base;
    if (e->wide_constants) return MLFF_OK;
    if (painn_gpu_prepare_node_wide(e->step.n_features) != cudaSuccess) return MLFF_ERR_UNSUPPORTED;
    return gpu_evaluator_upload_more(base, pack_wide, e, &e->wide_constants);
}

static void release(gpu_evaluator *base)
{
    cuda_release(base->device, ((painn_gpu_evaluator *)base)->wide_constants);
}

static const int tiles[] = {8, 16, 24, 32, -1};
static const gpu_kind painn_kind = {.tiles = tiles,
                                    .arena = arena,
                                    .plan = plan_of_painn,
                                    .enqueue_rows = enqueue_rows,
                                    .enqueue_model = enqueue_model,
                                    .widen = widen,
                                    .release = release,
                                    .read_stamps = read_stamps_of_painn};

// ---- making one ---------------------------------------------------------------------------------------------------------

static mlff_status create_stages(painn_gpu_evaluator *e)
{
    mlff_stage stages[4 * PAINN_GPU_MAX_LAYERS + 3];
    int L = e->step.n_layers, k = 0;
    stages[k++] = (mlff_stage){"transfer", "forward", -1, "input check, wrapping"};
    stages[k++] = (mlff_stage){"neighbors", "forward", -1, "geometry"};
    for (int l = 0; l < L; l++) {
        stages[k++] = (mlff_stage){"message", "forward", l, "filter"};
        stages[k++] =
            (mlff_stage){"update", "forward", l, l + 1 < L ? "message network" : "readout, readout and update backward"};
    }
    for (int l = L - 1; l >= 0; l--) {
        stages[k++] = (mlff_stage){"message", "backward", l, "filter, radial"};
        if (l > 0) stages[k++] = (mlff_stage){"update", "backward", l - 1, "message network"};
    }
    stages[k++] = (mlff_stage){"forces", "backward", -1, "geometry"};
    stages[k++] = (mlff_stage){"sums", "", -1, "energy, stress, transfer"};
    return gpu_evaluator_set_stages(&e->base, stages, k, 4 * L + 4);
}

// Context of gpu_evaluator_upload.
typedef struct packed_painn {
    const device_model *model;
    painn_gpu_step *step;
} packed_painn;

static void pack_painn(void *context, void *block, size_t *bytes, const void *base)
{
    const packed_painn *p = context;
    const painn_parameters *parameters = p->model->parameters;
    painn_gpu_pack(parameters, p->model->model, parameters->radial, block, bytes, base, p->step);
}

static mlff_status create(const device_model *described, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out)
{
    mlff_status status = MLFF_OK;
    const mlff_model *model = described->model;
    const painn_parameters *parameters = described->parameters;
    if (!painn_gpu_supported(parameters))
        return host.fail(MLFF_ERR_UNSUPPORTED,
                         "%s: on the GPU a PaiNN has 32, 64 or 128 features and a readout of two layers, the first half as wide; "
                         "use device cpu",
                         model->name);
    painn_gpu_evaluator *e = calloc(1, sizeof *e);
    if (!e) return host.fail(MLFF_ERR_MEMORY, "out of memory: an evaluator");
    gpu_evaluator *base = &e->base;
    PLUGIN_TRY(gpu_evaluator_open(base, &painn_kind, model->name, options));
    if (options->halo) {
        base->halo = *options->halo;
        base->has_halo = 1;
        base->step.neighbors.ghost_pairs = GPU_GHOST_PAIRS_NONE;
    }
    e->step.numbers = options->precision == MLFF_BF16   ? PAINN_GPU_BFLOATS
                      : options->precision == MLFF_TF32 ? PAINN_GPU_HALVES
                                                        : PAINN_GPU_SPLIT_HALVES;
    cudaError_t error = painn_gpu_prepare_node(e->step.numbers, parameters->n_features);
    if (error == cudaErrorInvalidValue)
        PLUGIN_TRY(host.fail(MLFF_ERR_UNSUPPORTED,
                             "%s: %d features in float32 need more shared memory than the %d KB a block of this GPU has; use "
                             "precision tf32 or device cpu",
                             model->name, parameters->n_features, (int)(base->shared_bytes / 1024)));
    CUDA_TRY(error, "setting up the kernels");
    CUDA_TRY(painn_gpu_prepare_edge(e->step.numbers, parameters->n_features), "setting up the kernels");
    CUDA_TRY(painn_gpu_prepare_forces(parameters->n_features), "setting up the kernels");
    e->large_tiles = base->shared_bytes >= 200 * 1024;
    e->shared_table = base->shared_bytes >= painn_gpu_table_bytes(e->step.numbers);
    e->parameters = parameters;
    e->step.gpu = base->step;
    PLUGIN_TRY(gpu_evaluator_upload(base, pack_painn, &(packed_painn){described, &e->step}));
    base->step = e->step.gpu;
    base->atom_limit = INT32_MAX / PAINN_GPU_INTERVALS; // an atom and an interval share 32 bits
    for (int fused = PAINN_GPU_TWO_TILES; base->hopper && fused > 0; fused--)
        e->fused_tiles[fused] = painn_gpu_prepare_fused(&e->step, fused);
    PLUGIN_TRY(create_stages(e));
    *evaluator_out = base;
    e = NULL;
done:
    if (e) gpu_evaluator_destroy(&e->base);
    return status;
}

static const gpu_kernel kernels[] = {{"message_kernel", "forward/message"},
                                     {"update_kernel", "forward/update"},
                                     {"update_last_kernel", "forward/update"},
                                     {"wgmma_update_kernel", "forward/update"},
                                     {"wgmma_last_kernel", "forward/update"},
                                     {"fused_layers_kernel", "forward/message"}, // all layers, forward and backward
                                     {"message_short_kernel", "forward/message"},
                                     {"message_back_kernel", "backward/message"},
                                     {"message_back_short_kernel", "backward/message"},
                                     {"update_back_kernel", "backward/update"},
                                     {"wgmma_back_kernel", "backward/update"},
                                     {"forces_kernel", "backward/forces"},
                                     {"last_owned_kernel", "forward/neighbors"},
                                     {"last_neighbor_kernel", "forward/neighbors"},
                                     {"clear_ghosts_kernel", "forward/neighbors"},
                                     {"sums_kernel", "sums"},
                                     {"core_kernel", "sums"},
                                     {"set_edges", "train/gather"},
                                     {"begin", "train/gather"},
                                     {"gather", "train/gather"},
                                     {"loss", "train/loss"}, // and forces, and tangents of pairs
                                     {"element_errors", "train/loss"},
                                     {"message_tangent", "train/tangent"},
                                     {"message_back_tangent", "train/tangent"},
                                     {"embedding_gradient", "train/weight_gradient"},
                                     {"node_chain", "train/forward"}, // all products at atoms, forward and backward
                                     {"readout", "train/forward"},
                                     {"message_back", "train/backward"},
                                     {"message", "train/forward"},
                                     {"hidden_product", "train/forward"},
                                     {"message_product", "train/forward"},
                                     {"message_product_back", "train/backward"},
                                     {"norm_product", "train/forward"},
                                     {"update_product", "train/forward"},
                                     {"output_adjoint", "train/backward"},
                                     {"vector_product", "train/forward"},
                                     {"vector_product_back", "train/backward"},
                                     {0}};

extern const gpu_architecture painn_gpu_architecture;
const gpu_architecture painn_gpu_architecture = {
    .name = "painn",
    .model_bytes = sizeof(mlff_model),
    .parameters_bytes = sizeof(painn_parameters),
    .create = create,
    .create_trainer = painn_trainer_gpu_create,
    .kernels = kernels,
};
