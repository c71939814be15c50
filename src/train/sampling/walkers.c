// SPDX-License-Identifier: MIT
// walkers.c: systems that move in step, so that a teacher's processes or a GPU get all of them at once. (mlff_dynamics moves one.)
#include "walkers.h"

#include <math.h>
#include <string.h>

#include "samples.h"

enum { STREAM_VELOCITIES = 0x76656c6f };

mlff_status walkers_add(walkers *w, const mlff_system *start, double temperature, int64_t group)
{
    mlff_status status = MLFF_OK;
    walker added = {.temperature = temperature, .group = group, .deviation = NAN, .alive = true};
    const size_t n = w->n + 1;

    MLFF_TRY(base_grow(&w->walkers, &w->capacity, n, sizeof *w->walkers, "walkers"));
    base_free(w->systems);
    base_free(w->labels);
    w->systems = base_alloc(n, sizeof *w->systems, "walkers");
    w->labels = base_alloc(n, sizeof *w->labels, "walkers");
    added.forces = base_alloc(3 * (size_t)start->n_atoms, sizeof(double), "forces");
    if (!w->systems || !w->labels || !added.forces) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(mlff_system_copy(start, &added.system));
    MLFF_TRY(mlff_system_add_masses(added.system));
    MLFF_TRY(sample_bonds_find(start, &added.bonds));
    added.system->group = group;
    w->walkers[w->n++] = added;
    return MLFF_OK;
done:
    mlff_system_destroy(added.system);
    base_free(added.forces);
    sample_bonds_free(&added.bonds);
    return status;
}

void walkers_free(walkers *w)
{
    for (size_t k = 0; k < w->n; k++) {
        mlff_system_destroy(w->walkers[k].system);
        base_free(w->walkers[k].forces);
        sample_bonds_free(&w->walkers[k].bonds);
    }
    base_free(w->walkers);
    base_free(w->systems);
    base_free(w->labels);
    *w = (walkers){0};
}

size_t walkers_alive(const walkers *w)
{
    size_t n = 0;
    for (size_t k = 0; k < w->n; k++) n += w->walkers[k].alive;
    return n;
}

mlff_status walkers_forces(walkers *w)
{
    int n = 0;
    mlff_status status = w->proceed ? w->proceed(w->context) : MLFF_OK;
    if (status != MLFF_OK) return status;
    for (size_t k = 0; k < w->n; k++)
        if (w->walkers[k].alive && !w->walkers[k].resting) w->systems[n++] = w->walkers[k].system;
    status = mlff_teacher_compute(w->teacher, w->systems, n, w->labels);
    if (status != MLFF_OK) return status;
    n = 0;
    for (size_t k = 0; k < w->n; k++) {
        walker *one = &w->walkers[k];
        if (!one->alive || one->resting) continue;
        mlff_label *label = &w->labels[n++];
        one->alive = label->status == MLFF_OK;
        if (one->alive) {
            one->energy = label->energy;
            one->deviation = label->force_deviation;
            memcpy(one->forces, label->forces, 3 * (size_t)one->system->n_atoms * sizeof(double));
        } else if (!w->problem[0]) {
            snprintf(w->problem, sizeof w->problem, "%s", label->problem);
        }
        mlff_label_clear(label);
    }
    return MLFF_OK;
}

static bool moves(const mlff_system *system, int i)
{
    return !(system->fixed && system->fixed[i]);
}

// ---- descent

// FIRE's state of a walker; velocities are in Å per step of unit mass and time.
typedef struct fire {
    double timestep, mixing;
    int n_downhill;
} fire;

#define LARGEST_MOVE 0.1 // Å an atom and step

static double largest_force(const walker *w)
{
    double largest = 0;
    for (int i = 0; i < w->system->n_atoms; i++) {
        const double *f = w->forces + 3 * (size_t)i;
        if (moves(w->system, i)) largest = fmax(largest, f[0] * f[0] + f[1] * f[1] + f[2] * f[2]);
    }
    return sqrt(largest);
}

static void fire_step(walker *w, fire *state)
{
    mlff_system *system = w->system;
    const size_t n = 3 * (size_t)system->n_atoms;
    double power = 0, ff = 0, vv = 0, *v = system->velocities, largest = 0;

    for (size_t k = 0; k < n; k++) {
        power += w->forces[k] * v[k];
        ff += w->forces[k] * w->forces[k];
        vv += v[k] * v[k];
    }
    if (power > 0) {
        for (size_t k = 0; k < n; k++) v[k] = (1 - state->mixing) * v[k] + state->mixing * w->forces[k] * sqrt(vv / ff);
        if (++state->n_downhill > 5) {
            state->timestep = fmin(1.1 * state->timestep, 0.5);
            state->mixing *= 0.99;
        }
    } else {
        memset(v, 0, n * sizeof *v);
        state->timestep *= 0.5;
        state->mixing = 0.1;
        state->n_downhill = 0;
    }
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) {
            v[k] = moves(system, i) ? v[k] + state->timestep * w->forces[k] : 0;
            largest = fmax(largest, fabs(state->timestep * v[k]));
        }
    const double scale = largest > LARGEST_MOVE ? LARGEST_MOVE / largest : 1;
    for (size_t k = 0; k < n; k++) system->positions[k] += scale * state->timestep * v[k];
}

mlff_status walkers_relax(walkers *w, double force_limit, int n_steps)
{
    mlff_status status = MLFF_OK;
    fire *states = base_alloc(w->n, sizeof *states, "descent");
    if (!states) return MLFF_ERR_MEMORY;
    for (size_t k = 0; k < w->n; k++) {
        mlff_system *system = w->walkers[k].system;
        states[k] = (fire){.timestep = 0.1, .mixing = 0.1};
        MLFF_TRY(mlff_system_add_velocities(system));
        memset(system->velocities, 0, 3 * (size_t)system->n_atoms * sizeof(double));
    }
    MLFF_TRY(walkers_forces(w));
    for (int step = 0; step < n_steps; step++) {
        bool any = false;
        for (size_t k = 0; k < w->n; k++) {
            walker *one = &w->walkers[k];
            one->resting = one->resting || largest_force(one) < force_limit;
            if (!one->alive || one->resting) continue;
            fire_step(one, &states[k]);
            any = true;
        }
        if (!any) break;
        MLFF_TRY(walkers_forces(w));
    }
done:
    for (size_t k = 0; k < w->n; k++) w->walkers[k].resting = false;
    base_free(states);
    return status;
}

// ---- Langevin dynamics: half kick, half drift, noise, half drift, (forces), half kick

mlff_status walkers_thermalize(walkers *w)
{
    for (size_t k = 0; k < w->n; k++) {
        const uint64_t stream = ((uint64_t)STREAM_VELOCITIES << 32) + (uint64_t)w->walkers[k].group;
        const mlff_status status =
            mlff_system_thermalize(w->walkers[k].system, w->walkers[k].temperature, sample_seed(w->seed, stream));
        if (status != MLFF_OK) return status;
    }
    return MLFF_OK;
}

static void kick(walker *w, double half_step)
{
    mlff_system *system = w->system;
    for (int i = 0; i < system->n_atoms; i++) {
        if (!moves(system, i)) continue;
        const double factor = half_step / (system->masses[i] * BASE_AMU_ANG2_FS2_EV);
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) system->velocities[k] += factor * w->forces[k];
    }
}

static void drift(walker *w, double half_step)
{
    mlff_system *system = w->system;
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t k = 3 * (size_t)i; moves(system, i) && k < 3 * (size_t)i + 3; k++)
            system->positions[k] += half_step * system->velocities[k];
}

static void add_noise(walker *w, double decay, uint64_t seed, uint64_t step)
{
    mlff_system *system = w->system;
    for (int i = 0; i < system->n_atoms; i++) {
        if (!moves(system, i)) continue;
        const double deviation =
            sqrt((1 - decay * decay) * BASE_KB_EV_PER_K * w->temperature / (system->masses[i] * BASE_AMU_ANG2_FS2_EV));
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++)
            system->velocities[k] =
                decay * system->velocities[k] + deviation * base_random_normal(seed, ((uint64_t)w->group << 32) + k, step);
    }
}

// Beyond these a trajectory is no longer one of this system.
#define HOTTEST 20.0 // times the bath's temperature, and 1000 K

static bool is_hot(const walker *w)
{
    const mlff_system *system = w->system;
    double twice_kinetic = 0;
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++)
            twice_kinetic += system->masses[i] * BASE_AMU_ANG2_FS2_EV * system->velocities[k] * system->velocities[k];
    const double temperature = twice_kinetic / (3 * system->n_atoms * BASE_KB_EV_PER_K);
    return !(temperature < HOTTEST * w->temperature + 1000);
}

mlff_status walkers_run(walkers *w, int n_steps, double timestep_fs, double friction_per_fs, uint64_t *step)
{
    const double half_step = 0.5 * timestep_fs, decay = exp(-friction_per_fs * timestep_fs);
    for (int s = 0; s < n_steps && walkers_alive(w) > 0; s++, ++*step) {
        for (size_t k = 0; k < w->n; k++) {
            walker *one = &w->walkers[k];
            if (!one->alive) continue;
            kick(one, half_step);
            drift(one, half_step);
            add_noise(one, decay, w->seed, *step);
            drift(one, half_step);
            one->alive = !is_hot(one);
        }
        const mlff_status status = walkers_forces(w);
        if (status != MLFF_OK) return status;
        for (size_t k = 0; k < w->n; k++)
            if (w->walkers[k].alive) kick(&w->walkers[k], half_step);
    }
    return MLFF_OK;
}
