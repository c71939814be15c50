// SPDX-License-Identifier: MIT
// painn_train_upload.c: labelled structures to the device, once.
#include <stdlib.h>

#include "painn_trainer_gpu.h"

#define COPYING "copying data of training to the GPU"

// Arrays of the set at `base`, which may be NULL to count bytes. Labels that the set has not stay NULL.
static size_t place_set(const train_set *set, char *base, painn_train_data *data)
{
    size_t at = 0, n_frames = (size_t)set->n_frames, n_atoms = (size_t)set->n_atoms, n_pairs = (size_t)set->n_pairs;
#define PLACE(field, bytes) (data->field = base ? (void *)(base + at) : NULL, at = (at + (bytes) + 255) / 256 * 256)
    PLACE(first_atom, sizeof(int64_t) * (n_frames + 1));
    PLACE(first_pair, sizeof(int64_t) * (n_atoms + 1));
    PLACE(species, sizeof(int32_t) * n_atoms);
    PLACE(neighbor, sizeof(int32_t) * n_pairs);
    PLACE(reverse, sizeof(int32_t) * n_pairs);
    PLACE(edge, sizeof(float) * 4 * n_pairs);
    PLACE(distance, sizeof(double) * n_pairs);
    PLACE(volume, sizeof(double) * n_frames);
    PLACE(energy, sizeof(double) * n_frames);
    PLACE(forces, sizeof(double) * 3 * n_atoms);
    PLACE(stress, sizeof(double) * 9 * n_frames);
    PLACE(weight, sizeof(double) * n_frames);
    if (set->atom_energies) PLACE(atom_energies, sizeof(double) * n_atoms);
    if (set->probe_step) PLACE(probe_step, sizeof(double) * n_frames);
#undef PLACE
    return at;
}

// Edges are made on the device, from vectors that it gets in pieces.
static mlff_status make_edges(const painn_gpu_set *to, const train_set *set, const painn_train_data *data)
{
    enum { PIECE = 1 << 21 };
    mlff_status status = MLFF_OK;
    void *vectors = NULL;
    const int64_t most = set->n_pairs < PIECE ? set->n_pairs : PIECE;
    if (set->n_pairs == 0) return MLFF_OK;
    PLUGIN_TRY(cuda_allocate(to->device, 3 * sizeof(double) * (size_t)most, "data of training", &vectors));
    for (int64_t at = 0; at < set->n_pairs; at += PIECE) {
        const int n = (int)(set->n_pairs - at < PIECE ? set->n_pairs - at : PIECE);
        CUDA_TRY(cuda_copy(vectors, set->vectors + 3 * at, 3 * sizeof(double) * (size_t)n, cudaMemcpyHostToDevice), COPYING);
        CUDA_TRY(painn_train_launch_edges(vectors, (float *)(uintptr_t)data->edge + 4 * at,
                                          (double *)(uintptr_t)data->distance + at, n, NULL),
                 COPYING);
        CUDA_TRY(cuda_wait(NULL, 0), COPYING);
    }
done:
    cuda_release(to->device, vectors);
    return status;
}

static mlff_status fill_set(const painn_gpu_set *to, const train_set *set, const painn_train_data *data)
{
    mlff_status status = MLFF_OK;
    const size_t n_frames = (size_t)set->n_frames, n_atoms = (size_t)set->n_atoms, n_pairs = (size_t)set->n_pairs;
#define COPY(field, n)                                                                                                           \
    CUDA_TRY(cuda_copy((void *)(uintptr_t)data->field, set->field, sizeof *set->field *(n), cudaMemcpyHostToDevice), COPYING)
    COPY(first_atom, n_frames + 1);
    COPY(first_pair, n_atoms + 1);
    COPY(species, n_atoms);
    if (n_pairs) COPY(neighbor, n_pairs);
    if (n_pairs) COPY(reverse, n_pairs);
    COPY(volume, n_frames);
    COPY(energy, n_frames);
    COPY(forces, 3 * n_atoms);
    COPY(stress, 9 * n_frames);
    COPY(weight, n_frames);
    if (set->atom_energies) COPY(atom_energies, n_atoms);
    if (set->probe_step) COPY(probe_step, n_frames);
#undef COPY
    PLUGIN_TRY(make_edges(to, set, data));
done:
    return status;
}

static void list_elements(const train_set *set, painn_gpu_set *to)
{
    bool there[MLFF_MAX_ATOMIC_NUMBER + 1] = {false};
    to->n_elements = 0;
    for (int64_t i = 0; i < set->n_atoms; i++) there[set->species[i]] = true;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (there[z]) to->element[to->n_elements++] = z;
}

mlff_status painn_gpu_set_upload(painn_gpu_set *to, const train_set *set)
{
    mlff_status status = MLFF_OK;
    painn_train_data data = {0};
    const size_t bytes = place_set(set, NULL, &data);
    int64_t *pairs = realloc(to->frame_pairs, sizeof *pairs * ((size_t)set->n_frames + 1));
    if (pairs) to->frame_pairs = pairs;
    to->set = NULL;
    if (!pairs) PLUGIN_TRY(host.fail(MLFF_ERR_MEMORY, "out of memory: data of training"));
    if (bytes > to->bytes) {
        cuda_release(to->device, to->block);
        to->block = NULL;
        to->bytes = 0;
        PLUGIN_TRY(cuda_allocate(to->device, bytes, "data of training", &to->block));
        to->bytes = bytes;
    }
    place_set(set, to->block, &to->data);
    PLUGIN_TRY(fill_set(to, set, &to->data));
    if (!set->atom_energies) to->data.atom_energies = NULL;
    if (!set->probe_step) to->data.probe_step = NULL;
    to->most_pairs = 0;
    for (int64_t k = 0; k <= set->n_frames; k++) {
        pairs[k] = set->first_pair[set->first_atom[k]];
        if (k > 0 && pairs[k] - pairs[k - 1] > to->most_pairs) to->most_pairs = pairs[k] - pairs[k - 1];
    }
    list_elements(set, to);
    to->set = set;
done:
    return status;
}

void painn_gpu_set_free(painn_gpu_set *set)
{
    cuda_release(set->device, set->block);
    free(set->frame_pairs);
    *set = (painn_gpu_set){0};
}
