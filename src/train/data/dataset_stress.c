// SPDX-License-Identifier: MIT
// dataset_stress.c: whether energies and stress of a dataset belong together.
//
// With the rows of a cell h, a structure goes to another of the same atoms by D = h₁⁻¹ h₂ and moves u = r₂ - r₁ D beside it. The energy
// changes by about -½ (F₁ + F₂)·u + ½ (V₁ σ₁ + V₂ σ₂) : ε, ε = ½ (D + Dᵀ) - 1. The pairs that tell of the stress are those where it, or
// what the forces leave of the change, is larger than all ½ |(F₁ + F₂)·u| of single atoms and components together, so that errors of the
// trapezoid rule in these do not matter.
// Measured with EMT's copper (bench/distill/energies_and_stress.py, bench/results/cpu-energies-and-stress.json; cells strained at random
// by 1 to 6 % with atoms displaced by 0 to 0.1 Å): of such pairs 0 to 5 % are off by more than five times with right labels, and 98 to
// 100 % with stresses of the other sign, in GPa, or virials in their place. Displaced by 0.1 Å, few or no pairs tell of the sign, though
// nearly all of GPa; in dynamics at no pressure only kbar are found, as neither pairs nor the size of 7 eV an atom tell of GPa.
#include <math.h>

#include "atoms/atoms.h"
#include "base/voigt.h"
#include "dataset_changes.h"

#define LARGEST_STRAIN 0.1 // component of D - 1
#define SMALLEST_STRAIN 1e-4
#define LARGEST_SHARE 0.5 // of pairs that are off

// V |σ| an atom. Iron at 1000 GPa has 31, and half of the structures must have more.
#define LARGEST_WORK 50.0 // eV

static bool has_stress(const mlff_system *s)
{
    return !isnan(s->label_stress[0]) && s->periodic[0] && s->periodic[1] && s->periodic[2];
}

// D - 1; false where it is too small to tell, or too large.
static bool find_strain(const mlff_system *a, const mlff_system *b, double strain[9])
{
    double inverse[9], largest = 0;
    if (!atoms_invert(a->cell, inverse)) return false;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            double sum = r == c ? -1 : 0;
            for (int k = 0; k < 3; k++) sum += inverse[3 * r + k] * b->cell[3 * k + c];
            strain[3 * r + c] = sum;
            largest = fmax(largest, fabs(sum));
        }
    return largest > SMALLEST_STRAIN && largest < LARGEST_STRAIN;
}

// The largest move of an atom beside the strain, Å; what the forces say of the change of energy, and the sum of its sizes.
static double move_atoms(const mlff_system *a, const mlff_system *b, const double strain[9], const atoms_images *images,
                         double *by_forces, double *sizes)
{
    double largest = 0;
    *by_forces = *sizes = 0;
    for (int i = 0; i < a->n_atoms && largest < CHANGES_LARGEST_MOVE * CHANGES_LARGEST_MOVE; i++) {
        const double *x = a->positions + 3 * (size_t)i, *y = b->positions + 3 * (size_t)i;
        double u[3], square = 0;
        for (int c = 0; c < 3; c++) u[c] = y[c] - x[c] - x[0] * strain[c] - x[1] * strain[3 + c] - x[2] * strain[6 + c];
        atoms_nearest_image(images, u);
        for (int c = 0; c < 3; c++) {
            const double work =
                0.5 * (a->label_forces[3 * (size_t)i + (size_t)c] + b->label_forces[3 * (size_t)i + (size_t)c]) * u[c];
            square += u[c] * u[c];
            *by_forces -= work;
            *sizes += fabs(work);
        }
        largest = fmax(largest, square);
    }
    return sqrt(largest);
}

static double work_of_strain(const mlff_system *s, const double strain[9])
{
    double sum = 0;
    for (int k = 0; k < 9; k++)
        sum += strain[k] * s->label_stress[voigt_index[k]]; // σ is symmetric: D - 1 and its symmetric part give the same
    return mlff_system_volume(s) * sum;
}

static bool has_labels(const mlff_system *s)
{
    return has_stress(s) && s->label_forces && !isnan(s->label_energy);
}

// Of the energy, what the forces leave; it tells where the stress decides it.
static double compare(const mlff_system *a, const mlff_system *b, const atoms_images *images, dataset_change *change_out)
{
    double strain[9], by_forces, sizes;
    if (!find_strain(a, b, strain)) return INFINITY;
    const double move = move_atoms(a, b, strain, images, &by_forces, &sizes);
    change_out->energy = b->label_energy - a->label_energy - by_forces;
    change_out->by_labels = 0.5 * (work_of_strain(a, strain) + work_of_strain(b, strain));
    change_out->tells = fmax(fabs(change_out->energy), fabs(change_out->by_labels)) > fmax(CHANGES_LEAST, sizes);
    return move;
}

static mlff_status check_sizes(const mlff_dataset *dataset)
{
    size_t n = 0;
    double *works = base_alloc(2 * dataset->n_frames, sizeof *works, "stress"), *sizes = works ? works + dataset->n_frames : NULL;
    if (!works) return MLFF_ERR_MEMORY;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *s = dataset->frames[f].system;
        double size = 0;
        if (!has_stress(s)) continue;
        for (int k = 0; k < 6; k++) size = fmax(size, fabs(s->label_stress[k]));
        works[n] = size * mlff_system_volume(s) / s->n_atoms;
        sizes[n++] = size;
    }
    base_sort(works, n);
    base_sort(sizes, n);
    const double work = n > 0 ? works[n / 2] : 0, size = n > 0 ? sizes[n / 2] : 0;
    base_free(works);
    if (work > LARGEST_WORK)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "half of the structures with a stress have %.3g eV/Å³ (%.3g GPa) and more; is it in eV/Å³, of which 1 GPa is "
            "0.00624? Convert it, or remove stress= and virial=",
            size, 160.21766 * size);
    return MLFF_OK;
}

mlff_status dataset_check_stress(const mlff_dataset *dataset)
{
    mlff_status status = MLFF_OK;
    size_t n, first_wrong;
    dataset_change *changes = NULL;
    MLFF_TRY(check_sizes(dataset));
    MLFF_TRY(dataset_find_changes(dataset, &(dataset_comparison){has_labels, compare}, &changes, &n));
    const size_t n_wrong = dataset_wrong_changes(changes, n, &first_wrong);
    if (n < CHANGES_FEWEST || (double)n_wrong <= LARGEST_SHARE * (double)n) goto done;
    const double median = changes[n / 2].energy / changes[n / 2].by_labels;
    if (!isfinite(median))
        MLFF_FAIL(
            MLFF_ERR_VALUE,
            "structure %zu: its energy changes with the cell, but the stress is 0, as in %zu of %zu pairs of structures with "
            "other cells; remove stress= and virial= where they were not computed",
            first_wrong, n_wrong, n);
    MLFF_FAIL(
        MLFF_ERR_VALUE,
        "structure %zu: its energy and stress do not belong together, as in %zu of %zu pairs of structures with other cells: "
        "the energy changes by %.3g times (median of all) what the stress says; is it in eV/Å³, positive under tension "
        "(virial= is minus stress times volume), in the order xx yy zz yz xz xy?",
        first_wrong, n_wrong, n, median);
done:
    base_free(changes);
    return status;
}
