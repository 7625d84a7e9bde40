"""Tests Python programs under the preloaded library: exact stacks, small objects and forks. EBB_TEST_PYTHONS is a
colon-separated list of interpreters."""

import json
import math
import os
import pathlib
import shutil
import subprocess

import pytest

from commands import PATIENCE_S, PYTHON, ROOT, environment, wait_for
from heap_table import Receiver, with_filters

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build"))
PRELOAD = BUILD / "libebb-heap.so"
STACKS = ROOT / "tests" / "cmd" / "heap_stacks.py"
BYTES_HEADER = 33
STACK_MAX = 192
KIND_PYTHON = 3
PYTHON_FRAME = 1 << 63

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
    """Starts a Python program under the preloaded library and reads its first line. The program then waits for
    input."""

    def __init__(self, receiver, python, *arguments, **variables):
        settings = with_filters(variables.pop("EBB_HEAP", ""))
        env = {"LD_PRELOAD": str(PRELOAD), "EBB_SOCKET": receiver.path, "PYTHONUTF8": "1",
               "EBB_HEAP": settings}
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
    """Returns {size: stack} for the samples of at least LEAST bytes. A stack is a list of (file, function, line),
    innermost frame first."""
    samples = [sample for sample in table.live() if sample.size >= least]
    stacks = table.python_stacks(python, {sample.site for sample in samples})
    return {sample.size: stacks[sample.site] for sample in samples}


def weight(sample):
    return sample.size / -math.expm1(-sample.size / sample.interval)


def deviation(samples):
    """Returns the standard deviation of the summed weights of the samples."""
    return math.sqrt(sum(weight(s) ** 2 * math.exp(-s.size / s.interval) for s in samples))


def test_python_stacks_have_exact_file_function_and_line(receiver, python):
    with Profiled(receiver, python, str(STACKS)) as job:
        printed = json.loads(job.line)
        wanted = {int(size): list(map(tuple, stack)) for size, stack in printed.items()}
        assert job.table.header()["python_state"] == "ok"
        found = stacks_by_size(job.table, python, min(wanted))
        # After the machine was suspended or busy, a burst of allocations may exceed the sample rate.
        assert len(wanted) > 60 and len(found) > len(wanted) * 0.9
        for size, got in found.items():
            stack = wanted.get(size) or wanted[size - BYTES_HEADER]
            if len(stack) < STACK_MAX / 2:
                assert got == stack
            else:
                assert len(got) > STACK_MAX / 2 and got == stack[:len(got)]
        assert job.end() == 0


CALLED_BACK = """
import ctypes, sys
libc = ctypes.CDLL(None)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compare(a, b):
    blocks.append(bytes(64 << 20))
    return 0
def sort():
    libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare)
blocks = []
sort()
print(flush=True)
sys.stdin.read()
"""


def test_c_frames_keep_their_position_between_python_frames(receiver, python):
    with Profiled(receiver, python, "-c", CALLED_BACK) as job:
        sites = {sample.site for sample in job.table.live() if sample.size > 64 << 20}
        assert len(sites) == 1
        words = job.table.stack(sites.pop())
        names = [job.table.code(word >> 32 & 0x7FFFFFFF).name if word & PYTHON_FRAME else
                 os.path.basename(job.table.module(word)) for word in words]
        first, second, last = (names.index(name) for name in ("compare", "sort", "<module>"))
        assert first < second < last
        between = names[first + 1:second]
        assert any(name.startswith("libc.so") for name in between), names
        # Interpreter frames between two Python functions are left out.
        assert not any(name.startswith(("python", "libpython")) for name in between), names
        assert last == second + 1
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
    """Returns the samples of the leaking line."""
    samples = job.table.live()
    stacks = job.table.python_stacks(python, {sample.site for sample in samples})
    line = LEAK.split("\n").index('        keep[i] = {"key": None}') + 1
    where = [("<string>", "leak", line), ("<string>", "<module>", line + 2)]
    return [s for s in samples if stacks[s.site] == where]


def test_leak_of_small_python_objects_is_shown_with_its_line(receiver, python):
    with Profiled(receiver, python, "-c", LEAK, EBB_HEAP="interval=65536,python=1") as job:
        truth = int(job.line)
        samples = leaked(job, python)
        assert truth > 25e6 and job.table.header()["python_small"]
        estimate = sum(map(weight, samples))
        assert abs(estimate - truth) < 7 * deviation(samples)
        assert estimate > truth / 3
        assert {sample.kind for sample in samples} == {KIND_PYTHON}
        assert job.end() == 0


ARENAS = """
import sys
made = [{"key": None} for i in range(200000)]
size = sum(map(sys.getsizeof, made))
made = {"all": made, "some": made[::16], "none": None}[sys.argv[1]]
large = bytes(8 << 20)
print(size, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kept", ["all", "some", "none"])
def test_python_arena_with_at_least_one_live_object_is_counted(receiver, python, kept):
    with Profiled(receiver, python, "-c", ARENAS, kept, EBB_HEAP="interval=4096,python=1") as job:
        made = int(job.line)
        counted = job.table.header()["python_arena_bytes"]
        assert made > 12e6
        assert counted < made / 2 if kept == "none" else 0.9 * made < counted < 2 * made
        assert job.end() == 0


def test_sampling_of_small_python_objects_can_be_disabled(receiver, python):
    with Profiled(receiver, python, "-c", LEAK, EBB_HEAP="interval=65536,python=0") as job:
        kinds = {sample.kind for sample in job.table.live()}
        assert KIND_PYTHON not in kinds and not job.table.header()["python_small"]
        assert not job.table.header()["python_arena_bytes"]
        assert job.table.header()["python_state"] == "ok"
        assert job.end() == 0


@pytest.mark.parametrize("allocator", ["malloc", "debug", "pymalloc_debug"])
def test_profiler_wraps_pymalloc_but_no_other_python_allocator(receiver, python, allocator):
    with Profiled(receiver, python, "-c", LEAK, PYTHONMALLOC=allocator) as job:
        assert not job.table.header()["python_small"]
        assert job.table.header()["python_state"] == "ok"
        samples = leaked(job, python)
        estimate = sum(map(weight, samples))
        # With PYTHONMALLOC=malloc, objects are sampled in malloc; with PYTHONMALLOC=pymalloc_debug, arenas are sampled.
        arenas = [s for s in job.table.live() if s.kind == 2]
        counted = estimate if allocator == "malloc" else sum(map(weight, arenas))
        assert counted > int(job.line) / 3
        assert job.end() == 0


SMALL_ONLY = """
import sys
kept = None
for i in range(600000):
    kept = (kept, {"key": None})
print(flush=True)
sys.stdin.read()
"""


def test_debug_pymalloc_is_sampled_by_arena_and_not_by_object(receiver, python):
    # No allocation in this test is so large that it is certainly sampled.
    with Profiled(receiver, python, "-c", SMALL_ONLY, PYTHONMALLOC="pymalloc_debug",
                  EBB_HEAP="interval=8388608") as job:
        arenas = [s for s in job.table.live() if s.kind == 2]
        # The bound is a tenth of the arenas' total size. Three samples exceed it, and about two dozen samples are
        # expected.
        assert sum(map(weight, arenas)) > 20e6
        assert job.table.header()["python_state"] == "ok"
        assert job.end() == 0


def test_sampled_small_objects_are_not_counted_again_in_arenas(receiver, python):
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


def test_tracemalloc_can_start_and_stop_under_the_profiler(receiver, python):
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


def test_pymalloc_can_resize_and_free_sampled_objects(receiver, python):
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


def test_forked_child_records_python_functions_in_its_own_table(receiver, python):
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


DAEMONS = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def work():
    while True:
        libc.free(libc.malloc(1 << 20))
        [{} for _ in range(100)]
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
"""


def test_threads_that_allocate_at_interpreter_exit_cause_no_crash(receiver, python):
    for _ in range(10):
        with Profiled(receiver, python, "-c", DAEMONS, EBB_HEAP="interval=4096") as job:
            assert job.end() == 0


HOST = """
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (argc < 2 || !library)
        return 2;
    void (*initialize)(void) = (void (*)(void))dlsym(library, "Py_Initialize");
    int (*run)(const char *) = (int (*)(const char *))dlsym(library, "PyRun_SimpleString");
    int (*finalize)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
    for (int i = 2; i < argc; i++) {
        initialize();
        if (run(argv[i]) || finalize())
            return 1;
    }
    return 0;
}
"""
HOSTED = """
import sys
def leak(n):
    return bytes(n)
for i in range(40):
    block = leak(i << 20)
block = leak(64 << 20)
print(flush=True)
sys.stdin.read()
"""


def library_of(python):
    program = """if 1:
        import ctypes.util, sys
        print(ctypes.util.find_library("python%d.%d" % sys.version_info[:2]) or "")
    """
    return subprocess.run([python, "-c", program], stdout=subprocess.PIPE, encoding="utf-8",
                          check=True).stdout.strip()


def test_python_embedded_in_a_program_is_profiled(receiver, python, tmp_path):
    library = library_of(python)
    if not shutil.which("cc") or not library:
        pytest.skip("the compiler or the interpreter's library is missing")
    (tmp_path / "host.c").write_text(HOST)
    host = str(tmp_path / "host")
    subprocess.run(["cc", "-o", host, str(tmp_path / "host.c"), "-ldl"], check=True)
    with Profiled(receiver, host, library, HOSTED, HOSTED) as job:
        header = job.table.header()
        assert (header["python_state"], header["python_small"]) == ("ok", True)
        stacks = stacks_by_size(job.table, python, 64 << 20)
        assert list(stacks.values()) == [[("<string>", "leak", 4), ("<string>", "<module>", 7)]]
        assert job.end() == 0


IMPORTS = """
import sys, json
import argparse, asyncio, concurrent.futures, ctypes, decimal, http.client, sqlite3, unittest
import xml.dom.minidom
print(len(sys.modules), flush=True)
sys.stdin.read()
"""


def test_profiled_python_with_many_imports_exits_with_status_0(receiver, python):
    with Profiled(receiver, python, "-X", "dev", "-c", IMPORTS) as job:
        assert int(job.line) > 100 and job.end() == 0
    with Profiled(receiver, python, "-c", IMPORTS, EBB_HEAP="interval=256") as job:
        assert int(job.line) > 100 and job.end() == 0
