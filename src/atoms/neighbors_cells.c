// SPDX-License-Identifier: MIT
// neighbors_cells.c: the grid of cells in which all pairs within cutoff + skin are found in time linear in the atoms.
//
// Atoms are wrapped into their cell and sorted into bins, the last axis fastest, so that the bins an atom has to search
// along that axis are one run of memory. An axis that repeats is continued by counting bins on past the cell: bin b is
// bin b mod n of image floor(b / n), however many images the cutoff reaches over. A small system has one bin, which is
// the search of all pairs.
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "atoms/neighbors.h"
#include "device/team.h"

// Coordinates beyond this have lost the 1e-7 Å that neighbors need.
#define MAX_COORDINATE 1e9
// No trajectory takes an atom further out without wrapping; three spans multiplied stay below 2^63.
#define MAX_WRAP 131072

// Neighbors of an atom in no structure that can be meant: a list of them would take minutes before it is refused, or used.
#define MOST_NEIGHBORS 1e6

// Bytes of a pair in all arrays of struct mlff_neighbors: the skin list, the list and its vectors.
enum { BYTES_PER_PAIR = 4 + 4 + 4 + 4 + 12 + 4 + 24 };

// ---- the axes of one system -----------------------------------------------------------------------------------------

static void cross(const double a[3], const double b[3], double result[3])
{
    result[0] = a[1] * b[2] - a[2] * b[1];
    result[1] = a[2] * b[0] - a[0] * b[2];
    result[2] = a[0] * b[1] - a[1] * b[0];
}

static double norm(const double a[3])
{
    return sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
}

// Puts unit vectors, normal to the axes that repeat and to each other, where an axis does not.
static void complete_axes(const bool periodic[3], double axes[9])
{
    int n_periodic = periodic[0] + periodic[1] + periodic[2];
    if (n_periodic == 0) {
        for (int k = 0; k < 9; k++) axes[k] = k % 4 == 0;
    } else if (n_periodic == 1) {
        int k = periodic[0] ? 0 : periodic[1] ? 1 : 2;
        const double *a = axes + 3 * k;
        double *u = axes + 3 * ((k + 1) % 3), *v = axes + 3 * ((k + 2) % 3);
        int smallest = fabs(a[0]) < fabs(a[1]) ? 0 : 1;
        if (fabs(a[2]) < fabs(a[smallest])) smallest = 2;
        double unit[3] = {smallest == 0, smallest == 1, smallest == 2};
        cross(a, unit, u);
        cross(a, u, v);
        double length_u = norm(u), length_v = norm(v);
        for (int c = 0; c < 3; c++) u[c] /= length_u, v[c] /= length_v;
    } else if (n_periodic == 2) {
        int k = !periodic[0] ? 0 : !periodic[1] ? 1 : 2;
        double *u = axes + 3 * k;
        cross(axes + 3 * ((k + 1) % 3), axes + 3 * ((k + 2) % 3), u);
        double length = norm(u);
        for (int c = 0; c < 3; c++) u[c] /= length;
    }
}

mlff_status neighbors_set_axes(neighbors_grid *grid, const mlff_batch *batch, int s)
{
    double axes[9] = {0};
    for (int k = 0; k < 3; k++) {
        grid->periodic[k] = batch->periodic && batch->periodic[3 * (size_t)s + k];
        for (int c = 0; c < 3; c++) {
            double value = batch->cells ? batch->cells[9 * (size_t)s + 3 * k + c] : 0.0;
            if (!(fabs(value) <= MAX_COORDINATE))
                return mlff_fail(MLFF_ERR_VALUE, "cell vector %d of system %d has a component of %g Å; correct the cell", k, s,
                                 value);
            axes[3 * k + c] = grid->periodic[k] ? value : 0.0;
        }
    }
    memcpy(grid->cell, axes, sizeof axes);
    complete_axes(grid->periodic, axes);

    double volumes[3][3];
    for (int k = 0; k < 3; k++) cross(axes + 3 * ((k + 1) % 3), axes + 3 * ((k + 2) % 3), volumes[k]);
    double volume = axes[0] * volumes[0][0] + axes[1] * volumes[0][1] + axes[2] * volumes[0][2];
    double edges = norm(axes) * norm(axes + 3) * norm(axes + 6);
    if (!(fabs(volume) > 1e-8 * edges))
        return mlff_fail(MLFF_ERR_VALUE,
                         "the cell of system %d repeats along%s%s%s but its vectors there span no volume; give a cell or set "
                         "pbc to F",
                         s, grid->periodic[0] ? " a" : "", grid->periodic[1] ? " b" : "", grid->periodic[2] ? " c" : "");
    grid->volume = fabs(volume);
    for (int k = 0; k < 3; k++) {
        for (int c = 0; c < 3; c++) grid->inverse[3 * c + k] = volumes[k][c] / volume;
        grid->height[k] = fabs(volume) / norm(volumes[k]);
    }
    return MLFF_OK;
}

// ---- wrapping and bins ----------------------------------------------------------------------------------------------

// How many images the range reaches over: each of each atom would have to be looked at.
static mlff_status count_images(const neighbors_grid *grid, double range, int s, double reach[3])
{
    double images = grid->n_atoms;
    for (int k = 0; k < 3; k++) {
        reach[k] = grid->periodic[k] ? floor(range / grid->height[k]) + 1 : 0;
        images *= 2 * reach[k] + 1;
        if (reach[k] > 1e9 || images > 1e12)
            return mlff_fail(MLFF_ERR_LIMIT, "system %d repeats too often within %.3g Å; use a larger cell or a smaller cutoff",
                             s, range);
    }
    return MLFF_OK;
}

// Wraps the atoms of one system and sets the numbering of its images.
static mlff_status wrap_atoms(mlff_neighbors *neighbors, neighbors_grid *grid, const mlff_batch *batch, int s)
{
    int32_t low[3] = {0, 0, 0}, high[3] = {0, 0, 0};
    double largest = 0, reach[3] = {0};
    grid->range = neighbors->cutoff + neighbors->skin;
    mlff_status status = count_images(grid, grid->range, s, reach); // first: in a cell of 1e-9 Å every atom lies far outside
    if (status != MLFF_OK) return status;
    for (int c = 0; c < 9; c++) largest = fmax(largest, fabs(grid->cell[c]));
    for (int i = grid->first; i < grid->first + grid->n_atoms; i++) {
        const double *x = batch->positions + 3 * (size_t)i;
        double *y = neighbors->wrapped + 3 * (size_t)i, offset[3];
        int32_t *wrap = neighbors->wrap + 3 * (size_t)i;
        for (int c = 0; c < 3; c++) {
            if (!(fabs(x[c]) <= MAX_COORDINATE))
                return mlff_fail(MLFF_ERR_VALUE, "atom %d of system %d has a coordinate of %g Å; correct its position",
                                 i - grid->first, s, x[c]);
            largest = fmax(largest, fabs(x[c]));
        }
        for (int k = 0; k < 3; k++) {
            double cells = grid->periodic[k] ? floor(neighbors_fraction(grid, x, k)) : 0.0;
            if (!(fabs(cells) <= MAX_WRAP))
                return mlff_fail(MLFF_ERR_VALUE, "atom %d of system %d lies %.0f cells outside its cell; wrap its position",
                                 i - grid->first, s, fabs(cells));
            wrap[k] = (int32_t)cells;
            if (i == grid->first || wrap[k] < low[k]) low[k] = wrap[k];
            if (i == grid->first || wrap[k] > high[k]) high[k] = wrap[k];
        }
        neighbors_offset(grid->cell, wrap, offset);
        for (int c = 0; c < 3; c++) y[c] = x[c] - offset[c];
    }

    // Wrapped and unwrapped positions give distances that differ by the rounding of the largest number.
    grid->range += 1e-9 + 32 * 2.3e-16 * largest;
    if ((status = count_images(grid, grid->range, s, reach)) != MLFF_OK) return status;
    int64_t n_images = 1;
    for (int k = 2; k >= 0; k--) {
        grid->extent[k] = (int32_t)reach[k] + (high[k] - low[k]);
        grid->stride[k] = n_images;
        if (__builtin_mul_overflow(n_images, 2 * (int64_t)grid->extent[k] + 1, &n_images))
            return mlff_fail(MLFF_ERR_LIMIT, "atoms of system %d lie too many cells apart; wrap their positions", s);
    }
    grid->dense = n_images <= 1000 + 32 * (int64_t)grid->n_atoms;
    return MLFF_OK;
}

// Where the atoms lie along an axis that does not repeat. Few atoms far from the rest (one that evaporated) must not
// stretch the bins over all the rest: the bins span the bulk, and the outer ones take what lies beyond.
static void span_atoms(const mlff_neighbors *neighbors, const neighbors_grid *grid, int k, double *low_out, double *high_out)
{
    enum { N_SAMPLES = 256 };
    double low = INFINITY, high = -INFINITY, samples[N_SAMPLES];
    for (int i = grid->first; i < grid->first + grid->n_atoms; i++) {
        double f = neighbors_fraction(grid, neighbors->wrapped + 3 * (size_t)i, k);
        low = fmin(low, f);
        high = fmax(high, f);
    }
    if (grid->n_atoms >= N_SAMPLES && high - low > 20 * grid->range) {
        for (int t = 0; t < N_SAMPLES; t++) {
            size_t i = (size_t)grid->first + (size_t)t * (size_t)grid->n_atoms / N_SAMPLES;
            samples[t] = neighbors_fraction(grid, neighbors->wrapped + 3 * i, k);
        }
        base_sort(samples, N_SAMPLES);
        double inner_low = samples[N_SAMPLES / 16], inner_high = samples[N_SAMPLES - 1 - N_SAMPLES / 16];
        double margin = 0.5 * (inner_high - inner_low) + grid->range;
        low = fmax(low, inner_low - margin);
        high = fmin(high, inner_high + margin);
    }
    *low_out = grid->n_atoms > 0 ? low : 0.0;
    *high_out = grid->n_atoms > 0 ? high : 0.0;
}

// Bins of half the range, or larger where that would make more bins than half the atoms. An axis that does not repeat and has
// one bin gets the factor 0: its extent may be 0 or so small that its inverse overflows.
static void choose_bins(const mlff_neighbors *neighbors, neighbors_grid *grid)
{
    double length[3];
    for (int k = 0; k < 3; k++) {
        double low = 0.0, high = 1.0;
        if (!grid->periodic[k]) span_atoms(neighbors, grid, k, &low, &high);
        grid->low[k] = low;
        length[k] = grid->periodic[k] ? grid->height[k] : high - low;
    }
    for (double width = 0.5 * grid->range;; width *= 1.25) {
        double total = 1;
        for (int k = 0; k < 3; k++) total *= fmax(1.0, floor(length[k] / width));
        if (total > fmax(1.0, 0.5 * grid->n_atoms)) continue;
        for (int k = 0; k < 3; k++) {
            grid->n_bins[k] = (int)fmax(1.0, floor(length[k] / width));
            if (grid->periodic[k])
                grid->n_per_fraction[k] = grid->n_bins[k];
            else
                grid->n_per_fraction[k] = grid->n_bins[k] > 1 ? grid->n_bins[k] / length[k] : 0.0;
        }
        return;
    }
}

// Sorts the atoms of one system into its bins; atoms of a bin stay in the caller's order.
static void sort_atoms(mlff_neighbors *neighbors, const neighbors_grid *grid)
{
    size_t n_bins = (size_t)grid->n_bins[0] * (size_t)grid->n_bins[1] * (size_t)grid->n_bins[2];
    int32_t *start = neighbors->bin_start + grid->first_bin;
    memset(start, 0, (n_bins + 1) * sizeof *start);
    for (int i = grid->first; i < grid->first + grid->n_atoms; i++) {
        const double *x = neighbors->wrapped + 3 * (size_t)i;
        int bin = 0;
        for (int k = 0; k < 3; k++)
            bin = bin * grid->n_bins[k] +
                  neighbors_clamp_bin(floor((neighbors_fraction(grid, x, k) - grid->low[k]) * grid->n_per_fraction[k]),
                                      grid->n_bins[k]);
        neighbors->bin[i] = bin;
        start[bin]++;
    }
    int32_t at = grid->first;
    for (size_t b = 0; b <= n_bins; b++) {
        int32_t n = start[b];
        start[b] = at;
        at += n;
    }
    for (int i = grid->first; i < grid->first + grid->n_atoms; i++) {
        int32_t k = start[neighbors->bin[i]]++;
        neighbors->order[k] = i;
        neighbors->place[i] = k;
        for (int c = 0; c < 3; c++) neighbors->sorted[c][k] = neighbors->wrapped[3 * (size_t)i + c];
        const int32_t *wrap = neighbors->wrap + 3 * (size_t)i;
        neighbors->wrap_number[k] = wrap[0] * grid->stride[0] + wrap[1] * grid->stride[1] + wrap[2] * grid->stride[2];
    }
    memmove(start + 1, start, n_bins * sizeof *start);
    start[0] = grid->first;
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

// What is left of INT32_MAX pairs on this machine.
static double pair_limit(void)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return bytes > 0 ? fmin(INT32_MAX, bytes / BYTES_PER_PAIR) : INT32_MAX;
}

static mlff_status too_many(const mlff_neighbors *neighbors, double n_pairs)
{
    return mlff_fail(MLFF_ERR_LIMIT,
                     "%.2g pairs lie within %.3g Å, more than this machine can list; use a smaller cutoff, fewer atoms or a "
                     "larger cell",
                     n_pairs, neighbors->cutoff + neighbors->skin);
}

// Pairs that the search of one system looks at.
static double estimate_work(const neighbors_grid *grid)
{
    double work = (double)grid->n_atoms * grid->n_atoms;
    for (int k = 0; k < 3; k++) {
        double share = (2 * grid->range / grid->height[k] * grid->n_per_fraction[k] + 1) / grid->n_bins[k];
        work *= grid->periodic[k] ? share : fmin(share, 1.0);
    }
    return work;
}

// Pairs that there are at least, nearly: those with all images of an atom itself, or where all axes repeat of all atoms.
static double estimate_pairs(const neighbors_grid *grid)
{
    double r = grid->range, n = grid->n_atoms;
    switch (grid->periodic[0] + grid->periodic[1] + grid->periodic[2]) {
    case 1: return n * (2 * r / grid->volume - 1);
    case 2: return n * (BASE_PI * r * r / grid->volume - 1);
    case 3: return n * (4 * BASE_PI / 3 * r * r * r * n / grid->volume - 1);
    default: return 0;
    }
}

static mlff_status make_grids(mlff_neighbors *neighbors, const mlff_batch *batch, double *work_out)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)neighbors->n_atoms, n_bins = 0;
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->grids, &neighbors->grids_capacity, (size_t)neighbors->n_systems,
                            sizeof *neighbors->grids));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->bin, &neighbors->bin_capacity, n, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->wrap, &neighbors->wrap_capacity, 3 * n, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->wrap_number, &neighbors->wrap_number_capacity, n, sizeof(int64_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->wrapped, &neighbors->wrapped_capacity, 3 * n, sizeof(double)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->order, &neighbors->order_capacity, n, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->place, &neighbors->place_capacity, n, sizeof(int32_t)));
    for (int c = 0; c < 3; c++)
        MLFF_TRY(neighbors_grow(neighbors, &neighbors->sorted[c], &neighbors->sorted_capacity[c], n + NEIGHBORS_BLOCK,
                                sizeof(double)));

    double work = 0, n_pairs = 0;
    for (int s = 0; s < neighbors->n_systems; s++) {
        neighbors_grid *grid = &neighbors->grids[s];
        *grid = (neighbors_grid){.first = batch->first_atom[s], .n_atoms = batch->first_atom[s + 1] - batch->first_atom[s]};
        MLFF_TRY(neighbors_set_axes(grid, batch, s));
        MLFF_TRY(wrap_atoms(neighbors, grid, batch, s));
        choose_bins(neighbors, grid);
        grid->first_bin = n_bins;
        n_bins += (size_t)grid->n_bins[0] * (size_t)grid->n_bins[1] * (size_t)grid->n_bins[2] + 1;
        work += estimate_work(grid);
        const double own_pairs = fmax(0.0, estimate_pairs(grid));
        if (own_pairs > MOST_NEIGHBORS * grid->n_atoms)
            MLFF_FAIL(
                MLFF_ERR_LIMIT,
                "system %d repeats too often: an atom has %.2g neighbors within %.3g Å; use a larger cell or a smaller cutoff", s,
                own_pairs / grid->n_atoms, grid->range);
        n_pairs += own_pairs;
    }
    if (n_pairs > 1.5 * pair_limit()) MLFF_TRY(too_many(neighbors, n_pairs)); // not worth counting them
    // A sphere fills a sixth of what is looked at, less in oblique cells; beyond a thirtieth it is the time that is too long.
    if (work > 30 * pair_limit())
        MLFF_FAIL(MLFF_ERR_LIMIT,
                  "%.2g pairs would have to be looked at to list those within %.3g Å; use a smaller cutoff, fewer atoms or a "
                  "larger cell",
                  work, neighbors->cutoff + neighbors->skin);
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->bin_start, &neighbors->bin_start_capacity, n_bins, sizeof(int32_t)));
    for (int s = 0; s < neighbors->n_systems; s++) sort_atoms(neighbors, &neighbors->grids[s]);
    *work_out = work;
done:
    return status;
}

// ---- images ---------------------------------------------------------------------------------------------------------

void neighbors_decode_image(const neighbors_grid *grid, int64_t number, neighbors_image *image)
{
    for (int k = 0; k < 3; k++) number += grid->extent[k] * grid->stride[k];
    for (int k = 0; k < 3; k++) {
        image->shift[k] = (int32_t)(number / grid->stride[k]) - grid->extent[k];
        number %= grid->stride[k];
    }
    neighbors_offset(grid->cell, image->shift, image->offset);
}

static mlff_status grow_images(mlff_neighbors *neighbors)
{
    int64_t n = neighbors->n_dense_images + (neighbors->all_dense ? 0 : neighbors->region_first[neighbors->n_regions]);
    if (n > INT32_MAX)
        return mlff_fail(MLFF_ERR_LIMIT, "the systems of the batch have too many images within the cutoff; use a smaller batch");
    return neighbors_grow(neighbors, &neighbors->images, &neighbors->images_capacity, (size_t)n, sizeof *neighbors->images);
}

static int64_t n_images(const neighbors_grid *grid)
{
    return grid->dense ? grid->stride[0] * (2 * (int64_t)grid->extent[0] + 1) : 0;
}

static void decode_images(mlff_neighbors *neighbors, const neighbors_grid *grid)
{
    const int64_t n = n_images(grid);
    for (int64_t k = -(n / 2); k < n - n / 2; k++) neighbors_decode_image(grid, k, &neighbors->images[grid->image_zero + k]);
}

void neighbors_set_cell(mlff_neighbors *neighbors, int s, const double cell[9])
{
    neighbors_grid *grid = &neighbors->grids[s];
    assert(grid->dense && grid->periodic[0] && grid->periodic[1] && grid->periodic[2]);
    memcpy(grid->cell, cell, sizeof grid->cell);
    decode_images(neighbors, grid);
}

static mlff_status make_images(mlff_neighbors *neighbors)
{
    neighbors->n_dense_images = 0;
    neighbors->all_dense = true;
    for (int s = 0; s < neighbors->n_systems; s++) {
        neighbors_grid *grid = &neighbors->grids[s];
        const int64_t n = n_images(grid);
        grid->image_zero = neighbors->n_dense_images + n / 2;
        neighbors->n_dense_images += n;
        neighbors->all_dense &= grid->dense;
    }
    mlff_status status = grow_images(neighbors);
    if (status != MLFF_OK) return status;
    for (int s = 0; s < neighbors->n_systems; s++) decode_images(neighbors, &neighbors->grids[s]);
    return MLFF_OK;
}

// ---- the build --------------------------------------------------------------------------------------------------------

static mlff_status grow_scratch(mlff_neighbors *neighbors, int n_threads)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)neighbors->scratch_room + NEIGHBORS_BLOCK;
    for (int t = 0; t < n_threads; t++) {
        neighbors_scratch *scratch = &neighbors->scratch[t];
        MLFF_TRY(neighbors_grow(neighbors, &scratch->found, &scratch->found_capacity, n, sizeof(int32_t)));
        MLFF_TRY(neighbors_grow(neighbors, &scratch->key, &scratch->key_capacity, n, sizeof(int32_t)));
        MLFF_TRY(neighbors_grow(neighbors, &scratch->rank, &scratch->rank_capacity, n, sizeof(int32_t)));
        MLFF_TRY(neighbors_grow(neighbors, &scratch->other, &scratch->other_capacity, n, sizeof(int32_t)));
        MLFF_TRY(neighbors_grow(neighbors, &scratch->number, &scratch->number_capacity, n, sizeof(int64_t)));
        MLFF_TRY(neighbors_grow(neighbors, &scratch->square, &scratch->square_capacity, n, sizeof(double)));
    }
done:
    return status;
}

// Regions are taken one by one: which thread does which changes no result.
typedef struct region_run {
    mlff_neighbors *neighbors;
    _Atomic int next, n_full;
    _Atomic int64_t room, n_pairs;
} region_run;

static void count_regions(void *context, const team_member *member)
{
    region_run *run = context;
    (void)member;
    int64_t room = 0;
    for (int r; (r = atomic_fetch_add(&run->next, 1)) < run->neighbors->n_regions;)
        run->neighbors->region_first[r + 1] = run->neighbors->kernels->count_region(run->neighbors, r, &room);
    int64_t largest = atomic_load(&run->room);
    while (room > largest && !atomic_compare_exchange_weak(&run->room, &largest, room)) {}
}

static void list_regions(void *context, const team_member *member)
{
    region_run *run = context;
    mlff_neighbors *neighbors = run->neighbors;
    for (int r; (r = atomic_fetch_add(&run->next, 1)) < neighbors->n_regions;) {
        int64_t n = neighbors->kernels->list_region(neighbors, r, &neighbors->scratch[member->thread], neighbors->scratch_room);
        atomic_fetch_add(&run->n_pairs, n);
        if (n < 0) atomic_fetch_add(&run->n_full, 1);
    }
}

// Counts the pairs and makes room for them, and for some more at the next build.
static mlff_status make_room(mlff_neighbors *neighbors, int n_threads)
{
    mlff_status status = MLFF_OK;
    int n_regions = 1 + neighbors->n_atoms / 512;
    if (n_regions > NEIGHBORS_MAX_REGIONS) n_regions = NEIGHBORS_MAX_REGIONS;
    neighbors->n_regions = n_regions;
    int64_t *first = neighbors->region_first, room = 0, n_pairs = 0;
    if (n_threads == 1) {
        for (int r = 0; r < n_regions; r++) first[r + 1] = neighbors->kernels->count_region(neighbors, r, &room);
    } else {
        region_run run = {.neighbors = neighbors};
        team_run(n_threads, count_regions, &run);
        room = atomic_load(&run.room);
    }
    first[0] = 0;
    for (int r = 0; r < n_regions; r++) {
        n_pairs += first[r + 1];
        first[r + 1] += first[r] + first[r + 1] / 8 + 64;
    }
    if ((double)n_pairs > pair_limit()) MLFF_TRY(too_many(neighbors, (double)n_pairs));
    size_t capacity = (size_t)first[n_regions];
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->skin_neighbor, &neighbors->skin_neighbor_capacity, capacity, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->skin_image, &neighbors->skin_image_capacity, capacity, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->accepted, &neighbors->accepted_capacity, capacity, sizeof(int32_t)));
    neighbors->scratch_room = room + room / 8 + 64;
    MLFF_TRY(grow_scratch(neighbors, n_threads));
    MLFF_TRY(grow_images(neighbors));
done:
    return status;
}

// Whether all regions had the room.
static bool list_pairs(mlff_neighbors *neighbors, int n_threads)
{
    int n_regions = neighbors->n_regions, n_full = 0;
    int64_t n_pairs = 0;
    if (n_threads == 1) {
        for (int r = 0; r < n_regions && n_full == 0; r++) {
            int64_t n = neighbors->kernels->list_region(neighbors, r, &neighbors->scratch[0], neighbors->scratch_room);
            n_pairs += n;
            n_full += n < 0;
        }
    } else {
        region_run run = {.neighbors = neighbors};
        team_run(n_threads, list_regions, &run);
        n_pairs = atomic_load(&run.n_pairs);
        n_full = atomic_load(&run.n_full);
    }
    neighbors->n_skin = n_pairs;
    return n_full == 0;
}

mlff_status neighbors_build(mlff_neighbors *neighbors, const mlff_batch *batch)
{
    mlff_status status = MLFF_OK;
    double work = 0;
    size_t n = (size_t)neighbors->n_atoms;
    MLFF_TRY(make_grids(neighbors, batch, &work));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->skin_first, &neighbors->skin_first_capacity, n, sizeof(int64_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->skin_length, &neighbors->skin_length_capacity, n, sizeof(int32_t)));
    int n_threads = neighbors_n_threads(neighbors, (int64_t)work);
    MLFF_TRY(make_images(neighbors));
    if (neighbors->n_regions > 0) {
        MLFF_TRY(grow_scratch(neighbors, n_threads));
        if (list_pairs(neighbors, n_threads)) return MLFF_OK;
    }
    MLFF_TRY(make_room(neighbors, n_threads));
    bool listed = list_pairs(neighbors, n_threads);
    assert(listed);
    (void)listed;
done:
    if (status != MLFF_OK) neighbors->n_regions = 0; // they may be larger than what they lie in
    return status;
}
