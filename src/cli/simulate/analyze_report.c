// SPDX-License-Identifier: MIT
// analyze_report.c: what mlff analyze found, as tables, as JSON and as a page.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/drawing.h"
#include "cli/simulate/analyze.h"
#include "cli/support/cli.h"

enum { MOST_PEAKS = 12 };
#define PEAK_LEAST 0.05 // of the highest
#define SHELL_REACH 1.5

// "O-H", "H-O-H"
static void kind_name(const mlff_geometry_kind *kind, char text[16])
{
    if (kind->is_angle)
        snprintf(text, 16, "%s-%s-%s", mlff_element_symbol(kind->elements[0]), mlff_element_symbol(kind->elements[1]),
                 mlff_element_symbol(kind->elements[2]));
    else
        snprintf(text, 16, "%s-%s", mlff_element_symbol(kind->elements[0]), mlff_element_symbol(kind->elements[1]));
}

// The nearest shell of a radial distribution: its highest value, and the lowest one from there up to SHELL_REACH times as far, where the
// shell ends. Bins; -1 where there is none.
static void find_shell(const analysis *run, int *peak_out, int *end_out)
{
    const double *r = run->values, *g = r + run->n_bins;
    int peak = 0, end;
    for (int k = 1; k < run->n_bins; k++)
        if (g[k] > g[peak]) peak = k;
    end = peak;
    for (int k = peak; k < run->n_bins && r[k] <= SHELL_REACH * r[peak]; k++)
        if (g[k] < g[end]) end = k;
    const bool whole = SHELL_REACH * r[peak] <= r[run->n_bins - 1];
    *peak_out = g[peak] > 0 ? peak : -1;
    *end_out = g[peak] > 0 && whole ? end : -1;
}

// ---- JSON

static void json_series(cli_json *json, const char *key, const char *unit, const frame_series *series)
{
    char name[64];
    if (series->n == 0) return;
    cli_json_object(json, key);
    snprintf(name, sizeof name, "mean_%s", unit);
    cli_json_number(json, name, series->mean);
    snprintf(name, sizeof name, "standard_error_%s", unit);
    cli_json_number(json, name, series->error);
    snprintf(name, sizeof name, "slope_%s_per_frame", unit);
    cli_json_number(json, name, series->slope);
    cli_json_number(json, "slope_half_width", series->slope_half_width);
    cli_json_numbers(json, "values", series->values, (int)series->n);
    cli_json_end(json, '}');
}

static void json_geometry(cli_json *json, const mlff_geometry *geometry)
{
    double density[MLFF_GEOMETRY_BINS];
    cli_json_array(json, "geometry");
    for (int k = 0; k < mlff_geometry_size(geometry); k++) {
        mlff_geometry_kind kind;
        char name[16];
        mlff_geometry_get(geometry, k, &kind, density);
        kind_name(&kind, name);
        cli_json_object(json, NULL);
        cli_json_text(json, kind.is_angle ? "angle" : "bond", name);
        cli_json_text(json, "unit", kind.is_angle ? "degree" : "angstrom");
        cli_json_int(json, "count", kind.count);
        cli_json_number(json, "mean", kind.mean);
        cli_json_number(json, "standard_deviation", kind.deviation);
        cli_json_number(json, "lowest", kind.low);
        cli_json_number(json, "highest", kind.high);
        cli_json_number(json, "bin_width", kind.bin_width);
        cli_json_numbers(json, "density", density, kind.n_bins);
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
}

void analyze_print_json(const analysis *run)
{
    const double *v = run->values;
    const int n = run->n_bins;
    cli_json json = {.file = stdout};
    cli_json_object(&json, NULL);
    cli_json_int(&json, "n_frames", run->n_frames);
    cli_json_bool(&json, "partial", run->ended != MLFF_OK);
    json_series(&json, "energy", "ev", &run->energy);
    json_series(&json, "temperature", "kelvin", &run->temperature);
    json_series(&json, "density", "g_per_cm3", &run->density);
    if (run->rdf) {
        cli_json_object(&json, "rdf");
        cli_json_text(&json, "pair", run->pair);
        cli_json_numbers(&json, "r_angstrom", v, n);
        cli_json_numbers(&json, "g", v + n, n);
        cli_json_numbers(&json, "g_standard_error", v + 2 * (size_t)n, n);
        cli_json_numbers(&json, "coordination", v + 3 * (size_t)n, n);
        int peak, end;
        find_shell(run, &peak, &end);
        cli_json_number(&json, "peak_angstrom", peak < 0 ? NAN : v[peak]);
        cli_json_number(&json, "shell_end_angstrom", end < 0 ? NAN : v[end]);
        cli_json_number(&json, "neighbors_in_shell", end < 0 ? NAN : v[3 * n + end]);
        cli_json_end(&json, '}');
    }
    if (run->msd) {
        cli_json_object(&json, "msd");
        cli_json_text(&json, "element", run->element);
        cli_json_numbers(&json, "lag_fs", run->lags, run->n_lags);
        cli_json_numbers(&json, "msd_angstrom2", run->displacement, run->n_lags);
        cli_json_number(&json, "diffusion_cm2_per_s", 0.1 * run->diffusion);
        cli_json_number(&json, "diffusion_half_width_cm2_per_s", 0.1 * run->half_width);
        cli_json_end(&json, '}');
    }
    if (run->n_points > 0) {
        const size_t points = (size_t)run->n_points;
        cli_json_object(&json, "vdos");
        cli_json_text(&json, "element", run->element);
        cli_json_number(&json, "highest_wavenumber_per_cm", 0.5 / (run->frame_fs * BASE_LIGHT_CM_PER_FS));
        cli_json_numbers(&json, "wavenumber_per_cm", run->spectrum, run->n_points);
        cli_json_numbers(&json, "density_cm", run->spectrum + points, run->n_points);
        cli_json_numbers(&json, "density_standard_error_cm", run->spectrum + 2 * points, run->n_points);
        cli_json_end(&json, '}');
    }
    if (run->geometry) json_geometry(&json, run->geometry);
    cli_json_end(&json, '}');
}

// ---- tables

// The mean to the second digit of its error: energies of large systems need more digits than six.
static void mean_text(const frame_series *series, char text[64])
{
    const int n_decimals = series->error > 0 ? 1 - (int)floor(log10(series->error)) : -1;
    if (n_decimals < 0 || n_decimals > 12)
        snprintf(text, 64, "%.8g", series->mean);
    else
        snprintf(text, 64, "%.*f", n_decimals, series->mean);
}

static void print_series(const char *name, const char *unit, const frame_series *series)
{
    char mean[64];
    if (series->n == 0) return;
    mean_text(series, mean);
    printf("%s: mean %s %s", name, mean, unit);
    if (isfinite(series->error)) printf(" ± %.2g (standard error of ten blocks)", series->error);
    if (isfinite(series->slope)) printf(", slope %.3g ± %.2g %s a frame (95 %%)", series->slope, series->slope_half_width, unit);
    putchar('\n');
}

static void print_rdf(const analysis *run)
{
    const double *v = run->values;
    const size_t n = (size_t)run->n_bins;
    size_t first = 0;
    int peak, end;
    find_shell(run, &peak, &end);
    printf("\nradial distribution, %s: ", run->pair ? run->pair : "all atoms");
    if (peak < 0) {
        printf("no pairs up to %.4g Å\n", run->range);
        return;
    }
    printf("highest at %.3f Å (g = %.3g)", v[peak], v[n + (size_t)peak]);
    if (end >= 0)
        printf(", lowest beyond at %.3f Å (g = %.3g): %.3g neighbor%s up to there", v[end], v[n + (size_t)end],
               v[3 * n + (size_t)end], v[3 * n + (size_t)end] == 1 ? "" : "s");
    putchar('\n');
    while (first + 1 < n && v[n + first + 1] == 0) first++; // begins one bin before the nearest pair
    printf("%8s %10s %10s %13s\n", "r, Å", "g", "std.err.", "coordination");
    for (size_t k = first; k < n; k++) {
        printf("%7.3f %10.4f ", v[k], v[n + k]);
        if (isnan(v[2 * n + k]))
            printf("%10s", "-");
        else
            printf("%10.4f", v[2 * n + k]);
        printf(" %13.3f\n", v[3 * n + k]);
    }
}

static void print_displacements(const analysis *run)
{
    const char *atoms = run->element ? run->element : "all atoms";
    if (run->n_lags == 0)
        printf("\nmean square displacement, %s: needs 2 frames\n", atoms);
    else
        printf("\n%10s %12s   mean square displacement, %s\n", "lag, fs", "Å²", atoms);
    for (int k = 0; k < run->n_lags; k++) printf("%10.6g %12.6g\n", run->lags[k], run->displacement[k]);
    if (isnan(run->diffusion))
        printf("\ndiffusion: needs 100 frames\n");
    else
        printf("\ndiffusion: %.3g ± %.2g cm²/s (95 %%, five blocks)\n", 0.1 * run->diffusion, 0.1 * run->half_width);
}

// Maxima of the spectrum; the whole of it is in the JSON and on the page.
static void print_peaks(const analysis *run)
{
    const size_t n = (size_t)run->n_points;
    const double *x = run->spectrum, *y = x + n, *error = y + n;
    const char *atoms = run->element ? run->element : "all atoms";
    double highest = 0;
    int n_peaks = 0;
    for (size_t k = 0; k < n; k++) highest = fmax(highest, y[k]);
    for (size_t k = 1; k + 1 < n && n_peaks < MOST_PEAKS; k++) {
        if (!(y[k] > y[k - 1] && y[k] >= y[k + 1] && y[k] > PEAK_LEAST * highest)) continue;
        if (n_peaks++ == 0)
            printf("\n%10s %12s %12s   peaks of the vibrational density of states, %s\n", "1/cm", "density, cm", "std.err.",
                   atoms);
        printf("%10.1f %12.3g %12.2g\n", x[k], y[k], error[k]);
    }
    if (n_peaks == 0)
        printf("\nvibrational density of states, %s: no peak between its %zu points; more frames have more points\n", atoms, n);
    printf("resolution %.3g /cm; frames each %g fs hold wavenumbers up to %.0f /cm, higher ones are folded back\n", x[1] - x[0],
           run->frame_fs, 0.5 / (run->frame_fs * BASE_LIGHT_CM_PER_FS));
}

static void print_geometry(const mlff_geometry *geometry)
{
    if (mlff_geometry_size(geometry) == 0) {
        printf("\nno bonds in the first frame\n");
        return;
    }
    printf("\n%-10s %8s %12s %12s %12s %12s\n", "", "number", "mean", "std.dev.", "lowest", "highest");
    for (int k = 0; k < mlff_geometry_size(geometry); k++) {
        mlff_geometry_kind kind;
        char name[16];
        mlff_geometry_get(geometry, k, &kind, NULL);
        kind_name(&kind, name);
        const char *unit = kind.is_angle ? "°" : "Å";
        printf("%-10s %8d %10.4g %s ", name, kind.count, kind.mean, unit);
        if (isfinite(kind.deviation))
            printf("%10.3g %s", kind.deviation, unit);
        else
            printf("%12s", "-");
        printf(" %10.4g %s %10.4g %s\n", kind.low, unit, kind.high, unit);
    }
}

void analyze_print_tables(const analysis *run)
{
    printf("%" PRId64 " frame%s", run->n_frames, base_plural(run->n_frames));
    if (isnan(run->frame_fs) && run->interval_fs > 0)
        printf(", %.4g fs apart: --frame-time %.4g adds displacements, diffusion and, of velocities, the spectrum",
               run->interval_fs, run->interval_fs);
    printf("\n");
    print_series("energy", "eV", &run->energy);
    print_series("temperature", "K", &run->temperature);
    print_series("density", "g/cm³", &run->density);
    if (run->geometry) print_geometry(run->geometry);
    if (run->n_points > 0) print_peaks(run);
    if (run->vdos && run->n_points == 0) printf("\nvibrational density of states: needs 100 frames\n");
    if (run->rdf) print_rdf(run);
    if (run->msd) print_displacements(run);
}

// ---- page

// Values at equal steps from x->low; nothing is drawn of what is not finite.
static void draw(base_text *page, const char *title, const char *x_label, const char *y_label, double low, double high,
                 const double *values, int n)
{
    double least = INFINITY, most = -INFINITY;
    for (int k = 0; k < n; k++) {
        if (!isfinite(values[k])) return;
        least = fmin(least, values[k]);
        most = fmax(most, values[k]);
    }
    if (n < 2 || !(high > low)) return;
    if (!(most > least)) most = least + 1;
    const double margin = 0.04 * (most - least);
    const drawing_axis x = {.low = low, .high = high, .label = x_label};
    const drawing_axis y = {.low = least < 0 || least > 0.3 * most ? least - margin : 0, .high = most + margin, .label = y_label};
    drawing_begin(page, title, &x, &y);
    drawing_line(page, &x, &y, "major", (high - low) / (n - 1), values, n);
    drawing_end(page);
}

static void draw_geometry(base_text *page, const mlff_geometry *geometry)
{
    double density[MLFF_GEOMETRY_BINS];
    for (int k = 0; k < mlff_geometry_size(geometry); k++) {
        mlff_geometry_kind kind;
        char name[16], title[96];
        mlff_geometry_get(geometry, k, &kind, density);
        kind_name(&kind, name);
        snprintf(title, sizeof title, "%s %s: mean %.4g, standard deviation %.3g %s", kind.is_angle ? "Angle" : "Bond", name,
                 kind.mean, kind.deviation, kind.is_angle ? "°" : "Å");
        int first = 0, last = kind.n_bins - 1;
        while (first < last && density[first] == 0) first++;
        while (last > first && density[last] == 0) last--;
        first = first > 2 ? first - 2 : 0;
        last = last + 2 < kind.n_bins ? last + 2 : kind.n_bins - 1;
        draw(page, title, kind.is_angle ? "angle, °" : "length, Å", kind.is_angle ? "density, 1/°" : "density, 1/Å",
             (first + 0.5) * kind.bin_width, (last + 0.5) * kind.bin_width, density + first, last - first + 1);
    }
}

static void add_row(base_text *page, const char *name, const char *unit, const frame_series *series)
{
    char mean[64];
    if (series->n == 0) return;
    mean_text(series, mean);
    base_text_add(page, "<tr><td>%s</td><td>%s", name, mean);
    if (isfinite(series->error)) base_text_add(page, " ± %.2g", series->error);
    base_text_add(page, " %s</td><td>", unit);
    if (isfinite(series->slope)) base_text_add(page, "%.3g ± %.2g %s", series->slope, series->slope_half_width, unit);
    base_text_add(page, "</td></tr>");
}

// Points up to where nothing of note follows.
static int n_shown(const double *density, int n)
{
    double highest = 0;
    int shown = n;
    for (int k = 0; k < n; k++) highest = fmax(highest, density[k]);
    while (shown > 2 && density[shown - 1] < 0.01 * highest) shown--;
    return shown + n / 20 < n ? shown + n / 20 : n;
}

mlff_status analyze_write_page(const analysis *run)
{
    mlff_status status;
    base_text page = {0};
    const size_t bins = (size_t)run->n_bins, points = (size_t)run->n_points;
    const bool in_time = !isnan(run->frame_fs);
    const double frame = in_time ? 1e-3 * run->frame_fs : 1;
    const char *axis = in_time ? "time, ps" : "frame";
    drawing_page_begin(&page, "Trajectory");
    base_text_add(&page, "<h1>");
    drawing_text(&page, run->path);
    base_text_add(&page, "</h1><p>%" PRId64 " frame%s.</p>", run->n_frames, base_plural(run->n_frames));
    const bool has_series = run->energy.n + run->temperature.n + run->density.n > 0;
    if (has_series) base_text_add(&page, "<table><tr><th></th><th>mean, standard error</th><th>slope a frame, 95 %%</th></tr>");
    add_row(&page, "energy", "eV", &run->energy);
    add_row(&page, "temperature", "K", &run->temperature);
    add_row(&page, "density", "g/cm³", &run->density);
    if (has_series) base_text_add(&page, "</table>");
    if (isfinite(run->diffusion) && run->msd)
        base_text_add(&page, "<p>Diffusion %.3g ± %.2g cm²/s (95 %%, five blocks).</p>", 0.1 * run->diffusion,
                      0.1 * run->half_width);
    base_text_add(&page, "<div class=\"plots\">");
    draw(&page, "Energy beyond its mean", axis, "energy, eV", 0, frame * (double)(run->energy.n - 1), run->energy.beyond,
         (int)run->energy.n);
    draw(&page, "Temperature", axis, "temperature, K", 0, frame * (double)(run->temperature.n - 1), run->temperature.values,
         (int)run->temperature.n);
    draw(&page, "Density", axis, "density, g/cm³", 0, frame * (double)(run->density.n - 1), run->density.values,
         (int)run->density.n);
    if (run->rdf)
        draw(&page, "Radial distribution", "distance, Å", "g", run->values[0], run->values[bins - 1], run->values + bins,
             run->n_bins);
    if (run->n_points > 0) {
        const int shown = n_shown(run->spectrum + points, run->n_points);
        draw(&page, "Vibrational density of states", "wavenumber, 1/cm", "density, cm", 0, run->spectrum[shown - 1],
             run->spectrum + points, shown);
    }
    if (run->msd && run->n_lags > 1)
        draw(&page, "Mean square displacement", "lag, fs", "Å²", run->lags[0], run->lags[run->n_lags - 1], run->displacement,
             run->n_lags);
    if (run->geometry) draw_geometry(&page, run->geometry);
    base_text_add(&page, "</div></html>\n");
    status = base_text_write(&page, run->page);
    base_text_free(&page);
    return status;
}
