// SPDX-License-Identifier: MIT
// energy.c: joules a step, power, clocks and temperature from samples along a run.
#include "energy.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "profile/run/run.h"

#define CLOCK_WELL_BELOW 0.93

void energy_report_free(energy_report *report)
{
    if (!report) return;
    base_free(report->source);
    base_free(report->problem);
    base_free(report);
}

void ns_per_day_interval(const mlff_profile *profile, double *low, double *high)
{
    double least_ms, most_ms;
    mean_interval(profile->latency_ms, profile->n_latency, &least_ms, &most_ms);
    // About the mean of all steps: a thinned series may miss each step of a period, or have too many of them.
    const double mean_ms = profile->summary.latency_ms.mean, half_ms = 0.5 * (most_ms - least_ms);
    *low = profile->summary.ns_per_day * mean_ms / (mean_ms + half_ms);
    *high = profile->summary.ns_per_day * mean_ms / (mean_ms - half_ms);
    if (!(half_ms < mean_ms)) *low = *high = NAN; // so uneven that nothing can be said
}

// ---- from samples --------------------------------------------------------------------------------

static double median_clock(const power_series *s, bool memory)
{
    double values[POWER_SAMPLES];
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        int mhz = memory ? s->samples[i].memory_mhz : s->samples[i].sm_mhz;
        if (mhz > 0) values[n++] = mhz;
    }
    return statistics_median(values, n);
}

// True if the sample's clock is well below the median of all.
static bool is_slowed(const power_series *s, int sample)
{
    double median = s->n >= 4 ? median_clock(s, false) : NAN;
    return s->samples[sample].sm_mhz > 0 && s->samples[sample].sm_mhz < CLOCK_WELL_BELOW * median; // false for NaN
}

// Joules a step, and the interval of this ratio of sums: by what each stretch between two samples adds to it. Stretches are as long as each other
// in time, so that the mean of their joules a step would count slow steps more often. A counter that went back says nothing of its stretch.
static void derive_joules(const power_series *s, energy_report *report)
{
    double used[POWER_SAMPLES], made[POWER_SAMPLES], joules = 0.0, seconds = 0.0, steps = 0.0;
    int n = 0;
    for (int i = 1; i < s->n; i++) {
        const power_sample *a = &s->samples[i - 1], *b = &s->samples[i];
        if (!(b->joules >= a->joules) || b->step <= a->step) continue; // also for NaN
        used[n] = b->joules - a->joules;
        made[n] = (double)(b->step - a->step);
        joules += used[n];
        steps += made[n++];
        seconds += (double)(b->time_ns - a->time_ns) * 1e-9;
    }
    const double ratio = joules / steps;
    report->joules_per_step = steps > 0.0 && joules > 0.0 ? ratio : NAN; // the counter moves in steps
    report->watts = seconds > 0.0 && joules > 0.0 ? joules / seconds : NAN;
    for (int i = 0; i < n; i++) used[i] = ratio + (used[i] - ratio * made[i]) * n / steps;
    mean_interval(used, joules > 0.0 ? n : 0, &report->joules_low, &report->joules_high);
}

mlff_status energy_derive(const power_series *s, energy_report **report_out)
{
    mlff_status status = MLFF_OK;
    int64_t steps = 0, slowed = 0;
    energy_report *report = base_alloc(1, sizeof *report, "a report on energy");
    if (!report) return MLFF_ERR_MEMORY;
    MLFF_TRY(profile_set(&report->problem, s->problem));
    MLFF_TRY(profile_set(&report->source, !s->open                               ? ""
                                          : strcmp(s->meter.source, "NVML") == 0 ? "NVML: the whole GPU"
                                                                                 : "RAPL: the processors' packages"));
    report->n_samples = s->n;
    report->joules_per_step = report->joules_low = report->joules_high = report->watts = NAN;
    report->sm_mhz_min = report->temperature_c = report->temperature_max_c = NAN;
    report->sm_mhz = median_clock(s, false);
    report->memory_mhz = median_clock(s, true);
    derive_joules(s, report);
    for (int i = 0; i < s->n; i++) {
        const power_sample *sample = &s->samples[i];
        report->reasons |= sample->reasons;
        if (sample->sm_mhz > 0) report->sm_mhz_min = fmin(report->sm_mhz_min, sample->sm_mhz); // fmin and fmax pass over NaN
        if (sample->temperature_c >= 0 && isnan(report->temperature_c)) report->temperature_c = sample->temperature_c;
        if (sample->temperature_c >= 0) report->temperature_max_c = fmax(report->temperature_max_c, sample->temperature_c);
        if (i == 0) continue;
        int64_t stretch = sample->step - s->samples[i - 1].step;
        steps += stretch;
        if (is_slowed(s, i)) slowed += stretch;
    }
    report->slowed_share = steps > 0 ? (double)slowed / (double)steps : 0.0;
    *report_out = report;
    report = NULL;
done:
    energy_report_free(report);
    return status;
}

mlff_status run_meter(run *r)
{
    const char *text = r->callable.device ? r->callable.device : "cpu";
    mlff_device device;
    mlff_device_info info = {.struct_size = sizeof info};
    bool gpu = strncmp(text, "cuda", 4) == 0; // its address is known where the plugin works, as for our own models
    if (gpu && (mlff_device_parse(text, &device) != MLFF_OK || mlff_device_info_get(device, &info) != MLFF_OK)) info.pci[0] = 0;
    return power_series_open(&r->power, text, info.pci);
}

void run_tag_clock(run *r)
{
    const power_series *p = &r->power;
    for (int i = 1; i < p->n; i++) {
        if (!is_slowed(p, i)) continue;
        int64_t from = p->samples[i - 1].step, to = p->samples[i].step;
        for (int k = 0; k < r->step.n_slowest; k++)
            if (r->step.slowest[k].step >= from && r->step.slowest[k].step < to) r->step.slowest[k].tags |= TAG_CLOCK;
        for (int64_t v = (from + r->step.every - 1) / r->step.every; r->step.tags && v < r->step.n_values; v++) {
            if (v * r->step.every >= to) break;
            if (r->step.tags[v] & TAG_CLOCK) continue;
            r->step.tags[v] |= TAG_CLOCK;
            for (int bit = 0; bit < N_TAGS; bit++) r->n_tagged[bit] += TAG_CLOCK >> bit == 1 ? r->step.every : 0;
        }
    }
}

// ---- in words ------------------------------------------------------------------------------------

static const char *joules_text(double joules, char text[32])
{
    if (joules >= 1.0)
        base_format(text, 32, "%.4g J", joules);
    else if (joules >= 1e-3)
        base_format(text, 32, "%.4g mJ", joules * 1e3);
    else
        base_format(text, 32, "%.4g µJ", joules * 1e6);
    return text;
}

void energy_text(const energy_report *report, char *text, size_t text_bytes)
{
    char mean[32], low[32], high[32], interval[96] = "";
    text[0] = 0;
    if (!report) return;
    if (!*report->source) {
        snprintf(text, text_bytes, "not measured: %s", report->problem);
    } else if (isnan(report->joules_per_step)) {
        snprintf(text, text_bytes, "%s: the counter did not move during the run; it needs a second or more", report->source);
    } else {
        if (isfinite(report->joules_low))
            snprintf(interval, sizeof interval, " (%s to %s at 95 %%)", joules_text(fmax(report->joules_low, 0.0), low),
                     joules_text(report->joules_high, high));
        base_format(text, text_bytes, "%s a step%s, %.4g W on average (%s, also between steps)",
                    joules_text(report->joules_per_step, mean), interval, report->watts, report->source);
    }
}

void energy_clock_text(const energy_report *report, char *text, size_t text_bytes)
{
    static const struct {
        int64_t bit;
        const char *name;
    } reasons[] = {{POWER_CAP, "power cap"},
                   {POWER_SLOWDOWN, "hardware slowdown"},
                   {POWER_THERMAL_SOFT, "temperature"},
                   {POWER_THERMAL, "temperature (hardware)"},
                   {POWER_BRAKE, "power brake"}};
    text[0] = 0;
    if (!report || isnan(report->sm_mhz)) return;
    int length = base_format(
        text, text_bytes, "clock %.0f MHz (median; %.0f at least), memory %.0f MHz, %.0f °C at the start, %.0f at most",
        report->sm_mhz, report->sm_mhz_min, report->memory_mhz, report->temperature_c, report->temperature_max_c);
    if (report->slowed_share > 0.0 && (size_t)length < text_bytes)
        length += base_format(text + length, text_bytes - (size_t)length, "; well below its median in %.1f %% of the steps",
                              report->slowed_share * 100.0);
    bool any = false;
    for (size_t k = 0; k < sizeof reasons / sizeof *reasons && (size_t)length < text_bytes; k++) {
        if (!(report->reasons & reasons[k].bit)) continue;
        length += snprintf(text + length, text_bytes - (size_t)length, "%s%s", any ? ", " : "; lowered by: ", reasons[k].name);
        any = true;
    }
}

// ---- JSON ----------------------------------------------------------------------------------------

#define NUMBER(field) JSON_NUMBER(energy_report, field)
#define INTEGER(field) JSON_INTEGER(energy_report, field)
static const json_field fields[] = {INTEGER(n_samples),        NUMBER(joules_per_step), NUMBER(joules_low),
                                    NUMBER(joules_high),       NUMBER(watts),           NUMBER(sm_mhz),
                                    NUMBER(sm_mhz_min),        NUMBER(memory_mhz),      NUMBER(temperature_c),
                                    NUMBER(temperature_max_c), NUMBER(slowed_share),    INTEGER(reasons)};
enum { N_FIELDS = sizeof fields / sizeof *fields };

void energy_write(json *j, const energy_report *report)
{
    if (!report) return;
    json_open(j, "energy", '{');
    json_string(j, "source", report->source);
    json_string(j, "problem", report->problem);
    json_fields_write(j, report, fields, N_FIELDS);
    json_close(j, '}');
}

mlff_status energy_read(const char *path, const cJSON *object, energy_report **report_out)
{
    mlff_status status = MLFF_OK;
    if (!object || cJSON_IsNull(object)) return MLFF_OK;
    energy_report *report = base_alloc(1, sizeof *report, "a report on energy");
    if (!report) return MLFF_ERR_MEMORY;
    MLFF_TRY(json_text_read(path, "energy", object, "source", &report->source));
    MLFF_TRY(json_text_read(path, "energy", object, "problem", &report->problem));
    MLFF_TRY(json_fields_read(path, "energy", object, report, fields, N_FIELDS));
    *report_out = report;
    report = NULL;
done:
    energy_report_free(report);
    return status;
}
