// SPDX-License-Identifier: MIT
// compare_text.c: a comparison for people, as text, and for programs, as JSON.
#include <math.h>

#include "profile/analysis/comparison/compare.h"
#include "profile/report/json/json.h"

static const char *const change_names[] = {"unclear", "same", "faster", "slower"};

// Unclear as runs scatter, not as there are too few of them.
static bool comparison_noise_forbids(const mlff_comparison *c)
{
    bool noisy = c->paired ? c->detectable > 2.0 * c->floor : c->deviation > NOISY; // pairs may differ less than runs of a side
    return c->rows[0].change == MLFF_UNCLEAR && !c->rows[0].runs_needed && !c->by_blocks && noisy;
}

static void write_row(base_text *text, const mlff_comparison_row *row)
{
    char interval[64] = "–", needs[48] = "";
    if (isfinite(row->high)) base_format(interval, sizeof interval, "%.4f to %.4f", row->low, row->high);
    if (row->runs_needed && row->change == MLFF_UNCLEAR)
        snprintf(needs, sizeof needs, " (needs %d runs a side)", row->runs_needed);
    char p[16] = "<1e-6"; // smaller ones are those of a tail that no few runs know
    if (!(row->p < 1e-6)) base_format(p, sizeof p, "%.3g", row->p);
    base_text_add(text, "%-26.26s %s %s  %7.4f  %-18s %7s  %s%s\n", row->name, PROFILE_TIME_RIGHT(row->a_ms, 11),
                  PROFILE_TIME_RIGHT(row->b_ms, 11), row->ratio, interval, p, change_names[row->change], needs);
}

const char *profile_change_text(double ratio, char text[32])
{
    double percent = (ratio - 1.0) * 100.0;
    if (fabs(percent) < 0.005) percent = 0.0; // never "-0.00 %"
    if (ratio >= 3.0)
        base_format(text, 32, "×%.3g", ratio);
    else
        base_format(text, 32, "%+.*f %%", fabs(percent) < 10.0 ? 2 : fabs(percent) < 100.0 ? 1 : 0, percent);
    return text;
}

void mlff_comparison_row_text(const mlff_comparison_row *row, const char *name_a, const char *name_b, char *text,
                              size_t text_bytes)
{
    static const char *const answers[] = {"neither certainly faster nor slower than", "the SAME as", "FASTER than",
                                          "SLOWER than"};
    char interval[96] = "", needs[64] = "";
    if (isfinite(row->high) && row->low > 0.0)
        snprintf(interval, sizeof interval, ", between %s and %s at 95 %%", PROFILE_CHANGE(row->low), PROFILE_CHANGE(row->high));
    if (row->runs_needed && row->change == MLFF_UNCLEAR)
        snprintf(needs, sizeof needs, "; %d a side are needed to tell", row->runs_needed);
    snprintf(text, text_bytes, "%.100s is %s %.100s%s (%s%s%s)", name_b, answers[row->change], name_a,
             row->change == MLFF_UNCLEAR ? ": UNCLEAR" : "", PROFILE_CHANGE(row->ratio), interval, needs);
}

static void write_answer(base_text *text, const mlff_comparison *c)
{
    const mlff_comparison_row *step = &c->rows[0];
    char sentence[400];
    mlff_comparison_row_text(step, "A", "B", sentence, sizeof sentence);
    base_text_add(text, "\nmedian step: %s\n", sentence);
    for (int k = 0; k < c->n_metrics; k++) {
        mlff_comparison_row_text(&c->metrics[k], "A", "B", sentence, sizeof sentence);
        base_text_add(text, "%s step: %s\n", c->metrics[k].name, sentence);
    }
    if (c->ns_per_day_a > 0.0 && c->ns_per_day_b > 0.0)
        base_text_add(text, "ns/day: %s and %s, by the mean step\n", PROFILE_NUMBER(c->ns_per_day_a, 4),
                      PROFILE_NUMBER(c->ns_per_day_b, 4));
    if (step->runs_needed && c->by_blocks)
        base_text_add(text,
                      "%d and %d runs are too few to tell (%d a side are needed); blocks of steps stand in for them, and %s\n",
                      c->n_a, c->n_b, step->runs_needed,
                      c->floor_measured ? "the given noise floor stands for the differences between runs"
                                        : "no noise floor was measured: the answer stays unclear");
    else if (step->runs_needed)
        base_text_add(text, "%d and %d runs are too few to tell; measure %d a side: mlff profile --runs %d\n", c->n_a, c->n_b,
                      step->runs_needed, step->runs_needed);
    if (isfinite(c->detectable)) {
        char spread[96] = "";
        if (isfinite(c->deviation))
            base_format(spread, sizeof spread, " (standard deviation between runs of a side: %.2f %%)", c->deviation * 100.0);
        base_text_add(text, "smallest change that these %s find with 90 %% power: %.2f %%%s\n", c->by_blocks ? "blocks" : "runs",
                      fmax(c->detectable, c->floor) * 100.0, spread);
        if (comparison_noise_forbids(c))
            base_text_add(
                text,
                "the noise of this machine forbids an answer: runs of one side differ by %.1f %% (standard deviation), so "
                "that changes below %.1f %% are not seen. Use more runs, longer ones, or an idle machine\n",
                c->deviation * 100.0, fmax(c->detectable, c->floor) * 100.0);
    } else {
        base_text_add(text, "smallest change that these runs would find: none, however large\n");
    }
    base_text_add(text,
                  "ratios: Hodges and Lehmann's estimate; intervals and p: exact %s (stages: bootstrap of runs)\n"
                  "changes below the noise floor of %.2g %%%s are not called faster or slower; the same means within ±%.2g %%\n",
                  c->paired ? "signed-rank test of pairs of runs" : "rank-sum test of runs", c->floor * 100.0,
                  c->floor_measured ? "" : " (assumed)", c->margin * 100.0);
}

mlff_status mlff_comparison_text(const mlff_comparison *comparison, char **text_out)
{
    const mlff_comparison *c = comparison;
    base_text text = {0};
    if (!c || !text_out) return mlff_fail(MLFF_ERR_USAGE, "comparison as text: comparison or output is NULL");
    base_text_add(&text, "A: %.200s, %d run%s\nB: %.200s, %d run%s\n", c->name_a, c->n_a, base_plural(c->n_a), c->name_b, c->n_b,
                  base_plural(c->n_b));
    if (*c->difference) base_text_add(&text, "NOT COMPARABLE, compared because of --across: %s\n", c->difference);
    if (*c->changed) base_text_add(&text, "changed: %s\n", c->changed);
    if (c->n_partial) base_text_add(&text, "%d of the runs %s partial\n", c->n_partial, c->n_partial == 1 ? "is" : "are");
    base_text_add(&text, "\n%-26s %11s %11s  %7s  %-18s %7s  %s\n", "", "A", "B", "B/A", "95 % interval", "p", "");
    write_row(&text, &c->rows[0]);
    for (int i = 0; i < c->n_metrics; i++) write_row(&text, &c->metrics[i]);
    for (int i = 1; i < c->n_rows; i++) write_row(&text, &c->rows[i]);
    write_answer(&text, c);
    for (size_t i = 0; i < text.length; i++) // a hostile report's control characters must not reach the terminal
        if (((unsigned char)text.text[i] < 0x20 && text.text[i] != '\n') || text.text[i] == 0x7f) text.text[i] = '?';
    if (text.status == MLFF_OK)
        *text_out = text.text;
    else
        base_text_free(&text);
    return text.status;
}

static void json_row(json *j, const mlff_comparison_row *row)
{
    json_open(j, NULL, '{');
    json_string(j, "name", row->name);
    json_number(j, "a_ms", row->a_ms);
    json_number(j, "b_ms", row->b_ms);
    json_number(j, "ratio", row->ratio);
    json_number(j, "low", isfinite(row->high) ? row->low : NAN);
    json_number(j, "high", row->high);
    json_number(j, "p", row->p);
    json_string(j, "verdict", change_names[row->change]);
    json_integer(j, "runs_needed", row->runs_needed);
    json_close(j, '}');
}

mlff_status mlff_comparison_json(const mlff_comparison *comparison, char **text_out)
{
    const mlff_comparison *c = comparison;
    if (!c || !text_out) return mlff_fail(MLFF_ERR_USAGE, "comparison as JSON: comparison or output is NULL");
    json j = {.empty = true};
    json_open(&j, NULL, '{');
    json_string(&j, "verdict", change_names[mlff_comparison_verdict(c)]);
    json_string(&j, "a", c->name_a);
    json_string(&j, "b", c->name_b);
    json_integer(&j, "n_runs_a", c->n_a);
    json_integer(&j, "n_runs_b", c->n_b);
    json_boolean(&j, "by_blocks", c->by_blocks);
    json_number(&j, "noise_floor", c->floor);
    json_boolean(&j, "noise_floor_measured", c->floor_measured);
    json_number(&j, "margin", c->margin);
    json_number(&j, "run_to_run_deviation", c->deviation);
    json_number(&j, "minimum_detectable_change", c->detectable);
    json_boolean(&j, "noise_forbids", comparison_noise_forbids(c));
    json_string(&j, "not_comparable", c->difference);
    json_string(&j, "changed", c->changed);
    json_open(&j, "rows", '[');
    for (int i = 0; i < c->n_rows; i++) json_row(&j, &c->rows[i]);
    json_close(&j, ']');
    json_open(&j, "metrics", '[');
    for (int i = 0; i < c->n_metrics; i++) json_row(&j, &c->metrics[i]);
    json_close(&j, ']');
    json_number(&j, "ns_per_day_a", c->ns_per_day_a);
    json_number(&j, "ns_per_day_b", c->ns_per_day_b);
    json_close(&j, '}');
    return json_take(&j, text_out);
}
