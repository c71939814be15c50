// SPDX-License-Identifier: MIT
// verdict_errors.c: the bars of errors on held-out structures: forces, energies, copies of training structures, the baseline.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/data/dataset.h"
#include "train/fitting/train_set.h"
#include "train/teachers/teacher.h"
#include "verdict.h"
#include "verdict_compositions.h"
#include "verdict_pressure.h"

#define MOST_COPIES 1.0   // %, of training structures: so few change a mean error by about as little
#define OTHER_METHOD 1e-3 // eV/Å: labels farther from the teacher, mean absolute, are not its own in another precision
#define SHIFTED 3.0       // the mean difference of energies over their standard deviation around it: then it is told

typedef struct error_sums {
    double force_absolute, force_square, force_labelled, energy_absolute; // force_labelled: of the labels' components
    double energy_sum, energy_square;                                     // of differences, eV/atom and its square
    double stress_absolute;                                               // of six components each, eV/Å³
    pressure_errors pressures;
    int64_t n_components, n_energies, n_structures, n_stresses;
    int64_t n_cells, n_labelled_stresses; // that repeat along three axes; of these with a stress
    double worst;                         // largest error of a force's component
    double by_element[MLFF_MAX_ATOMIC_NUMBER + 1];
    int64_t n_by_element[MLFF_MAX_ATOMIC_NUMBER + 1];
} error_sums;

// Test structures by what their errors are for: those of dynamics are judged, if there are any; else all but the strained ones.
enum part { JUDGED, DISPLACED, STRAINED, N_PARTS };

double verdict_largest_force(const mlff_system *system)
{
    double largest = 0;
    for (int k = 0; system->label_forces && k < 3 * system->n_atoms; k++) largest = fmax(largest, fabs(system->label_forces[k]));
    return largest;
}

// Of the teacher's or a student's trajectories, which sampling makes; not the last frame before a bond breaks, and nothing that was displaced.
static bool is_of_dynamics(const mlff_system *system)
{
    return strncmp(system->config_type, "md ", 3) == 0 || strncmp(system->config_type, "student ", 8) == 0;
}

static enum part part_of(const mlff_system *system, bool dynamics_alone)
{
    if (verdict_largest_force(system) > VERDICT_STRAINED) return STRAINED;
    return dynamics_alone && !is_of_dynamics(system) ? DISPLACED : JUDGED;
}

bool verdict_judges(const mlff_system *system, bool dynamics_alone)
{
    return part_of(system, dynamics_alone) == JUDGED;
}

bool verdict_has_dynamics(const mlff_dataset *test)
{
    for (size_t k = 0; k < test->n_frames; k++) {
        const mlff_system *system = test->frames[k].system;
        if (!dataset_is_probe(test, k) && system->label_forces && verdict_judges(system, true)) return true;
    }
    return false;
}

static bool is_periodic(const mlff_system *system)
{
    return system->periodic[0] && system->periodic[1] && system->periodic[2];
}

// Energy and forces by `field`; of the student also the stress (six components), where it has one and the structure a label of it.
static mlff_status compute_labelled(const verdict_run *run, const mlff_force_field *field, const mlff_system *system,
                                    double *energy, double *forces, double *stress)
{
    int32_t first_atom[2];
    mlff_batch batch;
    stress[0] = NAN;
    if (field != &run->student || !run->has_stress || !is_periodic(system) || isnan(system->label_stress[0]))
        return field->forces(field->context, system, energy, forces);
    mlff_batch_from_system(system, first_atom, &batch);
    return mlff_evaluator_compute(run->evaluator, &batch,
                                  &(mlff_results){.energies = energy, .forces = forces, .stresses = stress});
}

// Adds a structure's to `sums`; *alone_out has them alone.
static mlff_status add_errors(const verdict_run *run, const mlff_force_field *field, const mlff_system *system, double *forces,
                              error_sums *sums, verdict_composition *alone_out)
{
    double energy, stress[6];
    const mlff_status status = compute_labelled(run, field, system, &energy, forces, stress);
    verdict_composition alone = {.n_structures = 1};
    if (status != MLFF_OK) return status;
    if (!isnan(system->label_energy)) {
        const double difference = (energy - system->label_energy) / system->n_atoms;
        alone.energy_absolute = fabs(difference);
        alone.n_energies = 1;
        sums->energy_sum += difference;
        sums->energy_square += difference * difference;
    }
    for (int k = 0; system->label_forces && k < 3 * system->n_atoms; k++) {
        if (train_set_is_constrained(system, system->label_forces, k / 3)) continue;
        const double error = fabs(forces[k] - system->label_forces[k]);
        alone.force_absolute += error;
        alone.n_components++;
        sums->force_square += error * error;
        sums->force_labelled += fabs(system->label_forces[k]);
        sums->by_element[system->species[k / 3]] += error;
        sums->n_by_element[system->species[k / 3]]++;
        if (error > sums->worst) sums->worst = error;
    }
    sums->n_structures++;
    sums->n_cells += is_periodic(system);
    sums->n_labelled_stresses += is_periodic(system) && !isnan(system->label_stress[0]);
    sums->energy_absolute += alone.energy_absolute;
    sums->n_energies += alone.n_energies;
    sums->force_absolute += alone.force_absolute;
    sums->n_components += alone.n_components;
    composition_name(system, alone.name);
    *alone_out = alone;
    if (isnan(stress[0])) return MLFF_OK;
    const double *label = system->label_stress;
    for (int k = 0; k < 6; k++) sums->stress_absolute += fabs(stress[k] - label[k]);
    sums->n_stresses++;
    return pressure_errors_add(&sums->pressures, system->group,
                               -(stress[0] + stress[1] + stress[2] - label[0] - label[1] - label[2]) / 3);
}

static void list_elements(mlff_verdict *verdict, const error_sums *sums, char *text, size_t bytes)
{
    static const char *const more = ", …";
    bool is_full = false;
    size_t length = 0;
    text[0] = 0;
    for (int z = 0; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        verdict->force_error[z] = sums->n_by_element[z] ? sums->by_element[z] / (double)sums->n_by_element[z] : NAN;
        if (!sums->n_by_element[z] || is_full) continue;
        char one[40];
        const size_t added = (size_t)base_format(one, sizeof one, "%s %s %.1f", length ? "," : "; by element",
                                                 mlff_element_symbol(z), 1e3 * verdict->force_error[z]);
        is_full = length + added + strlen(more) >= bytes;
        length += (size_t)snprintf(text + length, bytes - length, "%s", is_full ? more : one);
    }
}

// "; 12 displaced structures: 34.1 meV/Å; 3 more with forces above 20 eV/Å: 300 meV/Å"
static void tell_others(const error_sums *displaced, const error_sums *strained, char *text, size_t bytes)
{
    int length = 0;
    text[0] = 0;
    if (displaced->n_components > 0)
        length =
            base_format(text, bytes, "; %" PRId64 " displaced structure%s: %.1f meV/Å", displaced->n_structures,
                        base_plural(displaced->n_structures), 1e3 * displaced->force_absolute / (double)displaced->n_components);
    if (strained->n_components > 0)
        base_format(text + length, bytes - (size_t)length, "; %" PRId64 " more with forces above %g eV/Å: %.0f meV/Å",
                    strained->n_structures, VERDICT_STRAINED, 1e3 * strained->force_absolute / (double)strained->n_components);
}

// "; of 5 compositions C9H8O4 is the worst, 31.0 (12 structures)"
static void tell_worst(const mlff_verdict *verdict, char *text, size_t bytes)
{
    const verdict_composition *worst = verdict->compositions;
    text[0] = 0;
    if (verdict->n_compositions > 1 && worst->n_components > 0)
        base_format(text, bytes, "; of %d compositions %s is the worst, %.1f (%" PRId64 " structure%s)", verdict->n_compositions,
                    worst->name, 1e3 * composition_force_error(worst), worst->n_structures, base_plural(worst->n_structures));
}

static void judge_errors(const verdict_run *run, error_sums sums[N_PARTS], bool dynamics_alone, bool held_out)
{
    error_sums *usual = &sums[JUDGED];
    const mlff_verdict_options *o = &run->verdict->options;
    const double components = (double)usual->n_components;
    char beside[160], spread[60] = "", stress[60] = "", elements[70], worst[140], relative[40] = "";
    if (usual->n_stresses > 0) {
        run->verdict->stress_error = usual->stress_absolute / (6.0 * (double)usual->n_stresses);
    } else if (usual->n_cells > 0 && usual->n_labelled_stresses == 0) {
        snprintf(stress, sizeof stress, "; no stress is labelled");
    }
    list_elements(run->verdict, usual, elements, sizeof elements);
    run->verdict->total_force_error = usual->force_absolute / components;
    if (run->verdict->teacher_spread > 0)
        base_format(spread, sizeof spread, "; %.2f x the spread of the teacher's members",
                    run->verdict->total_force_error / run->verdict->teacher_spread);
    if (run->verdict->teacher_error > 0)
        base_format(spread, sizeof spread, "; the teacher is %.1f meV/Å off these labels", 1e3 * run->verdict->teacher_error);
    if (usual->force_labelled > 0)
        base_format(relative, sizeof relative, ", %.3g %% of the forces,", 100 * usual->force_absolute / usual->force_labelled);
    tell_worst(run->verdict, worst, sizeof worst);
    tell_others(&sums[DISPLACED], &sums[STRAINED], beside, sizeof beside);
    mlff_bar *bar = verdict_add(run->verdict, "error.forces", "meV/Å", 1e3 * usual->force_absolute / components, NAN,
                                1e3 * o->max_force_error, 0);
    if (usual->n_components > 0)
        verdict_say(
            bar, "mean absolute%s against the labels of %" PRId64 " %sstructure%s%s%s; RMSE %.2f, largest %.0f meV/Å%s%s%s%s%s",
            relative, usual->n_structures, held_out ? "held-out " : "", base_plural(usual->n_structures),
            dynamics_alone ? " of dynamics" : "", o->trained_on ? "" : ", not compared with the training data",
            1e3 * sqrt(usual->force_square / components), 1e3 * usual->worst, spread, worst, elements, beside, stress);
    else
        verdict_say(bar, "no structure has labelled forces of at most %g eV/Å%s", VERDICT_STRAINED, beside);
    bar = verdict_add(run->verdict, "error.energy", "meV/atom", 1e3 * usual->energy_absolute / (double)usual->n_energies, NAN,
                      1e3 * o->max_energy_error, 0);
    // A model of another method or reference differs by nearly the same everywhere; its dynamics do not know that.
    const double n = (double)usual->n_energies, mean = usual->energy_sum / n;
    const double scatter = sqrt(fmax(usual->energy_square / n - mean * mean, 0.0));
    if (usual->n_energies == 0)
        verdict_say(bar, "none of the same structures has a labelled energy");
    else if (usual->n_energies > 1 && fabs(mean) > SHIFTED * scatter)
        verdict_say(bar,
                    "mean absolute of the same structures; all are shifted by %+.4g meV/atom%s and scatter by %.3g around that",
                    1e3 * mean, bar->state == MLFF_BAR_FAILED ? ", as by another zero of the energy," : "", 1e3 * scatter);
    else
        verdict_say(bar, "mean absolute of the same structures");
    if (usual->n_stresses > 0) pressure_errors_judge(run->verdict, &usual->pressures, usual->n_stresses, dynamics_alone);
}

// Errors differ from structure to structure, so that the mean of a few may be far from that of others.
static void warn_of_few(int64_t n_structures)
{
    enum { FEWEST = 10 };
    if (n_structures > 0 && n_structures < FEWEST)
        mlff_warn("the verdict's errors are those of %" PRId64 " structure%s: fewer than %d tell little of the errors of others; "
                  "label more",
                  n_structures, base_plural(n_structures), FEWEST);
}

static bool is_judged(const mlff_verdict *verdict, const char *composition)
{
    for (int k = 0; k < verdict->n_compositions; k++)
        if (strcmp(verdict->compositions[k].name, composition) == 0) return true;
    return false;
}

// Of several systems, those whose dynamics the errors say nothing of.
static void warn_of_systems(const mlff_verdict *verdict)
{
    const mlff_samples *systems = verdict->options.systems;
    base_text names = {0};
    int n = 0;
    for (int64_t k = 0; systems && mlff_samples_size(systems) > 1 && k < mlff_samples_size(systems); k++) {
        const char *origin;
        char composition[COMPOSITION_NAME_BYTES];
        composition_name(mlff_samples_get(systems, k, &origin), composition);
        if (!is_judged(verdict, composition)) base_text_add(&names, "%s%s", n++ ? ", " : "", origin);
    }
    if (n > 0 && names.status == MLFF_OK)
        mlff_warn("the verdict's errors are of dynamics, and the test has none of %s: they say nothing of %s; label more",
                  names.text, n > 1 ? "these systems" : "this system");
    base_text_free(&names);
}

// The student knows these elements, and the test structures say nothing of them.
static void warn_of_elements(const verdict_run *run, const mlff_model *student)
{
    mlff_model_info info;
    base_text names = {0};
    int n = 0;
    mlff_model_info_get(student, &info);
    for (int k = 0; k < info.n_elements; k++) {
        if (isfinite(run->verdict->force_error[info.elements[k]])) continue;
        run->verdict->unjudged[n++] = info.elements[k];
        base_text_add(&names, "%s%s", n > 1 ? ", " : "", mlff_element_symbol(info.elements[k]));
    }
    run->verdict->n_unjudged = n;
    if (n > 0 && names.status == MLFF_OK)
        mlff_warn("the student knows %s, of which no usual test structure has labelled forces: the verdict says nothing about %s",
                  names.text, n > 1 ? "them" : "it");
    base_text_free(&names);
}

// Standard deviation of an ensemble's forces over its members, mean over the components of some test structures, eV/Å; else NaN. Of labels
// that are not the teacher's own, of which it says nothing, how far the teacher is off instead.
static mlff_status measure_spread(const verdict_run *run, bool dynamics_alone)
{
    enum { MOST = 200 };
    mlff_status status = MLFF_OK;
    mlff_teacher_info info = {0};
    mlff_system *system = NULL;
    double energy, *values = NULL, spread = 0, error = 0;
    size_t capacity = 0;
    int64_t n_components = 0;
    const int64_t n = mlff_dataset_size(run->test);
    run->verdict->teacher_spread = run->verdict->teacher_error = NAN;
    if (run->teacher && run->teacher->forces == mlff_teacher_forces) mlff_teacher_info_get(run->teacher->context, &info);
    for (int64_t k = 0; info.n_members > 1 && k < n; k += 1 + n / MOST) {
        MLFF_TRY(mlff_dataset_get(run->test, k, &system));
        const size_t width = 3 * (size_t)system->n_atoms;
        MLFF_TRY(base_grow(&values, &capacity, 2 * width, sizeof *values, "forces"));
        if (verdict_judges(system, dynamics_alone) &&
            teacher_forces(run->teacher->context, &system, 1, &energy, values, values + width) == MLFF_OK) {
            for (size_t a = 0; system->label_forces && a < width; a++) {
                if (train_set_is_constrained(system, system->label_forces, (int)(a / 3))) continue;
                spread += values[width + a];
                error += fabs(values[a] - system->label_forces[a]);
                n_components++;
            }
        }
        mlff_system_destroy(system);
        system = NULL;
    }
    if (n_components == 0) goto done;
    if (error / (double)n_components > OTHER_METHOD)
        run->verdict->teacher_error = error / (double)n_components;
    else
        run->verdict->teacher_spread = spread / (double)n_components;
done:
    mlff_system_destroy(system);
    base_free(values);
    return status;
}

// Of Hessian probes none is counted: they are within 0.01 Å of other structures. `compositions` (or NULL): those of the structures that are
// judged, for the caller to free, also on failure.
static mlff_status sum_errors(const verdict_run *run, const mlff_force_field *field, const char *what, bool dynamics_alone,
                              error_sums sums[N_PARTS], verdict_composition **compositions, int *n_compositions_out)
{
    mlff_status status = MLFF_OK;
    const int64_t n = mlff_dataset_size(run->test);
    double *forces = NULL;
    size_t capacity = 0, n_judged = 0, list_capacity = 0;
    mlff_system *system = NULL;
    for (int64_t k = 0; k < n; k++) {
        verdict_composition alone;
        if (k % 32 == 0) MLFF_TRY(verdict_tell(run, what, (double)k / (double)n));
        if (dataset_is_probe(run->test, (size_t)k)) continue;
        MLFF_TRY(mlff_dataset_get(run->test, k, &system));
        MLFF_TRY(base_grow(&forces, &capacity, 3 * (size_t)system->n_atoms, sizeof *forces, "forces"));
        const enum part part = part_of(system, dynamics_alone);
        MLFF_TRY(add_errors(run, field, system, forces, &sums[part], &alone));
        if (compositions && part == JUDGED) {
            MLFF_TRY(base_grow(compositions, &list_capacity, n_judged + 1, sizeof alone, "compositions"));
            (*compositions)[n_judged++] = alone;
        }
        mlff_system_destroy(system);
        system = NULL;
    }
    if (compositions) *n_compositions_out = compositions_merge(*compositions, n_judged);
done:
    mlff_system_destroy(system);
    base_free(forces);
    return status;
}

// The student's force error beside that of a model that was trained without what the student's training added.
static mlff_status judge_baseline(const verdict_run *run, bool dynamics_alone, double student_error)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_evaluator *evaluator = NULL;
    error_sums sums[N_PARTS] = {0};
    options.device = o->device;
    options.n_threads = o->n_threads;
    MLFF_TRY(mlff_evaluator_create(o->baseline, &options, &evaluator));
    const mlff_force_field field = {"baseline", verdict_student_forces, evaluator};
    MLFF_TRY(sum_errors(run, &field, "errors of the baseline", dynamics_alone, sums, NULL, NULL));
    const double error = 1e3 * sums[JUDGED].force_absolute / (double)sums[JUDGED].n_components;
    run->verdict->baseline_force_error = 1e-3 * error;
    verdict_say(verdict_add(run->verdict, "baseline", "x", student_error / error, NAN, 1, 0),
                "force error over that of the baseline on the same structures, %.2f over %.2f meV/Å", student_error, error);
done:
    for (int k = 0; k < N_PARTS; k++) pressure_errors_free(&sums[k].pressures);
    mlff_evaluator_destroy(evaluator);
    return status;
}

// Copies of training structures among those that the student is judged on. `held_out_out`: they were counted, and are few.
static mlff_status judge_copies(const verdict_run *run, bool *held_out_out)
{
    mlff_status status = MLFF_OK;
    const int64_t size = mlff_dataset_size(run->test);
    int64_t n, first = 0, *copy_of;
    *held_out_out = false;
    if (!run->verdict->options.trained_on) return MLFF_OK;
    if (!(copy_of = base_alloc((size_t)size, sizeof *copy_of, "copies"))) return MLFF_ERR_MEMORY;
    energy_kinds_compare(&run->verdict->options.trained_on->kinds, &run->test->kinds);
    MLFF_TRY(mlff_dataset_copies(run->test, run->verdict->options.trained_on, &n, copy_of));
    while (first < size && copy_of[first] < 0) first++;
    mlff_bar *bar = verdict_add(run->verdict, "held_out", "%", 100.0 * (double)n / (double)size, NAN, MOST_COPIES, 0);
    *held_out_out = bar->state == MLFF_BAR_PASSED;
    if (n == 0)
        verdict_say(bar,
                    "none of %" PRId64 " structure%s is among the training data, moved, turned or with atoms in another order",
                    size, base_plural(size));
    else
        verdict_say(bar,
                    "%" PRId64 " of %" PRId64 " structure%s %s among the training data, moved, turned or with atoms in another "
                    "order; the first is structure %" PRId64 ", training structure %" PRId64,
                    n, size, base_plural(size), n == 1 ? "is" : "are", first, copy_of[first]);
done:
    base_free(copy_of);
    return status;
}

mlff_status verdict_errors(const verdict_run *run, const mlff_model *student)
{
    mlff_status status = MLFF_OK;
    error_sums sums[N_PARTS] = {0};
    const error_sums *judged = &sums[JUDGED];
    const bool dynamics_alone = verdict_has_dynamics(run->test);
    bool held_out;
    MLFF_TRY(judge_copies(run, &held_out));
    MLFF_TRY(sum_errors(run, &run->student, "errors", dynamics_alone, sums, &run->verdict->compositions,
                        &run->verdict->n_compositions));
    MLFF_TRY(measure_spread(run, dynamics_alone));
    judge_errors(run, sums, dynamics_alone, held_out);
    warn_of_few(judged->n_structures);
    if (dynamics_alone) warn_of_systems(run->verdict);
    warn_of_elements(run, student);
    if (run->verdict->options.baseline)
        MLFF_TRY(judge_baseline(run, dynamics_alone, 1e3 * judged->force_absolute / (double)judged->n_components));
done:
    for (int k = 0; k < N_PARTS; k++) pressure_errors_free(&sums[k].pressures);
    return status;
}
