// SPDX-License-Identifier: MIT
// implementations.c: several implementations on the same new frames, interleaved; their results are compared too. In each round every
// implementation computes the same new frames once, in rotating order. Ratios are taken within a round, so that the frames and a drift of
// the machine affect all alike.
#include <math.h>
#include <string.h>

#include "implementations.h"
#include "profile/report/json/json.h"

mlff_implementations_options mlff_implementations_options_default(void)
{
    return (mlff_implementations_options){.struct_size = sizeof(mlff_implementations_options),
                                          .n_rounds = 20,
                                          .n_frames = 5,
                                          .n_warmup = 3,
                                          .energy_tolerance = 1e-4,
                                          .force_tolerance = 1e-3,
                                          .noise_floor = 0.01};
}

void mlff_implementations_destroy(mlff_implementations *implementations)
{
    if (!implementations) return;
    for (int k = 0; implementations->own && k < implementations->n; k++) {
        base_free((char *)(uintptr_t)implementations->own[k].shown.name);
        base_free((char *)(uintptr_t)implementations->own[k].shown.device);
        base_free((char *)(uintptr_t)implementations->own[k].shown.notes);
        base_free(implementations->own[k].round_ms);
        base_free(implementations->own[k].forces);
        base_free(implementations->own[k].kept_energy);
        base_free(implementations->own[k].kept_forces);
    }
    base_free(implementations->models);
    base_free(implementations->own);
    base_free(implementations->shown);
    base_free(implementations);
}

static mlff_status call(const mlff_callable *callable, implementation *own, const mlff_system *frame, double *time_ms)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(base_grow(&own->forces, &own->capacity, 3 * (size_t)frame->n_atoms, sizeof *own->forces, "forces"));
    // What an implementation does not write must not pass for its answer.
    own->energy = NAN;
    for (int i = 0; i < 3 * frame->n_atoms; i++) own->forces[i] = NAN;
    int64_t start = mlff_clock_ns();
    status = callable->step(callable->context, frame, MLFF_ENERGY | MLFF_FORCES, &own->energy, own->forces, NULL);
    *time_ms = (double)(mlff_clock_ns() - start) * 1e-6;
    if (status != MLFF_OK) return mlff_fail(status, "%s: %s", callable->name, mlff_last_error());
done:
    return status;
}

// The same components of all.
static void keep(mlff_implementations *r, const mlff_system *frame)
{
    if (r->n_kept == IMPLEMENTATIONS_FRAMES) return;
    for (int c = 0; c < IMPLEMENTATIONS_COMPONENTS; c++) {
        size_t at = (size_t)(base_random_uniform(0, (uint64_t)r->n_kept, (uint64_t)c) * 3.0 * frame->n_atoms);
        for (int k = 0; k < r->n; k++) r->own[k].kept_forces[r->n_kept * IMPLEMENTATIONS_COMPONENTS + c] = r->own[k].forces[at];
    }
    for (int k = 0; k < r->n; k++) r->own[k].kept_energy[r->n_kept] = r->own[k].energy / frame->n_atoms;
    r->n_kept++;
}

// Results of a frame against the first implementation's and against labels.
static void check(mlff_implementations *r, const mlff_system *frame)
{
    const implementation *first = &r->own[0];
    int n = 3 * frame->n_atoms;
    keep(r, frame);
    for (int k = 0; k < r->n; k++) {
        implementation *own = &r->own[k];
        double difference = (own->energy - first->energy) / frame->n_atoms, before = difference - own->energy_mean;
        if (!(fabs(difference) <= own->energy_largest)) own->energy_largest = isfinite(difference) ? fabs(difference) : INFINITY;
        own->energy_mean += before / (double)++own->n_frames;
        own->energy_squares += before * (difference - own->energy_mean);
        for (int i = 0; i < n; i++) {
            double d = fabs(own->forces[i] - first->forces[i]);
            if (!(d <= own->force_largest)) own->force_largest = isfinite(d) ? d : INFINITY; // also of the first's NaN
            own->force_squares += own->forces[i] * own->forces[i];
            own->difference_squares += d * d;
        }
        own->n_force_values += n;
        if (isfinite(frame->label_energy)) {
            own->energy_error += fabs(own->energy - frame->label_energy) / frame->n_atoms;
            own->n_labelled++;
        }
        for (int i = 0; frame->label_forces && i < n; i++) own->force_error += fabs(own->forces[i] - frame->label_forces[i]);
        own->n_force_labels += frame->label_forces ? n : 0;
    }
}

// Ratios to the first, round by round: median and its order-statistic interval.
static mlff_status judge(mlff_implementations *r, int k)
{
    mlff_status status = MLFF_OK;
    implementation *own = &r->own[k];
    percentile_bounds time, ratio;
    double *ratios = base_alloc((size_t)r->n_rounds, sizeof *ratios, "ratios");
    if (!ratios) return MLFF_ERR_MEMORY;
    for (int i = 0; i < r->n_rounds; i++) ratios[i] = own->round_ms[i] / r->own[0].round_ms[i];
    MLFF_TRY(percentile_interval(own->round_ms, r->n_rounds, 0.5, &time));
    MLFF_TRY(percentile_interval(ratios, r->n_rounds, 0.5, &ratio));
    double floor = r->options.noise_floor, limit = r->options.force_tolerance * fmax(1.0, r->force_scale);
    mlff_implementation *s = &own->shown;
    s->median_ms = time.value;
    s->ratio = ratio.value;
    s->low = k > 0 ? ratio.low : NAN;
    s->high = k > 0 ? ratio.high : NAN;
    s->energy_difference = own->energy_largest;
    s->force_difference = own->force_largest;
    s->energy_shift = own->energy_mean;
    s->energy_rms = sqrt(own->energy_squares / (double)own->n_frames);
    s->force_rms = sqrt(own->difference_squares / (double)own->n_force_values);
    s->agrees = own->energy_largest <= r->options.energy_tolerance && own->force_largest <= limit;
    if (r->models && r->models[k] != r->models[0] && isfinite(own->energy_largest + own->force_largest)) s->agrees = -1;
    s->energy_error = own->n_labelled ? own->energy_error / (double)own->n_labelled : NAN;
    s->force_error = own->n_force_labels ? own->force_error / (double)own->n_force_labels : NAN;
    s->change = MLFF_UNCLEAR;
    if (k == 0)
        s->change = MLFF_SAME;
    else if (ratio.low > 1.0 && ratio.value > 1.0 + floor)
        s->change = MLFF_SLOWER;
    else if (ratio.high < 1.0 && ratio.value < 1.0 - floor)
        s->change = MLFF_FASTER;
    else if (ratio.low > 1.0 - floor && ratio.high < 1.0 + floor)
        s->change = MLFF_SAME;
    r->shown[k] = *s;
done:
    base_free(ratios);
    return status;
}

enum { FEWEST_ROUNDS = 6 };

static mlff_status measure(mlff_implementations *r, const mlff_callable *callables, mlff_trajectory *trajectory)
{
    mlff_status status = MLFF_OK;
    const mlff_system *frame;
    double time_ms, *times = base_alloc((size_t)(r->n * r->n_frames), sizeof *times, "times");
    if (!times) return MLFF_ERR_MEMORY;
    MLFF_TRY(trajectory_start(trajectory, NULL, NULL));
    for (int64_t i = 0; i < r->options.n_warmup; i++) {
        MLFF_TRY(trajectory_next(trajectory, &frame));
        for (int k = 0; k < r->n; k++) MLFF_TRY(call(&callables[k], &r->own[k], frame, &time_ms));
    }
    for (int round = 0; round < r->n_rounds; round++) {
        if (r->options.progress && r->options.progress(r->options.progress_context, round, r->n_rounds) != 0) {
            status = mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted after %d of %d rounds", round, r->n_rounds);
            r->n_rounds = round;
            goto done;
        }
        for (int f = 0; f < r->n_frames; f++) {
            MLFF_TRY(trajectory_next(trajectory, &frame));
            for (int i = 0; i < r->n; i++) { // forth and back: a b c, c b a
                int turn = (round + f) % 2 ? r->n - 1 - i : i;
                MLFF_TRY(call(&callables[turn], &r->own[turn], frame, &times[turn * r->n_frames + f]));
            }
            check(r, frame);
        }
        for (int k = 0; k < r->n; k++) r->own[k].round_ms[round] = statistics_median(times + k * r->n_frames, r->n_frames);
    }
done:
    base_free(times);
    return status;
}

mlff_status mlff_profile_implementations(const mlff_callable *callables, int n_callables, mlff_trajectory *trajectory,
                                         const mlff_implementations_options *options, mlff_implementations **implementations_out)
{
    if (!callables || !trajectory || !implementations_out || n_callables < 2)
        return mlff_fail(MLFF_ERR_USAGE, "implementations: two callables or more, a trajectory and an output are needed");
    if (trajectory_is_md(trajectory))
        return mlff_fail(MLFF_ERR_USAGE,
                         "implementations: MD is driven by one force field; give frames or thermal displacements");
    mlff_status status = MLFF_OK;
    mlff_implementations *r = base_alloc(1, sizeof *r, "a comparison");
    if (!r) return MLFF_ERR_MEMORY;
    r->options = mlff_implementations_options_default();
    MLFF_TRY(base_take_options(__func__, "mlff_implementations_options", options, sizeof r->options, &r->options));
    if (r->options.n_rounds < FEWEST_ROUNDS || r->options.n_rounds > 100000 || r->options.n_frames < 1 ||
        r->options.n_frames > 100000)
        MLFF_FAIL(MLFF_ERR_USAGE, "implementations: %d rounds of %d frames; at least 6 rounds of at least 1 frame are needed",
                  r->options.n_rounds, r->options.n_frames);
    r->n_rounds = r->options.n_rounds;
    r->n_frames = r->options.n_frames;
    r->own = base_alloc((size_t)n_callables, sizeof *r->own, "implementations");
    r->shown = base_alloc((size_t)n_callables, sizeof *r->shown, "implementations");
    if (!r->own || !r->shown) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    r->n = n_callables;
    if (r->options.models) {
        r->models = base_alloc((size_t)r->n, sizeof *r->models, "implementations");
        if (!r->models) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        memcpy(r->models, r->options.models, (size_t)r->n * sizeof *r->models);
    }
    for (int k = 0; k < r->n; k++) {
        if (!(callables[k].properties & MLFF_FORCES))
            MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s has no forces, and cannot be compared with others", callables[k].name);
        mlff_implementation *shown = &r->own[k].shown;
        shown->name = base_strdup(callables[k].name);
        shown->device = base_strdup(callables[k].device ? callables[k].device : "cpu");
        shown->notes = base_strdup(callables[k].notes ? callables[k].notes : "");
        r->own[k].round_ms = base_alloc((size_t)r->n_rounds, sizeof *r->own[k].round_ms, "rounds");
        r->own[k].kept_energy = base_alloc(IMPLEMENTATIONS_FRAMES, sizeof(double), "frames");
        r->own[k].kept_forces = base_alloc(IMPLEMENTATIONS_FRAMES * IMPLEMENTATIONS_COMPONENTS, sizeof(double), "frames");
        if (!shown->name || !shown->device || !shown->notes || !r->own[k].round_ms || !r->own[k].kept_energy ||
            !r->own[k].kept_forces) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
    }
    status = measure(r, callables, trajectory);
    const bool is_partial = status == MLFF_ERR_INTERRUPTED && r->n_rounds >= FEWEST_ROUNDS;
    char cause[80];
    snprintf(cause, sizeof cause, "%s", mlff_last_error());
    if (!is_partial) MLFF_TRY(status);
    r->force_scale = sqrt(r->own[0].force_squares / (double)r->own[0].n_force_values);
    for (int k = 0; k < r->n; k++) MLFF_TRY(judge(r, k));
    *implementations_out = r;
    r = NULL;
    status = is_partial ? mlff_fail(MLFF_ERR_INTERRUPTED, "%s", cause) : MLFF_OK;
done:
    mlff_implementations_destroy(r);
    return status;
}

const mlff_implementation *mlff_implementations_rows(const mlff_implementations *implementations, int *n_out)
{
    if (n_out) *n_out = implementations->n;
    return implementations->shown;
}

const char *implementations_change_name(const mlff_implementation *row)
{
    static const char *const names[] = {"unclear", "same", "faster", "slower"};
    return names[row->change];
}

const char *implementations_judgement(const mlff_implementation *row)
{
    return row->agrees > 0 ? "agrees" : row->agrees == 0 ? "WRONG" : "another model";
}

mlff_status mlff_implementations_text(const mlff_implementations *implementations, char **text_out)
{
    base_text text = {0};
    if (!implementations || !text_out)
        return mlff_fail(MLFF_ERR_USAGE, "implementations as text: implementations or output is NULL");
    bool labels = isfinite(implementations->shown[0].energy_error) || isfinite(implementations->shown[0].force_error);
    base_text_add(&text, "%-34s %11s %8s %-18s %12s %12s%s\n", "", "median", "× first", "95 % interval", "ΔE meV/atom",
                  "ΔF meV/Å", labels ? "   MAE E, F to labels" : "");
    for (int k = 0; k < implementations->n; k++) {
        const mlff_implementation *s = &implementations->shown[k];
        char interval[40] = "–                 ";
        if (isfinite(s->low + s->high)) base_format(interval, sizeof interval, "%7.3f to %-7.3f", s->low, s->high);
        base_text_add(&text, "%-34.*s %s %8.3f %s %12.3g %12.3g", base_whole_length(s->name, 34), s->name,
                      PROFILE_TIME_RIGHT(s->median_ms, 11), s->ratio, interval, s->energy_difference * 1e3,
                      s->force_difference * 1e3);
        if (labels) base_text_add(&text, "   %.3g meV/atom, %.3g meV/Å", s->energy_error * 1e3, s->force_error * 1e3);
        if (k > 0)
            base_text_add(&text, "  %s%s", implementations_change_name(s),
                          s->agrees > 0   ? ""
                          : s->agrees < 0 ? " (another model)"
                                          : ", but WRONG");
        base_text_add(&text, "\n");
    }
    for (int k = 0; k < implementations->n; k++)
        if (*implementations->shown[k].notes)
            base_text_add(&text, "%s%s: %s\n", k ? "" : "\n", implementations->shown[k].name, implementations->shown[k].notes);
    base_text_add(&text, "\n%d rounds of %d frame%s, interleaved; ΔE and ΔF are the largest differences from the first\n",
                  implementations->n_rounds, implementations->n_frames, base_plural(implementations->n_frames));
    for (int k = 1; k < implementations->n; k++) {
        const mlff_implementation *s = &implementations->shown[k];
        if (s->agrees < 0)
            base_text_add(&text,
                          "%s and the first are different models: difference shown, not judged; RMS %.3g meV/atom beyond a "
                          "mean difference of %.5g eV/atom, %.3g meV/Å where forces are %.3g meV/Å\n",
                          s->name, s->energy_rms * 1e3, s->energy_shift, s->force_rms * 1e3, implementations->force_scale * 1e3);
        if (s->agrees == 0)
            base_text_add(&text,
                          "%s gives other results than the first (allowed: %.3g meV/atom, %.3g meV/Å): it is not the same force "
                          "field, and the speeds are not comparable\n",
                          s->name, implementations->options.energy_tolerance * 1e3,
                          implementations->options.force_tolerance * fmax(1.0, implementations->force_scale) * 1e3);
    }
    base_text_add(
        &text,
        "one process: what differs from run to run is not in these intervals; mlff profile --runs 5 and mlff compare have it\n");
    for (size_t i = 0; i < text.length; i++) // names may come from anywhere
        if (((unsigned char)text.text[i] < 0x20 && text.text[i] != '\n') || text.text[i] == 0x7f) text.text[i] = '?';
    if (text.status == MLFF_OK)
        *text_out = text.text;
    else
        base_text_free(&text);
    return text.status;
}

mlff_status mlff_implementations_json(const mlff_implementations *implementations, const mlff_implementation_failure *failures,
                                      int n_failures, char **text_out)
{
    if (!implementations || !text_out || n_failures < 0 || (n_failures > 0 && !failures))
        return mlff_fail(MLFF_ERR_USAGE, "implementations as JSON: implementations, failures or output is NULL");
    json j = {.empty = true};
    json_open(&j, NULL, '{');
    json_integer(&j, "n_rounds", implementations->n_rounds);
    json_integer(&j, "n_frames", implementations->n_frames);
    json_number(&j, "energy_tolerance_ev_per_atom", implementations->options.energy_tolerance);
    json_number(&j, "force_tolerance_ev_per_angstrom",
                implementations->options.force_tolerance * fmax(1.0, implementations->force_scale));
    json_open(&j, "rows", '[');
    for (int k = 0; k < implementations->n; k++) {
        const mlff_implementation *s = &implementations->shown[k];
        json_open(&j, NULL, '{');
        json_string(&j, "name", s->name);
        json_string(&j, "device", s->device);
        json_string(&j, "notes", s->notes);
        json_number(&j, "median_ms", s->median_ms);
        json_number(&j, "ratio", s->ratio);
        json_number(&j, "low", s->low);
        json_number(&j, "high", s->high);
        json_string(&j, "verdict", implementations_change_name(s));
        json_boolean(&j, "same_model", s->agrees >= 0);
        if (s->agrees >= 0)
            json_boolean(&j, "agrees", s->agrees);
        else
            json_number(&j, "agrees", NAN);
        json_number(&j, "energy_difference_ev_per_atom", s->energy_difference);
        json_number(&j, "force_difference_ev_per_angstrom", s->force_difference);
        json_number(&j, "energy_shift_ev_per_atom", s->energy_shift);
        json_number(&j, "energy_rms_beyond_shift_ev_per_atom", s->energy_rms);
        json_number(&j, "force_difference_rms_ev_per_angstrom", s->force_rms);
        json_number(&j, "energy_error_ev_per_atom", s->energy_error);
        json_number(&j, "force_error_ev_per_angstrom", s->force_error);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open(&j, "failures", '[');
    for (int k = 0; k < n_failures; k++) {
        json_open(&j, NULL, '{');
        json_string(&j, "name", failures[k].name);
        json_string(&j, "consequence", failures[k].consequence);
        json_string(&j, "problem", failures[k].problem);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return json_take(&j, text_out);
}
