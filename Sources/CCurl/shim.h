// Typed wrappers around the calls of libcurl that are variadic, one for each type of value.
// Each returns what the call returns.
#pragma once
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAGE_CURL_CHECKED __attribute__((warn_unused_result))

/// Sets an option that takes a `long` (curl_easy_setopt(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_number(
    CURL *easy, CURLoption option, long value) {
    return curl_easy_setopt(easy, option, value);
}

/// Sets an option that takes text, which libcurl copies (curl_easy_setopt(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_text(
    CURL *easy, CURLoption option, const char *value) {
    return curl_easy_setopt(easy, option, value);
}

/// Sets the header fields of the request; the list must outlive it (CURLOPT_HTTPHEADER(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_fields(
    CURL *easy, const struct curl_slist *fields) {
    return curl_easy_setopt(easy, CURLOPT_HTTPHEADER, fields);
}

/// Sets the buffer of CURL_ERROR_SIZE bytes for libcurl's error message (CURLOPT_ERRORBUFFER(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_error_buffer(CURL *easy, char *buffer) {
    return curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, buffer);
}

/// Sets the functions that receive header lines and the body, and their context (CURLOPT_WRITEFUNCTION(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_receiver(
    CURL *easy, curl_write_callback header, curl_write_callback body, void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, header);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_HEADERDATA, context);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_WRITEDATA, context);
    return code;
}

/// Sets the functions that read the body of a request and seek in it, their context, and the size of the body
/// in bytes (CURLOPT_READFUNCTION(3), CURLOPT_SEEKFUNCTION(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_sender(
    CURL *easy, curl_read_callback read, curl_seek_callback seek, void *context, curl_off_t size) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_READFUNCTION, read);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_READDATA, context);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_SEEKDATA, context);
    if (code == CURLE_OK) code = curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, size);
    return code;
}

/// Sets the function that accepts or aborts a request once its connection is established
/// (CURLOPT_PREREQFUNCTION(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_prerequest(
    CURL *easy, curl_prereq_callback callback) {
    return curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, callback);
}

/// Associates a pointer with a transfer (CURLOPT_PRIVATE(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_set_private(CURL *easy, void *pointer) {
    return curl_easy_setopt(easy, CURLOPT_PRIVATE, pointer);
}

/// Gets the pointer associated with a transfer (CURLINFO_PRIVATE(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_private(CURL *easy, void **pointer) {
    return curl_easy_getinfo(easy, CURLINFO_PRIVATE, pointer);
}

/// Gets a `long` of the transfer's information (curl_easy_getinfo(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_number(
    CURL *easy, CURLINFO item, long *value) {
    return curl_easy_getinfo(easy, item, value);
}

/// Gets a 64-bit number of the transfer's information (curl_easy_getinfo(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_offset(
    CURL *easy, CURLINFO item, curl_off_t *value) {
    return curl_easy_getinfo(easy, item, value);
}

/// Gets the socket of a connection that the caller uses itself (CURLINFO_ACTIVESOCKET(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_socket(CURL *easy, curl_socket_t *value) {
    return curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, value);
}

/// Gets a string of the transfer's information; the handle owns it (curl_easy_getinfo(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_easy_text(
    CURL *easy, CURLINFO item, const char **value) {
    return curl_easy_getinfo(easy, item, value);
}

/// Sets an option of a multi handle that takes a `long` (curl_multi_setopt(3)).
STAGE_CURL_CHECKED static inline CURLMcode stage_multi_set_number(
    CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}

/// Returns the result of a transfer from its CURLMSG_DONE message (curl_multi_info_read(3)).
STAGE_CURL_CHECKED static inline CURLcode stage_message_result(const CURLMsg *message) {
    return message->data.result;
}

/// Returns 1 if a numeric address is loopback, unspecified or link-local (RFC 6890), or cannot be parsed; else 0.
static inline int stage_is_local_address(const char *address) {
    struct in6_addr six;
    unsigned char four[4];
    char plain[INET6_ADDRSTRLEN + 1];
    // Without a zone.
    size_t length = strcspn(address, "%");
    if (length >= sizeof plain) return 1;
    memcpy(plain, address, length);
    plain[length] = 0;
    if (inet_pton(AF_INET, plain, four) != 1) {
        if (inet_pton(AF_INET6, plain, &six) != 1) return 1;
        const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
        const unsigned char nothing[15] = {0};
        if (memcmp(six.s6_addr, mapped, sizeof mapped) != 0) {
            if (memcmp(six.s6_addr, nothing, sizeof nothing) == 0 && six.s6_addr[15] <= 1) return 1;
            return six.s6_addr[0] == 0xfe && (six.s6_addr[1] & 0xc0) == 0x80;
        }
        memcpy(four, six.s6_addr + 12, sizeof four);
    }
    return four[0] == 127 || four[0] == 0 || (four[0] == 169 && four[1] == 254);
}

/// Parses a host as libcurl reports it; an IPv6 address may have brackets. Copies a numeric address without brackets to `plain`,
/// and its bytes to `address`. Returns the address family; 0 for names.
static inline int stage_parse_address(const char *host, char plain[INET6_ADDRSTRLEN + 1], unsigned char address[16]) {
    size_t length = strlen(host), brackets = length > 2 && host[0] == '[';
    length -= 2 * brackets;
    if (length > INET6_ADDRSTRLEN) return 0;
    memcpy(plain, host + brackets, length);
    plain[length] = 0;
    if (inet_pton(AF_INET, plain, address) == 1) return AF_INET;
    return inet_pton(AF_INET6, plain, address) == 1 ? AF_INET6 : 0;
}

/// Returns 1 if a host is a numeric address of this machine or its link; 0 for other addresses and for names. An IPv6
/// address may have brackets.
static inline int stage_is_this_machine(const char *host) {
    char plain[INET6_ADDRSTRLEN + 1];
    unsigned char address[16];
    int family = stage_parse_address(host, plain, address);
    if (family == 0) return 0;
    if (family == AF_INET6) {
        const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
        if (memcmp(address, mapped, sizeof mapped) == 0) {
            memcpy(address, address + 12, 4);
            family = AF_INET;
        }
    }
    if (stage_is_local_address(plain)) return 1;
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0) return 0;
    int is_own = 0;
    for (struct ifaddrs *own = list; own && !is_own; own = own->ifa_next) {
        if (!own->ifa_addr || own->ifa_addr->sa_family != family) continue;
        is_own = family == AF_INET
            ? memcmp(&((struct sockaddr_in *)(void *)own->ifa_addr)->sin_addr, address, 4) == 0
            : memcmp(&((struct sockaddr_in6 *)(void *)own->ifa_addr)->sin6_addr, address, 16) == 0;
    }
    freeifaddrs(list);
    return is_own;
}

/// Returns 1 if a host is a numeric address, for which libcurl makes no name lookup; an IPv6 address may have brackets.
static inline int stage_is_numeric(const char *host) {
    char plain[INET6_ADDRSTRLEN + 1];
    unsigned char address[16];
    return stage_parse_address(host, plain, address) != 0;
}

/// Returns 1 if a numeric address is not one of this machine's any more; 0 if it is, or if that is unknown.
static inline int stage_address_is_gone(const char *address) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    int is_four = inet_pton(AF_INET, address, &four.sin_addr) == 1;
    if (!is_four && inet_pton(AF_INET6, address, &six.sin6_addr) != 1) return 0;
    int descriptor = socket(is_four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return 0;
    int result = is_four
        ? bind(descriptor, (const struct sockaddr *)(const void *)&four, sizeof four)
        : bind(descriptor, (const struct sockaddr *)(const void *)&six, sizeof six);
    int is_gone = result != 0 && errno == EADDRNOTAVAIL;
    close(descriptor);
    return is_gone;
}

/// Aborts a request on a connection to this machine or its link (CURLOPT_PREREQFUNCTION(3)). `context` is the port
/// of a proxy, which may run on this machine; 0 for none.
static inline int stage_refuse_this_machine(
    void *context, char *address, char *local_address, int port, int local_port) {
    (void)local_port;
    if (context != NULL && port == (int)(intptr_t)context) return CURL_PREREQFUNC_OK;
    int is_local = address == NULL || stage_is_local_address(address)
        || (local_address != NULL && strcmp(address, local_address) == 0);
    return is_local ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/// Refuses requests on connections to this machine or its link, also if a host name resolves to them; except to
/// `proxy`, the port of a proxy, or 0.
STAGE_CURL_CHECKED static inline CURLcode stage_easy_refuse_this_machine(CURL *easy, long proxy) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_PREREQDATA, (void *)(intptr_t)proxy);
    if (code != CURLE_OK) return code;
    return curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, stage_refuse_this_machine);
}

/// Opens the socket of a connection for the user whose number is `context` (CURLOPT_OPENSOCKETFUNCTION(3)).
///
/// A socket belongs to the file-system user of the thread that opens it (setfsuid(2)). Firewalls and routing rules
/// compare this owner. The call returns the previous user and reports no error; the invalid -1 changes nothing.
static inline curl_socket_t stage_open_socket(
    void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)purpose;
    uid_t user = (uid_t)(uintptr_t)context;
    long own = syscall(SYS_setfsuid, user);
    curl_socket_t opened = CURL_SOCKET_BAD;
    int error = EPERM;
    if (syscall(SYS_setfsuid, -1) == (long)user) {
        opened = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
        error = errno;
    }
    syscall(SYS_setfsuid, (uid_t)own);
    errno = error;
    return opened;
}

/// Makes connections belong to `user`, if this process is root and `user` is not.
STAGE_CURL_CHECKED static inline CURLcode stage_easy_open_sockets_as(CURL *easy, unsigned user) {
    if (geteuid() != 0 || user == 0) return CURLE_OK;
    CURLcode code = curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, (void *)(uintptr_t)user);
    if (code != CURLE_OK) return code;
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, stage_open_socket);
}
