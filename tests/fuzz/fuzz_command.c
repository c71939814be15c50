// SPDX-License-Identifier: MIT
// fuzz_command.c: any bytes as a command line, arguments ended by NUL or newline: a usage error, or options that are read as every
// kind of value. The first byte chooses the command, which is not run. There are two files, a and b.extxyz.
#include <getopt.h>

#include "cli/support/cli.h"
#include "fuzz/fuzz_file.h"

enum { MOST_ARGUMENTS = 80 };

static int read_options(cli_arguments *arguments)
{
    static const char *const choices[] = {"a", "nve", NULL};
    int sizes[CLI_SIZES], n;
    for (const cli_option *option = arguments->command->options; option->name; option++) {
        const char *text = cli_text(arguments, option->name, "");
        for (int k = 0; cli_each(arguments, option->name, k); k++) fuzz_demand(k < CLI_MAX_GIVEN, "options are counted");
        if (!cli_given(arguments, option->name) || !option->value) continue;
        const int64_t whole = cli_int(arguments, option->name, -5, 1000, 7);
        fuzz_demand(whole >= -5 && whole <= 1000, "a whole number is in its range");
        const double number = cli_number(arguments, option->name, 0, 1e6, 7);
        fuzz_demand(number >= 0 && number <= 1e6, "a number is in its range");
        fuzz_demand(cli_choice(arguments, option->name, choices, 1) < 2, "a choice is one of those offered");
        if (cli_sizes(option->name, text, "atoms", 1000, sizes, &n) == MLFF_OK)
            for (int k = 0; k < n; k++) fuzz_demand(n <= CLI_SIZES && sizes[k] >= 1 && sizes[k] <= 1000, "sizes are in range");
    }
    for (int k = 0; k < arguments->n_positional; k++) fuzz_demand(arguments->positional[k] != NULL, "arguments are there");
    return arguments->failed ? CLI_USAGE : CLI_GOOD;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length)
{
    int n_commands = 0;
    while (cli_commands[n_commands]) n_commands++;
    char text[4096], *arguments[MOST_ARGUMENTS + 2];
    int n = 0;
    if (length < 1 || length > sizeof text) return 0;
    memcpy(text, bytes + 1, length - 1);
    text[length - 1] = 0;
    cli_command command = *cli_commands[bytes[0] % n_commands];
    command.run = read_options;
    arguments[n++] = (char *)(uintptr_t)command.name;
    for (char *at = text, *end = text + length - 1; at < end && n <= MOST_ARGUMENTS; at += strlen(at) + 1) {
        char *newline = strchr(at, '\n');
        if (newline) *newline = 0;
        arguments[n++] = at;
    }
    arguments[n] = NULL;
    optind = 0; // getopt begins with the first argument
    memory_files_put("/memory/a", "", 0);
    memory_files_put("/memory/b.extxyz", "", 0);
    memory_files_only(true);
    const int status = cli_command_run(&command, n, arguments);
    memory_files_only(false);
    fuzz_demand(status == CLI_GOOD || status == CLI_USAGE || status == CLI_FAILED, "the exit status is one of those documented");
    return 0;
}
