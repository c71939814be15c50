// SPDX-License-Identifier: MIT
// bootstrap.c: how far the difference of two groups of runs may be off. It resamples what varies, where it varies: runs with
// replacement, in a run its blocks of steps, in a block its steps (Kalibera and Jones, ISMM 2013); numbers are logarithms of
// times. A draw of few runs varies too little by (n-1)/n, and its percentiles are those of a normal distribution where few runs
// ask for Student's: deviations are widened by both, so that the interval keeps its 95 % at five runs a side.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

enum { DRAWS = 2000, BLOCK_MIN = 10, PICK_BITS = 17, PICKS = 3 };

double normal_quantile(double fraction)
{
    double low = -40.0, high = 40.0;
    for (int i = 0; i < 64; i++) {
        double middle = 0.5 * (low + high);
        if (0.5 * erfc(-middle / sqrt(2.0)) < fraction)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

// With t = √ν tan θ the distribution is the integral of cos^(ν-1) θ, which is smooth: Simpson's rule. Beyond 12/√ν nothing
// is left of it.
double student_below(double t, double nu)
{
    enum { INTERVALS = 60 };
    double end = fmin(atan(fabs(t) / sqrt(nu)), 12.0 / sqrt(nu)), step = end / INTERVALS, sum = 0.0;
    for (int i = 0; i <= INTERVALS; i++) sum += (i % INTERVALS == 0 ? 1.0 : i % 2 ? 4.0 : 2.0) * pow(cos(i * step), nu - 1.0);
    double half = sum * step / 3.0 * exp(lgamma(0.5 * (nu + 1.0)) - lgamma(0.5 * nu)) / sqrt(BASE_PI);
    return t < 0.0 ? 0.5 - half : 0.5 + half;
}

double student_quantile(double fraction, double nu)
{
    double low = 0.0, high = 2.0;
    if (fraction < 0.5) return -student_quantile(1.0 - fraction, nu);
    while (high < 1e6 && student_below(high, nu) < fraction) high *= 2.0;
    for (int i = 0; i < 40; i++) {
        double middle = 0.5 * (low + high);
        if (student_below(middle, nu) < fraction)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

// ---- runs ----------------------------------------------------------------------------------------

// The median of resampled steps of a block is the order statistic at a normally distributed place around the middle.
mlff_status bootstrap_run_of_steps(const double *steps, int64_t n, bootstrap_run *run_out)
{
    bootstrap_run run = {.n_blocks = (int)(n / BLOCK_MIN < BOOTSTRAP_BLOCKS ? n / BLOCK_MIN : BOOTSTRAP_BLOCKS)};
    if (run.n_blocks < 1) run.n_blocks = 1;
    double *sorted = base_alloc((size_t)(n / run.n_blocks) + 1, sizeof *sorted, "steps to sort"), z[BOOTSTRAP_LEVELS];
    if (!sorted) return MLFF_ERR_MEMORY;
    for (int level = 0; level < BOOTSTRAP_LEVELS; level++) z[level] = normal_quantile((level + 0.5) / BOOTSTRAP_LEVELS);
    for (int k = 0; k < run.n_blocks; k++) {
        int64_t begin = n * k / run.n_blocks, m = n * (k + 1) / run.n_blocks - begin;
        memcpy(sorted, steps + begin, (size_t)m * sizeof *sorted);
        base_sort(sorted, (size_t)m);
        for (int level = 0; level < BOOTSTRAP_LEVELS; level++) {
            double place = 0.5 + 0.5 * z[level] / sqrt((double)m + 2.0);
            double median = statistics_percentile(sorted, m, fmin(fmax(place, 0.0), 1.0));
            run.draws[k][level] = log(fmax(median, 1e-9));
            run.value += run.draws[k][level] / (run.n_blocks * BOOTSTRAP_LEVELS);
        }
    }
    base_free(sorted);
    *run_out = run;
    return MLFF_OK;
}

void bootstrap_run_of_value(double value, bootstrap_run *run_out)
{
    bootstrap_run run = {.n_blocks = 1, .value = log(fmax(value, 1e-9))};
    for (int level = 0; level < BOOTSTRAP_LEVELS; level++) run.draws[0][level] = run.value;
    *run_out = run;
}

// ---- resamples ---------------------------------------------------------------------------------------

typedef struct group {
    const bootstrap_run *runs;
    int n;
    double mean, widening, freedom, variance;
    double between; // part of the deviation of a run that is added; the rest comes with its blocks
} group;

// Of a run's value, by how its blocks differ.
static double variance_within(const bootstrap_run *run)
{
    double squares = 0.0;
    if (run->n_blocks < 2) return 0.0;
    for (int k = 0; k < run->n_blocks; k++)
        for (int level = 0; level < BOOTSTRAP_LEVELS; level++)
            squares += (run->draws[k][level] - run->value) * (run->draws[k][level] - run->value) / BOOTSTRAP_LEVELS;
    return squares / ((double)run->n_blocks * (run->n_blocks - 1));
}

static group group_of(const bootstrap_run *runs, int n)
{
    group g = {.runs = runs, .n = n};
    int blocks = 0;
    for (int i = 0; i < n; i++) {
        g.mean += runs[i].value / n;
        blocks += runs[i].n_blocks;
    }
    int units = n > 1 ? n : blocks; // a run alone knows of its blocks, and not how runs differ
    g.freedom = units > 1 ? units - 1.0 : 1.0;
    g.widening = units > 1 ? sqrt(units / g.freedom) : 1.0;
    double squares = 0.0, within = 0.0;
    for (int i = 0; i < n; i++) {
        squares += (runs[i].value - g.mean) * (runs[i].value - g.mean) / g.freedom;
        within += variance_within(&runs[i]) / n;
    }
    g.between = squares > within ? sqrt(1.0 - within / squares) : 0.0;
    return g;
}

static double draw(const group *g, uint64_t stream, uint64_t *index)
{
    double sum = 0.0;
    for (int i = 0; i < g->n; i++) {
        double place = base_random_uniform(20260131, stream, (*index)++) * g->n, mean = 0.0;
        const bootstrap_run *run = &g->runs[(int)place];
        uint64_t bits = 0;
        for (int k = 0; k < run->n_blocks; k++) {
            if (k % PICKS == 0) bits = (uint64_t)(base_random_uniform(20260131, stream, (*index)++) * 0x1p53);
            uint64_t pick = (bits >> PICK_BITS * (k % PICKS) & ((1u << PICK_BITS) - 1)) * (uint64_t)run->n_blocks;
            uint64_t block = pick >> PICK_BITS, level = (pick & ((1u << PICK_BITS) - 1)) * BOOTSTRAP_LEVELS >> PICK_BITS;
            mean += run->draws[block][level];
        }
        sum += mean / run->n_blocks - run->value + g->between * (run->value - g->mean);
    }
    return sum / g->n * g->widening;
}

// How runs of a group differ among themselves, of both groups together.
static double deviation(const group *a, const group *b)
{
    double squares = 0.0;
    if (a->n + b->n <= 2) return NAN;
    for (int i = 0; i < a->n; i++) squares += (a->runs[i].value - a->mean) * (a->runs[i].value - a->mean);
    for (int i = 0; i < b->n; i++) squares += (b->runs[i].value - b->mean) * (b->runs[i].value - b->mean);
    return sqrt(squares / (a->n + b->n - 2));
}

mlff_status bootstrap_difference(const bootstrap_run *runs_a, int n_a, const bootstrap_run *runs_b, int n_b, double alpha,
                                 bootstrap_result *result_out)
{
    group a = group_of(runs_a, n_a), b = group_of(runs_b, n_b);
    double *drawn = base_alloc(DRAWS, sizeof *drawn, "draws"), squares = 0.0;
    uint64_t index = 0;
    if (!drawn) return MLFF_ERR_MEMORY;
    for (int i = 0; i < DRAWS; i++) {
        double of_a = draw(&a, 1, &index), of_b = draw(&b, 2, &index);
        a.variance += of_a * of_a / DRAWS;
        b.variance += of_b * of_b / DRAWS;
        drawn[i] = of_b - of_a;
        squares += drawn[i] * drawn[i] / DRAWS;
    }
    base_sort(drawn, DRAWS);
    double both = a.variance + b.variance; // degrees of freedom by Welch and Satterthwaite
    double freedom = both > 0.0 ? both * both / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom)
                                : a.freedom + b.freedom;
    double reach = student_quantile(1.0 - 0.5 * alpha, freedom), wider = reach / normal_quantile(1.0 - 0.5 * alpha);
    bootstrap_result result = {.difference = b.mean - a.mean, .deviation = deviation(&a, &b)};
    result.low = result.difference + wider * statistics_percentile(drawn, DRAWS, 0.5 * alpha);
    result.high = result.difference + wider * statistics_percentile(drawn, DRAWS, 1.0 - 0.5 * alpha);
    result.p = squares > 0.0 ? fmax(2.0 * student_below(-fabs(result.difference) / sqrt(squares), freedom), 0.0)
                             : (double)(result.difference == 0.0);
    result.detectable = (reach + student_quantile(0.9, freedom)) * sqrt(squares);
    base_free(drawn);
    *result_out = result;
    return MLFF_OK;
}
