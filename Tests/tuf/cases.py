"""Tests that a client reads valid repositories of python-tuf's library, and refuses invalid ones; started by Scripts/tuf-interoperation.

    cases.py CONFORMANCE_CLIENT STAGEPACK WORK

CONFORMANCE_CLIENT implements the protocol of the public suite tuf-conformance. The cases are those of the suite, with their names, except
its stored repositories; and further cases, among them some in which STAGEPACK stages from repositories of each kind.
Prints each failed case, and the number of passed ones.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import traceback
import urllib.parse

from repository import NOW, TOP, Repository, generate, identify

Repository.program, Repository.work = sys.argv[1], pathlib.Path(sys.argv[3])
STAGEPACK = sys.argv[2]
SPARE = [generate() for _ in range(10)]
REFRESHED = ["2.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"]
KINDS = ["ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "rsassa-pss-sha256"]
cases = []


def case(*rows):
    """Registers a function as a case; with rows, as one case for each row, whose first element is its name."""

    def add(function):
        for row in rows or [()]:
            name = f"{function.__name__}[{row[0]}]" if row else function.__name__
            cases.append((name, lambda row=row: function(*row[1:])))
        return function

    return add


def started(*arguments, **options):
    """Returns a repository whose client has its first root, and no other metadata yet."""
    repository = Repository(*arguments, **options)
    assert repository.start()
    return repository


def refreshed(*arguments, **options):
    """Returns a repository whose client has read its first version."""
    repository = started(*arguments, **options)
    accepts(repository)
    return repository


def accepts(repository, **versions):
    assert repository.refresh(), repository.error
    expect({role: repository.trusted[role] for role in versions}, versions)


def refuses(repository, **versions):
    """Expects that the client refuses, and keeps these versions of roles; `None` means that it has none."""
    assert not repository.refresh(), "it was accepted"
    expect({role: repository.trusted.get(role) for role in versions}, versions)


def expect(found, wanted):
    assert found == wanted, f"expected {wanted}, found {found}"


def later(days):
    return NOW + datetime.timedelta(days=days)


# Refreshing


@case()
def basic_refresh_requests():
    repository = started()
    accepts(repository, root=1, timestamp=1, snapshot=1, targets=1)
    expect(repository.requests, REFRESHED)
    accepts(repository)
    expect(repository.requests, REFRESHED[:2])


@case(*[(role, role) for role in TOP])
def metadata_bytes_match(role):
    repository = Repository()
    content = repository.latest[role] + b" \n"
    repository.put(role, content)
    assert repository.start()
    accepts(repository)
    expect((repository.home / "metadata" / f"{role}.json").read_bytes(), content)


@case()
def implicit_refresh():
    repository = started()
    repository.add("file", b"content")
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.download("file"), repository.error
    expect(repository.requests[:2], REFRESHED[:2])


@case(
    ("no version", lambda file: file["signed"].pop("version")),
    ("another signature", lambda file: file["signatures"][0].update(sig="00" * 64)),
    ("another type", lambda file: file["signed"].update(_type="timestamp")),
)
def invalid_initial_root(change):
    repository = Repository()
    root = json.loads(repository.latest["root"])
    change(root)
    repository.start(json.dumps(root).encode())
    assert not repository.refresh()
    expect(repository.requests, [])


KEPT = {
    "root": {"root": 1, "timestamp": None},
    "timestamp": {"root": 2, "timestamp": None},
    "snapshot": {"root": 2, "timestamp": 2, "snapshot": None},
    "targets": {"root": 2, "timestamp": 2, "snapshot": 2, "targets": None},
}


@case(*[(role, role) for role in TOP])
def unsigned_metadata(role):
    repository = started()
    repository.signers[role] = []
    repository.publish(*TOP)
    refuses(repository, **KEPT[role])


@case(*[(role, role) for role in ["root", "snapshot", "targets"]])
def url_and_metadata_version_mismatch(role):
    repository = started()
    repository.publish(*TOP)
    path = repository.path(role)
    repository.signed(role).version += 1
    repository.files[path] = repository.sign(role)
    refuses(repository, **KEPT[role])


@case(*[(role, role) for role in TOP])
def incorrect_metadata_type(role):
    repository = started()
    repository.publish(*TOP)
    other = "snapshot" if role == "timestamp" else "timestamp"
    file = json.loads(repository.latest[other])
    content = json.dumps({"signatures": [], "signed": {**file["signed"], "version": 2}}).encode()
    repository.put(role, content)
    refuses(repository, **KEPT[role])


@case()
def timestamp_content_changes():
    repository = refreshed()
    repository.timestamp.snapshot_meta.version = 100
    repository.put("timestamp", repository.sign("timestamp"))
    assert repository.refresh(), repository.error
    expect(repository.requests, REFRESHED[:2])
    kept = json.loads((repository.home / "metadata" / "timestamp.json").read_text())
    expect(kept["signed"]["meta"]["snapshot.json"]["version"], 1)


@case()
def basic_metadata_hash_support():
    repository = started(digests=True)
    repository.publish("targets", "snapshot", "timestamp")
    accepts(repository, targets=2, snapshot=2)


@case(("targets", "targets"), ("snapshot", "snapshot"))
def hash_mismatch(role):
    repository = started(digests=True)
    repository.publish(*TOP)
    # The changed metadata has the same length, and valid signatures.
    signed = repository.signed(role)
    signed.expires += datetime.timedelta(days=1)
    repository.put(role, repository.sign(role))
    refuses(repository, **KEPT[role])


@case()
def custom_fields():
    repository = refreshed()
    repository.root.unrecognized_fields["custom"] = {"a": [1, None, True]}
    repository.root.roles["root"].unrecognized_fields["another"] = "value"
    repository.timestamp.unrecognized_fields["custom"] = "\u00e9\"\\\n"
    repository.publish("root", "timestamp")
    accepts(repository, root=2, timestamp=2)


@case()
def deprecated_keyid_hash_algorithms():
    repository = refreshed()
    signer = generate()
    # The identifier is a digest of the whole key, which includes unknown members.
    signer.public_key.unrecognized_fields["keyid_hash_algorithms"] = ["md5"]
    identify(signer.public_key)
    repository.set_keys("timestamp", [signer], 1, [signer])
    repository.publish("root", "timestamp")
    accepts(repository, root=2, timestamp=2)


@case(*[(role, role) for role in ["timestamp", "snapshot", "targets"]])
def not_found(role):
    repository = started()
    repository.publish(*TOP)
    del repository.files[repository.path(role)]
    refuses(repository, **KEPT[role])


# Expiry


@case(*[(role, role) for role in TOP])
def expired(role):
    repository = started()
    repository.signed(role).expires = later(-1)
    repository.publish(*TOP)
    refuses(repository, **({"root": 2, "timestamp": None} if role == "root" else KEPT[role]))


@case(("ahead", 365, False), ("at the end", 29, True), ("behind", -365, True))
def faketime(days, is_accepted):
    repository = started()
    expect(repository.refresh(days=days), is_accepted)


@case()
def expired_local_root():
    repository = started()
    repository.root.expires = later(7)
    repository.publish("root")
    accepts(repository, root=2)
    repository.root.expires = later(29)
    repository.publish("root")
    assert repository.refresh(days=18), repository.error
    expect(repository.trusted["root"], 3)


@case(("timestamp", "timestamp"), ("snapshot", "snapshot"), ("targets", "targets"))
def expired_local_metadata(role):
    repository = started()
    repository.signed(role).expires = later(7)
    repository.publish("targets", "snapshot", "timestamp")
    accepts(repository, **{role: 2})
    repository.signed(role).expires = later(29)
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.refresh(days=18), repository.error
    expect(repository.trusted[role], 3)


# Keys


@case(*[(kind, kind) for kind in KINDS])
def keytype_and_scheme(kind):
    repository = refreshed(kind)
    repository.publish(*TOP)
    accepts(repository, root=2, timestamp=2, snapshot=2, targets=2)
    repository.publish("timestamp")
    signature = json.loads(repository.latest["timestamp"])["signatures"][0]["sig"]
    last = f"{int(signature[-1], 16) ^ 1:x}"
    repository.edit("timestamp", lambda file: file["signatures"][0].update(sig=signature[:-1] + last))
    refuses(repository, timestamp=2)


@case(("none of two", 0), ("one of two", 1))
def snapshot_does_not_meet_threshold(count):
    repository = started()
    repository.set_keys("snapshot", SPARE[:2], 2, SPARE[:count])
    repository.publish(*TOP)
    refuses(repository, **KEPT["snapshot"])


@case()
def snapshot_has_too_few_keys():
    repository = started()
    repository.set_keys("snapshot", SPARE[:2], 3, SPARE[:2])
    repository.publish(*TOP)
    refuses(repository, snapshot=None)


@case()
def duplicate_keys():
    repository = started()
    repository.set_keys("snapshot", SPARE[:1], 2, SPARE[:1])
    repository.root.roles["snapshot"].keyids *= 9
    repository.publish(*TOP)
    repository.edit("snapshot", lambda file: file.update(signatures=file["signatures"] * 9))
    refuses(repository, snapshot=None)


@case()
def duplicate_sig_keyids():
    repository = started()
    repository.publish(*TOP)
    repository.edit("snapshot", lambda file: file.update(signatures=file["signatures"] * 2))
    refuses(repository, **KEPT["snapshot"])


@case()
def invalid_sig_in_valid_metadata():
    repository = started()
    repository.publish(*TOP)
    stranger = {"keyid": SPARE[0].public_key.keyid, "sig": "00" * 64}
    repository.edit("timestamp", lambda file: file["signatures"].append(stranger))
    accepts(repository, timestamp=2)


# Rollback


@case()
def new_timestamp_version_rollback():
    repository = started()
    repository.publish("timestamp")
    accepts(repository, timestamp=2)
    repository.timestamp.version = 1
    repository.put("timestamp", repository.sign("timestamp"))
    refuses(repository, timestamp=2)


@case(("basic", "snapshot", False), ("with hashes", "snapshot", True))
def snapshot_rollback(role, digests):
    repository = started(digests=digests)
    repository.publish("targets", "snapshot", "timestamp")
    accepts(repository, snapshot=2)
    repository.snapshot.version = 0
    repository.publish("snapshot", "timestamp")
    refuses(repository, snapshot=2, timestamp=2)
    expect(repository.requests, REFRESHED[:2])


@case(("basic", False), ("with hashes", True))
def targets_rollback(digests):
    repository = started(digests=digests)
    repository.publish("targets", "snapshot", "timestamp")
    accepts(repository, targets=2)
    repository.targets["targets"].version = 0
    repository.publish("targets", "snapshot", "timestamp")
    refuses(repository, targets=2, snapshot=2)


@case()
def targets_role_removal():
    repository = started()
    repository.delegate("targets", "delegated")
    repository.publish("delegated", "targets", "snapshot", "timestamp")
    accepts(repository, snapshot=2)
    del repository.snapshot.meta["delegated.json"]
    repository.publish("snapshot", "timestamp")
    refuses(repository, snapshot=2)


@case(
    ("targets", "targets", ["snapshot"]),
    ("snapshot", "snapshot", ["snapshot", "timestamp"]),
    ("timestamp", "timestamp", ["timestamp"]),
)
def fast_forward_recovery(role, rotated):
    repository = started()
    repository.signed(role).version = 99
    repository.publish("targets", "snapshot", "timestamp")
    accepts(repository, **{role: 100})
    for other in rotated:
        key = generate()
        repository.set_keys(other, [key], 1, [key])
    repository.signed(role).version = 0
    repository.publish(*TOP)
    accepts(repository, **{role: 1})


# Rotations of keys: rows of the keys of each root, its threshold and the signing keys; and whether the client accepts the last root.


@case(
    ("1 of 1", [([1], 1, [1]), ([2], 1, [1, 2]), ([2], 1, [2])], True),
    ("with signatures of others", [([1], 1, [3, 1, 4]), ([2], 1, [3, 1, 4, 2])], True),
    ("one of 3 of 5", [([0, 1, 2, 3, 4], 3, [0, 2, 4]), ([0, 1, 3, 4, 5], 3, [0, 2, 4, 5]),
                       ([0, 1, 3, 4, 5], 3, [0, 4, 5])], True),
    ("all of 3 of 5", [([0, 1, 2, 3, 4], 3, [0, 2, 4]), ([5, 6, 7, 8, 9], 3, [0, 2, 4, 5, 6, 7]),
                       ([5, 6, 7, 8, 9], 3, [5, 6, 7])], True),
    ("a greater threshold", [([1, 2, 3], 1, [1]), ([1, 2, 3], 2, [1, 2])], True),
    ("a smaller threshold", [([1, 2, 3], 2, [1, 2]), ([1, 2, 3], 1, [1, 2]), ([1, 2, 3], 1, [1])], True),
    ("a further key", [([1], 1, [1]), ([1, 2], 2, [1, 2])], True),
    ("without the old key", [([1], 1, [1]), ([2], 1, [2, 3, 4])], False),
    ("without the new key", [([1], 1, [1]), ([2], 1, [1, 3, 4])], False),
    ("without 3 new keys", [([0, 1, 2, 3, 4], 3, [0, 2, 4]), ([0, 1, 3, 4, 5], 3, [0, 2, 4])], False),
    ("without 3 old keys", [([0, 1, 2, 3, 4], 3, [0, 2, 4]), ([0, 1, 3, 4, 5], 3, [0, 4, 5])], False),
    ("below the new threshold", [([1, 2, 3], 1, [1]), ([1, 2, 3], 2, [2])], False),
    ("below the old threshold", [([1, 2, 3], 2, [1, 2]), ([1, 2, 3], 1, [1])], False),
    ("one of 3 lost", [([0, 1, 2], 2, [0, 1]), ([1, 2, 3], 2, [1, 2, 3])], True),
    ("two of 3 lost", [([0, 1, 2], 2, [0, 1]), ([2, 3, 4], 2, [2, 3, 4])], False),
)
def root_rotation(versions, is_accepted):
    repository = Repository()
    repository.root.version = 0
    for keys, threshold, signers in versions:
        repository.set_keys("root", [SPARE[key] for key in keys], threshold, [SPARE[key] for key in signers])
        repository.publish("root")
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.start()
    count = len(versions)
    if is_accepted:
        accepts(repository, root=count)
    else:
        refuses(repository, root=count - 1)


@case(
    ("1 of 1", [2], 1, [2], True),
    ("with signatures of others", [1], 1, [3, 1, 4], True),
    ("without the new key", [2], 1, [1, 3, 4], False),
    ("with a signature of another", [0, 1, 3, 4, 5], 3, [0, 2, 4], False),
    ("below the threshold", [0, 1, 3, 4, 5], 3, [0, 4], False),
    ("at the threshold", [0, 1, 2, 3, 4], 3, [0, 4, 1], True),
    ("above the threshold", [0, 1, 2, 3, 4], 3, [4, 3, 2, 1], True),
)
def non_root_rotations(keys, threshold, signers, is_accepted):
    for role in ["timestamp", "snapshot", "targets"]:
        repository = refreshed()
        repository.set_keys(role, [SPARE[key] for key in keys], threshold, [SPARE[key] for key in signers])
        repository.publish(*TOP)
        if is_accepted:
            accepts(repository, **{role: 2})
        else:
            assert not repository.refresh(), f"{role} was accepted"
            assert repository.trusted.get(role) != 2


@case()
def a_thousand_roots():
    repository = started()
    for version in range(999):
        old, new = SPARE[version % 10], SPARE[(version + 1) % 10]
        signers = [*repository.signers["root"][-1:], new] if version else [*repository.signers["root"], new]
        repository.set_keys("root", [new], 1, signers)
        repository.publish("root")
    repository.publish("targets", "snapshot", "timestamp")
    # A refresh follows only a part of the roots, and the next one continues.
    for _ in range(8):
        if repository.refresh() and repository.trusted["root"] == 1000:
            return
    raise AssertionError(f"{repository.trusted}: {repository.error}")


# Delegations


def graph(*edges):
    repository = Repository()
    for delegator, role, *options in edges:
        repository.delegate(delegator, role, **(options[0] if options else {}))
    repository.publish(*[role for role in repository.targets if role != "targets"], "targets", "snapshot", "timestamp")
    assert repository.start()
    return repository


ENDS, PYTHON = {"terminating": True}, {"paths": ["*.py"]}


@case(
    ("one", [("targets", "A")], "A"),
    ("two", [("targets", "A"), ("targets", "B")], "AB"),
    ("two levels", [("targets", "A"), ("targets", "B"), ("B", "C")], "ABC"),
    ("depth first", [("targets", "A"), ("targets", "B"), ("A", "C"), ("A", "D")], "ACDB"),
    ("three levels", [("targets", "A"), ("targets", "B"), ("A", "C"), ("C", "D")], "ACDB"),
    ("terminating", [("targets", "A"), ("targets", "B"), ("A", "C", ENDS), ("A", "D")], "AC"),
    ("terminating above", [("targets", "A"), ("targets", "B"), ("A", "C", ENDS), ("C", "D")], "ACD"),
    ("other paths", [("targets", "A", PYTHON), ("targets", "B"), ("A", "C")], "B"),
    ("other paths below", [("targets", "A"), ("targets", "B"), ("A", "C", PYTHON), ("C", "D")], "AB"),
    ("a cycle", [("targets", "A"), ("targets", "B"), ("B", "C"), ("C", "D"), ("D", "B")], "ABCD"),
    ("two ways", [("targets", "A"), ("targets", "B"), ("B", "C"), ("A", "C")], "ACB"),
    ("one way of two", [("targets", "A"), ("targets", "B"), ("B", "C"), ("A", "C", PYTHON)], "ABC"),
)
def graph_traversal(edges, visited):
    repository = graph(*edges)
    assert not repository.download("missing")
    expect(repository.requests[4:], [f"1.{role}.json" for role in visited])


@case(
    ("no delegation", "targetfile", True, ""),
    ("a wildcard", "README.md", True, "A"),
    ("folders", "releases/x/x_v1", True, "BC"),
    ("folders and an ending", "releases/y/y_v1.zip", True, "BD"),
    ("not delegated by all", "releases/z/z_v1.zip", False, "B"),
    ("a wildcard and a folder", "releases/README.md", False, ""),
    ("a question mark", "foo-1.tgz", True, "A"),
    ("a question mark and more", "foo-alpha.tgz", False, ""),
    ("capitals", "README.MD", False, ""),
)
def targetfile_search(path, is_found, visited):
    repository = Repository()
    repository.delegate("targets", "A", paths=["*.md", "foo-?.tgz"])
    repository.delegate("targets", "B", paths=["releases/*/*"])
    repository.delegate("B", "C", paths=["releases/x/*"])
    repository.delegate("B", "D", paths=["releases/y/*.zip"])
    holders = {"targetfile": "targets", "README.md": "A", "releases/README.md": "A", "foo-1.tgz": "A", "foo-alpha.tgz": "A",
               "releases/x/x_v1": "C", "releases/y/y_v1.zip": "D", "releases/z/z_v1.zip": "D"}
    for name, role in holders.items():
        repository.add(name, name.encode(), role)
    repository.publish("A", "B", "C", "D", "targets", "snapshot", "timestamp")
    assert repository.start()
    expect(repository.download(path), is_found)
    expect(repository.held, [path.encode()] if is_found else [])
    expect(repository.requests[4:], [f"1.{role}.json" for role in visited])


@case(("its own", "ba", True), ("longer", "ba7816bf", True), ("another", "bb", False))
def hash_prefixes(prefix, is_found):
    repository = Repository()
    repository.delegate("targets", "bin", prefixes=["ffff", prefix])
    # The SHA-256 of 'abc' begins with ba7816bf.
    repository.add("abc", b"content", "bin")
    repository.publish("bin", "targets", "snapshot", "timestamp")
    assert repository.start()
    expect(repository.download("abc"), is_found)


@case()
def cached_role_is_verified_against_current_delegator():
    repository = Repository()
    for team in "ab":
        repository.delegate("targets", f"parent-{team}", paths=[f"team-{team}/*"])
    repository.delegate("parent-a", "release", paths=["team-a/*"])
    signers = repository.signers["release"]
    repository.signers["release"] = [generate()]
    repository.delegate("parent-b", "release", paths=["team-b/*"])
    repository.signers["release"] = signers
    for team in "ab":
        repository.add(f"team-{team}/file", team.encode(), "release")
    repository.publish("release", "parent-a", "parent-b", "targets", "snapshot", "timestamp")
    assert repository.start()
    assert not repository.download("team-a/file", "team-b/file")
    expect(repository.held, [b"a"])


@case()
def delegation_not_in_snapshot():
    repository = Repository()
    repository.delegate("targets", "delegated", paths=["folder/*"])
    repository.publish("delegated", "targets")
    del repository.snapshot.meta["delegated.json"]
    repository.publish("snapshot", "timestamp")
    assert repository.start()
    accepts(repository)
    assert not repository.download("folder/file")
    expect(repository.requests, REFRESHED[:2])
    assert "delegated" not in repository.trusted


@case(*[(name, name) for name in ["?", "#", "/delegated", "../delegated"]])
def unusual_role_name(name):
    repository = graph(("targets", name))
    assert not repository.download("missing")
    expect(repository.requests[4:], [f"1.{urllib.parse.quote(name, '')}.json"])
    expect(len(repository.trusted), 5)


# Downloads


@case(*[(f"{path}, {'consistent' if consistent else 'other'} snapshots", path, consistent)
        for path in ["file", "folder/below/file", "a b%c"] for consistent in [True, False]])
def client_downloads_expected_file(path, consistent):
    repository = started(consistent=consistent)
    repository.add(path, b"content")
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.download(path), repository.error
    expect(repository.held, [b"content"])


@case(("longer", b"content and more"), ("shorter", b"con"), ("as long", b"CONTENT"))
def repository_substitutes_target_file(forged):
    repository = started()
    repository.add("first", b"of the first")
    repository.add("second", b"content", serving=forged)
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.download("first"), repository.error
    assert not repository.download("second")
    expect(repository.held, [b"of the first"])


@case()
def multiple_changes_to_target():
    repository = started()
    for number in range(5):
        content = f"content {number}".encode()
        repository.add("file", content)
        repository.publish("targets", "snapshot", "timestamp")
        assert repository.download("file"), repository.error
        expect(repository.held, [content])
        repository.add("file", content, serving=b"forged")
        repository.publish("targets", "snapshot", "timestamp")
        repository.download("file")
        expect(repository.held, [content])


@case(("sha256", ["sha256"], True), ("sha512", ["sha512"], True), ("both", ["sha256", "sha512"], True))
def download_with_hash_algorithms(functions, is_found):
    repository = started()
    repository.add("file", b"content", functions=functions)
    repository.publish("targets", "snapshot", "timestamp")
    expect(repository.download("file"), is_found)


@case(("alone", ["unknown"], False), ("beside a known one", ["sha256", "unknown"], True))
def download_with_unknown_hash_algorithm(functions, is_found):
    repository = started()
    repository.add("file", b"content", functions=["sha256"])
    hashes = repository.targets["targets"].targets["file"].hashes
    digest = hashes["sha256"]
    hashes.clear()
    hashes.update({function: digest if function == "sha256" else "0badc0de" for function in functions})
    repository.publish("targets", "snapshot", "timestamp")
    expect(repository.download("file"), is_found)


@case()
def artifact_cache():
    repository = started()
    repository.add("file", b"content")
    repository.publish("targets", "snapshot", "timestamp")
    assert repository.download("file"), repository.error
    for path in [path for path in repository.files if path.startswith("targets/")]:
        del repository.files[path]
    assert repository.download("file"), repository.error


# The program itself


@case(*[(f"{kind}, {'consistent' if consistent else 'other'} snapshots", kind, consistent)
        for kind in KINDS for consistent in [True, False]])
def stagepack_reads_the_manifest(kind, consistent):
    repository = Repository(kind, consistent, digests=True)
    root = repository.home / "root.json"
    root.write_bytes(repository.files["metadata/1.root.json"])
    if consistent:
        # Another role than 'targets' may list the manifest.
        repository.delegate("targets", "texts", paths=["*.txt"])
        repository.delegate("targets", "manifests", paths=["manifest.*"])
    holder = "manifests" if consistent else "targets"

    def prefetch(revision):
        manifest = {"manifestVersion": 1, "application": "net.example", "revision": revision, "packs": []}
        repository.add("manifest.json", json.dumps(manifest).encode(), holder)
        roles = [role for role in repository.targets if role != "targets"]
        repository.publish("root", *roles, "targets", "snapshot", "timestamp")
        # The server has the metadata in a folder beside the manifest.
        repository.files.update({f"targets/{path}": content for path, content in repository.files.items()
                                 if path.startswith("metadata/")})
        command = [STAGEPACK, "prefetch", "--attempts", "1", "--manifest", repository.url("targets/manifest.json"),
                   "--container", str(repository.home / "container"), "--root", str(root), "--json"]
        return subprocess.run(command, capture_output=True, text=True)

    for revision in [1, 2]:
        ended = prefetch(revision)
        found = [result["revision"] for result in json.loads(ended.stdout)["runs"]]
        expect((ended.returncode, found), (0, [revision]))
    repository.signers["timestamp"] = [generate(kind)]
    ended = prefetch(3)
    expect(ended.returncode, 17)
    assert "of the timestamp metadata is not signed as version" in ended.stderr, ended.stderr


def main():
    failed = 0
    for name, run in cases:
        try:
            run()
        except Exception:
            failed += 1
            print(f"failed: {name}\n{traceback.format_exc()}", file=sys.stderr)
    print(f"repositories of python-tuf: {len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
