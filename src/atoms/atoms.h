/* SPDX-License-Identifier: MIT */
/* atoms.h: what the files of this room share: numbers as text, readers over lines, masses of a system. */
#ifndef ATOMS_H
#define ATOMS_H

#include <string.h>

#include "base/base.h"
#include "mlff_atoms.h"

/* Å/fs per ASE velocity unit, sqrt(eV/amu). An ASE momentum p of mass m moves at p / m × this. */
#define ATOMS_ASE_VELOCITY 0.09822694788464063

/* More atoms than this in one system are refused by readers and builders. */
#define ATOMS_MAX_ATOMS 100000000

/* The first four bytes, little-endian, of a file of labels (train/data/shard.h, which is above this layer): "MLBH". Readers of other files
 * name such a file. */
enum { ATOMS_LABELS_MARKER = 0x48424c4d };
static inline bool atoms_begins_labels(const char bytes[4])
{
    static const uint32_t marker = ATOMS_LABELS_MARKER;
    return memcmp(bytes, &marker, sizeof marker) == 0;
}

/* ---- system.c */

/* Mass of atom i: its own, or its element's. */
double atoms_mass(const mlff_system *system, int i);
/* The inverse of a 3 × 3 matrix; with rows of a cell, v · inverse are the fractions of v. False where it has none. */
bool atoms_invert(const double m[9], double inverse[9]);
/* Takes the momentum of the whole out of the velocities. */
void atoms_stop_drift(mlff_system *system);
/* Forgets what a file said about the energy, forces and stress of these positions, also by the pairs of its comment line. */
void atoms_drop_labels(mlff_system *system);
/* Of that the pairs alone, as REF_energy=-12.5: of atoms that are going to move. */
void atoms_drop_label_pairs(mlff_system *system);

/* ---- number.c: decimal numbers, both ways exact; the "C" locale must be in force (see base_c_locale) */

/* Parses one number at *cursor and moves past it. Its end must be a blank or the text's end. Overflow gives an
 * infinity, "nan" and "inf" are numbers, "1.5D-3" is; false for anything else, the cursor then untouched. */
bool atoms_parse_number(const char **cursor, double *value_out);
/* A decimal integer of any sign, same rules. */
bool atoms_parse_integer(const char **cursor, int64_t *value_out);
enum { ATOMS_NUMBER_BYTES = 32 };
/* The shortest of 15, 16 or 17 digits that reads back as `value`, which is finite; returns the length. */
int atoms_format_number(double value, char text[ATOMS_NUMBER_BYTES]);

static inline bool atoms_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static inline const char *atoms_skip_blanks(const char *text)
{
    while (atoms_is_blank(*text)) text++;
    return text;
}

/* Number of words in a line, counted up to `limit`. */
int atoms_count_words(const char *line, int limit);

/* ---- reader.c: lines of a file in constant memory */

/* Longer lines are refused. */
#define ATOMS_MAX_LINE_BYTES ((size_t)16 << 20)

typedef struct extxyz_rows extxyz_rows; /* extxyz.h: row storage kept between frames */

/* Lines of the first frame whose label is a free energy unlike its energy, and of the first that has an energy alone; 0: none. */
typedef struct atoms_energy_lines {
    int64_t free, alone;
} atoms_energy_lines;

struct mlff_reader {
    char *name;                                                               /* of the file, for messages */
    int descriptor;                                                           /* -1: all of the text is in the buffer */
    mlff_status (*read_frame)(mlff_reader *reader, mlff_system **system_out); /* of the format */
    bool takes_topology;                                                      /* likewise */
    bool at_end, warned;
    char *held_warning;   /* [256] where the first warning goes instead of to the handler, or NULL */
    char *comment, *info; /* extended XYZ: the comment line, and those of its pairs that are kept as they are; "": none */
    size_t comment_capacity, info_capacity, info_length;
    char other_labels[160]; /* extended XYZ: those of the last frame that are not read, "REF_energy to energy, …"; "": none */
    atoms_energy_lines energies;
    bool has_cell; /* PDB: the cell of the models before */
    double cell[9];
    bool is_real;                    /* LAMMPS dump: of units real, as a frame before said */
    mlff_status failed;              /* of an earlier frame */
    char *buffer;                    /* [buffer_bytes + 1] */
    size_t buffer_bytes, begin, end; /* text not yet handed out is begin .. end */
    int64_t line_number;             /* of the line last handed out */
    int64_t n_frames;
    extxyz_rows *rows;
    mlff_system *topology; /* what the frames' format does not hold, or NULL */
    void *layout;          /* of a binary trajectory's frames, base_free; NULL before its header was read */
};

/* Reads from memory instead of a file; `name` tells the format as a file's would. For tests and fuzzing. */
mlff_status atoms_reader_open_bytes(const char *name, const void *bytes, size_t n_bytes, mlff_reader **reader_out);
/* The same of a part of a file of extended XYZ that begins with the frame whose first line is `line_number` + 1: warnings go to held_warning
 * (256 bytes), except that of atoms_join_energy_lines, which is the caller's. */
mlff_status atoms_reader_open_part(const char *name, const char *bytes, size_t n_bytes, int64_t line_number, int64_t n_frames,
                                   char *held_warning, mlff_reader **reader_out);
/* The next line without its end, terminated, or *line_out = NULL at the file's end. Valid until the next call; may be changed. */
mlff_status reader_line(mlff_reader *reader, char **line_out);
/* "path:line: text". */
mlff_status reader_fail(const mlff_reader *reader, mlff_status status, const char *format, ...) MLFF_PRINTF(3, 4);
/* A warning with the same beginning, once per reader. */
void reader_warn(mlff_reader *reader, const char *text);
/* Adds the lines of later frames of the file `name`; a warning, once, where it has frames of both kinds (name NULL: none). */
void atoms_join_energy_lines(atoms_energy_lines *all, atoms_energy_lines later, const char *name);

/* One frame each; *system_out = NULL where the file ends. */
mlff_status extxyz_read_frame(mlff_reader *reader, mlff_system **system_out);
void extxyz_rows_free(extxyz_rows *rows);
mlff_status poscar_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status cif_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status pdb_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status lammps_data_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status dump_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status dcd_read_frame(mlff_reader *reader, mlff_system **system_out);
mlff_status netcdf_read_frame(mlff_reader *reader, mlff_system **system_out);

/* ---- molecules.c */

typedef struct atoms_molecule {
    const char *name;
    int n_atoms;
    const struct atoms_site {
        int atomic_number;
        double position[3]; /* Å */
    } * sites;              /* [n_atoms] */
} atoms_molecule;
const atoms_molecule *atoms_molecules(int *n_out);

/* ---- liquid.c */

/* n_molecules waters at 0.997 g/cm³ in a cubic box; places and orientations follow `seed`. */
mlff_status liquid_water(int n_molecules, uint64_t seed, mlff_system **system_out);

#endif
