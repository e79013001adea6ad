// Typed wrappers around Linux system calls that glibc declares as variadic, hides
// behind feature macros or does not wrap at all. Each returns what the call returns,
// -1 with errno set on failure.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAGE_CHECKED __attribute__((warn_unused_result))

/// Opens `path` below `directory`; `resolve` holds RESOLVE_ flags (openat2(2)).
STAGE_CHECKED static inline int stage_openat2(
    int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof(how));
}

/// Renames with RENAME_ flags (renameat2(2)).
STAGE_CHECKED static inline int stage_renameat2(
    int from, const char *name, int to, const char *target, unsigned int flags) {
    return (int)syscall(SYS_renameat2, from, name, to, target, flags);
}

/// Takes or tries an open-file-description lock on the whole file (fcntl(2)).
STAGE_CHECKED static inline int stage_ofd_lock(int file, short type, int wait) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
}

/// Writes everything the file system of `file` holds in memory (syncfs(2)).
STAGE_CHECKED static inline int stage_syncfs(int file) {
    return (int)syscall(SYS_syncfs, file);
}

/// Starts writing the dirty pages of `file` without waiting (sync_file_range(2)).
STAGE_CHECKED static inline int stage_start_writeback(int file) {
    return sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/// Opens a directory by path (open(2)).
STAGE_CHECKED static inline int stage_open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/// Opens a file by path for reading (open(2)).
STAGE_CHECKED static inline int stage_open_file(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC);
}

/// Returns another descriptor for what `file` is open on (fcntl(2)).
STAGE_CHECKED static inline int stage_duplicate(int file) {
    return fcntl(file, F_DUPFD_CLOEXEC, 0);
}
