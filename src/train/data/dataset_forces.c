// SPDX-License-Identifier: MIT
// dataset_forces.c: whether energies and forces of a dataset belong together, and forces that are far larger than all others.
//
// Between two near structures of the same atoms the energy changes by about -½ (F₁ + F₂)·Δr (the trapezoid rule, exact where the
// energy is quadratic). Forces in other units than the energies, gradients in place of forces and labels in another order all show.
// Measured shares of pairs whose change is off by more than five times (bench/distill/energies_and_forces.py; molecules and liquid
// water, sampled and from dynamics at up to 1000 K; bench/results/cpu-energies-and-forces.json): 0 to 6 % with right labels; 62 to
// 99 % where a third of the forces were in kcal/mol/Å, 58 to 88 % where they were those of other atoms, 97 to 100 % where they were
// gradients.
// Positions in Bohr, and forces in eV/Bohr, make all changes 0.53 and 1.89 times what the forces say: shown by the median of the
// ratios where most of them are near it. Medians of right labels were 0.86 (atoms pressed together, GFN2-xTB) to 1.14 (liquid
// water). With those units the first and last deciles over the median were 0.76 and 1.32 for forces of sampled ethanols, which are
// refused, and 0.62 and 1.61 where dynamics gave a structure each 5 fs, which are not.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset_changes.h"

#define LARGEST_SHARE 0.25  // of pairs that are off
#define BOHR 0.529177       // Å
#define NEAR_BOHR 1.12      // the median of the ratios is within this factor of it, or of its inverse, where eight in ten
#define LARGEST_SPREAD 1.35 // are within this factor of the median

// A structure whose forces are this large, root mean square, and this many times the median of all: atoms pressed to half of a bond's
// length have 60 eV/Å on each of the two, so that only errors are beyond.
#define OUTLIER_FORCES 100.0 // eV/Å
#define OUTLIER_MEDIANS 100.0

static bool has_labels(const mlff_system *s)
{
    return !isnan(s->label_energy) && s->label_forces;
}

static bool is_same_cell(const mlff_system *a, const mlff_system *b)
{
    return memcmp(a->periodic, b->periodic, sizeof a->periodic) == 0 && memcmp(a->cell, b->cell, sizeof a->cell) == 0;
}

// A move is to the nearest image.
static double compare(const mlff_system *a, const mlff_system *b, const atoms_images *images, dataset_change *change_out)
{
    double largest = 0, sum = 0;
    if (!is_same_cell(a, b)) return INFINITY;
    for (int i = 0; i < a->n_atoms && largest < CHANGES_LARGEST_MOVE * CHANGES_LARGEST_MOVE; i++) {
        double move[3], square = 0;
        for (int c = 0; c < 3; c++) move[c] = b->positions[3 * i + c] - a->positions[3 * i + c];
        atoms_nearest_image(images, move);
        for (int c = 0; c < 3; c++) {
            square += move[c] * move[c];
            sum -= 0.5 * (a->label_forces[3 * i + c] + b->label_forces[3 * i + c]) * move[c];
        }
        largest = fmax(largest, square);
    }
    change_out->energy = b->label_energy - a->label_energy;
    change_out->by_labels = sum;
    change_out->tells = fabs(change_out->energy) + fabs(sum) > CHANGES_LEAST;
    return sqrt(largest);
}

static int compare_sizes(const void *a, const void *b)
{
    const dataset_change *x = a, *y = b;
    const double difference = fabs(x->energy) + fabs(x->by_labels) - fabs(y->energy) - fabs(y->by_labels);
    return difference < 0 ? 1 : difference > 0 ? -1 : 0;
}

// Root mean square, eV/Å; NaN without forces.
static double forces_size(const mlff_system *system)
{
    double sum = 0;
    if (!system->label_forces) return NAN;
    for (int i = 0; i < 3 * system->n_atoms; i++) sum += system->label_forces[i] * system->label_forces[i];
    return sqrt(sum / (3.0 * system->n_atoms));
}

// One structure among many has no weight in the median, so it is found however large its forces are.
mlff_status dataset_median_forces(const mlff_dataset *dataset, double *median_out)
{
    size_t n = 0;
    double *sizes = base_alloc(dataset->n_frames, sizeof *sizes, "forces");
    if (!sizes) return MLFF_ERR_MEMORY;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const double size = forces_size(dataset->frames[f].system);
        if (!isnan(size)) sizes[n++] = size;
    }
    base_sort(sizes, n);
    *median_out = n > 0 ? sizes[n / 2] : 0.0;
    base_free(sizes);
    return MLFF_OK;
}

bool dataset_forces_outlie(const mlff_system *system, double median)
{
    return forces_size(system) > fmax(OUTLIER_FORCES, OUTLIER_MEDIANS * median);
}

mlff_status dataset_drop_outliers(mlff_dataset *dataset, int64_t *n_dropped_out)
{
    mlff_status status = MLFF_OK;
    int64_t n = 1;
    double median;
    bool *outlie = base_alloc(dataset->n_frames, sizeof *outlie, "outliers");
    if (!outlie) return MLFF_ERR_MEMORY;
    *n_dropped_out = 0;
    for (; n > 0 && dataset->n_frames > 0; *n_dropped_out += n) { // without some the median is another
        MLFF_TRY(dataset_find_far_energies(dataset, outlie));
        MLFF_TRY(dataset_median_forces(dataset, &median));
        for (size_t f = 0; f < dataset->n_frames; f++)
            outlie[f] = outlie[f] || dataset_forces_outlie(dataset->frames[f].system, median);
        n = dataset_remove(dataset, outlie);
    }
done:
    base_free(outlie);
    return status;
}

static mlff_status check_sizes(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    size_t worst = 0;
    double median, largest = 0;
    MLFF_TRY(dataset_median_forces(dataset, &median));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const double size = forces_size(dataset->frames[f].system);
        if (!(size > largest)) continue;
        largest = size;
        worst = f;
    }
    if (largest > 0 && dataset_forces_outlie(dataset->frames[worst].system, median))
        status = mlff_fail(MLFF_ERR_VALUE,
                           "structure %zu: its forces are %.3g eV/Å (root mean square), the median of all structures is %.3g; "
                           "correct them or leave the structure out",
                           worst, largest, median);
done:
    return status;
}

// Whether ratios, ascending, are all off by about a Bohr in Å, or its inverse.
static bool is_scaled(const dataset_change *sorted, size_t n)
{
    const dataset_change *deciles[3] = {&sorted[n / 10], &sorted[n / 2], &sorted[n - 1 - n / 10]};
    double ratio[3];
    for (int k = 0; k < 3; k++) ratio[k] = deciles[k]->energy / deciles[k]->by_labels;
    if (!(ratio[0] > 0) || ratio[1] < ratio[0]) return false;
    const double of_bohr = fmin(ratio[1], 1 / ratio[1]) / BOHR;
    return of_bohr < NEAR_BOHR && of_bohr > 1 / NEAR_BOHR && ratio[1] < LARGEST_SPREAD * ratio[0] &&
           ratio[2] < LARGEST_SPREAD * ratio[1];
}

mlff_status dataset_check_forces(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    size_t n, first_wrong;
    dataset_change *changes = NULL;
    MLFF_TRY(check_sizes(dataset));
    MLFF_TRY(dataset_find_changes(dataset, &(dataset_comparison){has_labels, compare}, &changes, &n));
    qsort(changes, n, sizeof *changes, compare_sizes);
    n = (n + 1) / 2; // the larger half: the terms left out of the others weigh more
    const size_t n_wrong = dataset_wrong_changes(changes, n, &first_wrong);
    if (n >= CHANGES_FEWEST && (double)n_wrong > LARGEST_SHARE * (double)n)
        status = mlff_fail(
            MLFF_ERR_VALUE,
            "structure %zu: its energy and forces do not belong together, as in %zu of %zu pairs of near structures: the energy "
            "changes by %.3g times (median of all) what the forces say; are they in eV and eV/Å, forces and not gradients, "
            "and in the same order?",
            first_wrong, n_wrong, n, changes[n / 2].energy / changes[n / 2].by_labels);
    else if (n >= CHANGES_FEWEST && is_scaled(changes, n))
        status = mlff_fail(MLFF_ERR_VALUE,
                           "energies and forces do not belong together: in nearly all of %zu pairs of near structures the energy "
                           "changes by about %.3g times what the forces say; are positions in Å, not Bohr, and forces in eV/Å?",
                           n, changes[n / 2].energy / changes[n / 2].by_labels);
done:
    base_free(changes);
    return status;
}
