// SPDX-License-Identifier: MIT
// ani_operands.cu: an ensemble's weights as operands of the tensor cores, made once from the model's own arrays, which the GPU does in less
// time than the host takes to copy the operands. Layouts are in ani_gpu.h. Bound by reading and writing memory.
#include "ani_gpu.h"
#include "gpu/ptx/primitives.cuh"

static constexpr int THREADS = 256, BLOCKS = 16; // blocks for each layer of a network

// A layer, or its transpose, as operand B. Stored inputs beyond the layer's own, and those that stand for none, have weight zero.
template <bool BACK> struct operand {
    const ani_gpu_source &layer;
    const int32_t *element; // of a first layer: the input of each stored column, −1: none; NULL: as it is
    float scale;

    __device__ __forceinline__ float at(int n, int k) const
    {
        const int out = BACK ? k : n, stored = BACK ? n : k, in = element ? element[stored] : stored;
        return out < layer.out && in >= 0 && in < layer.in ? layer.weight[(size_t)out * layer.in + in] : 0.0f;
    }
    // What `lane` holds of the tile that begins with column n and row k: high halves, then low ones.
    __device__ __forceinline__ uint4 piece(int n, int k, int lane) const
    {
        n += lane / 4;
        k += 2 * (lane % 4);
        return pack_split(splat(scale) * make_float4(at(n, k), at(n, k + 1), at(n, k + 8), at(n, k + 9)));
    }
};

// `block` columns of 16 rows are contiguous, then those of the next 16 rows.
template <bool BACK>
static __device__ void write_pieces(const void *to, operand<BACK> from, int columns, int rows, int block, int first, int step)
{
    const int k_tiles = rows / 16, together = block / 8;
    for (int u = first; u < columns / 8 * k_tiles * 32; u += step) {
        const int tile = u / 32, lane = u % 32, column = tile / together / k_tiles * together + tile % together;
        const uint4 v = from.piece(8 * column, tile / together % k_tiles * 16, lane);
        uint32_t *place = (uint32_t *)to + (size_t)tile * 128 + lane;
        place[0] = v.x;
        place[32] = v.y;
        place[64] = v.z;
        place[96] = v.w;
    }
}

static __global__ void __launch_bounds__(THREADS)
    operands_kernel(const __grid_constant__ ani_gpu_step step, const ani_gpu_source *sources)
{
    const int item = blockIdx.x / BLOCKS, l = item % ANI_GPU_MAX_HIDDEN;
    const int first = blockIdx.x % BLOCKS * THREADS + threadIdx.x, stride = BLOCKS * THREADS;
    const ani_gpu_network &net = step.network[item / ANI_GPU_MAX_HIDDEN];
    if (l >= net.n_hidden) return;
    const int32_t *element = l ? NULL : step.element;
    const float scale = 1.0f / step.weight_unit;
    const operand<false> forward = {sources[item], element, scale};
    const operand<true> back = {sources[item], element, scale};
    const int in = l ? net.tiles[l - 1] : step.stored_tiles, out = net.tiles[l];
    write_pieces(net.weight[l], forward, 16 * out, 16 * in, 8, first, stride);
    if (step.wgmma_blocks == 0) return;
    const int columns = net.wgmma_width[l], rows = l ? net.wgmma_width[l - 1] : 16 * in;
    write_pieces(net.wgmma_weight[l], forward, columns, rows, columns, first, stride);
    write_pieces(net.wgmma_back[l], back, rows, columns, l ? rows : 16, first, stride);
}

int ani_gpu_launch_operands(const ani_gpu_step *step, const ani_gpu_source *sources, void *stream)
{
    const int n = step->n_members * step->n_species * ANI_GPU_MAX_HIDDEN;
    return launch(operands_kernel, n * BLOCKS, THREADS, 0, 1, 0, stream, *step, sources);
}
