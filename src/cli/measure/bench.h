/* SPDX-License-Identifier: MIT */
/* bench.h: what the subcommands of mlff bench share. */
#ifndef BENCH_H
#define BENCH_H

#include "cli/support/cli.h"

/* One implementation: a model file on a device in a precision. */
typedef struct bench_entry {
    char *name; /* as given: "painn.safetensors:float64" */
    char *path; /* of the model: the name without its settings */
    mlff_model *model;
    mlff_evaluator *evaluator;
    mlff_callable callable;
} bench_entry;
/* What an implementation is made with where it does not say. */
typedef struct bench_defaults {
    int threads;
    mlff_device device;
} bench_defaults;
/* Of --threads and --device. An exit status. */
int bench_defaults_get(cli_arguments *arguments, bench_defaults *defaults);
/* CLI_USAGE where --input comes with an option that says how frames are made. */
int bench_frames_check(const cli_arguments *arguments);
/* "MODEL[:float32|float64|tf32|bf16][:cpu|cuda|cuda0][:avx512|amx|avx2|portable][:tN]", the last ones in any order. */
mlff_status bench_entry_make(const char *text, const bench_defaults *defaults, bench_entry *entry);
void bench_entry_free(bench_entry *entry);

/* cli_input_make of --input or --system; without either a built-in system whose elements the implementation's model knows. An exit status. */
int bench_input_make(cli_arguments *arguments, const char *text, uint64_t seed, cli_input *input);

/* Adds to the text of an interruption whether what was measured is shown; any other status is passed on. */
mlff_status bench_interrupted(mlff_status status, const mlff_implementations *implementations);

int bench_compare(cli_arguments *arguments);
int bench_batch(cli_arguments *arguments);
int bench_precision(cli_arguments *arguments);
int bench_list(cli_arguments *arguments);
int bench_run(cli_arguments *arguments);
int bench_example(cli_arguments *arguments);

#endif
