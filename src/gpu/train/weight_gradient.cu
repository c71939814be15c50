// SPDX-License-Identifier: MIT
// weight_gradient.cu: gradients of weight matrices, G = ȳ̇ᵀ x + ȳᵀ ẋ over the rows of a batch, on the tensor cores.
//
// All matrices of a model in one launch. A block of four warps has a tile of 64 × 64 elements and one split of the rows; it
// writes a partial sum, and gradient sums (optimizer.cu) add those in fixed order, so that equal inputs give equal bits. Rows
// are staged 16 at a time in shared memory, the next ones held in registers meanwhile. Bound by the tensor cores for large
// batches, by latency for small ones.
#include "gpu/train/gpu_train.h"
#include "gpu/train/tf32_product.cuh"

enum { THREADS = 128, STAGE_ROWS = 16, STAGE_STRIDE = GPU_WEIGHT_TILE + 8 };

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

static __device__ __forceinline__ weight_part part_of_block(const weight_gradient_step &step)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned begun = __ballot_sync(0xffffffffu, lane < step.n_jobs && step.jobs[lane].first_block <= (int)blockIdx.x);
    weight_part p;
    p.job = step.jobs[__popc(begun) - 1];
    const int block = (int)blockIdx.x - p.job.first_block, tile = block % p.job.n_tiles;
    const int tiles_in = p.job.n_in ? (p.job.n_in + GPU_WEIGHT_TILE - 1) / GPU_WEIGHT_TILE : 1;
    p.split = block / p.job.n_tiles;
    p.out = tile / tiles_in * GPU_WEIGHT_TILE;
    p.in = tile % tiles_in * GPU_WEIGHT_TILE;
    p.first = p.split * p.job.split_rows;
    p.last = min(step.call->n_atoms * p.job.rows_per_atom, p.first + p.job.split_rows);
    return p;
}

static __device__ __forceinline__ float *partial_of(const weight_part &p)
{
    const size_t size = (size_t)p.job.n_out * p.job.n_in + (p.job.has_bias ? p.job.n_out : 0);
    return p.job.partial + p.split * size;
}

// Rows `first` … first + 15 and columns from `column` on of `from`, four matrices: the pieces of one thread.
struct staged_rows {
    float4 piece[4][2];
};

static __device__ __forceinline__ float4 load_piece(const float *from, int row, int last_row, int column, int n_columns)
{
    if (!from || row >= last_row || column >= n_columns) return make_float4(0, 0, 0, 0);
    return *(const float4 *)(from + (size_t)row * n_columns + column);
}

static __device__ __forceinline__ void load_stage(const gpu_weight_job &job, int row, int last_row, int out, int in,
                                                  staged_rows &s)
{
    for (int k = 0; k < 2; k++) {
        const int place = (int)threadIdx.x + THREADS * k, r = row + place / 16, c = place % 16 * 4;
        s.piece[0][k] = load_piece(job.left_tangent, r, last_row, out + c, job.n_out);
        s.piece[1][k] = load_piece(job.left, r, last_row, out + c, job.n_out);
        s.piece[2][k] = load_piece(job.right, r, last_row, in + c, job.n_in);
        s.piece[3][k] = load_piece(job.right_tangent, r, last_row, in + c, job.n_in);
    }
}

static __device__ __forceinline__ void store_stage(const staged_rows &s, float (*stage)[STAGE_ROWS * STAGE_STRIDE])
{
    for (int k = 0; k < 2; k++) {
        const int place = (int)threadIdx.x + THREADS * k, at = place / 16 * STAGE_STRIDE + place % 16 * 4;
        for (int matrix = 0; matrix < 4; matrix++) *(float4 *)(stage[matrix] + at) = s.piece[matrix][k];
    }
}

// The warp's 32 × 32 elements: sum += leftᵀ right over the 16 staged rows. The tensor cores truncate their sums, so that with
// PARTS = 3 they add up only 8 rows, and float32 additions the rest.
template <int PARTS>
static __device__ __forceinline__ void add_rows(const float *left, const float *right, int m0, int n0, float (&sum)[2][4][4])
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < STAGE_ROWS; k += 8) {
        uint32_t a_high[2][4], a_low[2][4], b_high[2], b_low[2];
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < 4; e++)
                tf32_bits<PARTS, true>(left[(k + t + e / 2 * 4) * STAGE_STRIDE + m0 + 16 * m + g + e % 2 * 8], a_high[m][e],
                                       a_low[m][e]);
        for (int n = 0; n < 4; n++) {
            for (int e = 0; e < 2; e++)
                tf32_split<PARTS>(right[(k + t + 4 * e) * STAGE_STRIDE + n0 + 8 * n + g], b_high[e], b_low[e]);
            for (int m = 0; m < 2; m++) {
                if (PARTS == 1) {
                    tf32_product<PARTS>(sum[m][n], a_high[m], a_low[m], b_high, b_low);
                } else {
                    float part[4] = {0, 0, 0, 0};
                    tf32_product<PARTS>(part, a_high[m], a_low[m], b_high, b_low);
                    for (int e = 0; e < 4; e++) sum[m][n][e] += part[e];
                }
            }
        }
    }
}

template <int PARTS>
static __global__ void __launch_bounds__(THREADS, GPU_WEIGHT_BLOCKS) weight_gradient(weight_gradient_step step)
{
    __shared__ float4 memory[4][STAGE_ROWS * STAGE_STRIDE / 4];
    float(*stage)[STAGE_ROWS * STAGE_STRIDE] = (float(*)[STAGE_ROWS * STAGE_STRIDE]) memory;
    const weight_part p = part_of_block(step);
    wait_for_previous();
    let_next_start();
    const gpu_weight_job &job = p.job;
    const int out = p.out, in = p.in, first = p.first, last = p.last;
    if (first >= last) return; // no sum counts it
    const int warp = (int)threadIdx.x / 32, m0 = warp / 2 * 32, n0 = warp % 2 * 32;
    float sum[2][4][4] = {}, bias = 0;
    staged_rows next;
    load_stage(job, first, last, out, in, next);
    for (int row = first; row < last; row += STAGE_ROWS) {
        __syncthreads();
        store_stage(next, stage);
        __syncthreads();
        if (row + STAGE_ROWS < last) load_stage(job, row + STAGE_ROWS, last, out, in, next);
        if (job.n_in) {
            add_rows<PARTS>(stage[0], stage[2], m0, n0, sum);
            if (job.right_tangent) add_rows<PARTS>(stage[1], stage[3], m0, n0, sum);
        }
        if (job.has_bias && in == 0 && threadIdx.x < GPU_WEIGHT_TILE)
            for (int r = 0; r < STAGE_ROWS; r++) bias += stage[0][r * STAGE_STRIDE + threadIdx.x];
    }
    float *partial = partial_of(p);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 4; n++)
            for (int e = 0; e < 4; e++) {
                const int o = out + m0 + 16 * m + g + e / 2 * 8, i = in + n0 + 8 * n + 2 * t + e % 2;
                if (o < job.n_out && i < job.n_in) partial[(size_t)o * job.n_in + i] = sum[m][n][e];
            }
    if (job.has_bias && in == 0 && threadIdx.x < GPU_WEIGHT_TILE && out + (int)threadIdx.x < job.n_out)
        partial[(size_t)job.n_out * job.n_in + out + threadIdx.x] = bias;
}

extern "C" int gpu_launch_weight_gradients(const gpu_weight_job *jobs, int n_jobs, int n_blocks, const gpu_train_call *call,
                                           int parts, int overlap, void *stream)
{
    const weight_gradient_step step = {jobs, call, n_jobs};
    return launch(parts == 3 ? weight_gradient<3> : weight_gradient<1>, n_blocks, THREADS, 0, 1, overlap, stream, step);
}
