// SPDX-License-Identifier: MIT
// md.h: one simulation of mlff md, and its report.
#ifndef MD_H
#define MD_H

#include "base/base.h"
#include "cli/simulate/md_series.h"
#include "cli/support/cli.h"
#include "cli/support/extrapolation.h"

typedef struct simulation {
    cli_setup setup;
    cli_input input;
    mlff_dynamics_options options;
    mlff_dynamics *dynamics;
    int64_t n_steps, every, checkpoint_every;
    const char *output, *format, *checkpoint, *restart, *velocities;
    mlff_writer *writer;
    bool lacks_frame;    // of the restart, see md_files.h
    base_output reserve; // likewise
    const char *profile; // where the report goes, or NULL
    int64_t profile_every, kernels;
    mlff_callable callable;
    mlff_monitor *monitor;
    bool table, to_json, thermalize, has_ramp_steps;
    cli_json json;
    mlff_dynamics_state first, last;
    int64_t step_ns, wall_ns; // spent in steps; with output
    char integrated_on[80];
    bool resident;                 // on GPUs, from where the atoms come at the end of a piece only
    bool in_domains;               // on several
    int64_t piece;                 // steps of one
    bool constant_pressure, drawn; // velocities were drawn
    double temperature_sum, volume_sum, pressure_sum;
    int64_t n_states, n_done;          // of which temperatures were summed; steps
    md_series drift, volume, pressure; // the last two at constant pressure
    extrapolation told;
    int n_free;     // atoms that may move
    int n_replicas; // 0: one simulation without a number
    double *temperatures;
} simulation;

extern const char *const md_ensembles[], *const md_ensemble_titles[]; // by mlff_ensemble; the names end with NULL

void md_print_header(const simulation *run);
// A line of the table, or a row of the JSON, of run->last.
void md_show(simulation *run);
void md_print_summary(simulation *run, bool partial);
// Velocities drawn at an energy minimum: half of their energy becomes potential energy, by equipartition.
void md_hint_at_halved_temperature(const simulation *run);
// Warnings that forces are extrapolated: the requested temperature is far above those that the student was trained at; and, once in a run,
// the temperature that is reached is, or atoms are closer than in the training data.
void md_warn_if_far_from_training(simulation *run);
void md_watch_extrapolation(simulation *run);
// Behind an error or a warning of a run that went wrong: that the cause may be the model, and what to do; "" of a model that is no student.
const char *md_doubt_of_student(const simulation *run);
// A run can go wrong and stay finite; a warning then says that its results are not meaningful.
void md_warn_if_absurd(const simulation *run);

#endif
