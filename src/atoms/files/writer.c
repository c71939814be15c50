// SPDX-License-Identifier: MIT
// writer.c: trajectories in the format that a file's name says: a new file, or one that grows frame by frame.
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats.h"

// For reading and writing anywhere, unlike "a": a header may have to be brought up to date.
static FILE *open_appended(const char *path)
{
    FILE *file = fopen(path, "r+be"); // e: children that outlive this process do not keep the lock
    if (file || errno != ENOENT) return file;
    return fopen(path, "w+be");
}

// A last line that was not ended must not run into the first of the new frame.
static void end_last_line(FILE *file)
{
    const int last = fseek(file, -1, SEEK_END) == 0 ? getc(file) : '\n';
    if (fseek(file, 0, SEEK_END) == 0 && last != '\n') fputc('\n', file);
}

mlff_status mlff_writer_open(const char *path, const char *format_name, int append, mlff_writer **writer_out)
{
    mlff_status status = MLFF_OK;
    const file_format *format;
    mlff_writer *writer = NULL;

    if (!path || !path[0]) return mlff_fail(MLFF_ERR_USAGE, "no file name was given; \"-\" is standard output");
    MLFF_TRY(format_to_write(path, format_name, &format));
    if (format->writer->after_frame && base_is_stream(path))
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: the header of a %s file counts its frames, so that it cannot go into a pipe",
                         path, format->writer->name);
    if (!(writer = base_alloc(1, sizeof *writer, "a writer"))) return MLFF_ERR_MEMORY;
    writer->format = format->writer;
    if (!append || base_is_stream(path)) {
        MLFF_TRY(base_output_open(path, &writer->output));
    } else {
        if (!(writer->path = base_strdup(path))) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        if (!(writer->appended = open_appended(path))) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
        MLFF_TRY(base_lock(fileno(writer->appended), path, "frames"));
        const bool empty = fseek(writer->appended, 0, SEEK_END) == 0 && ftell(writer->appended) == 0;
        if (!empty && writer->format->reopen)
            MLFF_TRY(writer->format->reopen(writer, writer->appended));
        else if (!empty && !writer->format->after_frame)
            end_last_line(writer->appended);
        if (fseek(writer->appended, 0, SEEK_END) != 0) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
    }
    *writer_out = writer;
    writer = NULL;
done:
    mlff_writer_destroy(writer);
    return status;
}

// ---- the frame being made

mlff_status writer_reserve(mlff_writer *writer, size_t bytes)
{
    return base_grow(&writer->frame, &writer->capacity, writer->length + bytes, 1, "a frame");
}

void writer_add(mlff_writer *writer, const void *bytes, size_t n)
{
    memcpy(writer->frame + writer->length, bytes, n);
    writer->length += n;
}

void writer_add_text(mlff_writer *writer, const char *text)
{
    writer_add(writer, text, strlen(text));
}

bool writer_add_numbers(mlff_writer *writer, const double *values, int n)
{
    for (int k = 0; k < n; k++) {
        if (!isfinite(values[k])) return false;
        if (k > 0) writer->frame[writer->length++] = ' ';
        writer->length += (size_t)atoms_format_number(values[k], writer->frame + writer->length);
    }
    return true;
}

// ---- cells in the orientation of programs for dynamics

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void cross(const double a[3], const double b[3], double out[3])
{
    for (int k = 0; k < 3; k++) out[k] = a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3];
}

// A unit vector across the vectors that there are, of which there are at most two.
static void across(const double *const there[2], int n, double out[3])
{
    if (n == 2) {
        cross(there[0], there[1], out);
    } else {
        const double axes[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
        int least = 0;
        for (int k = 1; n == 1 && k < 3; k++)
            if (fabs(there[0][k]) < fabs(there[0][least])) least = k;
        if (n == 1)
            cross(there[0], axes[least], out);
        else
            memcpy(out, axes[0], sizeof axes[0]);
    }
    const double length = sqrt(dot(out, out));
    for (int k = 0; k < 3; k++) out[k] /= length;
}

// Gives axes without a vector one across the others, as long as the atoms need; says which these are.
static void complete_cell(const mlff_system *system, double cell[9], double low[3], bool made[3])
{
    int order[3] = {0}, n = 0;
    for (int axis = 0; axis < 3; axis++) {
        const double *v = cell + 3 * axis;
        if (!(made[axis] = dot(v, v) == 0)) order[n++] = axis;
    }
    bool none = n == 0;
    for (int axis = 0; axis < 3; axis++) {
        if (!made[axis]) continue;
        const double *there[2] = {cell + 3 * order[0], n > 1 ? cell + 3 * order[1] : NULL};
        double unit[3] = {axis == 0, axis == 1, axis == 2}, high = -INFINITY;
        if (!none) {
            // A right-handed order: the third vector is the product of the next two.
            across(there, n < 2 ? n : 2, unit);
            double side[3];
            if (n == 2) {
                cross(cell + 3 * ((axis + 1) % 3), cell + 3 * ((axis + 2) % 3), side);
                if (dot(side, unit) < 0)
                    for (int k = 0; k < 3; k++) unit[k] = -unit[k];
            }
        }
        low[axis] = INFINITY;
        for (int i = 0; i < system->n_atoms; i++) {
            const double at = dot(unit, system->positions + 3 * (size_t)i);
            low[axis] = fmin(low[axis], at);
            high = fmax(high, at);
        }
        low[axis] -= 0.5; // Å, so that a flat molecule has a box
        for (int k = 0; k < 3; k++) cell[3 * axis + k] = unit[k] * (high + 0.5 - low[axis]);
        order[n++] = axis;
    }
}

bool writer_standard_box(const mlff_system *system, standard_box *box)
{
    double cell[9], low[3] = {0}, third[3], rows[9];
    bool made[3];
    memcpy(cell, system->cell, sizeof cell);
    complete_cell(system, cell, low, made);
    const double *a = cell, *b = cell + 3, *c = cell + 6;
    cross(a, b, third);
    if (!(dot(third, c) > 0)) return false;
    // Rows of the rotation are where x, y and z of the box point in the system.
    const double length_a = sqrt(dot(a, a)), length_third = sqrt(dot(third, third));
    for (int k = 0; k < 3; k++) {
        rows[k] = a[k] / length_a;
        rows[6 + k] = third[k] / length_third;
    }
    cross(rows + 6, rows, rows + 3);
    memcpy(box->turn, rows, sizeof rows);
    const bool lower = // is there already: not a digit is changed
        cell[0] > 0 && cell[1] == 0 && cell[2] == 0 && cell[4] > 0 && cell[5] == 0;
    if (lower)
        for (int k = 0; k < 9; k++) box->turn[k] = k % 4 == 0;
    memset(box->origin, 0, sizeof box->origin);
    for (int axis = 0; axis < 3; axis++) {
        if (lower)
            memcpy(box->cell + 3 * axis, cell + 3 * axis, 3 * sizeof(double));
        else
            writer_turn(box, cell + 3 * axis, box->cell + 3 * axis);
        for (int k = axis + 1; k < 3; k++) box->cell[3 * axis + k] = 0;
    }
    for (int axis = 0; axis < 3; axis++) { // a vector made across the others is a multiple of its unit vector
        const double *v = box->cell + 3 * axis, length = sqrt(dot(v, v));
        for (int k = 0; made[axis] && k < 3; k++) box->origin[k] += v[k] / length * low[axis];
    }
    return true;
}

void writer_box_lengths(const standard_box *box, double length[3], double angle[3])
{
    for (int k = 0; k < 3; k++) length[k] = sqrt(dot(box->cell + 3 * k, box->cell + 3 * k));
    for (int k = 0; k < 3; k++) {
        const int i = (k + 1) % 3, j = (k + 2) % 3;
        const double cosine = dot(box->cell + 3 * i, box->cell + 3 * j) / (length[i] * length[j]);
        angle[k] = cosine == 0 ? 90 : acos(fmax(-1, fmin(1, cosine))) * (180 / BASE_PI);
    }
}

void writer_turn(const standard_box *box, const double v[3], double out[3])
{
    for (int r = 0; r < 3; r++) out[r] = dot(box->turn + 3 * r, v);
}

// ---- writing

// Whole or not at all: what was written of a frame before the disk was full is cut off again.
static mlff_status append_frame(mlff_writer *writer)
{
    int descriptor = fileno(writer->appended);
    struct stat before;
    if (base_is_removed(descriptor, writer->path))
        return mlff_fail(MLFF_ERR_IO, "%s: was removed while it was written, with its frames", writer->path);
    errno = 0;
    bool good = fseek(writer->appended, 0, SEEK_END) == 0 && fflush(writer->appended) == 0 && fstat(descriptor, &before) == 0;
    if (good && fwrite(writer->frame, 1, writer->length, writer->appended) == writer->length && fflush(writer->appended) == 0) {
        writer->n_frames++;
        return writer->format->after_frame ? writer->format->after_frame(writer, writer->appended) : MLFF_OK;
    }

    int error = errno ? errno : EIO;
    if (good && S_ISREG(before.st_mode) && ftruncate(descriptor, before.st_size) != 0)
        return mlff_fail(MLFF_ERR_IO, "%s: %s; its last frame is not whole", writer->path, strerror(error));
    return mlff_fail(MLFF_ERR_IO, "%s: cannot add a frame: %s; the frames before it are kept", writer->path, strerror(error));
}

// Of a new file each frame is flushed, so that those before one that cannot be written are known to be in the file; a pipe's reader wants
// each when it is made.
static mlff_status add_frame(mlff_writer *writer)
{
    const base_output *output = &writer->output;
    errno = 0;
    if (fwrite(writer->frame, 1, writer->length, output->file) != writer->length || fflush(output->file) != 0)
        return mlff_fail(MLFF_ERR_IO, "%s: cannot write: %s", strcmp(output->path, "-") == 0 ? "standard output" : output->path,
                         strerror(errno ? errno : EIO));
    writer->n_frames++;
    return output->temporary && writer->format->after_frame ? writer->format->after_frame(writer, output->file) : MLFF_OK;
}

mlff_status mlff_writer_write(mlff_writer *writer, const mlff_system *system, const mlff_frame_results *results)
{
    const mlff_frame_results none = {.energy = NAN, .step = -1, .time_fs = NAN};
    const char *path = writer->appended ? writer->path : writer->output.path;

    locale_t callers = uselocale(base_c_locale());
    writer->length = 0;
    mlff_status status = writer->format->make_frame(writer, path, system, results ? results : &none);
    uselocale(callers);
    if (status == MLFF_OK) status = writer->appended ? append_frame(writer) : add_frame(writer);
    if (status != MLFF_OK) return status;
    writer->n_added++;
    writer->whole_bytes += (int64_t)writer->length;
    return MLFF_OK;
}

mlff_status mlff_writer_keep(mlff_writer *writer, char *path_out, size_t bytes, int64_t *n_frames_out)
{
    mlff_status status = MLFF_OK;
    char partial[PATH_MAX] = "";
    if (writer->appended)
        snprintf(partial, sizeof partial, "%s", writer->n_added > 0 ? writer->path : "");
    else
        status = base_output_keep(&writer->output, writer->whole_bytes, partial);
    *n_frames_out = *partial ? writer->n_added : 0;
    snprintf(path_out, bytes, "%s", partial);
    mlff_writer_destroy(writer);
    return status;
}

mlff_status mlff_writer_close(mlff_writer *writer)
{
    mlff_status status = MLFF_OK;
    if (writer->appended) {
        errno = 0;
        if (fclose(writer->appended) != 0) status = mlff_fail(MLFF_ERR_IO, "%s: %s", writer->path, strerror(errno ? errno : EIO));
        writer->appended = NULL;
    } else {
        status = base_output_commit(&writer->output);
    }
    mlff_writer_destroy(writer);
    return status;
}

void mlff_writer_destroy(mlff_writer *writer)
{
    if (!writer) return;
    if (writer->appended) fclose(writer->appended);
    if (writer->output.path) base_output_abandon(&writer->output);
    base_free(writer->path);
    base_free(writer->frame);
    base_free(writer);
}
