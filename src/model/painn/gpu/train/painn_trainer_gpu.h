/* SPDX-License-Identifier: MIT */
/* painn_trainer_gpu.h: host side of training a PaiNN on a GPU: data sets (painn_train_upload.c), memory of a step
 * (painn_train_arena.c), batches (painn_train_batch.c), SOAP (painn_trainer_soap.c), the backend of one GPU (painn_trainer_gpu.c) and
 * of several (painn_trainer_group.c). */
#ifndef PAINN_TRAINER_GPU_H
#define PAINN_TRAINER_GPU_H

#include "device/device_cuda.h"
#include "gpu/train/gpu_soap.h"
#include "model/painn/train/painn_trainable.h"
#include "painn_train_gpu.h"

/* A train_set on the device, and what the host needs of it to size a batch. */
typedef struct painn_gpu_set {
    int device;
    const train_set *set; /* borrowed */
    void *block;          /* device memory */
    size_t bytes;
    painn_train_data data;
    int64_t *frame_pairs; /* [n_frames + 1] pairs before each frame */
    int64_t most_pairs;   /* of one frame */
    int n_elements, element[MLFF_MAX_ATOMIC_NUMBER + 1];
} painn_gpu_set;
/* Replaces what was there; the memory is kept if it suffices. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
mlff_status painn_gpu_set_upload(painn_gpu_set *to, const train_set *set);
void painn_gpu_set_free(painn_gpu_set *set);

enum { PAINN_TRAIN_GRAPHS = 16, PAINN_TRAIN_MAX_JOBS = 5 * PAINN_TRAIN_MAX_LAYERS + 2 };

typedef struct painn_train_graph {
    painn_train_plan plan;
    int pass;
    cudaGraphExec_t executable;
    int64_t used; /* step of its last use */
} painn_train_graph;

typedef struct painn_trainer {
    train_backend backend; /* first */
    char *name;
    void (*layout_free)(train_layout *layout);
    int device, n_multiprocessors, parts, overlap, chains; /* chains: kernels of painn_train_launch_chain */
    size_t shared_bytes;
    painn_train_step step;                       /* what all branches have; capacities of each */
    painn_train_step branch[GPU_TRAIN_BRANCHES]; /* [n_branches] their arrays lie in `arena` */
    int n_branches;
    cudaStream_t stream, side[GPU_TRAIN_BRANCHES - 1]; /* branches but the first have a side stream */
    cudaEvent_t forked, joined[GPU_TRAIN_BRANCHES - 1];
    cudaEvent_t half_done[2]; /* the steps of this half of the slots were taken */
    int64_t n_calls;          /* slots filled so far */
    char *slots;              /* mapped memory */

    int64_t n_weights; /* of the padded vector on the device */
    int64_t *place;    /* [n_tensors] where a tensor begins in it */
    void *constants;   /* device: radial functions, vectors of weights, sums */
    float *vector[TRAIN_SOAP];
    gpu_optimizer optimizer;
    gpu_soap soap;     /* without tiles: the optimizer is AdamW */
    void *soap_block;  /* device */
    float *soap_state; /* device [backend.n_soap_values] */
    bool bases_due;    /* of the last step: the next one updates them beside its gradient, or painn_soap_finish */
    cudaStream_t bases;
    cudaEvent_t bases_begin, bases_end;
    gpu_train_sums *evaluation_sums;
    painn_train_elements *element_sums; /* of evaluations */
    int32_t *element_of;                /* device [n_species] */

    painn_gpu_set training, evaluation;
    void *arena; /* device */
    gpu_weight_job *jobs;
    int n_jobs, n_job_blocks, weight_tile; /* jobs and blocks of each branch */
    painn_train_graph graph[PAINN_TRAIN_GRAPHS];
} painn_trainer;

/* Sizes the arrays of a step for branches up to these counts. Waits for the device; no graph survives. */
mlff_status painn_train_arena_create(painn_trainer *trainer, int n_branches, int n_frames, int n_atoms, int n_pairs);
void painn_trainer_forget_graphs(painn_trainer *trainer);

/* ---- batches */

/* What is done with a batch: errors of the averaged weights; the gradient; the gradient as a share of a larger batch, by a graph; a
 * step, by a graph; a step that first updates SOAP's bases by the covariances of the one before. */
enum { PAINN_ERRORS, PAINN_GRADIENT, PAINN_SHARE, PAINN_STEP, PAINN_STEP_OF_BASES };

/* The counts of a batch, of which the loss is a mean. Fails with MLFF_ERR_LIMIT. */
mlff_status painn_train_count(const painn_gpu_set *set, const int32_t *frames, int n_frames, gpu_train_call *call);
/* Divides frames into n shares of about equal numbers of atoms: first[k] … first[k + 1] − 1. Both frames of a probe are in one share. */
void painn_train_divide(const train_set *set, const int32_t *frames, int n_frames, int n, int *first);
void painn_train_set_loss(gpu_train_call *call, const mlff_loss *loss);
void painn_train_set_update(gpu_train_call *call, const train_update *update);
/* Enqueues it. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE; then painn_train_recover, which returns `status`. */
mlff_status painn_train_submit(painn_trainer *trainer, const painn_gpu_set *set, const int32_t *frames,
                               const gpu_train_call *call, int pass);
mlff_status painn_train_recover(painn_trainer *trainer, mlff_status status);

/* The kernels from the gradient's sums and squares to new weights. `overlap` as painn_train_plan, of the first kernel and of others. */
mlff_status painn_train_update(const painn_trainer *trainer, const gpu_optimizer *optimizer, int first_overlap, int overlap);

/* ---- SOAP */

struct soap_plan; /* model/training/soap.h */
/* Its matrices and first state[plan->n_state] on the device. Fails with MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
mlff_status painn_soap_create(painn_trainer *trainer, const struct soap_plan *plan, const double *state);
/* Launches the update of the bases if it is due. */
mlff_status painn_soap_finish(painn_trainer *trainer);
/* The state, backend.n_soap_values numbers; no step may be running, no update due. */
mlff_status painn_soap_get(painn_trainer *trainer, double *values_out);
mlff_status painn_soap_set(painn_trainer *trainer, const double *values);

/* ---- trainers */

/* On one GPU; its layout is the trainee's, which it does not free. Fails as train_backend_create. */
mlff_status painn_trainer_create(const device_trainee *trainee, const train_backend_options *options, int device,
                                 painn_trainer **trainer_out);
/* The gradient and loss of the last batch; waits. */
mlff_status painn_trainer_read_gradient(painn_trainer *trainer, double *gradient_out, double *loss_out);
/* On options->devices. Fails also where there is no NCCL. */
mlff_status painn_trainer_group_create(const device_trainee *trainee, const train_backend_options *options,
                                       train_backend **backend_out);
/* The plugin's trainer of a PaiNN, of one of these kinds. Fails as they do, and with MLFF_ERR_UNSUPPORTED for float64. */
mlff_status painn_trainer_gpu_create(const device_trainee *trainee, const train_backend_options *options,
                                     train_backend **backend_out);

#endif
