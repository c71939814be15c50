// SPDX-License-Identifier: MIT
// bench_stages.c: what the stages' clocks of PaiNN on the GPU cost, and whether their sum is the time of a step.
//
// For each case, clocks on and off in turns of 100 calls with host arrays: medians of the call's wall time, and their
// difference, with its error from the turns. The sum of the stages stands beside the device time of a step: between two
// events around one enqueued call (the launch of the graph included), and of 50 calls enqueued one after the other
// (launches hidden). One JSON object a case. Usage: bench_stages [--turns N] [--case NAME]
#include <math.h>
#include <string.h>

#include "../bench.h"
#include "mlff.h"

enum { TURN = 100, ENQUEUED = 50, REPEATS = 21 };

typedef struct bench_case {
    const char *name, *system;
    int n_atoms, copies, turns;
} bench_case;

static const bench_case cases[] = {{"benzene", "benzene", 12, 1, 40},       {"silicon 64", "silicon", 64, 1, 40},
                                   {"silicon 512", "silicon", 512, 1, 20},  {"benzene x16", "benzene", 12, 16, 20},
                                   {"silicon 4096", "silicon", 4096, 1, 6}, {"silicon 13824", "silicon", 13824, 1, 4}};

typedef struct problem {
    mlff_batch batch;
    int32_t *first_atom, *species;
    double *positions, *cells, *energies, *forces;
    unsigned char *periodic;
    size_t n_atoms;
} problem;

static void *need(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) bench_check(mlff_fail(MLFF_ERR_MEMORY, "out of memory"));
    return p;
}

static void build(const bench_case *c, problem *p)
{
    size_t copies = (size_t)c->copies;
    memset(p, 0, sizeof *p);
    p->first_atom = need(copies + 1, sizeof *p->first_atom);
    for (size_t k = 0; k < copies; k++) {
        mlff_system *s;
        bench_check(mlff_system_build(c->system, c->n_atoms, 0, &s));
        bench_check(mlff_system_perturb(s, 300.0, 7 + k));
        size_t n = (size_t)s->n_atoms, at = (size_t)p->first_atom[k];
        if (k == 0) {
            p->n_atoms = n * copies;
            p->species = need(p->n_atoms, sizeof *p->species);
            p->positions = need(3 * p->n_atoms, sizeof *p->positions);
            p->forces = need(3 * p->n_atoms, sizeof *p->forces);
            p->energies = need(copies, sizeof *p->energies);
            p->cells = need(9 * copies, sizeof *p->cells);
            p->periodic = need(3 * copies, 1);
        }
        for (size_t i = 0; i < n; i++) p->species[at + i] = s->species[i];
        memcpy(p->positions + 3 * at, s->positions, sizeof(double) * 3 * n);
        memcpy(p->cells + 9 * k, s->cell, sizeof s->cell);
        memcpy(p->periodic + 3 * k, s->periodic, 3);
        p->first_atom[k + 1] = (int32_t)(at + n);
        mlff_system_destroy(s);
    }
    p->batch = (mlff_batch){.n_systems = c->copies,
                            .first_atom = p->first_atom,
                            .species = p->species,
                            .positions = p->positions,
                            .cells = p->cells,
                            .periodic = p->periodic};
}

static void destroy(problem *p)
{
    void *const arrays[] = {p->first_atom, p->species, p->positions, p->cells, p->energies, p->forces, p->periodic};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) free(arrays[k]);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, bench_ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// Wall time of a call, µs: the median of a turn.
static double turn(mlff_evaluator *evaluator, const problem *p, int clock_on, double *stage_us, int n_stages)
{
    double t[TURN], *time_ns = need((size_t)n_stages, sizeof *time_ns);
    mlff_results results = {.energies = p->energies, .forces = p->forces};
    bench_check(mlff_evaluator_stage_clock_set(evaluator, clock_on));
    for (int k = -5; k < TURN; k++) {
        double start = bench_now_ms();
        bench_check(mlff_evaluator_compute(evaluator, &p->batch, &results));
        if (k >= 0) t[k] = 1e3 * (bench_now_ms() - start);
        if (!clock_on || k < 0) continue;
        mlff_evaluator_stage_times(evaluator, time_ns);
        for (int s = 0; s < n_stages; s++) stage_us[s] += 1e-3 * time_ns[s] / TURN;
    }
    free(time_ns);
    return median(t, TURN);
}

static void *there(mlff_device gpu, const void *from, size_t bytes)
{
    void *memory;
    bench_check(mlff_device_allocate(gpu, bytes, &memory));
    if (from) bench_check(mlff_device_copy(gpu, memory, from, bytes));
    return memory;
}

// Device time of a step, µs: `calls` enqueued between two events; the median of some repeats.
static double device_time(mlff_evaluator *evaluator, const mlff_batch *on, const mlff_results *results, mlff_device gpu,
                          int calls)
{
    void *start, *end;
    double t[REPEATS];
    bench_check(mlff_event_create(gpu, &start));
    bench_check(mlff_event_create(gpu, &end));
    for (int k = -3; k < REPEATS; k++) {
        double ns;
        bench_check(mlff_event_record(gpu, start, on->stream));
        for (int c = 0; c < calls; c++) bench_check(mlff_evaluator_compute(evaluator, on, results));
        bench_check(mlff_event_record(gpu, end, on->stream));
        bench_check(mlff_event_elapsed(gpu, start, end, &ns));
        if (k >= 0) t[k] = 1e-3 * ns / calls;
    }
    mlff_event_destroy(gpu, start);
    mlff_event_destroy(gpu, end);
    return median(t, REPEATS);
}

static void device_times(mlff_evaluator *evaluator, const problem *p, mlff_device gpu, double *one_us, double *many_us)
{
    size_t n = p->n_atoms, systems = (size_t)p->batch.n_systems;
    mlff_batch on = p->batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = there(gpu, p->species, sizeof(int32_t) * n);
    on.positions = there(gpu, p->positions, sizeof(double) * 3 * n);
    on.cells = there(gpu, p->cells, sizeof(double) * 9 * systems);
    bench_check(mlff_stream_create(gpu, &on.stream));
    mlff_results results = {.energies = there(gpu, NULL, sizeof(double) * systems),
                            .forces = there(gpu, NULL, sizeof(double) * 3 * n),
                            .location = MLFF_DEVICE_MEMORY};
    bench_check(mlff_evaluator_stage_clock_set(evaluator, 0));
    *one_us = device_time(evaluator, &on, &results, gpu, 1);
    *many_us = device_time(evaluator, &on, &results, gpu, ENQUEUED);
    bench_check(mlff_stream_synchronize(gpu, on.stream));
    mlff_stream_destroy(gpu, on.stream);
    mlff_device_release(gpu, (void *)(uintptr_t)on.species);
    mlff_device_release(gpu, (void *)(uintptr_t)on.positions);
    mlff_device_release(gpu, (void *)(uintptr_t)on.cells);
    mlff_device_release(gpu, results.energies);
    mlff_device_release(gpu, results.forces);
}

static void run(const mlff_model *model, const bench_case *c, int turns)
{
    problem p;
    mlff_evaluator *evaluator;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_device gpu = {MLFF_CUDA, 0};
    int n_stages;
    options.device = gpu;
    build(c, &p);
    bench_check(mlff_evaluator_create(model, &options, &evaluator));
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *stage_us = need((size_t)n_stages, sizeof *stage_us), *off = need((size_t)turns, sizeof *off),
           *on = need((size_t)turns, sizeof *on), *cost = need((size_t)turns, sizeof *cost);
    double sum = 0, mean = 0, scatter = 0, one_us, many_us;
    for (int k = 0; k < turns; k++) { // which comes first changes from turn to turn
        if (k % 2) on[k] = turn(evaluator, &p, 1, stage_us, n_stages);
        off[k] = turn(evaluator, &p, 0, stage_us, n_stages);
        if (k % 2 == 0) on[k] = turn(evaluator, &p, 1, stage_us, n_stages);
        cost[k] = on[k] - off[k];
        mean += cost[k] / turns;
    }
    for (int k = 0; k < turns; k++) scatter += (cost[k] - mean) * (cost[k] - mean) / (turns > 1 ? turns - 1 : 1);
    for (int s = 0; s < n_stages; s++) sum += (stage_us[s] /= turns);
    device_times(evaluator, &p, gpu, &one_us, &many_us);
    double call_off = median(off, turns), call_on = median(on, turns);
    printf(
        "{\"case\": \"%s\", \"atoms\": %zu, \"turns\": %d, \"calls_a_turn\": %d, \"call_off_us\": %.2f, \"call_on_us\": %.2f, "
        "\"cost_us\": %.2f, \"cost_error_us\": %.2f, \"cost_percent\": %.2f, \"stages_sum_us\": %.2f, \"device_one_us\": %.2f, "
        "\"device_enqueued_us\": %.2f, \"sum_over_enqueued\": %.4f, \"stages_us\": {",
        c->name, p.n_atoms, turns, TURN, call_off, call_on, mean, sqrt(scatter / turns), 100 * mean / call_off, sum, one_us,
        many_us, sum / many_us);
    for (int s = 0; s < n_stages; s++)
        printf("%s\"%s %s %d\": %.2f", s ? ", " : "", stages[s].name, stages[s].phase, stages[s].layer, stage_us[s]);
    printf("}}\n");
    fflush(stdout);
    mlff_evaluator_destroy(evaluator);
    free(stage_us);
    free(off);
    free(on);
    free(cost);
    destroy(&p);
}

int main(int argc, char **argv)
{
    int turns = 0; // those of the case
    const char *only = NULL;
    for (int k = 1; k + 1 < argc; k += 2) {
        if (strcmp(argv[k], "--turns") == 0) turns = atoi(argv[k + 1]);
        if (strcmp(argv[k], "--case") == 0) only = argv[k + 1];
    }
    mlff_model *model;
    mlff_painn_options options = mlff_painn_options_default();
    bench_check(mlff_model_create_painn(&options, &model));
    bench_check(mlff_device_warm_up((mlff_device){MLFF_CUDA, 0}));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (!only || strcmp(only, cases[k].name) == 0) run(model, &cases[k], turns > 0 ? turns : cases[k].turns);
    mlff_model_destroy(model);
    return 0;
}
