// SPDX-License-Identifier: MIT
// every_step.c: what a force field without stages of its own does in every step beside computing. The tail does not show it, as no step is
// without. Only what was seen is said: how long files or child processes take is not measured.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "profile/profile.h"

#define STEPS_LEAST 0.5 // of all steps: what is seen in more is no accident
#define TEAM_LEAST 0.5  // of that time: other threads that ran for so long may be what the step waits for
#define OFF_LEAST 0.1   // of a step: interrupts, and hosts of virtual machines that take a CPU, are less in the median step

typedef struct list {
    char *text;
    size_t length, capacity;
    int n;
} list;

static void add(list *l, const char *format, ...) MLFF_PRINTF(2, 3);
static void add(list *l, const char *format, ...)
{
    char item[256];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(item, sizeof item, format, arguments);
    va_end(arguments);
    if (l->length < l->capacity)
        l->length += (size_t)snprintf(l->text + l->length, l->capacity - l->length, "%s%s",
                                      l->n == 0 ? "in every step, or in most: " : "; ", item);
    l->n++;
}

// "in 150 of 150 steps"; false where it is not in most of them.
static bool usual(const mlff_profile *profile, uint32_t tag, char text[64])
{
    const int64_t n = profile->summary.n_steps;
    int k = 0;
    while (tag >> k != 1) k++;
    snprintf(text, 64, "in %lld of %lld steps", (long long)profile->n_tagged[k], (long long)n);
    return (double)profile->n_tagged[k] > STEPS_LEAST * (double)n;
}

bool every_step_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const profile_tail *tail = &profile->tail;
    list l = {.text = text, .capacity = text_bytes};
    char steps[64];
    text[0] = 0;
    if (profile->stages_measured || isnan(tail->off_share)) return false;
    const bool child = usual(profile, TAG_CHILD, steps);
    if (child) add(&l, "a child process ended %s", steps);
    const bool files = usual(profile, TAG_FILES, steps);
    if (files) add(&l, "files, pipes or sockets were read or written %s", steps);
    const bool gpu = strncmp(profile->device, "cuda", 4) == 0; // that a host waits for its GPU is no finding
    const bool off = tail->off_share >= OFF_LEAST && !gpu, team = tail->team_cores >= TEAM_LEAST * tail->off_share;
    if (off) {
        char threads[128] = "";
        if (team)
            base_format(threads, sizeof threads, ", which used up to %s cores and may compute for it",
                        PROFILE_NUMBER(tail->team_cores, 2));
        add(&l,
            "the thread neither ran nor waited for a CPU for %.0f %% of a step: it slept, or waited for a device, a lock, a "
            "child "
            "process or other threads of this process%s",
            100.0 * tail->off_share, threads);
    }
    const bool beside = child || files || (off && !team);
    if (l.n > 0 && l.length < text_bytes)
        snprintf(text + l.length, text_bytes - l.length, "%s%s",
                 child || files ? ". How long files and child processes take was not measured" : "",
                 beside ? ". Look there before changing the model" : "");
    return beside;
}
