/* SPDX-License-Identifier: MIT */
/* gpu_soap.h: a step of SOAP on a GPU (model/training/soap.h has the equations): the matrices, and the tiles of their products,
 * of which each block of a kernel computes one. Read by C and by C++ (nvcc). */
#ifndef GPU_SOAP_H
#define GPU_SOAP_H

#include "gpu_train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_SOAP_TILE = 64, GPU_SOAP_MAX_SIDE = 128 };

/* One side of a matrix: n rows of ld floats each. All NULL: its basis is the identity. */
typedef struct gpu_soap_side {
    int32_t n, ld;
    float *covariance, *basis;
    float *next; /* the basis before it is made orthonormal */
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

/* What a block computes of a matrix; tasks of one kernel are contiguous. */
enum gpu_soap_task {
    GPU_SOAP_LEFT_GRADIENT, /* Q_Lᵀ G */
    GPU_SOAP_LEFT_MOMENTUM, /* Q_Lᵀ M */
    GPU_SOAP_LEFT_COVARIANCE,
    GPU_SOAP_RIGHT_COVARIANCE,
    GPU_SOAP_DIVIDE,     /* Q_R; V; the step in the bases */
    GPU_SOAP_BACK,       /* Q_L step */
    GPU_SOAP_WEIGHTS,    /* Q_Rᵀ; the weights and their average */
    GPU_SOAP_LEFT_NEXT,  /* C Q_L */
    GPU_SOAP_RIGHT_NEXT, /* C Q_R */
    GPU_SOAP_LEFT_BASIS, /* orthonormalized */
    GPU_SOAP_RIGHT_BASIS,
};
typedef struct gpu_soap_tile {
    int32_t matrix, task, row, column; /* of the first element */
} gpu_soap_tile;

/* Kernels of a step, in this order; the last two update bases. */
enum { GPU_SOAP_ROTATE, GPU_SOAP_SCALE, GPU_SOAP_RETURN, GPU_SOAP_MOVE, GPU_SOAP_GROW, GPU_SOAP_TURN, GPU_SOAP_KERNELS };

typedef struct gpu_soap {
    const gpu_soap_matrix *matrices; /* device */
    const gpu_soap_tile *tiles;      /* device; those of kernel k from first[k] to first[k + 1] - 1 */
    int32_t first[GPU_SOAP_KERNELS + 1];
} gpu_soap;

/* After gpu_launch_update of this step, which has the momentum of these weights. `refresh`: bases are updated. Returns a
 * cudaError_t. */
int gpu_launch_soap(const gpu_optimizer *optimizer, const gpu_soap *soap, int refresh, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
