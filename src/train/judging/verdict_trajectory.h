/* SPDX-License-Identifier: MIT */
/* verdict_trajectory.h: molecular dynamics by student or teacher from the structure that a verdict is measured on. */
#ifndef VERDICT_TRAJECTORY_H
#define VERDICT_TRAJECTORY_H

#include "verdict.h"

enum { TRAJECTORY_EVERY = 8 }; /* steps between samples: 4 fs at 0.5 fs a step, which resolves up to 4170 1/cm */

/* A run of one force field from a copy of the start. */
typedef struct trajectory {
    mlff_system *system;
    mlff_dynamics *dynamics;
    const char *what;
} trajectory;

void trajectory_free(trajectory *t);

/* A copy of the start with velocities of the Maxwell-Boltzmann distribution. `what` is told as progress, and borrowed. */
mlff_status trajectory_begin(const verdict_run *run, const mlff_force_field *field, mlff_ensemble ensemble, double kelvin,
                             uint64_t seed, const char *what, trajectory *t);
/* Goes on from there in another ensemble. */
mlff_status trajectory_begin_dynamics(const verdict_run *run, const mlff_force_field *field, mlff_ensemble ensemble,
                                      double kelvin, uint64_t seed, trajectory *t);

/* Runs n samples of TRAJECTORY_EVERY steps; `take` (or NULL) sees the system after each. Other failures than of the dynamics
 * (verdict_of_structure) end the verdict. */
typedef mlff_status (*trajectory_taker)(void *context, int64_t k, const mlff_system *system, const mlff_dynamics_state *state);
mlff_status trajectory_sample(const verdict_run *run, trajectory *t, int64_t n, trajectory_taker take, void *context,
                              int64_t *n_done_out);

/* A length that was asked for as samples, and the length of samples, ps. */
int64_t trajectory_samples(const verdict_run *run, double picoseconds);
double trajectory_length(const verdict_run *run, int64_t n_samples);

#endif
