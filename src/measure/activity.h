/* SPDX-License-Identifier: MIT */
/* activity.h: what the GPUs of this process did during a short window: kernels of any library, copies, fills, and the host's
 * waits for them, through NVIDIA's CUPTI, which is opened at run time ($MLFF_CUPTI, what the process has loaded already,
 * the loader's search, the toolkit's folder). No header of it is needed. */
#ifndef ACTIVITY_H
#define ACTIVITY_H

#include "base/base.h"

typedef enum activity_kind { ACTIVITY_KERNEL, ACTIVITY_COPY, ACTIVITY_FILL, ACTIVITY_WAIT, N_ACTIVITY_KINDS } activity_kind;

typedef struct activity_record {
    int64_t start_ns, end_ns; /* of mlff_clock_ns */
    int32_t name;             /* of a kernel, index of `names`; of a copy its direction (CUPTI's number); -1 */
    uint32_t device, stream;  /* not of a wait, which is the host's */
    uint8_t kind;             /* activity_kind */
    uint8_t in_graph;         /* launched by a graph */
} activity_record;

enum { ACTIVITY_RECORDS_MAX = 1 << 20, ACTIVITY_NAMES_MAX = 4096 };

typedef struct activity {
    activity_record *records; /* [n_records], by start */
    size_t n_records, capacity;
    char **names; /* [n_names] as the C++ compiler's names read, arguments left out */
    int n_names;
    int64_t n_dropped;  /* lost by CUPTI */
    int64_t n_invalid;  /* without a time, or with one that cannot be */
    int64_t n_left_out; /* over ACTIVITY_RECORDS_MAX */
    uint32_t version;   /* CUPTI's API version */
    double open_ns;     /* what the first opening took: the library, and the first switching on */
} activity;

/* Records from here to activity_end; one window at a time in a process. MLFF_ERR_DEVICE, and why, where there is no CUPTI
 * that can be used: no library, another profiler in this process, no permission. */
mlff_status activity_begin(activity *window_out);
/* Ends the window, fetches its records and detaches CUPTI from the process ($MLFF_CUPTI_DETACH=0: leaves it, and steps a
 * little slower); work in flight is the caller's to wait for before. */
mlff_status activity_end(activity *window);
void activity_free(activity *window);

#endif
