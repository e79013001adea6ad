"""Power cuts: runs of scenarios on a recorded disk, and checks of the disk states that cuts leave."""

import json
import multiprocessing
import os
import pathlib
import traceback
import uuid

import disk
from world import Failure


def begin_new_boot(directory):
    """Makes the kernel report another boot identifier from now on, as after a restart."""
    name = directory / "boot_id"
    mounted = name.exists()
    name.write_text(f"{uuid.uuid4()}\n")
    if not mounted:
        disk.mount_call(name, "/proc/sys/kernel/random/boot_id", None, 4096, None)


class Cuts:
    """Power cuts of one scenario on one kind of file system."""

    def __init__(self, scenario, kind, directory, disk_lies=False):
        self.scenario, self.kind, self.disk_lies = scenario, kind, disk_lies
        self.system = disk.FILE_SYSTEMS[kind]
        self.directory = pathlib.Path(directory)

    def record(self, about):
        """Runs the scenario once, on a recorded disk."""
        self.directory.mkdir()
        recorded = disk.RecordedDisk(self.system, self.directory)
        recorded.prepare()
        with recorded:
            marks = self.scenario.record(recorded)
        (self.directory / "recording.json").write_text(json.dumps({**about, "marks": marks}))

    def open(self):
        self.recording = disk.Recording(self.system, self.directory)
        self.marks = json.loads((self.directory / "recording.json").read_text())["marks"]

    def describe(self, seed, number):
        cut, variant, _ = disk.plan_cut(self.recording, seed, number)
        position = self.recording.end(cut)
        return f"record {cut} of {len(self.recording.records)}, {variant}, {self.scenario.label(self.marks, position)}"

    def try_cut(self, seed, number):
        """Tries one cut, and returns what is wrong afterwards, or nothing."""
        cut, variant, chance = disk.plan_cut(self.recording, seed, number)
        image = self.directory / f"state-{os.getpid()}"
        self.recording.build(image, cut, variant, chance, self.disk_lies)
        try:
            with disk.Mounted(self.system, image, self.directory / f"mount-{os.getpid()}") as place:
                self.scenario.check(place, self.marks, self.recording.end(cut))
            return None
        except Failure as failure:
            return str(failure)
        except Exception:
            return traceback.format_exc()
        finally:
            image.unlink()


def work(cuts, seed, numbers, results):
    """Tries cuts from a queue until it is empty, in a separate process."""
    disk.end_with_parent()
    cuts.open()
    while (number := numbers.get()) is not None:
        results.put((number, cuts.describe(seed, number), cuts.try_cut(seed, number)))


def try_all(cuts, seed, numbers, workers):
    """Tries cuts, prints each failure, and returns the numbers of the failed cuts."""
    queue, results = multiprocessing.Queue(), multiprocessing.Queue()
    for number in [*numbers, *[None] * workers]:
        queue.put(number)
    processes = [multiprocessing.Process(target=work, args=(cuts, seed, queue, results), daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    failed = []
    for _ in numbers:
        number, description, problem = results.get()
        if problem is not None:
            failed.append(number)
            print(f"FAILED cut {number} ({description}):\n    {problem.strip()}", flush=True)
    for process in processes:
        process.join()
    return failed
