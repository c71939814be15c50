// SPDX-License-Identifier: MIT
// drawing.c: diagrams of a page as SVG.
#include "drawing.h"

#include <math.h>

enum { WIDTH = 460, HEIGHT = 300, LEFT = 64, BOTTOM = 44, TOP = 12, RIGHT = 26 };

// Text of a page: what could be markup is escaped.
void drawing_text(base_text *page, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '<': base_text_add(page, "&lt;"); break;
        case '>': base_text_add(page, "&gt;"); break;
        case '&': base_text_add(page, "&amp;"); break;
        case '"': base_text_add(page, "&quot;"); break;
        default: base_text_add(page, "%c", *text);
        }
}

// ---- drawings -------------------------------------------------------------------------------------------------------

static double place_on(const drawing_axis *a, double value)
{
    return a->logarithmic ? log(value / a->low) / log(a->high / a->low) : (value - a->low) / (a->high - a->low);
}

static double x_of(const drawing_axis *a, double value)
{
    return LEFT + place_on(a, value) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const drawing_axis *a, double value)
{
    return HEIGHT - BOTTOM - place_on(a, value) * (HEIGHT - TOP - BOTTOM);
}

void drawing_begin(base_text *page, const char *title, const drawing_axis *x, const drawing_axis *y)
{
    base_text_add(page, "<figure><figcaption>");
    drawing_text(page, title);
    base_text_add(page,
                  "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                  "class=\"frame\"/>",
                  WIDTH, HEIGHT, LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    for (int k = 0; k <= 4; k++) {
        const double f = k / 4.0;
        const double vx = x->logarithmic ? x->low * pow(x->high / x->low, f) : x->low + f * (x->high - x->low);
        const double vy = y->logarithmic ? y->low * pow(y->high / y->low, f) : y->low + f * (y->high - y->low);
        base_text_add(page,
                      "<text x=\"%.1f\" y=\"%d\" class=\"tick\" text-anchor=\"middle\">%.3g</text><text x=\"%d\" y=\"%.1f\" "
                      "class=\"tick\" text-anchor=\"end\">%.3g</text>",
                      x_of(x, vx), HEIGHT - BOTTOM + 16, vx, LEFT - 6, y_of(y, vy) + 4, vy);
    }
    base_text_add(page,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text><text transform=\"translate(14 %d) rotate(-90)\" "
                  "text-anchor=\"middle\">%s</text>",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x->label, (TOP + HEIGHT - BOTTOM) / 2, y->label);
}

void drawing_end(base_text *page)
{
    base_text_add(page, "</svg></figure>");
}

void drawing_line(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, double step,
                  const double *value, int n)
{
    base_text_add(page, "<polyline class=\"%s\" points=\"", kind);
    for (int k = 0; k < n; k++) base_text_add(page, "%.1f,%.1f ", x_of(x, x->low + k * step), y_of(y, value[k]));
    base_text_add(page, "\"/>");
}

void drawing_point(base_text *page, const drawing_axis *x, const drawing_axis *y, double at_x, double at_y, const char *label)
{
    base_text_add(page, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>", x_of(x, at_x), y_of(y, at_y), label ? "4" : "1.6");
    if (!label) return;
    base_text_add(page, "<text x=\"%.1f\" y=\"%.1f\">", x_of(x, at_x) + 6, y_of(y, at_y) - 6);
    drawing_text(page, label);
    base_text_add(page, "</text>");
}
