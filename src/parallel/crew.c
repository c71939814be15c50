// SPDX-License-Identifier: MIT
// crew.c: threads of the domains. Waits sleep: a step of a domain takes milliseconds, and several threads may share a core. To wake a thread
// takes some 10 to 50 µs, in which its GPU has nothing to do: such threads ask first.
#include "parallel/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ASKING_NS = 200000 };

typedef struct crew_member {
    crew *crew;
    int index;
    pthread_t thread;
} crew_member;

struct crew {
    int n, n_started; // members; threads that exist
    pthread_mutex_t lock;
    pthread_cond_t told, all_there, idle;
    int64_t run; // number of the current run
    bool closing;
    int n_running; // members of this run that have not returned
    int n_waiting; // members that wait in crew_barrier
    atomic_llong phase;
    atomic_bool failed;
    bool on_gpus;
    int64_t failed_phase; // in which a member failed first: waits that ended before it were good
    mlff_status status;   // of the member that failed first
    char error[1100];
    crew_work work;
    void *context;
    crew_member *members;
};

mlff_status crew_ended(void)
{
    return mlff_fail(MLFF_ERR_INTERRUPTED, "another domain failed");
}

static void note_failure(crew *c, mlff_status status)
{
    if (c->failed) return;
    c->failed = true;
    c->failed_phase = c->phase;
    c->status = status;
    snprintf(c->error, sizeof c->error, "%s", mlff_last_error());
    pthread_cond_broadcast(&c->all_there);
}

// Ends the phase if all members that run are there.
static void end_phase(crew *c)
{
    if (c->n_waiting == 0 || c->n_waiting < c->n_running) return;
    c->n_waiting = 0;
    c->phase++;
    pthread_cond_broadcast(&c->all_there);
}

static void *member_thread(void *argument)
{
    const crew_member *member = argument;
    crew *c = member->crew;
    int64_t run = 0;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->run == run && !c->closing) pthread_cond_wait(&c->told, &c->lock);
        if (c->closing) break;
        run = c->run;
        pthread_mutex_unlock(&c->lock);
        const mlff_status status = c->work(c->context, member->index);
        pthread_mutex_lock(&c->lock);
        if (status != MLFF_OK) note_failure(c, status);
        if (--c->n_running == 0) pthread_cond_signal(&c->idle);
        end_phase(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

mlff_status crew_create(int n_members, bool on_gpus, crew **crew_out)
{
    mlff_status status = MLFF_OK;
    crew *c = base_alloc(1, sizeof *c, "threads of domains");
    if (!c) return MLFF_ERR_MEMORY;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->told, NULL);
    pthread_cond_init(&c->all_there, NULL);
    pthread_cond_init(&c->idle, NULL);
    c->n = n_members;
    c->on_gpus = on_gpus;
    if (!(c->members = base_alloc((size_t)n_members, sizeof *c->members, "threads of domains"))) MLFF_TRY(MLFF_ERR_MEMORY);
    for (; c->n_started < n_members; c->n_started++) {
        crew_member *member = &c->members[c->n_started];
        *member = (crew_member){.crew = c, .index = c->n_started};
        if (pthread_create(&member->thread, NULL, member_thread, member) != 0)
            MLFF_FAIL(MLFF_ERR_LIMIT, "the system gives no thread for domain %d of %d; use fewer domains", c->n_started,
                      n_members);
    }
    *crew_out = c;
    c = NULL;
done:
    crew_destroy(c);
    return status;
}

void crew_destroy(crew *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->told);
    pthread_mutex_unlock(&c->lock);
    for (int k = 0; k < c->n_started; k++) pthread_join(c->members[k].thread, NULL);
    pthread_cond_destroy(&c->idle);
    pthread_cond_destroy(&c->all_there);
    pthread_cond_destroy(&c->told);
    pthread_mutex_destroy(&c->lock);
    base_free(c->members);
    base_free(c);
}

mlff_status crew_run(crew *c, crew_work work, void *context)
{
    pthread_mutex_lock(&c->lock);
    c->work = work;
    c->context = context;
    c->n_running = c->n;
    c->n_waiting = 0;
    c->failed = false;
    c->run++;
    pthread_cond_broadcast(&c->told);
    while (c->n_running > 0) pthread_cond_wait(&c->idle, &c->lock);
    const bool failed = c->failed;
    pthread_mutex_unlock(&c->lock);
    return failed ? mlff_fail(c->status, "%s", c->error) : MLFF_OK;
}

// Asks whether a phase has ended, for a while.
static void ask(const crew *c, int64_t phase)
{
    const int64_t start = base_clock_ns();
    while (atomic_load(&c->phase) == phase && !atomic_load(&c->failed))
        if (base_clock_ns() - start > ASKING_NS) return;
}

bool crew_barrier(crew *c)
{
    pthread_mutex_lock(&c->lock);
    const int64_t phase = c->phase;
    c->n_waiting++;
    end_phase(c);
    if (c->on_gpus && c->phase == phase && !c->failed) {
        pthread_mutex_unlock(&c->lock);
        ask(c, phase);
        pthread_mutex_lock(&c->lock);
    }
    while (c->phase == phase && !c->failed) pthread_cond_wait(&c->all_there, &c->lock);
    const bool good = !c->failed || c->failed_phase > phase;
    pthread_mutex_unlock(&c->lock);
    return good;
}
