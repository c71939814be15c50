// SPDX-License-Identifier: MIT
// gpu_bench_soak.c: a long NVE run of a small molecule: steps a second, memory from beginning to end, buffers that grew, and the
// drift of the total energy, with its error, for comparison with the same run in float64 on the CPU. One JSON object.
//
//   gpu_bench_soak [--steps N] [--device cuda|cpu] [--precision float32|float64] [--model FILE] [--system NAME] [--timestep FS]
//
// The energy is read every N/200 steps. Drift is the slope of a straight line through it, per atom and ns; its error comes
// from the slopes of ten parts of the run. A published model (SchNetPack, kcal/mol) keeps a molecule together, an untrained
// one does not.
#include <math.h>

#include "timing.h"

enum { READINGS = 200, PARTS = 10 };

typedef struct plan {
    long steps;
    double timestep_fs;
    const char *device, *precision, *model, *system;
} plan;

typedef struct memory {
    mlff_device_memory device, process;
} memory;

static memory memory_now(mlff_device device)
{
    memory m;
    must(mlff_device_memory_get(device, &m.device), "soak");
    must(mlff_device_memory_get((mlff_device){.kind = MLFF_CPU}, &m.process), "soak");
    return m;
}

// Slope of y over x.
static double slope(const double *x, const double *y, int n)
{
    double mx = 0, my = 0, xx = 0, xy = 0;
    for (int k = 0; k < n; k++) mx += x[k] / n, my += y[k] / n;
    for (int k = 0; k < n; k++) xx += (x[k] - mx) * (x[k] - mx), xy += (x[k] - mx) * (y[k] - my);
    return xy / xx;
}

static mlff_model *load(const char *path)
{
    mlff_model *model;
    if (path && strstr(path, ".safetensors")) {
        must(mlff_model_load(path, &model), "soak");
    } else if (path) {
        mlff_import_options options = mlff_import_options_default();
        options.energy_unit = "kcal/mol";
        must(mlff_model_import(path, &options, &model), "soak");
    } else {
        must(mlff_model_create("painn", NULL, &model), "soak");
    }
    return model;
}

static void run(const plan *p)
{
    mlff_model *model = load(p->model);
    mlff_system *system;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_dynamics_options motion = mlff_dynamics_options_default();
    mlff_evaluator *evaluator;
    mlff_dynamics *dynamics;
    mlff_dynamics_state state;
    mlff_evaluator_info first, last;
    mlff_model_info about;
    mlff_model_info_get(model, &about);
    must(mlff_device_parse(p->device, &options.device), "soak");
    options.precision = strcmp(p->precision, "float64") == 0 ? MLFF_FLOAT64 : MLFF_FLOAT32;
    options.n_threads = 1;
    motion.ensemble = MLFF_NVE;
    motion.timestep_fs = p->timestep_fs;
    must(mlff_system_build(p->system, 0, 0, &system), "soak");
    must(mlff_system_add_masses(system), "soak");
    must(mlff_system_add_velocities(system), "soak");
    must(mlff_system_thermalize(system, 300.0, 3), "soak");
    must(mlff_evaluator_create(model, &options, &evaluator), "soak");
    must(mlff_dynamics_create_on(evaluator, &motion, system, NULL, NULL, &dynamics), "soak");
    long between = p->steps / READINGS > 0 ? p->steps / READINGS : 1;
    must(mlff_dynamics_run(dynamics, between, NULL), "soak"); // buffers settle
    mlff_evaluator_info_get(evaluator, &first);
    memory begin = memory_now(options.device), end;

    static double time_ns[READINGS], energy[READINGS], parts[PARTS];
    double lowest = 1e300, highest = -1e300, largest_kinetic = 0;
    int64_t start_ns = mlff_clock_ns();
    for (int k = 0; k < READINGS; k++) {
        must(mlff_dynamics_run(dynamics, between, NULL), "soak");
        must(mlff_dynamics_state_get(dynamics, &state), "soak");
        time_ns[k] = 1e-6 * state.time_fs;
        energy[k] = 1e3 * state.conserved_energy / system->n_atoms;
        lowest = fmin(lowest, energy[k]);
        highest = fmax(highest, energy[k]);
        largest_kinetic = fmax(largest_kinetic, state.kinetic_energy);
    }
    double seconds = 1e-9 * (double)(mlff_clock_ns() - start_ns), scatter = 0;
    end = memory_now(options.device);
    mlff_evaluator_info_get(evaluator, &last);
    for (int k = 0; k < PARTS; k++) {
        int n = READINGS / PARTS;
        parts[k] = slope(time_ns + k * n, energy + k * n, n);
    }
    double drift = slope(time_ns, energy, READINGS), mean = 0;
    for (int k = 0; k < PARTS; k++) mean += parts[k] / PARTS;
    for (int k = 0; k < PARTS; k++) scatter += (parts[k] - mean) * (parts[k] - mean) / (PARTS - 1);
    printf(
        "{\"device\": \"%s\", \"precision\": \"%s\", \"model\": \"%s\", \"system\": \"%s\", \"atoms\": %d, \"steps\": %ld, "
        "\"timestep_fs\": %g, \"resident\": %d, \"steps_per_second\": %.0f, \"drift_mev_per_atom_ns\": %.5g, "
        "\"drift_error\": %.3g, \"energy_range_mev_per_atom\": %.4g, \"largest_kinetic_ev\": %.4g, \"growths\": %lld, "
        "\"device_allocated_growth_bytes\": %lld, \"device_free_loss_bytes\": %lld, \"process_resident_growth_bytes\": %lld}\n",
        p->device, p->precision, about.name, p->system, system->n_atoms, between * READINGS, p->timestep_fs,
        mlff_dynamics_device(dynamics).kind == MLFF_CUDA, (double)(between * READINGS) / seconds, drift, sqrt(scatter / PARTS),
        highest - lowest, largest_kinetic, (long long)(last.n_growths - first.n_growths),
        (long long)(end.device.allocated - begin.device.allocated), (long long)(begin.device.free - end.device.free),
        (long long)(end.process.reserved - begin.process.reserved));
    mlff_dynamics_destroy(dynamics);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

int main(int argc, char **argv)
{
    plan p = {.steps = 1000000, .timestep_fs = 0.25, .device = "cuda", .precision = "float32", .system = "benzene"};
    for (int k = 1; k + 1 < argc; k += 2) {
        const char *value = argv[k + 1];
        if (strcmp(argv[k], "--steps") == 0) p.steps = atol(value);
        if (strcmp(argv[k], "--timestep") == 0) p.timestep_fs = atof(value);
        if (strcmp(argv[k], "--device") == 0) p.device = value;
        if (strcmp(argv[k], "--precision") == 0) p.precision = value;
        if (strcmp(argv[k], "--model") == 0) p.model = value;
        if (strcmp(argv[k], "--system") == 0) p.system = value;
    }
    run(&p);
    return 0;
}
