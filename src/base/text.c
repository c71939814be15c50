// SPDX-License-Identifier: MIT
// text.c: growing texts, strict numbers, files read whole and written whole.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t base_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
}

const char *base_unit(const char *unit, double number)
{
    return number == 1 && strcmp(unit, "runs") == 0 ? "run" : unit;
}

int base_format_list(char *text, size_t bytes, const char *format, va_list arguments)
{
    const locale_t callers = uselocale(base_c_locale());
    const int length = vsnprintf(text, bytes, format, arguments);
    uselocale(callers);
    return length;
}

int base_format(char *text, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = base_format_list(text, bytes, format, arguments);
    va_end(arguments);
    return length;
}

void base_text_add_list(base_text *text, const char *format, va_list arguments)
{
    if (text->status != MLFF_OK) return;
    locale_t callers = uselocale(base_c_locale());
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0)
        text->status = mlff_fail(MLFF_ERR_USAGE, "a text cannot be formatted");
    else
        text->status = base_grow(&text->text, &text->capacity, text->length + (size_t)length + 1, 1, "a text");
    if (text->status == MLFF_OK) {
        vsnprintf(text->text + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    uselocale(callers);
}

void base_text_add(base_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    base_text_add_list(text, format, arguments);
    va_end(arguments);
}

void base_text_add_number(base_text *text, double value, int least, int most)
{
    char number[40] = "null";
    locale_t callers = uselocale(base_c_locale());
    for (int digits = least; isfinite(value) && digits <= most; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtod(number, NULL) == value) break;
    }
    base_text_add(text, "%s", number);
    uselocale(callers);
}

int base_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) return 1;
    if (at[0] < 0xC2 || at[0] > 0xF4) return 0;
    int length = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F)) return 0;
    if ((at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F)) return 0;
    return length;
}

void base_text_add_utf8(base_text *text, const char *words)
{
    for (int length; *words; words += length > 0 ? length : 1) {
        length = base_utf8_length(words);
        base_text_add(text, "%.*s", length > 0 ? length : 3, length > 0 ? words : "\xEF\xBF\xBD");
    }
}

int base_whole_length(const char *text, size_t most)
{
    const size_t n = strnlen(text, most);
    size_t last = n;
    while (last > 0 && ((unsigned char)text[--last] & 0xC0) == 0x80) continue;
    const int length = n > 0 ? base_utf8_length(text + last) : 0;
    return (int)(length > 0 && last + (size_t)length <= n ? n : last);
}

void base_clean(char *text, char mark, bool keep_lines)
{
    for (char *at = text; *at;) {
        const unsigned char first = (unsigned char)at[0];
        const int length = base_utf8_length(at);
        const bool is_control = first < 0x20 || first == 0x7f || (first == 0xC2 && (unsigned char)at[1] < 0xA0);
        if (length == 0 || (is_control && !(keep_lines && first == '\n'))) {
            for (int k = 0; k < (length > 1 ? length : 1); k++) at[k] = mark;
        }
        at += length > 1 ? length : 1;
    }
}

int base_json_character(const char *text, char escaped[8])
{
    const unsigned char first = (unsigned char)text[0];
    const int length = base_utf8_length(text);
    if (length == 0)
        snprintf(escaped, 8, "\\ufffd");
    else if (first == '"' || first == '\\')
        snprintf(escaped, 8, "\\%c", first);
    else if (first < 0x20 || first == 0x7f)
        snprintf(escaped, 8, "\\u%04x", (unsigned)first);
    else if (first == 0xC2 && (unsigned char)text[1] < 0xA0)
        snprintf(escaped, 8, "\\u%04x", (unsigned)(unsigned char)text[1]);
    else
        snprintf(escaped, 8, "%.*s", length, text);
    return length > 0 ? length : 1;
}

bool base_json_has_zero(const char *text, size_t length)
{
    static const char zero[] = "\\u0000";
    const char *end = text + length;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), zero, 6)); at++) {
        size_t n_before = 0;
        while (at - n_before > text && at[-(ptrdiff_t)n_before - 1] == '\\') n_before++;
        if (n_before % 2 == 0) return true;
    }
    return false;
}

void base_text_free(base_text *text)
{
    base_free(text->text);
    *text = (base_text){0};
}

// Some number that another file does not have already.
static uint64_t clock_number(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec * 31u + (uint64_t)getpid()) * 0x9E3779B97F4A7C15u >> 24;
}

// The name in a path.
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Bytes of the first `length` of `path` that a suffix of n bytes may follow: a file's name has at most NAME_MAX, and ends between
// characters.
static size_t shortened(const char *path, size_t length, size_t n)
{
    const char *name = name_of(path);
    const size_t before = (size_t)(name - path);
    length -= before;
    if (length + n > NAME_MAX)
        for (length = NAME_MAX - n; length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80;) length--;
    return before + length;
}

// A temporary name in the same folder, so that the rename stays within one file system.
mlff_status base_output_open(const char *path, base_output *output)
{
    mlff_status status = MLFF_OK;
    base_output opened = {0};
    int descriptor = -1;

    if (!(opened.path = base_strdup(path))) return MLFF_ERR_MEMORY;
    if (strcmp(path, "-") == 0) {
        opened.file = stdout;
    } else {
        struct stat existing;
        mode_t mode = 0; // of an existing file, to be kept
        if (stat(path, &existing) == 0) {
            if (S_ISDIR(existing.st_mode)) MLFF_FAIL(MLFF_ERR_IO, "%s: is a folder; give a file name", path);
            if (S_ISREG(existing.st_mode)) {
                mode = existing.st_mode & 0777;
                if (access(path, W_OK) != 0) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
            } else { // a pipe or a device such as /dev/full: written directly, there is nothing to rename
                MLFF_TRY(base_open(path, "w", &opened.file));
                *output = opened;
                return MLFF_OK;
            }
        }
        char target[PATH_MAX]; // what a link leads to is replaced, not the link
        if (base_link_target(path, target)) {
            base_free(opened.path);
            if (!(opened.path = base_strdup(target))) return MLFF_ERR_MEMORY;
        }
        enum { SUFFIX = 9 };
        const size_t kept = shortened(opened.path, strlen(opened.path), SUFFIX), bytes = kept + SUFFIX + 1;
        if (!(opened.temporary = base_alloc(bytes, 1, "a file name"))) {
            status = MLFF_ERR_MEMORY;
            goto done;
        }
        for (int try = 0; try < 100 && descriptor < 0; try++) { // not mkstemp: the umask is the system's to apply
            snprintf(opened.temporary, bytes, "%.*s.%08lx", (int)kept, opened.path, (unsigned long)(clock_number() & 0xffffffff));
            descriptor = open(opened.temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (descriptor < 0 && errno != EEXIST) break;
        }
        if (descriptor < 0) {
            base_free(opened.temporary);
            opened.temporary = NULL;
            MLFF_FAIL(MLFF_ERR_IO, "%s: cannot write in its folder: %s", path, strerror(errno));
        }
        if (mode) fchmod(descriptor, mode);
        if (!(opened.file = fdopen(descriptor, "w"))) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
        descriptor = -1;
    }
    *output = opened;
    return MLFF_OK;
done:
    if (descriptor >= 0) close(descriptor);
    if (opened.temporary) unlink(opened.temporary);
    base_free(opened.temporary);
    base_free(opened.path);
    return status;
}

mlff_status base_output_commit(base_output *output)
{
    mlff_status status = MLFF_OK;
    const char *shown = strcmp(output->path, "-") == 0 ? "standard output" : output->path;
    int failed = 0;

    errno = 0;
    if (fflush(output->file) != 0) failed = errno ? errno : EIO;
    if (!failed && ferror(output->file)) { // the cause of a write that failed earlier is gone; another byte meets it again
        bool again = fputc('\n', output->file) == EOF || fflush(output->file) != 0;
        failed = again && errno ? errno : EIO;
    }
    if (output->file != stdout) {
        if (output->temporary && !failed && fsync(fileno(output->file)) != 0 && errno != EINVAL) failed = errno;
        if (fclose(output->file) != 0 && !failed) failed = errno;
    }
    output->file = NULL;
    if (!failed && output->temporary && rename(output->temporary, output->path) != 0) failed = errno;
    if (failed) status = mlff_fail(MLFF_ERR_IO, "%s: cannot be written whole: %s; nothing was kept", shown, strerror(failed));
    if (!failed) {
        base_free(output->temporary);
        output->temporary = NULL;
    }
    base_output_abandon(output);
    return status;
}

mlff_status base_partial_name(const char *path, char *partial)
{
    return base_partial_name_where(path, NULL, NULL, partial);
}

mlff_status base_partial_name_where(const char *path, bool (*is_free)(const void *context, const char *name), const void *context,
                                    char *partial)
{
    enum { MOST = 1000 };
    const char *dot = strrchr(name_of(path), '.'), *end = path + strlen(path);
    if (!dot || dot == name_of(path)) dot = end;
    for (int number = 1; number <= MOST; number++) {
        char mark[24] = "-partial";
        if (number > 1) snprintf(mark, sizeof mark, "-partial-%d", number);
        const size_t kept = shortened(path, (size_t)(dot - path), strlen(mark) + (size_t)(end - dot));
        if (snprintf(partial, PATH_MAX, "%.*s%s%s", (int)kept, path, mark, dot) >= PATH_MAX) break;
        if (is_free && !is_free(context, partial)) continue;
        const int descriptor = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) return close(descriptor) == 0 ? MLFF_OK : mlff_fail(MLFF_ERR_IO, "%s: %s", partial, strerror(errno));
        if (errno != EEXIST) return mlff_fail(MLFF_ERR_IO, "%s: %s", partial, strerror(errno));
    }
    return mlff_fail(MLFF_ERR_IO, "%s: has too many partial files", path);
}

// Cut behind the end of what is written whole: the rest may be in the stream's buffer or in the file.
static int cut_and_sync(const char *path, int64_t bytes)
{
    const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    int error = ftruncate(descriptor, (off_t)bytes) != 0 ? errno : 0;
    if (!error && fsync(descriptor) != 0 && errno != EINVAL) error = errno;
    return close(descriptor) != 0 && !error ? errno : error;
}

mlff_status base_output_keep(base_output *output, int64_t bytes, char *partial)
{
    mlff_status status = MLFF_OK;
    bool claimed = false;
    partial[0] = 0;
    if (!output->temporary || bytes == 0) goto done;
    fclose(output->file);
    output->file = NULL;
    const int error = cut_and_sync(output->temporary, bytes);
    if (error) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", output->path, strerror(error));
    MLFF_TRY(base_partial_name(output->path, partial));
    claimed = true;
    if (rename(output->temporary, partial) != 0) MLFF_FAIL(MLFF_ERR_IO, "%s: %s", partial, strerror(errno));
    base_free(output->temporary);
    output->temporary = NULL;
done:
    if (status != MLFF_OK && claimed) unlink(partial);
    if (status != MLFF_OK) partial[0] = 0;
    base_output_abandon(output);
    return status;
}

void base_output_abandon(base_output *output)
{
    if (output->file && output->file != stdout) fclose(output->file);
    if (output->temporary) unlink(output->temporary);
    base_free(output->temporary);
    base_free(output->path);
    *output = (base_output){0};
}

mlff_status base_read_file(const char *path, size_t limit, char **text_out, size_t *length_out)
{
    mlff_status status = MLFF_OK;
    char *text = NULL;
    size_t capacity = 0, length = 0;
    struct stat there;

    FILE *file;
    if ((status = base_open(path, "r", &file)) != MLFF_OK) return status;
    // A regular file fits at once, with a byte in which its end is seen and one for the 0. A device may have no end.
    const bool known = fstat(fileno(file), &there) == 0, device = known && (S_ISCHR(there.st_mode) || S_ISBLK(there.st_mode));
    const bool sized = known && S_ISREG(there.st_mode) && (size_t)there.st_size <= limit;
    const size_t most_of_device = 1 << 24;
    size_t wanted = sized ? (size_t)there.st_size + 2 : 65536;
    for (;; wanted = length + 65536) {
        if (length + 2 > capacity) MLFF_TRY(base_grow(&text, &capacity, wanted, 1, path));
        size_t got = fread(text + length, 1, capacity - length - 1, file);
        length += got;
        if (device && length > most_of_device)
            MLFF_FAIL(MLFF_ERR_LIMIT, "%s: is a device that has no end within %zu MB; give a file", path, most_of_device >> 20);
        if (length > limit) MLFF_FAIL(MLFF_ERR_LIMIT, "%s: larger than the %zu MB that are read here", path, limit >> 20);
        if (got == 0) break;
    }
    if (ferror(file)) MLFF_TRY(base_fail_reading(path, errno));
    text[length] = 0;
    *text_out = text;
    *length_out = length;
    text = NULL;
done:
    base_free(text);
    fclose(file);
    return status;
}

bool base_parse_double(const char *text, double *value_out)
{
    char *end;
    if (*text == 0 || *text == ' ' || *text == '\t') return false;
    locale_t callers = uselocale(base_c_locale());
    const double value = strtod(text, &end);
    uselocale(callers);
    if (end == text || *end != 0) return false;
    *value_out = value;
    return true;
}

bool base_parse_int64(const char *text, int64_t *value_out)
{
    char *end;
    if (*text == 0 || *text == ' ' || *text == '\t') return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != 0 || errno == ERANGE) return false;
    *value_out = value;
    return true;
}

mlff_status base_text_write(const base_text *text, const char *path)
{
    mlff_status status = text->status;
    base_output output = {0};
    if (status != MLFF_OK) return status;
    MLFF_TRY(base_output_open(path, &output));
    if (text->length) fwrite(text->text, 1, text->length, output.file);
    MLFF_TRY(base_output_commit(&output));
done:
    return status;
}
