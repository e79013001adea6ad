// Starts a program as another user, from a process that has threads.
//
// setuid(3) and the like are not plain system calls: glibc changes every thread of the process, and after
// fork(2) or clone(2) waits for threads that no longer exist. So the child makes the system calls itself.
#pragma once
#include "sandbox.h"

/// Start parameters of a program. The caller owns all strings and arrays.
struct stage_user_program {
    const char *program;
    char *const *arguments;
    char *const *environment;
    const char *directory;
    /// The descriptor of its standard input and output, or -1 for /dev/null.
    int channel;
    /// An open descriptor of `cgroup.procs` of the control group that it joins, or -1.
    int control_group;
    /// If not 0, the program runs as the user below.
    int changes_user;
    unsigned user, group;
    const unsigned *groups;
    size_t group_count;
};

/// The step at which a child failed before execve(2).
enum stage_user_step {
    STAGE_USER_STEP_STREAMS = 1,
    STAGE_USER_STEP_USER = 2,
    STAGE_USER_STEP_DIRECTORY = 3,
    STAGE_USER_STEP_PROGRAM = 4,
    STAGE_USER_STEP_GROUP = 5,
};

/// The report of a child that failed before execve(2).
struct stage_user_report {
    int32_t step, error;
};

/// Changes the user and executes the program; returns only on failure: the failed step, with errno set. Of the
/// descriptors of the parent, only `pipe` stays open.
STAGE_CHECKED static inline enum stage_user_step stage_become(
    const struct stage_user_program *start, int pipe) {
    // First, as the user that the group belongs to; "0" is the writing process (cgroups(7)).
    if (start->control_group >= 0 && write(start->control_group, "0", 1) != 1) {
        return STAGE_USER_STEP_GROUP;
    }
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int channel = start->channel < 0 ? nothing : start->channel;
    if (nothing < 0 || stage_take_streams(channel, channel, nothing, pipe) != 0) {
        return STAGE_USER_STEP_STREAMS;
    }
    // From here on the user chooses what the process waits for: it holds no lock of the parent any more.
    if (start->changes_user) {
        // The user last: afterwards the process has no right to change the groups.
        if (syscall(SYS_setgroups, start->group_count, start->groups) != 0 ||
            syscall(SYS_setresgid, start->group, start->group, start->group) != 0 ||
            syscall(SYS_setresuid, start->user, start->user, start->user) != 0) {
            return STAGE_USER_STEP_USER;
        }
    }
    // A keyring of its own, not the one that all children of this process share (keyrings(7));
    // KEYCTL_JOIN_SESSION_KEYRING is 1. On a kernel without keyrings (ENOSYS), or with a filter that refuses
    // them to all processes (EPERM), no keyring is shared.
    if (syscall(SYS_keyctl, 1, NULL) < 0 && errno != ENOSYS && errno != EPERM) {
        return STAGE_USER_STEP_USER;
    }
    umask(022);
    if (chdir(start->directory) != 0) return STAGE_USER_STEP_DIRECTORY;
    stage_reset_signals();
    execve(start->program, start->arguments, start->environment);
    return STAGE_USER_STEP_PROGRAM;
}

/// Starts the program in a session of its own, with only its three standard streams open. A child that
/// fails reports to `pipe`, which execve(2) closes. Returns its process ID; -1 with errno set if fork(2)
/// fails.
STAGE_CHECKED static inline pid_t stage_start_as_user(
    const struct stage_user_program *start, int pipe) {
    sigset_t all, before;
    sigfillset(&all);
    // No handler of the parent may run in the child.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = _Fork();
    if (child == 0) {
        setsid();
        int moved = stage_move_up(pipe);
        struct stage_user_report report = {
            .step = moved < 0 ? STAGE_USER_STEP_STREAMS : stage_become(start, moved),
        };
        report.error = errno;
        if (write(moved, &report, sizeof report) != sizeof report) _exit(126);
        _exit(127);
    }
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return child;
}
