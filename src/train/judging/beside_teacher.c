// SPDX-License-Identifier: MIT
// beside_teacher.c: a teacher's forces at structures of the verdict.
#include "beside_teacher.h"

static bool ends_verdict(mlff_status status)
{
    return status == MLFF_ERR_MEMORY || status == MLFF_ERR_DEVICE || status == MLFF_ERR_INTERRUPTED;
}

mlff_teacher *beside_teacher_of(const mlff_force_field *field)
{
    return field->forces == mlff_teacher_forces ? field->context : NULL;
}

int beside_teacher_parallel(const mlff_force_field *field)
{
    const mlff_teacher *teacher = beside_teacher_of(field);
    return teacher && !teacher->kind->forces ? teacher->facts.n_parallel : 1;
}

mlff_status beside_teacher_label(const mlff_force_field *teacher, mlff_system *const *systems, int n, mlff_label *labels)
{
    if (beside_teacher_parallel(teacher) > 1)
        return mlff_teacher_compute(teacher->context, (const mlff_system *const *)systems, n, labels);
    for (int k = 0; k < n; k++) {
        mlff_label *to = &labels[k];
        mlff_status status = teacher_label_allocate(to, systems[k]->n_atoms, false);
        if (status != MLFF_OK) return status;
        status = teacher->forces(teacher->context, systems[k], &to->energy, to->forces);
        if (ends_verdict(status)) return status;
        if (status != MLFF_OK) teacher_label_fail(to, status);
    }
    return MLFF_OK;
}
