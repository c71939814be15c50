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

void drawing_page_begin(base_text *page, const char *title)
{
    base_text_add(page, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
                        "content=\"width=device-width\"><title>");
    drawing_text(page, title);
    base_text_add(
        page,
        "</title><style>"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:1.5em auto;padding:0 "
        "1em}table{border-collapse:collapse;width:100%%}td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid "
        "#8884;vertical-align:top}.passed{color:#1a7f37}.failed{color:#c62828}.verdict{font-size:1.25em;font-weight:600}"
        ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:1em}figure{margin:0}svg{width:"
        "100%%;font-size:11px;fill:currentColor}.frame{fill:none;stroke:#8888}.tick{opacity:.75}polyline,line{fill:none}"
        ".major{stroke:#1f77d0;stroke-width:2}.minor{stroke:#888;stroke-width:1.2}.dots{fill:#1f77d0;fill-opacity:.45}.marks "
        "circle{fill:#1f77d0}"
        "figcaption{font-size:.9em;min-height:3em}h1,p,td{overflow-wrap:anywhere}.bars td:not(:last-child){overflow-wrap:normal}"
        "@media(max-width:640px){.bars tr{display:grid;grid-template-columns:1fr 1fr;border-bottom:1px solid #8884}.bars th{"
        "display:none}.bars td{border:0}.bars td:last-child{grid-column:1/-1}}</style>");
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
