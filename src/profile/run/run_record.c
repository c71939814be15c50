// SPDX-License-Identifier: MIT
// run_record.c: what a run measured, as a record.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

static double gigabytes(double bytes)
{
    return bytes / 1073741824.0;
}

// A ledger is of a device if its name says so; on a GPU those count with the host's resident memory.
static bool counts_as_memory(const run *r, int ledger)
{
    return ledger == RESIDENT || (ledger >= OWN_LEDGERS && r->callable.device && strncmp(r->callable.device, "cpu", 3) != 0 &&
                                  strncmp(r->callable.ledger_names[ledger - OWN_LEDGERS], "device", 6) == 0);
}

// NVML knows the memory of the whole GPU, and of this process where it sees its process id.
static bool gpu_ledger_known(const run *r, int ledger)
{
    if (r->power.n == 0) return false;
    for (int k = OWN_LEDGERS; k < r->n_ledgers && ledger == GPU_WHOLE; k++) // measured by the force field itself
        if (strncmp(r->callable.ledger_names[k - OWN_LEDGERS], "driver", 6) == 0) return false;
    const power_sample *first = &r->power.samples[0];
    return (ledger == GPU_WHOLE ? first->whole_bytes : first->process_bytes) > 0;
}

static mlff_status keep_samples(profile_ledger *ledger, const double *samples, int n)
{
    ledger->samples = base_alloc((size_t)n, sizeof *ledger->samples, "memory samples");
    if (!ledger->samples) return MLFF_ERR_MEMORY;
    memcpy(ledger->samples, samples, (size_t)n * sizeof *samples);
    ledger->n_samples = n;
    return MLFF_OK;
}

// Did the caller's runtime free most of what was gained? Of less the rest may be a leak: planted ones are a third. What lives in a window of
// the last steps is not freed: planted, an eighth.
#define MOST 0.8
static bool is_garbage(const run *r, int k, const leak_verdict *leak)
{
    if (leak->kind != LEAK_GROWING && leak->kind != LEAK_INCONCLUSIVE) return false;
    const double gained = leak->bytes_per_sample * (double)r->step.n;
    return gained > 0 && (double)(r->final_bytes[k] - r->collected_bytes[k]) >= MOST * gained;
}

// How many more pairs there were in the first tenth of the steps than in the last quarter.
static double first_pairs(const double *pairs, int n)
{
    const int n_first = n < 20 ? 1 : n / 10, n_last = n / 4;
    double first = 0.0, last = 0.0;
    if (n < 4) return NAN;
    for (int i = 1; i <= n_first; i++) first += pairs[i] / n_first; // sample 0 is of the warm-up
    for (int i = n - n_last; i < n; i++) last += pairs[i] / n_last;
    return last > 0.0 ? first / last : NAN;
}

mlff_status record_memory(const run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_profile_summary *summary = &profile->summary;
    int n = r->memory.n_samples;
    profile->memory_gb = base_alloc((size_t)n, sizeof *profile->memory_gb, "memory samples");
    profile->ledgers = base_alloc((size_t)r->n_ledgers, sizeof *profile->ledgers, "memory ledgers");
    if (!profile->memory_gb || !profile->ledgers) return MLFF_ERR_MEMORY;
    profile->n_memory = n;
    profile->memory_every = r->memory.interval;
    profile->available_bytes = process_memory_available();
    const double *work[N_WORK];
    for (int k = 0; k < N_WORK; k++) work[k] = r->memory.bytes + (size_t)(r->n_ledgers + k) * MEMORY_SAMPLES;
    profile->first_pairs = first_pairs(work[1], n);

    for (int k = 0; k < r->n_ledgers; k++) {
        if ((k == RESIDENT && !r->resident_known) || ((k == HEAP || k == HEAP_RESERVED) && !r->heap_known)) continue;
        if ((k == GPU_PROCESS || k == GPU_WHOLE) && !gpu_ledger_known(r, k)) continue;
        const double *samples = r->memory.bytes + (size_t)k * MEMORY_SAMPLES;
        profile_ledger *ledger = &profile->ledgers[profile->n_ledgers];
        static const char *const own_names[] = {"resident", "heap", "heap reserved", "GPU process (driver)",
                                                "driver (whole GPU, NVML)"};
        const char *name = k < OWN_LEDGERS ? own_names[k] : r->callable.ledger_names[k - OWN_LEDGERS];
        MLFF_TRY(profile_set(&ledger->name, name));
        profile->n_ledgers++;
        ledger->initial_bytes = r->initial_bytes[k];
        ledger->final_bytes = r->final_bytes[k];
        ledger->peak_bytes = r->peak_bytes[k];
        ledger->leak = leak_judge_physics(samples, work, N_WORK, n);
        ledger->leak.bytes_per_sample /= (double)r->memory.interval;
        ledger->leak.low /= (double)r->memory.interval;
        ledger->leak.high /= (double)r->memory.interval;
        ledger->leak.detectable /= (double)r->memory.interval;
        if (is_garbage(r, k, &ledger->leak)) ledger->leak.kind = LEAK_GARBAGE;
        MLFF_TRY(keep_samples(ledger, samples, n));
        // The system remembers a peak between two samples, but not when it was: it counts if it rose during the run.
        if (k == RESIDENT && r->peak_after > r->peak_before && r->peak_after > ledger->peak_bytes)
            ledger->peak_bytes = r->peak_after;
        if (!counts_as_memory(r, k)) continue;
        for (int i = 0; i < n; i++) profile->memory_gb[i] += gigabytes(samples[i]);
        summary->memory_initial_gb += gigabytes((double)ledger->initial_bytes);
        summary->memory_final_gb += gigabytes((double)ledger->final_bytes);
        summary->memory_peak_gb += gigabytes((double)ledger->peak_bytes);
    }
    if (r->heap_known) {
        summary->heap_initial_gb = gigabytes((double)r->initial_bytes[HEAP]);
        summary->heap_final_gb = gigabytes((double)r->final_bytes[HEAP]);
    }
    if (!r->resident_known) {
        summary->memory_initial_gb = summary->memory_final_gb = summary->memory_peak_gb = NAN;
        profile->n_memory = 0;
        MLFF_TRY(profile_note(profile, "the memory of the process was not measured: /proc/self/statm cannot be read"));
    }
done:
    return status;
}

// Means of equal parts of the run, for how sure a forecast is.
static void keep_blocks(const series *s, profile_stage *row)
{
    if (s->n_values < STAGE_BLOCKS) return;
    row->n_blocks = STAGE_BLOCKS;
    for (int b = 0; b < STAGE_BLOCKS; b++) {
        int64_t begin = s->n_values * b / STAGE_BLOCKS, end = s->n_values * (b + 1) / STAGE_BLOCKS;
        for (int64_t i = begin; i < end; i++) row->blocks_ms[b] += s->values[i] * 1e-6 / (double)(end - begin);
    }
}

// The step nearest to the median among those whose stages are kept one by one, as an index of the stages' series; -1: none.
static int64_t find_median_step(const run *r, const mlff_profile *profile)
{
    const series *s = &r->unattributed;
    int64_t best = -1;
    double nearest = INFINITY, median = profile->summary.latency_ms.median;
    for (int64_t i = 0; i < s->n_values && s->n == r->step.n; i++) { // else the series are of some steps alone
        const int64_t at =
            series_step(s, i) / profile->latency_every; // where it is kept too: the stages' series are the thinner ones
        double distance = fabs(profile->latency_ms[at] - median);
        if (distance >= nearest) continue;
        nearest = distance;
        best = i;
    }
    return best;
}

// Stages of a median step and of the slowest one, side by side.
static void record_examples(const run *r, mlff_profile *profile)
{
    int64_t i = r->n_stages > 0 && r->slow_ns > 0.0 ? find_median_step(r, profile) : -1;
    if (i < 0) return;
    const int64_t step = series_step(&r->unattributed, i);
    int last = profile->n_stages - 1, integrate = r->md && last > r->n_stages ? r->n_stages : -1;
    double slow_rest_ns = r->slow_force_ns;
    for (int k = 0; k < r->n_stages; k++) {
        profile->stages[k].example_ms[EXAMPLE_MEDIAN] = r->stages[k].values[i] * 1e-6;
        profile->stages[k].example_ms[EXAMPLE_SLOW] = r->slow_stages[k] * 1e-6;
        slow_rest_ns -= r->slow_stages[k];
    }
    if (integrate >= 0) {
        profile->stages[integrate].example_ms[EXAMPLE_MEDIAN] = r->integrate.values[i] * 1e-6;
        profile->stages[integrate].example_ms[EXAMPLE_SLOW] = (r->slow_ns - r->slow_force_ns) * 1e-6;
    }
    profile->stages[last].example_ms[EXAMPLE_MEDIAN] = r->unattributed.values[i] * 1e-6;
    profile->stages[last].example_ms[EXAMPLE_SLOW] = slow_rest_ns * 1e-6;
    profile->examples[EXAMPLE_MEDIAN] = (profile_example){step, profile->latency_ms[step / profile->latency_every]};
    profile->examples[EXAMPLE_SLOW] = (profile_example){r->slow_step, r->slow_ns * 1e-6};
}

mlff_status record_stages(const run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_statistics time, integrate_time = {0};
    static const mlff_stage integrate = {"integrate", "", -1, ""};
    const bool integrates = r->md && r->integrate.n > 0;

    if (integrates) MLFF_TRY(series_statistics(&r->integrate, 1e-6, &integrate_time));
    profile->stages_measured = r->n_stages > 0;
    for (int k = 0; k < r->n_stages; k++) {
        MLFF_TRY(series_statistics(&r->stages[k], 1e-6, &time));
        MLFF_TRY(profile_add_stage(profile, &r->callable.stages[k], &time));
        if (r->callable.stage_advice)
            MLFF_TRY(
                profile_set(&profile->stages[profile->n_stages - 1].advice, r->callable.stage_advice(r->callable.context, k)));
        keep_blocks(&r->stages[k], &profile->stages[profile->n_stages - 1]);
    }
    if (r->n_stages == 0) MLFF_TRY(profile_add_split(profile, &integrate_time));
    if (integrates) {
        MLFF_TRY(profile_add_stage(profile, &integrate, &integrate_time));
        keep_blocks(&r->integrate, &profile->stages[profile->n_stages - 1]);
    }
    time = (mlff_statistics){.median = NAN, .p95 = NAN};
    if (r->n_stages > 0) MLFF_TRY(series_statistics(&r->unattributed, 1e-6, &time));
    MLFF_TRY(profile_add_unattributed(profile, time.median, time.p95));
    record_examples(r, profile);
done:
    return status;
}

mlff_status record_times(run *r, mlff_profile *profile)
{
    mlff_profile_summary *summary = &profile->summary;
    mlff_status status = series_statistics(&r->step, 1e-6, &summary->latency_ms);
    if (status == MLFF_OK) status = energy_derive(&r->power, &profile->energy);
    if (status != MLFF_OK) return status;
    run_tag_clock(r);

    summary->n_steps = r->step.n;
    summary->n_warmup = r->options.n_warmup;
    if (r->options.n_warmup > 0) {
        summary->warmup_first_ms = r->warmup_first * 1e-6;
        summary->warmup_mean_ms = r->warmup_sum * 1e-6 / (double)r->options.n_warmup;
    }
    summary->total_time_s = r->step.mean * (double)r->step.n * 1e-9;
    summary->steps_per_second = r->step.mean > 0.0 ? 1e9 / r->step.mean : 0.0;
    if (r->least_atoms < r->most_atoms) {
        char text[256];
        profile->mean_atoms = r->atoms_sum / (double)r->step.n;
        snprintf(text, sizeof text, "%d to %d atoms, %.4g on average", r->least_atoms, r->most_atoms, profile->mean_atoms);
        if ((status = profile_set(&profile->system_size, text)) != MLFF_OK) return status;
        snprintf(text, sizeof text, "%.240s and others", profile->name); // it has the formula of the first frame
        if (!r->options.name && (status = profile_set(&profile->name, text)) != MLFF_OK) return status;
    }
    summary->mean_pairs = r->n_pairs >= 0 ? r->pairs_sum / (double)r->step.n : -1.0;
    summary->n_rebuilds = r->n_rebuilds >= 0 ? r->n_rebuilds - r->first_rebuilds : -1;
    profile->n_growths = r->n_growths >= 0 ? r->n_growths - r->first_growths : -1;
    mlff_statistics part;
    if (r->with_rebuild.n > 0 && series_statistics(&r->with_rebuild, 1e-6, &part) == MLFF_OK)
        profile->rebuild_median_ms = part.median;
    if (r->without.n > 0 && series_statistics(&r->without, 1e-6, &part) == MLFF_OK) profile->other_median_ms = part.median;
    profile->n_not_finite = r->n_not_finite;
    profile->wall_time_s = (double)r->wall_ns * 1e-9;
    profile->timestep_fs = r->md && r->trajectory ? trajectory_timestep_fs(r->trajectory) : r->options.timestep_fs;

    profile->latency_ms = r->step.values; // taken over
    profile->n_latency = r->step.n_values;
    profile->latency_every = r->step.every;
    r->step.values = NULL;
    for (int64_t i = 0; i < profile->n_latency; i++) profile->latency_ms[i] *= 1e-6;
    memcpy(profile->n_tagged, r->n_tagged, sizeof profile->n_tagged);
    profile->n_slowest = r->step.n_slowest;
    for (int i = 0; i < profile->n_slowest; i++) {
        profile->slowest[i] = r->step.slowest[i];
        profile->slowest[i].value *= 1e-6;
    }
    return MLFF_OK;
}

void record_waits(const run *r, mlff_profile *profile)
{
    profile_tail *tail = &profile->tail;
    if (!(r->counted_ns > 0.0)) return;
    tail->cpu_wait_share = r->contended_ns / r->counted_ns;
    // The two clocks are not of one moment. What the threads did between steps is in it.
    const double team = fmax((double)(r->last_use.team_ns - r->first_use.team_ns), 0.0) / r->counted_ns;
    tail->team_cores = fmin(team, (double)sysconf(_SC_NPROCESSORS_ONLN));
    tail->program_cores = cores_of_others(&r->first_use, &r->last_use);
}

mlff_status record_texts(const run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char text[256], formula[64];
    time_t now = time(NULL);
    struct tm local;

    mlff_system_formula(r->frame, formula, sizeof formula);
    snprintf(text, sizeof text, "%.150s %s", r->callable.name, formula);
    MLFF_TRY(profile_set(&profile->name, r->options.name ? r->options.name : text));
    MLFF_TRY(profile_set(&profile->model_name, r->callable.name));
    MLFF_TRY(profile_set(&profile->device, r->callable.device ? r->callable.device : "cpu"));
    snprintf(text, sizeof text, "%d atom%s", r->frame->n_atoms, base_plural(r->frame->n_atoms));
    MLFF_TRY(profile_set(&profile->system_size, text));
    if (!localtime_r(&now, &local) || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local) == 0) text[0] = 0;
    MLFF_TRY(profile_set(&profile->timestamp, text));
    MLFF_TRY(profile_set(&profile->trajectory, r->trajectory ? trajectory_kind(r->trajectory) : r->md ? "md" : "calls"));
    profile->summary.n_atoms = r->frame->n_atoms;
    MLFF_TRY(profile_add_notes(profile, r->callable.notes));
    MLFF_TRY(profile_add_notes(profile, r->options.notes));
    mlff_clock_calibration(&profile->quantum_ns, &profile->read_ns);
    for (int k = 0; k < r->environment.n; k++)
        MLFF_TRY(environment_add(&profile->environment, r->environment.keys[k], r->environment.values[k]));
    MLFF_TRY(identity_collect(profile, &r->callable, r->frame, r->wanted));
done:
    return status;
}
