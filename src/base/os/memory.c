// SPDX-License-Identifier: MIT
// memory.c: checked, aligned, counted allocation.
#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

// Before each block lies one cache line with its size, so that bytes can be counted back. From LARGE_BYTES on a block may
// have huge pages, asked for before it is touched: large weights are read 10 % faster without a page walk every 4 kB.
// From CHECKED_BYTES on a block is compared with what the machine has left (some 50 µs, 1 % of the time to clear it).
enum { HEADER_BYTES = 64, HUGE_BYTES = 2 << 20, LARGE_BYTES = 2 * HUGE_BYTES, CHECKED_BYTES = 64 << 20 };

static _Atomic int64_t allocated_bytes;
static _Atomic int64_t allocation_count;

// Bytes that the machine can give without swapping; SIZE_MAX where the system does not tell.
static size_t machine_bytes(void)
{
    char text[1024];
    const int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    const ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0) close(file);
    if (length <= 0) return SIZE_MAX;
    text[length] = 0;
    const char *line = strstr(text, "MemAvailable:");
    return line ? (size_t)strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024 : SIZE_MAX;
}

// The same within the limits of the process's container.
static size_t available_bytes(void)
{
    const size_t machine = machine_bytes(), container = base_cgroup_available("/proc/self/cgroup", "/sys/fs/cgroup");
    return machine < container ? machine : container;
}

void *base_alloc_unset(size_t count, size_t size, const char *what)
{
    if (size != 0 && count > (SIZE_MAX / 4) / size) {
        mlff_fail(MLFF_ERR_MEMORY, "out of memory: %zu × %zu bytes for %s are more than any machine has", count, size, what);
        return NULL;
    }
    size_t bytes = count * size;
    size_t alignment = bytes >= LARGE_BYTES ? HUGE_BYTES : HEADER_BYTES;
    size_t padded = (bytes + HEADER_BYTES + alignment - 1) / alignment * alignment;
    // Linux grants more memory than there is, and kills a process that then uses it. A sixteenth is left to others.
    const size_t available = bytes >= CHECKED_BYTES ? available_bytes() : SIZE_MAX;
    if (padded > available - available / 16) {
        mlff_fail(MLFF_ERR_MEMORY, "out of memory: %.0f MB for %s, of %.0f MB that are available; use a smaller system or batch",
                  (double)bytes / 1048576.0, what, (double)available / 1048576.0);
        return NULL;
    }
    char *block = aligned_alloc(alignment, padded);
    if (!block) {
        mlff_fail(MLFF_ERR_MEMORY, "out of memory: %.1f MB for %s; use a smaller system or batch", (double)bytes / 1048576.0,
                  what);
        return NULL;
    }
    if (bytes >= LARGE_BYTES) madvise(block, padded, MADV_HUGEPAGE);
    memset(block, 0, HEADER_BYTES);
    memcpy(block, &bytes, sizeof bytes);
    atomic_fetch_add(&allocated_bytes, (int64_t)bytes);
    atomic_fetch_add(&allocation_count, 1);
    return block + HEADER_BYTES;
}

void *base_alloc(size_t count, size_t size, const char *what)
{
    void *block = base_alloc_unset(count, size, what);
    if (block) memset(block, 0, count * size);
    return block;
}

static size_t block_bytes(const void *pointer)
{
    size_t bytes;
    memcpy(&bytes, (const char *)pointer - HEADER_BYTES, sizeof bytes);
    return bytes;
}

void base_free(void *pointer)
{
    if (!pointer) return;
    atomic_fetch_sub(&allocated_bytes, (int64_t)block_bytes(pointer));
    free((char *)pointer - HEADER_BYTES);
}

mlff_status base_grow(void *pointer, size_t *capacity, size_t count, size_t size, const char *what)
{
    void *old;
    memcpy(&old, pointer, sizeof old); // `pointer` is the address of a T *, of any T
    if (old && count <= *capacity) return MLFF_OK;

    size_t wanted = *capacity + *capacity / 2;
    if (wanted < count) wanted = count;
    void *grown = base_alloc(wanted, size, what);
    if (!grown) return MLFF_ERR_MEMORY;
    if (old) memcpy(grown, old, *capacity * size);
    base_free(old);
    memcpy(pointer, &grown, sizeof grown);
    *capacity = wanted;
    return MLFF_OK;
}

int64_t base_allocated_bytes(void)
{
    return atomic_load(&allocated_bytes);
}

int64_t base_allocation_count(void)
{
    return atomic_load(&allocation_count);
}

char *base_strdup(const char *text)
{
    size_t length = strlen(text);
    char *copy = base_alloc(length + 1, 1, "a text");
    if (copy) memcpy(copy, text, length + 1);
    return copy;
}
