// SPDX-License-Identifier: MIT
// rank_pages.c: the ranks of a run over MPI in a table, for browsers and terminals.
#include <math.h>
#include <stdlib.h>

#include "profile/report/html/html.h"
#include "profile/report/text/text_page.h"
#include "rank_report.h"

enum { COLUMNS = 8, CELL = 64 };
static const char *const heads[COLUMNS] = {"rank",    "atoms",   "ghosts", "computing", "list", "exchange, waits in it",
                                           "outside", "CPU wait"};
static const char explanation[] = "Times are of a step, as wall-clock time. Computing: the force field without the exchange; "
                                  "list: the neighbor list, a part of it. "
                                  "Exchange: features of ghosts from their owners and adjoints back, the wait for other ranks "
                                  "included, as its median over parts of the "
                                  "run and its 95 % interval. Of several GPUs of one process a rank is a GPU, and computing the "
                                  "time of its kernels. Outside: between two calls of the force field: the simulator's own "
                                  "work, its communication and its waits. "
                                  "CPU wait: part of the steps' time in which the process was ready and had no CPU.";

static void cells_of(const rank_row *row, char cells[COLUMNS][CELL])
{
    for (int k = 0; k < COLUMNS; k++) snprintf(cells[k], CELL, "–");
    snprintf(cells[0], CELL, "%d", row->rank);
    snprintf(cells[1], CELL, "%d", row->n_owned);
    if (row->n_ghosts >= 0) snprintf(cells[2], CELL, "%lld", (long long)row->n_ghosts);
    snprintf(cells[3], CELL, "%s", PROFILE_TIME(row->computing_ms));
    snprintf(cells[4], CELL, "%s", PROFILE_TIME(row->list_ms));
    if (isfinite(row->exchange_low_ms) && isfinite(row->exchange_high_ms))
        snprintf(cells[5], CELL, "%s (%s to %s)", PROFILE_TIME(row->exchange_ms), PROFILE_TIME(row->exchange_low_ms),
                 PROFILE_TIME(row->exchange_high_ms));
    else if (isfinite(row->exchange_ms))
        snprintf(cells[5], CELL, "%s", PROFILE_TIME(row->exchange_ms));
    snprintf(cells[6], CELL, "%s", PROFILE_TIME(row->outside_ms));
    if (isfinite(row->cpu_wait)) base_format(cells[7], CELL, "%.1f %%", 100 * row->cpu_wait);
}

void html_ranks(base_text *page, const rank_report *report)
{
    char cells[COLUMNS][CELL], sentence[512];
    if (report->n == 0) return;
    base_text_add(page, "<h2>Ranks</h2>\n");
    ranks_sentence(report, sentence, sizeof sentence);
    html_element(page, "p", "", sentence);
    base_text_add(page, "<div class=\"scroll\"><table><thead><tr>");
    for (int k = 0; k < COLUMNS; k++) html_element(page, "th", "", heads[k]);
    base_text_add(page, "</tr></thead><tbody>\n");
    for (int i = 0; i < report->n; i++) {
        cells_of(&report->rows[i], cells);
        base_text_add(page, "<tr>");
        for (int k = 0; k < COLUMNS; k++) html_element(page, "td", "", cells[k]);
        base_text_add(page, "</tr>\n");
    }
    base_text_add(page, "</tbody></table></div>\n");
    html_element(page, "p", "class=\"soft\"", explanation);
}

mlff_status mlff_profile_ranks_text(const mlff_profile *const *profiles, int n_profiles, int width, char **text_out)
{
    static const int columns[COLUMNS] = {6, 9, 9, 12, 12, 36, 12, 10};
    char cells[COLUMNS][CELL], sentence[512];
    rank_report report;
    if (!profiles || n_profiles < 1 || !text_out) return mlff_fail(MLFF_ERR_USAGE, "ranks as text: profiles or output is NULL");
    mlff_status status = ranks_report(profiles, n_profiles, &report);
    if (status != MLFF_OK) return status;
    text_page p = page_make(width);
    base_text_add(&p.text, "%s", ""); // a text also where there is no table
    if (report.n > 0) {
        ranks_sentence(&report, sentence, sizeof sentence);
        page_heading(&p, "Ranks");
        page_wrapped(&p, "", sentence);
        for (int k = 0; k < COLUMNS; k++) page_cell(&p, heads[k], columns[k]);
        page_line_end(&p);
        for (int i = 0; i < report.n; i++) {
            cells_of(&report.rows[i], cells);
            for (int k = 0; k < COLUMNS; k++) page_cell(&p, cells[k], columns[k]);
            page_line_end(&p);
        }
        page_wrapped(&p, "", explanation);
    }
    rank_report_free(&report);
    return page_take(&p, text_out);
}
