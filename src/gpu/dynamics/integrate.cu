// SPDX-License-Identifier: MIT
// integrate.cu: first and last kernel of a graph of dynamics steps.
#include "integrate.cuh"
#include "integrate.h"

static __global__ void __launch_bounds__(128) advance_kernel(const __grid_constant__ gpu_motion motion)
{
    wait_for_previous();
    let_next_start();
    const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    moving_atom atom(motion, i, 0);
    if (blockIdx.x == 0 && threadIdx.x == 0 && atom.number == atom.begun) motion.times[0] = gpu_timer();
    atom.advance(atom.moves ? motion.forces[atom.at()] : 0.0);
    atom.store(true);
}

static __global__ void __launch_bounds__(32) finish_kernel(const __grid_constant__ gpu_motion motion)
{
    wait_for_previous();
    let_next_start();
    if (threadIdx.x > 0) return;
    const gpu_report report = *motion.report;
    if (report.flags) {
        motion.trouble->flags |= report.flags;
        motion.trouble->atom = report.atom;
        motion.trouble->other = report.other;
        if (report.longest_row > motion.trouble->longest_row) motion.trouble->longest_row = report.longest_row;
    }
    motion.step[0] += motion.n_steps;
    motion.times[motion.step[0] - motion.step[1]] = gpu_timer();
}

int gpu_launch_advance(const gpu_motion *motion, int overlap, void *stream)
{
    return launch(advance_kernel, (motion->n_atoms + 3) / 4, 128, 0, 1, overlap, stream, *motion);
}

int gpu_launch_finish(const gpu_motion *motion, int overlap, void *stream)
{
    return launch(finish_kernel, 1, 32, 0, 1, overlap, stream, *motion);
}
