// SPDX-License-Identifier: MIT
// orb_heads.cu: energy, direct forces and direct stress from the last layer's nodes. The heads' hidden layers are products of gpu/nn; here
// are the mean over a system's nodes, the last layers, and what is removed from direct forces: their mean, and without a cell the torque.
#include "gpu/dynamics/integrate.cuh"
#include "gpu/evaluator/system_sums.cuh"
#include "gpu/nn/operand.cuh"
#include "model/orb/gpu/orb_gpu.h"

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

// mu of (S − s I) mu = −tau for a symmetric matrix, by its pseudoinverse: eigenvalues below 1e-15 of the largest, times the size of
// float64 rounding, belong to a line of atoms and are left out.
static __device__ void solve_symmetric(double (&a)[3][3], const double *right, double *x)
{
    double v[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    for (int sweep = 0; sweep < 12; sweep++)
        for (int p = 0; p < 2; p++)
            for (int q = p + 1; q < 3; q++) {
                if (a[p][q] == 0) continue;
                const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]),
                             t = (theta >= 0 ? 1.0 : -1.0) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1),
                             s = t * c;
                for (int k = 0; k < 3; k++) {
                    const double kp = a[k][p], kq = a[k][q];
                    a[k][p] = c * kp - s * kq;
                    a[k][q] = s * kp + c * kq;
                }
                for (int k = 0; k < 3; k++) {
                    const double pk = a[p][k], qk = a[q][k], vp = v[k][p], vq = v[k][q];
                    a[p][k] = c * pk - s * qk;
                    a[q][k] = s * pk + c * qk;
                    v[k][p] = c * vp - s * vq;
                    v[k][q] = s * vp + c * vq;
                }
            }
    const double largest = fmax(fabs(a[0][0]), fmax(fabs(a[1][1]), fabs(a[2][2])));
    for (int k = 0; k < 3; k++) x[k] = 0;
    for (int n = 0; n < 3; n++) {
        if (!(fabs(a[n][n]) > 1e-12 * largest)) continue;
        const double along = (v[0][n] * right[0] + v[1][n] * right[1] + v[2][n] * right[2]) / a[n][n];
        for (int k = 0; k < 3; k++) x[k] += along * v[k][n];
    }
}

static __device__ __forceinline__ bool has_no_cell(const gpu_call &call, int s)
{
    for (int k = 0; k < 9 && call.cells; k++)
        if (call.cells[(size_t)s * 9 + k] != 0) return false;
    return true;
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
    double sum[6] = {0, 0, 0, 0, 0, 0};
    for (int i = threadIdx.x; i < system.n; i += SYSTEM_THREADS)
        for (int c = 0; c < 3; c++) {
            sum[c] += f[(size_t)i * 3 + c];
            sum[3 + c] += r[(size_t)i * 3 + c];
        }
    sum_block<SYSTEM_THREADS>(sum);
    orb_gpu_system result = {};
    for (int c = 0; c < 3; c++) {
        result.mean_force[c] = sum[c] / max(system.n, 1);
        result.center[c] = sum[3 + c] / max(system.n, 1);
    }
    if (has_no_cell(call, s)) {
        double of[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0}; // torque; xx yy zz yz xz xy
        for (int i = threadIdx.x; i < system.n; i += SYSTEM_THREADS) {
            double x[3], g[3];
            for (int c = 0; c < 3; c++) {
                x[c] = r[(size_t)i * 3 + c] - result.center[c];
                g[c] = f[(size_t)i * 3 + c] - result.mean_force[c];
            }
            for (int c = 0; c < 3; c++) {
                const int a = (c + 1) % 3, b = (c + 2) % 3;
                of[c] += x[a] * g[b] - x[b] * g[a];
                of[3 + c] += x[c] * x[c];
                of[6 + c] += x[a] * x[b];
            }
        }
        sum_block<SYSTEM_THREADS>(of);
        const double all = of[3] + of[4] + of[5], minus[3] = {-of[0], -of[1], -of[2]};
        double m[3][3] = {{of[3] - all, of[8], of[7]}, {of[8], of[4] - all, of[6]}, {of[7], of[6], of[5] - all}};
        solve_symmetric(m, minus, result.torque);
    }
    if (threadIdx.x == 0) step.system[s] = result;
}

// Forces in eV/Å: a warp for each atom, which moves it in dynamics.
static __global__ void __launch_bounds__(128) orb_force_kernel(const __grid_constant__ orb_gpu_step step, int moves)
{
    wait_for_previous();
    let_next_start();
    const gpu_step &gpu = step.gpu;
    const int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= gpu.call->n_atoms) return;
    const gpu_call &call = *gpu.call;
    const moving_atom atom(gpu.motion, moves ? i : INT32_MAX, gpu.motion.place + 1);
    const int system_of = call.n_systems == 1 ? 0 : gpu.neighbors.system_of[i];
    const orb_gpu_system &system = step.system[system_of];
    const int c = min(lane, 2), a = (c + 1) % 3, b = (c + 2) % 3;
    const double *r = call.positions + (size_t)i * 3;
    // F += r × mu
    const double turned = (r[a] - system.center[a]) * system.torque[b] - (r[b] - system.center[b]) * system.torque[a];
    double force = (step.raw_force[(size_t)i * 3 + c] - system.mean_force[c] + turned) * step.force_scale + step.force_mean;
    if (step.repulsion_table) force += step.repulsion[i].force[c];
    if (gpu.report->flags) force = nan("");
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
    double sums[7] = {0, 0, 0, 0, 0, 0, 0}; // of offsets and repulsion
    for (int i = threadIdx.x; i < system.n; i += SYSTEM_THREADS) {
        sums[6] += step.gpu.neighbors.offset[step.gpu.neighbors.species[system.first + i]];
        if (!step.repulsion_table) continue;
        const orb_gpu_repulsion &repulsion = step.repulsion[system.first + i];
        sums[6] += repulsion.energy;
        for (int k = 0; k < 6; k++) sums[k] += repulsion.stress[k];
    }
    sum_block<SYSTEM_THREADS>(sums);
    wait_for_previous();
    let_next_start();
    if (warp == 6) {
        const double y = dot_row(hidden, step.energy.weight, lane) + step.energy.bias[0];
        if (lane == 0 && call.energies) call.energies[s] = (y * step.energy_scale + step.energy_mean) * system.n + sums[6];
    } else if (warp < 6 && step.has_stress) {
        const double y =
            dot_row(hidden + ORB_GPU_LATENT, step.stress.weight + warp * ORB_GPU_LATENT, lane) + step.stress.bias[warp];
        const bool periodic = system.wrapped[0] && system.wrapped[1] && system.wrapped[2];
        const double *h = system.cell, volume = h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) +
                                                h[2] * (h[3] * h[7] - h[4] * h[6]);
        double own = 0;
        for (int k = 0; k < 6; k++) own = k == warp ? sums[k] : own;
        if (lane == 0) stress[warp] = periodic ? y * step.stress_scale[warp] + step.stress_mean[warp] + own / volume : nan("");
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
