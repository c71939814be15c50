// SPDX-License-Identifier: MIT
// profile.c: the run. Between two readings of the clock lies one step and nothing else; frames, counters, memory samples
// and the caller's progress come between steps. Nothing is allocated while steps are measured, so that what grows is
// the force field's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

// Latencies kept one by one; of a stage fewer, there are tens of them.
enum { LATENCY_LIMIT = 100000, STAGE_LIMIT = 4096, MIN_FAULTS = 8, WATCH_EVERY = 64, FILE_BYTES = 4096 };
#define OFF_NS 5000.0        // where a step did not run for longer than this, and for
#define OFF_SHARE 0.02       // more than this part of its time, the reason is read from /proc
#define FILE_NS_PER_BYTE 3.0 // new pages of the system's cache and the copy: 0.5 to 1 on an idle machine
#define CLOCK_DROP 1.15      // a chain of arithmetic takes this much longer than at its best

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
        return mlff_fail(MLFF_ERR_USAGE, "profile: %lld warm-up steps; 0 or more are allowed", (long long)o->n_warmup);
    if (o->memory_every < 1)
        return mlff_fail(MLFF_ERR_USAGE, "profile: memory every %lld steps; at least 1 is needed", (long long)o->memory_every);
    if (o->until_precision < 0.0 || !(o->precision_of > 0.0 && o->precision_of < 1.0))
        return mlff_fail(MLFF_ERR_USAGE,
                         "profile: a precision of %g of percentile %g; 0 or more of one between 0 and 1 is needed",
                         o->until_precision, o->precision_of);
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

mlff_status run_init(run *r, const mlff_callable *callable, mlff_trajectory *trajectory, const mlff_profile_options *options)
{
    mlff_status status = MLFF_OK;
    *r = (run){.trajectory = trajectory, .options = mlff_profile_options_default()};
    memcpy(&r->callable, callable, callable->struct_size < sizeof r->callable ? callable->struct_size : sizeof r->callable);
    MLFF_TRY(base_take_options("mlff_profile_run", "mlff_profile_options", options, sizeof r->options, &r->options));
    r->md = !trajectory || trajectory_is_md(trajectory);
    r->wanted = r->options.properties | (r->md ? MLFF_ENERGY | MLFF_FORCES : 0);
    MLFF_TRY(run_check(r));
    MLFF_TRY(environment_collect(&r->environment));

    int64_t n_steps = r->options.n_steps;
    bool clocks = r->options.stages && r->callable.n_stages > 0 && r->callable.stages && r->callable.stage_times;
    size_t n_stages = clocks ? (size_t)r->callable.n_stages : 0;
    r->n_stages = (int)n_stages;
    r->n_ledgers = OWN_LEDGERS + (r->callable.ledgers && r->callable.ledger_names ? r->callable.n_ledgers : 0);
    MLFF_TRY(series_init(&r->step, n_steps, LATENCY_LIMIT));
    MLFF_TRY(series_keep_tags(&r->step));
    if (r->callable.counters) MLFF_TRY(series_init(&r->with_rebuild, n_steps, STAGE_LIMIT));
    if (r->callable.counters) MLFF_TRY(series_init(&r->without, n_steps, STAGE_LIMIT));
    if (r->md) MLFF_TRY(series_init(&r->integrate, n_steps, STAGE_LIMIT));
    if (clocks) MLFF_TRY(series_init(&r->unattributed, n_steps, STAGE_LIMIT));
    r->stages = base_alloc(n_stages, sizeof *r->stages, "stages");
    r->stage_now = base_alloc(n_stages, sizeof *r->stage_now, "stage times");
    r->stage_step = base_alloc(n_stages, sizeof *r->stage_step, "stage times");
    r->slow_stages = base_alloc(n_stages, sizeof *r->slow_stages, "stage times");
    r->stage_part = base_alloc(n_stages, sizeof *r->stage_part, "stages");
    r->initial_bytes = base_alloc(5 * (size_t)(r->n_ledgers + N_WORK), sizeof *r->initial_bytes, "memory ledgers");
    if (!r->stages || !r->stage_now || !r->stage_step || !r->stage_part || !r->slow_stages || !r->initial_bytes) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    r->final_bytes = r->initial_bytes + r->n_ledgers + N_WORK;
    r->peak_bytes = r->final_bytes + r->n_ledgers + N_WORK;
    r->now_bytes = r->peak_bytes + r->n_ledgers + N_WORK;
    r->collected_bytes = r->now_bytes + r->n_ledgers + N_WORK;
    r->list_stage = -1;
    for (size_t k = 0; k < n_stages; k++) {
        if (profile_stage_of_list(r->callable.stages[k].name)) r->list_stage = (int)k;
        r->stage_part[k] = (unsigned char)profile_stage_part(r->callable.stages[k].phase, r->callable.stages[k].name);
        MLFF_TRY(series_init(&r->stages[k], n_steps, STAGE_LIMIT));
    }
    MLFF_TRY(trace_init(r));
    MLFF_TRY(run_meter(r));
    MLFF_TRY(memory_series_init(&r->memory, r->n_ledgers + N_WORK, r->options.memory_every));
    if (clocks && r->callable.stage_clock_set) {
        MLFF_TRY(r->callable.stage_clock_set(r->callable.context, 1));
        r->clocks_running = true;
    }
done:
    return status;
}

void run_free(run *r)
{
    for (int k = 0; r->stages && k < r->n_stages; k++) series_free(&r->stages[k]);
    series_free(&r->step);
    series_free(&r->with_rebuild);
    series_free(&r->without);
    series_free(&r->integrate);
    series_free(&r->unattributed);
    memory_series_free(&r->memory);
    base_free(r->trace);
    base_free(r->trace_stages);
    base_free(r->trace_spans);
    base_free(r->stages);
    base_free(r->stage_now);
    base_free(r->stage_step);
    base_free(r->stage_part);
    base_free(r->slow_stages);
    base_free(r->initial_bytes);
    base_free(r->forces);
    base_free(r->kernel_steps);
    activity_free(&r->activity);
    power_series_close(&r->power);
    process_watch_close(&r->watch);
    environment_free(&r->environment);
}

// ---- one step ------------------------------------------------------------------------------------

void run_stages_collect(run *r)
{
    r->callable.stage_times(r->callable.context, r->stage_now);
    for (int k = 0; k < r->n_stages; k++) r->stage_step[k] += r->stage_now[k];
}

// The forces of MD. The very first step of an integrator calls twice: the stages of the first call are then fetched here.
mlff_status run_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    run *r = context;
    if (r->n_stages > 0 && r->n_force_calls > 0) run_stages_collect(r);
    int64_t start = mlff_clock_ns();
    mlff_status status =
        r->callable.step(r->callable.context, system, r->wanted, energy, forces, r->wanted & MLFF_STRESS ? r->stress : NULL);
    r->force_ns += mlff_clock_ns() - start;
    r->force_start_ns = start;
    r->n_force_calls++;
    r->energy = *energy;
    return status;
}

mlff_status run_frame_next(run *r)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(trajectory_next(r->trajectory, &r->frame));
    r->n_atoms = r->frame->n_atoms;
    MLFF_TRY(base_grow(&r->forces, &r->forces_capacity, 3 * (size_t)r->frame->n_atoms, sizeof *r->forces, "forces"));
done:
    return status;
}

mlff_status run_call(run *r, unsigned wanted, int64_t *time_ns)
{
    r->energy = 0.0;
    int64_t start = mlff_clock_ns();
    mlff_status status = r->callable.step(r->callable.context, r->frame, wanted, wanted & MLFF_ENERGY ? &r->energy : NULL,
                                          wanted & MLFF_FORCES ? r->forces : NULL, wanted & MLFF_STRESS ? r->stress : NULL);
    *time_ns = mlff_clock_ns() - start;
    return status;
}

mlff_status run_step(run *r, int64_t *time_ns)
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
        status = run_call(r, r->wanted, time_ns);
        r->force_ns = *time_ns;
    }
    if (status == MLFF_OK && r->n_stages > 0) run_stages_collect(r);
    return status;
}

bool run_stops(const run *r, int64_t done)
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
    const power_sample *gpu = r->power.n > 0 ? &r->power.samples[r->power.n - 1] : NULL;
    if (gpu && gpu->process_bytes >= 0) r->now_bytes[GPU_PROCESS] = gpu->process_bytes; // else what was known last
    if (gpu && gpu->whole_bytes >= 0) r->now_bytes[GPU_WHOLE] = gpu->whole_bytes;
    r->now_bytes[r->n_ledgers] = r->n_atoms;
    r->now_bytes[r->n_ledgers + 1] = r->n_pairs > 0 ? r->n_pairs : 0;
    r->peak_after = memory.peak_bytes;
    if (r->n_ledgers > OWN_LEDGERS) r->callable.ledgers(r->callable.context, r->now_bytes + OWN_LEDGERS);
    for (int k = 0; k < r->n_ledgers; k++)
        if (r->now_bytes[k] > r->peak_bytes[k]) r->peak_bytes[k] = r->now_bytes[k];
}

uint32_t run_events(const process_events *before, const process_events *after)
{
    uint32_t tags = 0;
    if (after->n_preempted > before->n_preempted) tags |= TAG_PREEMPTED;
    if (after->n_faults - before->n_faults >= MIN_FAULTS) tags |= TAG_FAULTS;
    if (after->n_file_blocks > before->n_file_blocks) tags |= TAG_FILES;
    if (after->heap_end > before->heap_end || after->n_allocations > before->n_allocations) tags |= TAG_ALLOCATED;
    return tags;
}

// Reading frames from a file touches pages and moves blocks: what is counted then begins after that.
void run_prepare(run *r, process_events *before)
{
    bool reads = r->trajectory && strcmp(trajectory_kind(r->trajectory), "file") == 0;
    if (reads) process_watch_skip_files(&r->watch);
    r->paused_ns = r->callable.paused_ns ? *r->callable.paused_ns : 0;
    if (reads)
        process_events_get(before);
    else
        process_events_begin(before);
}

// What of a wait for a CPU was in steps: between them this thread either runs or waits. A thread whose turn is over loses the
// processor when it reads its own clock, which is after a step, so that this is much of all waiting.
static double wait_in_steps(const run *r, const process_watch_seen *seen)
{
    double between = (double)(seen->wall_ns - r->watched_ns) - ((double)seen->cpu_ns - r->watched_cpu_ns);
    return fmax(fmin((double)seen->wait_ns - fmax(between, 0.0), r->watched_off_ns), 0.0);
}

// Threads that wait for a CPU make steps long in the calling thread (which waits itself, or spins until the others are there).
uint32_t run_watch(run *r, int64_t time_ns, float parts[N_PARTS])
{
    uint32_t tags = 0;
    process_watch_seen seen;
    process_watch_read(&r->watch, &seen);
    double waited = r->watched_cpu_ns > 0.0 ? wait_in_steps(r, &seen) : fmin((double)seen.wait_ns, r->watched_off_ns);
    parts[PART_WAIT] = NAN;
    if (seen.wait_ns >= 0) {
        r->contended_ns += fmax(waited, fmin((double)seen.team_wait_ns, (double)r->watched_ns)); // others idle between steps
        r->counted_ns += (double)r->watched_ns;
        r->waited_ns += (double)seen.wait_ns;
        r->ran_ns += (double)seen.cpu_ns;
        parts[PART_WAIT] = (float)fmin(waited, fmax((double)time_ns - fmax(parts[PART_CPU], 0.0), 0.0)); // or NaN
    }
    if (seen.never_blocked) parts[PART_TAKEN] = (float)fmax((double)time_ns - parts[PART_CPU], 0.0);
    r->watched_ns = 0;
    r->watched_off_ns = r->watched_cpu_ns = 0.0;
    parts[PART_TEAM_WAIT] = (float)fmin((double)seen.team_wait_ns, (double)time_ns);
    parts[PART_CHILDREN] = (float)seen.children_ns;
    parts[PART_FILES] = (float)fmin((double)seen.io_bytes * FILE_NS_PER_BYTE, (double)time_ns);
    if (seen.io_bytes >= FILE_BYTES) tags |= TAG_FILES;
    if (seen.n_loads > 0) tags |= TAG_COMPILED;
    if (seen.children_ns > 0) tags |= TAG_CHILD;
    return tags;
}

// The parts of a step's time. What costs a reading of /proc is looked at after steps that were slow or did not run all the time,
// and every WATCH_EVERY steps.
static void parts_of(run *r, int64_t time_ns, const process_events *before, const process_events *after, float parts[N_PARTS],
                     uint32_t *tags)
{
    bool known = after->cpu_ns >= 0 && before->cpu_ns >= 0;
    for (int k = 0; k < N_PARTS; k++) parts[k] = known && k != PART_WAIT && k < PART_DEVICE ? 0.0f : NAN;
    r->watched_ns += time_ns;
    bool slow = (double)time_ns > 1.2 * r->typical_ns;
    r->watched_off_ns += known ? fmax((double)(time_ns - after->cpu_ns + before->cpu_ns), 0.0) : (double)time_ns;
    if (!known) {
        if (slow || r->step.n % WATCH_EVERY == 0) *tags |= run_watch(r, time_ns, parts);
        return;
    }
    double cpu = fmin((double)(after->cpu_ns - before->cpu_ns), (double)time_ns), off = (double)time_ns - cpu;
    r->watched_cpu_ns += cpu;
    parts[PART_CPU] = (float)cpu;
    parts[PART_WAIT] = 0.0f;
    parts[PART_OTHERS] = (float)fmax((double)(after->process_us - before->process_us) * 1e3 - cpu, 0.0);
    parts[PART_SYSTEM] = (float)((double)(after->system_us - before->system_us) * 1e3);
    parts[PART_FAULTS] = (float)((double)(after->n_faults - before->n_faults) * r->watch.fault_ns);
    if (r->callable.paused_ns) parts[PART_PAUSE] = (float)(*r->callable.paused_ns - r->paused_ns);
    if (r->list_stage >= 0) parts[PART_LIST] = (float)r->stage_step[r->list_stage];
    if (r->n_stages > 0 && r->callable.device && strncmp(r->callable.device, "cuda", 4) == 0) {
        parts[PART_DEVICE] = parts[PART_QUEUE] = parts[PART_ENQUEUE] = 0.0f;
        for (int k = 0; k < r->n_stages; k++) parts[r->stage_part[k]] += (float)r->stage_step[k];
    }
    bool stood = off > fmax(OFF_NS, OFF_SHARE * (double)time_ns);
    if (slow || stood || r->step.n % WATCH_EVERY == 0) *tags |= run_watch(r, time_ns, parts);
}

uint32_t run_pace(run *r, float parts[N_PARTS])
{
    double pace = pace_ns();
    if (pace < r->pace_ns) r->pace_ns = pace;
    parts[PART_PACE] = (float)(pace / r->pace_ns);
    return pace > CLOCK_DROP * r->pace_ns ? TAG_CLOCK : 0;
}

// The core's pace is looked at after slow steps only: it costs a microsecond. A median that is followed by small moves does
// for what is slow.
static uint32_t clock_tag(run *r, double time_ns, float parts[N_PARTS])
{
    if (r->typical_ns <= 0.0) r->typical_ns = time_ns;
    bool slow = time_ns > 1.2 * r->typical_ns;
    r->typical_ns *= time_ns > r->typical_ns ? 1.02 : 1.0 / 1.02;
    return slow ? run_pace(r, parts) : 0;
}

// Called after the step was counted.
static void keep_slow(run *r, int64_t time_ns)
{
    memcpy(r->slow_stages, r->stage_step, (size_t)r->n_stages * sizeof *r->slow_stages);
    r->slow_ns = (double)time_ns;
    r->slow_force_ns = (double)r->force_ns;
    r->slow_step = r->step.n - 1;
}

uint32_t run_note(run *r, int64_t time_ns, const process_events *before, const process_events *after)
{
    float parts[N_PARTS];
    uint32_t tags = run_events(before, after);
    parts_of(r, time_ns, before, after, parts, &tags);
    tags |= clock_tag(r, (double)time_ns, parts);
    int64_t n_pairs, n_rebuilds, n_growths;
    counters_read(r, &n_pairs, &n_rebuilds, &n_growths);
    if (n_rebuilds >= 0) {
        bool rebuilt = n_rebuilds > r->n_rebuilds;
        tags |= rebuilt ? TAG_REBUILD : 0;
        series_add(rebuilt ? &r->with_rebuild : &r->without, (double)time_ns, 0);
    }
    if (n_growths > r->n_growths && r->n_growths >= 0) tags |= TAG_GROWTH;
    r->pairs_sum += (double)n_pairs;
    r->atoms_sum += r->n_atoms;
    if (r->step.n == 0 || r->n_atoms < r->least_atoms) r->least_atoms = r->n_atoms;
    if (r->n_atoms > r->most_atoms) r->most_atoms = r->n_atoms;
    r->n_pairs = n_pairs;
    r->n_rebuilds = n_rebuilds;
    r->n_growths = n_growths;
    r->n_not_finite += !isfinite(r->energy);

    for (int k = 0; k < N_TAGS; k++) r->n_tagged[k] += tags >> k & 1;
    series_add_parts(&r->step, (double)time_ns, tags, parts);
    if (r->md) series_add(&r->integrate, (double)(time_ns - r->force_ns), 0);
    if (r->n_stages > 0) {
        double rest = (double)r->force_ns;
        for (int k = 0; k < r->n_stages; k++) {
            series_add(&r->stages[k], r->stage_step[k], 0);
            rest -= r->stage_step[k];
        }
        series_add(&r->unattributed, rest, 0);
        if ((double)time_ns > r->slow_ns) keep_slow(r, time_ns);
    }
    return tags;
}

void run_begin(run *r)
{
    if (!r->watch.open) process_watch_open(&r->watch);
    power_series_look(&r->power, 0, true);
    memory_read(r);
    memcpy(r->initial_bytes, r->now_bytes, (size_t)r->n_ledgers * sizeof *r->initial_bytes);
    r->peak_before = r->peak_after;
    r->pace_ns = r->first_pace_ns = pace_ns();
    counters_read(r, &r->n_pairs, &r->n_rebuilds, &r->n_growths);
    r->first_rebuilds = r->n_rebuilds;
    r->first_growths = r->n_growths;
    cores_look(&r->first_use);
}

void run_sample(run *r, int64_t step)
{
    power_series_look(&r->power, step, false);
    if (!memory_series_due(&r->memory, step)) return;
    memory_read(r);
    memory_series_add(&r->memory, r->now_bytes);
    process_watch_skip_files(&r->watch); // what was read just now is the profiler's
}

void run_end(run *r)
{
    cores_look(&r->last_use);
    r->last_pace_ns = pace_ns();
    power_series_look(&r->power, r->step.n, true);
    memory_read(r);
    memcpy(r->final_bytes, r->now_bytes, (size_t)r->n_ledgers * sizeof *r->final_bytes);
    if (r->callable.collect) {
        r->callable.collect(r->callable.context);
        memory_read(r);
    }
    memcpy(r->collected_bytes, r->now_bytes, (size_t)r->n_ledgers * sizeof *r->collected_bytes);
}

// ---- the two loops -------------------------------------------------------------------------------

static mlff_status warm_up(run *r)
{
    mlff_status status = MLFF_OK;
    for (int64_t i = 0; i < r->options.n_warmup; i++) {
        int64_t time_ns;
        if (run_stops(r, i - r->options.n_warmup)) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted during the warm-up");
        MLFF_TRY(run_frame_next(r));
        ranges_begin("warm-up step");
        status = run_step(r, &time_ns);
        ranges_end();
        if (status != MLFF_OK) goto done;
        if (i == 0) r->warmup_first = (double)time_ns;
        r->warmup_sum += (double)time_ns;
    }
done:
    return status;
}

// Looked at each time a quarter more steps are there. The interval is that of the steady part, at the number of independent
// steps. Stopping where it happens to be narrow makes it a little too narrow on average; a report says that it was so.
static bool precise_enough(run *r)
{
    percentile_bounds b;
    int64_t n = r->step.n_values;
    r->next_check = r->step.n + (r->step.n / 4 > 50 ? r->step.n / 4 : 50);
    steady_state s = steady_find(r->step.values, n);
    if (s.kind != STEADY_UNKNOWN && !s.settled) return false;
    if (percentile_interval(r->step.values + s.first, n - s.first, r->options.precision_of, &b) != MLFF_OK) return false;
    r->precision_reached = (b.high - b.low) / (2.0 * b.value);
    return r->precision_reached <= r->options.until_precision; // false for NaN
}

static mlff_status measure(run *r)
{
    mlff_status status = MLFF_OK;
    int64_t n_steps = r->options.n_steps;

    process_events before, after;
    run_begin(r);
    process_events_get(&before);
    int64_t wall_start = mlff_clock_ns();

    for (int64_t i = 0; i <= n_steps; i++) {
        if (run_stops(r, i))
            MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted after %lld of %lld step%s", (long long)i, (long long)n_steps,
                      base_plural(n_steps));
        run_sample(r, i);
        if (i == n_steps) break;
        int64_t time_ns;
        MLFF_TRY(run_frame_next(r));
        run_prepare(r, &before);
        int64_t start_ns = mlff_clock_ns();
        ranges_begin("step");
        status = run_step(r, &time_ns);
        ranges_end();
        if (status != MLFF_OK) goto done;
        process_events_get(&after);
        uint32_t tags = run_note(r, time_ns, &before, &after);
        before = after;
        if (r->n_trace < r->trace_capacity) trace_step(r, start_ns, time_ns, tags);
        if (r->options.until_precision > 0.0 && i + 1 >= r->next_check && precise_enough(r)) break;
    }
done:
    r->wall_ns = mlff_clock_ns() - wall_start;
    run_end(r);
    return status;
}

static void keep_error(run *r, mlff_status status)
{
    bool step_failed = status != MLFF_OK && status != MLFF_ERR_INTERRUPTED;
    if (step_failed && !*mlff_last_error())
        snprintf(r->error, sizeof r->error, "%s failed in step %lld without a message", r->callable.name, (long long)r->step.n);
    else if (step_failed && r->step.n > 0)
        snprintf(r->error, sizeof r->error, "%.900s (in step %lld)", mlff_last_error(), (long long)r->step.n);
    else
        snprintf(r->error, sizeof r->error, "%s", mlff_last_error());
}

// A failure to switch clocks off changes nothing that was measured, and the next run switches them on again.
static void clocks_off(run *r)
{
    if (r->clocks_running) (void)r->callable.stage_clock_set(r->callable.context, 0);
    r->clocks_running = false;
}

// Of all steps that there are: the last look may be a while back.
static mlff_status note_precision(run *r, mlff_profile *profile)
{
    const bool reached = precise_enough(r);
    const double percent = r->precision_reached * 100.0, asked = r->options.until_precision * 100.0,
                 of = r->options.precision_of * 100.0;
    char early[96] = "";
    if (!reached)
        return profile_note(profile, "%lld step%s not enough to know P%g within ±%.2g %%", (long long)r->step.n,
                            r->step.n == 1 ? " was" : "s were", of, asked);
    if (r->step.n < r->options.n_steps)
        snprintf(early, sizeof early, "ended after %lld of at most %lld step%s: ", (long long)r->step.n,
                 (long long)r->options.n_steps, base_plural(r->options.n_steps));
    return profile_note(profile, "%sP%g is known within ±%.2g %%, ±%.2g %% were asked for", early, of, percent, asked);
}

// Makes the record of what was measured; `ended` is how the steps ended.
static mlff_status run_record(run *r, mlff_status *ended, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    if (*ended == MLFF_OK && r->options.split) {
        mlff_status split_status = run_split(r, profile);
        if (split_status == MLFF_ERR_INTERRUPTED) {
            *ended = split_status;
            keep_error(r, split_status);
        } else if (split_status != MLFF_OK) {
            MLFF_TRY(profile_note(profile, "the split into energy and forces failed: %s", mlff_last_error()));
        }
    }
    if (*ended == MLFF_OK && r->options.overhead && run_overhead(r, profile) != MLFF_OK)
        MLFF_TRY(profile_note(profile, "the overhead could not be measured: %s", mlff_last_error()));
    if (*ended == MLFF_OK && r->options.kernels > 0 && run_kernels(r, profile) != MLFF_OK) // last: it may leave steps slower
        MLFF_TRY(profile_note(profile, "kernels on the GPU were not traced: %s", mlff_last_error()));
    if (r->options.until_precision > 0.0) MLFF_TRY(note_precision(r, profile));
    MLFF_TRY(record_times(r, profile));
    record_waits(r, profile);
    if (r->ran_ns > 0.0) profile->tail.stretch = 1.0 + r->waited_ns / r->ran_ns;
    profile->tail.virtual_machine = environment_may_be_virtual();
    profile->tail.pace_rise = fmax(r->last_pace_ns / r->first_pace_ns - 1.0, 0.0);
    MLFF_TRY(causes_derive(profile, profile->latency_ms, r->step.tags, r->step.parts, profile->n_latency));
    MLFF_TRY(record_memory(r, profile));
    MLFF_TRY(record_stages(r, profile));
    ceiling_products products;
    const int n_threads = callable_ceiling_threads(&r->callable, &products);
    MLFF_TRY(bounds_derive(profile, &r->callable, n_threads, products));
    if (profile->stages_measured && callable_is_float64(&r->callable))
        MLFF_TRY(profile_note(profile, "stages are not compared with this machine's limits: none are measured for float64, the "
                                       "reference, which is written to be exact and not to be fast"));
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
    if (callable->struct_size == 0)
        return mlff_fail(MLFF_ERR_USAGE, "profile: struct_size of the callable is 0; set it to sizeof(mlff_callable)");

    run r;
    mlff_profile *profile = NULL;
    mlff_status ended = MLFF_OK, status = run_init(&r, callable, trajectory, options);
    if (status != MLFF_OK) goto done;
    MLFF_TRY(profile_new(&profile));
    MLFF_TRY(trajectory_start(trajectory, run_forces, &r));
    MLFF_TRY(run_frame_next(&r));
    MLFF_TRY(record_texts(&r, profile)); // of the first frame
    MLFF_TRY(trajectory_start(trajectory, run_forces, &r));

    mlff_fail(MLFF_OK, "%s", ""); // so that an old text is not taken for that of a step
    ended = warm_up(&r);
    if (ended == MLFF_OK) ended = measure(&r);
    if (ended != MLFF_OK) keep_error(&r, ended);
    clocks_off(&r);
    if (r.step.n > 0) {
        MLFF_TRY(run_record(&r, &ended, profile));
        status = trace_write(&r, profile); // a timeline that cannot be written costs nothing of the record
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
