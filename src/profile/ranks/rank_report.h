/* SPDX-License-Identifier: MIT */
/* rank_report.h: profiles of the processes of one run over MPI, each in a file of its own: which they are, and whether one of them computes
 * longer than the others. */
#ifndef RANK_REPORT_H
#define RANK_REPORT_H

#include "profile/profile.h"

/* Rank of a profile, its run's number of ranks and its ghost atoms (-1: not known); false: it is of no such run. */
bool rank_of(const mlff_profile *profile, int *rank_out, int *n_ranks_out, int64_t *n_ghosts_out);

typedef struct rank_row {
    int rank, n_owned;
    int64_t n_ghosts;
    double list_ms;                                        /* neighbor list, a step */
    double computing_ms;                                   /* stages but the exchange */
    double exchange_ms, exchange_low_ms, exchange_high_ms; /* its waits included; median of parts of the run; NaN: no exchange */
    double outside_ms;                                     /* between two calls of the force field */
    bool of_gpu;     /* one of several GPUs of a process: computing is the time of its kernels */
    double cpu_wait; /* part of the steps' time in which the process was ready and had no CPU; NaN: not known */
} rank_row;

typedef enum rank_judgement { RANKS_BALANCED, RANKS_UNBALANCED, RANKS_CROWDED, RANKS_SHORT } rank_judgement;

typedef struct rank_report {
    rank_row *rows; /* [n] */
    int n, slowest; /* row that computes longest */
    rank_judgement judgement;
    percentile_bounds ratio;       /* of the slowest rank's computing to the mean; not set for RANKS_CROWDED and RANKS_SHORT */
    double excess_ms, atoms_ratio; /* beyond that mean, a step; its atoms over the mean number */
    double cpu_wait;               /* the largest of all ranks */
    int crowded;                   /* row of it */
} rank_report;

/* rank_files.c: where the only one of *n profiles is rank 0's, the other ranks' are loaded after it. Fails with MLFF_ERR_IO,
 * MLFF_ERR_FORMAT, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY; what is in *profiles then is still the caller's. */
mlff_status ranks_load_others(const char *path, mlff_profile ***profiles, int *n);

/* n of 0: the profiles are not the ranks of one run. Fails with MLFF_ERR_MEMORY. */
mlff_status ranks_report(const mlff_profile *const *profiles, int n, rank_report *report_out);
void rank_report_free(rank_report *report);
/* One or two sentences on the load's imbalance. */
void ranks_sentence(const rank_report *report, char *text, size_t text_bytes);

/* rank_pages.c: their part of a page; nothing where n is 0. */
void html_ranks(base_text *page, const rank_report *report);

#endif
