/* SPDX-License-Identifier: MIT */
/* painn_core.cuh: the model's core repulsion (atoms/zbl.h) on the GPU. It depends on the neighbor list alone, so that kernels compute it
 * before the gradients and energies of the layers are there. Bonded pairs are often within the largest reach, and finding that they do
 * not repel takes three loads one after another. */
#ifndef PAINN_CORE_CUH
#define PAINN_CORE_CUH

#include "painn_gpu.h"

/* Half of V and of dV/dd at distance d of two elements, in model units. */
static __device__ __noinline__ float2 core_of_pair(const painn_gpu_step &step, int z1, int z2, float d)
{
    const float weight[4] = {0.18175f, 0.50986f, 0.28022f, 0.02817f}, rate[4] = {3.19980f, 0.94229f, 0.40290f, 0.20162f};
    const float end = step.core_radius[z1] + step.core_radius[z2], t = d / end, rest = 1.0f - t;
    if (!(rest > 0.0f)) return make_float2(0, 0);
    const float inverse = (powf((float)z1, 0.23f) + powf((float)z2, 0.23f)) / step.core_screening;
    const float charge = 0.5f * step.core_coulomb * (float)z1 * (float)z2 / d;
    float phi = 0, slope = 0;
    for (int k = 0; k < 4; k++) {
        const float term = weight[k] * expf(-rate[k] * inverse * d);
        phi += term;
        slope -= rate[k] * inverse * term;
    }
    const float s = rest * rest * rest * (1.0f + 3.0f * t + 6.0f * t * t), s_slope = -30.0f * t * t * rest * rest / end;
    return make_float2(charge * phi * s, charge * ((slope - phi / d) * s + phi * s_slope));
}

/* dE/dd of the repulsion of a pair at distance d that begins at an owned atom, 0 where it has none. */
static __device__ __forceinline__ float core_slope(const painn_gpu_step &step, int from, int species, float d)
{
    if (!(d < step.core_reach) || !step.gpu.neighbors.owned[from]) return 0;
    return core_of_pair(step, step.gpu.neighbors.species[from], species, d).y;
}

/* Adds a pair's repulsion to its gradient; u: its direction and distance. */
static __device__ __forceinline__ float3 add_core(float3 g, float slope, float4 u)
{
    return make_float3(fmaf(slope, u.x, g.x), fmaf(slope, u.y, g.y), fmaf(slope, u.z, g.z));
}

/* The repulsion in the energy of an owned atom, model units: that of every `stride`th pair from `first` on. */
static __device__ __forceinline__ float core_of_atom(const painn_gpu_step &step, int i, int first, int stride)
{
    const gpu_edge *const row = step.gpu.neighbors.edges + (size_t)i * step.gpu.neighbors.row_capacity;
    const int n = step.gpu.neighbors.row_length[i], z = step.gpu.neighbors.species[i];
    float sum = 0;
    for (int k = first; k < n; k += stride)
        if (row[k].d < step.core_reach) sum += core_of_pair(step, z, row[k].species, row[k].d).x;
    return sum;
}

/* The repulsion of atoms that a thread sums in system s (gpu/evaluator/system_sums.cuh). After fused layers it is computed here, that of the
 * first atom before it is needed; else it is stored. */
struct core_ahead {
    int atom;
    float energy;
    bool stored;
    __device__ __forceinline__ core_ahead(const painn_gpu_step &step, const gpu_call &call, int s, bool sums, bool is_stored)
        : atom(-1), energy(0), stored(is_stored)
    {
        if (!step.core_radius || !sums || stored || s >= call.n_systems) return;
        const gpu_system &system = step.gpu.neighbors.systems[s];
        if ((int)threadIdx.x >= system.n) return;
        atom = system.first + threadIdx.x;
        energy = core_of_atom(step, atom, 0, 1);
    }
    __device__ __forceinline__ float of(const painn_gpu_step &step, int i) const
    {
        return stored ? step.core_energy[i] : i == atom ? energy : core_of_atom(step, i, 0, 1);
    }
};

#endif
