/* SPDX-License-Identifier: MIT */
/* walkers.h: many systems that move at once, their forces by one call of a teacher: descent and Langevin dynamics. */
#ifndef WALKERS_H
#define WALKERS_H

#include "sample_geometry.h"
#include "train/teachers/teacher.h"

typedef struct walker {
    mlff_system *system; /* with velocities and masses after walkers_thermalize */
    double *forces;      /* [n_atoms][3] eV/Å, of the current positions */
    double energy;       /* eV */
    double deviation;    /* the teacher's force deviation, eV/Å; NaN */
    double temperature;  /* K, of the bath */
    int64_t group;       /* of its trajectory */
    sample_bonds bonds;  /* of the start */
    bool alive;          /* false: the teacher failed, or an alarm ended it */
    bool resting;        /* its atoms stay: no forces are asked for */
} walker;

typedef struct walkers {
    mlff_teacher *teacher;
    walker *walkers; /* [n] */
    size_t n, capacity;
    uint64_t seed;
    mlff_status (*proceed)(void *context); /* called before each call of the teacher, which a failure forestalls; NULL */
    void *context;
    const mlff_system **systems; /* [n] and labels [n]: scratch of a call */
    mlff_label *labels;
    char problem[200]; /* why the teacher could not compute the first structure that it could not; "" */
} walkers;

/* A walker that begins with a copy of the system. */
mlff_status walkers_add(walkers *w, const mlff_system *start, double temperature, int64_t group);
/* Forces of those alive and not resting; one whose structure the teacher cannot compute dies. Fails as `proceed` and as the teacher. */
mlff_status walkers_forces(walkers *w);
/* Descent by FIRE (Bitzek et al. 2006, doi:10.1103/PhysRevLett.97.170201) until the largest force on an atom is below the limit
 * (eV/Å) or n_steps are done. */
mlff_status walkers_relax(walkers *w, double force_limit, int n_steps);
/* Velocities at each walker's temperature. */
mlff_status walkers_thermalize(walkers *w);
/* Langevin steps (BAOAB), the same as mlff_dynamics makes; *step counts them for the noise. */
mlff_status walkers_run(walkers *w, int n_steps, double timestep_fs, double friction_per_fs, uint64_t *step);
size_t walkers_alive(const walkers *w);
void walkers_free(walkers *w);

#endif
