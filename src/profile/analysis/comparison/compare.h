/* SPDX-License-Identifier: MIT */
/* compare.h: a comparison of two groups of runs: made by compare.c, written by report/compare_text.c. */
#ifndef PROFILE_COMPARE_H
#define PROFILE_COMPARE_H

#include "profile/profile.h"

#define NOISY 0.01 /* runs of a side that differ by more than this: the machine's noise is worth a word */

enum { METRICS = 3 };
struct mlff_comparison {
    mlff_comparison_row *rows; /* names are the comparison's own */
    mlff_comparison_row metrics[METRICS];
    int n_rows, n_a, n_b, n_metrics;
    double ns_per_day_a, ns_per_day_b; /* 0: not known */
    bool by_blocks;                    /* blocks of steps stand in for runs */
    bool paired;                       /* run i of A beside run i of B */
    bool floor_measured;               /* by the caller's word */
    double floor, margin, deviation, detectable;
    char difference[512]; /* why these are not comparable, with `across`; else "" */
    char changed[512];    /* what differs between the implementations, or "" */
    char *name_a, *name_b;
    int n_partial;
};

#endif
