/* SPDX-License-Identifier: MIT */
/* train_record.h: members of a JSON object, added to a text. Each begins with ", " unless `first`. */
#ifndef TRAIN_RECORD_H
#define TRAIN_RECORD_H

#include "base/base.h"

/* What is not finite becomes null. */
void record_number(base_text *text, bool first, const char *key, double value);
/* As few digits as read back to the same bits: for settings, not for measurements. */
void record_exact(base_text *text, bool first, const char *key, double value);
void record_integer(base_text *text, bool first, const char *key, int64_t value);
/* Escaped, and what is no UTF-8 becomes U+FFFD; NULL becomes null. */
void record_text(base_text *text, bool first, const char *key, const char *value);
/* The same of names of files, which are read back and may be any bytes: what is no UTF-8 becomes \udc80 to \udcff. */
void record_names(base_text *text, bool first, const char *key, const char *value);

#endif
