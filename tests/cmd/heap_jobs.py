"""Runs programs under `ebb run` and reads the output of `ebb heap`, for tests."""

import json
import pathlib
import shutil
import subprocess
import textwrap

import pytest

from commands import IS_SANITIZED, PATIENCE_S, PYTHON, binary, environment, plain, run_ebb

LIBRARY = pathlib.Path(binary()).resolve().parent / "libebb-heap.so"

# Prepended to Python programs under test; step(n) sends a mark for step n.
STEPS = """
import os, socket
_marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def step(n):
    _marks.sendto(f"KIND=step\\nSTEP={n}\\n".encode(), os.environ["EBB_SOCKET"])
"""

needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built")


def not_sanitized(test):
    reason = "a sanitizer's runtime requires to be the first preloaded library"
    return plain(pytest.mark.skipif(IS_SANITIZED, reason=reason)(test))


def write(folder, text, name="job.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def line_of(path, text):
    """Returns the number of the line that contains TEXT; TEXT must occur in exactly one line."""
    numbers = [n for n, line in enumerate(path.read_text().split("\n"), 1) if text in line]
    assert len(numbers) == 1, (text, numbers)
    return numbers[0]


def compiled(folder, source, *flags, name="program"):
    """Compiles a C program; skips the test if that fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler is installed")
    path = write(folder, source, f"{name}.c")
    made = subprocess.run([compiler, "-g", "-o", str(folder / name), str(path), *flags],
                          stderr=subprocess.PIPE, text=True)
    if made.returncode != 0:
        pytest.skip(f"{' '.join(flags)}: {made.stderr.splitlines()[-1]}")
    return folder / name


def run_job(folder, *command, flags=(), env=None):
    """Runs a command under ebb until it exits; returns the result, with the run folder as .run."""
    run = folder / "run"
    result = subprocess.run([binary(), "run", "--json", "--run-dir", str(run), "--no-shim", *flags,
                             "--", *map(str, command)], cwd=folder, env=environment(env),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    result.run = run
    return result


def start_job(folder, *command, flags=(), env=None):
    """Starts a command under ebb. The stdout of the returned process is that of the job."""
    return subprocess.Popen([binary(), "run", "-q", "--run-dir", str(folder / "run"), "--no-shim",
                             *flags, "--", *map(str, command)], cwd=folder, env=environment(env),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def heap(run, *flags):
    """Returns the parsed output of `ebb heap --json`."""
    result = run_ebb("heap", run, "--json", *flags)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def where(row):
    """Returns the file and line of a row."""
    return row["where"]["file"], row["where"]["line"]


def held(doc, path, line):
    """Returns the live bytes allocated by a source line."""
    return sum(row["live"]["bytes"] for row in doc["rows"] if where(row) == (str(path), line))


def facts(run):
    return json.loads((run / "run.json").read_text())


def heap_files(run):
    return sorted(path.name for path in run.glob("heap.*.ebbheap"))


def run_python(folder, text, **options):
    """Runs a Python program until it exits; returns the result and the path of the program."""
    path = write(folder, text)
    result = run_job(folder, PYTHON, path, **options)
    return result, path
