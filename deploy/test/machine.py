"""A temporary Debian machine: a copy of a root directory."""

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
    """A copy of a root, in which commands run; `log` has the commands and their output."""

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
            # Some containers do not support overlay file systems.
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
        """Starts a command, as the leader of a process group: in the machine, or on this system if `outside`."""
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
        """Runs a command in the machine, or on this system if `outside`, expects its status, and returns its output.

        Its input is a pipe to which nothing is written: a program that reads it blocks.
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
        # communicate() is not used: it would close the input.
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
        """Returns the paths in the machine, except the databases of dpkg and RPM, caches and logs."""
        ours = ("proc", "dev", "tmp", "var/lib/dpkg", "var/lib/rpm", "var/log", "var/cache")
        top = self.root / below
        paths = []
        for directory, folders, files in os.walk(top):
            place = pathlib.Path(directory).relative_to(self.root)
            folders[:] = [name for name in folders if str(place / name) not in ours]
            paths += [str(place / name) for name in [*folders, *files]]
        return set(paths)

    def processes(self):
        """Yields the processes in the machine, with their arguments."""
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "root") == str(self.root):
                    yield int(entry.name), (entry / "cmdline").read_bytes().decode().split("\0")

    def wait_for(self, program, argument):
        """Waits until a program runs with an argument, and returns its process ID."""
        for _ in range(300):
            for process, words in self.processes():
                if pathlib.Path(words[0]).name == program and argument in words:
                    return process
            time.sleep(0.05)
        raise Failure(f"'{program} {argument}' was not started within 15 s")

    def kill_everything(self):
        """Kills all processes of the machine, as a power cut does."""
        while processes := [process for process, words in self.processes() if words != [""]]:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def interrupt(self, leader):
        """Sends SIGINT to a process group, as Ctrl-C does."""
        self.log.append("Ctrl-C")
        os.killpg(leader.pid, signal.SIGINT)

    def stop(self, process):
        """Stops a process with SIGSTOP."""
        os.kill(process, signal.SIGSTOP)

    @contextlib.contextmanager
    def small_disk(self, path, options):
        """Mounts a file system of few bytes or files at a path."""
        place = self.root / path
        place.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", place)
        yield
        subprocess.run(["umount", "--lazy", place], check=True)

    def grow(self, path, options):
        mount("-o", f"remount,{options}", self.root / path)

    def fill(self, path):
        """Writes a file until the file system is full."""
        with contextlib.suppress(OSError), open(self.root / path / "filling", "wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
