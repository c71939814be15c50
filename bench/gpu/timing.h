/* SPDX-License-Identifier: MIT */
/* timing.h: what the benchmarks of the GPU share: ends on an error, arrays, medians, times by events and by the clock. */
#ifndef TIMING_H
#define TIMING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/systems_batch.h"
#include "base/base.h"
#include "device/device.h"
#include "mlff_profile.h"
#include "model/model.h"

static inline void must(mlff_status status, const char *what)
{
    if (status == MLFF_OK) return;
    fprintf(stderr, "%s: %s\n", what, mlff_last_error());
    exit(1);
}

static inline void *need(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) must(mlff_fail(MLFF_ERR_MEMORY, "out of memory"), "bench");
    return p;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `v`. */
static inline double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    return v[n / 2];
}

/* A batch of copies of a built system, each displaced in another way. Returns its number of atoms. */
static inline int perturbed_batch(const char *name, int n_atoms, int copies, systems_batch *out)
{
    mlff_system **systems = need((size_t)copies, sizeof *systems);
    for (int k = 0; k < copies; k++) {
        must(mlff_system_build(name, n_atoms, 0, &systems[k]), name);
        must(mlff_system_perturb(systems[k], 300.0, 7 + (uint64_t)k), name);
    }
    must(systems_batch_fill(out, systems, copies), name);
    for (int k = 0; k < copies; k++) mlff_system_destroy(systems[k]);
    free(systems);
    return out->first_atom[copies];
}

/* As extended XYZ on standard output; the structure is destroyed. */
static inline void print_structure(mlff_system *system)
{
    mlff_writer *writer;
    must(mlff_writer_open("-", NULL, 0, &writer), "standard output");
    must(mlff_writer_write(writer, system, NULL), "standard output");
    must(mlff_writer_close(writer), "standard output");
    mlff_system_destroy(system);
}

static inline void *to_device(const device_plugin *gpu, const void *from, size_t bytes)
{
    void *memory;
    must(gpu->allocate(0, bytes, &memory), "allocate");
    if (from) must(gpu->copy(0, memory, from, bytes), "copy");
    return memory;
}

/* The plugin's evaluator of a model, without libmlff's around it. */
static inline gpu_evaluator *create_evaluator(const device_plugin *gpu, const mlff_model *model,
                                              const mlff_evaluator_options *options)
{
    gpu_evaluator *e;
    const device_model described = {.architecture = model->architecture->name,
                                    .title = model->architecture->title,
                                    .model = model,
                                    .model_bytes = sizeof *model,
                                    .parameters = model->parameters,
                                    .parameters_bytes = model->architecture->parameters_bytes};
    must(gpu->evaluator_create(&described, options, &e), "evaluator_create");
    return e;
}

/* Median device time of a step, ns, and its 5th percentile. */
static inline double time_device(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results,
                                 int calls, double *p5)
{
    void *start, *end;
    double *t = need((size_t)calls, sizeof *t);
    must(gpu->event_create(0, &start), "event");
    must(gpu->event_create(0, &end), "event");
    for (int k = -20; k < calls; k++) {
        double ns;
        must(gpu->event_record(0, start, batch->stream), "event");
        must(gpu->compute(e, batch, results), "compute");
        must(gpu->event_record(0, end, batch->stream), "event");
        must(gpu->event_elapsed(0, start, end, &ns), "event");
        if (k >= 0) t[k] = ns;
    }
    double m = median(t, calls);
    *p5 = t[calls / 20];
    gpu->event_destroy(0, start);
    gpu->event_destroy(0, end);
    free(t);
    return m;
}

/* Median wall time of a call with host arrays, ns. */
static inline double time_host(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results,
                               int calls)
{
    double *t = need((size_t)calls, sizeof *t);
    for (int k = -20; k < calls; k++) {
        int64_t start = mlff_clock_ns();
        must(gpu->compute(e, batch, results), "compute");
        if (k >= 0) t[k] = (double)(mlff_clock_ns() - start);
    }
    double m = median(t, calls);
    free(t);
    return m;
}

/* Energy and forces of one system, and their times: neighbors are searched in the step. Medians. */
typedef struct timed_case {
    double energy, *forces;           /* eV, [n_atoms][3] eV/Å; freed by the caller */
    double device_ns, p5_ns, host_ns; /* by events with arrays on the GPU, its 5th percentile; of a call with host arrays */
    int repeatable;                   /* all calls gave the same bits */
    long long n_pairs;
    double device_mb;
} timed_case;

/* `repeats`: calls whose bits are compared. */
static inline timed_case time_case(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch, int calls, int repeats)
{
    const size_t n = (size_t)batch->first_atom[1];
    timed_case t = {.forces = need(3 * n, sizeof(double)), .repeatable = 1};
    double *again = need(3 * n, sizeof *again);
    const mlff_results here = {.energies = &t.energy, .forces = t.forces}, repeated = {.energies = &t.energy, .forces = again};
    must(gpu->compute(e, batch, &here), "compute");
    for (int k = 0; k < repeats; k++) {
        must(gpu->compute(e, batch, &repeated), "compute");
        t.repeatable = t.repeatable && memcmp(t.forces, again, sizeof(double) * 3 * n) == 0;
    }
    t.host_ns = time_host(gpu, e, batch, &repeated, calls);
    mlff_batch on = *batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = to_device(gpu, batch->species, sizeof(int32_t) * n);
    on.positions = to_device(gpu, batch->positions, sizeof(double) * 3 * n);
    if (batch->cells) on.cells = to_device(gpu, batch->cells, sizeof(double) * 9);
    must(gpu->stream_create(0, &on.stream), "stream");
    const mlff_results there = {.energies = to_device(gpu, NULL, sizeof(double)),
                                .forces = to_device(gpu, NULL, sizeof(double) * 3 * n),
                                .location = MLFF_DEVICE_MEMORY};
    t.device_ns = time_device(gpu, e, &on, &there, calls, &t.p5_ns);
    must(gpu->stream_synchronize(0, on.stream), "wait");
    must(gpu->copy(0, again, there.forces, sizeof(double) * 3 * n), "copy");
    t.repeatable = t.repeatable && memcmp(t.forces, again, sizeof(double) * 3 * n) == 0;
    mlff_evaluator_info info = {0};
    gpu->evaluator_info(e, &info);
    t.n_pairs = (long long)info.n_pairs;
    t.device_mb = (double)info.device_bytes / 1048576.0;
    gpu->release(0, (void *)(uintptr_t)on.species);
    gpu->release(0, (void *)(uintptr_t)on.positions);
    if (on.cells) gpu->release(0, (void *)(uintptr_t)on.cells);
    gpu->release(0, there.energies);
    gpu->release(0, there.forces);
    gpu->stream_destroy(0, on.stream);
    free(again);
    return t;
}

/* Mean time of each stage over `calls` calls with host arrays, ns; freed by the caller. */
static inline double *time_stages(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch,
                                  const mlff_results *results, int calls, const mlff_stage **stages_out, int *n_out)
{
    *stages_out = gpu->stages(e, n_out);
    double *stage_ns = need((size_t)*n_out, sizeof *stage_ns), *mean = need((size_t)*n_out, sizeof *mean);
    must(gpu->stage_clock_set(e, 1), "clock");
    for (int k = -20; k < calls; k++) {
        must(gpu->compute(e, batch, results), "compute");
        gpu->stage_times(e, stage_ns);
        for (int s = 0; s < *n_out && k >= 0; s++) mean[s] += stage_ns[s] / calls;
    }
    must(gpu->stage_clock_set(e, 0), "clock");
    free(stage_ns);
    return mean;
}

/* The same as JSON `"stages_us": {…}`. */
static inline void print_stage_times(const mlff_stage *stages, const double *mean, int n_stages)
{
    printf("\"stages_us\": {");
    for (int s = 0; s < n_stages; s++)
        printf("%s\"%s %s %d\": %.2f", s ? ", " : "", stages[s].name, stages[s].phase, stages[s].layer, mean[s] / 1e3);
    printf("}");
}

/* Measures and prints them. */
static inline void print_stages(const device_plugin *gpu, gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results,
                                int calls)
{
    const mlff_stage *stages;
    int n_stages;
    double *mean = time_stages(gpu, e, batch, results, calls, &stages, &n_stages);
    print_stage_times(stages, mean, n_stages);
    free(mean);
}

#endif
