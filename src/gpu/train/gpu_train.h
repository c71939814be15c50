/* SPDX-License-Identifier: MIT */
/* gpu_train.h: what training on a GPU shares between architectures: a batch's header, gradients of weights as matrix products
 * over the rows of a batch, their sums in fixed order, and the optimizer. Read by C and by C++ (nvcc). */
#ifndef GPU_TRAIN_H
#define GPU_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one step */

/* What the host says of a step; first in its slot of mapped memory. Loss and update as in mlff_loss and train_update. */
typedef struct gpu_train_call {
    int32_t n_frames, n_atoms, n_pairs;
    int32_t energy_per_atom;
    double total_frames, total_atoms; /* that the loss is a mean over */
    double energy_weight, forces_weight, stress_weight, atom_energies_weight, hessian_weight, huber_forces;
    double learning_rate, beta1, beta2, epsilon, weight_decay, clip, average, correction1, correction2;
    double soap_decay; /* of SOAP's covariances (gpu_soap.h) */
} gpu_train_call;

/* Sums over steps, as train_sums; and of one frame of a step. */
typedef struct gpu_train_sums {
    double loss, energy_absolute, energy_square, force_absolute, force_square, stress_absolute;
    double n_energies, n_force_components, n_stresses;
    double n_steps, n_frames, n_atoms, n_failed; /* n_failed: steps whose loss or gradient was not finite */
} gpu_train_sums;
enum { GPU_TRAIN_FRAME_SUMS = 9 }; /* of the first fields */

/* A batch may be divided among branches of a step's graph, whose kernels run side by side: what one of them leaves. */
enum { GPU_TRAIN_BRANCHES = 2 };
typedef struct gpu_train_branch {
    const gpu_train_call *call; /* counts of its frames; all else as in the other branches */
    const double *frame_sums;   /* [frames][GPU_TRAIN_FRAME_SUMS] */
} gpu_train_branch;

/* ---- gradients of weights */

enum {
    GPU_WEIGHT_SMALL_TILE = 64, /* rows and columns of a tile of a weight matrix; 2 threads a row */
    GPU_WEIGHT_LARGE_TILE = 128,
    GPU_WEIGHT_THREADS = 512, /* of a multiprocessor at once; fewer where it holds one large tile only (68 KB) */
    GPU_WEIGHT_JOBS = 32,     /* at most in a launch */
};

/* One weight matrix y = x Wᵀ (+ bias) and the rows it was used on: G = ȳ̇ᵀ x + ȳᵀ ẋ, of the bias Σ ȳ̇. n_in 0: only column
 * sums of `left_tangent`. Without ẋ (NULL: it is 0), ȳ is not read. */
typedef struct gpu_weight_job {
    const float *left, *left_tangent;   /* ȳ, ȳ̇ [rows][n_out]; with TF32 rounded (tf32_operand), but for column sums alone */
    const float *right, *right_tangent; /* x, ẋ [rows][n_in] */
    int32_t n_out, n_in, rows_per_atom, has_bias;
    int32_t first_block, n_tiles, n_splits; /* blocks n_tiles · n_splits: split s has rows from s · split_rows on */
    int32_t split_rows;
    float *partial; /* [n_splits][n_out n_in + (has_bias ? n_out : 0)] */
} gpu_weight_job;

/* Where the gradient of a tensor comes from: partial sums of equal layout. */
typedef struct gpu_gradient_source {
    const float *partial;
    int64_t stride;       /* floats between two partial sums */
    int32_t rows_per_sum; /* rows of the batch in one sum: ceil(n_atoms rows_per_atom / rows_per_sum) count; 0: n_sums */
    int32_t rows_per_atom, n_sums, branch;
} gpu_gradient_source;

enum { GPU_GRADIENT_SOURCES = 16 }; /* of a tensor, at most: layers that share it, times branches */

/* One tensor, or a part of one, and its gradient: n_rows × n_columns elements from `offset` on in the vector of weights. In partial sums, which
 * begin at a multiple of four floats, they stand column by column, one row as it is; where they are no multiple of four, unused floats follow. */
typedef struct gpu_gradient_part {
    int64_t offset;
    int32_t n_rows, n_columns; /* n_rows: 1 or a multiple of 4 */
    int32_t first_block;
    int32_t n_shares; /* threads that share the partial sums of four elements: 1 or GPU_GRADIENT_SHARES */
    int32_t n_sources;
    gpu_gradient_source source[GPU_GRADIENT_SOURCES];
} gpu_gradient_part;
enum { GPU_GRADIENT_THREADS = 512, GPU_GRADIENT_SHARES = 16 };

static inline int gpu_gradient_blocks(const gpu_gradient_part *part)
{
    const int elements = 4 * GPU_GRADIENT_THREADS / part->n_shares; /* of a block */
    return (part->n_rows * part->n_columns + elements - 1) / elements;
}

/* GPU_OF_SOAP: the update makes its new momentum alone (gpu_soap.h). */
enum gpu_weight_rule { GPU_DECAYS = 1, GPU_OF_SOAP = 2 };

typedef struct gpu_optimizer {
    int64_t n; /* weights, padding included: a multiple of 4 */
    float *weights, *average, *m, *v, *gradient;
    const unsigned char *rules;     /* [n] bits of enum gpu_weight_rule */
    const gpu_gradient_part *parts; /* [n_parts] */
    int32_t n_parts, n_blocks;      /* of gpu_launch_gradient_sums */
    double *squares;                /* [n_blocks] sum of squares of each block's elements */
    double *loss;                   /* [1] of this step */
    float *scale; /* [1] for SOAP: what clipping multiplies this step's gradient by, 0 if it is not finite; or NULL */
    gpu_train_sums *sums;
    int32_t n_branches;
    gpu_train_branch branch[GPU_TRAIN_BRANCHES];
} gpu_optimizer;

/* Bits of `overlap`, those of gpu/ptx/launch.cuh: programmatic launches; one share of shared memory for all kernels of a step. */
enum { GPU_TRAIN_OVERLAP = 1, GPU_TRAIN_SHARED = 4 };

/* ---- launches; results are cudaError_t. `stream` is a cudaStream_t. `parts` 1: TF32, 3: close to float32. */
/* Once for each device, before the first launch: the kernel of a tile gets its shared memory. */
int gpu_prepare_weight_gradients(int tile, int parts);
int gpu_launch_weight_gradients(const gpu_weight_job *jobs, int n_jobs, int n_blocks, int tile, const gpu_train_call *call,
                                int parts, int overlap, void *stream);
/* Adds up the partial sums into `gradient`, frame sums into `loss`. */
int gpu_launch_gradient_sums(const gpu_optimizer *optimizer, int overlap, void *stream);
/* Squares of the gradient once more, after gradients of several GPUs were added. */
int gpu_launch_squares(const gpu_optimizer *optimizer, int overlap, void *stream);
/* Clipping, AdamW, moving average; adds this step to `sums`. A step that is not finite changes no weight. */
int gpu_launch_update(const gpu_optimizer *optimizer, int overlap, void *stream);
/* Adds this step's frame sums to `sums` without an update. */
int gpu_launch_count(const gpu_optimizer *optimizer, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
