#!/usr/bin/env python3
"""Installs the wheel in bare systems and runs a leaking job there. Run it before a release, as root.

    scripts/test_wheels.py [--build FOLDER] [--suite NAME]…

The systems are Debian 11, 12 and 13, made by debootstrap in FOLDER/chroots and kept there. In each, `ebb run`
must report the verdict, the line and a diagnosis for a leak in plain Python, and for one with torch if pip
finds a torch for the Python of that system.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import wheels

SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
TORCH = "torch==2.13.0"

PLAIN_LEAK = '''import time, ebb
kept = []
for n in range(400):
    kept.append(bytearray(400_000))  # the leak
    time.sleep(0.04)
    ebb.step(n)
'''
TORCH_LEAK = '''import time, ebb, torch
kept = []
model = torch.nn.Linear(256, 256)
for n in range(400):
    loss = model(torch.randn(400, 256)).pow(2).mean()
    kept.append(loss)  # the leak
    time.sleep(0.04)
    ebb.step(n)
'''


def say(text: str) -> None:
    print(f"test-wheels: {text}", flush=True)


class Chroot:
    """A bare system in its own namespaces, with its own /proc and without network."""

    def __init__(self, folder: pathlib.Path, suite: str) -> None:
        self.folder, self.suite = folder, suite
        self.log = folder.with_suffix(".log")
        if not (folder / "complete").is_file():
            say(f"making {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            wheels.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, folder],
                       self.log)
            (folder / "complete").touch()

    def command(self, *words) -> list[str]:
        inside = "mount -t proc proc /proc && exec \"$@\""
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", str(self.folder),
                "/bin/sh", "-c", inside, "sh", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root", "LC_ALL=C.UTF-8", *map(str, words)]

    def run(self, *words, timeout: int = 600) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, check=False)

    def worked(self, *words) -> str:
        result = self.run(*words)
        if result.returncode:
            raise wheels.Failure(f"{self.suite}: {' '.join(map(str, words))} failed: "
                                 f"{(result.stderr or result.stdout).strip()[-800:]}")
        return result.stdout


def install(chroot: Chroot, wheel: pathlib.Path) -> str:
    place = chroot.folder / "srv"
    shutil.rmtree(place / "venv", ignore_errors=True)
    shutil.copy(wheel, place)
    chroot.worked("python3", "-m", "venv", "/srv/venv")
    start = time.monotonic()
    chroot.worked("/srv/venv/bin/pip", "install", "-q", "--no-index", "--disable-pip-version-check",
                  f"/srv/{wheel.name}")
    elapsed = time.monotonic() - start
    python = chroot.worked("/srv/venv/bin/python", "--version").strip()
    return f"{python}, installed in {elapsed:.1f} s"


def install_torch(chroot: Chroot) -> str | None:
    """Installs torch. The chroot has no network, so the packages are downloaded on this machine."""
    python = chroot.worked("/srv/venv/bin/python", "-c",
                           "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    store = chroot.folder / "root/torch"
    if not store.is_dir():
        scratch = chroot.folder / "root/torch.new"
        shutil.rmtree(scratch, ignore_errors=True)
        result = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "download",
                                 "-q", "--only-binary=:all:", "--python-version", python,
                                 "--dest", scratch, TORCH], check=False, capture_output=True, text=True)
        if result.returncode:
            return f"no {TORCH} for Python {python} where pip looks"
        scratch.rename(store)
    chroot.worked("/srv/venv/bin/pip", "install", "-q", "--no-index", "--disable-pip-version-check",
                  "--find-links", "/srv/torch", TORCH)
    return None


def check_leak(chroot: Chroot, name: str, program: str) -> str:
    place = chroot.folder / "srv"
    (place / f"{name}.py").write_text(program)
    shutil.rmtree(place / name, ignore_errors=True)
    line = next(n for n, text in enumerate(program.splitlines(), 1) if "# the leak" in text)
    ebb = "/srv/venv/bin/ebb"
    result = chroot.run(ebb, "run", "--run-dir", f"/srv/{name}", "--", "/srv/venv/bin/python",
                        f"/srv/{name}.py")
    if result.returncode:
        raise wheels.Failure(f"{chroot.suite}: {name}: status {result.returncode}: {result.stderr[-800:]}")
    verdict = json.loads(chroot.run(ebb, "verdict", "--json", f"/srv/{name}").stdout)
    heap = chroot.worked(ebb, "heap", f"/srv/{name}")
    diagnosis = chroot.worked(ebb, "diagnose", f"/srv/{name}")
    word = json.dumps(verdict)
    if '"leaking"' not in word:
        raise wheels.Failure(f"{chroot.suite}: {name}: no verdict of a leak: {word[:400]}")
    # An autograd graph is kept alive by the line that appends, and allocated by the line before it.
    lines = [f"{name}.py:{n}" for n in ([line] if name == "plain" else [line - 1, line])]
    for text, what in ((heap, "ebb heap"), (diagnosis, "ebb diagnose")):
        if not any(where in text for where in lines):
            raise wheels.Failure(f"{chroot.suite}: {name}: {what} does not name {lines[0]}:\n{text[:2000]}")
    return f"{name}: leaking, {lines[0]}, diagnosed"


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the wheel in bare systems.")
    parser.add_argument("--build", type=pathlib.Path, default=wheels.ROOT / "build")
    parser.add_argument("--suite", action="append", choices=sorted(SUITES), dest="suites")
    options = parser.parse_args()
    if os.geteuid() != 0:
        say("skipped: only root makes chroots")
        return 0
    build = options.build.resolve()
    found = sorted((build / "release").glob("ebbtide-*_x86_64.whl"))
    if not found:
        say("no wheel in build/release; run make wheels first")
        return 1
    status = 0
    for suite in options.suites or SUITES:
        try:
            chroot = Chroot(build / "chroots" / suite, suite)
            say(f"{SUITES[suite]}: {install(chroot, found[0])}")
            say(f"{SUITES[suite]}: {check_leak(chroot, 'plain', PLAIN_LEAK)}")
            missing = install_torch(chroot)
            say(f"{SUITES[suite]}: " + (missing or check_leak(chroot, "torch_leak", TORCH_LEAK)))
        except wheels.Failure as failure:
            say(str(failure))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
