// SPDX-License-Identifier: MIT
// netcdf_read.c: frames of AMBER NetCDF trajectories (AMBER NetCDF Trajectory Convention 1.0) in the classic format with 32- or 64-bit
// offsets (NetCDF Classic and 64-bit Offset File Formats, Unidata; OGC 11-100), of any program: variables are found by name, in float or
// double, with their scale_factor. The file is read from begin to end, so that it may come from a pipe. The number of frames may be
// unknown (streaming).
#include <limits.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "trajectories.h"

enum { NC_FLOAT = 5, NC_DOUBLE = 6, NC_DIMENSION = 10, NC_VARIABLE = 11, NC_ATTRIBUTE = 12 };
enum { MAX_DIMENSIONS = 256, MAX_VARIABLES = 1024, MAX_ATTRIBUTES = 4096, MAX_RANK = 16, NAME_BYTES = 64, MAX_NAME = 1024 };
#define MAX_BYTES ((uint64_t)1 << 40) /* of a variable's frame, or an attribute */
#define FS_PER_PS 1e3
enum { COORDINATES, VELOCITIES, CELL_LENGTHS, CELL_ANGLES, TIME, N_FIELDS };

typedef struct field {
    uint64_t begin; // from the begin of a frame, once the header was read
    int type;       // 0: absent
    double scale;
} field;

typedef struct netcdf_layout {
    int64_t n_frames; // -1: not known
    uint64_t first, frame_bytes;
    int n_atoms;
    field fields[N_FIELDS];
} netcdf_layout;

typedef struct variable {
    char name[NAME_BYTES], units[NAME_BYTES];
    uint32_t rank;
    uint64_t shape[MAX_RANK];
    bool of_frames; // its first dimension is that of the frames
    uint32_t type;
    uint64_t bytes; // of a frame, filled up to 4
    uint64_t begin;
    double scale;
} variable;

// What is read of the header, and how far.
typedef struct header {
    mlff_reader *reader;
    uint64_t offset;
    bool wide; // offsets of 64 bits
    uint64_t dimensions[MAX_DIMENSIONS];
    uint32_t n_dimensions;
    bool of_amber;
} header;

// ---- bytes

static uint32_t u32_of(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint64_t u64_of(const unsigned char *bytes)
{
    return (uint64_t)u32_of(bytes) << 32 | u32_of(bytes + 4);
}

static double number_of(int type, const unsigned char *bytes)
{
    const uint32_t narrow = u32_of(bytes);
    float single;
    memcpy(&single, &narrow, sizeof single);
    if (type == NC_FLOAT) return single;
    const uint64_t bits = u64_of(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static mlff_status fail_header(const header *head, const char *what)
{
    return mlff_fail(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory: %s", head->reader->name, what);
}

static mlff_status take(header *head, size_t n, const unsigned char **bytes_out)
{
    size_t got;
    const mlff_status status = reader_peek(head->reader, n, bytes_out, &got);
    if (status != MLFF_OK) return status;
    if (got < n) return fail_header(head, "the file ends in its header");
    reader_advance(head->reader, n);
    head->offset += n;
    return MLFF_OK;
}

static mlff_status take_u32(header *head, uint32_t *value_out)
{
    const unsigned char *bytes;
    const mlff_status status = take(head, 4, &bytes);
    if (status == MLFF_OK) *value_out = u32_of(bytes);
    return status;
}

static mlff_status skip(header *head, uint64_t n)
{
    bool whole;
    const mlff_status status = reader_skip(head->reader, n, &whole);
    if (status != MLFF_OK) return status;
    if (!whole) return fail_header(head, "the file ends in its header");
    head->offset += n;
    return MLFF_OK;
}

// A name, cut to NAME_BYTES; no name that is looked for is that long.
static mlff_status take_name(header *head, char name[NAME_BYTES])
{
    uint32_t length;
    const unsigned char *bytes;
    mlff_status status = take_u32(head, &length);
    if (status != MLFF_OK) return status;
    if (length > MAX_NAME) return fail_header(head, "a name of no possible length");
    status = take(head, (length + 3) / 4 * 4, &bytes);
    if (status != MLFF_OK) return status;
    const size_t kept = length < NAME_BYTES ? length : NAME_BYTES - 1;
    memcpy(name, bytes, kept);
    name[kept] = 0;
    return MLFF_OK;
}

// ---- lists of the header

// The tag of a list and how many entries follow; an absent list has none.
static mlff_status take_count(header *head, uint32_t tag, uint32_t most, uint32_t *n_out)
{
    uint32_t found;
    mlff_status status = take_u32(head, &found);
    if (status == MLFF_OK) status = take_u32(head, n_out);
    if (status != MLFF_OK) return status;
    if ((found != tag && !(found == 0 && *n_out == 0)) || *n_out > most) return fail_header(head, "a damaged list in its header");
    return MLFF_OK;
}

static uint64_t type_bytes(uint32_t type)
{
    static const unsigned char bytes[] = {0, 1, 1, 2, 4, 4, 8}; // byte, char, short, int, float, double
    return type < sizeof bytes ? bytes[type] : 0;
}

// Of a variable's attributes its units and scale_factor, of the file's its Conventions.
static mlff_status take_attributes(header *head, variable *of)
{
    mlff_status status = MLFF_OK;
    uint32_t n, type, count;
    MLFF_TRY(take_count(head, NC_ATTRIBUTE, MAX_ATTRIBUTES, &n));
    for (uint32_t k = 0; k < n; k++) {
        char name[NAME_BYTES], text[NAME_BYTES] = "";
        const unsigned char *bytes;
        MLFF_TRY(take_name(head, name));
        MLFF_TRY(take_u32(head, &type));
        MLFF_TRY(take_u32(head, &count));
        if (type_bytes(type) == 0)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory: a type of no meaning", head->reader->name);
        const uint64_t length = count * type_bytes(type), filled = (length + 3) / 4 * 4;
        if (length >= NAME_BYTES || length == 0) {
            MLFF_TRY(skip(head, filled));
            continue;
        }
        MLFF_TRY(take(head, (size_t)filled, &bytes));
        memcpy(text, bytes, (size_t)length);
        if (!of && strcmp(name, "Conventions") == 0) head->of_amber = strstr(text, "AMBER") != NULL;
        if (of && strcmp(name, "units") == 0) memcpy(of->units, text, sizeof text);
        if (of && strcmp(name, "scale_factor") == 0 && count == 1 && (type == NC_FLOAT || type == NC_DOUBLE))
            of->scale = number_of((int)type, bytes);
    }
done:
    return status;
}

static mlff_status take_dimensions(header *head)
{
    mlff_status status = take_count(head, NC_DIMENSION, MAX_DIMENSIONS, &head->n_dimensions);
    for (uint32_t k = 0; k < head->n_dimensions && status == MLFF_OK; k++) {
        char name[NAME_BYTES];
        uint32_t length = 0;
        status = take_name(head, name);
        if (status == MLFF_OK) status = take_u32(head, &length);
        head->dimensions[k] = length; // 0 is that of the frames
    }
    return status;
}

static mlff_status take_variable(header *head, variable *of)
{
    mlff_status status = MLFF_OK;
    uint32_t id, bytes;
    const unsigned char *begin;
    *of = (variable){.scale = 1};
    MLFF_TRY(take_name(head, of->name));
    MLFF_TRY(take_u32(head, &of->rank));
    if (of->rank > MAX_RANK)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory: %u dimensions", head->reader->name, of->rank);
    of->bytes = 1;
    for (uint32_t k = 0; k < of->rank; k++) {
        MLFF_TRY(take_u32(head, &id));
        if (id >= head->n_dimensions)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory: a dimension that there is not", head->reader->name);
        of->shape[k] = head->dimensions[id];
        of->of_frames |= k == 0 && of->shape[k] == 0;
        if (k > 0 || !of->of_frames)
            of->bytes = of->shape[k] > 0 && of->bytes > MAX_BYTES / of->shape[k] ? MAX_BYTES : of->bytes * of->shape[k];
    }
    MLFF_TRY(take_attributes(head, of));
    MLFF_TRY(take_u32(head, &of->type));
    MLFF_TRY(take_u32(head, &bytes)); // not to be relied on: too small for large variables
    MLFF_TRY(take(head, head->wide ? 8 : 4, &begin));
    of->begin = head->wide ? u64_of(begin) : u32_of(begin);
    if (type_bytes(of->type) == 0)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not a NetCDF trajectory: a type of no meaning", head->reader->name);
    of->bytes *= type_bytes(of->type);
    if (of->bytes >= MAX_BYTES || of->begin >= INT64_MAX)
        MLFF_FAIL(MLFF_ERR_LIMIT, "%s: the variable %s is larger than any trajectory", head->reader->name, of->name);
done:
    return status;
}

// ---- what is used of it

static mlff_status use_variable(const header *head, const variable *of, netcdf_layout *layout)
{
    static const struct {
        const char *name, *units;
        uint32_t rank;
    } known[N_FIELDS] = {{"coordinates", "angstrom", 3},
                         {"velocities", "angstrom/picosecond", 3},
                         {"cell_lengths", "angstrom", 2},
                         {"cell_angles", "degree", 2},
                         {"time", "picosecond", 1}};
    int k = 0;
    while (k < N_FIELDS && strcmp(of->name, known[k].name) != 0) k++;
    if (k == N_FIELDS || !of->of_frames) return MLFF_OK;
    const bool is_real = of->type == NC_FLOAT || of->type == NC_DOUBLE;
    const bool of_unit = !of->units[0] || strncasecmp(of->units, known[k].units, strlen(known[k].units)) == 0;
    if (k == TIME) { // frames without a time are good frames
        if (of->rank == 1 && is_real && of_unit)
            layout->fields[k] = (field){.begin = of->begin, .type = (int)of->type, .scale = of->scale};
        return MLFF_OK;
    }
    if (of->rank != known[k].rank || of->shape[of->rank - 1] != 3 || !is_real)
        return mlff_fail(MLFF_ERR_FORMAT, "%s: the variable %s has not the form of AMBER's convention", head->reader->name,
                         of->name);
    if (!of_unit)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: %s in %s, not %s", head->reader->name, of->name, of->units, known[k].units);
    if (k <= VELOCITIES) {
        const uint64_t n = of->shape[1];
        if (n < 1 || n > ATOMS_MAX_ATOMS)
            return mlff_fail(MLFF_ERR_LIMIT, "%s: %llu atoms; at least 1 and at most %d", head->reader->name,
                             (unsigned long long)n, ATOMS_MAX_ATOMS);
        if (layout->n_atoms > 0 && n != (uint64_t)layout->n_atoms)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: coordinates and velocities of different numbers of atoms", head->reader->name);
        layout->n_atoms = (int)n;
    }
    layout->fields[k] = (field){.begin = of->begin, .type = (int)of->type, .scale = of->scale};
    return MLFF_OK;
}

// A frame is the variables of frames one after the other, each filled up to 4 bytes unless there is only one.
static mlff_status take_variables(header *head, netcdf_layout *layout)
{
    mlff_status status = MLFF_OK;
    uint32_t n, n_of_frames = 0;
    variable read;
    uint64_t alone = 0;
    layout->first = UINT64_MAX;
    MLFF_TRY(take_count(head, NC_VARIABLE, MAX_VARIABLES, &n));
    for (uint32_t k = 0; k < n; k++) {
        MLFF_TRY(take_variable(head, &read));
        MLFF_TRY(use_variable(head, &read, layout));
        if (!read.of_frames) continue;
        n_of_frames++;
        alone = read.bytes;
        layout->frame_bytes += (read.bytes + 3) / 4 * 4;
        if (read.begin < layout->first) layout->first = read.begin;
    }
    if (n_of_frames == 1) layout->frame_bytes = alone;
done:
    return status;
}

static mlff_status check_layout(const header *head, netcdf_layout *layout)
{
    if (!head->of_amber)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%s: a NetCDF file that is not of AMBER's convention", head->reader->name);
    if (!layout->fields[COORDINATES].type) return fail_header(head, "no variable coordinates(frame, atom, spatial)");
    if (layout->first < head->offset || layout->frame_bytes > MAX_BYTES)
        return fail_header(head, "a frame that begins in the header");
    for (int k = 0; k < N_FIELDS; k++) {
        field *of = &layout->fields[k];
        if (!of->type) continue;
        const uint64_t count = k <= VELOCITIES ? 3 * (uint64_t)layout->n_atoms : k == TIME ? 1 : 3;
        of->begin -= layout->first;
        if (of->begin > layout->frame_bytes || count * type_bytes((uint32_t)of->type) > layout->frame_bytes - of->begin)
            return fail_header(head, "a variable beyond the end of its frame");
    }
    return topology_check(head->reader, "an AMBER NetCDF trajectory", layout->n_atoms);
}

static mlff_status read_header(mlff_reader *reader, netcdf_layout *layout)
{
    mlff_status status = MLFF_OK;
    header head = {.reader = reader};
    const unsigned char *bytes;
    uint32_t n_frames;
    MLFF_TRY(take(&head, 4, &bytes));
    if (memcmp(bytes, "\x89HDF", 4) == 0 || memcmp(bytes, "CDF\5", 4) == 0)
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: NetCDF-4 or CDF-5; write the classic format, as nccopy -k nc6 does", reader->name);
    if (memcmp(bytes, "CDF", 3) != 0 || (bytes[3] != 1 && bytes[3] != 2)) {
        status = fail_header(&head, "it does not begin with CDF");
        goto done;
    }
    head.wide = bytes[3] == 2;
    MLFF_TRY(take_u32(&head, &n_frames));
    layout->n_frames = n_frames == UINT32_MAX ? -1 : (int64_t)n_frames;
    MLFF_TRY(take_dimensions(&head));
    MLFF_TRY(take_attributes(&head, NULL));
    MLFF_TRY(take_variables(&head, layout));
    MLFF_TRY(check_layout(&head, layout));
    if (layout->n_frames != 0) MLFF_TRY(skip(&head, layout->first - head.offset));
done:
    return status;
}

// ---- frames

// Three numbers of a field.
static void triple(const field *of, const unsigned char *frame, size_t index, double unit, double out[3])
{
    const size_t bytes = (size_t)type_bytes((uint32_t)of->type);
    for (size_t c = 0; c < 3; c++) out[c] = number_of(of->type, frame + of->begin + (3 * index + c) * bytes) * of->scale * unit;
}

static mlff_status make_system(const mlff_reader *reader, const netcdf_layout *layout, const unsigned char *frame,
                               mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    double cell[9], lengths[3] = {0}, angles[3] = {90, 90, 90};
    bool has_cell;
    const field *fields = layout->fields;
    if (fields[CELL_LENGTHS].type) triple(&fields[CELL_LENGTHS], frame, 0, 1, lengths);
    if (fields[CELL_ANGLES].type) triple(&fields[CELL_ANGLES], frame, 0, 1, angles);
    MLFF_TRY(reader_frame_cell(reader, lengths, angles, cell, &has_cell));
    MLFF_TRY(topology_make_system(reader, layout->n_atoms, has_cell ? cell : NULL, &system));
    if (fields[VELOCITIES].type) MLFF_TRY(mlff_system_add_velocities(system));
    for (size_t i = 0; i < (size_t)layout->n_atoms; i++) {
        triple(&fields[COORDINATES], frame, i, 1, system->positions + 3 * i);
        if (system->velocities) triple(&fields[VELOCITIES], frame, i, 1 / FS_PER_PS, system->velocities + 3 * i);
    }
    if (fields[TIME].type) {
        const double time = number_of(fields[TIME].type, frame + fields[TIME].begin) * fields[TIME].scale * FS_PER_PS;
        if (isfinite(time)) system->time_fs = time;
    }
    MLFF_TRY(reader_check_frame(reader, system));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

mlff_status netcdf_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    const unsigned char *frame;
    if (!reader->layout) {
        if (!(reader->layout = base_alloc(1, sizeof(netcdf_layout), "a NetCDF trajectory"))) return MLFF_ERR_MEMORY;
        MLFF_TRY(read_header(reader, reader->layout));
    }
    const netcdf_layout *layout = reader->layout;
    if (reader->n_frames == layout->n_frames) return MLFF_OK;
    MLFF_TRY(reader_peek_frame(reader, (size_t)layout->frame_bytes, layout->n_frames, &frame));
    if (!frame) return MLFF_OK;
    MLFF_TRY(make_system(reader, layout, frame, system_out));
    reader_advance(reader, (size_t)layout->frame_bytes);
done:
    return status;
}
