/* SPDX-License-Identifier: MIT */
/* text_page.h: the pieces of reports in a terminal. What is not plain text in a report file is replaced before it is shown. */
#ifndef TEXT_PAGE_H
#define TEXT_PAGE_H

#include "profile/profile.h"

typedef struct text_page {
    base_text text;
    int width;
} text_page;

/* A page of that many columns; 0: 100. Others are brought between 60 and 300. */
text_page page_make(int width);
/* Takes the text out, or gives the failure that happened on the way. */
mlff_status page_take(text_page *p, char **text_out);
/* Code points, which most terminals show in one column each. */
int page_columns(const char *text);
/* Cut or filled with blanks to exactly n columns, n < 64. */
const char *page_padded(const char *text, int n, char cell[320]);
void page_cell(text_page *p, const char *text, int n);
/* Right-aligned in n columns with that many decimals, or in powers of ten where it would not fit. */
void page_number(text_page *p, double value, int n, int decimals);
/* Ends a line without blanks at its end. */
void page_line_end(text_page *p);
/* Words on lines of the page's width; the first line begins with `lead`, the others are indented as far. */
void page_wrapped(text_page *p, const char *lead, const char *text);
void page_wrappedf(text_page *p, const char *lead, const char *format, ...) MLFF_PRINTF(3, 4);
/* A label of n columns, and its text beside it. */
void page_row(text_page *p, const char *label, int n, const char *format, ...) MLFF_PRINTF(4, 5);
void page_heading(text_page *p, const char *text);
const char *page_memory_text(double gb, char text[32]);
/* The largest value of each column, from `low` to `high`. */
void page_sparkline(text_page *p, const double *values, int64_t n, int n_columns, double low, double high);
/* A bar of a share of n_columns, and the end of the line. */
void page_share_bar(text_page *p, double share, int n_columns);

#endif
