// SPDX-License-Identifier: MIT
// Purpose: the steps beyond P99 are told by what made them slow: each cause is planted in turn, and is the one that the report,
// its JSON and its page name. What the system does is planted too, by the linker taking the definitions below.
#include <cjson/cJSON.h>

#include "profile/profile.h"
#include "synthetic.h"
#include "synthetic_clock.h"

static process_events planted_events;
static double planted_pace = 1000.0;

void process_events_get(process_events *events_out)
{
    *events_out = planted_events;
}

double pace_ns(void)
{
    return planted_pace;
}

typedef struct cause {
    const char *name, *lever;
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
    {"preempted", "took the processor away", &planted_events.n_preempted, 1},
    {"page faults", "touched for the first time", &planted_events.n_faults, 64},
    {"clock drop", "clock fell", NULL, 0},
    {"file I/O", "Files are read or written", &planted_events.n_file_blocks, 8},
    {"compilation", "Code is compiled", &planted_events.children_us, 900},
    {"compilation", "Code is compiled", &planted_events.n_loads, 1},
    {"allocation", "The force field allocates", &planted_events.heap_end, 132 << 10},
    {"allocation", "The force field allocates", &planted_events.n_allocations, 3},
    {"unknown", "Look at frames of different size", NULL, 0},
};

static void test_each_cause(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof causes / sizeof *causes; k++) {
        force_field f = {.cause = &causes[k]};
        mlff_profile *profile = profile_of(&f), *again;
        char *text, *json, *page, *json_again, expected[64];
        assert_int_equal(profile->tail.n_steps, STEPS / SLOW_EVERY);
        snprintf(expected, sizeof expected, "100 %% of that is %s (10 steps)", causes[k].name);
        assert_ok(mlff_profile_text(profile, 300, &text));
        if (!strstr(text, expected)) fail_msg("%s: \"%s\" is not in\n%s", causes[k].name, expected, text);
        if (!synthetic_recommended(profile, causes[k].lever))
            fail_msg("%s: no \"%s\" in\n%s", causes[k].name, causes[k].lever, text);
        assert_ok(mlff_profile_json(profile, &json));
        assert_near(share_in_json(json, causes[k].name), 1.0, 1e-12);
        assert_ok(mlff_profile_html((const mlff_profile *const *)&profile, 1, NULL, &page));
        snprintf(expected, sizeof expected, "<td class=\"text\">%s</td><td>10</td><td>100 %%</td>", causes[k].name);
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
        mlff_profile_destroy(profile);
    }
}

// Of several things in one step the most telling one is the cause; a rebuild is, if the step took no longer than rebuilds do.
static void test_one_cause_a_step(void **state)
{
    (void)state;
    static const struct {
        uint32_t tags;
        double ms;
        int expected; // index of the tag's name
    } cases[] = {{TAG_REBUILD, 2.0, 0},
                 {TAG_REBUILD | TAG_PREEMPTED, 2.1, 0},
                 {TAG_REBUILD | TAG_PREEMPTED, 9.0, 2},
                 {TAG_REBUILD | TAG_FAULTS, 9.0, 0},
                 {TAG_GROWTH | TAG_FAULTS | TAG_ALLOCATED, 9.0, 1},
                 {TAG_COMPILED | TAG_FILES | TAG_ALLOCATED | TAG_FAULTS, 9.0, 6},
                 {TAG_ALLOCATED | TAG_FAULTS, 9.0, 7},
                 {TAG_PREEMPTED | TAG_CLOCK, 9.0, 4},
                 {0, 9.0, UNKNOWN_CAUSE}};
    mlff_profile *profile;
    assert_ok(profile_new(&profile));
    profile->summary.n_steps = 1000;
    profile->rebuild_median_ms = 2.0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int found = tail_cause(profile, cases[k].tags, cases[k].ms);
        if (found != cases[k].expected)
            fail_msg("case %zu: %s, expected %s", k, tail_cause_name(found), tail_cause_name(cases[k].expected));
    }
    mlff_profile_destroy(profile);
}

// Two causes share the tail as planted: 12 rebuilds of +1 ms and 4 preempted steps of +3 ms are half the excess each.
static void test_shares(void **state)
{
    (void)state;
    enum { N = 1600 };
    double *times = base_alloc(N, sizeof *times, "times");
    uint16_t *tags = base_alloc(N, sizeof *tags, "tags");
    mlff_profile *profile;
    char text[512];
    assert_ok(profile_new(&profile));
    for (int i = 0; i < N; i++) {
        times[i] = i % 100 == 7 ? (i / 100 < 12 ? 2.0 : 4.0) : 1.0;
        tags[i] = i % 100 == 7 ? (i / 100 < 12 ? TAG_REBUILD : TAG_PREEMPTED) : 0;
    }
    assert_ok(mlff_statistics_of(times, N, &profile->summary.latency_ms));
    profile->summary.n_steps = N;
    profile->rebuild_median_ms = 2.0;
    tail_derive(profile, times, tags, N);
    assert_int_equal(profile->tail.n_steps, 16);
    assert_int_equal(profile->tail.n_by_cause[0], 12);
    assert_int_equal(profile->tail.n_by_cause[2], 4);
    assert_near(profile->tail.excess_ms[0], 12.0, 1e-12);
    assert_near(profile->tail.excess_ms[2], 12.0, 1e-12);
    tail_text(profile, text, sizeof text);
    assert_non_null(strstr(text, "50 % of that is rebuild (12 steps)"));
    assert_non_null(strstr(text, "50 % of that is preempted (4 steps)"));
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
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
