// SPDX-License-Identifier: MIT
// fail_call.c: runs a program and makes one of its system calls fail, wherever in the C library it is made.
//   fail_call CALL ERROR N PROGRAM ARGUMENTS…
// CALL is open, read, write, fsync, rename, mmap or ftruncate, ERROR is ENOSPC, EIO, EMFILE, ENOMEM or EINTR. Call number N (from 1)
// of the process and its threads returns ERROR and is not made; 0: none. The number of calls goes to the file in MLFF_FAIL_COUNT.
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

static int install_filter(const int numbers[3])
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[0], 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[1], 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[2], 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void start(const int numbers[3], char **argv)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(125);
    raise(SIGSTOP); // until the tracer has set its options
    if (install_filter(numbers) != 0) _exit(125);
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

static int trace(pid_t child, long fail_at, int error, long *n_calls)
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
        if (event == PTRACE_EVENT_SECCOMP && running && ++*n_calls == fail_at) refuse(thread, error);
        const int passed_on = event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
        ptrace(PTRACE_CONT, thread, NULL, passed_on);
    }
}

int main(int argc, char **argv)
{
    size_t call = 0, error = 0;
    const size_t n = sizeof calls / sizeof *calls, n_errors = sizeof errors / sizeof *errors;
    while (argc > 4 && call < n && strcmp(calls[call].name, argv[1]) != 0) call++;
    while (argc > 4 && error < n_errors && strcmp(errors[error].name, argv[2]) != 0) error++;
    if (argc < 5 || call == n || error == n_errors) {
        fprintf(stderr, "usage: fail_call CALL ERROR N PROGRAM ARGUMENTS...\n");
        return 2;
    }
    long n_calls = 0;
    pid_t child = fork();
    if (child == 0) start(calls[call].numbers, argv + 4);
    const int status = child < 0 ? 125 : trace(child, atol(argv[3]), errors[error].value, &n_calls);
    const char *path = getenv("MLFF_FAIL_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", n_calls);
        fclose(file);
    }
    return status;
}
