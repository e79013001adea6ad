// What wakes a thread that sleeps in poll(2): a counter, and news of devices.
#pragma once
#include "shim.h"
#include <linux/netlink.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/// Makes a counter that poll(2) reports as readable while it is not zero (eventfd(2)).
STAGE_CHECKED static inline int stage_counter(void) {
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/// Opens a socket for what the kernel tells of devices, whoever asks (netlink(7)).
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

/// Receives one such message, and nothing that another process sent: then and when there is none,
/// -1 with errno EPROTO or EAGAIN.
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
