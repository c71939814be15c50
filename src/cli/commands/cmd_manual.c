// SPDX-License-Identifier: MIT
// cmd_manual.c: mlff manual: manual pages (roff, section 1), made from the tables that --help shows.
#include <limits.h>
#include <string.h>

#include "base/base.h"
#include "cli/support/cli.h"

static const cli_option options[] = {{"output", 'o', "FOLDER", "write all pages there, as mlff.1 and mlff-COMMAND.1"}, {0}};

// Text with what roff reads as its own masked, line by line.
static void put_text(FILE *file, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", file);
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else
            fputc(*text, file);
        start = *text == '\n';
    }
    if (!start) fputc('\n', file);
}

static void put_title(FILE *file, const char *page, const char *name, const char *summary)
{
    fprintf(file, ".TH %s 1 \"\" \"mlff %s\" \"MLFF Distiller\"\n.SH NAME\n%s \\- ", page, mlff_version(), name);
    put_text(file, summary);
}

static void put_options(FILE *file, const cli_option *table)
{
    for (; table->name; table++) {
        fputs(".TP\n", file);
        if (table->letter) fprintf(file, "\\fB\\-%c\\fR, ", table->letter);
        fputs("\\fB\\-\\-", file);
        for (const char *c = table->name; *c; c++) fputs(*c == '-' ? "\\-" : (char[2]){*c, 0}, file);
        fputs("\\fR", file);
        if (table->value) fprintf(file, " \\fI%s\\fR", table->value);
        fputc('\n', file);
        put_text(file, table->help);
    }
}

static void put_usage(FILE *file, const cli_command *command)
{
    fputs(".SH SYNOPSIS\n.nf\n", file);
    for (const char *line = command->usage; *line;) {
        const size_t length = strcspn(line, "\n");
        char text[512];
        if (*line == ' ') // goes on from the line before
            snprintf(text, sizeof text, "    %.*s", (int)length, line);
        else
            snprintf(text, sizeof text, "mlff %s %.*s", command->name, (int)length, line);
        put_text(file, text);
        line += length + (line[length] == '\n');
    }
    fputs(".fi\n", file);
}

static void put_examples(FILE *file, const char *examples)
{
    fputs(".SH EXAMPLES\n.nf\n", file);
    put_text(file, examples);
    fputs(".fi\n", file);
}

static void put_status(FILE *file)
{
    fputs(".SH EXIT STATUS\n0 good, 1 failed, 2 wrong usage, 130 interrupted (what was measured or written is kept).\n", file);
}

static void command_page(FILE *file, const cli_command *command)
{
    char page[64], name[64];
    snprintf(page, sizeof page, "MLFF-%s", command->name);
    for (char *c = page; *c; c++) *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    snprintf(name, sizeof name, "mlff-%s", command->name);
    put_title(file, page, name, command->summary);
    put_usage(file, command);
    if (command->details) {
        fputs(".SH DESCRIPTION\n", file);
        put_text(file, command->details);
    }
    fputs(".SH OPTIONS\n", file);
    put_options(file, command->options);
    put_options(file, cli_common_options);
    put_examples(file, command->examples);
    put_status(file);
    fputs(".SH SEE ALSO\n.BR mlff (1)\n", file);
}

static void main_page(FILE *file)
{
    put_title(file, "MLFF", "mlff", "machine-learned force fields: run, distil, measure");
    fputs(".SH SYNOPSIS\n\\fBmlff\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
          "Energies, forces and stress of atoms by machine\\-learned force fields, and where the time of a step goes. Units are "
          "eV, Å, fs, "
          "amu and K. Results go to standard output, progress and warnings to standard error.\n.SH COMMANDS\n",
          file);
    for (int k = 0; cli_commands[k]; k++) {
        fprintf(file, ".TP\n.BR mlff\\-%s (1)\n", cli_commands[k]->name);
        put_text(file, cli_commands[k]->summary);
    }
    fputs(".SH ENVIRONMENT\n.TP\n.B MLFF_MODEL_PATH\nfolders, separated by :, in which models are looked for by name\n"
          ".TP\n.B MLFF_CPU\ninstruction set of the CPU: avx512, amx, avx2 or portable\n"
          ".TP\n.B MLFF_GPU_TIMEOUT\nseconds after which a GPU that does not answer is given up\n",
          file);
    put_status(file);
}

static mlff_status save_page(const char *folder, const cli_command *command)
{
    mlff_status status = MLFF_OK;
    base_output output = {0};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/mlff%s%s.1", folder, command ? "-" : "", command ? command->name : "");
    MLFF_TRY(base_make_folder_of(path));
    MLFF_TRY(base_output_open(path, &output));
    if (command)
        command_page(output.file, command);
    else
        main_page(output.file);
    status = base_output_commit(&output);
done:
    return status;
}

static int run(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    const char *folder = cli_text(arguments, "output", NULL), *name = arguments->n_positional ? arguments->positional[0] : NULL;
    const cli_command *command = NULL;
    for (int k = 0; name && cli_commands[k]; k++)
        if (strcmp(cli_commands[k]->name, name) == 0) command = cli_commands[k];
    if (name && !command) return cli_usage_error(arguments, "'%s' is not a command", name);
    if (folder && name) return cli_usage_error(arguments, "-o writes all pages; leave out '%s'", name);
    if (folder) {
        status = save_page(folder, NULL);
        for (int k = 0; status == MLFF_OK && cli_commands[k]; k++) status = save_page(folder, cli_commands[k]);
    } else if (command) {
        command_page(stdout, command);
    } else {
        main_page(stdout);
    }
    return cli_exit(status);
}

const cli_command manual_command = {
    .name = "manual",
    .summary = "the manual page of a command, or all of them",
    .usage = "[COMMAND]\n-o FOLDER",
    .details = "Pages are for man(1). `make install` puts them where man looks for them.",
    .examples = "mlff manual md | man -l -\n"
                "mlff manual -o man",
    .options = options,
    .max_positional = 1,
    .run = run,
};
