/* SPDX-License-Identifier: MIT */
/* bench_update.h: the optimizer's step that benchmarks of training take, on the CPU and on a GPU. */
#ifndef BENCH_UPDATE_H
#define BENCH_UPDATE_H

#include "model/training/train_backend.h"

static const train_update bench_update = {.learning_rate = 1e-4,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .epsilon = 1e-8,
                                          .clip = 10,
                                          .average = 0.999,
                                          .correction1 = 0.1,
                                          .correction2 = 0.001};

#endif
