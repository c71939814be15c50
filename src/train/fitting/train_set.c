// SPDX-License-Identifier: MIT
// train_set.c: graphs of labelled structures in the model's units.
#include "train_set.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "atoms/neighbors.h"
#include "base/voigt.h"
#include "device/team.h"
#include "model/evaluator/core_repulsion.h"

// The pairs of some consecutive frames, which one thread lists; its memory is used again for the next.
typedef struct neighbor_lists {
    mlff_neighbors *neighbors;
    int64_t begin, end; // frames
    size_t n_atoms, n_pairs;
    int32_t *neighbor, *reverse; // [n_pairs]
    double *vectors;             // [n_pairs][3]
    int64_t *row_ends;           // [n_atoms] where the rows of the frames' atoms end
    size_t neighbor_capacity, reverse_capacity, vector_capacity, row_capacity;
    int64_t begin_pair; // in the set
    mlff_status status;
    char cause[600]; // errors have texts in the thread where they arise
} neighbor_lists;

enum { FRAMES_AT_ONCE = 64 };

// A set while it grows; the set's own pointers are constant and are filled at the end.
typedef struct builder {
    const mlff_model *model;
    const mlff_system *const *systems;
    const mlff_labels *labels;
    const double *probe_steps;
    neighbor_lists *lists; // [n_lists]
    int n_lists, n_threads;
    train_set *set;
    int64_t *first_atom, *first_pair;
    int32_t *species, *neighbor, *reverse;
    double *vectors, *volume, *energy, *forces, *stress, *atom_energies, *weight, *probe_step;
    size_t neighbor_capacity, reverse_capacity, vector_capacity;
} builder;

void train_set_free(train_set *set)
{
    if (!set) return;
    const void *arrays[] = {set->first_atom,    set->first_pair, set->species,   set->neighbor, set->reverse,
                            set->vectors,       set->volume,     set->energy,    set->forces,   set->stress,
                            set->atom_energies, set->weight,     set->probe_step};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free((void *)arrays[a]);
    base_free(set);
}

bool train_set_is_constrained(const mlff_system *system, const double *forces, int atom)
{
    const double *f = forces + 3 * (size_t)atom;
    return system->fixed && system->fixed[atom] && f[0] == 0 && f[1] == 0 && f[2] == 0;
}

static void *allocate(size_t count, size_t size, mlff_status *status)
{
    void *array = *status == MLFF_OK ? base_alloc(count, size, "training data") : NULL;
    if (!array) *status = MLFF_ERR_MEMORY;
    return array;
}

// Arrays whose length does not depend on the number of pairs.
static mlff_status allocate_arrays(builder *b, bool with_atom_energies, bool with_probes)
{
    mlff_status status = MLFF_OK;
    size_t frames = (size_t)b->set->n_frames, atoms = (size_t)b->set->n_atoms;
    b->first_atom = allocate(frames + 1, sizeof *b->first_atom, &status);
    b->first_pair = allocate(atoms + 1, sizeof *b->first_pair, &status);
    b->species = allocate(atoms, sizeof *b->species, &status);
    b->volume = allocate(frames, sizeof(double), &status);
    b->energy = allocate(frames, sizeof(double), &status);
    b->forces = allocate(3 * atoms, sizeof(double), &status);
    b->stress = allocate(9 * frames, sizeof(double), &status);
    b->weight = allocate(frames, sizeof(double), &status);
    if (with_atom_energies) b->atom_energies = allocate(atoms, sizeof(double), &status);
    if (with_probes) b->probe_step = allocate(frames, sizeof(double), &status);
    return status;
}

// The set owns what the builder has, whole or not.
static void hand_over(builder *b)
{
    train_set *set = b->set;
    set->first_atom = b->first_atom;
    set->first_pair = b->first_pair;
    set->species = b->species;
    set->neighbor = b->neighbor;
    set->reverse = b->reverse;
    set->vectors = b->vectors;
    set->volume = b->volume;
    set->energy = b->energy;
    set->forces = b->forces;
    set->stress = b->stress;
    set->atom_energies = b->atom_energies;
    set->weight = b->weight;
    set->probe_step = b->probe_step;
}

static mlff_status check_elements(const mlff_model *model, const mlff_system *system, int64_t frame)
{
    for (int i = 0; i < system->n_atoms; i++) {
        int z = system->species[i];
        if (z >= 1 && z <= MLFF_MAX_ATOMIC_NUMBER && model->known[z]) continue;
        const char *symbol = mlff_element_symbol(z);
        return mlff_fail(MLFF_ERR_ELEMENT,
                         "frame %" PRId64 ": atom %d is %s (atomic number %d), which model '%s' does not know; leave the frame "
                         "out or create a model with this element",
                         frame, i, symbol ? symbol : "no element", z, model->name);
    }
    return MLFF_OK;
}

// ---- pairs

static mlff_status list_pairs(neighbor_lists *lists, const mlff_system *system, int64_t frame, double length_unit)
{
    mlff_status status = MLFF_OK;
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_pairs pairs;
    const double *vectors;
    const int32_t *reverse;

    mlff_batch_from_system(system, first_atom, &batch);
    status = mlff_neighbors_update(lists->neighbors, &batch);
    if (status != MLFF_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", mlff_last_error());
        return mlff_fail(status, "frame %" PRId64 ": %s", frame, reason);
    }
    mlff_neighbors_get(lists->neighbors, &pairs, &vectors, &reverse);
    const size_t n = (size_t)pairs.first[system->n_atoms], at = lists->n_pairs, end = at + n + 1;
    const size_t n_first = lists->n_atoms + (size_t)system->n_atoms;
    MLFF_TRY(base_grow(&lists->neighbor, &lists->neighbor_capacity, end, sizeof *lists->neighbor, "training data"));
    MLFF_TRY(base_grow(&lists->reverse, &lists->reverse_capacity, end, sizeof *lists->reverse, "training data"));
    MLFF_TRY(base_grow(&lists->vectors, &lists->vector_capacity, 3 * end, sizeof *lists->vectors, "training data"));
    MLFF_TRY(base_grow(&lists->row_ends, &lists->row_capacity, n_first, sizeof *lists->row_ends, "training data"));
    memcpy(lists->neighbor + at, pairs.neighbor, sizeof *lists->neighbor * n);
    memcpy(lists->reverse + at, reverse, sizeof *lists->reverse * n);
    for (size_t k = 0; k < 3 * n; k++) lists->vectors[3 * at + k] = vectors[k] / length_unit;
    for (int i = 0; i < system->n_atoms; i++) lists->row_ends[lists->n_atoms + (size_t)i] = (int64_t)at + pairs.first[i + 1];
    lists->n_pairs += n;
    lists->n_atoms = n_first;
done:
    return status;
}

static void add_species_and_labels(builder *b, const mlff_system *system, const mlff_labels *labels, double probe_step,
                                   int64_t frame)
{
    const mlff_model *model = b->model;
    double length = model->length_unit, energy_unit = model->energy_unit, stress_unit = energy_unit / (length * length * length);
    int64_t atom = b->first_atom[frame];
    int n = system->n_atoms;
    bool periodic = system->periodic[0] && system->periodic[1] && system->periodic[2];
    double offset = 0;
    for (int i = 0; i < n; i++) {
        b->species[atom + i] = system->species[i];
        offset += model->offset[system->species[i]];
    }
    b->energy[frame] = (labels->energy - offset) / energy_unit;
    b->volume[frame] = periodic ? mlff_system_volume(system) / (length * length * length) : NAN;
    b->weight[frame] = labels->weight;
    for (int a = 0; a < 9; a++)
        b->stress[9 * frame + a] = labels->stress && periodic ? labels->stress[voigt_index[a]] / stress_unit : NAN;
    for (int k = 0; k < 3 * n; k++) {
        const bool has_label = labels->forces && !train_set_is_constrained(system, labels->forces, k / 3);
        b->forces[3 * atom + k] = has_label ? labels->forces[k] * length / energy_unit : NAN;
    }
    for (int i = 0; b->atom_energies && i < n; i++)
        b->atom_energies[atom + i] = labels->atom_energies ? labels->atom_energies[i] / energy_unit : NAN;
    if (b->probe_step) b->probe_step[frame] = probe_step > 0 ? probe_step / length : 0;
}

// Labels of the part that is trained: without the model's fixed core repulsion.
static mlff_status subtract_core_repulsion(builder *b, const mlff_system *system, int64_t frame)
{
    mlff_status status = MLFF_OK;
    const mlff_model *model = b->model;
    const int n = system->n_atoms;
    const int64_t atom = b->first_atom[frame], at = b->first_pair[atom];
    const size_t n_pairs = (size_t)(b->first_pair[atom + n] - at);
    double *energy = base_alloc((size_t)n, sizeof *energy, "training data");
    double *gradient = base_alloc(3 * n_pairs + 1, sizeof *gradient, "training data");
    double *vectors = base_alloc(3 * n_pairs + 1, sizeof *vectors, "training data");
    int32_t *first = base_alloc((size_t)n + 1, sizeof *first, "training data");
    if (!energy || !gradient || !vectors || !first) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int i = 0; i <= n; i++) first[i] = (int32_t)(b->first_pair[atom + i] - at);
    for (size_t k = 0; k < 3 * n_pairs; k++) vectors[k] = b->vectors[3 * (size_t)at + k] * model->length_unit;
    const model_graph graph = {.n_systems = 1,
                               .n_atoms = n,
                               .n_pairs = (int)n_pairs,
                               .species = b->species + atom,
                               .first = first,
                               .neighbor = b->neighbor + at,
                               .vectors = vectors};
    if (core_repulsion_add(model, &graph, &(model_outputs){.atom_energy = energy, .pair_gradient = gradient}) == 0) goto done;
    for (int i = 0; i < n; i++) {
        b->energy[frame] -= energy[i];
        if (b->atom_energies) b->atom_energies[atom + i] -= energy[i];
        for (size_t p = (size_t)first[i]; p < (size_t)first[i + 1]; p++) {
            const double *g = gradient + 3 * p, *r = b->vectors + 3 * ((size_t)at + p);
            const int64_t j = atom + b->neighbor[(size_t)at + p];
            for (int c = 0; c < 3; c++) {
                b->forces[3 * (atom + i) + c] -= g[c];
                b->forces[3 * j + c] += g[c];
                for (int d = 0; d < 3; d++) b->stress[9 * frame + 3 * c + d] -= g[c] * r[d] / b->volume[frame];
            }
        }
    }
done:
    base_free(energy);
    base_free(gradient);
    base_free(vectors);
    base_free(first);
    return status;
}

static mlff_status check_probe(const mlff_system *const *systems, const double *probe_steps, int64_t n_frames, int64_t frame)
{
    if (!probe_steps || !(probe_steps[frame] > 0)) return MLFF_OK;
    if (frame + 1 == n_frames || systems[frame + 1]->n_atoms != systems[frame]->n_atoms || probe_steps[frame + 1] > 0)
        return mlff_fail(MLFF_ERR_VALUE, "frame %" PRId64 " begins a Hessian probe, but the next frame is not its other half",
                         frame);
    return MLFF_OK;
}

// ---- frames in parallel: each thread lists the pairs of some, then copies them behind those before

static void take_cause(neighbor_lists *lists, mlff_status status)
{
    lists->status = status;
    if (status != MLFF_OK) snprintf(lists->cause, sizeof lists->cause, "%s", mlff_last_error());
}

static void list_frames(void *context, const team_member *member)
{
    builder *b = context;
    for (int k = member->thread; k < b->n_lists; k += member->n) {
        neighbor_lists *lists = &b->lists[k];
        mlff_status status = MLFF_OK;
        lists->n_atoms = lists->n_pairs = 0;
        for (int64_t f = lists->begin; f < lists->end && status == MLFF_OK; f++)
            status = list_pairs(lists, b->systems[f], f, b->model->length_unit);
        take_cause(lists, status);
    }
}

static void copy_frames(void *context, const team_member *member)
{
    builder *b = context;
    for (int k = member->thread; k < b->n_lists; k += member->n) {
        neighbor_lists *lists = &b->lists[k];
        mlff_status status = MLFF_OK;
        const size_t at = (size_t)lists->begin_pair, n = lists->n_pairs;
        const int64_t atom = b->first_atom[lists->begin];
        if (n > 0) memcpy(b->neighbor + at, lists->neighbor, sizeof *b->neighbor * n);
        if (n > 0) memcpy(b->reverse + at, lists->reverse, sizeof *b->reverse * n);
        if (n > 0) memcpy(b->vectors + 3 * at, lists->vectors, 3 * sizeof *b->vectors * n);
        for (size_t i = 1; i < lists->n_atoms; i++) b->first_pair[atom + (int64_t)i] = lists->begin_pair + lists->row_ends[i - 1];
        for (int64_t f = lists->begin; f < lists->end && status == MLFF_OK; f++) {
            add_species_and_labels(b, b->systems[f], &b->labels[f], b->probe_steps ? b->probe_steps[f] : 0, f);
            if (b->model->core_repulsion > 0) status = subtract_core_repulsion(b, b->systems[f], f);
        }
        take_cause(lists, status);
    }
}

static mlff_status first_failure(const builder *b)
{
    for (int k = 0; k < b->n_lists; k++)
        if (b->lists[k].status != MLFF_OK) return mlff_fail(b->lists[k].status, "%s", b->lists[k].cause);
    return MLFF_OK;
}

// Room for `n` pairs, and at the first time for as many as all frames have if they are like those listed.
static mlff_status reserve_pairs(builder *b, int64_t n)
{
    mlff_status status = MLFF_OK;
    const int64_t listed = b->lists[b->n_lists - 1].end, all = b->set->n_frames;
    if (b->neighbor_capacity == 0) {
        const double expected = 1.02 * (double)n * (double)all / (double)listed;
        const size_t room = (size_t)(expected > (double)n ? expected : (double)n) + 1;
        b->neighbor = team_alloc(b->n_threads, room, sizeof *b->neighbor, "training data");
        b->reverse = b->neighbor ? team_alloc(b->n_threads, room, sizeof *b->reverse, "training data") : NULL;
        b->vectors = b->reverse ? team_alloc(b->n_threads, room, 3 * sizeof *b->vectors, "training data") : NULL;
        if (!b->vectors) return MLFF_ERR_MEMORY;
        b->neighbor_capacity = b->reverse_capacity = room;
        b->vector_capacity = 3 * room;
    }
    MLFF_TRY(base_grow(&b->neighbor, &b->neighbor_capacity, (size_t)n, sizeof *b->neighbor, "training data"));
    MLFF_TRY(base_grow(&b->reverse, &b->reverse_capacity, (size_t)n, sizeof *b->reverse, "training data"));
    MLFF_TRY(base_grow(&b->vectors, &b->vector_capacity, 3 * (size_t)n, sizeof *b->vectors, "training data"));
done:
    return status;
}

static mlff_status add_frames(builder *b)
{
    mlff_status status = MLFF_OK;
    const int n_most = b->n_lists;
    int64_t n_pairs = 0;
    for (int64_t done = 0; done < b->set->n_frames;) {
        for (b->n_lists = 0; b->n_lists < n_most && done < b->set->n_frames; b->n_lists++) {
            neighbor_lists *lists = &b->lists[b->n_lists];
            lists->begin = done;
            lists->end = done = done + FRAMES_AT_ONCE < b->set->n_frames ? done + FRAMES_AT_ONCE : b->set->n_frames;
        }
        team_run(b->n_threads, list_frames, b);
        MLFF_TRY(first_failure(b));
        for (int k = 0; k < b->n_lists; k++) {
            neighbor_lists *lists = &b->lists[k];
            lists->begin_pair = n_pairs;
            n_pairs += (int64_t)lists->n_pairs;
            b->first_pair[b->first_atom[lists->end]] = n_pairs; // where the next thread's frames begin
        }
        MLFF_TRY(reserve_pairs(b, n_pairs));
        team_run(b->n_threads, copy_frames, b);
        MLFF_TRY(first_failure(b));
    }
    b->set->n_pairs = n_pairs;
done:
    b->n_lists = n_most;
    return status;
}

static mlff_status make_lists(builder *b)
{
    mlff_status status = MLFF_OK;
    const int64_t n_wanted = (b->set->n_frames + FRAMES_AT_ONCE - 1) / FRAMES_AT_ONCE, n_most = 4 * (int64_t)b->n_threads;
    const int n = (int)(n_wanted < n_most ? n_wanted : n_most);
    if (!(b->lists = base_alloc((size_t)n, sizeof *b->lists, "training data"))) return MLFF_ERR_MEMORY;
    for (; b->n_lists < n && status == MLFF_OK; b->n_lists++)
        status = neighbors_create_on(b->model->cutoff, 0.0, NULL, 1, &b->lists[b->n_lists].neighbors);
    return status;
}

static void free_lists(builder *b)
{
    for (int k = 0; k < b->n_lists; k++) {
        mlff_neighbors_destroy(b->lists[k].neighbors);
        base_free(b->lists[k].neighbor);
        base_free(b->lists[k].reverse);
        base_free(b->lists[k].vectors);
        base_free(b->lists[k].row_ends);
    }
    base_free(b->lists);
}

mlff_status train_set_build(const mlff_model *model, const mlff_system *const *systems, const mlff_labels *labels,
                            const double *probe_steps, int64_t n_frames, int n_threads, train_set **set_out)
{
    mlff_status status = MLFF_OK;
    bool with_atom_energies = false, with_probes = false;
    builder b = {
        .model = model, .systems = systems, .labels = labels, .probe_steps = probe_steps, .n_threads = team_size(n_threads)};
    if (n_frames < 1) return mlff_fail(MLFF_ERR_VALUE, "there are no labelled structures; training needs at least one");
    if (n_frames > INT32_MAX) return mlff_fail(MLFF_ERR_LIMIT, "%" PRId64 " structures are too many", n_frames);
    if (!(b.set = base_alloc(1, sizeof *b.set, "training data"))) return MLFF_ERR_MEMORY;
    b.set->n_frames = n_frames;
    for (int64_t k = 0; k < n_frames; k++) {
        MLFF_TRY(check_elements(model, systems[k], k));
        MLFF_TRY(check_probe(systems, probe_steps, n_frames, k));
        b.set->n_atoms += systems[k]->n_atoms;
        if (systems[k]->n_atoms > b.set->largest_frame) b.set->largest_frame = systems[k]->n_atoms;
        with_atom_energies = with_atom_energies || labels[k].atom_energies;
        with_probes = with_probes || (probe_steps && probe_steps[k] > 0);
    }
    MLFF_TRY(allocate_arrays(&b, with_atom_energies, with_probes));
    for (int64_t k = 0; k < n_frames; k++) b.first_atom[k + 1] = b.first_atom[k] + systems[k]->n_atoms;
    MLFF_TRY(make_lists(&b));
    MLFF_TRY(add_frames(&b));
    hand_over(&b);
    *set_out = b.set;
    b.set = NULL;
done:
    free_lists(&b);
    if (b.set) hand_over(&b);
    train_set_free(b.set);
    return status;
}
