// Starting a program that may touch little: the steps between fork(2) and execve(2), all of them
// system calls, since the other threads of the process may have held any lock when it was forked.
#pragma once
#include "confinement.h"
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/// Of glibc 2.34 and later, declared for _GNU_SOURCE only: fork(2) without the handlers of
/// pthread_atfork(3).
extern pid_t _Fork(void);

#if defined(__x86_64__)
#define STAGE_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define STAGE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

/// What a program is started with. All strings and arrays belong to the caller.
struct stage_sandbox {
    const char *program;
    char *const *arguments;
    char *const *environment;
    const char *directory;
    int input, output, errors;
    /// A Landlock ruleset, or -1 for none.
    int ruleset;
    uint64_t address_space, file_size, processor_seconds, open_files;
};

/// What a child that could not become the program was doing.
enum stage_sandbox_step {
    STAGE_STEP_NONE = 0,
    STAGE_STEP_STREAMS = 1,
    STAGE_STEP_LIMITS = 2,
    STAGE_STEP_DIRECTORY = 3,
    STAGE_STEP_PRIVILEGES = 4,
    STAGE_STEP_FILES = 5,
    STAGE_STEP_PROGRAM = 6,
};

/// What the child says of itself before it becomes the program, and again if it cannot.
struct stage_sandbox_report {
    int32_t step, error, restricts_files, filters_calls;
};

#ifdef STAGE_AUDIT_ARCH
#define STAGE_LOAD(member) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define STAGE_ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define STAGE_REFUSE(number, error) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), STAGE_ANSWER(error)
#endif

/// Installs the filter of system calls (seccomp(2)).
///
/// Refused: every socket (a connected pair is allowed), io_uring, which would open sockets past the
/// filter, new sessions, System V objects, which outlive their makers, and truncate(2), which
/// Landlock handles from version 3 only. Answered with success and not done: changes of process
/// groups, and of the modes, owners and times of files, which Landlock does not handle at all. So a
/// program that changes them in passing works, and whatever it starts stays in its process group.
STAGE_CHECKED static inline int stage_filter_calls(void) {
#ifdef STAGE_AUDIT_ARCH
    struct sock_filter filter[] = {
        STAGE_LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_AUDIT_ARCH, 1, 0),
        STAGE_ANSWER(EPERM),
        STAGE_LOAD(nr),
#ifdef __x86_64__
        // The calls of the x32 interface, each a second name of one below.
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
        STAGE_ANSWER(ENOSYS),
        STAGE_REFUSE(SYS_chmod, 0),
        STAGE_REFUSE(SYS_chown, 0),
        STAGE_REFUSE(SYS_lchown, 0),
        STAGE_REFUSE(SYS_utime, 0),
        STAGE_REFUSE(SYS_utimes, 0),
        STAGE_REFUSE(SYS_futimesat, 0),
#endif
        STAGE_REFUSE(SYS_fchmod, 0),
        STAGE_REFUSE(SYS_fchmodat, 0),
        STAGE_REFUSE(452 /* fchmodat2, of Linux 6.6 */, 0),
        STAGE_REFUSE(SYS_fchown, 0),
        STAGE_REFUSE(SYS_fchownat, 0),
        STAGE_REFUSE(SYS_utimensat, 0),
        STAGE_REFUSE(SYS_setpgid, 0),
        STAGE_REFUSE(SYS_setxattr, EPERM),
        STAGE_REFUSE(SYS_lsetxattr, EPERM),
        STAGE_REFUSE(SYS_fsetxattr, EPERM),
        STAGE_REFUSE(463 /* setxattrat, of Linux 6.13 */, EPERM),
        STAGE_REFUSE(SYS_removexattr, EPERM),
        STAGE_REFUSE(SYS_lremovexattr, EPERM),
        STAGE_REFUSE(SYS_fremovexattr, EPERM),
        STAGE_REFUSE(466 /* removexattrat, of Linux 6.13 */, EPERM),
        STAGE_REFUSE(468 /* file_setattr, of Linux 6.17 */, EPERM),
        STAGE_REFUSE(SYS_setsid, EPERM),
        STAGE_REFUSE(SYS_socket, EACCES),
        STAGE_REFUSE(SYS_io_uring_setup, EPERM),
        STAGE_REFUSE(SYS_truncate, EACCES),
        STAGE_REFUSE(SYS_shmget, EPERM),
        STAGE_REFUSE(SYS_semget, EPERM),
        STAGE_REFUSE(SYS_msgget, EPERM),
        STAGE_REFUSE(SYS_mq_open, EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {
        .len = sizeof filter / sizeof filter[0],
        .filter = filter,
    };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/// Gives up all capabilities; without new privileges, execve(2) gives none back.
STAGE_CHECKED static inline int stage_drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
    memset(none, 0, sizeof none);
    return (int)syscall(SYS_capset, &header, none);
}

/// Puts `file` where nothing else is moved to, closed by execve(2).
STAGE_CHECKED static inline int stage_move_up(int file) {
    return fcntl(file, F_DUPFD_CLOEXEC, 16);
}

/// Makes the three files the standard streams, and has execve(2) close everything else.
STAGE_CHECKED static inline int stage_take_streams(int input, int output, int errors) {
    input = stage_move_up(input);
    output = stage_move_up(output);
    errors = stage_move_up(errors);
    if (input < 0 || output < 0 || errors < 0) return -1;
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) return -1;
    // close_range(2) with CLOSE_RANGE_CLOEXEC, of Linux 5.11.
    if (syscall(SYS_close_range, 3u, ~0u, 1u << 2) == 0) return 0;
    // Without it each by itself, as many as a process usually has at most.
    for (int file = 3; file < 4096; file++) fcntl(file, F_SETFD, FD_CLOEXEC);
    return 0;
}

/// Limits what the process and each that it starts may use.
STAGE_CHECKED static inline int stage_take_limits(const struct stage_sandbox *sandbox) {
    if (stage_set_limit(RLIMIT_CORE, 0, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_AS, sandbox->address_space, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_FSIZE, sandbox->file_size, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_CPU, sandbox->processor_seconds, 1) != 0) return -1;
    return stage_set_limit(RLIMIT_NOFILE, sandbox->open_files, 1);
}

/// Sets every signal to what it does by default, and lets all of them through.
static inline void stage_reset_signals(void) {
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    for (int signal = 1; signal <= 64; signal++) sigaction(signal, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/// Becomes the program; returns the step that the system refused, with errno set.
STAGE_CHECKED static inline enum stage_sandbox_step stage_enter_sandbox(
    const struct stage_sandbox *sandbox, int pipe, struct stage_sandbox_report *report) {
    if (chdir(sandbox->directory) != 0) return STAGE_STEP_DIRECTORY;
    if (stage_no_new_privileges() != 0) return STAGE_STEP_PRIVILEGES;
    if (stage_drop_capabilities() != 0) return STAGE_STEP_PRIVILEGES;
    if (sandbox->ruleset >= 0) {
        if (stage_landlock_restrict(sandbox->ruleset) != 0) return STAGE_STEP_FILES;
        report->restricts_files = 1;
    }
    if (stage_take_streams(sandbox->input, sandbox->output, sandbox->errors) != 0) {
        return STAGE_STEP_STREAMS;
    }
    // Not before: the host may have more files open than the program may.
    if (stage_take_limits(sandbox) != 0) return STAGE_STEP_LIMITS;
    stage_reset_signals();
    report->filters_calls = stage_filter_calls() == 0;
    // A reader that is gone is of no interest here.
    if (write(pipe, report, sizeof *report) != sizeof *report) errno = 0;
    execve(sandbox->program, sandbox->arguments, sandbox->environment);
    return STAGE_STEP_PROGRAM;
}

/// Starts the program in a process group of its own. Reports of the child go to `pipe`, which
/// execve(2) closes. Returns -1 with errno set where no process could be made.
///
/// The child is killed when the calling thread ends, so a host that is killed leaves none.
STAGE_CHECKED static inline pid_t stage_start_sandboxed(
    const struct stage_sandbox *sandbox, int pipe) {
    sigset_t all, before;
    sigfillset(&all);
    pid_t parent = getpid();
    // No handler of the parent may run in the child.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = _Fork();
    if (child == 0) {
        struct stage_sandbox_report report = {0};
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent) _exit(127);
        int moved = stage_move_up(pipe);
        enum stage_sandbox_step step =
            moved < 0 ? STAGE_STEP_STREAMS : stage_enter_sandbox(sandbox, moved, &report);
        report.step = step;
        report.error = errno;
        if (write(moved, &report, sizeof report) != sizeof report) _exit(126);
        _exit(127);
    }
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    // Whichever of the two comes first: afterwards the group is there.
    if (child > 0) setpgid(child, child);
    errno = error;
    return child;
}

/// Opens a process by its number, to wait for it with poll(2) (pidfd_open(2), of Linux 5.3).
STAGE_CHECKED static inline int stage_open_process(pid_t process) {
    return (int)syscall(SYS_pidfd_open, process, 0);
}

/// Makes a file without a name, in memory (memfd_create(2)).
STAGE_CHECKED static inline int stage_memory_file(void) {
    // MFD_CLOEXEC
    return (int)syscall(SYS_memfd_create, "stagepack", 1u);
}

/// Makes a pipe; each end is closed by execve(2), and reading does not wait.
STAGE_CHECKED static inline int stage_pipe(int ends[2]) {
    if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return -1;
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) return 0;
    int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
    return -1;
}

/// Whether the child has ended; it is not reaped. -1 with errno set where it cannot be told.
STAGE_CHECKED static inline int stage_has_ended(pid_t process) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return -1;
    return info.si_pid == process;
}

/// Returns the status that a child ended with, or 0 and the signal that ended it; it is not reaped.
static inline int stage_ending(pid_t process, int *signal) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    *signal = 0;
    if (waitid(P_PID, (id_t)process, &info, WEXITED | WNOWAIT) != 0) return -1;
    if (info.si_code != CLD_EXITED) *signal = info.si_status;
    return info.si_code == CLD_EXITED ? info.si_status : 0;
}

/// Opens a path for a rule, not for its content (open(2)).
STAGE_CHECKED static inline int stage_open_path(const char *path) {
    return open(path, O_PATH | O_CLOEXEC);
}
