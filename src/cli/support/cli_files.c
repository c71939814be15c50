// SPDX-License-Identifier: MIT
// cli_files.c: the files of a command line. No output may be the same file as an input or as another output; this is checked for
// every command before anything is read or computed.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"

// An option whose value is shown as FILE in the help is an output unless it is listed here; these and MODEL are inputs.
static const char *const input_options[] = {"restart", "input",  "validation", "test",     "trained-on", "config",
                                            "system",  "labels", "teacher",    "topology", NULL};

const char *const cli_extxyz[] = {".extxyz", ".xyz", NULL};
const char *const cli_models[] = {".safetensors", NULL};

// Outputs that may replace the input of another option: a run that continues writes its next restart file over the last one.
static const struct {
    const char *input, *output;
} replaceable[] = {{"restart", "checkpoint"}};

// Outputs that may be standard output; beside the others the command prints for people.
static const struct {
    const char *command, *output;
} streamed[] = {{"eval", "output"},    {"eval", "json"},     {"md", "output"},        {"relax", "output"},
                {"profile", "output"}, {"report", "output"}, {"check", "export-json"}};

typedef struct named_file {
    char label[48]; // "-o", "--trace" or "the input"
    const char *option;
    const char *path;
    bool output;
} named_file;

static bool is_listed(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

static bool may_replace(const named_file *output, const named_file *input)
{
    for (size_t k = 0; input->option && k < sizeof replaceable / sizeof *replaceable; k++)
        if (strcmp(input->option, replaceable[k].input) == 0 && strcmp(output->option, replaceable[k].output) == 0) return true;
    return false;
}

static bool may_be_streamed(const char *command, const char *output)
{
    for (size_t k = 0; k < sizeof streamed / sizeof *streamed; k++)
        if (strcmp(command, streamed[k].command) == 0 && strcmp(output, streamed[k].output) == 0) return true;
    return false;
}

// The file of an option, if its value is a file.
static bool file_of_option(const cli_option *option, const char *value, named_file *file)
{
    if (!value || !option->value) return false;
    const bool input = strcmp(option->value, "MODEL") == 0 || is_listed(option->name, input_options);
    if (!input && strcmp(option->value, "FILE") != 0) return false;
    *file = (named_file){.option = option->name, .path = value, .output = !input};
    if (option->letter)
        snprintf(file->label, sizeof file->label, "-%c", option->letter);
    else
        snprintf(file->label, sizeof file->label, "--%s", option->name);
    return true;
}

static bool is_stdout(const char *path)
{
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", NULL};
    return is_listed(path, names);
}

void cli_files_name_stdout(cli_arguments *arguments)
{
    named_file file;
    for (int i = 0; i < arguments->n_given; i++) {
        const int row = arguments->given_row[i];
        if (!file_of_option(&arguments->command->options[row], arguments->given_value[i], &file) || !file.output) continue;
        if (!is_stdout(file.path)) continue;
        if (arguments->values[row] == arguments->given_value[i]) arguments->values[row] = "-";
        arguments->given_value[i] = "-";
    }
}

bool cli_outputs_collide(const char *a, const char *b)
{
    return a && b && strcmp(a, "-") != 0 && strcmp(b, "-") != 0 && !base_is_stream(a) && base_same_file(a, b);
}

// As cli_outputs_collide, for an input that may be a model known by name, or have settings behind colons (model:float64:cpu).
bool cli_overwrites(const char *output, const char *input)
{
    char path[PATH_MAX];
    if (cli_outputs_collide(output, input)) return true;
    if (!output || !input || strcmp(output, "-") == 0 || base_is_stream(output)) return false;
    char *name = base_strdup(input);
    bool same = false;
    while (name && !same) {
        same = mlff_model_find(name, path, sizeof path) == MLFF_OK && base_same_file(output, path);
        char *colon = strrchr(name, ':');
        if (!colon) break;
        *colon = 0;
    }
    base_free(name);
    return same;
}

static int check_pair(const cli_arguments *arguments, const named_file *a, const named_file *b)
{
    if (a->output && b->output) {
        if (!cli_outputs_collide(a->path, b->path)) return CLI_GOOD;
        return cli_usage_error(arguments, "%s and %s are one file, '%s'; give another to one of them", a->label, b->label,
                               a->path);
    }
    if (!a->output && !b->output) return CLI_GOOD;
    const named_file *output = a->output ? a : b, *input = a->output ? b : a;
    if (may_replace(output, input) || !cli_overwrites(output->path, input->path)) return CLI_GOOD;
    return cli_usage_error(arguments, "%s would overwrite the input '%s'; give it another name", output->label, input->path);
}

// All files of a command line, those of options first; NULL without memory. The caller frees them.
static named_file *list_files(const cli_arguments *arguments, int *n_out)
{
    int n = 0;
    named_file *files = base_alloc((size_t)(CLI_MAX_GIVEN + arguments->n_positional), sizeof *files, "file names");
    if (!files) return NULL;
    for (int i = 0; i < arguments->n_given; i++)
        n += file_of_option(&arguments->command->options[arguments->given_row[i]], arguments->given_value[i], &files[n]);
    for (int i = 0; i < arguments->n_positional; i++)
        files[n++] = (named_file){.label = "the input", .path = arguments->positional[i]};
    *n_out = n;
    return files;
}

int cli_files_check(const cli_arguments *arguments)
{
    int n = 0, exit_status = CLI_GOOD;
    named_file *files = list_files(arguments, &n);
    if (!files) return cli_exit(MLFF_ERR_MEMORY);
    const int n_options = n - arguments->n_positional; // inputs are not compared with each other
    for (int i = 0; i < n_options && exit_status == CLI_GOOD; i++) {
        if (files[i].output && strcmp(files[i].path, "-") == 0 && !may_be_streamed(arguments->command->name, files[i].option))
            exit_status = cli_usage_error(arguments, "%s needs a file, not standard output", files[i].label);
        for (int k = i + 1; k < n && exit_status == CLI_GOOD; k++) {
            const bool repeated = files[k].option && strcmp(files[i].option, files[k].option) == 0; // the last one is used
            if (!repeated) exit_status = check_pair(arguments, &files[i], &files[k]);
        }
    }
    base_free(files);
    return exit_status;
}

int cli_files_check_another(const cli_arguments *arguments, const char *option, const char *path, bool with_outputs)
{
    int n = 0, exit_status = CLI_GOOD;
    named_file another = {0}, *files = list_files(arguments, &n);
    if (!files) return cli_exit(MLFF_ERR_MEMORY);
    for (const cli_option *row = arguments->command->options; row->name; row++)
        if (strcmp(row->name, option) == 0) (void)file_of_option(row, path, &another);
    for (int i = 0; i < n && exit_status == CLI_GOOD; i++)
        if ((with_outputs || !files[i].output) && (!files[i].option || strcmp(files[i].option, option) != 0))
            exit_status = check_pair(arguments, &another, &files[i]);
    base_free(files);
    return exit_status == CLI_GOOD ? cli_exit(cli_output_check(path)) : exit_status;
}

int cli_format_check(cli_arguments *arguments, const char *path)
{
    const char *format = cli_text(arguments, "format", NULL);
    if (!path) return format ? cli_usage_error(arguments, "--format needs -o FILE") : CLI_GOOD;
    if (base_is_folder(path)) return CLI_GOOD; // refused later
    if (mlff_file_format_check(path, format) != MLFF_OK) return cli_usage_error(arguments, "-o %s (--format)", mlff_last_error());
    return CLI_GOOD;
}

int cli_suffix_check(const cli_arguments *arguments, const char *option, const char *path, const char *const *suffixes)
{
    char known[128] = "";
    if (!path || strcmp(path, "-") == 0 || base_is_stream(path) || base_is_folder(path))
        return CLI_GOOD; // a folder is refused later
    for (const char *const *suffix = suffixes; *suffix; suffix++) {
        const size_t length = strlen(path), tail = strlen(*suffix), used = strlen(known);
        if (length > tail && strcmp(path + length - tail, *suffix) == 0) return CLI_GOOD;
        snprintf(known + used, sizeof known - used, "%s%s", used ? " or " : "", *suffix);
    }
    return cli_usage_error(arguments, "%s '%s': the name must end in %s", option, path, known);
}

mlff_status cli_temporary_folder(const char *kind, const char *purpose, char *folder)
{
    const char *set = getenv("TMPDIR"), *parent = set && *set ? set : P_tmpdir;
    if (snprintf(folder, PATH_MAX, "%s/mlff-%s-XXXXXX", parent, kind) >= PATH_MAX - 16)
        return mlff_fail(MLFF_ERR_IO, "cannot make a folder for %s: TMPDIR is too long", purpose);
    if (!mkdtemp(folder))
        return mlff_fail(MLFF_ERR_IO, "cannot make a folder in %s for %s: %s; set TMPDIR to one that can be written", parent,
                         purpose, strerror(errno));
    return MLFF_OK;
}
