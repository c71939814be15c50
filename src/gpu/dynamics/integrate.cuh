/* SPDX-License-Identifier: MIT */
/* integrate.cuh: velocity Verlet and BAOAB on the GPU, in float64, by the warp that has computed an atom's force; formulas and noise as in
 * src/atoms/dynamics/dynamics.c.
 *
 *   B  v += dt/2 F/m     A  x += dt v (NVE), x += dt/2 v (Langevin)     O  v = c v + sqrt((1 − c²) k_B T/m) ξ
 *   a step: B A, or B A O A; forces; B. The last B of a step and the beginning of the next are done together. */
#ifndef GPU_INTEGRATE_CUH
#define GPU_INTEGRATE_CUH

#include "base/random.h"
#include "gpu/gpu_stage.cuh"

// Component c of an atom, in lane c of a warp: values that do not depend on the force are read, and the noise generated, before the force
// is known. The order of operations is fixed, so that a trajectory has the same bits wherever its graphs begin.
struct moving_atom {
    const gpu_motion &motion;
    int64_t begun, number; // number of the chunk's first step; of the step that begins
    int i;
    bool moves;
    double inverse_mass, v, x, heat, kick, noise;

    // `place`: index in its graph of the step that begins.
    __device__ __forceinline__ moving_atom(const gpu_motion &m, int atom, int place)
        : motion(m), begun(0), number(0), i(atom), moves(false), inverse_mass(0), v(0), x(0), heat(0), kick(0), noise(0)
    {
        const int c = threadIdx.x % 32;
        if (i >= motion.n_atoms || c >= 3) return;
        begun = motion.step[1];
        number = motion.step[0] + place;
        inverse_mass = motion.inverse_mass[i];
        moves = inverse_mass != 0;
        v = motion.velocities[at()];
        x = motion.positions[at()];
        kick = 0.5 * motion.timestep_fs * inverse_mass;
        if (!moves || !motion.langevin) return;
        heat = motion.heat[i];
        noise = sqrt(motion.noise * inverse_mass) * random_normal(motion.seed, at(), (uint64_t)number);
    }
    __device__ __forceinline__ size_t at() const
    {
        return (size_t)i * 3 + threadIdx.x % 32;
    }
    // End of a step …
    __device__ __forceinline__ void finish(double force)
    {
        v = fma(kick, force, v);
    }
    // … and beginning of the next.
    __device__ __forceinline__ void advance(double force)
    {
        const double drift = motion.langevin ? 0.5 * motion.timestep_fs : motion.timestep_fs;
        v = fma(kick, force, v);
        x = fma(drift, v, x);
        if (!motion.langevin) return;
        const double before = v;
        v = fma(motion.keep, v, noise);
        x = fma(drift, v, x);
        const double gain = v * v - before * before;
        heat += 0.5 * (gain + __shfl_sync(~0u, gain, 1) + __shfl_sync(~0u, gain, 2)) / inverse_mass; // valid in the first lane
    }
    __device__ __forceinline__ void store(bool advanced) const
    {
        if (!moves) return;
        motion.velocities[at()] = v;
        if (!advanced) return;
        motion.positions[at()] = x;
        if (motion.langevin && threadIdx.x % 32 == 0) motion.heat[i] = heat;
    }
};

// Moves an atom whose force components are in the first three lanes: the end of a step and, except at the end of a graph, the beginning
// of the next. Without `keep`: a dry run that warms the instruction cache; results are discarded.
static __device__ __forceinline__ void move_atom(const gpu_step &step, moving_atom atom, double force, bool keep)
{
    const bool last = step.motion.place + 1 == step.motion.n_steps;
    atom.finish(force);
    if (!last) atom.advance(force);
    if (!keep) return;
    atom.store(!last);
    if (last || blockIdx.x > 0 || threadIdx.x > 0) return;
    take_pair_counts(step); // the report has those of the last step; its other fields are of all steps
    step.motion.times[atom.number - atom.begun] = gpu_timer();
}

#endif
