// SPDX-License-Identifier: MIT
// dataset_copies.c: structures that two datasets share.
//
// A structure is described by numbers that do not change when it is moved, turned, mirrored or its atoms are given in another order:
// for three powers p and two weights w of the elements
//     1/N Σ_{i<j} w(Z_i) w(Z_j) (1 - r_ij²/R²)^p,  r_ij < R,
// with the nearest image along periodic axes, and the scalar products of the cell's periodic vectors, as lengths. Around
// symmetric sites these change in second order only, so that each atom's own sums
//     Σ_j w(Z_j) (1 - r_ij²/R²)²
// must agree as well, sorted. Two structures of the same elements whose numbers and sums agree within the tolerances are copies of each
// other. Positions rounded to 1e-5 Å agree; an atom that is displaced by 0.01 Å does not, nor do successive frames of dynamics.
// In a periodic cell of few atoms there are fewer nearest images than coordinates, of two atoms one: there the distances of further images
// must agree, too.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atoms/images.h"
#include "dataset.h"
#include "device/team.h"

enum { N_POWERS = 3, N_WEIGHTS = 2, N_NUMBERS = N_POWERS * N_WEIGHTS + 6 };
#define RANGE 8.0 // Å, R
#define TOLERANCE 1e-5
#define ATOM_TOLERANCE 1e-4  // 1e-5 Å changes an atom's sum by some 1e-5, 0.01 Å by some 1e-3
#define ELEMENT_APART 1000.0 // between sums of two elements: more than an atom's sum has

typedef struct fingerprint {
    double numbers[N_NUMBERS];
    uint64_t elements; // a hash of how many atoms of each there are
    size_t frame;
    double *atoms; // [n_atoms] their sums, ascending, elements apart
    int n_atoms;
} fingerprint;

// Between 0.5 and 1.5, different for each element (multiples of the golden ratio).
static double element_weight(int z)
{
    return 0.5 + fmod(0.6180339887498949 * z, 1.0);
}

static uint64_t hash_elements(const mlff_system *s)
{
    uint64_t sum = (uint64_t)s->n_atoms;
    for (int i = 0; i < s->n_atoms; i++) {
        uint64_t x = (uint64_t)s->species[i] * UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
        sum += x ^ (x >> 32);
    }
    return sum;
}

// Adds the powers of one pair, 0 beyond the range.
static void add_pair(const mlff_system *s, int i, int j, const atoms_images *images, fingerprint *print)
{
    double *const numbers = print->numbers;
    double d[3], square = 0;
    for (int c = 0; c < 3; c++) d[c] = s->positions[3 * j + c] - s->positions[3 * i + c];
    atoms_nearest_image(images, d);
    for (int c = 0; c < 3; c++) square += d[c] * d[c];
    const double near = 1 - square / (RANGE * RANGE);
    if (near <= 0) return;
    const double of_i = element_weight(s->species[i]), of_j = element_weight(s->species[j]), weight = of_i * of_j;
    double power = near * near;
    print->atoms[i] += of_j * power;
    print->atoms[j] += of_i * power;
    for (int p = 0; p < N_POWERS; p++, power *= near * near) {
        numbers[N_WEIGHTS * p] += power;
        numbers[N_WEIGHTS * p + 1] += weight * power;
    }
}

static void describe(const mlff_system *s, fingerprint *print)
{
    atoms_images images;
    memset(print->numbers, 0, sizeof print->numbers);
    print->elements = hash_elements(s);
    atoms_images_make(s, &images);
    for (int i = 0; i < s->n_atoms; i++) print->atoms[i] = ELEMENT_APART * s->species[i];
    for (int i = 0; i < s->n_atoms; i++)
        for (int j = i + 1; j < s->n_atoms; j++) add_pair(s, i, j, &images, print);
    for (int k = 0; k < N_POWERS * N_WEIGHTS; k++) print->numbers[k] /= s->n_atoms;
    base_sort(print->atoms, (size_t)s->n_atoms);
    double *at = print->numbers + N_POWERS * N_WEIGHTS;
    for (int k = 0; k < 3; k++)
        for (int l = k; l < 3; l++, at++) {
            if (!s->periodic[k] || !s->periodic[l]) continue;
            const double *a = s->cell + 3 * k, *b = s->cell + 3 * l, product = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
            *at = copysign(sqrt(fabs(product)), product);
        }
}

static int compare(const void *left, const void *right)
{
    const fingerprint *a = left, *b = right;
    if (a->elements != b->elements) return a->elements < b->elements ? -1 : 1;
    return (a->numbers[0] > b->numbers[0]) - (a->numbers[0] < b->numbers[0]);
}

static bool is_copy(const fingerprint *a, const fingerprint *b)
{
    for (int k = 0; k < N_NUMBERS; k++)
        if (!(fabs(a->numbers[k] - b->numbers[k]) <= TOLERANCE)) return false;
    if (a->n_atoms != b->n_atoms) return false;
    for (int i = 0; i < a->n_atoms; i++)
        if (!(fabs(a->atoms[i] - b->atoms[i]) <= ATOM_TOLERANCE)) return false;
    return true;
}

enum { FEW_ATOMS = 8, NEAR_IMAGES = 4, FEW_PAIRS = FEW_ATOMS * (FEW_ATOMS - 1) / 2 };
#define IMAGE_TOLERANCE 1e-4 // Å

// Puts a value among the NEAR_IMAGES smallest, which are ascending.
static void keep_smallest(double value, double smallest[NEAR_IMAGES])
{
    int k = NEAR_IMAGES - 1;
    if (!(value < smallest[k])) return;
    for (; k > 0 && value < smallest[k - 1]; k--) smallest[k] = smallest[k - 1];
    smallest[k] = value;
}

// Distances of the NEAR_IMAGES nearest images of j from i, those around the nearest one.
static void near_images(const mlff_system *s, int i, int j, const atoms_images *images, int n_axes, double distances[NEAR_IMAGES])
{
    double nearest[3];
    int reach[3];
    for (int c = 0; c < 3; c++) nearest[c] = s->positions[3 * j + c] - s->positions[3 * i + c];
    for (int axis = 0; axis < 3; axis++) reach[axis] = axis < n_axes ? 2 : 0;
    for (int k = 0; k < NEAR_IMAGES; k++) distances[k] = INFINITY;
    atoms_nearest_image(images, nearest);
    for (int a = -reach[0]; a <= reach[0]; a++)
        for (int b = -reach[1]; b <= reach[1]; b++)
            for (int k = -reach[2]; k <= reach[2]; k++) {
                double square = 0;
                for (int c = 0; c < 3; c++) {
                    double x = nearest[c];
                    if (n_axes > 0) x += a * images->vectors[0][c];
                    if (n_axes > 1) x += b * images->vectors[1][c];
                    if (n_axes > 2) x += k * images->vectors[2][c];
                    square += x * x;
                }
                keep_smallest(square, distances);
            }
    for (int k = 0; k < NEAR_IMAGES; k++) distances[k] = sqrt(distances[k]);
}

// All of them ascending, those of other elements and of images of another rank apart. Returns how many there are.
static int list_images(const mlff_system *s, double list[FEW_PAIRS * NEAR_IMAGES])
{
    atoms_images images;
    const int n_axes = !!s->periodic[0] + !!s->periodic[1] + !!s->periodic[2];
    int n = 0;
    atoms_images_make(s, &images); // its first vectors are a reduced basis
    for (int i = 0; i < s->n_atoms; i++)
        for (int j = i + 1; j < s->n_atoms; j++) {
            const int low = s->species[i] < s->species[j] ? i : j, kind = 128 * s->species[low] + s->species[i + j - low];
            double distances[NEAR_IMAGES];
            near_images(s, i, j, &images, n_axes, distances);
            for (int k = 0; k < NEAR_IMAGES; k++) list[n++] = distances[k] + ELEMENT_APART * (NEAR_IMAGES * kind + k);
        }
    base_sort(list, (size_t)n);
    return n;
}

// Of structures whose descriptions agree.
static bool has_same_images(const mlff_system *one, const mlff_system *other)
{
    double lists[2][FEW_PAIRS * NEAR_IMAGES];
    if (one->n_atoms > FEW_ATOMS || !(one->periodic[0] || one->periodic[1] || one->periodic[2])) return true;
    const int n = list_images(one, lists[0]);
    list_images(other, lists[1]);
    for (int k = 0; k < n; k++)
        if (!(fabs(lists[0][k] - lists[1][k]) <= IMAGE_TOLERANCE)) return false;
    return true;
}

typedef struct description {
    const mlff_dataset *dataset;
    fingerprint *prints; // [n_frames]
} description;

static void describe_some(void *context, const team_member *member)
{
    const description *d = context;
    for (size_t f = (size_t)member->thread; f < d->dataset->n_frames; f += (size_t)member->n) {
        d->prints[f].frame = f;
        describe(d->dataset->frames[f].system, &d->prints[f]);
    }
}

// `atoms_out` has the sums of all frames' atoms; the caller frees both arrays.
static mlff_status describe_all(const mlff_dataset *dataset, fingerprint **prints_out, double **atoms_out)
{
    size_t n_atoms = 0;
    for (size_t f = 0; f < dataset->n_frames; f++) n_atoms += (size_t)dataset->frames[f].system->n_atoms;
    *prints_out = base_alloc(dataset->n_frames, sizeof **prints_out, "descriptions of structures");
    *atoms_out = base_alloc(n_atoms, sizeof **atoms_out, "descriptions of atoms");
    if (!*prints_out || !*atoms_out) return MLFF_ERR_MEMORY;
    double *at = *atoms_out;
    for (size_t f = 0; f < dataset->n_frames; f++) {
        (*prints_out)[f].atoms = at;
        at += (*prints_out)[f].n_atoms = dataset->frames[f].system->n_atoms;
    }
    team_run(team_size(dataset->n_threads), describe_some, &(description){dataset, *prints_out});
    return MLFF_OK;
}

// The frame of a copy of `system` among sorted descriptions of the frames of `of`, else -1.
static int64_t find_copy(const mlff_dataset *of, const fingerprint *sorted, const mlff_system *system, const fingerprint *wanted)
{
    const size_t n = of->n_frames;
    fingerprint least = *wanted;
    size_t low = 0, high = n;
    least.numbers[0] -= TOLERANCE;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare(&sorted[middle], &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && sorted[low].elements == wanted->elements; low++) {
        if (sorted[low].numbers[0] > wanted->numbers[0] + TOLERANCE) break;
        if (is_copy(&sorted[low], wanted) && has_same_images(system, of->frames[sorted[low].frame].system))
            return (int64_t)sorted[low].frame;
    }
    return -1;
}

mlff_status mlff_dataset_copies(const mlff_dataset *dataset, const mlff_dataset *of, int64_t *n_copies_out, int64_t *indices_out)
{
    mlff_status status = MLFF_OK;
    fingerprint *prints = NULL, *sorted = NULL;
    double *atoms = NULL, *sorted_atoms = NULL;
    int64_t n = 0;
    if (!dataset || !of || !n_copies_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_copies: dataset, of and n_copies_out must be given");
    MLFF_TRY(describe_all(dataset, &prints, &atoms));
    MLFF_TRY(describe_all(of, &sorted, &sorted_atoms));
    qsort(sorted, of->n_frames, sizeof *sorted, compare);
    for (size_t f = 0; f < dataset->n_frames; f++) {
        const int64_t copy = find_copy(of, sorted, dataset->frames[f].system, &prints[f]);
        n += copy >= 0;
        if (indices_out) indices_out[f] = copy;
    }
    *n_copies_out = n;
done:
    base_free(prints);
    base_free(sorted);
    base_free(atoms);
    base_free(sorted_atoms);
    return status;
}
