// SPDX-License-Identifier: MIT
// series.c: step times of runs of any length. A long run keeps a log-linear histogram, in the manner of HdrHistogram:
// each octave is cut into 256 equal buckets, so that none is wider than 0.4 % of its values. Of each `every` steps one value is kept, by lot:
// of the first ones all or none could be of a period that steps have.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "measure/measure.h"

// 1 ns to 2^41 ns (37 minutes), on either side of a bucket for |value| < 1 ns.
enum { PER_OCTAVE = 256, OCTAVES = 41, SIDE = PER_OCTAVE * OCTAVES, SERIES_BUCKETS = 2 * SIDE + 1 };

static int bucket_of(double value)
{
    int octave;
    double magnitude = fabs(value);
    if (!(magnitude >= 1.0)) return SIDE;
    double mantissa = frexp(magnitude, &octave); // magnitude = mantissa · 2^octave, 0.5 <= mantissa < 1
    int index = (octave - 1) * PER_OCTAVE + (int)((mantissa * 2.0 - 1.0) * PER_OCTAVE);
    if (index >= SIDE) index = SIDE - 1;
    return value > 0.0 ? SIDE + 1 + index : SIDE - 1 - index;
}

static void bucket_edges(int bucket, double *low, double *high)
{
    if (bucket == SIDE) {
        *low = -1.0;
        *high = 1.0;
        return;
    }
    int index = bucket > SIDE ? bucket - SIDE - 1 : SIDE - 1 - bucket;
    double near = ldexp(1.0 + (double)(index % PER_OCTAVE) / PER_OCTAVE, index / PER_OCTAVE);
    double far = ldexp(1.0 + (double)(index % PER_OCTAVE + 1) / PER_OCTAVE, index / PER_OCTAVE);
    *low = bucket > SIDE ? near : -far;
    *high = bucket > SIDE ? far : -near;
}

mlff_status series_init(series *s, int64_t n_expected, int64_t limit)
{
    assert(limit >= 2);
    *s = (series){.every = 1, .min = INFINITY, .max = -INFINITY};
    s->capacity = n_expected < limit ? n_expected : limit;
    s->values = base_alloc((size_t)s->capacity, sizeof *s->values, "times of steps");
    if (!s->values) return MLFF_ERR_MEMORY;
    if (n_expected > limit) {
        s->counts = base_alloc(SERIES_BUCKETS, sizeof *s->counts, "a histogram of step times");
        s->lots = base_alloc((size_t)s->capacity, sizeof *s->lots, "lots of steps");
        if (!s->counts || !s->lots) {
            series_free(s);
            return MLFF_ERR_MEMORY;
        }
    }
    return MLFF_OK;
}

mlff_status series_keep_tags(series *s)
{
    s->tags = base_alloc((size_t)s->capacity, sizeof *s->tags, "tags of steps");
    s->parts = base_alloc((size_t)s->capacity * N_PARTS, sizeof *s->parts, "parts of steps");
    return s->tags && s->parts ? MLFF_OK : MLFF_ERR_MEMORY;
}

void series_free(series *s)
{
    base_free(s->tags);
    base_free(s->parts);
    base_free(s->values);
    base_free(s->counts);
    base_free(s->lots);
    *s = (series){0};
}

static void keep_slow(series *s, double value, uint32_t tags, const float *parts)
{
    int place = s->n_slowest;
    if (place == SERIES_SLOWEST) {
        if (value <= s->slowest[place - 1].value) return;
        place--;
    } else {
        s->n_slowest++;
    }
    for (; place > 0 && s->slowest[place - 1].value < value; place--) s->slowest[place] = s->slowest[place - 1];
    s->slowest[place] = (series_slow){.step = s->n, .value = value, .tags = tags};
    for (int k = 0; k < N_PARTS; k++) s->slowest[place].parts[k] = parts ? parts[k] : NAN;
}

void series_add(series *s, double value, uint32_t tags)
{
    series_add_parts(s, value, tags, NULL);
}

// The step with the largest lot of a group is kept, so that it does not depend on when the series was thinned.
static uint32_t lot_of(int64_t step)
{
    uint64_t x = (uint64_t)step * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

static void keep(series *s, double value, uint32_t tags, const float *parts)
{
    const int64_t i = s->n_values - 1;
    s->values[i] = value;
    if (s->lots) s->lots[i] = lot_of(s->n);
    if (s->tags) s->tags[i] = (uint16_t)tags;
    for (int k = 0; s->parts && k < N_PARTS; k++) s->parts[i * N_PARTS + k] = parts ? parts[k] : NAN;
}

static void thin(series *s)
{
    assert(s->counts); // else more values than series_init was given
    for (int64_t i = 0; 2 * i < s->n_values; i++) {
        const int64_t first = 2 * i, second = first + 1;
        const int64_t from = second < s->n_values && s->lots[second] > s->lots[first] ? second : first;
        s->values[i] = s->values[from];
        s->lots[i] = s->lots[from];
        if (s->tags) s->tags[i] = s->tags[from];
        if (s->parts) memmove(s->parts + i * N_PARTS, s->parts + from * N_PARTS, N_PARTS * sizeof *s->parts);
    }
    s->n_values = (s->n_values + 1) / 2;
    s->every *= 2;
}

int64_t series_step(const series *s, int64_t i)
{
    int64_t kept = i * s->every;
    for (int64_t step = kept + 1; step < (i + 1) * s->every && step < s->n; step++)
        if (lot_of(step) > lot_of(kept)) kept = step;
    return kept;
}

void series_add_parts(series *s, double value, uint32_t tags, const float *parts)
{
    keep_slow(s, value, tags, parts);
    if (s->counts) {
        uint32_t *count = &s->counts[bucket_of(value)];
        if (*count < UINT32_MAX) ++*count;
    }
    if (s->n % s->every == 0 && s->n_values == s->capacity) thin(s);
    if (s->n % s->every == 0) {
        s->n_values++;
        keep(s, value, tags, parts);
    } else if (lot_of(s->n) > s->lots[s->n_values - 1]) {
        keep(s, value, tags, parts);
    }
    s->n++;
    double step = value - s->mean;
    s->mean += step / (double)s->n;
    s->sum_squares += step * (value - s->mean);
    if (value < s->min) s->min = value;
    if (value > s->max) s->max = value;
}

static double histogram_percentile(const series *s, double fraction)
{
    double rank = fraction * (double)(s->n - 1), below = 0.0;
    for (int bucket = 0; bucket < SERIES_BUCKETS; bucket++) {
        double count = (double)s->counts[bucket];
        if (count == 0.0 || rank >= below + count) {
            below += count;
            continue;
        }
        double low, high;
        bucket_edges(bucket, &low, &high);
        double value = low + (high - low) * (rank - below + 0.5) / count; // values spread evenly over their bucket
        return fmin(fmax(value, s->min), s->max);
    }
    return s->max;
}

mlff_status series_statistics(const series *s, double scale, mlff_statistics *statistics_out)
{
    mlff_statistics result = {0};
    if (s->n > 0 && s->every == 1) {
        mlff_status status = mlff_statistics_of(s->values, s->n_values, &result);
        if (status != MLFF_OK) return status;
        result.mean = s->mean;
    } else if (s->n > 0) {
        result.n = s->n;
        result.mean = s->mean;
        result.std = sqrt(s->sum_squares / (double)(s->n - 1));
        result.cv = s->mean != 0.0 ? result.std / s->mean : 0.0;
        result.min = s->min;
        result.max = s->max;
        result.median = histogram_percentile(s, 0.50);
        result.p95 = histogram_percentile(s, 0.95);
        result.p99 = histogram_percentile(s, 0.99);
        double q1 = histogram_percentile(s, 0.25), q3 = histogram_percentile(s, 0.75);
        double fence_low = q1 - 3.0 * (q3 - q1), fence_high = q3 + 3.0 * (q3 - q1);
        result.fence_low = fence_low;
        result.fence_high = fence_high;
        for (int bucket = 0; bucket < SERIES_BUCKETS; bucket++) {
            double low, high;
            if (s->counts[bucket] == 0) continue;
            bucket_edges(bucket, &low, &high);
            if (high < fence_low || low > fence_high) result.n_outliers += (int64_t)s->counts[bucket];
        }
    }
    double *fields[] = {&result.mean, &result.median, &result.std,       &result.min,       &result.max,
                        &result.p95,  &result.p99,    &result.fence_low, &result.fence_high};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) *fields[i] *= scale;
    *statistics_out = result;
    return MLFF_OK;
}
