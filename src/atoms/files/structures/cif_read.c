// SPDX-License-Identifier: MIT
// cif_read.c: CIF and mmCIF: a frame for each data block with atoms. Read are the cell, the symmetry operations (as x,y,z texts) and the
// atom sites; images of a site by the operations are added, those that fall together once. Sites that are not fully occupied are
// refused, as are space groups whose operations are not in the file. Syntax: Hall, Allen and Brown, Acta Cryst. A47, 655 (1991).
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sites.h"

enum { MAX_COLUMNS = 256, MAX_OPERATIONS = 192, LABEL_BYTES = 24, RESIDUE_BYTES = 96 };
#define SAME_SITE 0.1 // Å: images nearer than this are one atom; those of 1/3 written as 0.333 are 0.001 of a cell vector apart

typedef enum token_kind { TOKEN_END, TOKEN_BLOCK, TOKEN_LOOP, TOKEN_TAG, TOKEN_VALUE } token_kind;

// Items that are read.
typedef enum meaning {
    OTHER,
    LENGTH_A,
    LENGTH_B,
    LENGTH_C,
    ANGLE_ALPHA,
    ANGLE_BETA,
    ANGLE_GAMMA,
    GROUP_NAME,
    GROUP_NUMBER,
    OPERATION,
    LABEL,
    SYMBOL,
    FRACT_X,
    FRACT_Y,
    FRACT_Z,
    CARTN_X,
    CARTN_Y,
    CARTN_Z,
    OCCUPANCY,
    MODEL,
    ALTERNATE,
    RESIDUE
} meaning;

// Names without "." and in small letters: those of CIF and of mmCIF are then one.
static const struct {
    const char *name;
    meaning meaning;
} names[] = {
    {"_cell_length_a", LENGTH_A},
    {"_cell_length_b", LENGTH_B},
    {"_cell_length_c", LENGTH_C},
    {"_cell_angle_alpha", ANGLE_ALPHA},
    {"_cell_angle_beta", ANGLE_BETA},
    {"_cell_angle_gamma", ANGLE_GAMMA},
    {"_symmetry_space_group_name_h-m", GROUP_NAME},
    {"_space_group_name_h-m_alt", GROUP_NAME},
    {"_space_group_name_h-m_full", GROUP_NAME},
    {"_symmetry_space_group_name_hall", GROUP_NAME},
    {"_space_group_name_hall", GROUP_NAME},
    {"_symmetry_int_tables_number", GROUP_NUMBER},
    {"_space_group_it_number", GROUP_NUMBER},
    {"_symmetry_equiv_pos_as_xyz", OPERATION},
    {"_space_group_symop_operation_xyz", OPERATION},
    {"_atom_site_label", LABEL},
    {"_atom_site_type_symbol", SYMBOL},
    {"_atom_site_fract_x", FRACT_X},
    {"_atom_site_fract_y", FRACT_Y},
    {"_atom_site_fract_z", FRACT_Z},
    {"_atom_site_cartn_x", CARTN_X},
    {"_atom_site_cartn_y", CARTN_Y},
    {"_atom_site_cartn_z", CARTN_Z},
    {"_atom_site_occupancy", OCCUPANCY},
    {"_atom_site_pdbx_pdb_model_num", MODEL},
    {"_atom_site_label_alt_id", ALTERNATE},
    {"_atom_site_label_asym_id", RESIDUE},
    {"_atom_site_label_seq_id", RESIDUE},
    {"_atom_site_auth_asym_id", RESIDUE},
    {"_atom_site_auth_seq_id", RESIDUE},
    {"_atom_site_pdbx_pdb_ins_code", RESIDUE},
    {"_atom_site_label_atom_id", LABEL},
};

typedef struct operation {
    double turn[9], shift[3]; // of fractions
} operation;

// A row of the sites as far as it is read.
typedef struct site_row {
    char label[LABEL_BYTES], symbol[LABEL_BYTES];
    char residue[RESIDUE_BYTES]; // chain and number; "": not given
    char alternate[LABEL_BYTES]; // name of the location; "": it is the only one
    double at[3];
    bool given[3], fractions;
    double occupancy;
    long model;
} site_row;

typedef struct cif {
    mlff_reader *reader;
    char *line;  // what is left of it; NULL: the next one is to be read
    char *value; // of the last token
    bool in_value_text, at_start;
    char *text; // of a value between lines of ";"
    size_t text_capacity;
    double cell[6];
    bool has[6];
    char group[64];
    operation operations[MAX_OPERATIONS];
    int n_operations;
    site_list list; // positions are fractions where `fractions`
    bool fractions;
    long model;
    char residue[RESIDUE_BYTES]; // of the last site that has a name for its location
    char location[LABEL_BYTES];  // the name that is kept there
} cif;

// ---- tokens

static mlff_status next_line(cif *file, bool *end_out)
{
    char *line = NULL;
    const mlff_status status = reader_line(file->reader, &line);
    file->line = line;
    file->at_start = true;
    *end_out = status == MLFF_OK && !line;
    return status;
}

// A value that begins with ";" in the first column goes on up to a line that begins with ";".
static mlff_status read_text(cif *file)
{
    size_t length = 0;
    char *line = file->line + 1;
    for (;;) {
        const size_t more = strlen(line);
        mlff_status status = base_grow(&file->text, &file->text_capacity, length + more + 2, 1, "a text");
        if (status != MLFF_OK) return status;
        memcpy(file->text + length, line, more);
        length += more;
        file->text[length++] = ' ';
        file->text[length] = 0;
        if (length > ATOMS_MAX_LINE_BYTES) return reader_fail(file->reader, MLFF_ERR_LIMIT, "a text of more than 16 MB");
        bool end;
        if ((status = next_line(file, &end)) != MLFF_OK) return status;
        if (end) return reader_fail(file->reader, MLFF_ERR_FORMAT, "the file ends in a text that began with ;");
        if (file->line[0] == ';') break;
        line = file->line;
    }
    file->line++;
    file->at_start = false;
    file->value = file->text;
    return MLFF_OK;
}

// A quote ends a value where a blank or the line's end follows.
static mlff_status read_quoted(cif *file)
{
    const char quote = *file->line;
    char *end = file->line + 1;
    while (*end && !(*end == quote && (!end[1] || atoms_is_blank(end[1])))) end++;
    if (!*end) return reader_fail(file->reader, MLFF_ERR_FORMAT, "a value in quotes does not end in its line");
    *end = 0;
    file->value = file->line + 1;
    file->line = end + 1;
    return MLFF_OK;
}

static token_kind kind_of(const char *word)
{
    if (*word == '_') return TOKEN_TAG;
    if (strncasecmp(word, "data_", 5) == 0) return TOKEN_BLOCK;
    if (strcasecmp(word, "loop_") == 0) return TOKEN_LOOP;
    return TOKEN_VALUE;
}

static mlff_status next_token(cif *file, token_kind *kind_out)
{
    mlff_status status = MLFF_OK;
    for (;;) {
        bool end = false;
        if (!file->line) MLFF_TRY(next_line(file, &end));
        if (end) {
            *kind_out = TOKEN_END;
            return MLFF_OK;
        }
        *kind_out = TOKEN_VALUE;
        if (file->at_start && file->line[0] == ';') return read_text(file);
        file->at_start = false;
        while (atoms_is_blank(*file->line)) file->line++;
        if (*file->line && *file->line != '#') break;
        file->line = NULL;
    }
    if (*file->line == '\'' || *file->line == '"') return read_quoted(file);
    file->value = file->line;
    while (*file->line && !atoms_is_blank(*file->line)) file->line++;
    if (*file->line) *file->line++ = 0;
    *kind_out = kind_of(file->value);
done:
    return status;
}

// ---- values

static meaning meaning_of(char *tag)
{
    for (char *c = tag; *c; c++) *c = (char)(*c == '.' ? '_' : tolower((unsigned char)*c));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(tag, names[k].name) == 0) return names[k].meaning;
    return OTHER;
}

static bool is_unknown(const char *value)
{
    return (*value == '?' || *value == '.') && !value[1];
}

// "5.431(2)": digits in brackets are the uncertainty of the last ones.
static bool number_of(const char *value, double *number_out)
{
    char digits[64];
    const size_t length = strcspn(value, "(");
    if (length >= sizeof digits) return false;
    memcpy(digits, value, length);
    digits[length] = 0;
    const char *cursor = digits;
    if (!atoms_parse_number(&cursor, number_out) || *cursor || !isfinite(*number_out)) return false;
    value += length;
    if (!*value) return true;
    value++;
    while (isdigit((unsigned char)*value)) value++;
    return value[0] == ')' && !value[1];
}

static mlff_status fail_value(const cif *file, const char *what, const char *value)
{
    return reader_fail(file->reader, MLFF_ERR_FORMAT, "'%.40s' is not %s", value, what);
}

// Digits with a point.
static bool parse_decimal(const char **text, double *number_out)
{
    char digits[16];
    const size_t length = strspn(*text, "0123456789.");
    if (length == 0 || length >= sizeof digits) return false;
    memcpy(digits, *text, length);
    digits[length] = 0;
    *text += length;
    const char *cursor = digits;
    return atoms_parse_number(&cursor, number_out) && !*cursor && *number_out <= 1e3;
}

// One part of "-x+1/2": sums of x, y, z with signs and numbers or quotients.
static bool parse_part(const char *text, const char *end, double turn[3], double *shift)
{
    for (int n = 0; text < end; n++) {
        double sign = 1, number;
        if (*text == '+' || *text == '-')
            sign = *text++ == '-' ? -1 : 1;
        else if (n > 0)
            return false;
        const char letter = (char)tolower((unsigned char)*text);
        if (letter >= 'x' && letter <= 'z') {
            turn[letter - 'x'] += sign;
            text++;
            continue;
        }
        if (!parse_decimal(&text, &number)) return false;
        if (text < end && *text == '/') {
            double below;
            text++;
            if (!parse_decimal(&text, &below) || below < 1) return false;
            number /= below;
        }
        *shift += sign * number;
    }
    return true;
}

// Its determinant is 1 or -1.
static bool is_rotation(const double m[9])
{
    const double determinant =
        m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) + m[2] * (m[3] * m[7] - m[4] * m[6]);
    return fabs(fabs(determinant) - 1) < 1e-9;
}

static mlff_status add_operation(cif *file, const char *value)
{
    operation made = {0};
    char text[96];
    size_t length = 0;
    for (; *value && length + 1 < sizeof text; value++)
        if (!atoms_is_blank(*value)) text[length++] = *value;
    text[length] = 0;
    const char *part = text;
    bool good = !*value;
    for (int k = 0; k < 3 && good; k++) {
        const char *end = part + strcspn(part, ",");
        good = end > part && parse_part(part, end, made.turn + 3 * k, &made.shift[k]) && *end == (k < 2 ? ',' : 0);
        part = end + 1;
    }
    if (!good || !is_rotation(made.turn)) return fail_value(file, "a symmetry operation as x,y,z", text);
    if (file->n_operations == MAX_OPERATIONS)
        return reader_fail(file->reader, MLFF_ERR_LIMIT, "more than %d symmetry operations", MAX_OPERATIONS);
    file->operations[file->n_operations++] = made;
    return MLFF_OK;
}

// An item that stands once.
static mlff_status take_item(cif *file, meaning what, const char *value)
{
    if (what >= LENGTH_A && what <= ANGLE_GAMMA && !is_unknown(value)) {
        const int k = what - LENGTH_A;
        if (!number_of(value, &file->cell[k])) return fail_value(file, k < 3 ? "a length" : "an angle", value);
        file->has[k] = true;
    }
    const bool p1 = strcasecmp(value, "P1") == 0 || strcasecmp(value, "P 1") == 0 || strcmp(value, "1") == 0;
    if ((what == GROUP_NAME || what == GROUP_NUMBER) && !is_unknown(value) && !p1 && !file->group[0])
        snprintf(file->group, sizeof file->group, "%s", value);
    if (what == OPERATION) return add_operation(file, value);
    return MLFF_OK;
}

// ---- sites

// "Si4+", "Cl", "D"; 0 for what is no element.
static int element_of_symbol(const char *text, double *mass_out)
{
    char symbol[3] = {0};
    int n = 0;
    while (n < 2 && isalpha((unsigned char)text[n])) n++;
    if (n == 0 || isalpha((unsigned char)text[n])) return 0;
    symbol[0] = (char)toupper((unsigned char)text[0]);
    symbol[1] = (char)(n > 1 ? tolower((unsigned char)text[1]) : 0);
    return sites_element(symbol, mass_out);
}

// "Si1", "O1A", "HO2": of two large letters the first, unless the two are an element as well, which is ambiguous (0).
static int element_of_label(const char *label, double *mass_out)
{
    char one[2] = {label[0], 0}, two[3] = {label[0], 0, 0};
    const bool small = islower((unsigned char)label[1]);
    if (isalpha((unsigned char)label[1])) two[1] = (char)tolower((unsigned char)label[1]);
    double mass = 0; // of the short element
    const int short_element = sites_element(one, &mass);
    const int long_element = two[1] ? mlff_element_number(two) : 0;
    if (small && long_element) return long_element;
    *mass_out = mass;
    return !small && long_element && short_element ? 0 : short_element ? short_element : long_element;
}

static mlff_status take_column(cif *file, site_row *row, meaning what, const char *value)
{
    const int axis = what >= CARTN_X ? what - CARTN_X : what - FRACT_X;
    double number;
    switch (what) {
    case LABEL:
        if (!row->label[0]) snprintf(row->label, sizeof row->label, "%s", value);
        break;
    case SYMBOL: snprintf(row->symbol, sizeof row->symbol, "%s", is_unknown(value) ? "" : value); break;
    case FRACT_X:
    case FRACT_Y:
    case FRACT_Z:
    case CARTN_X:
    case CARTN_Y:
    case CARTN_Z:
        if (what >= CARTN_X && row->fractions) break; // both are there: the fractions are taken
        if (is_unknown(value)) break;
        if (!number_of(value, &row->at[axis]) || !(fabs(row->at[axis]) < 1e6)) return fail_value(file, "a position", value);
        row->given[axis] = true;
        row->fractions = what <= FRACT_Z;
        break;
    case OCCUPANCY:
        if (!is_unknown(value) && !number_of(value, &row->occupancy)) return fail_value(file, "an occupancy", value);
        break;
    case MODEL:
        if (number_of(value, &number) && fabs(number) < 1e9) row->model = (long)number;
        break;
    case ALTERNATE: snprintf(row->alternate, sizeof row->alternate, "%s", is_unknown(value) ? "" : value); break;
    case RESIDUE: {
        const size_t length = strlen(row->residue);
        snprintf(row->residue + length, sizeof row->residue - length, " %s", value);
        break;
    }
    default: break;
    }
    return MLFF_OK;
}

// Whether the site is there in the location that is kept: the first one of each residue, whose atoms stand together.
static bool is_kept_location(cif *file, const site_row *row)
{
    if (!row->alternate[0]) return true;
    if (!file->location[0] || strcmp(row->residue, file->residue) != 0) {
        memcpy(file->residue, row->residue, sizeof file->residue);
        memcpy(file->location, row->alternate, sizeof file->location);
    }
    return strcmp(row->alternate, file->location) == 0;
}

static mlff_status take_site(cif *file, const site_row *row)
{
    mlff_reader *reader = file->reader;
    site added = {.id = (int64_t)file->list.n};
    if (file->list.n > 0 && row->model != file->model) {
        reader_warn(reader, "of the models of a data block the first is read");
        return MLFF_OK;
    }
    file->model = row->model;
    const bool is_whole = fabs(row->occupancy - 1) <= 0.001, is_empty = fabs(row->occupancy) <= 0.001;
    const bool is_kept = is_kept_location(file, row);
    if (!is_kept && (is_whole || is_empty)) {
        reader_warn(reader, "of alternate locations the first is kept");
        return MLFF_OK;
    }
    if (!(row->given[0] && row->given[1] && row->given[2]))
        return reader_fail(reader, MLFF_ERR_FORMAT, "atom site '%s' has no position; remove it or complete the structure",
                           row->label);
    if (!is_whole)
        return reader_fail(
            reader, MLFF_ERR_UNSUPPORTED,
            "atom site '%s' has occupancy %g: a structure with disorder is no arrangement of atoms; choose one and "
            "write it with occupancies of 1",
            row->label, row->occupancy);
    if (file->list.n > 0 && row->fractions != file->fractions)
        return reader_fail(reader, MLFF_ERR_FORMAT, "sites with fractions and sites in Å in one data block");
    file->fractions = row->fractions;
    added.species = row->symbol[0] ? element_of_symbol(row->symbol, &added.mass) : element_of_label(row->label, &added.mass);
    if (!added.species)
        return reader_fail(reader, MLFF_ERR_ELEMENT,
                           "the element of atom site '%s' is not clear; give it as _atom_site_type_symbol",
                           row->symbol[0] ? row->symbol : row->label);
    memcpy(added.position, row->at, sizeof added.position);
    return sites_add(reader, &file->list, &added);
}

// Names of columns, then rows of values. Returns with the token behind them.
static mlff_status read_loop(cif *file, token_kind *kind)
{
    mlff_status status = MLFF_OK;
    meaning columns[MAX_COLUMNS];
    int n = 0, column = 0;
    bool sites = false;
    site_row row, empty = {.occupancy = 1, .model = 1};
    MLFF_TRY(next_token(file, kind));
    while (*kind == TOKEN_TAG) {
        if (n == MAX_COLUMNS) MLFF_FAIL(MLFF_ERR_LIMIT, "%s: a loop of more than %d columns", file->reader->name, MAX_COLUMNS);
        columns[n] = meaning_of(file->value);
        sites |= columns[n] >= LABEL;
        n++;
        MLFF_TRY(next_token(file, kind));
    }
    if (n == 0) return reader_fail(file->reader, MLFF_ERR_FORMAT, "a loop_ without names of columns");
    for (row = empty; *kind == TOKEN_VALUE;) {
        if (sites)
            MLFF_TRY(take_column(file, &row, columns[column], file->value));
        else
            MLFF_TRY(take_item(file, columns[column], file->value));
        if (++column == n) {
            if (sites && (row.given[0] || row.label[0])) MLFF_TRY(take_site(file, &row));
            row = empty;
            column = 0;
        }
        MLFF_TRY(next_token(file, kind));
    }
    if (column != 0) status = reader_fail(file->reader, MLFF_ERR_FORMAT, "the last row of a loop has %d of %d values", column, n);
done:
    return status;
}

// ---- the structure

static void to_position(const double cell[9], const double fraction[3], double out[3])
{
    for (int c = 0; c < 3; c++) out[c] = fraction[0] * cell[c] + fraction[1] * cell[3 + c] + fraction[2] * cell[6 + c];
}

static bool is_same(const double cell[9], const double a[3], const double b[3])
{
    double difference[3], r[3];
    for (int k = 0; k < 3; k++) difference[k] = a[k] - b[k] - round(a[k] - b[k]);
    to_position(cell, difference, r);
    return r[0] * r[0] + r[1] * r[1] + r[2] * r[2] < SAME_SITE * SAME_SITE;
}

// Whether the site is an image of one before it, as where a file with symmetry operations lists all atoms of the cell.
static bool is_image(const site_list *all, const double cell[9], const site *of)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->sites[i].species == of->species && is_same(cell, all->sites[i].position, of->position)) return true;
    return false;
}

// All images of the sites, as positions.
static mlff_status expand(const cif *file, const double cell[9], site_list *all)
{
    mlff_status status = MLFF_OK;
    for (size_t i = 0; i < file->list.n; i++) {
        const double *f = file->list.sites[i].position;
        double images[MAX_OPERATIONS + 1][3];
        int n_images = 1;
        if (file->n_operations > 1 && is_image(all, cell, &file->list.sites[i])) {
            reader_warn(file->reader, "atom sites that are images of others by the symmetry operations are left out");
            continue;
        }
        memcpy(images[0], f, sizeof images[0]);
        for (int o = 0; o < file->n_operations; o++) {
            const operation *op = &file->operations[o];
            double *image = images[n_images];
            bool is_new = true;
            for (int k = 0; k < 3; k++) {
                image[k] = op->turn[3 * k] * f[0] + op->turn[3 * k + 1] * f[1] + op->turn[3 * k + 2] * f[2] + op->shift[k];
                image[k] -= floor(image[k]);
            }
            for (int m = 0; m < n_images && is_new; m++) is_new = !is_same(cell, image, images[m]);
            n_images += is_new;
        }
        for (int m = 0; m < n_images; m++) {
            site added = {.id = (int64_t)all->n, .species = file->list.sites[i].species, .mass = file->list.sites[i].mass};
            memcpy(added.position, images[m], sizeof added.position);
            MLFF_TRY(sites_add(file->reader, all, &added));
        }
    }
    for (size_t i = 0; i < all->n; i++) {
        double position[3];
        to_position(cell, all->sites[i].position, position);
        memcpy(all->sites[i].position, position, sizeof position);
    }
done:
    return status;
}

static bool is_identity(const operation *op)
{
    for (int k = 0; k < 9; k++)
        if (op->turn[k] != (k % 4 == 0)) return false;
    return op->shift[0] == round(op->shift[0]) && op->shift[1] == round(op->shift[1]) && op->shift[2] == round(op->shift[2]);
}

static mlff_status make_system(cif *file, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    site_list all = {0};
    double cell[9];
    int n_given = 0;
    for (int k = 0; k < 6; k++) n_given += file->has[k];
    // mmCIF of what is no crystal has a cell of 1 × 1 × 1 Å.
    const bool none = n_given == 0 || (!file->fractions && file->cell[0] == 1 && file->cell[1] == 1 && file->cell[2] == 1);
    const bool symmetric = file->n_operations > 1 || (file->n_operations == 1 && !is_identity(&file->operations[0]));
    if (!none && n_given != 6)
        return reader_fail(file->reader, MLFF_ERR_FORMAT, "the cell has %d of 6 lengths and angles", n_given);
    if (none && file->fractions) return reader_fail(file->reader, MLFF_ERR_FORMAT, "fractions without a cell");
    if (!none && !cell_from_lengths(file->cell, file->cell + 3, cell))
        return reader_fail(file->reader, MLFF_ERR_VALUE, "no cell has lengths %g %g %g Å and angles %g %g %g°", file->cell[0],
                           file->cell[1], file->cell[2], file->cell[3], file->cell[4], file->cell[5]);
    if (!none && file->group[0] && file->n_operations == 0)
        return reader_fail(file->reader, MLFF_ERR_UNSUPPORTED,
                           "space group '%s' without its symmetry operations; write them, or all atoms of the cell as P 1",
                           file->group);
    if (!none && symmetric && !file->fractions)
        return reader_fail(file->reader, MLFF_ERR_UNSUPPORTED,
                           "symmetry operations with positions in Å; write fractions, or all atoms of the cell as P 1");
    if (file->fractions) MLFF_TRY(expand(file, cell, &all));
    status = sites_make_system(file->reader, file->fractions ? &all : &file->list, none ? NULL : cell, system_out);
done:
    sites_free(&all);
    return status;
}

mlff_status cif_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    token_kind kind = TOKEN_VALUE;
    cif *file = base_alloc(1, sizeof *file, "a data block");
    if (!file) return MLFF_ERR_MEMORY;
    file->reader = reader;
    MLFF_TRY(next_token(file, &kind));
    while (kind != TOKEN_END) {
        if (kind == TOKEN_BLOCK) {
            if (file->list.n > 0) break; // its name has been read: what follows is of the next block
            memset(file->has, 0, sizeof file->has);
            file->group[0] = 0;
            file->n_operations = 0;
        }
        if (kind == TOKEN_LOOP) {
            MLFF_TRY(read_loop(file, &kind));
            continue;
        }
        if (kind == TOKEN_TAG) {
            const meaning what = meaning_of(file->value);
            MLFF_TRY(next_token(file, &kind));
            if (kind != TOKEN_VALUE)
                MLFF_FAIL(MLFF_ERR_FORMAT, "%s:%lld: a name without a value", reader->name, (long long)reader->line_number);
            MLFF_TRY(take_item(file, what, file->value));
        }
        MLFF_TRY(next_token(file, &kind));
    }
    if (file->list.n == 0 && reader->n_frames == 0)
        status = reader_fail(reader, MLFF_ERR_FORMAT, "no data block with atom sites in a CIF file");
    if (file->list.n > 0) MLFF_TRY(make_system(file, system_out));
done:
    sites_free(&file->list);
    base_free(file->text);
    base_free(file);
    return status;
}
