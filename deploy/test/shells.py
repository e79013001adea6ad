"""Interactive shells of a user, at a terminal."""

import contextlib
import os
import re
import select
import shlex
import subprocess
import time

import reader
from machine import WAIT_LIMIT, Failure

TAB, LINE_START, LINE_END, ENTER = "\t", "\x01", "\x05", "\r"


class Shell:
    """An interactive shell, in which tests type lines."""

    def __init__(self, name, process):
        self.name, self.process = name, process

    def completed(self, line):
        """Types a line, with the TAB characters in it and one at its end, and returns the words of the completed line."""
        # The completed line becomes the arguments of 'printf', so that its words can be told from what the shell draws.
        self.type(f"{line}{TAB}{LINE_START}printf '<%s>' {LINE_END} end{ENTER}")
        printed = self.wait_for(rb"(?:<[^<>%]+>)+<end>")
        return re.findall(r"<([^<>]+)>", printed.decode())[:-1]

    def type(self, text):
        self.process.stdin.write(text.encode())

    def wait_for(self, pattern):
        """Reads until the terminal's output matches a pattern, and returns the match."""
        said, deadline = b"", time.monotonic() + WAIT_LIMIT
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                part = os.read(self.process.stdout.fileno(), 1 << 16)
                if not part:
                    break
                said += part
            elif found := re.search(pattern, said):
                return found[0]
        raise Failure(f"{self.name}: after {WAIT_LIMIT} s the terminal shows {said.decode('utf-8', 'replace')!r}")


@contextlib.contextmanager
def shell(name, machine, before):
    """Starts an interactive shell as the machine's user, after running the script `before`."""
    terminal = f"stty columns 200 rows 50; TERM=xterm exec {name} -i"
    script = f"set -e\n{before}\nexec script --quiet --command {shlex.quote(terminal)} /dev/null"
    process = subprocess.Popen(
        reader.command(machine, "bash", "-c", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    try:
        typing = Shell(name, process)
        # A shell may discard characters that are typed before its first prompt.
        typing.wait_for(rb"[$%>] ")
        yield typing
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
