// SPDX-License-Identifier: MIT
// trainer_data.c: the structures of a dataset as a trainer takes them, with a warning of missing labels; their hash.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/data/dataset.h"
#include "train_set.h"
#include "trainer.h"

// FNV-1a, of 64-bit words and of the bytes that are left.
static void hash_bytes(uint64_t *hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    size_t k = 0;
    for (; k + sizeof(uint64_t) <= bytes; k += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, byte + k, sizeof word);
        *hash = (*hash ^ word) * 1099511628211u;
    }
    for (; k < bytes; k++) *hash = (*hash ^ byte[k]) * 1099511628211u;
}

uint64_t trainer_hash(const train_set *set)
{
    uint64_t hash = 14695981039346656037u;
    const size_t frames = (size_t)set->n_frames, atoms = (size_t)set->n_atoms, pairs = (size_t)set->n_pairs;
    hash_bytes(&hash, set->first_atom, sizeof *set->first_atom * (frames + 1));
    hash_bytes(&hash, set->species, sizeof *set->species * atoms);
    hash_bytes(&hash, set->neighbor, sizeof *set->neighbor * pairs);
    hash_bytes(&hash, set->vectors, sizeof *set->vectors * 3 * pairs);
    hash_bytes(&hash, set->energy, sizeof *set->energy * frames);
    hash_bytes(&hash, set->forces, sizeof *set->forces * 3 * atoms);
    hash_bytes(&hash, set->stress, sizeof *set->stress * 9 * frames);
    hash_bytes(&hash, set->weight, sizeof *set->weight * frames);
    if (set->probe_step) hash_bytes(&hash, set->probe_step, sizeof *set->probe_step * frames);
    if (set->atom_energies) hash_bytes(&hash, set->atom_energies, sizeof *set->atom_energies * atoms);
    return hash;
}

// Whether the loss has a term of this frame.
static bool is_learned(const dataset_frame *frame, const mlff_loss *loss)
{
    const mlff_system *system = frame->system;
    return (loss->energy_weight > 0 && !isnan(system->label_energy)) || (loss->forces_weight > 0 && system->label_forces) ||
           (loss->stress_weight > 0 && !isnan(system->label_stress[0])) ||
           (loss->atom_energies_weight > 0 && frame->atom_energies) || (loss->hessian_weight > 0 && frame->probe_step > 0);
}

static bool has_constrained(const mlff_system *system)
{
    for (int i = 0; system->label_forces && system->fixed && i < system->n_atoms; i++)
        if (train_set_is_constrained(system, system->label_forces, i)) return true;
    return false;
}

// A loss of forces needs some labels of forces; a warning counts the structures without a label. Probes have forces alone.
static mlff_status check_labels(const mlff_dataset *data, const mlff_loss *loss, bool is_validation)
{
    const char *const of = is_validation ? "structures for validation" : "structures to train on";
    size_t n = 0, n_energies = 0, n_forces = 0, n_learned = 0, n_cells = 0, n_stresses = 0, n_constrained = 0;
    for (size_t k = 0; k < data->n_frames; k++) {
        n_learned += is_learned(&data->frames[k], loss);
        if (data->frames[k].probe_step > 0) {
            k++;
            continue;
        }
        const mlff_system *system = data->frames[k].system;
        n++;
        n_energies += !isnan(system->label_energy);
        n_forces += system->label_forces != NULL;
        n_constrained += has_constrained(system);
        n_cells += system->periodic[0] && system->periodic[1] && system->periodic[2];
        n_stresses += !isnan(system->label_stress[0]);
    }
    if (loss->forces_weight > 0 && n > 0 && n_forces == 0)
        return mlff_fail(
            MLFF_ERR_VALUE,
            "the %s have no forces; give forces (the columns forces of extended XYZ), label them (mlff label), or train on "
            "energies alone with a weight of forces of 0",
            of);
    if (n > 0 && n_learned == 0)
        return mlff_fail(MLFF_ERR_VALUE,
                         "the %s have none of the labels whose weights in the loss are above 0: energy %g, forces %g, stress %g; "
                         "raise the weight of labels that they have",
                         of, loss->energy_weight, loss->forces_weight, loss->stress_weight);
    if (loss->forces_weight > 0 && n_forces < n)
        base_warn("%zu of %zu %s %s no forces: of these energies alone count", n - n_forces, n, of,
                  n - n_forces == 1 ? "has" : "have");
    if (loss->forces_weight > 0 && n_constrained > 0)
        base_warn(
            "%zu of %zu %s %s fixed atoms with forces of 0, as constraints make them, which do not count; label with forces "
            "as they are (ASE: atoms.get_forces(apply_constraint=False))",
            n_constrained, n, of, n_constrained == 1 ? "has" : "have");
    if (loss->energy_weight > 0 && n_energies < n)
        base_warn("%zu of %zu %s %s no energy, or nan: of these forces alone count", n - n_energies, n, of,
                  n - n_energies == 1 ? "has" : "have");
    if (loss->stress_weight > 0 && n_cells > 0 && n_stresses == 0 &&
        !is_validation) // in the same words for each training of a run
        base_warn(
            "no structure that repeats along three axes has a stress: the student's pressure is not trained, and its volumes "
            "and elastic constants may be wrong; add labels with a stress, or take a teacher that has one");
    if (loss->stress_weight > 0 && n_stresses > 0 && n_stresses < n_cells)
        base_warn("%zu of %zu %s with a cell %s no stress, or nan: of these the other labels alone count", n_cells - n_stresses,
                  n_cells, of, n_cells - n_stresses == 1 ? "has" : "have");
    return MLFF_OK;
}

// ---- another zero of the energy

// Of different functionals; phases of a crystal differ by less.
#define LEAST_SHIFT 0.3 // eV/atom
enum { FEWEST = 3 };    // structures that tell how far they scatter
#define LEAST_SHIFT_IN_SPREADS 20.0

typedef struct atoms_energy {
    uint64_t atoms;
    double energy; // eV/atom, without the elements'
} atoms_energy;

static int by_atoms(const void *a, const void *b)
{
    const atoms_energy *x = a, *y = b;
    return (x->atoms > y->atoms) - (x->atoms < y->atoms);
}

static int by_atoms_and_energy(const void *a, const void *b)
{
    const atoms_energy *x = a, *y = b;
    if (x->atoms != y->atoms) return by_atoms(a, b);
    return (x->energy > y->energy) - (x->energy < y->energy);
}

// The medians of the structures of the same atoms, in place of these; their number. *spread_out: the median distance from them.
static size_t take_medians(atoms_energy *all, size_t n, double *scratch, double *spread_out)
{
    size_t n_medians = 0;
    qsort(all, n, sizeof *all, by_atoms_and_energy);
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && all[end].atoms == all[begin].atoms; end++) continue;
        const atoms_energy median = all[(begin + end) / 2];
        for (size_t k = begin; k < end; k++) scratch[k] = fabs(all[k].energy - median.energy);
        all[n_medians++] = median;
    }
    base_sort(scratch, n);
    *spread_out = n > 0 ? scratch[n / 2] : 0;
    return n_medians;
}

static size_t list_trained(const mlff_trainer *t, atoms_energy *all)
{
    const train_set *set = t->set;
    size_t n = 0;
    for (int64_t f = 0; f < set->n_frames; f++) {
        const int64_t first = set->first_atom[f];
        const int n_atoms = (int)(set->first_atom[f + 1] - first);
        if (isnan(set->energy[f])) continue;
        all[n++] =
            (atoms_energy){dataset_atoms_key(set->species + first, n_atoms), t->model->energy_unit * set->energy[f] / n_atoms};
    }
    return n;
}

// Distances of the energies for validation from the medians of the same atoms; their number.
static size_t list_shifts(const mlff_trainer *t, const mlff_dataset *validation, const atoms_energy *medians, size_t n_medians,
                          double *shifts)
{
    size_t n = 0;
    for (size_t f = 0; f < validation->n_frames; f++) {
        const mlff_system *system = validation->frames[f].system;
        const atoms_energy own = {.atoms = dataset_atoms_key(system->species, system->n_atoms)};
        const atoms_energy *median = bsearch(&own, medians, n_medians, sizeof own, by_atoms);
        double energy = system->label_energy;
        for (int i = 0; i < system->n_atoms; i++) energy -= t->model->offset[system->species[i]];
        if (median && !isnan(energy)) shifts[n++] = energy / system->n_atoms - median->energy;
    }
    return n;
}

mlff_status trainer_compare_zeros(const mlff_trainer *t, const mlff_dataset *validation)
{
    const size_t n_trained = (size_t)t->set->n_frames,
                 n_most = n_trained > validation->n_frames ? n_trained : validation->n_frames;
    atoms_energy *all = base_alloc(n_trained, sizeof *all, "energies");
    double *numbers = base_alloc(n_most, sizeof *numbers, "energies"), spread = 0;
    mlff_status status = all && numbers ? MLFF_OK : MLFF_ERR_MEMORY;
    if (status != MLFF_OK) goto done;
    const size_t n_medians = take_medians(all, list_trained(t, all), numbers, &spread);
    const size_t n = list_shifts(t, validation, all, n_medians, numbers);
    base_sort(numbers, n);
    if (n < FEWEST) goto done;
    const double shift = numbers[n / 2];
    for (size_t k = 0; k < n; k++) numbers[k] = fabs(numbers[k] - shift);
    base_sort(numbers, n);
    if (fabs(shift) > fmax(LEAST_SHIFT, LEAST_SHIFT_IN_SPREADS * fmax(spread, numbers[n / 2])))
        base_warn("the energies of the structures for validation are %.4g eV/atom %s those of the same atoms that are trained on "
                  "(median), as by another zero of the energy or another method: no student can have both",
                  fabs(shift), shift > 0 ? "above" : "below");
done:
    base_free(all);
    base_free(numbers);
    return status;
}

// ---- the set

mlff_status trainer_build_set(const mlff_model *model, const mlff_loss *loss, const mlff_dataset *data,
                              const mlff_dataset *nearer, bool is_validation, int n_threads, train_set **set_out)
{
    mlff_status status = MLFF_OK;
    const size_t n = data->n_frames + (nearer ? nearer->n_frames : 0);
    const mlff_system **systems = base_alloc(n, sizeof *systems, "structures");
    mlff_labels *labels = base_alloc(n, sizeof *labels, "labels");
    double *probe_steps = base_alloc(n, sizeof *probe_steps, "labels");
    if (!systems || !labels || !probe_steps) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    if (data->n_frames == 0) MLFF_FAIL(MLFF_ERR_VALUE, "the dataset holds no structure");
    MLFF_TRY(check_labels(data, loss, is_validation));
    for (size_t k = 0; k < n; k++) {
        const dataset_frame *frame = k < data->n_frames ? &data->frames[k] : &nearer->frames[k - data->n_frames];
        const mlff_system *system = frame->system;
        systems[k] = system;
        labels[k] = (mlff_labels){.energy = system->label_energy,
                                  .forces = system->label_forces,
                                  .stress = isnan(system->label_stress[0]) ? NULL : system->label_stress,
                                  .atom_energies = frame->atom_energies,
                                  .weight = frame->weight};
        probe_steps[k] = frame->probe_step;
    }
    MLFF_TRY(train_set_build(model, systems, labels, probe_steps, (int64_t)n, n_threads, set_out));
done:
    base_free(systems);
    base_free(labels);
    base_free(probe_steps);
    return status;
}
