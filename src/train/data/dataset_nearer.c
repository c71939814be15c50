// SPDX-License-Identifier: MIT
// dataset_nearer.c: structures with two atoms nearer than labels have them.
//
// A teacher's labels end where two atoms are pressed to some 0.6 of the sum of their covalent radii. Nothing determines a student nearer than that,
// and in a long training it comes to diverge there (docs/decisions/divergence-of-pressed-atoms.md). Where the nearest atoms i and j of a labelled
// structure are pressed together, at distance r_c, the energy nearer than that is defined as
//
//   E(x) = E(x with j moved back to r_c along the line of both) + V(r) - V(r_c)
//
// with V the student's own repulsion of nuclei (atoms/zbl.h): what its network has to learn does not change along that line. With f the labelled
// forces, u the unit vector from i to j and P = (r_c / r) (1 - u u^T), the derivative of the place moved back to by x_j,
//
//   F_j = P f_j - V'(r) u,     F_i = f_i + f_j - F_j,     F_k = f_k of the other atoms.
//
// Labels of dynamics have no pressed atoms. Of two elements whose atoms no label has as near, the structures with the nearest ones are taken,
// j is moved towards i by d, and the energy is defined as
//
//   E(x) = E(x with j moved back by d) + V(r)
//
// with V the repulsion that ends at r_c, where both parts are continuous with the label: F_j = f_j - V'(r) u, F_i = f_i + V'(r) u. Of f_j u
// only what pushes the two apart is carried on.
//
// These structures have no energy: in one so high an error of some meV/atom would count as much as all others do.
#include <math.h>
#include <stdlib.h>

#include "atoms/elements/covalent.h"
#include "atoms/images.h"
#include "atoms/zbl.h"
#include "dataset.h"
#include "device/team.h"
#include "model/model.h"
#include "train/fitting/train_set.h"
#include "train/sampling/sample_geometry.h"

#define PRESSED 0.76       // of the sum of covalent radii: hardly a bond at 1000 K is as short
#define NEAREST 0.2        // the same, of the structures that are made
#define LARGEST_FORCE 60.0 // eV/Å, of a component: beyond it a teacher may fail
#define FARTHEST 3.0       // Å: pairs of elements that no label has nearer are not moved
#define MOST_WEIGHT 0.3    // of the structure that one without pressed atoms comes from
#define FORCE_WEIGHED                                                                                                            \
    3.0 // eV/Å: the weight is that over the repulsion, since a force of 100 eV/Å need not be as exact as one of 1
#define PART_UNPRESSED 5 // times the part of pressed ones, for all pairs of elements together
enum { MOST_COPIES = 2, STREAM_NEARER = 0x6e656172 };
// Pairs of elements beyond the twelve lightest ones of the data are left out.
enum { MOST_ELEMENTS = 12, MOST_KINDS = MOST_ELEMENTS * (MOST_ELEMENTS + 1) / 2, NEAREST_KEPT = 20 };

typedef struct search {
    const mlff_dataset *data;
    sample_contact *pressed; // [n_frames] the nearest atoms; .a -1: none that are pressed
    mlff_status *status;     // [threads]
} search;

static bool can_be_used(const mlff_dataset *data, size_t frame)
{
    const mlff_system *system = data->frames[frame].system;
    if (!system->label_forces || dataset_is_probe(data, frame)) return false;
    for (int k = 0; k < 3 * system->n_atoms; k++)
        if (!(fabs(system->label_forces[k]) <= LARGEST_FORCE)) return false;
    return true;
}

// Whether the force on one of the two is no label but that of a constraint, from which none can be made.
static bool lacks_force(const mlff_system *system, int i, int j)
{
    return train_set_is_constrained(system, system->label_forces, i) || train_set_is_constrained(system, system->label_forces, j);
}

static void find_pressed(void *context, const team_member *member)
{
    const search *s = context;
    mlff_status status = MLFF_OK;
    for (size_t f = (size_t)member->thread; f < s->data->n_frames && status == MLFF_OK; f += (size_t)member->n) {
        sample_contact *pressed = &s->pressed[f];
        *pressed = (sample_contact){-1, -1, NAN};
        if (!can_be_used(s->data, f)) continue;
        status = sample_closest_pair(s->data->frames[f].system, pressed);
        if (pressed->a == pressed->b || !(pressed->ratio >= NEAREST && pressed->ratio <= PRESSED) ||
            lacks_force(s->data->frames[f].system, pressed->a, pressed->b))
            pressed->a = -1;
    }
    s->status[member->thread] = status;
}

static void vector_between(const mlff_system *system, const atoms_images *images, int i, int j, double v[3])
{
    for (int c = 0; c < 3; c++) v[c] = system->positions[3 * j + c] - system->positions[3 * i + c];
    atoms_nearest_image(images, v);
}

// Whether no atom but i is nearer to j than `ratio` sums of covalent radii.
static bool is_alone(const mlff_system *system, const atoms_images *images, int i, int j, double ratio)
{
    for (int k = 0; k < system->n_atoms; k++) {
        double v[3];
        if (k == i || k == j) continue;
        vector_between(system, images, k, j, v);
        const double least = ratio * (covalent_radius(system->species[k]) + covalent_radius(system->species[j]));
        if (v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < least * least) return false;
    }
    return true;
}

// Moves atom j of the copy to the distance of `ratio` sums of covalent radii from atom i, and sets its forces; false where j comes near another
// atom.
static bool move_nearer(const mlff_model *model, mlff_system *copy, const sample_contact *pressed, double ratio)
{
    const int i = pressed->a, j = pressed->b, z_i = copy->species[i], z_j = copy->species[j];
    const double r = ratio * (covalent_radius(z_i) + covalent_radius(z_j));
    atoms_images images;
    double u[3], slope, along = 0;
    atoms_images_make(copy, &images);
    vector_between(copy, &images, i, j, u);
    const double r_c = sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
    for (int c = 0; c < 3; c++) u[c] /= r_c, copy->positions[3 * j + c] += (r - r_c) * u[c];
    if (!is_alone(copy, &images, i, j, pressed->ratio)) return false;
    double *f_i = copy->label_forces + 3 * i, *f_j = copy->label_forces + 3 * j;
    zbl_pair(z_i, z_j, model->core_radius[z_i] + model->core_radius[z_j], r, &slope);
    for (int c = 0; c < 3; c++) along += u[c] * f_j[c];
    for (int c = 0; c < 3; c++) {
        const double force = r_c / r * (f_j[c] - along * u[c]) - slope * u[c];
        f_i[c] += f_j[c] - force;
        f_j[c] = force;
    }
    return true;
}

// ---- pairs of elements of which no label has pressed atoms

// The nearest two atoms of a pair of elements in one structure.
typedef struct contact {
    double distance; // Å
    size_t frame;
    int i, j;
} contact;

// Of each pair of elements the structures with the nearest atoms, the nearest first, one contact of each structure.
typedef struct contacts {
    contact nearest[MOST_KINDS][NEAREST_KEPT];
    int n[MOST_KINDS];
} contacts;

typedef struct kind_search {
    const mlff_dataset *data;
    int element[MLFF_MAX_ATOMIC_NUMBER + 1]; // its number among those of the data; -1: not one of them
    contacts *found;                         // [threads]
} kind_search;

static int kind_of(int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    return high * (high + 1) / 2 + low;
}

static bool is_nearer(const contact *a, const contact *b)
{
    return a->distance != b->distance ? a->distance < b->distance : a->frame < b->frame;
}

static void keep_contact(contacts *found, int kind, const contact *one)
{
    contact *list = found->nearest[kind];
    int k = found->n[kind];
    if (k == NEAREST_KEPT && !is_nearer(one, &list[k - 1])) return;
    if (k == NEAREST_KEPT)
        k--;
    else
        found->n[kind]++;
    for (; k > 0 && is_nearer(one, &list[k - 1]); k--) list[k] = list[k - 1];
    list[k] = *one;
}

static void find_contacts(void *context, const team_member *member)
{
    const kind_search *s = context;
    contacts *found = &s->found[member->thread];
    for (size_t f = (size_t)member->thread; f < s->data->n_frames; f += (size_t)member->n) {
        const mlff_system *system = s->data->frames[f].system;
        contact nearest[MOST_KINDS];
        atoms_images images;
        if (!can_be_used(s->data, f)) continue;
        for (int k = 0; k < MOST_KINDS; k++) nearest[k].distance = FARTHEST;
        atoms_images_make(system, &images);
        for (int j = 1; j < system->n_atoms; j++)
            for (int i = 0; i < j; i++) {
                const int a = s->element[system->species[i]], b = s->element[system->species[j]];
                if (a < 0 || b < 0) continue;
                double v[3];
                vector_between(system, &images, i, j, v);
                const double distance = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
                contact *least = &nearest[kind_of(a, b)];
                if (distance < least->distance && !lacks_force(system, i, j))
                    *least = (contact){.distance = distance, .frame = f, .i = i, .j = j};
            }
        for (int k = 0; k < MOST_KINDS; k++)
            if (nearest[k].distance < FARTHEST) keep_contact(found, k, &nearest[k]);
    }
}

// A structure of the contact's one, whose atoms of the pair are at `r`; none where another atom is in the way.
static mlff_status add_repelling(const mlff_dataset *data, const contact *c, double r, mlff_dataset *to)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const dataset_frame *from = &data->frames[c->frame];
    const bool first_is_lighter = from->system->species[c->i] < from->system->species[c->j];
    const int i = first_is_lighter ? c->j : c->i, j = first_is_lighter ? c->i : c->j; // the lighter one moves
    atoms_images images;
    double u[3], slope, along = 0;
    MLFF_TRY(mlff_system_copy(from->system, &system));
    system->label_energy = system->label_stress[0] = NAN;
    atoms_images_make(system, &images);
    vector_between(system, &images, i, j, u);
    double *f_i = system->label_forces + 3 * i, *f_j = system->label_forces + 3 * j;
    for (int k = 0; k < 3; k++) u[k] /= c->distance, along += u[k] * f_j[k];
    for (int k = 0; k < 3; k++) system->positions[3 * j + k] += (r - c->distance) * u[k];
    if (!is_alone(system, &images, i, j, PRESSED)) goto done;
    zbl_pair(system->species[i], system->species[j], c->distance, r, &slope);
    for (int k = 0; k < 3; k++) {
        f_j[k] -= (slope + fmin(along, 0)) * u[k];
        f_i[k] += (slope + fmin(along, 0)) * u[k];
    }
    const double weight = fmin(MOST_WEIGHT, FORCE_WEIGHED / fabs(slope));
    MLFF_TRY(dataset_add_copy(to, &(dataset_frame){.system = system, .weight = weight * from->weight}));
done:
    mlff_system_destroy(system);
    return status;
}

static mlff_status add_unpressed(const mlff_dataset *data, const contacts *found, size_t n_wanted, uint64_t seed,
                                 mlff_dataset *to)
{
    const size_t end = to->n_frames + n_wanted;
    for (int k = 0; k < NEAREST_KEPT; k++)
        for (int kind = 0; kind < MOST_KINDS; kind++) {
            const contact *nearest = &found->nearest[kind][0], *one = &found->nearest[kind][k];
            if (k >= found->n[kind] || to->n_frames == end) continue;
            const mlff_system *system = data->frames[one->frame].system;
            const double radii = covalent_radius(system->species[one->i]) + covalent_radius(system->species[one->j]);
            if (nearest->distance <= PRESSED * radii) continue;
            // Evenly over what lies below all labels, however few there are: multiples of the golden ratio.
            const double place = fmod(base_random_uniform(seed, STREAM_NEARER, (uint64_t)kind) + 0.6180339887498949 * k, 1);
            const double r = NEAREST * radii + (nearest->distance - NEAREST * radii) * place;
            const mlff_status status = add_repelling(data, one, r, to);
            if (status != MLFF_OK) return status;
        }
    return MLFF_OK;
}

static mlff_status make_unpressed(const mlff_dataset *data, double part, int n_members, uint64_t seed, mlff_dataset *nearer)
{
    mlff_status status = MLFF_OK;
    bool present[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    kind_search s = {.data = data, .found = base_alloc((size_t)n_members, sizeof *s.found, "distances")};
    int n_elements = 0;
    if (!s.found) return MLFF_ERR_MEMORY;
    dataset_find_elements(data, present);
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) s.element[z] = present[z] && n_elements < MOST_ELEMENTS ? n_elements++ : -1;
    team_run(n_members, find_contacts, &s);
    for (int t = 1; t < n_members; t++)
        for (int kind = 0; kind < MOST_KINDS; kind++)
            for (int k = 0; k < s.found[t].n[kind]; k++) keep_contact(&s.found[0], kind, &s.found[t].nearest[kind][k]);
    MLFF_TRY(add_unpressed(data, &s.found[0], (size_t)(PART_UNPRESSED * part * (double)data->n_frames), seed, nearer));
done:
    base_free(s.found);
    return status;
}

// ---- all of them

static mlff_status add_nearer(const search *s, const mlff_model *model, size_t frame, uint64_t seed, int copy, mlff_dataset *to)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const dataset_frame *from = &s->data->frames[frame];
    const sample_contact *pressed = &s->pressed[frame];
    const double draw = base_random_uniform(seed, STREAM_NEARER + 1 + (uint64_t)copy, frame);
    MLFF_TRY(mlff_system_copy(from->system, &system));
    system->label_energy = system->label_stress[0] = NAN;
    if (move_nearer(model, system, pressed, NEAREST + (pressed->ratio - NEAREST) * draw))
        MLFF_TRY(dataset_add_copy(to, &(dataset_frame){.system = system, .weight = from->weight}));
done:
    mlff_system_destroy(system);
    return status;
}

// The frames with pressed atoms, in an order that `seed` chooses; their number.
static size_t order_pressed(const search *s, uint64_t seed, size_t *order)
{
    size_t n = 0;
    for (size_t f = 0; f < s->data->n_frames; f++)
        if (s->pressed[f].a >= 0) order[n++] = f;
    for (size_t k = n; k-- > 1;) {
        const size_t other = (size_t)(base_random_uniform(seed, STREAM_NEARER, k) * (double)(k + 1)), swap = order[k];
        order[k] = order[other];
        order[other] = swap;
    }
    return n;
}

mlff_status dataset_make_nearer(const mlff_dataset *data, const mlff_model *model, double part, int n_threads, uint64_t seed,
                                mlff_dataset *nearer)
{
    mlff_status status = MLFF_OK;
    const int n_members = team_size(n_threads);
    const size_t n_wanted = (size_t)(part * (double)data->n_frames);
    search s = {.data = data};
    size_t *order = NULL;
    if (n_wanted == 0 || !(model->core_repulsion > 0)) return MLFF_OK;
    s.pressed = base_alloc(data->n_frames, sizeof *s.pressed, "distances");
    s.status = base_alloc((size_t)n_members, sizeof *s.status, "distances");
    order = base_alloc(data->n_frames, sizeof *order, "structures");
    if (!s.pressed || !s.status || !order) MLFF_TRY(MLFF_ERR_MEMORY);
    team_run(n_members, find_pressed, &s);
    for (int t = 0; t < n_members; t++)
        if (s.status[t] != MLFF_OK) MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: distances of the structures");
    const size_t n = order_pressed(&s, seed, order);
    for (int copy = 0; copy < MOST_COPIES; copy++)
        for (size_t k = 0; k < n && nearer->n_frames < n_wanted; k++)
            MLFF_TRY(add_nearer(&s, model, order[k], seed, copy, nearer));
    MLFF_TRY(make_unpressed(data, part, n_members, seed, nearer));
done:
    base_free(s.pressed);
    base_free(s.status);
    base_free(order);
    return status;
}
