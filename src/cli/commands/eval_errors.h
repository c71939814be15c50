// SPDX-License-Identifier: MIT
// eval_errors.h: errors of energies, forces and stress against labels: sums over frames, as text and JSON.
#ifndef EVAL_ERRORS_H
#define EVAL_ERRORS_H

#include "cli/support/cli.h"

// Deviation of predictions from labels, summed up.
typedef struct deviation {
    int64_t n;
    double absolute, square;         // sums of |error| and error²
    double label_mean, label_square; // Welford: mean, and sum of squared distances from it
    double error_mean, error_square; // the same of the error
} deviation;

// Sums of |error| over the frames of one composition.
typedef struct composition_errors {
    char name[64]; // its formula, of frames with periodic axes after "cell "
    int64_t n_frames, n_energies, n_components;
    double energy, force, force_square; // of energies per atom, eV, and of components of forces, eV/Å
} composition_errors;

typedef struct eval_errors {
    deviation energy, force, stress; // of the energy per atom, eV, of components of forces, eV/Å, and stress, eV/Å³
    deviation force_of[MLFF_MAX_ATOMIC_NUMBER + 1]; // of the components of each element's atoms
    double *energy_errors;                          // [energy.n] eV/atom: the MAE about their mean needs them all
    size_t capacity;
    composition_errors *compositions; // [n_compositions] of labelled frames, in the order of their names
    size_t n_compositions, composition_capacity;
} eval_errors;

// Room for one frame more, also of a new composition. MLFF_ERR_MEMORY.
mlff_status eval_errors_reserve(eval_errors *errors);
// Adds a frame's, of the labels that it has, after eval_errors_reserve. `stress`: [6], eV/Å³, or NULL.
void eval_errors_add(eval_errors *errors, const mlff_system *system, double energy, const double *forces, const double *stress);
// Whether the labelled force is 0 because the atom is fixed, as constraints make it; it counts nowhere.
bool eval_is_constrained(const mlff_system *system, int atom);
// After the last frame: compositions in the order of their force errors, largest first.
void eval_errors_sort(eval_errors *errors);
// Lines for people; nothing without labels. eval_errors_sort comes before it and before eval_errors_json.
void eval_errors_print(const eval_errors *errors);
// Members of the object that is being written.
void eval_errors_json(const eval_errors *errors, cli_json *json);
void eval_errors_free(eval_errors *errors);

#endif
