// The three standard streams of a process.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/// Puts `/dev/null` in the place of standard streams that whoever started the process has closed.
///
/// Else the next file that is opened becomes one of them, and what is printed is written into it. What is
/// put there gives the errors that a closed stream gives (EBADF): standard input cannot be read, the others
/// cannot be written. To be called before anything is opened. Ends the process where that cannot be done.
static inline void stage_fill_streams(void) {
    for (int stream = 0; stream <= 2; stream++) {
        if (fcntl(stream, F_GETFD) != -1) continue;
        // The lowest free number is given out: this one, since those below are open.
        int file = open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
        // In a root directory that has no devices, a file without a name or content.
        if (file == -1) file = (int)syscall(SYS_memfd_create, "stream", 0);
        if (file != stream) abort();
    }
}
