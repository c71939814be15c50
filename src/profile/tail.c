// SPDX-License-Identifier: MIT
// tail.c: why the slow steps are slow. Each has one cause: the most specific thing that was seen in it and is not seen in most
// steps anyway. P99 is then told by causes: how many of the steps beyond it, and how much of the time they took beyond the median.
#include <math.h>
#include <string.h>

#include "profile.h"

// Bits of the tags, from what explains most to what may merely come along: a buffer that grows is an allocation, and that is
// page faults.
static const int by_weight[N_TAGS] = {6, 1, 5, 4, 2, 0, 7, 3};
enum { REBUILD_BIT = 0 };
#define USUAL 0.5         // what is seen in more of all steps than this explains none of them
#define REBUILD_REACH 1.3 // a rebuild alone takes no longer than this times the median of steps with one

const char *tail_cause_name(int cause)
{
    return cause < N_TAGS ? profile_tag_names[cause] : "unknown";
}

int tail_cause(const mlff_profile *profile, uint32_t tags, double ms)
{
    double n = (double)profile->summary.n_steps;
    uint32_t telling = 0;
    for (int k = 0; k < N_TAGS; k++)
        if (tags >> k & 1 && (double)profile->n_tagged[k] <= USUAL * n) telling |= 1u << k;
    // A rebuild is expected, and its usual cost known: an accident on top of it shows in the time.
    if (telling >> REBUILD_BIT & 1 && ms <= REBUILD_REACH * profile->rebuild_median_ms) return REBUILD_BIT;
    for (int i = 0; i < N_TAGS; i++)
        if (telling >> by_weight[i] & 1) return by_weight[i];
    return UNKNOWN_CAUSE;
}

void tail_derive(mlff_profile *profile, const double *times_ms, const uint16_t *tags, int64_t n)
{
    profile_tail *tail = &profile->tail;
    *tail = (profile_tail){.threshold_ms = profile->summary.latency_ms.p99, .median_ms = profile->summary.latency_ms.median};
    for (int64_t i = 0; i < n; i++) {
        if (!(times_ms[i] > tail->threshold_ms)) continue;
        int cause = tail_cause(profile, tags[i], times_ms[i]);
        tail->n_steps++;
        tail->n_by_cause[cause]++;
        tail->excess_ms[cause] += times_ms[i] - tail->median_ms;
    }
}

double tail_excess_ms(const profile_tail *tail)
{
    double sum = 0.0;
    for (int k = 0; k < N_CAUSES; k++) sum += tail->excess_ms[k];
    return sum;
}

int tail_order(const profile_tail *tail, int order[N_CAUSES])
{
    int n = 0;
    for (int k = 0; k < N_CAUSES; k++) {
        if (tail->n_by_cause[k] == 0) continue;
        int place = n++;
        for (; place > 0 && tail->excess_ms[order[place - 1]] < tail->excess_ms[k]; place--) order[place] = order[place - 1];
        order[place] = k;
    }
    return n;
}

void tail_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const profile_tail *tail = &profile->tail;
    double excess = tail_excess_ms(tail);
    int order[N_CAUSES], n = tail_order(tail, order);
    text[0] = 0;
    if (tail->n_steps < 1 || !(excess > 0.0)) return;
    size_t length = (size_t)snprintf(
        text, text_bytes, "%lld %s beyond P99 (%s) and took %s more than the median each on average: ", (long long)tail->n_steps,
        tail->n_steps == 1 ? "step lies" : "steps lie", PROFILE_TIME(tail->threshold_ms),
        PROFILE_TIME(excess / (double)tail->n_steps));
    for (int i = 0; i < n && length < text_bytes; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%.0f %% of that is %s (%lld step%s)", i ? ", " : "",
                                   tail->excess_ms[order[i]] / excess * 100.0, tail_cause_name(order[i]),
                                   (long long)tail->n_by_cause[order[i]], tail->n_by_cause[order[i]] == 1 ? "" : "s");
}
