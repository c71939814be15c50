// SPDX-License-Identifier: MIT
// gpu_bench_train.c: time of a training step of PaiNN on a GPU (energies, forces, loss, gradients, AdamW), as JSON lines.
//   gpu_bench_train [--tf32] [--features F] [--layers L] [--case N] [--steps N] [--gradient | --kernels]
// Cases: 10, 100 and 1000 ethanols, one water box of 192 atoms and 16 of them, all without repeated frames. Times are medians
// over batches of steps that are enqueued together and waited for once. --gradient: one gradient and no times, for a profiler.
// --kernels: also the time of each kernel of a step, from the end of the kernel before it to its own (CUPTI).
#include "../bench_update.h"
#include "timing.h"

#include "measure/activity.h"

#include "model/training/train_backend.h"
#include "train/fitting/train_set.h"

typedef struct setting {
    mlff_precision precision;
    int features, layers, only, steps, gradient, kernels;
} setting;

typedef struct bench_case {
    const char *name, *system;
    int atoms, copies;
} bench_case;

static const bench_case cases[] = {{"ethanol", "ethanol", 0, 10},
                                   {"ethanol", "ethanol", 0, 100},
                                   {"ethanol", "ethanol", 0, 1000},
                                   {"water 192", "water", 192, 1},
                                   {"water 192", "water", 192, 16}};
enum { N_CASES = sizeof cases / sizeof *cases, REPEATS = 11 };

static mlff_model *create_model(const setting *s)
{
    mlff_model *model;
    char features[16], layers[16];
    snprintf(features, sizeof features, "%d", s->features);
    snprintf(layers, sizeof layers, "%d", s->layers);
    const mlff_setting settings[] = {
        {"n_features", features}, {"n_layers", layers}, {"cutoff", "5"}, {"seed", "1"}, {NULL, NULL}};
    must(mlff_model_create("painn", settings, &model), "model");
    return model;
}

static train_set *create_set(const mlff_model *model, const bench_case *c)
{
    mlff_system **systems = need((size_t)c->copies, sizeof *systems);
    mlff_labels *labels = need((size_t)c->copies, sizeof *labels);
    train_set *set;
    for (int k = 0; k < c->copies; k++) {
        must(mlff_system_build(c->system, c->atoms, 0, &systems[k]), "system");
        must(mlff_system_perturb(systems[k], 300, (uint64_t)k), "system");
        double *forces = need((size_t)systems[k]->n_atoms * 3, sizeof *forces);
        for (int a = 0; a < 3 * systems[k]->n_atoms; a++) forces[a] = base_random_normal(1, (uint64_t)k, (uint64_t)a);
        labels[k] = (mlff_labels){.energy = base_random_normal(2, 0, (uint64_t)k), .forces = forces, .weight = 1};
    }
    must(train_set_build(model, (const mlff_system *const *)systems, labels, NULL, c->copies, 0, &set), "data");
    for (int k = 0; k < c->copies; k++) {
        free((void *)(uintptr_t)labels[k].forces);
        mlff_system_destroy(systems[k]);
    }
    free(systems);
    free(labels);
    return set;
}

static double time_steps(train_backend *backend, const int32_t *frames, int n, const mlff_loss *loss, int steps)
{
    train_sums sums;
    double times[REPEATS];
    for (int r = -2; r < REPEATS; r++) {
        int64_t start = mlff_clock_ns();
        for (int s = 0; s < steps; s++) must(backend->step(backend, frames, n, loss, &bench_update), "step");
        must(backend->sums(backend, &sums), "sums");
        if (r >= 0) times[r] = (double)(mlff_clock_ns() - start) / steps / 1e6;
        if (!sums.finite) must(mlff_fail(MLFF_ERR_UNSTABLE, "the loss is not finite"), "step");
    }
    return median(times, REPEATS);
}

static int compare_ends(const void *a, const void *b)
{
    const int64_t x = ((const activity_record *)a)->end_ns, y = ((const activity_record *)b)->end_ns;
    return (x > y) - (x < y);
}

// Time of each kernel as a share of a step: kernels overlap, so that a kernel is given the time from the end of the one that ended
// before it. A gap between steps is the first kernel's.
static void print_kernels(train_backend *backend, const int32_t *frames, int n, const mlff_loss *loss, int steps)
{
    activity window;
    train_sums sums;
    must(activity_begin(&window), "activity");
    for (int s = 0; s < steps; s++) must(backend->step(backend, frames, n, loss, &bench_update), "step");
    must(backend->sums(backend, &sums), "sums");
    must(activity_end(&window), "activity");
    double *total = need((size_t)window.n_names, sizeof *total);
    int *count = need((size_t)window.n_names, sizeof *count);
    qsort(window.records, window.n_records, sizeof *window.records, compare_ends);
    int64_t before = 0; // end of the last kernel; the host's queries while it waits are records too
    for (size_t k = 0; k < window.n_records; k++) {
        const activity_record *r = &window.records[k];
        if (r->kind != ACTIVITY_KERNEL || r->name < 0) continue;
        if (before) total[r->name] += (double)(r->end_ns - before) / 1e3 / steps;
        before = r->end_ns;
        count[r->name]++;
    }
    for (int k = 0; k < window.n_names; k++)
        if (count[k] >= steps - 1)
            printf("{\"kernel\": \"%s\", \"per_step\": %d, \"us_per_step\": %.2f}\n", window.names[k],
                   (count[k] + steps / 2) / steps, total[k]);
    free(total);
    free(count);
    activity_free(&window);
}

static void run_case(const setting *s, const mlff_model *model, const bench_case *c)
{
    const mlff_device device = {MLFF_CUDA, 0};
    const train_backend_options options = {.device = device, .precision = s->precision};
    const mlff_loss loss = {.energy_weight = 0.01, .forces_weight = 0.99};
    train_set *set = create_set(model, c);
    train_backend *backend;
    mlff_device_memory before, after;
    must(mlff_device_memory_get(device, &before), "memory");
    must(model->architecture->create_train_backend(model, &options, &backend), "trainer");
    must(backend->set_data(backend, set), "data");
    int32_t *frames = need((size_t)c->copies, sizeof *frames);
    for (int k = 0; k < c->copies; k++) frames[k] = k;
    if (s->gradient) {
        double value, *gradient = need((size_t)backend->layout.n_parameters, sizeof *gradient);
        must(backend->gradient(backend, frames, c->copies, &loss, gradient, &value), "gradient");
        free(gradient);
    } else {
        double ms = time_steps(backend, frames, c->copies, &loss, s->steps);
        must(mlff_device_memory_get(device, &after), "memory");
        printf("{\"case\": \"%s\", \"copies\": %d, \"atoms\": %d, \"pairs\": %d, \"features\": %d, \"layers\": %d, \"tf32\": %s, "
               "\"step_ms\": %.4f, \"structures_per_s\": %.0f, \"memory_mb\": %.0f}\n",
               c->name, c->copies, (int)set->n_atoms, (int)set->n_pairs, s->features, s->layers,
               s->precision == MLFF_TF32 ? "true" : "false", ms, 1e3 * c->copies / ms,
               (double)(after.allocated - before.allocated) / 1e6);
        if (s->kernels) print_kernels(backend, frames, c->copies, &loss, s->steps);
        fflush(stdout);
    }
    backend->destroy(backend);
    train_set_free(set);
    free(frames);
}

int main(int argc, char **argv)
{
    setting s = {MLFF_FLOAT32, 128, 3, -1, 50, 0, 0};
    for (int a = 1; a < argc; a++) {
        int *number = strcmp(argv[a], "--features") == 0 ? &s.features
                      : strcmp(argv[a], "--layers") == 0 ? &s.layers
                      : strcmp(argv[a], "--case") == 0   ? &s.only
                      : strcmp(argv[a], "--steps") == 0  ? &s.steps
                                                         : NULL;
        if (number && a + 1 < argc) {
            *number = atoi(argv[++a]);
        } else if (strcmp(argv[a], "--tf32") == 0) {
            s.precision = MLFF_TF32;
        } else if (strcmp(argv[a], "--gradient") == 0) {
            s.gradient = 1;
        } else if (strcmp(argv[a], "--kernels") == 0) {
            s.kernels = 1;
        } else {
            fprintf(
                stderr,
                "usage: gpu_bench_train [--tf32] [--features F] [--layers L] [--case N] [--steps N] [--gradient | --kernels]\n");
            return 2;
        }
    }
    mlff_model *model = create_model(&s);
    for (int k = 0; k < N_CASES; k++)
        if (s.only < 0 || s.only == k) run_case(&s, model, &cases[k]);
    mlff_model_destroy(model);
    return 0;
}
