// SPDX-License-Identifier: MIT
// lj_gpu.c: the Lennard-Jones evaluator on the GPU. It registers itself when the plugin of the tests is opened.
#include "lj_gpu.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/evaluator/gpu_registry.h"
#include "gpu/gpu_pack.h"
#include "model/model.h"

typedef struct lj_evaluator {
    gpu_evaluator base; // first: what the plugin returns
    lj_gpu_step step;
} lj_evaluator;

static size_t arena(gpu_evaluator *base, const gpu_step *gpu, void *at)
{
    lj_evaluator *e = (lj_evaluator *)base;
    gpu_packer p = {NULL, at, 0};
    const void *energy;
    gpu_pack(&p, 2 * sizeof(double) * (size_t)gpu->neighbors.atom_capacity, &energy);
    if (at) e->step.energy = (double *)(uintptr_t)energy;
    return p.at;
}

static void plan(const gpu_evaluator *base, gpu_plan *plan)
{
    (void)base, (void)plan;
}

static lj_gpu_step step_of(const gpu_evaluator *base, const gpu_step *gpu)
{
    lj_gpu_step step = ((const lj_evaluator *)base)->step;
    step.gpu = *gpu;
    return step;
}

static mlff_status enqueue_rows(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    (void)base;
    CUDA_TRY(gpu_launch_neighbors(gpu, plan, stream), "launching the neighbor search");
    if (gpu->neighbors.given_pairs == 2) CUDA_TRY(gpu_launch_reverse(gpu, plan, stream), "launching the transpose");
done:
    return status;
}

static mlff_status enqueue_model(gpu_evaluator *base, const gpu_step *gpu, const gpu_plan *plan, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    const lj_gpu_step step = step_of(base, gpu);
    const gpu_motion *motion = &gpu->motion;
    CUDA_TRY(lj_gpu_launch_pairs(&step, plan, stream), "launching the pairs");
    if (motion->n_atoms == 0 || motion->place + 1 == motion->n_steps) // energies of the last step of dynamics only
        CUDA_TRY(lj_gpu_launch_sums(&step, plan, stream), "launching the sums");
done:
    return status;
}

static void read_stamps(const gpu_evaluator *base, int forces, double *time_ns)
{
    const uint64_t *t = base->io.stamps;
    (void)forces;
    for (int stage = 0; stage < LJ_STAMP_END; stage++)
        time_ns[stage] = t[stage + 1] > t[stage] ? (double)(t[stage + 1] - t[stage]) : 0.0;
}

static const gpu_kind kind = {arena, plan, enqueue_rows, enqueue_model, read_stamps};

static void pack(void *context, void *block, size_t *bytes, const void *device)
{
    const mlff_model *model = ((void **)context)[0];
    gpu_neighbors *list = ((void **)context)[1];
    gpu_packer p = {block, device, 0};
    const void *at;
    double *offset = gpu_pack(&p, sizeof(double) * (MLFF_MAX_ATOMIC_NUMBER + 1), &at);
    list->offset = at;
    for (int z = 0; offset && z <= MLFF_MAX_ATOMIC_NUMBER; z++) offset[z] = model->known[z] ? model->offset[z] : NAN;
    *bytes = p.at;
}

static mlff_status create(const device_model *described, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out)
{
    mlff_status status = MLFF_OK;
    static const mlff_stage stages[LJ_STAMP_END] = {{"transfer", "forward", -1, "input check, wrapping"},
                                                    {"neighbors", "forward", -1, "geometry"},
                                                    {"pair_sum", "forward", -1, "and its derivative, forces"},
                                                    {"sums", "", -1, "energy, stress, transfer"}};
    lj_evaluator *e = calloc(1, sizeof *e);
    if (!e) return host.fail(MLFF_ERR_MEMORY, "out of memory: an evaluator");
    gpu_step *gpu = &e->base.step;
    e->step.parameters = *(const lj_parameters *)described->parameters;
    PLUGIN_TRY(gpu_evaluator_open(&e->base, &kind, described->model->name, options));
    gpu->length_unit = gpu->energy_unit = 1.0;
    gpu->neighbors.cutoff = e->step.parameters.cutoff;
    gpu->neighbors.inverse_unit = 1.0;
    gpu->neighbors.n_species = MLFF_MAX_ATOMIC_NUMBER + 1;
    void *context[2] = {(void *)(uintptr_t)described->model, &gpu->neighbors};
    PLUGIN_TRY(gpu_evaluator_upload(&e->base, pack, context));
    PLUGIN_TRY(gpu_evaluator_set_stages(&e->base, stages, LJ_STAMP_END, LJ_STAMP_END + 1));
    *evaluator_out = &e->base;
    e = NULL;
done:
    if (e) gpu_evaluator_destroy(&e->base);
    return status;
}

static const gpu_kernel kernels[] = {{"lj_pair_kernel", "forward/pair_sum"}, {"lj_sum_kernel", "sums"}, {0}};

static const gpu_architecture lj_gpu_architecture = {.name = "lennard-jones",
                                                     .model_bytes = sizeof(mlff_model),
                                                     .parameters_bytes = sizeof(lj_parameters),
                                                     .create = create,
                                                     .kernels = kernels};

__attribute__((constructor)) static void add_to_registry(void)
{
    (void)gpu_architecture_register(&lj_gpu_architecture);
}
