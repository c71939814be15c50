// SPDX-License-Identifier: MIT
// parallel_transfer.c: atoms of dynamics on their way into and out of the domains.
//
// The GPUs wait meanwhile. A domain's thread, which alone uses its GPU, reserves memory and copies between host and GPU; threads of the whole
// CPU share the atoms of all domains to sort them into the domains' arrays and back.
#include <string.h>

#include "device/team.h"
#include "parallel/parallel_dynamics.h"

enum { ATOMS_OF_A_THREAD = 4096 };

static int n_threads(const parallel_dynamics *p)
{
    const int most = p->first_atom[1] / ATOMS_OF_A_THREAD + 1, threads = team_size(p->evaluator->decomposing_threads);
    return threads < most ? threads : most;
}

// A thread's share of n rows.
static size_t first_row(size_t n, const team_member *member)
{
    return n * (size_t)member->thread / (size_t)member->n;
}

static size_t end_row(size_t n, const team_member *member)
{
    return n * ((size_t)member->thread + 1) / (size_t)member->n;
}

// ---- into the domains ---------------------------------------------------------------------------------------------------

static mlff_status reserve_domain(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    moving_domain *m = &p->domains[index];
    const domain_atoms *atoms = &p->evaluator->decomposition->domains[index];
    m->now = NOW;
    m->far = false;
    m->begun = p->drifted;
    memcpy(m->bath, p->bath, sizeof m->bath);
    memset(m->twice_kinetic, 0, sizeof m->twice_kinetic);
    memset(m->twice_kicked, 0, sizeof m->twice_kicked);
    for (int c = 0; c < 3; c++) {
        m->bath[NOW].strained[c] = p->drifted ? 1 / p->bath[NEXT].stretch[c] : 1;
        m->bath[NEXT].strained[c] = 1;
    }
    if (atoms->n_owned == 0) return MLFF_OK;
    if (p->fresh) MLFF_TRY(parallel_take_atoms(p->evaluator, index));
    status = moving_reserve(m, atoms->n_owned, atoms->n_local);
done:
    return status;
}

static void fill_rows(const parallel_dynamics *p, int index, const team_member *member)
{
    const parallel_evaluator *e = p->evaluator;
    const domain_atoms *atoms = &e->decomposition->domains[index];
    const moving_arrays *to = &p->domains[index].here;
    const size_t size = 3 * sizeof(double), first = first_row((size_t)atoms->n_local, member),
                 n = end_row((size_t)atoms->n_local, member) - first, end = end_row((size_t)atoms->n_owned, member);
    memcpy(to->species + first, e->domains[index].species + first, n * sizeof *to->species);
    memcpy(to->owned + first, e->domains[index].owned + first, n);
    memcpy(to->atom + first, atoms->atom + first, n * sizeof *to->atom);
    memcpy(to->shift + 3 * first, atoms->shift + 3 * first, 3 * n * sizeof *to->shift);
    for (size_t i = first_row((size_t)atoms->n_owned, member); i < end; i++) {
        const int atom = atoms->atom[i];
        const size_t from = 3 * (size_t)atom;
        to->inverse_mass[i] = is_fixed(p->system, atom) ? 0 : inverse_mass(p->system, atom);
        memcpy(to->listed + 3 * i, e->decomposition->positions + from, size);
        memcpy(to->forces[NOW] + 3 * i, p->forces + from, size);
        for (int s = NOW; s <= (p->drifted ? NEXT : NOW); s++) {
            memcpy(to->positions[s] + 3 * i, p->positions[s] + from, size);
            memcpy(to->velocities[s] + 3 * i, p->velocities[s] + from, size);
        }
    }
}

static void fill_domains(void *context, const team_member *member)
{
    const parallel_dynamics *p = context;
    for (int k = 0; k < p->evaluator->n; k++)
        if (p->evaluator->decomposition->domains[k].n_owned > 0) fill_rows(p, k, member);
}

static mlff_status start_domain(void *context, int index)
{
    mlff_status status = MLFF_OK;
    parallel_dynamics *p = context;
    moving_domain *m = &p->domains[index];
    const decomposition *all = p->evaluator->decomposition;
    if (all->domains[index].n_owned == 0) return MLFF_OK;
    memcpy(m->here.cell, all->cell, sizeof all->cell);
    MLFF_TRY(moving_upload(m));
    memcpy(m->motion.cell, all->cell, sizeof m->motion.cell);
    exchange_tables(p->evaluator->exchange, index, &m->motion);
    moving_aim(m);
done:
    return status;
}

mlff_status parallel_enter_domains(parallel_dynamics *p)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(crew_run(p->evaluator->crew, reserve_domain, p));
    team_run(n_threads(p), fill_domains, p);
    MLFF_TRY(crew_run(p->evaluator->crew, start_domain, p));
    p->evaluator->dynamics = p;
done:
    return status;
}

// ---- and out of them ----------------------------------------------------------------------------------------------------

static mlff_status fetch_domain(void *context, int index)
{
    parallel_dynamics *p = context;
    return p->evaluator->decomposition->domains[index].n_owned > 0 ? moving_fetch(&p->domains[index]) : MLFF_OK;
}

static void read_rows(const parallel_dynamics *p, int index, const team_member *member)
{
    const moving_domain *m = &p->domains[index];
    const domain_atoms *atoms = &p->evaluator->decomposition->domains[index];
    const size_t end = end_row((size_t)atoms->n_owned, member), size = 3 * sizeof(double);
    for (size_t i = first_row((size_t)atoms->n_owned, member); i < end; i++) {
        const size_t to = 3 * (size_t)atoms->atom[i];
        memcpy(p->forces + to, m->here.forces[m->now] + 3 * i, size);
        for (int s = NOW; s <= (m->begun ? NEXT : NOW); s++) {
            memcpy(p->positions[s] + to, m->here.positions[s == NOW ? m->now : 1 - m->now] + 3 * i, size);
            memcpy(p->velocities[s] + to, m->here.velocities[s == NOW ? m->now : 1 - m->now] + 3 * i, size);
        }
    }
}

static void read_domains(void *context, const team_member *member)
{
    const parallel_dynamics *p = context;
    for (int k = 0; k < p->evaluator->n; k++) read_rows(p, k, member);
}

mlff_status parallel_leave_domains(parallel_dynamics *p)
{
    mlff_status status = MLFF_OK;
    if (!is_in_domains(p) || !p->behind) return MLFF_OK;
    MLFF_TRY(crew_run(p->evaluator->crew, fetch_domain, p));
    team_run(n_threads(p), read_domains, p);
    p->behind = false;
done:
    return status;
}

mlff_status parallel_divide_again(parallel_dynamics *p)
{
    mlff_status status = MLFF_OK;
    parallel_evaluator *e = p->evaluator;
    MLFF_TRY(parallel_leave_domains(p));
    e->dynamics = NULL;
    p->batch.positions = p->positions[p->drifted ? NEXT : NOW];
    if (p->batch.cells) p->batch.cells = p->bath[p->drifted ? NEXT : NOW].cell;
    MLFF_TRY(decomposition_make(e->decomposition, e->decomposing_threads, &p->batch));
    p->fresh = true;
    status = parallel_enter_domains(p);
    p->fresh = false;
    if (status != MLFF_OK) e->decomposition->n_made = 0; // arrays may be of another decomposition
done:
    return status;
}
