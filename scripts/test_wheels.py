#!/usr/bin/env python3
"""Installs the wheel in bare systems and runs a leaking job there. Run it before a release, as root.

    scripts/test_wheels.py [--build FOLDER] [--suite NAME]…

The systems are Debian 11, 12, 13 and testing, made by debootstrap in FOLDER/chroots and kept there. In each, `ebb run`
must report the verdict, the line and a diagnosis for a leak in plain Python, and for a leak with torch if pip finds a
torch for the Python of that system. If the system has further Pythons, the leak in plain Python runs with each of them.
If ebb does not know the version of a Python, `ebb run` must report the verdict, and why there is no line. First, uvx,
uv run and pipx run must find the command in the wheel, on this machine. Then the tarball and the .deb are installed in
a Debian 11 without Python, where `ebb run` must report the leak of a Perl program.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import wheels

SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "testing": "Debian testing"}
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
FURTHER_PYTHONS = {"testing": ["python3.14", "python3.15"]}  # packages with Pythons other than the system's default
# source packages from which free-threaded Pythons are built
FREE_THREADED = {"trixie": "python3.13", "testing": "python3.14"}
TORCH = "torch==2.13.0"
RUNNERS = ["uv", "pipx"]
LIMIT_S = 3600  # unpacking torch with its CUDA libraries takes ten minutes on a busy machine
NEWEST_MINOR = 14  # the newest Python whose frames ebb can read (src/heap/python_layout.c)

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


PERL_LEAK = "for (1..400) { push @kept, 'x' x 400_000; select undef, undef, undef, 0.04 }"


# Runs a command in the chroot, where /proc and similar file systems and this machine's cgroups are mounted.
MOUNT_AND_RUN = """
root=$1
shift
mkdir -p "$root/dev/pts" "$root/dev/shm" &&
    mount -t proc proc "$root/proc" &&
    mount -t sysfs sysfs "$root/sys" &&
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup" &&
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts" &&
    mount --bind "$root/dev/pts/ptmx" "$root/dev/ptmx" &&
    mount -t tmpfs tmpfs "$root/dev/shm" &&
    exec chroot "$root" "$@"
"""


def say(text: str) -> None:
    print(f"test-wheels: {text}", flush=True)


class Chroot:
    """A bare system (chroot) in its own namespaces, with its own /proc."""

    def __init__(self, folder: pathlib.Path, suite: str, packages: str = PACKAGES, options: tuple = (),
                 source: tuple = ()) -> None:
        """OPTIONS are passed to debootstrap; SOURCE replaces its default mirror and script."""
        self.folder, self.suite = folder, suite
        self.log = folder.with_suffix(".log")
        if not (folder / "complete").is_file():
            say(f"making {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            wheels.run(["debootstrap", "--variant=minbase", f"--include={packages}", *options, suite, folder,
                        *source], self.log)
            (folder / "complete").touch()
        # apt rejects a mirror with an expired index, unless Check-Valid-Until is off; the chroot takes over this
        # machine's setting
        (folder / "etc/apt/apt.conf.d/99valid-until").write_text(
            wheels.output(["apt-config", "dump", "Acquire::Check-Valid-Until"]))
        # debootstrap does not write /etc/hosts
        (folder / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n")

    def command(self, *words) -> list[str]:
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", MOUNT_AND_RUN, "sh",
                str(self.folder), "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                "LC_ALL=C.UTF-8", *map(str, words)]

    def run(self, *words) -> subprocess.CompletedProcess:
        try:
            return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=LIMIT_S,
                                  stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            raise wheels.Failure(f"{self.suite}: {' '.join(map(str, words))} took more than {LIMIT_S} s") from None

    def worked(self, *words) -> str:
        result = self.run(*words)
        if result.returncode:
            raise wheels.Failure(f"{self.suite}: {' '.join(map(str, words))} failed: "
                                 f"{(result.stderr or result.stdout).strip()[-800:]}")
        return result.stdout


def check_runners(folder: pathlib.Path, wheel: pathlib.Path) -> str:
    """Runs ebb from the wheel without installing it, as shown in README. The job must be able to import ebb and the
    packages of the user's Python."""
    log = folder.with_suffix(".log")
    wheels.run([sys.executable, "-m", "venv", "--clear", folder], log)
    pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    wheels.run([*pip, *RUNNERS], log)
    runners = {"uvx": ["bin/uvx", "--from", wheel, "ebb"],
               "uv run": ["bin/uv", "run", "--no-project", "--active", "--with", wheel, "ebb"],
               "pipx run": ["bin/pipx", "run", "--spec", wheel, "ebb"]}
    env = {**os.environ, "VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}",
           "UV_CACHE_DIR": str(folder / "uv"), "PIPX_HOME": str(folder / "pipx")}
    for name, words in runners.items():
        # uvx puts its own Python first on PATH, so the job gives the full path of the user's Python
        python = folder / "bin/python" if name == "uvx" else "python"
        result = subprocess.run([folder / words[0], *words[1:], "run", "--", python, "-c",
                                 "import ebb, pipx; ebb.step(1); print(ebb.__file__)"], cwd=folder, env=env,
                                check=False, capture_output=True, text=True, timeout=LIMIT_S)
        if result.returncode or str(folder) not in result.stdout:
            raise wheels.Failure(f"{name}: status {result.returncode}: {(result.stdout + result.stderr)[-800:]}")
    return ", ".join(runners) + ": work"


def check_no_python(chroot: Chroot, ebb: str) -> str:
    """Runs a Perl program that leaks. EBB is the path of ebb in the chroot."""
    folder = "/srv/perl"
    shutil.rmtree(chroot.folder / folder.lstrip("/"), ignore_errors=True)
    chroot.worked(ebb, "run", "-q", "--run-dir", folder, "--", "perl", "-e", PERL_LEAK)
    result = chroot.run(ebb, "verdict", folder)
    if result.returncode != 1 or "leaking" not in result.stdout:
        raise wheels.Failure(f"{chroot.suite}: {ebb}: no verdict of a leak: {result.stdout}{result.stderr}")
    if "perl" not in chroot.worked(ebb, "heap", folder):
        raise wheels.Failure(f"{chroot.suite}: {ebb} heap does not name perl, so the hooks were not loaded")
    return " ".join(chroot.worked(ebb, "version").split()[:2]) + ", leaking, allocated by perl"


def check_packages(folder: pathlib.Path, release: pathlib.Path) -> None:
    """Installs the tarball and the .deb in a system without Python, and checks both."""
    chroot = Chroot(folder, "bullseye", "ca-certificates")
    if chroot.run("sh", "-c", "command -v python3").returncode == 0:
        raise wheels.Failure(f"{folder} has Python")
    tarball = release / f"ebb-{wheels.version()}-linux-x86_64.tar.gz"
    deb = release / f"ebbtide_{wheels.version()}-1_amd64.deb"
    for path in (tarball, deb):
        shutil.copy(path, chroot.folder / "srv")
    chroot.worked("tar", "xf", f"/srv/{tarball.name}", "-C", "/opt")
    say(f"{tarball.name}: {check_no_python(chroot, f'/opt/ebb-{wheels.version()}/bin/ebb')}")
    # apt would also install recommended packages, one of which is Python
    chroot.worked("dpkg", "--install", f"/srv/{deb.name}")
    say(f"{deb.name}: {check_no_python(chroot, '/usr/bin/ebb')}")
    chroot.worked("ebb", "serve", "--check", "--config", "/etc/ebb/serve.conf")
    compiled = chroot.folder / "usr/share/ebb/python/ebb/__pycache__"
    compiled.mkdir()  # simulates the compiled files that Python writes when root runs a job
    (compiled / "data.cpython-39.pyc").touch()
    chroot.worked("dpkg", "--purge", "ebbtide")
    left = [path for place in ("etc/ebb", "usr/lib/ebb", "usr/share/ebb", "usr/bin/ebb")
            if (path := chroot.folder / place).exists()]
    if left:
        raise wheels.Failure(f"{deb.name} left {left[0]} behind")


def install(chroot: Chroot, wheel: pathlib.Path) -> str:
    place = chroot.folder / "srv"
    shutil.rmtree(place / "venv", ignore_errors=True)
    shutil.copy(wheel, place)
    chroot.worked("python3", "-m", "venv", "/srv/venv")
    took, _ = wheels.time_of(lambda: chroot.worked("/srv/venv/bin/pip", "install", "-q", "--no-index",
                                                   "--disable-pip-version-check", f"/srv/{wheel.name}"))
    python = chroot.worked("/srv/venv/bin/python", "--version").strip()
    return f"{python}, installed in {took}"


def install_torch(chroot: Chroot) -> str | None:
    """Installs torch. The packages are downloaded outside the chroot, which lacks this machine's certificates and
    settings."""
    python = chroot.worked("/srv/venv/bin/python", "-c",
                           "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    store = chroot.folder / "srv/torch"
    if not store.is_dir():
        scratch = chroot.folder / "srv/torch.new"
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


def run_leak(chroot: Chroot, name: str, program: str, python: str) -> tuple[str, str]:
    """Returns the output of `ebb heap` and `ebb diagnose`, after checking that the verdict is a leak."""
    place = chroot.folder / "srv"
    (place / f"{name}.py").write_text(program)
    shutil.rmtree(place / name, ignore_errors=True)
    ebb = "/srv/venv/bin/ebb"
    packages = chroot.worked("/srv/venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    result = chroot.run("env", f"PYTHONPATH={packages.strip()}", ebb, "run", "--run-dir", f"/srv/{name}", "--",
                        python, f"/srv/{name}.py")
    if result.returncode:
        raise wheels.Failure(f"{chroot.suite}: {name}: status {result.returncode}: {result.stderr[-800:]}")
    verdict = json.loads(chroot.run(ebb, "verdict", "--json", f"/srv/{name}").stdout)
    word = json.dumps(verdict)
    if '"leaking"' not in word:
        raise wheels.Failure(f"{chroot.suite}: {name}: no verdict of a leak: {word[:400]}")
    return chroot.worked(ebb, "heap", f"/srv/{name}"), chroot.worked(ebb, "diagnose", f"/srv/{name}")


def check_leak(chroot: Chroot, name: str, program: str, python: str = "/srv/venv/bin/python") -> str:
    heap, diagnosis = run_leak(chroot, name, program, python)
    line = next(n for n, text in enumerate(program.splitlines(), 1) if "# the leak" in text)
    # with torch, the line before the appending line allocates the graph, and the appending line keeps it alive
    lines = [f"{name}.py:{n}" for n in ([line] if name == "plain" else [line - 1, line])]
    for text, what in ((heap, "ebb heap"), (diagnosis, "ebb diagnose")):
        if not any(where in text for where in lines):
            raise wheels.Failure(f"{chroot.suite}: {name}: {what} does not name {lines[0]}:\n{text[:2000]}")
    return f"{name}: leaking, {lines[0]}, diagnosed"


def check_further_python(chroot: Chroot, python: str) -> str:
    """Runs a leaking program in a Python newer than those ebb supports: ebb must report a verdict, and one sentence
    that explains why there is no line."""
    chroot.worked("apt-get", "-q", "-y", "install", "--no-install-recommends", python)
    exact = chroot.worked(python, "--version").strip()
    if int(python.rpartition(".")[2]) <= NEWEST_MINOR:
        return f"{exact}: {check_leak(chroot, 'plain', PLAIN_LEAK, python)}"
    return f"{exact}: {check_no_lines(chroot, python, 'unknown Python version')}"


def check_no_lines(chroot: Chroot, python: str, reason: str) -> str:
    """Checks a Python whose frames ebb cannot read: there must be a verdict, and `ebb heap` must print the reason."""
    heap, _ = run_leak(chroot, "plain", PLAIN_LEAK, python)
    found = re.search(rf"{reason}[^\n]*", heap)
    if not found:
        raise wheels.Failure(f"{chroot.suite}: {python}: ebb heap does not say why it has no lines:\n{heap[:2000]}")
    return f"leaking, no line: {found.group()}"


def check_free_threaded(chroot: Chroot, source: str) -> str:
    """Builds a free-threaded Python from Debian's sources, because no distribution packages it. Takes ten minutes."""
    place = chroot.folder / "srv/free-threaded"
    if not (place / "python").is_file():
        say(f"building {source} without its global lock")
        lists = chroot.folder / "etc/apt/sources.list.d"
        (lists / "source.list").write_text(f"deb-src http://deb.debian.org/debian {chroot.suite} main\n")
        chroot.worked("apt-get", "-q", "update")
        chroot.worked("apt-get", "-q", "-y", "install", "--no-install-recommends", "dpkg-dev", "gcc", "libc6-dev",
                      "make", "zlib1g-dev")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        result = chroot.run("sh", "-c", f"cd /srv/free-threaded && apt-get -q source --download-only {source}")
        if result.returncode:
            return f"free-threaded {source} not tested: the archive does not have its source"
        chroot.worked("sh", "-c", "cd /srv/free-threaded && tar xf *.orig.tar.xz --strip-components=1 && "
                      "./configure -q --disable-gil --disable-test-modules && make -s -j2")
    exact = chroot.worked("/srv/free-threaded/python", "-VV").split("(")[0].strip()
    return f"{exact}: {check_no_lines(chroot, '/srv/free-threaded/python', 'free-threaded Python')}"


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
    for check in (lambda: say(check_runners(build / "release/runners", found[0])),
                  lambda: check_packages(build / "chroots/no-python", build / "release")):
        try:
            check()
        except wheels.Failure as failure:
            say(str(failure))
            status = 1
    for suite in options.suites or SUITES:
        try:
            chroot = Chroot(build / "chroots" / suite, suite)
            say(f"{SUITES[suite]}: {install(chroot, found[0])}")
            say(f"{SUITES[suite]}: {check_leak(chroot, 'plain', PLAIN_LEAK)}")
            missing = install_torch(chroot)
            say(f"{SUITES[suite]}: " + (missing or check_leak(chroot, "torch_leak", TORCH_LEAK)))
            for python in FURTHER_PYTHONS.get(suite, ()):
                say(f"{SUITES[suite]}: {check_further_python(chroot, python)}")
            if suite in FREE_THREADED:
                say(f"{SUITES[suite]}: {check_free_threaded(chroot, FREE_THREADED[suite])}")
        except wheels.Failure as failure:
            say(str(failure))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
