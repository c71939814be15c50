// SPDX-License-Identifier: MIT
// extxyz_read.c: frames of extended XYZ: a count, a comment line and one row per atom. Momenta are in ASE's unit, sqrt(eV amu);
// velocities (velocities, velo, vel) are Å/fs.
#include <math.h>
#include <string.h>

#include "extxyz.h"

// Of stress= and virial=: less is rounding of decimals.
#define LEAST_DIFFERENCE 1e-5 // eV/Å³
#define LARGEST_ROUNDING 1e-2

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

// The charge of the structure, which ASE writes as its atoms' initial charges.
static double charge_of_rows(const extxyz_rows *rows, int n_atoms)
{
    double sum = 0;
    for (int i = 0; i < n_atoms; i++) sum += rows->rows[i].charge;
    return mlff_charge_of_sum(sum);
}

// virial= is read where stress= is absent, as minus stress times volume; where both are there they must agree but for rounding.
static void take_stress(mlff_reader *reader, const extxyz_header *head, mlff_system *system)
{
    const double volume = mlff_system_volume(system);
    const bool has_virial = !isnan(head->virial[0]) && volume > 0.0;
    double of_virial[6], largest = 0, difference = 0;
    if (!isnan(head->virial[0]) && !(volume > 0.0) && isnan(head->stress[0]))
        reader_warn(reader, "a virial without a cell says nothing about stress; it is not read");
    for (int k = 0; k < 6 && has_virial; k++) {
        of_virial[k] = -head->virial[k] / volume;
        largest = fmax(largest, fmax(fabs(of_virial[k]), fabs(head->stress[k])));
        difference = fmax(difference, fabs(of_virial[k] - head->stress[k]));
    }
    if (!isnan(head->stress[0]))
        memcpy(system->label_stress, head->stress, sizeof system->label_stress);
    else if (has_virial)
        memcpy(system->label_stress, of_virial, sizeof system->label_stress);
    if (!isnan(head->stress[0]) && has_virial && difference > fmax(LEAST_DIFFERENCE, LARGEST_ROUNDING * largest))
        reader_warn(reader,
                    "stress= is read, not virial=, which says another stress (it is minus stress times volume); remove one");
}

static void take_header(mlff_reader *reader, const extxyz_header *head, mlff_system *system)
{
    bool has_cell = false;
    memcpy(system->cell, head->cell, sizeof system->cell);
    for (int k = 0; k < 9; k++) has_cell = has_cell || head->cell[k] != 0.0;
    for (int axis = 0; axis < 3; axis++) system->periodic[axis] = head->has_periodic ? head->periodic[axis] : has_cell;
    system->charge = head->charge;
    system->spin = head->spin;
    system->group = head->group;
    system->time_fs = head->time_fs;
    memcpy(system->config_type, head->config_type, sizeof system->config_type);
    system->label_energy = head->energy;
    take_stress(reader, head, system);
}

static mlff_status make_system(mlff_reader *reader, const extxyz_rows *rows, const extxyz_header *head, int n_atoms,
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
    if (isnan(system->charge)) system->charge = charge_of_rows(rows, n_atoms);
    if (reader->info[0]) MLFF_TRY(mlff_system_set_info(system, reader->info));
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
    extxyz_header head;

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
    MLFF_TRY(extxyz_parse_comment(reader, reader->rows, line, &head));
    MLFF_TRY(extxyz_read_rows(reader, reader->rows, (int)n_atoms, count_line));
    MLFF_TRY(make_system(reader, reader->rows, &head, (int)n_atoms, count_line + 1, system_out));
done:
    return status;
}
