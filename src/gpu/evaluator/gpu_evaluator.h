/* SPDX-License-Identifier: MIT */
/* gpu_evaluator.h: a model on one GPU: calls, neighbor rows, memory, graphs. Models add their kernels (src/model/X/gpu,
 * gpu_registry.c); dynamics use it for their steps (gpu_dynamics.c). */
#ifndef GPU_EVALUATOR_H
#define GPU_EVALUATOR_H

#include "gpu_call.h"

enum { MAX_GRAPHS = 16, FIRST_ROW = 64, CELL_LIST_FROM = 1536 /* atoms of a system */ };

typedef struct captured_graph {
    gpu_plan plan;
    int from_device, given_pairs, ghosts, stamps;
    int64_t last_use;
    cudaGraphExec_t graph; // NULL: free
    double launch_ns;      // between two of its steps, not covered by stamps; 0: not measured yet
} captured_graph;

/* Times of the host's clock in a call, ns. */
typedef struct host_times {
    int64_t begun, filled, enqueued, waited,
        taken;        // entered; inputs are ready; the step is enqueued; it is complete; results copied
    int64_t repeated; // of the first part: computations that were given up, ns
    int64_t agreed;   // of the last part: the wait for others' answer whether the step is repeated, ns
} host_times;

/* The model's part of an evaluator. */
typedef struct gpu_kind {
    /* The model's arrays of a step whose sizes are set: pointers relative to `base`; returns the bytes. With base NULL the evaluator is
     * unchanged. */
    size_t (*arena)(gpu_evaluator *evaluator, const gpu_step *step, void *base);
    /* Sets the model's part of a plan. */
    void (*plan)(const gpu_evaluator *evaluator, gpu_plan *plan);
    /* Enqueue the kernels of one step: the neighbor rows, then the model. The stream is being captured, except with has_halo: then the
     * report on the rows is read between the two. */
    mlff_status (*enqueue_rows)(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
    mlff_status (*enqueue_model)(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
    /* Times of its stages in ns, from the stamps of the last stamped step. */
    void (*read_stamps)(const gpu_evaluator *evaluator, int forces, double *time_ns);
    /* Prepares steps with plan.wide, once, before the first of them; NULL: the model has none. Fails with MLFF_ERR_UNSUPPORTED if the GPU
     * cannot run them, MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
    mlff_status (*widen)(gpu_evaluator *evaluator);
    /* Reads the report of a step that succeeded, of so many atoms; not of steps of dynamics. NULL: the model reports nothing of its own. */
    void (*read_report)(gpu_evaluator *evaluator, const gpu_report *report, int n_atoms);
    /* Releases what the model allocated beyond its evaluator; NULL: nothing. */
    void (*release)(gpu_evaluator *evaluator);
    const int *tiles; /* values of plan.tile that MLFF_CUDA_PLAN may force, ended by -1; NULL: none */
} gpu_kind;

/* With halo hooks and stage clocks on: an exchange of the last step, which begins when stage `stage` of the model has ended. */
enum { GPU_MAX_EXCHANGES = 32 };
typedef struct timed_exchange {
    cudaEvent_t begin, end;
    int stage;
} timed_exchange;

struct gpu_evaluator {
    const gpu_kind *kind;
    const struct gpu_architecture *architecture; // gpu_registry.h
    const char *model_name;                      // borrowed from the model
    int device, n_multiprocessors, shared_bytes;
    int capability, hopper; // of the GPU, or less if its code was compiled for less; 1: code for Hopper alone
    gpu_step step;
    void *code; // device memory for gpu_launch_code
    void *constants, *arena;
    size_t constant_bytes, arena_bytes;
    host_arrays io;
    void *input;  // device copy of a host batch's input block
    void *staged; // the same of a device batch
    char *sent;   // contents of `staged`, and room for the next
    size_t staged_bytes, sent_bytes;
    cudaStream_t sent_on;
    char *seen; // first_atom, cells, periodic, charges and spins of the input block's systems
    size_t known_bytes, known_capacity;
    int known_atoms, known_systems; // and its sizes
    bool known_on_device;           // of a device batch, whose cells are not in `seen`
    int trusted_atoms;              // a device batch of so many atoms has succeeded with this row capacity
    bool left;                      // a step has not been waited for:
    cudaStream_t left_on;           // on this stream
    cudaEvent_t left_end;           // its end
    cudaStream_t stream, side;
    cudaStream_t background; // its blocks begin where those of the other two leave room
    cudaEvent_t forked, joined;
    cudaEvent_t reported; // in steps without a graph: the report of the neighbor rows is on the host
    bool rows_unknown;    // it has not been waited for
    mlff_halo halo;       // if has_halo: the caller exchanges ghosts' features between layers; such steps use no graph
    int has_halo;
    int waits;         // 1: a caller with halos, who needs results that are complete, waits for device batches too
    int ghosts;        // 1: this batch says which atoms are owned
    int reads_charges; // 1: the model depends on charge and spin
    int wide;          // 1: this step is repeated with float32's range
    captured_graph graphs[MAX_GRAPHS];
    mlff_stage *stages;
    int n_stages, n_stamps, clock_on;
    double *time_ns;
    timed_exchange exchanges[GPU_MAX_EXCHANGES];
    int n_exchanges;
    host_times host_ns;        // of the last stamped step called by the host
    bool stamps_unread;        // its stamps are not in time_ns yet
    bool stamped_forces;       // it computed forces
    double stamped_launch_ns;  // its graph's launch_ns
    cudaGraphExec_t clock;     // the clock kernel; NULL until clocks are on
    void *clock_times;         // its stamps: launches so far, then two times of each
    double launch_ns;          // between two clock kernels
    int member;                // of an ensemble, the member that runs; −1: all
    int n_members;             // members that run
    int atom_limit, row_limit; // atoms, and neighbors of an atom, that the kernels hold
    gpu_plan forced;           // from MLFF_CUDA_PLAN
    // While dynamics send their call: cells in GPU memory whose values the host has; completing them there takes 4 µs a step.
    const double *device_cells, *host_cells;
    gpu_report *report;   // report of device batches; NULL: in page-locked memory
    const void *dynamics; // those whose call is in `staged` and whose graphs have the arrays' addresses; NULL: none
    int64_t n_computes, n_pairs, n_growths, n_rebuilds;
    int32_t lists_counted; // Verlet lists included in n_rebuilds
    int asymmetric;        // 1: an asymmetric list has been given: allocate arrays for its transpose
};

/* Sizes are rounded up by at most an eighth, so that a slowly growing size leads to few captures. */
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

/* Opens what all models need: device, streams, events. On failure the caller destroys the evaluator. */
mlff_status gpu_evaluator_open(gpu_evaluator *evaluator, const gpu_kind *kind, const char *model_name,
                               const mlff_evaluator_options *options);
/* A stream whose kernels, also in graphs captured from it, get free multiprocessors before those of other streams (`first`), or after. */
mlff_status gpu_evaluator_make_stream(bool first, cudaStream_t *stream_out);
/* Packs the model's constants: with block NULL only *bytes is set; pointers are relative to `base`. */
typedef void (*gpu_pack_model)(void *context, void *block, size_t *bytes, const void *base);
mlff_status gpu_evaluator_upload(gpu_evaluator *evaluator, gpu_pack_model pack, void *context);
/* The same for more constants of it: memory to be freed by cuda_release. */
mlff_status gpu_evaluator_upload_more(gpu_evaluator *evaluator, gpu_pack_model pack, void *context, void **constants_out);
/* Whether a step that overflowed can be repeated with plan.wide; prepares it. *can_out is false if model or GPU cannot, or if ghosts are
 * exchanged, which other processes take part in. Fails with MLFF_ERR_MEMORY or MLFF_ERR_DEVICE. */
mlff_status gpu_evaluator_widen(gpu_evaluator *evaluator, bool *can_out);
/* Sets the stages of a step: the evaluator's own around the model's, whose times come from `n_stamps` stamps. */
mlff_status gpu_evaluator_set_stages(gpu_evaluator *evaluator, const mlff_stage *stages, int n_stages, int n_stamps);
/* Measures the time between two steps of a stamped graph, ns, by repeating the last step on its stream. */
mlff_status gpu_evaluator_measure_launch(gpu_evaluator *evaluator, captured_graph *graph, cudaStream_t stream);
/* Reads the stage times of the last stamped step of dynamics; launch_ns: the time not covered by stamps. */
void gpu_evaluator_read_stamps(gpu_evaluator *evaluator, int forces, double launch_ns);
/* Keeps what the stage times of a stamped call are read from, when they are asked for. */
void gpu_evaluator_keep_stamps(gpu_evaluator *evaluator, int forces, double launch_ns, const host_times *times);
/* In a step without a graph: waits until it is known whether inputs are valid and neighbor rows long enough. */
mlff_status gpu_evaluator_know_rows(gpu_evaluator *evaluator, bool *good_out);
/* Exchanges ghosts' rows of an array by the caller's hook; timed where stage clocks are on. It follows stage `stage` of the model.
 * Fails without a message where neighbor rows are not good: the step ends, and its report says why. */
mlff_status gpu_evaluator_exchange(gpu_evaluator *evaluator, int layer, int stage, const mlff_halo_array *array,
                                   cudaStream_t stream);
void gpu_evaluator_release_exchanges(gpu_evaluator *evaluator);
/* The host's clock, if stage clocks are on; else 0. */
int64_t gpu_evaluator_host_clock(const gpu_evaluator *evaluator);
/* Ensures room for a batch and rows of at least `row` neighbors; drops graphs if an array moved. Fails with MLFF_ERR_LIMIT,
 * MLFF_ERR_MEMORY or MLFF_ERR_DEVICE. */
mlff_status gpu_evaluator_grow(gpu_evaluator *evaluator, int n_atoms, int n_systems, int row);
/* Of dynamics too, which capture theirs again. Does not wait: none of them may be running. */
void gpu_evaluator_drop_graphs(gpu_evaluator *evaluator);
/* `largest`: atoms of the largest system. */
gpu_plan gpu_evaluator_make_plan(const gpu_evaluator *evaluator, int n_atoms, int n_systems, int largest, int isolated,
                                 int forces);
/* 1 if no system of a batch is periodic. */
int gpu_evaluator_isolated(const mlff_batch *batch);
/* Enqueues a whole step on a stream that is being captured. */
mlff_status gpu_evaluator_enqueue(gpu_evaluator *evaluator, const gpu_step *step, const gpu_plan *plan, cudaStream_t stream);
/* The status that a report's flags mean. */
mlff_status gpu_evaluator_report_status(const gpu_evaluator *evaluator, const gpu_report *report);

#endif
