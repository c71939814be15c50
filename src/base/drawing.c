// SPDX-License-Identifier: MIT
// drawing.c: diagrams of a page as SVG.
#include "drawing.h"

#include <math.h>

enum { WIDTH = 460, HEIGHT = 300, LEFT = 64, BOTTOM = 44, TOP = 12, RIGHT = 26, TICKS = 8 };

// Text of a page: what could be markup is escaped, and what is no UTF-8 becomes U+FFFD.
void drawing_text(base_text *page, const char *text)
{
    base_text words = {0};
    base_text_add_utf8(&words, text);
    if (words.status != MLFF_OK) page->status = words.status;
    for (text = words.text; text && *text; text++) switch (*text) {
        case '<': base_text_add(page, "&lt;"); break;
        case '>': base_text_add(page, "&gt;"); break;
        case '&': base_text_add(page, "&amp;"); break;
        case '"': base_text_add(page, "&quot;"); break;
        default: base_text_add(page, "%c", *text);
        }
    base_text_free(&words);
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
        ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%%),1fr));gap:1em}figure{margin:0}svg{"
        "width:"
        "100%%;font-size:11px;fill:currentColor}.frame{fill:none;stroke:#8888}.tick{opacity:.75}polyline,line{fill:none}"
        ".major{stroke:#1f77d0;stroke-width:2}.minor{stroke:#888;stroke-width:1.2}.dots{fill:#1f77d0;fill-opacity:.45}.marks "
        "circle{fill:#1f77d0}"
        "figcaption{font-size:.9em;min-height:3em}h1,p,td{overflow-wrap:anywhere}.bars td:not(:last-child){overflow-wrap:normal}"
        "@media(max-width:640px){.bars tr{display:grid;grid-template-columns:1fr 1fr;border-bottom:1px solid #8884}.bars th{"
        "display:none}.bars td{border:0}.bars td:last-child{grid-column:1/-1}}"
        "@media screen and "
        "(prefers-color-scheme:dark){.passed{color:#5cc98f}.failed{color:#ff8a80}.major{stroke:#6fb1f2}.dots,.marks "
        "circle{fill:#6fb1f2}}@media print{figure,tr{break-inside:avoid}h2{break-after:avoid}}</style>");
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

// The least of 1, 2 and 5 times a power of ten that is not below `value`, which is positive.
static double round_up(double value)
{
    const double power = pow(10.0, floor(log10(value) + 1e-9)), digits = value / power;
    return (digits <= 1.000001 ? 1.0 : digits <= 2.000001 ? 2.0 : digits <= 5.000001 ? 5.0 : 10.0) * power;
}

// Round numbers on an axis; returns how many.
static int ticks_of(const drawing_axis *a, double ticks[TICKS])
{
    int n = 0;
    if (!(a->high > a->low) || !isfinite(a->high - a->low)) return 0;
    if (a->logarithmic && a->high > 3.0 * a->low) {
        const double decades = log10(a->high / a->low);
        const int every = 1 + (int)(decades / 5.0); // powers of ten, not more than six; between few of them also 2 and 5
        for (double tick = round_up(a->low); tick <= a->high && n < TICKS; tick = round_up(1.01 * tick)) {
            const double power = log10(tick);
            const bool whole = fabs(power - round(power)) < 1e-6;
            if (decades <= 2.5 || (whole && (int)round(power) % every == 0)) ticks[n++] = tick;
        }
        return n;
    }
    const double step = round_up((a->high - a->low) / 5.0);
    for (double k = ceil(a->low / step - 1e-6); k * step <= a->high + 1e-6 * step && n < TICKS; k++)
        ticks[n++] = k == 0 ? 0.0 : k * step;
    return n;
}

void drawing_begin(base_text *page, const char *title, const drawing_axis *x, const drawing_axis *y)
{
    base_text_add(page, "<figure><figcaption>");
    drawing_text(page, title);
    base_text_add(page,
                  "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                  "class=\"frame\"/>",
                  WIDTH, HEIGHT, LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    double ticks[TICKS];
    for (int k = 0, n = ticks_of(x, ticks); k < n; k++)
        base_text_add(page, "<text x=\"%.1f\" y=\"%d\" class=\"tick\" text-anchor=\"middle\">%.6g</text>", x_of(x, ticks[k]),
                      HEIGHT - BOTTOM + 16, ticks[k]);
    for (int k = 0, n = ticks_of(y, ticks); k < n; k++)
        base_text_add(page, "<text x=\"%d\" y=\"%.1f\" class=\"tick\" text-anchor=\"end\">%.6g</text>", LEFT - 6,
                      y_of(y, ticks[k]) + 4, ticks[k]);
    base_text_add(page,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text><text transform=\"translate(14 %d) rotate(-90)\" "
                  "text-anchor=\"middle\">%s</text>",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x->label, (TOP + HEIGHT - BOTTOM) / 2, y->label);
}

void drawing_end(base_text *page)
{
    base_text_add(page, "</svg></figure>");
}

// At places `at`, or where that is NULL at equal steps.
static void polyline(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, const double *at,
                     double step, const double *value, int n)
{
    base_text_add(page, "<polyline class=\"%s\" points=\"", kind);
    for (int k = 0; k < n; k++) base_text_add(page, "%.1f,%.1f ", x_of(x, at ? at[k] : x->low + k * step), y_of(y, value[k]));
    base_text_add(page, "\"/>");
}

void drawing_line(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, double step,
                  const double *value, int n)
{
    polyline(page, x, y, kind, NULL, step, value, n);
}

void drawing_curve(base_text *page, const drawing_axis *x, const drawing_axis *y, const char *kind, const double *at,
                   const double *value, int n)
{
    polyline(page, x, y, kind, at, 0, value, n);
}

void drawing_point(base_text *page, const drawing_axis *x, const drawing_axis *y, double at_x, double at_y, const char *label)
{
    base_text_add(page, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>", x_of(x, at_x), y_of(y, at_y), label ? "4" : "1.6");
    if (!label) return;
    base_text_add(page, "<text x=\"%.1f\" y=\"%.1f\">", x_of(x, at_x) + 6, y_of(y, at_y) - 6);
    drawing_text(page, label);
    base_text_add(page, "</text>");
}
