// SPDX-License-Identifier: MIT
// dataset_wrong_energies.c: single energies far from those of the other structures of the same atoms, where neither forces nor
// distances of the structure are unlike theirs: of a calculation that failed or came to another electronic state, of a file's default.
//
// Not told of are structures that are high because they are unlike the others: pressed and hot ones have larger forces; dissociated
// molecules, isomers, surfaces, other phases and cells have other distances between nearest atoms. So an energy must be 15 standard
// deviations, 3 eV, 0.2 eV/atom (all hydrogen bonds of water are 0.15), and what its forces explain more than theirs do off; the largest
// and mean force must not exceed all of theirs; and for each two elements the sums of three functions of distances must be in the range
// of theirs, widened by a quarter (bench/distill/single_energies.py; bench/results/cpu-single-energies.json).
#include <math.h>
#include <stdlib.h>

#include "atoms/elements/covalent.h"
#include "atoms/neighbors.h"
#include "dataset.h"

enum { FEWEST = 20, N_FUNCTIONS = 3, MOST_ELEMENTS = 16 }; // FEWEST: structures of the same atoms
enum { MOST_SUMS = N_FUNCTIONS * MOST_ELEMENTS * MOST_ELEMENTS };
#define DEVIATIONS 15.0
#define LEAST_EV 3.0
#define LEAST_EV_PER_ATOM 0.2
#define USUAL (1.0 / 3)   // of that limit: structures between the two are of a kind between
#define EV_PER_FORCE 1.0  // Å: energy that larger forces explain, of the sum of their sizes over atoms
#define LARGEST_SHARE 0.1 // more are structures of another kind
#define WIDENED 0.25      // of the range of theirs, to both sides
#define DEVIATION_OF_MAD 1.4826
#define FARTHEST 3.0 // of the sum of covalent radii: no function counts there

typedef struct judged {
    uint64_t atoms; // the same of the same atoms in any order
    size_t frame;
    double energy, largest_force, sum_of_forces; // eV, eV/Å
    bool is_far, is_usual;                       // is_usual: compared with
} judged;

typedef struct group_facts {
    double median, deviation, median_sum; // eV, eV, eV/Å
    double largest_force, largest_sum;    // of the usual ones, eV/Å
    size_t n, n_far;
} group_facts;

typedef struct wrong_energies {
    size_t n, n_zero;
    judged first, first_zero; // by frame
    group_facts of_first, of_zero;
} wrong_energies;

static judged describe(const mlff_system *system, size_t frame)
{
    judged j = {.atoms = dataset_atoms_key(system->species, system->n_atoms), .frame = frame, .energy = system->label_energy};
    for (int i = 0; i < system->n_atoms; i++) {
        const double *f = system->label_forces + 3 * (size_t)i;
        const double size = sqrt(f[0] * f[0] + f[1] * f[1] + f[2] * f[2]);
        j.sum_of_forces += size;
        j.largest_force = fmax(j.largest_force, size);
    }
    return j;
}

static int by_atoms_and_frame(const void *a, const void *b)
{
    const judged *x = a, *y = b;
    if (x->atoms != y->atoms) return x->atoms < y->atoms ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

static double median_of(double *values, size_t n)
{
    base_sort(values, n);
    return values[n / 2];
}

// Marks the structures whose energies are far off. `scratch` has n numbers.
static group_facts find_far(judged *group, size_t n, int n_atoms, double *scratch)
{
    group_facts g = {.n = n};
    const double least = fmax(LEAST_EV, LEAST_EV_PER_ATOM * n_atoms);
    for (size_t k = 0; k < n; k++) scratch[k] = group[k].energy;
    g.median = median_of(scratch, n);
    for (size_t k = 0; k < n; k++) scratch[k] = fabs(group[k].energy - g.median);
    g.deviation = DEVIATION_OF_MAD * median_of(scratch, n);
    for (size_t k = 0; k < n; k++) scratch[k] = group[k].sum_of_forces;
    g.median_sum = median_of(scratch, n);
    for (size_t k = 0; k < n; k++) {
        const double off = fabs(group[k].energy - g.median), limit = fmax(least, DEVIATIONS * g.deviation);
        group[k].is_far = off > limit;
        group[k].is_usual = off <= USUAL * limit;
        g.n_far += group[k].is_far;
        if (!group[k].is_usual) continue;
        g.largest_force = fmax(g.largest_force, group[k].largest_force);
        g.largest_sum = fmax(g.largest_sum, group[k].sum_of_forces);
    }
    return g;
}

static bool forces_explain(const judged *j, const group_facts *g)
{
    return j->largest_force > g->largest_force || j->sum_of_forces > g->largest_sum ||
           EV_PER_FORCE * (j->sum_of_forces - g->median_sum) > fabs(j->energy - g->median);
}

// ---- distances

typedef struct distance_sums {
    int n_elements, index_of[MLFF_MAX_ATOMIC_NUMBER + 1]; // index -1: not in the structures
    mlff_neighbors *neighbors;
    double low[MOST_SUMS], high[MOST_SUMS];
} distance_sums;

static mlff_status sums_begin(const mlff_system *system, distance_sums *s)
{
    double largest = 0;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) s->index_of[z] = -1;
    for (int i = 0; i < system->n_atoms; i++) {
        const int z = system->species[i];
        if (s->index_of[z] < 0 && s->n_elements < MOST_ELEMENTS) s->index_of[z] = s->n_elements++;
        largest = fmax(largest, covalent_radius(z));
    }
    for (int k = 0; k < MOST_SUMS; k++) s->low[k] = INFINITY, s->high[k] = -INFINITY;
    return neighbors_create_on(FARTHEST * 2 * largest, 0, NULL, 1, &s->neighbors);
}

// Of a structure: sums[element][element][function]. The first function tells of the lengths of bonds, the second of their number, the third of
// what is around them.
static mlff_status sum_distances(const distance_sums *s, const mlff_system *system, double sums[MOST_SUMS])
{
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_pairs pairs;
    const double *vectors;
    const int32_t *reverse;
    mlff_batch_from_system(system, first_atom, &batch);
    mlff_status status = mlff_neighbors_update(s->neighbors, &batch);
    if (status != MLFF_OK) return status;
    mlff_neighbors_get(s->neighbors, &pairs, &vectors, &reverse);
    for (int k = 0; k < MOST_SUMS; k++) sums[k] = 0;
    for (int i = 0; i < system->n_atoms; i++)
        for (int64_t p = pairs.first[i]; p < pairs.first[i + 1]; p++) {
            const int z = system->species[i], other = system->species[pairs.neighbor[p]];
            const double *r = vectors + 3 * p, radii = covalent_radius(z) + covalent_radius(other);
            const double x = sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]) / radii;
            if (x > FARTHEST || s->index_of[z] < 0 || s->index_of[other] < 0) continue;
            double *sum = sums + N_FUNCTIONS * (s->index_of[z] * MOST_ELEMENTS + s->index_of[other]);
            sum[0] += exp(-2 * x * x);
            sum[1] += exp(-pow(x / 1.3, 6));
            sum[2] += exp(-pow(x / 2.2, 6));
        }
    return MLFF_OK;
}

// Whether the distances of the far structures are as those of the others; those that are not are no longer far.
static mlff_status keep_alike(const mlff_dataset *dataset, judged *group, size_t n)
{
    mlff_status status = MLFF_OK;
    double sums[MOST_SUMS];
    distance_sums s = {0};
    MLFF_TRY(sums_begin(dataset->frames[group[0].frame].system, &s));
    for (size_t k = 0; k < n; k++) {
        if (!group[k].is_usual) continue;
        MLFF_TRY(sum_distances(&s, dataset->frames[group[k].frame].system, sums));
        for (int m = 0; m < MOST_SUMS; m++) s.low[m] = fmin(s.low[m], sums[m]), s.high[m] = fmax(s.high[m], sums[m]);
    }
    for (size_t k = 0; k < n; k++) {
        if (!group[k].is_far) continue;
        MLFF_TRY(sum_distances(&s, dataset->frames[group[k].frame].system, sums));
        for (int m = 0; m < MOST_SUMS; m++) {
            const double beside = WIDENED * (s.high[m] - s.low[m]);
            if (sums[m] < s.low[m] - beside || sums[m] > s.high[m] + beside) group[k].is_far = false;
        }
    }
done:
    mlff_neighbors_destroy(s.neighbors);
    return status;
}

// ---- of the dataset

static mlff_status judge_group(const mlff_dataset *dataset, judged *group, size_t n, double *scratch, wrong_energies *wrong)
{
    mlff_status status = MLFF_OK;
    if (n < FEWEST) return MLFF_OK;
    const group_facts g = find_far(group, n, dataset->frames[group[0].frame].system->n_atoms, scratch);
    size_t n_left = 0;
    if (g.n_far == 0 || (double)g.n_far > LARGEST_SHARE * (double)n) return MLFF_OK;
    for (size_t k = 0; k < n; k++) {
        group[k].is_far = group[k].is_far && !forces_explain(&group[k], &g);
        n_left += group[k].is_far;
    }
    if (n_left > 0) MLFF_TRY(keep_alike(dataset, group, n));
    for (size_t k = 0; k < n; k++) {
        if (!group[k].is_far) continue;
        if (wrong->n++ == 0 || group[k].frame < wrong->first.frame) wrong->first = group[k], wrong->of_first = g;
        if (group[k].energy != 0 || group[k].largest_force == 0) continue;
        if (wrong->n_zero++ == 0 || group[k].frame < wrong->first_zero.frame) wrong->first_zero = group[k], wrong->of_zero = g;
    }
done:
    return status;
}

static mlff_status find_wrong(const mlff_dataset *dataset, wrong_energies *wrong)
{
    mlff_status status = MLFF_OK;
    size_t n = 0;
    judged *all = base_alloc(dataset->n_frames, sizeof *all, "energies");
    double *scratch = base_alloc(dataset->n_frames, sizeof *scratch, "energies");
    if (!all || !scratch) MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        if (system->label_forces && !isnan(system->label_energy)) all[n++] = describe(system, f);
    }
    qsort(all, n, sizeof *all, by_atoms_and_frame);
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && all[end].atoms == all[begin].atoms; end++) continue;
        MLFF_TRY(judge_group(dataset, all + begin, end - begin, scratch, wrong));
    }
done:
    base_free(all);
    base_free(scratch);
    return status;
}

mlff_status dataset_check_energies(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    wrong_energies wrong = {0};
    MLFF_TRY(find_wrong(dataset, &wrong));
    if (wrong.n_zero > 0) // with forces: it is not of atoms out of each other's reach
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "structure %zu: its energy is 0, but %.6g eV is the median of the %zu structures of the same atoms, and its "
                  "forces and distances are as theirs, as of a calculation that failed; leave such structures out (%zu)",
                  wrong.first_zero.frame, wrong.of_zero.median, wrong.of_zero.n, wrong.n_zero);
    if (wrong.n > 0)
        base_warn("structure %zu: its energy, %.6g eV, is %.3g eV from the median, %.6g, of the %zu structures of the same atoms "
                  "(standard deviation %.2g), though its forces and distances are as theirs, as of a calculation that did not "
                  "converge; leave such structures out (%zu)",
                  wrong.first.frame, wrong.first.energy, fabs(wrong.first.energy - wrong.of_first.median), wrong.of_first.median,
                  wrong.of_first.n, wrong.of_first.deviation, wrong.n);
done:
    return status;
}
