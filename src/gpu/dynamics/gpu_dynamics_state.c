// SPDX-License-Identifier: MIT
// gpu_dynamics_state.c: the arrays of dynamics on the GPU, and what the host sees of them.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "gpu/gpu_pack.h"
#include "gpu_dynamics.h"

const void *gpu_dynamics_seen(const gpu_dynamics *d, const void *array)
{
    return d->seen + ((const char *)array - d->state);
}

// Arrays that are uploaded once.
typedef struct uploaded_arrays {
    double *inverse_mass, *cells, *n_degrees; // [n_atoms], [n_systems][9], [n_systems]
    int32_t *species, *first_atom;
    int64_t *first_step;
    mlff_dynamics_options *options;
} uploaded_arrays;

// Sets pointers relative to `base`; returns the bytes.
static size_t place_arrays(gpu_dynamics *d, void *base, uploaded_arrays *to)
{
    gpu_packer p = {NULL, base, 0};
    const size_t n = (size_t)d->n_atoms, s = (size_t)d->n_systems;
    const void *at;
    gpu_motion *motion = &d->motion;
#define PLACE(pointer, bytes) (gpu_pack(&p, bytes, &at), pointer = (void *)(uintptr_t)at)
    PLACE(d->state, 0);
    PLACE(motion->positions, 3 * n * sizeof(double));
    PLACE(motion->velocities, 3 * n * sizeof(double));
    PLACE(motion->forces, 3 * n * sizeof(double));
    PLACE(motion->heat, n * sizeof(double));
    PLACE(motion->step, 2 * sizeof(int64_t));
    PLACE(d->results.energies, s * sizeof(double));
    PLACE(d->results.virials, 9 * s * sizeof(double));
    PLACE(d->systems.baths, s * sizeof(dynamics_bath));
    PLACE(to->cells, 9 * s * sizeof(double));
    d->state_bytes = p.at;
    PLACE(d->kept, d->state_bytes);
    PLACE(to->inverse_mass, n * sizeof(double));
    PLACE(to->species, n * sizeof(int32_t));
    PLACE(to->first_atom, (s + 1) * sizeof(int32_t));
    PLACE(to->first_step, s * sizeof(int64_t));
    PLACE(to->n_degrees, s * sizeof(double));
    PLACE(to->options, s * sizeof *to->options);
    PLACE(motion->report, sizeof *motion->report);
    PLACE(motion->times, (CHUNK + 1) * sizeof(uint64_t));
#undef PLACE
    motion->inverse_mass = to->inverse_mass;
    return p.at;
}

static void share_arrays(gpu_dynamics *d, const uploaded_arrays *to)
{
    const gpu_motion *motion = &d->motion;
    gpu_systems *systems = &d->systems;
    const int threads = (3 * d->largest + 31) / 32 * 32;
    systems->n_systems = d->n_systems;
    systems->n_threads = threads < 512 ? threads : 512;
    systems->first_atom = to->first_atom;
    systems->first_step = to->first_step;
    systems->n_degrees = to->n_degrees;
    systems->options = to->options;
    systems->positions = motion->positions;
    systems->velocities = motion->velocities;
    systems->forces = motion->forces;
    systems->inverse_mass = motion->inverse_mass;
    systems->cells = to->cells;
    systems->virials = d->results.virials;
    systems->step = motion->step;
    systems->times = motion->times;
    systems->report = motion->report;
    systems->trouble = motion->trouble;
    d->batch.species = to->species;
    d->batch.positions = motion->positions;
    d->batch.cells = to->cells;
    d->results.forces = motion->forces;
    if (!d->constant_pressure) d->results.virials = NULL;
}

static mlff_status upload_system(gpu_dynamics *d, const gpu_dynamics_start *start, int s, const uploaded_arrays *to)
{
    mlff_status status = MLFF_OK;
    const mlff_system *system = start->system;
    const size_t n = (size_t)system->n_atoms, first = (size_t)d->first_atom[s];
    double *inverse_mass = calloc(n, sizeof *inverse_mass), *masses = d->masses + first;
    if (!inverse_mass) return host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
    for (size_t i = 0; i < n; i++) {
        masses[i] = system->masses[i];
        inverse_mass[i] = system->fixed && system->fixed[i] ? 0.0 : 1.0 / (BASE_AMU_ANG2_FS2_EV * masses[i]);
    }
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[] = {{to->inverse_mass + first, inverse_mass, n * sizeof(double)},
                  {d->motion.positions + 3 * first, system->positions, 3 * n * sizeof(double)},
                  {d->motion.velocities + 3 * first, system->velocities, 3 * n * sizeof(double)},
                  {to->species + first, system->species, n * sizeof(int32_t)},
                  {to->cells + 9 * (size_t)s, system->cell, sizeof system->cell},
                  {to->first_step + s, &start->step, sizeof start->step},
                  {to->n_degrees + s, &start->n_degrees, sizeof start->n_degrees},
                  {to->options + s, start->options, sizeof *start->options},
                  {d->systems.baths + s, start->bath, sizeof *start->bath}};
    for (size_t k = 0; k < sizeof copies / sizeof *copies; k++)
        CUDA_TRY(cuda_copy(copies[k].to, copies[k].from, copies[k].bytes, cudaMemcpyHostToDevice), "copying atoms to the GPU");
done:
    free(inverse_mass);
    return status;
}

static mlff_status allocate_host(gpu_dynamics *d, const gpu_dynamics_start *starts)
{
    const size_t s = (size_t)d->n_systems;
    d->first_atom = calloc(s + 1, sizeof *d->first_atom);
    d->periodic = calloc(s, 3);
    d->cells = calloc(9 * s, sizeof *d->cells);
    d->charges = calloc(2 * s, sizeof *d->charges);
    d->baths = calloc(s, sizeof *d->baths);
    if (!d->first_atom || !d->periodic || !d->cells || !d->charges || !d->baths)
        return host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
    for (size_t k = 0; k < s; k++) {
        const mlff_system *system = starts[k].system;
        d->first_atom[k + 1] = d->first_atom[k] + system->n_atoms;
        if (system->n_atoms > d->largest) d->largest = system->n_atoms;
        memcpy(d->periodic + 3 * k, system->periodic, 3);
        memcpy(d->cells + 9 * k, system->cell, sizeof system->cell);
        d->charges[k] = system->charge;
        d->charges[s + k] = system->spin;
        d->baths[k] = *starts[k].bath;
    }
    d->heat_before = d->baths[0].heat;
    d->n_atoms = d->first_atom[s];
    d->masses = calloc((size_t)d->n_atoms, sizeof *d->masses);
    return d->masses ? MLFF_OK : host.fail(MLFF_ERR_MEMORY, "out of memory: dynamics");
}

mlff_status gpu_dynamics_place(gpu_dynamics *d, const gpu_dynamics_start *starts)
{
    mlff_status status = MLFF_OK;
    uploaded_arrays to;
    PLUGIN_TRY(allocate_host(d, starts));
    PLUGIN_TRY(cuda_allocate(d->evaluator->device, place_arrays(d, NULL, &to), "dynamics", &d->block));
    place_arrays(d, d->block, &to);
    CUDA_TRY(cudaHostAlloc(&d->pinned, 512 + d->state_bytes + (CHUNK + 1) * sizeof(uint64_t), cudaHostAllocMapped),
             "page-locked memory for dynamics");
    memset(d->pinned, 0, 512);
    d->motion.trouble = d->pinned;
    d->report = (gpu_report *)((char *)d->pinned + 256);
    d->seen = (char *)d->pinned + 512;
    d->times = (uint64_t *)(d->seen + d->state_bytes);
    share_arrays(d, &to);
    for (int s = 0; s < d->n_systems; s++) PLUGIN_TRY(upload_system(d, &starts[s], s, &to));
    // The steps of one system alone are counted from its first; of several, each adds its own first one.
    const int64_t step = d->fused ? starts[0].step : 0;
    CUDA_TRY(cuda_copy(d->motion.step, &step, sizeof step, cudaMemcpyHostToDevice), "copying atoms to the GPU");
    CUDA_TRY(cuda_copy(to.first_atom, d->first_atom, (size_t)(d->n_systems + 1) * sizeof(int32_t), cudaMemcpyHostToDevice),
             "copying atoms to the GPU");
    d->batch.first_atom = d->first_atom;
    d->batch.periodic = d->periodic;
    d->batch.charges = d->charges;
    d->batch.spins = d->charges + d->n_systems;
done:
    return status;
}

void gpu_dynamics_get(gpu_dynamics *d, int s, gpu_dynamics_state *state_out)
{
    const size_t first = (size_t)d->first_atom[s];
    const gpu_motion *motion = &d->motion;
    const double *heat = gpu_dynamics_seen(d, motion->heat);
    if (d->fused) {
        d->baths[0].heat = 0;
        for (int i = 0; i < d->n_atoms; i++) d->baths[0].heat += heat[i];
        d->baths[0].heat += d->heat_before;
    }
    *state_out =
        (gpu_dynamics_state){.positions = (const double *)gpu_dynamics_seen(d, motion->positions) + 3 * first,
                             .velocities = (const double *)gpu_dynamics_seen(d, motion->velocities) + 3 * first,
                             .forces = (const double *)gpu_dynamics_seen(d, motion->forces) + 3 * first,
                             .potential_energy = ((const double *)gpu_dynamics_seen(d, d->results.energies))[s],
                             .bath = d->fused ? d->baths : (const dynamics_bath *)gpu_dynamics_seen(d, d->systems.baths) + s};
    if (!d->constant_pressure) return;
    state_out->cell = (const double *)gpu_dynamics_seen(d, d->systems.cells) + 9 * (size_t)s;
    state_out->virial = (const double *)gpu_dynamics_seen(d, d->results.virials) + 9 * (size_t)s;
}
