// SPDX-License-Identifier: MIT
// cmd_distill.c: mlff distill: from a teacher to a judged student in one command.
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "mlff_distill.h"

static const cli_option options[] = {
    {"output", 'o', "FOLDER", "folder of the run (required); a run that is in it is continued"},
    {"system", 0, "NAME", "a built-in system or a file of structures; several times for several: " CLI_SYSTEM_NAMES},
    {"n-atoms", 0, "N", "atoms of built-in systems that can be made of any size"},
    {"labels", 0, "FILE",
     "in place of --system: labelled structures of any origin, as extended XYZ or a file of mlff label;\n"
     "several times for several"},
    {"preset", 0, "NAME", "demo (about a minute), quick, standard or thorough (quick)"},
    {"config", 0, "FILE", "settings as JSON; options on the command line have precedence"},
    {"print-config", 0, NULL, "print the settings as JSON and end"},
    {"resume", 0, NULL, "continue the run in FOLDER with its own settings"},
    {"structures", 0, "N",
     "structures to be labelled (1000, 2000, 8000 or 30000 by --preset); of --labels: to be used at\nmost, chosen by --seed "
     "(all)"},
    {"rounds", 0, "N",
     "rounds of active learning: the teacher labels frames on which partly trained students disagree\n(standard: 2, thorough: 4, "
     "else 0)"},
    {"features", 0, "N", "of the student: width of the atoms' features (demo: 32, thorough: 128, else 64)"},
    {"layers", 0, "N", "of the student: message-passing layers (thorough: 3, else 2)"},
    {"cutoff", 0, "ANGSTROM", "of the student, Å (5)"},
    {"steps", 0, "N", "steps of the optimizer (30000, 25000, 200000 or 600000 by --preset)"},
    {"batch", 0, "N", "structures in a step (8)"},
    {"learning-rate", 0, "RATE", "highest learning rate (0.006, 0.0025, 0.002 or 0.001 by --preset)"},
    {"optimizer", 0, "NAME", "adamw, or soap: less error in as many steps, each longer (soap; demo: adamw)"},
    {"hvp", 0, "K", "Hessian probes of each structure (0)"},
    {"max-force-error", 0, "EV_PER_ANGSTROM",
     "that the verdict allows on held-out structures, mean absolute, eV/Å (0.1, 0.06, 0.03 or 0.02\nby --preset)"},
    {"seed", 0, "S", "of everything that is random (0)"},
    {"device", 0, "DEVICE", "that trains and runs the student: auto, cpu or cuda:0 (auto)"},
    {"threads", 0, "N", "CPU threads (all cores this process may use)"},
    {"json", 0, NULL, "the verdict as JSON on standard output"},
    {0}};

typedef struct distillation {
    mlff_distill_config config;
    mlff_distill_options run;
    const char *folder, *from;
    bool resume, to_json;
    char systems[4096], labels[4096], text[16384];
    int64_t begun_ns;
} distillation;

// The values of an option that may be given several times, joined by commas; *list_out is NULL without one.
static int join(cli_arguments *arguments, const char *option, char *list, size_t bytes, const char **list_out)
{
    size_t length = 0;
    const char *name;
    *list_out = NULL;
    for (int k = 0; (name = cli_each(arguments, option, k)); k++) {
        if (strchr(name, ','))
            return cli_usage_error(
                arguments, "--%s \"%s\": commas separate names; give each by an option of its own, and rename a file with one",
                option, name);
        length += (size_t)snprintf(list + length, bytes - length, "%s%s", k ? "," : "", name);
        if (length >= bytes) return cli_usage_error(arguments, "the names of --%s are too long together", option);
        *list_out = list;
    }
    return CLI_GOOD;
}

// The preset, changed for a run from labels if there are any, then the settings of --config. If only --config names labels, the preset is
// changed for them first and --config read again.
static mlff_status take_settings(const cli_arguments *arguments, distillation *d, const char *labels, const char *teacher)
{
    mlff_status status = MLFF_OK;
    mlff_distill_config *c = &d->config;
    const char *config = cli_text(arguments, "config", NULL);
    MLFF_TRY(mlff_distill_preset(cli_text(arguments, "preset", "quick"), c));
    c->teacher = teacher;
    if (labels) mlff_distill_use_labels(c, labels);
    if (config) MLFF_TRY(mlff_distill_config_read(config, c, d->text, sizeof d->text));
    if (!labels && c->labels) return take_settings(arguments, d, c->labels, teacher ? teacher : c->teacher);
    if (arguments->n_positional > 0) c->teacher = arguments->positional[0];
    if (cli_given(arguments, "labels")) c->labels = labels;
done:
    return status;
}

// A teacher at most. Further files behind --labels FILE are taken for one.
static int check_teacher(const cli_arguments *arguments)
{
    static const char *const suffixes[] = {".extxyz", ".xyz", ".labels", ".mlff"};
    const int n = arguments->n_positional;
    if (n == 0) return CLI_GOOD;
    const char *last = arguments->positional[n - 1], *dot = strrchr(last, '.'), *labels = cli_each(arguments, "labels", 0);
    bool has_labels = false;
    for (size_t k = 0; dot && k < sizeof suffixes / sizeof *suffixes; k++)
        has_labels = has_labels || strcmp(dot, suffixes[k]) == 0;
    if (labels && has_labels)
        return cli_usage_error(arguments, "each file of labels needs its own --labels: --labels %s --labels %s", labels, last);
    return n > 1 ? cli_usage_error(arguments, "'%s' is one argument too many", last) : CLI_GOOD;
}

// What belongs to sampled structures alone, or to the folder's settings.
static int check_given(cli_arguments *arguments, const distillation *d)
{
    static const char *const of_samples[] = {"system", "n-atoms", "rounds", "hvp"};
    static const char *const settings[] = {"system",        "n-atoms",   "labels", "preset",          "config", "structures",
                                           "rounds",        "features",  "layers", "cutoff",          "steps",  "batch",
                                           "learning-rate", "optimizer", "hvp",    "max-force-error", "seed"};
    const mlff_distill_config *c = &d->config;
    bool is_set = arguments->n_positional > 0;
    if (check_teacher(arguments) != CLI_GOOD) return CLI_USAGE;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) is_set = is_set || cli_given(arguments, settings[k]);
    if (d->resume && is_set)
        return cli_usage_error(arguments, "--resume takes the folder's own settings; give it -o FOLDER alone");
    for (size_t k = 0; c->labels && k < sizeof of_samples / sizeof *of_samples; k++)
        if (cli_given(arguments, of_samples[k]))
            return cli_usage_error(arguments, "--%s goes without --labels, whose structures are there and labelled",
                                   of_samples[k]);
    if (cli_given(arguments, "print-config")) return CLI_GOOD;
    if (!d->folder) return cli_usage_error(arguments, "-o FOLDER is missing");
    if (strcmp(d->folder, "-") == 0) return cli_usage_error(arguments, "-o needs a folder, not standard output");
    if (!d->resume && !c->teacher && !c->labels)
        return cli_usage_error(arguments,
                               "a teacher is missing: a model file, xtb:gfn2, xtb:gfn1 or kim:MODEL; or --labels FILE");
    if (!d->resume && !c->systems && !c->labels)
        return cli_usage_error(arguments, "--system NAME is missing, such as --system ethanol");
    char own[PATH_MAX];
    const char *config = cli_text(arguments, "config", NULL);
    if (config && snprintf(own, sizeof own, "%s/config.json", d->folder) < PATH_MAX && cli_outputs_collide(config, own))
        return cli_usage_error(
            arguments,
            "--config: %s is where the run keeps its own settings; save them elsewhere, or continue that run by --resume",
            config);
    return CLI_GOOD;
}

static int parse(cli_arguments *arguments, distillation *d)
{
    mlff_distill_config *c = &d->config;
    const char *labels, *systems;
    d->run = mlff_distill_options_default();
    d->folder = cli_text(arguments, "output", NULL);
    d->resume = cli_given(arguments, "resume");
    d->to_json = cli_given(arguments, "json");
    d->run.n_threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    int exit_status = join(arguments, "labels", d->labels, sizeof d->labels, &labels);
    if (exit_status == CLI_GOOD) exit_status = join(arguments, "system", d->systems, sizeof d->systems, &systems);
    if (exit_status != CLI_GOOD) return exit_status;
    mlff_status status = cli_device(arguments, &d->run.device);
    if (status == MLFF_OK)
        status = take_settings(arguments, d, labels, arguments->n_positional ? arguments->positional[0] : NULL);
    if (status != MLFF_OK) return cli_exit(status);
    if (systems) c->systems = systems;
    c->n_atoms = (int)cli_int(arguments, "n-atoms", 0, 10000000, c->n_atoms);
    c->n_structures = (int)cli_int(arguments, "structures", c->labels ? 50 : 20, 1000000000, c->n_structures);
    c->n_rounds = (int)cli_int(arguments, "rounds", 0, 8, c->n_rounds);
    c->n_features = (int)cli_int(arguments, "features", 4, 1024, c->n_features);
    c->n_layers = (int)cli_int(arguments, "layers", 1, 16, c->n_layers);
    c->cutoff_angstrom = cli_number(arguments, "cutoff", 1, 20, c->cutoff_angstrom);
    c->n_steps = cli_int(arguments, "steps", 1, INT64_C(1000000000000), c->n_steps);
    c->batch_size = (int)cli_int(arguments, "batch", 1, 1 << 20, c->batch_size);
    c->learning_rate = cli_number(arguments, "learning-rate", 1e-9, 1, c->learning_rate);
    c->optimizer = cli_text(arguments, "optimizer", c->optimizer);
    c->n_probes = (int)cli_int(arguments, "hvp", 0, 100, c->n_probes);
    c->max_force_error = cli_number(arguments, "max-force-error", 0, 1e6, c->max_force_error);
    c->seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_C(9007199254740992), (int64_t)c->seed);
    return arguments->failed ? CLI_USAGE : check_given(arguments, d);
}

static int show(void *context, const mlff_distill_progress *p)
{
    const distillation *d = context;
    if (p->milestone && !d->to_json) {
        cli_progress_clear();
        cli_print("%-8s %7.1f s  %s\n", p->stage, (double)(mlff_clock_ns() - d->begun_ns) * 1e-9, p->text);
        fflush(stdout);
    }
    cli_progress("%s: %3.0f %%, %s", p->stage, 100 * p->fraction, p->text);
    return cli_interrupted();
}

static mlff_status print_file(const char *folder, const char *name)
{
    mlff_status status = MLFF_OK;
    base_text path = {0};
    char *text = NULL;
    size_t length;
    base_text_add(&path, "%s/%s", folder, name);
    MLFF_TRY(path.status);
    MLFF_TRY(base_read_file(path.text, 1 << 24, &text, &length));
    fwrite(text, 1, length, stdout);
done:
    base_free(text);
    base_text_free(&path);
    return status;
}

static bool has_begun(const char *folder)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/config.json", folder) < (int)sizeof path && access(path, F_OK) == 0;
}

static int run_distill(cli_arguments *arguments)
{
    distillation d = {.begun_ns = mlff_clock_ns()};
    int passed = 0, exit_status = parse(arguments, &d);
    if (exit_status != CLI_GOOD) return exit_status;
    if (cli_given(arguments, "print-config")) return cli_exit(mlff_distill_config_save(&d.config, "-"));
    cli_interrupt_catch();
    d.run.callback = show;
    d.run.context = &d;
    mlff_status status = mlff_distill(d.resume ? NULL : &d.config, d.folder, &d.run, &passed);
    cli_progress_clear();
    if (status == MLFF_ERR_INTERRUPTED || (status == MLFF_ERR_IO && has_begun(d.folder)))
        status = mlff_fail(status, "%s; mlff distill --resume -o %s continues", mlff_last_error(), d.folder);
    if (status == MLFF_OK && d.to_json) status = print_file(d.folder, "verdict.json");
    if (status != MLFF_OK) return cli_exit(status);
    if (!d.to_json)
        cli_print("\nverdict: %s in %.0f s; student %s/student.safetensors, page %s/report.html\n", passed ? "PASSED" : "FAILED",
                  (double)(mlff_clock_ns() - d.begun_ns) * 1e-9, d.folder, d.folder);
    return passed ? CLI_GOOD : CLI_FAILED;
}

const cli_command distill_command = {
    .name = "distill",
    .summary = "from a slow teacher to a verified student",
    .usage = "TEACHER --system NAME [--system NAME ...] -o FOLDER [--preset NAME] [OPTIONS]\n"
             "[TEACHER] --labels FILE [--labels FILE ...] -o FOLDER [--preset NAME] [OPTIONS]\n"
             "--resume -o FOLDER",
    .details =
        "Samples structures around the systems (normal modes, rattling, dynamics by the teacher), labels them with the\n"
        "teacher's energies and forces, trains a PaiNN on them and judges it on held-out structures: errors, speed, energy\n"
        "drift, bonds at 500 K, compressed pairs, and forces on atoms that are pressed together beside the teacher's. From the\n"
        "preset standard on, it also compares distances and vibrations with the teacher's, and the student with an equal one\n"
        "that was trained without --rounds. TEACHER is a model file, xtb:gfn2, xtb:gfn1 or kim:MODEL. --resume continues a run\n"
        "that was interrupted; the results are bit-identical. It refuses a config.json that was edited, but for limits and\n"
        "lengths of the verdict.\n"
        "--labels FILE begins from labelled structures, of DFT for example: they are checked, a tenth each is held out for\n"
        "validation and test by whole trajectories (group=N in the comment line), and the student is judged against the\n"
        "labels of the test, with dynamics that begin with up to three of its structures. With a TEACHER beside --labels,\n"
        "speed and pressed atoms (and, from the preset standard on, distances and vibrations) are also compared with the\n"
        "teacher's. Exit status: 0 passed, 1 a limit was not met or a stage failed.",
    .examples = "mlff distill xtb:gfn2 --system ethanol -o ethanol.run\n"
                "mlff distill ani2x.safetensors --system water --n-atoms 96 --features 128 --layers 3 -o water.run\n"
                "mlff distill --labels dft.extxyz --preset standard -o dft.run\n"
                "mlff distill --resume -o ethanol.run\n"
                "mlff distill --preset thorough --print-config",
    .options = options,
    .min_positional = 0,
    .max_positional = INT_MAX, // check_teacher
    .run = run_distill,
};
