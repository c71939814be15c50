/* SPDX-License-Identifier: MIT */
/* verdict_bars.h: the bars of a verdict by name. */
#ifndef VERDICT_BARS_H
#define VERDICT_BARS_H

#include "mlff_distill.h"
#include "support.h"

static inline const mlff_bar *find_bar(const mlff_verdict *verdict, const char *name)
{
    int n;
    const mlff_bar *bars = mlff_verdict_bars(verdict, &n);
    for (int k = 0; k < n; k++)
        if (strcmp(bars[k].name, name) == 0) return &bars[k];
    fail_msg("no bar %s", name);
    return NULL;
}

static inline void assert_bar(const mlff_verdict *verdict, const char *name, mlff_bar_state state)
{
    const mlff_bar *bar = find_bar(verdict, name);
    if (bar->state != state)
        fail_msg("%s: state %d, value %g, limit %g: %s", name, bar->state, bar->value, bar->limit, bar->text);
}

#endif
