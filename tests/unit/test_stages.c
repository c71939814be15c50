// SPDX-License-Identifier: MIT
// Purpose: what models say of their stages: the work of a small PaiNN, ANI and Orb, counted by hand from their equations, and
// advice for each stage of every evaluator.
#include "support.h"
#include "unit/near.h"

// Index of a stage; fails where there is none.
static int find_stage(const mlff_evaluator *evaluator, const char *phase, const char *name, int layer)
{
    int n;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
    for (int k = 0; k < n; k++)
        if (strcmp(stages[k].phase, phase) == 0 && strcmp(stages[k].name, name) == 0 && stages[k].layer == layer) return k;
    fail_msg("no stage %s/%s/%d", phase, name, layer);
    return -1;
}

static mlff_stage_work work_of(const mlff_evaluator *evaluator, const char *phase, const char *name, int layer)
{
    const mlff_work_size size = {1, 10, 100};
    mlff_stage_work work;
    assert_int_equal(mlff_evaluator_stage_work(evaluator, find_stage(evaluator, phase, name, layer), &size, &work), 1);
    return work;
}

// Every stage has advice, and no stage reads as another's but by intention.
static void check_advice(const mlff_evaluator *evaluator)
{
    int n;
    const mlff_stage *stages = mlff_evaluator_stages(evaluator, &n);
    for (int k = 0; k < n; k++) {
        const char *advice = mlff_evaluator_stage_advice(evaluator, k);
        if (strlen(advice) < 40) fail_msg("no advice for %s/%s", stages[k].phase, stages[k].name);
        if (strstr(advice, "bound by"))
            fail_msg("%s/%s claims a bound that the profiler has to measure", stages[k].phase, stages[k].name);
    }
    assert_string_equal(mlff_evaluator_stage_advice(evaluator, n), "");
    assert_string_equal(mlff_evaluator_stage_advice(evaluator, -1), "");
}

// 10 atoms, 100 pairs, F = 8: filters from splines of 6 coefficients, the cheaper; 80 or 128 operations of a pair, 3 or 6 rows of F.
static void test_painn(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=8; n_layers=2; n_radial=20"));
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    assert_near(work_of(evaluator, "forward", "message", 0).flops, 8 * 10 * 64 + 100 * (0.5 * 12 * 24 + 80), 1e-9);
    assert_near(work_of(evaluator, "forward", "message", 1).flops, 8 * 10 * 64 + 100 * (0.5 * 12 * 24 + 128), 1e-9);
    assert_near(work_of(evaluator, "backward", "message", 1).flops, 8 * 10 * 64 + 2 * 100 * (0.5 * 12 * 24 + 128), 1e-9);
    assert_near(work_of(evaluator, "forward", "message", 0).bytes, 4 * 100 * 24, 1e-9);
    assert_near(work_of(evaluator, "forward", "message", 1).bytes, 4 * 100 * 48, 1e-9);
    assert_near(work_of(evaluator, "backward", "update", 1).flops, 22 * 10 * 64, 1e-9);
    assert_near(work_of(evaluator, "forward", "readout", -1).flops, 10 * (64 + 8), 1e-9);
    mlff_stage_work work = {1, 1, 1};
    const mlff_work_size size = {1, 10, 100};
    assert_int_equal(mlff_evaluator_stage_work(evaluator, find_stage(evaluator, "forward", "neighbors", -1), &size, &work), 0);
    assert_near(work.flops + work.bytes, 0, 0);
    assert_int_equal(mlff_evaluator_stage_work(evaluator, 1000, &size, &work), 0);
    check_advice(evaluator);
    assert_null(mlff_evaluator_kernel_stage(evaluator, "message_kernel<128>")); // the CPU has no kernels
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// 2 members, elements H and C: an AEV of 2·16 + 3·32 = 128, hidden layers 8 and 4: 128·8 + 8·4 + 4 = 1060 weights.
static void test_ani(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "ani", "n_members=2; elements=H,C; hidden=8,4"));
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    assert_near(work_of(evaluator, "forward", "network", -1).flops, 2.0 * 2 * 1060 * 10, 1e-9);
    assert_near(work_of(evaluator, "backward", "network_backward", -1).flops, 2.0 * 2 * 1060 * 10, 1e-9);
    assert_near(work_of(evaluator, "forward", "network", -1).bytes, 4.0 * (2 * 1060 + 10 * 128), 1e-9);
    check_advice(evaluator);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

// 2 layers, F = 16, H = 32, 20 neighbors: 100 pairs of 10 atoms are below the cap of 200, 1000 are not. The last layer's edges are not written.
static void test_orb(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "orb-v3-conservative", "n_layers=2; n_features=16; hidden=32; max_neighbors=20"));
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT64);
    const double pair = 4.0 * 16 * 32 + 2.0 * 32 * 32 + 4.0 * 16, atom = 4.0 * 16 * 32;
    assert_near(work_of(evaluator, "forward", "message", 0).flops, 100 * pair + 10 * atom, 1e-9);
    assert_near(work_of(evaluator, "forward", "message", 0).bytes, 4.0 * (2 * 100 * 16 + 4 * 10 * 16 + 4 * 16 * 32 + 32 * 32),
                1e-9);
    assert_near(work_of(evaluator, "forward", "message", 1).bytes, 4.0 * (100 * 16 + 4 * 10 * 16 + 4 * 16 * 32 + 32 * 32), 1e-9);
    assert_near(work_of(evaluator, "forward", "update", 1).flops, 10 * (8.0 * 16 * 32 + 2.0 * 32 * 32), 1e-9);
    mlff_stage_work work;
    const int stage = find_stage(evaluator, "forward", "message", 0);
    assert_int_equal(mlff_evaluator_stage_work(evaluator, stage, &(mlff_work_size){1, 10, 1000}, &work), 1);
    assert_near(work.flops, 200 * pair + 10 * atom, 1e-9);
    check_advice(evaluator);
    mlff_evaluator_destroy(evaluator);
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_painn), cmocka_unit_test(test_ani), cmocka_unit_test(test_orb)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
