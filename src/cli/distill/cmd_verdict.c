// SPDX-License-Identifier: MIT
// cmd_verdict.c: mlff verdict: judge whether a student can replace its teacher.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "cli/support/cli.h"
#include "mlff_distill.h"

static const cli_option options[] = {
    {"test", 0, "FILE", "labelled structures that the student was not trained on (required)"},
    {"trained-on", 0, "FILE",
     "structures that the student was trained on, repeated for several files: copies in --test fail the verdict\n"
     "(those that its metadata name, where they are still there)"},
    {"teacher", 0, "TEACHER",
     "a model file, xtb:gfn2, xtb:gfn1 or kim:MODEL: speed, pressed, error.dynamics, structure and spectrum\nare beside it"},
    {"baseline", 0, "MODEL", "a model that the student must not be worse than on the same structures"},
    {"output", 'o', "FILE", "the verdict as JSON"},
    {"system", 0, "NAME",
     "a built-in system or a file, repeated: each frame is judged by itself (16 at most): " CLI_SYSTEM_NAMES},
    {"n-atoms", 0, "N", "atoms of each --system that can grow; the nearest count it allows is built (64)"},
    {"temperature", 0, "K", "of the NVE run and of the comparison, K (300)"},
    {"nve", 0, "PS", "length of the NVE run, ps (20; 0 leaves it out)"},
    {"hot", 0, "PS", "length of each run at 500 K, ps (50; 0 leaves them out)"},
    {"compare", 0, "PS",
     "dynamics of student and of teacher for structure and spectrum, each in four runs, ps (20; 0 leaves them out)"},
    {"pressed", 0, "N", "most structures with two atoms pressed together (1024; of large systems a quarter; 0 leaves them out)"},
    {"dynamics", 0, "N",
     "structures of new dynamics of the student, at --temperature and 500 K, to compare forces (64; 0: none)"},
    {"speed-time", 0, "S",
     "of student and teacher together, for each of speed and speed.batch, s (1.2); longer on a busy machine"},
    {"timestep", 0, "FS", "fs (0.5)"},
    {"max-force-error", 0, "EV_PER_ANGSTROM", "mean absolute, eV/Å (0.05)"},
    {"max-energy-error", 0, "EV", "mean absolute, eV/atom (0.005)"},
    {"max-pressure-error", 0, "GPA", "mean difference of the pressure in a trajectory, GPa, of labels with a stress (0.1)"},
    {"max-drift", 0, "EV_PER_PS", "slope of the conserved energy, eV/atom/ps (5e-5)"},
    {"min-speed", 0, "RATIO", "teacher's time over the student's (1)"},
    {"seed", 0, "S", "of velocities and noise (0)"},
    {"device", 0, "DEVICE", "of the student, and of a teacher that is a model: auto, cpu or cuda:0 (auto)"},
    {"threads", 0, "N", "CPU threads of each, processes of xtb and KIM (all cores this process may use)"},
    {0}};

static int show(void *context, const char *what, double fraction)
{
    (void)context;
    cli_progress("verdict: %s, %.0f %%", what, 100 * fraction);
    return cli_interrupted();
}

// Bars that are measured beside a teacher, where there is none and they are not asked for.
static void leave_out_comparisons(const cli_arguments *arguments, mlff_verdict_options *o)
{
    if (cli_given(arguments, "teacher")) return;
    const bool speed = !cli_given(arguments, "min-speed"), pressed = !cli_given(arguments, "pressed"),
               dynamics = !cli_given(arguments, "dynamics"), compare = !cli_given(arguments, "compare");
    if (speed) o->min_speed = 0;
    if (pressed) o->n_pressed = 0;
    if (dynamics) o->n_dynamics = 0;
    if (compare) o->compare_ps = 0;
    char names[80];
    const int length = snprintf(names, sizeof names, "%s%s%s%s", speed ? ", speed" : "", pressed ? ", pressed" : "",
                                dynamics ? ", error.dynamics" : "", compare ? ", structure, spectrum" : "");
    if (length > 0) printf("not judged, since there is no --teacher to compare with: %s\n", names + strlen(", "));
}

static int parse(cli_arguments *arguments, mlff_verdict_options *o)
{
    *o = mlff_verdict_options_default();
    o->temperature_kelvin = cli_number(arguments, "temperature", 1, 1e5, o->temperature_kelvin);
    o->nve_ps = cli_number(arguments, "nve", 0, 1e6, o->nve_ps);
    o->hot_ps = cli_number(arguments, "hot", 0, 1e6, o->hot_ps);
    o->compare_ps = cli_number(arguments, "compare", 0, 1e6, o->compare_ps);
    o->speed_s = cli_number(arguments, "speed-time", 0.01, 3600, o->speed_s);
    o->timestep_fs = cli_number(arguments, "timestep", 1e-3, 10, o->timestep_fs);
    o->max_force_error = cli_number(arguments, "max-force-error", 0, 1e6, o->max_force_error);
    o->max_energy_error = cli_number(arguments, "max-energy-error", 0, 1e6, o->max_energy_error);
    o->max_drift = cli_number(arguments, "max-drift", 0, 1e6, o->max_drift);
    o->min_speed = cli_number(arguments, "min-speed", 0, 1e6, o->min_speed);
    o->n_pressed = (int)cli_int(arguments, "pressed", 0, 1000000, o->n_pressed);
    o->n_dynamics = (int)cli_int(arguments, "dynamics", 0, 1000000, o->n_dynamics);
    o->max_pressure_error = cli_number(arguments, "max-pressure-error", 0, 1e6, o->max_pressure_error);
    o->seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    o->n_threads = (int)cli_int(arguments, "threads", 1, 4096, 0);
    o->callback = show;
    if (arguments->failed) return CLI_USAGE;
    if (!cli_given(arguments, "test")) return cli_usage_error(arguments, "--test FILE is missing");
    return cli_exit(cli_device(arguments, &o->device));
}

static void print_bars(const mlff_verdict *verdict, bool partial)
{
    static const char *const states[] = {"passed", "FAILED", "NOT MEASURED"};
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    printf("%-14s %-12s %12s %12s  %s\n", "bar", "", "measured", "limit", "");
    for (int k = 0; k < n; k++) {
        char measured[24] = "-", limit[24] = "-";
        if (isfinite(bars[k].value)) snprintf(measured, sizeof measured, "%.4g", bars[k].value);
        if (isfinite(bars[k].limit)) snprintf(limit, sizeof limit, "%.4g", bars[k].limit);
        cli_print("%-14s %-12s %12s %2s %9s  %s%s%s%s%s\n", bars[k].name, states[bars[k].state], measured,
                  bars[k].at_least ? ">=" : "<=", limit, base_unit(bars[k].unit, bars[k].limit), bars[k].unit[0] ? ": " : "",
                  bars[k].system, bars[k].system[0] ? ": " : "", bars[k].text);
    }
    printf("\nverdict: %s\n", partial ? "NOT FINISHED" : mlff_verdict_passed(verdict) ? "PASSED" : "FAILED");
}

// Bars beside the file of -o until it is written; "" where there is none.
static int name_parts(const cli_arguments *arguments, const char *output, char parts[PATH_MAX])
{
    parts[0] = 0;
    if (!output || base_is_stream(output)) return CLI_GOOD;
    if (snprintf(parts, PATH_MAX, "%s.parts", output) >= PATH_MAX)
        return cli_usage_error(arguments, "--output: this name is too long");
    return cli_files_check_another(arguments, "output", parts, true);
}

// Bars are of the student and the teacher of these names and contents.
static mlff_status judge(const cli_arguments *arguments, const mlff_model *student, mlff_teacher *teacher,
                         const mlff_dataset *test, const mlff_verdict_options *wanted, const char *parts,
                         mlff_verdict **verdict_out)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_info info = {.hash = "none"};
    char path[PATH_MAX], hash[SHA256_TEXT_BYTES];
    base_text origin = {0};
    const char *name = cli_text(arguments, "teacher", NULL);
    const mlff_force_field field = {name, mlff_teacher_forces, teacher}, *beside = teacher ? &field : NULL;
    if (!*parts) return mlff_verdict_create(student, beside, test, NULL, wanted, verdict_out);
    if (teacher) mlff_teacher_info_get(teacher, &info);
    MLFF_TRY(mlff_model_find(arguments->positional[0], path, sizeof path));
    MLFF_TRY(sha256_file(path, hash));
    base_text_add(&origin, "student %s %s, teacher %s %s", arguments->positional[0], hash, name ? name : "", info.hash);
    MLFF_TRY(origin.status);
    if (access(parts, F_OK) == 0)
        cli_print("bars in %s of the same student, teacher and settings are not measured again\n", parts);
    status = mlff_verdict_create_kept(student, beside, test, NULL, wanted, parts, origin.text, verdict_out);
done:
    base_text_free(&origin);
    return status;
}

// A verdict that ends early: what was measured is shown, and kept under another name where a file is wanted. Returns `cause`.
static mlff_status keep_bars(const mlff_verdict *verdict, const char *output, const char *parts, mlff_status cause)
{
    char partial[PATH_MAX], what[32], remedy[PATH_MAX + 64];
    int n;
    cli_kept kept = cli_kept_begin(cause);
    cli_progress_clear();
    print_bars(verdict, true);
    if (!output || base_is_stream(output)) return mlff_fail(cause, "%s; the bars before it are shown", kept.error);
    mlff_verdict_bars(verdict, &n);
    mlff_status status = base_partial_name(output, partial);
    if (status == MLFF_OK && (status = mlff_verdict_save(verdict, partial)) != MLFF_OK) unlink(partial);
    if (status != MLFF_OK)
        return mlff_fail(cause, "%s; the bars before it are shown, and not kept: %s", kept.error, mlff_last_error());
    snprintf(what, sizeof what, "%d bar%s", n, base_plural(n));
    cli_kept_thing(&kept, partial, what);
    const bool goes_on = mlff_verdict_is_kept(verdict);
    snprintf(remedy, sizeof remedy, "the same command %s%s", goes_on ? "goes on behind those in " : "measures them again",
             goes_on ? parts : "");
    return cli_kept_tell(&kept, remedy);
}

// The distance from an atom to the nearest other one, Å.
static double nearest_distance(const mlff_system *system, int i)
{
    double nearest = INFINITY;
    for (int j = 0; j < system->n_atoms; j++) {
        double square = 0;
        for (int c = 0; c < 3; c++) square += pow(system->positions[3 * i + c] - system->positions[3 * j + c], 2);
        if (j != i) nearest = fmin(nearest, sqrt(square));
    }
    return nearest;
}

// Did a student that relaxed this molecule bring atoms together or tear them apart? Its bonds are then not those to be kept.
static bool is_broken(const mlff_system *before, const mlff_system *after)
{
    const double most = 0.5; // Å, as a bond may change in the verdict's dynamics
    for (int i = 0; i < before->n_atoms; i++)
        if (!(fabs(nearest_distance(after, i) - nearest_distance(before, i)) <= most)) return true;
    return false;
}

static int while_relaxing(void *context, const mlff_sample_progress *progress)
{
    (void)context, (void)progress;
    return cli_interrupted();
}

// Adds a molecule as `teacher` relaxes it, or as it is where that fails: samples of as many structures as seeds are the relaxed seeds.
static mlff_status add_relaxed(mlff_teacher *teacher, bool is_student, const mlff_system *system, const char *origin,
                               mlff_samples *systems)
{
    mlff_status status = MLFF_OK;
    mlff_samples *seeds = NULL, *relaxed = NULL;
    mlff_sample_options one = mlff_sample_options_default();
    one.n_samples = 1;
    one.methods = "pairs"; // without the teacher
    one.callback = while_relaxing;
    MLFF_TRY(mlff_samples_create(&seeds));
    MLFF_TRY(mlff_samples_create(&relaxed));
    MLFF_TRY(mlff_samples_add(seeds, system, origin));
    status = mlff_sample(teacher, seeds, &one, relaxed);
    if (status == MLFF_ERR_VALUE) status = MLFF_OK;
    MLFF_TRY(status);
    const mlff_system *found = mlff_samples_get(relaxed, 0, NULL);
    MLFF_TRY(mlff_samples_add(systems, !found || (is_student && is_broken(system, found)) ? system : found, origin));
done:
    mlff_samples_destroy(seeds);
    mlff_samples_destroy(relaxed);
    return status;
}

// The molecules among the systems are relaxed by the teacher, or by the student: bonds of rough structures are not those that dynamics must
// keep.
static mlff_status relax_systems(const mlff_model *student, mlff_teacher *teacher, const mlff_verdict_options *wanted,
                                 const mlff_samples *given, mlff_samples **systems_out)
{
    mlff_status status = MLFF_OK;
    mlff_teacher *own = NULL;
    mlff_teacher_options of_student = mlff_teacher_options_default();
    of_student.device = wanted->device;
    of_student.n_threads = wanted->n_threads;
    MLFF_TRY(mlff_samples_create(systems_out));
    if (!teacher) MLFF_TRY(mlff_teacher_create_model(student, &of_student, &own));
    for (int64_t k = 0; k < mlff_samples_size(given); k++) {
        const char *origin;
        const mlff_system *system = mlff_samples_get(given, k, &origin);
        if (system->n_atoms < 2 || system->periodic[0] || system->periodic[1] || system->periodic[2])
            MLFF_TRY(mlff_samples_add(*systems_out, system, origin));
        else
            MLFF_TRY(add_relaxed(teacher ? teacher : own, !teacher, system, origin, *systems_out));
    }
done:
    mlff_teacher_destroy(own);
    return status;
}

// The systems of --system, else the first held-out structure.
static mlff_status collect_systems(const cli_arguments *arguments, const mlff_teacher *teacher, const mlff_dataset *test,
                                   int n_atoms, uint64_t seed, mlff_samples **systems_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *first = NULL;
    const char *name;
    MLFF_TRY(mlff_samples_create(systems_out));
    for (int k = 0; (name = cli_each(arguments, "system", k)); k++)
        MLFF_TRY(mlff_samples_add_named(*systems_out, teacher, name, n_atoms, seed));
    if (mlff_samples_size(*systems_out) > 0) return MLFF_OK;
    MLFF_TRY(mlff_dataset_get(test, 0, &first));
    MLFF_TRY(mlff_samples_add(*systems_out, first, NULL));
done:
    mlff_system_destroy(first);
    return status;
}

// Of a student that was trained several times a part of the structures is known: copies of these are reported, and without one nothing is said of
// the test, which may have copies of the others.
static mlff_status compare_with_part(const mlff_dataset *test, mlff_dataset **known)
{
    mlff_status status = MLFF_OK;
    int64_t n_copies;
    const int64_t n = mlff_dataset_size(*known);
    MLFF_TRY(mlff_dataset_copies(test, *known, &n_copies, NULL));
    cli_say(
        "warning: the student was trained several times, and structures of a training are not found: it is compared with %" PRId64
        " structure%s%s; name all files with --trained-on",
        n, base_plural(n), n_copies ? "" : ", of which the test has no copies");
    if (n_copies > 0) return MLFF_OK;
    mlff_dataset_destroy(*known);
    *known = NULL;
done:
    return status;
}

// Those of --trained-on, or those that the student's metadata name, where they are still there; else NULL.
static mlff_status find_training_data(const cli_arguments *arguments, const mlff_model *student, const mlff_dataset *test,
                                      mlff_dataset **data_out)
{
    mlff_status status = MLFF_OK;
    char path[PATH_MAX];
    int complete;
    const char *given = cli_each(arguments, "trained-on", 0);
    if (given) {
        MLFF_TRY(mlff_dataset_create(data_out));
        for (int k = 0; (given = cli_each(arguments, "trained-on", k)); k++) MLFF_TRY(mlff_dataset_read(*data_out, given));
        goto done;
    }
    MLFF_TRY(mlff_model_find(arguments->positional[0], path, sizeof path));
    MLFF_TRY(mlff_model_training_data(student, path, 0, data_out, &complete));
    if (*data_out && !complete)
        MLFF_TRY(compare_with_part(test, data_out));
    else if (*data_out)
        cli_print("compared with the %" PRId64 " structure%s that the student was trained on, which its metadata name\n",
                  mlff_dataset_size(*data_out), base_plural(mlff_dataset_size(*data_out)));
done:
    return status;
}

static int run_verdict(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    mlff_verdict_options wanted;
    mlff_model *student = NULL, *baseline = NULL;
    mlff_teacher *teacher = NULL;
    mlff_dataset *test = NULL, *trained_on = NULL;
    mlff_verdict *verdict = NULL;
    mlff_samples *given = NULL, *systems = NULL;
    int passed = 0;
    const char *teacher_name = cli_text(arguments, "teacher", NULL), *output = cli_text(arguments, "output", NULL);
    const int n_atoms = (int)cli_int(arguments, "n-atoms", 1, INT_MAX, 0);
    char parts[PATH_MAX];
    int exit_status = parse(arguments, &wanted);
    if (exit_status == CLI_GOOD) exit_status = name_parts(arguments, output, parts);
    if (exit_status != CLI_GOOD) return exit_status;
    cli_interrupt_catch();
    MLFF_TRY(cli_output_check(output));
    MLFF_TRY(mlff_model_load(arguments->positional[0], &student));
    if (cli_given(arguments, "baseline")) MLFF_TRY(mlff_model_load(cli_text(arguments, "baseline", NULL), &baseline));
    MLFF_TRY(mlff_dataset_create(&test));
    MLFF_TRY(mlff_dataset_read(test, cli_text(arguments, "test", NULL)));
    MLFF_TRY(find_training_data(arguments, student, test, &trained_on));
    if (teacher_name) {
        mlff_teacher_options of_teacher = mlff_teacher_options_default();
        of_teacher.device = wanted.device;
        of_teacher.n_threads = wanted.n_threads;
        MLFF_TRY(mlff_teacher_open(teacher_name, &of_teacher, &teacher));
    }
    MLFF_TRY(collect_systems(arguments, teacher, test, n_atoms, wanted.seed, &given));
    MLFF_TRY(relax_systems(student, teacher, &wanted, given, &systems));
    wanted.systems = systems;
    wanted.baseline = baseline;
    wanted.trained_on = trained_on;
    leave_out_comparisons(arguments, &wanted);
    status = judge(arguments, student, teacher, test, &wanted, parts, &verdict);
    if (status != MLFF_OK && verdict) status = keep_bars(verdict, output, parts, status);
    MLFF_TRY(status);
    cli_progress_clear();
    if (output) exit_status = cli_exit(mlff_verdict_save(verdict, output));
    if (*parts && exit_status == CLI_GOOD) {
        exit_status = cli_exit(mlff_verdict_kept_finish(verdict));
        if (exit_status == CLI_GOOD && access(parts, F_OK) == 0)
            cli_say("%s keeps bars of another student or teacher, whose verdict is not finished; remove it if it is not wanted",
                    parts);
    } else if (mlff_verdict_is_kept(verdict))
        cli_say("bars of speed and dynamics are kept in %s: the same command goes on behind them", parts);
    print_bars(verdict, false);
    passed = mlff_verdict_passed(verdict);
done:
    cli_progress_clear();
    mlff_verdict_destroy(verdict);
    mlff_dataset_destroy(test);
    mlff_dataset_destroy(trained_on);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(student);
    mlff_model_destroy(baseline);
    mlff_samples_destroy(given);
    mlff_samples_destroy(systems);
    if (status != MLFF_OK) return cli_exit(status);
    return passed && exit_status == CLI_GOOD ? CLI_GOOD : CLI_FAILED;
}

const cli_command verdict_command = {
    .name = "verdict",
    .summary = "judge whether a student can replace its teacher",
    .usage = "STUDENT --test LABELS.extxyz [--teacher TEACHER] [--system NAME ...] [-o VERDICT.json] [OPTIONS]",
    .details =
        "Measures errors on held-out structures, the drift of the energy in NVE dynamics, bonds at 500 K and compressed pairs.\n"
        "With --teacher it also compares speed, forces on pressed atoms and in new dynamics, distances and vibrations with the\n"
        "teacher's; without one these bars are left out. What is requested and cannot be measured fails. The dynamics begin "
        "with\n"
        "each --system, or with the first structure of --test; molecules are relaxed first, by the teacher or else by the\n"
        "student. Exit status: 0 passed, 1 not.\n"
        "After Ctrl-C the bars measured before are shown, and kept in NAME-partial.json. Those of speed, dynamics and pressed\n"
        "atoms are also in NAME.json.parts until the verdict is written: the same command goes on behind them, also after a\n"
        "verdict of another student.",
    .examples = "mlff verdict student.safetensors --test test.extxyz --teacher xtb:gfn2 -o verdict.json\n"
                "mlff verdict student.safetensors --test test.extxyz --trained-on train.extxyz\n"
                "mlff verdict water --test test.extxyz --teacher ani2x.safetensors --system h2o --system water",
    .options = options,
    .min_positional = 1,
    .max_positional = 1,
    .run = run_verdict,
};
