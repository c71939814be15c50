// SPDX-License-Identifier: MIT
// rdf.c: radial distribution g(r) = V n(r) / (pairs × shell volume), n(r) the directed pairs in the bin. Pairs of two different atoms
// are counted as possible: N (N - 1) within one element, N M between two.
#include <math.h>
#include <string.h>

#include "atoms/analysis/same_atoms.h"
#include "base/base.h"
#include "mlff_analysis.h"

enum { MAX_BLOCKS = 16, LEAST_BLOCKS = 4 };

struct mlff_rdf {
    double range;
    int n_bins, center, neighbor;
    mlff_neighbors *neighbors;
    double *pairs;  // [n_bins] pairs of a center, summed over frames
    double *g;      // [n_bins] summed over frames
    double *blocks; // [MAX_BLOCKS][n_bins] sums of g; the last one used may be growing
    double *frame;  // [n_bins] counts of the frame
    int n_blocks;   // complete ones
    int64_t n_frames, n_in_block, block_frames;
};

mlff_status mlff_rdf_create(double range, int n_bins, int center, int neighbor, mlff_rdf **rdf_out)
{
    mlff_status status = MLFF_OK;
    mlff_rdf *rdf = NULL;
    if (!(range > 0) || !isfinite(range))
        return mlff_fail(MLFF_ERR_USAGE, "range %g Å of a radial distribution; give one above 0", range);
    if (n_bins < 1 || n_bins > 100000) return mlff_fail(MLFF_ERR_USAGE, "%d bins; give 1 to 100000", n_bins);
    if ((status = same_atoms_check_element(center)) != MLFF_OK || (status = same_atoms_check_element(neighbor)) != MLFF_OK)
        return status;
    if (!(rdf = base_alloc(1, sizeof *rdf, "radial distribution"))) return MLFF_ERR_MEMORY;
    const size_t n = (size_t)n_bins;
    *rdf = (mlff_rdf){.range = range, .n_bins = n_bins, .center = center, .neighbor = neighbor, .block_frames = 1};
    rdf->pairs = base_alloc(n, sizeof(double), "radial distribution");
    rdf->g = base_alloc(n, sizeof(double), "radial distribution");
    rdf->frame = base_alloc(n, sizeof(double), "radial distribution");
    rdf->blocks = base_alloc(MAX_BLOCKS * n, sizeof(double), "radial distribution");
    if (!rdf->pairs || !rdf->g || !rdf->frame || !rdf->blocks) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    MLFF_TRY(mlff_neighbors_create(range, 0, &rdf->neighbors));
    *rdf_out = rdf;
    rdf = NULL;
done:
    mlff_rdf_destroy(rdf);
    return status;
}

static bool is_of(int element, int species)
{
    return element == 0 || element == species;
}

// Counts the frame's pairs into rdf->frame.
static void count_pairs(mlff_rdf *rdf, const mlff_system *system)
{
    mlff_pairs pairs;
    const double *vectors;
    mlff_neighbors_get(rdf->neighbors, &pairs, &vectors, NULL);
    memset(rdf->frame, 0, (size_t)rdf->n_bins * sizeof *rdf->frame);
    for (int i = 0; i < system->n_atoms; i++) {
        if (!is_of(rdf->center, system->species[i])) continue;
        for (int32_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            if (!is_of(rdf->neighbor, system->species[pairs.neighbor[p]])) continue;
            const double *v = vectors + 3 * (size_t)p;
            const int bin = (int)(sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) / rdf->range * rdf->n_bins);
            if (bin < rdf->n_bins) rdf->frame[bin]++;
        }
    }
}

// A block is complete: with all of them used, two and two become one and blocks are twice as long from then on.
static void end_block(mlff_rdf *rdf)
{
    const size_t n = (size_t)rdf->n_bins;
    rdf->n_in_block = 0;
    if (++rdf->n_blocks < MAX_BLOCKS) return;
    for (size_t b = 0; b < MAX_BLOCKS / 2; b++)
        for (size_t k = 0; k < n; k++) rdf->blocks[b * n + k] = rdf->blocks[2 * b * n + k] + rdf->blocks[(2 * b + 1) * n + k];
    memset(rdf->blocks + MAX_BLOCKS / 2 * n, 0, MAX_BLOCKS / 2 * n * sizeof *rdf->blocks);
    rdf->n_blocks = MAX_BLOCKS / 2;
    rdf->block_frames *= 2;
}

static const char *name_of(int element)
{
    return element ? mlff_element_symbol(element) : "any element";
}

mlff_status mlff_rdf_add(mlff_rdf *rdf, const mlff_system *system)
{
    mlff_batch batch;
    int32_t first[2];
    double n_centers = 0, n_neighbors = 0, n_both = 0;
    mlff_status status = mlff_system_check(system, "radial distribution");
    if (status != MLFF_OK) return status;
    for (int i = 0; i < system->n_atoms; i++) {
        const bool is_center = is_of(rdf->center, system->species[i]), is_neighbor = is_of(rdf->neighbor, system->species[i]);
        n_centers += is_center;
        n_neighbors += is_neighbor;
        n_both += is_center && is_neighbor;
    }
    const double n_pairs = n_centers * n_neighbors - n_both;
    if (!system->periodic[0] || !system->periodic[1] || !system->periodic[2])
        return mlff_fail(MLFF_ERR_USAGE,
                         "a radial distribution needs a cell that is periodic along three axes; set cell and pbc of the frames");
    if (n_pairs < 1)
        return mlff_fail(MLFF_ERR_USAGE, "the frame has no pair of an atom of %s and one of %s; choose elements that it has",
                         name_of(rdf->center), name_of(rdf->neighbor));
    mlff_batch_from_system(system, first, &batch);
    status = mlff_neighbors_update(rdf->neighbors, &batch);
    if (status != MLFF_OK) return status;
    count_pairs(rdf, system);
    const double width = rdf->range / rdf->n_bins, volume = mlff_system_volume(system);
    double *block = rdf->blocks + (size_t)rdf->n_blocks * (size_t)rdf->n_bins;
    for (int k = 0; k < rdf->n_bins; k++) {
        const double inner = k * width, outer = (k + 1) * width;
        const double shell = 4 * BASE_PI / 3 * (outer * outer * outer - inner * inner * inner);
        const double g = rdf->frame[k] * volume / (n_pairs * shell);
        rdf->g[k] += g;
        block[k] += g;
        rdf->pairs[k] += rdf->frame[k] / n_centers;
    }
    rdf->n_frames++;
    if (++rdf->n_in_block == rdf->block_frames) end_block(rdf);
    return MLFF_OK;
}

// Standard error of the mean of complete blocks.
static double error_of(const mlff_rdf *rdf, int k)
{
    double mean = 0, squares = 0;
    const int n = rdf->n_blocks;
    if (n < LEAST_BLOCKS) return NAN;
    for (int b = 0; b < n; b++) mean += rdf->blocks[(size_t)b * (size_t)rdf->n_bins + (size_t)k] / n;
    for (int b = 0; b < n; b++) {
        const double d = rdf->blocks[(size_t)b * (size_t)rdf->n_bins + (size_t)k] - mean;
        squares += d * d;
    }
    return sqrt(squares / (n - 1) / n) / (double)rdf->block_frames;
}

void mlff_rdf_get(const mlff_rdf *rdf, double *r, double *g, double *error, double *coordination)
{
    const double frames = rdf->n_frames ? (double)rdf->n_frames : NAN;
    double sum = 0;
    for (int k = 0; k < rdf->n_bins; k++) {
        sum += rdf->pairs[k];
        if (r) r[k] = (k + 0.5) * rdf->range / rdf->n_bins;
        if (g) g[k] = rdf->g[k] / frames;
        if (error) error[k] = error_of(rdf, k);
        if (coordination) coordination[k] = sum / frames;
    }
}

void mlff_rdf_destroy(mlff_rdf *rdf)
{
    if (!rdf) return;
    mlff_neighbors_destroy(rdf->neighbors);
    base_free(rdf->blocks);
    base_free(rdf->frame);
    base_free(rdf->g);
    base_free(rdf->pairs);
    base_free(rdf);
}
