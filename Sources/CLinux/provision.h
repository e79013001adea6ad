// Whether the system gives a process what it is going to need, and what to say where it does not: the runtimes of
// Swift and of libdispatch trap, or try again for ever, where they get no thread, descriptor or memory.
#pragma once
#include "sandbox.h"
#include <pthread.h>
#include <semaphore.h>

/// A resource that the system did not give.
enum stage_provision {
    STAGE_PROVISION_ALL = 0,
    STAGE_PROVISION_FILES = 1,
    STAGE_PROVISION_THREADS = 2,
    STAGE_PROVISION_MEMORY = 3,
    STAGE_PROVISION_PROCFS = 4,
};

/// The most threads, and the most descriptors, that stage_provision_lacks() looks for.
#define STAGE_PROVISION_THREAD_LIMIT 256
#define STAGE_PROVISION_FILE_LIMIT 1024

/// Raises the soft limit of descriptors to `count`, or to the hard limit where that is less.
static inline void stage_raise_files(uint64_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    // With fewer it may do as well.
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) errno = 0;
}

/// Returns how many more files the process can have open, `count` at most.
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

/// Returns whether /proc shows this thread: libdispatch, which looks there for the state of its threads, traps where it
/// finds none (`_dispatch_workq_count_runnable_workers`).
static inline int stage_has_procfs(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)syscall(SYS_gettid));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) close(file);
    return file >= 0;
}

static inline void *stage_idle(void *gate) {
    while (sem_wait(gate) != 0) {}
    return NULL;
}

/// Returns how many more threads the process can have at once, `count` at most; sets `*has_memory` to whether it has
/// `memory` bytes of address space besides.
static inline unsigned stage_startable_threads(unsigned count, size_t memory, int *has_memory) {
    pthread_t threads[STAGE_PROVISION_THREAD_LIMIT];
    if (count > STAGE_PROVISION_THREAD_LIMIT) count = STAGE_PROVISION_THREAD_LIMIT;
    sem_t gate;
    if (sem_init(&gate, 0, 0) != 0) return 0;
    unsigned started = 0;
    // With stacks of the usual size: those are what address space is needed for most.
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

/// Tries to have so many files, threads and bytes at once, and gives them back; returns what there is not, and sets
/// `*available` to how many of it there are.
STAGE_CHECKED static inline enum stage_provision stage_provision_lacks(
    unsigned files, unsigned threads, size_t memory, unsigned *available) {
    *available = stage_openable_files(files);
    if (*available < files) return STAGE_PROVISION_FILES;
    if (!stage_has_procfs()) return STAGE_PROVISION_PROCFS;
    int has_memory = 0;
    *available = stage_startable_threads(threads, memory, &has_memory);
    if (*available < threads) return STAGE_PROVISION_THREADS;
    *available = 0;
    return has_memory ? STAGE_PROVISION_ALL : STAGE_PROVISION_MEMORY;
}

/// The lines of a process that ends by a trap, and the status if the system lacks a resource.
struct stage_trap_words {
    const char *files, *threads, *memory, *procfs, *otherwise;
    int status;
};

/// Returns what the handler of traps says; one for each module that includes this, of which one calls it.
static inline struct stage_trap_words *stage_said_on_trap(void) {
    static struct stage_trap_words words;
    return &words;
}

/// Returns what the system refuses at this moment, by system calls alone.
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

/// Ends the process with a status where the system is short of something, else as the signal does.
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

/// Has the process say why, where it ends by a trap. The strings have to stay.
static inline void stage_catch_traps(const struct stage_trap_words *words) {
    static const int traps[] = {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    *stage_said_on_trap() = *words;
    for (size_t index = 0; index < STAGE_COUNT(traps); index++) signal(traps[index], stage_on_trap);
}
