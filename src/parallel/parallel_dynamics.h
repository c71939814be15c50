/* SPDX-License-Identifier: MIT */
/* parallel_dynamics.h: dynamics in domains (parallel_dynamics.c), and their atoms on the way into and out of the domains
 * (parallel_transfer.c). */
#ifndef PARALLEL_DYNAMICS_H
#define PARALLEL_DYNAMICS_H

#include "parallel/moving.h"
#include "parallel/parallel.h"

enum { NOW, NEXT };

typedef struct parallel_dynamics {
    parallel_evaluator *evaluator;
    mlff_dynamics_options options;
    const mlff_system *system; /* the caller's: species, masses, cell */
    double n_degrees;
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_results wanted;
    /* [n_atoms][3] of the host: on the way between two decompositions, and after a run */
    double *positions[2], *velocities[2], *forces;
    moving_domain domains[MAX_DOMAINS];
    moving_bath bath[2]; /* current, next; without Langevin's heat */
    double energy;       /* eV */
    int64_t step;        /* steps made */
    bool behind;         /* the arrays above are older than the domains */
    bool drifted;        /* in the middle of a step */
    bool fresh;          /* the decomposition is newer than the atoms of the domains */
    /* of the run under way */
    int64_t n_wanted, last_ns;
    double *times_ns; /* NULL: not wanted */
} parallel_dynamics;

/* Whether the atoms are in the domains; else, as after other calls of the evaluator, in the host's arrays. */
static inline bool is_in_domains(const parallel_dynamics *dynamics)
{
    return dynamics->evaluator->dynamics == dynamics;
}

/* From the host's arrays into the domains of the decomposition. */
mlff_status parallel_enter_domains(parallel_dynamics *dynamics);
/* From the domains to the host's arrays, unless these are as new; on failure these are as before. */
mlff_status parallel_leave_domains(parallel_dynamics *dynamics);
/* Into domains of a new decomposition, in the middle of a step (`drifted`) or between two. */
mlff_status parallel_divide_again(parallel_dynamics *dynamics);

#endif
