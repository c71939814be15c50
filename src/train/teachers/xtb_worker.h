/* SPDX-License-Identifier: MIT */
/* xtb_worker.h: a process that computes with libxtb, and the messages between it and its parent.
 *
 * The parent sends a request with its arrays, the worker answers with a reply with its forces; one at a time. The worker ends
 * when its socket is closed. */
#ifndef XTB_WORKER_H
#define XTB_WORKER_H

#include "base/base.h"

/* Followed by species int32_t[n_atoms] and positions double[n_atoms][3] in Å. */
typedef struct xtb_request {
    int32_t n_atoms, n_unpaired;
    double charge, cell[9];
    int32_t periodic; /* 1: all three axes */
} xtb_request;

/* Followed, if the status is MLFF_OK and n_atoms > 0, by forces double[n_atoms][3] in eV/Å. The first reply (n_atoms 0) says
 * whether the library is there, and its file in `text`. */
typedef struct xtb_reply {
    int32_t status, n_atoms;
    double energy; /* eV */
    char text[200];
} xtb_reply;

/* A worker's life, in a new process; `method`: 1 GFN1-xTB, 2 GFN2-xTB. Never returns. */
void xtb_worker_run(int socket, int method) __attribute__((noreturn));
/* All of the bytes, or false: the other end is gone. */
bool xtb_send(int socket, const void *bytes, size_t n_bytes);
bool xtb_receive(int socket, void *bytes, size_t n_bytes);

#endif
