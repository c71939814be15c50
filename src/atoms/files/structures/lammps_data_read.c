// SPDX-License-Identifier: MIT
// lammps_data_read.c: LAMMPS data files in units metal or real (both Å): the box, Masses, Atoms and Velocities; other sections
// are skipped. Elements are those of the masses, or of a comment behind them. Atoms are put in the order of their numbers. All
// three axes repeat, since a data file does not say which do.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sites.h"

enum { MAX_TYPES = 1000, WORDS = 12, NAME_BYTES = 32 };
typedef enum units { UNITS_UNKNOWN, UNITS_METAL, UNITS_REAL } units;

typedef struct lammps_data {
    site_list list;         // species is the type until the masses are known
    site_list velocities;   // `position` is the velocity in the file's unit
    int64_t n_atoms;        // of the header; -1: not given
    double low[3], high[3]; // Å
    double tilt[3];         // xy, xz, yz, Å
    bool has_bounds[3];
    int elements[MAX_TYPES + 1];  // by type; 0: no mass was given
    double masses[MAX_TYPES + 1]; // amu
    units units;
} lammps_data;

static bool is_name(const char *text, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && (!text[length] || atoms_is_blank(text[length]));
}

// Numbers at the begin of a line, at most WORDS; *rest_out is behind them.
static int numbers_of(const char *line, double values[WORDS], const char **rest_out)
{
    int n = 0;
    const char *text = atoms_skip_blanks(line);
    while (n < WORDS && *text && *text != '#' && atoms_parse_number(&text, &values[n])) {
        n++;
        text = atoms_skip_blanks(text);
    }
    *rest_out = text;
    return n;
}

static mlff_status read_units(mlff_reader *reader, lammps_data *file, const char *comment)
{
    const char *text = strstr(comment, "units = ");
    if (!text) return MLFF_OK;
    text += strlen("units = ");
    file->units = is_name(text, "metal") ? UNITS_METAL : is_name(text, "real") ? UNITS_REAL : UNITS_UNKNOWN;
    if (file->units == UNITS_UNKNOWN)
        return reader_fail(reader, MLFF_ERR_UNSUPPORTED, "units %.20s; only metal and real are read, whose lengths are in Å",
                           text);
    return MLFF_OK;
}

// A line of the header; *section_out if it is a section's name instead.
static mlff_status read_header(mlff_reader *reader, lammps_data *file, const char *line, bool *section_out)
{
    static const char *const bounds[3] = {"xlo xhi", "ylo yhi", "zlo zhi"};
    double values[WORDS];
    const char *rest;
    const int n = numbers_of(line, values, &rest);
    *section_out = n == 0 && *rest && *rest != '#';
    for (int k = 0; k < n; k++)
        if (!isfinite(values[k])) return reader_fail(reader, MLFF_ERR_VALUE, "a number that is not finite");
    if (n == 1 && is_name(rest, "atoms")) {
        if (values[0] < 1 || values[0] > ATOMS_MAX_ATOMS || values[0] != floor(values[0]))
            return reader_fail(reader, MLFF_ERR_LIMIT, "%g atoms; at least 1 and at most %d", values[0], ATOMS_MAX_ATOMS);
        file->n_atoms = (int64_t)values[0];
    }
    for (int k = 0; k < 3; k++)
        if (n == 2 && is_name(rest, bounds[k])) {
            file->low[k] = values[0];
            file->high[k] = values[1];
            file->has_bounds[k] = true;
        }
    if (n == 3 && is_name(rest, "xy xz yz")) memcpy(file->tilt, values, sizeof file->tilt);
    if (is_name(rest, "avec") || is_name(rest, "abc"))
        return reader_fail(reader, MLFF_ERR_UNSUPPORTED, "a general triclinic box; write one with xlo xhi and xy xz yz");
    return MLFF_OK;
}

// The element of a mass: within 0.05 amu, as files round it.
static int element_of_mass(double mass)
{
    int nearest = 0;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++)
        if (fabs(mlff_element_mass(z) - mass) < fabs(mlff_element_mass(nearest) - mass)) nearest = z;
    return fabs(mlff_element_mass(nearest) - mass) < 0.05 ? nearest : 0;
}

static mlff_status read_mass(mlff_reader *reader, lammps_data *file, const char *line)
{
    double values[WORDS];
    const char *rest;
    char symbol[4] = "";
    if (numbers_of(line, values, &rest) != 2)
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected a type and its mass, found '%.60s'", line);
    if (!(values[0] >= 1 && values[0] <= MAX_TYPES) || values[0] != floor(values[0]))
        return reader_fail(reader, MLFF_ERR_LIMIT, "atom type %g; at least 1 and at most %d", values[0], MAX_TYPES);
    int element = 0;
    if (*rest == '#' && sscanf(rest + 1, " %3[A-Za-z]", symbol) == 1) element = mlff_element_number(symbol);
    if (!element) element = element_of_mass(values[1]);
    if (!element)
        return reader_fail(reader, MLFF_ERR_ELEMENT, "no element has mass %g; name it behind the mass: %g %g # Si", values[1],
                           values[0], values[1]);
    if (!(values[1] > 0 && isfinite(values[1])))
        return reader_fail(reader, MLFF_ERR_VALUE, "atom type %g has a mass of %g", values[0], values[1]);
    file->elements[(int)values[0]] = element;
    file->masses[(int)values[0]] = values[1];
    return MLFF_OK;
}

// Where type and x stand in a row of `n` numbers: by the style's name behind "Atoms #", else by their number.
static bool find_style(const char *style, int n, int *type_at, int *x_at)
{
    static const struct {
        const char *name;
        int type_at, x_at;
    } styles[] = {{"atomic", 1, 2}, {"charge", 1, 3}, {"bond", 2, 3}, {"angle", 2, 3}, {"molecular", 2, 3}, {"full", 2, 4}};
    for (size_t k = 0; k < sizeof styles / sizeof *styles; k++) {
        const int least = styles[k].x_at + 3;
        const bool fits = n == least || n == least + 3;                                    // with or without image flags
        const bool unnamed = !style[0] && (k == 0 || strcmp(styles[k].name, "full") == 0); // the others have equal numbers
        if (!fits || (!unnamed && strcmp(style, styles[k].name) != 0)) continue;
        *type_at = styles[k].type_at;
        *x_at = styles[k].x_at;
        return true;
    }
    return false;
}

static mlff_status read_atom(mlff_reader *reader, lammps_data *file, const char *style, const char *line)
{
    double values[WORDS];
    const char *rest;
    int type_at = 0, x_at = 0;
    const int n = numbers_of(line, values, &rest);
    if (!find_style(style, n, &type_at, &x_at))
        return reader_fail(reader, MLFF_ERR_FORMAT,
                           "%d column%s not read as atom_style %s; name atomic, charge, bond, angle, molecular or full behind "
                           "the section's name: Atoms # charge",
                           n, n == 1 ? " is" : "s are", style[0] ? style : "(none given)");
    const double id = values[0], type = values[type_at];
    if (!(id >= 1 && id <= 9e15) || id != floor(id)) return reader_fail(reader, MLFF_ERR_VALUE, "an atom's number is %g", id);
    if (!(type >= 1 && type <= MAX_TYPES) || type != floor(type))
        return reader_fail(reader, MLFF_ERR_VALUE, "atom type %g; at least 1 and at most %d", type, MAX_TYPES);
    site added = {.id = (int64_t)id, .species = (int)type};
    memcpy(added.position, values + x_at, sizeof added.position);
    return sites_add(reader, &file->list, &added);
}

static mlff_status read_velocity(mlff_reader *reader, lammps_data *file, const char *line)
{
    double values[WORDS];
    const char *rest;
    if (numbers_of(line, values, &rest) != 4 || !(values[0] >= 1 && values[0] <= 9e15))
        return reader_fail(reader, MLFF_ERR_FORMAT, "expected an atom's number and three velocities, found '%.60s'", line);
    site added = {.id = (int64_t)values[0]};
    for (int k = 0; k < 3; k++) {
        added.position[k] = values[1 + k];
        if (!isfinite(added.position[k])) return reader_fail(reader, MLFF_ERR_VALUE, "a velocity that is not finite");
    }
    return sites_add(reader, &file->velocities, &added);
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const site *)a)->id, y = ((const site *)b)->id;
    return (x > y) - (x < y);
}

// In the order of their numbers; fails for one that is there twice.
static mlff_status sort_sites(const mlff_reader *reader, site_list *list)
{
    if (list->n > 0) qsort(list->sites, list->n, sizeof *list->sites, by_id);
    for (size_t i = 1; i < list->n; i++)
        if (list->sites[i].id == list->sites[i - 1].id)
            return reader_fail(reader, MLFF_ERR_VALUE, "atom %lld is there twice", (long long)list->sites[i].id);
    return MLFF_OK;
}

static mlff_status read_sections(mlff_reader *reader, lammps_data *file)
{
    mlff_status status = MLFF_OK;
    char *line, section[NAME_BYTES] = "", style[NAME_BYTES] = "";

    MLFF_TRY(reader_line(reader, &line));
    if (line) MLFF_TRY(read_units(reader, file, line));
    while (line) {
        bool begins = false;
        MLFF_TRY(reader_line(reader, &line));
        if (!line) break;
        const char *text = atoms_skip_blanks(line);
        if (!*text || *text == '#') continue;
        const bool named = (*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z');
        if (!section[0]) {
            MLFF_TRY(read_header(reader, file, text, &begins));
        } else {
            begins = named;
        }
        if (begins) {
            if (sscanf(text, "%31[^ \t#]", section) != 1) section[0] = '?';
            if (strcmp(section, "Atoms") == 0 && sscanf(text, "Atoms # %31s", style) != 1) style[0] = 0;
        } else if (strcmp(section, "Masses") == 0) {
            MLFF_TRY(read_mass(reader, file, text));
        } else if (strcmp(section, "Atoms") == 0) {
            MLFF_TRY(read_atom(reader, file, style, text));
        } else if (strcmp(section, "Velocities") == 0) {
            MLFF_TRY(read_velocity(reader, file, text));
        }
    }
done:
    return status;
}

static mlff_status find_elements(const mlff_reader *reader, lammps_data *file)
{
    for (size_t i = 0; i < file->list.n; i++) {
        site *at = &file->list.sites[i];
        const int type = at->species;
        if (!file->elements[type])
            return reader_fail(reader, MLFF_ERR_ELEMENT, "atom type %d has no mass; add a section Masses", type);
        at->species = file->elements[type];
        at->mass = file->masses[type];
    }
    return MLFF_OK;
}

static mlff_status add_velocities(mlff_reader *reader, lammps_data *file, mlff_system *system)
{
    if (file->velocities.n == 0) return MLFF_OK;
    if (file->units == UNITS_UNKNOWN) {
        reader_warn(reader, "velocities are not read: the first line does not say 'units = metal' or 'units = real'");
        return MLFF_OK;
    }
    mlff_status status = sort_sites(reader, &file->velocities);
    if (status == MLFF_OK) status = mlff_system_add_velocities(system);
    if (status != MLFF_OK) return status;
    const double scale = file->units == UNITS_METAL ? 1e-3 : 1; // Å/ps or Å/fs
    if (file->velocities.n != file->list.n)
        return reader_fail(reader, MLFF_ERR_FORMAT, "velocities of %zu of %zu atom%s", file->velocities.n, file->list.n,
                           base_plural((int64_t)file->list.n));
    for (size_t i = 0; i < file->list.n; i++) {
        if (file->velocities.sites[i].id != file->list.sites[i].id)
            return reader_fail(reader, MLFF_ERR_FORMAT, "atom %lld has no velocity", (long long)file->list.sites[i].id);
        for (size_t k = 0; k < 3; k++) system->velocities[3 * i + k] = scale * file->velocities.sites[i].position[k];
    }
    return MLFF_OK;
}

mlff_status lammps_data_read_frame(mlff_reader *reader, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;
    lammps_data file = {.n_atoms = -1};

    if (reader->n_frames > 0) return MLFF_OK;
    MLFF_TRY(read_sections(reader, &file));
    if (file.list.n == 0 || (int64_t)file.list.n != file.n_atoms)
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: %zu atom%s in the section Atoms, %lld in the header", reader->name, file.list.n,
                  base_plural((int64_t)file.list.n), (long long)file.n_atoms);
    if (!file.has_bounds[0] || !file.has_bounds[1] || !file.has_bounds[2])
        MLFF_FAIL(MLFF_ERR_FORMAT, "%s: no box; expected lines with xlo xhi, ylo yhi and zlo zhi", reader->name);
    MLFF_TRY(sort_sites(reader, &file.list));
    MLFF_TRY(find_elements(reader, &file));
    const double cell[9] = {
        file.high[0] - file.low[0], 0, 0, file.tilt[0], file.high[1] - file.low[1], 0, file.tilt[1], file.tilt[2],
        file.high[2] - file.low[2]};
    MLFF_TRY(sites_make_system(reader, &file.list, cell, &system));
    MLFF_TRY(add_velocities(reader, &file, system));
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    sites_free(&file.list);
    sites_free(&file.velocities);
    return status;
}
