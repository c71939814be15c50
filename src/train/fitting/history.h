/* SPDX-License-Identifier: MIT */
/* history.h: history.jsonl, the errors at each validation of a training run, one JSON object a line. */
#ifndef HISTORY_H
#define HISTORY_H

#include "base/base.h"

/* Appends the whole lines of the file up to that step, which a run goes on after; none where there is no file. */
mlff_status history_read(const char *path, int64_t last_step, base_text *lines);

/* Appends a figure of the force errors against the step; nothing where fewer than two lines have errors. */
mlff_status history_draw(const char *path, base_text *page);

#endif
