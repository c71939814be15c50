// SPDX-License-Identifier: MIT
// gpu_call.c: inputs and results of a call: their layout in memory, and their transfer.
#include "gpu_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/neighbors/cell.h"
#include "gpu_evaluator.h"

// ---- memory -------------------------------------------------------------------------------------------------------------

size_t gpu_place_input(input_block *input, char *base, int n_atoms, int n_systems)
{
    size_t at = 0, n = (size_t)n_atoms, s = (size_t)n_systems;
#define PLACE(field, bytes) (input->field = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 63) / 64 * 64)
    PLACE(call, sizeof *input->call);
    PLACE(systems, sizeof *input->systems * s);
    PLACE(system_of, sizeof(int32_t) * n);
    PLACE(species, sizeof(int32_t) * n);
    PLACE(cells, sizeof(double) * 9 * s);
    PLACE(owned, n);
    PLACE(positions, sizeof(double) * 3 * n);
#undef PLACE
    return at;
}

static size_t place_host(host_arrays *io, char *base, int n_stamps)
{
    input_block input;
    size_t at = 0, n = (size_t)io->n_atoms, s = (size_t)io->n_systems, p = (size_t)io->n_pairs;
    io->input_bytes = gpu_place_input(&input, NULL, io->n_atoms, io->n_systems);
#define PLACE(field, bytes) (io->field = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 63) / 64 * 64)
    PLACE(input, io->input_bytes);
    PLACE(report, sizeof *io->report);
    PLACE(report_of_rows, sizeof *io->report_of_rows);
    PLACE(overflow, sizeof *io->overflow);
    PLACE(stamps, sizeof(uint64_t) * (size_t)n_stamps);
    PLACE(energies, sizeof(double) * s);
    PLACE(virials, sizeof(double) * 9 * s);
    PLACE(stresses, sizeof(double) * 6 * s);
    PLACE(atom_energies, sizeof(double) * n);
    PLACE(forces, sizeof(double) * 3 * n);
    PLACE(force_errors, sizeof(double) * n);
    PLACE(pair_first, sizeof(int32_t) * (n + 1));
    PLACE(pair_neighbor, sizeof(int32_t) * p);
    PLACE(pair_shift, sizeof(int32_t) * 3 * p);
#undef PLACE
    return at;
}

mlff_status gpu_evaluator_check_charges(const gpu_evaluator *e, const mlff_batch *batch)
{
    for (int s = 0; e->reads_charges && s < batch->n_systems; s++)
        if (!batch->charges || !batch->spins || !isfinite(batch->charges[s]) || !isfinite(batch->spins[s]))
            return host.fail(MLFF_ERR_VALUE,
                             "this model depends on charge and spin, and system %d has none; give both (charge= "
                             "and spin= in the comment of extended XYZ, atoms.info in Python)",
                             s);
    return MLFF_OK;
}

mlff_status gpu_evaluator_grow_host(gpu_evaluator *e, int n_atoms, int n_systems, int n_pairs)
{
    mlff_status status = MLFF_OK;
    host_arrays io = e->io;
    if (io.block && n_atoms <= io.n_atoms && n_systems <= io.n_systems && n_pairs <= io.n_pairs) return MLFF_OK;
    if (class_of(n_atoms) > io.n_atoms) io.n_atoms = class_of(n_atoms);
    if (class_of_systems(n_systems) > io.n_systems) io.n_systems = class_of_systems(n_systems);
    if (n_pairs > io.n_pairs) io.n_pairs = n_pairs + n_pairs / 4;
    CUDA_TRY(cuda_wait(e->stream, 0), "waiting for the last step");
    gpu_evaluator_drop_graphs(e); // they contain the input's address
    if (e->io.block) cudaFreeHost(e->io.block);
    cuda_release(e->device, e->input);
    e->input = NULL;
    e->io = (host_arrays){0};
    e->known_bytes = 0;
    io.bytes = place_host(&io, NULL, e->n_stamps);
    CUDA_TRY(cudaHostAlloc(&io.block, io.bytes, cudaHostAllocMapped | cudaHostAllocPortable),
             "page-locked memory for inputs and results");
    e->io.block = io.block;
    PLUGIN_TRY(cuda_allocate(e->device, io.input_bytes, "inputs", &e->input));
    memset(io.block, 0, io.bytes);
    place_host(&io, io.block, e->n_stamps);
    e->io = io;
    e->n_growths++;
done:
    return status;
}

// ---- a call -------------------------------------------------------------------------------------------------------------

// Systems and the system of each atom; cells in GPU memory are completed there.
static void fill_systems(const gpu_evaluator *e, const mlff_batch *batch, input_block *to)
{
    for (int s = 0; s < batch->n_systems; s++) {
        gpu_system *system = &to->systems[s];
        const unsigned char *periodic = batch->periodic ? batch->periodic + 3 * (size_t)s : NULL;
        const double *cell = batch->cells ? batch->cells + 9 * (size_t)s : NULL;
        *system = (gpu_system){.first = batch->first_atom[s],
                               .n = batch->first_atom[s + 1] - batch->first_atom[s],
                               .charge = batch->charges ? batch->charges[s] : NAN,
                               .spin = batch->spins ? batch->spins[s] : NAN};
        const double *known = batch->location == MLFF_HOST              ? cell
                              : cell && batch->cells == e->device_cells ? e->host_cells + 9 * (size_t)s
                                                                        : NULL;
        if (known || !cell || !periodic || !(periodic[0] || periodic[1] || periodic[2])) {
            system->flags = cell_complete(known, periodic, e->step.neighbors.cutoff, system);
            if (!cell && periodic && (periodic[0] || periodic[1] || periodic[2])) system->flags |= GPU_NO_VOLUME;
            cell_bins(cell_reach(&e->step), system);
        } else {
            system->pending = 1;
            for (int a = 0; a < 3; a++) system->wrapped[a] = periodic[a] != 0;
        }
        for (int i = batch->first_atom[s]; i < batch->first_atom[s + 1]; i++) to->system_of[i] = s;
    }
}

// What the systems of an input block for so many atoms and systems were made from, in pieces.
static mlff_status remember(gpu_evaluator *e, const mlff_batch *batch, int n_atoms, int n_systems, bool *same_out)
{
    const size_t s = (size_t)batch->n_systems;
    const bool on_device = batch->location == MLFF_DEVICE_MEMORY;
    const struct {
        const void *from;
        size_t bytes;
    } pieces[] = {{batch->first_atom, sizeof(int32_t) * (s + 1)},
                  {on_device ? NULL : batch->cells, sizeof(double) * 9 * s},
                  {batch->periodic, 3 * s},
                  {batch->charges, sizeof(double) * s},
                  {batch->spins, sizeof(double) * s}};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    size_t bytes = PIECES, at = 0; // a byte for each piece: whether it is there
    for (int k = 0; k < PIECES; k++) bytes += pieces[k].from ? pieces[k].bytes : 0;
    *same_out =
        bytes == e->known_bytes && n_atoms == e->known_atoms && n_systems == e->known_systems && on_device == e->known_on_device;
    for (int k = 0; k < PIECES && *same_out; k++) {
        const size_t n = pieces[k].from ? pieces[k].bytes : 0;
        *same_out = e->seen[at] == (pieces[k].from != NULL) && (n == 0 || memcmp(e->seen + at + 1, pieces[k].from, n) == 0);
        at += 1 + n;
    }
    if (*same_out) return MLFF_OK;
    if (bytes > e->known_capacity) {
        free(e->seen);
        e->known_bytes = e->known_capacity = 0;
        if (!(e->seen = malloc(bytes))) return host.fail(MLFF_ERR_MEMORY, "out of memory: inputs");
        e->known_capacity = bytes;
    }
    at = 0;
    for (int k = 0; k < PIECES; k++) {
        e->seen[at++] = pieces[k].from != NULL;
        if (pieces[k].from) memcpy(e->seen + at, pieces[k].from, pieces[k].bytes);
        at += pieces[k].from ? pieces[k].bytes : 0;
    }
    e->known_bytes = bytes;
    e->known_atoms = n_atoms;
    e->known_systems = n_systems;
    e->known_on_device = on_device;
    return MLFF_OK;
}

// Host batch: everything into page-locked memory; pointers of the call are addresses after the graph's copy.
mlff_status gpu_evaluator_fill_host(gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results, const gpu_plan *plan)
{
    host_arrays *io = &e->io;
    input_block here, there;
    bool same = false;
    size_t s = (size_t)batch->n_systems, n = (size_t)batch->first_atom[s];
    gpu_place_input(&here, io->input, plan->n_atoms, plan->n_systems);
    gpu_place_input(&there, e->input, plan->n_atoms, plan->n_systems);
    gpu_call call = {.n_atoms = (int32_t)n,
                     .n_systems = batch->n_systems,
                     .want_virial = results->virials || results->stresses,
                     .member = e->member,
                     .systems = there.systems,
                     .system_of = there.system_of,
                     .species = there.species,
                     .positions = there.positions,
                     .cells = batch->cells ? there.cells : NULL,
                     .owned = batch->owned ? there.owned : NULL,
                     .report = io->report,
                     .energies = io->energies,
                     .atom_energies = results->atom_energies ? io->atom_energies : NULL,
                     .forces = results->forces ? io->forces : NULL,
                     .virials = results->virials ? io->virials : NULL,
                     .stresses = results->stresses ? io->stresses : NULL,
                     .force_errors = results->force_errors ? io->force_errors : NULL};
    mlff_status status = remember(e, batch, plan->n_atoms, plan->n_systems, &same);
    if (status != MLFF_OK) return status;
    if (!same) fill_systems(e, batch, &here);
    memcpy(here.species, batch->species, sizeof(int32_t) * n);
    memcpy(here.positions, batch->positions, sizeof(double) * 3 * n);
    if (batch->cells) memcpy(here.cells, batch->cells, sizeof(double) * 9 * s);
    if (batch->owned) memcpy(here.owned, batch->owned, n);
    if (batch->pairs) {
        size_t p = (size_t)batch->pairs->first[n];
        memcpy(io->pair_first, batch->pairs->first, sizeof(int32_t) * (n + 1));
        memcpy(io->pair_neighbor, batch->pairs->neighbor, sizeof(int32_t) * p);
        call.pair_first = io->pair_first;
        call.pair_neighbor = io->pair_neighbor;
        if (batch->pairs->shift) {
            memcpy(io->pair_shift, batch->pairs->shift, sizeof(int32_t) * 3 * p);
            call.pair_shift = io->pair_shift;
        }
    }
    *here.call = call;
    return MLFF_OK;
}

void gpu_evaluator_take_results(const gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results)
{
    const host_arrays *io = &e->io;
    size_t s = (size_t)batch->n_systems, n = (size_t)batch->first_atom[s];
    if (results->energies) memcpy(results->energies, io->energies, sizeof(double) * s);
    if (results->atom_energies) memcpy(results->atom_energies, io->atom_energies, sizeof(double) * n);
    if (results->forces) memcpy(results->forces, io->forces, sizeof(double) * 3 * n);
    if (results->virials) memcpy(results->virials, io->virials, sizeof(double) * 9 * s);
    if (results->stresses) memcpy(results->stresses, io->stresses, sizeof(double) * 6 * s);
    if (results->force_errors) memcpy(results->force_errors, io->force_errors, sizeof(double) * n);
}

static mlff_status grow_staged(gpu_evaluator *e, size_t bytes, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    if (bytes <= e->staged_bytes) return MLFF_OK;
    size_t wanted = bytes + bytes / 4;
    CUDA_TRY(cuda_wait(stream, 0), "waiting for the last step");
    gpu_evaluator_drop_graphs(e);
    cuda_release(e->device, e->staged);
    e->staged = NULL;
    e->staged_bytes = e->sent_bytes = 0;
    free(e->sent);
    e->sent = calloc(2, wanted);
    if (!e->sent) return host.fail(MLFF_ERR_MEMORY, "out of memory: inputs");
    PLUGIN_TRY(cuda_allocate(e->device, wanted, "inputs", &e->staged));
    e->staged_bytes = wanted;
    e->n_growths++;
done:
    return status;
}

// Device batch: what the host knows (pointers, systems) is copied to the GPU in stream order unless it is there already. A pageable copy of
// this size is staged by the driver at once, so the host does not wait.
mlff_status gpu_evaluator_send_call(gpu_evaluator *e, const mlff_batch *batch, const mlff_results *results, cudaStream_t stream)
{
    mlff_status status = MLFF_OK;
    input_block here, there;
    int n = batch->first_atom[batch->n_systems];
    gpu_place_input(&there, (char *)64, n, batch->n_systems);
    size_t bytes = (size_t)((char *)there.species - (char *)64);
    PLUGIN_TRY(grow_staged(e, bytes, stream));
    gpu_place_input(&there, e->staged, n, batch->n_systems);
    const gpu_call call = {.n_atoms = n,
                           .n_systems = batch->n_systems,
                           .want_virial = results->virials || results->stresses,
                           .member = e->member,
                           .systems = there.systems,
                           .system_of = there.system_of,
                           .cells = batch->cells,
                           .species = batch->species,
                           .positions = batch->positions,
                           .owned = batch->owned,
                           .pair_first = batch->pairs ? batch->pairs->first : NULL,
                           .pair_neighbor = batch->pairs ? batch->pairs->neighbor : NULL,
                           .pair_shift = batch->pairs ? batch->pairs->shift : NULL,
                           .report = e->report ? e->report : e->io.report,
                           .energies = results->energies,
                           .atom_energies = results->atom_energies,
                           .forces = results->forces,
                           .virials = results->virials,
                           .stresses = results->stresses,
                           .force_errors = results->force_errors};
    // Cells that the host knows are not compared: then the whole block is.
    bool same = false;
    if (e->device_cells)
        e->known_bytes = 0;
    else
        PLUGIN_TRY(remember(e, batch, n, batch->n_systems, &same));
    if (same && bytes == e->sent_bytes && stream == e->sent_on && memcmp(&call, e->sent, sizeof call) == 0) goto done;
    char *block = e->sent + e->staged_bytes;
    memset(block, 0, bytes);
    gpu_place_input(&here, block, n, batch->n_systems);
    fill_systems(e, batch, &here);
    *here.call = call;
    if (bytes == e->sent_bytes && stream == e->sent_on && memcmp(block, e->sent, bytes) == 0) goto done;
    e->sent_bytes = 0; // until it has been copied
    e->dynamics = NULL;
    CUDA_TRY(cudaMemcpyAsync(e->staged, block, bytes, cudaMemcpyHostToDevice, stream), "copying a call to the GPU");
    memcpy(e->sent, block, bytes);
    e->sent_bytes = bytes;
    e->sent_on = stream;
done:
    return status;
}
