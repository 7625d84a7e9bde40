"""Tests that the guard does not stop jobs that fill their limit with reclaimable memory: the kernel would not kill them
either. bench/guard/lived.py has the programs of these jobs and checks in a cgroup that they survive without ebb."""

import os
import sys
import tempfile

import pytest

from commands import PYTHON, ROOT
from guarded import acts, enough_memory, guarded, neighbours

sys.path.insert(0, str(ROOT / "bench" / "guard"))
import lived  # noqa: E402  pylint: disable=wrong-import-position

LIMIT = 64 << 20


def needs_cgroup(doc):
    """Skips the test if the job has no memory cgroup: only the sum of RSS is known then, and the kernel enforces no
    limit."""
    if not doc["guard"]["kernel_limit"]:
        pytest.skip(f"no memory cgroup: {doc['guard']['cgroup_trouble']}")


@pytest.mark.parametrize("name", [
    "dentries_of_missing_files", "inodes_of_many_files", "huge_pages_used_in_part", "freed_lazily",
    "file_mapped", "tmpfs_filled_and_emptied"])
def test_guard_does_not_stop_a_job_whose_memory_is_reclaimable(guarded, name):
    if name.startswith("huge") and not os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        pytest.skip("this kernel has no transparent huge pages")
    disk = guarded.folder / "disk"
    disk.mkdir()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        result = guarded.run("--limit", LIMIT, "--pressure", "off", "--", PYTHON, "-c",
                             lived.HEAD + lived.PROGRAMS[name], LIMIT, disk, shm)
    doc = guarded.facts()
    needs_cgroup(doc)
    assert result.returncode == 0, result.stderr
    assert "term" not in acts(doc) and "kill" not in acts(doc)
