"""Tests the heap profiler in processes that load its library at run time instead of by LD_PRELOAD."""

import os
import pathlib
import subprocess

import pytest

from commands import PATIENCE_S, binary, environment
from heap_jobs import LIBRARY, needs_library, not_sanitized

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", pathlib.Path(binary()).parent))
PROGRAMS = BUILD / "tests" / "heap_programs"

pytestmark = [needs_library]


def attaches(folder, way, count, *more):
    """Runs the test program and returns its printed values as a dict."""
    result = subprocess.run(
        [PROGRAMS / "attaches", way, LIBRARY, folder / "s", str(count), *more],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=PATIENCE_S)
    assert (result.returncode, result.stderr) == (0, ""), result
    words = result.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2])))


@pytest.fixture
def short(tmp_path_factory):
    """A folder whose path is short enough for a socket address."""
    import tempfile
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield pathlib.Path(folder)


def is_clean(found):
    return found["fds"] == 0 and found["mapped"] == 0 and found["failures"] == 0


@not_sanitized
def test_thousand_attaches_to_busy_threads_leave_nothing_behind(short):
    found = attaches(short, "threads", 1000)
    assert is_clean(found) and found["slots"] >= 4 and found["samples"] == 1, found
    assert found["tables"] == 1001


@not_sanitized
def test_children_forked_during_attach_and_detach_exit_normally(short):
    assert is_clean(attaches(short, "forks", 200))


@not_sanitized
def test_blocks_allocated_before_attach_or_detach_can_be_freed_later(short):
    assert is_clean(attaches(short, "across", 100))


@not_sanitized
def test_allocations_of_a_library_loaded_while_attached_are_sampled(short):
    assert is_clean(attaches(short, "plugin", 1, PROGRAMS / "module_plugin.so"))
