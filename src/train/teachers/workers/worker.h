/* SPDX-License-Identifier: MIT */
/* worker.h: processes that compute with a library of others, which may crash or hang in a structure, and the messages between them and
 * their parent. worker.c is the process's side, worker_pool.c the parent's.
 *
 * The parent sends a request with its arrays, the worker answers with a reply with its forces; one at a time. The worker ends
 * when its socket is closed. */
#ifndef WORKER_H
#define WORKER_H

#include "base/sha256.h"
#include "train/teachers/teacher.h"

/* Followed by species int32_t[n_atoms] and positions double[n_atoms][3] in Å. */
typedef struct worker_request {
    int32_t n_atoms, n_unpaired;
    double charge, cell[9]; /* e, Å */
    int32_t periodic[3];
} worker_request;

/* Followed, if the status is MLFF_OK, by forces double[n_atoms][3] in eV/Å. */
typedef struct worker_reply {
    int32_t status;
    double energy;    /* eV */
    double stress[6]; /* eV/Å³; stress[0] is NaN if absent */
    char text[200];
} worker_reply;

/* The first message of a worker: what it opened. */
typedef struct worker_hello {
    int32_t status, n_elements;
    unsigned char elements[MLFF_MAX_ATOMIC_NUMBER]; /* [n_elements] */
    char hash[SHA256_TEXT_BYTES];
    char text[400]; /* a description, or the error */
} worker_hello;

typedef struct worker_kind {
    const char *name; /* begins its messages */
    const char *hint; /* where its process does not start */
    /* In the worker: opens what `argument` names and fills hello but its status. What is opened lives as long as the process. */
    mlff_status (*open)(const char *argument, void **session_out, worker_hello *hello);
    /* In the worker: energy (eV), stress and forces[n_atoms][3] (eV/Å). The positions may be overwritten. */
    mlff_status (*compute)(void *session, const worker_request *request, const int32_t *species, double *positions,
                           worker_reply *reply, double *forces);
} worker_kind;

extern const worker_kind worker_xtb, worker_kim;

/* A worker's life, in a new process. Never returns. */
void worker_run(int socket, const worker_kind *kind, const char *argument) __attribute__((noreturn));
/* All of the bytes, or false: the other end is gone. */
bool worker_send(int socket, const void *bytes, size_t n_bytes);
bool worker_receive(int socket, void *bytes, size_t n_bytes);
/* Of a library opened in this worker: a symbol; the name of the file it is in, links resolved, which tells the version. */
bool worker_find(void *library, const char *name, void *function);
void worker_library_file(const void *function, char *text, size_t text_bytes);
/* One thread a process: of libraries loaded so far, and of those to come. */
void worker_limit_threads(void);

typedef struct worker_pool worker_pool;

/* Starts options->n_threads workers (0: one for each core). Fails with what `open` says, MLFF_ERR_LIMIT where no process can be
 * started, MLFF_ERR_UNSUPPORTED where it ends at once. */
mlff_status worker_pool_create(const worker_kind *kind, const char *argument, const mlff_teacher_options *options,
                               worker_pool **pool_out);
void worker_pool_destroy(worker_pool *pool);
const worker_hello *worker_pool_hello(const worker_pool *pool);
int worker_pool_size(const worker_pool *pool);
/* As teacher_kind.compute; from several threads at once. */
mlff_status worker_pool_compute(worker_pool *pool, const mlff_system *const *systems, int n, mlff_label *labels);

#endif
