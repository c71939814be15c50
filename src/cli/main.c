// SPDX-License-Identifier: MIT
// main.c: finds the subcommand of a command line, and help about all of them.
#include <string.h>
#include <sys/resource.h>

#include "cli/support/cli.h"

static const cli_command *find(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

static void help(FILE *file)
{
    fputs("mlff: energies, forces and stress of atoms by machine-learned force fields, and where the time of a step goes\n\n"
          "usage: mlff COMMAND [OPTIONS]\n\ncommands:\n",
          file);
    for (int i = 0; cli_commands[i]; i++) fprintf(file, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs("  help       help about a command: mlff help COMMAND, or mlff COMMAND --help\n\n"
          "options:\n"
          "  -h, --help     this help\n"
          "  -v, --version  the version\n\n"
          "Units are eV, Å, fs, amu and K. Results go to standard output, progress and warnings to standard error.\n"
          "Exit status: 0 good, 1 failed, 2 wrong usage, 130 interrupted (what was measured or written is kept).\n\n"
          "examples:\n"
          "  mlff new --arch painn --elements Si -o painn.safetensors\n"
          "  mlff profile painn.safetensors --system silicon --n-atoms 64 -o report.json\n"
          "  mlff import best_model -o ethanol.safetensors --energy-unit kcal/mol --elements H,C,O\n"
          "  mlff eval ethanol.safetensors frames.extxyz -o results.extxyz\n",
          file);
}

static int unknown(const char *name)
{
    cli_say("'%s' is not a command; see mlff --help", name);
    return CLI_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (strcmp(name, "help") == 0 && argc == 2)) {
        help(stdout);
        return CLI_GOOD;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-v") == 0) {
        printf("mlff %s\n", mlff_version());
        return CLI_GOOD;
    }
    if (strcmp(name, "help") == 0) {
        const cli_command *command = find(argv[2]);
        if (!command) return unknown(argv[2]);
        cli_command_help(command, stdout);
        return CLI_GOOD;
    }
    const cli_command *command = find(name);
    if (!command) return unknown(name);
    return cli_command_run(command, argc - 1, argv + 1);
}

// Commands take 100 kB of stack at most. Without it the system ends them without a word; the main thread's limit can still be raised.
static bool raise_stack(void)
{
    enum { LEAST = 256 << 10, WANTED = 1 << 20 };
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= WANTED) return true;
    stack.rlim_cur = stack.rlim_max < WANTED ? stack.rlim_max : WANTED;
    if (stack.rlim_cur >= LEAST && setrlimit(RLIMIT_STACK, &stack) == 0) return true;
    cli_say("the stack is limited to %llu kB, and %d are needed; raise the limit (ulimit -s)",
            (unsigned long long)stack.rlim_cur >> 10, LEAST >> 10);
    return false;
}

int main(int argc, char **argv)
{
    cli_output_start();
    return cli_output_end(raise_stack() ? dispatch(argc, argv) : CLI_FAILED);
}
