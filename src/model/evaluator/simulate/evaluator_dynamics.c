// SPDX-License-Identifier: MIT
// evaluator_dynamics.c: dynamics with the forces of an evaluator, integrated on its device where that can.
#include <math.h>

#include "model/evaluator/evaluator.h"

static mlff_status evaluator_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &(mlff_results){.energies = energy, .forces = forces});
}

static mlff_status evaluator_virial(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &(mlff_results){.energies = energy, .forces = forces, .virials = virial});
}

// The forces of constant pressure come with the virial; own forces' virial is set by the caller.
static mlff_status use_virial(mlff_evaluator *evaluator, mlff_dynamics *dynamics, bool own_forces)
{
    const mlff_model *model = evaluator->model;
    if (!is_constant_pressure(dynamics->options.ensemble)) return MLFF_OK;
    if (!(mlff_model_outputs(model) & MLFF_OUTPUT_STRESS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "model '%s' has no stress, which constant pressure needs; use an ensemble of constant volume",
                         model->name);
    if (!own_forces) mlff_dynamics_virial_set(dynamics, evaluator_virial, evaluator);
    return MLFF_OK;
}

bool evaluator_can_integrate(const mlff_evaluator *evaluator, mlff_ensemble ensemble)
{
    const bool has_work = !is_constant_pressure(ensemble) || mlff_model_outputs(evaluator->model) & MLFF_OUTPUT_VIRIALS;
    return has_work && evaluator->interface->dynamics_create && evaluator->options.device.kind == MLFF_CUDA;
}

// Moves the integration to the evaluator's devices; where they cannot integrate, the host does, and a warning says why.
static mlff_status integrate_on_device(mlff_evaluator *evaluator, mlff_system *system, mlff_dynamics *dynamics)
{
    dynamics_resident resident;
    double energy;
    if (!evaluator_can_integrate(evaluator, dynamics->options.ensemble)) return MLFF_OK;
    // A device integrates without checks of the system; a call of the evaluator makes them.
    mlff_status status = evaluator_forces(evaluator, system, &energy, dynamics->new_forces);
    if (status != MLFF_OK) return status;
    status = evaluator->interface->dynamics_create(evaluator->self, &dynamics, 1, &resident);
    if (status == MLFF_OK) dynamics_set_resident(dynamics, &resident);
    if (status != MLFF_ERR_UNSUPPORTED) return status;
    mlff_warn("%s: the host integrates, with forces from the GPU", mlff_last_error());
    return MLFF_OK;
}

mlff_status dynamics_of_evaluator(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                  mlff_force_function forces, void *context, mlff_dynamics **dynamics_out)
{
    mlff_dynamics *dynamics = NULL;
    const mlff_model *model = evaluator->model;
    if (!(mlff_model_outputs(model) & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces, which dynamics needs; use another model", model->name);
    mlff_status status =
        mlff_dynamics_create(options, system, forces ? forces : evaluator_forces, forces ? context : evaluator, &dynamics);
    if (status == MLFF_OK) status = use_virial(evaluator, dynamics, forces != NULL);
    if (status == MLFF_OK && !forces) evaluator_warn_of_charge(evaluator, &system->charge, 1);
    if (status == MLFF_OK)
        *dynamics_out = dynamics;
    else
        mlff_dynamics_destroy(dynamics);
    return status;
}

void evaluator_warn_not_conservative(const mlff_evaluator *evaluator, const char *consequence)
{
    const mlff_model *model = evaluator->model;
    if (!model_is_conservative(model))
        mlff_warn("model '%s' predicts forces that are not the derivative of its energy: %s", model->name, consequence);
}

mlff_status mlff_dynamics_create_on(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                    mlff_force_function forces, void *context, mlff_dynamics **dynamics_out)
{
    mlff_status status = MLFF_OK;
    mlff_dynamics *dynamics = NULL;
    if (!evaluator || !dynamics_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_create_on: an evaluator and a place for the result are needed");
    MLFF_TRY(dynamics_of_evaluator(evaluator, options, system, forces, context, &dynamics));
    MLFF_TRY(integrate_on_device(evaluator, system, dynamics));
    evaluator_warn_not_conservative(evaluator, EVALUATOR_ENERGY_DRIFTS);
    *dynamics_out = dynamics;
    dynamics = NULL;
done:
    mlff_dynamics_destroy(dynamics);
    return status;
}

mlff_device mlff_dynamics_device(const mlff_dynamics *dynamics)
{
    const dynamics_resident *resident = &dynamics->resident;
    return resident->context ? (mlff_device){MLFF_CUDA, resident->gpu_index} : (mlff_device){.kind = MLFF_CPU};
}

// Assumptions: far above what float32 changes and below what two methods differ by; far above what float32 and TF32 change (1e-3 of the rms
// force). Two students of one teacher differ by less energy, and bf16 by more force.
#define OTHER_ENERGY 0.1   // eV/atom
#define OTHER_FORCES 0.005 // of the rms force

static void warn_of_other_forces(const mlff_dynamics *dynamics, const double *here, const char *model, const char *path)
{
    double difference = 0, sum = 0;
    for (size_t k = 0; k < 3 * (size_t)dynamics->system->n_atoms; k++) {
        difference += (here[k] - dynamics->forces[k]) * (here[k] - dynamics->forces[k]);
        sum += here[k] * here[k];
    }
    if (difference > OTHER_FORCES * OTHER_FORCES * sum)
        mlff_warn(
            "%s: its forces, which the first step takes, differ from those of %s by %.3g %%: another model or another precision "
            "wrote it",
            path, model, 100 * sqrt(difference / sum));
}

mlff_status mlff_dynamics_restore_on(mlff_evaluator *evaluator, mlff_dynamics *dynamics, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_batch batch;
    int32_t first_atom[2];
    double here, *forces = NULL;
    if (!evaluator) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_restore_on: an evaluator is needed");
    MLFF_TRY(mlff_dynamics_restore(dynamics, path));
    if (!dynamics->has_forces) return MLFF_OK; // the first step does not take the file's forces
    if (!(forces = base_alloc(3 * (size_t)dynamics->system->n_atoms, sizeof *forces, "forces"))) return MLFF_ERR_MEMORY;
    mlff_batch_from_system(dynamics->system, first_atom, &batch);
    MLFF_TRY(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &here, .forces = forces}));
    if (!(fabs(here - dynamics->potential_energy) <= OTHER_ENERGY * dynamics->system->n_atoms)) {
        dynamics->has_forces = false;
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "%s: was written by a run of another model: its energy is %.3f eV, that of %s %.3f eV; use that "
                  "model, or begin from a frame",
                  path, dynamics->potential_energy, evaluator->model->name, here);
    }
    warn_of_other_forces(dynamics, forces, evaluator->model->name, path);
done:
    base_free(forces);
    return status;
}
