"""Tests that allocations in a library are attributed to the function of the program that called the library."""

import os
import re

import pytest

from commands import PYTHON, run_ebb
from heap_jobs import STEPS, heap, line_of, needs_library, run_job, write

pytestmark = needs_library

PARTS = 20
# This package allocates at many lines, each of which allocates little.
LIBRARY = "kept = []\n" + "".join(
    f"def part_{i}():\n    kept.append(bytearray(1 << 18))\n" for i in range(PARTS)) + f"""
def figure():
    for i in range({PARTS}):
        globals()[f"part_{{i}}"]()
def table(size):
    return bytearray(size)
"""

CALLBACK = """
import time, plots
class Callback:
    def on_evaluate(self):
        plots.figure()  # DRAWS
def evaluate(callback):
    callback.on_evaluate()
def main():
    for n in range(1, 71):
        evaluate(Callback())
        step(n)
        time.sleep(0.1)
main()
"""


def installed(folder):
    packages = folder / "lib" / "python3" / "site-packages"
    (packages / "plots").mkdir(parents=True)
    (packages / "plots" / "__init__.py").write_text(LIBRARY)
    return packages


def run_with(folder, *command, path=()):
    """Runs a job that uses the package. Every MiB is almost certainly sampled."""
    packages = installed(folder)
    result = run_job(folder, *command, flags=["--heap-interval", "64KiB"],
                     env={"PYTHONPATH": os.pathsep.join([str(packages), *map(str, path)])})
    assert result.returncode == 0, result.stderr
    result.packages = packages
    return result


# ---- many library lines called by one function ----

@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    path = write(folder, STEPS + CALLBACK)
    result = run_with(folder, PYTHON, path)
    result.path = path
    return result


def test_library_lines_called_by_one_user_function_share_a_heap_row(drawn):
    doc = heap(drawn.run)
    first = doc["rows"][0]
    own, places = first["in_program"], first["places"]
    assert own["function"].endswith("on_evaluate") and own["own"]
    assert (own["file"], own["line"]) == (str(drawn.path), line_of(drawn.path, "# DRAWS"))
    assert [frame["function"] for frame in first["callers"]] == ["evaluate", "main"]
    # With few samples, a line may be missing.
    assert PARTS / 2 < first["place_count"] <= PARTS and len(places) == 3
    for frame in (first["where"], *(place["where"] for place in places)):
        assert frame["file"].startswith(str(drawn.packages)) and not frame["own"]
    assert places[0]["growth_bytes"] >= places[1]["growth_bytes"] >= places[2]["growth_bytes"] > 0
    assert sum(place["growth_bytes"] for place in places) < first["growth_bytes"]
    assert first["live"]["bytes"] <= doc["live"]["bytes"]


def test_heap_grouped_by_location_has_one_row_per_source_line(drawn):
    rows = heap(drawn.run, "--by", "location", "--top", PARTS)["rows"]
    assert {row["where"]["function"] for row in rows} == {f"part_{i}" for i in range(PARTS)}
    assert all(row["in_program"]["function"].endswith("on_evaluate") for row in rows)
    assert not any("place_count" in row for row in rows)


def test_heap_grouped_by_program_has_one_row_per_user_function(drawn):
    first = heap(drawn.run, "--by", "program")["rows"][0]
    assert first["where"] == first["in_program"] and first["stacks"] >= PARTS
    assert first["where"]["function"].endswith("on_evaluate")


def test_heap_text_lists_callers_and_largest_lines_of_a_function(drawn):
    text = run_ebb("heap", drawn.run).stdout
    count = heap(drawn.run)["rows"][0]["place_count"]
    assert "on_evaluate\n" in text and "← job.py:" in text and " evaluate" in text
    assert f"and {count - 3} more lines\n" in text and "plots/__init__.py:" in text


def test_same_function_is_named_in_summary_and_diagnosis_and_report(drawn):
    assert "on_evaluate" in drawn.stderr
    doc = run_ebb("diagnose", drawn.run).stdout
    assert re.search(r"on_evaluate, through \d+ lines", " ".join(doc.split())), doc
    page = drawn.run / "report.html"
    assert run_ebb("report", drawn.run, "-o", page).returncode == 0
    place = f"{drawn.path}:{line_of(drawn.path, '# DRAWS')} Callback.on_evaluate, through "
    assert place in page.read_text()


def test_heap_exports_have_complete_stacks(drawn):
    lines = run_ebb("export", drawn.run, "--collapsed").stdout.splitlines()
    for i in range(PARTS):
        stacks = [line for line in lines if f"part_{i} " in line or f"part_{i};" in line]
        assert stacks, i
        for stack in stacks:
            calls = [stack.index(name) for name in ("main", "evaluate", "on_evaluate", "figure", f"part_{i}")]
            assert calls == sorted(calls), stack


# ---- ways to run user code ----

DECORATED = """
import functools
def keep(function):
    @functools.wraps(function)
    def wrapper():
        kept.append(function())
    return wrapper
@keep
def load():
    return plots.table(2 << 20)  # HERE
call = load
"""
GENERATOR = """
def tables():
    while True:
        kept.append((yield plots.table(2 << 20)))  # HERE
source = tables()
call = lambda: kept.append(next(source))
"""
LAMBDA = """
make = lambda: plots.table(2 << 20)  # HERE
call = lambda: kept.append(make())
"""
COMPREHENSION = """
def batch():
    kept.extend([plots.table(1 << 20) for _ in range(2)])  # HERE
call = batch
"""
INHERITED = """
class Base:
    def run(self):
        kept.append(self.make())
class Made(Base):
    def make(self):
        return plots.table(2 << 20)  # HERE
call = Made().run
"""
THREAD = """
import threading
def work():
    kept.append(plots.table(2 << 20))  # HERE
def call():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
# The program exits without freeing its memory, so the final heap contains it.
CALLED = "import os, plots\nkept = []\n{}\nfor _ in range(10):\n    call()\nos._exit(0)\n"


@pytest.mark.parametrize("text, function", [
    (DECORATED, "load"), (GENERATOR, "tables"), (LAMBDA, "<lambda>"), (COMPREHENSION, "batch"),
    (INHERITED, "make"), (THREAD, "work")],
    ids=["decorated", "generator", "lambda", "comprehension", "inherited", "thread"])
def test_first_heap_row_names_the_user_function_that_called_a_library(tmp_path, text, function):
    path = write(tmp_path, CALLED.format(text))
    first = heap(run_with(tmp_path, PYTHON, path).run)["rows"][0]
    own = first["in_program"]
    assert first["where"]["function"] == "table"
    assert own["function"].split(".")[-1] == function
    assert (own["file"], own["line"]) == (str(path), line_of(path, "# HERE"))


def test_code_executed_by_the_exec_function_is_treated_as_user_code(tmp_path):
    path = write(tmp_path, CALLED.format("""
cell = "def collect():\\n    kept.append(plots.table(2 << 20))\\n"
exec(compile(cell, "<cell 1>", "exec"))
call = collect
"""))
    own = heap(run_with(tmp_path, PYTHON, path).run)["rows"][0]["in_program"]
    assert (own["file"], own["line"], own["function"]) == ("<cell 1>", 2, "collect")


def test_package_started_by_python_dash_m_is_treated_as_user_code(tmp_path):
    source = tmp_path / "source"
    (source / "trainer").mkdir(parents=True)
    (source / "trainer" / "__init__.py").touch()
    path = write(source / "trainer", CALLED.format(INHERITED), "__main__.py")
    own = heap(run_with(tmp_path, PYTHON, "-m", "trainer", path=[source]).run)["rows"][0]["in_program"]
    assert (own["file"], own["line"]) == (str(path), line_of(path, "# HERE"))


def test_allocation_outside_functions_is_attributed_to_module_level(tmp_path):
    path = write(tmp_path, "import os\nkeep = bytes(20 << 20)\nos._exit(0)\n")
    first = heap(run_with(tmp_path, PYTHON, path).run)["rows"][0]
    assert (first["in_program"]["function"], first["in_program"]["line"]) == ("<module>", 2)
    assert first["callers"] == []
