/* SPDX-License-Identifier: MIT */
/* extxyz.h: a frame of extended XYZ while it is read: what the comment line says (extxyz_comment.c), the columns and rows of atoms
 * (extxyz_rows.c). */
#ifndef EXTXYZ_H
#define EXTXYZ_H

#include "atoms/atoms.h"

/* Where a quantity begins in a row's values. */
enum { SLOT_POSITION = 0, SLOT_FORCE = 3, SLOT_VELOCITY = 6, SLOT_MOMENTUM = 9, SLOT_MASS = 12, N_SLOTS = 13 };

typedef struct extxyz_row {
    double values[N_SLOTS];
    int species;
    double charge; /* the initial one, e; 0: not told, NaN: not a number */
    int n_held;    /* directions in which the atom may not move */
} extxyz_row;

struct extxyz_rows {
    extxyz_row *rows; /* [n_atoms] */
    size_t row_capacity;
    signed char *columns; /* [n_columns] the slot of each, or what else it is */
    size_t column_capacity;
    int n_columns, n_move_columns;
    bool has[N_SLOTS];        /* by the first slot of a quantity */
    bool may_have_more;       /* rows may be longer than the columns known */
    char properties[80];      /* for messages */
    const char *other_forces; /* a column that is not read, in the comment line; NULL: none */
};

/* What a comment line says. Numbers that are absent are NaN. */
typedef struct extxyz_header {
    double cell[9];
    bool has_lattice, has_periodic, has_properties;
    unsigned char periodic[3];
    double energy, free_energy, charge, spin; /* energy: the label, which is free_energy where there is one */
    int64_t group;
    char config_type[MLFF_CONFIG_TYPE_BYTES];
    double time_fs;
    double stress[6], virial[6];
    const char *unreadable; /* a known key whose value is not what it should be */
    const char *unread;     /* a known key whose value is left out: not finite, or a word where nothing needs it */
    const char *other_energy, *other_stress; /* keys that are not read but end like labels: REF_energy */
} extxyz_header;

/* ---- extxyz_comment.c */

enum { EXTXYZ_MAX_INFO_BYTES = 65536 }; /* of mlff_system's `info` */

/* Reads the comment line, which is changed; its Properties go into `rows`. Fails with MLFF_ERR_FORMAT, MLFF_ERR_LIMIT, MLFF_ERR_MEMORY. */
mlff_status extxyz_parse_comment(mlff_reader *reader, extxyz_rows *rows, char *line, extxyz_header *head);
/* T, F and the other words for true and false. */
bool extxyz_parse_logical(const char *word, bool *value_out);
/* In any case of letters. */
bool extxyz_ends_with(const char *text, const char *end);

/* ---- extxyz_rows.c */

/* The columns of name:type:n repeated, which is changed. Fails as extxyz_parse_comment. */
mlff_status extxyz_parse_properties(const mlff_reader *reader, extxyz_rows *rows, char *text);
/* The rows of a frame whose number of atoms stands in line `count_line`. Fails with MLFF_ERR_FORMAT, MLFF_ERR_VALUE, MLFF_ERR_ELEMENT,
 * MLFF_ERR_MEMORY, and as reader_line. */
mlff_status extxyz_read_rows(mlff_reader *reader, extxyz_rows *rows, int n_atoms, int64_t count_line);

#endif
