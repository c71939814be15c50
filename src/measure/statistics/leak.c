// SPDX-License-Identifier: MIT
// leak.c: does memory grow without end? Comparing the last sample with the first calls every cache that fills and every
// buffer that grew once a leak. So: the first tenth is left out, the rest cut into blocks, each block replaced by its lower
// envelope, and growth must be monotone (Mann-Kendall with the variance of Hamed and Rao for autocorrelated data,
// doi:10.1016/S0022-1694(97)00125-X), go on in every quarter, and be more than noise.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

enum { BLOCKS = 16 };

static double slope_theil_sen(const double *y)
{
    double slopes[BLOCKS * (BLOCKS - 1) / 2];
    int n = 0;
    for (int i = 0; i < BLOCKS; i++)
        for (int j = i + 1; j < BLOCKS; j++) slopes[n++] = (y[j] - y[i]) / (j - i);
    base_sort(slopes, (size_t)n);
    return statistics_percentile(slopes, n, 0.5);
}

// Average ranks, ties shared.
static void rank_of(const double *x, double *rank)
{
    for (int i = 0; i < BLOCKS; i++) {
        double below = 0.0, equal = 0.0;
        for (int j = 0; j < BLOCKS; j++) {
            below += x[j] < x[i];
            equal += x[j] == x[i];
        }
        rank[i] = below + 0.5 * (equal + 1.0);
    }
}

// One-sided z of an upward trend.
static double mann_kendall(const double *y)
{
    const double n = BLOCKS;
    double s = 0.0, ties = 0.0;
    for (int i = 0; i < BLOCKS; i++)
        for (int j = i + 1; j < BLOCKS; j++) s += (y[j] > y[i]) - (y[j] < y[i]);
    for (int i = 0; i < BLOCKS; i++) {
        double equal = 0.0;
        for (int j = 0; j < BLOCKS; j++) equal += y[j] == y[i];
        ties += (equal - 1.0) * (2.0 * equal + 5.0); // summed over members: t (t-1) (2t+5) for each group of t
    }
    double variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0;
    if (variance <= 0.0 || s <= 1.0) return 0.0;

    // Autocorrelation of the ranks of what is left without the trend; lags beyond a quarter are noise here.
    double slope = slope_theil_sen(y), rest[BLOCKS], rank[BLOCKS], correction = 0.0, total = 0.0;
    for (int i = 0; i < BLOCKS; i++) rest[i] = y[i] - slope * i;
    rank_of(rest, rank);
    for (int i = 0; i < BLOCKS; i++) total += (rank[i] - (n + 1.0) / 2.0) * (rank[i] - (n + 1.0) / 2.0);
    for (int lag = 1; lag <= BLOCKS / 4 && total > 0.0; lag++) {
        double sum = 0.0;
        for (int i = 0; i + lag < BLOCKS; i++) sum += (rank[i] - (n + 1.0) / 2.0) * (rank[i + lag] - (n + 1.0) / 2.0);
        double correlation = sum / total;
        if (fabs(correlation) > 1.96 / sqrt(n)) correction += (n - lag) * (n - lag - 1.0) * (n - lag - 2.0) * correlation;
    }
    double factor = 1.0 + 2.0 / (n * (n - 1.0) * (n - 2.0)) * correction;
    return (s - 1.0) / sqrt(variance * fmax(factor, 1.0)); // never more certain than independent data would be
}

// What there is to see in a series: its lower envelope, and the trend of that.
typedef struct trend {
    double envelope[BLOCKS];
    double slope, slope_low, slope_high; // a block
    double growth, noise;                // of the envelope; noise: scatter about the line
    double z, rest[BLOCKS / 4];          // Mann-Kendall; growth from quarter to quarter
    double straight;                     // squares about three levels over squares about the line
} trend;

static double squares(const double *y, int begin, int end)
{
    double mean = 0.0, sum = 0.0;
    for (int i = begin; i < end; i++) mean += y[i] / (end - begin);
    for (int i = begin; i < end; i++) sum += (y[i] - mean) * (y[i] - mean);
    return sum;
}

static double straightness(const double *y, double slope)
{
    double rest[BLOCKS], levels = INFINITY;
    for (int i = 0; i < BLOCKS; i++) rest[i] = y[i] - slope * i;
    for (int one = 1; one < BLOCKS - 1; one++)
        for (int two = one + 1; two < BLOCKS; two++)
            levels = fmin(levels, squares(y, 0, one) + squares(y, one, two) + squares(y, two, BLOCKS));
    double line = squares(rest, 0, BLOCKS);
    return line > 0.0 ? levels / line : INFINITY;
}

static void trend_of(const double *values, int n_samples, trend *t)
{
    double block[MEMORY_SAMPLES], slopes[BLOCKS * (BLOCKS - 1) / 2], scatter[BLOCKS];
    int first = n_samples / 10, n = n_samples - first, n_slopes = 0;
    for (int b = 0; b < BLOCKS; b++) {
        int begin = first + (int)((int64_t)n * b / BLOCKS), end = first + (int)((int64_t)n * (b + 1) / BLOCKS);
        memcpy(block, values + begin, (size_t)(end - begin) * sizeof *block);
        base_sort(block, (size_t)(end - begin));
        t->envelope[b] = statistics_percentile(block, end - begin, 0.1);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int j = i + 1; j < BLOCKS; j++) slopes[n_slopes++] = (t->envelope[j] - t->envelope[i]) / (j - i);
    base_sort(slopes, (size_t)n_slopes);
    // Kendall's interval at 95 %: 1.96 standard deviations of his S, sqrt(n (n-1) (2n+5) / 18), about the middle.
    double reach = 1.96 * sqrt(BLOCKS * (BLOCKS - 1.0) * (2.0 * BLOCKS + 5.0) / 18.0) / 2.0;
    t->slope = statistics_percentile(slopes, n_slopes, 0.5);
    t->slope_low = slopes[(int)fmax(n_slopes / 2.0 - reach, 0.0)];
    t->slope_high = slopes[(int)fmin(n_slopes / 2.0 + reach, n_slopes - 1.0)];
    t->growth = t->envelope[BLOCKS - 1] - t->envelope[0];
    for (int i = 0; i < BLOCKS; i++) scatter[i] = t->envelope[i] - t->slope * i;
    double middle = statistics_median(scatter, BLOCKS);
    for (int i = 0; i < BLOCKS; i++) scatter[i] = fabs(scatter[i] - middle);
    t->noise = 1.4826 * statistics_median(scatter, BLOCKS);
    t->z = mann_kendall(t->envelope);
    t->straight = straightness(t->envelope, t->slope);
    for (int quarter = 0; quarter < 3; quarter++) {
        double here = 0.0, next = 0.0;
        for (int i = 0; i < BLOCKS / 4; i++) {
            here += t->envelope[quarter * BLOCKS / 4 + i];
            next += t->envelope[(quarter + 1) * BLOCKS / 4 + i];
        }
        t->rest[quarter] = (next - here) / (BLOCKS / 4);
    }
}

// A straight leak gains 4/15 of its growth from each quarter to the next; one buffer that grew once gains all of it in
// one, and in the others only noise, hence 5 %. A cache that fills ever more slowly ends below 0.4 of what it gained first.
// Two buffers that grew at different times leave three levels, which a line fits far worse than three constants do.
static leak_kind kind_of(const trend *t, double least)
{
    bool enough = t->growth > least, steady = t->z > 2.576, goes_on = t->rest[2] > 0.05 * t->growth; // z: p < 0.005
    if (!enough) return LEAK_STABLE;
    for (int quarter = 0; quarter < 3; quarter++) steady = steady && t->rest[quarter] > 0.05 * t->growth;
    bool slows = t->rest[2] < 0.4 * t->rest[0];
    if (steady && !slows && t->straight > 0.4) return LEAK_GROWING;
    if (goes_on && t->z > 1.645) return LEAK_INCONCLUSIVE;
    return goes_on && t->rest[2] > 0.5 * t->growth ? LEAK_INCONCLUSIVE : LEAK_BOUNDED; // grew only at the very end
}

leak_verdict leak_judge(const double *bytes, int n_samples)
{
    leak_verdict verdict = {.kind = LEAK_UNKNOWN, .detectable = NAN};
    trend t;
    if (n_samples < LEAK_MIN_SAMPLES || n_samples > MEMORY_SAMPLES) return verdict;
    trend_of(bytes, n_samples, &t);
    // 0.4 % of the base or 64 kB (a few pages more or less mean nothing), whichever is more.
    double least = fmax(0.004 * fmax(t.envelope[0], 1.0), 65536.0), per_sample = (double)BLOCKS / (0.9 * n_samples);
    verdict.kind = kind_of(&t, least);
    // A leak of this size is seen in nine of ten series, and in all without noise.
    verdict.detectable = fmax(1.05 * least + 3.0 * t.noise, 6.0 * t.noise) / (BLOCKS - 1) * per_sample;
    if (verdict.kind == LEAK_GROWING || verdict.kind == LEAK_INCONCLUSIVE) {
        verdict.bytes_per_sample = t.slope * per_sample;
        verdict.low = t.slope_low * per_sample;
        verdict.high = t.slope_high * per_sample;
    }
    return verdict;
}

// Least squares of bytes on one quantity.
static void fit(const double *x, const double *y, int n, double *slope, double *explained)
{
    double mx = 0.0, my = 0.0, xx = 0.0, xy = 0.0, yy = 0.0;
    for (int i = 0; i < n; i++) {
        mx += x[i] / n;
        my += y[i] / n;
    }
    for (int i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        xy += (x[i] - mx) * (y[i] - my);
        yy += (y[i] - my) * (y[i] - my);
    }
    *slope = xx > 0.0 ? xy / xx : 0.0;
    *explained = xx > 0.0 && yy > 0.0 ? xy * xy / (xx * yy) : 0.0;
}

static void fit_changes(const double *x, const double *y, int n, double *slope, double *explained)
{
    double dx[MEMORY_SAMPLES], dy[MEMORY_SAMPLES];
    for (int i = 0; i + 1 < n; i++) {
        dx[i] = x[i + 1] - x[i];
        dy[i] = y[i + 1] - y[i];
    }
    fit(dx, dy, n - 1, slope, explained);
}

// Memory that follows the work is no leak: the work must itself grow, memory must follow it at a plausible price, and what
// is left of memory without it must not grow. A leak beside growing work keeps a residual that grows.
leak_verdict leak_judge_physics(const double *bytes, const double *const *work, int n_work, int n_samples)
{
    enum { BYTES_MAX = 1 << 20 }; // of one atom or pair; more is not what a force field keeps for one
    leak_verdict verdict = leak_judge(bytes, n_samples);
    if (verdict.kind != LEAK_GROWING && verdict.kind != LEAK_INCONCLUSIVE) return verdict;
    for (int k = 0; k < n_work; k++) {
        double slope, explained, rest[MEMORY_SAMPLES];
        trend of_work, of_rest;
        trend_of(work[k], n_samples, &of_work);
        if (!(of_work.z > 2.576 && of_work.growth > 0.0)) continue;
        int first = n_samples / 10;
        // The price from changes between samples, which a leak hardly touches; from the levels where memory follows in
        // steps (capacities) and those changes say nothing.
        fit_changes(work[k] + first, bytes + first, n_samples - first, &slope, &explained);
        if (explained < 0.5) fit(work[k] + first, bytes + first, n_samples - first, &slope, &explained);
        if (!(slope > 0.0 && slope < BYTES_MAX && explained > 0.5)) continue;
        for (int i = 0; i < n_samples; i++) rest[i] = bytes[i] - slope * work[k][i];
        trend_of(rest, n_samples, &of_rest);
        double least = fmax(fmax(0.004 * fmax(bytes[0], 1.0), 65536.0), 0.2 * slope * of_work.growth);
        if (kind_of(&of_rest, least) != LEAK_STABLE) continue;
        verdict.kind = LEAK_EXPLAINED;
        verdict.explained_by = k;
        verdict.bytes_per_unit = slope;
        return verdict;
    }
    return verdict;
}
