// SPDX-License-Identifier: MIT
// evaluator_vibrations.c: harmonic vibrations by central differences of an evaluator's forces.
//
//   K[a][b] = -(F_b(x + h e_a) - F_b(x - h e_a)) / 2h, symmetrized, a and b coordinates of atoms that may move
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"
#include "atoms/systems_batch.h"
#include "atoms/vibrations/vibrations.h"
#include "model/evaluator/evaluator.h"

enum { MAX_FREE_ATOMS = 400, ATOMS_AT_ONCE = 4096, MAX_AT_ONCE = 256 };
// A wavenumber depends on the step where twice the step changes it by more: 1 % and 10 /cm. Of smooth energies it is 2 /cm at 0.005 Å.
#define STEP_SHARE 0.01
#define STEP_CM 10
#define PLANCK_BAR_EV_FS 0.6582119569

typedef struct hessian {
    mlff_evaluator *evaluator;
    const mlff_system *system;
    mlff_vibrations_options options;
    int64_t n_done, n_computations;
    int *atoms;           // [n / 3] those that may move
    size_t n;             // coordinates that may move
    double *values;       // [n][n]
    double *forces;       // [n_at_once][n_atoms][3]
    mlff_system **copies; // [n_at_once]
    int n_at_once;
    systems_batch batch;
} hessian;

static mlff_status report(void *context)
{
    const hessian *h = context;
    if (!h->options.progress || h->options.progress(h->options.progress_context, h->n_done, h->n_computations) == 0)
        return MLFF_OK;
    return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted after %" PRId64 " of %" PRId64 " computations of forces", h->n_done,
                     h->n_computations);
}

static mlff_status compute(hessian *h, int n)
{
    mlff_status status = MLFF_OK;
    double energies[MAX_AT_ONCE];
    MLFF_TRY(report(h));
    MLFF_TRY(systems_batch_fill(&h->batch, h->copies, n));
    MLFF_TRY(mlff_evaluator_compute(h->evaluator, &h->batch.batch, &(mlff_results){.energies = energies, .forces = h->forces}));
    h->n_done += n;
done:
    return status;
}

// Adds the forces of displacement d (coordinate d / 2, to the side d % 2) to its row and column.
static void add(hessian *h, size_t d, const double *forces)
{
    const size_t a = d / 2;
    const double scale = (d % 2 ? 0.25 : -0.25) / (h->options.step * BASE_AMU_ANG2_FS2_EV);
    for (size_t b = 0; b < h->n; b++) {
        const int at = h->atoms[a / 3], other = h->atoms[b / 3];
        const double k =
            scale * forces[3 * (size_t)other + b % 3] / sqrt(atoms_mass(h->system, at) * atoms_mass(h->system, other));
        h->values[a * h->n + b] += k;
        h->values[b * h->n + a] += k;
    }
}

// Mass-weighted, 1/fs².
static mlff_status find_hessian(hessian *h)
{
    mlff_status status = MLFF_OK;
    const size_t n_values = 3 * (size_t)h->system->n_atoms;
    for (size_t first = 0; first < 2 * h->n; first += (size_t)h->n_at_once) {
        const size_t left = 2 * h->n - first;
        const int n = left < (size_t)h->n_at_once ? (int)left : h->n_at_once;
        for (int k = 0; k < n; k++) {
            const size_t d = first + (size_t)k;
            memcpy(h->copies[k]->positions, h->system->positions, n_values * sizeof(double));
            h->copies[k]->positions[3 * (size_t)h->atoms[d / 6] + d / 2 % 3] += d % 2 ? -h->options.step : h->options.step;
        }
        MLFF_TRY(compute(h, n));
        for (int k = 0; k < n; k++) add(h, first + (size_t)k, h->forces + n_values * (size_t)k);
    }
done:
    return status;
}

static double wavenumber(double square) // of ω², 1/fs²
{
    return copysign(sqrt(fabs(square)) / (2 * BASE_PI * BASE_LIGHT_CM_PER_FS), square);
}

static void find_rigid_wavenumbers(const hessian *h, const double *rigid, mlff_vibrations *v)
{
    for (int r = 0; r < v->n_rigid; r++) {
        const double *u = rigid + h->n * (size_t)r;
        double square = 0;
        for (size_t a = 0; a < h->n; a++)
            for (size_t b = 0; b < h->n; b++) square += u[a] * h->values[a * h->n + b] * u[b];
        v->rigid_wavenumbers[r] = wavenumber(square);
    }
}

// Modes below the n_rigid that are set apart.
static void take_modes(const hessian *h, const double *values, const double *vectors, mlff_vibrations *v)
{
    for (size_t k = 0; k < (size_t)v->n_modes; k++) {
        const double *u = vectors + k * h->n;
        v->wavenumbers[k] = wavenumber(values[k]);
        if (values[k] > 0) v->zero_point_energy += 0.5 * PLANCK_BAR_EV_FS * sqrt(values[k]);
        double *x = v->displacements + 3 * (size_t)h->system->n_atoms * k, square = 0;
        for (size_t a = 0; a < h->n; a++) {
            const int atom = h->atoms[a / 3];
            const double displacement = u[a] / sqrt(atoms_mass(h->system, atom));
            x[3 * (size_t)atom + a % 3] = displacement;
            square += displacement * displacement;
        }
        for (size_t a = 0; a < h->n; a++) x[3 * (size_t)h->atoms[a / 3] + a % 3] /= sqrt(square);
    }
}

static mlff_status find_largest_force(hessian *h, double *largest_out)
{
    memcpy(h->copies[0]->positions, h->system->positions, 3 * (size_t)h->system->n_atoms * sizeof(double));
    const mlff_status status = compute(h, 1);
    *largest_out = 0;
    for (size_t a = 0; status == MLFF_OK && a < h->n; a += 3) {
        const double *f = h->forces + 3 * (size_t)h->atoms[a / 3];
        *largest_out = fmax(*largest_out, sqrt(f[0] * f[0] + f[1] * f[1] + f[2] * f[2]));
    }
    return status;
}

// A norm of features that vanish by symmetry has a kink, where no second derivative exists: what differences give depends on the step.
// Each mode again, with its largest displacement twice the step; a warning names the mode that changes most.
static mlff_status warn_of_steps(hessian *h, const mlff_vibrations *v)
{
    mlff_status status = MLFF_OK;
    const size_t n_values = 3 * (size_t)h->system->n_atoms;
    int n_changed = 0, worst = -1;
    double most = 0, at_worst = 0;
    for (int first = 0; first < v->n_modes; first += h->n_at_once / 2) {
        const int left = v->n_modes - first, n = left < h->n_at_once / 2 ? left : h->n_at_once / 2;
        double length[MAX_AT_ONCE / 2];
        for (int k = 0; k < n; k++) {
            const double *mode = v->displacements + n_values * (size_t)(first + k);
            double largest = 0;
            for (size_t c = 0; c < n_values; c++) largest = fmax(largest, fabs(mode[c]));
            length[k] = 2 * h->options.step / largest;
            for (size_t c = 0; c < n_values; c++) {
                h->copies[2 * k]->positions[c] = h->system->positions[c] + length[k] * mode[c];
                h->copies[2 * k + 1]->positions[c] = h->system->positions[c] - length[k] * mode[c];
            }
        }
        status = compute(h, 2 * n);
        if (status == MLFF_ERR_VALUE) return MLFF_OK; // atoms on one point: twice a large step is no comparison
        MLFF_TRY(status);
        for (int k = 0; k < n; k++) {
            const double *mode = v->displacements + n_values * (size_t)(first + k);
            const double *plus = h->forces + n_values * (size_t)(2 * k), *minus = plus + n_values;
            double stiffness = 0, mass = 0;
            for (size_t c = 0; c < n_values; c++) {
                stiffness -= mode[c] * (plus[c] - minus[c]) / (2 * length[k]);
                mass += mode[c] * mode[c] * atoms_mass(h->system, (int)(c / 3));
            }
            const double before = v->wavenumbers[first + k], after = wavenumber(stiffness / (mass * BASE_AMU_ANG2_FS2_EV));
            const double change = fabs(after - before) - STEP_SHARE * fabs(before) - STEP_CM;
            n_changed += change > 0;
            if (change > most) most = change, worst = first + k, at_worst = after;
        }
    }
    if (n_changed > 0)
        mlff_warn(
            "%d of %d wavenumber%s depend%s on the step, most that of mode %d: %.0f%s /cm with %g Å, %.0f%s with %g Å. The "
            "energy may have a kink here, as where features vanish by symmetry: displace the atoms slightly, and compare steps",
            n_changed, v->n_modes, base_plural(v->n_modes), n_changed == 1 ? "s" : "", worst + 1, fabs(v->wavenumbers[worst]),
            v->wavenumbers[worst] < 0 ? "i" : "", h->options.step, fabs(at_worst), at_worst < 0 ? "i" : "", 2 * h->options.step);
done:
    return status;
}

static mlff_status begin(hessian *h)
{
    const mlff_system *system = h->system;
    int n_free = 0;
    if (!(h->options.step >= 1e-6 && h->options.step <= 0.5))
        return mlff_fail(MLFF_ERR_USAGE, "a displacement of %g Å; between 1e-6 and 0.5 are possible, 0.005 is usual",
                         h->options.step);
    if (!(mlff_model_outputs(h->evaluator->model) & MLFF_OUTPUT_FORCES))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "model '%s' has no forces, which vibrations need; use another model",
                         h->evaluator->model->name);
    mlff_status status = mlff_system_check(system, NULL);
    if (status != MLFF_OK) return status;
    if (!(h->atoms = base_alloc((size_t)system->n_atoms, sizeof *h->atoms, "vibrations"))) return MLFF_ERR_MEMORY;
    for (int i = 0; i < system->n_atoms; i++)
        if (!system->fixed || !system->fixed[i]) h->atoms[n_free++] = i;
    if (n_free == 0) return mlff_fail(MLFF_ERR_USAGE, "every atom is fixed, so nothing vibrates");
    if (n_free > MAX_FREE_ATOMS)
        return mlff_fail(MLFF_ERR_LIMIT, "vibrations of %d atoms; %d at most, fix those that matter least", n_free,
                         MAX_FREE_ATOMS);
    h->n = 3 * (size_t)n_free;
    h->n_computations = 1 + 4 * (int64_t)h->n; // at the minimum, of coordinates, of modes; less those of rigid motions
    h->n_at_once = ATOMS_AT_ONCE / system->n_atoms;
    if (h->n_at_once > MAX_AT_ONCE) h->n_at_once = MAX_AT_ONCE;
    if (h->n_at_once < 2) h->n_at_once = 2;
    h->values = base_alloc(h->n * h->n, sizeof(double), "a Hessian");
    h->forces = base_alloc(3 * (size_t)system->n_atoms * (size_t)h->n_at_once, sizeof(double), "forces");
    h->copies = base_alloc((size_t)h->n_at_once, sizeof *h->copies, "displaced structures");
    if (!h->values || !h->forces || !h->copies) return MLFF_ERR_MEMORY;
    for (int k = 0; k < h->n_at_once && status == MLFF_OK; k++) status = mlff_system_copy(system, &h->copies[k]);
    return status;
}

static void end(hessian *h)
{
    for (int k = 0; h->copies && k < h->n_at_once; k++) mlff_system_destroy(h->copies[k]);
    systems_batch_free(&h->batch);
    base_free(h->copies);
    base_free(h->forces);
    base_free(h->values);
    base_free(h->atoms);
}

mlff_vibrations_options mlff_vibrations_options_default(void)
{
    return (mlff_vibrations_options){.struct_size = sizeof(mlff_vibrations_options), .step = 0.005};
}

mlff_status mlff_vibrations_compute(mlff_evaluator *evaluator, const mlff_system *system, const mlff_vibrations_options *options,
                                    mlff_vibrations *vibrations_out)
{
    mlff_status status = MLFF_OK;
    hessian h = {.evaluator = evaluator, .system = system, .options = mlff_vibrations_options_default()};
    mlff_vibrations v = {0};
    double *rigid = NULL, *values = NULL, *vectors = NULL;
    if (!evaluator || !system || !vibrations_out)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_vibrations_compute: an evaluator, a system and a place for the result are needed");
    MLFF_TRY(base_take_options(__func__, "mlff_vibrations_options", options, sizeof h.options, &h.options));
    MLFF_TRY(begin(&h));
    evaluator_warn_not_conservative(evaluator, "the Hessian is the symmetric part of the derivatives of its forces");
    rigid = base_alloc(6 * h.n, sizeof *rigid, "a Hessian");
    values = base_alloc(h.n, sizeof *values, "a Hessian");
    vectors = base_alloc(h.n * h.n, sizeof *vectors, "a Hessian");
    if (!rigid || !values || !vectors) MLFF_TRY(MLFF_ERR_MEMORY);
    MLFF_TRY(find_largest_force(&h, &v.largest_force));
    MLFF_TRY(find_hessian(&h));
    v.n_rigid = vibrations_rigid(system, rigid);
    find_rigid_wavenumbers(&h, rigid, &v);
    vibrations_project(rigid, v.n_rigid, h.values, h.n);
    vibrations_set_apart(rigid, v.n_rigid, h.values, h.n);
    v.n_modes = (int)h.n - v.n_rigid;
    h.n_computations -= 2 * v.n_rigid;
    MLFF_TRY(symmetric_eigen(h.values, (int)h.n, values, vectors, report, &h));
    v.wavenumbers = base_alloc((size_t)v.n_modes + 1, sizeof *v.wavenumbers, "vibrations");
    v.displacements = base_alloc(3 * (size_t)system->n_atoms * (size_t)v.n_modes + 1, sizeof *v.displacements, "vibrations");
    if (!v.wavenumbers || !v.displacements) MLFF_TRY(MLFF_ERR_MEMORY);
    take_modes(&h, values, vectors, &v);
    MLFF_TRY(warn_of_steps(&h, &v));
    *vibrations_out = v;
    v = (mlff_vibrations){0};
done:
    mlff_vibrations_free(&v);
    end(&h);
    base_free(rigid);
    base_free(values);
    base_free(vectors);
    return status;
}

void mlff_vibrations_free(mlff_vibrations *vibrations)
{
    if (!vibrations) return;
    base_free(vibrations->wavenumbers);
    base_free(vibrations->displacements);
    *vibrations = (mlff_vibrations){0};
}
