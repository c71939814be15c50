// SPDX-License-Identifier: MIT
// report_text.c: the whole report in a terminal. It answers, from top to bottom: how fast, how steady, where the time goes, does
// memory grow, is that good, and what to do. report_short.c is what fits on a screen.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"
#include "text_page.h"

// ---- sections ------------------------------------------------------------------------------------

// On the first screen: what a reader came for.
static void write_why(text_page *p, const mlff_profile *profile)
{
    why_line lines[WHY_LINES];
    char mean[32], lead[16];
    int n = why(profile, lines);
    if (n == 0) return;
    page_wrappedf(p, "", "Why a step takes %s:", profile_time_text(profile->summary.latency_ms.mean, mean));
    for (int i = 0; i < n; i++) {
        snprintf(lead, sizeof lead, " %d. ", i + 1);
        page_wrapped(p, lead, lines[i].text);
    }
}

static void write_head(text_page *p, const mlff_profile *profile)
{
    char mean[32], first[32], warm[32], total[32], timestep[48] = "1 fs assumed", most[512], interval[64] = "";
    double ns_low, ns_high;
    const mlff_profile_summary *s = &profile->summary;
    if (profile_untrained(profile))
        page_wrapped(p, "", "UNTRAINED weights: the times are real, energies and forces mean nothing.");
    if (s->partial) page_wrapped(p, "", "PARTIAL: the run ended before its last step.");
    page_wrappedf(p, "", "Profile of %s", profile->name);
    page_wrappedf(p, "", "%s on %s, %s, %s", profile->model_name, profile->device, profile->system_size, profile->timestamp);
    base_text_add(&p->text, "\n");

    if (isfinite(profile->timestep_fs)) base_format(timestep, sizeof timestep, "%.4g fs", profile->timestep_fs);
    ns_per_day_interval(profile, &ns_low, &ns_high);
    if (isfinite(ns_low))
        snprintf(interval, sizeof interval, ", %s to %s at 95 %%", PROFILE_NUMBER(ns_low, 4), PROFILE_NUMBER(ns_high, 4));
    page_wrappedf(p, "", "%s a step = %.*f steps/s = %s ns/day (timestep %s%s) = %s µs/atom",
                  profile_time_text(s->latency_ms.mean, mean), s->steps_per_second < 100.0 ? 2 : 0, s->steps_per_second,
                  PROFILE_NUMBER(s->ns_per_day, 4), timestep, interval, PROFILE_NUMBER(s->us_per_atom, 4));
    page_wrappedf(p, "", "%lld step%s measured in %s%s%s%s", (long long)s->n_steps, base_plural(s->n_steps),
                  profile_time_text(s->total_time_s * 1e3, total), *profile->trajectory ? ", trajectory: " : "",
                  profile->trajectory,
                  profile->latency_every > 1 ? "; percentiles from a histogram of 0.4 % steps, the curve is thinned" : "");
    if (s->n_warmup > 0 && isfinite(s->warmup_mean_ms))
        page_wrappedf(p, "", "%lld warm-up step%s before, not counted: the first took %s, their mean is %s",
                      (long long)s->n_warmup, base_plural(s->n_warmup), profile_time_text(s->warmup_first_ms, first),
                      profile_time_text(s->warmup_mean_ms, warm));
    energy_text(profile->energy, most, sizeof most);
    if (*most && *profile->energy->source) page_wrapped(p, "", most);
    write_why(p, profile);
    if (*profile->notes) page_wrapped(p, "Notes: ", profile->notes);
}

static void write_latency(text_page *p, const mlff_profile *profile)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    const char *const names[] = {"mean", "median", "std", "min", "max", "P95", "P99"};
    const double values[] = {t->mean,
                             t->median,
                             t->n > 1 ? t->std : NAN,
                             t->min,
                             t->max,
                             steadiness_percentile_known(profile, 0.95) ? t->p95 : NAN,
                             steadiness_percentile_known(profile, 0.99) ? t->p99 : NAN};
    char low[32], high[32], text[32];
    int n = (int)(sizeof values / sizeof *values), per_line = p->width >= 7 * 12 ? 7 : 4;

    page_heading(p, "Time of a step");
    for (int first = 0; first < n; first += per_line) {
        for (int i = first; i < n && i < first + per_line; i++) page_cell(p, names[i], 12);
        page_line_end(p);
        for (int i = first; i < n && i < first + per_line; i++) page_cell(p, profile_time_text(values[i], text), 12);
        page_line_end(p);
    }
    char sentence[512];
    for (int i = 0; i < N_BOUNDS; i++) {
        steadiness_bound_text(profile, i, sentence, sizeof sentence);
        page_wrapped(p, "  ", sentence);
    }
    steadiness_text(profile, sentence, sizeof sentence);
    if (*sentence) page_wrapped(p, "", sentence);
    if (t->n > 1)
        page_wrappedf(p, "", "spread (CV) %.1f %%; %lld of %lld steps %s (beyond 3 interquartile ranges)", t->cv * 100.0,
                      (long long)t->n_outliers, (long long)t->n, t->n_outliers == 1 ? "is an outlier" : "are outliers");
    if (profile->n_latency > 1) {
        double least = profile->latency_ms[0], most = least;
        for (int64_t i = 0; i < profile->n_latency; i++) {
            least = fmin(least, profile->latency_ms[i]);
            most = fmax(most, profile->latency_ms[i]);
        }
        base_text_add(&p->text, "\n");
        page_sparkline(p, profile->latency_ms, profile->n_latency, p->width, least, most);
        base_text_add(&p->text, "\n");
        page_wrappedf(p, "", "first step to last, the slowest of each column; ▁ is %s, █ is %s", profile_time_text(least, low),
                      profile_time_text(most, high));
    }
}

static void write_includes(text_page *p, const mlff_profile *profile)
{
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        bool listed = !*row->includes;
        for (int k = 0; k < i && !listed; k++)
            listed = strcmp(profile->stages[k].name, row->name) == 0 && strcmp(profile->stages[k].phase, row->phase) == 0;
        if (!listed) page_wrappedf(p, "  ", "%s%s%s includes %s", row->phase, *row->phase ? "/" : "", row->name, row->includes);
    }
}

static void write_stages(text_page *p, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    double step_ms = s->latency_ms.mean, sum_ms = 0.0;
    bool micro = step_ms < 1.0, wide = p->width >= 84, tail_known = steadiness_percentile_known(profile, 0.95);
    int label = 12;
    char text[256];
    for (int i = 0; i < profile->n_stages; i++) {
        profile_stage_path(&profile->stages[i], text, sizeof text);
        if (page_columns(text) > label) label = page_columns(text);
    }
    if (label > 28) label = 28;

    page_heading(p, "Where the time goes");
    const char *unit = micro ? "µs" : "ms";
    double scale = micro ? 1e3 : 1.0;
    int decimals = step_ms * scale >= 1000.0 ? 1 : step_ms * scale >= 100.0 ? 2 : 3;
    page_cell(p, profile->stages_measured ? "stage" : "part", label);
    base_text_add(&p->text, "  mean/%s", unit);
    if (wide) base_text_add(&p->text, "  median/%s    P95/%s", unit, unit);
    base_text_add(&p->text, "     share\n");
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        sum_ms += row->shown.mean_ms;
        profile_stage_path(row, text, sizeof text);
        page_cell(p, text, label);
        page_number(p, row->shown.mean_ms * scale, 9, decimals);
        if (wide) page_number(p, row->shown.median_ms * scale, 11, decimals);
        if (wide) page_number(p, tail_known ? row->shown.p95_ms * scale : NAN, 10, decimals);
        base_text_add(&p->text, "  ");
        page_number(p, row->shown.share * 100.0, 6, 1);
        base_text_add(&p->text, " %% ");
        page_share_bar(p, row->shown.share, p->width - label - 20 - (wide ? 21 : 0));
    }
    page_cell(p, "step", label);
    page_number(p, sum_ms * scale, 9, decimals);
    base_text_add(&p->text, "\n");
    write_includes(p, profile);
    if (!profile->stages_measured)
        page_wrapped(
            p, "",
            "This force field has no stages of its own: the parts are shares of the median step, from steps of energy alone "
            "and steps with more that were measured apart.");

    char energy[32], forces[32], stress[32];
    if (isfinite(s->energy_time_ms))
        page_wrappedf(p, "", "Energy alone takes %s, forces add %s, stress adds %s (medians, measured after the run).",
                      profile_time_text(s->energy_time_ms, energy),
                      isnan(s->forces_time_ms) ? "– (not measured)" : profile_time_text(s->forces_time_ms, forces),
                      isnan(s->stress_time_ms) ? "– (not measured)" : profile_time_text(s->stress_time_ms, stress));
    if (s->mean_pairs >= 0.0)
        page_wrappedf(p, "", "%.0f pair%s within the cutoff on average (%.1f neighbors an atom).", s->mean_pairs,
                      base_plural(lround(s->mean_pairs)),
                      profile_atoms(profile) > 0 ? s->mean_pairs / profile_atoms(profile) : 0.0);
    if (s->n_rebuilds >= 0)
        page_wrappedf(p, "", "The neighbor list was rebuilt in %lld of %lld step%s (%.1f %%); buffers grew %lld time%s.",
                      (long long)s->n_rebuilds, (long long)s->n_steps, base_plural(s->n_steps),
                      100.0 * (double)s->n_rebuilds / (double)(s->n_steps > 0 ? s->n_steps : 1),
                      (long long)(profile->n_growths > 0 ? profile->n_growths : 0), base_plural(profile->n_growths));
}

static void write_budget(text_page *p, const mlff_profile *profile)
{
    step_budget b = budget_of(profile);
    char sentence[512];
    if (isnan(b.ms[BUDGET_BUSY]) && isnan(b.ms[BUDGET_HOST]) && isnan(b.between_ms)) return;
    page_heading(p, "Step budget");
    for (int k = 0; k < N_BUDGET; k++) {
        if (isnan(b.ms[k])) continue;
        page_cell(p, k == BUDGET_BUSY && !b.traced ? "device busy, with gaps" : budget_names[k], 24);
        base_text_add(&p->text, "%s  ", PROFILE_TIME_RIGHT(b.ms[k], 10));
        page_number(p, 100.0 * b.ms[k] / b.step_ms, 6, 1);
        base_text_add(&p->text, " %% ");
        page_share_bar(p, b.ms[k] / b.step_ms, p->width - 46);
    }
    page_cell(p, b.traced ? "step (traced)" : "step", 24);
    base_text_add(&p->text, "%s\n", PROFILE_TIME_RIGHT(b.step_ms, 10));
    if (b.usual_ms > 0.0) {
        page_cell(p, "step (not traced)", 24);
        base_text_add(&p->text, "%s\n", PROFILE_TIME_RIGHT(b.usual_ms, 10));
    }
    if (isfinite(b.between_ms))
        page_wrappedf(p, "", "between two steps, for frames, files and samples: %s, not part of the step",
                      PROFILE_TIME(b.between_ms));
    if (!tail_gpu_shared(profile, sentence, sizeof sentence)) budget_text(&b, sentence, sizeof sentence);
    if (*sentence) page_wrapped(p, "", sentence);
}

static void write_kernels(text_page *p, const mlff_profile *profile)
{
    const kernel_report *kernels = profile->kernels;
    char sentence[1024];
    double rest_us = 0.0;
    if (!kernels || kernels->n_steps == 0) return;
    page_heading(p, "On the GPU");
    if (kernels->n_rows == 0)
        page_wrapped(p, "",
                     "no work of these steps was seen on a GPU: the force field computes elsewhere, or in another process");
    int n = kernels->n_rows < KERNELS_SHOWN ? kernels->n_rows : KERNELS_SHOWN, label = p->width - 52;
    if (label > 63) label = 63; // of a cell
    page_cell(p, "kernel", label);
    base_text_add(&p->text, "    a step        µs    share  stage or kind\n");
    for (int i = 0; i < kernels->n_rows; i++) {
        const kernel_row *row = &kernels->rows[i];
        if (i >= n) {
            rest_us += row->busy_us;
            continue;
        }
        page_cell(p, row->name, label);
        page_number(p, row->calls, 10, 1);
        page_number(p, row->busy_us, 10, 2);
        page_number(p, kernels->busy_ms > 0.0 ? 0.1 * row->busy_us / kernels->busy_ms : 0.0, 7, 1);
        base_text_add(&p->text, " %%  ");
        page_cell(p, row->stage, 20);
        page_line_end(p);
    }
    if (kernels->n_rows > n) page_wrappedf(p, "", "and %d more, %.4g µs together", kernels->n_rows - n, rest_us);
    kernels_clock_text(kernels, sentence, sizeof sentence);
    if (*sentence) page_wrapped(p, "", sentence);
    kernels_cost_text(kernels, sentence, sizeof sentence);
    page_wrapped(p, "", sentence);
}

// Stages of a kind, over layers: how near they are to what the machine can do.
static void write_bounds(text_page *p, const mlff_profile *profile)
{
    const ceilings *c = &profile->ceilings;
    double bound_ms = 0.0, shown_ms = 0.0;
    char rates[128] = ", ";
    const char *rule = "";
    bool any = false;
    for (int i = 0; i < profile->n_stages; i++) any = any || profile->stages[i].bound_ms > 0.0;
    if (c->n_threads < 1 || !any) return;
    page_heading(p, "How near to the machine's limits");
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *first = &profile->stages[i];
        bool listed = first->bound_ms <= 0.0;
        char name[128];
        for (int k = 0; k < i && !listed; k++)
            listed = strcmp(profile->stages[k].name, first->name) == 0 && strcmp(profile->stages[k].phase, first->phase) == 0;
        if (listed) continue;
        const stage_bound b = bounds_of_stage(profile, first);
        bound_ms += b.bound_ms;
        shown_ms += b.time_ms;
        snprintf(name, sizeof name, "%.40s/%.40s", first->phase, first->name);
        page_row(p, name, 22, "%5.1f %% of its bound: at least %s (%s), %.3g Mflop and %.3g MB; %.3g Gflop/s reached",
                 b.time_ms > 0.0 ? 100.0 * b.bound_ms / b.time_ms : 0.0, PROFILE_TIME(b.bound_ms),
                 b.by_memory ? "memory" : "arithmetic", b.flops * 1e-6, b.bytes * 1e-6,
                 b.time_ms > 0.0 ? b.flops * 1e-6 / b.time_ms : 0.0);
    }
    if (c->products != CEILING_VECTORS) {
        base_format(rates, sizeof rates, " by vectors, %.4g Gflop/s in %s, ", c->product_flops_a_ns,
                    ceiling_product_names[c->products]);
        rule = ", all of it at the faster rate";
    }
    page_wrappedf(
        p, "",
        "These stages: %.1f %% of the bound. Ceilings measured here on %d thread%s: %.4g Gflop/s in float32%s%.3g GB/s from "
        "the first level of cache, %.3g GB/s from memory. The bound is the least work of the equations%s, without counters",
        shown_ms > 0.0 ? 100.0 * bound_ms / shown_ms : 0.0, c->n_threads, base_plural(c->n_threads), c->flops_a_ns, rates,
        c->bytes_a_ns[0], c->bytes_a_ns[CEILING_LEVELS - 1], rule);
}

static void write_slowest(text_page *p, const mlff_profile *profile)
{
    int n = profile->n_slowest < 5 ? profile->n_slowest : 5;
    char step[32], time[32], copy[320], label[400], seen[128], sentence[512];
    if (n == 0) return;
    page_heading(p, "Slowest steps");
    tail_text(profile, sentence, sizeof sentence);
    if (*sentence) page_wrapped(p, "", sentence);
    for (int i = 0; i < n; i++) {
        const series_slow *slow = &profile->slowest[i];
        int cause = profile->slowest_cause[i];
        size_t length = 0;
        if (!(slow->value > profile->summary.latency_ms.median)) break; // slowest first: the others are not slow
        seen[0] = 0;
        for (int k = 0; k < N_TAGS; k++)
            if (slow->tags >> k & 1 && k != cause)
                length += (size_t)snprintf(seen + length, sizeof seen - length, "%s%s",
                                           length ? ", " : "; also seen: ", profile_tag_names[k]);
        snprintf(step, sizeof step, "step %lld", (long long)slow->step);
        snprintf(label, sizeof label, "%s%s", page_padded(step, 16, copy), profile_time_text(slow->value, time));
        page_row(p, label, 28, "%s%s", tail_cause_words(cause), seen);
    }
}

static void write_memory(text_page *p, const mlff_profile *profile)
{
    char first[32], last[32], peak[32];
    const mlff_profile_summary *s = &profile->summary;
    page_heading(p, "Memory");
    if (s->memory_stable < 0)
        page_wrapped(p, "", "not measured");
    else
        page_wrappedf(p, "", "%s at the start, %s at the end (%s), %s at most", page_memory_text(s->memory_initial_gb, first),
                      page_memory_text(s->memory_final_gb, last), PROFILE_GROWTH(s), page_memory_text(s->memory_peak_gb, peak));
    for (int k = 0; k < profile->n_ledgers; k++) {
        const profile_ledger *ledger = &profile->ledgers[k];
        char verdict[256] = "";
        bool judged = ledger->leak.kind != LEAK_UNKNOWN;
        if (judged) leaks_text(profile, ledger, verdict, sizeof verdict);
        page_row(p, ledger->name, 21, "%s, %s%s%s", page_memory_text((double)ledger->initial_bytes / 1073741824.0, first),
                 PROFILE_CHANGE_MB((double)(ledger->final_bytes - ledger->initial_bytes)), judged ? ", " : "", verdict);
    }
    if (profile->n_memory > 1) {
        double least = profile->memory_gb[0], most = least;
        for (int64_t i = 0; i < profile->n_memory; i++) {
            least = fmin(least, profile->memory_gb[i]);
            most = fmax(most, profile->memory_gb[i]);
        }
        if (most - least > 1.0 / 1024.0) { // a curve only where something moved by more than 1 MB
            page_sparkline(p, profile->memory_gb, profile->n_memory, p->width, least, most);
            base_text_add(&p->text, "\n");
            page_wrappedf(p, "", "along the run; ▁ is %s, █ is %s", page_memory_text(least, first), page_memory_text(most, last));
        }
    }
}

static void write_findings(text_page *p, const mlff_profile *profile)
{
    char lead[16];
    page_heading(p, "Targets");
    for (int i = 0; i < profile->n_verdicts; i++) {
        const mlff_profile_verdict *verdict = &profile->verdicts[i];
        page_wrappedf(p, verdict->passed < 0 ? "– " : verdict->passed ? "✓ " : "✗ ", "%s: %s", verdict->target, verdict->text);
    }
    page_heading(p, "What was seen, and what to do");
    for (int i = 0; i < profile->n_recommendations; i++) {
        snprintf(lead, sizeof lead, "%2d. ", i + 1);
        page_wrapped(p, lead, profile->recommendations[i]);
    }
    if (profile->n_recommendations == 0) page_wrapped(p, "", "Nothing stands out.");
}

static void write_environment(text_page *p, const mlff_profile *profile)
{
    page_heading(p, "Measured on");
    for (int i = 0; i < profile->environment.n; i++) {
        page_row(p, profile->environment.keys[i], 23, "%s", profile->environment.values[i]);
    }
    if (profile->energy) {
        char sentence[512];
        energy_text(profile->energy, sentence, sizeof sentence);
        page_row(p, "energy", 23, "%s", sentence);
        energy_clock_text(profile->energy, sentence, sizeof sentence);
        if (*sentence) page_row(p, "GPU", 23, "%s", sentence);
    }
    if (isfinite(profile->quantum_ns)) {
        char overhead[320];
        overhead_text(profile, overhead, sizeof overhead);
        if (*overhead) page_row(p, "overhead", 23, "%s", overhead);
        page_row(p, "clock", 23, "steps of %.3g ns, a reading costs %.3g ns", profile->quantum_ns, profile->read_ns);
    }
}

mlff_status mlff_profile_text(const mlff_profile *profile, int width, char **text_out)
{
    if (!profile || !text_out) return mlff_fail(MLFF_ERR_USAGE, "profile as text: profile or output is NULL");
    text_page p = page_make(width);
    write_head(&p, profile);
    write_latency(&p, profile);
    write_stages(&p, profile);
    write_budget(&p, profile);
    write_kernels(&p, profile);
    write_bounds(&p, profile);
    write_slowest(&p, profile);
    write_memory(&p, profile);
    write_findings(&p, profile);
    write_environment(&p, profile);
    return page_take(&p, text_out);
}
