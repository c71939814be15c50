/* SPDX-License-Identifier: MIT */
/* stages.h: description of a stage: advice for a user, and the least work for a batch. An architecture describes its own stages
 * (model_architecture.stages), stages.c those that every evaluator has. */
#ifndef STAGES_H
#define STAGES_H

#include "mlff.h"

typedef struct model_stage {
    const char *phase, *name; /* phase NULL: both forward and backward */
    const char *advice;       /* what the stage computes, and what makes it faster; what bounds it is measured */
    /* Least work for a batch of this size; NULL: not described. `stage` has phase and layer. */
    void (*work)(const mlff_model *model, const mlff_stage *stage, const mlff_work_size *size, mlff_stage_work *work_out);
} model_stage;

/* The architecture's description of a stage, else the evaluator's; NULL: there is none. */
const model_stage *model_stage_find(const mlff_model *model, const mlff_stage *stage);

#endif
