/* SPDX-License-Identifier: MIT */
/* trajectories.h: what the readers of trajectories without elements share: bytes of a binary file, and the structure that names the
 * elements. */
#ifndef TRAJECTORIES_H
#define TRAJECTORIES_H

#include "atoms/atoms.h"

/* The next n bytes in one piece, fewer where the file ends, without going past them. Valid until the next call. Memory grows with the
 * bytes that there are, not with n. */
mlff_status reader_peek(mlff_reader *reader, size_t n, const unsigned char **bytes_out, size_t *got_out);
/* Goes past bytes that were peeked at. */
void reader_advance(mlff_reader *reader, size_t n);
/* The n bytes of the next frame; NULL where the file ends in place of it. Fails with MLFF_ERR_FORMAT where it ends in the frame, or before
 * the n_frames that its header promises (0 or less: not known). */
mlff_status reader_peek_frame(mlff_reader *reader, size_t n, int64_t n_frames, const unsigned char **frame_out);
/* The same for n bytes of any number; false in *whole_out where the file ends before. */
mlff_status reader_skip(mlff_reader *reader, uint64_t n, bool *whole_out);
/* "path: frame k: text" of the frame being read. */
mlff_status reader_fail_frame(const mlff_reader *reader, mlff_status status, const char *format, ...) MLFF_PRINTF(3, 4);

/* A frame's cell from lengths, Å, and angles, degrees; lengths of zero: none. */
mlff_status reader_frame_cell(const mlff_reader *reader, const double lengths[3], const double angles[3], double cell[9],
                              bool *has_cell_out);
/* mlff_system_check of the frame that was read, with its number. */
mlff_status reader_check_frame(const mlff_reader *reader, const mlff_system *system);

/* Fails where the frames, which have no elements, have no topology or one of another number of atoms. `kind`: "a DCD". */
mlff_status topology_check(const mlff_reader *reader, const char *kind, int64_t n_atoms);
/* A system of the topology's atoms at zero; with `n_atoms` alone where there is none. `cell` may be NULL; its periodic axes are those of
 * the topology where that has a cell, else all. */
mlff_status topology_make_system(const mlff_reader *reader, int n_atoms, const double cell[9], mlff_system **system_out);

#endif
