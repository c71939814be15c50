// SPDX-License-Identifier: MIT
// profile_runs.c: mlff profile --runs N: each run is a process of its own, because what differs from run to run (the place
// of memory, threads on cores, the clock) is fixed within one. The command calls itself with the same options.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "profile_runs.h"

extern char **environ;

static bool kept(const char *name)
{
    static const char *const own[] = {"runs", "output", "json", "trace"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0) return false;
    return true;
}

// The child's command line; strings it makes are in `made`.
static void child_command(const cli_arguments *arguments, const char *output, char **argv, char made[][64])
{
    int n = 0, m = 0;
    argv[n++] = (char *)(uintptr_t) "mlff";
    argv[n++] = (char *)(uintptr_t)arguments->command->name;
    for (int i = 0; arguments->command->options[i].name; i++) {
        const cli_option *option = &arguments->command->options[i];
        if (!arguments->values[i] || !kept(option->name)) continue;
        snprintf(made[m], sizeof made[m], "--%s", option->name);
        argv[n++] = made[m++];
        if (option->value) argv[n++] = (char *)(uintptr_t)arguments->values[i];
    }
    argv[n++] = (char *)(uintptr_t) "--output";
    argv[n++] = (char *)(uintptr_t)output;
    argv[n++] = (char *)(uintptr_t) "--";
    for (int i = 0; i < arguments->n_positional; i++) argv[n++] = arguments->positional[i];
    argv[n] = NULL;
}

static mlff_status run_child(char **argv, int run, int *exit_out)
{
    mlff_status status = MLFF_OK;
    posix_spawn_file_actions_t actions;
    pid_t child;
    int code, ended;
    if (posix_spawn_file_actions_init(&actions) != 0) return mlff_fail(MLFF_ERR_MEMORY, "run %d cannot be started", run + 1);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    code = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) return mlff_fail(MLFF_ERR_IO, "run %d cannot be started as a process of its own: %s", run + 1, strerror(code));
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR) return mlff_fail(MLFF_ERR_IO, "run %d: %s", run + 1, strerror(errno));
    *exit_out = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    return status;
}

mlff_status profile_runs(const cli_arguments *arguments, int n_runs, mlff_profile ***profiles_out, int *n_out)
{
    mlff_status status = MLFF_OK;
    char folder[] = "/tmp/mlff-runs-XXXXXX", path[64], made[CLI_MAX_OPTIONS][64];
    char *argv[2 * CLI_MAX_OPTIONS + 16];
    mlff_profile **profiles = base_alloc((size_t)n_runs, sizeof *profiles, "runs");
    int n = 0;
    if (!profiles) return MLFF_ERR_MEMORY;
    if (!mkdtemp(folder)) {
        base_free(profiles);
        return mlff_fail(MLFF_ERR_IO, "no folder in /tmp for the runs: %s", strerror(errno));
    }
    snprintf(path, sizeof path, "%s/run.json", folder);
    for (int run = 0; run < n_runs && !cli_interrupted(); run++) {
        int code = 0;
        child_command(arguments, path, argv, made);
        unlink(path);
        cli_progress("profile: run %d of %d", run + 1, n_runs);
        MLFF_TRY(run_child(argv, run, &code));
        if (code == CLI_INTERRUPTED) break;
        if (code != CLI_GOOD && access(path, R_OK) != 0) // a leak is a failure that leaves a report
            MLFF_FAIL(MLFF_ERR_CALLBACK, "run %d of %d ended with exit status %d; its own words are above", run + 1, n_runs,
                      code);
        MLFF_TRY(mlff_profile_load(path, &profiles[n]));
        n++;
    }
    if (n == 0) MLFF_FAIL(MLFF_ERR_INTERRUPTED, "interrupted before a run was whole");
    *profiles_out = profiles;
    *n_out = n;
    profiles = NULL;
done:
    cli_progress_clear();
    unlink(path);
    rmdir(folder);
    profile_runs_free(profiles, n);
    return status;
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
        printf("%4d  median %10.6g ms  P99 %10.6g ms  CV %5.1f %%  memory %+.2f MB%s\n", i + 1, s.latency_ms.median,
               s.latency_ms.p99, s.latency_ms.cv * 100.0, s.memory_delta_gb * 1024.0, s.partial ? "  partial" : "");
        mean += log(s.latency_ms.median) / n;
    }
    for (int i = 0; i < n; i++) squares += (log(median_ms(profiles[i])) - mean) * (log(median_ms(profiles[i])) - mean);
    if (n > 1) printf("medians differ by %.2f %% from run to run (standard deviation)\n", sqrt(squares / (n - 1)) * 100.0);
    if (n < 4) printf("mlff compare needs four runs a side\n");
}
