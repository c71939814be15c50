/* SPDX-License-Identifier: MIT */
/* device.h: the one struct through which libmlff reaches a GPU. It is filled by libmlff_cuda.so, a plugin that is opened
 * at run time; libmlff itself depends on no CUDA library. Read by C and by C++ (nvcc): no `restrict` here. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>
#include <stdio.h>

#include "mlff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of libmlff that the plugin calls. */
typedef struct device_host {
    mlff_status (*fail)(mlff_status status, const char *format, ...) MLFF_PRINTF(2, 3);
    void (*warn)(const char *format, ...) MLFF_PRINTF(1, 2);
} device_host;

/* A model as libmlff passes it to the plugin; borrowed while the evaluator lives, but for `members`. The sizes show whether both
 * were built from the same sources. */
typedef struct device_model {
    const char *architecture, *title; /* its name in the registries, and as printed */
    const mlff_model *model;
    size_t model_bytes;
    const void *parameters; /* the architecture's own */
    size_t parameters_bytes;
    const int *members; /* [n_members] of an ensemble, to be run; n_members 0: all. Read at creation */
    int n_members;
} device_model;

struct train_layout; /* model/train_backend.h */
struct train_backend;
struct train_backend_options;
struct domain_motion; /* atoms/dynamics/domain_motion.h */

/* A model to be trained; borrowed for the call, but for what `model` borrows. `*layout` is taken over on success and released
 * by layout_free. */
typedef struct device_trainee {
    device_model model;
    const struct train_layout *layout;
    void (*layout_free)(struct train_layout *layout);
    const void *trainable; /* the architecture's own: where its arrays stand in the flat vector */
    size_t trainable_bytes;
    const double *weights;        /* the flat vector */
    const struct soap_plan *soap; /* rows of its state padded as on the CPU; NULL: AdamW */
    const double *soap_state;     /* before the first step; NULL: AdamW */
} device_trainee;

/* One model on one GPU, with its buffers and captured graphs. */
typedef struct gpu_evaluator gpu_evaluator;
/* Atoms that are integrated on the GPU, step after step, without leaving it. */
typedef struct gpu_dynamics gpu_dynamics;

/* One of the systems that start together, each with its own options; borrowed during the call. */
typedef struct gpu_dynamics_start {
    const mlff_system *system;
    const mlff_dynamics_options *options;
    const struct dynamics_bath *bath; /* atoms/dynamics/bath.h */
    double n_degrees;                 /* of freedom, of the temperature */
    int64_t step;                     /* number of the first step, which the noise depends on */
} gpu_dynamics_start;

/* A system as it stands; borrowed until the next run. */
typedef struct gpu_dynamics_state {
    const double *positions, *velocities, *forces; /* [n_atoms][3] */
    const double *cell, *virial;                   /* [9]; NULL at constant volume */
    const struct dynamics_bath *bath;
    double potential_energy;
} gpu_dynamics_state;

/* Rows of an array, gathered from or summed over arrays in the memory of several GPUs. Rows are of `width` floats, a multiple of 4.
 * Row k of n_rows, k' = to_row[k] or, without to_row, to_first + k:
 *   first NULL: to[k'] = from[source[k]][row[k]];  else: the sum of from[source[j]][row[j]], j = first[k] … first[k + 1] − 1, in order;
 *   if `add` is not 0, added to to[k']. Without `source` all are rows of from[0]; without `row`, row j is j. */
enum { DEVICE_MAX_SOURCES = 64 };
typedef struct device_rows {
    float *to;
    const float *from[DEVICE_MAX_SOURCES]; /* not through memory that this struct points to: it is passed to a kernel */
    int32_t width, n_rows, to_first, add;
    const int32_t *to_row, *first, *source, *row; /* device memory */
} device_rows;

typedef struct device_plugin {
    /* ---- devices; every function fails with MLFF_ERR_DEVICE if the driver does */
    mlff_status (*count)(int *n_out);
    mlff_status (*info)(int index, mlff_device_info *info_out);
    mlff_status (*memory)(int index, mlff_device_memory *memory_out);
    mlff_status (*peak_reset)(int index);
    mlff_status (*cache_empty)(int index);
    mlff_status (*synchronize)(int index);
    mlff_status (*warm_up)(int index);
    mlff_status (*stream_create)(int index, void **stream_out);
    mlff_status (*stream_synchronize)(int index, void *stream);
    void (*stream_destroy)(int index, void *stream);
    mlff_status (*event_create)(int index, void **event_out);
    mlff_status (*event_record)(int index, void *event, void *stream);
    mlff_status (*event_elapsed)(int index, void *start, void *end, double *time_ns_out); /* waits for `end` */
    void (*event_destroy)(int index, void *event);
    mlff_status (*allocate)(int index, size_t bytes, void **memory_out);
    void (*release)(int index, void *memory);
    mlff_status (*copy)(int index, void *to, const void *from, size_t bytes); /* any direction; waits */

    /* ---- several GPUs */
    /* Lets each of these GPUs read the memory of the others. MLFF_ERR_UNSUPPORTED where two of them cannot. */
    mlff_status (*peers_connect)(const int *indices, int n);
    /* What is enqueued on `stream` from now on begins after what `event`, of any GPU, has recorded. */
    mlff_status (*stream_wait)(void *stream, void *event);
    mlff_status (*rows_exchange)(int index, const device_rows *rows, void *stream); /* enqueued */
    mlff_status (*zero)(int index, void *memory, size_t bytes, void *stream);       /* enqueued */
    /* A domain_move of atoms/dynamics/domain_motion.h, enqueued; the motion is copied. */
    mlff_status (*move_domain)(int move, const struct domain_motion *motion, void *stream);
    /* Page-locked memory of the host that all GPUs read and write. */
    mlff_status (*allocate_host)(int index, size_t bytes, void **memory_out);
    void (*release_host)(void *memory);

    /* Memory of `allocate` in other processes: a handle of 64 bytes. */
    mlff_status (*memory_share)(int index, void *memory, void *handle_out);
    mlff_status (*memory_open)(int index, const void *handle, void **memory_out);
    void (*memory_close)(int index, void *memory);

    /* ---- evaluators: options->device.index, options->precision */
    /* Fails with MLFF_ERR_UNSUPPORTED for an architecture, model or precision without GPU kernels. */
    mlff_status (*evaluator_create)(const device_model *model, const mlff_evaluator_options *options,
                                    gpu_evaluator **evaluator_out);
    /* Of an ensemble: compute() is of this one of the members that run, or, with -1, of their mean. */
    void (*select_member)(gpu_evaluator *evaluator, int member);
    /* Whole batch, whole step. With everything on the device the work is enqueued on batch->stream and not waited for. */
    mlff_status (*compute)(gpu_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results);
    const mlff_stage *(*stages)(const gpu_evaluator *evaluator, int *n_out);
    mlff_status (*stage_clock_set)(gpu_evaluator *evaluator, int on);
    void (*stage_times)(gpu_evaluator *evaluator, double *time_ns);
    /* Stage of a kernel: "forward/message"; "" between steps; NULL: not the evaluator's. */
    const char *(*kernel_stage)(const gpu_evaluator *evaluator, const char *kernel);
    void (*evaluator_info)(const gpu_evaluator *evaluator, mlff_evaluator_info *info_out); /* fills its own fields only */
    void (*destroy)(gpu_evaluator *evaluator);

    /* ---- training: the backend of model/train_backend.h. Fails with MLFF_ERR_UNSUPPORTED as evaluator_create does. */
    mlff_status (*trainer_create)(const device_trainee *trainee, const struct train_backend_options *options,
                                  struct train_backend **backend_out);

    /* ---- dynamics on the GPU; the evaluator is borrowed and is not to be used for anything else meanwhile */
    /* Systems that make their steps together, in one batch; all of one ensemble, with one timestep. */
    mlff_status (*dynamics_create)(gpu_evaluator *evaluator, const gpu_dynamics_start *starts, int n_systems,
                                   gpu_dynamics **dynamics_out);
    /* times_ns (or NULL) gets each step's time by the GPU's own timer. A failure leaves all atoms at the end of the last good step, of
     * which there were *n_done_out; *failed_out is the system that failed. */
    mlff_status (*dynamics_run)(gpu_dynamics *dynamics, int64_t n_steps, double *times_ns, int64_t *n_done_out, int *failed_out);
    void (*dynamics_get)(gpu_dynamics *dynamics, int system, gpu_dynamics_state *state_out);
    void (*dynamics_destroy)(gpu_dynamics *dynamics);
} device_plugin;

/* Library and plugin must agree on this text: version and layout of everything that passes between them. */
static inline void device_build_id(char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "mlff %s layout %zu-%zu-%zu-%zu-%zu", MLFF_VERSION,
             sizeof(device_plugin) + sizeof(device_rows) + sizeof(gpu_dynamics_start) + sizeof(gpu_dynamics_state),
             sizeof(device_trainee), sizeof(mlff_batch) + sizeof(mlff_results),
             sizeof(mlff_evaluator_options) + sizeof(mlff_evaluator_info), sizeof(mlff_device_info) + sizeof(mlff_device_memory));
}

/* The plugin's one exported symbol. `build_id` is the library's; a plugin of another build refuses. */
#define DEVICE_PLUGIN_SYMBOL "mlff_cuda_plugin"
typedef mlff_status (*device_plugin_entry)(const char *build_id, const device_host *host, const device_plugin **plugin_out);

/* Opens the plugin (once a process) and checks driver and GPUs. MLFF_ERR_DEVICE with the reason if there is none that
 * works; the same answer is given at each later call. Looked for at $MLFF_CUDA_PLUGIN, else by absolute path
 * beside the library (or the program it is linked into) and in ../lib from there; nowhere else. */
mlff_status device_plugin_get(const device_plugin **plugin_out);

/* Absolute folder, with its last '/', of the library, or of the program that it is linked into. Empty if it is unknown: a relative path
 * would open whatever lies in the current folder. `folder` has PATH_MAX bytes. */
void device_own_folder(char *folder, size_t folder_bytes);

#ifdef __cplusplus
}
#endif
#endif
