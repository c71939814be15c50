// SPDX-License-Identifier: MIT
// painn_trainer_soap.c: SOAP of a trainer on one GPU: its matrices and tiles in device memory, and its state (model/training/soap.h).
#include <stdlib.h>
#include <string.h>

#include "model/training/soap.h"
#include "painn_trainer_gpu.h"

_Static_assert((int)GPU_SOAP_MAX_SIDE == (int)SOAP_MAX_SIDE, "a basis is made orthonormal by one block");

// ---- tiles: each task of a matrix, and what it computes ------------------------------------------------------------------------

typedef struct tile_list {
    gpu_soap_tile *tiles; // NULL: they are counted
    int n;
} tile_list;

// n_samples 0: none is meant.
static void add_tiles(tile_list *list, int matrix, enum gpu_soap_task task, int n_rows, int n_columns, int n_samples)
{
    for (int sample = 0; sample == 0 || sample < n_samples; sample++)
        for (int row = 0; row < n_rows; row += GPU_SOAP_TILE)
            for (int column = 0; column < n_columns; column += GPU_SOAP_TILE) {
                if (list->tiles) list->tiles[list->n] = (gpu_soap_tile){matrix, task, row, column, sample};
                list->n++;
            }
}

static int samples_of(int n_inner)
{
    return (n_inner + GPU_SOAP_MAX_INNER - 1) / GPU_SOAP_MAX_INNER;
}

static void add_kernel(tile_list *list, int kernel, int matrix, const soap_matrix *q)
{
    const int rows = q->n_rows, columns = q->n_columns;
    const int left = q->left.at >= 0 ? rows : 0, right = q->right.at >= 0 ? columns : 0; // sides that have a basis
    switch (kernel) {
    case GPU_SOAP_ROTATE:
        add_tiles(list, matrix, GPU_SOAP_LEFT_GRADIENT, left, columns, 0);
        add_tiles(list, matrix, GPU_SOAP_LEFT_MOMENTUM, left, columns, 0);
        add_tiles(list, matrix, GPU_SOAP_LEFT_SAMPLE, left, left, samples_of(columns));
        add_tiles(list, matrix, GPU_SOAP_RIGHT_SAMPLE, right, right, samples_of(rows));
        break;
    case GPU_SOAP_SCALE:
        add_tiles(list, matrix, GPU_SOAP_STEP, rows, columns, 0);
        add_tiles(list, matrix, GPU_SOAP_LEFT_COVARIANCE, left, left, 0);
        add_tiles(list, matrix, GPU_SOAP_RIGHT_COVARIANCE, right, right, 0);
        break;
    case GPU_SOAP_RETURN: add_tiles(list, matrix, GPU_SOAP_BACK, left, columns, 0); break;
    case GPU_SOAP_MOVE: add_tiles(list, matrix, GPU_SOAP_WEIGHTS, rows, columns, 0); break;
    case GPU_SOAP_GROW:
        add_tiles(list, matrix, GPU_SOAP_LEFT_NEXT, left, left, 0);
        add_tiles(list, matrix, GPU_SOAP_RIGHT_NEXT, right, right, 0);
        break;
    default: // a block for each side
        add_tiles(list, matrix, GPU_SOAP_LEFT_BASIS, left > 0, left > 0, 0);
        add_tiles(list, matrix, GPU_SOAP_RIGHT_BASIS, right > 0, right > 0, 0);
        break;
    }
}

static int list_tiles(const soap_plan *plan, gpu_soap_tile *tiles, gpu_soap *soap)
{
    tile_list list = {.tiles = tiles};
    for (int kernel = 0; kernel < GPU_SOAP_KERNELS; kernel++) {
        soap->first[kernel] = list.n;
        for (int k = 0; k < plan->n_matrices; k++) add_kernel(&list, kernel, k, &plan->matrices[k]);
    }
    return soap->first[GPU_SOAP_KERNELS] = list.n;
}

static int largest_side(const soap_plan *plan)
{
    int largest = 0;
    for (int k = 0; k < plan->n_matrices; k++) {
        const soap_side *sides[] = {&plan->matrices[k].left, &plan->matrices[k].right};
        for (int s = 0; s < 2; s++)
            if (sides[s]->at >= 0 && sides[s]->n > largest) largest = sides[s]->n;
    }
    return largest;
}

// ---- memory --------------------------------------------------------------------------------------------------------------------

// Places in one block of device memory; base NULL: counts its bytes.
typedef struct places {
    char *base;
    size_t at;
} places;

static void *place(places *p, size_t bytes)
{
    void *there = p->base ? p->base + p->at : NULL;
    p->at = (p->at + bytes + 255) / 256 * 256;
    return there;
}

// `other`: length of the other side, which its samples are sums over.
static gpu_soap_side place_side(places *p, const soap_side *from, int other, float *state)
{
    const size_t n = (size_t)from->n * (size_t)from->ld;
    gpu_soap_side side = {.n = from->n, .ld = from->ld, .n_samples = samples_of(other)};
    if (from->at < 0) return side;
    side.sample = place(p, sizeof(float) * n * (size_t)side.n_samples);
    side.next = place(p, sizeof(float) * n);
    side.covariance = state ? state + from->at : NULL;
    side.basis = state ? side.covariance + n : NULL;
    return side;
}

// `matrices` and, where base is given, all their arrays. Weights begin at place[tensor] on the device.
static size_t place_all(painn_trainer *t, const soap_plan *plan, int n_tiles, char *base, gpu_soap_matrix *matrices)
{
    places p = {.base = base};
    t->soap.matrices = place(&p, sizeof *matrices * (size_t)plan->n_matrices);
    t->soap.tiles = place(&p, sizeof *t->soap.tiles * (size_t)n_tiles);
    t->optimizer.scale = place(&p, sizeof *t->optimizer.scale);
    t->soap_state = place(&p, sizeof *t->soap_state * (size_t)plan->n_state);
    for (int k = 0; k < t->backend.layout.n_tensors; k++) {
        if (plan->of_tensor[k] < 0) continue;
        const soap_matrix *from = &plan->matrices[plan->of_tensor[k]];
        gpu_soap_matrix *to = &matrices[plan->of_tensor[k]];
        const size_t bytes = sizeof(float) * (size_t)from->n_rows * (size_t)from->n_columns;
        *to = (gpu_soap_matrix){.offset = t->place[k], .n_rows = from->n_rows, .n_columns = from->n_columns};
        to->step = place(&p, bytes);
        if (from->left.at >= 0) {
            to->gradient = place(&p, bytes);
            to->momentum = place(&p, bytes);
            to->moved = place(&p, bytes);
        }
        to->left = place_side(&p, &from->left, from->n_columns, t->soap_state);
        to->right = place_side(&p, &from->right, from->n_rows, t->soap_state);
    }
    return p.at;
}

mlff_status painn_soap_create(painn_trainer *t, const soap_plan *plan, const double *state)
{
    mlff_status status = MLFF_OK;
    t->soap.largest_side = largest_side(plan);
    const int n_tiles = list_tiles(plan, NULL, &t->soap);
    gpu_soap_tile *tiles = malloc(sizeof *tiles * (size_t)n_tiles);
    gpu_soap_matrix *matrices = malloc(sizeof *matrices * (size_t)plan->n_matrices);
    if (!tiles || !matrices) PLUGIN_TRY(host.fail(MLFF_ERR_MEMORY, "out of memory: SOAP"));
    list_tiles(plan, tiles, &t->soap);
    PLUGIN_TRY(cuda_allocate(t->device, place_all(t, plan, n_tiles, NULL, matrices), "SOAP", &t->soap_block));
    place_all(t, plan, n_tiles, t->soap_block, matrices);
    CUDA_TRY(cuda_copy((void *)(uintptr_t)t->soap.tiles, tiles, sizeof *tiles * (size_t)n_tiles, cudaMemcpyHostToDevice),
             "copying SOAP's matrices to the GPU");
    CUDA_TRY(cuda_copy((void *)(uintptr_t)t->soap.matrices, matrices, sizeof *matrices * (size_t)plan->n_matrices,
                       cudaMemcpyHostToDevice),
             "copying SOAP's matrices to the GPU");
    t->backend.n_soap_values = plan->n_state;
    PLUGIN_TRY(painn_soap_set(t, state));
done:
    free(tiles);
    free(matrices);
    return status;
}

mlff_status painn_soap_finish(painn_trainer *t)
{
    mlff_status status = MLFF_OK;
    if (!t->bases_due) return MLFF_OK;
    t->bases_due = false;
    CUDA_TRY(gpu_launch_soap_bases(&t->optimizer, &t->soap, t->stream), "launching the update");
done:
    return status;
}

mlff_status painn_soap_get(painn_trainer *t, double *values_out)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)t->backend.n_soap_values;
    float *staged = malloc(sizeof *staged * (n + 1));
    if (!staged) return host.fail(MLFF_ERR_MEMORY, "out of memory: SOAP");
    CUDA_TRY(cuda_copy(staged, t->soap_state, sizeof *staged * n, cudaMemcpyDeviceToHost), "copying SOAP's state from the GPU");
    for (size_t k = 0; k < n; k++) values_out[k] = (double)staged[k];
done:
    free(staged);
    return status;
}

mlff_status painn_soap_set(painn_trainer *t, const double *values)
{
    mlff_status status = MLFF_OK;
    const size_t n = (size_t)t->backend.n_soap_values;
    float *staged = malloc(sizeof *staged * (n + 1));
    if (!staged) return host.fail(MLFF_ERR_MEMORY, "out of memory: SOAP");
    for (size_t k = 0; k < n; k++) staged[k] = (float)values[k];
    CUDA_TRY(cuda_copy(t->soap_state, staged, sizeof *staged * n, cudaMemcpyHostToDevice), "copying SOAP's state to the GPU");
done:
    free(staged);
    return status;
}
