/* SPDX-License-Identifier: MIT */
/* html.h: what the files of the report for browsers share. */
#ifndef PROFILE_HTML_H
#define PROFILE_HTML_H

#include "profile/profile.h"
#include "profile/report/json/json.h"

/* Text of any origin into a page: nothing in it is markup, control characters and broken UTF-8 become U+FFFD. */
void html_text(base_text *page, const char *text);
void html_textf(base_text *page, const char *format, ...) MLFF_PRINTF(2, 3); /* cut at 2 kB */

/* <tag attributes>text</tag>, the text escaped. */
void html_element(base_text *page, const char *tag, const char *attributes, const char *text);

typedef struct html_contents {
    const mlff_profile *const *profiles;
    int n_profiles, n_first;                     /* n_first > 0: so many are compared with the others */
    const mlff_implementations *implementations; /* or NULL */
    const char *title;
} html_contents;
/* The name of a run; of one that is compared with its side and number before it: A1, A2, B1. Returns `text`. */
enum { HTML_NAME = 256 };
const char *html_run_name(const html_contents *contents, int run, char text[HTML_NAME]);
/* The whole page. */
mlff_status html_page(const html_contents *contents, char **text_out);

/* html_data.c: what the charts show, as JSON for a script element. Long series are thinned to what a screen resolves. */
void html_data(base_text *page, const html_contents *contents);

/* html_implementations.c: implementations side by side, and their part of the data. */
void html_implementations(base_text *page, const mlff_implementations *implementations);
void html_implementations_data(json *j, const mlff_implementations *implementations);

/* html_stages.c: phases, stages and layers of a step as nested bars, and a median step beside the slowest one. */
/* The number of the color of a phase or part of a step, the same in all pictures: class s0 to s7. */
int html_part_color(const char *name);
void html_icicle(base_text *page, const mlff_profile *profile);
void html_examples(base_text *page, const mlff_profile *profile);

/* html_verdict.c: the verdict on a run, the reasons, and one stacked bar. */
void html_verdict(base_text *page, const mlff_profile *profile);
/* The first n_first profiles against the others, or why they are not comparable. */
void html_comparison(base_text *page, const mlff_profile *const *profiles, int n, int n_first);

#endif
