// SPDX-License-Identifier: MIT
// extxyz_comment.c: the comment line of a frame of extended XYZ.
//
// The comment may hold key=value pairs (values bare, in quotes or in brackets) and bare words; what is known is read, other pairs are kept
// as they stand, words are skipped.
// A comment with neither Lattice nor Properties promises nothing: there a value that cannot be read is free text, elsewhere it is an error.
#include <math.h>
#include <string.h>
#include <strings.h>

#include "extxyz.h"

static const double LEAST_DIFFERENCE_EV = 1e-6; // of energy and free_energy; less is rounding of decimals

// ---- keys and values

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

bool extxyz_parse_logical(const char *word, bool *value_out)
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
        if (n == 3 || !extxyz_parse_logical(word, &value)) return false;
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

// ---- the header

bool extxyz_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length >= n && strcasecmp(text + length - n, end) == 0;
}

// Labels of MACE, NequIP and others have names of their own. A warning names them where the frame has none of the name that is read.
static void warn_of_other_labels(mlff_reader *reader, const extxyz_rows *rows, const extxyz_header *head)
{
    char *const text = reader->other_labels;
    const bool is_virial =
        head->other_stress && (extxyz_ends_with(head->other_stress, "virial") || extxyz_ends_with(head->other_stress, "virials"));
    size_t length = 0;
    const struct {
        const char *found, *read;
        bool absent;
    } labels[] = {{head->other_energy, "energy", isnan(head->energy)},
                  {rows->other_forces, "forces", !rows->has[SLOT_FORCE]},
                  {head->other_stress, is_virial ? "virial" : "stress", isnan(head->stress[0]) && isnan(head->virial[0])}};
    for (size_t k = 0; k < sizeof labels / sizeof *labels; k++)
        if (labels[k].found && labels[k].absent)
            length += (size_t)base_format(text + length, sizeof reader->other_labels - length, "%s%.24s to %s",
                                          length > 0 ? ", " : "", labels[k].found, labels[k].read);
    char warning[240];
    base_format(warning, sizeof warning, "labels of other names are not read; rename %s if they are meant", text);
    if (length > 0) reader_warn(reader, warning);
}

// A free energy that is the same as the energy does not differ from those of frames without one.
static void note_energies(mlff_reader *reader, const extxyz_header *head)
{
    const bool has_free = !isnan(head->free_energy), has_energy = !isnan(head->energy);
    const bool is_same = has_free && has_energy && fabs(head->energy - head->free_energy) <= LEAST_DIFFERENCE_EV;
    const int64_t line = reader->line_number;
    const atoms_energy_lines lines = {.free = has_free && !is_same ? line : 0, .alone = has_energy && !has_free ? line : 0};
    atoms_join_energy_lines(&reader->energies, lines, reader->held_warning ? NULL : reader->name);
}

// With electrons at a temperature (VASP's ISMEAR) forces are the derivative of the free energy, and `energy` is extrapolated to
// 0 K; ASE writes both. The energy of a frame with forces must be theirs.
static void choose_energy(mlff_reader *reader, extxyz_header *head)
{
    const double above = head->energy - head->free_energy;
    note_energies(reader, head);
    if (isnan(head->free_energy)) return;
    head->energy = head->free_energy;
    if (!(fabs(above) > LEAST_DIFFERENCE_EV)) return;
    char text[192];
    snprintf(text, sizeof text,
             "free_energy= is read, to which forces belong, not energy=, %.4g eV %s it; rename free_energy if energy is meant",
             fabs(above), above > 0 ? "above" : "below");
    reader_warn(reader, text);
}

// Where `key` has numbers, they are taken. `unread` is set where they are not finite. Of labels the value must be numbers; of the other keys
// other programs write words, which nothing here needs.
static bool take_number(extxyz_header *head, const char *key, char *value)
{
    const struct {
        const char *key;
        double *numbers;
        bool is_tensor, is_label;
    } keys[] = {
        {"energy", &head->energy, false, true},    {"free_energy", &head->free_energy, false, true},
        {"stress", head->stress, true, true},      {"virial", head->virial, true, true},
        {"charge", &head->charge, false, false},   {"total_charge", &head->charge, false, false},
        {"spin", &head->spin, false, false},       {"multiplicity", &head->spin, false, false},
        {"time_fs", &head->time_fs, false, false},
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (strcmp(key, keys[k].key) != 0) continue;
        const bool is_read = keys[k].is_tensor ? parse_tensor(value, keys[k].numbers) : parse_scalar(value, keys[k].numbers);
        if (!is_read && keys[k].is_label)
            head->unreadable = key;
        else if (!is_read || (keys[k].is_label && isnan(*keys[k].numbers)))
            head->unread = key;
        return true;
    }
    return false;
}

// Pairs that this library writes by itself, or that are said of a frame by what made it, beside those of take_pair.
static bool is_written_anew(const char *key)
{
    static const char *const keys[] = {"step", "relax_end", "relax_steps"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (strcmp(key, keys[k]) == 0) return true;
    return false;
}

// Whether a value in quotes or brackets ends where the text does, by the rules of take_value.
static bool is_whole(const char *value, const char *end)
{
    const char *at = value;
    int depth = 0;
    if (value == end || !strchr("\"'[{", *value)) return true;
    if (*value == '"' || *value == '\'') {
        for (at++; at < end && *at != *value; at++) at += at[0] == '\\';
        return at == end - 1;
    }
    for (; at < end; at++) {
        depth += *at == '[' || *at == '{';
        depth -= *at == ']' || *at == '}';
        if (depth == 0) break;
    }
    return at == end - 1;
}

// The pair of the comment line text[length], as it stood, is kept. One whose quotes or brackets do not end would swallow what follows it.
static mlff_status keep_pair(mlff_reader *reader, const char *text, size_t length)
{
    mlff_status status = MLFF_OK;
    while (length > 0 && atoms_is_blank(text[length - 1])) length--;
    while (length > 0 && (atoms_is_blank(*text) || *text == '=')) text++, length--;
    const char *value = memchr(text, '=', length), *end = text + length;
    if (!value) return MLFF_OK;
    for (value++; value < end && atoms_is_blank(*value);) value++;
    if (!is_whole(value, end)) return MLFF_OK;
    if (reader->info_length + length + 2 > EXTXYZ_MAX_INFO_BYTES) {
        reader_warn(reader,
                    "comment lines have more than 64 KiB of pairs that nothing here reads; the rest of them is not written back");
        return MLFF_OK;
    }
    MLFF_TRY(base_grow(&reader->info, &reader->info_capacity, reader->info_length + length + 2, 1, "a comment line"));
    if (reader->info_length) reader->info[reader->info_length++] = ' ';
    memcpy(reader->info + reader->info_length, text, length);
    reader->info_length += length;
    reader->info[reader->info_length] = 0;
done:
    return status;
}

// REF_energy, dft_stress: labels by names of other programs.
static bool is_other_energy(const char *key)
{
    return extxyz_ends_with(key, "energy") && !extxyz_ends_with(key, "kinetic_energy");
}

static bool is_other_stress(const char *key)
{
    return extxyz_ends_with(key, "stress") || extxyz_ends_with(key, "virial") || extxyz_ends_with(key, "virials");
}

// Without memory no pair is kept, rather than a wrong one.
void atoms_drop_label_pairs(mlff_system *system)
{
    char *info = system->info, *key, *value;
    if (!info) return;
    size_t n = 0;
    const size_t length = strlen(info);
    char *text = base_strdup(info), *kept = base_alloc(2 * length + 2, 1, "a comment line"), *at = text;
    for (char *begin = at; text && kept && next_pair(&at, &key, &value); begin = at) { // pairs are ended in place
        const char *from = info + (begin - text), *end = info + (at - text);
        if (is_other_energy(key) || is_other_stress(key)) continue;
        while (from < end && atoms_is_blank(*from)) from++;
        while (end > from && atoms_is_blank(end[-1])) end--;
        if (n > 0) kept[n++] = ' ';
        memcpy(kept + n, from, (size_t)(end - from));
        n += (size_t)(end - from);
    }
    base_free(text);
    base_free(info);
    system->info = n > 0 ? kept : NULL;
    if (n == 0) base_free(kept);
}

// One pair of the comment line; *is_read says whether it is one of those that are known. A value that is not what it should be is noted.
static mlff_status take_pair(mlff_reader *reader, extxyz_rows *rows, extxyz_header *head, char *key, char *value, bool *is_read)
{
    bool readable = true;
    *is_read = true;
    if (take_number(head, key, value)) return MLFF_OK;
    if (strcasecmp(key, "Lattice") == 0) {
        head->has_lattice = true;
        readable = parse_lattice(value, head->cell);
    } else if (strcasecmp(key, "Properties") == 0) {
        head->has_properties = true;
        return extxyz_parse_properties(reader, rows, value);
    } else if (strcasecmp(key, "pbc") == 0) {
        readable = head->has_periodic = parse_periodic(value, head->periodic);
    } else if (strcmp(key, "group") == 0) {
        head->group = mlff_group_of_text(value);
    } else if (strcmp(key, "config_type") == 0) {
        snprintf(head->config_type, sizeof head->config_type, "%s", value);
        head->config_type[base_whole_length(head->config_type, sizeof head->config_type)] = 0;
    } else if (is_other_energy(key)) {
        head->other_energy = key;
        *is_read = false;
    } else if (is_other_stress(key)) {
        head->other_stress = key;
        *is_read = false;
    } else {
        *is_read = is_written_anew(key);
    }
    if (!readable) head->unreadable = key;
    return MLFF_OK;
}

static void warn_of_unread(mlff_reader *reader, const char *key)
{
    char text[96];
    const bool is_tensor = strcmp(key, "stress") == 0 || strcmp(key, "virial") == 0;
    snprintf(text, sizeof text, "%.40s= %s; it is not read", key,
             is_tensor ? "has a number that is not finite" : "is not a finite number");
    reader_warn(reader, text);
}

mlff_status extxyz_parse_comment(mlff_reader *reader, extxyz_rows *rows, char *line, extxyz_header *head)
{
    mlff_status status = MLFF_OK;
    char *key, *value, standard[] = "species:S:1:pos:R:3";

    *head = (extxyz_header){.energy = NAN,
                            .free_energy = NAN,
                            .charge = NAN,
                            .spin = NAN,
                            .time_fs = NAN,
                            .group = -1,
                            .stress = {NAN},
                            .virial = {NAN}};
    reader->other_labels[0] = 0;
    const size_t length = strlen(line);
    const char *const begin = line;
    MLFF_TRY(base_grow(&reader->comment, &reader->comment_capacity, length + 1, 1, "a comment line"));
    MLFF_TRY(base_grow(&reader->info, &reader->info_capacity, 1, 1, "a comment line"));
    memcpy(reader->comment, line, length + 1); // pairs are ended in place
    reader->info[reader->info_length = 0] = 0;
    for (const char *at = line; next_pair(&line, &key, &value); at = line) {
        bool is_read = true;
        if (value) MLFF_TRY(take_pair(reader, rows, head, key, value, &is_read));
        if (!is_read) MLFF_TRY(keep_pair(reader, reader->comment + (at - begin), (size_t)(line - at)));
    }
    if (!head->has_lattice && !head->has_properties) reader->info[reader->info_length = 0] = 0; // free text
    const bool has_form = head->has_lattice || head->has_properties;
    if (head->unreadable && has_form)
        return reader_fail(reader, MLFF_ERR_FORMAT,
                           "%s= is not what it should be (Lattice: 9 or 3 numbers, pbc: T or F three times, "
                           "stress and virial: 9 or 6 numbers, else one number)",
                           head->unreadable);
    if (head->unread && has_form) warn_of_unread(reader, head->unread);
    choose_energy(reader, head);
    if (!head->has_properties) {
        MLFF_TRY(extxyz_parse_properties(reader, rows, standard));
        rows->may_have_more = true;
    }
    if (head->has_properties) warn_of_other_labels(reader, rows, head);
done:
    return status;
}
