// SPDX-License-Identifier: MIT
// cmd_new.c: mlff new: an untrained model, to measure speed with and to begin training from.
#include <limits.h>

#include "cli.h"

static const cli_option options[] = {{"arch", 0, "NAME", "architecture: painn (required)"},
                                     {"features", 0, "N", "width of the atoms' features (128)"},
                                     {"layers", 0, "N", "message-passing layers (3)"},
                                     {"rbf", 0, "N", "radial basis functions (20)"},
                                     {"cutoff", 0, "ANGSTROM", "reach of a layer, Å (5.0)"},
                                     {"radial-basis", 0, "NAME", "gaussian or bessel (gaussian)"},
                                     {"cutoff-function", 0, "NAME", "cosine or mollifier (cosine)"},
                                     {"shared-filters", 0, NULL, "one filter network for all layers"},
                                     {"shared-interactions", 0, NULL, "one set of weights for all layers"},
                                     {"elements", 0, "LIST", "elements it may be asked for, as H,C,O (all, 1 to 99)"},
                                     {"seed", 0, "S", "of the random weights (0); the same seed gives the same file"},
                                     {"output", 'o', "FILE", "model file to write, .safetensors (required)"},
                                     {0}};

static int run(cli_arguments *arguments)
{
    static const char *const architectures[] = {"painn", NULL};
    static const char *const bases[] = {"gaussian", "bessel", NULL};
    static const char *const cutoffs[] = {"cosine", "mollifier", NULL};
    mlff_painn_options painn = mlff_painn_options_default();
    const char *path = cli_text(arguments, "output", NULL);

    if (!cli_given(arguments, "arch")) return cli_usage_error(arguments, "--arch NAME is missing");
    if (!path) return cli_usage_error(arguments, "-o FILE is missing");
    cli_choice(arguments, "arch", architectures, 0);
    painn.n_features = (int)cli_int(arguments, "features", 1, 65536, painn.n_features);
    painn.n_layers = (int)cli_int(arguments, "layers", 1, 64, painn.n_layers);
    painn.n_radial = (int)cli_int(arguments, "rbf", 1, 4096, painn.n_radial);
    painn.cutoff_angstrom = cli_number(arguments, "cutoff", 0.1, 100.0, painn.cutoff_angstrom);
    painn.radial_basis = bases[cli_choice(arguments, "radial-basis", bases, 0)];
    painn.cutoff_function = cutoffs[cli_choice(arguments, "cutoff-function", cutoffs, 0)];
    painn.shared_filters = cli_given(arguments, "shared-filters");
    painn.shared_interactions = cli_given(arguments, "shared-interactions");
    painn.elements = cli_text(arguments, "elements", NULL);
    painn.seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    if (arguments->failed) return CLI_USAGE;

    mlff_model *model = NULL;
    mlff_status status = mlff_model_create_painn(&painn, &model);
    if (status == MLFF_OK) status = mlff_model_save(model, path);
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        printf("%s: %s, %lld parameters, seed %llu\n", path, info.description, (long long)info.n_parameters,
               (unsigned long long)painn.seed);
    }
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command new_command = {
    .name = "new",
    .summary = "make an untrained model",
    .usage = "--arch painn [OPTIONS] -o OUT.safetensors",
    .details = "Its weights are random: its speed is that of a trained model of the same shape, its energies mean nothing,\n"
               "and every report that uses it says untrained.",
    .examples = "mlff new --arch painn -o painn.safetensors\n"
                "mlff new --arch painn --features 64 --layers 2 --cutoff 4.5 --elements H,C,N,O --seed 7 -o small.safetensors",
    .options = options,
    .run = run,
};
