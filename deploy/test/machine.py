"""A temporary Debian machine: a copy of a root directory."""

import contextlib
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

# The seconds after which a state that a test waits for counts as missing. A machine with other work takes many times the usual time.
WAIT_LIMIT = 120
# The seconds that the tests in namespaces get for their clean-up after SIGTERM.
CLEANUP_LIMIT = 60

# The ports that `free_port` has returned.
GIVEN_PORTS = set()


class Failure(Exception):
    """An expectation of a test is not met."""


def expect(is_so, otherwise):
    """Fails the test unless `is_so` is true."""
    if not is_so:
        raise Failure(otherwise)


def wait_until(what, condition, within=WAIT_LIMIT):
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise Failure(f"{what}: not so within {within} s")


def free_port():
    """Returns a free port of loopback that no other call in this process returns.

    It is below the range from which Linux gives ports to connections by default, so that no connection takes it before a server does.
    """
    while True:
        port = random.randrange(10_000, 32_768)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            if port not in GIVEN_PORTS:
                GIVEN_PORTS.add(port)
                return port


def exit_at_termination():
    """Turns SIGTERM into an exit, so that processes, mounts and temporary files are removed."""

    def leave(*_):
        # Another signal must not end the clean-up.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def run_in_namespaces(*command):
    """Runs a Python program in new namespaces of mounts, processes and networks, and returns its status.

    What it starts or mounts ends with it, port 80 is free, and its temporary files are removed, even if it was killed. It gets the SIGTERM
    of a caller that has called `exit_at_termination()`.
    """
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # Files may still change while the processes of a killed program end.
    with tempfile.TemporaryDirectory(prefix="stagepack-", ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen([*unshare, sys.executable, *command], env={**os.environ, "TMPDIR": scratch})
        try:
            return process.wait()
        except BaseException:
            # unshare ignores SIGTERM, so its child gets it.
            with contextlib.suppress(OSError):
                for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8").split():
                    os.kill(int(child), signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLEANUP_LIMIT)
            raise
        finally:
            process.kill()
            process.wait()


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
        self.tmpfs = self.directory / "root"
        self.root = self.tmpfs / "merged"
        self.log = []

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            # A clean-up of the temporary directory would otherwise remove files behind the mounts, such as devices of this system.
            self.tear_down()
            raise
        return self

    def __exit__(self, *_):
        self.tear_down()

    def set_up(self):
        """Copies the root."""
        self.tmpfs.mkdir()
        mount("-t", "tmpfs", "tmpfs", self.tmpfs)
        layers = {name: self.tmpfs / name for name in ("upper", "work", "merged")}
        for layer in layers.values():
            layer.mkdir()
        options = f"lowerdir={self.base},upperdir={layers['upper']},workdir={layers['work']}"
        try:
            mount("-t", "overlay", "-o", options, "overlay", self.root)
        except subprocess.CalledProcessError:
            # Some containers do not support overlay file systems.
            shutil.copytree(self.base, self.root, symlinks=True, dirs_exist_ok=True, ignore=lambda *_: ["dev"])
            (self.root / "dev").mkdir(exist_ok=True)
        mount("-t", "proc", "proc", self.root / "proc")
        mount("--rbind", "/dev", self.root / "dev")

    def tear_down(self):
        """Kills the processes of the machine and removes its mounts, also after an incomplete `set_up()`."""
        self.kill_everything()
        if os.path.ismount(self.tmpfs):
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
        def found():
            return [process for process, words in self.processes() if pathlib.Path(words[0]).name == program and argument in words]

        return wait_until(f"'{program} {argument}' runs", found)[0]

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
