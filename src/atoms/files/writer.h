/* SPDX-License-Identifier: MIT */
/* writer.h: the trajectory formats that can be written, and what they share. A frame is made in memory and written in one piece. */
#ifndef WRITER_H
#define WRITER_H

#include "atoms/atoms.h"

typedef struct writer_format writer_format;

struct mlff_writer {
    const writer_format *format;
    base_output output; /* a new file; its `file` is NULL when appending */
    FILE *appended;
    char *path;  /* of the appended file */
    char *frame; /* the frame being made */
    size_t length, capacity;
    int64_t n_added, whole_bytes; /* frames that were written by this writer, and their bytes */
    int64_t n_frames; /* made by this writer, or found in the file that is appended to, where the format counts them */
    int n_atoms;      /* of the first frame, where the format has one number for all */
    bool has_cell, has_velocities; /* likewise */
    int64_t first_step;            /* of a DCD's first frame, -1: absent */
    double first_fs, interval_fs;
    int32_t interval_steps;   /* from its first frame to the second, 0: not known */
    bool uneven, uneven_told; /* other frames have another interval; its header says so */
};

/* A line of text of a trajectory that is read again to find where a run goes on. */
typedef struct frame_scan {
    FILE *file;
    const char *path;
    char *line;
    size_t line_bytes;
    int64_t line_number;
    size_t frame_bytes;          /* of a format with frames of one size: 0 until its header was read */
    int64_t next_step, interval; /* of a format with one interval of frames; -1: not known, 0: not known */
} frame_scan;
enum scanned { SCANNED, CUT_OFF, NOT_OURS };
/* One line with its end; false at the end of the file or in a line that is cut off. */
bool scan_line(frame_scan *scan);

struct writer_format {
    const char *name;
    /* Appends the frame's bytes to writer->frame. The "C" locale is in force. */
    mlff_status (*make_frame)(mlff_writer *writer, const char *path, const mlff_system *system,
                              const mlff_frame_results *results);
    /* Reads past the next frame and says its step. */
    enum scanned (*scan_frame)(frame_scan *scan, int n_atoms, int64_t *step_out);
    bool has_one_interval; /* all frames are so many steps apart */
    /* After a frame was written to a file that can be gone back in: what stands at its beginning is brought up to date. May be NULL. */
    mlff_status (*after_frame)(mlff_writer *writer, FILE *file);
    /* A file that is appended to, not empty: checked, and what is to be known of it read. NULL: nothing. */
    mlff_status (*reopen)(mlff_writer *writer, FILE *file);
};
extern const writer_format extxyz_format, dump_format, dcd_format, netcdf_format;

/* Room for so many more bytes of the frame. */
mlff_status writer_reserve(mlff_writer *writer, size_t bytes);
/* What follows needs that room. */
void writer_add(mlff_writer *writer, const void *bytes, size_t n);
void writer_add_text(mlff_writer *writer, const char *text);
/* Separated by blanks; false if one is not finite. */
bool writer_add_numbers(mlff_writer *writer, const double *values, int n);

/* A cell as programs for dynamics want it: a along x, b in the xy plane, c up; rows of `cell`. Axes without a vector get one across the
 * others around the atoms, and `origin` is where the box begins. `turn` takes vectors of the system there: v' = turn v. False for a
 * left-handed cell, which no rotation takes there. */
typedef struct standard_box {
    double cell[9], origin[3], turn[9];
} standard_box;
bool writer_standard_box(const mlff_system *system, standard_box *box);
/* Lengths a, b, c and angles α, β, γ in degrees. */
void writer_box_lengths(const standard_box *box, double length[3], double angle[3]);
void writer_turn(const standard_box *box, const double v[3], double out[3]);

#endif
