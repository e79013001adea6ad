// Stops a program when all of its libraries are loaded, so that a tracer that attaches then counts only the calls of the
// program, and not those of the dynamic loader.
#include <signal.h>
#include <stdlib.h>

__attribute__((constructor)) static void stop(void) {
    unsetenv("LD_PRELOAD");
    raise(SIGSTOP);
}
