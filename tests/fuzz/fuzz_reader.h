/* SPDX-License-Identifier: MIT */
/* fuzz_reader.h: what the fuzzers of readers and the replay of their corpus do with a text: read it to its end, and hold
 * every frame to what a reader promises. */
#ifndef FUZZ_READER_H
#define FUZZ_READER_H

#include "atoms/atoms.h"
#include "fuzz/fuzz_file.h"

/* Returns the number of frames; `name` tells the format, `topology` (may be NULL) the elements that it does not hold. */
static int64_t fuzz_read_atoms(const char *name, const mlff_system *topology, const void *bytes, size_t n_bytes)
{
    mlff_reader *reader = NULL;
    mlff_status status = atoms_reader_open_bytes(name, bytes, n_bytes, &reader);
    if (status == MLFF_OK && topology) status = mlff_reader_set_topology(reader, topology);
    int64_t n_frames = 0;
    for (; status == MLFF_OK; n_frames++) {
        mlff_system *system = NULL;
        status = mlff_reader_next(reader, &system);
        fuzz_demand(status == MLFF_OK || (!system && mlff_last_error()[0]), "a failure has a text and no frame");
        if (!system) break;
        fuzz_demand(mlff_system_check(system, NULL) == MLFF_OK, "a frame that is read can be computed");
        for (int k = 0; k < 3 * system->n_atoms; k++) {
            char text[ATOMS_NUMBER_BYTES];
            const char *cursor = text;
            double back;
            atoms_format_number(system->positions[k], text);
            fuzz_demand(atoms_parse_number(&cursor, &back) && back == system->positions[k],
                        "a number that is written reads back");
        }
        mlff_system_destroy(system);
    }
    mlff_reader_destroy(reader);
    return n_frames;
}

static inline int64_t fuzz_read(const char *name, const void *bytes, size_t n_bytes)
{
    return fuzz_read_atoms(name, NULL, bytes, n_bytes);
}

#endif
