"""Programs under strace, which makes a chosen system call fail, or kills the program at it."""

import collections
import os
import re
import signal
import subprocess
import time

from world import HANGS, Failure, expect

# The errors that are injected into each kind of call: those that a disk, a full file system, a limit of the process or other
# users cause. Memory of the process itself (mmap, brk, mprotect) is left out: Swift ends a program that cannot allocate memory.
OPENING = ["EIO", "EACCES", "EMFILE", "ENOMEM", "ENOSPC"]
NAMING = ["EIO", "EACCES", "ENOSPC"]
ERRORS = {
    **dict.fromkeys(["open", "openat", "openat2", "creat"], OPENING),
    **dict.fromkeys(["mkdir", "mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"], NAMING),
    **dict.fromkeys(["unlink", "unlinkat", "rmdir"], ["EIO", "EACCES"]),
    **dict.fromkeys(["read", "pread64", "readv", "preadv"], ["EIO", "EINTR"]),
    **dict.fromkeys(["write", "pwrite64", "writev", "pwritev"], ["EIO", "ENOSPC", "EINTR"]),
    **dict.fromkeys(["fsync", "fdatasync", "syncfs", "sync_file_range"], ["EIO", "ENOSPC"]),
    **dict.fromkeys(["ftruncate", "truncate", "fallocate"], ["EIO", "ENOSPC", "EINTR"]),
    **dict.fromkeys(["stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"], ["EIO", "EACCES"]),
    **dict.fromkeys(["getdents64", "readlink", "readlinkat", "statfs", "fstatfs", "lseek", "close"], ["EIO"]),
    **dict.fromkeys(["chmod", "fchmod", "fchmodat", "chown", "fchown", "fchownat", "utimensat"], ["EIO", "EPERM"]),
    **dict.fromkeys(["copy_file_range", "sendfile"], ["EIO", "ENOSPC"]),
    "ioctl": ["EIO"],
    "flock": ["EINTR", "ENOLCK"],
    "fcntl": ["ENOLCK", "EMFILE"],
    **dict.fromkeys(["dup", "dup2", "dup3", "pipe2", "epoll_create1", "eventfd2", "timerfd_create", "memfd_create"], ["EMFILE"]),
    **dict.fromkeys(["socket", "socketpair", "accept4"], ["EMFILE", "ENOMEM"]),
    "connect": ["ECONNREFUSED", "ENETUNREACH"],
    **dict.fromkeys(["sendto", "sendmsg"], ["EPIPE", "ENOBUFS"]),
    **dict.fromkeys(["recvfrom", "recvmsg"], ["ECONNRESET", "ENOMEM"]),
    **dict.fromkeys(["poll", "ppoll", "epoll_wait", "epoll_pwait"], ["EINTR"]),
    **dict.fromkeys(["clone", "clone3", "fork", "vfork"], ["EAGAIN"]),
    **dict.fromkeys(["execve", "execveat"], ["EACCES", "ENOMEM"]),
    **dict.fromkeys(["wait4", "waitid"], ["EINTR"]),
}
KILL = "SIGKILL"
IN_MEMORY = re.compile(r"\(\d+<(anon_inode|socket|pipe|UNIX|TCP|UDP|NETLINK|/proc/|/sys/)")
CALL = re.compile(r"^(\d+)\s+(\w+)\(")


def points(counts):
    """Returns every point: a system call, its ordinal number in its thread, and the error or kill at it."""
    return [(call, number, error) for call in sorted(counts) if call in ERRORS for number in range(1, counts[call] + 1)
            for error in [*ERRORS[call], KILL]]


class Traced:
    """A program to which strace was attached when its libraries were loaded."""

    def __init__(self, command, environment, stop, output, point=None, directory=None):
        self.output, self.point = output, point
        streams = {"stdin": subprocess.DEVNULL, "stdout": open(output / "stdout", "wb"), "stderr": open(output / "stderr", "wb")}
        self.program = subprocess.Popen(
            list(map(str, command)), env={**environment, "LD_PRELOAD": str(stop)}, cwd=directory, start_new_session=True, **streams)
        for stream in (streams["stdout"], streams["stderr"]):
            stream.close()
        self.wait_for_state("T")
        chosen = ["-e", "trace=all"]
        if point:
            call, number, error = point
            what = "signal=KILL" if error == KILL else f"error={error}"
            chosen = ["-e", f"trace={call}", "-e", f"inject={call}:{what}:when={number}"]
        self.tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-y", "-e", "signal=none", *chosen, "-o", str(output / "trace"), "-p", str(self.program.pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.wait_for_tracer()
        os.kill(self.program.pid, signal.SIGCONT)

    def status_of(self, member):
        with open(f"/proc/{self.program.pid}/status") as file:
            return next(line.split()[1] for line in file if line.startswith(member + ":"))

    def wait_for_state(self, state):
        deadline = time.monotonic() + HANGS
        while self.status_of("State") != state:
            expect(time.monotonic() < deadline and self.status_of("State") != "Z", "the program did not start")
            time.sleep(0.002)

    def wait_for_tracer(self):
        deadline = time.monotonic() + HANGS
        while self.status_of("TracerPid") == "0":
            expect(time.monotonic() < deadline and self.tracer.poll() is None, "the tracer did not attach")
            time.sleep(0.002)

    def wait(self, within=HANGS):
        """Waits for the program, and returns its status, negative for a signal."""
        try:
            status = self.program.wait(within)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"it hangs: it ran for {within} s") from None
        self.end()
        return status

    def end(self):
        """Kills the remaining processes of the program."""
        try:
            os.killpg(self.program.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.program.wait()
        try:
            self.tracer.wait(10)
        except subprocess.TimeoutExpired:
            self.tracer.kill()
            self.tracer.wait()
        self.tracer.stderr.close()

    def counts(self):
        """Returns the number of times that each call was made, in the thread that made it most often."""
        by_thread = collections.Counter()
        with open(self.output / "trace", errors="replace") as trace:
            for line in trace:
                if match := CALL.match(line):
                    by_thread[match[1], match[2]] += 1
        most = {}
        for (_, call), count in by_thread.items():
            most[call] = max(count, most.get(call, 0))
        return most

    def injected(self):
        """Returns the lines of the injected failures in the trace."""
        trace = (self.output / "trace").read_text(errors="replace")
        return [line for line in trace.splitlines() if line.endswith("(INJECTED)")]

    def was_reached(self):
        """Returns whether the point was reached, by a call that can have such an error."""
        call, _, error = self.point
        trace = (self.output / "trace").read_text(errors="replace")
        if error == KILL:
            # strace prints '= ?' for a call that did not return.
            return self.program.returncode == -signal.SIGKILL or "= ?" in trace
        injected = self.injected()
        if call == "fcntl":
            # ENOLCK is an error of commands for locks only, and EMFILE of duplications.
            injected = [line for line in injected if ("LK" if error == "ENOLCK" else "DUPFD") in line]
        # A disk cannot make operations in memory fail: event counters, pipes, sockets, /proc and /sys.
        in_memory = error in ("EIO", "ENOSPC") and call not in ("connect", "accept4")
        return bool(injected) and not (in_memory and any(map(IN_MEMORY.search, injected)))
