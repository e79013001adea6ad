// Landlock (landlock(7)), the attributes of a thread, and spawning children that inherit few descriptors.
// Each returns what the call returns, -1 with errno set on failure, unless it says otherwise.
#pragma once
#include "shim.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <time.h>

/// Declared by glibc 2.34 and later, for _GNU_SOURCE only.
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *, int);

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif

/// The accesses that a ruleset handles, as of version 6 of the interface; older kernels accept a prefix of it.
struct stage_landlock_handled {
    uint64_t files;
    uint64_t network;
    uint64_t scopes;
};

/// Returns the Landlock version of the kernel; -1 if the kernel lacks Landlock or it is disabled.
STAGE_CHECKED static inline int stage_landlock_version(void) {
    return (int)syscall(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

/// Creates a ruleset from the first `size` bytes of `handled`.
STAGE_CHECKED static inline int stage_landlock_create(
    const struct stage_landlock_handled *handled, size_t size) {
    return (int)syscall(SYS_landlock_create_ruleset, handled, size, 0);
}

/// Allows `access` beneath the open directory `parent`.
STAGE_CHECKED static inline int stage_landlock_allow(int ruleset, int parent, uint64_t access) {
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = parent};
    return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/// Restricts the calling thread and the threads that it creates afterwards.
STAGE_CHECKED static inline int stage_landlock_restrict(int ruleset) {
    return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}

/// Sets no_new_privs for the calling thread: execve(2) grants it no privileges (set-user-ID bits, capabilities).
STAGE_CHECKED static inline int stage_no_new_privileges(void) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/// Gives the calling thread a umask and a current directory of its own.
STAGE_CHECKED static inline int stage_unshare_fs(void) {
    return (int)syscall(SYS_unshare, CLONE_FS);
}

/// Keeps other processes of the user from tracing this one and from its descriptors and environment
/// (PR_SET_DUMPABLE, ptrace(2)), until it executes a program.
static inline void stage_forbid_tracing(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

/// Names the calling thread, in at most 15 bytes.
STAGE_CHECKED static inline int stage_name_thread(const char *name) {
    return prctl(PR_SET_NAME, name, 0, 0, 0);
}

/// Sets the soft limit of a resource, and the hard one where `hard` is not 0 (prlimit(2)).
STAGE_CHECKED static inline int stage_set_limit(int resource, uint64_t limit, int hard) {
    struct {
        uint64_t soft, hard;
    } value;
    if (syscall(SYS_prlimit64, 0, resource, NULL, &value) != 0) return -1;
    value.soft = limit < value.hard ? limit : value.hard;
    if (hard) value.hard = value.soft;
    return (int)syscall(SYS_prlimit64, 0, resource, &value, NULL);
}

/// Returns the seconds of processor time that the process has used, rounded up.
static inline uint64_t stage_cpu_seconds(void) {
    struct timespec used;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return 0;
    return (uint64_t)used.tv_sec + 1;
}

/// Creates a pipe whose ends execve(2) closes (pipe2(2)).
STAGE_CHECKED static inline int stage_plain_pipe(int ends[2]) {
    return (int)syscall(SYS_pipe2, ends, O_CLOEXEC);
}

/// Writes to a pipe; without a reader, fails with EPIPE and raises no SIGPIPE.
STAGE_CHECKED static inline ssize_t stage_write_pipe(int pipe, const void *bytes, size_t count) {
    sigset_t broken, before, pending;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    ssize_t written = write(pipe, bytes, count);
    int error = errno;
    // Consumes the signal of this call, pending for this thread; one that was pending before stays.
    if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
        struct timespec at_once = {0};
        while (sigtimedwait(&broken, NULL, &at_once) < 0 && errno == EINTR) {}
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

/// Spawns `path` with `actions` for its descriptors, all signals unblocked and at their default action. `flags` adds
/// flags of posix_spawnattr_setflags(3). Returns an error number, 0 for success.
STAGE_CHECKED static inline int stage_spawn_with_actions(
    pid_t *child, const char *path, char *const arguments[], char *const environment[],
    const posix_spawn_file_actions_t *actions, short flags) {
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int status = posix_spawnattr_init(&attributes);
    if (status != 0) return status;
    status = posix_spawnattr_setsigmask(&attributes, &none);
    if (status == 0) status = posix_spawnattr_setsigdefault(&attributes, &all);
    if (status == 0) status = posix_spawnattr_setpgroup(&attributes, 0);
    if (status == 0)
        status = posix_spawnattr_setflags(
            &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | flags);
    if (status == 0)
        status = posix_spawn(child, path, actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    return status;
}

/// Spawns `path` with `input` and `output` as its standard streams and the inherited standard error, in the process group
/// of the caller, so that it may read from the terminal. Returns an error number, 0 for success.
STAGE_CHECKED static inline int stage_spawn_conversation(
    pid_t *child, const char *path, char *const arguments[], char *const environment[], int input,
    int output) {
    posix_spawn_file_actions_t actions;
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0) return status;
    status = posix_spawn_file_actions_adddup2(&actions, input, 0);
    if (status == 0) status = posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (status == 0) status = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (status == 0)
        status = stage_spawn_with_actions(child, path, arguments, environment, &actions, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

/// Spawns `path` with an empty environment. It inherits standard error, and `channel` as descriptor 3; its standard input
/// and output are /dev/null. Returns an error number, 0 for success.
STAGE_CHECKED static inline int stage_spawn(
    pid_t *child, const char *path, char *const arguments[], int channel) {
    posix_spawn_file_actions_t actions;
    char *environment[] = {NULL};
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0) return status;
    status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    if (status == 0) status = posix_spawn_file_actions_adddup2(&actions, 0, 1);
    if (status == 0) status = posix_spawn_file_actions_adddup2(&actions, channel, 3);
    if (status == 0) status = posix_spawn_file_actions_addclosefrom_np(&actions, 4);
    // A process group of its own: the parent handles Ctrl-C at a terminal.
    if (status == 0)
        status = stage_spawn_with_actions(
            child, path, arguments, environment, &actions, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}
