// SPDX-License-Identifier: MIT
// lbfgs.c: limited-memory BFGS (Nocedal & Wright, Numerical Optimization, algorithm 7.4), for molecules in the metric of a model Hessian. A
// step that raises the energy is halved; there is no other line search, since a full step is right near a minimum and each trial costs as
// much as a step.
#include <math.h>
#include <string.h>

#include "atoms/relax/model_hessian.h"
#include "atoms/relax/relax.h"
#include "device/cpu.h"

#define FIRST_CURVATURE 70.0 // eV/Å²: stiff bonds', so that the first step is a careful one
enum { MOST_HALVINGS = 5, METRIC_STEPS = 10 };

const relax_kernels *relax_kernels_get(void)
{
    const char *path;
#if defined(__x86_64__)
    if (cpu_path_choose(NULL, false, &path) == MLFF_OK) {
        path = cpu_vector_path(path);
        if (strcmp(path, "avx512") == 0) return &relax_kernels_avx512;
        if (strcmp(path, "avx2") == 0) return &relax_kernels_avx2;
    }
#endif
    (void)path;
    return &relax_kernels_portable;
}

// Keeps the last step and what it changed, unless the curvature along it was not positive.
static void remember(relaxation *r)
{
    const size_t n = r->n;
    const int slot = (r->newest + 1) % LBFGS_PAIRS;
    double *step = r->steps + (size_t)slot * n, *change = r->changes + (size_t)slot * n;
    for (size_t k = 0; k < n; k++) {
        step[k] = r->x[k] - r->last_x[k];
        change[k] = r->last_force[k] - r->force[k];
    }
    const double curvature = r->kernels->dot(step, change, n);
    if (!(curvature > 1e-10 * r->kernels->dot(step, step, n))) return;
    r->products[slot] = 1 / curvature;
    r->newest = slot;
    if (r->n_pairs < LBFGS_PAIRS) r->n_pairs++;
}

// The metric of a molecule is made at the start, and again after some steps, since bonds turn.
static bool metric_is_due(const relaxation *r)
{
    const mlff_system *system = r->system;
    if (system->periodic[0] || system->periodic[1] || system->periodic[2] || system->n_atoms > MODEL_HESSIAN_ATOMS) return false;
    return !r->metric || r->n_steps - r->metric_step >= METRIC_STEPS;
}

static void update_metric(relaxation *r)
{
    if (!metric_is_due(r) || (!r->metric && !(r->metric = model_hessian_create(r->system)))) return;
    model_hessian_update(r->metric, r->system);
    r->metric_step = r->n_steps;
}

double lbfgs_work(const relaxation *r)
{
    const double n = (double)r->n;
    return n * n * (metric_is_due(r) ? 11 : 1); // making the metric takes as long as about ten steps
}

// d becomes an estimate of H⁻¹ d without the pairs.
static void apply_metric(const relaxation *r, double *d)
{
    const size_t n = r->n;
    if (r->metric) {
        model_hessian_solve(r->metric, d);
        return;
    }
    double scale = 1 / FIRST_CURVATURE;
    if (r->n_pairs > 0) {
        const double *change = r->changes + (size_t)r->newest * n;
        scale = fmin(1 / (r->products[r->newest] * r->kernels->dot(change, change, n)), 1.0);
    }
    for (size_t k = 0; k < n; k++) d[k] *= scale;
}

static void find_direction(relaxation *r)
{
    const size_t n = r->n;
    double *d = r->direction, weight[LBFGS_PAIRS] = {0};
    memcpy(d, r->force, n * sizeof *d);
    for (int p = 0, slot = r->newest; p < r->n_pairs; p++, slot = (slot + LBFGS_PAIRS - 1) % LBFGS_PAIRS) {
        weight[slot] = r->products[slot] * r->kernels->dot(r->steps + (size_t)slot * n, d, n);
        r->kernels->add(d, -weight[slot], r->changes + (size_t)slot * n, n);
    }
    apply_metric(r, d);
    for (int p = r->n_pairs - 1; p >= 0; p--) {
        const int slot = (r->newest + LBFGS_PAIRS - p) % LBFGS_PAIRS;
        const double change = weight[slot] - r->products[slot] * r->kernels->dot(r->changes + (size_t)slot * n, d, n);
        r->kernels->add(d, change, r->steps + (size_t)slot * n, n);
    }
    if (r->kernels->dot(d, r->force, n) > 0) return;
    r->n_pairs = 0; // uphill: without the pairs
    memcpy(d, r->force, n * sizeof *d);
    apply_metric(r, d);
}

void lbfgs_step(relaxation *r)
{
    const size_t n = r->n;
    // float32 energies are uncertain by some 1e-7 of themselves.
    const double noise = 1e-5 + 1e-7 * fabs(r->objective);
    if (r->n_steps > 0 && r->objective > r->last_objective + noise && r->n_halvings < MOST_HALVINGS) {
        r->n_halvings++;
        for (size_t k = 0; k < n; k++) r->x[k] = r->last_x[k] + (r->direction[k] *= 0.5);
        return;
    }
    if (r->n_steps > 0) remember(r);
    if (r->n_halvings == MOST_HALVINGS) r->n_pairs = 0;
    r->n_halvings = 0;
    update_metric(r);
    find_direction(r);
    relaxation_limit(r->direction, n);
    memcpy(r->last_x, r->x, n * sizeof *r->x);
    memcpy(r->last_force, r->force, n * sizeof *r->force);
    r->last_objective = r->objective;
    for (size_t k = 0; k < n; k++) r->x[k] += r->direction[k];
}
