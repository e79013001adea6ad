// System calls that a decoder which was taken over would try, and a kernel that lacks a feature.
// Each call has arguments that do no harm where it is allowed.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/// What the attempts are made with.
struct decoder_attempts {
    /// A directory that the decoder may write, with a file `own`, and another descriptor that is no channel.
    int directory, other_socket;
    pid_t parent;
};

typedef void (*decoder_attempt_note)(void *context, const char *name, int error);

/// A copy of the process, if there is one, ends at once.
static inline long decoder_fork(unsigned long flags) {
    long result = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (result == 0) syscall(SYS_exit_group, 0);
    return result;
}

#define DECODER_TRY(name, call)                                 \
    do {                                                        \
        errno = 0;                                              \
        long result_ = (long)(call);                            \
        note(context, name, result_ == -1 ? errno : 0);         \
    } while (0)

/// Makes all attempts but execve(2), and tells `note` each one's errno(3), 0 for one that was allowed.
static inline void decoder_attempt_all(
    struct decoder_attempts with, decoder_attempt_note note, void *context) {
    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 04755};
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    int pair[2];
    int own = openat(with.directory, "own", O_RDONLY | O_NOFOLLOW);
    size_t page = 4096;
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    DECODER_TRY("socket, TCP", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    DECODER_TRY("socket, UDP", syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0));
    DECODER_TRY("socket, Unix", syscall(SYS_socket, AF_UNIX, SOCK_DGRAM, 0));
    DECODER_TRY("socket, netlink", syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0));
    DECODER_TRY("socketpair", syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair));
    DECODER_TRY("sendmsg, another socket", syscall(SYS_sendmsg, with.other_socket, &message, 0));
    DECODER_TRY("sendto", syscall(SYS_sendto, with.other_socket, &byte, 1, 0, NULL, 0));
    DECODER_TRY("recvmsg", syscall(SYS_recvmsg, with.other_socket, &message, MSG_DONTWAIT));
    DECODER_TRY("open, to read", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0));
    DECODER_TRY("open, to write", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_WRONLY, 0));
    DECODER_TRY("open, memory", syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR, 0));
    DECODER_TRY("open, set-user-id", syscall(SYS_openat, with.directory, "s", O_CREAT | O_WRONLY, 04755));
    DECODER_TRY("open, without a name", syscall(SYS_openat, with.directory, ".", 020000000 | O_DIRECTORY | O_WRONLY, 0644));
    DECODER_TRY("open, access mode 3", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_ACCMODE, 0));
    DECODER_TRY("open, access mode 3, own", syscall(SYS_openat, with.directory, "own", O_ACCMODE | O_NOFOLLOW, 0));
    DECODER_TRY("open, emptying", syscall(SYS_openat, with.directory, "own", O_RDONLY | O_TRUNC, 0));
    DECODER_TRY("open, emptying to write", syscall(SYS_openat, with.directory, "own", O_WRONLY | O_TRUNC, 0));
    DECODER_TRY("openat2", syscall(SYS_openat2, with.directory, "t", &how, sizeof how));
    DECODER_TRY("fchmod, set-user-id", syscall(SYS_fchmod, own, 04755));
    DECODER_TRY("fchmod, for others", syscall(SYS_fchmod, own, 0777));
    DECODER_TRY("fchmodat", syscall(SYS_fchmodat, with.directory, "own", 0644));
    DECODER_TRY("mkdirat, sticky", syscall(SYS_mkdirat, with.directory, "d", 01777));
    DECODER_TRY("dup", syscall(SYS_dup, own));
    DECODER_TRY("fchown", syscall(SYS_fchown, own, -1, -1));
    DECODER_TRY("fchownat", syscall(SYS_fchownat, with.directory, "own", -1, -1, 0));
    DECODER_TRY("utimensat", syscall(SYS_utimensat, with.directory, "own", NULL, 0));
    DECODER_TRY("fsetxattr", syscall(SYS_fsetxattr, own, "user.a", "b", 1, 0));
    DECODER_TRY("linkat", syscall(SYS_linkat, with.directory, "own", with.directory, "l", 0));
    DECODER_TRY("renameat2", syscall(SYS_renameat2, with.directory, "own", with.directory, "r", 0));
    DECODER_TRY("unlinkat", syscall(SYS_unlinkat, with.directory, "none", 0));
    DECODER_TRY("mknodat", syscall(SYS_mknodat, with.directory, "n", S_IFIFO | 0644, 0));
    DECODER_TRY("truncate", syscall(SYS_truncate, "/none", 0));
    DECODER_TRY("ioctl", syscall(SYS_ioctl, 0, TIOCSTI, "x"));
    DECODER_TRY("kill, the first process", syscall(SYS_kill, 1, 0));
    DECODER_TRY("kill, the parent", syscall(SYS_kill, with.parent, 0));
    DECODER_TRY("tgkill, the parent", syscall(SYS_tgkill, with.parent, with.parent, 0));
    DECODER_TRY("pidfd_open", syscall(SYS_pidfd_open, with.parent, 0));
    DECODER_TRY("ptrace", syscall(SYS_ptrace, PTRACE_ATTACH, 0x7FFFFFFF, 0, 0));
    DECODER_TRY("process_vm_readv", syscall(SYS_process_vm_readv, with.parent, &part, 1, &part, 1, 0));
    DECODER_TRY("prlimit, the parent's", syscall(SYS_prlimit64, with.parent, RLIMIT_CORE, NULL, &limit));
    DECODER_TRY("prlimit, to set", syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, NULL));
    DECODER_TRY("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
    DECODER_TRY("add_key", syscall(SYS_add_key, "user", "k", "v", 1, -2));
    DECODER_TRY("clone, a process", decoder_fork(0));
    DECODER_TRY("clone, user namespace", decoder_fork(0x10000000 /* CLONE_NEWUSER */));
    DECODER_TRY("unshare", syscall(SYS_unshare, 0x10000000));
    DECODER_TRY("setns", syscall(SYS_setns, -1, 0));
    DECODER_TRY("mount", syscall(SYS_mount, NULL, NULL, NULL, 0, NULL));
    DECODER_TRY("chroot", syscall(SYS_chroot, "/none"));
    DECODER_TRY("setuid", syscall(SYS_setresuid, -1, -1, -1));
    DECODER_TRY("memfd_create", syscall(SYS_memfd_create, "m", 0));
    DECODER_TRY("mmap, code", mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    DECODER_TRY("mprotect, code", mprotect(memory, page, PROT_READ | PROT_EXEC));
    DECODER_TRY("pkey_mprotect, code", syscall(SYS_pkey_mprotect, memory, page, PROT_READ | PROT_EXEC, -1));
    DECODER_TRY("prctl", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    DECODER_TRY("personality", syscall(SYS_personality, 0xFFFFFFFF));
    DECODER_TRY("bpf", syscall(SYS_bpf, -1, NULL, 0));
    DECODER_TRY("userfaultfd", syscall(SYS_userfaultfd, 0));
    DECODER_TRY("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    DECODER_TRY("io_uring_setup", syscall(SYS_io_uring_setup, 0, NULL));
    DECODER_TRY("init_module", syscall(SYS_init_module, NULL, 0, NULL));
    DECODER_TRY("finit_module", syscall(SYS_finit_module, -1, NULL, 0));
    DECODER_TRY("kexec_load", syscall(SYS_kexec_load, 0, 17, NULL, -1));
    DECODER_TRY("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    DECODER_TRY("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, NULL, 0));
    DECODER_TRY("shmget", syscall(SYS_shmget, 0, 0, 0));
    DECODER_TRY("inotify_init1", syscall(SYS_inotify_init1, 0));
    DECODER_TRY("clone3", syscall(SYS_clone3, NULL, 0));
}

/// Tries to become another program; returns the errno(3), or not at all.
static inline int decoder_attempt_execve(void) {
    char *const arguments[] = {(char *)"true", NULL};
    syscall(SYS_execve, "/bin/true", arguments, arguments + 1);
    return errno;
}

/// Gives a process of root with one thread another user, who has no rights of root's.
static inline int decoder_become(unsigned user) {
    if (syscall(SYS_setgroups, 0, NULL) != 0) return -1;
    if (syscall(SYS_setresgid, user, user, user) != 0) return -1;
    return (int)syscall(SYS_setresuid, user, user, user);
}

/// Simulates a kernel without `call`: it fails with ENOSYS, in this process and each that it starts.
static inline int decoder_without_call(long call) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/// Simulates a kernel without Landlock.
static inline int decoder_without_landlock(void) {
    return decoder_without_call(444 /* landlock_create_ruleset */);
}

/// Simulates a file system that cannot refuse to replace a name (`RENAME_NOREPLACE`), in this thread and those that it starts.
static inline int decoder_without_refused_renames(void) { return decoder_without_call(SYS_renameat2); }

/// Simulates a kernel without filters of system calls, as it says itself.
static inline int decoder_without_seccomp(void) { return decoder_without_call(SYS_seccomp); }
