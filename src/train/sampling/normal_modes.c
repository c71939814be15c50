// SPDX-License-Identifier: MIT
// normal_modes.c: a molecule's harmonic vibrations.
//
//   K[a][b] = -(F_b(x + h e_a) - F_b(x - h e_a)) / 2h, symmetrized;  M^-1/2 K M^-1/2 u = ω² u
//   x = x0 + M^-1/2 Σ_k q_k u_k,  q_k normal with variance k_B T / ω_k²
// Rows and columns of fixed atoms are 0.
#include "normal_modes.h"

#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/vibrations/vibrations.h"

#define STEP 0.01                      // Å
#define SOFTEST (20 * 1.8836515674e-4) // 20 /cm in 1/fs: 2 π c
#define LARGEST_DISPLACEMENT 0.5       // Å an atom and component: a soft mode's harmonic draw may be far out

static bool moves(const mlff_system *system, size_t coordinate)
{
    return !(system->fixed && system->fixed[coordinate / 3]);
}

// Forces at ± h along each coordinate; hessian[3N][3N] is mass-weighted and symmetric, in 1/fs².
static mlff_status find_hessian(mlff_teacher *teacher, const mlff_system *system, mlff_status (*proceed)(void *context),
                                void *context, double *hessian)
{
    enum { MOST_AT_ONCE = 64 }; // of a slow teacher a stop does not wait for all
    mlff_status status = MLFF_OK;
    const size_t n = 3 * (size_t)system->n_atoms;
    mlff_system **moved = base_alloc(2 * n, sizeof *moved, "displaced structures");
    mlff_label *labels = base_alloc(2 * n, sizeof *labels, "labels");

    if (!moved || !labels) MLFF_TRY(MLFF_ERR_MEMORY);
    for (size_t k = 0; k < 2 * n; k++) {
        MLFF_TRY(mlff_system_copy(system, &moved[k]));
        moved[k]->positions[k / 2] += k % 2 ? -STEP : STEP;
    }
    for (size_t first = 0; first < 2 * n; first += MOST_AT_ONCE) {
        const size_t n_now = 2 * n - first < MOST_AT_ONCE ? 2 * n - first : MOST_AT_ONCE;
        if (proceed) MLFF_TRY(proceed(context));
        MLFF_TRY(mlff_teacher_compute(teacher, (const mlff_system *const *)moved + first, (int)n_now, labels + first));
    }
    for (size_t k = 0; k < 2 * n && status == MLFF_OK; k++)
        if (labels[k].status != MLFF_OK) status = mlff_fail(labels[k].status, "%s", labels[k].problem);
    for (size_t a = 0; a < n && status == MLFF_OK; a++)
        for (size_t b = 0; b < n; b++) {
            if (!moves(system, a) || !moves(system, b)) continue;
            const double k = -(labels[2 * a].forces[b] - labels[2 * a + 1].forces[b]) / (2 * STEP);
            const double masses = atoms_mass(system, (int)(a / 3)) * atoms_mass(system, (int)(b / 3));
            hessian[a * n + b] += 0.5 * k / (sqrt(masses) * BASE_AMU_ANG2_FS2_EV);
            hessian[b * n + a] += 0.5 * k / (sqrt(masses) * BASE_AMU_ANG2_FS2_EV);
        }
done:
    for (size_t k = 0; labels && k < 2 * n; k++) mlff_label_clear(&labels[k]);
    for (size_t k = 0; moved && k < 2 * n; k++) mlff_system_destroy(moved[k]);
    base_free(moved);
    base_free(labels);
    return status;
}

mlff_status normal_modes_find(mlff_teacher *teacher, const mlff_system *system, mlff_status (*proceed)(void *context),
                              void *context, normal_modes *modes_out)
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
    MLFF_TRY(find_hessian(teacher, system, proceed, context, hessian));
    // The truncation of differences gives rotations frequencies of their own, up to 50 /cm.
    vibrations_project(rigid, vibrations_rigid(system, rigid), hessian, n);
    MLFF_TRY(symmetric_eigen(hessian, (int)n, values, vectors, NULL, NULL));
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
        if (!moves(system, a)) continue;
        for (int k = 0; k < modes->n_modes; k++)
            displacement +=
                scale / modes->frequencies[k] * base_random_normal(seed, stream, (uint64_t)k) * modes->vectors[n * (size_t)k + a];
        displacement /= sqrt(atoms_mass(system, (int)(a / 3)));
        system->positions[a] += fmin(fmax(displacement, -LARGEST_DISPLACEMENT), LARGEST_DISPLACEMENT);
    }
}

void normal_modes_free(normal_modes *modes)
{
    base_free(modes->frequencies);
    base_free(modes->vectors);
    *modes = (normal_modes){0};
}
