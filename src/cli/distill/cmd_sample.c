// SPDX-License-Identifier: MIT
// cmd_sample.c: mlff sample: structures around seeds, for a teacher to label.
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/base.h"
#include "cli/support/cli_teacher.h"

static const cli_option options[] = {
    {"output", 'o', "FILE", "extended XYZ to write (required)"},
    {"system", 0, "NAME", "a built-in seed, may be repeated: " CLI_SYSTEM_NAMES},
    {"n-atoms", 0, "N", "atoms of each --system that can grow; the nearest count it allows is built (64)"},
    {"n-samples", 0, "N", "structures to keep in all (1000)"},
    {"methods", 0, "LIST", "some of modes,thermal,rattle,md,pairs (modes,rattle,md,pairs)"},
    {"temperatures", 0, "LIST", "K, of modes, thermal and md (300,600,1000)"},
    {"timestep", 0, "FS", "of md, fs (1)"},
    {"interval", 0, "FS", "between two structures of a trajectory of md, fs (25)"},
    {"friction", 0, "PER_FS", "of md (Langevin), 1/fs (0.02)"},
    {"rattle", 0, "ANGSTROM", "largest standard deviation of a rattled coordinate, Å (0.15)"},
    {"closest", 0, "FRACTION", "reject structures with atoms closer than this part of the sum of their covalent radii (0.55)"},
    {"oversample", 0, "FACTOR", "candidates for each structure kept, of which those that differ most stay; 1: no choice (2)"},
    {"strain", 0, "FRACTION",
     "of cells: every other structure has another cell, its lengths changed by up to ± this (0.03; 0: none)"},
    {"no-relax", 0, NULL, "take the seeds as they are; else the teacher relaxes them first"},
    {"seed", 0, "S", "of all random numbers (0); the same seed gives the same structures"},
    {"json", 0, NULL, "the result as JSON on standard output"},
    CLI_READER_OPTIONS,
    CLI_TEACHER_OPTIONS,
    {0}};

typedef struct sampling {
    mlff_sample_options sample;
    const char *output;
    int n_atoms;
    bool to_json;
    mlff_sample_progress last;
} sampling;

static int parse(cli_arguments *arguments, sampling *run)
{
    mlff_sample_options *o = &run->sample;
    *o = mlff_sample_options_default();
    run->output = cli_text(arguments, "output", NULL);
    run->n_atoms = (int)cli_int(arguments, "n-atoms", 1, INT_MAX, 0);
    run->to_json = cli_given(arguments, "json");
    o->n_samples = cli_int(arguments, "n-samples", 1, 100000000, o->n_samples);
    o->methods = cli_text(arguments, "methods", NULL);
    o->n_temperatures =
        cli_teacher_numbers(arguments, "temperatures", o->temperatures, MLFF_SAMPLE_TEMPERATURES, o->n_temperatures);
    o->timestep_fs = cli_number(arguments, "timestep", 1e-3, 10, o->timestep_fs);
    o->interval_fs = cli_number(arguments, "interval", 1e-3, 1e6, o->interval_fs);
    o->friction_per_fs = cli_number(arguments, "friction", 1e-6, 10, o->friction_per_fs);
    o->rattle_angstrom = cli_number(arguments, "rattle", 1e-4, 1, o->rattle_angstrom);
    o->closest = cli_number(arguments, "closest", 0, 0.99, o->closest);
    o->oversample = cli_number(arguments, "oversample", 1, 100, o->oversample);
    o->strain = cli_number(arguments, "strain", 0, 0.3, o->strain);
    o->relax = !cli_given(arguments, "no-relax");
    o->seed = (uint64_t)cli_int(arguments, "seed", 0, INT64_MAX, 0);
    if (arguments->failed) return CLI_USAGE;
    if (!run->output) return cli_usage_error(arguments, "-o FILE is missing");
    if (cli_suffix_check(arguments, "-o", run->output, cli_extxyz) != CLI_GOOD) return CLI_USAGE;
    if (arguments->n_positional < 2 && !cli_given(arguments, "system"))
        return cli_usage_error(arguments, "a file of SEEDS or --system NAME is missing");
    if (arguments->n_positional < 2 && (cli_given(arguments, "topology") || cli_given(arguments, "input-format")))
        return cli_usage_error(arguments, "--%s needs a file of SEEDS",
                               cli_given(arguments, "topology") ? "topology" : "input-format");
    return CLI_GOOD;
}

// The built-in systems, then the files.
static mlff_status collect_seeds(const cli_arguments *arguments, const mlff_teacher *teacher, const sampling *run,
                                 mlff_samples **seeds_out)
{
    mlff_status status = MLFF_OK;
    mlff_samples *seeds = NULL;
    const char *name;
    MLFF_TRY(mlff_samples_create(&seeds));
    for (int k = 0; (name = cli_each(arguments, "system", k)); k++)
        MLFF_TRY(mlff_samples_add_named(seeds, teacher, name, run->n_atoms, run->sample.seed));
    for (int k = 1; k < arguments->n_positional; k++) MLFF_TRY(cli_samples_read(arguments, seeds, arguments->positional[k]));
    *seeds_out = seeds;
    seeds = NULL;
done:
    mlff_samples_destroy(seeds);
    return status;
}

static int show(void *context, const mlff_sample_progress *p)
{
    sampling *run = context;
    run->last = *p;
    cli_progress("sample: %s, %" PRId64 " of some %" PRId64 " candidates, %" PRId64 " rejected, %.0f s", p->method, p->n_done,
                 p->n_total, p->n_rejected, p->elapsed_s);
    return cli_interrupted();
}

// Structures of each origin, without its temperature: "md 600 K" counts as md.
enum { MAX_ORIGINS = 16 };
typedef struct origin_count {
    char name[24];
    int64_t n;
} origin_count;

static int count_origins(const mlff_samples *samples, origin_count counts[MAX_ORIGINS])
{
    int n = 0;
    for (int64_t k = 0; k < mlff_samples_size(samples); k++) {
        const char *origin = "";
        int at = 0;
        mlff_samples_get(samples, k, &origin);
        const int length = (int)strcspn(origin, " ");
        while (at < n && (strncmp(counts[at].name, origin, (size_t)length) != 0 || counts[at].name[length])) at++;
        if (at == MAX_ORIGINS) continue;
        if (at == n) {
            counts[n].n = 0;
            snprintf(counts[n++].name, sizeof counts[0].name, "%.*s", length, origin);
        }
        counts[at].n++;
    }
    return n;
}

static void print_result(const sampling *run, const mlff_samples *samples, const mlff_teacher_info *teacher)
{
    origin_count counts[MAX_ORIGINS];
    const int n = count_origins(samples, counts);
    if (run->to_json) {
        cli_json json = {.file = stdout};
        cli_json_object(&json, NULL);
        cli_json_text(&json, "output", run->output);
        cli_json_text(&json, "teacher", teacher->name);
        cli_json_text(&json, "teacher_sha256", teacher->hash);
        cli_json_int(&json, "n_samples", mlff_samples_size(samples));
        cli_json_object(&json, "n_by_method");
        for (int k = 0; k < n; k++) cli_json_int(&json, counts[k].name, counts[k].n);
        cli_json_end(&json, '}');
        cli_json_int(&json, "n_rejected", run->last.n_rejected);
        cli_json_number(&json, "time_s", run->last.elapsed_s);
        cli_json_end(&json, '}');
        return;
    }
    cli_print("%s: %" PRId64 " structure%s (", run->output, mlff_samples_size(samples), base_plural(mlff_samples_size(samples)));
    for (int k = 0; k < n; k++) printf("%s%" PRId64 " %s", k ? ", " : "", counts[k].n, counts[k].name);
    cli_print("), %" PRId64 " rejected, in %.1f s; label them: mlff label %s %s -o LABELS\n", run->last.n_rejected,
              run->last.elapsed_s, teacher->name, run->output);
}

// A disk that becomes full does not cost the structures.
static mlff_status reserve(const sampling *run, const mlff_samples *seeds, base_output *reserved)
{
    enum { ROW = 80, HEAD = 512 }; // an element and three numbers; the line before them
    int most = 0;
    for (int64_t k = 0; k < mlff_samples_size(seeds); k++) {
        const int n_atoms = mlff_samples_get(seeds, k, NULL)->n_atoms;
        if (n_atoms > most) most = n_atoms;
    }
    return cli_reserve(run->output, run->sample.n_samples * ((int64_t)ROW * most + HEAD), reserved);
}

// Writes all of them. Where the sampling ended early, by `cause`, or not all can be written, what there is is kept under another name.
static mlff_status write_samples(const sampling *run, const mlff_samples *samples, mlff_status cause)
{
    const int64_t n = mlff_samples_size(samples);
    mlff_writer *writer = NULL;
    cli_kept kept = cli_kept_begin(cause);
    if (cause != MLFF_OK && (n == 0 || base_is_stream(run->output))) return cause;
    mlff_status status = mlff_writer_open(run->output, "extxyz", 0, &writer);
    for (int64_t k = 0; k < n && status == MLFF_OK; k++)
        status = mlff_writer_write(writer, mlff_samples_get(samples, k, NULL), NULL);
    if (cause == MLFF_OK && status == MLFF_OK) return mlff_writer_close(writer);
    if (cause == MLFF_OK)
        kept = cli_kept_begin(status);
    else if (status != MLFF_OK)
        cli_say("%s", mlff_last_error());
    cli_kept_frames(&kept, writer, "structure");
    return cli_kept_tell(&kept, "the same command with the same --seed makes all of them again");
}

static int run_sample(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    sampling run = {0};
    mlff_teacher *teacher = NULL;
    mlff_samples *seeds = NULL, *samples = NULL;
    mlff_teacher_info info;
    base_output reserved = {0};
    int exit_status = parse(arguments, &run);
    if (exit_status != CLI_GOOD) return exit_status;

    cli_interrupt_catch();
    MLFF_TRY(cli_output_check(run.output));
    exit_status = cli_teacher_open(arguments, arguments->positional[0], &teacher);
    if (exit_status != CLI_GOOD) goto done;
    MLFF_TRY(collect_seeds(arguments, teacher, &run, &seeds));
    MLFF_TRY(reserve(&run, seeds, &reserved));
    mlff_teacher_info_get(teacher, &info);
    run.sample.callback = show;
    run.sample.context = &run;
    MLFF_TRY(mlff_samples_create(&samples));
    status = mlff_sample(teacher, seeds, &run.sample, samples);
    cli_reserve_release(&reserved);
    cli_progress_clear();
    MLFF_TRY(write_samples(&run, samples, status));
    cli_progress_clear();
    print_result(&run, samples, &info);
done:
    cli_reserve_release(&reserved);
    mlff_samples_destroy(samples);
    mlff_samples_destroy(seeds);
    mlff_teacher_destroy(teacher);
    return exit_status != CLI_GOOD ? exit_status : cli_exit(status);
}

const cli_command sample_command = {
    .name = "sample",
    .summary = "make structures around seeds, for a teacher to label",
    .usage = "TEACHER [SEEDS ...] [--system NAME ...] -o SAMPLES.extxyz [--n-samples N] [OPTIONS]",
    .details = CLI_TEACHER_DETAILS
    "SEEDS are files of structures, the INPUT of --input-format and --topology.\n"
    "Methods: modes (normal modes), thermal (independent displacements), rattle (random displacements, then some steps of\n"
    "relaxation), md (Langevin dynamics by the teacher), pairs (two near atoms moved together). Of twice as many candidates\n"
    "as requested, those that differ most are kept. Frames of one trajectory have the same group=, so that training never\n"
    "splits it between training and validation. Charged structures are refused. After Ctrl-C, or where the teacher ends,\n"
    "the candidates so far are kept in NAME-partial.extxyz, all of them.",
    .examples = "mlff sample xtb:gfn2 --system ethanol -o samples.extxyz --n-samples 500\n"
                "mlff sample fennol-ani2x seeds.extxyz --system water --n-atoms 96 -o samples.extxyz --methods rattle,md\n"
                "mlff sample xtb:gfn2 molecules.extxyz -o samples.extxyz --temperatures 300,500 --seed 7 --json",
    .options = options,
    .min_positional = 1,
    .max_positional = 256,
    .run = run_sample,
};
