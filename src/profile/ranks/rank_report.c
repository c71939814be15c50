// SPDX-License-Identifier: MIT
// rank_report.c: does one rank compute longer than the others? All ranks make a step together, so parts of the run are the same
// parts on all of them: the ratio of the slowest rank's computing to the mean of all is taken in each part, and its interval is
// that of the median over parts. Where a process waited for a CPU its times are the machine's, and nothing is said of the load;
// nor of several GPUs of a process, as it is not known how long their threads waited: what a late launch leaves between two
// kernels counts as the first one's time.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rank_report.h"

#define UNBALANCED 1.05 // the whole interval beyond it
#define EXCHANGE "exchange"

static bool same_run(const mlff_profile *const *profiles, int n)
{
    for (int i = 0; i < n; i++) {
        int rank, n_ranks;
        int64_t n_ghosts;
        if (!rank_of(profiles[i], &rank, &n_ranks, &n_ghosts) || rank != i || n_ranks != n) return false;
    }
    return n > 1;
}

static bool is_exchange(const profile_stage *stage)
{
    return strcmp(stage->name, EXCHANGE) == 0;
}

// Stages of a GPU's kernels: neither the host's, nor what is left of a step.
static bool is_of_kernels(const profile_stage *stage)
{
    return strcmp(stage->phase, "host") != 0 && strcmp(stage->name, "integrate") != 0 && strcmp(stage->name, "unattributed") != 0;
}

static void fill_row(const mlff_profile *profile, rank_row *row)
{
    int n_ranks;
    const mlff_profile_summary *s = &profile->summary;
    (void)rank_of(profile, &row->rank, &n_ranks, &row->n_ghosts);
    row->n_owned = s->n_atoms;
    row->exchange_ms = row->exchange_low_ms = row->exchange_high_ms = NAN;
    row->computing_ms = s->latency_ms.mean;
    const char *owned = environment_find(&profile->workload, "owned");
    row->of_gpu = owned != NULL;
    if (owned) row->n_owned = (int)strtol(owned, NULL, 10);
    row->cpu_wait = mlff_profile_cpu_wait(profile);
    row->outside_ms = (profile->wall_time_s - s->total_time_s) * 1e3 / (double)s->n_steps;
    for (int k = 0; k < profile->n_stages; k++) {
        const profile_stage *stage = &profile->stages[k];
        percentile_bounds b;
        if (profile_stage_of_list(stage->name)) row->list_ms += stage->shown.mean_ms;
        if (row->of_gpu && !is_exchange(stage) && !is_of_kernels(stage)) row->computing_ms -= stage->shown.mean_ms;
        if (!is_exchange(stage)) continue;
        row->computing_ms -= stage->shown.mean_ms;
        row->exchange_ms = stage->shown.mean_ms;
        if (stage->n_blocks == 0 || percentile_interval(stage->blocks_ms, stage->n_blocks, 0.5, &b) != MLFF_OK) continue;
        row->exchange_ms = b.value;
        row->exchange_low_ms = b.low;
        row->exchange_high_ms = b.high;
    }
}

// Computing of a profile in one part of the run; NaN where parts are not known.
static double computing_in(const mlff_profile *profile, int block)
{
    double sum = 0;
    int n_known = 0;
    for (int k = 0; k < profile->n_stages; k++) {
        const profile_stage *stage = &profile->stages[k];
        if (is_exchange(stage) || stage->n_blocks != STAGE_BLOCKS) continue;
        sum += stage->blocks_ms[block];
        n_known++;
    }
    return n_known > 0 ? sum : NAN;
}

static rank_judgement judge(const mlff_profile *const *profiles, rank_report *report)
{
    double ratios[STAGE_BLOCKS], owned = 0, computing = 0;
    for (int i = 0; i < report->n; i++) {
        const rank_row *row = &report->rows[i];
        owned += (double)row->n_owned / report->n;
        computing += row->computing_ms / report->n;
        if (row->computing_ms > report->rows[report->slowest].computing_ms) report->slowest = i;
        if (!(row->cpu_wait <= report->cpu_wait)) { // also what is not known
            report->cpu_wait = row->cpu_wait;
            report->crowded = i;
        }
        if (isnan(report->cpu_wait)) break;
    }
    if (!(report->cpu_wait <= CROWDED)) return RANKS_CROWDED;
    for (int b = 0; b < STAGE_BLOCKS; b++) {
        double mean = 0;
        for (int i = 0; i < report->n; i++) mean += computing_in(profiles[i], b) / report->n;
        ratios[b] = computing_in(profiles[report->slowest], b) / mean;
        if (!isfinite(ratios[b])) return RANKS_SHORT;
    }
    if (percentile_interval(ratios, STAGE_BLOCKS, 0.5, &report->ratio) != MLFF_OK || !isfinite(report->ratio.high))
        return RANKS_SHORT;
    report->excess_ms = report->rows[report->slowest].computing_ms - computing;
    report->atoms_ratio = owned > 0 ? report->rows[report->slowest].n_owned / owned : NAN;
    return report->ratio.low > UNBALANCED ? RANKS_UNBALANCED : RANKS_BALANCED;
}

mlff_status ranks_report(const mlff_profile *const *profiles, int n, rank_report *report_out)
{
    rank_report report = {0};
    *report_out = report;
    if (!same_run(profiles, n)) return MLFF_OK;
    report.rows = base_alloc((size_t)n, sizeof *report.rows, "ranks");
    if (!report.rows) return MLFF_ERR_MEMORY;
    report.n = n;
    for (int i = 0; i < n; i++) fill_row(profiles[i], &report.rows[i]);
    report.judgement = judge(profiles, &report);
    *report_out = report;
    return MLFF_OK;
}

void rank_report_free(rank_report *report)
{
    base_free(report->rows);
    *report = (rank_report){0};
}

void ranks_sentence(const rank_report *report, char *text, size_t text_bytes)
{
    const int rank = report->rows[report->slowest].rank;
    const percentile_bounds *ratio = &report->ratio;
    switch (report->judgement) {
    case RANKS_CROWDED:
        if (isnan(report->cpu_wait))
            snprintf(text, text_bytes, "Load imbalance: not judged, as it is not known how long rank %d waited for a CPU.",
                     report->rows[report->crowded].rank);
        else
            base_format(
                text, text_bytes,
                "Load imbalance: not judged. Rank %d was ready and had no CPU for %.0f %% of the time of its steps (at most "
                "%.0f %% "
                "allow a judgement): waits of others are then the machine's.",
                report->rows[report->crowded].rank, 100 * report->cpu_wait, 100 * CROWDED);
        return;
    case RANKS_SHORT:
        snprintf(text, text_bytes,
                 "Load imbalance: not judged, as stages were seen in too few steps. A run of 1000 steps is long enough.");
        return;
    case RANKS_BALANCED:
        base_format(
            text, text_bytes,
            "No load imbalance beyond %.0f %% was found: rank %d, which computes longest, takes %.3f times the mean of the ranks "
            "(%.3f to %.3f at 95 %%).",
            100 * (UNBALANCED - 1), rank, ratio->value, ratio->low, ratio->high);
        return;
    case RANKS_UNBALANCED:
        base_format(
            text, text_bytes,
            "Load imbalance: rank %d computes %.3f times as long as the mean of the ranks (%.3f to %.3f at 95 %%), %s more "
            "a step, "
            "for which the others wait. It owns %.2f times the mean number of atoms.%s",
            rank, ratio->value, ratio->low, ratio->high, PROFILE_TIME(report->excess_ms), report->atoms_ratio,
            report->atoms_ratio > UNBALANCED ? " In LAMMPS, `balance` and `fix balance` move the borders." : "");
        return;
    }
}
