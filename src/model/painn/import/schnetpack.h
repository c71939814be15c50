/* SPDX-License-Identifier: MIT */
/* schnetpack.h: reader of what SchNetPack saved for a PaiNN. */
#ifndef SCHNETPACK_H
#define SCHNETPACK_H

#include "model/import/torch_file.h"

/* Tensors under their state_dict names, hyperparameters as metadata. Fails with MLFF_ERR_FORMAT, MLFF_ERR_UNSUPPORTED for an object
 * that is not known, MLFF_ERR_USAGE, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
mlff_status schnetpack_read(torch_file *file, const char *path, const mlff_import_options *options, model_weights *weights_out);

#endif
