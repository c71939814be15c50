// SPDX-License-Identifier: MIT
// test_neighbors.c: the neighbor list against the definition: all pairs of all images, one by one.
// Pairs, shifts and vectors are compared exactly: both sides form r = (x_j - x_i) + (S0 a + S1 b + S2 c) in double.
#include "atoms/neighbors.h"
#include "support.h"

// ---- random batches -----------------------------------------------------------------------------------------------------

enum { MAX_SYSTEMS = 4, MAX_ATOMS = 160 };

typedef struct random_batch {
    uint64_t seed, drawn;
    double cutoff;
    int32_t first_atom[MAX_SYSTEMS + 1], species[MAX_ATOMS];
    double positions[3 * MAX_ATOMS], cells[9 * MAX_SYSTEMS];
    unsigned char periodic[3 * MAX_SYSTEMS];
    mlff_batch batch;
} random_batch;

static double uniform(random_batch *b, double low, double high)
{
    return low + (high - low) * base_random_uniform(b->seed, 1, b->drawn++);
}

static int choose(random_batch *b, int low, int high)
{
    return low + (int)uniform(b, 0, high - low + 1);
}

static double determinant(const double h[9])
{
    return h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) + h[2] * (h[3] * h[7] - h[4] * h[6]);
}

// A cell of any shape: from cubes to edges at 20 degrees, 1.5 to 12 Å.
static void random_cell(random_batch *b, double h[9])
{
    double oblique = choose(b, 0, 2) * 0.5;
    do {
        for (int k = 0; k < 3; k++) {
            double length = uniform(b, 1.5, 12);
            for (int c = 0; c < 3; c++) h[3 * k + c] = length * ((k == c) + oblique * uniform(b, -1, 1));
        }
    } while (fabs(determinant(h)) < 2.0);
}

static void random_batch_make(random_batch *b, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    b->seed = seed;
    int n_systems = choose(b, 1, MAX_SYSTEMS);
    b->cutoff = uniform(b, 0.5, 6);
    for (int s = 0; s < n_systems; s++) {
        int n = choose(b, 0, 4) == 0 ? choose(b, 20, 40) : choose(b, s > 0 ? 0 : 1, 12);
        double *h = b->cells + 9 * s;
        random_cell(b, h);
        int far = choose(b, 0, 3) == 0 ? 1000 : choose(b, 0, 1);
        int spread = choose(b, 0, 1);
        int common[3] = {choose(b, -far, far), choose(b, -far, far), choose(b, -far, far)};
        double scale = far < 1000 && choose(b, 0, 9) == 0 ? 100 : 1; // atoms far apart where nothing repeats
        for (int k = 0; k < 3; k++) b->periodic[3 * s + k] = (unsigned char)choose(b, 0, 1);
        for (int i = b->first_atom[s]; i < b->first_atom[s] + n; i++) {
            b->species[i] = 1;
            for (int k = 0; k < 3; k++) {
                double f = uniform(b, 0, 1) + common[k];
                if (spread && far > 0) f += choose(b, -far, far);
                if (!b->periodic[3 * s + k]) f *= scale;
                if (choose(b, 0, 19) == 0) f = round(f); // on the face of the cell
                for (int c = 0; c < 3; c++) b->positions[3 * i + c] += f * h[3 * k + c];
            }
        }
        if (choose(b, 0, 3) == 0) // vectors of axes that do not repeat may be anything
            for (int k = 0; k < 3; k++)
                if (!b->periodic[3 * s + k]) memset(h + 3 * k, 0, 3 * sizeof *h);
        b->first_atom[s + 1] = b->first_atom[s] + n;
    }
    b->batch = (mlff_batch){.n_systems = n_systems,
                            .first_atom = b->first_atom,
                            .species = b->species,
                            .positions = b->positions,
                            .cells = b->cells,
                            .periodic = b->periodic};
}

// ---- the definition -----------------------------------------------------------------------------------------------------

typedef struct pair {
    int32_t i, j, shift[3];
    double vector[3];
} pair;

typedef struct pair_list {
    pair *pairs;
    size_t n, capacity;
} pair_list;

static void add_pair(pair_list *list, pair added)
{
    if (list->n == list->capacity) {
        list->capacity = 2 * list->capacity + 64;
        list->pairs = realloc(list->pairs, list->capacity * sizeof *list->pairs);
        assert_non_null(list->pairs);
    }
    list->pairs[list->n++] = added;
}

// The range of whole S_k that can bring d within the cutoff: |n·(d + S h)| <= cutoff for the planes of axis k.
static void shift_range(const double h[9], const unsigned char periodic[3], const double d[3], double cutoff, int low[3],
                        int high[3])
{
    double axes[9];
    memcpy(axes, h, sizeof axes);
    for (int k = 0; k < 3; k++) { // Gram-Schmidt is of no use: the plane's normal is that of the repeating axes only
        low[k] = high[k] = 0;
        if (!periodic[k]) continue;
        // The part of row k that is orthogonal to the other repeating rows.
        double normal[3] = {h[3 * k], h[3 * k + 1], h[3 * k + 2]}, basis[2][3];
        int n_basis = 0;
        for (int other = 0; other < 3; other++) {
            if (other == k || !periodic[other]) continue;
            double *u = basis[n_basis];
            memcpy(u, h + 3 * other, sizeof basis[0]);
            for (int b = 0; b < n_basis; b++) {
                double along = u[0] * basis[b][0] + u[1] * basis[b][1] + u[2] * basis[b][2];
                for (int c = 0; c < 3; c++) u[c] -= along * basis[b][c];
            }
            double length = sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
            for (int c = 0; c < 3; c++) u[c] /= length;
            n_basis++;
        }
        for (int b = 0; b < n_basis; b++) {
            double along = normal[0] * basis[b][0] + normal[1] * basis[b][1] + normal[2] * basis[b][2];
            for (int c = 0; c < 3; c++) normal[c] -= along * basis[b][c];
        }
        double height = sqrt(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);
        double f = (d[0] * normal[0] + d[1] * normal[1] + d[2] * normal[2]) / (height * height);
        low[k] = (int)floor(-f - cutoff / height - 1e-6);
        high[k] = (int)ceil(-f + cutoff / height + 1e-6);
    }
}

static void brute_force(const mlff_batch *batch, double cutoff, pair_list *list)
{
    list->n = 0;
    for (int s = 0; s < batch->n_systems; s++) {
        const double *h = batch->cells + 9 * s;
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++)
            for (int j = batch->first_atom[s]; j < batch->first_atom[s + 1]; j++) {
                double d[3];
                int low[3], high[3], S[3];
                for (int c = 0; c < 3; c++) d[c] = batch->positions[3 * j + c] - batch->positions[3 * i + c];
                shift_range(h, batch->periodic + 3 * s, d, cutoff, low, high);
                for (S[0] = low[0]; S[0] <= high[0]; S[0]++)
                    for (S[1] = low[1]; S[1] <= high[1]; S[1]++)
                        for (S[2] = low[2]; S[2] <= high[2]; S[2]++) {
                            if (i == j && S[0] == 0 && S[1] == 0 && S[2] == 0) continue;
                            pair p = {i, j, {S[0], S[1], S[2]}, {0}};
                            double square = 0;
                            for (int c = 0; c < 3; c++) {
                                p.vector[c] = d[c] + ((S[0] * h[c] + S[1] * h[3 + c]) + S[2] * h[6 + c]);
                                square += p.vector[c] * p.vector[c];
                            }
                            if (square < cutoff * cutoff) add_pair(list, p);
                        }
            }
    }
}

// ---- comparison ---------------------------------------------------------------------------------------------------------

#define REQUIRE(condition, ...)                                                                                                  \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            print_error("%s: ", what);                                                                                           \
            print_error(__VA_ARGS__);                                                                                            \
            fail_msg("not as the definition has it: %s", #condition);                                                            \
        }                                                                                                                        \
    } while (0)

static void compare(const mlff_neighbors *neighbors, const mlff_batch *batch, double cutoff, pair_list *expected,
                    const char *what)
{
    mlff_pairs pairs;
    mlff_neighbors_info info;
    const double *vectors;
    const int32_t *reverse;
    mlff_neighbors_get(neighbors, &pairs, &vectors, &reverse);
    mlff_neighbors_info_get(neighbors, &info);
    brute_force(batch, cutoff, expected);

    int n_atoms = batch->first_atom[batch->n_systems];
    REQUIRE(pairs.first[n_atoms] == (int32_t)expected->n, "%d pairs, %zu expected\n", pairs.first[n_atoms], expected->n);
    REQUIRE(info.n_pairs == (int64_t)expected->n, "info says %lld pairs\n", (long long)info.n_pairs);
    REQUIRE(pairs.symmetric == 1 && pairs.first[0] == 0, "first %d\n", pairs.first[0]);
    for (int i = 0; i < n_atoms; i++)
        for (int32_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const pair *e = &expected->pairs[p];
            const int32_t *S = pairs.shift + 3 * p;
            REQUIRE(i == e->i && pairs.neighbor[p] == e->j && memcmp(S, e->shift, sizeof e->shift) == 0,
                    "pair %d is %d-%d (%d %d %d), expected %d-%d (%d %d %d)\n", p, i, pairs.neighbor[p], S[0], S[1], S[2], e->i,
                    e->j, e->shift[0], e->shift[1], e->shift[2]);
            for (int c = 0; c < 3; c++)
                REQUIRE(vectors[3 * p + c] == e->vector[c], "pair %d: vector[%d] %.17g, expected %.17g\n", p, c,
                        vectors[3 * p + c], e->vector[c]);
            int32_t q = reverse[p];
            REQUIRE(q >= 0 && (size_t)q < expected->n, "pair %d: reverse %d\n", p, q);
            const pair *r = &expected->pairs[q];
            REQUIRE(r->i == e->j && r->j == e->i && r->shift[0] == -S[0] && r->shift[1] == -S[1] && r->shift[2] == -S[2] &&
                        reverse[q] == p,
                    "pair %d: reverse %d is %d-%d (%d %d %d) of %d-%d (%d %d %d)\n", p, q, r->i, r->j, r->shift[0], r->shift[1],
                    r->shift[2], e->i, e->j, S[0], S[1], S[2]);
        }
}

// Lists take the paths of the CPU in turn.
static mlff_neighbors *make(double cutoff, double skin)
{
    static int n_made;
    const char *const *paths = mlff_cpu_paths();
    int n_paths = 0;
    while (paths[n_paths]) n_paths++;
    assert_int_equal(setenv("MLFF_CPU", paths[n_made++ % n_paths], 1), 0);
    mlff_neighbors *neighbors = NULL;
    assert_int_equal(mlff_neighbors_create(cutoff, skin, &neighbors), MLFF_OK);
    return neighbors;
}

static void update(mlff_neighbors *neighbors, const mlff_batch *batch, const char *what)
{
    mlff_status status = mlff_neighbors_update(neighbors, batch);
    REQUIRE(status == MLFF_OK, "%s: %s\n", mlff_status_name(status), mlff_last_error());
}

static int64_t rebuilds(const mlff_neighbors *neighbors)
{
    mlff_neighbors_info info;
    mlff_neighbors_info_get(neighbors, &info);
    return info.n_rebuilds;
}

// x M for each of n vectors x.
static void strain(const double m[9], int n, double *x)
{
    for (int i = 0; i < n; i++, x += 3) {
        const double old[3] = {x[0], x[1], x[2]};
        for (int c = 0; c < 3; c++) x[c] = old[0] * m[c] + old[1] * m[3 + c] + old[2] * m[6 + c];
    }
}

// ---- against the definition ---------------------------------------------------------------------------------------------

static void test_random_batches(void **state)
{
    (void)state;
    static random_batch b;
    pair_list expected = {0};
    size_t n_pairs = 0;
    for (uint64_t seed = 1; seed <= SUPPORT_CASES(3000); seed++) {
        char what[64];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        random_batch_make(&b, seed);
        mlff_neighbors *neighbors = make(b.cutoff, 0);
        update(neighbors, &b.batch, what);
        compare(neighbors, &b.batch, b.cutoff, &expected, what);
        n_pairs += expected.n;
        mlff_neighbors_destroy(neighbors);
    }
    assert_true(n_pairs > SUPPORT_CASES(1000000)); // the cases are not empty
    free(expected.pairs);
}

// Extents along an axis that does not repeat from 0 through subnormal numbers, whose inverse is infinite, to ordinary ones.
static void test_tiny_extents(void **state)
{
    (void)state;
    static const double extents[] = {0, 5e-324, 1e-310, 2.3e-308, 1e-300, 1e-200, 1e-16, 1e-3};
    enum { N = 3 };
    const int32_t first_atom[2] = {0, N};
    const double cells[9] = {0};
    const unsigned char periodic[3] = {0, 0, 0};
    pair_list expected = {0};
    for (size_t e = 0; e < sizeof extents / sizeof *extents; e++)
        for (int axis = 0; axis < 3; axis++)
            for (int sign = -1; sign <= 1; sign += 2) {
                char what[64];
                double positions[3 * N] = {0, 0, 0, 0.96, 0.1, 0.2, -0.24, 0.93, -0.3};
                for (int i = 0; i < N; i++) positions[3 * i + axis] = i == 1 ? sign * extents[e] : 0;
                const mlff_batch batch = {
                    .n_systems = 1, .first_atom = first_atom, .positions = positions, .cells = cells, .periodic = periodic};
                snprintf(what, sizeof what, "extent %g along axis %d", sign * extents[e], axis);
                mlff_neighbors *neighbors = make(5, 0.5);
                update(neighbors, &batch, what);
                compare(neighbors, &batch, 5, &expected, what);
                mlff_neighbors_destroy(neighbors);
            }
    free(expected.pairs);
}

// A list with a skin, followed through moves, jumps by lattice vectors and changed cells, always hands out the same.
static void test_random_motion(void **state)
{
    (void)state;
    static random_batch b;
    pair_list expected = {0};
    int64_t n_updates = 0, n_rebuilds = 0;
    for (uint64_t seed = 10001; seed <= 10000 + SUPPORT_CASES(300); seed++) {
        random_batch_make(&b, seed);
        mlff_neighbors *neighbors = make(b.cutoff, uniform(&b, 0.05, 1.5));
        for (int step = 0; step < 12; step++) {
            char what[64];
            snprintf(what, sizeof what, "seed %llu, step %d", (unsigned long long)seed, step);
            update(neighbors, &b.batch, what);
            compare(neighbors, &b.batch, b.cutoff, &expected, what);
            n_updates++;
            int n_atoms = b.first_atom[b.batch.n_systems], s = choose(&b, 0, b.batch.n_systems - 1), event = choose(&b, 0, 9);
            for (int k = 0; k < 3 * n_atoms; k++) b.positions[k] += uniform(&b, -0.1, 0.1);
            if (event == 0) // the caller wraps an atom
                for (int i = b.first_atom[s]; i < b.first_atom[s + 1]; i += 3)
                    for (int k = 0; k < 3; k++)
                        for (int c = 0; c < 3; c++)
                            if (b.periodic[3 * s + k]) b.positions[3 * i + c] += (k - 1) * b.cells[9 * s + 3 * k + c];
            if (event == 1)
                for (int k = 0; k < 9; k++) b.cells[9 * s + k] *= 1.01;
            if (event == 2) b.periodic[3 * s] = 0;
            if (event == 3 && b.first_atom[s + 1] > b.first_atom[s]) { // one atom fewer
                memmove(b.positions + 3 * b.first_atom[s + 1] - 3, b.positions + 3 * b.first_atom[s + 1],
                        sizeof(double) * (size_t)(3 * (n_atoms - b.first_atom[s + 1])));
                for (int t = s; t < b.batch.n_systems; t++) b.first_atom[t + 1]--;
            }
        }
        n_rebuilds += rebuilds(neighbors);
        mlff_neighbors_destroy(neighbors);
    }
    assert_true(n_rebuilds < n_updates);          // the skin was of use …
    assert_true(n_rebuilds > SUPPORT_CASES(300)); // … and was left
    free(expected.pairs);
}

// Crystals whose cells are strained and sheared, with their atoms or around them, by less and more than the skin allows.
static void test_strained_cells(void **state)
{
    (void)state;
    static random_batch b;
    pair_list expected = {0};
    int64_t n_updates = 0, n_rebuilds = 0;
    for (uint64_t seed = 20001; seed <= 20000 + SUPPORT_CASES(150); seed++) {
        random_batch_make(&b, seed);
        memset(b.periodic, 1, sizeof b.periodic);
        for (int s = 0; s < b.batch.n_systems; s++) {
            random_cell(&b, b.cells + 9 * s);
            for (int k = 3 * b.first_atom[s]; k < 3 * b.first_atom[s + 1]; k++) b.positions[k] = uniform(&b, -1, 2);
            strain(b.cells + 9 * s, b.first_atom[s + 1] - b.first_atom[s], b.positions + 3 * b.first_atom[s]); // from fractions
        }
        mlff_neighbors *neighbors = make(b.cutoff, uniform(&b, 0.05, 0.5));
        const double size = pow(10, uniform(&b, -3, -1)), jitter = choose(&b, 0, 1) ? 0 : uniform(&b, 0, 0.05);
        for (int step = 0; step < 10; step++) {
            char what[64];
            snprintf(what, sizeof what, "seed %llu, step %d", (unsigned long long)seed, step);
            update(neighbors, &b.batch, what);
            compare(neighbors, &b.batch, b.cutoff, &expected, what);
            n_updates++;
            const int s = choose(&b, 0, b.batch.n_systems - 1), begin = b.first_atom[s], end = b.first_atom[s + 1];
            const bool along = choose(&b, 0, 9) > 0, back = choose(&b, 0, 9) == 0;
            double m[9], before[9];
            for (int k = 0; k < 9; k++)
                m[k] = (k % 4 == 0) + size * uniform(&b, -1, k % 4 == 0 ? 0.3 : 1); // most of them compress
            memcpy(before, b.cells + 9 * s, sizeof before);
            strain(m, 3, b.cells + 9 * s);
            if (along) strain(m, end - begin, b.positions + 3 * begin);
            for (int k = 3 * begin; k < 3 * end; k++) b.positions[k] += uniform(&b, -jitter, jitter);
            if (!back) continue; // else a step and back to the cell before
            update(neighbors, &b.batch, what);
            compare(neighbors, &b.batch, b.cutoff, &expected, what);
            n_updates++;
            memcpy(b.cells + 9 * s, before, sizeof before);
        }
        n_rebuilds += rebuilds(neighbors);
        mlff_neighbors_destroy(neighbors);
    }
    assert_true(n_rebuilds < n_updates * 3 / 4);
    assert_true(n_rebuilds > SUPPORT_CASES(150));
    free(expected.pairs);
}

// Many atoms in many bins, sorted rows of any length and several threads: against the definition, and the same bits from
// one, two and seven threads.
static void test_large(void **state)
{
    (void)state;
    enum { N = 200 + SUPPORT_CASES(800) };
    static double positions[3 * N];
    pair_list expected = {0};
    int32_t first_atom[2] = {0, N};
    double cells[9] = {22, 0, 0, 3, 23, 0, -4, 2, 24};
    unsigned char periodic[3] = {1, 1, 1};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .positions = positions, .cells = cells, .periodic = periodic};
    for (int round = 0; round < 6; round++) {
        char what[64];
        snprintf(what, sizeof what, "round %d", round);
        for (int k = 0; k < 3; k++) periodic[k] = round < 3 || (round + k) % 3 == 0;
        for (int k = 0; k < 3 * N; k++) positions[k] = 24 * base_random_uniform(77, (uint64_t)round, (uint64_t)k);
        if (round == 5) positions[30] = 1e7; // one that evaporated
        double cutoff = round == 0 ? 9.5 : 3.0 + round;
        for (int t = 0; t < 3; t++) {
            mlff_neighbors *neighbors;
            assert_int_equal(neighbors_create_on(cutoff, 0.4, NULL, (int[]){1, 2, 7}[t], &neighbors), MLFF_OK);
            update(neighbors, &batch, what);
            compare(neighbors, &batch, cutoff, &expected, what);
            for (int k = 0; k < 3 * N; k++) positions[k] += 0.2 * (base_random_uniform(78, (uint64_t)round, (uint64_t)k) - 0.5);
            update(neighbors, &batch, what);
            compare(neighbors, &batch, cutoff, &expected, what);
            assert_int_equal(rebuilds(neighbors), 1);
            mlff_neighbors_destroy(neighbors);
        }
    }
    free(expected.pairs);
}

// ---- what a caller can count on -----------------------------------------------------------------------------------------

static void test_rebuilds_only_when_needed(void **state)
{
    (void)state;
    double positions[6] = {0, 0, 0, 2, 0, 0}, cell[9] = {10, 0, 0, 0, 10, 0, 0, 0, 10};
    unsigned char periodic[3] = {1, 1, 1};
    int32_t first_atom[2] = {0, 2};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .positions = positions, .cells = cell, .periodic = periodic};
    mlff_neighbors *neighbors = make(4, 1);
    update(neighbors, &batch, "first");
    assert_int_equal(rebuilds(neighbors), 1);
    positions[0] = 0.49;
    update(neighbors, &batch, "within half the skin");
    assert_int_equal(rebuilds(neighbors), 1);
    positions[0] = 0.51;
    update(neighbors, &batch, "beyond half the skin");
    assert_int_equal(rebuilds(neighbors), 2);
    positions[0] = 10.51;
    update(neighbors, &batch, "wrapped");
    assert_int_equal(rebuilds(neighbors), 3);
    cell[4] = 10.001;
    update(neighbors, &batch, "a strain within the skin");
    assert_int_equal(rebuilds(neighbors), 3);
    cell[4] = 10;
    update(neighbors, &batch, "and back");
    assert_int_equal(rebuilds(neighbors), 3);
    cell[4] = 7.9; // (4 + 1) × 0.79 < 4
    update(neighbors, &batch, "a strain beyond the skin");
    assert_int_equal(rebuilds(neighbors), 4);
    periodic[2] = 0;
    update(neighbors, &batch, "periodicity");
    assert_int_equal(rebuilds(neighbors), 5);
    first_atom[1] = 1;
    update(neighbors, &batch, "number of atoms");
    assert_int_equal(rebuilds(neighbors), 6);
    update(neighbors, &batch, "nothing changed");
    assert_int_equal(rebuilds(neighbors), 6);
    mlff_neighbors_destroy(neighbors);

    neighbors = make(4, 0);
    update(neighbors, &batch, "no skin");
    update(neighbors, &batch, "no skin");
    assert_int_equal(rebuilds(neighbors), 2);
    mlff_neighbors_destroy(neighbors);
}

// The cutoff is strict, and cells and periodicity may be absent.
static void test_edges(void **state)
{
    (void)state;
    double positions[6] = {0, 0, 0, 3, 0, 0};
    int32_t first_atom[2] = {0, 2};
    mlff_batch batch = {.n_systems = 1, .first_atom = first_atom, .positions = positions};
    mlff_neighbors *neighbors = make(3, 0.5);
    mlff_pairs pairs;
    update(neighbors, &batch, "at the cutoff");
    mlff_neighbors_get(neighbors, &pairs, NULL, NULL);
    assert_int_equal(pairs.first[2], 0);
    positions[3] = nextafter(3, 0);
    update(neighbors, &batch, "inside");
    mlff_neighbors_get(neighbors, &pairs, NULL, NULL);
    assert_int_equal(pairs.first[2], 2);
    mlff_neighbors_get(neighbors, NULL, NULL, NULL);
    first_atom[1] = 0;
    update(neighbors, &batch, "no atoms");
    mlff_neighbors_get(neighbors, &pairs, NULL, NULL);
    assert_int_equal(pairs.first[0], 0);
    mlff_neighbors_destroy(neighbors);
    mlff_neighbors_destroy(NULL);
}

static void test_no_allocation_after_warm_up(void **state)
{
    (void)state;
    static random_batch b;
    random_batch_make(&b, 42);
    mlff_neighbors *neighbors = make(4, 0.3);
    int n_values = 3 * b.first_atom[b.batch.n_systems];
    double home[3 * MAX_ATOMS];
    memcpy(home, b.positions, sizeof home);
    int64_t allocations = 0, growths = 0;
    for (int step = 0; step < 400; step++) {
        if (step == 100) allocations = base_allocation_count();
        for (int k = 0; k < n_values; k++) b.positions[k] = home[k] + uniform(&b, -0.2, 0.2);
        update(neighbors, &b.batch, "warm");
        mlff_neighbors_info info;
        mlff_neighbors_info_get(neighbors, &info);
        if (step == 100) growths = info.n_growths;
        if (step > 100) assert_int_equal(info.n_growths, growths);
    }
    assert_int_equal(base_allocation_count(), allocations);
    assert_true(rebuilds(neighbors) > 300);
    mlff_neighbors_destroy(neighbors);
}

// ---- bad input ----------------------------------------------------------------------------------------------------------

static void expect_failure(mlff_neighbors *neighbors, const mlff_batch *batch, mlff_status expected, const char *words)
{
    mlff_status status = mlff_neighbors_update(neighbors, batch);
    if (status != expected || !strstr(mlff_last_error(), words))
        fail_msg("%s \"%s\", expected %s with \"%s\"", mlff_status_name(status), mlff_last_error(), mlff_status_name(expected),
                 words);
    mlff_pairs pairs;
    mlff_neighbors_get(neighbors, &pairs, NULL, NULL);
    assert_int_equal(pairs.first[0], 0);
}

static void test_bad_input(void **state)
{
    (void)state;
    double good[12] = {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}, cells[18] = {9, 0, 0, 0, 9, 0, 0, 0, 9, 9, 0, 0, 0, 9, 0, 0, 0, 9};
    double positions[12], cell[18];
    unsigned char periodic[6] = {1, 1, 1, 1, 1, 1};
    int32_t first_atom[3] = {0, 2, 4};
    mlff_batch batch = {.n_systems = 2, .first_atom = first_atom, .positions = positions, .cells = cell, .periodic = periodic};
    mlff_neighbors *neighbors = make(3, 0.5);
#define RESET() (memcpy(positions, good, sizeof good), memcpy(cell, cells, sizeof cells))
    for (int built = 0; built < 2; built++) { // with no list before, and with a good one
        RESET();
        if (built) update(neighbors, &batch, "good");
        positions[10] = NAN;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "atom 1 of system 1");
        RESET();
        if (built) update(neighbors, &batch, "good");
        positions[0] = -INFINITY;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "atom 0 of system 0");
        RESET();
        if (built) update(neighbors, &batch, "good");
        positions[0] = 1e200;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "atom 0 of system 0");
        RESET();
        if (built) update(neighbors, &batch, "good");
        positions[7] = 9e7;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "wrap its position");
        RESET();
        if (built) update(neighbors, &batch, "good");
        cell[17] = NAN;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "cell vector 2 of system 1");
        RESET();
        if (built) update(neighbors, &batch, "good");
        memset(cell + 9, 0, 9 * sizeof *cell);
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "system 1 repeats along a b c");
        RESET();
        if (built) update(neighbors, &batch, "good");
        cell[12] = 9, cell[13] = 0; // b along a
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "no volume");
        RESET();
        if (built) update(neighbors, &batch, "good");
        for (int k = 0; k < 9; k++) cell[k] *= 1e-7;
        expect_failure(neighbors, &batch, MLFF_ERR_LIMIT, "");
        RESET();
        if (built) update(neighbors, &batch, "good");
        memcpy(positions + 9, positions + 6, 3 * sizeof *positions);
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "atoms 0 and 1 of system 1 are on one point");
        RESET();
        if (built) update(neighbors, &batch, "good");
        positions[9] = positions[6] + 9, positions[10] = positions[7] + 1e-8, positions[11] = positions[8] - 18;
        expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "atoms 0 and 1 of system 1 are on one point");
    }
    RESET();
    batch.cells = NULL;
    expect_failure(neighbors, &batch, MLFF_ERR_VALUE, "no volume");
    batch.cells = cell;
    batch.location = MLFF_DEVICE_MEMORY;
    expect_failure(neighbors, &batch, MLFF_ERR_USAGE, "host");
    batch.location = MLFF_HOST;
    first_atom[1] = 5;
    expect_failure(neighbors, &batch, MLFF_ERR_USAGE, "system 1");
    first_atom[1] = 2;
    batch.n_systems = 0;
    expect_failure(neighbors, &batch, MLFF_ERR_USAGE, "0 systems");
    batch.n_systems = 2;
    batch.positions = NULL;
    expect_failure(neighbors, &batch, MLFF_ERR_USAGE, "positions");
    batch.positions = positions;
    assert_int_equal(mlff_neighbors_update(neighbors, NULL), MLFF_ERR_USAGE);
    update(neighbors, &batch, "good again");
    mlff_neighbors_destroy(neighbors);

    neighbors = NULL;
    double bad[] = {0, -1, NAN, INFINITY};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        assert_int_equal(mlff_neighbors_create(bad[k], 0, &neighbors), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "give one above 0, at most 1e6 Å")); // true also of a cutoff that is too large
        if (k > 0) assert_int_equal(mlff_neighbors_create(5, bad[k], &neighbors), MLFF_ERR_USAGE);
    }
    assert_null(neighbors);
}

// Lists that no machine holds are refused before memory or time is spent on them.
static void test_limits(void **state)
{
    (void)state;
    double positions[3] = {0.1, 0.2, 0.3};
    int32_t first_atom[2] = {0, 1};
    unsigned char periodic[3] = {1, 1, 1};
    int64_t bytes = base_allocated_bytes();
    for (int n_periodic = 1; n_periodic <= 3; n_periodic++)
        for (double edge = 1e-8; edge < 0.2; edge *= 10) {
            double cell[9] = {edge, 0, 0, 0, edge, 0, 0, 0, edge};
            for (int k = 0; k < 3; k++) periodic[k] = k < n_periodic;
            if (pow(200 / edge, n_periodic) < 8e9) continue; // a ball in this many dimensions holds more than half of them
            mlff_batch batch = {
                .n_systems = 1, .first_atom = first_atom, .positions = positions, .cells = cell, .periodic = periodic};
            mlff_neighbors *neighbors = make(100, 0);
            expect_failure(neighbors, &batch, MLFF_ERR_LIMIT, "use a");
            assert_true(base_allocated_bytes() < bytes + 100000);
            mlff_neighbors_destroy(neighbors);
        }
    assert_int_equal(base_allocated_bytes(), bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_batches), cmocka_unit_test(test_tiny_extents),
        cmocka_unit_test(test_random_motion),  cmocka_unit_test(test_strained_cells),
        cmocka_unit_test(test_large),          cmocka_unit_test(test_rebuilds_only_when_needed),
        cmocka_unit_test(test_edges),          cmocka_unit_test(test_no_allocation_after_warm_up),
        cmocka_unit_test(test_bad_input),      cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
