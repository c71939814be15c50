// SPDX-License-Identifier: MIT
// gpu_bench_stages.c: what the stages' clocks of PaiNN on the GPU cost, and whether their sum is the time of a step.
//
// For each case, clocks on and off, interleaved, 100 calls each, with host arrays: medians of the call's wall time, and their
// difference, with its error from the repetitions. The sum of the stages of a batch on the device is printed with the device time of
// its step: between two events around one enqueued call (the launch of the graph included), and of 50 calls enqueued one after
// the other (launches hidden). One JSON object a case. Usage: gpu_bench_stages [--turns N] [--case NAME]
#include <math.h>

#include "timing.h"

enum { TURN = 100, ENQUEUED = 50, REPEATS = 21 };

typedef struct bench_case {
    const char *name, *system;
    int n_atoms, turns;
} bench_case;

static const bench_case cases[] = {{"benzene", "benzene", 12, 40},
                                   {"silicon 64", "silicon", 64, 40},
                                   {"silicon 512", "silicon", 512, 20},
                                   {"silicon 4096", "silicon", 4096, 6},
                                   {"silicon 13824", "silicon", 13824, 4}};

static const mlff_device gpu = {MLFF_CUDA, 0};

// Wall time of a call, µs: the median of a turn.
static double turn(mlff_evaluator *evaluator, const mlff_batch *batch, const mlff_results *results, int clock_on)
{
    double t[TURN];
    must(mlff_evaluator_stage_clock_set(evaluator, clock_on), "clocks");
    for (int k = -5; k < TURN; k++) {
        int64_t start = mlff_clock_ns();
        must(mlff_evaluator_compute(evaluator, batch, results), "a call");
        if (k >= 0) t[k] = 1e-3 * (double)(mlff_clock_ns() - start);
    }
    return median(t, TURN);
}

static void *there(const void *from, size_t bytes)
{
    void *memory;
    must(mlff_device_allocate(gpu, bytes, &memory), "memory");
    if (from) must(mlff_device_copy(gpu, memory, from, bytes), "memory");
    return memory;
}

// Device time of a step, µs: `calls` enqueued between two events; the median of some repeats.
static double device_time(mlff_evaluator *evaluator, const mlff_batch *on, const mlff_results *results, int calls)
{
    void *start, *end;
    double t[REPEATS];
    must(mlff_event_create(gpu, &start), "event");
    must(mlff_event_create(gpu, &end), "event");
    for (int k = -3; k < REPEATS; k++) {
        double ns;
        must(mlff_event_record(gpu, start, on->stream), "event");
        for (int c = 0; c < calls; c++) must(mlff_evaluator_compute(evaluator, on, results), "a call");
        must(mlff_event_record(gpu, end, on->stream), "event");
        must(mlff_event_elapsed(gpu, start, end, &ns), "event");
        if (k >= 0) t[k] = 1e-3 * ns / calls;
    }
    mlff_event_destroy(gpu, start);
    mlff_event_destroy(gpu, end);
    return median(t, REPEATS);
}

static void device_times(mlff_evaluator *evaluator, const mlff_system *system, const mlff_batch *batch, double *one_us,
                         double *many_us, double *stage_us, int n_stages)
{
    size_t n = (size_t)system->n_atoms;
    mlff_batch on = *batch;
    on.location = MLFF_DEVICE_MEMORY;
    on.species = there(system->species, sizeof *system->species * n);
    on.positions = there(system->positions, sizeof(double) * 3 * n);
    if (batch->cells) on.cells = there(batch->cells, sizeof(double) * 9);
    must(mlff_stream_create(gpu, &on.stream), "stream");
    mlff_results results = {
        .energies = there(NULL, sizeof(double)), .forces = there(NULL, sizeof(double) * 3 * n), .location = MLFF_DEVICE_MEMORY};
    must(mlff_evaluator_stage_clock_set(evaluator, 0), "clocks");
    *one_us = device_time(evaluator, &on, &results, 1);
    *many_us = device_time(evaluator, &on, &results, ENQUEUED);
    double *time_ns = need((size_t)n_stages, sizeof *time_ns);
    must(mlff_evaluator_stage_clock_set(evaluator, 1), "clocks");
    for (int k = -5; k < TURN; k++) {
        must(mlff_evaluator_compute(evaluator, &on, &results), "a call");
        mlff_evaluator_stage_times(evaluator, time_ns);
        for (int s = 0; s < n_stages && k >= 0; s++) stage_us[s] += 1e-3 * time_ns[s] / TURN;
    }
    free(time_ns);
    must(mlff_stream_synchronize(gpu, on.stream), "stream");
    mlff_stream_destroy(gpu, on.stream);
    mlff_device_release(gpu, (void *)(uintptr_t)on.species);
    mlff_device_release(gpu, (void *)(uintptr_t)on.positions);
    if (batch->cells) mlff_device_release(gpu, (void *)(uintptr_t)on.cells);
    mlff_device_release(gpu, results.energies);
    mlff_device_release(gpu, results.forces);
}

static void run(const mlff_model *model, const bench_case *c, int turns)
{
    mlff_system *system;
    mlff_batch batch;
    int32_t first_atom[2];
    mlff_evaluator *evaluator;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    int n_stages;
    options.device = gpu;
    must(mlff_system_build(c->system, c->n_atoms, 0, &system), c->name);
    must(mlff_system_perturb(system, 300.0, 7), c->name);
    mlff_batch_from_system(system, first_atom, &batch);
    double energy, *forces = need(3 * (size_t)system->n_atoms, sizeof *forces);
    const mlff_results results = {.energies = &energy, .forces = forces};
    must(mlff_evaluator_create(model, &options, &evaluator), "evaluator");
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n_stages);
    double *stage_us = need((size_t)n_stages, sizeof *stage_us), *off = need((size_t)turns, sizeof *off),
           *on = need((size_t)turns, sizeof *on), *cost = need((size_t)turns, sizeof *cost);
    double sum = 0, mean = 0, scatter = 0, one_us, many_us;
    for (int k = 0; k < turns; k++) { // which comes first changes from turn to turn
        if (k % 2) on[k] = turn(evaluator, &batch, &results, 1);
        off[k] = turn(evaluator, &batch, &results, 0);
        if (k % 2 == 0) on[k] = turn(evaluator, &batch, &results, 1);
        cost[k] = on[k] - off[k];
        mean += cost[k] / turns;
    }
    for (int k = 0; k < turns; k++) scatter += (cost[k] - mean) * (cost[k] - mean) / (turns > 1 ? turns - 1 : 1);
    device_times(evaluator, system, &batch, &one_us, &many_us, stage_us, n_stages);
    for (int s = 0; s < n_stages; s++)
        if (strcmp(stages[s].phase, "host") != 0) sum += stage_us[s]; // a host's stages stand beside the device's
    double call_off = median(off, turns), call_on = median(on, turns);
    printf(
        "{\"case\": \"%s\", \"atoms\": %d, \"turns\": %d, \"calls_a_turn\": %d, \"call_off_us\": %.2f, \"call_on_us\": %.2f, "
        "\"cost_us\": %.2f, \"cost_error_us\": %.2f, \"cost_percent\": %.2f, \"stages_sum_us\": %.2f, \"device_one_us\": %.2f, "
        "\"device_enqueued_us\": %.2f, \"sum_over_enqueued\": %.4f, \"stages_us\": {",
        c->name, system->n_atoms, turns, TURN, call_off, call_on, mean, sqrt(scatter / turns), 100 * mean / call_off, sum, one_us,
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
    free(forces);
    mlff_system_destroy(system);
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
    must(mlff_model_create("painn", NULL, &model), "model");
    must(mlff_device_warm_up(gpu), "warm up");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (!only || strcmp(only, cases[k].name) == 0) run(model, &cases[k], turns > 0 ? turns : cases[k].turns);
    mlff_model_destroy(model);
    return 0;
}
