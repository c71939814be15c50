// SPDX-License-Identifier: MIT
// environment.c: machine and build, so that a number can be compared, or found not comparable. The host's name stays out.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "measure.h"

mlff_status environment_add(environment *e, const char *key, const char *value)
{
    if (e->n == ENVIRONMENT_MAX) return mlff_fail(MLFF_ERR_LIMIT, "environment: more than %d entries", ENVIRONMENT_MAX);
    char *key_copy = base_strdup(key), *value_copy = base_strdup(value);
    if (!key_copy || !value_copy) {
        base_free(key_copy);
        base_free(value_copy);
        return MLFF_ERR_MEMORY;
    }
    e->keys[e->n] = key_copy;
    e->values[e->n++] = value_copy;
    return MLFF_OK;
}

const char *environment_find(const environment *e, const char *key)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->keys[i], key) == 0) return e->values[i];
    return NULL;
}

void environment_free(environment *e)
{
    for (int i = 0; i < e->n; i++) {
        base_free(e->keys[i]);
        base_free(e->values[i]);
    }
    *e = (environment){0};
}

// Text after `prefix` (and blanks, ':', '=', quotes) on the first line of the file that begins with it.
static bool line_after(const char *path, const char *prefix, char *text, int text_bytes)
{
    bool found = false;
    char line[4096];
    FILE *file = fopen(path, "r");
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, prefix, strlen(prefix)) != 0) continue;
        char *start = line + strlen(prefix);
        start += strspn(start, " \t:=\"");
        start[strcspn(start, "\"\r\n")] = 0;
        snprintf(text, (size_t)text_bytes, "%s", start);
        found = *text != 0;
    }
    fclose(file);
    return found;
}

bool environment_may_be_virtual(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;
    return !__get_cpuid(1, &a, &b, &c, &d) || c >> 31;
#else
    return true;
#endif
}

static int usable_cores(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static const char *build_kind(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return "sanitized";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return "sanitized";
#endif
#endif
#if defined(__OPTIMIZE__)
    return "optimized";
#else
    return "not optimized";
#endif
}

mlff_status environment_collect(environment *e)
{
    mlff_status status = MLFF_OK;
    environment found = {0};
    char text[256];
    struct utsname os;

    if (line_after("/proc/cpuinfo", "model name", text, sizeof text) ||
        line_after("/proc/cpuinfo", "CPU part", text, sizeof text))
        MLFF_TRY(environment_add(&found, "cpu", text));
    snprintf(text, sizeof text, "%d", usable_cores());
    MLFF_TRY(environment_add(&found, "cores_usable", text));
    snprintf(text, sizeof text, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    MLFF_TRY(environment_add(&found, "cores_online", text));
    if (line_after("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", text, sizeof text))
        MLFF_TRY(environment_add(&found, "governor", text));
    double load;
    if (getloadavg(&load, 1) == 1) {
        base_format(text, sizeof text, "%.2f", load);
        MLFF_TRY(environment_add(&found, "load_average_at_start", text));
    }
    if (uname(&os) == 0) {
        snprintf(text, sizeof text, "%.60s %.120s %.60s", os.sysname, os.release, os.machine);
        MLFF_TRY(environment_add(&found, "os", text));
    }
    if (line_after("/etc/os-release", "PRETTY_NAME", text, sizeof text)) MLFF_TRY(environment_add(&found, "distribution", text));
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads) {
        snprintf(text, sizeof text, "%.32s", threads);
        MLFF_TRY(environment_add(&found, "OMP_NUM_THREADS", text));
    }
#if defined(__clang__)
    MLFF_TRY(environment_add(&found, "compiler", "clang " __clang_version__));
#else
    MLFF_TRY(environment_add(&found, "compiler", "gcc " __VERSION__));
#endif
    MLFF_TRY(environment_add(&found, "build", build_kind()));
    MLFF_TRY(environment_add(&found, "mlff_version", mlff_version()));
    *e = found;
    return MLFF_OK;
done:
    environment_free(&found);
    return status;
}
