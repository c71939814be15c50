// SPDX-License-Identifier: MIT
// extxyz_write.c: frames of extended XYZ, as ASE and our own reader take them.
//
// Numbers have as many digits as reading them back exactly needs. Velocities are written as momenta in ASE's unit, so
// they come back to within two roundings. A frame is made in memory and written in one piece.
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atoms/atoms.h"

struct mlff_writer {
    base_output output; // a new file; its `file` is NULL when appending
    FILE *appended;
    char *path;  // of the appended file
    char *frame; // the frame being made
    size_t length, capacity;
};

mlff_status mlff_writer_open(const char *path, int append, mlff_writer **writer_out)
{
    mlff_status status = MLFF_OK;
    mlff_writer *writer = NULL;

    if (!path || !path[0]) return mlff_fail(MLFF_ERR_USAGE, "no file name was given; \"-\" is standard output");
    if (!(writer = base_alloc(1, sizeof *writer, "a writer"))) return MLFF_ERR_MEMORY;
    if (!append || base_is_stream(path)) {
        MLFF_TRY(base_output_open(path, &writer->output));
    } else {
        if (!(writer->path = base_strdup(path))) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        if (!(writer->appended = fopen(path, "a+"))) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
        // A last line that was not ended must not run into the first of the new frame.
        int last = fseek(writer->appended, -1, SEEK_END) == 0 ? getc(writer->appended) : '\n';
        if (fseek(writer->appended, 0, SEEK_END) == 0 && last != '\n') fputc('\n', writer->appended);
    }
    *writer_out = writer;
    writer = NULL;
done:
    mlff_writer_destroy(writer);
    return status;
}

// ---- the frame as text; room for what is added was made by reserve()

static mlff_status reserve(mlff_writer *writer, size_t bytes)
{
    return base_grow(&writer->frame, &writer->capacity, writer->length + bytes, 1, "a frame");
}

static void add_text(mlff_writer *writer, const char *text)
{
    size_t length = strlen(text);
    memcpy(writer->frame + writer->length, text, length);
    writer->length += length;
}

// False if the number is not finite.
static bool add_numbers(mlff_writer *writer, const double *values, int n)
{
    for (int k = 0; k < n; k++) {
        if (!isfinite(values[k])) return false;
        if (k > 0) writer->frame[writer->length++] = ' ';
        writer->length += (size_t)atoms_format_number(values[k], writer->frame + writer->length);
    }
    return true;
}

static void add_key_number(mlff_writer *writer, const char *key, double value)
{
    if (isnan(value)) return;
    add_text(writer, key);
    add_numbers(writer, &value, 1);
}

enum { MAX_COMMENT_BYTES = 2048, MAX_ROW_BYTES = 8 + 11 * (ATOMS_NUMBER_BYTES + 1) };

static mlff_status add_comment(mlff_writer *writer, const char *path, const mlff_system *system,
                               const mlff_frame_results *results)
{
    bool has_cell = false;
    for (int k = 0; k < 9; k++) has_cell = has_cell || system->cell[k] != 0.0;
    if (has_cell) {
        add_text(writer, "Lattice=\"");
        if (!add_numbers(writer, system->cell, 9))
            return mlff_fail(MLFF_ERR_VALUE, "%s: the cell to be written is not finite", path);
        add_text(writer, "\" ");
    }
    add_text(writer, "Properties=species:S:1:pos:R:3");
    if (system->masses) add_text(writer, ":masses:R:1");
    if (system->fixed) add_text(writer, ":move_mask:L:1");
    if (system->velocities) add_text(writer, ":momenta:R:3");
    if (results->forces) add_text(writer, ":forces:R:3");
    if (isinf(results->energy)) return mlff_fail(MLFF_ERR_VALUE, "%s: the energy to be written is not finite", path);
    add_key_number(writer, " energy=", results->energy);
    if (results->stress) {
        const double *s = results->stress, matrix[9] = {s[0], s[5], s[4], s[5], s[1], s[3], s[4], s[3], s[2]};
        add_text(writer, " stress=\"");
        if (!add_numbers(writer, matrix, 9)) return mlff_fail(MLFF_ERR_VALUE, "%s: the stress to be written is not finite", path);
        add_text(writer, "\"");
    }
    if (isfinite(system->charge)) add_key_number(writer, " charge=", system->charge);
    if (isfinite(system->spin)) add_key_number(writer, " spin=", system->spin);
    char text[64];
    if (results->step >= 0) {
        snprintf(text, sizeof text, " step=%lld", (long long)results->step);
        add_text(writer, text);
    }
    if (system->group >= 0) {
        snprintf(text, sizeof text, " group=%lld", (long long)system->group);
        add_text(writer, text);
    }
    if (isfinite(results->time_fs)) add_key_number(writer, " time_fs=", results->time_fs);
    if (results->comment) {
        add_text(writer, " ");
        add_text(writer, results->comment);
    }
    snprintf(text, sizeof text, " pbc=\"%c %c %c\"\n", system->periodic[0] ? 'T' : 'F', system->periodic[1] ? 'T' : 'F',
             system->periodic[2] ? 'T' : 'F');
    add_text(writer, text);
    return MLFF_OK;
}

static mlff_status add_row(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results,
                           int i)
{
    const char *symbol = mlff_element_symbol(system->species[i]);
    if (!symbol)
        return mlff_fail(MLFF_ERR_ELEMENT, "%s: atom %d to be written has atomic number %d", path, i, system->species[i]);
    add_text(writer, symbol);
    add_text(writer, symbol[1] ? " " : "  ");
    bool finite = add_numbers(writer, system->positions + 3 * (size_t)i, 3);
    if (system->masses) {
        add_text(writer, " ");
        finite = finite && add_numbers(writer, system->masses + i, 1);
    }
    if (system->fixed) add_text(writer, system->fixed[i] ? " F" : " T");
    if (system->velocities) {
        double momentum[3], mass = atoms_mass(system, i);
        for (int c = 0; c < 3; c++) momentum[c] = system->velocities[3 * (size_t)i + c] * mass / ATOMS_ASE_VELOCITY;
        add_text(writer, " ");
        finite = finite && add_numbers(writer, momentum, 3);
    }
    if (results->forces) {
        add_text(writer, " ");
        finite = finite && add_numbers(writer, results->forces + 3 * (size_t)i, 3);
    }
    add_text(writer, "\n");
    return finite ? MLFF_OK
                  : mlff_fail(MLFF_ERR_VALUE, "%s: position, mass, velocity or force of atom %d to be written is not finite",
                              path, i);
}

static mlff_status make_frame(mlff_writer *writer, const char *path, const mlff_system *system, const mlff_frame_results *results)
{
    mlff_status status = MLFF_OK;
    char count[16];
    writer->length = 0;
    MLFF_TRY(reserve(writer, MAX_COMMENT_BYTES));
    snprintf(count, sizeof count, "%d\n", system->n_atoms);
    add_text(writer, count);
    MLFF_TRY(add_comment(writer, path, system, results));
    for (int i = 0; i < system->n_atoms; i++) {
        if (writer->capacity - writer->length < MAX_ROW_BYTES) MLFF_TRY(reserve(writer, MAX_ROW_BYTES));
        MLFF_TRY(add_row(writer, path, system, results, i));
    }
done:
    return status;
}

// Whole or not at all: what was written of a frame before the disk was full is cut off again.
static mlff_status append_frame(mlff_writer *writer)
{
    int descriptor = fileno(writer->appended);
    struct stat before;
    errno = 0;
    bool good = fflush(writer->appended) == 0 && fstat(descriptor, &before) == 0;
    if (good && fwrite(writer->frame, 1, writer->length, writer->appended) == writer->length && fflush(writer->appended) == 0)
        return MLFF_OK;

    int error = errno ? errno : EIO;
    if (good && S_ISREG(before.st_mode) && ftruncate(descriptor, before.st_size) != 0)
        return mlff_fail(MLFF_ERR_IO, "%s: %s; its last frame is not whole", writer->path, strerror(error));
    return mlff_fail(MLFF_ERR_IO, "%s: cannot add a frame: %s; the frames before it are kept", writer->path, strerror(error));
}

mlff_status mlff_writer_write(mlff_writer *writer, const mlff_system *system, const mlff_frame_results *results)
{
    const mlff_frame_results none = {.energy = NAN, .step = -1, .time_fs = NAN};
    const char *path = writer->appended ? writer->path : writer->output.path;

    locale_t callers = uselocale(atoms_c_locale());
    mlff_status status = make_frame(writer, path, system, results ? results : &none);
    uselocale(callers);
    if (status != MLFF_OK) return status;
    if (writer->appended) return append_frame(writer);

    errno = 0;
    bool is_output = !writer->output.temporary; // a pipe's reader wants each frame when it is made
    if (fwrite(writer->frame, 1, writer->length, writer->output.file) != writer->length ||
        (is_output && fflush(writer->output.file) != 0))
        return mlff_fail(MLFF_ERR_IO, "%s: cannot write: %s", strcmp(path, "-") == 0 ? "standard output" : path,
                         strerror(errno ? errno : EIO));
    return MLFF_OK;
}

mlff_status mlff_writer_close(mlff_writer *writer)
{
    mlff_status status = MLFF_OK;
    if (writer->appended) {
        errno = 0;
        if (fclose(writer->appended) != 0) status = mlff_fail(MLFF_ERR_IO, "%s: %s", writer->path, strerror(errno ? errno : EIO));
        writer->appended = NULL;
    } else {
        status = base_output_commit(&writer->output);
    }
    mlff_writer_destroy(writer);
    return status;
}

void mlff_writer_destroy(mlff_writer *writer)
{
    if (!writer) return;
    if (writer->appended) fclose(writer->appended);
    if (writer->output.path) base_output_abandon(&writer->output);
    base_free(writer->path);
    base_free(writer->frame);
    base_free(writer);
}
