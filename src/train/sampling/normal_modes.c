// SPDX-License-Identifier: MIT
// normal_modes.c: a molecule's harmonic vibrations.
//
//   K[a][b] = -(F_b(x + h e_a) - F_b(x - h e_a)) / 2h, symmetrized;  M^-1/2 K M^-1/2 u = ω² u
//   x = x0 + M^-1/2 Σ_k q_k u_k,  q_k normal with variance k_B T / ω_k²
#include "normal_modes.h"

#include <math.h>
#include <string.h>

#define STEP 0.01                      // Å
#define SOFTEST (20 * 1.8836515674e-4) // 20 /cm in 1/fs: 2 π c
#define LARGEST_DISPLACEMENT 0.5       // Å an atom and component: a soft mode's harmonic draw may be far out

mlff_status symmetric_eigen(double *a, int n, double *values, double *vectors)
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
        for (size_t p = 0; p < size; p++)
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

static double mass(const mlff_system *system, int i)
{
    return system->masses ? system->masses[i] : mlff_element_mass(system->species[i]);
}

// Forces at ± h along each coordinate; hessian[3N][3N] is mass-weighted and symmetric, in 1/fs².
static mlff_status find_hessian(mlff_teacher *teacher, const mlff_system *system, double *hessian)
{
    mlff_status status = MLFF_OK;
    const size_t n = 3 * (size_t)system->n_atoms;
    mlff_system **moved = base_alloc(2 * n, sizeof *moved, "displaced structures");
    mlff_label *labels = base_alloc(2 * n, sizeof *labels, "labels");

    if (!moved || !labels) MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t k = 0; k < 2 * n; k++) {
        MLFF_TRY(mlff_system_copy(system, &moved[k]));
        moved[k]->positions[k / 2] += k % 2 ? -STEP : STEP;
    }
    MLFF_TRY(mlff_teacher_compute(teacher, (const mlff_system *const *)moved, (int)(2 * n), labels));
    for (size_t k = 0; k < 2 * n && status == MLFF_OK; k++)
        if (labels[k].status != MLFF_OK) status = mlff_fail(labels[k].status, "%s", labels[k].problem);
    for (size_t a = 0; a < n && status == MLFF_OK; a++)
        for (size_t b = 0; b < n; b++) {
            const double k = -(labels[2 * a].forces[b] - labels[2 * a + 1].forces[b]) / (2 * STEP);
            const double masses = mass(system, (int)(a / 3)) * mass(system, (int)(b / 3));
            hessian[a * n + b] += 0.5 * k / (sqrt(masses) * BASE_AMU_ANG2_FS2_EV);
            hessian[b * n + a] += 0.5 * k / (sqrt(masses) * BASE_AMU_ANG2_FS2_EV);
        }
    for (size_t k = 0; k < 2 * n; k++) mlff_label_clear(&labels[k]);
done:
    for (size_t k = 0; moved && k < 2 * n; k++) mlff_system_destroy(moved[k]);
    base_free(moved);
    base_free(labels);
    return status;
}

// Mass-weighted translations and rotations of the whole, orthonormal: rigid[n_rigid][3N]; a linear molecule has five, an atom three.
static int find_rigid(const mlff_system *system, double *rigid)
{
    const size_t n = 3 * (size_t)system->n_atoms;
    double center[3] = {0}, total = 0;
    int n_rigid = 0;
    for (int i = 0; i < system->n_atoms; i++) {
        total += mass(system, i);
        for (int c = 0; c < 3; c++) center[c] += mass(system, i) * system->positions[3 * (size_t)i + (size_t)c];
    }
    for (int kind = 0; kind < 6; kind++) {
        double *vector = rigid + n * (size_t)n_rigid, square = 0, whole = 0;
        const int a = kind % 3, b = (a + 1) % 3, c = (a + 2) % 3;
        for (int i = 0; i < system->n_atoms; i++) {
            const double *x = system->positions + 3 * (size_t)i, root = sqrt(mass(system, i));
            double *v = vector + 3 * (size_t)i;
            v[a] = kind < 3 ? root : 0;
            v[b] = kind < 3 ? 0 : -root * (x[c] - center[c] / total);
            v[c] = kind < 3 ? 0 : root * (x[b] - center[b] / total);
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

// H becomes (1 - Σ r rᵀ) H (1 - Σ r rᵀ): the truncation of differences gives rotations frequencies of their own, up to 50 /cm.
static void project_rigid(const double *rigid, int n_rigid, double *hessian, size_t n)
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

mlff_status normal_modes_find(mlff_teacher *teacher, const mlff_system *system, normal_modes *modes_out)
{
    mlff_status status = MLFF_OK;
    normal_modes modes = {.n_atoms = system->n_atoms};
    const size_t n = 3 * (size_t)system->n_atoms;
    double *hessian = NULL, *values = NULL, *vectors = NULL, *rigid = NULL;

    if (system->n_atoms > NORMAL_MODES_MAX_ATOMS)
        return mlff_fail(MLFF_ERR_LIMIT, "normal modes of %d atoms; %d at most", system->n_atoms, NORMAL_MODES_MAX_ATOMS);
    hessian = base_alloc(n * n, sizeof *hessian, "a Hessian");
    values = base_alloc(n, sizeof *values, "a Hessian");
    vectors = base_alloc(n * n, sizeof *vectors, "a Hessian");
    modes.frequencies = base_alloc(n, sizeof(double), "normal modes");
    modes.vectors = base_alloc(n * n, sizeof(double), "normal modes");
    rigid = base_alloc(6 * n, sizeof *rigid, "a Hessian");
    if (!rigid || !hessian || !values || !vectors || !modes.frequencies || !modes.vectors) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(find_hessian(teacher, system, hessian));
    project_rigid(rigid, find_rigid(system, rigid), hessian, n);
    MLFF_TRY(symmetric_eigen(hessian, (int)n, values, vectors));
    for (size_t k = 0; k < n; k++) {
        if (!(values[k] > SOFTEST * SOFTEST)) continue; // rigid motions, and directions that are no vibration
        modes.frequencies[modes.n_modes] = sqrt(values[k]);
        memcpy(modes.vectors + n * (size_t)modes.n_modes, vectors + n * k, n * sizeof *vectors);
        modes.n_modes++;
    }
    *modes_out = modes;
    modes = (normal_modes){0};
done:
    normal_modes_free(&modes);
    base_free(rigid);
    base_free(hessian);
    base_free(values);
    base_free(vectors);
    return status;
}

void normal_modes_displace(const normal_modes *modes, mlff_system *system, double temperature_kelvin, uint64_t seed,
                           uint64_t stream)
{
    const size_t n = 3 * (size_t)modes->n_atoms;
    const double scale = sqrt(BASE_KB_EV_PER_K * temperature_kelvin / BASE_AMU_ANG2_FS2_EV); // sqrt(amu) Å/fs
    for (size_t a = 0; a < n; a++) {
        double displacement = 0;
        if (system->fixed && system->fixed[a / 3]) continue;
        for (int k = 0; k < modes->n_modes; k++)
            displacement +=
                scale / modes->frequencies[k] * base_random_normal(seed, stream, (uint64_t)k) * modes->vectors[n * (size_t)k + a];
        displacement /= sqrt(mass(system, (int)(a / 3)));
        system->positions[a] += fmin(fmax(displacement, -LARGEST_DISPLACEMENT), LARGEST_DISPLACEMENT);
    }
}

void normal_modes_free(normal_modes *modes)
{
    base_free(modes->frequencies);
    base_free(modes->vectors);
    *modes = (normal_modes){0};
}
