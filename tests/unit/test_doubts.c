// SPDX-License-Identifier: MIT
// Purpose: what comes irregularly and is small is not held against a cause, where a shared core, an interrupt or the scheduler does the
// same to a program that has no such cause. Times are synthetic.
#include "synthetic_steps.h"

enum { N = STEPS_N };

// Irregular steps that take 60 or 220 % more processor time may run on a core that others slow down: they are not named. The same in
// every tenth step, or irregular steps of four times more, are work; where steps wait for a CPU, seven times more.
static void test_irregular_work_is_doubted(void **state)
{
    (void)state;
    static const struct {
        double more, cpu_wait;
        bool regular, named;
    } cases[] = {{0.6, 0.0, false, false}, {2.2, 0.0, false, false}, {0.6, 0.0, true, true},
                 {4.0, 0.0, false, true},  {4.0, 0.5, false, false}, {7.0, 0.5, false, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        synthetic_steps s = {0};
        int order[N_CAUSES];
        for (int i = 0; i < N; i++) {
            bool slow = cases[k].regular ? i % 10 == 7 : base_random_uniform(12, 0, (uint64_t)i) < 0.1;
            s.times[i] = 1.0 + (slow ? cases[k].more : 0.0);
            s.parts[i][PART_CPU] = (float)(s.times[i] * 1e6);
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", (profile_tail){.cpu_wait_share = cases[k].cpu_wait});
        assert_int_equal(tail_order(&profile->tail, true, order), cases[k].named);
        assert_int_equal(profile->tail.n_by_cause[CAUSE_WORK] > 0, cases[k].named);
        assert_int_equal(profile->tail.excess_ms[UNKNOWN_CAUSE] > 0.0, !cases[k].named);
        mlff_profile_destroy(profile);
    }
}

// Calls of the GPU, and waits for it, that take 8 % of a step longer in one of four steps, at any time, are interrupts of the host:
// they are not named. The same in every fifth step, or of half a step, are.
static void test_small_delays_around_the_gpu_are_doubted(void **state)
{
    (void)state;
    static const struct {
        enum step_part part;
        int cause;
        double more;
        bool regular, named;
    } cases[] = {{PART_ENQUEUE, CAUSE_ENQUEUE, 0.08, false, false},  {PART_ENQUEUE, CAUSE_ENQUEUE, 0.08, true, true},
                 {PART_ENQUEUE, CAUSE_ENQUEUE, 0.5, false, true},    {PART_QUEUE, CAUSE_DEVICE_QUEUE, 0.08, false, false},
                 {PART_QUEUE, CAUSE_DEVICE_QUEUE, 0.08, true, true}, {PART_QUEUE, CAUSE_DEVICE_QUEUE, 0.5, false, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        synthetic_steps s = {0};
        int order[N_CAUSES];
        for (int i = 0; i < N; i++) {
            bool slow = cases[k].regular ? i % 5 == 3 : base_random_uniform(12, 0, (uint64_t)i) < 0.25;
            s.times[i] = 1.0 + (slow ? cases[k].more : 0.0);
            s.parts[i][PART_CPU] = (float)(s.times[i] * 1e6);
            s.parts[i][cases[k].part] = (float)((s.times[i] - 0.9) * 1e6);
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "cuda:0", (profile_tail){0});
        assert_int_equal(tail_order(&profile->tail, true, order), cases[k].named);
        if (cases[k].named) assert_int_equal(order[0], cases[k].cause);
        mlff_profile_destroy(profile);
    }
}

// A step that waits for another thread: where threads have CPUs, an irregular wait is named from three usual steps on. On a crowded
// machine it needs 2 % of the steps and a tenth of all excess (the rest of which is a wait for a CPU), or a period.
static void test_irregular_waits_for_threads_are_doubted(void **state)
{
    (void)state;
    static const struct {
        double more, chance, cpu_wait, waiting_ms; // waiting_ms: for a CPU, in every fourth step
        bool regular, named;
    } cases[] = {{2.0, 0.1, 0.0, 0.0, false, false},   {4.0, 0.1, 0.0, 0.0, false, true},  {2.0, 0.0, 0.0, 0.0, true, true},
                 {15.0, 0.01, 0.5, 0.0, false, false}, {15.0, 0.1, 0.5, 1.0, false, true}, {15.0, 0.04, 0.5, 40.0, false, false},
                 {15.0, 0.0, 0.5, 40.0, true, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        synthetic_steps s = {0};
        for (int i = 0; i < N; i++) {
            bool slow = cases[k].regular ? i % 10 == 7 : base_random_uniform(12, 0, (uint64_t)i) < cases[k].chance;
            bool waits = !slow && i % 4 == 1;
            s.times[i] = 1.0 + (slow ? cases[k].more : 0.0) + (waits ? cases[k].waiting_ms : 0.0);
            s.parts[i][PART_CPU] = 1e6f;
            s.parts[i][PART_OTHERS] = (float)(slow ? cases[k].more * 1e6 : 0.0);
            s.parts[i][PART_WAIT] = (float)(waits ? cases[k].waiting_ms * 1e6 : 0.0);
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", (profile_tail){.cpu_wait_share = cases[k].cpu_wait});
        if ((profile->tail.n_by_cause[CAUSE_THREADS] > 0) != cases[k].named)
            fail_msg("case %zu: other threads in %lld steps", k, (long long)profile->tail.n_by_cause[CAUSE_THREADS]);
        mlff_profile_destroy(profile);
    }
}

// A step that is blocked, waits for another thread or computes for 4 ms more: on a virtual machine the host may have taken a CPU. It is named
// where it comes regularly, in a tenth of the steps, or for more than 10 ms; on a machine of its own from the first on.
static void test_what_a_host_takes_is_doubted(void **state)
{
    (void)state;
    static const struct {
        double more, chance;
        bool virtual_machine, regular, named;
    } cases[] = {{4.0, 0.03, true, false, false},
                 {4.0, 0.03, false, false, true},
                 {4.0, 0.0, true, true, true},
                 {4.0, 0.2, true, false, true},
                 {25.0, 0.03, true, false, true}};
    static const int causes[] = {CAUSE_BLOCKED, CAUSE_THREADS, CAUSE_WORK};
    for (size_t k = 0; k < 3 * sizeof cases / sizeof *cases; k++) {
        const int cause = causes[k % 3], c = (int)(k / 3);
        synthetic_steps s = {0};
        for (int i = 0; i < N; i++) {
            bool slow = cases[c].regular ? i % 50 == 7 : base_random_uniform(12, 0, (uint64_t)i) < cases[c].chance;
            s.times[i] = 1.0 + (slow ? cases[c].more : 0.0);
            s.parts[i][PART_CPU] = (float)(cause == CAUSE_WORK ? s.times[i] * 1e6 : 1e6);
            s.parts[i][PART_OTHERS] = (float)(slow && cause == CAUSE_THREADS ? cases[c].more * 1e6 : 0.0);
        }
        mlff_profile *profile =
            synthetic_steps_told(&s, true, "cpu", (profile_tail){.virtual_machine = cases[c].virtual_machine});
        if ((profile->tail.n_by_cause[cause] > 0) != cases[c].named)
            fail_msg("case %d, cause %d: %lld steps", c, cause, (long long)profile->tail.n_by_cause[cause]);
        mlff_profile_destroy(profile);
    }
}

// Waits of 2.5 ms in every tenth step are regular also where irregular ones of 12 ms, in 2 % of the steps, are most of the time.
static void test_a_period_is_found_among_larger_accidents(void **state)
{
    (void)state;
    synthetic_steps s = {0};
    for (int i = 0; i < N; i++) {
        s.times[i] = 1.0 + (i % 10 == 7 ? 2.5 : 0.0) + (base_random_uniform(12, 0, (uint64_t)i) < 0.02 ? 12.0 : 0.0);
        s.parts[i][PART_CPU] = 1e6f;
    }
    mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", (profile_tail){.virtual_machine = true});
    assert_int_equal(profile->tail.period[CAUSE_BLOCKED], 10);
    assert_true(profile->tail.n_by_cause[CAUSE_BLOCKED] >= N / 10);
    mlff_profile_destroy(profile);
}

// Of the steps that wait in every tenth one, some wait longer for a CPU, others were blocked while no tick of other threads was counted:
// what comes regularly is named all the same, and a cause of a few irregular ones among as many slow steps is not.
static void test_a_period_is_found_where_waits_hide_it(void **state)
{
    (void)state;
    static const struct {
        int every, n_cpu_waits, n_untold; // slow steps; of ten of them
        bool named;
    } cases[] = {{10, 0, 0, true}, {10, 5, 0, true}, {10, 0, 4, true}, {10, 4, 2, true}, {10, 8, 0, false}, {0, 5, 0, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        synthetic_steps s = {0};
        for (int i = 0; i < N; i++) {
            bool slow = cases[k].every ? i % cases[k].every == 7 : base_random_uniform(12, 0, (uint64_t)i) < 0.09;
            int turn = (int)(10.0 * base_random_uniform(13, 0, (uint64_t)i));
            bool waits = slow && turn < cases[k].n_cpu_waits, untold = slow && turn >= 10 - cases[k].n_untold;
            s.times[i] = 1.0 + (slow ? 2.5 : 0.0) + (waits ? 8.0 : 0.0);
            s.parts[i][PART_CPU] = 1e6f;
            s.parts[i][PART_WAIT] = waits ? 10.5e6f : 0.0f;
            s.parts[i][PART_OTHERS] = slow && !waits && !untold ? 2.5e6f : 0.0f;
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", (profile_tail){.virtual_machine = true});
        if ((profile->tail.n_by_cause[CAUSE_THREADS] > 0) != cases[k].named)
            fail_msg("case %zu: other threads in %lld steps", k, (long long)profile->tail.n_by_cause[CAUSE_THREADS]);
        assert_int_equal(profile->tail.n_by_cause[CAUSE_BLOCKED], 0);
        mlff_profile_destroy(profile);
    }
}

// Steps that take four or nine times as long on a core that is found to be slower just after them: what that explains is the clock's. A core
// that is slower by a fifth does not explain them.
static void test_what_a_slower_core_adds_is_not_work(void **state)
{
    (void)state;
    static const struct {
        double more;
        float pace;
        bool work;
    } cases[] = {{3.0, 4.0f, false}, {8.0, 7.0f, false}, {3.5, 1.2f, false}, {8.0, 1.2f, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        synthetic_steps s = {0};
        for (int i = 0; i < N; i++) {
            bool slow = base_random_uniform(12, 0, (uint64_t)i) < 0.05;
            s.times[i] = 1.0 + (slow ? cases[k].more : 0.0);
            s.tags[i] = slow ? TAG_CLOCK : 0;
            s.parts[i][PART_CPU] = (float)(s.times[i] * 1e6);
            s.parts[i][PART_PACE] = slow ? cases[k].pace : NAN;
        }
        mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", (profile_tail){0});
        int order[N_CAUSES], n_named = tail_order(&profile->tail, true, order);
        bool work = false;
        for (int i = 0; i < n_named; i++) work |= order[i] == CAUSE_WORK;
        if (work != cases[k].work) fail_msg("case %zu: extra computation %d", k, work);
        if (cases[k].pace > 2.0f) assert_true(n_named == 1 && order[0] == CAUSE_CLOCK);
        mlff_profile_destroy(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_irregular_work_is_doubted),
        cmocka_unit_test(test_small_delays_around_the_gpu_are_doubted),
        cmocka_unit_test(test_irregular_waits_for_threads_are_doubted),
        cmocka_unit_test(test_what_a_host_takes_is_doubted),
        cmocka_unit_test(test_a_period_is_found_among_larger_accidents),
        cmocka_unit_test(test_a_period_is_found_where_waits_hide_it),
        cmocka_unit_test(test_what_a_slower_core_adds_is_not_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
