/* SPDX-License-Identifier: MIT */
/* profile_files.h: the file of -o with profiles, also of a run that ended early. */
#ifndef PROFILE_FILES_H
#define PROFILE_FILES_H

#include "cli/support/cli.h"

/* Writes one profile, or n as a list of runs, to `path`; NULL writes nothing. Those of a run that ended early go to NAME-partial where a
 * file is there, which may be of a whole run. `kept`, of PATH_MAX bytes, is the name of the file, "" without one. */
mlff_status profile_file_save(const mlff_profile *profile, bool ended_early, const char *path, char *kept);
mlff_status profile_file_save_runs(mlff_profile *const *profiles, int n, bool ended_early, const char *path, char *kept);
/* The error `cause` of a run that ended early, with where its n profiles are: "2 runs" of `what` "run" in the file `kept`, or shown.
 * Returns `status`. */
mlff_status profile_file_tell(mlff_status status, const char *cause, const char *kept, int n, const char *what, bool is_shown);

#endif
