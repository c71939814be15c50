/* SPDX-License-Identifier: MIT */
/* compare_runs.h: mlff compare --run A --run B: two commands, run interleaved, each run a process of its own. */
#ifndef COMPARE_RUNS_H
#define COMPARE_RUNS_H

#include "cli/support/cli.h"

/* The environment variable by which a command that is run so is asked to write the report of its profile to a file. */
#define COMPARE_REPORT "MLFF_PROFILE_REPORT"

/* Runs both commands in pairs of processes, n_repeats pairs in each of n_rounds rounds (0: as many as fit in half a second of processor
 * time of one command, 8 at most), and each once before that without counting it. Up to COMPARE_MORE times as many rounds follow
 * while the interval of the ratio is wider than half of the margin and so many can make it about as narrow. Pairs begin with A and
 * with B alternately. From six pairs on they are judged as pairs, below by rank sums. Where each execution was an `mlff profile`, the
 * profiles are compared, else the time and the processor time of the processes. n_rounds * n_repeats is COMPARE_PAIRS at most. The
 * exit status. */
enum { COMPARE_REPEATS = 8, COMPARE_PAIRS = 400, COMPARE_MORE = 4 };
int compare_runs(const char *const commands[2], int n_rounds, int n_repeats, const mlff_comparison_options *options, bool json);
/* What mlff compare says and returns of a comparison. */
int compare_report(const mlff_comparison *comparison, bool json, mlff_status *status_out);

#endif
