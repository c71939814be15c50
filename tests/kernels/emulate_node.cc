// SPDX-License-Identifier: MIT
// emulate_node.cc: the kernels of painn_cuda_node.cu for the CPU.
#define MLFF_EMULATE
#include "kernels/emulate_cuda.h"
#include "model/painn/painn_cuda_node.cu"
