// SPDX-License-Identifier: MIT
// bench_ani.c: time of one energy + forces call of an ensemble of ANI-2x's shape (8 members; untrained, or a model file) on
// the CPU, neighbor list included, positions moved before each call. One JSON line a case.
// Usage: bench_ani [--model FILE] [--threads N] [--path avx512|avx2|portable] [--members 0,3] [--stages] [CASE …]
//        bench_ani --xyz CASE     its structure as extended XYZ
// Cases: benzene hcno64 water64 water192 water1000 hcno1000
#include <getopt.h>

#include "bench_calls.h"

// The structure of liquid water with its atoms renamed to H, C, N, O at organic matter's rates (H 1/2, C 1/3): what the
// columns of four species cost at the density of a liquid.
static void mix_elements(mlff_system *system)
{
    static const int elements[12] = {1, 6, 1, 6, 1, 7, 1, 6, 1, 8, 1, 6};
    for (int i = 0; i < system->n_atoms; i++) system->species[i] = elements[i % 12];
}

typedef struct bench_case {
    const char *name, *builder;
    int n_atoms, mixed, n_calls;
} bench_case;

static mlff_system *structure_of(const bench_case *c)
{
    mlff_system *system;
    bench_check(mlff_system_build(c->builder, c->n_atoms, 0, &system));
    if (c->mixed) mix_elements(system);
    return system;
}

static void write_structure(const bench_case *c)
{
    mlff_system *system = structure_of(c);
    mlff_writer *writer;
    bench_check(mlff_writer_open("-", NULL, 0, &writer));
    bench_check(mlff_writer_write(writer, system, NULL));
    bench_check(mlff_writer_close(writer));
    mlff_system_destroy(system);
}

static void run(const bench_case *c, mlff_evaluator *evaluator, int with_stages)
{
    mlff_system *system = structure_of(c);
    bench_calls(&(bench_series){c->name, 5, c->n_calls, 0.02, with_stages}, evaluator, system);
    mlff_system_destroy(system);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"model", required_argument, NULL, 'm'},
                                                 {"threads", required_argument, NULL, 't'},
                                                 {"path", required_argument, NULL, 'p'},
                                                 {"members", required_argument, NULL, 'e'},
                                                 {"stages", no_argument, NULL, 's'},
                                                 {"xyz", required_argument, NULL, 'x'},
                                                 {0}};
    static const bench_case cases[] = {{"benzene", "benzene", 0, 0, 1000}, {"hcno64", "water", 63, 1, 200},
                                       {"water64", "water", 63, 0, 200},   {"water192", "water", 192, 0, 60},
                                       {"water1000", "water", 999, 0, 10}, {"hcno1000", "water", 999, 1, 10}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    const char *path = NULL, *xyz = NULL;
    int with_stages = 0;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 'm') path = optarg;
        if (c == 't') options.n_threads = atoi(optarg);
        if (c == 'p') options.cpu_path = optarg;
        if (c == 'e') options.members = optarg;
        if (c == 's') with_stages = 1;
        if (c == 'x') xyz = optarg;
        if (c == '?') return 2;
    }
    for (size_t k = 0; xyz && k < sizeof cases / sizeof *cases; k++)
        if (strcmp(xyz, cases[k].name) == 0) write_structure(&cases[k]);
    if (xyz) return 0;
    mlff_model *model;
    mlff_evaluator *evaluator;
    bench_check(path ? mlff_model_load(path, &model) : mlff_model_create("ani", NULL, &model));
    bench_check(mlff_evaluator_create(model, &options, &evaluator));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int wanted = optind == argc;
        for (int a = optind; a < argc; a++) wanted |= strcmp(argv[a], cases[k].name) == 0;
        if (wanted) run(&cases[k], evaluator, with_stages);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return 0;
}
