// Typed wrappers around Linux system calls that glibc declares as variadic, hides
// behind feature macros or does not wrap at all. Each returns what the call returns,
// -1 with errno set on failure.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

// Linux's names that glibc declares for _GNU_SOURCE only. Defining that here would give fd_set other
// members than in Swift's own import of glibc, which the compiler refuses.
#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif
#ifndef SYNC_FILE_RANGE_WRITE
#define SYNC_FILE_RANGE_WAIT_BEFORE 1
#define SYNC_FILE_RANGE_WRITE 2
#endif
#ifndef O_PATH
#define O_PATH 010000000
#endif
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef CLONE_FS
#define CLONE_FS 0x200
#endif

#define STAGE_CHECKED __attribute__((warn_unused_result))

/// Opens `path` below `directory`; `resolve` holds RESOLVE_ flags (openat2(2)).
///
/// The kernel fails with EAGAIN if it would resolve '..' below a directory while a process renames or mounts anything on the machine.
/// The call is then repeated, a limited number of times, since another user can rename for ever.
STAGE_CHECKED static inline int stage_openat2(
    int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    int file = -1;
    for (int attempt = 0; attempt < 1024; attempt++) {
        file = (int)syscall(SYS_openat2, directory, path, &how, sizeof(how));
        if (file >= 0 || errno != EAGAIN) break;
    }
    return file;
}

/// Renames with RENAME_ flags (renameat2(2)).
STAGE_CHECKED static inline int stage_renameat2(
    int from, const char *name, int to, const char *target, unsigned int flags) {
    return (int)syscall(SYS_renameat2, from, name, to, target, flags);
}

/// Tries to take an open-file-description lock on the whole file (fcntl(2)).
STAGE_CHECKED static inline int stage_ofd_lock(int file, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &lock);
}

/// Waits until it has taken an open-file-description lock on the whole file (fcntl(2)).
STAGE_CHECKED static inline int stage_ofd_wait(int file, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLKW, &lock);
}

/// Returns 1 if another open file description holds a lock that conflicts with one of `type` (fcntl(2)), else 0.
STAGE_CHECKED static inline int stage_ofd_is_locked(int file, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    if (fcntl(file, F_OFD_GETLK, &lock) == -1) return -1;
    return lock.l_type != F_UNLCK;
}

/// Returns 1 if the extended attribute `name` of an open file is the single character `value`, else 0.
STAGE_CHECKED static inline int stage_has_attribute(int file, const char *name, char value) {
    char found;
    return fgetxattr(file, name, &found, 1) == 1 && found == value;
}

/// Writes all dirty data of the file system of `file` to disk (syncfs(2)).
STAGE_CHECKED static inline int stage_syncfs(int file) {
    return (int)syscall(SYS_syncfs, file);
}

/// Starts writing the dirty pages of `file` without waiting (sync_file_range(2)).
STAGE_CHECKED static inline int stage_start_writeback(int file) {
    return (int)syscall(SYS_sync_file_range, file, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/// Waits for the writes of `file` that have begun, and reports a failed one (sync_file_range(2)).
STAGE_CHECKED static inline int stage_wait_for_writeback(int file) {
    return (int)syscall(SYS_sync_file_range, file, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
}

/// Opens a directory by path (open(2)).
STAGE_CHECKED static inline int stage_open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/// Opens a file by path for reading (open(2)).
STAGE_CHECKED static inline int stage_open_file(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC);
}

/// Opens a file by path for reading; does not block on a FIFO or device (open(2)).
STAGE_CHECKED static inline int stage_open_regular_file(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/// Opens a file by path without access to its content (O_PATH): does not block, and does not open a device.
/// Refuses magic links, such as those of /proc/self/fd, with ELOOP (openat2(2)).
STAGE_CHECKED static inline int stage_find_file(const char *path) {
    return stage_openat2(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS);
}

/// Opens a file that stage_find_file() found for reading; the kernel checks the permissions of the calling
/// thread.
STAGE_CHECKED static inline int stage_open_found(int file) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return stage_open_regular_file(path);
}

/// Returns 1 if the clock is synchronised to a time source (adjtimex(2)), else 0.
STAGE_CHECKED static inline int stage_is_clock_synchronized(void) {
    struct timex state = {.modes = 0};
    int status = adjtimex(&state);
    if (status < 0) return -1;
    return status != TIME_ERROR && !(state.status & STA_UNSYNC);
}

/// Returns 1 if the kernel generates the content of `file` (procfs, sysfs and the like), else 0.
STAGE_CHECKED static inline int stage_is_kernel_content(int file) {
    // File systems that linux/magic.h does not name.
    enum { FUSECTL = 0x65735543, MQUEUE = 0x19800202, CONFIGFS = 0x62656570, RPC_PIPEFS = 0x67596969 };
    struct statfs status;
    if (fstatfs(file, &status) != 0) return -1;
    switch ((uint32_t)status.f_type) {
    case PROC_SUPER_MAGIC: case SYSFS_MAGIC: case CGROUP_SUPER_MAGIC: case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC: case TRACEFS_MAGIC: case SECURITYFS_MAGIC: case BPF_FS_MAGIC:
    case BINFMTFS_MAGIC: case PSTOREFS_MAGIC: case EFIVARFS_MAGIC: case SELINUX_MAGIC:
    case SMACK_MAGIC: case DEVPTS_SUPER_MAGIC: case NSFS_MAGIC: case SOCKFS_MAGIC: case PIPEFS_MAGIC:
    case ANON_INODE_FS_MAGIC: case RDTGROUP_SUPER_MAGIC:
    case FUSECTL: case MQUEUE: case CONFIGFS: case RPC_PIPEFS: return 1;
    default: return 0;
    }
}

/// Returns 1 if a hard link to a file may need space for the file's content, else 0: overlayfs copies a file of a lower layer
/// before it links it, and file systems in user space may refuse links.
STAGE_CHECKED static inline int stage_may_copy_for_links(int file) {
    // linux/magic.h may not name the file systems in user space.
    enum { USER_SPACE = 0x65735546 };
    struct statfs status;
    if (fstatfs(file, &status) != 0) return -1;
    switch ((uint32_t)status.f_type) {
    case OVERLAYFS_SUPER_MAGIC: case USER_SPACE: return 1;
    default: return 0;
    }
}

/// Sets `*start` and `*end` to the next stored range from `*start` on, and returns 1; returns 0 if only a hole
/// follows (lseek(2), SEEK_DATA). Moves the position of `file`. On a file system without holes, everything up to
/// `size` is stored.
STAGE_CHECKED static inline int stage_next_stored(int file, int64_t size, int64_t *start, int64_t *end) {
    if (*start >= size) return 0;
    // SEEK_DATA and SEEK_HOLE
    off_t data = lseek(file, *start, 3);
    if (data < 0 && errno == ENXIO) return 0;
    if (data < 0 && errno == EINVAL) {
        *end = size;
        return 1;
    }
    if (data < 0) return -1;
    off_t hole = lseek(file, data, 4);
    if (hole < 0) return -1;
    *start = data;
    *end = hole < size ? hole : size;
    return data < size;
}

#ifndef FICLONE
#define FICLONE _IOW(0x94, 9, int)
#endif

/// Replaces the content of `file` by that of `source`, sharing all blocks (ioctl_ficlone(2)).
STAGE_CHECKED static inline int stage_clone_content(int source, int file) {
    return ioctl(file, FICLONE, source);
}

/// Copies up to `count` bytes at `offset` of one file to the same offset of another (copy_file_range(2)).
STAGE_CHECKED static inline ssize_t stage_copy_range(
    int source, int file, int64_t offset, size_t count) {
    int64_t from = offset, to = offset;
    return (ssize_t)syscall(SYS_copy_file_range, source, &from, file, &to, count, 0);
}

/// Sets the access time of `file`, and leaves its modification time (futimens(3)).
STAGE_CHECKED static inline int stage_set_access_time(int file, time_t seconds) {
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_nsec = UTIME_OMIT}};
    return futimens(file, times);
}

/// Permanently sets the file-system identity of the calling thread only (setfsuid(2), setgroups(2)).
STAGE_CHECKED static inline int stage_act_as(
    unsigned user, unsigned group, const unsigned *groups, size_t count) {
    if (syscall(SYS_setgroups, count, groups) != 0) return -1;
    // Both calls return the previous value and report no error; the invalid -1 below changes nothing and reads the value.
    syscall(SYS_setfsgid, group);
    syscall(SYS_setfsuid, user);
    if (syscall(SYS_setfsgid, -1) == (long)group && syscall(SYS_setfsuid, -1) == (long)user) return 0;
    errno = EPERM;
    return -1;
}

/// Duplicates the descriptor `file` (fcntl(2)).
STAGE_CHECKED static inline int stage_duplicate(int file) {
    return fcntl(file, F_DUPFD_CLOEXEC, 0);
}

/// Declared by glibc for _GNU_SOURCE only.
extern int mkostemp(char *, int);

/// Creates a file whose name replaces the six last characters of `name`, which are 'XXXXXX' (mkostemp(3)).
STAGE_CHECKED static inline int stage_make_temporary_file(char *name) {
    return mkostemp(name, O_CLOEXEC);
}

/// Limits the threads of the process to `count` malloc arenas (mallopt(3)).
STAGE_CHECKED static inline int stage_limit_arenas(int count) {
    return mallopt(M_ARENA_MAX, count) == 1 ? 0 : -1;
}

/// Serves allocations of `size` bytes and more with mmap(2), so that free(3) returns them to the system (mallopt(3)).
STAGE_CHECKED static inline int stage_map_from(int size) {
    return mallopt(M_MMAP_THRESHOLD, size) == 1 ? 0 : -1;
}

/// Returns freed memory to the system (malloc_trim(3)).
static inline void stage_trim_memory(void) { malloc_trim(0); }
