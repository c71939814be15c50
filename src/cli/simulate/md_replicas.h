// SPDX-License-Identifier: MIT
// md_replicas.h: mlff md --replicas: simulations of one system that make their steps together, each with files of its own.
#ifndef MD_REPLICAS_H
#define MD_REPLICAS_H

#include "cli/support/cli.h"

typedef struct md_replicas_task {
    const cli_setup *setup;
    const cli_input *input;
    mlff_dynamics_options options; // of replica 0; replica k has the seed + k
    int n;
    const double *temperatures; // [n] K, or NULL: that of the options
    const char *ensemble;       // as it is printed
    int64_t n_steps, every, checkpoint_every;
    const char *format;                        // of the trajectories, or NULL: told by the suffix
    const char *output, *checkpoint, *restart; // names before the number of the replica is added, or NULL
    bool thermalize, has_ramp_steps, table, to_json;
} md_replicas_task;

// Temperatures that --temperatures lists, as 300,350,400; malloc'd. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY.
mlff_status md_parse_temperatures(const char *list, double **temperatures_out, int *n_out);
// Whether each replica's files can be written, and are no file that the command line reads. An exit status.
int md_replicas_check_files(const cli_arguments *arguments, const md_replicas_task *task);
// The run. MLFF_ERR_UNSTABLE if a replica has ended early: the others were run to the end. MLFF_ERR_INTERRUPTED after Ctrl-C.
mlff_status md_replicas_run(const md_replicas_task *task);

// cmd_md.c:
/* Maxwell-Boltzmann velocities with the temperature that the ensemble's degrees of freedom are to have. */
mlff_status md_draw_velocities(const mlff_dynamics_options *options, mlff_system *system);
// md_report.c:
/* Where a run goes on from a step at which its ramp has ended, for example since its steps are by default those of this run: says so. */
void md_warn_if_ramp_is_over(const mlff_dynamics_options *options, int64_t step);

#endif
