/* SPDX-License-Identifier: MIT */
/* profile_teacher.h: quantum-chemical methods and KIM models as what `mlff profile` measures. */
#ifndef PROFILE_TEACHER_H
#define PROFILE_TEACHER_H

#include "mlff_profile.h"

/* Opens the teacher, with n_threads processes (0: one for each core), for systems such as `system`. Fails as mlff_teacher_open and
 * mlff_teacher_check. */
mlff_status profile_teacher_callable(const char *name, int n_threads, const mlff_system *system, mlff_callable *callable_out);

#endif
