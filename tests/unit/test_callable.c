// SPDX-License-Identifier: MIT
// Purpose: an evaluator of ours, seen by the profiler: its stages, pairs and memory arrive there and the books close.
#include "profile/profile.h"
#include "synthetic.h"

static void test_evaluator(void **state)
{
    (void)state;
    mlff_model *model = support_model(16, 2, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    mlff_callable callable;
    mlff_system *system;
    mlff_trajectory *trajectory;
    mlff_profile *profile;
    mlff_profile_options options = synthetic_options(30);
    int n, n_own;
    options.properties = MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS;
    assert_ok(mlff_callable_from_evaluator(evaluator, model, &callable));
    assert_ok(mlff_system_build("silicon", 64, 0, &system));
    assert_ok(mlff_trajectory_thermal(system, 300.0, 0, &trajectory));
    assert_ok(mlff_profile_run(&callable, trajectory, &options, &profile));

    const mlff_profile_stage *stages = mlff_profile_stages(profile, &n);
    (void)mlff_evaluator_stages(evaluator, &n_own);
    assert_int_equal(n, n_own + 1);
    assert_books_close(profile);
    assert_true(fabs(stages[n - 1].share) < 0.5);
    assert_true(profile->summary.mean_pairs > 64);
    assert_true(profile->summary.n_rebuilds >= 0);
    assert_int_equal(profile->n_not_finite, 0);
    assert_true(profile_untrained(profile));
    assert_int_equal(profile->summary.memory_stable, 1);
    mlff_profile_destroy(profile);

    // Values that are wanted but not asked for as numbers.
    double energy = NAN;
    assert_ok(callable.step(callable.context, system, MLFF_ENERGY | MLFF_FORCES | MLFF_STRESS, &energy, NULL, NULL));
    assert_true(isfinite(energy));
    assert_ok(callable.step(callable.context, system, MLFF_FORCES, NULL, NULL, NULL));
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(system);
    mlff_callable_destroy(&callable);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_evaluator)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
