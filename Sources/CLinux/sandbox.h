// Starts a program in a sandbox: the steps between fork(2) and execve(2). They make system calls only,
// since other threads of the process may have held any lock at the time of the fork.
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

/// fork(2) without the handlers of pthread_atfork(3); glibc 2.34 and later declare it for _GNU_SOURCE only.
extern pid_t _Fork(void);

/// Start parameters of a program. The caller owns all strings and arrays.
struct stage_sandbox {
    const char *program;
    char *const *arguments;
    char *const *environment;
    const char *directory;
    int input, output, errors;
    /// A Landlock ruleset, or -1 for none.
    int ruleset;
    /// Not 0 if the ruleset keeps signals within the sandbox.
    int confines_signals;
    /// If not 0, the program is started only with a filter of its system calls.
    int requires_filter;
    uint64_t address_space, file_size, processor_seconds, open_files;
};

/// The step at which a child failed before execve(2).
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

/// The report of a child: written before execve(2), and again if a step has failed.
struct stage_sandbox_report {
    int32_t step, error, restricts_files, filters_calls;
};

/// Drops all capabilities; with no_new_privs set, execve(2) does not restore them.
STAGE_CHECKED static inline int stage_drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
    memset(none, 0, sizeof none);
    return (int)syscall(SYS_capset, &header, none);
}

/// Duplicates `file` to a descriptor of 16 or more that execve(2) closes.
STAGE_CHECKED static inline int stage_move_up(int file) {
    return fcntl(file, F_DUPFD_CLOEXEC, 16);
}

/// Closes the descriptors from `first` to `last` (close_range(2), Linux 5.9).
static inline void stage_close_range(unsigned first, unsigned last) {
    if (syscall(SYS_close_range, first, last, 0u) == 0) return;
    // Older kernels: closes them one by one, up to a number that processes hardly exceed.
    for (unsigned file = first; file <= last && file < 4096; file++) close((int)file);
}

/// Makes the three files the standard streams, and closes everything else but `kept`, a descriptor that
/// `stage_move_up` has returned.
///
/// Does not rely on execve(2) to close files: a step before it may wait forever for a file system in user space (fuse(4)).
/// The process could not be killed then, and would hold locks of the parent.
STAGE_CHECKED static inline int stage_take_streams(int input, int output, int errors, int kept) {
    input = stage_move_up(input);
    output = stage_move_up(output);
    errors = stage_move_up(errors);
    if (input < 0 || output < 0 || errors < 0) return -1;
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) return -1;
    stage_close_range(3, (unsigned)kept - 1);
    stage_close_range((unsigned)kept + 1, ~0u);
    return 0;
}

/// Sets the resource limits of the process; each process that it starts inherits them.
STAGE_CHECKED static inline int stage_take_limits(const struct stage_sandbox *sandbox) {
    // No core fits into 1 byte; unlike 0, this also prevents a core dump to a pipe program (core(5)).
    if (stage_set_limit(RLIMIT_CORE, 1, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_AS, sandbox->address_space, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_FSIZE, sandbox->file_size, 1) != 0) return -1;
    if (stage_set_limit(RLIMIT_CPU, sandbox->processor_seconds, 1) != 0) return -1;
    return stage_set_limit(RLIMIT_NOFILE, sandbox->open_files, 1);
}

/// Sets the default action of every signal.
static inline void stage_reset_handlers(void) {
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    for (int signal = 1; signal <= 64; signal++) sigaction(signal, &standard, NULL);
}

/// Sets the default action of every signal, and unblocks all signals.
static inline void stage_reset_signals(void) {
    stage_reset_handlers();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/// Mounts a `/proc` without other processes and without kernel settings over the existing one, for this
/// process and its children; needs CAP_SYS_ADMIN, and does nothing without it.
///
/// A process of root could otherwise read the arguments of all processes there, and files of the kernel
/// that only root may read. All kernels with Landlock support `hidepid=ptraceable` and `subset=pid`.
static inline void stage_hide_processes(void) {
    if (syscall(SYS_unshare, CLONE_NEWNS) != 0) return;
    // The new mount must not appear in the namespace of the host. A chroot may have no mount here.
    if (mount(NULL, "/proc", NULL, MS_PRIVATE, NULL) != 0) return;
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
    if (mount("proc", "/proc", "proc", flags, "hidepid=ptraceable,subset=pid") != 0) errno = 0;
}

/// Allows the process to read below `/proc`, where runtimes read the state of their threads.
static inline void stage_allow_processes(int ruleset) {
    int directory = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    // `/proc` may be missing.
    if (directory < 0) return;
    uint64_t access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    if (stage_landlock_allow(ruleset, directory, access) != 0) errno = 0;
    close(directory);
}

/// Applies the sandbox and executes the program; returns only on failure: the failed step, with errno set.
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
    if (stage_take_streams(sandbox->input, sandbox->output, sandbox->errors, pipe) != 0) {
        return STAGE_STEP_STREAMS;
    }
    // Sets the limits last: the host may have more files open than the limit of the program.
    if (stage_take_limits(sandbox) != 0) return STAGE_STEP_LIMITS;
    stage_reset_signals();
    report->filters_calls =
        stage_filter_calls(sandbox->ruleset >= 0 && sandbox->confines_signals) == 0;
    if (!report->filters_calls && sandbox->requires_filter) return STAGE_STEP_CALLS;
    // The reader may have exited; that is no error here.
    if (write(pipe, report, sizeof *report) != sizeof *report) errno = 0;
    execve(sandbox->program, sandbox->arguments, sandbox->environment);
    return STAGE_STEP_PROGRAM;
}

/// Executes the program in a process group of its own, or reports to `pipe` why it cannot.
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

/// Waits until the program has exited or this process receives SIGTERM, which the kernel also sends when
/// the host dies. Reaps orphans of the program, but not the program itself.
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

/// Kills the program's group, and reaps until all descendants of the program have exited, for 5 s at most.
/// Returns the wait status of the program.
static inline int stage_end_group(pid_t program) {
    // The program is not reaped yet, so its process ID still identifies its group.
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

/// Ends this process as `status`, a wait status, says: with the same exit status, or by the same signal.
static inline _Noreturn void stage_end_likewise(int status) {
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    sigset_t deadly;
    sigemptyset(&deadly);
    sigaddset(&deadly, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &deadly, NULL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

/// Starts the program as a child, waits until it and its descendants have exited, and ends likewise.
///
/// The supervisor runs outside the sandbox in a process group of its own, so that it survives a signal to
/// the group of the program or of the host. Orphans in the sandbox become its children.
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
    // Parent and child both call it, so that the group exists afterwards in each of them.
    setpgid(program, program);
    // A name other than the host's, so that killing all processes of that name does not kill it.
    if (stage_name_thread("extension-guard") != 0) errno = 0;
    stage_forbid_tracing();
    if (stage_no_new_privileges() != 0 || stage_drop_capabilities() != 0) errno = 0;
    // Closes all files of the host: open descriptors here could hold its locks and pipes.
    stage_close_range(0, ~0u);
    stage_await_program(program);
    stage_end_likewise(stage_end_group(program));
}

/// Starts a supervisor and, as its child, the program in a process group of its own. Reports of the
/// program go to `pipe`, which execve(2) closes. Returns the process ID of the supervisor; -1 with errno set
/// if fork(2) fails.
///
/// The supervisor ends as the program does, once all processes of the sandbox have exited. It kills them on
/// SIGTERM and when the calling thread ends, so none of them survives the host.
STAGE_CHECKED static inline pid_t stage_start_sandboxed(
    const struct stage_sandbox *sandbox, int pipe) {
    sigset_t all, before;
    sigfillset(&all);
    pid_t host = getpid();
    // No handler of the parent may run in the children; the supervisor uses sigwaitinfo(2).
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t supervisor = _Fork();
    if (supervisor == 0) stage_supervise(sandbox, pipe, host);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return supervisor;
}

/// Opens a process by its ID, to wait for it with poll(2) (pidfd_open(2), Linux 5.3).
STAGE_CHECKED static inline int stage_open_process(pid_t process) {
    return (int)syscall(SYS_pidfd_open, process, 0);
}

/// Sends a signal to a process that `stage_open_process` has opened (pidfd_send_signal(2), Linux 5.1).
STAGE_CHECKED static inline int stage_signal_process(int process, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, process, signal, NULL, 0);
}

/// Creates an anonymous file in memory (memfd_create(2)).
STAGE_CHECKED static inline int stage_memory_file(void) {
    // MFD_NOEXEC_SEAL, Linux 6.3, which a system may require (vm.memfd_noexec).
    int file = (int)syscall(SYS_memfd_create, "stagepack", MFD_CLOEXEC | 8u);
    if (file >= 0 || errno != EINVAL) return file;
    return (int)syscall(SYS_memfd_create, "stagepack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/// Seals a file in memory: it can be neither written nor executed (fcntl(2)).
STAGE_CHECKED static inline int stage_seal(int file) {
    if (fchmod(file, S_IRUSR) != 0) return -1;
    return fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

/// Creates a pipe; execve(2) closes both ends, and reads do not block.
STAGE_CHECKED static inline int stage_pipe(int ends[2]) {
    if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return -1;
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) return 0;
    int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
    return -1;
}

/// Returns 1 if the child has exited, else 0; does not reap it. -1 with errno set on failure: ECHILD if there is no such
/// child, as in a process that ignores SIGCHLD, whose children the kernel reaps.
STAGE_CHECKED static inline int stage_has_ended(pid_t process) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return -1;
    return info.si_pid == process;
}

/// Sends a signal to a child, or to its process group. Does nothing if there is no such child: the kernel may have given
/// its process ID to another process.
static inline void stage_signal_child(pid_t process, int is_group, int signal) {
    if (stage_has_ended(process) < 0) return;
    if (is_group && kill(-process, signal) == 0) return;
    // A process that has just started may not have its own group yet.
    kill(process, signal);
}

/// Waits until a child has exited. Returns its exit status, or 0 and in `*signal` the signal that killed it. -1 with
/// errno set if the kernel does not tell, as of children that it has reaped (ECHILD). Reaps it unless `keeps` is set.
STAGE_CHECKED static inline int stage_ending(pid_t process, int keeps, int *signal) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    *signal = 0;
    int options = WEXITED | (keeps ? WNOWAIT : 0);
    while (waitid(P_PID, (id_t)process, &info, options) != 0) {
        if (errno != EINTR) return -1;
    }
    if (info.si_code != CLD_EXITED) *signal = info.si_status;
    return info.si_code == CLD_EXITED ? info.si_status : 0;
}

/// Opens a path for a Landlock rule, without access to the content (open(2)).
STAGE_CHECKED static inline int stage_open_path(const char *path) {
    return open(path, O_PATH | O_CLOEXEC);
}
