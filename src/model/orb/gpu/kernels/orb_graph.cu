// SPDX-License-Identifier: MIT
// orb_graph.cu: the graph of a step. Each atom sends along its `cap` shortest edges; of equal distances the earlier in the neighbor row.
// Edges are sorted by sender, then by distance. Incoming edges of an atom are listed in ascending order, so that sums have fixed bits.
#include "orb_edge_inputs.cuh"
#include "orb_graph.cuh"

enum { WARPS = 4, SCAN_THREADS = 1024 };

// ---- edges of each sender: how many, where they begin

static __global__ void __launch_bounds__(128) orb_count_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    begin_stage(step.gpu, ORB_GPU_STAMP_GRAPH);
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= step.gpu.call->n_atoms) return;
    step.first_edge[i] = min(step.gpu.neighbors.row_length[i], step.cap); // summed by the scan
    step.count[i] = 0;
}

// Exclusive sums of `values` in place, of n_atoms and one more. By one block; each thread sums adjacent atoms.
static __device__ __forceinline__ int scan_block(int32_t *values, int n)
{
    __shared__ int part[SCAN_THREADS];
    const int each = (n + SCAN_THREADS - 1) / SCAN_THREADS, begin = min((int)threadIdx.x * each, n), end = min(begin + each, n);
    int sum = 0;
    for (int k = begin; k < end; k++) sum += values[k];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < SCAN_THREADS; step *= 2) {
        const int other = (int)threadIdx.x >= step ? part[threadIdx.x - step] : 0;
        __syncthreads();
        part[threadIdx.x] += other;
        __syncthreads();
    }
    int before = part[threadIdx.x] - sum;
    for (int k = begin; k < end; k++) {
        const int own = values[k];
        values[k] = before;
        before += own;
    }
    return part[SCAN_THREADS - 1];
}

static __global__ void __launch_bounds__(SCAN_THREADS) orb_scan_kernel(const __grid_constant__ orb_gpu_step step, int incoming)
{
    wait_for_previous();
    let_next_start();
    const int n = step.gpu.call->n_atoms;
    if (incoming)
        for (int k = threadIdx.x; k < n; k += SCAN_THREADS) step.incoming_first[k] = step.count[k];
    __syncthreads();
    int32_t *values = incoming ? step.incoming_first : step.first_edge;
    const int total = scan_block(values, n);
    if (threadIdx.x == 0) {
        values[n] = total;
        if (!incoming) *step.n_edges = total;
    }
    __syncthreads();
    if (incoming)
        for (int k = threadIdx.x; k < n; k += SCAN_THREADS) step.incoming_next[k] = step.incoming_first[k];
}

// ---- a warp for each sender

static __global__ void __launch_bounds__(32 * WARPS) orb_edge_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    __shared__ uint4 distances[WARPS][ROW_AT_ONCE / 4];
    wait_for_previous();
    let_next_start();
    const int i = blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= step.gpu.call->n_atoms) return;
    send_edges(step, i, step.first_edge[i], distances[threadIdx.x / 32],
               [&](int, int receiver) { atomicAdd(step.count + receiver, 1); });
}

// Edges by receiver: in any order …
static __global__ void __launch_bounds__(128) orb_incoming_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int e = blockIdx.x * 128 + threadIdx.x;
    if (e < *step.n_edges) step.incoming_unsorted[atomicAdd(step.incoming_next + step.receiver[e], 1)] = e;
}

// … then sorted, by a warp for each receiver.
static __global__ void __launch_bounds__(32 * WARPS)
    orb_incoming_sort_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, j = blockIdx.x * WARPS + threadIdx.x / 32;
    if (j >= step.gpu.call->n_atoms) return;
    const int first = step.incoming_first[j], n = step.incoming_first[j + 1] - first;
    const int32_t *keys = step.incoming_unsorted + first;
    for (int k = lane; k < n; k += 32) {
        const int key = keys[k];
        int rank = 0;
#pragma unroll 8
        for (int m = 0; m < n; m++) rank += keys[m] < key;
        step.incoming_edge[first + rank] = key;
    }
}

// ---- inputs of the encoder: eight columns for each thread

template <int NUMBERS>
static __global__ void __launch_bounds__(128) orb_input_kernel(const __grid_constant__ orb_gpu_step step, int chunk)
{
    wait_for_previous();
    let_next_start();
    if (step.gpu.stamps && chunk == 0 && blockIdx.x == 0 && threadIdx.x == 0)
        step.gpu.stamps[ORB_GPU_STAMP_ENCODER] = gpu_timer();
    const int groups = step.edge_inputs / 8, number = blockIdx.x * 128 + threadIdx.x, local = number / groups,
              c = number % groups * 8, e = chunk + local;
    if (local >= step.chunk || e >= *step.n_edges) return;
    const float4 g = ((const float4 *)step.geometry)[e];
    eight x;
    if (step.bessel)
        bessel_and_harmonics(g, (float)step.gpu.neighbors.cutoff, step.envelope[e], c, x);
    else
        gaussians_and_direction(g, c, x);
    store_operand<NUMBERS>(step.input, local, c, x);
}

// ---- launches

static int blocks_of(int n, int each)
{
    return (n + each - 1) / each;
}

int orb_gpu_launch_graph(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int n = plan->n_atoms, on = plan->overlap, edges = min(step->edge_capacity, n * step->cap);
    int error = launch(orb_count_kernel, blocks_of(n, 128), 128, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_scan_kernel, 1, SCAN_THREADS, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_edge_kernel, blocks_of(n, WARPS), 32 * WARPS, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_scan_kernel, 1, SCAN_THREADS, 0, 1, on, stream, *step, 1);
    if (error == 0) error = launch(orb_incoming_kernel, blocks_of(edges, 128), 128, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_incoming_sort_kernel, blocks_of(n, WARPS), 32 * WARPS, 0, 1, on, stream, *step, 0);
    return error;
}

int orb_gpu_launch_inputs(const orb_gpu_step *step, const gpu_plan *plan, int first, void *stream)
{
    const int rows = min(step->chunk, min(step->edge_capacity, plan->n_atoms * step->cap) - first);
    const int blocks = blocks_of(rows * (step->edge_inputs / 8), 128);
    void (*const kernel)(orb_gpu_step, int) = step->numbers == GPU_NUMBER_FLOAT32 ? orb_input_kernel<GPU_NUMBER_FLOAT32>
                                              : step->numbers == GPU_NUMBER_TF32  ? orb_input_kernel<GPU_NUMBER_TF32>
                                                                                  : orb_input_kernel<GPU_NUMBER_BF16>;
    return launch(kernel, blocks, 128, 0, 1, plan->overlap, stream, *step, first);
}
