// Typed wrappers around the calls of sd-bus that take untyped pointers or whose status must not be
// passed over. Each returns what the call returns: negative numbers are errors of errno(3).
#pragma once
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>

#define STAGE_BUS_CHECKED __attribute__((warn_unused_result))

/// Makes a connection to a message bus, and does not wait for it: a bus that is not there yet is
/// connected to once its socket appears (sd_bus_set_watch_bind(3)).
///
/// `*bus` is set whenever there is something to release, be the result an error or not.
STAGE_BUS_CHECKED static inline int stage_bus_connect(sd_bus **bus, const char *address) {
    int status = sd_bus_new(bus);
    if (status >= 0) status = sd_bus_set_address(*bus, address);
    if (status >= 0) status = sd_bus_set_bus_client(*bus, 1);
    if (status >= 0) status = sd_bus_negotiate_fds(*bus, 0);
    if (status >= 0) status = sd_bus_set_watch_bind(*bus, 1);
    // A message of its own, 'Connected', tells when the bus has answered.
    if (status >= 0) status = sd_bus_set_connected_signal(*bus, 1);
    if (status >= 0) status = sd_bus_start(*bus);
    return status;
}

/// Sends a call with at most one string as its argument, and sets the cookie that the answer will have
/// (sd_bus_send(3)). The service called is not started for it.
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

/// Does one step of what there is to do, and sets the message that has come, if one has
/// (sd_bus_process(3)).
STAGE_BUS_CHECKED static inline int stage_bus_process(sd_bus *bus, sd_bus_message **message) {
    return sd_bus_process(bus, message);
}

/// The descriptor to wait on; it may be another one after each step (sd_bus_get_fd(3)).
STAGE_BUS_CHECKED static inline int stage_bus_descriptor(sd_bus *bus) {
    return sd_bus_get_fd(bus);
}

/// Whether the bus is not there, and its socket is waited for: then the descriptor is no socket.
STAGE_BUS_CHECKED static inline int stage_bus_awaits_socket(sd_bus *bus) {
    struct stat status;
    int file = sd_bus_get_fd(bus);
    return file >= 0 && fstat(file, &status) == 0 && !S_ISSOCK(status.st_mode);
}

/// What to wait for, in the terms of poll(2) (sd_bus_get_events(3)).
STAGE_BUS_CHECKED static inline int stage_bus_events(sd_bus *bus) {
    return sd_bus_get_events(bus);
}

/// Until when to wait, in microseconds of CLOCK_MONOTONIC; UINT64_MAX for ever
/// (sd_bus_get_timeout(3)).
STAGE_BUS_CHECKED static inline int stage_bus_deadline(sd_bus *bus, uint64_t *deadline) {
    return sd_bus_get_timeout(bus, deadline);
}

/// The kind of a message: SD_BUS_MESSAGE_SIGNAL and its like, 0 for none.
STAGE_BUS_CHECKED static inline uint8_t stage_message_kind(sd_bus_message *message) {
    uint8_t kind = 0;
    return sd_bus_message_get_type(message, &kind) < 0 ? 0 : kind;
}

/// The cookie of the call that a message answers, 0 for none.
STAGE_BUS_CHECKED static inline uint64_t stage_message_answered(sd_bus_message *message) {
    uint64_t cookie = 0;
    return sd_bus_message_get_reply_cookie(message, &cookie) < 0 ? 0 : cookie;
}

/// The name of the error that a message answers with, or NULL.
static inline const char *stage_message_error(sd_bus_message *message) {
    const sd_bus_error *error = sd_bus_message_get_error(message);
    return error ? error->name : NULL;
}

/// The type of what is read next, a SD_BUS_TYPE_ constant; 0 at the end of a container
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

/// Leaves a container all of which was read (sd_bus_message_exit_container(3)).
STAGE_BUS_CHECKED static inline int stage_message_exit(sd_bus_message *message) {
    return sd_bus_message_exit_container(message);
}

/// Passes over one value of whatever type (sd_bus_message_skip(3)).
STAGE_BUS_CHECKED static inline int stage_message_skip(sd_bus_message *message) {
    return sd_bus_message_skip(message, NULL);
}

/// Reads a string, which belongs to the message.
STAGE_BUS_CHECKED static inline int stage_message_read_text(
    sd_bus_message *message, const char **value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_STRING, value);
}

/// Reads a number of the type `u`.
STAGE_BUS_CHECKED static inline int stage_message_read_number(
    sd_bus_message *message, uint32_t *value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_UINT32, value);
}

/// Reads a number of the type `d`.
STAGE_BUS_CHECKED static inline int stage_message_read_real(
    sd_bus_message *message, double *value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_DOUBLE, value);
}

/// Reads a number of the type `b`: 0 or 1.
STAGE_BUS_CHECKED static inline int stage_message_read_flag(sd_bus_message *message, int *value) {
    return sd_bus_message_read_basic(message, SD_BUS_TYPE_BOOLEAN, value);
}
