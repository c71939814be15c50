// SPDX-License-Identifier: MIT
// Purpose: the page of a report holds what its files say as text only: hostile names, notes and keys become no markup and no
// script, and the charts' data is JSON with the numbers of the profile.
#include <cjson/cJSON.h>

#include "profile/profile.h"
#include "profile/report/html/page.h"
#include "unit/near.h"

#define EVIL "</script><img src=x onerror=alert(1)>\\\"'&<!--\\u0000]]>"
#define EVIL_C "</script><img src=x onerror=alert(1)>"

static const char hostile[] =
    "{\"runs\":[{\"name\":\"" EVIL "\",\"model_name\":\"" EVIL "\",\"n_steps\":3,\"device\":\"" EVIL
    "\",\"latencies_ms\":[1.0,3.0,2.0],\"mean_latency_ms\":2.0,\"median_latency_ms\":2.0,\"std_latency_ms\":1.0,"
    "\"min_latency_ms\":1.0,\"max_latency_ms\":3.0,\"p95_latency_ms\":2.9,\"p99_latency_ms\":2.98,\"energy_time_ms\":0.5,"
    "\"forces_time_ms\":1.4,\"stress_time_ms\":null,\"memory_initial_gb\":1.0,\"memory_final_gb\":1.5,\"memory_peak_gb\":1.5,"
    "\"memory_per_step_gb\":[1.0,1.5],\"n_atoms\":64,\"system_size\":\"" EVIL "\",\"total_time_s\":0.006,"
    "\"steps_per_second\":500,\"timestamp\":\"" EVIL "\",\"notes\":\"" EVIL "\",\"trajectory\":\"" EVIL "\","
    "\"memory_ledgers\":[{\"name\":\"" EVIL "\",\"initial_bytes\":1,\"final_bytes\":2,\"peak_bytes\":2}],"
    "\"stages_measured\":true,\"stages\":[{\"name\":\"" EVIL "\",\"phase\":\"" EVIL "\",\"includes\":\"" EVIL
    "\",\"mean_ms\":1.0,\"in_median_step_ms\":1.0,\"in_slowest_step_ms\":2.5}],"
    "\"median_step\":{\"step\":2,\"time_ms\":2.0},\"slowest_step\":{\"step\":1,\"time_ms\":3.0},"
    "\"environment\":{\"" EVIL "\":\"" EVIL "\"}}]}";

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static char *page_of(const char *json, int *n_out)
{
    // cJSON cuts a text at \u0000, so that key and value stand in the file without it.
    char *copy = strdup(json), *text = NULL;
    for (char *at; (at = strstr(copy, "\\u0000"));) memmove(at, at + 6, strlen(at + 6) + 1);
    mlff_profile **profiles;
    assert_ok(profile_parse_runs("hostile.json", copy, strlen(copy), &profiles, n_out));
    assert_ok(mlff_profile_html((const mlff_profile *const *)profiles, *n_out, NULL, &text));
    mlff_profile_destroy_runs(profiles, *n_out);
    free(copy);
    return text;
}

// The page without its embedded scripts and style, which are ours.
static char *markup_of(const char *page)
{
    char *markup = strdup(page);
    const char *const own[] = {page_style, page_script, page_chart_library};
    for (int i = 0; i < 3; i++) {
        char *at = own[i][0] ? strstr(markup, own[i]) : NULL;
        if (own[i][0]) assert_non_null(at);
        if (at) memmove(at, at + strlen(own[i]), strlen(at + strlen(own[i])) + 1);
    }
    return markup;
}

static void test_hostile_texts(void **state)
{
    (void)state;
    int n;
    char *page = page_of(hostile, &n), *markup = markup_of(page);
    assert_int_equal(n, 1);
    assert_null(strstr(markup, EVIL_C));
    assert_null(strstr(markup, "<img"));
    assert_null(strstr(markup, "<!--"));
    assert_int_equal(count(markup, "<script"), 3); // data, library (maybe empty), ours
    assert_int_equal(count(markup, "</script"), 3);
    assert_true(count(markup, "&#60;img src=x onerror=alert(1)&#62;") >= 10); // but it is shown
    assert_int_equal(count(markup, "class=\"icicle\""), 1);
    assert_int_equal(count(markup, "class=\"lane\""), 2);
    assert_int_equal(count(markup, "slowest step (step 1, 3&nbsp;ms)"), 1);
    assert_int_equal(count(markup, "The slowest step takes longer in: "), 1);
    assert_int_equal(count(markup, "http-equiv=\"Content-Security-Policy\""), 1);
    assert_null(strstr(markup, "src=\"http")); // nothing is fetched
    assert_null(strstr(markup, "<link"));
    free(markup);
    mlff_text_free(page);
}

static void test_data_is_json(void **state)
{
    (void)state;
    int n;
    char *page = page_of(hostile, &n);
    const char *begin = strstr(page, "id=\"data\">"), *end;
    assert_non_null(begin);
    begin += strlen("id=\"data\">");
    assert_non_null(end = strstr(begin, "</script>"));
    cJSON *data = cJSON_ParseWithLength(begin, (size_t)(end - begin));
    assert_non_null(data);
    const cJSON *run = cJSON_GetObjectItem(data, "runs")->child;
    const cJSON *latency = cJSON_GetObjectItem(cJSON_GetObjectItem(run, "latency"), "most"), *bar;
    assert_int_equal(cJSON_GetArraySize(latency), 3);
    assert_near(cJSON_GetObjectItem(cJSON_GetArrayItem(latency, 1), "y")->valuedouble, 3.0, 0);
    double steps = 0.0;
    cJSON_ArrayForEach(bar, cJSON_GetObjectItem(cJSON_GetObjectItem(run, "histogram"), "bars")) steps +=
        cJSON_GetObjectItem(bar, "y")->valuedouble;
    assert_near(steps, 3.0, 0); // every step is in a bar
    cJSON_Delete(data);
    mlff_text_free(page);
}

// Of three steps there is no P95: neither the table of runs nor its chart has one.
static void test_percentiles_of_few_steps(void **state)
{
    (void)state;
    mlff_profile *runs[2];
    char *page;
    for (int i = 0; i < 2; i++) {
        assert_ok(profile_new(&runs[i]));
        runs[i]->latency_ms = base_alloc(3, sizeof(double), "steps");
        runs[i]->n_latency = runs[i]->summary.n_steps = 3;
        for (int k = 0; k < 3; k++) runs[i]->latency_ms[k] = 1e-3 * (1 + k);
        assert_ok(mlff_statistics_of(runs[i]->latency_ms, 3, &runs[i]->summary.latency_ms));
        runs[i]->summary.steps_per_second = 5e5;
        assert_ok(profile_derive(runs[i]));
    }
    assert_ok(mlff_profile_html((const mlff_profile *const *)runs, 2, NULL, &page));
    const char *data = strstr(page, "id=\"data\">");
    assert_non_null(data);
    cJSON *root = cJSON_Parse(data + strlen("id=\"data\">"));
    const cJSON *p95 = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "overview"), "p95");
    assert_int_equal(cJSON_GetArraySize(p95), 2);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(p95, 0)));
    assert_int_equal(count(page, "<td>43200</td>"), 2); // ns/day, not in powers of ten
    cJSON_Delete(root);
    mlff_text_free(page);
    for (int i = 0; i < 2; i++) mlff_profile_destroy(runs[i]);
}

// Every twentieth step of B takes ten times as long: its median is that of A, and the page begins with what the mean says.
static void test_headline_of_a_comparison(void **state)
{
    (void)state;
    enum { RUNS = 8, STEPS = 200 };
    mlff_profile *runs[RUNS];
    char *page;
    for (int i = 0; i < RUNS; i++) {
        assert_ok(profile_new(&runs[i]));
        runs[i]->latency_ms = base_alloc(STEPS, sizeof(double), "steps");
        runs[i]->n_latency = runs[i]->summary.n_steps = STEPS;
        for (int k = 0; k < STEPS; k++)
            runs[i]->latency_ms[k] = (1 + 1e-4 * i + 1e-5 * (k % 3)) * (i >= RUNS / 2 && k % 20 == 3 ? 10 : 1);
        assert_ok(mlff_statistics_of(runs[i]->latency_ms, STEPS, &runs[i]->summary.latency_ms));
        assert_ok(profile_derive(runs[i]));
    }
    assert_ok(mlff_profile_html_compared((const mlff_profile *const *)runs, RUNS, RUNS / 2, NULL, &page));
    const char *headline = strstr(page, "<p class=\"verdict bad\">"), *end = headline ? strstr(headline, "</p>") : NULL;
    assert_non_null(end);
    const char *answer = strstr(headline, "SLOWER than");
    if (!answer || answer > end) fail_msg("%.*s", (int)(end - headline), headline);
    mlff_text_free(page);
    for (int i = 0; i < RUNS; i++) mlff_profile_destroy(runs[i]);
}

static void test_charts_or_a_word(void **state)
{
    (void)state;
    int n;
    char *page = page_of(hostile, &n);
    if (page_chart_library[0]) {
        assert_non_null(strstr(page, "Permission is hereby granted")); // its license goes with it
        assert_null(strstr(page, "Without charts"));
    } else {
        assert_non_null(strstr(page, "Without charts"));
    }
    mlff_text_free(page);
}

static void test_runs_of_a_file(void **state)
{
    (void)state;
    mlff_profile **profiles;
    int n;
    static const char *const wrong[] = {"{\"runs\":[]}", "{\"runs\":[1]}", "{\"runs\":{}}", "[1]",
                                        "{\"runs\":[{\"name\":\"a\"}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(profile_parse_runs("x.json", wrong[i], strlen(wrong[i]), &profiles, &n), MLFF_ERR_FORMAT);
    assert_non_null(strstr(mlff_last_error(), "runs[0].model_name"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_data_is_json),
        cmocka_unit_test(test_headline_of_a_comparison),
        cmocka_unit_test(test_percentiles_of_few_steps),
        cmocka_unit_test(test_charts_or_a_word),
        cmocka_unit_test(test_runs_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
