"""The packages that the tests install, and the root in which they are installed."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

import origins
from machine import Failure

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE.parent.parent
# Files with locks, which this process holds until it ends, by directory.
LOCKS = {}
MANIFEST = f"http://{origins.ADDRESS[0]}/manifest.json"


def places(directory):
    """Returns the paths of the packages and of the releases, by the names that tests use."""
    work = directory / "life"
    return {
        "stagepack": work / "stagepack.deb",
        "stagepack later": work / "later.deb",
        "sample 1.0": work / "stagepack-sample_1.0_all.deb",
        "sample 2.0": work / "stagepack-sample_2.0_all.deb",
        "releases": work / "releases",
    }


def package_of(directory):
    """Returns the package that 'make deb' made."""
    found = sorted(directory.glob("stagepack_*.deb"))
    if len(found) != 1:
        raise Failure(f"expected one package 'stagepack' in '{directory}', found {len(found)}: run 'make deb'")
    return found[0]


def make_sample(directory, version):
    """Makes a package of the sample application."""
    build = [HERE.parent / "sample/build", "--output", directory / "life", "--version", version, "--manifest", MANIFEST]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)


def lock(directory):
    """Keeps other runs from replacing the packages in a directory until this process ends; waits for a run that does so."""
    if directory not in LOCKS:
        LOCKS[directory] = open(directory / "life.lock", "wb")
        try:
            fcntl.flock(LOCKS[directory], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that uses '{directory}'", flush=True)
            fcntl.flock(LOCKS[directory], fcntl.LOCK_EX)


def make_packages(directory):
    """Makes the packages and the releases, and returns the package that 'make deb' made."""
    package = package_of(directory)
    lock(directory)
    work, made = directory / "life", places(directory)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for version in ("1.0", "2.0"):
        make_sample(directory, version)
    # The package without compression, which would take most of the time of each test; and the same
    # under a later version.
    tree = work / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree]
    subprocess.run([*build, made["stagepack"]], check=True, stdout=subprocess.DEVNULL)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text("utf-8").replace("\nVersion: ", "\nVersion: 9:", 1), "utf-8")
    subprocess.run([*build, made["stagepack later"]], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    for release in ("1", "2"):
        output = made["releases"] / release
        output.mkdir(parents=True)
        subprocess.run([SOURCES / "Packs/build", output, release, release], check=True)
        # nginx makes entity tags from the seconds and the size, so the releases must have different seconds.
        os.utime(output / "manifest.json", (int(release), int(release)))
    return package


def make_root(directory, package):
    """Makes the root that every machine is a copy of, if it does not exist yet."""
    lock(directory)
    sample = places(directory)["sample 1.0"]
    if not sample.exists():
        make_sample(directory, "1.0")
    recipe = (HERE / "make-root").read_text("utf-8")
    for file in (package, sample):
        field = ["dpkg-deb", "--field", file, "Depends"]
        recipe += subprocess.run(field, check=True, capture_output=True, text=True).stdout
    root = directory / f"root-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    subprocess.run([HERE / "make-root", root, package, sample], check=True)
    return root
