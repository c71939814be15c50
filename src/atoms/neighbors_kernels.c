// SPDX-License-Identifier: MIT
// neighbors_kernels.c: the search for the pairs of a row, compiled once per instruction set.
//
// An atom looks at the bins its range touches. Along the last axis they are one run of memory, whose squared distances are
// computed in blocks and then sifted without branches. Paths may round differently here: the range has a margin for it, and
// which of its pairs are handed out is decided in neighbors.c.
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "atoms/neighbors.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define KERNELS JOIN(neighbors_kernels_, KERNEL_PATH)

extern const neighbors_kernels KERNELS;

enum { BLOCK = NEIGHBORS_BLOCK, RANKED_BY_COUNTING = 128 };

// ---- searching ------------------------------------------------------------------------------------------------------------

// Bins along one axis, counted on past the cell: a bin and the image it is in.
typedef struct bin_walk {
    int64_t bin, image, left; // `left` is how many are still to come, with this one
} bin_walk;

static inline bin_walk walk_start(const neighbors_grid *grid, const double center[3], int k)
{
    double f = neighbors_fraction(grid, center, k) - grid->low[k], reach = grid->range / grid->height[k];
    double from = floor((f - reach) * grid->n_per_fraction[k]), to = floor((f + reach) * grid->n_per_fraction[k]);
    int64_t n = grid->n_bins[k];
    if (!grid->periodic[k]) {
        int low = neighbors_clamp_bin(from, grid->n_bins[k]), high = neighbors_clamp_bin(to, grid->n_bins[k]);
        return (bin_walk){low, 0, high - low + 1};
    }
    int64_t low = (int64_t)from, image = low / n - (low % n < 0);
    return (bin_walk){low - image * n, image, (int64_t)to - low + 1};
}

static inline void walk_on(bin_walk *walk, int64_t n_bins)
{
    walk->left--;
    if (++walk->bin == n_bins) {
        walk->bin = 0;
        walk->image++;
    }
}

static inline int64_t count_run(const double *restrict x, const double *restrict y, const double *restrict z, int64_t n,
                                const double from[3], double limit)
{
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) {
        double dx = x[k] - from[0], dy = y[k] - from[1], dz = z[k] - from[2];
        count += dx * dx + dy * dy + dz * dz < limit;
    }
    return count;
}

// Appends those of the run from `begin` that are in range to found and number; returns the new count.
#if defined(__AVX512F__) && defined(__AVX512VL__)
static inline int64_t sift_run(const mlff_neighbors *neighbors, int32_t begin, int64_t n, const double from[3], double limit,
                               int64_t code, int64_t count, const neighbors_scratch *scratch)
{
    const double *x = neighbors->sorted[0] + begin, *y = neighbors->sorted[1] + begin, *z = neighbors->sorted[2] + begin;
    const __m512d from_x = _mm512_set1_pd(from[0]), from_y = _mm512_set1_pd(from[1]), from_z = _mm512_set1_pd(from[2]);
    const __m512d limits = _mm512_set1_pd(limit);
    const __m512i codes = _mm512_set1_epi64(code);
    __m256i places = _mm256_add_epi32(_mm256_set1_epi32(begin), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (int64_t k = 0; k < n; k += 8) { // reads on into the padding, or into other bins, but counts nothing there
        __m512d dx = _mm512_sub_pd(_mm512_loadu_pd(x + k), from_x), dy = _mm512_sub_pd(_mm512_loadu_pd(y + k), from_y);
        __m512d dz = _mm512_sub_pd(_mm512_loadu_pd(z + k), from_z);
        __m512d square = _mm512_fmadd_pd(dx, dx, _mm512_fmadd_pd(dy, dy, _mm512_mul_pd(dz, dz)));
        unsigned valid = n - k < 8 ? (1u << (n - k)) - 1 : 0xffu;
        __mmask8 inside = _mm512_mask_cmp_pd_mask((__mmask8)valid, square, limits, _CMP_LT_OQ);
        _mm256_storeu_si256((__m256i *)(void *)(scratch->found + count), _mm256_maskz_compress_epi32(inside, places));
        _mm512_storeu_si512(scratch->number + count, codes);
        count += __builtin_popcount(inside);
        places = _mm256_add_epi32(places, _mm256_set1_epi32(8));
    }
    return count;
}
#else
static inline int64_t sift_run(const mlff_neighbors *neighbors, int32_t begin, int64_t n, const double from[3], double limit,
                               int64_t code, int64_t count, const neighbors_scratch *scratch)
{
    const double *restrict x = neighbors->sorted[0] + begin, *restrict y = neighbors->sorted[1] + begin;
    const double *restrict z = neighbors->sorted[2] + begin;
    const double from_x = from[0], from_y = from[1], from_z = from[2];
    double *restrict square = scratch->square;
    int32_t *restrict found = scratch->found;
    int64_t *restrict number = scratch->number;
    for (int64_t b = 0; b < n; b += BLOCK) // reads on into the padding, or into other bins
        for (int l = 0; l < BLOCK; l++) {
            double dx = x[b + l] - from_x, dy = y[b + l] - from_y, dz = z[b + l] - from_z;
            square[b + l] = dx * dx + dy * dy + dz * dz;
        }
    for (int64_t k = 0; k < n; k++) {
        found[count] = begin + (int32_t)k;
        number[count] = code;
        count += square[k] < limit;
    }
    return count;
}
#endif

// Counts what lies in range of an atom, itself included. With `scratch` also lists which (in sorted order) and in which images,
// those of one neighbor in the order of their shifts; -1 if it does not have the room. *room_out becomes the room needed.
static inline __attribute__((always_inline)) int64_t search_row(const mlff_neighbors *neighbors, const neighbors_grid *grid,
                                                                int32_t place, const neighbors_scratch *scratch, int64_t room,
                                                                int64_t *room_out)
{
    const double center[3] = {neighbors->sorted[0][place], neighbors->sorted[1][place], neighbors->sorted[2][place]};
    const double limit = grid->range * grid->range;
    const int32_t *start = neighbors->bin_start + grid->first_bin;
    const int64_t n1 = grid->n_bins[1], n2 = grid->n_bins[2];
    const bin_walk start1 = walk_start(grid, center, 1), start2 = walk_start(grid, center, 2);
    int64_t count = 0;
    for (bin_walk b0 = walk_start(grid, center, 0); b0.left > 0; walk_on(&b0, grid->n_bins[0]))
        for (bin_walk b1 = start1; b1.left > 0; walk_on(&b1, n1)) {
            const int32_t *column = start + (b0.bin * n1 + b1.bin) * n2;
            for (bin_walk b2 = start2; b2.left > 0;) { // one image at a time
                int64_t n_bins = b2.left < n2 - b2.bin ? b2.left : n2 - b2.bin;
                int32_t begin = column[b2.bin];
                int64_t n = column[b2.bin + n_bins] - begin;
                int32_t image[3] = {(int32_t)b0.image, (int32_t)b1.image, (int32_t)b2.image};
                double from[3];
                neighbors_offset(grid->cell, image, from);
                for (int c = 0; c < 3; c++) from[c] = center[c] - from[c];
                if (count + n > *room_out) *room_out = count + n;
                if (!scratch) {
                    count += count_run(neighbors->sorted[0] + begin, neighbors->sorted[1] + begin, neighbors->sorted[2] + begin,
                                       n, from, limit);
                } else {
                    if (count + n > room) return -1;
                    int64_t code = image[0] * grid->stride[0] + image[1] * grid->stride[1] + image[2] * grid->stride[2];
                    count = sift_run(neighbors, begin, n, from, limit, code, count, scratch);
                }
                b2 = (bin_walk){0, b2.image + 1, b2.left - n_bins};
            }
        }
    return count;
}

// ---- rows in canonical order ------------------------------------------------------------------------------------------------

// rank[k] becomes the place of key[k] in ascending order; equal keys keep theirs. `other` is scratch.
static void rank_keys(int n, const int32_t *restrict key, int32_t *restrict rank, int32_t *restrict other, int32_t key_limit)
{
    int k = 1;
    while (k < n && key[k - 1] <= key[k]) k++;
    if (k >= n) { // as where one bin holds all
        for (k = 0; k < n; k++) rank[k] = k;
        return;
    }
    if (n <= RANKED_BY_COUNTING && key_limit < INT32_MAX / RANKED_BY_COUNTING) {
        int padded = (n + BLOCK - 1) / BLOCK * BLOCK;
        for (k = 0; k < n; k++) other[k] = key[k] * RANKED_BY_COUNTING + k;
        for (; k < padded; k++) other[k] = INT32_MAX;
        for (k = 0; k < n; k++) {
            int32_t mine = other[k], below[BLOCK] = {0}, sum = 0;
            for (int b = 0; b < padded; b += BLOCK)
                for (int l = 0; l < BLOCK; l++) below[l] += other[b + l] < mine;
            for (int l = 0; l < BLOCK; l++) sum += below[l];
            rank[k] = sum;
        }
        return;
    }
    // Radix sort of indices, 8 bits a pass; `rank` and `other` take turns.
    int32_t *from = rank, *to = other;
    for (k = 0; k < n; k++) from[k] = k;
    for (int bits = 0; bits < 31 && key_limit >> bits; bits += 8) {
        int32_t start[257] = {0};
        for (k = 0; k < n; k++) start[(key[k] >> bits & 255) + 1]++;
        for (int digit = 0; digit < 256; digit++) start[digit + 1] += start[digit];
        for (k = 0; k < n; k++) to[start[key[from[k]] >> bits & 255]++] = from[k];
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from == rank) {
        memcpy(other, rank, (size_t)n * sizeof *rank);
        from = other;
    }
    for (k = 0; k < n; k++) rank[from[k]] = k;
}

// Puts the n pairs found for atom i in order, from place `first` of the skin list on.
static inline void write_row(mlff_neighbors *neighbors, const neighbors_grid *grid, int i, int64_t first, int n,
                             const neighbors_scratch *scratch)
{
    int32_t *restrict key = scratch->key, *restrict rank = scratch->rank;
    int64_t *restrict number = scratch->number;
    const int64_t own = neighbors->wrap_number[neighbors->place[i]];
    for (int k = 0; k < n; k++) { // from the image that was found to the shift that the caller sees
        key[k] = neighbors->order[scratch->found[k]] - grid->first;
        number[k] += own - neighbors->wrap_number[scratch->found[k]];
    }
    rank_keys(n, key, rank, scratch->other, grid->n_atoms - 1);
    int32_t *restrict neighbor = neighbors->skin_neighbor + first, *restrict image = neighbors->skin_image + first;
    for (int k = 0; k < n; k++) neighbor[rank[k]] = grid->first + key[k];
    if (grid->dense) {
        for (int k = 0; k < n; k++) image[rank[k]] = (int32_t)(grid->image_zero + number[k]);
    } else {
        for (int k = 0; k < n; k++) {
            int64_t index = neighbors->n_dense_images + first + rank[k];
            image[rank[k]] = (int32_t)index;
            neighbors_decode_image(grid, number[k], &neighbors->images[index]);
        }
    }
}

// ---- regions ------------------------------------------------------------------------------------------------------------------

static const neighbors_grid *grid_of(const neighbors_grid *grid, int i)
{
    while (i >= grid->first + grid->n_atoms) grid++;
    return grid;
}

static int64_t count_region(mlff_neighbors *neighbors, int region, int64_t *room_out)
{
    int64_t total = 0;
    int end = neighbors_region_row(neighbors, region + 1);
    const neighbors_grid *grid = neighbors->grids;
    for (int i = neighbors_region_row(neighbors, region); i < end; i++) {
        grid = grid_of(grid, i);
        total += search_row(neighbors, grid, neighbors->place[i], NULL, 0, room_out) - 1; // all but itself
    }
    return total;
}

static int64_t list_region(mlff_neighbors *neighbors, int region, const neighbors_scratch *scratch, int64_t room)
{
    int end = neighbors_region_row(neighbors, region + 1);
    int64_t first = neighbors->region_first[region], limit = neighbors->region_first[region + 1], unused = INT64_MAX;
    const neighbors_grid *grid = neighbors->grids;
    for (int i = neighbors_region_row(neighbors, region); i < end; i++) {
        grid = grid_of(grid, i);
        int32_t place = neighbors->place[i];
        int64_t n_found = search_row(neighbors, grid, place, scratch, room, &unused), n = 0;
        if (n_found < 0 || first + n_found - 1 > limit) return -1;
        for (int64_t k = 0; k < n_found; k++) { // all but itself
            scratch->found[n] = scratch->found[k];
            scratch->number[n] = scratch->number[k];
            n += scratch->found[k] != place || scratch->number[k] != 0;
        }
        write_row(neighbors, grid, i, first, (int)n, scratch);
        neighbors->skin_first[i] = first;
        neighbors->skin_length[i] = (int32_t)n;
        first += n;
    }
    return first - neighbors->region_first[region];
}

const neighbors_kernels KERNELS = {count_region, list_region};
