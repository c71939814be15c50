// SPDX-License-Identifier: MIT
// bench_train.c: time of a training step of an untrained PaiNN on the CPU (energies, forces, loss, exact gradient, AdamW, moving
// average), and of validation. One JSON line a case. predicted_cpu_ms: the step's operations at the speed of the matrix product alone,
// measured first on one core; ratio: measured / predicted. Processor time (cpu_ms) is robust against other work on the machine.
// Usage: bench_train [--threads N] [--path avx512|avx2|portable] [--seconds S] [--double] [CASE …]
// Cases: ethanol10 ethanol100 ethanol1000 water16, each with F = 128, L = 3 and F = 64, L = 2.
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "bench_update.h"
#include "device/cpu.h"
#include "model/training/train_backend.h"
#include "nn/nn.h"
#include "train/fitting/train_set.h"

enum { FRAMES_MAX = 1000 };

typedef struct data {
    int n;
    mlff_system *systems[FRAMES_MAX];
    mlff_labels labels[FRAMES_MAX];
    double *forces;
} data;

static void make_data(const char *builder, int n_atoms, int n, data *d)
{
    size_t at = 0;
    d->n = n;
    for (int k = 0; k < n; k++) {
        bench_check(mlff_system_build(builder, n_atoms, 0, &d->systems[k]));
        bench_check(mlff_system_perturb(d->systems[k], 300, (uint64_t)k));
        at += 3 * (size_t)d->systems[k]->n_atoms;
    }
    d->forces = calloc(at, sizeof *d->forces);
    for (size_t a = 0; a < at; a++) d->forces[a] = base_random_normal(1, 2, a);
    at = 0;
    for (int k = 0; k < n; k++) {
        d->labels[k] = (mlff_labels){.energy = base_random_normal(1, 3, (uint64_t)k), .forces = d->forces + at, .weight = 1};
        at += 3 * (size_t)d->systems[k]->n_atoms;
    }
}

static void free_data(data *d)
{
    for (int k = 0; k < d->n; k++) mlff_system_destroy(d->systems[k]);
    free(d->forces);
}

// Operations of one step, counted: dense layers 30 F² a forward pass, atom and layer (less layer 0's message network and the last
// layer's y^μ), the same for each of reverse, tangent, dual and twice for gradients; filters 2·3F(K+1) (layer 0 has two thirds) for
// each of 2 products and 2 gradients, once for a pair of atoms. Large groups make the products again in each pass.
static double operations(int F, int L, int K, double atoms, double edges)
{
    double dense = (30.0 * L - 10) * F * F + (double)F * F, filters = 4.0 * 2 * F * (K + 1) * (3 * L - 1);
    return 6 * dense * atoms + filters * edges / 2;
}

static double process_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

// GFLOP/s of the matrix product with a group's 48 rows, one core.
static double product_speed(const char *path)
{
    enum { M = 48, N = 384, K = 128, REPEATS = 2000 };
    const nn_kernels *nn = nn_kernels_get(cpu_vector_path(path), NN_FLOAT32);
    float *a = base_alloc(M * K, sizeof *a, "a"), *b = base_alloc(N * K, sizeof *b, "b"), *c = base_alloc(M * N, sizeof *c, "c");
    double best = INFINITY;
    for (int trial = 0; trial < 5; trial++) {
        double begin = process_ms();
        for (int k = 0; k < REPEATS; k++) nn->product(M, N, K, a, K, b, NULL, c, N, 0);
        best = fmin(best, process_ms() - begin);
    }
    base_free(a);
    base_free(b);
    base_free(c);
    return 2.0 * M * N * K * REPEATS / best * 1e-6;
}

static void run(const char *name, const char *builder, int n_atoms, int n, int F, int L, const train_backend_options *options,
                double seconds, double speed)
{
    static data d;
    static int32_t frames[FRAMES_MAX];
    char features[16], layers[16];
    mlff_model *model;
    train_set *set;
    train_backend *backend;
    snprintf(features, sizeof features, "%d", F);
    snprintf(layers, sizeof layers, "%d", L);
    bench_check(mlff_model_create("painn", (mlff_setting[]){{"n_features", features}, {"n_layers", layers}, {0}}, &model));
    make_data(builder, n_atoms, n, &d);
    bench_check(train_set_build(model, (const mlff_system *const *)d.systems, d.labels, NULL, n, 0, &set));
    bench_check(model->architecture->create_train_backend(model, options, &backend));
    bench_check(backend->set_data(backend, set));
    for (int k = 0; k < n; k++) frames[k] = k;
    mlff_loss loss = {.energy_weight = 0.01, .forces_weight = 0.99};
    train_sums sums;

    int n_steps = 0;
    enum { MOST = 10000 };
    static double times[MOST];
    for (int k = 0; k < 2; k++) bench_check(backend->step(backend, frames, n, &loss, &bench_update));
    double busy = process_ms(), start = bench_now_ms();
    while (n_steps < 5 || (n_steps < MOST && bench_now_ms() - start < 1e3 * seconds)) {
        double begin = bench_now_ms();
        bench_check(backend->step(backend, frames, n, &loss, &bench_update));
        times[n_steps++] = bench_now_ms() - begin;
    }
    busy = (process_ms() - busy) / n_steps;
    qsort(times, (size_t)n_steps, sizeof *times, bench_ascending);
    bench_check(backend->evaluate(backend, set, &loss, &sums));
    double begin = bench_now_ms();
    bench_check(backend->evaluate(backend, set, &loss, &sums));
    double evaluate_ms = bench_now_ms() - begin, median = times[n_steps / 2];
    double flop = operations(F, L, 20, (double)set->n_atoms, (double)set->n_pairs);
    double predicted = flop * 1e-6 / speed;
    printf("{\"case\": \"%s\", \"features\": %d, \"layers\": %d, \"structures\": %d, \"atoms\": %lld, \"edges\": %lld, "
           "\"threads\": %d, "
           "\"path\": \"%s\", \"precision\": \"%s\", \"steps\": %d, \"median_ms\": %.3f, \"min_ms\": %.3f, \"cpu_ms\": %.3f, "
           "\"structures_per_s\": %.0f, \"structures_per_cpu_s\": %.0f, \"gflop\": %.3f, \"gflop_per_cpu_s\": %.1f, "
           "\"product_gflop_per_s\": %.1f, \"predicted_cpu_ms\": %.3f, \"ratio\": %.2f, \"evaluate_ms\": %.3f, \"parameters\": "
           "%lld}\n",
           name, F, L, n, (long long)set->n_atoms, (long long)set->n_pairs, options->n_threads, options->cpu_path,
           options->precision == MLFF_FLOAT64 ? "float64" : "float32", n_steps, median, times[0], busy, n / median * 1e3,
           n / busy * 1e3, flop * 1e-9, flop * 1e-6 / busy, speed, predicted, busy / predicted, evaluate_ms,
           (long long)backend->layout.n_parameters);
    fflush(stdout);
    backend->destroy(backend);
    train_set_free(set);
    free_data(&d);
    mlff_model_destroy(model);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"threads", required_argument, NULL, 't'},
                                                 {"path", required_argument, NULL, 'p'},
                                                 {"seconds", required_argument, NULL, 's'},
                                                 {"double", no_argument, NULL, 'd'},
                                                 {0}};
    static const struct {
        const char *name, *builder;
        int n_atoms, n;
    } cases[] = {{"ethanol10", "ethanol", 0, 10},
                 {"ethanol100", "ethanol", 0, 100},
                 {"ethanol1000", "ethanol", 0, 1000},
                 {"water16", "water", 192, 16}};
    train_backend_options options = {.precision = MLFF_FLOAT32, .n_threads = 2};
    const char *path = NULL;
    double seconds = 3;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 't') options.n_threads = atoi(optarg);
        if (c == 'p') path = optarg;
        if (c == 's') seconds = atof(optarg);
        if (c == 'd') options.precision = MLFF_FLOAT64;
        if (c == '?') return 2;
    }
    bench_check(cpu_path_choose(path, false, &options.cpu_path));
    double speed = product_speed(options.cpu_path);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int wanted = optind == argc;
        for (int a = optind; a < argc; a++) wanted = wanted || strcmp(argv[a], cases[k].name) == 0;
        if (!wanted) continue;
        run(cases[k].name, cases[k].builder, cases[k].n_atoms, cases[k].n, 128, 3, &options, seconds, speed);
        run(cases[k].name, cases[k].builder, cases[k].n_atoms, cases[k].n, 64, 2, &options, seconds, speed);
    }
    return 0;
}
