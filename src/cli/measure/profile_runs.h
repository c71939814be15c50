/* SPDX-License-Identifier: MIT */
/* profile_runs.h: several runs of mlff profile, each a process of its own. */
#ifndef PROFILE_RUNS_H
#define PROFILE_RUNS_H

#include "cli/support/cli.h"

/* The command once more as a process, with other options (name, value, …, NULL). `what` names it in progress and errors; those of an
 * optional one are not printed. */
mlff_status profile_child(const cli_arguments *arguments, const char *const *extra, const char *what, bool is_optional,
                          mlff_profile **profile_out);
/* True in a process that profile_child started. */
bool profile_is_child(void);
/* One run for each of "32,64,128" atoms. Where a larger one does not run (MLFF_ERR_CALLBACK), and interrupted, it fails, and hands out
 * those before it. */
mlff_status profile_sizes(const cli_arguments *arguments, const char *sizes, mlff_profile ***profiles_out, int *n_out);
void profile_sizes_print(mlff_profile *const *profiles, int n);
/* Runs the command n_runs times with its options, less those that say where the report goes. Interrupted, it hands out
 * the runs that are whole. */
mlff_status profile_runs(const cli_arguments *arguments, int n_runs, mlff_profile ***profiles_out, int *n_out);
void profile_runs_free(mlff_profile **profiles, int n);
/* The run whose median is the middle one, and what differs from run to run. */
const mlff_profile *profile_runs_middle(mlff_profile *const *profiles, int n);
void profile_runs_print(mlff_profile *const *profiles, int n);

#endif
