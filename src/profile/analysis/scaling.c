// SPDX-License-Identifier: MIT
// scaling.c: how the step grows with the number of atoms: an exponent, a floor that no smaller system goes below, the price
// of an atom, and how many atoms memory holds.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"
#include "profile/report/json/json.h"

#define MEMORY_LEAST                                                                                                             \
    (1.0 / 1024.0)        // GB: what runs differ by without atoms, by pages and the allocator's blocks; less growth is no price
enum { LARGER_FROM = 5 }; // different sizes: of so many and more, the larger ones alone give the exponent
typedef struct point {
    double atoms, ms, gb, available_gb; // available_gb: of the host when its run ended, where memory is the host's; else -1
    int size;                           // 0, 1, …: of the different numbers of atoms
} point;

static int by_atoms(const void *a, const void *b)
{
    const point *x = a, *y = b;
    return (x->atoms > y->atoms) - (x->atoms < y->atoms);
}

// Sum of squared relative errors of max(floor, a + b·N) with a and b fitted to the points from `first` on.
static double fit_from(const point *p, int n, int first, double *floor, double *a, double *b)
{
    double w = 0.0, x = 0.0, y = 0.0, xx = 0.0, xy = 0.0, error = 0.0, below = 0.0;
    for (int i = first; i < n; i++) { // least squares of relative errors: weights 1/t²
        double weight = 1.0 / (p[i].ms * p[i].ms);
        w += weight;
        x += weight * p[i].atoms;
        y += weight * p[i].ms;
        xx += weight * p[i].atoms * p[i].atoms;
        xy += weight * p[i].atoms * p[i].ms;
    }
    double determinant = w * xx - x * x;
    *b = fabs(determinant) > 1e-30 * w * xx ? (w * xy - x * y) / determinant : 0.0;
    *a = (y - *b * x) / w;
    if (*a < 0.0) { // no step is done in less than no time
        *a = 0.0;
        *b = xy / xx;
    }
    for (int i = 0; i < first; i++) below += log(p[i].ms) / first;
    *floor = first > 0 ? exp(below) : 0.0;
    for (int i = 0; i < n; i++) {
        double model = fmax(*floor, *a + *b * p[i].atoms), e = log(p[i].ms / fmax(model, 1e-12));
        error += e * e;
    }
    return error;
}

// The geometric mean of the times, and their typical relative difference from it.
static double fit_constant(const point *p, int n, double *constant)
{
    double mean = 0.0, squares = 0.0;
    for (int i = 0; i < n; i++) mean += log(p[i].ms) / n;
    for (int i = 0; i < n; i++) squares += (log(p[i].ms) - mean) * (log(p[i].ms) - mean);
    *constant = exp(mean);
    return sqrt(squares / n);
}

// Slope of log t over log N among the larger half of the sizes, and its interval (Student's, as in any regression).
static void exponent_of(const point *p, int n, mlff_scaling *s)
{
    const int n_sizes = s->n_sizes, first_size = n_sizes >= 8 ? n_sizes / 2 : n_sizes >= LARGER_FROM ? n_sizes - 4 : 0;
    int first = 0;
    while (p[first].size < first_size) first++;
    const int m = n - first;
    double x = 0.0, y = 0.0, xx = 0.0, xy = 0.0, squares = 0.0;
    for (int i = first; i < n; i++) {
        x += log(p[i].atoms) / m;
        y += log(p[i].ms) / m;
    }
    for (int i = first; i < n; i++) {
        xx += (log(p[i].atoms) - x) * (log(p[i].atoms) - x);
        xy += (log(p[i].atoms) - x) * (log(p[i].ms) - y);
    }
    s->exponent = xx > 0.0 ? xy / xx : NAN;
    s->exponent_low = s->exponent_high = NAN;
    if (m < 3) return;
    for (int i = first; i < n; i++) {
        double e = log(p[i].ms) - y - s->exponent * (log(p[i].atoms) - x);
        squares += e * e;
    }
    double reach = student_quantile(0.975, m - 2) * sqrt(squares / (m - 2) / xx);
    s->exponent_low = s->exponent - reach;
    s->exponent_high = s->exponent + reach;
}

mlff_status mlff_profile_scaling(const mlff_profile *const *profiles, int n_profiles, mlff_scaling *scaling_out)
{
    mlff_status status = MLFF_OK;
    int n = 0;
    double available = INFINITY, slope_gb, explained = 0.0;
    if (!profiles || !scaling_out) return mlff_fail(MLFF_ERR_USAGE, "scaling: profiles or output is NULL");
    point *p = base_alloc((size_t)(n_profiles > 0 ? n_profiles : 1), sizeof *p, "points of scaling");
    if (!p) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n_profiles; i++) {
        const mlff_profile_summary *s = &profiles[i]->summary;
        double ms = profile_typical_ms(profiles[i]);
        if (s->n_atoms < 1 || !(ms > 0.0)) continue;
        const bool known = profiles[i]->available_bytes > 0 && strncmp(profiles[i]->device, "cpu", 3) == 0;
        p[n++] = (point){.atoms = s->n_atoms,
                         .ms = ms,
                         .gb = s->memory_peak_gb,
                         .available_gb = known ? (double)profiles[i]->available_bytes / 1073741824.0 : -1.0};
    }
    qsort(p, (size_t)n, sizeof *p, by_atoms);
    int n_sizes = n > 0;
    for (int i = 1; i < n; i++) {
        n_sizes += p[i].atoms > p[i - 1].atoms;
        p[i].size = n_sizes - 1;
    }
    if (n_sizes < 2)
        MLFF_FAIL(MLFF_ERR_VALUE, "scaling: %d different number%s of atoms; two are needed, four or more for a reliable fit",
                  n_sizes, base_plural(n_sizes));

    mlff_scaling s = {.n_sizes = n_sizes, .max_atoms = -1.0};
    double best = INFINITY;
    s.fit_error = fit_constant(p, n, &s.floor_ms); // where no step takes longer with more atoms
    for (int first = 0; p[first].size + 2 <= n_sizes; first++) {
        double floor, a, b, error = fit_from(p, n, first, &floor, &a, &b);
        const double cost = error * (1.0 + 0.5 * (first > 0)); // a floor has to pay for itself
        if (p[first].size == 1 || (first > 0 && p[first].size == p[first - 1].size))
            continue; // one size is no floor, nor a part of one
        if (b <= 0.0 || cost >= best) continue;
        best = cost;
        s.floor_ms = floor;
        s.a_ms = a;
        s.b_us = b * 1e3;
        s.fit_error = sqrt(error / n);
    }
    s.crossover_atoms = s.floor_ms > s.a_ms && s.b_us > 0.0 ? (s.floor_ms - s.a_ms) / (s.b_us * 1e-3) : 0.0;
    exponent_of(p, n, &s);

    double mx = 0.0, my = 0.0, xx = 0.0, xy = 0.0, yy = 0.0;
    for (int i = 0; i < n; i++) {
        mx += p[i].atoms / n;
        my += p[i].gb / n;
    }
    for (int i = 0; i < n; i++) {
        xx += (p[i].atoms - mx) * (p[i].atoms - mx);
        xy += (p[i].atoms - mx) * (p[i].gb - my);
        yy += (p[i].gb - my) * (p[i].gb - my);
    }
    slope_gb = xy / xx;
    explained = yy > 0.0 ? xy * xy / (xx * yy) : 0.0;
    s.bytes_per_atom = slope_gb * 1073741824.0;
    if (explained < 0.5 || slope_gb * (p[n - 1].atoms - p[0].atoms) < MEMORY_LEAST)
        s.bytes_per_atom = NAN; // memory does not follow atoms here
    for (int i = 0; i < n; i++) // what was left beside the largest system
        if (p[i].size == n_sizes - 1) available = fmin(available, p[i].available_gb);
    if (available > 0.0 && isfinite(s.bytes_per_atom)) s.max_atoms = p[n - 1].atoms + available / slope_gb;
    *scaling_out = s;
done:
    base_free(p);
    return status;
}

double scaling_ms(const mlff_scaling *s, double atoms)
{
    return fmax(s->floor_ms, s->a_ms + s->b_us * 1e-3 * atoms);
}

mlff_status mlff_scaling_text(const mlff_scaling *s, char **text_out)
{
    base_text text = {0};
    if (!s || !text_out) return mlff_fail(MLFF_ERR_USAGE, "scaling as text: scaling or output is NULL");
    base_text_add(&text, "step ∝ atoms^%.2f", s->exponent);
    if (isfinite(s->exponent_low)) base_text_add(&text, " (%.2f to %.2f at 95 %%)", s->exponent_low, s->exponent_high);
    base_text_add(&text, "%s\nstep = ", s->n_sizes >= LARGER_FROM ? " among the larger systems" : "");
    if (s->a_ms > 0.0) base_text_add(&text, "%s + ", PROFILE_TIME(s->a_ms));
    if (s->b_us > 0.0)
        base_text_add(&text, "%.4g µs an atom", s->b_us);
    else
        base_text_add(&text, "%s, which does not grow with the number of atoms at these sizes; measure larger ones",
                      PROFILE_TIME(s->floor_ms));
    if (s->crossover_atoms > 0.0)
        base_text_add(&text,
                      ", but never less than %s: below %.0f atoms the step is bound by what does not depend on atoms\n"
                      "(calls, launches, threads); there, put several structures into one call",
                      PROFILE_TIME(s->floor_ms), s->crossover_atoms);
    base_text_add(&text, " (within %.1f %%)\n", s->fit_error * 100.0);
    if (isfinite(s->bytes_per_atom))
        base_text_add(&text, "memory: %.4g kB an atom", s->bytes_per_atom / 1024.0);
    else
        base_text_add(&text, "memory: does not follow the number of atoms at these sizes; measure larger ones");
    if (s->max_atoms > 0.0) base_text_add(&text, "; what is free holds about %s atoms", PROFILE_NUMBER(s->max_atoms, 2));
    base_text_add(&text, "\n");
    if (s->n_sizes < 4) base_text_add(&text, "%d sizes are too few for a reliable fit; measure four or more\n", s->n_sizes);
    if (text.status == MLFF_OK)
        *text_out = text.text;
    else
        base_text_free(&text);
    return text.status;
}
