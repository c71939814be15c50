// SPDX-License-Identifier: MIT
// compare.c: did a change help? Two groups of runs, the ratio of their steps with an interval, and one of four answers. The median
// step decides together with the mean; tails and stages are judged apart.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { MIN_LATENCIES = 120 }; // of a run whose blocks stand in for runs
#define ALPHA 0.05
// Where the floor is less than GUARD standard errors, it does not guard against chance (0.1 %), and a stricter test decides: the
// strictest that 5 + 5 runs and 9 pairs can pass. Median and mean are both judged, each pair test at half of 1 %.
#define GUARD 3.3
#define ALPHA_STRICT_GROUPS 0.01
#define ALPHA_STRICT_PAIRS 0.005
#define FAR 2.0 // where the whole interval is beyond this factor, no stricter test is needed
#define FLOOR_DEFAULT 0.01
#define PAIRS_POWER 1.65 // (1.96 + 1.28) / 1.96: of pairs, so many half widths of the interval at 95 % are found with 90 % power,
#define PAIRS_POWER_STRICT 2.09 // (2.81 + 1.28) / 1.96: where the stricter test decides
#define RANK_TEST 1.1           // at few runs the exact rank test needs a tenth more than the bootstrap's normal theory,
#define RANK_TEST_STRICT 1.5    // and half as much more at 1 %

mlff_comparison_options mlff_comparison_options_default(void)
{
    return (mlff_comparison_options){.struct_size = sizeof(mlff_comparison_options), .noise_floor = NAN, .margin = 0.01};
}

void mlff_comparison_destroy(mlff_comparison *comparison)
{
    if (!comparison) return;
    for (int i = 0; i < comparison->n_rows; i++) base_free((char *)(uintptr_t)comparison->rows[i].name);
    base_free(comparison->rows);
    base_free(comparison->name_a);
    base_free(comparison->name_b);
    base_free(comparison);
}

// ---- one number a run ----------------------------------------------------------------------------

// The steps of a run's steady part; of all where there is none.
static mlff_status run_of(const mlff_profile *profile, bootstrap_run *run_out)
{
    int64_t first = profile->steady.settled ? profile->steady.first / profile->latency_every : 0;
    if (profile->n_latency - first < 1) { // a report may hold no steps
        bootstrap_run_of_value(profile_typical_ms(profile), run_out);
        return MLFF_OK;
    }
    return bootstrap_run_of_steps(profile->latency_ms + first, profile->n_latency - first, run_out);
}

static int stage_of(const mlff_profile *profile, const profile_stage *like)
{
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        if (row->shown.layer == like->shown.layer && strcmp(row->name, like->name) == 0 && strcmp(row->phase, like->phase) == 0)
            return i;
    }
    return -1;
}

// A stage's typical time in a run, or NaN. Rows that no clock measured (unattributed, parts of a split) have no median.
static double stage_ms(const mlff_profile *profile, const profile_stage *like)
{
    int i = stage_of(profile, like);
    if (i < 0) return NAN;
    const mlff_profile_stage *row = &profile->stages[i].shown;
    return isfinite(row->median_ms) ? row->median_ms : row->mean_ms;
}

// ---- the answer ----------------------------------------------------------------------------------

static mlff_change judge(double floor_share, double margin_share, const mlff_comparison_row *row, double alpha)
{
    double difference = log(row->ratio), low = log(row->low), high = log(row->high), margin = log1p(margin_share);
    if (low > 0.0 && difference > log1p(floor_share) && row->p <= alpha) return MLFF_SLOWER;
    if (high < 0.0 && difference < -log1p(floor_share) && row->p <= alpha) return MLFF_FASTER;
    if (low > -margin && high < margin) return MLFF_SAME;
    return MLFF_UNCLEAR;
}

// Standard error of the difference between the sides.
static double standard_error(const double *a, int n_a, const double *b, int n_b, bool paired)
{
    double squares = 0.0, middle_a = statistics_median(a, n_a), middle_b = statistics_median(b, n_b);
    for (int i = 0; paired && i < n_a; i++) squares += (b[i] - a[i] - middle_b + middle_a) * (b[i] - a[i] - middle_b + middle_a);
    if (paired) return n_a > 1 ? sqrt(squares / (n_a - 1) / n_a) : 0.0;
    for (int i = 0; i < n_a; i++) squares += (a[i] - middle_a) * (a[i] - middle_a);
    for (int i = 0; i < n_b; i++) squares += (b[i] - middle_b) * (b[i] - middle_b);
    return n_a + n_b > 2 ? sqrt(squares / (n_a + n_b - 2) * (1.0 / n_a + 1.0 / n_b)) : 0.0;
}

static bool is_noisy(double floor_share, const double *a, int n_a, const double *b, int n_b, bool paired)
{
    return GUARD * standard_error(a, n_a, b, n_b, paired) > log1p(floor_share);
}

static mlff_status shift_between(const double *a, int n_a, const double *b, int n_b, bool paired, double alpha, shift_result *out)
{
    return paired ? shift_of_pairs(a, b, n_a, alpha, out) : shift_of_groups(a, n_a, b, n_b, alpha, out);
}

// Fills the row from logarithms of values; enough of them are there for an answer, unless noise asks for the stricter test.
static mlff_status judge_values(double floor_share, double margin_share, const double *a, int n_a, const double *b, int n_b,
                                bool paired, mlff_comparison_row *row)
{
    shift_result r, strict;
    mlff_status status = MLFF_OK;
    MLFF_TRY(shift_between(a, n_a, b, n_b, paired, ALPHA, &r));
    row->a_ms = exp(statistics_median(a, n_a));
    row->b_ms = exp(statistics_median(b, n_b));
    row->ratio = exp(r.shift);
    row->low = exp(r.low);
    row->high = exp(r.high);
    row->p = r.p;
    row->change = judge(floor_share, margin_share, row, ALPHA);
    bool differs = row->change == MLFF_FASTER || row->change == MLFF_SLOWER;
    bool far = row->low > FAR || row->high < 1.0 / FAR;
    if (differs && !far && is_noisy(floor_share, a, n_a, b, n_b, paired)) {
        int needed = paired ? shift_pairs_needed(ALPHA_STRICT_PAIRS) : shift_groups_needed(ALPHA_STRICT_GROUPS);
        MLFF_TRY(shift_between(a, n_a, b, n_b, paired, paired ? ALPHA_STRICT_PAIRS : ALPHA_STRICT_GROUPS, &strict));
        if (!(strict.low > 0.0 || strict.high < 0.0)) row->change = MLFF_UNCLEAR;
        if (n_a < needed || n_b < needed) row->runs_needed = needed;
    }
done:
    return status;
}

mlff_status mlff_compare_values(const double *a, int n_a, const double *b, int n_b, const mlff_comparison_options *options,
                                mlff_comparison_row *row_out)
{
    if (!a || !b || !row_out || n_a < 1 || n_b < 1)
        return mlff_fail(MLFF_ERR_USAGE, "comparison of values: values or the output is NULL, or a side is empty");
    mlff_comparison_options used = mlff_comparison_options_default();
    mlff_status status = base_take_options(__func__, "mlff_comparison_options", options, sizeof used, &used);
    if (status != MLFF_OK) return status;
    if (used.paired && n_a != n_b)
        return mlff_fail(MLFF_ERR_USAGE, "comparison of values: %d and %d values are not pairs", n_a, n_b);
    double *logarithms = base_alloc((size_t)(n_a + n_b), sizeof *logarithms, "values to compare");
    if (!logarithms) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n_a + n_b; i++) {
        double value = i < n_a ? a[i] : b[i - n_a];
        if (!(value > 0.0 && isfinite(value)))
            MLFF_FAIL(MLFF_ERR_VALUE, "comparison of values: %g is not a positive number", value);
        logarithms[i] = log(value);
    }
    mlff_comparison_row row = {.name = ""};
    double floor_share = isfinite(used.noise_floor) ? used.noise_floor : FLOOR_DEFAULT;
    int needed = used.paired ? shift_pairs_needed(ALPHA) : shift_groups_needed(ALPHA);
    if (n_a < needed || n_b < needed) row.runs_needed = needed;
    MLFF_TRY(judge_values(floor_share, used.margin, logarithms, n_a, logarithms + n_a, n_b, used.paired, &row));
    *row_out = row;
done:
    base_free(logarithms);
    return status;
}

// Mean over runs of logarithms, as a time again.
static double middle_ms(const double *logarithms, int n)
{
    double mean = 0.0;
    for (int i = 0; i < n; i++) mean += logarithms[i] / n;
    return exp(mean);
}

static mlff_status compare_steps(mlff_comparison *c, const mlff_profile *const *a, const mlff_profile *const *b)
{
    mlff_status status = MLFF_OK;
    bootstrap_result r;
    mlff_comparison_row *row = &c->rows[0];
    int needed = shift_groups_needed(ALPHA), n_a = c->n_a, n_b = c->n_b, n = n_a + n_b;
    double *values = base_alloc((size_t)n, sizeof *values, "runs");
    bootstrap_run *runs = base_alloc((size_t)n, sizeof *runs, "runs");
    if (!values || !runs) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (int i = 0; i < n; i++) {
        const mlff_profile *profile = i < n_a ? a[i] : b[i - n_a];
        values[i] = log(fmax(profile_typical_ms(profile), 1e-9));
        MLFF_TRY(run_of(profile, &runs[i]));
    }
    MLFF_TRY(bootstrap_difference(runs, n_a, runs + n_a, n_b, ALPHA, &r));
    row->a_ms = middle_ms(values, n_a);
    row->b_ms = middle_ms(values + n_a, n_b);
    row->ratio = row->b_ms / row->a_ms;
    row->low = 0.0;
    row->high = c->detectable = INFINITY;
    row->p = 1.0;
    c->deviation = r.deviation;
    bool enough = n_a >= needed && n_b >= needed;
    row->runs_needed = enough ? 0 : needed;
    c->by_blocks = !enough && a[0]->n_latency >= MIN_LATENCIES && b[0]->n_latency >= MIN_LATENCIES;
    if (!enough && !c->by_blocks) goto done;
    // Blocks know nothing of what differs from run to run; the floor, if it was measured, does.
    double extra = enough ? 0.0 : log1p(c->floor);
    bool noisy = is_noisy(c->floor, values, n_a, values + n_a, n_b, c->paired);
    c->detectable = expm1((!enough ? 1.0 : noisy ? RANK_TEST_STRICT : RANK_TEST) * r.detectable + extra);
    if (enough) {
        MLFF_TRY(judge_values(c->floor, c->margin, values, n_a, values + n_a, n_b, c->paired, row));
        if (c->paired) c->detectable = expm1((noisy ? PAIRS_POWER_STRICT : PAIRS_POWER) * 0.5 * log(row->high / row->low));
    } else {
        row->p = r.p;
        row->low = row->ratio * exp(r.low - r.difference - extra);
        row->high = row->ratio * exp(r.high - r.difference + extra);
        if (c->floor_measured) row->change = judge(c->floor, c->margin, row, ALPHA);
    }
done:
    base_free(values);
    base_free(runs);
    return status;
}

static double metric_of(const mlff_profile *profile, int metric)
{
    const mlff_statistics *t = &profile->summary.latency_ms;
    return metric == 0 ? t->mean : metric == 1 ? t->p95 : t->p99;
}

// Mean and tails: of every step, the slow ones too, which is what a simulation takes. Percentiles beyond which no step of a run lies are those
// of its longest step, which grows with the number of steps.
static mlff_status compare_metrics(mlff_comparison *c, const mlff_profile *const *a, const mlff_profile *const *b)
{
    static const char *const names[METRICS] = {"mean", "P95", "P99"};
    static const double fractions[METRICS] = {0.0, 0.95, 0.99};
    mlff_status status = MLFF_OK;
    int needed = shift_groups_needed(ALPHA), n_a = c->n_a, n_b = c->n_b;
    double *values = base_alloc((size_t)(n_a + n_b), sizeof *values, "runs");
    if (!values) return MLFF_ERR_MEMORY;
    for (int k = 0; k < METRICS; k++) {
        mlff_comparison_row *row = &c->metrics[c->n_metrics];
        bool known = true;
        for (int i = 0; i < n_a + n_b; i++) {
            const mlff_profile *profile = i < n_a ? a[i] : b[i - n_a];
            const double ms = metric_of(profile, k);
            known = known && ms > 0.0 && isfinite(ms) && steadiness_percentile_known(profile, fractions[k]);
            values[i] = log(fmax(ms, 1e-12));
        }
        if (!known) continue;
        *row = (mlff_comparison_row){.name = names[k], .runs_needed = n_a >= needed && n_b >= needed ? 0 : needed};
        MLFF_TRY(judge_values(c->floor, c->margin, values, n_a, values + n_a, n_b, c->paired, row));
        c->n_metrics++;
    }
    for (int i = 0; i < n_a; i++) c->ns_per_day_a += a[i]->summary.ns_per_day / n_a;
    for (int i = 0; i < n_b; i++) c->ns_per_day_b += b[i]->summary.ns_per_day / n_b;
done:
    base_free(values);
    return status;
}

static mlff_status compare_stage(mlff_comparison *c, const mlff_profile *const *a, const mlff_profile *const *b,
                                 const profile_stage *like)
{
    mlff_status status = MLFF_OK;
    bootstrap_result r;
    char path[256];
    bool known = true;
    int needed = shift_groups_needed(ALPHA), n_a = c->n_a, n_b = c->n_b;
    mlff_comparison_row row = {.low = 0.0, .high = INFINITY, .p = 1.0};
    bootstrap_run *runs = base_alloc((size_t)(n_a + n_b), sizeof *runs, "runs");
    if (!runs) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n_a + n_b; i++) {
        double ms = stage_ms(i < n_a ? a[i] : b[i - n_a], like);
        known = known && ms > 0.0;
        bootstrap_run_of_value(ms, &runs[i]);
        *(i < n_a ? &row.a_ms : &row.b_ms) += ms / (i < n_a ? n_a : n_b);
    }
    if (!known) goto done; // not in every run, or nothing to compare
    MLFF_TRY(bootstrap_difference(runs, n_a, runs + n_a, n_b, ALPHA, &r));
    row.ratio = exp(r.difference);
    row.runs_needed = n_a >= needed && n_b >= needed ? 0 : needed;
    if (row.runs_needed == 0) {
        row.low = exp(r.low);
        row.high = exp(r.high);
        row.p = r.p;
        row.change = judge(c->floor, c->margin, &row, ALPHA);
    }
    profile_stage_path(like, path, sizeof path);
    if (!(row.name = base_strdup(path))) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    c->rows[c->n_rows++] = row;
done:
    base_free(runs);
    return status;
}

static int by_p(const void *a, const void *b)
{
    double x = (*(mlff_comparison_row *const *)a)->p, y = (*(mlff_comparison_row *const *)b)->p;
    return (x > y) - (x < y);
}

// Holm: of many stages some look different by chance; from the first p that is too large on, none is called so.
static mlff_status correct_stages(mlff_comparison *c)
{
    int n = c->n_rows - 1;
    mlff_comparison_row **order = base_alloc((size_t)n, sizeof *order, "stages");
    if (!order) return MLFF_ERR_MEMORY;
    for (int i = 0; i < n; i++) order[i] = &c->rows[i + 1];
    qsort(order, (size_t)n, sizeof *order, by_p);
    bool rejected = true;
    for (int i = 0; i < n; i++) {
        rejected = rejected && order[i]->p <= ALPHA / (n - i);
        if (!rejected && (order[i]->change == MLFF_FASTER || order[i]->change == MLFF_SLOWER)) order[i]->change = MLFF_UNCLEAR;
    }
    base_free(order);
    return MLFF_OK;
}

static void note_changes(mlff_comparison *c, const mlff_profile *a, const mlff_profile *b)
{
    static const char *const keys[] = {"device", "precision", "cpu_path", "threads", "mlff_version", "compiler"};
    size_t length = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && length < sizeof c->changed; i++) {
        const environment *in_a = i < 4 ? &a->implementation : &a->environment;
        const environment *in_b = i < 4 ? &b->implementation : &b->environment;
        const char *x = environment_find(in_a, keys[i]), *y = environment_find(in_b, keys[i]);
        if (!x || !y || strcmp(x, y) == 0) continue;
        length += (size_t)snprintf(c->changed + length, sizeof c->changed - length, "%s%s %.100s → %.100s", length ? ", " : "",
                                   keys[i], x, y);
    }
}

static mlff_status check_comparable(mlff_comparison *c, const mlff_profile *const *a, int n_a, const mlff_profile *const *b,
                                    int n_b, bool across)
{
    for (int i = 0; i < n_a + n_b && !*c->difference; i++) {
        const mlff_profile *other = i < n_a ? a[i] : b[i - n_a];
        c->n_partial += other->summary.partial;
        identity_difference(a[0], other, c->difference, sizeof c->difference);
    }
    if (*c->difference && !across)
        return mlff_fail(MLFF_ERR_VALUE,
                         "not comparable: %s; measure both on one machine with the same work, or compare across them (--across)",
                         c->difference);
    return MLFF_OK;
}

mlff_status mlff_profile_compare(const mlff_profile *const *a, int n_a, const mlff_profile *const *b, int n_b,
                                 const mlff_comparison_options *options, mlff_comparison **comparison_out)
{
    if (!a || !b || n_a < 1 || n_b < 1 || !comparison_out)
        return mlff_fail(MLFF_ERR_USAGE, "comparison: a group of runs or the output is NULL, or a group is empty");
    mlff_comparison_options used = mlff_comparison_options_default();
    mlff_status status = base_take_options(__func__, "mlff_comparison_options", options, sizeof used, &used);
    if (status != MLFF_OK) return status;
    mlff_comparison *c = base_alloc(1, sizeof *c, "a comparison");
    if (!c) return MLFF_ERR_MEMORY;
    c->n_a = n_a;
    c->n_b = n_b;
    c->margin = used.margin;
    c->paired = used.paired && n_a == n_b && n_a >= shift_pairs_needed(ALPHA);
    c->floor_measured = isfinite(used.noise_floor);
    c->floor = c->floor_measured ? used.noise_floor : FLOOR_DEFAULT;
    MLFF_TRY(profile_set(&c->name_a, a[0]->name));
    MLFF_TRY(profile_set(&c->name_b, b[0]->name));
    if (!(c->floor >= 0.0 && c->margin > 0.0))
        MLFF_FAIL(MLFF_ERR_USAGE, "comparison: a noise floor of %g and a margin of %g; positive numbers are needed", c->floor,
                  c->margin);
    MLFF_TRY(check_comparable(c, a, n_a, b, n_b, used.across));
    note_changes(c, a[0], b[0]);
    c->rows = base_alloc((size_t)a[0]->n_stages + 1, sizeof *c->rows, "rows of a comparison");
    if (!c->rows) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    c->n_rows = 1;
    if (!(c->rows[0].name = base_strdup("step"))) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    MLFF_TRY(compare_steps(c, a, b));
    MLFF_TRY(compare_metrics(c, a, b));
    for (int i = 0; i < a[0]->n_stages; i++) MLFF_TRY(compare_stage(c, a, b, &a[0]->stages[i]));
    MLFF_TRY(correct_stages(c));
    *comparison_out = c;
    c = NULL;
done:
    mlff_comparison_destroy(c);
    return status;
}

const mlff_comparison_row *mlff_comparison_rows(const mlff_comparison *comparison, int *n_out)
{
    if (n_out) *n_out = comparison->n_rows;
    return comparison->rows;
}

const mlff_comparison_row *mlff_comparison_metrics(const mlff_comparison *comparison, int *n_out)
{
    if (n_out) *n_out = comparison->n_metrics;
    return comparison->metrics;
}

mlff_change mlff_comparison_verdict(const mlff_comparison *comparison)
{
    mlff_change median = comparison->rows[0].change, mean = comparison->n_metrics ? comparison->metrics[0].change : MLFF_UNCLEAR;
    bool faster = median == MLFF_FASTER || mean == MLFF_FASTER, slower = median == MLFF_SLOWER || mean == MLFF_SLOWER;
    return faster && slower ? MLFF_UNCLEAR : faster ? MLFF_FASTER : slower ? MLFF_SLOWER : median;
}

double mlff_comparison_detectable(const mlff_comparison *comparison)
{
    return comparison->detectable;
}
