// Confining a process that works on what servers send: its capabilities, and the system calls that it may make.
// Each returns what the call returns, -1 with errno set on failure.
#pragma once
#include "decoder.h"

/// Gives up all capabilities of the calling thread but those of `kept`, bits of the first 32 capabilities.
STAGE_CHECKED static inline int stage_keep_capabilities(uint32_t kept) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, held) != 0) return -1;
    for (int index = 0; index < _LINUX_CAPABILITY_U32S_3; index++) {
        uint32_t mask = index == 0 ? kept : 0;
        held[index].effective &= mask;
        held[index].permitted &= mask;
        held[index].inheritable = 0;
    }
    // Kernels before 4.3 have no ambient set.
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL) return -1;
    return (int)syscall(SYS_capset, &header, held);
}

#ifdef STAGE_AUDIT_ARCH
/// Calls that answer with an error: they reach other processes, services and files that Landlock does not
/// keep from the process, or parts of the kernel that it has no use for.
static const struct {
    uint16_t call, error;
} stage_worker_refused[] = {
    // The filter also uses this error for arguments of these calls that it does not allow.
    {SYS_socket, EAFNOSUPPORT},
    {SYS_socketpair, EACCES},
    // Without a bound port, which Landlock sees, the kernel chooses one.
    {SYS_listen, EACCES},
    {SYS_openat, EACCES},
    {SYS_mkdirat, EPERM},
    {SYS_fchmod, EPERM},
    {SYS_utimensat, EPERM},
    {SYS_unshare, EPERM},
    {SYS_clone, EPERM},
    // The flags of clone3(2) are in memory, which filters cannot read; after ENOSYS the C library uses clone(2).
    {SYS_clone3, ENOSYS},
    // Filters do not see the requests of io_uring(7).
    {SYS_io_uring_setup, ENOSYS},
    {SYS_io_uring_enter, ENOSYS},
    {SYS_io_uring_register, ENOSYS},
    // Modes, owners and times by path, which Landlock does not know.
    {SYS_fchmodat, EPERM},
    {452 /* fchmodat2, of Linux 6.6 */, EPERM},
    {SYS_fchownat, EPERM},
    {SYS_setxattr, EPERM},
    {SYS_lsetxattr, EPERM},
    {SYS_removexattr, EPERM},
    {SYS_lremovexattr, EPERM},
    // An access list changes the mode of an open file as fchmod(2) does, and rights of other users with it.
    {SYS_fsetxattr, EOPNOTSUPP},
    {SYS_fremovexattr, EOPNOTSUPP},
    {463 /* setxattrat, of Linux 6.13 */, EPERM},
    {466 /* removexattrat */, EPERM},
    {469 /* file_setattr, of Linux 6.17 */, EPERM},
    {SYS_mknodat, EPERM},
    {SYS_truncate, EACCES},
    {SYS_open_by_handle_at, EPERM},
    // Other processes of the user.
    {SYS_ptrace, EPERM},
    {SYS_process_vm_readv, EPERM},
    {SYS_process_vm_writev, EPERM},
    {SYS_process_madvise, EPERM},
    {SYS_pidfd_getfd, EPERM},
    {SYS_kcmp, EPERM},
    // Limits and priorities: a process that may use no more time is killed.
    {SYS_prlimit64, EPERM},
    {SYS_setpriority, EPERM},
    {SYS_ioprio_set, EPERM},
    {SYS_sched_setaffinity, EPERM},
    {SYS_sched_setparam, EPERM},
    {SYS_sched_setscheduler, EPERM},
    {SYS_sched_setattr, EPERM},
    {SYS_add_key, EPERM},
    {SYS_request_key, EPERM},
    {SYS_keyctl, EPERM},
    // System V objects: those that exist are used by their numbers, which can be guessed. shmdt(2) changes
    // the process's own memory alone.
    {SYS_msgget, EPERM},
    {SYS_msgsnd, EPERM},
    {SYS_msgrcv, EPERM},
    {SYS_msgctl, EPERM},
    {SYS_semget, EPERM},
    {SYS_semop, EPERM},
    {SYS_semtimedop, EPERM},
    {SYS_semctl, EPERM},
    {SYS_shmget, EPERM},
    {SYS_shmat, EPERM},
    {SYS_shmctl, EPERM},
    {SYS_mq_open, EPERM},
    {SYS_mq_unlink, EPERM},
    // The machine.
    {SYS_bpf, EPERM},
    {SYS_perf_event_open, EPERM},
    {SYS_userfaultfd, EPERM},
    {SYS_fanotify_init, EPERM},
    {SYS_setns, EPERM},
    {SYS_mount, EPERM},
    {SYS_umount2, EPERM},
    {SYS_pivot_root, EPERM},
    {SYS_chroot, EPERM},
    {SYS_open_tree, EPERM},
    {SYS_move_mount, EPERM},
    {SYS_fsopen, EPERM},
    {SYS_fspick, EPERM},
    {SYS_mount_setattr, EPERM},
    {SYS_init_module, EPERM},
    {SYS_finit_module, EPERM},
    {SYS_delete_module, EPERM},
    {SYS_kexec_load, EPERM},
    {SYS_reboot, EPERM},
    {SYS_swapon, EPERM},
    {SYS_swapoff, EPERM},
    {SYS_acct, EPERM},
    {SYS_quotactl, EPERM},
    {SYS_syslog, EPERM},
    {SYS_personality, EPERM},
#ifdef __x86_64__
    {SYS_open, EACCES},
    {SYS_creat, EACCES},
    {SYS_mkdir, EPERM},
    {SYS_mknod, EPERM},
    {SYS_chmod, EPERM},
    {SYS_chown, EPERM},
    {SYS_lchown, EPERM},
    {SYS_utime, EPERM},
    {SYS_utimes, EPERM},
    {SYS_futimesat, EPERM},
    {SYS_iopl, EPERM},
    {SYS_ioperm, EPERM},
#endif
};

/// New namespaces and tracing (clone(2)). Children of the parent are what decoders are.
#define STAGE_WORKER_CLONE_REFUSED (STAGE_CLONE_REFUSED & ~(uint32_t)CLONE_PARENT)

static const struct stage_checked_call stage_worker_checked[] = {
    // Servers and name servers; no service of this machine by the name of its socket.
    STAGE_IF(SYS_socket, 0, STAGE_INT, AF_INET),
    STAGE_IF(SYS_socket, 0, STAGE_INT, AF_INET6),
    // The addresses of this machine (NETLINK_ROUTE), which getaddrinfo(3) asks for.
    STAGE_IF_BOTH(SYS_socket, 0, STAGE_INT, AF_NETLINK, 2, STAGE_INT, 0),
    STAGE_IF_BOTH(SYS_socketpair, 0, STAGE_INT, AF_UNIX, 1, 0xf, SOCK_STREAM),
    STAGE_IF_BOTH(SYS_socketpair, 0, STAGE_INT, AF_UNIX, 1, 0xf, SOCK_SEQPACKET),
    STAGE_IF_OPENING(SYS_openat, 2),
    STAGE_IF(SYS_mkdirat, 2, STAGE_SET_ID, 0),
    STAGE_IF(SYS_fchmod, 1, STAGE_SET_ID | S_IWGRP | S_IWOTH, 0),
    // Only for an open file (futimens(3)).
    STAGE_IF(SYS_utimensat, 1, ~0ull, 0),
    STAGE_IF(SYS_unshare, 0, ~0ull, CLONE_FS),
    // Only for the calling process.
    STAGE_IF(SYS_prlimit64, 0, STAGE_INT, 0),
    STAGE_IF(SYS_sched_setaffinity, 0, STAGE_INT, 0),
    STAGE_IF_BOTH(SYS_setpriority, 0, STAGE_INT, PRIO_PROCESS, 1, STAGE_INT, 0),
    STAGE_IF(SYS_clone, 0, STAGE_WORKER_CLONE_REFUSED, 0),
#ifdef __x86_64__
    STAGE_IF_OPENING(SYS_open, 1),
    STAGE_IF(SYS_creat, 1, STAGE_SET_ID, 0),
    STAGE_IF(SYS_mkdir, 1, STAGE_SET_ID, 0),
#endif
};
#endif

/// Refuses the calls above to the calling thread, and to those and the processes that it makes from now on
/// (seccomp(2)). All others stay as they are.
STAGE_CHECKED static inline int stage_filter_worker(void) {
#ifdef STAGE_AUDIT_ARCH
    struct stage_filter filter;
    stage_begin_filter(&filter);
    for (size_t index = 0; index < STAGE_COUNT(stage_worker_checked); index++)
        stage_emit_checked(&filter, &stage_worker_checked[index]);
    for (size_t index = 0; index < STAGE_COUNT(stage_worker_refused); index++)
        stage_emit_call(
            &filter, stage_worker_refused[index].call,
            SECCOMP_RET_ERRNO | stage_worker_refused[index].error);
    stage_emit(&filter, (struct sock_filter)STAGE_TAKE);
    return stage_set_filter(&filter);
#else
    errno = ENOSYS;
    return -1;
#endif
}
