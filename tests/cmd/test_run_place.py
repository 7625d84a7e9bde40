"""Tests the paths that `ebb run` adds to PYTHONPATH and LD_PRELOAD. If the path of ebb's installation contains a
character that separates paths in these variables, ebb uses a symbolic link to it while the job runs."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from commands import PATIENCE_S, PYTHON, ROOT, binary, environment, refused_with, run_ebb, wait_for
from heap_jobs import LIBRARY, facts, heap, needs_library, not_sanitized, where, write

pytestmark = needs_library

# A job that keeps 20 MiB. Its import of ebb succeeds only through the shim, because ebb is not installed for its
# Python.
HOLDS = """
    import ebb
    keep = bytes(20 << 20)
"""


@pytest.fixture
def installed(tmp_path):
    """Returns a function that installs ebb under the folder NAME and returns the path of the program."""
    def install(name):
        prefix = tmp_path / name
        for part in ("bin", "lib/ebb", "share/ebb/python"):
            (prefix / part).mkdir(parents=True)
        shutil.copy(binary(), prefix / "bin/ebb")
        shutil.copy(LIBRARY, prefix / "lib/ebb")
        shutil.copytree(ROOT / "python/ebb", prefix / "share/ebb/python/ebb",
                        ignore=shutil.ignore_patterns("__pycache__"))
        return prefix / "bin/ebb"
    return install


def run(program, folder, *command, env=None):
    return subprocess.run([program, "run", "-q", "--run-dir", folder / "run", "--", *command],
                          cwd=folder, env=environment(env), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S)


@pytest.mark.parametrize("name", ["plain", "a space", "a:colon", "a[pattern]*?", "back\\slash",
                                  "$ORIGIN", "all: of [them] $"])
def test_heap_profiler_and_python_package_work_in_any_install_path(tmp_path, installed, name):
    job = write(tmp_path, HOLDS)
    result = run(installed(name), tmp_path, "sh", "-c",
                 f"'{PYTHON}' '{job}' && echo \"$EBB_SOCKET\"; exit 3")
    assert (result.returncode, result.stderr) == (3, "")
    assert where(heap(tmp_path / "run")["rows"][0]) == (str(job), 3)
    assert not os.path.exists(os.path.dirname(result.stdout.strip()))


@not_sanitized
def test_nested_ebb_runs_add_each_search_path_only_once(tmp_path, installed):
    program = installed("a: b")
    look = [PYTHON, "-c", "import os, json; print(json.dumps([os.environ[v] for v in "
            "('PYTHONPATH', 'LD_PRELOAD')]))"]
    result = run(program, tmp_path, str(program), "run", "-q", "--no-record", "--", *look)
    assert (result.returncode, result.stderr) == (0, "")
    for value in json.loads(result.stdout):
        assert "ebb-" in value and ":" not in value and " " not in value


def test_job_is_not_profiled_if_install_and_temp_paths_have_spaces(tmp_path, installed, open_folder):
    spaced = open_folder / "t m p"  # A short name: socket paths below it are limited to 108 bytes.
    spaced.mkdir()
    result = run(installed("a b"), tmp_path, "sh", "-c", "echo ${LD_PRELOAD-unset}; exit 3",
                 env={"XDG_RUNTIME_DIR": None, "TMPDIR": str(spaced)})
    assert (result.returncode, result.stdout) == (3, "unset\n")
    assert result.stderr.startswith("ebb: the job's heap is not profiled: LD_PRELOAD cannot contain the path ")
    assert "; set XDG_RUNTIME_DIR or TMPDIR to a folder without spaces or colons" in result.stderr
    assert result.stderr.count("\n") == 1
    assert refused_with(run_ebb("heap", tmp_path / "run"), "has no heap profile: LD_PRELOAD cannot contain the path")


def test_killed_supervisor_leaves_no_link_to_the_heap_library(tmp_path, installed):
    with subprocess.Popen([installed("a b"), "run", "-q", "--run-dir", tmp_path / "run", "--", "sh",
                           "-c", "echo $PPID $EBB_SOCKET; exec sleep 600"], cwd=tmp_path,
                          env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as client:
        supervisor, socket = client.stdout.readline().split(maxsplit=1)
        folder = os.path.dirname(socket)
        assert os.path.islink(os.path.join(folder, "heap"))
        os.kill(int(supervisor), signal.SIGKILL)
        assert client.wait(PATIENCE_S) == 125
    wait_for(lambda: not os.path.exists(folder), "the folder of the sockets to be removed")
    assert facts(tmp_path / "run")["end"]["kind"] == "lost"
