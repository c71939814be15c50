// SPDX-License-Identifier: MIT
// dataset_energies.c: the energy of each element that fits a dataset best, and structures whose energy does not fit.
#include <math.h>
#include <string.h>

#include "atoms/neighbors.h"
#include "dataset.h"
#include "device/team.h"
#include "least_squares.h"

enum { N_ELEMENTS = MLFF_MAX_ATOMIC_NUMBER + 1 };

// How many atoms of each element the structures have.
typedef struct compositions {
    int n_columns;                        // elements that structures with an energy hold
    int column_of[N_ELEMENTS];            // -1: no column
    int elements[N_ELEMENTS], n_elements; // those with a column, ascending
    double *counts;                       // [n_frames][n_columns]
} compositions;

// Elements have columns in the order in which structures with an energy hold them.
static void find_columns(const mlff_dataset *dataset, compositions *c)
{
    for (int z = 0; z < N_ELEMENTS; z++) c->column_of[z] = -1;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        if (isnan(system->label_energy)) continue;
        for (int i = 0; i < system->n_atoms; i++)
            if (c->column_of[system->species[i]] < 0) c->column_of[system->species[i]] = c->n_columns++;
    }
    for (int z = 0; z < N_ELEMENTS; z++)
        if (c->column_of[z] >= 0) c->elements[c->n_elements++] = z;
}

static mlff_status compositions_make(const mlff_dataset *dataset, compositions *c)
{
    *c = (compositions){0};
    find_columns(dataset, c);
    if (dataset->n_frames == 0) return mlff_fail(MLFF_ERR_VALUE, "the dataset has no structure");
    if (c->n_columns == 0)
        return mlff_fail(MLFF_ERR_VALUE, "no structure has an energy, which a student needs beside forces; give energies "
                                         "(energy= in extended XYZ), or label them (mlff label)");
    const size_t n = (size_t)c->n_columns;
    if (!(c->counts = base_alloc(dataset->n_frames * n, sizeof *c->counts, "energies"))) return MLFF_ERR_MEMORY;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        for (int i = 0; i < system->n_atoms; i++) {
            const int column = c->column_of[system->species[i]];
            if (column >= 0) c->counts[f * n + (size_t)column]++;
        }
    }
    return MLFF_OK;
}

// min Σ (weights[f] (Σ n_z e_z - E))²; weights NULL: 1.
static mlff_status fit(const mlff_dataset *dataset, const compositions *c, const double *weights, double shifts[N_ELEMENTS])
{
    mlff_status status = MLFF_OK;
    least_squares problem = {0};
    double row[N_ELEMENTS], x[N_ELEMENTS];
    const size_t n = (size_t)c->n_columns;

    MLFF_TRY(least_squares_create(c->n_columns, &problem));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        const double weight = weights ? weights[f] : 1;
        if (isnan(system->label_energy)) continue;
        for (size_t k = 0; k < n; k++) row[k] = weight * c->counts[f * n + k];
        least_squares_add(&problem, row, weight * system->label_energy);
    }
    MLFF_TRY(least_squares_solve(&problem, x));
    for (int z = 0; z < N_ELEMENTS; z++) shifts[z] = c->column_of[z] >= 0 ? x[c->column_of[z]] : 0;
done:
    least_squares_free(&problem);
    return status;
}

mlff_status mlff_dataset_shifts(const mlff_dataset *dataset, double shifts[119])
{
    compositions c;
    mlff_status status = compositions_make(dataset, &c);
    if (status == MLFF_OK) status = fit(dataset, &c, NULL, shifts);
    base_free(c.counts);
    return status;
}

// ---- structures of other units

// Distance of each energy from the sum of its elements' energies, eV/atom; NaN without an energy.
static void find_distances(const mlff_dataset *dataset, const compositions *c, const double shifts[N_ELEMENTS], double *distances)
{
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        const double *counts = c->counts + f * (size_t)c->n_columns;
        double energy = system->label_energy;
        for (int k = 0; k < c->n_elements; k++) energy -= counts[c->column_of[c->elements[k]]] * shifts[c->elements[k]];
        distances[f] = fabs(energy) / system->n_atoms;
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

// Structures that no neighbor list takes, as with two atoms on one point. Each thread looks at some structures.
typedef struct list_check {
    const mlff_dataset *dataset;
    size_t frame[TEAM_MAX]; // the first of a thread that failed
    mlff_status status[TEAM_MAX];
    char text[TEAM_MAX][200]; // why
} list_check;

// Without the number of the system in its batch, which is 0: "atom 3 of system 0 lies …", "system 0 repeats …".
static void take_cause(char *text, size_t bytes)
{
    static const char of[] = " of system 0", system[] = "system 0";
    const char *cause = mlff_last_error(), *at = strstr(cause, of);
    if (at)
        snprintf(text, bytes, "%.*s%s", (int)(at - cause), cause, at + strlen(of));
    else if (strncmp(cause, system, strlen(system)) == 0)
        snprintf(text, bytes, "it%s", cause + strlen(system));
    else
        snprintf(text, bytes, "%s", cause);
    text[base_whole_length(text, bytes)] = 0;
}

static void check_some(void *context, const team_member *member)
{
    list_check *check = context;
    const size_t n = check->dataset->n_frames, t = (size_t)member->thread;
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_neighbors *neighbors = NULL;
    mlff_status status = neighbors_create_on(1.0, 0, NULL, 1, &neighbors);
    size_t f = n * t / (size_t)member->n;
    for (const size_t end = n * (t + 1) / (size_t)member->n; f < end && status == MLFF_OK; f += status == MLFF_OK) {
        mlff_batch_from_system(check->dataset->frames[f].system, first_atom, &batch);
        status = mlff_neighbors_update(neighbors, &batch);
    }
    check->frame[t] = f;
    check->status[t] = status;
    if (status != MLFF_OK) take_cause(check->text[t], sizeof check->text[t]);
    mlff_neighbors_destroy(neighbors);
}

static mlff_status check_lists(const mlff_dataset *dataset)
{
    list_check check = {.dataset = dataset};
    team_run(team_size(dataset->n_threads), check_some, &check);
    for (int t = 0; t < TEAM_MAX; t++) { // threads have the frames in order
        if (check.status[t] == MLFF_OK) continue;
        if (check.status[t] == MLFF_ERR_MEMORY)
            return mlff_fail(MLFF_ERR_MEMORY, "out of memory: the neighbor list of structure %zu", check.frame[t]);
        return mlff_fail(check.status[t], "structure %zu: %s, or leave the structure out", check.frame[t], check.text[t]);
    }
    return MLFF_OK;
}

// The distances from the energies of elements that outliers do not move, and their median; NaN of structures without an energy.
static mlff_status fit_most(const mlff_dataset *dataset, double *distances, double *median_out)
{
    mlff_status status = MLFF_OK;
    double shifts[N_ELEMENTS];
    compositions c = {0};
    double *scratch = base_alloc(dataset->n_frames, sizeof *scratch, "energies");
    size_t n = 0;
    if (!scratch) return MLFF_ERR_MEMORY;
    MLFF_TRY(compositions_make(dataset, &c));
    MLFF_TRY(fit(dataset, &c, NULL, shifts));
    for (int round = 0; round < N_ROUNDS; round++) {
        find_distances(dataset, &c, shifts, distances);
        for (size_t f = 0; f < dataset->n_frames; f++) scratch[f] = 1 / sqrt(fmax(distances[f], LEAST_DISTANCE));
        MLFF_TRY(fit(dataset, &c, scratch, shifts));
    }
    find_distances(dataset, &c, shifts, distances);
    for (size_t f = 0; f < dataset->n_frames; f++)
        if (!isnan(distances[f])) scratch[n++] = distances[f];
    base_sort(scratch, n);
    *median_out = scratch[n / 2];
done:
    base_free(c.counts);
    base_free(scratch);
    return status;
}

mlff_status mlff_dataset_check(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    double median, *distances = base_alloc(dataset->n_frames, sizeof *distances, "energies");
    size_t worst = 0;

    if (!distances) return MLFF_ERR_MEMORY;
    MLFF_TRY(check_lists(dataset));
    MLFF_TRY(fit_most(dataset, distances, &median));
    for (size_t f = 0; f < dataset->n_frames; f++)
        if (!isnan(distances[f]) && !(distances[f] <= distances[worst])) worst = f;
    if (median > OUTLIER_EV_PER_ATOM)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "half of the structures have energies of %.3g eV/atom and more from the sum of their elements' energies; are "
                  "all of the same units and method?",
                  median);
    if (distances[worst] > OUTLIER_EV_PER_ATOM && distances[worst] > OUTLIER_MEDIANS * median)
        MLFF_FAIL(MLFF_ERR_VALUE,
                  "structure %zu: its energy is %.3g eV/atom from the sum of its elements' energies, the median is %.3g; does it "
                  "have the units and the method of the others? Where its atoms are too close, mlff train --largest-force 50 "
                  "leaves it out",
                  worst, distances[worst], median);
    MLFF_TRY(dataset_check_energies(
        dataset)); // before changes between structures, to which single energies make most of the difference
    MLFF_TRY(dataset_check_forces(dataset));
    MLFF_TRY(dataset_check_stress(dataset));
done:
    base_free(distances);
    return status;
}

mlff_status dataset_find_far_energies(const mlff_dataset *dataset, bool *far)
{
    mlff_status status = MLFF_OK;
    size_t n = 0, n_energies = 0;
    double median, *distances = NULL;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        n_energies += !isnan(dataset->frames[f].system->label_energy);
        far[f] = false;
    }
    if (n_energies == 0) return MLFF_OK;
    if (!(distances = base_alloc(dataset->n_frames, sizeof *distances, "energies"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(fit_most(dataset, distances, &median));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        far[f] = distances[f] > fmax(OUTLIER_EV_PER_ATOM, OUTLIER_MEDIANS * median);
        n += far[f];
    }
    for (size_t f = 0; f < dataset->n_frames && 2 * n >= n_energies; f++) far[f] = false;
done:
    base_free(distances);
    return status;
}

mlff_status mlff_dataset_outliers(const mlff_dataset *dataset, int64_t *n_out, int64_t *first_out)
{
    mlff_status status = MLFF_OK;
    double median_energy, median_forces, *distances = NULL;
    int64_t n = 0, first = -1;
    if (!dataset || !n_out || !first_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_outliers: dataset, n_out and first_out must be given");
    if (!(distances = base_alloc(dataset->n_frames, sizeof *distances, "energies"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(fit_most(dataset, distances, &median_energy));
    MLFF_TRY(dataset_median_forces(dataset, &median_forces));
    // Where half of the energies are far off, the median tells nothing.
    const double times = median_energy > OUTLIER_EV_PER_ATOM ? 1 : OUTLIER_MEDIANS;
    const double limit = fmax(OUTLIER_EV_PER_ATOM, times * median_energy);
    for (size_t f = 0; f < dataset->n_frames; f++) {
        if (!(distances[f] > limit) && !dataset_forces_outlie(dataset->frames[f].system, median_forces)) continue;
        if (n++ == 0) first = (int64_t)f;
    }
    *n_out = n;
    *first_out = first;
done:
    base_free(distances);
    return status;
}
