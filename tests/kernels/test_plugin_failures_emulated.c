// SPDX-License-Identifier: MIT
// Failures of the GPU plugin on an emulated GPU (tests/emulate), through the public interface: of every single call of the CUDA
// runtime; systems that are too large, plugins of another build, plans that do not exist, kernels that do not end. No GPU is needed.
#include <sys/wait.h>
#include <unistd.h>

#include "plugin_scene.h"

// Each call of the runtime in turn fails once: the status names it, and nothing leaks. If the failure is no error (a call that only cleans
// up), the results are right.
static void fail_each(const char *function, int error, mlff_status status_expected)
{
    scene s;
    make_scene(&s, 31);
    support_results expected = reference_of(s.model, &s.batch);
    double energies[N_SYSTEMS], forces[96];
    mlff_results results = {.energies = energies, .forces = forces};
    int failures = 0;
    const int64_t stride = function ? 1 : 8 / SUPPORT_CASES(8); // with any function there are a hundred calls
    for (int64_t nth = 1;; nth += stride) {
        mlff_evaluator *evaluator = NULL;
        emulate_counts before = counts();
        plan_failure(function, nth, error);
        mlff_status status = create_on(s.model, MLFF_CUDA, &evaluator);
        if (status == MLFF_OK) {
            status = mlff_evaluator_compute(evaluator, &s.batch, &results);
            int came = mend();
            if (status != MLFF_OK && error != LOST) // as good as new
                assert_ok(mlff_evaluator_compute(evaluator, &s.batch, &results));
            if (error != LOST || status == MLFF_OK)
                assert_true(support_difference(forces, expected.r.forces, 54) <= 1e-4 * rms(expected.r.forces, 54));
            mlff_evaluator_destroy(evaluator);
            if (!came) {
                assert_int_equal(status, MLFF_OK);
                break;
            }
        } else {
            assert_true(mend());
        }
        if (status != MLFF_OK) {
            failures++;
            if (status != status_expected)
                fail_msg("%s, call %d: %s: %s", function ? function : "any", (int)nth, mlff_status_name(status),
                         mlff_last_error());
            assert_non_null(strstr(mlff_last_error(), error == LOST            ? "lost"
                                                      : error == OUT_OF_MEMORY ? "out of GPU memory"
                                                                               : "999"));
        }
        // What a lost GPU held went with it; the driver takes it back.
        if (error != LOST) assert_given_back(&before, function ? function : "any", nth);
    }
    assert_true(failures > 0);
    support_results_free(&expected);
    free_scene(&s);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    fail_each("cudaMalloc", OUT_OF_MEMORY, MLFF_ERR_MEMORY);
    fail_each("cudaHostAlloc", OUT_OF_MEMORY, MLFF_ERR_MEMORY);
}

static void test_every_failure(void **state)
{
    (void)state;
    fail_each(NULL, UNKNOWN, MLFF_ERR_DEVICE);
}

static void test_lost(void **state)
{
    (void)state;
    fail_each("cudaStreamQuery", LOST, MLFF_ERR_DEVICE);
    fail_each("cudaGraphLaunch", LOST, MLFF_ERR_DEVICE);
}

// A system larger than the GPU: an error, and the evaluator still serves smaller ones.
static void test_too_large(void **state)
{
    (void)state;
    mlff_model *model = support_model(64, 2, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator;
    mlff_system *small = support_random_system(3, 0, 1.2, 1), *large;
    assert_ok(mlff_system_build("silicon", 80000, 0, &large));
    assert_ok(create_on(model, MLFF_CUDA, &evaluator));
    support_results first = support_compute_system(evaluator, small);
    int32_t first_atom[2];
    mlff_batch batch;
    double energy;
    mlff_batch_from_system(large, first_atom, &batch);
    assert_int_equal(mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_MEMORY);
    support_results again = support_compute_system(evaluator, small);
    assert_memory_equal(first.r.forces, again.r.forces, sizeof(double) * 9);
    support_results_free(&first);
    support_results_free(&again);
    mlff_evaluator_destroy(evaluator);
    mlff_system_destroy(small);
    mlff_system_destroy(large);
    mlff_model_destroy(model);
}

static int build_was_refused;
static mlff_status hear(mlff_status status, const char *format, ...)
{
    build_was_refused = strstr(format, "install both from one build") != NULL;
    return status;
}

// A library of another build is refused; so is a GPU that does not exist.
static void test_wrong_build(void **state)
{
    (void)state;
    const device_plugin *plugin = NULL;
    const device_host library = {hear, mlff_warn};
    void *memory;
    assert_int_equal(entry("mlff 0.0.1 layout 1-2-3", &library, &plugin), MLFF_ERR_DEVICE);
    assert_null(plugin);
    assert_true(build_was_refused);
    // The one of this build takes its place again: what it lends is the process's.
    char build_id[128];
    device_build_id(build_id, sizeof build_id);
    assert_ok(entry(build_id, &(device_host){mlff_fail, mlff_warn}, &plugin));
    assert_non_null(plugin);
    mlff_device device;
    assert_int_equal(mlff_device_parse("cuda:1", &device), MLFF_ERR_DEVICE);
    assert_int_equal(mlff_device_allocate((mlff_device){MLFF_CUDA, 7}, 16, &memory), MLFF_ERR_DEVICE);
}

// A forced plan that no kernel has is refused: it gave wrong energies without a word.
static void test_forced_plans(void **state)
{
    (void)state;
    static const char *const bad[] = {"tile=7",    "tile=-1",     "tile=",           "tile=99999999999999999999",
                                      "fused=4",   "fused",       "fused=0,,",       "cluster=3",
                                      "cluster=0", "Fused=0",     "edge_mode=4",     "wgmma=2",
                                      "small=17",  "cell_list=3", "overlap=x",       "=0",
                                      ",",         "fused=0 ",    "fused=0;tile=16", "\xff\x01=3",
                                      "fused=0x1"};
    static const char *const good[] = {"", "fused=0", "tile=16,wgmma=1,edge_mode=2",
                                       "cell_list=0,fused_search=0,small=0,cluster=8"};
    static const char letters[] = "fusedtilcrwgmaovp_hn=,0123456789";
    mlff_model *model = support_model(64, 2, "gaussian", "cosine", 0, 3);
    mlff_evaluator *evaluator = NULL;
    char text[32];
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        setenv("MLFF_CUDA_PLAN", bad[k], 1);
        assert_int_equal(create_on(model, MLFF_CUDA, &evaluator), MLFF_ERR_USAGE);
        assert_non_null(strstr(mlff_last_error(), "MLFF_CUDA_PLAN: "));
    }
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        setenv("MLFF_CUDA_PLAN", good[k], 1);
        assert_ok(create_on(model, MLFF_CUDA, &evaluator));
        mlff_evaluator_destroy(evaluator);
    }
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const int length = 1 + (int)(base_random_uniform(seed, 0, 0) * 30);
        for (int i = 0; i < length; i++)
            text[i] = letters[(int)(base_random_uniform(seed, 1, (uint64_t)i) * (sizeof letters - 1))];
        text[length] = 0;
        setenv("MLFF_CUDA_PLAN", text, 1);
        const mlff_status status = create_on(model, MLFF_CUDA, &evaluator);
        if (status == MLFF_OK) mlff_evaluator_destroy(evaluator);
        if (status != MLFF_OK && status != MLFF_ERR_USAGE) fail_msg("\"%s\": %s", text, mlff_last_error());
    }
    unsetenv("MLFF_CUDA_PLAN");
    mlff_model_destroy(model);
}

// A kernel that never ends, in a process of its own, since a GPU is not used again after that. The emulated runtime aborts where a
// call would wait for it.
static void test_wait_for_all_work(void **state)
{
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        void *memory = NULL;
        if (setenv("MLFF_GPU_TIMEOUT", "0.1", 1) != 0) _exit(2);
        if (mlff_device_allocate(gpu, 16, &memory) != MLFF_OK || mlff_device_synchronize(gpu) != MLFF_OK) _exit(3);
        plan_failure("cudaEventQuery", 1, 600);
        if (mlff_device_synchronize(gpu) != MLFF_ERR_DEVICE || !strstr(mlff_last_error(), "a kernel does not end")) _exit(4);
        if (mlff_device_synchronize(gpu) != MLFF_ERR_DEVICE || mlff_device_allocate(gpu, 16, &memory) != MLFF_ERR_DEVICE)
            _exit(5);
        mlff_device_release(gpu, memory);
        _exit(0);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_of_memory),    cmocka_unit_test(test_every_failure), cmocka_unit_test(test_lost),
        cmocka_unit_test(test_too_large),        cmocka_unit_test(test_wrong_build),   cmocka_unit_test(test_forced_plans),
        cmocka_unit_test(test_wait_for_all_work)};
    return run_on_emulator(tests, sizeof tests / sizeof *tests);
}
