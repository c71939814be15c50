/* SPDX-License-Identifier: MIT */
/* profile.h: what the files of this folder share: the trajectory, the record of a run, and which file fills which part of it.
 *
 *   callable + trajectory ─ profile.c ─> record (times, stages, memory) ─ hotspots.c, verdicts.c ─> findings
 *   record <─ report_load.c ─ JSON ─ report_json.c <─ record ─ report_text.c ─> terminal */
#ifndef PROFILE_H
#define PROFILE_H

#include "measure/measure.h"

/* ---- trajectory.c ---------------------------------------------------------------------------- */

/* Goes back to the first frame, so that several runs see the same ones. For MD `forces` drives the motion. */
mlff_status trajectory_start(mlff_trajectory *trajectory, mlff_force_function forces, void *context);
/* Prepares the next frame, outside of any timing; borrowed until the next call. For MD the frame as it is now. */
mlff_status trajectory_next(mlff_trajectory *trajectory, const mlff_system **frame_out);
/* True for MD: a step is then trajectory_integrate, which calls the forces. */
bool trajectory_is_md(const mlff_trajectory *trajectory);
mlff_status trajectory_integrate(mlff_trajectory *trajectory);
/* NaN where there is none. */
double trajectory_timestep_fs(const mlff_trajectory *trajectory);
/* "thermal", "md", "file", "frames" */
const char *trajectory_kind(const mlff_trajectory *trajectory);

/* ---- the record ------------------------------------------------------------------------------ */

enum {
    TAG_REBUILD = 1,     /* the neighbor list was rebuilt */
    TAG_GROWTH = 2,      /* a buffer grew */
    TAG_PREEMPTED = 4,   /* another process or thread took a core */
    TAG_FAULTS = 8,      /* memory was touched for the first time */
    TAG_CLOCK = 16,      /* the core ran slower just after the step */
    TAG_FILES = 32,      /* files were read or written */
    TAG_COMPILED = 64,   /* code was compiled or loaded */
    TAG_ALLOCATED = 128, /* memory was allocated */
    TAG_CHILD = 256      /* a child process ended */
};
enum { N_TAGS = 9, N_BOUNDS = 3 };
extern const char *const profile_tag_names[N_TAGS];
extern const char *const profile_leak_names[N_LEAK_KINDS];

enum { PROFILE_SCHEMA_VERSION = 1, PROFILE_MAX_STAGES = 4096 };

/* Where the time went that steps took beyond the median. The first N_TAGS are those of the tags. */
enum profile_cause {
    CAUSE_REBUILD,
    CAUSE_GROWTH,
    CAUSE_CPU_WAIT, /* ready to run, and no CPU */
    CAUSE_FAULTS,
    CAUSE_CLOCK,
    CAUSE_FILES,
    CAUSE_COMPILED,
    CAUSE_ALLOCATED,
    CAUSE_CHILD,
    CAUSE_PAUSE,   /* Python's garbage collector */
    CAUSE_THREADS, /* blocked while other threads of the process ran */
    CAUSE_BLOCKED, /* blocked, and nothing of this process ran: sleep, lock, device, another machine */
    CAUSE_WORK,    /* more computation than in other steps */
    CAUSE_DEVICE_BUSY,
    CAUSE_DEVICE_QUEUE,
    CAUSE_ENQUEUE, /* the host's calls around the GPU's work */
    UNKNOWN_CAUSE,
    N_CAUSES
};
typedef struct profile_tail {
    double threshold_ms, median_ms; /* P99 */
    int64_t n_steps;                /* kept one by one that took 1.3 × the median or more */
    int64_t n_by_cause[N_CAUSES];   /* those of which this cause took the largest part */
    double excess_ms[N_CAUSES];     /* beyond the median, summed over all steps that are kept */
    double each_ms[N_CAUSES];       /* median, of the steps that this cause made slow */
    int64_t period[N_CAUSES];       /* they come every so many steps; 0: not regularly */
    double share;                   /* of the time of all steps: the sum of excess_ms */
    double stretch;                 /* a thread's wall time over its processor time where it is never blocked; 0: not known */
    double cpu_wait_share;          /* of the time of all steps: a thread of the process waited for a CPU; NaN: not known */
    double team_cores;              /* cores that the other threads of the process used in steps, at most; NaN: not known */
    double program_cores;           /* cores that other programs used, of those that the process may use; NaN: not known */
    double off_share;     /* of a step, median: its thread neither ran nor waited for a CPU; NaN: not known of all steps */
    bool virtual_machine; /* its host may take CPUs, unseen */
    double cpu_rise;      /* steady_rise of the processor time of steps, which waits do not change; NaN: not known */
    double pace_rise;     /* of the time that fixed arithmetic takes, from the first step to the last; NaN: not known */
    double queue_ms, queue_least_ms; /* waits for a GPU, of steps: mean and second percentile; NaN: not known */
} profile_tail;

typedef struct profile_ledger {
    char *name;
    int64_t initial_bytes, final_bytes, peak_bytes;
    leak_verdict leak; /* slopes are bytes per step here */
    double *samples;   /* [n_samples] bytes, at the steps of memory_gb; NULL where a file has none */
    int n_samples;
} profile_ledger;

/* Two steps whose stages are kept one by one: the one nearest to the median, and the slowest. */
enum { EXAMPLE_MEDIAN, EXAMPLE_SLOW, N_EXAMPLES };
extern const char *const profile_example_names[N_EXAMPLES];
typedef struct profile_example {
    int64_t step; /* -1: not kept */
    double ms;
} profile_example;

enum { STAGE_BLOCKS = 40 };
typedef struct profile_stage {
    mlff_profile_stage shown; /* strings are the fields below */
    char *name, *phase, *includes;
    char *advice;                   /* what makes it faster, as the force field says; "" where it does not */
    double blocks_ms[STAGE_BLOCKS]; /* means of equal parts of the run */
    double example_ms[N_EXAMPLES];  /* in those steps; 0 where they are not kept */
    int n_blocks;                   /* STAGE_BLOCKS, or 0: not known */
    double flops, bytes, bound_ms;  /* least work of the stage, and the least time for it here; 0 where not known */
    double resident_bytes;          /* of the arrays that the work involves; not kept in files */
    bool bound_by_memory;
} profile_stage;

struct mlff_profile {
    mlff_profile_summary summary; /* strings are the fields below */
    char *name, *model_name, *device, *system_size, *timestamp, *notes, *trajectory;
    double mean_atoms;  /* of the steps; 0 where all have the same number */
    double first_pairs; /* pairs in the first tenth of the steps, in those of the last quarter; NaN: not known */

    double *latency_ms; /* [n_latency]; entry i is of one of the latency_every steps from i * latency_every on */
    int64_t n_latency, latency_every;
    series_slow slowest[SERIES_SLOWEST]; /* values in ms */
    int slowest_cause[SERIES_SLOWEST];
    int n_slowest;
    int64_t n_tagged[N_TAGS]; /* steps, of all, in which each was seen */
    profile_tail tail;
    double rebuild_median_ms, other_median_ms; /* of steps with a rebuild of the list, and without; NaN where there are none */
    double wall_time_s;                        /* of the measured part, frames and sampling included */
    double timestep_fs;                        /* NaN: not known, ns/day is for 1 fs */
    int64_t n_growths;                         /* of buffers during the measured steps; -1 where unknown */
    int64_t n_not_finite;                      /* steps whose energy was NaN or infinite */

    double *memory_gb; /* [n_memory]; entry i is of step i * memory_every */
    int64_t n_memory, memory_every;
    int64_t available_bytes; /* of host memory when the run ended; -1: not known */
    profile_ledger *ledgers;
    int n_ledgers;

    profile_stage *stages;
    int n_stages;
    profile_example examples[N_EXAMPLES];
    bool stages_measured;             /* by the force field's own clocks; else rows come from the split */
    mlff_profile_stage *shown_stages; /* [n_stages] what mlff_profile_stages hands out */

    struct kernel_report *kernels; /* gpu_kernels.h; NULL: not traced */
    struct energy_report *energy;  /* energy.h; NULL: a file without */

    environment environment, workload, implementation; /* workload: what was computed; implementation: by what */
    ceilings ceilings;                                 /* of this machine; n_threads 0: not measured */
    double quantum_ns, read_ns;
    double overhead_ns, overhead_low_ns, overhead_high_ns; /* of measuring, a step; NaN: not measured */

    /* Derived from the above by profile_derive. */
    steady_state steady;                            /* `first` is a step; of the steady part: */
    double steady_mean_ms, before_s, before_cost_s; /* before_s: time of the steps before it; before_cost_s: beyond steady ones */
    percentile_bounds bounds[N_BOUNDS];             /* ms, by profile_bound_names */
    mlff_profile_verdict *verdicts;
    int n_verdicts;
    char **recommendations;
    int n_recommendations;
    char heaviest[256]; /* stages, "forward/message 41 %, backward/message 30 %", or "" */
    double heaviest_share;
};

/* record.c: an empty record; NaN and -1 where nothing is known. */
mlff_status profile_new(mlff_profile **profile_out);
/* Replaces a text; value may be NULL for "". */
mlff_status profile_set(char **text, const char *value);
/* Adds "; text" to the notes; NULL and "" add nothing. */
mlff_status profile_add_notes(mlff_profile *profile, const char *text);
mlff_status profile_note(mlff_profile *profile, const char *format, ...) MLFF_PRINTF(2, 3);
/* Appends a row. */
mlff_status profile_add_stage(mlff_profile *profile, const mlff_stage *stage, const mlff_statistics *time_ms);
/* Forces add next to nothing to an energy-only step: both are computed at once. */
static inline bool profile_is_one_shot(const mlff_profile *profile)
{
    return profile->summary.forces_time_ms < 0.1 * profile->summary.energy_time_ms; /* false where one is NaN */
}
/* Rows energy, forces, stress, where the force field's own stages were not measured: the median step without what is outside of the
 * force field (the integrator), in the proportions of the split, which is measured after the run, when the machine may be faster or
 * slower. NULL where that is not known: the split as it is, up to the median step. Means of the rows are at most what the mean step
 * leaves. */
mlff_status profile_add_split(mlff_profile *profile, const mlff_statistics *outside_ms);
/* The last row: its mean is by definition what the others leave of the step; so is its median where it was not measured (NaN), so that
 * slow steps do not count as a part of all steps. */
mlff_status profile_add_unattributed(mlff_profile *profile, double median_ms, double p95_ms);
/* Atoms of a step on average. */
double profile_atoms(const mlff_profile *profile);
/* Fills summary, shares, verdicts and recommendations from what was measured or read. Called once. */
mlff_status profile_derive(mlff_profile *profile);
bool profile_untrained(const mlff_profile *profile);

/* "forward/message/0" into text of text_bytes. */
void profile_stage_path(const profile_stage *stage, char *text, size_t text_bytes);

/* identity.c: fills workload and implementation; `frame` is the first one. */
mlff_status identity_collect(mlff_profile *profile, const mlff_callable *callable, const mlff_system *frame, unsigned properties);
/* Name of the first key in which two differ, and the values, into text; false if they are the same. */
bool identity_difference(const mlff_profile *a, const mlff_profile *b, char *text, size_t text_bytes);
/* callable.c: if the callable is one of our evaluators, adds what its model and evaluator are. */
mlff_status callable_describe(const mlff_callable *callable, environment *workload, environment *implementation);

/* report_load.c: a record from JSON text (terminated with a 0 that `length` does not count); `path` begins error texts. */
mlff_status profile_parse(const char *path, const char *text, size_t length, mlff_profile **profile_out);
/* The same, every run of {"runs": […]}; freed with mlff_profile_destroy_runs. */
mlff_status profile_parse_runs(const char *path, const char *text, size_t length, mlff_profile ***profiles_out, int *n_out);
/* report_json.c: a text as a file that appears whole or not at all. */
mlff_status profile_write_file(const char *path, const char *text);
/* A time with its unit, four digits: "41.2 µs". */
const char *profile_time_text(double ms, char text[32]);
/* Growth of the memory over the run, "+0.12 MB" or "not measured". */
const char *profile_growth_text(const mlff_profile_summary *summary, char text[32]);
/* Right-aligned in so many columns, where a letter of two bytes takes one. */
const char *profile_right_text(const char *text, int columns, char cell[64]);
/* A number with so many digits, never in powers of ten: "622.4", "4240". */
const char *profile_number_text(double value, int digits, char text[32]);
#define PROFILE_NUMBER(value, digits) profile_number_text(value, digits, (char[32]){0})
#define PROFILE_TIME_RIGHT(ms, columns) profile_right_text(PROFILE_TIME(ms), columns, (char[64]){0})
#define PROFILE_TIME(ms) profile_time_text(ms, (char[32]){0}) /* lives to the end of the block */
/* A change of bytes, "+0.12 MB", never "-0.00 MB". */
const char *profile_change_mb_text(double bytes, char text[32]);
#define PROFILE_CHANGE_MB(bytes) profile_change_mb_text(bytes, (char[32]){0})
#define PROFILE_GROWTH(summary) profile_growth_text(summary, (char[32]){0})

/* steadiness.c: from which step on a run is itself, and percentiles of that part with intervals. */
mlff_status steadiness_derive(mlff_profile *profile);
extern const char *const profile_bound_names[N_BOUNDS], *const profile_steady_names[6]; /* by steady_kind */
/* Median of the steady part, ms; of all steps where none was found. */
double profile_typical_ms(const mlff_profile *profile);
/* How much slower steps get all along the run, where the data allow to say so, else 0: on a crowded machine their processor time
 * decides. A single jump may be the machine's. */
double steadiness_drift(const mlff_profile *profile);
/* Whether there are so many steps that some lie beyond the percentile; of fewer it is about the longest step. */
bool steadiness_percentile_known(const mlff_profile *profile, double fraction);
/* One sentence about it, "" where there are too few steps to tell. */
void steadiness_text(const mlff_profile *profile, char *text, size_t text_bytes);
/* "P99 1.23 ms (1.20 to 1.31 ms)" or what is missing for it. */
void steadiness_bound_text(const mlff_profile *profile, int bound, char *text, size_t text_bytes);

/* What measuring cost, one sentence; "" where it was not measured. */
void overhead_text(const mlff_profile *profile, char *text, size_t text_bytes);

/* callable.c: threads whose measured ceilings bound the callable's stages: those of an evaluator on the CPU, but for float64; else 0. What
 * multiplies its matrices. */
int callable_ceiling_threads(const mlff_callable *callable, ceiling_products *products_out);
/* An evaluator on the CPU in float64, for which no ceilings are measured. */
bool callable_is_float64(const mlff_callable *callable);
/* bounds.c: least work of each stage as the callable states it, and its least time on n_threads (0: not bounded here). The first
 * rows of the profile are the callable's stages. Fails with MLFF_ERR_MEMORY. */
mlff_status bounds_derive(mlff_profile *profile, const mlff_callable *callable, int n_threads, ceiling_products products);
/* Rows of the name and phase of stages[first], over layers, against their bound, by medians. */
typedef struct stage_bound {
    double flops, bytes, bound_ms, time_ms;
    bool by_memory;     /* the limit that most of bound_ms is of */
    double limit_share; /* least time by that limit alone, over time_ms; 0 where not known */
} stage_bound;
stage_bound bounds_of_stage(const mlff_profile *profile, const profile_stage *first);

/* leaks.c: reserved memory against what is used of it; called by profile_derive. */
void leaks_relate(mlff_profile *profile);
/* "+2.13 %", with fewer decimals where there are more digits before them. Returns `text`. */
const char *profile_change_text(double ratio, char text[32]);
#define PROFILE_CHANGE(ratio) profile_change_text(ratio, (char[32]){0})
/* Bytes of the unit that `text` begins with (%, ns, MB …), 0 if it is none: a number keeps it beside it on a line. */
size_t profile_unit_bytes(const char *text);
/* One line about a ledger: kind, slope with interval, steps to the end of memory, or the smallest slope that would show. */
void leaks_text(const mlff_profile *profile, const profile_ledger *ledger, char *text, size_t text_bytes);
/* True if the ledger is this process's own, so that its growth decides; the driver's counts neighbors too. */
bool leaks_decides(const profile_ledger *ledger);

/* causes.c: fills profile->tail and slowest_cause from the times (ms), tags and parts (or NULL) of steps; what the record counts of
 * tags and rebuilds is used, and profile->slowest. */
mlff_status causes_derive(mlff_profile *profile, const double *times_ms, const uint16_t *tags, const float *parts, int64_t n);
/* Period of the steps marked in hits[n]: of any `period` steps in a row one is hit, the same one; 0: none. */
int64_t causes_period(const unsigned char *hits, int64_t n);

/* tail.c: causes in words. */
#define CROWDED 0.05 /* of all time waiting for a CPU: times then say little about the force field */
extern const char *const profile_cause_names[N_CAUSES]; /* in JSON */
/* The name as reports have it: it does not promise more than was measured. */
const char *tail_cause_words(int cause);
double tail_excess_ms(const profile_tail *tail);
/* Causes by their share of the excess, largest first, into order; the number of those that occur. With `named`, those alone that
 * are worth a name: not UNKNOWN_CAUSE, and of a weight that chance does not give. */
int tail_order(const profile_tail *tail, bool named, int order[N_CAUSES]);
/* "sleep, lock or device 81 % (+5.1 ms in 50 steps, every 10 steps)" */
void tail_cause_text(const profile_tail *tail, int cause, char *text, size_t text_bytes);
/* One sentence: what part of the run lies beyond the median step, and by which causes; "" where it is not known. */
void tail_text(const mlff_profile *profile, char *text, size_t text_bytes);
/* True where threads waited for a CPU for so large a part of the time that times say little about the force field; the sentence
 * that says so into text. */
bool tail_crowded(const mlff_profile *profile, char *text, size_t text_bytes);
/* Whether a large part of the time is waits for a GPU that had other work, and a sentence about it; "" where not. */
bool tail_gpu_shared(const mlff_profile *profile, char *text, size_t text_bytes);

/* every_step.c: a sentence about what a force field without stages of its own does in most steps beside computing, "" where nothing was
 * seen; false where there is nothing, or it may be the computation of other threads. */
enum { EVERY_STEP_BYTES = 500 };
bool every_step_text(const mlff_profile *profile, char *text, size_t text_bytes);

/* shares.c: a step in a handful of parts ("forward", "backward", "neighbors", …), by medians; their number. */
enum { PROFILE_PARTS = 8 };
typedef struct profile_part {
    const char *name; /* the profile's, or a constant */
    double ms, share; /* of all parts, 0..1 */
} profile_part;
int profile_parts(const mlff_profile *profile, profile_part parts[PROFILE_PARTS]);
/* Part of a GPU's step that a stage is of: PART_DEVICE, PART_QUEUE or PART_ENQUEUE. */
enum step_part profile_stage_part(const char *phase, const char *name);
/* Whether a stage is of the neighbor list. */
bool profile_stage_of_list(const char *name);
/* Median of a stage, or its mean where there is none. */
double profile_stage_typical_ms(const profile_stage *row);

/* scaling.c: the fitted step, ms. */
double scaling_ms(const mlff_scaling *s, double atoms);

/* hotspots.c */
mlff_status hotspots_recommend(mlff_profile *profile);

/* Why so many lists are rebuilt and what to do about it, where more than half of the steps rebuild, else "". */
void hotspots_rebuilds_text(const mlff_profile *profile, char *text, size_t text_bytes);

/* why.c: what weighs most in this run, by weight; the number of lines. */
enum { WHY_LINES = 4 };
typedef struct why_line {
    double weight;
    char text[512];
} why_line;
int why(const mlff_profile *profile, why_line lines[WHY_LINES]);
/* verdicts.c */
mlff_status verdicts_judge(mlff_profile *profile);

#endif
