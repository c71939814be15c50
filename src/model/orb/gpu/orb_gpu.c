// SPDX-License-Identifier: MIT
// orb_gpu.c: Orb on one GPU: constants, memory and plan of a step. Calls, neighbor rows, memory and graphs are in src/gpu/evaluator.
#include "orb_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/evaluator/gpu_registry.h"

typedef struct orb_evaluator {
    gpu_evaluator base;  // first: what the plugin returns
    orb_gpu_step step;   // its gpu is base.step
    orb_gpu_model model; // on the host
    bool warned_of_ties;
} orb_evaluator;

// ---- a step ---------------------------------------------------------------------------------------------------------

static size_t arena(gpu_evaluator *base, const gpu_step *gpu, void *at)
{
    orb_gpu_step step = ((const orb_evaluator *)base)->step;
    step.gpu = *gpu;
    const size_t bytes = orb_gpu_arena(&step, at);
    if (at) ((orb_evaluator *)base)->step = step;
    return bytes;
}

static void plan(const gpu_evaluator *base, gpu_plan *plan)
{
    plan->tile = base->forced.tile; // kind of the products' tiles, −1: by size
}

static mlff_status enqueue_rows(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    (void)base;
    CUDA_TRY(gpu_launch_neighbors(gpu, plan, stream), "launching the neighbor search");
done:
    return status;
}

static mlff_status enqueue_model(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    orb_gpu_step step = ((const orb_evaluator *)base)->step;
    step.gpu = *gpu;
    CUDA_TRY(
        orb_gpu_enqueue(&step, plan, base->hopper, plan->tile, (orb_gpu_side){base->side, base->forked, base->joined}, stream),
        "launching the model");
done:
    return status;
}

static void read_stamps(const gpu_evaluator *base, int forces, double *time_ns)
{
    const uint64_t *t = base->io.stamps;
    const orb_gpu_step *step = &((const orb_evaluator *)base)->step;
    const int n = step->conservative && !forces ? step->stamp_heads + 2 : base->n_stamps; // without forces: up to the heads
    memset(time_ns, 0, sizeof *time_ns * (size_t)(base->n_stamps - 1));
    for (int stage = 0; stage + 1 < n; stage++)
        time_ns[stage] = t[stage + 1] > t[stage] ? (double)(t[stage + 1] - t[stage]) : 0.0;
}

// Warns once of neighbors that the model's limit chooses arbitrarily.
static void read_report(gpu_evaluator *base, const gpu_report *report, int n_atoms)
{
    orb_evaluator *e = (orb_evaluator *)base;
    if (report->n_ties == 0 || e->warned_of_ties) return;
    e->warned_of_ties = true;
    host.warn(ORB_TIES_WARNING, report->n_ties, n_atoms, e->step.cap);
}

static const int tiles[] = {0,
                            1,
                            2,
                            3,
                            4,
                            ORB_GPU_TILES_NETWORK,
                            ORB_GPU_TILES_BY_SIZE,
                            ORB_GPU_TILES_CLUSTERS_OF_4,
                            ORB_GPU_TILES_CLUSTERS_OF_8,
                            ORB_GPU_TILES_ROWS,
                            ORB_GPU_TILES_ROWS + 1,
                            ORB_GPU_TILES_ROWS + 2,
                            ORB_GPU_TILES_ROWS + 3,
                            -1};
static const gpu_kind orb_kind = {.tiles = tiles,
                                  .arena = arena,
                                  .plan = plan,
                                  .enqueue_rows = enqueue_rows,
                                  .enqueue_model = enqueue_model,
                                  .read_stamps = read_stamps,
                                  .read_report = read_report};

// ---- making one -----------------------------------------------------------------------------------------------------

static mlff_status create_stages(gpu_evaluator *base, int n_layers, bool conservative)
{
    mlff_stage stages[ORB_GPU_STAMP_LAYERS + 4 * ORB_GPU_MAX_LAYERS + 3] = {
        {"transfer", "forward", -1, "input check, wrapping"},
        {"neighbors", "forward", -1, "geometry"},
        {"radial", "forward", -1, "nearest neighbors of each atom, incoming edges"},
        {"encoder", "forward", -1, "inputs of edges"}};
    int n = ORB_GPU_STAMP_LAYERS;
    for (int t = 0; t < n_layers; t++) {
        stages[n++] = (mlff_stage){"message", "forward", t, ""};
        stages[n++] = (mlff_stage){"update", "forward", t, "sums of messages"};
    }
    stages[n++] = (mlff_stage){"readout", "forward", -1, conservative ? "the energy backward" : "forces, stress, transfer"};
    for (int t = n_layers - 1; t >= 0 && conservative; t--) {
        stages[n++] = (mlff_stage){"update", "backward", t, ""};
        stages[n++] = (mlff_stage){"message", "backward", t, "sums of projections"};
    }
    if (conservative) {
        stages[n++] = (mlff_stage){"encoder", "backward", -1, "gradients of edges"};
        stages[n++] = (mlff_stage){"readout", "backward", -1, "forces, stress, transfer"};
    }
    return gpu_evaluator_set_stages(base, stages, n, n + 1);
}

// Context of gpu_evaluator_upload.
typedef struct packed_orb {
    const device_model *described;
    orb_evaluator *evaluator;
    bool failed;
} packed_orb;

static void pack_orb(void *context, void *block, size_t *bytes, const void *base)
{
    packed_orb *p = context;
    if (!orb_gpu_pack(p->described->parameters, p->described->model, block, bytes, base, &p->evaluator->step,
                      &p->evaluator->model))
        p->failed = true;
}

static mlff_status create(const device_model *described, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out)
{
    mlff_status status = MLFF_OK;
    const mlff_model *model = described->model;
    const orb_parameters *parameters = described->parameters;
    const char *lacks = orb_gpu_lacks(parameters);
    if (lacks) return host.fail(MLFF_ERR_UNSUPPORTED, "%s: on the GPU an Orb has %s; use device cpu", model->name, lacks);
    orb_evaluator *e = calloc(1, sizeof *e);
    if (!e) return host.fail(MLFF_ERR_MEMORY, "out of memory: an evaluator");
    gpu_evaluator *base = &e->base;
    packed_orb packed = {described, e, false};
    PLUGIN_TRY(gpu_evaluator_open(base, &orb_kind, model->name, options));
    e->step.gpu = base->step;
    e->step.numbers = options->precision == MLFF_TF32   ? GPU_NUMBER_TF32
                      : options->precision == MLFF_BF16 ? GPU_NUMBER_BF16
                                                        : GPU_NUMBER_FLOAT32;
    PLUGIN_TRY(gpu_evaluator_upload(base, pack_orb, &packed));
    if (packed.failed) {
        status = host.fail(MLFF_ERR_MEMORY, "out of memory: weights of %s", model->name);
        goto done;
    }
    base->step = e->step.gpu;
    base->reads_charges = parameters->conditioned;
    PLUGIN_TRY(create_stages(base, parameters->n_layers, parameters->conservative));
    CUDA_TRY(orb_gpu_prepare_products(base->hopper), "setting up the kernels");
    CUDA_TRY(orb_gpu_prepare_updates(base->hopper), "setting up the kernels");
    if (base->hopper) CUDA_TRY(orb_gpu_prepare_networks(), "setting up the kernels");
    if (base->hopper) CUDA_TRY(orb_gpu_prepare_layers(), "setting up the kernels");
    if (base->hopper) CUDA_TRY(orb_gpu_prepare_node_layers(), "setting up the kernels");
    if (base->hopper) CUDA_TRY(orb_gpu_prepare_few_heads(), "setting up the kernels");
    CUDA_TRY(gpu_prepare_dense(base->hopper), "setting up the kernels");
    if (parameters->conservative) CUDA_TRY(orb_gpu_prepare_back(base->hopper), "setting up the kernels");
    *evaluator_out = base;
    e = NULL;
done:
    if (e) gpu_evaluator_destroy(&e->base);
    return status;
}

static const gpu_kernel kernels[] = {{"orb_graph_few_kernel", "forward/radial"},
                                     {"orb_count_kernel", "forward/radial"},
                                     {"orb_scan_kernel", "forward/radial"},
                                     {"orb_edge_kernel", "forward/radial"},
                                     {"orb_incoming_kernel", "forward/radial"},
                                     {"orb_incoming_sort_kernel", "forward/radial"},
                                     {"orb_input_kernel", "forward/encoder"},
                                     {"orb_node_kernel", "forward/encoder"},
                                     {"orb_edge_dense_kernel", "forward/message"}, // and of the encoder
                                     {"orb_gather_kernel", "forward/message"},
                                     {"orb_edge_update_kernel", "forward/message"},
                                     {"orb_network_kernel", "forward/message"}, // and of the encoder
                                     {"orb_layers_kernel", "forward/message"},  // and of the updates
                                     {"attention_sum_kernel", "forward/update"},
                                     {"orb_node_dense_kernel", "forward/update"},
                                     {"orb_node_update_kernel", "forward/update"},
                                     {"orb_node_network_kernel", "forward/update"},
                                     {"orb_node_layers_kernel", "forward/update"},
                                     {"dense_kernel", "forward/readout"},
                                     {"orb_pool_kernel", "forward/readout"},
                                     {"orb_raw_force_kernel", "forward/readout"},
                                     {"orb_balance_kernel", "forward/readout"},
                                     {"orb_force_kernel", "forward/readout"},
                                     {"orb_heads_few_kernel", "forward/readout"},
                                     {"orb_error_kernel", "forward/readout"},
                                     {"orb_system_kernel", "forward/readout"},
                                     {"orb_repulsion_kernel", "forward/readout"},
                                     {"orb_condition_kernel", "forward/encoder"},
                                     {"orb_readout_back_kernel", "forward/readout"},
                                     {"norm_back_kernel", "backward/update"}, // and of the encoder
                                     {"orb_node_back_kernel", "backward/update"},
                                     {"attention_back_kernel", "backward/message"},
                                     {"orb_edge_back_kernel", "backward/message"}, // and of the encoder
                                     {"segment_sum_kernel", "backward/message"},
                                     {"orb_gradient_kernel", "backward/encoder"},
                                     {"orb_gathered_force_kernel", "backward/readout"},
                                     {"orb_energy_kernel", "backward/readout"},
                                     {0}};

#define ORB_ARCHITECTURE(symbol, title)                                                                                          \
    extern const gpu_architecture symbol;                                                                                        \
    const gpu_architecture symbol = {.name = title,                                                                              \
                                     .model_bytes = sizeof(mlff_model),                                                          \
                                     .parameters_bytes = sizeof(orb_parameters),                                                 \
                                     .create = create,                                                                           \
                                     .kernels = kernels}
ORB_ARCHITECTURE(orb_v2_gpu_architecture, "orb-v2");
ORB_ARCHITECTURE(orb_v3_direct_gpu_architecture, "orb-v3-direct");
ORB_ARCHITECTURE(orb_v3_conservative_gpu_architecture, "orb-v3-conservative");
