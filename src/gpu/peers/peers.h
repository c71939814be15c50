/* SPDX-License-Identifier: MIT */
/* peers.h: exchange between GPUs of one process (device/device.h: device_rows). */
#ifndef PEERS_H
#define PEERS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaError_t; `stream` is a cudaStream_t. n_rows is not 0. */
int gpu_launch_rows(const device_rows *rows, void *stream);

#ifdef __cplusplus
}
#endif
#endif
