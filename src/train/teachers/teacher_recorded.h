/* SPDX-License-Identifier: MIT */
/* teacher_recorded.h: a teacher whose calls are kept, so that a sampling that was interrupted makes them once only. */
#ifndef TEACHER_RECORDED_H
#define TEACHER_RECORDED_H

#include "teacher.h"

/* `teacher`, which must outlive it, with energies, forces and deviations alone. Calls that the file at `path` has are not made: those that
 * a process made before it ended, in the same order and of the same structures, by a teacher of this hash. Others follow in it, up to 1 GiB.
 * A file that cannot be written is a warning. Fails with MLFF_ERR_IO where it cannot be read, MLFF_ERR_MEMORY. */
mlff_status teacher_recorded_open(mlff_teacher *teacher, const char *path, mlff_teacher **recorded_out);

#endif
