/* SPDX-License-Identifier: MIT */
/* run.h: a run while it is measured, and the files that share it: profile.c (steps), split.c (energy against forces),
 * overhead.c (what measuring costs), trace.c (the timeline), run_record.c (the record of it all). */
#ifndef PROFILE_RUN_H
#define PROFILE_RUN_H

#include "profile/sensors/cores.h"
#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"

/* Ledgers of every process, and what memory may follow: atoms and pairs of the step before the sample. */
enum { RESIDENT, HEAP, HEAP_RESERVED, GPU_PROCESS, GPU_WHOLE, OWN_LEDGERS, N_WORK = 2 };

typedef struct traced_step {
    int64_t start_ns, time_ns, force_ns, n_pairs, resident;
    int64_t force_start_ns;
    uint32_t tags;
    int n_spans; /* 0: durations of stages alone are known */
} traced_step;
enum { TRACE_STEPS_MAX = 20000 };

typedef struct run {
    mlff_callable callable;
    mlff_trajectory *trajectory;
    mlff_profile_options options;
    bool md;
    int n_stages; /* the callable's; 0 if its clocks are not used */
    bool clocks_running;
    char error[1024];        /* text of the failure that ended the run */
    environment environment; /* when it began */

    const mlff_system *frame; /* borrowed until the trajectory goes on */
    int n_atoms;              /* of the last frame, which may be gone */
    double energy, stress[6];
    double *forces; /* [n_atoms][3] */
    size_t forces_capacity;
    unsigned wanted;

    double *stage_now, *stage_step; /* [n_stages] ns of the last force call, of the step */
    int list_stage;                 /* that of the neighbor list; -1: none has a clock */
    unsigned char *stage_part;      /* [n_stages] of a GPU's: PART_DEVICE, PART_QUEUE or PART_ENQUEUE */
    int64_t force_ns;               /* spent in the callable during this step */
    int64_t force_start_ns;         /* of its last call */
    int n_force_calls;

    double *slow_stages;           /* [n_stages] ns of the slowest step so far */
    double slow_ns, slow_force_ns; /* and its time, that of the force field in it */
    int64_t slow_step;
    series step, with_rebuild, without, integrate, unattributed, *stages;
    double warmup_first, warmup_sum;
    double pairs_sum, atoms_sum;
    int least_atoms, most_atoms;                                           /* of the steps that are measured */
    int64_t n_pairs, n_rebuilds, n_growths, first_rebuilds, first_growths; /* -1: unknown */
    int64_t n_not_finite, wall_ns, n_tagged[N_TAGS];
    double typical_ns, pace_ns;         /* of a step, followed as it goes; of the core at its best */
    double first_pace_ns, last_pace_ns; /* of the core when the run begins and ends */
    process_watch watch;
    int64_t watched_ns;              /* time of the steps since the watch was read */
    double watched_off_ns;           /* of it, in which this thread did not run */
    double watched_cpu_ns;           /* of it, in which it did */
    double contended_ns, counted_ns; /* of the steps: a thread waited for a CPU; all */
    double waited_ns, ran_ns;        /* this thread, in steps and between them */
    cores_use first_use, last_use;   /* before the first step and after the last */
    int64_t paused_ns;               /* of the callable, before this step */

    int n_ledgers; /* OWN_LEDGERS, then the callable's; in `memory` the rows of WORK follow */
    memory_series memory;
    int64_t *initial_bytes, *final_bytes, *peak_bytes, *now_bytes; /* [n_ledgers + N_WORK] */
    int64_t *collected_bytes;        /* [n_ledgers + N_WORK] after the run and mlff_callable.collect */
    int64_t peak_before, peak_after; /* of the process, by the system's account */
    bool heap_known, resident_known;

    traced_step *trace;
    double *trace_stages;         /* [n_trace][n_stages] ns */
    mlff_stage_span *trace_spans; /* [n_trace][trace_spans_max] */
    int trace_spans_max;
    int64_t n_trace, trace_capacity;
    power_series power;
    activity activity; /* of the steps whose kernels were traced */
    kernel_step *kernel_steps;
    int64_t n_kernel_steps;
    double precision_reached;
    int64_t next_check; /* step at which the precision is looked at again */
} run;

/* profile.c: without a trajectory (NULL) the caller integrates. */
mlff_status run_init(run *r, const mlff_callable *callable, mlff_trajectory *trajectory, const mlff_profile_options *options);
void run_free(run *r);
/* Before the first step, before each (memory, where it is due), after the last. */
void run_begin(run *r);
void run_sample(run *r, int64_t step);
void run_end(run *r);
/* The force field as MD's force function; its context is the run. */
mlff_status run_forces(void *context, const mlff_system *system, double *energy, double *forces);
void run_stages_collect(run *r);
mlff_status run_frame_next(run *r);
/* One call of the force field with the frame. */
mlff_status run_call(run *r, unsigned wanted, int64_t *time_ns);
/* One step of the trajectory, stages collected. */
mlff_status run_step(run *r, int64_t *time_ns);
/* Before each step: what its parts are counted from. `before` holds the reading after the step before, and is updated. */
void run_prepare(run *r, process_events *before);
/* What is noted of a step after it; its tags. */
uint32_t run_note(run *r, int64_t time_ns, const process_events *before, const process_events *after);
/* Tags of what the system did between two readings; of the core's pace now, against its best. */
uint32_t run_events(const process_events *before, const process_events *after);
uint32_t run_pace(run *r, float parts[N_PARTS]);
/* Reads the watch after a step of that time: parts of it, and the tags of what is seen. */
uint32_t run_watch(run *r, int64_t time_ns, float parts[N_PARTS]);
bool run_stops(const run *r, int64_t done);

/* ranges_cuda.c: a range of the tool that listens (NVTX), around steps and outside of their timing. Profiling thread only. */
void ranges_begin(const char *name);
void ranges_end(void);

/* split.c: energy alone against steps with forces and stress; after the run. */
mlff_status run_split(run *r, mlff_profile *profile);
/* overhead.c: interleaved blocks of steps with and without measurement; after the run. */
mlff_status run_overhead(run *r, mlff_profile *profile);
/* gpu_kernels.c: steps with every kernel on the GPU named; after the run. */
mlff_status run_kernels(run *r, mlff_profile *profile);
/* energy.c: the meter of the run's device, and steps while its clock was low. */
mlff_status run_meter(run *r);
void run_tag_clock(run *r);
/* trace.c: the first steps as a timeline; both do nothing where none was asked for. */
mlff_status trace_init(run *r);
void trace_step(run *r, int64_t start_ns, int64_t time_ns, uint32_t tags);
mlff_status trace_write(const run *r, const mlff_profile *profile);

/* run_record.c */
mlff_status record_texts(const run *r, mlff_profile *profile);
mlff_status record_times(run *r, mlff_profile *profile);
/* Waits for a CPU, and who may have had it. */
void record_waits(const run *r, mlff_profile *profile);
mlff_status record_memory(const run *r, mlff_profile *profile);
mlff_status record_stages(const run *r, mlff_profile *profile);

#endif
