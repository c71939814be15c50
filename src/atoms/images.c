// SPDX-License-Identifier: MIT
// images.c: the nearest image. Rounded fractional coordinates give it in cells that are not skewed only. Here the cell is reduced
// (Minkowski; Nguyen and Stehlé, "Low-dimensional lattice basis reduction revisited", 2009), after which a vector is the shortest of
// its images if no sum of the reduced vectors with coefficients -1, 0, 1 is nearer to it than the origin.
#include "images.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// Relative difference below which two lengths count as equal. Otherwise rounding could exchange images of equal length without end.
#define TIE 1e-9
enum { MAX_SWEEPS = 1000 }; // a few are enough for cells and positions of any use

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void add_vector(atoms_images *images, const double v[3])
{
    memcpy(images->vectors[images->n], v, 3 * sizeof *v);
    images->squares[images->n++] = dot(v, v);
}

// The n basis vectors and their sums with coefficients -1, 0, 1.
static void add_sums(atoms_images *images, double basis[3][3], int n)
{
    images->n = 0;
    for (int a = 0; a < n; a++) add_vector(images, basis[a]);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            for (int sign = -1; sign <= 1; sign += 2) {
                double sum[3];
                for (int c = 0; c < 3; c++) sum[c] = basis[a][c] + sign * basis[b][c];
                add_vector(images, sum);
            }
    for (int signs = 0; n == 3 && signs < 4; signs++) {
        double sum[3];
        for (int c = 0; c < 3; c++)
            sum[c] = basis[0][c] + (signs & 1 ? -basis[1][c] : basis[1][c]) + (signs & 2 ? -basis[2][c] : basis[2][c]);
        add_vector(images, sum);
    }
}

void atoms_nearest_image(const atoms_images *images, double v[3])
{
    bool changed = true;
    for (int sweep = 0; changed && sweep < MAX_SWEEPS; sweep++) {
        changed = false;
        for (int k = 0; k < images->n; k++) {
            const double *vector = images->vectors[k], cells = dot(v, vector) / images->squares[k];
            if (!(fabs(cells) > 0.5 + TIE)) continue;
            for (int c = 0; c < 3; c++) v[c] -= round(cells) * vector[c];
            changed = true;
        }
    }
}

static void sort_by_length(double basis[3][3], int n)
{
    for (int a = 1; a < n; a++)
        for (int b = a; b > 0 && dot(basis[b], basis[b]) < dot(basis[b - 1], basis[b - 1]); b--) {
            double shorter[3];
            memcpy(shorter, basis[b], sizeof shorter);
            memcpy(basis[b], basis[b - 1], sizeof shorter);
            memcpy(basis[b - 1], shorter, sizeof shorter);
        }
}

// Ends with ascending vectors, each the shortest that differs from it by vectors of the lattice of those before it.
static void reduce(double basis[3][3], int n)
{
    atoms_images shorter;
    for (int sweep = 0, k = 1; k < n && sweep < MAX_SWEEPS; sweep++) {
        sort_by_length(basis, n);
        for (k = 1; k < n; k++) {
            const double square = dot(basis[k], basis[k]);
            add_sums(&shorter, basis, k);
            atoms_nearest_image(&shorter, basis[k]);
            if (dot(basis[k], basis[k]) < (1 - TIE) * square) break;
        }
    }
}

// Leaves out each vector r for which another one, s, is as near to r/2 as the origin is (s² <= s·r): what is nearer to r than to the
// origin is then also nearer to s or to r - s. A rectangular cell keeps 3 vectors, others up to 7.
static void leave_out(atoms_images *images)
{
    const atoms_images all = *images;
    images->n = 0;
    for (int r = 0; r < all.n; r++) {
        bool needed = true;
        for (int s = 0; s < all.n && needed; s++) needed = s == r || all.squares[s] > fabs(dot(all.vectors[r], all.vectors[s]));
        if (needed) add_vector(images, all.vectors[r]);
    }
}

void atoms_images_make(const mlff_system *system, atoms_images *images)
{
    double basis[3][3];
    int n = 0;
    for (int axis = 0; axis < 3; axis++)
        if (system->periodic[axis]) memcpy(basis[n++], system->cell + 3 * axis, sizeof basis[0]);
    reduce(basis, n);
    add_sums(images, basis, n);
    leave_out(images);
}
