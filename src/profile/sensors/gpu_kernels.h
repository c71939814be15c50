/* SPDX-License-Identifier: MIT */
/* gpu_kernels.h: what the GPU did in some steps after the run: every kernel by name, and where the time of those steps went. */
#ifndef PROFILE_KERNELS_H
#define PROFILE_KERNELS_H

#include "measure/activity.h"
#include "profile/profile.h"
#include "profile/report/json/json.h"

enum { KERNELS_MAX_ROWS = 2048, KERNELS_SHOWN = 24 };

/* One kernel, copy or fill; a step's average. Where two run at once, the time belongs to the one that began first, so
 * that `busy_us` of all rows add up to the time the device was busy. */
typedef struct kernel_row {
    char *name, *stage; /* stage: "forward/message" where it is ours, else a class: "matrix product" */
    double calls, busy_us, sum_us;
} kernel_row;

/* A stage by its kernels and by its own clock, which sees more where kernels of two stages are one, or run side by side.
 * `until_next_us` is from the start of its kernels to the start of the next stage's. */
typedef struct kernel_stage {
    char *name;
    double busy_us, until_next_us, clock_us;
} kernel_stage;

typedef struct kernel_report {
    int64_t n_steps; /* 0: none were traced */
    kernel_row *rows;
    kernel_stage *stages;
    int n_rows, n_stages;
    /* of a traced step, ms; they add up to `step_ms` */
    double step_ms, busy_ms, gap_ms, wait_ms, host_ms, integrate_ms;
    double kernels_us, clocks_us; /* from the first kernel's start to the last one's end; by the stages' own clocks, NaN */
    double usual_ms, after_ms;    /* median of untraced steps right before and right after */
    double open_ms, cost_ms;      /* of opening CUPTI, once; of the window beyond its steps' usual time */
    int64_t n_dropped, n_invalid, n_left_out;
    int64_t cupti_version;
    int64_t n_windows; /* in the run itself, of which this is the last; 0: one after the run */
    double run_share;  /* of the run's time that all of them cost; NaN */
} kernel_report;

void kernel_report_free(kernel_report *report);
mlff_status kernel_report_copy(const kernel_report *report, kernel_report **copy_out);

/* Name of a kernel or a copy; borrowed from the window. */
const char *kernel_name(const activity *window, const activity_record *record);

typedef struct kernel_step {
    int64_t start_ns, end_ns, integrate_ns;
    int64_t before_ns; /* since the end of the step before */
} kernel_step;
/* Fills the report from a window and what is in it: n_steps entries, each of `n_each` steps that follow without a break;
 * what begins at until_ns or later is left out. `callable` names the stages of kernels; NULL: by kind. Fails with
 * MLFF_ERR_MEMORY. */
mlff_status kernels_analyse(kernel_report *report, const activity *window, const kernel_step *steps, int64_t n_steps,
                            int64_t n_each, int64_t until_ns, const mlff_callable *callable);
/* "from the first kernel's start to the last one's end 51.2 µs; the stages' own clocks say 51.0 µs"; "" without clocks. */
void kernels_clock_text(const kernel_report *report, char *text, size_t text_bytes);
/* What listening cost, and what was lost. */
void kernels_cost_text(const kernel_report *report, char *text, size_t text_bytes);
/* gpu_kernels_json.c */
void kernels_write(json *j, const kernel_report *report);
struct cJSON;
/* NULL: there is none. `path` begins error texts. */
mlff_status kernels_read(const char *path, const struct cJSON *object, kernel_report **report_out);

/* ---- budget.c -------------------------------------------------------------------------------- */

/* Where a step went, in rows that are the same for every force field; NaN where it could not be measured. They add up to the step. */
enum { BUDGET_BUSY, BUDGET_GAPS, BUDGET_WAITS, BUDGET_HOST, BUDGET_INTEGRATE, BUDGET_UNATTRIBUTED, N_BUDGET };
extern const char *const budget_names[N_BUDGET];
typedef struct step_budget {
    double ms[N_BUDGET], step_ms;
    double between_ms; /* between two steps: frames, files, samples, the caller; not part of the step; NaN: not known */
    bool traced;       /* of the steps that CUPTI watched */
    bool divided;      /* not traced, but the force field's own stages tell the GPU from the host's calls and waits */
    double usual_ms;   /* of such a step without tracing; NaN if not traced */
} step_budget;
step_budget budget_of(const mlff_profile *profile);
/* Part of a step in which the device works, of a step without tracing, which is shorter; NaN if not known. */
double budget_busy_share(const step_budget *budget);
/* The rows beside the device's work that are not negligible: "launch gaps 5 µs, waits 30 µs, host work 70 µs". */
void budget_rest_text(const step_budget *budget, char *text, size_t text_bytes);
/* How much faster a step is at most without launch gaps, waits and the host's work; the integrator and what is unattributed stay. */
double budget_launch_gain(const step_budget *budget);
/* Who waits for whom on a GPU; "" elsewhere. */
void budget_text(const step_budget *budget, char *text, size_t text_bytes);
/* What kind of kernel a name seems to be: "matrix product"; "other". Static. */
const char *kernel_class(const char *name);

#endif
