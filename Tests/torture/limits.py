"""Tests of full disks: runs commands and the daemon with 0, 1, 2, … free blocks or inodes, until they succeed."""

import os
import re
import subprocess
import time

import journals
from calls import Command, documented_statuses
from world import HANGS, INDEXED, Failure, expect

RESOURCES = ("blocks", "inodes")
# The numbers of free blocks and inodes. Packs need a reserve of 16 MiB (4,096 blocks) and of 64 inodes, and those of these tests little more.
BLOCKS = [*range(12), 16, 24, 32, 64, 128, 1024, 4080, *range(4096, 4320, 8), 4400]
INODES = [*range(72), *range(72, 160, 4)]
JOURNAL_BLOCKS = [*range(40), 48, 64, 80, 100, 128, 200, 400]
JOURNAL_INODES = [*range(24)]


class SmallDisk:
    """A file system whose free blocks or inodes can be limited, and restored."""

    SIZE = "256m"

    def __init__(self, kind, place):
        self.kind, self.top, self.image = kind, place / "disk", place / "image"
        self.top.mkdir()

    def mount(self):
        if self.kind == "tmpfs":
            call("mount", "-t", "tmpfs", "-o", f"size={self.SIZE},nr_inodes=4000,mode=755", "none", self.top)
            # A tmpfs without any page cannot be limited to its use: a size of zero means no limit.
            (self.top / "page").write_bytes(bytes(4096))
        else:
            call("truncate", "-s", self.SIZE, self.image)
            call("mkfs.ext4", "-q", "-F", "-m", "0", "-N", "2000", "-b", "4096", self.image)
            call("mount", "-o", "loop", self.image, self.top)
            (self.top / "filler").mkdir()

    def unmount(self):
        call("umount", "--lazy", self.top)
        self.image.unlink(missing_ok=True)

    def limit(self, resource, rest):
        """Leaves `rest` free blocks or inodes."""
        if self.kind == "ext4":
            os.sync()
            return self.fill(resource, rest)
        status = os.statvfs(self.top)
        if resource == "blocks":
            option = f"size={(status.f_blocks - status.f_bfree + rest) * 4}k"
        else:
            option = f"nr_inodes={status.f_files - status.f_ffree + rest}"
        call("mount", "-o", f"remount,{option}", self.top)

    def fill(self, resource, rest):
        filler = self.top / "filler"
        if resource == "inodes":
            for number in range(os.statvfs(self.top).f_ffree - rest):
                (filler / str(number)).touch()
        # A file needs blocks for its extents, too, so the last blocks are filled in small pieces. ext4 reserves some for itself.
        for number in range(100 if resource == "blocks" else 0):
            more = os.statvfs(self.top).f_bavail - rest
            if more <= 0:
                break
            subprocess.run(
                ["dd", "if=/dev/zero", f"of={filler}/{number}", "bs=4096", f"count={more if more < 50 else more - 10}",
                 "conv=fsync"], check=False, stderr=subprocess.DEVNULL)

    def give_room(self):
        if self.kind == "tmpfs":
            call("mount", "-o", f"remount,size={self.SIZE},nr_inodes=4000", self.top)
        else:
            call("rm", "-rf", self.top / "filler")
            call("sync", "-f", self.top)


def call(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


class CommandLimits:
    """Tests of commands on full disks."""

    def __init__(self, owner):
        self.owner, self.programs, self.statuses = owner, owner.programs, documented_statuses()
        scenarios = {name: value for name, value in owner.scenarios.items()
                     if name not in ("package", "package-indexed", "manifest-add", "verify", "status", "doctor")}

        def hook(of, after):
            base = scenarios[of]
            return Command(f"hook-{of}", base.prepared, [*base.arguments, "--hook", "--deadline", "20"], base.before, after)

        # A hook stages only essential packs.
        scenarios["hook-prefetch"] = hook("prefetch", {"aurora": 1})
        scenarios["hook-update"] = hook("update", {**scenarios["update"].before, "aurora": 2})
        staged = scenarios["update"]
        scenarios["pin"] = Command("pin", staged.prepared, ["pin", "aurora", "--container", "@C"], staged.before, staged.before)
        self.scenarios = scenarios

    def rests(self, resource):
        return BLOCKS if resource == "blocks" else INODES

    def try_limit(self, name, disk, resource, rest):
        """Runs a command with `rest` free blocks or inodes; returns its status, and raises a failure for what is wrong."""
        scenario = self.scenarios[name]
        call("cp", "-a", f"{scenario.prepared}/.", disk.top)
        disk.limit(resource, rest)
        command = self.owner.with_container(scenario.arguments, disk.top)
        done = self.programs.run(*command)
        self.check_end(name, done)
        isHook = name.startswith("hook")
        states = [scenario.after] if done.returncode == 0 and not isHook else [scenario.before, scenario.after]
        self.owner.check_packs(scenario, disk.top, states, done.returncode)
        if scenario.before and not scenario.damaged:
            self.check_reading(disk, scenario)
        disk.give_room()
        again = self.programs.run(*command)
        expect(again.returncode == 0, f"with room, '{name}' ended with {again.returncode}: {again.stderr.strip()}")
        # A second rollback undoes the first one, so either version may be published after it.
        allowed = [scenario.before, scenario.after] if name == "rollback" else [scenario.after]
        self.owner.check_packs(scenario, disk.top, allowed, 0)
        for word in ("verify", "doctor"):
            self.programs.succeed(word, "--container", disk.top / "container")
        return done.returncode

    def check_end(self, name, done):
        said = done.stderr.strip()
        expect(done.returncode in self.statuses, f"it ended with {done.returncode}: {said[-800:]}")
        expect("internal error" not in said and "Fatal error" not in said, f"it trapped: {said[-800:]}")
        if name.startswith("hook"):
            expect(done.returncode == 0, f"the hook ended with {done.returncode}: {said[-800:]}")
            expect(len(done.stdout.splitlines()) == 1, f"the hook said: {done.stdout!r}")
        elif done.returncode != 0:
            expect(re.search("^stagepack: error: .*pace", said, re.M), f"it does not name the disk: {said[-800:]}")
            expect(re.search("^hint: ", said, re.M), f"it does not say what to do: {said[-800:]}")
        if name in ("gc", "remove"):
            expect(done.returncode == 0, f"it makes no room: {said[-800:]}")

    def check_reading(self, disk, scenario):
        """Commands that only read succeed on the full disk; doctor reports only that it is full."""
        here = ["--container", disk.top / "container"]
        staged = [pack for pack in ("aurora", INDEXED) if (disk.top / "container/packs" / pack).is_symlink()]
        for arguments in (["status"], ["verify"], ["why"], *(["path", pack] for pack in staged)):
            self.programs.succeed(*arguments, *here)
        done = self.programs.run("doctor", *here)
        found = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
        expect(all(line.startswith(("problem: space", "problem: files")) for line in found), f"doctor: {found}")


class DaemonLimits:
    """Tests of the daemon on full disks: started there, or with the files of an earlier daemon."""

    def __init__(self, actions):
        self.actions, self.scenarios = actions, {"daemon-first": False, "daemon-later": True}

    def rests(self, resource):
        return JOURNAL_BLOCKS if resource == "blocks" else JOURNAL_INODES

    def try_limit(self, name, disk, resource, rest):
        clock = iter(range(1, 1 << 30))
        ledger = journals.Ledger(lambda: next(clock))
        daemon = journals.Daemon(self.actions.programs, disk.top / "state", self.actions.directory / "limited")
        daemon.log.write_text("")
        moved = disk.top / "moved"
        moved.mkdir()
        try:
            if self.scenarios[name]:
                self.use(daemon, ledger)
            disk.limit(resource, rest)
            self.act(daemon, ledger, moved)
            status = daemon.process.poll()
            self.check_end(name, daemon, status, disk.kind)
            disk.give_room()
            if status is None:
                self.go_on(daemon)
        finally:
            daemon.kill()
        self.actions.check(disk.top, ledger.facts, 1 << 30)
        return status or 0

    def use(self, daemon, ledger):
        daemon.start()
        self.actions.make_session(daemon, ledger, "z")
        self.actions.make_tasks(daemon, ledger, "z", [
            self.actions.request("1", "small"), self.actions.request("2", "middle", isSuspended=True),
            self.actions.request("3", "large")])
        self.actions.take_events(daemon, ledger, "z", 1)
        daemon.kill()

    def act(self, daemon, ledger, moved):
        """Performs a client's requests as far as possible: events that the daemon cannot store are not delivered."""
        journals.HANGS = 5
        try:
            self.actions.act_shortly(daemon, ledger, moved)
        except (Failure, OSError, journals.http.client.HTTPException, ValueError):
            pass
        finally:
            journals.HANGS = HANGS

    def check_end(self, name, daemon, status, kind):
        said = daemon.said()
        expect("Fatal error" not in said and "internal error" not in said, f"it trapped: {said}")
        if status is None:
            daemon.ask("GET", "tasks", within=10)
            return
        # On ext4, the index of the write-ahead log may not get back a block that SQLite truncated (docs/design/open.md).
        expect(not self.scenarios[name] or kind == "ext4", f"it did not start with what it had: {status}, {said}")
        expect(status > 0 and "stagepackd: error: " in said and "No space left" in said and "hint: " in said,
               f"it ended with {status}: {said}")

    def go_on(self, daemon):
        """A daemon that had no free space works once there is some."""
        deadline = time.monotonic() + HANGS
        while True:
            try:
                daemon.ask("PUT", "sessions/again", {})
                break
            except Failure:
                expect(time.monotonic() < deadline, "with room it takes nothing")
                time.sleep(0.2)
        status = daemon.stop()
        expect(status == 0, f"it ended with {status}: {daemon.said()}")


def try_limits(owner, name, disk, resource, rests):
    """Tries increasing limits until six in succession succeed; returns the numbers of limits that were tried and that passed."""
    tried = held = succeeded = 0
    for rest in rests or owner.rests(resource):
        disk.mount()
        tried += 1
        try:
            status = owner.try_limit(name, disk, resource, rest)
            held += 1
            succeeded = succeeded + 1 if status == 0 else 0
        except Failure as failure:
            print(f"FAILED {name} with {rest} {resource} on {disk.kind}:\n    {failure}", flush=True)
        finally:
            disk.unmount()
        # Hooks and the daemon report success even on a full disk, so all limits are tried.
        if succeeded == 6 and not name.startswith(("hook", "daemon")):
            break
    return tried, held
