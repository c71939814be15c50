// SPDX-License-Identifier: MIT
// pdb_read.c: PDB files: a frame for each MODEL, else one for the file. Read are CRYST1 (the cell), ATOM and HETATM, by columns. Of
// alternate locations the first one of the file is kept. The cell 1 × 1 × 1 Å that stands for "none" is none.
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "sites.h"

typedef struct pdb {
    site_list list;
    double cell[9];
    bool has_cell;
    char location; // the alternate location that is kept; 0: none seen
} pdb;

// Columns first .. last (from 1) of a line without blanks around them.
static void columns(const char *line, size_t first, size_t last, char text[16])
{
    const size_t length = strlen(line);
    size_t n = 0;
    for (size_t k = first - 1; k < last && k < length && n < 15; k++)
        if (!atoms_is_blank(line[k])) text[n++] = line[k];
    text[n] = 0;
}

static bool column_number(const char *line, size_t first, size_t last, double *value_out)
{
    char text[16];
    columns(line, first, last, text);
    const char *cursor = text;
    return atoms_parse_number(&cursor, value_out) && !*cursor && isfinite(*value_out);
}

// "CL" or "Cl" in columns 77-78; in older files of columns 13-14 what precedes the name's letter in column 14.
static int element_of(const char *line, double *mass_out)
{
    char text[16], symbol[3] = {0};
    columns(line, 77, 78, text);
    if (!isalpha((unsigned char)text[0])) {
        columns(line, 13, 14, text);
        char *letters = text;
        while (isdigit((unsigned char)*letters)) letters++;
        memmove(text, letters, strlen(letters) + 1);
        const bool four_letters = strlen(line) > 15 && !atoms_is_blank(line[15]) && text[0] == 'H';
        if (four_letters) text[1] = 0; // "HG11" is a hydrogen, "HG  " mercury
    }
    if (!text[0]) return 0;
    symbol[0] = (char)toupper((unsigned char)text[0]);
    symbol[1] = (char)(isalpha((unsigned char)text[1]) ? tolower((unsigned char)text[1]) : 0);
    return sites_element(symbol, mass_out);
}

static mlff_status read_cell(mlff_reader *reader, pdb *file, const char *line)
{
    double lengths[3], angles[3];
    for (size_t k = 0; k < 3; k++)
        if (!column_number(line, 7 + 9 * k, 15 + 9 * k, &lengths[k]) || !column_number(line, 34 + 7 * k, 40 + 7 * k, &angles[k]))
            return reader_fail(reader, MLFF_ERR_FORMAT, "expected three lengths and three angles in columns 7 to 54 of CRYST1");
    file->has_cell = !(lengths[0] == 1 && lengths[1] == 1 && lengths[2] == 1);
    if (file->has_cell && !cell_from_lengths(lengths, angles, file->cell))
        return reader_fail(reader, MLFF_ERR_VALUE, "no cell has lengths %g %g %g Å and angles %g %g %g°", lengths[0], lengths[1],
                           lengths[2], angles[0], angles[1], angles[2]);
    return MLFF_OK;
}

static mlff_status read_atom(mlff_reader *reader, pdb *file, const char *line)
{
    site added = {.id = (int64_t)file->list.n};
    for (size_t k = 0; k < 3; k++)
        if (!column_number(line, 31 + 8 * k, 38 + 8 * k, &added.position[k]))
            return reader_fail(reader, MLFF_ERR_FORMAT, "expected x, y and z in columns 31 to 54 of '%.60s'", line);
    if (!atoms_is_blank(line[16])) {
        if (!file->location) file->location = line[16];
        if (line[16] != file->location) {
            reader_warn(reader, "of alternate locations the first is kept");
            return MLFF_OK;
        }
    }
    if (!(added.species = element_of(line, &added.mass)))
        return reader_fail(reader, MLFF_ERR_ELEMENT, "no element in columns 77-78 or 13-14 of '%.80s'", line);
    return sites_add(reader, &file->list, &added);
}

static bool is_record(const char *line, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && (length == 6 || !line[length] || atoms_is_blank(line[length]));
}

// Cells of a file hold for all its models: CRYST1 stands before the first.
mlff_status pdb_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    pdb file = {.has_cell = reader->has_cell};
    char *line = NULL;

    memcpy(file.cell, reader->cell, sizeof file.cell);
    for (;;) {
        MLFF_TRY(reader_line(reader, &line));
        if (!line) break;
        if (is_record(line, "CRYST1")) MLFF_TRY(read_cell(reader, &file, line));
        if (is_record(line, "ATOM") || is_record(line, "HETATM")) MLFF_TRY(read_atom(reader, &file, line));
        if ((is_record(line, "ENDMDL") || is_record(line, "END")) && file.list.n > 0) break;
    }
    reader->has_cell = file.has_cell;
    memcpy(reader->cell, file.cell, sizeof file.cell);
    if (file.list.n == 0 && reader->n_frames == 0)
        status = reader_fail(reader, MLFF_ERR_FORMAT, "no ATOM or HETATM in a PDB file");
    if (file.list.n > 0) MLFF_TRY(sites_make_system(reader, &file.list, file.has_cell ? file.cell : NULL, system_out));
done:
    sites_free(&file.list);
    return status;
}
