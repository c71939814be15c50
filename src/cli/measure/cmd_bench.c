// SPDX-License-Identifier: MIT
// cmd_bench.c: mlff bench: the table of its subcommands.
#include <string.h>

#include "bench.h"

static const cli_option options[] = {
    {"model", 0, "MODEL",
     "an implementation, once for each: a model file, with :float32, :float64, :tf32, :bf16, :cpu, :cuda, :cuda1,\n"
     ":avx512, :amx, :avx2, :portable, :t4 (threads) behind it"},
    {"input", 0, "FILE",
     "frames of this file, in place of --system, from the first again after the last; labels are compared too"},
    CLI_READER_OPTIONS,
    CLI_SYSTEM_OPTIONS,
    {"trajectory", 0, "NAME", "compare: thermal displacements of --system, or md by the first model, 10 steps a frame (thermal)"},
    {"rounds", 0, "N", "compare, precision: interleaved rounds (20)"},
    {"frames", 0, "N", "compare, precision: frames a round, new ones in each (5)"},
    {"energy-tolerance", 0, "MEV", "compare: largest difference that is agreement, meV/atom (0.1)"},
    {"force-tolerance", 0, "MEV", "compare: of a force component, meV/Å (1; more where forces are larger than 1 eV/Å)"},
    {"noise-floor", 0, "PCT", "compare: changes below this are not called faster or slower, % (1)"},
    {"batch-sizes", 0, "LIST", "batch: structures in one call (1,2,4,8,16,32,64,128,256)"},
    {"n-calls", 0, "N", "batch, run, example: calls that are measured (30, of a batch as many as fit into 2 s; example 50)"},
    {"n-trajectory-steps", 0, "N", "example: steps of its trajectory (100)"},
    {"html", 0, "FILE", "compare: write a page with the comparison and a profile of each"},
    {"output", 'o', "FILE", "compare, run, example: write the profiles as JSON"},
    {"temperature", 0, "K", "compare, precision: of thermal displacements (300)"},
    {"seed", 0, "S", "compare, precision: of displacements (0)"},
    {"device", 0, "DEVICE", "compare, batch: default device of implementations: auto, cpu or cuda:0 (cpu)"},
    {"threads", 0, "N", "default CPU threads of implementations (all cores this process may use)"},
    {"json", 0, NULL, "as JSON on standard output"},
    {0}};

#define SYSTEM " input input-format topology system n-atoms "
static const struct {
    const char *name, *options; // those that it has, each between blanks
    int (*run)(cli_arguments *arguments);
} commands[] = {
    {"compare",
     " model trajectory rounds frames energy-tolerance force-tolerance noise-floor html output temperature seed device threads "
     "json" SYSTEM,
     bench_compare},
    {"batch", " model batch-sizes n-calls device threads json" SYSTEM, bench_batch},
    {"precision", " model rounds frames temperature seed device threads json" SYSTEM, bench_precision},
    {"list", " ", bench_list},
    {"run", " n-calls threads output json ", bench_run},
    {"example", " n-calls n-trajectory-steps threads output ", bench_example},
};

// The first option given that is none of `known`, or NULL.
static const char *foreign_option(const cli_arguments *arguments, const char *known)
{
    for (int i = 0; i < arguments->n_given; i++) {
        const char *name = arguments->command->options[arguments->given_row[i]].name;
        char word[64];
        snprintf(word, sizeof word, " %s ", name);
        if (!strstr(known, word)) return name;
    }
    return NULL;
}

static int run(cli_arguments *arguments)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(arguments->positional[0], commands[i].name) != 0) continue;
        const char *foreign = foreign_option(arguments, commands[i].options);
        if (foreign) return cli_usage_error(arguments, "%s has no option --%s", commands[i].name, foreign);
        if (strcmp(commands[i].name, "list") == 0 || strcmp(commands[i].name, "example") == 0)
            if (arguments->n_positional > 1)
                return cli_usage_error(arguments, "%s takes no argument '%s'", commands[i].name, arguments->positional[1]);
        return commands[i].run(arguments);
    }
    return cli_usage_error(arguments, "'%s' is none of compare, batch, precision, list, run, example", arguments->positional[0]);
}

const cli_command bench_command = {
    .name = "bench",
    .summary = "implementations against each other, batches, a registry of workloads",
    .usage = "compare --model A --model B... [--input FILE | --system NAME [--trajectory md]] [--html PAGE] [OPTIONS]\n"
             " | batch MODEL [--batch-sizes 1,2,4] | precision MODEL | list | run [NAME...] [-o FILE] | example [-o FILE]",
    .details =
        "compare  runs implementations, interleaved, on the same new frames, and compares their energies and forces with those\n"
        "         of the first. A wrong result of the same model is an error; differences of other models are shown and not\n"
        "         judged. Exit status: 0 same or faster, 3 slower, 4 unclear, 1 wrong.\n"
        "batch    computes 1, 2, 4, ... structures in one call: time and memory of each, and a comparison with separate calls.\n"
        "precision  runs the model in every precision that works here (float64, float32; on a GPU, or with AMX, tf32;\n"
        "         bf16 on a GPU, of Orb on the CPU too): speed and error of forces side by side, against float64 on the CPU.\n"
        "list     lists the workloads, implementations and devices that can be measured here.\n"
        "run      measures workloads of that list (all of them if none is named) on every device that works.\n"
        "example  is a worked example with new models: one function, a trajectory, three model sizes, latency and memory from\n"
        "         50 to 1000 atoms.\n"
        "Without --input and --system, compare, batch and precision take silicon, or, of the built-in systems whose elements\n"
        "the first model knows, the first one with the most elements; with --n-atoms one that can have different sizes.\n"
        "Of run and example that end early (Ctrl-C, or a failure) the profiles made are kept. If the file of -o is there\n"
        "already, it stays as it was, and they are in NAME-partial.json.",
    .examples = "mlff bench compare --model painn.safetensors --model painn.safetensors:float64\n"
                "mlff bench compare painn.safetensors:avx2 painn.safetensors:portable --system silicon --n-atoms 64\n"
                "mlff bench compare ani.safetensors painn.safetensors --system ethanol --trajectory md --html report.html\n"
                "mlff bench batch painn.safetensors --system silicon --n-atoms 8 --batch-sizes 1,2,4,8,16\n"
                "mlff bench precision painn.safetensors --system silicon --n-atoms 216\n"
                "mlff bench example --n-calls 50 --n-trajectory-steps 100",
    .options = options,
    .min_positional = 1,
    .max_positional = 40,
    .run = run,
};
