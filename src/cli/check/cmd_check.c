// SPDX-License-Identifier: MIT
// cmd_check.c: mlff check: what this machine offers, as a table.
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "check_probe.h"
#include "cli/support/cli.h"

static const cli_option options[] = {{"verbose", 0, NULL, "also import torch and jax in Python (slow) and ask them about GPUs"},
                                     {"export-json", 0, "FILE", "write the table as JSON; - is standard output"},
                                     {"json", 0, NULL, "the same as --export-json -"},
                                     {0}};

static const char *const status_names[] = {"pass", "fail", "not needed"};

void check_add(check_table *table, const char *group, const char *name, check_status status, bool required, const char *format,
               ...)
{
    if (table->n_rows == CHECK_MAX_ROWS) return;
    check_row *row = &table->rows[table->n_rows++];
    *row = (check_row){.group = group, .name = name, .status = status, .required = required};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(row->detail, sizeof row->detail, format, arguments);
    va_end(arguments);
}

// The row that fails the command, or NULL.
static const check_row *failed_row(const check_table *table)
{
    for (int i = 0; i < table->n_rows; i++)
        if (table->rows[i].required && table->rows[i].status == CHECK_FAIL) return &table->rows[i];
    return NULL;
}

static void print_table(const check_table *table)
{
    const char *group = "";
    for (int i = 0; i < table->n_rows; i++) {
        const check_row *row = &table->rows[i];
        if (strcmp(group, row->group) != 0) printf("%s%s\n", i ? "\n" : "", row->group);
        group = row->group;
        printf("  %-10s  %-18s %s\n", status_names[row->status], row->name, row->detail);
    }
    printf("\n%s\n",
           !failed_row(table) ? "The CPU engine works." : "The CPU engine does not work: see the row above that says fail.");
}

static mlff_status write_json(const check_table *table, const char *path)
{
    base_output output;
    mlff_status status = base_output_open(path, &output);
    if (status != MLFF_OK) return status;
    char now[32];
    time_t seconds = time(NULL);
    struct tm broken_down;
    localtime_r(&seconds, &broken_down);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", &broken_down);

    cli_json json = {.file = output.file};
    cli_json_object(&json, NULL);
    cli_json_int(&json, "schema_version", 1);
    cli_json_text(&json, "version", mlff_version());
    cli_json_text(&json, "timestamp", now);
    cli_json_bool(&json, "works", !failed_row(table));
    cli_json_compact_array(&json, "cpu_paths");
    for (const char *const *path_name = mlff_cpu_paths(); *path_name; path_name++) cli_json_text(&json, NULL, *path_name);
    cli_json_end(&json, ']');
    cli_json_array(&json, "checks");
    for (int i = 0; i < table->n_rows; i++) {
        const check_row *row = &table->rows[i];
        cli_json_object(&json, NULL);
        cli_json_text(&json, "group", row->group);
        cli_json_text(&json, "name", row->name);
        cli_json_text(&json, "status", status_names[row->status]);
        cli_json_bool(&json, "required", row->required);
        cli_json_text(&json, "detail", row->detail);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
    cli_json_end(&json, '}');
    return base_output_commit(&output);
}

static int run(cli_arguments *arguments)
{
    static check_table table;
    const char *path = cli_text(arguments, "export-json", cli_given(arguments, "json") ? "-" : NULL);
    if (cli_given(arguments, "json") && strcmp(path, "-") != 0)
        return cli_usage_error(arguments, "--json is --export-json -; it excludes the file '%s'", path);

    check_cpu(&table);
    check_gpu(&table);
    check_tools(&table);
    check_python(&table, cli_given(arguments, "verbose"));
    if (!path || strcmp(path, "-") != 0) print_table(&table);
    if (path) {
        mlff_status status = write_json(&table, path);
        if (status != MLFF_OK) return cli_exit(status);
    }
    const check_row *failed = failed_row(&table);
    if (!failed) return CLI_GOOD;
    cli_say("the CPU engine does not work: %s", failed->detail);
    return CLI_FAILED;
}

const cli_command check_command = {
    .name = "check",
    .summary = "what this machine offers: engine, GPU, tools, Python packages",
    .usage = "[--verbose] [--export-json FILE]",
    .details = "Each row says pass, fail or not needed. Exit status 0 if the CPU engine works, whatever else is missing.",
    .examples = "mlff check\n"
                "mlff check --verbose --export-json check.json",
    .options = options,
    .run = run,
};
