/* SPDX-License-Identifier: MIT */
/* emulate.h: how a test asks the emulated GPU what was done with it, and makes it fail. The functions are found by dlsym in
 * libmlff_cuda_emulated.so. Settings read when the plugin is opened are environment variables:
 *
 *   MLFF_EMULATE_DEVICES=1         GPUs the machine has; 0: the driver sees none
 *   MLFF_EMULATE_DRIVER=12080      CUDA version of the driver; 0: no driver
 *   MLFF_EMULATE_CAPABILITY=9.0    with it the shared memory of a block, and clusters from 9.0 on
 *   MLFF_EMULATE_MEMORY=1073741824 bytes of each GPU
 *   MLFF_EMULATE_FAIL=[function:]nth[:error]    as emulate_fail; without an error the GPU is lost (719); with 600 of
 *                                  cudaStreamQuery or cudaEventQuery, a kernel never ends, and a call that waits for it aborts
 *   MLFF_EMULATE_DELAY=seed        warps and blocks pause at random, asynchronous stores and copies are late: a kernel that is
 *                                  synchronized gives the same bits with any seed
 *
 * Work on a stream is done as late as CUDA allows: when somebody waits for it. Forgotten waits give old results. So do reads of a
 * kernel that is launched with overlap (gpu/ptx/launch.cuh) before it waits for the previous one: threads of its first, a middle and its
 * last blocks run until they wait before the previous kernel does, or before the one before that where the previous one lets it. New
 * memory is full of NaN. The GPU's timer counts what was done, not time: two runs read the same. */
#ifndef EMULATE_H
#define EMULATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulate_counts {
    int64_t calls, allocations, captures, launches, graph_launches, copies,
        early; /* since the plugin was opened; early: kernels that began before the one in front of them was complete */
    int64_t blocks, block_bytes, host_blocks, streams, events, graphs,
        executables; /* that exist now; graphs: not yet destroyed */
    int64_t steps;   /* exchanges and barriers of warps, blocks and clusters so far: what kernels have done */
} emulate_counts;

/* Objects that exist, and counts so far. */
typedef void (*emulate_counts_function)(emulate_counts *counts_out); /* emulate_counts_get */
/* Call number `nth` from now (1: the next) of `function` (NULL: of any) answers `error`. An error that loses the GPU (700,
 * 714, 719, 214) stays until emulate_mend. nth 0: no failure is planned. */
typedef void (*emulate_fail_function)(const char *function, int64_t nth, int error); /* emulate_fail */
/* Resets errors of the GPU; its memory is kept. Returns whether a planned failure occurred. */
typedef int (*emulate_mend_function)(void); /* emulate_mend */

#ifdef __cplusplus
}
#endif
#endif
