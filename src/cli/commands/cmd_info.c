// SPDX-License-Identifier: MIT
// cmd_info.c: mlff info: what a model file holds, and how exact each precision is.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "mlff_train.h"

static const cli_option options[] = {
    {"precisions", 0, NULL, "measure each precision's force error against float64, on the CPU and on a GPU if there is one"},
    {"system", 0, "NAME", "for --precisions, a built-in system (the first whose elements the model knows):\n" CLI_SYSTEM_NAMES},
    {"json", 0, NULL, "for machines"},
    {0}};

// ---- the force error of each precision ----------------------------------------------------------------------------

typedef struct measured {
    mlff_device_kind device;
    mlff_precision precision;
    const char *name;
    bool offered;
    char reason[300];  // if not offered, with what that means
    double rms, worst; // of the difference, in units of the rms force
} measured;

enum { N_ROWS = 6 };
typedef struct measurement {
    mlff_system *system;
    char formula[64];
    measured rows[N_ROWS];
} measurement;

static bool knows(const mlff_model_info *info, const mlff_system *system)
{
    for (int i = 0; i < system->n_atoms; i++) {
        bool known = info->n_elements == 0;
        for (int k = 0; k < info->n_elements; k++) known = known || info->elements[k] == system->species[i];
        if (!known) return false;
    }
    return true;
}

static mlff_status choose_system(const mlff_model_info *info, const char *name, mlff_system **system_out)
{
    static const char *const names[] = {"ethanol", "silicon", "h2o", "methane", "aluminum", "iron"};
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        MLFF_TRY(mlff_system_build(name ? name : names[k], 64, 0, &system));
        if (knows(info, system)) break;
        mlff_system_destroy(system);
        system = NULL;
        if (name) break;
    }
    if (!system)
        MLFF_FAIL(MLFF_ERR_USAGE, "%s; name another with --system",
                  name ? "the model does not know all elements of this system"
                       : "the model knows the elements of no built-in system");
    system->charge = 0; // for models that read them
    system->spin = 1;
    MLFF_TRY(mlff_system_perturb(system, 300.0, 7));
    *system_out = system;
    return MLFF_OK;
done:
    mlff_system_destroy(system);
    return status;
}

// Forces of one precision; row->offered is false, with the reason and no failure, where this device or model has none such.
static mlff_status compute_forces(const mlff_model *model, const mlff_system *system, measured *row, double *forces)
{
    mlff_status status = MLFF_OK;
    mlff_evaluator *evaluator = NULL;
    mlff_evaluator_options wanted = mlff_evaluator_options_default();
    int32_t first_atom[2];
    mlff_batch batch;
    wanted.device.kind = row->device;
    wanted.precision = row->precision;
    status = mlff_evaluator_create(model, &wanted, &evaluator);
    row->offered = status == MLFF_OK;
    if (status == MLFF_ERR_UNSUPPORTED)
        snprintf(row->reason, sizeof row->reason, "not available: %s", mlff_last_cause());
    else if (!row->offered)
        snprintf(row->reason, sizeof row->reason, "not measured: %s",
                 row->device == MLFF_CUDA && mlff_device_count(MLFF_CUDA) == 0 ? "no GPU" : mlff_last_error());
    if (status == MLFF_ERR_DEVICE || status == MLFF_ERR_UNSUPPORTED) return MLFF_OK;
    MLFF_TRY(status);
    mlff_batch_from_system(system, first_atom, &batch);
    status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.forces = forces});
done:
    mlff_evaluator_destroy(evaluator);
    return status;
}

static mlff_status measure(const mlff_model *model, const mlff_model_info *info, const char *name, measurement *m)
{
    static const measured rows[N_ROWS] = {{.device = MLFF_CPU, .precision = MLFF_FLOAT32, .name = "float32"},
                                          {.device = MLFF_CPU, .precision = MLFF_TF32, .name = "tf32"},
                                          {.device = MLFF_CPU, .precision = MLFF_BF16, .name = "bf16"},
                                          {.device = MLFF_CUDA, .precision = MLFF_FLOAT32, .name = "float32"},
                                          {.device = MLFF_CUDA, .precision = MLFF_TF32, .name = "tf32"},
                                          {.device = MLFF_CUDA, .precision = MLFF_BF16, .name = "bf16"}};
    measured exact = {.device = MLFF_CPU, .precision = MLFF_FLOAT64};
    mlff_status status = MLFF_OK;
    double *reference = NULL, *forces = NULL;
    memcpy(m->rows, rows, sizeof rows);
    MLFF_TRY(choose_system(info, name, &m->system));
    mlff_system_formula(m->system, m->formula, sizeof m->formula);
    size_t n = 3 * (size_t)m->system->n_atoms;
    reference = base_alloc(n, sizeof *reference, "forces");
    forces = base_alloc(n, sizeof *forces, "forces");
    if (!reference || !forces) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(compute_forces(model, m->system, &exact, reference));
    double size = 0;
    for (size_t k = 0; k < n; k++) size += reference[k] * reference[k];
    size = sqrt(size / (double)n);
    for (int r = 0; r < N_ROWS; r++) {
        measured *row = &m->rows[r];
        if (cli_interrupted())
            MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %d of %d precisions; nothing is shown", r, N_ROWS);
        MLFF_TRY(compute_forces(model, m->system, row, forces));
        if (row->offered && !(size > 0)) {
            row->offered = false;
            snprintf(row->reason, sizeof row->reason, "no relative error: the forces of float64 are all 0");
        }
        for (size_t k = 0; k < n && row->offered; k++) {
            double off = fabs(forces[k] - reference[k]) / size;
            row->rms += off * off / (double)n;
            row->worst = fmax(row->worst, off);
        }
        row->rms = sqrt(row->rms);
    }
done:
    base_free(reference);
    base_free(forces);
    return status;
}

static void print_measured(const measurement *m)
{
    printf("  precisions       force error against float64 on %s at 300 K, in units of the rms force: rms, largest\n",
           m->formula);
    for (int r = 0; r < N_ROWS; r++) {
        const measured *row = &m->rows[r];
        const char *device = row->device == MLFF_CPU ? "CPU" : "GPU";
        if (row->offered)
            printf("    %s %-12s %.1e, %.1e\n", device, row->name, row->rms, row->worst);
        else
            printf("    %s %-12s %s\n", device, row->name, row->reason);
    }
}

static void print_measured_json(cli_json *json, const measurement *m)
{
    cli_json_object(json, "precisions");
    cli_json_text(json, "system", m->formula);
    cli_json_array(json, "force_errors");
    for (int r = 0; r < N_ROWS; r++) {
        cli_json_object(json, NULL);
        cli_json_text(json, "device", m->rows[r].device == MLFF_CPU ? "cpu" : "cuda");
        cli_json_text(json, "precision", m->rows[r].name);
        cli_json_number(json, "relative_rms", m->rows[r].offered ? m->rows[r].rms : NAN);
        cli_json_number(json, "relative_largest", m->rows[r].offered ? m->rows[r].worst : NAN);
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
    cli_json_end(json, '}');
}

// ---- the model ----------------------------------------------------------------------------------------------------

static void print_elements(const mlff_model_info *info)
{
    fputs("  elements         ", stdout);
    if (info->n_elements == 0) fputs("unknown: the file does not say what it was trained on", stdout);
    for (int i = 0; i < info->n_elements; i++) {
        int last = i; // runs of neighbors in the periodic table are shortened: H-Es
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

static void print_text(const mlff_model *model, const mlff_model_info *info, const char *path, const measurement *m)
{
    cli_print("%s\n", path);
    cli_print("  architecture     %s\n", info->architecture);
    cli_print("  description      %s\n", info->description);
    cli_print("  reference        %s\n", info->reference);
    printf("  trained          %s\n", info->trained ? "yes" : "no: untrained, random weights");
    print_elements(info);
    if (info->n_members > 1) printf("  members          %d: the energy is their mean\n", info->n_members);
    printf("  parameters       %lld (%.2f MB)\n", (long long)info->n_parameters, (double)info->n_bytes / 1048576.0);
    printf("  cutoff           %g Å, %d layer%s: an atom feels others up to %g Å away\n", info->cutoff_angstrom, info->n_layers,
           base_plural(info->n_layers), info->n_layers * info->cutoff_angstrom);
    printf("  forces           %s\n", info->conservative                               ? "the exact derivative of the energy"
                                      : mlff_model_outputs(model) & MLFF_OUTPUT_FORCES ? "not the derivative of the energy"
                                                                                       : "none");
    printf("  energy of atoms  %s\n", info->has_atom_energies ? "yes" : "no");
    printf("  units inside     energy %.15g eV, length %.15g Å\n", info->energy_unit_ev, info->length_unit_angstrom);
    if (m)
        print_measured(m);
    else
        puts("  precisions       float64 and float32; --precisions tells which others there are, and the force error of each");
    puts("  metadata");
    const char *key, *value;
    for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++)
        cli_print("    %-24.70s %.120s%s\n", key, value, strlen(value) > 120 ? " …" : "");
}

static const struct {
    unsigned flag;
    const char *name;
} outputs[] = {{MLFF_OUTPUT_ENERGIES, "energies"}, {MLFF_OUTPUT_ATOM_ENERGIES, "atom_energies"},
               {MLFF_OUTPUT_FORCES, "forces"},     {MLFF_OUTPUT_STRESS, "stresses"},
               {MLFF_OUTPUT_VIRIALS, "virials"},   {MLFF_OUTPUT_FORCE_ERRORS, "force_errors"}};
enum { N_OUTPUTS = sizeof outputs / sizeof *outputs };

static void print_json(const mlff_model *model, const mlff_model_info *info, const char *path, const measurement *m)
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
    cli_json_compact_array(&json, "outputs");
    for (int i = 0; i < N_OUTPUTS; i++)
        if (mlff_model_outputs(model) & outputs[i].flag) cli_json_text(&json, NULL, outputs[i].name);
    cli_json_end(&json, ']');
    cli_json_number(&json, "energy_unit_ev", info->energy_unit_ev);
    cli_json_number(&json, "length_unit_angstrom", info->length_unit_angstrom);
    if (m) print_measured_json(&json, m);
    cli_json_object(&json, "metadata");
    const char *key, *value;
    for (int i = 0; (key = mlff_model_metadata(model, i, &value)); i++) cli_json_text(&json, key, value);
    cli_json_end(&json, '}');
    cli_json_end(&json, '}');
}

// ---- a checkpoint of a training ---------------------------------------------------------------------------------------

static bool find_best(const char *path, char best[PATH_MAX])
{
    return mlff_checkpoint_best_path(path, best, PATH_MAX) == MLFF_OK && access(best, F_OK) == 0;
}

// The folder of the run of mlff distill that the checkpoint is in; false where it is in none.
static bool find_run(const char *path, char folder[PATH_MAX])
{
    char made_with[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return snprintf(made_with, sizeof made_with, "%s/made-with.json", folder) < PATH_MAX && access(made_with, F_OK) == 0;
}

static void print_checkpoint(const mlff_checkpoint_info *info, const char *path)
{
    char errors[96], best[PATH_MAX], folder[PATH_MAX];
    const bool ended = info->step == info->n_steps;
    cli_print("%s\n", path);
    puts("  kind             checkpoint of a training, from which it goes on; not a model");
    cli_print("  student          %s; %" PRId64 " parameters\n", info->model, info->n_parameters);
    printf("  training data    %" PRId64 " structure%s\n", info->n_structures, base_plural(info->n_structures));
    printf("  settings         seed %" PRIu64 ", batch %d, learning rate %g, %s\n", info->seed, info->batch_size,
           info->learning_rate, info->optimizer == MLFF_SOAP ? "soap" : "adamw");
    printf("  step             %" PRId64 " of %" PRId64 "%s", info->step, info->n_steps, ended ? ", its end" : "");
    if (info->elapsed_s > 0) printf(", in %.3g s", info->elapsed_s);
    if (info->best_step > 0)
        printf("\n  errors           %s (mean absolute, %" PRId64 " structure%s for validation, step %" PRId64 ")\n",
               mlff_training_errors_text(&info->best, errors), info->best.n_frames, base_plural(info->best.n_frames),
               info->best_step);
    else
        puts("\n  errors           none yet: before the first validation");
    if (find_best(path, best)) cli_print("  best student     %s, a model for mlff md, eval, verdict\n", best);
    if (find_run(path, folder))
        cli_print("  goes on          mlff distill --resume -o %s\n", folder);
    else
        cli_print("  goes on          mlff train … --checkpoint %s, with the options that it was begun with%s\n", path,
                  ended ? "; its student is written again" : "");
}

static void print_checkpoint_json(const mlff_checkpoint_info *info, const char *path)
{
    cli_json json = {.file = stdout};
    char best[PATH_MAX];
    cli_json_object(&json, NULL);
    cli_json_text(&json, "path", path);
    cli_json_text(&json, "kind", "checkpoint");
    cli_json_text(&json, "student", info->model);
    cli_json_int(&json, "n_parameters", info->n_parameters);
    cli_json_int(&json, "training_structures", info->n_structures);
    cli_json_int(&json, "seed", (int64_t)info->seed);
    cli_json_int(&json, "batch", info->batch_size);
    cli_json_number(&json, "learning_rate", info->learning_rate);
    cli_json_text(&json, "optimizer", info->optimizer == MLFF_SOAP ? "soap" : "adamw");
    cli_json_int(&json, "step", info->step);
    cli_json_int(&json, "n_steps", info->n_steps);
    cli_json_number(&json, "elapsed_s", info->elapsed_s);
    cli_json_int(&json, "best_step", info->best_step);
    cli_json_int(&json, "validation_structures", info->best.n_frames);
    cli_json_number(&json, "energy_mae_ev_per_atom", info->best.energy_mae);
    cli_json_number(&json, "force_mae_ev_per_angstrom", info->best.force_mae);
    cli_json_number(&json, "stress_mae_ev_per_angstrom3", info->best.stress_mae);
    cli_json_text(&json, "best_student", find_best(path, best) ? best : NULL);
    cli_json_end(&json, '}');
}

// Of a file that is no model, as the last error says.
static int tell_checkpoint(const char *path, bool to_json)
{
    char error[1200];
    mlff_checkpoint_info info = {.struct_size = sizeof info};
    snprintf(error, sizeof error, "%s", mlff_last_error());
    mlff_status status = mlff_checkpoint_info_get(path, &info);
    if (status == MLFF_OK) (to_json ? print_checkpoint_json : print_checkpoint)(&info, path);
    if (status == MLFF_ERR_UNSUPPORTED) status = mlff_fail(MLFF_ERR_FORMAT, "%s", error);
    return cli_exit(status);
}

static int run(cli_arguments *arguments)
{
    const char *path = arguments->positional[0], *system = cli_text(arguments, "system", NULL);
    bool precisions = cli_given(arguments, "precisions");
    mlff_model *model = NULL;
    measurement m = {0};
    if (system && !precisions) return cli_usage_error(arguments, "--system needs --precisions");
    mlff_status status = mlff_model_load(path, &model);
    if (status == MLFF_ERR_FORMAT && !precisions) return tell_checkpoint(path, cli_given(arguments, "json"));
    if (status == MLFF_OK) {
        mlff_model_info info;
        mlff_model_info_get(model, &info);
        if (precisions) cli_interrupt_catch();
        if (precisions) status = measure(model, &info, system, &m);
        if (status == MLFF_OK)
            (cli_given(arguments, "json") ? print_json : print_text)(model, &info, path, precisions ? &m : NULL);
    }
    mlff_system_destroy(m.system);
    mlff_model_destroy(model);
    return cli_exit(status);
}

const cli_command info_command = {
    .name = "info",
    .summary = "what a model file holds",
    .usage = "MODEL [--precisions [--system NAME]] [--json]",
    .details = "Of a checkpoint of mlff train or distill: the training, its step and errors, and how it goes on.",
    .examples = "mlff info ethanol.safetensors\n"
                "mlff info ethanol.safetensors --precisions\n"
                "mlff info ethanol.safetensors --json",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run,
};
