// Messages between processes that carry open files, and streams between them (unix(7)).
#pragma once
#include "shim.h"
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

/// The maximum number of open files in one message.
#define STAGE_MESSAGE_FILES 2

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/// Creates two connected sockets that preserve message boundaries.
STAGE_CHECKED static inline int stage_socket_pair(int sockets[2]) {
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets);
}

/// Sends one message with up to STAGE_MESSAGE_FILES open files.
STAGE_CHECKED static inline ssize_t stage_send(
    int socket, const void *bytes, size_t count, const int *files, size_t file_count) {
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = count};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(STAGE_MESSAGE_FILES * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file_count > STAGE_MESSAGE_FILES) {
        errno = EINVAL;
        return -1;
    }
    if (file_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(file_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(file_count * sizeof(int));
        memcpy(CMSG_DATA(header), files, file_count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

/// Receives one message and its open files; the kernel closes those that exceed the capacity of `files`. Fails with
/// EMSGSIZE if the message was truncated.
STAGE_CHECKED static inline ssize_t stage_receive(
    int socket, void *bytes, size_t capacity, int *files, size_t *file_count) {
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(STAGE_MESSAGE_FILES * sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    *file_count = 0;
    ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (received < 0) return received;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t index = 0; index < count && *file_count < STAGE_MESSAGE_FILES; index++) {
            memcpy(&files[*file_count], CMSG_DATA(header) + index * sizeof(int), sizeof(int));
            *file_count += 1;
        }
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (size_t index = 0; index < *file_count; index++) close(files[index]);
        *file_count = 0;
        errno = EMSGSIZE;
        return -1;
    }
    return received;
}

/// Receives one message from a sender that is not trusted; fails with EMSGSIZE if it has open files or was truncated.
///
/// The files never become descriptors of this process: close(2) of one waits for its file system, without end if
/// that is one in user space (fuse(4)).
STAGE_CHECKED static inline ssize_t stage_receive_bytes(int socket, void *bytes, size_t capacity) {
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    // Without room for control messages the kernel drops them.
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t received = recvmsg(socket, &message, 0);
    if (received < 0 || !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return received;
    errno = EMSGSIZE;
    return -1;
}

/// Makes the kernel refuse open files that others send to `socket`, and to the connections of a listening one that are
/// made from now on: their sendmsg(2) fails with EPERM (SO_PASSRIGHTS, Linux 6.16). Does nothing on older kernels.
static inline void stage_refuse_files(int socket) {
    int accepts = 0;
    setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &accepts, sizeof accepts);
}

/// Makes reads from and writes to `socket` fail with EAGAIN after `microseconds` without a byte; 0 for no limit.
STAGE_CHECKED static inline int stage_set_timeout(int socket, int64_t microseconds) {
    struct timeval timeout = {.tv_sec = microseconds / 1000000, .tv_usec = microseconds % 1000000};
    int status = setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (status < 0) return status;
    return setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

/// Connects a stream to the socket at `path`, and returns its descriptor. Fails with ENAMETOOLONG if the path is too
/// long for a socket address, and with EAGAIN if the queue of the listener stays full for `microseconds`; 0 for no limit.
STAGE_CHECKED static inline int stage_connect(const char *path, int64_t microseconds) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, length + 1);
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) return -1;
    if (stage_set_timeout(file, microseconds) == 0
        && connect(file, (struct sockaddr *)&address, sizeof address) == 0) {
        return file;
    }
    int error = errno;
    close(file);
    errno = error;
    return -1;
}

/// Gets the user ID of the process that listens at the other end of a connected stream (`SO_PEERCRED`).
STAGE_CHECKED static inline int stage_peer_user(int socket, uid_t *user) {
    // 'struct ucred', which glibc declares for _GNU_SOURCE only.
    struct {
        pid_t process;
        uid_t user;
        gid_t group;
    } peer = {0};
    socklen_t length = sizeof peer;
    int status = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    *user = peer.user;
    return status;
}
