// Confining a decoder of archives: its capabilities, and the system calls that it may make.
// Each returns what the call returns, -1 with errno set on failure, unless it says otherwise.
#pragma once
#include "sandbox.h"

#ifndef CLONE_PARENT
#define CLONE_PARENT 0x8000
#endif

/// Opens `path` in an open directory (openat(2)).
STAGE_CHECKED static inline int stage_open_at(
    int directory, const char *path, int flags, mode_t mode) {
    return openat(directory, path, flags, mode);
}

/// Opens a file that is open already once more, for reading only, whatever it was opened for.
STAGE_CHECKED static inline int stage_reopen_file(int file) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/// Copies the calling process, which must have one thread; returns 0 in the copy (clone(2)).
///
/// The copy is a child of the caller's parent, which waits for it and may kill it by its number.
STAGE_CHECKED static inline pid_t stage_clone_sibling(void) {
    return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
}

/// Returns 1 if the calling thread has a capability, or could get one of its permitted ones; else 0.
STAGE_CHECKED static inline int stage_has_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, held) != 0) return -1;
    uint32_t any = 0;
    for (int index = 0; index < _LINUX_CAPABILITY_U32S_3; index++)
        any |= held[index].effective | held[index].permitted | held[index].inheritable;
    return any != 0;
}

/// Gives up all capabilities of the calling thread: every set, and the bounding set where it holds
/// the right to (CAP_SETPCAP).
STAGE_CHECKED static inline int stage_give_up_capabilities(void) {
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
        // Without CAP_SETPCAP there is no need: the bounding set counts in execve(2) alone, which gives
        // nothing to a thread without new privileges.
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) break;
    }
    // Kernels before 4.3 have no ambient set.
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL) return -1;
    if (stage_drop_capabilities() != 0) return -1;
    int left = stage_has_capabilities();
    if (left == 1) errno = EPERM;
    return left == 0 ? 0 : -1;
}

/// Returns 1 if the kernel can filter the system calls of a thread as `stage_filter_decoder` does; else 0.
STAGE_CHECKED static inline int stage_can_filter(void) {
#ifdef STAGE_AUDIT_ARCH
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
#else
    return 0;
#endif
}

#ifdef STAGE_AUDIT_ARCH
#define STAGE_TAKE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define STAGE_KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
/// The low half of an argument: both architectures are little-endian.
#define STAGE_LOAD_LOW(index) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[index]))
#define STAGE_LOAD_HIGH(index) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[index]) + 4)
/// Allows a call, whatever its arguments are.
#define STAGE_ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), STAGE_TAKE
/// Begins a rule of `count` instructions for one call; the last of them answers.
#define STAGE_RULE(number, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, (count))
/// Allows a call whose argument is this number. Not the high half: the kernel takes an int.
#define STAGE_ALLOW_WITH(number, index, value)                                                \
    STAGE_RULE((number), 4), STAGE_LOAD_LOW(index),                                           \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1), STAGE_TAKE, STAGE_ANSWER(EPERM)
/// Allows a call whose argument has none of these bits.
#define STAGE_ALLOW_WITHOUT(number, index, bits)                                              \
    STAGE_RULE((number), 4), STAGE_LOAD_LOW(index),                                           \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 1, 0), STAGE_TAKE, STAGE_ANSWER(EPERM)

/// The flags that pthread_create(3) gives clone(2): CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS,
/// PARENT_SETTID and CHILD_CLEARTID.
#define STAGE_CLONE_THREAD 0x3d0f00
/// The bit of O_TMPFILE that is not O_DIRECTORY.
#define STAGE_UNNAMED_FILE 020000000
#define STAGE_FILE_MODE 0644
#define STAGE_EXECUTABLE_MODE 0755
#define STAGE_PROTECTION_EXECUTE 4
#endif

/// Allows the calling thread, and those it makes from now on, the system calls of a decoder that
/// answers on the socket `channel` (-1 for none), and refuses every other (seccomp(2)).
///
/// A call that is not in the list fails with EPERM. It does not end the process: another version of
/// the C library may try a newer call first and go on without it. Calls of another architecture end
/// the process. Modes are checked where files are made and changed: a decoder of root that could set
/// a set-id bit on content of its choosing would hand root's rights to other users. That is why
/// openat2(2), whose mode is in memory, is refused, and so is fchmodat(2), which follows links. The access
/// mode 3 takes no right of Landlock's, and fchmod(2) accepts what it opens; emptying a file takes none
/// before version 3.
STAGE_CHECKED static inline int stage_filter_decoder(int channel) {
#ifdef STAGE_AUDIT_ARCH
    struct sock_filter filter[] = {
        STAGE_LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_AUDIT_ARCH, 1, 0),
        STAGE_KILL,
        STAGE_LOAD(nr),
        // Files: what is open, and what Landlock lets be opened.
        STAGE_ALLOW(SYS_read),
        STAGE_ALLOW(SYS_pread64),
        STAGE_ALLOW(SYS_write),
        STAGE_ALLOW(SYS_pwrite64),
        STAGE_ALLOW(SYS_lseek),
        STAGE_ALLOW(SYS_close),
        STAGE_ALLOW(SYS_fstat),
        STAGE_ALLOW(SYS_newfstatat),
        STAGE_ALLOW(SYS_copy_file_range),
        STAGE_ALLOW(SYS_sync_file_range),
        STAGE_ALLOW(SYS_symlinkat),
        STAGE_ALLOW_WITH(SYS_mkdirat, 2, STAGE_EXECUTABLE_MODE),
        STAGE_RULE(SYS_fchmod, 5),
        STAGE_LOAD_LOW(1),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_FILE_MODE, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_EXECUTABLE_MODE, 0, 1),
        STAGE_TAKE,
        STAGE_ANSWER(EPERM),
        STAGE_RULE(SYS_openat, 11),
        STAGE_LOAD_LOW(2),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, STAGE_UNNAMED_FILE | O_TRUNC, 8, 0),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_ACCMODE, 6, 0),
        STAGE_LOAD_LOW(2),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 3),
        STAGE_LOAD_LOW(3),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_FILE_MODE, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_EXECUTABLE_MODE, 0, 1),
        STAGE_TAKE,
        STAGE_ANSWER(EPERM),
        // Memory, none of which becomes code.
        STAGE_ALLOW_WITHOUT(SYS_mmap, 2, STAGE_PROTECTION_EXECUTE),
        STAGE_ALLOW_WITHOUT(SYS_mprotect, 2, STAGE_PROTECTION_EXECUTE),
        STAGE_ALLOW(SYS_munmap),
        STAGE_ALLOW(SYS_mremap),
        STAGE_ALLOW(SYS_madvise),
        STAGE_ALLOW(SYS_brk),
        // Threads of this process.
        STAGE_ALLOW_WITH(SYS_clone, 0, STAGE_CLONE_THREAD),
        // The flags of clone3(2) are in memory, which filters cannot read; after ENOSYS the C library uses clone(2).
        STAGE_REFUSE(SYS_clone3, ENOSYS),
        STAGE_ALLOW(SYS_futex),
        STAGE_ALLOW(SYS_set_robust_list),
        STAGE_ALLOW(SYS_rseq),
        STAGE_ALLOW(SYS_sched_yield),
        STAGE_ALLOW(SYS_sched_getaffinity),
        STAGE_ALLOW_WITH(SYS_prctl, 0, PR_SET_NAME),
        STAGE_ALLOW_WITH(SYS_tgkill, 0, (uint32_t)getpid()),
        STAGE_ALLOW(SYS_getpid),
        STAGE_ALLOW(SYS_gettid),
        STAGE_ALLOW(SYS_exit),
        STAGE_ALLOW(SYS_exit_group),
        STAGE_RULE(SYS_prlimit64, 8),
        STAGE_LOAD_LOW(0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 5),
        STAGE_LOAD_LOW(2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
        STAGE_LOAD_HIGH(2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        STAGE_TAKE,
        STAGE_ANSWER(EPERM),
        // Signals of its own, time, chance.
        STAGE_ALLOW(SYS_rt_sigaction),
        STAGE_ALLOW(SYS_rt_sigprocmask),
        STAGE_ALLOW(SYS_rt_sigreturn),
        STAGE_ALLOW(SYS_sigaltstack),
        STAGE_ALLOW(SYS_restart_syscall),
        STAGE_ALLOW(SYS_clock_gettime),
        STAGE_ALLOW(SYS_clock_nanosleep),
        STAGE_ALLOW(SYS_getrandom),
        // Answers. The address of a message is ignored by a socket that has been connected.
        STAGE_ALLOW_WITH(SYS_sendmsg, 0, (uint32_t)channel),
        STAGE_ANSWER(EPERM),
    };
    struct sock_fprog program = {
        .len = sizeof filter / sizeof filter[0],
        .filter = filter,
    };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}
