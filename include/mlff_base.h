/* SPDX-License-Identifier: MIT */
/* mlff_base.h: status codes, the error text, warnings, versions. Included by every other public header.
 *
 * Conventions of the whole library:
 *  - Every function that can fail returns an mlff_status. On failure mlff_last_error() gives one line, of this thread, that
 *    names the cause and the remedy. Objects and numbers that the function would have handed out (`x_out`) are then untouched;
 *    arrays of the caller's that it fills may hold anything. Where a function differs, its comment says so.
 *  - Pointers are not NULL where no comment allows it. Not every function checks its own: some fail with
 *    MLFF_ERR_USAGE, others crash.
 *  - The library never prints and never exits. Warnings go to the handler of mlff_warning_handler_set().
 *  - `x_create` / `x_load` hand out an object, `x_destroy(NULL)` does nothing. A `const T *` that is
 *    returned is borrowed; its comment says until when.
 *  - Units: eV, Å, fs, amu, eV/Å, eV/Å³, K. Stress has ASE's sign, (1/V) dE/dstrain, and ASE's Voigt
 *    order xx yy zz yz xz xy. Arrays are row-major, the last index is the fastest.
 *  - Atoms, systems and frames are counted from 0 everywhere, in arrays and in messages; lines and columns of
 *    files, and the axes of a cell, from 1.
 *  - Option structs begin with `struct_size`; fill them with x_options_default() and then change fields. A pointer to one may be
 *    NULL: the defaults. A program that was built with an earlier header has a smaller struct: the fields that it lacks have their
 *    defaults. A larger one, of a later header, is refused with MLFF_ERR_USAGE. */
#ifndef MLFF_BASE_H
#define MLFF_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(_WIN32)
#define MLFF_API __attribute__((visibility("default")))
#define MLFF_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MLFF_API
#define MLFF_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mlff_status {
    MLFF_OK = 0,
    MLFF_ERR_USAGE = 1,        /* an invalid argument: NULL, a negative count, an unknown name */
    MLFF_ERR_IO = 2,           /* a file cannot be opened, read, written or is full */
    MLFF_ERR_FORMAT = 3,       /* a file is not of its format */
    MLFF_ERR_VALUE = 4,        /* an invalid number: NaN, infinite, a cell without volume */
    MLFF_ERR_ELEMENT = 5,      /* an element that is unknown, or that the model does not know */
    MLFF_ERR_LIMIT = 6,        /* larger than this library or this machine handles */
    MLFF_ERR_MEMORY = 7,       /* out of host or device memory */
    MLFF_ERR_DEVICE = 8,       /* no such device, a driver too old, a device lost */
    MLFF_ERR_UNSUPPORTED = 9,  /* valid, but not available here */
    MLFF_ERR_UNSTABLE = 10,    /* a simulation whose energy or positions are no longer finite */
    MLFF_ERR_INTERRUPTED = 11, /* the caller asked to stop; what was done so far is kept */
    MLFF_ERR_CALLBACK = 12     /* a caller's function failed; its text, if it set one, is the error */
} mlff_status;

/* Name of a status, "MLFF_ERR_IO"; never NULL. */
MLFF_API const char *mlff_status_name(mlff_status status);

/* Text of this thread's last failure, one line without newline; "" if none. Borrowed until the next failure. */
MLFF_API const char *mlff_last_error(void);

/* The same without the remedy, which follows its last semicolon: for a caller that goes another way. Borrowed until the next call. */
MLFF_API const char *mlff_last_cause(void);

/* Sets this thread's error text and returns `status`: how a caller's function (a force callback,
 * a callable to be measured) reports a failure through the library. printf-style. */
MLFF_API mlff_status mlff_fail(mlff_status status, const char *format, ...) MLFF_PRINTF(2, 3);

/* Receives warnings, one line each, from any thread. NULL drops them (the default). */
typedef void (*mlff_warning_handler)(void *context, const char *text);
MLFF_API void mlff_warning_handler_set(mlff_warning_handler handler, void *context);
/* Hands one line to that handler: how a caller's function warns through the library. printf-style. */
MLFF_API void mlff_warn(const char *format, ...) MLFF_PRINTF(1, 2);

/* "0.1.0". */
MLFF_API const char *mlff_version(void);

#ifdef __cplusplus
}
#endif
#endif
