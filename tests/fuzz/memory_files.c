// SPDX-License-Identifier: MIT
// memory_files.c: the system's functions on files, on memory for names in "/memory/" (memory_files.h).
#include "fuzz/memory_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

// Descriptors of memory files are beyond those of the system.
enum { N_FILES = 8, N_OPEN = 16, NAME_BYTES = 64, FIRST_DESCRIPTOR = 1 << 20 };
#define FOLDER "/memory/"

typedef struct memory_file {
    char path[NAME_BYTES]; // empty: no name, and free once it is not open
    unsigned char *bytes;  // of exactly its length, so that a sanitizer sees a read beyond it
    size_t length;
    int n_open, n_mapped;
    unsigned long number; // as an inode's
} memory_file;

typedef struct open_file {
    memory_file *file; // NULL: free
    FILE *stream;      // or NULL
    size_t at;
    bool locked;
} open_file;

static memory_file files[N_FILES];
static open_file opened[N_OPEN];
static unsigned long n_created;
static bool only_memory;

static void demand(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "memory_files: %s\n", what);
    abort();
}

// ---- names

static bool in_memory(const char *path)
{
    return only_memory || strncmp(path, FOLDER, strlen(FOLDER)) == 0;
}

// The name in full; false if it is too long to be there.
static bool full_name(const char *path, char full[NAME_BYTES])
{
    const bool relative = *path != '/';
    if (relative && strncmp(path, "./", 2) == 0) path += 2;
    return snprintf(full, NAME_BYTES, "%s%s", relative ? FOLDER : "", path) < NAME_BYTES;
}

static memory_file *find(const char *path)
{
    char full[NAME_BYTES];
    for (int k = 0; full_name(path, full) && k < N_FILES; k++)
        if (files[k].path[0] && strcmp(files[k].path, full) == 0) return &files[k];
    errno = ENOENT;
    return NULL;
}

static bool is_folder(const char *path)
{
    return strcmp(path, "/") == 0 || strcmp(path, ".") == 0 || strcmp(path, "/memory") == 0 || strcmp(path, FOLDER) == 0;
}

static memory_file *create(const char *path)
{
    memory_file *file = files;
    while (file < files + N_FILES && (file->path[0] || file->n_open || file->n_mapped)) file++;
    demand(file < files + N_FILES, "too many files");
    if (!full_name(path, file->path)) {
        file->path[0] = 0;
        errno = ENAMETOOLONG;
        return NULL;
    }
    file->length = 0;
    file->number = ++n_created;
    return file;
}

// Bytes that are added are 0.
static void resize(memory_file *file, size_t length)
{
    if (length == file->length) return;
    unsigned char *bytes = malloc(length ? length : 1);
    demand(bytes && !file->n_mapped, "a file cannot be resized");
    const size_t kept = length < file->length ? length : file->length;
    if (kept) memcpy(bytes, file->bytes, kept);
    memset(bytes + kept, 0, length - kept);
    free(file->bytes);
    file->bytes = bytes;
    file->length = length;
}

void memory_files_put(const char *path, const void *bytes, size_t length)
{
    memory_file *file = find(path);
    if (!file) file = create(path);
    demand(file, "a name is too long");
    resize(file, length);
    if (length) memcpy(file->bytes, bytes, length);
}

const unsigned char *memory_files_get(const char *path, size_t *length_out)
{
    const memory_file *file = find(path);
    if (!file) return NULL;
    *length_out = file->length;
    return file->length ? file->bytes : (const unsigned char *)"";
}

void memory_files_clear(void)
{
    for (int k = 0; k < N_FILES; k++) {
        demand(files[k].n_open == 0 && files[k].n_mapped == 0, "a file was not closed");
        free(files[k].bytes);
        files[k] = (memory_file){0};
    }
}

void memory_files_only(bool only)
{
    only_memory = only;
}

// ---- what is open

static open_file *of_descriptor(int descriptor)
{
    const int k = descriptor - FIRST_DESCRIPTOR;
    return k >= 0 && k < N_OPEN && opened[k].file ? &opened[k] : NULL;
}

static open_file *of_stream(FILE *stream)
{
    for (int k = 0; stream && k < N_OPEN; k++)
        if (opened[k].file && opened[k].stream == stream) return &opened[k];
    return NULL;
}

static int open_memory(const char *path, int flags)
{
    memory_file *file = find(path);
    int k = 0;
    if (!file && is_folder(path)) return (errno = EISDIR, -1);
    if (!file && !(flags & O_CREAT)) return -1;
    if (file && (flags & O_EXCL)) return (errno = EEXIST, -1);
    if (!file && !(file = create(path))) return -1;
    if (flags & O_TRUNC) resize(file, 0);
    while (k < N_OPEN && opened[k].file) k++;
    demand(k < N_OPEN, "too many open files");
    file->n_open++;
    opened[k] = (open_file){.file = file};
    return FIRST_DESCRIPTOR + k;
}

static int close_memory(void *cookie)
{
    open_file *open = cookie;
    open->file->n_open--;
    *open = (open_file){0};
    return 0;
}

static ssize_t read_memory(void *cookie, char *to, size_t n)
{
    open_file *open = cookie;
    const size_t there = open->at < open->file->length ? open->file->length - open->at : 0;
    if (n > there) n = there;
    if (n) memcpy(to, open->file->bytes + open->at, n);
    open->at += n;
    return (ssize_t)n;
}

static ssize_t write_memory(void *cookie, const char *from, size_t n)
{
    open_file *open = cookie;
    if (open->at + n > open->file->length) resize(open->file, open->at + n);
    if (n) memcpy(open->file->bytes + open->at, from, n);
    open->at += n;
    return (ssize_t)n;
}

static int seek_memory(void *cookie, off64_t *offset, int whence)
{
    open_file *open = cookie;
    int64_t at;
    const int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)open->at : (int64_t)open->file->length;
    if (__builtin_add_overflow(from, *offset, &at) || at < 0) return (errno = EINVAL, -1);
    open->at = (size_t)at;
    *offset = at;
    return 0;
}

static FILE *stream_of(int descriptor, const char *mode)
{
    open_file *open = of_descriptor(descriptor);
    const cookie_io_functions_t calls = {read_memory, write_memory, seek_memory, close_memory};
    return open->stream = fopencookie(open, mode, calls);
}

static int state_of(const memory_file *file, struct stat *state)
{
    *state = (struct stat){.st_ino = file ? file->number : 0,
                           .st_mode = file ? S_IFREG | 0644 : S_IFDIR | 0755,
                           .st_size = file ? (off_t)file->length : 0};
    return 0;
}

// ---- in the place of the system's functions

#define WRAPPED(type, name, ...)                                                                                                 \
    type __real_##name(__VA_ARGS__);                                                                                             \
    type __wrap_##name(__VA_ARGS__);                                                                                             \
    type __wrap_##name(__VA_ARGS__)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return in_memory(path) ? open_memory(path, flags) : __real_open(path, flags, mode);
}

WRAPPED(FILE *, fopen, const char *path, const char *mode)
{
    const int create_flags = *mode == 'w' ? O_CREAT | O_TRUNC : 0;
    // A new file of another name is libFuzzer's, with the input that failed.
    if (!in_memory(path) || (*mode == 'w' && only_memory)) return __real_fopen(path, mode);
    const int descriptor = open_memory(path, create_flags);
    return descriptor < 0 ? NULL : stream_of(descriptor, mode);
}

WRAPPED(FILE *, fdopen, int descriptor, const char *mode)
{
    return of_descriptor(descriptor) ? stream_of(descriptor, mode) : __real_fdopen(descriptor, mode);
}

WRAPPED(int, fileno, FILE *stream)
{
    const open_file *open = of_stream(stream);
    return open ? FIRST_DESCRIPTOR + (int)(open - opened) : __real_fileno(stream);
}

WRAPPED(int, close, int descriptor)
{
    open_file *open = of_descriptor(descriptor);
    return open ? close_memory(open) : __real_close(descriptor);
}

WRAPPED(ssize_t, read, int descriptor, void *to, size_t n)
{
    open_file *open = of_descriptor(descriptor);
    return open ? read_memory(open, to, n) : __real_read(descriptor, to, n);
}

WRAPPED(ssize_t, pwrite, int descriptor, const void *from, size_t n, off_t at)
{
    open_file *open = of_descriptor(descriptor);
    if (!open) return __real_pwrite(descriptor, from, n, at);
    const size_t before = open->at;
    open->at = (size_t)at;
    const ssize_t written = write_memory(open, from, n);
    open->at = before;
    return written;
}

WRAPPED(int, ftruncate, int descriptor, off_t length)
{
    open_file *open = of_descriptor(descriptor);
    if (!open) return __real_ftruncate(descriptor, length);
    resize(open->file, (size_t)length);
    return 0;
}

WRAPPED(void *, mmap, void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    open_file *open = of_descriptor(descriptor);
    if (!open) return __real_mmap(address, length, protection, flags, descriptor, offset);
    demand(offset == 0 && length == open->file->length && !(protection & PROT_WRITE), "a whole file is mapped for reading");
    open->file->n_mapped++;
    return open->file->bytes;
}

WRAPPED(int, munmap, void *address, size_t length)
{
    for (int k = 0; k < N_FILES; k++) {
        if (files[k].n_mapped == 0 || files[k].bytes != address) continue;
        files[k].n_mapped--;
        return 0;
    }
    return __real_munmap(address, length);
}

WRAPPED(int, flock, int descriptor, int operation)
{
    open_file *open = of_descriptor(descriptor);
    if (!open) return __real_flock(descriptor, operation);
    for (int k = 0; k < N_OPEN; k++)
        if (&opened[k] != open && opened[k].file == open->file && opened[k].locked) return (errno = EWOULDBLOCK, -1);
    open->locked = operation & LOCK_EX;
    return 0;
}

WRAPPED(int, fsync, int descriptor)
{
    return of_descriptor(descriptor) ? 0 : __real_fsync(descriptor);
}

WRAPPED(int, fdatasync, int descriptor)
{
    return of_descriptor(descriptor) ? 0 : __real_fdatasync(descriptor);
}

WRAPPED(int, fchmod, int descriptor, mode_t mode)
{
    return of_descriptor(descriptor) ? 0 : __real_fchmod(descriptor, mode);
}

WRAPPED(int, fstat, int descriptor, struct stat *state)
{
    const open_file *open = of_descriptor(descriptor);
    return open ? state_of(open->file, state) : __real_fstat(descriptor, state);
}

WRAPPED(int, stat, const char *path, struct stat *state)
{
    if (!in_memory(path)) return __real_stat(path, state);
    const memory_file *file = find(path);
    return file || is_folder(path) ? state_of(file, state) : -1;
}

WRAPPED(int, lstat, const char *path, struct stat *state)
{
    return in_memory(path) ? __wrap_stat(path, state) : __real_lstat(path, state);
}

WRAPPED(int, access, const char *path, int mode)
{
    if (!in_memory(path)) return __real_access(path, mode);
    return find(path) || is_folder(path) ? 0 : -1;
}

WRAPPED(char *, realpath, const char *path, char *resolved)
{
    char full[NAME_BYTES];
    if (!in_memory(path)) return __real_realpath(path, resolved);
    if (!resolved) return (errno = EINVAL, NULL);
    if (is_folder(path)) return strcpy(resolved, strcmp(path, "/") == 0 ? "/" : "/memory");
    return find(path) && full_name(path, full) ? strcpy(resolved, full) : NULL;
}

WRAPPED(int, unlink, const char *path)
{
    if (!in_memory(path)) return __real_unlink(path);
    memory_file *file = find(path);
    if (!file) return -1;
    file->path[0] = 0;
    return 0;
}

WRAPPED(int, rename, const char *from, const char *to)
{
    char full[NAME_BYTES];
    if (!in_memory(from)) return __real_rename(from, to);
    memory_file *file = find(from), *there = find(to);
    if (!file || !full_name(to, full)) return -1;
    if (there && there != file) there->path[0] = 0;
    strcpy(file->path, full);
    return 0;
}

// ---- a file as a socket: what is received are its bytes, what is sent is not kept

WRAPPED(ssize_t, recv, int descriptor, void *to, size_t n, int flags)
{
    open_file *open = of_descriptor(descriptor);
    return open ? read_memory(open, to, n) : __real_recv(descriptor, to, n, flags);
}

WRAPPED(ssize_t, send, int descriptor, const void *from, size_t n, int flags)
{
    return of_descriptor(descriptor) ? (ssize_t)n : __real_send(descriptor, from, n, flags);
}

WRAPPED(int, setsockopt, int descriptor, int level, int option, const void *value, socklen_t n)
{
    return of_descriptor(descriptor) ? 0 : __real_setsockopt(descriptor, level, option, value, n);
}

WRAPPED(int, poll, struct pollfd *waited, nfds_t n, int milliseconds)
{
    if (n != 1 || !of_descriptor(waited->fd)) return __real_poll(waited, n, milliseconds);
    waited->revents = waited->events;
    return 1;
}
