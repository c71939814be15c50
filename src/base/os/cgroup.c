// SPDX-License-Identifier: MIT
// cgroup.c: the memory and the cores that Linux control groups, by which containers are limited, leave to this process.
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { PATH_BYTES = 1024, TEXT_BYTES = 8192 };

typedef struct cgroup_files {
    const char *limit, *used, *inactive, *active; // names in memory.stat end in a space
} cgroup_files;

static const cgroup_files unified = {"memory.max", "memory.current", "\ninactive_file ", "\nactive_file "};
static const cgroup_files separate = {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file ",
                                      "\ntotal_active_file "};

static bool read_text(const char *path, char text[TEXT_BYTES])
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file >= 0 ? read(file, text, TEXT_BYTES - 1) : -1;
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

static bool read_name(const char *group, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return read_text(path, text);
}

static size_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? (size_t)strtoull(at + strlen(name), NULL, 10) : 0;
}

// Limit of one group less what is used; pages of files that can be dropped are not counted as used.
static size_t left_in_group(const char *group, const cgroup_files *files)
{
    char text[TEXT_BYTES], *end;
    if (!read_name(group, files->limit, text)) return SIZE_MAX;
    const size_t limit = (size_t)strtoull(text, &end, 10);
    if (end == text || !read_name(group, files->used, text)) return SIZE_MAX; // "max": no limit
    size_t used = (size_t)strtoull(text, NULL, 10);
    if (read_name(group, "memory.stat", text)) {
        const size_t cached = number_after(text, files->inactive) + number_after(text, files->active);
        used -= cached < used ? cached : used;
    }
    return used < limit ? limit - used : 0;
}

// Is `name` in a list with commas?
static bool has_controller(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && strncmp(list, name, length) == 0) return true;
    return false;
}

// Calls `visit` for each group of this process that has the controller, and for each that holds it: all of their limits count.
static void visit_groups(const char *membership, const char *root, const char *controller,
                         void (*visit)(void *context, const char *group, bool is_unified), void *context)
{
    char text[TEXT_BYTES], group[PATH_BYTES];
    if (!read_text(membership, text)) return;
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end++ = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        line = end;
        if (!path) continue;
        *path++ = 0;
        const bool is_unified = controllers[1] == 0;
        if (!is_unified && !has_controller(controllers + 1, controller)) continue;
        const int top = snprintf(group, sizeof group, "%s%s%s", root, is_unified ? "" : "/", is_unified ? "" : controller);
        if (top < 0 || top >= (int)sizeof group) continue;
        if (snprintf(group + top, sizeof group - (size_t)top, "%s", path) >= (int)sizeof group - top) continue;
        for (char *slash = group + strlen(group); slash && slash >= group + top; slash = strrchr(group, '/')) {
            *slash = 0;
            visit(context, group, is_unified);
            if (slash == group + top) break;
        }
    }
}

static void take_memory(void *context, const char *group, bool is_unified)
{
    size_t *least = context;
    const size_t left = left_in_group(group, is_unified ? &unified : &separate);
    if (left < *least) *least = left;
}

size_t base_cgroup_available(const char *membership, const char *root)
{
    size_t least = SIZE_MAX;
    visit_groups(membership, root, "memory", take_memory, &least);
    return least;
}

// "200000 100000": µs of processor time in each period; "max" and -1: no limit.
static void take_cores(void *context, const char *group, bool is_unified)
{
    char text[TEXT_BYTES], *end;
    double *least = context, period = 100000;
    if (!read_name(group, is_unified ? "cpu.max" : "cpu.cfs_quota_us", text)) return;
    const double quota = (double)strtoll(text, &end, 10);
    if (end == text || quota <= 0) return;
    if (is_unified || read_name(group, "cpu.cfs_period_us", text)) period = (double)strtoll(is_unified ? end : text, NULL, 10);
    if (period > 0) *least = fmin(*least, quota / period);
}

double base_cgroup_cores(const char *membership, const char *root)
{
    double least = INFINITY;
    visit_groups(membership, root, "cpu", take_cores, &least);
    return least;
}
