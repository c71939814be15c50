/* SPDX-License-Identifier: MIT */
/* html.h: what the files of the report for browsers share. */
#ifndef PROFILE_HTML_H
#define PROFILE_HTML_H

#include "json.h"
#include "profile.h"

/* Text of any origin into a page: nothing in it is markup, control characters and broken UTF-8 become U+FFFD. */
void html_text(base_text *page, const char *text);
void html_textf(base_text *page, const char *format, ...) MLFF_PRINTF(2, 3); /* cut at 2 kB */

/* html_data.c: what the charts show, as JSON for a script element. Long series are thinned to what a screen resolves. */
void html_data(base_text *page, const mlff_profile *const *profiles, int n_profiles);

#endif
