// SPDX-License-Identifier: MIT
// permutation.c: are two groups of runs different? A run is one number here, the logarithm of its median step: steps of one run
// share its memory layout, its clock and its neighbors on the machine, so that tests on steps find differences where there are
// none. The test is the exact permutation test of the difference of means; it holds for any distribution.
#include <math.h>
#include <string.h>

#include "measure/measure.h"

enum { EXACT_MAX = 20, SPLITS_RANDOM = 20000 };

typedef struct splits {
    const double *pooled;
    int n_a, n_b;
    double observed;
    int64_t n, n_above, n_below;
} splits;

static void splits_add(splits *s, const unsigned char *in_b)
{
    double sum_a = 0.0, sum_b = 0.0, tolerance = 1e-12;
    for (int i = 0; i < s->n_a + s->n_b; i++) *(in_b[i] ? &sum_b : &sum_a) += s->pooled[i];
    double difference = sum_b / s->n_b - sum_a / s->n_a;
    s->n_above += difference >= s->observed - tolerance;
    s->n_below += difference <= s->observed + tolerance;
    s->n++;
}

static void splits_exact(splits *s)
{
    unsigned char in_b[EXACT_MAX];
    int n = s->n_a + s->n_b;
    for (uint32_t mask = (1u << s->n_b) - 1; mask < 1u << n;) {
        for (int i = 0; i < n; i++) in_b[i] = mask >> i & 1;
        splits_add(s, in_b);
        uint32_t lowest = mask & -mask, next = mask + lowest; // the next larger number with as many bits
        mask = (((next ^ mask) >> 2) / lowest) | next;
    }
}

// The groups themselves are one of the splits, as they are among all.
static void splits_random(splits *s, unsigned char *in_b)
{
    int n = s->n_a + s->n_b;
    uint64_t draw = 0;
    for (int i = 0; i < n; i++) in_b[i] = i >= s->n_a;
    splits_add(s, in_b);
    for (int split = 0; split < SPLITS_RANDOM; split++) {
        for (int i = n - 1; i > 0; i--) {
            int other = (int)(base_random_uniform(20250131, 7, draw++) * (i + 1));
            unsigned char kept = in_b[i];
            in_b[i] = in_b[other];
            in_b[other] = kept;
        }
        splits_add(s, in_b);
    }
}

mlff_status permutation_test(const double *a, int n_a, const double *b, int n_b, double *p_out)
{
    mlff_status status = MLFF_OK;
    int n = n_a + n_b;
    unsigned char *in_b = base_alloc((size_t)n, 1, "permutations");
    double *pooled = base_alloc((size_t)n, sizeof *pooled, "runs");
    if (!pooled || !in_b) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    memcpy(pooled, a, (size_t)n_a * sizeof *a);
    memcpy(pooled + n_a, b, (size_t)n_b * sizeof *b);
    splits s = {.pooled = pooled, .n_a = n_a, .n_b = n_b};
    for (int i = 0; i < n; i++) s.observed += i >= n_a ? pooled[i] / n_b : -pooled[i] / n_a;
    if (n <= EXACT_MAX)
        splits_exact(&s);
    else
        splits_random(&s, in_b);
    *p_out = fmin(1.0, 2.0 * (double)(s.n_above < s.n_below ? s.n_above : s.n_below) / (double)s.n);
done:
    base_free(pooled);
    base_free(in_b);
    return status;
}

int permutation_runs_needed(double alpha)
{
    int n = 1;
    for (double ways = 2.0; 2.0 / ways > alpha; n++) ways *= (2.0 * n + 1.0) * (2.0 * n + 2.0) / ((n + 1.0) * (n + 1.0));
    return n;
}
