// SPDX-License-Identifier: MIT
// dataset.c: labelled structures in memory: added one by one or from a file, checked on the way in.
#include "dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

static atomic_uint_fast64_t n_states;

void dataset_changed(mlff_dataset *dataset)
{
    dataset->state = atomic_fetch_add(&n_states, 1) + 1;
}

mlff_status mlff_dataset_create(mlff_dataset **dataset_out)
{
    mlff_dataset *dataset = base_alloc(1, sizeof *dataset, "a dataset");
    if (!dataset) return MLFF_ERR_MEMORY;
    dataset_changed(dataset);
    *dataset_out = dataset;
    return MLFF_OK;
}

static void frame_free(dataset_frame *frame)
{
    mlff_system_destroy(frame->system);
    base_free(frame->atom_energies);
    *frame = (dataset_frame){0};
}

void dataset_truncate(mlff_dataset *dataset, size_t n_frames)
{
    while (dataset->n_frames > n_frames) frame_free(&dataset->frames[--dataset->n_frames]);
    dataset_changed(dataset);
}

void mlff_dataset_destroy(mlff_dataset *dataset)
{
    if (!dataset) return;
    dataset_truncate(dataset, 0);
    energy_kinds_free(&dataset->kinds);
    base_free(dataset->frames);
    base_free(dataset);
}

// ---- checks

// Index of the first number that is not finite, or n.
static size_t first_not_finite(const double *values, size_t n)
{
    size_t k = 0;
    while (k < n && isfinite(values[k])) k++;
    return k;
}

// A label that is there is finite. `name` begins the error text.
static mlff_status check_labels(const mlff_system *system, const mlff_labels *labels, const char *name)
{
    const size_t n = (size_t)system->n_atoms;
    const bool has_energy = !isnan(labels->energy);
    size_t k;

    if (!has_energy && !labels->forces && !labels->stress && !labels->atom_energies)
        return mlff_fail(MLFF_ERR_VALUE,
                         "%s: no label (energy, forces, stress or atom energies); give those that were computed, or compute them "
                         "by mlff label TEACHER FILE",
                         name);
    if (has_energy && !isfinite(labels->energy))
        return mlff_fail(MLFF_ERR_VALUE, "%s: the energy is not finite; remove or correct it", name);
    if (labels->forces && (k = first_not_finite(labels->forces, 3 * n)) < 3 * n)
        return mlff_fail(MLFF_ERR_VALUE, "%s: the force on atom %zu is not finite; remove or correct it", name, k / 3);
    if (labels->atom_energies && (k = first_not_finite(labels->atom_energies, n)) < n)
        return mlff_fail(MLFF_ERR_VALUE, "%s: the energy of atom %zu is not finite; remove or correct it", name, k);
    if (labels->stress && first_not_finite(labels->stress, 6) < 6)
        return mlff_fail(MLFF_ERR_VALUE, "%s: the stress is not finite; remove or correct it", name);
    if (labels->stress && !(system->periodic[0] && system->periodic[1] && system->periodic[2]))
        return mlff_fail(MLFF_ERR_VALUE, "%s: a stress label needs three periodic axes; remove it, or set cell and pbc", name);
    if (!(labels->weight > 0 && isfinite(labels->weight)))
        return mlff_fail(MLFF_ERR_VALUE, "%s: a weight of %g in the loss; give a number above 0, usually 1", name,
                         labels->weight);
    return MLFF_OK;
}

static mlff_status check_frame(const mlff_system *system, const mlff_labels *labels, const char *name)
{
    mlff_status status = mlff_system_check(system, name);
    if (status != MLFF_OK) return status;
    if (isfinite(system->charge) && system->charge != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: a charge of %g e; models know neutral systems only, leave the frame out",
                         name, system->charge);
    return check_labels(system, labels, name);
}

// The labels that the system itself carries. A file's stress on a system that is not fully periodic is dropped: codes write it
// for molecules in a box, where no student has one.
static mlff_labels own_labels(const mlff_system *system)
{
    const bool has_stress = !isnan(system->label_stress[0]) && system->periodic[0] && system->periodic[1] && system->periodic[2];
    return (mlff_labels){.energy = system->label_energy,
                         .forces = system->label_forces,
                         .stress = has_stress ? system->label_stress : NULL,
                         .weight = 1};
}

// ---- adding

static mlff_status copy_numbers(const double *from, size_t n, const char *what, double **to)
{
    double *copy = NULL;
    if (from && !(copy = base_alloc(n, sizeof *copy, what))) return MLFF_ERR_MEMORY;
    if (from) memcpy(copy, from, n * sizeof *copy);
    base_free(*to);
    *to = copy;
    return MLFF_OK;
}

// A copy of the system with these labels in place of its own.
static mlff_status make_frame(const mlff_system *system, const mlff_labels *labels, dataset_frame *frame_out)
{
    mlff_status status = MLFF_OK;
    dataset_frame frame = {.weight = labels->weight};
    const size_t n = (size_t)system->n_atoms;

    MLFF_TRY(mlff_system_copy(system, &frame.system));
    frame.system->label_energy = labels->energy;
    MLFF_TRY(copy_numbers(labels->forces, 3 * n, "forces", &frame.system->label_forces));
    MLFF_TRY(copy_numbers(labels->atom_energies, n, "atom energies", &frame.atom_energies));
    frame.system->label_stress[0] = NAN;
    if (labels->stress) memcpy(frame.system->label_stress, labels->stress, sizeof frame.system->label_stress);
    *frame_out = frame;
    frame = (dataset_frame){0};
done:
    frame_free(&frame);
    return status;
}

static mlff_status add_frame(mlff_dataset *dataset, const mlff_system *system, const mlff_labels *labels, double probe_step)
{
    mlff_status status =
        base_grow(&dataset->frames, &dataset->capacity, dataset->n_frames + 1, sizeof *dataset->frames, "frames");
    if (status == MLFF_OK) status = make_frame(system, labels, &dataset->frames[dataset->n_frames]);
    if (status == MLFF_OK) dataset->frames[dataset->n_frames++].probe_step = probe_step;
    dataset_changed(dataset);
    return status;
}

static mlff_status add_named(mlff_dataset *dataset, const mlff_system *system, const mlff_labels *labels, const char *name)
{
    const mlff_labels taken = labels ? *labels : own_labels(system);
    mlff_status status = check_frame(system, &taken, name);
    return status == MLFF_OK ? add_frame(dataset, system, &taken, 0) : status;
}

mlff_status mlff_dataset_add(mlff_dataset *dataset, const mlff_system *system, const mlff_labels *labels)
{
    char name[48];
    snprintf(name, sizeof name, "structure %zu", dataset->n_frames);
    return add_named(dataset, system, labels, name);
}

mlff_status dataset_add_copy(mlff_dataset *dataset, const dataset_frame *frame)
{
    mlff_labels labels = own_labels(frame->system);
    labels.atom_energies = frame->atom_energies;
    labels.weight = frame->weight;
    return add_frame(dataset, frame->system, &labels, frame->probe_step);
}

mlff_status dataset_add_named(mlff_dataset *dataset, const mlff_system *system, const double *atom_energies, double weight,
                              const char *name)
{
    mlff_labels labels = own_labels(system);
    labels.atom_energies = atom_energies;
    labels.weight = weight;
    return add_named(dataset, system, &labels, name);
}

// The two structures of a probe differ in their positions alone, and by 2 h in all.
static mlff_status check_probe(const mlff_system *plus, const mlff_system *minus, double step, const char *name)
{
    if (!(step > 0 && isfinite(step))) return mlff_fail(MLFF_ERR_VALUE, "%s: a step of %g Å; it must be above 0", name, step);
    bool alike = plus->n_atoms == minus->n_atoms && memcmp(plus->periodic, minus->periodic, sizeof plus->periodic) == 0;
    for (int k = 0; alike && k < 9; k++) alike = plus->cell[k] == minus->cell[k];
    double square = 0;
    for (int i = 0; alike && i < plus->n_atoms; i++) {
        alike = plus->species[i] == minus->species[i];
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) square += pow(plus->positions[k] - minus->positions[k], 2);
    }
    if (!alike) return mlff_fail(MLFF_ERR_VALUE, "%s: its two structures differ in atoms or cell", name);
    // 1e-3: positions may have been through a file of six decimals, h is at least some 1e-3 Å
    if (!(fabs(sqrt(square) - 2 * step) <= 1e-3 * 2 * step))
        return mlff_fail(MLFF_ERR_VALUE,
                         "%s: its structures are %g Å apart, expected twice the step of %g Å along a direction of length 1", name,
                         sqrt(square), step);
    return MLFF_OK;
}

mlff_status mlff_dataset_add_probe(mlff_dataset *dataset, const mlff_system *plus, const mlff_system *minus, double step_angstrom,
                                   const mlff_labels *plus_labels, const mlff_labels *minus_labels)
{
    mlff_status status = MLFF_OK;
    const size_t before = dataset->n_frames;
    const mlff_system *systems[2] = {plus, minus};
    mlff_labels labels[2] = {plus_labels ? *plus_labels : own_labels(plus), minus_labels ? *minus_labels : own_labels(minus)};
    char name[64];

    for (int side = 0; side < 2; side++) {
        snprintf(name, sizeof name, "structure %zu (probe %c)", before + (size_t)side, side ? '-' : '+');
        MLFF_TRY(check_frame(systems[side], &labels[side], name));
        if (!labels[side].forces) MLFF_FAIL(MLFF_ERR_VALUE, "%s: no forces; a Hessian probe needs them on both sides", name);
    }
    snprintf(name, sizeof name, "probe of structures %zu and %zu", before, before + 1);
    MLFF_TRY(check_probe(plus, minus, step_angstrom, name));
    for (int side = 0; side < 2; side++) MLFF_TRY(add_frame(dataset, systems[side], &labels[side], side ? 0 : step_angstrom));
done:
    if (status != MLFF_OK) dataset_truncate(dataset, before);
    return status;
}

// ---- reading back

bool dataset_is_probe(const mlff_dataset *dataset, size_t frame)
{
    return dataset->frames[frame].probe_step > 0 || (frame > 0 && dataset->frames[frame - 1].probe_step > 0);
}

int64_t dataset_remove(mlff_dataset *dataset, const bool *remove)
{
    size_t n_kept = 0;
    for (size_t f = 0; f < dataset->n_frames;) {
        const size_t n = dataset->frames[f].probe_step > 0 ? 2 : 1;
        bool removed = false;
        for (size_t k = 0; k < n; k++) removed |= remove[f + k];
        for (size_t k = 0; k < n && !removed; k++, n_kept++) {
            const dataset_frame other = dataset->frames[n_kept];
            dataset->frames[n_kept] = dataset->frames[f + k];
            dataset->frames[f + k] = other;
        }
        f += n;
    }
    const int64_t n_removed = (int64_t)(dataset->n_frames - n_kept);
    dataset_truncate(dataset, n_kept);
    return n_removed;
}

int64_t mlff_dataset_units(const mlff_dataset *dataset)
{
    int64_t n = (int64_t)dataset->n_frames;
    for (size_t f = 0; f < dataset->n_frames; f++) n -= dataset->frames[f].probe_step > 0;
    return n;
}

int64_t mlff_dataset_size(const mlff_dataset *dataset)
{
    return (int64_t)dataset->n_frames;
}

mlff_status mlff_dataset_get(const mlff_dataset *dataset, int64_t index, mlff_system **system_out)
{
    if (index < 0 || index >= (int64_t)dataset->n_frames)
        return mlff_fail(MLFF_ERR_USAGE, "structure %" PRId64 " of a dataset of %zu", index, dataset->n_frames);
    return mlff_system_copy(dataset->frames[index].system, system_out);
}

void dataset_find_elements(const mlff_dataset *dataset, bool present[MLFF_MAX_ATOMIC_NUMBER + 1])
{
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const mlff_system *system = dataset->frames[f].system;
        for (int i = 0; i < system->n_atoms; i++) present[system->species[i]] = true;
    }
}

void dataset_elements_text(const bool present[MLFF_MAX_ATOMIC_NUMBER + 1], char *text, size_t text_bytes)
{
    size_t length = 0;
    text[0] = 0;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (present[z] && length < text_bytes)
            length += (size_t)snprintf(text + length, text_bytes - length, "%s%s", length ? "," : "", mlff_element_symbol(z));
}

void mlff_dataset_elements(const mlff_dataset *dataset, char *text, size_t text_bytes)
{
    bool present[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    dataset_find_elements(dataset, present);
    dataset_elements_text(present, text, text_bytes);
}
