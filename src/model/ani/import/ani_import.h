/* SPDX-License-Identifier: MIT */
/* ani_import.h: readers of foreign ANI files: NeuroChem's folders and FeNNol's .fnx. */
#ifndef ANI_IMPORT_H
#define ANI_IMPORT_H

#include "model/ani/ani.h"

typedef struct neurochem_net {
    int n_layers, width[ANI_MAX_LAYERS], activation[ANI_MAX_LAYERS];
} neurochem_net;

/* The parts of the importer that read text; `text` is modified. Errors name `path`. */
mlff_status neurochem_params_parse(char *text, const char *path, ani_settings *settings);
mlff_status neurochem_energies_parse(char *text, const char *path, ani_settings *settings);
mlff_status neurochem_input_parse(const char *text, const char *path, const ani_settings *settings,
                                  neurochem_net nets[ANI_MAX_SPECIES]);

/* The whole: the .info file and all it names. */
mlff_status neurochem_read(const char *path, model_weights *weights_out);

/* FeNNol's .fnx of an ANI model: one MessagePack map. */
mlff_status fnx_read(const char *path, model_weights *weights_out);
mlff_status fnx_parse(const char *bytes, size_t length, const char *path, model_weights *weights_out);

#endif
