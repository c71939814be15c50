// SPDX-License-Identifier: MIT
// move_domain.c: the integrator of a domain's own atoms: a function of the plugin's struct.
#include "move_domain.h"

#include "device/device_cuda.h"

mlff_status cuda_move_domain(int move, const struct domain_motion *motion, void *stream)
{
    mlff_status status = MLFF_OK;
    CUDA_TRY(gpu_launch_move(move, motion, stream), "launching the integrator");
done:
    return status;
}
