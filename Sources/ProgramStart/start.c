#include "ProgramStart.h"
#include "../CLinux/environment.h"

const char *stage_commit(void) {
#ifdef STAGEPACK_COMMIT
    return STAGEPACK_COMMIT;
#else
    return NULL;
#endif
}

// The function that the program begins at, by the name that the build gives it where it links more than one program into a file.
extern int main(int, char **);
extern int stagepack_main(int, char **) __attribute__((weak));

/// Whether the running program is `stagepack`, and not another one that has parts of it.
static int begins_here(void) {
    return stagepack_main == NULL || main == stagepack_main;
}

/// Of Swift's runtime (stdlib/public/CommandLineSupport/CommandLine.cpp): the arguments that CommandLine tells.
/// Its calling convention passes these two as C does.
extern void _swift_stdlib_overrideUnsafeArgvArgc(char **arguments, int count);

/// Hands Swift's runtime the arguments, which it would look for on the stack as /proc/self/maps shows it: without
/// /proc, as in a root that an image is built in, or without a descriptor to read it by, there would be none.
///
/// Removes variables before constructors of libraries run, some of which read them: Swift's runtime sets handlers
/// of crashes that start the program of SWIFT_BACKTRACE, GnuTLS reads the file of GNUTLS_SYSTEM_PRIORITY_FILE.
static void begin(int count, char **arguments, char **variables) {
    if (!begins_here()) return;
    _swift_stdlib_overrideUnsafeArgvArgc(arguments, count);
    if (stage_is_privileged()) stage_keep_believed(variables);
}

/// The loader calls what is here first (System V ABI, "Initialization and Termination Functions"), that of an
/// executable alone.
__attribute__((section(".preinit_array"), used))
static void (*first)(int, char **, char **) = begin;
