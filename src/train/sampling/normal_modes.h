/* SPDX-License-Identifier: MIT */
/* normal_modes.h: vibrations of a molecule by its teacher's forces. */
#ifndef NORMAL_MODES_H
#define NORMAL_MODES_H

#include "train/teachers/teacher.h"

/* More atoms than this take too many forces and too long a diagonalization. */
enum { NORMAL_MODES_MAX_ATOMS = 64 };

typedef struct normal_modes {
    int n_atoms, n_modes; /* without translations, rotations and what is softer than 20 /cm */
    double *frequencies;  /* [n_modes] 1/fs, angular; ascending */
    double *vectors;      /* [n_modes][3 n_atoms] of mass-weighted displacements, length 1 */
} normal_modes;

/* Hessian by central differences of forces (h = 0.01 Å) at the system's positions, which should be a minimum. Fails with
 * MLFF_ERR_LIMIT for more than NORMAL_MODES_MAX_ATOMS, as the teacher where one of its structures cannot be computed, and as `proceed`,
 * which (or NULL) is called before each call of the teacher. */
mlff_status normal_modes_find(mlff_teacher *teacher, const mlff_system *system, mlff_status (*proceed)(void *context),
                              void *context, normal_modes *modes_out);
/* Displaces the system by a draw from the classical harmonic distribution at a temperature. */
void normal_modes_displace(const normal_modes *modes, mlff_system *system, double temperature_kelvin, uint64_t seed,
                           uint64_t stream);
void normal_modes_free(normal_modes *modes);

#endif
