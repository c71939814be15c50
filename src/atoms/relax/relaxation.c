// SPDX-License-Identifier: MIT
// relaxation.c: from a system to the variables of an optimizer and back.
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/relax/matrix.h"
#include "atoms/relax/model_hessian.h"
#include "atoms/relax/relax.h"

#define LONGEST_MOVE 0.2 // Å

static bool is_free(const mlff_system *system, int i)
{
    return !(system->fixed && system->fixed[i]);
}

static mlff_status check(const mlff_system *system, const relax_settings *settings)
{
    if (!settings->cell) return MLFF_OK;
    if (!system->periodic[0] || !system->periodic[1] || !system->periodic[2] || !(mlff_system_volume(system) > 0))
        return mlff_fail(MLFF_ERR_VALUE, "a cell that relaxes must be periodic along three axes; relax the positions alone");
    for (int i = 0; i < system->n_atoms; i++)
        if (!is_free(system, i))
            return mlff_fail(MLFF_ERR_VALUE,
                             "atom %d is fixed, and would move with a cell that relaxes; free it, or relax the "
                             "positions alone",
                             i);
    return MLFF_OK;
}

static mlff_status prepare_symmetry(relaxation *r)
{
    const mlff_status status = symmetry_find(r->system, &r->symmetry);
    if (status != MLFF_OK || r->symmetry.n < 2) return status;
    r->mean_forces = base_alloc(3 * (size_t)r->system->n_atoms, sizeof *r->mean_forces, "a relaxation");
    return r->mean_forces ? MLFF_OK : MLFF_ERR_MEMORY;
}

mlff_status relaxation_create(mlff_system *system, const relax_settings *settings, relaxation *r)
{
    mlff_status status = check(system, settings);
    if (status != MLFF_OK) return status;
    const size_t n_coordinates = 3 * (size_t)system->n_atoms, n = n_coordinates + (settings->cell ? 9 : 0);
    const bool lbfgs = settings->optimizer == MLFF_LBFGS;
    *r = (relaxation){
        .system = system, .settings = *settings, .n = n, .timestep = 0.1, .mixing = 0.1, .kernels = relax_kernels_get()};
    double *at = r->block = base_alloc(n * (lbfgs ? 6 + 2 * LBFGS_PAIRS : 4), sizeof *at, "a relaxation");
    if (!at) return MLFF_ERR_MEMORY;
    r->x = at, at += n;
    r->force = at, at += n;
    r->start = at, at += n;
    if (lbfgs) {
        r->last_x = at, at += n;
        r->last_force = at, at += n;
        r->direction = at, at += n;
        r->steps = at, at += LBFGS_PAIRS * n;
        r->changes = at;
    } else {
        r->velocity = at;
    }
    base_free(system->velocities); // of other positions than those at the end
    system->velocities = NULL;
    memcpy(r->cell, system->cell, sizeof r->cell);
    memcpy(r->x, system->positions, n_coordinates * sizeof *r->x);
    memcpy(r->start, system->positions, n_coordinates * sizeof *r->start);
    for (int k = 0; k < 9; k++) r->deformation[k] = k % 4 == 0;
    if (settings->cell && settings->keep_symmetry && (status = prepare_symmetry(r)) != MLFF_OK) {
        relaxation_destroy(r);
        return status;
    }
    for (int k = 0; k < 9 && settings->cell; k++) r->x[n_coordinates + (size_t)k] = r->deformation[k] * system->n_atoms;
    return MLFF_OK;
}

void relaxation_undo(relaxation *r)
{
    memcpy(r->system->positions, r->start, 3 * (size_t)r->system->n_atoms * sizeof *r->start);
    memcpy(r->system->cell, r->cell, sizeof r->cell);
}

void relaxation_destroy(relaxation *r)
{
    base_free(r->block);
    model_hessian_destroy(r->metric);
    base_free(r->mean_forces);
    symmetry_free(&r->symmetry);
    *r = (relaxation){0};
}

// Forces on the variables of a cell that relaxes: f F on atoms; (virial - P V) F⁻ᵀ / n_atoms on n_atoms F.
static void put_with_cell(relaxation *r, const double *forces, const double *virial)
{
    const mlff_system *system = r->system;
    const double volume = mlff_system_volume(system), *f = r->deformation;
    double work[9], inverse[9], transposed[9], on_cell[9];
    for (int i = 0; i < system->n_atoms; i++)
        for (size_t c = 0; c < 3; c++)
            r->force[3 * (size_t)i + c] =
                forces[3 * (size_t)i] * f[c] + forces[3 * (size_t)i + 1] * f[3 + c] + forces[3 * (size_t)i + 2] * f[6 + c];
    r->largest_stress = 0;
    for (int k = 0; k < 9; k++) {
        work[k] = virial[k] - (k % 4 == 0 ? r->settings.pressure * volume : 0);
        r->largest_stress = fmax(r->largest_stress, fabs(work[k]) / volume);
    }
    matrix_invert(f, inverse);
    matrix_transpose(inverse, transposed);
    matrix_multiply(work, transposed, on_cell);
    for (int k = 0; k < 9; k++) r->force[3 * (size_t)system->n_atoms + (size_t)k] = on_cell[k] / system->n_atoms;
}

void relaxation_put(relaxation *r, double energy, const double *forces, const double *virial)
{
    const mlff_system *system = r->system;
    double largest = 0, mean_virial[9];
    if (r->symmetry.n > 1) {
        symmetry_average_forces(&r->symmetry, forces, r->mean_forces);
        symmetry_average_tensor(&r->symmetry, virial, mean_virial);
        forces = r->mean_forces;
        virial = mean_virial;
    }
    if (r->n_steps == 0) r->start_energy = energy;
    r->energy = energy;
    r->objective = energy + (r->settings.cell ? r->settings.pressure * mlff_system_volume(system) : 0);
    for (int i = 0; i < system->n_atoms; i++) {
        const double *f = forces + 3 * (size_t)i;
        const bool moves = is_free(system, i);
        if (moves) largest = fmax(largest, f[0] * f[0] + f[1] * f[1] + f[2] * f[2]);
        for (size_t c = 0; c < 3; c++) r->force[3 * (size_t)i + c] = moves ? f[c] : 0;
    }
    r->largest_force = sqrt(largest);
    if (r->settings.cell) put_with_cell(r, forces, virial);
}

bool relaxation_converged(const relaxation *r)
{
    return r->largest_force <= r->settings.force_limit && (!r->settings.cell || r->largest_stress <= r->settings.stress_limit);
}

void relaxation_limit(double *step, size_t n)
{
    double longest = 0;
    for (size_t k = 0; k + 2 < n; k += 3)
        longest = fmax(longest, step[k] * step[k] + step[k + 1] * step[k + 1] + step[k + 2] * step[k + 2]);
    longest = sqrt(longest);
    if (longest <= LONGEST_MOVE) return;
    for (size_t k = 0; k < n; k++) step[k] *= LONGEST_MOVE / longest;
}

double relaxation_work(const relaxation *r)
{
    return r->settings.optimizer == MLFF_LBFGS ? lbfgs_work(r) : (double)r->n;
}

void relaxation_step(relaxation *r)
{
    mlff_system *system = r->system;
    if (r->n_steps == 0) atoms_drop_label_pairs(system);
    if (r->settings.optimizer == MLFF_LBFGS)
        lbfgs_step(r);
    else
        fire_step(r);
    r->n_steps++;
    const size_t n_coordinates = 3 * (size_t)system->n_atoms;
    if (!r->settings.cell) {
        memcpy(system->positions, r->x, n_coordinates * sizeof *r->x);
        return;
    }
    double transposed[9];
    for (int k = 0; k < 9; k++) r->deformation[k] = r->x[n_coordinates + (size_t)k] / system->n_atoms;
    matrix_transpose(r->deformation, transposed);
    matrix_multiply(r->cell, transposed, system->cell);
    for (size_t k = 0; k < n_coordinates; k += 3)
        for (size_t c = 0; c < 3; c++)
            system->positions[k + c] =
                r->x[k] * transposed[c] + r->x[k + 1] * transposed[3 + c] + r->x[k + 2] * transposed[6 + c];
}
