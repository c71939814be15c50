/* SPDX-License-Identifier: MIT */
/* torch_file.h: a file of torch.save (PyTorch 1.6 and later) as a pickle and its tensors. */
#ifndef TORCH_FILE_H
#define TORCH_FILE_H

#include "model/model.h"
#include "pickle.h"

typedef struct torch_file torch_file;
/* `bytes` and `path` (the name in errors) are borrowed until the file is destroyed. */
mlff_status torch_file_parse(const char *bytes, size_t length, const char *path, torch_file **file_out);
const pickle_value *torch_file_root(const torch_file *file);
/* As pickle_global(). */
const char *torch_file_global(const torch_file *file, size_t index);
/* Adds a tensor or parameter of the pickle to `weights` as `name`, dense and row-major: float64 stays, float16 becomes
 * float32, a scalar becomes a vector of one. */
mlff_status torch_file_add_tensor(torch_file *file, const pickle_value *value, const char *name, model_weights *weights);
void torch_file_destroy(torch_file *file);

#endif
