// SPDX-License-Identifier: MIT
// decompose.c: the owner of each atom, and ghosts.
//
// Threads sort shares of the atoms, runs of them in their order, and then put together what was found in each, also in their order: no list
// depends on the number of threads or shares. A decomposition reads the atoms once; the GPUs wait for it.
#include "parallel/decompose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/team.h"
#include "parallel/domain_grid.h"

// Planes are placed again when the largest domain owns so much more than its share, or than it owned just after the last time.
#define IMBALANCE 1.05
// Shares for each domain, and in all. To wake a thread takes as long as some thousand atoms.
enum { SHARES_OF_A_DOMAIN = 4, MAX_SHARES = 64, ATOMS_OF_A_SHARE = 4096 };

mlff_status decomposition_create(int n_domains, double cutoff, double skin, decomposition **decomposition_out)
{
    decomposition *d = base_alloc(1, sizeof *d, "domains");
    if (!d) return MLFF_ERR_MEMORY;
    d->n_domains = n_domains;
    d->reach = cutoff + skin + 1e-9;
    d->skin = skin;
    d->domains = base_alloc((size_t)n_domains, sizeof *d->domains, "domains");
    d->most_shares = n_domains * SHARES_OF_A_DOMAIN < MAX_SHARES ? n_domains * SHARES_OF_A_DOMAIN : MAX_SHARES;
    d->shares = base_alloc((size_t)d->most_shares * (size_t)n_domains, sizeof *d->shares, "domains");
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
        int32_t *arrays[] = {atoms->atom,   atoms->shift,        atoms->source, atoms->source_row,
                             atoms->shared, atoms->holder_first, atoms->holder, atoms->holder_row};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) base_free(arrays[a]);
    }
    for (int k = 0; d->shares && k < d->most_shares * d->n_domains; k++) {
        base_free(d->shares[k].owned);
        base_free(d->shares[k].ghosts);
        base_free(d->shares[k].copies);
    }
    for (int k = 0; k < 3; k++) base_free(d->planes[k]);
    base_free(d->positions);
    base_free(d->species);
    base_free(d->sampled);
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
        memcmp(periodic, d->periodic, sizeof periodic) != 0 ||
        memcmp(batch->species, d->species, (size_t)d->n_atoms * sizeof *d->species) != 0)
        return false;
    for (size_t i = 0; i < (size_t)d->n_atoms; i++) {
        const double *now = batch->positions + 3 * i, *then = d->positions + 3 * i;
        const double x = now[0] - then[0], y = now[1] - then[1], z = now[2] - then[2], square = x * x + y * y + z * z;
        if (!(square <= bound)) return false; // also what is not a number
    }
    return true;
}

// ---- shares of the atoms ------------------------------------------------------------------------------------------------

// Whether an atom is so far inside the box of its owner that it is no ghost of any domain. Boxes that differ lie on two sides of a
// plane of each of them: along the first axis on which their indices, or the cells of their images, differ.
static bool is_inside(const decomposition *d, const domain_box *box, const double reach[3], const double f[3])
{
    for (int k = 0; k < 3; k++)
        if (d->divided[k] && !(f[k] - box->low[k] > reach[k] && box->high[k] - f[k] > reach[k])) return false;
    return true;
}

// Room for one more element.
#define GROW(array, capacity, n)                                                                                                 \
    do {                                                                                                                         \
        if ((size_t)(n) >= (capacity)) MLFF_TRY(base_grow(&(array), &(capacity), (size_t)(n) + 1, sizeof *(array), "domains"));  \
    } while (0)

// An atom of a share: its index in the system, its owner, and its place among the atoms that this one owns.
typedef struct sorted_atom {
    int32_t atom, owner, place, wrap[3];
    double fraction[3];
} sorted_atom;

// As ceil, which is a call where the processor's own instruction may not be used.
static inline int32_t round_up(double x)
{
    const int32_t n = (int32_t)x;
    return n + (x > n);
}

// Adds the images of an atom that are ghosts of domain k.
static mlff_status add_ghosts(const decomposition *d, domain_share *shares, const sorted_atom *a, int32_t k,
                              const domain_box *box, const double reach[3])
{
    mlff_status status = MLFF_OK;
    domain_share *to = &shares[k], *from = &shares[a->owner];
    int32_t first[3] = {0}, last[3] = {0};
    for (int c = 0; c < 3; c++) {
        const double f = a->fraction[c];
        if (!d->divided[c]) continue;
        if (d->axes.periodic[c]) {
            first[c] = round_up(box->low[c] - reach[c] - f);
            last[c] = -round_up(-(box->high[c] + reach[c] - f));
        } else if (!(f >= box->low[c] - reach[c] && f <= box->high[c] + reach[c])) {
            return MLFF_OK;
        }
        if (first[c] > last[c]) return MLFF_OK;
    }
    for (int32_t x = first[0]; x <= last[0]; x++)
        for (int32_t y = first[1]; y <= last[1]; y++)
            for (int32_t z = first[2]; z <= last[2]; z++) {
                if (k == a->owner && x == 0 && y == 0 && z == 0) continue;
                GROW(to->ghosts, to->ghost_capacity, to->n_ghosts);
                GROW(from->copies, from->copy_capacity, from->n_copies);
                from->n_shared += from->n_copies == 0 || from->copies[from->n_copies - 1].place != a->place;
                from->copies[from->n_copies++] = (struct atom_copy){a->place, k, to->n_ghosts};
                to->ghosts[to->n_ghosts++] =
                    (struct ghost_atom){a->atom, {x - a->wrap[0], y - a->wrap[1], z - a->wrap[2]}, a->owner, a->place};
            }
done:
    return status;
}

// Sorts the atoms begin … end − 1 into the shares of all domains. *bad_out: the first atom that is too far away, or `end`.
static mlff_status sort_atoms(const decomposition *d, const double *positions, size_t begin, size_t end, domain_share *shares,
                              size_t *bad_out)
{
    mlff_status status = MLFF_OK;
    domain_box boxes[MAX_DOMAINS];
    double reach[3];
    for (int k = 0; k < 3; k++) reach[k] = d->reach / d->axes.height[k];
    for (int k = 0; k < d->n_domains; k++) {
        boxes[k] = domain_box_of(d, k);
        shares[k].n_owned = shares[k].n_ghosts = shares[k].n_copies = shares[k].n_shared = 0;
    }
    for (size_t i = begin; i < end; i++) {
        sorted_atom a;
        *bad_out = i;
        if (!domain_wrap(d, positions + 3 * i, a.fraction, a.wrap)) return MLFF_OK;
        memcpy(d->positions + 3 * i, positions + 3 * i, 3 * sizeof *positions);
        a.atom = (int32_t)i;
        a.owner = domain_owner(d, a.fraction);
        domain_share *own = &shares[a.owner];
        GROW(own->owned, own->owned_capacity, own->n_owned);
        a.place = own->n_owned++;
        own->owned[a.place] = (struct owned_atom){a.atom, {-a.wrap[0], -a.wrap[1], -a.wrap[2]}};
        if (is_inside(d, &boxes[a.owner], reach, a.fraction)) continue;
        for (int k = 0; k < d->n_domains; k++) MLFF_TRY(add_ghosts(d, shares, &a, k, &boxes[k], reach));
    }
    *bad_out = end;
done:
    return status;
}

// ---- atoms of domains ---------------------------------------------------------------------------------------------------

typedef struct making {
    decomposition *d;
    const double *positions;
    int n_threads;
    mlff_status status[MAX_SHARES];
    size_t bad[MAX_SHARES], end[MAX_SHARES]; // the first atom of a share that is too far away, or its end
} making;

static void sort_shares(void *context, const team_member *member)
{
    making *m = context;
    const decomposition *d = m->d;
    const size_t n = (size_t)d->n_atoms, parts = (size_t)d->n_shares;
    for (size_t s = (size_t)member->thread; s < parts; s += (size_t)member->n) {
        m->end[s] = n * (s + 1) / parts;
        m->status[s] = sort_atoms(d, m->positions, n * s / parts, m->end[s], d->shares + s * (size_t)d->n_domains, &m->bad[s]);
    }
}

static mlff_status refuse_atom(const decomposition *d, const double *positions, size_t i)
{
    double farthest = 0;
    for (int k = 0; k < 3; k++) {
        const double f = neighbors_fraction(&d->axes, positions + 3 * i, k);
        if (!isfinite(f)) return mlff_fail(MLFF_ERR_VALUE, "atom %zu has a coordinate that is not finite; correct it", i);
        if (d->axes.periodic[k] && d->divided[k]) farthest = fmax(farthest, fabs(floor(f)));
    }
    return mlff_fail(MLFF_ERR_VALUE, "atom %zu lies %.0f cells outside its cell; wrap its position", i, farthest);
}

static mlff_status sort_all(making *m)
{
    decomposition *d = m->d;
    const int n = d->n_atoms / ATOMS_OF_A_SHARE + 1;
    d->n_shares = n < d->most_shares ? n : d->most_shares;
    team_run(m->n_threads < d->n_shares ? m->n_threads : d->n_shares, sort_shares, m);
    for (int s = 0; s < d->n_shares; s++) {
        if (m->status[s] != MLFF_OK) return mlff_fail(m->status[s], "out of memory: domains of %d atoms", d->n_atoms);
        if (m->bad[s] < m->end[s]) return refuse_atom(d, m->positions, m->bad[s]);
    }
    return MLFF_OK;
}

static int count_owned(const decomposition *d, int domain)
{
    int n = 0;
    for (int s = 0; s < d->n_shares; s++) n += d->shares[s * d->n_domains + domain].n_owned;
    return n;
}

static int largest_domain(const decomposition *d)
{
    int largest = 0;
    for (int k = 0; k < d->n_domains; k++) largest = count_owned(d, k) > largest ? count_owned(d, k) : largest;
    return largest;
}

// A domain without atoms has no ghosts.
static void drop_ghosts(decomposition *d, int domain)
{
    for (int s = 0; s < d->n_shares; s++) {
        d->shares[s * d->n_domains + domain].n_ghosts = 0;
        for (int k = 0; k < d->n_domains; k++) {
            domain_share *share = &d->shares[s * d->n_domains + k];
            const int n = share->n_copies;
            share->n_copies = share->n_shared = 0;
            for (int c = 0; c < n; c++) {
                if (share->copies[c].domain == domain) continue;
                share->n_shared += share->n_copies == 0 || share->copies[share->n_copies - 1].place != share->copies[c].place;
                share->copies[share->n_copies++] = share->copies[c];
            }
        }
    }
}

// Memory of a domain's arrays, and where each share's part of them begins.
static mlff_status reserve_domain(decomposition *d, int domain)
{
    mlff_status status = MLFF_OK;
    domain_atoms *a = &d->domains[domain];
    int n_owned = 0, n_ghosts = 0, n_copies = 0, n_shared = 0;
    for (int s = 0; s < d->n_shares; s++) {
        domain_share *share = &d->shares[s * d->n_domains + domain];
        share->first_owned = n_owned, share->first_ghost = n_ghosts;
        share->first_copy = n_copies, share->first_shared = n_shared;
        n_owned += share->n_owned, n_ghosts += share->n_ghosts;
        n_copies += share->n_copies, n_shared += share->n_shared;
    }
    a->n_owned = n_owned;
    a->n_local = n_owned + n_ghosts;
    a->n_shared = n_shared;
    const size_t local = (size_t)a->n_local, ghosts = (size_t)n_ghosts, shared = (size_t)n_shared, copies = (size_t)n_copies;
    MLFF_TRY(base_grow(&a->atom, &a->atom_capacity, local, sizeof *a->atom, "atoms of a domain"));
    MLFF_TRY(base_grow(&a->shift, &a->shift_capacity, 3 * local, sizeof *a->shift, "atoms of a domain"));
    MLFF_TRY(base_grow(&a->source, &a->source_capacity, ghosts, sizeof *a->source, "ghosts"));
    MLFF_TRY(base_grow(&a->source_row, &a->source_row_capacity, ghosts, sizeof *a->source_row, "ghosts"));
    MLFF_TRY(base_grow(&a->shared, &a->shared_capacity, shared, sizeof *a->shared, "ghosts"));
    MLFF_TRY(base_grow(&a->holder_first, &a->first_capacity, shared + 1, sizeof *a->holder_first, "ghosts"));
    MLFF_TRY(base_grow(&a->holder, &a->holder_capacity, copies, sizeof *a->holder, "ghosts"));
    MLFF_TRY(base_grow(&a->holder_row, &a->holder_row_capacity, copies, sizeof *a->holder_row, "ghosts"));
    a->holder_first[n_shared] = n_copies;
done:
    return status;
}

static void fill_from_share(const decomposition *d, int s, int domain)
{
    const domain_share *shares = d->shares + (size_t)s * (size_t)d->n_domains, *share = &shares[domain];
    const domain_atoms *a = &d->domains[domain];
    size_t at = (size_t)share->first_owned;
    for (int j = 0; j < share->n_owned; j++, at++) {
        a->atom[at] = share->owned[j].atom;
        memcpy(a->shift + 3 * at, share->owned[j].shift, sizeof share->owned[j].shift);
    }
    at = (size_t)share->first_ghost;
    for (int g = 0; g < share->n_ghosts; g++, at++) {
        const struct ghost_atom *ghost = &share->ghosts[g];
        a->atom[(size_t)a->n_owned + at] = ghost->atom;
        memcpy(a->shift + 3 * ((size_t)a->n_owned + at), ghost->shift, sizeof ghost->shift);
        a->source[at] = ghost->source;
        a->source_row[at] = shares[ghost->source].first_owned + ghost->place;
    }
    at = (size_t)share->first_shared;
    for (int c = 0; c < share->n_copies; c++) {
        const struct atom_copy *copy = &share->copies[c];
        const int to = share->first_copy + c;
        if (c == 0 || copy->place != copy[-1].place) {
            a->shared[at] = share->first_owned + copy->place;
            a->holder_first[at++] = to;
        }
        a->holder[to] = copy->domain;
        a->holder_row[to] = d->domains[copy->domain].n_owned + shares[copy->domain].first_ghost + copy->ghost;
    }
}

static void fill_domains(void *context, const team_member *member)
{
    const decomposition *d = context;
    for (int part = member->thread; part < d->n_shares * d->n_domains; part += member->n)
        fill_from_share(d, part / d->n_domains, part % d->n_domains);
}

mlff_status decomposition_make(decomposition *d, int n_threads, const mlff_batch *batch)
{
    mlff_status status = MLFF_OK;
    making m = {.d = d, .positions = batch->positions, .n_threads = team_size(n_threads)};
    const int64_t n_made = d->n_made;
    double cell[9];
    unsigned char periodic[3];
    d->n_made = 0;
    MLFF_TRY(neighbors_set_axes(&d->axes, batch, 0));
    copy_cell(batch, cell, periodic);
    const bool other = n_made == 0 || d->n_atoms != batch->first_atom[1] || memcmp(periodic, d->periodic, sizeof periodic) != 0;
    memcpy(d->cell, cell, sizeof cell);
    memcpy(d->periodic, periodic, sizeof periodic);
    d->n_atoms = batch->first_atom[1];
    MLFF_TRY(base_grow(&d->positions, &d->positions_capacity, 3 * (size_t)d->n_atoms, sizeof *d->positions, "domains"));
    MLFF_TRY(base_grow(&d->species, &d->species_capacity, (size_t)d->n_atoms, sizeof *d->species, "domains"));
    memcpy(d->species, batch->species, (size_t)d->n_atoms * sizeof *d->species);
    if (other) {
        domain_grid_choose(d, batch);
        MLFF_TRY(domain_grid_place(d, batch->positions));
    }
    MLFF_TRY(sort_all(&m));
    int largest = largest_domain(d);
    const double share = (double)d->n_atoms / d->n_domains, bound = IMBALANCE * fmax(share, other ? share : d->largest_balanced);
    if (!other && largest > bound) {
        MLFF_TRY(domain_grid_place(d, batch->positions));
        MLFF_TRY(sort_all(&m));
        d->largest_balanced = largest = largest_domain(d);
    }
    if (other) d->largest_balanced = largest;
    for (int k = 0; k < d->n_domains; k++)
        if (count_owned(d, k) == 0) drop_ghosts(d, k);
    for (int k = 0; k < d->n_domains; k++) MLFF_TRY(reserve_domain(d, k));
    team_run(m.n_threads < d->n_shares ? m.n_threads : d->n_shares, fill_domains, d);
    d->n_made = n_made + 1;
done:
    return status;
}
