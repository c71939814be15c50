// SPDX-License-Identifier: MIT
// dynamics.c: velocity Verlet and BAOAB Langevin dynamics.
//
//   B  v += dt/2 F/m        A  x += dt v (NVE), x += dt/2 v (Langevin)
//   O  v = c v + sqrt((1 - c²) k_B T / m) ξ,  c = exp(-friction dt),  ξ normal
//   NVE: B A B.  Langevin: B A O A B (Leimkuhler & Matthews, doi:10.1093/amrx/abs010).
// ξ of atom i and component c at step n is value n of stream 3 i + c, so it depends on nothing drawn before. A step that
// fails leaves the system where the step began.
#include "atoms/dynamics.h"

#include <math.h>
#include <string.h>

#include "atoms/atoms.h"

// An atom further out than this has been shot there.
#define FAR_AWAY 1e9

mlff_dynamics_options mlff_dynamics_options_default(void)
{
    return (mlff_dynamics_options){.struct_size = sizeof(mlff_dynamics_options),
                                   .ensemble = MLFF_NVE,
                                   .timestep_fs = 0.5,
                                   .temperature_kelvin = 300.0,
                                   .friction_per_fs = 0.01};
}

static bool is_fixed(const mlff_system *system, int i)
{
    return system->fixed && system->fixed[i];
}

// Å/fs² per eV/Å
static double inverse_mass(const mlff_system *system, int i)
{
    return 1.0 / (system->masses[i] * BASE_AMU_ANG2_FS2_EV);
}

static mlff_status check_options(const mlff_dynamics_options *options)
{
    if (options->ensemble != MLFF_NVE && options->ensemble != MLFF_LANGEVIN)
        return mlff_fail(MLFF_ERR_USAGE, "ensemble %d is unknown; use MLFF_NVE or MLFF_LANGEVIN", (int)options->ensemble);
    if (!(options->timestep_fs > 0 && options->timestep_fs <= 1e6))
        return mlff_fail(MLFF_ERR_USAGE, "a timestep of %g fs cannot be meant; 0.5 suits most molecules", options->timestep_fs);
    if (!(options->temperature_kelvin >= 0 && options->temperature_kelvin <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a temperature of %g K cannot be meant; give 0 or more", options->temperature_kelvin);
    if (!(options->friction_per_fs >= 0 && options->friction_per_fs <= 1e9))
        return mlff_fail(MLFF_ERR_USAGE, "a friction of %g per fs cannot be meant; 0.001 to 0.1 is usual",
                         options->friction_per_fs);
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
    dynamics->options = wanted;
    dynamics->system = system;
    dynamics->function = forces;
    dynamics->context = context;
    for (int i = 0; i < system->n_atoms; i++)
        if (is_fixed(system, i)) memset(system->velocities + 3 * (size_t)i, 0, 3 * sizeof(double));
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

// ---- energy and temperature -----------------------------------------------------------------------------------------------

// The temperature is that of 3 degrees of freedom of each free atom. Without a bath and with nothing fixed the motion of the
// center of mass never becomes heat: its 3 degrees and its energy are then left out, as mlff_system_thermalize does.
static void kinetic_state(const mlff_dynamics *dynamics, double *energy_out, double *temperature_out)
{
    const mlff_system *system = dynamics->system;
    double energy = 0, mass = 0, momentum[3] = {0};
    int n_free = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        const double *v = system->velocities + 3 * (size_t)i;
        double m = system->masses[i] * BASE_AMU_ANG2_FS2_EV;
        energy += 0.5 * m * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for (int c = 0; c < 3; c++) momentum[c] += m * v[c];
        mass += m;
        n_free++;
    }
    double thermal = energy, n_degrees = 3.0 * n_free;
    if (dynamics->options.ensemble == MLFF_NVE && n_free == system->n_atoms && n_free > 1) {
        thermal -= 0.5 * (momentum[0] * momentum[0] + momentum[1] * momentum[1] + momentum[2] * momentum[2]) / mass;
        n_degrees -= 3;
    }
    *energy_out = energy;
    *temperature_out = n_degrees > 0 ? fmax(0.0, 2 * thermal / (n_degrees * BASE_KB_EV_PER_K)) : 0.0;
}

// Conserved energy: potential and kinetic, less the heat that the bath gave.
static double conserved_energy(const mlff_dynamics *dynamics)
{
    double kinetic, temperature;
    kinetic_state(dynamics, &kinetic, &temperature);
    return dynamics->potential_energy + kinetic - dynamics->bath_heat;
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

// Forces of the current positions, which step number `step` has led to.
static mlff_status compute_forces(mlff_dynamics *dynamics, int64_t step, double *energy_out)
{
    const mlff_system *system = dynamics->system;
    size_t n = 3 * (size_t)system->n_atoms;
    for (size_t k = 0; k < n; k++)
        if (!(fabs(system->positions[k]) <= FAR_AWAY))
            return unstable(dynamics, step, "position", (int)(k / 3), system->positions[k], "Å");
    double energy = NAN;
    mlff_status status = dynamics->function(dynamics->context, system, &energy, dynamics->new_forces);
    if (status != MLFF_OK) return status;
    for (size_t k = 0; k < n; k++)
        if (!isfinite(dynamics->new_forces[k]))
            return unstable(dynamics, step, "force", (int)(k / 3), dynamics->new_forces[k], "eV/Å");
    if (!isfinite(energy)) return unstable(dynamics, step, "energy", -1, energy, "eV");
    *energy_out = energy;
    return MLFF_OK;
}

static void take_forces(mlff_dynamics *dynamics, double energy)
{
    double *forces = dynamics->new_forces;
    dynamics->new_forces = dynamics->forces;
    dynamics->forces = forces;
    dynamics->potential_energy = energy;
    dynamics->has_forces = true;
}

// ---- explosions -----------------------------------------------------------------------------------------------------------

// The integrator keeps the conserved energy, with a bath too, to some meV/atom. It has lost the trajectory where that energy
// changes by EXPLODED eV for each free atom within WINDOW steps; or, in a large system, by LOST eV while an atom has a kinetic
// energy of HOT eV (thermal at 100,000 K). A strained start heats up, but keeps the conserved energy.
#define EXPLODED 0.5
#define LOST 5.0
#define HOT 10.0
enum { WINDOW = 100 };

static void restart_guard(mlff_dynamics *dynamics, double energy)
{
    dynamics->guard_energy = dynamics->guard_last = energy;
    dynamics->guard_step = dynamics->step;
    dynamics->guarded = true;
}

// Before a step: measures from here if the caller has changed the atoms since the last one.
static void begin_guard(mlff_dynamics *dynamics)
{
    const double energy = conserved_energy(dynamics);
    if (!dynamics->guarded || energy != dynamics->guard_last) restart_guard(dynamics, energy);
}

// The free atom with the highest kinetic energy, eV.
static int hottest_atom(const mlff_system *system, double *energy_out)
{
    int hottest = 0;
    *energy_out = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        const double *v = system->velocities + 3 * (size_t)i;
        const double energy = 0.5 * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) * system->masses[i] * BASE_AMU_ANG2_FS2_EV;
        if (!is_fixed(system, i) && energy > *energy_out) *energy_out = energy, hottest = i;
    }
    return hottest;
}

static int count_free(const mlff_system *system)
{
    int n = 0;
    for (int i = 0; i < system->n_atoms; i++) n += !is_fixed(system, i);
    return n > 0 ? n : 1;
}

// MLFF_ERR_UNSTABLE if the conserved energy has jumped since the guard's step; the caller goes back to where it was before.
static mlff_status check_explosion(mlff_dynamics *dynamics)
{
    const mlff_system *system = dynamics->system;
    const double energy = conserved_energy(dynamics);
    double hot;
    if (!dynamics->guarded) {
        restart_guard(dynamics, energy);
        return MLFF_OK;
    }
    const int64_t n_steps = dynamics->step - dynamics->guard_step;
    const double change = energy - dynamics->guard_energy, windows = fmax(1.0, (double)n_steps / WINDOW);
    const int atom = hottest_atom(system, &hot), n_free = count_free(system);
    if (!(fabs(change) <= EXPLODED * windows * n_free) || (hot > HOT && !(fabs(change) <= LOST * windows)))
        return mlff_fail(MLFF_ERR_UNSTABLE,
                         "step %lld: the simulation has exploded: the conserved energy changed by %.3g eV within %lld step%s; "
                         "atom %d has a kinetic energy of %.3g eV; halve the timestep (now %g fs) or relax the start",
                         (long long)dynamics->step, change, (long long)n_steps, n_steps == 1 ? "" : "s", atom, hot,
                         dynamics->options.timestep_fs);
    dynamics->guard_last = energy;
    if (n_steps >= WINDOW) restart_guard(dynamics, energy);
    return MLFF_OK;
}

// ---- atoms on a device ------------------------------------------------------------------------------------------------

void dynamics_set_resident(mlff_dynamics *dynamics, const dynamics_resident *resident)
{
    dynamics->resident = *resident;
    dynamics->placed = true;
}

static mlff_status place(mlff_dynamics *dynamics)
{
    if (dynamics->placed) return MLFF_OK;
    mlff_status status = dynamics->resident.put(dynamics->resident.context, dynamics);
    dynamics->placed = status == MLFF_OK;
    dynamics->bath_heat_before = dynamics->bath_heat;
    return status;
}

static mlff_status fetch(mlff_dynamics *dynamics)
{
    double heat;
    mlff_status status =
        dynamics->resident.get(dynamics->resident.context, dynamics->system->positions, dynamics->system->velocities,
                               dynamics->forces, &dynamics->potential_energy, &heat);
    if (status != MLFF_OK) return status;
    dynamics->has_forces = true;
    dynamics->bath_heat = dynamics->bath_heat_before + heat;
    return MLFF_OK;
}

// Where a step or a run of steps on a device begins, to go back to if it explodes; positions and velocities are copied into the
// dynamics' own arrays, forces into those of the next step.
typedef struct dynamics_place {
    double potential_energy, bath_heat, time_fs;
    int64_t step;
} dynamics_place;

static dynamics_place place_of(mlff_dynamics *dynamics)
{
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    memcpy(dynamics->old_positions, dynamics->system->positions, bytes);
    memcpy(dynamics->old_velocities, dynamics->system->velocities, bytes);
    memcpy(dynamics->new_forces, dynamics->forces, bytes);
    return (dynamics_place){dynamics->potential_energy, dynamics->bath_heat, dynamics->time_fs, dynamics->step};
}

static void go_back(mlff_dynamics *dynamics, const dynamics_place *to)
{
    const size_t bytes = 3 * (size_t)dynamics->system->n_atoms * sizeof(double);
    memcpy(dynamics->system->positions, dynamics->old_positions, bytes);
    memcpy(dynamics->system->velocities, dynamics->old_velocities, bytes);
    memcpy(dynamics->forces, dynamics->new_forces, bytes);
    dynamics->potential_energy = to->potential_energy;
    dynamics->bath_heat = to->bath_heat;
    dynamics->time_fs = to->time_fs;
    dynamics->step = to->step;
    dynamics->placed = false;
}

static mlff_status run_resident(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns)
{
    int64_t n_done = 0;
    mlff_status status = place(dynamics), fetched;
    if (status != MLFF_OK) return status;
    if (dynamics->has_forces) begin_guard(dynamics);
    const dynamics_place before = place_of(dynamics);
    status = dynamics->resident.run(dynamics->resident.context, n_steps, times_ns, &n_done);
    dynamics->step += n_done;
    for (int64_t k = 0; k < n_done; k++) dynamics->time_fs += dynamics->options.timestep_fs; // the sum that single steps make
    if (status == MLFF_OK) {
        if ((status = fetch(dynamics)) == MLFF_OK && (status = check_explosion(dynamics)) != MLFF_OK) go_back(dynamics, &before);
        return status;
    }
    char cause[900];
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    fetched = fetch(dynamics); // what it was before the step that failed
    if (fetched != MLFF_OK || status == MLFF_ERR_DEVICE || status == MLFF_ERR_MEMORY) return mlff_fail(status, "%s", cause);
    return mlff_fail(MLFF_ERR_UNSTABLE, "step %lld: %s (halve the timestep, now %g fs, or relax the start)",
                     (long long)dynamics->step + 1, cause, dynamics->options.timestep_fs);
}

static mlff_status ensure_forces(mlff_dynamics *dynamics)
{
    if (dynamics->has_forces) return MLFF_OK;
    if (dynamics->resident.context) {
        mlff_status placed = place(dynamics);
        return placed == MLFF_OK ? fetch(dynamics) : placed;
    }
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

// Returns the heat that the bath gave.
static double bath(mlff_system *system, const mlff_dynamics_options *options, int64_t step)
{
    double keep = exp(-options->friction_per_fs * options->timestep_fs), heat = 0;
    double noise = -expm1(-2 * options->friction_per_fs * options->timestep_fs) * BASE_KB_EV_PER_K * options->temperature_kelvin;
    for (int i = 0; i < system->n_atoms; i++) {
        if (is_fixed(system, i)) continue;
        double deviation = sqrt(noise * inverse_mass(system, i)), before = 0, after = 0;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            double v = system->velocities[k];
            before += v * v;
            v = keep * v + deviation * base_random_normal(options->seed, k, (uint64_t)step);
            after += v * v;
            system->velocities[k] = v;
        }
        heat += 0.5 * (after - before) / inverse_mass(system, i);
    }
    return heat;
}

mlff_status mlff_dynamics_step(mlff_dynamics *dynamics)
{
    if (!dynamics) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_step: no dynamics");
    if (dynamics->resident.context) return run_resident(dynamics, 1, NULL);
    mlff_status status = ensure_forces(dynamics);
    if (status != MLFF_OK) return status;

    mlff_system *system = dynamics->system;
    const mlff_dynamics_options *options = &dynamics->options;
    size_t bytes = 3 * (size_t)system->n_atoms * sizeof(double);
    double dt = options->timestep_fs, heat = 0, energy;
    const double old_energy = dynamics->potential_energy;
    begin_guard(dynamics);
    memcpy(dynamics->old_positions, system->positions, bytes);
    memcpy(dynamics->old_velocities, system->velocities, bytes);

    kick(system, dynamics->forces, 0.5 * dt);
    if (options->ensemble == MLFF_NVE) {
        drift(system, dt);
    } else {
        drift(system, 0.5 * dt);
        heat = bath(system, options, dynamics->step);
        drift(system, 0.5 * dt);
    }
    status = compute_forces(dynamics, dynamics->step + 1, &energy);
    if (status != MLFF_OK) {
        memcpy(system->positions, dynamics->old_positions, bytes);
        memcpy(system->velocities, dynamics->old_velocities, bytes);
        return status;
    }
    take_forces(dynamics, energy);
    kick(system, dynamics->forces, 0.5 * dt);
    dynamics->bath_heat += heat;
    dynamics->step++;
    if ((status = check_explosion(dynamics)) != MLFF_OK) {
        memcpy(system->positions, dynamics->old_positions, bytes);
        memcpy(system->velocities, dynamics->old_velocities, bytes);
        take_forces(dynamics, old_energy); // the old ones, which the exchange of arrays kept
        dynamics->bath_heat -= heat;
        dynamics->step--;
        return status;
    }
    dynamics->time_fs += dt;
    return MLFF_OK;
}

mlff_status mlff_dynamics_run(mlff_dynamics *dynamics, int64_t n_steps, double *times_ns)
{
    mlff_status status = MLFF_OK;
    if (!dynamics) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_run: no dynamics");
    if (n_steps < 0) return mlff_fail(MLFF_ERR_USAGE, "mlff_dynamics_run: %lld steps; 0 or more are meant", (long long)n_steps);
    if (n_steps > 0 && dynamics->resident.context) return run_resident(dynamics, n_steps, times_ns);
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
                                 .forces = dynamics->forces};
    kinetic_state(dynamics, &state.kinetic_energy, &state.temperature_kelvin);
    state.conserved_energy = state.potential_energy + state.kinetic_energy - dynamics->bath_heat;
    *state_out = state;
    return MLFF_OK;
}
