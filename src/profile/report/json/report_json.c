// SPDX-License-Identifier: MIT
// report_json.c: a record as JSON, key for key the contract's, others added. NaN is never written: it is null.
#include <math.h>
#include <string.h>

#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"

static void write_contract(json *j, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    json_string(j, "name", profile->name);
    json_string(j, "model_name", profile->model_name);
    json_integer(j, "n_steps", s->n_steps);
    json_string(j, "device", profile->device);
    json_numbers(j, "latencies_ms", profile->latency_ms, profile->n_latency);
    json_number(j, "mean_latency_ms", s->latency_ms.mean);
    json_number(j, "median_latency_ms", s->latency_ms.median);
    json_number(j, "std_latency_ms", s->latency_ms.std);
    json_number(j, "min_latency_ms", s->latency_ms.min);
    json_number(j, "max_latency_ms", s->latency_ms.max);
    json_number(j, "p95_latency_ms", s->latency_ms.p95);
    json_number(j, "p99_latency_ms", s->latency_ms.p99);
    json_number(j, "energy_time_ms", s->energy_time_ms);
    json_number(j, "forces_time_ms", s->forces_time_ms);
    json_number(j, "stress_time_ms", s->stress_time_ms);
    json_number(j, "memory_initial_gb", s->memory_initial_gb);
    json_number(j, "memory_final_gb", s->memory_final_gb);
    json_number(j, "memory_peak_gb", s->memory_peak_gb);
    json_numbers(j, "memory_per_step_gb", profile->memory_gb, profile->n_memory);
    json_integer(j, "n_atoms", s->n_atoms);
    json_string(j, "system_size", profile->system_size);
    if (profile->mean_atoms > 0) json_number(j, "mean_atoms", profile->mean_atoms);
    json_number(j, "first_pairs", profile->first_pairs);
    json_number(j, "total_time_s", s->total_time_s);
    json_number(j, "steps_per_second", s->steps_per_second);
    json_string(j, "timestamp", profile->timestamp);
    json_string(j, "notes", profile->notes);
}

static void write_added(json *j, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    json_integer(j, "schema_version", PROFILE_SCHEMA_VERSION);
    json_string(j, "mlff_version", mlff_version());
    json_integer(j, "n_samples", profile->n_latency);
    json_integer(j, "latencies_every", profile->latency_every);
    json_integer(j, "n_warmup", s->n_warmup);
    json_number(j, "warmup_first_ms", s->warmup_first_ms);
    json_number(j, "warmup_mean_ms", s->warmup_mean_ms);
    json_boolean(j, "partial", s->partial);
    json_string(j, "trajectory", profile->trajectory);
    json_number(j, "timestep_fs", profile->timestep_fs);
    json_number(j, "ns_per_day", s->ns_per_day);
    double ns_low, ns_high;
    ns_per_day_interval(profile, &ns_low, &ns_high);
    json_number(j, "ns_per_day_low", ns_low);
    json_number(j, "ns_per_day_high", ns_high);
    json_number(j, "us_per_atom", s->us_per_atom);
    json_number(j, "cv", s->latency_ms.cv);
    json_integer(j, "n_outliers", s->latency_ms.n_outliers);
    json_number(j, "wall_time_s", profile->wall_time_s);
    json_number(j, "memory_delta_gb", s->memory_delta_gb);
    if (s->memory_stable < 0)
        json_number(j, "memory_stable", NAN); // null
    else
        json_boolean(j, "memory_stable", s->memory_stable);
    json_integer(j, "memory_every", profile->memory_every);
    json_number(j, "heap_initial_gb", s->heap_initial_gb);
    json_number(j, "heap_final_gb", s->heap_final_gb);
    json_open(j, "counters", '{');
    json_number(j, "mean_pairs", s->mean_pairs);
    json_integer(j, "n_rebuilds", s->n_rebuilds);
    json_integer(j, "n_growths", profile->n_growths);
    json_integer(j, "n_not_finite", profile->n_not_finite);
    json_number(j, "rebuild_median_ms", profile->rebuild_median_ms);
    json_number(j, "other_median_ms", profile->other_median_ms);
    json_close(j, '}');
    json_open(j, "steps_with", '{'); // how many steps of all, beside the slowest ones
    for (int k = 0; k < N_TAGS; k++) json_integer(j, profile_tag_names[k], profile->n_tagged[k]);
    json_close(j, '}');
    json_open(j, "timer", '{');
    json_number(j, "quantum_ns", profile->quantum_ns);
    json_number(j, "read_ns", profile->read_ns);
    json_close(j, '}');
    json_open(j, "ceilings", '{');
    json_integer(j, "threads", profile->ceilings.n_threads);
    json_number(j, "gflops", profile->ceilings.flops_a_ns);
    if (profile->ceilings.products != CEILING_VECTORS) {
        json_string(j, "products", ceiling_product_names[profile->ceilings.products]);
        json_number(j, "product_gflops", profile->ceilings.product_flops_a_ns);
    }
    json_numbers(j, "level_bytes", profile->ceilings.level_bytes, CEILING_LEVELS);
    json_numbers(j, "gbytes_per_s", profile->ceilings.bytes_a_ns, CEILING_LEVELS);
    json_close(j, '}');
    json_open(j, "overhead", '{'); // of measuring, a step; from interleaved blocks with and without
    json_number(j, "ns", profile->overhead_ns);
    json_number(j, "low_ns", profile->overhead_low_ns);
    json_number(j, "high_ns", profile->overhead_high_ns);
    json_close(j, '}');
}

static const json_field bound_fields[] = {{"value_ms", offsetof(percentile_bounds, value), false},
                                          {"low_ms", offsetof(percentile_bounds, low), false},
                                          {"high_ms", offsetof(percentile_bounds, high), false},
                                          JSON_NUMBER(percentile_bounds, n_effective),
                                          JSON_INTEGER(percentile_bounds, n_needed)};
enum { N_BOUND_FIELDS = sizeof bound_fields / sizeof *bound_fields };

static void write_steadiness(json *j, const mlff_profile *profile)
{
    json_open(j, "steady_state", '{');
    json_string(j, "class", profile_steady_names[profile->steady.kind]);
    json_boolean(j, "settled", profile->steady.settled);
    json_integer(j, "first_step", profile->steady.first);
    json_number(j, "change", profile->steady.change);
    json_number(j, "drift", steadiness_drift(profile));
    json_number(j, "mean_ms", profile->steady_mean_ms);
    json_number(j, "before_s", profile->before_s);
    json_number(j, "before_cost_s", profile->before_cost_s);
    json_open(j, "percentiles", '{');
    for (int i = 0; i < N_BOUNDS; i++) {
        json_open(j, profile_bound_names[i], '{');
        json_fields_write(j, &profile->bounds[i], bound_fields, N_BOUND_FIELDS);
        json_close(j, '}');
    }
    json_close(j, '}');
    json_close(j, '}');
}

static void write_memory(json *j, const mlff_profile *profile)
{
    json_integer(j, "leaks", mlff_profile_leaks(profile));
    json_integer(j, "available_bytes", profile->available_bytes);
    json_open(j, "memory_ledgers", '[');
    for (int i = 0; i < profile->n_ledgers; i++) {
        const profile_ledger *ledger = &profile->ledgers[i];
        json_open(j, NULL, '{');
        json_string(j, "name", ledger->name);
        json_integer(j, "initial_bytes", ledger->initial_bytes);
        json_integer(j, "final_bytes", ledger->final_bytes);
        json_integer(j, "peak_bytes", ledger->peak_bytes);
        json_string(j, "leak", profile_leak_names[ledger->leak.kind]);
        json_number(j, "leak_bytes_per_step", ledger->leak.bytes_per_sample);
        json_number(j, "leak_low_bytes_per_step", ledger->leak.low);
        json_number(j, "leak_high_bytes_per_step", ledger->leak.high);
        json_number(j, "detectable_bytes_per_step", ledger->leak.detectable);
        json_integer(j, "explained_by", ledger->leak.explained_by);
        json_number(j, "explained_bytes_per_unit", ledger->leak.bytes_per_unit);
        json_numbers(j, "samples", ledger->samples, ledger->n_samples);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void write_stages(json *j, const mlff_profile *profile)
{
    static const char *const in_example[N_EXAMPLES] = {"in_median_step_ms", "in_slowest_step_ms"};
    json_boolean(j, "stages_measured", profile->stages_measured);
    json_open(j, "stages", '[');
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        json_open(j, NULL, '{');
        json_string(j, "name", row->name);
        json_string(j, "phase", row->phase);
        json_integer(j, "layer", row->shown.layer);
        json_string(j, "includes", row->includes);
        if (*row->advice) json_string(j, "advice", row->advice);
        json_number(j, "mean_ms", row->shown.mean_ms);
        json_number(j, "median_ms", row->shown.median_ms);
        json_number(j, "p95_ms", row->shown.p95_ms);
        json_number(j, "share", row->shown.share);
        json_boolean(j, "is_hotspot", row->shown.is_hotspot);
        for (int k = 0; k < N_EXAMPLES; k++)
            if (profile->examples[k].step >= 0) json_number(j, in_example[k], row->example_ms[k]);
        if (row->n_blocks > 0) json_numbers(j, "blocks_ms", row->blocks_ms, row->n_blocks); // means of equal parts of the run
        if (row->flops > 0.0 || row->bytes > 0.0) {                                         // the least work
            json_number(j, "flops", row->flops);
            json_number(j, "bytes", row->bytes);
        }
        if (row->bound_ms > 0.0) { // the least time that this machine needs for it
            json_number(j, "bound_ms", row->bound_ms);
            json_boolean(j, "bound_by_memory", row->bound_by_memory);
        }
        json_close(j, '}');
    }
    json_close(j, ']');
    for (int k = 0; k < N_EXAMPLES; k++) {
        if (profile->examples[k].step < 0) continue;
        json_open(j, profile_example_names[k], '{');
        json_integer(j, "step", profile->examples[k].step);
        json_number(j, "time_ms", profile->examples[k].ms);
        json_close(j, '}');
    }
}

static void write_budget(json *j, const mlff_profile *profile)
{
    step_budget b = budget_of(profile);
    json_open(j, "budget", '{'); // rows add up to step_ms; between_ms lies between steps
    json_boolean(j, "traced", b.traced);
    json_number(j, "step_ms", b.step_ms);
    for (int k = 0; k < N_BUDGET; k++) json_number(j, budget_names[k], b.ms[k]);
    json_number(j, "between_ms", b.between_ms);
    json_close(j, '}');
}

static void write_component(json *j, const char *key, double time_ms, double step_ms, double threshold_pct)
{
    double share = step_ms > 0.0 ? time_ms / step_ms : 0.0;
    json_open(j, key, '{');
    json_number(j, "time_ms", time_ms);
    json_number(j, "percentage", share * 100.0);
    json_boolean(j, "is_hotspot", share * 100.0 > threshold_pct);
    json_close(j, '}');
}

enum { HOTSPOT_PCT = 10 };

// Energy, forces and stress, and below them the stages they are made of: percentages of the two levels are not to be added.
static void write_hotspots(json *j, const char *name, const mlff_profile *profile, double threshold_pct)
{
    const mlff_profile_summary *s = &profile->summary;
    double step_ms = s->latency_ms.mean;
    json_open(j, name, '{');
    json_number(j, "threshold_pct", threshold_pct);
    json_number(j, "total_time_ms", step_ms);
    json_open(j, "components", '{');
    if (profile->stages_measured) {
        if (isfinite(s->energy_time_ms)) write_component(j, "energy", s->energy_time_ms, step_ms, threshold_pct);
        if (isfinite(s->forces_time_ms)) write_component(j, "forces", s->forces_time_ms, step_ms, threshold_pct);
        if (isfinite(s->stress_time_ms)) write_component(j, "stress", s->stress_time_ms, step_ms, threshold_pct);
    }
    for (int i = 0; i < profile->n_stages; i++) {
        char path[256], key[272];
        const profile_stage *row = &profile->stages[i];
        bool own = profile->stages_measured && strcmp(row->name, "integrate") != 0 && strcmp(row->name, "unattributed") != 0;
        profile_stage_path(row, path, sizeof path);
        snprintf(key, sizeof key, "%s%s", own ? "stages/" : "", path);
        double slow_ms = row->shown.mean_ms - profile_stage_typical_ms(row);
        if (!profile->stages_measured && strcmp(row->name, "unattributed") == 0 && slow_ms > 0.0) { // parts are medians there
            write_component(j, key, row->shown.mean_ms - slow_ms, step_ms, threshold_pct);
            write_component(j, "slow steps", slow_ms, step_ms, threshold_pct);
        } else {
            write_component(j, key, row->shown.mean_ms, step_ms, threshold_pct);
        }
    }
    json_close(j, '}');
    json_close(j, '}');
}

static void write_pairs(json *j, const char *key, const environment *pairs)
{
    json_open(j, key, '{');
    for (int i = 0; i < pairs->n; i++) json_string(j, pairs->keys[i], pairs->values[i]);
    json_close(j, '}');
}

// Where the time went that steps took beyond the median.
static void write_tail(json *j, const profile_tail *tail)
{
    int order[N_CAUSES], n = tail_order(tail, false, order), named[N_CAUSES], n_named = tail_order(tail, true, named);
    double excess = tail_excess_ms(tail);
    json_open(j, "tail", '{');
    json_number(j, "threshold_ms", tail->threshold_ms);
    json_number(j, "median_ms", tail->median_ms);
    json_integer(j, "n_steps", tail->n_steps);
    json_number(j, "share", tail->share);
    json_number(j, "cpu_wait_share", tail->cpu_wait_share);
    json_number(j, "own_threads_cores", tail->team_cores);
    json_number(j, "other_programs_cores", tail->program_cores);
    json_number(j, "off_share", tail->off_share);
    json_number(j, "cpu_rise", tail->cpu_rise);
    json_number(j, "pace_rise", tail->pace_rise);
    json_number(j, "gpu_queue_ms", tail->queue_ms);
    json_number(j, "gpu_queue_least_ms", tail->queue_least_ms);
    json_boolean(j, "virtual_machine", tail->virtual_machine);
    json_open(j, "causes", '[');
    for (int i = 0; i < n; i++) {
        int k = order[i];
        json_open(j, NULL, '{');
        json_string(j, "cause", profile_cause_names[k]);
        json_integer(j, "n_steps", tail->n_by_cause[k]);
        json_number(j, "excess_ms", tail->excess_ms[k]);
        json_number(j, "each_ms", tail->each_ms[k]);
        json_integer(j, "period", tail->period[k]);
        bool is_named = false;
        for (int m = 0; m < n_named; m++) is_named = is_named || named[m] == k;
        json_boolean(j, "named", is_named);
        json_number(j, "share_of_excess", excess > 0.0 ? tail->excess_ms[k] / excess : 0.0);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void write_findings(json *j, const mlff_profile *profile)
{
    json_open(j, "slowest_steps", '[');
    for (int i = 0; i < profile->n_slowest; i++) {
        json_open(j, NULL, '{');
        json_integer(j, "step", profile->slowest[i].step);
        json_number(j, "latency_ms", profile->slowest[i].value);
        json_open(j, "seen", '[');
        j->flat = true;
        for (int k = 0; k < N_TAGS; k++)
            if (profile->slowest[i].tags >> k & 1) json_string(j, NULL, profile_tag_names[k]);
        json_close(j, ']');
        j->flat = false;
        json_string(j, "cause", profile_cause_names[profile->slowest_cause[i]]);
        json_close(j, '}');
    }
    json_close(j, ']');
    write_tail(j, &profile->tail);
    json_open(j, "verdicts", '[');
    for (int i = 0; i < profile->n_verdicts; i++) {
        const mlff_profile_verdict *verdict = &profile->verdicts[i];
        json_open(j, NULL, '{');
        json_string(j, "target", verdict->target);
        json_number(j, "value", verdict->value);
        json_number(j, "limit", verdict->limit);
        json_string(j, "unit", verdict->unit);
        json_boolean(j, "passed", verdict->passed);
        json_string(j, "text", verdict->text);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "recommendations", '[');
    for (int i = 0; i < profile->n_recommendations; i++) json_string(j, NULL, profile->recommendations[i]);
    json_close(j, ']');
    write_pairs(j, "environment", &profile->environment);
    write_pairs(j, "workload", &profile->workload);
    write_pairs(j, "implementation", &profile->implementation);
}

static void write_profile(json *j, const mlff_profile *profile)
{
    json_open(j, NULL, '{');
    write_contract(j, profile);
    write_added(j, profile);
    write_steadiness(j, profile);
    write_memory(j, profile);
    write_stages(j, profile);
    write_budget(j, profile);
    kernels_write(j, profile->kernels);
    energy_write(j, profile->energy);
    write_hotspots(j, "hotspots", profile, HOTSPOT_PCT);
    write_findings(j, profile);
    json_close(j, '}');
}

mlff_status mlff_profile_json(const mlff_profile *profile, char **text_out)
{
    if (!profile || !text_out) return mlff_fail(MLFF_ERR_USAGE, "profile as JSON: profile or output is NULL");
    json j = {.empty = true};
    write_profile(&j, profile);
    return json_take(&j, text_out);
}

mlff_status mlff_profile_hotspots_json(const mlff_profile *profile, double threshold_pct, char **text_out)
{
    if (!profile || !text_out) return mlff_fail(MLFF_ERR_USAGE, "hotspots as JSON: profile or output is NULL");
    if (!(threshold_pct >= 0.0 && threshold_pct <= 100.0))
        return mlff_fail(MLFF_ERR_USAGE, "hotspots: a threshold of %g %%; expected 0 to 100", threshold_pct);
    json j = {.empty = true};
    write_hotspots(&j, NULL, profile, threshold_pct);
    return json_take(&j, text_out);
}

mlff_status profile_write_file(const char *path, const char *text)
{
    mlff_status status = MLFF_OK;
    base_output output = {0};
    MLFF_TRY(base_output_open(path, &output));
    fputs(text, output.file); // a failure stays in the stream, and commit looks
    MLFF_TRY(base_output_commit(&output));
done:
    if (output.file) base_output_abandon(&output);
    return status;
}

mlff_status mlff_profile_save(const mlff_profile *profile, const char *path)
{
    if (!profile || !path) return mlff_fail(MLFF_ERR_USAGE, "saving a profile: profile or path is NULL");
    char *text = NULL;
    mlff_status status = mlff_profile_json(profile, &text);
    if (status == MLFF_OK) status = profile_write_file(path, text);
    mlff_text_free(text);
    return status;
}

mlff_status mlff_profile_save_runs(const mlff_profile *const *profiles, int n_profiles, const char *path)
{
    if (!profiles || n_profiles < 1 || !path)
        return mlff_fail(MLFF_ERR_USAGE, "saving runs: profiles or path is NULL, or there are none");
    char *text = NULL;
    json j = {.empty = true};
    json_open(&j, NULL, '{');
    json_open(&j, "runs", '[');
    for (int i = 0; i < n_profiles; i++) write_profile(&j, profiles[i]);
    json_close(&j, ']');
    json_close(&j, '}');
    mlff_status status = json_take(&j, &text);
    if (status == MLFF_OK) status = profile_write_file(path, text);
    mlff_text_free(text);
    return status;
}
