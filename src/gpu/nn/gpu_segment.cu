// SPDX-License-Identifier: MIT
// gpu_segment.cu: sums over the edges of an atom, softmax, and their reverse passes (gpu_segment.h). Attention: a block for each atom, four warps sum what was
// received, four what was sent, each every fourth edge; their parts are added in order. Backward: a warp for each edge.
// Softmax: a warp for each segment, the columns of a row in `width` adjacent lanes, a power of two, and 32/width rows at once.
#include "attention.cuh"
#include "norm.cuh"

enum {
    SUM_EDGES = 64,
    ROW_LANES = 4,
    SUM_WARPS = 8,
    HALF = SUM_WARPS / 2,
    BACK_WARPS = 4,
    MAX_SUM_THREADS = 1024,
    SOFTMAX_WARPS = 4
};

// σ of the sending (0) or receiving (1) logit of edge e.
static __device__ __forceinline__ float gate_of(const gpu_attention &call, int e, int which)
{
    float sum = call.bias[which];
    for (int k = 0; k < call.logit_parts; k++) sum += call.logits[((size_t)e * (size_t)call.logit_parts + (size_t)k) * 2 + which];
    return logistic(sum);
}

template <int NUMBERS, bool halves>
static __global__ void __launch_bounds__(32 * SUM_WARPS)
    attention_sum_kernel(const __grid_constant__ gpu_attention call, int unused)
{
    typedef attention_edges<8, halves> edges;
    __shared__ float4 part[SUM_WARPS][2][32];
    __shared__ float part_weight[SUM_WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x, received = warp / HALF;
    // The graph is older than the previous kernel.
    const bool exists = i < *call.edges.n_atoms;
    const attention_list list = edges::list_of(call, received, i, exists, warp % HALF, HALF, lane);
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    if (!exists) return;
    eight sum = {};
    float weight = 0;
    edges::add_list(call, received, list, HALF, lane, sum, weight);
    part[warp][0][lane] = make_float4(sum.v[0], sum.v[1], sum.v[2], sum.v[3]);
    part[warp][1][lane] = make_float4(sum.v[4], sum.v[5], sum.v[6], sum.v[7]);
    if (lane == 0) part_weight[warp] = weight;
    __syncthreads();
    if (warp % HALF != 0) return;
    for (int w = 1; w < HALF; w++) {
        const float4 a = part[warp + w][0][lane], b = part[warp + w][1][lane];
        sum.v[0] += a.x, sum.v[1] += a.y, sum.v[2] += a.z, sum.v[3] += a.w;
        sum.v[4] += b.x, sum.v[5] += b.y, sum.v[6] += b.z, sum.v[7] += b.w;
        weight += part_weight[warp + w];
    }
    if (call.scale) {
        const eight scale = load_constants(call.scale + 8 * lane);
        eight shift = {};
        if (call.shift) shift = load_constants(call.shift + 8 * lane);
#pragma unroll
        for (int c = 0; c < 8; c++) sum.v[c] = fmaf(sum.v[c], scale.v[c], weight * shift.v[c]);
    }
    store_operand<NUMBERS>(call.out, i, (received ? 0 : GPU_NORM_WIDTH) + 8 * lane, sum);
}

template <int NUMBERS>
static __global__ void __launch_bounds__(32 * BACK_WARPS)
    attention_back_kernel(const __grid_constant__ gpu_attention_backward call, int unused)
{
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    const gpu_attention &of = call.attention;
    const int lane = threadIdx.x % 32, local = blockIdx.x * BACK_WARPS + threadIdx.x / 32, e = call.first_row + local;
    if (local >= call.rows || e >= *of.edges.n_edges) return;
    const size_t at = (size_t)e * GPU_NORM_WIDTH + 8 * lane;
    const float *received_bar = call.sums_bar + (size_t)of.edges.receiver[e] * call.stride + 8 * lane,
                *sent_bar = call.sums_bar + (size_t)of.edges.sender[e] * call.stride + GPU_NORM_WIDTH + 8 * lane;
    const eight z = load_floats(of.z + at), scale = load_constants(of.scale + 8 * lane), sent = load_floats(sent_bar),
                received = load_floats(received_bar);
    eight v, bar = {};
    if (!call.begins) bar = load_floats(call.e_bar + at);
#pragma unroll
    for (int k = 0; k < 8; k++) v.v[k] = scale.v[k] * z.v[k];
    if (of.shift) {
        const eight shift = load_constants(of.shift + 8 * lane);
#pragma unroll
        for (int k = 0; k < 8; k++) v.v[k] += shift.v[k];
    }
    const float c = of.envelope[e], gs = gate_of(of, e, 0), gr = gate_of(of, e, 1), by_sent = sum_warp(dot_eight(v, sent)),
                by_received = sum_warp(dot_eight(v, received));
    const float logit_s = by_sent * c * gs * (1.0f - gs), logit_r = by_received * c * gr * (1.0f - gr);
    const eight ws = load_constants(call.weight + 8 * lane), wr = load_constants(call.weight + GPU_NORM_WIDTH + 8 * lane);
    eight v_bar;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        v_bar.v[k] = fmaf(c * gs, sent.v[k], fmaf(c * gr, received.v[k], bar.v[k]));
        bar.v[k] = fmaf(logit_s, ws.v[k], fmaf(logit_r, wr.v[k], bar.v[k]));
    }
    store_floats(call.e_bar + at, bar);
    if (lane == 0) call.envelope_bar[e] = (call.begins ? 0.0f : call.envelope_bar[e]) + gs * by_sent + gr * by_received;
    norm_row_backward<NUMBERS>(call.norm, e, local, lane, v_bar, z);
}

// A block for each atom, eight columns of its sums for each thread. Edges and factors pass through shared memory, so that only rows are
// waited for. Rows that an atom sends are adjacent: ROW_LANES lanes read as many of them at once, whole sectors, of ROW_LANES times eight columns,
// and exchange their parts of the sums.
template <int NUMBERS>
static __global__ void __launch_bounds__(MAX_SUM_THREADS)
    segment_sum_kernel(const __grid_constant__ gpu_segment_sum call, int unused)
{
    constexpr int AT_ONCE = 8 / number_format<NUMBERS>::planes;
    __shared__ float largest[MAX_SUM_THREADS / 32];
    __shared__ int edge[2][SUM_EDGES];
    __shared__ float factor[2][SUM_EDGES];
    // Eights: of columns of a row. The first threads sum what is sent, as many others what is received.
    const int i = blockIdx.x, thread = threadIdx.x, n_eights = call.rows.columns / 8, received = thread >= n_eights,
              row_lane = thread % ROW_LANES;
    const bool exists = i < *call.edges.n_atoms, sums = exists && thread < 2 * n_eights;
    const int begin[2] = {exists ? call.edges.first[i] : 0, exists ? call.edges.incoming_first[i] : 0},
              count[2] = {exists ? call.edges.first[i + 1] - begin[0] : 0,
                          exists ? call.edges.incoming_first[i + 1] - begin[1] : 0};
    wait_for_previous();
    let_next_start();
    eight part[ROW_LANES] = {};
    const auto add = [&](int k, int which, eight &sum) {
        const eight x = load_operand<NUMBERS>(call.rows, edge[received][k], 8 * which);
#pragma unroll
        for (int m = 0; m < 8; m++) sum.v[m] = fmaf(factor[received][k], x.v[m], sum.v[m]);
    };
    for (int from = 0; from < max(count[0], count[1]); from += SUM_EDGES) {
        if (from > 0) __syncthreads();
        for (int k = thread; k < 2 * SUM_EDGES; k += blockDim.x) {
            const int of = k / SUM_EDGES, at = from + k % SUM_EDGES;
            if (at >= count[of]) continue;
            const int e = of ? call.edges.incoming[begin[1] + at] : begin[0] + at;
            edge[of][k % SUM_EDGES] = e;
            factor[of][k % SUM_EDGES] = call.row_scale[e];
        }
        __syncthreads();
        const int here = sums ? min(count[received] - from, (int)SUM_EDGES) : 0;
        if (received) {
#pragma unroll AT_ONCE
            for (int k = 0; k < here; k++) add(k, thread - n_eights, part[0]);
        } else {
#pragma unroll AT_ONCE / ROW_LANES
            for (int k = (row_lane - begin[0]) & (ROW_LANES - 1); k < here; k += ROW_LANES) {
#pragma unroll
                for (int j = 0; j < ROW_LANES; j++) add(k, thread / ROW_LANES + j * (n_eights / ROW_LANES), part[j]);
            }
        }
    }
    eight sum = part[0];
#pragma unroll
    for (int half = ROW_LANES / 2; half > 0; half /= 2) {
        const bool upper = row_lane & half;
#pragma unroll
        for (int j = 0; j < half; j++) {
#pragma unroll
            for (int m = 0; m < 8; m++) {
                const float low = part[j].v[m], high = part[j + half].v[m];
                part[j].v[m] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, half);
            }
        }
    }
    if (!received) sum = part[0];
    const int which = received ? thread : thread / ROW_LANES + row_lane * (n_eights / ROW_LANES);
    const float own = max_warp(largest_of(sum));
    if (thread % 32 == 0) largest[thread / 32] = own;
    __syncthreads();
    float of_row = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) of_row = fmaxf(of_row, largest[w]);
    if (!sums) return;
    const float scale = store_scaled_row<NUMBERS>(call.sums, i, 8 * which, of_row, sum);
    if (thread == 0) call.sums_scale[i] = scale;
}

// What a lane has of a softmax: rows row_of(k), k = begin, begin + step … end − 1, of one column.
struct softmax_lane {
    int begin, end, step, column;
    bool counts;
};

static __device__ __forceinline__ softmax_lane lane_of_softmax(const gpu_segments &segments, int columns, int width)
{
    const int lane = threadIdx.x % 32, i = blockIdx.x * SOFTMAX_WARPS + threadIdx.x / 32, column = lane % width;
    if (i >= *segments.n_segments) return {0, 0, 1, column, false};
    return {segments.first[i] + lane / width, segments.first[i + 1], 32 / width, column, column < columns};
}

static __device__ __forceinline__ size_t softmax_place(const gpu_segments &segments, int columns, int k, int column)
{
    return (size_t)(segments.row ? segments.row[k] : k) * columns + column;
}

// Over the lanes of a column.
static __device__ __forceinline__ float sum_column(float v, int width)
{
    for (int mask = 16; mask >= width; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}

static __global__ void __launch_bounds__(32 * SOFTMAX_WARPS) softmax_kernel(const __grid_constant__ gpu_softmax call, int width)
{
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    const softmax_lane own = lane_of_softmax(call.segments, call.columns, width);
    float largest = __uint_as_float(0xff800000u), sum = 0; // −∞
    for (int k = own.begin; own.counts && k < own.end; k += own.step)
        largest = fmaxf(largest, call.x[softmax_place(call.segments, call.columns, k, own.column)]);
    for (int mask = 16; mask >= width; mask /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, mask));
    for (int k = own.begin; own.counts && k < own.end; k += own.step) {
        const size_t at = softmax_place(call.segments, call.columns, k, own.column);
        const float v = fast_exp2(1.4426950408889634f * (call.x[at] - largest));
        call.share[at] = v;
        sum += v;
    }
    sum = sum_column(sum, width);
    for (int k = own.begin; own.counts && k < own.end; k += own.step) {
        const size_t at = softmax_place(call.segments, call.columns, k, own.column);
        call.share[at] = call.share[at] / sum;
    }
}

static __global__ void __launch_bounds__(32 * SOFTMAX_WARPS)
    softmax_back_kernel(const __grid_constant__ gpu_softmax_backward call, int width)
{
    wait_for_previous();
    let_next_start();
    if (call.stamp && blockIdx.x == 0 && threadIdx.x == 0) *call.stamp = gpu_timer();
    const softmax_lane own = lane_of_softmax(call.segments, call.columns, width);
    float mean = 0; // of share_bar, weighted with the shares
    for (int k = own.begin; own.counts && k < own.end; k += own.step) {
        const size_t at = softmax_place(call.segments, call.columns, k, own.column);
        mean = fmaf(call.share[at], call.share_bar[at], mean);
    }
    mean = sum_column(mean, width);
    for (int k = own.begin; own.counts && k < own.end; k += own.step) {
        const size_t at = softmax_place(call.segments, call.columns, k, own.column);
        call.x_bar[at] = call.share[at] * (call.share_bar[at] - mean);
    }
}

// ---- launches -------------------------------------------------------------------------------------------------------

template <int NUMBERS> static int launch_sum(const gpu_attention *call, int n_atoms, int overlap, void *stream)
{
    return launch(call->halves ? attention_sum_kernel<NUMBERS, true> : attention_sum_kernel<NUMBERS, false>, n_atoms,
                  32 * SUM_WARPS, 0, 1, overlap, stream, *call, 0);
}

int gpu_launch_attention(const gpu_attention *call, enum gpu_number numbers, int n_atoms, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_sum, call, n_atoms, overlap, stream);
}

template <int NUMBERS> static int launch_back(const gpu_attention_backward *call, int overlap, void *stream)
{
    return launch(attention_back_kernel<NUMBERS>, (call->rows + BACK_WARPS - 1) / BACK_WARPS, 32 * BACK_WARPS, 0, 1, overlap,
                  stream, *call, 0);
}

int gpu_launch_attention_backward(const gpu_attention_backward *call, enum gpu_number numbers, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_back, call, overlap, stream);
}

template <int NUMBERS> static int launch_segment(const gpu_segment_sum *call, int n_atoms, int overlap, void *stream)
{
    const int threads = (call->rows.columns / 4 + 31) / 32 * 32;
    return launch(segment_sum_kernel<NUMBERS>, n_atoms, threads, 0, 1, overlap, stream, *call, 0);
}

int gpu_launch_segment_sum(const gpu_segment_sum *call, enum gpu_number numbers, int n_atoms, int overlap, void *stream)
{
    return FOR_NUMBERS(numbers, launch_segment, call, n_atoms, overlap, stream);
}

// The least power of two that holds the columns of a row; 0: too many.
static int softmax_width(int columns)
{
    int width = 1;
    while (width < columns) width *= 2;
    return columns > 0 && width <= GPU_SOFTMAX_COLUMNS ? width : 0;
}

int gpu_launch_softmax(const gpu_softmax *call, int n_segments, int overlap, void *stream)
{
    const int width = softmax_width(call->columns), n_blocks = (n_segments + SOFTMAX_WARPS - 1) / SOFTMAX_WARPS;
    if (width == 0) return cudaErrorInvalidValue;
    return launch(softmax_kernel, n_blocks, 32 * SOFTMAX_WARPS, 0, 1, overlap, stream, *call, width);
}

int gpu_launch_softmax_backward(const gpu_softmax_backward *call, int n_segments, int overlap, void *stream)
{
    const int width = softmax_width(call->columns), n_blocks = (n_segments + SOFTMAX_WARPS - 1) / SOFTMAX_WARPS;
    if (width == 0) return cudaErrorInvalidValue;
    return launch(softmax_back_kernel, n_blocks, 32 * SOFTMAX_WARPS, 0, 1, overlap, stream, *call, width);
}
