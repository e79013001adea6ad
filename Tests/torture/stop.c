// Stops a program when all of its libraries are loaded, so that a tracer which attaches then counts the calls of the
// program and not those of its loader.
#include <signal.h>
#include <stdlib.h>

__attribute__((constructor)) static void stop(void) {
    unsetenv("LD_PRELOAD");
    raise(SIGSTOP);
}
