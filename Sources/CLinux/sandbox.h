// Starting a program that may touch little: the steps between fork(2) and execve(2), all of them
// system calls, since the other threads of the process may have held any lock when it was forked.
#pragma once
#include "calls.h"
#include <linux/capability.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#define MFD_ALLOW_SEALING 2u
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define F_SEAL_WRITE 8
#endif

#ifndef CLONE_NEWNS
#define CLONE_NEWNS 0x20000
#endif

/// Of glibc 2.34 and later, declared for _GNU_SOURCE only: fork(2) without the handlers of
/// pthread_atfork(3).
extern pid_t _Fork(void);

/// What a program is started with. All strings and arrays belong to the caller.
struct stage_sandbox {
    const char *program;
    char *const *arguments;
    char *const *environment;
    const char *directory;
    int input, output, errors;
    /// A Landlock ruleset, or -1 for none.
    int ruleset;
    /// Whether the ruleset keeps signals within the sandbox.
    int confines_signals;
    /// Whether the program is not started where its system calls cannot be filtered.
    int requires_filter;
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
    STAGE_STEP_CALLS = 7,
};

/// What the child says of itself before it becomes the program, and again if it cannot.
struct stage_sandbox_report {
    int32_t step, error, restricts_files, filters_calls;
};

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
    // 1 is less than any core has, and unlike 0 keeps it from a program that takes cores, too (core(5)).
    if (stage_set_limit(RLIMIT_CORE, 1, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_AS, sandbox->address_space, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_FSIZE, sandbox->file_size, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_CPU, sandbox->processor_seconds, 1) != 0) return -1;
    return stage_set_limit(RLIMIT_NOFILE, sandbox->open_files, 1);
}

/// Sets every signal to what it does by default.
static inline void stage_reset_handlers(void) {
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    for (int signal = 1; signal <= 64; signal++) sigaction(signal, &standard, NULL);
}

/// Sets every signal to what it does by default, and lets all of them through.
static inline void stage_reset_signals(void) {
    stage_reset_handlers();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/// Puts a `/proc` without other processes and without the settings of the kernel in the place of the
/// machine's, for this process and its children, where it has the right to (CAP_SYS_ADMIN).
///
/// A process of root's reads there what its user could not: the arguments of all processes aside, files
/// of the kernel that are root's. Of `hidepid=ptraceable` and `subset=pid` all kernels know that have
/// Landlock.
static inline void stage_hide_processes(void) {
    if (syscall(SYS_unshare, CLONE_NEWNS) != 0) return;
    // The new mount is not to appear in the namespace of the host. No mount at all in a chroot without.
    if (mount(NULL, "/proc", NULL, MS_PRIVATE, NULL) != 0) return;
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
    if (mount("proc", "/proc", "proc", flags, "hidepid=ptraceable,subset=pid") != 0) errno = 0;
}

/// Allows the process to read below `/proc`, where runtimes look at their threads by number.
static inline void stage_allow_processes(int ruleset) {
    int directory = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    // There may be none.
    if (directory < 0) return;
    uint64_t access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    if (stage_landlock_allow(ruleset, directory, access) != 0) errno = 0;
    close(directory);
}

/// Becomes the program; returns the step that the system refused, with errno set.
STAGE_CHECKED static inline enum stage_sandbox_step stage_enter_sandbox(
    const struct stage_sandbox *sandbox, int pipe, struct stage_sandbox_report *report) {
    if (chdir(sandbox->directory) != 0) return STAGE_STEP_DIRECTORY;
    if (stage_no_new_privileges() != 0) return STAGE_STEP_PRIVILEGES;
    if (stage_drop_capabilities() != 0) return STAGE_STEP_PRIVILEGES;
    if (sandbox->ruleset >= 0) {
        stage_allow_processes(sandbox->ruleset);
        if (stage_landlock_restrict(sandbox->ruleset) != 0) return STAGE_STEP_FILES;
        report->restricts_files = 1;
    }
    if (stage_take_streams(sandbox->input, sandbox->output, sandbox->errors) != 0) {
        return STAGE_STEP_STREAMS;
    }
    // Not before: the host may have more files open than the program may.
    if (stage_take_limits(sandbox) != 0) return STAGE_STEP_LIMITS;
    stage_reset_signals();
    report->filters_calls =
        stage_filter_calls(sandbox->ruleset >= 0 && sandbox->confines_signals) == 0;
    if (!report->filters_calls && sandbox->requires_filter) return STAGE_STEP_CALLS;
    // A reader that is gone is of no interest here.
    if (write(pipe, report, sizeof *report) != sizeof *report) errno = 0;
    execve(sandbox->program, sandbox->arguments, sandbox->environment);
    return STAGE_STEP_PROGRAM;
}

/// Becomes the program, in a process group of its own, or reports to `pipe` why it cannot.
static inline _Noreturn void stage_run_program(
    const struct stage_sandbox *sandbox, int pipe, pid_t supervisor) {
    struct stage_sandbox_report report = {0};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != supervisor) _exit(127);
    int moved = stage_move_up(pipe);
    enum stage_sandbox_step step =
        moved < 0 ? STAGE_STEP_STREAMS : stage_enter_sandbox(sandbox, moved, &report);
    report.step = step;
    report.error = errno;
    if (write(moved, &report, sizeof report) != sizeof report) _exit(126);
    _exit(127);
}

/// Waits until the program has ended, or this process is told to end it: by SIGTERM, which the kernel
/// sends as well when the host dies. Orphans of the program are reaped, the program itself is not.
static inline void stage_await_program(pid_t program) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    for (;;) {
        siginfo_t child;
        for (;;) {
            memset(&child, 0, sizeof child);
            if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) != 0) return;
            if (child.si_pid == program) return;
            if (child.si_pid == 0) break;
            waitpid(child.si_pid, NULL, 0);
        }
        if (sigwaitinfo(&awaited, NULL) == SIGTERM) return;
    }
}

/// Kills the program's group, and reaps until nothing is left that the program started, for 5 s at
/// most. Returns what waitpid(2) said of the program.
static inline int stage_end_group(pid_t program) {
    // The program is not reaped yet, so its number is that of its group and of no other.
    kill(-program, SIGKILL);
    kill(program, SIGKILL);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    const struct timespec moment = {.tv_nsec = 100000000};
    int status = 0, ending = SIGKILL;
    for (int patience = 50; patience > 0;) {
        pid_t child = waitpid(-1, &status, WNOHANG);
        if (child < 0) break;
        if (child == program) ending = status;
        if (child == 0 && sigtimedwait(&awaited, NULL, &moment) < 0) patience -= 1;
    }
    return ending;
}

/// Ends as another process has ended, by waitpid(2)'s word.
static inline _Noreturn void stage_end_likewise(int status) {
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    sigset_t deadly;
    sigemptyset(&deadly);
    sigaddset(&deadly, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &deadly, NULL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

/// Starts the program as a child, waits for its end and for that of all it started, and ends likewise.
///
/// Outside the sandbox and in a group of its own, so that what kills the program's group or the host's
/// leaves it alive to kill the other. Orphans in the sandbox become its children.
static inline _Noreturn void stage_supervise(
    const struct stage_sandbox *sandbox, int pipe, pid_t host) {
    stage_reset_handlers();
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0 || getppid() != host) _exit(127);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (stage_set_limit(RLIMIT_CORE, 1, 1) != 0) _exit(127);
    stage_hide_processes();
    pid_t supervisor = getpid();
    pid_t program = _Fork();
    if (program == 0) stage_run_program(sandbox, pipe, supervisor);
    if (program < 0) {
        struct stage_sandbox_report report = {.step = STAGE_STEP_PROGRAM, .error = errno};
        if (write(pipe, &report, sizeof report) != sizeof report) _exit(126);
        _exit(127);
    }
    // Whichever of the two comes first: afterwards the group is there.
    setpgid(program, program);
    // By another name than the host: what kills all processes of the host's name leaves it alive.
    if (stage_name_thread("extension-guard") != 0) errno = 0;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (stage_no_new_privileges() != 0 || stage_drop_capabilities() != 0) errno = 0;
    // Nothing of the host's stays open: its locks and pipes may depend on it.
    if (syscall(SYS_close_range, 0u, ~0u, 0u) != 0) {
        for (int file = 0; file < 4096; file++) close(file);
    }
    stage_await_program(program);
    stage_end_likewise(stage_end_group(program));
}

/// Starts a supervisor and, as its child, the program in a process group of its own. Reports of the
/// program go to `pipe`, which execve(2) closes. Returns the supervisor, which ends as the program does
/// once all processes of the sandbox have ended, and which SIGTERM tells to kill them; -1 with errno set
/// where no process could be made.
///
/// It kills them also when the calling thread ends, so a host that is killed leaves none.
STAGE_CHECKED static inline pid_t stage_start_sandboxed(
    const struct stage_sandbox *sandbox, int pipe) {
    sigset_t all, before;
    sigfillset(&all);
    pid_t host = getpid();
    // No handler of the parent may run in the children; the supervisor asks for its signals.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t supervisor = _Fork();
    if (supervisor == 0) stage_supervise(sandbox, pipe, host);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return supervisor;
}

/// Opens a process by its number, to wait for it with poll(2) (pidfd_open(2), of Linux 5.3).
STAGE_CHECKED static inline int stage_open_process(pid_t process) {
    return (int)syscall(SYS_pidfd_open, process, 0);
}

/// Makes a file without a name, in memory (memfd_create(2)).
STAGE_CHECKED static inline int stage_memory_file(void) {
    // MFD_NOEXEC_SEAL, of Linux 6.3, which a machine may ask for.
    int file = (int)syscall(SYS_memfd_create, "stagepack", MFD_CLOEXEC | 8u);
    if (file >= 0 || errno != EINVAL) return file;
    return (int)syscall(SYS_memfd_create, "stagepack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/// Has a file in memory stay as it is: it can be neither written nor executed (fcntl(2)).
STAGE_CHECKED static inline int stage_seal(int file) {
    if (fchmod(file, S_IRUSR) != 0) return -1;
    return fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
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
