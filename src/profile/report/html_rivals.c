// SPDX-License-Identifier: MIT
// html_rivals.c: the part of a page that sets implementations side by side: speed, energies along the frames, forces.
#include <math.h>

#include "html.h"
#include "profile/run/rivals.h"

static void cell(base_text *page, const char *attributes, const char *text)
{
    base_text_add(page, "<td%s>", attributes);
    html_text(page, text);
    base_text_add(page, "</td>");
}

static void write_row(base_text *page, const mlff_rivals *rivals, int k)
{
    const mlff_rival *row = &rivals->shown[k];
    char text[160];
    base_text_add(page, "<tr>");
    cell(page, "", row->name);
    cell(page, "", row->device);
    cell(page, "", PROFILE_TIME(row->median_ms));
    snprintf(text, sizeof text, "%.3f×", row->ratio);
    cell(page, "", text);
    snprintf(text, sizeof text, k ? "%.3f to %.3f" : "–", row->low, row->high);
    cell(page, "", text);
    snprintf(text, sizeof text, k ? "%.3g meV/atom" : "–", row->energy_rms * 1e3);
    cell(page, "", text);
    snprintf(text, sizeof text, k ? "%.5g eV/atom" : "–", row->energy_shift);
    cell(page, "", text);
    snprintf(text, sizeof text, k ? "%.3g meV/Å (%.2g %%)" : "–", row->force_rms * 1e3,
             100.0 * row->force_rms / rivals->force_scale);
    cell(page, "", text);
    if (isfinite(row->force_error) || isfinite(row->energy_error)) {
        snprintf(text, sizeof text, "%.4g meV/atom, %.4g meV/Å", row->energy_error * 1e3, row->force_error * 1e3);
        cell(page, "", text);
    }
    snprintf(text, sizeof text, k ? "%s; %s" : "the first", rivals_change_name(row), rivals_judgement(row));
    cell(page, row->agrees ? " class=\"text\"" : " class=\"text no\"", text);
    base_text_add(page, "</tr>\n");
}

void html_rivals(base_text *page, const mlff_rivals *rivals)
{
    bool labels = isfinite(rivals->shown[0].force_error) || isfinite(rivals->shown[0].energy_error), other = false;
    for (int k = 0; k < rivals->n; k++) {
        const mlff_rival *row = &rivals->shown[k];
        other = other || row->agrees < 0;
        if (!*row->notes) continue;
        base_text_add(page, "<p class=\"warn\">");
        html_textf(page, "%s: %s", row->name, row->notes);
        base_text_add(page, "</p>\n");
    }
    base_text_add(
        page,
        "<h2>On the same frames, in turns</h2>\n"
        "<div class=\"chart\"><canvas id=\"rivals-speed\" role=\"img\" aria-label=\"median step of each\">"
        "</canvas></div>\n<div class=\"scroll\"><table><thead><tr><th></th><th>device</th><th>median</th><th>× first</th>"
        "<th>95 %% interval</th><th>ΔE, RMS</th><th>mean ΔE</th><th>ΔF, RMS</th>%s<th class=\"text\"></th></tr>"
        "</thead><tbody>\n",
        labels ? "<th>MAE to labels</th>" : "");
    for (int k = 0; k < rivals->n; k++) write_row(page, rivals, k);
    base_text_add(page, "</tbody></table></div>\n<p class=\"soft\">");
    html_textf(page,
               "%d rounds of %d fresh frames; ratios are taken within a round, intervals are of this process. ΔE is what differs "
               "from the first beyond the mean difference, ΔF of force components, in %% of the first one's (RMS %.4g eV/Å).%s",
               rivals->n_rounds, rivals->n_frames, rivals->force_scale,
               other ? " Different models: difference shown, not judged." : "");
    base_text_add(page, "</p>\n<h3>Energy along the frames</h3>\n"
                        "<div class=\"chart\"><canvas id=\"rivals-energy\" role=\"img\" aria-label=\"energy of each frame\">"
                        "</canvas></div>\n<h3>Forces against the first one's</h3>\n"
                        "<div class=\"chart tall\"><canvas id=\"rivals-forces\" role=\"img\" "
                        "aria-label=\"force components against the first one's\"></canvas></div>\n");
}

static void numbers(json *j, const char *key, const double *values, int n, double offset, double scale)
{
    json_open(j, key, '[');
    for (int i = 0; i < n; i++) json_number(j, NULL, (values[i] - offset) * scale);
    json_close(j, ']');
}

void html_rivals_data(json *j, const mlff_rivals *rivals)
{
    json_open(j, "rivals", '[');
    for (int k = 0; k < rivals->n; k++) {
        const rival *own = &rivals->own[k];
        double mean = 0.0;
        for (int i = 0; i < rivals->n_kept; i++) mean += own->kept_energy[i] / rivals->n_kept;
        json_open(j, NULL, '{');
        json_string(j, "name", own->shown.name);
        json_number(j, "median", own->shown.median_ms);
        numbers(j, "energy", own->kept_energy, rivals->n_kept, mean, 1e3);
        numbers(j, "forces", own->kept_forces, rivals->n_kept * RIVALS_COMPONENTS, 0.0, 1.0);
        json_close(j, '}');
    }
    json_close(j, ']');
}

mlff_status mlff_rivals_html(const mlff_rivals *rivals, const mlff_profile *const *profiles, int n_profiles, const char *title,
                             char **text_out)
{
    if (!rivals || n_profiles < 0 || (n_profiles > 0 && !profiles) || !text_out)
        return mlff_fail(MLFF_ERR_USAGE, "rivals as a page: rivals, profiles or output is NULL");
    return html_page(&(html_contents){.profiles = profiles,
                                      .n_profiles = n_profiles,
                                      .rivals = rivals,
                                      .title = title ? title : "Implementations side by side"},
                     text_out);
}
