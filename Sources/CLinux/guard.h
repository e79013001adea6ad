// A process that does nothing but wait for another one: it has one thread, asks for no memory, keeps to a time and
// ends with a status of its own, whatever becomes of the other.
#pragma once
#include "sandbox.h"
#include <stdlib.h>

/// The limits of a guard, and its lines. All strings belong to the caller and end with a new line.
struct stage_guard {
    /// The milliseconds after which the run is killed.
    int64_t limit;
    /// The same in memory that guard and run share, where the run changes it once it knows better; NULL if there is none.
    int64_t *shared_limit;
    /// Whether the guard ends with the status of the run, or with that of what became of it; else with 0.
    int is_strict;
    /// The line, and the status, for a run that did not stop in time and was killed.
    const char *late;
    int late_status;
    /// The line before and after the number of the signal that ended the run, and the status.
    const char *died_of, *died;
    int died_status;
    /// The line for a second process that could not be made; the status is `died_status`.
    const char *alone;
    /// The line for a run that a signal ended which was handed on, and the status.
    const char *interrupted;
    int interrupted_status;
};

/// The milliseconds that a run has after a signal that asks it to end, and beyond its own deadline.
#define STAGE_GUARD_PATIENCE 5000

/// The options of a hook on a command line.
struct stage_hook {
    int is_hook, is_strict;
    /// The seconds that the hook may take.
    double deadline;
};

/// Returns the number of seconds in `text`, or `otherwise` where it holds none from 0 to some thirty years.
static inline double stage_seconds(const char *text, double otherwise) {
    if (text == NULL) return otherwise;
    char *end = NULL;
    double value = strtod(text, &end);
    return end != text && *end == 0 && value >= 0 && value <= 1e9 ? value : otherwise;
}

/// Tells whether a command line is that of a hook: 'prefetch' with '--hook', or anything that dpkg has a maintainer
/// script do with 'prefetch'. `script` and `seconds` are the variables that say so, or NULL.
static inline struct stage_hook stage_hook_of(
    char *const *arguments, const char *script, const char *seconds) {
    struct stage_hook hook = {.deadline = stage_seconds(seconds, 60)};
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

/// Returns a number that a process shares with those it forks, or NULL where the system has no memory for it.
static inline int64_t *stage_shared_number(int64_t value) {
    void *page = mmap(
        NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    int64_t *number = page;
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
    return number;
}

/// Changes a number that processes share.
static inline void stage_set_shared_number(int64_t *number, int64_t value) {
    __atomic_store_n(number, value, __ATOMIC_RELAXED);
}

/// Returns the milliseconds of a clock that nobody sets.
static inline int64_t stage_milliseconds(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/// Writes to standard output, unless nobody takes it: for a second it is waited for.
static inline void stage_guard_say(const char *text) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&output, 1, 1000) != 1 || (output.revents & POLLOUT) == 0) return;
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) errno = 0;
}

/// Says which signal ended the run, in one piece.
static inline void stage_guard_say_died(const struct stage_guard *guard, int signal) {
    char line[1024];
    int length = snprintf(line, sizeof line, "%s%d%s", guard->died_of, signal, guard->died);
    if (length > 0 && (size_t)length < sizeof line) stage_guard_say(line);
}

/// Makes the calling process the one that the machine ends first where memory runs out: not its guard, and not the
/// package manager.
static inline void stage_go_first(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (write(file, "1000", 4) != 4) errno = 0;
    close(file);
}

/// Becomes the run: a group of its own, which the guard can kill, and which ends with the guard. A terminal does not
/// stop what it writes, and no handler that was there before starts programs where it ends by a trap.
static inline void stage_guard_enter(pid_t guard) {
    static const int traps[] = {SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) errno = 0;
    if (getppid() != guard) _exit(127);
    signal(SIGTTOU, SIG_IGN);
    for (size_t index = 0; index < STAGE_COUNT(traps); index++) signal(traps[index], SIG_DFL);
    stage_go_first();
}

/// Reaps every child that has ended; returns 1 if `run` is among them, with what waitpid(2) said of it.
static inline int stage_guard_reap(pid_t run, int *status) {
    int ending = 0, is_run = 0;
    for (pid_t child; (child = waitpid(-1, &ending, WNOHANG)) > 0;) {
        if (child != run) continue;
        *status = ending;
        is_run = 1;
    }
    return is_run;
}

/// Waits for the end of the run, and hands on the signals in `awaited`; returns 0 where it did not end in time.
static inline int stage_guard_wait(
    const struct stage_guard *guard, pid_t run, const sigset_t *awaited, int *status, int *told) {
    int64_t start = stage_milliseconds(), limit = guard->limit, patience = INT64_MAX;
    for (;;) {
        if (stage_guard_reap(run, status)) return 1;
        if (guard->shared_limit != NULL)
            limit = __atomic_load_n(guard->shared_limit, __ATOMIC_RELAXED);
        int64_t end = start + limit < patience ? start + limit : patience;
        int64_t rest = end - stage_milliseconds();
        if (rest <= 0) return 0;
        // Looked at again each second, so that nothing depends on the signal.
        if (rest > 1000) rest = 1000;
        const struct timespec time = {.tv_sec = rest / 1000, .tv_nsec = rest % 1000 * 1000000};
        int signal = sigtimedwait(awaited, NULL, &time);
        if (signal <= 0 || signal == SIGCHLD) continue;
        kill(-run, signal);
        *told = 1;
        int64_t last = stage_milliseconds() + STAGE_GUARD_PATIENCE;
        if (last < patience) patience = last;
    }
}

/// Kills the children of this process, whose number is `own`; returns 0 where there are none, or none can be seen.
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
        // The last number may be cut; the next look has it.
        if (end == next || *end == 0) break;
        killed |= process > 0 && kill((pid_t)process, SIGKILL) == 0;
    }
    return killed;
}

/// Kills the run and whatever it has started and left, and reaps it, for two seconds at most: a process that waits
/// for a disk ends when the disk lets it.
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

/// Goes on in a second process, and returns there; the first one waits for it, and never returns. The calling process
/// has to have one thread.
static inline void stage_enter_guarded(const struct stage_guard *guard) {
    static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t awaited, before;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (size_t index = 0; index < STAGE_COUNT(handed_on); index++)
        sigaddset(&awaited, handed_on[index]);
    // Blocked, a signal waits even if the process was started with it ignored.
    sigprocmask(SIG_BLOCK, &awaited, &before);
    signal(SIGCHLD, SIG_DFL);
    // What the run leaves behind becomes a child of the guard's.
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
    // Whichever of the two comes first: afterwards the group is there.
    setpgid(run, run);
    int status = 0, told = 0;
    int has_ended = stage_guard_wait(guard, run, &awaited, &status, &told);
    stage_guard_end(run, &awaited, &status);
    int ending = has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : guard->late_status;
    int was_ended = !has_ended || WIFSIGNALED(status);
    if (was_ended && told) {
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
