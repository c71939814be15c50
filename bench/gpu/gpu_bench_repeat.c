// SPDX-License-Identifier: MIT
// gpu_bench_repeat.c: whether a GPU's results depend on what was computed before, or on what else the GPU does.
//
// Kernels of a step overlap, so that an error in their order shows only when their timing changes: in the first call of an evaluator, after
// a call with another number of atoms, or beside other processes. Evaluators are made again and again; each computes cases in random
// order. Forces are compared with those of an evaluator that has computed only that case ("wrong": they differ by more than rounding) and
// with the evaluator's own first result of the case ("different": other bits). One line of JSON for each model and precision. Run several
// at the same time on one GPU:
//
//   for k in 1 2 3; do gpu_bench_repeat --seed $k --seconds 20 & done; wait
//
// Usage: gpu_bench_repeat [--seconds S] [--seed N] [--model painn|ani|orb-v2] [--largest N]. Exit status 1 if a result was wrong or different.
#include <math.h>

#include "base/random.h"
#include "timing.h"

typedef struct test_case {
    const char *system;
    int n_atoms, copies, given_pairs;
} test_case;

static const test_case cases[] = {
    {"benzene", 0, 1, 0},   {"ethanol", 0, 1, 1},    {"caffeine", 0, 1, 0},   {"water", 24, 1, 0},     {"silicon", 64, 1, 0},
    {"silicon", 64, 1, 1},  {"water", 192, 1, 0},    {"silicon", 216, 1, 1},  {"water", 300, 1, 0},    {"silicon", 512, 1, 0},
    {"silicon", 512, 1, 1}, {"water", 600, 1, 1},    {"water", 900, 1, 0},    {"silicon", 1000, 1, 0}, {"silicon", 1000, 1, 1},
    {"water", 1500, 1, 0},  {"silicon", 1728, 1, 1}, {"silicon", 2744, 1, 0}, {"silicon", 4096, 1, 1}, {"ethanol", 0, 16, 0},
    {"benzene", 0, 40, 0},  {"benzene", 0, 256, 0},  {"ethanol", 0, 100, 1},  {"water", 192, 4, 0}};
enum { N_CASES = sizeof cases / sizeof *cases, CALLS = 48 };

typedef struct prepared {
    systems_batch in;
    mlff_neighbors *list;
    mlff_pairs pairs;
    int n_atoms;
    double *expected, *first, rms; // [n_atoms][3]; first: of the current evaluator, NAN: none yet
} prepared;

static void prepare(const test_case *c, double cutoff, prepared *p)
{
    *p = (prepared){0};
    p->n_atoms = perturbed_batch(c->system, c->n_atoms, c->copies, &p->in);
    if (c->given_pairs) {
        must(mlff_neighbors_create(cutoff, 0.0, &p->list), "pairs");
        must(mlff_neighbors_update(p->list, &p->in.batch), "pairs");
        mlff_neighbors_get(p->list, &p->pairs, NULL, NULL);
        p->pairs.symmetric = 1;
        p->in.batch.pairs = &p->pairs;
    }
    p->expected = need(3 * (size_t)p->n_atoms, sizeof *p->expected);
    p->first = need(3 * (size_t)p->n_atoms, sizeof *p->first);
}

static void release(prepared *p)
{
    if (p->list) mlff_neighbors_destroy(p->list);
    systems_batch_free(&p->in);
    free(p->expected);
    free(p->first);
}

static mlff_evaluator *on_gpu(const mlff_model *model, mlff_precision precision)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *e;
    options.device.kind = MLFF_CUDA;
    options.precision = precision;
    must(mlff_evaluator_create(model, &options, &e), "evaluator");
    return e;
}

static void compute(mlff_evaluator *e, const prepared *p, double *forces)
{
    double *energies = need((size_t)p->in.batch.n_systems, sizeof *energies);
    must(mlff_evaluator_compute(e, &p->in.batch, &(mlff_results){.energies = energies, .forces = forces}), "compute");
    free(energies);
}

// Largest difference relative to the root mean square of the expected forces.
static double difference(const prepared *p, const double *forces)
{
    double most = 0;
    for (int i = 0; i < 3 * p->n_atoms; i++) {
        const double d = fabs(forces[i] - p->expected[i]);
        if (!(d <= most)) most = isfinite(d) ? d : INFINITY;
    }
    return most / p->rms;
}

static bool knows(const mlff_model *model, const prepared *p)
{
    for (int i = 0; i < p->n_atoms; i++)
        if (!model->known[p->in.batch.species[i]]) return false;
    return true;
}

// Returns how many results were wrong or different.
static int run(const char *title, const mlff_model *model, mlff_precision precision, double tolerance, double seconds,
               uint64_t seed, int largest)
{
    prepared *all = need(N_CASES, sizeof *all);
    int n = 0, of[N_CASES], calls = 0, wrong = 0, different = 0, evaluators = 0, worst_case = -1;
    double worst = 0, *forces = NULL;
    size_t most = 0;
    for (int k = 0; k < N_CASES; k++) {
        prepare(cases + k, model->cutoff, all + n);
        if (all[n].n_atoms > largest || !knows(model, all + n)) {
            release(all + n);
            continue;
        }
        mlff_evaluator *fresh = on_gpu(model, precision);
        compute(fresh, all + n, all[n].first);
        compute(fresh, all + n, all[n].expected);
        compute(fresh, all + n, all[n].expected); // by now nothing is left of the first call
        for (int i = 0; i < 3 * all[n].n_atoms; i++) all[n].rms += all[n].expected[i] * all[n].expected[i];
        all[n].rms = sqrt(all[n].rms / (3.0 * all[n].n_atoms));
        calls += 3;
        different += memcmp(all[n].first, all[n].expected, sizeof(double) * 3 * (size_t)all[n].n_atoms) != 0;
        const double d = difference(all + n, all[n].first);
        wrong += d > tolerance;
        if (d > worst) worst = d, worst_case = k;
        mlff_evaluator_destroy(fresh);
        if ((size_t)all[n].n_atoms > most) most = (size_t)all[n].n_atoms;
        of[n++] = k;
    }
    forces = need(3 * most, sizeof *forces);
    const int64_t end = mlff_clock_ns() + (int64_t)(1e9 * seconds);
    for (uint64_t draw = 0; mlff_clock_ns() < end; evaluators++) {
        mlff_evaluator *e = on_gpu(model, precision);
        for (int k = 0; k < n; k++) all[k].first[0] = NAN;
        for (int call = 0; call < CALLS && mlff_clock_ns() < end; call++, calls++) {
            const int k = (int)(base_random_uniform(seed, 1, draw++) * n);
            prepared *p = all + k;
            const size_t bytes = sizeof(double) * 3 * (size_t)p->n_atoms;
            compute(e, p, forces);
            const double d = difference(p, forces);
            wrong += d > tolerance;
            if (d > worst) worst = d, worst_case = of[k];
            if (isnan(p->first[0]))
                memcpy(p->first, forces, bytes);
            else
                different += memcmp(p->first, forces, bytes) != 0;
        }
        mlff_evaluator_destroy(e);
    }
    printf("{\"model\": \"%s\", \"precision\": \"%s\", \"calls\": %d, \"evaluators\": %d, \"wrong\": %d, \"different_bits\": %d, "
           "\"largest_difference\": %.2e",
           title, precision == MLFF_TF32 ? "tf32" : "float32", calls, evaluators + n, wrong, different, worst);
    if (worst_case >= 0)
        printf(", \"in\": \"%d x %s %d%s\"", cases[worst_case].copies, cases[worst_case].system, cases[worst_case].n_atoms,
               cases[worst_case].given_pairs ? ", pairs given" : "");
    printf("}\n");
    fflush(stdout);
    for (int k = 0; k < n; k++) release(all + k);
    free(all);
    free(forces);
    return wrong + different;
}

int main(int n_arguments, char **arguments)
{
    double seconds = 20;
    uint64_t seed = 1;
    const char *only = NULL;
    int largest = INT32_MAX, bad = 0;
    for (int k = 1; k < n_arguments; k += 2) {
        const char *name = arguments[k], *value = k + 1 < n_arguments ? arguments[k + 1] : "";
        if (strcmp(name, "--seconds") == 0) {
            seconds = atof(value);
        } else if (strcmp(name, "--seed") == 0) {
            seed = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--model") == 0) {
            only = value;
        } else if (strcmp(name, "--largest") == 0) {
            largest = atoi(value);
        } else {
            fprintf(stderr, "usage: gpu_bench_repeat [--seconds S] [--seed N] [--model painn|ani|orb-v2] [--largest N]\n");
            return 2;
        }
    }
    // Tolerances relative to the rms force: more than kernels of other plans differ by.
    static const struct {
        const char *title, *architecture;
        mlff_setting settings[4];
    } models[] = {{"painn, 64 features", "painn", {{"n_features", "64"}, {"n_layers", "2"}, {"elements", "H,C,N,O,Si"}}},
                  {"painn, 128 features", "painn", {{"n_features", "128"}, {"n_layers", "3"}, {"elements", "H,C,N,O,Si"}}},
                  {"ani", "ani", {{"elements", "H,C,N,O"}}},
                  {"orb-v2", "orb-v2", {{0}}}};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        mlff_model *model;
        if (only && strcmp(only, models[m].architecture) != 0) continue;
        must(mlff_model_create(models[m].architecture, models[m].settings, &model), models[m].title);
        bad += run(models[m].title, model, MLFF_FLOAT32, 2e-4, seconds, seed, largest);
        if (strcmp(models[m].architecture, "ani") != 0) // float32 alone
            bad += run(models[m].title, model, MLFF_TF32, 5e-2, seconds, seed, largest);
        mlff_model_destroy(model);
    }
    return bad > 0;
}
