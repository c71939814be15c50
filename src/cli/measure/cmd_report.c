// SPDX-License-Identifier: MIT
// cmd_report.c: mlff report: saved profiles as a page for a browser, or as text.
#include <string.h>

#include "base/base.h"
#include "cli/support/cli.h"

static const cli_option options[] = {{"output", 'o', "FILE", "the page to write (profile.html); - is standard output"},
                                     {"title", 0, "TEXT", "of the page (the first profile's name)"},
                                     {"text", 0, NULL, "the reports as text on standard output, in place of a page"},
                                     {0}};

// Every run of every file, in order.
typedef struct collection {
    mlff_profile **profiles;
    size_t capacity;
    int n;
} collection;

static mlff_status collect(const char *path, collection *all)
{
    mlff_status status = MLFF_OK;
    mlff_profile **runs = NULL;
    int n = 0;
    MLFF_TRY(mlff_profile_load_runs(path, &runs, &n));
    MLFF_TRY(base_grow(&all->profiles, &all->capacity, (size_t)(all->n + n), sizeof *all->profiles, "runs"));
    memcpy(all->profiles + all->n, runs, (size_t)n * sizeof *runs);
    all->n += n;
    n = 0;
done:
    mlff_profile_destroy_runs(runs, n);
    return status;
}

static mlff_status write_texts(const collection *all)
{
    char *ranks = NULL;
    mlff_status status = mlff_profile_ranks_text((const mlff_profile *const *)all->profiles, all->n, cli_width(), &ranks);
    if (status == MLFF_OK && *ranks) printf("%s\n", ranks);
    mlff_text_free(ranks);
    for (int i = 0; i < all->n && status == MLFF_OK; i++) {
        char *text = NULL;
        status = mlff_profile_text(all->profiles[i], cli_width(), &text);
        if (status == MLFF_OK) printf("%s%s", i ? "\n" : "", text);
        mlff_text_free(text);
    }
    return status;
}

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    collection all = {0};
    base_output output = {0};
    char *text = NULL;
    int n_first = 0;
    const char *path = cli_text(arguments, "output", "profile.html");

    if (cli_given(arguments, "text") && cli_given(arguments, "output"))
        return cli_usage_error(arguments, "--text writes to standard output; it excludes -o");
    for (int i = 0; i < arguments->n_positional && !cli_given(arguments, "text"); i++) // also the default name
        if (cli_overwrites(path, arguments->positional[i]))
            return cli_usage_error(arguments, "-o would overwrite the input '%s'; give it another name",
                                   arguments->positional[i]);
    for (int i = 0; i < arguments->n_positional; i++) {
        MLFF_TRY(collect(arguments->positional[i], &all));
        if (i == 0) n_first = all.n;
    }
    if (cli_given(arguments, "text")) {
        MLFF_TRY(write_texts(&all));
        goto done;
    }
    MLFF_TRY(mlff_profile_html_compared((const mlff_profile *const *)all.profiles, all.n,
                                        arguments->n_positional == 2 ? n_first : 0, cli_text(arguments, "title", NULL), &text));
    MLFF_TRY(base_output_open(path, &output));
    fputs(text, output.file);
    MLFF_TRY(base_output_commit(&output));
    if (strcmp(path, "-") != 0) cli_print("%s: %d run%s; open it in a browser\n", path, all.n, base_plural(all.n));
done:
    if (output.file) base_output_abandon(&output);
    mlff_text_free(text);
    for (int i = 0; i < all.n; i++) mlff_profile_destroy(all.profiles[i]);
    base_free(all.profiles);
    return cli_exit(status);
}

const cli_command report_command = {
    .name = "report",
    .summary = "saved profiles as a page for a browser",
    .usage = "REPORT.json... [-o PAGE.html] [--title TEXT] [--text]",
    .details =
        "Writes one file that needs no network: latency over steps, histogram with percentiles, stages, memory with verdicts,\n"
        "what stands out, the environment, and the runs side by side where there are several. A REPORT holds one profile,\n"
        "or several as {\"runs\": [...]}. It can be read on a phone and printed.\n"
        "Two files are compared as mlff compare does. The file that MLFF_PROFILE named in a run of LAMMPS over MPI brings those\n"
        "of the other ranks, and the page a table of ranks with the load imbalance.",
    .examples = "mlff profile painn.safetensors --system silicon --n-atoms 64 -o silicon.json\n"
                "mlff report silicon.json -o silicon.html\n"
                "mlff report before.json after.json --title \"Before and after\" -o both.html",
    .options = options,
    .min_positional = 1,
    .max_positional = 1000,
    .run = run,
};
