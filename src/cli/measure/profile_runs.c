// SPDX-License-Identifier: MIT
// profile_runs.c: mlff profile --runs N: each run is a process of its own, because what differs from run to run (the place
// of memory, threads on cores, the clock) is fixed within one. The command calls itself with the same options.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/support/cli.h"
#include "profile_runs.h"

extern char **environ;

static bool kept(const char *name, const char *const *extra)
{
    static const char *const own[] = {"runs", "output", "json", "trace", "system-sizes", "what-if"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0) return false;
    for (; extra && *extra; extra += 2)
        if (strcmp(name, *extra) == 0) return false;
    return true;
}

// The child's command line: ours, less what `extra` (name, value, …, NULL) says otherwise. Strings it makes are in `made`.
static void child_command(const cli_arguments *arguments, const char *const *extra, const char *output, char **argv,
                          char made[][64])
{
    int n = 0, m = 0;
    argv[n++] = (char *)(uintptr_t) "mlff";
    argv[n++] = (char *)(uintptr_t)arguments->command->name;
    for (int i = 0; arguments->command->options[i].name; i++) {
        const cli_option *option = &arguments->command->options[i];
        if (!arguments->values[i] || !kept(option->name, extra)) continue;
        snprintf(made[m], sizeof made[m], "--%s", option->name);
        argv[n++] = made[m++];
        if (option->value) argv[n++] = (char *)(uintptr_t)arguments->values[i];
    }
    for (; extra && *extra; extra += 2) {
        snprintf(made[m], sizeof made[m], "--%s", extra[0]);
        argv[n++] = made[m++];
        argv[n++] = (char *)(uintptr_t)extra[1];
    }
    argv[n++] = (char *)(uintptr_t) "--output";
    argv[n++] = (char *)(uintptr_t)output;
    argv[n++] = (char *)(uintptr_t) "--";
    for (int i = 0; i < arguments->n_positional; i++) argv[n++] = arguments->positional[i];
    argv[n] = NULL;
}

static const char child_mark[] = "MLFF_PROFILE_CHILD"; // in the environment of a run that another mlff profile started

bool profile_is_child(void)
{
    return getenv(child_mark) != NULL;
}

static mlff_status run_child(char **argv, const char *what, bool is_optional, int *exit_out)
{
    mlff_status status = MLFF_OK;
    posix_spawn_file_actions_t actions;
    pid_t child;
    int code, ended;
    if (posix_spawn_file_actions_init(&actions) != 0) return mlff_fail(MLFF_ERR_MEMORY, "%s cannot be started", what);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (is_optional) posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (setenv(child_mark, "1", 1) != 0) return mlff_fail(MLFF_ERR_MEMORY, "%s cannot be started", what);
    code = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) return mlff_fail(MLFF_ERR_IO, "%s cannot be started as a process of its own: %s", what, strerror(code));
    cli_child_set(child);
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR) {
            cli_child_set(0);
            return mlff_fail(MLFF_ERR_IO, "%s: %s", what, strerror(errno));
        }
    cli_child_set(0);
    *exit_out = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    return status;
}

mlff_status profile_child(const cli_arguments *arguments, const char *const *extra, const char *what, bool is_optional,
                          mlff_profile **profile_out)
{
    mlff_status status = MLFF_OK;
    char folder[PATH_MAX], path[PATH_MAX + 16], made[CLI_MAX_OPTIONS + 8][64];
    char *argv[2 * CLI_MAX_OPTIONS + 32];
    int code = 0;
    if ((status = cli_temporary_folder("runs", "the report of a run", folder)) != MLFF_OK) return status;
    snprintf(path, sizeof path, "%s/run.json", folder);
    child_command(arguments, extra, path, argv, made);
    cli_progress("profile: %s", what);
    MLFF_TRY(run_child(argv, what, is_optional, &code));
    // A run that is ended before it catches signals dies by this one.
    if (code == CLI_INTERRUPTED || (code != CLI_GOOD && cli_interrupted()))
        MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted during %s", what);
    if (code != CLI_GOOD && access(path, R_OK) != 0) // a leak is a failure that leaves a report
        MLFF_FAIL(MLFF_ERR_CALLBACK, "%s ended with exit status %d; its own message is above", what, code);
    MLFF_TRY(mlff_profile_load(path, profile_out));
done:
    cli_progress_clear();
    unlink(path);
    rmdir(folder);
    return status;
}

mlff_status profile_runs(const cli_arguments *arguments, int n_runs, mlff_profile ***profiles_out, int *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile **profiles = base_alloc((size_t)n_runs, sizeof *profiles, "runs");
    int n = 0;
    if (!profiles) return MLFF_ERR_MEMORY;
    for (; n < n_runs && !cli_interrupted(); n++) {
        char what[64];
        snprintf(what, sizeof what, "run %d of %d", n + 1, n_runs);
        status = profile_child(arguments, NULL, what, false, &profiles[n]);
        if (status == MLFF_ERR_INTERRUPTED || (status == MLFF_ERR_CALLBACK && n > 0)) break;
        if (status != MLFF_OK) goto done;
    }
    if (n == 0) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted before a run was whole");
    status = MLFF_OK;
    *profiles_out = profiles;
    *n_out = n;
    profiles = NULL;
done:
    profile_runs_free(profiles, n);
    return status;
}

// The sizes that the system can have nearest to those asked for, each once; with a word for those that are left out. `system`
// NULL: not known yet.
static mlff_status built_sizes(const char *system, int *atoms, int *n_sizes)
{
    int n = 0;
    for (int k = 0; system && k < *n_sizes; k++) {
        mlff_system *built;
        mlff_status status = mlff_system_build(system, atoms[k], 0, &built);
        if (status != MLFF_OK) return status;
        int n_atoms = built->n_atoms, known = 0;
        mlff_system_destroy(built);
        for (int i = 0; i < n; i++) known |= atoms[i] == n_atoms;
        if (known)
            cli_say("%d atom%s of %s: built as %d, which is measured already", atoms[k], base_plural(atoms[k]), system, n_atoms);
        if (!known) atoms[n++] = n_atoms;
    }
    if (system) *n_sizes = n;
    return MLFF_OK;
}

static bool same_size(const mlff_profile *a, const mlff_profile *b)
{
    mlff_profile_summary in_a, in_b;
    mlff_profile_summary_get(a, &in_a);
    mlff_profile_summary_get(b, &in_b);
    return in_a.n_atoms == in_b.n_atoms;
}

mlff_status profile_sizes(const cli_arguments *arguments, const char *sizes, mlff_profile ***profiles_out, int *n_out)
{
    mlff_status status = MLFF_OK;
    mlff_profile **profiles = base_alloc(CLI_SIZES, sizeof *profiles, "sizes");
    int n = 0, n_sizes, atoms[CLI_SIZES];
    if (!profiles) return MLFF_ERR_MEMORY;
    MLFF_TRY(cli_sizes("system-sizes", sizes, "atoms", INT32_MAX, atoms, &n_sizes));
    MLFF_TRY(built_sizes(cli_text(arguments, "system", NULL), atoms, &n_sizes));
    for (int k = 0; k < n_sizes; k++) {
        char number[24], what[64];
        snprintf(number, sizeof number, "%d", atoms[k]);
        snprintf(what, sizeof what, "%s atom%s", number, base_plural(atoms[k]));
        const char *extra[] = {"n-atoms", number, NULL};
        status = profile_child(arguments, extra, what, false, &profiles[n]);
        if (status == MLFF_ERR_CALLBACK && n > 0) mlff_fail(status, "%s did not run", what);
        if (status == MLFF_ERR_INTERRUPTED && n > 0) mlff_fail(status, "interrupted at %s", what);
        if ((status == MLFF_ERR_CALLBACK || status == MLFF_ERR_INTERRUPTED) && n > 0) break;
        MLFF_TRY(status);
        if (n > 0 && same_size(profiles[n - 1], profiles[n])) { // without --system the model chose one: a molecule has one size
            mlff_profile_destroy(profiles[n]);
            profiles[n] = NULL;
            continue;
        }
        n++;
    }
    *profiles_out = profiles;
    *n_out = n;
    profiles = NULL;
done:
    profile_runs_free(profiles, n);
    return status;
}

void profile_sizes_print(mlff_profile *const *profiles, int n)
{
    bool short_run = false;
    printf("%8s %12s %12s %12s %13s %12s %12s\n", "atoms", "median/ms", "P95/ms", "P99/ms", "µs/atom", "pairs/atom", "memory/MB");
    for (int i = 0; i < n; i++) {
        mlff_profile_summary s;
        mlff_profile_summary_get(profiles[i], &s);
        char p95[32], p99[32];
        printf("%8d %12.5g %s %s %12.4g %12.4g %12.4g\n", s.n_atoms, s.latency_ms.median,
               cli_percentile(p95, 12, s.latency_ms.p95, 0.95, s.n_steps),
               cli_percentile(p99, 12, s.latency_ms.p99, 0.99, s.n_steps), s.latency_ms.median * 1e3 / s.n_atoms,
               s.mean_pairs / s.n_atoms, s.memory_peak_gb * 1024.0);
        short_run |= s.n_steps < 100;
    }
    if (short_run) printf("P95 needs 20 steps, P99 100 (--n-steps)\n");
    mlff_scaling scaling;
    char *text = NULL;
    if (mlff_profile_scaling((const mlff_profile *const *)profiles, n, &scaling) == MLFF_OK &&
        mlff_scaling_text(&scaling, &text) == MLFF_OK)
        printf("\n%s", text);
    mlff_text_free(text);
}

void profile_runs_free(mlff_profile **profiles, int n)
{
    for (int i = 0; profiles && i < n; i++) mlff_profile_destroy(profiles[i]);
    base_free(profiles);
}

static double median_ms(const mlff_profile *profile)
{
    mlff_profile_summary summary;
    mlff_profile_summary_get(profile, &summary);
    return summary.latency_ms.median;
}

const mlff_profile *profile_runs_middle(mlff_profile *const *profiles, int n)
{
    for (int i = 0; i < n; i++) {
        int below = 0, equal_before = 0;
        for (int k = 0; k < n; k++) {
            below += median_ms(profiles[k]) < median_ms(profiles[i]);
            equal_before += k < i && median_ms(profiles[k]) == median_ms(profiles[i]);
        }
        if (below + equal_before == (n - 1) / 2) return profiles[i];
    }
    return profiles[0];
}

void profile_runs_print(mlff_profile *const *profiles, int n)
{
    double mean = 0.0, squares = 0.0;
    printf("\nRuns, each a process of its own; above is the one in the middle\n");
    for (int i = 0; i < n; i++) {
        mlff_profile_summary s;
        mlff_profile_summary_get(profiles[i], &s);
        bool known = s.n_steps >= 100;
        printf("%4d  median %10.6g ms  %s %10.6g ms  CV %5.1f %%", i + 1, s.latency_ms.median, known ? "P99" : "longest",
               known ? s.latency_ms.p99 : s.latency_ms.max, s.latency_ms.cv * 100.0);
        if (s.memory_stable >= 0) printf("  memory %+.2f MB", s.memory_delta_gb * 1024.0);
        puts(s.partial ? "  partial" : "");
        mean += log(s.latency_ms.median) / n;
    }
    for (int i = 0; i < n; i++) squares += (log(median_ms(profiles[i])) - mean) * (log(median_ms(profiles[i])) - mean);
    if (n > 1) printf("medians differ by %.2f %% from run to run (standard deviation)\n", sqrt(squares / (n - 1)) * 100.0);
    if (n < 4) printf("mlff compare needs four runs a side\n");
}
