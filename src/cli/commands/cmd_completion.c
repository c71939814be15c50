// SPDX-License-Identifier: MIT
// cmd_completion.c: mlff completion: scripts that complete command lines in bash and zsh, made from the tables that --help shows.
#include <string.h>

#include "cli/support/cli.h"

static const cli_option options[] = {{0}};
static const char *const shells[] = {"bash", "zsh", NULL};

static bool is_file(const cli_option *option)
{
    return strcmp(option->value, "FILE") == 0 || strcmp(option->value, "MODEL") == 0 || strcmp(option->value, "FOLDER") == 0;
}

// Options that take few and known words; `command` NULL: those of every command.
static const struct choice {
    const cli_command *command;
    const char *option, *words;
} choices[] = {{NULL, "device", "auto cpu cuda"},
               {NULL, "precision", "float32 float64 tf32 bf16"},
               {&md_command, "ensemble", "nve langevin bussi nose-hoover scr mtk"},
               {&profile_command, "ensemble", "nve langevin"},
               {&profile_command, "trajectory", "thermal md file"},
               {&profile_command, "precision-of", "median p95 p99"},
               {&relax_command, "optimizer", "lbfgs fire"},
               {&train_command, "optimizer", "adamw soap"},
               {&train_command, "recipe", "default schnetpack"},
               {&distill_command, "optimizer", "adamw soap"},
               {&new_command, "arch", "painn ani orb-v2 orb-v3-direct orb-v3-conservative"},
               {&import_command, "energy-unit", "kcal/mol eV Hartree"},
               {&import_command, "length-unit", "Ang Bohr"}};

static void print_formats(bool to_read)
{
    int n;
    const mlff_file_format *formats = mlff_file_formats(&n);
    for (int k = 0, n_printed = 0; k < n; k++)
        if (to_read ? formats[k].reads : formats[k].writes) printf("%s%s", n_printed++ ? " " : "", formats[k].name);
}

// The words that an option takes where they are few and known; nothing for free text.
static void print_words(const cli_command *command, const cli_option *option)
{
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++)
        if (strcmp(option->name, choices[k].option) == 0 && (!choices[k].command || choices[k].command == command))
            fputs(choices[k].words, stdout);
    if (strcmp(option->name, "format") == 0) print_formats(false);
    if (strcmp(option->name, "input-format") == 0) print_formats(true);
    if (strcmp(option->name, "system") == 0) {
        int n;
        const mlff_builder_info *builders = mlff_builders(&n);
        for (int k = 0; k < n; k++) printf("%s%s", k ? " " : "", builders[k].name);
    }
}

// ---- bash ---------------------------------------------------------------------------------------------------------------

static void print_names(const cli_option *table)
{
    for (; table->name; table++) {
        printf(" --%s", table->name);
        if (table->letter) printf(" -%c", table->letter);
    }
}

static void print_bash_value(const cli_command *command, const cli_option *option)
{
    printf("    %s:--%s", command->name, option->name);
    if (option->letter) printf(" | %s:-%c", command->name, option->letter);
    fputs(") ", stdout);
    if (is_file(option)) {
        puts("return ;; # files");
        return;
    }
    fputs("words=\"", stdout);
    print_words(command, option);
    puts("\" ;;");
}

static void print_bash(void)
{
    fputs("# mlff completion bash: for /usr/share/bash-completion/completions/mlff, or: source <(mlff completion bash)\n"
          "_mlff() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words= "
          "options=\n"
          "    local commands=\"",
          stdout);
    for (int k = 0; cli_commands[k]; k++) printf("%s ", cli_commands[k]->name);
    fputs("help\"\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$current\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          stdout);
    for (int k = 0; cli_commands[k]; k++) {
        printf("    %s) options=\"", cli_commands[k]->name);
        print_names(cli_commands[k]->options);
        print_names(cli_common_options);
        puts("\" ;;");
    }
    puts("    help | manual) options=$commands ;;\n"
         "    completion) options=\"bash zsh\" ;;\n"
         "    esac\n"
         "    case $command:$before in");
    for (int k = 0; cli_commands[k]; k++)
        for (const cli_option *option = cli_commands[k]->options; option->name; option++)
            if (option->value) print_bash_value(cli_commands[k], option);
    fputs("    *)\n"
          "        [[ $current == -* || $options != \\ * ]] && COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
          "        return ;; # else files\n"
          "    esac\n"
          "    compopt +o default 2>/dev/null # a value that is no file\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "}\n"
          "complete -o default -F _mlff mlff\n",
          stdout);
}

// ---- zsh ----------------------------------------------------------------------------------------------------------------

// The first line of a text inside '…[…]' or '…:…' of zsh.
static void print_quoted(const char *text)
{
    for (; *text && *text != '\n'; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_zsh_option(const cli_command *command, const cli_option *option)
{
    fputs("            ", stdout);
    if (option->letter)
        printf("{-%c,--%s}'[", option->letter, option->name);
    else
        printf("'--%s[", option->name);
    print_quoted(option->help);
    fputs("]", stdout);
    if (option->value) {
        printf(":%s:", option->value);
        if (is_file(option)) {
            fputs("_files", stdout);
        } else {
            fputs("(", stdout);
            print_words(command, option);
            fputs(")", stdout);
        }
    }
    puts("' \\");
}

static void print_zsh(void)
{
    puts("#compdef mlff\n"
         "# mlff completion zsh: a file _mlff in a folder of $fpath\n"
         "_mlff() {\n"
         "    local -a commands\n"
         "    commands=(");
    for (int k = 0; cli_commands[k]; k++) {
        printf("        '%s:", cli_commands[k]->name);
        print_quoted(cli_commands[k]->summary);
        puts("'");
    }
    puts("        'help:help about a command'\n"
         "    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    local command=$words[2]\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "    case $command in");
    for (int k = 0; cli_commands[k]; k++) {
        printf("    %s)\n        _arguments -s \\\n", cli_commands[k]->name);
        for (const cli_option *option = cli_commands[k]->options; option->name; option++)
            print_zsh_option(cli_commands[k], option);
        for (const cli_option *option = cli_common_options; option->name; option++) print_zsh_option(cli_commands[k], option);
        puts(cli_commands[k] == &manual_command       ? "            '*:command:(${commands%%:*})' ;;"
             : cli_commands[k] == &completion_command ? "            ':shell:(bash zsh)' ;;"
                                                      : "            '*:file:_files' ;;");
    }
    puts("    help) (( CURRENT == 2 )) && _describe command commands ;;\n"
         "    esac\n"
         "}\n"
         "_mlff \"$@\"");
}

static int run(cli_arguments *arguments)
{
    const char *shell = arguments->positional[0];
    if (strcmp(shell, shells[0]) == 0)
        print_bash();
    else if (strcmp(shell, shells[1]) == 0)
        print_zsh();
    else
        return cli_usage_error(arguments, "'%s' is not a shell that this knows: bash or zsh", shell);
    return CLI_GOOD;
}

const cli_command completion_command = {
    .name = "completion",
    .summary = "a script that completes mlff's command lines in bash or zsh",
    .usage = "bash|zsh",
    .details = "The script goes to standard output. `make install` puts both where the shells look for them.",
    .examples = "source <(mlff completion bash)\n"
                "mlff completion zsh >~/.zfunc/_mlff",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run,
};
