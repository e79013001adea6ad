// Typed wrappers around the calls of sd-bus that take untyped pointers or whose status must not be
// ignored. Each returns what the call returns: negative numbers are errors of errno(3).
#pragma once
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>

#define STAGE_BUS_CHECKED __attribute__((warn_unused_result))

/// Starts to connect to a message bus without blocking. If the socket of the bus does not exist yet,
/// sd-bus connects once it appears (sd_bus_set_watch_bind(3)).
///
/// `*bus` may be set even if the result is an error; the caller releases it in both cases.
STAGE_BUS_CHECKED static inline int stage_bus_connect(sd_bus **bus, const char *address) {
    int status = sd_bus_new(bus);
    if (status >= 0) status = sd_bus_set_address(*bus, address);
    if (status >= 0) status = sd_bus_set_bus_client(*bus, 1);
    if (status >= 0) status = sd_bus_negotiate_fds(*bus, 0);
    if (status >= 0) status = sd_bus_set_watch_bind(*bus, 1);
    // The local signal 'Connected' reports that the connection is established.
    if (status >= 0) status = sd_bus_set_connected_signal(*bus, 1);
    if (status >= 0) status = sd_bus_start(*bus);
    return status;
}

/// Sends a method call with at most one string as its argument, and sets the cookie that identifies the
/// reply (sd_bus_send(3)). The bus does not start the called service.
STAGE_BUS_CHECKED static inline int stage_bus_send_call(
    sd_bus *bus, const char *destination, const char *path, const char *interface,
    const char *member, const char *argument, uint64_t *cookie) {
    sd_bus_message *message = NULL;
    int status = sd_bus_message_new_method_call(
        bus, &message, destination, path, interface, member);
    if (status >= 0) status = sd_bus_message_set_auto_start(message, 0);
    if (status >= 0 && argument) status = sd_bus_message_append(message, "s", argument);
    if (status >= 0) status = sd_bus_send(bus, message, cookie);
    sd_bus_message_unref(message);
    return status;
}

/// Processes one pending step of the connection, and sets the received message, if there is one
/// (sd_bus_process(3)).
STAGE_BUS_CHECKED static inline int stage_bus_process(sd_bus *bus, sd_bus_message **message) {
    return sd_bus_process(bus, message);
}

/// Returns the descriptor to poll; it may change after each step (sd_bus_get_fd(3)).
STAGE_BUS_CHECKED static inline int stage_bus_descriptor(sd_bus *bus) {
    return sd_bus_get_fd(bus);
}

/// Returns 1 while sd-bus waits for the socket of the bus to appear, else 0. The descriptor is then not a
/// socket.
STAGE_BUS_CHECKED static inline int stage_bus_awaits_socket(sd_bus *bus) {
    struct stat status;
    int file = sd_bus_get_fd(bus);
    return file >= 0 && fstat(file, &status) == 0 && !S_ISSOCK(status.st_mode);
}

/// Returns the poll(2) events to wait for (sd_bus_get_events(3)).
STAGE_BUS_CHECKED static inline int stage_bus_events(sd_bus *bus) {
    return sd_bus_get_events(bus);
}

/// Sets the time until which to wait, in microseconds of CLOCK_MONOTONIC; UINT64_MAX for no limit
/// (sd_bus_get_timeout(3)).
STAGE_BUS_CHECKED static inline int stage_bus_deadline(sd_bus *bus, uint64_t *deadline) {
    return sd_bus_get_timeout(bus, deadline);
}

/// Returns the cookie of the call that a message replies to; 0 for none.
STAGE_BUS_CHECKED static inline uint64_t stage_message_answered(sd_bus_message *message) {
    uint64_t cookie = 0;
    return sd_bus_message_get_reply_cookie(message, &cookie) < 0 ? 0 : cookie;
}

/// Returns the name of the error that a reply carries, or NULL.
static inline const char *stage_message_error(sd_bus_message *message) {
    const sd_bus_error *error = sd_bus_message_get_error(message);
    return error ? error->name : NULL;
}

/// Sets the type of the next value, an SD_BUS_TYPE_ constant; returns 0 at the end of a container
/// (sd_bus_message_peek_type(3)).
STAGE_BUS_CHECKED static inline int stage_message_peek(
    sd_bus_message *message, char *type, const char **contents) {
    return sd_bus_message_peek_type(message, type, contents);
}

/// Enters a container (sd_bus_message_enter_container(3)).
STAGE_BUS_CHECKED static inline int stage_message_enter(
    sd_bus_message *message, char type, const char *contents) {
    return sd_bus_message_enter_container(message, type, contents);
}

/// Leaves a container that was read completely (sd_bus_message_exit_container(3)).
STAGE_BUS_CHECKED static inline int stage_message_exit(sd_bus_message *message) {
    return sd_bus_message_exit_container(message);
}

/// Skips one value of any type (sd_bus_message_skip(3)).
STAGE_BUS_CHECKED static inline int stage_message_skip(sd_bus_message *message) {
    return sd_bus_message_skip(message, NULL);
}

/// Reads a string; the message owns it.
STAGE_BUS_CHECKED static inline int stage_message_read_text(
    sd_bus_message *message, const char **value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_STRING, value);
}

/// Reads a number of the type `u`.
STAGE_BUS_CHECKED static inline int stage_message_read_number(
    sd_bus_message *message, uint32_t *value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_UINT32, value);
}

/// Reads a number of the type `b`: 0 or 1.
STAGE_BUS_CHECKED static inline int stage_message_read_flag(sd_bus_message *message, int *value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_BOOLEAN, value);
}
