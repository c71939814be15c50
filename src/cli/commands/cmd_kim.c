// SPDX-License-Identifier: MIT
// cmd_kim.c: mlff kim: model files as KIM portable models. The work is done by the program mlff-kim (bindings/kim), which is built
// where the KIM API is: the command itself needs no KIM API.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"

static const cli_option options[] = {{"name", 0, "NAME", "install: the model's name for KIM: letters, digits and _ (required)"},
                                     {0}};

// Replaces this process; returns on failure only.
static mlff_status run_program(char **given)
{
    static const char file[] = "mlff-kim";
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof file);
    if (length < 0) return mlff_fail(MLFF_ERR_IO, "/proc/self/exe: %s", strerror(errno));
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, file);
    fflush(stdout);
    execv(path, given);
    return mlff_fail(MLFF_ERR_UNSUPPORTED,
                     "%s: %s; the KIM model driver is not built: install libkim-api-dev, then configure and build mlff again",
                     path, strerror(errno));
}

static int run(cli_arguments *arguments)
{
    char **words = arguments->positional;
    const int n = arguments->n_positional;
    const char *name = cli_text(arguments, "name", NULL);
    char program[] = "mlff-kim", *given[] = {program, words[0], n > 1 ? words[1] : NULL, (char *)name, NULL};
    const bool install = strcmp(words[0], "install") == 0;

    if (!install && strcmp(words[0], "list") != 0 && strcmp(words[0], "remove") != 0)
        return cli_usage_error(arguments, "'%s' is not install, list or remove", words[0]);
    if (install && !name) return cli_usage_error(arguments, "--name NAME is missing");
    if (!install && name) return cli_usage_error(arguments, "--name goes with install");
    if (n != (strcmp(words[0], "list") == 0 ? 1 : 2))
        return cli_usage_error(arguments, n > 1 ? "list takes no argument" : "%s needs %s", words[0], install ? "MODEL" : "NAME");
    return cli_exit(run_program(given));
}

const cli_command kim_command = {
    .name = "kim",
    .summary = "make models available to LAMMPS and other KIM simulators",
    .usage = "install MODEL --name NAME\nlist\nremove NAME",
    .details =
        "Installs a model file as a portable model of the KIM API, for pair_style kim of LAMMPS, ASE's KIM calculator and "
        "every other\n"
        "KIM simulator. Models go to the user's KIM collection, or, where KIM_API_MODEL_DRIVERS_DIR and\n"
        "KIM_API_PORTABLE_MODELS_DIR are set, to the folders that they name. MODEL is a file or a name, as for mlff eval.\n"
        "When a simulator runs the model: MLFF_DEVICE (auto), MLFF_PRECISION (float32) and OMP_NUM_THREADS choose device,\n"
        "precision and CPU threads; with MLFF_DEVICE=cuda each MPI rank takes the GPU of its local rank.",
    .examples = "mlff kim install ethanol.safetensors --name Ethanol_PaiNN\n"
                "mlff kim list\n"
                "mlff kim remove Ethanol_PaiNN",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run,
};
