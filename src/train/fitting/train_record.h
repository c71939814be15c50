/* SPDX-License-Identifier: MIT */
/* train_record.h: members of a JSON object, added to a text. Each begins with ", " unless `first`. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include "base/base.h"

/* What is not finite becomes null. */
void record_number(base_text *text, bool first, const char *key, double value);
void record_integer(base_text *text, bool first, const char *key, int64_t value);
/* Escaped; NULL becomes null. */
void record_text(base_text *text, bool first, const char *key, const char *value);
/* Writes a text as a file, whole or not at all. Fails with MLFF_ERR_IO, or with the text's own status. */
mlff_status record_write(const base_text *text, const char *path);

#endif
