/* SPDX-License-Identifier: MIT */
/* gpu_support.h: what tests of a GPU share, a real one or the emulated one that MLFF_CUDA_PLUGIN names. */
#ifndef GPU_SUPPORT_H
#define GPU_SUPPORT_H

#include "device/device.h"
#include "support.h"

/* 1 if there is a GPU; says once what is missing else. */
SUPPORT int have_gpu(void)
{
    SUPPORT int said;
    if (mlff_device_count(MLFF_CUDA) > 0) return 1;
    if (!said++) printf("skipped: %s\n", mlff_device_problem());
    return 0;
}

/* 1 on the emulated GPU, which is a thousand times as slow: tests leave out what they check of another precision already. */
SUPPORT int gpu_is_emulated(void)
{
    mlff_device_info info = {.struct_size = sizeof info};
    return mlff_device_info_get((mlff_device){MLFF_CUDA, 0}, &info) == MLFF_OK && strstr(info.name, "emulated") != NULL;
}

SUPPORT double rms(const double *x, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += x[k] * x[k];
    return sqrt(sum / (double)n);
}

/* float32 on the GPU against float64: forces (rms) to `tolerance` of the rms force, virials to five times that of the largest,
 * energies to 1e-6 of the sum of their sizes. Below the floors (eV/Å, eV) an rms force or a largest virial is rounding itself. */
SUPPORT void gpu_compare(const char *what, const support_results *got, const support_results *expected, double tolerance,
                         double force_floor, double virial_floor)
{
    size_t n = (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    double size = 0, difference2 = 0;
    for (size_t i = 0; i < n; i++) size += fabs(expected->r.atom_energies[i]);
    support_difference(got->r.forces, expected->r.forces, 3 * n); // no NaN
    for (size_t i = 0; i < 3 * n; i++) difference2 += pow(got->r.forces[i] - expected->r.forces[i], 2);
    double df = sqrt(difference2 / (3.0 * (double)n)), force = fmax(rms(expected->r.forces, 3 * n), force_floor);
    double de = support_difference(got->r.energies, expected->r.energies, s),
           da = support_difference(got->r.atom_energies, expected->r.atom_energies, n);
    double dv = support_difference(got->r.virials, expected->r.virials, 9 * s),
           virial = fmax(support_largest(expected->r.virials, 9 * s), virial_floor);
    if (df > tolerance * force || de > 1e-6 * size + 1e-6 || da > 1e-6 * size + 1e-6 || dv > 5 * tolerance * virial)
        fail_msg("%s: forces off by %.2e of %.2e rms, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e of %.2e",
                 what, df, force, de, size, da, dv, virial);
    for (size_t i = 0; i < 6 * s; i++)
        if (isnan(got->r.stresses[i]) != isnan(expected->r.stresses[i]))
            fail_msg("%s: stress %zu is %g, %g expected", what, i, got->r.stresses[i], expected->r.stresses[i]);
}

/* Memory on the GPU with a copy of `from`, if any. */
SUPPORT void *there(const void *from, size_t bytes)
{
    void *memory;
    mlff_device device = {MLFF_CUDA, 0};
    assert_ok(mlff_device_allocate(device, bytes, &memory));
    if (from) assert_ok(mlff_device_copy(device, memory, from, bytes));
    return memory;
}

#endif
