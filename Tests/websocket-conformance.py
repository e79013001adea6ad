"""Tests the WebSocket client and server against other implementations; started by Scripts/websocket-conformance."""

import asyncio
import collections
import pathlib
import signal
import ssl
import subprocess
import sys
import time

import kosoku
import websockets

programs, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
CLIENT = programs / "websocket-conformance-client"
CORE = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"]
LIMITS = ["9.*"]
# Each group of compression cases has 18, of a thousand messages each, of 16 bytes to 128 KiB: 16 GB in all. By default, only
# those with messages of at most 1 KiB run.
ALL = sys.argv[3:] == ["all"]
GROUPS = [f"12.{number}" for number in range(1, 6)] + [f"13.{number}" for number in range(1, 8)]
# In these groups, the server requires that the client uses no context takeover, and accepts no offer without that parameter.
FORGETFUL = ["13.2", "13.5", "13.6", "13.7"]


def compression(groups):
    """Returns the cases of groups, and their number."""
    cases = range(1, 19 if ALL else 5)
    return [f"{group}.{case}" for group in groups for case in cases], len(cases) * len(groups)


# Only the proxy resolves this name: a client uses no proxy for addresses of its own machine.
NAME = "echo.example"
# The seconds that websockets waits for a peer, by default 10 and 20: too few on a machine with much other work.
TIMEOUTS = {"open_timeout": 120, "ping_timeout": 120, "close_timeout": 120}
faults = []


def report(title, results, expected, started):
    """Prints the numbers of cases by result, and adds those that failed to `faults`."""
    counts = collections.Counter(result.behavior.value for result in results)
    closes = collections.Counter(result.behavior_close.value for result in results)
    print(f"{title}: {len(results)} cases in {time.monotonic() - started:.1f} s: {dict(counts)}; closing: {dict(closes)}", flush=True)
    if len(results) != expected:
        faults.append(f"{title}: expected {expected} cases, found {len(results)}")
    for result in results:
        # The outcome of an informational case is left open by the standard.
        bad = result.behavior.value not in ("OK", "INFORMATIONAL")
        if bad or result.behavior_close.value not in ("OK", "INFORMATIONAL"):
            faults.append(
                f"{title}: {result.case_id}: {result.behavior.value}, {result.behavior_close.value}: "
                f"{result.result} {result.result_close}"
            )


async def server_cases(url, title, cases, expected):
    started = time.monotonic()
    try:
        results = await kosoku.run_fuzzingclient(url, cases)
    except kosoku.FailureError as failure:
        results = failure.results
    report(title, results, expected, started)


async def client_cases(title, cases, expected, *options):
    started = time.monotonic()
    async with kosoku.run_fuzzingserver(cases, port=0) as server:
        client = await asyncio.create_subprocess_exec(
            CLIENT, "autobahn", f"ws://127.0.0.1:{server.port}", *options, stdout=subprocess.DEVNULL
        )
        try:
            results = await asyncio.wait_for(server.get_result(), 7200)
        except kosoku.FailureError as failure:
            results = failure.results
        if await client.wait() != 0:
            faults.append(f"{title}: the client ended with status {client.returncode}")
    report(title, results, expected, started)


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def run_client(title, *arguments):
    client = await asyncio.create_subprocess_exec(CLIENT, "echo", *arguments, stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(client.communicate(), 600)
    print(f"{title}: status {client.returncode}, {output.decode().strip()}")
    if client.returncode != 0:
        faults.append(f"{title}: the client ended with status {client.returncode}")


class Proxy:
    """A proxy that tunnels all requests to a port of this machine, regardless of the requested name."""

    def __init__(self, port):
        self.port, self.requests = port, []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head.split(b"\r\n")[0].decode())
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self.copy(reader, other_writer), self.copy(other_reader, writer))

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


async def interoperate_as_client():
    """Tests the client against servers of websockets: with and without TLS, directly and through the proxy."""
    certificate = work / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-keyout", work / "key.pem", "-out", certificate, "-subj", f"/CN={NAME}"]
        + ["-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, work / "key.pem")
    for scheme, tls in (("ws", None), ("wss", context)):
        async with websockets.serve(echo, "127.0.0.1", 0, ssl=tls, **TIMEOUTS) as server:
            port = server.sockets[0].getsockname()[1]
            trust = ["--authorities", str(certificate)] if tls else []
            await run_client(f"client to websockets, {scheme}", f"{scheme}://127.0.0.1:{port}/", *trust)
            async with Proxy(port) as proxy:
                url = f"{scheme}://{NAME}:{port}/"
                await run_client(f"client to websockets, {scheme}, proxy", url, "--proxy", proxy.url, *trust)
                if proxy.requests != [f"CONNECT {NAME}:{port} HTTP/1.1"]:
                    faults.append(f"the proxy was asked for {proxy.requests}")
            if tls:
                # A client that does not trust the certificate's authority must refuse the server.
                client = await asyncio.create_subprocess_exec(
                    CLIENT, "echo", f"wss://127.0.0.1:{port}/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                if await client.wait() == 0:
                    faults.append("a certificate that nothing vouches for was accepted")


async def interoperate_as_server(url):
    """Tests the echo server with the client of websockets, with compression and without."""
    for compression in ("deflate", None):
        async with websockets.connect(url, compression=compression, max_size=None, proxy=None, **TIMEOUTS) as connection:
            await (await connection.ping())
            messages = ["", "a text with ü, € and 𝄞", b"", "text " * 300_000, bytes(range(256)) * 4096]
            for message in messages:
                await connection.send(message)
                if await connection.recv() != message:
                    faults.append(f"websockets, {compression}: a message came back as another one")
            await connection.close(4000, "done")
            if connection.close_code != 4000:
                faults.append(f"websockets, {compression}: closed with {connection.close_code}")
        print(f"websockets to the echo, compression {compression}: {len(messages)} messages")


async def main():
    (work / "tree").mkdir(parents=True)
    server = await asyncio.create_subprocess_exec(
        programs / "stagepack", "serve", work / "tree", "--quiet", stdout=subprocess.PIPE
    )
    try:
        base = (await server.stdout.readline()).decode().strip()
        url = base.replace("http://", "ws://") + ".stagepack/echo"
        await interoperate_as_server(url)
        await interoperate_as_client()
        await server_cases(url, "server, core", CORE, 247)
        await server_cases(url, "server, limits", LIMITS, 54)
        await server_cases(url, "server, compression", *compression(GROUPS))
        await client_cases("client, core", CORE, 247)
        await client_cases("client, limits", LIMITS, 54)
        rest = [group for group in GROUPS if group not in FORGETFUL]
        await client_cases("client, compression", *compression(rest))
        title = "client, compression without context takeover"
        await client_cases(title, *compression(FORGETFUL), "--without-context-takeover")
    finally:
        server.terminate()
        await server.wait()


# Turns SIGTERM into an exit, so that the programs that run are ended.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
asyncio.run(main())
print("\n".join(faults) or "everything conforms")
sys.exit(1 if faults else 0)
