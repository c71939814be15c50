// SPDX-License-Identifier: MIT
// record.c: the record of a run: its life, and what it shows to callers.
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"

const char *const profile_tag_names[N_TAGS] = {"rebuild",  "buffer growth", "preempted",  "page faults",  "clock drop",
                                               "file I/O", "compilation",   "allocation", "child process"};
const char *const profile_leak_names[N_LEAK_KINDS] = {
    "too few samples", "stable",           "bounded growth", "growing",
    "inconclusive",    "explained growth", "fragmentation",  "uncollected garbage"};

mlff_profile_options mlff_profile_options_default(void)
{
    return (mlff_profile_options){
        .struct_size = sizeof(mlff_profile_options),
        .n_steps = 100,
        .n_warmup = 10,
        .properties = MLFF_ENERGY | MLFF_FORCES,
        .memory_every = 10,
        .stages = 1,
        .split = 1,
        .timestep_fs = NAN,
        .precision_of = 0.5,
        .trace_steps = 200,
        .overhead = 1,
    };
}

mlff_status profile_set(char **text, const char *value)
{
    char *copy = base_strdup(value ? value : "");
    if (!copy) return MLFF_ERR_MEMORY;
    base_free(*text);
    *text = copy;
    return MLFF_OK;
}

mlff_status profile_new(mlff_profile **profile_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profile = base_alloc(1, sizeof *profile, "a profile");
    if (!profile) return MLFF_ERR_MEMORY;

    mlff_profile_summary *summary = &profile->summary;
    summary->energy_time_ms = summary->forces_time_ms = summary->stress_time_ms = NAN;
    summary->warmup_first_ms = summary->warmup_mean_ms = NAN;
    summary->heap_initial_gb = summary->heap_final_gb = NAN;
    summary->mean_pairs = -1.0;
    profile->first_pairs = NAN;
    summary->n_rebuilds = -1;
    profile->latency_every = profile->memory_every = 1;
    profile->n_growths = -1;
    profile->available_bytes = -1;
    profile->overhead_ns = profile->overhead_low_ns = profile->overhead_high_ns = NAN;
    profile->timestep_fs = profile->wall_time_s = NAN;
    profile->rebuild_median_ms = profile->other_median_ms = NAN;
    profile_tail *tail = &profile->tail;
    tail->cpu_wait_share = tail->cpu_rise = tail->queue_ms = tail->queue_least_ms = tail->team_cores = tail->program_cores = NAN;
    tail->off_share = NAN;
    for (int k = 0; k < N_EXAMPLES; k++) profile->examples[k].step = -1;
    profile->quantum_ns = profile->read_ns = NAN;
    char **texts[] = {&profile->name,      &profile->model_name, &profile->device,    &profile->system_size,
                      &profile->timestamp, &profile->notes,      &profile->trajectory};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) MLFF_TRY(profile_set(texts[i], ""));
    *profile_out = profile;
    profile = NULL;
done:
    mlff_profile_destroy(profile);
    return status;
}

void mlff_profile_destroy(mlff_profile *profile)
{
    if (!profile) return;
    char *texts[] = {profile->name,      profile->model_name, profile->device,    profile->system_size,
                     profile->timestamp, profile->notes,      profile->trajectory};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) base_free(texts[i]);
    for (int i = 0; i < profile->n_ledgers; i++) {
        base_free(profile->ledgers[i].name);
        base_free(profile->ledgers[i].samples);
    }
    for (int i = 0; i < profile->n_stages; i++) {
        base_free(profile->stages[i].name);
        base_free(profile->stages[i].phase);
        base_free(profile->stages[i].includes);
        base_free(profile->stages[i].advice);
    }
    for (int i = 0; i < profile->n_verdicts; i++) base_free((char *)(uintptr_t)profile->verdicts[i].text);
    for (int i = 0; i < profile->n_recommendations; i++) base_free(profile->recommendations[i]);
    kernel_report_free(profile->kernels);
    energy_report_free(profile->energy);
    base_free(profile->latency_ms);
    base_free(profile->memory_gb);
    base_free(profile->ledgers);
    base_free(profile->stages);
    base_free(profile->shown_stages);
    base_free(profile->verdicts);
    base_free(profile->recommendations);
    environment_free(&profile->environment);
    environment_free(&profile->workload);
    environment_free(&profile->implementation);
    base_free(profile);
}

mlff_status profile_add_notes(mlff_profile *profile, const char *text)
{
    if (!text || !*text) return MLFF_OK;
    size_t bytes = strlen(profile->notes) + strlen(text) + 3;
    char *joined = base_alloc(bytes, 1, "notes");
    if (!joined) return MLFF_ERR_MEMORY;
    snprintf(joined, bytes, "%s%s%s", profile->notes, *profile->notes ? "; " : "", text);
    base_free(profile->notes);
    profile->notes = joined;
    return MLFF_OK;
}

mlff_status profile_note(mlff_profile *profile, const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    return profile_add_notes(profile, text);
}

mlff_status profile_add_stage(mlff_profile *profile, const mlff_stage *stage, const mlff_statistics *time_ms)
{
    profile_stage row = {
        .shown = {.layer = stage->layer, .mean_ms = time_ms->mean, .median_ms = time_ms->median, .p95_ms = time_ms->p95}};
    size_t capacity = (size_t)profile->n_stages;
    mlff_status status = MLFF_OK;

    MLFF_TRY(base_grow(&profile->stages, &capacity, (size_t)profile->n_stages + 1, sizeof *profile->stages, "stages"));
    MLFF_TRY(profile_set(&row.name, stage->name));
    MLFF_TRY(profile_set(&row.phase, stage->phase));
    MLFF_TRY(profile_set(&row.includes, stage->includes));
    MLFF_TRY(profile_set(&row.advice, ""));
    profile->stages[profile->n_stages++] = row;
    return MLFF_OK;
done:
    base_free(row.name);
    base_free(row.phase);
    base_free(row.includes);
    base_free(row.advice);
    return status;
}

mlff_status profile_add_split(mlff_profile *profile, const mlff_statistics *outside_ms)
{
    const mlff_profile_summary *summary = &profile->summary;
    const double parts[] = {summary->energy_time_ms, summary->forces_time_ms, summary->stress_time_ms};
    static const char *const names[] = {"energy", "forces", "stress"};
    double call_ms = 0.0, median_ms = summary->latency_ms.median, mean_ms = summary->latency_ms.mean;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!isnan(parts[i])) call_ms += parts[i];
    if (outside_ms) {
        median_ms = fmax(median_ms - outside_ms->median, 0.0);
        mean_ms = fmax(mean_ms - outside_ms->mean, 0.0);
    } else {
        median_ms = fmin(call_ms, median_ms);
    }
    mean_ms = fmin(mean_ms, median_ms); // where most steps are slow the median is above the mean
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (isnan(parts[i])) continue;
        const double share = call_ms > 0.0 ? parts[i] / call_ms : 0.0;
        mlff_stage row = {.name = names[i], .phase = "", .layer = -1, .includes = ""};
        mlff_statistics time = {.mean = share * mean_ms, .median = share * median_ms, .p95 = NAN};
        mlff_status status = profile_add_stage(profile, &row, &time);
        if (status != MLFF_OK) return status;
    }
    return MLFF_OK;
}

// A sum that differs by rounding alone leaves nothing.
static double rest_of(double rest_ms, double step_ms)
{
    return fabs(rest_ms) < 1e-9 * step_ms ? 0.0 : rest_ms;
}

mlff_status profile_add_unattributed(mlff_profile *profile, double median_ms, double p95_ms)
{
    static const mlff_stage row = {"unattributed", "", -1, ""};
    double step_ms = profile->summary.latency_ms.mean, rest_ms = step_ms, rest_median_ms = profile->summary.latency_ms.median;
    for (int i = 0; i < profile->n_stages; i++) {
        rest_ms -= profile->stages[i].shown.mean_ms;
        rest_median_ms -= profile_stage_typical_ms(&profile->stages[i]);
    }
    if (isnan(median_ms)) median_ms = rest_of(rest_median_ms, step_ms);
    mlff_statistics time = {.mean = rest_of(rest_ms, step_ms), .median = median_ms, .p95 = p95_ms};
    return profile_add_stage(profile, &row, &time);
}

void profile_stage_path(const profile_stage *stage, char *text, size_t text_bytes)
{
    char layer[16] = "";
    if (stage->shown.layer >= 0) snprintf(layer, sizeof layer, "/%d", stage->shown.layer);
    snprintf(text, text_bytes, "%s%s%s%s", stage->phase, *stage->phase ? "/" : "", stage->name, layer);
}

const char *profile_time_text(double ms, char text[32])
{
    if (isnan(ms))
        snprintf(text, 32, "–");
    else if (fabs(ms) >= 1000.0)
        base_format(text, 32, "%.4g s", ms * 1e-3);
    else if (fabs(ms) >= 1.0)
        base_format(text, 32, "%.4g ms", ms);
    else
        base_format(text, 32, "%.4g µs", ms * 1e3);
    return text;
}

const char *profile_growth_text(const mlff_profile_summary *summary, char text[32])
{
    if (isnan(summary->memory_delta_gb))
        snprintf(text, 32, "not measured");
    else
        profile_change_mb_text(summary->memory_delta_gb * 1073741824.0, text);
    return text;
}

const char *profile_change_mb_text(double bytes, char text[32])
{
    double mb = bytes / 1048576.0;
    base_format(text, 32, "%+.2f MB", fabs(mb) < 0.005 ? 0.0 : mb);
    return text;
}

const char *profile_number_text(double value, int digits, char text[32])
{
    double unit = pow(10.0, floor(log10(fabs(value))) - digits + 1.0); // of the last digit that is printed
    if (fabs(value) < pow(10.0, digits))
        base_format(text, 32, "%.*g", digits, value);
    else
        base_format(text, 32, "%.0f", round(value / unit) * unit);
    return text;
}

const char *profile_right_text(const char *text, int columns, char cell[64])
{
    for (const char *at = text; *at; at++) columns -= ((unsigned char)*at & 0xC0) != 0x80;
    snprintf(cell, 64, "%*s%s", columns > 0 ? columns : 0, "", text);
    return cell;
}

bool profile_untrained(const mlff_profile *profile)
{
    static const char word[] = "untrained";
    for (const char *at = profile->notes; *at; at++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)at[i]) == word[i]) i++;
        if (!word[i]) return true;
    }
    return false;
}

double profile_atoms(const mlff_profile *profile)
{
    return profile->mean_atoms > 0 ? profile->mean_atoms : profile->summary.n_atoms;
}

mlff_status profile_derive(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary *summary = &profile->summary;
    double mean_ms = summary->latency_ms.mean;

    summary->name = profile->name;
    summary->model_name = profile->model_name;
    summary->device = profile->device;
    summary->system_size = profile->system_size;
    summary->timestamp = profile->timestamp;
    summary->notes = profile->notes;
    summary->memory_delta_gb = summary->memory_final_gb - summary->memory_initial_gb;
    summary->memory_stable = isnan(summary->memory_delta_gb) ? -1 : summary->memory_delta_gb * 1024.0 < 10.0;
    const double atoms = profile_atoms(profile);
    summary->us_per_atom = atoms > 0 ? mean_ms * 1000.0 / atoms : 0.0;
    double timestep = isfinite(profile->timestep_fs) ? profile->timestep_fs : 1.0;
    summary->ns_per_day = summary->steps_per_second * timestep * 1e-6 * 86400.0;

    profile->shown_stages = base_alloc((size_t)profile->n_stages, sizeof *profile->shown_stages, "stages");
    if (!profile->shown_stages) return MLFF_ERR_MEMORY;
    for (int i = 0; i < profile->n_stages; i++) {
        mlff_profile_stage *row = &profile->stages[i].shown;
        row->name = profile->stages[i].name;
        row->phase = profile->stages[i].phase;
        row->share = mean_ms > 0.0 ? row->mean_ms / mean_ms : 0.0;
        row->is_hotspot = row->share > 0.10;
        profile->shown_stages[i] = *row;
    }
    MLFF_TRY(steadiness_derive(profile));
    leaks_relate(profile);
    MLFF_TRY(verdicts_judge(profile));
    MLFF_TRY(hotspots_recommend(profile));
done:
    return status;
}

void mlff_profile_summary_get(const mlff_profile *profile, mlff_profile_summary *summary_out)
{
    *summary_out = profile->summary;
}

const mlff_profile_stage *mlff_profile_stages(const mlff_profile *profile, int *n_out)
{
    if (n_out) *n_out = profile->n_stages;
    return profile->shown_stages;
}

const mlff_profile_verdict *mlff_profile_verdicts(const mlff_profile *profile, int *n_out)
{
    if (n_out) *n_out = profile->n_verdicts;
    return profile->verdicts;
}

const char *const *mlff_profile_recommendations(const mlff_profile *profile, int *n_out)
{
    if (n_out) *n_out = profile->n_recommendations;
    return (const char *const *)profile->recommendations;
}

void mlff_text_free(char *text)
{
    base_free(text);
}
