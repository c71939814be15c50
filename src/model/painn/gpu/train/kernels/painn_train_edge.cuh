/* SPDX-License-Identifier: MIT */
/* painn_train_edge.cuh: what kernels of messages along pairs have in common, forward (painn_train_edge.cu) and backward
 * (painn_train_edge_back.cu).
 *
 * FIRST: the first layer, whose μ is 0. Wμ and xμ, the third part of filters and of x, have no effect there, and adjoints of x's values and of μ are
 * not needed. */
#ifndef PAINN_TRAIN_EDGE_CUH
#define PAINN_TRAIN_EDGE_CUH

#include "painn_train_pairs.cuh"

enum { THREADS = PAINN_TRAIN_EDGE_THREADS, WARPS = THREADS / 32 };

typedef struct edge_step {
    painn_train_step s;
    int32_t l, first_back; /* first_back: dE/dr is set, not added to */
} edge_step;

static_assert(sizeof(edge_step) <= 4096, "parameters of a kernel");

static __device__ __forceinline__ float2 load2(const float *from)
{
    return *(const float2 *)from;
}
/* x of an atom, and but for the first layer three numbers μ. */
template <bool FIRST, int X>
static __device__ __forceinline__ void load_x(const float *x, const float *mu, int F, int atom, int f, float2 (&x_out)[X],
                                              float2 (&mu_out)[3])
{
    if (FIRST) {
        const float4 both = *(const float4 *)(x + (uint32_t)atom * 2 * F + painn_first_x(0, f));
        x_out[0] = make_float2(both.x, both.y);
        x_out[1] = make_float2(both.z, both.w);
    }
    for (int b = 0; b < 3 && !FIRST; b++) {
        const uint32_t at = ((uint32_t)atom * 3 + b) * F + f;
        x_out[b % X] = load2(x + at);
        mu_out[b] = load2(mu + at);
    }
}

static __device__ __forceinline__ float2 fma2(float a, const float2 &b, const float2 &c)
{
    return make_float2(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y));
}

/* A warp's atoms [first, last). */
struct atom_range {
    int first, last;
};
static __device__ __forceinline__ atom_range atoms_of(int n, int group, int n_groups)
{
    const int chunk = (n + n_groups - 1) / n_groups;
    return {min(n, group * chunk), min(n, (group + 1) * chunk)};
}

/* What every kernel begins with: its lane, a warp's atoms, and filters, which the first kernel of the step has written. */
struct pairs_begun {
    pair_lane lane;
    atom_range range;
    pair_filters filters;
};
template <int SHARES> static __device__ __forceinline__ pairs_begun begin_pairs(const painn_train_step &s, int l)
{
    int group, n_groups;
    const pair_lane lane = lane_of_pairs<SHARES>(s.n_features, group, n_groups);
    const atom_range range = atoms_of(s.call->n_atoms, group, n_groups);
    const pair_filters filters = load_filters(s, l, lane.slice);
    wait_for_previous();
    let_next_start();
    return {lane, range, filters};
}

/* Of the warps of a block that share an atom's row: the sum of a lane's numbers, in their order, and which of them writes it. By a block. */
template <int SHARES> static __device__ __forceinline__ float4 sum_of_shares(const float4 &own, int atom, bool &writes)
{
    writes = true;
    if (SHARES == 1) return own;
    __shared__ float4 shares[2][SHARES][32]; // used alternately, so that one barrier is enough
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, turn = atom & 1;
    shares[turn][warp][lane] = own;
    __syncthreads();
    float4 sum = shares[turn][0][lane];
    for (int k = 1; k < SHARES; k++) sum = sum + shares[turn][k][lane];
    writes = warp == atom % SHARES;
    return sum;
}

/* ---- launches */

/* Groups of atoms of which each warp has one, or SHARES warps, and whose blocks, one for each slice, all run at once. */
static int groups_of(const painn_train_step *step, int n_atoms, int shares, int most)
{
    const int of_block = WARPS / shares, wanted = (n_atoms + of_block - 1) / of_block, groups = most / (step->n_features / 16);
    return wanted < groups ? wanted : groups > 0 ? groups : 1;
}

/* How many groups of pairs a warp takes one after the other. */
static int turns_of(const painn_train_step *step, const painn_train_plan *plan, int shares, int most)
{
    const int groups = groups_of(step, plan->n_atoms, shares, most) * WARPS / shares,
              atoms = (plan->n_atoms + groups - 1) / groups;
    const int of_row = (plan->n_pairs + PAIR_GROUP * plan->n_atoms - 1) / (PAIR_GROUP * plan->n_atoms);
    return atoms * ((of_row + shares - 1) / shares);
}

/* Where rows are long and atoms few, the warps of a block share a row. */
static int launch_shared(const edge_step &edge, const painn_train_plan *plan, int most, void (*alone)(edge_step),
                         void (*shared)(edge_step), void *stream)
{
    most *= plan->n_multiprocessors;
    const int shares = turns_of(&edge.s, plan, WARPS, most) < turns_of(&edge.s, plan, 1, most) ? WARPS : 1;
    const int blocks = groups_of(&edge.s, plan->n_atoms, shares, most) * (edge.s.n_features / 16);
    return launch(shares > 1 ? shared : alone, blocks, THREADS, 0, 1, plan->overlap, stream, edge);
}

#endif
