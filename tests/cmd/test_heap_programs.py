"""Tests that `ebb run` does not break programs that conflict with a preloaded library."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from commands import PATIENCE_S, binary, environment

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", pathlib.Path(binary()).parent))
PROGRAMS = BUILD / "tests" / "heap_programs"

SANITIZED = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    char *volatile p[64];
    for (int i = 0; i < 64; i++)
        p[i] = malloc(1 << 20);
    for (int i = 0; i < 64; i++)
        free(p[i]);
    p[0] = malloc(100);
    if (argc > 1) {
        free(p[0]);
        p[1] = realloc(p[0], 1000);
    }
    free(p[argc > 1]);
    puts("done");
    (void)argv;
    return 0;
}
"""


@pytest.fixture
def run(tmp_path):
    def call(*command, options=()):
        return subprocess.run([binary(), "run", "--quiet", "--no-terminal", "--run-dir",
                               tmp_path / "run", *options, "--", *map(str, command)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=environment({}), timeout=4 * PATIENCE_S)
    return call


def compiled(folder, text, *flags, suffix=".c"):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler is installed")
    source = folder / f"program{suffix}"
    source.write_text(text)
    program = folder / "program"
    made = subprocess.run([compiler, source, "-o", program, *flags], capture_output=True, text=True,
                          timeout=4 * PATIENCE_S)
    if made.returncode:
        pytest.skip(f"does not compile with {flags}: {made.stderr.strip().splitlines()[-1]}")
    plain = subprocess.run([program], env=environment({}), capture_output=True, text=True,
                           timeout=4 * PATIENCE_S)
    if (plain.returncode, plain.stdout) != (0, "done\n"):
        pytest.skip(f"does not run with {flags} here: {plain.stderr.strip()[:200]}")
    return program


@pytest.mark.parametrize("kind", ["address", "thread", "leak", "undefined"])
def test_program_built_with_sanitizers_runs_as_job_or_as_child(run, tmp_path, kind):
    program = compiled(tmp_path, SANITIZED, "-O0", "-g", f"-fsanitize={kind}")
    child = run("/bin/sh", "-c", f"{program}; exit $?", options=("--no-record",))
    if "ThreadSanitizer: unexpected memory mapping" in child.stderr:
        pytest.skip("does not start at every load address on this machine")
    assert (child.returncode, child.stdout, child.stderr) == (0, "done\n", "")
    itself = run(program)
    if "ThreadSanitizer: unexpected memory mapping" in itself.stderr:
        pytest.skip("does not start at every load address on this machine")
    assert (itself.returncode, itself.stdout) == (0, "done\n")
    heap = json.loads((tmp_path / "run" / "run.json").read_text())["heap"]
    if kind == "undefined":
        assert heap["on"] and itself.stderr == ""
    else:
        assert not heap["on"] and "sanitizer" in heap["trouble"]
        assert itself.stderr.count("\n") == 1 and "sanitizer" in itself.stderr


def test_sanitizer_reports_of_a_child_are_unchanged_under_ebb(run, tmp_path):
    program = compiled(tmp_path, SANITIZED, "-O0", "-g", "-fsanitize=address")
    plain = subprocess.run([program, "wrong"], env=environment({}), capture_output=True, text=True,
                           timeout=4 * PATIENCE_S)
    child = run("/bin/sh", "-c", f"{program} wrong; exit $?")
    errors = [[line.split("ERROR: ")[1].split(" on ")[0] for line in r.stderr.splitlines()
               if "ERROR: " in line] for r in (plain, child)]
    assert plain.returncode == child.returncode != 0
    assert errors[0] == errors[1] and len(errors[0]) == 1


def test_program_under_a_strict_seccomp_filter_is_not_killed(run):
    plain = subprocess.run([PROGRAMS / "sandboxed"], env=environment({}), capture_output=True,
                           text=True, timeout=4 * PATIENCE_S)
    if plain.returncode == 77:
        pytest.skip("this machine allows no seccomp filters")
    result = run(PROGRAMS / "sandboxed")
    assert (plain.returncode, plain.stdout) == (0, "done\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_operator_new_in_a_thread_during_library_load_does_not_hang(run):
    result = run(PROGRAMS / "late", PROGRAMS / "module_starter.so")
    assert (result.returncode, result.stdout, result.stderr) == (0, "10\n", "")
