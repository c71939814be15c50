// SPDX-License-Identifier: MIT
// orb_heads.cu: energy, direct forces and direct stress from the last layer's nodes. The heads' hidden layers are products of gpu/nn; here
// are the mean over a system's nodes, the last layers, and what is removed from direct forces: their mean, and without a cell the torque.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/nn/operand.cuh"
#include "orb_heads.cuh"

enum { POOL_THREADS = 512, POOL_ROWS = POOL_THREADS / 4, POOL_BLOCKS = ORB_GPU_LATENT / 32, SYSTEM_THREADS = 256 };

// ---- mean of the nodes of a system: POOL_BLOCKS blocks, each of which has 32 columns; a thread has 8 columns of every POOL_ROWS-th atom

template <int NUMBERS>
static __global__ void __launch_bounds__(POOL_THREADS) orb_pool_kernel(const __grid_constant__ orb_gpu_step step, int stamped)
{
    __shared__ float part[POOL_THREADS / 32][8];
    wait_for_previous();
    let_next_start();
    if (stamped && step.gpu.stamps && blockIdx.x == 0 && threadIdx.x == 0) step.gpu.stamps[step.stamp_heads] = gpu_timer();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = blockIdx.x / POOL_BLOCKS,
              column = 32 * (blockIdx.x % POOL_BLOCKS) + 8 * (threadIdx.x / POOL_ROWS);
    if (s >= step.gpu.call->n_systems) return;
    const gpu_system &system = step.gpu.neighbors.systems[s];
    const int n = system.n, first = system.first;
    eight sum = {};
#pragma unroll 8
    for (int i = threadIdx.x % POOL_ROWS; i < n; i += POOL_ROWS) {
        const eight x = load_operand<NUMBERS>(step.nodes, first + i, column);
#pragma unroll
        for (int k = 0; k < 8; k++) sum.v[k] += x.v[k];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        sum.v[k] = sum_warp(sum.v[k]);
        if (lane == 0) part[warp][k] = sum.v[k];
    }
    __syncthreads();
    if (threadIdx.x % POOL_ROWS != 0) return;
    for (int w = 1; w < POOL_ROWS / 32; w++)
        for (int k = 0; k < 8; k++) sum.v[k] += part[warp + w][k];
    // Energy and stress of a step that has failed are not a number.
    const float share = step.gpu.report->flags ? nanf("") : 1.0f / (float)max(n, 1);
    for (int k = 0; k < 8; k++) sum.v[k] *= share;
    store_operand<NUMBERS>(step.pooled, s, column, sum);
}

// ---- direct forces: a warp for each atom

static __device__ __forceinline__ float dot_row(const float *a, const float *b, int lane)
{
    const eight x = load_floats(a + 8 * lane), y = load_constants(b + 8 * lane);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum = fmaf(x.v[k], y.v[k], sum);
    return sum_warp(sum);
}

static __global__ void __launch_bounds__(128) orb_raw_force_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= step.gpu.call->n_atoms) return;
    for (int c = 0; c < 3; c++) {
        const float f = dot_row(step.atom_hidden + (size_t)i * ORB_GPU_LATENT, step.force.weight + c * ORB_GPU_LATENT, lane);
        if (lane == 0) step.raw_force[(size_t)i * 3 + c] = f + step.force.bias[c];
    }
}

// Expected error of a force component: the mean of the bins' centers, weighted with the softmax of the head's outputs z:
// sum_k exp(z_k − max z) c_k / sum_k exp(z_k − max z), in one pass over the bins. A warp for each atom.
static __global__ void __launch_bounds__(128) orb_error_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32;
    const gpu_call &call = *step.gpu.call;
    if (i >= call.n_atoms || !call.force_errors) return;
    float largest = -INFINITY, sum = 0, error = 0;
    for (int k = 0; k < step.n_bins; k++) {
        const float z =
            dot_row(step.atom_hidden + (size_t)i * ORB_GPU_LATENT, step.confidence.weight + k * ORB_GPU_LATENT, lane) +
            step.confidence.bias[k];
        const float top = fmaxf(largest, z), old = expf(largest - top), weight = expf(z - top);
        sum = fmaf(sum, old, weight);
        error = fmaf(error, old, weight * 0.5f * (step.bin_edges[k] + step.bin_edges[k + 1]));
        largest = top;
    }
    if (lane == 0) call.force_errors[i] = step.gpu.report->flags ? nan("") : (double)(error / sum);
}

// A block for each system: mean force, and without a cell the rotation that cancels the net torque.
static __global__ void __launch_bounds__(SYSTEM_THREADS) orb_balance_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    wait_for_previous();
    let_next_start();
    const int s = blockIdx.x;
    if (s >= step.gpu.call->n_systems) return;
    const gpu_call &call = *step.gpu.call;
    const gpu_system &system = step.gpu.neighbors.systems[s];
    const double *r = call.positions + (size_t)system.first * 3;
    const float *f = step.raw_force + (size_t)system.first * 3;
    const orb_gpu_system result = balance_system<SYSTEM_THREADS>(
        system.n, has_no_cell(call, s),
        [&](int i, double *to) {
            for (int c = 0; c < 3; c++) to[c] = r[(size_t)i * 3 + c];
        },
        [&](int i, double *to) {
            for (int c = 0; c < 3; c++) to[c] = f[(size_t)i * 3 + c];
        });
    if (threadIdx.x == 0) step.system[s] = result;
}

// Forces in eV/Å: a warp for each atom, which moves it in dynamics.
static __global__ void __launch_bounds__(128) orb_force_kernel(const __grid_constant__ orb_gpu_step step, int moves)
{
    wait_for_previous();
    let_next_start();
    const gpu_step &gpu = step.gpu;
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32, c = min(lane, 2);
    if (i >= gpu.call->n_atoms) return;
    const gpu_call &call = *gpu.call;
    const moving_atom atom(gpu.motion, moves ? i : INT32_MAX, gpu.motion.place + 1);
    const int system_of = call.n_systems == 1 ? 0 : gpu.neighbors.system_of[i];
    const double force = direct_force(step, call, step.system[system_of], i, c, step.raw_force[(size_t)i * 3 + c]);
    __syncwarp();
    if (lane < 3 && call.forces) call.forces[(size_t)i * 3 + lane] = force;
    if (moves) move_atom(gpu, atom, force, true);
}

// ---- energy and stress of each system

static __global__ void __launch_bounds__(SYSTEM_THREADS) orb_system_kernel(const __grid_constant__ orb_gpu_step step, int unused)
{
    __shared__ double stress[6];
    const gpu_call call = *step.gpu.call;
    const int s = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (s >= call.n_systems) {
        wait_for_previous();
        let_next_start();
        if (s == 0) publish_report(step.gpu, call);
        return;
    }
    // What is summed here is older than the mean of the nodes, for which the kernels before this one have waited.
    const gpu_system &system = step.gpu.neighbors.systems[s];
    const float *hidden = step.system_hidden_values + (size_t)s * 2 * ORB_GPU_LATENT;
    double sums[7] = {0, 0, 0, 0, 0, 0, 0};
    sum_offsets<SYSTEM_THREADS>(step, system, sums);
    wait_for_previous();
    let_next_start();
    if (warp == 6) {
        const double y = dot_row(hidden, step.energy.weight, lane) + step.energy.bias[0];
        if (lane == 0 && call.energies) call.energies[s] = energy_of(step, system, y, sums[6]);
    } else if (warp < 6 && step.has_stress) {
        const double y =
            dot_row(hidden + ORB_GPU_LATENT, step.stress.weight + warp * ORB_GPU_LATENT, lane) + step.stress.bias[warp];
        double own = 0;
        for (int k = 0; k < 6; k++) own = k == warp ? sums[k] : own;
        if (lane == 0) stress[warp] = direct_stress(step, system, warp, y, own);
    }
    __syncthreads();
    if (threadIdx.x < 6 && step.has_stress && call.stresses) call.stresses[(size_t)s * 6 + threadIdx.x] = stress[threadIdx.x];
    if (s > 0) return;
    publish_report(step.gpu, call);
    if (step.gpu.stamps && threadIdx.x == 0) step.gpu.stamps[step.stamp_heads + 1] = gpu_timer();
}

// ---- launches -------------------------------------------------------------------------------------------------------

int orb_gpu_launch_pool(const orb_gpu_step *step, const gpu_plan *plan, int stamped, void *stream)
{
    void (*const kernel)(orb_gpu_step, int) = step->numbers == GPU_NUMBER_FLOAT32 ? orb_pool_kernel<GPU_NUMBER_FLOAT32>
                                              : step->numbers == GPU_NUMBER_TF32  ? orb_pool_kernel<GPU_NUMBER_TF32>
                                                                                  : orb_pool_kernel<GPU_NUMBER_BF16>;
    return launch(kernel, plan->n_systems * POOL_BLOCKS, POOL_THREADS, 0, 1, plan->overlap, stream, *step, stamped);
}

int orb_gpu_launch_forces(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    const int blocks = (plan->n_atoms + 3) / 4, on = plan->overlap;
    int error = launch(orb_raw_force_kernel, blocks, 128, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_balance_kernel, plan->n_systems, SYSTEM_THREADS, 0, 1, on, stream, *step, 0);
    if (error == 0) error = launch(orb_force_kernel, blocks, 128, 0, 1, on, stream, *step, step->gpu.motion.n_atoms > 0 ? 1 : 0);
    return error;
}

int orb_gpu_launch_errors(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_error_kernel, (plan->n_atoms + 3) / 4, 128, 0, 1, plan->overlap, stream, *step, 0);
}

int orb_gpu_launch_sums(const orb_gpu_step *step, const gpu_plan *plan, void *stream)
{
    return launch(orb_system_kernel, plan->n_systems, SYSTEM_THREADS, 0, 1, plan->overlap, stream, *step, 0);
}
