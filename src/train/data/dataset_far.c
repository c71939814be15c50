// SPDX-License-Identifier: MIT
// dataset_far.c: structures at which a model is far off their labels.
#include <math.h>

#include "atoms/systems_batch.h"
#include "dataset.h"
#include "mlff.h"

enum { STRUCTURES_A_CALL = 256 };

typedef struct far_check {
    mlff_evaluator *evaluator;
    mlff_system *systems[STRUCTURES_A_CALL];
    size_t frames[STRUCTURES_A_CALL]; // the index of each
    int n_systems;
    systems_batch batch;
    double *forces; // [atoms of the batch][3]
    size_t capacity;
} far_check;

static bool is_far(const double *forces, const mlff_system *system, double largest_error)
{
    for (int i = 0; i < system->n_atoms; i++) {
        double square = 0;
        for (size_t k = 3 * (size_t)i; k < 3 * (size_t)i + 3; k++) square += pow(forces[k] - system->label_forces[k], 2);
        if (!(square <= largest_error * largest_error)) return true;
    }
    return false;
}

// Of n systems from `first` on. MLFF_ERR_VALUE: a result is not finite; the system is then found by calls of one.
static mlff_status compute(far_check *check, int first, int n, double largest_error, bool *far_out)
{
    mlff_status status = MLFF_OK;
    MLFF_TRY(systems_batch_fill(&check->batch, check->systems + first, n));
    const size_t n_atoms = (size_t)check->batch.first_atom[n];
    MLFF_TRY(base_grow(&check->forces, &check->capacity, 3 * n_atoms, sizeof *check->forces, "forces"));
    status = mlff_evaluator_compute(check->evaluator, &check->batch.batch, &(mlff_results){.forces = check->forces});
    if (status == MLFF_ERR_VALUE && n == 1) {
        far_out[check->frames[first]] = true;
        status = MLFF_OK;
    } else if (status == MLFF_ERR_VALUE) {
        for (int s = 0; s < n; s++) MLFF_TRY(compute(check, first + s, 1, largest_error, far_out));
    } else if (status == MLFF_OK) {
        for (int s = 0; s < n; s++)
            far_out[check->frames[first + s]] =
                is_far(check->forces + 3 * (size_t)check->batch.first_atom[s], check->systems[first + s], largest_error);
    }
done:
    return status;
}

mlff_status mlff_dataset_remove_far(mlff_dataset *dataset, const mlff_model *model, double largest_error,
                                    const mlff_evaluator_options *options, int64_t *n_removed_out)
{
    mlff_status status = MLFF_OK;
    far_check check = {0};
    bool *far = NULL;
    if (!dataset || !model || !(largest_error > 0))
        return mlff_fail(MLFF_ERR_USAGE, "mlff_dataset_remove_far: a dataset, a model and a largest error above 0 must be given");
    if (!(far = base_alloc(dataset->n_frames, sizeof *far, "structures"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(mlff_evaluator_create(model, options, &check.evaluator));
    for (size_t f = 0; f < dataset->n_frames; f++) {
        if (!dataset->frames[f].system->label_forces) continue;
        check.systems[check.n_systems] = dataset->frames[f].system;
        check.frames[check.n_systems++] = f;
        if (check.n_systems < STRUCTURES_A_CALL) continue;
        MLFF_TRY(compute(&check, 0, check.n_systems, largest_error, far));
        check.n_systems = 0;
    }
    if (check.n_systems > 0) MLFF_TRY(compute(&check, 0, check.n_systems, largest_error, far));
    const int64_t n_removed = dataset_remove(dataset, far);
    if (n_removed_out) *n_removed_out = n_removed;
done:
    systems_batch_free(&check.batch);
    base_free(check.forces);
    mlff_evaluator_destroy(check.evaluator);
    base_free(far);
    return status;
}
