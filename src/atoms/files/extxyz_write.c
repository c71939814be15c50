// SPDX-License-Identifier: MIT
// extxyz_write.c: frames of extended XYZ, as ASE and our own reader take them.
//
// Numbers have as many digits as reading them back exactly needs. Velocities are written as momenta in ASE's unit, so
// they come back to within two roundings.
#include <math.h>
#include <string.h>

#include "writer.h"

static void add_key_number(mlff_writer *writer, const char *key, double value)
{
    if (isnan(value)) return;
    writer_add_text(writer, key);
    writer_add_numbers(writer, &value, 1);
}

enum { MAX_COMMENT_BYTES = 2048, MAX_ROW_BYTES = 8 + 11 * (ATOMS_NUMBER_BYTES + 1) };

// config_type="TYPE", without characters that would end it.
static void add_type(mlff_writer *writer, const mlff_system *system)
{
    char text[MLFF_CONFIG_TYPE_BYTES];
    snprintf(text, sizeof text, "%s", system->config_type);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\') *at = '_';
    writer_add_text(writer, " config_type=\"");
    writer_add_text(writer, text);
    writer_add_text(writer, "\"");
}

static mlff_status add_comment(mlff_writer *writer, const char *path, const mlff_system *system,
                               const mlff_frame_results *results)
{
    bool has_cell = false;
    for (int k = 0; k < 9; k++) has_cell = has_cell || system->cell[k] != 0.0;
    if (has_cell) {
        writer_add_text(writer, "Lattice=\"");
        if (!writer_add_numbers(writer, system->cell, 9))
            return mlff_fail(MLFF_ERR_VALUE, "%s: the cell to be written is not finite", path);
        writer_add_text(writer, "\" ");
    }
    writer_add_text(writer, "Properties=species:S:1:pos:R:3");
    if (system->masses) writer_add_text(writer, ":masses:R:1");
    if (system->fixed) writer_add_text(writer, ":move_mask:L:1");
    if (system->velocities) writer_add_text(writer, ":momenta:R:3");
    if (results->forces) writer_add_text(writer, ":forces:R:3");
    if (isinf(results->energy)) return mlff_fail(MLFF_ERR_VALUE, "%s: the energy to be written is not finite", path);
    add_key_number(writer, " energy=", results->energy);
    if (results->stress) {
        const double *s = results->stress, matrix[9] = {s[0], s[5], s[4], s[5], s[1], s[3], s[4], s[3], s[2]};
        writer_add_text(writer, " stress=\"");
        if (!writer_add_numbers(writer, matrix, 9))
            return mlff_fail(MLFF_ERR_VALUE, "%s: the stress to be written is not finite", path);
        writer_add_text(writer, "\"");
    }
    if (isfinite(system->charge)) add_key_number(writer, " charge=", system->charge);
    if (isfinite(system->spin)) add_key_number(writer, " spin=", system->spin);
    char text[64];
    if (results->step >= 0) {
        snprintf(text, sizeof text, " step=%lld", (long long)results->step);
        writer_add_text(writer, text);
    }
    if (system->group >= 0) {
        snprintf(text, sizeof text, " group=%lld", (long long)system->group);
        writer_add_text(writer, text);
    }
    if (isfinite(results->time_fs)) add_key_number(writer, " time_fs=", results->time_fs);
    if (system->config_type[0]) add_type(writer, system);
    if (system->info) {
        if (strpbrk(system->info, "\r\n"))
            return mlff_fail(MLFF_ERR_USAGE, "%s: info to be written has more than one line", path);
        writer_add_text(writer, " ");
        writer_add_text(writer, system->info);
    }
    if (results->comment) {
        if (strpbrk(results->comment, "\r\n"))
            return mlff_fail(MLFF_ERR_USAGE, "%s: a comment to be written has more than one line", path);
        writer_add_text(writer, " ");
        writer_add_text(writer, results->comment);
    }
    snprintf(text, sizeof text, " pbc=\"%c %c %c\"\n", system->periodic[0] ? 'T' : 'F', system->periodic[1] ? 'T' : 'F',
             system->periodic[2] ? 'T' : 'F');
    writer_add_text(writer, text);
    return MLFF_OK;
}

static mlff_status add_row(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results,
                           int i)
{
    const char *symbol = mlff_element_symbol(system->species[i]);
    if (!symbol)
        return mlff_fail(MLFF_ERR_ELEMENT, "%s: atom %d to be written has atomic number %d", path, i, system->species[i]);
    writer_add_text(writer, symbol);
    writer_add_text(writer, symbol[1] ? " " : "  ");
    bool finite = writer_add_numbers(writer, system->positions + 3 * (size_t)i, 3);
    if (system->masses) {
        writer_add_text(writer, " ");
        finite = finite && writer_add_numbers(writer, system->masses + i, 1);
    }
    if (system->fixed) writer_add_text(writer, system->fixed[i] ? " F" : " T");
    if (system->velocities) {
        double momentum[3], mass = atoms_mass(system, i);
        for (int c = 0; c < 3; c++) momentum[c] = system->velocities[3 * (size_t)i + c] * mass / ATOMS_ASE_VELOCITY;
        writer_add_text(writer, " ");
        finite = finite && writer_add_numbers(writer, momentum, 3);
    }
    if (results->forces) {
        writer_add_text(writer, " ");
        finite = finite && writer_add_numbers(writer, results->forces + 3 * (size_t)i, 3);
    }
    writer_add_text(writer, "\n");
    return finite ? MLFF_OK
                  : mlff_fail(MLFF_ERR_VALUE, "%s: position, mass, velocity or force of atom %d to be written is not finite",
                              path, i);
}

static mlff_status make_frame(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results)
{
    mlff_status status = MLFF_OK;
    char count[16];
    writer->length = 0;
    const size_t texts = (results->comment ? strlen(results->comment) : 0) + (system->info ? strlen(system->info) : 0);
    MLFF_TRY(writer_reserve(writer, MAX_COMMENT_BYTES + texts));
    snprintf(count, sizeof count, "%d\n", system->n_atoms);
    writer_add_text(writer, count);
    MLFF_TRY(add_comment(writer, path, system, results));
    for (int i = 0; i < system->n_atoms; i++) {
        if (writer->capacity - writer->length < MAX_ROW_BYTES) MLFF_TRY(writer_reserve(writer, MAX_ROW_BYTES));
        MLFF_TRY(add_row(writer, path, system, results, i));
    }
done:
    return status;
}

static enum scanned scan_frame(frame_scan *scan, int n_atoms, int64_t *step_out)
{
    int64_t count;
    if (!scan_line(scan)) return CUT_OFF;
    scan->line[strcspn(scan->line, " \n")] = 0;
    if (!base_parse_int64(scan->line, &count) || count != n_atoms) return NOT_OURS;
    if (!scan_line(scan)) return CUT_OFF;
    const char *key = strstr(scan->line, " step=");
    if (!key) return NOT_OURS;
    char *text = scan->line + (key - scan->line) + strlen(" step=");
    text[strcspn(text, " \n")] = 0;
    if (!base_parse_int64(text, step_out)) return NOT_OURS;
    for (int i = 0; i < n_atoms; i++)
        if (!scan_line(scan)) return CUT_OFF;
    return SCANNED;
}

const writer_format extxyz_format = {.name = "extended XYZ", .make_frame = make_frame, .scan_frame = scan_frame};
