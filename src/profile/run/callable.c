// SPDX-License-Identifier: MIT
// callable.c: a callable of an evaluator; only mlff.h is used.

#include <string.h>

#include "profile/profile.h"

typedef struct evaluator_callable {
    mlff_evaluator *evaluator;
    char *name, *device, *architecture, *notes;
    double *forces; /* [n_atoms][3] where the caller wants them computed but not handed over */
    size_t forces_capacity;
} evaluator_callable;

static mlff_status evaluator_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                  double *stress)
{
    evaluator_callable *own = context;
    int32_t first_atom[2];
    double unwanted_energy = 0.0, unwanted_stress[6];
    mlff_batch batch;

    mlff_batch_from_system(frame, first_atom, &batch);
    if (!energy) energy = &unwanted_energy;
    mlff_results results = {.energies = energy};
    if (wanted & MLFF_FORCES) {
        if (!forces) {
            size_t n = 3 * (size_t)frame->n_atoms;
            mlff_status status = base_grow(&own->forces, &own->forces_capacity, n, sizeof *forces, "forces");
            if (status != MLFF_OK) return status;
            forces = own->forces;
        }
        results.forces = forces;
    }
    if (wanted & MLFF_STRESS) results.stresses = stress ? stress : unwanted_stress;
    return mlff_evaluator_compute(own->evaluator, &batch, &results);
}

static mlff_status evaluator_clock_set(void *context, int on)
{
    return mlff_evaluator_stage_clock_set(((evaluator_callable *)context)->evaluator, on);
}

static void evaluator_times(void *context, double *time_ns)
{
    mlff_evaluator_stage_times(((evaluator_callable *)context)->evaluator, time_ns);
}

static int evaluator_spans(void *context, mlff_stage_span *spans, int capacity)
{
    return mlff_evaluator_stage_spans(((evaluator_callable *)context)->evaluator, spans, capacity);
}

static const char *const ledger_names[] = {"evaluator (host)", "device: evaluator", "GPU pool reserved", "GPU pool allocated",
                                           "driver (whole GPU)"};

static void evaluator_ledgers(void *context, int64_t *bytes)
{
    mlff_evaluator_info info;
    mlff_evaluator_info_get(((evaluator_callable *)context)->evaluator, &info);
    bytes[0] = info.host_bytes;
    if (info.device.kind == MLFF_CPU) return;
    mlff_device_memory memory = {0};
    (void)mlff_device_memory_get(info.device, &memory); // zeros say nothing, and judge nothing
    bytes[1] = info.device_bytes;
    bytes[2] = memory.reserved;
    bytes[3] = memory.allocated;
    bytes[4] = memory.total - memory.free;
}

static void evaluator_counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    mlff_evaluator_info info;
    mlff_evaluator_info_get(((evaluator_callable *)context)->evaluator, &info);
    *n_pairs = info.n_pairs;
    *n_rebuilds = info.n_rebuilds;
    *n_growths = info.n_growths;
}

static void evaluator_destroy(void *context)
{
    evaluator_callable *own = context;
    base_free(own->name);
    base_free(own->device);
    base_free(own->architecture);
    base_free(own->notes);
    base_free(own->forces);
    base_free(own);
}

static const char *evaluator_advice(void *context, int stage)
{
    return mlff_evaluator_stage_advice(((evaluator_callable *)context)->evaluator, stage);
}

static int evaluator_work(void *context, int stage, const mlff_work_size *size, mlff_stage_work *work_out)
{
    return mlff_evaluator_stage_work(((evaluator_callable *)context)->evaluator, stage, size, work_out);
}

static const char *evaluator_kernel_stage(void *context, const char *kernel)
{
    return mlff_evaluator_kernel_stage(((evaluator_callable *)context)->evaluator, kernel);
}

static int evaluator_domains(void *context, mlff_domain_info *domains, int capacity)
{
    return mlff_evaluator_domains(((evaluator_callable *)context)->evaluator, domains, capacity);
}

static void evaluator_domain_times(void *context, int domain, double *time_ns)
{
    mlff_evaluator_domain_stage_times(((evaluator_callable *)context)->evaluator, domain, time_ns);
}

int callable_ceiling_threads(const mlff_callable *callable, ceiling_products *products_out)
{
    mlff_evaluator_info info;
    *products_out = CEILING_VECTORS;
    if (callable->step != evaluator_step) return 0;
    mlff_evaluator_info_get(((const evaluator_callable *)callable->context)->evaluator, &info);
    if (info.device.kind != MLFF_CPU || info.precision == MLFF_FLOAT64) return 0;
    if (strcmp(info.cpu_path, "amx") == 0)
        *products_out = info.precision == MLFF_BF16   ? CEILING_BF16_TILES
                        : info.precision == MLFF_TF32 ? CEILING_TF32_TILES
                                                      : CEILING_FLOAT32_TILES;
    else if (info.precision == MLFF_BF16)
        *products_out = CEILING_BF16_DOTS;
    return info.n_threads;
}

bool callable_is_float64(const mlff_callable *callable)
{
    mlff_evaluator_info info;
    if (callable->step != evaluator_step) return false;
    mlff_evaluator_info_get(((const evaluator_callable *)callable->context)->evaluator, &info);
    return info.device.kind == MLFF_CPU && info.precision == MLFF_FLOAT64;
}

static unsigned properties_of(const mlff_model *model)
{
    const unsigned outputs = mlff_model_outputs(model);
    return MLFF_ENERGY | (outputs & MLFF_OUTPUT_FORCES ? MLFF_FORCES : 0u) | (outputs & MLFF_OUTPUT_STRESS ? MLFF_STRESS : 0u);
}

mlff_status mlff_callable_from_evaluator(mlff_evaluator *evaluator, const mlff_model *model, mlff_callable *callable_out)
{
    if (!evaluator || !model || !callable_out) return mlff_fail(MLFF_ERR_USAGE, "callable: evaluator, model or output is NULL");

    mlff_status status = MLFF_OK;
    mlff_model_info model_info;
    mlff_evaluator_info info;
    char device[16];
    evaluator_callable *own = base_alloc(1, sizeof *own, "a callable");
    if (!own) return MLFF_ERR_MEMORY;

    mlff_model_info_get(model, &model_info);
    mlff_evaluator_info_get(evaluator, &info);
    mlff_device_text(info.device, device, sizeof device);
    own->evaluator = evaluator;
    char architecture[512], notes[256];
    const bool direct = !model_info.conservative && mlff_model_outputs(model) & MLFF_OUTPUT_FORCES;
    snprintf(notes, sizeof notes, "%s%s%s",
             model_info.trained ? "" : "untrained: random weights, the numbers of this force field mean nothing but its speed",
             model_info.trained || !direct ? "" : "; ",
             direct ? "this force field predicts forces that are not the derivative of its energy: NVE dynamics drifts" : "");
    snprintf(architecture, sizeof architecture, "%.400s, %lld parameters", model_info.description,
             (long long)model_info.n_parameters);
    MLFF_TRY(profile_set(&own->architecture, architecture));
    if (!model_info.trained || direct) MLFF_TRY(profile_set(&own->notes, notes));
    MLFF_TRY(profile_set(&own->name, model_info.name));
    MLFF_TRY(profile_set(&own->device, device));

    mlff_callable callable = {
        .struct_size = sizeof callable,
        .name = own->name,
        .device = own->device,
        .notes = own->notes,
        .context = own,
        .properties = properties_of(model),
        .step = evaluator_step,
        .stage_clock_set = evaluator_clock_set,
        .stage_times = evaluator_times,
        .stage_spans = evaluator_spans,
        .n_ledgers = info.device.kind == MLFF_CPU ? 1 : 5,
        .ledger_names = ledger_names,
        .ledgers = evaluator_ledgers,
        .counters = evaluator_counters,
        .destroy = evaluator_destroy,
        .stage_advice = evaluator_advice,
        .stage_work = evaluator_work,
        .kernel_stage = evaluator_kernel_stage,
        .domains = evaluator_domains,
        .domain_stage_times = evaluator_domain_times,
    };
    callable.stages = mlff_evaluator_stages(evaluator, &callable.n_stages);
    *callable_out = callable;
    own = NULL;
done:
    if (own) evaluator_destroy(own);
    return status;
}

static const char *precision_text(mlff_precision precision)
{
    static const char *const names[] = {"float32", "float32", "float64", "tf32", "bf16"};
    return names[precision];
}

mlff_status callable_describe(const mlff_callable *callable, environment *workload, environment *implementation)
{
    mlff_status status = MLFF_OK;
    char text[32];
    if (callable->step != evaluator_step) return environment_add(workload, "model", callable->name);
    const evaluator_callable *own = callable->context;
    mlff_evaluator_info info;
    mlff_evaluator_info_get(own->evaluator, &info);
    MLFF_TRY(environment_add(workload, "model", own->architecture));
    MLFF_TRY(environment_add(implementation, "precision", precision_text(info.precision)));
    if (info.device.kind != MLFF_CPU) return MLFF_OK;
    MLFF_TRY(environment_add(implementation, "cpu_path", info.cpu_path));
    snprintf(text, sizeof text, "%d", info.n_threads);
    MLFF_TRY(environment_add(implementation, "threads", text));
done:
    return status;
}

void mlff_callable_destroy(mlff_callable *callable)
{
    if (!callable) return;
    if (callable->destroy) callable->destroy(callable->context);
    *callable = (mlff_callable){0};
}
