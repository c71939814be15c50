// SPDX-License-Identifier: MIT
// orb_graph_few.cu: the graph of a step (orb_graph.cu) of few atoms in one kernel: a cluster, each of whose warps has one atom, first as sender, then
// as receiver. Behind a barrier of the cluster each warp looks for its atom among the receivers of all edges.
#include "gpu/ptx/exchange.cuh"
#include "orb_graph.cuh"

enum { BLOCKS = 8, WARPS = 8, EDGES = 2048, CLEARING_BLOCKS = 120 };

static __global__ void __launch_bounds__(32 * WARPS) orb_graph_few_kernel(const __grid_constant__ orb_gpu_step step, int cleared)
{
    __shared__ uint4 distances[WARPS][ROW_AT_ONCE / 4];
    __shared__ int32_t receivers[EDGES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = BLOCKS * warp + cluster_rank<BLOCKS>();
    begin_stage(step.gpu, ORB_GPU_STAMP_GRAPH);
    const int n = step.gpu.call->n_atoms, clearing = (int)blockIdx.x - BLOCKS;
    if (clearing >= 0) { // a cluster of its own
        exchange_clear(step.exchange, cleared, clearing * 32 * WARPS + (int)threadIdx.x, CLEARING_BLOCKS * 32 * WARPS);
        return;
    }
    int first = 0, total = 0;
#pragma unroll
    for (int k = lane; k < BLOCKS * WARPS; k += 32) {
        const int edges = k < n ? min(step.gpu.neighbors.row_length[k], step.cap) : 0;
        total += edges;
        if (k < i) first += edges;
    }
    first = sum_warp(first);
    total = sum_warp(total);
    if (i < n) send_edges(step, i, first, distances[warp], [](int, int) {});
    cluster_barrier<BLOCKS>(); // edges are visible to all
    for (int e = threadIdx.x; e < total; e += 32 * WARPS) receivers[e] = step.receiver[e];
    __syncthreads();
    if (i >= n) return;
    int before = 0; // edges to atoms in front of this one
#pragma unroll 4
    for (int e = lane; e < total; e += 32) before += receivers[e] < i;
    before = sum_warp(before);
    if (lane == 0) {
        step.first_edge[i] = first;
        step.incoming_first[i] = before;
    }
    if (lane == 0 && i == n - 1) step.first_edge[n] = step.incoming_first[n] = *step.n_edges = total;
    for (int begin = 0; begin < total; begin += 32) {
        const bool mine = begin + lane < total && receivers[min(begin + lane, EDGES - 1)] == i;
        const unsigned found = __ballot_sync(~0u, mine);
        if (mine) step.incoming_edge[before + __popc(found & ((1u << lane) - 1))] = begin + lane;
        before += __popc(found);
    }
}

int orb_gpu_has_few_edges(const gpu_plan *plan, int edges)
{
    return plan->n_atoms <= BLOCKS * WARPS && edges <= EDGES;
}

int orb_gpu_launch_few_edges(const orb_gpu_step *step, const gpu_plan *plan, int cleared, void *stream)
{
    return launch(orb_graph_few_kernel, BLOCKS + (cleared ? CLEARING_BLOCKS : 0), 32 * WARPS, 0, BLOCKS, plan->overlap, stream,
                  *step, cleared);
}
