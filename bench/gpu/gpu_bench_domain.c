// SPDX-License-Identifier: MIT
// gpu_bench_domain.c: what a domain of a divided system costs on one GPU beside a whole system of as many atoms, and where.
//
// PaiNN, 128 features, 3 layers, silicon. whole: a periodic system. hooks: the same with halo hooks that do nothing, so that a step is no
// graph. domain: half of a system of twice the size with ghosts on both sides, and the same hooks; its ghosts have no features, so its
// results mean nothing. One JSON object a case: device and wall time of a call, and its stages.
// Usage: gpu_bench_domain [ATOMS]
#include <math.h>

#include "timing.h"

enum { CALLS = 30 };

static mlff_status no_rows(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                           void *stream)
{
    (void)context, (void)layer, (void)arrays, (void)n_arrays, (void)location, (void)stream;
    return MLFF_OK;
}

// Half of the system along its first axis, with ghosts within `reach`, Å, of both planes.
static int cut(const mlff_system *system, double reach, mlff_batch *batch)
{
    const double half = 0.5 * system->cell[0];
    int32_t *species = need((size_t)system->n_atoms, sizeof *species);
    double *positions = need(3 * (size_t)system->n_atoms, sizeof *positions);
    unsigned char *owned = need((size_t)system->n_atoms, 1);
    int n = 0;
    for (int ghosts = 0; ghosts < 2; ghosts++)
        for (int i = 0; i < system->n_atoms; i++) {
            const double *at = system->positions + 3 * (size_t)i, x = at[0] - system->cell[0] * floor(at[0] / system->cell[0]);
            const double back = x > system->cell[0] - reach ? x - system->cell[0] : x;
            const bool own = x < half, ghost = !own && (x < half + reach || back < 0);
            if (ghosts ? !ghost : !own) continue;
            species[n] = system->species[i];
            memcpy(positions + 3 * (size_t)n, at, 3 * sizeof *at);
            positions[3 * (size_t)n] = back < 0 && ghost ? back : x;
            owned[n++] = own;
        }
    batch->species = species;
    batch->positions = positions;
    batch->owned = owned;
    return n;
}

static void run(const device_plugin *gpu, const mlff_model *model, const char *name, const mlff_batch *batch, bool hooks)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    const mlff_halo halo = {no_rows, no_rows, NULL, NULL};
    const size_t n = (size_t)batch->first_atom[1];
    double energy, *forces = need(3 * n, sizeof *forces), p5;
    const mlff_results results = {.energies = &energy, .forces = forces};
    options.device = (mlff_device){MLFF_CUDA, 0};
    options.halo = hooks ? &halo : NULL;
    gpu_evaluator *e = create_evaluator(gpu, model, &options);
    const double host_ns = time_host(gpu, e, batch, &results, CALLS);
    printf("{\"case\": \"%s\", \"atoms\": %d, \"host_us\": %.1f, ", name, (int)n, host_ns / 1e3);
    print_stages(gpu, e, batch, &results, CALLS);
    mlff_batch on = *batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = to_device(gpu, batch->species, sizeof(int32_t) * n);
    on.positions = to_device(gpu, batch->positions, sizeof(double) * 3 * n);
    on.cells = to_device(gpu, batch->cells, sizeof(double) * 9);
    if (batch->owned) on.owned = to_device(gpu, batch->owned, n);
    must(gpu->stream_create(0, &on.stream), "stream");
    const mlff_results there = {.energies = to_device(gpu, NULL, sizeof(double)),
                                .forces = to_device(gpu, NULL, sizeof(double) * 3 * n),
                                .location = MLFF_DEVICE_MEMORY};
    const double device_ns = time_device(gpu, e, &on, &there, CALLS, &p5);
    must(gpu->stream_synchronize(0, on.stream), "wait");
    printf(", \"device_us\": %.1f, ", device_ns / 1e3);
    print_stages(gpu, e, &on, &there, CALLS);
    printf("}\n");
    fflush(stdout);
    gpu->destroy(e);
    free(forces);
}

int main(int argc, char **argv)
{
    const int n_atoms = argc > 1 ? atoi(argv[1]) : 100000;
    const device_plugin *gpu;
    mlff_model *model;
    mlff_system *one, *two;
    mlff_batch whole, part;
    int32_t first[2], first_of_part[2] = {0, 0};
    must(mlff_model_create("painn", NULL, &model), "model");
    must(device_plugin_get(&gpu), "plugin");
    must(mlff_system_build("silicon", n_atoms, 0, &one), "system");
    must(mlff_system_build("silicon", 2 * n_atoms, 0, &two), "system");
    must(mlff_system_perturb(one, 300.0, 7), "system");
    must(mlff_system_perturb(two, 300.0, 7), "system");
    mlff_batch_from_system(one, first, &whole);
    mlff_batch_from_system(two, first_of_part, &part);
    first_of_part[1] = cut(two, 5.5, &part);
    part.first_atom = first_of_part;
    static const unsigned char periodic[3] = {0, 1, 1};
    part.periodic = periodic;
    run(gpu, model, "whole", &whole, false);
    run(gpu, model, "hooks", &whole, true);
    run(gpu, model, "domain", &part, true);
    mlff_system_destroy(one);
    mlff_system_destroy(two);
    mlff_model_destroy(model);
    return 0;
}
