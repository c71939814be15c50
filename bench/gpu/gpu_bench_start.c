// SPDX-License-Identifier: MIT
// gpu_bench_start.c: what the first call on a GPU is made of: opening the plugin, the CUDA context, an evaluator of an untrained model
// (its kernels' code, constants packed and uploaded), the first call (arrays, capture, instantiation of the graph, code of its kernels)
// and the next one. One JSON object a line. Usage: gpu_bench_start [--architecture NAME] [--features F --layers L] (of PaiNN)
#include "timing.h"

static int64_t last;

static double lap_ms(void)
{
    const int64_t now = mlff_clock_ns();
    const double ms = 1e-6 * (double)(now - last);
    last = mlff_clock_ns();
    return ms;
}

int main(int argc, char **argv)
{
    const char *architecture = "painn", *features = "128", *layers = "3";
    for (int k = 1; k + 1 < argc; k++) {
        if (strcmp(argv[k], "--architecture") == 0)
            architecture = argv[++k];
        else if (strcmp(argv[k], "--features") == 0)
            features = argv[++k];
        else if (strcmp(argv[k], "--layers") == 0)
            layers = argv[++k];
    }
    const int painn = strcmp(architecture, "painn") == 0;
    const mlff_setting untrained[] = {{"n_features", features}, {"n_layers", layers}, {0}};
    const device_plugin *gpu;
    mlff_model *model;
    mlff_system *system;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    must(mlff_model_create(architecture, painn ? untrained : NULL, &model), "model");
    must(mlff_system_build("benzene", 0, 0, &system), "benzene");
    options.device = (mlff_device){MLFF_CUDA, 0};
    const mlff_batch batch = {.n_systems = 1,
                              .first_atom = (int32_t[]){0, system->n_atoms},
                              .species = system->species,
                              .positions = system->positions};
    double energy;
    mlff_results results = {.energies = &energy, .forces = need(3 * (size_t)system->n_atoms, sizeof(double))};
    last = mlff_clock_ns();
    must(device_plugin_get(&gpu), "plugin");
    const double opened = lap_ms();
    must(gpu->warm_up(0), "context");
    const double context = lap_ms();
    gpu_evaluator *e = create_evaluator(gpu, model, &options);
    const double created = lap_ms();
    must(gpu->compute(e, &batch, &results), "compute");
    const double first = lap_ms();
    must(gpu->compute(e, &batch, &results), "compute");
    const double second = lap_ms();
    printf(
        "{\"case\": \"start of %s\", \"plugin_ms\": %.2f, \"context_ms\": %.2f, \"evaluator_ms\": %.2f, \"first_call_ms\": %.2f, "
        "\"second_call_ms\": %.3f, \"all_ms\": %.1f}\n",
        architecture, opened, context, created, first, second, opened + context + created + first);
    gpu->destroy(e);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
    return 0;
}
