// SPDX-License-Identifier: MIT
// html_verdict.c: what a page begins with: the verdict and the reasons, one stacked bar of a step, and of a comparison the answer
// with an interval for each of its rows.
#include <math.h>
#include <string.h>

#include "html.h"
#include "profile/analysis/comparison/compare.h"

// ---- one run -------------------------------------------------------------------------------------

static void write_answer(base_text *page, const mlff_profile *profile)
{
    char text[512], missed[384] = "";
    int n_met = 0, n_judged = 0, n_leaks = mlff_profile_leaks(profile);
    size_t length = 0;
    for (int i = 0; i < profile->n_verdicts; i++) {
        const mlff_profile_verdict *v = &profile->verdicts[i];
        n_judged += v->passed >= 0;
        n_met += v->passed > 0;
        if (v->passed == 0 && length < sizeof missed)
            length +=
                (size_t)snprintf(missed + length, sizeof missed - length, "%s%.60s", length ? ", " : "; missed: ", v->target);
    }
    snprintf(text, sizeof text, "%s%d of %d targets met%s", n_leaks ? "Memory leak. " : "", n_met, n_judged, missed);
    html_element(page, "p", n_met == n_judged && !n_leaks ? "class=\"verdict good\"" : "class=\"verdict bad\"", text);
}

static void write_stack(base_text *page, const mlff_profile *profile)
{
    profile_part parts[PROFILE_PARTS];
    int n = profile_parts(profile, parts);
    if (n == 0 || (n == 1 && strcmp(parts[0].name, "unattributed") == 0)) return;
    base_text_add(page, "<div class=\"stack\" role=\"img\" aria-label=\"parts of a median step\">");
    for (int k = 0; k < n; k++)
        base_text_add(page, "<div class=\"s%d\" style=\"width:%.2f%%\"></div>", html_part_color(parts[k].name),
                      100.0 * parts[k].share);
    base_text_add(page, "</div>\n<ul class=\"legend\">");
    for (int k = 0; k < n; k++) {
        base_text_add(page, "<li><i class=\"s%d\"></i>", html_part_color(parts[k].name));
        html_textf(page, "%.60s %.1f %% (%s)", parts[k].name, 100.0 * parts[k].share, PROFILE_TIME(parts[k].ms));
        base_text_add(page, "</li>");
    }
    base_text_add(page, "</ul>\n");
}

void html_verdict(base_text *page, const mlff_profile *profile)
{
    why_line lines[WHY_LINES];
    int n = why(profile, lines);
    write_answer(page, profile);
    if (n > 0) base_text_add(page, "<ol>\n");
    for (int i = 0; i < n; i++) html_element(page, "li", "", lines[i].text);
    if (n > 0) base_text_add(page, "</ol>\n");
    write_stack(page, profile);
}

// ---- a comparison --------------------------------------------------------------------------------

// Half the width of the plot, as a change: the widest interval, between 2 and 50 %.
static double reach_of(const mlff_comparison_row *rows, int n, double reach)
{
    for (int i = 0; i < n; i++)
        if (isfinite(rows[i].high) && rows[i].low > 0.0)
            reach = fmax(reach, fmax(fabs(rows[i].low - 1.0), fabs(rows[i].high - 1.0)));
    return fmin(reach, 0.5);
}

static double place(double ratio, double reach)
{
    return 50.0 + 50.0 * fmin(fmax((ratio - 1.0) / reach, -1.0), 1.0);
}

static void write_interval(base_text *page, const char *name, const mlff_comparison_row *row, double reach)
{
    static const char *const colors[] = {"open", "same", "good", "bad"}, *const words[] = {"unclear", "same", "faster", "slower"};
    base_text_add(page, "<tr><td>");
    html_text(page, name);
    base_text_add(page, "</td><td>%s</td><td>%s</td><td>%s</td><td class=\"plot\">", PROFILE_TIME(row->a_ms),
                  PROFILE_TIME(row->b_ms), PROFILE_CHANGE(row->ratio));
    if (isfinite(row->high) && row->low > 0.0) {
        double low = place(row->low, reach), high = place(row->high, reach);
        base_text_add(
            page,
            "<div class=\"track\"><i class=\"zero\"></i><i class=\"range %s\" style=\"left:%.2f%%;width:%.2f%%\"></i><i "
            "class=\"dot %s\" style=\"left:%.2f%%\"></i></div>",
            colors[row->change], low, fmax(high - low, 0.4), colors[row->change], place(row->ratio, reach));
    }
    base_text_add(page, "</td><td class=\"text\">%s</td></tr>\n", words[row->change]);
}

void html_comparison(base_text *page, const mlff_profile *const *profiles, int n, int n_first)
{
    mlff_comparison *comparison = NULL;
    char *text = NULL, sentence[512], of_mean[512], name_a[64], name_b[64];
    base_text_add(page, "<h2>Comparison</h2>\n");
    if (mlff_profile_compare(profiles, n_first, profiles + n_first, n - n_first, NULL, &comparison) != MLFF_OK ||
        mlff_comparison_text(comparison, &text) != MLFF_OK) {
        html_element(page, "p", "class=\"warn\"", mlff_last_error());
        mlff_comparison_destroy(comparison);
        return;
    }
    int n_rows, n_metrics;
    const mlff_comparison_row *rows = mlff_comparison_rows(comparison, &n_rows);
    const mlff_comparison_row *metrics = mlff_comparison_metrics(comparison, &n_metrics);
    double reach = reach_of(metrics, n_metrics, reach_of(rows, 1, 0.02));
    mlff_change change = mlff_comparison_verdict(comparison);
    snprintf(name_a, sizeof name_a, "A (%.50s)", profiles[0]->name);
    snprintf(name_b, sizeof name_b, "B (%.50s)", profiles[n_first]->name);
    mlff_comparison_row_text(&rows[0], name_a, name_b, sentence, sizeof sentence);
    base_text_add(page, "<p class=\"verdict%s\">", change == MLFF_SLOWER ? " bad" : change == MLFF_UNCLEAR ? "" : " good");
    if (change != rows[0].change) { // then it is that of the mean, or the two are opposite
        mlff_comparison_row_text(&metrics[0], name_a, name_b, of_mean, sizeof of_mean);
        html_textf(page, "mean step: %s; median step: %s", of_mean, sentence);
    } else {
        html_text(page, sentence);
    }
    base_text_add(page, "</p>\n");
    base_text_add(page, "<p><b class=\"in-a\">A</b> ");
    html_textf(page, "%.200s, %d run%s", profiles[0]->name, n_first, base_plural(n_first));
    base_text_add(page, " against <b class=\"in-b\">B</b> ");
    html_textf(page, "%.200s, %d run%s", profiles[n_first]->name, n - n_first, base_plural(n - n_first));
    if (*comparison->changed) html_textf(page, "; changed: %.400s", comparison->changed);
    base_text_add(page,
                  "</p>\n<div class=\"scroll\"><table><thead><tr><th></th><th>A</th><th>B</th><th>change</th><th>95 %% interval, "
                  "±%.0f %%%s</th><th class=\"text\">B is</th></tr></thead><tbody>\n",
                  100.0 * reach, reach < 0.5 ? "" : ", beyond at the edge");
    write_interval(page, "median step", &rows[0], reach);
    for (int k = 0; k < n_metrics; k++) write_interval(page, metrics[k].name, &metrics[k], reach);
    base_text_add(
        page, "</tbody></table></div>\n<div class=\"chart\"><canvas id=\"compared\" role=\"img\" aria-label=\"step times of A "
              "and of B\"></canvas></div>\n<details><summary>All rows</summary><div class=\"scroll\"><pre>");
    html_text(page, text);
    base_text_add(page, "</pre></div></details>\n");
    mlff_text_free(text);
    mlff_comparison_destroy(comparison);
}
