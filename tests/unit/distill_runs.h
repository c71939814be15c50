// SPDX-License-Identifier: MIT
// distill_runs.h: runs of mlff_distill in a folder of their own, for tests: water in springs, files of runs compared and removed.
#ifndef DISTILL_RUNS_H
#define DISTILL_RUNS_H

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlff_distill.h"
#include "support.h"
#include "unit/log_springs.h"

static char folder[] = P_tmpdir "/mlff-distill-XXXXXX";
static mlff_system *rest;

// FOLDER/RUN/NAME; the text is used again after seven more.
SUPPORT const char *in_folder(const char *run, const char *name)
{
    static char paths[8][300];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s%s%s", folder, run, name[0] ? "/" : "", name);
    return path;
}

SUPPORT int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) && mlff_system_build("h2o", 0, 0, &rest) == MLFF_OK ? 0 : -1;
}

SUPPORT int tear_down(void **state)
{
    (void)state;
    mlff_system_destroy(rest);
    return rmdir(folder); // fails if a run left a file that is not one of its own
}

SUPPORT void empty(const char *run)
{
    static const char *const names[] = {"samples.recorded",
                                        "samples.extxyz",
                                        "baseline.recorded",
                                        "labels.mlff",
                                        "student.checkpoint",
                                        "student.best.safetensors",
                                        "history.jsonl",
                                        "student.safetensors",
                                        "verdict-parts.jsonl",
                                        "verdict.json",
                                        "report.html",
                                        "explored-1.extxyz",
                                        "explored-1.json",
                                        "explored-2.json",
                                        "explored-2.extxyz",
                                        "labels-1.mlff",
                                        "labels-2.mlff",
                                        "round-1.json",
                                        "round-2.json",
                                        "young-0-1.safetensors",
                                        "young-0-1.checkpoint",
                                        "young-0-1.best.safetensors",
                                        "young-1-1.safetensors",
                                        "young-1-1.checkpoint",
                                        "young-1-1.best.safetensors",
                                        "young-0-2.safetensors",
                                        "young-0-2.checkpoint",
                                        "young-0-2.best.safetensors",
                                        "young-1-2.safetensors",
                                        "young-1-2.checkpoint",
                                        "young-1-2.best.safetensors",
                                        "baseline.extxyz",
                                        "baseline.mlff",
                                        "baseline.safetensors",
                                        "baseline.checkpoint",
                                        "baseline.best.safetensors",
                                        "made-with.json",
                                        "config.json"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) unlink(in_folder(run, names[k]));
    rmdir(in_folder(run, ""));
}

// A process that is killed here leaves the whole run or none of it; what it has not removed yet goes with the next one.
SUPPORT void remove_run(const char *run)
{
    empty("removed");
    rename(in_folder(run, ""), in_folder("removed", ""));
    empty("removed");
}

SUPPORT char *content(const char *run, const char *name)
{
    size_t length;
    char *text = NULL;
    assert_ok(base_read_file(in_folder(run, name), 1 << 24, &text, &length));
    return text;
}

SUPPORT void assert_same_file(const char *a, const char *b, const char *name)
{
    char *texts[2];
    size_t lengths[2];
    for (int k = 0; k < 2; k++) assert_ok(base_read_file(in_folder(k ? b : a, name), 1 << 24, &texts[k], &lengths[k]));
    if (lengths[0] != lengths[1] || memcmp(texts[0], texts[1], lengths[0]) != 0) fail_msg("%s of %s and %s differ", name, a, b);
    for (int k = 0; k < 2; k++) base_free(texts[k]);
}

// A callback of mlff_distill: stops at the call that counts `context`, an int, below 0.
SUPPORT int stop_sometimes(void *context, const mlff_distill_progress *progress)
{
    int *left = context;
    (void)progress;
    return --*left < 0;
}

#endif
