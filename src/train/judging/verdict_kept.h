/* SPDX-License-Identifier: MIT */
/* verdict_kept.h: bars that were measured before a verdict was interrupted, so that they need not be measured again. */
#ifndef VERDICT_KEPT_H
#define VERDICT_KEPT_H

#include "verdict.h"

/* Bars that are measured together, on one system. */
enum verdict_part { VERDICT_SPEED, VERDICT_NVE, VERDICT_HOT, VERDICT_CORE, VERDICT_PRESSED, VERDICT_OWN, VERDICT_COMPARE };

/* What the file at `path` holds, if it is there. `origin` names student and teacher by their content: bars of others, of another build of
 * the library, processor, system or setting are measured again. Fails with MLFF_ERR_IO, MLFF_ERR_MEMORY. */
mlff_status verdict_kept_open(const char *path, const char *origin, mlff_device device, verdict_kept **kept_out);
/* The file is there, is not empty, and has no part of a verdict. */
bool verdict_kept_is_foreign(const verdict_kept *kept);
/* As mlff_verdict_is_kept, and as mlff_verdict_kept_finish. */
bool verdict_kept_in_use(const verdict_kept *kept);
mlff_status verdict_kept_finish(const verdict_kept *kept);
void verdict_kept_free(verdict_kept *kept);

/* Adds the bars of a part: those of the file, else those that `measure` finds, which the file then has too. Fails as `measure`, and with
 * MLFF_ERR_MEMORY. */
mlff_status verdict_measure(const verdict_run *run, enum verdict_part part, mlff_status (*measure)(const verdict_run *run));

/* Numbers of one run of the comparison with the teacher, by names. */
typedef struct verdict_values {
    const char *name;
    double *values; /* [n] */
    int n;
} verdict_values;
/* Those of run k in the file; false where they are not there. */
bool verdict_kept_run(const verdict_run *run, int k, const verdict_values *values, int n);
/* Writes them, if there is a file. Fails with MLFF_ERR_MEMORY. */
mlff_status verdict_keep_run(const verdict_run *run, int k, const verdict_values *values, int n);

#endif
