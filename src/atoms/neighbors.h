/* SPDX-License-Identifier: MIT */
/* neighbors.h: the neighbor list inside: the grid of cells (neighbors_cells.c), the search in it
 * (neighbors_kernels.c) that lists all pairs within cutoff + skin, and the pass over that list (neighbors.c) that hands out the
 * pairs within the cutoff.
 *
 * Two shifts meet here. Inside, atoms are wrapped into their cell; the caller sees his own, unwrapped positions. With
 * w the whole cells that wrapping took off an atom and m the image that the search found, the caller's shift is
 *   S = m - w[neighbor] + w[atom]
 * A pair holds S as an index into a table of images, so that it needs 8 bytes and its offset S · cell is ready. */
#ifndef NEIGHBORS_H
#define NEIGHBORS_H

#include "base/base.h"
#include "mlff_atoms.h"

/* One S of one system. The offset is (S0 a + S1 b) + S2 c, the same bits for the same S whenever it is computed. */
typedef struct neighbors_image {
    double offset[3]; /* Å */
    int32_t shift[3];
} neighbors_image;

/* The grid of one system. Along axes that repeat, fractions are of the cell vector; along others they are Å along unit
 * vectors normal to those. */
typedef struct neighbors_grid {
    int first, n_atoms;
    bool periodic[3];
    double cell[9];    /* Å, rows are the axes */
    double inverse[9]; /* fraction k of x is the sum over c of x[c] inverse[3 c + k] */
    double height[3];  /* Å between the planes of one cell; 1 where an axis does not repeat */
    double volume;     /* Å³ of the cell; of its area (Å²) or length (Å) where only two axes or one repeat */
    double range;      /* Å, the skin list's radius with a margin for rounding */
    double low[3], n_per_fraction[3];
    int n_bins[3];
    size_t first_bin;   /* in bin_start; there is one more than bins */
    int64_t stride[3];  /* S has the number S · stride, which orders shifts as the canonical order does */
    int32_t extent[3];  /* |S| is at most this */
    bool dense;         /* the table holds every S up to the extent; or else one entry for each pair */
    int64_t image_zero; /* index of S = 0 in a dense table */
} neighbors_grid;

enum { NEIGHBORS_MAX_THREADS = 32, NEIGHBORS_MAX_REGIONS = 256 };
/* Kernels read whole blocks: sorted positions and scratch have as many entries more than are asked for. */
enum { NEIGHBORS_BLOCK = 16 };

/* Room in which one thread makes its rows. */
typedef struct neighbors_scratch {
    int32_t *found, *key, *rank, *other;
    int64_t *number;
    double *square;
    size_t found_capacity, key_capacity, rank_capacity, other_capacity, number_capacity, square_capacity;
} neighbors_scratch;

/* The search in the grid, one table for each path of the CPU. */
typedef struct neighbors_kernels {
    /* How many pairs the rows of a region have; *room_out grows to the room of scratch that they need. */
    int64_t (*count_region)(mlff_neighbors *neighbors, int region, int64_t *room_out);
    /* Lists them and returns how many they are, or -1 where the region or the scratch does not have the room. */
    int64_t (*list_region)(mlff_neighbors *neighbors, int region, const neighbors_scratch *scratch, int64_t room);
} neighbors_kernels;
extern const neighbors_kernels neighbors_kernels_portable, neighbors_kernels_avx2, neighbors_kernels_avx512;

struct mlff_neighbors {
    double cutoff, skin;
    const neighbors_kernels *kernels;
    int max_threads;

    /* What the skin list was built for. */
    bool built;
    int n_systems, n_atoms;
    int32_t *first_atom;     /* [n_systems + 1] */
    double *cells;           /* [n_systems][9], zero without cells */
    unsigned char *periodic; /* [n_systems][3] */
    double *positions;       /* [n_atoms][3] */
    size_t first_atom_capacity, cells_capacity, periodic_capacity, positions_capacity;

    /* The grid. "Sorted" is the order of bins. */
    neighbors_grid *grids;  /* [n_systems] */
    int32_t *bin_start;     /* index of each bin's first atom in sorted order */
    int32_t *bin;           /* [n_atoms] */
    double *wrapped;        /* [n_atoms][3] */
    int32_t *wrap;          /* [n_atoms][3] cells taken off */
    int32_t *order, *place; /* [n_atoms] sorted to caller's and back */
    double *sorted[3];      /* [n_atoms] wrapped x, y, z */
    int64_t *wrap_number;   /* [n_atoms] wrap · stride */
    size_t grids_capacity, bin_start_capacity, bin_capacity, wrapped_capacity, wrap_capacity;
    size_t order_capacity, place_capacity, sorted_capacity[3], wrap_number_capacity;
    neighbors_scratch scratch[NEIGHBORS_MAX_THREADS];
    int64_t scratch_room;

    /* All pairs within cutoff + skin. Rows are cut into regions, the work of one thread at a time; each region has some room
     * to spare, so that the next build need not count its pairs before it lists them. */
    int n_regions;
    int64_t region_first[NEIGHBORS_MAX_REGIONS + 1];
    int64_t n_skin;
    int64_t *skin_first;    /* [n_atoms] */
    int32_t *skin_length;   /* [n_atoms] */
    int32_t *skin_neighbor; /* [region_first[n_regions]], as are the next and `accepted` */
    int32_t *skin_image;    /* index in images */
    neighbors_image *images;
    int64_t n_dense_images; /* then come those of single pairs, if any system has too many: of pair p at this + p */
    bool all_dense;
    size_t skin_first_capacity, skin_length_capacity, skin_neighbor_capacity, skin_image_capacity, images_capacity;

    /* The pairs handed out. */
    int32_t *first, *neighbor, *shift, *reverse;
    double *vectors;
    int32_t *accepted; /* of each row, from its skin_first on: which of its skin pairs are within the cutoff */
    int32_t *cursor;   /* [n_threads][n_atoms] */
    size_t first_capacity, neighbor_capacity, shift_capacity, reverse_capacity, vectors_capacity;
    size_t accepted_capacity, cursor_capacity;

    int64_t n_updates, n_rebuilds, n_growths, bytes;
};

/* As base_grow, with room for an eighth more; counts growths and bytes. */
mlff_status neighbors_grow(mlff_neighbors *neighbors, void *pointer, size_t *capacity, size_t count, size_t size);
/* As mlff_neighbors_create on a given path of the CPU (NULL: MLFF_CPU or the best) with a limit of threads (0: all cores). */
mlff_status neighbors_create_on(double cutoff, double skin, const char *path, int max_threads, mlff_neighbors **neighbors_out);
/* Threads worth starting for a pass over `n_pairs` pairs. */
int neighbors_n_threads(const mlff_neighbors *neighbors, int64_t n_pairs);
/* Puts a changed cell of system s, which has dense images and repeats along three axes, into its images; the pairs stay. */
void neighbors_set_cell(mlff_neighbors *neighbors, int s, const double cell[9]);
/* Makes the skin list of the batch, which has been checked as far as its counts go. */
mlff_status neighbors_build(mlff_neighbors *neighbors, const mlff_batch *batch);

/* Axes of system s, their inverse and heights, and the volume (area, length) of what repeats. Fails with MLFF_ERR_VALUE for a cell
 * that is not finite or spans no volume. */
mlff_status neighbors_set_axes(neighbors_grid *grid, const mlff_batch *batch, int s);

/* ---- what both the grid and the search in it need */

static inline int neighbors_region_row(const mlff_neighbors *neighbors, int region)
{
    return (int)((int64_t)neighbors->n_atoms * region / neighbors->n_regions);
}
/* The fraction along axis k. */
static inline double neighbors_fraction(const neighbors_grid *grid, const double x[3], int k)
{
    return x[0] * grid->inverse[k] + x[1] * grid->inverse[3 + k] + x[2] * grid->inverse[6 + k];
}
/* (S0 a + S1 b) + S2 c */
static inline void neighbors_offset(const double cell[9], const int32_t shift[3], double offset[3])
{
    for (int c = 0; c < 3; c++) offset[c] = (shift[0] * cell[c] + shift[1] * cell[3 + c]) + shift[2] * cell[6 + c];
}
static inline int neighbors_clamp_bin(double bin, int n_bins)
{
    return bin <= 0 ? 0 : bin >= n_bins - 1 ? n_bins - 1 : (int)bin;
}
/* Shift and offset of the image with a number. */
void neighbors_decode_image(const neighbors_grid *grid, int64_t number, neighbors_image *image);

#endif
