// SPDX-License-Identifier: MIT
// fail_call.c: runs a program and makes one of its system calls fail, wherever in the C library it is made.
//   fail_call CALL ERROR N PROGRAM ARGUMENTS…
//   fail_call count PROGRAM ARGUMENTS…
// CALL is open, read, write, fsync, rename, mmap or ftruncate, ERROR is ENOSPC, EIO, EMFILE, ENOMEM or EINTR. Call number N (from 1)
// of the process and its threads returns ERROR and is not made. `count`: none fails, and the file in MLFF_FAIL_COUNT has a line for each
// CALL with the number of its calls.
// Exit status: the program's, 128 + signal where it was killed by one, 125 where it cannot be traced.
//
// A seccomp filter stops the program at these calls only (SECCOMP_RET_TRACE), so that everything else runs at full speed.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    int numbers[3]; // of system calls; the last is repeated
} calls[] = {{"open", {SYS_open, SYS_openat, SYS_openat}},
             {"read", {SYS_read, SYS_pread64, SYS_readv}},
             {"write", {SYS_write, SYS_pwrite64, SYS_writev}},
             {"fsync", {SYS_fsync, SYS_fdatasync, SYS_fdatasync}},
             {"rename", {SYS_rename, SYS_renameat, SYS_renameat2}},
             {"mmap", {SYS_mmap, SYS_mmap, SYS_mmap}},
             {"ftruncate", {SYS_ftruncate, SYS_truncate, SYS_truncate}}};
static const struct {
    const char *name;
    int value;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EINTR", EINTR}};

enum { N_CALLS = sizeof calls / sizeof *calls, N_ERRORS = sizeof errors / sizeof *errors };

// Stops at calls first … last, and tells the tracer which one it is.
static int install_filter(size_t first, size_t last)
{
    struct sock_filter code[2 + 6 * N_CALLS];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t c = first; c <= last; c++)
        for (int k = 0; k < 3; k++) {
            code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[c].numbers[k], 0, 1);
            code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | (unsigned)c);
        }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void start(size_t first, size_t last, char **argv)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(125);
    raise(SIGSTOP); // until the tracer has set its options
    if (install_filter(first, last) != 0) _exit(125);
    execv(argv[0], argv);
    _exit(125);
}

// The call at which `thread` stands is not made and returns −error.
static void refuse(pid_t thread, int error)
{
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &registers) != 0) return;
    registers.orig_rax = (unsigned long long)-1;
    registers.rax = (unsigned long long)-error;
    ptrace(PTRACE_SETREGS, thread, NULL, &registers);
}

static int trace(pid_t child, long fail_at, int error, long n_calls[N_CALLS])
{
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC;
    int status, running = 0; // counted from the exec on
    if (waitpid(child, &status, 0) != child || ptrace(PTRACE_SETOPTIONS, child, NULL, options) != 0) return 125;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) return 125;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread != child) continue;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        const int event = status >> 16, signal = WSTOPSIG(status);
        if (event == PTRACE_EVENT_EXEC) running = 1;
        unsigned long call;
        if (event == PTRACE_EVENT_SECCOMP && running && ptrace(PTRACE_GETEVENTMSG, thread, NULL, &call) == 0 &&
            ++n_calls[call] == fail_at)
            refuse(thread, error);
        const int passed_on = event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
        ptrace(PTRACE_CONT, thread, NULL, passed_on);
    }
}

int main(int argc, char **argv)
{
    size_t first = 0, last = N_CALLS - 1, error = 0;
    const int counts = argc > 2 && strcmp(argv[1], "count") == 0;
    while (!counts && argc > 4 && first < N_CALLS && strcmp(calls[first].name, argv[1]) != 0) first++;
    while (!counts && argc > 4 && error < N_ERRORS && strcmp(errors[error].name, argv[2]) != 0) error++;
    if (!counts && (argc < 5 || first == N_CALLS || error == N_ERRORS)) {
        fprintf(stderr, "usage: fail_call CALL ERROR N PROGRAM ARGUMENTS...\n       fail_call count PROGRAM ARGUMENTS...\n");
        return 2;
    }
    if (!counts) last = first;
    long n_calls[N_CALLS] = {0};
    pid_t child = fork();
    if (child == 0) start(first, last, argv + (counts ? 2 : 4));
    const int status = child < 0 ? 125 : trace(child, counts ? 0 : atol(argv[3]), errors[error].value, n_calls);
    const char *path = getenv("MLFF_FAIL_COUNT");
    FILE *file = counts && path ? fopen(path, "w") : NULL;
    if (file) {
        for (size_t c = 0; c < N_CALLS; c++) fprintf(file, "%s %ld\n", calls[c].name, n_calls[c]);
        fclose(file);
    }
    return status;
}
