// SPDX-License-Identifier: MIT
// eval_errors.c: errors of energies, forces and stress against labels.
#include "eval_errors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define LARGE_SHIFT 10.0 // times the RMSE without it: nothing that training leaves behind

static void deviation_add(deviation *sum, double prediction, double label)
{
    double error = prediction - label, from_mean = label - sum->label_mean;
    sum->n++;
    sum->absolute += fabs(error);
    sum->square += error * error;
    sum->label_mean += from_mean / (double)sum->n;
    sum->label_square += from_mean * (label - sum->label_mean);
    double from_mean_error = error - sum->error_mean;
    sum->error_mean += from_mean_error / (double)sum->n;
    sum->error_square += from_mean_error * (error - sum->error_mean);
}

// What is left of the error once its mean is taken away; nothing to speak of where there is but one.
static double deviation_shifted_rmse(const deviation *sum)
{
    return sum->n > 1 ? sqrt(sum->error_square / (double)sum->n) : NAN;
}

static double deviation_mae(const deviation *sum)
{
    return sum->n ? sum->absolute / (double)sum->n : NAN;
}

static double deviation_rmse(const deviation *sum)
{
    return sum->n ? sqrt(sum->square / (double)sum->n) : NAN;
}

// Share of the labels' variance that is explained; not defined where they do not vary.
static double deviation_r2(const deviation *sum)
{
    return sum->label_square > 0 ? 1.0 - sum->square / sum->label_square : NAN;
}

static double shifted_mae(const eval_errors *errors)
{
    double sum = 0;
    for (int64_t i = 0; i < errors->energy.n; i++) sum += fabs(errors->energy_errors[i] - errors->energy.error_mean);
    return errors->energy.n > 1 ? sum / (double)errors->energy.n : NAN;
}

mlff_status eval_errors_reserve(eval_errors *errors)
{
    const mlff_status status =
        base_grow(&errors->energy_errors, &errors->capacity, (size_t)errors->energy.n + 1, sizeof(double), "errors");
    if (status != MLFF_OK) return status;
    return base_grow(&errors->compositions, &errors->composition_capacity, errors->n_compositions + 1,
                     sizeof *errors->compositions, "errors");
}

// That of the system; a new one has its place among the names.
static composition_errors *find_composition(eval_errors *errors, const mlff_system *system)
{
    const bool periodic = system->periodic[0] || system->periodic[1] || system->periodic[2];
    composition_errors made = {0};
    char formula[sizeof made.name];
    size_t low = 0, high = errors->n_compositions;
    mlff_system_formula(system, formula, sizeof formula);
    snprintf(made.name, sizeof made.name, "%s%.50s", periodic ? "cell " : "", formula);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(errors->compositions[middle].name, made.name);
        if (order == 0) return &errors->compositions[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    composition_errors *place = &errors->compositions[low];
    memmove(place + 1, place, (errors->n_compositions++ - low) * sizeof *place);
    *place = made;
    return place;
}

bool eval_is_constrained(const mlff_system *system, int atom)
{
    const double *f = system->label_forces + 3 * (size_t)atom;
    return system->fixed && system->fixed[atom] && f[0] == 0 && f[1] == 0 && f[2] == 0;
}

void eval_errors_add(eval_errors *errors, const mlff_system *system, double energy, const double *forces, const double *stress)
{
    const double n = system->n_atoms, error = (energy - system->label_energy) / n;
    if (!isfinite(error) && !system->label_forces && !(stress && isfinite(system->label_stress[0]))) return;
    composition_errors *alike = find_composition(errors, system);
    alike->n_frames++;
    if (isfinite(error)) {
        errors->energy_errors[errors->energy.n] = error;
        deviation_add(&errors->energy, energy / n, system->label_energy / n);
        alike->n_energies++;
        alike->energy += fabs(error);
    }
    for (int k = 0; system->label_forces && k < 3 * system->n_atoms; k++) {
        if (eval_is_constrained(system, k / 3)) continue;
        const double of_force = forces[k] - system->label_forces[k];
        alike->n_components++;
        alike->force += fabs(of_force);
        alike->force_square += of_force * of_force;
        deviation_add(&errors->force, forces[k], system->label_forces[k]);
        deviation_add(&errors->force_of[system->species[k / 3]], forces[k], system->label_forces[k]);
    }
    for (int k = 0; stress && isfinite(system->label_stress[0]) && k < 6; k++)
        deviation_add(&errors->stress, stress[k], system->label_stress[k]);
}

void eval_errors_free(eval_errors *errors)
{
    base_free(errors->energy_errors);
    base_free(errors->compositions);
    *errors = (eval_errors){0};
}

static double mean_energy(const composition_errors *c)
{
    return c->n_energies ? c->energy / (double)c->n_energies : NAN;
}

static double mean_force(const composition_errors *c)
{
    return c->n_components ? c->force / (double)c->n_components : NAN;
}

// By force errors; those without labelled forces come last, by energy errors.
static int compare_compositions(const void *left, const void *right)
{
    const composition_errors *a = left, *b = right;
    const double force[2] = {a->n_components ? mean_force(a) : -1.0, b->n_components ? mean_force(b) : -1.0};
    const double energy[2] = {a->n_energies ? mean_energy(a) : -1.0, b->n_energies ? mean_energy(b) : -1.0};
    if (force[0] != force[1]) return force[0] < force[1] ? 1 : -1;
    if (energy[0] != energy[1]) return energy[0] < energy[1] ? 1 : -1;
    return strcmp(a->name, b->name);
}

void eval_errors_sort(eval_errors *errors)
{
    if (errors->n_compositions > 1)
        qsort(errors->compositions, errors->n_compositions, sizeof *errors->compositions, compare_compositions);
}

// ---- text

static void print_deviation(const char *name, const deviation *sum, const char *counted, double scale, const char *unit)
{
    if (!sum->n) return;
    printf("%-12s MAE %.4f %s, RMSE %.4f %s, ", name, scale * deviation_mae(sum), unit, scale * deviation_rmse(sum), unit);
    double r2 = deviation_r2(sum);
    if (isfinite(r2))
        printf("R² %.6g", r2);
    else
        fputs("R² not defined (the labels are all equal)", stdout);
    printf(" (%" PRId64 " %s)\n", sum->n, counted);
}

// Labels may count from other zeros than the model does; how well the energies follow each other is then seen without the shift.
static void print_shifted(const eval_errors *errors)
{
    double shift = errors->energy.error_mean, rmse = deviation_shifted_rmse(&errors->energy);
    if (errors->energy.n < 2) return;
    printf("%-12s MAE %.4f meV, RMSE %.4f meV after removing the mean difference, %.6g eV\n", "", 1000 * shifted_mae(errors),
           1000 * rmse, shift);
    if (fabs(shift) > LARGE_SHIFT * rmse)
        printf("%-12s the mean difference is most of the error: do the labels have another zero of energy (atoms, elements)?\n",
               "");
}

// Of several elements; of one it is the line above.
static void print_elements(const eval_errors *errors)
{
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        const deviation *sum = &errors->force_of[z];
        if (sum->n == 0 || sum->n == errors->force.n) continue;
        printf("%-9s %-2s MAE %.4f eV/Å, RMSE %.4f eV/Å (%" PRId64 " atom%s)\n", "", mlff_element_symbol(z), deviation_mae(sum),
               deviation_rmse(sum), sum->n / 3, base_plural(sum->n / 3));
    }
}

// Of several, those with the largest errors.
static void print_compositions(const eval_errors *errors)
{
    enum { MOST = 10 };
    if (errors->n_compositions < 2) return;
    puts("by composition, largest errors first:");
    for (size_t k = 0; k < errors->n_compositions && k < MOST; k++) {
        const composition_errors *c = &errors->compositions[k];
        printf("  %-22s", c->name);
        if (c->n_components) printf(" forces MAE %.4f eV/Å,", mean_force(c));
        if (c->n_energies) printf(" energy/atom MAE %.4f meV", 1000 * mean_energy(c));
        printf(" (%" PRId64 " frame%s)\n", c->n_frames, base_plural(c->n_frames));
    }
    if (errors->n_compositions > MOST) printf("  and %zu more (all are in --json)\n", errors->n_compositions - MOST);
}

void eval_errors_print(const eval_errors *errors)
{
    print_deviation("energy/atom", &errors->energy, "labelled frames", 1000, "meV");
    print_shifted(errors);
    print_deviation("forces", &errors->force, "labelled components", 1, "eV/Å");
    print_elements(errors);
    print_deviation("stress", &errors->stress, "labelled components", 1000, "meV/Å³");
    print_compositions(errors);
}

// ---- JSON

static void json_compositions(const eval_errors *errors, cli_json *json)
{
    if (errors->n_compositions < 2) return;
    cli_json_array(json, "errors_by_composition");
    for (size_t k = 0; k < errors->n_compositions; k++) {
        const composition_errors *c = &errors->compositions[k];
        cli_json_object(json, NULL);
        cli_json_text(json, "composition", c->name);
        cli_json_int(json, "n_frames", c->n_frames);
        if (c->n_energies) cli_json_number(json, "energy_mae_ev_per_atom", mean_energy(c));
        if (c->n_components) {
            cli_json_number(json, "forces_mae_ev_per_ang", mean_force(c));
            cli_json_number(json, "forces_rmse_ev_per_ang", sqrt(c->force_square / (double)c->n_components));
        }
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
}

void eval_errors_json(const eval_errors *errors, cli_json *json)
{
    cli_json_int(json, "n_labelled_energies", errors->energy.n);
    cli_json_int(json, "n_labelled_force_components", errors->force.n);
    if (errors->energy.n) {
        cli_json_number(json, "energy_mae_ev_per_atom", deviation_mae(&errors->energy));
        cli_json_number(json, "energy_rmse_ev_per_atom", deviation_rmse(&errors->energy));
        cli_json_number(json, "energy_r2", deviation_r2(&errors->energy));
        cli_json_number(json, "energy_shift_ev_per_atom", errors->energy.error_mean);
        cli_json_number(json, "energy_mae_shifted_ev_per_atom", shifted_mae(errors));
        cli_json_number(json, "energy_rmse_shifted_ev_per_atom", deviation_shifted_rmse(&errors->energy));
    }
    if (errors->stress.n) {
        cli_json_int(json, "n_labelled_stress_components", errors->stress.n);
        cli_json_number(json, "stress_mae_ev_per_ang3", deviation_mae(&errors->stress));
        cli_json_number(json, "stress_rmse_ev_per_ang3", deviation_rmse(&errors->stress));
        cli_json_number(json, "stress_r2", deviation_r2(&errors->stress));
    }
    json_compositions(errors, json);
    if (!errors->force.n) return;
    cli_json_number(json, "forces_mae_ev_per_ang", deviation_mae(&errors->force));
    cli_json_number(json, "forces_rmse_ev_per_ang", deviation_rmse(&errors->force));
    cli_json_number(json, "forces_r2", deviation_r2(&errors->force));
    cli_json_object(json, "forces_by_element");
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        const deviation *sum = &errors->force_of[z];
        if (sum->n == 0) continue;
        cli_json_object(json, mlff_element_symbol(z));
        cli_json_int(json, "n_atoms", sum->n / 3);
        cli_json_number(json, "mae_ev_per_ang", deviation_mae(sum));
        cli_json_number(json, "rmse_ev_per_ang", deviation_rmse(sum));
        cli_json_end(json, '}');
    }
    cli_json_end(json, '}');
}
