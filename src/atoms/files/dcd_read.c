// SPDX-License-Identifier: MIT
// dcd_read.c: frames of DCD as CHARMM, NAMD and X-PLOR write them, in either byte order: positions in float32, the cell as lengths and
// angles in degrees or as their cosines. Records stand between their lengths. The number of frames of the header may be 0, which some
// programs leave there.
#include <math.h>
#include <string.h>

#include "trajectories.h"

enum { HEADER_BYTES = 84, CELL_BYTES = 48, MAX_TITLE_BYTES = 1 << 20, MARKS = 8 };

typedef struct dcd_layout {
    bool swapped, has_cell, has_fourth; // a fourth dimension is passed over
    int n_atoms;
    int64_t n_frames; // of the header; 0: not known
} dcd_layout;

static int32_t int_at(const dcd_layout *layout, const unsigned char *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return (int32_t)(layout->swapped ? __builtin_bswap32(value) : value);
}

static float float_at(const dcd_layout *layout, const unsigned char *bytes)
{
    const int32_t bits = int_at(layout, bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double double_at(const dcd_layout *layout, const unsigned char *bytes)
{
    uint64_t bits;
    double value;
    memcpy(&bits, bytes, sizeof bits);
    if (layout->swapped) bits = __builtin_bswap64(bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static mlff_status fail_header(const mlff_reader *reader, const char *what)
{
    return mlff_fail(MLFF_ERR_FORMAT, "%s: not a DCD: %s", reader->name, what);
}

// A record of the header; its bytes stay where they are until the next one is read.
static mlff_status read_record(mlff_reader *reader, const dcd_layout *layout, const char *name, const unsigned char **bytes_out,
                               size_t *length_out)
{
    const unsigned char *bytes;
    size_t got;
    mlff_status status = reader_peek(reader, 4, &bytes, &got);
    if (status != MLFF_OK) return status;
    const int32_t length = got == 4 ? int_at(layout, bytes) : 0;
    if (length < 1 || length > MAX_TITLE_BYTES)
        return fail_header(reader, got == 4 ? "a record of no possible length" : "it ends in its header");
    status = reader_peek(reader, (size_t)length + MARKS, &bytes, &got);
    if (status != MLFF_OK) return status;
    if (got < (size_t)length + MARKS) return mlff_fail(MLFF_ERR_FORMAT, "%s: the file ends in its %s", reader->name, name);
    if (int_at(layout, bytes + 4 + length) != length) return fail_header(reader, "a record whose two lengths differ");
    *bytes_out = bytes + 4;
    *length_out = (size_t)length;
    reader_advance(reader, (size_t)length + MARKS);
    return MLFF_OK;
}

static mlff_status read_control(mlff_reader *reader, dcd_layout *layout)
{
    const unsigned char *bytes;
    size_t got;
    int32_t control[20];
    mlff_status status = reader_peek(reader, 8, &bytes, &got);
    if (status != MLFF_OK) return status;
    if (got < 8) return fail_header(reader, "it ends in its header");
    layout->swapped = int_at(layout, bytes) != HEADER_BYTES;
    if (int_at(layout, bytes) != HEADER_BYTES) return fail_header(reader, "its first record has not 84 bytes");
    if (memcmp(bytes + 4, "VELD", 4) == 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: a DCD of velocities; one of positions is read", reader->name);
    if (memcmp(bytes + 4, "CORD", 4) != 0) return fail_header(reader, "it does not begin with CORD");
    status = read_record(reader, layout, "header", &bytes, &got);
    if (status != MLFF_OK) return status;
    for (size_t k = 0; k < 20; k++) control[k] = int_at(layout, bytes + 4 + 4 * k);
    const bool of_charmm = control[19] != 0; // X-PLOR has no cell, and a double among these numbers
    layout->n_frames = control[0] > 0 ? control[0] : 0;
    layout->has_cell = of_charmm && control[10] != 0;
    layout->has_fourth = of_charmm && control[11] != 0;
    if (control[8] != 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: a DCD without its %d fixed atoms in each frame; write it with all atoms",
                         reader->name, control[8]);
    return MLFF_OK;
}

static mlff_status read_header(mlff_reader *reader, dcd_layout *layout)
{
    mlff_status status = MLFF_OK;
    const unsigned char *bytes;
    size_t length;
    MLFF_TRY(read_control(reader, layout));
    MLFF_TRY(read_record(reader, layout, "title", &bytes, &length));
    MLFF_TRY(read_record(reader, layout, "number of atoms", &bytes, &length));
    const int32_t n_atoms = length == 4 ? int_at(layout, bytes) : 0;
    if (n_atoms < 1 || n_atoms > ATOMS_MAX_ATOMS)
        MLFF_FAIL(MLFF_ERR_LIMIT, "%s: %d atoms; at least 1 and at most %d", reader->name, n_atoms, ATOMS_MAX_ATOMS);
    layout->n_atoms = n_atoms;
    status = topology_check(reader, "a DCD", n_atoms);
done:
    return status;
}

// a, γ, b, β, α, c; CHARMM and NAMD may have the cosines of the angles. No cell where all lengths are 0.
static mlff_status read_cell(const mlff_reader *reader, const dcd_layout *layout, const unsigned char *bytes, double cell[9],
                             bool *has_cell_out)
{
    double row[6];
    for (size_t k = 0; k < 6; k++) row[k] = double_at(layout, bytes + 8 * k);
    const double lengths[3] = {row[0], row[2], row[5]};
    double angles[3] = {row[4], row[3], row[1]};
    if (fabs(angles[0]) <= 1 && fabs(angles[1]) <= 1 && fabs(angles[2]) <= 1)
        for (int k = 0; k < 3; k++) angles[k] = angles[k] == 0 ? 90 : acos(angles[k]) * (180 / BASE_PI);
    return reader_frame_cell(reader, lengths, angles, cell, has_cell_out);
}

static mlff_status check_record(const mlff_reader *reader, const dcd_layout *layout, const unsigned char *record, size_t length)
{
    if (int_at(layout, record) == (int32_t)length && int_at(layout, record + 4 + length) == (int32_t)length) return MLFF_OK;
    return reader_fail_frame(reader, MLFF_ERR_FORMAT, "a record of %d bytes, expected %zu; the file is damaged",
                             int_at(layout, record), length);
}

static mlff_status make_system(const mlff_reader *reader, const dcd_layout *layout, const unsigned char *frame,
                               mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    double cell[9];
    bool has_cell = false;
    const size_t n_atoms = (size_t)layout->n_atoms, row = 4 * n_atoms;
    if (layout->has_cell) {
        MLFF_TRY(check_record(reader, layout, frame, CELL_BYTES));
        MLFF_TRY(read_cell(reader, layout, frame + 4, cell, &has_cell));
        frame += CELL_BYTES + MARKS;
    }
    for (size_t c = 0; c < 3; c++) MLFF_TRY(check_record(reader, layout, frame + c * (row + MARKS), row));
    MLFF_TRY(topology_make_system(reader, layout->n_atoms, has_cell ? cell : NULL, &system));
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < n_atoms; i++)
            system->positions[3 * i + c] = float_at(layout, frame + c * (row + MARKS) + 4 + 4 * i);
    MLFF_TRY(reader_check_frame(reader, system));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

mlff_status dcd_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    const unsigned char *frame;
    if (!reader->layout) {
        if (!(reader->layout = base_alloc(1, sizeof(dcd_layout), "a DCD"))) return MLFF_ERR_MEMORY;
        MLFF_TRY(read_header(reader, reader->layout));
    }
    const dcd_layout *layout = reader->layout;
    const size_t vectors = 4 * (size_t)layout->n_atoms + MARKS;
    const size_t frame_bytes = (layout->has_cell ? CELL_BYTES + MARKS : 0) + (layout->has_fourth ? 4 : 3) * vectors;
    MLFF_TRY(reader_peek_frame(reader, frame_bytes, layout->n_frames, &frame));
    if (!frame) return MLFF_OK;
    MLFF_TRY(make_system(reader, layout, frame, system_out));
    reader_advance(reader, frame_bytes);
done:
    return status;
}
