/* SPDX-License-Identifier: MIT */
/* verdict.h: shared by verdict.c (the list of bars, errors, speed, file) and stability.c (bars from molecular dynamics). */
#ifndef VERDICT_H
#define VERDICT_H

#include "base/base.h"
#include "mlff_train.h"

enum { VERDICT_MAX_SYSTEMS = 16, VERDICT_MAX_BARS = 3 + 6 * VERDICT_MAX_SYSTEMS };

/* Structures with a force component above this, eV/Å, are no part of any simulation; a few of them would decide a mean. */
#define VERDICT_STRAINED 20.0
/* The largest component of the labelled forces, eV/Å; 0 without. */
double verdict_largest_force(const mlff_system *system);

struct mlff_verdict {
    mlff_verdict_options options;
    char student[128], teacher[128]; /* names */
    mlff_bar bars[VERDICT_MAX_BARS];
    int n_bars;
    char system[24]; /* being measured, where there are several */
};

/* What the bars are measured with. */
typedef struct verdict_run {
    mlff_verdict *verdict;
    mlff_evaluator *evaluator;       /* the student's */
    mlff_force_field student;        /* by that evaluator */
    const mlff_force_field *teacher; /* or NULL */
    const mlff_dataset *test;
    const mlff_system *start;
} verdict_run;

/* Adds a bar; a value that is NaN is not measured. */
mlff_bar *verdict_add(mlff_verdict *verdict, const char *name, const char *unit, double value, double uncertainty, double limit,
                      int at_least);
void verdict_say(mlff_bar *bar, const char *format, ...) MLFF_PRINTF(2, 3);
/* MLFF_ERR_INTERRUPTED if the caller asks to stop. */
mlff_status verdict_tell(const verdict_run *run, const char *what, double fraction);

/* NVE drift; bonds at high temperature; repulsion of compressed pairs; distances and spectrum beside the teacher's. */
mlff_status verdict_nve(const verdict_run *run);
mlff_status verdict_hot(const verdict_run *run);
mlff_status verdict_core(const verdict_run *run);
mlff_status verdict_compare(const verdict_run *run);

#endif
