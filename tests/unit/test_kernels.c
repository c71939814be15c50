// SPDX-License-Identifier: MIT
// Purpose: kernels that a planted force field "runs" come back from a fake CUPTI by name, time and stage, the books of a
// watched step close, what is lost is counted, and a CUPTI that cannot be used is refused with a word.
#include <cjson/cJSON.h>
#include <dlfcn.h>

#include "in_child.h"
#include "profile/sensors/gpu_kernels.h"
#include "synthetic.h"
#include "synthetic_clock.h"

enum { KERNEL = 10, COPY = 1, SYNCHRONIZATION = 38, STREAM_SYNCHRONIZE = 3, EVENT_ON_DEVICE = 2 };

static void (*plant)(int kind, const char *name, int detail, uint32_t stream, int64_t start_ns, int64_t end_ns);
static void (*drop)(size_t n);
static int (*listens)(void), (*detached)(void);

// Beside the program's folder, in lib/.
static const char *fake_path(const char *name)
{
    static char path[1200];
    char own[1024];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = 0;
    *strrchr(own, '/') = 0;
    snprintf(path, sizeof path, "%s/../lib/%s", own, name);
    return path;
}

static void use_fake(void)
{
    void (*clock_set)(int64_t(*)(void));
    void *handle = dlopen(fake_path("libfake_cupti.so"), RTLD_NOW);
    assert_non_null(handle);
    void *symbols[] = {dlsym(handle, "fake_cupti_record"), dlsym(handle, "fake_cupti_drop"), dlsym(handle, "fake_cupti_listens"),
                       dlsym(handle, "fake_cupti_clock"), dlsym(handle, "fake_cupti_detached")};
    memcpy(&plant, &symbols[0], sizeof plant);
    memcpy(&drop, &symbols[1], sizeof drop);
    memcpy(&listens, &symbols[2], sizeof listens);
    memcpy(&clock_set, &symbols[3], sizeof clock_set);
    memcpy(&detached, &symbols[4], sizeof detached);
    clock_set(mlff_clock_ns);
    setenv("MLFF_CUPTI", fake_path("libfake_cupti.so"), 1);
}

// One step of 200 µs: 20 of host work, then on the device (µs from there)
//   0–10 copy, 10–40 message (layer 0), 38–70 message (layer 1, begins early), 75–100 a matrix product, stream 7;
// the host waits from 30 to 130, and works for 30 more.
static mlff_status planted_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                double *stress)
{
    double *stage_ns = context;
    (void)frame, (void)stress;
    synthetic_wait(20);
    int64_t t = mlff_clock_ns();
    plant(COPY, NULL, 1, 7, t, t + 10000);
    plant(KERNEL, "_Z14message_kernelILi128ELi0EEv4stepi", 0, 7, t + 10000, t + 40000);
    plant(KERNEL, "_Z14message_kernelILi128ELi0EEv4stepi", 0, 7, t + 38000, t + 70000);
    plant(KERNEL, "ampere_sgemm_128x64_tn", 0, 7, t + 75000, t + 100000);
    plant(SYNCHRONIZATION, NULL, STREAM_SYNCHRONIZE, 0, t + 30000, t + 130000);
    plant(SYNCHRONIZATION, NULL, EVENT_ON_DEVICE, 0, t + 131000, t + 160000);
    synthetic_wait(180);
    stage_ns[0] = 28500;
    stage_ns[1] = 36000;
    synthetic_nothing(frame, wanted, energy, forces);
    return MLFF_OK;
}

static void planted_times(void *context, double *time_ns)
{
    memcpy(time_ns, context, 2 * sizeof *time_ns);
}

// The planted force field knows three kernels; others are shown by their kind.
static const char *planted_stage(void *context, const char *kernel)
{
    (void)context;
    if (strstr(kernel, "prepare_kernel")) return "forward/transfer";
    if (strstr(kernel, "update_last_kernel")) return "forward/update";
    return strstr(kernel, "message_kernel") ? "forward/message" : NULL;
}

static mlff_callable planted(double *stage_ns)
{
    static const mlff_stage stages[] = {{"message", "forward", 0, ""}, {"message", "forward", 1, ""}};
    return (mlff_callable){.struct_size = sizeof(mlff_callable),
                           .name = "planted",
                           .device = "cuda:0",
                           .context = stage_ns,
                           .properties = MLFF_ENERGY | MLFF_FORCES,
                           .step = planted_step,
                           .n_stages = 2,
                           .stages = stages,
                           .kernel_stage = planted_stage,
                           .stage_times = planted_times};
}

static mlff_profile *run_planted(int64_t kernels, const char *trace)
{
    static double stage_ns[2];
    mlff_callable callable = planted(stage_ns);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile;
    options.split = 0;
    options.kernels = kernels;
    options.trace_path = trace;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_trajectory_destroy(trajectory);
    return profile;
}

static const kernel_row *row_named(const kernel_report *report, const char *part)
{
    for (int i = 0; i < report->n_rows; i++)
        if (strstr(report->rows[i].name, part)) return &report->rows[i];
    fail_msg("no kernel is called %s", part);
    return NULL;
}

static void test_names_and_times(void **state)
{
    (void)state;
    int before = detached();
    mlff_profile *profile = run_planted(12, NULL);
    const kernel_report *k = profile->kernels;
    assert_non_null(k);
    assert_int_equal(detached(), before + 1);
    assert_int_equal(listens(), 0); // the place is free again
    assert_int_equal(k->n_steps, 12);
    assert_int_equal(k->cupti_version, 130001);
    assert_int_equal(k->n_rows, 3);
    const kernel_row *message = row_named(k, "message_kernel"), *product = row_named(k, "sgemm"), *copy = row_named(k, "copy");
    assert_string_equal(message->name, "message_kernel<128, 0>"); // as C++ reads it, without arguments
    assert_string_equal(copy->name, "[copy host to device]");
    assert_string_equal(product->stage, "matrix product");
    assert_string_equal(message->stage, "forward/message"); // a stage that this force field has
    // Durations are differences of planted numbers: exact. What two run at once belongs to the first.
    assert_near(message->calls, 2.0, 0.0);
    assert_near(message->sum_us, 62.0, 1e-9);
    assert_near(message->busy_us, 60.0, 1e-9);
    assert_near(product->busy_us, 25.0, 1e-9);
    assert_near(copy->busy_us, 10.0, 1e-9);
    assert_near(k->busy_ms, 0.095, 1e-12);
    assert_near(k->gap_ms, 0.005, 1e-12);
    assert_near(k->kernels_us, 90.0, 1e-9); // the copy before them left out
    assert_near(k->clocks_us, 64.5, 1e-9);
    assert_true(k->rows[0].busy_us >= k->rows[1].busy_us && k->rows[1].busy_us >= k->rows[2].busy_us);
    assert_int_equal(k->n_dropped + k->n_invalid + k->n_left_out, 0);
    mlff_profile_destroy(profile);
}

static void test_books_close(void **state)
{
    (void)state;
    mlff_profile *profile = run_planted(12, NULL);
    step_budget b = budget_of(profile);
    double sum = 0.0;
    for (int i = 0; i < N_BUDGET; i++) sum += isnan(b.ms[i]) ? 0.0 : b.ms[i];
    assert_true(b.traced);
    assert_near(sum, b.step_ms, 1e-12);
    assert_near(b.ms[BUDGET_BUSY], 0.095, 1e-12);
    assert_near(b.ms[BUDGET_GAPS], 0.005, 1e-12);
    assert_near(b.ms[BUDGET_WAITS], 0.030, 1e-4); // 130 less the device's end at 100; the two clocks agree to 0.1 µs here
    assert_near(b.ms[BUDGET_HOST], 0.070, 1e-3);  // 20 before, 50 after; readings of the clock between
    assert_near(b.ms[BUDGET_UNATTRIBUTED], 0.0, 0.01 * b.step_ms);
    assert_true(isnan(b.ms[BUDGET_INTEGRATE])); // no MD
    char text[512];
    budget_text(&b, text, sizeof text);
    assert_non_null(strstr(text, "launch-bound: the GPU works in 47 %")); // 95 of 200 µs
    assert_true(synthetic_recommended(profile, "from about 8."));         // 8 atoms, and 105 µs of rest to 95 of work
    mlff_profile_destroy(profile);
}

static const mlff_stage divided_stages[] = {{"inputs", "host", -1, ""}, {"enqueue", "host", -1, ""},
                                            {"launch", "", -1, ""},     {"message", "forward", 0, ""},
                                            {"wait", "host", -1, ""},   {"results", "host", -1, ""}};

// Without a trace the force field's own stages tell the GPU from the host around it, and the budget closes all the same.
static mlff_status divided_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                double *stress)
{
    (void)context;
    (void)stress;
    synthetic_wait(100);
    synthetic_nothing(frame, wanted, energy, forces);
    return MLFF_OK;
}

static void divided_times(void *context, double *time_ns)
{
    static const double times[] = {5e3, 10e3, 3e3, 40e3, 36e3, 5e3};
    (void)context;
    memcpy(time_ns, times, sizeof times);
}

typedef mlff_status step_function(void *, const mlff_system *, unsigned, double *, double *, double *);

static mlff_callable divided_callable(void *context, step_function *step, void (*times)(void *, double *))
{
    return (mlff_callable){.struct_size = sizeof(mlff_callable),
                           .context = context,
                           .name = "divided",
                           .device = "cuda:0",
                           .properties = MLFF_ENERGY | MLFF_FORCES,
                           .step = step,
                           .n_stages = 6,
                           .stages = divided_stages,
                           .stage_times = times};
}

static void test_budget_of_stages(void **state)
{
    (void)state;
    mlff_callable callable = divided_callable(NULL, divided_step, divided_times);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(40);
    mlff_profile *profile;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    step_budget b = budget_of(profile);
    assert_true(b.divided && !b.traced);
    assert_near(b.ms[BUDGET_HOST], 0.020, 1e-9);
    assert_near(b.ms[BUDGET_GAPS], 0.003, 1e-9);
    assert_near(b.ms[BUDGET_BUSY], 0.040, 1e-9);
    assert_near(b.ms[BUDGET_WAITS], 0.036, 1e-9);
    assert_near(b.ms[BUDGET_UNATTRIBUTED], 0.001, 1e-4); // readings of the clock
    assert_near(budget_busy_share(&b), 0.40, 0.001);
    profile_part parts[PROFILE_PARTS];
    assert_int_equal(profile_parts(profile, parts), 4); // host, launch and wait, forward, unattributed
    assert_true(synthetic_recommended(profile, "launch-bound: the GPU works in 40 %"));
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

// The rows beside the device's work add up to the rest of the step; the integrator and what no clock saw do not end with the launches.
static void test_rest_of_a_budget(void **state)
{
    (void)state;
    char text[512];
    const step_budget b = {.ms = {0.2, 0.1, 0.05, 0.15, 0.3, 0.2}, .step_ms = 1.0, .usual_ms = NAN, .divided = true};
    budget_text(&b, text, sizeof text);
    assert_non_null(strstr(text, "is idle for 800 µs (launch gaps 100 µs, waits 50 µs, host work 150 µs, integrator 300 µs, "
                                 "unattributed 200 µs)"));
    assert_near(budget_launch_gain(&b), 1.0 / 0.7, 1e-12); // 0.2 + 0.3 + 0.2 stay
    const step_budget md = {.ms = {0.2, 0.1, 0.05, 0.65, NAN, 0.001}, .step_ms = 1.001, .usual_ms = 0.9, .traced = true};
    budget_rest_text(&md, text, sizeof text);
    assert_string_equal(text, "launch gaps 100 µs, waits 50 µs, host work 650 µs");
    assert_near(budget_launch_gain(&md), 0.9 / 0.201, 1e-12);
}

// A GPU that other programs use: of three steps two wait for it, 400 µs longer than the third.
typedef struct shared_gpu {
    int64_t n_steps;
    double longer_us;
} shared_gpu;

static bool waits(const shared_gpu *gpu)
{
    return gpu->n_steps % 3 != 0;
}

static mlff_status shared_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                               double *stress)
{
    shared_gpu *gpu = context;
    gpu->n_steps++;
    if (waits(gpu)) synthetic_wait(gpu->longer_us);
    return divided_step(NULL, frame, wanted, energy, forces, stress);
}

static void shared_times(void *context, double *time_ns)
{
    const shared_gpu *gpu = context;
    divided_times(NULL, time_ns);
    if (waits(gpu)) time_ns[4] += 1e3 * gpu->longer_us;
}

static void test_shared_gpu(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        shared_gpu gpu = {.longer_us = shared ? 400 : 0};
        mlff_callable callable = divided_callable(&gpu, shared_step, shared_times);
        mlff_trajectory *trajectory = synthetic_thermal(8);
        mlff_profile_options options = synthetic_options(150);
        mlff_profile *profile;
        char text[512];
        options.split = 0;
        assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
        assert_near(profile->tail.queue_least_ms, 0.039, 1e-6); // launch and wait, in floats
        assert_near(profile->tail.queue_ms, shared ? 0.039 + 0.4 * 2 / 3 : 0.039, 1e-6);
        // The clock is planted, waits for a CPU are not: on a busy machine they forbid a statement.
        if (profile->tail.cpu_wait_share <= 0.05) {
            assert_int_equal(synthetic_recommended(profile, "launch-bound"), !shared);
            assert_int_equal(
                synthetic_recommended(profile, "steps wait for it 305.7 µs on average, a fiftieth of them 39 µs or less"),
                shared);
        }
        profile->tail.cpu_wait_share = 0.0;
        profile->tail.virtual_machine = shared;
        assert_int_equal(tail_gpu_shared(profile, text, sizeof text), shared);
        char *written, read[512]; // a file says the same
        mlff_profile *again;
        assert_ok(mlff_profile_json(profile, &written));
        assert_ok(profile_parse("run.json", written, strlen(written), &again));
        (void)tail_gpu_shared(again, read, sizeof read);
        assert_string_equal(read, text);
        mlff_text_free(written);
        mlff_profile_destroy(again);
        const double unknown[] = {0.5, NAN};
        for (int k = 0; k < 2; k++) {
            profile->tail.cpu_wait_share = unknown[k];
            assert_false(tail_gpu_shared(profile, text, sizeof text));
        }
        mlff_profile_destroy(profile);
        mlff_trajectory_destroy(trajectory);
    }
}

// A planted evaluator's kernels get its stages: each lasts until the next one begins, as its stamps do.
static void test_stages_against_clocks(void **state)
{
    (void)state;
    activity window = {0};
    kernel_report report = {0};
    kernel_step steps[2] = {{.start_ns = 1000000, .end_ns = 1200000},
                            {.start_ns = 1300000, .end_ns = 1500000, .before_ns = 100000}};
    activity_record records[] = {
        {.start_ns = 900000, .end_ns = 910000, .name = 0},   // of a step before the first
        {.start_ns = 1020000, .end_ns = 1030000, .name = 0}, // prepare
        {.start_ns = 1028000, .end_ns = 1050000, .name = 1}, // message, launched early
        {.start_ns = 1052000, .end_ns = 1060000, .name = 2}, // mix
        {.start_ns = 1320000, .end_ns = 1330000, .name = 0}, {.start_ns = 1330000, .end_ns = 1350000, .name = 1},
        {.start_ns = 1350000, .end_ns = 1360000, .name = 2},
    };
    char *names[] = {"prepare_kernel", "message_kernel<128>", "update_last_kernel<shape<128, 1, 1> >"};
    window = (activity){.records = records, .n_records = 7, .names = names, .n_names = 3};
    static const mlff_stage stages[] = {
        {"transfer", "forward", -1, ""}, {"message", "forward", 0, ""}, {"update", "forward", 0, ""}};
    const mlff_callable callable = {.n_stages = 3, .stages = stages, .kernel_stage = planted_stage};
    assert_ok(kernels_analyse(&report, &window, steps, 2, 1, INT64_MAX, &callable));
    assert_int_equal(report.n_stages, 3);
    const double until_next[] = {10.0, 21.0, 9.0}, busy[] = {10.0, 20.0, 9.0};
    static const char *const expected[] = {"forward/transfer", "forward/message", "forward/update"};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(report.stages[i].name, expected[i]);
        assert_near(report.stages[i].until_next_us, until_next[i], 1e-9);
        assert_near(report.stages[i].busy_us, busy[i], 1e-9);
    }
    for (int i = 0; i < report.n_rows; i++) {
        base_free(report.rows[i].name);
        base_free(report.rows[i].stage);
        base_free(report.stages[i].name);
    }
    base_free(report.rows);
    base_free(report.stages);
}

static void test_losses_are_counted(void **state)
{
    (void)state;
    static double stage_ns[2];
    activity window;
    double energy;
    mlff_system *system = synthetic_system(2);
    assert_ok(activity_begin(&window));
    activity second;
    assert_int_equal(activity_begin(&second), MLFF_ERR_USAGE); // one at a time
    assert_ok(planted_step(stage_ns, system, MLFF_ENERGY, &energy, NULL, NULL));
    plant(KERNEL, "lost_times", 0, 7, 0, 0);
    plant(KERNEL, "backwards", 0, 7, 500, 400);
    drop(3);
    assert_ok(activity_end(&window));
    assert_int_equal(window.n_records, 5); // the event that blocks no host is not a wait
    assert_int_equal(window.n_invalid, 2);
    assert_int_equal(window.n_dropped, 3);
    for (size_t i = 1; i < window.n_records; i++) assert_true(window.records[i].start_ns >= window.records[i - 1].start_ns);
    activity_free(&window);
    assert_int_equal(activity_end(&window), MLFF_ERR_USAGE);
    mlff_system_destroy(system);
}

// Of a black box: the copy and the product are run by its energy too, the messages only with forces.
static mlff_status black_box_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                  double *stress)
{
    if (wanted & MLFF_FORCES) return planted_step(context, frame, wanted, energy, forces, stress);
    int64_t t = mlff_clock_ns();
    plant(COPY, NULL, 1, 7, t, t + 10000);
    plant(KERNEL, "ampere_sgemm_128x64_tn", 0, 7, t + 10000, t + 20000);
    synthetic_wait(30);
    *energy = 0.0;
    return MLFF_OK;
}

static void test_phases_of_a_black_box(void **state)
{
    (void)state;
    static double unused[2];
    mlff_callable callable = planted(unused);
    mlff_trajectory *trajectory = synthetic_thermal(8);
    mlff_profile_options options = synthetic_options(20);
    mlff_profile *profile;
    callable.step = black_box_step;
    callable.n_stages = 0;
    options.split = 0;
    options.kernels = 12;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    const kernel_report *k = profile->kernels;
    assert_non_null(k);
    assert_string_equal(row_named(k, "sgemm")->stage, "energy: matrix product");
    assert_string_equal(row_named(k, "copy")->stage, "energy: copy");
    assert_string_equal(row_named(k, "message")->stage, "forces: other");
    assert_near(row_named(k, "sgemm")->busy_us, 25.0, 1e-9); // of the full steps alone
    assert_near(k->busy_ms, 0.095, 1e-12);
    assert_int_equal(k->n_stages, 3);
    mlff_trajectory_destroy(trajectory);
    mlff_profile_destroy(profile);
}

// All of it survives a file, and is in the text and on the page.
static void test_reports(void **state)
{
    (void)state;
    char path[] = "/tmp/mlff_kernels_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    mlff_profile *profile = run_planted(12, path), *again;
    char *first, *second, *text, *page, *trace;
    size_t length;
    assert_ok(mlff_profile_json(profile, &first));
    assert_ok(profile_parse("memory", first, strlen(first), &again));
    assert_ok(mlff_profile_json(again, &second));
    assert_string_equal(strstr(first, "\"gpu_kernels\""), strstr(second, "\"gpu_kernels\""));
    assert_ok(mlff_profile_text(again, 100, &text));
    assert_non_null(strstr(text, "message_kernel<128, 0>"));
    assert_non_null(strstr(text, "launch gaps"));
    assert_non_null(strstr(text, "launch-bound"));
    assert_ok(mlff_profile_html((const mlff_profile *const *)&again, 1, NULL, &page));
    assert_non_null(strstr(page, "message_kernel&#60;128, 0&#62;"));
    assert_ok(base_read_file(path, 1 << 24, &trace, &length));
    cJSON *events = cJSON_Parse(trace);
    assert_non_null(events);
    assert_non_null(strstr(trace, "GPU 0 stream 7"));
    assert_non_null(strstr(trace, "GPU 0 stream 7, overlapping")); // the message that began early
    cJSON_Delete(events);
    char *texts[] = {first, second, text, page};
    for (int i = 0; i < 4; i++) mlff_text_free(texts[i]);
    base_free(trace);
    mlff_profile_destroy(profile);
    mlff_profile_destroy(again);
    remove(path);
}

static void test_hostile_reports(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"gpu_kernels\": 3", "\"gpu_kernels\": {\"n_steps\": \"x\"}",
                                      "\"gpu_kernels\": {\"kernels\": [{}], \"stages\": []}",
                                      "\"gpu_kernels\": {\"kernels\": [{\"name\": \"a\", \"stage\": \"b\", \"busy_us\": 1e300}], "
                                      "\"stages\": []}"};
    mlff_profile *profile = run_planted(0, NULL), *again;
    char *first;
    assert_null(profile->kernels);
    assert_ok(mlff_profile_json(profile, &first));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        base_text text = {0};
        base_text_add(&text, "{%s,%s", bad[i], first + 1);
        assert_int_equal(profile_parse("planted.json", text.text, text.length, &again), MLFF_ERR_FORMAT);
        assert_non_null(strstr(mlff_last_error(), "planted.json: \"gpu_kernels\""));
        base_text_free(&text);
    }
    mlff_text_free(first);
    mlff_profile_destroy(profile);
}

typedef struct misbehaving {
    const char *library, *how;
} misbehaving;

static void say_status(const void *context, char *text, size_t text_bytes)
{
    const misbehaving *m = context;
    activity window;
    setenv("MLFF_CUPTI", m->library, 1);
    setenv("FAKE_CUPTI", m->how, 1);
    mlff_status status = activity_begin(&window);
    if (status == MLFF_OK) status = activity_end(&window);
    snprintf(text, text_bytes, "%s", status == MLFF_OK ? "accepted" : mlff_last_error());
}

static void refused(const char *library, const char *misbehaviour, const char *word)
{
    in_child(say_status, &(misbehaving){library, misbehaviour}, word);
}

static void test_refusals(void **state)
{
    (void)state;
    char whole[1200], cut[1200];
    snprintf(whole, sizeof whole, "%s", fake_path("libfake_cupti.so"));
    snprintf(cut, sizeof cut, "%s", fake_path("libfake_cupti_cut.so"));
    refused("/nowhere/libcupti.so", "", "MLFF_CUPTI");
    refused(cut, "", "no cuptiActivityFlushAll");
    refused(whole, "old", "version 9");
    refused(whole, "new", "version 150000");
    refused(whole, "held", "another profiler");
    refused(whole, "refused", "NVreg_RestrictProfilingToAdminUsers");
    refused(whole, "broken", "CUPTI_ERROR_UNKNOWN");
}

static mlff_status planted_md(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                              double *stress)
{
    for (int i = 0; i < 3 * frame->n_atoms; i++) forces[i] = 0.0;
    return planted_step(context, frame, wanted, energy, NULL, stress);
}

// A production run is looked into now and then, so seldom that it costs no more than 0.2 %; what is seen is the same.
static void test_windows_of_a_run(void **state)
{
    (void)state;
    static double stage_ns[2];
    mlff_callable callable = planted(stage_ns);
    mlff_monitor *monitor;
    mlff_dynamics *dynamics;
    mlff_profile *profile;
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_system *system = synthetic_system(2);
    callable.step = planted_md;
    assert_ok(mlff_system_thermalize(system, 300.0, 1));
    assert_ok(mlff_monitor_create(&callable, system, 0.5, 100, &monitor));
    assert_ok(mlff_monitor_kernels(monitor, 10));
    assert_ok(mlff_dynamics_create(&options, system, mlff_monitor_forces, monitor, &dynamics));
    for (int piece = 0; piece < 220; piece++) assert_ok(mlff_monitor_run(monitor, dynamics, 50)); // 2.2 s of planted time
    assert_ok(mlff_monitor_profile(monitor, "watched now and then", NULL, &profile));
    const kernel_report *k = profile->kernels;
    assert_non_null(k);
    assert_true(k->n_windows >= 1);
    assert_true(k->run_share <= 0.002);
    assert_int_equal(k->n_steps, 10);
    assert_near(row_named(k, "sgemm")->calls, 1.0, 1e-12);
    assert_near(k->busy_ms, 0.095, 1e-12);
    step_budget b = budget_of(profile);
    double sum = 0.0;
    for (int i = 0; i < N_BUDGET; i++) sum += isnan(b.ms[i]) ? 0.0 : b.ms[i];
    assert_near(sum, b.step_ms, 1e-12);
    assert_int_equal(listens(), 0);
    mlff_profile_destroy(profile);
    mlff_dynamics_destroy(dynamics);
    mlff_monitor_destroy(monitor);
    mlff_system_destroy(system);
}

// A run does not fail because its kernels may not be traced.
static void test_without_cupti(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("FAKE_CUPTI", "held", 1);
        mlff_profile *profile = run_planted(5, NULL);
        _exit(profile->kernels || !strstr(profile->notes, "another profiler holds CUPTI"));
    }
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_classes(void **state)
{
    (void)state;
    assert_string_equal(kernel_class("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>"), "matrix product");
    assert_string_equal(kernel_class("at::native::vectorized_elementwise_kernel<4, MulFunctor>"), "elementwise");
    assert_string_equal(kernel_class("at::native::reduce_kernel<512, 1>"), "reduction");
    assert_string_equal(kernel_class("at::native::indexFuncLargeIndex"), "gather, scatter");
    assert_string_equal(kernel_class("message_kernel<128>"), "other");
}

int main(void)
{
    const struct CMUnitTest refusals[] = {cmocka_unit_test(test_refusals)},
                            tests[] = {cmocka_unit_test(test_without_cupti),         cmocka_unit_test(test_names_and_times),
                                       cmocka_unit_test(test_books_close),           cmocka_unit_test(test_shared_gpu),
                                       cmocka_unit_test(test_budget_of_stages),      cmocka_unit_test(test_rest_of_a_budget),
                                       cmocka_unit_test(test_stages_against_clocks), cmocka_unit_test(test_losses_are_counted),
                                       cmocka_unit_test(test_phases_of_a_black_box), cmocka_unit_test(test_reports),
                                       cmocka_unit_test(test_hostile_reports),       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_windows_of_a_run)};
    int failures = cmocka_run_group_tests(refusals, NULL, NULL); // before this process opens a library itself
    use_fake();
    return failures + cmocka_run_group_tests(tests, NULL, NULL);
}
