// Checks that the system has enough resources for a process, and reports the one that is short: without threads,
// descriptors or memory, the Swift runtime and libdispatch trap or retry without end.
#pragma once
#include "sandbox.h"
#include <linux/openat2.h>
#include <pthread.h>
#include <semaphore.h>

/// A resource that is short; STAGE_PROVISION_ALL for none.
enum stage_provision {
    STAGE_PROVISION_ALL = 0,
    STAGE_PROVISION_FILES = 1,
    STAGE_PROVISION_THREADS = 2,
    STAGE_PROVISION_MEMORY = 3,
    STAGE_PROVISION_PROCFS = 4,
    STAGE_PROVISION_OPENAT2 = 5,
};

/// The maximum numbers of threads and descriptors that stage_provision_lacks() checks.
#define STAGE_PROVISION_THREAD_LIMIT 256
#define STAGE_PROVISION_FILE_LIMIT 1024

/// Raises the soft limit of descriptors to `count`, or to the hard limit where that is less.
static inline void stage_raise_files(uint64_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    // The process may succeed with fewer.
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) errno = 0;
}

/// Returns the number of files that the process can open in addition, `count` at most.
static inline unsigned stage_openable_files(unsigned count) {
    int files[STAGE_PROVISION_FILE_LIMIT];
    if (count > STAGE_PROVISION_FILE_LIMIT) count = STAGE_PROVISION_FILE_LIMIT;
    unsigned opened = 0;
    for (; opened < count; opened++) {
        files[opened] = opened == 0 ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
                                    : fcntl(files[0], F_DUPFD_CLOEXEC, 0);
        if (files[opened] < 0) break;
    }
    for (unsigned index = 0; index < opened; index++) close(files[index]);
    return opened;
}

/// Returns 1 if /proc shows this thread, else 0. libdispatch reads the state of its threads there, and traps without
/// it (`_dispatch_workq_count_runnable_workers`).
static inline int stage_has_procfs(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)syscall(SYS_gettid));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) close(file);
    return file >= 0;
}

/// Returns 1 if the system has openat2(2), and no filter of system calls refuses it; else 0.
static inline int stage_has_openat2(void) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC};
    int file = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how);
    if (file >= 0) close(file);
    return file >= 0;
}

static inline void *stage_idle(void *gate) {
    while (sem_wait(gate) != 0) {}
    return NULL;
}

/// Returns the number of additional threads that the process can run at once, `count` at most; sets `*has_memory` to 1
/// if `memory` bytes of address space are available in addition, else to 0.
static inline unsigned stage_startable_threads(unsigned count, size_t memory, int *has_memory) {
    pthread_t threads[STAGE_PROVISION_THREAD_LIMIT];
    if (count > STAGE_PROVISION_THREAD_LIMIT) count = STAGE_PROVISION_THREAD_LIMIT;
    sem_t gate;
    if (sem_init(&gate, 0, 0) != 0) return 0;
    unsigned started = 0;
    // With stacks of the default size, which take most of the address space.
    while (started < count && pthread_create(&threads[started], NULL, stage_idle, &gate) == 0)
        started++;
    int protection = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    void *bytes = mmap(NULL, memory, protection, kind, -1, 0);
    *has_memory = bytes != MAP_FAILED;
    if (*has_memory) munmap(bytes, memory);
    for (unsigned index = 0; index < started; index++) sem_post(&gate);
    for (unsigned index = 0; index < started; index++) pthread_join(threads[index], NULL);
    sem_destroy(&gate);
    return started;
}

/// Reserves files, threads and memory, releases them, and returns the first resource that is short; sets `*available`
/// to the available number.
STAGE_CHECKED static inline enum stage_provision stage_provision_lacks(
    unsigned files, unsigned threads, size_t memory, unsigned *available) {
    *available = stage_openable_files(files);
    if (*available < files) return STAGE_PROVISION_FILES;
    if (!stage_has_procfs()) return STAGE_PROVISION_PROCFS;
    if (!stage_has_openat2()) return STAGE_PROVISION_OPENAT2;
    int has_memory = 0;
    *available = stage_startable_threads(threads, memory, &has_memory);
    if (*available < threads) return STAGE_PROVISION_THREADS;
    *available = 0;
    return has_memory ? STAGE_PROVISION_ALL : STAGE_PROVISION_MEMORY;
}

/// The messages of a process that traps, by the resource that is short, and its exit status if one is.
struct stage_trap_words {
    const char *files, *threads, *memory, *procfs, *otherwise;
    int status;
};

/// Returns the messages of the trap handler. Each module that includes this header has its own; only one uses it.
static inline struct stage_trap_words *stage_said_on_trap(void) {
    static struct stage_trap_words words;
    return &words;
}

/// Returns the resource that is short at this moment. Makes system calls only, so a signal handler may call it.
static inline enum stage_provision stage_provision_now(void) {
    int file = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (file < 0 && (errno == EMFILE || errno == ENFILE)) return STAGE_PROVISION_FILES;
    if (file >= 0) close(file);
    if (!stage_has_procfs()) return STAGE_PROVISION_PROCFS;
    pid_t child = _Fork();
    if (child == 0) _exit(0);
    if (child < 0) return errno == ENOMEM ? STAGE_PROVISION_MEMORY : STAGE_PROVISION_THREADS;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    size_t size = 64 << 20;
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return STAGE_PROVISION_MEMORY;
    munmap(bytes, size);
    return STAGE_PROVISION_ALL;
}

/// Handles a trap signal: exits with the status if a resource is short, else lets the signal kill the process.
static inline void stage_on_trap(int signal_number) {
    static const int traps[] = {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    for (size_t index = 0; index < STAGE_COUNT(traps); index++) signal(traps[index], SIG_DFL);
    const struct stage_trap_words *words = stage_said_on_trap();
    const char *text = words->otherwise;
    enum stage_provision missing = stage_provision_now();
    if (missing == STAGE_PROVISION_FILES) text = words->files;
    if (missing == STAGE_PROVISION_THREADS) text = words->threads;
    if (missing == STAGE_PROVISION_MEMORY) text = words->memory;
    if (missing == STAGE_PROVISION_PROCFS) text = words->procfs;
    if (write(STDERR_FILENO, text, strlen(text)) < 0) errno = 0;
    if (missing != STAGE_PROVISION_ALL) _exit(words->status);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(signal_number);
}

/// Installs the handler of trap signals, which writes the reason. The strings must stay valid.
static inline void stage_catch_traps(const struct stage_trap_words *words) {
    static const int traps[] = {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    *stage_said_on_trap() = *words;
    for (size_t index = 0; index < STAGE_COUNT(traps); index++) signal(traps[index], stage_on_trap);
}
