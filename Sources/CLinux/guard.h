// The guard: a process that only waits for another process, the run. It has one thread, allocates no memory, enforces
// a deadline, and exits with a defined status even if the run crashes or hangs.
#pragma once
#include "environment.h"
#include "sandbox.h"
#include <stdlib.h>

/// The limits of a guard, and its messages. The caller owns all strings; each message ends with a newline.
struct stage_guard {
    /// The milliseconds after which the run is killed.
    int64_t limit;
    /// The limit in memory that guard and run share, where the run can change it; NULL if there is none.
    int64_t *shared_limit;
    /// If not 0, the guard exits with the status of the run, or with one of the statuses below; else with 0.
    int is_strict;
    /// The message and the exit status for a run that was killed because it exceeded its time.
    const char *late;
    int late_status;
    /// The message before and after the number of the signal that killed the run, and the exit status.
    const char *died_of, *died;
    int died_status;
    /// The message for a failure of fork(2); the exit status is `died_status`.
    const char *alone;
    /// The message and the exit status for a run that was killed, by a signal or by the guard, after the guard had
    /// forwarded a signal to it.
    const char *interrupted;
    int interrupted_status;
};

/// The milliseconds that a run has to exit after a forwarded signal, and after its own deadline.
#define STAGE_GUARD_PATIENCE 5000

/// The options of a hook on a command line.
struct stage_hook {
    int is_hook, is_strict;
    /// The seconds that the hook may take.
    double deadline;
};

/// Parses a number of seconds from 0 to 1e9; returns `otherwise` for other text and for NULL.
static inline double stage_seconds(const char *text, double otherwise) {
    if (text == NULL) return otherwise;
    char *end = NULL;
    double value = strtod(text, &end);
    return end != text && *end == 0 && value >= 0 && value <= 1e9 ? value : otherwise;
}

/// Reads the options of a hook from a command line. A hook is 'prefetch' with '--hook', or any 'prefetch' that a
/// maintainer script of dpkg runs. `script` is the value of DPKG_MAINTSCRIPT_NAME, `seconds` that of
/// STAGEPACK_HOOK_DEADLINE; NULL if unset.
static inline struct stage_hook stage_hook_of(
    char *const *arguments, const char *script, const char *seconds) {
    struct stage_hook hook = {.deadline = stage_seconds(seconds, 60)};
    // The run sets a longer deadline of the configuration file.
    if (stage_is_privileged() && hook.deadline > 60) hook.deadline = 60;
    if (arguments[0] == NULL || arguments[1] == NULL) return hook;
    if (strcmp(arguments[1], "prefetch") != 0) return hook;
    hook.is_hook = script != NULL;
    for (char *const *argument = arguments + 2; *argument != NULL; argument++) {
        if (strcmp(*argument, "--") == 0) break;
        if (strcmp(*argument, "--hook") == 0) hook.is_hook = 1;
        if (strcmp(*argument, "--strict") == 0) hook.is_strict = 1;
        if (strcmp(*argument, "--deadline") == 0 && argument[1] != NULL)
            hook.deadline = stage_seconds(argument[1], hook.deadline);
        if (strncmp(*argument, "--deadline=", 11) == 0)
            hook.deadline = stage_seconds(*argument + 11, hook.deadline);
    }
    return hook;
}

/// Allocates a number in memory that the process shares with its forked children; NULL without memory.
static inline int64_t *stage_shared_number(int64_t value) {
    void *page = mmap(
        NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    int64_t *number = page;
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
    return number;
}

/// Sets a number that processes share, atomically.
static inline void stage_set_shared_number(int64_t *number, int64_t value) {
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

/// Returns the milliseconds of CLOCK_MONOTONIC.
static inline int64_t stage_milliseconds(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/// Writes to standard output; gives up after one second if the reader accepts nothing.
static inline void stage_guard_say(const char *text) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&output, 1, 1000) != 1 || (output.revents & POLLOUT) == 0) return;
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) errno = 0;
}

/// Writes the message for a run that a signal killed, in one write.
static inline void stage_guard_say_died(const struct stage_guard *guard, int signal) {
    char line[1024];
    int length = snprintf(line, sizeof line, "%s%d%s", guard->died_of, signal, guard->died);
    if (length > 0 && (size_t)length < sizeof line) stage_guard_say(line);
}

/// Makes the calling process the first victim of the out-of-memory killer (oom_score_adj), before its guard and the
/// package manager.
static inline void stage_go_first(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (write(file, "1000", 4) != 4) errno = 0;
    close(file);
}

/// Prepares the child that performs the run: its own process group, killed with the guard, default handlers for
/// trap signals, and no stop when it writes to a terminal from the background (SIGTTOU).
static inline void stage_guard_enter(pid_t guard) {
    static const int traps[] = {SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) errno = 0;
    if (getppid() != guard) _exit(127);
    signal(SIGTTOU, SIG_IGN);
    for (size_t index = 0; index < STAGE_COUNT(traps); index++) signal(traps[index], SIG_DFL);
    stage_go_first();
}

/// Reaps all exited children; returns 1 and sets `*status` to the wait status of the run if it is one of them.
static inline int stage_guard_reap(pid_t run, int *status) {
    int ending = 0, is_run = 0;
    for (pid_t child; (child = waitpid(-1, &ending, WNOHANG)) > 0;) {
        if (child != run) continue;
        *status = ending;
        is_run = 1;
    }
    return is_run;
}

/// Waits until the run has exited, and forwards the signals in `awaited` to its group; returns 0 if its time is over.
///
/// `*was_signalled` is set to 1 once a signal was forwarded.
static inline int stage_guard_wait(
    const struct stage_guard *guard, pid_t run, const sigset_t *awaited, int *status,
    int *was_signalled) {
    int64_t start = stage_milliseconds(), limit = guard->limit, deadline = INT64_MAX;
    for (;;) {
        if (stage_guard_reap(run, status)) return 1;
        if (guard->shared_limit != NULL)
            limit = __atomic_load_n(guard->shared_limit, __ATOMIC_RELAXED);
        int64_t end = start + limit < deadline ? start + limit : deadline;
        int64_t rest = end - stage_milliseconds();
        if (rest <= 0) return 0;
        // Checks again each second, so that a lost SIGCHLD does not matter.
        if (rest > 1000) rest = 1000;
        const struct timespec time = {.tv_sec = rest / 1000, .tv_nsec = rest % 1000 * 1000000};
        int signal = sigtimedwait(awaited, NULL, &time);
        if (signal <= 0 || signal == SIGCHLD) continue;
        kill(-run, signal);
        *was_signalled = 1;
        int64_t last = stage_milliseconds() + STAGE_GUARD_PATIENCE;
        if (last < deadline) deadline = last;
    }
}

/// Kills the children of this process, whose process ID is `own`; returns 0 if there are none, or /proc shows none.
static inline int stage_guard_kill_children(pid_t own) {
    char text[1024];
    snprintf(text, sizeof text, "/proc/self/task/%d/children", own);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    if (count <= 0) return 0;
    text[count] = 0;
    int killed = 0;
    for (char *next = text, *end = NULL;; next = end) {
        long process = strtol(next, &end, 10);
        // The last number may be truncated; the next call reads it.
        if (end == next || *end == 0) break;
        killed |= process > 0 && kill((pid_t)process, SIGKILL) == 0;
    }
    return killed;
}

/// Kills and reaps the run and all its descendants, for two seconds at most: a process in uninterruptible sleep
/// cannot be killed at once.
static inline void stage_guard_end(pid_t run, const sigset_t *awaited, int *status) {
    const struct timespec moment = {.tv_nsec = 20000000};
    kill(-run, SIGKILL);
    for (int tries = 0; tries < 100; tries++) {
        int is_any = stage_guard_kill_children(getpid());
        stage_guard_reap(run, status);
        int is_left = waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
        if (!is_any && !is_left) return;
        sigtimedwait(awaited, NULL, &moment);
    }
}

/// Forks: returns in the child, the run. The parent becomes its guard and exits here. The calling process must have
/// only one thread.
static inline void stage_enter_guarded(const struct stage_guard *guard) {
    static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t awaited, before;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (size_t index = 0; index < STAGE_COUNT(handed_on); index++)
        sigaddset(&awaited, handed_on[index]);
    // A blocked signal stays pending even if the process was started with it ignored.
    sigprocmask(SIG_BLOCK, &awaited, &before);
    signal(SIGCHLD, SIG_DFL);
    // Orphans of the run become children of the guard.
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) errno = 0;
    pid_t own = getpid();
    pid_t run = fork();
    if (run == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        stage_guard_enter(own);
        return;
    }
    signal(SIGPIPE, SIG_IGN);
    if (run < 0) {
        stage_guard_say(guard->alone);
        _exit(guard->is_strict ? guard->died_status : 0);
    }
    // Parent and child both call it, so that the group exists afterwards in each of them.
    setpgid(run, run);
    int status = 0, was_signalled = 0;
    int has_ended = stage_guard_wait(guard, run, &awaited, &status, &was_signalled);
    stage_guard_end(run, &awaited, &status);
    int ending = has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : guard->late_status;
    int was_ended = !has_ended || WIFSIGNALED(status);
    if (was_ended && was_signalled) {
        stage_guard_say(guard->interrupted);
        ending = guard->interrupted_status;
    } else if (!has_ended) {
        stage_guard_say(guard->late);
    } else if (WIFSIGNALED(status)) {
        stage_guard_say_died(guard, WTERMSIG(status));
        ending = guard->died_status;
    }
    _exit(guard->is_strict ? ending : 0);
}
