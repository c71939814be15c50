/* SPDX-License-Identifier: MIT */
/* formats.h: the table of file formats: names, suffixes, and who reads and writes each. */
#ifndef FORMATS_H
#define FORMATS_H

#include "writer.h"

typedef mlff_status (*frame_reader)(mlff_reader *reader, mlff_system **system_out);

typedef struct file_format {
    mlff_file_format info;
    const char *const *begins;           /* of the names of files without a suffix, NULL at the end; or NULL */
    bool (*recognize)(const char *line); /* by the first line, 256 bytes filled with zeros; or NULL */
    frame_reader read_frame;
    bool takes_topology;         /* its frames may have no elements */
    const writer_format *writer; /* or NULL */
} file_format;

/* The format of --format; NULL for an unknown name. */
const file_format *format_named(const char *name);
/* The format whose first line this is; NULL for none. */
const file_format *format_of_line(const char *line);
/* The format to write a file in: `name`, or where it is NULL what the path says; streams are extended XYZ. Fails with MLFF_ERR_USAGE
 * for a name or suffix that says no format that is written. */
mlff_status format_to_write(const char *path, const char *name, const file_format **format_out);
/* The format to read a file in, NULL where only its text can tell. Fails with MLFF_ERR_USAGE for an unknown name. */
mlff_status format_to_read(const char *path, const char *name, const file_format **format_out);

#endif
