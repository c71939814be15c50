// SPDX-License-Identifier: MIT
// extxyz_read.c: frames of extended XYZ.
//
// A frame is a count, a comment line and one row per atom. The comment may hold key=value pairs (values bare, in
// quotes or in brackets) and bare words; what is known is read, the rest is skipped. A comment with neither Lattice nor
// Properties promises nothing: there a value that cannot be read is free text, elsewhere it is an error.
// Momenta are in ASE's unit, sqrt(eV amu); velocities (velocities, velo, vel) are Å/fs. Rows are kept as they come, so that
// a count that lies costs no memory.
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "atoms/atoms.h"

// Where a column goes: a slot of row.values, or one of these.
enum {
    COLUMN_SKIP = -1,
    COLUMN_SPECIES = -2,
    COLUMN_MAY_MOVE = -3,
    SLOT_POSITION = 0,
    SLOT_FORCE = 3,
    SLOT_VELOCITY = 6,
    SLOT_MOMENTUM = 9,
    SLOT_MASS = 12,
    N_SLOTS = 13,
    MAX_COLUMNS = 1000000
};

static const double LEAST_DIFFERENCE_EV = 1e-6; // of energy and free_energy; less is rounding of decimals

typedef struct row {
    double values[N_SLOTS];
    int species;
    int n_held; // directions in which the atom may not move
} row;

struct extxyz_rows {
    row *rows; // [n_atoms]
    size_t row_capacity;
    signed char *columns; // [n_columns]
    size_t column_capacity;
    int n_columns, n_move_columns;
    bool has[N_SLOTS];        // by the first slot of a quantity
    bool may_have_more;       // rows may be longer than the columns known
    char properties[80];      // for messages
    const char *other_forces; // a column that is not read, in the comment line; NULL: none
};

// What a comment line says. Numbers that are absent are NaN.
typedef struct header {
    double cell[9];
    bool has_lattice, has_periodic, has_properties;
    unsigned char periodic[3];
    double energy, free_energy, charge, spin;
    int64_t group;
    double time_fs;
    double stress[6], virial[6];
    const char *unreadable;                  // a known key whose value is not what it should be
    const char *unread;                      // the same of charge and spin, which others write as words and nothing here needs
    const char *other_energy, *other_stress; // keys that are not read but end like labels: REF_energy
} header;

void extxyz_rows_free(extxyz_rows *rows)
{
    if (!rows) return;
    base_free(rows->rows);
    base_free(rows->columns);
    base_free(rows);
}

// ---- the comment line

// Ends the word or quoted text at *cursor in place and moves behind it.
static char *take_quoted(char **cursor)
{
    char quote = *(*cursor)++, *text = *cursor, *end = text;
    while (*end && *end != quote) end += end[0] == '\\' && end[1] ? 2 : 1;
    *cursor = *end ? end + 1 : end;
    *end = 0;
    return text;
}

static char *take_value(char **cursor)
{
    char *text = *cursor, *end = text;
    if (*text == '"' || *text == '\'') return take_quoted(cursor);
    if (*text == '[' || *text == '{') {
        int depth = 0;
        for (; *end; end++) {
            depth += *end == '[' || *end == '{';
            depth -= *end == ']' || *end == '}';
            if (depth == 0) {
                end++;
                break;
            }
        }
    } else {
        while (*end && !atoms_is_blank(*end)) end++;
    }
    *cursor = *end ? end + 1 : end;
    *end = 0;
    return text;
}

// The next key, and its value or NULL for a bare word. Both are ended in place.
static bool next_pair(char **cursor, char **key_out, char **value_out)
{
    char *text = *cursor;
    while (atoms_is_blank(*text) || *text == '=') text++;
    if (!*text) return false;
    *value_out = NULL;
    if (*text == '"' || *text == '\'') {
        *key_out = take_quoted(&text);
    } else {
        char *end = text;
        while (*end && !atoms_is_blank(*end) && *end != '=') end++;
        *key_out = text;
        text = end;
        bool has_value = *end == '=';
        if (*end) *text++ = 0;
        if (has_value) {
            while (atoms_is_blank(*text)) text++;
            *value_out = take_value(&text);
            *cursor = text;
            return true;
        }
    }
    while (atoms_is_blank(*text)) text++;
    if (*text == '=') {
        text++;
        while (atoms_is_blank(*text)) text++;
        *value_out = take_value(&text);
    }
    *cursor = text;
    return true;
}

// Brackets, commas and quotes become blanks: [[1,2],[3,4]] is four words.
static void open_list(char *text)
{
    for (; *text; text++)
        if (strchr("[]{},\"'", *text)) *text = ' ';
}

// How many numbers there are, at most limit + 1; -1 if there is anything else.
static int parse_list(char *text, double *values, int limit)
{
    int n = 0;
    double extra;
    open_list(text);
    const char *cursor = atoms_skip_blanks(text);
    for (; *cursor && n <= limit; cursor = atoms_skip_blanks(cursor), n++)
        if (!atoms_parse_number(&cursor, n < limit ? &values[n] : &extra)) return -1;
    return n;
}

static bool parse_logical(const char *word, bool *value_out)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = {{"T", true},    {"F", false},     {"1", true},      {"0", false},
                 {"true", true}, {"false", false}, {".true.", true}, {".false.", false}};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (strcasecmp(word, words[k].text) == 0) {
            *value_out = words[k].value;
            return true;
        }
    return false;
}

static bool parse_lattice(char *text, double cell[9])
{
    double values[9];
    int n = parse_list(text, values, 9);
    for (int k = 0; k < 9; k++) cell[k] = n == 9 ? values[k] : (n == 3 && k % 4 == 0) ? values[k / 4] : 0.0;
    return n == 9 || n == 3;
}

static bool parse_periodic(char *text, unsigned char periodic[3])
{
    int n = 0;
    open_list(text);
    char *save = NULL;
    for (char *word = strtok_r(text, " \t\r", &save); word; word = strtok_r(NULL, " \t\r", &save), n++) {
        bool value;
        if (n == 3 || !parse_logical(word, &value)) return false;
        periodic[n] = value;
    }
    if (n == 1) periodic[1] = periodic[2] = periodic[0];
    return n == 1 || n == 3;
}

static bool parse_scalar(char *text, double *value_out)
{
    double value;
    if (parse_list(text, &value, 1) != 1) return false;
    *value_out = isfinite(value) ? value : NAN;
    return true;
}

// The number of a trajectory; -1 for what others write under this name.
static int64_t parse_group(const char *text)
{
    int64_t group;
    return atoms_parse_integer(&text, &group) && group >= 0 ? group : -1;
}

// Six numbers in Voigt order, or nine of a matrix, of which the symmetric part is taken.
static bool parse_tensor(char *text, double voigt[6])
{
    double v[9];
    int n = parse_list(text, v, 9);
    if (n == 9) {
        double symmetric[6] = {v[0], v[4], v[8], 0.5 * (v[5] + v[7]), 0.5 * (v[2] + v[6]), 0.5 * (v[1] + v[3])};
        memcpy(v, symmetric, sizeof symmetric);
    }
    if (n != 6 && n != 9) return false;
    memcpy(voigt, v, 6 * sizeof(double));
    for (int k = 0; k < 6; k++)
        if (!isfinite(v[k])) voigt[0] = NAN; // the mark of absence
    return true;
}

// ---- Properties

static const struct {
    const char *name;
    int slot, n_columns;
} quantities[] = {
    {"species", COLUMN_SPECIES, 1}, {"symbol", COLUMN_SPECIES, 1},    {"symbols", COLUMN_SPECIES, 1},
    {"element", COLUMN_SPECIES, 1}, {"numbers", COLUMN_SPECIES, 1},   {"Z", COLUMN_SPECIES, 1},
    {"pos", SLOT_POSITION, 3},      {"positions", SLOT_POSITION, 3},  {"forces", SLOT_FORCE, 3},
    {"force", SLOT_FORCE, 3},       {"velocities", SLOT_VELOCITY, 3}, {"velocity", SLOT_VELOCITY, 3},
    {"velo", SLOT_VELOCITY, 3},     {"vel", SLOT_VELOCITY, 3},        {"momenta", SLOT_MOMENTUM, 3},
    {"masses", SLOT_MASS, 1},       {"mass", SLOT_MASS, 1},           {"move_mask", COLUMN_MAY_MOVE, 0},
};

static mlff_status add_columns(const mlff_reader *reader, extxyz_rows *rows, const char *name, int64_t n)
{
    int slot = COLUMN_SKIP;
    for (size_t k = 0; k < sizeof quantities / sizeof quantities[0]; k++) {
        if (strcmp(name, quantities[k].name) != 0) continue;
        slot = quantities[k].slot;
        bool fits = slot == COLUMN_MAY_MOVE ? n == 1 || n == 3 : n == quantities[k].n_columns;
        if (!fits)
            return reader_fail(reader, MLFF_ERR_FORMAT, "Properties: %s has %lld columns, expected %d", name, (long long)n,
                               slot == COLUMN_MAY_MOVE ? 1 : quantities[k].n_columns);
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

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length >= n && strcasecmp(text + length - n, end) == 0;
}

// name:type:n repeated, types R I S L.
static mlff_status parse_properties(const mlff_reader *reader, extxyz_rows *rows, char *text)
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
            (ends_with(name, "forces") || ends_with(name, "force")))
            rows->other_forces = name;
        has_species = has_species || rows->columns[rows->n_columns - 1] == COLUMN_SPECIES;
        text = end ? end + 1 : count + 1 + strlen(count + 1);
    }
    if (!has_species || !rows->has[SLOT_POSITION])
        return reader_fail(reader, MLFF_ERR_FORMAT, "Properties=%s: species (or Z) and pos are needed", rows->properties);
done:
    return status;
}

// Labels of MACE, NequIP and others have names of their own. Where the frame has none of the name that is read, they are told.
static void tell_other_labels(mlff_reader *reader, const extxyz_rows *rows, const header *head)
{
    char text[160] = "";
    size_t length = 0;
    const struct {
        const char *found, *read;
        bool absent;
    } labels[] = {{head->other_energy, "energy", isnan(head->energy)},
                  {rows->other_forces, "forces", !rows->has[SLOT_FORCE]},
                  {head->other_stress, ends_with(head->other_stress ? head->other_stress : "", "virial") ? "virial" : "stress",
                   isnan(head->stress[0]) && isnan(head->virial[0])}};
    for (size_t k = 0; k < sizeof labels / sizeof *labels; k++)
        if (labels[k].found && labels[k].absent)
            length += (size_t)base_format(text + length, sizeof text - length, "%s%.24s to %s", length > 0 ? ", " : "",
                                          labels[k].found, labels[k].read);
    char warning[240];
    base_format(warning, sizeof warning, "labels of other names are not read; rename %s if they are meant", text);
    if (length > 0) reader_warn(reader, warning);
}

// With electrons at a temperature (VASP's ISMEAR) forces are the derivative of the free energy, and `energy` is extrapolated to
// 0 K; ASE writes both. The energy of a frame with forces must be theirs.
static void choose_energy(mlff_reader *reader, header *head)
{
    const double above = head->energy - head->free_energy;
    if (isnan(head->free_energy)) return;
    head->energy = head->free_energy;
    if (!(fabs(above) > LEAST_DIFFERENCE_EV)) return;
    char text[192];
    snprintf(text, sizeof text,
             "free_energy= is read, to which forces belong, not energy=, %.4g eV %s it; rename free_energy if energy is meant",
             fabs(above), above > 0 ? "above" : "below");
    reader_warn(reader, text);
}

static mlff_status parse_comment(mlff_reader *reader, extxyz_rows *rows, char *line, header *head)
{
    mlff_status status = MLFF_OK;
    char *key, *value, standard[] = "species:S:1:pos:R:3";

    *head = (header){.energy = NAN,
                     .free_energy = NAN,
                     .charge = NAN,
                     .spin = NAN,
                     .time_fs = NAN,
                     .group = -1,
                     .stress = {NAN},
                     .virial = {NAN}};
    while (next_pair(&line, &key, &value)) {
        if (!value) continue;
        bool readable = true;
        if (strcasecmp(key, "Lattice") == 0) {
            head->has_lattice = true;
            readable = parse_lattice(value, head->cell);
        } else if (strcasecmp(key, "Properties") == 0) {
            head->has_properties = true;
            MLFF_TRY(parse_properties(reader, rows, value));
        } else if (strcasecmp(key, "pbc") == 0) {
            readable = head->has_periodic = parse_periodic(value, head->periodic);
        } else if (strcmp(key, "energy") == 0) {
            readable = parse_scalar(value, &head->energy);
            if (readable && isnan(head->energy)) head->unread = key;
        } else if (strcmp(key, "free_energy") == 0) {
            readable = parse_scalar(value, &head->free_energy);
            if (readable && isnan(head->free_energy)) head->unread = key;
        } else if (strcmp(key, "charge") == 0 || strcmp(key, "total_charge") == 0) {
            if (!parse_scalar(value, &head->charge)) head->unread = key;
        } else if (strcmp(key, "spin") == 0 || strcmp(key, "multiplicity") == 0) {
            if (!parse_scalar(value, &head->spin)) head->unread = key;
        } else if (strcmp(key, "group") == 0) {
            head->group = parse_group(value);
        } else if (strcmp(key, "time_fs") == 0) {
            if (!parse_scalar(value, &head->time_fs)) head->unread = key;
        } else if (strcmp(key, "stress") == 0) {
            readable = parse_tensor(value, head->stress);
            if (readable && isnan(head->stress[0])) head->unread = key;
        } else if (strcmp(key, "virial") == 0) {
            readable = parse_tensor(value, head->virial);
            if (readable && isnan(head->virial[0])) head->unread = key;
        } else if (ends_with(key, "energy") && !ends_with(key, "kinetic_energy")) {
            head->other_energy = key;
        } else if (ends_with(key, "stress") || ends_with(key, "virial")) {
            head->other_stress = key;
        }
        if (!readable) head->unreadable = key;
    }
    if (head->unreadable && (head->has_lattice || head->has_properties))
        return reader_fail(reader, MLFF_ERR_FORMAT,
                           "%s= is not what it should be (Lattice: 9 or 3 numbers, pbc: T or F three times, "
                           "stress and virial: 9 or 6 numbers, else one number)",
                           head->unreadable);
    if (head->unread && (head->has_lattice || head->has_properties)) {
        char text[96];
        const bool is_tensor = strcmp(head->unread, "stress") == 0 || strcmp(head->unread, "virial") == 0;
        snprintf(text, sizeof text, "%.40s= %s; it is not read", head->unread,
                 is_tensor ? "has a number that is not finite" : "is not a finite number");
        reader_warn(reader, text);
    }
    choose_energy(reader, head);
    if (!head->has_properties) {
        MLFF_TRY(parse_properties(reader, rows, standard));
        rows->may_have_more = true;
    }
    if (head->has_properties) tell_other_labels(reader, rows, head);
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
    if (!parse_logical(word, &may_move)) return false;
    *n_held += !may_move;
    *cursor = text;
    return true;
}

static int word_length(const char *text)
{
    int length = 0;
    while (length < 40 && text[length] && !atoms_is_blank(text[length])) length++;
    return length;
}

static mlff_status parse_row(const mlff_reader *reader, const extxyz_rows *rows, const char *line, row *atom)
{
    const char *cursor = line;
    int species = 0;
    atom->n_held = 0;
    for (int k = 0; k < rows->n_columns; k++) {
        int column = rows->columns[k];
        cursor = atoms_skip_blanks(cursor);
        if (!*cursor)
            return reader_fail(reader, MLFF_ERR_FORMAT, "%d columns, expected %d (%s)", k, rows->n_columns, rows->properties);
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
        } else {
            while (*cursor && !atoms_is_blank(*cursor)) cursor++;
        }
    }
    if (*atoms_skip_blanks(cursor) && !rows->may_have_more)
        return reader_fail(reader, MLFF_ERR_FORMAT, "%d columns, expected %d (%s)", atoms_count_words(line, MAX_COLUMNS),
                           rows->n_columns, rows->properties);
    atom->species = species;
    return MLFF_OK;
}

static mlff_status read_rows(mlff_reader *reader, extxyz_rows *rows, int n_atoms, int64_t count_line)
{
    mlff_status status = MLFF_OK;
    for (int i = 0; i < n_atoms; i++) {
        char *line;
        MLFF_TRY(reader_line(reader, &line));
        if (!line)
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: the file ends after %d of the %d atom%s that line %lld promises", reader->name,
                      (long long)reader->line_number, i, n_atoms, base_plural(n_atoms), (long long)count_line);
        if ((size_t)i >= rows->row_capacity)
            MLFF_TRY(base_grow(&rows->rows, &rows->row_capacity, (size_t)i + 64, sizeof(row), "atoms"));
        status = parse_row(reader, rows, line, &rows->rows[i]);
        if (status == MLFF_ERR_FORMAT && atoms_count_words(line, 2) < 2) // most likely the next frame's count, or a blank
            MLFF_FAIL(status, "%s:%lld: no row of an atom, but line %lld promises %d atom%s and this would be number %d",
                      reader->name, (long long)reader->line_number, (long long)count_line, n_atoms, base_plural(n_atoms), i + 1);
        if (status != MLFF_OK) goto done;
    }
done:
    return status;
}

// ---- the system

static void take_slots(const extxyz_rows *rows, int slot, int n, int n_atoms, double *values)
{
    for (int i = 0; i < n_atoms; i++) memcpy(values + (size_t)n * i, rows->rows[i].values + slot, (size_t)n * sizeof(double));
}

static void take_fixed(mlff_reader *reader, const extxyz_rows *rows, mlff_system *system)
{
    for (int i = 0; i < system->n_atoms; i++) {
        system->fixed[i] = rows->rows[i].n_held == rows->n_move_columns;
        if (rows->rows[i].n_held > 0 && !system->fixed[i])
            reader_warn(reader, "move_mask: atoms held in one or two directions are free here");
    }
}

static mlff_status take_optional(mlff_reader *reader, const extxyz_rows *rows, mlff_system *system)
{
    mlff_status status = MLFF_OK;
    int n_atoms = system->n_atoms;

    if (rows->has[SLOT_MASS]) {
        MLFF_TRY(mlff_system_add_masses(system));
        take_slots(rows, SLOT_MASS, 1, n_atoms, system->masses);
    }
    if (rows->has[SLOT_VELOCITY] || rows->has[SLOT_MOMENTUM]) {
        MLFF_TRY(mlff_system_add_velocities(system));
        take_slots(rows, rows->has[SLOT_VELOCITY] ? SLOT_VELOCITY : SLOT_MOMENTUM, 3, n_atoms, system->velocities);
    }
    if (!rows->has[SLOT_VELOCITY] && rows->has[SLOT_MOMENTUM])
        for (int i = 0; i < n_atoms; i++) {
            double mass = atoms_mass(system, i);
            for (int c = 0; c < 3; c++) system->velocities[3 * (size_t)i + c] *= ATOMS_ASE_VELOCITY / mass;
        }
    if (rows->has[SLOT_FORCE]) {
        system->label_forces = base_alloc((size_t)n_atoms, 3 * sizeof(double), "forces");
        if (!system->label_forces) return MLFF_ERR_MEMORY;
        take_slots(rows, SLOT_FORCE, 3, n_atoms, system->label_forces);
    }
    if (rows->n_move_columns > 0) {
        MLFF_TRY(mlff_system_add_fixed(system));
        take_fixed(reader, rows, system);
    }
done:
    return status;
}

static void take_header(mlff_reader *reader, const header *head, mlff_system *system)
{
    bool has_cell = false;
    memcpy(system->cell, head->cell, sizeof system->cell);
    for (int k = 0; k < 9; k++) has_cell = has_cell || head->cell[k] != 0.0;
    for (int axis = 0; axis < 3; axis++) system->periodic[axis] = head->has_periodic ? head->periodic[axis] : has_cell;
    system->charge = head->charge;
    system->spin = head->spin;
    system->group = head->group;
    system->time_fs = head->time_fs;
    system->label_energy = head->energy;
    if (!isnan(head->stress[0])) {
        memcpy(system->label_stress, head->stress, sizeof system->label_stress);
    } else if (!isnan(head->virial[0])) {
        double volume = mlff_system_volume(system);
        if (volume > 0.0)
            for (int k = 0; k < 6; k++) system->label_stress[k] = -head->virial[k] / volume;
        else
            reader_warn(reader, "a virial without a cell says nothing about stress; it is not read");
    }
}

static mlff_status make_system(mlff_reader *reader, const extxyz_rows *rows, const header *head, int n_atoms,
                               int64_t comment_line, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    char place[512];

    MLFF_TRY(mlff_system_create(n_atoms, &system));
    for (int i = 0; i < n_atoms; i++) system->species[i] = rows->rows[i].species;
    take_slots(rows, SLOT_POSITION, 3, n_atoms, system->positions);
    MLFF_TRY(take_optional(reader, rows, system));
    take_header(reader, head, system);
    snprintf(place, sizeof place, "%s:%lld", reader->name, (long long)comment_line);
    MLFF_TRY(mlff_system_check(system, place));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

mlff_status extxyz_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    char *line;
    int64_t n_atoms;
    header head;

    do {
        MLFF_TRY(reader_line(reader, &line));
        if (!line && reader->n_frames == 0) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: empty, no frame in it", reader->name);
        if (!line) return MLFF_OK;
    } while (!*atoms_skip_blanks(line));

    const char *text = atoms_skip_blanks(line);
    if (!atoms_parse_integer(&text, &n_atoms) || *atoms_skip_blanks(text))
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected a number of atoms, found '%.40s'%s", line,
                           reader->n_frames > 0 ? "; does the frame before have more atoms than it says?" : "");
    if (n_atoms < 1) return reader_fail(reader, MLFF_ERR_FORMAT, "a frame of %lld atoms", (long long)n_atoms);
    if (n_atoms > ATOMS_MAX_ATOMS)
        return reader_fail(reader, MLFF_ERR_LIMIT, "claims %lld atoms; at most %d are read", (long long)n_atoms, ATOMS_MAX_ATOMS);
    int64_t count_line = reader->line_number;

    if (!reader->rows && !(reader->rows = base_alloc(1, sizeof *reader->rows, "rows"))) return MLFF_ERR_MEMORY;
    MLFF_TRY(reader_line(reader, &line));
    if (!line) return reader_fail(reader, MLFF_ERR_FORMAT, "the file ends where the comment line should be");
    MLFF_TRY(parse_comment(reader, reader->rows, line, &head));
    MLFF_TRY(read_rows(reader, reader->rows, (int)n_atoms, count_line));
    MLFF_TRY(make_system(reader, reader->rows, &head, (int)n_atoms, count_line + 1, system_out));
done:
    return status;
}
