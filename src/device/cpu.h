/* SPDX-License-Identifier: MIT */
/* cpu.h: choice of the CPU's fast path. */
#ifndef CPU_H
#define CPU_H

#include "mlff.h"

/* `wanted`, else the environment variable MLFF_CPU, else the best; the name is static. */
mlff_status cpu_path_choose(const char *wanted, const char **path_out);

#endif
