/* SPDX-License-Identifier: MIT */
/* cores.h: who used the cores that this process may use. */
#ifndef PROFILE_CORES_H
#define PROFILE_CORES_H

#include <stdint.h>

/* Times so far, ns, that only grow. */
typedef struct cores_use {
    int64_t wall_ns;
    int64_t all_ns;     /* programs ran on cores that this process may use, in ticks of 10 ms; -1: not known */
    int64_t process_ns; /* this process and its children that have ended */
    int64_t team_ns;    /* the other threads of this process */
} cores_use;
void cores_look(cores_use *use_out);
/* Cores that other programs used on average between two looks; NaN: not known, or the looks are less than 0.2 s apart. */
double cores_of_others(const cores_use *first, const cores_use *last);

#endif
