/* SPDX-License-Identifier: MIT */
/* mlff_profile.h: measures any force field, of this library or not, and shows where the time of a step goes.
 * Conventions and the error contract: mlff_base.h.
 *
 *   mlff_callable_from_evaluator(evaluator, model, &callable);      or fill in a callable of your own
 *   mlff_trajectory_thermal(system, 300.0, 0, &trajectory);
 *   mlff_profile_run(&callable, trajectory, NULL, &profile);
 *   mlff_profile_save(profile, "report.json"); */
#ifndef MLFF_PROFILE_H
#define MLFF_PROFILE_H

#include "mlff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- clock and timer ------------------------------------------------------------------------- */

/* Monotonic host clock, ns. */
MLFF_API int64_t mlff_clock_ns(void);
/* Smallest step of that clock seen at calibration, and the cost of reading it, ns; either may be NULL. Calibrated once. */
MLFF_API void mlff_clock_calibration(double *quantum_ns, double *read_ns);

/* ---- something to be measured ---------------------------------------------------------------- */

enum { MLFF_ENERGY = 1, MLFF_FORCES = 2, MLFF_STRESS = 4 };

/* Any force field: an evaluator of this library, or a caller's function. `step`, `name` and `properties` are required, all else may be
 * NULL or 0: what lacks one of its parts, as ledgers without names, is left out. Functions are called from the profiling thread. */
typedef struct mlff_callable {
    size_t struct_size; /* sizeof(mlff_callable); fields of a later header are not read */
    const char *name;   /* of the model: "ethanol.safetensors", "MACE-MP-0" */
    const char *device; /* "cpu", "cuda:0"; NULL: "cpu" */
    const char *notes;  /* shown with every report: "untrained" */
    void *context;
    unsigned properties; /* MLFF_ENERGY | …: what `step` can be asked for */

    /* Computes `wanted` of the frame and returns when the results are there (devices synchronized).
     * energy: 1 value, forces: [n_atoms][3], stress: [6]; a NULL pointer is not wanted as a value. MD needs forces. */
    mlff_status (*step)(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress);

    /* Stages of the step: a fixed list, clocks switched on or off, times of the last step in ns. */
    int n_stages;
    const mlff_stage *stages;
    mlff_status (*stage_clock_set)(void *context, int on);
    void (*stage_times)(void *context, double *time_ns);

    /* Memory counters beside those measured for every process (resident, heap): bytes now. On a device other than
     * the CPU, those whose name begins with "device" count as memory of the run. */
    int n_ledgers;
    const char *const *ledger_names;
    void (*ledgers)(void *context, int64_t *bytes);

    /* What the step worked on: pairs, rebuilds of the list and growths of buffers so far; -1 where unknown. */
    void (*counters)(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths);

    /* Releases what `context` holds; called by mlff_callable_destroy. */
    void (*destroy)(void *context);

    /* When the stages of the last step ran, in order of time, by mlff_clock_ns; the number of spans, at most `capacity`. */
    int (*stage_spans)(void *context, mlff_stage_span *spans, int capacity);

    /* Time that the caller's runtime has paused the program for so far, ns, which the caller counts on: Python's garbage
     * collector. NULL: none is known. */
    const int64_t *paused_ns;

    /* What the force field says of its stages, by index: what makes a stage faster (NULL or "": not known), its least work for a
     * batch (0: not described), and the stage that a GPU kernel belongs to, as "forward/message" (NULL: not known). */
    const char *(*stage_advice)(void *context, int stage);
    int (*stage_work)(void *context, int stage, const mlff_work_size *size, mlff_stage_work *work_out);
    const char *(*kernel_stage)(void *context, const char *kernel);

    /* Of a force field on several devices (NULL: one device), as mlff_evaluator_domains and mlff_evaluator_domain_stage_times. */
    int (*domains)(void *context, mlff_domain_info *domains, int capacity);
    void (*domain_stage_times)(void *context, int domain, double *time_ns);

    /* Frees what the caller's runtime holds though nothing refers to it: Python's garbage collector. Called once after the last step,
     * so that memory which grew until the next collection is not called a leak. NULL: there is nothing of this kind. */
    void (*collect)(void *context);
} mlff_callable;

/* An evaluator (borrowed: it must outlive the callable) and its model. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_callable_from_evaluator(mlff_evaluator *evaluator, const mlff_model *model,
                                                  mlff_callable *callable_out);
MLFF_API void mlff_callable_destroy(mlff_callable *callable);

/* ---- benchmark: one function, many calls ------------------------------------------------------- */

/* Statistics of times, ns; percentiles by linear interpolation between order statistics (NumPy's default). */
typedef struct mlff_statistics {
    int64_t n;
    double mean, median, std, min, max, p95, p99; /* std with n - 1 */
    double cv;                                    /* std / mean, 0..1 */
    int64_t n_outliers;                           /* beyond Tukey's outer fences (3 IQR): labelled, never dropped */
    double fence_low, fence_high;                 /* those fences */
} mlff_statistics;
/* Fails with MLFF_ERR_USAGE for n below 1, MLFF_ERR_VALUE for a number that is not finite, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_statistics_of(const double *values, int64_t n, mlff_statistics *statistics_out);

/* Calls function(context) n_warmup + n_calls times; times_ns[n_calls] gets the times of the last n_calls, and statistics_out theirs.
 * Either may be NULL. A call that fails ends it. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY, and as the function does. */
MLFF_API mlff_status mlff_benchmark(mlff_status (*function)(void *context), void *context, int64_t n_warmup, int64_t n_calls,
                                    double *times_ns, mlff_statistics *statistics_out);

/* Bytes of this process; -1 where the system does not tell. */
typedef struct mlff_process_memory {
    int64_t resident_bytes;
    int64_t heap_bytes; /* in use by malloc */
    int64_t peak_bytes; /* highest resident so far */
} mlff_process_memory;
MLFF_API void mlff_process_memory_get(mlff_process_memory *memory_out);

/* ---- trajectories ---------------------------------------------------------------------------- */

/* Where the frames of a profile come from. */
typedef struct mlff_trajectory mlff_trajectory;
/* Thermal displacements of a system (mlff_vibrator), independent at each step. The system is copied. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_VALUE, MLFF_ERR_ELEMENT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_trajectory_thermal(const mlff_system *system, double temperature_kelvin, uint64_t seed,
                                             mlff_trajectory **trajectory_out);
/* MD driven by the measured force field itself; the integrator's time is part of the step. The system is copied, and given
 * velocities of the options' temperature if it has none. Fails with MLFF_ERR_USAGE, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_trajectory_md(const mlff_system *system, const mlff_dynamics_options *options,
                                        mlff_trajectory **trajectory_out);
/* Frames of a file, from the start again when they end; read outside the timed step. Fails with MLFF_ERR_UNSUPPORTED for standard
 * input, MLFF_ERR_IO, and as mlff_reader_next on the first frame. */
MLFF_API mlff_status mlff_trajectory_file(const char *path, mlff_trajectory **trajectory_out);
/* As mlff_trajectory_file, with the format of mlff_reader_open and the topology of mlff_reader_set_topology, which is copied; both may be
 * NULL. Fails as these. */
MLFF_API mlff_status mlff_trajectory_file_with(const char *path, const char *format, const mlff_system *topology,
                                               mlff_trajectory **trajectory_out);
/* Frames given in memory, cycled; copied. Fails with MLFF_ERR_USAGE, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_trajectory_frames(const mlff_system *const *frames, int n_frames, mlff_trajectory **trajectory_out);
MLFF_API void mlff_trajectory_destroy(mlff_trajectory *trajectory);

/* ---- profile --------------------------------------------------------------------------------- */

typedef struct mlff_profile_options {
    size_t struct_size;
    int64_t n_steps;      /* 100, measured after the warm-up */
    int64_t n_warmup;     /* 10 */
    unsigned properties;  /* MLFF_ENERGY | MLFF_FORCES */
    int64_t memory_every; /* 10: steps between memory samples (thinned to stay bounded) */
    int stages;           /* 1: measure stages if the callable has them */
    int split;            /* 1: after the run, measure energy-only steps against steps with forces (and stress) */
    double timestep_fs;   /* for ns/day; NaN: the trajectory's own, or 1 fs */
    const char *name;     /* of the profile; NULL: "<model> <system>" */
    const char *notes;    /* added to the callable's, or NULL */
    /* Called between steps with steps done so far (negative: warm-up); a return other than 0 ends the run
     * cleanly: the profile is marked partial and mlff_profile_run returns MLFF_ERR_INTERRUPTED with it. */
    int (*progress)(void *context, int64_t step, int64_t n_steps);
    void *progress_context;
    double until_precision; /* 0: off; 0.01: ends before n_steps once the percentile below is known within ±1 % (at 95 %) */
    double precision_of;    /* 0.5: the median; 0.95, 0.99 */
    const char *trace_path; /* the first steps as a Chrome trace (Perfetto, TensorBoard); NULL: none */
    int64_t trace_steps;    /* 200 */
    int overhead;           /* 1: after the run, measure what measuring costs, by blocks of steps with and without */
    int64_t kernels;        /* 0: steps after the run in which every kernel on the GPU is named and timed; 20 tell enough */
} mlff_profile_options;
MLFF_API mlff_profile_options mlff_profile_options_default(void);

typedef struct mlff_profile mlff_profile;
/* Measures. A step that fails ends the run; if steps were measured before it, *profile_out holds them, marked partial,
 * beside the error status; else it is left alone. Fails with MLFF_ERR_USAGE for options out of range, MLFF_ERR_UNSUPPORTED
 * for properties that the callable does not have, MLFF_ERR_INTERRUPTED, MLFF_ERR_MEMORY, MLFF_ERR_IO (the trace), and as the
 * callable and the trajectory do. */
MLFF_API mlff_status mlff_profile_run(const mlff_callable *callable, mlff_trajectory *trajectory,
                                      const mlff_profile_options *options, mlff_profile **profile_out);
MLFF_API void mlff_profile_destroy(mlff_profile *profile);

/* One stage's share; "unattributed" is the last row, "integrate" one of them where there is MD. */
typedef struct mlff_profile_stage {
    const char *name;  /* "message" */
    const char *phase; /* "forward" */
    int layer;         /* -1 */
    double mean_ms, median_ms, p95_ms;
    double share;   /* of the mean step, 0..1 */
    int is_hotspot; /* share > 0.10 */
} mlff_profile_stage;

/* Verdict on one target. */
typedef struct mlff_profile_verdict {
    const char *target; /* "P95 < 2 × mean" */
    double value, limit;
    const char *unit;
    int passed;       /* 1 yes, 0 no, -1 does not apply (the text says why) */
    const char *text; /* one line for people */
} mlff_profile_verdict;

typedef struct mlff_profile_summary {
    const char *name, *model_name, *device, *system_size, *timestamp, *notes;
    int n_atoms; /* of the first frame */
    int64_t n_steps, n_warmup;
    int partial;
    mlff_statistics latency_ms; /* all fields in ms */
    double warmup_first_ms, warmup_mean_ms;
    double energy_time_ms, forces_time_ms, stress_time_ms; /* NaN where not measured */
    double memory_initial_gb, memory_final_gb, memory_peak_gb,
        memory_delta_gb; /* 2^30 bytes; host resident, plus device ledgers on a GPU; NaN where not measured */
    double heap_initial_gb, heap_final_gb;
    int memory_stable; /* growth < 10 MB; -1 where not measured */
    double total_time_s, steps_per_second, us_per_atom, ns_per_day;
    double mean_pairs;  /* -1 where unknown */
    int64_t n_rebuilds; /* -1 where unknown */
} mlff_profile_summary;
/* Everything below is borrowed until the profile is destroyed. */
MLFF_API void mlff_profile_summary_get(const mlff_profile *profile, mlff_profile_summary *summary_out);
MLFF_API const mlff_profile_stage *mlff_profile_stages(const mlff_profile *profile, int *n_out);
MLFF_API const mlff_profile_verdict *mlff_profile_verdicts(const mlff_profile *profile, int *n_out);
/* Ledgers of this process whose growth is a leak: steady, not explained by atoms or pairs, not fragmentation. */
MLFF_API int mlff_profile_leaks(const mlff_profile *profile);
/* Part of the time of steps in which a thread of the process waited for a CPU, 0..1; NaN where not known. Above 0.05 the times
 * say little about the force field. */
MLFF_API double mlff_profile_cpu_wait(const mlff_profile *profile);
/* Sentences: what was seen, in which stage, and advice. */
MLFF_API const char *const *mlff_profile_recommendations(const mlff_profile *profile, int *n_out);

/* The report as JSON, one object; its keys: profiling_reports/README.md. Fails with MLFF_ERR_IO,
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_save(const mlff_profile *profile, const char *path);
/* The same as text; free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_json(const mlff_profile *profile, char **text_out);
/* Reads such a file. Fails with MLFF_ERR_IO, MLFF_ERR_FORMAT, MLFF_ERR_LIMIT, MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_load(const char *path, mlff_profile **profile_out);
/* Several runs in one file, {"runs": […]}; a file of one profile is one run. Fails with MLFF_ERR_IO, MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_save_runs(const mlff_profile *const *profiles, int n_profiles, const char *path);
/* Reads such a file; the profiles are released by mlff_profile_destroy_runs. A file that mlff_profile_save_rank wrote for rank
 * 0 brings those of the other ranks. Fails as mlff_profile_load. */
MLFF_API mlff_status mlff_profile_load_runs(const char *path, mlff_profile ***profiles_out, int *n_out);
MLFF_API void mlff_profile_destroy_runs(mlff_profile **profiles, int n_profiles);
/* Profiles of the processes of one run over MPI, each in a file of its own: `path` for rank 0, "run.rank3.json" beside "run.json" for
 * rank 3. The profile's n_atoms are those that the process owns; n_ghosts: -1 where it is not known. One of a single rank is saved as by
 * mlff_profile_save. Fails with MLFF_ERR_USAGE, MLFF_ERR_LIMIT, MLFF_ERR_IO, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_save_rank(mlff_profile *profile, const char *path, int rank, int n_ranks, int64_t n_ghosts);
/* That path. Fails with MLFF_ERR_USAGE, MLFF_ERR_LIMIT. */
MLFF_API mlff_status mlff_profile_rank_path(const char *path, int rank, char *text, size_t text_bytes);
/* The ranks in a table, and whether one computes longer than the others; "" where the profiles are not all ranks of one run, in their
 * order. Pages of them have the same. `width` columns (0: 100). Free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_ranks_text(const mlff_profile *const *profiles, int n_profiles, int width, char **text_out);
/* The object "hotspots" of that JSON with another threshold (percent of the mean step; 10 in the report): total_time_ms,
 * components {name: {time_ms, percentage, is_hotspot}}. Free with mlff_text_free. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_hotspots_json(const mlff_profile *profile, double threshold_pct, char **text_out);
/* The report on one screen, some 20 to 30 lines: the numbers, one bar of the step's parts, three reasons, targets that are missed,
 * what to do first. `width` columns (0: 100). UTF-8. Free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_text_short(const mlff_profile *profile, int width, char **text_out);
/* The whole report: tables, shares, verdicts, recommendations. Free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_text(const mlff_profile *profile, int width, char **text_out);
/* A page for a browser: one file that needs no network, with charts where this build has a plotting library (the page says
 * if not), readable on a phone and on paper. `title` NULL: the first profile's name. Free with mlff_text_free. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_html(const mlff_profile *const *profiles, int n_profiles, const char *title, char **text_out);
/* The same with the first n_first profiles compared with the others, or with why they are not comparable. Free with mlff_text_free.
 * Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_html_compared(const mlff_profile *const *profiles, int n_profiles, int n_first,
                                                const char *title, char **text_out);
MLFF_API void mlff_text_free(char *text);

/* ---- always on ------------------------------------------------------------------------------- */

/* A whole MD run of the caller's, profiled as it goes, in memory that does not grow: every step is timed; stages, counters
 * and what the system did are looked at in short blocks, and blocks with and without tell what that costs.
 *
 *   mlff_monitor_create(&callable, system, 0.5, 100, &monitor);
 *   mlff_dynamics_create(&options, system, mlff_monitor_forces, monitor, &dynamics);
 *   for (int64_t k = 0; k < n_steps; k++) mlff_monitor_step(monitor, dynamics);
 *   mlff_monitor_profile(monitor, "production", NULL, &profile); */
typedef struct mlff_monitor mlff_monitor;
/* The callable's context and the system are borrowed until the monitor is destroyed. memory_every: steps between samples.
 * Fails with MLFF_ERR_USAGE, MLFF_ERR_UNSUPPORTED, MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
MLFF_API mlff_status mlff_monitor_create(const mlff_callable *callable, const mlff_system *system, double timestep_fs,
                                         int64_t memory_every, mlff_monitor **monitor_out);
MLFF_API void mlff_monitor_destroy(mlff_monitor *monitor);
/* The callable as MD's force function (mlff_force_function); the context is the monitor. Fails as the callable does. */
MLFF_API mlff_status mlff_monitor_forces(void *monitor, const mlff_system *system, double *energy, double *forces);
/* The same with the virial (mlff_virial_function), for mlff_dynamics_virial_set at constant pressure. Fails with MLFF_ERR_UNSUPPORTED
 * for a callable without stress. */
MLFF_API mlff_status mlff_monitor_virial(void *monitor, const mlff_system *system, double *energy, double *forces,
                                         double *virial);
/* mlff_dynamics_step, timed. Fails as mlff_dynamics_step. */
MLFF_API mlff_status mlff_monitor_step(mlff_monitor *monitor, mlff_dynamics *dynamics);
/* A step that another program makes, as LAMMPS does: calls function(context) once, timed. Stages and counters are the callable's, whose
 * `step` is not called; the report has no integrator, as what the program does between the calls is not part of a step. A monitor takes
 * either these or steps of a dynamics. Fails as the function does, and as the callable's stage_clock_set. */
MLFF_API mlff_status mlff_monitor_call(mlff_monitor *monitor, mlff_status (*function)(void *context), void *context);
/* mlff_dynamics_run, timed. Where the atoms stay on a GPU (mlff_dynamics_create_on), each step's time is that of the GPU's
 * own timer, and stages are seen in the last one before each sample of memory. Fails as mlff_dynamics_run, and with
 * MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_monitor_run(mlff_monitor *monitor, mlff_dynamics *dynamics, int64_t n_steps);
/* Windows of n_steps (20 tell enough; 0: none) in which every kernel on the GPU is named and timed, in mlff_monitor_run: so
 * seldom that they cost no more than 0.2 % of the run's time; the first one after a second or so. Fails with MLFF_ERR_USAGE. */
MLFF_API mlff_status mlff_monitor_kernels(mlff_monitor *monitor, int64_t n_steps);
/* What was measured so far, of at least one step; the run may go on. Where several GPUs make the steps it is the profile of the
 * first one alone; mlff_monitor_save writes those of all. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_monitor_profile(mlff_monitor *monitor, const char *name, const char *notes, mlff_profile **profile_out);
/* Writes it. Where several GPUs made the steps each has a file, as a rank of mlff_profile_save_rank. Fails with MLFF_ERR_USAGE,
 * MLFF_ERR_MEMORY, MLFF_ERR_IO. */
MLFF_API mlff_status mlff_monitor_save(mlff_monitor *monitor, const char *name, const char *notes, const char *path);

/* ---- comparison ------------------------------------------------------------------------------ */

/* Two groups of runs of the same work on the same machine. A run is one number, its median step: steps of one run are
 * not independent, runs (each a process of its own) are. Ratios are those of Hodges and Lehmann, which an outlier does not
 * move, intervals and p those of the exact rank-sum test. Four runs a side can tell something at the 5 % level; with
 * fewer, blocks of steps replace runs, and only a measured noise floor makes that an answer. */
typedef enum mlff_change { MLFF_UNCLEAR = 0, MLFF_SAME = 1, MLFF_FASTER = 2, MLFF_SLOWER = 3 } mlff_change;

typedef struct mlff_comparison_options {
    size_t struct_size;
    double noise_floor; /* 0.01 = 1 %; changes below it are never called faster or slower. NaN: 1 %, not measured */
    double margin;      /* 0.01: "same" means that the whole interval lies within it */
    int across;         /* 1: compare also what is not comparable (another machine, other work); it is said */
    int paired;         /* 1: run i of one group was measured beside run i of the other; six pairs can tell something */
} mlff_comparison_options;
MLFF_API mlff_comparison_options mlff_comparison_options_default(void);

typedef struct mlff_comparison_row {
    const char *name;        /* "step", "forward/message/0" */
    double a_ms, b_ms;       /* mean over runs of the medians */
    double ratio, low, high; /* b over a, and its interval at 95 %; 0 and infinity where it cannot be told */
    double p;                /* two-sided: of the step and the metrics by exact ranks, of a stage by the bootstrap */
    mlff_change change;      /* of a stage: with Holm's correction over the stages */
    int runs_needed;         /* runs a side with which this row could be told; 0: enough */
} mlff_comparison_row;

typedef struct mlff_comparison mlff_comparison;
/* Fails with MLFF_ERR_VALUE, and says what differs, if the groups are not comparable, MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_compare(const mlff_profile *const *a, int n_a, const mlff_profile *const *b, int n_b,
                                          const mlff_comparison_options *options, mlff_comparison **comparison_out);
MLFF_API void mlff_comparison_destroy(mlff_comparison *comparison);
/* Row 0 is the step (the median). Borrowed until the comparison is destroyed. */
MLFF_API const mlff_comparison_row *mlff_comparison_rows(const mlff_comparison *comparison, int *n_out);
/* Judged apart from it: "mean" (and with it ns/day), "P95", "P99". Borrowed as above. */
MLFF_API const mlff_comparison_row *mlff_comparison_metrics(const mlff_comparison *comparison, int *n_out);
/* Of median and mean together: faster or slower if one of them is and the other is not the opposite. */
MLFF_API mlff_change mlff_comparison_verdict(const mlff_comparison *comparison);
/* The same judgement for any positive numbers measured in two groups, one a run or a round. `row_out` has no name. Fails with
 * MLFF_ERR_USAGE, MLFF_ERR_VALUE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_compare_values(const double *a, int n_a, const double *b, int n_b,
                                         const mlff_comparison_options *options, mlff_comparison_row *row_out);
/* "B is SLOWER than A (+2.13 %, between +1.70 % and +2.61 % at 95 %)" */
MLFF_API void mlff_comparison_row_text(const mlff_comparison_row *row, const char *name_a, const char *name_b, char *text,
                                       size_t text_bytes);
/* Smallest change that these runs find with 90 % power, 0.02 = 2 %; infinite where none. */
MLFF_API double mlff_comparison_detectable(const mlff_comparison *comparison);
/* The comparison for a terminal and as JSON; free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_comparison_text(const mlff_comparison *comparison, char **text_out);
MLFF_API mlff_status mlff_comparison_json(const mlff_comparison *comparison, char **text_out);

/* ---- implementations side by side ---------------------------------------------------------------------------------- */

/* Several implementations of one force field (or several force fields) on the same new frames, interleaved, with their
 * energies and forces compared with the first one's, and against labels where frames have them. */
typedef struct mlff_implementations_options {
    size_t struct_size;
    int n_rounds;            /* 20; ratios are taken within a round */
    int n_frames;            /* 5 new frames a round */
    int64_t n_warmup;        /* 3 frames */
    double energy_tolerance; /* 1e-4 eV/atom */
    double force_tolerance;  /* 1e-3 eV/Å, or that times the root mean square of forces if this is over 1 eV/Å */
    double noise_floor;      /* 0.01 */
    int (*progress)(void *context, int64_t round, int64_t n_rounds);
    void *progress_context;
    const int
        *models; /* [n_callables] a number for each: results of another model than the first one's are not judged. NULL: one */
} mlff_implementations_options;
MLFF_API mlff_implementations_options mlff_implementations_options_default(void);

typedef struct mlff_implementation {
    const char *name, *device, *notes; /* as the callable has them; "" where it has none */
    double median_ms;
    double ratio, low, high; /* to the first, and its interval at 95 % within this process */
    mlff_change change;
    int agrees;                       /* with the first, within the tolerances; -1: another model, not judged */
    double energy_difference;         /* largest, eV/atom */
    double force_difference;          /* largest of a component, eV/Å; infinite where something was not a number */
    double energy_shift;              /* mean difference from the first, eV/atom */
    double energy_rms;                /* root mean square of what differs beyond that, eV/atom */
    double force_rms;                 /* root mean square of components' differences, eV/Å */
    double energy_error, force_error; /* mean absolute ones to labels, eV/atom and eV/Å; NaN without labels */
} mlff_implementation;

typedef struct mlff_implementations mlff_implementations;
/* Measures all of them. Fails with MLFF_ERR_USAGE, MLFF_ERR_UNSUPPORTED, MLFF_ERR_INTERRUPTED (after six rounds and more
 * *implementations_out holds those), MLFF_ERR_MEMORY, and as the callables and the trajectory do. */
MLFF_API mlff_status mlff_profile_implementations(const mlff_callable *callables, int n_callables, mlff_trajectory *trajectory,
                                                  const mlff_implementations_options *options,
                                                  mlff_implementations **implementations_out);
MLFF_API void mlff_implementations_destroy(mlff_implementations *implementations);
/* Borrowed until the implementations is destroyed. */
MLFF_API const mlff_implementation *mlff_implementations_rows(const mlff_implementations *implementations, int *n_out);
/* One that failed, what follows ("is left out") and why, for the JSON. */
typedef struct mlff_implementation_failure {
    const char *name, *consequence, *problem;
} mlff_implementation_failure;

/* The result for a terminal and as JSON, with n_failures failures; free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_implementations_text(const mlff_implementations *implementations, char **text_out);
MLFF_API mlff_status mlff_implementations_json(const mlff_implementations *implementations,
                                               const mlff_implementation_failure *failures, int n_failures, char **text_out);
/* A page as mlff_profile_html's that begins with the comparison: speeds, energies along the frames, forces against the first
 * one's. `profiles` of the implementations follow; there may be none. `title` may be NULL. Free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_implementations_html(const mlff_implementations *implementations, const mlff_profile *const *profiles,
                                               int n_profiles, const char *title, char **text_out);

/* ---- scaling and forecasts ------------------------------------------------------------------- */

/* How the step and memory grow with atoms, from profiles of several sizes: max(floor, a + b·N). */
typedef struct mlff_scaling {
    int n_sizes;
    double exponent, exponent_low,
        exponent_high; /* of the larger half, of four sizes and fewer of all; the interval at 95 %, NaN with fewer than three */
    double floor_ms;   /* 0: none seen */
    double a_ms, b_us; /* b: µs an atom; 0 where the step does not grow with the number of atoms, and takes floor_ms */
    double crossover_atoms; /* where the floor ends; 0: no floor */
    double fit_error;       /* typical relative error of the fit */
    double bytes_per_atom;  /* NaN where memory does not follow atoms */
    double max_atoms;       /* that free memory holds; -1: not known */
} mlff_scaling;
/* Fails with MLFF_ERR_VALUE for fewer than two different sizes, MLFF_ERR_USAGE for NULL. */
MLFF_API mlff_status mlff_profile_scaling(const mlff_profile *const *profiles, int n_profiles, mlff_scaling *scaling_out);
/* The fit for a terminal; free with mlff_text_free. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_scaling_text(const mlff_scaling *scaling, char **text_out);

/* What a step would take if stages were faster (Amdahl): "message=2x,readout=0,backward/update=1.5x". A name is a stage's
 * ("message": all layers and phases), with its phase or its whole path; 0 means free. *text_out is one line for people; free with
 * mlff_text_free. `step_ms_out` may be NULL. Fails with MLFF_ERR_USAGE, MLFF_ERR_MEMORY. */
MLFF_API mlff_status mlff_profile_what_if(const mlff_profile *profile, const char *changes, double *step_ms_out, char **text_out);
/* Checks such a list before anything is measured. Fails with MLFF_ERR_USAGE if it is malformed or names no stage of the
 * callable. */
MLFF_API mlff_status mlff_profile_what_if_check(const mlff_callable *callable, const char *changes);

/* Sizes of the structs of this header in this build, by name ("mlff_callable"); 0 if unknown. Others: mlff_abi_size. */
MLFF_API size_t mlff_profile_abi_size(const char *struct_name);

#ifdef __cplusplus
}
#endif
#endif
