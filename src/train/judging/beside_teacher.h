/* SPDX-License-Identifier: MIT */
/* beside_teacher.h: a teacher's forces at structures of the verdict. */
#ifndef BESIDE_TEACHER_H
#define BESIDE_TEACHER_H

#include "mlff_distill.h"
#include "train/teachers/teacher.h"

/* NULL for a function of the caller's. */
mlff_teacher *beside_teacher_of(const mlff_force_field *field);
/* The structures that one call computes side by side, where each has a status of its own; 1 where they are computed one by one. */
int beside_teacher_parallel(const mlff_force_field *field);
/* Labels [n], which are empty, or of an earlier call that failed. One structure at which the teacher fails is a label that failed; other
 * failures end the verdict: MLFF_ERR_MEMORY, MLFF_ERR_DEVICE, MLFF_ERR_INTERRUPTED. */
mlff_status beside_teacher_label(const mlff_force_field *teacher, mlff_system *const *systems, int n, mlff_label *labels);

#endif
