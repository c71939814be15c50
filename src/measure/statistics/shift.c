// SPDX-License-Identifier: MIT
// shift.c: how far one group of values is shifted against another, so that a single outlier moves nothing: the estimate of Hodges
// and Lehmann (doi:10.1214/aoms/1177704172), the median of all differences, with the interval and p of the rank test it belongs
// to, exact for any distribution. Two groups: all differences b - a, and the rank sum of Wilcoxon, Mann and Whitney. Pairs: means
// of any two differences within pairs (Walsh averages), and Wilcoxon's signed ranks.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

enum { EXACT_MAX = 40, EXACT_PAIRS = 400 }; // values a side, and pairs; beyond that the normal approximation is good to 1e-3

// Ways in which a statistic takes each value 0 … n_max, scaled so that they add up to 1.
static mlff_status rank_sum_distribution(int n_a, int n_b, double **chances_out, int *n_max_out)
{
    // ways[m][u] of the first values: adding one of side b after m of side a raises the statistic by m.
    int n_max = n_a * n_b;
    size_t width = (size_t)n_max + 1;
    double *ways = base_alloc(((size_t)n_a + 1) * width, sizeof *ways, "a rank distribution");
    double *chances = base_alloc(width, sizeof *chances, "a rank distribution");
    if (!ways || !chances) {
        base_free(ways);
        base_free(chances);
        return MLFF_ERR_MEMORY;
    }
    for (int m = 0; m <= n_a; m++) ways[(size_t)m * width] = 1.0; // none of side b
    for (int k = 1; k <= n_b; k++)                                // ways(m, k, u) = ways(m - 1, k, u) + ways(m, k - 1, u - m)
        for (int m = 0; m <= n_a; m++)
            for (int u = n_max; u >= 0; u--) {
                double without = m > 0 && u <= n_max ? ways[(size_t)(m - 1) * width + (size_t)u] : 0.0;
                double with = u >= m ? ways[(size_t)m * width + (size_t)(u - m)] : 0.0;
                ways[(size_t)m * width + (size_t)u] = m == 0 ? (u == 0) : without + with;
            }
    double total = 0.0;
    for (int u = 0; u <= n_max; u++) total += chances[u] = ways[(size_t)n_a * width + (size_t)u];
    for (int u = 0; u <= n_max; u++) chances[u] /= total;
    base_free(ways);
    *chances_out = chances;
    *n_max_out = n_max;
    return MLFF_OK;
}

static mlff_status signed_rank_distribution(int n, double **chances_out, int *n_max_out)
{
    int n_max = n * (n + 1) / 2;
    double *chances = base_alloc((size_t)n_max + 1, sizeof *chances, "a rank distribution");
    if (!chances) return MLFF_ERR_MEMORY;
    chances[0] = 1.0;
    for (int rank = 1; rank <= n; rank++)
        for (int w = n_max; w >= 0; w--) chances[w] = 0.5 * (chances[w] + (w >= rank ? chances[w - rank] : 0.0));
    *chances_out = chances;
    *n_max_out = n_max;
    return MLFF_OK;
}

// From sorted differences: the statistic is the number of those above 0 (half of those that are 0).
static void judge(double *differences, size_t n, const double *chances, int n_max, double variance, double alpha,
                  shift_result *result_out)
{
    base_sort(differences, n);
    double above = 0.0, p = 0.0, reach = normal_quantile(1.0 - 0.5 * alpha) * sqrt(variance);
    for (size_t i = 0; i < n; i++) above += differences[i] > 0.0 ? 1.0 : differences[i] == 0.0 ? 0.5 : 0.0;
    double extreme = fmin(above, (double)n - above);
    int last = -1; // largest value of the statistic at which the two tails together are at most alpha
    if (chances) {
        double tail = 0.0;
        for (int u = 0; u <= n_max && 2.0 * (tail += chances[u]) <= alpha; u++) last = u;
        for (int u = 0; u <= n_max && u <= extreme; u++) p += 2.0 * chances[u];
    } else {
        last = (int)floor(0.5 * (double)n - reach) - 1;
        p = 2.0 * 0.5 * erfc(fmax(0.5 * (double)n - extreme - 0.5, 0.0) / sqrt(2.0 * variance));
    }
    shift_result r = {.shift = statistics_percentile(differences, (int64_t)n, 0.5), .p = fmin(p, 1.0)};
    r.low = last >= 0 ? differences[last] : -INFINITY; // 0 is within if the statistic is among the values beyond `last`
    r.high = last >= 0 ? differences[n - 1 - (size_t)last] : INFINITY;
    *result_out = r;
}

mlff_status shift_of_groups(const double *a, int n_a, const double *b, int n_b, double alpha, shift_result *result_out)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)n_a * (size_t)n_b;
    double *chances = NULL, *differences = base_alloc(n, sizeof *differences, "differences");
    int n_max = 0;
    if (!differences) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n_a; i++)
        for (int k = 0; k < n_b; k++) differences[(size_t)i * (size_t)n_b + (size_t)k] = b[k] - a[i];
    if (n_a <= EXACT_MAX && n_b <= EXACT_MAX) MLFF_TRY(rank_sum_distribution(n_a, n_b, &chances, &n_max));
    judge(differences, n, chances, n_max, (double)n * (n_a + n_b + 1) / 12.0, alpha, result_out);
done:
    base_free(chances);
    base_free(differences);
    return status;
}

mlff_status shift_of_pairs(const double *a, const double *b, int n, double alpha, shift_result *result_out)
{
    mlff_status status = MLFF_OK;
    size_t n_means = (size_t)n * ((size_t)n + 1) / 2, at = 0;
    double *chances = NULL, *means = base_alloc(n_means, sizeof *means, "differences");
    int n_max = 0;
    if (!means) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        for (int k = i; k < n; k++) means[at++] = 0.5 * (b[i] - a[i] + b[k] - a[k]);
    if (n <= EXACT_PAIRS) MLFF_TRY(signed_rank_distribution(n, &chances, &n_max));
    judge(means, n_means, chances, n_max, (double)n * (n + 1.0) * (2.0 * n + 1.0) / 24.0, alpha, result_out);
done:
    base_free(chances);
    base_free(means);
    return status;
}

int shift_pairs_needed(double alpha)
{
    int n = 1;
    while (2.0 * ldexp(1.0, -n) > alpha) n++;
    return n;
}

// Of the (2n choose n) ways to split the values, all equally likely if the groups do not differ, two are the most extreme.
int shift_groups_needed(double alpha)
{
    int n = 1;
    for (double ways = 2.0; 2.0 / ways > alpha; n++) ways *= (2.0 * n + 1.0) * (2.0 * n + 2.0) / ((n + 1.0) * (n + 1.0));
    return n;
}
