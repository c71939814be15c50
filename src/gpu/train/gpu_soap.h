/* SPDX-License-Identifier: MIT */
/* gpu_soap.h: a step of SOAP on a GPU (model/training/soap.h has the equations): the matrices, and the tiles of their products,
 * of which each block of a kernel computes one. Read by C and by C++ (nvcc). */
#ifndef GPU_SOAP_H
#define GPU_SOAP_H

#include "gpu_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows and columns of a tile. Tiles of 64 are no faster, of large matrices too. */
enum { GPU_SOAP_TILE = 32, GPU_SOAP_MAX_SIDE = 128, GPU_SOAP_MAX_INNER = 128 };

/* One side of a matrix: n rows of ld floats each. All NULL: its basis is the identity. */
typedef struct gpu_soap_side {
    int32_t n, ld;
    int32_t n_samples; /* parts of G Gᵀ or Gᵀ G, each over GPU_SOAP_MAX_INNER columns or rows of G, or fewer */
    float *covariance, *basis;
    float *sample; /* [n_samples][n][ld] of this step */
    float *next;   /* the basis before it is made orthonormal */
} gpu_soap_side;

/* Arrays of n_rows × n_columns floats, row-major. */
typedef struct gpu_soap_matrix {
    int64_t offset; /* in the vectors of weights */
    int32_t n_rows, n_columns;
    gpu_soap_side left, right;
    float *gradient, *momentum; /* Q_Lᵀ G, Q_Lᵀ M; NULL without Q_L */
    float *step;                /* M'/(√V + ε) in the bases, times the learning rate */
    float *moved;               /* Q_L step; NULL without Q_L */
} gpu_soap_matrix;

/* Kernels of a step, in this order; the last two update the bases. */
enum { GPU_SOAP_ROTATE, GPU_SOAP_SCALE, GPU_SOAP_RETURN, GPU_SOAP_MOVE, GPU_SOAP_GROW, GPU_SOAP_TURN, GPU_SOAP_KERNELS };

/* What a block computes, of the result's elements from (row, column) on; kernel by kernel. */
enum gpu_soap_task {
    GPU_SOAP_LEFT_GRADIENT, /* rotate: Q_Lᵀ G */
    GPU_SOAP_LEFT_MOMENTUM, /* Q_Lᵀ M */
    GPU_SOAP_LEFT_SAMPLE,   /* one of G Gᵀ */
    GPU_SOAP_RIGHT_SAMPLE,
    GPU_SOAP_STEP,            /* scale: Q_R, V, the step in the bases */
    GPU_SOAP_LEFT_COVARIANCE, /* and what the samples add to the covariances */
    GPU_SOAP_RIGHT_COVARIANCE,
    GPU_SOAP_BACK,      /* return: Q_L step */
    GPU_SOAP_WEIGHTS,   /* move: Q_Rᵀ, the weights and their average */
    GPU_SOAP_LEFT_NEXT, /* grow: C Q */
    GPU_SOAP_RIGHT_NEXT,
    GPU_SOAP_LEFT_BASIS, /* turn: orthonormalized */
    GPU_SOAP_RIGHT_BASIS,
};
typedef struct gpu_soap_tile {
    int32_t matrix, task, row, column, sample;
} gpu_soap_tile;

typedef struct gpu_soap {
    const gpu_soap_matrix *matrices; /* device */
    const gpu_soap_tile *tiles;      /* device; those of kernel k from first[k] to first[k + 1] - 1 */
    int32_t first[GPU_SOAP_KERNELS + 1];
    int32_t largest_side; /* that has a basis */
} gpu_soap;

/* Both return a cudaError_t. After gpu_launch_update of this step, which has the momentum of these weights. */
int gpu_launch_soap(const gpu_optimizer *optimizer, const gpu_soap *soap, int overlap, void *stream);
/* The bases by the covariances of the last step: any time between its gpu_launch_soap and the next gpu_launch_update, so that it can
 * run beside the next gradient. */
int gpu_launch_soap_bases(const gpu_optimizer *optimizer, const gpu_soap *soap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
