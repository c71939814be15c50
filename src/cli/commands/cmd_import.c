// SPDX-License-Identifier: MIT
// cmd_import.c: mlff import: a trained model of another program into our one file form.
#include <limits.h>

#include "base/base.h"
#include "cli/support/cli.h"

static const cli_option options[] = {
    {"output", 'o', "FILE", "model file to write, .safetensors; its folder is made"},
    {"install", 0, "NAME", "in place of -o: among your models, where every command finds it as NAME"},
    {"energy-unit", 0, "UNIT", "what the model computes: kcal/mol, eV or Hartree (required for a best_model)"},
    {"length-unit", 0, "UNIT", "of the positions it was trained on: Ang or Bohr (Ang)"},
    {"elements", 0, "LIST", "elements it was trained on, as H,C,O (unknown: a warning says so)"},
    {0}};

static int run(cli_arguments *arguments)
{
    static const char *const energy_units[] = {"kcal/mol", "eV", "Hartree", NULL};
    static const char *const length_units[] = {"Ang", "Bohr", NULL};
    const char *path = cli_text(arguments, "output", NULL), *name = cli_text(arguments, "install", NULL);
    char installed[PATH_MAX];
    mlff_import_options import = mlff_import_options_default();

    if (!path == !name) return cli_usage_error(arguments, "give -o FILE or --install NAME%s", path ? ", not both" : "");
    if (name) {
        const mlff_status status = mlff_model_install_path(name, installed, sizeof installed);
        if (status != MLFF_OK) return cli_exit(status);
        if (cli_overwrites(installed, arguments->positional[0]))
            return cli_usage_error(arguments, "--install would overwrite the input '%s'; give it another name", installed);
        path = installed;
    }
    if (cli_suffix_check(arguments, "-o", path, cli_models) != CLI_GOOD) return CLI_USAGE;
    cli_choice(arguments, "energy-unit", energy_units, 0);
    cli_choice(arguments, "length-unit", length_units, 0);
    if (arguments->failed) return CLI_USAGE;
    import.energy_unit = cli_text(arguments, "energy-unit", NULL);
    import.length_unit = cli_text(arguments, "length-unit", NULL);
    import.elements = cli_text(arguments, "elements", NULL);

    mlff_model *model = NULL;
    mlff_status status = mlff_model_import(arguments->positional[0], &import, &model);
    if (status == MLFF_OK) status = base_make_folder_of(path);
    if (status == MLFF_OK) status = mlff_model_save(model, path);
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        cli_print("%s: %s, %lld parameters\n", path, info.description, (long long)info.n_parameters);
    }
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command import_command = {
    .name = "import",
    .summary = "turn a SchNetPack best_model (PaiNN), an ANI ensemble or an Orb checkpoint into a model file",
    .usage = "IN -o OUT.safetensors [OPTIONS]\nIN --install NAME [OPTIONS]",
    .details = "IN is one of:\n"
               "  best_model, what SchNetPack saves with torch.save: a zip with a pickle. Nothing in it is executed. A class "
               "that is not of\n"
               "    PyTorch, SchNetPack, NumPy or ASE, or that changes the result and is not known, is refused by its name.\n"
               "  NAME.info, an ensemble of ANI in NeuroChem's files, as their authors publish ANI-1x, ANI-1ccx and ANI-2x. The "
               ".info file\n"
               "    names the other files, which are below its folder.\n"
               "  NAME.fnx, one ANI model of FeNNol.\n"
               "  NAME.ckpt, a checkpoint of orb-models, of 2024 or later.\n"
               "The written file holds weights, shape, units and elements; mlff needs no other file. mlff looks for models by "
               "name in the\n"
               "folders of MLFF_MODEL_PATH (separated by :), then in $XDG_DATA_HOME/mlff/models or ~/.local/share/mlff/models.",
    .examples = "mlff import best_model -o ethanol.safetensors --energy-unit kcal/mol --elements H,C,O\n"
                "mlff import best_model -o silica.safetensors --energy-unit Hartree --length-unit Bohr --elements Si,O\n"
                "mlff import resources/ani-2x_8x.info --install fennol-ani2x\n"
                "mlff import orb-v2-20241011.ckpt --install orb-v2\n"
                "mlff import ani2x.fnx -o ani2x-member0.safetensors",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run,
};
