// SPDX-License-Identifier: MIT
// gpu_step.c: the layout of a step's arrays that do not depend on the model. Runs on the host.
#include "gpu_step.h"

#include "gpu_pack.h"

size_t gpu_step_arena(gpu_step *step, void *base)
{
    gpu_packer p = {NULL, base, 0};
    gpu_neighbors *list = &step->neighbors;
    const size_t n = (size_t)list->atom_capacity, e = n * (size_t)list->row_capacity;
    const void *at;
#define PLACE(pointer, bytes) (gpu_pack(&p, bytes, &at), pointer = (void *)(uintptr_t)at)
    PLACE(step->call, sizeof(gpu_call));
    PLACE(step->report, sizeof(gpu_report));
    PLACE(list->pair_counts, GPU_PAIR_COUNTS * 32 * sizeof(int32_t));
    PLACE(list->systems, (size_t)list->system_capacity * sizeof(gpu_system));
    PLACE(list->species, n * sizeof(int32_t));
    PLACE(list->system_of, n * sizeof(int32_t));
    PLACE(list->owned, n);
    PLACE(list->fractional, n * 3 * sizeof(double));
    PLACE(list->fractional_float, n * 4 * sizeof(float));
    PLACE(list->row_length, n * sizeof(int32_t));
    PLACE(list->edges, e * sizeof(gpu_edge));
    PLACE(list->reverse, e * sizeof(int32_t));
    if (list->incoming_room) {
        PLACE(list->incoming_count, n * sizeof(int32_t));
        PLACE(list->incoming_keys, e * sizeof(int32_t));
        PLACE(list->incoming_edges, e * sizeof(gpu_edge));
    }
    // As many as neighbors within cutoff and skin at the density that fills the rows, and an eighth more.
    const double wider = (list->cutoff + list->skin) / list->cutoff;
    list->candidate_capacity = (int32_t)(1.125 * wider * wider * wider * list->row_capacity) + 1;
    PLACE(list->list, sizeof(gpu_verlet_list));
    PLACE(list->bin, n * sizeof(int32_t));
    PLACE(list->place_in_bin, n * sizeof(int32_t));
    PLACE(list->bin_count, (n + 1) * sizeof(int32_t));
    PLACE(list->bin_first, (n + 1) * sizeof(int32_t));
    PLACE(list->bin_total, (n / GPU_SCAN_BLOCK + 1) * sizeof(int32_t));
    PLACE(list->binned, n * 4 * sizeof(float));
    PLACE(list->listed, n * 3 * sizeof(double));
    PLACE(list->listed_cells, (size_t)list->system_capacity * 9 * sizeof(double));
    PLACE(list->candidates, n * (size_t)list->candidate_capacity * sizeof(int32_t));
    PLACE(list->candidate_length, n * sizeof(int32_t));
    PLACE(step->atom_virial, n * 9 * sizeof(double));
#undef PLACE
    gpu_step_choose_rows(step, 0);
    return (p.at + 255) / 256 * 256;
}

void gpu_step_choose_rows(gpu_step *step, int given_pairs)
{
    gpu_neighbors *list = &step->neighbors;
    list->given_pairs = given_pairs;
    list->drop_ghost_pairs = list->ghost_pairs >= (given_pairs ? GPU_GHOST_PAIRS_NONE : GPU_GHOST_PAIRS_GIVEN);
    const bool transposed = given_pairs == 2 && !list->drop_ghost_pairs;
    list->incoming = transposed ? list->incoming_edges : list->edges;
    list->incoming_length = transposed ? list->incoming_count : list->row_length;
}
