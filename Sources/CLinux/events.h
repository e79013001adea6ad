// Descriptors that wake a thread in poll(2): a counter, and kernel device events.
#pragma once
#include "shim.h"
#include <linux/netlink.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/// Creates a counter that poll(2) reports as readable while it is not zero (eventfd(2)).
STAGE_CHECKED static inline int stage_counter(void) {
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/// Opens a netlink socket for kernel device events (netlink(7)); needs no privileges.
STAGE_CHECKED static inline int stage_device_events(void) {
    int file = socket(
        AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    if (file < 0) return -1;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1};
    if (bind(file, (const struct sockaddr *)&address, sizeof address) == 0) return file;
    int reason = errno;
    close(file);
    errno = reason;
    return -1;
}

/// Receives one device event of the kernel. Returns -1 with errno EAGAIN if there is none, and EPROTO for a message
/// that another process sent.
STAGE_CHECKED static inline ssize_t stage_receive_device_event(
    int file, void *bytes, size_t count) {
    struct sockaddr_nl sender = {0};
    socklen_t length = sizeof sender;
    ssize_t received = recvfrom(file, bytes, count, 0, (struct sockaddr *)&sender, &length);
    if (received >= 0 && sender.nl_pid != 0) {
        errno = EPROTO;
        return -1;
    }
    return received;
}
