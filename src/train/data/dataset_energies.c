// SPDX-License-Identifier: MIT
// dataset_energies.c: the energy of each element that fits a dataset best, and structures whose energy does not fit.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "dataset.h"
#include "least_squares.h"

enum { N_ELEMENTS = MLFF_MAX_ATOMIC_NUMBER + 1 };

// Atoms of each element; the sum is returned.
static int count_elements(const mlff_system *system, double counts[N_ELEMENTS])
{
    for (int z = 0; z < N_ELEMENTS; z++) counts[z] = 0;
    for (int i = 0; i < system->n_atoms; i++) counts[system->species[i]]++;
    return system->n_atoms;
}

// Which elements the structures with an energy hold; their number, 0 without any energy.
static int find_columns(const mlff_dataset *dataset, int column_of[N_ELEMENTS])
{
    int n_columns = 0;
    for (int z = 0; z < N_ELEMENTS; z++) column_of[z] = -1;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        for (int i = 0; i < system->n_atoms && !isnan(system->label_energy); i++)
            if (column_of[system->species[i]] < 0) column_of[system->species[i]] = n_columns++;
    }
    return n_columns;
}

// min Σ (weights[f] (Σ n_z e_z - E))²; weights NULL: 1.
static mlff_status fit(const mlff_dataset *dataset, const double *weights, double shifts[N_ELEMENTS])
{
    mlff_status status = MLFF_OK;
    least_squares problem = {0};
    double counts[N_ELEMENTS], row[N_ELEMENTS], x[N_ELEMENTS];
    int column_of[N_ELEMENTS];
    const int n_columns = find_columns(dataset, column_of);

    if (n_columns == 0)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "no structure has an energy, which a student needs beside forces; label them with energies (mlff label)");
    MLFF_TRY(least_squares_create(n_columns, &problem));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        const double weight = weights ? weights[f] : 1;
        if (isnan(system->label_energy)) continue;
        count_elements(system, counts);
        for (int z = 0; z < N_ELEMENTS; z++)
            if (column_of[z] >= 0) row[column_of[z]] = weight * counts[z];
        least_squares_add(&problem, row, weight * system->label_energy);
    }
    MLFF_TRY(least_squares_solve(&problem, x));
    for (int z = 0; z < N_ELEMENTS; z++) shifts[z] = column_of[z] >= 0 ? x[column_of[z]] : 0;
done:
    least_squares_free(&problem);
    return status;
}

mlff_status mlff_dataset_shifts(const mlff_dataset *dataset, double shifts[119])
{
    return fit(dataset, NULL, shifts);
}

// ---- structures of other units

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Distance of each energy from the sum of its elements' energies, eV/atom; NaN without an energy.
static void find_distances(const mlff_dataset *dataset, const double shifts[N_ELEMENTS], double *distances)
{
    double counts[N_ELEMENTS];
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        double energy = system->label_energy;
        const int n_atoms = count_elements(system, counts);
        for (int z = 0; z < N_ELEMENTS; z++) energy -= counts[z] * shifts[z];
        distances[f] = fabs(energy) / n_atoms;
    }
}

// A structure whose energy is this far from the elements' sum, per atom and as a multiple of the median, is of other units or
// another method: binding energies differ by less than 10 eV/atom, kcal/mol in place of eV shifts by 23 times the energy.
#define OUTLIER_EV_PER_ATOM 20.0
#define OUTLIER_MEDIANS 20.0
// The fit that outliers do not move is that of least absolute distance, by least squares with weights 1/sqrt(distance), the
// distance of the round before and at least this, eV/atom.
enum { N_ROUNDS = 20 };
#define LEAST_DISTANCE 1e-3

// Two atoms on one point, which no neighbor list takes.
static mlff_status check_points(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_neighbors *neighbors = NULL;
    MLFF_TRY(mlff_neighbors_create(1.0, 0, &neighbors));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        mlff_batch_from_system(dataset->frames[f].system, first_atom, &batch);
        status = mlff_neighbors_update(neighbors, &batch);
        if (status == MLFF_ERR_VALUE)
            MLFF_FAIL(status, "structure %zu: two of its atoms are on one point; move one, or leave the structure out", f);
        MLFF_TRY(status);
    }
done:
    mlff_neighbors_destroy(neighbors);
    return status;
}

mlff_status mlff_dataset_check(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    double shifts[N_ELEMENTS];
    double *distances = base_alloc(dataset->n_frames, sizeof *distances, "energies"),
           *scratch = base_alloc(dataset->n_frames, sizeof *scratch, "energies");
    size_t n = 0, worst = 0;

    if (!distances || !scratch) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(check_points(dataset));
    MLFF_TRY(fit(dataset, NULL, shifts));
    for (int round = 0; round < N_ROUNDS; round++) {
        find_distances(dataset, shifts, distances);
        for (size_t f = 0; f < dataset->n_frames; f++) scratch[f] = 1 / sqrt(fmax(distances[f], LEAST_DISTANCE));
        MLFF_TRY(fit(dataset, scratch, shifts));
    }
    find_distances(dataset, shifts, distances);
    for (size_t f = 0; f < dataset->n_frames; f++) {
        if (isnan(distances[f])) continue;
        scratch[n++] = distances[f];
        if (!(distances[f] <= distances[worst])) worst = f;
    }
    qsort(scratch, n, sizeof *scratch, compare_numbers);
    if (scratch[n / 2] > OUTLIER_EV_PER_ATOM)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "half of the structures have energies of %.3g eV/atom and more from the sum of their elements' energies; are "
                  "all of the "
                  "same units and method?",
                  scratch[n / 2]);
    if (distances[worst] > OUTLIER_EV_PER_ATOM && distances[worst] > OUTLIER_MEDIANS * scratch[n / 2])
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "structure %zu: its energy is %.3g eV/atom from the sum of its elements' energies, the median is %.3g; does it "
                  "have the units and the method of the others?",
                  worst, distances[worst], scratch[n / 2]);
    MLFF_TRY(dataset_check_forces(dataset));
done:
    base_free(distances);
    base_free(scratch);
    return status;
}
