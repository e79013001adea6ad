#!/usr/bin/env python3
"""Runs the client of docs/examples against the daemon of the debug build, and compares every request and response with
docs/reference/control.openapi.json: operations, statuses, and all members. Fails if no test uses an operation.

STAGEPACK_TEST_PROGRAMS, or else STAGEPACK_TEST_BUILD, names another directory of programs. Needs the package jsonschema: pip install jsonschema
"""

import base64
import contextlib
import copy
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from jsonschema import Draft202012Validator, FormatChecker

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / (os.environ.get("STAGEPACK_TEST_BUILD") or ".build/debug")
PROGRAMS = pathlib.Path(os.environ.get("STAGEPACK_TEST_PROGRAMS") or BUILD).absolute()
EXAMPLE = ROOT / "docs/examples/stagepack_client.py"
API = ROOT / "docs/reference/control.openapi.json"
SECONDS = 120
CONTENT = bytes(range(256)) * 400

sys.path.insert(0, str(EXAMPLE.parent))
sys.dont_write_bytecode = True
import stagepack_client  # noqa: E402  (it is found by the line above)


class Contract:
    """The operations of the description, with strict schemas: a member that a schema does not name is a fault."""

    def __init__(self):
        self.api = json.loads(API.read_text("utf-8"))
        self.components = copy.deepcopy(self.api["components"])
        for schema in self.components["schemas"].values():
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
        self.used = set()
        self.count = 0

    def check(self, value, schema, where):
        root = schema | {"components": self.components}
        validator = Draft202012Validator(root, format_checker=FormatChecker())
        self.count += 1
        for error in validator.iter_errors(value):
            raise AssertionError(f"{where}: {error.json_path}: {error.message}")

    def operation(self, method, path):
        """Returns the operation of a request, and the template and the common parameters of its path."""
        for template, item in self.api["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path) and method.lower() in item:
                self.used.add(item[method.lower()]["operationId"])
                return item[method.lower()], template, item.get("parameters", [])
        raise AssertionError(f"no operation describes '{method} {path}'")

    def check_request(self, method, path, query, body):
        operation, template, shared = self.operation(method, path)
        where = f"{method} {template}"
        parameters = [self.resolved(item) for item in [*shared, *operation.get("parameters", [])]]
        names = {item["name"] for item in parameters if item["in"] == "query"}
        if unknown := set(query or {}) - names:
            raise AssertionError(f"{where}: parameters that are not described: {unknown}")
        if ("requestBody" in operation) != (body is not None):
            raise AssertionError(f"{where}: a body where none is described, or none")
        if body is not None:
            self.check(body, operation["requestBody"]["content"]["application/json"]["schema"], where)

    def check_answer(self, method, path, status, kind, content):
        operation, template, _ = self.operation(method, path)
        where = f"{method} {template}: {status}"
        response = operation["responses"].get(str(status))
        if response is None:
            raise AssertionError(f"{where}: a status that is not described: {content}")
        described = self.resolved(response).get("content", {})
        if not described:
            assert not content, f"{where}: a body where none is described"
            return
        if kind not in described:
            raise AssertionError(f"{where}: content of the type '{kind}'")
        for line in content.splitlines() if kind == "application/x-ndjson" else [content]:
            self.check(line.decode() if kind.startswith("text/") else json.loads(line), described[kind]["schema"], where)

    def resolved(self, item):
        if "$ref" not in item:
            return item
        value = self.api
        for name in item["$ref"].removeprefix("#/").split("/"):
            value = value[name]
        return value

    def unused(self):
        described = {
            operation["operationId"] for item in self.api["paths"].values() for operation in item.values() if "operationId" in operation
        }
        return sorted(described - self.used)


class CheckedClient(stagepack_client.Client):
    """The client of the example; compares its requests and responses with the description."""

    def __init__(self, contract, paths):
        self.contract = contract
        super().__init__(paths)

    def status(self):
        # The example waits for three seconds, after which it tries another daemon.
        return self.request("GET", "/v1/", timeout=SECONDS)

    def send(self, connection, method, path, query, body):
        self.contract.check_request(method, path, query, body)
        response = super().send(connection, method, path, query, body)
        checks = lambda content: self.contract.check_answer(method, path, response.status, response.getheader("Content-Type"), content)
        if response.status == 200 and response.getheader("Content-Type") == "application/x-ndjson":
            readline = response.readline

            def checked_line():
                if line := readline():
                    checks(line)
                return line

            response.readline = checked_line
        else:
            content = response.read()
            checks(content)
            response.read = lambda: content
        return response


class Origin(http.server.BaseHTTPRequestHandler):
    """A web server with all kinds of content that the tests need."""

    protocol_version = "HTTP/1.1"
    # Set after the tests, to end endless responses.
    has_ended = threading.Event()

    def do_GET(self):
        if self.path == "/missing":
            return self.answer(404, b"no such map")
        if self.path == "/busy":
            return self.answer(503, b"")
        if self.path == "/private" and self.headers["Authorization"] != "Basic YTpi":
            return self.answer(401, b"", {"WWW-Authenticate": 'Basic realm="maps"'})
        if self.path == "/endless":
            begin = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str((1 << 30) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{(1 << 30) - 1}/{1 << 30}")
            self.send_header("ETag", '"1"')
            self.end_headers()
            with contextlib.suppress(OSError):
                while not self.has_ended.wait(0.05):
                    self.wfile.write(bytes(1 << 16))
            self.close_connection = True
            return None
        return self.answer(200, CONTENT, {"ETag": '"1"'})

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"thank you")

    def answer(self, status, content, fields={}):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | fields).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def until(condition, what):
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.02)
    return value


def next_event(events, kinds, task=None):
    """Returns the next event of one of the kinds, and of a task if given."""
    for event in events:
        if event["kind"] in kinds and (task is None or event["task"] == task):
            return event
    raise AssertionError("the stream has ended")


def refused(status, code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except stagepack_client.Refusal as error:
        assert (error.status, error.code) == (status, code), f"expected {status} {code}, found {error.status} {error.code}: {error}"
    else:
        raise AssertionError(f"expected a refusal with {code}")


@contextlib.contextmanager
def started(command, **options):
    """Runs a program until the scope ends, also if it has no end of its own."""
    with subprocess.Popen(command, **options) as program:
        try:
            yield program
        finally:
            program.kill()


class Tests:
    """The tests; each uses its own sessions."""

    def __init__(self, folder, client, url):
        self.folder, self.client, self.url = folder, client, url

    def create(self, session, path, **members):
        request = {"token": path, "kind": "download", "url": self.url + path} | members
        return self.client.create_tasks(session, [request])[0]

    def a_download_is_watched_taken_and_acknowledged(self):
        client = self.client
        status = client.put_session("maps", {"headers": {"X-Client": "1"}, "isDiscretionary": False})
        assert status["identifier"] == "maps" and status["configuration"]["headers"] == {"X-Client": "1"}
        with contextlib.closing(client.events("maps")) as events:
            attached = next(events)
            assert (attached["kind"], attached["sessionNumber"]) == ("attached", status["number"])
            number = self.create("maps", "/europe", description="a map")
            assert self.create("maps", "/europe") == number, "a repeated token yields the task that exists"
            event = next_event(events, stagepack_client.FINAL_EVENTS, number)
            assert event["kind"] == "completed", event
            destination = self.folder / "europe.map"
            assert client.take(event, destination) and destination.read_bytes() == CONTENT
            assert not client.take(event, destination), "a file that was taken is not there again"
            client.acknowledge("maps", event["sequence"])
            assert next_event(events, ["finishedEvents"])
        assert client.tasks("maps") == [] and client.session("maps")["acknowledgedEvent"] == event["sequence"]

    def a_task_is_paused_changed_resumed_and_cancelled(self):
        client = self.client
        client.put_session("slow")
        number = self.create("slow", "/endless", priority=0.5)
        until(lambda: client.task(number)["bytesReceived"] > 0, "bytes of the endless download")
        task = client.change_task(number, state="suspended")
        assert task["state"] == "suspended", task
        assert client.change_tasks("slow", {number: {"priority": 0.75}}) == {}
        assert client.task(number, headers=True)["request"]["priority"] == 0.75
        client.change_task(number, state="running")
        with contextlib.closing(client.events("slow")) as events:
            next(events)
            client.change_task(number, state="cancelled", producesResumeToken=True)
            event = next_event(events, stagepack_client.FINAL_EVENTS, number)
        assert event["kind"] == "cancelled" and event["resumeToken"], event
        [task] = client.tasks("slow", headers=True)
        assert (task["id"], task["state"]) == (number, "cancelled")
        assert client.tasks("slow", token="/endless") == client.tasks("slow") and not client.tasks("slow", token="/end")
        refusals = client.change_tasks("slow", {number: {"state": "running"}, 1 << 40: {"state": "running"}})
        assert {refusal["code"] for refusal in refusals.values()} == {"conflict", "notFound"}, refusals
        client.delete_session("slow")
        refused(404, "notFound", client.session, "slow")

    def an_upload_tells_its_answer(self):
        client = self.client
        file = self.folder / "log.txt"
        file.write_bytes(b"a line\n")
        client.put_session("logs", {"uploadProtocol": "plain"})
        number = self.create("logs", "/logs/1", kind="upload", method="PUT", file=str(file))
        with contextlib.closing(client.events("logs")) as events:
            event = next_event(events, stagepack_client.FINAL_EVENTS, number)
        assert event["kind"] == "completed" and event["response"]["status"] == 200, event
        assert base64.b64decode(event["body"]) == b"thank you"

    def a_challenge_is_answered_and_a_failure_told(self):
        client = self.client
        client.put_session("private", {"answersChallenges": True})
        number, missing = self.create("private", "/private"), self.create("private", "/missing")
        with contextlib.closing(client.events("private")) as events:
            event = next_event(events, ["challenged"], number)
            assert event["challenge"] == 'Basic realm="maps"', event
            client.change_task(number, authorization="Basic YTpi")
            ended = {number: None, missing: None}
            while None in ended.values():
                event = next_event(events, stagepack_client.FINAL_EVENTS)
                ended[event["task"]] = event["kind"], event.get("failure", {}).get("kind")
        assert ended == {number: ("completed", None), missing: ("failed", "refused")}, ended

    def a_download_that_does_not_wait_fails_at_once(self):
        client = self.client
        client.put_session("hurried")
        created = self.create("hurried", "/busy", failsWithoutRetry=True)
        until(lambda: client.task(created)["state"] == "failed", "the failure of a download")
        changed = self.create("hurried", "/busy", token="/busy/2", isSuspended=True)
        task = client.change_task(changed, state="running", promotes=True, failsWithoutRetry=True)
        assert task["request"]["failsWithoutRetry"], task
        with contextlib.closing(client.events("hurried")) as events:
            ended = [next_event(events, stagepack_client.FINAL_EVENTS, number) for number in (created, changed)]
        assert [(event["kind"], event["failure"]["status"]) for event in ended] == [("failed", 503)] * 2, ended

    def a_promoted_download_waits_for_no_date(self):
        client = self.client
        client.put_session("promoted", {"isDiscretionary": True})
        number = self.create("promoted", "/europe", isPromoted=True, earliestBegin="2100-01-01T00:00:00Z")
        until(lambda: client.task(number)["state"] == "completed", "the end of a promoted download")
        assert client.task(number)["request"]["isPromoted"]
        changed = self.create("promoted", "/europe", token="/europe/2", isSuspended=True)
        assert client.change_task(changed, promotes=True)["request"]["isPromoted"]

    def refusals_are_told_apart(self):
        client = self.client
        client.put_session("one")
        with contextlib.closing(client.events("one")) as events:
            next(events)
            refused(409, "conflict", lambda: next(client.events("one")))
        refused(404, "notFound", client.task, 1 << 40)
        refused(409, "conflict", client.extend, "one")
        contract, client.contract = client.contract, Unchecked(client.contract)
        refused(422, "invalid", self.create, "one", "/x", priority=2)
        refused(400, "malformed", client.create_tasks, "one", "none")
        refused(413, "tooLarge", client.create_tasks, "one", [{"token": str(n), "kind": "download", "url": "http://a"} for n in range(1001)])
        client.contract = contract

    def the_metrics_count_what_ended(self):
        outcome = 'stagepack_daemon_ended_tasks_total{outcome="completed"}'
        count = lambda: int(re.search(f"^{re.escape(outcome)} ([0-9]+)$", self.client.metrics(), re.MULTILINE)[1])
        before = count()
        self.client.put_session("counted")
        number = self.create("counted", "/europe")
        until(lambda: self.client.task(number)["state"] == "completed", "the end of a download")
        assert count() == before + 1, self.client.metrics()

    def all_sessions_are_listed_and_watched(self):
        client = self.client
        client.put_session("watched/1")
        with contextlib.closing(client.watch()) as events:
            next(events)
            number = self.create("watched/1", "/europe")
            event = next_event(events, ["completed"], number)
        assert event["session"] == "watched/1", event
        assert "watched/1" in [session["identifier"] for session in client.sessions()]
        assert number in [task["id"] for task in client.tasks()]

    def the_program_downloads_a_file_and_continues_after_it_was_killed(self):
        def run(*arguments):
            environment = os.environ | {"STAGEPACK_SOCKET": self.client.path}
            return [sys.executable, str(EXAMPLE), *arguments], environment

        command, environment = run("download", f"{self.url}/europe", str(self.folder / "a.map"))
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL, timeout=SECONDS, umask=0o027)
        assert (self.folder / "a.map").read_bytes() == CONTENT
        assert (self.folder / "a.map").stat().st_mode & 0o777 == 0o640, "the mode of a file that the program creates"
        command, environment = run("download", f"{self.url}/missing", str(self.folder / "b.map"))
        ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        assert ended.returncode == 1 and "404" in ended.stderr, ended
        for destination in ("nope/d.map", "."):
            command, environment = run("download", f"{self.url}/endless", str(self.folder / destination))
            ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
            assert ended.returncode == 1 and str(self.folder) in ended.stderr, ended
        slow, environment = run("download", f"{self.url}/endless", str(self.folder / "c.map"))
        with started(slow, env=environment, stderr=subprocess.DEVNULL) as program:
            mine = lambda: [task for task in self.client.tasks() if task["request"].get("description", "").endswith("c.map")]
            [task] = until(lambda: [task for task in mine() if task["bytesReceived"] > 0], "bytes of the example's download")
            program.kill()
        assert [task["state"] for task in mine()] == ["running"], "the daemon continues"
        command, environment = run("list")
        listed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
        assert f"{task['id']}  running" in listed, listed
        command, environment = run("cancel", str(self.folder / "c.map"))
        with started(slow, env=environment, stderr=subprocess.PIPE, text=True) as program:
            # The program prints progress once it has attached to the session.
            next(line for line in program.stderr if "bytes" in line)
            subprocess.run(command, env=environment, check=True, timeout=SECONDS)
            assert "another process has cancelled the download" in program.communicate(timeout=SECONDS)[1]
        assert program.returncode == 1 and mine() == []

    def the_daemons_socket_is_found_without_a_runtime_directory(self):
        found = lambda **environment: stagepack_client.socket_paths(environment)[0]
        assert found(STAGEPACK_SOCKET="/a") == "/a" and stagepack_client.socket_paths({"STAGEPACK_SOCKET": ""}) == []
        if os.getuid() == 0:
            assert found(XDG_RUNTIME_DIR="/run/other") == stagepack_client.SYSTEM_SOCKET
            return
        assert found(XDG_RUNTIME_DIR="/run/other") == "/run/other/stagepack/control.sock"
        if not os.path.isdir(f"/run/user/{os.getuid()}"):
            assert found(XDG_STATE_HOME="/state", XDG_RUNTIME_DIR="relative") == "/state/stagepack/stagepack/control.sock"
            home = os.path.expanduser("~/.local/state/stagepack/stagepack/control.sock")
            assert found() == home


class Unchecked:
    """A contract that accepts requests that break the description, and checks only their responses."""

    def __init__(self, contract):
        self.check_answer = contract.check_answer

    def check_request(self, *arguments):
        pass


@contextlib.contextmanager
def daemon(folder):
    """Runs a daemon with its files in a folder; yields the path of its socket."""
    (folder / "stagepackd.json").write_text(json.dumps({"busAddress": f"unix:path={folder}/none", "settlingTime": 1}))
    path = folder / "control.sock"
    # The daemon is 'stagepack' under its other name.
    program = folder / "stagepackd"
    program.symlink_to(PROGRAMS / "stagepack")
    command = [program, "--state", folder / "state", "--socket", path, "--config", folder / "stagepackd.json"]
    with open(folder / "daemon.log", "wb") as log, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log) as process:
        try:
            until(lambda: accepts_connections(path) or process.poll() is not None, "the daemon's socket")
            yield str(path)
        finally:
            process.send_signal(signal.SIGTERM)


def accepts_connections(path):
    """Returns whether a process listens at a socket: the file exists before listen(2)."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False


def main():
    # The daemon and the programs that the tests have started end before this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    contract, failed = Contract(), []
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="stagepack-control.") as name:
        folder = pathlib.Path(name)
        with daemon(folder) as path:
            tests = Tests(folder, CheckedClient(contract, [path]), f"http://127.0.0.1:{origin.server_port}")
            names = [name for name in vars(Tests) if "_" in name.strip("_")]
            for name in names:
                try:
                    getattr(tests, name)()
                except Exception as error:
                    failed.append(f"{name}: {type(error).__name__}: {error}")
            Origin.has_ended.set()
        if failed:
            sys.stderr.write((folder / "daemon.log").read_text("utf-8", "replace"))
    origin.shutdown()
    if unused := contract.unused():
        failed.append(f"operations that no test uses: {unused}")
    print("\n".join(f"failed: {line}" for line in failed) or f"{contract.count} bodies and events are as described")
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
