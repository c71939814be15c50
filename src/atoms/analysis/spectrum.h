/* SPDX-License-Identifier: MIT */
/* spectrum.h: the vibrational density of states of velocities. */
#ifndef SPECTRUM_H
#define SPECTRUM_H

#include "base/base.h"
#include "mlff_atoms.h"

/* Power spectrum of mass-weighted velocities, by the cosine transform of their autocorrelation under a Hann window. velocities
 * [n_frames][3 n_atoms] at intervals of dt fs; spectrum [n_lags] at wavenumbers k·step_out (1/cm), scaled to the sum 1.
 * n_lags <= n_frames / 2. Fails with MLFF_ERR_MEMORY. */
mlff_status spectrum_of(const double *velocities, int64_t n_frames, const double *masses, int n_atoms, double dt_fs, int n_lags,
                        double *spectrum, double *step_out);

/* Velocities of the vibrations alone, out[n_atoms][3]: without the motion of the center of mass and, where nothing repeats, the
 * rotation of the whole; with fixed atoms they are taken as they are. The system has velocities. */
void spectrum_velocities(const mlff_system *system, double *out);

#endif
