// SPDX-License-Identifier: MIT
// systems.cu: moves systems with their thermostats and barostats, in float64, a block for each system; the steps are those of
// atoms/dynamics/dynamics.c, the arithmetic of the baths is bath.h. Threads hold components of atoms, thread 0 computes the bath. Sums have
// a fixed order, and each half of a step reads all it needs from memory, so that a trajectory has the same bits wherever its graphs begin.
#include "systems.h"

#include "gpu/gpu_stage.cuh"

enum { MOST_THREADS = 512 };

// Computed by thread 0 and read by the other threads of the block.
struct shared_bath {
    dynamics_bath state;
    double part[MOST_THREADS / 32][3];
    double keep[3], gain[3], up[3], along[3]; // factors of velocities, forces over masses, positions; velocities that move them
};

// One system, as its block sees it. Components k of atoms: 3 i + c.
struct moving_system {
    const gpu_systems &all;
    shared_bath &bath;
    const mlff_dynamics_options &options;
    int s, n;
    double *x, *v, *cell;
    const double *force, *inverse_mass, *virials;
    double n_degrees, dt;

    __device__ moving_system(const gpu_systems &systems, shared_bath &shared)
        : all(systems), bath(shared), options(systems.options[blockIdx.x]), s(blockIdx.x)
    {
        const int first = all.first_atom[s];
        n = 3 * (all.first_atom[s + 1] - first);
        x = all.positions + (size_t)3 * first;
        v = all.velocities + (size_t)3 * first;
        force = all.forces + (size_t)3 * first;
        inverse_mass = all.inverse_mass + first;
        cell = all.cells + (size_t)9 * s;
        virials = all.virials + (size_t)9 * s;
        n_degrees = all.n_degrees[s];
        dt = options.timestep_fs;
    }
    // f(k) for this thread's components.
    template <class F> __device__ __forceinline__ void each(F f) const
    {
        for (int k = threadIdx.x; k < n; k += blockDim.x) f(k);
    }
    // A sum of f(k) for each axis; every thread has it.
    template <class F> __device__ void sum(double (&total)[3], F f) const
    {
        for (int c = 0; c < 3; c++) total[c] = 0;
        each([&](int k) {
            const double value = f(k);
            for (int c = 0; c < 3; c++) total[c] += k % 3 == c ? value : 0.0; // no dynamic index into registers
        });
        for (int c = 0; c < 3; c++) total[c] = sum_warp(total[c]);
        if (blockDim.x == 32) return;
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            for (int c = 0; c < 3; c++) bath.part[threadIdx.x / 32][c] = total[c];
        __syncthreads();
        for (int c = 0; c < 3; c++) {
            total[c] = 0;
            for (int w = 0; w < (int)blockDim.x / 32; w++) total[c] += bath.part[w][c];
        }
    }
    __device__ void twice_kinetic(double (&total)[3]) const
    {
        sum(total, [&](int k) {
            const double inverse = inverse_mass[k / 3];
            return inverse != 0 ? v[k] * v[k] / inverse : 0.0;
        });
    }
    // f() by thread 0, whose results the others read after it.
    template <class F> __device__ __forceinline__ void once(F f) const
    {
        __syncthreads(); // all have read the last ones
        if (threadIdx.x == 0) f();
        __syncthreads();
    }
    __device__ void axes(double (&diagonal)[3]) const
    {
        for (int c = 0; c < 3; c++) diagonal[c] = virials[4 * c];
    }
    __device__ void kick() const
    {
        each([&](int k) { v[k] = fma(0.5 * dt * inverse_mass[k / 3], force[k], v[k]); });
    }
    __device__ void scale_velocities() const
    {
        each([&](int k) { v[k] *= bath.keep[k % 3]; });
    }
    __device__ void strained_kick() const
    {
        once([&] { bath_strained_kick(&options, n_degrees, &bath.state, bath.keep, bath.gain); });
        each([&](int k) { v[k] = bath.keep[k % 3] * v[k] + bath.gain[k % 3] * inverse_mass[k / 3] * force[k]; });
    }
    __device__ void keep_all(double factor) const
    {
        bath.keep[0] = bath.keep[1] = bath.keep[2] = factor;
    }

    // ---- the end of a step

    __device__ void end(int64_t number, bath_deviates drawn) const
    {
        const int ensemble = options.ensemble;
        double twice[3], virial[3];
        if (ensemble == MLFF_MTK)
            strained_kick();
        else
            kick();
        if (ensemble == MLFF_NVE || ensemble == MLFF_LANGEVIN) return;
        twice_kinetic(twice);
        const double all_twice = twice[0] + twice[1] + twice[2], kelvin = bath_temperature(&options, number);
        once([&] {
            dynamics_bath *state = &bath.state;
            if (bath_has_pressure(ensemble)) axes(virial);
            if (ensemble == MLFF_SCR) bath_count_strain(virial, state);
            if (ensemble == MLFF_MTK) bath_push_strain_rate(&options, n_degrees, kelvin, bath_volume(cell), twice, virial, state);
            keep_all(bath_has_chains(ensemble) ? bath_move_chains(&options, n_degrees, kelvin, all_twice, state)
                                               : bath_rescale(&options, number, drawn, 0.5 * all_twice, state));
            if (options.ramp_steps > 0) bath_end_step(&options, n_degrees, bath_volume(cell), number, state);
        });
        scale_velocities();
    }

    // ---- the beginning of a step

    __device__ void chains(double kelvin, double (&twice)[3]) const
    {
        twice_kinetic(twice);
        once([&] { keep_all(bath_move_chains(&options, n_degrees, kelvin, twice[0] + twice[1] + twice[2], &bath.state)); });
        scale_velocities();
        for (int c = 0; c < 3; c++) twice[c] *= bath.keep[c] * bath.keep[c];
    }
    __device__ void strained(double kelvin, const double (&twice)[3]) const
    {
        once([&] {
            double virial[3];
            axes(virial);
            bath_push_strain_rate(&options, n_degrees, kelvin, bath_volume(cell), twice, virial, &bath.state);
        });
        strained_kick();
        once([&] {
            bath_strained_drift(&options, &bath.state, bath.up, bath.along);
            for (int k = 0; k < 9; k++) cell[k] *= bath.up[k % 3];
        });
        each([&](int k) { x[k] = bath.up[k % 3] * x[k] + bath.along[k % 3] * v[k]; });
    }
    __device__ void rescaled_cell(int64_t number) const
    {
        double twice[3];
        twice_kinetic(twice);
        once([&] {
            double virial[3];
            axes(virial);
            bath_choose_strain(&options, number, bath_volume(cell), twice, virial, &bath.state);
            for (int c = 0; c < 3; c++) bath.up[c] = exp(bath.state.strain[c]), bath.keep[c] = 1 / bath.up[c];
        });
        kick();
        twice_kinetic(twice);
        once([&] {
            const double before = bath_volume(cell);
            for (int k = 0; k < 9; k++) cell[k] *= bath.up[k % 3];
            for (int c = 0; c < 3; c++) bath.state.heat += 0.5 * twice[c] * (bath.keep[c] * bath.keep[c] - 1);
            bath.state.heat += options.pressure * (bath_volume(cell) - before);
        });
        scale_velocities();
        each([&](int k) { x[k] = fma(dt, v[k], bath.up[k % 3] * x[k]); });
    }
    __device__ void langevin(int64_t number) const
    {
        double keep, noise, gain[3];
        bath_langevin(&options, number, &keep, &noise);
        kick();
        sum(gain, [&](int k) {
            const double inverse = inverse_mass[k / 3];
            if (inverse == 0) return 0.0;
            const double before = v[k], after = keep * before + sqrt(noise * inverse) *
                                                                    random_normal(options.seed, (uint64_t)k, (uint64_t)number);
            x[k] = fma(0.5 * dt, after, fma(0.5 * dt, before, x[k]));
            v[k] = after;
            return 0.5 * (after * after - before * before) / inverse;
        });
        once([&] { bath.state.heat += gain[0] + gain[1] + gain[2]; });
    }
    __device__ void begin(int64_t number) const
    {
        const int ensemble = options.ensemble;
        const double kelvin = bath_temperature(&options, number);
        double twice[3];
        if (bath_has_chains(ensemble)) chains(kelvin, twice);
        if (ensemble == MLFF_LANGEVIN) return langevin(number);
        if (ensemble == MLFF_MTK) return strained(kelvin, twice);
        if (ensemble == MLFF_SCR) return rescaled_cell(number);
        kick();
        each([&](int k) { x[k] = fma(dt, v[k], x[k]); });
    }
};

static __device__ void note_report(const gpu_systems &all)
{
    const gpu_report report = *all.report;
    if (!report.flags) return;
    all.trouble->flags |= report.flags;
    all.trouble->atom = report.atom;
    all.trouble->other = report.other;
    if (report.longest_row > all.trouble->longest_row) all.trouble->longest_row = report.longest_row;
}

static __global__ void __launch_bounds__(MOST_THREADS)
    move_systems_kernel(const __grid_constant__ gpu_systems all, int ends, int begins)
{
    __shared__ shared_bath shared;
    const moving_system system(all, shared);
    const int64_t place = all.step[0] + all.place, number = all.first_step[system.s] + place;
    dynamics_bath *const bath = all.baths + system.s;
    bath_deviates drawn = {0, 0};
    // Random values do not depend on the forces.
    if (ends && threadIdx.x == 0 && bath_has_rescaling(system.options.ensemble))
        drawn = bath_draw(&system.options, system.n_degrees, number);
    wait_for_previous();
    let_next_start();
    if (threadIdx.x == 0) shared.state = *bath;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (ends) note_report(all);
        if (ends || place == all.step[1]) all.times[place - all.step[1] + ends] = gpu_timer();
    }
    if (ends) system.end(number, drawn);
    if (begins) system.begin(number + ends);
    __syncthreads();
    if (threadIdx.x == 0) *bath = shared.state;
}

int gpu_launch_systems(const gpu_systems *systems, int ends, int begins, int overlap, void *stream)
{
    return launch(move_systems_kernel, systems->n_systems, systems->n_threads, 0, 1, overlap, stream, *systems, ends, begins);
}
