// SPDX-License-Identifier: MIT
// profile.c: the run. Between two readings of the clock lies one step and nothing else; frames, counters, memory samples
// and the caller's progress come between steps. Nothing is allocated while steps are measured, so that what grows is
// the force field's.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "profile.h"

// Latencies kept one by one; of a stage fewer, there are tens of them.
enum { LATENCY_LIMIT = 100000, STAGE_LIMIT = 4096, MIN_FAULTS = 8 };

// Ledgers of every process, and what memory may follow: atoms and pairs of the step before the sample.
enum { RESIDENT, HEAP, HEAP_RESERVED, OWN_LEDGERS, N_WORK = 2 };

typedef struct run {
    mlff_callable callable;
    mlff_trajectory *trajectory;
    mlff_profile_options options;
    bool md;
    int n_stages; /* the callable's; 0 if its clocks are not used */
    bool clocks_running;
    char error[1024]; /* text of the failure that ended the run */

    const mlff_system *frame;
    double energy, stress[6];
    double *forces; /* [n_atoms][3] */
    size_t forces_capacity;
    unsigned wanted;

    double *stage_now, *stage_step; /* [n_stages] ns of the last force call, of the step */
    int64_t force_ns;               /* spent in the callable during this step */
    int n_force_calls;

    series step, with_rebuild, without, integrate, unattributed, *stages;
    double warmup_first, warmup_sum;
    double pairs_sum;
    int64_t n_pairs, n_rebuilds, n_growths, first_rebuilds, first_growths; /* -1: unknown */
    int64_t n_not_finite, wall_ns, n_tagged[N_TAGS];

    int n_ledgers; /* OWN_LEDGERS, then the callable's; in `memory` the rows of WORK follow */
    memory_series memory;
    int64_t *initial_bytes, *final_bytes, *peak_bytes, *now_bytes; /* [n_ledgers + N_WORK] */
    int64_t peak_before, peak_after;                               /* of the process, by the system's account */
    bool heap_known, resident_known;
} run;

// ---- making ready --------------------------------------------------------------------------------

static const char *properties_text(unsigned properties, char text[40])
{
    snprintf(text, 40, "%s%s%s", properties & MLFF_ENERGY ? "energy " : "", properties & MLFF_FORCES ? "forces " : "",
             properties & MLFF_STRESS ? "stress " : "");
    size_t length = strlen(text);
    if (length > 0) text[length - 1] = 0;
    return text;
}

static mlff_status run_check(const run *r)
{
    const mlff_profile_options *o = &r->options;
    char has[40], asked[40];
    if (!r->callable.step || !r->callable.name || !r->callable.properties)
        return mlff_fail(MLFF_ERR_USAGE, "profile: the callable needs a step function, a name and properties");
    if (o->n_steps < 1) return mlff_fail(MLFF_ERR_USAGE, "profile: %lld steps; at least 1 is needed", (long long)o->n_steps);
    if (o->n_warmup < 0)
        return mlff_fail(MLFF_ERR_USAGE, "profile: %lld warm-up steps; 0 or more are meant", (long long)o->n_warmup);
    if (o->memory_every < 1)
        return mlff_fail(MLFF_ERR_USAGE, "profile: memory every %lld steps; 1 or more is meant", (long long)o->memory_every);
    if (o->properties == 0 || o->properties > (MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS))
        return mlff_fail(MLFF_ERR_USAGE, "profile: properties %#x are none of energy, forces, stress", o->properties);
    if (r->wanted & ~r->callable.properties)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s offers %s; %s%s asked for", r->callable.name,
                         properties_text(r->callable.properties, has), properties_text(r->wanted, asked),
                         r->md ? " are needed by MD or" : " were");
    if (r->callable.n_stages < 0 || r->callable.n_ledgers < 0)
        return mlff_fail(MLFF_ERR_USAGE, "%s: a negative number of stages or ledgers", r->callable.name);
    return MLFF_OK;
}

static mlff_status run_init(run *r, const mlff_callable *callable, mlff_trajectory *trajectory,
                            const mlff_profile_options *options)
{
    mlff_status status = MLFF_OK;
    *r = (run){.trajectory = trajectory, .options = mlff_profile_options_default()};
    memcpy(&r->callable, callable, callable->struct_size < sizeof r->callable ? callable->struct_size : sizeof r->callable);
    if (options)
        memcpy(&r->options, options, options->struct_size < sizeof r->options ? options->struct_size : sizeof r->options);
    r->md = trajectory_is_md(trajectory);
    r->wanted = r->options.properties | (r->md ? MLFF_ENERGY | MLFF_FORCES : 0);
    MLFF_TRY(run_check(r));

    int64_t n_steps = r->options.n_steps;
    bool clocks = r->options.stages && r->callable.n_stages > 0 && r->callable.stages && r->callable.stage_times;
    size_t n_stages = clocks ? (size_t)r->callable.n_stages : 0;
    r->n_stages = (int)n_stages;
    r->n_ledgers = OWN_LEDGERS + (r->callable.ledgers ? r->callable.n_ledgers : 0);
    MLFF_TRY(series_init(&r->step, n_steps, LATENCY_LIMIT));
    if (r->callable.counters) MLFF_TRY(series_init(&r->with_rebuild, n_steps, STAGE_LIMIT));
    if (r->callable.counters) MLFF_TRY(series_init(&r->without, n_steps, STAGE_LIMIT));
    if (r->md) MLFF_TRY(series_init(&r->integrate, n_steps, STAGE_LIMIT));
    if (clocks) MLFF_TRY(series_init(&r->unattributed, n_steps, STAGE_LIMIT));
    r->stages = base_alloc(n_stages, sizeof *r->stages, "stages");
    r->stage_now = base_alloc(n_stages, sizeof *r->stage_now, "stage times");
    r->stage_step = base_alloc(n_stages, sizeof *r->stage_step, "stage times");
    r->initial_bytes = base_alloc(4 * (size_t)(r->n_ledgers + N_WORK), sizeof *r->initial_bytes, "memory ledgers");
    if (!r->stages || !r->stage_now || !r->stage_step || !r->initial_bytes) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    r->final_bytes = r->initial_bytes + r->n_ledgers + N_WORK;
    r->peak_bytes = r->final_bytes + r->n_ledgers + N_WORK;
    r->now_bytes = r->peak_bytes + r->n_ledgers + N_WORK;
    for (size_t k = 0; k < n_stages; k++) MLFF_TRY(series_init(&r->stages[k], n_steps, STAGE_LIMIT));
    MLFF_TRY(memory_series_init(&r->memory, r->n_ledgers + N_WORK, r->options.memory_every));
    if (clocks && r->callable.stage_clock_set) {
        MLFF_TRY(r->callable.stage_clock_set(r->callable.context, 1));
        r->clocks_running = true;
    }
done:
    return status;
}

static void run_free(run *r)
{
    for (int k = 0; r->stages && k < r->n_stages; k++) series_free(&r->stages[k]);
    series_free(&r->step);
    series_free(&r->with_rebuild);
    series_free(&r->without);
    series_free(&r->integrate);
    series_free(&r->unattributed);
    memory_series_free(&r->memory);
    base_free(r->stages);
    base_free(r->stage_now);
    base_free(r->stage_step);
    base_free(r->initial_bytes);
    base_free(r->forces);
}

// ---- one step ------------------------------------------------------------------------------------

static void stages_collect(run *r)
{
    r->callable.stage_times(r->callable.context, r->stage_now);
    for (int k = 0; k < r->n_stages; k++) r->stage_step[k] += r->stage_now[k];
}

// The forces of MD. The very first step of an integrator calls twice: the stages of the first call are then fetched here.
static mlff_status md_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    run *r = context;
    if (r->n_stages > 0 && r->n_force_calls > 0) stages_collect(r);
    int64_t start = mlff_clock_ns();
    mlff_status status =
        r->callable.step(r->callable.context, system, r->wanted, energy, forces, r->wanted & MLFF_STRESS ? r->stress : NULL);
    r->force_ns += mlff_clock_ns() - start;
    r->n_force_calls++;
    r->energy = *energy;
    return status;
}

static mlff_status frame_next(run *r)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(trajectory_next(r->trajectory, &r->frame));
    MLFF_TRY(base_grow(&r->forces, &r->forces_capacity, 3 * (size_t)r->frame->n_atoms, sizeof *r->forces, "forces"));
done:
    return status;
}

static mlff_status call(run *r, unsigned wanted, int64_t *time_ns)
{
    r->energy = 0.0;
    int64_t start = mlff_clock_ns();
    mlff_status status = r->callable.step(r->callable.context, r->frame, wanted, wanted & MLFF_ENERGY ? &r->energy : NULL,
                                          wanted & MLFF_FORCES ? r->forces : NULL, wanted & MLFF_STRESS ? r->stress : NULL);
    *time_ns = mlff_clock_ns() - start;
    return status;
}

static mlff_status step(run *r, int64_t *time_ns)
{
    mlff_status status = MLFF_OK;
    r->force_ns = 0;
    r->n_force_calls = 0;
    if (r->n_stages > 0) memset(r->stage_step, 0, (size_t)r->n_stages * sizeof *r->stage_step);
    if (r->md) {
        int64_t start = mlff_clock_ns();
        status = trajectory_integrate(r->trajectory);
        *time_ns = mlff_clock_ns() - start;
    } else {
        status = call(r, r->wanted, time_ns);
        r->force_ns = *time_ns;
    }
    if (status == MLFF_OK && r->n_stages > 0) stages_collect(r);
    return status;
}

static bool progress_stops(const run *r, int64_t done)
{
    return r->options.progress && r->options.progress(r->options.progress_context, done, r->options.n_steps) != 0;
}

// ---- what is noted between steps ------------------------------------------------------------------

static void counters_read(const run *r, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    *n_pairs = *n_rebuilds = *n_growths = -1;
    if (r->callable.counters) r->callable.counters(r->callable.context, n_pairs, n_rebuilds, n_growths);
}

static void memory_read(run *r)
{
    process_memory memory;
    process_memory_get(&memory);
    r->resident_known = memory.resident_bytes >= 0;
    r->heap_known = memory.heap_bytes >= 0;
    r->now_bytes[RESIDENT] = r->resident_known ? memory.resident_bytes : 0;
    r->now_bytes[HEAP] = r->heap_known ? memory.heap_bytes : 0;
    r->now_bytes[HEAP_RESERVED] = r->heap_known ? memory.heap_reserved_bytes : 0;
    r->now_bytes[r->n_ledgers] = r->frame ? r->frame->n_atoms : 0;
    r->now_bytes[r->n_ledgers + 1] = r->n_pairs > 0 ? r->n_pairs : 0;
    r->peak_after = memory.peak_bytes;
    if (r->n_ledgers > OWN_LEDGERS) r->callable.ledgers(r->callable.context, r->now_bytes + OWN_LEDGERS);
    for (int k = 0; k < r->n_ledgers; k++)
        if (r->now_bytes[k] > r->peak_bytes[k]) r->peak_bytes[k] = r->now_bytes[k];
}

static void note_step(run *r, int64_t time_ns, const struct rusage *before, const struct rusage *after)
{
    uint32_t tags = 0;
    int64_t n_pairs, n_rebuilds, n_growths;
    counters_read(r, &n_pairs, &n_rebuilds, &n_growths);
    if (n_rebuilds >= 0) {
        bool rebuilt = n_rebuilds > r->n_rebuilds;
        tags |= rebuilt ? TAG_REBUILD : 0;
        series_add(rebuilt ? &r->with_rebuild : &r->without, (double)time_ns, 0);
    }
    if (n_growths > r->n_growths && r->n_growths >= 0) tags |= TAG_GROWTH;
    if (after->ru_nivcsw > before->ru_nivcsw) tags |= TAG_PREEMPTED;
    if (after->ru_minflt - before->ru_minflt >= MIN_FAULTS) tags |= TAG_FAULTS;
    r->pairs_sum += (double)n_pairs;
    r->n_pairs = n_pairs;
    r->n_rebuilds = n_rebuilds;
    r->n_growths = n_growths;
    r->n_not_finite += !isfinite(r->energy);

    for (int k = 0; k < N_TAGS; k++) r->n_tagged[k] += tags >> k & 1;
    series_add(&r->step, (double)time_ns, tags);
    if (r->md) series_add(&r->integrate, (double)(time_ns - r->force_ns), 0);
    if (r->n_stages > 0) {
        double rest = (double)r->force_ns;
        for (int k = 0; k < r->n_stages; k++) {
            series_add(&r->stages[k], r->stage_step[k], 0);
            rest -= r->stage_step[k];
        }
        series_add(&r->unattributed, rest, 0);
    }
}

// ---- the two loops -------------------------------------------------------------------------------

static mlff_status warm_up(run *r)
{
    mlff_status status = MLFF_OK;
    for (int64_t i = 0; i < r->options.n_warmup; i++) {
        int64_t time_ns;
        if (progress_stops(r, i - r->options.n_warmup)) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted during the warm-up");
        MLFF_TRY(frame_next(r));
        MLFF_TRY(step(r, &time_ns));
        if (i == 0) r->warmup_first = (double)time_ns;
        r->warmup_sum += (double)time_ns;
    }
done:
    return status;
}

static mlff_status measure(run *r)
{
    mlff_status status = MLFF_OK;
    int64_t n_steps = r->options.n_steps;

    memory_read(r);
    memcpy(r->initial_bytes, r->now_bytes, (size_t)r->n_ledgers * sizeof *r->initial_bytes);
    r->peak_before = r->peak_after;
    counters_read(r, &r->n_pairs, &r->n_rebuilds, &r->n_growths);
    r->first_rebuilds = r->n_rebuilds;
    r->first_growths = r->n_growths;
    int64_t wall_start = mlff_clock_ns();

    for (int64_t i = 0; i <= n_steps; i++) {
        if (progress_stops(r, i))
            MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %lld of %lld steps", (long long)i, (long long)n_steps);
        if (memory_series_due(&r->memory, i)) {
            memory_read(r);
            memory_series_add(&r->memory, r->now_bytes);
        }
        if (i == n_steps) break;
        int64_t time_ns;
        struct rusage before = {0}, after = {0};
        MLFF_TRY(frame_next(r));
        getrusage(RUSAGE_SELF, &before);
        MLFF_TRY(step(r, &time_ns));
        getrusage(RUSAGE_SELF, &after);
        note_step(r, time_ns, &before, &after);
    }
done:
    r->wall_ns = mlff_clock_ns() - wall_start;
    memory_read(r);
    memcpy(r->final_bytes, r->now_bytes, (size_t)r->n_ledgers * sizeof *r->final_bytes);
    return status;
}

// ---- the split -----------------------------------------------------------------------------------

// Energy alone, then with forces, then with stress, interleaved so that a drift of the machine meets all alike. Frames that
// we make ourselves are new for each call, as in the run; frames of a file differ in size, so there the calls share one
// and take turns in being first. The first round is not counted: it meets buffers not yet made.
enum { SPLIT_ROUNDS = 50, SPLIT_NS = 2000000000 };

static mlff_status split_round(run *r, const unsigned *masks, int n_masks, int round, double *times)
{
    mlff_status status = MLFF_OK;
    bool fresh = r->md || strcmp(trajectory_kind(r->trajectory), "thermal") == 0;
    for (int i = 0; i < n_masks; i++) {
        int which = (i + round) % n_masks;
        int64_t time_ns;
        if (i == 0 || fresh) {
            if (r->md) MLFF_TRY(trajectory_integrate(r->trajectory));
            MLFF_TRY(frame_next(r));
        }
        MLFF_TRY(call(r, masks[which], &time_ns));
        times[which * SPLIT_ROUNDS + round] = (double)time_ns * 1e-6;
    }
done:
    return status;
}

static mlff_status split(run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    unsigned masks[3] = {MLFF_ENERGY};
    double times[3 * SPLIT_ROUNDS], median[3], parts[3] = {0};
    int n_masks = 1, rounds = 0;
    int max_rounds = r->options.n_steps < SPLIT_ROUNDS ? (int)r->options.n_steps : SPLIT_ROUNDS;

    if (!(r->callable.properties & MLFF_ENERGY))
        return profile_note(profile, "%s cannot be asked for the energy alone, so the split is not measured", r->callable.name);
    if (r->wanted & MLFF_FORCES) {
        masks[n_masks] = masks[n_masks - 1] | MLFF_FORCES;
        n_masks++;
    }
    if (r->wanted & MLFF_STRESS) {
        masks[n_masks] = masks[n_masks - 1] | MLFF_STRESS;
        n_masks++;
    }
    int64_t start = mlff_clock_ns();
    MLFF_TRY(split_round(r, masks, n_masks, 0, times));
    do {
        if (progress_stops(r, r->options.n_steps))
            MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after the last step, while energy and forces were told apart");
        MLFF_TRY(split_round(r, masks, n_masks, rounds, times));
        rounds++;
    } while (rounds < max_rounds && mlff_clock_ns() - start < SPLIT_NS);

    for (int k = 0; k < n_masks; k++) {
        median[k] = statistics_median(times + (size_t)k * SPLIT_ROUNDS, rounds);
        parts[k] = k == 0 ? median[0] : fmax(median[k] - median[k - 1], 0.0);
    }
    profile->summary.energy_time_ms = parts[0];
    int next = 1;
    if (r->wanted & MLFF_FORCES) profile->summary.forces_time_ms = parts[next++];
    if (r->wanted & MLFF_STRESS) profile->summary.stress_time_ms = parts[next];
    if ((r->wanted & MLFF_FORCES) && parts[1] < 0.1 * parts[0])
        MLFF_TRY(profile_note(profile, "an energy-only step takes as long as one with forces: %s computes both at once",
                              r->callable.name));
done:
    return status;
}

// ---- the record ----------------------------------------------------------------------------------

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

static mlff_status keep_samples(profile_ledger *ledger, const double *samples, int n)
{
    ledger->samples = base_alloc((size_t)n, sizeof *ledger->samples, "memory samples");
    if (!ledger->samples) return MLFF_ERR_MEMORY;
    memcpy(ledger->samples, samples, (size_t)n * sizeof *samples);
    ledger->n_samples = n;
    return MLFF_OK;
}

static mlff_status record_memory(const run *r, mlff_profile *profile)
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

    for (int k = 0; k < r->n_ledgers; k++) {
        if ((k == RESIDENT && !r->resident_known) || ((k == HEAP || k == HEAP_RESERVED) && !r->heap_known)) continue;
        const double *samples = r->memory.bytes + (size_t)k * MEMORY_SAMPLES;
        profile_ledger *ledger = &profile->ledgers[profile->n_ledgers];
        static const char *const own_names[] = {"resident", "heap", "heap reserved"};
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
    if (!r->resident_known) MLFF_TRY(profile_note(profile, "this system does not tell the resident memory"));
done:
    return status;
}

static mlff_status record_stages(const run *r, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    mlff_statistics time;
    static const mlff_stage integrate = {"integrate", "", -1, ""};

    profile->stages_measured = r->n_stages > 0;
    for (int k = 0; k < r->n_stages; k++) {
        MLFF_TRY(series_statistics(&r->stages[k], 1e-6, &time));
        MLFF_TRY(profile_add_stage(profile, &r->callable.stages[k], &time));
    }
    if (r->n_stages == 0) MLFF_TRY(profile_add_split(profile));
    if (r->md) {
        MLFF_TRY(series_statistics(&r->integrate, 1e-6, &time));
        MLFF_TRY(profile_add_stage(profile, &integrate, &time));
    }
    time = (mlff_statistics){.median = NAN, .p95 = NAN};
    if (r->n_stages > 0) MLFF_TRY(series_statistics(&r->unattributed, 1e-6, &time));
    MLFF_TRY(profile_add_unattributed(profile, time.median, time.p95));
done:
    return status;
}

static mlff_status record_times(run *r, mlff_profile *profile)
{
    mlff_profile_summary *summary = &profile->summary;
    mlff_status status = series_statistics(&r->step, 1e-6, &summary->latency_ms);
    if (status != MLFF_OK) return status;

    summary->n_steps = r->step.n;
    summary->n_warmup = r->options.n_warmup;
    if (r->options.n_warmup > 0) {
        summary->warmup_first_ms = r->warmup_first * 1e-6;
        summary->warmup_mean_ms = r->warmup_sum * 1e-6 / (double)r->options.n_warmup;
    }
    summary->total_time_s = r->step.mean * (double)r->step.n * 1e-9;
    summary->steps_per_second = r->step.mean > 0.0 ? 1e9 / r->step.mean : 0.0;
    summary->mean_pairs = r->n_pairs >= 0 ? r->pairs_sum / (double)r->step.n : -1.0;
    summary->n_rebuilds = r->n_rebuilds >= 0 ? r->n_rebuilds - r->first_rebuilds : -1;
    profile->n_growths = r->n_growths >= 0 ? r->n_growths - r->first_growths : -1;
    mlff_statistics part;
    if (r->with_rebuild.n > 0 && series_statistics(&r->with_rebuild, 1e-6, &part) == MLFF_OK)
        profile->rebuild_median_ms = part.median;
    if (r->without.n > 0 && series_statistics(&r->without, 1e-6, &part) == MLFF_OK) profile->other_median_ms = part.median;
    profile->n_not_finite = r->n_not_finite;
    profile->wall_time_s = (double)r->wall_ns * 1e-9;
    profile->timestep_fs = r->md ? trajectory_timestep_fs(r->trajectory) : r->options.timestep_fs;

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

static mlff_status record_texts(const run *r, mlff_profile *profile)
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
    snprintf(text, sizeof text, "%d atom%s", r->frame->n_atoms, r->frame->n_atoms == 1 ? "" : "s");
    MLFF_TRY(profile_set(&profile->system_size, text));
    if (!localtime_r(&now, &local) || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local) == 0) text[0] = 0;
    MLFF_TRY(profile_set(&profile->timestamp, text));
    MLFF_TRY(profile_set(&profile->trajectory, trajectory_kind(r->trajectory)));
    profile->summary.n_atoms = r->frame->n_atoms;
    MLFF_TRY(profile_add_notes(profile, r->callable.notes));
    MLFF_TRY(profile_add_notes(profile, r->options.notes));
    mlff_clock_calibration(&profile->quantum_ns, &profile->read_ns);
    MLFF_TRY(environment_collect(&profile->environment));
    MLFF_TRY(identity_collect(profile, &r->callable, r->frame, r->wanted));
done:
    return status;
}

// Keeps the text of the failure that ended the run: later calls may set their own.
static void keep_error(run *r, mlff_status status)
{
    bool step_failed = status != MLFF_OK && status != MLFF_ERR_INTERRUPTED;
    if (step_failed && !*mlff_last_error())
        snprintf(r->error, sizeof r->error, "%s failed in step %lld and did not say why", r->callable.name, (long long)r->step.n);
    else if (step_failed && r->step.n > 0)
        snprintf(r->error, sizeof r->error, "%.900s (in step %lld)", mlff_last_error(), (long long)r->step.n);
    else
        snprintf(r->error, sizeof r->error, "%s", mlff_last_error());
}

// A failure to switch clocks off changes nothing that was measured, and the next run switches them anew.
static void clocks_off(run *r)
{
    if (r->clocks_running) (void)r->callable.stage_clock_set(r->callable.context, 0);
    r->clocks_running = false;
}

// Turns what was measured into a record; `ended` is how the steps ended.
static mlff_status run_record(run *r, mlff_status *ended, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    if (*ended == MLFF_OK && r->options.split) {
        mlff_status split_status = split(r, profile);
        if (split_status == MLFF_ERR_INTERRUPTED) {
            *ended = split_status;
            keep_error(r, split_status);
        } else if (split_status != MLFF_OK) {
            MLFF_TRY(profile_note(profile, "the split into energy and forces failed: %s", mlff_last_error()));
        }
    }
    MLFF_TRY(record_times(r, profile));
    MLFF_TRY(record_memory(r, profile));
    MLFF_TRY(record_stages(r, profile));
    profile->summary.partial = *ended != MLFF_OK;
    if (*ended != MLFF_OK) MLFF_TRY(profile_note(profile, "partial: %s", r->error));
    MLFF_TRY(profile_derive(profile));
done:
    return status;
}

mlff_status mlff_profile_run(const mlff_callable *callable, mlff_trajectory *trajectory, const mlff_profile_options *options,
                             mlff_profile **profile_out)
{
    if (!callable || !trajectory || !profile_out)
        return mlff_fail(MLFF_ERR_USAGE, "profile: callable, trajectory or output is NULL");
    if (callable->struct_size == 0 || (options && options->struct_size == 0))
        return mlff_fail(MLFF_ERR_USAGE,
                         "profile: struct_size is 0; set it in the callable, and start options from their default");

    run r;
    mlff_profile *profile = NULL;
    mlff_status ended = MLFF_OK, status = run_init(&r, callable, trajectory, options);
    if (status != MLFF_OK) goto done;
    MLFF_TRY(profile_new(&profile));
    MLFF_TRY(trajectory_start(trajectory, md_forces, &r));
    MLFF_TRY(frame_next(&r));
    MLFF_TRY(record_texts(&r, profile)); // of the first frame
    MLFF_TRY(trajectory_start(trajectory, md_forces, &r));

    mlff_fail(MLFF_OK, "%s", ""); // so that an old text is not taken for that of a step
    ended = warm_up(&r);
    if (ended == MLFF_OK) ended = measure(&r);
    if (ended != MLFF_OK) keep_error(&r, ended);
    clocks_off(&r);
    if (r.step.n > 0) {
        MLFF_TRY(run_record(&r, &ended, profile));
        *profile_out = profile;
        profile = NULL;
    }
    if (ended != MLFF_OK) status = mlff_fail(ended, "%s", r.error);
done:
    clocks_off(&r);
    mlff_profile_destroy(profile);
    run_free(&r);
    return status;
}
