// SPDX-License-Identifier: MIT
// tail.c: in words, where the time went that steps took beyond the median.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"

#define NAMED_OF_EXCESS 0.10 // a cause of less of the excess (waits for a CPU apart) than this is not named,
#define NAMED_OF_RUN 0.01    // nor one of less of all time than this,
#define NAMED_ALONE 0.05     // or than this where it is not regular and other programs run, or
#define SHARED_OF_RUN 0.15   // waits for a GPU beyond the usual ones are told from so much of all time on,
#define SHARED_TIMES 3.0     // if they are so many times as long
#define NAMED_STEPS 3        // it made fewer steps slow: a virtual machine loses its processor unseen now and then

const char *const profile_cause_names[N_CAUSES] = {
    "rebuild",           "buffer growth", "waiting for a CPU", "page faults",        "clock drop",    "file I/O",
    "compilation",       "allocation",    "child process",     "garbage collection", "other threads", "sleep, lock or device",
    "extra computation", "GPU busy",      "GPU queue",         "calls of the GPU",   "unknown"};

// What else such a step did meanwhile is not told from it.
static const char *const words[N_CAUSES] = {[CAUSE_FILES] = "file I/O or other waits",
                                            [CAUSE_COMPILED] = "compilation or other work",
                                            [CAUSE_CHILD] = "child process or other work"};

const char *tail_cause_words(int cause)
{
    return words[cause] ? words[cause] : profile_cause_names[cause];
}

double tail_excess_ms(const profile_tail *tail)
{
    double sum = 0.0;
    for (int k = 0; k < N_CAUSES; k++) sum += tail->excess_ms[k];
    return sum;
}

int tail_order(const profile_tail *tail, bool named, int order[N_CAUSES])
{
    int n = 0;
    double excess = tail_excess_ms(tail), run_ms = tail->share > 0.0 ? excess / tail->share : 0.0;
    double own = excess - tail->excess_ms[CAUSE_CPU_WAIT]; // what other programs add does not hide what the force field does
    for (int k = 0; k < N_CAUSES; k++) {
        if (tail->n_by_cause[k] == 0) continue;
        bool often = tail->n_by_cause[k] >= NAMED_STEPS && !(tail->cpu_wait_share > CROWDED);
        double least = fmax(NAMED_OF_EXCESS * own, (often || tail->period[k] > 0 ? NAMED_OF_RUN : NAMED_ALONE) * run_ms);
        // The other threads of single steps may have lacked a CPU themselves, as in all of them.
        if (named && k == CAUSE_THREADS && tail->cpu_wait_share > CROWDED && tail->n_by_cause[k] < NAMED_STEPS) continue;
        if (named && (k == UNKNOWN_CAUSE || tail->excess_ms[k] < least)) continue;
        int place = n++;
        for (; place > 0 && tail->excess_ms[order[place - 1]] < tail->excess_ms[k]; place--) order[place] = order[place - 1];
        order[place] = k;
    }
    return n;
}

void tail_cause_text(const profile_tail *tail, int cause, char *text, size_t text_bytes)
{
    char period[48] = "";
    long long n = tail->n_by_cause[cause];
    if (tail->period[cause] > 0)
        snprintf(period, sizeof period, ", every %lld step%s", (long long)tail->period[cause], base_plural(tail->period[cause]));
    base_format(text, text_bytes, "%s %.0f %% (+%s in %s%lld step%s%s)", tail_cause_words(cause),
                100.0 * tail->excess_ms[cause] / fmax(tail_excess_ms(tail), 1e-12), PROFILE_TIME(tail->each_ms[cause]),
                n == 1 ? "" : "each of ", n, base_plural(n), period);
}

void tail_text(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const profile_tail *tail = &profile->tail;
    int order[N_CAUSES], n = tail_order(tail, false, order);
    text[0] = 0;
    if (!(tail_excess_ms(tail) > 0.0)) return;
    size_t length = (size_t)base_format(text, text_bytes,
                                        "%.1f %% of the run is time that steps took beyond the median: ", 100.0 * tail->share);
    for (int i = 0; i < n && i < 5 && length < text_bytes; i++) {
        char cause[160];
        if (i > 0 && tail->excess_ms[order[i]] < 0.01 * tail_excess_ms(tail)) break;
        tail_cause_text(tail, order[i], cause, sizeof cause);
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%s", i ? ", " : "", cause);
    }
}

// Where nothing else uses a GPU, the time from a launch to its start and from the end to the host's notice is some microseconds in every step.
// A thread that waits for a CPU reads longer waits for the GPU, too: on a crowded machine, or where that is not known, nothing is said.
bool tail_gpu_shared(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const profile_tail *tail = &profile->tail;
    const double more_ms = tail->queue_ms - tail->queue_least_ms;
    text[0] = 0;
    if (!(more_ms > SHARED_OF_RUN * profile->summary.latency_ms.mean && tail->queue_ms > SHARED_TIMES * tail->queue_least_ms))
        return false;
    if (!(tail->cpu_wait_share <= CROWDED)) return false;
    base_format(
        text, text_bytes,
        "the GPU was not free: steps wait for it %s on average, a fiftieth of them %s or less. Other programs, or other threads "
        "of "
        "this one, compute on it%s; these times say little about the force field. Measure while nothing else uses the GPU",
        PROFILE_TIME(tail->queue_ms), PROFILE_TIME(tail->queue_least_ms),
        tail->virtual_machine ? ", or the host of this virtual machine took its processors" : "");
    return true;
}

double mlff_profile_cpu_wait(const mlff_profile *profile)
{
    return profile->tail.cpu_wait_share;
}

// Who may have had the CPU: where someone used less than half of what was waited, the waits are of others.
#define HOLDS_SHARE 0.5

bool tail_crowded(const mlff_profile *profile, char *text, size_t text_bytes)
{
    const profile_tail *tail = &profile->tail;
    const char *load = environment_find(&profile->environment, "load_average_at_start");
    const char *cores = environment_find(&profile->environment, "cores_online");
    const char *threads = environment_find(&profile->implementation, "threads"); // of our own models
    const bool single = profile->ceilings.n_threads == 1 || (threads && strcmp(threads, "1") == 0);
    const double wait = tail->cpu_wait_share;
    char where[96] = "", programs[64] = "", team[64] = "", lead[160];
    text[0] = 0;
    if (!(wait > CROWDED)) return false; // also for NaN
    const bool team_may = !(tail->team_cores < HOLDS_SHARE * wait), programs_may = !(tail->program_cores < HOLDS_SHARE * wait);
    if (load && cores) snprintf(where, sizeof where, " (load %.16s on %.16s cores at the start)", load, cores);
    if (isfinite(tail->program_cores))
        base_format(programs, sizeof programs, " (%s cores on average)", PROFILE_NUMBER(tail->program_cores, 2));
    if (isfinite(tail->team_cores)) base_format(team, sizeof team, " (up to %s cores)", PROFILE_NUMBER(tail->team_cores, 2));
    base_format(lead, sizeof lead, "threads of this process waited for a CPU in %.0f %% of the time%s", 100.0 * wait, where);
    if (!team_may && programs_may)
        snprintf(text, text_bytes,
                 "the machine is busy: %s; these times say little about the force field. Measure on an idle machine%s", lead,
                 single ? "" : " or with fewer threads");
    else if (team_may && !programs_may)
        snprintf(text, text_bytes,
                 "%s while other threads of this process ran%s and other programs hardly did: more threads than cores, or a lock "
                 "that they hand on, in Python the global interpreter lock. These times say little about the force field: "
                 "measure without those threads",
                 lead, team);
    else if (team_may)
        snprintf(text, text_bytes,
                 "%s: for other programs%s or for other threads of this process%s, which share cores or a lock, in Python the "
                 "global interpreter lock. These times say little about the force field: measure on an idle machine and with "
                 "fewer threads",
                 lead, programs, team);
    else
        snprintf(text, text_bytes,
                 "%s, but neither other programs%s nor other threads of this process%s ran as long: look for a limit on its "
                 "processor time, as containers have. These times say little about the force field",
                 lead, programs, team);
    return true;
}
