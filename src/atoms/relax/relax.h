/* SPDX-License-Identifier: MIT */
/* relax.h: one structure on its way to a minimum of E + P V, without the computation of its forces, which a driver makes for
 * many at once (model/evaluator/evaluator_relax.c).
 *
 * Variables: the positions, in the frame of the undeformed cell, and, where the cell relaxes, n_atoms times the deformation
 * gradient F (cell = cell_0 Fᵀ, r = x Fᵀ), so that a strain and a displacement of the atoms it moves weigh alike. */
#ifndef RELAX_H
#define RELAX_H

#include "atoms/relax/relax_kernels.h"
#include "atoms/relax/symmetry.h"
#include "base/base.h"
#include "mlff_atoms.h"

typedef struct relax_settings {
    int optimizer;                    /* mlff_optimizer */
    bool cell, keep_symmetry;         /* of a structure whose cell relaxes */
    double force_limit, stress_limit; /* eV/Å, eV/Å³ */
    double pressure;                  /* eV/Å³ */
} relax_settings;

enum { LBFGS_PAIRS = 16 };

typedef struct relaxation {
    mlff_system *system; /* borrowed */
    relax_settings settings;
    size_t n;       /* variables */
    double *x;      /* [n] */
    double *force;  /* [n] minus the gradient */
    double *start;  /* [n_atoms][3] positions */
    double cell[9]; /* undeformed */
    double deformation[9];
    double energy, start_energy; /* eV, without P V */
    double objective;            /* eV, E + P V */
    double largest_force, largest_stress;
    int64_t n_steps;
    symmetry symmetry;   /* of the start; n below 2: forces are taken as they are */
    double *mean_forces; /* [n_atoms][3] */

    /* ---- FIRE */
    double *velocity; /* [n] */
    double timestep, mixing;
    int n_downhill;

    /* ---- L-BFGS */
    double *last_x, *last_force, *direction;        /* [n] where the last step began */
    double *steps, *changes, products[LBFGS_PAIRS]; /* [LBFGS_PAIRS][n] Δx and -Δforce; 1/(Δx·Δg) */
    int n_pairs, newest, n_halvings;
    struct model_hessian *metric; /* NULL: the last pair's curvature */
    int64_t metric_step;          /* n_steps when it was made */
    double last_objective;
    const relax_kernels *kernels;
    void *block;
} relaxation;

/* Fails with MLFF_ERR_VALUE for a cell that cannot relax, MLFF_ERR_MEMORY. `system` is changed by relaxation_step. */
mlff_status relaxation_create(mlff_system *system, const relax_settings *settings, relaxation *r);
void relaxation_destroy(relaxation *r);
/* Puts positions and cell back to where they began. */
void relaxation_undo(relaxation *r);
/* Takes the energy, forces [n_atoms][3] and, where the cell relaxes, virial [3][3] eV of the system as it stands. */
void relaxation_put(relaxation *r, double energy, const double *forces, const double *virial);
bool relaxation_converged(const relaxation *r);
/* Moves the atoms and the cell. */
void relaxation_step(relaxation *r);

/* About how much work the next step is, compared with those of other structures. */
double relaxation_work(const relaxation *r);

/* Changes r->x: one step of the optimizer. */
void fire_step(relaxation *r);
void lbfgs_step(relaxation *r);
double lbfgs_work(const relaxation *r);

/* Scales a displacement of n variables so that no row of three is longer than 0.2 Å. */
void relaxation_limit(double *step, size_t n);

#endif
