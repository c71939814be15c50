// SPDX-License-Identifier: MIT
// check_cpu.c: does the engine work on this machine's CPU, and what does it have to work with.
#include <gnu/libc-version.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/base.h"
#include "check_probe.h"
#include "cli/support/cli.h"

// Energy and forces of a water molecule by a small random model, in both precisions.
static mlff_status try_engine(double *difference)
{
    const mlff_setting settings[] = {{"n_features", "16"}, {"n_layers", "1"}, {0}};
    mlff_model *model = NULL;
    mlff_system *system = NULL;
    double energies[2] = {0}, forces[2][9] = {{0}};

    mlff_status status = mlff_system_build("h2o", 0, 0, &system);
    if (status == MLFF_OK) status = mlff_model_create(NULL, settings, &model);
    for (int i = 0; status == MLFF_OK && i < 2; i++) {
        mlff_evaluator_options options = mlff_evaluator_options_default();
        options.precision = i == 0 ? MLFF_FLOAT64 : MLFF_FLOAT32;
        mlff_evaluator *evaluator = NULL;
        status = mlff_evaluator_create(model, &options, &evaluator);
        if (status == MLFF_OK) {
            int32_t first_atom[2];
            mlff_batch batch;
            mlff_batch_from_system(system, first_atom, &batch);
            status = mlff_evaluator_compute(evaluator, &batch, &(mlff_results){.energies = &energies[i], .forces = forces[i]});
        }
        mlff_evaluator_destroy(evaluator);
    }
    *difference = 0;
    for (int k = 0; k < 9; k++) *difference = fmax(*difference, fabs(forces[0][k] - forces[1][k]));
    mlff_model_destroy(model);
    mlff_system_destroy(system);
    return status;
}

// Value of the first line "key : value" of a file of /proc, or "".
static void proc_value(const char *path, const char *key, char *value, size_t value_bytes)
{
    char line[512];
    value[0] = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        char *start = colon + 1 + strspn(colon + 1, " \t");
        start[strcspn(start, "\n")] = 0;
        snprintf(value, value_bytes, "%s", start);
        break;
    }
    if (file) fclose(file);
}

void check_cpu(check_table *table)
{
    double difference;
    if (try_engine(&difference) == MLFF_OK)
        check_add(table, "engine", "CPU engine", CHECK_PASS, true,
                  "mlff %s; float32 and float64 forces of a test agree to %.0e eV/Å", mlff_version(), difference);
    else
        check_add(table, "engine", "CPU engine", CHECK_FAIL, true, "%s", mlff_last_error());

    char text[256] = "";
    const char *const *paths = mlff_cpu_paths();
    for (int i = 0; paths[i]; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", paths[i]);
    const char *forced = getenv("MLFF_CPU");
    check_add(table, "engine", "CPU fast paths", CHECK_PASS, false, "%s (best first)%s%s", text,
              forced ? "; MLFF_CPU asks for " : "", forced ? forced : "");

    proc_value("/proc/cpuinfo", "model name", text, sizeof text);
    check_add(table, "system", "processor", CHECK_PASS, false, "%s", text[0] ? text : "name unknown");
    cpu_set_t set;
    int n_usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *threads = getenv("OMP_NUM_THREADS");
    check_add(table, "system", "threads", CHECK_PASS, false, "%d core%s for this process of %ld; OMP_NUM_THREADS %s", n_usable,
              base_plural(n_usable), sysconf(_SC_NPROCESSORS_ONLN), threads ? threads : "not set");
    char available[64], total[64];
    proc_value("/proc/meminfo", "MemTotal", total, sizeof total);
    proc_value("/proc/meminfo", "MemAvailable", available, sizeof available);
    check_add(table, "system", "memory", CHECK_PASS, false, "%.1f GB, %.1f GB available", atof(total) / 1048576,
              atof(available) / 1048576);
    struct utsname names;
    if (uname(&names) == 0)
        check_add(table, "system", "operating system", CHECK_PASS, false, "%s %s, %s, glibc %s", names.sysname, names.release,
                  names.machine, gnu_get_libc_version());
    check_add(table, "system", "built with", CHECK_PASS, false, "%s %s", strstr(__VERSION__, "lang") ? "" : "gcc", __VERSION__);
}
