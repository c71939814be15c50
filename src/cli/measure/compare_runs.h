/* SPDX-License-Identifier: MIT */
/* compare_runs.h: mlff compare --run A --run B: two commands, run interleaved, each run a process of its own. */
#ifndef COMPARE_RUNS_H
#define COMPARE_RUNS_H

#include "cli/support/cli.h"

/* The environment variable by which a command that is run so is asked to write the report of its profile to a file. */
#define COMPARE_REPORT "MLFF_PROFILE_REPORT"

/* Runs both commands n_rounds times, and once before that without counting it, A first and B first alternately. A round executes
 * each n_repeats times (0: as often as fits in half a second of processor time, 8 times at most) and counts the fastest execution: other programs make
 * some of them longer, and short ones as a whole. Where each execution was an `mlff profile`, the profiles are compared, else the
 * time and the processor time of the processes. The exit status. */
enum { COMPARE_REPEATS = 8 };
int compare_runs(const char *const commands[2], int n_rounds, int n_repeats, const mlff_comparison_options *options, bool json);
/* What mlff compare says and returns of a comparison. */
int compare_report(const mlff_comparison *comparison, bool json, mlff_status *status_out);
/* The exit status of an answer: 0 the same or faster, 3 slower, 4 unclear. */
int compare_exit(mlff_change change);

#endif
