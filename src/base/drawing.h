/* SPDX-License-Identifier: MIT */
/* drawing.h: pages for browsers that work without a network, and their diagrams as SVG. */
#ifndef DRAWING_H
#define DRAWING_H

#include "base.h"

typedef struct drawing_axis {
    double low, high;
    bool logarithmic;
    const char *label;
} drawing_axis;

/* Text of a page: what could be markup is escaped. */
void drawing_text(base_text *page, const char *text);
/* The head of a page with the style of its figures (in <div class="plots">) and tables; the body follows, then "</html>". */
void drawing_page_begin(base_text *page, const char *title);
/* A figure with a frame and both axes; lines and points follow, then its end. */
void drawing_begin(base_text *page, const char *title, const drawing_axis *x, const drawing_axis *y);
void drawing_end(base_text *page);
/* Value k of n at k steps from the low end of the abscissa. `kind`: "major" (blue) or "minor" (gray). */
void drawing_line(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, double step,
                  const double *value, int n);
/* The same of values at any places `at` along the abscissa. */
void drawing_curve(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, const double *at,
                   const double *value, int n);
/* `label`: beside the point, or NULL. */
void drawing_point(base_text *page, const drawing_axis *x, const drawing_axis *y, double at_x, double at_y, const char *label);

#endif
