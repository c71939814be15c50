// SPDX-License-Identifier: MIT
// monitor.c: profiles a production run. Each step costs two readings of the clock and an entry in a histogram.
//
// Blocks: in BLOCK steps of every PERIOD stage clocks, counters and events are on. The BLOCK steps after them run without. The difference
// of the two blocks, divided by the period, is the overhead inside steps. The work between steps is timed; where a step needs nothing
// special, in one of LIGHT_TIMED.
// Causes of slow steps: events are read after each of the slowest 2 % of the steps and every WINDOW steps; what happened since the previous
// reading is attributed to the slow step.
// GPUs: if the atoms stay on a GPU, it times all steps, and the last step of each piece has stages. Each of several GPUs has a monitor, with
// the same times of steps.
#include <math.h>
#include <string.h>

#include "base/voigt.h"
#include "run.h"

enum { BLOCK = 16, PERIOD = 320, PAIRS_MAX = 256, PIECE = 1000, WINDOW = 32, LIGHT_TIMED = 32, PACE_EVERY = 32 };
// The work between two steps: the least; an event or a block; a sample of memory.
enum { LIGHT, HEAVY, SAMPLED, N_KINDS };
enum { DOMAINS_MAX = 64 }; // as many as a parallel evaluator has
#define SLOW_SHARE 0.02
#define SAMPLE_SHARE 0.001 // of the run's time may go into samples of memory

enum { FIRST_COST_NS = 2000000, COST_SHARE = 500 }; // of a window: what is thought of the first; 0.2 % of the time

struct mlff_monitor {
    run r;
    int n_stages; // of the callable; r.n_stages is 0 while they are off
    int64_t n_steps, started_ns;
    bool on;
    double block_ns[2][BLOCK];     // steps of the block with everything, and of the bare one
    double differences[PAIRS_MAX]; // of their lower quartiles: on a busy machine most steps may lose the processor
    int n_differences;
    int64_t keep_every, n_pairs;                 // every keep_every-th pair is kept
    double spent_ns[N_KINDS], usual_ns[N_KINDS]; // outside of steps; of light ones in those that were timed
    int64_t n_light, n_light_timed;
    process_events events; // at the last reading
    int64_t events_step, pace_step;
    double sample_ns;       // what a sample of memory costs
    double slow_ns;         // a step longer than this is one of the slowest; followed as it goes
    double stage_step_mean; // of the steps in which stages were seen
    int64_t n_seen;
    bool resident;                                  // the steps are a GPU's
    mlff_monitor *others[DOMAINS_MAX - 1];          // of the other GPUs, if several make the steps
    int n_domains, domain;                          // GPUs, 0: one; the one that this monitor is of
    char device[16];                                // of the others
    double times_ns[PIECE];                         // of such steps
    int64_t watch_steps, n_windows, next_window_ns; // windows in which kernels on a GPU are seen; 0: none
    kernel_report *kernels;                         // of the last one
    double window_cost_ns, unwatched_ns, before_ms; // of all windows; of the steps outside of them; of one before the first
    int64_t n_unwatched;
    char watch_problem[512];
};

mlff_status mlff_monitor_create(const mlff_callable *callable, const mlff_system *system, double timestep_fs,
                                int64_t memory_every, mlff_monitor **monitor_out)
{
    if (!callable || !system || !monitor_out) return mlff_fail(MLFF_ERR_USAGE, "monitor: callable, system or output is NULL");
    if (callable->struct_size == 0)
        return mlff_fail(MLFF_ERR_USAGE, "monitor: struct_size of the callable is 0; set it to sizeof(mlff_callable)");
    mlff_status status = MLFF_OK;
    mlff_monitor *m = base_alloc(1, sizeof *m, "a monitor");
    if (!m) return MLFF_ERR_MEMORY;
    mlff_profile_options options = mlff_profile_options_default();
    options.n_steps = INT64_MAX / 4;
    options.n_warmup = 0;
    options.memory_every = memory_every;
    options.timestep_fs = timestep_fs;
    m->keep_every = 1;
    status = run_init(&m->r, callable, NULL, &options);
    m->n_stages = m->r.n_stages;
    MLFF_TRY(status);
    m->r.frame = system;
    m->r.n_atoms = system->n_atoms;
    *monitor_out = m;
    m = NULL;
done:
    mlff_monitor_destroy(m);
    return status;
}

void mlff_monitor_destroy(mlff_monitor *m)
{
    if (!m) return;
    for (int k = 1; k < m->n_domains; k++) mlff_monitor_destroy(m->others[k - 1]);
    m->r.n_stages = m->n_stages;
    if (m->r.clocks_running) (void)m->r.callable.stage_clock_set(m->r.callable.context, 0);
    run_free(&m->r);
    kernel_report_free(m->kernels);
    base_free(m);
}

mlff_status mlff_monitor_kernels(mlff_monitor *m, int64_t n_steps)
{
    if (!m || n_steps < 0 || n_steps > 10000)
        return mlff_fail(MLFF_ERR_USAGE, "monitor: monitor is NULL, or windows of %lld steps; 0 to 10000 are allowed",
                         (long long)n_steps);
    m->watch_steps = n_steps;
    m->next_window_ns = mlff_clock_ns() + FIRST_COST_NS * COST_SHARE;
    return MLFF_OK;
}

mlff_status mlff_monitor_forces(void *monitor, const mlff_system *system, double *energy, double *forces)
{
    mlff_monitor *m = monitor;
    const mlff_callable *callable = &m->r.callable;
    if (m->on) return run_forces(&m->r, system, energy, forces);
    mlff_status status =
        callable->step(callable->context, system, m->r.wanted, energy, forces, m->r.wanted & MLFF_STRESS ? m->r.stress : NULL);
    m->r.energy = *energy;
    return status;
}

mlff_status mlff_monitor_virial(void *monitor, const mlff_system *system, double *energy, double *forces, double *virial)
{
    mlff_monitor *m = monitor;
    if (!(m->r.callable.properties & MLFF_STRESS))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "monitor: %s has no stress, which constant pressure needs", m->r.callable.name);
    m->r.wanted |= MLFF_STRESS;
    const mlff_status status = mlff_monitor_forces(monitor, system, energy, forces);
    voigt_virial(mlff_system_volume(system), m->r.stress, virial);
    return status;
}

static mlff_status switch_on(mlff_monitor *m, bool on)
{
    m->on = on;
    m->r.n_stages = on ? m->n_stages : 0;
    if (m->n_stages == 0 || !m->r.callable.stage_clock_set) return MLFF_OK;
    m->r.clocks_running = on;
    return m->r.callable.stage_clock_set(m->r.callable.context, on);
}

// Two neighboring blocks are there: the difference of their lower quartiles, thinned so that it stays bounded.
static void keep_pair(mlff_monitor *m)
{
    if (m->n_pairs++ % m->keep_every != 0) return;
    if (m->n_differences == PAIRS_MAX) {
        for (int i = 0; i < PAIRS_MAX / 2; i++) m->differences[i] = m->differences[2 * i];
        m->n_differences = PAIRS_MAX / 2;
        m->keep_every *= 2;
    }
    for (int k = 0; k < 2; k++) base_sort(m->block_ns[k], BLOCK); // in place: nothing is allocated during the run
    m->differences[m->n_differences++] =
        statistics_percentile(m->block_ns[0], BLOCK, 0.25) - statistics_percentile(m->block_ns[1], BLOCK, 0.25);
}

static void counters_refresh(run *r)
{
    if (r->callable.counters) r->callable.counters(r->callable.context, &r->n_pairs, &r->n_rebuilds, &r->n_growths);
}

// Reads events and counters: what they say of the step that ended just now. Files and allocations are left out, as the caller
// may write and allocate between steps.
static uint32_t look(mlff_monitor *m, int64_t time_ns, float parts[N_PARTS])
{
    run *r = &m->r;
    process_events now;
    int64_t n_rebuilds = r->n_rebuilds, n_growths = r->n_growths;
    process_events_get(&now);
    for (int k = 0; k < N_PARTS; k++) parts[k] = NAN;
    uint32_t tags = (run_events(&m->events, &now) | run_watch(r, time_ns, parts)) & ~(uint32_t)(TAG_FILES | TAG_ALLOCATED);
    parts[PART_FILES] = NAN;
    counters_refresh(r);
    if (r->n_rebuilds > n_rebuilds) tags |= TAG_REBUILD;
    if (r->n_growths > n_growths) tags |= TAG_GROWTH;
    m->events = now;
    m->events_step = m->n_steps;
    return tags;
}

static uint32_t look_at_slow(mlff_monitor *m, double ns, float parts[N_PARTS])
{
    run *r = &m->r;
    uint32_t tags = look(m, (int64_t)ns, parts);
    if (ns < 1.2 * r->typical_ns || m->n_steps - m->pace_step < PACE_EVERY) return tags;
    m->pace_step = m->n_steps;
    return tags | run_pace(r, parts);
}

// A step outside of the blocks, at `end`; true if more than the least was done for it.
static bool note_light(mlff_monitor *m, int64_t time_ns)
{
    run *r = &m->r;
    double ns = (double)time_ns;
    uint32_t tags = 0;
    float parts[N_PARTS];
    r->watched_ns += time_ns;
    r->watched_off_ns += ns;
    bool slow = ns > m->slow_ns, heavy = slow || m->n_steps - m->events_step >= WINDOW;
    if (m->slow_ns <= 0.0) m->slow_ns = ns;
    m->slow_ns *= slow ? 1.0 + 0.05 * (1.0 - SLOW_SHARE) : 1.0 - 0.05 * SLOW_SHARE;
    if (slow)
        tags = look_at_slow(m, ns, parts);
    else if (heavy)
        (void)look(m, time_ns, parts);
    series_add_parts(&r->step, ns, tags, slow ? parts : NULL);
    r->n_not_finite += !isfinite(r->energy);
    return heavy;
}

// What a sample costs depends on how the heap looks (malloc counts its free blocks): the interval follows.
static void sample(mlff_monitor *m)
{
    run *r = &m->r;
    if (!memory_series_due(&r->memory, m->n_steps)) return;
    int64_t start = mlff_clock_ns();
    run_sample(r, m->n_steps);
    double cost = (double)(mlff_clock_ns() - start);
    m->sample_ns =
        m->sample_ns > 0.0 && cost > m->sample_ns ? 1.1 * m->sample_ns : cost; // a long one may have lost the processor
    if (r->step.n >= BLOCK && m->sample_ns > SAMPLE_SHARE * (double)r->memory.interval * r->step.mean)
        memory_series_coarsen(&r->memory);
}

// Before the steps of a block, at its borders and where memory is due.
static mlff_status prepare(mlff_monitor *m, int64_t phase)
{
    mlff_status status = MLFF_OK;
    run *r = &m->r;
    if (m->n_steps == 0) {
        m->started_ns = mlff_clock_ns();
        run_begin(r);
        process_events_get(&m->events);
    }
    if (phase == 0 || phase == BLOCK) MLFF_TRY(switch_on(m, phase == 0));
    if (phase == 0) counters_refresh(r); // what happened since the last block is not of this step
    sample(m);
    r->force_ns = 0;
    r->n_force_calls = 0;
    if (r->n_stages > 0) memset(r->stage_step, 0, (size_t)r->n_stages * sizeof *r->stage_step);
    if (m->on) run_prepare(r, &m->events);
done:
    return status;
}

static void note_block(mlff_monitor *m, int64_t phase, int64_t time_ns)
{
    run *r = &m->r;
    double ns = (double)time_ns;
    process_events after;
    process_events_get(&after);
    if (r->n_stages > 0) run_stages_collect(r);
    run_note(r, time_ns, &m->events, &after);
    m->events = after;
    m->events_step = m->n_steps;
    m->block_ns[0][phase] = ns;
    m->n_seen++;
    m->stage_step_mean += (ns - m->stage_step_mean) / (double)m->n_seen;
}

// A stretch far longer than is usual lost the processor: that is not our cost.
static void account(mlff_monitor *m, int kind, double ours_ns)
{
    double *usual = &m->usual_ns[kind];
    if (*usual <= 0.0) *usual = ours_ns;
    *usual *= ours_ns > *usual ? 1.05 : 1.0 / 1.05;
    m->spent_ns[kind] += fmin(ours_ns, 8.0 * *usual);
    m->n_light_timed += kind == LIGHT;
}

// One step, which `function` makes.
static mlff_status timed_step(mlff_monitor *m, mlff_status (*function)(void *context), void *context)
{
    mlff_status status = MLFF_OK;
    int64_t phase = m->n_steps % PERIOD, entered = -1;
    bool sampled = memory_series_due(&m->r.memory, m->n_steps), heavy = phase <= BLOCK || sampled;
    if (heavy) {
        entered = mlff_clock_ns();
        MLFF_TRY(prepare(m, phase));
    }
    int64_t start = mlff_clock_ns();
    MLFF_TRY(function(context));
    int64_t end = mlff_clock_ns();
    if (!m->r.md) m->r.force_ns = end - start;
    if (m->on) {
        note_block(m, phase, end - start);
    } else {
        heavy |= note_light(m, end - start);
        if (phase < 2 * BLOCK) m->block_ns[1][phase - BLOCK] = (double)(end - start);
        if (phase == 2 * BLOCK - 1) keep_pair(m);
    }
    m->n_steps++;
    m->n_light += !heavy;
    if (heavy || m->n_steps % LIGHT_TIMED == 0)
        account(m, sampled ? SAMPLED : heavy, (double)(mlff_clock_ns() - end + (entered >= 0 ? start - entered : 0)));
done:
    return status;
}

static mlff_status integrate(void *dynamics)
{
    return mlff_dynamics_step(dynamics);
}

mlff_status mlff_monitor_step(mlff_monitor *m, mlff_dynamics *dynamics)
{
    return timed_step(m, integrate, dynamics);
}

mlff_status mlff_monitor_call(mlff_monitor *m, mlff_status (*function)(void *context), void *context)
{
    m->r.md = false;
    return timed_step(m, function, context);
}

// Stages of the step that the GPU made last; what is outside of them is the integrator.
static void note_resident(mlff_monitor *m, double time_ns)
{
    run *r = &m->r;
    double integrate_ns = time_ns;
    counters_refresh(r);
    r->pairs_sum += (double)r->n_pairs;
    m->n_seen++;
    m->stage_step_mean += (time_ns - m->stage_step_mean) / (double)m->n_seen;
    if (r->n_stages == 0) return;
    if (m->n_domains > 0)
        r->callable.domain_stage_times(r->callable.context, m->domain, r->stage_now);
    else
        r->callable.stage_times(r->callable.context, r->stage_now);
    for (int k = 0; k < r->n_stages; k++) {
        series_add(&r->stages[k], r->stage_now[k], 0);
        integrate_ns -= r->stage_now[k];
    }
    series_add(&r->integrate, integrate_ns, 0);
    series_add(&r->unattributed, 0.0, 0);
}

static mlff_status begin_resident(mlff_monitor *m)
{
    m->started_ns = mlff_clock_ns();
    m->resident = true;
    const mlff_status status = m->domain == 0 ? switch_on(m, true) : MLFF_OK; // which is of all GPUs
    run_begin(&m->r);
    return status;
}

// Monitors of the GPUs beside the first, of which the callable's device is.
static mlff_status begin_domains(mlff_monitor *m)
{
    mlff_status status = MLFF_OK;
    mlff_domain_info domains[DOMAINS_MAX];
    run *r = &m->r;
    const bool several = r->callable.domains && r->callable.domain_stage_times;
    const int n = several ? r->callable.domains(r->callable.context, domains, DOMAINS_MAX) : 0;
    if (n < 2 || n > DOMAINS_MAX) return MLFF_OK;
    for (int k = 1; k < n; k++) {
        char device[16];
        mlff_callable callable = r->callable;
        mlff_device_text(domains[k].device, device, sizeof device);
        callable.device = device;
        MLFF_TRY(mlff_monitor_create(&callable, r->frame, r->options.timestep_fs, r->memory.interval, &m->others[k - 1]));
        mlff_monitor *other = m->others[k - 1];
        m->n_domains = k + 1;
        other->n_domains = n;
        other->domain = k;
        memcpy(other->device, device, sizeof device);
        other->r.callable.device = other->device;
        MLFF_TRY(begin_resident(other));
    }
done:
    if (status != MLFF_OK) {
        for (int k = 1; k < m->n_domains; k++) mlff_monitor_destroy(m->others[k - 1]);
        m->n_domains = 0;
    }
    return status;
}

// n steps of these times, which all GPUs made together.
static void note_piece(mlff_monitor *m, const double *times_ns, int64_t n)
{
    for (int64_t k = 0; k < n; k++) series_add(&m->r.step, times_ns[k], 0);
    note_resident(m, times_ns[n - 1]);
    m->n_steps += n;
}

// Steps on GPUs, memory sampled between pieces of them.
static mlff_status run_resident(mlff_monitor *m, mlff_dynamics *dynamics, int64_t n_steps)
{
    mlff_status status = MLFF_OK;
    run *r = &m->r;
    if (m->n_steps == 0) {
        MLFF_TRY(begin_resident(m));
        MLFF_TRY(begin_domains(m));
    }
    while (n_steps > 0) {
        int64_t n = r->memory.interval - m->n_steps % r->memory.interval;
        if (n > PIECE) n = PIECE;
        if (n > n_steps) n = n_steps;
        run_sample(r, m->n_steps);
        for (int k = 1; k < m->n_domains; k++) run_sample(&m->others[k - 1]->r, m->n_steps);
        MLFF_TRY(mlff_dynamics_run(dynamics, n, m->times_ns));
        note_piece(m, m->times_ns, n);
        for (int k = 1; k < m->n_domains; k++) note_piece(m->others[k - 1], m->times_ns, n);
        n_steps -= n;
    }
done:
    return status;
}

static mlff_status run_steps(mlff_monitor *m, mlff_dynamics *dynamics, int64_t n_steps)
{
    mlff_status status = MLFF_OK;
    if (mlff_dynamics_device(dynamics).kind != MLFF_CPU) return run_resident(m, dynamics, n_steps);
    for (int64_t k = 0; k < n_steps; k++) MLFF_TRY(mlff_monitor_step(m, dynamics));
done:
    return status;
}

// What a window saw. The next one comes when what this one cost is 0.2 % of the time in between.
static mlff_status window_read(mlff_monitor *m, const activity *window, const kernel_step *all, int64_t n_steps, double cost_ns)
{
    mlff_status status = MLFF_OK;
    kernel_report *report = base_alloc(1, sizeof *report, "a report on kernels");
    if (!report) return MLFF_ERR_MEMORY;
    MLFF_TRY(kernels_analyse(report, window, all, 1, n_steps, INT64_MAX, m->n_stages > 0 ? &m->r.callable : NULL));
    if (m->n_windows == 0) { // from here on steps are those after a window
        m->before_ms = m->unwatched_ns / (double)m->n_unwatched * 1e-6;
        m->unwatched_ns = 0.0;
        m->n_unwatched = 0;
    }
    report->usual_ms = m->before_ms;
    report->cost_ms = cost_ns * 1e-6;
    report->n_windows = ++m->n_windows;
    if (m->kernels) report->open_ms = m->kernels->open_ms;
    kernel_report_free(m->kernels);
    m->kernels = report;
    report = NULL;
    m->window_cost_ns += fmax(cost_ns, 0.0);
    m->next_window_ns = all->end_ns + (int64_t)(fmax(cost_ns, FIRST_COST_NS) * COST_SHARE);
done:
    kernel_report_free(report);
    return status;
}

static mlff_status run_watched(mlff_monitor *m, mlff_dynamics *dynamics, int64_t n_steps)
{
    activity window;
    int64_t begun = mlff_clock_ns();
    if (activity_begin(&window) != MLFF_OK) { // the run goes on without
        snprintf(m->watch_problem, sizeof m->watch_problem, "%s", mlff_last_error());
        m->watch_steps = 0;
        return run_steps(m, dynamics, n_steps);
    }
    kernel_step all = {.start_ns = mlff_clock_ns()};
    mlff_status status = run_steps(m, dynamics, n_steps);
    all.end_ns = mlff_clock_ns();
    mlff_status ended = activity_end(&window);
    double cost_ns =
        (double)(mlff_clock_ns() - begun) - window.open_ns - m->unwatched_ns / (double)m->n_unwatched * (double)n_steps;
    if (status == MLFF_OK) status = ended == MLFF_OK ? window_read(m, &window, &all, n_steps, cost_ns) : ended;
    activity_free(&window);
    return status;
}

mlff_status mlff_monitor_run(mlff_monitor *m, mlff_dynamics *dynamics, int64_t n_steps)
{
    int64_t start = mlff_clock_ns();
    bool watch = m->watch_steps > 0 && n_steps > 0 && m->n_unwatched > 0 && start >= m->next_window_ns;
    if (watch) { // where the caller comes with fewer steps at a time, the window has as many
        int64_t n_watched = n_steps < m->watch_steps ? n_steps : m->watch_steps;
        n_steps -= n_watched;
        mlff_status status = run_watched(m, dynamics, n_watched);
        if (status != MLFF_OK) return status;
        start = mlff_clock_ns();
    }
    mlff_status status = run_steps(m, dynamics, n_steps);
    m->unwatched_ns += (double)(mlff_clock_ns() - start);
    m->n_unwatched += n_steps;
    return status;
}

// What watching costs a step on average: inside the steps of its blocks, and between steps.
static mlff_status overhead(const mlff_monitor *m, mlff_profile *profile)
{
    percentile_bounds b;
    double light = m->n_light_timed > 0 ? m->spent_ns[LIGHT] / (double)m->n_light_timed * (double)m->n_light : 0.0;
    double between = (m->spent_ns[HEAVY] + m->spent_ns[SAMPLED] + light) / (double)m->n_steps, duty = (double)BLOCK / PERIOD;
    if (m->n_differences < 6) return MLFF_OK;
    mlff_status status = percentile_interval(m->differences, m->n_differences, 0.5, &b);
    if (status != MLFF_OK) return status;
    profile->overhead_ns = between + duty * b.value;
    profile->overhead_low_ns = between + duty * b.low;
    profile->overhead_high_ns = between + duty * b.high;
    return MLFF_OK;
}

// The mean of steps with stage clocks differs from that of all steps (buffers are allocated in a first block): stages keep their share.
// The last row is what the others leave.
static void scale_stages(const mlff_monitor *m, mlff_profile *profile)
{
    double rest_ms = profile->summary.latency_ms.mean;
    if (profile->n_stages == 0 || !(m->stage_step_mean > 0.0)) return;
    for (int k = 0; k + 1 < profile->n_stages; k++) {
        mlff_profile_stage *row = &profile->stages[k].shown;
        row->mean_ms *= m->r.step.mean / m->stage_step_mean;
        for (int b = 0; b < profile->stages[k].n_blocks; b++)
            profile->stages[k].blocks_ms[b] *= m->r.step.mean / m->stage_step_mean;
        rest_ms -= row->mean_ms;
    }
    if (fabs(rest_ms) < 1e-9 * profile->summary.latency_ms.mean) rest_ms = 0.0; // rounding of the sum, not a finding
    profile->stages[profile->n_stages - 1].shown.mean_ms = rest_ms;
}

// record_times takes the values over. It gets a copy, as the run may go on.
static mlff_status record_copied_times(run *r, mlff_profile *profile)
{
    double *values = r->step.values, *copy = base_alloc((size_t)r->step.n_values, sizeof *copy, "times of steps");
    if (!copy) return MLFF_ERR_MEMORY;
    memcpy(copy, values, (size_t)r->step.n_values * sizeof *copy);
    r->step.values = copy;
    const mlff_status status = record_times(r, profile);
    base_free(r->step.values); // NULL where they were taken over
    r->step.values = values;
    return status;
}

static mlff_status record_kernels(const mlff_monitor *m, mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    if (m->kernels) {
        MLFF_TRY(kernel_report_copy(m->kernels, &profile->kernels));
        profile->kernels->run_share = m->window_cost_ns / (double)m->r.wall_ns;
        profile->kernels->after_ms = m->n_unwatched > 0 ? m->unwatched_ns / (double)m->n_unwatched * 1e-6 : NAN;
    }
    if (*m->watch_problem) MLFF_TRY(profile_note(profile, "kernels on the GPU were not traced: %s", m->watch_problem));
done:
    return status;
}

static mlff_status note_coverage(const mlff_monitor *m, mlff_profile *profile)
{
    const long long n = (long long)m->n_steps, n_seen = (long long)m->n_seen;
    const char *const all = n == 1 ? "" : "all ";
    return m->resident
               ? profile_note(profile, "integrated on the GPU: %s%lld step%s timed by its own timer, stages seen in %lld of them",
                              all, n, base_plural(n), n_seen)
               : profile_note(profile, "always on: %s%lld step%s timed, stages and causes seen in %lld of them", all, n,
                              base_plural(n), n_seen);
}

mlff_status mlff_monitor_profile(mlff_monitor *m, const char *name, const char *notes, mlff_profile **profile_out)
{
    if (!m || !profile_out) return mlff_fail(MLFF_ERR_USAGE, "monitor: monitor or output is NULL");
    if (m->n_steps == 0) return mlff_fail(MLFF_ERR_USAGE, "monitor: no step was measured");
    mlff_status status = MLFF_OK;
    mlff_profile *profile = NULL;
    run *r = &m->r;
    int n_stages = r->n_stages;
    r->n_stages = m->n_stages;
    counters_refresh(r);
    r->options.name = name;
    r->options.notes = notes;
    r->wall_ns = mlff_clock_ns() - m->started_ns;
    run_end(r);
    MLFF_TRY(profile_new(&profile));
    MLFF_TRY(record_texts(r, profile));
    MLFF_TRY(record_copied_times(r, profile));
    for (int k = 0; k < N_TAGS; k++)
        profile->n_tagged[k] = (int64_t)((double)profile->n_tagged[k] * (double)m->n_steps / (double)m->n_seen);
    record_waits(r, profile);
    profile->tail.virtual_machine = environment_may_be_virtual();
    profile->tail.pace_rise = fmax(r->last_pace_ns / r->first_pace_ns - 1.0, 0.0);
    MLFF_TRY(causes_derive(profile, profile->latency_ms, r->step.tags, r->step.parts, profile->n_latency));
    profile->summary.mean_pairs = r->n_pairs >= 0 ? r->pairs_sum / (double)m->n_seen : -1.0;
    MLFF_TRY(record_memory(r, profile));
    MLFF_TRY(record_stages(r, profile));
    scale_stages(m, profile);
    MLFF_TRY(overhead(m, profile));
    MLFF_TRY(record_kernels(m, profile));
    MLFF_TRY(note_coverage(m, profile));
    MLFF_TRY(profile_derive(profile));
    *profile_out = profile;
    profile = NULL;
done:
    r->n_stages = n_stages;
    mlff_profile_destroy(profile);
    return status;
}

// A file of one of several GPUs.
static mlff_status save_domain(mlff_monitor *m, const mlff_domain_info *domain, int n_domains, const char *name,
                               const char *notes, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profile = NULL;
    char text[32];
    MLFF_TRY(mlff_monitor_profile(m, name, notes, &profile));
    snprintf(text, sizeof text, "%d", domain->n_owned);
    MLFF_TRY(environment_add(&profile->workload, "owned", text));
    MLFF_TRY(mlff_profile_save_rank(profile, path, m->domain, n_domains, domain->n_ghosts));
done:
    mlff_profile_destroy(profile);
    return status;
}

mlff_status mlff_monitor_save(mlff_monitor *m, const char *name, const char *notes, const char *path)
{
    mlff_status status = MLFF_OK;
    mlff_profile *profile = NULL;
    mlff_domain_info domains[DOMAINS_MAX];
    if (!m || !path) return mlff_fail(MLFF_ERR_USAGE, "monitor: monitor or path is NULL");
    if (m->n_domains > 1) {
        m->r.callable.domains(m->r.callable.context, domains, DOMAINS_MAX);
        for (int k = 0; k < m->n_domains; k++)
            MLFF_TRY(save_domain(k == 0 ? m : m->others[k - 1], &domains[k], m->n_domains, name, notes, path));
        return MLFF_OK;
    }
    MLFF_TRY(mlff_monitor_profile(m, name, notes, &profile));
    MLFF_TRY(mlff_profile_save(profile, path));
done:
    mlff_profile_destroy(profile);
    return status;
}
