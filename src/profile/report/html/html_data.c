// SPDX-License-Identifier: MIT
// html_data.c: the numbers behind the charts of a page, thinned to what a screen resolves.
#include <math.h>
#include <string.h>

#include "html.h"

enum { POINTS = 600, BARS = 60 };

static void point(json *j, double x, double y)
{
    bool flat = j->flat;
    json_open(j, NULL, '{');
    j->flat = true;
    json_number(j, "x", x);
    json_number(j, "y", y);
    json_close(j, '}');
    j->flat = flat;
}

// Groups of steps by their slowest and their median, so that thinning hides no spike.
static void write_latency(json *j, const mlff_profile *profile)
{
    int64_t n = profile->n_latency, n_groups = n < POINTS ? n : POINTS;
    json_open(j, "latency", '{');
    json_boolean(j, "single", n <= POINTS);
    for (int pass = 0; pass < 2; pass++) {
        json_open(j, pass ? "middle" : "most", '[');
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t begin = n * g / n_groups, end = n * (g + 1) / n_groups;
            double value = profile->latency_ms[begin];
            for (int64_t i = begin; i < end && !pass; i++) value = fmax(value, profile->latency_ms[i]);
            if (pass) value = statistics_median(profile->latency_ms + begin, end - begin);
            if (isnan(value) && !isnan(profile->latency_ms[begin])) j->text.status = MLFF_ERR_MEMORY; // a median needs a copy
            point(j, (double)(begin * profile->latency_every), value);
        }
        json_close(j, ']');
    }
    json_close(j, '}');
}

// From the smallest value to just over P99; what lies beyond is counted in the last bar.
static void write_histogram(json *j, const mlff_profile *profile)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    double low = t->min, high = fmin(t->max, t->p99 + 0.5 * (t->p99 - t->min));
    int64_t counts[BARS] = {0};
    if (!(high > low)) high = low + fmax(low * 0.01, 1e-6);
    double width = (high - low) / BARS;
    for (int64_t i = 0; i < profile->n_latency; i++) {
        double bar = floor((profile->latency_ms[i] - low) / width);
        counts[bar < 0.0 ? 0 : bar >= BARS ? BARS - 1 : (int)bar]++;
    }
    int64_t n_beyond = 0;
    for (int64_t i = 0; i < profile->n_latency; i++) n_beyond += profile->latency_ms[i] > high;
    json_open(j, "histogram", '{');
    json_number(j, "beyond", (double)(n_beyond * profile->latency_every));
    json_number(j, "low", low);
    json_number(j, "high", high);
    json_open(j, "bars", '[');
    for (int i = 0; i < BARS; i++) point(j, low + (i + 0.5) * width, (double)(counts[i] * profile->latency_every));
    json_close(j, ']');
    json_open(j, "marks", '[');
    const double values[] = {t->median, t->p95, t->p99};
    static const char *const names[] = {"median", "P95", "P99"};
    static const double fractions[] = {0.5, 0.95, 0.99};
    for (int i = 0; i < 3; i++) {
        if (i > 0 && !steadiness_percentile_known(profile, fractions[i])) continue;
        json_open(j, NULL, '{');
        json_string(j, "name", names[i]);
        json_number(j, "value", values[i]);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void memory_curve(json *j, const char *name, const double *values, int64_t n, int64_t every, double unit)
{
    int64_t step = n / POINTS + 1;
    json_open(j, NULL, '{');
    json_string(j, "name", name);
    json_open(j, "points", '[');
    for (int64_t i = 0; i < n; i += step) point(j, (double)(i * every), (values[i] - values[0]) * unit);
    json_close(j, ']');
    json_close(j, '}');
}

static void write_memory(json *j, const mlff_profile *profile)
{
    json_open(j, "memory", '[');
    bool any = false;
    for (int k = 0; k < profile->n_ledgers; k++) {
        const profile_ledger *ledger = &profile->ledgers[k];
        if (ledger->n_samples < 1) continue;
        any = true;
        memory_curve(j, ledger->name, ledger->samples, ledger->n_samples, profile->memory_every, 1.0 / 1048576.0);
    }
    if (!any && profile->n_memory > 0)
        memory_curve(j, "memory of the run", profile->memory_gb, profile->n_memory, profile->memory_every, 1024.0);
    json_close(j, ']');
}

static void write_overview(json *j, const html_contents *contents)
{
    const mlff_profile *const *profiles = contents->profiles;
    int n = contents->n_profiles;
    char name[HTML_NAME];
    json_open(j, "overview", '{');
    json_open(j, "names", '[');
    for (int i = 0; i < n; i++) json_string(j, NULL, html_run_name(contents, i, name));
    json_close(j, ']');
    json_open(j, "median", '[');
    for (int i = 0; i < n; i++) json_number(j, NULL, profiles[i]->summary.latency_ms.median);
    json_close(j, ']');
    json_open(j, "p95", '[');
    for (int i = 0; i < n; i++)
        json_number(j, NULL, steadiness_percentile_known(profiles[i], 0.95) ? profiles[i]->summary.latency_ms.p95 : NAN);
    json_close(j, ']');
    json_close(j, '}');
}

// Step times of A and of B on one axis, from the shortest to just over the larger P99: part of each one's steps, %, in each bar.
static void write_compared(json *j, const mlff_profile *const *profiles, int n, int n_first)
{
    double low = INFINITY, high = 0.0;
    for (int i = 0; i < n; i++) {
        const mlff_statistics *t = &profiles[i]->summary.latency_ms;
        low = fmin(low, t->min);
        high = fmax(high, fmin(t->max, t->p99 + 0.2 * (t->p99 - t->min)));
    }
    if (!(high > low)) return;
    double width = (high - low) / BARS;
    json_open(j, "compared", '[');
    for (int side = 0; side < 2; side++) {
        int begin = side ? n_first : 0, end = side ? n : n_first;
        double counts[BARS] = {0.0}, total = 0.0, beyond = 0.0;
        for (int i = begin; i < end; i++) {
            for (int64_t k = 0; k < profiles[i]->n_latency; k++) {
                double bar = floor((profiles[i]->latency_ms[k] - low) / width);
                total += 1.0;
                if (bar >= BARS)
                    beyond += 1.0;
                else
                    counts[bar < 0.0 ? 0 : (int)bar] += 1.0;
            }
        }
        json_open(j, NULL, '{');
        json_string(j, "name", profiles[begin]->name);
        json_number(j, "beyond", total > 0.0 ? 100.0 * beyond / total : 0.0);
        json_open(j, "points", '[');
        for (int k = 0; k < BARS; k++) point(j, low + (k + 0.5) * width, total > 0.0 ? 100.0 * counts[k] / total : 0.0);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void write_scaling(json *j, const mlff_profile *const *profiles, int n)
{
    mlff_scaling s;
    double least = INFINITY, most = 0.0;
    if (mlff_profile_scaling(profiles, n, &s) != MLFF_OK || s.n_sizes < 3) return;
    json_open(j, "scaling", '{');
    json_string(j, "name", "max(floor, a + b·N)");
    json_open(j, "points", '[');
    for (int i = 0; i < n; i++) {
        double atoms = profiles[i]->summary.n_atoms;
        if (atoms < 1.0) continue;
        least = fmin(least, atoms);
        most = fmax(most, atoms);
        point(j, atoms, profile_typical_ms(profiles[i]));
    }
    json_close(j, ']');
    json_open(j, "fit", '[');
    for (int i = 0; i <= 40; i++) {
        double atoms = least * pow(most / least, i / 40.0);
        point(j, atoms, scaling_ms(&s, atoms));
    }
    json_close(j, ']');
    json_close(j, '}');
}

void html_data(base_text *page, const html_contents *contents)
{
    const mlff_profile *const *profiles = contents->profiles;
    int n_profiles = contents->n_profiles;
    json j = {.text = *page, .empty = true, .html = true};
    json_open(&j, NULL, '{');
    json_open(&j, "runs", '[');
    for (int i = 0; i < n_profiles; i++) {
        json_open(&j, NULL, '{');
        write_latency(&j, profiles[i]);
        write_histogram(&j, profiles[i]);
        write_memory(&j, profiles[i]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    if (n_profiles > 1) write_overview(&j, contents);
    if (contents->n_first > 0) write_compared(&j, profiles, n_profiles, contents->n_first);
    if (n_profiles > 0) write_scaling(&j, profiles, n_profiles);
    if (contents->implementations) html_implementations_data(&j, contents->implementations);
    json_close(&j, '}');
    *page = j.text;
}
