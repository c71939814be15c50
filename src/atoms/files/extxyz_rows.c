// SPDX-License-Identifier: MIT
// extxyz_rows.c: the columns of extended XYZ, as Properties names them, and one row per atom. Rows are kept as they come, so that a count
// that lies costs no memory.
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "extxyz.h"

// Columns without a slot.
enum { COLUMN_SKIP = -1, COLUMN_SPECIES = -2, COLUMN_MAY_MOVE = -3, COLUMN_CHARGE = -4 };
enum { MAX_COLUMNS = 1000000 };

void extxyz_rows_free(extxyz_rows *rows)
{
    if (!rows) return;
    base_free(rows->rows);
    base_free(rows->columns);
    base_free(rows);
}

// ---- Properties

static const struct {
    const char *name;
    int slot, n_columns;
} quantities[] = {
    {"species", COLUMN_SPECIES, 1},
    {"symbol", COLUMN_SPECIES, 1},
    {"symbols", COLUMN_SPECIES, 1},
    {"element", COLUMN_SPECIES, 1},
    {"numbers", COLUMN_SPECIES, 1},
    {"Z", COLUMN_SPECIES, 1},
    {"pos", SLOT_POSITION, 3},
    {"positions", SLOT_POSITION, 3},
    {"forces", SLOT_FORCE, 3},
    {"force", SLOT_FORCE, 3},
    {"velocities", SLOT_VELOCITY, 3},
    {"velocity", SLOT_VELOCITY, 3},
    {"velo", SLOT_VELOCITY, 3},
    {"vel", SLOT_VELOCITY, 3},
    {"momenta", SLOT_MOMENTUM, 3},
    {"masses", SLOT_MASS, 1},
    {"mass", SLOT_MASS, 1},
    {"move_mask", COLUMN_MAY_MOVE, 0},
    {"initial_charges", COLUMN_CHARGE, 1},
};

static mlff_status add_columns(const mlff_reader *reader, extxyz_rows *rows, const char *name, int64_t n)
{
    int slot = COLUMN_SKIP;
    for (size_t k = 0; k < sizeof quantities / sizeof quantities[0]; k++) {
        if (strcmp(name, quantities[k].name) != 0) continue;
        if (quantities[k].slot == COLUMN_CHARGE && n != 1) continue; // the charge is not told, as by one that is not a number
        slot = quantities[k].slot;
        bool fits = slot == COLUMN_MAY_MOVE ? n == 1 || n == 3 : n == quantities[k].n_columns;
        if (!fits)
            return reader_fail(reader, MLFF_ERR_FORMAT, "Properties: %s has %lld column%s, expected %d", name, (long long)n,
                               base_plural(n), slot == COLUMN_MAY_MOVE ? 1 : quantities[k].n_columns);
    }
    if (slot >= 0 && rows->has[slot])
        return reader_fail(reader, MLFF_ERR_FORMAT, "Properties: %s is a quantity that other columns have too; remove one", name);
    if (n > MAX_COLUMNS - rows->n_columns)
        return reader_fail(reader, MLFF_ERR_LIMIT, "Properties: more than %d columns", MAX_COLUMNS);
    mlff_status status = base_grow(&rows->columns, &rows->column_capacity, (size_t)(rows->n_columns + n), 1, "columns");
    if (status != MLFF_OK) return status;
    for (int k = 0; k < (int)n; k++) rows->columns[rows->n_columns++] = (signed char)(slot >= 0 ? slot + k : slot);
    if (slot >= 0) rows->has[slot] = true;
    if (slot == COLUMN_MAY_MOVE) rows->n_move_columns = (int)n;
    return MLFF_OK;
}

// name:type:n repeated, types R I S L.
mlff_status extxyz_parse_properties(const mlff_reader *reader, extxyz_rows *rows, char *text)
{
    mlff_status status = MLFF_OK;
    bool has_species = false;
    snprintf(rows->properties, sizeof rows->properties, strlen(text) < sizeof rows->properties ? "%s" : "%.76s…", text);
    rows->n_columns = rows->n_move_columns = 0;
    memset(rows->has, 0, sizeof rows->has);
    rows->may_have_more = false;
    rows->other_forces = NULL;

    while (*text) {
        char *name = text, *type = strchr(name, ':'), *count = type ? strchr(type + 1, ':') : NULL;
        if (!count || count != type + 2 || !strchr("RISLrisl", type[1]))
            return reader_fail(reader, MLFF_ERR_FORMAT,
                               "Properties=%s: expected name:type:columns, type one of R I S L, from '%.40s' on",
                               rows->properties, name);
        *type = 0;
        char *end = strchr(count + 1, ':');
        if (end) *end = 0;
        const char *number = count + 1;
        int64_t n;
        if (!atoms_parse_integer(&number, &n) || *number || n < 1)
            return reader_fail(reader, MLFF_ERR_FORMAT, "Properties=%s: '%.20s' is not a number of columns", rows->properties,
                               count + 1);
        MLFF_TRY(add_columns(reader, rows, name, n));
        if (n == 3 && rows->columns[rows->n_columns - 1] == COLUMN_SKIP &&
            (extxyz_ends_with(name, "forces") || extxyz_ends_with(name, "force")))
            rows->other_forces = name;
        has_species = has_species || rows->columns[rows->n_columns - 1] == COLUMN_SPECIES;
        text = end ? end + 1 : count + 1 + strlen(count + 1);
    }
    if (!has_species || !rows->has[SLOT_POSITION])
        return reader_fail(reader, MLFF_ERR_FORMAT, "Properties=%s: species (or Z) and pos are needed", rows->properties);
done:
    return status;
}

// ---- the rows

// A symbol in any case, or an atomic number; the cursor moves only if it is one.
static bool parse_species(const char **cursor, int *species_out)
{
    const char *text = *cursor;
    int64_t z = 0;
    if (isdigit((unsigned char)*text)) {
        if (!atoms_parse_integer(&text, &z) || z > MLFF_MAX_ATOMIC_NUMBER) return false;
    } else {
        char symbol[3] = {0};
        for (int k = 0; *text && !atoms_is_blank(*text); k++, text++) {
            if (k == 2) return false;
            symbol[k] = (char)(k == 0 ? toupper((unsigned char)*text) : tolower((unsigned char)*text));
        }
        z = mlff_element_number(symbol);
    }
    if (z < 1) return false;
    *cursor = text;
    *species_out = (int)z;
    return true;
}

static bool parse_may_move(const char **cursor, int *n_held)
{
    char word[8] = {0};
    const char *text = *cursor;
    for (size_t k = 0; *text && !atoms_is_blank(*text); k++, text++) {
        if (k + 1 == sizeof word) return false;
        word[k] = *text;
    }
    bool may_move;
    if (!extxyz_parse_logical(word, &may_move)) return false;
    *n_held += !may_move;
    *cursor = text;
    return true;
}

static void skip_word(const char **cursor)
{
    while (**cursor && !atoms_is_blank(**cursor)) (*cursor)++;
}

// One that is not a number makes the sum unknown, and the frame is read all the same.
static void parse_charge(const char **cursor, double *charge)
{
    double value;
    if (atoms_parse_number(cursor, &value))
        *charge += value;
    else {
        skip_word(cursor);
        *charge = NAN;
    }
}

static int word_length(const char *text)
{
    int length = 0;
    while (length < 40 && text[length] && !atoms_is_blank(text[length])) length++;
    return length;
}

static mlff_status parse_row(const mlff_reader *reader, const extxyz_rows *rows, const char *line, extxyz_row *atom)
{
    const char *cursor = line;
    int species = 0;
    atom->n_held = 0;
    atom->charge = 0;
    for (int k = 0; k < rows->n_columns; k++) {
        int column = rows->columns[k];
        cursor = atoms_skip_blanks(cursor);
        if (!*cursor)
            return reader_fail(reader, MLFF_ERR_FORMAT, "%d column%s, expected %d (%s)", k, base_plural(k), rows->n_columns,
                               rows->properties);
        if (column >= 0) {
            const char *word = cursor;
            if (!atoms_parse_number(&cursor, &atom->values[column]))
                return reader_fail(reader, MLFF_ERR_FORMAT, "column %d, '%.*s', is not a number (%s)", k + 1, word_length(word),
                                   word, rows->properties);
            if (!isfinite(atom->values[column]))
                return reader_fail(reader, MLFF_ERR_VALUE, "column %d, '%.*s', is not finite", k + 1, word_length(word), word);
        } else if (column == COLUMN_SPECIES) {
            const char *word = cursor;
            const int other = species;
            if (!parse_species(&cursor, &species))
                return reader_fail(reader, MLFF_ERR_ELEMENT,
                                   "column %d, '%.*s', is not an element (a symbol, or a number from 1 to %d)", k + 1,
                                   word_length(cursor), cursor, MLFF_MAX_ATOMIC_NUMBER);
            if (other != 0 && other != species)
                return reader_fail(reader, MLFF_ERR_ELEMENT, "column %d, '%.*s', is another element than %s of an earlier column",
                                   k + 1, word_length(word), word, mlff_element_symbol(other));
        } else if (column == COLUMN_MAY_MOVE) {
            if (!parse_may_move(&cursor, &atom->n_held))
                return reader_fail(reader, MLFF_ERR_FORMAT, "column %d, '%.*s', is not T or F", k + 1, word_length(cursor),
                                   cursor);
        } else if (column == COLUMN_CHARGE) {
            parse_charge(&cursor, &atom->charge);
        } else {
            skip_word(&cursor);
        }
    }
    if (*atoms_skip_blanks(cursor) && !rows->may_have_more)
        return reader_fail(reader, MLFF_ERR_FORMAT, "%d columns, expected %d (%s)", atoms_count_words(line, MAX_COLUMNS),
                           rows->n_columns, rows->properties);
    atom->species = species;
    return MLFF_OK;
}

mlff_status extxyz_read_rows(mlff_reader *reader, extxyz_rows *rows, int n_atoms, int64_t count_line)
{
    mlff_status status = MLFF_OK;
    for (int i = 0; i < n_atoms; i++) {
        char *line;
        MLFF_TRY(reader_line(reader, &line));
        if (!line)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: the file ends after %d of the %d atom%s that line %lld promises", reader->name,
                      (long long)reader->line_number, i, n_atoms, base_plural(n_atoms), (long long)count_line);
        if ((size_t)i >= rows->row_capacity)
            MLFF_TRY(base_grow(&rows->rows, &rows->row_capacity, (size_t)i + 64, sizeof(extxyz_row), "atoms"));
        status = parse_row(reader, rows, line, &rows->rows[i]);
        if (status == MLFF_ERR_FORMAT && atoms_count_words(line, 2) < 2) // most likely the next frame's count, or a blank
            MLFF_FAIL(status, "%s:%lld: no row of an atom, but line %lld promises %d atom%s and this would be number %d",
                      reader->name, (long long)reader->line_number, (long long)count_line, n_atoms, base_plural(n_atoms), i + 1);
        if (status != MLFF_OK) goto done;
    }
done:
    return status;
}
