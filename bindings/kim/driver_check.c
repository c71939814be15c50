// SPDX-License-Identifier: MIT
// driver_check.c: which models can be KIM models.
#include "driver.h"

mlff_status driver_check_model(const mlff_model *model)
{
    const unsigned outputs = mlff_model_outputs(model);
    mlff_model_info info;
    mlff_model_info_get(model, &info);
    if (!(outputs & MLFF_OUTPUT_ATOM_ENERGIES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s (%s) gives no energies of atoms; KIM sums the energy over the atoms that a process owns", info.name,
                         info.architecture);
    if (!info.conservative || !(outputs & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "%s (%s): its forces are not the derivative of its energy, as KIM defines forces; use mlff md",
                         info.name, info.architecture);
    if (info.n_elements == 0)
        return mlff_fail(
            MLFF_ERR_UNSUPPORTED,
            "%s does not say which elements it knows; import it again with its elements: mlff import --elements H,C,O",
            info.name);
    return MLFF_OK;
}
