// SPDX-License-Identifier: MIT
// cmd_new.c: mlff new: an untrained model, to measure speed or to start training.
#include <string.h>

#include "cli/support/cli.h"

enum { MAX_SET = 16 };

static const cli_option options[] = {
    {"arch", 0, "NAME",
     "architecture: painn, ani, orb-v2, orb-v3-direct or orb-v3-conservative; or a published model, such as\n"
     "orb-v3-direct-inf-omat, whose settings are then the defaults (required)"},
    {"features", 0, "N", "painn, orb: width of the features (128, orb 256)"},
    {"layers", 0, "N", "painn, orb: message-passing layers (3, orb-v2 15, orb-v3 5)"},
    {"rbf", 0, "N", "painn: radial basis functions (20)"},
    {"cutoff", 0, "ANGSTROM", "cutoff radius of a layer, or of ani's radial part, Å (painn 5.0, ani 5.1)"},
    {"radial-basis", 0, "NAME", "painn: gaussian or bessel (gaussian)"},
    {"cutoff-function", 0, "NAME", "painn: cosine or mollifier (cosine)"},
    {"shared-filters", 0, NULL, "painn: one filter network for all layers"},
    {"shared-interactions", 0, NULL, "painn: one set of weights for all layers"},
    {"members", 0, "N", "ani: members of the ensemble (8)"},
    {"hidden", 0, "LIST",
     "ani: widths of the hidden layers of every element, as 160,128,96 (ANI-2x's differ); orb: one, 512 or 1024"},
    {"angular-cutoff", 0, "ANGSTROM", "ani: cutoff radius of the angular part, Å (3.5)"},
    {"core-repulsion", 0, "ONSET",
     "painn: fixed repulsion of nuclei below this part of the sum of covalent radii (0: none; 0.7 is usual)"},
    {"max-neighbors", 0, "N", "orb: edges of an atom, the nearest (20; 120 for the models named inf)"},
    {"conditioned", 0, NULL, "orb: by charge and spin, as OMol's models"},
    {"elements", 0, "LIST", "elements that the model accepts, as H,C,O (painn: 1 to 99; ani: H,C,N,O,S,F,Cl; orb: 1 to 117)"},
    {"set", 0, "NAME=VALUE", "any setting of the architecture by its name, as n_head=128; may be given several times"},
    {"seed", 0, "S", "of the random weights (0); the same seed gives the same file"},
    {"output", 'o', "FILE", "model file to write, .safetensors (required)"},
    {0}};

// Options that are settings of an architecture.
static const struct {
    const char *option, *setting, *value; // value: of an option without one
} names[] = {{"features", "n_features", NULL},
             {"layers", "n_layers", NULL},
             {"rbf", "n_radial", NULL},
             {"cutoff", "cutoff", NULL},
             {"radial-basis", "radial_basis", NULL},
             {"cutoff-function", "cutoff_function", NULL},
             {"shared-filters", "shared_filters", "true"},
             {"shared-interactions", "shared_interactions", "true"},
             {"core-repulsion", "core_repulsion", NULL},
             {"members", "n_members", NULL},
             {"hidden", "hidden", NULL},
             {"angular-cutoff", "angular_cutoff", NULL},
             {"max-neighbors", "max_neighbors", NULL},
             {"conditioned", "conditioned", "true"},
             {"elements", "elements", NULL},
             {"seed", "seed", NULL}};
enum { N_NAMES = sizeof names / sizeof *names };

static bool has_setting(const char *architecture, const char *setting)
{
    const char *name;
    for (int i = 0; (name = mlff_architecture_setting(architecture, i, NULL, NULL)); i++)
        if (strcmp(name, setting) == 0) return true;
    return false;
}

// A value of --set, cut at its "=" into the copy `text`. Whether the architecture has the setting is checked by the library.
static bool split_setting(const char *given, char text[256], mlff_setting *setting)
{
    const size_t length = strcspn(given, "=");
    if (length == 0 || given[length] == 0 || strlen(given) >= 256) return false;
    memcpy(text, given, strlen(given) + 1);
    text[length] = 0;
    *setting = (mlff_setting){text, text + length + 1};
    return true;
}

// Settings from the options that were given; the name of one that the architecture does not have, or NULL.
static const char *collect_settings(cli_arguments *arguments, const char *architecture, mlff_setting *settings, int *n_out)
{
    int n = 0;
    for (int i = 0; i < N_NAMES; i++) {
        if (!cli_given(arguments, names[i].option)) continue;
        if (!has_setting(architecture, names[i].setting)) return names[i].option;
        const char *value = names[i].value ? names[i].value : cli_text(arguments, names[i].option, NULL);
        settings[n++] = (mlff_setting){names[i].setting, value};
    }
    *n_out = n;
    return NULL;
}

static const char *seed_of(const mlff_model *model)
{
    const char *key, *value = "";
    for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++)
        if (strcmp(key, "seed") == 0) return value;
    return "unknown";
}

static int run(cli_arguments *arguments)
{
    const char *architecture = cli_text(arguments, "arch", NULL), *path = cli_text(arguments, "output", NULL), *other;
    mlff_setting settings[N_NAMES + MAX_SET + 1] = {{0}};
    char text[MAX_SET][256];
    int n = 0;
    if (!architecture) return cli_usage_error(arguments, "--arch NAME is missing");
    if (!path) return cli_usage_error(arguments, "-o FILE is missing");
    if (cli_suffix_check(arguments, "-o", path, cli_models) != CLI_GOOD) return CLI_USAGE;
    const bool known = mlff_architecture_setting(architecture, 0, NULL, NULL); // else the library says which there are
    if (known && (other = collect_settings(arguments, architecture, settings, &n)))
        return cli_usage_error(arguments, "--%s does not go with --arch %s", other, architecture);
    for (int i = 0; (other = cli_each(arguments, "set", i)); i++) {
        if (i == MAX_SET) return cli_usage_error(arguments, "--set is given more than %d times", MAX_SET);
        if (!split_setting(other, text[i], &settings[n++]))
            return cli_usage_error(arguments, "--set takes NAME=VALUE of at most 255 bytes, not '%.60s'", other);
    }

    mlff_model *model = NULL;
    mlff_status status = mlff_model_create(architecture, settings, &model);
    if (status == MLFF_OK) status = mlff_model_save(model, path);
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        cli_print("%s: %s, %lld parameters, seed %s\n", path, info.description, (long long)info.n_parameters, seed_of(model));
    }
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command new_command = {
    .name = "new",
    .summary = "make an untrained model",
    .usage = "--arch painn|ani|orb-v2|orb-v3-direct|orb-v3-conservative [OPTIONS] -o OUT.safetensors",
    .details = "The weights are random: the speed is that of a trained model of the same shape, the energies mean nothing,\n"
               "and every report that uses the model says untrained.",
    .examples = "mlff new --arch painn -o painn.safetensors\n"
                "mlff new --arch painn --features 64 --layers 2 --cutoff 4.5 --elements H,C,N,O --seed 7 -o small.safetensors\n"
                "mlff new --arch ani -o ani.safetensors\n"
                "mlff new --arch orb-v2 -o orb-v2.safetensors\n"
                "mlff new --arch orb-v3-conservative-omol -o orb-omol.safetensors\n"
                "mlff new --arch ani --members 2 --elements H,C,N,O --hidden 64,48,32 -o small-ani.safetensors",
    .options = options,
    .run = run,
};
