// SPDX-License-Identifier: MIT
// cmd_eval.c: mlff eval: energies, forces and stress of the frames of a file, some in a call, in the memory of those.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "eval_errors.h"

static const cli_option options[] = {
    {"stress", 0, NULL, "also the stress, eV/Å³, of frames that are periodic along all three axes"},
    {"uncertainty", 0, NULL,
     "in --json, for an ensemble: the members' energies and the deviations of energy and forces;\n"
     "for a model that estimates the error of its forces: this error of each atom"},
    {"batch", 0, "B", "frames in one call; they may differ in size (1)"},
    {"output", 'o', "FILE",
     "frames and results: .extxyz (everything but columns of atoms that are not read), .lammpstrj\nor .dump (LAMMPS), .dcd, .nc; "
     "- is standard output"},
    CLI_FORMAT_OPTION,
    CLI_READER_OPTIONS,
    CLI_SKIP_OPTION,
    {"json", 0, "FILE", "write results and summary as JSON; - is standard output"},
    CLI_EVALUATOR_OPTIONS,
    {0}};

enum { JSON_END_BYTES = 65536 }; // more than its end, also of all elements

// Of all frames in a call; arrays grow, and are used again.
typedef struct outcome {
    double *energies, *atom_energies, *forces, *stresses;     // [n_systems], [n_atoms], [n_atoms][3], [n_systems][6]
    double *member_energies, *energy_deviations, *deviations; // [n_members][n_systems], [n_systems], [n_atoms][3]
    double *force_errors;                                     // [n_atoms]
    size_t energy_capacity, atom_capacity, force_capacity, stress_capacity;
    size_t member_capacity, energy_deviation_capacity, deviation_capacity, force_error_capacity;
} outcome;

// Of one of them.
typedef struct frame_outcome {
    const mlff_system *system;
    double energy, energy_deviation;
    const double *atom_energies, *forces, *stress, *deviations; // stress: NULL where there is none
    const double *member_energies;                              // the k-th member's is [k * stride]
    const double *force_errors;                                 // NULL: the model does not estimate them
    int stride;
} frame_outcome;

typedef struct evaluation {
    const cli_arguments *arguments;
    cli_setup setup;
    const char *input;
    bool table, stress;
    bool members, estimates_errors; // uncertainty of an ensemble, or that of a model with a head for it
    bool to_json;
    base_output json_output, json_reserve; // the file, and space for its end
    cli_json json, json_whole;             // as it is, and as it was behind the last frame that is in the file
    int64_t json_bytes;                    // of the file up to there
    mlff_writer *writer;
    mlff_system **waiting; // [batch]
    int batch, n_waiting;
    cli_batch in;
    outcome out;
    int64_t n_skipped, n_frames, n_atoms, n_stress;
    int64_t compute_ns;
    int exit_status; // of the files: one that failed does not keep the others from being completed
    eval_errors errors;
} evaluation;

static void print_header(const evaluation *run)
{
    cli_setup_print(&run->setup);
    printf("%8s %7s %18s %14s %12s %14s %13s\n", "frame", "atoms", "energy", "energy/atom", "max |F|", "energy error",
           "force error");
    printf("%8s %7s %18s %14s %12s %14s %13s\n", "", "", "eV", "eV", "eV/Å", "meV/atom", "MAE, eV/Å");
}

static void print_or_dash(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_row(const evaluation *run, const frame_outcome *frame)
{
    const mlff_system *system = frame->system;
    size_t n = (size_t)system->n_atoms;
    double energy = frame->energy, largest = 0, error = 0;
    int n_labelled = 0;
    if (run->n_frames == 0) print_header(run); // not above an error
    for (size_t i = 0; i < n; i++) {
        const double *f = frame->forces + 3 * i;
        largest = fmax(largest, f[0] * f[0] + f[1] * f[1] + f[2] * f[2]);
    }
    for (int k = 0; system->label_forces && k < 3 * system->n_atoms; k++) {
        if (eval_is_constrained(system, k / 3)) continue;
        error += fabs(frame->forces[k] - system->label_forces[k]);
        n_labelled++;
    }
    printf("%8" PRId64 " %7d %18.6f %14.6f %12.5f", run->n_skipped + run->n_frames, system->n_atoms, energy, energy / (double)n,
           sqrt(largest));
    print_or_dash(14, 3, 1000 * (energy - system->label_energy) / (double)n);
    print_or_dash(13, 5, n_labelled > 0 ? error / n_labelled : NAN);
    putchar('\n');
    fflush(stdout); // frames may come slowly, through a pipe
}

static void json_begin(evaluation *run)
{
    run->json.file = run->json_output.file;
    cli_json_object(&run->json, NULL);
    cli_json_array(&run->json, "frames");
}

static void json_forces(cli_json *json, const char *key, const double *values, int n_atoms)
{
    cli_json_compact_array(json, key);
    for (int i = 0; i < n_atoms; i++) cli_json_numbers(json, NULL, values + 3 * (size_t)i, 3);
    cli_json_end(json, ']');
}

static void json_frame(evaluation *run, const frame_outcome *frame)
{
    cli_json *json = &run->json;
    int n_atoms = frame->system->n_atoms;
    cli_json_object(json, NULL);
    cli_json_int(json, "n_atoms", n_atoms);
    cli_json_number(json, "energy_ev", frame->energy);
    cli_json_numbers(json, "atom_energies_ev", frame->atom_energies, n_atoms);
    json_forces(json, "forces_ev_per_ang", frame->forces, n_atoms);
    cli_json_numbers(json, "stress_ev_per_ang3", frame->stress, 6);
    if (frame->force_errors) cli_json_numbers(json, "force_errors_ev_per_ang", frame->force_errors, n_atoms);
    if (frame->member_energies) {
        cli_json_compact_array(json, "member_energies_ev");
        for (int k = 0; k < run->setup.evaluator_info.n_members; k++)
            cli_json_number(json, NULL, frame->member_energies[(size_t)k * (size_t)frame->stride]);
        cli_json_end(json, ']');
        cli_json_number(json, "energy_deviation_ev", frame->energy_deviation);
        json_forces(json, "force_deviations_ev_per_ang", frame->deviations, n_atoms);
    }
    cli_json_end(json, '}');
}

// Each frame is flushed, so that those before one that cannot be written are known to be in the file.
static mlff_status json_add(evaluation *run, const frame_outcome *frame)
{
    const base_output *output = &run->json_output;
    errno = 0;
    json_frame(run, frame);
    if (!output->temporary) return MLFF_OK; // cli_output_end tells of standard output
    if (fflush(output->file) != 0 || ferror(output->file))
        return mlff_fail(MLFF_ERR_IO, "%s: cannot write: %s", output->path, strerror(errno ? errno : EIO));
    run->json_whole = run->json;
    run->json_bytes = ftello(output->file);
    return MLFF_OK;
}

static void json_end(evaluation *run, bool partial)
{
    cli_json *json = &run->json;
    const cli_setup *setup = &run->setup;
    eval_errors_sort(&run->errors);
    cli_json_end(json, ']');
    cli_json_object(json, "summary");
    cli_json_int(json, "n_frames", run->n_frames);
    cli_json_int(json, "n_atoms_total", run->n_atoms);
    cli_json_bool(json, "partial", partial);
    cli_json_text(json, "model", setup->info.name);
    cli_json_text(json, "architecture", setup->info.architecture);
    cli_json_bool(json, "trained", setup->info.trained);
    cli_json_text(json, "device", setup->device);
    cli_json_text(json, "precision", setup->precision);
    cli_json_int(json, "batch", run->batch);
    cli_json_number(json, "compute_time_s", (double)run->compute_ns * 1e-9);
    eval_errors_json(&run->errors, json);
    cli_json_end(json, '}');
    cli_json_end(json, '}');
}

static void print_summary(evaluation *run)
{
    double seconds = (double)run->compute_ns * 1e-9;
    eval_errors_sort(&run->errors);
    printf("\n%" PRId64 " frame%s, %" PRId64 " atom%s, computed in %.3f s (%.3f ms a frame", run->n_frames,
           base_plural(run->n_frames), run->n_atoms, base_plural(run->n_atoms), seconds,
           run->n_frames ? 1e3 * seconds / (double)run->n_frames : 0.0);
    if (run->batch > 1) printf(", %d in a call", run->batch);
    printf(")\n");
    eval_errors_print(&run->errors);
    if (run->stress && run->n_stress < run->n_frames)
        printf("stress       none for %" PRId64 " frame%s: not all three axes repeat\n", run->n_frames - run->n_stress,
               base_plural(run->n_frames - run->n_stress));
}

// Room for what is asked of the frames in run->in, and where it goes.
static mlff_status make_room(evaluation *run, mlff_results *results)
{
    mlff_status status = MLFF_OK;
    outcome *out = &run->out;
    size_t n_systems = (size_t)run->in.batch.n_systems, n = (size_t)run->in.first_atom[n_systems];
    MLFF_TRY(base_grow(&out->energies, &out->energy_capacity, n_systems, sizeof(double), "energies"));
    MLFF_TRY(base_grow(&out->atom_energies, &out->atom_capacity, n, sizeof(double), "energies of atoms"));
    MLFF_TRY(base_grow(&out->forces, &out->force_capacity, 3 * n, sizeof(double), "forces"));
    MLFF_TRY(base_grow(&out->stresses, &out->stress_capacity, 6 * n_systems, sizeof(double), "stresses"));
    *results = (mlff_results){.energies = out->energies,
                              .atom_energies = run->setup.info.has_atom_energies ? out->atom_energies : NULL,
                              .forces = out->forces,
                              .stresses = run->stress ? out->stresses : NULL};
    if (run->estimates_errors) {
        MLFF_TRY(base_grow(&out->force_errors, &out->force_error_capacity, n, sizeof(double), "errors of forces"));
        results->force_errors = out->force_errors;
    }
    if (!run->members) goto done;
    size_t n_members = (size_t)run->setup.evaluator_info.n_members;
    MLFF_TRY(base_grow(&out->deviations, &out->deviation_capacity, 3 * n, sizeof(double), "deviations"));
    MLFF_TRY(base_grow(&out->energy_deviations, &out->energy_deviation_capacity, n_systems, sizeof(double), "deviations"));
    MLFF_TRY(
        base_grow(&out->member_energies, &out->member_capacity, n_members * n_systems, sizeof(double), "energies of members"));
    results->member_energies = out->member_energies;
    results->energy_deviations = out->energy_deviations;
    results->force_deviations = out->deviations;
done:
    return status;
}

static mlff_status compute(evaluation *run, mlff_system *const *systems, int n)
{
    mlff_status status = MLFF_OK;
    mlff_results results;
    MLFF_TRY(cli_batch_fill(&run->in, systems, n));
    MLFF_TRY(make_room(run, &results));
    int64_t start = mlff_clock_ns();
    MLFF_TRY(mlff_evaluator_compute(run->setup.evaluator, &run->in.batch, &results));
    run->compute_ns += mlff_clock_ns() - start;
done:
    return status;
}

static frame_outcome outcome_of(const evaluation *run, const mlff_system *system, int s)
{
    const outcome *out = &run->out;
    size_t first = (size_t)run->in.first_atom[s];
    const double *stress = out->stresses + 6 * (size_t)s;
    return (frame_outcome){.system = system,
                           .energy = out->energies[s],
                           .energy_deviation = run->members ? out->energy_deviations[s] : NAN,
                           .atom_energies = run->setup.info.has_atom_energies ? out->atom_energies + first : NULL,
                           .forces = out->forces + 3 * first,
                           .stress = run->stress && isfinite(stress[0]) ? stress : NULL,
                           .deviations = run->members ? out->deviations + 3 * first : NULL,
                           .member_energies = run->members ? out->member_energies + s : NULL,
                           .force_errors = run->estimates_errors ? out->force_errors + first : NULL,
                           .stride = run->in.batch.n_systems};
}

// Shows, writes and counts one frame.
static mlff_status take_frame(evaluation *run, const frame_outcome *frame)
{
    mlff_status status = MLFF_OK;
    const mlff_system *system = frame->system;
    MLFF_TRY(eval_errors_reserve(&run->errors));
    if (run->writer) {
        mlff_frame_results written = {
            .energy = frame->energy, .forces = frame->forces, .stress = frame->stress, .step = -1, .time_fs = system->time_fs};
        MLFF_TRY(mlff_writer_write(run->writer, system, &written));
    }
    if (run->to_json) MLFF_TRY(json_add(run, frame));
    // Nothing fails from here on, so that what was shown is what is counted.
    if (run->table) print_row(run, frame);
    run->n_frames++;
    run->n_atoms += system->n_atoms;
    run->n_stress += frame->stress != NULL;
    eval_errors_add(&run->errors, system, frame->energy, frame->forces, frame->stress);
done:
    return status;
}

static mlff_status take_frames(evaluation *run, mlff_system *const *systems, int n)
{
    mlff_status status = MLFF_OK;
    for (int s = 0; s < n; s++) {
        frame_outcome frame = outcome_of(run, systems[s], s);
        MLFF_TRY(take_frame(run, &frame));
    }
done:
    return status;
}

// Computes one frame, and names it if it fails.
static mlff_status compute_frame(evaluation *run, mlff_system *const *frame)
{
    mlff_status status = compute(run, frame, 1);
    if (status == MLFF_OK) return MLFF_OK;
    return mlff_fail(status, "%s, frame %" PRId64 ": %s", run->input, run->n_skipped + run->n_frames, mlff_last_error());
}

// Evaluates the frames that wait. If that fails for several at once, it is done one by one: what is before the frame that
// fails is kept, and the frame is known.
static mlff_status evaluate_waiting(evaluation *run)
{
    mlff_status status = MLFF_OK;
    int n = run->n_waiting;
    run->n_waiting = 0;
    if (n == 0) return MLFF_OK;
    status = n > 1 ? compute(run, run->waiting, n) : compute_frame(run, run->waiting);
    if (status == MLFF_OK) {
        status = take_frames(run, run->waiting, n);
    } else if (n > 1) {
        if (status == MLFF_ERR_MEMORY) mlff_warn("%d frames in a call: %s; one by one it is", n, mlff_last_error());
        status = MLFF_OK;
        for (int s = 0; s < n && status == MLFF_OK; s++) {
            status = compute_frame(run, run->waiting + s);
            if (status == MLFF_OK) status = take_frames(run, run->waiting + s, 1);
        }
    }
    for (int s = 0; s < n; s++) mlff_system_destroy(run->waiting[s]);
    return status;
}

// The next frame, checked; NULL at the end.
static mlff_status read_frame(evaluation *run, mlff_reader *reader, mlff_system **system_out)
{
    mlff_system *system = NULL;
    mlff_status status = cli_reader_next(run->arguments, reader, &system);
    if (status == MLFF_ERR_INTERRUPTED && cli_interrupted()) return MLFF_OK; // it waited; the frames so far are whole
    if (status != MLFF_OK) return status;
    if (system) status = mlff_system_check(system, NULL);
    if (system && status == MLFF_OK) status = cli_model_check_elements(run->setup.model, system, "elements");
    if (status != MLFF_OK) {
        mlff_fail(status, "%s, frame %" PRId64 ": %s", run->input, run->n_skipped + run->n_frames + run->n_waiting,
                  mlff_last_error());
        mlff_system_destroy(system);
        return status;
    }
    *system_out = system;
    return MLFF_OK;
}

static bool is_unseen(const evaluation *run)
{
    return cli_reader_left() && !run->writer && (!run->to_json || run->json.file == stdout);
}

static mlff_status evaluate(evaluation *run, mlff_reader *reader)
{
    mlff_status status = MLFF_OK, reading = MLFF_OK;
    char cause[1100];
    MLFF_TRY(cli_reader_skip(run->arguments, reader, run->n_skipped, &run->n_skipped));
    int64_t begun_ns = mlff_clock_ns();

    while (!cli_interrupted() && !is_unseen(run)) {
        mlff_system *system = NULL;
        reading = read_frame(run, reader, &system);
        if (reading != MLFF_OK) snprintf(cause, sizeof cause, "%s", mlff_last_error());
        if (!system) break;
        run->waiting[run->n_waiting++] = system;
        if (run->n_waiting < run->batch) continue;
        MLFF_TRY(evaluate_waiting(run));
        cli_progress("eval: %" PRId64 " frame%s, %.4g a second", run->n_frames, base_plural(run->n_frames),
                     1e9 * (double)run->n_frames / (double)(mlff_clock_ns() - begun_ns));
    }
    if (!cli_interrupted()) MLFF_TRY(evaluate_waiting(run)); // also those before a frame that cannot be read
    if (reading != MLFF_OK) MLFF_FAIL(reading, "%s", cause);
    if (run->n_frames == 0 && cli_interrupted())
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted before a frame was computed; no file is written");
    if (run->n_frames == 0) MLFF_TRY(cli_no_frames(run->input, run->n_skipped));
    if (cli_interrupted()) {
        if (run->table) print_summary(run);
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %" PRId64 " frame%s", run->n_frames, base_plural(run->n_frames));
    }
    if (run->to_json) {
        cli_reserve_release(&run->json_reserve);
        json_end(run, false);
        run->to_json = false;
        run->exit_status = cli_first(run->exit_status, base_output_commit(&run->json_output));
    }
    if (run->writer) run->exit_status = cli_first(run->exit_status, mlff_writer_close(run->writer)); // also if the JSON failed
    run->writer = NULL;
    if (run->table) print_summary(run);
done:
    return status;
}

// Ends the JSON behind its last whole frame. What goes down a pipe is ended there too, if short of frames.
static void keep_json(evaluation *run, cli_kept *kept)
{
    FILE *file = run->json_output.file;
    char path[PATH_MAX] = "";
    bool good = true;
    const bool to_file = run->json_output.temporary != NULL;
    cli_reserve_release(&run->json_reserve);
    if (to_file) {
        run->json = run->json_whole;
        clearerr(file);
        good =
            run->json_bytes > 0 && fseeko(file, run->json_bytes, SEEK_SET) == 0 && ftruncate(fileno(file), run->json_bytes) == 0;
    }
    if (good) json_end(run, true);
    if (to_file) {
        good = good && fflush(file) == 0 && !ferror(file);
        const int64_t bytes = good ? ftello(file) : 0;
        if (base_output_keep(&run->json_output, bytes, path) != MLFF_OK) cli_say("no frame could be kept: %s", mlff_last_error());
        cli_kept_add(kept, path, *path ? run->n_frames : 0, "frame");
    } else {
        base_output_abandon(&run->json_output);
    }
    run->to_json = false;
}

static mlff_status keep(evaluation *run, mlff_status cause)
{
    cli_kept kept = cli_kept_begin(cause);
    cli_kept_frames(&kept, run->writer, "frame");
    run->writer = NULL;
    if (run->to_json) keep_json(run, &kept);
    return cli_kept_tell_skip(&kept, run->n_skipped);
}

static void evaluation_free(evaluation *run)
{
    outcome *out = &run->out;
    double *arrays[] = {out->energies,        out->atom_energies,     out->forces,     out->stresses,
                        out->member_energies, out->energy_deviations, out->deviations, out->force_errors};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) base_free(arrays[k]);
    for (int s = 0; s < run->n_waiting; s++) mlff_system_destroy(run->waiting[s]);
    base_free(run->waiting);
    eval_errors_free(&run->errors);
    cli_batch_free(&run->in);
    cli_setup_free(&run->setup);
}

static int run_eval(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    evaluation run = {.arguments = arguments, .input = arguments->positional[1], .table = true};
    mlff_reader *reader = NULL;
    const char *json_path = cli_text(arguments, "json", NULL), *output_path = cli_text(arguments, "output", NULL);
    bool json_to_stdout = json_path && strcmp(json_path, "-") == 0,
         frames_to_stdout = output_path && strcmp(output_path, "-") == 0;

    if (json_to_stdout && frames_to_stdout)
        return cli_usage_error(arguments, "--json - and -o - cannot both have standard output");
    if (cli_format_check(arguments, output_path) != CLI_GOOD) return CLI_USAGE;
    run.table = !json_to_stdout && !frames_to_stdout;
    run.stress = cli_given(arguments, "stress");
    const bool uncertainty = cli_given(arguments, "uncertainty");
    run.batch = (int)cli_int(arguments, "batch", 1, 100000, 1);
    run.n_skipped = cli_int(arguments, "skip", 0, INT64_MAX, 0);
    if (arguments->failed) return CLI_USAGE;
    if (uncertainty && !json_path) return cli_usage_error(arguments, "--uncertainty goes into --json FILE");
    int exit_status = cli_setup_make(arguments, &run.setup);
    if (exit_status != CLI_GOOD) return exit_status;
    run.estimates_errors = uncertainty && mlff_model_outputs(run.setup.model) & MLFF_OUTPUT_FORCE_ERRORS;
    run.members = uncertainty && !run.estimates_errors;

    cli_interrupt_catch();
    if (!(run.waiting = base_alloc((size_t)run.batch, sizeof *run.waiting, "frames"))) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(cli_reader_open(arguments, run.input, &reader));
    if (json_path) {
        MLFF_TRY(base_output_open(json_path, &run.json_output));
        run.to_json = true;
        json_begin(&run);
        (void)cli_reserve(json_path, JSON_END_BYTES, &run.json_reserve);
    }
    if (output_path) MLFF_TRY(mlff_writer_open(output_path, cli_text(arguments, "format", NULL), 0, &run.writer));
    MLFF_TRY(evaluate(&run, reader));
done:
    if (status != MLFF_OK) status = keep(&run, status);
    cli_reserve_release(&run.json_reserve);
    mlff_reader_destroy(reader);
    evaluation_free(&run);
    return cli_first(run.exit_status, status);
}

const cli_command eval_command = {
    .name = "eval",
    .summary = "energies, forces and stress of the frames of a file",
    .usage = "MODEL INPUT [--batch B] [--stress] [--uncertainty] [-o OUT.extxyz] [--json FILE] [OPTIONS]",
    .details =
        "INPUT is a file of structures, of extended XYZ or another --input-format; - is standard input. Frames are read one by\n"
        "one. Energies include the model's offsets. If extended XYZ has energies or forces, the errors against them are "
        "printed:\n"
        "MAE, RMSE and R² of the energy per atom, of the force components and, with --stress, of the stress, MAE and RMSE of "
        "the\n"
        "forces of each element, MAE of each composition if there are several. --batch B computes B frames at once, which is\n"
        "faster on a GPU; B frames are held in memory. If a frame cannot be read, computed or written, and after Ctrl-C, those\n"
        "before are kept, in NAME-partial.SUFFIX, and the error tells how --skip goes on. A file of the name NAME.SUFFIX stays\n"
        "as it was.\n"
        "JSON: {\"frames\": [{\"n_atoms\", \"energy_ev\", \"atom_energies_ev\", \"forces_ev_per_ang\": [[x, y, z], ...],\n"
        "\"stress_ev_per_ang3\": [xx, yy, zz, yz, xz, xy] or null}, ...], \"summary\": {...}};\n"
        "with --uncertainty also \"member_energies_ev\", and \"energy_deviation_ev\" and \"force_deviations_ev_per_ang\", the\n"
        "standard deviations over the members, or \"force_errors_ev_per_ang\", the errors of each atom's force that the model "
        "expects.",
    .examples = "mlff eval ethanol.safetensors frames.extxyz\n"
                "mlff eval ethanol.safetensors frames.extxyz -o results.extxyz --json results.json\n"
                "mlff eval ethanol.safetensors frames.extxyz --batch 64 --device cuda -o results.extxyz\n"
                "mlff eval silicon.safetensors POSCAR --stress --precision float64 --json -\n"
                "mlff eval fennol-ani2x frames.extxyz --members 0,3 --uncertainty --json results.json",
    .options = options,
    .min_positional = 2,
    .max_positional = 2,
    .run = run_eval,
};
