// SPDX-License-Identifier: MIT
// dump_read.c: frames of LAMMPS's `dump custom` and `dump atom`: the box, positions (x, xu, xs or xsu), velocities, masses, times
// (ITEM: TIME), and elements where there is the column, else from a topology. Atoms are put in the order of their numbers. Units are metal
// unless ITEM: UNITS says real.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trajectories.h"

enum { MAX_COLUMNS = 64 };
enum column { SKIPPED, ID, ELEMENT, MASS, X, VX = X + 3 };

typedef struct dump_row {
    int64_t id; // of the file, or its place in it
    int species;
    double x[3], v[3], mass;
} dump_row;

typedef struct dump_frame {
    int64_t n_atoms;
    double time; // in the units of the file; NaN: not given
    bool has_box, tilted, periodic[3];
    double low[3], cell[9];
    enum column columns[MAX_COLUMNS];
    int n_columns;
    bool has_elements, has_velocities, has_masses, scaled;
    dump_row *rows; // [n_rows]
    size_t n_rows, capacity;
} dump_frame;

static mlff_status need_line(mlff_reader *reader, const char *what, char **line_out)
{
    const mlff_status status = reader_line(reader, line_out);
    if (status == MLFF_OK && !*line_out) return reader_fail(reader, MLFF_ERR_FORMAT, "the file ends where %s is expected", what);
    return status;
}

// The text behind "ITEM: NAME", NULL for another line.
static const char *item(const char *line, const char *name)
{
    const size_t length = strlen(name);
    if (strncmp(line, "ITEM: ", 6) != 0 || strncmp(line + 6, name, length) != 0) return NULL;
    return line[6 + length] == 0 || atoms_is_blank(line[6 + length]) ? line + 6 + length : NULL;
}

// The length of the next word, from *cursor behind its blanks.
static size_t next_word(const char **cursor)
{
    *cursor = atoms_skip_blanks(*cursor);
    size_t length = 0;
    while ((*cursor)[length] && !atoms_is_blank((*cursor)[length])) length++;
    return length;
}

static bool word_is(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

// LAMMPS names the units before the first frame alone; they hold for those that follow.
static mlff_status read_units(mlff_reader *reader)
{
    char *line;
    const mlff_status status = need_line(reader, "the name of the units", &line);
    if (status != MLFF_OK) return status;
    const char *word = line;
    const size_t length = next_word(&word);
    const bool is_real = word_is(word, length, "real");
    if (!is_real && !word_is(word, length, "metal"))
        return reader_fail(reader, MLFF_ERR_UNSUPPORTED, "units %.20s; only metal and real are read, whose lengths are in Å",
                           word);
    reader->is_real = is_real;
    return MLFF_OK;
}

static mlff_status read_time(mlff_reader *reader, dump_frame *frame)
{
    char *line;
    const mlff_status status = need_line(reader, "the time", &line);
    if (status != MLFF_OK) return status;
    const char *text = atoms_skip_blanks(line);
    if (!atoms_parse_number(&text, &frame->time) || !isfinite(frame->time) || *atoms_skip_blanks(text))
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected the time of a frame, found '%.40s'", line);
    return MLFF_OK;
}

static mlff_status read_count(mlff_reader *reader, dump_frame *frame)
{
    char *line;
    int64_t n;
    const mlff_status status = need_line(reader, "the number of atoms", &line);
    if (status != MLFF_OK) return status;
    const char *text = atoms_skip_blanks(line);
    if (!atoms_parse_integer(&text, &n) || *atoms_skip_blanks(text))
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected the number of atoms, found '%.40s'", line);
    if (n < 1 || n > ATOMS_MAX_ATOMS)
        return reader_fail(reader, MLFF_ERR_LIMIT, "%lld atoms; at least 1 and at most %d", (long long)n, ATOMS_MAX_ATOMS);
    frame->n_atoms = n;
    return MLFF_OK;
}

// Bounds are of the box that holds the tilted one; see LAMMPS's manual, "Howto triclinic".
static mlff_status read_box(mlff_reader *reader, dump_frame *frame, const char *words)
{
    double row[3][3] = {{0}};
    int n_flags = 0;
    for (size_t length; (length = next_word(&words)) > 0; words += length) {
        if (word_is(words, length, "abc"))
            return reader_fail(reader, MLFF_ERR_UNSUPPORTED, "a general triclinic box; dump a restricted one");
        frame->tilted |= word_is(words, length, "xy");
        const bool is_flag = length == 2 && strchr("pfsm", words[0]) && strchr("pfsm", words[1]);
        if (is_flag && n_flags < 3) frame->periodic[n_flags++] = words[0] == 'p';
    }
    if (n_flags == 0) frame->periodic[0] = frame->periodic[1] = frame->periodic[2] = true;
    for (int axis = 0; axis < 3; axis++) {
        char *line;
        const mlff_status status = need_line(reader, "the box", &line);
        if (status != MLFF_OK) return status;
        const char *text = line;
        for (int k = 0; k < 2 + frame->tilted; k++) {
            text = atoms_skip_blanks(text);
            if (!atoms_parse_number(&text, &row[axis][k]) || !isfinite(row[axis][k]))
                return reader_fail(reader, MLFF_ERR_FORMAT, "expected %d bounds of the box, found '%.60s'", 2 + frame->tilted,
                                   line);
        }
    }
    const double xy = row[0][2], xz = row[1][2], yz = row[2][2];
    const double below[3] = {fmin(fmin(0, xy), fmin(xz, xy + xz)), fmin(0, yz), 0};
    const double above[3] = {fmax(fmax(0, xy), fmax(xz, xy + xz)), fmax(0, yz), 0};
    double side[3];
    for (int k = 0; k < 3; k++) {
        frame->low[k] = row[k][0] - below[k];
        side[k] = row[k][1] - above[k] - frame->low[k];
        if (!(side[k] > 0) || !isfinite(side[k]))
            return reader_fail(reader, MLFF_ERR_VALUE, "a side of the box is %g Å long", side[k]);
    }
    const double cell[9] = {side[0], 0, 0, xy, side[1], 0, xz, yz, side[2]};
    memcpy(frame->cell, cell, sizeof cell);
    frame->has_box = true;
    return MLFF_OK;
}

// The first of x, xu, xs and xsu whose three columns there are.
static mlff_status read_columns(mlff_reader *reader, dump_frame *frame, const char *words)
{
    static const char *const kinds[4][3] = {{"x", "y", "z"}, {"xu", "yu", "zu"}, {"xs", "ys", "zs"}, {"xsu", "ysu", "zsu"}};
    static const char *const velocities[3] = {"vx", "vy", "vz"};
    int place[4][3], at[3] = {-1, -1, -1};
    memset(place, -1, sizeof place);
    for (size_t length; (length = next_word(&words)) > 0; words += length) {
        const int n = frame->n_columns;
        if (n == MAX_COLUMNS) return reader_fail(reader, MLFF_ERR_LIMIT, "more than %d columns", MAX_COLUMNS);
        frame->columns[n] = word_is(words, length, "id")        ? ID
                            : word_is(words, length, "element") ? ELEMENT
                            : word_is(words, length, "mass")    ? MASS
                                                                : SKIPPED;
        frame->has_elements |= frame->columns[n] == ELEMENT;
        frame->has_masses |= frame->columns[n] == MASS;
        for (int c = 0; c < 3; c++) {
            for (int k = 0; k < 4; k++)
                if (word_is(words, length, kinds[k][c])) place[k][c] = n;
            if (word_is(words, length, velocities[c])) at[c] = n;
        }
        frame->n_columns++;
    }
    int kind = 0;
    while (kind < 4 && (place[kind][0] < 0 || place[kind][1] < 0 || place[kind][2] < 0)) kind++;
    if (kind == 4) return reader_fail(reader, MLFF_ERR_FORMAT, "no columns x y z (or xu, xs, xsu) behind ITEM: ATOMS");
    frame->scaled = kind >= 2;
    frame->has_velocities = at[0] >= 0 && at[1] >= 0 && at[2] >= 0;
    for (int c = 0; c < 3; c++) {
        frame->columns[place[kind][c]] = (enum column)(X + c);
        if (frame->has_velocities) frame->columns[at[c]] = (enum column)(VX + c);
    }
    return MLFF_OK;
}

static mlff_status read_row(mlff_reader *reader, const dump_frame *frame, const char *line, dump_row *row)
{
    const char *text = line;
    for (int k = 0; k < frame->n_columns; k++) {
        const enum column column = frame->columns[k];
        const size_t length = next_word(&text);
        bool good = length > 0;
        if (column == ELEMENT) {
            char symbol[4] = "";
            if (length < sizeof symbol) memcpy(symbol, text, length);
            row->species = mlff_element_number(symbol);
            text += length;
        } else if (column == ID) {
            good = good && atoms_parse_integer(&text, &row->id);
        } else if (column == SKIPPED) {
            text += length;
        } else {
            double *value = column >= VX ? &row->v[column - VX] : column >= X ? &row->x[column - X] : &row->mass;
            good = good && atoms_parse_number(&text, value) && isfinite(*value);
        }
        if (!good)
            return reader_fail(reader, MLFF_ERR_FORMAT, "column %d of %d is missing or no finite number: '%.60s'", k + 1,
                               frame->n_columns, line);
    }
    if (!reader->topology && frame->has_elements && row->species == 0)
        return reader_fail(reader, MLFF_ERR_ELEMENT, "no element in the column element: '%.60s'", line);
    return MLFF_OK;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const dump_row *)a)->id, y = ((const dump_row *)b)->id;
    return (x > y) - (x < y);
}

static mlff_status read_rows(mlff_reader *reader, dump_frame *frame)
{
    mlff_status status = MLFF_OK;
    bool ascending = true;
    while ((int64_t)frame->n_rows < frame->n_atoms) {
        char *line;
        MLFF_TRY(need_line(reader, "an atom", &line));
        MLFF_TRY(base_grow(&frame->rows, &frame->capacity, frame->n_rows + 1, sizeof *frame->rows, "atoms"));
        dump_row *row = &frame->rows[frame->n_rows];
        *row = (dump_row){.id = (int64_t)frame->n_rows};
        MLFF_TRY(read_row(reader, frame, line, row));
        ascending &= frame->n_rows == 0 || row->id > row[-1].id;
        frame->n_rows++;
    }
    if (!ascending) qsort(frame->rows, frame->n_rows, sizeof *frame->rows, by_id);
    for (size_t i = 1; !ascending && i < frame->n_rows; i++)
        if (frame->rows[i].id == frame->rows[i - 1].id)
            MLFF_FAIL(MLFF_ERR_VALUE, "%s:%lld: atom %lld is there twice in a frame", reader->name,
                      (long long)reader->line_number, (long long)frame->rows[i].id);
done:
    return status;
}

static mlff_status make_system(mlff_reader *reader, const dump_frame *frame, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    const double fs_per_unit = reader->is_real ? 1 : 1e3; // of time
    const bool repeats = frame->periodic[0] || frame->periodic[1] || frame->periodic[2];
    if (reader->topology || !frame->has_elements)
        MLFF_TRY(topology_check(reader, "a dump without the column element", frame->n_atoms));
    MLFF_TRY(topology_make_system(reader, (int)frame->n_atoms, repeats ? frame->cell : NULL, &system));
    for (int axis = 0; axis < 3; axis++) system->periodic[axis] = frame->periodic[axis];
    system->time_fs = fs_per_unit * frame->time;
    if (frame->has_velocities) MLFF_TRY(mlff_system_add_velocities(system));
    if (frame->has_masses) MLFF_TRY(mlff_system_add_masses(system));
    for (size_t i = 0; i < frame->n_rows; i++) {
        const dump_row *row = &frame->rows[i];
        double *r = system->positions + 3 * i;
        // LAMMPS writes C for all atoms where it was not told their elements, so that the topology's are the better ones.
        if (reader->topology && row->species > 0 && row->species != system->species[i])
            reader_warn(reader, "the elements of the topology are taken, which are not those of the column element");
        if (!reader->topology) system->species[i] = row->species;
        if (frame->has_masses) system->masses[i] = row->mass;
        for (int c = 0; c < 3; c++) {
            r[c] = row->x[c];
            if (frame->scaled)
                r[c] =
                    frame->low[c] + row->x[0] * frame->cell[c] + row->x[1] * frame->cell[3 + c] + row->x[2] * frame->cell[6 + c];
            if (frame->has_velocities) system->velocities[3 * i + (size_t)c] = row->v[c] / fs_per_unit;
        }
    }
    MLFF_TRY(mlff_system_check(system, reader->name));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

// Up to the line ITEM: ATOMS. *ends_out: the file ends before a frame begins.
static mlff_status read_head(mlff_reader *reader, dump_frame *frame, bool *ends_out)
{
    mlff_status status = MLFF_OK;
    bool begun = false;
    *ends_out = false;
    for (const char *words;;) {
        char *line;
        MLFF_TRY(reader_line(reader, &line));
        if (!line && begun)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: the file ends before the atoms of a frame", reader->name,
                      (long long)reader->line_number);
        *ends_out = !line;
        if (!line) break;
        if (!begun && !*atoms_skip_blanks(line)) continue;
        begun = true;
        if (item(line, "TIMESTEP")) {
            MLFF_TRY(need_line(reader, "the step", &line));
        } else if (item(line, "TIME")) {
            MLFF_TRY(read_time(reader, frame));
        } else if (item(line, "UNITS")) {
            MLFF_TRY(read_units(reader));
        } else if (item(line, "NUMBER OF ATOMS")) {
            MLFF_TRY(read_count(reader, frame));
        } else if ((words = item(line, "BOX BOUNDS"))) {
            MLFF_TRY(read_box(reader, frame, words));
        } else if ((words = item(line, "ATOMS"))) {
            if (frame->n_atoms == 0 || !frame->has_box)
                MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: atoms without their number and box before them", reader->name,
                          (long long)reader->line_number);
            MLFF_TRY(read_columns(reader, frame, words));
            break;
        } else {
            status = reader_fail(reader, MLFF_ERR_FORMAT, "expected an ITEM of a LAMMPS dump, found '%.60s'", line);
            goto done;
        }
    }
done:
    return status;
}

mlff_status dump_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    bool ends;
    dump_frame frame = {.time = NAN};
    MLFF_TRY(read_head(reader, &frame, &ends));
    if (!ends) {
        MLFF_TRY(read_rows(reader, &frame));
        MLFF_TRY(make_system(reader, &frame, system_out));
    }
done:
    base_free(frame.rows);
    return status;
}
