/* SPDX-License-Identifier: MIT */
/* painn_trainer_gpu.h: host side of training a PaiNN on a GPU: data sets (painn_train_upload.c), memory of a step
 * (painn_train_arena.c), and the backend with its graphs (painn_trainer_gpu.c). */
#ifndef PAINN_TRAINER_GPU_H
#define PAINN_TRAINER_GPU_H

#include "device/device_cuda.h"
#include "model/painn/painn_trainable.h"
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
    cudaGraphExec_t executable;
    int64_t used; /* step of its last use */
} painn_train_graph;

typedef struct painn_trainer {
    train_backend backend; /* first */
    char *name;
    void (*layout_free)(train_layout *layout);
    int device, n_multiprocessors, parts, overlap;
    size_t shared_bytes;
    painn_train_step step; /* its arrays lie in `arena` */
    cudaStream_t stream;
    cudaEvent_t half_done[2]; /* the steps of this half of the slots were taken */
    int64_t n_calls;          /* slots filled so far */
    char *slots;              /* mapped memory */

    int64_t n_weights; /* of the padded vector on the device */
    int64_t *place;    /* [n_tensors] where a tensor begins in it */
    void *constants;   /* device: radial functions, vectors of weights, sums */
    float *vector[TRAIN_VECTORS];
    gpu_optimizer optimizer;
    gpu_train_sums *evaluation_sums;
    int32_t *element_of; /* device [n_species] */

    painn_gpu_set training, evaluation;
    void *arena; /* device */
    gpu_weight_job *jobs;
    int n_jobs, n_job_blocks;
    painn_train_graph graph[PAINN_TRAIN_GRAPHS];
} painn_trainer;

/* Sizes the arrays of a step for batches up to these counts. Waits for the device; no graph survives. */
mlff_status painn_train_arena_create(painn_trainer *trainer, int n_frames, int n_atoms, int n_pairs);
void painn_trainer_forget_graphs(painn_trainer *trainer);

#endif
