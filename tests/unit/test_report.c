// SPDX-License-Identifier: MIT
// Purpose: the JSON of a profile has the contract's keys, reads back to the same record, and hostile files end in one
// clear line; the text report fits its width and names what a user asks about.
#include <cjson/cJSON.h>
#include <locale.h>

#include "profile/profile.h"
#include "synthetic.h"
#include "synthetic_clock.h"

static const char *const contract_keys[] = {"name",
                                            "model_name",
                                            "n_steps",
                                            "device",
                                            "latencies_ms",
                                            "mean_latency_ms",
                                            "median_latency_ms",
                                            "std_latency_ms",
                                            "min_latency_ms",
                                            "max_latency_ms",
                                            "p95_latency_ms",
                                            "p99_latency_ms",
                                            "energy_time_ms",
                                            "forces_time_ms",
                                            "stress_time_ms",
                                            "memory_initial_gb",
                                            "memory_final_gb",
                                            "memory_peak_gb",
                                            "memory_per_step_gb",
                                            "n_atoms",
                                            "system_size",
                                            "total_time_s",
                                            "steps_per_second",
                                            "timestamp",
                                            "notes"};
static const char *const added_keys[] = {"schema_version", "n_samples",       "n_warmup",   "partial",     "memory_delta_gb",
                                         "memory_stable",  "us_per_atom",     "ns_per_day", "cv",          "stages",
                                         "verdicts",       "recommendations", "hotspots",   "environment", "timer",
                                         "memory_ledgers", "counters"};

static mlff_profile *planted_profile(int64_t n_steps, const char *name)
{
    synthetic s = {.energy_us = 20, .forces_us = 30, .rebuild_us = 40, .rebuild_every = 7};
    mlff_callable callable = synthetic_native(&s);
    mlff_trajectory *trajectory = synthetic_thermal(64);
    mlff_profile_options options = synthetic_options(n_steps);
    mlff_profile *profile;
    options.name = name;
    options.notes = "planted numbers";
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_trajectory_destroy(trajectory);
    return profile;
}

static char *json_of(const mlff_profile *profile)
{
    char *text;
    assert_ok(mlff_profile_json(profile, &text));
    return text;
}

static mlff_status parse_text(const char *text, mlff_profile **profile_out)
{
    return profile_parse("report.json", text, strlen(text), profile_out);
}

static void test_keys_and_values(void **state)
{
    (void)state;
    mlff_profile *profile = planted_profile(50, NULL);
    char *text = json_of(profile);
    cJSON *root = cJSON_Parse(text), *item;
    assert_non_null(root);
    for (size_t i = 0; i < sizeof contract_keys / sizeof *contract_keys; i++)
        if (!cJSON_HasObjectItem(root, contract_keys[i])) fail_msg("key %s is missing", contract_keys[i]);
    for (size_t i = 0; i < sizeof added_keys / sizeof *added_keys; i++)
        if (!cJSON_HasObjectItem(root, added_keys[i])) fail_msg("added key %s is missing", added_keys[i]);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "latencies_ms")), 50);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "stress_time_ms")));
    assert_string_equal(cJSON_GetObjectItem(root, "system_size")->valuestring, "64 atoms");
    assert_near(cJSON_GetObjectItem(root, "mean_latency_ms")->valuedouble, profile->summary.latency_ms.mean, 0); // all digits
    const char *stamp = cJSON_GetObjectItem(root, "timestamp")->valuestring; // "2025-11-23 10:30:00"
    int year, month, day, hour, minute, second, used = 0;
    assert_int_equal(sscanf(stamp, "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second, &used), 6);
    assert_int_equal(used, 19);
    assert_int_equal(stamp[19], 0);

    // Hotspots: parts and stages with what identify_hotspots hands out; over 10 % is one.
    const cJSON *hotspots = cJSON_GetObjectItem(root, "hotspots"), *components = cJSON_GetObjectItem(hotspots, "components");
    assert_near(cJSON_GetObjectItem(hotspots, "total_time_ms")->valuedouble, profile->summary.latency_ms.mean, 0);
    assert_non_null(cJSON_GetObjectItem(components, "energy"));
    assert_non_null(cJSON_GetObjectItem(components, "forces"));
    assert_non_null(cJSON_GetObjectItem(components, "stages/forward/message/0"));
    assert_non_null(cJSON_GetObjectItem(components, "unattributed"));
    cJSON_ArrayForEach(item, components)
    {
        double percentage = cJSON_GetObjectItem(item, "percentage")->valuedouble;
        assert_near(cJSON_GetObjectItem(item, "time_ms")->valuedouble * 100.0, percentage * profile->summary.latency_ms.mean,
                    1e-9);
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(item, "is_hotspot")), percentage > 10.0);
    }
    cJSON_Delete(root);
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[] = "/tmp/mlff-report-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    mlff_profile *profile = planted_profile(120, "a \"name\" with \\ and \n and µ"), *again;
    char *text = json_of(profile), *text_again;
    assert_ok(mlff_profile_save(profile, path));
    assert_ok(mlff_profile_load(path, &again));
    text_again = json_of(again);
    assert_string_equal(text, text_again); // every number, verdict and sentence
    assert_near(again->summary.ns_per_day, profile->summary.ns_per_day, 0);
    assert_int_equal(again->n_slowest, profile->n_slowest);
    assert_memory_equal(again->latency_ms, profile->latency_ms, 120 * sizeof(double));
    mlff_text_free(text_again);
    mlff_profile_destroy(again);

    // A run of many: the first, said so.
    base_text runs = {0};
    base_text_add(&runs, "{\"runs\": [%s, {}]}", text);
    assert_ok(parse_text(runs.text, &again));
    assert_string_equal(again->name, profile->name);
    assert_non_null(strstr(again->summary.notes, "first of 2 runs"));
    mlff_profile_destroy(again);
    base_text_free(&runs);

    mlff_text_free(text);
    mlff_profile_destroy(profile);
    unlink(path);
    again = NULL;
    assert_int_equal(mlff_profile_load(path, &again), MLFF_ERR_IO);
    assert_null(again);
}

// What was measured below the noise is not printed as if it were a number.
static void test_numbers_without_meaning(void **state)
{
    (void)state;
    mlff_profile *profile;
    char text[512];
    static const struct {
        double ns, low, high;
        const char *expected;
    } cases[] = {{2000, 1500, 2500, "measuring adds 2 µs to a step (1.5 µs to 2.5 µs at 95 %), 0.2 % of it"},
                 {-731e3, -2e6, -1e3, "could not be measured on this machine"},
                 {-731e3, -2e6, 4e6, "could not be measured on this machine"},
                 {900, -300, 20e3, "at most 20 µs to a step, 2 % of it"},
                 {2000, -INFINITY, INFINITY, "could not be measured on this machine"}};
    assert_ok(profile_new(&profile));
    profile->summary.latency_ms.median = 1.0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        profile->overhead_ns = cases[k].ns;
        profile->overhead_low_ns = cases[k].low;
        profile->overhead_high_ns = cases[k].high;
        overhead_text(profile, text, sizeof text);
        if (!strstr(text, cases[k].expected)) fail_msg("case %zu: \"%s\", expected \"%s\"", k, text, cases[k].expected);
        assert_null(strstr(text, "-"));
    }
    profile->bounds[0] = (percentile_bounds){.value = 0.2883, .low = 0.283, .high = 5.141, .n_effective = 7};
    steadiness_bound_text(profile, 0, text, sizeof text);
    assert_null(strstr(text, "5.141"));
    assert_non_null(strstr(text, "could not be bounded"));
    profile->bounds[0].high = 0.31;
    steadiness_bound_text(profile, 0, text, sizeof text);
    assert_non_null(strstr(text, "between 283 µs and 310 µs"));
    profile->steady = (steady_state){.kind = STEADY_WARM_UP, .first = 20, .settled = true};
    // What is compared with the steps that an interval needs are those of the steady part, of which it is.
    static const struct {
        double n_effective;
        int64_t n_needed;
        const char *expected;
    } parts[] = {{250, 299, "P99: needs 299 steps, 250 after step 150 are there; 1.366 ms is an estimate without bounds"},
                 {100, 200, "depend on each other, 100 of 250 of the steady part (from step 150 on) are independent"},
                 {250, 200, "without bounds: too few steps, 250 after step 150 are there"}};
    profile->steady.first = 150;
    profile->n_latency = 400;
    profile->summary.n_steps = 400;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        profile->bounds[2] = (percentile_bounds){.value = 1.366, .low = NAN, .high = NAN};
        profile->bounds[2].n_effective = parts[k].n_effective;
        profile->bounds[2].n_needed = parts[k].n_needed;
        steadiness_bound_text(profile, 2, text, sizeof text);
        if (!strstr(text, parts[k].expected)) fail_msg("case %zu: \"%s\", expected \"%s\"", k, text, parts[k].expected);
    }
    profile->n_latency = 0;
    profile->before_s = 0.01;
    profile->before_cost_s = -0.00208;
    steadiness_text(profile, text, sizeof text);
    assert_null(strstr(text, "-0.00208"));
    profile->before_cost_s = 0.004;
    steadiness_text(profile, text, sizeof text);
    assert_non_null(strstr(text, "0.004 s more"));
    mlff_profile_destroy(profile);
}

static void test_long_run_says_it_is_thinned(void **state)
{
    (void)state;
    synthetic s = {0};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_system *system = synthetic_system(2);
    mlff_trajectory *trajectory;
    mlff_profile *profile, *again;
    mlff_profile_options options = synthetic_options(110000);
    char *text, *text_again;
    options.memory_every = 1000;
    assert_ok(mlff_trajectory_frames((const mlff_system *const *)&system, 1, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_int_equal(profile->latency_every, 2);
    assert_int_equal(profile->n_latency, 55000);
    text = json_of(profile);
    assert_non_null(strstr(text, "\"n_samples\": 55000"));
    assert_ok(parse_text(text, &again));
    text_again = json_of(again);
    assert_string_equal(text, text_again);
    mlff_text_free(text);
    mlff_text_free(text_again);
    mlff_profile_destroy(profile);
    mlff_profile_destroy(again);
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
}

// Only the contract's keys, as other programs write them.
static const char minimal[] =
    "{\"name\":\"x\",\"model_name\":\"m\",\"n_steps\":2,\"device\":\"cuda\",\"latencies_ms\":[1.0,3.0],\"mean_latency_ms\":2.0,"
    "\"median_latency_ms\":2.0,\"std_latency_ms\":1.4142135623730951,\"min_latency_ms\":1.0,\"max_latency_ms\":3.0,"
    "\"p95_latency_ms\":2.9,\"p99_latency_ms\":2.98,\"energy_time_ms\":0.5,\"forces_time_ms\":1.4,\"stress_time_ms\":null,"
    "\"memory_initial_gb\":1.0,\"memory_final_gb\":1.5,\"memory_peak_gb\":1.5,\"memory_per_step_gb\":[1.0,1.5],\"n_atoms\":64,"
    "\"system_size\":\"64 atoms\",\"total_time_s\":0.004,\"steps_per_second\":500,\"timestamp\":\"2025-11-23 "
    "10:30:00\",\"notes\":\"\"}";

static void test_contract_alone_is_enough(void **state)
{
    (void)state;
    mlff_profile *profile;
    mlff_profile_summary summary;
    int n;
    assert_ok(parse_text(minimal, &profile));
    mlff_profile_summary_get(profile, &summary);
    assert_near(summary.us_per_atom, 2000.0 / 64, 1e-9);
    assert_near(summary.memory_delta_gb, 0.5, 1e-12);
    assert_int_equal(summary.memory_stable, 0);
    assert_int_equal(summary.latency_ms.n, 2);
    assert_near(summary.latency_ms.cv, 0.7071, 1e-4);
    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    assert_int_equal(n, 3); // energy, forces, unattributed
    assert_near(stages[1].share, 0.7, 1e-12);
    assert_near(stages[2].share, 0.05, 1e-12);
    (void)mlff_profile_verdicts(profile, &n);
    assert_int_equal(n, 6);
    mlff_profile_destroy(profile);
}

// ---- hostile files -------------------------------------------------------------------------------

static void expect_refused(const char *text, mlff_status expected, const char *part)
{
    mlff_profile *profile = NULL;
    mlff_status status = parse_text(text, &profile);
    if (status != expected) fail_msg("%.60s: %s, expected %s", text, mlff_status_name(status), mlff_status_name(expected));
    assert_null(profile);
    if (!strstr(mlff_last_error(), part)) fail_msg("\"%s\" does not say \"%s\"", mlff_last_error(), part);
    if (strncmp(mlff_last_error(), "report.json", 11) != 0) fail_msg("\"%s\" does not name the file", mlff_last_error());
    assert_null(strchr(mlff_last_error(), '\n'));
}

// `minimal` with `from` replaced by `to`.
static char *changed(const char *from, const char *to)
{
    static char text[4096];
    const char *at = strstr(minimal, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - minimal), minimal, to, at + strlen(from));
    return text;
}

static void test_missing_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof contract_keys / sizeof *contract_keys; i++) {
        char from[64], to[64], part[64];
        snprintf(from, sizeof from, "\"%s\":", contract_keys[i]);
        snprintf(to, sizeof to, "\"no_%s\":", contract_keys[i]);
        snprintf(part, sizeof part, "key \"%s\" is missing", contract_keys[i]);
        expect_refused(changed(from, to), MLFF_ERR_FORMAT, part);
    }
}

static void test_wrong_values(void **state)
{
    (void)state;
    expect_refused(changed("\"n_steps\":2", "\"n_steps\":2.5"), MLFF_ERR_FORMAT, "\"n_steps\" is 2.5, expected a whole number");
    expect_refused(changed("\"n_steps\":2", "\"n_steps\":-2"), MLFF_ERR_FORMAT, "\"n_steps\" is -2");
    expect_refused(changed("\"n_steps\":2", "\"n_steps\":\"2\""), MLFF_ERR_FORMAT, "\"n_steps\" is a text, expected a number");
    expect_refused(changed("\"n_steps\":2", "\"n_steps\":1e300"), MLFF_ERR_FORMAT, "expected a whole number");
    expect_refused(changed("\"n_steps\":2", "\"n_steps\":3"), MLFF_ERR_FORMAT, "has 2 values where");
    expect_refused(changed("\"n_atoms\":64", "\"n_atoms\":1e12"), MLFF_ERR_FORMAT, "\"n_atoms\"");
    expect_refused(changed("[1.0,3.0]", "[1.0,null]"), MLFF_ERR_FORMAT, "\"latencies_ms\"[1] is not a finite number");
    expect_refused(changed("[1.0,3.0]", "[1.0,1e999]"), MLFF_ERR_FORMAT, "\"latencies_ms\"[1]");
    expect_refused(changed("[1.0,3.0]", "[1.0,-3.0]"), MLFF_ERR_FORMAT, "\"latencies_ms\"[1]");
    expect_refused(changed("[1.0,3.0]", "[1.0,[3.0]]"), MLFF_ERR_FORMAT, "\"latencies_ms\"[1]");
    expect_refused(changed("[1.0,3.0]", "{}"), MLFF_ERR_FORMAT, "\"latencies_ms\" is an object, expected an array");
    expect_refused(changed("[1.0,3.0]", "[1.0,NaN]"), MLFF_ERR_FORMAT, "NaN and Infinity are not JSON");
    expect_refused(changed("\"mean_latency_ms\":2.0", "\"mean_latency_ms\":NaN"), MLFF_ERR_FORMAT,
                   "NaN and Infinity are not JSON");
    expect_refused(changed("\"mean_latency_ms\":2.0", "\"mean_latency_ms\":null"), MLFF_ERR_FORMAT,
                   "\"mean_latency_ms\" is null");
    expect_refused(changed("\"mean_latency_ms\":2.0", "\"mean_latency_ms\":-1"), MLFF_ERR_FORMAT, "cannot be negative");
    expect_refused(changed("\"device\":\"cuda\"", "\"device\":7"), MLFF_ERR_FORMAT, "\"device\" is a number, expected a text");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"schema_version\":2"), MLFF_ERR_FORMAT, "newer mlff");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"partial\":\"no\""), MLFF_ERR_FORMAT, "\"partial\" is a text");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"stages\":{}"), MLFF_ERR_FORMAT, "\"stages\" is an object");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"stages\":[7]"), MLFF_ERR_FORMAT, "\"stages[0].name\" is missing");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"stages\":[{\"name\":\"a\",\"mean_ms\":true}]"), MLFF_ERR_FORMAT,
                   "\"stages[0].mean_ms\" is true or false");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"latencies_every\":0"), MLFF_ERR_FORMAT, "\"latencies_every\"");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"memory_ledgers\":[{}]"), MLFF_ERR_FORMAT,
                   "memory_ledgers[0].name");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"counters\":[]"), MLFF_ERR_FORMAT, "\"counters\" is an array");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"tail\":[]"), MLFF_ERR_FORMAT, "\"tail\" is an array");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"tail\":{\"causes\":[7]}"), MLFF_ERR_FORMAT,
                   "\"tail.causes[0].cause\" is missing");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"tail\":{\"causes\":[{\"cause\":\"rebuild\",\"n_steps\":0}]}"),
                   MLFF_ERR_FORMAT, "\"tail.causes[0].n_steps\" is 0");
    expect_refused(changed("\"notes\":\"\"",
                           "\"notes\":\"\",\"tail\":{\"causes\":[{\"cause\":\"rebuild\",\"n_steps\":1,\"excess_ms\":1e308},"
                           "{\"cause\":\"unknown\",\"n_steps\":1,\"excess_ms\":1e308}]}"),
                   MLFF_ERR_FORMAT, "larger than times can be");
    expect_refused(changed("\"notes\":\"\"", "\"notes\":\"\",\"stages\":[{\"name\":\"a\",\"mean_ms\":1,\"blocks_ms\":[null]}]"),
                   MLFF_ERR_FORMAT, "\"blocks_ms\"[0] is not a finite number");
}

// What a newer or another program adds is passed over, at every level: extra keys, a cause and a tag that are not known here,
// parts of another number, keys twice.
static void test_unknown_keys_are_passed_over(void **state)
{
    (void)state;
    mlff_profile *profile;
    char *text;
    assert_ok(parse_text(changed("\"notes\":\"\"",
                                 "\"notes\":\"\",\"notes\":\"again\",\"color\":{\"a\":[{}]},"
                                 "\"slowest_steps\":[{\"step\":1,\"latency_ms\":3,\"seen\":[\"comet\",7],\"mood\":null}],"
                                 "\"tail\":{\"threshold_ms\":2,\"median_ms\":2,\"causes\":[{\"cause\":\"comet\",\"n_steps\":1,"
                                 "\"excess_ms\":1,\"tale\":0}]},"
                                 "\"stages\":[{\"name\":\"a\",\"mean_ms\":1,\"blocks_ms\":[1,2,3],\"extra\":[[[]]]}]"),
                         &profile));
    assert_int_equal(profile->tail.n_by_cause[UNKNOWN_CAUSE], 1);
    assert_int_equal(profile->stages[0].n_blocks, 0);
    assert_int_equal(profile->slowest[0].tags, 0);
    assert_ok(mlff_profile_text(profile, 100, &text));
    assert_non_null(strstr(text, "unknown"));
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

// Files of earlier builds have advice that says by what a stage is bound, measured or not. What the numbers show is said in its place; a
// callable's own text stays.
static void test_unmeasured_bounds_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *advice, *bound_ms, *told;
    } cases[] = {
        {"the sum over pairs of products of features, bound by memory traffic per pair. A smaller cutoff costs less", "0",
         "(1 ms): the sum over pairs of products of features. A smaller cutoff"},
        {"the sum over pairs of products of features, bound by memory traffic per pair. A smaller cutoff costs less", "0.9",
         "(1 ms), bound by arithmetic (90 % of the measured limit): the sum over pairs of products of features. A smaller"},
        {"matrix products for each edge, bound by arithmetic: 95 % of a step. Its cost is proportional to the number of edges",
         "0.2", "(1 ms), at 20 % of the measured limit of arithmetic: matrix products for each edge. Its cost"},
        {"means over systems and small networks, bound by arithmetic", "0",
         "(1 ms): means over systems and small networks. Upper"},
        {"a loop of my own, bound by memory. Unroll it", "0", "(1 ms): a loop of my own, bound by memory. Unroll it"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char stages[600];
        mlff_profile *profile;
        snprintf(stages, sizeof stages,
                 "\"notes\":\"\",\"stages\":[{\"name\":\"message\",\"phase\":\"forward\",\"layer\":-1,\"mean_ms\":1,\"median_"
                 "ms\":1,\"bound_"
                 "ms\":%s,"
                 "\"advice\":\"%s\"},{\"name\":\"rest\",\"mean_ms\":1,\"median_ms\":1}]",
                 cases[k].bound_ms, cases[k].advice);
        assert_ok(parse_text(changed("\"notes\":\"\"", stages), &profile));
        int n;
        const char *const *texts = mlff_profile_recommendations(profile, &n);
        assert_true(n > 0);
        if (!synthetic_recommended(profile, cases[k].told)) fail_msg("case %zu: no \"%s\" in \"%s\"", k, cases[k].told, texts[0]);
        mlff_profile_destroy(profile);
    }
}

// A report of ours, with all that is in one, cut at some 500 places: an error each time, and never a crash.
static void test_cut_report(void **state)
{
    (void)state;
    mlff_profile *profile = planted_profile(120, NULL), *none = NULL;
    char *text = json_of(profile);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] != '}') length--; // without the line's end
    for (size_t n = 0; n < length; n += 1 + length / 500) {
        char *cut = malloc(n + 1); // of its own, so that a sanitizer sees a read past the end
        assert_non_null(cut);
        memcpy(cut, text, n);
        cut[n] = 0;
        if (profile_parse("report.json", cut, n, &none) == MLFF_OK || none) fail_msg("cut after %zu bytes is taken for whole", n);
        free(cut);
    }
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

static void test_wrong_files(void **state)
{
    (void)state;
    char *deep = malloc(200001);
    expect_refused("", MLFF_ERR_FORMAT, "the JSON ends in the middle");
    expect_refused("[]", MLFF_ERR_FORMAT, "holds an array, expected the object of a profile");
    expect_refused("17", MLFF_ERR_FORMAT, "holds a number");
    expect_refused("{}", MLFF_ERR_FORMAT, "key \"name\" is missing");
    expect_refused("{\"runs\":7}", MLFF_ERR_FORMAT, "\"runs\" is a number");
    expect_refused("{\"runs\":[]}", MLFF_ERR_FORMAT, "\"runs\" is empty");
    expect_refused("{\"runs\":[3]}", MLFF_ERR_FORMAT, "\"runs\"[0] is a number");
    expect_refused("{\n\n!}", MLFF_ERR_FORMAT, "report.json:3: not JSON at \"");
    expect_refused("{} {}", MLFF_ERR_FORMAT, "not JSON");
    memset(deep, '[', 200000); // deep nesting must not use up the stack
    deep[200000] = 0;
    expect_refused(deep, MLFF_ERR_FORMAT, "report.json:1");
    free(deep);

    // Cut at every byte: an error each time, but for the last, and never a crash.
    size_t length = strlen(minimal);
    for (size_t n = 0; n < length; n++) {
        mlff_profile *profile = NULL;
        char *cut = malloc(n + 1); // of its own, so that a sanitizer sees a read past the end
        memcpy(cut, minimal, n);
        cut[n] = 0;
        mlff_status status = profile_parse("report.json", cut, n, &profile);
        if (status == MLFF_OK || profile) fail_msg("cut after %zu bytes is taken for whole", n);
        free(cut);
    }
    mlff_profile *none = NULL;
    char zeros[8] = "{\"a\":0";
    assert_int_equal(profile_parse("report.json", zeros, 8, &none), MLFF_ERR_FORMAT);

    size_t bytes = 9000000;
    char *many = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) many[i] = i == 0 ? '[' : i % 2 ? '1' : ',';
    many[bytes] = 0;
    expect_refused(many, MLFF_ERR_LIMIT, "more than 4000000 values");
    free(many);
}

// ---- text ----------------------------------------------------------------------------------------

static int widest_line(const char *text)
{
    int widest = 0, columns = 0;
    for (; *text; text++) {
        columns = *text == '\n' ? 0 : columns + (((unsigned char)*text & 0xC0) != 0x80);
        if (columns > widest) widest = columns;
    }
    return widest;
}

static void test_text(void **state)
{
    (void)state;
    mlff_profile *profile = planted_profile(300, NULL);
    char *text;
    const int widths[] = {0, 60, 80, 100, 133, 200};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        assert_ok(mlff_profile_text(profile, widths[i], &text));
        int expected = widths[i] ? widths[i] : 100;
        if (widest_line(text) > expected) fail_msg("width %d: a line of %d columns", expected, widest_line(text));
        mlff_text_free(text);
    }
    assert_ok(mlff_profile_text(profile, 100, &text));
    const char *const parts[] = {"ns/day",   "µs/atom", "steps/s", "forward/message/0", "unattributed",    "P99",
                                 "✓",        "▁",       "█",       "What was seen",     "includes filter", "neighbors",
                                 "resident", "heap",    "step "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("the report lacks \"%s\":\n%s", parts[i], text);
    assert_null(strstr(text, "UNTRAINED"));
    assert_null(strstr(text, "nan"));
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

static void test_text_warns_first(void **state)
{
    (void)state;
    mlff_profile *profile;
    char *text;
    assert_ok(parse_text(changed("\"notes\":\"\"", "\"notes\":\"Untrained\",\"partial\":true"), &profile));
    assert_ok(mlff_profile_text(profile, 80, &text));
    assert_int_equal(strncmp(text, "UNTRAINED weights", 17), 0);
    assert_non_null(strstr(text, "PARTIAL"));
    mlff_text_free(text);
    mlff_profile_destroy(profile);

    // A report from elsewhere cannot drive the terminal.
    assert_ok(parse_text(changed("\"name\":\"x\"", "\"name\":\"a\\u001b[2Jb\\u0007\""), &profile));
    assert_ok(mlff_profile_text(profile, 80, &text));
    assert_null(strchr(text, 0x1b));
    assert_null(strchr(text, 0x07));
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

// Bytes that are no UTF-8, in names of a caller, give JSON that any reader takes.
static void test_bad_bytes_and_locale(void **state)
{
    (void)state;
    mlff_profile *profile = planted_profile(10, "bad \xff\xc3(\xed\xa0\x80 bytes"), *again;
    char *text = json_of(profile);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) assert_true(*at != 0xff && *at != 0xed);
    assert_ok(parse_text(text, &again));
    mlff_profile_destroy(again);
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        char *elsewhere = json_of(profile);
        assert_string_equal(text, elsewhere);
        mlff_text_free(elsewhere);
        setlocale(LC_NUMERIC, "C");
    } else {
        printf("skipped: no locale with a decimal comma is installed\n");
    }
    mlff_text_free(text);
    mlff_profile_destroy(profile);
}

// ---- the fuzzer's corpus -------------------------------------------------------------------------

#include "fuzz/fuzz_report.c"

// Whole, cut short, and with single bytes changed (the seed is the file's place): no crash and nothing lost.
static void test_corpus(void **state)
{
    (void)state;
    static const char *const names[] = {"contract-good", "large-numbers", "native-good", "nested",
                                        "not-finite",    "runs-good",     "tail-good",   "wrong-types"};
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        char path[128], *bytes;
        size_t length;
        snprintf(path, sizeof path, "tests/fuzz/corpus/report/%s", names[f]);
        assert_ok(base_read_file(path, 1 << 20, &bytes, &length));
        int64_t held = base_allocated_bytes();
        mlff_profile *profile = NULL;
        bool good = profile_parse(path, bytes, length, &profile) == MLFF_OK;
        if (good != (strstr(path, "-good") || strstr(path, "large")))
            fail_msg("%s: %s", path, good ? "accepted" : mlff_last_error());
        mlff_profile_destroy(profile);
        for (uint64_t i = 0; i < 200; i++) {
            size_t at = (size_t)(base_random_uniform(f, 1, i) * (double)length);
            char kept = bytes[at];
            LLVMFuzzerTestOneInput((const uint8_t *)bytes, at);
            bytes[at] = (char)(base_random_uniform(f, 2, i) * 256);
            LLVMFuzzerTestOneInput((const uint8_t *)bytes, length);
            bytes[at] = kept;
        }
        if (base_allocated_bytes() != held) fail_msg("%s: %lld bytes are lost", path, (long long)(base_allocated_bytes() - held));
        base_free(bytes);
    }
}

// What bindings ask for beside the report: hotspots at a threshold of theirs, sizes of structs, memory now.
static void test_for_bindings(void **state)
{
    (void)state;
    char *text = NULL;
    mlff_profile *profile = planted_profile(50, NULL);
    const double thresholds[] = {0.0, 25.0, 100.0};
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        assert_ok(mlff_profile_hotspots_json(profile, thresholds[i], &text));
        cJSON *root = cJSON_Parse(text), *item;
        assert_non_null(root);
        assert_near(cJSON_GetObjectItem(root, "threshold_pct")->valuedouble, thresholds[i], 0);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(root, "components"))
            assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(item, "is_hotspot")),
                             cJSON_GetObjectItem(item, "percentage")->valuedouble > thresholds[i]);
        cJSON_Delete(root);
        mlff_text_free(text);
    }
    assert_int_equal(mlff_profile_hotspots_json(profile, -1.0, &text), MLFF_ERR_USAGE);
    assert_int_equal(mlff_profile_hotspots_json(profile, NAN, &text), MLFF_ERR_USAGE);
    assert_int_equal(mlff_profile_hotspots_json(NULL, 10.0, &text), MLFF_ERR_USAGE);
    mlff_profile_destroy(profile);

    assert_int_equal(mlff_profile_abi_size("mlff_callable"), sizeof(mlff_callable));
    assert_int_equal(mlff_profile_abi_size("mlff_nothing"), 0);
    mlff_process_memory memory;
    mlff_process_memory_get(&memory);
    assert_true(memory.resident_bytes > 1 << 16);
    assert_true(memory.peak_bytes > 1 << 16);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_and_values),
        cmocka_unit_test(test_for_bindings),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_numbers_without_meaning),
        cmocka_unit_test(test_long_run_says_it_is_thinned),
        cmocka_unit_test(test_contract_alone_is_enough),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_unmeasured_bounds_are_left_out),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_unknown_keys_are_passed_over),
        cmocka_unit_test(test_cut_report),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_warns_first),
        cmocka_unit_test(test_bad_bytes_and_locale),
        cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
