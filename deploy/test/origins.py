"""Origins on port 80 of the loopback interface: one that serves packs correctly, and faulty ones."""

import contextlib
import os
import pathlib
import socket
import subprocess
import threading
import time

from machine import WAIT_LIMIT, Failure

LOCATIONS = pathlib.Path(__file__).resolve().parent.parent / "server/nginx/stagepack-locations.conf"
ADDRESS = ("127.0.0.1", 80)


def start_nginx(directory, server, address):
    """Starts nginx with a server that has the given directives, waits until it accepts connections at `address`, and returns the process."""
    directory = pathlib.Path(directory)
    kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    temporary = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"""
        daemon off; user root; pid {directory}/pid; error_log {directory}/error.log; events {{ }}
        http {{
            {temporary}
            access_log {directory}/access.log;
            server {{ listen {address[0]}:{address[1]}{server} }}
        }}
        """,
        "utf-8",
    )
    process = subprocess.Popen(["nginx", "-q", "-c", configuration])
    deadline = time.monotonic() + WAIT_LIMIT
    try:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(address, 1):
                return process
            time.sleep(0.1)
        raise Failure(f"nginx did not start: its status is {process.poll()}")
    except BaseException:
        process.kill()
        process.wait()
        raise


@contextlib.contextmanager
def nginx(directory, serving, rules=""):
    """Serves a directory by nginx, with the rules of deploy/server or the given ones."""
    process = start_nginx(directory, f"; root {serving}; {rules or f'include {LOCATIONS};'}", ADDRESS)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def slow(directory, serving):
    """Serves the manifest at full speed, and archives at 150 bytes a second."""
    rate = "if ($uri ~ ^/packs/) { set $limit_rate 150; }"
    return nginx(directory, serving, f"{rate} include {LOCATIONS};")


def unavailable(directory, serving):
    """Responds with status 503 to all requests."""
    return nginx(directory, serving, "return 503;")


def login_page(directory, serving):
    """Responds with an HTML page to all requests, as a captive portal does."""
    return nginx(directory, serving, "default_type text/html; return 200 '<html>Please log in</html>';")


def rubbish_manifest(directory, serving):
    """Responds with a truncated manifest to all requests."""
    return nginx(directory, serving, "default_type application/json; return 200 '{\"manifestVersion\": 1, \"app';")


def rubbish_archives(directory, serving):
    """Serves archives that have the right size and random content."""
    root = pathlib.Path(directory) / "spoiled"
    (root / "packs").mkdir(parents=True)
    for path in [*serving.glob("*.json"), *serving.glob("packs/*")]:
        content = path.read_bytes()
        if path.parent.name == "packs":
            content = os.urandom(len(content))
        (root / path.relative_to(serving)).write_bytes(content)
    return nginx(directory, root)


@contextlib.contextmanager
def absent(directory, serving):
    """Starts no server: connections are refused."""
    yield


@contextlib.contextmanager
def listening(answer):
    """Accepts connections, and calls `answer` with each."""
    with socket.create_server(ADDRESS, backlog=64) as server:
        held = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    with contextlib.suppress(OSError):
                        answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def silent(directory, serving):
    """Accepts connections and sends nothing."""
    return listening(lambda connection: None)


def no_http(directory, serving):
    """Accepts connections and sends random bytes that are not HTTP."""
    return listening(lambda connection: (connection.sendall(os.urandom(4096)), connection.close()))
