// SPDX-License-Identifier: MIT
// own_dynamics.c: the bar of errors in new dynamics of the student, beside the teacher.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "beside_teacher.h"
#include "verdict_trajectory.h"

// Two runs at each of two temperatures. Held-out structures are of the same trajectories' making as those of the training, and are chosen to
// differ; these are what a user's dynamics have.
enum { RUNS_EACH = 2, TEMPERATURES = 2, FEWEST_EACH = 4 };
// Structures that wait until a run has ended, so that dynamics on a GPU go on without other calls of their evaluator, and of them those that
// the teacher is given in one call.
enum { MOST_WAITING = 256, AT_ONCE = 16 };
#define BEFORE_PS 1.0 // until the first structure: the start is relaxed
#define APART_PS 0.1
#define MOST_FAILED 0.25 // of the structures: where the teacher fails at more, those left do not stand for all

typedef struct own_errors {
    const verdict_run *run;
    double *forces; // [n_atoms][3] of the student
    int n_waiting;  // structures that the teacher is to compute
    mlff_system *waiting[MOST_WAITING];
    mlff_label labels[AT_ONCE];
    int temperature;  // of those that wait
    const char *what; // told as progress
    int n_failed;
    char problem[200]; // of the teacher, at the first that failed
    struct {
        double absolute, square;
        int64_t n_components, n_structures;
    } sums[TEMPERATURES];
    double worst; // eV/Å
} own_errors;

static void drop_waiting(own_errors *errors)
{
    for (int k = 0; k < errors->n_waiting; k++) mlff_system_destroy(errors->waiting[k]);
    for (int k = 0; k < AT_ONCE; k++) mlff_label_clear(&errors->labels[k]);
    errors->n_waiting = 0;
}

static mlff_status add_structure(own_errors *errors, const mlff_system *system, const mlff_label *label)
{
    double energy;
    if (label->status != MLFF_OK) {
        if (errors->n_failed++ == 0) snprintf(errors->problem, sizeof errors->problem, "%s", label->problem);
        return MLFF_OK;
    }
    const mlff_status status = errors->run->student.forces(errors->run->student.context, system, &energy, errors->forces);
    if (status != MLFF_OK) return status;
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        if (system->fixed && system->fixed[k / 3]) continue;
        const double error = fabs(errors->forces[k] - label->forces[k]);
        errors->sums[errors->temperature].absolute += error;
        errors->sums[errors->temperature].square += error * error;
        errors->sums[errors->temperature].n_components++;
        if (!(error <= errors->worst)) errors->worst = error;
    }
    errors->sums[errors->temperature].n_structures++;
    return MLFF_OK;
}

static mlff_status compute_waiting(own_errors *errors)
{
    mlff_status status = MLFF_OK;
    for (int first = 0; first < errors->n_waiting; first += AT_ONCE) {
        const int left = errors->n_waiting - first, n = left < AT_ONCE ? left : AT_ONCE;
        MLFF_TRY(verdict_tell(errors->run, errors->what, 1.0));
        MLFF_TRY(beside_teacher_label(errors->run->teacher, errors->waiting + first, n, errors->labels));
        for (int k = 0; k < n; k++) MLFF_TRY(add_structure(errors, errors->waiting[first + k], &errors->labels[k]));
        for (int k = 0; k < n; k++) mlff_label_clear(&errors->labels[k]);
        memset(errors->labels, 0, sizeof errors->labels);
    }
done:
    drop_waiting(errors);
    return status;
}

static mlff_status take_structure(void *context, int64_t k, const mlff_system *system, const mlff_dynamics_state *state)
{
    own_errors *errors = context;
    (void)state;
    const int64_t apart = trajectory_samples(errors->run, APART_PS);
    if ((k + 1) % apart != 0) return MLFF_OK;
    const mlff_status status = mlff_system_copy(system, &errors->waiting[errors->n_waiting]);
    if (status != MLFF_OK) return status;
    return ++errors->n_waiting < MOST_WAITING ? MLFF_OK : compute_waiting(errors);
}

// Of the structures asked for, those of one run: the forces of large systems are many.
static int structures_of_run(const verdict_run *run)
{
    const double part = fmax(0.25, fmin(1, 128.0 / run->start->n_atoms));
    const int n = (int)(part * run->verdict->options.n_dynamics) / (RUNS_EACH * TEMPERATURES);
    return n > FEWEST_EACH ? n : FEWEST_EACH;
}

static mlff_status follow(const verdict_run *run, own_errors *errors, double kelvin, int number)
{
    mlff_status status = MLFF_OK;
    trajectory t = {0};
    int64_t done;
    char what[80];
    base_format(what, sizeof what, "errors in own dynamics, run %d of %d", number + 1, RUNS_EACH * TEMPERATURES);
    MLFF_TRY(trajectory_begin(run, &run->student, MLFF_LANGEVIN, kelvin, run->verdict->options.seed + 4000 + (uint64_t)number,
                              what, &t));
    errors->what = what;
    MLFF_TRY(trajectory_sample(run, &t, trajectory_samples(run, BEFORE_PS), NULL, NULL, &done));
    MLFF_TRY(
        trajectory_sample(run, &t, structures_of_run(run) * trajectory_samples(run, APART_PS), take_structure, errors, &done));
    trajectory_free(&t);
    MLFF_TRY(compute_waiting(errors));
done:
    drop_waiting(errors);
    trajectory_free(&t);
    return status;
}

// "32 at 300 K: 12.1, 32 at 500 K: 18.3 meV/Å"
static void tell_temperatures(const own_errors *errors, const double kelvin[TEMPERATURES], char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = 0;
    for (int k = 0; k < TEMPERATURES; k++) {
        const double n = (double)errors->sums[k].n_components;
        if (n > 0)
            length += (size_t)base_format(text + length, bytes - length, "%s%" PRId64 " at %g K: %.1f", length ? ", " : "",
                                          errors->sums[k].n_structures, kelvin[k], 1e3 * errors->sums[k].absolute / n);
    }
}

static void judge(const verdict_run *run, const own_errors *errors, const double kelvin[TEMPERATURES], const char *end)
{
    double absolute = 0, square = 0;
    int64_t n = 0, n_structures = 0;
    char each[100], failed[300] = "", off[80] = "";
    for (int k = 0; k < TEMPERATURES; k++) {
        absolute += errors->sums[k].absolute, square += errors->sums[k].square;
        n += errors->sums[k].n_components, n_structures += errors->sums[k].n_structures;
    }
    const bool too_few = errors->n_failed > MOST_FAILED * (double)(n_structures + errors->n_failed);
    const double mean = 1e3 * absolute / (double)n;
    mlff_bar *bar =
        verdict_add(run->verdict, "error.dynamics", "meV/Å", mean, NAN, 1e3 * run->verdict->options.max_force_error, 0);
    if (errors->n_failed > 0)
        base_format(failed, sizeof failed, "; the teacher fails at %d more: %.160s", errors->n_failed, errors->problem);
    if (run->verdict->teacher_error > 0)
        base_format(off, sizeof off, "; the teacher is %.1f meV/Å off the labels", 1e3 * run->verdict->teacher_error);
    tell_temperatures(errors, kelvin, each, sizeof each);
    if (end[0]) {
        bar->state = MLFF_BAR_FAILED;
        verdict_say(bar, "the student's dynamics ended: %s", end);
    } else if (n == 0) {
        verdict_say(bar, n_structures > 0 ? "all atoms are fixed: no force can be compared%s" : "no structure was computed%s",
                    failed);
    } else {
        if (too_few) bar->state = MLFF_BAR_NOT_MEASURED;
        verdict_say(bar,
                    "mean absolute beside the teacher in new dynamics of the student, %" PRId64 " structure%s (%s); RMSE %.2f, "
                    "largest %.0f meV/Å%s%s",
                    n_structures, base_plural(n_structures), each, 1e3 * sqrt(square / (double)n), 1e3 * errors->worst, failed,
                    off);
    }
}

mlff_status verdict_own_dynamics(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    const double kelvin[TEMPERATURES] = {o->temperature_kelvin, o->hot_kelvin};
    own_errors errors = {.run = run};
    char end[200] = "";
    if (!run->teacher) {
        verdict_say(verdict_add(run->verdict, "error.dynamics", "meV/Å", NAN, NAN, 1e3 * o->max_force_error, 0),
                    "no teacher to measure beside; name one, or ask for 0 structures of dynamics");
        return MLFF_OK;
    }
    if (!(errors.forces = base_alloc(3 * (size_t)run->start->n_atoms, sizeof(double), "forces"))) return MLFF_ERR_MEMORY;
    for (int k = 0; k < RUNS_EACH * TEMPERATURES && !end[0]; k++) {
        errors.temperature = k / RUNS_EACH;
        status = follow(run, &errors, kelvin[errors.temperature], k);
        if (status != MLFF_OK && !verdict_of_structure(status)) goto done;
        if (status != MLFF_OK) snprintf(end, sizeof end, "%.190s", mlff_last_error());
    }
    status = MLFF_OK;
    judge(run, &errors, kelvin, end);
done:
    base_free(errors.forces);
    return status;
}
