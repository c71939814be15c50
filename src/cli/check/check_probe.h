// SPDX-License-Identifier: MIT
// check_probe.h: what `mlff check` looks at: rows of a table, filled by probes of the machine.
#ifndef CHECK_PROBE_H
#define CHECK_PROBE_H

#include <stdbool.h>

enum { CHECK_MAX_ROWS = 64 };

typedef enum check_status { CHECK_PASS, CHECK_FAIL, CHECK_NOT_NEEDED } check_status;

typedef struct check_row {
    const char *group, *name; // static
    check_status status;
    bool required; // its failure is the command's
    char detail[256];
} check_row;

typedef struct check_table {
    check_row rows[CHECK_MAX_ROWS];
    int n_rows;
} check_table;

void check_add(check_table *table, const char *group, const char *name, check_status status, bool required, const char *format,
               ...) __attribute__((format(printf, 6, 7)));

void check_cpu(check_table *table);                 // the engine on the CPU, its fast paths, cores, memory, system
void check_gpu(check_table *table);                 // driver, GPUs, CUDA libraries; nothing is linked, all is opened when asked
void check_tools(check_table *table);               // compilers and profilers on PATH
void check_python(check_table *table, bool import); // packages, by their files; `import` also asks them about GPUs

#endif
