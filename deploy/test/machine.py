"""A throw-away Debian, in a directory."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time


class Failure(Exception):
    """An expectation of a test is not met."""


def expect(is_so, otherwise):
    """Fails the test unless `is_so` is true."""
    if not is_so:
        raise Failure(otherwise)


def raise_loopback():
    """Brings up the loopback interface of a new network namespace (SIOCSIFFLAGS of netdevice(7))."""
    up_and_running = 0x1 | 0x40
    with socket.socket() as endpoint:
        fcntl.ioctl(endpoint, 0x8914, struct.pack("16sh22x", b"lo", up_and_running))


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


class Machine:
    """A copy of a root, in which commands run; what they print is in `log`."""

    ENVIRONMENT = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "LC_ALL": "C.UTF-8",
        "HOME": "/root",
    }

    def __init__(self, base, directory):
        self.base, self.directory = base, pathlib.Path(directory)
        self.root = self.directory / "root"
        self.log = []

    def __enter__(self):
        self.root.mkdir()
        mount("-t", "tmpfs", "tmpfs", self.root)
        layers = {name: self.root / name for name in ("upper", "work", "merged")}
        for layer in layers.values():
            layer.mkdir()
        options = f"lowerdir={self.base},upperdir={layers['upper']},workdir={layers['work']}"
        self.tmpfs, self.root = self.root, layers["merged"]
        try:
            mount("-t", "overlay", "-o", options, "overlay", self.root)
        except subprocess.CalledProcessError:
            # Where file systems cannot be laid over each other, as in some containers.
            shutil.copytree(self.base, self.root, symlinks=True, dirs_exist_ok=True, ignore=lambda *_: ["dev"])
            (self.root / "dev").mkdir(exist_ok=True)
        mount("-t", "proc", "proc", self.root / "proc")
        mount("--rbind", "/dev", self.root / "dev")
        return self

    def __exit__(self, *_):
        self.kill_everything()
        subprocess.run(["umount", "--recursive", "--lazy", self.tmpfs], check=True)

    def put(self, file):
        """Copies a file into the machine, and returns its path there."""
        shutil.copy(file, self.root / "tmp")
        return f"/tmp/{pathlib.Path(file).name}"

    def start(self, *command, outside=False, **environment):
        """Starts a command, as the leader of a process group; a command of this system if it is `outside`."""
        self.log.append(f"$ {' '.join(map(str, command))}")
        with open(self.directory / "output", "ab") as output:
            return subprocess.Popen(
                [*([] if outside else ["chroot", self.root]), *command],
                env={**self.ENVIRONMENT, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *command, expected=0, outside=False, **environment):
        """Runs a command, expects its status, and returns what it printed.

        Its input is a pipe without a writer: a program that reads it blocks. A command of this system, if it is `outside`.
        """
        self.log.append(f"$ {' '.join(map(str, command))}")
        done = subprocess.Popen(
            [*([] if outside else ["chroot", self.root]), *command],
            env={**self.ENVIRONMENT, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # Not communicate(), which would close the input.
        output = done.stdout.read()
        status = done.wait()
        done.stdin.close()
        self.log += output.splitlines()
        expect(status == expected, f"'{command[0]}' ended with {status}, expected {expected}")
        return output

    def json(self, *command):
        return json.loads(self.run(*command))

    def status(self, package):
        return self.run("dpkg-query", "--show", "--showformat=${Status}", package)

    def files(self, below="."):
        """What is in the machine, but for what dpkg and RPM themselves and logs keep."""
        ours = ("proc", "dev", "tmp", "var/lib/dpkg", "var/lib/rpm", "var/log", "var/cache")
        top = self.root / below
        paths = []
        for directory, folders, files in os.walk(top):
            place = pathlib.Path(directory).relative_to(self.root)
            folders[:] = [name for name in folders if str(place / name) not in ours]
            paths += [str(place / name) for name in [*folders, *files]]
        return set(paths)

    def processes(self):
        """The processes within the machine, and what they were started as."""
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "root") == str(self.root):
                    yield int(entry.name), (entry / "cmdline").read_bytes().decode().split("\0")

    def wait_for(self, program, argument):
        """Waits for a program that runs, and returns its process."""
        for _ in range(300):
            for process, words in self.processes():
                if pathlib.Path(words[0]).name == program and argument in words:
                    return process
            time.sleep(0.05)
        raise Failure(f"'{program} {argument}' was not started within 15 s")

    def kill_everything(self):
        """What a power cut does to processes."""
        while processes := [process for process, words in self.processes() if words != [""]]:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def interrupt(self, leader):
        """What Ctrl-C does at a terminal."""
        self.log.append("Ctrl-C")
        os.killpg(leader.pid, signal.SIGINT)

    def stop(self, process):
        """Has a process do nothing any more."""
        os.kill(process, signal.SIGSTOP)

    @contextlib.contextmanager
    def small_disk(self, path, options):
        """A file system of its own, of few bytes or files."""
        place = self.root / path
        place.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", place)
        yield
        subprocess.run(["umount", "--lazy", place], check=True)

    def grow(self, path, options):
        mount("-o", f"remount,{options}", self.root / path)

    def fill(self, path):
        """Writes until nothing more goes there."""
        with contextlib.suppress(OSError), open(self.root / path / "filling", "wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
