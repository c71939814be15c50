// SPDX-License-Identifier: MIT
// cmd_vibrations.c: mlff vibrations: harmonic frequencies of a structure.
#include <inttypes.h>
#include <math.h>

#include "base/base.h"
#include "cli/support/cli.h"

#define MEV_CM 0.1239841984                 // meV of 1/cm
#define THZ_CM (1e3 * BASE_LIGHT_CM_PER_FS) // THz of 1/cm
#define LARGE_FORCE 0.05                    // eV/Å: beyond it the structure is no minimum

static const cli_option options[] = {{"system", 0, "NAME", "a built-in structure instead of INPUT: water, ethanol, benzene …"},
                                     {"n-atoms", 0, "N", "atoms of a built-in system that can be made of any size"},
                                     {"step", 0, "ANGSTROM", "displacement of an atom to each side, Å (0.005)"},
                                     CLI_READER_OPTIONS,
                                     {"json", 0, NULL, "wavenumbers and displacements as JSON on standard output"},
                                     CLI_EVALUATOR_OPTIONS,
                                     {0}};

static mlff_status read_first(const cli_arguments *arguments, const char *path, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    MLFF_TRY(cli_reader_open(arguments, path, &reader));
    MLFF_TRY(cli_reader_next(arguments, reader, system_out));
    if (!*system_out) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: has no structures", path);
done:
    mlff_reader_destroy(reader);
    return status;
}

static const char *rigid_names(int n_rigid, bool periodic)
{
    if (n_rigid == 3) return periodic ? "3 acoustic modes (translations)" : "3 translations";
    return n_rigid == 4   ? "3 acoustic modes (translations), 1 rotation"
           : n_rigid == 5 ? "3 translations, 2 rotations"
                          : "3 translations, 3 rotations";
}

static void print_json(const cli_setup *setup, const mlff_system *system, const mlff_vibrations *v)
{
    cli_json json = {.file = stdout};
    cli_json_object(&json, NULL);
    cli_json_text(&json, "model", setup->info.name);
    cli_json_bool(&json, "trained", setup->info.trained);
    cli_json_text(&json, "precision", setup->precision);
    cli_json_int(&json, "n_atoms", system->n_atoms);
    cli_json_number(&json, "largest_force_ev_per_ang", v->largest_force);
    cli_json_number(&json, "zero_point_energy_ev", v->zero_point_energy);
    cli_json_numbers(&json, "rigid_wavenumbers_per_cm", v->rigid_wavenumbers, v->n_rigid);
    cli_json_array(&json, "rigid_names");
    for (int r = 0; r < v->n_rigid; r++) cli_json_text(&json, NULL, r < 3 ? "translation" : "rotation");
    cli_json_end(&json, ']');
    cli_json_numbers(&json, "wavenumbers_per_cm", v->wavenumbers, v->n_modes);
    cli_json_array(&json, "displacements");
    for (int k = 0; k < v->n_modes; k++)
        cli_json_numbers(&json, NULL, v->displacements + 3 * (size_t)system->n_atoms * (size_t)k, 3 * system->n_atoms);
    cli_json_end(&json, ']');
    cli_json_end(&json, '}');
}

static bool is_periodic(const mlff_system *system)
{
    return system->periodic[0] || system->periodic[1] || system->periodic[2];
}

static void print_table(const cli_setup *setup, const mlff_system *system, const mlff_vibrations *v)
{
    int n_imaginary = 0;
    cli_setup_print(setup);
    printf("%d atom%s, %d vibration%s; largest force %.3g eV/Å; zero-point energy %.5f eV\n", system->n_atoms,
           base_plural(system->n_atoms), v->n_modes, base_plural(v->n_modes), v->largest_force, v->zero_point_energy);
    if (v->n_rigid > 0) {
        printf("left out, %s (1/cm, exactly 0 at a minimum):", rigid_names(v->n_rigid, is_periodic(system)));
        for (int r = 0; r < v->n_rigid; r++) {
            const double w = v->rigid_wavenumbers[r];
            printf(" %.2f%s", fabs(w) < 0.005 ? 0.0 : fabs(w), w <= -0.005 ? "i" : "");
        }
        putchar('\n');
    }
    if (v->n_modes == 0) return;
    printf("\n%6s %12s %12s %12s %12s\n%6s %12s %12s %12s %12s\n", "mode", "wavenumber", "energy", "frequency", "period", "",
           "1/cm", "meV", "THz", "fs");
    for (int k = 0; k < v->n_modes; k++) {
        const double w = v->wavenumbers[k];
        n_imaginary += w < 0;
        if (w < 0)
            printf("%6d %11.2fi %12s %11.3fi %12s\n", k + 1, -w, "-", -THZ_CM * w, "-");
        else
            printf("%6d %12.2f %12.3f %12.3f %12.3f\n", k + 1, w, MEV_CM * w, THZ_CM * w, 1e3 / (THZ_CM * w));
    }
    if (n_imaginary > 0)
        printf("\n%d imaginary: a saddle point, a structure that is not relaxed, or a kink of the energy\n", n_imaginary);
}

static int on_progress(void *context, int64_t n_done, int64_t n_computations)
{
    const cli_arguments *arguments = context;
    cli_progress("%s: %" PRId64 " of %" PRId64 " computations of forces", arguments->command->name, n_done, n_computations);
    return cli_interrupted();
}

static int run_vibrations(cli_arguments *arguments)
{
    static const char *const of_files[] = {"input-format", "topology"};
    mlff_status status = MLFF_OK;
    cli_setup setup = {0};
    mlff_vibrations_options options_of_run = mlff_vibrations_options_default();
    mlff_system *system = NULL;
    mlff_vibrations v = {0};
    const char *input = arguments->n_positional > 1 ? arguments->positional[1] : NULL;
    const char *name = cli_text(arguments, "system", NULL);
    options_of_run.step = cli_number(arguments, "step", 1e-6, 0.5, options_of_run.step);
    options_of_run.progress = on_progress;
    options_of_run.progress_context = arguments;
    const int64_t n_atoms = cli_int(arguments, "n-atoms", 1, 100000, 0);
    if (arguments->failed) return CLI_USAGE;
    if (!input == !name) return cli_usage_error(arguments, "give either a file or --system NAME");
    if (cli_given(arguments, "n-atoms") && !name) return cli_usage_error(arguments, "--n-atoms needs --system");
    for (int k = 0; name && k < 2; k++)
        if (cli_given(arguments, of_files[k])) return cli_usage_error(arguments, "--%s needs INPUT", of_files[k]);
    int exit_status = cli_setup_make(arguments, &setup);
    if (exit_status != CLI_GOOD) goto done;
    MLFF_TRY(name ? cli_system_build(name, (int)n_atoms, 0, &system) : read_first(arguments, input, &system));
    if (name) cli_model_complete(setup.model, system);
    MLFF_TRY(cli_model_check_elements(setup.model, system, name ? name : input));
    if (arguments->command == &phonons_command && !is_periodic(system))
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: has no periodic cell; the modes of a molecule are computed by mlff vibrations",
                  name ? name : input);
    cli_interrupt_catch();
    status = mlff_vibrations_compute(setup.evaluator, system, &options_of_run, &v);
    cli_progress_clear();
    if (status == MLFF_ERR_INTERRUPTED)
        MLFF_FAIL(status, "%s: %s; the modes need all of them, so that nothing is printed", name ? name : input,
                  mlff_last_error());
    if (status != MLFF_OK) MLFF_FAIL(status, "%s: %s", name ? name : input, mlff_last_error());
    if (cli_given(arguments, "json"))
        print_json(&setup, system, &v);
    else
        print_table(&setup, system, &v);
    if (v.largest_force > LARGE_FORCE)
        cli_say("warning: a force of %.3g eV/Å: this is not a minimum, so the wavenumbers mean little; run mlff relax first",
                v.largest_force);
done:
    mlff_vibrations_free(&v);
    mlff_system_destroy(system);
    cli_setup_free(&setup);
    return exit_status != CLI_GOOD ? exit_status : cli_exit(status);
}

const cli_command vibrations_command = {
    .name = "vibrations",
    .summary = "harmonic frequencies of a relaxed structure",
    .usage = "MODEL INPUT|--system NAME [--step ANGSTROM] [--precision float64] [OPTIONS]",
    .details =
        "Computes second derivatives of the energy by central differences of the forces. The first frame of INPUT should be a\n"
        "minimum (mlff relax --fmax 0.001). Translations and rotations of the whole are projected out; their wavenumbers, 0 in\n"
        "exact arithmetic, are printed. For a crystal the modes are those of the given cell (the Γ point). Fixed atoms do not\n"
        "move. Imaginary frequencies are printed with an i, in JSON as negative numbers.",
    .examples = "mlff relax ethanol ethanol.xyz -o minimum.extxyz --fmax 0.001\n"
                "mlff vibrations ethanol minimum.extxyz --precision float64",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run_vibrations,
};

const cli_command phonons_command = {
    .name = "phonons",
    .summary = "phonons of a relaxed crystal at the Γ point of its cell",
    .usage = "MODEL INPUT|--system NAME [--step ANGSTROM] [--precision float64] [OPTIONS]",
    .details =
        "The modes of the given periodic cell, by central differences of the forces: wavenumbers in 1/cm, also as energies and\n"
        "frequencies. The acoustic modes are translations here; they are projected out, and their wavenumbers, 0 in exact\n"
        "arithmetic, are printed. A supercell holds the wave vectors that fold to its Γ point. The first frame of INPUT should "
        "be\n"
        "a minimum (mlff relax --cell --fmax 0.001). Options and output are those of mlff vibrations.",
    .examples = "mlff relax silicon.safetensors POSCAR -o minimum.extxyz --cell --fmax 0.001\n"
                "mlff phonons silicon.safetensors minimum.extxyz --precision float64",
    .options = options,
    .min_positional = 1,
    .max_positional = 2,
    .run = run_vibrations,
};
