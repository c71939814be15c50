/* SPDX-License-Identifier: MIT */
/* domain_motion.h: how the atoms of a domain move: arithmetic for one atom, in float64. Plain C for the host's and the GPU's compiler; loops
 * over atoms are the caller's. Formulas and noise as in dynamics.c; a step is described in parallel/parallel_dynamics.c.
 *
 *   begin  B A or, with Langevin's bath, B A O A: next positions and velocities from the current ones; at constant pressure space is strained
 *   place  positions of own atoms and ghosts in the frame of the domain; the cell
 *   add    what other domains found of the forces on own atoms
 *   end    B with the forces of the next positions; the kinetic energy
 *   count  the kinetic energy of the current velocities
 *   scale  next velocities times a factor */
#ifndef DOMAIN_MOTION_H
#define DOMAIN_MOTION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"

#define FAR_AWAY 1e9 /* Å: an atom further out has been shot there, an error */

typedef enum domain_move { MOVE_BEGIN, MOVE_PLACE, MOVE_ADD, MOVE_END, MOVE_COUNT, MOVE_SCALE } domain_move;

/* Of some atoms together. */
typedef struct domain_outcome {
    /* Along x, y, z, eV. begin: what Langevin's bath gave, all in the first, else twice the kinetic energy after the kick; end, count:
     * twice the kinetic energy. */
    double sum[3];
    int32_t atom; /* row of one whose position or force is not finite or absurd; −1: none */
    int32_t far;  /* 1: one has moved by half the skin since the decomposition */
} domain_outcome;

/* Atoms that one outcome is of, on a GPU; on the host it is of all. */
enum { DOMAIN_BLOCK = 256, DOMAIN_SOURCES = 64 };

/* Pointers are to memory of the domain's device, but for other domains' arrays and `outcomes`, which is of the host. */
typedef struct domain_motion {
    int32_t n_owned, n_local, n_shared, langevin;
    const int32_t *atom, *shift;                         /* [n_local] in the system; [n_local][3] cells to be added */
    const int32_t *source, *source_row;                  /* [n_local − n_owned], as in domain_atoms */
    const int32_t *shared, *first, *holder, *holder_row; /* [n_shared], [n_shared + 1], then copies */
    const double *inverse_mass;                          /* [n_owned] Å/fs² per eV/Å; 0: a fixed atom */
    const double *listed;                                /* [n_owned][3] Å, when the system was decomposed */
    double *now, *next, *velocities, *next_velocities;   /* [n_owned][3] Å, Å/fs */
    double *forces, *next_forces;                        /* [n_owned][3] eV/Å, of the current and the next positions */
    double *found; /* [n_local][3] eV/Å, of the next positions: what the domain itself finds */
    double *local; /* [n_local][3] Å, next positions in the frame of the domain */
    const double *next_of[DOMAIN_SOURCES], *found_by[DOMAIN_SOURCES]; /* `next` and `found` of each domain */
    domain_outcome *outcomes;                                         /* one; on a GPU one for each DOMAIN_BLOCK atoms */
    double *cell_there;                                               /* [9] Å, of the domain's device: set by place */
    double cell[9];                                                   /* Å, of the next positions */
    double bound;               /* Å²: square of the distance from `listed` that an atom may have */
    double keep, noise, factor; /* Langevin's bath; factor of velocities: before the first kick, or in scale */
    /* Along x, y, z. v = hold v + kick F / m; then, at the beginning, v = shrink v and x = stretch x + drift v (fs). At constant volume all
     * but kick and drift are 1. strained: product of `stretch` since the system was decomposed, this step's included. */
    double hold[3], kick[3], shrink[3], stretch[3], drift[3], strained[3];
    uint64_t seed, step;
} domain_motion;

static inline BASE_HOST_DEVICE domain_outcome domain_nothing(void)
{
    const domain_outcome nothing = {{0, 0, 0}, -1, 0};
    return nothing;
}

static inline BASE_HOST_DEVICE void domain_join(domain_outcome *all, const domain_outcome *one)
{
    for (int c = 0; c < 3; c++) all->sum[c] += one->sum[c];
    all->far |= one->far;
    if (all->atom < 0) all->atom = one->atom;
}

/* Langevin's O step of own atom i; returns its heat, eV. */
static inline BASE_HOST_DEVICE double domain_add_noise(const domain_motion *m, size_t i, double v[3])
{
    const double deviation = sqrt(m->noise * m->inverse_mass[i]);
    const uint64_t stream = 3 * (uint64_t)m->atom[i];
    double before = 0, after = 0;
    for (int c = 0; c < 3; c++) {
        before += v[c] * v[c];
        v[c] = m->keep * v[c] + deviation * random_normal(m->seed, stream + (uint64_t)c, m->step);
        after += v[c] * v[c];
    }
    return 0.5 * (after - before) / m->inverse_mass[i];
}

static inline BASE_HOST_DEVICE void domain_twice_kinetic(const domain_motion *m, size_t i, const double v[3], double twice[3])
{
    for (int c = 0; c < 3; c++) twice[c] = m->inverse_mass[i] > 0 ? v[c] * v[c] / m->inverse_mass[i] : 0;
}

static inline BASE_HOST_DEVICE domain_outcome domain_begin(const domain_motion *m, size_t i)
{
    domain_outcome outcome = domain_nothing();
    const double inverse_mass = m->inverse_mass[i];
    double x[3], v[3], square = 0;
    for (int c = 0; c < 3; c++) {
        x[c] = m->now[3 * i + c];
        v[c] = m->velocities[3 * i + c] * m->factor;
        if (inverse_mass == 0) continue;
        v[c] = m->hold[c] * v[c] + m->kick[c] * inverse_mass * m->forces[3 * i + c];
    }
    if (!m->langevin) domain_twice_kinetic(m, i, v, outcome.sum);
    for (int c = 0; c < 3 && inverse_mass != 0; c++) {
        v[c] *= m->shrink[c];
        x[c] = m->stretch[c] * x[c] + m->drift[c] * v[c];
    }
    if (inverse_mass != 0 && m->langevin) {
        outcome.sum[0] = domain_add_noise(m, i, v);
        for (int c = 0; c < 3; c++) x[c] += m->drift[c] * v[c];
    }
    for (int c = 0; c < 3; c++) {
        const double moved = x[c] - m->strained[c] * m->listed[3 * i + c];
        square += moved * moved;
        if (!(fabs(x[c]) <= FAR_AWAY)) outcome.atom = (int32_t)i;
        m->next[3 * i + c] = x[c];
        m->next_velocities[3 * i + c] = v[c];
    }
    outcome.far = !(square <= m->bound);
    return outcome;
}

static inline BASE_HOST_DEVICE void domain_place(const domain_motion *m, size_t i)
{
    const size_t ghost = i - (size_t)m->n_owned;
    const double *const from =
        i < (size_t)m->n_owned ? m->next + 3 * i : m->next_of[m->source[ghost]] + 3 * (size_t)m->source_row[ghost];
    const int32_t *const s = m->shift + 3 * i;
    for (int c = 0; i == 0 && c < 9; c++) m->cell_there[c] = m->cell[c];
    for (int c = 0; c < 3; c++) {
        const double offset = (s[0] * m->cell[c] + s[1] * m->cell[3 + c]) + s[2] * m->cell[6 + c];
        m->local[3 * i + c] = from[c] + offset;
    }
}

/* Entry k of `shared`. */
static inline BASE_HOST_DEVICE void domain_add(const domain_motion *m, size_t k)
{
    double *const own = m->found + 3 * (size_t)m->shared[k];
    for (int32_t j = m->first[k]; j < m->first[k + 1]; j++)
        for (int c = 0; c < 3; c++) own[c] += m->found_by[m->holder[j]][3 * (size_t)m->holder_row[j] + c];
}

static inline BASE_HOST_DEVICE domain_outcome domain_end(const domain_motion *m, size_t i)
{
    domain_outcome outcome = domain_nothing();
    const double inverse_mass = m->inverse_mass[i];
    double *const v = m->next_velocities + 3 * i;
    for (int c = 0; c < 3; c++) {
        const double force = m->next_forces[3 * i + c] = m->found[3 * i + c];
        if (!(fabs(force) < INFINITY)) outcome.atom = (int32_t)i;
        if (inverse_mass > 0) v[c] = m->hold[c] * v[c] + m->kick[c] * inverse_mass * force;
    }
    domain_twice_kinetic(m, i, v, outcome.sum);
    return outcome;
}

static inline BASE_HOST_DEVICE domain_outcome domain_count(const domain_motion *m, size_t i)
{
    domain_outcome outcome = domain_nothing();
    domain_twice_kinetic(m, i, m->velocities + 3 * i, outcome.sum);
    return outcome;
}

static inline BASE_HOST_DEVICE void domain_scale(const domain_motion *m, size_t i)
{
    for (int c = 0; c < 3; c++) m->next_velocities[3 * i + c] *= m->factor;
}

/* Threads, or turns of a loop, that a move has. */
static inline BASE_HOST_DEVICE int domain_turns(const domain_motion *m, int move)
{
    return move == MOVE_PLACE ? m->n_local : move == MOVE_ADD ? m->n_shared : m->n_owned;
}

static inline BASE_HOST_DEVICE domain_outcome domain_turn(const domain_motion *m, int move, size_t i)
{
    if (move == MOVE_BEGIN) return domain_begin(m, i);
    if (move == MOVE_END) return domain_end(m, i);
    if (move == MOVE_COUNT) return domain_count(m, i);
    if (move == MOVE_PLACE) domain_place(m, i);
    if (move == MOVE_ADD) domain_add(m, i);
    if (move == MOVE_SCALE) domain_scale(m, i);
    return domain_nothing();
}

/* Whether a move has an outcome. */
static inline BASE_HOST_DEVICE int domain_has_outcome(int move)
{
    return move == MOVE_BEGIN || move == MOVE_END || move == MOVE_COUNT;
}

#endif
