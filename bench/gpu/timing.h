/* SPDX-License-Identifier: MIT */
/* timing.h: what the benchmarks of the GPU share: ends on an error, arrays, medians, times by events and by the clock. */
#ifndef TIMING_H
#define TIMING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static inline void *to_device(const device_plugin *gpu, const void *from, size_t bytes)
{
    void *memory;
    must(gpu->allocate(0, bytes, &memory), "allocate");
    if (from) must(gpu->copy(0, memory, from, bytes), "copy");
    return memory;
}

/* The plugin's evaluator of a model, without libmlff's around it. */
static inline cuda_evaluator *create_evaluator(const device_plugin *gpu, const mlff_model *model,
                                               const mlff_evaluator_options *options)
{
    cuda_evaluator *e;
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
static inline double time_device(const device_plugin *gpu, cuda_evaluator *e, const mlff_batch *batch,
                                 const mlff_results *results, int calls, double *p5)
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
static inline double time_host(const device_plugin *gpu, cuda_evaluator *e, const mlff_batch *batch, const mlff_results *results,
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

/* Mean time of each stage over `calls` calls with host arrays, as JSON `"stages_us": {…}`. */
static inline void print_stages(const device_plugin *gpu, cuda_evaluator *e, const mlff_batch *batch, const mlff_results *results,
                                int calls)
{
    int n_stages;
    const mlff_stage *stages = gpu->stages(e, &n_stages);
    double *stage_ns = need((size_t)n_stages, sizeof *stage_ns), *sum = need((size_t)n_stages, sizeof *sum);
    must(gpu->stage_clock_set(e, 1), "clock");
    for (int k = -20; k < calls; k++) {
        must(gpu->compute(e, batch, results), "compute");
        gpu->stage_times(e, stage_ns);
        for (int s = 0; s < n_stages && k >= 0; s++) sum[s] += stage_ns[s] / calls;
    }
    must(gpu->stage_clock_set(e, 0), "clock");
    printf("\"stages_us\": {");
    for (int s = 0; s < n_stages; s++)
        printf("%s\"%s %s %d\": %.2f", s ? ", " : "", stages[s].name, stages[s].phase, stages[s].layer, sum[s] / 1e3);
    printf("}");
    free(stage_ns);
    free(sum);
}

#endif
