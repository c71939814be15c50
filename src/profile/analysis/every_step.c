// SPDX-License-Identifier: MIT
// every_step.c: what a force field without stages of its own does in every step beside computing. The tail does not show it, as no step is
// without. Only what was seen is said: how long files or child processes take is not measured.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

#define STEPS_LEAST 0.5 // of all steps: what is seen in more is no accident
#define TEAM_LEAST 0.5  // of that time: other threads that ran for so long may be what the step waits for
#define OFF_LEAST 0.1   // of a step: interrupts, and hosts of virtual machines that take a CPU, are less in the median step

static const char *before(const base_text *text)
{
    return text->length == 0 ? "in every step, or in most: " : "; ";
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
    base_text all = {0};
    char steps[64];
    text[0] = 0;
    if (profile->stages_measured) return false;
    const bool child = usual(profile, TAG_CHILD, steps);
    if (child) base_text_add(&all, "%sa child process ended %s", before(&all), steps);
    const bool files = usual(profile, TAG_FILES, steps);
    if (files) base_text_add(&all, "%sfiles, pipes or sockets were read or written %s", before(&all), steps);
    const bool gpu = strncmp(profile->device, "cuda", 4) == 0; // that a host waits for its GPU is no finding
    const bool off = tail->off_share >= OFF_LEAST && !gpu /* false for NaN */,
               team = tail->team_cores >= TEAM_LEAST * tail->off_share;
    if (off) {
        char threads[128] = "";
        if (team)
            base_format(threads, sizeof threads, ", which used up to %s cores and may compute for it",
                        PROFILE_NUMBER(tail->team_cores, 2));
        base_text_add(&all,
                      "%sthe thread neither ran nor waited for a CPU for %.0f %% of a step: it slept, or waited for a device, a "
                      "lock, a child process or other threads of this process%s",
                      before(&all), 100.0 * tail->off_share, threads);
    }
    const bool beside = child || files || (off && !team);
    if (child || files) base_text_add(&all, ". How long files and child processes take was not measured");
    if (beside) base_text_add(&all, ". Look there before changing the model");
    if (all.status == MLFF_OK && all.length > 0) {
        snprintf(text, text_bytes, "%s", all.text);
        text[base_whole_length(text, text_bytes)] = 0;
    }
    base_text_free(&all);
    return beside;
}
