"""Repositories that python-tuf's library makes, a server for them, and the client that reads them."""

import copy
import datetime
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import threading
import urllib.parse

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from securesystemslib.formats import encode_canonical
from securesystemslib.signer import CryptoSigner, Signature, Signer, SSlibKey
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.api.serialization.json import JSONSerializer

NOW = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
TOP = ("root", "targets", "snapshot", "timestamp")
repositories = {}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves all repositories: /NAME/metadata/FILE and /NAME/targets/FILE."""

    def do_GET(self):
        name, folder, file = self.path.lstrip("/").split("/", 2)
        repository = repositories[name]
        if folder == "metadata":
            repository.requests.append(file)
        else:
            file = urllib.parse.unquote(file)
        content = repository.files.get(f"{folder}/{file}")
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def identify(key):
    """Sets the identifier of a key to its digest, and returns the key."""
    key.keyid = hashlib.sha256(encode_canonical(key.to_dict()).encode()).hexdigest()
    return key


class LongECDSASigner(Signer):
    """A key on the curve P-384, which the library can verify with, but not sign with."""

    def __init__(self):
        self.private = ec.generate_private_key(ec.SECP384R1())
        pem = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key = identify(SSlibKey("", "ecdsa", "ecdsa-sha2-nistp384", {"public": pem.decode()}))

    @property
    def public_key(self):
        return self.key

    @classmethod
    def from_priv_key_uri(cls, *arguments):
        raise NotImplementedError

    def sign(self, payload):
        return Signature(self.key.keyid, self.private.sign(payload, ec.ECDSA(hashes.SHA384())).hex())


def generate(kind="ed25519"):
    """Returns a new key."""
    return {
        "ed25519": CryptoSigner.generate_ed25519,
        "ecdsa-sha2-nistp256": CryptoSigner.generate_ecdsa,
        "ecdsa-sha2-nistp384": LongECDSASigner,
        "rsassa-pss-sha256": CryptoSigner.generate_rsa,
    }[kind]()


class Repository:
    """Metadata whose roles a test case changes, the files that were published, and a client that follows them."""

    # The client's program, and the folder for its files.
    program, work = None, None

    def __init__(self, kind="ed25519", consistent=True, digests=False):
        self.name = f"r{len(repositories)}"
        repositories[self.name] = self
        self.kind, self.digests = kind, digests
        self.files, self.requests, self.latest = {}, [], {}
        self.signers = {role: [generate(kind)] for role in TOP}
        expiry = NOW + datetime.timedelta(days=30)
        self.root = Root(expires=expiry, consistent_snapshot=consistent)
        self.snapshot = Snapshot(expires=expiry)
        self.timestamp = Timestamp(expires=expiry)
        self.targets = {"targets": Targets(expires=expiry)}
        for role in TOP:
            self.root.add_key(self.signers[role][0].public_key, role)
            self.signed(role).version = 0
        self.publish(*TOP)
        self.home = self.work / self.name
        (self.home / "metadata").mkdir(parents=True)
        (self.home / "targets").mkdir()

    def signed(self, role):
        top = {"root": self.root, "snapshot": self.snapshot, "timestamp": self.timestamp}
        return top.get(role) or self.targets[role]

    def sign(self, role, signers=None):
        """Returns the file of a role in its current state, signed."""
        metadata = Metadata(copy.deepcopy(self.signed(role)))
        for signer in self.signers[role] if signers is None else signers:
            metadata.sign(signer, append=True)
        return metadata.to_bytes(JSONSerializer(compact=True))

    def publish(self, *roles, raising=True):
        """Publishes new versions of roles; snapshot and timestamp list those that are published before them."""
        for role in roles:
            signed = self.signed(role)
            signed.version += raising
            self.put(role, self.sign(role))
            if role == "snapshot":
                self.timestamp.snapshot_meta = self.describe(role)
            elif role in self.targets:
                self.snapshot.meta[f"{role}.json"] = self.describe(role)

    def describe(self, role):
        file = MetaFile(self.signed(role).version)
        if self.digests:
            content = self.latest[role]
            file.length = len(content)
            file.hashes = {"sha256": hashlib.sha256(content).hexdigest()}
        return file

    def path(self, role):
        name = urllib.parse.quote(role, "")
        numbered = role == "root" or (role != "timestamp" and self.root.consistent_snapshot)
        return f"metadata/{self.signed(role).version}.{name}.json" if numbered else f"metadata/{name}.json"

    def put(self, role, content):
        """Serves a file as the current version of a role."""
        self.latest[role] = self.files[self.path(role)] = content

    def edit(self, role, change):
        """Changes the published file as JSON, without signing it again."""
        file = json.loads(self.latest[role])
        change(file)
        self.put(role, json.dumps(file).encode())

    def set_keys(self, role, keys, threshold, signers):
        self.root.roles[role].keyids.clear()
        for key in keys:
            self.root.add_key(key.public_key, role)
        self.root.roles[role].threshold = threshold
        self.signers[role] = signers

    def delegate(self, delegator, role, paths=None, terminating=False, prefixes=None):
        """Delegates to a role, and creates the role with a key of its own if it does not exist."""
        if role not in self.targets:
            self.targets[role] = Targets(expires=NOW + datetime.timedelta(days=30))
            self.targets[role].version = 0
            self.signers[role] = [generate(self.kind)]
        parent = self.targets[delegator]
        parent.delegations = parent.delegations or Delegations({}, {})
        paths = None if prefixes else (paths or ["*"])
        parent.delegations.roles[role] = DelegatedRole(role, [], 1, terminating, paths, prefixes)
        parent.add_key(self.signers[role][0].public_key, role)

    def add(self, path, content, role="targets", functions=("sha256",), serving=None):
        """Adds a target, and serves `serving` instead of its content if given."""
        file = TargetFile.from_data(path, content, list(functions))
        self.targets[role].targets[path] = file
        folder, slash, name = path.rpartition("/")
        for digest in file.hashes.values():
            numbered = f"{folder}{slash}{digest}.{name}" if self.root.consistent_snapshot else path
            self.files[f"targets/{numbered}"] = content if serving is None else serving

    # The client

    def url(self, folder):
        return f"http://127.0.0.1:{server.server_port}/{self.name}/{folder}"

    def run(self, *arguments, days=None):
        command = [self.program, "--metadata-dir", str(self.home / "metadata"), *arguments]
        if days is not None:
            # Sets the clock of the client and its child processes.
            command = ["faketime", str(NOW + datetime.timedelta(days=days)).split("+")[0], *command]
        self.requests.clear()
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}, timeout=600)
        self.error = ended.stderr
        assert ended.returncode in (0, 1), ended
        return ended.returncode == 0

    def start(self, root=None):
        """Initialises the client with a root: by default, the first one that was published."""
        path = self.home / "trusted.json"
        path.write_bytes(root or self.files["metadata/1.root.json"])
        return self.run("init", str(path))

    def refresh(self, days=None):
        return self.run("--metadata-url", self.url("metadata"), "refresh", days=days)

    def download(self, *names):
        words = [word for name in names for word in ("--target-name", name)]
        return self.run("--metadata-url", self.url("metadata"), *words, "--target-base-url", self.url("targets"),
                        "--target-dir", str(self.home / "targets"), "download")

    @property
    def trusted(self):
        """Returns the versions of the roles that the client stores."""
        return {path.stem: json.loads(path.read_bytes())["signed"]["version"] for path in (self.home / "metadata").iterdir()}

    @property
    def held(self):
        """Returns the contents of the targets that the client stores."""
        return sorted(path.read_bytes() for path in (self.home / "targets").iterdir())


def started(*arguments, **options):
    """Returns a repository whose client has its first root, and no other metadata yet."""
    repository = Repository(*arguments, **options)
    assert repository.start()
    return repository


def refreshed(*arguments, **options):
    """Returns a repository whose client has read its first version."""
    repository = started(*arguments, **options)
    assert repository.refresh(), repository.error
    return repository


def expect(found, wanted):
    assert found == wanted, f"expected {wanted}, found {found}"
