/* SPDX-License-Identifier: MIT */
/* synthetic_steps.h: steps whose times, tags and parts are planted, and the profile that tells their causes. */
#ifndef SYNTHETIC_STEPS_H
#define SYNTHETIC_STEPS_H

#include "profile/profile.h"
#include "synthetic.h"

enum { STEPS_N = 1000 };

typedef struct synthetic_steps {
    double times[STEPS_N]; /* ms */
    uint16_t tags[STEPS_N];
    float parts[STEPS_N][N_PARTS]; /* ns */
} synthetic_steps;

/* `parts`: without them there is no clock of the thread. `tail`: what is known of the machine. The caller destroys the profile. */
SUPPORT mlff_profile *synthetic_steps_told(const synthetic_steps *s, bool parts, const char *device, profile_tail tail)
{
    mlff_profile *profile;
    assert_ok(profile_new(&profile));
    assert_ok(profile_set(&profile->device, device));
    assert_ok(mlff_statistics_of(s->times, STEPS_N, &profile->summary.latency_ms));
    profile->summary.n_steps = STEPS_N;
    profile->rebuild_median_ms = 2.0;
    profile->other_median_ms = 1.0;
    profile->tail = tail;
    assert_ok(causes_derive(profile, s->times, s->tags, parts ? s->parts[0] : NULL, STEPS_N));
    return profile;
}

/* Steps of 1 ms, every tenth of them as given. */
SUPPORT mlff_profile *synthetic_every_tenth(const char *device, double ms, uint32_t tags, const float *parts_of_slow,
                                            double cpu_share)
{
    synthetic_steps s = {0};
    for (int i = 0; i < STEPS_N; i++) {
        bool slow = i % 10 == 7;
        s.times[i] = slow ? ms : 1.0;
        s.tags[i] = (uint16_t)(slow ? tags : 0);
        for (int k = 0; slow && parts_of_slow && k < N_PARTS; k++) s.parts[i][k] = parts_of_slow[k];
        if (!slow) s.parts[i][PART_CPU] = (float)(cpu_share * 1e6);
        if (!parts_of_slow || parts_of_slow[PART_LIST] == 0.0f) s.parts[i][PART_LIST] = NAN; // the list has no clock
    }
    return synthetic_steps_told(&s, parts_of_slow != NULL, device, (profile_tail){0});
}

#endif
