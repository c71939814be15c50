// SPDX-License-Identifier: MIT
// md_files.c: the trajectory and the restart file of mlff md.
#include "cli/simulate/md_files.h"

#include <fcntl.h>
#include <unistd.h>

// A trajectory grows in place, so that a run that is killed leaves its frames. The file that is replaced stays locked until the new one
// is.
mlff_status md_new_trajectory(const char *path, const char *format, mlff_writer **writer_out)
{
    mlff_status status = MLFF_OK;
    int locked = -1;
    if (!base_is_stream(path)) {
        base_output empty;
        MLFF_TRY(base_lock_name(path, O_RDONLY, "frames", &locked));
        MLFF_TRY(base_output_open(path, &empty));
        MLFF_TRY(base_output_commit(&empty));
    }
    MLFF_TRY(mlff_writer_open(path, format, 1, writer_out));
done:
    if (locked >= 0) close(locked);
    return status;
}

bool md_refuses(const cli_arguments *arguments, const char *name, const char *option)
{
    if (!name || base_is_stream(name) || access(name, F_OK) != 0) return false;
    cli_usage_error(
        arguments,
        "--checkpoint: '%s' is there already, perhaps of a run that was interrupted: go on from it with --restart %s, or "
        "remove it, or give another name",
        name, option);
    return true;
}

mlff_status md_resume_trajectory(const char *path, const char *format, int n_atoms, int64_t step, int64_t every,
                                 int64_t *n_removed_out, bool *lacks_frame_out, mlff_writer **writer_out)
{
    const bool is_there = !base_is_stream(path) && access(path, F_OK) == 0;
    int64_t last;
    const mlff_status status = mlff_writer_resume(path, format, n_atoms, step, every, n_removed_out, &last, writer_out);
    *lacks_frame_out = is_there && step % every == 0 && last < step;
    return status;
}

void md_reserve(const char *restart, int n, int n_atoms, base_output *reserve)
{
    enum { ROW = 9 * 25, HEAD = 8192 }; // of a restart file: nine hexadecimal floats for each atom; a frame is smaller
    // Restart files that are renewed need their place once more, until they replace those before.
    (void)cli_reserve(restart, 2 * (int64_t)n * ((int64_t)ROW * n_atoms + HEAD), reserve);
}
