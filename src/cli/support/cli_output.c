// SPDX-License-Identifier: MIT
// cli_output.c: errors, warnings, progress, interruption, and the honest end of standard output.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"

static bool progress_shown;
static int64_t progress_time_ns;
static volatile sig_atomic_t interrupted, child; // child: see cli_child_set
static timer_t reminder;                         // sends SIGALRM once a signal has come
static bool repeats;                             // there is such a timer
static bool ends_by_pipe, pipe_broke;            // the caller did not ignore SIGPIPE; a failure was that of stdout's reader

/* ---- errors and warnings -------------------------------------------------------------------------- */

// Long enough for two names of files.
enum { PRINTED_BYTES = 12288 };

// Names and texts of files may hold terminal escapes.
static void format_clean(char *text, size_t size, bool keep_lines, const char *format, va_list arguments)
{
    vsnprintf(text, size, format, arguments);
    base_clean(text, '?', keep_lines);
}

void cli_print(const char *format, ...)
{
    char text[PRINTED_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_clean(text, sizeof text, true, format, arguments);
    va_end(arguments);
    fputs(text, stdout);
}

void cli_say(const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    format_clean(text, sizeof text, true, format, arguments);
    va_end(arguments);
    cli_progress_clear();
    fprintf(stderr, "mlff: %s\n", text);
}

const char *cli_percentile(char text[32], int width, double value, double fraction, int64_t n_steps)
{
    bool known = (double)n_steps * (1.0 - fraction) > 1.0 - 1e-9; // rounding of the fraction
    if (known)
        snprintf(text, 32, "%*.5g", width, value);
    else
        snprintf(text, 32, "%*s", width + (int)strlen("–") - 1, "–");
    return text;
}

// Whether the library failed since the reader of stdout, such as head, has left.
static bool is_pipe_error(mlff_status status)
{
    return status == MLFF_ERR_IO && ends_by_pipe && ferror(stdout) && strstr(mlff_last_error(), strerror(EPIPE));
}

int cli_exit(mlff_status status)
{
    if (status == MLFF_OK) return CLI_GOOD;
    if (is_pipe_error(status)) {
        pipe_broke = true; // which cli_output_end tells by the signal
        return CLI_FAILED;
    }
    cli_say("%s", mlff_last_error());
    return status == MLFF_ERR_USAGE ? CLI_USAGE : status == MLFF_ERR_INTERRUPTED ? CLI_INTERRUPTED : CLI_FAILED;
}

int cli_first(int exit_status, mlff_status status)
{
    const int next = cli_exit(status);
    return exit_status == CLI_GOOD ? next : exit_status;
}

mlff_status cli_in(const char *path, mlff_status status)
{
    if (status == MLFF_OK || status == MLFF_ERR_INTERRUPTED || status == MLFF_ERR_IO || status == MLFF_ERR_FORMAT) return status;
    if (!path || strstr(mlff_last_error(), path)) return status;
    return mlff_fail(status, "%s: %s", path, mlff_last_error());
}

// A loop may warn at each step; each text is printed once. Texts are compared by a hash (FNV-1a), kept up to a bound.
static void warn_once(void *context, const char *text)
{
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    static uint64_t said[64];
    static int n_said;
    (void)context;

    uint64_t hash = 14695981039346656037u;
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    while (atomic_flag_test_and_set(&busy)) continue;
    bool known = false;
    for (int i = 0; i < n_said; i++) known |= said[i] == hash;
    if (!known && n_said < 64) {
        said[n_said++] = hash;
        cli_say("warning: %s", text);
    }
    atomic_flag_clear(&busy);
}

// A descriptor 0, 1 or 2 that the caller closed would be given to the next file opened, and standard output would be written into
// it. /dev/null is opened for reading, so that what is written to a closed output fails and is reported.
static void reserve_descriptors(void)
{
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;)
        if (fd > 2) {
            close(fd);
            return;
        }
}

void cli_output_start(void)
{
    reserve_descriptors();
    ends_by_pipe = signal(SIGPIPE, SIG_IGN) != SIG_IGN; // a reader that leaves early shows up as a failed write
    signal(SIGXFSZ, SIG_IGN);                           // so does a limit on the size of files
    mlff_warning_handler_set(warn_once, NULL);
}

bool cli_reader_left(void)
{
    return ferror(stdout) != 0;
}

int cli_output_end(int exit_status)
{
    cli_progress_clear();
    errno = 0;
    bool failed = fflush(stdout) != 0;
    if (!failed && ferror(stdout)) { // the cause of a write that failed earlier is gone; another byte meets it again
        failed = true;
        if (putchar('\n') != EOF) fflush(stdout);
    }
    // 3 and 4 are verdicts: they do not count if their text was not written.
    const bool had_failed = exit_status == CLI_FAILED || exit_status == CLI_USAGE || exit_status == CLI_INTERRUPTED;
    if (!failed) return exit_status;
    if (errno == EPIPE && ends_by_pipe && (!had_failed || pipe_broke)) { // as other programs end
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (had_failed) return exit_status;
    cli_say("standard output: %s", errno ? strerror(errno) : "cannot be written");
    return CLI_FAILED;
}

mlff_status cli_output_check(const char *path)
{
    base_output output = {0};
    if (!path || strcmp(path, "-") == 0) return MLFF_OK;
    if (base_is_stream(path)) // a pipe is opened once, for good: opened and closed, it ends for its reader
        return access(path, W_OK) == 0 ? MLFF_OK : mlff_fail(MLFF_ERR_IO, "%s: %s", path, strerror(errno));
    mlff_status status = base_output_open(path, &output);
    if (status == MLFF_OK) base_output_abandon(&output);
    return status;
}

mlff_status cli_reserve(const char *path, int64_t bytes, base_output *reserve)
{
    if (!path || base_is_stream(path)) return MLFF_OK;
    const mlff_status status = base_output_open(path, reserve);
    if (status != MLFF_OK) return status;
    unlink(reserve->temporary);
    const int error = posix_fallocate(fileno(reserve->file), 0, (off_t)bytes);
    if (error == 0) return MLFF_OK;
    base_output_abandon(reserve);
    return mlff_fail(MLFF_ERR_IO, "%s: %.1f MB cannot be reserved for it: %s", path, (double)bytes / 1048576, strerror(error));
}

void cli_reserve_release(base_output *reserve)
{
    if (reserve->file) base_output_abandon(reserve);
}

/* ---- progress --------------------------------------------------------------------------------------- */

static int shows_progress = -1; // not known yet

// On a terminal that can go back to the start of a line.
static bool terminal(void)
{
    const char *kind = getenv("TERM");
    if (shows_progress < 0) shows_progress = isatty(STDERR_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
    return shows_progress == 1;
}

bool cli_quiet(bool keep_output)
{
    shows_progress = 0;
    if (keep_output || freopen("/dev/null", "w", stdout)) return true;
    cli_say("/dev/null: %s; --quiet writes there", strerror(errno));
    return false;
}

void cli_progress(const char *format, ...)
{
    if (!terminal()) return;
    int64_t now = mlff_clock_ns();
    if (progress_shown && now - progress_time_ns < 100000000) return;
    progress_time_ns = now;
    char text[PRINTED_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_clean(text, sizeof text, false, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
    progress_shown = true;
}

void cli_progress_steps(const char *what, int64_t step, int64_t n_steps, int64_t start_ns)
{
    if (!terminal()) return;
    double seconds = (double)(mlff_clock_ns() - start_ns) * 1e-9;
    double rate = seconds > 0 ? (double)step / seconds : 0;
    double left = rate > 0 ? (double)(n_steps - step) / rate : 0;
    cli_progress("%s: step %" PRId64 " of %" PRId64 ", %.0f %%, %.0f steps/s, %.0f s left", what, step, n_steps,
                 n_steps > 0 ? 100.0 * (double)step / (double)n_steps : 100.0, rate, left);
}

void cli_progress_clear(void)
{
    if (!progress_shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress_shown = false;
}

/* ---- interruption ------------------------------------------------------------------------------------- */

// A signal within this time of the first is the same one: `timeout` sends it to its command and then to the process group.
#define SAME_SIGNAL_NS 500000000

// Only calls that are safe in a handler. A later Ctrl-C or SIGTERM kills. A terminal that is closed sends SIGHUP twice, by its shell and by
// the kernel, and a service manager sends it right after SIGTERM: one that follows is ignored.
static void on_signal(int number)
{
    static const char text[] = "\r\033[Kmlff: ending after this step; once more to stop at once\n";
    static const struct itimerspec each_tenth = {{.tv_nsec = 100000000}, {.tv_nsec = 100000000}};
    static _Atomic int64_t first_ns;
    const int64_t now = mlff_clock_ns();
    int64_t first = 0;
    if (!atomic_compare_exchange_strong(&first_ns, &first, now)) {
        if (number == SIGHUP || now - first < SAME_SIGNAL_NS) return;
        signal(number, SIG_DFL);
        raise(number); // once this handler has returned
        return;
    }
    interrupted = 1;
    if (repeats) timer_settime(reminder, 0, &each_tenth, NULL);
    if (child < 0 || (child > 0 && number != SIGINT)) kill((pid_t)child, number);
    if (isatty(STDERR_FILENO)) {
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
    }
}

static void on_reminder(int number)
{
    (void)number;
}

// Writes continue after a signal; a wait for input ends (see reader.c of the library). A signal may come just before such
// a wait begins, or after its sleep has ended and before the process runs again; so SIGALRM repeats it ten times a second.
void cli_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_reminder, .sa_flags = SA_RESTART}, callers;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    repeats = timer_create(CLOCK_MONOTONIC, &event, &reminder) == 0;
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &callers) == 0 && callers.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

void cli_child_set(int process)
{
    child = process;
    if (process != 0 && interrupted) kill((pid_t)process, SIGTERM); // the signal came before the process was known
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

int cli_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
    return size.ws_col < 60 ? 60 : size.ws_col > 160 ? 160 : size.ws_col;
}
