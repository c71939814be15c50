/* SPDX-License-Identifier: MIT */
/* student.h: the energies of a model that was trained in other arithmetic than it will be used in. */
#ifndef STUDENT_H
#define STUDENT_H

#include "mlff_train.h"

/* Adds one energy an atom to those of the elements, so that the median difference from the labels is 0 in the arithmetic of `options`, and sets
 * the errors of the energy, of 500 structures at most. Products in TF32 shift all energies of a student (by up to 0.9
 * meV/atom where it was measured), and a training in TF32 makes up for it. Replaces *model; it stays where no structure has an energy or an energy is not finite. Fails as
 * mlff_evaluator_create and mlff_evaluator_compute. */
mlff_status student_settle_energies(mlff_model **model, const mlff_dataset *labels, const mlff_evaluator_options *options,
                                    mlff_training_errors *errors);

#endif
