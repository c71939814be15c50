/* SPDX-License-Identifier: MIT */
/* verdict_pressure.h: errors of the pressure, on which dynamics at constant pressure depend. */
#ifndef VERDICT_PRESSURE_H
#define VERDICT_PRESSURE_H

#include "verdict.h"

typedef struct pressure_error {
    int64_t group;     /* trajectory; -1: none */
    double difference; /* student's pressure less the labelled one, eV/Å³ */
} pressure_error;

typedef struct pressure_errors {
    pressure_error *errors; /* [n] */
    size_t n, capacity;
} pressure_errors;

/* Fails with MLFF_ERR_MEMORY. */
mlff_status pressure_errors_add(pressure_errors *list, int64_t group, double difference);
/* The mean difference of each group, and the mean of these without their signs, weighted by the groups' sizes, eV/Å³: errors that differ from frame to
 * frame of a trajectory change its volume little, and those of cells of different sizes must not make up for each other. Sorts. */
double pressure_errors_mean(pressure_errors *list, int *n_groups_out);
/* Adds the bar `error.pressure`. */
void pressure_errors_judge(mlff_verdict *verdict, pressure_errors *list, int64_t n_structures, bool of_dynamics);
void pressure_errors_free(pressure_errors *list);

#endif
