/* SPDX-License-Identifier: MIT */
/* lj_model.h: the Lennard-Jones architecture of the library. */
#ifndef LJ_MODEL_H
#define LJ_MODEL_H

#include "lennard_jones/lj.h"
#include "model/model.h"

extern const model_architecture lj_architecture;

/* Operations and bytes of one directed pair in lj_model.c: squared distance 5, root 1, the potential, gradient 4, sum 2; a vector
 * read and a gradient written. */
enum { LJ_WORK_PER_PAIR = 5 + 1 + LJ_PAIR_FLOPS + 4 + 2, LJ_BYTES_PER_PAIR = 48, LJ_BYTES_PER_ATOM = 8 };

#endif
