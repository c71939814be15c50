// SPDX-License-Identifier: MIT
// Purpose: energy, clocks and memory planted in a fake NVML and in powercap files come out of a run as planted: joules a step
// with an interval, a clock drop as the cause of slow steps, ledgers of the driver; what cannot be read is said.
#include <dlfcn.h>
#include <sys/stat.h>

#include "in_child.h"
#include "profile/sensors/energy.h"
#include "synthetic.h"
#include "synthetic_clock.h"

typedef struct planted { // of fake_nvml.c
    unsigned long long millijoules, used, process_used, reasons;
    unsigned milliwatts, sm_mhz, memory_mhz, celsius;
} planted;

static planted *gpu;
static const char *(*asked_for)(void);

static void use_fake(void)
{
    static char path[1200];
    char own[1024];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = 0;
    *strrchr(own, '/') = 0;
    snprintf(path, sizeof path, "%s/../lib/libfake_nvml.so", own);
    void *handle = dlopen(path, RTLD_NOW);
    assert_non_null(handle);
    planted *(*now)(void);
    void *symbols[] = {dlsym(handle, "fake_nvml_now"), dlsym(handle, "fake_nvml_asked_for")};
    memcpy(&now, &symbols[0], sizeof now);
    memcpy(&asked_for, &symbols[1], sizeof asked_for);
    gpu = now();
    *gpu = (planted){
        .used = 3ull << 30, .process_used = 1ull << 30, .milliwatts = 400000, .sm_mhz = 1980, .memory_mhz = 2619, .celsius = 40};
    setenv("MLFF_NVML", path, 1);
}

// A force field on a GPU: each step takes 1 ms and `millijoules`; steps from slow_from to slow_to, at a low clock, 2 ms.
typedef struct field {
    int64_t n_calls, slow_from, slow_to, resets_at, hides_at;
    unsigned millijoules;
} field;

static mlff_status field_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                              double *stress)
{
    field *f = context;
    (void)frame, (void)wanted, (void)forces, (void)stress;
    bool slow = f->n_calls >= f->slow_from && f->n_calls < f->slow_to;
    gpu->sm_mhz = slow ? 1200 : 1980;
    gpu->reasons = slow ? POWER_THERMAL : 0;
    gpu->celsius = slow ? 88 : 40;
    gpu->millijoules += f->millijoules;
    if (++f->n_calls == f->resets_at) gpu->millijoules = 5;        // the driver was loaded again
    if (f->n_calls == f->hides_at) gpu->process_used = UINT64_MAX; // NVML's "not available"
    synthetic_wait(slow ? 2000 : 1000);
    if (energy) *energy = 0.0;
    return MLFF_OK;
}

static mlff_profile *run_field(field *f, int64_t n_steps)
{
    mlff_callable callable = {.struct_size = sizeof callable,
                              .name = "planted",
                              .device = "cuda:0",
                              .context = f,
                              .properties = MLFF_ENERGY,
                              .step = field_step};
    mlff_trajectory *trajectory = synthetic_thermal(4);
    mlff_profile_options options = synthetic_options(n_steps);
    mlff_profile *profile;
    options.n_warmup = 0;
    options.split = 0;
    options.properties = MLFF_ENERGY;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    mlff_trajectory_destroy(trajectory);
    return profile;
}

static void test_joules(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400}, 1000);
    const energy_report *e = profile->energy;
    assert_string_equal(e->source, "NVML: the whole GPU");
    assert_true(e->n_samples >= 20);
    assert_near(e->joules_per_step, 0.4, 1e-9); // the counter moves with each step
    assert_near(e->joules_low, 0.4, 1e-9);
    assert_near(e->joules_high, 0.4, 1e-9);
    assert_near(e->watts, 400.0, 4.0); // 0.4 J in 1 ms and some readings of the clock
    assert_near(e->sm_mhz, 1980, 0);
    assert_near(e->slowed_share, 0, 0);
    char text[512];
    energy_text(e, text, sizeof text);
    assert_non_null(strstr(text, "400 mJ a step"));
    mlff_profile_destroy(profile);
}

static void test_counter_begins_again(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400, .resets_at = 500}, 1000);
    assert_near(profile->energy->joules_per_step, 0.4, 1e-9); // the stretch with the reset is left out
    mlff_profile_destroy(profile);
}

static void test_counter_stands(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 0}, 50);
    char text[512];
    assert_true(isnan(profile->energy->joules_per_step));
    energy_text(profile->energy, text, sizeof text);
    assert_non_null(strstr(text, "did not move"));
    mlff_profile_destroy(profile);
}

static void test_clock_drop_is_a_cause(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400, .slow_from = 500, .slow_to = 600}, 1000);
    assert_near(profile->energy->sm_mhz_min, 1200, 0);
    assert_true(profile->energy->slowed_share > 0.05 && profile->energy->slowed_share < 0.2);
    assert_int_equal(profile->energy->reasons, POWER_THERMAL);
    int named = 0;
    for (int i = 0; i < profile->n_slowest; i++) named += (profile->slowest[i].tags & TAG_CLOCK) != 0;
    assert_true(named >= profile->n_slowest / 2); // samples are 20 steps apart: the first ones may be missed
    char text[512];
    energy_clock_text(profile->energy, text, sizeof text);
    assert_non_null(strstr(text, "lowered by: temperature (hardware)"));
    mlff_profile_destroy(profile);
}

static void test_ledgers(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400}, 100);
    int found = 0;
    for (int i = 0; i < profile->n_ledgers; i++) {
        const profile_ledger *ledger = &profile->ledgers[i];
        if (strcmp(ledger->name, "GPU process (driver)") == 0) found += ledger->final_bytes == (int64_t)1 << 30;
        if (strcmp(ledger->name, "driver (whole GPU, NVML)") == 0) found += ledger->final_bytes == (int64_t)3 << 30;
    }
    assert_int_equal(found, 2);
    assert_string_equal(asked_for(), "0");
    mlff_profile_destroy(profile);
}

static void test_file_and_back(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400}, 1000), *again;
    char *first, *second, *text;
    assert_ok(mlff_profile_json(profile, &first));
    assert_ok(profile_parse("memory", first, strlen(first), &again));
    assert_ok(mlff_profile_json(again, &second));
    assert_string_equal(strstr(first, "\"energy\": {"), strstr(second, "\"energy\": {"));
    assert_ok(mlff_profile_text(again, 100, &text));
    assert_non_null(strstr(text, "400 mJ a step"));
    mlff_text_free(first);
    mlff_text_free(second);
    mlff_text_free(text);
    mlff_profile_destroy(profile);
    mlff_profile_destroy(again);
}

// At constant power, where steps take ten times as long now and then, the interval holds the joules a step that are printed.
static void test_joules_of_uneven_steps(void **state)
{
    (void)state;
    enum { N = 300 };
    static power_sample samples[N];
    const power_series uneven = {.meter = {.source = "RAPL"}, .open = true, .n = N, .samples = samples};
    energy_report *report;
    for (int i = 0; i < N; i++) {
        samples[i] = (power_sample){.time_ns = 20000000LL * i, .joules = 8.0 * i, .watts = NAN, .sm_mhz = -1, .memory_mhz = -1};
        samples[i].step = i == 0 ? 0 : samples[i - 1].step + (base_random_uniform(5, 1, (uint64_t)i) < 0.5 ? 10 : 100);
    }
    assert_ok(energy_derive(&uneven, &report));
    assert_near(report->joules_per_step, 8.0 * (N - 1) / (double)samples[N - 1].step, 1e-12);
    if (!(report->joules_low < report->joules_per_step && report->joules_per_step < report->joules_high))
        fail_msg("%g J a step, %g to %g", report->joules_per_step, report->joules_low, report->joules_high);
    energy_report_free(report);
}

// The driver stops telling the memory of the process: the report has what was known, and can be read.
static void test_memory_that_is_no_longer_told(void **state)
{
    (void)state;
    mlff_profile *profile = run_field(&(field){.millijoules = 400, .hides_at = 100}, 200), *again;
    gpu->process_used = 1ull << 30;
    char *text;
    assert_ok(mlff_profile_json(profile, &text));
    assert_ok(profile_parse("memory", text, strlen(text), &again));
    int found = 0;
    for (int i = 0; i < again->n_ledgers; i++)
        if (strcmp(again->ledgers[i].name, "GPU process (driver)") == 0)
            found += again->ledgers[i].final_bytes == (int64_t)1 << 30;
    assert_int_equal(found, 1);
    mlff_text_free(text);
    mlff_profile_destroy(profile);
    mlff_profile_destroy(again);
}

// CUDA's numbers are of the GPUs that CUDA_VISIBLE_DEVICES leaves.
static void test_visible_devices(void **state)
{
    (void)state;
    power_meter meter;
    setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5a", 1);
    assert_ok(power_open("cuda:0", "", &meter));
    assert_string_equal(asked_for(), "3");
    assert_ok(power_open("cuda:1", "", &meter));
    assert_string_equal(asked_for(), "GPU-5a");
    assert_ok(power_open("cuda:1", "0000:18:00.0", &meter));
    assert_string_equal(asked_for(), "0000:18:00.0");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void write_text(const char *folder, const char *file, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

// Two packages; the second one's counter comes to its end and begins again. The platform's counter has both in it, and is left out.
static void test_rapl(void **state)
{
    (void)state;
    char root[] = "/tmp/mlff_powercap_XXXXXX", zero[64], one[64], two[64];
    power_meter meter;
    power_sample sample = {0};
    assert_non_null(mkdtemp(root));
    snprintf(zero, sizeof zero, "%s/intel-rapl:0", root);
    snprintf(one, sizeof one, "%s/intel-rapl:1", root);
    snprintf(two, sizeof two, "%s/intel-rapl:2", root);
    setenv("MLFF_POWERCAP", root, 1);
    assert_int_equal(power_open("cpu", "", &meter), MLFF_ERR_DEVICE);
    assert_non_null(strstr(mlff_last_error(), "cannot be read"));
    mkdir(zero, 0700);
    mkdir(one, 0700);
    mkdir(two, 0700);
    write_text(zero, "name", "package-0\n");
    write_text(two, "name", "psys\n");
    write_text(two, "energy_uj", "20000000\n");
    write_text(zero, "energy_uj", "1000000\n");
    write_text(zero, "max_energy_range_uj", "262143328850\n");
    write_text(one, "energy_uj", "9000000\n");
    write_text(one, "max_energy_range_uj", "10000000\n");
    assert_ok(power_open("cpu", "", &meter));
    power_read(&meter, &sample);
    assert_near(sample.joules, 0.0, 0.0);
    write_text(zero, "energy_uj", "3000000\n");
    write_text(one, "energy_uj", "500000\n");
    write_text(two, "energy_uj", "25000000\n");
    power_read(&meter, &sample);
    assert_near(sample.joules, 2.0 + 1.5, 1e-9);
    power_close(&meter);
    unsetenv("MLFF_POWERCAP");
    static const char *const files[] = {"name", "energy_uj", "max_energy_range_uj"};
    const char *const folders[] = {zero, one, two};
    for (int i = 0; i < 9; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folders[i / 3], files[i % 3]);
        remove(path);
    }
    for (int i = 0; i < 3; i++) rmdir(folders[i]);
    rmdir(root);
}

// Noise of an autoregression with a correlation over `length` values, with `white` times as much that depends on nothing, around 10.
static void plant(double *values, int n, double length, double white, uint64_t trial)
{
    const double correlation = length > 0.0 ? exp(-1.0 / length) : 0.0, fresh = sqrt(1.0 - correlation * correlation);
    double x = base_random_normal(3, trial, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        x = correlation * x + fresh * base_random_normal(3, trial, (uint64_t)i);
        values[i] = 10.0 + x + white * base_random_normal(4, trial, (uint64_t)i);
    }
}

// The stated 95 % against planted means. Blocks that were taken for independent held them in 77 % of the series with a correlation over 20 of
// 400 values, in 46 % with 80. Without correlation the interval is not much wider than Student's, 0.209 of 20 blocks of 20 values.
static void test_mean_interval(void **state)
{
    (void)state;
    enum { MOST = 2000, TRIALS = 400 };
    static const struct {
        int n;
        double length, white;
        int least; // of 400 trials, whose standard deviation is 4
        double widest;
    } cases[] = {{400, 0, 0, 380, 1.5 * 0.209}, {400, 4.5, 0, 380, INFINITY}, {2000, 20, 0, 380, INFINITY},
                 {400, 20, 0, 372, INFINITY},   {400, 80, 0, 356, INFINITY},  {2000, 200, 1, 364, INFINITY},
                 {100, 10, 1, 356, INFINITY},   {20, 0, 0, 388, INFINITY}};
    static double values[MOST];
    double low, high;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int held = 0;
        double width = 0.0;
        for (int trial = 0; trial < TRIALS; trial++) {
            plant(values, cases[c].n, cases[c].length, cases[c].white, 1000 * c + (uint64_t)trial);
            mean_interval(values, cases[c].n, &low, &high);
            held += low <= 10.0 && 10.0 <= high;
            width += (high - low) / TRIALS;
        }
        if (held < cases[c].least || !(width <= cases[c].widest))
            fail_msg(
                "seeds 3, 4: the interval at 95 %% of %d values with a correlation over %g held the mean in %d of %d trials; its "
                "width is %g",
                cases[c].n, cases[c].length, held, TRIALS, width);
    }
    mean_interval(values, 11, &low, &high);
    assert_true(isnan(low) && isnan(high));
    for (int i = 0; i < 40; i++) values[i] = 3.0;
    mean_interval(values, 40, &low, &high);
    assert_true(low == 3.0 && high == 3.0);
}

static void say_energy(const void *context, char *text, size_t text_bytes)
{
    const char *misbehaviour = context;
    setenv("FAKE_NVML", misbehaviour, 1);
    if (!*misbehaviour) setenv("MLFF_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    energy_text(run_field(&(field){.millijoules = 400}, 20)->energy, text, text_bytes);
}

static void refused(const char *misbehaviour, const char *word)
{
    in_child(say_energy, misbehaviour, word);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("", "NVML cannot be opened");
    refused("sleeps", "Driver Not Loaded");
    refused("blind", "does not find cuda:0");
    refused("bare", "did not move");
}

// Every 26th step takes twice as long: of every second step these would be twice as many, or none. The intervals are of all steps.
static void test_interval_of_a_thinned_run(void **state)
{
    (void)state;
    synthetic s = {.energy_us = 1, .rebuild_us = 1, .rebuild_every = 26};
    mlff_callable callable = synthetic_black_box(&s);
    mlff_trajectory *trajectory = synthetic_thermal(2);
    mlff_profile_options options = synthetic_options(110000);
    mlff_profile *profile;
    double low, high;
    options.split = 0;
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));
    assert_true(profile->latency_every > 1);
    ns_per_day_interval(profile, &low, &high);
    assert_true(low <= profile->summary.ns_per_day && profile->summary.ns_per_day <= high);
    assert_near(profile->bounds[1].value, profile->summary.latency_ms.p95, 0.02 * profile->summary.latency_ms.p95);
    mlff_profile_destroy(profile);
    mlff_trajectory_destroy(trajectory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_joules),
                                       cmocka_unit_test(test_counter_begins_again),
                                       cmocka_unit_test(test_counter_stands),
                                       cmocka_unit_test(test_clock_drop_is_a_cause),
                                       cmocka_unit_test(test_ledgers),
                                       cmocka_unit_test(test_file_and_back),
                                       cmocka_unit_test(test_visible_devices),
                                       cmocka_unit_test(test_memory_that_is_no_longer_told),
                                       cmocka_unit_test(test_joules_of_uneven_steps),
                                       cmocka_unit_test(test_rapl),
                                       cmocka_unit_test(test_mean_interval),
                                       cmocka_unit_test(test_interval_of_a_thinned_run)};
    use_fake();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
