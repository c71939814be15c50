// SPDX-License-Identifier: MIT
// frames_read.c: a file of extended XYZ is cut into parts of whole frames, which threads read; others are read frame by frame.
// The end of a frame follows from its first line, the number of atoms; the reader of the part checks the rest.
#include "frames_read.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/team.h"
#include "mapped_file.h"

enum { PART_BYTES = 1 << 18, PARTS_A_THREAD = 4, WARNING_BYTES = 256 };

// Some frames of the file.
typedef struct part {
    const char *bytes;
    size_t n_bytes;
    int64_t line_number, n_frames; // before it
    mlff_system **systems;         // [n]
    size_t n, capacity;
    mlff_status status;
    char cause[900], warning[WARNING_BYTES];
    atoms_energy_lines energies;
} part;

typedef struct cutting {
    const char *path, *bytes;
    size_t n_bytes, at;
    int64_t line_number, n_frames;
    part *parts; // [n_parts]
    int n_parts, n_most;
    bool warned;
    atoms_energy_lines energies; // of the parts visited
} cutting;

// The line that begins at `at`; goes behind its end.
static const char *next_line(cutting *c, size_t *length_out)
{
    const char *line = c->bytes + c->at, *end = memchr(line, '\n', c->n_bytes - c->at);
    *length_out = end ? (size_t)(end - line) : c->n_bytes - c->at;
    c->at += *length_out + (end != NULL);
    c->line_number++;
    return line;
}

// Goes behind one frame, or to the end of the file where there is none as it should be.
static void pass_frame(cutting *c)
{
    size_t length = 0;
    const char *line = NULL;
    char text[64];
    int64_t n_atoms;
    while (c->at < c->n_bytes && length == 0) {
        line = next_line(c, &length);
        while (length > 0 && atoms_is_blank(*line)) line++, length--;
    }
    if (length == 0 || length >= sizeof text) {
        c->at = c->n_bytes;
        return;
    }
    memcpy(text, line, length);
    text[length] = 0;
    const char *cursor = text;
    if (!atoms_parse_integer(&cursor, &n_atoms)) {
        c->at = c->n_bytes;
        return;
    }
    for (int64_t k = 0; k <= n_atoms && c->at < c->n_bytes; k++) next_line(c, &length);
    c->n_frames++;
}

static void cut_parts(cutting *c)
{
    for (c->n_parts = 0; c->n_parts < c->n_most && c->at < c->n_bytes; c->n_parts++) {
        part *p = &c->parts[c->n_parts];
        const size_t begin = c->at;
        *p = (part){.bytes = c->bytes + begin,
                    .line_number = c->line_number,
                    .n_frames = c->n_frames,
                    .systems = p->systems,
                    .capacity = p->capacity};
        while (c->at < c->n_bytes && c->at - begin < PART_BYTES) pass_frame(c);
        p->n_bytes = c->at - begin;
    }
}

static mlff_status read_part(const cutting *c, part *p)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    mlff_system *system = NULL;
    MLFF_TRY(atoms_reader_open_part(c->path, p->bytes, p->n_bytes, p->line_number, p->n_frames, p->warning, &reader));
    for (;;) {
        MLFF_TRY(mlff_reader_next(reader, &system));
        if (!system) break;
        MLFF_TRY(base_grow(&p->systems, &p->capacity, p->n + 1, sizeof *p->systems, "structures"));
        p->systems[p->n++] = system;
        system = NULL;
    }
done:
    if (reader) p->energies = reader->energies;
    mlff_system_destroy(system);
    mlff_reader_destroy(reader);
    return status;
}

static void read_parts(void *context, const team_member *member)
{
    cutting *c = context;
    for (int k = member->thread; k < c->n_parts; k += member->n) {
        part *p = &c->parts[k];
        p->status = read_part(c, p);
        if (p->status != MLFF_OK) snprintf(p->cause, sizeof p->cause, "%s", mlff_last_error());
    }
}

// The frames in their order, then what ended a part. After a failure the rest is released.
static mlff_status visit_parts(cutting *c, frame_visitor visit, void *context)
{
    mlff_status status = MLFF_OK;
    for (int k = 0; k < c->n_parts; k++) {
        part *p = &c->parts[k];
        if (status == MLFF_OK && p->warning[0] && !c->warned) {
            base_warn("%s", p->warning);
            c->warned = true;
        }
        if (status == MLFF_OK) atoms_join_energy_lines(&c->energies, p->energies, c->path);
        for (size_t f = 0; f < p->n; f++) {
            if (status == MLFF_OK) status = visit(context, p->systems[f]);
            mlff_system_destroy(p->systems[f]);
        }
        if (status == MLFF_OK && p->status != MLFF_OK) status = mlff_fail(p->status, "%s", p->cause);
    }
    return status;
}

static mlff_status visit_in_parallel(const char *path, const char *bytes, size_t n_bytes, int n_threads, frame_visitor visit,
                                     void *context, atoms_energy_lines *energies_out)
{
    mlff_status status = MLFF_OK;
    cutting c = {.path = path, .bytes = bytes, .n_bytes = n_bytes, .n_most = PARTS_A_THREAD * n_threads};
    if (!(c.parts = base_alloc((size_t)c.n_most, sizeof *c.parts, "structures"))) return MLFF_ERR_MEMORY;
    while (c.at < c.n_bytes && status == MLFF_OK) {
        cut_parts(&c);
        team_run(n_threads, read_parts, &c);
        status = visit_parts(&c, visit, context);
    }
    *energies_out = c.energies;
    for (int k = 0; k < c.n_most; k++) base_free(c.parts[k].systems);
    base_free(c.parts);
    return status;
}

static mlff_status visit_one_by_one(mlff_reader *reader, frame_visitor visit, void *context)
{
    for (;;) {
        mlff_system *system;
        mlff_status status = mlff_reader_next(reader, &system);
        if (status == MLFF_ERR_USAGE) // there is no topology
            return mlff_fail(
                status,
                "%s: its frames have neither elements nor energies; label them: mlff label TEACHER %s --topology FILE "
                "-o NAME.labels",
                reader->name, reader->name);
        if (status != MLFF_OK || !system) return status;
        status = visit(context, system);
        mlff_system_destroy(system);
        if (status != MLFF_OK) return status;
    }
}

mlff_status frames_visit(const char *path, int n_threads, frame_visitor visit, void *context, atoms_energy_lines *energies_out)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    struct stat file;
    mapped_file map;
    MLFF_TRY(mlff_reader_open(path, NULL, &reader));
    const bool is_file = reader->descriptor != STDIN_FILENO && fstat(reader->descriptor, &file) == 0 && S_ISREG(file.st_mode);
    if (is_file && reader->read_frame == extxyz_read_frame && file.st_size > PART_BYTES) {
        MLFF_TRY(mapped_file_open(path, &map));
        status = visit_in_parallel(path, map.bytes, map.length, team_size(n_threads), visit, context, energies_out);
        mapped_file_close(&map);
    } else {
        status = visit_one_by_one(reader, visit, context);
        *energies_out = reader->energies;
    }
done:
    mlff_reader_destroy(reader);
    return status;
}
