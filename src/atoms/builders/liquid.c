// SPDX-License-Identifier: MIT
// liquid.c: water at its density, disordered, without close contacts: a start for molecular dynamics, not a sample of it.
//
// Oxygens sit, a little displaced, on the sites of the cubic lattice (simple, body- or face-centered) on which they are
// farthest apart; surplus sites stay empty at random. Then each molecule is turned at random until its hydrogens are clear of
// its neighbors; the few that are not are turned again in later sweeps, now with all neighbors in place.
// Molecules are rigid, of TIP3P's geometry: 0.9572 Å, 104.52° (Jorgensen 1983, doi:10.1063/1.445869).
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"

#define BOND 0.9572
#define HALF_ANGLE (0.5 * 104.52 * BASE_PI / 180.0)
#define DENSITY 0.997                // g/cm³, at 25 °C
#define GRAM_PER_AMU 1.660539040e-24 // CODATA 2014
#define WATER_MASS 18.015            // amu

// Distances to be kept between atoms of different molecules; liquid water has about 2.7, 2.2 and 1.7 Å at the least.
#define OXYGEN_OXYGEN 2.4
#define HYDROGEN_HYDROGEN 1.7
#define OXYGEN_HYDROGEN 1.6
// Oxygens farther apart than this have no hydrogens in each other's reach.
#define REACH (2.0 * BOND + HYDROGEN_HYDROGEN)

enum { N_TRIES = 12, N_SWEEPS = 40 };

// Streams of the random numbers.
enum { STREAM_SITES = 0x77617465, STREAM_JITTER, STREAM_TURN };

typedef struct liquid {
    int n;
    double edge; // Å
    uint64_t seed;
    double *oxygen;        // [n][3]
    double (*hydrogen)[6]; // [n] both, relative to the oxygen
    size_t *first;         // [n + 1] neighbors of molecule i are first[i] .. first[i + 1]
    struct image {
        int molecule;
        double offset[3]; // from molecule i's oxygen to the neighbor's
    } * neighbors;
    size_t neighbor_capacity;
} liquid;

// ---- oxygens

typedef struct lattice {
    int n_sites;        // in a cell
    double sites[4][3]; // in cells
    double nearest;     // distance of neighbors, in cells
} lattice;

static const lattice lattices[] = {
    {1, {{0, 0, 0}}, 1.0},
    {2, {{0, 0, 0}, {.5, .5, .5}}, 0.8660254037844386},
    {4, {{0, 0, 0}, {0, .5, .5}, {.5, 0, .5}, {.5, .5, 0}}, 0.7071067811865476},
};

static void place_oxygens(liquid *water)
{
    const lattice *best = NULL;
    int n_cells = 0;
    double spacing = 0.0;
    for (size_t k = 0; k < sizeof lattices / sizeof lattices[0]; k++) {
        int cells = 1;
        while ((int64_t)cells * cells * cells * lattices[k].n_sites < water->n) cells++;
        double nearest = lattices[k].nearest * water->edge / cells;
        if (nearest <= spacing) continue;
        spacing = nearest;
        best = &lattices[k];
        n_cells = cells;
    }
    // Displacements of two neighbors, along the diagonal in the worst case, leave them the least distance.
    double jitter = fmin(0.2, fmax(0.0, (spacing - OXYGEN_OXYGEN) / (2.0 * sqrt(3.0))));

    int64_t n_left = (int64_t)n_cells * n_cells * n_cells * best->n_sites;
    int n_placed = 0;
    for (int64_t site = 0; n_placed < water->n; site++, n_left--) {
        // Each of the sites left is taken with the same chance.
        if (base_random_uniform(water->seed, STREAM_SITES, (uint64_t)site) * (double)n_left >= water->n - n_placed) continue;
        int64_t cell = site / best->n_sites;
        int64_t at[3] = {cell / n_cells / n_cells, cell / n_cells % n_cells, cell % n_cells};
        for (int c = 0; c < 3; c++) {
            double shift = 2.0 * base_random_uniform(water->seed, STREAM_JITTER, (uint64_t)(3 * n_placed + c)) - 1.0;
            // Half a cell in, so that displaced atoms stay within the box.
            water->oxygen[3 * n_placed + c] =
                ((double)at[c] + best->sites[site % best->n_sites][c] + 0.25) * water->edge / n_cells + jitter * shift;
        }
        n_placed++;
    }
}

// ---- neighbors

static mlff_status add_neighbors(liquid *water, int i, int other, const double shift[3])
{
    struct image image = {.molecule = other};
    double square = 0.0;
    for (int c = 0; c < 3; c++) {
        image.offset[c] = water->oxygen[3 * other + c] - water->oxygen[3 * i + c] + shift[c];
        square += image.offset[c] * image.offset[c];
    }
    if (square >= REACH * REACH || square == 0.0) return MLFF_OK;
    size_t at = water->first[i + 1]++;
    mlff_status status = base_grow(&water->neighbors, &water->neighbor_capacity, at + 1, sizeof image, "neighbors");
    if (status == MLFF_OK) water->neighbors[at] = image;
    return status;
}

static int floor_divide(int a, int b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

// By cells at least a third of the reach wide; small boxes meet their own images.
static mlff_status find_neighbors(liquid *water)
{
    mlff_status status = MLFF_OK;
    int n_cells = (int)fmax(1.0, fmin(floor(water->edge / REACH), 256.0));
    int range = (int)ceil(REACH * n_cells / water->edge);
    int *next = base_alloc((size_t)water->n, sizeof(int), "water");
    int *head = base_alloc((size_t)n_cells * (size_t)n_cells * (size_t)n_cells, sizeof(int), "water"); // 1 + first of a cell
    if (!next || !head) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
#define CELL_OF(coordinate) ((int)fmin(fmax(floor((coordinate) / water->edge * n_cells), 0.0), n_cells - 1.0))
    for (int i = water->n - 1; i >= 0; i--) {
        const double *at = water->oxygen + 3 * (size_t)i;
        size_t cell =
            ((size_t)CELL_OF(at[0]) * (size_t)n_cells + (size_t)CELL_OF(at[1])) * (size_t)n_cells + (size_t)CELL_OF(at[2]);
        next[i] = head[cell];
        head[cell] = i + 1;
    }
    for (int i = 0; i < water->n; i++) {
        const double *at = water->oxygen + 3 * (size_t)i;
        int center[3] = {CELL_OF(at[0]), CELL_OF(at[1]), CELL_OF(at[2])};
        water->first[i + 1] = water->first[i];
        for (int k = 0; k < (2 * range + 1) * (2 * range + 1) * (2 * range + 1); k++) {
            int offset[3] = {k / (2 * range + 1) / (2 * range + 1) - range, k / (2 * range + 1) % (2 * range + 1) - range,
                             k % (2 * range + 1) - range};
            double shift[3];
            size_t cell = 0;
            for (int c = 0; c < 3; c++) {
                int position = center[c] + offset[c], image = floor_divide(position, n_cells);
                shift[c] = image * water->edge;
                cell = cell * (size_t)n_cells + (size_t)(position - image * n_cells);
            }
            for (int other = head[cell]; other > 0; other = next[other - 1]) MLFF_TRY(add_neighbors(water, i, other - 1, shift));
        }
    }
#undef CELL_OF
done:
    base_free(next);
    base_free(head);
    return status;
}

// ---- hydrogens

// A uniformly random rotation of the molecule (Shoemake 1992: a random unit quaternion from three numbers).
static void turn(uint64_t seed, uint64_t index, double hydrogen[6])
{
    double u = base_random_uniform(seed, STREAM_TURN, 3 * index);
    double angle1 = 2.0 * BASE_PI * base_random_uniform(seed, STREAM_TURN, 3 * index + 1);
    double angle2 = 2.0 * BASE_PI * base_random_uniform(seed, STREAM_TURN, 3 * index + 2);
    double x = sqrt(1.0 - u) * sin(angle1), y = sqrt(1.0 - u) * cos(angle1), z = sqrt(u) * sin(angle2), w = sqrt(u) * cos(angle2);
    double first[3] = {1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)};
    double second[3] = {2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x)};
    for (int c = 0; c < 3; c++) {
        hydrogen[c] = BOND * (cos(HALF_ANGLE) * first[c] + sin(HALF_ANGLE) * second[c]);
        hydrogen[3 + c] = BOND * (cos(HALF_ANGLE) * first[c] - sin(HALF_ANGLE) * second[c]);
    }
}

static double distance_square(const double a[3], const double b[3], const double offset[3])
{
    double x = offset[0] + b[0] - a[0], y = offset[1] + b[1] - a[1], z = offset[2] + b[2] - a[2];
    return x * x + y * y + z * z;
}

// The least distance between molecule i, turned so, and its neighbors, as a fraction of the one to be kept (squared).
// In the first sweep only molecules before i have hydrogens.
static double clearance(const liquid *water, int i, const double hydrogen[6], bool is_first_sweep)
{
    static const double origin[3] = {0};
    double least = INFINITY;
    for (size_t p = water->first[i]; p < water->first[i + 1]; p++) {
        int j = water->neighbors[p].molecule;
        const double *offset = water->neighbors[p].offset, *others = j == i ? hydrogen : water->hydrogen[j];
        for (int a = 0; a < 6; a += 3) {
            least = fmin(least, distance_square(hydrogen + a, origin, offset) / (OXYGEN_HYDROGEN * OXYGEN_HYDROGEN));
            if (is_first_sweep && j > i) continue;
            least = fmin(least, distance_square(origin, others + a, offset) / (OXYGEN_HYDROGEN * OXYGEN_HYDROGEN));
            for (int b = 0; b < 6; b += 3)
                least = fmin(least, distance_square(hydrogen + a, others + b, offset) / (HYDROGEN_HYDROGEN * HYDROGEN_HYDROGEN));
        }
    }
    return least;
}

static void place_hydrogens(liquid *water)
{
    bool all_clear = false;
    for (int sweep = 0; sweep < N_SWEEPS && !all_clear; sweep++) {
        all_clear = true;
        for (int i = 0; i < water->n; i++) {
            double best = sweep > 0 ? clearance(water, i, water->hydrogen[i], false) : -1.0;
            for (int try = 0; try < N_TRIES && best < 1.0; try++) {
                double hydrogen[6];
                turn(water->seed, ((uint64_t)sweep * N_TRIES + (uint64_t)try) * (uint64_t)water->n + (uint64_t)i, hydrogen);
                double clear = clearance(water, i, hydrogen, sweep == 0);
                if (clear <= best) continue;
                best = clear;
                memcpy(water->hydrogen[i], hydrogen, sizeof hydrogen);
            }
            all_clear = all_clear && best >= 1.0;
        }
    }
}

static void fill_system(const liquid *water, mlff_system *system)
{
    for (int axis = 0; axis < 3; axis++) {
        system->cell[4 * axis] = water->edge;
        system->periodic[axis] = 1;
    }
    for (int i = 0; i < water->n; i++) {
        double *position = system->positions + 9 * (size_t)i;
        for (int c = 0; c < 3; c++) {
            position[c] = water->oxygen[3 * i + c];
            position[3 + c] = position[c] + water->hydrogen[i][c];
            position[6 + c] = position[c] + water->hydrogen[i][3 + c];
        }
        system->species[3 * i] = 8;
        system->species[3 * i + 1] = system->species[3 * i + 2] = 1;
    }
}

mlff_status liquid_water(int n_molecules, uint64_t seed, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    double volume = n_molecules * WATER_MASS * GRAM_PER_AMU / DENSITY * 1e24; // cm³ to Å³
    liquid water = {.n = n_molecules, .edge = cbrt(volume), .seed = seed};

    MLFF_TRY(mlff_system_create(3 * n_molecules, &system));
    water.oxygen = base_alloc((size_t)n_molecules, 3 * sizeof(double), "water");
    water.hydrogen = base_alloc((size_t)n_molecules, sizeof *water.hydrogen, "water");
    water.first = base_alloc((size_t)n_molecules + 1, sizeof *water.first, "water");
    if (!water.oxygen || !water.hydrogen || !water.first) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    place_oxygens(&water);
    MLFF_TRY(find_neighbors(&water));
    place_hydrogens(&water);
    fill_system(&water, system);
    *system_out = system;
    system = NULL;
done:
    base_free(water.oxygen);
    base_free(water.hydrogen);
    base_free(water.first);
    base_free(water.neighbors);
    mlff_system_destroy(system);
    return status;
}
