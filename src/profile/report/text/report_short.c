// SPDX-License-Identifier: MIT
// report_short.c: the report on one screen: the numbers, one bar, three reasons, the targets, and what to do first.
#include <math.h>
#include <string.h>

#include "profile/sensors/energy.h"
#include "text_page.h"

enum { REASONS = 3, ADVICE = 2 };

// Percentiles beyond which no step lies are those of the longest one, which is then named instead.
static void write_times(text_page *p, const mlff_profile *profile)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    char tail[128] = "";
    bool p95 = steadiness_percentile_known(profile, 0.95), p99 = steadiness_percentile_known(profile, 0.99);
    if (p95) snprintf(tail, sizeof tail, ", P95 %s", PROFILE_TIME(t->p95));
    size_t length = strlen(tail);
    if (t->n > 1)
        base_format(tail + length, sizeof tail - length, ", %s %s, CV %.0f %%", p99 ? "P99" : "longest",
                    PROFILE_TIME(p99 ? t->p99 : t->max), t->cv * 100.0);
    page_wrappedf(p, "  ", "median %s, mean %s%s", PROFILE_TIME(t->median), PROFILE_TIME(t->mean), tail);
}

static void write_numbers(text_page *p, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    double ns_low, ns_high;
    char interval[64] = "", timestep[48] = "1 fs assumed";
    if (profile_untrained(profile))
        page_wrapped(p, "", "UNTRAINED weights: the times are real, energies and forces mean nothing.");
    if (s->partial) page_wrapped(p, "", "PARTIAL: the run ended before its last step.");
    page_wrappedf(p, "", "%s: %s on %s, %s, %lld step%s%s%s", profile->name, profile->model_name, profile->device,
                  profile->system_size, (long long)s->n_steps, base_plural(s->n_steps),
                  *profile->trajectory ? ", trajectory " : "", profile->trajectory);
    if (isfinite(profile->timestep_fs)) base_format(timestep, sizeof timestep, "%.4g fs", profile->timestep_fs);
    ns_per_day_interval(profile, &ns_low, &ns_high);
    if (isfinite(ns_low))
        snprintf(interval, sizeof interval, ", %s to %s at 95 %%", PROFILE_NUMBER(ns_low, 3), PROFILE_NUMBER(ns_high, 3));
    write_times(p, profile);
    page_wrappedf(p, "  ", "%s ns/day (timestep %s%s), %.*f steps/s, %s µs/atom, memory %s", PROFILE_NUMBER(s->ns_per_day, 4),
                  timestep, interval, s->steps_per_second < 100.0 ? 2 : 0, s->steps_per_second, PROFILE_NUMBER(s->us_per_atom, 4),
                  PROFILE_GROWTH(s));
}

// One bar of the page's width; every part has a shade of its own.
static void write_bar(text_page *p, const mlff_profile *profile)
{
    static const char *const shades[] = {"█", "▓", "▒", "░", "▞", "▚", "·", " "};
    profile_part parts[PROFILE_PARTS];
    int n = profile_parts(profile, parts), filled = 0, width = p->width - 2;
    char legend[512] = "";
    size_t length = 0;
    double sum = 0.0;
    if (n == 0 || (n == 1 && strcmp(parts[0].name, "unattributed") == 0)) return;
    base_text_add(&p->text, "\n  ");
    for (int k = 0; k < n && length < sizeof legend; k++) {
        sum += parts[k].share;
        for (int end = (int)lround(sum * width); filled < end; filled++) base_text_add(&p->text, "%s", shades[k]);
        length += (size_t)base_format(legend + length, sizeof legend - length, "%s%s %.40s %.0f %%", k ? ", " : "", shades[k],
                                      parts[k].name, parts[k].share * 100.0);
    }
    base_text_add(&p->text, "\n");
    page_wrapped(p, "  ", legend);
}

static void write_reasons(text_page *p, const mlff_profile *profile)
{
    why_line lines[WHY_LINES];
    char lead[16];
    int n = why(profile, lines);
    if (n > 0) base_text_add(&p->text, "\n");
    for (int i = 0; i < n && i < REASONS; i++) {
        snprintf(lead, sizeof lead, " %d. ", i + 1);
        page_wrapped(p, lead, lines[i].text);
    }
}

// The missed ones by their numbers; the whole report has the sentences.
static void write_targets(text_page *p, const mlff_profile *profile)
{
    char missed[512] = "";
    int n_met = 0, n_judged = 0;
    size_t length = 0;
    for (int i = 0; i < profile->n_verdicts; i++) {
        const mlff_profile_verdict *v = &profile->verdicts[i];
        n_judged += v->passed >= 0;
        n_met += v->passed > 0;
        if (v->passed == 0 && length < sizeof missed)
            length += (size_t)snprintf(missed + length, sizeof missed - length, "%s%.60s (%s %.10s)",
                                       length ? ", " : "; missed: ", v->target, PROFILE_NUMBER(v->value, 3), v->unit);
    }
    base_text_add(&p->text, "\n");
    page_wrappedf(p, n_met == n_judged ? "✓ " : "✗ ", "%d of %d targets met%s", n_met, n_judged, missed);
}

// What a reason above says already is not said again.
static void write_advice(text_page *p, const mlff_profile *profile)
{
    why_line lines[WHY_LINES];
    int n = why(profile, lines), n_said = 0;
    for (int i = 0; i < profile->n_recommendations && n_said < ADVICE; i++) {
        bool said = false;
        for (int k = 0; k < n; k++) said = said || strcmp(lines[k].text, profile->recommendations[i]) == 0;
        if (said) continue;
        if (n_said++ == 0) base_text_add(&p->text, "\n");
        page_wrapped(p, "→ ", profile->recommendations[i]);
    }
}

mlff_status mlff_profile_text_short(const mlff_profile *profile, int width, char **text_out)
{
    if (!profile || !text_out) return mlff_fail(MLFF_ERR_USAGE, "profile as text: profile or output is NULL");
    text_page p = page_make(width);
    write_numbers(&p, profile);
    write_bar(&p, profile);
    write_reasons(&p, profile);
    write_targets(&p, profile);
    write_advice(&p, profile);
    return page_take(&p, text_out);
}
