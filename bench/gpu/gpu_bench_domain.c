// SPDX-License-Identifier: MIT
// gpu_bench_domain.c: what a domain of a divided system costs on one GPU beside a whole system of as many atoms, and where.
//
// PaiNN, 128 features, 3 layers, and silicon, or ANI-2x and water; untrained. whole: a periodic system. hooks: the same with halo hooks
// that do nothing, so that a step of PaiNN is no graph. domain: a quarter of a system of four times the size with ghosts on four sides, and the
// same hooks; PaiNN's ghosts have no features, so its results mean nothing. One JSON object a case: device and wall time of a call, and its
// stages. Usage: gpu_bench_domain [painn|ani [ATOMS [SKIN]]]: atoms that are owned, Å.
#include <math.h>

#include "timing.h"

enum { CALLS = 30 };

static mlff_status no_rows(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                           void *stream)
{
    (void)context, (void)layer, (void)arrays, (void)n_arrays, (void)location, (void)stream;
    return MLFF_OK;
}

// The quarter of the system at the origin of its first two axes, with ghosts within `reach`, Å, of its planes.
static int cut(const mlff_system *system, double reach, mlff_batch *batch)
{
    int32_t *species = need((size_t)system->n_atoms, sizeof *species);
    double *positions = need(3 * (size_t)system->n_atoms, sizeof *positions);
    unsigned char *owned = need((size_t)system->n_atoms, 1);
    int n = 0;
    for (int ghosts = 0; ghosts < 2; ghosts++)
        for (int i = 0; i < system->n_atoms; i++) {
            double *to = positions + 3 * (size_t)n;
            bool own = true, near = true;
            memcpy(to, system->positions + 3 * (size_t)i, 3 * sizeof *to);
            for (int a = 0; a < 2; a++) {
                const double length = system->cell[4 * a], half = 0.5 * length;
                to[a] -= length * floor(to[a] / length);
                own = own && to[a] < half;
                near = near && (to[a] < half + reach || to[a] > length - reach);
                if (to[a] > half + reach) to[a] -= length;
            }
            if (ghosts ? own || !near : !own) continue;
            species[n] = system->species[i];
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
    const char *const name = argc > 1 ? argv[1] : "painn", *const system = strcmp(name, "ani") == 0 ? "water" : "silicon";
    const int n_atoms = argc > 2 ? atoi(argv[2]) : 100000;
    const double skin = argc > 3 ? atof(argv[3]) : 1.2; // of mlff md on GPUs
    const device_plugin *gpu;
    mlff_model *model;
    mlff_model_info info;
    mlff_system *one, *four;
    mlff_batch whole, part;
    int32_t first[2], first_of_part[2] = {0, 0};
    must(mlff_model_create(name, NULL, &model), "model");
    mlff_model_info_get(model, &info);
    must(device_plugin_get(&gpu), "plugin");
    must(mlff_system_build(system, n_atoms, 0, &one), "system");
    must(mlff_system_build(system, 4 * n_atoms, 0, &four), "system");
    must(mlff_system_perturb(one, 300.0, 7), "system");
    must(mlff_system_perturb(four, 300.0, 7), "system");
    mlff_batch_from_system(one, first, &whole);
    mlff_batch_from_system(four, first_of_part, &part);
    first_of_part[1] = cut(four, info.cutoff_angstrom + skin, &part);
    part.first_atom = first_of_part;
    static const unsigned char periodic[3] = {0, 0, 1};
    part.periodic = periodic;
    run(gpu, model, "whole", &whole, false);
    run(gpu, model, "hooks", &whole, true);
    run(gpu, model, "domain", &part, true);
    mlff_system_destroy(one);
    mlff_system_destroy(four);
    mlff_model_destroy(model);
    return 0;
}
