/* SPDX-License-Identifier: MIT */
/* page.h: what a report for browsers carries with it, embedded when the library is built (cmake/page.cmake). */
#ifndef PROFILE_PAGE_H
#define PROFILE_PAGE_H

extern const char page_style[], page_script[];
/* Chart.js and its license; empty where the build did not have them. */
extern const char page_chart_library[], page_chart_license[];

#endif
