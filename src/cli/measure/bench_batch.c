// SPDX-License-Identifier: MIT
// bench_batch.c: mlff bench batch: many structures in one call: time and memory for each, and the results against one by one.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"

// Copies of one structure, each displaced in its own way by some 0.014 Å, as one batch. More could bring atoms too close, where a model's features
// exceed the range of halves and the GPU computes twice.
typedef struct many {
    cli_batch in;
    double *energies, *forces;
    int n_atoms; // of one
} many;

static void many_free(many *m)
{
    cli_batch_free(&m->in);
    base_free(m->energies);
    base_free(m->forces);
    *m = (many){0};
}

static mlff_status many_make(const mlff_system *system, int n, many *m)
{
    mlff_status status = MLFF_OK;
    mlff_system **moved = base_alloc((size_t)n, sizeof *moved, "a batch");
    m->n_atoms = system->n_atoms;
    m->energies = base_alloc((size_t)n, sizeof *m->energies, "a batch");
    m->forces = base_alloc(3 * (size_t)n * (size_t)system->n_atoms, sizeof *m->forces, "a batch");
    if (!moved || !m->energies || !m->forces) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (int s = 0; s < n; s++) {
        MLFF_TRY(mlff_system_copy(system, &moved[s]));
        MLFF_TRY(mlff_system_perturb(moved[s], 10.0, (uint64_t)s));
    }
    MLFF_TRY(cli_batch_fill(&m->in, moved, n));
done:
    for (int s = 0; moved && s < n; s++) mlff_system_destroy(moved[s]);
    base_free(moved);
    return status;
}

typedef struct timed_call {
    mlff_evaluator *evaluator;
    many *m;
    uint64_t n_calls;
} timed_call;

static mlff_status compute(void *context)
{
    timed_call *c = context;
    if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
    // A little motion, so that every call has work to do and no answer of before will do.
    cli_batch *in = &c->m->in;
    in->positions[3 * (c->n_calls++ % (uint64_t)in->first_atom[in->batch.n_systems])] += 1e-5;
    return mlff_evaluator_compute(c->evaluator, &in->batch, &(mlff_results){.energies = c->m->energies, .forces = c->m->forces});
}

// Largest difference of forces from those of each structure by itself.
static mlff_status one_by_one(mlff_evaluator *evaluator, many *m, double *difference)
{
    mlff_status status = MLFF_OK;
    double *forces = base_alloc(3 * (size_t)m->n_atoms, sizeof *forces, "forces"), energy;
    *difference = 0.0;
    if (!forces) return MLFF_ERR_MEMORY;
    for (int s = 0; s < m->in.batch.n_systems; s++) {
        int32_t first_atom[2];
        mlff_batch one = cli_batch_one(&m->in, s, first_atom);
        if (cli_interrupted()) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted");
        MLFF_TRY(mlff_evaluator_compute(evaluator, &one, &(mlff_results){.energies = &energy, .forces = forces}));
        for (int i = 0; i < 3 * m->n_atoms; i++) {
            double d = fabs(forces[i] - m->forces[3 * (size_t)m->in.first_atom[s] + (size_t)i]);
            if (!(d <= *difference)) *difference = d;
        }
    }
done:
    base_free(forces);
    return status;
}

// Calls that fit into some two seconds, where their number is not given.
static mlff_status choose_calls(timed_call *call, int64_t *n_calls)
{
    mlff_statistics t;
    if (*n_calls > 0) return MLFF_OK;
    mlff_status status = mlff_benchmark(compute, call, 1, 1, NULL, &t);
    if (status != MLFF_OK) return status;
    double fit = 2e9 / t.mean;
    *n_calls = fit > 30 ? 30 : fit < 5 ? 5 : (int64_t)fit;
    return MLFF_OK;
}

static mlff_status measure(const char *spec, const bench_defaults *defaults, const mlff_system *system, int n, int64_t n_calls,
                           double first_ms, double *each_ms_out, cli_json *json)
{
    mlff_status status = MLFF_OK;
    many m = {0};
    bench_entry entry = {0}, other = {0};
    mlff_statistics t;
    mlff_evaluator_info info;
    double difference;
    MLFF_TRY(bench_entry_make(spec, defaults, &entry)); // of its own for each size, so that memory is that of the size
    MLFF_TRY(many_make(system, n, &m));
    timed_call call = {.evaluator = entry.evaluator, .m = &m};
    MLFF_TRY(choose_calls(&call, &n_calls));
    MLFF_TRY(mlff_benchmark(compute, &call, 3, n_calls, NULL, &t));
    mlff_evaluator_info_get(entry.evaluator, &info);
    MLFF_TRY(bench_entry_make(spec, defaults, &other));
    MLFF_TRY(one_by_one(other.evaluator, &m, &difference));
    double each_ms = t.median * 1e-6 / n, kilobytes = (double)(info.host_bytes + info.device_bytes) / 1024.0;
    *each_ms_out = each_ms;
    if (json) {
        cli_json_object(json, NULL);
        cli_json_int(json, "batch", n);
        cli_json_number(json, "median_ms", t.median * 1e-6);
        cli_json_number(json, "p95_ms", t.p95 * 1e-6);
        cli_json_number(json, "ms_per_structure", each_ms);
        cli_json_number(json, "structures_per_second", 1e3 / each_ms);
        cli_json_int(json, "calls", n_calls);
        cli_json_number(json, "memory_mb", kilobytes / 1024.0);
        cli_json_number(json, "memory_kb_per_structure", kilobytes / n);
        cli_json_number(json, "force_difference_ev_per_angstrom", difference);
        cli_json_end(json, '}');
    } else {
        printf("%6d %12.5g %13.5g %13.5g %9.2f× %10.4g %13.5g %9.2g\n", n, t.median * 1e-6, each_ms, 1e3 / each_ms,
               (first_ms > 0 ? first_ms : each_ms) / each_ms, kilobytes / 1024.0, kilobytes / n, difference);
    }
    fflush(stdout);
done:
    bench_entry_free(&entry);
    bench_entry_free(&other);
    many_free(&m);
    return status;
}

int bench_batch(cli_arguments *arguments)
{
    mlff_status status = MLFF_OK;
    cli_input input = {0};
    const char *spec = arguments->n_positional > 1 ? arguments->positional[1] : cli_each(arguments, "model", 0);
    const char *sizes = cli_text(arguments, "batch-sizes", "1,2,4,8,16,32,64,128,256");
    int64_t n_calls = cli_int(arguments, "n-calls", 1, 1000000, 0);
    double first_ms = 0.0;
    bench_defaults defaults;
    int exit_status = bench_defaults_get(arguments, &defaults);
    if (exit_status != CLI_GOOD) return exit_status;
    if (!spec) return cli_usage_error(arguments, "batch needs a model, as in mlff bench batch painn.safetensors");
    exit_status = bench_input_make(arguments, spec, 0, &input);
    if (exit_status != CLI_GOOD) return exit_status;
    cli_json json = {.file = stdout}, *out = cli_given(arguments, "json") ? &json : NULL;
    bench_entry entry = {0};
    mlff_model_info info;
    int n_sizes, n_structures[CLI_SIZES];
    MLFF_TRY(cli_sizes("batch-sizes", sizes, "structures", 100000, n_structures, &n_sizes));
    MLFF_TRY(bench_entry_make(spec, &defaults, &entry));
    MLFF_TRY(cli_input_check(entry.model, &input));
    mlff_model_info_get(entry.model, &info);
    if (out) {
        cli_json_object(out, NULL);
        cli_json_text(out, "model", spec);
        cli_json_bool(out, "trained", info.trained);
        cli_json_text(out, "device", entry.callable.device);
        cli_json_text(out, "system", input.text);
        cli_json_array(out, "batches");
    } else {
        printf("%s%s on %s: %s\n%6s %12s %13s %13s %10s %10s %13s %9s\n", spec, info.trained ? "" : " (untrained)",
               entry.callable.device, input.text, "batch", "median/ms", "ms/structure", "structures/s", "speed-up", "memory/MB",
               "kB/structure", "ΔF eV/Å");
        fflush(stdout); // before the first size is measured, also into a pipe
    }
    cli_interrupt_catch();
    for (int k = 0; k < n_sizes && status == MLFF_OK && !cli_reader_left(); k++) {
        double each_ms = 0.0;
        cli_progress("bench batch: %d structure%s, %d of %d sizes", n_structures[k], base_plural(n_structures[k]), k + 1,
                     n_sizes);
        status = measure(spec, &defaults, input.system, n_structures[k], n_calls, first_ms, &each_ms, out);
        cli_progress_clear();
        if (first_ms <= 0.0) first_ms = each_ms;
        if (status == MLFF_ERR_INTERRUPTED)
            mlff_fail(status, "interrupted at %d structure%s, after %d of %d sizes%s", n_structures[k],
                      base_plural(n_structures[k]), k, n_sizes, k > 0 ? "; their results are shown" : "");
    }
    if (out) {
        cli_json_end(out, ']');
        cli_json_bool(out, "partial", status != MLFF_OK);
        cli_json_end(out, '}');
    }
done:
    bench_entry_free(&entry);
    cli_input_free(&input);
    return cli_exit(status);
}
