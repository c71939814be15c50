/* SPDX-License-Identifier: MIT */
/* samples.h: structures to be labelled, as the sampling methods and the label file see them. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include "base/base.h"
#include "mlff_label.h"

enum { SAMPLE_ORIGIN_BYTES = MLFF_CONFIG_TYPE_BYTES };

enum sample_probe { SAMPLE_PLAIN = 0, SAMPLE_PLUS = 1, SAMPLE_MINUS = 2 };

typedef struct sample {
    mlff_system *system;
    char origin[SAMPLE_ORIGIN_BYTES]; /* the method that made it: "md 600 K" */
    enum sample_probe probe;          /* a SAMPLE_PLUS is followed by its SAMPLE_MINUS */
    double probe_step;                /* Å, h; 0 */
} sample;

struct mlff_samples {
    sample *samples; /* [n] */
    size_t n, capacity;
};

/* As mlff_samples_add, but takes the system, also on failure. */
mlff_status samples_take(mlff_samples *samples, mlff_system *system, const char *origin);
/* Removes the samples from index n on. */
void samples_truncate(mlff_samples *samples, size_t n);

/* Whether mlff_samples_add_named takes a name for that of a built-in system: also a word that is neither, which is more likely a system
 * than a file without a suffix. */
bool samples_is_built_in(const char *name);

/* The seed of one structure's own random numbers. Of sums of both, structures of neighboring seeds would have the same ones. */
uint64_t sample_seed(uint64_t seed, uint64_t stream);
/* A copy whose atoms are displaced independently (mlff_system_perturb). Fails with MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
mlff_status sample_perturbed(const mlff_system *system, double kelvin, uint64_t seed, uint64_t stream, mlff_system **copy_out);
/* Deviation of a committee: the largest over atoms of the standard deviation of the force over members, eV/Å. labels[m][structure]
 * is what member m of n_members (2 or more) says. */
double sample_deviation(mlff_label *const *labels, int n_members, size_t structure, int n_atoms);

#endif
