// SPDX-License-Identifier: MIT
// profile_files.c: the file of -o with profiles, also of a run that ended early.
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "profile_files.h"

static mlff_status save(mlff_profile *const *runs, int n, const mlff_profile *one, bool ended_early, const char *path, char *kept)
{
    mlff_status status = MLFF_OK;
    char partial[PATH_MAX];
    kept[0] = 0;
    if (!path) return MLFF_OK;
    const bool beside = ended_early && access(path, F_OK) == 0 && !base_is_stream(path);
    if (beside) MLFF_TRY(base_partial_name(path, partial));
    const char *name = beside ? partial : path;
    status = one ? mlff_profile_save(one, name) : mlff_profile_save_runs((const mlff_profile *const *)runs, n, name);
    if (status != MLFF_OK && beside) unlink(partial);
    if (status == MLFF_OK && strcmp(path, "-") != 0) snprintf(kept, PATH_MAX, "%s", name);
done:
    return status;
}

mlff_status profile_file_save(const mlff_profile *profile, bool ended_early, const char *path, char *kept)
{
    return save(NULL, 0, profile, ended_early, path, kept);
}

mlff_status profile_file_save_runs(mlff_profile *const *profiles, int n, bool ended_early, const char *path, char *kept)
{
    return save(profiles, n, NULL, ended_early, path, kept);
}

mlff_status profile_file_tell(mlff_status status, const char *cause, const char *kept, int n, const char *what, bool is_shown)
{
    if (kept[0]) return mlff_fail(status, "%s; kept: %d %s%s in %s", cause, n, what, base_plural(n), kept);
    return mlff_fail(status, "%s%s", cause, is_shown ? "; what was measured is shown" : "");
}
