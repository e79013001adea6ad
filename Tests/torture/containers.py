"""A sequence of commands on a container, and checks of the container after a power cut."""

import json
import os

from world import INDEXED, PACKS, Failure, expect, tree


class State:
    """The state of a container: the staged version of each pack, and which packs are pinned and which are damaged."""

    def __init__(self, versions=(), pinned=(), damaged=(), manifest=1, single=None):
        self.versions, self.pinned, self.damaged = dict(versions), set(pinned), set(damaged)
        self.manifest, self.single = manifest, single

    def changed(self, versions=(), **others):
        members = {"pinned": self.pinned, "damaged": self.damaged, "manifest": self.manifest, "single": self.single}
        return State({**self.versions, **dict(versions)}, **{**members, **others})


class ContainerScenario:
    """Commands that change a container, one after the other."""

    name = "container"

    def __init__(self, programs, site, url):
        self.programs, self.site, self.url = programs, site, url

    def source(self, container, manifest):
        return ["--manifest", f"{self.url}/manifest-{manifest}.json", "--container", container]

    def steps(self, container):
        """Yields each step: its name, its action, and the state after it."""
        def command(*arguments, manifest=None):
            more = self.source(container, manifest) if manifest else ["--container", container]
            return lambda: self.programs.succeed(*arguments, *more)

        state = State()
        def step(name, action, *changes, **others):
            nonlocal state
            state = state.changed(*changes, **others)
            return name, action, state

        yield step("prefetch", command("prefetch", manifest=1), {"aurora": 1, "mountains": 1})
        yield step("load", command("load", "oceans", manifest=1), {"oceans": 1})
        single = "part-1/file 9.bin"
        yield step("load --file", command("load", INDEXED, "--file", single, manifest=1), single=single)
        yield step("update", command("prefetch", manifest=2), {"aurora": 2, "mountains": 2, "oceans": 2},
                   manifest=2, single=None)
        yield step("load of an indexed pack", command("load", INDEXED, manifest=2), {INDEXED: 2})
        yield step("rollback", command("rollback", "aurora"), {"aurora": 1}, pinned={"aurora"})
        yield step("update of an indexed pack", command("prefetch", manifest=3),
                   {"mountains": 3, "oceans": 3, INDEXED: 3}, manifest=3)
        yield step("pin --release", command("pin", "--release", "aurora"), pinned=())
        yield step("update after a pin", command("prefetch", manifest=3), {"aurora": 3})
        yield step("gc --previous", command("gc", "--previous"))
        yield step("damage", lambda: self.damage(container, "mountains"), damaged={"mountains"})
        yield step("repair", command("repair", "mountains", manifest=3), damaged=())
        yield step("remove", command("remove", "oceans"), {"oceans": None})
        yield step("load again", command("load", "oceans", manifest=3), {"oceans": 3})

    @staticmethod
    def damage(container, pack):
        """Overwrites a staged file, as a failing disk or a user may do."""
        with open(container / "packs" / pack / "version", "r+b") as file:
            file.write(b"spoiled")
            file.flush()
            os.fsync(file.fileno())

    def record(self, disk):
        """Performs all steps on a recorded disk, and returns the positions in the log at which each began and ended."""
        marks = []
        for name, action, _ in self.steps(disk.place / "container"):
            begin = disk.position()
            action()
            marks.append({"name": name, "begin": begin, "end": disk.position()})
        return marks

    def states(self, marks, position, container):
        """Returns the state after the steps that had ended at a position, the state that a running step would reach, and a label."""
        before, making, name = State(), State(), "before all"
        for mark, (_, _, state) in zip(marks, self.steps(container)):
            if mark["end"] <= position:
                before = making = state
                name = f"after '{mark['name']}'"
            elif mark["begin"] < position:
                making, name = state, f"during '{mark['name']}'"
        return before, making, name

    def label(self, marks, position):
        return self.states(marks, position, None)[2]

    def check(self, place, marks, position):
        """Checks the files that a cut at a position left; raises a failure for what is wrong."""
        container = place / "container"
        before, making, _ = self.states(marks, position, container)
        # Before the first run has created a container, there are no packs to check.
        if (container / "packs").exists():
            self.check_packs(container, before, making)
            self.check_reports(container, before, making)
        else:
            expect(not before.versions, "the container is gone")
        self.check_recovery(container, before, making)

    def check_packs(self, container, before, making):
        """Each pack has exactly the version from before the running step, or the one that the step would reach."""
        for pack in PACKS:
            allowed = {state.versions.get(pack) for state in (before, making)}
            content = container / "packs" / pack
            if not content.is_symlink():
                expect(None in allowed, f"{pack} is gone; expected version {allowed}")
                continue
            if pack in before.damaged | making.damaged:
                continue
            found = tree(content)
            versions = [version for version in allowed if version and found == self.site.trees[pack, version]]
            expect(versions, f"{pack} is none of the versions {allowed}: {self.difference(pack, allowed, found)}")

    def difference(self, pack, allowed, found):
        wanted = self.site.trees.get((pack, max(filter(None, allowed), default=1)), {})
        return {path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)}

    def check_reports(self, container, before, making):
        """The commands that report on a container find no faults in it."""
        here = ["--container", container]
        self.programs.succeed("status", *here)
        verified = self.programs.run("verify", *here)
        damaged = before.damaged | making.damaged
        expect(verified.returncode == 0 or (verified.returncode == 3 and damaged),
               f"verify ended with {verified.returncode}: {verified.stdout}{verified.stderr}")
        checked = self.programs.run("doctor", "--json", *here)
        problems = [check for check in json.loads(checked.stdout)["checks"] if check["level"] == "problem"]
        expect(not problems, f"doctor: {problems}")
        expect(checked.returncode == 0, f"doctor ended with {checked.returncode}: {checked.stderr}")
        if before.pinned == making.pinned:
            pins = {pin["pack"] for pin in json.loads(self.programs.succeed("pin", "--json", *here))["pins"]}
            expect(pins == before.pinned, f"pinned are {pins}, expected {before.pinned}")
        if before.single and making.single:
            path = self.programs.succeed("load", INDEXED, "--file", before.single, "--offline", *here).strip()
            version = before.manifest
            expect(tree(os.path.dirname(path))[os.path.basename(path)]
                   == self.site.trees[INDEXED, version][before.single], f"{path} is another file")

    def check_recovery(self, container, before, making):
        """The next run stages all packs, and leaves no temporary files."""
        here, manifest = ["--container", container], making.manifest
        source = self.source(container, manifest)
        if before.damaged | making.damaged:
            self.programs.succeed("repair", *source)
        self.programs.succeed("prefetch", *source)
        for pack in (INDEXED, "oceans"):
            self.programs.succeed("load", pack, *source)
        for pack in PACKS:
            found = tree(container / "packs" / pack)
            allowed = {manifest} | ({before.versions.get(pack), making.versions.get(pack)}
                                    if pack in before.pinned | making.pinned else set())
            expect(found in [self.site.trees[pack, version] for version in allowed if version],
                   f"{pack} is not version {manifest} after the next run")
        self.programs.succeed("gc", "--previous", *here)
        self.programs.succeed("verify", *here)
        for folder in ("staging", "downloads"):
            left = [name for name in os.listdir(container / folder)]
            expect(not left, f"'{folder}' has {left} after gc --previous")
