/* SPDX-License-Identifier: MIT */
/* system_sums.cuh: sums over the atoms of a system, by one block, in a fixed order and in double precision. */
#ifndef GPU_SYSTEM_SUMS_CUH
#define GPU_SYSTEM_SUMS_CUH

#include "gpu/gpu_stage.cuh"

/* Tells the host about a result that is not finite. */
static __device__ __forceinline__ void note_overflow(const gpu_step &step, double result)
{
    if (!isfinite(result) && step.overflow) *(volatile int32_t *)step.overflow = 1;
}

/* Energy, and with forces virial and stress, of system s. energy(atom, own) returns the model's part of an atom's energy in eV and sets
 * its offset; the two are summed separately. A block has at most 1024 threads. Without `keep`: a dry run that warms the instruction
 * cache; results are discarded. */
template <class Energy>
static __device__ __forceinline__ void sum_system(const gpu_step &step, const gpu_call &call, int s, bool with_forces,
                                                  bool failed, const Energy &energy, bool keep = true)
{
    __shared__ double part[32][11], total[11];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const gpu_system &system = step.neighbors.systems[s];
    const int first = system.first, n = system.n, n_sums = call.want_virial && with_forces ? 11 : 2;
    double sum[11] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = first + threadIdx.x; i < first + n; i += blockDim.x) {
        double own = 0;
        const double raw = energy(i, own);
        if (call.atom_energies && keep) call.atom_energies[i] = raw + own;
        sum[0] += raw;
        sum[1] += own;
#pragma unroll
        for (int c = 2; c < 11; c++)
            if (c < n_sums) sum[c] += step.atom_virial[(size_t)i * 9 + c - 2];
    }
#pragma unroll
    for (int c = 0; c < 11; c++) {
        if (c >= n_sums) break;
        const double v = sum_warp(sum[c]);
        if (lane == 0) part[warp][c] = v;
    }
    __syncthreads();
    if ((int)threadIdx.x < n_sums) {
        double v = 0;
        for (int k = 0; k < (int)blockDim.x / 32; k++) v += part[k][threadIdx.x];
        total[threadIdx.x] = v;
        if (threadIdx.x >= 2 && call.virials && keep) call.virials[(size_t)s * 9 + threadIdx.x - 2] = v;
    }
    __syncthreads();
    if (threadIdx.x == 0 && keep) {
        const double all = failed ? nan("") : total[0] + total[1];
        if (call.energies) call.energies[s] = all;
        note_overflow(step, all);
    }
    if (threadIdx.x < 6 && n_sums == 11 && call.stresses && keep) {
        /* Voigt xx yy zz yz xz xy; NaN without three periodic axes. */
        const double *h = system.cell;
        double volume =
            h[0] * (h[4] * h[8] - h[5] * h[7]) - h[1] * (h[3] * h[8] - h[5] * h[6]) + h[2] * (h[3] * h[7] - h[4] * h[6]);
        if (!(system.wrapped[0] && system.wrapped[1] && system.wrapped[2])) volume = nan("");
        const int k = threadIdx.x, a = k < 3 ? k : k == 3 ? 1 : 0, b = k < 3 ? k : k == 5 ? 1 : 2;
        call.stresses[(size_t)s * 6 + k] = -0.5 * (total[2 + 3 * a + b] + total[2 + 3 * b + a]) / fabs(volume);
    }
}

/* Copies the report to the host, with the number of pairs, and clears it. By the first thread of one block. */
static __device__ __forceinline__ void publish_report(const gpu_step &step, const gpu_call &call, int n_pairs)
{
    if (threadIdx.x > 0) return;
    gpu_report report = *step.report, empty = {};
    report.n_pairs = n_pairs;
    *call.report = report;
    *step.report = empty;
}
static __device__ __forceinline__ void publish_report(const gpu_step &step, const gpu_call &call)
{
    if (threadIdx.x == 0) publish_report(step, call, take_pair_counts(step));
}

#endif
