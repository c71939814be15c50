// SPDX-License-Identifier: MIT
// check_tools.c: compilers, profilers and Python packages: asked by running them, briefly and without a shell.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_probe.h"
#include "cli/support/cli.h"

// Full path of a program on PATH.
static bool find_program(const char *program, char *path, int path_bytes)
{
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        int needed = snprintf(path, (size_t)path_bytes, "%.*s/%s", (int)length, folders, program);
        if (length && needed < path_bytes && access(path, X_OK) == 0) return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

static void child(const char *const *argv, int output)
{
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL); // ours is ignored, and that would be inherited
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

// Runs a program without a shell; its first output bytes go to `text`, one line joined by blanks. False if it is not
// there, fails, or takes longer than `seconds`.
static bool run_program(const char *const *argv, double seconds, char *text, int text_bytes)
{
    int ends[2], length = 0, state = 0;
    text[0] = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    pid_t pid = fork();
    if (pid == 0) child(argv, ends[1]);
    close(ends[1]);
    bool late = pid < 0;
    int64_t end_ns = mlff_clock_ns() + (int64_t)(seconds * 1e9);
    while (!late) {
        struct pollfd wait = {.fd = ends[0], .events = POLLIN};
        int64_t left_ms = (end_ns - mlff_clock_ns()) / 1000000;
        int ready = left_ms > 0 ? poll(&wait, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR) continue;
        late = ready <= 0;
        if (late) break;
        char bytes[512];
        ssize_t got = read(ends[0], bytes, sizeof bytes);
        if (got <= 0) break;
        for (ssize_t i = 0; i < got && length + 1 < text_bytes; i++) text[length++] = bytes[i];
    }
    close(ends[0]);
    if (late && pid > 0) kill(-pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) length--;
    text[length] = 0;
    for (int i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ') text[i] = ' ';
    return !late && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static void check_program(check_table *table, const char *group, const char *program, const char *flag, const char *marker,
                          const char *use)
{
    char path[256], text[600];
    if (!find_program(program, path, sizeof path)) {
        check_add(table, group, program, CHECK_NOT_NEEDED, false, "not on PATH; %s", use);
        return;
    }
    const char *const argv[] = {program, flag, NULL};
    const char *shown = "";
    if (flag && run_program(argv, 10, text, sizeof text)) {
        shown = marker ? strstr(text, marker) : text;
        if (!shown) shown = text;
    }
    check_add(table, group, program, CHECK_PASS, false, "%.150s%s%.90s", shown, *shown ? " at " : "", path);
}

void check_tools(check_table *table)
{
    check_program(table, "cuda", "nvcc", "--version", "release", "needed only to build the GPU engine");
    check_program(table, "cuda", "nvidia-smi", NULL, NULL, "comes with the driver");
    check_program(table, "build", "cc", "-dumpfullversion", NULL, "needed only to build mlff");
    check_program(table, "build", "cmake", NULL, NULL, "needed only to build mlff");
    check_program(table, "profilers", "nsys", "--version", "version", "Nsight Systems, for timelines of the GPU");
    check_program(table, "profilers", "ncu", NULL, NULL, "Nsight Compute, for single kernels");
}

void check_python(check_table *table, bool import)
{
    // Versions are read from the packages' files; importing some of them takes many seconds.
    static const char find[] = "import sys, importlib.metadata as m\n"
                               "without = []\n"
                               "for name in sys.argv[1:]:\n"
                               "    try: print(name, m.version(name), end='; ')\n"
                               "    except m.PackageNotFoundError: without.append(name)\n"
                               "if 0 < len(without) < len(sys.argv) - 1: print('without', ', '.join(without))\n";
    static const char ask_torch[] = "import torch; print('torch', torch.__version__, 'sees', torch.cuda.device_count(), 'GPUs')";
    static const char ask_jax[] = "import jax; print('jax', jax.__version__, 'runs on', jax.default_backend())";
    char path[256], text[600];
    if (!find_program("python3", path, sizeof path)) {
        check_add(table, "python", "python3", CHECK_NOT_NEEDED, false, "not on PATH; only the Python package needs it");
        return;
    }
    const char *const version[] = {"python3", "-c", "import sys; print(sys.version.split()[0])", NULL};
    bool works = run_program(version, 20, text, sizeof text);
    check_add(table, "python", "python3", works ? CHECK_PASS : CHECK_FAIL, false, "%.100s%s%.120s", text,
              *text ? " at " : "does not run: ", path);
    if (!works) return;
    const char *const packages[] = {"python3", "-c", find, "numpy", "ase", "torch", "jax", "triton", "cupy", "pycuda", NULL};
    if (run_program(packages, 20, text, sizeof text) && *text)
        check_add(table, "python", "packages", CHECK_PASS, false, "%.240s", text);
    else
        check_add(table, "python", "packages", CHECK_NOT_NEEDED, false, "none of numpy, ase, torch, jax, triton, cupy, pycuda");
    if (!import) return;
    const char *const torch[] = {"python3", "-c", ask_torch, NULL}, *const jax[] = {"python3", "-c", ask_jax, NULL};
    bool found = run_program(torch, 60, text, sizeof text);
    check_add(table, "python", "torch", found ? CHECK_PASS : CHECK_NOT_NEEDED, false, "%.240s",
              found ? text : "cannot be imported");
    found = run_program(jax, 60, text, sizeof text);
    check_add(table, "python", "jax", found ? CHECK_PASS : CHECK_NOT_NEEDED, false, "%.240s",
              found ? text : "cannot be imported");
}
