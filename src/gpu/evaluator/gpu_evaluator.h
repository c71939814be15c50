/* SPDX-License-Identifier: MIT */
/* gpu_evaluator.h: a model on one GPU: calls, rows of neighbours, memory, graphs. Models bring their kernels (src/model/X/gpu,
 * gpu_registry.c); dynamics step with it (gpu_dynamics.c). */
#ifndef GPU_EVALUATOR_H
#define GPU_EVALUATOR_H

#include "gpu_call.h"

enum { MAX_GRAPHS = 16, FIRST_ROW = 64, BINS_FROM = 1536 /* atoms of a system */ };

typedef struct captured_graph {
    gpu_plan plan;
    int from_device, given_pairs, stamps;
    int64_t last_use;
    cudaGraphExec_t graph; // NULL: free
    double launch_ns;      // between two of its steps, which its stamps do not see; 0: not measured yet
} captured_graph;

/* What a kind of model adds. */
typedef struct gpu_kind {
    /* Work arrays of a step: pointers relative to `base`, of a step whose sizes are set; answers the bytes. With base NULL
     * nothing else is touched. */
    size_t (*arena)(gpu_evaluator *evaluator, const gpu_step *step, void *base);
    /* Its own part of a plan. */
    void (*plan)(const gpu_evaluator *evaluator, gpu_plan *plan);
    /* Enqueue the kernels of one step, the rows of neighbours and then the model. The stream is being captured, but where
     * has_halo: then the rows' report is looked at between the two. */
    mlff_status (*enqueue_rows)(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
    mlff_status (*enqueue_model)(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
    /* Times of its stages in ns, from the stamps of the last step that left some. */
    void (*read_stamps)(const gpu_evaluator *evaluator, int forces, double *time_ns);
} gpu_kind;

struct cuda_evaluator {
    const gpu_kind *kind;
    const struct gpu_architecture *architecture; // gpu_registry.h
    const char *model_name;                      // borrowed from the model
    int device, n_multiprocessors, shared_bytes;
    int capability, hopper; // of the GPU, or less if its code was compiled for less; 1: code for Hopper alone
    gpu_step step;
    void *code; // what the kernels said of themselves
    void *constants, *arena;
    size_t constant_bytes, arena_bytes;
    host_arrays io;
    void *input;  // device copy of a host batch's input block
    void *staged; // of a device batch's
    char *sent;   // what stands there, and after it room for the next
    size_t staged_bytes, sent_bytes;
    cudaStream_t sent_on;
    char *seen; // first_atom, cells and periodic that the input block's systems were made from
    size_t known_bytes, known_capacity;
    int known_atoms, known_systems; // and its sizes
    int trusted_atoms;              // a device batch of so many atoms went through with rows of this capacity
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    mlff_halo halo; // if has_halo: between layers the caller exchanges ghosts' features; such steps are no graphs
    int has_halo;
    captured_graph graphs[MAX_GRAPHS];
    mlff_stage *stages;
    int n_stages, n_stamps, clock_on;
    double *time_ns;
    cudaGraphExec_t clock;     // a kernel that notes its beginning and end, once clocks were on
    void *clock_times;         // there: kernels so far, then two times of each
    double launch_ns;          // between two of them
    int member;                // of an ensemble, the one that runs; −1: all
    int n_members;             // that run
    int atom_limit, row_limit; // atoms, and neighbors of an atom, that the kernels hold
    gpu_plan forced;           // from MLFF_CUDA_PLAN
    const double *device_cell; // of dynamics: a cell on the GPU that the host knows; completing it there takes 4 µs a step
    double host_cell[9];
    gpu_report *report; // where device batches leave their report; NULL: in page-locked memory
    int64_t n_computes, n_pairs, n_growths, n_rebuilds;
    int32_t lists_counted; // of those made of candidates
    int asymmetric;        // pairs without their reverses were handed in: rows for them
};

/* Sizes are rounded up by at most an eighth, so that a size that creeps up leads to few captures. */
static inline int class_of(int n)
{
    int step = 16;
    while (step * 16 < n) step *= 2;
    return (n + step - 1) / step * step;
}

static inline int class_of_systems(int n)
{
    int c = 1;
    while (c < n && c < 16) c *= 2;
    return n <= 16 ? c : class_of(n);
}

/* What is common to all kinds: device, streams, events. On failure the caller destroys the evaluator. */
mlff_status gpu_evaluator_open(gpu_evaluator *evaluator, const gpu_kind *kind, const char *model_name,
                               const mlff_evaluator_options *options);
/* Packs the model's constants: with block NULL only *bytes is answered; pointers are set relative to `base`. */
typedef void (*gpu_pack_model)(void *context, void *block, size_t *bytes, const void *base);
mlff_status gpu_evaluator_upload(gpu_evaluator *evaluator, gpu_pack_model pack, void *context);
/* The stages of a step: "launch", then the kind's, whose times come from `n_stamps` stamps. */
mlff_status gpu_evaluator_set_stages(gpu_evaluator *evaluator, const mlff_stage *stages, int n_stages, int n_stamps);
/* What lies between two steps by a graph that leaves stamps, ns: steps like the last one are taken for it, on its stream. */
mlff_status gpu_evaluator_measure_launch(gpu_evaluator *evaluator, captured_graph *graph, cudaStream_t stream);
/* Times of the stages of the last step that left stamps, and of what no stamp sees. */
void gpu_evaluator_read_stamps(gpu_evaluator *evaluator, int forces, double launch_ns);
/* Room for a batch, rows of `row` neighbours at least; forgets graphs if anything moved. */
mlff_status gpu_evaluator_grow(gpu_evaluator *evaluator, int n_atoms, int n_systems, int row);
/* Waits for nothing: the caller has seen to it that none of them runs. */
void gpu_evaluator_drop_graphs(gpu_evaluator *evaluator);
/* `largest`: atoms of the largest system. */
gpu_plan gpu_evaluator_make_plan(const gpu_evaluator *evaluator, int n_atoms, int n_systems, int largest, int forces);
/* A whole step, on a stream that is being captured. */
mlff_status gpu_evaluator_enqueue(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
/* The status that a report's flags mean. */
mlff_status gpu_evaluator_report_status(const gpu_evaluator *evaluator, const gpu_report *report);

#endif
