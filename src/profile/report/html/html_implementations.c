// SPDX-License-Identifier: MIT
// html_implementations.c: the part of a page that sets implementations side by side: speed, energies along the frames, forces.
#include <math.h>

#include "html.h"
#include "profile/run/implementations.h"

static void cell(base_text *page, const char *attributes, const char *text)
{
    base_text_add(page, "<td%s>", attributes);
    html_text(page, text);
    base_text_add(page, "</td>");
}

static void write_row(base_text *page, const mlff_implementations *implementations, int k)
{
    const mlff_implementation *row = &implementations->shown[k];
    char text[160];
    base_text_add(page, "<tr>");
    cell(page, "", row->name);
    cell(page, "", row->device);
    cell(page, "", PROFILE_TIME(row->median_ms));
    base_format(text, sizeof text, "%.3f×", row->ratio);
    cell(page, "", text);
    base_format(text, sizeof text, isfinite(row->low + row->high) ? "%.3f to %.3f" : "–", row->low, row->high);
    cell(page, "", text);
    base_format(text, sizeof text, k ? "%.3g meV/atom" : "–", row->energy_rms * 1e3);
    cell(page, "", text);
    base_format(text, sizeof text, k ? "%.5g eV/atom" : "–", row->energy_shift);
    cell(page, "", text);
    base_format(text, sizeof text, k ? "%.3g meV/Å (%.2g %%)" : "–", row->force_rms * 1e3,
                100.0 * row->force_rms / implementations->force_scale);
    cell(page, "", text);
    if (isfinite(row->force_error) || isfinite(row->energy_error)) {
        base_format(text, sizeof text, "%.4g meV/atom, %.4g meV/Å", row->energy_error * 1e3, row->force_error * 1e3);
        cell(page, "", text);
    }
    snprintf(text, sizeof text, k ? "%s; %s" : "the first", implementations_change_name(row), implementations_judgement(row));
    cell(page, row->agrees ? " class=\"text\"" : " class=\"text no\"", text);
    base_text_add(page, "</tr>\n");
}

void html_implementations(base_text *page, const mlff_implementations *implementations)
{
    bool labels = isfinite(implementations->shown[0].force_error) || isfinite(implementations->shown[0].energy_error),
         other = false;
    for (int k = 0; k < implementations->n; k++) {
        const mlff_implementation *row = &implementations->shown[k];
        other = other || row->agrees < 0;
        if (!*row->notes) continue;
        base_text_add(page, "<p class=\"warn\">");
        html_textf(page, "%s: %s", row->name, row->notes);
        base_text_add(page, "</p>\n");
    }
    base_text_add(
        page,
        "<h2>On the same frames, interleaved</h2>\n"
        "<div class=\"chart\"><canvas id=\"implementations-speed\" role=\"img\" aria-label=\"median step of each\">"
        "</canvas></div>\n<div class=\"scroll\"><table><thead><tr><th></th><th>device</th><th>median</th><th>× first</th>"
        "<th>95 %% interval</th><th>ΔE, RMS</th><th>mean ΔE</th><th>ΔF, RMS</th>%s<th class=\"text\"></th></tr>"
        "</thead><tbody>\n",
        labels ? "<th>MAE to labels</th>" : "");
    for (int k = 0; k < implementations->n; k++) write_row(page, implementations, k);
    base_text_add(page, "</tbody></table></div>\n<p class=\"soft\">");
    html_textf(page,
               "%d rounds of %d frame%s; ratios are taken within a round, intervals are of this process. ΔE is what differs "
               "from the first beyond the mean difference, ΔF of force components, in %% of the first one's (RMS %.4g eV/Å).%s",
               implementations->n_rounds, implementations->n_frames, base_plural(implementations->n_frames),
               implementations->force_scale, other ? " Different models: difference shown, not judged." : "");
    base_text_add(page,
                  "</p>\n<h3>Energy along the frames</h3>\n"
                  "<div class=\"chart\"><canvas id=\"implementations-energy\" role=\"img\" aria-label=\"energy of each frame\">"
                  "</canvas></div>\n<h3>Forces against the first one's</h3>\n"
                  "<div class=\"chart tall\"><canvas id=\"implementations-forces\" role=\"img\" "
                  "aria-label=\"force components against the first one's\"></canvas></div>\n");
}

static void numbers(json *j, const char *key, const double *values, int n, double offset, double scale)
{
    json_open(j, key, '[');
    for (int i = 0; i < n; i++) json_number(j, NULL, (values[i] - offset) * scale);
    json_close(j, ']');
}

void html_implementations_data(json *j, const mlff_implementations *implementations)
{
    json_open(j, "implementations", '[');
    for (int k = 0; k < implementations->n; k++) {
        const implementation *own = &implementations->own[k];
        double mean = 0.0;
        for (int i = 0; i < implementations->n_kept; i++) mean += own->kept_energy[i] / implementations->n_kept;
        json_open(j, NULL, '{');
        json_string(j, "name", own->shown.name);
        json_number(j, "median", own->shown.median_ms);
        numbers(j, "energy", own->kept_energy, implementations->n_kept, mean, 1e3);
        numbers(j, "forces", own->kept_forces, implementations->n_kept * IMPLEMENTATIONS_COMPONENTS, 0.0, 1.0);
        json_close(j, '}');
    }
    json_close(j, ']');
}

mlff_status mlff_implementations_html(const mlff_implementations *implementations, const mlff_profile *const *profiles,
                                      int n_profiles, const char *title, char **text_out)
{
    if (!implementations || n_profiles < 0 || (n_profiles > 0 && !profiles) || !text_out)
        return mlff_fail(MLFF_ERR_USAGE, "implementations as a page: implementations, profiles or output is NULL");
    return html_page(&(html_contents){.profiles = profiles,
                                      .n_profiles = n_profiles,
                                      .implementations = implementations,
                                      .title = title ? title : "Implementations side by side"},
                     text_out);
}
