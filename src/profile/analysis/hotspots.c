// SPDX-License-Identifier: MIT
// hotspots.c: what was seen, in which stage, and advice. A gain is named only where it can be computed: a stage
// with share s of the step, made free, speeds the step up by at most 1/(1-s) (Amdahl).
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "profile/sensors/gpu_kernels.h"

static mlff_status say(mlff_profile *profile, const char *format, ...) MLFF_PRINTF(2, 3);
static mlff_status say(mlff_profile *profile, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);

    size_t capacity = (size_t)profile->n_recommendations;
    mlff_status status =
        base_grow(&profile->recommendations, &capacity, capacity + 1, sizeof *profile->recommendations, "recommendations");
    if (status != MLFF_OK) return status;
    char *copy = base_strdup(text);
    if (!copy) return MLFF_ERR_MEMORY;
    profile->recommendations[profile->n_recommendations++] = copy;
    return MLFF_OK;
}

// ---- stages --------------------------------------------------------------------------------------

// What takes the time inside a force field without stages is not known: it may be no model at all.
#define INSIDE                                                                                                                   \
    "The profiler does not see inside of it: a profiler of its language (of Python: python -m cProfile) tells what takes the "   \
    "time. If that is the model, batches of structures, more threads, a GPU, a lower precision or a smaller model may help"
#define NOT_INSIDE "The profiler does not see inside of it: look first at what is done in every step"

// Advice for the rows that the profiler makes itself; stages of a force field come with their own (mlff_callable.stage_advice).
static const struct {
    const char *stage, *advice;
} own_rows[] = {
    {"energy", "the calculation of the energy, with all that is done beside it. " INSIDE},
    {"forces", "the gradient on top of the energy. Analytic gradients need about the time of the energy again, automatic "
               "differentiation several times that: look for a compiled or fused backward pass, or batch several structures"},
    {"stress", "the derivative by strain. Leave it out of the properties where the pressure is not needed"},
    {"integrate", "the integrator, not the force field. Its share is large when the force field is fast; NVE needs no random "
                  "numbers, Langevin does"},
    {"launch gap",
     "the device waits for the host to launch work. Use a captured graph, fused kernels, or several structures in one call"},
    {"wait", "the host waits for the device. Give it several structures in one call, or a faster device"},
    {"host", "work of the host around the device's. Make fewer and larger calls"},
};

static const char *advice_of(const mlff_profile *profile, const profile_stage *row)
{
    char every[EVERY_STEP_BYTES];
    const bool part = !profile->stages_measured && (strcmp(row->name, "energy") == 0 || strcmp(row->name, "forces") == 0);
    if (*row->advice) return row->advice;
    if (part && every_step_text(profile, every, sizeof every)) return NOT_INSIDE;
    if (!profile->stages_measured && strcmp(row->name, "energy") == 0 && profile_is_one_shot(profile))
        return "forces are in it, as an energy-only step takes as long as one with forces. " INSIDE;
    for (size_t i = 0; i < sizeof own_rows / sizeof *own_rows; i++)
        if (!*row->phase && strcmp(own_rows[i].stage, row->name) == 0) return own_rows[i].advice;
    return "no advice is known for this stage; look at it first";
}

// A share beyond it, of a stage that was measured apart from the step, is no part of the step.
#define LARGEST_SHARE 1.02

// Rows of one name and phase, over all layers: a stage split over layers would otherwise hide below the threshold.
typedef struct group {
    const profile_stage *first, *heaviest;
    double share, time_ms;
    int n_rows;
} group;

static int heavier(const void *a, const void *b)
{
    const group *x = a, *y = b;
    return (x->share < y->share) - (x->share > y->share);
}

static mlff_status groups_make(const mlff_profile *profile, group **groups_out, int *n_out)
{
    int n = 0;
    double total_ms = 0.0;
    group *groups = base_alloc((size_t)profile->n_stages, sizeof *groups, "stages");
    if (!groups) return MLFF_ERR_MEMORY;
    for (int i = 0; i < profile->n_stages; i++) {
        const profile_stage *row = &profile->stages[i];
        int k = 0;
        while (k < n && (strcmp(groups[k].first->name, row->name) != 0 || strcmp(groups[k].first->phase, row->phase) != 0)) k++;
        if (k == n) groups[n++] = (group){.first = row, .heaviest = row};
        groups[k].time_ms += profile_stage_typical_ms(row);
        total_ms += profile_stage_typical_ms(row);
        groups[k].n_rows++;
        if (profile_stage_typical_ms(row) > profile_stage_typical_ms(groups[k].heaviest)) groups[k].heaviest = row;
    }
    for (int k = 0; k < n && total_ms > 0.0; k++) groups[k].share = groups[k].time_ms / total_ms;
    qsort(groups, (size_t)n, sizeof *groups, heavier);
    *groups_out = groups;
    *n_out = n;
    return MLFF_OK;
}

static mlff_status say_unattributed(mlff_profile *profile, const group *g)
{
    if (profile->stages_measured)
        return say(
            profile,
            "%.0f %% of the step (%s) is unattributed: time inside the call that no stage's clock saw, such as waiting for "
            "threads, set-up of the call, or stages without a clock; compare runs with 1 and more threads, and look at the "
            "slowest steps",
            g->share * 100.0, PROFILE_TIME(g->time_ms));
    return say(profile,
               "%.0f %% of the step (%s) is unattributed: %s has no stages of its own and energy, forces and stress "
               "measured apart do "
               "not add up to the step; measure it with a tool that sees inside, or give the callable stages",
               g->share * 100.0, PROFILE_TIME(g->time_ms), profile->model_name);
}

// From this share of a measured limit on, a stage is said to be bound by it.
#define BOUND_FROM 0.5

// What the measured limits say of a stage; "" where none was measured for it.
static void limit_text(const mlff_profile *profile, const profile_stage *first, char *text, size_t text_bytes)
{
    const stage_bound b = bounds_of_stage(profile, first);
    const char *limit = b.by_memory ? "memory traffic" : "arithmetic";
    text[0] = 0;
    if (!(b.limit_share > 0.0)) return;
    if (b.limit_share >= BOUND_FROM)
        snprintf(text, text_bytes, ", bound by %s (%.0f %% of the measured limit)", limit, 100.0 * b.limit_share);
    else
        snprintf(text, text_bytes, ", at %.0f %% of the measured limit of %s", 100.0 * b.limit_share, limit);
}

// `above`: a heavier stage with the same advice, or NULL.
static mlff_status say_stage(mlff_profile *profile, const group *g, const group *above)
{
    char where[96], detail[128] = "", limit[96], gain[96] = "", same[160];
    const profile_stage *row = g->first;
    const char *phase = row->phase, *includes = row->includes;
    if (strcmp(row->name, "unattributed") == 0) return say_unattributed(profile, g);

    if (g->n_rows > 1) {
        snprintf(where, sizeof where, " (%.40s%s%d layers)", phase, *phase ? ", " : "", g->n_rows);
        snprintf(detail, sizeof detail, ", most of it layer %d with %s", g->heaviest->shown.layer,
                 PROFILE_TIME(profile_stage_typical_ms(g->heaviest)));
    } else if (row->shown.layer >= 0) {
        snprintf(where, sizeof where, " (%.40s%slayer %d)", phase, *phase ? ", " : "", row->shown.layer);
    } else {
        snprintf(where, sizeof where, "%s%.40s%s", *phase ? " (" : "", phase, *phase ? ")" : "");
    }
    if (g->share < 0.99) base_format(gain, sizeof gain, ". Upper bound if eliminated: %.2f×", 1.0 / (1.0 - g->share));
    if (above) snprintf(same, sizeof same, "the same advice as for %.60s (%.60s)", above->first->name, above->first->phase);
    limit_text(profile, row, limit, sizeof limit);
    return say(profile, "%s%s takes %.0f %% of the step (%s%s)%s%s%s: %s%s", row->name, where, fmin(g->share, 1.0) * 100.0,
               PROFILE_TIME(g->time_ms), detail, *includes ? ", including " : "", includes, limit,
               above ? same : advice_of(profile, row), gain);
}

static mlff_status say_stages(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    group *groups = NULL;
    int n = 0;
    MLFF_TRY(groups_make(profile, &groups, &n));
    for (int i = 0; i < n; i++) {
        const group *above = NULL;
        for (int k = 0; k < i && !above; k++)
            if (groups[k].share > 0.10 && strcmp(advice_of(profile, groups[k].first), advice_of(profile, groups[i].first)) == 0)
                above = &groups[k];
        if (groups[i].share > 0.10 && groups[i].share <= LARGEST_SHARE) MLFF_TRY(say_stage(profile, &groups[i], above));
        if (strcmp(groups[i].first->name, "unattributed") == 0 && groups[i].share < 1.0 - LARGEST_SHARE)
            MLFF_TRY(say(profile,
                         "the stages add up to %.0f %% more than the step: they overlap, or were measured in a quieter moment "
                         "than the step; "
                         "take shares as a guide and run again on an idle machine",
                         -groups[i].share * 100.0));
    }
done:
    base_free(groups);
    return status;
}

// Nothing where no part of a step is known.
static mlff_status name_heaviest(mlff_profile *profile)
{
    group *groups = NULL;
    char *text = profile->heaviest;
    int n = 0;
    size_t length = 0;
    mlff_status status = groups_make(profile, &groups, &n);
    if (status != MLFF_OK) return status;
    profile->heaviest_share = n > 0 ? groups[0].share : 0.0;
    text[0] = 0;
    if (n == 1 && strcmp(groups[0].first->name, "unattributed") == 0) n = 0;
    if (profile->heaviest_share > LARGEST_SHARE) n = 0; // say_stages says so
    for (int i = 0; i < n && i < 3 && groups[i].share > 0.05 && length < sizeof profile->heaviest; i++)
        length += (size_t)base_format(text + length, sizeof profile->heaviest - length, "%s%.60s%s%.60s %.0f %%", i ? ", " : "",
                                      groups[i].first->phase, *groups[i].first->phase ? "/" : "", groups[i].first->name,
                                      fmin(groups[i].share, 1.0) * 100.0);
    base_free(groups);
    return MLFF_OK;
}

// ---- the run as a whole --------------------------------------------------------------------------

// How much of a step the GPU works, or how to measure it.
static mlff_status say_launches(mlff_profile *profile)
{
    step_budget b = budget_of(profile);
    double busy = b.ms[BUDGET_BUSY], atoms = profile->summary.n_atoms;
    if (strncmp(profile->device, "cuda", 4) != 0) return MLFF_OK;
    if (!profile->kernels && !profile->stages_measured)
        return say(profile,
                   "the kernels on the GPU were not traced: --kernels 20 (in Python kernels=20) names every kernel and separates "
                   "its work from launch gaps and waits");
    double share = budget_busy_share(&b), rest = (1.0 - share) / share;
    char rows[256], gain[96] = "";
    if (!(share > 0.0 && share < 0.5)) return MLFF_OK; // also for NaN
    budget_rest_text(&b, rows, sizeof rows);
    if (budget_launch_gain(&b) >= 1.05)
        base_format(gain, sizeof gain, ", and a captured graph or fused kernels could be up to %.1f× as fast",
                    budget_launch_gain(&b));
    return say(
        profile,
        "launch-bound: the GPU works in %.0f %% of the step (%s), the rest%s is %s. It is busy for half of a step from about "
        "%s atoms on, if its time goes with the atoms and the rest stays; below, larger systems or several in one call are "
        "almost free%s",
        100.0 * share, PROFILE_TIME(busy), b.traced ? " of a traced step" : "", rows, PROFILE_NUMBER(atoms * rest, 2), gain);
}

void hotspots_rebuilds_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const mlff_profile_summary *s = &profile->summary;
    double share = s->n_rebuilds > 0 ? (double)s->n_rebuilds / (double)s->n_steps : 0.0;
    char where[32] = "every step";
    text[0] = 0;
    if (!(share > 0.5)) return;
    if (share < 1.0) base_format(where, sizeof where, "%.3g %% of the steps", share * 100.0);
    snprintf(text, text_bytes, "the neighbor list is rebuilt in %s%s", where,
             strcmp(profile->trajectory, "thermal") == 0
                 ? ": thermal frames do not follow from one another; --trajectory md shows what your simulation will take"
                 : "; where frames follow from one another, a list should last for ten steps or more: raise the skin");
}

static mlff_status say_rebuilds(mlff_profile *profile)
{
    const mlff_profile_summary *s = &profile->summary;
    char text[256];
    double extra_ms = profile->rebuild_median_ms - profile->other_median_ms;
    if (s->n_rebuilds <= 0) return MLFF_OK;
    double share = (double)s->n_rebuilds / (double)s->n_steps;
    if (isfinite(extra_ms) && extra_ms * share > 0.05 * s->latency_ms.mean)
        return say(profile,
                   "steps that rebuild the neighbor list take %s, others %s (medians), and %.0f %% of steps rebuild: "
                   "raise the skin; "
                   "rebuilds cost %.0f %% of the run",
                   PROFILE_TIME(profile->rebuild_median_ms), PROFILE_TIME(profile->other_median_ms), share * 100.0,
                   extra_ms * share / s->latency_ms.mean * 100.0);
    hotspots_rebuilds_text(profile, text, sizeof text);
    return *text ? say(profile, "%s", text) : MLFF_OK;
}

static const char *const tail_advice[N_CAUSES] = {
    [CAUSE_REBUILD] = "Rebuilds of the neighbor list make these steps slow: raise the skin",
    [CAUSE_GROWTH] = "Buffers still grow: warm up longer, with frames as dense as those of the run",
    [CAUSE_CPU_WAIT] = "Other programs, or more threads than cores, took the processor: use fewer threads or an idle machine",
    [CAUSE_FAULTS] = "Memory is touched for the first time in the steps: reuse buffers instead of allocating new ones",
    [CAUSE_CLOCK] = "The processor's clock fell: look at its governor, its temperature and its power limit",
    [CAUSE_FILES] =
        "These steps also read or wrote files, pipes or sockets; how long that took was not measured. Look there first: "
        "read and write less often, or from another thread",
    [CAUSE_COMPILED] =
        "These steps also loaded code, as a compiler does; how long that took was not measured. Look there first: warm up with "
        "every shape that the run will have, or fix the shapes",
    [CAUSE_ALLOCATED] = "The force field allocates in its steps: let it reuse its buffers",
    [CAUSE_CHILD] = "Other programs that this process started ended in these steps; how long the steps waited for them was not "
                    "measured. Look there first: start them outside of the steps",
    [CAUSE_PAUSE] = "Python's garbage collector runs in the steps: create fewer objects, or call gc.freeze() after the setup",
    [CAUSE_THREADS] = "Steps wait while other threads of this process run: look at locks (in Python the global interpreter lock)",
    [CAUSE_BLOCKED] =
        "Steps stand still while nothing of this process runs: look for sleeps, locks, and waits for devices or other "
        "machines",
    [CAUSE_WORK] =
        "These steps compute more: look at what the force field does in them and not in others (larger frames, logging, "
        "analysis)",
    [CAUSE_DEVICE_BUSY] = "The GPU computes longer in these steps: larger frames, a lower clock, or other programs on it",
    [CAUSE_DEVICE_QUEUE] = "These steps wait for the GPU: other programs on it, or copies and synchronization of others",
    [CAUSE_ENQUEUE] =
        "The host's calls of the GPU take longer in these steps: frames of new sizes (a graph is captured again), or "
        "other threads that use the driver",
    [UNKNOWN_CAUSE] =
        "Nothing that was measured explains it: look at frames of different size and at what else runs on the machine",
};

// On a crowded machine the threads that steps wait for may be the force field's own, without a CPU.
static const char threads_crowded[] =
    "Steps wait for other threads of this process, which may have waited for a CPU: measure with fewer threads or on an idle "
    "machine before looking at locks";

// What made steps slow, and what to do about the cause that took most of that time. Waiting for a CPU has a sentence of its own.
static mlff_status say_tail(mlff_profile *profile, bool crowded)
{
    char causes[1024];
    int order[N_CAUSES];
    const mlff_statistics *t = &profile->summary.latency_ms;
    const profile_tail *tail = &profile->tail;
    bool long_tail = t->mean > 0.0 && (t->p99 >= 3.0 * t->mean || t->p95 >= 2.0 * t->mean);
    if (profile->n_slowest == 0) return MLFF_OK;
    int n = tail_order(tail, true, order), first = UNKNOWN_CAUSE;
    for (int i = n - 1; i >= 0; i--)
        if (!crowded || order[i] != CAUSE_CPU_WAIT) first = order[i];
    if (!(long_tail || t->cv >= 0.2 || (first != UNKNOWN_CAUSE && tail->share > 0.03))) return MLFF_OK;
    if (crowded && first == UNKNOWN_CAUSE) return MLFF_OK;
    tail_text(profile, causes, sizeof causes);
    return say(profile, "step times vary: median %s, P99 %s%s%s. %s", PROFILE_TIME(t->median), PROFILE_TIME(t->p99),
               *causes ? "; " : "", causes, crowded && first == CAUSE_THREADS ? threads_crowded : tail_advice[first]);
}

#define SAME_PAIRS 1.05 // of the first steps in those of the last: more may be why the first take longer

// A slow beginning by medians of the first tenth, the second and the last quarter, and a steady growth.
static mlff_status say_drift(mlff_profile *profile, bool crowded)
{
    int64_t n = profile->n_latency;
    const double *t = profile->latency_ms;
    double drift = steadiness_drift(profile);
    if (drift > 0.15)
        return say(
            profile,
            "steps got slower along the run, by %.0f %% from its first eighth to its last. Look for more pairs (a denser or "
            "melting system), a falling processor clock, or growing memory",
            drift * 100.0);
    if (n < 100 || crowded) return MLFF_OK;
    if (profile->mean_atoms > 0 || profile->first_pairs > SAME_PAIRS) return MLFF_OK; // the first frames may be larger
    double first = statistics_median(t, n / 10), second = statistics_median(t + n / 4, n / 4),
           last = statistics_median(t + n - n / 4, n / 4);
    if (first > 1.15 * last && second < 1.05 * last)
        return say(profile,
                   "the first tenth of the steps took %s, the last quarter %s: the warm-up may have been too short; try %lld "
                   "warm-up steps",
                   PROFILE_TIME(first), PROFILE_TIME(last),
                   (long long)(profile->summary.n_warmup + profile->summary.n_steps / 10));
    return MLFF_OK;
}

static mlff_status say_memory(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    const mlff_profile_summary *s = &profile->summary;
    const profile_ledger *first = NULL;
    char others[256] = "";
    size_t length = 0;
    for (int k = 0; k < profile->n_ledgers; k++) { // what leaks shows in several counters
        const profile_ledger *ledger = &profile->ledgers[k];
        if (ledger->leak.kind != LEAK_GROWING || !leaks_decides(ledger)) continue;
        if (first && length < sizeof others)
            length += (size_t)snprintf(others + length, sizeof others - length, "%s\"%.40s\" by %s kB", ", ", ledger->name,
                                       PROFILE_NUMBER(ledger->leak.bytes_per_sample / 1024.0, 4));
        if (!first) first = ledger;
    }
    if (first)
        MLFF_TRY(say(profile,
                     "memory leak: \"%s\" grows steadily by %s kB a step (%.1f MB over the run, %s GB in 10⁶ steps)%s; look "
                     "for results or graphs "
                     "that are kept from step to step",
                     first->name, PROFILE_NUMBER(first->leak.bytes_per_sample / 1024.0, 4),
                     (double)(first->final_bytes - first->initial_bytes) / 1048576.0,
                     PROFILE_NUMBER(first->leak.bytes_per_sample * 1e6 / 1073741824.0, 3), others));
    if (s->memory_stable == 0 && !first)
        MLFF_TRY(
            say(profile,
                "memory grew by %.1f MB over %lld step%s, but not steadily: caches that fill, or buffers that grew once; run "
                "%s steps to tell a "
                "leak from them",
                s->memory_delta_gb * 1024.0, (long long)s->n_steps, base_plural(s->n_steps),
                s->n_steps < 1000 ? "1000 or more" : "ten times the"));
done:
    return status;
}

static mlff_status say_conditions(mlff_profile *profile, bool crowded)
{
    mlff_status status = MLFF_OK;
    const char *build = environment_find(&profile->environment, "build");
    const char *governor = environment_find(&profile->environment, "governor");
    const char *load = environment_find(&profile->environment, "load_average_at_start");
    const char *cores = environment_find(&profile->environment, "cores_online");
    const mlff_profile_summary *s = &profile->summary;

    if (build && strncmp(build, "optimi", 6) != 0) // files of both spellings
        MLFF_TRY(say(profile, "this build is %s: its times are not those of a release build", build));
    if (governor && strcmp(governor, "performance") != 0)
        MLFF_TRY(say(profile,
                     "the processor's governor is \"%s\": its clock follows the load; set \"performance\" for steady times",
                     governor));
    double busy, n_cores;
    if (!crowded && load && cores && base_parse_double(load, &busy) && base_parse_double(cores, &n_cores) &&
        busy > 0.5 + 0.5 * n_cores)
        MLFF_TRY(say(profile,
                     "the load average was %s on %s cores when the run began: if other programs still ran, times are longer and "
                     "vary more than "
                     "on an idle machine",
                     load, cores));
    if (s->n_steps < 100)
        MLFF_TRY(say(profile, "%lld step%s few for percentiles; use 100 or more, 1000 or more to see leaks, and three runs",
                     (long long)s->n_steps, s->n_steps == 1 ? " is" : "s are"));
    if (s->n_warmup < 10)
        MLFF_TRY(say(profile, "%lld warm-up step%s: use 10 or more, so that the first measured step is like the rest",
                     (long long)s->n_warmup, base_plural(s->n_warmup)));
    if (profile_untrained(profile))
        MLFF_TRY(say(profile, "the weights are untrained: times are those of the architecture, energies and forces mean nothing, "
                              "and MD with them visits "
                              "structures that a trained model would not"));
done:
    return status;
}

mlff_status hotspots_recommend(mlff_profile *profile)
{
    mlff_status status = MLFF_OK;
    char crowd[500], every[EVERY_STEP_BYTES];
    MLFF_TRY(name_heaviest(profile));
    if (profile->n_not_finite > 0)
        MLFF_TRY(
            say(profile, "the energy of %lld of %lld step%s is not a finite number: these times say nothing; check the frames",
                (long long)profile->n_not_finite, (long long)profile->summary.n_steps, base_plural(profile->summary.n_steps)));
    bool crowded = tail_crowded(profile, crowd, sizeof crowd);
    if (crowded) MLFF_TRY(say(profile, "%s", crowd));
    (void)every_step_text(profile, every, sizeof every);
    if (*every) MLFF_TRY(say(profile, "%s", every));
    const bool shared = tail_gpu_shared(profile, crowd, sizeof crowd);
    if (shared) MLFF_TRY(say(profile, "%s", crowd));
    if (!crowded && !shared) MLFF_TRY(say_stages(profile)); // what a stage takes there says little about the model
    if (!shared) MLFF_TRY(say_launches(profile));
    MLFF_TRY(say_rebuilds(profile));
    MLFF_TRY(say_tail(profile, crowded));
    MLFF_TRY(say_drift(profile, crowded));
    MLFF_TRY(say_memory(profile));
    MLFF_TRY(say_conditions(profile, crowded));
done:
    return status;
}
