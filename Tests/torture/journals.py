"""Requests of the daemon's clients, and checks after a power cut that everything is there that its responses confirmed."""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import cuts
from world import HANGS, Failure, expect, wait_until

FILES = {"small": 40_000, "middle": 300_000, "large": 5_000_000}
UNREACHABLE = "http://127.0.0.1:1/nothing"


class Connection(http.client.HTTPConnection):
    """An HTTP connection over the daemon's socket."""

    def __init__(self, path, within):
        super().__init__("stagepack", timeout=within)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Daemon:
    """A daemon with its files in one directory, and a client for it."""

    def __init__(self, programs, state, runtime, wrapper=()):
        self.programs, self.state, self.wrapper = programs, state, wrapper
        # The socket has a short name, since the kernel limits the length of socket addresses.
        self.runtime = pathlib.Path(runtime)
        self.runtime.mkdir(exist_ok=True)
        self.socket, self.log = self.runtime / "s", self.runtime / "log"
        self.configuration = self.runtime / "configuration.json"
        self.configuration.write_text(json.dumps({
            "settlingTime": 0, "retryBase": 0.05, "reserve": 0, "busAddress": f"unix:path={self.runtime}/no-bus"}))
        self.process = None

    def start(self, within=60):
        """Starts the daemon, and returns when it responds."""
        self.launch()
        wait_until("the daemon answers", self.answers, within)

    def launch(self):
        with contextlib.suppress(FileNotFoundError):
            self.socket.unlink()
        command = [*self.wrapper, self.programs.stagepackd, "--foreground", "--state", self.state, "--socket", self.socket,
                   "--config", self.configuration]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), env=self.programs.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)

    def answers(self):
        if self.process.poll() is not None:
            raise Failure(f"the daemon ended with {self.process.returncode}: {self.said()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "") is not None

    def said(self):
        return self.log.read_text(errors="replace")[-1500:].strip()

    def ask(self, method, path, body=None, within=60):
        """Sends a request, and returns the decoded response; a refusal is a failure."""
        connection = Connection(self.socket, within)
        try:
            connection.request(method, f"/v1/{path}", None if body is None else json.dumps(body), {"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        expect(answer.status < 400, f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text) if text else {}

    @contextlib.contextmanager
    def events(self, session, within=60):
        """Yields an iterator over the events of a session."""
        connection = Connection(self.socket, within)
        try:
            connection.request("GET", f"/v1/sessions/{session}/events?after=0")
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Failure(f"events of {session}: {answer.status} {answer.read()}")
            # The stream stays open as long as the daemon runs, so waiting for an event needs a deadline.
            deadline = time.monotonic() + HANGS
            yield self.lines(answer, session, deadline)
        finally:
            connection.close()

    @staticmethod
    def lines(answer, session, deadline):
        for line in answer:
            expect(time.monotonic() < deadline, f"events of {session}: what must come did not within {HANGS} s")
            if line.strip():
                yield json.loads(line)
        raise Failure(f"the stream of events of {session} ended")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Stops the daemon as a service manager does, and returns the status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(HANGS)
        except subprocess.TimeoutExpired:
            raise Failure(f"the daemon hangs: it did not end within {HANGS} s") from None


class Uploads(http.server.BaseHTTPRequestHandler):
    """An origin that accepts uploads."""

    def log_message(self, *_):
        pass

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT


@contextlib.contextmanager
def taking_uploads(port):
    """Runs an origin for uploads; yields its URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Uploads) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def write_files(directory):
    """Writes the files for downloads, and returns their digests."""
    digests = {}
    for name, size in FILES.items():
        content = random.Random(name).randbytes(size)
        (directory / name).write_bytes(content)
        # An entity tag of a recently modified file may stand for two versions, so it is not used to resume a download.
        os.utime(directory / name, (time.time() - 3600,) * 2)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


class Ledger:
    """The requests to the daemon and its responses, in order, each with the positions in the recording at its begin and end."""

    def __init__(self, now):
        self.now, self.facts = now, []

    @contextlib.contextmanager
    def asking(self, kind, **facts):
        """Adds a request: `began` is set before it is sent, and `ended` after its response was received."""
        fact = {"kind": kind, "began": self.now(), "ended": None, **facts}
        self.facts.append(fact)
        yield fact
        fact["ended"] = self.now()


class Expected:
    """The state that must exist, and the changes that may exist, according to the facts up to a position in the recording."""

    def __init__(self, facts, position):
        self.sessions, self.maybe_gone, self.gone = set(), set(), set()
        self.tasks, self.highest = {}, 0
        self.events, self.acknowledged, self.maybe_acknowledged = {}, {}, {}
        self.priorities, self.label = {}, "before all"
        for fact in facts:
            if fact["began"] < position:
                isAnswered = fact["ended"] is not None and fact["ended"] <= position
                self.label = f"{'after' if isAnswered else 'during'} '{fact['kind']}'"
                getattr(self, "take_" + fact["kind"].replace(" ", "_"))(fact, isAnswered)

    def take_session(self, fact, isAnswered):
        if isAnswered:
            self.sessions.add(fact["session"])

    def take_tasks(self, fact, isAnswered):
        if isAnswered:
            for number, token in zip(fact["ids"], fact["tokens"]):
                self.tasks[number] = (fact["session"], token)
            self.highest = max(self.highest, *fact["ids"])

    def take_event(self, fact, isAnswered):
        self.events[fact["session"], fact["sequence"]] = (fact["task"], fact["event"], fact["name"])

    def take_acknowledge(self, fact, isAnswered):
        session = fact["session"]
        self.maybe_acknowledged[session] = fact["sequence"]
        if isAnswered:
            self.acknowledged[session] = fact["sequence"]

    def take_change(self, fact, isAnswered):
        before = self.priorities.get(fact["task"], [0.5])
        self.priorities[fact["task"]] = [fact["priority"]] if isAnswered else [*before, fact["priority"]]

    def take_cancel(self, fact, isAnswered):
        pass

    def take_delete(self, fact, isAnswered):
        (self.gone if isAnswered else self.maybe_gone).add(fact["session"])
        self.sessions.discard(fact["session"])

    def take_kill(self, fact, isAnswered):
        pass

    take_stop = take_start = take_kill

    def must_have(self, session):
        return session in self.sessions and session not in self.gone | self.maybe_gone


class JournalScenario:
    """Sessions, tasks, events and acknowledgements, between which daemons are killed and stopped."""

    name = "journal"

    def __init__(self, programs, directory, url, slow_url, uploads, digests):
        self.programs, self.directory = programs, pathlib.Path(directory)
        self.url, self.slow_url, self.uploads, self.digests = url, slow_url, uploads, digests
        self.upload = self.directory / "to-upload"
        self.upload.write_bytes(random.Random("upload").randbytes(70_000))

    def request(self, token, name, **more):
        url = self.slow_url if name == "large" else self.url
        return {"token": token, "kind": "download", "url": f"{url}/{name}", "description": name, **more}

    def record(self, disk):
        ledger = Ledger(disk.position)
        daemon = Daemon(self.programs, disk.place / "state", self.directory / "recorded")
        moved = disk.place / "moved"
        moved.mkdir()
        try:
            self.act(daemon, ledger, moved)
        finally:
            daemon.kill()
        return ledger.facts

    def act(self, daemon, ledger, moved):
        with ledger.asking("start"):
            daemon.start()
        self.make_session(daemon, ledger, "a")
        self.make_tasks(daemon, ledger, "a", [
            self.request("1", "small"), self.request("2", "middle", sha256=self.digests["middle"]),
            self.request("3", "small", isSuspended=True)])
        self.make_tasks(daemon, ledger, "a", [
            {"token": "4", "kind": "upload", "url": f"{self.uploads}/u", "method": "PUT", "file": str(self.upload)},
            {"token": "5", "kind": "download", "url": UNREACHABLE}])
        self.take_events(daemon, ledger, "a", 2)
        self.make_tasks(daemon, ledger, "a", [self.request("6", "large")])
        with ledger.asking("change", task=3, priority=0.9):
            daemon.ask("PATCH", "tasks/3", {"priority": 0.9})
        self.acknowledge(daemon, ledger, "a", 1, moved)
        self.make_session(daemon, ledger, "b")
        self.make_tasks(daemon, ledger, "b", [self.request("1", "small"), self.request("2", "middle", isSuspended=True)])
        self.take_events(daemon, ledger, "b", 1)
        with ledger.asking("kill"):
            daemon.kill()
        with ledger.asking("start"):
            daemon.start()
        self.take_events(daemon, ledger, "a", 4)
        with ledger.asking("cancel", task=5):
            daemon.ask("PATCH", "tasks/5", {"state": "cancelled"})
        self.take_events(daemon, ledger, "a", 5)
        self.acknowledge(daemon, ledger, "a", 3, moved)
        with ledger.asking("delete", session="b"):
            daemon.ask("DELETE", "sessions/b")
        self.make_tasks(daemon, ledger, "a", [self.request("7", "middle"), self.request("8", "small")])
        with ledger.asking("stop"):
            status = daemon.stop()
            expect(status == 0, f"the daemon ended with {status}: {daemon.said()}")
        with ledger.asking("start"):
            daemon.start()
        self.take_events(daemon, ledger, "a", 7)
        self.make_session(daemon, ledger, "c")
        self.make_tasks(daemon, ledger, "c", [self.request("1", "middle")])
        self.take_events(daemon, ledger, "c", 1)

    def act_shortly(self, daemon, ledger, moved):
        """Performs the requests for a few tasks, with one daemon."""
        with ledger.asking("start"):
            daemon.start()
        self.make_session(daemon, ledger, "a")
        self.make_tasks(daemon, ledger, "a", [
            self.request("1", "small"), self.request("2", "middle", sha256=self.digests["middle"]),
            self.request("3", "small", isSuspended=True),
            {"token": "4", "kind": "upload", "url": f"{self.uploads}/u", "method": "PUT", "file": str(self.upload)}])
        self.take_events(daemon, ledger, "a", 3)
        with ledger.asking("change", task=3, priority=0.9):
            daemon.ask("PATCH", "tasks/3", {"priority": 0.9})
        self.acknowledge(daemon, ledger, "a", 1, moved)
        self.make_session(daemon, ledger, "b")
        with ledger.asking("delete", session="b"):
            daemon.ask("DELETE", "sessions/b")
        self.make_tasks(daemon, ledger, "a", [self.request("5", "middle")])
        self.take_events(daemon, ledger, "a", 4)

    def make_session(self, daemon, ledger, session):
        with ledger.asking("session", session=session):
            daemon.ask("PUT", f"sessions/{session}", {})

    def make_tasks(self, daemon, ledger, session, requests):
        with ledger.asking("tasks", session=session, tokens=[request["token"] for request in requests]) as fact:
            fact["ids"] = daemon.ask("POST", f"sessions/{session}/tasks", {"tasks": requests})["ids"]

    def take_events(self, daemon, ledger, session, last):
        """Reads durable events until the one with the number `last`."""
        known = {fact["sequence"] for fact in ledger.facts if fact["kind"] == "event" and fact["session"] == session}
        names = {task["id"]: task["request"].get("description") for task in daemon.ask("GET", "tasks")["tasks"]}
        with daemon.events(session) as events:
            for event in events:
                if (sequence := event.get("sequence")) and sequence not in known:
                    name = names.get(event["task"]) if event["kind"] == "completed" and "location" in event else None
                    with ledger.asking("event", session=session, sequence=sequence, task=event["task"],
                                       event=event["kind"], name=name, location=event.get("location")):
                        pass
                if sequence == last:
                    return

    def acknowledge(self, daemon, ledger, session, sequence, moved):
        """Moves finished files, as clients do, and acknowledges their events."""
        with ledger.asking("acknowledge", session=session, sequence=sequence):
            for fact in ledger.facts:
                if fact["kind"] == "event" and fact["session"] == session and fact["sequence"] <= sequence:
                    if fact["location"] and os.path.exists(fact["location"]):
                        os.rename(fact["location"], moved / str(fact["task"]))
            daemon.ask("POST", f"sessions/{session}/acknowledge", {"sequence": sequence})

    def label(self, facts, position):
        return Expected(facts, position).label

    def check(self, place, facts, position, fault=None):
        """Checks the remaining state; a transfer may have failed only if its failure contains the words of the fault."""
        expected = Expected(facts, position)
        state = place / "state"
        daemon = Daemon(self.programs, state, self.directory / f"r{os.getpid()}")
        try:
            daemon.start()
            self.check_lists(daemon, expected)
            self.check_events(daemon, expected)
            self.check_going_on(daemon, expected, fault)
            status = daemon.stop()
            expect(status == 0, f"the daemon ended with {status}: {daemon.said()}")
        finally:
            daemon.kill()
            daemon.log.unlink()

    def check_lists(self, daemon, expected):
        """Sessions and tasks that responses confirmed exist, and deleted ones do not."""
        sessions = {session["identifier"] for session in daemon.ask("GET", "sessions")["sessions"]}
        for session in expected.sessions:
            expect(session in sessions or not expected.must_have(session), f"session {session} is gone; there are {sessions}")
        expect(not expected.gone & sessions, f"{expected.gone & sessions} are there again")
        tasks = {task["id"]: task for task in daemon.ask("GET", "tasks")["tasks"]}
        done = {task for (session, sequence), (task, _, _) in expected.events.items()
                if sequence <= expected.maybe_acknowledged.get(session, 0)}
        for number, (session, token) in expected.tasks.items():
            if expected.must_have(session) and number not in done:
                expect(number in tasks, f"task {number} of session {session} is gone; there are {sorted(tasks)}")
                expect(tasks[number]["request"]["token"] == token, f"task {number} is another one")
                if number in expected.priorities:
                    priority = tasks[number]["request"].get("priority", 0.5)
                    expect(priority in expected.priorities[number],
                           f"task {number} has priority {priority}, expected {expected.priorities[number]}")

    def check_events(self, daemon, expected):
        """Events that were delivered but not acknowledged are delivered again, with their files."""
        for session in expected.sessions:
            if not expected.must_have(session):
                continue
            acknowledged = expected.acknowledged.get(session, 0)
            wanted = {sequence: event for (name, sequence), event in expected.events.items()
                      if name == session and sequence > expected.maybe_acknowledged.get(session, 0)}
            seen, found = 0, {}
            with daemon.events(session) as events:
                for event in events:
                    if sequence := event.get("sequence"):
                        expect(sequence > acknowledged, f"event {sequence} of {session} was acknowledged")
                        found[sequence] = event
                    if wanted.keys() <= found.keys():
                        break
            for sequence, (task, kind, name) in wanted.items():
                event = found[sequence]
                expect((event["task"], event["kind"]) == (task, kind),
                       f"event {sequence} of {session} is {event['kind']} of {event['task']}, was {kind} of {task}")
                if name:
                    self.check_file(event, name)

    def check_file(self, event, name):
        location = event.get("location")
        expect(location, f"event {event['sequence']} has no file any more")
        found = hashlib.sha256(pathlib.Path(location).read_bytes()).hexdigest()
        expect(found == self.digests[name], f"the file of task {event['task']} is not '{name}'")

    def check_going_on(self, daemon, expected, fault):
        """New tasks get new numbers, and all transfers that can end do so, successfully unless the fault affected them."""
        daemon.ask("PUT", "sessions/after", {})
        new = daemon.ask("POST", "sessions/after/tasks", {"tasks": [self.request("after", "small")]})["ids"][0]
        expect(new > expected.highest, f"task numbers began again: {new} after {expected.highest}")

        def unfinished():
            return [task for task in daemon.ask("GET", "tasks")["tasks"]
                    if task["state"] in ("waiting", "running") and task["request"]["url"] != UNREACHABLE]

        wait_until("all transfers end", lambda: not unfinished(), HANGS)
        names = {task["id"]: task["request"].get("description") for task in daemon.ask("GET", "tasks")["tasks"]}
        for session in daemon.ask("GET", "sessions")["sessions"]:
            last, known = session["lastEvent"], session["acknowledgedEvent"]
            with daemon.events(session["identifier"]) as events:
                while known < last:
                    event = next(events)
                    known = event.get("sequence") or known
                    if event["kind"] == "failed":
                        expect(fault and fault in event["failure"]["reason"], f"a transfer failed: {event}")
                    if event["kind"] == "completed" and "location" in event:
                        self.check_file(event, names[event["task"]])


class PartialScenario(JournalScenario):
    """A download that is resumed after a boot: until its next checkpoint, a cut leaves the bytes that the daemon before that boot synced."""

    name = "partial"

    def act(self, daemon, ledger, moved):
        with ledger.asking("start"):
            daemon.start()
        self.make_session(daemon, ledger, "a")
        self.make_tasks(daemon, ledger, "a", [self.request("1", "large")])
        parts = daemon.state / "parts"
        wait_until("bytes are received", lambda: self.received(parts) > 500_000, HANGS)
        with ledger.asking("stop") as fact:
            expect(daemon.stop() == 0, f"the daemon failed: {daemon.said()}")
            fact["durable"] = durable = self.durable(parts)
            expect(durable > 0, "the daemon synced nothing at its end")
        cuts.begin_new_boot(self.directory.parent)
        with ledger.asking("start"):
            daemon.start()
        wait_until("the download is resumed", lambda: self.received(parts) > durable, HANGS)
        # Each commit writes the journal of the file system, which then also contains the latest record of the partial file.
        for token in "23456":
            self.make_tasks(daemon, ledger, "a", [self.request(token, "small", isSuspended=True)])
            time.sleep(0.1)
        # A cut before the next checkpoint leaves the record from before the boot.
        now = self.durable(parts)
        expect(now >= durable, f"of {durable} durable bytes {now} were left without a cut")

    @staticmethod
    def received(parts):
        return max((file.stat().st_size for file in parts.glob("*.part.*")), default=0)

    @staticmethod
    def durable(parts):
        """Returns the number of durable bytes in the only record, and checks that its file has at least as many."""
        records = list(parts.glob("*.state"))
        expect(len(records) == 1, f"there are {len(records)} records of partial files")
        text = records[0].read_text()
        expect(text, "the record of the partial file is empty")
        record = json.loads(text)
        file = parts / f"{records[0].stem}.part.{record['generation']}"
        expect(file.stat().st_size >= record["durable"], f"{file.name} is shorter than its record says")
        return record["durable"]

    def check(self, place, facts, position, fault=None):
        for fact in facts:
            if fact["kind"] == "stop" and fact["ended"] <= position:
                durable = self.durable(place / "state/parts")
                expect(durable >= fact["durable"], f"{durable} bytes are durable, {fact['durable']} were")
        super().check(place, facts, position, fault)
