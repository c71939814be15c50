// SPDX-License-Identifier: MIT
// cmd_compare.c: mlff compare: is B faster than A?
#include <math.h>

#include "base/base.h"
#include "compare_runs.h"

static const cli_option options[] = {
    {"run", 0, "COMMAND", "given twice: run both commands, interleaved, and compare them, in place of files"},
    {"rounds", 0, "N",
     "with --run: rounds of both commands, after one that is not counted (10; at least 5). Up to four times\n"
     "as many follow while the interval is wider than half of --margin and so many can narrow it to that"},
    {"repeat", 0, "N",
     "with --run: executions of each command in a round (as many as fit in 0.5 s of processor\ntime, 8 at most)"},
    {"noise-floor", 0, "PCT",
     "changes below this are not called faster or slower, % (1, assumed). Measure it: compare two sets\n"
     "of runs of the same thing, and give what they differ by"},
    {"margin", 0, "PCT", "\"same\" means that the whole interval lies within this, % (1)"},
    {"across", 0, NULL, "compare also what is not comparable (another machine, other work)"},
    {"json", 0, NULL, "as JSON on standard output"},
    {0}};

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    mlff_profile **runs[2] = {NULL, NULL};
    int n[2] = {0, 0};
    mlff_comparison *comparison = NULL;
    int verdict = CLI_GOOD;
    mlff_comparison_options used = mlff_comparison_options_default();
    used.margin = cli_number(arguments, "margin", 1e-6, 100, 1) / 100;
    double noise_floor = cli_number(arguments, "noise-floor", 0, 100, 1) / 100;
    if (cli_given(arguments, "noise-floor")) used.noise_floor = noise_floor;
    used.across = cli_given(arguments, "across");
    const char *const commands[] = {cli_each(arguments, "run", 0), cli_each(arguments, "run", 1)};
    int n_rounds = (int)cli_int(arguments, "rounds", 1, 200, 10), n_repeats = (int)cli_int(arguments, "repeat", 1, 1000, 0);
    if (arguments->failed) return CLI_USAGE;
    if (commands[0] && (!commands[1] || cli_each(arguments, "run", 2) || arguments->n_positional > 0))
        return cli_usage_error(arguments, "--run is given twice, and excludes files");
    if (!commands[0] && (arguments->n_positional != 2 || cli_given(arguments, "rounds") || cli_given(arguments, "repeat")))
        return cli_usage_error(arguments,
                               "two files of runs are compared, or two commands: --run A --run B [--rounds N] [--repeat N]");
    if (n_rounds > COMPARE_PAIRS / (n_repeats > 0 ? n_repeats : 1))
        return cli_usage_error(arguments, "--rounds %d times --repeat %d: %d executions of a command at most", n_rounds,
                               n_repeats, COMPARE_PAIRS);
    if (commands[0]) return compare_runs(commands, n_rounds, n_repeats, &used, cli_given(arguments, "json"));

    if (cli_outputs_collide(arguments->positional[0], arguments->positional[1]))
        return cli_usage_error(arguments, "A and B are one file, '%s': there is nothing to compare", arguments->positional[0]);
    for (int k = 0; k < 2; k++) MLFF_TRY(mlff_profile_load_runs(arguments->positional[k], &runs[k], &n[k]));
    MLFF_TRY(mlff_profile_compare((const mlff_profile *const *)runs[0], n[0], (const mlff_profile *const *)runs[1], n[1], &used,
                                  &comparison));
    verdict = compare_report(comparison, cli_given(arguments, "json"), &status);
done:
    mlff_comparison_destroy(comparison);
    for (int k = 0; k < 2; k++) mlff_profile_destroy_runs(runs[k], n[k]);
    return status == MLFF_OK ? verdict : cli_exit(status);
}

const cli_command compare_command = {
    .name = "compare",
    .summary = "is B faster than A? two sets of saved runs, or two commands",
    .usage = "A.json B.json | --run 'COMMAND A' --run 'COMMAND B' [--rounds N] [--repeat N]\n"
             " [--noise-floor PCT] [--margin PCT] [--across] [--json]",
    .details =
        "Compares the runs of two files (mlff profile --runs 5 -o A.json), or runs two commands and compares them. The commands\n"
        "are interleaved, so that changes of the machine affect both alike. Commands that are mlff profile are compared by "
        "their\n"
        "profiles, others by their time and processor time; commands shorter than 0.25 s run several times a round. Each run\n"
        "counts as one number, its median step, because the steps of one run are not independent. Mean and tail are judged\n"
        "separately. The ratio is Hodges and Lehmann's estimate, which one outlier does not change. Interval and p are those of\n"
        "the exact rank-sum test, or of the signed-rank test for six or more pairs of --run. At 95 % at least four runs a side\n"
        "are needed. If the runs differ much, a stricter test (99 %; pairs 99.5 %) needs five runs a side or nine pairs. Stages\n"
        "are compared one by one, corrected for their number. Runs of other work or of another machine are refused, with the\n"
        "reason. Exit status: 0 the same or faster, 3 slower, 4 unclear, 1 failed or not comparable.",
    .examples = "mlff profile painn.safetensors --system silicon --runs 5 -o before.json\n"
                "mlff compare --run 'mlff profile a.safetensors' --run 'mlff profile b.safetensors' --rounds 5\n"
                "mlff compare before.json after.json || echo \"slower, or not certain\"",
    .options = options,
    .min_positional = 0,
    .max_positional = 2,
    .run = run,
};
