"""Tests that --limit applies to every process of the job: also to children not yet measured, and to processes that left
the job's cgroup."""

import os
import subprocess
import sys

import pytest

from commands import PYTHON, ROOT
from guarded import acts, enough_memory, guarded, neighbours

sys.path.insert(0, str(ROOT / "bench" / "guard"))
import cgroups  # noqa: E402  pylint: disable=wrong-import-position

STOPPED = 124

# A job that runs sixteen children at a time, 320 MiB in total. Each child allocates its memory at once and exits within
# a second, usually before ebb measures its unique memory.
GENERATIONS = """
import mmap, os, time
POPULATE = 0x8000
for _ in range(20):
    for _ in range(16):
        if os.fork() == 0:
            memory = mmap.mmap(-1, 20 << 20,
                               flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | POPULATE)
            time.sleep(0.6)
            os._exit(0)
    for _ in range(16):
        os.wait()
"""

# A job whose processes inherit memory by fork and own some memory each. It uses 160 MiB if each shared page is counted
# once, and 1.3 GiB if shared pages are counted for every process.
SHARED = """
import mmap, os, subprocess, time
memory = mmap.mmap(-1, 120 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes(120 << 20))
for _ in range(3):
    for _ in range(8):
        if os.fork() == 0:
            memory.seek(0)
            memory.write(b"1" * (5 << 20))
            time.sleep(0.9)
            os._exit(0)
    subprocess.run(["sleep", "0.5"])
    for _ in range(8):
        os.wait()
"""

# A job of a process and its child, which map a file of 300 MiB. The kernel can reclaim the pages of the file.
MAPS_A_FILE = """
import mmap, os, time
with open("file", "wb+") as file:
    for _ in range(300):
        file.write(bytes(1 << 20))
    file.flush()
    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
def touch():
    for at in range(0, len(memory), 4096):
        memory[at]
    time.sleep(1.5)
touch()
if os.fork() == 0:
    touch()
    os._exit(0)
os.wait()
"""

# A job of a process and its child, which use 300 MiB of shared memory. The kernel cannot reclaim shared memory.
SHARES = """
import mmap, time
memory = mmap.mmap(-1, 300 << 20)
for _ in range(300):
    memory.write(bytes(1 << 20))
    time.sleep(0.01)
time.sleep(20)
"""

LEAVES = """
import mmap, os, sys, time
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
keep = []
for _ in range(100):
    keep.append(mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    keep[-1].write(bytes(4 << 20))
    time.sleep(0.02)
time.sleep(20)
"""

DIVIDES = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import cgroups
part = next(cgroups.places())[0] + "/part"
os.mkdir(part)
with open(part + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
memory = b"1" * (60 << 20)
time.sleep(1.5)
"""


def test_limit_without_a_cgroup_includes_short_lived_children(guarded):
    result = guarded.run("--no-cgroup", "--limit", "250M", "--", PYTHON, "-c", GENERATIONS)
    assert result.returncode == STOPPED, result.stderr
    assert guarded.facts()["end"]["cause_kind"] == "guard"


def test_limit_without_a_cgroup_counts_pages_shared_by_fork_once(guarded):
    result = guarded.run("--no-cgroup", "--limit", "300M", "--", PYTHON, "-c", SHARED)
    assert result.returncode == 0, result.stderr
    assert "term" not in acts(guarded.facts()) and "kill" not in acts(guarded.facts())


def is_on_disk(folder):
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True,
                          check=True).stdout.strip()
    return kind not in ("tmpfs", "ramfs")


def test_limit_without_a_cgroup_excludes_mapped_files(guarded):
    if not is_on_disk(guarded.folder):
        pytest.skip("files in this folder are kept in memory")
    result = guarded.run("--no-cgroup", "--limit", "200M", "--", PYTHON, "-c", MAPS_A_FILE)
    assert result.returncode == 0, result.stderr
    assert acts(guarded.facts()) == []


def test_limit_without_a_cgroup_includes_shared_memory(guarded):
    result = guarded.run("--no-cgroup", "--limit", "200M", "--", PYTHON, "-c", SHARES)
    assert result.returncode == STOPPED, result.stderr
    assert guarded.facts()["end"]["cause_kind"] == "guard"


def test_limit_applies_to_a_job_that_left_its_cgroup(guarded):
    places = [folder for folder, _ in cgroups.places()
              if os.access(f"{folder}/cgroup.procs", os.W_OK)]
    if not places:
        pytest.skip("no other cgroup is writable")
    result = guarded.run("--limit", "200M", "--", PYTHON, "-c", LEAVES, places[0])
    doc = guarded.facts()
    if not doc["guard"]["kernel_limit"]:
        pytest.skip(f"no memory cgroup: {doc['guard']['cgroup_trouble']}")
    assert result.returncode == STOPPED, result.stderr
    assert doc["end"]["cause_kind"] == "guard"
    assert "has left the job's cgroup" in result.stderr


def test_moving_to_a_child_cgroup_is_not_reported_as_leaving_the_cgroup(guarded):
    result = guarded.run("--limit", "200M", "--", PYTHON, "-c", DIVIDES, ROOT / "bench" / "guard")
    doc = guarded.facts()
    if not doc["guard"]["kernel_limit"]:
        pytest.skip(f"no memory cgroup: {doc['guard']['cgroup_trouble']}")
    assert result.returncode == 0, result.stderr
    assert "has left" not in result.stderr
