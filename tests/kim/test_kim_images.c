// SPDX-License-Identifier: MIT
// Ghosts as periodic images (bindings/kim/images.c): random cells with one to three periodic axes, crystals, and lists of ghosts that are no
// whole set of images. Lattices are compared by the integers that lead from one to the other; tolerances are those of sums of positions
// of 10^2 Å in double precision.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "images_state.h"

enum { MAX_ATOMS = 120000 };

static uint64_t state;
static double uniform(void) // splitmix64
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

typedef struct scene {
    double cell[9];
    int rank, n_owned, n;
    int species[MAX_ATOMS], contributing[MAX_ATOMS];
    double positions[3 * MAX_ATOMS];
    int owner[MAX_ATOMS];
} scene;
static scene s;

static void inverse_of(const double *m, double *inverse)
{
    memset(inverse, 0, 9 * sizeof *inverse);
    assert_true(invert(m, inverse));
}

static double row_times(const double *row, const double *m, int column)
{
    return row[0] * m[column] + row[1] * m[3 + column] + row[2] * m[6 + column];
}

static void add(int species, const double *r, bool contributing, int owner)
{
    assert_true(s.n < MAX_ATOMS);
    s.species[s.n] = species;
    s.contributing[s.n] = contributing;
    s.owner[s.n] = owner;
    memcpy(s.positions + 3 * s.n++, r, 3 * sizeof(double));
}

// The images of atoms 0 … n_owned − 1 that lie within `reach` of the range of their fractional coordinates, along the axes' normals; cell by
// cell, or atom by atom.
static void add_images(double reach, bool by_cell)
{
    double inverse[9], low[3] = {INFINITY, INFINITY, INFINITY}, high[3] = {-INFINITY, -INFINITY, -INFINITY}, beyond[3];
    int n[3];
    inverse_of(s.cell, inverse);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < s.n_owned; i++) {
            const double f = row_times(s.positions + 3 * i, inverse, k);
            low[k] = fmin(low[k], f), high[k] = fmax(high[k], f);
        }
        beyond[k] = reach * sqrt(inverse[k] * inverse[k] + inverse[3 + k] * inverse[3 + k] + inverse[6 + k] * inverse[6 + k]);
        n[k] = k < s.rank ? (int)ceil(beyond[k] + high[k] - low[k]) + 1 : 0;
    }
    const int n_cells = (2 * n[0] + 1) * (2 * n[1] + 1) * (2 * n[2] + 1);
    for (int at = 0; at < n_cells * s.n_owned; at++) {
        const int i = by_cell ? at % s.n_owned : at / n_cells, c = by_cell ? at / s.n_owned : at % n_cells;
        const double shift[3] = {c % (2 * n[0] + 1) - n[0], c / (2 * n[0] + 1) % (2 * n[1] + 1) - n[1],
                                 c / (2 * n[0] + 1) / (2 * n[1] + 1) - n[2]};
        double r[3];
        bool inside = shift[0] != 0 || shift[1] != 0 || shift[2] != 0;
        for (int k = 0; k < 3; k++) r[k] = s.positions[3 * i + k] + row_times(shift, s.cell, k);
        for (int k = 0; k < s.rank; k++) {
            const double f = row_times(r, inverse, k);
            inside = inside && f >= low[k] - beyond[k] && f <= high[k] + beyond[k];
        }
        if (inside) add(s.species[i], r, false, i);
    }
}

// Ghosts and owned atoms in any order; `owner` is kept.
static void shuffle(void)
{
    static int place[MAX_ATOMS];
    static scene old;
    old = s;
    for (int i = 0; i < s.n; i++) place[i] = i;
    for (int i = s.n - 1; i > 0; i--) {
        const int k = (int)(uniform() * (i + 1)), swap = place[i];
        place[i] = place[k];
        place[k] = swap;
    }
    for (int i = 0; i < s.n; i++) {
        s.species[place[i]] = old.species[i];
        s.contributing[place[i]] = old.contributing[i];
        s.owner[place[i]] = place[old.owner[i]];
        memcpy(s.positions + 3 * place[i], old.positions + 3 * i, 3 * sizeof(double));
    }
}

static void swap_atoms(int i, int k)
{
    const int species = s.species[i], owner = s.owner[i];
    double r[3];
    memcpy(r, s.positions + 3 * i, sizeof r);
    s.species[i] = s.species[k], s.owner[i] = s.owner[k];
    memcpy(s.positions + 3 * i, s.positions + 3 * k, sizeof r);
    s.species[k] = species, s.owner[k] = owner;
    memcpy(s.positions + 3 * k, r, sizeof r);
}

static bool found(images *im, const mlff_batch **batch)
{
    const int *atom;
    assert_int_equal(images_update(im, s.n, s.species, s.contributing, s.positions, batch, &atom), MLFF_OK);
    if (!*batch) return false;
    assert_int_equal((*batch)->first_atom[1], s.n_owned);
    for (int k = 0; k < s.n_owned; k++) {
        const int i = atom ? atom[k] : k;
        assert_true(s.contributing[i] && (*batch)->species[k] == s.species[i]);
        assert_memory_equal((*batch)->positions + 3 * k, s.positions + 3 * i, 3 * sizeof(double));
    }
    return true;
}

// The batch's periodic vectors and the scene's are integer combinations of each other, with determinant ±1.
static void check_lattice(const mlff_batch *batch)
{
    double found_cell[9], inverse[9], determinant = 0;
    int rank = 0;
    memcpy(found_cell, batch->cells, sizeof found_cell);
    for (int k = 0; k < 3; k++) {
        rank += batch->periodic[k] != 0;
        if (!batch->periodic[k]) memcpy(found_cell + 3 * k, s.cell + 3 * k, 3 * sizeof(double));
    }
    assert_int_equal(rank, s.rank);
    inverse_of(s.cell, inverse);
    double m[9];
    for (int k = 0; k < 9; k++) {
        m[k] = row_times(found_cell + 3 * (k / 3), inverse, k % 3);
        if (fabs(m[k] - round(m[k])) > 1e-9) fail_msg("a vector is %.12g times axis %d", m[k], k % 3);
    }
    for (int c = 0; c < 3; c++)
        determinant += m[c] * (m[3 + (c + 1) % 3] * m[6 + (c + 2) % 3] - m[3 + (c + 2) % 3] * m[6 + (c + 1) % 3]);
    assert_true(fabs(fabs(determinant) - 1) < 1e-6);
}

static void random_scene(int n_owned)
{
    s.n = 0;
    s.n_owned = n_owned;
    s.rank = 1 + (int)(3 * uniform());
    for (int k = 0; k < 9; k++) s.cell[k] = k % 4 == 0 ? 3 + 15 * uniform() : 3 * (uniform() - 0.5);
    const int n_species = 1 + (int)(3 * uniform());
    for (int i = 0; i < n_owned; i++) {
        const double f[3] = {uniform(), uniform(), uniform()};
        const double r[3] = {row_times(f, s.cell, 0), row_times(f, s.cell, 1), row_times(f, s.cell, 2)};
        add(1 + (int)(n_species * uniform()), r, true, i);
    }
}

static void test_random(void **unused)
{
    (void)unused;
    int n_missed = 0;
    for (int seed = 0; seed < 400; seed++) {
        state = (uint64_t)seed;
        const mlff_batch *batch;
        images *im;
        const double reach = 3 + 6 * uniform(), skin = seed % 3 ? uniform() : 0;
        random_scene(seed % 5 == 0 ? 1 : 1 + (int)(40 * uniform()));
        add_images(reach + skin, seed % 2);
        if (seed % 7 == 0) shuffle();
        assert_int_equal(images_create(reach, &im), MLFF_OK);
        // Along an axis longer than twice the reach there may be no image at all, and fewer axes are found.
        bool along[3] = {false};
        double inverse[9];
        int n_axes = 0;
        inverse_of(s.cell, inverse);
        for (int i = 0; i < s.n; i++)
            for (int k = 0; k < 3; k++) {
                double d[3];
                for (int c = 0; c < 3; c++) d[c] = s.positions[3 * i + c] - s.positions[3 * s.owner[i] + c];
                along[k] = along[k] || fabs(row_times(d, inverse, k)) > 0.5;
            }
        for (int k = 0; k < 3; k++) n_axes += along[k];
        if (!found(im, &batch)) {
            if (n_axes > 0) n_missed++;
        } else if (n_axes == s.rank) {
            check_lattice(batch);
        }
        images_destroy(im);
    }
    // Where all ghosts along an axis are those of one atom, the axis may not be found, and of few ghosts some have no neighbor to know their owner
    // by; then all ghosts are computed: 15 of 400.
    if (n_missed > 20) fail_msg("%d of 400 sets of images were not found", n_missed);
}

// Diamond, all atoms of one kind: many translations move many ghosts to owned atoms. On its sites first, then displaced.
static void crystal(int n, double displacement)
{
    static const int basis[8][3] = {{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 2, 0}, {1, 1, 1}, {1, 3, 3}, {3, 1, 3}, {3, 3, 1}};
    memset(s.cell, 0, sizeof s.cell);
    for (int k = 0; k < 3; k++) s.cell[4 * k] = 5.431 * n;
    s.rank = 3;
    s.n = 0;
    s.n_owned = 8 * n * n * n;
    for (int i = 0; i < s.n_owned; i++) {
        const int at[3] = {i / 8 % n, i / 8 / n % n, i / 8 / n / n};
        double r[3];
        for (int c = 0; c < 3; c++) r[c] = 5.431 * (at[c] + basis[i % 8][c] / 4.0) + displacement * (uniform() - 0.5);
        add(14, r, true, i);
    }
}

static void test_crystals(void **unused)
{
    (void)unused;
    static const int sizes[] = {1, 2, 3, 8, 12};
    for (int k = 0; k < 5; k++) {
        state = 77;
        const mlff_batch *batch;
        images *im;
        assert_int_equal(images_create(12.0, &im), MLFF_OK);
        for (int turn = 0; turn < 3; turn++) { // the third time as the second, of atoms that have moved
            crystal(sizes[k], 0.2 * turn);
            add_images(13.0, true);
            // On its sites the crystal repeats in other ways too.
            if (found(im, &batch) != (turn > 0)) fail_msg("%d atoms, turn %d: %s", s.n_owned, turn, turn ? "not found" : "found");
            if (turn > 0) check_lattice(batch);
        }
        images_destroy(im);
    }
}

// Structures that lattices explain which are not the simulator's: a cell of N primitive cells of fcc, 60 degrees between its vectors, all atoms
// on their sites or one of them moved that has no ghost. Forces on ghosts would be added to other atoms than their owners.
static void test_ambiguous(void **unused)
{
    (void)unused;
    static const double vectors[9] = {2.8, 0, 0, 1.4, 2.424871130596428, 0, 1.4, 0.808290376865476, 2.286190426597633};
    int n_found = 0;
    for (int n = 2; n <= 8; n++)
        for (int moved = 0; moved < 2; moved++) {
            const mlff_batch *batch;
            images *im;
            s.n = 0;
            s.n_owned = n * n * n;
            s.rank = 3;
            for (int k = 0; k < 9; k++) s.cell[k] = n * vectors[k];
            for (int i = 0; i < s.n_owned; i++) {
                const double at[3] = {i % n, i / n % n, i / n / n};
                add(13, (double[3]){row_times(at, vectors, 0), row_times(at, vectors, 1), row_times(at, vectors, 2)}, true, i);
            }
            if (moved) s.positions[3 * (n / 2 * (n * n + n + 1))] += 0.1;
            add_images(5.0, true);
            assert_int_equal(images_create(4.0, &im), MLFF_OK);
            if (found(im, &batch)) {
                assert_true(moved);
                check_lattice(batch);
                n_found++;
            }
            images_destroy(im);
        }
    assert_true(n_found > 0); // where the moved atom's ghosts are next to others
}

// Positions that are no numbers, or too large: of the owned atom and its ghosts, or of one owned atom before any set is known.
static void test_unusable_positions(void **unused)
{
    (void)unused;
    static const double values[] = {NAN, INFINITY, -INFINITY, 1e300, 1e12};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (int known = 0; known < 2; known++) {
            const mlff_batch *batch;
            images *im;
            state = 3;
            crystal(2, 0.2);
            add_images(7.0, true);
            assert_int_equal(images_create(7.0, &im), MLFF_OK);
            if (known) assert_true(found(im, &batch));
            for (int i = 0; i < s.n; i++)
                if (s.owner[i] == 5) s.positions[3 * i + 1] = values[v];
            assert_false(found(im, &batch));
            images_destroy(im);
        }
}

// As in dynamics at constant pressure: atoms move, the cell changes, lists are made again, with atoms taken back into the cell, and owned atoms or
// ghosts in another order. The lattice is followed: it is searched in the first call alone. A search takes ten times as long as a step or more.
static void test_trajectory(void **unused)
{
    (void)unused;
    state = 5;
    const mlff_batch *batch;
    images *im;
    int64_t next_search = 0;
    assert_int_equal(images_create(8.0, &im), MLFF_OK);
    crystal(3, 0.2);
    for (int step = 0; step < 60; step++) {
        if (step % 10 == 0) {
            s.n = s.n_owned;
            for (int i = 0; i < s.n; i++)
                for (int k = 0; k < 3; k++)
                    s.positions[3 * i + k] -= floor(s.positions[3 * i + k] / s.cell[4 * k]) * s.cell[4 * k];
            if (step == 40) swap_atoms(2, 150), s.owner[2] = 2, s.owner[150] = 150;
            add_images(9.0, step != 20);
        }
        for (int i = s.n_owned, k = s.n - 1; step == 35 && i < k; i++, k--) swap_atoms(i, k);
        for (int k = 0; k < 3; k++) s.cell[4 * k] *= 1 + 1e-4 * (uniform() - 0.3);
        for (int i = 0; i < s.n_owned; i++)
            for (int k = 0; k < 3; k++) s.positions[3 * i + k] += 0.05 * (uniform() - 0.5);
        for (int i = s.n_owned; i < s.n; i++) // as many cells away as before
            for (int k = 0; k < 3; k++) {
                const double away = s.positions[3 * i + k] - s.positions[3 * s.owner[i] + k];
                s.positions[3 * i + k] = s.positions[3 * s.owner[i] + k] + round(away / s.cell[4 * k]) * s.cell[4 * k];
            }
        if (!found(im, &batch)) fail_msg("step %d", step);
        check_lattice(batch);
        if (step == 0) next_search = im->next_search;
        if (im->next_search != next_search) fail_msg("step %d: the lattice was searched", step);
    }
    // Known as it is, the lattice does not say whose images a crystal's ghosts are in a new list.
    crystal(3, 0);
    add_images(9.0, true);
    for (int k = 0; k < 2; k++) assert_false(found(im, &batch));
    images_destroy(im);
}

// The ghost that is nearest to an owned atom; -1: none is within reach.
static int nearest_ghost(void)
{
    double least = INFINITY;
    int ghost = 0;
    for (int g = s.n_owned; g < s.n; g++)
        for (int i = 0; i < s.n_owned; i++) {
            double square = 0;
            for (int k = 0; k < 3; k++) square += pow(s.positions[3 * g + k] - s.positions[3 * i + k], 2);
            if (square < least) least = square, ghost = g;
        }
    return least < 7.0 * 7.0 ? ghost : -1;
}

// Ghosts that are not exactly the images that matter.
static void test_others(void **unused)
{
    (void)unused;
    enum { MISSING, MOVED, OTHER_SPECIES, TWICE, FOREIGN, FREE, N_CASES };
    for (int seed = 0; seed < 20 * N_CASES; seed++) {
        state = 1000 + (uint64_t)seed;
        const mlff_batch *batch;
        images *im;
        random_scene(2 + (int)(20 * uniform()));
        add_images(7.0, true);
        if (s.n == s.n_owned) continue;
        const int g = nearest_ghost();
        if (g < 0) continue;
        assert_int_equal(images_create(7.0, &im), MLFF_OK);
        const bool known = seed / N_CASES % 2; // the whole set was seen before
        if (known) found(im, &batch);
        switch (seed % N_CASES) {
        case MISSING:
            s.n--;
            memmove(s.positions + 3 * g, s.positions + 3 * (g + 1), sizeof(double) * 3 * (size_t)(s.n - g));
            memmove(s.species + g, s.species + g + 1, sizeof(int) * (size_t)(s.n - g));
            if (s.n == s.n_owned) continue;
            break;
        case MOVED: s.positions[3 * g + 1] += 1e-6; break;
        case OTHER_SPECIES: s.species[g] = 9; break;
        case TWICE: add(s.species[g], s.positions + 3 * g, false, s.owner[g]); break;
        case FOREIGN: // within reach of an atom
            add(s.species[g], (double[3]){s.positions[0] + 1 + uniform(), s.positions[1] - uniform(), s.positions[2] + uniform()},
                false, 0);
            break;
        default:
            for (int i = s.n_owned; i < s.n; i++)
                for (int k = 0; k < 3; k++) s.positions[3 * i + k] = 30 * uniform();
        }
        if (found(im, &batch)) fail_msg("seed %d, case %d: found", seed, seed % N_CASES);
        images_destroy(im);
    }
    // Nothing to look at; and the next set is found all the same.
    const mlff_batch *batch;
    images *im;
    assert_int_equal(images_create(7.0, &im), MLFF_OK);
    s.n = 0;
    assert_false(found(im, &batch));
    crystal(2, 0.1);
    assert_false(found(im, &batch)); // no ghosts
    for (int i = 0; i < s.n; i++) s.contributing[i] = 0;
    assert_false(found(im, &batch)); // only ghosts
    crystal(2, 0.1);
    add_images(7.0, true);
    assert_true(found(im, &batch));
    images_destroy(im);
}

// Owned atoms and ghosts that are at r + n · cell, of the same species.
static int count_at(const double *r, const int *n, int species, int *owned_out)
{
    int n_ghosts = 0;
    *owned_out = 0;
    for (int i = 0; i < s.n; i++) {
        double square = 0;
        for (int c = 0; c < 3; c++) {
            const double shift[3] = {n[0], n[1], n[2]};
            square += pow(s.positions[3 * i + c] - r[c] - row_times(shift, s.cell, c), 2);
        }
        if (square > 1e-16 || s.species[i] != species) continue;
        n_ghosts += i >= s.n_owned;
        *owned_out += i < s.n_owned;
    }
    return n_ghosts;
}

static bool is_near_owned(const double *r, const int *n, double reach)
{
    const double shift[3] = {n[0], n[1], n[2]};
    for (int i = 0; i < s.n_owned; i++) {
        double square = 0;
        for (int c = 0; c < 3; c++) square += pow(r[c] + row_times(shift, s.cell, c) - s.positions[3 * i + c], 2);
        if (square <= reach * reach) return true;
    }
    return false;
}

// Whether every image within reach of an owned atom is one ghost, by all images of `cells` cells.
static bool is_whole(double reach, int cells)
{
    int n[3], owned;
    for (int i = 0; i < s.n_owned; i++)
        for (n[0] = -cells; n[0] <= cells; n[0]++)
            for (n[1] = -cells; n[1] <= cells; n[1]++)
                for (n[2] = -cells; n[2] <= cells; n[2]++) {
                    const double *r = s.positions + 3 * i;
                    if ((n[0] == 0 && n[1] == 0 && n[2] == 0) || !is_near_owned(r, n, reach)) continue;
                    if (count_at(r, n, s.species[i], &owned) != 1 || owned > 0) return false;
                }
    return true;
}

// Lists that follow each other, with atoms taken back into the cell, cells that change, and now and then a ghost that is missing, elsewhere,
// of another species or twice: what is found has all images.
static void test_events(void **unused)
{
    (void)unused;
    enum { NOTHING, MISSING, MOVED, OTHER_SPECIES, TWICE, N_EVENTS };
    static scene kept;
    const double reach = 4.0;
    int n_found = 0, n_events = 0;
    for (int seed = 0; seed < 30; seed++) {
        state = 50000 + (uint64_t)seed;
        const mlff_batch *batch;
        images *im;
        assert_int_equal(images_create(reach, &im), MLFF_OK);
        crystal(1 + seed % 2, 0.2);
        for (int step = 0; step < 12; step++) {
            for (int k = 0; k < 3; k++) s.cell[4 * k] *= seed % 3 ? 1 + 1e-4 * uniform() : 1;
            s.n = s.n_owned;
            for (int i = 0; i < s.n; i++)
                for (int k = 0; k < 3; k++) {
                    double *x = s.positions + 3 * i + k;
                    *x += 0.2 * (uniform() - 0.5);
                    *x -= floor(*x / s.cell[4 * k]) * s.cell[4 * k];
                }
            add_images(reach + 0.5, true);
            kept = s;
            const int g = s.n_owned + (int)(uniform() * (s.n - s.n_owned)), event = (int)(2 * N_EVENTS * uniform());
            if (event == MISSING) memcpy(s.positions + 3 * g, s.positions + 3 * --s.n, 3 * sizeof(double));
            if (event == MOVED) s.positions[3 * g + seed % 3] += 1e-7;
            if (event == OTHER_SPECIES) s.species[g]++;
            if (event == TWICE) add(s.species[g], s.positions + 3 * g, false, s.owner[g]);
            if (found(im, &batch)) {
                n_found++;
                check_lattice(batch);
                if (event == MOVED || event == OTHER_SPECIES || event == TWICE || !is_whole(reach - 1e-5, 2))
                    fail_msg("seed %d, step %d, event %d: found", seed, step, event);
            }
            n_events += event > NOTHING && event < N_EVENTS;
            s = kept;
        }
        images_destroy(im);
    }
    if (n_found < 100 || n_events < 100)
        fail_msg("%d found, %d events", n_found, n_events); // searches are rarer after lists that fail
}

static void test_virial(void **unused)
{
    (void)unused;
    static double forces[3 * MAX_ATOMS], totals[3 * 64], expected[3 * 64];
    int n_found = 0;
    for (int seed = 0; seed < 60; seed++) {
        state = 9000 + (uint64_t)seed;
        const mlff_batch *batch;
        images *im;
        random_scene(1 + (int)(40 * uniform()));
        add_images(8.0, true);
        if (seed % 2) shuffle();
        if (s.n == s.n_owned) continue;
        assert_int_equal(images_create(8.0, &im), MLFF_OK);
        if (!found(im, &batch)) continue;
        n_found++;
        // A virial that differs from Σ r F of the owned atoms by what periodic axes can carry.
        double virial[9] = {0};
        for (int i = 0; i < s.n; i++)
            for (int k = 0; k < 3; k++) forces[3 * i + k] = s.contributing[i] ? uniform() - 0.5 : 0;
        for (int k = 0; k < 3; k++)
            for (int b = 0; b < 3 && batch->periodic[k]; b++) {
                const double force = uniform() - 0.5;
                for (int a = 0; a < 3; a++) virial[3 * a + b] += batch->cells[3 * k + a] * force;
            }
        int n = 0;
        static int number[MAX_ATOMS];
        for (int i = 0; i < s.n; i++) {
            if (!s.contributing[i]) continue;
            number[i] = n;
            for (int a = 0; a < 3; a++) {
                expected[3 * n + a] = forces[3 * i + a];
                totals[3 * n + a] = 0;
                for (int b = 0; b < 3; b++) virial[3 * a + b] += s.positions[3 * i + a] * forces[3 * i + b];
            }
            n++;
        }
        images_add_virial(im, s.positions, virial, forces);
        double sum[9] = {0};
        for (int i = 0; i < s.n; i++)
            for (int a = 0; a < 3; a++) {
                totals[3 * number[s.owner[i]] + a] += forces[3 * i + a];
                for (int b = 0; b < 3; b++) sum[3 * a + b] += s.positions[3 * i + a] * forces[3 * i + b];
            }
        for (int k = 0; k < 9; k++)
            if (fabs(sum[k] - virial[k]) > 1e-10) fail_msg("seed %d: virial %d: %g, expected %g", seed, k, sum[k], virial[k]);
        for (int k = 0; k < 3 * n; k++) assert_true(fabs(totals[k] - expected[k]) < 1e-11);
        images_destroy(im);
    }
    assert_true(n_found > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),     cmocka_unit_test(test_crystals),
                                       cmocka_unit_test(test_ambiguous),  cmocka_unit_test(test_unusable_positions),
                                       cmocka_unit_test(test_trajectory), cmocka_unit_test(test_others),
                                       cmocka_unit_test(test_events),     cmocka_unit_test(test_virial)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
