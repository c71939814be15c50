// SPDX-License-Identifier: MIT
// painn_cuda_motion.cu: velocity Verlet and BAOAB on the GPU, in float64, a thread an atom; the formulas and the noise
// of src/atoms/dynamics.c.
//
//   B  v += dt/2 F/m     A  x += dt v (NVE), x += dt/2 v (Langevin)     O  v = c v + sqrt((1 − c²) k_B T/m) ξ
//   advance: B A, or B A O A.   finish: B.
#include "painn_cuda_device.cuh"
#include "painn_cuda_motion.h"

// Value `index` of a stream of normal deviates: Philox 4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405).
static __device__ double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const double first = (double)((((uint64_t)c0 << 32) | c1) >> 11) * 0x1p-53,
                 second = (double)((((uint64_t)c2 << 32) | c3) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(1.0 - first)) * cos(2.0 * 3.14159265358979323846 * second);
}

static __global__ void __launch_bounds__(128) advance_kernel(const __grid_constant__ painn_cuda_motion motion, int unused)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t step = motion.step[0];
    if (i == 0 && step == motion.step[1]) motion.times[0] = gpu_timer();
    if (i >= motion.n_atoms) return;
    const double scale = motion.inverse_mass[i];
    if (scale == 0.0) return;
    const double kick = 0.5 * motion.timestep_fs * scale, drift = motion.langevin ? 0.5 * motion.timestep_fs : motion.timestep_fs;
    const double deviation = sqrt(motion.noise * scale);
    double before = 0, after = 0;
    for (int c = 0; c < 3; c++) {
        const size_t k = (size_t)i * 3 + c;
        double v = motion.velocities[k] + kick * motion.forces[k], x = motion.positions[k] + drift * v;
        if (motion.langevin) {
            before += v * v;
            v = motion.keep * v + deviation * random_normal(motion.seed, k, (uint64_t)step);
            after += v * v;
            x += drift * v;
        }
        motion.velocities[k] = v;
        motion.positions[k] = x;
    }
    if (motion.langevin) motion.heat[i] += 0.5 * (after - before) / scale;
}

static __global__ void __launch_bounds__(128) finish_kernel(const __grid_constant__ painn_cuda_motion motion, int unused)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < motion.n_atoms) {
        const double kick = 0.5 * motion.timestep_fs * motion.inverse_mass[i];
        if (kick != 0.0)
            for (int c = 0; c < 3; c++) motion.velocities[(size_t)i * 3 + c] += kick * motion.forces[(size_t)i * 3 + c];
    }
    if (i == 0) {
        const painn_cuda_report report = *motion.report;
        if (report.flags) {
            motion.trouble->flags |= report.flags;
            motion.trouble->atom = report.atom;
            motion.trouble->other = report.other;
            if (report.longest_row > motion.trouble->longest_row) motion.trouble->longest_row = report.longest_row;
        }
        motion.times[++motion.step[0] - motion.step[1]] = gpu_timer();
    }
}

int painn_cuda_launch_advance(const painn_cuda_motion *motion, void *stream)
{
    return launch(advance_kernel, (motion->n_atoms + 127) / 128, 128, 0, 1, 0, stream, *motion, 0);
}

int painn_cuda_launch_finish(const painn_cuda_motion *motion, void *stream)
{
    return launch(finish_kernel, (motion->n_atoms + 127) / 128, 128, 0, 1, 0, stream, *motion, 0);
}
