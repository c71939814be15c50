// SPDX-License-Identifier: MIT
// moving.c: memory and moves of the own atoms of a domain.
#include "parallel/moving.h"

#include <string.h>

#include "base/base.h"

// *n_sent_out: bytes of those that come from the host.
static size_t place_arrays(moving_arrays *a, char *base, size_t n_owned, size_t n_local, size_t *n_sent_out)
{
    size_t at = 0;
#define PLACE(field, bytes) (a->field = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 63) / 64 * 64)
    for (int k = 0; k < 2; k++) {
        PLACE(positions[k], 3 * n_owned * sizeof(double));
        PLACE(velocities[k], 3 * n_owned * sizeof(double));
        PLACE(forces[k], 3 * n_owned * sizeof(double));
    }
    PLACE(inverse_mass, n_owned * sizeof(double));
    PLACE(listed, 3 * n_owned * sizeof(double));
    PLACE(cell, 9 * sizeof(double));
    PLACE(species, n_local * sizeof(int32_t));
    PLACE(atom, n_local * sizeof(int32_t));
    PLACE(shift, 3 * n_local * sizeof(int32_t));
    PLACE(owned, n_local);
    *n_sent_out = at;
    PLACE(found, 3 * n_local * sizeof(double));
    PLACE(local, 3 * n_local * sizeof(double));
#undef PLACE
    return at;
}

// Behind the arrays of the host.
enum { ENERGY_BYTES = 128 }; // and virial
static size_t outcome_bytes(size_t n_owned)
{
    return (n_owned / DOMAIN_BLOCK + 1) * sizeof(domain_outcome);
}

static void release_blocks(moving_domain *m)
{
    if (m->plugin) {
        m->plugin->release(m->gpu, m->device_block);
        m->plugin->release_host(m->host_block);
    } else {
        base_free(m->host_block);
    }
    m->host_block = m->device_block = NULL;
    m->capacity = 0;
}

void moving_release(moving_domain *m)
{
    release_blocks(m);
    if (m->plugin && m->stream) m->plugin->stream_destroy(m->gpu, m->stream);
    m->stream = NULL;
}

static mlff_status allocate_blocks(moving_domain *m, size_t bytes)
{
    mlff_status status = MLFF_OK;
    void *block;
    release_blocks(m);
    if (m->plugin) {
        MLFF_TRY(m->plugin->allocate_host(m->gpu, bytes, &block));
        m->host_block = block;
        MLFF_TRY(m->plugin->allocate(m->gpu, bytes, &block));
        m->device_block = block;
    } else {
        if (!(m->host_block = base_alloc(bytes, 1, "atoms of a domain"))) return MLFF_ERR_MEMORY;
        m->device_block = m->host_block;
    }
    m->capacity = bytes;
done:
    return status;
}

mlff_status moving_reserve(moving_domain *m, int n_owned, int n_local)
{
    mlff_status status = MLFF_OK;
    const size_t owned = (size_t)n_owned, local = (size_t)n_local,
                 arrays = place_arrays(&m->here, NULL, owned, local, &m->sent_bytes),
                 bytes = arrays + ENERGY_BYTES + outcome_bytes(owned);
    if (m->plugin && !m->stream) MLFF_TRY(m->plugin->stream_create(m->gpu, &m->stream));
    if (bytes > m->capacity) MLFF_TRY(allocate_blocks(m, bytes + bytes / 8));
    place_arrays(&m->here, m->host_block, owned, local, &m->sent_bytes);
    place_arrays(&m->there, m->device_block, owned, local, &m->sent_bytes);
    m->found_energy = (double *)(void *)(m->host_block + arrays);
    m->found_virial = m->found_energy + 1;
    m->outcomes = (domain_outcome *)(void *)(m->host_block + arrays + ENERGY_BYTES);
    m->motion.n_owned = n_owned;
    m->motion.n_local = n_local;
    m->motion.atom = m->there.atom;
    m->motion.shift = m->there.shift;
    m->motion.inverse_mass = m->there.inverse_mass;
    m->motion.listed = m->there.listed;
    m->motion.local = m->there.local;
    m->motion.cell_there = m->there.cell;
    m->motion.found = m->there.found;
    m->motion.outcomes = m->outcomes;
done:
    return status;
}

mlff_status moving_upload(moving_domain *m)
{
    return m->plugin ? m->plugin->copy(m->gpu, m->device_block, m->host_block, m->sent_bytes) : MLFF_OK;
}

mlff_status moving_fetch(moving_domain *m)
{
    mlff_status status = MLFF_OK;
    const size_t bytes = 3 * (size_t)m->motion.n_owned * sizeof(double);
    if (!m->plugin) return MLFF_OK;
    MLFF_TRY(moving_wait(m));
    for (int k = 0; k < (m->begun ? 2 : 1); k++) {
        const int which = k == 0 ? m->now : 1 - m->now;
        MLFF_TRY(m->plugin->copy(m->gpu, m->here.positions[which], m->there.positions[which], bytes));
        MLFF_TRY(m->plugin->copy(m->gpu, m->here.velocities[which], m->there.velocities[which], bytes));
    }
    MLFF_TRY(m->plugin->copy(m->gpu, m->here.forces[m->now], m->there.forces[m->now], bytes));
done:
    return status;
}

void moving_aim(moving_domain *m)
{
    const int next = 1 - m->now;
    m->motion.now = m->there.positions[m->now];
    m->motion.next = m->there.positions[next];
    m->motion.velocities = m->there.velocities[m->now];
    m->motion.next_velocities = m->there.velocities[next];
    m->motion.forces = m->there.forces[m->now];
    m->motion.next_forces = m->there.forces[next];
}

mlff_status moving_wait(const moving_domain *m)
{
    return m->plugin ? m->plugin->stream_synchronize(m->gpu, m->stream) : MLFF_OK;
}

mlff_status moving_move(moving_domain *m, domain_move move, domain_outcome *outcome_out)
{
    mlff_status status = MLFF_OK;
    const int n = domain_turns(&m->motion, move);
    domain_outcome all = domain_nothing();
    if (m->plugin) {
        MLFF_TRY(m->plugin->move_domain(move, &m->motion, m->stream));
        if (!domain_has_outcome(move)) return MLFF_OK;
        MLFF_TRY(moving_wait(m));
        for (int k = 0; k * DOMAIN_BLOCK < n; k++) domain_join(&all, &m->outcomes[k]);
    } else {
        for (int i = 0; i < n; i++) {
            const domain_outcome one = domain_turn(&m->motion, move, (size_t)i);
            domain_join(&all, &one);
        }
    }
    if (outcome_out) *outcome_out = all;
done:
    return status;
}
