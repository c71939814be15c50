// SPDX-License-Identifier: MIT
// vibrations.c: see vibrations.h.
#include "atoms/vibrations/vibrations.h"

#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "base/base.h"

mlff_status symmetric_eigen(double *a, int n, double *values, double *vectors, mlff_status (*stopped)(void *context),
                            void *context)
{
    const size_t size = (size_t)n;
    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) vectors[i * size + j] = i == j;
    for (int sweep = 0; sweep < 60; sweep++) {
        double off = 0, diagonal = 0;
        for (size_t i = 0; i < size; i++) {
            diagonal += a[i * size + i] * a[i * size + i];
            for (size_t j = i + 1; j < size; j++) off += a[i * size + j] * a[i * size + j];
        }
        if (off <= 1e-30 * diagonal) break;
        for (size_t p = 0; p < size; p++) {
            const mlff_status status = stopped ? stopped(context) : MLFF_OK;
            if (status != MLFF_OK) return status;
            for (size_t q = p + 1; q < size; q++) {
                const double apq = a[p * size + q];
                if (apq == 0) continue;
                const double theta = (a[q * size + q] - a[p * size + p]) / (2 * apq);
                const double t = copysign(1, theta) / (fabs(theta) + hypot(1, theta)), c = 1 / hypot(1, t), s = c * t;
                for (size_t k = 0; k < size; k++) { // columns p and q
                    const double at_p = a[k * size + p], at_q = a[k * size + q];
                    a[k * size + p] = c * at_p - s * at_q;
                    a[k * size + q] = s * at_p + c * at_q;
                }
                for (size_t k = 0; k < size; k++) { // rows p and q, and the vectors
                    const double at_p = a[p * size + k], at_q = a[q * size + k];
                    a[p * size + k] = c * at_p - s * at_q;
                    a[q * size + k] = s * at_p + c * at_q;
                    const double v_p = vectors[p * size + k], v_q = vectors[q * size + k];
                    vectors[p * size + k] = c * v_p - s * v_q;
                    vectors[q * size + k] = s * v_p + c * v_q;
                }
            }
        }
    }
    for (size_t k = 0; k < size; k++) values[k] = a[k * size + k];
    double *row = base_alloc(size, sizeof *row, "eigenvectors");
    if (!row) return MLFF_ERR_MEMORY;
    for (size_t k = 1; k < size; k++) { // insertion sort, with the vectors
        const double value = values[k];
        size_t at = k;
        memcpy(row, vectors + k * size, size * sizeof *row);
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
            memcpy(vectors + at * size, vectors + (at - 1) * size, size * sizeof *row);
        }
        values[at] = value;
        memcpy(vectors + at * size, row, size * sizeof *row);
    }
    base_free(row);
    return MLFF_OK;
}

// About which the whole can turn: any axis of a molecule, a chain's own, none of a layer or a crystal.
static int rotation_axes(const mlff_system *system, double axes[3][3])
{
    const int n_periodic = !!system->periodic[0] + !!system->periodic[1] + !!system->periodic[2];
    memset(axes, 0, 3 * sizeof *axes);
    for (int k = 0; k < 3 && n_periodic == 0; k++) axes[k][k] = 1;
    for (int k = 0; k < 3 && n_periodic == 1; k++)
        if (system->periodic[k]) memcpy(axes[0], system->cell + 3 * k, sizeof axes[0]);
    return n_periodic == 0 ? 3 : n_periodic == 1;
}

int vibrations_rigid(const mlff_system *system, double *rigid)
{
    const size_t n = 3 * (size_t)system->n_atoms;
    double center[3] = {0}, total = 0;
    int n_rigid = 0;
    for (int i = 0; system->fixed && i < system->n_atoms; i++)
        if (system->fixed[i]) return 0;
    double axes[3][3];
    const int n_kinds = 3 + rotation_axes(system, axes);
    for (int i = 0; i < system->n_atoms; i++) {
        total += atoms_mass(system, i);
        for (int c = 0; c < 3; c++) center[c] += atoms_mass(system, i) * system->positions[3 * (size_t)i + (size_t)c];
    }
    for (int kind = 0; kind < n_kinds; kind++) {
        double *vector = rigid + n * (size_t)n_rigid, square = 0, whole = 0;
        for (int i = 0; i < system->n_atoms; i++) {
            const double *x = system->positions + 3 * (size_t)i, root = sqrt(atoms_mass(system, i));
            for (int a = 0; a < 3; a++) {
                const int b = (a + 1) % 3, c = (a + 2) % 3;
                const double *axis = axes[kind % 3];
                vector[3 * (size_t)i + (size_t)a] =
                    root * (kind < 3 ? a == kind : axis[b] * (x[c] - center[c] / total) - axis[c] * (x[b] - center[b] / total));
            }
        }
        for (size_t k = 0; k < n; k++) whole += vector[k] * vector[k];
        for (int r = 0; r < n_rigid; r++) {
            double along = 0;
            for (size_t k = 0; k < n; k++) along += vector[k] * rigid[n * (size_t)r + k];
            for (size_t k = 0; k < n; k++) vector[k] -= along * rigid[n * (size_t)r + k];
        }
        for (size_t k = 0; k < n; k++) square += vector[k] * vector[k];
        if (!(square > 1e-8 * whole)) continue; // no motion, or one that others make up
        for (size_t k = 0; k < n; k++) vector[k] /= sqrt(square);
        n_rigid++;
    }
    return n_rigid;
}

void vibrations_project(const double *rigid, int n_rigid, double *hessian, size_t n)
{
    for (int r = 0; r < n_rigid; r++) {
        const double *v = rigid + n * (size_t)r;
        for (size_t a = 0; a < n; a++) { // rows
            double along = 0;
            for (size_t b = 0; b < n; b++) along += hessian[a * n + b] * v[b];
            for (size_t b = 0; b < n; b++) hessian[a * n + b] -= along * v[b];
        }
        for (size_t b = 0; b < n; b++) { // columns
            double along = 0;
            for (size_t a = 0; a < n; a++) along += hessian[a * n + b] * v[a];
            for (size_t a = 0; a < n; a++) hessian[a * n + b] -= along * v[a];
        }
    }
}

void vibrations_set_apart(const double *rigid, int n_rigid, double *hessian, size_t n)
{
    double bound = 0; // of all eigenvalues: the largest sum of a row
    for (size_t a = 0; a < n; a++) {
        double sum = 0;
        for (size_t b = 0; b < n; b++) sum += fabs(hessian[a * n + b]);
        bound = fmax(bound, sum);
    }
    const double apart = bound > 0 ? 2 * bound : 1;
    for (int r = 0; r < n_rigid; r++) {
        const double *v = rigid + n * (size_t)r;
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++) hessian[a * n + b] += apart * v[a] * v[b];
    }
}
