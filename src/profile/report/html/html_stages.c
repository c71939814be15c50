// SPDX-License-Identifier: MIT
// html_stages.c: where the time of a step goes, as pictures without a script: nested bars of phases, stages and layers by their
// medians, and the stages of a median step beside those of the slowest one on one scale. The tables have the same numbers.
#include <math.h>
#include <string.h>

#include "html.h"

#define LANE_LEAST 0.01   // of the slowest step: a shorter one has no stages that could be seen
#define SHOWN_LEAST 0.001 // of the step: less is no bar

// The first of the rows with the same phase (with `name`: and name); rows without a phase are their own.
static int first_of(const mlff_profile *profile, int i, bool name)
{
    const profile_stage *row = &profile->stages[i];
    int k = 0;
    if (!*row->phase && !name) return i;
    while (strcmp(profile->stages[k].phase, row->phase) != 0 || (name && strcmp(profile->stages[k].name, row->name) != 0)) k++;
    return k;
}

static int color_of(const mlff_profile *profile, int i)
{
    const profile_stage *row = &profile->stages[i];
    return html_part_color(*row->phase ? row->phase : row->name);
}

static double sum_of(const mlff_profile *profile, int first, bool name)
{
    double sum = 0.0;
    for (int i = first; i < profile->n_stages; i++)
        if (first_of(profile, i, name) == first) sum += fmax(profile_stage_typical_ms(&profile->stages[i]), 0.0);
    return sum;
}

static void open_node(base_text *page, const char *label, double ms, double parent_ms, double step_ms, int color)
{
    base_text_add(page, "<div class=\"node\" style=\"width:%.3f%%\"><span class=\"s%d\" title=\"", 100.0 * ms / parent_ms, color);
    html_textf(page, "%.80s: %s, %.1f %% of a step", label, PROFILE_TIME(ms), 100.0 * ms / step_ms);
    base_text_add(page, "\">");
    html_textf(page, "%.80s", label);
    if (ms > 0.06 * step_ms) base_text_add(page, " %.0f %%", 100.0 * ms / step_ms);
    base_text_add(page, "</span>");
}

// The layers of the stage whose first row is `first`, if it has several.
static void write_layers(base_text *page, const mlff_profile *profile, int first, double stage_ms, double step_ms)
{
    int n = 0;
    for (int i = first; i < profile->n_stages; i++) n += first_of(profile, i, true) == first;
    if (n < 2) return;
    base_text_add(page, "<div class=\"kids\">");
    for (int i = first; i < profile->n_stages; i++) {
        char label[32];
        double ms = fmax(profile_stage_typical_ms(&profile->stages[i]), 0.0);
        if (first_of(profile, i, true) != first || ms < SHOWN_LEAST * step_ms) continue;
        snprintf(label, sizeof label, "%d", profile->stages[i].shown.layer);
        open_node(page, label, ms, stage_ms, step_ms, color_of(profile, i));
        base_text_add(page, "</div>");
    }
    base_text_add(page, "</div>");
}

static void write_phase(base_text *page, const mlff_profile *profile, int first, double step_ms)
{
    const profile_stage *row = &profile->stages[first];
    double phase_ms = sum_of(profile, first, false);
    if (phase_ms < SHOWN_LEAST * step_ms) return;
    open_node(page, *row->phase ? row->phase : row->name, phase_ms, step_ms, step_ms, color_of(profile, first));
    if (*row->phase) {
        base_text_add(page, "<div class=\"kids\">");
        for (int i = first; i < profile->n_stages; i++) {
            if (first_of(profile, i, false) != first || first_of(profile, i, true) != i) continue;
            double stage_ms = sum_of(profile, i, true);
            if (stage_ms < SHOWN_LEAST * step_ms) continue;
            open_node(page, profile->stages[i].name, stage_ms, phase_ms, step_ms, color_of(profile, i));
            write_layers(page, profile, i, stage_ms, step_ms);
            base_text_add(page, "</div>");
        }
        base_text_add(page, "</div>");
    }
    base_text_add(page, "</div>\n");
}

int html_part_color(const char *name)
{
    static const char *const names[] = {"forward",         "backward", "neighbors", "unattributed", "host",   "launch",
                                        "launch and wait", "energy",   "forces",    "other stages", "stress", "integrate"};
    static const int colors[] = {0, 1, 2, 3, 4, 6, 6, 0, 1, 5, 2, 7};
    for (size_t k = 0; k < sizeof colors / sizeof *colors; k++)
        if (strcmp(name, names[k]) == 0) return colors[k];
    unsigned sum = 0;
    while (*name) sum += (unsigned char)*name++;
    return (int)(sum % 8);
}

void html_icicle(base_text *page, const mlff_profile *profile)
{
    double step_ms = 0.0;
    for (int i = 0; i < profile->n_stages; i++) step_ms += fmax(profile_stage_typical_ms(&profile->stages[i]), 0.0);
    if (!profile->stages_measured || !(step_ms > 0.0)) return;
    base_text_add(page,
                  "<div class=\"scroll\"><div class=\"icicle\" role=\"img\" aria-label=\"phases, stages and layers of a median "
                  "step\"><div class=\"node\"><span>");
    html_textf(page, "step %s", PROFILE_TIME(step_ms));
    base_text_add(page, "</span></div><div class=\"kids\">\n");
    for (int i = 0; i < profile->n_stages; i++)
        if (first_of(profile, i, false) == i) write_phase(page, profile, i, step_ms);
    base_text_add(page, "</div></div></div>\n");
}

// ---- two steps -------------------------------------------------------------------------------------

static void write_example(base_text *page, const mlff_profile *profile, int example, double longest_ms)
{
    const profile_example *e = &profile->examples[example];
    base_text_add(page, "<p class=\"soft\">");
    html_textf(page, "%s step (step %lld, %s)", example == EXAMPLE_SLOW ? "slowest" : "median", (long long)e->step,
               PROFILE_TIME(e->ms));
    base_text_add(page, "</p><div class=\"lane\">");
    bool thin = e->ms < LANE_LEAST * longest_ms;
    if (thin) base_text_add(page, "<i class=\"s3\" style=\"width:2px\"></i>");
    for (int i = 0; i < profile->n_stages; i++) {
        char path[256];
        double ms = profile->stages[i].example_ms[example];
        if (thin || ms < SHOWN_LEAST * longest_ms) continue;
        profile_stage_path(&profile->stages[i], path, sizeof path);
        base_text_add(page, "<i class=\"s%d\" style=\"width:%.3f%%\" title=\"", color_of(profile, i), 100.0 * ms / longest_ms);
        html_textf(page, "%.200s: %s", path, PROFILE_TIME(ms));
        base_text_add(page, "\"></i>");
    }
    base_text_add(page, "</div>\n");
}

// The stages that took longest beyond the median step, in words.
static void write_differences(base_text *page, const mlff_profile *profile)
{
    enum { TOLD = 3 };
    int told[TOLD], n = 0;
    double excess_ms = profile->examples[EXAMPLE_SLOW].ms - profile->examples[EXAMPLE_MEDIAN].ms;
    for (int i = 0; i < profile->n_stages; i++) {
        const double *ms = profile->stages[i].example_ms;
        double more = ms[EXAMPLE_SLOW] - ms[EXAMPLE_MEDIAN];
        int place = n;
        if (more < 0.05 * excess_ms || !(more > 0.0)) continue;
        while (place > 0) {
            const double *before = profile->stages[told[place - 1]].example_ms;
            if (before[EXAMPLE_SLOW] - before[EXAMPLE_MEDIAN] >= more) break;
            place--;
        }
        if (place == TOLD) continue;
        if (n < TOLD) n++;
        for (int k = n - 1; k > place; k--) told[k] = told[k - 1];
        told[place] = i;
    }
    if (n == 0) return;
    base_text_add(page, "<p>The slowest step takes longer in: ");
    for (int k = 0; k < n; k++) {
        char path[256];
        const profile_stage *row = &profile->stages[told[k]];
        profile_stage_path(row, path, sizeof path);
        html_textf(page, "%s%.200s +%s", k ? ", " : "", path,
                   PROFILE_TIME(row->example_ms[EXAMPLE_SLOW] - row->example_ms[EXAMPLE_MEDIAN]));
    }
    base_text_add(page, ".</p>\n");
}

void html_examples(base_text *page, const mlff_profile *profile)
{
    double longest_ms = profile->examples[EXAMPLE_SLOW].ms;
    if (profile->examples[EXAMPLE_MEDIAN].step < 0 || profile->examples[EXAMPLE_SLOW].step < 0 || !(longest_ms > 0.0)) return;
    base_text_add(page, "<div class=\"lanes\" role=\"img\" aria-label=\"stages of a median step and of the slowest one\">\n");
    for (int example = 0; example < N_EXAMPLES; example++) write_example(page, profile, example, longest_ms);
    base_text_add(page, "</div>\n");
    if (profile->examples[EXAMPLE_MEDIAN].ms < LANE_LEAST * longest_ms)
        base_text_add(page, "<p class=\"soft\">On this scale a median step is a thin line.</p>\n");
    write_differences(page, profile);
}
