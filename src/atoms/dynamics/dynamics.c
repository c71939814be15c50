// SPDX-License-Identifier: MIT
// dynamics.c: the steps of each ensemble, from pieces.
//
//   B  v += dt/2 F/m        A  x += dt v, half of it in Langevin        O, T, S, C, E: thermostats.c, barostats.c
//   NVE      B A B             Langevin     B A O A B (O: noise)         Bussi  B A B T (T: rescaling)
//   SCR      B S A B T (S: scales the cell)    Nosé-Hoover  C B A B C (C: chains)
//   MTK      C E B A B E C (E: strain rate; its B and A strain as well)
// A step that fails leaves the system where the step began.
#include "atoms/dynamics/dynamics.h"

#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/dynamics/domain_motion.h"

mlff_dynamics_options mlff_dynamics_options_default(void)
{
    return (mlff_dynamics_options){.struct_size = sizeof(mlff_dynamics_options),
                                   .ensemble = MLFF_NVE,
                                   .timestep_fs = 0.5,
                                   .temperature_kelvin = 300.0,
                                   .friction_per_fs = 0.01,
                                   .thermostat_fs = 100.0,
                                   .barostat_fs = 1000.0,
                                   .compressibility = 72.1,
                                   .ramp_end_kelvin = 300.0};
}

static mlff_status check_bath_options(const mlff_dynamics_options *options)
{
    const bool thermal = options->ensemble > MLFF_LANGEVIN;
    if (thermal && !(options->temperature_kelvin > 0))
        return mlff_fail(MLFF_ERR_USAGE, "this thermostat needs a temperature above 0 K; use langevin to cool to 0 K");
    if (options->ramp_steps > 0 && !(options->ramp_end_kelvin >= (thermal ? 1e-3 : 0) && options->ramp_end_kelvin <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a ramp to %g K is out of range; give a temperature above 0", options->ramp_end_kelvin);
    if (thermal && !(options->thermostat_fs >= options->timestep_fs && options->thermostat_fs <= 1e12))
        return mlff_fail(MLFF_ERR_USAGE,
                         "a thermostat's time constant of %g fs is out of range; 50 to 1000 is usual, the timestep "
                         "the least",
                         options->thermostat_fs);
    if (!is_constant_pressure(options->ensemble)) return MLFF_OK;
    if (!(options->barostat_fs >= options->timestep_fs && options->barostat_fs <= 1e12))
        return mlff_fail(MLFF_ERR_USAGE,
                         "a barostat's time constant of %g fs is out of range; 500 to 5000 is usual, the timestep "
                         "the least",
                         options->barostat_fs);
    if (!(fabs(options->pressure) <= 1e3))
        return mlff_fail(MLFF_ERR_USAGE, "a pressure of %g eV/Å³ is out of range; give -1000 to 1000 (1 bar is 6.24e-7)",
                         options->pressure);
    if (!(options->compressibility > 0 && options->compressibility <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a compressibility of %g Å³/eV is out of range; that of water is 72.1",
                         options->compressibility);
    return MLFF_OK;
}

static mlff_status check_options(const mlff_dynamics_options *options)
{
    if (options->ensemble < MLFF_NVE || options->ensemble > MLFF_MTK)
        return mlff_fail(MLFF_ERR_USAGE, "ensemble %d is unknown; use one of mlff_ensemble", (int)options->ensemble);
    if (!(options->timestep_fs > 0 && options->timestep_fs <= 1e6))
        return mlff_fail(MLFF_ERR_USAGE, "a timestep of %g fs is out of range; 0.5 suits most molecules", options->timestep_fs);
    if (!(options->temperature_kelvin >= 0 && options->temperature_kelvin <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a temperature of %g K is out of range; give 0 or more", options->temperature_kelvin);
    if (!(options->friction_per_fs >= 0 && options->friction_per_fs <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a friction of %g per fs is out of range; 0.001 to 0.1 is usual",
                         options->friction_per_fs);
    if (options->ramp_steps < 0)
        return mlff_fail(MLFF_ERR_USAGE, "a ramp of %lld steps; 0 means none", (long long)options->ramp_steps);
    if (options->ensemble <= MLFF_LANGEVIN && options->ramp_steps == 0) return MLFF_OK;
    return check_bath_options(options);
}

// At constant pressure the cell is strained as a whole.
static mlff_status check_system(const mlff_dynamics_options *options, const mlff_system *system)
{
    if (!is_constant_pressure(options->ensemble)) return MLFF_OK;
    const double volume = mlff_system_volume(system);
    if (!system->periodic[0] || !system->periodic[1] || !system->periodic[2] || !(volume > 0))
        return mlff_fail(MLFF_ERR_VALUE, "constant pressure needs a cell that is periodic along three axes; use an ensemble of "
                                         "constant volume, or add the cell");
    for (int i = 0; i < system->n_atoms; i++)
        if (is_fixed(system, i))
            return mlff_fail(MLFF_ERR_VALUE,
                             "atom %d is fixed, which constant pressure does not allow; free it, or use an ensemble "
                             "of constant volume",
                             i);
    return MLFF_OK;
}

static mlff_status check_motion(const mlff_system *system)
{
    for (int i = 0; i < system->n_atoms; i++) {
        if (!(system->masses[i] > 0 && isfinite(system->masses[i])))
            return mlff_fail(MLFF_ERR_VALUE, "atom %d has a mass of %g amu; set its mass or its species", i, system->masses[i]);
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            if (!isfinite(system->velocities[k]))
                return mlff_fail(MLFF_ERR_VALUE, "atom %d has a velocity of %g Å/fs; correct it", i, system->velocities[k]);
            if (!(fabs(system->positions[k]) <= FAR_AWAY))
                return mlff_fail(MLFF_ERR_VALUE, "atom %d has a coordinate of %g Å; correct it", i, system->positions[k]);
        }
    }
    return MLFF_OK;
}

mlff_status mlff_dynamics_create(const mlff_dynamics_options *options, mlff_system *system, mlff_force_function forces,
                                 void *context, mlff_dynamics **dynamics_out)
{
    mlff_status status = MLFF_OK;
    mlff_dynamics *dynamics = NULL;
    mlff_dynamics_options wanted = mlff_dynamics_options_default();
    if (!system || !forces || !dynamics_out)
        return mlff_fail(MLFF_ERR_USAGE,
                         "mlff_dynamics_create: a system, a force function and a place for the result are needed");
    MLFF_TRY(base_take_options("mlff_dynamics_create", "mlff_dynamics_options", options, sizeof wanted, &wanted));
    MLFF_TRY(check_options(&wanted));
    MLFF_TRY(check_system(&wanted, system));
    MLFF_TRY(mlff_system_add_velocities(system));
    MLFF_TRY(mlff_system_add_masses(system));
    MLFF_TRY(check_motion(system));

    size_t n = 3 * (size_t)system->n_atoms;
    double **arrays[4];
    if (!(dynamics = base_alloc(1, sizeof *dynamics, "dynamics"))) MLFF_TRY(MLFF_ERR_MEMORY);
    arrays[0] = &dynamics->forces;
    arrays[1] = &dynamics->new_forces;
    arrays[2] = &dynamics->old_positions;
    arrays[3] = &dynamics->old_velocities;
    for (int k = 0; k < 4; k++)
        if (!(*arrays[k] = base_alloc(n, sizeof(double), "dynamics"))) MLFF_TRY(MLFF_ERR_MEMORY);
    atoms_drop_label_pairs(system);
    dynamics->options = wanted;
    dynamics->system = system;
    dynamics->function = forces;
    dynamics->context = context;
    for (int i = 0; i < system->n_atoms; i++)
        if (is_fixed(system, i)) memset(system->velocities + 3 * (size_t)i, 0, 3 * sizeof(double));
    // A thermostat that scales all velocities would feed the motion of the whole as well.
    if (wanted.ensemble > MLFF_LANGEVIN && dynamics_conserves_momentum(dynamics)) atoms_stop_drift(system);
    *dynamics_out = dynamics;
    dynamics = NULL;
done:
    mlff_dynamics_destroy(dynamics);
    return status;
}

void mlff_dynamics_destroy(mlff_dynamics *dynamics)
{
    if (!dynamics) return;
    if (dynamics->resident.context) dynamics->resident.destroy(dynamics->resident.context);
    base_free(dynamics->forces);
    base_free(dynamics->new_forces);
    base_free(dynamics->old_positions);
    base_free(dynamics->old_velocities);
    base_free(dynamics);
}

// ---- forces -----------------------------------------------------------------------------------------------------------

static mlff_status unstable(const mlff_dynamics *dynamics, int64_t step, const char *what, int atom, double value,
                            const char *unit)
{
    char whose[32] = "";
    if (atom >= 0) snprintf(whose, sizeof whose, " of atom %d", atom);
    return mlff_fail(MLFF_ERR_UNSTABLE, "step %lld: the %s%s is %g %s; halve the timestep (now %g fs) or relax the start",
                     (long long)step, what, whose, value, unit, dynamics->options.timestep_fs);
}

mlff_status dynamics_check_positions(const mlff_dynamics *dynamics, int64_t step)
{
    const mlff_system *system = dynamics->system;
    for (size_t k = 0; k < 3 * (size_t)system->n_atoms; k++)
        if (!(fabs(system->positions[k]) <= FAR_AWAY))
            return unstable(dynamics, step, "position", (int)(k / 3), system->positions[k], "Å");
    return MLFF_OK;
}

mlff_status dynamics_check_forces(const mlff_dynamics *dynamics, int64_t step, double energy)
{
    for (size_t k = 0; k < 3 * (size_t)dynamics->system->n_atoms; k++)
        if (!isfinite(dynamics->new_forces[k]))
            return unstable(dynamics, step, "force", (int)(k / 3), dynamics->new_forces[k], "eV/Å");
    if (!isfinite(energy)) return unstable(dynamics, step, "energy", -1, energy, "eV");
    return MLFF_OK;
}

// Forces of the current positions, which step number `step` has led to.
static mlff_status compute_forces(mlff_dynamics *dynamics, int64_t step, double *energy_out)
{
    const mlff_system *system = dynamics->system;
    double energy = NAN, virial[9] = {0};
    mlff_status status = dynamics_check_positions(dynamics, step);
    if (status != MLFF_OK) return status;
    if (dynamics->virial_function)
        status = dynamics->virial_function(dynamics->context, system, &energy, dynamics->new_forces, virial);
    else if (is_constant_pressure(dynamics->options.ensemble))
        return mlff_fail(MLFF_ERR_USAGE,
                         "constant pressure needs the virial; call mlff_dynamics_virial_set before the first step");
    else
        status = dynamics->function(dynamics->context, system, &energy, dynamics->new_forces);
    if (status == MLFF_OK) status = dynamics_check_forces(dynamics, step, energy);
    for (int c = 0; c < 3; c++) dynamics->new_virial[c] = virial[4 * c];
    *energy_out = energy;
    return status;
}

void mlff_dynamics_virial_set(mlff_dynamics *dynamics, mlff_virial_function function, void *context)
{
    dynamics->virial_function = function;
    dynamics->context = context;
}

static void take_forces(mlff_dynamics *dynamics, double energy)
{
    double *forces = dynamics->new_forces;
    dynamics->new_forces = dynamics->forces;
    dynamics->forces = forces;
    dynamics->potential_energy = energy;
    memcpy(dynamics->virial, dynamics->new_virial, sizeof dynamics->virial);
    dynamics->has_forces = true;
}

// ---- where a step begins ------------------------------------------------------------------------------------------------

void dynamics_save_place(mlff_dynamics *dynamics)
{
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    dynamics_place *place = &dynamics->before;
    memcpy(dynamics->old_positions, dynamics->system->positions, bytes);
    memcpy(dynamics->old_velocities, dynamics->system->velocities, bytes);
    *place = (dynamics_place){.potential_energy = dynamics->potential_energy,
                              .time_fs = dynamics->time_fs,
                              .bath = dynamics->bath,
                              .step = dynamics->step};
    memcpy(place->virial, dynamics->virial, sizeof place->virial);
    memcpy(place->cell, dynamics->system->cell, sizeof place->cell);
}

// But for the forces, which are the caller's to restore.
void dynamics_go_back(mlff_dynamics *dynamics)
{
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    const dynamics_place *place = &dynamics->before;
    memcpy(dynamics->system->positions, dynamics->old_positions, bytes);
    memcpy(dynamics->system->velocities, dynamics->old_velocities, bytes);
    memcpy(dynamics->system->cell, place->cell, sizeof place->cell);
    memcpy(dynamics->virial, place->virial, sizeof place->virial);
    dynamics->potential_energy = place->potential_energy;
    dynamics->bath = place->bath;
    dynamics->time_fs = place->time_fs;
    dynamics->step = place->step;
    dynamics->placed = false;
}

static mlff_status ensure_forces(mlff_dynamics *dynamics)
{
    if (dynamics->has_forces) return MLFF_OK;
    if (dynamics->resident.context) return dynamics_resident_fetch(dynamics);
    double energy;
    mlff_status status = compute_forces(dynamics, dynamics->step, &energy);
    if (status == MLFF_OK) take_forces(dynamics, energy);
    return status;
}

// ---- the pieces of a step -----------------------------------------------------------------------------------------------

static void kick(mlff_system *system, const double *forces, double time_fs)
{
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        double scale = time_fs * inverse_mass(system, i);
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) system->velocities[k] += scale * forces[k];
    }
}

static void drift(mlff_system *system, double time_fs)
{
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) system->positions[k] += time_fs * system->velocities[k];
    }
}

void dynamics_step_begin(mlff_dynamics *dynamics)
{
    mlff_system *system = dynamics->system;
    const mlff_dynamics_options *options = &dynamics->options;
    const double dt = options->timestep_fs, temperature = bath_temperature(options, dynamics->step);
    dynamics_guard_begin(dynamics);
    dynamics_save_place(dynamics);
    if (bath_has_chains(options->ensemble)) dynamics_chains(dynamics, temperature);
    if (options->ensemble == MLFF_MTK) {
        dynamics_mtk_strain_rate(dynamics, temperature);
        dynamics_mtk_kick(dynamics);
        dynamics_mtk_drift(dynamics);
        return;
    }
    if (options->ensemble == MLFF_SCR) dynamics_scr_choose(dynamics);
    kick(system, dynamics->forces, 0.5 * dt);
    if (options->ensemble == MLFF_SCR) dynamics_scr(dynamics);
    if (options->ensemble != MLFF_LANGEVIN) {
        drift(system, dt);
        return;
    }
    drift(system, 0.5 * dt);
    dynamics->bath.heat += dynamics_langevin(system, options, dynamics->step);
    drift(system, 0.5 * dt);
}

// From the second kick on.
static void end_step(mlff_dynamics *dynamics)
{
    const mlff_dynamics_options *options = &dynamics->options;
    const double now = bath_temperature(options, dynamics->step);
    if (options->ensemble == MLFF_SCR) dynamics_scr_finish(dynamics);
    if (options->ensemble == MLFF_MTK) {
        dynamics_mtk_kick(dynamics);
        dynamics_mtk_strain_rate(dynamics, now);
    } else {
        kick(dynamics->system, dynamics->forces, 0.5 * options->timestep_fs);
    }
    if (bath_has_chains(options->ensemble)) dynamics_chains(dynamics, now);
    if (bath_has_rescaling(options->ensemble)) dynamics_bussi(dynamics);
    bath_end_step(options, dynamics_n_degrees(dynamics), mlff_system_volume(dynamics->system), dynamics->step, &dynamics->bath);
    dynamics->step++;
}

mlff_status dynamics_step_end(mlff_dynamics *dynamics, mlff_status computed, double energy)
{
    if (computed != MLFF_OK) {
        dynamics_go_back(dynamics);
        return computed;
    }
    take_forces(dynamics, energy);
    end_step(dynamics);
    const mlff_status status = dynamics_guard_check(dynamics);
    if (status != MLFF_OK) {
        take_forces(dynamics, 0); // the old ones, which the exchange of arrays kept
        dynamics_go_back(dynamics);
        return status;
    }
    dynamics->time_fs += dynamics->options.timestep_fs;
    return MLFF_OK;
}

mlff_status mlff_dynamics_step(mlff_dynamics *dynamics)
{
    if (!dynamics) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_step: no dynamics");
    if (dynamics->resident.context) return dynamics_resident_run(dynamics, 1, NULL);
    mlff_status status = ensure_forces(dynamics);
    if (status != MLFF_OK) return status;
    double energy;
    dynamics_step_begin(dynamics);
    status = compute_forces(dynamics, dynamics->step + 1, &energy);
    return dynamics_step_end(dynamics, status, energy);
}

mlff_status mlff_dynamics_run(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns)
{
    mlff_status status = MLFF_OK;
    if (!dynamics) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_run: no dynamics");
    if (n_steps < 0) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_run: %lld steps; expected 0 or more", (long long)n_steps);
    if (n_steps > 0 && dynamics->resident.context) return dynamics_resident_run(dynamics, n_steps, times_ns);
    for (int64_t k = 0; k < n_steps; k++) {
        int64_t start = times_ns ? base_clock_ns() : 0;
        MLFF_TRY(mlff_dynamics_step(dynamics));
        if (times_ns) times_ns[k] = (double)(base_clock_ns() - start);
    }
done:
    return status;
}

// ---- what can be seen ---------------------------------------------------------------------------------------------------

mlff_status mlff_dynamics_state_get(mlff_dynamics *dynamics, mlff_dynamics_state *state_out)
{
    if (!dynamics || !state_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_state_get: no dynamics or no place for the state");
    mlff_status status = ensure_forces(dynamics);
    if (status != MLFF_OK) return status;
    mlff_dynamics_state state = {.step = dynamics->step,
                                 .time_fs = dynamics->time_fs,
                                 .potential_energy = dynamics->potential_energy,
                                 .forces = dynamics->forces,
                                 .conserved_energy = dynamics_conserved_energy(dynamics),
                                 .pressure = dynamics_pressure(dynamics),
                                 .volume = mlff_system_volume(dynamics->system)};
    dynamics_kinetic_state(dynamics, &state.kinetic_energy, &state.temperature_kelvin);
    *state_out = state;
    return MLFF_OK;
}
