"""The programs, packs in three versions, and an origin that serves them."""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import socket
import stat
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The time in seconds after which a command of a scenario counts as hanging.
HANGS = 120


class Failure(Exception):
    """A check has failed."""


def expect(is_so, otherwise):
    """Fails the check unless `is_so` is true."""
    if not is_so:
        raise Failure(otherwise)


class Programs:
    """The programs under test, with a fixed environment."""

    def __init__(self, directory, home):
        self.directory = pathlib.Path(directory).resolve()
        self.stagepack, self.stagepackd = self.directory / "stagepack", self.directory / "stagepackd"
        if not self.stagepackd.is_symlink():
            # The daemon is the same program by another name.
            self.stagepackd.unlink(missing_ok=True)
            self.stagepackd.symlink_to(self.stagepack.name)
        home.mkdir(exist_ok=True)
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(home),
            "STAGEPACK_SOCKET": "",
            "no_proxy": "*",
        }

    def run(self, *arguments, wrapper=(), directory=None, within=HANGS):
        """Runs the command, and returns its status and output."""
        command = [*map(str, wrapper), str(self.stagepack), *map(str, arguments)]
        try:
            return subprocess.run(
                command, env=self.environment, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=within)
        except subprocess.TimeoutExpired:
            raise Failure(f"'stagepack {'  '.join(map(str, arguments))}' hangs: it ran for {within} s") from None

    def succeed(self, *arguments, **options):
        """Runs the command, expects status 0, and returns its output."""
        done = self.run(*arguments, **options)
        expect(
            done.returncode == 0,
            f"'stagepack {' '.join(map(str, arguments))}' ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def tree(top):
    """Returns the kind, the mode and a digest of the content of each path in a directory."""
    found = {}
    for directory, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = pathlib.Path(directory, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                content = None
            mode = None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
            found[str(path.relative_to(top))] = (stat.S_IFMT(status.st_mode), mode, content)
    return found


PACKS = {
    "aurora": {"essential": {"installationEventTypes": ["firstInstallation", "subsequentUpdate"]}},
    "mountains": {"prefetch": {"installationEventTypes": ["firstInstallation", "subsequentUpdate"]}},
    "oceans": {"onDemand": {}},
    "levels": {"onDemand": {}},
}
VERSIONS = (1, 2, 3)
INDEXED = "levels"


class Site:
    """A publisher's site: a manifest for each version, and the trees from which the packs are made."""

    def __init__(self, programs, directory):
        self.programs, self.directory = programs, pathlib.Path(directory)
        self.site = self.directory / "site"
        self.site.mkdir(parents=True)
        self.trees = {}
        before = None
        for version in VERSIONS:
            manifest = self.site / f"manifest-{version}.json"
            if before is None:
                programs.succeed("manifest", "create", "--application", "net.example.torture", "-o", manifest)
            else:
                shutil.copy(before, manifest)
            for pack, policy in PACKS.items():
                self.add(manifest, pack, version, policy)
            before = manifest

    def write(self, top, pack, version):
        """Writes a tree with files that stay, files that change, an executable, folders and a link."""
        for number in range(12):
            changes = number % 3 == 0
            chance = random.Random(f"{pack} {number} {version if changes else 0}")
            folder = top / f"part-{number % 4}" if number % 2 else top
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"file {number}.bin"
            size = chance.choice([0, 100, 5000, 40000, 90000])
            file.write_bytes(chance.randbytes(size // 2) + bytes(size - size // 2))
            file.chmod(0o755 if number == 5 else 0o644)
        (top / "version").write_text(f"{pack} {version}\n")
        (top / "version").chmod(0o644)
        (top / "link").symlink_to("part-1/file 1.bin")

    def add(self, manifest, pack, version, policy):
        top = self.directory / "trees" / f"{pack}-{version}"
        self.write(top, pack, version)
        # Packs store all directories with the same permissions.
        for folder in [top, *filter(os.path.isdir, top.iterdir())]:
            folder.chmod(0o755)
        self.trees[pack, version] = tree(top)
        recipe = self.directory / f"{pack}-{version}.recipe.json"
        recipe.write_text(json.dumps({
            "assetPackID": pack, "downloadPolicy": policy, "sourceRoot": str(top),
            "fileSelectors": [{"directory": "."}]}))
        if pack == INDEXED:
            base = ["--base", self.site / f"manifest-{version - 1}.json"] if version > 1 else []
            report = self.programs.succeed("package", recipe, "--indexed", "--json", "-o", self.site, *base)
            archive = json.loads(report)["file"]
        else:
            archive = self.site / f"packs/{pack}-{version}.{'tar.gz' if pack == 'oceans' else 'tar.zst'}"
            archive.parent.mkdir(exist_ok=True)
            self.programs.succeed("package", recipe, "--quiet", "-o", archive)
        self.programs.succeed("manifest", "add", manifest, archive, "--recipe", recipe, "--pack-version", version)


def free_ports(number):
    """Returns free ports of loopback. They are below the range from which Linux gives ports to connections by default."""
    ports = []
    with contextlib.ExitStack() as stack:
        while len(ports) < number:
            listener = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", random.randrange(10_000, 32_768)))
                ports.append(listener.getsockname()[1])
    return ports


@contextlib.contextmanager
def served(programs, directory, port, *options):
    """Serves a directory with 'stagepack serve' until the scope ends; yields its URL."""
    process = subprocess.Popen(
        [str(programs.stagepack), "serve", "--port", str(port), *options, str(directory)], env=programs.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = process.stdout.readline().strip()
        expect(url, "the origin did not start")
        yield url.rstrip("/")
    finally:
        process.kill()
        process.wait()


def wait_until(what, condition, within=60):
    """Waits until a condition is true, and returns its value."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise Failure(f"{what}: not so within {within} s")
