// The environment variables that a process with privileges believes.
#pragma once
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/// Whether this process can do more than the user who started it may be able to: it acts as root, or as
/// another user or group than the one that started it.
static inline int stage_is_privileged(void) {
    return geteuid() == 0 || getuid() != geteuid() || getgid() != getegid();
}

/// Whether a process with privileges believes a variable, given as `NAME=value`.
///
/// The reason of each is in the table of SECURITY.md.
static inline int stage_is_believed(const char *variable) {
    static const struct {
        const char *name;
        // The bytes that its value may have.
        size_t limit;
    } believed[] = {
        // They keep a run from the network, or shorten it.
        {"STAGEPACK_OFFLINE", ~0ul},
        {"STAGEPACK_HOOK_DEADLINE", ~0ul},
        {"DPKG_MAINTSCRIPT_NAME", ~0ul},
        // No daemon is asked; that another one is, is not the environment's to say.
        {"STAGEPACK_SOCKET", 0},
        // The daemon's own, for the handlers that it starts: a daemon ignores a launch that it does not know.
        {"STAGEPACK_SESSION", 1024},
        {"STAGEPACK_LAUNCH", 64},
        // Digests and TLS hold whatever a proxy does; this machine is never asked through one.
        {"http_proxy", ~0ul},
        {"https_proxy", ~0ul},
        {"HTTPS_PROXY", ~0ul},
        {"all_proxy", ~0ul},
        {"ALL_PROXY", ~0ul},
        {"no_proxy", ~0ul},
        {"NO_PROXY", ~0ul},
        // The service manager's (sd_notify(3), sd_listen_fds(3)).
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
    for (size_t index = 0; index < sizeof believed / sizeof believed[0]; index++) {
        if (strncmp(variable, believed[index].name, length) != 0) continue;
        if (believed[index].name[length] == 0) return strlen(value + 1) <= believed[index].limit;
    }
    return 0;
}

/// Removes from a list of variables, which a null pointer ends, those that are not believed. One pass in
/// place, without memory of its own: the list may be as long as execve(2) takes it.
static inline void stage_keep_believed(char **variables) {
    char **kept = variables;
    for (char **next = variables; *next != NULL; next++) {
        if (stage_is_believed(*next)) *kept++ = *next;
    }
    *kept = NULL;
}

/// Removes from the environment what is not believed, and has signals that a crash sends do what they do by
/// default, whatever a runtime has set for them.
static inline void stage_clean_environment(void) {
    extern char **environ;
    const int crashes[] = {SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    // First: what a handler starts may have been named by a variable.
    for (size_t index = 0; index < sizeof crashes / sizeof crashes[0]; index++) {
        signal(crashes[index], SIG_DFL);
    }
    if (environ != NULL) stage_keep_believed(environ);
}
