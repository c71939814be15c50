/* SPDX-License-Identifier: MIT */
/* plugin_emulated.h: the GPU plugin on the emulated runtime (tests/emulate), with its counts and planned failures. */
#ifndef PLUGIN_EMULATED_H
#define PLUGIN_EMULATED_H

#include <dlfcn.h>

#include "emulate/emulate.h"
#include "gpu_support.h"
enum { UNKNOWN = 999, OUT_OF_MEMORY = 2, LOST = 719 };

static const mlff_device gpu = {MLFF_CUDA, 0};
static emulate_counts_function counts_get;
static emulate_fail_function plan_failure;
static emulate_mend_function mend;
static device_plugin_entry entry;

static inline int open_emulator(void **state)
{
    (void)state;
    void *library = dlopen(getenv("MLFF_CUDA_PLUGIN"), RTLD_NOW | RTLD_LOCAL), *symbols[4];
    if (!library) fail_msg("%s", dlerror());
    const char *const names[] = {"emulate_counts_get", "emulate_fail", "emulate_mend", DEVICE_PLUGIN_SYMBOL};
    for (int k = 0; k < 4; k++)
        if (!(symbols[k] = dlsym(library, names[k]))) fail_msg("%s", dlerror());
    memcpy(&counts_get, &symbols[0], sizeof counts_get);
    memcpy(&plan_failure, &symbols[1], sizeof plan_failure);
    memcpy(&mend, &symbols[2], sizeof mend);
    memcpy(&entry, &symbols[3], sizeof entry);
    assert_int_equal(mlff_device_count(MLFF_CUDA), 1);
    return 0;
}

static inline emulate_counts counts(void)
{
    emulate_counts c;
    counts_get(&c);
    return c;
}

// Nothing is held that was not held before.
static inline void assert_given_back(const emulate_counts *before, const char *what, int64_t nth)
{
    emulate_counts now = counts();
    if (now.blocks != before->blocks || now.host_blocks != before->host_blocks || now.streams != before->streams ||
        now.events != before->events || now.graphs != before->graphs || now.executables != before->executables)
        fail_msg("%s, call %d: left behind: %d blocks, %d page-locked, %d streams, %d events, %d graphs, %d executables", what,
                 (int)nth, (int)(now.blocks - before->blocks), (int)(now.host_blocks - before->host_blocks),
                 (int)(now.streams - before->streams), (int)(now.events - before->events), (int)(now.graphs - before->graphs),
                 (int)(now.executables - before->executables));
}

static inline mlff_status create_on(const mlff_model *model, mlff_device_kind kind, mlff_evaluator **evaluator_out)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.device.kind = kind;
    options.precision = kind == MLFF_CPU ? MLFF_FLOAT64 : MLFF_FLOAT32;
    return mlff_evaluator_create(model, &options, evaluator_out);
}

/* The tests need the emulated plugin; without it the program says so and ends as skipped. */
static inline int run_on_emulator(const struct CMUnitTest *tests, size_t n_tests)
{
    if (!getenv("MLFF_CUDA_PLUGIN")) {
        printf("skipped: MLFF_CUDA_PLUGIN does not name the emulated plugin\n");
        return 77;
    }
    return _cmocka_run_group_tests("tests", tests, n_tests, open_emulator, NULL);
}

#endif
