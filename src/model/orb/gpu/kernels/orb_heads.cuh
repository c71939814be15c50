/* SPDX-License-Identifier: MIT */
/* orb_heads.cuh: what the heads' kernels compute of a system: what is removed from direct forces, energy and stress from the heads' last layers. */
#ifndef ORB_HEADS_CUH
#define ORB_HEADS_CUH

#include "gpu/evaluator/system_sums.cuh"
#include "model/orb/gpu/orb_gpu.h"

static __device__ __forceinline__ bool has_no_cell(const gpu_call &call, int s)
{
    for (int k = 0; k < 9 && call.cells; k++)
        if (call.cells[(size_t)s * 9 + k] != 0) return false;
    return true;
}

/* The μ whose forces r × μ cancel the torque τ of all forces: A μ = τ with A = Σ (r² I − r rᵀ), from the adjugate of A. The eigenvalues of atoms on a line
 * are m, m and 0, with 2 m the trace; then μ is the shortest solution, A τ / m². `squares`: Σ xx, yy, zz, yz, xz, xy. */
static __device__ __forceinline__ void solve_torque(const double *squares, const double *torque, double *mu)
{
    const double a = squares[1] + squares[2], b = squares[0] + squares[2], c = squares[0] + squares[1], yz = -squares[3],
                 xz = -squares[4], xy = -squares[5];
    const double of_a = b * c - yz * yz, of_b = a * c - xz * xz, of_c = a * b - xy * xy, of_xy = yz * xz - xy * c,
                 of_xz = xy * yz - xz * b, of_yz = xy * xz - yz * a;
    const double det = a * of_a + xy * of_xy + xz * of_xz, m = 0.5 * (a + b + c);
    const bool spatial = det > 1e-12 * m * (of_a + of_b + of_c); // the smallest eigenvalue is above 1e-12 of the largest
    const double scale = spatial ? 1 / det : m > 0 ? 1 / (m * m) : 0;
    const double row[3][3] = {{spatial ? of_a : a, spatial ? of_xy : xy, spatial ? of_xz : xz},
                              {spatial ? of_xy : xy, spatial ? of_b : b, spatial ? of_yz : yz},
                              {spatial ? of_xz : xz, spatial ? of_yz : yz, spatial ? of_c : c}};
    for (int k = 0; k < 3; k++) mu[k] = scale * (row[k][0] * torque[0] + row[k][1] * torque[1] + row[k][2] * torque[2]);
}

/* Mean force and, without a cell, the rotation that cancels the net torque, of n atoms, by a block; every thread has the result. position(i, x) and
 * force(i, f) give those of atom i. */
template <int THREADS, class Position, class Force>
static __device__ __forceinline__ orb_gpu_system balance_system(int n, bool turns, const Position &position, const Force &force)
{
    double sum[6] = {0, 0, 0, 0, 0, 0};
    for (int i = threadIdx.x; i < n; i += THREADS) {
        double r[3], f[3];
        position(i, r), force(i, f);
        for (int c = 0; c < 3; c++) sum[c] += f[c], sum[3 + c] += r[c];
    }
    sum_block<THREADS>(sum);
    orb_gpu_system result = {};
    for (int c = 0; c < 3; c++) {
        result.mean_force[c] = sum[c] / max(n, 1);
        result.center[c] = sum[3 + c] / max(n, 1);
    }
    if (!turns) return result;
    double of[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0}; // torque; xx yy zz yz xz xy
    for (int i = threadIdx.x; i < n; i += THREADS) {
        double x[3], g[3];
        position(i, x), force(i, g);
        for (int c = 0; c < 3; c++) x[c] -= result.center[c], g[c] -= result.mean_force[c];
        for (int c = 0; c < 3; c++) {
            const int a = (c + 1) % 3, b = (c + 2) % 3;
            of[c] += x[a] * g[b] - x[b] * g[a];
            of[3 + c] += x[c] * x[c];
            of[6 + c] += x[a] * x[b];
        }
    }
    sum_block<THREADS>(of);
    solve_torque(of + 3, of, result.torque);
    return result;
}

/* Component c of the force on atom i, eV/Å, from the head's output. */
static __device__ __forceinline__ double direct_force(const orb_gpu_step &step, const gpu_call &call,
                                                      const orb_gpu_system &system, int i, int c, double raw)
{
    const int a = (c + 1) % 3, b = (c + 2) % 3;
    const double *r = call.positions + (size_t)i * 3;
    const double turned = (r[a] - system.center[a]) * system.torque[b] - (r[b] - system.center[b]) * system.torque[a];
    double force = (raw - system.mean_force[c] + turned) * step.force_scale + step.force_mean;
    if (step.repulsion_table) force += step.repulsion[i].force[c];
    return step.gpu.report->flags ? nan("") : force;
}

/* Offsets of the elements' energies and repulsion of a system, by a block: stress times the volume, energy. Every thread has the sums. */
template <int THREADS>
static __device__ __forceinline__ void sum_offsets(const orb_gpu_step &step, const gpu_system &system, double (&sums)[7])
{
    for (int i = threadIdx.x; i < system.n; i += THREADS) {
        sums[6] += step.gpu.neighbors.offset[step.gpu.neighbors.species[system.first + i]];
        if (!step.repulsion_table) continue;
        const orb_gpu_repulsion &repulsion = step.repulsion[system.first + i];
        sums[6] += repulsion.energy;
        for (int k = 0; k < 6; k++) sums[k] += repulsion.stress[k];
    }
    sum_block<THREADS>(sums);
}

static __device__ __forceinline__ double energy_of(const orb_gpu_step &step, const gpu_system &system, double y, double offsets)
{
    return (y * step.energy_scale + step.energy_mean) * system.n + offsets;
}
/* Component k, xx yy zz yz xz xy, eV/Å³; NaN without three periodic axes. `repulsion`: times the volume. */
static __device__ __forceinline__ double direct_stress(const orb_gpu_step &step, const gpu_system &system, int k, double y,
                                                       double repulsion)
{
    const bool periodic = system.wrapped[0] && system.wrapped[1] && system.wrapped[2];
    const double *h = system.cell, volume = h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) +
                                            h[2] * (h[3] * h[7] - h[4] * h[6]);
    return periodic ? y * step.stress_scale[k] + step.stress_mean[k] + repulsion / fabs(volume) : nan("");
}

#endif
