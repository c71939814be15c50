// SPDX-License-Identifier: MIT
// cmd_new.c: mlff new: an untrained model, to measure speed with and to begin training from.
#include <limits.h>

#include "cli.h"

static const cli_option options[] = {
    {"arch", 0, "NAME", "architecture: painn or ani (required)"},
    {"features", 0, "N", "painn: width of the atoms' features (128)"},
    {"layers", 0, "N", "painn: message-passing layers (3)"},
    {"rbf", 0, "N", "painn: radial basis functions (20)"},
    {"cutoff", 0, "ANGSTROM", "reach of a layer, or of ani's radial part, Å (painn 5.0, ani 5.1)"},
    {"radial-basis", 0, "NAME", "painn: gaussian or bessel (gaussian)"},
    {"cutoff-function", 0, "NAME", "painn: cosine or mollifier (cosine)"},
    {"shared-filters", 0, NULL, "painn: one filter network for all layers"},
    {"shared-interactions", 0, NULL, "painn: one set of weights for all layers"},
    {"members", 0, "N", "ani: members of the ensemble (8)"},
    {"hidden", 0, "LIST", "ani: widths of the hidden layers of every element, as 160,128,96 (ANI-2x's, which differ)"},
    {"angular-cutoff", 0, "ANGSTROM", "ani: reach of the angular part, Å (3.5)"},
    {"elements", 0, "LIST", "elements it may be asked for, as H,C,O (painn: 1 to 99; ani: H,C,N,O,S,F,Cl)"},
    {"seed", 0, "S", "of the random weights (0); the same seed gives the same file"},
    {"output", 'o', "FILE", "model file to write, .safetensors (required)"},
    {0}};

// An option of the other architecture would do nothing.
static const char *stray(const cli_arguments *arguments, bool ani)
{
    static const char *const of_painn[] = {
        "features", "layers", "rbf", "radial-basis", "cutoff-function", "shared-filters", "shared-interactions", NULL};
    static const char *const of_ani[] = {"members", "hidden", "angular-cutoff", NULL};
    for (const char *const *name = ani ? of_painn : of_ani; *name; name++)
        if (cli_given(arguments, *name)) return *name;
    return NULL;
}

static mlff_painn_options painn_options(cli_arguments *arguments)
{
    static const char *const bases[] = {"gaussian", "bessel", NULL};
    static const char *const cutoffs[] = {"cosine", "mollifier", NULL};
    mlff_painn_options painn = mlff_painn_options_default();
    painn.n_features = (int)cli_int(arguments, "features", 2, MLFF_PAINN_MAX_FEATURES, painn.n_features);
    painn.n_layers = (int)cli_int(arguments, "layers", 1, MLFF_PAINN_MAX_LAYERS, painn.n_layers);
    painn.n_radial = (int)cli_int(arguments, "rbf", 2, MLFF_PAINN_MAX_RADIAL, painn.n_radial);
    painn.cutoff_angstrom = cli_number(arguments, "cutoff", 0.1, 100.0, painn.cutoff_angstrom);
    painn.radial_basis = bases[cli_choice(arguments, "radial-basis", bases, 0)];
    painn.cutoff_function = cutoffs[cli_choice(arguments, "cutoff-function", cutoffs, 0)];
    painn.shared_filters = cli_given(arguments, "shared-filters");
    painn.shared_interactions = cli_given(arguments, "shared-interactions");
    painn.elements = cli_text(arguments, "elements", NULL);
    return painn;
}

static mlff_ani_options ani_options(cli_arguments *arguments)
{
    mlff_ani_options ani = mlff_ani_options_default();
    ani.n_members = (int)cli_int(arguments, "members", 1, MLFF_ANI_MAX_MEMBERS, ani.n_members);
    ani.hidden = cli_text(arguments, "hidden", NULL);
    ani.radial_cutoff_angstrom = cli_number(arguments, "cutoff", 1, 100, ani.radial_cutoff_angstrom);
    ani.angular_cutoff_angstrom = cli_number(arguments, "angular-cutoff", 1, 100, ani.angular_cutoff_angstrom);
    ani.elements = cli_text(arguments, "elements", ani.elements);
    return ani;
}

static int run(cli_arguments *arguments)
{
    static const char *const architectures[] = {"painn", "ani", NULL};
    const char *path = cli_text(arguments, "output", NULL), *other;

    if (!cli_given(arguments, "arch")) return cli_usage_error(arguments, "--arch NAME is missing");
    if (!path) return cli_usage_error(arguments, "-o FILE is missing");
    bool is_ani = cli_choice(arguments, "arch", architectures, 0) == 1;
    uint64_t seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    mlff_painn_options painn = {0};
    mlff_ani_options ani = {0};
    if (is_ani)
        ani = ani_options(arguments);
    else
        painn = painn_options(arguments);
    if (arguments->failed) return CLI_USAGE;
    if ((other = stray(arguments, is_ani)))
        return cli_usage_error(arguments, "--%s goes with --arch %s", other, architectures[!is_ani]);
    ani.seed = painn.seed = seed;

    mlff_model *model = NULL;
    mlff_status status = is_ani ? mlff_model_create_ani(&ani, &model) : mlff_model_create_painn(&painn, &model);
    if (status == MLFF_OK) status = mlff_model_save(model, path);
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        printf("%s: %s, %lld parameters, seed %llu\n", path, info.description, (long long)info.n_parameters,
               (unsigned long long)seed);
    }
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command new_command = {
    .name = "new",
    .summary = "make an untrained model",
    .usage = "--arch painn|ani [OPTIONS] -o OUT.safetensors",
    .details = "Its weights are random: its speed is that of a trained model of the same shape, its energies mean nothing,\n"
               "and every report that uses it says untrained.",
    .examples = "mlff new --arch painn -o painn.safetensors\n"
                "mlff new --arch painn --features 64 --layers 2 --cutoff 4.5 --elements H,C,N,O --seed 7 -o small.safetensors\n"
                "mlff new --arch ani -o ani.safetensors\n"
                "mlff new --arch ani --members 2 --elements H,C,N,O --hidden 64,48,32 -o small-ani.safetensors",
    .options = options,
    .run = run,
};
