/* SPDX-License-Identifier: MIT */
/* md_files.h: the trajectory and the restart file of mlff md. */
#ifndef MD_FILES_H
#define MD_FILES_H

#include "base/base.h"
#include "cli/support/cli.h"

/* Makes `path` an empty trajectory (or a stream) that frames are added to; locked until the writer is closed. Fails where another
 * process writes it. */
mlff_status md_new_trajectory(const char *path, const char *format, mlff_writer **writer_out);
/* Opens the trajectory of a run that goes on from a restart file of `step`; *n_removed_out frames from after it were removed.
 * *lacks_frame_out: that of `step` itself could not be written by the run before, and comes next. */
mlff_status md_resume_trajectory(const char *path, const char *format, int n_atoms, int64_t step, int64_t every,
                                 int64_t *n_removed_out, bool *lacks_frame_out, mlff_writer **writer_out);

/* Whether a run that is not continued would replace the restart file `name`, of --checkpoint `option`; if so, says what to do. NULL and
 * streams: no. */
bool md_refuses(const cli_arguments *arguments, const char *name, const char *option);

/* Reserves space (cli_reserve) for frames of `n` replicas and as many restart files, so that a full disk does not keep a run from writing
 * its last step. Where space cannot be reserved there is none. */
void md_reserve(const char *restart, int n, int n_atoms, base_output *reserve);

#endif
