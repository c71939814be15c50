/* SPDX-License-Identifier: MIT */
/* orb_import.h: reader of orb-models' checkpoints. */
#ifndef ORB_IMPORT_H
#define ORB_IMPORT_H

#include "model/import/torch_file.h"

/* Is it a state_dict of an Orb model? */
bool orb_checkpoint_matches(const torch_file *file);
/* Tensors under orb-models' present names, settings from their names and shapes. The cap of neighbors is not in the file: it
 * follows from the kind of model and the name of the file. Fails with MLFF_ERR_FORMAT, MLFF_ERR_UNSUPPORTED for what an
 * Orb-v2 or Orb-v3 does not have, MLFF_ERR_USAGE, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
mlff_status orb_checkpoint_read(torch_file *file, const char *path, const mlff_import_options *options,
                                model_weights *weights_out);

#endif
