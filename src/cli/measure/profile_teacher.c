// SPDX-License-Identifier: MIT
// profile_teacher.c: a teacher that computes in a process of its own, as a force field to be profiled.
#include "profile_teacher.h"

#include <string.h>

#include "base/base.h"
#include "mlff_distill.h"

typedef struct teacher_context {
    mlff_teacher *teacher;
    double *forces; // where they are not asked for
    size_t capacity;
    int64_t last_ns; // of the last call
} teacher_context;

static const mlff_stage stages[] = {{"teacher", "", -1, "the call to the teacher's process and its work there"}};

static mlff_status step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces, double *stress)
{
    teacher_context *own = context;
    double value;
    (void)wanted;
    (void)stress;
    const int64_t begin = base_clock_ns();
    mlff_status status = base_grow(&own->forces, &own->capacity, 3 * (size_t)frame->n_atoms, sizeof *own->forces, "forces");
    if (status == MLFF_OK)
        status = mlff_teacher_forces(own->teacher, frame, energy ? energy : &value, forces ? forces : own->forces);
    own->last_ns = base_clock_ns() - begin;
    return status;
}

// The clock is always on.
static mlff_status stage_clock_set(void *context, int on)
{
    (void)context;
    (void)on;
    return MLFF_OK;
}

static void stage_times(void *context, double *time_ns)
{
    const teacher_context *own = context;
    time_ns[0] = (double)own->last_ns;
}

static void destroy(void *context)
{
    teacher_context *own = context;
    mlff_teacher_destroy(own->teacher);
    base_free(own->forces);
    base_free(own);
}

mlff_status profile_teacher_callable(const char *name, int n_threads, const mlff_system *system, mlff_callable *callable_out)
{
    mlff_status status = MLFF_OK;
    mlff_teacher_options options = mlff_teacher_options_default();
    mlff_teacher_info info;
    teacher_context *own = base_alloc(1, sizeof *own, "a teacher");
    if (!own) return MLFF_ERR_MEMORY;
    options.n_threads = n_threads;
    MLFF_TRY(mlff_teacher_open(name, &options, &own->teacher));
    MLFF_TRY(mlff_teacher_check(own->teacher, system, NULL));
    mlff_teacher_info_get(own->teacher, &info);
    *callable_out = (mlff_callable){
        .struct_size = sizeof *callable_out,
        .name = info.name,
        .device = "cpu",
        .notes =
            "computes in a process of its own, for which each step sleeps; its memory and processor time are not in this report",
        .context = own,
        .properties = MLFF_ENERGY | MLFF_FORCES,
        .step = step,
        .n_stages = 1,
        .stages = stages,
        .stage_clock_set = stage_clock_set,
        .stage_times = stage_times,
        .destroy = destroy,
    };
    own = NULL;
done:
    if (own) destroy(own);
    return status;
}
