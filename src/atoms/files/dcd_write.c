// SPDX-License-Identifier: MIT
// dcd_write.c: frames of DCD as CHARMM and NAMD write them: positions in float32, the cell as lengths and angles (degrees). Records
// stand between their lengths, in the byte order of the machine. Of one file all frames have one number of atoms, and all a cell or
// none. A cell is turned so that a lies along x and b in the xy plane, and the positions with it. The header has the step of the first
// frame and one interval, by the first two frames: in steps and, where they have times, as steps of CHARMM's unit of time,
// sqrt(amu Å² / (kcal/mol)); frames without steps are one apart. Frames that are not at this interval take the times from all. The title
// says whether the steps of the header are those of the frames, so that a run can go on with the file.
#include <errno.h>
#include <math.h>
#include <string.h>

#include "writer.h"

enum { HEADER_BYTES = 84, TITLE_BYTES = 80, CELL_BYTES = 48 };
enum {
    N_FRAMES_AT = 8,
    FIRST_STEP_AT = 12,
    INTERVAL_AT = 16,
    TIMESTEP_AT = 44,
    HAS_CELL_AT = 48,
    TITLE_AT = 100,
    N_ATOMS_AT = 188,
    FIRST_FRAME_AT = 196
};
#define CHARMM_TIME 48.888213 // fs
static const char title_plain[] = "positions in Angstrom, written by mlff";
static const char title_steps[] = "positions in Angstrom at equal intervals of steps, written by mlff";

static void add_int(mlff_writer *writer, size_t value)
{
    const int32_t number = (int32_t)value;
    writer_add(writer, &number, sizeof number);
}

static void title_text(bool has_steps, char title[TITLE_BYTES + 1])
{
    snprintf(title, TITLE_BYTES + 1, "%-*s", TITLE_BYTES, has_steps ? title_steps : title_plain);
}

static void add_header(mlff_writer *writer)
{
    int32_t control[20] = {0};
    char title[TITLE_BYTES + 1];
    control[1] = writer->first_step > 0 ? (int32_t)writer->first_step : 0;
    control[2] = 1;
    control[10] = writer->has_cell;
    control[19] = 24; // the version of CHARMM whose form this is
    add_int(writer, HEADER_BYTES);
    writer_add_text(writer, "CORD");
    writer_add(writer, control, sizeof control);
    add_int(writer, HEADER_BYTES);
    title_text(writer->first_step >= 0, title);
    add_int(writer, 4 + TITLE_BYTES);
    add_int(writer, 1);
    writer_add(writer, title, TITLE_BYTES);
    add_int(writer, 4 + TITLE_BYTES);
    add_int(writer, 4);
    add_int(writer, (size_t)writer->n_atoms);
    add_int(writer, 4);
}

// The interval of the first two frames.
static void take_interval(mlff_writer *writer, const mlff_frame_results *results)
{
    const bool has_steps = writer->first_step >= 0;
    const int64_t steps = has_steps ? results->step - writer->first_step : results->step < 0;
    writer->uneven = steps <= 0 || steps > INT32_MAX;
    if (writer->uneven) return;
    // Of a file that a run goes on with; the timestep is taken to be one.
    if (isnan(writer->first_fs) && has_steps && results->step > 0)
        writer->first_fs = results->time_fs / (double)results->step * (double)writer->first_step;
    const double interval = results->time_fs - writer->first_fs; // NaN where absent
    writer->interval_fs = interval > 0 ? interval : 0;
    writer->interval_steps = has_steps || interval > 0 ? (int32_t)steps : 0;
}

// Whether the next frame is not where the interval puts it.
static bool is_off(const mlff_writer *writer, const mlff_frame_results *results)
{
    if (writer->first_step >= 0) return results->step != writer->first_step + writer->n_frames * writer->interval_steps;
    const double expected = writer->first_fs + (double)writer->n_frames * writer->interval_fs;
    return results->step >= 0 || fabs(results->time_fs - expected) > 1e-3 * writer->interval_fs;
}

static void take_time(mlff_writer *writer, const mlff_frame_results *results)
{
    if (writer->n_frames == 0) {
        writer->first_step = results->step <= INT32_MAX ? results->step : -1;
        writer->first_fs = results->time_fs;
    } else if (writer->n_frames == 1) {
        take_interval(writer, results);
    } else if (is_off(writer, results)) {
        writer->uneven = true;
    }
}

// Lengths a, b, c and angles in the order of the format: a, γ, b, β, α, c.
static void add_cell(mlff_writer *writer, const standard_box *box)
{
    double length[3], angle[3];
    writer_box_lengths(box, length, angle);
    const double row[6] = {length[0], angle[2], length[1], angle[1], angle[0], length[2]};
    add_int(writer, CELL_BYTES);
    writer_add(writer, row, sizeof row);
    add_int(writer, CELL_BYTES);
}

static mlff_status make_frame(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results)
{
    mlff_status status = MLFF_OK;
    standard_box box;
    bool has_cell = false;
    for (int k = 0; k < 9; k++) has_cell |= system->cell[k] != 0;
    if (writer->n_frames == 0) {
        writer->n_atoms = system->n_atoms;
        writer->has_cell = has_cell;
    }
    if (system->n_atoms != writer->n_atoms || has_cell != writer->has_cell)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the frames of a DCD have one number of atoms and all a cell or none; write .extxyz",
                  path);
    if (system->n_atoms > INT32_MAX / 4) MLFF_FAIL(MLFF_ERR_LIMIT, "%s: %d atoms do not fit into a DCD", path, system->n_atoms);
    const size_t bytes = 4 * (size_t)system->n_atoms;
    if (has_cell && !writer_standard_box(system, &box))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the cell is left-handed or flat, which a DCD cannot hold; write .extxyz", path);
    MLFF_TRY(writer_reserve(writer, 512 + 3 * (bytes + 8)));
    take_time(writer, results);
    if (writer->n_frames == 0) add_header(writer);
    if (has_cell) add_cell(writer, &box);
    for (int c = 0; c < 3; c++) {
        add_int(writer, bytes);
        for (int i = 0; i < system->n_atoms; i++) {
            const double *r = system->positions + 3 * (size_t)i;
            double turned[3] = {r[0], r[1], r[2]};
            if (has_cell) writer_turn(&box, r, turned);
            const float value = (float)turned[c];
            if (!isfinite(value)) MLFF_FAIL(MLFF_ERR_VALUE, "%s: position of atom %d to be written is not finite", path, i);
            writer_add(writer, &value, sizeof value);
        }
        add_int(writer, bytes);
    }
done:
    return status;
}

static bool put(FILE *file, long at, const void *value, size_t bytes)
{
    return fseek(file, at, SEEK_SET) == 0 && fwrite(value, bytes, 1, file) == 1;
}

// The number of frames stands in the header. It comes last: of a file with two frames or more the interval is then valid, also where the
// process was killed here.
static mlff_status after_frame(mlff_writer *writer, FILE *file)
{
    const int32_t n = (int32_t)(writer->n_frames < INT32_MAX ? writer->n_frames : INT32_MAX);
    const bool is_even = writer->interval_steps > 0 && !writer->uneven;
    bool good = true;
    if (is_even && n == 2) {
        const float timestep = (float)(writer->interval_fs / writer->interval_steps / CHARMM_TIME);
        good = put(file, INTERVAL_AT, &writer->interval_steps, 4) && put(file, TIMESTEP_AT, &timestep, 4);
    } else if (writer->uneven && !writer->uneven_told) {
        char title[TITLE_BYTES + 1];
        const int32_t one = 1;
        const float none = 0;
        title_text(false, title);
        good = put(file, INTERVAL_AT, &one, 4) && put(file, TIMESTEP_AT, &none, 4) && put(file, TITLE_AT, title, TITLE_BYTES);
        writer->uneven_told = good;
    }
    good = good && fflush(file) == 0 && put(file, N_FRAMES_AT, &n, 4) && fseek(file, 0, SEEK_END) == 0 && fflush(file) == 0;
    return good ? MLFF_OK : mlff_fail(MLFF_ERR_IO, "the header of a DCD cannot be written: %s", strerror(errno ? errno : EIO));
}

// ---- files that grow

typedef struct header {
    int32_t n_frames, first_step, interval, has_cell, n_atoms;
    float timestep;
    bool has_steps;
    int64_t frame_bytes;
} header;

static int32_t int_at(const char *bytes)
{
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

// The header at the file's beginning, if it is one that add_header makes; the file is then at its first frame.
static bool read_header(FILE *file, header *h)
{
    char bytes[FIRST_FRAME_AT], title[TITLE_BYTES + 1];
    if (fseek(file, 0, SEEK_SET) != 0 || fread(bytes, sizeof bytes, 1, file) != 1) return false;
    if (int_at(bytes) != HEADER_BYTES || memcmp(bytes + 4, "CORD", 4) != 0 || int_at(bytes + TITLE_AT - 8) != 4 + TITLE_BYTES)
        return false;
    *h = (header){.n_frames = int_at(bytes + N_FRAMES_AT),
                  .first_step = int_at(bytes + FIRST_STEP_AT),
                  .interval = int_at(bytes + INTERVAL_AT),
                  .has_cell = int_at(bytes + HAS_CELL_AT),
                  .n_atoms = int_at(bytes + N_ATOMS_AT)};
    memcpy(&h->timestep, bytes + TIMESTEP_AT, sizeof h->timestep);
    title_text(true, title);
    h->has_steps = memcmp(bytes + TITLE_AT, title, TITLE_BYTES) == 0;
    h->frame_bytes = 3 * (4 * (int64_t)h->n_atoms + 8) + (h->has_cell ? CELL_BYTES + 8 : 0);
    return h->n_atoms >= 1 && h->n_frames >= 0 && (!h->has_steps || (h->first_step >= 0 && h->interval >= 1));
}

// Frames are counted by the file's length: a run that is killed may have written one that the header does not count.
static mlff_status reopen(mlff_writer *writer, FILE *file)
{
    header h;
    const bool ours = read_header(file, &h) && fseeko(file, 0, SEEK_END) == 0;
    const int64_t bytes = ours ? (int64_t)ftello(file) - FIRST_FRAME_AT : 0;
    if (!ours || bytes <= 0 || bytes % h.frame_bytes != 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: not a DCD that this wrote whole; give another name", writer->path);
    writer->n_frames = bytes / h.frame_bytes;
    writer->n_atoms = h.n_atoms;
    writer->has_cell = h.has_cell;
    writer->first_step = h.has_steps ? h.first_step : -1;
    writer->first_fs = NAN;
    writer->interval_steps = h.interval;
    writer->uneven = writer->n_frames > 1 && (!h.has_steps || h.n_frames < 2);
    const int32_t n = (int32_t)(writer->n_frames < INT32_MAX ? writer->n_frames : INT32_MAX);
    if (n != h.n_frames && !put(file, N_FRAMES_AT, &n, 4)) return mlff_fail(MLFF_ERR_IO, "%s: %s", writer->path, strerror(errno));
    return MLFF_OK;
}

// The interval is valid from two frames on that the header counts.
static enum scanned scan_frame(frame_scan *scan, int n_atoms, int64_t *step_out)
{
    if (scan->frame_bytes == 0) {
        header h;
        if (!read_header(scan->file, &h) || !h.has_steps || h.n_atoms != n_atoms) return NOT_OURS;
        scan->frame_bytes = (size_t)h.frame_bytes;
        scan->next_step = h.first_step;
        scan->interval = h.n_frames > 1 ? h.interval : 0;
    }
    // The last byte is read: beyond the file's end nothing can be.
    if (scan->next_step < 0 || fseeko(scan->file, (off_t)scan->frame_bytes - 1, SEEK_CUR) != 0 || getc(scan->file) == EOF)
        return CUT_OFF;
    *step_out = scan->next_step;
    scan->next_step = scan->interval > 0 ? scan->next_step + scan->interval : -1;
    return SCANNED;
}

const writer_format dcd_format = {.name = "DCD",
                                  .make_frame = make_frame,
                                  .scan_frame = scan_frame,
                                  .has_one_interval = true,
                                  .after_frame = after_frame,
                                  .reopen = reopen};
