// SPDX-License-Identifier: MIT
// train_batch.c: the loss of a batch and what the reverse pass needs of it.
//
// With B structures and N atoms, Δ prediction minus label, ω a structure's weight:
//   L = w_E/B Σ ω (ΔE/N_s^a)² + w_F/3N Σ ω ρ(|ΔF_i|) + w_S/9B Σ ω |Δσ|² + w_A/N Σ ω Δε_i² + w_H/3N Σ ω |Δy_i|²
// with ρ(s) = s², or 2δs − δ² beyond a Huber δ, and y = −(F₊ − F₋)/2h of a Hessian probe, so that
//   c_i = ∂L/∂ε_i     v_i = ∂L/∂F_i     B = (1/V) ∂L/∂σ
// where a probe adds −a/2h to v of its + frame and +a/2h to that of its − frame, a = ∂L/∂y.
#include "train_batch.h"

#include <math.h>
#include <string.h>

mlff_status train_batch_begin(train_batch *batch, const train_set *set, const int32_t *frames, int n_frames)
{
    mlff_status status = MLFF_OK;
    size_t n_atoms = 0, none;
    for (int k = 0; k < n_frames; k++) n_atoms += (size_t)(set->first_atom[frames[k] + 1] - set->first_atom[frames[k]]);
    if (n_atoms > INT32_MAX / 8)
        MLFF_FAIL(MLFF_ERR_LIMIT, "a batch of %d structures with %zu atoms is too large; choose a smaller batch size", n_frames,
                  n_atoms);
    if ((size_t)n_frames > batch->frame_capacity || !batch->first_atom) {
        size_t room = (size_t)n_frames + (size_t)n_frames / 4 + 1;
        MLFF_TRY((none = 0, base_grow(&batch->first_atom, &none, room + 1, sizeof *batch->first_atom, "a batch")));
        MLFF_TRY((none = 0, base_grow(&batch->strain, &none, room * 9, sizeof *batch->strain, "a batch")));
        MLFF_TRY((none = 0, base_grow(&batch->B, &none, room * 9, sizeof *batch->B, "a batch")));
        batch->frame_capacity = room;
    }
    if (n_atoms > batch->atom_capacity) {
        size_t room = n_atoms + n_atoms / 4 + 16;
        MLFF_TRY((none = 0, base_grow(&batch->energy, &none, room, sizeof *batch->energy, "a batch")));
        MLFF_TRY((none = 0, base_grow(&batch->forces, &none, room * 3, sizeof *batch->forces, "a batch")));
        MLFF_TRY((none = 0, base_grow(&batch->c, &none, room, sizeof *batch->c, "a batch")));
        MLFF_TRY((none = 0, base_grow(&batch->v, &none, room * 3, sizeof *batch->v, "a batch")));
        batch->atom_capacity = room;
    }
    batch->set = set;
    batch->frames = frames;
    batch->n_frames = n_frames;
    batch->n_atoms = (int)n_atoms;
    batch->total_frames = n_frames;
    batch->total_atoms = (int64_t)n_atoms;
    batch->first_atom[0] = 0;
    for (int k = 0; k < n_frames; k++)
        batch->first_atom[k + 1] = batch->first_atom[k] + (int32_t)(set->first_atom[frames[k] + 1] - set->first_atom[frames[k]]);
done:
    return status;
}

void train_batch_free(train_batch *batch)
{
    void *arrays[] = {batch->first_atom, batch->energy, batch->forces, batch->strain, batch->c, batch->v, batch->B};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    *batch = (train_batch){0};
}

void train_batch_set_gradient(train_batch *batch, int k, const double *pair_gradient)
{
    const train_set *set = batch->set;
    int64_t from = set->first_atom[batch->frames[k]], first_pair = set->first_pair[from];
    int n = batch->first_atom[k + 1] - batch->first_atom[k];
    double *forces = batch->forces + 3 * (size_t)batch->first_atom[k], *strain = batch->strain + 9 * (size_t)k;
    memset(forces, 0, sizeof(double) * 3 * (size_t)n);
    memset(strain, 0, sizeof(double) * 9);
    for (int i = 0; i < n; i++)
        for (int64_t p = set->first_pair[from + i]; p < set->first_pair[from + i + 1]; p++) {
            const double *g = pair_gradient + 3 * (p - first_pair), *r = set->vectors + 3 * p;
            double *other = forces + 3 * (size_t)set->neighbor[p];
            for (int a = 0; a < 3; a++) {
                forces[3 * (size_t)i + a] += g[a];
                other[a] -= g[a];
                for (int b = 0; b < 3; b++) strain[3 * a + b] += g[a] * r[b];
            }
        }
}

void train_batch_edge_tangent(const train_batch *batch, int k, double *w)
{
    const train_set *set = batch->set;
    int64_t from = set->first_atom[batch->frames[k]], first_pair = set->first_pair[from];
    const double *v = batch->v + 3 * (size_t)batch->first_atom[k], *B = batch->B + 9 * (size_t)k;
    for (int i = 0; i < batch->first_atom[k + 1] - batch->first_atom[k]; i++)
        for (int64_t p = set->first_pair[from + i]; p < set->first_pair[from + i + 1]; p++) {
            const double *r = set->vectors + 3 * p, *v_j = v + 3 * (size_t)set->neighbor[p];
            for (int a = 0; a < 3; a++)
                w[3 * (p - first_pair) + a] =
                    v[3 * (size_t)i + a] - v_j[a] + B[3 * a] * r[0] + B[3 * a + 1] * r[1] + B[3 * a + 2] * r[2];
        }
}

// ---- terms of the loss: each adds to c, v or B of frame k and returns its share -----------------------------------

static double energy_term(train_batch *batch, int k, const mlff_loss *loss, train_sums *sums)
{
    const train_set *set = batch->set;
    int32_t frame = batch->frames[k];
    int begin = batch->first_atom[k], end = batch->first_atom[k + 1], n = end - begin;
    if (isnan(set->energy[frame])) return 0;
    double energy = 0, per = loss->energy_per_atom ? (double)n : 1.0;
    for (int i = begin; i < end; i++) energy += batch->energy[i];
    double delta = energy - set->energy[frame], factor = loss->energy_weight * set->weight[frame] / (double)batch->total_frames;
    for (int i = begin; i < end; i++) batch->c[i] += 2 * factor * delta / (per * per);
    sums->n_energies++;
    sums->energy_absolute += fabs(delta) / n;
    sums->energy_square += delta * delta / ((double)n * n);
    return factor * delta * delta / (per * per);
}

static double atom_energies_term(train_batch *batch, int k, const mlff_loss *loss)
{
    const train_set *set = batch->set;
    int32_t frame = batch->frames[k];
    if (!set->atom_energies || isnan(set->atom_energies[set->first_atom[frame]])) return 0;
    const double *label = set->atom_energies + set->first_atom[frame];
    double sum = 0, factor = loss->atom_energies_weight * set->weight[frame] / (double)batch->total_atoms;
    for (int i = batch->first_atom[k]; i < batch->first_atom[k + 1]; i++) {
        double delta = batch->energy[i] - label[i - batch->first_atom[k]];
        batch->c[i] += 2 * factor * delta;
        sum += factor * delta * delta;
    }
    return sum;
}

static double forces_term(train_batch *batch, int k, const mlff_loss *loss, train_sums *sums)
{
    const train_set *set = batch->set;
    int32_t frame = batch->frames[k];
    const double *label = set->forces + 3 * set->first_atom[frame];
    const int32_t *species = set->species + set->first_atom[frame];
    int n = batch->first_atom[k + 1] - batch->first_atom[k];
    double sum = 0, limit = loss->huber_forces;
    double factor = loss->forces_weight * set->weight[frame] / (3.0 * (double)batch->total_atoms);
    for (int i = 0; i < n; i++) {
        const double *force = batch->forces + 3 * (size_t)(batch->first_atom[k] + i);
        double *v = batch->v + 3 * (size_t)(batch->first_atom[k] + i), delta[3], square = 0;
        if (isnan(label[3 * (size_t)i])) continue;
        for (int a = 0; a < 3; a++) {
            delta[a] = force[a] - label[3 * (size_t)i + a];
            square += delta[a] * delta[a];
            sums->force_absolute += fabs(delta[a]);
            sums->force_by_element[species[i]] += fabs(delta[a]);
        }
        sums->n_by_element[species[i]] += 3;
        sums->n_force_components += 3;
        sums->force_square += square;
        double size = sqrt(square), slope = 2 * factor;
        if (limit > 0 && size > limit) {
            slope *= limit / size;
            sum += factor * (2 * limit * size - limit * limit);
        } else {
            sum += factor * square;
        }
        for (int a = 0; a < 3; a++) v[a] += slope * delta[a];
    }
    return sum;
}

static double stress_term(train_batch *batch, int k, const mlff_loss *loss, train_sums *sums)
{
    const train_set *set = batch->set;
    int32_t frame = batch->frames[k];
    const double *label = set->stress + 9 * (size_t)frame, *strain = batch->strain + 9 * (size_t)k;
    double volume = set->volume[frame], sum = 0;
    if (isnan(label[0]) || isnan(volume)) return 0;
    double factor = loss->stress_weight * set->weight[frame] / (9.0 * (double)batch->total_frames);
    for (int a = 0; a < 9; a++) {
        double delta = strain[a] / volume - label[a];
        batch->B[9 * (size_t)k + a] += 2 * factor * delta / volume;
        sum += factor * delta * delta;
        if (a / 3 <= a % 3) sums->stress_absolute += fabs(delta);
    }
    sums->n_stresses++;
    return sum;
}

// Frames k and k + 1 are a probe's + and −.
static double hessian_term(train_batch *batch, int k, const mlff_loss *loss)
{
    const train_set *set = batch->set;
    int32_t plus = batch->frames[k], minus = batch->frames[k + 1];
    if (!set->probe_step || !(set->probe_step[plus] > 0) || minus != plus + 1) return 0;
    const double *label_plus = set->forces + 3 * set->first_atom[plus];
    const double *label_minus = set->forces + 3 * set->first_atom[minus];
    int n = batch->first_atom[k + 1] - batch->first_atom[k];
    double per_step = 0.5 / set->probe_step[plus], sum = 0;
    double factor = loss->hessian_weight * set->weight[plus] / (3.0 * (double)batch->total_atoms);
    size_t at_plus = 3 * (size_t)batch->first_atom[k], at_minus = 3 * (size_t)batch->first_atom[k + 1];
    for (size_t a = 0; a < 3 * (size_t)n; a++) {
        double student = -per_step * (batch->forces[at_plus + a] - batch->forces[at_minus + a]);
        double teacher = -per_step * (label_plus[a] - label_minus[a]), delta = student - teacher;
        if (isnan(teacher)) continue;
        batch->v[at_plus + a] -= 2 * factor * delta * per_step;
        batch->v[at_minus + a] += 2 * factor * delta * per_step;
        sum += factor * delta * delta;
    }
    return sum;
}

double train_batch_loss(train_batch *batch, int begin, int end, const mlff_loss *loss, train_sums *sums)
{
    double sum = 0;
    int first = batch->first_atom[begin], n_atoms = batch->first_atom[end] - first;
    memset(batch->c + first, 0, sizeof(double) * (size_t)n_atoms);
    memset(batch->v + 3 * (size_t)first, 0, sizeof(double) * 3 * (size_t)n_atoms);
    memset(batch->B + 9 * (size_t)begin, 0, sizeof(double) * 9 * (size_t)(end - begin));
    for (int k = begin; k < end; k++) {
        sum += energy_term(batch, k, loss, sums) + atom_energies_term(batch, k, loss) + forces_term(batch, k, loss, sums) +
               stress_term(batch, k, loss, sums);
        if (k + 1 < end) sum += hessian_term(batch, k, loss);
    }
    sums->n_frames += end - begin;
    sums->n_atoms += n_atoms;
    return sum;
}

void train_sums_add(train_sums *sums, const train_sums *more)
{
    sums->loss += more->loss;
    sums->n_steps += more->n_steps;
    sums->n_frames += more->n_frames;
    sums->n_atoms += more->n_atoms;
    sums->energy_absolute += more->energy_absolute;
    sums->energy_square += more->energy_square;
    sums->force_absolute += more->force_absolute;
    sums->force_square += more->force_square;
    sums->stress_absolute += more->stress_absolute;
    sums->n_energies += more->n_energies;
    sums->n_force_components += more->n_force_components;
    sums->n_stresses += more->n_stresses;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        sums->force_by_element[z] += more->force_by_element[z];
        sums->n_by_element[z] += more->n_by_element[z];
    }
    sums->finite = sums->finite && more->finite;
}
