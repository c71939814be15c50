// SPDX-License-Identifier: MIT
// Purpose: memory that is taken is seen, samples stay bounded, and the leak verdict does not cry wolf.
// The generators of series are those for which "last sample minus first" is known to fail; seeds are fixed here.
#include <sys/stat.h>

#include "measure/measure.h"
#include "unit/near.h"

enum { MB = 1 << 20 };

static void test_process_memory(void **state)
{
    (void)state;
    process_memory before, during, after;
    process_memory_get(&before);
    if (before.resident_bytes < 0) {
        printf("skipped: this system does not tell the resident memory\n");
        return;
    }
    assert_true(before.resident_bytes > MB / 4 && before.peak_bytes > 0);
    char *block = malloc(64 * MB);
    assert_non_null(block);
    memset(block, 1, 64 * MB);
    process_memory_get(&during);
    assert_true(during.resident_bytes - before.resident_bytes > 60 * MB); // pages of others may go meanwhile
    assert_true(during.peak_bytes - before.resident_bytes > 60 * MB);
    if (during.heap_bytes > 0) assert_true(during.heap_bytes - before.heap_bytes >= 64 * MB || !before.heap_bytes);
    assert_int_equal(block[32 * MB], 1);
    free(block);
    process_memory_get(&after);
    assert_true(after.peak_bytes >= during.peak_bytes);
}

// A block that the machine does not have is refused before it is touched: where Linux grants it, it would kill the process.
static void test_more_than_available(void **state)
{
    (void)state;
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (access("/proc/meminfo", R_OK) != 0) {
        printf("skipped: this system does not tell the available memory\n");
        return;
    }
    assert_null(base_alloc((size_t)(0.97 * machine), 1, "a test")); // at least a sixteenth is left to others
    assert_non_null(strstr(mlff_last_error(), "that are available"));
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// A container's limit counts, the least of nested ones; pages of files are not used memory, "max" is no limit.
static void test_container_limit(void **state)
{
    (void)state;
    char root[] = "/tmp/mlff_cgroup_XXXXXX", inner[64], membership[64];
    assert_non_null(mkdtemp(root));
    snprintf(inner, sizeof inner, "%s/outer", root);
    assert_int_equal(mkdir(inner, 0700), 0);
    snprintf(inner, sizeof inner, "%s/outer/inner", root);
    assert_int_equal(mkdir(inner, 0700), 0);
    snprintf(membership, sizeof membership, "%s/membership", root);
    write_text(root, "membership", "1:cpu:/\n0::/outer/inner\n");
    assert_true(base_cgroup_available(membership, root) == SIZE_MAX);
    assert_true(base_cgroup_available("/nonexistent", root) == SIZE_MAX);
    write_text(inner, "memory.max", "1000\n");
    write_text(inner, "memory.current", "700\n");
    write_text(inner, "memory.stat", "anon 400\nfile 300\ninactive_file 200\nactive_file 50\n");
    assert_int_equal(base_cgroup_available(membership, root), 550);
    write_text(inner, "../memory.max", "900\n");
    write_text(inner, "../memory.current", "600\n");
    assert_int_equal(base_cgroup_available(membership, root), 300);
    write_text(inner, "../memory.max", "max\n");
    write_text(inner, "memory.current", "5000\n");
    assert_int_equal(base_cgroup_available(membership, root), 0);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

// The quota of processor time of a group, and of those that hold it, as a service manager or a batch system sets it.
static void test_container_cores(void **state)
{
    (void)state;
    char root[] = "/tmp/mlff_cgroup_XXXXXX", membership[64], command[96];
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof command, "mkdir -p %s/outer/inner %s/cpu/job", root, root);
    assert_int_equal(system(command), 0);
    snprintf(membership, sizeof membership, "%s/membership", root);
    write_text(root, "membership", "1:memory:/job\n0::/outer/inner\n");
    assert_true(isinf(base_cgroup_cores(membership, root)));
    write_text(root, "outer/inner/cpu.max", "max 100000\n");
    assert_true(isinf(base_cgroup_cores(membership, root)));
    write_text(root, "outer/cpu.max", "150000 100000\n");
    assert_true(base_cgroup_cores(membership, root) == 1.5);
    write_text(root, "outer/inner/cpu.max", "50000 100000\n");
    assert_true(base_cgroup_cores(membership, root) == 0.5);
    // Version 1, with two controllers in one place; a container sees its own group as the topmost.
    write_text(root, "membership", "3:cpu,cpuacct:/job\n0::/\n");
    write_text(root, "cpu/job/cpu.cfs_quota_us", "-1\n");
    assert_true(isinf(base_cgroup_cores(membership, root)));
    write_text(root, "cpu/job/cpu.cfs_quota_us", "600000\n");
    write_text(root, "cpu/job/cpu.cfs_period_us", "200000\n");
    assert_true(base_cgroup_cores(membership, root) == 3);
    write_text(root, "cpu/cpu.cfs_quota_us", "200000\n");
    assert_true(base_cgroup_cores(membership, root) == 2);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

// Memory ends where the machine's does or a container's, whichever is first.
static void test_available(void **state)
{
    (void)state;
    const int64_t available = process_memory_available();
    const size_t container = base_cgroup_available("/proc/self/cgroup", "/sys/fs/cgroup");
    assert_true(available > 0);
    assert_true(container == SIZE_MAX || (double)available <= 1.1 * (double)container);
}

static void test_samples_stay_bounded(void **state)
{
    (void)state;
    memory_series s;
    assert_ok(memory_series_init(&s, 2, 10));
    int64_t allocations = base_allocation_count();
    int n_added = 0;
    for (int64_t step = 0; step < 1000000; step++) {
        if (!memory_series_due(&s, step)) continue;
        memory_series_add(&s, (int64_t[]){step, 2 * step});
        n_added++;
    }
    assert_int_equal(base_allocation_count(), allocations);
    assert_in_range(s.n_samples, MEMORY_SAMPLES / 2, MEMORY_SAMPLES - 1);
    assert_int_equal(s.n_samples, (1000000 - 1) / s.interval + 1);
    assert_true(n_added < 20000);
    for (int i = 0; i < s.n_samples; i++) {
        assert_near(s.bytes[i], (double)(i * s.interval), 0);
        assert_near(s.bytes[MEMORY_SAMPLES + i], 2.0 * (double)(i * s.interval), 0);
    }
    memory_series_free(&s);
}

// ---- the verdict ---------------------------------------------------------------------------------

enum { N = 2000, DRAWS = 50 };
typedef enum series_kind {
    FLAT,
    PLATEAU,
    SAWTOOTH,
    WANDERING,
    ONE_STEP,
    SPIKES,
    LEAK,
    LEAK_IN_STEPS,
    LEAK_SMALL,
    N_KINDS
} series_kind;
static const char *const kind_names[] = {"flat",   "plateau", "sawtooth",      "wandering", "one step",
                                         "spikes", "leak",    "leak in steps", "small leak"};

static void generate(series_kind kind, uint64_t seed, double *bytes)
{
    double wander = 0.0;
    for (int i = 0; i < N; i++) {
        double noise = base_random_normal(seed, (uint64_t)kind, (uint64_t)i), x = 1000.0, t = (double)i / N;
        wander = 0.99 * wander + 0.5 * noise;
        switch (kind) {
        case FLAT: x += 0.5 * noise; break;
        case PLATEAU: x += 60.0 * (1.0 - exp(-t * 30.0)) + 0.5 * noise; break;
        case SAWTOOTH: x += (i + (int)(seed % 97)) % 97 * 0.3 + 0.2 * noise; break;
        case WANDERING: x += wander; break;
        case ONE_STEP: x += (t > 0.2 + 0.6 * base_random_uniform(seed, 99, 0) ? 32.0 : 0.0) + 0.5 * noise; break;
        case SPIKES: x += base_random_uniform(seed, 98, (uint64_t)i) < 0.02 ? 50.0 : 0.0; break;
        case LEAK: x += 12.0 * t + 0.5 * noise; break;
        case LEAK_IN_STEPS: x += 2.0 * (i / 100); break;
        case LEAK_SMALL: x = 30.0 + 2.0 * t; break;
        case N_KINDS: break;
        }
        bytes[i] = floor(x * 8.0) / 8.0 * MB;
    }
}

static void test_verdicts(void **state)
{
    (void)state;
    static double bytes[N];
    for (int kind = 0; kind < N_KINDS; kind++) {
        int n_growing = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            generate((series_kind)kind, 1000 + (uint64_t)draw, bytes);
            n_growing += leak_judge(bytes, N).kind == LEAK_GROWING;
        }
        printf("%s: %d of %d called growing\n", kind_names[kind], n_growing, DRAWS);
        if (kind >= LEAK)
            assert_int_equal(n_growing, DRAWS);
        else
            assert_true(n_growing <= DRAWS / 20); // a false alarm in twenty at most
    }
}

static void test_slope_and_limits(void **state)
{
    (void)state;
    double bytes[MEMORY_SAMPLES];
    for (int i = 0; i < MEMORY_SAMPLES; i++) bytes[i] = 50e6 + 4096.0 * i;
    leak_verdict verdict = leak_judge(bytes, 1000);
    assert_int_equal(verdict.kind, LEAK_GROWING);
    assert_near(verdict.bytes_per_sample, 4096.0, 4096.0 * 0.01); // blocks differ by one sample in length
    assert_int_equal(leak_judge(bytes, LEAK_MIN_SAMPLES - 1).kind, LEAK_UNKNOWN);
    assert_int_equal(leak_judge(bytes, 0).kind, LEAK_UNKNOWN);
    for (int i = 0; i < MEMORY_SAMPLES; i++) bytes[i] = 50e6;
    assert_int_equal(leak_judge(bytes, MEMORY_SAMPLES).kind, LEAK_STABLE);
    for (int i = 0; i < MEMORY_SAMPLES; i++) bytes[i] = 50e6 - 4096.0 * i; // shrinking is no leak
    assert_int_equal(leak_judge(bytes, MEMORY_SAMPLES).kind, LEAK_STABLE);
    for (int i = 0; i < MEMORY_SAMPLES; i++) bytes[i] = i < 700 ? 50e6 : 90e6;
    assert_int_equal(leak_judge(bytes, MEMORY_SAMPLES).kind, LEAK_BOUNDED);
}

static void test_environment(void **state)
{
    (void)state;
    environment e;
    char host[256] = "";
    assert_ok(environment_collect(&e));
    assert_non_null(environment_find(&e, "compiler"));
    assert_non_null(environment_find(&e, "os"));
    assert_true(atoi(environment_find(&e, "cores_usable")) >= 1);
    assert_null(environment_find(&e, "hostname"));
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < e.n && strlen(host) > 3; i++) assert_null(strstr(e.values[i], host));
    environment_free(&e);
}

// A file is read into one block of its size: a model of 1 GB needs no second one while it is read. Files without a size, as those
// of /proc, are read to their end.
static void test_file_in_one_block(void **state)
{
    (void)state;
    enum { BYTES = 300000 };
    char *text, path[] = "/tmp/mlff_test_memory_XXXXXX", *written = base_alloc(BYTES, 1, "a text");
    size_t length;
    const int file = mkstemp(path);
    for (int k = 0; k < BYTES; k++) written[k] = (char)('a' + k % 26);
    assert_int_equal(write(file, written, BYTES), BYTES);
    const int64_t n_before = base_allocation_count(), bytes_before = base_allocated_bytes();
    assert_int_equal(base_read_file(path, BYTES, &text, &length), MLFF_OK);
    assert_int_equal(base_allocation_count() - n_before, 1);
    assert_int_equal(base_allocated_bytes() - bytes_before, BYTES + 2);
    assert_int_equal(length, BYTES);
    assert_memory_equal(text, written, BYTES);
    assert_int_equal(text[length], 0);
    base_free(text);
    assert_int_equal(base_read_file(path, BYTES - 1, &text, &length), MLFF_ERR_LIMIT);
    base_free(written);
    close(file);
    unlink(path);
    if (access("/proc/self/maps", R_OK) != 0) return;
    assert_int_equal(base_read_file("/proc/self/maps", 1 << 20, &text, &length), MLFF_OK);
    assert_true(length > 1000); // some 60 characters for each of dozens of mappings
    assert_int_equal(strlen(text), length);
    base_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_memory),  cmocka_unit_test(test_more_than_available),
        cmocka_unit_test(test_container_limit), cmocka_unit_test(test_container_cores),
        cmocka_unit_test(test_available),       cmocka_unit_test(test_samples_stay_bounded),
        cmocka_unit_test(test_verdicts),        cmocka_unit_test(test_slope_and_limits),
        cmocka_unit_test(test_environment),     cmocka_unit_test(test_file_in_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
