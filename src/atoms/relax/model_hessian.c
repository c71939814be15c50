// SPDX-License-Identifier: MIT
// model_hessian.c: H = Σ k b bᵀ + floor over stretches of pairs, bends and torsions of bonds, b = d(coordinate)/d(positions). With
// ρ = exp(1 - r / (sum of the covalent radii)) of each distance that makes up the coordinate, k is 34 ρ³ eV/Å² of stretches, 4.1 ρρ
// and 1 ρρρ eV of bends and torsions. The form is that of Swart & Bickelhaupt 2006 (doi:10.1002/qua.21049); their stretches decay
// as ρ, and their torsions have 0.14 eV. On 140 drug-like molecules (organic-small, 0.05 eV/Å) theirs needed 38 steps on average, ρ³
// with 1 eV 23.8, and 18.9 where H is made again after every ten steps; without H it was 43.
#include "atoms/relax/model_hessian.h"

#include <math.h>
#include <string.h>

#include "atoms/elements/covalent.h"

#define STRETCH 34.0 // eV/Å²: 0.35 Ha/Bohr²
#define BEND 4.08    // eV: 0.15 Ha
#define TORSION 1.0
#define FLOOR 1.0f      // eV/Å²: translations, rotations and what else no coordinate holds
#define LEAST_RHO 0.2   // a stretch of 0.27 eV/Å², below FLOOR
#define SHORTEST 0.4    // Å: nearer atoms count as this far, or their bends would be too stiff for a factor in float32
#define FARTHEST 2.7    // sums of the radii: exp(1 - 2.7) is less than LEAST_RHO
#define BONDED_RHO 0.74 // r < 1.3 times the sum of the radii

typedef struct builder {
    const mlff_system *system;
    model_hessian *hessian;
    double *rho;          // [n_atoms][n_atoms], 0 of what is farther than FARTHEST
    int *bonds, *n_bonds; // [n_atoms][n_atoms], [n_atoms] atoms bonded to an atom, ascending
    int *found;           // [n_atoms] of a search
    int *last;            // [n_atoms] the last row's place that the atom at a place is coupled to
} builder;

// H += k b bᵀ of a coordinate of `n_atoms` atoms.
static void add(builder *b, const int *atoms, int n_atoms, double b_rows[][3], double k)
{
    const int *place = b->hessian->place;
    const size_t stride = relax_stride(b->hessian->n);
    for (int p = 0; p < n_atoms; p++)
        for (int q = 0; q < n_atoms; q++) {
            const int i = place[atoms[p]], j = place[atoms[q]];
            if (i > j || (b->system->fixed && (b->system->fixed[atoms[p]] || b->system->fixed[atoms[q]]))) continue;
            if (j > b->last[i]) b->last[i] = j;
            for (size_t c = 0; c < 3; c++)
                for (size_t d = 0; d < 3; d++)
                    b->hessian->factor[(3 * (size_t)i + c) * stride + 3 * (size_t)j + d] +=
                        (float)(k * b_rows[p][c] * b_rows[q][d]);
        }
}

static double dot3(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void cross(const double *a, const double *b, double out[3])
{
    for (int c = 0; c < 3; c++) out[c] = a[(c + 1) % 3] * b[(c + 2) % 3] - a[(c + 2) % 3] * b[(c + 1) % 3];
}

// From atom i to atom j: the unit vector, shorter of atoms nearer than SHORTEST; returns the distance, SHORTEST or more.
static double direction(const builder *b, int i, int j, double unit[3])
{
    const double *at = b->system->positions;
    for (int c = 0; c < 3; c++) unit[c] = at[3 * j + c] - at[3 * i + c];
    const double r = fmax(sqrt(dot3(unit, unit)), SHORTEST);
    for (int c = 0; c < 3; c++) unit[c] /= r;
    return r;
}

static double rho(const builder *b, int i, int j)
{
    return b->rho[(size_t)i * (size_t)b->system->n_atoms + (size_t)j];
}

// The atoms bonded to an atom.
static const int *bonds_of(const builder *b, int i)
{
    return b->bonds + (size_t)i * (size_t)b->system->n_atoms;
}

static void add_bond(builder *b, int i, int j)
{
    b->bonds[(size_t)i * (size_t)b->system->n_atoms + (size_t)b->n_bonds[i]++] = j;
}

static void add_stretch(builder *b, int i, int j)
{
    const double near = rho(b, i, j);
    double rows[2][3];
    direction(b, i, j, rows[1]);
    for (int c = 0; c < 3; c++) rows[0][c] = -rows[1][c];
    add(b, (int[]){i, j}, 2, rows, STRETCH * near * near * near);
}

// The angle i-j-k, and, of one that is nearly straight, two perpendicular displacements in its place.
static void add_bend(builder *b, int i, int j, int k)
{
    double u[3], v[3], rows[3][3];
    const double r = direction(b, j, i, u), s = direction(b, j, k, v), cosine = dot3(u, v),
                 sine = sqrt(fmax(0, 1 - cosine * cosine));
    const double stiffness = BEND * rho(b, i, j) * rho(b, j, k);
    const int atoms[3] = {i, j, k};
    if (sine > 0.2) {
        for (int c = 0; c < 3; c++) {
            rows[0][c] = (cosine * u[c] - v[c]) / (r * sine);
            rows[2][c] = (cosine * v[c] - u[c]) / (s * sine);
            rows[1][c] = -rows[0][c] - rows[2][c];
        }
        add(b, atoms, 3, rows, stiffness);
        return;
    }
    double p[2][3], axis[3] = {0};
    axis[fabs(u[0]) < 0.6 ? 0 : 1] = 1;
    cross(u, axis, p[0]);
    const double length = sqrt(dot3(p[0], p[0]));
    for (int c = 0; c < 3; c++) p[0][c] /= length;
    cross(u, p[0], p[1]);
    for (int way = 0; way < 2; way++) {
        for (int c = 0; c < 3; c++) {
            rows[0][c] = p[way][c] / r;
            rows[2][c] = p[way][c] / s;
            rows[1][c] = -rows[0][c] - rows[2][c];
        }
        add(b, atoms, 3, rows, stiffness);
    }
}

// The torsion i-j-k-l, unless one of its angles is nearly straight.
static void add_torsion(builder *b, int i, int j, int k, int l)
{
    double u[3], w[3], v[3], m[3], n[3], rows[4][3];
    const double r_ij = direction(b, j, i, u), r_jk = direction(b, j, k, w), r_kl = direction(b, k, l, v);
    cross(u, w, m);
    cross(w, v, n);
    const double mm = dot3(m, m), nn = dot3(n, n), a = dot3(u, w) * r_ij / r_jk, d = -dot3(v, w) * r_kl / r_jk;
    if (mm < 0.04 || nn < 0.04) return;
    for (int c = 0; c < 3; c++) {
        rows[0][c] = m[c] / (r_ij * mm);
        rows[3][c] = n[c] / (r_kl * nn);
        rows[1][c] = (a - 1) * rows[0][c] - d * rows[3][c];
        rows[2][c] = -rows[0][c] - rows[1][c] - rows[3][c];
    }
    add(b, (int[]){i, j, k, l}, 4, rows, TORSION * rho(b, i, j) * rho(b, j, k) * rho(b, k, l));
}

static void find_rho_and_bonds(builder *b)
{
    const int n = b->system->n_atoms;
    const double *at = b->system->positions;
    for (int i = 0; i < n; i++) {
        const double radius = covalent_radius(b->system->species[i]);
        for (int j = 0; j < i; j++) {
            const double sum = radius + covalent_radius(b->system->species[j]);
            const double x = at[3 * i] - at[3 * j], y = at[3 * i + 1] - at[3 * j + 1], z = at[3 * i + 2] - at[3 * j + 2];
            const double square = x * x + y * y + z * z;
            if (square > FARTHEST * FARTHEST * sum * sum) continue;
            b->rho[i * n + j] = b->rho[j * n + i] = exp(1 - sqrt(square) / sum);
            if (!(b->rho[i * n + j] > BONDED_RHO)) continue;
            add_bond(b, i, j);
            add_bond(b, j, i);
        }
    }
}

// Appends what is bonded to atom `first`, near atoms before far ones; returns the new length of `found`. place is -1 of atoms that are not found.
static int search(builder *b, int first, int n_found)
{
    int *place = b->hessian->place, at = n_found;
    b->found[n_found] = first;
    place[first] = n_found++;
    for (; at < n_found; at++) {
        const int *bonds = bonds_of(b, b->found[at]), n_bonds = b->n_bonds[b->found[at]];
        for (int k = 0; k < n_bonds; k++) {
            if (place[bonds[k]] >= 0) continue;
            b->found[n_found] = bonds[k];
            place[bonds[k]] = n_found++;
        }
    }
    return n_found;
}

// Orders atoms by their distance along bonds from an end of their molecule, so that coupled ones are near each other (Cuthill & McKee
// 1969).
static void order_atoms(builder *b)
{
    int *place = b->hessian->place, n_found = 0;
    for (int i = 0; i < b->system->n_atoms; i++) place[i] = -1;
    for (int i = 0; i < b->system->n_atoms; i++) {
        if (place[i] >= 0) continue;
        const int begin = n_found, n = search(b, i, begin), end = b->found[n - 1];
        for (int k = begin; k < n; k++) place[b->found[k]] = -1;
        n_found = search(b, end, begin);
    }
}

// The bends and torsions of the bond of atom j with its bond number `at`.
static void add_bends_and_torsions(builder *b, int j, int at)
{
    const int *of_j = bonds_of(b, j), k = of_j[at], *of_k = bonds_of(b, k);
    for (int p = 0; p < at; p++) add_bend(b, of_j[p], j, k);
    for (int p = 0; j < k && p < b->n_bonds[j]; p++)
        for (int q = 0; q < b->n_bonds[k] && of_j[p] != k; q++)
            if (of_k[q] != j && of_k[q] != of_j[p]) add_torsion(b, of_j[p], j, k, of_k[q]);
}

static void add_coordinates(builder *b)
{
    const int n = b->system->n_atoms;
    for (int j = 0; j < n; j++) {
        for (int k = j + 1; k < n; k++)
            if (rho(b, j, k) > LEAST_RHO) add_stretch(b, j, k);
        for (int at = 0; at < b->n_bonds[j]; at++) add_bends_and_torsions(b, j, at);
    }
}

// Where rows end: nowhere before the row above, so that the factor has no element beyond.
static void find_ends(builder *b)
{
    size_t end = 0;
    for (size_t k = 0; k < b->hessian->n; k++) {
        const size_t own = 3 * (size_t)b->last[k / 3] + 3;
        b->hessian->ends[k] = end = own > end ? own : end;
    }
}

model_hessian *model_hessian_create(const mlff_system *system)
{
    const size_t n_atoms = (size_t)system->n_atoms, n = 3 * n_atoms;
    model_hessian *h = base_alloc(1, sizeof *h, "a model Hessian");
    if (!h) return NULL;
    h->kernels = relax_kernels_get();
    h->n = n;
    h->factor = base_alloc(n * relax_stride(n), sizeof *h->factor, "a model Hessian");
    h->ends = base_alloc(n, sizeof *h->ends, "a model Hessian");
    h->place = base_alloc(n_atoms, sizeof *h->place, "a model Hessian");
    h->ordered = base_alloc(relax_stride(n), sizeof *h->ordered, "a model Hessian");
    h->rho = base_alloc(n_atoms * n_atoms, sizeof *h->rho, "a model Hessian");
    h->lists = base_alloc(3 * n_atoms + n_atoms * n_atoms, sizeof *h->lists, "a model Hessian");
    if (h->factor && h->ends && h->place && h->ordered && h->rho && h->lists) return h;
    model_hessian_destroy(h);
    return NULL;
}

void model_hessian_update(model_hessian *h, const mlff_system *system)
{
    const size_t n_atoms = (size_t)system->n_atoms, n = h->n;
    builder b = {.system = system, .hessian = h, .rho = h->rho, .found = h->lists};
    b.last = b.found + n_atoms;
    b.n_bonds = b.last + n_atoms;
    b.bonds = b.n_bonds + n_atoms;
    memset(h->rho, 0, n_atoms * n_atoms * sizeof *h->rho);
    memset(b.n_bonds, 0, n_atoms * sizeof *b.n_bonds);
    memset(h->factor, 0, n * relax_stride(n) * sizeof *h->factor);
    for (int i = 0; i < system->n_atoms; i++) b.last[i] = i;
    for (size_t k = 0; k < n; k++) h->factor[k * relax_stride(n) + k] = FLOOR;
    find_rho_and_bonds(&b);
    order_atoms(&b);
    add_coordinates(&b);
    find_ends(&b);
    h->kernels->factorize(h->factor, n, h->ends);
}

void model_hessian_destroy(model_hessian *h)
{
    if (!h) return;
    base_free(h->factor);
    base_free(h->ends);
    base_free(h->place);
    base_free(h->ordered);
    base_free(h->rho);
    base_free(h->lists);
    base_free(h);
}

void model_hessian_solve(const model_hessian *h, double *x)
{
    float *y = h->ordered;
    for (size_t k = 0; k < h->n; k++) y[3 * (size_t)h->place[k / 3] + k % 3] = (float)x[k];
    h->kernels->solve(h->factor, h->n, h->ends, y);
    for (size_t k = 0; k < h->n; k++) x[k] = (double)y[3 * (size_t)h->place[k / 3] + k % 3];
}
