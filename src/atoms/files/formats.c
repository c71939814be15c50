// SPDX-License-Identifier: MIT
// formats.c: the table of file formats, and which of them a file has by name.
#include "formats.h"

#include <string.h>
#include <strings.h>

static bool begins_pdb(const char *line)
{
    static const char *const records[] = {"HEADER", "TITLE ", "REMARK", "CRYST1", "MODEL ", "ATOM  ", "HETATM", "COMPND"};
    for (size_t k = 0; k < sizeof records / sizeof *records; k++)
        if (strncmp(line, records[k], 6) == 0) return true;
    return false;
}

static bool begins_lammps_data(const char *line)
{
    return strncmp(line, "LAMMPS", 6) == 0;
}

static bool begins_cif(const char *line)
{
    return strncasecmp(line, "data_", 5) == 0 || strncmp(line, "#\\#CIF", 6) == 0;
}

static bool begins_dump(const char *line)
{
    return strncmp(line, "ITEM: ", 6) == 0;
}

static bool begins_dcd(const char *line)
{
    return memcmp(line + 4, "CORD", 4) == 0 && (memcmp(line, "T\0\0", 4) == 0 || memcmp(line, "\0\0\0T", 4) == 0);
}

static bool begins_netcdf(const char *line)
{
    return strncmp(line, "CDF", 3) == 0 || memcmp(line, "\x89HDF", 4) == 0;
}

static const char *const poscar_names[] = {"POSCAR", "CONTCAR", NULL}, *const lammps_names[] = {"data.", NULL};

enum { N_FORMATS = 8 };
static const file_format formats[N_FORMATS] = {
    {{"extxyz", "extended XYZ", ".extxyz .xyz", 1, 1}, NULL, NULL, extxyz_read_frame, false, &extxyz_format},
    {{"poscar", "POSCAR of VASP", ".poscar .vasp", 1, 0}, poscar_names, NULL, poscar_read_frame, false, NULL},
    {{"pdb", "PDB", ".pdb .ent", 1, 0}, NULL, begins_pdb, pdb_read_frame, false, NULL},
    {{"cif", "CIF", ".cif .mmcif", 1, 0}, NULL, begins_cif, cif_read_frame, false, NULL},
    {{"lammps-data", "LAMMPS data", ".data .lmp", 1, 0}, lammps_names, begins_lammps_data, lammps_data_read_frame, false, NULL},
    {{"lammps-dump", "LAMMPS dump", ".lammpstrj .dump", 1, 1}, NULL, begins_dump, dump_read_frame, true, &dump_format},
    {{"dcd", "DCD", ".dcd", 1, 1}, NULL, begins_dcd, dcd_read_frame, true, &dcd_format},
    {{"netcdf", "AMBER NetCDF", ".nc .ncdf", 1, 1}, NULL, begins_netcdf, netcdf_read_frame, true, &netcdf_format},
};

const mlff_file_format *mlff_file_formats(int *n_out)
{
    static mlff_file_format infos[N_FORMATS];
    for (int k = 0; k < N_FORMATS; k++) infos[k] = formats[k].info; // the same in every call
    if (n_out) *n_out = N_FORMATS;
    return infos;
}

const file_format *format_named(const char *name)
{
    for (int k = 0; k < N_FORMATS; k++)
        if (strcmp(formats[k].info.name, name) == 0) return &formats[k];
    return NULL;
}

// Whether the name ends in one of the suffixes, which blanks part.
static bool has_suffix(const char *name, const char *suffixes)
{
    const size_t length = strlen(name);
    for (const char *suffix = suffixes; *suffix;) {
        const size_t tail = strcspn(suffix, " ");
        if (length >= tail && strncasecmp(name + length - tail, suffix, tail) == 0) return true;
        suffix += tail + strspn(suffix + tail, " ");
    }
    return false;
}

// The format that a file's name says; NULL where it says none.
static const file_format *format_of_path(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    for (int k = 0; k < N_FORMATS; k++) {
        if (has_suffix(name, formats[k].info.suffixes)) return &formats[k];
        for (const char *const *begin = formats[k].begins; begin && *begin; begin++)
            if (strncasecmp(name, *begin, strlen(*begin)) == 0) return &formats[k];
    }
    return NULL;
}

const file_format *format_of_line(const char *line)
{
    for (int k = 0; k < N_FORMATS; k++)
        if (formats[k].recognize && formats[k].recognize(line)) return &formats[k];
    return NULL;
}

// "extxyz (.extxyz .xyz), dcd (.dcd)"
static void list_formats(bool written, char *text, size_t bytes)
{
    size_t length = 0;
    for (int k = 0; k < N_FORMATS && length < bytes; k++) {
        const mlff_file_format *info = &formats[k].info;
        if (written ? !info->writes : !info->reads) continue;
        length += (size_t)snprintf(text + length, bytes - length, "%s%s (%s)", length ? ", " : "", info->name, info->suffixes);
    }
}

static mlff_status fail_unknown(const char *name, bool written)
{
    char known[512];
    list_formats(written, known, sizeof known);
    return mlff_fail(MLFF_ERR_USAGE, "no format '%s' is %s; known: %s", name, written ? "written" : "read", known);
}

mlff_status format_to_write(const char *path, const char *name, const file_format **format_out)
{
    char known[512];
    const file_format *format = name                                           ? format_named(name)
                                : base_is_stream(path) || base_is_folder(path) ? format_named("extxyz")
                                                                               : format_of_path(path);
    if (name && (!format || !format->writer)) return fail_unknown(name, true);
    if (!format || !format->writer) {
        list_formats(true, known, sizeof known);
        return mlff_fail(MLFF_ERR_USAGE,
                         "%s: the name says no format that is written; end it in the suffix of one, or name the "
                         "format: %s",
                         path, known);
    }
    *format_out = format;
    return MLFF_OK;
}

mlff_status format_to_read(const char *path, const char *name, const file_format **format_out)
{
    const file_format *format = name ? format_named(name) : format_of_path(path);
    if (name && !format) return fail_unknown(name, false);
    *format_out = format;
    return MLFF_OK;
}

mlff_status mlff_file_format_check(const char *path, const char *format)
{
    const file_format *found;
    if (!path || !path[0]) return mlff_fail(MLFF_ERR_USAGE, "no file name was given; \"-\" is standard output");
    return format_to_write(path, format, &found);
}
