/* SPDX-License-Identifier: MIT */
/* exchange.h: the halo functions of domains in one process: ghosts' rows are read from, or added by, their owner's thread, in the
 * memory of the other domains. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "atoms/dynamics/domain_motion.h"
#include "device/device.h"
#include "mlff.h"
#include "parallel/crew.h"
#include "parallel/decompose.h"

typedef struct exchange exchange;

/* `devices` [n_domains], all of one kind; a GPU may come twice. Fails with MLFF_ERR_UNSUPPORTED where GPUs cannot read each other's
 * memory, MLFF_ERR_DEVICE, MLFF_ERR_MEMORY. */
mlff_status exchange_create(crew *threads, const decomposition *domains, const mlff_device *devices, exchange **exchange_out);
void exchange_destroy(exchange *exchange);
/* The hooks of one domain; valid as long as the exchange. */
mlff_halo exchange_hooks(exchange *exchange, int domain);
/* In the domain's thread, after each decomposition and before its hooks are called. */
mlff_status exchange_update(exchange *exchange, int domain);
/* The plugin of domains on GPUs; NULL: they are on the CPU. */
const device_plugin *exchange_plugin(const exchange *exchange);
/* Sets the tables of ghosts and shared atoms of a motion: pointers to memory of the domain's device, valid until the next update. */
void exchange_tables(const exchange *exchange, int domain, domain_motion *motion);
/* Waits for the other domains; false if one has failed. The time counts as waiting. */
bool exchange_barrier(exchange *exchange, int domain);
/* Time that the domain spent in its hooks and in exchange_barrier so far, and how much of it waiting for others, ns. */
void exchange_times(const exchange *exchange, int domain, double *total_ns, double *wait_ns);
/* How much of that time is no part of the evaluator's stages, ns. */
int64_t exchange_apart(const exchange *exchange, int domain);

#endif
