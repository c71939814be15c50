// SPDX-License-Identifier: MIT
// weight_gradient.cu: gradients of weight matrices, G = ȳ̇ᵀ x + ȳᵀ ẋ over the rows of a batch, on the tensor cores.
//
// All matrices of a model in one launch. A block has a tile of TILE × TILE elements, a warp of it 16 MT × 32 of them, and one split of the
// rows; it writes a partial sum, and gradient sums (optimizer.cu) add those in fixed order, so that equal inputs give equal bits. Rows
// are staged 16 at a time in shared memory by asynchronous copies, one stage ahead. Bound by memory for large batches: a tile of 64 reads
// each row twice as often from the L2 cache as one of 128; by latency for small ones.
#include "gpu/train/gpu_train.h"
#include "gpu/train/tf32_product.cuh"

enum { STAGE_ROWS = 16, WARP_COLUMNS = 32, NT = WARP_COLUMNS / 8 };

template <int TILE> struct tile_shape {
    enum { THREADS = 2 * TILE, STRIDE = TILE + 8, WARPS_IN = TILE / WARP_COLUMNS, WARP_ROWS = TILE / 2, MT = WARP_ROWS / 16 };
};

typedef struct weight_gradient_step {
    const gpu_weight_job *jobs;
    const gpu_train_call *call;
    int n_jobs;
} weight_gradient_step;

// A block's part of a job: a tile from row `out` and column `in` of the matrix, rows first … last − 1 of the batch. All of it is known
// before the previous kernel ends.
struct weight_part {
    gpu_weight_job job;
    int split, out, in, first, last;
};

template <int TILE> static __device__ __forceinline__ weight_part part_of_block(const weight_gradient_step &step)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned begun = __ballot_sync(0xffffffffu, lane < step.n_jobs && step.jobs[lane].first_block <= (int)blockIdx.x);
    weight_part p;
    p.job = step.jobs[__popc(begun) - 1];
    const int block = (int)blockIdx.x - p.job.first_block, tile = block % p.job.n_tiles;
    const int tiles_in = p.job.n_in ? (p.job.n_in + TILE - 1) / TILE : 1;
    p.split = block / p.job.n_tiles;
    p.out = tile / tiles_in * TILE;
    p.in = tile % tiles_in * TILE;
    p.first = p.split * p.job.split_rows;
    p.last = min(step.call->n_atoms * p.job.rows_per_atom, p.first + p.job.split_rows);
    return p;
}

static __device__ __forceinline__ float *partial_of(const weight_part &p)
{
    const size_t size = (size_t)p.job.n_out * p.job.n_in + (p.job.has_bias ? p.job.n_out : 0);
    return p.job.partial + p.split * size;
}

// 16 rows of a tile of the four matrices of a job, a row of zeros behind the last one.
template <int TILE> struct tile_stage {
    float left_tangent[STAGE_ROWS][tile_shape<TILE>::STRIDE], left[STAGE_ROWS][tile_shape<TILE>::STRIDE];
    float right[STAGE_ROWS][tile_shape<TILE>::STRIDE], right_tangent[STAGE_ROWS][tile_shape<TILE>::STRIDE];
};

static __device__ __forceinline__ void copy_piece(float *to, const float *from, size_t at, bool there)
{
    if (from && there)
        copy_async(to, from + at);
    else
        *(float4 *)to = make_float4(0, 0, 0, 0);
}

template <int TILE> static __device__ __forceinline__ void copy_stage(const weight_part &p, int row, tile_stage<TILE> &stage)
{
    const gpu_weight_job &job = p.job;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int place = (int)threadIdx.x + tile_shape<TILE>::THREADS * k, r = place / (TILE / 4), c = place % (TILE / 4) * 4;
        const bool there = row + r < p.last, left = there && p.out + c < job.n_out, right = there && p.in + c < job.n_in;
        const size_t at_left = (size_t)(row + r) * job.n_out + p.out + c, at_right = (size_t)(row + r) * job.n_in + p.in + c;
        copy_piece(&stage.left_tangent[r][c], job.left_tangent, at_left, left);
        copy_piece(&stage.right[r][c], job.right, at_right, right);
        if (!job.right_tangent) continue;
        copy_piece(&stage.left[r][c], job.left, at_left, left);
        copy_piece(&stage.right_tangent[r][c], job.right_tangent, at_right, right);
    }
    copy_commit();
}

// N = 2 or 4 neighboring numbers.
template <int N> static __device__ __forceinline__ void load_run(const float *from, float (&v)[N])
{
    if (N == 2) {
        const float2 two = *(const float2 *)from;
        v[0] = two.x, v[N - 1] = two.y;
    } else {
        const float4 four = *(const float4 *)from;
        v[0] = four.x, v[1] = four.y, v[2 % N] = four.z, v[3 % N] = four.w;
    }
}

// sum += leftᵀ right over the 16 staged rows, for the warp's rows m0 … and columns n0 … of the tile. Row g + 8 half of product m is row MT g +
// m + 8 MT half of the warp's, column g of product n is column NT g + n, so that a lane's numbers are neighbors. The tensor cores truncate
// their sums, so that with PARTS = 3 they add up only 8 rows, and float32 additions the rest.
template <int PARTS, int TILE>
static __device__ __forceinline__ void add_rows(const float (*left)[tile_shape<TILE>::STRIDE],
                                                const float (*right)[tile_shape<TILE>::STRIDE], int m0, int n0,
                                                float (&sum)[tile_shape<TILE>::MT][NT][4])
{
    enum { MT = tile_shape<TILE>::MT };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < STAGE_ROWS; k += 8) {
        float a[4][MT], b[2][NT];
        for (int e = 0; e < 4; e++) load_run<MT>(&left[k + t + e / 2 * 4][m0 + e % 2 * 8 * MT + MT * g], a[e]);
        for (int e = 0; e < 2; e++) load_run<NT>(&right[k + t + 4 * e][n0 + NT * g], b[e]);
        uint32_t b_high[NT][2], b_low[NT][2];
        for (int n = 0; n < NT; n++)
            for (int e = 0; e < 2; e++) tf32_split<PARTS>(b[e][n], b_high[n][e], b_low[n][e]);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint32_t a_high[4], a_low[4];
            for (int e = 0; e < 4; e++) tf32_bits<PARTS, true>(a[e][m], a_high[e], a_low[e]);
            for (int n = 0; n < NT; n++) {
                if (PARTS == 1) {
                    tf32_product<PARTS>(sum[m][n], a_high, a_low, b_high[n], b_low[n]);
                } else {
                    float part[4] = {0, 0, 0, 0};
                    tf32_product<PARTS>(part, a_high, a_low, b_high[n], b_low[n]);
                    for (int e = 0; e < 4; e++) sum[m][n][e] += part[e];
                }
            }
        }
    }
}

// Writes the warp's sums, rows m0 … and columns n0 … of the matrix.
template <int TILE>
static __device__ __forceinline__ void write_partial(const gpu_weight_job &job, float *partial, int m0, int n0,
                                                     const float (&sum)[tile_shape<TILE>::MT][NT][4])
{
    enum { MT = tile_shape<TILE>::MT };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int m = 0; m < MT; m++)
        for (int e = 0; e < 4; e++) {
            const int o = m0 + e / 2 * 8 * MT + MT * g + m, i = n0 + NT * (2 * t + e % 2);
            if (o < job.n_out && i < job.n_in)
                *(float4 *)(partial + (size_t)o * job.n_in + i) =
                    make_float4(sum[m][0][e], sum[m][1][e], sum[m][2][e], sum[m][3][e]);
        }
}

template <int PARTS, int TILE>
static __global__ void __launch_bounds__(tile_shape<TILE>::THREADS, GPU_WEIGHT_THREADS / tile_shape<TILE>::THREADS)
    weight_gradient(weight_gradient_step step)
{
    typedef tile_shape<TILE> shape;
    DYNAMIC_SHARED(memory);
    tile_stage<TILE> *stages = (tile_stage<TILE> *)memory;
    const weight_part p = part_of_block<TILE>(step);
    const gpu_weight_job &job = p.job;
    wait_for_previous();
    let_next_start();
    if (p.first >= p.last) return; // no sum counts it
    const int warp = (int)threadIdx.x / 32, m0 = warp / shape::WARPS_IN * shape::WARP_ROWS,
              n0 = warp % shape::WARPS_IN * WARP_COLUMNS;
    float sum[shape::MT][NT][4] = {}, bias = 0;
    copy_stage<TILE>(p, p.first, stages[0]);
    for (int row = p.first, k = 0; row < p.last; row += STAGE_ROWS, k ^= 1) {
        const tile_stage<TILE> &stage = stages[k];
        copy_wait<0>();
        __syncthreads(); // all have this stage, and are done with the one before
        if (row + STAGE_ROWS < p.last) copy_stage<TILE>(p, row + STAGE_ROWS, stages[k ^ 1]);
        if (job.n_in) add_rows<PARTS, TILE>(stage.left_tangent, stage.right, m0, n0, sum);
        if (job.right_tangent) add_rows<PARTS, TILE>(stage.left, stage.right_tangent, m0, n0, sum);
        if (job.has_bias && p.in == 0 && threadIdx.x < TILE)
            for (int r = 0; r < STAGE_ROWS; r++) bias += stage.left_tangent[r][threadIdx.x];
    }
    float *partial = partial_of(p);
    write_partial<TILE>(job, partial, p.out + m0, p.in + n0, sum);
    if (job.has_bias && p.in == 0 && threadIdx.x < TILE && p.out + (int)threadIdx.x < job.n_out)
        partial[(size_t)job.n_out * job.n_in + p.out + threadIdx.x] = bias;
}

typedef void (*weight_kernel)(weight_gradient_step);

static weight_kernel kernel_of(int tile, int parts)
{
    if (tile == GPU_WEIGHT_LARGE_TILE)
        return parts == 3 ? weight_gradient<3, GPU_WEIGHT_LARGE_TILE> : weight_gradient<1, GPU_WEIGHT_LARGE_TILE>;
    return parts == 3 ? weight_gradient<3, GPU_WEIGHT_SMALL_TILE> : weight_gradient<1, GPU_WEIGHT_SMALL_TILE>;
}

static size_t bytes_of(int tile)
{
    return 2 * (tile == GPU_WEIGHT_LARGE_TILE ? sizeof(tile_stage<GPU_WEIGHT_LARGE_TILE>)
                                              : sizeof(tile_stage<GPU_WEIGHT_SMALL_TILE>));
}

extern "C" int gpu_prepare_weight_gradients(int tile, int parts)
{
    return cudaFuncSetAttribute(kernel_of(tile, parts), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes_of(tile));
}

extern "C" int gpu_launch_weight_gradients(const gpu_weight_job *jobs, int n_jobs, int n_blocks, int tile,
                                           const gpu_train_call *call, int parts, int overlap, void *stream)
{
    const weight_gradient_step step = {jobs, call, n_jobs};
    return launch(kernel_of(tile, parts), n_blocks, 2 * tile, bytes_of(tile), 1, overlap, stream, step);
}
