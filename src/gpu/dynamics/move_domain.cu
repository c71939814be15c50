// SPDX-License-Identifier: MIT
// move_domain.cu: moves the atoms of a domain; the arithmetic of one atom is atoms/dynamics/domain_motion.h. Positions of ghosts and forces on
// shared atoms are read from the memory of other GPUs. Outcomes go to the host's memory, one for each block: their sum has a fixed order.
#include "gpu/ptx/primitives.cuh"
#include "move_domain.h"

template <int move> static __global__ void __launch_bounds__(DOMAIN_BLOCK) motion_kernel(const __grid_constant__ domain_motion m)
{
    const int i = blockIdx.x * DOMAIN_BLOCK + threadIdx.x;
    domain_outcome outcome = i < domain_turns(&m, move) ? domain_turn(&m, move, (size_t)i) : domain_nothing();
    if (!domain_has_outcome(move)) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned wrong = __ballot_sync(~0u, outcome.atom >= 0), far = __ballot_sync(~0u, outcome.far);
    __shared__ domain_outcome parts[DOMAIN_BLOCK / 32];
    for (int c = 0; c < 3; c++) outcome.sum[c] = sum_warp(outcome.sum[c]);
    outcome.atom = wrong ? i - lane + __popc((wrong & -wrong) - 1) : -1;
    outcome.far = far != 0;
    if (lane == 0) parts[warp] = outcome;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < DOMAIN_BLOCK / 32; w++) domain_join(&outcome, &parts[w]);
    m.outcomes[blockIdx.x] = outcome;
}

template <int move> static int launch_move(const domain_motion *motion, void *stream)
{
    const int blocks = (domain_turns(motion, move) + DOMAIN_BLOCK - 1) / DOMAIN_BLOCK;
    return blocks > 0 ? launch(motion_kernel<move>, blocks, DOMAIN_BLOCK, 0, 1, 0, stream, *motion) : 0;
}

int gpu_launch_move(int move, const domain_motion *motion, void *stream)
{
    switch (move) {
    case MOVE_BEGIN: return launch_move<MOVE_BEGIN>(motion, stream);
    case MOVE_PLACE: return launch_move<MOVE_PLACE>(motion, stream);
    case MOVE_ADD: return launch_move<MOVE_ADD>(motion, stream);
    case MOVE_END: return launch_move<MOVE_END>(motion, stream);
    case MOVE_COUNT: return launch_move<MOVE_COUNT>(motion, stream);
    default: return launch_move<MOVE_SCALE>(motion, stream);
    }
}
