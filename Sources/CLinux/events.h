// Descriptors that wake a thread in poll(2): a counter, and messages of the kernel about devices and the network.
#pragma once
#include "shim.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/// Creates a counter that poll(2) reports as readable while it is not zero (eventfd(2)).
STAGE_CHECKED static inline int stage_counter(void) {
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/// Opens a netlink socket for messages of the kernel to multicast groups (netlink(7)).
STAGE_CHECKED static inline int stage_kernel_messages(int protocol, uint32_t groups) {
    int file = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (file < 0) return -1;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};
    if (bind(file, (const struct sockaddr *)&address, sizeof address) == 0) return file;
    int reason = errno;
    close(file);
    errno = reason;
    return -1;
}

/// Opens a socket for kernel device events; needs no privileges.
STAGE_CHECKED static inline int stage_device_events(void) {
    return stage_kernel_messages(NETLINK_KOBJECT_UEVENT, 1);
}

/// Opens a socket for changes of links, addresses and routes in this network namespace (rtnetlink(7)); needs no
/// privileges.
STAGE_CHECKED static inline int stage_network_events(void) {
    return stage_kernel_messages(
        NETLINK_ROUTE, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE
            | RTMGRP_IPV6_ROUTE);
}

/// Receives one datagram of the kernel. Returns -1 with errno EAGAIN if there is none, and EPROTO for one that another
/// process sent.
STAGE_CHECKED static inline ssize_t stage_receive_kernel_message(
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

/// Returns whether the flags of a link say that it is up and can carry packets (IFF_RUNNING, netdevice(7)).
static inline bool stage_link_runs(uint32_t flags) { return (flags & IFF_RUNNING) != 0; }
