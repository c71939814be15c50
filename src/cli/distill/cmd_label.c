// SPDX-License-Identifier: MIT
// cmd_label.c: mlff label: energies and forces of structures by a teacher, kept as they come.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli_teacher.h"

static const cli_option options[] = {
    {"output", 'o', "FILE", "labels to write; with the suffix .extxyz or .xyz: as extended XYZ (required)"},
    {"hvp", 0, "K", "also K Hessian-vector products for each structure: two labels each, along a random direction (0)"},
    {"hvp-step", 0, "ANGSTROM", "of their central differences, Å (0.01)"},
    {"resume", 0, NULL, "continue with the labels of the file; an existing file is not changed otherwise"},
    {"seed", 0, "S", "of the directions of --hvp (0)"},
    {"json", 0, NULL, "the result as JSON on standard output"},
    CLI_READER_OPTIONS,
    CLI_TEACHER_OPTIONS,
    {0}};

typedef struct labelling {
    const char *output; // what was asked for
    char shard[4096];   // the file that grows
    bool to_text;       // output is extended XYZ, made from the shard at the end
    bool resume, to_json;
    int n_probes;
    double probe_step;
    uint64_t seed;
    mlff_label_progress last;
    int64_t n_without_label; // structures in the file that the teacher could not label, in this run or before
} labelling;

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);
    return length > end_length && strcasecmp(text + length - end_length, end) == 0;
}

static int parse(cli_arguments *arguments, labelling *run)
{
    run->output = cli_text(arguments, "output", NULL);
    run->n_probes = (int)cli_int(arguments, "hvp", 0, 1000, 0);
    run->probe_step = cli_number(arguments, "hvp-step", 1e-4, 0.2, 0.01);
    run->seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    run->resume = cli_given(arguments, "resume");
    run->to_json = cli_given(arguments, "json");
    if (arguments->failed) return CLI_USAGE;
    if (!run->output) return cli_usage_error(arguments, "-o FILE is missing");
    if (strlen(run->output) > sizeof run->shard - 16) return cli_usage_error(arguments, "the name after -o is too long");
    run->to_text = ends_with(run->output, ".extxyz") || ends_with(run->output, ".xyz");
    if (run->to_text && run->n_probes > 0)
        return cli_usage_error(arguments, "extended XYZ holds no Hessian-vector products; give -o another suffix, as .labels");
    snprintf(run->shard, sizeof run->shard, run->to_text ? "%s.labels" : "%s", run->output);
    return CLI_GOOD;
}

// Extended XYZ that --resume finds without the file that grows: of a run that ended.
static bool is_finished_text(const labelling *run)
{
    return run->to_text && run->resume && access(run->shard, F_OK) != 0 && access(run->output, F_OK) == 0 &&
           !base_is_stream(run->output);
}

// Nothing that is there is written over.
static mlff_status check_output(const labelling *run)
{
    if (!run->resume && access(run->shard, F_OK) == 0)
        return mlff_fail(MLFF_ERR_USAGE, "%s: is there already; --resume goes on with it, or give another name", run->shard);
    if (!run->resume && run->to_text && access(run->output, F_OK) == 0 && !base_is_stream(run->output))
        return mlff_fail(MLFF_ERR_USAGE,
                         "%s: is there already, and may hold labels; give another name, or remove it to label again",
                         run->output);
    return run->to_text && !is_finished_text(run) ? cli_output_check(run->output) : MLFF_OK;
}

static bool is_label_of(const mlff_system *labelled, const mlff_system *system)
{
    const size_t n = (size_t)system->n_atoms;
    return labelled->n_atoms == system->n_atoms && labelled->label_forces && isfinite(labelled->label_energy) &&
           memcmp(labelled->species, system->species, n * sizeof *system->species) == 0 &&
           memcmp(labelled->positions, system->positions, 3 * n * sizeof *system->positions) == 0 &&
           memcmp(labelled->cell, system->cell, sizeof system->cell) == 0 &&
           memcmp(labelled->periodic, system->periodic, sizeof system->periodic) == 0;
}

// Its structures are those of the samples, in their order, without those that the teacher could not label.
static mlff_status count_labelled(const labelling *run, const mlff_samples *samples, int64_t *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_samples *labelled = NULL;
    int64_t n = 0;
    MLFF_TRY(mlff_samples_create(&labelled));
    MLFF_TRY(mlff_samples_read(labelled, run->output));
    for (int64_t k = 0; k < mlff_samples_size(samples) && n < mlff_samples_size(labelled); k++)
        n += is_label_of(mlff_samples_get(labelled, n, NULL), mlff_samples_get(samples, k, NULL));
    *n_out = n;
done:
    mlff_samples_destroy(labelled);
    return status;
}

static mlff_status check_finished(labelling *run, const mlff_samples *samples)
{
    mlff_status status = MLFF_OK;
    int64_t n_labelled, n = mlff_samples_size(samples);
    MLFF_TRY(count_labelled(run, samples, &n_labelled));
    run->last = (mlff_label_progress){.n_done = n, .n_total = n, .n_before = n};
    if (n_labelled < n)
        MLFF_FAIL(MLFF_ERR_USAGE,
                  "%s: is of a run that ended, with labels of %" PRId64 " of the %" PRId64
                  " structure%s; label the others into another file, or all into -o NAME.labels, which --resume goes on with",
                  run->output, n_labelled, n, base_plural(n));
done:
    return status;
}

static int show(void *context, const mlff_label_progress *p)
{
    labelling *run = context;
    const int64_t n_new = p->n_done - p->n_before;
    const double rate = p->elapsed_s > 0 ? (double)n_new / p->elapsed_s : 0;
    run->last = *p;
    cli_progress("label: %" PRId64 " of %" PRId64 ", %.0f labels/s, %" PRId64 " failed, %.0f s left", p->n_done, p->n_total, rate,
                 p->n_failed, rate > 0 ? (double)(p->n_total - p->n_done) / rate : 0);
    return cli_interrupted();
}

// `teacher`: NULL where nothing was to be done.
static void print_result(const labelling *run, const mlff_teacher_info *teacher)
{
    const mlff_label_progress *p = &run->last;
    const int64_t n_new = p->n_done - p->n_before;
    const double rate = p->elapsed_s > 0 ? (double)n_new / p->elapsed_s : 0;
    if (run->to_json) {
        cli_json json = {.file = stdout};
        cli_json_object(&json, NULL);
        cli_json_text(&json, "output", run->output);
        cli_json_text(&json, "teacher", teacher ? teacher->name : NULL);
        cli_json_text(&json, "teacher_sha256", teacher ? teacher->hash : NULL);
        cli_json_int(&json, "n_structures", p->n_total);
        cli_json_int(&json, "n_before", p->n_before);
        cli_json_int(&json, "n_labelled", n_new - p->n_failed);
        cli_json_int(&json, "n_failed", p->n_failed);
        cli_json_number(&json, "time_s", p->elapsed_s);
        cli_json_number(&json, "labels_per_s", rate);
        cli_json_end(&json, '}');
        return;
    }
    if (n_new == 0) {
        cli_print("%s: nothing to do, %s %" PRId64 " structure%s %s done before", run->output, p->n_total == 1 ? "the" : "all",
                  p->n_total, base_plural(p->n_total), p->n_total == 1 ? "was" : "were");
        if (run->n_without_label > 0) printf(", %" PRId64 " in the file could not be labelled", run->n_without_label);
    } else {
        cli_print("%s: %" PRId64 " structure%s labelled by %s in %.1f s (%.0f labels/s)", run->output, n_new - p->n_failed,
                  base_plural(n_new - p->n_failed), teacher->description, p->elapsed_s, rate);
        if (p->n_before > 0) printf(", %" PRId64 " were there", p->n_before);
        if (p->n_failed > 0) printf(", %" PRId64 " failed and are left out", p->n_failed);
    }
    cli_print("; train on them: mlff train %s -o STUDENT.safetensors\n", run->output);
}

static mlff_status label(labelling *run, mlff_teacher *teacher, const mlff_samples *samples)
{
    mlff_status status = MLFF_OK;
    mlff_shard *shard = NULL;
    mlff_label_options label_options = mlff_label_options_default();
    label_options.callback = show;
    label_options.context = run;
    MLFF_TRY(mlff_shard_open(run->shard, teacher, &shard));
    status = mlff_shard_label(shard, teacher, samples, &label_options, &run->last);
    cli_progress_clear();
    if (status == MLFF_ERR_INTERRUPTED || (status == MLFF_ERR_IO && access(run->shard, F_OK) == 0))
        mlff_fail(status, "%s; go on with --resume", mlff_last_error());
    MLFF_TRY(status);
    mlff_shard_info held;
    mlff_shard_info_get(shard, &held);
    run->n_without_label = held.n_failed;
    if (run->last.n_total == run->last.n_failed)
        MLFF_FAIL(MLFF_ERR_VALUE, "%s: the teacher could not label any structure; the warnings tell why", run->output);
    if (run->to_text) { // before the lock ends: another process may wait for it
        status = mlff_shard_export(run->shard, run->output);
        if (status != MLFF_OK) {
            cli_kept kept = cli_kept_begin(status);
            cli_kept_thing(&kept, run->shard, "the labels");
            MLFF_TRY(cli_kept_tell(&kept, "go on with --resume"));
        }
        unlink(run->shard); // all of it is in the text
    }
done:;
    char text[1024];
    snprintf(text, sizeof text, "%s", mlff_last_error());
    const mlff_status closed = mlff_shard_close(shard);
    if (status != MLFF_OK) return mlff_fail(status, "%s", text);
    return closed;
}

static int run_label(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    labelling run = {0};
    mlff_teacher *teacher = NULL;
    mlff_samples *samples = NULL;
    mlff_teacher_info info;
    int exit_status = parse(arguments, &run);
    if (exit_status != CLI_GOOD) return exit_status;

    cli_interrupt_catch();
    MLFF_TRY(check_output(&run));
    MLFF_TRY(mlff_samples_create(&samples));
    for (int k = 1; k < arguments->n_positional; k++) MLFF_TRY(cli_samples_read(arguments, samples, arguments->positional[k]));
    if (is_finished_text(&run)) {
        MLFF_TRY(check_finished(&run, samples));
        print_result(&run, NULL);
        goto done;
    }
    exit_status = cli_teacher_open(arguments, arguments->positional[0], &teacher);
    if (exit_status != CLI_GOOD) goto done;
    mlff_teacher_info_get(teacher, &info);
    if (run.n_probes > 0) MLFF_TRY(mlff_samples_add_probes(samples, run.n_probes, run.probe_step, run.seed));
    MLFF_TRY(label(&run, teacher, samples));
    MLFF_TRY(mlff_labels_warn(run.output, (int)cli_int(arguments, "threads", 1, 4096, 0)));
    print_result(&run, &info);
done:
    mlff_samples_destroy(samples);
    mlff_teacher_destroy(teacher);
    return exit_status != CLI_GOOD ? exit_status : cli_exit(status);
}

const cli_command label_command = {
    .name = "label",
    .summary = "compute energies and forces of structures by a teacher, to train on",
    .usage = "TEACHER SAMPLES ... -o LABELS [--hvp K] [--resume] [OPTIONS]",
    .details = CLI_TEACHER_DETAILS
    "SAMPLES are files of structures, the INPUT of --input-format and --topology: extended XYZ, DCD and others.\n"
    "Each label is appended to the file with a checksum as soon as it is computed. --resume continues after an interruption\n"
    "or a crash; the file is then the same as without it. The file holds the SHA-256 of its teacher and refuses another.\n"
    "A structure that the teacher cannot label (no convergence, a crash, a timeout) is left out and counted.\n"
    "Energies and forces far beyond all others, which mlff train refuses, are kept, and a warning counts them. With\n"
    "-o NAME.extxyz the labels are converted to extended XYZ at the end; until then they are in NAME.extxyz.labels. --resume\n"
    "of labels that are whole changes nothing, exit status 0.",
    .examples = "mlff label xtb:gfn2 samples.extxyz -o samples.labels\n"
                "mlff label xtb:gfn2 samples.extxyz -o samples.labels --resume\n"
                "mlff label fennol-ani2x samples.extxyz -o samples.labels --hvp 2\n"
                "mlff label xtb:gfn1 frames.extxyz -o frames-gfn1.extxyz --threads 4\n"
                "mlff label xtb:gfn2 run.dcd --topology start.extxyz -o run.labels",
    .options = options,
    .min_positional = 2,
    .max_positional = 256,
    .run = run_label,
};
