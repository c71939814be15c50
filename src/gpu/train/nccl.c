// SPDX-License-Identifier: MIT
// nccl.c: the functions of libnccl.so.2 that training on several GPUs needs. Their numbers and types are those of NCCL 2.
#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

enum { NCCL_SUM = 0, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8 }; // ncclRedOp_t, ncclDataType_t

static struct {
    int (*init_all)(nccl_comm *comms, int n, const int *devices);
    int (*destroy)(nccl_comm comm);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation, nccl_comm comm, cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*error_text)(int error);
} nccl;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library; // opened once and kept: NCCL has threads of its own

static mlff_status load(void)
{
    const char *named = getenv("MLFF_NCCL"), *path = named && *named ? named : "libnccl.so.2";
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return host.fail(
            MLFF_ERR_DEVICE,
            "training on several GPUs needs NCCL, and %s cannot be opened: install it or set MLFF_NCCL to its path, or "
            "name one GPU",
            path);
    const struct {
        const char *name;
        void **function;
    } wanted[] = {{"ncclCommInitAll", (void **)&nccl.init_all}, {"ncclCommDestroy", (void **)&nccl.destroy},
                  {"ncclAllReduce", (void **)&nccl.all_reduce}, {"ncclGroupStart", (void **)&nccl.group_start},
                  {"ncclGroupEnd", (void **)&nccl.group_end},   {"ncclGetErrorString", (void **)&nccl.error_text}};
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
        *wanted[k].function = dlsym(opened, wanted[k].name);
        if (!*wanted[k].function) {
            dlclose(opened);
            return host.fail(MLFF_ERR_DEVICE, "training on several GPUs: %s has no %s; install NCCL 2", path, wanted[k].name);
        }
    }
    library = opened;
    return MLFF_OK;
}

static mlff_status check(int error, const char *what)
{
    return error == 0 ? MLFF_OK : host.fail(MLFF_ERR_DEVICE, "%s: NCCL: %s", what, nccl.error_text(error));
}

mlff_status nccl_create(const int *devices, int n, nccl_comm *comms_out)
{
    pthread_mutex_lock(&lock);
    const mlff_status status = library ? MLFF_OK : load();
    pthread_mutex_unlock(&lock);
    return status == MLFF_OK ? check(nccl.init_all(comms_out, n, devices), "connecting GPUs") : status;
}

void nccl_destroy(nccl_comm *comms, int n)
{
    for (int k = 0; k < n; k++)
        if (comms[k]) nccl.destroy(comms[k]);
}

mlff_status nccl_sum(nccl_comm *comms, int n, const nccl_vector *floats, size_t n_floats, const nccl_vector *doubles,
                     size_t n_doubles)
{
    int error = nccl.group_start();
    for (int k = 0; k < n && !error; k++)
        error = nccl.all_reduce(floats[k].values, floats[k].values, n_floats, NCCL_FLOAT32, NCCL_SUM, comms[k], floats[k].stream);
    for (int k = 0; k < n && !error; k++)
        error =
            nccl.all_reduce(doubles[k].values, doubles[k].values, n_doubles, NCCL_FLOAT64, NCCL_SUM, comms[k], doubles[k].stream);
    const int ended = nccl.group_end();
    return check(error ? error : ended, "adding gradients of several GPUs");
}
