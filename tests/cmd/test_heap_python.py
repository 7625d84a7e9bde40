"""Python under the preloaded library: its stacks to the line, its small objects, its forks.

EBB_TEST_PYTHONS has the interpreters to run, between colons.
"""

import json
import math
import os
import pathlib
import subprocess

import pytest

from commands import PATIENCE_S, PYTHON, ROOT, environment, wait_for
from heap_table import Receiver

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build"))
PRELOAD = BUILD / "libebb-heap.so"
STACKS = ROOT / "tests" / "cmd" / "heap_stacks.py"
BYTES_HEADER = 33
STACK_MAX = 192
KIND_PYTHON = 3

pytestmark = pytest.mark.skipif(not PRELOAD.exists(), reason=f"{PRELOAD} was not built")


@pytest.fixture(params=os.environ.get("EBB_TEST_PYTHONS", PYTHON).split(":"))
def python(request):
    return request.param


@pytest.fixture
def receiver(open_folder):
    receiver = Receiver(open_folder)
    yield receiver
    receiver.close()


class Profiled:
    """A Python program under the preload, up to the first line it prints; it reads its input."""

    def __init__(self, receiver, python, *arguments, **variables):
        env = {"LD_PRELOAD": str(PRELOAD), "EBB_SOCKET": receiver.path, "PYTHONUTF8": "1"}
        self.process = subprocess.Popen([python, *arguments], env=environment({**env, **variables}),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8")
        self.pid, self.table = receiver.receive(PATIENCE_S)
        self.line = self.process.stdout.readline()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def stacks_by_size(table, python, least):
    """(file, name, line) innermost first, of the samples of at least LEAST bytes."""
    samples = [sample for sample in table.live() if sample.size >= least]
    stacks = table.python_stacks(python, {sample.site for sample in samples})
    return {sample.size: stacks[sample.site] for sample in samples}


def weight(sample):
    return sample.size / -math.expm1(-sample.size / sample.interval)


def deviation(samples):
    """Of the sum of their weights, as the samples themselves have it."""
    return math.sqrt(sum(weight(s) ** 2 * math.exp(-s.size / s.interval) for s in samples))


def test_every_stack_is_exact_in_file_function_and_line(receiver, python):
    with Profiled(receiver, python, str(STACKS)) as job:
        wanted = {int(size): list(map(tuple, stack)) for size, stack in json.loads(job.line).items()}
        assert job.table.header()["python_state"] == "ok"
        found = stacks_by_size(job.table, python, min(wanted))
        assert len(wanted) > 60
        for size, stack in wanted.items():
            got = found.get(size, found.get(size + BYTES_HEADER))
            if len(stack) < STACK_MAX / 2:
                assert got == stack
            else:
                assert len(got) > STACK_MAX / 2 and got == stack[:len(got)]
        assert job.end() == 0


LEAK = """
import sys, time
keep = [None] * 150000
def leak(start, end):
    for i in range(start, end):
        keep[i] = {"key": None}
for i in range(30):
    leak(i * 5000, (i + 1) * 5000)
    time.sleep(0.03)
print(sum(map(sys.getsizeof, keep)), flush=True)
sys.stdin.read()
"""


def leaked(job, python):
    """The samples of the leaking line."""
    samples = job.table.live()
    stacks = job.table.python_stacks(python, {sample.site for sample in samples})
    line = LEAK.split("\n").index('        keep[i] = {"key": None}') + 1
    where = [("<string>", "leak", line), ("<string>", "<module>", line + 2)]
    return [s for s in samples if stacks[s.site] == where]


def test_a_leak_of_small_objects_is_seen_with_its_line(receiver, python):
    with Profiled(receiver, python, "-c", LEAK, EBB_HEAP="interval=65536,python=1") as job:
        truth = int(job.line)
        samples = leaked(job, python)
        assert truth > 25e6 and job.table.header()["python_small"]
        estimate = sum(map(weight, samples))
        assert abs(estimate - truth) < 5 * deviation(samples)
        assert estimate > truth / 3
        assert {sample.kind for sample in samples} == {KIND_PYTHON}
        assert job.end() == 0


def test_small_objects_are_not_counted_when_that_is_not_wanted(receiver, python):
    with Profiled(receiver, python, "-c", LEAK, EBB_HEAP="interval=65536,python=0") as job:
        kinds = {sample.kind for sample in job.table.live()}
        assert KIND_PYTHON not in kinds and not job.table.header()["python_small"]
        assert job.table.header()["python_state"] == "ok"
        assert job.end() == 0


@pytest.mark.parametrize("allocator", ["malloc", "debug", "pymalloc_debug"])
def test_no_other_allocator_than_pymalloc_is_wrapped(receiver, python, allocator):
    with Profiled(receiver, python, "-c", LEAK, PYTHONMALLOC=allocator) as job:
        assert not job.table.header()["python_small"]
        assert job.table.header()["python_state"] == "ok"
        samples = leaked(job, python)
        estimate = sum(map(weight, samples))
        # With malloc each object is counted; with debugging pymalloc its arenas are.
        arenas = [s for s in job.table.live() if s.kind == 2]
        counted = estimate if allocator == "malloc" else sum(map(weight, arenas))
        assert counted > int(job.line) / 3
        assert job.end() == 0


def test_arenas_are_not_counted_beside_the_objects_in_them(receiver, python):
    with Profiled(receiver, python, "-c", LEAK, EBB_HEAP="interval=65536") as job:
        assert job.table.header()["python_small"]
        arenas = [s for s in job.table.live() if s.kind == 2 and s.size in (1 << 20, 256 << 10)]
        assert sum(map(weight, arenas)) < int(job.line) / 3
        assert job.end() == 0


TRACED = """
import gc, sys, tracemalloc
def fill(n):
    return [{"key": [i]} for i in range(n)]
old = fill(50000)
tracemalloc.start()
traced = fill(50000)
size, _ = tracemalloc.get_traced_memory()
assert size > 5e6, size
del old
tracemalloc.stop()
later = fill(50000)
del traced
gc.collect()
tracemalloc.start()
del later
tracemalloc.stop()
print("whole", flush=True)
sys.stdin.read()
"""


def test_tracemalloc_comes_and_goes_in_front(receiver, python):
    with Profiled(receiver, python, "-c", TRACED, EBB_HEAP="interval=4096") as job:
        assert job.line == "whole\n"
        assert job.table.header()["python_small"]
        assert job.end() == 0


RESIZED = """
import sys
lists, arrays = [], []
for i in range(20000):
    items = []
    for k in range(i % 40):
        items.append(k)
    lists.append(items)
    text = bytearray()
    for k in range(i % 30):
        text += bytes(k)
    arrays.append(text)
assert all(items == list(range(i % 40)) for i, items in enumerate(lists))
assert all(len(text) == sum(range(i % 30)) for i, text in enumerate(arrays))
lists.clear()
arrays.clear()
print("whole", flush=True)
sys.stdin.read()
"""


def test_sampled_objects_are_resized_and_freed_by_pymalloc(receiver, python):
    with Profiled(receiver, python, "-c", RESIZED, EBB_HEAP="interval=512") as job:
        assert job.line == "whole\n"
        assert job.table.header()["python_small"]
        assert job.end() == 0


FORKED = """
import os, sys
def in_parent():
    return bytes(64 << 20)
def in_child():
    return bytes(96 << 20)
block = in_parent()
child = os.fork()
if child == 0:
    block = in_child()
    objects = [{"key": i} for i in range(100000)]
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_notes_its_functions_anew(receiver, python):
    with Profiled(receiver, python, "-c", FORKED) as job:
        pid, table = receiver.receive(PATIENCE_S)
        assert pid == int(job.line) and pid != job.pid
        header = wait_for(lambda: table.header()["python_state"] == "ok" and table.header(), "ok")
        assert header["python_small"]
        line = FORKED.split("\n").index("    block = in_child()") + 1
        stacks = stacks_by_size(table, python, 96 << 20)
        assert list(stacks.values()) == [
            [("<string>", "in_child", 6), ("<string>", "<module>", line)]
        ]
        assert job.end() == 0


IMPORTS = """
import sys, json
import argparse, asyncio, concurrent.futures, ctypes, decimal, http.client, sqlite3, unittest
import xml.dom.minidom
print(len(sys.modules), flush=True)
sys.stdin.read()
"""


def test_the_interpreter_ends_as_without_it(receiver, python):
    with Profiled(receiver, python, "-X", "dev", "-c", IMPORTS) as job:
        assert int(job.line) > 100 and job.end() == 0
    with Profiled(receiver, python, "-c", IMPORTS, EBB_HEAP="interval=256") as job:
        assert int(job.line) > 100 and job.end() == 0
