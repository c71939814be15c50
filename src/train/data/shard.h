/* SPDX-License-Identifier: MIT */
/* shard.h: the file format of labels.
 *
 * A file is a sequence of frames, the first of which holds a text in JSON, the others one label each:
 *   marker u32, payload bytes u32, payload, the first 8 bytes of the payload's SHA-256
 * Numbers are little-endian. A payload is shard_head, then species i32[n], positions f64[n][3], and what the flags say of
 * forces f64[n][3], atom energies f64[n], weight f64, masses f64[n], fixed atoms u8[n]; for a structure that failed, the problem as text after the positions.
 * Frames are only ever appended. A process that is killed leaves an incomplete last frame at most, which the next one drops. */
#ifndef SHARD_H
#define SHARD_H

#include "atoms/atoms.h"
#include "base/base.h"
#include "mapped_file.h"
#include "train/sampling/samples.h"

enum { SHARD_MARKER_HEADER = ATOMS_LABELS_MARKER, SHARD_MARKER_LABEL = 0x4c424c4d }; /* "MLBL" */
enum { SHARD_FRAME_BYTES = 16, SHARD_MAX_PAYLOAD = 1 << 30 };

enum shard_flags {
    SHARD_FORCES = 1,
    SHARD_ATOM_ENERGIES = 2,
    SHARD_FAILED = 4,
    SHARD_PLUS = 8,
    SHARD_MINUS = 16,
    SHARD_WEIGHT = 32,
    SHARD_MASSES = 64,
    SHARD_FIXED = 128,
    SHARD_TYPED = 256 /* the origin is the structure's config_type */
};

typedef struct shard_head {
    int32_t n_atoms;
    uint32_t flags;
    uint64_t key; /* of the structure: shard_key */
    int64_t group;
    double cell[9];
    double stress[6]; /* stress[0] NaN: absent */
    double energy, energy_deviation, force_deviation;
    double probe_step;
    double spin;
    unsigned char periodic[8]; /* three of them used */
    char origin[SAMPLE_ORIGIN_BYTES];
} shard_head;
_Static_assert(sizeof(shard_head) == 216, "the head has no padding, so that a file has one form");

/* A label read back. */
typedef struct shard_label {
    shard_head head;
    mlff_system *system;   /* with the label's energy, forces and stress */
    double *atom_energies; /* or NULL */
    double weight;         /* in the loss; 1 where the file has none */
    char problem[200];     /* of a failed one */
} shard_label;

/* First 8 bytes of the SHA-256 of atoms, positions and cell: equal for equal structures only. */
uint64_t shard_key(const mlff_system *system);

/* Is it a file of labels? */
bool shard_is_file(const char *path);

typedef mlff_status (*shard_visitor)(void *context, shard_label *label); /* may take members and set them to NULL */
/* What a file holds, label by label. *good_bytes_out: where the last whole frame ends (less than the file where its end is
 * damaged). `header_out` (or NULL) gets the JSON text, freed with base_free. Fails with MLFF_ERR_IO, MLFF_ERR_FORMAT (not such a
 * file, or damaged before its end), MLFF_ERR_MEMORY, and as the visitor. */
mlff_status shard_visit(const char *path, shard_visitor visitor, void *context, char **header_out, int64_t *good_bytes_out,
                        int64_t *file_bytes_out);
/* The bytes of a frame, appended to *bytes at *length: of a label, of the file's header, and of any. A label with a weight in the loss
 * (NULL: without) is one of a dataset, with the masses and fixed atoms that its structure has. */
mlff_status shard_encode(const sample *s, const mlff_label *label, const double *weight, char **bytes, size_t *length,
                         size_t *capacity);
mlff_status shard_encode_header(const char *teacher, const char *description, const char *hash, char **bytes, size_t *length,
                                size_t *capacity);
mlff_status shard_encode_frame(uint32_t marker, const void *payload, size_t n_payload, char **bytes, size_t *length,
                               size_t *capacity);
/* Bytes of a whole and undamaged frame at `at`; 0 if there is none. */
size_t shard_frame_at(const mapped_file *map, size_t at, uint32_t marker, const char **payload_out, size_t *n_payload_out);

#endif
