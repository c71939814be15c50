// SPDX-License-Identifier: MIT
// emulate_edge.cc: the kernels of painn_cuda_edge.cu for the CPU.
#define MLFF_EMULATE
#include "kernels/emulate_cuda.h"
#include "model/painn/painn_cuda_edge.cu"
