// SPDX-License-Identifier: MIT
// decompose.c: the grid of domains, who owns an atom, and ghosts.
//
// All lists are in the order of the system's atoms, then of domains: they do not depend on threads.
#include "parallel/decompose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Planes are placed by so many of the atoms: domains then differ by some 0.3 %.
enum { SAMPLES = 65536 };
// Planes are placed again when the largest domain owns so much more than its share, or than it owned just after the last time.
#define IMBALANCE 1.05

mlff_status decomposition_create(int n_domains, double cutoff, double skin, decomposition **decomposition_out)
{
    decomposition *d = base_alloc(1, sizeof *d, "domains");
    if (!d) return MLFF_ERR_MEMORY;
    d->n_domains = n_domains;
    d->reach = cutoff + skin + 1e-9;
    d->skin = skin;
    d->domains = base_alloc((size_t)n_domains, sizeof *d->domains, "domains");
    d->shares = base_alloc((size_t)n_domains * (size_t)n_domains, sizeof *d->shares, "domains");
    if (!d->domains || !d->shares) {
        decomposition_destroy(d);
        return MLFF_ERR_MEMORY;
    }
    *decomposition_out = d;
    return MLFF_OK;
}

void decomposition_destroy(decomposition *d)
{
    if (!d) return;
    for (int k = 0; d->domains && k < d->n_domains; k++) {
        domain_atoms *atoms = &d->domains[k];
        int32_t *arrays[] = {atoms->atom,         atoms->shift,  atoms->source,     atoms->source_row, atoms->shared,
                             atoms->holder_first, atoms->holder, atoms->holder_row, atoms->count};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    }
    for (int k = 0; d->shares && k < d->n_domains * d->n_domains; k++)
        base_free(d->shares[k].owned), base_free(d->shares[k].ghosts);
    for (int k = 0; k < 3; k++) base_free(d->planes[k]);
    base_free(d->fraction);
    base_free(d->wrap);
    base_free(d->owner);
    base_free(d->row);
    base_free(d->positions);
    base_free(d->sample);
    base_free(d->shares);
    base_free(d->domains);
    base_free(d);
}

static void copy_cell(const mlff_batch *batch, double cell[9], unsigned char periodic[3])
{
    memset(cell, 0, 9 * sizeof *cell);
    memset(periodic, 0, 3);
    if (batch->cells) memcpy(cell, batch->cells, 9 * sizeof *cell);
    for (int k = 0; k < 3; k++) periodic[k] = batch->periodic && batch->periodic[k];
}

bool decomposition_serves(const decomposition *d, const mlff_batch *batch)
{
    const double bound = 0.25 * d->skin * d->skin;
    double cell[9];
    unsigned char periodic[3];
    copy_cell(batch, cell, periodic);
    if (d->n_made == 0 || d->n_atoms != batch->first_atom[1] || memcmp(cell, d->cell, sizeof cell) != 0 ||
        memcmp(periodic, d->periodic, sizeof periodic) != 0)
        return false;
    for (size_t i = 0; i < (size_t)d->n_atoms; i++) {
        const double *now = batch->positions + 3 * i, *then = d->positions + 3 * i;
        const double x = now[0] - then[0], y = now[1] - then[1], z = now[2] - then[2], square = x * x + y * y + z * z;
        if (!(square <= bound)) return false; // also what is not a number
    }
    return true;
}

// ---- the grid -----------------------------------------------------------------------------------------------------------

// Of the grids with so many domains, that with the fewest ghosts in a system of these lengths, Å.
static void choose_grid(decomposition *d, const double length[3])
{
    double fewest = INFINITY;
    for (int x = 1; x <= d->n_domains; x++)
        for (int y = 1; x * y <= d->n_domains; y++) {
            const int n[3] = {x, y, d->n_domains / (x * y)};
            double inside = 1, around = 1;
            if (n[0] * n[1] * n[2] != d->n_domains) continue;
            for (int k = 0; k < 3; k++) {
                const double width = fmax(length[k], 1.0) / n[k];
                inside *= width;
                around *= width + (n[k] > 1 ? 2 * d->reach : 0);
            }
            if (!(around / inside < fewest * (1 - 1e-9))) continue;
            fewest = around / inside;
            memcpy(d->grid, n, sizeof n);
        }
    for (int k = 0; k < 3; k++) d->divided[k] = d->grid[k] > 1;
}

static void find_lengths(const decomposition *d, const mlff_batch *batch, double length[3])
{
    for (int k = 0; k < 3; k++) {
        double low = INFINITY, high = -INFINITY;
        length[k] = d->axes.height[k];
        if (d->axes.periodic[k]) continue;
        for (size_t i = 0; i < (size_t)d->n_atoms; i++) {
            const double f = neighbors_fraction(&d->axes, batch->positions + 3 * i, k);
            low = fmin(low, f);
            high = fmax(high, f);
        }
        length[k] = high - low;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Planes along axis k that divide n sampled fractions evenly; without samples, evenly spaced.
static void place_planes(const decomposition *d, int k, double *sample, int n, double *planes)
{
    const int parts = d->grid[k];
    const bool periodic = d->axes.periodic[k];
    qsort(sample, (size_t)n, sizeof *sample, compare_doubles);
    planes[0] = periodic ? 0 : -INFINITY;
    planes[parts] = periodic ? 1 : INFINITY;
    for (int p = 1; p < parts; p++) {
        const int at = (int)((int64_t)n * p / parts);
        planes[p] = at > 0 ? 0.5 * (sample[at - 1] + sample[at]) : periodic ? (double)p / parts : 0;
        if (p > 1 && planes[p] < planes[p - 1]) planes[p] = planes[p - 1];
    }
}

static int part_of(const double *planes, int parts, double f)
{
    int part = 0;
    while (part + 1 < parts && f >= planes[part + 1]) part++;
    return part;
}

static const double *planes_y(const decomposition *d, int x)
{
    return d->planes[1] + (size_t)x * (size_t)(d->grid[1] + 1);
}

static const double *planes_z(const decomposition *d, int x, int y)
{
    return d->planes[2] + (size_t)(x * d->grid[1] + y) * (size_t)(d->grid[2] + 1);
}

// Samples within layer x and column y (−1: all): of each run of atoms one, at random, since a fixed distance would take the same site of each
// cell of a crystal.
static int collect_sample(decomposition *d, int k, int x, int y)
{
    const size_t stride = ((size_t)d->n_atoms + SAMPLES - 1) / SAMPLES;
    int n = 0;
    for (size_t begin = 0; begin < (size_t)d->n_atoms; begin += stride) {
        const size_t i = begin + (size_t)((double)stride * base_random_uniform(1, 0, begin));
        if (i >= (size_t)d->n_atoms) break;
        const double *f = d->fraction + 3 * i;
        if (x >= 0 && part_of(d->planes[0], d->grid[0], f[0]) != x) continue;
        if (y >= 0 && part_of(planes_y(d, x), d->grid[1], f[1]) != y) continue;
        d->sample[n++] = f[k];
    }
    return n;
}

static mlff_status place_all_planes(decomposition *d)
{
    mlff_status status = MLFF_OK;
    const int *n = d->grid;
    const size_t counts[3] = {(size_t)n[0] + 1, (size_t)n[0] * (size_t)(n[1] + 1),
                              (size_t)n[0] * (size_t)n[1] * (size_t)(n[2] + 1)};
    for (int k = 0; k < 3; k++) MLFF_TRY(base_grow(&d->planes[k], &d->plane_capacity[k], counts[k], sizeof(double), "domains"));
    MLFF_TRY(base_grow(&d->sample, &d->sample_capacity, SAMPLES, sizeof(double), "domains"));
    place_planes(d, 0, d->sample, collect_sample(d, 0, -1, -1), d->planes[0]);
    for (int x = 0; x < n[0]; x++) {
        place_planes(d, 1, d->sample, collect_sample(d, 1, x, -1), d->planes[1] + (size_t)x * (size_t)(n[1] + 1));
        for (int y = 0; y < n[1]; y++)
            place_planes(d, 2, d->sample, collect_sample(d, 2, x, y), d->planes[2] + (size_t)(x * n[1] + y) * (size_t)(n[2] + 1));
    }
done:
    return status;
}

// ---- atoms of domains ---------------------------------------------------------------------------------------------------

// A run of the crew.
typedef struct making {
    decomposition *d;
    crew *crew;
    const mlff_batch *batch;
} making;

static void assign_owner(decomposition *d, size_t i)
{
    const double *f = d->fraction + 3 * i;
    const int x = part_of(d->planes[0], d->grid[0], f[0]), y = part_of(planes_y(d, x), d->grid[1], f[1]);
    d->owner[i] = (x * d->grid[1] + y) * d->grid[2] + part_of(planes_z(d, x, y), d->grid[2], f[2]);
}

// Fractions of this member's share of the atoms.
static mlff_status wrap_share(void *context, int index)
{
    const making *m = context;
    decomposition *d = m->d;
    const size_t n = (size_t)d->n_atoms, parts = (size_t)d->n_domains;
    for (size_t i = n * (size_t)index / parts; i < n * ((size_t)index + 1) / parts; i++) {
        const double *x = m->batch->positions + 3 * i;
        memcpy(d->positions + 3 * i, x, 3 * sizeof *x);
        for (int k = 0; k < 3; k++) {
            double f = neighbors_fraction(&d->axes, x, k), cells = 0;
            if (!isfinite(f)) return mlff_fail(MLFF_ERR_VALUE, "atom %zu has a coordinate that is not finite; correct it", i);
            if (d->axes.periodic[k] && d->divided[k]) cells = floor(f);
            if (!(fabs(cells) <= 131072))
                return mlff_fail(MLFF_ERR_VALUE, "atom %zu lies %.0f cells outside its cell; wrap its position", i, fabs(cells));
            f -= cells;
            d->fraction[3 * i + (size_t)k] = cells == 0 || f < 1 ? f : 0; // −1e-17 wraps to 1
            d->wrap[3 * i + (size_t)k] = (int32_t)cells;
        }
    }
    return MLFF_OK;
}

static mlff_status assign_share(void *context, int index)
{
    const making *m = context;
    const size_t n = (size_t)m->d->n_atoms, parts = (size_t)m->d->n_domains;
    for (size_t i = n * (size_t)index / parts; i < n * ((size_t)index + 1) / parts; i++) assign_owner(m->d, i);
    return MLFF_OK;
}

// The box of a domain, in fractions.
typedef struct domain_box {
    double low[3], high[3];
} domain_box;

static domain_box box_of(const decomposition *d, int index)
{
    const int z = index % d->grid[2], y = index / d->grid[2] % d->grid[1], x = index / d->grid[2] / d->grid[1];
    return (domain_box){{d->planes[0][x], planes_y(d, x)[y], planes_z(d, x, y)[z]},
                        {d->planes[0][x + 1], planes_y(d, x)[y + 1], planes_z(d, x, y)[z + 1]}};
}

// Whether an atom is so far inside the box of its owner that it is no ghost of any domain. Boxes that differ lie on two sides of a
// plane of each of them: along the first axis on which their indices, or the cells of their images, differ.
static bool is_inside(const decomposition *d, const domain_box *box, const double reach[3], const double f[3])
{
    for (int k = 0; k < 3; k++)
        if (d->divided[k] && !(f[k] - box->low[k] > reach[k] && box->high[k] - f[k] > reach[k])) return false;
    return true;
}

// Adds the images of atom i that are ghosts of the domain with this box.
static mlff_status add_ghosts(const decomposition *d, domain_share *share, int32_t i, bool own, const domain_box *box,
                              const double reach[3])
{
    mlff_status status = MLFF_OK;
    int32_t first[3] = {0}, last[3] = {0};
    const double *f = d->fraction + 3 * (size_t)i;
    for (int k = 0; k < 3; k++) {
        if (!d->divided[k]) continue;
        if (d->axes.periodic[k]) {
            first[k] = (int32_t)ceil(box->low[k] - reach[k] - f[k]);
            last[k] = (int32_t)floor(box->high[k] + reach[k] - f[k]);
        } else if (!(f[k] >= box->low[k] - reach[k] && f[k] <= box->high[k] + reach[k])) {
            return MLFF_OK;
        }
        if (first[k] > last[k]) return MLFF_OK;
    }
    const int32_t *wrap = d->wrap + 3 * (size_t)i;
    for (int32_t x = first[0]; x <= last[0]; x++)
        for (int32_t y = first[1]; y <= last[1]; y++)
            for (int32_t z = first[2]; z <= last[2]; z++) {
                if (own && x == 0 && y == 0 && z == 0) continue;
                const size_t n = 4 * (size_t)share->n_ghosts;
                MLFF_TRY(base_grow(&share->ghosts, &share->ghost_capacity, n + 4, sizeof *share->ghosts, "ghosts"));
                memcpy(share->ghosts + n, (int32_t[4]){i, x - wrap[0], y - wrap[1], z - wrap[2]}, 4 * sizeof *share->ghosts);
                share->n_ghosts++;
            }
done:
    return status;
}

// For each domain its own atoms and its ghosts among this member's share of the atoms.
static mlff_status sort_share(const decomposition *d, int member)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)d->n_atoms, parts = (size_t)d->n_domains;
    domain_share *shares = d->shares + (size_t)member * parts;
    domain_box boxes[MAX_DOMAINS];
    double reach[3];
    for (int k = 0; k < 3; k++) reach[k] = d->reach / d->axes.height[k];
    for (int k = 0; k < d->n_domains; k++) {
        boxes[k] = box_of(d, k);
        shares[k].n_owned = shares[k].n_ghosts = 0;
    }
    for (size_t i = n * (size_t)member / parts; i < n * ((size_t)member + 1) / parts; i++) {
        domain_share *own = &shares[d->owner[i]];
        MLFF_TRY(base_grow(&own->owned, &own->owned_capacity, (size_t)own->n_owned + 1, sizeof *own->owned, "domains"));
        own->owned[own->n_owned++] = (int32_t)i;
        if (is_inside(d, &boxes[d->owner[i]], reach, d->fraction + 3 * i)) continue;
        for (int k = 0; k < d->n_domains; k++)
            MLFF_TRY(add_ghosts(d, &shares[k], (int32_t)i, d->owner[i] == k, &boxes[k], reach));
    }
done:
    return status;
}

// Own atoms of a domain, then its ghosts: what all members have found, in their order. A domain without atoms has no ghosts.
static mlff_status collect_atoms(const decomposition *d, int index)
{
    mlff_status status = MLFF_OK;
    domain_atoms *a = &d->domains[index];
    const size_t parts = (size_t)d->n_domains;
    size_t n_owned = 0, n_local = 0, at = 0;
    for (size_t m = 0; m < parts; m++) n_owned += (size_t)d->shares[m * parts + (size_t)index].n_owned;
    for (size_t m = 0; n_owned > 0 && m < parts; m++) n_local += (size_t)d->shares[m * parts + (size_t)index].n_ghosts;
    n_local += n_owned;
    MLFF_TRY(base_grow(&a->atom, &a->atom_capacity, n_local, sizeof *a->atom, "atoms of a domain"));
    MLFF_TRY(base_grow(&a->shift, &a->shift_capacity, 3 * n_local, sizeof *a->shift, "atoms of a domain"));
    a->n_owned = (int)n_owned;
    a->n_local = (int)n_local;
    for (size_t m = 0; m < parts; m++) {
        const domain_share *share = &d->shares[m * parts + (size_t)index];
        for (int j = 0; j < share->n_owned; j++, at++) {
            const int32_t i = share->owned[j];
            a->atom[at] = i;
            for (size_t k = 0; k < 3; k++) a->shift[3 * at + k] = -d->wrap[3 * (size_t)i + k];
            d->row[i] = (int32_t)at;
        }
    }
    for (size_t m = 0; at < n_local; m++) {
        const domain_share *share = &d->shares[m * parts + (size_t)index];
        for (int j = 0; j < share->n_ghosts; j++, at++) {
            a->atom[at] = share->ghosts[4 * (size_t)j];
            memcpy(a->shift + 3 * at, share->ghosts + 4 * (size_t)j + 1, 3 * sizeof *a->shift);
        }
    }
done:
    return status;
}

static mlff_status find_sources(const decomposition *d, domain_atoms *a)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)(a->n_local - a->n_owned);
    MLFF_TRY(base_grow(&a->source, &a->source_capacity, n, sizeof *a->source, "ghosts"));
    MLFF_TRY(base_grow(&a->source_row, &a->source_row_capacity, n, sizeof *a->source_row, "ghosts"));
    for (size_t g = 0; g < n; g++) {
        const int32_t atom = a->atom[(size_t)a->n_owned + g];
        a->source[g] = d->owner[atom];
        a->source_row[g] = d->row[atom];
    }
done:
    return status;
}

// Which rows of all domains are copies of the own rows of one, in the order of domains and rows.
static mlff_status find_holders(const decomposition *d, int index)
{
    mlff_status status = MLFF_OK;
    domain_atoms *a = &d->domains[index];
    size_t n = (size_t)a->n_owned, n_shared = 0, n_copies = 0;
    MLFF_TRY(base_grow(&a->count, &a->count_capacity, n + 1, sizeof *a->count, "ghosts"));
    memset(a->count, 0, (n + 1) * sizeof *a->count);
    for (int k = 0; k < d->n_domains; k++) {
        const domain_atoms *other = &d->domains[k];
        for (int g = 0; g < other->n_local - other->n_owned; g++)
            if (other->source[g] == index) a->count[other->source_row[g]]++;
    }
    for (size_t r = 0; r < n; r++) n_shared += a->count[r] > 0, n_copies += (size_t)a->count[r];
    MLFF_TRY(base_grow(&a->shared, &a->shared_capacity, n_shared, sizeof *a->shared, "ghosts"));
    MLFF_TRY(base_grow(&a->holder_first, &a->first_capacity, n_shared + 1, sizeof *a->holder_first, "ghosts"));
    MLFF_TRY(base_grow(&a->holder, &a->holder_capacity, n_copies, sizeof *a->holder, "ghosts"));
    MLFF_TRY(base_grow(&a->holder_row, &a->holder_row_capacity, n_copies, sizeof *a->holder_row, "ghosts"));
    a->n_shared = (int)n_shared;
    n_shared = n_copies = 0;
    for (size_t r = 0; r < n; r++) {
        if (a->count[r] == 0) continue;
        a->shared[n_shared] = (int32_t)r;
        a->holder_first[n_shared++] = (int32_t)n_copies;
        n_copies += (size_t)a->count[r];
        a->count[r] = (int32_t)n_copies - a->count[r]; // from here on: where its next copy goes
    }
    a->holder_first[n_shared] = (int32_t)n_copies;
    for (int k = 0; k < d->n_domains; k++) {
        const domain_atoms *other = &d->domains[k];
        for (int g = 0; g < other->n_local - other->n_owned; g++) {
            if (other->source[g] != index) continue;
            const int32_t at = a->count[other->source_row[g]]++;
            a->holder[at] = k;
            a->holder_row[at] = other->n_owned + g;
        }
    }
done:
    return status;
}

static mlff_status fill_domain(void *context, int index)
{
    const making *m = context;
    mlff_status status = sort_share(m->d, index);
    if (status != MLFF_OK) return status;
    if (!crew_barrier(m->crew)) return crew_ended();
    if ((status = collect_atoms(m->d, index)) != MLFF_OK) return status;
    if (!crew_barrier(m->crew)) return crew_ended();
    if ((status = find_sources(m->d, &m->d->domains[index])) != MLFF_OK) return status;
    return crew_barrier(m->crew) ? find_holders(m->d, index) : crew_ended();
}

static int largest_domain(const decomposition *d)
{
    int32_t count[MAX_DOMAINS] = {0}, largest = 0;
    for (int i = 0; i < d->n_atoms; i++) count[d->owner[i]]++;
    for (int k = 0; k < d->n_domains; k++) largest = count[k] > largest ? count[k] : largest;
    return largest;
}

static mlff_status reserve(decomposition *d, size_t n)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(base_grow(&d->fraction, &d->fraction_capacity, 3 * n, sizeof *d->fraction, "domains"));
    MLFF_TRY(base_grow(&d->wrap, &d->wrap_capacity, 3 * n, sizeof *d->wrap, "domains"));
    MLFF_TRY(base_grow(&d->owner, &d->owner_capacity, n, sizeof *d->owner, "domains"));
    MLFF_TRY(base_grow(&d->row, &d->row_capacity, n, sizeof *d->row, "domains"));
    MLFF_TRY(base_grow(&d->positions, &d->positions_capacity, 3 * n, sizeof *d->positions, "domains"));
done:
    return status;
}

mlff_status decomposition_make(decomposition *d, crew *threads, const mlff_batch *batch)
{
    mlff_status status = MLFF_OK;
    making m = {d, threads, batch};
    const int64_t n_made = d->n_made;
    double cell[9], length[3];
    unsigned char periodic[3];
    d->n_made = 0;
    MLFF_TRY(neighbors_set_axes(&d->axes, batch, 0));
    copy_cell(batch, cell, periodic);
    const bool other = n_made == 0 || d->n_atoms != batch->first_atom[1] || memcmp(periodic, d->periodic, sizeof periodic) != 0;
    memcpy(d->cell, cell, sizeof cell);
    memcpy(d->periodic, periodic, sizeof periodic);
    d->n_atoms = batch->first_atom[1];
    MLFF_TRY(reserve(d, (size_t)d->n_atoms));
    if (other) {
        find_lengths(d, batch, length);
        choose_grid(d, length);
    }
    MLFF_TRY(crew_run(threads, wrap_share, &m));
    if (other) MLFF_TRY(place_all_planes(d));
    MLFF_TRY(crew_run(threads, assign_share, &m));
    int largest = largest_domain(d);
    const double share = (double)d->n_atoms / d->n_domains, bound = IMBALANCE * fmax(share, other ? share : d->largest_balanced);
    if (!other && largest > bound) {
        MLFF_TRY(place_all_planes(d));
        MLFF_TRY(crew_run(threads, assign_share, &m));
        d->largest_balanced = largest = largest_domain(d);
    }
    if (other) d->largest_balanced = largest;
    MLFF_TRY(crew_run(threads, fill_domain, &m));
    d->n_made = n_made + 1;
done:
    return status;
}
