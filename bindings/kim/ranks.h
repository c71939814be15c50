/* SPDX-License-Identifier: MIT */
/* ranks.h: what the MPI launcher tells a process through environment variables; KIM hands no communicator to a model. */
#ifndef RANKS_H
#define RANKS_H

#include <stdbool.h>

#include "mlff.h"

/* Rank of this process on its host; -1 where no launcher said one. */
int ranks_local(void);
/* Ranks of the job; 1 where no launcher said a number. */
int ranks_count(void);
/* Rank in the job; 0 where no launcher said one. */
int ranks_own(void);

/* True in the first process of the launcher on this host that asks, until it ends, and in every process where that cannot be told. */
bool ranks_first_to_warn(void);

/* The device of this process. wanted (MLFF_DEVICE, or NULL): "cpu", "cuda:1" as given; "cuda": the GPU of the local rank, modulo
 * the number of GPUs; "auto" or NULL: the same where a GPU works, else the CPU. MLFF_ERR_USAGE or MLFF_ERR_DEVICE otherwise. */
mlff_status ranks_device(const char *wanted, mlff_device *device_out);

enum { RANKS_TEXT = 512 };
/* An evaluator on the device that `wanted` says as above, written to options->device; with "auto" or NULL on the CPU where the GPU has no
 * path for the model or its precision. text: device, precision and threads, and where "auto" is the CPU why. Fails as ranks_device and
 * mlff_evaluator_create. */
mlff_status ranks_evaluator(const char *wanted, const mlff_model *model, mlff_evaluator_options *options, char text[RANKS_TEXT],
                            mlff_evaluator **evaluator_out);

#endif
