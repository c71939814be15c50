// SPDX-License-Identifier: MIT
// leak.c: does memory grow without end? Comparing the last sample with the first calls every cache that fills and every
// buffer that grew once a leak. So: the first tenth is left out, the rest cut into blocks, each block told by its lower
// envelope, and growth must be monotone (Mann-Kendall with the variance of Hamed and Rao for autocorrelated data,
// doi:10.1016/S0022-1694(97)00125-X), go on in every quarter, and be more than noise.
#include <math.h>
#include <string.h>

#include "measure.h"

enum { BLOCKS = 16 };

static double slope_theil_sen(const double *y)
{
    double slopes[BLOCKS * (BLOCKS - 1) / 2];
    int n = 0;
    for (int i = 0; i < BLOCKS; i++)
        for (int j = i + 1; j < BLOCKS; j++) slopes[n++] = (y[j] - y[i]) / (j - i);
    statistics_sort(slopes, (size_t)n);
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

leak_verdict leak_judge(const double *bytes, int n_samples)
{
    leak_verdict verdict = {.kind = LEAK_UNKNOWN};
    double envelope[BLOCKS], block[MEMORY_SAMPLES];
    if (n_samples < LEAK_MIN_SAMPLES || n_samples > MEMORY_SAMPLES) return verdict;

    int first = n_samples / 10, n = n_samples - first;
    for (int b = 0; b < BLOCKS; b++) {
        int begin = first + (int)((int64_t)n * b / BLOCKS), end = first + (int)((int64_t)n * (b + 1) / BLOCKS);
        memcpy(block, bytes + begin, (size_t)(end - begin) * sizeof *block);
        statistics_sort(block, (size_t)(end - begin));
        envelope[b] = statistics_percentile(block, end - begin, 0.1);
    }
    verdict.bytes_per_sample = slope_theil_sen(envelope) * BLOCKS / n;

    // A straight leak gains 4/15 of its growth from each quarter to the next; one buffer that grew once gains all of it in
    // one, and in the others only noise, hence 5 %.
    // 0.4 % of the base or 64 kB (a few pages more or less mean nothing), whichever is more; z of p < 0.005, one-sided.
    double base = fmax(envelope[0], 1.0), growth = envelope[BLOCKS - 1] - envelope[0];
    bool enough = growth > fmax(0.004 * base, 65536.0);
    bool steady = mann_kendall(envelope) > 2.576;
    for (int quarter = 0; quarter < 3; quarter++) {
        double here = 0.0, next = 0.0;
        for (int i = 0; i < BLOCKS / 4; i++) {
            here += envelope[quarter * BLOCKS / 4 + i];
            next += envelope[(quarter + 1) * BLOCKS / 4 + i];
        }
        steady = steady && (next - here) / (BLOCKS / 4) > 0.05 * growth;
    }
    verdict.kind = !enough ? LEAK_STABLE : steady ? LEAK_GROWING : LEAK_BOUNDED;
    if (verdict.kind != LEAK_GROWING) verdict.bytes_per_sample = 0.0;
    return verdict;
}
