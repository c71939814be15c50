// SPDX-License-Identifier: MIT
// cli_options.c: command lines against the table of a command, and the help that the same table gives.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli.h"

enum { FIRST_LONG = 1000, HELP = 2000, QUIET };

const cli_option cli_common_options[] = {
    {"quiet", 'q', NULL, "print only errors and warnings; files and the output of --json and - are still written"},
    {"help", 'h', NULL, "this help"},
    {0}};

static int count(const cli_command *command)
{
    int n = 0;
    while (command->options[n].name) n++;
    return n;
}

static void print_option(FILE *file, char letter, const char *name, const char *value, const char *text)
{
    char left[64], dash[8] = "    ";
    if (letter) snprintf(dash, sizeof dash, "-%c, ", letter);
    int width = snprintf(left, sizeof left, "  %s--%s%s%s", dash, name, value ? " " : "", value ? value : "");
    if (width < 32)
        fprintf(file, "%s%*s", left, 32 - width, "");
    else
        fprintf(file, "%s\n%32s", left, "");
    for (; *text; text++) {
        fputc(*text, file);
        if (*text == '\n') fprintf(file, "%32s", "");
    }
    fputc('\n', file);
}

static void print_indented(FILE *file, const char *lines)
{
    bool start = true;
    for (; *lines; lines++) {
        if (start) fputs("  ", file);
        fputc(*lines, file);
        start = *lines == '\n';
    }
    fputc('\n', file);
}

void cli_command_help(const cli_command *command, FILE *file)
{
    fprintf(file, "mlff %s: %s\n\nusage:\n", command->name, command->summary);
    for (const char *line = command->usage; line;) {
        const char *end = strchr(line, '\n');
        int length = end ? (int)(end - line) : (int)strlen(line);
        if (*line == ' ') // goes on from the line before
            fprintf(file, "  %*s%.*s\n", (int)strlen(command->name) + 6, "", length - 1, line + 1);
        else
            fprintf(file, "  mlff %s %.*s\n", command->name, length, line);
        line = end ? end + 1 : NULL;
    }
    if (command->details) fprintf(file, "\n%s\n", command->details);
    fputs("\noptions:\n", file);
    for (const cli_option *option = command->options; option->name; option++)
        print_option(file, option->letter, option->name, option->value, option->help);
    for (const cli_option *option = cli_common_options; option->name; option++)
        print_option(file, option->letter, option->name, option->value, option->help);
    fputs("\nexamples:\n", file);
    print_indented(file, command->examples);
}

int cli_usage_error(const cli_arguments *arguments, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    cli_say("%s: %s; see mlff %s --help", arguments->command->name, text, arguments->command->name);
    return CLI_USAGE;
}

// The option that `given` is but for its hyphens: --nsteps, --n_steps.
static const cli_option *same_letters(const cli_option *options, const char *given)
{
    for (; options->name; options++) {
        const char *a = given, *b = options->name;
        for (;; a++, b++) {
            a += strspn(a, "-_");
            b += strspn(b, "-");
            if (*a != *b || !*a || *a == '=') break;
        }
        if (!*b && (!*a || *a == '=')) return options;
    }
    return NULL;
}

// What getopt_long refused, said in our words: ':' a value is missing, '?' the option is unknown.
static int refuse(const cli_arguments *arguments, int answer, char **argv)
{
    const char *given = optind > 0 ? argv[optind - 1] : "";
    if (answer == ':') {
        // The option stands last, so it is what optind has just passed.
        return cli_usage_error(arguments, "option '%s' needs a value", given);
    }
    if (optopt && optopt < FIRST_LONG && strncmp(given, "--", 2) != 0)
        return cli_usage_error(arguments, "unknown option '-%c'", optopt);
    if (optopt >= FIRST_LONG) return cli_usage_error(arguments, "option '%s' takes no value", given);
    const cli_option *meant = same_letters(arguments->command->options, given);
    if (meant) return cli_usage_error(arguments, "unknown option '%s'; there is --%s", given, meant->name);
    return cli_usage_error(arguments, "unknown option '%s'", given);
}

// "MODEL INPUT|--system NAME": the word of the usage that stands for the first argument that is not there.
static int refuse_missing(const cli_arguments *arguments)
{
    const char *word = arguments->command->usage;
    for (int k = 0; k < arguments->n_positional; k++) {
        word += strcspn(word, " \n");
        word += strspn(word, " ");
    }
    const int length = (int)strcspn(word, " \n|");
    if (*word >= 'A' && *word <= 'Z') return cli_usage_error(arguments, "%.*s is missing", length, word);
    return cli_usage_error(arguments, "an argument is missing");
}

// Does the command line ask for results on standard output, beside what is printed for people?
static bool wants_output(const cli_arguments *arguments)
{
    for (int i = 0; i < arguments->n_given; i++) {
        const cli_option *option = &arguments->command->options[arguments->given_row[i]];
        if (option->value ? strcmp(arguments->given_value[i], "-") == 0 : strcmp(option->name, "json") == 0) return true;
    }
    return false;
}

int cli_command_run(const cli_command *command, int argc, char **argv)
{
    cli_arguments arguments = {.command = command};
    struct option long_options[CLI_MAX_OPTIONS + 3] = {{0}};
    char letters[2 * CLI_MAX_OPTIONS + 4] = ":hq";
    int n = count(command);

    for (int i = 0; i < n; i++) {
        const cli_option *option = &command->options[i];
        long_options[i] = (struct option){option->name, option->value ? required_argument : no_argument, NULL, FIRST_LONG + i};
        if (option->letter) {
            size_t end = strlen(letters);
            letters[end] = option->letter;
            if (option->value) letters[end + 1] = ':';
        }
    }
    long_options[n] = (struct option){"help", no_argument, NULL, HELP};
    long_options[n + 1] = (struct option){"quiet", no_argument, NULL, QUIET};

    opterr = 0;
    for (int answer; (answer = getopt_long(argc, argv, letters, long_options, NULL)) != -1;) {
        if (answer == HELP || answer == 'h') {
            cli_command_help(command, stdout);
            return CLI_GOOD;
        }
        if (answer == QUIET || answer == 'q') {
            arguments.quiet = true;
            continue;
        }
        int row = answer - FIRST_LONG;
        if (answer == '?' || answer == ':') return refuse(&arguments, answer, argv);
        for (int i = 0; answer < FIRST_LONG && i < n; i++)
            if (command->options[i].letter == answer) row = i;
        // "-o=FILE" is meant as --output=FILE: getopt has "=FILE" as its value.
        if (answer < FIRST_LONG && optarg && *optarg == '=' && optarg != argv[optind - 1]) optarg++;
        arguments.values[row] = command->options[row].value ? optarg : "";
        if (arguments.n_given < CLI_MAX_GIVEN) {
            arguments.given_row[arguments.n_given] = row;
            arguments.given_value[arguments.n_given++] = arguments.values[row];
        }
    }
    arguments.positional = argv + optind;
    arguments.n_positional = argc - optind;
    if (arguments.n_positional < command->min_positional) return refuse_missing(&arguments);
    if (arguments.n_positional > command->max_positional)
        return cli_usage_error(&arguments, "'%s' is one argument too many", arguments.positional[command->max_positional]);
    cli_files_name_stdout(&arguments);
    const int exit_status = cli_files_check(&arguments);
    if (arguments.quiet && exit_status == CLI_GOOD && !cli_quiet(wants_output(&arguments))) return CLI_FAILED;
    return exit_status == CLI_GOOD ? command->run(&arguments) : exit_status;
}

bool cli_has_option(const cli_arguments *arguments, const char *name)
{
    const cli_option *option = arguments->command->options;
    while (option->name && strcmp(option->name, name) != 0) option++;
    return option->name != NULL;
}

// A name that the command's table does not have is our own mistake: it would silently give the default.
static const char *value_of(const cli_arguments *arguments, const char *name)
{
    for (int i = 0; arguments->command->options[i].name; i++)
        if (strcmp(arguments->command->options[i].name, name) == 0) return arguments->values[i];
    fprintf(stderr, "mlff %s: option --%s is not in the table\n", arguments->command->name, name);
    abort();
}

bool cli_given(const cli_arguments *arguments, const char *name)
{
    return value_of(arguments, name) != NULL;
}

const char *cli_each(const cli_arguments *arguments, const char *name, int index)
{
    for (int i = 0; i < arguments->n_given; i++)
        if (strcmp(arguments->command->options[arguments->given_row[i]].name, name) == 0 && index-- == 0)
            return arguments->given_value[i];
    return NULL;
}

const char *cli_text(const cli_arguments *arguments, const char *name, const char *otherwise)
{
    const char *value = value_of(arguments, name);
    return value ? value : otherwise;
}

static void refuse_value(cli_arguments *arguments, const char *name, const char *value, const char *wanted)
{
    if (!arguments->failed) cli_usage_error(arguments, "--%s '%s' is not %s", name, value, wanted);
    arguments->failed = true;
}

int64_t cli_int(cli_arguments *arguments, const char *name, int64_t minimum, int64_t maximum, int64_t otherwise)
{
    const char *value = value_of(arguments, name);
    int64_t number;
    if (!value) return otherwise;
    if (base_parse_int64(value, &number) && number >= minimum && number <= maximum) return number;
    char wanted[96];
    if (maximum == INT64_MAX)
        snprintf(wanted, sizeof wanted, "a whole number of at least %" PRId64, minimum);
    else
        snprintf(wanted, sizeof wanted, "a whole number from %" PRId64 " to %" PRId64, minimum, maximum);
    refuse_value(arguments, name, value, wanted);
    return otherwise;
}

double cli_number(cli_arguments *arguments, const char *name, double minimum, double maximum, double otherwise)
{
    const char *value = value_of(arguments, name);
    double number;
    if (!value) return otherwise;
    if (base_parse_double(value, &number) && isfinite(number) && number >= minimum && number <= maximum) return number;
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a number from %g to %g", minimum, maximum);
    refuse_value(arguments, name, value, wanted);
    return otherwise;
}

int cli_choice(cli_arguments *arguments, const char *name, const char *const *choices, int otherwise)
{
    const char *value = value_of(arguments, name);
    char wanted[256] = "one of";
    if (!value) return otherwise;
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], value) == 0) return i;
        size_t length = strlen(wanted);
        snprintf(wanted + length, sizeof wanted - length, "%s %s", i ? "," : "", choices[i]);
    }
    refuse_value(arguments, name, value, wanted);
    return otherwise;
}

mlff_status cli_sizes(const char *option, const char *list, const char *what, int most, int sizes[CLI_SIZES], int *n_out)
{
    int n = 0;
    const char *at = list;
    do {
        char number[24];
        const size_t length = strcspn(at, ",");
        int64_t size;
        snprintf(number, sizeof number, "%.*s", (int)(length < 20 ? length : 20), at);
        if (!base_parse_int64(number, &size) || size < 1 || size > most)
            return mlff_fail(MLFF_ERR_USAGE, "--%s '%s': '%s' is not a number of %s from 1 to %d; give some, as in 32,64,128",
                             option, list, number, what, most);
        if (n == CLI_SIZES) return mlff_fail(MLFF_ERR_USAGE, "--%s: more than %d numbers; give fewer", option, CLI_SIZES);
        sizes[n++] = (int)size;
        at += length;
        at += *at == ',';
    } while (*at);
    *n_out = n;
    return MLFF_OK;
}
