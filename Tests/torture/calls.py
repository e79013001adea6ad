"""Failing calls: each system call of a command or of the daemon fails once with each error, and the process is killed once at it."""

import collections
import errno
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import traceback

import journals
from tracing import KILL, Traced, points
from world import HANGS, INDEXED, ROOT, Failure, expect, tree


def documented_statuses():
    """Returns the exit statuses that the source of the commands documents, and 0."""
    text = (ROOT / "Sources/StageModel/ExitStatus.swift").read_text()
    return {int(number) for number in re.findall(r"^\s*case \w+ = (\d+)", text, re.M)} | {0}


# System calls whose failure makes a library end the process (docs/design/open.md): threads and timers of SwiftNIO; of libdispatch, the
# event queue, which it creates at first use, and the reading of its threads' states, each second.
KNOWN = re.compile(r'\d+ +(clone3\(|epoll_create1\(|eventfd2\(|timerfd_create\(|openat\(AT_FDCWD<[^>]*>, "/proc/\d+/stat")')


def is_known(trace):
    """Returns whether the failed call is one after which a library ends the process."""
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    return any(KNOWN.match(line) for line in lines if line.endswith("(INJECTED)"))


class Command:
    """A command on a copy of a prepared directory, and the versions of packs before and after it."""

    def __init__(self, name, prepared, arguments, before, after, damaged=()):
        self.name, self.prepared, self.arguments = name, prepared, arguments
        self.before, self.after, self.damaged = before, after, set(damaged)


class CommandCalls:
    """Failing calls of the commands."""

    def __init__(self, programs, site, url, stop, directory):
        self.programs, self.site, self.url, self.stop = programs, site, url, stop
        self.directory = pathlib.Path(directory)
        self.statuses = documented_statuses()
        self.recipe = {pack: site.directory / f"{pack}-2.recipe.json" for pack in ("mountains", INDEXED)}
        self.scenarios = {scenario.name: scenario for scenario in self.make()}

    def prepared(self, name, *commands):
        """Returns a directory with a container that commands have prepared."""
        top = self.directory / "prepared" / name
        top.mkdir(parents=True)
        for command in commands:
            self.programs.succeed(*self.with_container(command, top))
        return top

    def with_container(self, arguments, top):
        words = {"C": str(top / "container"), "T": str(top)}
        return [str(word).replace("@C", words["C"]).replace("@T", words["T"]) for word in arguments]

    def make(self):
        def source(version):
            return ["--manifest", f"{self.url}/manifest-{version}.json", "--container", "@C"]

        here = ["--container", "@C"]
        one, two = {"aurora": 1, "mountains": 1}, {"aurora": 2, "mountains": 2}
        fresh = self.prepared("fresh")
        staged = self.prepared("staged", ["prefetch", *source(1)])
        updated = self.prepared("updated", ["prefetch", *source(1)], ["prefetch", *source(2)])
        indexed = self.prepared("indexed", ["load", INDEXED, *source(1)])
        damaged = self.prepared("damaged", ["prefetch", *source(1)])
        with open(damaged / "container/packs/mountains/version", "r+b") as file:
            file.write(b"spoiled")
        yield Command("prefetch", fresh, ["prefetch", *source(1)], {}, one)
        yield Command("update", staged, ["prefetch", *source(2)], one, two)
        yield Command("load", fresh, ["load", "oceans", *source(1)], {}, {"oceans": 1})
        yield Command("load-indexed", fresh, ["load", INDEXED, *source(1)], {}, {INDEXED: 1})
        yield Command("load-file", fresh, ["load", INDEXED, "--file", "part-1/file 9.bin", *source(1)], {}, {})
        yield Command("update-indexed", indexed, ["fetch", INDEXED, *source(2)], {INDEXED: 1}, {INDEXED: 2})
        yield Command("gc", updated, ["gc", "--previous", *here], two, two)
        yield Command("rollback", updated, ["rollback", "aurora", *here], two, {**two, "aurora": 1})
        yield Command("verify", staged, ["verify", *here], one, one)
        yield Command("status", staged, ["status", *here], one, one)
        yield Command("doctor", staged, ["doctor", *here], one, one)
        yield Command("remove", staged, ["remove", "mountains", *here], one, {"aurora": 1, "mountains": None})
        yield Command("repair", damaged, ["repair", *source(1)], one, one, damaged=["mountains"])
        publisher = self.directory / "prepared/publisher"
        shutil.copytree(self.site.site, publisher / "site", symlinks=True)
        yield Command("package", fresh, ["package", self.recipe["mountains"], "-o", "@T/made.tar.zst"], {}, {})
        yield Command("package-indexed", fresh, ["package", self.recipe[INDEXED], "--indexed", "-o", "@T/store"], {}, {})
        yield Command("manifest-add", publisher,
                      ["manifest", "add", "@T/site/manifest-1.json", "@T/site/packs/mountains-2.tar.zst",
                       "--recipe", self.recipe["mountains"], "--pack-version", 2], {}, {})

    def count(self, name):
        """Returns the number of times that a scenario makes each call without a fault."""
        scenario, place = self.scenarios[name], self.directory / f"count-{name}"
        shutil.copytree(scenario.prepared, place, symlinks=True)
        traced = Traced([self.programs.stagepack, *self.with_container(scenario.arguments, place)],
                        self.programs.environment, self.stop, place)
        status = traced.wait()
        expect(status == 0, f"'{name}' ended with {status} without a fault: {(place / 'stderr').read_text()}")
        counts = traced.counts()
        shutil.rmtree(place)
        return counts

    def try_point(self, name, point, place):
        """Tries one point; returns whether it was reached, and raises a failure if a check failed."""
        scenario = self.scenarios[name]
        subprocess.run(["cp", "-a", scenario.prepared, place], check=True)
        command = self.with_container(scenario.arguments, place)
        traced = Traced([self.programs.stagepack, *command], self.programs.environment, self.stop, place, point)
        try:
            status = traced.wait()
        except Failure:
            # If strace fails close(2), the socket stays open, and the peer waits for its end. A kernel closes it even then.
            if not traced.was_reached():
                return False
            raise
        if not traced.was_reached():
            return False
        is_silenced = any("/stderr>" in line for line in traced.injected())
        self.check_end(status, point, (place / "stderr").read_text(errors="replace"), is_silenced)
        self.check_packs(scenario, place, [scenario.before, scenario.after] if status != 0 else [scenario.after], status)
        again = self.programs.run(*command)
        # A second rollback undoes the first one, so either version may be published after it.
        expect(again.returncode == 0, f"after that, '{name}' ended with {again.returncode}: {again.stderr.strip()}")
        allowed = [scenario.before, scenario.after] if name == "rollback" else [scenario.after]
        self.check_packs(scenario, place, allowed, 0)
        if (place / "container/packs").exists():
            self.programs.succeed("verify", "--container", place / "container")
            self.programs.succeed("doctor", "--container", place / "container")
        return True

    def check_end(self, status, point, said, is_silenced):
        """Checks that the status is documented, and that a failure is reported in one line, unless that line could not be written."""
        if status < 0:
            expect(point[2] == KILL and status == -signal.SIGKILL,
                   f"it was ended by {signal.Signals(-status).name}: {said.strip()[-800:]}")
            return
        expect(status in self.statuses, f"it ended with {status}, which is not documented: {said.strip()[-800:]}")
        expect("Fatal error" not in said, f"it trapped: {said[-800:]}")
        if status not in (0, 2, 3) and not is_silenced:
            errors = [line for line in said.splitlines() if line.startswith("stagepack: error: ")]
            expect(errors, f"it ended with {status} and said no error: {said.strip()[-800:]}")

    def check_packs(self, scenario, place, states, status):
        for pack in {pack for state in states for pack in state}:
            content = place / "container/packs" / pack
            allowed = {state.get(pack) for state in states}
            if not content.is_symlink():
                expect(None in allowed, f"{pack} is gone after status {status}, expected version {allowed}")
            elif pack not in scenario.damaged or status == 0:
                found = tree(content)
                expect(any(found == self.site.trees[pack, version] for version in allowed if version),
                       f"{pack} is none of {allowed} after status {status}")


def words(error):
    """Returns the system's description of an error, by its name; `None` for a kill."""
    return None if error == KILL else os.strerror(getattr(errno, error))


class DaemonCalls:
    """Failing calls of the daemon."""

    def __init__(self, actions, stop, directory):
        self.actions, self.stop, self.directory = actions, stop, pathlib.Path(directory)
        self.scenarios = {"daemon": None}

    def run_once(self, place, point):
        """Runs a client with a traced daemon as far as possible, and returns the daemon's responses, its end, and the client's problem."""
        clock = iter(range(1, 1 << 30))
        ledger = journals.Ledger(lambda: next(clock))
        daemon = journals.Daemon(self.actions.programs, place / "state", place / "run")
        moved = place / "moved"
        moved.mkdir()
        traced = []

        def launch():
            command = [self.actions.programs.stagepackd, "--foreground", "--state", daemon.state, "--socket", daemon.socket,
                       "--config", daemon.configuration]
            traced.append(Traced(command, self.actions.programs.environment, self.stop, place, point))
            daemon.process = traced[0].program

        daemon.launch, daemon.log = launch, place / "stderr"
        problem = None
        try:
            self.actions.act_shortly(daemon, ledger, moved)
        except (Failure, OSError, journals.http.client.HTTPException, ValueError) as error:
            problem = error
            if point is None:
                raise
        hangs = None
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
        try:
            status = traced[0].wait(30)
        except Failure as failure:
            hangs, status = failure, None
        return ledger.facts, status, hangs, problem, traced[0]

    def count(self, name):
        place = self.directory / "count-daemon"
        place.mkdir(parents=True)
        _, status, hangs, _, traced = self.run_once(place, None)
        expect(status == 0 and not hangs, f"the daemon ended with {status} without a fault")
        counts = traced.counts()
        shutil.rmtree(place)
        return counts

    def try_point(self, name, point, place):
        place.mkdir()
        facts, status, hangs, problem, traced = self.run_once(place, point)
        if not traced.was_reached():
            return False
        said = (place / "stderr").read_text(errors="replace")
        if hangs:
            raise Failure(f"{hangs} after SIGTERM; the client saw: {problem}; {said[-600:]}")
        if status < 0:
            expect(point[2] == KILL and status == -signal.SIGKILL,
                   f"it was ended by {signal.Signals(-status).name}: {said.strip()[-800:]}")
        expect("Fatal error" not in said, f"it trapped: {said[-800:]}")
        if status > 0:
            expect("stagepackd: error: " in said, f"it ended with {status} and said no error: {said[-800:]}")
        # A request without a response has no end in the facts, so that the check accepts both outcomes.
        self.actions.check(place, facts, 1 << 30, fault=words(point[2]))
        return True


def work(owner, directory, queue, results):
    """Tries points from a queue until it is empty, in a separate process."""
    while (item := queue.get()) is not None:
        name, point = item
        place = pathlib.Path(directory) / f"try-{os.getpid()}"
        known = False
        try:
            reached, problem = owner.try_point(name, point, place), None
        except Failure as failure:
            reached, problem = True, str(failure)
            known = " ended by SIG" in problem and is_known(place / "trace")
        except Exception:
            reached, problem = True, traceback.format_exc()
        shutil.rmtree(place, ignore_errors=True)
        results.put((name, point, reached, problem, known))


def choose(owner, seed, sample):
    """Returns the counts of all points, and the chosen ones: of each scenario a seeded sample of size `sample`, or all."""
    found, chosen = collections.Counter(), []
    for name in owner.scenarios:
        all_points = points(owner.count(name))
        for call, _, error in all_points:
            found[name, call, error] += 1
        if sample is not None and sample < len(all_points):
            all_points = random.Random(f"{seed} {name}").sample(all_points, sample)
        chosen += [(name, point) for point in all_points]
    return found, chosen


def try_all(owner, chosen, directory, workers):
    """Tries points, prints each failure, and returns for each row of the table the numbers of points that were tried, reached,
    passed, and failed for a known reason."""
    queue, results = multiprocessing.Queue(), multiprocessing.Queue()
    for item in [*chosen, *[None] * workers]:
        queue.put(item)
    processes = [multiprocessing.Process(target=work, args=(owner, directory, queue, results)) for _ in range(workers)]
    for process in processes:
        process.start()
    tried, reached_count, held, known = (collections.Counter() for _ in range(4))
    for _ in chosen:
        name, (call, number, error), reached, problem, is_within_library = results.get()
        row = name, call, error
        tried[row] += 1
        reached_count[row] += reached
        held[row] += problem is None
        if problem is not None:
            known[row] += is_within_library
            print(f"{'KNOWN' if is_within_library else 'FAILED'} {name} {call} {number} {error}:\n    {problem.strip()}", flush=True)
    for process in processes:
        process.join()
    return tried, reached_count, held, known
