// SPDX-License-Identifier: MIT
// cli_teacher.c: opening a teacher, and lists of numbers.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli_teacher.h"

// "auto", also where it was not asked for, takes a GPU that works, and the CPU for a model without a path there.
static mlff_status open_anywhere(const char *name, mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    char cause[CLI_CAUSE];
    mlff_status status = mlff_device_parse("cuda", &options->device);
    if (status == MLFF_OK) status = mlff_teacher_open(name, options, teacher_out);
    if (status != MLFF_ERR_UNSUPPORTED && status != MLFF_ERR_DEVICE) return status;
    snprintf(cause, sizeof cause, "%s", mlff_last_cause());
    options->device = (mlff_device){MLFF_CPU, 0};
    return cli_refused_twice(mlff_teacher_open(name, options, teacher_out), cause);
}

int cli_teacher_open(cli_arguments *arguments, const char *name, mlff_teacher **teacher_out)
{
    static const char *const precisions[] = {"float32", "float64", "tf32", "bf16", NULL};
    mlff_status status = MLFF_OK;
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_device devices[CLI_MAX_DEVICES];
    const char *device = cli_text(arguments, "device", "auto");

    const int precision = cli_choice(arguments, "precision", precisions, 0);
    options.precision = (mlff_precision)(MLFF_FLOAT32 + precision);
    options.n_threads = (int)cli_int(arguments, "threads", 1, 256, 0);
    options.timeout_s = cli_number(arguments, "timeout", 1e-3, 1e6, options.timeout_s);
    if (arguments->failed) return CLI_USAGE;
    if (mlff_teacher_is_process(name) || options.precision == MLFF_FLOAT64) {
        status = mlff_teacher_open(name, &options, teacher_out);
    } else if (strcmp(device, "auto") == 0) {
        status = open_anywhere(name, &options, teacher_out);
    } else {
        options.devices = devices;
        status = mlff_devices_parse(device, devices, CLI_MAX_DEVICES, &options.n_devices);
        if (status == MLFF_OK) status = mlff_teacher_open(name, &options, teacher_out);
    }
    return cli_exit(status);
}

int cli_teacher_numbers(cli_arguments *arguments, const char *option, double *values, int most, int n_otherwise)
{
    const char *text = cli_text(arguments, option, NULL);
    int n = 0;
    if (!text) return n_otherwise;
    for (const char *at = text; n < most; n++) {
        char *end;
        values[n] = strtod(at, &end);
        if (end == at || !(values[n] > 0) || (*end && *end != ',')) break;
        if (!*end) return n + 1;
        at = end + 1;
    }
    cli_usage_error(arguments, "--%s '%s': give 1 to %d numbers above 0, as 300,600,1000", option, text, most);
    arguments->failed = true;
    return 0;
}
