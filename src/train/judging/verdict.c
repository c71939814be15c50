// SPDX-License-Identifier: MIT
// verdict.c: the list of bars, and the order in which they are measured.
#include "verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "train/data/dataset.h"
#include "verdict_kept.h"

mlff_verdict_options mlff_verdict_options_default(void)
{
    return (mlff_verdict_options){.struct_size = sizeof(mlff_verdict_options),
                                  .timestep_fs = 0.5,
                                  .temperature_kelvin = 300,
                                  .hot_kelvin = 500,
                                  .nve_ps = 20,
                                  .hot_ps = 50,
                                  .speed_s = 1.2,
                                  .hot_runs = 3,
                                  .compare_ps = 20,
                                  .max_force_error = 0.05,
                                  .max_energy_error = 0.005,
                                  .max_pressure_error = 0.1,
                                  .max_drift = 5e-5,
                                  .min_speed = 1,
                                  .n_pressed = 1024,
                                  .n_dynamics = 64};
}

// ---- bars -----------------------------------------------------------------------------------------------------------

mlff_bar *verdict_add(mlff_verdict *verdict, const char *name, const char *unit, double value, double uncertainty, double limit,
                      int at_least)
{
    mlff_bar *bar = &verdict->bars[verdict->n_bars++];
    *bar =
        (mlff_bar){.name = name, .unit = unit, .value = value, .uncertainty = uncertainty, .limit = limit, .at_least = at_least};
    snprintf(bar->system, sizeof bar->system, "%s", verdict->system);
    if (!isfinite(value) || !isfinite(limit))
        bar->state = MLFF_BAR_NOT_MEASURED;
    else
        bar->state = (at_least ? value >= limit : value <= limit) ? MLFF_BAR_PASSED : MLFF_BAR_FAILED;
    return bar;
}

void verdict_say(mlff_bar *bar, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    base_format_list(bar->text, sizeof bar->text, format, arguments);
    va_end(arguments);
    bar->text[base_whole_length(bar->text, sizeof bar->text)] = 0; // JSON must not have a part of a character
}

mlff_status verdict_tell(const verdict_run *run, const char *what, double fraction)
{
    const mlff_verdict_options *o = &run->verdict->options;
    if (o->callback && o->callback(o->context, what, fraction) != 0)
        return mlff_fail(MLFF_ERR_INTERRUPTED, "verdict stopped during %s", what);
    return MLFF_OK;
}

mlff_status verdict_keep(mlff_verdict *verdict, const char *of, double step, const double *teacher, const double *student, int n)
{
    verdict_curve *curve = &verdict->curves[verdict->n_curves];
    const double *from[2] = {teacher, student};
    double *values = base_alloc(2 * (size_t)n, sizeof *values, "a curve");
    if (!values) return MLFF_ERR_MEMORY;
    *curve = (verdict_curve){.of = of, .n = n, .step = step, .teacher = values, .student = values + n};
    snprintf(curve->system, sizeof curve->system, "%s", verdict->system);
    for (int side = 0; side < 2; side++) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += from[side][k];
        for (int k = 0; k < n && sum > 0; k++) values[side * n + k] = from[side][k] / sum;
    }
    verdict->n_curves++;
    return MLFF_OK;
}

mlff_status verdict_student_forces(void *context, const mlff_system *system, double *energy, double *forces)
{
    int32_t first_atom[2];
    mlff_batch batch;
    const mlff_results results = {.energies = energy, .forces = forces};
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(context, &batch, &results);
}

// ---- the verdict ----------------------------------------------------------------------------------------------------

// Every bar but those of errors, on one system.
static mlff_status measure_system(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    MLFF_TRY(verdict_measure(run, VERDICT_SPEED, verdict_speed));
    if (o->nve_ps > 0) MLFF_TRY(verdict_measure(run, VERDICT_NVE, verdict_nve));
    if (o->hot_ps > 0) MLFF_TRY(verdict_measure(run, VERDICT_HOT, verdict_hot));
    MLFF_TRY(verdict_measure(run, VERDICT_CORE, verdict_core));
    if (o->n_pressed > 0) MLFF_TRY(verdict_measure(run, VERDICT_PRESSED, verdict_pressed));
    if (o->n_dynamics > 0) MLFF_TRY(verdict_measure(run, VERDICT_OWN, verdict_own_dynamics));
    if (o->compare_ps > 0) MLFF_TRY(verdict_measure(run, VERDICT_COMPARE, verdict_compare));
done:
    return status;
}

static mlff_status measure(verdict_run *run, const mlff_model *student)
{
    mlff_status status = MLFF_OK;
    const mlff_samples *systems = run->verdict->options.systems;
    const int64_t n_systems = systems ? mlff_samples_size(systems) : 1;
    MLFF_TRY(verdict_errors(run, student));
    for (int64_t k = 0; k < n_systems; k++) {
        const char *name = "";
        if (systems) run->start = mlff_samples_get(systems, k, &name);
        run->system = (int)k;
        if (n_systems > 1) snprintf(run->verdict->system, sizeof run->verdict->system, "%s", name);
        MLFF_TRY(measure_system(run));
    }
done:
    return status;
}

static mlff_status check_arguments(const mlff_model *student, const mlff_dataset *test, const mlff_system *start,
                                   const mlff_verdict_options *options)
{
    const int64_t n_systems = options->systems ? mlff_samples_size(options->systems) : start ? 1 : 0;
    if (!student || !test) return mlff_fail(MLFF_ERR_USAGE, "mlff_verdict_create: student and test must be given");
    if (n_systems < 1 || n_systems > VERDICT_MAX_SYSTEMS)
        return mlff_fail(MLFF_ERR_USAGE, "a verdict is measured on 1 to %d systems; %" PRId64 " were given", VERDICT_MAX_SYSTEMS,
                         n_systems);
    if (mlff_dataset_size(test) == 0)
        return mlff_fail(MLFF_ERR_VALUE, "no held-out structure to judge on; give some that were not trained on");
    return MLFF_OK;
}

mlff_status mlff_verdict_create(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                                const mlff_system *start, const mlff_verdict_options *options, mlff_verdict **verdict_out)
{
    return verdict_create(student, teacher, test, start, options, NULL, verdict_out);
}

mlff_status mlff_verdict_create_kept(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                                     const mlff_system *start, const mlff_verdict_options *options, const char *kept,
                                     const char *origin, mlff_verdict **verdict_out)
{
    mlff_status status = MLFF_OK;
    mlff_verdict_options used = mlff_verdict_options_default();
    verdict_kept *bars = NULL;
    if (!kept || !origin) return mlff_fail(MLFF_ERR_USAGE, "mlff_verdict_create_kept: kept and origin must be given");
    MLFF_TRY(base_take_options("mlff_verdict_create_kept", "mlff_verdict_options", options, sizeof used, &used));
    MLFF_TRY(verdict_kept_open(kept, origin, used.device, &bars));
    if (verdict_kept_is_foreign(bars)) {
        verdict_kept_free(bars);
        MLFF_FAIL(MLFF_ERR_FORMAT,
                  "%s: holds no bars of a verdict, which are to be written there; remove it, or choose another name", kept);
    }
    status = verdict_create(student, teacher, test, start, options, bars, verdict_out);
done:
    return status;
}

int mlff_verdict_is_kept(const mlff_verdict *verdict)
{
    return verdict && verdict->kept && verdict_kept_in_use(verdict->kept);
}

mlff_status mlff_verdict_kept_finish(const mlff_verdict *verdict)
{
    if (!verdict || !verdict->kept)
        return mlff_fail(MLFF_ERR_USAGE, "mlff_verdict_kept_finish: the verdict is not of mlff_verdict_create_kept");
    return verdict_kept_finish(verdict->kept);
}

mlff_status verdict_create(const mlff_model *student, const mlff_force_field *teacher, const mlff_dataset *test,
                           const mlff_system *start, const mlff_verdict_options *options, verdict_kept *kept,
                           mlff_verdict **verdict_out)
{
    mlff_status status = MLFF_OK;
    mlff_model_info info;
    mlff_verdict *verdict = verdict_out ? base_alloc(1, sizeof *verdict, "a verdict") : NULL;
    mlff_evaluator *evaluator = NULL;
    mlff_evaluator_options wanted = mlff_evaluator_options_default();
    if (!verdict) verdict_kept_free(kept);
    if (!verdict_out) return mlff_fail(MLFF_ERR_USAGE, "mlff_verdict_create: verdict_out must be given");
    if (!verdict) return MLFF_ERR_MEMORY;
    verdict->kept = kept;
    verdict->options = mlff_verdict_options_default();
    verdict->total_force_error = verdict->baseline_force_error = verdict->teacher_spread = verdict->stress_error = NAN;
    MLFF_TRY(
        base_take_options("mlff_verdict_create", "mlff_verdict_options", options, sizeof verdict->options, &verdict->options));
    MLFF_TRY(check_arguments(student, test, start, &verdict->options));
    verdict->options.speed_s = fmax(verdict->options.speed_s, 0.01);
    mlff_model_info_get(student, &info);
    snprintf(verdict->student, sizeof verdict->student, "%s", info.name);
    snprintf(verdict->teacher, sizeof verdict->teacher, "%s", teacher ? teacher->name : "");
    wanted.device = verdict->options.device;
    wanted.n_threads = verdict->options.n_threads;
    MLFF_TRY(mlff_evaluator_create(student, &wanted, &evaluator));
    verdict_run run = {.verdict = verdict,
                       .evaluator = evaluator,
                       .has_stress = mlff_model_outputs(student) & MLFF_OUTPUT_STRESS,
                       .student = {verdict->student, verdict_student_forces, evaluator},
                       .teacher = teacher,
                       .test = test,
                       .start = start};
    status = measure(&run, student);
    verdict->partial = status != MLFF_OK;
    if (verdict->n_bars > 0) {
        *verdict_out = verdict;
        verdict = NULL;
    }
done:
    mlff_evaluator_destroy(evaluator);
    mlff_verdict_destroy(verdict);
    return status;
}

void mlff_verdict_destroy(mlff_verdict *verdict)
{
    if (!verdict) return;
    for (int k = 0; k < verdict->n_curves; k++) base_free(verdict->curves[k].teacher);
    base_free(verdict->compositions);
    verdict_kept_free(verdict->kept);
    base_free(verdict);
}

const mlff_bar *mlff_verdict_bars(const mlff_verdict *verdict, int *n_out)
{
    *n_out = verdict->n_bars;
    return verdict->bars;
}

int mlff_verdict_passed(const mlff_verdict *verdict)
{
    for (int k = 0; k < verdict->n_bars; k++)
        if (verdict->bars[k].state != MLFF_BAR_PASSED) return 0;
    return verdict->n_bars > 0 && !verdict->partial;
}
