// SPDX-License-Identifier: MIT
// poscar.c: POSCAR and CONTCAR files of VASP 5 and newer: one system each.
//
// Lines: comment, scale (one number, its negative the volume, or three), three vectors, elements, counts,
// [Selective dynamics], Direct or Cartesian, one row per atom, [velocities].
#include <math.h>
#include <string.h>
#include <strings.h>

#include "atoms/atoms.h"

typedef struct run {
    int species, n_atoms;
} run;

// Rows are kept as they come, so that counts that lie cost no memory.
typedef struct poscar {
    double cell[9], scale[3];
    run *runs; // [n_runs] atoms of one element after the other
    size_t n_runs, run_capacity;
    int n_atoms;
    bool selective, cartesian;
    double *positions; // [n_atoms][3] as in the file
    size_t position_capacity;
    unsigned char *fixed; // [n_atoms]
    size_t fixed_capacity;
} poscar;

// The next line; the error names `what` if the file has no more.
static mlff_status next_line(mlff_reader *reader, const char *what, char **line_out)
{
    mlff_status status = reader_line(reader, line_out);
    if (status == MLFF_OK && !*line_out)
        return mlff_fail(MLFF_ERR_FORMAT, "%s:%lld: the file ends where %s should be", reader->name,
                         (long long)reader->line_number, what);
    return status;
}

// Reads up to n numbers from a line and returns how many there are; behind them anything may stand.
static int parse_numbers(const char **cursor, double *values, int n)
{
    int k = 0;
    for (const char *text = atoms_skip_blanks(*cursor); k < n && *text && atoms_parse_number(&text, &values[k]); k++) {
        *cursor = text;
        text = atoms_skip_blanks(text);
    }
    return k;
}

static mlff_status next_vector(mlff_reader *reader, const char *what, double vector[3], const char **rest_out)
{
    char *line;
    mlff_status status = next_line(reader, what, &line);
    if (status != MLFF_OK) return status;
    const char *cursor = line;
    if (parse_numbers(&cursor, vector, 3) != 3)
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected three numbers (%s), found '%.60s'", what, line);
    for (int c = 0; c < 3; c++)
        if (!isfinite(vector[c])) return reader_fail(reader, MLFF_ERR_VALUE, "%s: a number that is not finite", what);
    if (rest_out) *rest_out = cursor;
    return MLFF_OK;
}

static mlff_status read_cell(mlff_reader *reader, poscar *file)
{
    mlff_status status = MLFF_OK;
    char *line;
    double scale[3];

    MLFF_TRY(next_line(reader, "the comment", &line));
    MLFF_TRY(next_line(reader, "the scale", &line));
    const char *cursor = line;
    int n = parse_numbers(&cursor, scale, 3);
    if (n == 2) n = 1; // what follows the scale is a comment
    for (int k = 0; k < n; k++)
        if (!isfinite(scale[k]) || scale[k] == 0.0 || (n == 3 && scale[k] < 0.0))
            return reader_fail(reader, MLFF_ERR_VALUE, "a scale of %g", scale[k]);
    if (n == 0) return reader_fail(reader, MLFF_ERR_FORMAT, "expected the scale (a number), found '%.60s'", line);
    for (int axis = 0; axis < 3; axis++) MLFF_TRY(next_vector(reader, "a cell vector", file->cell + 3 * axis, NULL));

    for (int c = 0; c < 3; c++) file->scale[c] = n == 3 ? scale[c] : scale[0];
    if (n == 1 && scale[0] < 0.0) {
        mlff_system unscaled = {0};
        memcpy(unscaled.cell, file->cell, sizeof file->cell);
        double volume = mlff_system_volume(&unscaled);
        if (!(volume > 0.0) || !isfinite(volume))
            return reader_fail(reader, MLFF_ERR_VALUE, "the cell has no volume, so it cannot be scaled to %g Å³", -scale[0]);
        for (int c = 0; c < 3; c++) file->scale[c] = cbrt(-scale[0] / volume);
    }
    for (int k = 0; k < 9; k++) file->cell[k] *= file->scale[k % 3];
done:
    return status;
}

// "Fe", or as VASP writes it with a potential's name behind: "Fe_pv", "Fe/1a2b3c".
static int parse_element(const char *word, size_t length)
{
    char symbol[3] = {0};
    size_t n = 0;
    while (n < length && word[n] != '_' && word[n] != '/') n++;
    if (n < 1 || n > 2) return 0;
    memcpy(symbol, word, n);
    return mlff_element_number(symbol);
}

static bool is_comment(char c)
{
    return c == '!' || c == '#';
}

static mlff_status read_species(mlff_reader *reader, poscar *file)
{
    mlff_status status = MLFF_OK;
    char *line, *elements = NULL;
    double number;

    MLFF_TRY(next_line(reader, "the line of elements", &line));
    const char *cursor = atoms_skip_blanks(line);
    if (atoms_parse_number(&cursor, &number))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED,
                  "%s:%lld: a POSCAR of VASP 4, without element names; add a line with them above the counts", reader->name,
                  (long long)reader->line_number);
    if (!(elements = base_strdup(line))) return MLFF_ERR_MEMORY;
    MLFF_TRY(next_line(reader, "the line of counts", &line));

    const char *word = atoms_skip_blanks(elements), *count = atoms_skip_blanks(line);
    while (*word && !is_comment(*word)) {
        size_t length = strcspn(word, " \t\r");
        int z = parse_element(word, length);
        if (z == 0) {
            reader->line_number--; // the line of elements
            status = reader_fail(reader, MLFF_ERR_ELEMENT, "'%.*s' is not an element", (int)(length < 20 ? length : 20), word);
            goto done;
        }
        int64_t n;
        if (!atoms_parse_integer(&count, &n) || n < 0)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: expected a count of atoms for each element, found '%.40s'", reader->name,
                      (long long)reader->line_number, line);
        if (n > ATOMS_MAX_ATOMS - file->n_atoms)
            MLFF_FAIL(MLFF_ERR_LIMIT, "%s:%lld: claims more than %d atoms", reader->name, (long long)reader->line_number,
                      ATOMS_MAX_ATOMS);
        MLFF_TRY(base_grow(&file->runs, &file->run_capacity, file->n_runs + 1, sizeof(run), "elements"));
        file->runs[file->n_runs++] = (run){z, (int)n};
        file->n_atoms += (int)n;
        word = atoms_skip_blanks(word + length);
        count = atoms_skip_blanks(count);
    }
    if (*count && !is_comment(*count))
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: more counts than elements", reader->name, (long long)reader->line_number);
    if (file->n_atoms == 0) MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: no atoms", reader->name, (long long)reader->line_number);
done:
    base_free(elements);
    return status;
}

static mlff_status read_mode(mlff_reader *reader, poscar *file)
{
    mlff_status status = MLFF_OK;
    char *line;
    MLFF_TRY(next_line(reader, "Direct or Cartesian", &line));
    char letter = *atoms_skip_blanks(line);
    file->selective = letter == 's' || letter == 'S';
    if (file->selective) {
        MLFF_TRY(next_line(reader, "Direct or Cartesian", &line));
        letter = *atoms_skip_blanks(line);
    }
    file->cartesian = letter && strchr("cCkK", letter);
    if (!file->cartesian && letter != 'd' && letter != 'D')
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected Direct or Cartesian, found '%.40s'", line);
done:
    return status;
}

// Three letters T or F, as in ".TRUE."; returns how many directions are held, -1 if they are not there.
static int parse_held(const char *text)
{
    int n_held = 0;
    for (int c = 0; c < 3; c++) {
        text = atoms_skip_blanks(text);
        if (*text == '.') text++;
        if (!*text || !strchr("tTfF", *text)) return -1;
        n_held += *text == 'f' || *text == 'F';
        while (*text && !atoms_is_blank(*text)) text++;
    }
    return n_held;
}

static mlff_status read_positions(mlff_reader *reader, poscar *file)
{
    mlff_status status = MLFF_OK;
    for (int i = 0; i < file->n_atoms; i++) {
        double position[3];
        const char *rest;
        int n_held = 0;
        MLFF_TRY(next_vector(reader, "the position of an atom", position, &rest));
        if (file->selective && (n_held = parse_held(rest)) < 0)
            return reader_fail(reader, MLFF_ERR_FORMAT,
                               "expected T or F three times behind the position (Selective dynamics), found '%.40s'", rest);
        if (n_held == 1 || n_held == 2)
            reader_warn(reader, "Selective dynamics: atoms held in one or two directions are free here");
        MLFF_TRY(base_grow(&file->positions, &file->position_capacity, (size_t)i + 1, sizeof position, "positions"));
        MLFF_TRY(base_grow(&file->fixed, &file->fixed_capacity, (size_t)i + 1, 1, "fixed atoms"));
        memcpy(file->positions + 3 * (size_t)i, position, sizeof position);
        file->fixed[i] = n_held == 3;
    }
done:
    return status;
}

// Behind the positions may stand the cell's velocities and then the atoms': after a blank line or "Cartesian" in Å/fs.
// CONTCARs of relaxations have them as zeros, which say nothing.
static mlff_status read_velocities(mlff_reader *reader, mlff_system *system)
{
    mlff_status status = MLFF_OK;
    char *line;
    MLFF_TRY(reader_line(reader, &line));
    if (line && (*line == 'L' || *line == 'l'))
        for (int k = 0; k < 8 && line; k++)
            MLFF_TRY(reader_line(reader, &line)); // state, 3 velocities, 3 vectors; then the atoms'
    if (!line) return MLFF_OK;
    char letter = *atoms_skip_blanks(line);
    if (letter && !strchr("cCkK", letter)) {
        reader_warn(reader, "what follows the positions is not read (velocities are read after a blank line or Cartesian)");
        return MLFF_OK;
    }
    MLFF_TRY(reader_line(reader, &line));
    if (!line || !*atoms_skip_blanks(line)) return MLFF_OK;

    MLFF_TRY(mlff_system_add_velocities(system));
    bool moves = false;
    for (int i = 0; i < system->n_atoms; i++) {
        double *velocity = system->velocities + 3 * (size_t)i;
        const char *cursor = line;
        if (parse_numbers(&cursor, velocity, 3) != 3)
            return reader_fail(reader, MLFF_ERR_FORMAT, "expected the velocity of atom %d (three numbers), found '%.60s'", i,
                               line);
        moves = moves || velocity[0] != 0.0 || velocity[1] != 0.0 || velocity[2] != 0.0;
        if (i + 1 < system->n_atoms) MLFF_TRY(next_line(reader, "the velocity of an atom", &line));
    }
    if (!moves) {
        base_free(system->velocities);
        system->velocities = NULL;
    }
done:
    return status;
}

static mlff_status make_system(const poscar *file, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    int atom = 0;

    MLFF_TRY(mlff_system_create(file->n_atoms, &system));
    memcpy(system->cell, file->cell, sizeof system->cell);
    for (int axis = 0; axis < 3; axis++) system->periodic[axis] = 1;
    for (size_t k = 0; k < file->n_runs; k++)
        for (int n = 0; n < file->runs[k].n_atoms; n++) system->species[atom++] = file->runs[k].species;
    for (int i = 0; i < file->n_atoms; i++) {
        const double *in = file->positions + 3 * (size_t)i, *cell = file->cell;
        double *position = system->positions + 3 * (size_t)i;
        for (int c = 0; c < 3; c++)
            position[c] = file->cartesian ? in[c] * file->scale[c] : in[0] * cell[c] + in[1] * cell[3 + c] + in[2] * cell[6 + c];
    }
    if (file->selective) {
        MLFF_TRY(mlff_system_add_fixed(system));
        memcpy(system->fixed, file->fixed, (size_t)file->n_atoms);
    }
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

mlff_status poscar_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    poscar file = {0};

    if (reader->n_frames > 0) return MLFF_OK;
    MLFF_TRY(read_cell(reader, &file));
    MLFF_TRY(read_species(reader, &file));
    MLFF_TRY(read_mode(reader, &file));
    MLFF_TRY(read_positions(reader, &file));
    MLFF_TRY(make_system(&file, &system));
    MLFF_TRY(read_velocities(reader, system));
    MLFF_TRY(mlff_system_check(system, reader->name));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    base_free(file.runs);
    base_free(file.positions);
    base_free(file.fixed);
    return status;
}
