// SPDX-License-Identifier: MIT
// steady.c: from which step on is a run itself? Medians of blocks of steps, in logarithms, are cut where their level
// changes (optimal partitioning, Jackson et al. 2005, with a squared cost on values that a running median has freed of lone
// outliers); neighboring pieces whose levels do not differ by what matters are joined again. Nothing is dropped here: the
// caller is told what stands before the steady part, and what it cost. Blocks make the work the same for any length.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

enum { BLOCKS_MAX = 400, BLOCK_MIN = 10, SEGMENT_BLOCKS = 3, SEGMENTS_MAX = BLOCKS_MAX / SEGMENT_BLOCKS + 1 };
#define LEVEL_TOLERANCE 0.01 /* levels closer than 1 % are one */

typedef struct pieces {
    int n_blocks;
    int64_t edges[BLOCKS_MAX + 1];  /* first value of each block */
    double inflation;               /* of the variance of a mean, by the autocorrelation of blocks */
    double level[BLOCKS_MAX];       /* logarithm of the block's median */
    int n, first[SEGMENTS_MAX + 1]; /* first block of each piece */
} pieces;

static double median_of(const double *values, int n)
{
    double copy[BLOCKS_MAX];
    memcpy(copy, values, (size_t)n * sizeof *copy);
    base_sort(copy, (size_t)n);
    return statistics_percentile(copy, n, 0.5);
}

static double piece_level(const pieces *p, int k, double *error)
{
    double deviation[BLOCKS_MAX];
    int begin = p->first[k], n = p->first[k + 1] - begin;
    double level = median_of(p->level + begin, n);
    for (int i = 0; i < n; i++) deviation[i] = fabs(p->level[begin + i] - level);
    if (error) *error = 1.4826 * median_of(deviation, n) * sqrt(p->inflation / n);
    return level;
}

// Noise from differences of blocks `gap` apart, less what all of them have in common: a few jumps of level do not matter.
static double noise_of(const pieces *p, int gap)
{
    double differences[BLOCKS_MAX] = {0.0};
    int n = p->n_blocks - gap;
    for (int i = 0; i < n; i++) differences[i] = p->level[i + gap] - p->level[i];
    double common = median_of(differences, n);
    for (int i = 0; i < n; i++) differences[i] = fabs(differences[i] - common);
    return fmax(1.4826 / sqrt(2.0) * median_of(differences, n), 1e-4);
}

static void cut(pieces *p)
{
    int m = p->n_blocks, last_cut[BLOCKS_MAX + 1];
    double smooth[BLOCKS_MAX] = {0.0}, sum[BLOCKS_MAX + 1], squares[BLOCKS_MAX + 1], best[BLOCKS_MAX + 1];
    for (int i = 0; i < m; i++) {
        int reach = i < 2 ? i : m - 1 - i < 2 ? m - 1 - i : 2;
        smooth[i] = median_of(p->level + i - reach, 2 * reach + 1);
    }
    enum { FAR = 8, INFLATION_MAX = 12 };
    double noise = noise_of(p, 1), far = m > 4 * FAR ? noise_of(p, FAR) : noise;
    double correlation = fmax(1.0 - noise * noise / (far * far), 0.0);
    noise = fmax(noise, far);
    p->inflation = fmin((1.0 + correlation) / (1.0 - correlation), INFLATION_MAX);
    double penalty = 6.0 * noise * noise * p->inflation * log(m);

    double origin = smooth[0]; // so that squares do not cancel
    sum[0] = squares[0] = 0.0;
    for (int i = 0; i < m; i++) {
        sum[i + 1] = sum[i] + (smooth[i] - origin);
        squares[i + 1] = squares[i] + (smooth[i] - origin) * (smooth[i] - origin);
    }
    best[0] = -penalty;
    last_cut[0] = 0;
    for (int end = 1; end <= m; end++) {
        best[end] = INFINITY;
        last_cut[end] = 0;
        for (int begin = 0; begin + SEGMENT_BLOCKS <= end || begin == 0; begin++) {
            double s = sum[end] - sum[begin], q = squares[end] - squares[begin];
            double cost = best[begin] + q - s * s / (end - begin) + penalty;
            if (cost < best[end]) {
                best[end] = cost;
                last_cut[end] = begin;
            }
        }
    }
    int found[SEGMENTS_MAX + 1], n = 0;
    for (int end = m; end > 0 && n < SEGMENTS_MAX; end = last_cut[end]) found[n++] = last_cut[end];
    p->n = n;
    for (int k = 0; k < n; k++) p->first[k] = found[n - 1 - k];
    p->first[0] = 0;
    p->first[n] = m;
}

// Joins the two neighbors that differ least, as long as their difference does not matter.
static void join(pieces *p)
{
    while (p->n > 1) {
        int closest = -1;
        double least = INFINITY;
        for (int k = 0; k + 1 < p->n; k++) {
            double error_here, error_next, here = piece_level(p, k, &error_here), next = piece_level(p, k + 1, &error_next);
            double tolerance = fmax(LEVEL_TOLERANCE, 3.0 * hypot(error_here, error_next));
            double excess = fabs(next - here) / tolerance;
            if (excess >= 1.0 || excess >= least) continue;
            least = excess;
            closest = k;
        }
        if (closest < 0) return;
        for (int k = closest + 1; k < p->n; k++) p->first[k] = p->first[k + 1];
        p->n--;
    }
}

// Levels that come back: of three pieces and more, some level of the past is met again after another one, and often.
static bool is_cyclic(const pieces *p)
{
    int returns = 0;
    for (int k = 2; k < p->n; k++) {
        double here = piece_level(p, k, NULL), between = piece_level(p, k - 1, NULL);
        for (int i = k - 2; i >= 0; i--) {
            double before = piece_level(p, i, NULL);
            if (fabs(before - here) < 0.3 * fabs(between - here)) {
                returns++;
                break;
            }
        }
    }
    return p->n >= 4 && returns >= 2 && 2 * returns >= p->n - 2;
}

// A machine that changes (its clock, another program beside) moves step times by jumps and back; what grows with the run grows in each
// eighth of it, by half of the whole at most. The level of an eighth is its lower quartile: disturbances only make steps slower.
double steady_rise(const double *values, int64_t n)
{
    enum { PARTS = 8 };
    double levels[PARTS], largest = 0.0;
    if (n < STEADY_MIN) return 0.0;
    for (int k = 0; k < PARTS; k++) {
        int64_t begin = n * k / PARTS, end = n * (k + 1) / PARTS;
        levels[k] = log(fmax(statistics_quantile(values + begin, end - begin, 0.25), 1e-9));
        if (k > 0 && !(levels[k] > levels[k - 1])) return 0.0;
        if (k > 0) largest = fmax(largest, levels[k] - levels[k - 1]);
    }
    double total = levels[PARTS - 1] - levels[0];
    return largest > 0.5 * total ? 0.0 : exp(total) - 1.0;
}

steady_state steady_find(const double *values, int64_t n)
{
    steady_state result = {.kind = STEADY_UNKNOWN, .n_pieces = 1};
    if (n < STEADY_MIN) return result;
    pieces p = {.n_blocks = (int)(n / BLOCK_MIN < BLOCKS_MAX ? n / BLOCK_MIN : BLOCKS_MAX)};
    for (int b = 0; b <= p.n_blocks; b++) p.edges[b] = n * b / p.n_blocks;
    for (int b = 0; b < p.n_blocks; b++)
        p.level[b] = log(fmax(statistics_median(values + p.edges[b], p.edges[b + 1] - p.edges[b]), 1e-9));
    cut(&p);
    join(&p);

    double first = piece_level(&p, 0, NULL), last = piece_level(&p, p.n - 1, NULL);
    int rises = 0, falls = 0;
    for (int k = 0; k + 1 < p.n; k++) {
        bool up = piece_level(&p, k + 1, NULL) > piece_level(&p, k, NULL);
        rises += up;
        falls += !up;
    }
    bool settled = 2 * (p.n_blocks - p.first[p.n - 1]) >= p.n_blocks; // the last piece is half of the run
    result.n_pieces = p.n;
    result.change = exp(last - first) - 1.0;
    result.rise = steady_rise(values, n);
    if (p.n == 1)
        result.kind = STEADY_FLAT;
    else if (is_cyclic(&p))
        result.kind = STEADY_CYCLIC;
    else if (settled && last < first)
        result.kind = STEADY_WARM_UP;
    else if ((settled && last > first) || falls == 0 || (last > first && rises >= 3 * falls))
        result.kind = STEADY_SLOWDOWN;
    else
        result.kind = STEADY_NONE;
    result.first = settled && result.kind != STEADY_CYCLIC ? p.edges[p.first[p.n - 1]] : 0;
    result.settled = settled || result.kind == STEADY_CYCLIC;
    return result;
}

// ---- percentiles ---------------------------------------------------------------------------------

// P(X <= k) for X binomial in n, q.
static double binomial_below(int64_t n, double q, int64_t k)
{
    if (k < 0) return 0.0;
    if (k >= n) return 1.0;
    if ((double)n * q * (1.0 - q) > 400.0) // the normal one is good to 1e-3 here
        return 0.5 * erfc(-((double)k + 0.5 - (double)n * q) / sqrt(2.0 * (double)n * q * (1.0 - q)));
    double sum = 0.0;
    for (int64_t i = 0; i <= k; i++)
        sum += exp(lgamma((double)n + 1.0) - lgamma((double)i + 1.0) - lgamma((double)(n - i) + 1.0) + (double)i * log(q) +
                   (double)(n - i) * log1p(-q));
    return fmin(sum, 1.0);
}

// n over 1 + 2 Σρ of the series "below the percentile or not", summed as long as neighbors' sums are positive (Geyer).
static double effective_size(const double *values, int64_t n, double percentile, double fraction)
{
    enum { LAGS_MAX = 2000, WORK_MAX = 20000000, CORRELATION_MIN = 30 };
    double total = 1.0, variance = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double x = (values[i] <= percentile) - fraction;
        variance += x * x;
    }
    if (!(variance > 0.0) || n < CORRELATION_MIN) return (double)n; // so few tell nothing about their correlation
    int64_t lags = n / 3 < LAGS_MAX ? n / 3 : LAGS_MAX;
    if (lags * n > WORK_MAX) lags = WORK_MAX / n;
    for (int64_t lag = 1; lag + 1 <= lags; lag += 2) {
        double pair = 0.0;
        for (int64_t i = 0; i + lag < n; i++) {
            double x = (values[i] <= percentile) - fraction, next = (values[i + lag] <= percentile) - fraction;
            double after = i + lag + 1 < n ? (values[i + lag + 1] <= percentile) - fraction : 0.0;
            pair += x * (next + after);
        }
        pair /= variance;
        if (pair <= 0.0) break;
        total += 2.0 * pair;
    }
    return fmax((double)n / total, 1.0);
}

mlff_status percentile_interval(const double *values, int64_t n, double fraction, percentile_bounds *bounds_out)
{
    percentile_bounds b = {.low = NAN, .high = NAN, .value = NAN};
    double *sorted = base_alloc((size_t)(n > 0 ? n : 1), sizeof *sorted, "values to sort");
    if (!sorted) return MLFF_ERR_MEMORY;
    // Enough for an upper bound at all: the largest of as many lies above the percentile with 95 %.
    double needed = ceil(log(0.05) / log(fraction));
    b.n_needed = (int64_t)needed;
    if (n > 0) {
        memcpy(sorted, values, (size_t)n * sizeof *sorted);
        base_sort(sorted, (size_t)n);
        b.value = statistics_percentile(sorted, n, fraction);
        b.n_effective = effective_size(values, n, b.value, fraction);
        int64_t m = (int64_t)b.n_effective, low = 0, high = m, at = (int64_t)((double)m * fraction);
        double scale = (double)n / fmax((double)m, 1.0);
        b.n_needed = (int64_t)ceil(needed * scale);
        // Order statistics low and high of m have the percentile between them with 95 %: P(X < low), P(X >= high) <= 2.5 %.
        for (low = at; low > 0 && binomial_below(m, fraction, low - 1) > 0.025;) low--;
        for (high = at + 1; high <= m && 1.0 - binomial_below(m, fraction, high - 1) > 0.025;) high++;
        if (high > m && 1.0 - pow(fraction, (double)m) >= 0.95) high = m; // one-sided then
        if (low > 0) b.low = sorted[(int64_t)fmin(fmax((double)low * scale - 1.0, 0.0), (double)(n - 1))];
        if (high <= m) b.high = sorted[(int64_t)fmin(ceil((double)high * scale - 1.0), (double)(n - 1))];
    }
    base_free(sorted);
    *bounds_out = b;
    return MLFF_OK;
}
