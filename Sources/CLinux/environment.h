// The environment variables that a privileged process accepts.
#pragma once
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/// Returns 1 if this process may have more rights than the user who started it: its effective user is root, or its
/// effective user or group differs from the real one. Else 0.
static inline int stage_is_privileged(void) {
    return geteuid() == 0 || getuid() != geteuid() || getgid() != getegid();
}

/// Returns 1 if a privileged process accepts a variable, given as `NAME=value`; else 0.
///
/// The reason of each is in the table of SECURITY.md.
static inline int stage_accepts_variable(const char *variable) {
    static const struct {
        const char *name;
        // The maximum size of its value in bytes.
        size_t limit;
    } accepted[] = {
        // These variables disable the network for a run, or shorten it: HookRun and guard.h ignore a longer deadline.
        {"STAGEPACK_OFFLINE", ~0ul},
        {"STAGEPACK_HOOK_DEADLINE", ~0ul},
        {"DPKG_MAINTSCRIPT_NAME", ~0ul},
        {"DPKG_ROOT", ~0ul},
        // Only the empty value, which disables the daemon: the environment must not choose another daemon.
        {"STAGEPACK_SOCKET", 0},
        // The daemon sets them for the handlers that it starts, and ignores a launch that it does not know.
        {"STAGEPACK_SESSION", 1024},
        {"STAGEPACK_LAUNCH", 64},
        // Digests and TLS protect content from a proxy; requests to this machine never use one.
        {"http_proxy", ~0ul},
        {"https_proxy", ~0ul},
        {"HTTPS_PROXY", ~0ul},
        {"all_proxy", ~0ul},
        {"ALL_PROXY", ~0ul},
        {"no_proxy", ~0ul},
        {"NO_PROXY", ~0ul},
        // Set by the service manager (sd_notify(3), sd_listen_fds(3)).
        {"NOTIFY_SOCKET", ~0ul},
        {"WATCHDOG_PID", ~0ul},
        {"WATCHDOG_USEC", ~0ul},
        {"LISTEN_PID", ~0ul},
        {"LISTEN_FDS", ~0ul},
        {"LISTEN_FDNAMES", ~0ul},
        {"JOURNAL_STREAM", 64},
        // The layout of output.
        {"TERM", ~0ul},
        {"COLUMNS", ~0ul},
        {"NO_COLOR", ~0ul},
    };
    const char *value = strchr(variable, '=');
    if (value == NULL) return 0;
    size_t length = (size_t)(value - variable);
    for (size_t index = 0; index < sizeof accepted / sizeof accepted[0]; index++) {
        if (strncmp(variable, accepted[index].name, length) != 0) continue;
        if (accepted[index].name[length] == 0) return strlen(value + 1) <= accepted[index].limit;
    }
    return 0;
}

/// Removes the variables that are not accepted from a list that ends with a null pointer. One pass in place,
/// without an allocation: the list may have any length that execve(2) permits.
static inline void stage_keep_accepted_variables(char **variables) {
    char **kept = variables;
    for (char **next = variables; *next != NULL; next++) {
        if (stage_accepts_variable(*next)) *kept++ = *next;
    }
    *kept = NULL;
}

/// Removes the variables that are not accepted from the environment, and restores the default action of crash
/// signals, for which a runtime may have installed handlers.
static inline void stage_clean_environment(void) {
    extern char **environ;
    const int crashes[] = {SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    // First: a variable may name the program that such a handler starts.
    for (size_t index = 0; index < sizeof crashes / sizeof crashes[0]; index++) {
        signal(crashes[index], SIG_DFL);
    }
    if (environ != NULL) stage_keep_accepted_variables(environ);
}
