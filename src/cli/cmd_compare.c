// SPDX-License-Identifier: MIT
// cmd_compare.c: mlff compare: is B faster than A?
#include <math.h>

#include "base/base.h"
#include "cli.h"

static const cli_option options[] = {
    {"noise-floor", 0, "PCT",
     "changes below this are not called faster or slower, % (1, assumed). Measure it: compare two sets\n"
     "of runs of the same thing, and give what they differ by"},
    {"margin", 0, "PCT", "\"same\" means that the whole interval lies within this, % (1)"},
    {"across", 0, NULL, "compare also what is not comparable (another machine, other work)"},
    {"json", 0, NULL, "as JSON on standard output"},
    {0}};

enum { CLI_SLOWER = 3, CLI_UNCLEAR = 4 };

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    mlff_profile **runs[2] = {NULL, NULL};
    int n[2] = {0, 0}, n_rows;
    mlff_comparison *comparison = NULL;
    char *text = NULL;
    int verdict = CLI_GOOD;
    mlff_comparison_options used = mlff_comparison_options_default();
    used.margin = cli_number(arguments, "margin", 1e-6, 100, 1) / 100;
    double noise_floor = cli_number(arguments, "noise-floor", 0, 100, 1) / 100;
    if (cli_given(arguments, "noise-floor")) used.noise_floor = noise_floor;
    used.across = cli_given(arguments, "across");
    if (arguments->failed) return CLI_USAGE;

    if (cli_outputs_collide(arguments->positional[0], arguments->positional[1]))
        return cli_usage_error(arguments, "A and B are one file, '%s': there is nothing to compare", arguments->positional[0]);
    for (int k = 0; k < 2; k++) MLFF_TRY(mlff_profile_load_runs(arguments->positional[k], &runs[k], &n[k]));
    MLFF_TRY(mlff_profile_compare((const mlff_profile *const *)runs[0], n[0], (const mlff_profile *const *)runs[1], n[1], &used,
                                  &comparison));
    MLFF_TRY(cli_given(arguments, "json") ? mlff_comparison_json(comparison, &text) : mlff_comparison_text(comparison, &text));
    fputs(text, stdout);
    mlff_change change = mlff_comparison_rows(comparison, &n_rows)[0].change;
    verdict = change == MLFF_SLOWER ? CLI_SLOWER : change == MLFF_UNCLEAR ? CLI_UNCLEAR : CLI_GOOD;
done:
    mlff_text_free(text);
    mlff_comparison_destroy(comparison);
    for (int k = 0; k < 2; k++) mlff_profile_destroy_runs(runs[k], n[k]);
    return status == MLFF_OK ? verdict : cli_exit(status);
}

const cli_command compare_command = {
    .name = "compare",
    .summary = "is B faster than A? two sets of saved runs",
    .usage = "A.json B.json [--noise-floor PCT] [--margin PCT] [--across] [--json]",
    .details =
        "Compares the runs of two files (mlff profile --runs 5 -o A.json). A run is one number, its median step, since steps of\n"
        "one run are not independent; the p-value is that of the exact permutation test of runs, the interval that test\n"
        "inverted. Fewer than four runs a side can tell nothing at 95 %. Stages are compared each, corrected for their number.\n"
        "What did other work, or ran on another machine, is refused, and told why.\n"
        "Exit status: 0 the same or faster, 3 slower, 4 unclear, 1 failed or not comparable.",
    .examples = "mlff profile painn.safetensors --system silicon --runs 5 -o before.json\n"
                "mlff compare before.json after.json || echo \"slower, or not certain\"",
    .options = options,
    .min_positional = 2,
    .max_positional = 2,
    .run = run,
};
