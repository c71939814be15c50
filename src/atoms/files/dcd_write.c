// SPDX-License-Identifier: MIT
// dcd_write.c: frames of DCD as CHARMM and NAMD write them: positions in float32, the cell as lengths and angles (degrees). Records
// stand between their lengths, in the byte order of the machine. Of one file all frames have one number of atoms, and all a cell or
// none. A cell is turned so that a lies along x and b in the xy plane, and the positions with it. The interval of frames stands in the
// header as steps of CHARMM's unit of time, sqrt(amu Å² / (kcal/mol)): once by the first two frames, where these have times; without
// steps they are one apart.
#include <errno.h>
#include <math.h>
#include <string.h>

#include "writer.h"

enum { HEADER_BYTES = 84, TITLE_BYTES = 80, N_FRAMES_AT = 8, INTERVAL_AT = 16, TIMESTEP_AT = 44, CELL_BYTES = 48 };
#define CHARMM_TIME 48.888213 // fs

static void add_int(mlff_writer *writer, size_t value)
{
    const int32_t number = (int32_t)value;
    writer_add(writer, &number, sizeof number);
}

static void add_header(mlff_writer *writer, int64_t first_step)
{
    int32_t control[20] = {0};
    char title[TITLE_BYTES + 1];
    control[1] = first_step >= 0 && first_step <= INT32_MAX ? (int32_t)first_step : 0;
    control[2] = 1;
    control[10] = writer->has_cell;
    control[19] = 24; // the version of CHARMM whose form this is
    add_int(writer, HEADER_BYTES);
    writer_add_text(writer, "CORD");
    writer_add(writer, control, sizeof control);
    add_int(writer, HEADER_BYTES);
    snprintf(title, sizeof title, "%-*s", TITLE_BYTES, "positions in Angstrom, written by mlff");
    add_int(writer, 4 + TITLE_BYTES);
    add_int(writer, 1);
    writer_add(writer, title, TITLE_BYTES);
    add_int(writer, 4 + TITLE_BYTES);
    add_int(writer, 4);
    add_int(writer, (size_t)writer->n_atoms);
    add_int(writer, 4);
}

static void take_interval(mlff_writer *writer, const mlff_frame_results *results)
{
    if (writer->n_frames == 0) {
        writer->first_step = results->step;
        writer->first_fs = results->time_fs;
    } else if (writer->n_frames == 1) {
        const int64_t steps = writer->first_step >= 0 ? results->step - writer->first_step : results->step < 0;
        const double interval = results->time_fs - writer->first_fs; // NaN where absent
        if (steps > 0 && steps <= INT32_MAX && interval > 0) {
            writer->interval_steps = (int32_t)steps;
            writer->interval_fs = interval;
        }
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
    if (writer->n_frames == 0) add_header(writer, results->step);
    take_interval(writer, results);
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

// Four bytes.
static bool put(FILE *file, long at, const void *value)
{
    return fseek(file, at, SEEK_SET) == 0 && fwrite(value, 4, 1, file) == 1;
}

// The number of frames stands in the header.
static mlff_status after_frame(mlff_writer *writer, FILE *file)
{
    const int32_t n = (int32_t)(writer->n_frames < INT32_MAX ? writer->n_frames : INT32_MAX);
    bool good = put(file, N_FRAMES_AT, &n);
    if (writer->interval_steps > 0) {
        const float timestep = (float)(writer->interval_fs / writer->interval_steps / CHARMM_TIME);
        good = good && put(file, INTERVAL_AT, &writer->interval_steps) && put(file, TIMESTEP_AT, &timestep);
    }
    good = good && fseek(file, 0, SEEK_END) == 0 && fflush(file) == 0;
    return good ? MLFF_OK : mlff_fail(MLFF_ERR_IO, "the header of a DCD cannot be written: %s", strerror(errno ? errno : EIO));
}

static bool read_int(FILE *file, long at, int32_t *value_out)
{
    return fseek(file, at, SEEK_SET) == 0 && fread(value_out, sizeof *value_out, 1, file) == 1;
}

// Frames are added to what add_header began and nothing else: the file is as long as its header says.
static mlff_status reopen(mlff_writer *writer, FILE *file)
{
    enum { HAS_CELL_AT = 48, N_ATOMS_AT = 188, FIRST_FRAME_AT = 196 };
    int32_t length = 0, n_frames = 0, has_cell = 0, n_atoms = 0;
    const bool read = read_int(file, 0, &length) && read_int(file, N_FRAMES_AT, &n_frames) &&
                      read_int(file, HAS_CELL_AT, &has_cell) && read_int(file, N_ATOMS_AT, &n_atoms) &&
                      fseek(file, 0, SEEK_END) == 0;
    const int64_t frame_bytes = 3 * (4 * (int64_t)n_atoms + 8) + (has_cell ? CELL_BYTES + 8 : 0);
    if (!read || length != HEADER_BYTES || n_frames < 1 || n_atoms < 1 || ftell(file) != FIRST_FRAME_AT + n_frames * frame_bytes)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: not a DCD that this wrote whole; give another name", writer->path);
    writer->n_frames = n_frames;
    writer->n_atoms = n_atoms;
    writer->has_cell = has_cell;
    writer->first_step = -1;
    writer->first_fs = NAN;
    return MLFF_OK;
}

const writer_format dcd_format = {.name = "DCD", .make_frame = make_frame, .after_frame = after_frame, .reopen = reopen};
