// SPDX-License-Identifier: MIT
// compare_runs.c: mlff compare --run A --run B. The speed of a busy machine changes from minute to minute. Runs of A and B alternate, so
// that the changes affect both alike, and pairs that begin with A alternate with pairs that begin with B. Short commands run several times
// a round: a processor's clock and the other programs change within a second, and differ less between two consecutive processes than
// between two rounds. A failing command ends the comparison.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "compare_runs.h"

extern char **environ;

#define ROUND_MS 500.0 // of processor time, of the executions of one command
#define CROWDED 10.0   // times as long as that a command may take
#define WORTH_IT 1.5   // of the wanted width: what more rounds must be able to reach
#define CERTAIN 3.0    // half widths beyond the noise floor, some six standard errors: an answer that more runs do not change

enum { WALL = 0, PROCESSOR = 1, MEASURES = 2, PAIRS_NEEDED = 6, CLI_SLOWER = 3, CLI_UNCLEAR = 4 };

typedef struct group {
    const char *command;
    double ms[MEASURES][COMPARE_PAIRS];
    mlff_profile *profiles[COMPARE_PAIRS];
    int n, n_profiles;
} group;

// The exit status of an answer: 0 the same or faster, 3 slower, 4 unclear.
static int exit_of(mlff_change change)
{
    return change == MLFF_SLOWER ? CLI_SLOWER : change == MLFF_UNCLEAR ? CLI_UNCLEAR : CLI_GOOD;
}

int compare_report(const mlff_comparison *comparison, bool json, mlff_status *status_out)
{
    char *text = NULL;
    *status_out = json ? mlff_comparison_json(comparison, &text) : mlff_comparison_text(comparison, &text);
    if (*status_out != MLFF_OK) return CLI_FAILED;
    fputs(text, stdout);
    mlff_text_free(text);
    return exit_of(mlff_comparison_verdict(comparison));
}

static double milliseconds(const struct timeval *time)
{
    return (double)time->tv_sec * 1e3 + (double)time->tv_usec * 1e-3;
}

// One run by the shell, its output dropped; its errors are the user's to see.
static mlff_status run_once(const char *command, double ms[MEASURES])
{
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    struct rusage usage;
    pid_t child;
    int ended;
    if (posix_spawn_file_actions_init(&actions) != 0) return mlff_fail(MLFF_ERR_MEMORY, "out of memory: starting %s", command);
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return mlff_fail(MLFF_ERR_MEMORY, "out of memory: starting %s", command);
    }
    // A process group, so that a signal ends all that the shell started.
    // Its signals are those of a shell: this process ignores two of them.
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int64_t start = mlff_clock_ns();
    int code = posix_spawn(&child, "/bin/sh", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) return mlff_fail(MLFF_ERR_IO, "/bin/sh: %s", strerror(code));
    cli_child_set(-child);
    pid_t waited;
    while ((waited = wait4(child, &ended, 0, &usage)) < 0 && errno == EINTR) continue;
    cli_child_set(0);
    if (waited < 0) return mlff_fail(MLFF_ERR_IO, "%s: %s", command, strerror(errno));
    ms[WALL] = (double)(mlff_clock_ns() - start) * 1e-6;
    ms[PROCESSOR] = milliseconds(&usage.ru_utime) + milliseconds(&usage.ru_stime);
    if (cli_interrupted()) return mlff_fail(MLFF_ERR_INTERRUPTED, "interrupted");
    if (WIFSIGNALED(ended)) return mlff_fail(MLFF_ERR_CALLBACK, "%s: ended by signal %d", command, WTERMSIG(ended));
    if (WEXITSTATUS(ended) != 0)
        return mlff_fail(MLFF_ERR_CALLBACK, "%s: exit status %d; what fails is not compared", command, WEXITSTATUS(ended));
    return MLFF_OK;
}

// One execution, which is a run of its group.
static mlff_status run_counted(group *g, const char *report)
{
    mlff_status status = MLFF_OK;
    double ms[MEASURES];
    unlink(report);
    MLFF_TRY(run_once(g->command, ms));
    for (int k = 0; k < MEASURES; k++) g->ms[k][g->n] = ms[k];
    if (access(report, R_OK) == 0) MLFF_TRY(mlff_profile_load(report, &g->profiles[g->n]));
    g->n_profiles += g->profiles[g->n] != NULL;
    g->n++;
done:
    return status;
}

// The time of a run by which more rounds are decided upon.
static double run_ms(const group *g, int i)
{
    mlff_profile_summary summary;
    if (g->n_profiles < g->n) return g->ms[WALL][i];
    mlff_profile_summary_get(g->profiles[i], &summary);
    return summary.latency_ms.median;
}

// Whether up to n_most pairs can tell what these do not: the interval is wider than half of the margin, and n_most could make it
// about as narrow. It asks for the interval's width alone, not for an answer, so that equal commands are not told apart more often.
static mlff_status wants_more(const group groups[2], int n_most, const mlff_comparison_options *options, bool *more_out)
{
    mlff_status status = MLFF_OK;
    mlff_comparison_row row = {0};
    mlff_comparison_options paired = *options;
    int n = groups[0].n;
    double *ms = base_alloc(2 * (size_t)n, sizeof *ms, "times of runs");
    if (!ms) return MLFF_ERR_MEMORY;
    for (int i = 0; i < 2 * n; i++) ms[i] = run_ms(&groups[i >= n], i % n);
    paired.paired = n >= PAIRS_NEEDED;
    MLFF_TRY(mlff_compare_values(ms, n, ms + n, n, &paired, &row));
    double half = 0.5 * log(row.high / row.low), wanted = 0.5 * log1p(options->margin);
    double floor_share = isfinite(options->noise_floor) ? options->noise_floor : options->margin;
    bool certain = fabs(log(row.ratio)) > log1p(floor_share) + CERTAIN * half;
    *more_out = half > wanted && !certain && half * sqrt((double)n / n_most) <= WORTH_IT * wanted;
done:
    base_free(ms);
    return status;
}

static mlff_status run_rounds(group groups[2], int n_rounds, int n_repeats, const mlff_comparison_options *options,
                              const char *report)
{
    mlff_status status = MLFF_OK;
    double warm_ms[MEASURES], longest_ms = 0.0;
    for (int side = 0; side < 2; side++) {
        cli_progress("compare: warm-up of %c", 'A' + side);
        MLFF_TRY(run_once(groups[side].command, warm_ms));
        longest_ms = fmax(longest_ms, fmax(warm_ms[PROCESSOR], warm_ms[WALL] / CROWDED)); // which a busy machine prolongs
    }
    double most = fmin(COMPARE_REPEATS, COMPARE_PAIRS / n_rounds);
    if (n_repeats == 0) n_repeats = (int)fmin(fmax(ROUND_MS / longest_ms, 1.0), most);
    int n_pairs = n_rounds * n_repeats, n_most = COMPARE_MORE * n_pairs;
    if (n_most > COMPARE_PAIRS) n_most = COMPARE_PAIRS - COMPARE_PAIRS % n_repeats;
    bool more = false;
    for (int pair = 0; pair < n_pairs; pair++) {
        cli_progress(more ? "compare: pair %d of %d or more, for a narrower interval" : "compare: pair %d of %d", pair + 1,
                     n_pairs);
        MLFF_TRY(run_counted(&groups[pair % 2], report));
        MLFF_TRY(run_counted(&groups[1 - pair % 2], report));
        if (pair + 1 < n_pairs || n_pairs >= n_most) continue;
        MLFF_TRY(wants_more(groups, n_most, options, &more));
        if (more) n_pairs += n_repeats;
    }
done:
    cli_progress_clear();
    return status;
}

// The processes themselves: time on the clock, and on processors, which other programs change less.
static mlff_status report_processes(const group groups[2], const mlff_comparison_options *options, bool json, int *exit_out)
{
    static const char *const names[MEASURES] = {"time", "processor time"}, *const keys[MEASURES] = {"wall_ms", "processor_ms"};
    static const char *const verdicts[] = {"unclear", "same", "faster", "slower"};
    mlff_status status = MLFF_OK;
    mlff_comparison_row rows[MEASURES] = {{0}};
    char sentence[400];
    for (int k = 0; k < MEASURES; k++)
        MLFF_TRY(mlff_compare_values(groups[0].ms[k], groups[0].n, groups[1].ms[k], groups[1].n, options, &rows[k]));
    if (json) {
        cli_json out = {.file = stdout};
        cli_json_object(&out, NULL);
        cli_json_text(&out, "verdict", verdicts[rows[WALL].change]);
        cli_json_text(&out, "a", groups[0].command);
        cli_json_text(&out, "b", groups[1].command);
        cli_json_int(&out, "n_runs", groups[0].n);
        for (int k = 0; k < MEASURES; k++) {
            cli_json_object(&out, keys[k]);
            cli_json_number(&out, "a", rows[k].a_ms);
            cli_json_number(&out, "b", rows[k].b_ms);
            cli_json_number(&out, "ratio", rows[k].ratio);
            cli_json_number(&out, "low", rows[k].low);
            cli_json_number(&out, "high", rows[k].high);
            cli_json_number(&out, "p", rows[k].p);
            cli_json_text(&out, "verdict", verdicts[rows[k].change]);
            cli_json_end(&out, '}');
        }
        cli_json_end(&out, '}');
    } else {
        cli_print("A: %s\nB: %s\n%d run%s each, interleaved, medians:\n", groups[0].command, groups[1].command, groups[0].n,
                  base_plural(groups[0].n));
        for (int k = 0; k < MEASURES; k++) {
            mlff_comparison_row_text(&rows[k], "A", "B", sentence, sizeof sentence);
            printf("%-15s %10.5g ms %10.5g ms  %s\n", names[k], rows[k].a_ms, rows[k].b_ms, sentence);
        }
    }
    *exit_out = exit_of(rows[WALL].change);
done:
    return status;
}

int compare_runs(const char *const commands[2], int n_rounds, int n_repeats, const mlff_comparison_options *given, bool json)
{
    mlff_status status = MLFF_OK;
    mlff_comparison_options with_pairs = *given, *options = &with_pairs;
    int verdict = CLI_FAILED;
    mlff_comparison *comparison = NULL;
    char folder[PATH_MAX], report[PATH_MAX + 16] = "";
    group *groups = base_alloc(2, sizeof *groups, "runs");
    if (!groups) return cli_exit(MLFF_ERR_MEMORY);
    for (int side = 0; side < 2; side++) groups[side].command = commands[side];
    MLFF_TRY(cli_temporary_folder("compare", "the reports of runs", folder));
    snprintf(report, sizeof report, "%s/run.json", folder);
    if (setenv(COMPARE_REPORT, report, 1) != 0) MLFF_FAIL(MLFF_ERR_MEMORY, "out of memory: a variable of the environment");
    cli_interrupt_catch();
    MLFF_TRY(run_rounds(groups, n_rounds, n_repeats, options, report));
    int n = groups[0].n;
    options->paired = n >= PAIRS_NEEDED;
    if (groups[0].n_profiles == n && groups[1].n_profiles == n) {
        MLFF_TRY(mlff_profile_compare((const mlff_profile *const *)groups[0].profiles, n,
                                      (const mlff_profile *const *)groups[1].profiles, n, options, &comparison));
        verdict = compare_report(comparison, json, &status);
    } else {
        MLFF_TRY(report_processes(groups, options, json, &verdict));
    }
done:
    mlff_comparison_destroy(comparison);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < groups[side].n; i++) mlff_profile_destroy(groups[side].profiles[i]);
    base_free(groups);
    if (*report) {
        unlink(report);
        rmdir(folder);
    }
    return status == MLFF_OK ? verdict : cli_exit(status);
}
