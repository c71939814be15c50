// SPDX-License-Identifier: MIT
// gpu_bench_painn.c: PaiNN on the GPU against the float64 reference (force error) and the clock.
//
// For each case of the goals and each precision: error of energy, forces and virial; device time of a step by events, with
// pairs given on the device and with neighbors searched in the step; wall time of a call with host arrays.
// With --lists, steps of large systems by how neighbors are found. Medians. One JSON object a line on standard
// output. Usage: gpu_bench_painn [--calls N] [--case NAME] [--precision NAME] [--no-check] [--lists] [--dynamics STEPS]
// [--model FILE | --features F --layers L] [--system NAME --atoms N [--copies K]] (only that case)
#include <math.h>

#include "atoms/atoms.h"
#include "atoms/dynamics/bath.h"
#include "model/painn/painn.h"
#include "timing.h"

typedef struct bench_case {
    const char *name, *system;
    int n_atoms, copies;
    int device_calls;
} bench_case;

static const bench_case cases[] = {
    {"benzene", "benzene", 12, 1, 1},        {"silicon 64", "silicon", 64, 1, 1},   {"silicon 512", "silicon", 512, 1, 1},
    {"silicon 4096", "silicon", 4096, 1, 1}, {"benzene x16", "benzene", 12, 16, 1}, {"benzene x256", "benzene", 12, 256, 1},
};

static const bench_case large[] = {{"silicon 1000", "silicon", 1000, 1, 1},
                                   {"silicon 1728", "silicon", 1728, 1, 1},
                                   {"silicon 4096", "silicon", 4096, 1, 1},
                                   {"silicon 32768", "silicon", 32768, 1, 1},
                                   {"silicon 97336", "silicon", 97336, 1, 1}};

static const struct {
    const char *name;
    mlff_precision precision;
} precisions[] = {{"float32", MLFF_FLOAT32}, {"tf32", MLFF_TF32}, {"bf16", MLFF_BF16}};

typedef struct problem {
    systems_batch in;
    int n_atoms, n_systems;
} problem;

static void build(const bench_case *c, problem *p)
{
    *p = (problem){.n_systems = c->copies};
    p->n_atoms = perturbed_batch(c->system, c->n_atoms, c->copies, &p->in);
}

// Results of a case in float64 on the CPU.
typedef struct expected {
    double *energies, *forces, *virials;
} expected;

static expected reference_of(const mlff_model *model, const problem *p)
{
    mlff_evaluator_options o = mlff_evaluator_options_default();
    mlff_evaluator *reference;
    expected e = {need(p->n_systems, 8), need(3 * (size_t)p->n_atoms, 8), need(9 * (size_t)p->n_systems, 8)};
    o.precision = MLFF_FLOAT64;
    must(mlff_evaluator_create(model, &o, &reference), "reference");
    mlff_results r = {.energies = e.energies, .forces = e.forces, .virials = e.virials};
    must(mlff_evaluator_compute(reference, &p->in.batch, &r), "reference");
    mlff_evaluator_destroy(reference);
    return e;
}

static void errors(const expected *e, const problem *p, const mlff_results *got, double *force_rel, double *force_max,
                   double *energy, double *virial)
{
    double d2 = 0, f2 = 0, worst = 0, vd = 0, vm = 0;
    for (size_t k = 0; k < 3 * (size_t)p->n_atoms; k++) {
        double d = e->forces[k] - got->forces[k];
        d2 += d * d;
        f2 += e->forces[k] * e->forces[k];
        worst = fmax(worst, fabs(d));
        if (isnan(d)) worst = INFINITY;
    }
    *energy = 0;
    for (int k = 0; k < p->n_systems; k++) *energy = fmax(*energy, fabs(e->energies[k] - got->energies[k]));
    for (size_t k = 0; k < 9 * (size_t)p->n_systems; k++) {
        vd = fmax(vd, fabs(e->virials[k] - got->virials[k]));
        vm = fmax(vm, fabs(e->virials[k]));
    }
    *force_rel = isinf(worst) ? worst : sqrt(d2 / f2);
    *force_max = worst / sqrt(f2 / (3.0 * p->n_atoms));
    *virial = vd / vm;
}

// `reference` may be NULL: errors are not computed.
static void run(const mlff_model *model, const device_plugin *gpu, const bench_case *c, const problem *p,
                const expected *reference, int precision, int calls)
{
    gpu_evaluator *e;
    mlff_evaluator_options o = mlff_evaluator_options_default();
    o.device = (mlff_device){MLFF_CUDA, 0};
    o.precision = precisions[precision].precision;
    e = create_evaluator(gpu, model, &o);
    double *E = need(p->n_systems, 8), *F = need(3 * (size_t)p->n_atoms, 8), *V = need(9 * (size_t)p->n_systems, 8),
           *F2 = need(3 * (size_t)p->n_atoms, 8);
    mlff_results all = {.energies = E, .forces = F, .virials = V}, plain = {.energies = E, .forces = F2};
    must(gpu->compute(e, &p->in.batch, &all), "compute");
    double rel = NAN, worst = NAN, energy = NAN, virial = NAN;
    if (reference) errors(reference, p, &all, &rel, &worst, &energy, &virial);
    int same = 1;
    for (int k = 0; k < 20; k++) {
        must(gpu->compute(e, &p->in.batch, &plain), "compute");
        same = same && memcmp(F, F2, sizeof(double) * 3 * p->n_atoms) == 0;
    }
    double host_ns = time_host(gpu, e, &p->in.batch, &plain, calls);

    // On the device, with given pairs.
    mlff_neighbors *list;
    mlff_pairs pairs;
    must(mlff_neighbors_create(model->cutoff, 0.0, &list), "list");
    must(mlff_neighbors_update(list, &p->in.batch), "list");
    mlff_neighbors_get(list, &pairs, NULL, NULL);
    size_t n_pairs = pairs.first[p->n_atoms];
    mlff_batch on = p->in.batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = to_device(gpu, p->in.species, sizeof(int32_t) * p->n_atoms);
    on.positions = to_device(gpu, p->in.positions, sizeof(double) * 3 * p->n_atoms);
    on.cells = to_device(gpu, p->in.cells, sizeof(double) * 9 * p->n_systems);
    must(gpu->stream_create(0, &on.stream), "stream");
    mlff_results there = {.energies = to_device(gpu, NULL, sizeof(double) * p->n_systems),
                          .forces = to_device(gpu, NULL, sizeof(double) * 3 * p->n_atoms),
                          .location = MLFF_DEVICE_MEMORY};
    double listed_p5, handed_p5, listed = time_device(gpu, e, &on, &there, calls, &listed_p5);
    must(gpu->stream_synchronize(0, on.stream), "wait");
    must(gpu->copy(0, F2, there.forces, sizeof(double) * 3 * p->n_atoms), "copy");
    same = same && memcmp(F, F2, sizeof(double) * 3 * p->n_atoms) == 0;
    mlff_pairs handed = {.first = to_device(gpu, pairs.first, sizeof(int32_t) * (p->n_atoms + 1)),
                         .neighbor = to_device(gpu, pairs.neighbor, sizeof(int32_t) * n_pairs),
                         .shift = pairs.shift ? to_device(gpu, pairs.shift, sizeof(int32_t) * 3 * n_pairs) : NULL,
                         .symmetric = 1};
    on.pairs = &handed;
    double handed_ns = time_device(gpu, e, &on, &there, calls, &handed_p5);
    must(gpu->stream_synchronize(0, on.stream), "wait");
    must(gpu->copy(0, F2, there.forces, sizeof(double) * 3 * p->n_atoms), "copy");
    double handed_d = 0, f2 = 0;
    for (int k = 0; k < 3 * p->n_atoms; k++) handed_d += (F[k] - F2[k]) * (F[k] - F2[k]), f2 += F[k] * F[k];

    // Stages.
    int n_stages;
    const mlff_stage *stages = gpu->stages(e, &n_stages);
    double *stage_ns = need(n_stages, 8), *sum = need(n_stages, 8);
    must(gpu->stage_clock_set(e, 1), "clock");
    for (int k = 0; k < 220; k++) {
        must(gpu->compute(e, &p->in.batch, &plain), "compute");
        gpu->stage_times(e, stage_ns);
        for (int s = 0; s < n_stages && k >= 20; s++) sum[s] += stage_ns[s] / 200;
    }
    must(gpu->stage_clock_set(e, 0), "clock");
    mlff_evaluator_info info = {0};
    gpu->evaluator_info(e, &info);
    char error_text[256] = "";
    if (reference)
        snprintf(error_text, sizeof error_text,
                 "\"force_rel_rms\": %.3g, \"force_max_over_rms\": %.3g, \"energy_error_ev\": %.3g, \"virial_rel\": %.3g, ", rel,
                 worst, energy, virial);
    printf("{\"case\": \"%s\", \"precision\": \"%s\", \"atoms\": %d, \"pairs\": %zu, \"device_us_pairs_given\": %.2f, "
           "\"device_us_with_list\": %.2f, "
           "\"host_call_us\": %.2f, \"p5_us\": [%.2f, %.2f], %s\"bitwise_repeatable\": %d, \"handed_vs_own_rel\": %.2g, "
           "\"device_mb\": %.1f, \"growths\": "
           "%lld, \"stages_us\": {",
           c->name, precisions[precision].name, p->n_atoms, n_pairs, handed_ns / 1e3, listed / 1e3, host_ns / 1e3,
           handed_p5 / 1e3, listed_p5 / 1e3, error_text, same, sqrt(handed_d / f2), info.device_bytes / 1048576.0,
           (long long)info.n_growths);
    for (int s = 0; s < n_stages; s++)
        printf("%s\"%s %s %d\": %.2f", s ? ", " : "", stages[s].name, stages[s].phase, stages[s].layer, sum[s] / 1e3);
    printf("}}\n");
    fflush(stdout);
    gpu->destroy(e);
}

// Steps of a large system by how neighbors are found: all pairs, Verlet list kept, Verlet list rebuilt in each step.
static void run_lists(const mlff_model *model, const device_plugin *gpu, const bench_case *c, int calls)
{
    static const char *const ways[] = {"cell_list=0", "cell_list=1", "cell_list=2"}, *const names[] = {"all_pairs", "kept",
                                                                                                       "rebuilt"};
    problem p;
    build(c, &p);
    double *first = need(3 * (size_t)p.n_atoms, 8), *forces = need(3 * (size_t)p.n_atoms, 8);
    printf("{\"case\": \"lists of %s\", \"atoms\": %d", c->name, p.n_atoms);
    for (int k = 0; k < 3; k++) {
        gpu_evaluator *e;
        mlff_evaluator_options o = mlff_evaluator_options_default();
        o.device = (mlff_device){MLFF_CUDA, 0};
        setenv("MLFF_CUDA_PLAN", ways[k], 1);
        e = create_evaluator(gpu, model, &o);
        unsetenv("MLFF_CUDA_PLAN");
        mlff_results results = {.energies = need(1, 8), .forces = k ? forces : first};
        must(gpu->compute(e, &p.in.batch, &results), "compute");
        int same = memcmp(forces, first, sizeof(double) * 3 * (size_t)p.n_atoms) == 0;
        int n_stages;
        const mlff_stage *stages = gpu->stages(e, &n_stages);
        double *stage_ns = need(n_stages, 8), list = 0, step = 0;
        must(gpu->stage_clock_set(e, 1), "clock");
        double *lists = need(calls, 8), *steps = need(calls, 8);
        for (int call = -3; call < calls; call++) {
            must(gpu->compute(e, &p.in.batch, &results), "compute");
            gpu->stage_times(e, stage_ns);
            list = step = 0;
            for (int s = 0; s < n_stages; s++) {
                step += stage_ns[s];
                if (strcmp(stages[s].name, "neighbors") == 0) list += stage_ns[s];
            }
            if (call >= 0) lists[call] = list, steps[call] = step;
        }
        mlff_evaluator_info info = {0};
        gpu->evaluator_info(e, &info);
        printf(", \"%s\": {\"list_us\": %.2f, \"step_us\": %.2f, \"lists_made\": %lld, \"device_mb\": %.0f", names[k],
               median(lists, calls) / 1e3, median(steps, calls) / 1e3, (long long)info.n_rebuilds, info.device_bytes / 1048576.0);
        printf(k ? ", \"same_bits\": %d}" : "}", same);
        fflush(stdout);
        gpu->destroy(e);
    }
    systems_batch_free(&p.in);
    printf("}\n");
    fflush(stdout);
}

// Potential and kinetic energy, eV.
static double total_energy(const device_plugin *gpu, gpu_dynamics *d, const mlff_system *system, double *kinetic_out)
{
    gpu_dynamics_state state;
    double sum = 0;
    gpu->dynamics_get(d, 0, &state);
    for (int k = 0; k < 3 * system->n_atoms; k++) sum += 0.5 * system->masses[k / 3] * state.velocities[k] * state.velocities[k];
    *kinetic_out = sum / (ATOMS_ASE_VELOCITY * ATOMS_ASE_VELOCITY);
    return state.potential_energy + *kinetic_out;
}

// Steps per second of dynamics that stay on the GPU, neighbors searched in each step; energy drift of the run.
static void run_dynamics(const mlff_model *model, const device_plugin *gpu, const char *name, int n_atoms, int n_steps)
{
    mlff_system *system;
    gpu_evaluator *e;
    gpu_dynamics *d;
    mlff_evaluator_options o = mlff_evaluator_options_default();
    mlff_dynamics_options motion = mlff_dynamics_options_default();
    dynamics_bath bath = {0};
    int64_t n_done;
    int failed;
    must(mlff_system_build(name, n_atoms, 0, &system), name);
    must(mlff_system_add_masses(system), name);
    must(mlff_system_add_velocities(system), name);
    must(mlff_system_thermalize(system, 300.0, 3), name);
    o.device = (mlff_device){MLFF_CUDA, 0};
    e = create_evaluator(gpu, model, &o);
    motion.timestep_fs = 0.25;
    must(gpu->dynamics_create(
             e,
             &(gpu_dynamics_start){.system = system, .options = &motion, .bath = &bath, .n_degrees = 3.0 * system->n_atoms - 3},
             1, &d),
         "dynamics");
    double *times = need((size_t)n_steps, sizeof *times), kinetic;
    must(gpu->dynamics_run(d, 100, NULL, &n_done, &failed), "dynamics");
    const double before = total_energy(gpu, d, system, &kinetic);
    mlff_device_memory memory0, memory1;
    must(gpu->memory(0, &memory0), "memory");
    int64_t start = mlff_clock_ns();
    must(gpu->dynamics_run(d, n_steps, times, &n_done, &failed), "dynamics");
    double seconds = 1e-9 * (double)(mlff_clock_ns() - start);
    must(gpu->memory(0, &memory1), "memory");
    const double after = total_energy(gpu, d, system, &kinetic);
    double middle = median(times, n_steps);
    printf("{\"case\": \"dynamics %s\", \"atoms\": %d, \"steps\": %d, \"steps_per_second\": %.0f, \"step_us_median\": %.2f, "
           "\"step_us_p99\": %.2f, "
           "\"energy_change_ev\": %.3g, \"kinetic_ev\": %.4g, \"memory_growth_bytes\": %lld}\n",
           name, system->n_atoms, n_steps, n_steps / seconds, middle / 1e3, times[n_steps * 99 / 100] / 1e3, after - before,
           kinetic, (long long)(memory1.allocated - memory0.allocated));
    fflush(stdout);
    gpu->dynamics_destroy(d);
    gpu->destroy(e);
    mlff_system_destroy(system);
    free(times);
}

int main(int argc, char **argv)
{
    int calls = 1000, check = 1, steps = 0, lists = 0;
    bench_case one = {.copies = 1, .device_calls = 1};
    char one_name[64];
    const char *only = NULL, *file = NULL, *precision = NULL, *features = "128", *layers = "3";
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--calls") == 0 && k + 1 < argc) calls = atoi(argv[++k]);
        if (strcmp(argv[k], "--case") == 0 && k + 1 < argc) only = argv[++k];
        if (strcmp(argv[k], "--precision") == 0 && k + 1 < argc) precision = argv[++k];
        if (strcmp(argv[k], "--model") == 0 && k + 1 < argc) file = argv[++k];
        if (strcmp(argv[k], "--features") == 0 && k + 1 < argc) features = argv[++k];
        if (strcmp(argv[k], "--layers") == 0 && k + 1 < argc) layers = argv[++k];
        if (strcmp(argv[k], "--system") == 0 && k + 1 < argc) one.system = argv[++k];
        if (strcmp(argv[k], "--atoms") == 0 && k + 1 < argc) one.n_atoms = atoi(argv[++k]);
        if (strcmp(argv[k], "--copies") == 0 && k + 1 < argc) one.copies = atoi(argv[++k]);
        if (strcmp(argv[k], "--no-check") == 0) check = 0;
        if (strcmp(argv[k], "--lists") == 0) lists = 1;
        if (strcmp(argv[k], "--dynamics") == 0 && k + 1 < argc) steps = atoi(argv[++k]);
    }
    const device_plugin *gpu;
    mlff_model *model;
    const mlff_setting untrained[] = {{"n_features", features}, {"n_layers", layers}, {0}};
    must(file ? mlff_model_load(file, &model) : mlff_model_create("painn", untrained, &model), "model");
    must(device_plugin_get(&gpu), "plugin");
    must(gpu->warm_up(0), "warm up");
    snprintf(one_name, sizeof one_name, "%s %d x%d", one.system ? one.system : "", one.n_atoms, one.copies);
    one.name = one_name;
    const bench_case *list = one.system ? &one : cases;
    for (size_t k = 0; k < (one.system ? 1 : sizeof cases / sizeof *cases); k++) {
        if (only && strcmp(only, list[k].name) != 0) continue;
        problem p;
        expected reference = {0};
        build(&list[k], &p);
        if (check) reference = reference_of(model, &p);
        for (int m = 0; m < 3; m++)
            if (!precision || strcmp(precision, precisions[m].name) == 0)
                run(model, gpu, &list[k], &p, check ? &reference : NULL, m, calls);
        systems_batch_free(&p.in);
    }
    for (size_t k = 0; lists && k < sizeof large / sizeof *large; k++) run_lists(model, gpu, &large[k], calls < 50 ? calls : 50);
    if (steps > 0) {
        run_dynamics(model, gpu, "benzene", 0, steps);
        run_dynamics(model, gpu, "silicon", 64, steps);
    }
    mlff_model_destroy(model);
    return 0;
}
