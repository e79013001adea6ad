#!/usr/bin/env python3
"""A client of stagepackd with nothing but the standard library: every request of the control protocol, and a downloader.

    stagepack_client.py download URL FILE    downloads a file; run again, it continues a download that it has left
    stagepack_client.py list                 prints the tasks of this user
    stagepack_client.py cancel FILE          cancels the download of a file

The daemon downloads while no client runs, too. docs/reference/control.openapi.json describes the requests, and
Manifests/control-protocol.md their limits. Copy this file into your program: it has the licence of StagePack, Apache-2.0.
"""

import argparse
import contextlib
import errno
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import stat
import struct
import sys
import urllib.parse

SYSTEM_SOCKET = "/run/stagepack/control.sock"
# The daemon sends a heartbeat every 15 seconds: three that are missed are a lost connection.
STREAM_TIMEOUT = 45
# The daemon copies a file to upload before it answers.
REQUEST_TIMEOUT = 600
FINAL_EVENTS = ("completed", "failed", "cancelled")


class Refusal(Exception):
    """A refused request, with the HTTP status and the code of the reason."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code = status, code


class NoDaemon(Exception):
    """No daemon answers, or the process that listens is not trusted."""


def socket_paths(environment=os.environ):
    """The sockets to try, in order: the one of STAGEPACK_SOCKET, or the user's and then the system's."""
    if "STAGEPACK_SOCKET" in environment:
        return [path] if (path := environment["STAGEPACK_SOCKET"]) else []
    if os.getuid() == 0:
        return [SYSTEM_SOCKET]
    run = pathlib.Path(f"/run/user/{os.getuid()}")
    if (runtime := environment.get("XDG_RUNTIME_DIR", "")).startswith("/"):
        folder = runtime
    elif run.is_dir() and run.stat().st_uid == os.getuid():
        folder = run
    elif (state := environment.get("XDG_STATE_HOME", "")).startswith("/"):
        folder = f"{state}/stagepack"
    else:
        folder = os.path.expanduser("~/.local/state/stagepack")
    return [f"{folder}/stagepack/control.sock", SYSTEM_SOCKET]


class Connection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket, to a process of root or of this user."""

    def __init__(self, path, timeout):
        super().__init__("stagepack", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        user = struct.unpack("3i", credentials)[1]
        if user not in (0, os.getuid()):
            self.close()
            raise NoDaemon(f"the process that listens at '{self.path}' belongs to user {user}")


class Client:
    """The requests of the control protocol; each uses a connection of its own."""

    def __init__(self, paths=None):
        """Connects to the first daemon that answers at one of the paths."""
        paths = socket_paths() if paths is None else paths
        for self.path in paths:
            try:
                self.service = self.status()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                continue
        raise NoDaemon(f"no daemon listens at {' or '.join(paths) or 'any socket'}")

    # Requests about the daemon and its sessions

    def status(self):
        return self.request("GET", "/v1/", timeout=3)

    def metrics(self, all_users=False):
        """Returns the metrics as text for Prometheus."""
        return self.request("GET", "/v1/metrics", query=every(all_users))

    def sessions(self, all_users=False):
        return self.request("GET", "/v1/sessions", query=every(all_users))["sessions"]

    def put_session(self, session, configuration=None):
        """Creates a session of the caller's user, or changes its configuration."""
        return self.request("PUT", of(session), body=configuration or {})

    def session(self, session, user=None):
        return self.request("GET", of(session), query=owner(user))

    def delete_session(self, session, user=None):
        """Cancels the tasks of a session and removes it, its events and files included."""
        self.request("DELETE", of(session), query=owner(user))

    def extend(self, session):
        """Asks for more time, in a handler that the daemon has launched."""
        self.request("POST", f"{of(session)}/extend")

    # Requests about tasks

    def create_tasks(self, session, tasks, launch=None, user=None):
        """Creates all tasks or none, and returns their numbers once they are on disk.

        The client chooses the `token` of a task. Repeating a token yields the task that exists, so a request whose
        answer was lost can be repeated.
        """
        body = {"tasks": tasks} | ({"launch": launch} if launch else {})
        return self.request("POST", f"{of(session)}/tasks", query=owner(user), body=body)["ids"]

    def change_tasks(self, session, changes, user=None):
        """Changes tasks, `{number: change}`, and returns the refusals by number; all other changes are on disk."""
        body = {"changes": [{"task": number, "change": change} for number, change in changes.items()]}
        answer = self.request("PATCH", f"{of(session)}/tasks", query=owner(user), body=body)
        return {refusal["task"]: refusal["refusal"] for refusal in answer["refusals"]}

    def tasks(self, session=None, headers=False, all_users=False, user=None, token=None):
        """The unfinished and unacknowledged tasks of a session, or of all sessions.

        With `token`, those of a session whose token is this text, or begins with it and a slash.
        """
        query = every(all_users) | owner(user) | ({"headers": "1"} if headers else {}) | ({"token": token} if token else {})
        return self.request("GET", f"{of(session)}/tasks" if session else "/v1/tasks", query=query)["tasks"]

    def task(self, number, headers=False):
        return self.request("GET", f"/v1/tasks/{number}", query={"headers": "1"} if headers else {})

    def change_task(self, number, **change):
        """Changes a task: `state="cancelled"`, `priority=0.8` and so on."""
        return self.request("PATCH", f"/v1/tasks/{number}", body=change)

    # Events

    def events(self, session, after=0, launch=None, user=None):
        """Attaches to a session and yields its events, until the caller closes the generator.

        Durable events have a `sequence` and come again until they are acknowledged.
        """
        query = owner(user) | {"after": str(after)} | ({"launch": launch} if launch else {})
        yield from self.stream(f"{of(session)}/events", query)

    def watch(self, all_users=False):
        """Yields the events of all sessions without attaching to one."""
        yield from self.stream("/v1/events", every(all_users))

    def acknowledge(self, session, sequence, launch=None, user=None):
        """Confirms all events up to a sequence number: move the files of finished downloads away before."""
        body = {"sequence": sequence} | ({"launch": launch} if launch else {})
        self.request("POST", f"{of(session)}/acknowledge", query=owner(user), body=body)

    def take(self, event, destination):
        """Moves the file of a `completed` download, and returns whether there was one: a repeated event has none.

        Nothing but a regular file of this user, without a second name, in the daemon's own directory is accepted. The daemon's
        files are private; the file gets the mode of any new file.
        """
        location = event.get("location")
        if location is None:
            return False
        if os.path.dirname(location) != self.service.get("staged") or os.path.basename(location) in ("", ".", ".."):
            raise NoDaemon(f"the daemon names a file outside its directory: '{location}'")
        try:
            status = os.lstat(location)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_nlink != 1:
            raise NoDaemon(f"the daemon names a file that is not this user's: '{location}'")
        os.chmod(location, mode_of_new_file())
        shutil.move(location, destination)
        return True

    # HTTP

    def request(self, method, path, query=None, body=None, timeout=REQUEST_TIMEOUT):
        """Sends a request and returns the JSON of the answer, or its text; `None` if it has neither."""
        with contextlib.closing(Connection(self.path, timeout)) as connection:
            return self.answer(self.send(connection, method, path, query, body))

    def stream(self, path, query):
        """Yields the JSON values of an answer that has one a line."""
        with contextlib.closing(Connection(self.path, STREAM_TIMEOUT)) as connection:
            response = self.send(connection, "GET", path, query, None)
            if response.status != 200:
                self.answer(response)
            while line := response.readline():
                yield json.loads(line)

    def send(self, connection, method, path, query, body):
        target = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        fields = {"Connection": "close"}
        if body is not None:
            fields["Content-Type"] = "application/json"
        connection.request(method, target, json.dumps(body) if body is not None else None, fields)
        return connection.getresponse()

    def answer(self, response):
        content = response.read()
        if response.status >= 400:
            refusal = json.loads(content)
            raise Refusal(response.status, refusal["code"], refusal["message"])
        if response.getheader("Content-Type", "").startswith("text/"):
            return content.decode()
        return json.loads(content) if content else None


def of(session):
    return f"/v1/sessions/{urllib.parse.quote(session, safe='')}"


def every(all_users):
    return {"all": "1"} if all_users else {}


def owner(user):
    return {} if user is None else {"user": str(user)}


def mode_of_new_file():
    """The mode of a file that this process creates. Unlike os.umask, it changes nothing for other threads."""
    fields = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return 0o666 & ~int(fields["Umask"], 8)


# The program


def session_of(file):
    """The session of a destination: the same at each run, so that the daemon recognises the download."""
    return f"stagepack-client/{hashlib.sha256(os.path.abspath(file).encode()).hexdigest()[:32]}"


def check_destination(file):
    """Raises an error if no file can be created there: before the download rather than after it."""
    folder = os.path.dirname(os.path.abspath(file))
    for number, is_fault in (
        (errno.ENOENT, not os.path.isdir(folder)),
        (errno.EISDIR, os.path.isdir(file)),
        (errno.EACCES, not os.access(folder, os.W_OK | os.X_OK)),
    ):
        if is_fault:
            raise OSError(number, os.strerror(number), file)


def download(client, url, file):
    """Downloads a file, and returns the exit status."""
    check_destination(file)
    session = session_of(file)
    client.put_session(session, {"sendsLaunchEvents": False})
    token = hashlib.sha256(url.encode()).hexdigest()
    [number] = client.create_tasks(session, [{"token": token, "kind": "download", "url": url, "description": file}])
    event = last_event(client, session, number)
    if event is None:
        print("another process has cancelled the download", file=sys.stderr)
        return 1
    if event["kind"] == "completed":
        client.take(event, file)
    client.acknowledge(session, event["sequence"])
    client.delete_session(session)
    if event["kind"] != "completed":
        print(f"{event['kind']}: {event.get('failure', {}).get('reason', url)}", file=sys.stderr)
        return 1
    return 0


def last_event(client, session, number):
    """Waits until a task ends, and returns its last event; `None` if another process has removed the session."""
    with contextlib.closing(client.events(session)) as events:
        for event in events:
            if event["kind"] == "progress" and "bytesReceived" in event:
                print(f"{event['bytesReceived']} of {event.get('bytesExpected', 'an unknown number of')} bytes", file=sys.stderr)
            if event["kind"] == "changed":
                for reason in event.get("pendingReasons", []):
                    print(f"waits: {reason['reason']} {reason.get('problem', '')}".rstrip(), file=sys.stderr)
            if event.get("task") == number and event["kind"] in FINAL_EVENTS:
                return event
    try:
        client.task(number)
    except Refusal as refusal:
        if refusal.status == 404:
            return None
        raise
    except (FileNotFoundError, ConnectionError):
        raise NoDaemon("the daemon has ended; it continues when it is started again") from None
    raise NoDaemon("the daemon has closed the connection, and continues; run the same command again to wait for it")


def list_tasks(client):
    for task in client.tasks():
        size = task.get("bytesExpected", "?")
        print(f"{task['id']}  {task['state']}  {task['bytesReceived']} of {size} bytes  {task['request']['url']}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("download", help="download a file")
    command.add_argument("url")
    command.add_argument("file")
    commands.add_parser("list", help="print the tasks of this user")
    commands.add_parser("cancel", help="cancel the download of a file").add_argument("file")
    arguments = parser.parse_args()
    try:
        client = Client()
        if arguments.command == "download":
            return download(client, arguments.url, arguments.file)
        if arguments.command == "list":
            return list_tasks(client)
        client.delete_session(session_of(arguments.file))
        return 0
    except (Refusal, NoDaemon, OSError, http.client.HTTPException) as error:
        print(f"stagepack_client.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("the daemon continues; run the same command again to wait for it", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
