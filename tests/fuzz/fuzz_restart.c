// SPDX-License-Identifier: MIT
// fuzz_restart.c: any bytes as a restart file of water: refused without a change of the run, or a state from which a step can be
// made and which reads back to the bit.
#include "atoms/atoms.h"
#include "fuzz/fuzz_file.h"

// A harmonic well of 1 eV/Å² around the origin.
static mlff_status well(void *context, const mlff_system *system, double *energy, double *forces)
{
    (void)context;
    *energy = 0;
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        *energy += 0.5 * system->positions[k] * system->positions[k];
        forces[k] = -system->positions[k];
    }
    return MLFF_OK;
}

static mlff_dynamics *start(mlff_system *system)
{
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_dynamics *dynamics = NULL;
    fuzz_demand(mlff_dynamics_create(&options, system, well, NULL, &dynamics) == MLFF_OK, "a run can be created");
    return dynamics;
}

static void demand_same(const mlff_system *a, const mlff_system *b, const char *promise)
{
    const size_t bytes = 3 * (size_t)a->n_atoms * sizeof(double);
    fuzz_demand(memcmp(a->positions, b->positions, bytes) == 0 && memcmp(a->velocities, b->velocities, bytes) == 0, promise);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    mlff_system *system, *second;
    if (length > 1 << 16 || mlff_system_build("h2o", 0, 0, &system) != MLFF_OK) return 0;
    fuzz_demand(mlff_system_build("h2o", 0, 0, &second) == MLFF_OK, "water can be built");
    mlff_dynamics *dynamics = start(system), *again = start(second);
    const mlff_status status = mlff_dynamics_restore(dynamics, fuzz_file(bytes, length));
    fuzz_demand_text(status);
    if (status != MLFF_OK) {
        demand_same(system, second, "a restart file that is refused changes nothing");
    } else {
        mlff_dynamics_state state;
        if (mlff_dynamics_state_get(dynamics, &state) == MLFF_OK) fuzz_demand(state.step >= 0, "the step is not negative");
        fuzz_demand(mlff_dynamics_save(dynamics, FUZZ_SECOND) == MLFF_OK, "a state can be saved");
        fuzz_demand(mlff_dynamics_restore(again, FUZZ_SECOND) == MLFF_OK, "what is saved can be restored");
        demand_same(system, second, "a state reads back to the bit");
        fuzz_demand_text(mlff_dynamics_step(dynamics));
    }
    mlff_dynamics_destroy(dynamics);
    mlff_dynamics_destroy(again);
    mlff_system_destroy(system);
    mlff_system_destroy(second);
    return 0;
}
