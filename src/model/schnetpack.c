// SPDX-License-Identifier: MIT
// schnetpack.c: SchNetPack saves.
#include "model/model.h"

mlff_status schnetpack_read(const char *path, const mlff_import_options *options, model_weights *weights_out)
{
    (void)options;
    (void)weights_out;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: import of SchNetPack files is not in this build", path);
}
