// SPDX-License-Identifier: MIT
// painn_train_readout.cu: the readout of a large batch in a training step (painn_train_node.cuh).
//
// A block has a tile of 16 atoms whose rows are in shared memory; it computes all columns of the hidden layer, and of q̄ those of its slice.
#include "painn_train_node.cuh"

enum { TILE = 16 };

static __device__ __forceinline__ int warp_of()
{
    return (int)threadIdx.x / 32;
}

// Rows first … first + 15 of `from` [n][width] into shared memory; rows from n on are zeros.
static __device__ __forceinline__ void load_rows(const float *from, int first, int n, int width, float *to)
{
    const int stride = width + TF32_ROW_PAD, pieces = width / 4;
    for (int k = (int)threadIdx.x; k < TILE * pieces; k += (int)blockDim.x) {
        const int row = k / pieces, c = k % pieces * 4;
        *(float4 *)(to + row * stride + c) =
            first + row < n ? *(const float4 *)(from + (size_t)(first + row) * width + c) : make_float4(0, 0, 0, 0);
    }
}

// Reads rows n0 … n0 + n_rows − 1 of weights, `depth` floats each, into the L1 cache. By a block.
static __device__ __forceinline__ float read_rows(const float *w, int depth, int n0, int n_rows)
{
    const float *from = w + (size_t)n0 * depth;
    float sum = 0;
#pragma unroll 4
    for (int k = (int)threadIdx.x * 32; k < n_rows * depth; k += (int)blockDim.x * 32) sum += read_early(from + k);
    return sum;
}

// A slice's columns: `block` floats between its parts' columns in the same row of results.
struct sliced {
    int first, n; // features
};
static __device__ __forceinline__ sliced slice_of(const node_step &step)
{
    const int n = step.s.n_features / step.slices;
    return {(int)blockIdx.x % step.slices * n, n};
}

template <int PARTS, int TANGENT> static __global__ void __launch_bounds__(256, 2) readout(node_step step)
{
    DYNAMIC_SHARED(memory);
    const painn_train_step &s = step.s;
    const int F = s.n_features, H = s.n_hidden, l = s.n_layers, first = (int)blockIdx.x / step.slices * TILE;
    const int stride = F + TF32_ROW_PAD, narrow = H + TF32_ROW_PAD;
    const sliced slice = slice_of(step);
    const bool keep = slice.first == 0;
    const float *w = painn_weights_of_readout(&s), *back = painn_transposed_readout(&s);
    float early = read_rows(w, F, 0, H);
    early += read_rows(back, H, slice.first, slice.n);
    wait_for_previous();
    let_next_start();
    keep_read(early);
    const int n = s.call->n_atoms;
    if (first >= n) return;
    float *rows = (float *)memory, *hidden = rows + TILE * stride, *terms = hidden + TILE * narrow;
    load_rows(TANGENT ? s.q[l].tangent : s.q[l].value, first, n, F, rows);
    __syncthreads();
    for (int unit = warp_of(); unit < H / 8; unit += (int)blockDim.x / 32) {
        float sum[1][1][1][4] = {};
        tf32_tile<PARTS, false, 1, 1, 1>(rows, stride, F, w, F, 8 * unit, 0, sum);
        EACH_SUM(1, 1, {
            const int atom = first + row;
            const element own = {min(atom, n - 1), 8 * unit + column, keep && atom < n};
            readout_hidden<PARTS, TANGENT, 1> op;
            numbers<1> term = {};
            op.load(s, own);
            hidden[row * narrow + own.f] = op.finish(s, own, all_of<1>(sum[m][c][0][e]), term).v[0];
            if (!TANGENT) terms[row * narrow + own.f] = term.v[0];
        });
    }
    __syncthreads();
    for (int row = (int)threadIdx.x; keep && row < TILE && first + row < n; row += (int)blockDim.x) {
        float energy = 0;
        for (int f = 0; f < H && !TANGENT; f++) energy += terms[row * narrow + f];
        write_energy<TANGENT>(s, first + row, energy);
    }
    for (int unit = warp_of(); unit < slice.n / 8; unit += (int)blockDim.x / 32) {
        float sum[1][1][1][4] = {};
        tf32_tile<PARTS, true, 1, 1, 1>(hidden, narrow, H, back, H, slice.first + 8 * unit, 0, sum);
        float *q_bar = TANGENT ? s.q_bar[l].tangent : s.q_bar[l].value;
        EACH_SUM(1, 1, {
            if (first + row < n) q_bar[(size_t)(first + row) * F + slice.first + 8 * unit + column] = sum[m][c][0][e];
        });
    }
}

// ---- launches -----------------------------------------------------------------------------------------------------------

// Slices of a tile's columns such that all blocks together fill the GPU once.
static int slices_of(const painn_train_step *step, const painn_train_plan *plan)
{
    const int tiles = (plan->n_atoms + TILE - 1) / TILE, most = step->n_features / 8;
    int slices = 1;
    while (2 * slices <= most && tiles * 2 * slices <= 2 * plan->n_multiprocessors) slices *= 2;
    return slices;
}

static node_kernel kernel_of(int parts, int tangent)
{
    if (parts == 3) return tangent ? readout<3, 1> : readout<3, 0>;
    return tangent ? readout<1, 1> : readout<1, 0>;
}

static size_t shared_of(const painn_train_step *step)
{
    return sizeof(float) * (size_t)(TILE * (step->n_features + 2 * step->n_hidden + 3 * TF32_ROW_PAD));
}

extern "C" int painn_train_prepare_readout(const painn_train_step *step)
{
    for (int k = 0; k < 4; k++) {
        const cudaError_t error = cudaFuncSetAttribute(kernel_of(k & 1 ? 3 : 1, k & 2),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_of(step));
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

extern "C" int painn_train_launch_readout(const painn_train_step *step, const painn_train_plan *plan, int tangent, void *stream)
{
    const int slices = slices_of(step, plan), tiles = (plan->n_atoms + TILE - 1) / TILE;
    const node_step node = {*step, 0, slices};
    return launch(kernel_of(plan->parts, tangent), tiles * slices, 2 * step->n_features, shared_of(step), 1, plan->overlap,
                  stream, node);
}
