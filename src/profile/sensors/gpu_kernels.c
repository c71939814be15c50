// SPDX-License-Identifier: MIT
// gpu_kernels.c: steps after the run with CUPTI listening, and what they say: every kernel by name, device-busy time, the gaps in
// it, and how long the host waited. The run itself is not touched; steps without CUPTI right before and right after tell
// what listening costs.
#include "gpu_kernels.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/run/run.h"

enum { KERNELS_STEPS_MAX = 10000, USUAL_STEPS = 30, SETTLING_STEPS = 2, FADING_STEPS = 200, FADING_NS = 20000000 };

static void clear(kernel_report *report)
{
    for (int i = 0; i < report->n_rows; i++) {
        base_free(report->rows[i].name);
        base_free(report->rows[i].stage);
    }
    for (int i = 0; i < report->n_stages; i++) base_free(report->stages[i].name);
    base_free(report->rows);
    base_free(report->stages);
    *report = (kernel_report){0};
}

void kernel_report_free(kernel_report *report)
{
    if (report) clear(report);
    base_free(report);
}

mlff_status kernel_report_copy(const kernel_report *from, kernel_report **copy_out)
{
    mlff_status status = MLFF_OK;
    kernel_report *copy = base_alloc(1, sizeof *copy, "a report on kernels");
    if (!copy) return MLFF_ERR_MEMORY;
    *copy = *from;
    copy->n_rows = copy->n_stages = 0;
    copy->rows = base_alloc((size_t)from->n_rows, sizeof *copy->rows, "kernels");
    copy->stages = base_alloc((size_t)from->n_stages, sizeof *copy->stages, "stages of kernels");
    if (!copy->rows || !copy->stages) MLFF_TRY(MLFF_ERR_MEMORY);
    for (int i = 0; i < from->n_rows; i++) {
        kernel_row *row = &copy->rows[copy->n_rows++];
        *row = (kernel_row){.calls = from->rows[i].calls, .busy_us = from->rows[i].busy_us, .sum_us = from->rows[i].sum_us};
        MLFF_TRY(profile_set(&row->name, from->rows[i].name));
        MLFF_TRY(profile_set(&row->stage, from->rows[i].stage));
    }
    for (int i = 0; i < from->n_stages; i++) {
        kernel_stage *stage = &copy->stages[copy->n_stages++];
        *stage = from->stages[i];
        stage->name = NULL;
        MLFF_TRY(profile_set(&stage->name, from->stages[i].name));
    }
    *copy_out = copy;
    copy = NULL;
done:
    kernel_report_free(copy);
    return status;
}

// ---- names ---------------------------------------------------------------------------------------

const char *kernel_class(const char *name)
{
    static const struct {
        const char *part, *kind;
    } classes[] = {
        {"gemm", "matrix product"},
        {"gemv", "matrix product"},
        {"cutlass", "matrix product"},
        {"xmma", "matrix product"},
        {"nvjet", "matrix product"},
        {"matmul", "matrix product"},
        {"splitkreduce", "matrix product"},
        {"nccl", "communication"},
        {"scatter", "gather, scatter"},
        {"gather", "gather, scatter"},
        {"index", "gather, scatter"},
        {"sort", "sort, scan"},
        {"scan", "sort, scan"},
        {"unique", "sort, scan"},
        {"cub::", "sort, scan"},
        {"fft", "FFT"},
        {"conv", "convolution"},
        {"softmax", "reduction"},
        {"norm", "reduction"},
        {"reduce", "reduction"},
        {"elementwise", "elementwise"},
        {"catarray", "copy"},
        {"transpose", "copy"},
        {"copy", "copy"},
        {"fill", "copy"},
        {"triton_", "compiled (Triton)"},
    };
    char lower[416];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof lower; n++) lower[n] = (char)tolower((unsigned char)name[n]);
    lower[n] = 0;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strstr(lower, classes[i].part)) return classes[i].kind;
    return "other";
}

static const char *copy_name(int direction)
{
    static const char *const names[] = {[1] = "[copy host to device]",
                                        [2] = "[copy device to host]",
                                        [8] = "[copy device to device]",
                                        [9] = "[copy host to host]",
                                        [10] = "[copy between devices]"};
    bool known = direction >= 0 && direction < (int)(sizeof names / sizeof *names) && names[direction];
    return known ? names[direction] : "[copy]";
}

const char *kernel_name(const activity *window, const activity_record *r)
{
    switch (r->kind) {
    case ACTIVITY_COPY: return copy_name(r->name);
    case ACTIVITY_FILL: return "[memory set]";
    case ACTIVITY_WAIT: return "wait";
    default: return r->name >= 0 && r->name < window->n_names ? window->names[r->name] : "(kernels beyond the first 4096)";
    }
}

static void path_of(const mlff_stage *stage, char *path, size_t path_bytes)
{
    snprintf(path, path_bytes, "%s%s%s", stage->phase, *stage->phase ? "/" : "", stage->name);
}

// The stage that the force field gives to a kernel of this name; else what kind of kernel it seems to be.
static const char *stage_name(const char *name, bool is_kernel, const mlff_callable *callable)
{
    const char *stage = NULL;
    if (!is_kernel) return "copy"; // belongs to no stage: clocks begin after it
    if (callable && callable->kernel_stage) stage = callable->kernel_stage(callable->context, name);
    return stage && *stage ? stage : kernel_class(name);
}

// The row of a record; NULL and an error if out of memory.
static kernel_row *row_of(kernel_report *report, const activity *a, const activity_record *r, const mlff_callable *callable)
{
    const char *name = kernel_name(a, r);
    for (int i = 0; i < report->n_rows; i++)
        if (strcmp(report->rows[i].name, name) == 0) return &report->rows[i];
    if (report->n_rows == KERNELS_MAX_ROWS) return &report->rows[KERNELS_MAX_ROWS - 1];
    kernel_row *row = &report->rows[report->n_rows];
    const char *stage = stage_name(name, r->kind == ACTIVITY_KERNEL, callable);
    if (profile_set(&row->name, name) != MLFF_OK || profile_set(&row->stage, stage) != MLFF_OK) return NULL;
    report->n_rows++;
    return row;
}

static kernel_stage *stage_of(kernel_report *report, const char *name)
{
    for (int i = 0; i < report->n_stages; i++)
        if (strcmp(report->stages[i].name, name) == 0) return &report->stages[i];
    if (report->n_stages == KERNELS_MAX_ROWS) return &report->stages[KERNELS_MAX_ROWS - 1];
    if (profile_set(&report->stages[report->n_stages].name, name) != MLFF_OK) return NULL;
    return &report->stages[report->n_stages++];
}

// ---- a step's records ----------------------------------------------------------------------------

// What of [begin, end] lies outside of [left, right].
static int64_t outside(int64_t begin, int64_t end, int64_t left, int64_t right)
{
    int64_t inner_begin = begin > left ? begin : left, inner_end = end < right ? end : right;
    return end - begin - (inner_end > inner_begin ? inner_end - inner_begin : 0);
}

// Records [first, last) are of the step `s`: rows, and the parts of the step in ns.
static mlff_status read_step(kernel_report *report, const activity *a, size_t first, size_t last, const kernel_step *s,
                             const mlff_callable *callable)
{
    int64_t first_kernel = 0, last_kernel = 0, span_begin = 0, span_end = 0, busy = 0, waited = 0, waited_until = s->start_ns,
            begun = 0;
    kernel_stage *before = NULL;
    for (size_t i = first; i < last; i++) {
        const activity_record *r = &a->records[i];
        if (r->kind == ACTIVITY_WAIT) continue;
        kernel_row *row = row_of(report, a, r, callable);
        kernel_stage *stage = row ? stage_of(report, row->stage) : NULL;
        if (!row || !stage) return MLFF_ERR_MEMORY;
        if (span_end == 0) span_begin = span_end = begun = r->start_ns;
        int64_t from = r->start_ns > span_end ? r->start_ns : span_end, own = r->end_ns > from ? r->end_ns - from : 0;
        if (before) before->until_next_us += (double)(from - begun) * 1e-3;
        begun = from;
        before = stage;
        row->calls += 1.0;
        row->sum_us += (double)(r->end_ns - r->start_ns) * 1e-3;
        row->busy_us += (double)own * 1e-3;
        stage->busy_us += (double)own * 1e-3;
        busy += own;
        if (r->end_ns > span_end) span_end = r->end_ns;
        if (r->kind == ACTIVITY_KERNEL && first_kernel == 0) first_kernel = r->start_ns;
        if (r->kind == ACTIVITY_KERNEL && r->end_ns > last_kernel) last_kernel = r->end_ns;
    }
    if (before) before->until_next_us += (double)(span_end - begun) * 1e-3;
    for (size_t i = first; i < last; i++) {
        const activity_record *r = &a->records[i];
        if (r->kind != ACTIVITY_WAIT) continue;
        int64_t from = r->start_ns > waited_until ? r->start_ns : waited_until;
        int64_t to = r->end_ns < s->end_ns ? r->end_ns : s->end_ns;
        if (to <= from) continue;
        waited += outside(from, to, span_begin, span_end);
        waited_until = to;
    }
    int64_t idle = s->end_ns - s->start_ns - (span_end - span_begin) - waited - s->integrate_ns;
    report->kernels_us += (double)(last_kernel - first_kernel) * 1e-3;
    report->busy_ms += (double)busy * 1e-6;
    report->gap_ms += (double)(span_end - span_begin - busy) * 1e-6;
    report->wait_ms += (double)waited * 1e-6;
    report->host_ms += (double)(idle > 0 ? idle : 0) * 1e-6;
    report->integrate_ms += (double)s->integrate_ns * 1e-6;
    report->step_ms += (double)(s->end_ns - s->start_ns) * 1e-6;
    return MLFF_OK;
}

static int by_weight(const void *a, const void *b)
{
    const kernel_row *x = a, *y = b;
    return (x->busy_us < y->busy_us) - (x->busy_us > y->busy_us);
}

// Says of each kernel of a force field without stages whether steps of the energy alone run it too ("energy: matrix product"),
// or only steps with forces, or both run it, with forces oftener.
static mlff_status tell_phases(kernel_report *full, const kernel_report *energy)
{
    mlff_status status = MLFF_OK;
    if (energy->busy_ms > 0.95 * full->busy_ms) return MLFF_OK; // it computes all results, whichever are requested
    for (int i = 0; i < full->n_stages; i++) base_free(full->stages[i].name);
    full->n_stages = 0;
    for (int i = 0; i < full->n_rows; i++) {
        kernel_row *row = &full->rows[i];
        char text[160];
        double calls = 0.0;
        for (int k = 0; k < energy->n_rows; k++)
            if (strcmp(energy->rows[k].name, row->name) == 0) calls = energy->rows[k].calls;
        snprintf(text, sizeof text, "%s: %.100s",
                 calls > 0.9 * row->calls   ? "energy"
                 : calls < 0.1 * row->calls ? "forces"
                                            : "both",
                 row->stage);
        MLFF_TRY(profile_set(&row->stage, text));
        int before = full->n_stages;
        kernel_stage *stage = NULL;
        for (int k = 0; k < before && !stage; k++)
            if (strcmp(full->stages[k].name, text) == 0) stage = &full->stages[k];
        if (!stage) {
            stage = &full->stages[full->n_stages++]; // there are no more of them than rows
            *stage = (kernel_stage){.until_next_us = NAN, .clock_us = NAN};
            MLFF_TRY(profile_set(&stage->name, text));
        }
        stage->busy_us += row->busy_us;
    }
done:
    return status;
}

mlff_status kernels_analyse(kernel_report *report, const activity *a, const kernel_step *steps, int64_t n_steps, int64_t n_each,
                            int64_t until_ns, const mlff_callable *callable)
{
    mlff_status status = MLFF_OK;
    size_t at = 0;
    report->rows = base_alloc(KERNELS_MAX_ROWS, sizeof *report->rows, "kernels");
    report->stages = base_alloc(KERNELS_MAX_ROWS, sizeof *report->stages, "stages of kernels");
    if (!report->rows || !report->stages) return MLFF_ERR_MEMORY;
    // A record is of the step it began in; halfway between two steps is the border, as the two clocks agree to a few µs.
    while (at < a->n_records && a->records[at].start_ns < steps[0].start_ns - steps[0].before_ns / 2) at++;
    for (int64_t k = 0; k < n_steps; k++) {
        size_t first = at;
        int64_t border = k + 1 < n_steps ? steps[k + 1].start_ns - steps[k + 1].before_ns / 2 : until_ns;
        while (at < a->n_records && a->records[at].start_ns < border) at++;
        MLFF_TRY(read_step(report, a, first, at, &steps[k], callable));
    }
    double scale = 1.0 / (double)(n_steps * n_each);
    double *const sums[] = {&report->busy_ms,      &report->gap_ms,  &report->wait_ms,   &report->host_ms,
                            &report->integrate_ms, &report->step_ms, &report->kernels_us};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) *sums[i] *= scale;
    for (int i = 0; i < report->n_rows; i++) {
        report->rows[i].calls *= scale;
        report->rows[i].busy_us *= scale;
        report->rows[i].sum_us *= scale;
    }
    for (int i = 0; i < report->n_stages; i++) {
        report->stages[i].busy_us *= scale;
        report->stages[i].until_next_us *= scale;
        report->stages[i].clock_us = NAN;
    }
    qsort(report->rows, (size_t)report->n_rows, sizeof *report->rows, by_weight);
    report->n_steps = n_steps * n_each;
    report->run_share = report->clocks_us = NAN;
    report->n_dropped = a->n_dropped;
    report->n_invalid = a->n_invalid;
    report->n_left_out = a->n_left_out;
    report->cupti_version = a->version;
    report->open_ms = a->open_ns * 1e-6;
done:
    return status;
}

// ---- in words ------------------------------------------------------------------------------------

enum { AMORTISED_TO = 500 };

// Listening, amortised: with a window so often, s, its cost is 0.2 % of the time.
static double interval_s(const kernel_report *report)
{
    return fmax(report->cost_ms, 0.0) * 1e-3 * AMORTISED_TO;
}

void kernels_clock_text(const kernel_report *report, char *text, size_t text_bytes)
{
    text[0] = 0;
    if (!(report->clocks_us > 0.0) || !(report->kernels_us > 0.0)) return;
    base_format(text, text_bytes,
                "from the first kernel's start to the last one's end %s; the stages' own clocks add up to %s (%+.1f %%)",
                PROFILE_TIME(report->kernels_us * 1e-3), PROFILE_TIME(report->clocks_us * 1e-3),
                100.0 * (report->clocks_us / report->kernels_us - 1.0));
}

void kernels_cost_text(const kernel_report *report, char *text, size_t text_bytes)
{
    char lost[128] = "", cost[256];
    if (report->n_dropped + report->n_invalid + report->n_left_out > 0)
        snprintf(lost, sizeof lost, "; LOST: %lld record%s dropped by CUPTI, %lld without valid times, %lld beyond the buffer",
                 (long long)report->n_dropped, base_plural(report->n_dropped), (long long)report->n_invalid,
                 (long long)report->n_left_out);
    if (report->n_windows > 0)
        base_format(cost, sizeof cost, "%s since the first one; %lld such window%s %.2g %% of the run",
                    PROFILE_TIME(report->after_ms), (long long)report->n_windows, report->n_windows == 1 ? " costs" : "s cost",
                    report->run_share * 100.0);
    else
        base_format(cost, sizeof cost, "%s unwatched after; the window cost %s beyond that, 0.2 %% if there is one every %.3g s",
                    PROFILE_TIME(report->after_ms), PROFILE_TIME(report->cost_ms), interval_s(report));
    snprintf(text, text_bytes,
             "%lld step%s watched by CUPTI %lld: %s each, %s unwatched before (median); %s; opening CUPTI took %s once%s",
             (long long)report->n_steps, base_plural(report->n_steps), (long long)report->cupti_version,
             PROFILE_TIME(report->step_ms), PROFILE_TIME(report->usual_ms), cost, PROFILE_TIME(report->open_ms), lost);
}

// ---- the steps -----------------------------------------------------------------------------------

// Median of unwatched steps, after some that let what was before die away.
static mlff_status usual_step(run *r, double *median_ms)
{
    mlff_status status = MLFF_OK;
    double times[USUAL_STEPS];
    int64_t begun = mlff_clock_ns();
    for (int i = -FADING_STEPS; i < USUAL_STEPS; i++) {
        int64_t time_ns;
        if (i < 0 && mlff_clock_ns() - begun > FADING_NS) i = 0;
        MLFF_TRY(run_frame_next(r));
        MLFF_TRY(run_step(r, &time_ns));
        if (i >= 0) times[i] = (double)time_ns * 1e-6;
    }
    *median_ms = statistics_median(times, USUAL_STEPS);
done:
    return status;
}

// Where a force field has no stages, its kernels are classified by the kernels of energy-only steps.
static bool asks_energy_alone(const run *r)
{
    return r->n_stages == 0 && (r->wanted & MLFF_FORCES) && (r->callable.properties & MLFF_ENERGY);
}

// Steps of the energy alone, noted behind the first n_steps.
static mlff_status traced_energies(run *r, int64_t n_steps)
{
    mlff_status status = MLFF_OK;
    int64_t last_end = r->kernel_steps[n_steps - 1].end_ns;
    for (int64_t i = n_steps; i < 2 * n_steps; i++) {
        int64_t time_ns;
        if (r->md) MLFF_TRY(trajectory_integrate(r->trajectory));
        MLFF_TRY(run_frame_next(r));
        int64_t start_ns = mlff_clock_ns(), before_ns = r->md ? 0 : start_ns - last_end;
        MLFF_TRY(run_call(r, MLFF_ENERGY, &time_ns));
        last_end = start_ns + time_ns;
        r->kernel_steps[i] = (kernel_step){.start_ns = start_ns, .end_ns = last_end, .before_ns = before_ns};
    }
done:
    return status;
}

// The report of the full steps, and the phases of its kernels by the energy-only ones.
static mlff_status analyse(run *r, kernel_report *report, int64_t n_steps, bool energy_alone)
{
    mlff_status status = MLFF_OK;
    kernel_report energy = {0};
    const kernel_step *first = &r->kernel_steps[energy_alone ? n_steps : 0];
    int64_t until_ns = energy_alone ? first->start_ns - first->before_ns / 2 : INT64_MAX;
    MLFF_TRY(kernels_analyse(report, &r->activity, r->kernel_steps, n_steps, 1, until_ns, r->n_stages > 0 ? &r->callable : NULL));
    if (!energy_alone) return MLFF_OK;
    MLFF_TRY(kernels_analyse(&energy, &r->activity, first, n_steps, 1, INT64_MAX, NULL));
    MLFF_TRY(tell_phases(report, &energy));
done:
    clear(&energy);
    return status;
}

static mlff_status traced_steps(run *r, int64_t n_steps, double *clock_us)
{
    mlff_status status = MLFF_OK;
    int64_t last_end = 0;
    for (int64_t i = -SETTLING_STEPS; i < n_steps; i++) {
        int64_t time_ns;
        if (run_stops(r, r->options.n_steps)) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted while kernels were traced");
        MLFF_TRY(run_frame_next(r));
        int64_t start_ns = mlff_clock_ns();
        MLFF_TRY(run_step(r, &time_ns));
        if (i >= 0) {
            r->kernel_steps[i] = (kernel_step){.start_ns = start_ns,
                                               .end_ns = start_ns + time_ns,
                                               .before_ns = last_end ? start_ns - last_end : 0,
                                               .integrate_ns = r->md ? time_ns - r->force_ns : 0};
            for (int k = 0; k < r->n_stages; k++) clock_us[k] += r->stage_step[k] * 1e-3 / (double)n_steps;
        }
        last_end = start_ns + time_ns;
    }
done:
    return status;
}

// The stages' own clocks beside their kernels. Layers of a stage are one row; a stage without a kernel of its own is part of
// another one's.
static mlff_status join_clocks(const run *r, kernel_report *report, const double *clock_us)
{
    report->clocks_us = r->n_stages > 0 ? 0.0 : NAN;
    for (int k = 0; k < r->n_stages; k++) {
        char path[256];
        if (strcmp(r->callable.stages[k].phase, "host") == 0) continue; // has no kernels
        path_of(&r->callable.stages[k], path, sizeof path);
        kernel_stage *stage = stage_of(report, path);
        if (!stage) return MLFF_ERR_MEMORY;
        bool first = true;
        for (int i = 0; i < k && first; i++) {
            char before[256];
            path_of(&r->callable.stages[i], before, sizeof before);
            first = strcmp(before, path) != 0;
        }
        stage->clock_us = clock_us[k] + (first ? 0.0 : stage->clock_us);
        if (strcmp(path, "launch") != 0) report->clocks_us += clock_us[k]; // that is over when the first kernel starts
    }
    return MLFF_OK;
}

mlff_status run_kernels(run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    int64_t n_steps = r->options.kernels < KERNELS_STEPS_MAX ? r->options.kernels : KERNELS_STEPS_MAX;
    bool clocks = r->n_stages > 0 && r->callable.stage_clock_set, open = false;
    kernel_report *report = base_alloc(1, sizeof *report, "a report on kernels");
    double *clock_us = base_alloc((size_t)r->n_stages + 1, sizeof *clock_us, "stage times");
    bool energy_alone = asks_energy_alone(r);
    r->kernel_steps = base_alloc((size_t)n_steps * (energy_alone ? 2 : 1), sizeof *r->kernel_steps, "traced steps");
    if (!report || !clock_us || !r->kernel_steps) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    if (clocks) MLFF_TRY(r->callable.stage_clock_set(r->callable.context, 1));
    MLFF_TRY(usual_step(r, &report->usual_ms));
    int64_t begun = mlff_clock_ns();
    MLFF_TRY(activity_begin(&r->activity));
    open = true;
    MLFF_TRY(traced_steps(r, n_steps, clock_us));
    int64_t energies = mlff_clock_ns();
    if (energy_alone) MLFF_TRY(traced_energies(r, n_steps));
    energies = mlff_clock_ns() - energies;
    open = false;
    MLFF_TRY(activity_end(&r->activity));
    report->cost_ms = (double)(mlff_clock_ns() - begun - energies) * 1e-6 - r->activity.open_ns * 1e-6 -
                      (double)(n_steps + SETTLING_STEPS) * report->usual_ms;
    MLFF_TRY(usual_step(r, &report->after_ms));
    MLFF_TRY(analyse(r, report, n_steps, energy_alone));
    MLFF_TRY(join_clocks(r, report, clock_us));
    r->n_kernel_steps = n_steps;
    profile->kernels = report;
    report = NULL;
done:
    if (open) (void)activity_end(&r->activity);
    if (clocks) (void)r->callable.stage_clock_set(r->callable.context, 0);
    base_free(clock_us);
    kernel_report_free(report);
    return status;
}
