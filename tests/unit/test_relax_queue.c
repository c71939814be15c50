// SPDX-License-Identifier: MIT
// test_relax_queue.c: the queue of mlff_relax in several threads: its functions are called in the caller's thread, each structure
// is given back once, whatever fails, and the results are those of one thread, and of one structure at a time, to the bit. With
// MLFF_CUDA_PLUGIN on a GPU, where forces are computed in a thread of their own.
#include <pthread.h>

#include "support.h"

enum { N_STRUCTURES = 14 };

typedef struct queue {
    mlff_system *systems[N_STRUCTURES];
    double energies[N_STRUCTURES];
    int n_taken, n_back[N_STRUCTURES], n_done, fails_at; // fails_at: the number of the structure whose report fails, or -1
    int refuses_at;                                      // the number of the structure that cannot be read, or -1
    int steps_left;                                      // steps after which the run is stopped, or -1
    pthread_t caller;
} queue;

static mlff_status next(void *context, mlff_system **system_out)
{
    queue *q = context;
    assert_true(pthread_equal(pthread_self(), q->caller));
    if (q->n_taken == q->refuses_at) return mlff_fail(MLFF_ERR_FORMAT, "structure %d", q->n_taken);
    *system_out = q->n_taken < N_STRUCTURES ? q->systems[q->n_taken++] : NULL;
    return MLFF_OK;
}

static mlff_status done(void *context, mlff_system *system, const mlff_relaxed *result)
{
    queue *q = context;
    assert_true(pthread_equal(pthread_self(), q->caller));
    for (int k = 0; k < N_STRUCTURES; k++) {
        if (q->systems[k] != system) continue;
        q->n_back[k]++;
        q->energies[k] = result->energy;
    }
    return q->n_done++ == q->fails_at ? mlff_fail(MLFF_ERR_IO, "report %d", q->fails_at) : MLFF_OK;
}

static int stopped(void *context)
{
    queue *q = context;
    assert_true(pthread_equal(pthread_self(), q->caller));
    return q->steps_left >= 0 && q->steps_left-- == 0;
}

static bool on_gpu(void)
{
    return getenv("MLFF_CUDA_PLUGIN") != NULL;
}

static mlff_status relax_all(queue *q, const mlff_model *model, int n_threads, int n_at_once)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_relax_options relax = mlff_relax_options_default();
    mlff_evaluator *evaluator;
    options.n_threads = n_threads;
    if (on_gpu()) options.device = (mlff_device){MLFF_CUDA, 0};
    relax.n_at_once = n_at_once;
    relax.max_steps = 12; // some converge, some do not
    relax.force_limit = 0.3;
    q->caller = pthread_self();
    q->n_taken = q->n_done = 0;
    for (int k = 0; k < N_STRUCTURES; k++) {
        q->n_back[k] = 0;
        assert_ok(mlff_system_build(k % 2 ? "methane" : "ethanol", 0, 0, &q->systems[k]));
        for (int i = 0; i < 3 * q->systems[k]->n_atoms; i++) q->systems[k]->positions[i] += 0.05 * sin(1 + 3 * i + 7 * k);
    }
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    const mlff_status status = mlff_relax(evaluator, &relax, &(mlff_relax_queue){next, done, q, stopped});
    mlff_evaluator_destroy(evaluator);
    for (int k = 0; k < N_STRUCTURES; k++) {
        if (q->n_back[k] != (k < q->n_taken)) fail_msg("structure %d was given back %d times", k, q->n_back[k]);
        mlff_system_destroy(q->systems[k]);
    }
    return status;
}

static mlff_model *small_model(void)
{
    mlff_model *model;
    const mlff_setting settings[] = {{"n_features", "32"}, {"n_layers", "1"}, {"cutoff", "3"}, {"elements", "H,C,O"}, {0}};
    assert_ok(mlff_model_create("painn", settings, &model));
    return model;
}

static void test_threads(void **state)
{
    (void)state;
    mlff_model *model = small_model();
    queue one = {.fails_at = -1, .refuses_at = -1, .steps_left = -1}, many = one, alone = one;
    assert_ok(relax_all(&one, model, 1, 4));
    assert_ok(relax_all(&many, model, 4, 5));
    assert_ok(relax_all(&alone, model, 1, 1));
    assert_int_equal(one.n_done, N_STRUCTURES);
    for (int k = 0; k < N_STRUCTURES; k++)
        assert_true(one.energies[k] == many.energies[k] && one.energies[k] == alone.energies[k]);
    mlff_model_destroy(model);
}

// The first failure is what the call returns, and all that were taken come back.
static void test_failures(void **state)
{
    (void)state;
    mlff_model *model = small_model();
    for (int at = 0; at < N_STRUCTURES; at += on_gpu() ? 6 : 3) { // kernels are slow where they are emulated
        queue q = {.fails_at = at, .refuses_at = -1, .steps_left = -1};
        assert_int_equal(relax_all(&q, model, 3, 4), MLFF_ERR_IO);
        assert_non_null(strstr(mlff_last_error(), "report"));
        q = (queue){.fails_at = -1, .refuses_at = at, .steps_left = -1};
        assert_int_equal(relax_all(&q, model, 3, 4), MLFF_ERR_FORMAT);
        assert_non_null(strstr(mlff_last_error(), "structure"));
        assert_int_equal(q.n_taken, at);
    }
    for (int n_steps = 0; n_steps < 9; n_steps += 4) {
        queue q = {.fails_at = -1, .refuses_at = -1, .steps_left = n_steps};
        assert_int_equal(relax_all(&q, model, 3, 4), MLFF_ERR_INTERRUPTED);
    }
    mlff_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
