"""Common parts of the tests that install the packages: a world for each test, and the program that runs the tests."""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import origins
from machine import Failure, Machine, exit_at_termination, expect, raise_loopback, run_in_namespaces
from packages import SOURCES

# The seconds that hooks get in these tests, and the further seconds that a package manager may take on a machine with other work. The sum is
# below the 60 seconds that hooks get by default: a run with a silent origin fails if it ignores the deadline of the test.
DEADLINE, MARGIN = 5, 50
LIMIT = DEADLINE + MARGIN
# The seconds that hooks get with a correct origin. They do not use all of it, except on a machine with much other work.
AMPLE = 50


class World:
    """The packages, the releases that origins serve, and the machine of a test."""

    def __init__(self, packages, directory, machine):
        self.packages, self.directory, self.machine = packages, directory, machine
        self.count = 0
        self.deadline = DEADLINE

    @staticmethod
    def make(directory):
        """Makes the packages and releases in a directory, and returns the root that machines are copies of."""
        raise NotImplementedError

    @staticmethod
    def places(directory):
        """Returns the paths of the packages and releases, by the names that tests use."""
        raise NotImplementedError

    def prepare(self):
        """Installs the packages that every test begins with."""
        raise NotImplementedError

    @contextlib.contextmanager
    def origin(self, kind=origins.nginx, release=1):
        """Runs an origin that serves a release of the packs, until the scope ends."""
        self.count += 1
        directory = self.directory / f"origin-{self.count}"
        directory.mkdir()
        before, self.deadline = self.deadline, AMPLE if kind is origins.nginx else DEADLINE
        try:
            with kind(directory, self.packages["releases"] / str(release)):
                yield
        finally:
            self.deadline = before

    @contextlib.contextmanager
    def limited(self, limit, what):
        """Fails unless the body of the 'with' statement takes at most `limit` seconds."""
        start = time.monotonic()
        yield
        elapsed = time.monotonic() - start
        expect(elapsed <= limit, f"{what} took {elapsed:.1f} s, expected at most {limit} s")

    def expect_staged(self, **versions):
        """Expects that exactly these versions of packs are staged, byte for byte."""
        packs = self.machine.root / "var/lib/stagepack/groups/net.rorklab/packs"
        found = {link.name: os.readlink(link) for link in packs.iterdir()} if packs.is_dir() else {}
        expect(found.keys() == versions.keys(), f"expected packs {sorted(versions)}, found {sorted(found)}")
        for name, version in versions.items():
            content = packs / found[name]
            expect(
                not subprocess.run(["diff", "-r", SOURCES / f"Packs/{name}-{version}", content]).returncode,
                f"pack '{name}' is not version {version}",
            )

    def complete(self, **versions):
        """Runs 'stagepack' as the timer does, and expects that it stages all packs and leaves no pending pack or problem."""
        self.machine.run("stagepack", "prefetch", "--all", "--event", "periodic", "--quiet")
        self.expect_staged(**versions)
        for application in self.machine.json("stagepack", "why", "--json")["applications"]:
            for member in ("pending", "problem"):
                expect(not application.get(member), f"'{member}' is left: {application.get(member)}")


def run(test, world_type, packages, root):
    """Runs one test on a new machine, and returns whether it passed."""
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        machine = stack.enter_context(Machine(root, directory))
        world = world_type(packages, directory, machine)
        problem = None
        try:
            world.prepare()
            machine.log.clear()
            test(world)
        except (Failure, OSError, subprocess.SubprocessError) as error:
            problem = error
        elapsed = time.monotonic() - start
        print(f"{'FAILED' if problem else 'passed'}  {test.__name__} ({elapsed:.1f} s)", flush=True)
        if problem:
            print("\n".join(f"    {line}" for line in [*machine.log, f"{problem}"]), flush=True)
    return not problem


def main(program, description, tests, world_type):
    """Parses the arguments of a test program, runs its tests, and returns the exit status."""
    program = pathlib.Path(program)
    # A shell starts background programs with SIGINT ignored, which their children would inherit; Python sets a handler here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--packages", type=pathlib.Path, default=SOURCES / ".build/deploy")
    parser.add_argument("--list", action="store_true", help="list the tests")
    # Set when this program starts itself in new namespaces.
    parser.add_argument("--within", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a test's name")
    arguments = parser.parse_args()
    directory, names = arguments.packages.resolve(), arguments.names
    chosen = [test for test in tests if not names or any(name in test.__name__ for name in names)]
    if arguments.list:
        print("\n".join(test.__name__ for test in chosen))
        return 0
    if os.geteuid() != 0:
        print(f"deploy/test/{program.name}: needs root for chroot and mounts: NOTHING WAS TESTED", file=sys.stderr)
        return 77
    exit_at_termination()
    if arguments.within:
        raise_loopback()
        packages = world_type.places(directory)
        passed = [run(test, world_type, packages, arguments.within) for test in chosen]
        print(f"{sum(passed)} of {len(passed)} passed")
        return 0 if passed and all(passed) else 1
    try:
        root = world_type.make(directory)
    except (Failure, subprocess.CalledProcessError) as error:
        print(f"deploy/test/{program.name}: {error}", file=sys.stderr)
        return 1
    return run_in_namespaces(program, "--packages", directory, "--within", root, *names)

