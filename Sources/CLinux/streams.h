// The three standard streams of a process.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/// Opens `/dev/null` for each standard stream that the caller of this process has closed.
///
/// Otherwise the next opened file would become a standard stream, and output would be written into it. Reads
/// of standard input and writes to the others fail with EBADF, as with a closed stream. Call it before
/// any file is opened. Aborts the process on failure.
static inline void stage_fill_streams(void) {
    for (int stream = 0; stream <= 2; stream++) {
        if (fcntl(stream, F_GETFD) != -1) continue;
        // open(2) returns the lowest free descriptor: this one, since those below are open.
        int file = open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
        // In a root directory without devices, an empty anonymous file.
        if (file == -1) file = (int)syscall(SYS_memfd_create, "stream", 0);
        if (file != stream) abort();
    }
}
