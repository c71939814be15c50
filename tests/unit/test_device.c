// SPDX-License-Identifier: MIT
// test_device.c: what is told about the CPU as a device goes into the room that the caller has, and no further.
#include "support.h"

static void writes_no_more_than_asked(void **state)
{
    (void)state;
    const mlff_device cpu = {.kind = MLFF_CPU};
    mlff_device_info whole = {.struct_size = sizeof whole}, part, untouched;
    assert_int_equal(mlff_device_info_get(cpu, &whole), MLFF_OK);
    assert_true(whole.struct_size == sizeof whole && whole.name[0] && whole.memory_bytes > 0 && whole.n_multiprocessors > 0);

    size_t size = offsetof(mlff_device_info, clock_mhz); // a caller built when the struct ended here
    memset(&part, 0x5a, sizeof part);
    untouched = part;
    part.struct_size = size;
    assert_int_equal(mlff_device_info_get(cpu, &part), MLFF_OK);
    assert_true(part.struct_size == size && part.memory_bytes == whole.memory_bytes);
    assert_memory_equal((char *)&part + size, (char *)&untouched + size, sizeof part - size);

    const size_t wrong[] = {0, 1, sizeof part + 1, (size_t)-1};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        part.struct_size = wrong[k];
        assert_int_equal(mlff_device_info_get(cpu, &part), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "sizeof(mlff_device_info)"));
    }
}

static void a_wrong_text_leaves_the_number(void **state)
{
    (void)state;
    mlff_device devices[4];
    int n = -7;
    static const char *const wrong[] = {"tpu", "cpu,cpu", "cpu:0", "cpu:5", "cuda:0,x", "cuda:1023"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        assert_int_not_equal(mlff_devices_parse(wrong[k], devices, 4, &n), MLFF_OK);
        assert_int_equal(n, -7);
    }
}

// A scope sees 64 MB that stay, and that they are given back. Tolerance 8 MB: what else the process's allocator keeps.
static void a_scope_sees_what_stays(void **state)
{
    (void)state;
    const mlff_device cpu = {.kind = MLFF_CPU};
    const int64_t bytes = (int64_t)64 << 20, tolerance = (int64_t)8 << 20;
    mlff_device_memory before, after;
    int64_t grown = -1;
    void *memory;
    assert_int_equal(mlff_memory_scope_begin(cpu, NULL), MLFF_ERR_USAGE);
    assert_ok(mlff_memory_scope_begin(cpu, &before));
    assert_int_equal(mlff_memory_scope_end(cpu, &before, &after, NULL), MLFF_ERR_USAGE);
    assert_ok(mlff_device_allocate(cpu, (size_t)bytes, &memory));
    memset(memory, 1, (size_t)bytes);
    assert_ok(mlff_memory_scope_end(cpu, &before, &after, &grown));
    assert_true(grown > bytes - tolerance && grown < bytes + tolerance);
    assert_true(after.allocated - before.allocated == bytes);
    mlff_device_release(cpu, memory);
    assert_ok(mlff_memory_scope_end(cpu, &before, NULL, &grown));
    if (!SUPPORT_SANITIZED) assert_true(grown < tolerance); // a sanitizer keeps what was freed for a while
}

static void events_are_recorded_before_they_are_read(void **state)
{
    (void)state;
    const mlff_device cpu = {.kind = MLFF_CPU};
    void *start, *end;
    double time_ns = -1;
    assert_ok(mlff_event_create(cpu, &start));
    assert_ok(mlff_event_create(cpu, &end));
    assert_int_equal(mlff_event_elapsed(cpu, start, end, &time_ns), MLFF_ERR_USAGE);
    assert_ok(mlff_event_record(cpu, end, NULL));
    assert_int_equal(mlff_event_elapsed(cpu, start, end, &time_ns), MLFF_ERR_USAGE); // not the time since the machine started
    assert_true(time_ns == -1);
    assert_ok(mlff_event_record(cpu, start, NULL));
    assert_ok(mlff_event_record(cpu, end, NULL));
    assert_ok(mlff_event_elapsed(cpu, start, end, &time_ns));
    assert_true(time_ns >= 0);
    mlff_event_destroy(cpu, start);
    mlff_event_destroy(cpu, end);
}

static void a_cause_has_no_remedy(void **state)
{
    (void)state;
    mlff_fail(MLFF_ERR_UNSUPPORTED, "no GPU: none; or two; use device cpu");
    assert_string_equal(mlff_last_cause(), "no GPU: none; or two");
    assert_string_equal(mlff_last_error(), "no GPU: none; or two; use device cpu");
    mlff_fail(MLFF_ERR_DEVICE, "the GPU was lost");
    assert_string_equal(mlff_last_cause(), "the GPU was lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cause_has_no_remedy), cmocka_unit_test(writes_no_more_than_asked),
                                       cmocka_unit_test(a_wrong_text_leaves_the_number),
                                       cmocka_unit_test(a_scope_sees_what_stays),
                                       cmocka_unit_test(events_are_recorded_before_they_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
