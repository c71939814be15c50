/* SPDX-License-Identifier: MIT */
/* words.h: words of a simulator's input and of environment variables as settings of the engine. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>

#include "mlff.h"

/* "float32", "float64", "tf32" or "bf16"; `origin` names it in the error. Fails with MLFF_ERR_USAGE. */
mlff_status words_precision(const char *origin, const char *word, mlff_precision *precision_out);
/* Its word; of the default, 0, "float32". */
const char *words_of_precision(mlff_precision precision);

/* "images" or "atoms"; `origin` names it in the error. Fails with MLFF_ERR_USAGE. */
mlff_status words_ghosts(const char *origin, const char *word, bool *are_images_out);

/* The keywords of pair_style mlff, each with its value: precision, device, threads. device_out: the last device named; unchanged where none
 * is. Fails with MLFF_ERR_USAGE. */
mlff_status words_style(int n, const char *const *words, mlff_evaluator_options *options, const char **device_out);

/* The elements of pair_coeff mlff, one of the model or NULL for each atom type: their atomic numbers, 0 for NULL. `path` names the model.
 * Fails with MLFF_ERR_USAGE. */
mlff_status words_elements(int n_types, const char *const *words, const mlff_model_info *info, const char *path,
                           int *elements_out);

#endif
