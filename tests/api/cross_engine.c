// SPDX-License-Identifier: MIT
// cross_engine.c: the engine on a processor that is not the builder's (tools/check_aarch64 runs it under emulation): the fast
// float32 path against the float64 reference, and that against a finite difference.
#include <math.h>
#include <stdio.h>

#include "mlff.h"

enum { MAX_ATOMS = 64 };

static mlff_status compute(const mlff_model *model, mlff_precision precision, const mlff_system *system, double *energy,
                           double *forces)
{
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator = NULL;
    options.precision = precision;
    mlff_status status = mlff_evaluator_create(model, &options, &evaluator);
    if (status == MLFF_OK) {
        int32_t first_atom[2];
        mlff_batch batch;
        mlff_batch_from_system(system, first_atom, &batch);
        status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = energy, .forces = forces});
    }
    mlff_evaluator_destroy(evaluator);
    return status;
}

// 0 if forces agree: float32 with float64 to 2e-5 of the largest (sums of some 100 terms in float32), float64 with the
// energy's central difference along x of each atom to 1e-6 of the largest (h = 1e-4 Å: the error of the formula is h²).
static int check(const mlff_model *model, const char *name, mlff_status *status)
{
    mlff_system *system = NULL;
    double energy, high, low, fast[3 * MAX_ATOMS], exact[3 * MAX_ATOMS], largest = 0, fast_error = 0, slope_error = 0;
    const double h = 1e-4;

    *status = mlff_system_build(name, 8, 0, &system);
    if (*status == MLFF_OK) *status = mlff_system_perturb(system, 300.0, 1);
    if (*status == MLFF_OK) *status = compute(model, MLFF_FLOAT32, system, &energy, fast);
    if (*status == MLFF_OK) *status = compute(model, MLFF_FLOAT64, system, &energy, exact);
    for (int k = 0; *status == MLFF_OK && k < 3 * system->n_atoms; k++) {
        largest = fmax(largest, fabs(exact[k]));
        fast_error = fmax(fast_error, fabs(fast[k] - exact[k]));
    }
    for (int i = 0; *status == MLFF_OK && i < system->n_atoms; i++) {
        double *x = &system->positions[3 * i], start = *x;
        *x = start + h;
        *status = compute(model, MLFF_FLOAT64, system, &high, NULL);
        *x = start - h;
        if (*status == MLFF_OK) *status = compute(model, MLFF_FLOAT64, system, &low, NULL);
        *x = start;
        slope_error = fmax(slope_error, fabs(-(high - low) / (2 * h) - exact[3 * i]));
    }
    if (*status == MLFF_OK)
        printf("%s: max|F| %.3e eV/Å, float32 off by %.1e of it, difference quotient by %.1e\n", name, largest,
               fast_error / largest, slope_error / largest);
    mlff_system_destroy(system);
    return !(*status == MLFF_OK && fast_error <= 2e-5 * largest && slope_error <= 1e-6 * largest);
}

int main(void)
{
    mlff_model *model = NULL;
    const mlff_setting settings[] = {{"n_features", "32"}, {"n_layers", "2"}, {"seed", "1"}, {0}};
    mlff_status status = mlff_model_create("painn", settings, &model);
    int wrong = status != MLFF_OK;
    if (!wrong) wrong |= check(model, "ethanol", &status);
    if (!wrong) wrong |= check(model, "silicon", &status);
    if (status != MLFF_OK) fprintf(stderr, "%s\n", mlff_last_error());
    mlff_model_destroy(model);
    return wrong;
}
