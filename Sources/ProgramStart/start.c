#include "ProgramStart.h"
#include "../CLinux/environment.h"

// The functions that programs with this file begin at, by the names that the build gives them where it links
// more than one of them into a file.
extern int main(int, char **);
extern int stagepack_main(int, char **) __attribute__((weak));
extern int stagepackd_main(int, char **) __attribute__((weak));

/// Whether the program that runs is one of those, and not another one that has parts of them.
static int begins_here(void) {
    if (stagepack_main == NULL && stagepackd_main == NULL) return 1;
    return main == stagepack_main || main == stagepackd_main;
}

/// Removes variables before constructors of libraries run, some of which read them: Swift's runtime sets handlers
/// of crashes that start the program of SWIFT_BACKTRACE, GnuTLS reads the file of GNUTLS_SYSTEM_PRIORITY_FILE.
static void clean(int count, char **arguments, char **variables) {
    (void)count, (void)arguments;
    if (stage_is_privileged() && begins_here()) stage_keep_believed(variables);
}

/// The loader calls what is here first (System V ABI, "Initialization and Termination Functions"), that of an
/// executable alone.
__attribute__((section(".preinit_array"), used))
static void (*first)(int, char **, char **) = clean;
