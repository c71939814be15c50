/* SPDX-License-Identifier: MIT */
/* synthetic_process.h: what the system does to the process, replaced for one test program (the linker takes these definitions before
 * the library's): nothing. What a profile says of a planted force field is then the same on an idle and on a busy machine. */
#ifndef SYNTHETIC_PROCESS_H
#define SYNTHETIC_PROCESS_H

#include "measure/measure.h"

void process_events_get(process_events *events_out)
{
    *events_out = (process_events){.cpu_ns = -1};
}

void process_events_begin(process_events *events)
{
    *events = (process_events){.cpu_ns = -1};
}

void process_watch_open(process_watch *w)
{
    *w = (process_watch){.open = true};
}

void process_watch_close(process_watch *w)
{
    w->open = false;
}

void process_watch_read(process_watch *w, process_watch_seen *seen_out)
{
    (void)w;
    *seen_out = (process_watch_seen){.wait_ns = -1};
}

void process_watch_skip_files(process_watch *w)
{
    (void)w;
}

#endif
