/* SPDX-License-Identifier: MIT */
/* verdict.h: shared by verdict.c (the list of bars), verdict_errors.c, speed.c, stability.c (bars from molecular dynamics), pressed.c,
 * own_dynamics.c and verdict_file.c. */
#ifndef VERDICT_H
#define VERDICT_H

#include "base/base.h"
#include "mlff_distill.h"
#include "verdict_compositions.h"

enum { VERDICT_MAX_SYSTEMS = 16, VERDICT_MAX_BARS = 5 + 9 * VERDICT_MAX_SYSTEMS };
enum { VERDICT_RUNS = 8 }; /* of the comparison with the teacher, by both together */

/* Structures with a force component above this, eV/Å, are no part of any simulation; a few of them would decide a mean. */
#define VERDICT_STRAINED 20.0
/* Part of the sum of covalent radii to which the bar `pressed` presses two atoms. */
#define VERDICT_PRESSED_TO 0.6
/* The largest component of the labelled forces, eV/Å; 0 without. */
double verdict_largest_force(const mlff_system *system);

/* Whether the dataset has frames of trajectories by a teacher or by students (config_type "md …", "student …"), apart from strained ones: their errors are those
 * that are judged. */
bool verdict_has_dynamics(const mlff_dataset *test);
/* Whether the errors of this structure are judged: no component above VERDICT_STRAINED, and where dynamics alone are judged, one of them. */
bool verdict_judges(const mlff_system *system, bool dynamics_alone);

/* What teacher and student are compared by on one system: a histogram of distances or a spectrum, each scaled to the sum 1. */
typedef struct verdict_curve {
    char system[24];
    const char *of; /* the bar: "structure", "spectrum" */
    int n;
    double step;               /* Å, 1/cm: of the abscissa, from 0 */
    double *teacher, *student; /* [n] */
} verdict_curve;

/* Time of a call on one system. */
typedef struct verdict_times {
    char system[24];
    double student_us, teacher_us;
} verdict_times;

typedef struct verdict_kept verdict_kept; /* verdict_kept.h */

struct mlff_verdict {
    mlff_verdict_options options;
    char student[128], teacher[128]; /* names */
    mlff_bar bars[VERDICT_MAX_BARS];
    int n_bars;
    bool partial;                                   /* not all are measured */
    char system[24];                                /* being measured, where there are several */
    double force_error[MLFF_MAX_ATOMIC_NUMBER + 1]; /* mean absolute by element, eV/Å; NaN where there is none */
    int unjudged[MLFF_MAX_ATOMIC_NUMBER + 1];       /* [n_unjudged] elements of the student without a force error */
    int n_unjudged;
    verdict_composition *compositions; /* [n_compositions] of the structures that are judged; owned */
    int n_compositions;
    double total_force_error, baseline_force_error; /* of all, eV/Å; NaN */
    double stress_error;                            /* mean absolute of six components, eV/Å³; NaN where none is labelled */
    double teacher_error;  /* mean absolute force of an ensemble that teaches off labels of another method, eV/Å; NaN */
    double teacher_spread; /* mean standard deviation of the members' forces of an ensemble that teaches, eV/Å; NaN */
    verdict_curve curves[2 * VERDICT_MAX_SYSTEMS];
    int n_curves;
    verdict_times times[VERDICT_MAX_SYSTEMS];
    int n_times;
    verdict_kept *kept; /* bars of before, some of whose texts are those of the file; NULL */
    int n_kept;         /* bars that were taken from it */
};

/* What the bars are measured with. */
typedef struct verdict_run {
    mlff_verdict *verdict;
    mlff_evaluator *evaluator;       /* the student's */
    bool has_stress;                 /* the student */
    mlff_force_field student;        /* by that evaluator */
    const mlff_force_field *teacher; /* or NULL */
    const mlff_dataset *test;
    const mlff_system *start;
    int system; /* its number */
} verdict_run;

/* As mlff_verdict_create, with bars of before, if there are any (verdict_kept.h). Takes `kept`, also on failure. */
mlff_status verdict_create(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                           const mlff_system *start, const mlff_verdict_options *options, verdict_kept *kept,
                           mlff_verdict **verdict_out);
/* Adds a bar; a value that is NaN is not measured. */
mlff_bar *verdict_add(mlff_verdict *verdict, const char *name, const char *unit, double value, double uncertainty, double limit,
                      int at_least);
void verdict_say(mlff_bar *bar, const char *format, ...) MLFF_PRINTF(2, 3);
/* Keeps the two as a curve of the system that is being measured. Fails with MLFF_ERR_MEMORY. */
mlff_status verdict_keep(mlff_verdict *verdict, const char *of, double step, const double *teacher, const double *student, int n);
/* MLFF_ERR_INTERRUPTED if the caller asks to stop. */
mlff_status verdict_tell(const verdict_run *run, const char *what, double fraction);

/* The force field has no finite result for a structure or its dynamics: a bar of the student's fails by that, not the verdict. */
static inline bool verdict_of_structure(mlff_status status)
{
    return status == MLFF_ERR_UNSTABLE || status == MLFF_ERR_VALUE;
}

/* Context of a force field: the student's evaluator. */
mlff_status verdict_student_forces(void *context, const mlff_system *system, double *energy, double *forces);
/* Errors on held-out structures, beside the baseline where there is one, and copies of training structures. */
mlff_status verdict_errors(const verdict_run *run, const mlff_model *student);
/* One structure a call, and many, beside the teacher; nothing without a teacher where no speed is asked for. */
mlff_status verdict_speed(const verdict_run *run);
/* NVE drift; bonds at high temperature; repulsion of compressed pairs; distances and spectrum beside the teacher's. */
mlff_status verdict_nve(const verdict_run *run);
mlff_status verdict_hot(const verdict_run *run);
mlff_status verdict_core(const verdict_run *run);
/* Structures in which two atoms are pressed together, beside the teacher. */
mlff_status verdict_pressed(const verdict_run *run);
/* Forces in new dynamics of the student, beside the teacher. */
mlff_status verdict_own_dynamics(const verdict_run *run);
mlff_status verdict_compare(const verdict_run *run);

#endif
