// SPDX-License-Identifier: MIT
// teacher_workers.c: teachers that compute in worker processes: GFN2-xTB and GFN1-xTB by libxtb (xtb_worker.c), models of the KIM API
// (kim_worker.c).
#include <string.h>

#include "workers/worker.h"

static mlff_status workers_compute(mlff_teacher *teacher, const mlff_system *const *systems, int n, mlff_label *labels)
{
    return worker_pool_compute(teacher->state, systems, n, labels);
}

static void workers_destroy(mlff_teacher *teacher)
{
    worker_pool_destroy(teacher->state);
}

static mlff_status xtb_check(const mlff_teacher *teacher, const mlff_system *system, const char *name)
{
    const char *colon = name[0] ? ": " : "";
    const bool gfn2 = strcmp(teacher->facts.name, "xtb:gfn2") == 0;
    const int n_periodic = system->periodic[0] + system->periodic[1] + system->periodic[2];
    if (n_periodic > 0 && (gfn2 || n_periodic < 3))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s%s%s", name, colon,
                         gfn2 ? "GFN2-xTB knows no periodic systems; take xtb:gfn1 or remove the cell"
                              : "xtb knows systems without a cell or with three periodic axes, nothing between");
    return MLFF_OK;
}

static mlff_status open_workers(const worker_kind *worker, const teacher_kind *kind, const char *argument,
                                const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    mlff_status status = MLFF_OK;
    mlff_teacher *teacher = NULL;
    worker_pool *pool = NULL;

    MLFF_TRY(worker_pool_create(worker, argument, options, &pool));
    MLFF_TRY(teacher_allocate(kind, options, &teacher));
    const worker_hello *hello = worker_pool_hello(pool);
    snprintf(teacher->facts.name, sizeof teacher->facts.name, "%s:%.240s", worker->name, argument);
    snprintf(teacher->facts.description, sizeof teacher->facts.description, "%s", hello->text);
    memcpy(teacher->facts.hash, hello->hash, sizeof teacher->facts.hash);
    memcpy(teacher->facts.elements, hello->elements, (size_t)hello->n_elements);
    teacher->facts.n_elements = hello->n_elements;
    teacher->facts.n_parallel = worker_pool_size(pool);
    teacher->state = pool;
    *teacher_out = teacher;
    pool = NULL;
done:
    worker_pool_destroy(pool);
    return status;
}

mlff_status teacher_xtb_open(const char *method, const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    static const teacher_kind kind = {
        .compute = workers_compute, .check = xtb_check, .destroy = workers_destroy, .concurrent = true};
    if (strcmp(method, "gfn2") != 0 && strcmp(method, "gfn1") != 0)
        return mlff_fail(MLFF_ERR_USAGE, "xtb:%s: not a method of xtb here; xtb:gfn2 and xtb:gfn1 are", method);
    return open_workers(&worker_xtb, &kind, method, options, teacher_out);
}

mlff_status teacher_kim_open(const char *model, const mlff_teacher_options *options, mlff_teacher **teacher_out)
{
    static const teacher_kind kind = {.compute = workers_compute, .destroy = workers_destroy, .concurrent = true};
    if (!model[0])
        return mlff_fail(MLFF_ERR_USAGE, "kim: names no model; give kim:MODEL, as kim-api-collections-management list has it");
    const mlff_status status = open_workers(&worker_kim, &kind, model, options, teacher_out);
    if (status == MLFF_OK) (*teacher_out)->facts.has_stress = true;
    return status;
}
