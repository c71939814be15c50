/* SPDX-License-Identifier: MIT */
/* measure.h: what a run leaves behind, in bounded memory: series of times, samples of memory, the environment. */
#ifndef MEASURE_H
#define MEASURE_H

#include "base/base.h"
#include "mlff_profile.h"

/* ---- statistics.c ---------------------------------------------------------------------------- */

/* Percentile of ascending values, fraction 0..1, linear between order statistics (NumPy's default). n >= 1. */
double statistics_percentile(const double *sorted, int64_t n, double fraction);
/* Percentile and median of values in any order; NaN if n < 1 or out of memory. */
double statistics_quantile(const double *values, int64_t n, double fraction);
double statistics_median(const double *values, int64_t n);

/* ---- series.c -------------------------------------------------------------------------------- */

enum { SERIES_SLOWEST = 16 };

/* Parts of a step's time, ns, by which it is explained; NaN: not known. */
enum step_part {
    PART_CPU,       /* this thread ran */
    PART_WAIT,      /* it was ready to run and had no CPU */
    PART_TEAM_WAIT, /* the longest such wait of another thread of the process */
    PART_OTHERS,    /* processor time of the other threads */
    PART_SYSTEM,    /* processor time of the process in the kernel */
    PART_PAUSE,     /* the caller's runtime paused the program: Python's garbage collector */
    PART_TAKEN,     /* it did neither, and yet was never blocked: interrupts, or the host of a virtual machine */
    PART_CHILDREN,  /* processor time of child processes that ended */
    PART_FAULTS,    /* estimated: pages touched for the first time × the cost of one */
    PART_FILES,     /* estimated: bytes read and written, copied into or out of the system's cache */
    PART_DEVICE,    /* stages on a GPU */
    PART_QUEUE,     /* between the host and the GPU: the start of its work, and until the host knows of the end */
    PART_ENQUEUE,   /* the host's own work around the GPU's: inputs, the driver's call, results */
    PART_LIST,      /* stages of the neighbor list, on a GPU also among PART_DEVICE */
    PART_PACE,      /* no time: how many times as long as at its best the core took for a fixed chain, just after the step */
    N_PARTS
};

typedef struct series_slow {
    int64_t step;
    double value;
    uint32_t tags; /* what happened in that step, the caller's bits */
    float parts[N_PARTS];
} series_slow;

/* Times of steps, ns. Up to `limit` values are all kept; beyond, `values` holds one of each `every` and percentiles
 * come from `counts`. n, mean, variance, minimum, maximum and the slowest steps stay exact. */
typedef struct series {
    int64_t n;
    double mean, sum_squares; /* Welford: sum of squared deviations */
    double min, max;
    double *values; /* [n_values]; entry i is of one of the `every` steps from i * every on */
    uint32_t *lots; /* [n_values] by which that one was chosen, or NULL where all are kept */
    uint16_t *tags; /* of those values, or NULL */
    float *parts;   /* [n_values][N_PARTS], or NULL */
    int64_t n_values, capacity, every;
    uint32_t *counts;                    /* histogram of all values, or NULL if n_expected <= limit */
    series_slow slowest[SERIES_SLOWEST]; /* descending */
    int n_slowest;
} series;

/* Makes room for n_expected values now, so that adding never allocates. */
mlff_status series_init(series *s, int64_t n_expected, int64_t limit);
/* Before the first value: keeps the tags and the parts of all values that are kept, not of the slowest alone. */
mlff_status series_keep_tags(series *s);
/* At most n_expected values may be added. Negative ones are allowed. */
void series_add(series *s, double value, uint32_t tags);
/* The same with the parts of the step's time; NULL: not known. */
void series_add_parts(series *s, double value, uint32_t tags, const float *parts);
/* The step that entry i is of. Two series of the same steps keep the same ones: all of the thinner one are in the other. */
int64_t series_step(const series *s, int64_t i);
/* n = 0 gives zeros. Values are multiplied by `scale`. */
mlff_status series_statistics(const series *s, double scale, mlff_statistics *statistics_out);
void series_free(series *s);

/* ---- process_memory.c ------------------------------------------------------------------------ */

/* Bytes of this process; -1 where the system does not tell. */
typedef struct process_memory {
    int64_t resident_bytes;
    int64_t heap_bytes;          /* in use by malloc */
    int64_t heap_reserved_bytes; /* taken by malloc from the system */
    int64_t peak_bytes;          /* highest resident so far, by the system's own account */
} process_memory;
void process_memory_get(process_memory *memory_out);

/* Bytes that this process could still get: of the system, or what its control group leaves; -1: not known. */
int64_t process_memory_available(void);

/* Samples of several ledgers along a run: at most MEMORY_SAMPLES, then every second one is dropped and the interval doubled. */
enum { MEMORY_SAMPLES = 2048 };
typedef struct memory_series {
    int n_ledgers, n_samples;
    int64_t interval; /* steps between samples */
    double *bytes;    /* [n_ledgers][MEMORY_SAMPLES]; sample i is of step i * interval */
} memory_series;
mlff_status memory_series_init(memory_series *s, int n_ledgers, int64_t interval);
/* True if step `step` is to be sampled now. */
bool memory_series_due(const memory_series *s, int64_t step);
/* bytes: [n_ledgers] */
void memory_series_add(memory_series *s, const int64_t *bytes);
/* Drops every second sample and doubles the interval: where a sample costs too much. */
void memory_series_coarsen(memory_series *s);
void memory_series_free(memory_series *s);

/* ---- process_events.c, process_watch.c, pace.c ------------------------------------------------- */

typedef struct process_events {
    int64_t cpu_ns;                /* processor time of this thread; -1: not known */
    int64_t process_us, system_us; /* processor time of the process; of it, in the kernel (counted in ticks of 4 ms or so) */
    int64_t n_preempted;           /* times the processor was taken from one of our threads */
    int64_t n_faults;              /* pages touched for the first time */
    int64_t n_file_blocks;         /* read from or written to files, and pages fetched from them */
    int64_t heap_end;              /* address at which malloc's heap ends */
    int64_t n_allocations;         /* of this library */
} process_events;
void process_events_get(process_events *events_out);
/* Reads again what is cheap to read and must not include the time between two steps: this thread's time, allocations. */
void process_events_begin(process_events *events);

/* What is read after slow steps only: each reading gives what happened since the one before. */
enum { WATCH_THREADS = 64 };
typedef struct process_watch {
    bool open;
    long thread;
    int own_file, io_file, n_threads, thread_files[WATCH_THREADS];
    int64_t waited_ns, n_blocks, wall_ns, cpu_ns, thread_waited_ns[WATCH_THREADS], children_ns, n_loads, io_bytes, own_bytes,
        scanned_ns;
    double fault_ns; /* cost of a page that is touched for the first time */
} process_watch;
typedef struct process_watch_seen {
    int64_t wait_ns;      /* this thread was ready to run and had no CPU; -1: not known */
    int64_t wall_ns;      /* since the reading before */
    int64_t cpu_ns;       /* this thread ran */
    int64_t team_wait_ns; /* the same of the other thread that waited longest */
    int64_t children_ns;  /* processor time of child processes that ended */
    int64_t n_loads;      /* shared objects loaded: compiled code arrives so */
    bool never_blocked;   /* this thread left its CPU at no time, or only because its turn was over */
    int64_t io_bytes;     /* read from and written to files, pipes and sockets */
} process_watch_seen;
/* For the calling thread, which is the only one that may use it. Failures leave the parts that cannot be read unknown. */
void process_watch_open(process_watch *w);
void process_watch_close(process_watch *w);
void process_watch_read(process_watch *w, process_watch_seen *seen_out);
/* Forgets the bytes read and written since the last reading: those of the profiler itself. */
void process_watch_skip_files(process_watch *w);

/* Time of a fixed chain of arithmetic on this core, ns: it grows where the core's clock falls. Some 1 µs. */
double pace_ns(void);

/* ---- leak.c ---------------------------------------------------------------------------------- */

typedef enum leak_kind {
    LEAK_UNKNOWN, /* too few samples */
    LEAK_STABLE,
    LEAK_BOUNDED,      /* grew, and stopped */
    LEAK_GROWING,      /* a leak */
    LEAK_INCONCLUSIVE, /* grew to the end, but not as a leak does: a longer run decides */
    LEAK_EXPLAINED,    /* follows the number of atoms or pairs */
    LEAK_FRAGMENTED,   /* reserved memory grows, what is used of it does not */
    LEAK_GARBAGE,      /* grew, and the caller's runtime freed it after the run */
    N_LEAK_KINDS
} leak_kind;
typedef struct leak_verdict {
    leak_kind kind;
    double bytes_per_sample, low,
        high;          /* Theil-Sen slope of the lower envelope and its interval at 95 %; growing or inconclusive */
    double detectable; /* smallest slope, bytes a sample, that these samples would show; NaN if too few */
    int explained_by;  /* index of the work, if explained */
    double bytes_per_unit;
} leak_verdict;
/* Judges samples of one ledger, bytes, taken at equal distances. */
leak_verdict leak_judge(const double *bytes, int n_samples);
/* The same, with what the step worked on (atoms, pairs) at the same samples, [n_work][n_samples]: memory that follows it is
 * explained. */
leak_verdict leak_judge_physics(const double *bytes, const double *const *work, int n_work, int n_samples);
/* Fewest samples that can be judged. */
enum { LEAK_MIN_SAMPLES = 72 };

/* ---- shift.c --------------------------------------------------------------------------------- */

typedef struct shift_result {
    double shift, low, high; /* of b against a, and its interval at 1 - alpha or a little more; infinite: too few values */
    double p;                /* two-sided */
} shift_result;
/* Robust against outliers, exact for any distribution. n_a, n_b >= 1. */
mlff_status shift_of_groups(const double *a, int n_a, const double *b, int n_b, double alpha, shift_result *result_out);
/* Of n pairs (a[i], b[i]), measured side by side. */
mlff_status shift_of_pairs(const double *a, const double *b, int n, double alpha, shift_result *result_out);
/* Fewest pairs with which that test can find anything at this level: 6 at 5 %. */
int shift_pairs_needed(double alpha);
/* Fewest values in each of two groups with which theirs can: 4 at 5 %. */
int shift_groups_needed(double alpha);

/* ---- bootstrap.c, mean.c ---------------------------------------------------------------------- */

double normal_quantile(double fraction);
/* Student's distribution with nu degrees of freedom, 1 or more. */
double student_below(double t, double nu);
double student_quantile(double fraction, double nu);
/* mean.c: the mean of `values` between low and high at 95 %, also where they depend on each other over up to a fifth of the series; NaN
 * with fewer than 12 values. */
void mean_interval(const double *values, int64_t n, double *low_out, double *high_out);

/* A run as its blocks, each by the logarithm of its median when its steps are resampled. */
enum { BOOTSTRAP_BLOCKS = 12, BOOTSTRAP_LEVELS = 64 };
typedef struct bootstrap_run {
    double value; /* mean of all */
    int n_blocks;
    double draws[BOOTSTRAP_BLOCKS][BOOTSTRAP_LEVELS];
} bootstrap_run;
/* Positive times; n >= 1. */
mlff_status bootstrap_run_of_steps(const double *steps, int64_t n, bootstrap_run *run_out);
/* Of a run of which one number is known. */
void bootstrap_run_of_value(double value, bootstrap_run *run_out);

typedef struct bootstrap_result {
    double difference, low, high; /* of logarithms, b less a, and its interval at 1 - alpha */
    double p;                     /* two-sided, as if the means of runs were normal */
    double deviation;             /* pooled standard deviation of a run within its group; NaN for 1 + 1 */
    double detectable;            /* smallest difference that is found with 90 % power */
} bootstrap_result;
/* By resampling runs, blocks and steps. n_a, n_b >= 1; a side of one run knows only how its blocks differ. */
mlff_status bootstrap_difference(const bootstrap_run *a, int n_a, const bootstrap_run *b, int n_b, double alpha,
                                 bootstrap_result *result_out);

/* ---- steady.c -------------------------------------------------------------------------------- */

typedef enum steady_kind { STEADY_UNKNOWN, STEADY_FLAT, STEADY_WARM_UP, STEADY_SLOWDOWN, STEADY_CYCLIC, STEADY_NONE } steady_kind;
typedef struct steady_state {
    steady_kind kind;
    int64_t first; /* value with which the steady part begins; 0 where all of it is or none */
    bool settled;  /* there is a steady part */
    int n_pieces;  /* levels found */
    double change; /* of the last level against the first, 0.1 = 10 % slower */
    double rise;   /* of values that grow all along, the last eighth against the first; 0: they do not, or jump */
} steady_state;
enum { STEADY_MIN = 100 }; /* fewest values that can be judged */
steady_state steady_find(const double *values, int64_t n);
/* The rise alone; 0 where there are fewer than STEADY_MIN values. */
double steady_rise(const double *values, int64_t n);

/* A percentile with an interval at 95 % that assumes nothing about the distribution: two order statistics, at the number
 * of independent values that the series' autocorrelation leaves. NaN where the series is too short for a bound. */
typedef struct percentile_bounds {
    double value, low, high, n_effective;
    int64_t n_needed; /* values of a series like this one with which an upper bound exists */
} percentile_bounds;
mlff_status percentile_interval(const double *values, int64_t n, double fraction, percentile_bounds *bounds_out);

/* ---- ceilings.c ------------------------------------------------------------------------------ */

enum { CEILING_LEVELS = 5 };
/* What multiplies matrices, beside vectors in float32: instructions whose operands are in bfloat16. A product of two numbers in tf32 is
 * three of theirs on tiles, in float32 six. */
typedef enum ceiling_products {
    CEILING_VECTORS,
    CEILING_BF16_DOTS, /* AVX512-BF16 */
    CEILING_BF16_TILES,
    CEILING_TF32_TILES,
    CEILING_FLOAT32_TILES, /* AMX */
    N_CEILING_PRODUCTS
} ceiling_products;
extern const char *const ceiling_product_names[N_CEILING_PRODUCTS]; /* "bf16 by AMX tiles"; of CEILING_VECTORS "" */
typedef struct ceilings {
    int n_threads;     /* 0: not measured */
    double flops_a_ns; /* float32 by vectors, a multiply-add is two */
    ceiling_products products;
    double product_flops_a_ns;                                      /* of `products`; 0 of vectors */
    double level_bytes[CEILING_LEVELS], bytes_a_ns[CEILING_LEVELS]; /* read by every thread from a set of its own of that size */
} ceilings;
/* Measured once a process for a number of threads and what multiplies, which this processor must have. */
mlff_status ceilings_get(int n_threads, ceiling_products products, ceilings *ceilings_out);
/* Of the faster unit: what none of a stage's arithmetic exceeds, whichever part of it each one does. */
double ceilings_flops_a_ns(const ceilings *c);
/* Bytes a ns from a working set that all threads share out: of the largest measured size that is not above it. */
double ceilings_bytes_a_ns(const ceilings *c, double working_set);

/* ---- environment.c --------------------------------------------------------------------------- */

/* What machine and build a number belongs to; nothing that names the machine or its user. */
enum { ENVIRONMENT_MAX = 16 };
typedef struct environment {
    int n;
    char *keys[ENVIRONMENT_MAX], *values[ENVIRONMENT_MAX];
} environment;
mlff_status environment_collect(environment *e);
/* This is a virtual machine, whose host may take CPUs unseen. Where the processor does not say (other than x86-64): true. */
bool environment_may_be_virtual(void);
mlff_status environment_add(environment *e, const char *key, const char *value);
/* NULL if absent. */
const char *environment_find(const environment *e, const char *key);
void environment_free(environment *e);

#endif
