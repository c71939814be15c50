// SPDX-License-Identifier: MIT
// netcdf_write.c: frames of AMBER NetCDF trajectories (AMBER NetCDF Trajectory Convention 1.0) in the classic format with 64-bit
// offsets (NetCDF Classic and 64-bit Offset File Formats, Unidata; OGC 11-100). Big-endian. A file is a header, which holds the number of
// frames, and frames of one size: time (ps, float32), step (not of the convention, which lets a run be continued), positions and
// velocities (Å, Å/ps, float32), lengths and angles of the cell (Å, degrees). Cells are turned as those of a DCD.
#include <errno.h>
#include <math.h>
#include <string.h>

#include "writer.h"

enum { NC_CHAR = 2, NC_INT = 4, NC_FLOAT = 5, NC_DOUBLE = 6, NC_DIMENSION = 10, NC_VARIABLE = 11, NC_ATTRIBUTE = 12 };
enum { FRAME, SPATIAL, ATOM, CELL_SPATIAL, CELL_ANGULAR, LABEL, N_DIMENSIONS };
enum { N_FRAMES_AT = 4, HEADER_MOST = 4096 };
#define PS_PER_FS 1e-3

// What is the same in all frames of a file.
typedef struct frame_shape {
    int n_atoms;
    bool has_cell, has_velocities;
} frame_shape;

typedef struct variable {
    const char *name, *units;
    int type, n_dimensions, dimensions[3];
    size_t bytes; // of one frame, or of all where it has no frames
} variable;

// ---- bytes

static void add_u32(mlff_writer *writer, uint32_t value)
{
    const unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8),
                                    (unsigned char)value};
    writer_add(writer, bytes, 4);
}

static void add_u64(mlff_writer *writer, uint64_t value)
{
    add_u32(writer, (uint32_t)(value >> 32));
    add_u32(writer, (uint32_t)value);
}

static void add_float(mlff_writer *writer, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_u32(writer, bits);
}

static void add_double(mlff_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_u64(writer, bits);
}

static uint32_t u32_of(const unsigned char bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

// A text behind its length, filled up to a multiple of 4 bytes.
static void add_name(mlff_writer *writer, const char *text)
{
    const size_t length = strlen(text);
    add_u32(writer, (uint32_t)length);
    writer_add(writer, text, length);
    writer_add(writer, "\0\0\0", (4 - length % 4) % 4);
}

static void add_text_attribute(mlff_writer *writer, const char *name, const char *value)
{
    add_name(writer, name);
    add_u32(writer, NC_CHAR);
    add_name(writer, value);
}

// ---- the header

// The variables of a file, those of frames behind the others; returns how many are not of frames.
static int list_variables(const frame_shape *shape, variable list[16], int *n_out)
{
    const size_t vectors = 12 * (size_t)shape->n_atoms;
    int n = 0, n_fixed;
    list[n++] = (variable){"spatial", NULL, NC_CHAR, 1, {SPATIAL}, 4};
    if (shape->has_cell) list[n++] = (variable){"cell_spatial", NULL, NC_CHAR, 1, {CELL_SPATIAL}, 4};
    if (shape->has_cell) list[n++] = (variable){"cell_angular", NULL, NC_CHAR, 2, {CELL_ANGULAR, LABEL}, 16};
    n_fixed = n;
    list[n++] = (variable){"time", "picosecond", NC_FLOAT, 1, {FRAME}, 4};
    list[n++] = (variable){"step", NULL, NC_DOUBLE, 1, {FRAME}, 8};
    list[n++] = (variable){"coordinates", "angstrom", NC_FLOAT, 3, {FRAME, ATOM, SPATIAL}, vectors};
    if (shape->has_velocities)
        list[n++] = (variable){"velocities", "angstrom/picosecond", NC_FLOAT, 3, {FRAME, ATOM, SPATIAL}, vectors};
    if (shape->has_cell) list[n++] = (variable){"cell_lengths", "angstrom", NC_DOUBLE, 2, {FRAME, CELL_SPATIAL}, 24};
    if (shape->has_cell) list[n++] = (variable){"cell_angles", "degree", NC_DOUBLE, 2, {FRAME, CELL_ANGULAR}, 24};
    *n_out = n;
    return n_fixed;
}

static size_t frame_bytes(const frame_shape *shape)
{
    variable list[16];
    size_t sum = 0;
    int n;
    for (int k = list_variables(shape, list, &n); k < n; k++) sum += list[k].bytes;
    return sum;
}

static void add_variables(mlff_writer *writer, const variable *list, int n, size_t begin)
{
    add_u32(writer, NC_VARIABLE);
    add_u32(writer, (uint32_t)n);
    for (int k = 0; k < n; k++) {
        add_name(writer, list[k].name);
        add_u32(writer, (uint32_t)list[k].n_dimensions);
        for (int d = 0; d < list[k].n_dimensions; d++) add_u32(writer, (uint32_t)list[k].dimensions[d]);
        add_u32(writer, list[k].units ? NC_ATTRIBUTE : 0);
        add_u32(writer, list[k].units != NULL);
        if (list[k].units) add_text_attribute(writer, "units", list[k].units);
        add_u32(writer, (uint32_t)list[k].type);
        add_u32(writer, (uint32_t)list[k].bytes);
        add_u64(writer, begin);
        begin += list[k].bytes;
    }
}

static void add_before_variables(mlff_writer *writer, const frame_shape *shape)
{
    static const char *const names[N_DIMENSIONS] = {"frame", "spatial", "atom", "cell_spatial", "cell_angular", "label"};
    const uint32_t lengths[N_DIMENSIONS] = {0, 3, (uint32_t)shape->n_atoms, 3, 3, 5};
    writer_add(writer, "CDF\2", 4);
    add_u32(writer, 0); // frames
    add_u32(writer, NC_DIMENSION);
    add_u32(writer, N_DIMENSIONS);
    for (int k = 0; k < N_DIMENSIONS; k++) {
        add_name(writer, names[k]);
        add_u32(writer, lengths[k]);
    }
    add_u32(writer, NC_ATTRIBUTE);
    add_u32(writer, 5);
    add_text_attribute(writer, "title", "written by mlff");
    add_text_attribute(writer, "program", "mlff");
    add_text_attribute(writer, "programVersion", "1");
    add_text_attribute(writer, "Conventions", "AMBER");
    add_text_attribute(writer, "ConventionVersion", "1.0");
}

static void add_header(mlff_writer *writer, const frame_shape *shape)
{
    variable list[16];
    int n;
    list_variables(shape, list, &n);
    const size_t begin = writer->length;
    add_before_variables(writer, shape);
    const size_t variables = writer->length;
    add_variables(writer, list, n, 0); // once for its length
    const size_t data = writer->length - begin;
    writer->length = variables;
    add_variables(writer, list, n, data);
    writer_add(writer, "xyz", 4);
    if (shape->has_cell) writer_add(writer, "abc", 4);
    if (shape->has_cell) writer_add(writer, "alphabeta gamma\0", 16);
}

// ---- frames

static mlff_status add_vectors(mlff_writer *writer, const char *path, const char *what, const standard_box *box, int n_atoms,
                               const double *vectors, double unit)
{
    for (int i = 0; i < n_atoms; i++) {
        const double *v = vectors + 3 * (size_t)i;
        double turned[3] = {v[0], v[1], v[2]};
        if (box) writer_turn(box, v, turned);
        for (int c = 0; c < 3; c++) {
            const float value = (float)(turned[c] * unit);
            if (!isfinite(value))
                return mlff_fail(MLFF_ERR_VALUE, "%s: %s of atom %d to be written is not finite", path, what, i);
            add_float(writer, value);
        }
    }
    return MLFF_OK;
}

static mlff_status make_frame(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results)
{
    mlff_status status = MLFF_OK;
    standard_box box;
    double lengths[3], angles[3];
    frame_shape now = {.n_atoms = system->n_atoms, .has_velocities = system->velocities != NULL};
    for (int k = 0; k < 9; k++) now.has_cell |= system->cell[k] != 0;
    if (writer->n_frames == 0) {
        writer->n_atoms = now.n_atoms;
        writer->has_cell = now.has_cell;
        writer->has_velocities = now.has_velocities;
    }
    if (now.n_atoms != writer->n_atoms || now.has_cell != writer->has_cell || now.has_velocities != writer->has_velocities)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                  "%s: the frames of a NetCDF trajectory have one number of atoms and all a cell and velocities or none; write "
                  ".extxyz",
                  path);
    if (now.n_atoms > INT32_MAX / 12) MLFF_FAIL(MLFF_ERR_LIMIT, "%s: %d atoms do not fit into a frame", path, now.n_atoms);
    if (now.has_cell && !writer_standard_box(system, &box))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                  "%s: the cell is left-handed or flat, which a NetCDF trajectory cannot hold; write .extxyz", path);
    MLFF_TRY(writer_reserve(writer, HEADER_MOST + frame_bytes(&now)));
    if (writer->n_frames == 0) add_header(writer, &now);
    add_float(writer, (float)(results->time_fs * PS_PER_FS)); // NaN where absent
    add_double(writer, (double)results->step);
    MLFF_TRY(add_vectors(writer, path, "position", now.has_cell ? &box : NULL, now.n_atoms, system->positions, 1.0));
    if (now.has_velocities)
        MLFF_TRY(
            add_vectors(writer, path, "velocity", now.has_cell ? &box : NULL, now.n_atoms, system->velocities, 1 / PS_PER_FS));
    if (now.has_cell) {
        writer_box_lengths(&box, lengths, angles);
        for (int k = 0; k < 3; k++) add_double(writer, lengths[k]);
        for (int k = 0; k < 3; k++) add_double(writer, angles[k]);
    }
done:
    return status;
}

static mlff_status set_n_frames(FILE *file, int64_t n_frames)
{
    const uint32_t n = n_frames < INT32_MAX ? (uint32_t)n_frames : INT32_MAX;
    const unsigned char bytes[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                    (unsigned char)n};
    const bool good = fseeko(file, N_FRAMES_AT, SEEK_SET) == 0 && fwrite(bytes, sizeof bytes, 1, file) == 1 &&
                      fseeko(file, 0, SEEK_END) == 0 && fflush(file) == 0;
    return good
               ? MLFF_OK
               : mlff_fail(MLFF_ERR_IO, "the header of a NetCDF trajectory cannot be written: %s", strerror(errno ? errno : EIO));
}

static mlff_status after_frame(mlff_writer *writer, FILE *file)
{
    return set_n_frames(file, writer->n_frames);
}

// ---- files that grow

// The header at the file's beginning, if it is one that add_header makes; the file is then at its end.
static mlff_status read_header(FILE *file, frame_shape *shape_out, bool *ours_out)
{
    mlff_status status = MLFF_OK;
    mlff_writer made = {0};
    char read[HEADER_MOST];
    *ours_out = false;
    // The number of atoms stands behind "frame" and "spatial" with their lengths, and the name "atom".
    enum { N_ATOMS_AT = 16 + 16 + 16 + 8 };
    rewind(file);
    const size_t n_read = fread(read, 1, sizeof read, file);
    if (n_read < N_ATOMS_AT + 4) return MLFF_OK;
    const uint32_t n_atoms = u32_of((const unsigned char *)read + N_ATOMS_AT);
    if (n_atoms < 1 || n_atoms > INT32_MAX / 12) return MLFF_OK;
    for (int k = 0; k < 4 && !*ours_out; k++) {
        *shape_out = (frame_shape){.n_atoms = (int)n_atoms, .has_cell = k & 1, .has_velocities = k & 2};
        made.length = 0;
        MLFF_TRY(writer_reserve(&made, HEADER_MOST));
        add_header(&made, shape_out);
        *ours_out = n_read >= made.length && memcmp(read, made.frame, N_FRAMES_AT) == 0 &&
                    memcmp(read + N_FRAMES_AT + 4, made.frame + N_FRAMES_AT + 4, made.length - N_FRAMES_AT - 4) == 0;
    }
    if (*ours_out && fseeko(file, (off_t)made.length, SEEK_SET) != 0) status = base_fail_reading("a NetCDF trajectory", errno);
done:
    base_free(made.frame);
    return status;
}

// Frames are counted by the file's length: a run that is killed may have written one that the header does not count.
static mlff_status reopen(mlff_writer *writer, FILE *file)
{
    frame_shape shape;
    bool ours;
    mlff_status status = read_header(file, &shape, &ours);
    if (status != MLFF_OK) return status;
    const off_t begin = ours ? ftello(file) : 0;
    const off_t bytes = ours && fseeko(file, 0, SEEK_END) == 0 ? ftello(file) - begin : -1;
    if (bytes <= 0 || bytes % (off_t)frame_bytes(&shape) != 0)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory that this wrote whole; give another name", writer->path);
    writer->n_frames = bytes / (off_t)frame_bytes(&shape);
    writer->n_atoms = shape.n_atoms;
    writer->has_cell = shape.has_cell;
    writer->has_velocities = shape.has_velocities;
    return set_n_frames(file, writer->n_frames);
}

static enum scanned scan_frame(frame_scan *scan, int n_atoms, int64_t *step_out)
{
    unsigned char first[12]; // time and step
    if (scan->frame_bytes == 0) {
        frame_shape shape;
        bool ours;
        if (read_header(scan->file, &shape, &ours) != MLFF_OK || !ours || shape.n_atoms != n_atoms) return NOT_OURS;
        scan->frame_bytes = frame_bytes(&shape);
    }
    const size_t n_read = fread(first, 1, sizeof first, scan->file);
    if (n_read < sizeof first) return CUT_OFF;
    uint64_t bits = (uint64_t)u32_of(first + 4) << 32 | u32_of(first + 8);
    double step;
    memcpy(&step, &bits, sizeof step);
    if (!(step >= 0 && step < 9e15)) return NOT_OURS;
    *step_out = (int64_t)step;
    // The last byte is read: beyond the file's end nothing can be.
    const off_t rest = (off_t)(scan->frame_bytes - sizeof first) - 1;
    return fseeko(scan->file, rest, SEEK_CUR) == 0 && getc(scan->file) != EOF ? SCANNED : CUT_OFF;
}

const writer_format netcdf_format = {
    .name = "NetCDF", .make_frame = make_frame, .scan_frame = scan_frame, .after_frame = after_frame, .reopen = reopen};
