/* SPDX-License-Identifier: MIT */
/* cpu.h: choice of the CPU's fast path, and its treatment of subnormal numbers. */
#ifndef CPU_H
#define CPU_H

#include <stdbool.h>

#include "mlff.h"

/* `wanted`, else the environment variable MLFF_CPU, else "amx" where there is one and it is `tiled`, else the first; the name is static. */
mlff_status cpu_path_choose(const char *wanted, bool tiled, const char **path_out);

/* The path whose vectors `path` uses: "avx512" of "amx", which has products of matrices of its own, else `path`. */
const char *cpu_vector_path(const char *path);

/* This processor has the path "avx512" and products of bfloat16 (AVX512-BF16). */
bool cpu_has_bfloat16(void);

/* From here on this thread takes subnormal operands and results (below 1.2e-38 in float32) as 0, until cpu_rounding_restore with the
 * value returned. On Intel's processors an instruction that meets one takes some 150 cycles. */
uint64_t cpu_flush_subnormals(void);
void cpu_rounding_restore(uint64_t before);

#endif
