// SPDX-License-Identifier: MIT
// html.c: the report for browsers: one file that works offline. All numbers are in tables; charts are drawn from html_data.c's
// JSON by the embedded script. Whatever a report file says is text here: it is escaped on its way into the page.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "html.h"
#include "page.h"
#include "profile/ranks/rank_report.h"
#include "profile/sensors/energy.h"
#include "profile/sensors/gpu_kernels.h"

void html_text(base_text *page, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int length = base_utf8_length((const char *)at);
        if (strchr("&<>\"'", *at))
            base_text_add(page, "&#%d;", *at);
        else if (length == 0 || *at == 0x7f || (*at < 0x20 && *at != '\n' && *at != '\t'))
            base_text_add(page, "\xEF\xBF\xBD");
        else if (*at == ' ' && at > (const unsigned char *)text && at[-1] >= '0' && at[-1] <= '9' &&
                 profile_unit_bytes((const char *)at + 1) > 0)
            base_text_add(page, "&nbsp;");
        else
            base_text_add(page, "%.*s", length, (const char *)at);
        at += length > 0 ? length : 1;
    }
}

void html_textf(base_text *page, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    html_text(page, text);
}

void html_element(base_text *page, const char *tag, const char *attributes, const char *text)
{
    base_text_add(page, "<%s%s%s>", tag, *attributes ? " " : "", attributes);
    html_text(page, text);
    base_text_add(page, "</%s>", tag);
}

static void cell(base_text *page, const char *format, ...) MLFF_PRINTF(2, 3);
static void cell(base_text *page, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    html_element(page, "td", "", text);
}

static void heads(base_text *page, const char *const *names, int n)
{
    base_text_add(page, "<div class=\"scroll\"><table><thead><tr>");
    for (int i = 0; i < n; i++) { // a name that begins with a blank heads a column of text
        bool text = names[i][0] == ' ';
        html_element(page, "th", text ? "class=\"text\"" : "", names[i] + text);
    }
    base_text_add(page, "</tr></thead><tbody>\n");
}
#define HEADS(page, ...)                                                                                                         \
    heads(page, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void table_end(base_text *page)
{
    base_text_add(page, "</tbody></table></div>\n");
}

static void chart(base_text *page, const char *kind, int run, const char *says)
{
    char number[16] = "";
    if (run >= 0) snprintf(number, sizeof number, "-%d", run);
    base_text_add(page, "<div class=\"chart\"><canvas id=\"%s%s\" role=\"img\" aria-label=\"%s\"></canvas></div>\n", kind, number,
                  says);
}

static void card(base_text *page, const char *label, const char *format, ...) MLFF_PRINTF(3, 4);
static void card(base_text *page, const char *label, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    base_text_add(page, "<div class=\"card\">");
    html_text(page, label);
    html_element(page, "b", "", text);
    base_text_add(page, "</div>\n");
}

// A percentile, NaN where there are too few steps for one.
static double known(const mlff_profile *profile, double fraction, double ms)
{
    return steadiness_percentile_known(profile, fraction) ? ms : NAN;
}

// ---- one run -------------------------------------------------------------------------------------

static void write_head(base_text *page, const mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    if (profile_untrained(profile))
        html_element(page, "p", "class=\"warn\"", "UNTRAINED weights: the times are real, energies and forces mean nothing.");
    if (s->partial) html_element(page, "p", "class=\"warn\"", "PARTIAL: the run ended before its last step.");
    base_text_add(page, "<p class=\"soft\">");
    html_textf(page, "%s on %s, %s, %s; %lld step%s after %lld of warm-up", profile->model_name, profile->device,
               profile->system_size, profile->timestamp, (long long)s->n_steps, base_plural(s->n_steps), (long long)s->n_warmup);
    base_text_add(page, "</p>\n");
    html_verdict(page, profile);
    base_text_add(page, "<div class=\"cards\">\n");
    card(page, "median step", "%s", PROFILE_TIME(s->latency_ms.median));
    card(page, "mean step", "%s", PROFILE_TIME(s->latency_ms.mean));
    card(page, "P95", "%s", PROFILE_TIME(known(profile, 0.95, s->latency_ms.p95)));
    card(page, "P99", "%s", PROFILE_TIME(known(profile, 0.99, s->latency_ms.p99)));
    card(page, "steps/s", "%.*f", s->steps_per_second < 100.0 ? 2 : 0, s->steps_per_second);
    card(page, isfinite(profile->timestep_fs) ? "ns/day" : "ns/day at 1 fs", "%s", PROFILE_NUMBER(s->ns_per_day, 4));
    if (profile->energy && isfinite(profile->energy->joules_per_step))
        card(page, "energy a step", "%.4g mJ", profile->energy->joules_per_step * 1e3);
    card(page, "per atom", "%s µs", PROFILE_NUMBER(s->us_per_atom, 4));
    card(page, "memory", "%s", PROFILE_GROWTH(s));
    base_text_add(page, "</div>\n");
    if (*profile->notes) {
        base_text_add(page, "<p>Notes: ");
        html_text(page, profile->notes);
        base_text_add(page, "</p>\n");
    }
}

static void write_latency(base_text *page, const mlff_profile *profile, int run)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    base_text_add(page, "<h3>Time of a step</h3>\n");
    chart(page, "latency", run, "latency over steps");
    chart(page, "histogram", run, "histogram of step times with percentiles");
    HEADS(page, "mean", "median", "std", "min", "max", "P95", "P99", "CV", "outliers");
    base_text_add(page, "<tr>");
    const double values[] = {
        t->mean, t->median, t->n > 1 ? t->std : NAN, t->min, t->max, known(profile, 0.95, t->p95), known(profile, 0.99, t->p99)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) cell(page, "%s", PROFILE_TIME(values[i]));
    if (t->n > 1)
        cell(page, "%.1f %%", t->cv * 100.0);
    else
        cell(page, "–");
    cell(page, "%lld", (long long)t->n_outliers);
    base_text_add(page, "</tr>\n");
    table_end(page);
    char sentence[512];
    base_text_add(page, "<p>");
    for (int i = 0; i < N_BOUNDS; i++) {
        steadiness_bound_text(profile, i, sentence, sizeof sentence);
        html_text(page, sentence);
        base_text_add(page, i + 1 < N_BOUNDS ? "; " : ".</p>\n");
    }
    steadiness_text(profile, sentence, sizeof sentence);
    html_element(page, "p", "", sentence);
    if (profile->latency_every > 1)
        html_element(page, "p", "class=\"soft\"", "Percentiles come from a histogram of 0.4 % steps; the curve is thinned.");
}

static void write_stages(base_text *page, const mlff_profile *profile)
{
    double sum_ms = 0.0;
    base_text_add(page, "<h3>Where the time goes</h3>\n");
    html_icicle(page, profile);
    html_examples(page, profile);
    HEADS(page, profile->stages_measured ? "stage" : "part", "mean", "median", "P95", "share", "");
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        char path[256];
        profile_stage_path(row, path, sizeof path);
        sum_ms += row->shown.mean_ms;
        base_text_add(page, "<tr>");
        cell(page, "%s%s%s%s", path, *row->includes ? " (with " : "", row->includes, *row->includes ? ")" : "");
        cell(page, "%s", PROFILE_TIME(row->shown.mean_ms));
        cell(page, "%s", PROFILE_TIME(row->shown.median_ms));
        cell(page, "%s", PROFILE_TIME(known(profile, 0.95, row->shown.p95_ms)));
        cell(page, "%.1f %%", row->shown.share * 100.0);
        base_text_add(page, "<td class=\"bar\"><div style=\"width:%d%%\"></div></td></tr>\n",
                      (int)lround(fmin(fmax(row->shown.share, 0.0), 1.0) * 100.0));
    }
    base_text_add(page, "<tr>");
    html_element(page, "td", "", "step");
    cell(page, "%s", PROFILE_TIME(sum_ms));
    base_text_add(page, "<td></td><td></td><td></td><td class=\"bar\"></td></tr>\n");
    table_end(page);
}

static void write_budget(base_text *page, const mlff_profile *profile)
{
    step_budget b = budget_of(profile);
    char sentence[512];
    if (isnan(b.ms[BUDGET_BUSY])) return;
    base_text_add(page, "<h3>Step budget</h3>\n");
    HEADS(page, "", "time", "share", "");
    for (int k = 0; k < N_BUDGET; k++) {
        if (isnan(b.ms[k])) continue;
        base_text_add(page, "<tr>");
        cell(page, "%s%s", budget_names[k], k == BUDGET_BUSY && !b.traced ? ", with gaps" : "");
        cell(page, "%s", PROFILE_TIME(b.ms[k]));
        cell(page, "%.1f %%", 100.0 * b.ms[k] / b.step_ms);
        base_text_add(page, "<td class=\"bar\"><div style=\"width:%d%%\"></div></td></tr>\n",
                      (int)lround(fmin(fmax(b.ms[k] / b.step_ms, 0.0), 1.0) * 100.0));
    }
    base_text_add(page, "<tr>");
    cell(page, "%s", b.traced ? "step (traced)" : "step");
    cell(page, "%s", PROFILE_TIME(b.step_ms));
    base_text_add(page, "<td></td><td class=\"bar\"></td></tr>\n");
    if (b.usual_ms > 0.0) {
        base_text_add(page, "<tr>");
        cell(page, "step (not traced)");
        cell(page, "%s", PROFILE_TIME(b.usual_ms));
        base_text_add(page, "<td></td><td class=\"bar\"></td></tr>\n");
    }
    table_end(page);
    if (!tail_gpu_shared(profile, sentence, sizeof sentence)) budget_text(&b, sentence, sizeof sentence);
    if (*sentence) html_element(page, "p", "", sentence);
}

enum { KERNELS_ON_PAGE = 100 };

static void write_kernels(base_text *page, const mlff_profile *profile)
{
    const kernel_report *kernels = profile->kernels;
    char sentence[1024];
    if (!kernels || kernels->n_steps == 0) return;
    base_text_add(page, "<h3>On the GPU</h3>\n");
    HEADS(page, " kernel", "calls a step", "µs a step", "share", " stage or kind", "");
    for (int i = 0; i < kernels->n_rows && i < KERNELS_ON_PAGE; i++) {
        const kernel_row *row = &kernels->rows[i];
        double share = kernels->busy_ms > 0.0 ? row->busy_us * 1e-3 / kernels->busy_ms : 0.0;
        base_text_add(page, "<tr>");
        html_element(page, "td", "class=\"text\"", row->name);
        cell(page, "%.1f", row->calls);
        cell(page, "%.2f", row->busy_us);
        cell(page, "%.1f %%", share * 100.0);
        html_element(page, "td", "class=\"text\"", row->stage);
        base_text_add(page, "<td class=\"bar\"><div style=\"width:%d%%\"></div></td></tr>\n",
                      (int)lround(fmin(fmax(share, 0.0), 1.0) * 100.0));
    }
    table_end(page);
    HEADS(page, " stage or kind", "kernels", "until the next begins", "its own clock");
    for (int i = 0; i < kernels->n_stages; i++) {
        const kernel_stage *stage = &kernels->stages[i];
        base_text_add(page, "<tr>");
        html_element(page, "td", "class=\"text\"", stage->name);
        cell(page, "%s", PROFILE_TIME(stage->busy_us * 1e-3));
        cell(page, "%s", PROFILE_TIME(stage->until_next_us * 1e-3));
        cell(page, "%s", PROFILE_TIME(stage->clock_us * 1e-3));
        base_text_add(page, "</tr>\n");
    }
    table_end(page);
    if (kernels->n_rows > KERNELS_ON_PAGE) {
        snprintf(sentence, sizeof sentence, "%d more kernel%s in the JSON.", kernels->n_rows - KERNELS_ON_PAGE,
                 kernels->n_rows == KERNELS_ON_PAGE + 1 ? " is" : "s are");
        html_element(page, "p", "class=\"soft\"", sentence);
    }
    kernels_clock_text(kernels, sentence, sizeof sentence);
    if (*sentence) html_element(page, "p", "", sentence);
    kernels_cost_text(kernels, sentence, sizeof sentence);
    html_element(page, "p", "class=\"soft\"", sentence);
}

static void write_memory(base_text *page, const mlff_profile *profile, int run)
{
    if (profile->n_ledgers == 0 && profile->n_memory == 0) return;
    base_text_add(page, "<h3>Memory</h3>\n");
    chart(page, "memory", run, "memory along the run");
    HEADS(page, "counter", "start", "end", "most", "change", " verdict");
    for (int k = 0; k < profile->n_ledgers; k++) {
        const profile_ledger *ledger = &profile->ledgers[k];
        base_text_add(page, "<tr>");
        cell(page, "%s", ledger->name);
        cell(page, "%.2f MB", (double)ledger->initial_bytes / 1048576.0);
        cell(page, "%.2f MB", (double)ledger->final_bytes / 1048576.0);
        cell(page, "%.2f MB", (double)ledger->peak_bytes / 1048576.0);
        cell(page, "%s", PROFILE_CHANGE_MB((double)(ledger->final_bytes - ledger->initial_bytes)));
        char verdict[256];
        leaks_text(profile, ledger, verdict, sizeof verdict);
        html_element(page, "td", ledger->leak.kind == LEAK_GROWING ? "class=\"text no\"" : "class=\"text\"", verdict);
        base_text_add(page, "</tr>\n");
    }
    table_end(page);
}

static void write_findings(base_text *page, const mlff_profile *profile)
{
    base_text_add(page, "<h3>What was seen, and what to do</h3>\n<ol>\n");
    for (int i = 0; i < profile->n_recommendations; i++) html_element(page, "li", "", profile->recommendations[i]);
    if (profile->n_recommendations == 0) html_element(page, "li", "", "Nothing stands out.");
    base_text_add(page, "</ol>\n<h3>Targets</h3>\n<ul class=\"plain\">\n");
    for (int i = 0; i < profile->n_verdicts; i++) {
        const mlff_profile_verdict *v = &profile->verdicts[i];
        base_text_add(page, "<li><span class=\"%s\">%s</span> ",
                      v->passed > 0 ? "yes"
                      : v->passed   ? "soft"
                                    : "no",
                      v->passed > 0 ? "✓"
                      : v->passed   ? "–"
                                    : "✗");
        html_textf(page, "%s: %s", v->target, v->text);
        base_text_add(page, "</li>\n");
    }
    base_text_add(page, "</ul>\n");
}

static void write_tail(base_text *page, const profile_tail *tail)
{
    int order[N_CAUSES], n = tail_order(tail, false, order);
    double excess = tail_excess_ms(tail);
    HEADS(page, " cause", "steps", "each", "every", "of the excess", "");
    for (int i = 0; i < n; i++) {
        int k = order[i];
        double share = excess > 0.0 ? tail->excess_ms[k] / excess : 0.0;
        base_text_add(page, "<tr>");
        html_element(page, "td", "class=\"text\"", tail_cause_words(k));
        cell(page, "%lld", (long long)tail->n_by_cause[k]);
        cell(page, "%s", PROFILE_TIME(tail->each_ms[k]));
        if (tail->period[k] > 0)
            cell(page, "%lld step%s", (long long)tail->period[k], base_plural(tail->period[k]));
        else
            cell(page, "–");
        cell(page, "%.0f %%", share * 100.0);
        base_text_add(page, "<td class=\"bar\"><div style=\"width:%d%%\"></div></td></tr>\n",
                      (int)lround(fmin(fmax(share, 0.0), 1.0) * 100.0));
    }
    table_end(page);
}

static void write_slowest(base_text *page, const mlff_profile *profile)
{
    char sentence[512];
    int n = profile->n_slowest < 8 ? profile->n_slowest : 8;
    if (n == 0) return;
    base_text_add(page, "<h3>Slowest steps</h3>\n");
    tail_text(profile, sentence, sizeof sentence);
    if (*sentence) html_element(page, "p", "", sentence);
    if (*sentence) write_tail(page, &profile->tail);
    HEADS(page, "step", "time", " cause", " seen in it");
    for (int i = 0; i < n; i++) {
        const series_slow *slow = &profile->slowest[i];
        if (!(slow->value > profile->summary.latency_ms.median)) break; // slowest first: the others are not slow
        base_text_add(page, "<tr>");
        cell(page, "%lld", (long long)slow->step);
        cell(page, "%s", PROFILE_TIME(slow->value));
        html_element(page, "td", "class=\"text\"", tail_cause_words(profile->slowest_cause[i]));
        base_text_add(page, "<td class=\"text\">");
        bool first = true;
        for (int k = 0; k < N_TAGS; k++) {
            if (!(slow->tags >> k & 1)) continue;
            base_text_add(page, "%s%s", first ? "" : ", ", profile_tag_names[k]);
            first = false;
        }
        base_text_add(page, "%s</td></tr>\n", first ? "nothing" : "");
    }
    table_end(page);
}

static void write_environment(base_text *page, const mlff_profile *profile)
{
    base_text_add(page, "<h3>Measured on</h3>\n");
    HEADS(page, "", "");
    for (int i = 0; i < profile->environment.n; i++) {
        base_text_add(page, "<tr>");
        cell(page, "%s", profile->environment.keys[i]);
        html_element(page, "td", "class=\"text\"", profile->environment.values[i]);
        base_text_add(page, "</tr>\n");
    }
    if (profile->energy) {
        char sentence[512];
        energy_text(profile->energy, sentence, sizeof sentence);
        base_text_add(page, "<tr><td>energy</td>");
        html_element(page, "td", "class=\"text\"", sentence);
        energy_clock_text(profile->energy, sentence, sizeof sentence);
        base_text_add(page, "</tr>\n");
        if (*sentence) {
            base_text_add(page, "<tr><td>GPU</td>");
            html_element(page, "td", "class=\"text\"", sentence);
            base_text_add(page, "</tr>\n");
        }
    }
    if (isfinite(profile->quantum_ns)) {
        char overhead[320];
        overhead_text(profile, overhead, sizeof overhead);
        base_text_add(page, "<tr><td>overhead</td><td class=\"text\">%s</td></tr>\n", *overhead ? overhead : "not measured");
        base_text_add(page, "<tr><td>clock</td><td class=\"text\">steps of %.3g ns, a reading costs %.3g ns</td></tr>\n",
                      profile->quantum_ns, profile->read_ns);
    }
    table_end(page);
}

static void write_run(base_text *page, const html_contents *contents, int run)
{
    const mlff_profile *profile = contents->profiles[run];
    int n_runs = contents->n_profiles;
    char name[HTML_NAME];
    base_text_add(page, "<details%s><summary>", run == 0 || n_runs <= 3 ? " open" : "");
    html_textf(page, "%s%s", n_runs > 1 ? "Run: " : "", html_run_name(contents, run, name));
    base_text_add(page, "</summary>\n");
    write_head(page, profile);
    write_latency(page, profile, run);
    write_stages(page, profile);
    write_budget(page, profile);
    write_kernels(page, profile);
    write_slowest(page, profile);
    write_memory(page, profile, run);
    write_findings(page, profile);
    write_environment(page, profile);
    base_text_add(page, "</details>\n");
}

// ---- the page ------------------------------------------------------------------------------------

const char *html_run_name(const html_contents *contents, int run, char text[HTML_NAME])
{
    int first = contents->n_first;
    const char *name = contents->profiles[run]->name;
    if (first > 0)
        snprintf(text, HTML_NAME, "%c%d %.200s", run < first ? 'A' : 'B', 1 + run - (run < first ? 0 : first), name);
    else
        snprintf(text, HTML_NAME, "%.200s", name);
    return text;
}

static void write_overview(base_text *page, const html_contents *contents)
{
    const mlff_profile *const *profiles = contents->profiles;
    int n = contents->n_profiles;
    char name[HTML_NAME];
    base_text_add(page, "<h2>The runs side by side</h2>\n");
    chart(page, "overview", -1, "median and P95 of each run");
    HEADS(page, "run", "median", "P95", "P99", "ns/day", "memory", "steps", "atoms", "device",
          "model"); // a narrow screen cuts the last
    for (int i = 0; i < n; i++) {
        const mlff_profile_summary *s = &profiles[i]->summary;
        base_text_add(page, "<tr>");
        cell(page, "%s", html_run_name(contents, i, name));
        cell(page, "%s", PROFILE_TIME(s->latency_ms.median));
        cell(page, "%s", PROFILE_TIME(known(profiles[i], 0.95, s->latency_ms.p95)));
        cell(page, "%s", PROFILE_TIME(known(profiles[i], 0.99, s->latency_ms.p99)));
        cell(page, "%s", PROFILE_NUMBER(s->ns_per_day, 4));
        cell(page, "%s", PROFILE_GROWTH(s));
        cell(page, "%lld", (long long)s->n_steps);
        cell(page, "%d", s->n_atoms);
        cell(page, "%.60s", profiles[i]->device);
        cell(page, "%.200s", profiles[i]->model_name);
        base_text_add(page, "</tr>\n");
    }
    table_end(page);
}

static void write_scaling(base_text *page, const mlff_profile *const *profiles, int n)
{
    mlff_scaling s;
    char *text = NULL;
    if (mlff_profile_scaling(profiles, n, &s) != MLFF_OK || s.n_sizes < 3 || mlff_scaling_text(&s, &text) != MLFF_OK) return;
    base_text_add(page, "<h2>Scaling</h2>\n");
    chart(page, "scaling", -1, "step against number of atoms, with the fit");
    base_text_add(page, "<p style=\"white-space:pre-line\">");
    html_text(page, text);
    base_text_add(page, "</p>\n");
    mlff_text_free(text);
}

static void write_foot(base_text *page, const html_contents *contents)
{
    base_text_add(page, "<footer class=\"soft\"><p>Written by mlff %s.", mlff_version());
    if (!*page_chart_library)
        html_text(page,
                  " Without charts: this build had no Chart.js (Debian package libjs-chart.js); every number is in the tables.");
    base_text_add(page, "</p>\n<noscript><p>Charts need JavaScript; every number is in the tables.</p></noscript>\n");
    if (*page_chart_library) {
        base_text_add(page, "<details><summary>Charts: Chart.js, MIT license</summary><pre>");
        html_text(page, page_chart_license);
        base_text_add(page, "</pre></details>\n");
    }
    base_text_add(page, "</footer>\n<script type=\"application/json\" id=\"data\">");
    html_data(page, contents);
    base_text_add(page, "</script>\n<script>%s</script>\n<script>%s</script>\n</body></html>\n", page_chart_library, page_script);
}

mlff_status mlff_profile_html(const mlff_profile *const *profiles, int n_profiles, const char *title, char **text_out)
{
    return mlff_profile_html_compared(profiles, n_profiles, 0, title, text_out);
}

mlff_status mlff_profile_html_compared(const mlff_profile *const *profiles, int n_profiles, int n_first, const char *title,
                                       char **text_out)
{
    if (!profiles || n_profiles < 1 || n_first < 0 || n_first >= n_profiles + (n_first == 0) || !text_out)
        return mlff_fail(MLFF_ERR_USAGE, "profile as a page: profiles or output is NULL, or there are none");
    return html_page(
        &(html_contents){
            .profiles = profiles, .n_profiles = n_profiles, .n_first = n_first, .title = title ? title : profiles[0]->name},
        text_out);
}

mlff_status html_page(const html_contents *contents, char **text_out)
{
    const mlff_profile *const *profiles = contents->profiles;
    int n_profiles = contents->n_profiles;
    base_text page = {0};
    rank_report ranks;
    mlff_status status = ranks_report(profiles, n_profiles, &ranks);
    if (status != MLFF_OK) return status;
    base_text_add(&page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
                         "script-src 'unsafe-inline'; img-src data:\">\n<title>");
    html_text(&page, contents->title);
    base_text_add(&page, "</title>\n<style>%s</style></head>\n<body>\n<h1>", page_style);
    html_text(&page, contents->title);
    base_text_add(&page, "</h1>\n");
    if (contents->implementations) html_implementations(&page, contents->implementations);
    if (contents->n_first > 0) html_comparison(&page, profiles, n_profiles, contents->n_first);
    html_ranks(&page, &ranks);
    if (n_profiles > 1) write_overview(&page, contents);
    if (n_profiles > 0 && ranks.n == 0) write_scaling(&page, profiles, n_profiles);
    rank_report_free(&ranks);
    for (int i = 0; i < n_profiles; i++) write_run(&page, contents, i);
    write_foot(&page, contents);
    if (page.status != MLFF_OK) {
        status = page.status;
        base_text_free(&page);
        return status == MLFF_ERR_MEMORY ? mlff_fail(status, "out of memory: the page of %d profiles", n_profiles) : status;
    }
    *text_out = page.text;
    return MLFF_OK;
}
