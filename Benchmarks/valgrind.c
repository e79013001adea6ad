// A library for LD_PRELOAD with which the programs run under valgrind; only measurements use it.
//
// valgrind 3.19 does not support openat2(2), so this calls openat(2), which ignores the restrictions of RESOLVE_ flags. valgrind also replaces
// /proc/self/exe by its own program, so this executes the measured program instead, which then runs without valgrind.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
static long call(long number, const long *arguments) {
    long result;
    register long fourth __asm__("r10") = arguments[3];
    register long fifth __asm__("r8") = arguments[4];
    register long sixth __asm__("r9") = arguments[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long call(long number, const long *arguments) {
    register long eighth __asm__("x8") = number;
    register long first __asm__("x0") = arguments[0];
    register long second __asm__("x1") = arguments[1];
    register long third __asm__("x2") = arguments[2];
    register long fourth __asm__("x3") = arguments[3];
    register long fifth __asm__("x4") = arguments[4];
    register long sixth __asm__("x5") = arguments[5];
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(eighth), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
}
#else
#error "the registers of system calls are not known for this architecture"
#endif

long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int index = 0; index < 6; index++) arguments[index] = va_arg(list, long);
    va_end(list);
    if (number == SYS_openat2) {
        const struct open_how *how = (const struct open_how *)arguments[2];
        return openat((int)arguments[0], (const char *)arguments[1], (int)how->flags, (mode_t)how->mode);
    }
    long result = call(number, arguments);
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

int posix_spawn(
    pid_t *child, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
    char *const arguments[], char *const environment[]) {
    int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
        char *const[]) = dlsym(RTLD_NEXT, "posix_spawn");
    char program[4096];
    if (strcmp(path, "/proc/self/exe") == 0) {
        ssize_t length = readlink(path, program, sizeof program - 1);
        if (length < 0) return errno;
        program[length] = 0;
        path = program;
    }
    return next(child, path, actions, attributes, arguments, environment);
}
