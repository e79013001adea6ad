"""Tests that python-tuf's client can read repositories that stagepack signs; started by Scripts/tuf-interoperation."""

import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import threading

from tuf.api.exceptions import DownloadError, RepositoryError
from tuf.ngclient import Updater

stagepack, work = sys.argv[1], pathlib.Path(sys.argv[2])
checks = 0


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


class Repository:
    """A publisher's directory, a server for it, and a client that stores the metadata that it trusts."""

    def __init__(self, name):
        self.home = work / name
        self.site = self.home / "site"
        self.site.mkdir(parents=True)
        self.revision = 0
        handler = functools.partial(QuietHandler, directory=self.site)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.write()

    def run(self, *arguments, status=0):
        ended = subprocess.run([stagepack, *arguments], cwd=self.home, capture_output=True, text=True)
        assert ended.returncode == status, (arguments, ended)
        return ended.stdout

    def key(self, name, kind="ed25519"):
        self.run("keys", "generate", name, "--unencrypted", "--type", kind)
        return json.loads(self.run("keys", "show", name, "--json"))["keys"][0]["id"]

    def write(self):
        self.revision += 1
        manifest = {"manifestVersion": 1, "application": "net.example", "revision": self.revision, "packs": []}
        (self.site / "manifest.json").write_text(json.dumps(manifest))

    def check(self, revision=None):
        """Updates the client from its stored metadata, and expects that it downloads the manifest."""
        global checks
        client = self.home / "client"
        if not client.exists():
            client.mkdir()
            shutil.copy(self.site / "metadata" / "1.root.json", client / "root.json")
        base = f"http://127.0.0.1:{self.server.server_port}/"
        target = client / "downloads"
        target.mkdir(exist_ok=True)
        updater = Updater(str(client), base + "metadata/", str(target), base, bootstrap=None)
        updater.refresh()
        info = updater.get_targetinfo("manifest.json")
        path = updater.download_target(info)
        found = json.loads(pathlib.Path(path).read_text())["revision"]
        assert found == (revision or self.revision), (found, self.revision)
        checks += 1


def main():
    for kind in ["ed25519", "ecdsa-p256", "ecdsa-p384", "rsa"]:
        repository = Repository(kind)
        repository.key("k.pem", kind)
        repository.run("keys", "init", "site/manifest.json", "--key", "k.pem")
        repository.check()
        repository.write()
        repository.check(revision=1)
        repository.run("sign", "site/manifest.json", "--key", "k.pem")
        repository.check()
        repository.run("refresh", "site/manifest.json", "--key", "k.pem", "--force")
        repository.check()
        old = json.loads(repository.run("keys", "show", "k.pem", "--json"))["keys"][0]["id"]
        repository.key("n.pem")
        repository.run("rotate", "site/manifest.json", "--key", "k.pem", "--add", "n.pem", "--remove", old)
        repository.check()

    repository = Repository("separate")
    ids = {name: repository.key(name) for name in ["a.pem", "b.pem", "c.pem", "t.pem", "o.pem", "p.pem"]}
    roles = [f"root={name}" for name in ["a.pem", "b.pem", "c.pem"]]
    roles += ["targets=t.pem", "snapshot=o.pem", "timestamp=o.pem"]
    options = [word for role in roles for word in ("--role", role)]
    repository.run("keys", "init", "site/manifest.json", *options, "--threshold", "root=2")
    repository.check()
    for role in ["timestamp", "snapshot", "targets"]:
        holder = "t.pem" if role == "targets" else "o.pem"
        repository.run("rotate", "site/manifest.json", "--key", "a.pem", "--key", holder,
                       "--add", f"{role}=p.pem", "--remove", f"{role}={ids[holder]}")
        repository.check()
        others = ["--key", "b.pem", "--key", "t.pem", "--key", "o.pem", "--key", "p.pem"]
        repository.run("sign", "site/manifest.json", "--root", *others)
        repository.check()
    repository.write()
    repository.run("sign", "site/manifest.json", "--key", "p.pem")
    repository.check()
    assert (repository.site / "metadata" / "4.root.json").exists()

    # Proves that the client verifies: it must refuse a changed timestamp.
    timestamp = repository.site / "metadata" / "timestamp.json"
    timestamp.write_text(timestamp.read_text().replace('"expires":"2', '"expires":"3'))
    try:
        repository.check()
    except (RepositoryError, DownloadError):
        print(f"python-tuf verified {checks} states of 5 repositories, and refused a damaged one")
        return
    sys.exit("python-tuf accepted a damaged timestamp")


main()
