// SPDX-License-Identifier: MIT
// Purpose: the time that steps take beyond the median is divided over its causes: each cause is planted in turn, and is the one
// that the report, its JSON and its page name, with its period. What the system does is planted too, by the linker taking the
// definitions below, so that nothing depends on how busy the machine is.
#include <cjson/cJSON.h>

#include "synthetic_clock.h"
#include "synthetic_steps.h"

static process_events planted_events = {.cpu_ns = -1}; // no clock of the thread: causes by what happens
static process_watch_seen planted_seen = {.wait_ns = -1};
static double planted_pace = 1000.0;
static double planted_lost_us; // the processor is lost for so long where the thread's clock is read

void process_events_get(process_events *events_out)
{
    *events_out = planted_events;
    if (planted_lost_us > 0.0) {
        synthetic_wait(planted_lost_us);
        planted_seen.wait_ns += (int64_t)(1e3 * planted_lost_us);
    }
    planted_lost_us = 0.0;
}

void process_events_begin(process_events *events)
{
    *events = planted_events;
}

void process_watch_open(process_watch *w)
{
    *w = (process_watch){.open = true, .fault_ns = 500.0};
}

void process_watch_close(process_watch *w)
{
    w->open = false;
}

void process_watch_read(process_watch *w, process_watch_seen *seen_out)
{
    int64_t now = mlff_clock_ns();
    *seen_out = planted_seen;
    seen_out->wall_ns = now - w->wall_ns;
    seen_out->cpu_ns = planted_events.cpu_ns - w->cpu_ns;
    w->wall_ns = now;
    w->cpu_ns = planted_events.cpu_ns;
    planted_seen = (process_watch_seen){.wait_ns = planted_seen.wait_ns < 0 ? -1 : 0};
}

void process_watch_skip_files(process_watch *w)
{
    (void)w;
}

double pace_ns(void)
{
    return planted_pace;
}

typedef struct cause {
    const char *name, *advice;
    int64_t *counter; // that grows in a slow step; NULL: another way
    int64_t by;
} cause;

typedef struct force_field {
    const cause *cause;
    int64_t n_calls, n_growths, n_rebuilds;
    int usual; // the event is seen in every second step, slow or not
} force_field;

enum { STEPS = 1000, SLOW_EVERY = 100, SLOW_AT = 50 };

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    force_field *f = context;
    (void)wanted;
    (void)stress;
    bool slow = ++f->n_calls % SLOW_EVERY == SLOW_AT;
    synthetic_wait(slow ? 300.0 : 10.0);
    planted_pace = 1000.0;
    if (slow || (f->usual && f->n_calls % 3 != 0)) {
        if (f->cause->counter) *f->cause->counter += f->cause->by;
        if (strcmp(f->cause->name, "rebuild") == 0) f->n_rebuilds++;
        if (strcmp(f->cause->name, "buffer growth") == 0) f->n_growths++;
        if (strcmp(f->cause->name, "clock drop") == 0) planted_pace = 1300.0;
    }
    if (energy) *energy = 0.0;
    for (int i = 0; forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    return MLFF_OK;
}

static void counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    const force_field *f = context;
    *n_pairs = 10;
    *n_rebuilds = f->n_rebuilds;
    *n_growths = f->n_growths;
}

static mlff_callable callable_of(force_field *f)
{
    return (mlff_callable){.struct_size = sizeof(mlff_callable),
                           .name = "planted",
                           .context = f,
                           .properties = MLFF_ENERGY | MLFF_FORCES,
                           .step = step,
                           .counters = counters};
}

static mlff_profile *profile_of(force_field *f)
{
    mlff_callable callable = callable_of(f);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(STEPS);
    mlff_profile *profile;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_trajectory_destroy(trajectory);
    return profile;
}

// The share of the excess that a report's JSON gives a cause.
static double share_in_json(const char *json, const char *name)
{
    double share = 0.0;
    cJSON *root = cJSON_Parse(json), *item;
    assert_non_null(root);
    cJSON_ArrayForEach(item,
                       cJSON_GetObjectItem(cJSON_GetObjectItem(root, "tail"),
                                           "causes")) if (strcmp(cJSON_GetObjectItem(item, "cause")->valuestring, name) == 0)
        share = cJSON_GetObjectItem(item, "share_of_excess")->valuedouble;
    cJSON_Delete(root);
    return share;
}

static const cause causes[] = {
    {"rebuild", "raise the skin", NULL, 0},
    {"buffer growth", "Buffers still grow", NULL, 0},
    {"waiting for a CPU", "took the processor", &planted_events.n_preempted, 1},
    {"page faults", "touched for the first time", &planted_events.n_faults, 64},
    {"clock drop", "clock fell", NULL, 0},
    {"file I/O", "how long that took was not measured", &planted_events.n_file_blocks, 8},
    {"file I/O", "how long that took was not measured", &planted_seen.io_bytes, 8192},
    {"child process", "how long the steps waited for them was not measured", &planted_seen.children_ns, 900},
    {"compilation", "how long that took was not measured", &planted_seen.n_loads, 1},
    {"allocation", "The force field allocates", &planted_events.heap_end, 132 << 10},
    {"allocation", "The force field allocates", &planted_events.n_allocations, 3},
    {"unknown", "look at frames of different size", NULL, 0},
};

// What a report calls it: of files, code and child processes no times are known.
static const char *words_of(const char *name)
{
    if (strcmp(name, "file I/O") == 0) return "file I/O or other waits";
    if (strcmp(name, "child process") == 0) return "child process or other work";
    return strcmp(name, "compilation") == 0 ? "compilation or other work" : name;
}

static void test_each_cause(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof causes / sizeof *causes; k++) {
        force_field f = {.cause = &causes[k]};
        mlff_profile *profile = profile_of(&f), *again;
        char *text, *json, *page, *json_again, expected[96];
        assert_int_equal(profile->tail.n_steps, STEPS / SLOW_EVERY);
        assert_ok(mlff_profile_text(profile, 300, &text));
        snprintf(expected, sizeof expected, "%s 100 %% (+", words_of(causes[k].name));
        if (!strstr(text, expected)) fail_msg("%s: \"%s\" is not in\n%s", causes[k].name, expected, text);
        assert_non_null(strstr(text, " in each of 10 steps, every 100 steps)"));
        if (!synthetic_recommended(profile, causes[k].advice))
            fail_msg("%s: no \"%s\" in\n%s", causes[k].name, causes[k].advice, text);
        assert_ok(mlff_profile_json(profile, &json));
        assert_near(share_in_json(json, causes[k].name), 1.0, 0.01); // the clock's jitter of 7 ns is excess of other steps
        assert_ok(mlff_profile_html((const mlff_profile *const *)&profile, 1, NULL, &page));
        snprintf(expected, sizeof expected, "<td class=\"text\">%s</td><td>10</td>", words_of(causes[k].name));
        if (!strstr(page, expected)) fail_msg("%s: the page has no \"%s\"", causes[k].name, expected);
        assert_ok(profile_parse("report.json", json, strlen(json), &again));
        assert_ok(mlff_profile_json(again, &json_again));
        assert_string_equal(json, json_again);
        mlff_profile_destroy(again);
        mlff_profile_destroy(profile);
        mlff_text_free(json_again);
        mlff_text_free(text);
        mlff_text_free(json);
        mlff_text_free(page);
    }
}

// A production run that is watched reads events after its slow steps alone, and names the same causes; what is written or
// allocated may be the caller's there.
static void test_watched(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof causes / sizeof *causes; k++) {
        force_field f = {.cause = &causes[k]};
        mlff_callable callable = callable_of(&f);
        mlff_system *system = synthetic_system(8);
        mlff_dynamics_options options = mlff_dynamics_options_default();
        mlff_monitor *monitor;
        mlff_dynamics *dynamics;
        mlff_profile *profile;
        char *json;
        assert_ok(mlff_monitor_create(&callable, system, 0.5, 10, &monitor));
        assert_ok(mlff_dynamics_create(&options, system, mlff_monitor_forces, monitor, &dynamics));
        assert_ok(mlff_monitor_run(monitor, dynamics, 10 * STEPS));
        assert_ok(mlff_monitor_profile(monitor, "watched", NULL, &profile));
        assert_ok(mlff_profile_json(profile, &json));
        bool left_out = strcmp(causes[k].name, "file I/O") == 0 || strcmp(causes[k].name, "allocation") == 0;
        double share = share_in_json(json, left_out ? "unknown" : causes[k].name); // those in blocks are seen all the same
        if (share < 0.9) fail_msg("%s: %.2f of the excess in\n%s", causes[k].name, share, strstr(json, "\"tail\""));
        mlff_text_free(json);
        mlff_profile_destroy(profile);
        mlff_dynamics_destroy(dynamics);
        mlff_monitor_destroy(monitor);
        mlff_system_destroy(system);
    }
}

// What is seen in two of three steps explains no slow one.
static void test_what_is_usual_explains_nothing(void **state)
{
    (void)state;
    for (size_t k = 2; k < 4; k++) {
        force_field f = {.cause = &causes[k], .usual = 1};
        mlff_profile *profile = profile_of(&f);
        assert_int_equal(profile->tail.n_by_cause[UNKNOWN_CAUSE], STEPS / SLOW_EVERY);
        assert_near(profile->tail.excess_ms[UNKNOWN_CAUSE], tail_excess_ms(&profile->tail), 1e-9);
        mlff_profile_destroy(profile);
    }
}

// 1000 steps of 1 ms, every tenth of them as given; which cause takes how much of the excess.
enum { N = STEPS_N };
static mlff_profile *divided(double ms, uint32_t tags, const float *parts_of_slow, double cpu_share)
{
    return synthetic_every_tenth("cpu", ms, tags, parts_of_slow, cpu_share);
}

// Without a clock of the thread: of several things in one step the most telling one is the cause; a rebuild is, if the step took
// no longer than rebuilds do.
static void test_one_cause_a_step(void **state)
{
    (void)state;
    static const struct {
        uint32_t tags;
        double ms;
        int expected;
    } cases[] = {{TAG_REBUILD, 2.0, CAUSE_REBUILD},
                 {TAG_REBUILD | TAG_PREEMPTED, 2.1, CAUSE_REBUILD},
                 {TAG_REBUILD | TAG_PREEMPTED, 9.0, CAUSE_CPU_WAIT},
                 {TAG_REBUILD | TAG_FAULTS, 9.0, CAUSE_REBUILD},
                 {TAG_GROWTH | TAG_FAULTS | TAG_ALLOCATED, 9.0, CAUSE_GROWTH},
                 {TAG_COMPILED | TAG_FILES | TAG_ALLOCATED | TAG_FAULTS, 9.0, CAUSE_COMPILED},
                 {TAG_CHILD | TAG_FILES | TAG_FAULTS, 9.0, CAUSE_CHILD},
                 {TAG_ALLOCATED | TAG_FAULTS, 9.0, CAUSE_ALLOCATED},
                 {TAG_PREEMPTED | TAG_CLOCK, 9.0, CAUSE_CLOCK},
                 {0, 9.0, UNKNOWN_CAUSE}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *profile = divided(cases[k].ms, cases[k].tags, NULL, 0.0);
        const profile_tail *tail = &profile->tail;
        if (tail->n_by_cause[cases[k].expected] != N / 10)
            fail_msg("case %zu: %lld of 100 steps are %s", k, (long long)tail->n_by_cause[cases[k].expected],
                     profile_cause_names[cases[k].expected]);
        assert_int_equal(tail->period[cases[k].expected], 10);
        mlff_profile_destroy(profile);
    }
}

// With it: time goes to where it was spent, and what merely happened in a step claims nothing. Parts are ns; usual steps of 1 ms
// run for all of it.
static void test_causes_by_time(void **state)
{
    (void)state;
    enum { NONE = -1 };
    static const struct {
        const char *what;
        double ms;
        uint32_t tags;
        float parts[N_PARTS];
        int first;
        double share; // of the excess
        int second;
    } cases[] = {
        {"sleep, once preempted", 6.0, TAG_PREEMPTED, {[PART_CPU] = 1e6f, [PART_WAIT] = 1e4f}, CAUSE_BLOCKED, 0.998, NONE},
        {"work, once preempted", 6.0, TAG_PREEMPTED, {[PART_CPU] = 6e6f, [PART_WAIT] = 0}, CAUSE_WORK, 1.0, NONE},
        {"collection", 6.0, TAG_PREEMPTED, {[PART_CPU] = 6e6f, [PART_PAUSE] = 4.8e6f}, CAUSE_PAUSE, 0.96, NONE},
        {"waiting", 6.0, TAG_PREEMPTED, {[PART_CPU] = 1e6f, [PART_WAIT] = 5e6f}, CAUSE_CPU_WAIT, 1.0, NONE},
        {"interrupts", 6.0, 0, {[PART_CPU] = 1e6f, [PART_TAKEN] = 5e6f}, UNKNOWN_CAUSE, 1.0, NONE},
        {"a sleep, or a wait for a CPU: not known", 6.0, 0, {[PART_CPU] = 1e6f, [PART_WAIT] = NAN}, UNKNOWN_CAUSE, 1.0, NONE},
        {"preempted, for how long is not known",
         6.0,
         TAG_PREEMPTED,
         {[PART_CPU] = 1e6f, [PART_WAIT] = NAN},
         CAUSE_CPU_WAIT,
         1.0,
         NONE},
        {"half a sleep, half waiting", 11.0, 0, {[PART_CPU] = 1e6f, [PART_WAIT] = 5e6f}, CAUSE_CPU_WAIT, 0.5, CAUSE_BLOCKED},
        {"a thread that waits, and one that spins",
         6.0,
         0,
         {[PART_CPU] = 6e6f, [PART_TEAM_WAIT] = 5e6f},
         CAUSE_CPU_WAIT,
         1.0,
         NONE},
        {"child", 6.0, TAG_CHILD | TAG_FILES, {[PART_CPU] = 1.5e6f, [PART_CHILDREN] = 4e6f}, CAUSE_CHILD, 1.0, NONE},
        {"file", 6.0, TAG_FILES, {[PART_CPU] = 1.2e6f, [PART_FILES] = 1e6f}, CAUSE_FILES, 1.0, NONE},
        {"lock", 6.0, 0, {[PART_CPU] = 1e6f, [PART_OTHERS] = 4.9e6f}, CAUSE_THREADS, 1.0, NONE},
        {"lock, woken on the holder's core",
         6.0,
         0,
         {[PART_CPU] = 1e6f, [PART_WAIT] = 5e6f, [PART_OTHERS] = 4.9e6f},
         CAUSE_THREADS,
         1.0,
         NONE},
        {"a thread that waits, and ticks of before",
         6.0,
         0,
         {[PART_CPU] = 1e6f, [PART_TEAM_WAIT] = 5.9e6f, [PART_OTHERS] = 4e6f},
         CAUSE_CPU_WAIT,
         0.98,
         CAUSE_THREADS},
        {"faults", 6.0, TAG_FAULTS, {[PART_CPU] = 6e6f, [PART_FAULTS] = 4e6f}, CAUSE_FAULTS, 1.0, NONE},
        {"faults and work", 11.0, TAG_FAULTS, {[PART_CPU] = 11e6f, [PART_FAULTS] = 4e6f}, CAUSE_FAULTS, 0.8, CAUSE_WORK},
        {"large pages", 6.0, 0, {[PART_CPU] = 6e6f, [PART_FAULTS] = 1e3f, [PART_SYSTEM] = 4.5e6f}, CAUSE_FAULTS, 1.0, NONE},
        {"allocation", 6.0, TAG_FAULTS | TAG_ALLOCATED, {[PART_CPU] = 6e6f, [PART_FAULTS] = 9e6f}, CAUSE_ALLOCATED, 1.0, NONE},
        {"rebuild", 2.0, TAG_REBUILD | TAG_PREEMPTED, {[PART_CPU] = 2e6f}, CAUSE_REBUILD, 1.0, NONE},
        {"rebuild and more", 6.3, TAG_REBUILD, {[PART_CPU] = 6.3e6f}, CAUSE_WORK, 4.0 / 5.3, CAUSE_REBUILD},
        {"jitter", 1.2, 0, {[PART_CPU] = 1.2e6f}, UNKNOWN_CAUSE, 1.0, NONE},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *profile = divided(cases[k].ms, cases[k].tags, cases[k].parts, 1.0);
        const profile_tail *tail = &profile->tail;
        double excess = tail_excess_ms(tail), share = tail->excess_ms[cases[k].first] / excess;
        assert_near(excess, N / 10 * (cases[k].ms - 1.0), 1e-3); // parts are float32
        if (fabs(share - cases[k].share) > 1e-3)
            fail_msg("%s: %.3f of the excess is %s, expected %.3f", cases[k].what, share, profile_cause_names[cases[k].first],
                     cases[k].share);
        if (cases[k].second != NONE) assert_near(tail->excess_ms[cases[k].second] / excess, 1.0 - cases[k].share, 1e-3);
        assert_int_equal(tail->period[cases[k].first], 10);
        assert_near(tail->share, excess / (N / 10 * (9.0 + cases[k].ms)), 1e-6);
        mlff_profile_destroy(profile);
    }
}

// Waits for a CPU while other threads of the process run, as where a team spins for the thread that other programs keep from a core:
// without a period they are not the threads'. Those of every tenth step are, also beside waits for other programs, by which alone the
// machine is then busy.
static void test_waits_for_own_threads(void **state)
{
    (void)state;
    for (int locked = 0; locked < 2; locked++) {
        synthetic_steps s = {0};
        int n_accidents = 0, n_locks = 0;
        for (int i = 0; i < N; i++) {
            bool lock = locked && i % 10 == 7, accident = !lock && base_random_uniform(12, 0, (uint64_t)i) < 0.015;
            s.times[i] = lock || accident ? 5.0 : 1.0;
            s.parts[i][PART_CPU] = 1e6f;
            s.parts[i][PART_WAIT] = lock || accident ? 4e6f : 0.0f;
            s.parts[i][PART_OTHERS] = lock || (accident && !locked) ? 4e6f : 0.0f;
            n_locks += lock;
            n_accidents += accident;
        }
        double total = N + 4.0 * (n_locks + n_accidents), share = 4.0 * (n_locks + n_accidents) / total;
        mlff_profile *profile = synthetic_steps_told(&s, true, "", (profile_tail){.cpu_wait_share = share});
        const profile_tail *tail = &profile->tail;
        assert_true(n_accidents > 5);
        assert_int_equal(tail->period[CAUSE_THREADS], locked ? 10 : 0);
        assert_int_equal(tail->n_by_cause[CAUSE_THREADS], n_locks);
        assert_int_equal(tail->n_by_cause[CAUSE_CPU_WAIT], n_accidents);
        assert_near(tail->cpu_wait_share, 4.0 * n_accidents / total, 1e-9);
        mlff_profile_destroy(profile);
    }
}

// Processor time that scatters, as it does where the other half of a core or a cache is shared: long steps are its tail, not work of
// their own. Work among them that is planted in every tenth step is found.
static void test_scatter_is_not_work(void **state)
{
    (void)state;
    for (int planted = 0; planted < 2; planted++) {
        synthetic_steps s = {0};
        int order[N_CAUSES], n_named;
        for (int i = 0; i < N; i++) {
            double u = base_random_uniform(11, 0, (uint64_t)i);
            s.times[i] = 1.0 + 0.2 * -log(u) + (planted && i % 10 == 7 ? 6.0 : 0.0); // a tenth of the steps is 0.46 ms longer
            s.parts[i][PART_CPU] = (float)(s.times[i] * 1e6);
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "", (profile_tail){0});
        n_named = tail_order(&profile->tail, true, order);
        assert_int_equal(n_named, planted);
        if (planted) assert_int_equal(order[0], CAUSE_WORK);
        if (planted) assert_int_equal(profile->tail.n_by_cause[CAUSE_WORK], N / 10);
        mlff_profile_destroy(profile);
    }
}

// A period is found through accidents between its steps and a few misses; steps without one have none.
static void test_periods(void **state)
{
    (void)state;
    unsigned char *hits = base_alloc(N, 1, "hits");
    uint64_t draw = 0;
    static const int periods[] = {2, 3, 10, 49, 100};
    for (size_t k = 0; k < sizeof periods / sizeof *periods; k++) {
        memset(hits, 0, N);
        for (int i = 0; i < N; i++) hits[i] = i % periods[k] == periods[k] / 2;
        assert_int_equal(causes_period(hits, N), periods[k]);
        int n_slots = N / periods[k];
        for (int accident = 0; accident < n_slots / 5; accident++) {
            hits[(int)(base_random_uniform(3, k, draw++) * N)] = 1;
            hits[periods[k] / 2 + periods[k] * (int)(base_random_uniform(4, k, draw++) * n_slots * 0.5)] = 0;
        }
        if (periods[k] > 2) assert_int_equal(causes_period(hits, N), periods[k]);
    }
    int n_found = 0;
    for (int trial = 0; trial < 200; trial++) { // 5 % of the steps, at random
        for (int i = 0; i < N; i++) hits[i] = base_random_uniform(5, (uint64_t)trial, draw++) < 0.05;
        n_found += causes_period(hits, N) != 0;
    }
    assert_int_equal(n_found, 0);
    memset(hits, 0, N);
    assert_int_equal(causes_period(hits, N), 0);
    hits[3] = hits[6] = hits[9] = 1; // three of a thousand
    assert_int_equal(causes_period(hits, N), 0);
    base_free(hits);
}

// A GPU's step: the GPU works longer, its work starts or is reported later, or the host's calls take longer; a host that spins
// meanwhile does not compute more.
static void test_causes_on_a_gpu(void **state)
{
    (void)state;
    static const struct {
        float parts[N_PARTS];
        int expected;
    } cases[] = {
        {{[PART_CPU] = 6e6f, [PART_DEVICE] = 5e6f}, CAUSE_DEVICE_BUSY},
        {{[PART_CPU] = 6e6f, [PART_QUEUE] = 5e6f}, CAUSE_DEVICE_QUEUE},
        {{[PART_CPU] = 6e6f, [PART_ENQUEUE] = 5e6f}, CAUSE_ENQUEUE},
        {{[PART_CPU] = 6e6f}, CAUSE_WORK},                              // around the evaluator
        {{[PART_CPU] = 1e6f, [PART_QUEUE] = 5e6f}, CAUSE_DEVICE_QUEUE}, // a host that does not spin
        {{[PART_CPU] = 1e6f}, CAUSE_BLOCKED},
        {{[PART_CPU] = 1e6f, [PART_WAIT] = 5e6f, [PART_QUEUE] = 5e6f}, CAUSE_CPU_WAIT},
        {{[PART_CPU] = 6e6f, [PART_DEVICE] = NAN, [PART_QUEUE] = NAN, [PART_ENQUEUE] = NAN}, UNKNOWN_CAUSE},
        {{[PART_CPU] = 1e6f, [PART_DEVICE] = NAN, [PART_QUEUE] = NAN, [PART_ENQUEUE] = NAN}, CAUSE_DEVICE_QUEUE},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *profile = synthetic_every_tenth("cuda:0", 6.0, 0, cases[k].parts, 1.0);
        double share = profile->tail.excess_ms[cases[k].expected] / tail_excess_ms(&profile->tail);
        if (!(share > 0.999)) fail_msg("case %zu: %.3f is %s", k, share, profile_cause_names[cases[k].expected]);
        mlff_profile_destroy(profile);
    }
}

// Where the neighbor list has a clock, a rebuild explains no more than the list took: a step with one may be slow by something else.
static void test_a_rebuild_takes_what_its_clock_says(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        double ms;
        float parts[N_PARTS];
        int first;
        double first_share, rebuild_share; // of the excess
    } cases[] = {
        {"cuda:0",
         1.8,
         {[PART_CPU] = 1.8e6f, [PART_DEVICE] = 0.8e6f, [PART_LIST] = 0.1e6f},
         CAUSE_DEVICE_BUSY,
         0.67 / 0.8,
         0.13 / 0.8},
        {"cuda:0", 1.8, {[PART_CPU] = 1.8e6f, [PART_DEVICE] = 0.8e6f, [PART_LIST] = 0.8e6f}, CAUSE_REBUILD, 1.0, 1.0},
        {"cpu", 1.8, {[PART_CPU] = 1.8e6f, [PART_LIST] = 0.1e6f}, CAUSE_WORK, 0.67 / 0.8, 0.13 / 0.8},
        {"cpu", 1.8, {[PART_CPU] = 1.8e6f, [PART_LIST] = 0.7e6f}, CAUSE_REBUILD, 1.0, 1.0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_profile *profile = synthetic_every_tenth(cases[k].device, cases[k].ms, TAG_REBUILD, cases[k].parts, 1.0);
        const double excess = tail_excess_ms(&profile->tail);
        assert_near(profile->tail.excess_ms[cases[k].first] / excess, cases[k].first_share, 1e-3);
        assert_near(profile->tail.excess_ms[CAUSE_REBUILD] / excess, cases[k].rebuild_share, 1e-3);
        mlff_profile_destroy(profile);
    }
}

// A thread that loses the processor after a step waits between steps: a sleep in the next one stays a sleep.
static mlff_status sleepy_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                               double *stress)
{
    (void)wanted;
    (void)stress;
    bool slow = ++*(int64_t *)context % SLOW_EVERY == SLOW_AT;
    synthetic_wait(slow ? 310.0 : 10.0);
    planted_events.cpu_ns += 10000;
    planted_lost_us = 50.0;
    if (energy) *energy = 0.0;
    for (int i = 0; forces && i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    return MLFF_OK;
}

static void test_waits_between_steps(void **state)
{
    (void)state;
    int64_t n_calls = 0;
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "sleepy",
                              .context = &n_calls,
                              .properties = MLFF_ENERGY | MLFF_FORCES,
                              .step = sleepy_step};
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(STEPS);
    mlff_profile *profile;
    options.split = 0;
    planted_events.cpu_ns = 0;
    planted_seen.wait_ns = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const profile_tail *tail = &profile->tail;
    assert_near(tail->excess_ms[CAUSE_BLOCKED], 0.3 * STEPS / SLOW_EVERY, 0.02); // readings of the clock are 7 ns
    assert_near(tail->excess_ms[CAUSE_CPU_WAIT], 0.0, 0.02);
    assert_int_equal(tail->n_by_cause[CAUSE_BLOCKED], STEPS / SLOW_EVERY);
    assert_true(tail->cpu_wait_share < 0.01);
    assert_near(tail->stretch, 6.0, 0.1); // 10 µs of work, 50 of waiting
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
    planted_events = (process_events){.cpu_ns = -1};
    planted_seen = (process_watch_seen){.wait_ns = -1};
    planted_lost_us = 0.0;
}

// What a black box does in every step is said, as no tail shows it: each step of 100 µs runs for `cpu_us`, and reads a file or ends a
// child process. Times of these are not known, and not said; and then no advice about the model is given.
typedef struct daily {
    double cpu_us, waited_us; // waited_us < 0: not known
    int64_t io_bytes, children_ns;
    int every; // steps with a file or a child
    int64_t n_calls;
} daily;

static mlff_status daily_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                              double *stress)
{
    daily *d = context;
    (void)stress;
    synthetic_wait(100.0);
    planted_events.cpu_ns += (int64_t)(1e3 * d->cpu_us);
    if (d->waited_us >= 0.0) planted_seen.wait_ns += (int64_t)(1e3 * d->waited_us);
    if (++d->n_calls % d->every == 0) {
        planted_seen.io_bytes += d->io_bytes;
        planted_seen.children_ns += d->children_ns;
    }
    synthetic_nothing(frame, wanted, energy, forces);
    return MLFF_OK;
}

static void test_in_every_step(void **state)
{
    (void)state;
    static const struct {
        daily daily;
        const char *told[3]; // NULL: nothing
    } cases[] = {
        {{.cpu_us = 100, .every = 1}, {0}},
        {{.cpu_us = 30, .waited_us = 70, .every = 1}, {0}}, // other programs had the processor
        {{.cpu_us = 92, .every = 1}, {0}},
        {{.cpu_us = 90.5, .io_bytes = 8192, .every = 3}, {0}},
        {{.cpu_us = 40, .waited_us = -1, .every = 1}, {0}}, // it may all be waits for a CPU
        {{.cpu_us = 40, .waited_us = -1, .io_bytes = 8192, .every = 1},
         {"read or written in 300 of 300 steps", "was not measured"}},
        {{.cpu_us = 40, .every = 1}, {"neither ran nor waited for a CPU for 60 % of a step: it slept"}},
        {{.cpu_us = 20, .waited_us = 30, .every = 1}, {"neither ran nor waited for a CPU for 50 % of a step"}},
        {{.cpu_us = 92, .io_bytes = 8192, .every = 1}, {"read or written in 300 of 300 steps", "was not measured"}},
        {{.cpu_us = 60, .children_ns = 900, .every = 1},
         {"a child process ended in 300 of 300 steps", "was not measured", "for 40 % of a step"}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        daily d = cases[k].daily;
        mlff_callable callable = {.struct_size = sizeof callable,
                                  .name = "daily",
                                  .context = &d,
                                  .properties = MLFF_ENERGY | MLFF_FORCES,
                                  .step = daily_step};
        mlff_trajectory *trajectory = synthetic_thermal(8);
        mlff_profile_options options = synthetic_options(300);
        mlff_profile *profile, *again;
        char text[EVERY_STEP_BYTES], text_again[EVERY_STEP_BYTES], *json, *page;
        planted_events.cpu_ns = 0;
        planted_seen = (process_watch_seen){.wait_ns = d.waited_us < 0.0 ? -1 : 0};
        assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
        const bool told = every_step_text(profile, text, sizeof text);
        if (told != (cases[k].told[0] != NULL)) fail_msg("case %zu: \"%s\"", k, text);
        assert_true(strlen(text) + 1 < sizeof text);
        for (int i = 0; i < 3 && cases[k].told[i]; i++)
            if (!strstr(text, cases[k].told[i])) fail_msg("case %zu: \"%s\", expected \"%s\"", k, text, cases[k].told[i]);
        if (told) assert_true(synthetic_recommended(profile, text));
        profile->tail.team_cores = 1.5; // then a step that waits may wait for its own computation
        const bool beside = every_step_text(profile, text_again, sizeof text_again);
        assert_int_equal(beside, d.io_bytes + d.children_ns > 0 && told);
        if (told && d.cpu_us < 90.0 && d.waited_us >= 0.0)
            assert_non_null(strstr(text_again, "which used up to 1.5 cores and may compute for it"));
        profile->tail.team_cores = 0.0;
        if (told) assert_false(synthetic_recommended(profile, "lower precision"));
        if (!told && d.waited_us <= 0.0) assert_true(synthetic_recommended(profile, "does not see inside"));
        assert_ok(mlff_profile_text_short(profile, 1000, &page));
        assert_int_equal(strstr(page, "most of a step is energy") == NULL, told);
        assert_ok(mlff_profile_json(profile, &json));
        assert_ok(profile_parse("report.json", json, strlen(json), &again));
        assert_int_equal(every_step_text(again, text_again, sizeof text_again), told);
        assert_string_equal(text, text_again);
        mlff_text_free(json);
        mlff_text_free(page);
        mlff_profile_destroy(again);
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
    }
    planted_events = (process_events){.cpu_ns = -1};
    planted_seen = (process_watch_seen){.wait_ns = -1};
}

// The first steps take longer: for want of a warm-up, or because there is more to compute in them.
typedef struct beginning {
    double pairs_at_first; // times those of the other steps
    int64_t n_calls;
} beginning;

static mlff_status beginning_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                  double *stress)
{
    beginning *b = context;
    (void)stress;
    synthetic_wait(++b->n_calls <= 30 ? 20.0 : 10.0);
    synthetic_nothing(frame, wanted, energy, forces);
    return MLFF_OK;
}

static void beginning_counters(void *context, int64_t *n_pairs, int64_t *n_rebuilds, int64_t *n_growths)
{
    const beginning *b = context;
    *n_pairs = (int64_t)(b->n_calls <= 30 ? 100.0 * b->pairs_at_first : 100.0);
    *n_rebuilds = *n_growths = -1;
}

static void test_a_slow_beginning(void **state)
{
    (void)state;
    static const double pairs_at_first[] = {1.0, 1.5};
    for (int k = 0; k < 2; k++) {
        beginning b = {.pairs_at_first = pairs_at_first[k]};
        mlff_callable callable = {.struct_size = sizeof callable,
                                  .name = "beginning",
                                  .context = &b,
                                  .properties = MLFF_ENERGY | MLFF_FORCES,
                                  .step = beginning_step,
                                  .counters = beginning_counters};
        mlff_trajectory *trajectory = synthetic_thermal(8);
        mlff_profile_options options = synthetic_options(200);
        mlff_profile *profile, *again;
        char *json;
        options.split = 0;
        assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
        assert_near(profile->first_pairs, pairs_at_first[k], 1e-12);
        assert_int_equal(synthetic_recommended(profile, "the warm-up may have been too short"), k == 0);
        assert_ok(mlff_profile_json(profile, &json));
        assert_ok(profile_parse("report.json", json, strlen(json), &again));
        assert_int_equal(synthetic_recommended(again, "the warm-up may have been too short"), k == 0);
        again->mean_atoms = 9.0; // frames of several sizes
        for (int i = 0; i < again->n_recommendations; i++) base_free(again->recommendations[i]);
        again->n_recommendations = 0;
        assert_ok(hotspots_recommend(again));
        assert_false(synthetic_recommended(again, "the warm-up may have been too short"));
        mlff_text_free(json);
        mlff_profile_destroy(again);
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
    }
}

// A cause is named if it takes a tenth of the excess and 1 % of the run; one accident, or irregular ones where other programs run,
// only from 5 % of the run on.
static void test_what_is_named(void **state)
{
    (void)state;
    static const struct {
        int64_t n_steps, period;
        double of_run, cpu_wait;
        int named;
    } cases[] = {{1, 0, 0.03, 0.0, 0}, {1, 0, 0.06, 0.0, 1},  {3, 0, 0.03, 0.0, 1}, {3, 0, 0.005, 0.0, 0},
                 {9, 0, 0.03, 0.3, 0}, {9, 10, 0.03, 0.3, 1}, {9, 0, 0.06, 0.3, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        profile_tail tail = {.share = 0.2, .cpu_wait_share = cases[k].cpu_wait};
        int order[N_CAUSES];
        tail.excess_ms[CAUSE_WORK] = 1000.0 * cases[k].of_run;
        tail.excess_ms[CAUSE_CPU_WAIT] = 200.0 - tail.excess_ms[CAUSE_WORK];
        tail.n_by_cause[CAUSE_WORK] = cases[k].n_steps;
        tail.period[CAUSE_WORK] = cases[k].period;
        if (tail_order(&tail, true, order) != cases[k].named) fail_msg("case %zu: expected %d", k, cases[k].named);
    }
    profile_tail minor = {.share = 0.5, .n_by_cause = {[CAUSE_WORK] = 50, [CAUSE_BLOCKED] = 50}};
    int order[N_CAUSES];
    minor.excess_ms[CAUSE_WORK] = 8.0;
    minor.excess_ms[CAUSE_BLOCKED] = 92.0;
    assert_int_equal(tail_order(&minor, true, order), 1);
    assert_int_equal(order[0], CAUSE_BLOCKED);
}

// Two causes share the excess as planted: 12 rebuilds of +1 ms and 4 steps of +3 ms that waited for a CPU are half of it each.
static void test_shares(void **state)
{
    (void)state;
    enum { STEPS_PLANTED = 1600 };
    double *times = base_alloc(STEPS_PLANTED, sizeof *times, "times");
    uint16_t *tags = base_alloc(STEPS_PLANTED, sizeof *tags, "tags");
    mlff_profile *profile;
    char text[512];
    assert_ok(profile_new(&profile));
    for (int i = 0; i < STEPS_PLANTED; i++) {
        times[i] = i % 100 == 7 ? (i / 100 < 12 ? 2.0 : 4.0) : 1.0;
        tags[i] = i % 100 == 7 ? (i / 100 < 12 ? TAG_REBUILD : TAG_PREEMPTED) : 0;
    }
    assert_ok(mlff_statistics_of(times, STEPS_PLANTED, &profile->summary.latency_ms));
    profile->summary.n_steps = STEPS_PLANTED;
    profile->rebuild_median_ms = 2.0;
    assert_ok(causes_derive(profile, times, tags, NULL, STEPS_PLANTED));
    assert_int_equal(profile->tail.n_by_cause[CAUSE_REBUILD], 12);
    assert_int_equal(profile->tail.n_by_cause[CAUSE_CPU_WAIT], 4);
    assert_near(profile->tail.excess_ms[CAUSE_REBUILD], 12.0, 1e-5); // parts are float32
    assert_near(profile->tail.excess_ms[CAUSE_CPU_WAIT], 12.0, 1e-5);
    tail_text(profile, text, sizeof text);
    assert_non_null(strstr(text, "rebuild 50 % (+1 ms in each of 12 steps"));
    assert_non_null(strstr(text, "waiting for a CPU 50 % (+3 ms in each of 4 steps"));
    base_free(times);
    base_free(tags);
    mlff_profile_destroy(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_cause),
        cmocka_unit_test(test_watched),
        cmocka_unit_test(test_what_is_usual_explains_nothing),
        cmocka_unit_test(test_one_cause_a_step),
        cmocka_unit_test(test_causes_by_time),
        cmocka_unit_test(test_causes_on_a_gpu),
        cmocka_unit_test(test_a_rebuild_takes_what_its_clock_says),
        cmocka_unit_test(test_waits_between_steps),
        cmocka_unit_test(test_in_every_step),
        cmocka_unit_test(test_a_slow_beginning),
        cmocka_unit_test(test_what_is_named),
        cmocka_unit_test(test_waits_for_own_threads),
        cmocka_unit_test(test_scatter_is_not_work),
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
