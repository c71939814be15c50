// SPDX-License-Identifier: MIT
// ani_wgmma.cu: the networks of an ensemble in large systems, on Hopper: as ani_network.cu, with tiles of 128 slots.
//
// A block has eight warps that compute and one that fetches weights. Each four of the eight take 64 slots of the tile through a member, all
// layers forward and backward: they sum all columns of a layer, so that a thread's sums are its own operand A of the next layer. They wait
// for it in shared memory that no other thread reads; slopes of hidden layers are saved in global memory. Weights come through a ring
// buffer, 16 of a layer's inputs at a time, for both groups. Blocks are persistent and take the next tile when they finish one, one part
// of the members after the other. Bound by the tensor cores, then by reading the ring. Three more warps, which complete a group of four,
// search for the reverses of the pairs meanwhile.
#include "ani_gpu.h"
#include "gpu/neighbors/rows.cuh"
#include "gpu/ptx/wgmma.cuh"

static constexpr int WARPS = 8, THREADS = 32 * (WARPS + 4), ROWS = 16 * WARPS, OPERAND_BYTES = ROWS * ANI_GPU_WGMMA_WIDTH * 4;
static constexpr int K_TILES = ANI_GPU_WGMMA_WIDTH / 16;               // k tiles of a thread's own operand
static constexpr int SLOTS = 6, SLOT_BYTES = ANI_GPU_WGMMA_WIDTH * 64; // 16 inputs of a layer
static constexpr int AHEAD = 12;                                       // tiles of AEVs in flight, fewer than K_TILES

struct ring_barriers {
    uint64_t full[SLOTS], empty[SLOTS], item_full, item_empty, constants_full, constants_empty;
    int item, unused[3];
    float bias[ANI_GPU_WGMMA_WIDTH], output[ANI_GPU_WGMMA_WIDTH]; // bias: of a layer; output: of the last one
};

// The work item of a block.
struct work {
    int first, species, member, end; // first: slot; member … end: members of the part
    float *adjoint;

    __device__ __forceinline__ work(const ani_gpu_step &step, int item)
    {
        const ani_gpu_groups &groups = *step.groups;
        const int wanted = step.gpu.call->member, members = (step.n_members + step.n_parts - 1) / step.n_parts;
        const int tiles = groups.first_slot[step.n_species] / ROWS, part = wanted < 0 ? item / tiles : wanted / members;
        first = item % tiles * ROWS;
        species = 0;
        while (first >= groups.first_slot[species + 1]) species++;
        member = wanted < 0 ? part * members : wanted;
        end = wanted < 0 ? min(member + members, step.n_members) : wanted + 1;
        adjoint = step.adjoint + (size_t)part * step.slot_capacity * (16 * groups.n_tiles);
    }
};
static __device__ __forceinline__ int count_items(const ani_gpu_step &step)
{
    const int members = (step.n_members + step.n_parts - 1) / step.n_parts, parts = (step.n_members + members - 1) / members;
    return step.groups->first_slot[step.n_species] / ROWS * (step.gpu.call->member < 0 ? parts : 1);
}

// Tiles of AEV columns that are summed at once, if there are enough: 128 to ANI_GPU_WGMMA_WIDTH columns, a multiple of 32.
static __device__ __forceinline__ int chunk_of(int n_tiles)
{
    const int chunks = (n_tiles + K_TILES - 1) / K_TILES, each = (n_tiles + chunks - 1) / chunks;
    return max((each + 1) / 2 * 2, 8);
}

// ---- the fetching warp ----------------------------------------------------------------------------------------------

struct fetcher {
    char *ring;
    ring_barriers *barriers;
    int slot, parity, phase, lane, n_tiles,
        tile[2]; // phase: of constants; tile: of AEV columns, for columns numbered by the lane and 32 more

    __device__ __forceinline__ int stored(int k) const
    {
        const int one = __shfl_sync(~0u, tile[0], k), other = __shfl_sync(~0u, tile[1], k);
        return k < 32 ? one : other;
    }
    // `pieces` copies of `bytes`, each lane its own.
    __device__ __forceinline__ void put(const char *from, int pieces, int bytes)
    {
        mbarrier_wait(barriers->empty + slot, parity ^ 1);
        if (lane == 0) mbarrier_expect(barriers->full + slot, pieces * bytes);
        __syncwarp();
        if (lane < pieces) bulk_copy(ring + slot * SLOT_BYTES + lane * bytes, from, bytes, barriers->full + slot);
        if (++slot == SLOTS) slot = 0, parity ^= 1;
    }
    __device__ __forceinline__ void put_constants(const float *bias, const float *output)
    {
        const int bytes = ANI_GPU_WGMMA_WIDTH * (int)sizeof(float);
        mbarrier_wait(&barriers->constants_empty, phase ^ 1);
        phase ^= 1;
        if (lane > 0) return;
        mbarrier_expect(&barriers->constants_full, output ? 2 * bytes : bytes);
        bulk_copy(barriers->bias, bias, bytes, &barriers->constants_full);
        if (output) bulk_copy(barriers->output, output, bytes, &barriers->constants_full);
    }
};

static __device__ __forceinline__ void fetch_member(fetcher &f, const ani_gpu_step &step, const ani_gpu_network *net, bool back)
{
    const int L = net->n_hidden, n_tiles = f.n_tiles;
    for (int l = 0; l < L; l++) {
        const int bytes = net->wgmma_width[l] * 64, n = l ? net->wgmma_width[l - 1] / 16 : n_tiles;
        const char *from = (const char *)net->wgmma_weight[l];
#pragma unroll 1
        for (int k = 0; k < n; k++) {
            f.put(from + (size_t)(l ? k : f.stored(k)) * bytes, 1, bytes);
            // After the weights, so that these do not wait for the previous layer to release its constants.
            if (k == min(n - 1, SLOTS)) f.put_constants(net->wgmma_bias[l], l + 1 == L ? net->output : NULL);
        }
    }
    if (!back) return;
    for (int l = L - 1; l > 0; l--) {
        const int bytes = net->wgmma_width[l - 1] * 64, n = net->wgmma_width[l] / 16;
        const char *from = (const char *)net->wgmma_back[l];
#pragma unroll 1
        for (int k = 0; k < n; k++) f.put(from + (size_t)k * bytes, 1, bytes);
    }
    const int n = net->wgmma_width[0] / 16, most = chunk_of(n_tiles);
    for (int chunk = 0; chunk < n_tiles; chunk += most) {
        const int pieces = min(n_tiles - chunk, most);
        const char *from = (const char *)net->wgmma_back[0] + (size_t)f.stored(chunk + min(f.lane, pieces - 1)) * n * 1024;
#pragma unroll 1
        for (int k = 0; k < n; k++) f.put(from + k * 1024, pieces, 1024);
    }
}

static __device__ __forceinline__ void fetch_all(const ani_gpu_step &step, char *ring, ring_barriers *barriers, int items,
                                                 bool back)
{
    const ani_gpu_groups &groups = *step.groups;
    const int lane = threadIdx.x % 32;
    fetcher f = {ring,
                 barriers,
                 0,
                 0,
                 0,
                 lane,
                 groups.n_tiles,
                 {groups.stored_tile[lane], groups.stored_tile[min(lane + 32, ANI_GPU_MAX_TILES - 1)]}};
    for (int phase = 0;; phase ^= 1) {
        int item = 0;
        if (f.lane == 0) item = atomicAdd(&step.groups->next_item, 1);
        item = __shfl_sync(~0u, item, 0);
        mbarrier_wait(&barriers->item_empty, phase ^ 1);
        if (f.lane == 0) {
            barriers->item = item;
            mbarrier_arrive(&barriers->item_full);
        }
        if (item >= items) return;
        const work w(step, item);
        for (int member = w.member; member < w.end; member++)
            fetch_member(f, step, step.network + member * step.n_species + w.species, back);
    }
}

// ---- the computing warps --------------------------------------------------------------------------------------------

struct computer {
    uint4 *operand; // [K_TILES][2][128]: this thread's operand
    char *ring;
    ring_barriers *barriers;
    int slot, parity, phase, lane;

    __device__ __forceinline__ void wait_for_weights() const
    {
        mbarrier_wait(barriers->full + slot, parity);
    }
    // sum += `n` tiles of the operand times the weights of the ring; with `input` the operand is first loaded from there.
    template <int N> __device__ __forceinline__ void multiply(float (&sums)[ANI_GPU_WGMMA_WIDTH / 2], int n, const uint4 *input)
    {
        float(&sum)[N / 2] = reinterpret_cast<float(&)[N / 2]>(sums);
        uint4 high[2], low[2];
        const auto fetch = [&](int k) {
            if (k < n) {
                copy_async(operand + k % K_TILES * 256, input + k * 64);
                copy_async(operand + k % K_TILES * 256 + 128, input + k * 64 + 32);
            }
            copy_commit();
        };
        const auto load = [&](int d, int k) {
            const uint4 even = operand[k % K_TILES * 256], odd = operand[k % K_TILES * 256 + 128];
            high[d] = make_uint4(even.x, even.y, odd.x, odd.y);
            low[d] = make_uint4(even.z, even.w, odd.z, odd.w);
        };
        const auto one = [&](int d, int k) { // three products: low × high, high × low, high × high
            const wgmma_operand b = wgmma_operand_at(ring + slot * SLOT_BYTES, 128, 512);
            uint64_t *empty = barriers->empty + slot;
            wgmma_begin();
            wgmma_product(sum, low[d], b, 1);
            wgmma_product(sum, high[d], wgmma_operand_after(b, 256), 1);
            wgmma_product(sum, high[d], b, 1);
            wgmma_commit();
            if (++slot == SLOTS) slot = 0, parity ^= 1;
            if (input) {
                fetch(k + AHEAD);
                copy_wait<AHEAD - 1>();
            }
            load(d ^ 1, k + 1);
            if (k + 1 < n) wait_for_weights();
            wgmma_wait<0>(); // products of the other four warps continue
            if (lane == 0) mbarrier_arrive(empty);
        };
        if (input) {
            for (int k = 0; k < AHEAD; k++) fetch(k);
            copy_wait<AHEAD - 1>();
        }
        load(0, 0);
        wait_for_weights();
#pragma unroll 1
        for (int k = 0; k < n; k += 2) {
            one(0, k);
            if (k + 1 == n) break;
            one(1, k + 1);
        }
    }
};

// CELU's value, times `scale`, and its slope. `product_unit`: scale of a sum; biases are times `scale`.
struct celu {
    float unit, exponent, negative;
    __device__ __forceinline__ celu(float product_unit, float scale)
        : unit(product_unit * scale), exponent(14.4269504f / scale), negative(0.1f * scale)
    {
    }
    __device__ __forceinline__ void apply(const float *sum, float2 bias, float4 &h, float4 &slope) const
    {
        const float4 x = make_float4(fmaf(sum[0], unit, bias.x), fmaf(sum[1], unit, bias.y), fmaf(sum[2], unit, bias.x),
                                     fmaf(sum[3], unit, bias.y));
        slope = make_float4(fast_exp2(exponent * fminf(x.x, 0)), fast_exp2(exponent * fminf(x.y, 0)),
                            fast_exp2(exponent * fminf(x.z, 0)), fast_exp2(exponent * fminf(x.w, 0)));
        h = make_float4(fmaxf(x.x, 0) + fmaf(negative, slope.x, -negative), fmaxf(x.y, 0) + fmaf(negative, slope.y, -negative),
                        fmaxf(x.z, 0) + fmaf(negative, slope.z, -negative), fmaxf(x.w, 0) + fmaf(negative, slope.w, -negative));
    }
};

// 0, but opaque to the compiler: addresses derived from it are not computed, and kept in registers, earlier.
static __device__ __forceinline__ int from_here()
{
    int zero = 0;
#ifndef MLFF_EMULATE
    asm volatile("" : "+r"(zero));
#endif
    return zero;
}

// ---- results of a layer, for a thread's two rows, in the order of a member's layers

static constexpr int BLOCKS = ANI_GPU_WGMMA_WIDTH / 32; // of columns
static constexpr int STRIDE = 32 * WARPS;               // distance between two slopes of a thread
typedef float layer_sums[ANI_GPU_WGMMA_WIDTH / 2];

// A hidden layer: its values are the next layer's operand. `saved`: slopes, for the backward pass.
static __device__ __forceinline__ void finish_hidden(const computer &c, const celu &activation, const layer_sums &sum, int width,
                                                     float4 *saved, bool back)
{
    const float2 *bias = (const float2 *)c.barriers->bias + c.lane % 4;
#pragma unroll
    for (int q = 0; q < BLOCKS; q++) {
        if (32 * q >= width) break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float4 h, slope;
            activation.apply(sum + 16 * q + 4 * j, bias[16 * q + 4 * j], h, slope);
            c.operand[(4 * q + j) * 128] = pack_split(h);
            if (back) saved[(4 * q + j) * STRIDE] = slope;
        }
    }
}

// The last hidden layer: parts of both rows' energies, and the first operand of the backward pass.
static __device__ __forceinline__ void finish_last(const computer &c, const celu &activation, const layer_sums &sum, int width,
                                                   float &upper, float &lower)
{
    const float2 *bias = (const float2 *)c.barriers->bias + c.lane % 4, *output = (const float2 *)c.barriers->output + c.lane % 4;
#pragma unroll
    for (int q = 0; q < BLOCKS; q++) {
        if (32 * q >= width) break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 of = output[16 * q + 4 * j];
            float4 h, slope;
            activation.apply(sum + 16 * q + 4 * j, bias[16 * q + 4 * j], h, slope);
            upper += h.x * of.x + h.y * of.y;
            lower += h.z * of.x + h.w * of.y;
            c.operand[(4 * q + j) * 128] = pack_split(make_float4(of.x, of.y, of.x, of.y) * slope * splat(ANI_GPU_ADJOINT_SCALE));
        }
    }
}

// A hidden layer in the backward pass: its adjoint is the next operand.
static __device__ __forceinline__ void finish_back(const computer &c, const layer_sums &sum, int width, const float4 *saved,
                                                   float unit)
{
    float4 slope[2][4];
#pragma unroll
    for (int j = 0; j < 4; j++) slope[0][j] = saved[j * STRIDE];
#pragma unroll
    for (int q = 0; q < BLOCKS; q++) {
        if (32 * q >= width) break;
#pragma unroll
        for (int j = 0; j < 4 && q + 1 < BLOCKS; j++) slope[(q + 1) % 2][j] = saved[(4 * q + 4 + j) * STRIDE];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *of = sum + 16 * q + 4 * j;
            c.operand[(4 * q + j) * 128] = pack_split(make_float4(of[0], of[1], of[2], of[3]) * slope[q % 2][j] * splat(unit));
        }
    }
}

// dE/dAEV of `end` columns from `first` on, added to that of earlier members, which is requested three blocks ahead.
static __device__ __forceinline__ void finish_input(const layer_sums &sum, float *adjoint, int columns, int first, int end,
                                                    bool add, float unit)
{
    const int DEEP = 3;
    float4 old[DEEP + 1][4];
    const auto look = [&](int q) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *at = adjoint + min(first + 32 * q + 8 * j, columns - 8);
            const float2 a = add ? *(const float2 *)at : make_float2(0, 0);
            const float2 b = add ? *(const float2 *)(at + 8 * columns) : make_float2(0, 0);
            old[q % (DEEP + 1)][j] = make_float4(a.x, a.y, b.x, b.y);
        }
    };
#pragma unroll
    for (int q = 0; q < DEEP; q++) look(q);
#pragma unroll
    for (int q = 0; q < BLOCKS; q++) {
        if (32 * q >= end) break;
        if (q + DEEP < BLOCKS) look(q + DEEP);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (32 * q + 8 * j >= end) break;
            const float *v = sum + 16 * q + 4 * j;
            const float4 before = old[q % (DEEP + 1)][j];
            float *to = adjoint + first + 32 * q + 8 * j;
            *(float2 *)to = make_float2(fmaf(v[0], unit, before.x), fmaf(v[1], unit, before.y));
            *(float2 *)(to + 8 * columns) = make_float2(fmaf(v[2], unit, before.z), fmaf(v[3], unit, before.w));
        }
    }
}

// One member for 64 slots. All layers use the same code, which fits the instruction cache. Global memory is read in blocks of 32 columns,
// requested ahead of their use.
static __device__ __forceinline__ void compute_member(computer &c, const ani_gpu_step &step, const work &w, int member, bool add,
                                                      float share, bool back, bool stamps)
{
    const ani_gpu_network *net = step.network + member * step.n_species + w.species;
    const int L = net->n_hidden, n_tiles = step.groups->n_tiles, warp = threadIdx.x / 32, row = w.first + 16 * warp + c.lane / 4;
    const int chunk = chunk_of(n_tiles), stages = back ? 2 * L - 1 + (n_tiles + chunk - 1) / chunk : L, columns = 16 * n_tiles;
    const float unit = step.weight_unit / ANI_GPU_VALUE_SCALE, unit_back = step.weight_unit / ANI_GPU_ADJOINT_SCALE * share;
    float4 *saved = (float4 *)step.saved + (size_t)blockIdx.x * (step.saved_columns / 8) * STRIDE + threadIdx.x;
    float *adjoint = w.adjoint + (size_t)row * columns + 2 * (c.lane % 4);
    const celu activation(unit, ANI_GPU_VALUE_SCALE);
    float upper = 0, lower = 0; // energies of two rows
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        const bool forward = s < L, last = s == L - 1, to_input = s >= 2 * L - 1;
        const int l = forward ? s : 2 * L - 1 - s; // backward: δ_{l−1} from δ_l; from δ_1 dE/dAEV, chunk by chunk
        const int width = to_input ? 16 * chunk : net->wgmma_width[forward ? l : l - 1];
        const int n = s == 0 ? n_tiles : net->wgmma_width[forward ? l - 1 : to_input ? 0 : l] / 16;
        const int first = (s - (2 * L - 1)) * 16 * chunk; // column of dE/dAEV
        layer_sums sum;
#pragma unroll
        for (int j = 0; j < ANI_GPU_WGMMA_WIDTH / 2; j++) sum[j] = 0;
        if (!forward && !to_input) saved -= width / 8 * STRIDE;
        const uint4 *input = s == 0 ? (const uint4 *)step.aev + (size_t)(w.first / 16 + warp) * n_tiles * 64 + c.lane : NULL;
        if (to_input && add && c.lane < 16) // prefetch dE/dAEV of earlier members into L2
            bulk_prefetch(w.adjoint + (size_t)(w.first + 16 * warp + c.lane) * columns + first, 4 * min(width, columns - first));
        switch (width) { // see padded_width in ani_pack.c
        case 128: c.multiply<128>(sum, n, input); break;
        case 160: c.multiply<160>(sum, n, input); break;
        case 192: c.multiply<192>(sum, n, input); break;
        case 224: c.multiply<224>(sum, n, input); break;
        default: c.multiply<256>(sum, n, input);
        }
        if (forward) mbarrier_wait(&c.barriers->constants_full, c.phase);
        if (to_input) {
            finish_input(sum, adjoint + from_here(), columns, first, min(width, columns - first), add, unit_back);
        } else if (!forward) {
            finish_back(c, sum, width, saved + from_here(), step.weight_unit);
        } else if (!last) {
            finish_hidden(c, activation, sum, width, saved + from_here(), back);
            saved += width / 8 * STRIDE;
        } else {
            finish_last(c, activation, sum, width, upper, lower);
            if (stamps && back) step.gpu.stamps[ANI_GPU_STAMP_NETWORK_BACK] = gpu_timer();
        }
        if (forward) {
            c.phase ^= 1;
            __syncwarp();
            if (c.lane == 0) mbarrier_arrive(&c.barriers->constants_empty);
        }
    }
    for (int k = 1; k < 4; k *= 2) {
        upper += __shfl_xor_sync(~0u, upper, k);
        lower += __shfl_xor_sync(~0u, lower, k);
    }
    if (c.lane % 4 == 0) {
        float *to = step.member_energy + (size_t)member * step.slot_capacity + row;
        to[0] = upper * (1.0f / ANI_GPU_VALUE_SCALE) + net->output_bias;
        to[8] = lower * (1.0f / ANI_GPU_VALUE_SCALE) + net->output_bias;
    }
}

static __device__ __forceinline__ void compute_all(computer &c, const ani_gpu_step &step, int items, bool back)
{
    const float share = step.gpu.call->member < 0 ? 1.0f / step.n_members : 1.0f;
    wait_for_previous();
    let_next_start();
    for (int phase = 0;; phase ^= 1) {
        mbarrier_wait(&c.barriers->item_full, phase);
        const int item = c.barriers->item;
        __syncwarp();
        if (c.lane == 0) mbarrier_arrive(&c.barriers->item_empty);
        if (item >= items) return;
        const bool stamps = step.gpu.stamps && item == 0 && threadIdx.x == 0;
        if (stamps) step.gpu.stamps[ANI_GPU_STAMP_NETWORK] = gpu_timer();
        const work w(step, item);
        for (int member = w.member; member < w.end; member++)
            compute_member(c, step, w, member, member > w.member, share, back, stamps && member == w.member);
    }
}

static __global__ void __launch_bounds__(THREADS, 1)
    network_wgmma_kernel(const __grid_constant__ ani_gpu_step step, int back, int searches)
{
    DYNAMIC_SHARED(shared);
    if (!WGMMA_HERE) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4 *operands = shared;
    char *ring = (char *)shared + OPERAND_BYTES;
    ring_barriers *barriers = (ring_barriers *)(ring + SLOTS * SLOT_BYTES);
    const int items = count_items(step);
    if (threadIdx.x == 0) {
        for (int k = 0; k < SLOTS; k++) {
            mbarrier_init(barriers->full + k, 1);
            mbarrier_init(barriers->empty + k, WARPS);
        }
        mbarrier_init(&barriers->item_full, 1);
        mbarrier_init(&barriers->item_empty, WARPS);
        mbarrier_init(&barriers->constants_full, 1);
        mbarrier_init(&barriers->constants_empty, WARPS);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (warp >= WARPS) {
        wgmma_release_registers<40>();
        if (warp == WARPS)
            fetch_all(step, ring, barriers, items, back != 0);
        else if (searches) // rows are complete before the AEVs begin
            for (int i = blockIdx.x * 3 + warp - WARPS - 1; i < step.gpu.call->n_atoms; i += gridDim.x * 3)
                if (step.slot_of[i] >= 0 || !leaves_out_ghost_pairs(step.gpu)) find_reverses(step.gpu, i);
    } else {
        wgmma_claim_registers<232>();
        computer c = {operands + warp / 4 * (K_TILES * 256) + threadIdx.x % 128, ring, barriers, 0, 0, 0, lane};
        compute_all(c, step, items, back != 0);
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

static const int SHARED_BYTES = OPERAND_BYTES + SLOTS * SLOT_BYTES + (int)sizeof(ring_barriers);

int ani_gpu_launch_wgmma(const ani_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(network_wgmma_kernel, step->wgmma_blocks, THREADS, SHARED_BYTES, 1, plan->overlap, stream, *step, plan->forces,
                  (int)(plan->forces && step->gpu.neighbors.given_pairs != 2));
}

int ani_gpu_prepare_wgmma(int shared_bytes, int *can)
{
    *can = 0;
    if (shared_bytes < SHARED_BYTES) return 0;
    *can = 1;
    return (int)cudaFuncSetAttribute(network_wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
}
