// SPDX-License-Identifier: MIT
// wait_cuda.c: waiting for the GPU, with a limit. A kernel that does not end cannot be stopped from its own process: cudaFree,
// cudaDeviceReset and new streams would wait for it as well. Once the limit has passed, no call that waits is made, and what the
// plugin holds is left to the end of the process.
//
// Asking again and again costs the same as cudaStreamSynchronize, which also polls: 21.49 and 21.54 µs for three small kernels in a
// graph, medians of 10000 on an H200. A wait of more than SPIN_NS sleeps between its questions.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "device_cuda.h"

enum { USUAL_LIMIT = 600, QUERIES = 256, SPIN_NS = 20000000, SLEEP_NS = 50000, LONGEST_GAP_NS = 1000000000, PATIENCE = 20 };

static atomic_bool stuck;

// Seconds; MLFF_GPU_TIMEOUT, 0: no limit.
static double limit(void)
{
    const char *text = getenv("MLFF_GPU_TIMEOUT");
    char *end = NULL;
    if (!text || !*text) return USUAL_LIMIT;
    const double seconds = strtod(text, &end);
    if (end != text && *end == 0 && seconds >= 0) return seconds;
    host.warn("MLFF_GPU_TIMEOUT: \"%.40s\" is not a number of seconds, 0 or more; %d s are used", text, (int)USUAL_LIMIT);
    return USUAL_LIMIT;
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

bool cuda_stuck(void)
{
    return atomic_load_explicit(&stuck, memory_order_relaxed);
}

// The runtime's own end of the process waits for the kernel; the driver's does not (0.4 s on an H200).
static void leave(int status, void *context)
{
    (void)context;
    fflush(NULL);
    _exit(status);
}

double cuda_seconds(void)
{
    return 1e-9 * (double)clock_ns();
}

// For the event, or without one for all work on the stream.
static cudaError_t wait_for(cudaStream_t stream, cudaEvent_t event, double expected_s)
{
    cudaError_t error;
    int64_t last = 0, waited = 0;
    double limit_ns = 0;
    if (cuda_stuck()) return cudaErrorLaunchTimeout;
    for (unsigned n = 1; (error = event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady; n++) {
        if (waited < SPIN_NS && n % QUERIES != 0) continue;
        const int64_t now = clock_ns();
        if (last == 0) {
            last = now;
            limit_ns = 1e9 * limit();
            if (limit_ns > 0) limit_ns += 1e9 * PATIENCE * expected_s;
        }
        waited += now - last < LONGEST_GAP_NS ? now - last : LONGEST_GAP_NS; // the process may have been stopped in between
        last = now;
        if (limit_ns > 0 && (double)waited > limit_ns) {
            if (!atomic_exchange(&stuck, true)) on_exit(leave, NULL);
            return cudaErrorLaunchTimeout;
        }
        if (waited >= SPIN_NS) nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    return error;
}

cudaError_t cuda_wait(cudaStream_t stream, double expected_s)
{
    return wait_for(stream, NULL, expected_s);
}

cudaError_t cuda_wait_event(cudaEvent_t event)
{
    return wait_for(NULL, event, 0);
}

// An event that comes after all work of the current device's context, of other libraries as well. False: an older driver.
static bool record_all_work(cudaEvent_t event)
{
#if CUDART_VERSION >= 12050
    void *current = NULL, *record = NULL, *context = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &current, 4000, cudaEnableDefault, &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess && current &&
        cudaGetDriverEntryPointByVersion("cuCtxRecordEvent", &record, 12050, cudaEnableDefault, &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess && record && ((int (*)(void **))current)(&context) == 0)
        return ((int (*)(void *, cudaEvent_t))record)(context, event) == 0;
#else
    (void)event;
#endif
    return false;
}

cudaError_t cuda_wait_device(void)
{
    cudaEvent_t event;
    if (cuda_stuck()) return cudaErrorLaunchTimeout;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
    error = record_all_work(event) ? cuda_wait_event(event) : cudaDeviceSynchronize();
    if (!cuda_stuck()) cudaEventDestroy(event);
    return error;
}
