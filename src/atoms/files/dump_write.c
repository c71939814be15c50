// SPDX-License-Identifier: MIT
// dump_write.c: frames as LAMMPS's `dump custom` writes them, in units metal: Å, Å/ps, eV/Å; types by ascending atomic number.
// Masses have a column where one is not that of its element. The box is a right-handed cell with a along x and b in the xy plane, and
// everything is turned with it.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "writer.h"

enum { MAX_HEADER_BYTES = 1024, MAX_ROW_BYTES = 64 + 10 * (ATOMS_NUMBER_BYTES + 1), MAX_ELEMENT = 118 };
static const double fs_per_ps = 1000;

// Bounds as LAMMPS has them: of the box that holds the tilted one, with the tilt behind.
static bool add_box(mlff_writer *writer, const mlff_system *system, const standard_box *box)
{
    const double xy = box->cell[3], xz = box->cell[6], yz = box->cell[7];
    const double low[3] = {fmin(fmin(0, xy), fmin(xz, xy + xz)), fmin(0, yz), 0};
    const double high[3] = {fmax(fmax(0, xy), fmax(xz, xy + xz)), fmax(0, yz), 0};
    const bool tilted = xy != 0 || xz != 0 || yz != 0;
    const double tilt[3] = {xy, xz, yz};
    writer_add_text(writer, tilted ? "ITEM: BOX BOUNDS xy xz yz" : "ITEM: BOX BOUNDS");
    for (int axis = 0; axis < 3; axis++) writer_add_text(writer, system->periodic[axis] ? " pp" : " ff");
    writer_add_text(writer, "\n");
    bool finite = true;
    for (int axis = 0; axis < 3; axis++) {
        const double row[3] = {box->origin[axis] + low[axis], box->origin[axis] + box->cell[4 * axis] + high[axis], tilt[axis]};
        finite = writer_add_numbers(writer, row, tilted ? 3 : 2) && finite;
        writer_add_text(writer, "\n");
    }
    return finite;
}

static bool add_vector(mlff_writer *writer, const standard_box *box, const double *v, double unit)
{
    double turned[3];
    writer_turn(box, v, turned);
    for (int c = 0; c < 3; c++) turned[c] *= unit;
    writer_add_text(writer, " ");
    return writer_add_numbers(writer, turned, 3);
}

static bool has_other_masses(const mlff_system *system)
{
    for (int i = 0; system->masses && i < system->n_atoms; i++)
        if (system->masses[i] != mlff_element_mass(system->species[i])) return true;
    return false;
}

static mlff_status add_atoms(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results,
                             const standard_box *box)
{
    mlff_status status = MLFF_OK;
    int type[MAX_ELEMENT + 1] = {0}, n_types = 0;
    const bool masses = has_other_masses(system);
    for (int i = 0; i < system->n_atoms; i++)
        if (mlff_element_symbol(system->species[i])) type[system->species[i]] = 1;
    for (int z = 1; z <= MAX_ELEMENT; z++) type[z] = type[z] ? ++n_types : 0;
    for (int i = 0; i < system->n_atoms; i++) {
        char text[64];
        const char *symbol = mlff_element_symbol(system->species[i]);
        const size_t at = 3 * (size_t)i;
        MLFF_TRY(writer_reserve(writer, MAX_ROW_BYTES));
        if (!symbol) MLFF_FAIL(MLFF_ERR_ELEMENT, "%s: atom %d to be written has atomic number %d", path, i, system->species[i]);
        snprintf(text, sizeof text, "%d %d %s", i + 1, type[system->species[i]], symbol);
        writer_add_text(writer, text);
        bool finite = add_vector(writer, box, system->positions + at, 1);
        if (system->velocities) finite = finite && add_vector(writer, box, system->velocities + at, fs_per_ps);
        if (results->forces) finite = finite && add_vector(writer, box, results->forces + at, 1);
        if (masses) {
            writer_add_text(writer, " ");
            finite = finite && writer_add_numbers(writer, system->masses + i, 1);
        }
        writer_add_text(writer, "\n");
        if (!finite)
            MLFF_FAIL(MLFF_ERR_VALUE, "%s: position, velocity, force or mass of atom %d to be written is not finite", path, i);
    }
done:
    return status;
}

static mlff_status make_frame(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results)
{
    mlff_status status = MLFF_OK;
    standard_box box;
    char text[128];
    if (!writer_standard_box(system, &box))
        MLFF_FAIL(MLFF_ERR_UNSUPPORTED, "%s: the cell is left-handed or flat, which a LAMMPS dump cannot hold; write .extxyz",
                  path);
    MLFF_TRY(writer_reserve(writer, MAX_HEADER_BYTES));
    snprintf(text, sizeof text, "ITEM: TIMESTEP\n%" PRId64 "\nITEM: NUMBER OF ATOMS\n%d\n",
             results->step >= 0 ? results->step : writer->n_frames, system->n_atoms);
    writer_add_text(writer, text);
    if (!add_box(writer, system, &box)) MLFF_FAIL(MLFF_ERR_VALUE, "%s: the cell to be written is not finite", path);
    writer_add_text(writer, "ITEM: ATOMS id type element x y z");
    if (system->velocities) writer_add_text(writer, " vx vy vz");
    if (results->forces) writer_add_text(writer, " fx fy fz");
    if (has_other_masses(system)) writer_add_text(writer, " mass");
    writer_add_text(writer, "\n");
    status = add_atoms(writer, path, system, results, &box);
done:
    return status;
}

static bool scan_number(frame_scan *scan, int64_t *value_out)
{
    scan->line[strcspn(scan->line, " \n")] = 0;
    return base_parse_int64(scan->line, value_out);
}

static enum scanned scan_frame(frame_scan *scan, int n_atoms, int64_t *step_out)
{
    int64_t count;
    if (!scan_line(scan)) return CUT_OFF;
    if (strcmp(scan->line, "ITEM: TIMESTEP\n") != 0) return NOT_OURS;
    if (!scan_line(scan)) return CUT_OFF;
    if (!scan_number(scan, step_out)) return NOT_OURS;
    if (!scan_line(scan)) return CUT_OFF;
    if (strcmp(scan->line, "ITEM: NUMBER OF ATOMS\n") != 0) return NOT_OURS;
    if (!scan_line(scan)) return CUT_OFF;
    if (!scan_number(scan, &count) || count != n_atoms) return NOT_OURS;
    for (int i = 0; i < 5 + n_atoms; i++) // title and three lines of the box, title of the atoms
        if (!scan_line(scan)) return CUT_OFF;
    return SCANNED;
}

const writer_format dump_format = {.name = "LAMMPS dump", .make_frame = make_frame, .scan_frame = scan_frame};
