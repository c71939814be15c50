/* SPDX-License-Identifier: MIT */
/* ani_kernels.h: ANI's own pieces of the float32 step, one table per CPU path. Symbols: README.md of this folder.
 *
 * The AEV of one call has columns for the species present only, numbered 0 … n_active − 1: a radial block of
 * `radial_width` for each, then an angular block of `angular_width` for each unordered pair, rows of the upper triangle.
 * Blocks are padded (radial shifts to NN_PAD, sections to 4, an angular block to NN_PAD): weights of padding are zero. */
#ifndef ANI_KERNELS_H
#define ANI_KERNELS_H

#include "ani.h"
#include "nn/nn.h"

typedef struct ani_shape {
    _Alignas(64) float radial_shift[ANI_MAX_GRID];
    float angular_shift[ANI_MAX_GRID], cosine[ANI_MAX_GRID], sine[ANI_MAX_GRID]; /* of sections */
    float eta_radial, eta_angular, zeta;
    float least_base; /* u is cut from below where u^zeta = e^-32 */
    double radial_cutoff, angular_cutoff;
    int n_shifts, n_sections; /* sections padded to 4 */
    int radial_width, angular_width;
    int n_active, n_columns;
    int pair_column[ANI_MAX_SPECIES][ANI_MAX_SPECIES]; /* first column of the block of two active species */
} ani_shape;

/* Neighbors of one atom, those within the angular cutoff first, each part by species: run r ends before end[r]; runs
 * 0 … n_active − 1 are the angular part's, n_active … 2 n_active − 1 the rest's. Arrays of a row are aligned. */
typedef struct ani_row {
    int n, n_angular;
    int32_t end[2 * ANI_MAX_SPECIES];
    size_t start; /* in the arrays of ani_neighbors */
} ani_row;
typedef struct ani_neighbors {
    float *d, *x, *y, *z;       /* distance, direction */
    float *fr, *dfr, *fa, *dfa; /* cutoffs of the radial and the angular part, with slopes */
    int32_t *pair;              /* index in the graph's list */
} ani_neighbors;
enum { ANI_N_ARRAYS = 8 }; /* of floats in ani_neighbors */

/* One thread's. A flush handles rows of triples (j, k > j) that together fit into triple_capacity. */
typedef struct ani_scratch {
    size_t neighbor_capacity, triple_capacity;
    float *memory;
    float *d, *inverse, *x, *y, *z, *f, *df; /* [neighbor_capacity] of the angular part, zeros behind its end */
    float *slope, *gx, *gy, *gz;             /* [neighbor_capacity] dE/dr = slope u + (gx, gy, gz) */
    float *mean, *ff, *X, *Y;                /* [triple_capacity] */
    float *P, *dP, *Q, *dQ;                  /* [n_shifts or n_sections][triple_capacity] */
    float *Qt, *dQt, *S;                     /* [triple_capacity][n_sections] ×2, [3][triple_capacity] */
} ani_scratch;

typedef struct ani_kernels {
    /* Sorts the pairs begin … end − 1 of an atom into its row; active[j] is the species of atom j, `d` room for as many. */
    void (*geometry)(const ani_shape *shape, int begin, int end, const double *vectors, const int32_t *neighbor,
                     const unsigned char *active, double *d, ani_row *row, const ani_neighbors *neighbors);
    /* aev [n_columns] is set, then added to. */
    void (*radial)(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, float *aev);
    void (*angular)(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, ani_scratch *scratch, float *aev);
    /* dE/dr of the row's pairs from dE/dAEV. */
    void (*aev_backward)(const ani_shape *shape, const ani_row *row, const ani_neighbors *neighbors, ani_scratch *scratch,
                         const float *aev_bar, double *pair_gradient);
    /* energy[i] = h[i]·w + bias; delta[i] = w ∘ slope[i] where delta is given. */
    void (*output)(int n, int width, const float *h, const float *slope, const float *w, float bias, float *energy, float *delta);
    /* a *= b, n a multiple of NN_PAD. */
    void (*multiply)(size_t n, float *a, const float *b);
    /* out[n] = factor · Σ parts[m][n] in the order of m; `stride` floats from one part to the next. */
    void (*mean)(size_t n, int n_parts, size_t stride, const float *parts, float factor, float *out);
} ani_kernels;
const ani_kernels *ani_kernels_get(const char *path);

#endif
