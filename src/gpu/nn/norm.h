/* SPDX-License-Identifier: MIT */
/* norm.h: norms of rows of 256 columns, out = scale ∘ z + shift with z = (y − μ)/s (LayerNorm) or y/s (RMSNorm), and their reverse pass
 *
 *   ȳ = (g − mean g − z mean(g z))/s with LayerNorm, (g − z mean(g z))/s with RMSNorm;  g = scale ∘ out_bar
 *
 * with s = √(mean (y − μ)² + ε), or √(mean y² + ε). Backward ȳ is an operand of products, and adjoints of different rows may differ by orders
 * of magnitude: each row is stored times a power of two, which is undone where products end (gpu_dense.row_scale). */
#ifndef GPU_NORM_H
#define GPU_NORM_H

#include "linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forward, of rows in memory. Where a model's product gives the rows, a norm in its epilogue saves writing and reading them. */
typedef struct gpu_norm {
    const int32_t *n_rows;      /* on the device */
    int32_t first_row, rows;    /* rows first_row … first_row + rows − 1 as far as they exist */
    const float *y;             /* [n_rows][256] */
    const float *scale, *shift; /* [256]; shift NULL: RMSNorm */
    float epsilon;
    float *z, *inverse; /* [n_rows][256], [n_rows] 1/s, for the reverse pass; NULL: not stored. z may be y */
    gpu_operand out;    /* [n_rows][256] */
    uint64_t *stamp;    /* where the GPU's time at the beginning is stored; NULL: nowhere */
} gpu_norm;

/* What the reverse pass needs of a norm, and where ȳ goes. */
typedef struct gpu_norm_rows {
    const float *z, *inverse; /* [rows][256], [rows] 1/s */
    const float *scale;       /* [256] */
    int32_t centered;         /* 1: LayerNorm */
    gpu_operand y_bar;        /* [rows][256], times a power of two for each row */
    float *row_scale;         /* [rows] its inverse */
} gpu_norm_rows;

/* The adjoint of a residual stream, total = bar + added, is stored in `bar`; that of the norm's input goes to norm.y_bar. */
typedef struct gpu_norm_backward {
    gpu_norm_rows norm;
    const int32_t *n_rows;   /* on the device */
    int32_t first_row, rows; /* rows first_row … first_row + rows − 1 as far as they exist */
    float *bar;              /* [n_rows][256] */
    const float *added;      /* [n_rows][stride], or NULL */
    int32_t stride;
    const float *initial; /* if not NULL, total = initial[group of the row], [groups][256] */
    const int32_t *group; /* [n_rows]; NULL: all rows are in group 0 */
    uint64_t *stamp;      /* where the GPU's time at the beginning is stored; NULL: nowhere */
} gpu_norm_backward;

/* `stream` is a cudaStream_t, the result a cudaError_t. */
int gpu_launch_norm(const gpu_norm *call, enum gpu_number numbers, int overlap, void *stream);
int gpu_launch_norm_backward(const gpu_norm_backward *call, enum gpu_number numbers, int overlap, void *stream);

#ifdef __cplusplus
}
#endif
#endif
