// SPDX-License-Identifier: MIT
// symmetry.c: with lattice vectors as the rows of A, an integer matrix W maps the lattice on itself if W A has the lengths and angles of A;
// then R = A⁻¹ W A is orthogonal, and fractional coordinates s become s W + t. Translations t are those that take the first atom of
// the rarest element to an atom of this element.
#include "atoms/relax/symmetry.h"

#include <math.h>
#include <string.h>

#include "atoms/relax/matrix.h"

#define METRIC_TOLERANCE 1e-4
#define ATOM_TOLERANCE 1e-3 // Å

typedef struct lattice_vector {
    double index[3], xyz[3];
} lattice_vector;

typedef struct finder {
    const mlff_system *system;
    const double *cell; // [9]
    double inverse[9];
    double *fractions; // [n_atoms][3]
    int origin;        // an atom of the rarest element
    lattice_vector *candidates[3];
    size_t n_candidates[3], capacity[3];
    symmetry *found;
    size_t rotation_capacity, image_capacity;
} finder;

static double dot3(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void times_matrix(const double *v, const double *m, double out[3])
{
    for (int c = 0; c < 3; c++) out[c] = v[0] * m[c] + v[1] * m[3 + c] + v[2] * m[6 + c];
}

// ---- the lattice ------------------------------------------------------------------------------------------------------

// All lattice vectors as long as vector `axis`. Index k of a vector v is at most |v| times the length of column k of A⁻¹.
static mlff_status find_candidates(finder *f, int axis)
{
    const double *a = f->cell + 3 * axis, length = sqrt(dot3(a, a));
    int most[3];
    for (int k = 0; k < 3; k++) {
        const double column[3] = {f->inverse[k], f->inverse[3 + k], f->inverse[6 + k]};
        most[k] = (int)fmin(length * sqrt(dot3(column, column)) + 0.01, 50);
    }
    for (int i = -most[0]; i <= most[0]; i++)
        for (int j = -most[1]; j <= most[1]; j++)
            for (int k = -most[2]; k <= most[2]; k++) {
                lattice_vector v = {.index = {i, j, k}};
                times_matrix(v.index, f->cell, v.xyz);
                if (fabs(sqrt(dot3(v.xyz, v.xyz)) - length) > METRIC_TOLERANCE * length) continue;
                const mlff_status status =
                    base_grow(&f->candidates[axis], &f->capacity[axis], f->n_candidates[axis] + 1, sizeof v, "lattice vectors");
                if (status != MLFF_OK) return status;
                f->candidates[axis][f->n_candidates[axis]++] = v;
            }
    return MLFF_OK;
}

static bool same_angle(const finder *f, const lattice_vector *u, int i, const lattice_vector *v, int j)
{
    const double *a = f->cell + 3 * i, *b = f->cell + 3 * j;
    return fabs(dot3(u->xyz, v->xyz) - dot3(a, b)) <= METRIC_TOLERANCE * sqrt(dot3(a, a) * dot3(b, b));
}

// ---- the atoms --------------------------------------------------------------------------------------------------------

static double shortest(const finder *f, const double *difference)
{
    double wrapped[3], xyz[3];
    for (int c = 0; c < 3; c++) wrapped[c] = difference[c] - round(difference[c]);
    times_matrix(wrapped, f->cell, xyz);
    return sqrt(dot3(xyz, xyz));
}

// The atoms that all atoms are moved to by W and t; false where one is moved to none.
static bool map_atoms(const finder *f, const double *w, const double *t, int *images)
{
    const mlff_system *system = f->system;
    for (int i = 0; i < system->n_atoms; i++) {
        double moved[3], difference[3];
        int j = 0;
        times_matrix(f->fractions + 3 * i, w, moved);
        for (; j < system->n_atoms; j++) {
            for (int c = 0; c < 3; c++) difference[c] = moved[c] + t[c] - f->fractions[3 * j + c];
            if (system->species[j] == system->species[i] && shortest(f, difference) < ATOM_TOLERANCE) break;
        }
        if (j == system->n_atoms) return false;
        images[i] = j;
    }
    return true;
}

// R = A⁻¹ W A, made orthogonal by two steps of Newton's iteration, since the cell has its symmetry to a tolerance only.
static void find_rotation(const finder *f, const double *w, double rotation[9])
{
    double product[9], transposed[9], square[9], cube[9];
    matrix_multiply(f->inverse, w, product);
    matrix_multiply(product, f->cell, rotation);
    for (int step = 0; step < 2; step++) {
        matrix_transpose(rotation, transposed);
        matrix_multiply(transposed, rotation, square);
        matrix_multiply(rotation, square, cube);
        for (int k = 0; k < 9; k++) rotation[k] = 1.5 * rotation[k] - 0.5 * cube[k];
    }
}

// All operations with W.
static mlff_status add_operations(finder *f, const double *w)
{
    mlff_status status = MLFF_OK;
    symmetry *s = f->found;
    const size_t n_atoms = (size_t)s->n_atoms;
    double moved[3], t[3];
    times_matrix(f->fractions + 3 * f->origin, w, moved);
    for (int j = 0; j < s->n_atoms; j++) {
        if (f->system->species[j] != f->system->species[f->origin]) continue;
        const size_t n = (size_t)s->n;
        MLFF_TRY(base_grow(&s->rotations, &f->rotation_capacity, 9 * (n + 1), sizeof *s->rotations, "symmetry operations"));
        MLFF_TRY(base_grow(&s->images, &f->image_capacity, n_atoms * (n + 1), sizeof *s->images, "symmetry operations"));
        for (int c = 0; c < 3; c++) t[c] = f->fractions[3 * j + c] - moved[c];
        if (!map_atoms(f, w, t, s->images + n_atoms * n)) continue;
        find_rotation(f, w, s->rotations + 9 * n);
        s->n++;
    }
done:
    return status;
}

static mlff_status find_all(finder *f)
{
    for (size_t i = 0; i < f->n_candidates[0]; i++)
        for (size_t j = 0; j < f->n_candidates[1]; j++)
            for (size_t k = 0; k < f->n_candidates[2]; k++) {
                const lattice_vector *u = &f->candidates[0][i], *v = &f->candidates[1][j], *x = &f->candidates[2][k];
                if (!same_angle(f, u, 0, v, 1) || !same_angle(f, v, 1, x, 2) || !same_angle(f, u, 0, x, 2)) continue;
                double w[9];
                for (int c = 0; c < 3; c++) {
                    w[c] = u->index[c];
                    w[3 + c] = v->index[c];
                    w[6 + c] = x->index[c];
                }
                const mlff_status status = add_operations(f, w);
                if (status != MLFF_OK) return status;
            }
    return MLFF_OK;
}

static int rarest(const mlff_system *system)
{
    int counts[128] = {0}, at = 0;
    for (int i = 0; i < system->n_atoms; i++) counts[system->species[i]]++;
    for (int i = 1; i < system->n_atoms; i++)
        if (counts[system->species[i]] < counts[system->species[at]]) at = i;
    return at;
}

mlff_status symmetry_find(const mlff_system *system, symmetry *found)
{
    mlff_status status = MLFF_OK;
    *found = (symmetry){.n_atoms = system->n_atoms};
    if (system->n_atoms > SYMMETRY_ATOMS) return MLFF_OK;
    finder f = {.system = system, .cell = system->cell, .origin = rarest(system), .found = found};
    f.fractions = base_alloc(3 * (size_t)system->n_atoms, sizeof *f.fractions, "symmetry operations");
    if (!f.fractions) MLFF_TRY(MLFF_ERR_MEMORY);
    matrix_invert(system->cell, f.inverse);
    for (int i = 0; i < system->n_atoms; i++) times_matrix(system->positions + 3 * i, f.inverse, f.fractions + 3 * i);
    for (int axis = 0; axis < 3; axis++) MLFF_TRY(find_candidates(&f, axis));
    MLFF_TRY(find_all(&f));
done:
    for (int axis = 0; axis < 3; axis++) base_free(f.candidates[axis]);
    base_free(f.fractions);
    if (status != MLFF_OK) symmetry_free(found);
    return status;
}

void symmetry_free(symmetry *s)
{
    base_free(s->rotations);
    base_free(s->images);
    *s = (symmetry){0};
}

// ---- averages ---------------------------------------------------------------------------------------------------------

void symmetry_average_forces(const symmetry *s, const double *forces, double *mean)
{
    memset(mean, 0, 3 * (size_t)s->n_atoms * sizeof *mean);
    for (int k = 0; k < s->n; k++)
        for (int i = 0; i < s->n_atoms; i++) {
            double turned[3];
            times_matrix(forces + 3 * i, s->rotations + 9 * k, turned);
            double *to = mean + 3 * s->images[(size_t)k * (size_t)s->n_atoms + (size_t)i];
            for (int c = 0; c < 3; c++) to[c] += turned[c] / s->n;
        }
}

void symmetry_average_tensor(const symmetry *s, const double *tensor, double *mean)
{
    memset(mean, 0, 9 * sizeof *mean);
    for (int k = 0; k < s->n; k++) {
        double transposed[9], product[9], turned[9];
        matrix_transpose(s->rotations + 9 * k, transposed);
        matrix_multiply(transposed, tensor, product);
        matrix_multiply(product, s->rotations + 9 * k, turned);
        for (int c = 0; c < 9; c++) mean[c] += turned[c] / s->n;
    }
}
