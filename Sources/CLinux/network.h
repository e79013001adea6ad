// Routes of this machine.
#pragma once
#include "shim.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

/// Returns whether the system has a route to an address; `true` if that is unknown. Connecting a datagram socket sends
/// nothing.
static inline bool stage_has_route(const struct sockaddr *address, socklen_t size) {
    int file = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) return errno != EAFNOSUPPORT;
    bool has_route = connect(file, address, size) == 0;
    close(file);
    return has_route;
}

/// Returns whether the system has a default route, of IPv4 or IPv6. `true` if that is unknown.
static inline bool stage_has_default_route(void) {
    // 198.51.100.1 and 2001:db8::1: addresses for documentation (RFC 5737 and RFC 3849), which no network uses.
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(9)};
    four.sin_addr.s_addr = htonl(0xc6336401);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    six.sin6_addr = (struct in6_addr){{{0x20, 0x01, 0x0d, 0xb8, [15] = 1}}};
    return stage_has_route((const struct sockaddr *)&four, sizeof four)
        || stage_has_route((const struct sockaddr *)&six, sizeof six);
}
