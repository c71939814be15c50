// SPDX-License-Identifier: MIT
// resident.c: dynamics by an evaluator, with the atoms on its GPU where that can integrate them.
#include <math.h>

#include "atoms/dynamics.h"
#include "device/device.h"
#include "model/model.h"

// Atoms on a GPU. What the plugin's object cannot be told later (a restart), it is made anew for.
typedef struct resident {
    mlff_device device;
    const device_plugin *plugin;
    cuda_evaluator *evaluator;
    cuda_dynamics *dynamics;
} resident;

static mlff_status put(void *context, const mlff_dynamics *dynamics)
{
    resident *r = context;
    const mlff_dynamics_options *options = &dynamics->options;
    if (r->dynamics) r->plugin->dynamics_destroy(r->dynamics);
    r->dynamics = NULL;
    return r->plugin->dynamics_create(
        r->evaluator, dynamics->system,
        &(cuda_dynamics_options){.timestep_fs = options->timestep_fs,
                                 .temperature_kelvin = options->temperature_kelvin,
                                 .friction_per_fs = options->ensemble == MLFF_LANGEVIN ? options->friction_per_fs : 0.0,
                                 .seed = options->seed,
                                 .first_step = dynamics->step},
        &r->dynamics);
}

static mlff_status run(void *context, int64_t n_steps, double *times_ns, int64_t *n_done_out)
{
    resident *r = context;
    return r->plugin->dynamics_run(r->dynamics, n_steps, times_ns, n_done_out);
}

static mlff_status get(void *context, double *positions, double *velocities, double *forces, double *potential_energy,
                       double *bath_heat)
{
    resident *r = context;
    double energies[3];
    mlff_status status = r->plugin->dynamics_get(r->dynamics, positions, velocities, forces, energies);
    if (status != MLFF_OK) return status;
    *potential_energy = energies[0];
    *bath_heat = energies[2];
    return MLFF_OK;
}

static void destroy(void *context)
{
    resident *r = context;
    if (r->dynamics) r->plugin->dynamics_destroy(r->dynamics);
    base_free(r);
}

static mlff_status evaluator_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &(mlff_results){.energies = energy, .forces = forces});
}

mlff_status mlff_dynamics_create_on(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                    mlff_force_function forces, void *context, mlff_dynamics **dynamics_out)
{
    mlff_status status = MLFF_OK;
    mlff_dynamics *dynamics = NULL;
    resident *r = NULL;
    mlff_evaluator_info info;
    const device_plugin *plugin;
    if (!evaluator || !dynamics_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_create_on: an evaluator and a place for the result are needed");
    MLFF_TRY(mlff_dynamics_create(options, system, forces ? forces : evaluator_forces, forces ? context : evaluator, &dynamics));
    cuda_evaluator *cuda = evaluator_on_gpu(evaluator, &plugin);
    if (cuda) {
        // The plugin does not look at what it is given; a call of the evaluator does.
        double energy;
        MLFF_TRY(evaluator_forces(evaluator, system, &energy, dynamics->new_forces));
        if (!(r = base_alloc(1, sizeof *r, "dynamics"))) MLFF_TRY(MLFF_ERR_MEMORY);
        mlff_evaluator_info_get(evaluator, &info);
        *r = (resident){.device = info.device, .plugin = plugin, .evaluator = cuda};
        status = put(r, dynamics);
        if (status == MLFF_ERR_UNSUPPORTED) {
            mlff_warn("%s: the host makes the steps, with forces from the GPU", mlff_last_error());
            status = MLFF_OK;
        } else if (status == MLFF_OK) {
            dynamics_set_resident(dynamics, &(dynamics_resident){r, put, run, get, destroy});
            r = NULL;
        } else {
            goto done;
        }
    }
    *dynamics_out = dynamics;
    dynamics = NULL;
done:
    base_free(r);
    mlff_dynamics_destroy(dynamics);
    return status;
}

mlff_device mlff_dynamics_device(const mlff_dynamics *dynamics)
{
    return dynamics->resident.context ? ((const resident *)dynamics->resident.context)->device : (mlff_device){.kind = MLFF_CPU};
}
