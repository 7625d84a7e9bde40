#!/usr/bin/env python3
"""Builds ebb from source in bare systems that have only git and make. Run it before a release, as root.

    scripts/test_bare.py [--build FOLDER] [--system NAME]… [--only demo|test]

The systems are Debian 12 and Ubuntu 24.04, made by debootstrap in FOLDER/chroots and kept there. In each, the last
commit is cloned, and `make demo` and `make test` must succeed. Both install packages as they do for a user, so the
system needs the network. A system whose archive cannot be reached is skipped, and its name is printed.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import test_wheels
import wheels

UBUNTU = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYRING = pathlib.Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
SYSTEMS = {"bookworm": "Debian 12", "noble": "Ubuntu 24.04"}
LOCAL_CERTIFICATES = pathlib.Path("/usr/local/share/ca-certificates")
LIMIT_S = 3 * 3600


def say(text: str) -> None:
    print(f"test-bare: {text}", flush=True)


def ubuntu_keyring(folder: pathlib.Path) -> pathlib.Path:
    """Returns Ubuntu's signing keys. Debian 13 packages them; Debian 12 does not."""
    if UBUNTU_KEYRING.is_file():
        return UBUNTU_KEYRING
    trixie = test_wheels.Chroot(folder / "trixie", "trixie")
    keyring = trixie.folder / UBUNTU_KEYRING.relative_to("/")
    if not keyring.is_file():
        trixie.worked("apt-get", "-q", "update")
        trixie.worked("apt-get", "-q", "-y", "install", "--no-install-recommends", "ubuntu-keyring")
    return keyring


def make_system(folder: pathlib.Path, suite: str) -> test_wheels.Chroot | None:
    packages = "git,make,ca-certificates"
    if suite != "noble":
        return test_wheels.Chroot(folder, suite, packages)
    try:
        with urllib.request.urlopen(f"{UBUNTU}/dists/{suite}/Release", timeout=30):
            pass
    except (OSError, urllib.error.URLError):
        return None
    # Ubuntu releases share one debootstrap script, and an older debootstrap does not know the name noble
    script = "/usr/share/debootstrap/scripts/jammy"
    # universe is enabled on a default Ubuntu
    options = (f"--keyring={ubuntu_keyring(folder.parent)}", "--components=main,universe")
    return test_wheels.Chroot(folder, suite, packages, options, (UBUNTU, script))


def trust_local_certificates(chroot: test_wheels.Chroot) -> None:
    """Copies locally added CA certificates (for example of a proxy) into the chroot; pip and npm need them."""
    found = sorted(LOCAL_CERTIFICATES.glob("*.crt"))
    for path in found:
        shutil.copy(path, chroot.folder / LOCAL_CERTIFICATES.relative_to("/"))
    if found:
        chroot.worked("update-ca-certificates")


def clone(chroot: test_wheels.Chroot) -> None:
    place = chroot.folder / "srv/ebb"
    shutil.rmtree(place, ignore_errors=True)
    wheels.run(["git", "clone", "-q", "--depth", "1", f"file://{wheels.ROOT}", place], chroot.log)


def run_make(chroot: test_wheels.Chroot, target: str) -> str:
    """Runs make in the chroot; returns the last lines of its output and the duration."""
    log = chroot.folder.with_name(f"{chroot.folder.name}-{target}.log")
    start = time.monotonic()
    with log.open("wb") as out:
        status = subprocess.run(chroot.command("make", "-C", "/srv/ebb", target), stdout=out, check=False,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT_S).returncode
    text = log.read_text(errors="replace")
    if status:
        raise wheels.Failure(f"make {target} failed with status {status}; all of its output is in {log}:\n"
                             + "".join(text.splitlines(True)[-25:]))
    if target == "demo" and not re.search(r"leaking", text):
        raise wheels.Failure(f"make demo reports no leak; its output is in {log}")
    counted = re.findall(r"^.*tests passed.*$", text, re.M)
    return f"make {target}: {time.monotonic() - start:.0f} s" + (f"; {counted[-1].strip()}" if counted else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and test ebb in bare systems.")
    parser.add_argument("--build", type=pathlib.Path, default=wheels.ROOT / "build")
    parser.add_argument("--system", action="append", choices=sorted(SYSTEMS), dest="systems")
    parser.add_argument("--only", action="append", choices=["demo", "test"], dest="targets")
    options = parser.parse_args()
    if os.geteuid() != 0:
        say("skipped: only root makes chroots")
        return 0
    folder = options.build.resolve() / "chroots"
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for suite in options.systems or SYSTEMS:
        try:
            chroot = make_system(folder / f"bare-{suite}", suite)
            if not chroot:
                say(f"{SYSTEMS[suite]}: skipped, {UBUNTU} cannot be reached")
                continue
            trust_local_certificates(chroot)
            clone(chroot)
            for target in options.targets or ["demo", "test"]:
                say(f"{SYSTEMS[suite]}: {run_make(chroot, target)}")
        except wheels.Failure as failure:
            say(f"{SYSTEMS[suite]}: {failure}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
