// SPDX-License-Identifier: MIT
// gpu_stages.c: the stages of a step on a GPU and their times, from stamps that kernels write. Stamps do not cover the start and the end of
// the step's graph. They follow from clock kernels C around steps S: time between steps = (C to S) + (S to C) − (C to C).
// Around the device's part of a call stand stages of the host, so that together they are the whole call: inputs | enqueue, launch, the
// device's stages, wait | results; a computation that was given up precedes the enqueuing. Of the time from the first enqueued work to the end, the device's own stages and the launch of the graph
// are known; the enqueuing call is known too, and the wait is what they leave.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_clock.h"
#include "gpu_evaluator.h"

enum { INPUTS, REPEATED, ENQUEUE, LAUNCH, MODEL }; // then, behind the model's stages:
enum { WAIT, RESULTS, STAGES_BEHIND };             // and, with halo hooks, the exchange

const mlff_stage *gpu_evaluator_stages(const gpu_evaluator *e, int *n_out)
{
    if (n_out) *n_out = e->n_stages;
    return e->stages;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// A graph of one kernel that stamps its beginning and its end.
static mlff_status make_clock(gpu_evaluator *e)
{
    mlff_status status = MLFF_OK;
    cudaGraph_t graph = NULL;
    if (!e->clock_times) PLUGIN_TRY(cuda_allocate(e->device, sizeof(uint64_t) * 5, "clocks", &e->clock_times));
    CUDA_TRY(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal), "capturing a clock");
    const int launched = gpu_launch_clock(e->clock_times, e->stream);
    CUDA_TRY(cudaStreamEndCapture(e->stream, &graph), "capturing a clock");
    CUDA_TRY(launched, "launching a clock");
    CUDA_TRY(cudaGraphInstantiate(&e->clock, graph, 0), "instantiating the graph of a clock");
done:
    if (graph) cudaGraphDestroy(graph);
    return status;
}

// Time from one clock's end to the beginning of the next one behind it; with a step between them, the part not covered by its stamps.
static mlff_status time_between(gpu_evaluator *e, const captured_graph *step, cudaStream_t stream, double *ns_out)
{
    enum { TURNS = 15 };
    mlff_status status = MLFF_OK;
    uint64_t between[TURNS];
    for (int k = 0; k < TURNS; k++) {
        uint64_t times[5] = {0};
        CUDA_TRY(cuda_copy(e->clock_times, times, sizeof times, cudaMemcpyHostToDevice), "setting clocks");
        CUDA_TRY(cudaGraphLaunch(e->clock, stream), "starting a clock");
        if (step) CUDA_TRY(cudaGraphLaunch(step->graph, stream), "starting a step");
        CUDA_TRY(cudaGraphLaunch(e->clock, stream), "starting a clock");
        CUDA_TRY(cuda_wait(stream, 0), "a clock on the GPU");
        CUDA_TRY(cuda_copy(times, e->clock_times, sizeof times, cudaMemcpyDeviceToHost), "reading clocks");
        const uint64_t end = times[2], begin = times[3], *stamps = e->io.stamps;
        between[k] = begin - end;
        if (!step) continue;
        uint64_t last = stamps[0];
        for (int n = 1; n < e->n_stamps; n++) // concurrent work may end before the last stage
            if (stamps[n] > last) last = stamps[n];
        between[k] = begin - last + (step->from_device ? stamps[0] - end : 0);
    }
    qsort(between, TURNS, sizeof *between, by_size);
    *ns_out = (double)between[TURNS / 2];
done:
    return status;
}

// A host batch's step begins with a copy. In a call of its own the copy follows nothing, but right behind a kernel it takes 15 µs: the
// start of a clock kernel is taken for that of the copy.
mlff_status gpu_evaluator_measure_launch(gpu_evaluator *e, captured_graph *graph, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    double around;
    PLUGIN_TRY(time_between(e, graph, stream, &around));
    graph->launch_ns = graph->from_device ? fmax(around - e->launch_ns, 1) : around;
done:
    return status;
}

mlff_status gpu_evaluator_stage_clock_set(gpu_evaluator *e, int on)
{
    mlff_status status = MLFF_OK;
    memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    e->stamps_unread = false;
    PLUGIN_TRY(cuda_use(e->device));
    if (on && !e->clock) PLUGIN_TRY(make_clock(e));
    if (on && e->launch_ns == 0) PLUGIN_TRY(time_between(e, NULL, e->stream, &e->launch_ns));
    e->clock_on = on != 0;
done:
    return status;
}

mlff_status gpu_evaluator_set_stages(gpu_evaluator *e, const mlff_stage *stages, int n_stages, int n_stamps)
{
    static const mlff_stage before[MODEL] = {
        {"inputs", "host", -1, "checks, and the copy into page-locked memory"},
        {"repeated", "", -1,
         "a first computation that was given up: features beyond the range of halves, or rows of neighbors too short"},
        {"enqueue", "host", -1, "the driver's call that starts the graph"},
        {"launch", "", -1, "start and end of the graph, measured apart"},
    };
    static const mlff_stage behind[STAGES_BEHIND] = {
        {"wait", "host", -1, "until the graph starts, and after it until the host knows"},
        {"results", "host", -1, "the copy out of page-locked memory"},
    };
    static const mlff_stage exchange = {"exchange", "", -1, "waits for others' ghosts"};
    e->n_stages = MODEL + n_stages + STAGES_BEHIND + (e->has_halo != 0);
    e->n_stamps = n_stamps;
    e->stages = calloc((size_t)e->n_stages, sizeof *e->stages);
    e->time_ns = calloc((size_t)e->n_stages, sizeof *e->time_ns);
    if (!e->stages || !e->time_ns) return host.fail(MLFF_ERR_MEMORY, "out of memory: stages");
    memcpy(e->stages, before, sizeof before);
    memcpy(e->stages + MODEL, stages, sizeof *stages * (size_t)n_stages);
    memcpy(e->stages + MODEL + n_stages, behind, sizeof behind);
    if (e->has_halo) e->stages[e->n_stages - 1] = exchange;
    return MLFF_OK;
}

void gpu_evaluator_read_stamps(gpu_evaluator *e, int forces, double launch_ns)
{
    memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    e->time_ns[LAUNCH] = launch_ns;
    e->kind->read_stamps(e, forces, e->time_ns + MODEL);
    e->stamps_unread = false;
}

int64_t gpu_evaluator_host_clock(const gpu_evaluator *e)
{
    struct timespec now;
    if (!e->clock_on) return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void gpu_evaluator_keep_stamps(gpu_evaluator *e, int forces, double launch_ns, const host_times *times)
{
    e->stamped_forces = forces;
    e->stamped_launch_ns = launch_ns;
    e->host_ns = *times;
    e->stamps_unread = true;
}

mlff_status gpu_evaluator_exchange(gpu_evaluator *e, int layer, int stage, const mlff_halo_array *array, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    bool good = false;
    PLUGIN_TRY(gpu_evaluator_know_rows(e, &good));
    if (!good) return MLFF_ERR_LIMIT;
    timed_exchange *timed = e->clock_on && e->n_exchanges < GPU_MAX_EXCHANGES ? &e->exchanges[e->n_exchanges] : NULL;
    if (timed) {
        if (!timed->begin) CUDA_TRY(cudaEventCreate(&timed->begin), "creating an event");
        if (!timed->end) CUDA_TRY(cudaEventCreate(&timed->end), "creating an event");
        timed->stage = stage;
        CUDA_TRY(cudaEventRecord(timed->begin, stream), "timing an exchange");
    }
    PLUGIN_TRY(e->halo.forward(e->halo.context, layer, array, 1, MLFF_DEVICE_MEMORY, stream));
    if (timed) {
        CUDA_TRY(cudaEventRecord(timed->end, stream), "timing an exchange");
        e->n_exchanges++;
    }
done:
    return status;
}

void gpu_evaluator_release_exchanges(gpu_evaluator *e)
{
    for (int k = 0; k < GPU_MAX_EXCHANGES; k++) {
        if (e->exchanges[k].begin) cudaEventDestroy(e->exchanges[k].begin);
        if (e->exchanges[k].end) cudaEventDestroy(e->exchanges[k].end);
    }
}

// What lies between two kernels is part of the first one's stage: the time of exchanges is taken out of it.
static void separate_exchanges(gpu_evaluator *e)
{
    double *const exchange = &e->time_ns[e->n_stages - 1], *const results = exchange - 1;
    for (int k = 0; k < e->n_exchanges; k++) {
        float ms = 0;
        double *const around = &e->time_ns[MODEL + e->exchanges[k].stage];
        if (cudaEventElapsedTime(&ms, e->exchanges[k].begin, e->exchanges[k].end) != cudaSuccess) continue;
        const double ns = fmin(1e6 * (double)ms, *around);
        *around -= ns;
        *exchange += ns;
    }
    *results -= (double)e->host_ns.agreed;
    *exchange += (double)e->host_ns.agreed;
}

// The device may begin before the enqueuing call returns: what is known first keeps its time.
static void add_host_stages(double *time_ns, int n_stages, const host_times *t)
{
    double *behind = time_ns + n_stages - STAGES_BEHIND, left = (double)(t->waited - t->filled);
    for (int k = MODEL; k < n_stages - STAGES_BEHIND; k++) left -= time_ns[k];
    time_ns[LAUNCH] = fmin(time_ns[LAUNCH], fmax(left, 0.0));
    left = fmax(left - time_ns[LAUNCH], 0.0);
    time_ns[ENQUEUE] = fmin((double)(t->enqueued - t->filled), left);
    behind[WAIT] = left - time_ns[ENQUEUE];
    time_ns[INPUTS] = (double)(t->filled - t->begun - t->repeated);
    time_ns[REPEATED] = (double)t->repeated;
    behind[RESULTS] = (double)(t->taken - t->waited);
}

void gpu_evaluator_stage_times(gpu_evaluator *e, double *time_ns)
{
    if (e->stamps_unread) {
        gpu_evaluator_read_stamps(e, e->stamped_forces, e->stamped_launch_ns);
        add_host_stages(e->time_ns, e->n_stages - (e->has_halo != 0), &e->host_ns);
        if (e->has_halo) separate_exchanges(e);
    }
    memcpy(time_ns, e->time_ns, sizeof(double) * (size_t)e->n_stages);
}
