"""A simulated disk that records all writes, and the states that a power cut leaves.

`Server` is a FUSE server whose only file is the disk; a loop device uses this file, and a file system is on the device. The server appends
each write and each flush to a log before it replies, so the length of the log serves as the time: at a power cut, writes before the
last flush are on the disk, and any of the later ones may be missing.

The protocol is that of <linux/fuse.h>, over /dev/fuse: one process, one thread, one file, which is the root of
the mount. So the log has the order in which the disk received the requests.
"""

import ctypes
import errno
import mmap
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
import traceback

WRITE, FLUSH = 1, 2
RECORD = struct.Struct("<BQI")

# Opcodes and flags of <linux/fuse.h>.
GETATTR, SETATTR, OPEN, READ, STATFS, RELEASE, FSYNC = 3, 4, 14, 15, 17, 18, 20
WRITE_REQUEST, FLUSH_REQUEST, INIT, INTERRUPT, FORGET, BATCH_FORGET, FALLOCATE = 16, 25, 26, 36, 2, 42, 43
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
LARGEST = 1 << 20

LIBC = ctypes.CDLL(None, use_errno=True)
# The option of prctl(2).
PR_SET_PDEATHSIG = 1


def mount_call(source, target, kind, flags, data):
    """Calls mount(2)."""
    texts = [None if text is None else str(text).encode() for text in (source, target, kind, data)]
    if LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def end_with_parent():
    """Makes the kernel kill this process when its parent ends: it would keep mounts and loop devices of a parent that was killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Server:
    """Replies to the kernel's requests from an image in memory."""

    def __init__(self, device, image, log):
        self.device, self.log = device, log
        self.size = os.fstat(image).st_size
        self.memory = mmap.mmap(image, self.size)

    def attributes(self):
        times = (0, 0, 0, 0, 0, 0)
        return struct.pack("<6Q10I", 1, self.size, self.size // 512, *times[:3], *times[3:], 0o100600, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode, body):
        """Returns the body of the reply, or a negative error number."""
        if opcode == INIT:
            major, minor, ahead, flags = struct.unpack_from("<IIII", body)
            flags &= BIG_WRITES | MAX_PAGES
            return struct.pack("<IIIIHHIIHHI28x", 7, min(minor, 36), ahead, flags, 64, 48, LARGEST, 1, LARGEST // 4096, 0, 0)
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + self.attributes()
        if opcode == OPEN:
            return struct.pack("<QII", 1, 0, 0)
        if opcode == READ:
            _, offset, length = struct.unpack_from("<QQI", body)
            return self.memory[offset : offset + length]
        if opcode == WRITE_REQUEST:
            _, offset, length = struct.unpack_from("<QQI", body)
            data = body[40 : 40 + length]
            self.memory[offset : offset + length] = data
            os.writev(self.log, [RECORD.pack(WRITE, offset, length), data])
            return struct.pack("<II", length, 0)
        if opcode == FSYNC:
            os.write(self.log, RECORD.pack(FLUSH, 0, 0))
            return b""
        if opcode == STATFS:
            return struct.pack("<5Q4I24x", self.size // 4096, 0, 0, 1, 0, 4096, 255, 4096, 0)
        if opcode in (RELEASE, FLUSH_REQUEST):
            return b""
        return -(errno.EOPNOTSUPP if opcode == FALLOCATE else errno.ENOSYS)

    def run(self):
        """Serves requests until the file system is unmounted."""
        while True:
            try:
                request = memoryview(os.read(self.device, LARGEST + 4096))
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, *_ = IN_HEADER.unpack_from(request)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            answer = self.answer(opcode, request[IN_HEADER.size :])
            if isinstance(answer, int):
                os.write(self.device, OUT_HEADER.pack(OUT_HEADER.size, answer, unique))
            else:
                os.writev(self.device, [OUT_HEADER.pack(OUT_HEADER.size + len(answer), 0, unique), answer])


def run(*command):
    """Runs a program of the system, and raises an error with its output if it fails."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"'{command[0]}' ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def copy_sparsely(source, target):
    """Copies a file without its holes and without pieces of zeros."""
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        place = 0
        while place < size:
            try:
                place = os.lseek(old.fileno(), place, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(old.fileno(), place, os.SEEK_HOLE)
            while place < end:
                data = os.pread(old.fileno(), min(end - place, 1 << 16), place)
                if data.count(0) != len(data):
                    os.pwrite(new.fileno(), data, place)
                place += len(data)


class FileSystem:
    """The commands and options for a kind of file system, and the size of a sector of its disk."""

    def __init__(self, kind, size, make, options, sector):
        self.kind, self.size, self.make, self.options, self.sector = kind, size, make, options, sector


# A disk writes each sector completely or not at all. btrfs keeps no second copy of the blocks that locate its trees, and so needs a
# disk with sectors of 4,096 bytes, as modern disks have.
FILE_SYSTEMS = {
    "ext4": FileSystem("ext4", 256 << 20, ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"], "", 512),
    "xfs": FileSystem("xfs", 512 << 20, ["mkfs.xfs", "-q"], "nouuid", 512),
    "btrfs": FileSystem("btrfs", 512 << 20, ["mkfs.btrfs", "-q"], "", 4096),
}


class Mounted:
    """An image with a file system, mounted by a loop device until the scope ends."""

    def __init__(self, system, image, place):
        self.system, self.image, self.place = system, image, pathlib.Path(place)

    def __enter__(self):
        self.place.mkdir(exist_ok=True)
        self.device = run("losetup", "--find", "--show", "--sector-size", self.system.sector, self.image)
        try:
            mount_call(self.device, self.place, self.system.kind, 0, self.system.options)
        except OSError:
            run("losetup", "--detach", self.device)
            raise
        # The kernel keeps the device until the unmount.
        run("losetup", "--detach", self.device)
        return self.place

    def __exit__(self, *_):
        unmount(self.place)


def unmount(place):
    """Unmounts a directory; retries for a minute while processes that use it are ending."""
    deadline = time.monotonic() + 60
    while True:
        try:
            run("umount", place)
            return
        except OSError:
            if time.monotonic() > deadline or not os.path.ismount(place):
                raise
            time.sleep(0.1)


class RecordedDisk:
    """A mounted file system whose disk is recorded, until the scope ends."""

    def __init__(self, system, directory):
        self.system, self.directory = system, pathlib.Path(directory)
        self.base, self.log = self.directory / "base", self.directory / "log"
        self.place, self.file = self.directory / "mount", self.directory / "disk"

    def prepare(self):
        """Creates the file system, which is the state before the first record."""
        made = self.directory / "made"
        with open(made, "wb") as image:
            image.truncate(self.system.size)
        run(*self.system.make, made)
        copy_sparsely(made, self.base)
        made.unlink()

    def __enter__(self):
        self.place.mkdir()
        self.file.touch()
        image = self.directory / "image"
        copy_sparsely(self.base, image)
        memory = os.open(image, os.O_RDWR)
        device = os.open("/dev/fuse", os.O_RDWR)
        mount_call("torture", self.file, "fuse", 0, f"fd={device},rootmode=100000,user_id=0,group_id=0")
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.server = os.fork()
        if self.server == 0:
            try:
                # Ignores SIGTERM: the parent, which also receives it, unmounts the disk first and needs this process.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                end_with_parent()
                Server(device, memory, log).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        for descriptor in (device, log, memory):
            os.close(descriptor)
        image.unlink()
        loop = run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", self.system.sector, self.file)
        try:
            mount_call(loop, self.place, self.system.kind, 0, self.system.options)
        finally:
            # The kernel keeps the device until the unmount, also that at the end of the namespace.
            run("losetup", "--detach", loop)
        return self

    def position(self):
        """Returns the current position in the log."""
        return self.log.stat().st_size

    def __exit__(self, *_):
        unmount(self.place)
        unmount(self.file)
        os.waitpid(self.server, 0)


class Recording:
    """The log of a disk, and the disk states after cuts at its records."""

    def __init__(self, system, directory):
        self.system, self.directory = system, pathlib.Path(directory)
        self.log = open(self.directory / "log", "rb")
        self.records, place = [], 0
        end = os.fstat(self.log.fileno()).st_size
        while place < end:
            kind, offset, length = RECORD.unpack(os.pread(self.log.fileno(), RECORD.size, place))
            place += RECORD.size
            # The log contains the whole record from position `place + length` on.
            self.records.append((kind, offset, length, place))
            place += length

    @property
    def flushes(self):
        return sum(record[0] == FLUSH for record in self.records)

    def end(self, count):
        """Returns the position in the log at which `count` records are complete."""
        _, _, length, place = self.records[count - 1]
        return place + length

    def build(self, image, cut, variant, chance, disk_lies=False):
        """Writes the image that a cut after `cut` records leaves.

        The variant decides which writes after the last flush are in it: `none`, `all`, some (`subset`), or some, and only some sectors of
        others (`torn`). A disk that lies may also lose the writes
        that its last three flushes reported as done.
        """
        copy_sparsely(self.directory / "base", image)
        flushes = [-1, *(index for index in range(cut) if self.records[index][0] == FLUSH)]
        flushed = flushes[max(0, len(flushes) - 4)] if disk_lies else flushes[-1]
        share = chance.choice([0.1, 0.5, 0.9])
        with open(image, "r+b") as target:
            for index, (kind, offset, length, place) in enumerate(self.records[:cut]):
                if kind != WRITE:
                    continue
                if index > flushed and variant != "all":
                    if variant == "none" or chance.random() > share:
                        if variant == "torn" and chance.random() < 0.5:
                            self.write_sectors(target, offset, length, place, chance)
                        continue
                os.pwrite(target.fileno(), os.pread(self.log.fileno(), length, place), offset)

    def write_sectors(self, target, offset, length, place, chance):
        """Writes the first sectors of a record, or random ones."""
        size = self.system.sector
        count = length // size
        first = chance.random() < 0.5
        kept = range(chance.randint(0, count)) if first else [n for n in range(count) if chance.random() < 0.5]
        for number in kept:
            data = os.pread(self.log.fileno(), size, place + number * size)
            os.pwrite(target.fileno(), data, offset + number * size)


def plan_cut(recording, seed, number):
    """Returns a numbered cut: after which record, which variant, and its random generator."""
    chance = random.Random(f"{seed} {number}")
    cut = chance.randint(1, len(recording.records))
    variant = chance.choices(["none", "all", "subset", "torn"], [2, 2, 3, 3])[0]
    return cut, variant, chance
