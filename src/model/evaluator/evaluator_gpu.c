// SPDX-License-Identifier: MIT
// evaluator_gpu.c: evaluator and dynamics on a GPU: the plugin does the whole step.
#include <math.h>
#include <string.h>

#include "assemble.h"
#include "device/device.h"
#include "evaluator.h"

typedef struct plugin_evaluator {
    const mlff_model *model;
    const device_plugin *plugin;
    gpu_evaluator *evaluator; // the plugin's
    int device_index;
} plugin_evaluator;

static void destroy(void *self)
{
    plugin_evaluator *e = self;
    if (!e) return;
    if (e->evaluator) e->plugin->destroy(e->evaluator);
    base_free(e);
}

static mlff_status create(const mlff_model *model, mlff_evaluator_options *options, const int *members, int n_members,
                          void **self_out)
{
    mlff_status status = MLFF_OK;
    const model_architecture *architecture = model->architecture;
    plugin_evaluator *e = NULL;
    if (!(e = base_alloc(1, sizeof *e, "an evaluator"))) return MLFF_ERR_MEMORY;
    e->model = model;
    e->device_index = options->device.index;
    MLFF_TRY(device_plugin_get(&e->plugin));
    const device_model described = {.architecture = architecture->name,
                                    .title = architecture->title,
                                    .model = model,
                                    .model_bytes = sizeof *model,
                                    .parameters = model->parameters,
                                    .parameters_bytes = architecture->parameters_bytes,
                                    .members = members,
                                    .n_members = n_members};
    MLFF_TRY(e->plugin->evaluator_create(&described, options, &e->evaluator));
    *self_out = e;
    e = NULL;
done:
    destroy(e);
    return status;
}

// ---- a call -------------------------------------------------------------------------------------------------------

static mlff_status prepare(void *self, const mlff_batch *batch, const mlff_results *results)
{
    (void)self, (void)batch, (void)results; // the plugin prepares in compute
    return MLFF_OK;
}

// Results in host memory are checked here; in device memory they are the caller's to check.
static mlff_status check_finite(const mlff_batch *batch, const mlff_results *results)
{
    if (batch->location != MLFF_HOST || results->location != MLFF_HOST) return MLFF_OK;
    const size_t n_systems = (size_t)batch->n_systems, n_atoms = (size_t)batch->first_atom[n_systems];
    double sum = assemble_zero_if_finite(results->energies, n_systems) + assemble_zero_if_finite(results->forces, 3 * n_atoms) +
                 assemble_zero_if_finite(results->atom_energies, n_atoms) +
                 assemble_zero_if_finite(results->virials, 9 * n_systems);
    for (size_t s = 0; results->stresses && s < n_systems; s++)
        if (assemble_has_stress(batch, (int)s)) sum += assemble_zero_if_finite(results->stresses + 6 * s, 6);
    return sum == 0.0
               ? MLFF_OK
               : mlff_fail(MLFF_ERR_VALUE,
                           "energies, forces or stresses are not finite: atoms too close, or activations beyond the range of the "
                           "GPU's kernels; look at the structure, try device cpu");
}

static mlff_status compute(void *self, const mlff_batch *batch, const mlff_results *results)
{
    plugin_evaluator *e = self;
    mlff_status status = e->plugin->compute(e->evaluator, batch, results);
    return status == MLFF_OK ? check_finite(batch, results) : status;
}

static void select_member(void *self, int member)
{
    plugin_evaluator *e = self;
    e->plugin->select_member(e->evaluator, member);
}

// ---- stages and information -----------------------------------------------------------------------------------------

static const mlff_stage *stages(const void *self, int *n_out)
{
    const plugin_evaluator *e = self;
    return e->plugin->stages(e->evaluator, n_out);
}

static mlff_status stage_clock_set(void *self, int on)
{
    plugin_evaluator *e = self;
    return e->plugin->stage_clock_set(e->evaluator, on);
}

static void stage_times(const void *self, double *time_ns)
{
    const plugin_evaluator *e = self;
    e->plugin->stage_times(e->evaluator, time_ns);
}

static const char *kernel_stage(const void *self, const char *kernel)
{
    const plugin_evaluator *e = self;
    return e->plugin->kernel_stage(e->evaluator, kernel);
}

static void info(const void *self, mlff_evaluator_info *info_out)
{
    const plugin_evaluator *e = self;
    e->plugin->evaluator_info(e->evaluator, info_out);
}

// ---- dynamics -------------------------------------------------------------------------------------------------------

// The plugin's object takes its start when it is created; a restart creates a new one.
typedef struct plugin_dynamics {
    const device_plugin *plugin;
    gpu_evaluator *evaluator;
    gpu_dynamics *dynamics;
} plugin_dynamics;

static mlff_status dynamics_put(void *context, mlff_dynamics *const *dynamics, int n)
{
    plugin_dynamics *d = context;
    if (d->dynamics) d->plugin->dynamics_destroy(d->dynamics);
    d->dynamics = NULL;
    gpu_dynamics_start *starts = base_alloc((size_t)n, sizeof *starts, "dynamics");
    if (!starts) return MLFF_ERR_MEMORY;
    for (int k = 0; k < n; k++)
        starts[k] = (gpu_dynamics_start){.system = dynamics[k]->system,
                                         .options = &dynamics[k]->options,
                                         .bath = &dynamics[k]->bath,
                                         .n_degrees = dynamics_n_degrees(dynamics[k]),
                                         .step = dynamics[k]->step};
    const mlff_status status = d->plugin->dynamics_create(d->evaluator, starts, n, &d->dynamics);
    base_free(starts);
    return status;
}

static mlff_status dynamics_run(void *context, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out)
{
    plugin_dynamics *d = context;
    return d->plugin->dynamics_run(d->dynamics, n_steps, times_ns, n_done_out, failed_out);
}

static void dynamics_get(void *context, int index, mlff_dynamics *dynamics)
{
    plugin_dynamics *d = context;
    gpu_dynamics_state state;
    d->plugin->dynamics_get(d->dynamics, index, &state);
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    memcpy(dynamics->system->positions, state.positions, bytes);
    memcpy(dynamics->system->velocities, state.velocities, bytes);
    memcpy(dynamics->forces, state.forces, bytes);
    dynamics->potential_energy = state.potential_energy;
    dynamics->bath = *state.bath;
    if (state.cell) memcpy(dynamics->system->cell, state.cell, sizeof dynamics->system->cell);
    for (int c = 0; c < 3 && state.virial; c++) dynamics->virial[c] = state.virial[4 * c];
}

static void dynamics_destroy(void *context)
{
    plugin_dynamics *d = context;
    if (d->dynamics) d->plugin->dynamics_destroy(d->dynamics);
    base_free(d);
}

static mlff_status dynamics_create(void *self, mlff_dynamics *const *dynamics, int n, dynamics_resident *resident_out)
{
    plugin_evaluator *e = self;
    plugin_dynamics *d = base_alloc(1, sizeof *d, "dynamics");
    if (!d) return MLFF_ERR_MEMORY;
    *d = (plugin_dynamics){.plugin = e->plugin, .evaluator = e->evaluator};
    mlff_status status = dynamics_put(d, dynamics, n);
    if (status != MLFF_OK) {
        dynamics_destroy(d);
        return status;
    }
    *resident_out = (dynamics_resident){.context = d,
                                        .gpu_index = e->device_index,
                                        .put = dynamics_put,
                                        .run = dynamics_run,
                                        .get = dynamics_get,
                                        .destroy = dynamics_destroy};
    return MLFF_OK;
}

const evaluator_interface gpu_evaluator_interface = {
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .compute = compute,
    .select_member = select_member,
    .stages = stages,
    .stage_clock_set = stage_clock_set,
    .stage_times = stage_times,
    .kernel_stage = kernel_stage,
    .info = info,
    .dynamics_create = dynamics_create,
};
