// SPDX-License-Identifier: MIT
// resume.c: where a trajectory is to be cut for a simulation that goes on from a restart file.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats.h"

bool scan_line(frame_scan *scan)
{
    const ssize_t length = getline(&scan->line, &scan->line_bytes, scan->file);
    scan->line_number++;
    return length > 0 && scan->line[length - 1] == '\n';
}

// Bytes up to the end of the last frame that stays, how many stay, and how many, whole or not, come after it.
static mlff_status find_cut(const writer_format *format, frame_scan *scan, int n_atoms, int64_t step, off_t *keep_out,
                            int64_t *n_kept_out, int64_t *n_removed_out, int64_t *last_step_out)
{
    off_t keep = 0;
    int64_t n_kept = 0, n_removed = 0, last_step = -1;
    for (;;) {
        int64_t frame_step;
        int c = getc(scan->file);
        if (c == EOF) break;
        ungetc(c, scan->file);
        const enum scanned found = format->scan_frame(scan, n_atoms, &frame_step);
        if (found == NOT_OURS)
            return mlff_fail(MLFF_ERR_FORMAT,
                             "%s:%" PRId64 ": not a frame of a trajectory of %d atom%s with its step; give this run another -o",
                             scan->path, scan->line_number, n_atoms, base_plural(n_atoms));
        if (found == CUT_OFF || frame_step > step) n_removed++;
        if (found == CUT_OFF) break;
        if (n_removed > 0) continue;
        keep = ftello(scan->file);
        n_kept++;
        last_step = frame_step;
    }
    if (ferror(scan->file)) return base_fail_reading(scan->path, errno);
    *keep_out = keep;
    *n_kept_out = n_kept;
    *n_removed_out = n_removed;
    *last_step_out = last_step;
    return MLFF_OK;
}

// Whether frames at the multiples of `every`, from `step` on, have the interval of those that stay.
static mlff_status check_interval(const frame_scan *scan, int64_t n_kept, int64_t last_step, int64_t step, int64_t every)
{
    if (n_kept == 0) return MLFF_OK;
    const bool fits = last_step % every == 0 && last_step + every >= step && (n_kept < 2 || scan->interval == every);
    if (fits) return MLFF_OK;
    return mlff_fail(MLFF_ERR_UNSUPPORTED,
                     "%s: its frames up to step %" PRId64 " and those of every %" PRId64 " steps from step %" PRId64
                     " on are not at one interval, as those of its format are; give this run another -o",
                     scan->path, last_step, every, step);
}

mlff_status mlff_writer_resume(const char *path, const char *format_name, int n_atoms, int64_t step, int64_t every,
                               int64_t *n_removed_out, int64_t *last_step_out, mlff_writer **writer_out)
{
    mlff_status status = MLFF_OK;
    off_t keep = 0;
    int64_t n_kept = 0, n_removed = 0, last_step = -1;
    if (!path || !path[0] || n_atoms < 1 || every < 1 || !writer_out)
        return mlff_fail(MLFF_ERR_USAGE,
                         "mlff_writer_resume: a file, a number of atoms, an interval and writer_out must be given");
    const file_format *chosen;
    if ((status = format_to_write(path, format_name, &chosen)) != MLFF_OK) return status;
    const writer_format *format = chosen->writer;
    if (!base_is_stream(path)) {
        frame_scan scan = {.path = path, .file = fopen(path, "r+be")};
        if (!scan.file && errno != ENOENT) return base_fail_reading(path, errno);
        if (scan.file) {
            status = base_lock(fileno(scan.file), path, "frames");
            if (status == MLFF_OK) status = find_cut(format, &scan, n_atoms, step, &keep, &n_kept, &n_removed, &last_step);
            if (status == MLFF_OK && format->has_one_interval) status = check_interval(&scan, n_kept, last_step, step, every);
            if (status == MLFF_OK && n_removed > 0 && ftruncate(fileno(scan.file), keep) != 0)
                status = mlff_fail(MLFF_ERR_IO, "%s: cannot remove the frames after step %" PRId64 ": %s", path, step,
                                   strerror(errno));
            free(scan.line);
            fclose(scan.file);
        }
        if (status != MLFF_OK) return status;
    }
    if (n_removed_out) *n_removed_out = n_removed;
    if (last_step_out) *last_step_out = last_step;
    return mlff_writer_open(path, format_name, 1, writer_out);
}
