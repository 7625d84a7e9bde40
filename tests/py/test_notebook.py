"""Tests %%ebb in a real IPython and in a real Jupyter kernel."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

from jobs import PACKAGE, PATIENCE_S, binary, environment, wait_for

pytest.importorskip("IPython", reason="IPython is not installed")

LIBRARY = pathlib.Path(binary()).resolve().parent / "libebb-heap.so"
needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built")


@pytest.fixture
def shell(monkeypatch):
    """A new IPython in this process, with the %%ebb magic."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("EBB_BINARY", str(binary()))
    one = InteractiveShell()
    one.run_cell("%load_ext ebb")
    yield one
    one.run_cell("%unload_ext ebb")


@pytest.fixture
def shown(monkeypatch):
    found = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


def test_cell_can_set_notebook_variables_and_its_memory_is_shown(shell, shown):
    shell.run_cell("%%ebb\nkept = bytearray(64 << 20)\nn = len(kept)")
    assert shell.user_ns["n"] == 64 << 20
    summary, = shown
    first, last = summary.samples[0][1], summary.samples[-1][1]
    assert last - first > 60 << 20
    assert summary.text().startswith("ebb  ") and "resident" in repr(summary)
    assert "<svg" in summary._repr_html_() and "no verdict" not in summary.verdict


def test_summary_of_a_cell_contains_its_number_of_steps(shell, shown):
    shell.run_cell("%%ebb\nimport ebb\nfor n in range(1, 41): ebb.step(n)")
    summary, = shown
    assert summary.steps == 40 and "40 steps" in summary.text()


@needs_library
def test_cell_output_shows_the_growing_line(shell, shown):
    shell.run_cell("%%ebb\nsize = 1000\nkept = [bytes(size) for _ in range(5000)]")
    summary, = shown
    assert summary.lines[0].endswith("MiB  cell:3  kept = [bytes(size) for _ in range(5000)]")


def test_indented_cell_and_cell_with_a_second_magic_can_run(shell, shown, capsys):
    shell.run_cell("%%ebb --no-lines\n%%capture out\nprint('inside')")
    shell.run_cell("%%ebb --no-lines\n    a = 1\n    b = 2")
    assert shell.user_ns["out"].stdout == "inside\n" and shell.user_ns["b"] == 2
    assert len(shown) == 2 and capsys.readouterr().err == ""


@needs_library
def test_line_that_allocates_native_memory_in_a_cell_is_named(shell, shown):
    pytest.importorskip("numpy", reason="numpy is not installed")
    shell.run_cell("import numpy")
    shell.run_cell("%%ebb\nkept = [numpy.ones(1 << 16) for _ in range(64)]")
    summary, = shown
    assert "kept = [numpy.ones(" in summary.lines[0]


@needs_library
def test_profiler_is_detached_after_a_cell(shell, shown):
    from attached import state, state_after
    shell.run_cell("%%ebb\n1")
    before = state()
    shell.run_cell("%%ebb\nkept = bytearray(1 << 20)")
    assert state_after(before) == before and before["tables"] == 0 and before["threads"] == []


def test_option_no_lines_of_the_cell_magic_hides_source_lines(shell, shown):
    shell.run_cell("%%ebb --no-lines\nkept = [bytes(1000) for _ in range(5000)]")
    assert shown[0].lines == []


def test_memory_of_a_cell_is_shown_even_if_the_cell_raises(shell, shown, capsys):
    shell.run_cell("%%ebb\nkept = 1\n1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert len(shown) == 1


def test_cell_is_not_run_if_the_magic_has_an_unknown_option(shell, shown, capsys):
    shell.run_cell("%%ebb --nonsense\nran = True")
    assert "--nonsense" in capsys.readouterr().err
    assert "ran" not in shell.user_ns and shown == []


def test_cell_summary_has_no_verdict_if_the_ebb_program_is_missing(shell, shown, monkeypatch):
    monkeypatch.setenv("EBB_BINARY", "/nowhere/ebb")
    shell.run_cell("%%ebb\n1")
    assert "no verdict" in shown[0].verdict


def test_cell_leaves_no_thread_behind(shell, shown):
    import threading
    before = threading.active_count()
    shell.run_cell("%%ebb\n1")
    assert threading.active_count() == before


def test_notebook_cell_shows_a_memory_plot(tmp_path):
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cells = ["%load_ext ebb", "%%ebb\nkept = bytearray(32 << 20)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    env = environment({"PYTHONPATH": PACKAGE, "EBB_BINARY": binary()})
    client.NotebookClient(book, timeout=PATIENCE_S, kernel_name="python3").execute(env=env)
    output, = book.cells[1].outputs
    assert "<svg" in output["data"]["text/html"]
    assert output["data"]["text/plain"].startswith("ebb  ")


def test_killed_notebook_kernel_leaves_no_file_and_no_process(tmp_path):
    """Restarting the kernel kills it, possibly in the middle of a cell."""
    code = """
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("%load_ext ebb")
shell.run_cell("%%ebb\\nprint('runs', flush=True)\\nimport time\\nwhile True: time.sleep(1)")
"""
    env = environment({"PYTHONPATH": PACKAGE, "EBB_BINARY": binary(), "TMPDIR": tmp_path,
                       "IPYTHONDIR": tempfile.mkdtemp(dir=tmp_path)})
    kernel = subprocess.Popen([sys.executable, "-c", code], env=env, text=True, cwd=tmp_path,
                              stdout=subprocess.PIPE, start_new_session=True)
    for line in kernel.stdout:
        if line.strip() == "runs":
            break
    kernel.kill()
    assert kernel.wait(PATIENCE_S) == -signal.SIGKILL
    wait_for(lambda: not members(kernel.pid), "the end of all processes of the kernel")
    # the process that collects samples removes its folder when the kernel's pipe closes
    wait_for(lambda: not [name for name in os.listdir(tmp_path) if name.startswith("ebb")],
             "the removal of all files")


def members(session):
    """Returns the processes of a session."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == session:
                found.append(int(pid))
        except OSError:
            pass
    return found
