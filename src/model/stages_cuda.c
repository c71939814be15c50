// SPDX-License-Identifier: MIT
// stages_cuda.c: the stages of a step on a GPU and their clocks: stamps that kernels leave, and the start of the step's graph, which none
// of them can see.
#include <stdlib.h>
#include <string.h>

#include "evaluator_cuda.h"

const mlff_stage *cuda_evaluator_stages(const cuda_evaluator *e, int *n_out)
{
    if (n_out) *n_out = e->n_stages;
    return e->stages;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The time between a graph's turn and its first kernel: what lies between two graphs of one kernel each, one right behind the other.
static mlff_status measure_launch(cuda_evaluator *e)
{
    enum { GRAPHS = 22 };
    mlff_status status = MLFF_OK;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    void *there = NULL;
    uint64_t times[1 + 2 * GRAPHS] = {0}, between[GRAPHS - 1];
    PLUGIN_TRY(cuda_allocate(e->device, sizeof times, "clocks", &there));
    CUDA_TRY(cuda_copy(there, times, sizeof times, cudaMemcpyHostToDevice), "setting clocks");
    CUDA_TRY(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal), "capturing a clock");
    const int launched = painn_cuda_launch_clock(there, e->stream);
    CUDA_TRY(cudaStreamEndCapture(e->stream, &graph), "capturing a clock");
    CUDA_TRY(launched, "launching a clock");
    CUDA_TRY(cudaGraphInstantiate(&ready, graph, 0), "making a graph of a clock");
    for (int k = 0; k < GRAPHS; k++) CUDA_TRY(cudaGraphLaunch(ready, e->stream), "starting a clock");
    CUDA_TRY(cudaStreamSynchronize(e->stream), "a clock on the GPU");
    CUDA_TRY(cuda_copy(times, there, sizeof times, cudaMemcpyDeviceToHost), "reading clocks");
    for (int k = 0; k + 1 < GRAPHS; k++) between[k] = times[1 + 2 * (k + 1)] - times[2 + 2 * k];
    qsort(between, GRAPHS - 1, sizeof *between, by_size);
    e->launch_ns = (double)between[(GRAPHS - 1) / 2];
done:
    if (ready) cudaGraphExecDestroy(ready);
    if (graph) cudaGraphDestroy(graph);
    cuda_release(e->device, there);
    return status;
}

mlff_status cuda_evaluator_stage_clock_set(cuda_evaluator *e, int on)
{
    mlff_status status = MLFF_OK;
    memset(e->time_ns, 0, sizeof(double) * (size_t)e->n_stages);
    PLUGIN_TRY(cuda_use(e->device));
    if (on && e->launch_ns == 0) PLUGIN_TRY(measure_launch(e));
    e->clock_on = on != 0;
done:
    return status;
}

mlff_status cuda_evaluator_set_stages(cuda_evaluator *e, const mlff_stage *stages, int n_stages, int n_stamps)
{
    e->n_stages = 1 + n_stages;
    e->n_stamps = n_stamps;
    e->stages = calloc((size_t)e->n_stages, sizeof *e->stages);
    e->time_ns = calloc((size_t)e->n_stages, sizeof *e->time_ns);
    if (!e->stages || !e->time_ns) return host.fail(MLFF_ERR_MEMORY, "out of memory: stages");
    e->stages[0] = (mlff_stage){"launch", "", -1, "start of the graph, measured apart"};
    memcpy(e->stages + 1, stages, sizeof *stages * (size_t)n_stages);
    return MLFF_OK;
}

void cuda_evaluator_read_stamps(cuda_evaluator *e, int forces, double graphs)
{
    e->time_ns[0] = graphs * e->launch_ns;
    e->kind->read_stamps(e, forces, e->time_ns + 1);
}

void cuda_evaluator_stage_times(const cuda_evaluator *e, double *time_ns)
{
    memcpy(time_ns, e->time_ns, sizeof(double) * (size_t)e->n_stages);
}
