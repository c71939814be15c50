// SPDX-License-Identifier: MIT
// neighbors.c: the neighbor list. Keeps all pairs within cutoff + skin (made in neighbors_cells.c) as long as no atom has
// moved by more than half the skin, less what a changed cell takes of it, and hands out those within the cutoff, with vectors
// formed in double
//   r_p = (positions[neighbor] - positions[atom]) + (S0 a + S1 b + S2 c)
// from the caller's own positions: neither the pairs nor a bit of the vectors depends on when the list was built.
#include "atoms/neighbors.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "atoms/atoms.h"
#include "device/cpu.h"
#include "device/team.h"

// Two atoms closer than this are one point given twice: 1e-6 Å, squared.
#define ONE_POINT 1e-12

// ---- memory -----------------------------------------------------------------------------------------------------------

mlff_status neighbors_grow(mlff_neighbors *neighbors, void *pointer, size_t *capacity, size_t count, size_t size)
{
    size_t before = *capacity;
    void *old;
    memcpy(&old, pointer, sizeof old);
    if (old && count <= before) return MLFF_OK;
    mlff_status status = base_grow(pointer, capacity, count + count / 8, size, "the neighbor list");
    if (status == MLFF_OK) {
        neighbors->n_growths++;
        neighbors->bytes += (int64_t)((*capacity - before) * size);
    }
    return status;
}

int neighbors_n_threads(const mlff_neighbors *neighbors, int64_t n_pairs)
{
    int n = 1 + (int)(n_pairs / 20000 < NEIGHBORS_MAX_THREADS ? n_pairs / 20000 : NEIGHBORS_MAX_THREADS);
    if (n > neighbors->max_threads) n = neighbors->max_threads;
    if (n > NEIGHBORS_MAX_THREADS) n = NEIGHBORS_MAX_THREADS;
    return n > neighbors->n_atoms ? (neighbors->n_atoms > 0 ? neighbors->n_atoms : 1) : n;
}

static const neighbors_kernels *choose_kernels(const char *path)
{
#if defined(__x86_64__)
    path = cpu_vector_path(path);
    if (strcmp(path, "avx512") == 0) return &neighbors_kernels_avx512;
    if (strcmp(path, "avx2") == 0) return &neighbors_kernels_avx2;
#endif
    (void)path;
    return &neighbors_kernels_portable;
}

mlff_status mlff_neighbors_create(double cutoff_angstrom, double skin_angstrom, mlff_neighbors **neighbors_out)
{
    return neighbors_create_on(cutoff_angstrom, skin_angstrom, NULL, 0, neighbors_out);
}

mlff_status neighbors_create_on(double cutoff_angstrom, double skin_angstrom, const char *path, int max_threads,
                                mlff_neighbors **neighbors_out)
{
    if (!neighbors_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_neighbors_create: no place for the result");
    if (!(cutoff_angstrom > 0 && cutoff_angstrom <= 1e6))
        return mlff_fail(MLFF_ERR_USAGE, "a cutoff of %g Å is out of range; give one above 0, at most 1e6 Å", cutoff_angstrom);
    if (!(skin_angstrom >= 0 && skin_angstrom <= 1e6))
        return mlff_fail(MLFF_ERR_USAGE, "a skin of %g Å is out of range; give 0 to 1e6 Å", skin_angstrom);
    mlff_status status = cpu_path_choose(path, false, &path);
    if (status != MLFF_OK) return status;
    mlff_neighbors *neighbors = base_alloc(1, sizeof *neighbors, "the neighbor list");
    if (!neighbors) return MLFF_ERR_MEMORY;
    neighbors->kernels = choose_kernels(path);
    neighbors->max_threads = team_size(max_threads);
    neighbors->cutoff = cutoff_angstrom;
    neighbors->skin = skin_angstrom;
    neighbors->bytes = sizeof *neighbors;
    status = neighbors_grow(neighbors, &neighbors->first, &neighbors->first_capacity, 16, sizeof(int32_t));
    if (status != MLFF_OK) {
        mlff_neighbors_destroy(neighbors);
        return status;
    }
    *neighbors_out = neighbors;
    return MLFF_OK;
}

void mlff_neighbors_destroy(mlff_neighbors *neighbors)
{
    if (!neighbors) return;
    void *arrays[] = {
        neighbors->first_atom, neighbors->cells,       neighbors->periodic,      neighbors->positions,  neighbors->grids,
        neighbors->bin_start,  neighbors->bin,         neighbors->wrapped,       neighbors->wrap,       neighbors->order,
        neighbors->place,      neighbors->sorted[0],   neighbors->sorted[1],     neighbors->sorted[2],  neighbors->wrap_number,
        neighbors->skin_first, neighbors->skin_length, neighbors->skin_neighbor, neighbors->skin_image, neighbors->images,
        neighbors->first,      neighbors->neighbor,    neighbors->shift,         neighbors->reverse,    neighbors->vectors,
        neighbors->accepted,   neighbors->cursor,
    };
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    for (int t = 0; t < NEIGHBORS_MAX_THREADS; t++) {
        neighbors_scratch *scratch = &neighbors->scratch[t];
        void *rows[] = {scratch->found, scratch->key, scratch->rank, scratch->other, scratch->number, scratch->square};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) base_free(rows[k]);
    }
    base_free(neighbors);
}

// ---- is the skin list still good? ---------------------------------------------------------------------------------------

static const double no_cell[9];

static const double *cell_of(const mlff_batch *batch, int s)
{
    return batch->cells ? batch->cells + 9 * (size_t)s : no_cell;
}

static bool same_cell(const double a[9], const double b[9])
{
    bool same = true;
    for (int k = 0; k < 9; k++) same = same && a[k] == b[k];
    return same;
}

static bool is_crystal(const mlff_neighbors *neighbors, int s)
{
    const unsigned char *periodic = neighbors->periodic + 3 * (size_t)s;
    return periodic[0] && periodic[1] && periodic[2];
}

static bool same_systems(const mlff_neighbors *neighbors, const mlff_batch *batch)
{
    size_t n = (size_t)batch->n_systems;
    if (neighbors->n_systems != batch->n_systems) return false;
    if (memcmp(neighbors->first_atom, batch->first_atom, (n + 1) * sizeof(int32_t)) != 0) return false;
    for (size_t k = 0; k < 3 * n; k++)
        if (neighbors->periodic[k] != (batch->periodic && batch->periodic[k])) return false;
    return true;
}

// Whether two of n atoms may have come closer by more than `most`. A number that is not finite says so too.
static bool moved_too_far(int n, const double *built, const double *positions, double most)
{
    double limit = most * most;
    int too_far = 0;
    for (int i = 0; i < n; i++, positions += 3, built += 3) {
        double x = positions[0] - built[0], y = positions[1] - built[1], z = positions[2] - built[2];
        too_far |= !(4 * (x * x + y * y + z * z) <= limit);
    }
    return too_far != 0;
}

// A list outlives small changes of the cell h. With rows as vectors M = h_listed⁻¹ h takes x to x M, and a pair (i, j, S) has
//   r = (x_j − x_i + S h_listed) M + d_j − d_i,   d_i = x_i now − x_i then M.
// A pair that is not listed was farther apart than cutoff + skin, so it is outside the cutoff as long as
//   2 max |d_i| <= (cutoff + skin) / (1 + |M⁻¹ − 1|) − cutoff,
// where the quotient bounds M's least singular value from below. d_i is taken relative to that of the first atom, as a displacement of
// all atoms changes no distance.
static bool strained_too_far(const mlff_neighbors *neighbors, int s, const double cell[9], const double *positions)
{
    const double *listed = neighbors->cells + 9 * (size_t)s, *built = neighbors->positions + 3 * (size_t)neighbors->first_atom[s];
    const int n = neighbors->first_atom[s + 1] - neighbors->first_atom[s];
    double inverse[2][9], square = 0, m[9], origin[3];
    if (!is_crystal(neighbors, s) || !neighbors->grids[s].dense) return true;
    if (!atoms_invert(listed, inverse[0]) || !atoms_invert(cell, inverse[1])) return true;
    for (int a = 0; a < 3; a++)
        for (int c = 0; c < 3; c++) {
            double back = a == c ? -1 : 0; // M⁻¹ − 1
            m[3 * a + c] = 0;
            for (int k = 0; k < 3; k++) {
                m[3 * a + c] += inverse[0][3 * a + k] * cell[3 * k + c];
                back += inverse[1][3 * a + k] * listed[3 * k + c];
            }
            square += back * back;
        }
    const double reach = neighbors->cutoff + neighbors->skin, most = reach / (1 + sqrt(square)) - neighbors->cutoff;
    if (!(most >= 0)) return true;
    for (int c = 0; c < 3 && n > 0; c++) origin[c] = positions[c] - (built[0] * m[c] + built[1] * m[3 + c] + built[2] * m[6 + c]);
    for (int i = 0; i < n; i++, positions += 3, built += 3) {
        double moved = 0;
        for (int c = 0; c < 3; c++) {
            const double d = positions[c] - (built[0] * m[c] + built[1] * m[3 + c] + built[2] * m[6 + c]) - origin[c];
            moved += d * d;
        }
        if (!(4 * moved <= most * most)) return true;
    }
    return false;
}

static bool still_good(const mlff_neighbors *neighbors, const mlff_batch *batch)
{
    if (!neighbors->built || neighbors->skin == 0 || !same_systems(neighbors, batch)) return false;
    for (int s = 0; s < batch->n_systems; s++) {
        const size_t first = 3 * (size_t)batch->first_atom[s];
        const double *cell = cell_of(batch, s), *listed = neighbors->cells + 9 * (size_t)s;
        const int n = batch->first_atom[s + 1] - batch->first_atom[s];
        if (same_cell(cell, listed) ? moved_too_far(n, neighbors->positions + first, batch->positions + first, neighbors->skin)
                                    : strained_too_far(neighbors, s, cell, batch->positions + first))
            return false;
    }
    return true;
}

// Only a crystal's cell may differ from the one of the list.
static void take_cells(mlff_neighbors *neighbors, const mlff_batch *batch)
{
    for (int s = 0; s < batch->n_systems; s++)
        if (is_crystal(neighbors, s) && !same_cell(neighbors->grids[s].cell, cell_of(batch, s)))
            neighbors_set_cell(neighbors, s, cell_of(batch, s));
}

static mlff_status check_batch(const mlff_batch *batch)
{
    if (!batch->first_atom || batch->n_systems < 1)
        return mlff_fail(MLFF_ERR_USAGE, "a batch of %d systems has no neighbors; give n_systems and first_atom",
                         batch->n_systems);
    if (batch->location != MLFF_HOST)
        return mlff_fail(MLFF_ERR_USAGE, "this neighbor list is made on the host; copy the positions there");
    if (batch->first_atom[0] != 0) return mlff_fail(MLFF_ERR_USAGE, "first_atom[0] is %d; it must be 0", batch->first_atom[0]);
    for (int s = 0; s < batch->n_systems; s++)
        if (batch->first_atom[s + 1] < batch->first_atom[s])
            return mlff_fail(MLFF_ERR_USAGE, "system %d has %d atoms; first_atom must not descend", s,
                             batch->first_atom[s + 1] - batch->first_atom[s]);
    if (!batch->positions) return mlff_fail(MLFF_ERR_USAGE, "a batch without positions has no neighbors; give positions");
    return MLFF_OK;
}

static mlff_status remember(mlff_neighbors *neighbors, const mlff_batch *batch)
{
    mlff_status status = MLFF_OK;
    size_t n_systems = (size_t)batch->n_systems, n_atoms = (size_t)batch->first_atom[batch->n_systems];
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->first_atom, &neighbors->first_atom_capacity, n_systems + 1, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->cells, &neighbors->cells_capacity, 9 * n_systems, sizeof(double)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->periodic, &neighbors->periodic_capacity, 3 * n_systems, 1));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->positions, &neighbors->positions_capacity, 3 * n_atoms, sizeof(double)));
    memcpy(neighbors->first_atom, batch->first_atom, (n_systems + 1) * sizeof(int32_t));
    memcpy(neighbors->positions, batch->positions, 3 * n_atoms * sizeof(double));
    for (size_t k = 0; k < 9 * n_systems; k++) neighbors->cells[k] = batch->cells ? batch->cells[k] : 0.0;
    for (size_t k = 0; k < 3 * n_systems; k++) neighbors->periodic[k] = batch->periodic && batch->periodic[k];
    neighbors->n_systems = batch->n_systems;
    neighbors->n_atoms = (int)n_atoms;
done:
    return status;
}

// ---- the pass over the skin list ----------------------------------------------------------------------------------------

static inline double pair_vector(const double *restrict x_i, const double *restrict x_j, const double *restrict offset,
                                 double *restrict r)
{
    r[0] = (x_j[0] - x_i[0]) + offset[0];
    r[1] = (x_j[1] - x_i[1]) + offset[1];
    r[2] = (x_j[2] - x_i[2]) + offset[2];
    return r[0] * r[0] + r[1] * r[1] + r[2] * r[2];
}

// Lists which skin pairs of the row are within the cutoff; returns how many. A pair's reverse has the same distance to the
// last bit, so both are taken or neither.
static inline int accept_row(mlff_neighbors *neighbors, const double *positions, int i, int *close_out)
{
    const int64_t first = neighbors->skin_first[i];
    const int n = neighbors->skin_length[i];
    const int32_t *restrict neighbor = neighbors->skin_neighbor + first, *restrict image = neighbors->skin_image + first;
    const neighbors_image *restrict images = neighbors->images;
    int32_t *restrict accepted = neighbors->accepted + first;
    const double square = neighbors->cutoff * neighbors->cutoff, *x_i = positions + 3 * (size_t)i;
    int count = 0, close = 0;
    for (int k = 0; k < n; k++) {
        double r[3];
        double r2 = pair_vector(x_i, positions + 3 * (size_t)neighbor[k], images[image[k]].offset, r);
        accepted[count] = k;
        count += r2 < square;
        close |= r2 < ONE_POINT;
    }
    *close_out |= close;
    return count;
}

static inline void write_row(mlff_neighbors *neighbors, const double *positions, int i)
{
    const int64_t skin_first = neighbors->skin_first[i];
    const size_t first = (size_t)neighbors->first[i];
    const int n = neighbors->first[i + 1] - neighbors->first[i];
    const int32_t *restrict skin_neighbor = neighbors->skin_neighbor + skin_first;
    const int32_t *restrict skin_image = neighbors->skin_image + skin_first;
    const int32_t *restrict accepted = neighbors->accepted + skin_first;
    int32_t *restrict neighbor = neighbors->neighbor + first, *restrict shift = neighbors->shift + 3 * first;
    double *restrict vector = neighbors->vectors + 3 * first;
    const double *x_i = positions + 3 * (size_t)i;
    for (int k = 0; k < n; k++) {
        int32_t j = skin_neighbor[accepted[k]];
        const neighbors_image *image = &neighbors->images[skin_image[accepted[k]]];
        neighbor[k] = j;
        memcpy(shift + 3 * k, image->shift, sizeof image->shift);
        pair_vector(x_i, positions + 3 * (size_t)j, image->offset, vector + 3 * k);
    }
}

// The reverses of the pairs of rows `begin` up to `end`. Rows are read in ascending order and every row is ascending, so the
// pairs (j, i) of all rows j meet those of row i in its own order: a cursor in each row finds them. Where j is there in several
// images, theirs are met from the last to the first, as the order of -S is the opposite of that of S.
static void find_reverses(mlff_neighbors *neighbors, int begin, int end, int32_t *restrict cursor)
{
    const int32_t *restrict neighbor = neighbors->neighbor, *restrict first = neighbors->first;
    int32_t *restrict reverse = neighbors->reverse;
    for (int i = 0; i < neighbors->n_atoms; i++) {
        int32_t low = first[i], high = first[i + 1];
        while (begin > 0 && low < high) { // the row's first pair with a neighbor >= begin
            int32_t middle = low + (high - low) / 2;
            if (neighbor[middle] < begin)
                low = middle + 1;
            else
                high = middle;
        }
        cursor[i] = low;
    }
    for (int32_t p = first[begin], p_end = first[end], row_end, j = begin; p < p_end; j++) {
        for (row_end = first[j + 1]; p < row_end;) {
            int32_t i = neighbor[p], n = 1;
            while (p + n < row_end && neighbor[p + n] == i) n++;
            int32_t at = cursor[i] + n;
            cursor[i] = at;
            for (; n > 0; n--) reverse[p++] = --at;
        }
    }
}

static mlff_status one_point(const mlff_neighbors *neighbors, const double *positions)
{
    for (int s = 0; s < neighbors->n_systems; s++)
        for (int i = neighbors->first_atom[s]; i < neighbors->first_atom[s + 1]; i++)
            for (int64_t p = neighbors->skin_first[i]; p < neighbors->skin_first[i] + neighbors->skin_length[i]; p++) {
                int j = neighbors->skin_neighbor[p];
                double r[3], r2 = pair_vector(positions + 3 * (size_t)i, positions + 3 * (size_t)j,
                                              neighbors->images[neighbors->skin_image[p]].offset, r);
                if (!(r2 < ONE_POINT)) continue;
                if (i == j)
                    return mlff_fail(MLFF_ERR_VALUE, "atom %d of system %d lies on its own image; correct the cell",
                                     i - neighbors->first_atom[s], s);
                return mlff_fail(MLFF_ERR_VALUE, "atoms %d and %d of system %d are on one point; move one of them",
                                 i - neighbors->first_atom[s], j - neighbors->first_atom[s], s);
            }
    return MLFF_OK;
}

static int accept_rows(mlff_neighbors *neighbors, const double *positions, int begin, int end)
{
    int close = 0;
    for (int i = begin; i < end; i++) neighbors->first[i + 1] = accept_row(neighbors, positions, i, &close);
    return close;
}

static void write_rows(mlff_neighbors *neighbors, const double *positions, int begin, int end)
{
    for (int i = begin; i < end; i++) write_row(neighbors, positions, i);
}

// Rows are cut among threads so that each has about as many pairs.
static int first_row_of(const mlff_neighbors *neighbors, int thread, int n_threads)
{
    int low = 0, high = neighbors->n_atoms;
    int64_t wanted = (int64_t)neighbors->first[high] * thread / n_threads;
    if (thread == n_threads) return high;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (neighbors->first[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

typedef struct filter_run {
    mlff_neighbors *neighbors;
    const double *positions;
    _Atomic int next_region, close;
} filter_run;

// Regions are taken one by one: which thread does which changes no result.
static void accept_regions(void *context, const team_member *member)
{
    filter_run *run = context;
    mlff_neighbors *neighbors = run->neighbors;
    (void)member;
    for (int r; (r = atomic_fetch_add(&run->next_region, 1)) < neighbors->n_regions;)
        if (accept_rows(neighbors, run->positions, neighbors_region_row(neighbors, r), neighbors_region_row(neighbors, r + 1)))
            atomic_store(&run->close, 1);
}

static void write_and_find(void *context, const team_member *member)
{
    filter_run *run = context;
    mlff_neighbors *neighbors = run->neighbors;
    int begin = first_row_of(neighbors, member->thread, member->n), end = first_row_of(neighbors, member->thread + 1, member->n);
    write_rows(neighbors, run->positions, begin, end);
    team_barrier(member);
    find_reverses(neighbors, begin, end, neighbors->cursor + (size_t)member->thread * (size_t)neighbors->n_atoms);
}

static mlff_status filter(mlff_neighbors *neighbors, const double *positions)
{
    mlff_status status = MLFF_OK;
    int n = neighbors->n_atoms, n_threads = neighbors_n_threads(neighbors, neighbors->n_skin), close = 0;
    filter_run run = {.neighbors = neighbors, .positions = positions};
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->first, &neighbors->first_capacity, (size_t)n + 1, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->cursor, &neighbors->cursor_capacity, (size_t)n_threads * (size_t)n,
                            sizeof(int32_t)));
    int32_t *first = neighbors->first;
    if (n_threads == 1) { // not even an empty parallel region: it costs as much as a molecule's list
        close = accept_rows(neighbors, positions, 0, n);
    } else {
        team_run(n_threads, accept_regions, &run);
        close = atomic_load(&run.close);
    }
    first[0] = 0;
    for (int i = 0; i < n; i++) first[i + 1] += first[i];
    if (close) MLFF_TRY(one_point(neighbors, positions));

    size_t n_pairs = (size_t)first[n];
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->neighbor, &neighbors->neighbor_capacity, n_pairs, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->shift, &neighbors->shift_capacity, 3 * n_pairs, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->reverse, &neighbors->reverse_capacity, n_pairs, sizeof(int32_t)));
    MLFF_TRY(neighbors_grow(neighbors, &neighbors->vectors, &neighbors->vectors_capacity, 3 * n_pairs, sizeof(double)));
    if (n_threads == 1) {
        write_rows(neighbors, positions, 0, n);
        find_reverses(neighbors, 0, n, neighbors->cursor);
        return MLFF_OK;
    }
    team_run(n_threads, write_and_find, &run);
done:
    return status;
}

// ---- the calls ----------------------------------------------------------------------------------------------------------

mlff_status mlff_neighbors_update(mlff_neighbors *neighbors, const mlff_batch *batch)
{
    mlff_status status = MLFF_OK;
    if (!neighbors || !batch) return mlff_fail(MLFF_ERR_USAGE, "mlff_neighbors_update: no list or no batch");
    MLFF_TRY(check_batch(batch));
    if (still_good(neighbors, batch)) {
        take_cells(neighbors, batch);
    } else {
        neighbors->built = false;
        MLFF_TRY(remember(neighbors, batch));
        MLFF_TRY(neighbors_build(neighbors, batch));
        neighbors->built = true;
        neighbors->n_rebuilds++;
    }
    MLFF_TRY(filter(neighbors, batch->positions));
    neighbors->n_updates++;
done:
    if (status != MLFF_OK && neighbors) { // no half of a list is handed out
        neighbors->built = false;
        neighbors->n_atoms = 0;
        neighbors->n_skin = 0;
        neighbors->first[0] = 0;
    }
    return status;
}

void mlff_neighbors_get(const mlff_neighbors *neighbors, mlff_pairs *pairs_out, const double **vectors_out,
                        const int32_t **reverse_out)
{
    if (pairs_out)
        *pairs_out =
            (mlff_pairs){.first = neighbors->first, .neighbor = neighbors->neighbor, .shift = neighbors->shift, .symmetric = 1};
    if (vectors_out) *vectors_out = neighbors->vectors;
    if (reverse_out) *reverse_out = neighbors->reverse;
}

void mlff_neighbors_info_get(const mlff_neighbors *neighbors, mlff_neighbors_info *info_out)
{
    *info_out = (mlff_neighbors_info){
        .n_pairs = neighbors->first[neighbors->n_atoms],
        .n_pairs_skin = neighbors->n_skin,
        .n_updates = neighbors->n_updates,
        .n_rebuilds = neighbors->n_rebuilds,
        .n_growths = neighbors->n_growths,
        .bytes = neighbors->bytes,
    };
}
