// SPDX-License-Identifier: MIT
// verdict_pressure.c: errors of the pressure, on which dynamics at constant pressure depend.
#include "verdict_pressure.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const double GPA = 160.21766208; // of 1 eV/Å³

mlff_status pressure_errors_add(pressure_errors *list, int64_t group, double difference)
{
    const mlff_status status =
        base_grow(&list->errors, &list->capacity, list->n + 1, sizeof *list->errors, "errors of the pressure");
    if (status == MLFF_OK) list->errors[list->n++] = (pressure_error){group, difference};
    return status;
}

static int compare_groups(const void *a, const void *b)
{
    const pressure_error *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->difference > y->difference) - (x->difference < y->difference);
}

double pressure_errors_mean(pressure_errors *list, int *n_groups_out)
{
    double total = 0, of_group = 0;
    *n_groups_out = 0;
    if (list->n == 0) return NAN;
    qsort(list->errors, list->n, sizeof *list->errors, compare_groups);
    for (size_t k = 0; k < list->n; k++) {
        of_group += list->errors[k].difference;
        if (k + 1 < list->n && list->errors[k + 1].group == list->errors[k].group) continue;
        total += fabs(of_group);
        of_group = 0;
        ++*n_groups_out;
    }
    return total / (double)list->n;
}

void pressure_errors_judge(mlff_verdict *verdict, pressure_errors *list, int64_t n_structures, bool of_dynamics)
{
    int n_groups;
    const double error = GPA * pressure_errors_mean(list, &n_groups);
    mlff_bar *bar = verdict_add(verdict, "error.pressure", "GPa", error, NAN, verdict->options.max_pressure_error, 0);
    verdict_say(bar,
                "mean difference of the pressure, of %" PRId64 " structure%s in %d %s%s; a component of the stress differs by "
                "%.3g GPa (%.3g meV/Å³), mean absolute",
                n_structures, base_plural(n_structures), n_groups, of_dynamics ? "trajector" : "group",
                of_dynamics ? (n_groups == 1 ? "y" : "ies") : base_plural(n_groups), GPA * verdict->stress_error,
                1e3 * verdict->stress_error);
}

void pressure_errors_free(pressure_errors *list)
{
    base_free(list->errors);
    *list = (pressure_errors){0};
}
