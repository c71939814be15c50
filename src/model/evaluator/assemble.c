// SPDX-License-Identifier: MIT
// assemble.c: sums of a backend's outputs: pair gradients into forces and virials, atom energies into energies; and units.
#include "assemble.h"

#include <math.h>
#include <string.h>

#include "base/voigt.h"

// ---- forces -----------------------------------------------------------------------------------------------------

// F_i = Σ g over the row of i − Σ g over the pairs that end in i.
static void forces_of_pairs(const model_graph *graph, const double *g, double unit, double *forces)
{
    if (graph->reverse) {
        for (int i = 0; i < graph->n_atoms; i++) {
            double f[3] = {0, 0, 0};
            for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
                const double *a = g + 3 * (size_t)p, *b = g + 3 * (size_t)graph->reverse[p];
                for (int c = 0; c < 3; c++) f[c] += a[c] - b[c];
            }
            for (int c = 0; c < 3; c++) forces[3 * (size_t)i + c] = unit * f[c];
        }
        return;
    }
    memset(forces, 0, sizeof(double) * 3 * (size_t)graph->n_atoms);
    for (int i = 0; i < graph->n_atoms; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++)
            for (int c = 0; c < 3; c++) {
                forces[3 * (size_t)i + c] += unit * g[3 * (size_t)p + c];
                forces[3 * (size_t)graph->neighbor[p] + c] -= unit * g[3 * (size_t)p + c];
            }
}

// ---- stress -----------------------------------------------------------------------------------------------------

bool assemble_has_stress(const mlff_batch *batch, int system)
{
    const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * (size_t)system : NULL;
    return batch->cells && periodic && periodic[0] && periodic[1] && periodic[2];
}

// Å³; NaN for a system without stress.
static double volume_of(const mlff_batch *batch, int system)
{
    if (!assemble_has_stress(batch, system)) return NAN;
    const double *h = batch->cells + 9 * (size_t)system;
    return fabs(h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) + h[2] * (h[3] * h[7] - h[4] * h[6]));
}

void assemble_stress(const mlff_batch *batch, int system, const double virial[9], double stress[6])
{
    static const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
    const double volume = volume_of(batch, system);
    for (int k = 0; k < 6; k++) {
        const int a = voigt[k][0], b = voigt[k][1];
        stress[k] = -0.5 * (virial[3 * a + b] + virial[3 * b + a]) / volume;
    }
}

void assemble_virial(const mlff_batch *batch, int system, const double stress[6], double virial[9])
{
    voigt_virial(volume_of(batch, system), stress, virial);
}

// Virial −dE/dε = −Σ g ⊗ r of each system, and from it the stress (dE/dε)/V.
static void virials_of_pairs(const mlff_batch *batch, const model_graph *graph, const double *g, double unit,
                             const mlff_results *results)
{
    for (int s = 0; s < batch->n_systems; s++) {
        double virial[9] = {0};
        for (int p = graph->first[batch->first_atom[s]]; p < graph->first[batch->first_atom[s + 1]]; p++)
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) virial[3 * a + b] -= unit * g[3 * (size_t)p + a] * graph->vectors[3 * (size_t)p + b];
        if (results->virials) memcpy(results->virials + 9 * (size_t)s, virial, sizeof virial);
        if (results->stresses) assemble_stress(batch, s, virial, results->stresses + 6 * (size_t)s);
    }
}

// Symmetric part of −g ⊗ r of each pair, half to each of its atoms: a pair across two domains adds the same wherever its row is.
static void virials_of_atoms(const model_graph *graph, const double *g, double unit, double *virials)
{
    memset(virials, 0, sizeof(double) * 9 * (size_t)graph->n_atoms);
    for (int i = 0; i < graph->n_atoms; i++)
        for (int p = graph->first[i]; p < graph->first[i + 1]; p++) {
            const double *gradient = g + 3 * (size_t)p, *r = graph->vectors + 3 * (size_t)p;
            double *own = virials + 9 * (size_t)i, *other = virials + 9 * (size_t)graph->neighbor[p];
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) {
                    const double quarter = -0.25 * unit * (gradient[a] * r[b] + gradient[b] * r[a]);
                    own[3 * a + b] += quarter;
                    other[3 * a + b] += quarter;
                }
        }
}

static void direct_stresses(const mlff_batch *batch, const double *stress, double unit, double *stresses)
{
    for (int s = 0; s < batch->n_systems; s++) {
        bool periodic = isfinite(volume_of(batch, s));
        for (int k = 0; k < 6; k++) stresses[6 * (size_t)s + k] = periodic ? unit * stress[6 * (size_t)s + k] : NAN;
    }
}

// ---- energies ---------------------------------------------------------------------------------------------------

// The model's part and the offsets, some 10⁴ times larger, are summed separately.
static void energies(const mlff_model *model, const mlff_batch *batch, const model_outputs *outputs, const mlff_results *results)
{
    for (int s = 0; s < batch->n_systems; s++) {
        double energy = outputs->system_energy ? outputs->system_energy[s] : 0, offset = 0;
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) {
            bool owned = !batch->owned || batch->owned[i];
            double own_offset = owned ? model->offset[batch->species[i]] : 0.0;
            offset += own_offset;
            if (!outputs->atom_energy) continue;
            energy += outputs->atom_energy[i];
            if (results->atom_energies) results->atom_energies[i] = outputs->atom_energy[i] * model->energy_unit + own_offset;
        }
        if (results->energies) results->energies[s] = energy * model->energy_unit + offset;
    }
}

void assemble_results(const mlff_model *model, const mlff_batch *batch, const model_graph *graph, const model_outputs *outputs,
                      const mlff_results *results)
{
    const double force_unit = model->energy_unit / model->length_unit, area = model->length_unit * model->length_unit;
    if (results->forces && outputs->pair_gradient) forces_of_pairs(graph, outputs->pair_gradient, force_unit, results->forces);
    if (results->forces && outputs->atom_force)
        for (size_t k = 0; k < 3 * (size_t)graph->n_atoms; k++) results->forces[k] = force_unit * outputs->atom_force[k];
    if ((results->stresses || results->virials) && outputs->pair_gradient)
        virials_of_pairs(batch, graph, outputs->pair_gradient, force_unit, results);
    if (results->atom_virials) virials_of_atoms(graph, outputs->pair_gradient, force_unit, results->atom_virials);
    if (results->stresses && outputs->stress) direct_stresses(batch, outputs->stress, force_unit / area, results->stresses);
    if (results->energies || results->atom_energies) energies(model, batch, outputs, results);
    for (int i = 0; results->force_errors && i < graph->n_atoms; i++)
        results->force_errors[i] = force_unit * outputs->force_error[i];
}

// ---- check ------------------------------------------------------------------------------------------------------

// x · 0 is 0 for every finite x, and NaN for all else.
double assemble_zero_if_finite(const double *x, size_t n)
{
    double sum[4] = {0};
    size_t i = 0;
    for (; x && i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += x[i + (size_t)k] * 0.0;
    for (; x && i < n; i++) sum[0] += x[i] * 0.0;
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static bool atom_is_finite(const model_graph *graph, const model_outputs *outputs, int i)
{
    const size_t first = (size_t)graph->first[i], n = (size_t)graph->first[i + 1] - first;
    double sum = assemble_zero_if_finite(outputs->atom_energy ? outputs->atom_energy + i : NULL, 1);
    sum += assemble_zero_if_finite(outputs->atom_force ? outputs->atom_force + 3 * (size_t)i : NULL, 3);
    sum += assemble_zero_if_finite(outputs->force_error ? outputs->force_error + i : NULL, 1);
    sum += assemble_zero_if_finite(outputs->pair_gradient ? outputs->pair_gradient + 3 * first : NULL, 3 * n);
    return sum == 0.0;
}

mlff_status assemble_check_finite(const mlff_batch *batch, const model_graph *graph, const model_outputs *outputs)
{
    const size_t n_atoms = (size_t)graph->n_atoms, n_systems = (size_t)graph->n_systems;
    static const char advice[] = "atoms too close, or weights too large for float32; look at the structure, try precision "
                                 "float64, in MD halve the timestep";
    double sum = assemble_zero_if_finite(outputs->atom_energy, n_atoms) +
                 assemble_zero_if_finite(outputs->system_energy, n_systems) +
                 assemble_zero_if_finite(outputs->pair_gradient, 3 * (size_t)graph->n_pairs) +
                 assemble_zero_if_finite(outputs->atom_force, 3 * n_atoms) +
                 assemble_zero_if_finite(outputs->stress, 6 * n_systems) + assemble_zero_if_finite(outputs->force_error, n_atoms);
    if (sum == 0.0) return MLFF_OK;
    for (int s = 0; s < batch->n_systems; s++)
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++)
            if (!atom_is_finite(graph, outputs, i))
                return mlff_fail(MLFF_ERR_VALUE, "energy or force of atom %d of system %d is not finite: %s",
                                 i - batch->first_atom[s], s, advice);
    return mlff_fail(MLFF_ERR_VALUE, "energy or stress of a system is not finite: %s", advice);
}
