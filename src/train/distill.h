/* SPDX-License-Identifier: MIT */
/* distill.h: parts of a distillation run (distill.c). */
#ifndef DISTILL_H
#define DISTILL_H

#include "base/base.h"
#include "mlff_train.h"

/* Adds the settings as the JSON of config.json. */
void distill_config_write(const mlff_distill_config *config, base_text *text);
/* Writes the page of a run: verdict, learning curves, parity of the held-out structures. Needs nothing from elsewhere. */
mlff_status distill_report(const mlff_verdict *verdict, const mlff_model *student, const mlff_dataset *test,
                           const char *history_path, const mlff_distill_config *config, const char *path);

#endif
