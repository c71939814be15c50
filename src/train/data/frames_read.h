/* SPDX-License-Identifier: MIT */
/* frames_read.h: the frames of a file one after the other, read by several threads where that is possible. */
#ifndef FRAMES_READ_H
#define FRAMES_READ_H

#include "atoms/atoms.h"
#include "base/base.h"
#include "mlff_atoms.h"

/* Calls `visit` in the caller's thread with each frame, in their order, read by n_threads (0: all cores); the system is released
 * afterwards. *energies_out: lines that tell the kinds of energies. Ends with the first failure of `visit`; fails as mlff_reader_open
 * and mlff_reader_next. */
typedef mlff_status (*frame_visitor)(void *context, const mlff_system *system);
mlff_status frames_visit(const char *path, int n_threads, frame_visitor visit, void *context, atoms_energy_lines *energies_out);

#endif
