// SPDX-License-Identifier: MIT
// cmd_info.c: mlff info: what a model file holds.
#include <string.h>

#include "cli.h"

static const cli_option options[] = {{"json", 0, NULL, "for machines"}, {0}};

static void print_elements(const mlff_model_info *info)
{
    fputs("  elements         ", stdout);
    if (info->n_elements == 0) fputs("unknown: the file does not say what it was trained on", stdout);
    for (int i = 0; i < info->n_elements; i++) {
        int last = i; // runs of neighbours in the periodic table are shortened: H-Es
        while (last + 1 < info->n_elements && info->elements[last + 1] == info->elements[last] + 1) last++;
        if (i) fputs(", ", stdout);
        fputs(mlff_element_symbol(info->elements[i]), stdout);
        if (last > i + 2) {
            printf("-%s", mlff_element_symbol(info->elements[last]));
            i = last;
        }
    }
    fputc('\n', stdout);
}

static void print_text(const mlff_model *model, const mlff_model_info *info, const char *path)
{
    printf("%s\n", path);
    printf("  architecture     %s\n", info->architecture);
    printf("  description      %s\n", info->description);
    printf("  reference        %s\n", info->reference);
    printf("  trained          %s\n", info->trained ? "yes" : "no: untrained, random weights");
    print_elements(info);
    if (info->n_members > 1) printf("  members          %d: the energy is their mean\n", info->n_members);
    printf("  parameters       %lld (%.2f MB)\n", (long long)info->n_parameters, (double)info->n_bytes / 1048576.0);
    printf("  cutoff           %g Å, %d layers: an atom feels others up to %g Å away\n", info->cutoff_angstrom, info->n_layers,
           info->n_layers * info->cutoff_angstrom);
    printf("  forces           %s\n",
           info->conservative ? "the exact derivative of the energy" : "not the derivative of the energy");
    printf("  energy of atoms  %s\n", info->has_atom_energies ? "yes" : "no");
    printf("  units inside     energy %.15g eV, length %.15g Å\n", info->energy_unit_ev, info->length_unit_angstrom);
    puts("  metadata");
    const char *key, *value;
    for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++)
        printf("    %-24s %.70s%s\n", key, value, strlen(value) > 70 ? " …" : "");
}

static void print_json(const mlff_model *model, const mlff_model_info *info, const char *path)
{
    cli_json json = {.file = stdout};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "path", path);
    cli_json_text(&json, "name", info->name);
    cli_json_text(&json, "architecture", info->architecture);
    cli_json_text(&json, "description", info->description);
    cli_json_text(&json, "reference", info->reference);
    cli_json_bool(&json, "trained", info->trained);
    cli_json_compact_array(&json, "elements");
    for (int i = 0; i < info->n_elements; i++) cli_json_text(&json, NULL, mlff_element_symbol(info->elements[i]));
    cli_json_end(&json, ']');
    cli_json_bool(&json, "elements_known", info->n_elements > 0);
    cli_json_int(&json, "n_members", info->n_members);
    cli_json_int(&json, "n_parameters", info->n_parameters);
    cli_json_int(&json, "n_bytes", info->n_bytes);
    cli_json_number(&json, "cutoff_angstrom", info->cutoff_angstrom);
    cli_json_int(&json, "n_layers", info->n_layers);
    cli_json_number(&json, "influence_distance_angstrom", info->n_layers * info->cutoff_angstrom);
    cli_json_bool(&json, "conservative", info->conservative);
    cli_json_bool(&json, "has_atom_energies", info->has_atom_energies);
    cli_json_number(&json, "energy_unit_ev", info->energy_unit_ev);
    cli_json_number(&json, "length_unit_angstrom", info->length_unit_angstrom);
    cli_json_object(&json, "metadata");
    const char *key, *value;
    for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++) cli_json_text(&json, key, value);
    cli_json_end(&json, '}');
    cli_json_end(&json, '}');
}

static int run(cli_arguments *arguments)
{
    const char *path = arguments->positional[0];
    mlff_model *model = NULL;
    mlff_status status = mlff_model_load(path, &model);
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        if (cli_given(arguments, "json"))
            print_json(model, &info, path);
        else
            print_text(model, &info, path);
    }
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command info_command = {
    .name = "info",
    .summary = "what a model file holds",
    .usage = "MODEL [--json]",
    .examples = "mlff info ethanol.safetensors\n"
                "mlff info ethanol.safetensors --json",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run,
};
