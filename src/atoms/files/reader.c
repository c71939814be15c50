// SPDX-License-Identifier: MIT
// reader.c: opens a file of atoms, tells its format, and hands out its lines through one buffer.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "formats.h"
#include "structures/sites.h"
#include "trajectories.h"

enum { FIRST_BUFFER_BYTES = 1 << 18, MAX_LEADING_BLANKS = 16 };

// `before`: what stands between the file's name and `place`, a line or a frame.
static mlff_status fail_at(const mlff_reader *reader, mlff_status status, const char *before, int64_t place, const char *format,
                           va_list arguments)
{
    char text[768];
    vsnprintf(text, sizeof text, format, arguments);
    return mlff_fail(status, "%s:%s%lld: %s", reader->name, before, (long long)place, text);
}

mlff_status reader_fail(const mlff_reader *reader, mlff_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status = fail_at(reader, status, "", reader->line_number, format, arguments);
    va_end(arguments);
    return status;
}

void reader_warn(mlff_reader *reader, const char *text)
{
    if (!reader->warned && reader->held_warning)
        snprintf(reader->held_warning, 256, "%s:%lld: %s", reader->name, (long long)reader->line_number, text);
    else if (!reader->warned)
        base_warn("%s:%lld: %s", reader->name, (long long)reader->line_number, text);
    reader->warned = true;
}

void atoms_join_energy_lines(atoms_energy_lines *all, atoms_energy_lines later, const char *name)
{
    const bool told = all->free > 0 && all->alone > 0;
    if (all->free == 0) all->free = later.free;
    if (all->alone == 0) all->alone = later.alone;
    if (name && !told && all->free > 0 && all->alone > 0)
        base_warn("%s:%lld: a frame without free_energy=, which is the label of that in line %lld: energies of two kinds are "
                  "mixed; give free_energy= in all frames or in none",
                  name, (long long)all->alone, (long long)all->free);
}

// A signal with a handler ends the wait on an idle pipe or terminal, so that one Ctrl-C is enough there. poll() is the call
// that no handler restarts; reads and writes of data that are there go on, and no frame is torn.
static mlff_status wait_for_input(const mlff_reader *reader)
{
    struct pollfd input = {.fd = reader->descriptor, .events = POLLIN};
    if (poll(&input, 1, -1) < 0 && errno == EINTR)
        return mlff_fail(MLFF_ERR_INTERRUPTED, "%s: interrupted while waiting for input", reader->name);
    return MLFF_OK; // other errors are those of read()
}

// Moves what is left to the buffer's begin and reads more behind it.
static mlff_status fill(mlff_reader *reader)
{
    size_t left = reader->end - reader->begin;
    memmove(reader->buffer, reader->buffer + reader->begin, left);
    reader->begin = 0;
    reader->end = left;
    if (left == reader->buffer_bytes) { // one line or binary frame fills all of it
        size_t capacity = left;
        char *larger = NULL;
        mlff_status grown = base_grow(&larger, &capacity, 2 * left + 1, 1, "a line");
        if (grown != MLFF_OK) return grown;
        memcpy(larger, reader->buffer, left);
        base_free(reader->buffer);
        reader->buffer = larger;
        reader->buffer_bytes = 2 * left;
    }
    mlff_status status = wait_for_input(reader);
    if (status != MLFF_OK) return status;
    ssize_t got;
    do got = read(reader->descriptor, reader->buffer + left, reader->buffer_bytes - left);
    while (got < 0 && errno == EINTR);
    if (got < 0) return base_fail_reading(reader->name, errno);
    reader->at_end = got == 0;
    reader->end += (size_t)got;
    return MLFF_OK;
}

static mlff_status fail_long_line(mlff_reader *reader, int n_lines_on)
{
    reader->line_number += n_lines_on;
    return reader_fail(reader, MLFF_ERR_LIMIT, "a line of more than %zu MB; is this a text file?", ATOMS_MAX_LINE_BYTES >> 20);
}

mlff_status reader_line(mlff_reader *reader, char **line_out)
{
    mlff_status status = MLFF_OK;
    size_t searched = 0;
    char *newline = NULL;

    for (;;) {
        char *line = reader->buffer + reader->begin;
        size_t bytes = reader->end - reader->begin;
        newline = memchr(line + searched, '\n', bytes - searched);
        if (newline || reader->at_end) break;
        if (bytes >= ATOMS_MAX_LINE_BYTES) return fail_long_line(reader, 1);
        searched = bytes;
        MLFF_TRY(fill(reader));
    }
    char *line = reader->buffer + reader->begin, *end = newline ? newline : reader->buffer + reader->end;
    if (!newline && end == line) {
        *line_out = NULL;
        return MLFF_OK;
    }
    reader->begin = (size_t)(end - reader->buffer) + (newline != NULL);
    reader->line_number++;
    if (end > line && end[-1] == '\r') end--;
    *end = 0;
    if ((size_t)(end - line) > ATOMS_MAX_LINE_BYTES) return fail_long_line(reader, 0);
    if (memchr(line, 0, (size_t)(end - line)))
        return reader_fail(reader, MLFF_ERR_FORMAT, "a zero byte in the text; %s", // of UTF-16's and UTF-32's mark at the start
                           reader->line_number == 1 && (strncmp(line, "\xff\xfe", 2) == 0 || strncmp(line, "\xfe\xff", 2) == 0)
                               ? "it is UTF-16, save it as UTF-8"
                               : "is this a text file?");
    const bool has_mark = reader->line_number == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0; // UTF-8's, of editors on Windows
    *line_out = has_mark ? line + 3 : line;
done:
    return status;
}

// ---- binary files

mlff_status reader_fail_frame(const mlff_reader *reader, mlff_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status = fail_at(reader, status, " frame ", reader->n_frames, format, arguments);
    va_end(arguments);
    return status;
}

mlff_status reader_peek(mlff_reader *reader, size_t n, const unsigned char **bytes_out, size_t *got_out)
{
    while (reader->end - reader->begin < n && !reader->at_end) {
        const mlff_status status = fill(reader);
        if (status != MLFF_OK) return status;
    }
    const size_t there = reader->end - reader->begin;
    *bytes_out = (const unsigned char *)reader->buffer + reader->begin;
    *got_out = there < n ? there : n;
    return MLFF_OK;
}

void reader_advance(mlff_reader *reader, size_t n)
{
    reader->begin += n;
}

mlff_status reader_peek_frame(mlff_reader *reader, size_t n, int64_t n_frames, const unsigned char **frame_out)
{
    size_t got;
    const mlff_status status = reader_peek(reader, n, frame_out, &got);
    if (status != MLFF_OK || got == n) return status;
    *frame_out = NULL;
    if (got > 0) return mlff_fail(MLFF_ERR_FORMAT, "%s: the file ends in frame %lld", reader->name, (long long)reader->n_frames);
    if (reader->n_frames >= n_frames) return MLFF_OK;
    return mlff_fail(MLFF_ERR_FORMAT, "%s: the file ends after frame %lld of %lld", reader->name, (long long)reader->n_frames,
                     (long long)n_frames);
}

mlff_status reader_frame_cell(const mlff_reader *reader, const double lengths[3], const double angles[3], double cell[9],
                              bool *has_cell_out)
{
    *has_cell_out = lengths[0] != 0 || lengths[1] != 0 || lengths[2] != 0;
    if (!*has_cell_out || cell_from_lengths(lengths, angles, cell)) return MLFF_OK;
    return reader_fail_frame(reader, MLFF_ERR_VALUE, "no cell has lengths %g %g %g Å and angles %g %g %g°", lengths[0],
                             lengths[1], lengths[2], angles[0], angles[1], angles[2]);
}

mlff_status reader_check_frame(const mlff_reader *reader, const mlff_system *system)
{
    const mlff_status status = mlff_system_check(system, NULL);
    return status == MLFF_OK ? MLFF_OK : reader_fail_frame(reader, status, "%s", mlff_last_error());
}

mlff_status reader_skip(mlff_reader *reader, uint64_t n, bool *whole_out)
{
    while (n > 0) {
        const unsigned char *bytes;
        size_t got;
        const mlff_status status = reader_peek(reader, n < 4096 ? (size_t)n : 4096, &bytes, &got);
        if (status != MLFF_OK) return status;
        if (got == 0) break;
        reader_advance(reader, got);
        n -= got;
    }
    *whole_out = n == 0;
    return MLFF_OK;
}

// ---- which format

// Copies line `index` of what is in the buffer, cut to the size of `line`; false where there is none.
static bool peek_line(const mlff_reader *reader, int index, char line[256])
{
    const char *text = reader->buffer + reader->begin, *end = reader->buffer + reader->end;
    for (; index > 0; index--) {
        text = memchr(text, '\n', (size_t)(end - text));
        if (!text) return false;
        text++;
    }
    if (text == end) return false;
    size_t length = 0;
    while (length < 255 && text + length < end && text[length] != '\n') length++;
    memcpy(line, text, length);
    memset(line + length, 0, 256 - length);
    return true;
}

// Number of words of a line if all of them are numbers, else 0.
static int count_numbers(const char *line)
{
    int n = 0;
    double value;
    for (line = atoms_skip_blanks(line); *line; line = atoms_skip_blanks(line), n++)
        if (!atoms_parse_number(&line, &value)) return 0;
    return n;
}

static void use_format(mlff_reader *reader, const file_format *format)
{
    reader->read_frame = format->read_frame;
    reader->takes_topology = format->takes_topology;
}

static mlff_status refuse_compressed(const mlff_reader *reader)
{
    static const struct {
        const char *name;
        size_t at;
        const char *mark;
    } known[] = {{"gzip", 0, "\x1f\x8b"},
                 {"bzip2", 4, "1AY&SY"}, // "BZh" alone may begin a title
                 {"xz", 0,
                  "\xfd"
                  "7zXZ"},
                 {"zstd", 0, "\x28\xb5\x2f\xfd"}};
    const size_t there = reader->end - reader->begin;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        const size_t at = known[k].at, length = strlen(known[k].mark);
        if (there >= at + length && memcmp(reader->buffer + reader->begin + at, known[k].mark, length) == 0)
            return mlff_fail(MLFF_ERR_FORMAT, "%s: is compressed by %s; decompress it first", reader->name, known[k].name);
    }
    return MLFF_OK;
}

// A POSCAR has a scale and three lattice vectors in lines 2 to 5; an extended XYZ begins with a count.
static mlff_status detect_format(mlff_reader *reader, const char *format_name)
{
    const file_format *format;
    mlff_status status = refuse_compressed(reader);
    if (status == MLFF_OK) status = format_to_read(reader->name, format_name, &format);
    if (status != MLFF_OK) return status;
    use_format(reader, format ? format : format_named("extxyz"));
    if (format) return MLFF_OK;
    // A pipe may give less than the first lines at once.
    char line[256];
    while (!reader->at_end && !peek_line(reader, 5, line) && reader->end - reader->begin < 4096) {
        status = fill(reader);
        if (status != MLFF_OK) return status;
    }
    bool poscar = peek_line(reader, 1, line) && (count_numbers(line) == 1 || count_numbers(line) == 3);
    for (int k = 2; k <= 4 && poscar; k++) poscar = peek_line(reader, k, line) && count_numbers(line) == 3;
    if (poscar) use_format(reader, format_named("poscar"));
    if (poscar || !peek_line(reader, 0, line)) return MLFF_OK; // an empty file is an error of the first frame
    if ((format = format_of_line(line))) use_format(reader, format);
    if (format) return MLFF_OK;

    for (int k = 0; k < MAX_LEADING_BLANKS && peek_line(reader, k, line); k++) {
        const char *text = atoms_skip_blanks(line);
        int64_t count;
        if (!*text) continue;
        if (atoms_parse_integer(&text, &count) && !*atoms_skip_blanks(text)) return MLFF_OK;
        break;
    }
    if (peek_line(reader, 0, line) && strlen(line) >= 4 && atoms_begins_labels(line))
        return mlff_fail(MLFF_ERR_FORMAT,
                         "%s: is a file of labels, which train, distill, verdict and Python's Dataset read; mlff label … -o "
                         "NAME.extxyz writes frames",
                         reader->name);
    if (peek_line(reader, 0, line) && (strncmp(line, "- of Ulm", 8) == 0 || strncmp(line, "SQLite format 3", 15) == 0))
        return mlff_fail(MLFF_ERR_FORMAT, "%s: is a %s of ASE; convert it: ase convert %s NAME.extxyz%s", reader->name,
                         line[0] == '-' ? "trajectory" : "database", reader->name,
                         line[0] == '-' ? "" : " (Python's Dataset.read reads it, with its groups)");
    return mlff_fail(
        MLFF_ERR_FORMAT,
        "%s: neither extended XYZ (first line: number of atoms) nor POSCAR (lines 2 to 5: scale and cell), PDB (first "
        "line: a record), CIF (first line: data_), LAMMPS data (first line: LAMMPS, or the name ends in .data), a LAMMPS dump "
        "(first "
        "line: ITEM), DCD nor AMBER NetCDF",
        reader->name);
}

// ---- open, next, destroy

static mlff_status open_reader(const char *name, int descriptor, size_t buffer_bytes, mlff_reader **reader_out)
{
    mlff_reader *reader = base_alloc(1, sizeof *reader, "a reader");
    if (!reader) return MLFF_ERR_MEMORY;
    reader->descriptor = descriptor;
    reader->buffer_bytes = buffer_bytes;
    reader->name = base_strdup(name);
    reader->buffer = base_alloc(buffer_bytes + 1, 1, "a line");
    *reader_out = reader; // destroys what is there, also on failure
    return reader->name && reader->buffer ? MLFF_OK : MLFF_ERR_MEMORY;
}

static mlff_status detect_in_c_locale(mlff_reader *reader, const char *format_name)
{
    locale_t callers = uselocale(base_c_locale());
    mlff_status status = detect_format(reader, format_name);
    uselocale(callers);
    return status;
}

// A named pipe is not waited for here but where its text is, in a wait that a signal ends.
static int open_input(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
    return descriptor;
}

mlff_status mlff_reader_open(const char *path, const char *format, mlff_reader **reader_out)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    int descriptor = STDIN_FILENO;

    if (!path || !path[0]) return mlff_fail(MLFF_ERR_USAGE, "no file name was given; \"-\" is standard input");
    bool is_input = strcmp(path, "-") == 0;
    if (!is_input && (descriptor = open_input(path)) < 0) return base_fail_reading(path, errno);
    status = open_reader(is_input ? "standard input" : path, descriptor, FIRST_BUFFER_BYTES, &reader);
    if (!reader && !is_input) close(descriptor);
    if (status != MLFF_OK) goto done;
    MLFF_TRY(fill(reader)); // a folder fails here, not at the first frame
    MLFF_TRY(detect_in_c_locale(reader, format));
    *reader_out = reader;
    reader = NULL;
done:
    mlff_reader_destroy(reader);
    return status;
}

mlff_status atoms_reader_open_bytes(const char *name, const void *bytes, size_t n_bytes, mlff_reader **reader_out)
{
    mlff_status status = MLFF_OK;
    mlff_reader *reader = NULL;
    MLFF_TRY(open_reader(name, -1, n_bytes, &reader));
    if (n_bytes > 0) memcpy(reader->buffer, bytes, n_bytes);
    reader->end = n_bytes;
    reader->at_end = true;
    MLFF_TRY(detect_in_c_locale(reader, NULL));
    *reader_out = reader;
    reader = NULL;
done:
    mlff_reader_destroy(reader);
    return status;
}

mlff_status atoms_reader_open_part(const char *name, const char *bytes, size_t n_bytes, int64_t line_number, int64_t n_frames,
                                   char *held_warning, mlff_reader **reader_out)
{
    mlff_reader *reader = NULL;
    mlff_status status = open_reader(name, -1, n_bytes, &reader);
    if (status != MLFF_OK) {
        mlff_reader_destroy(reader);
        return status;
    }
    memcpy(reader->buffer, bytes, n_bytes);
    reader->end = n_bytes;
    reader->at_end = true;
    reader->line_number = line_number;
    reader->n_frames = n_frames;
    reader->held_warning = held_warning;
    use_format(reader, format_named("extxyz"));
    *reader_out = reader;
    return MLFF_OK;
}

mlff_status mlff_reader_next(mlff_reader *reader, mlff_system **system_out)
{
    if (reader->failed != MLFF_OK)
        return mlff_fail(reader->failed, "%s: not read further after an error in frame %lld", reader->name,
                         (long long)reader->n_frames);
    mlff_system *system = NULL;
    locale_t callers = uselocale(base_c_locale());
    mlff_status status = reader->read_frame(reader, &system);
    uselocale(callers);
    if (status != MLFF_OK) {
        reader->failed = status;
        return status;
    }
    reader->n_frames += system != NULL;
    *system_out = system;
    return MLFF_OK;
}

void mlff_reader_destroy(mlff_reader *reader)
{
    if (!reader) return;
    if (reader->descriptor > STDIN_FILENO) close(reader->descriptor);
    extxyz_rows_free(reader->rows);
    mlff_system_destroy(reader->topology);
    base_free(reader->layout);
    base_free(reader->buffer);
    base_free(reader->name);
    base_free(reader->comment);
    base_free(reader->info);
    base_free(reader);
}
