"""Tests every Python version from 3.9 on: the package's marks arrive, and the profiler names the leaking line. Versions
that are not installed are skipped."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = [f"3.{minor}" for minor in range(9, 15)] + ["3.13t", "3.14t"]
PROGRAM = """import ebb
kept = []
def keep():
    kept.append(bytearray(1_000_000))
for n in range(40):
    keep()
    ebb.step(n)
"""


def find_python(version):
    """Searches for the interpreter on PATH and in the folders of pyenv and uv. Returns the path of the interpreter
    itself, not of a launcher script."""
    home = pathlib.Path.home()
    pattern = f"{version[:-1]}.*t" if version.endswith("t") else f"{version}.*[0-9]"
    managed = [*home.glob(f".pyenv/versions/{pattern}/bin/python"),
               *home.glob(f".local/share/uv/python/cpython-{version}*/bin/python{version}")]
    for path in [shutil.which(f"python{version}"), *map(str, managed)]:
        # pyenv puts launcher scripts on PATH. The launcher of a version fails unless that version is active.
        command = [path or "false", "-c", "import sys; print(sys.executable)"]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_marks_and_leaking_line_are_recorded_with_each_python_version(version, tmp_path):
    python = find_python(version)
    if not python:
        pytest.skip(f"Python {version} is not installed")
    (tmp_path / "train.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    ebb = os.environ["EBB_BINARY"]
    run = subprocess.run([ebb, "run", "--run-dir", "run", "--", python, "train.py"], check=False,
                         cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    marks = json.loads((tmp_path / "run" / "run.json").read_text())["marks"]
    assert marks["last_step"] == 39
    heap = subprocess.run([ebb, "heap", "run"], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert heap.returncode == 0, heap.stderr
    # Frames of free-threaded Python cannot be read (docs/reference/heap.md).
    if version.endswith("t"):
        assert "train.py:4" not in heap.stdout
    else:
        assert "train.py:4 keep" in heap.stdout
