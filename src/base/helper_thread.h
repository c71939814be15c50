/* SPDX-License-Identifier: MIT */
/* helper_thread.h: one thread that does one piece of work at a time, while its owner does another. */
#ifndef HELPER_THREAD_H
#define HELPER_THREAD_H

#include <pthread.h>

#include "base/base.h"

typedef struct helper_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*work)(void *context); /* NULL: none under way */
    void *context;
    bool begun, ends;
} helper_thread;

/* false: the system gives no more threads. Nothing else may be called then. */
bool helper_begin(helper_thread *helper);
/* Ends the thread once its work is done; nothing where it was not begun, or has ended. */
void helper_end(helper_thread *helper);
/* Starts work(context); the work before must have been waited for. */
void helper_start(helper_thread *helper, void (*work)(void *context), void *context);
void helper_wait(helper_thread *helper);

#endif
