// SPDX-License-Identifier: MIT
// pdb_read.c: PDB files: a frame for each MODEL, else one for the file. Read are CRYST1 (the cell), ATOM and HETATM, by columns. Of a residue's
// alternate locations that with the highest mean occupancy is kept, the first letter of several. Cells of 1 × 1 × 1 Å
// and of 0 × 0 × 0 Å stand for "none".
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sites.h"

enum { KIND = 3, RESIDUE = 6 };

// An atom with a letter for its location. Residues of one place may be of two kinds, a mutant and the natural one.
typedef struct alternate {
    char residue[RESIDUE];      // chain, number, insertion code
    char name[KIND + 4];        // of the residue's kind and of the atom
    char letter, chosen_letter; // of this atom; of the residue
    char chosen_kind[KIND];     // that has the chosen letter
    double occupancy;
    size_t at; // of the list of sites
} alternate;

typedef struct pdb {
    site_list list;
    alternate *alternates; // [n_alternates]
    size_t n_alternates, capacity;
    double cell[9];
    bool has_cell;
} pdb;

// Columns first .. last (from 1) of a line without blanks around them.
static void columns(const char *line, size_t first, size_t last, char text[16])
{
    const size_t length = strlen(line);
    size_t begin = first - 1, end = last < length ? last : length;
    while (begin < end && atoms_is_blank(line[begin])) begin++;
    while (end > begin && atoms_is_blank(line[end - 1])) end--;
    snprintf(text, 16, "%.*s", (int)(end > begin ? end - begin : 0), begin < length ? line + begin : "");
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
    const bool are_equal = lengths[0] == lengths[1] && lengths[1] == lengths[2];
    file->has_cell = !are_equal || !(lengths[0] == 1 || lengths[0] == 0);
    if (file->has_cell && !cell_from_lengths(lengths, angles, file->cell))
        return reader_fail(reader, MLFF_ERR_VALUE, "no cell has lengths %g %g %g Å and angles %g %g %g°", lengths[0], lengths[1],
                           lengths[2], angles[0], angles[1], angles[2]);
    return MLFF_OK;
}

// Without an occupancy it is 1.
static mlff_status read_alternate(mlff_reader *reader, pdb *file, const char *line)
{
    alternate added = {.letter = line[16], .occupancy = 1, .at = file->list.n};
    char text[16];
    columns(line, 55, 60, text);
    if (*text && !column_number(line, 55, 60, &added.occupancy))
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected an occupancy in columns 55 to 60 of '%.80s'", line);
    memcpy(added.residue, line + 21, sizeof added.residue);
    memcpy(added.name, line + 17, KIND);
    memcpy(added.name + KIND, line + 12, sizeof added.name - KIND);
    const mlff_status status =
        base_grow(&file->alternates, &file->capacity, file->n_alternates + 1, sizeof *file->alternates, "alternate locations");
    if (status == MLFF_OK) file->alternates[file->n_alternates++] = added;
    return status;
}

static mlff_status read_atom(mlff_reader *reader, pdb *file, const char *line)
{
    site added = {.id = (int64_t)file->list.n};
    for (size_t k = 0; k < 3; k++)
        if (!column_number(line, 31 + 8 * k, 38 + 8 * k, &added.position[k]))
            return reader_fail(reader, MLFF_ERR_FORMAT, "expected x, y and z in columns 31 to 54 of '%.60s'", line);
    if (!atoms_is_blank(line[16])) {
        const mlff_status status = read_alternate(reader, file, line);
        if (status != MLFF_OK) return status;
    }
    if (!(added.species = element_of(line, &added.mass)))
        return reader_fail(reader, MLFF_ERR_ELEMENT, "no element in columns 77-78 or 13-14 of '%.80s'", line);
    return sites_add(reader, &file->list, &added);
}

static int compare_letters(const alternate *a, const alternate *b)
{
    const int order = (unsigned char)a->letter - (unsigned char)b->letter;
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

static int by_letter(const void *a, const void *b)
{
    const alternate *x = a, *y = b;
    const int order = memcmp(x->residue, y->residue, sizeof x->residue);
    return order ? order : compare_letters(x, y);
}

static int by_name(const void *a, const void *b)
{
    const alternate *x = a, *y = b;
    int order = memcmp(x->residue, y->residue, sizeof x->residue);
    if (!order) order = memcmp(x->name, y->name, sizeof x->name);
    return order ? order : compare_letters(x, y);
}

// The letter with the highest mean occupancy of n atoms that are sorted by letter: the index of its first atom.
static size_t best_letter(const alternate *of, size_t n)
{
    const double rounding = 1e-6; // of a mean of equal numbers
    size_t best = 0, end;
    double highest = -INFINITY;
    for (size_t first = 0; first < n; first = end) {
        double sum = 0;
        for (end = first; end < n && of[end].letter == of[first].letter; end++) sum += of[end].occupancy;
        if (sum / (double)(end - first) <= highest + rounding) continue;
        highest = sum / (double)(end - first);
        best = first;
    }
    return best;
}

// Those of one atom's locations that are not kept lose their element: all but the residue's letter or, of an atom without that one, its own
// best letter; of another kind than the chosen one all.
static void choose_location(pdb *file, const alternate *of, size_t n)
{
    bool any = false;
    for (size_t k = 0; k < n; k++) any = any || of[k].letter == of->chosen_letter;
    const bool stays = memcmp(of->name, of->chosen_kind, KIND) == 0;
    const char letter = any ? of->chosen_letter : stays ? of[best_letter(of, n)].letter : 0;
    for (size_t k = 0; k < n; k++)
        if (of[k].letter != letter) file->list.sites[of[k].at].species = 0;
}

// Drops the sites without an element.
static void drop_sites(mlff_reader *reader, site_list *list)
{
    const size_t n_read = list->n;
    char text[128];
    list->n = 0;
    for (size_t i = 0; i < n_read; i++)
        if (list->sites[i].species > 0) list->sites[list->n++] = list->sites[i];
    const size_t n_dropped = n_read - list->n;
    if (n_dropped == 0) return;
    snprintf(text, sizeof text, "%zu atom%s of alternate locations left out; each residue keeps that of highest occupancy",
             n_dropped, base_plural((int64_t)n_dropped));
    reader_warn(reader, text);
}

static void choose_locations(mlff_reader *reader, pdb *file)
{
    alternate *all = file->alternates;
    size_t end;
    if (file->n_alternates == 0) return;
    qsort(all, file->n_alternates, sizeof *all, by_letter);
    for (size_t first = 0; first < file->n_alternates; first = end) {
        for (end = first; end < file->n_alternates && memcmp(all[end].residue, all[first].residue, RESIDUE) == 0;) end++;
        const alternate best = all[first + best_letter(all + first, end - first)];
        for (size_t k = first; k < end; k++) {
            all[k].chosen_letter = best.letter;
            memcpy(all[k].chosen_kind, best.name, KIND);
        }
    }
    qsort(all, file->n_alternates, sizeof *all, by_name);
    for (size_t first = 0; first < file->n_alternates; first = end) {
        for (end = first; end < file->n_alternates && memcmp(all[end].residue, all[first].residue, RESIDUE) == 0 &&
                          memcmp(all[end].name, all[first].name, sizeof all->name) == 0;)
            end++;
        choose_location(file, all + first, end - first);
    }
    drop_sites(reader, &file->list);
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
    choose_locations(reader, &file);
    reader->has_cell = file.has_cell;
    memcpy(reader->cell, file.cell, sizeof file.cell);
    if (file.list.n == 0 && reader->n_frames == 0)
        status = reader_fail(reader, MLFF_ERR_FORMAT, "no ATOM or HETATM in a PDB file");
    if (file.list.n > 0) MLFF_TRY(sites_make_system(reader, &file.list, file.has_cell ? file.cell : NULL, system_out));
done:
    sites_free(&file.list);
    base_free(file.alternates);
    return status;
}
