// The system calls that a downloader extension may make, as a filter for seccomp(2).
//
// A call that is in no table fails with ENOSYS, for which runtimes have a fallback. The filter is built
// between fork(2) and execve(2) in memory of the caller, without a library call.
#pragma once
#include "confinement.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if defined(__x86_64__)
#define STAGE_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define STAGE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef STAGE_AUDIT_ARCH
#define STAGE_LOAD(member) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define STAGE_ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define STAGE_REFUSE(number, error) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), STAGE_ANSWER(error)

/// Calls that are allowed with any arguments: they concern the process itself, descriptors that it has, or
/// paths, whose access Landlock restricts.
static const uint16_t stage_allowed_calls[] = {
    // Descriptors.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_close, SYS_close_range, SYS_lseek, SYS_fstat, SYS_fstatfs, SYS_dup,
    SYS_dup3, SYS_pipe2, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd2, SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime,
    SYS_timerfd_gettime, SYS_ftruncate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range,
    SYS_fadvise64, SYS_readahead, SYS_flock, SYS_sendfile, SYS_copy_file_range, SYS_getdents64,
    SYS_fchdir,
    // Connected pairs of sockets.
    SYS_recvfrom, SYS_recvmsg, SYS_sendmsg, SYS_shutdown, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt,
    // Paths.
    SYS_chdir, SYS_getcwd, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_faccessat, SYS_faccessat2,
    SYS_readlinkat, SYS_unlinkat, SYS_symlinkat, SYS_linkat, SYS_renameat, SYS_umask,
    // Memory.
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_msync, SYS_mincore, SYS_brk,
    SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_pkey_alloc, SYS_pkey_free,
    SYS_pkey_mprotect, SYS_membarrier,
    // Processes and threads of its own.
    SYS_execve, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_set_tid_address,
    SYS_set_robust_list, SYS_rseq, SYS_futex, SYS_futex_waitv, SYS_sched_yield, SYS_getcpu,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid, SYS_getsid, SYS_getuid, SYS_geteuid, SYS_getgid,
    SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_capget, SYS_getrlimit, SYS_setrlimit,
    SYS_getrusage, SYS_getpriority, SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler,
    SYS_sched_getattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval,
    // Signals to itself, and time.
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_restart_syscall, SYS_nanosleep, SYS_clock_nanosleep,
    SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_times, SYS_getitimer, SYS_setitimer,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete,
    // The machine.
    SYS_uname, SYS_sysinfo, SYS_getrandom,
#ifdef __x86_64__
    // Older names of calls above.
    SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_rmdir, SYS_unlink, SYS_symlink,
    SYS_link, SYS_rename, SYS_dup2, SYS_pipe, SYS_poll, SYS_select, SYS_epoll_create,
    SYS_epoll_wait, SYS_eventfd, SYS_signalfd, SYS_getdents, SYS_fork, SYS_vfork, SYS_getpgrp,
    SYS_pause, SYS_alarm, SYS_time,
#endif
};

/// Calls that the kernel does not execute and that return an error other than ENOSYS; 0 is success.
///
/// Success without effect is for calls that Landlock does not handle and programs make routinely: changes of
/// modes, owners and times, which could affect every file of the user, and of process groups.
static const struct {
    uint16_t call, error;
} stage_answered_calls[] = {
    {SYS_fchmod, 0},
    {SYS_fchmodat, 0},
    {452 /* fchmodat2, of Linux 6.6 */, 0},
    {SYS_fchown, 0},
    {SYS_fchownat, 0},
    {SYS_utimensat, 0},
    {SYS_setpgid, 0},
    {SYS_setsid, EPERM},
    // The filter also uses this error for arguments of these calls that it does not allow.
    {SYS_openat, EACCES},
    {SYS_mkdirat, EPERM},
    {SYS_mknodat, EPERM},
    {SYS_renameat2, EINVAL},
    {SYS_truncate, EACCES},
    {SYS_fcntl, EPERM},
    {SYS_ioctl, ENOTTY},
    {SYS_prctl, EINVAL},
    {SYS_clone, EPERM},
    {SYS_kill, EPERM},
    {SYS_tkill, EPERM},
    {SYS_tgkill, EPERM},
    {SYS_rt_sigqueueinfo, EPERM},
    {SYS_rt_tgsigqueueinfo, EPERM},
    {SYS_prlimit64, EPERM},
    {SYS_setpriority, EPERM},
    {SYS_ioprio_set, EPERM},
    {SYS_sched_setaffinity, EPERM},
    {SYS_sched_setparam, EPERM},
    {SYS_sched_setscheduler, EPERM},
    {SYS_sched_setattr, EPERM},
    {SYS_socket, EACCES},
    {SYS_socketpair, EACCES},
    {SYS_bind, EACCES},
    {SYS_connect, EACCES},
    {SYS_sendto, EACCES},
    // Runtimes write zeros instead, so that the allocation takes time and can be observed.
    {SYS_fallocate, EOPNOTSUPP},
    // The same error as on a file system without extended attributes.
    {SYS_setxattr, EOPNOTSUPP},
    {SYS_lsetxattr, EOPNOTSUPP},
    {SYS_fsetxattr, EOPNOTSUPP},
    {SYS_getxattr, EOPNOTSUPP},
    {SYS_lgetxattr, EOPNOTSUPP},
    {SYS_fgetxattr, EOPNOTSUPP},
    {SYS_listxattr, EOPNOTSUPP},
    {SYS_llistxattr, EOPNOTSUPP},
    {SYS_flistxattr, EOPNOTSUPP},
    {SYS_removexattr, EOPNOTSUPP},
    {SYS_lremovexattr, EOPNOTSUPP},
    {SYS_fremovexattr, EOPNOTSUPP},
    // Privileges that the program lacks.
    {SYS_setuid, EPERM},
    {SYS_setgid, EPERM},
    {SYS_setreuid, EPERM},
    {SYS_setregid, EPERM},
    {SYS_setresuid, EPERM},
    {SYS_setresgid, EPERM},
    {SYS_setgroups, EPERM},
    {SYS_capset, EPERM},
    {SYS_unshare, EPERM},
    {SYS_setns, EPERM},
    {SYS_chroot, EPERM},
    {SYS_mount, EPERM},
    {SYS_umount2, EPERM},
    {SYS_ptrace, EPERM},
    {SYS_personality, EPERM},
#ifdef __x86_64__
    {SYS_open, EACCES},
    {SYS_creat, EACCES},
    {SYS_mkdir, EPERM},
    {SYS_mknod, EPERM},
    {SYS_arch_prctl, EINVAL},
    {SYS_chmod, 0},
    {SYS_chown, 0},
    {SYS_lchown, 0},
    {SYS_utime, 0},
    {SYS_utimes, 0},
    {SYS_futimesat, 0},
#endif
};

/// A call that is allowed if each argument, masked, equals the value; a mask of 0 means no check.
struct stage_checked_call {
    uint16_t call;
    struct {
        uint64_t mask, value;
        uint8_t argument;
    } where[2];
};

/// The low 32 bits of an argument, which are all that the kernel reads of an `int`.
#define STAGE_INT 0xffffffffu
#define STAGE_IF(call, argument, mask, value) {call, {{mask, value, argument}, {0, 0, 0}}}
#define STAGE_IF_BOTH(call, argument, mask, value, argument2, mask2, value2) \
    {call, {{mask, value, argument}, {mask2, value2, argument2}}}

/// The bits of a mode that make a program run with rights of its owner or group, and the one of directories
/// that others share. The kernel takes those of open(2), creat(2), mkdir(2) and mknod(2) as they are.
#define STAGE_SET_ID 07000u
/// Flags of open(2) that make a file; only with one of them is there a mode.
#define STAGE_CREATING (O_CREAT | 020000000u /* __O_TMPFILE */)
#define STAGE_IF_OPENING_AS(call, flags, mask, value) \
    STAGE_IF(call, flags, (mask) | STAGE_CREATING, value), \
        STAGE_IF_BOTH(call, flags, mask, value, (flags) + 1, STAGE_SET_ID, 0)

/// Allows a call that opens a file to write, which Landlock checks, or to read without truncating. Landlock
/// does not check truncation before version 3, and the access mode 3 in no version. The mode is the argument
/// after the flags.
#define STAGE_IF_OPENING(call, flags) \
    STAGE_IF_OPENING_AS(call, flags, O_ACCMODE, O_WRONLY), \
        STAGE_IF_OPENING_AS(call, flags, O_ACCMODE, O_RDWR), \
        STAGE_IF_OPENING_AS(call, flags, O_ACCMODE | O_TRUNC, O_RDONLY)

/// New namespaces, tracing, and children of the parent (clone(2)).
#define STAGE_CLONE_REFUSED 0x7e02a000u

static const struct stage_checked_call stage_checked_calls[] = {
    STAGE_IF_OPENING(SYS_openat, 2),
    STAGE_IF(SYS_mkdirat, 2, STAGE_SET_ID, 0),
    STAGE_IF(SYS_mknodat, 2, S_IFMT | STAGE_SET_ID, S_IFIFO),
    // Without RENAME_WHITEOUT, which makes a device.
    STAGE_IF(SYS_renameat2, 4, ~3u, 0),
    // Omits commands that make the kernel send signals (F_SETOWN, F_SETSIG, F_NOTIFY) or delay other openers
    // (F_SETLEASE).
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_GETFL),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_SETFL),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_GETFD),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_SETFD),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_DUPFD),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_DUPFD_CLOEXEC),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_GETLK),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_SETLK),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_SETLKW),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_OFD_GETLK),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_OFD_SETLK),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, F_OFD_SETLKW),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, 1031 /* F_SETPIPE_SZ */),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, 1032 /* F_GETPIPE_SZ */),
    STAGE_IF(SYS_fcntl, 1, STAGE_INT, 1034 /* F_GET_SEALS */),
    // Omits requests that change a file which is open for reading (FS_IOC_SETFLAGS, FS_IOC_ENABLE_VERITY), a
    // terminal or a device.
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, TCGETS),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, 0x802c542a /* TCGETS2 */),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, TIOCGWINSZ),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, TIOCGPGRP),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, FIONREAD),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, FIONBIO),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, FIOCLEX),
    STAGE_IF(SYS_ioctl, 1, STAGE_INT, FIONCLEX),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_SET_NAME),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_GET_NAME),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_GET_DUMPABLE),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_SET_DUMPABLE),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_GET_NO_NEW_PRIVS),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_SET_NO_NEW_PRIVS),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_CAPBSET_READ),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_SET_TIMERSLACK),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, PR_GET_TIMERSLACK),
    STAGE_IF(SYS_prctl, 0, STAGE_INT, 0x53564d41 /* PR_SET_VMA */),
    STAGE_IF(SYS_clone, 0, STAGE_CLONE_REFUSED, 0),
    // For the calling process only.
    STAGE_IF(SYS_prlimit64, 0, STAGE_INT, 0),
    STAGE_IF(SYS_sched_setaffinity, 0, STAGE_INT, 0),
    STAGE_IF_BOTH(SYS_setpriority, 0, STAGE_INT, PRIO_PROCESS, 1, STAGE_INT, 0),
    // Only connected types: a datagram socket could send to any socket of the machine.
    STAGE_IF_BOTH(SYS_socketpair, 0, STAGE_INT, AF_UNIX, 1, 0xf, SOCK_STREAM),
    STAGE_IF_BOTH(SYS_socketpair, 0, STAGE_INT, AF_UNIX, 1, 0xf, SOCK_SEQPACKET),
    // Without an address.
    STAGE_IF(SYS_sendto, 4, ~0ull, 0),
#ifdef __x86_64__
    STAGE_IF_OPENING(SYS_open, 1),
    STAGE_IF(SYS_creat, 1, STAGE_SET_ID, 0),
    STAGE_IF(SYS_mkdir, 1, STAGE_SET_ID, 0),
    STAGE_IF(SYS_mknod, 1, S_IFMT | STAGE_SET_ID, S_IFIFO),
    // The segment registers that hold thread-local storage.
    STAGE_IF(SYS_arch_prctl, 0, STAGE_INT, 0x1001 /* ARCH_SET_GS */),
    STAGE_IF(SYS_arch_prctl, 0, STAGE_INT, 0x1002 /* ARCH_SET_FS */),
    STAGE_IF(SYS_arch_prctl, 0, STAGE_INT, 0x1003 /* ARCH_GET_FS */),
    STAGE_IF(SYS_arch_prctl, 0, STAGE_INT, 0x1004 /* ARCH_GET_GS */),
#endif
};

#define STAGE_COUNT(array) (sizeof array / sizeof array[0])

/// A filter that grows; the tables above take about 900 instructions.
struct stage_filter {
    unsigned short length;
    struct sock_filter code[2048];
};

/// Appends an instruction. A filter that becomes too long is invalid: stage_set_filter() fails with E2BIG.
static inline void stage_emit(struct stage_filter *filter, struct sock_filter instruction) {
    if (filter->length < STAGE_COUNT(filter->code)) filter->code[filter->length] = instruction;
    filter->length += 1;
}

/// Begins a filter: calls of other architectures fail with ENOSYS, and the number of the call is loaded.
static inline void stage_begin_filter(struct stage_filter *filter) {
    const struct sock_filter head[] = {
        STAGE_LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STAGE_AUDIT_ARCH, 1, 0),
        STAGE_ANSWER(ENOSYS),
        STAGE_LOAD(nr),
#ifdef __x86_64__
        // The calls of the x32 interface, which duplicate others under different numbers.
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
        STAGE_ANSWER(ENOSYS),
#endif
    };
    filter->length = 0;
    for (size_t index = 0; index < STAGE_COUNT(head); index++) stage_emit(filter, head[index]);
}

/// Installs the filter for the calling thread, and for the threads and processes that it creates afterwards (seccomp(2)).
STAGE_CHECKED static inline int stage_set_filter(struct stage_filter *filter) {
    if (filter->length > STAGE_COUNT(filter->code)) {
        errno = E2BIG;
        return -1;
    }
    struct sock_fprog program = {.len = filter->length, .filter = filter->code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/// Appends the filter result `answer` for a call.
static inline void stage_emit_call(struct stage_filter *filter, uint32_t call, uint32_t answer) {
    stage_emit(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    stage_emit(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
}

/// Appends the permission of a call whose arguments are checked; leaves the number of the call loaded.
static inline void stage_emit_checked(
    struct stage_filter *filter, const struct stage_checked_call *rule) {
    unsigned short checks[5], count = 0;
    checks[count++] = filter->length;
    stage_emit(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->call, 0, 0));
    for (size_t index = 0; index < STAGE_COUNT(rule->where); index++) {
        uint32_t offset = (uint32_t)offsetof(struct seccomp_data, args) +
                          rule->where[index].argument * (uint32_t)sizeof(uint64_t);
        // Compares both halves of an argument, the lower one first, as on every processor above.
        for (int half = 0; half < 2; half++) {
            uint32_t mask = (uint32_t)(rule->where[index].mask >> (32 * half));
            if (mask == 0) continue;
            uint32_t value = (uint32_t)(rule->where[index].value >> (32 * half));
            uint32_t from = offset + (uint32_t)half * 4;
            stage_emit(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, from));
            stage_emit(filter, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
            checks[count++] = filter->length;
            stage_emit(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0));
        }
    }
    stage_emit(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    unsigned short end = filter->length;
    stage_emit(filter, (struct sock_filter)STAGE_LOAD(nr));
    if (filter->length > STAGE_COUNT(filter->code)) return;
    for (unsigned short index = 0; index < count; index++)
        filter->code[checks[index]].jf = (uint8_t)(end - checks[index] - 1);
}

/// Appends the permission to send signals: to any process if Landlock (version 6) confines signals to the
/// sandbox, else only to the calling process, which must be the program itself, and to its group.
static inline void stage_emit_signals(struct stage_filter *filter, int are_confined) {
    if (are_confined) {
        stage_emit_call(filter, SYS_kill, SECCOMP_RET_ALLOW);
        stage_emit_call(filter, SYS_tkill, SECCOMP_RET_ALLOW);
        stage_emit_call(filter, SYS_tgkill, SECCOMP_RET_ALLOW);
        stage_emit_call(filter, SYS_rt_sigqueueinfo, SECCOMP_RET_ALLOW);
        stage_emit_call(filter, SYS_rt_tgsigqueueinfo, SECCOMP_RET_ALLOW);
        return;
    }
    uint32_t own = (uint32_t)getpid();
    const struct stage_checked_call rules[] = {
        STAGE_IF(SYS_kill, 0, STAGE_INT, 0),
        STAGE_IF(SYS_kill, 0, STAGE_INT, own),
        STAGE_IF(SYS_kill, 0, STAGE_INT, -own),
        STAGE_IF(SYS_tkill, 0, STAGE_INT, own),
        STAGE_IF(SYS_tgkill, 0, STAGE_INT, own),
        STAGE_IF(SYS_rt_sigqueueinfo, 0, STAGE_INT, own),
        STAGE_IF(SYS_rt_tgsigqueueinfo, 0, STAGE_INT, own),
    };
    for (size_t index = 0; index < STAGE_COUNT(rules); index++)
        stage_emit_checked(filter, &rules[index]);
}
#endif

/// Installs the filter of system calls for the calling process, which leads its process group, and for its
/// descendants. `signals_are_confined` is not 0 if Landlock keeps signals within the sandbox.
STAGE_CHECKED static inline int stage_filter_calls(int signals_are_confined) {
#ifdef STAGE_AUDIT_ARCH
    struct stage_filter filter;
    stage_begin_filter(&filter);
    for (size_t index = 0; index < STAGE_COUNT(stage_allowed_calls); index++)
        stage_emit_call(&filter, stage_allowed_calls[index], SECCOMP_RET_ALLOW);
    for (size_t index = 0; index < STAGE_COUNT(stage_checked_calls); index++)
        stage_emit_checked(&filter, &stage_checked_calls[index]);
    stage_emit_signals(&filter, signals_are_confined);
    for (size_t index = 0; index < STAGE_COUNT(stage_answered_calls); index++)
        stage_emit_call(
            &filter, stage_answered_calls[index].call,
            SECCOMP_RET_ERRNO | stage_answered_calls[index].error);
    stage_emit(&filter, (struct sock_filter)STAGE_ANSWER(ENOSYS));
    return stage_set_filter(&filter);
#else
    (void)signals_are_confined;
    errno = ENOSYS;
    return -1;
#endif
}
