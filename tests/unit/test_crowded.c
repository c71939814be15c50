// SPDX-License-Identifier: MIT
// Purpose: where other programs run, threads wait for a CPU, and what a step waited for is told from that; one plain sentence says so, and
// no advice about the model is given. Times are synthetic.
#include "synthetic_steps.h"

// A thread that has ended may have waited for a CPU, how long is not known: steps in which it waited least tell what the others waited
// for, where other programs run. On a crowded machine threads that work in nearly all blocked steps are what these waited for;
// threads that work in one of three are not, and a sleep stays one.
static void test_threads_that_end(void **state)
{
    (void)state;
    static const struct {
        double stretch, cpu_wait;
        double blocked_ms[3]; // of each third slow step
        float others_ns[3];
        bool all_threads; // else steps in which others worked for half of the time
    } cases[] = {{1.0, 0.0, {3, 10, 10}, {2.5e6f, 2.5e6f, 2.5e6f}, false},
                 {1.5, 0.0, {3, 10, 10}, {2.5e6f, 2.5e6f, 2.5e6f}, true},
                 {4.0, 0.0, {40, 50, 60}, {2.5e6f, 2.5e6f, 2.5e6f}, false},
                 {4.0, 0.7, {40, 50, 60}, {2.5e6f, 2.5e6f, 2.5e6f}, true},
                 {4.0, 0.7, {40, 50, 60}, {2.5e6f, 0, 0}, false},
                 {4.0, 0.7, {5, 5, 5}, {1e3f, 1e3f, 1e3f}, false},
                 {4.0, 0.7, {400, 500, 600}, {2.5e6f, 2.5e6f, 2.5e6f}, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        synthetic_steps s = {0};
        double total = 0.0, threads = 0.0;
        for (int i = 0; i < STEPS_N; i++) {
            bool slow = i % 10 == 7;
            double blocked = slow ? cases[c].blocked_ms[i / 10 % 3] : 0.0;
            float others = slow ? cases[c].others_ns[i / 10 % 3] : 0.0f;
            s.times[i] = 1.0 + blocked;
            total += blocked;
            threads += cases[c].all_threads || (double)others > 0.5e6 * blocked ? blocked : 0.0;
            s.parts[i][PART_CPU] = 1e6f;
            s.parts[i][PART_OTHERS] = others;
        }
        profile_tail machine = {.stretch = cases[c].stretch, .cpu_wait_share = cases[c].cpu_wait};
        mlff_profile *profile = synthetic_steps_told(&s, true, "cpu", machine);
        if (fabs(profile->tail.excess_ms[CAUSE_THREADS] - threads) > 1e-2) // parts are float32
            fail_msg("case %zu: other threads took %g of %g ms, expected %g", c, profile->tail.excess_ms[CAUSE_THREADS], total,
                     threads);
        assert_near(profile->tail.excess_ms[CAUSE_BLOCKED], total - threads, 1e-2);
        mlff_profile_destroy(profile);
    }
}

// Other threads of one or two steps are not named on a crowded machine, where they may have lacked a CPU; with one thread the advice is not
// to take fewer.
static void test_single_waits_for_threads(void **state)
{
    (void)state;
    static const struct {
        int64_t n_steps;
        double cpu_wait;
        int named;
    } cases[] = {{1, 0.0, 1}, {2, 0.6, 0}, {3, 0.6, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        profile_tail tail = {.share = 0.8, .cpu_wait_share = cases[k].cpu_wait};
        int order[N_CAUSES];
        tail.excess_ms[CAUSE_THREADS] = 19.0;
        tail.excess_ms[CAUSE_CPU_WAIT] = 81.0;
        tail.n_by_cause[CAUSE_THREADS] = cases[k].n_steps;
        if (tail_order(&tail, true, order) != cases[k].named) fail_msg("case %zu: expected %d", k, cases[k].named);
    }
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        static const float parts[N_PARTS] = {[PART_CPU] = 1e6f, [PART_WAIT] = 49e6f};
        mlff_profile *profile = synthetic_every_tenth("cpu", 50.0, TAG_PREEMPTED, parts, 1.0);
        char crowd[400];
        profile->tail.cpu_wait_share = 0.5;
        profile->tail.team_cores = 0;
        profile->tail.program_cores = 1;
        profile->ceilings.n_threads = n_threads;
        assert_true(tail_crowded(profile, crowd, sizeof crowd));
        assert_int_equal(strstr(crowd, "fewer threads") != NULL, n_threads > 1);
        profile->ceilings.n_threads = 0; // not measured, as of production runs and float64
        assert_ok(environment_add(&profile->implementation, "threads", n_threads == 1 ? "1" : "2"));
        assert_true(tail_crowded(profile, crowd, sizeof crowd));
        assert_int_equal(strstr(crowd, "fewer threads") != NULL, n_threads > 1);
        mlff_profile_destroy(profile);
    }
}

// Waiting for a CPU: one plain sentence, and no advice about the model, whose stages are ranked by medians.
static void test_crowded_machine(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        static const float parts[N_PARTS] = {[PART_CPU] = 1e6f, [PART_WAIT] = 49e6f};
        mlff_profile *profile = synthetic_every_tenth("cpu", 50.0, TAG_PREEMPTED, parts, 1.0);
        char *text, crowd[400];
        int n_named = 0;
        static const struct {
            mlff_stage stage;
            double mean, median;
        } rows[] = {{{"message", "forward", 0, ""}, 5.4, 0.05}, {{"update", "forward", 0, ""}, 0.9, 0.9}};
        for (int k = 0; k < 2; k++)
            assert_ok(
                profile_add_stage(profile, &rows[k].stage, &(mlff_statistics){.mean = rows[k].mean, .median = rows[k].median}));
        profile->stages_measured = true;
        profile->tail.cpu_wait_share = crowded ? 0.83 : 0.01;
        profile->tail.team_cores = 0;
        profile->tail.program_cores = 1;
        assert_ok(profile_derive(profile));
        assert_int_equal(tail_crowded(profile, crowd, sizeof crowd), crowded);
        assert_int_equal(synthetic_recommended(profile, "the machine is busy"), crowded);
        assert_int_equal(synthetic_recommended(profile, "a smaller cutoff"), 0);
        assert_int_equal(synthetic_recommended(profile, "update"), !crowded);
        assert_ok(mlff_profile_text(profile, 120, &text));
        for (const char *at = text; (at = strstr(at, "83 % of the time")); at++) n_named++;
        assert_int_equal(n_named > 0, crowded);
        mlff_text_free(text);
        mlff_profile_destroy(profile);
    }
}

// Steps that wait for other threads: on a crowded machine these may lack a CPU, and no lock is blamed.
static void test_advice_about_threads(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        static const float parts[N_PARTS] = {[PART_CPU] = 1e6f, [PART_OTHERS] = 49e6f};
        mlff_profile *profile = synthetic_every_tenth("cpu", 50.0, 0, parts, 1.0);
        profile->tail.cpu_wait_share = crowded ? 0.4 : 0.01;
        profile->n_slowest = 1;
        assert_ok(profile_derive(profile));
        assert_int_equal(synthetic_recommended(profile, "other threads"), 1);
        assert_int_equal(synthetic_recommended(profile, "Python the global interpreter lock"), !crowded);
        assert_int_equal(synthetic_recommended(profile, "before looking at locks"), crowded);
        mlff_profile_destroy(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads_that_end), cmocka_unit_test(test_single_waits_for_threads),
                                       cmocka_unit_test(test_crowded_machine), cmocka_unit_test(test_advice_about_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
