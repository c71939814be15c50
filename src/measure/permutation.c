// SPDX-License-Identifier: MIT
// permutation.c: are two groups of runs different, and by how much? A run is one number here, the logarithm of its median step:
// steps of one run share its memory layout, its clock and its neighbours on the machine, so that tests on steps find
// differences where there are none. The test is the exact permutation test of the difference of means, and the interval
// is that test inverted: the shifts of one group that it would not reject. Both hold for any distribution.
#include <math.h>
#include <string.h>

#include "measure.h"

enum { EXACT_MAX = 20, SPLITS_MAX = 184756, SPLITS_RANDOM = 20000 };

// Shift at which a split of the pooled values is as extreme as the groups themselves; *extreme is its difference.
static double split_shift(const double *pooled, int n_a, int n_b, const unsigned char *in_b, double observed, double *difference)
{
    double sum_a = 0.0, sum_b = 0.0;
    int kept = 0; // of b, that are still in b
    for (int i = 0; i < n_a + n_b; i++) {
        if (in_b[i]) {
            sum_b += pooled[i];
            kept += i >= n_a;
        } else {
            sum_a += pooled[i];
        }
    }
    *difference = sum_b / n_b - sum_a / n_a;
    double moves = (double)kept / n_b - (double)(n_b - kept) / n_a; // how the difference follows a shift of b
    return (observed - *difference) / (1.0 - moves);
}

typedef struct splits {
    double *shifts; // of all splits but the groups themselves
    int n, n_above, n_below;
} splits;

static void splits_add(splits *s, const double *pooled, int n_a, int n_b, const unsigned char *in_b, double observed)
{
    double difference, tolerance = 1e-12;
    double shift = split_shift(pooled, n_a, n_b, in_b, observed, &difference);
    if (!isfinite(shift)) return; // the groups themselves
    s->n_above += difference >= observed - tolerance;
    s->n_below += difference <= observed + tolerance;
    s->shifts[s->n++] = shift;
}

static void splits_exact(splits *s, const double *pooled, int n_a, int n_b, double observed)
{
    unsigned char in_b[EXACT_MAX];
    int n = n_a + n_b;
    for (uint32_t mask = (1u << n_b) - 1; mask < 1u << n;) {
        for (int i = 0; i < n; i++) in_b[i] = mask >> i & 1;
        splits_add(s, pooled, n_a, n_b, in_b, observed);
        uint32_t lowest = mask & -mask, next = mask + lowest; // the next larger number with as many bits
        mask = (((next ^ mask) >> 2) / lowest) | next;
    }
}

static void splits_random(splits *s, const double *pooled, int n_a, int n_b, double observed, unsigned char *in_b)
{
    int n = n_a + n_b;
    uint64_t draw = 0;
    for (int split = 0; split < SPLITS_RANDOM; split++) {
        for (int i = 0; i < n; i++) in_b[i] = i >= n_a;
        for (int i = n - 1; i > 0; i--) {
            int other = (int)(base_random_uniform(20250131, 7, draw++) * (i + 1));
            unsigned char kept = in_b[i];
            in_b[i] = in_b[other];
            in_b[other] = kept;
        }
        splits_add(s, pooled, n_a, n_b, in_b, observed);
    }
}

// C(n, k), or a number beyond `most`.
static double choose(int n, int k, double most)
{
    double result = 1.0;
    for (int i = 1; i <= k && result <= most; i++) result *= (double)(n - k + i) / i;
    return result;
}

mlff_status compare_groups(const double *a, int n_a, const double *b, int n_b, double alpha, compare_result *result_out)
{
    mlff_status status = MLFF_OK;
    int n = n_a + n_b;
    splits s = {0};
    unsigned char *in_b = NULL;
    double *pooled = base_alloc((size_t)n, sizeof *pooled, "runs");
    bool exact = n <= EXACT_MAX;
    s.shifts = base_alloc(exact ? SPLITS_MAX : SPLITS_RANDOM, sizeof *s.shifts, "permutations");
    in_b = base_alloc((size_t)n, 1, "permutations");
    if (!pooled || !s.shifts || !in_b) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    memcpy(pooled, a, (size_t)n_a * sizeof *a);
    memcpy(pooled + n_a, b, (size_t)n_b * sizeof *b);

    compare_result result = {.low = -INFINITY, .high = INFINITY};
    double mean[2] = {0.0, 0.0}, squares = 0.0;
    for (int i = 0; i < n; i++) mean[i >= n_a] += pooled[i] / (i >= n_a ? n_b : n_a);
    for (int i = 0; i < n; i++) squares += (pooled[i] - mean[i >= n_a]) * (pooled[i] - mean[i >= n_a]);
    result.difference = mean[1] - mean[0];
    result.deviation = n > 2 ? sqrt(squares / (n - 2)) : NAN;
    if (exact)
        splits_exact(&s, pooled, n_a, n_b, result.difference);
    else
        splits_random(&s, pooled, n_a, n_b, result.difference, in_b);

    double total = s.n + 1.0, above = (1.0 + s.n_above) / total, below = (1.0 + s.n_below) / total;
    result.p = fmin(1.0, 2.0 * fmin(above, below));
    int rank = (int)floor(0.5 * alpha * total);
    if (rank >= 1 && s.n > 0) {
        statistics_sort(s.shifts, (size_t)s.n);
        result.low = s.shifts[rank - 1];
        result.high = s.shifts[s.n - rank];
    }
    result.detectable = compare_detectable(result.deviation, n_a, n_b, alpha);
    *result_out = result;
done:
    base_free(pooled);
    base_free(s.shifts);
    base_free(in_b);
    return status;
}

int compare_runs_needed(double alpha)
{
    int n = 2;
    while (2.0 / choose(2 * n, n, 1e12) > alpha) n++;
    return n;
}

// Quantile of Student's distribution from the normal one's (Fisher and Cornish's expansion; within 2 % from 4 degrees on).
static double student(double z, double nu)
{
    double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4.0 * nu) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * nu * nu) +
           (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * nu * nu * nu);
}

double compare_detectable(double deviation, int n_a, int n_b, double alpha)
{
    double nu = n_a + n_b - 2.0;
    if (nu < 1.0 || 2.0 / choose(n_a + n_b, n_b, 1e12) > alpha) return INFINITY;
    return (student(1.959964, nu) + student(1.281552, nu)) * deviation * sqrt(1.0 / n_a + 1.0 / n_b);
}
