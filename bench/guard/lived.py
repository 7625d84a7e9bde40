#!/usr/bin/env python3
"""Runs programs that survive within a memory limit although they fill it, because the kernel can reclaim
the memory: page cache, dentries and inodes, tmpfs, mapped files, lazily freed pages, partly used huge
pages. The guard must not stop any of these programs. The last program leaks, and the guard must stop it.

    bench/guard/lived.py EBB [--limit MIB] [--only NAME[,NAME]] [--scratch DIR] [--json]

Each program runs in three ways: alone in a cgroup with the limit, under `ebb run --limit`, and under
`ebb run` without options inside a cgroup with the limit, as in a container. Prints one line per program.
The exit status is 1 if the guard stopped a program that survives without ebb, or if the kernel killed the leaking
program before the guard stopped it. Requires only Python 3.8; making cgroups usually requires root.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from cgroups import Cgroup  # noqa: E402

MIB = 1 << 20
PATIENCE_S = 300
PAGE = os.sysconf("SC_PAGE_SIZE")

# Prepended to every program: LIMIT in bytes, folders on disk (DISK) and in memory (SHM), and helper functions.
HEAD = f"""
import mmap, os, sys
LIMIT, DISK, SHM, PAGE = int(sys.argv[1]), sys.argv[2], sys.argv[3], {PAGE}

def mapping(size, advice=()):
    m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for a in advice:
        m.madvise(a)
    return m

def touch(m, step=PAGE):
    for at in range(0, len(m), step):
        m[at] = 1

def write_file(name, size):
    chunk = bytes(1 << 20)
    with open(os.path.join(DISK, name), "wb") as f:
        for _ in range(size >> 20):
            f.write(chunk)

def look_up(count):
    for i in range(count):
        try:
            os.stat("%s/there-is-no-file-of-such-a-long-name-%d" % (DISK, i))
        except OSError:
            pass

def make_files(count):
    for i in range(count):
        if i % 1000 == 0:
            os.mkdir("%s/%d" % (DISK, i // 1000))
        os.close(os.open("%s/%d/%d" % (DISK, i // 1000, i), os.O_CREAT | os.O_WRONLY, 0o600))
"""

# Each dentry needs 192 bytes of kernel memory, and each inode of a disk file system about 1,100.
PROGRAMS = {
    "page_cache_read": """
write_file("a", 2 * LIMIT)
os.sync()
for _ in range(2):
    with open(DISK + "/a", "rb") as f:
        while f.read(1 << 20):
            pass
""",
    "page_cache_written": """
write_file("a", 3 * LIMIT)
""",
    "file_mapped": """
write_file("a", 2 * LIMIT)
with open(DISK + "/a", "rb") as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
for _ in range(2):
    for at in range(0, len(m), PAGE):
        m[at]
""",
    "dentries_of_missing_files": """
look_up(2 * LIMIT // 192)
""",
    "inodes_of_many_files": """
make_files(LIMIT // 1024)
for folder, _, names in os.walk(DISK):
    for name in names:
        os.stat(os.path.join(folder, name))
""",
    "tmpfs_filled_and_emptied": """
for _ in range(6):
    with open(SHM + "/a", "wb") as f:
        for _ in range(LIMIT // 2 >> 20):
            f.write(bytes(1 << 20))
    os.remove(SHM + "/a")
""",
    "freed_lazily": """
maps = []
for _ in range(6):
    maps.append(mapping(LIMIT // 2))
    touch(maps[-1])
    maps[-1].madvise(mmap.MADV_FREE)
""",
    "huge_pages_used_in_part": """
maps = []
for _ in range(6):
    m = mapping(LIMIT // 2, [getattr(mmap, "MADV_HUGEPAGE", 14)])
    for at in range(0, len(m), 2 << 20):
        m[at:at + PAGE] = bytes(PAGE)
    for at in range(0, len(m), 2 << 20):
        m.madvise(mmap.MADV_DONTNEED, at + PAGE, min(2 << 20, len(m) - at) - PAGE)
    maps.append(m)
""",
    "all_at_once": """
write_file("a", LIMIT)
keep = mapping(LIMIT // 4)
touch(keep)
free = mapping(LIMIT // 4)
for _ in range(3):
    touch(free)
    free.madvise(mmap.MADV_FREE)
    with open(DISK + "/a", "rb") as f:
        while f.read(1 << 20):
            pass
    look_up(LIMIT // 192 // 2)
""",
}

# These programs leak, so the guard must stop them before the kernel kills them.
LEAKS = {
    "leak": """
import time
maps = []
while True:
    maps.append(mapping(1 << 20))
    touch(maps[-1])
    time.sleep(0.005)
""",
    "leak_in_pipes": """
import fcntl, time
pipes = []
while True:
    pipes.append(os.pipe())
    fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)  # F_SETPIPE_SZ
    os.write(pipes[-1][1], bytes(1 << 20))
    time.sleep(0.005)
""",
}
# cgroup v1 does not report how much kernel memory is reclaimable. The guard therefore ignores kernel memory, and the
# kernel kills this program before the guard acts.
NOT_SEEN_IN_V1 = ("leak_in_pipes",)


class Ways:
    """Runs a program in each of the three ways. The result of a way that is not possible on this machine is None."""

    def __init__(self, ebb, limit, scratch):
        self.ebb, self.limit, self.scratch = ebb, limit, scratch

    def command(self, text, folder):
        disk = os.path.join(folder, "disk")
        os.mkdir(disk)
        shm = tempfile.mkdtemp(prefix="ebb-lived-", dir="/dev/shm")
        return [sys.executable, "-c", HEAD + text, str(self.limit), disk, shm], shm

    def run(self, text, before=(), cgroup=None):
        """Returns exit status (negative for a signal), output, and the number of OOM kills in CGROUP."""
        folder = tempfile.mkdtemp(prefix="lived-", dir=self.scratch)
        command, shm = self.command(text, folder)
        try:
            done = subprocess.run([*before, *command], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
                                  timeout=PATIENCE_S, check=False,
                                  preexec_fn=cgroup.enter if cgroup else None)
            facts = read_json(os.path.join(folder, "run", "run.json"))
            return {"status": done.returncode, "output": done.stdout.decode(errors="replace"),
                    "oom_kills": cgroup.oom_kills() if cgroup else None, "facts": facts}
        except subprocess.TimeoutExpired:
            return {"status": None, "output": f"no end within {PATIENCE_S} s",
                    "oom_kills": None, "facts": {}}
        finally:
            shutil.rmtree(shm, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)

    def plain(self, text):
        try:
            with Cgroup(self.limit) as cgroup:
                return self.run(text, cgroup=cgroup)
        except OSError:
            return None

    def ebb_run(self, *options):
        return [self.ebb, "run", "--run-dir", "run", *options, "--"]

    def limited(self, text):
        return self.run(text, self.ebb_run("--limit", str(self.limit)))

    def inside(self, text):
        try:
            with Cgroup(self.limit) as cgroup:
                return self.run(text, self.ebb_run(), cgroup)
        except OSError:
            return None


def cgroup_version():
    """Returns the cgroup version, 1 or 2, or None if no cgroup can be created."""
    try:
        with Cgroup(64 * MIB) as cgroup:
            return 2 if cgroup.is_v2 else 1
    except OSError:
        return None


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def has_lived(done):
    return done["status"] == 0 and not done["oom_kills"]


def is_caught(done):
    """Returns whether the guard, and not the kernel, ended the program."""
    return done["status"] == 124 and not done["oom_kills"]


def fate(done):
    """Returns a result as one or two words for the table."""
    if done is None:
        return "no cgroup"
    if has_lived(done):
        return "lived"
    if done["status"] is None:
        return "timed out"
    if done["oom_kills"]:
        return f"{done['oom_kills']} OOM kills"
    if done["status"] == 124:
        return "STOPPED"
    if done["status"] < 0:
        return signal.Signals(-done["status"]).name
    return f"status {done['status']}"


def guard_lines(done):
    return [line for line in (done or {}).get("output", "").splitlines()
            if "guard" in line or "Error" in line]


def judge(name, found, version):
    """Returns the ways in which the guard failed, as a list of names."""
    if name in NOT_SEEN_IN_V1 and version != 2:
        return []
    if name in LEAKS:
        return [way for way in ("limit", "inside") if found[way] and not is_caught(found[way])]
    if found["plain"] and not has_lived(found["plain"]):
        return []  # The program does not survive without ebb, so the guard may stop it.
    return [way for way in ("limit", "inside") if found[way] and not has_lived(found[way])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ebb")
    parser.add_argument("--limit", type=int, default=96, metavar="MIB")
    parser.add_argument("--only", default="")
    parser.add_argument("--scratch", help="a folder on a disk (default: the temporary one)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ways = Ways(os.path.abspath(options.ebb), options.limit * MIB, options.scratch)
    only = [name for name in options.only.split(",") if name]
    version = cgroup_version()
    print(f"limit {options.limit} MiB, cgroup version: {version or 'none can be made'}", flush=True)
    results, is_wrong = {}, False
    for name, text in {**PROGRAMS, **LEAKS}.items():
        if only and name not in only:
            continue
        found = {"plain": ways.plain(text), "limit": ways.limited(text),
                 "inside": ways.inside(text)}
        wrong = judge(name, found, version)
        is_wrong |= bool(wrong)
        print(f"{name:27} alone: {fate(found['plain']):12} --limit: {fate(found['limit']):12} "
              f"no option: {fate(found['inside']):12} {'WRONG' if wrong else 'ok'}", flush=True)
        for way in wrong:
            print("\n".join(f"    {way}: {line}" for line in guard_lines(found[way])))
        results[name] = found
    if options.json:
        print(json.dumps(results))
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
