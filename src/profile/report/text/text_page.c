// SPDX-License-Identifier: MIT
// text_page.c: the pieces of reports in a terminal: wrapped sentences, columns, bars. UTF-8; widths are counted in code points.
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "text_page.h"

enum { WIDTH_MIN = 60, WIDTH_MAX = 300, WIDTH_DEFAULT = 100 };

#define BLANKS " \t\r\n"

// Code points, as most terminals show them in one column each.
int page_columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

// Bytes of the first `n` code points.
static int bytes_of(const char *text, int n)
{
    int bytes = 0;
    while (text[bytes]) {
        if (((unsigned char)text[bytes] & 0xC0) != 0x80 && n-- == 0) break;
        bytes++;
    }
    return bytes;
}

// A hostile report's control characters must not reach the terminal.
static void flatten(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

// Cut or filled with blanks to exactly `n` columns, n < 64.
const char *page_padded(const char *text, int n, char cell[320])
{
    snprintf(cell, 256, "%s", text);
    cell[bytes_of(cell, n)] = 0;
    flatten(cell);
    int length = (int)strlen(cell), missing = n - page_columns(cell);
    snprintf(cell + length, (size_t)(320 - length), "%*s", missing, "");
    return cell;
}

void page_cell(text_page *p, const char *text, int n)
{
    char copy[320];
    base_text_add(&p->text, "%s", page_padded(text, n, copy));
}

// A number right-aligned in `n` columns with that many decimals, or in powers of ten where it would not fit.
void page_number(text_page *p, double value, int n, int decimals)
{
    char text[64];
    if (fabs(value) < 0.5 * pow(10.0, -decimals)) value = 0.0; // never "-0.0"
    if (isnan(value))
        snprintf(text, sizeof text, "–");
    else if (fabs(value) < 1e6)
        base_format(text, sizeof text, "%.*f", decimals, value);
    else
        base_format(text, sizeof text, "%.1e", value);
    base_text_add(&p->text, "%*s%s", n - page_columns(text), "", text);
}

// No blanks at the end of a line.
void page_line_end(text_page *p)
{
    while (p->text.length > 0 && p->text.text[p->text.length - 1] == ' ') p->text.text[--p->text.length] = 0;
    base_text_add(&p->text, "\n");
}

size_t profile_unit_bytes(const char *text)
{
    static const char *const units[] = {"%", "ns", "µs", "ms", "s", "fs", "kB", "MB", "GB", "µs/atom", "ns/day", "steps/s"};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t length = strlen(units[k]);
        if (strncmp(text, units[k], length) == 0 && strcspn(text, BLANKS ".,;:)") == length) return length;
    }
    return 0;
}

// Bytes of the first word of `text`; a number keeps its unit beside it.
static int word_bytes(const char *text)
{
    int bytes = (int)strcspn(text, BLANKS);
    if (bytes == 0 || text[bytes] != ' ' || text[bytes - 1] < '0' || text[bytes - 1] > '9') return bytes;
    const char *next = text + bytes + 1;
    return profile_unit_bytes(next) > 0 ? bytes + 1 + (int)strcspn(next, BLANKS) : bytes;
}

// Words of `text` on lines of the page's width; the first line begins with `lead`, the others as far in.
void page_wrapped(text_page *p, const char *lead, const char *text)
{
    int indent = page_columns(lead), column = indent;
    base_text_add(&p->text, "%s", lead);
    for (const char *word = text + strspn(text, BLANKS); *word;) {
        int bytes = word_bytes(word);
        char copy[256];
        if (bytes >= (int)sizeof copy) bytes = (int)sizeof copy - 1;
        snprintf(copy, sizeof copy, "%.*s", bytes, word);
        int room = p->width - indent, length = page_columns(copy);
        if (length > room) { // longer than a line: cut, the rest follows
            bytes = bytes_of(copy, room);
            copy[bytes] = 0;
            length = room;
        }
        flatten(copy);
        if (column > indent && column + 1 + length > p->width) {
            base_text_add(&p->text, "\n%*s", indent, "");
            column = indent;
        }
        base_text_add(&p->text, "%s%s", column > indent ? " " : "", copy);
        column += length + (column > indent);
        word += bytes;
        word += strspn(word, BLANKS);
    }
    base_text_add(&p->text, "\n");
}

void page_wrappedf(text_page *p, const char *lead, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    page_wrapped(p, lead, text);
}

// A label of `n` columns, and its text beside it.
void page_row(text_page *p, const char *label, int n, const char *format, ...)
{
    char lead[320], text[1024];
    va_list arguments;
    va_start(arguments, format);
    base_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    page_wrapped(p, page_padded(label, n, lead), text);
}

void page_heading(text_page *p, const char *text)
{
    base_text_add(&p->text, "\n%s ", text);
    for (int i = page_columns(text) + 1; i < p->width; i++) base_text_add(&p->text, "─");
    base_text_add(&p->text, "\n");
}

const char *page_memory_text(double gb, char text[32])
{
    if (fabs(gb) >= 1.0)
        base_format(text, 32, "%.3f GB", gb);
    else
        base_format(text, 32, "%.2f MB", gb * 1024.0);
    return text;
}

// Eighths of a column; below 8 the top row alone.
static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// The largest value of each column, from `low` to `high`.
void page_sparkline(text_page *p, const double *values, int64_t n, int n_columns, double low, double high)
{
    if (n < n_columns) n_columns = (int)n;
    for (int column = 0; column < n_columns; column++) {
        int64_t begin = n * column / n_columns, end = n * (column + 1) / n_columns;
        double top = values[begin];
        for (int64_t i = begin; i < end; i++) top = fmax(top, values[i]);
        int level = high > low ? (int)(1.0 + (top - low) / (high - low) * 7.999) : 1;
        base_text_add(&p->text, "%s", bars[level < 1 ? 1 : level > 8 ? 8 : level]);
    }
}

void page_share_bar(text_page *p, double share, int n_columns)
{
    int eighths = (int)lround(fmin(fmax(share, 0.0), 1.0) * n_columns * 8.0);
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    for (int i = 0; i < eighths / 8; i++) base_text_add(&p->text, "█");
    base_text_add(&p->text, "%s\n", parts[eighths % 8]);
}

text_page page_make(int width)
{
    return (text_page){.width = width <= 0          ? WIDTH_DEFAULT
                                : width < WIDTH_MIN ? WIDTH_MIN
                                : width > WIDTH_MAX ? WIDTH_MAX
                                                    : width};
}

mlff_status page_take(text_page *p, char **text_out)
{
    mlff_status status = p->text.status;
    if (status == MLFF_OK)
        *text_out = p->text.text;
    else
        base_text_free(&p->text);
    return status;
}
