// SPDX-License-Identifier: MIT
// bench_painn.c: time of one energy + forces call of an untrained PaiNN (F = 128, L = 3, 20 radial functions, 5 Å) on
// the CPU, neighbor list included, positions moved before each call. One JSON line a case.
// Usage: bench_painn [--threads N] [--path amx|avx512|avx2|portable] [--precision float32|tf32] [--stages] [CASE …]
// Cases: benzene si64 si512 si4096 water1000
#include <getopt.h>

#include "bench_calls.h"

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"threads", required_argument, NULL, 't'},
                                                 {"path", required_argument, NULL, 'p'},
                                                 {"precision", required_argument, NULL, 'r'},
                                                 {"stages", no_argument, NULL, 's'},
                                                 {0}};
    static const struct {
        const char *name, *builder;
        int n_atoms, n_calls;
    } cases[] = {{"benzene", "benzene", 0, 3000},
                 {"si64", "silicon", 64, 600},
                 {"si512", "silicon", 512, 60},
                 {"si4096", "silicon", 4096, 10},
                 {"water1000", "water", 999, 30}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    int with_stages = 0;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 't') options.n_threads = atoi(optarg);
        if (c == 'p') options.cpu_path = optarg;
        if (c == 'r') options.precision = strcmp(optarg, "tf32") == 0 ? MLFF_TF32 : MLFF_FLOAT32;
        if (c == 'r' && strcmp(optarg, "tf32") != 0 && strcmp(optarg, "float32") != 0) {
            fprintf(stderr, "bench_painn: unknown precision %s; float32 or tf32\n", optarg);
            return 2;
        }
        if (c == 's') with_stages = 1;
        if (c == '?') return 2;
    }
    mlff_model *model;
    mlff_evaluator *evaluator;
    bench_check(mlff_model_create("painn", NULL, &model));
    bench_check(mlff_evaluator_create(model, &options, &evaluator));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int wanted = optind == argc && k < 3;
        for (int a = optind; a < argc; a++) wanted |= strcmp(argv[a], cases[k].name) == 0;
        if (!wanted) continue;
        mlff_system *system;
        bench_check(mlff_system_build(cases[k].builder, cases[k].n_atoms, 0, &system));
        bench_calls(&(bench_series){cases[k].name, 10, cases[k].n_calls, 0.1, with_stages}, evaluator, system);
        mlff_system_destroy(system);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
    return 0;
}
