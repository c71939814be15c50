// SPDX-License-Identifier: MIT
// stages.c: descriptions of the stages that every evaluator has, and the search for a stage's description.
#include "model/stages.h"

#include <string.h>

#include "model/model.h"

static const model_stage evaluator_stages[] = {
    {"forward", "neighbors",
     "the neighbor search, or the check that the list still holds. Raise the evaluator's skin (fewer rebuilds, a few more pairs "
     "to "
     "skip); frames that do not follow from one another need a new list each time",
     NULL},
    {"forward", "geometry",
     "one pass over all pairs. Its cost is proportional to the number of pairs: a smaller cutoff has fewer", NULL},
    {"backward", "forces",
     "pair gradients summed into forces. Its cost is proportional to the number of pairs: a smaller cutoff has "
     "fewer",
     NULL},
    {"forward", "transfer",
     "copies between host and device. Keep positions and results on the device, or put several structures into one call", NULL},
    {"", "sums", "sums over the atoms of each system. Put several structures into one call, and ask for stress only where needed",
     NULL},
    {"", "launch",
     "the GPU starts the captured graph of the step: 2 to 3 µs however small the step. Put several structures into one call, or "
     "let the GPU integrate (mlff md --device cuda)",
     NULL},
    {"host", "inputs",
     "the host checks the call and copies positions for the GPU. Keep positions on the device, or put several structures into "
     "one "
     "call",
     NULL},
    {"", "repeated",
     "steps are computed twice: features exceed what half precision holds (some 4,000), as in structures far from the training "
     "data, or neighbor rows had to grow. Look at the structures, or train with such ones",
     NULL},
    {"host", "enqueue",
     "the driver's call that starts the step, however small it is. Put several structures into one call, or let the GPU "
     "integrate "
     "(mlff md --device cuda)",
     NULL},
    {"host", "wait",
     "the way of the start to the GPU and of its end back to the host. Put several structures into one call, or let the GPU "
     "integrate (mlff md --device cuda)",
     NULL},
    {"host", "results", "the host copies energies and forces to the caller. Keep results on the device", NULL},
    {0}};

static const model_stage *find(const model_stage *table, const mlff_stage *stage)
{
    for (; table && table->name; table++)
        if (strcmp(table->name, stage->name) == 0 && (!table->phase || strcmp(table->phase, stage->phase) == 0)) return table;
    return NULL;
}

const model_stage *model_stage_find(const mlff_model *model, const mlff_stage *stage)
{
    const model_stage *found = find(model->architecture->stages, stage);
    return found ? found : find(evaluator_stages, stage);
}
