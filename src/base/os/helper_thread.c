// SPDX-License-Identifier: MIT
// helper_thread.c: one thread that does one piece of work at a time.
#include "base/helper_thread.h"

#include <signal.h>

static void *serve(void *argument)
{
    helper_thread *h = argument;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->work && !h->ends) pthread_cond_wait(&h->changed, &h->lock);
        if (!h->work) break;
        void (*work)(void *) = h->work;
        pthread_mutex_unlock(&h->lock);
        work(h->context);
        pthread_mutex_lock(&h->lock);
        h->work = NULL;
        pthread_cond_signal(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

// Signals are left to the program: the thread blocks them.
bool helper_begin(helper_thread *h)
{
    sigset_t all, old;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    h->begun = pthread_create(&h->thread, NULL, serve, h) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return h->begun;
}

void helper_end(helper_thread *h)
{
    if (!h->begun) return;
    pthread_mutex_lock(&h->lock);
    h->ends = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    h->begun = false;
}

void helper_start(helper_thread *h, void (*work)(void *context), void *context)
{
    pthread_mutex_lock(&h->lock);
    h->work = work;
    h->context = context;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void helper_wait(helper_thread *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->work) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}
