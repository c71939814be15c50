/* SPDX-License-Identifier: MIT */
/* base.h: what every room of both towers uses: clean-up on failure, checked allocation, files written whole. */
#ifndef BASE_H
#define BASE_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "mlff_base.h"

/* A function with resources keeps `mlff_status status = MLFF_OK;` and a label `done:`. */
#define MLFF_TRY(call)                                                                                                           \
    do {                                                                                                                         \
        status = (call);                                                                                                         \
        if (status != MLFF_OK) goto done;                                                                                        \
    } while (0)
/* MLFF_FAIL(MLFF_ERR_IO, "%s: …", path): sets the text and goes to done. */
#define MLFF_FAIL(...)                                                                                                           \
    do {                                                                                                                         \
        status = mlff_fail(__VA_ARGS__);                                                                                         \
        goto done;                                                                                                               \
    } while (0)

/* Hands one line to the warning handler, which lives in libmlff for both libraries. printf-style. */
#define base_warn mlff_warn

/* count × size bytes, 64-byte aligned, zeroed; NULL and the error text (what: "pairs") if they do not exist or
 * the product overflows. A count of 0 gives a valid pointer. Freed with base_free. */
void *base_alloc(size_t count, size_t size, const char *what);
/* The same without zeroing: the caller writes all of it, at once, so that the memory that is left is known to the next call. */
void *base_alloc_unset(size_t count, size_t size, const char *what);
/* Grows *pointer to at least `count` elements (never shrinks; geometric), keeping old content; *capacity is updated. */
mlff_status base_grow(void *pointer, size_t *capacity, size_t count, size_t size, const char *what);
void base_free(void *pointer);
/* Bytes now held through base_alloc and base_grow in this process, and number of allocations so far (tests count them). */
int64_t base_allocated_bytes(void);
int64_t base_allocation_count(void);
/* lock.c: takes the lock of a file that grows in place, or of a folder, until the descriptor is closed; waits up to 2 s for another
 * process's end. `what` is written there ("labels"). No effect on file systems without locks. Fails with MLFF_ERR_IO. */
mlff_status base_lock(int descriptor, const char *path, const char *what);
/* The same for the file that has the name `path`, which is created if absent and opened with `flags` (O_RDONLY, O_RDWR); closing the
 * descriptor ends the lock. */
mlff_status base_lock_name(const char *path, int flags, const char *what, int *descriptor_out);
/* cgroup.c: bytes that the memory limits of this process's control groups leave, SIZE_MAX where there are none. `membership` is the file
 * /proc/self/cgroup, `root` the folder /sys/fs/cgroup. */
size_t base_cgroup_available(const char *membership, const char *root);
/* The cores whose time they allow, 1.5 for instance; INFINITY where there is no limit. */
double base_cgroup_cores(const char *membership, const char *root);
char *base_strdup(const char *text);
/* What makes an English noun agree with a count: "" of one, else "s". */
static inline const char *base_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}
/* The unit behind `number`: "run" of 1, where `unit` is "runs". */
const char *base_unit(const char *unit, double number);

/* The "C" locale, for uselocale() around reading and writing of numbers: the caller's may have a decimal comma. */
locale_t base_c_locale(void);
/* snprintf and vsnprintf in the "C" locale, of texts with numbers: they are shown beside others, and go into files. */
int base_format(char *text, size_t bytes, const char *format, ...) MLFF_PRINTF(3, 4);
int base_format_list(char *text, size_t bytes, const char *format, va_list arguments) MLFF_PRINTF(3, 0);

/* A growing text. `text` is always terminated once something was added; NULL before. Errors stick in `status`. Numbers are written as in
 * the "C" locale, whatever the caller's is. */
typedef struct base_text {
    char *text;
    size_t length, capacity;
    mlff_status status;
} base_text;
void base_text_add(base_text *text, const char *format, ...) MLFF_PRINTF(2, 3);
void base_text_add_list(base_text *text, const char *format, va_list arguments) MLFF_PRINTF(2, 0);
/* As few of `least` to `most` digits as read back to the same value, otherwise `most`; null if not finite. */
void base_text_add_number(base_text *text, double value, int least, int most);
/* Words of which each byte that is no UTF-8 becomes U+FFFD. */
void base_text_add_utf8(base_text *text, const char *words);
void base_text_free(base_text *text);
/* Length of the UTF-8 sequence at `text`, or 0 if it is none (overlong forms and surrogates included). */
int base_utf8_length(const char *text);
/* Bytes of the whole characters that `text` begins with, at most `most`: where a text is cut, no part of a character stays. */
int base_whole_length(const char *text, size_t most);
/* Bytes that a terminal could obey, control characters and those that are no UTF-8, become `mark`; with `keep_lines` newlines stay. */
void base_clean(char *text, char mark, bool keep_lines);
/* The first character of `text` as it stands in a JSON string, terminated: escaped if it is a quote, a backslash, a control
 * character (of Unicode, which a terminal could obey) or no UTF-8. Returns its bytes in `text`. */
int base_json_character(const char *text, char escaped[8]);
/* Does a JSON text hold \u0000, which would end a string of C early? A backslash before it that is escaped itself does not count. */
bool base_json_has_zero(const char *text, size_t length);

/* Files that appear whole or not at all: written beside their name, synced, renamed. */
typedef struct base_output {
    FILE *file;
    char *path, *temporary; /* temporary is NULL for "-" (standard output) */
} base_output;
mlff_status base_output_open(const char *path, base_output *output);
/* Flushes and renames; on failure the temporary is removed. */
mlff_status base_output_commit(base_output *output);
void base_output_abandon(base_output *output);
/* Creates an empty file NAME-partial.SUFFIX for NAME.SUFFIX, or NAME-partial-2.SUFFIX and so on: the first that is not there. `partial`, of
 * PATH_MAX bytes, is its name. Fails with MLFF_ERR_IO. */
mlff_status base_partial_name(const char *path, char *partial);
/* The same, of the names that `is_free` accepts. */
mlff_status base_partial_name_where(const char *path, bool (*is_free)(const void *context, const char *name), const void *context,
                                    char *partial);
/* Ends a file that will not be whole: its first `bytes` are kept under another name, which no file has, NAME-partial.SUFFIX for
 * NAME.SUFFIX; `partial`, of PATH_MAX bytes, is that name, "" where there is nothing to keep or on failure. Fails with MLFF_ERR_IO. */
mlff_status base_output_keep(base_output *output, int64_t bytes, char *partial);
/* A text as such a file. Fails with MLFF_ERR_IO, and with what adding to the text failed with. */
mlff_status base_text_write(const base_text *text, const char *path);

/* Whole file into memory (at most `limit` bytes; the text is terminated with a 0 that is not counted). */
mlff_status base_read_file(const char *path, size_t limit, char **text_out, size_t *length_out);

/* As fopen with mode "r" or "w", for bytes. The other end of a FIFO is waited for until a signal with a handler comes, which fopen would
 * not notice. Fails with MLFF_ERR_IO, MLFF_ERR_INTERRUPTED. */
mlff_status base_open(const char *path, const char *mode, FILE **file_out);

/* MLFF_ERR_IO for a file that cannot be opened or read; a folder is told apart. `error` is errno. */
mlff_status base_fail_reading(const char *path, int error);
bool base_is_folder(const char *path);
/* Was the open file removed, so that what is written to it is lost? A file that was renamed is not. */
bool base_is_removed(int descriptor, const char *path);
/* Makes the folder that a file of this name lies in, and those above it, where they are absent. Fails with MLFF_ERR_IO,
 * MLFF_ERR_MEMORY. */
mlff_status base_make_folder_of(const char *path);
/* "-", or something that is there and neither a file nor a folder: a pipe, a terminal, a device. Opened once only. */
bool base_is_stream(const char *path);
/* Where writing to `path` must go: false if it is no symbolic link; else the file that the chain of links ends at, which need not
 * exist (a dangling link). `target` has PATH_MAX bytes. */
bool base_link_target(const char *path, char *target);
/* Do both names lead to the same file? Also where neither is there yet. */
bool base_same_file(const char *a, const char *b);

/* Strict numbers: the whole text must be one number, as in the "C" locale. */
bool base_parse_double(const char *text, double *value_out);
bool base_parse_int64(const char *text, int64_t *value_out);

/* The caller's options, a struct of `size` bytes whose first member is a size_t with the size he knows, over the defaults in
 * `options`; NULL: these stay. A caller of an older header has fewer members. MLFF_ERR_USAGE names the function and the struct. */
mlff_status base_take_options(const char *function, const char *type, const void *given, size_t size, void *options);

/* Sorts numbers, none of which is NaN, in ascending order. */
void base_sort(double *values, size_t n);
/* Slope of y against x, ascending (NULL: 0, 1, 2 …), by least squares, with the half width of its 95 % interval by the jackknife
 * over `blocks` (3 to 10) parts of as many points, so that correlated residuals do not shrink it. n >= 2 blocks. */
void base_slope(const double *x, const double *y, int64_t n, int blocks, double *slope_out, double *half_width_out);
/* The same slope where noise may accumulate, as the errors of a conserved energy do: the interval of the given confidence (0.95) allows for
 * noise with short correlation and a random walk, mixed as the residuals of twenty parts make likely. n >= BASE_DRIFT_LEAST. */
enum { BASE_DRIFT_LEAST = 20 };
void base_drift(const double *x, const double *y, int64_t n, double confidence, double *slope_out, double *half_width_out);

/* Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011, doi:10.1145/2063384.2063405): value i of stream
 * (seed, stream) never depends on what was drawn before. */
double base_random_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1) */
double base_random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Monotonic clock, ns. */
int64_t base_clock_ns(void);

#define BASE_PI 3.14159265358979323846
/* ASE's CODATA 2014 constants. */
#define BASE_KB_EV_PER_K 8.617330337217213e-05
#define BASE_KCAL_PER_MOL_EV 0.04336410390059322
#define BASE_HARTREE_EV 27.211386024367243
#define BASE_BOHR_ANGSTROM 0.5291772105638411
/* amu Å²/fs² in eV */
#define BASE_AMU_ANG2_FS2_EV 103.64269572045424
#define BASE_LIGHT_CM_PER_FS 2.99792458e-5

#endif
