/* SPDX-License-Identifier: MIT */
/* gpu_registry.h: architectures that have GPU kernels, by name, and the stages that their kernels belong to. */
#ifndef GPU_REGISTRY_H
#define GPU_REGISTRY_H

#include "gpu_evaluator.h"

/* A kernel and its stage: "forward/message", "integrate", "train/loss", or "" for a kernel that runs between steps. */
typedef struct gpu_kernel {
    const char *name, *stage;
} gpu_kernel;

typedef struct gpu_architecture {
    const char *name;                     /* as in model_architecture */
    size_t model_bytes, parameters_bytes; /* of the structs it was compiled with */
    /* Fails with MLFF_ERR_UNSUPPORTED for a model or precision that the kernels do not have, MLFF_ERR_MEMORY, MLFF_ERR_DEVICE. */
    mlff_status (*create)(const device_model *model, const mlff_evaluator_options *options, gpu_evaluator **evaluator_out);
    /* NULL: not trained on GPUs. */
    mlff_status (*create_trainer)(const device_trainee *trainee, const struct train_backend_options *options,
                                  struct train_backend **backend_out);
    const gpu_kernel *kernels; /* its own; ends with a name of NULL */
} gpu_architecture;

/* Kernels of src/gpu, which every evaluator runs. */
extern const gpu_kernel gpu_common_kernels[];

/* NULL: unknown. */
const gpu_architecture *gpu_architecture_find(const char *name);
/* Adds an architecture, which is borrowed for ever, before the plugin is used; false if its name is taken or there are too many. */
bool gpu_architecture_register(const gpu_architecture *architecture);

#endif
