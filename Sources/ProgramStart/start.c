#include "ProgramStart.h"
#include "../CLinux/environment.h"

const char *stage_commit(void) {
#ifdef STAGEPACK_COMMIT
    return STAGEPACK_COMMIT;
#else
    return NULL;
#endif
}

// The entry point of the program, with the name that the build gives it if it links several programs into one file.
extern int main(int, char **);
extern int stagepack_main(int, char **) __attribute__((weak));

/// Returns 1 if the running program is `stagepack`, and not another program that contains parts of it; else 0.
static int begins_here(void) {
    return stagepack_main == NULL || main == stagepack_main;
}

/// A function of the Swift runtime (stdlib/public/CommandLineSupport/CommandLine.cpp): sets the arguments that CommandLine
/// returns. The Swift calling convention passes these two parameters as C does.
extern void _swift_stdlib_overrideUnsafeArgvArgc(char **arguments, int count);

/// Passes the arguments to the Swift runtime, which would otherwise find them on the stack by reading /proc/self/maps:
/// without /proc, as while an image is built, or without a free descriptor, it would find none.
///
/// Restores the default action of SIGCHLD: a process inherits an ignored signal (execve(2)), and the kernel then reaps its
/// children, so that their exit statuses are lost (wait(2)).
///
/// Removes variables before the constructors of libraries run, some of which read them: the Swift runtime installs crash
/// handlers that start the program named by SWIFT_BACKTRACE, and GnuTLS reads the file GNUTLS_SYSTEM_PRIORITY_FILE.
static void begin(int count, char **arguments, char **variables) {
    if (!begins_here()) return;
    _swift_stdlib_overrideUnsafeArgvArgc(arguments, count);
    signal(SIGCHLD, SIG_DFL);
    if (stage_is_privileged()) stage_keep_accepted_variables(variables);
}

/// The loader calls these functions of an executable before all other constructors (System V ABI, "Initialization and
/// Termination Functions").
__attribute__((section(".preinit_array"), used))
static void (*first)(int, char **, char **) = begin;
