// SPDX-License-Identifier: MIT
// causes.c: where the time went that steps took beyond the median. The excess of each step is divided by time, not by what
// merely happened in it: its thread waited for a CPU so long, was blocked so long, ran so much longer than usual. What has a clock
// of its own (waits for a CPU, pauses of the runtime) is taken out first, then what has a known cost (rebuilds, page faults, bytes
// copied); what blocked the rest, or made it run longer, is named by what was seen.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

#define USUAL 0.5            // a tag in more than this part of all steps explains none of them
#define REBUILD_REACH 1.3    // a rebuild alone takes no longer than this times the median of steps with one
#define FAULT_REACH 2.0      // a page costs up to so many times what it did at its best, when the watch was opened
#define WORK_LEAST 0.3       // of the usual processor time: less than this beyond it is jitter of caches and clocks, not work
#define WORK_SPREADS 6.0     // nor is less than so many times the distance of a quartile from the median
#define SKEWNESS 3.0         // of that jitter: its upper quartile is at most so much farther than its lower one
#define WORK_ALONE 3.0       // of the usual processor time: less than this that comes irregularly may be a core that others take
#define WORK_CROWDED 6.0     // likewise where steps wait for a CPU: a thread comes back to a core whose caches others have filled
#define COLD_NS 2e5          // nor is so much, where other programs run: they empty the caches
#define COLD_SHARE 0.01      // of the time waiting for a CPU
#define THREADS_LEAST 0.5    // of blocked time: so much work of other threads meanwhile is what was waited for
#define THREADS_CROWDED 0.02 // of blocked time on a crowded machine, where the threads waited for a CPU in the rest of it
#define THREADS_SHARE 0.1    // of all excess, likewise: irregular waits for threads that are less may be the scheduler's
#define THREADS_STEPS 0.02   // of all steps, likewise
#define TAKEN_NS 1e7     // the host of a virtual machine takes CPUs unseen for some ms: irregular excess below this may be its,
#define TAKEN_STEPS 0.1  // unless it is in so many of all steps
#define CHANCE 1e-4      // probability that a period is found where there is none
#define BLOCKED_LEAST 5  // steps
#define QUEUE_STEPS 50   // from so many steps on waits for a GPU are told apart
#define KERNEL_SHARE 0.5 // of processor time in the kernel: page faults of large pages, which are few and dear
#define KERNEL_TICKS_NS 1.6e7 // that share is known from so much time on: the kernel counts in ticks of 4 ms

// Medians over all steps, ns.
typedef struct usual {
    double time, cpu, off, parts[N_PARTS];
    double cpu_spread; // of processor time between steps that nothing happened in
} usual;

typedef struct analysis {
    const mlff_profile *profile;
    usual usual;
    bool kernel_heavy;   // steps with page faults spend their excess in the kernel
    bool threads_waited; // what steps were blocked for was other threads, some of which waited for a CPU
    bool shares_core;    // what steps waited for was a CPU that another thread of the process had
    float *excess;       // [n][N_CAUSES] ns
} analysis;

// ---- without clocks: by what happened ----------------------------------------------------------

// Tags from what explains most to what may merely accompany it: a buffer that grows is an allocation, and that is page faults.
static const int by_weight[N_TAGS] = {CAUSE_COMPILED, CAUSE_CHILD,   CAUSE_GROWTH,    CAUSE_FILES, CAUSE_CLOCK,
                                      CAUSE_CPU_WAIT, CAUSE_REBUILD, CAUSE_ALLOCATED, CAUSE_FAULTS};

static uint32_t unusual(const mlff_profile *profile, uint32_t tags)
{
    double n = (double)profile->summary.n_steps;
    for (int k = 0; k < N_TAGS; k++)
        if ((double)profile->n_tagged[k] > USUAL * n) tags &= ~(1u << k);
    return tags;
}

static int cause_by_tags(const mlff_profile *profile, uint32_t tags, double ms, double excess_ms, const float *parts)
{
    if (parts && parts[PART_WAIT] >= 0.0f) { // how long it waited is known
        if (parts[PART_WAIT] * 1e-6 > 0.5 * excess_ms) return CAUSE_CPU_WAIT;
        tags &= ~(uint32_t)TAG_PREEMPTED;
    }
    tags = unusual(profile, tags);
    // A rebuild is expected, and its usual cost known: an accident on top of it shows in the time.
    if (tags & TAG_REBUILD && ms <= REBUILD_REACH * profile->rebuild_median_ms) return CAUSE_REBUILD;
    for (int i = 0; i < N_TAGS; i++)
        if (tags >> by_weight[i] & 1) return by_weight[i];
    return UNKNOWN_CAUSE;
}

// ---- by time -----------------------------------------------------------------------------------

static double beyond(const analysis *a, const float *parts, enum step_part part)
{
    return isnan(parts[part]) ? 0.0 : fmax(parts[part] - a->usual.parts[part], 0.0);
}

// More pages than usual were touched for the first time.
static bool touches_memory(const analysis *a, const float *parts)
{
    return beyond(a, parts, PART_FAULTS) > 0.0;
}

// The time that a rebuild can have taken: where stages have clocks, the list's stage tells it; else it is what steps with one
// usually take beyond the others. On a GPU that time is also of the device.
static double rebuild_ns(const analysis *a, const float *parts, uint32_t tags)
{
    const double seen = (a->profile->rebuild_median_ms - a->profile->other_median_ms) * 1e6;
    if (!(tags & TAG_REBUILD)) return 0.0;
    const double most = seen > 0.0 ? REBUILD_REACH * seen : INFINITY;
    return isnan(parts[PART_LIST]) ? most : fmin(most, REBUILD_REACH * beyond(a, parts, PART_LIST));
}

// Moves at most `amount` from a pool of time to a cause.
static void take(float *excess, int cause, double *pool, double amount)
{
    double moved = fmin(fmax(amount, 0.0), *pool);
    *pool -= moved;
    excess[cause] += (float)moved;
}

// Processor time of the other threads. A thread cannot have run while it waited for a CPU: processor time of the process is counted in
// ticks of some ms, so that a step may be given what its threads did before it; the wait is exact.
static double others_ran(const analysis *a, const float *parts, double step_ns)
{
    double others = beyond(a, parts, PART_OTHERS);
    return isnan(parts[PART_TEAM_WAIT]) ? others : fmin(others, fmax(step_ns - parts[PART_TEAM_WAIT], 0.0));
}

// Other threads of the process ran while this one waited for a CPU.
static bool threads_had_core(const analysis *a, const float *parts, double step_ns, double wait)
{
    return wait > 0.0 && others_ran(a, parts, step_ns) > THREADS_LEAST * wait;
}

// Time in which the thread neither ran nor waited for a CPU. How long files, child processes and loaded code took is not measured:
// their causes say so in words.
static void divide_blocked(const analysis *a, double step_ns, const float *parts, uint32_t tags, double off, float *excess)
{
    bool gpu = strncmp(a->profile->device, "cuda", 4) == 0;
    double others = fmin(others_ran(a, parts, step_ns), off), for_threads = off - others;
    take(excess, CAUSE_CPU_WAIT, &for_threads, beyond(a, parts, PART_TEAM_WAIT)); // another thread was waited for, and it waited
    off = others + for_threads;
    if (isnan(parts[PART_WAIT]) && tags & TAG_PREEMPTED) take(excess, CAUSE_CPU_WAIT, &off, off);
    if (tags & TAG_CHILD) take(excess, CAUSE_CHILD, &off, off);
    if (tags & TAG_FILES) take(excess, CAUSE_FILES, &off, off);
    if (tags & TAG_COMPILED) take(excess, CAUSE_COMPILED, &off, off);
    if (gpu) take(excess, CAUSE_DEVICE_BUSY, &off, beyond(a, parts, PART_DEVICE));
    if (gpu) take(excess, CAUSE_DEVICE_QUEUE, &off, isnan(parts[PART_QUEUE]) ? off : beyond(a, parts, PART_QUEUE));
    if (isnan(parts[PART_WAIT])) take(excess, UNKNOWN_CAUSE, &off, off); // it may have waited for a CPU
    bool threads = a->threads_waited || others > THREADS_LEAST * off;
    take(excess, threads ? CAUSE_THREADS : CAUSE_BLOCKED, &off, off);
}

// What a core that was slower all through the step, as it is just after it, adds to the time that the thread ran.
static double slower_core_ns(const analysis *a, const float *parts)
{
    return parts[PART_PACE] > 1.0f ? parts[PART_CPU] * (1.0 - 1.0 / parts[PART_PACE]) : WORK_LEAST * a->usual.cpu;
}

// Time in which the thread ran longer than usual.
static void divide_running(const analysis *a, const float *parts, uint32_t tags, double cpu, float *excess)
{
    const mlff_profile *p = a->profile;
    bool gpu = strncmp(p->device, "cuda", 4) == 0;
    take(excess, CAUSE_CPU_WAIT, &cpu, beyond(a, parts, PART_TEAM_WAIT)); // it spins until the others are there
    take(excess, CAUSE_REBUILD, &cpu, rebuild_ns(a, parts, tags));
    if (tags & TAG_CHILD) take(excess, CAUSE_CHILD, &cpu, cpu);
    if (tags & TAG_COMPILED) take(excess, CAUSE_COMPILED, &cpu, cpu);
    if (tags & TAG_GROWTH) take(excess, CAUSE_GROWTH, &cpu, cpu);
    if (gpu)
        take(excess, CAUSE_DEVICE_BUSY, &cpu,
             beyond(a, parts, PART_DEVICE) - excess[CAUSE_REBUILD]); // a host that spins until it is done
    if (gpu) take(excess, CAUSE_DEVICE_QUEUE, &cpu, beyond(a, parts, PART_QUEUE));
    int memory = tags & TAG_ALLOCATED ? CAUSE_ALLOCATED : CAUSE_FAULTS;
    if (touches_memory(a, parts)) take(excess, memory, &cpu, a->kernel_heavy ? cpu : FAULT_REACH * beyond(a, parts, PART_FAULTS));
    take(excess, CAUSE_FILES, &cpu, beyond(a, parts, PART_FILES));
    if (tags & TAG_CLOCK) take(excess, CAUSE_CLOCK, &cpu, slower_core_ns(a, parts));
    if (gpu) take(excess, CAUSE_ENQUEUE, &cpu, beyond(a, parts, PART_ENQUEUE));
    bool work = cpu > fmax(WORK_LEAST * a->usual.cpu, WORK_SPREADS * a->usual.cpu_spread) &&
                !(p->tail.cpu_wait_share > COLD_SHARE && cpu < COLD_NS);
    bool divided = !gpu || !isnan(parts[PART_ENQUEUE]); // what a spinning host waits for is known
    take(excess, work && divided ? CAUSE_WORK : UNKNOWN_CAUSE, &cpu, cpu);
}

// The excess of one step, ns, over causes.
static void divide(const analysis *a, double ms, uint32_t tags, const float *parts, float *excess)
{
    double total = ms * 1e6 - a->usual.time;
    memset(excess, 0, N_CAUSES * sizeof *excess);
    if (!(total > 0.0)) return;
    if (!parts || isnan(parts[PART_CPU])) {
        excess[cause_by_tags(a->profile, tags, ms, total * 1e-6, parts)] = (float)total;
        return;
    }
    double wait = beyond(a, parts, PART_WAIT), cpu = fmax(parts[PART_CPU] - a->usual.cpu, 0.0);
    double off = fmax(ms * 1e6 - parts[PART_CPU] - fmax(parts[PART_WAIT], 0.0) - a->usual.off, 0.0), sum = wait + cpu + off;
    if (sum > total) { // one part was shorter than usual: the others stand for it too
        wait *= total / sum;
        cpu *= total / sum;
        off *= total / sum;
    }
    tags = unusual(a->profile, tags);
    excess[UNKNOWN_CAUSE] = (float)fmax(total - wait - cpu - off, 0.0);
    bool own = a->shares_core && threads_had_core(a, parts, ms * 1e6, wait);
    take(excess, own ? CAUSE_THREADS : CAUSE_CPU_WAIT, &wait, wait);
    take(excess, UNKNOWN_CAUSE, &off, fmax(parts[PART_TAKEN], 0.0)); // interrupts, or the host of a virtual machine
    double pause = beyond(a, parts, PART_PAUSE), from_cpu = fmin(pause, cpu);
    take(excess, CAUSE_PAUSE, &cpu, pause);
    take(excess, CAUSE_PAUSE, &off, pause - from_cpu);
    divide_blocked(a, ms * 1e6, parts, tags, off, excess);
    divide_running(a, parts, tags, cpu, excess);
}

// ---- over all steps ------------------------------------------------------------------------------

static mlff_status find_usual(analysis *a, const double *times_ms, const float *parts, int64_t n)
{
    double *values = base_alloc((size_t)n, sizeof *values, "parts of steps");
    if (!values) return MLFF_ERR_MEMORY;
    a->usual.time = statistics_median(times_ms, n) * 1e6;
    for (int part = 0; parts && part < N_PARTS; part++) {
        int64_t known = 0;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(parts[i * N_PARTS + part])) values[known++] = parts[i * N_PARTS + part];
        a->usual.parts[part] = known > 0 ? statistics_median(values, known) : 0.0;
    }
    a->usual.cpu = a->usual.parts[PART_CPU];
    int64_t known = 0;
    for (int64_t i = 0; parts && i < n; i++) {
        const float *p = parts + i * N_PARTS;
        if (!isnan(p[PART_CPU])) values[known++] = fmax(times_ms[i] * 1e6 - p[PART_CPU] - fmax(p[PART_WAIT], 0.0), 0.0);
    }
    a->usual.off = known > 0 ? statistics_median(values, known) : 0.0;
    base_free(values);
    return MLFF_OK;
}

// How processor time scatters from step to step and goes along the run. The distance of the upper quartile is of nothing that less
// than a quarter of the steps do, that of the lower one of nothing that more do.
static mlff_status find_course(analysis *a, const float *parts, int64_t n, double *cpu_rise_out)
{
    double *values = base_alloc((size_t)n, sizeof *values, "parts of steps");
    int64_t known = 0;
    *cpu_rise_out = NAN;
    if (!values) return MLFF_ERR_MEMORY;
    for (int64_t i = 0; parts && i < n; i++)
        if (!isnan(parts[i * N_PARTS + PART_CPU])) values[known++] = parts[i * N_PARTS + PART_CPU];
    if (known == n) *cpu_rise_out = steady_rise(values, n);
    if (known > 0) {
        base_sort(values, (size_t)known);
        double quartiles[3];
        for (int k = 0; k < 3; k++) quartiles[k] = statistics_percentile(values, known, 0.25 * (k + 1));
        a->usual.cpu_spread = fmin(quartiles[2] - quartiles[1], SKEWNESS * (quartiles[1] - quartiles[0]));
    }
    base_free(values);
    return MLFF_OK;
}

// How much of every step its thread did not run.
static mlff_status find_every_step(profile_tail *tail, const double *times_ms, const float *parts, int64_t n)
{
    double *values = base_alloc((size_t)n, sizeof *values, "parts of steps");
    int64_t known = 0;
    if (!values) return MLFF_ERR_MEMORY;
    for (int64_t i = 0; parts && i < n; i++) {
        const float *p = parts + i * N_PARTS;
        const double ns = times_ms[i] * 1e6;
        if (isnan(p[PART_CPU]) || isnan(p[PART_WAIT]) || !(ns > 0.0)) continue;
        const double off = ns - p[PART_CPU] - p[PART_WAIT] - fmax(p[PART_TAKEN], 0.0);
        values[known++] = fmax(off, 0.0) / ns;
    }
    if (known == n) tail->off_share = statistics_median(values, n);
    base_free(values);
    return MLFF_OK;
}

// Waits for the GPU: those of all steps, and those of steps that found it free.
static mlff_status find_queue(profile_tail *tail, const float *parts, int64_t n)
{
    double *values = base_alloc((size_t)n, sizeof *values, "parts of steps"), sum = 0.0;
    int64_t known = 0;
    if (!values) return MLFF_ERR_MEMORY;
    for (int64_t i = 0; parts && i < n; i++) {
        const float queue = parts[i * N_PARTS + PART_QUEUE];
        if (isnan(queue)) continue;
        values[known++] = queue;
        sum += queue;
    }
    if (known >= QUEUE_STEPS) {
        base_sort(values, (size_t)known);
        tail->queue_ms = 1e-6 * sum / (double)known;
        tail->queue_least_ms = 1e-6 * statistics_percentile(values, known, 0.02);
    }
    base_free(values);
    return MLFF_OK;
}

// A page of 2 MB costs hundreds of small ones: where steps with page faults spend their excess in the kernel, it is these.
static void find_kernel_share(analysis *a, const float *parts, int64_t n)
{
    double cpu = 0.0, kernel = 0.0;
    for (int64_t i = 0; parts && i < n; i++) {
        const float *p = parts + i * N_PARTS;
        if (!touches_memory(a, p) || isnan(p[PART_CPU]) || p[PART_CPU] < (1.0 + WORK_LEAST) * a->usual.cpu) continue;
        cpu += p[PART_CPU] - a->usual.cpu;
        kernel += p[PART_SYSTEM] - a->usual.parts[PART_SYSTEM];
    }
    a->kernel_heavy = cpu > KERNEL_TICKS_NS && kernel > KERNEL_SHARE * cpu;
}

// Where other programs run, threads of this process wait for a CPU too, and for how long is not known of those that have ended: a
// step is then blocked for longer than they work. Steps in which they waited least tell what all of them waited for; on a crowded
// machine none may have waited little, and that threads work in nearly all blocked steps, and in these alone, has to do.
static mlff_status find_threads(analysis *a, const float *parts, int64_t n)
{
    if (!parts || !(a->profile->tail.stretch > 1.0 + COLD_SHARE)) return MLFF_OK;
    double *blocked = base_alloc((size_t)n, sizeof *blocked, "blocked steps");
    double *others = base_alloc((size_t)n, sizeof *others, "blocked steps");
    mlff_status status = blocked && others ? MLFF_OK : MLFF_ERR_MEMORY;
    int64_t n_blocked = 0, n_worked = 0;
    for (int64_t i = 0; status == MLFF_OK && i < n; i++) {
        const float *excess = a->excess + i * N_CAUSES;
        double ns = (double)excess[CAUSE_THREADS] + (double)excess[CAUSE_BLOCKED];
        if (ns < WORK_LEAST * a->usual.time) continue;
        blocked[n_blocked] = ns;
        others[n_blocked] = beyond(a, parts + i * N_PARTS, PART_OTHERS);
        n_worked += others[n_blocked++] > fmax(WORK_LEAST * a->usual.time, THREADS_CROWDED * ns);
    }
    if (n_blocked > 0) {
        base_sort(blocked, (size_t)n_blocked);
        double least = statistics_percentile(blocked, n_blocked, 0.10);
        bool nearly_all = n_blocked >= BLOCKED_LEAST && n_worked * 5 >= n_blocked * 4;
        a->threads_waited = statistics_median(others, n_blocked) > THREADS_LEAST * least ||
                            (a->profile->tail.cpu_wait_share > CROWDED && nearly_all);
    }
    for (int64_t i = 0; a->threads_waited && i < n; i++) {
        float *excess = a->excess + i * N_CAUSES;
        excess[CAUSE_THREADS] += excess[CAUSE_BLOCKED];
        excess[CAUSE_BLOCKED] = 0.0f;
    }
    base_free(blocked);
    base_free(others);
    return status;
}

static int largest(const float *excess)
{
    int best = 0;
    for (int k = 1; k < N_CAUSES; k++)
        if (excess[k] > excess[best]) best = k;
    return best;
}

// In a step that is slow mostly for one of these reasons, a cause that comes there regularly may not be seen.
static bool may_hide(const float *excess, int cause)
{
    int most = largest(excess);
    return most == CAUSE_CPU_WAIT || most == CAUSE_CLOCK || most == UNKNOWN_CAUSE ||
           (most == CAUSE_BLOCKED && cause == CAUSE_THREADS);
}

// hits[i]: 1 where the cause took at least `least` ns, 2 where another one took as much and may hide it, else 0. sizes: ms of each hit.
// Returns the number of hits.
static int64_t find_hits(const analysis *a, int cause, double least, int64_t n, unsigned char *hits, double *sizes)
{
    int64_t n_hits = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *excess = a->excess + i * N_CAUSES;
        double e = excess[cause];
        bool hit = e > 0.0 && e >= least;
        hits[i] = hit ? 1 : excess[largest(excess)] >= least && may_hide(excess, cause) ? 2 : 0;
        if (hit) sizes[n_hits++] = e * 1e-6;
    }
    return n_hits;
}

// How often, how much each and how regularly a cause made steps slow. Steps count in which it took half of what it takes in those
// that make up most of its time (the mean weighted by itself), so that its many small parts in other steps do not. Accidents that are
// larger than what comes regularly hide it: if there is no period, steps in which it took more than jitter are looked at too.
static mlff_status describe(analysis *a, profile_tail *tail, int cause, int64_t n, int64_t every)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double e = a->excess[i * N_CAUSES + cause];
        sum += e;
        squares += e * e;
    }
    tail->excess_ms[cause] = sum * 1e-6;
    if (!(sum > 0.0)) return MLFF_OK;
    mlff_status status = MLFF_OK;
    unsigned char *hits = base_alloc((size_t)n, sizeof *hits, "slow steps");
    double *sizes = base_alloc((size_t)n, sizeof *sizes, "slow steps");
    const double least = 0.5 * squares / sum, jitter = WORK_LEAST * a->usual.time;
    if (!hits || !sizes) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    tail->n_by_cause[cause] = find_hits(a, cause, least, n, hits, sizes);
    tail->each_ms[cause] = statistics_median(sizes, tail->n_by_cause[cause]);
    tail->period[cause] = every == 1 ? causes_period(hits, n) : 0;
    if (every != 1 || tail->period[cause] > 0 || !(jitter < least)) goto done;
    const int64_t n_hits = find_hits(a, cause, jitter, n, hits, sizes);
    if ((tail->period[cause] = causes_period(hits, n)) == 0) goto done;
    tail->n_by_cause[cause] = n_hits;
    tail->each_ms[cause] = statistics_median(sizes, n_hits);
done:
    base_free(hits);
    base_free(sizes);
    return status;
}

// Logarithm of the probability that at least `on` of `slots` are hit, where each is with probability q: Chernoff's bound.
static double log_chance(int64_t on, int64_t slots, double q)
{
    const double f = (double)on / (double)slots;
    if (f <= q) return 0.0;
    return -(double)slots * (f * log(f / q) + (on < slots ? (1.0 - f) * log((1.0 - f) / (1.0 - q)) : 0.0));
}

// Probability that a step is hit, by Laplace's rule of succession: never 0 or 1.
static double rate(int64_t n_hits, int64_t n)
{
    return (double)(n_hits + 1) / (double)(n + 2);
}

int64_t causes_period(const unsigned char *hits, int64_t n)
{
    enum { LAGS = 4, FIRSTS = 200, HITS_MIN = 4 };
    int64_t places[FIRSTS + LAGS], n_hits = 0, n_slow = 0, best = 0;
    for (int64_t i = 0; i < n; i++) n_slow += hits[i] != 0;
    for (int64_t i = 0; i < n; i++)
        if (hits[i] == 1) {
            if (n_hits < FIRSTS + LAGS) places[n_hits] = i;
            n_hits++;
        }
    int64_t firsts = n_hits < FIRSTS + LAGS ? n_hits : FIRSTS + LAGS;
    for (int64_t i = 0; i < firsts && n_hits >= HITS_MIN; i++) {
        for (int lag = 1; lag <= LAGS && i + lag < firsts; lag++) { // an accident between two of them is passed over
            int64_t period = places[i + lag] - places[i], on = 0, slow = 0, slots = 0;
            if (period < 2 || (best > 0 && period >= best) || n / period < HITS_MIN) continue;
            for (int64_t k = places[i] % period; k < n; k += period) {
                on += hits[k] == 1;
                slow += hits[k] != 0;
                slots++;
            }
            // 8 of 10 slots and a third of the hits are these, and steps between the slots are hit so rarely that chance does not explain
            // it. Or so are slow steps, whatever made them slow: a third of them, and 7 of 10 hits, are then these.
            const double least = log(CHANCE / (double)(LAGS * firsts));
            bool hit = on * 10 >= slots * 8 && on * 3 >= n_hits && log_chance(on, slots, rate(n_hits - on, n - slots)) < least;
            bool hidden = slow * 10 >= slots * 8 && log_chance(slow, slots, rate(n_slow - slow, n - slots)) < least;
            if (hit || (hidden && on >= HITS_MIN && on * 3 >= slots && on * 10 >= n_hits * 7)) best = period;
        }
    }
    return best;
}

// A core that shares its caches, its clock or its other half with other programs takes up to some three times as long for the same
// work, at any time. Without counted instructions that is told from work by its size or by its period.
static double least_irregular_work(const analysis *a)
{
    return (a->profile->tail.cpu_wait_share > CROWDED ? WORK_CROWDED : WORK_ALONE) * a->usual.cpu;
}

// What comes irregularly and is less than so much each is not held against its cause.
static void doubt(analysis *a, profile_tail *tail, int cause, double least_ns, int64_t n)
{
    if (tail->n_by_cause[cause] == 0 || tail->period[cause] > 0 || tail->each_ms[cause] * 1e6 >= least_ns) return;
    for (int64_t i = 0; i < n; i++) {
        float *excess = a->excess + i * N_CAUSES;
        excess[UNKNOWN_CAUSE] += excess[cause];
        excess[cause] = 0.0f;
    }
    tail->n_by_cause[cause] = 0;
    tail->excess_ms[cause] = tail->each_ms[cause] = 0.0;
}

static double least_taken(const profile_tail *tail, int cause, int64_t n)
{
    return tail->virtual_machine && (double)tail->n_by_cause[cause] < TAKEN_STEPS * (double)n ? TAKEN_NS : 0.0;
}

// The same of a thread that is waited for. On a crowded machine such a thread comes back late by whole time slices, and what it did
// is known in ticks of as much: few waits, or ones that are little of all excess, are then not told from the scheduler's.
static double least_irregular_threads(const analysis *a, const profile_tail *tail, int64_t n)
{
    double threads = 0.0, all = 0.0;
    if (!(tail->cpu_wait_share > CROWDED)) return WORK_ALONE * a->usual.cpu;
    for (int64_t i = 0; i < n * N_CAUSES; i++) {
        all += (double)a->excess[i];
        if (i % N_CAUSES == CAUSE_THREADS) threads += (double)a->excess[i];
    }
    bool few = (double)tail->n_by_cause[CAUSE_THREADS] < THREADS_STEPS * (double)n;
    return few || threads < THREADS_SHARE * all ? INFINITY : 0.0;
}

// A thread that is woken on the core of the one that holds what it needs waits for that core until the holder is done, though others are
// idle: it waits for the holder. What other programs do has no period in steps, so that their waits are none of these.
static mlff_status find_shared_core(analysis *a, profile_tail *tail, const double *times_ms, const uint16_t *tags,
                                    const float *parts, int64_t n, int64_t every)
{
    int64_t n_hits = 0, n_own = 0;
    double own_ms = 0.0, total_ms = 0.0;
    mlff_status status = MLFF_OK;
    if (!parts) return MLFF_OK;
    MLFF_TRY(describe(a, tail, CAUSE_CPU_WAIT, n, every));
    if (tail->period[CAUSE_CPU_WAIT] == 0) goto done;
    for (int64_t i = 0; i < n; i++) {
        double wait = a->excess[i * N_CAUSES + CAUSE_CPU_WAIT];
        total_ms += times_ms[i];
        if (wait < 0.5e6 * tail->each_ms[CAUSE_CPU_WAIT]) continue;
        bool own = threads_had_core(a, parts + i * N_PARTS, times_ms[i] * 1e6, wait);
        n_hits++;
        n_own += own;
        own_ms += own ? wait * 1e-6 : 0.0;
    }
    a->shares_core = n_own * 5 >= n_hits * 4;
    if (!a->shares_core) goto done;
    if (tail->cpu_wait_share > 0.0)
        tail->cpu_wait_share = fmax(tail->cpu_wait_share - own_ms / total_ms, 0.0); // no machine is busy by that
    for (int64_t i = 0; i < n; i++) divide(a, times_ms[i], tags[i], parts + i * N_PARTS, a->excess + i * N_CAUSES);
done:
    return status;
}

mlff_status causes_derive(mlff_profile *profile, const double *times_ms, const uint16_t *tags, const float *parts, int64_t n)
{
    mlff_status status = MLFF_OK;
    profile_tail *tail = &profile->tail;
    analysis a = {.profile = profile};
    *tail = (profile_tail){.threshold_ms = profile->summary.latency_ms.p99,
                           .median_ms = profile->summary.latency_ms.median,
                           .stretch = tail->stretch,
                           .cpu_wait_share = tail->cpu_wait_share,
                           .team_cores = tail->team_cores,
                           .program_cores = tail->program_cores,
                           .off_share = NAN,
                           .virtual_machine = tail->virtual_machine,
                           .pace_rise = tail->pace_rise,
                           .queue_ms = NAN,
                           .queue_least_ms = NAN};
    double total = 0.0;
    if (n < 1) return MLFF_OK;
    a.excess = base_alloc((size_t)n * N_CAUSES, sizeof *a.excess, "causes of slow steps");
    if (!a.excess) return MLFF_ERR_MEMORY;
    MLFF_TRY(find_usual(&a, times_ms, parts, n));
    MLFF_TRY(find_course(&a, parts, n, &tail->cpu_rise));
    if (strncmp(profile->device, "cuda", 4) == 0) MLFF_TRY(find_queue(tail, parts, n));
    find_kernel_share(&a, parts, n);
    MLFF_TRY(find_every_step(tail, times_ms, parts, n));
    for (int64_t i = 0; i < n; i++) {
        divide(&a, times_ms[i], tags[i], parts ? parts + i * N_PARTS : NULL, a.excess + i * N_CAUSES);
        total += times_ms[i];
        tail->n_steps += times_ms[i] * 1e6 > (1.0 + WORK_LEAST) * a.usual.time;
    }
    MLFF_TRY(find_shared_core(&a, tail, times_ms, tags, parts, n, profile->latency_every));
    MLFF_TRY(find_threads(&a, parts, n));
    static const int doubted[] = {CAUSE_WORK, CAUSE_THREADS, CAUSE_BLOCKED, CAUSE_CLOCK, CAUSE_ENQUEUE, CAUSE_DEVICE_QUEUE};
    for (size_t k = 0; k < sizeof doubted / sizeof *doubted; k++)
        MLFF_TRY(describe(&a, tail, doubted[k], n, profile->latency_every));
    doubt(&a, tail, CAUSE_WORK, fmax(least_irregular_work(&a), least_taken(tail, CAUSE_WORK, n)), n);
    doubt(&a, tail, CAUSE_THREADS, fmax(least_irregular_threads(&a, tail, n), least_taken(tail, CAUSE_THREADS, n)), n);
    doubt(&a, tail, CAUSE_BLOCKED, least_taken(tail, CAUSE_BLOCKED, n), n);
    doubt(&a, tail, CAUSE_CLOCK, least_taken(tail, CAUSE_CLOCK, n), n);
    doubt(&a, tail, CAUSE_ENQUEUE, WORK_LEAST * a.usual.time, n);      // interrupts and caches while the host calls the driver
    doubt(&a, tail, CAUSE_DEVICE_QUEUE, WORK_LEAST * a.usual.time, n); // or waits for the GPU
    for (int cause = 0; cause < N_CAUSES; cause++) MLFF_TRY(describe(&a, tail, cause, n, profile->latency_every));
    tail->share = total > 0.0 ? tail_excess_ms(tail) / total : 0.0;
    for (int i = 0; i < profile->n_slowest; i++) {
        const series_slow *slow = &profile->slowest[i];
        float excess[N_CAUSES];
        divide(&a, slow->value, slow->tags, slow->parts, excess);
        int cause = excess[largest(excess)] > 0.0f ? largest(excess) : UNKNOWN_CAUSE;
        bool all_doubted = (cause == CAUSE_WORK || cause == CAUSE_THREADS || cause == CAUSE_BLOCKED || cause == CAUSE_CLOCK) &&
                           tail->n_by_cause[cause] == 0;
        bool doubtful = all_doubted && !(cause == CAUSE_WORK &&
                                         excess[CAUSE_WORK] >= fmax(least_irregular_work(&a), least_taken(tail, CAUSE_WORK, n)));
        profile->slowest_cause[i] = doubtful ? UNKNOWN_CAUSE : cause;
    }
done:
    base_free(a.excess);
    return status;
}
