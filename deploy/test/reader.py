"""A user of a temporary Debian machine, with a temporary home directory and a network namespace.

Run as a program, in the namespaces that `command` creates, it becomes the user and runs a command. The network has one server,
https://cdn.example.org, which serves the user's directory 'cdn' at 2 MiB a second.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import origins
from machine import Machine, mount, raise_loopback

USER, IDENTITY = "ada", 1000
HOME, RUNTIME = f"/home/{USER}", f"/run/user/{IDENTITY}"
# The directory of the machine that simulates a clone after 'git clone' and 'make deb', and the path at which the user sees it.
CLONE, CLONE_OF_USER = "clone", f"{HOME}/StagePack"
SERVER, SERVED = "cdn.example.org", f"{HOME}/cdn"
AUTHORITY = "etc/ssl/cdn"
ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "LOGNAME": USER,
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "TZ": "UTC",
    "USER": USER,
    "XDG_RUNTIME_DIR": RUNTIME,
}


def add_user(machine: Machine):
    """Adds the user, who may use sudo, and the server's certificate."""
    machine.run("useradd", "--create-home", "--uid", str(IDENTITY), "--shell", "/bin/bash", USER)
    (machine.root / "etc/sudoers.d" / USER).write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n", "utf-8")
    (machine.root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename} {SERVER}\n", "utf-8")
    place = machine.root / AUTHORITY
    place.mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", f"/CN={SERVER}", "-addext", f"subjectAltName=DNS:{SERVER}"]
        + ["-keyout", place / "key.pem", "-out", place / "certificate.pem"],
        check=True,
        capture_output=True,
    )
    with open(machine.root / "etc/ssl/certs/ca-certificates.crt", "a", encoding="ascii") as authorities:
        authorities.write((place / "certificate.pem").read_text("ascii"))


def command(machine: Machine, *arguments):
    """Returns a command that runs the given one as the user; processes that this leaves running end with it."""
    namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
    return ["unshare", *namespaces, sys.executable, __file__, machine.root, *arguments]


def start_server(root: pathlib.Path):
    """Starts the server, with the rules of deploy/server."""
    place = root / AUTHORITY
    scratch = root / "run/nginx"
    scratch.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "tmpfs", scratch)
    encryption = f"ssl_certificate {place}/certificate.pem; ssl_certificate_key {place}/key.pem;"
    server = f" ssl; {encryption} root {root}{SERVED}; limit_rate 2m; include {origins.LOCATIONS};"
    origins.start_nginx(scratch, server, ("127.0.0.1", 443))


def become_user(root: pathlib.Path):
    """Changes this process's root, user and directories to those of the machine's user."""
    raise_loopback()
    mount("-t", "proc", "proc", root / "proc")
    for place in (HOME, RUNTIME):
        (root / place[1:]).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", f"mode=700,uid={IDENTITY},gid={IDENTITY}", "tmpfs", root / place[1:])
    for file in (root / "etc/skel").iterdir():
        copy = shutil.copy(file, root / HOME[1:])
        os.chown(copy, IDENTITY, IDENTITY)
    if (root / CLONE).is_dir():
        (root / CLONE_OF_USER[1:]).mkdir()
        mount("--bind", root / CLONE, root / CLONE_OF_USER[1:])
    start_server(root)
    os.chroot(root)
    os.chdir(HOME)
    os.setgroups([])
    os.setgid(IDENTITY)
    os.setuid(IDENTITY)


if __name__ == "__main__":
    become_user(pathlib.Path(sys.argv[1]))
    os.execvpe(sys.argv[2], sys.argv[2:], ENVIRONMENT)
