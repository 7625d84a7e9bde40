"""Tests the sampling of GPU blocks with a simulated PyTorch allocator. The heap table must contain the blocks of each
GPU, the original report functions must still be called, and no allocator report may crash the program."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

import heap_table
from commands import PATIENCE_S, binary, environment

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", pathlib.Path(binary()).parent))
LIBRARY = BUILD / "libebb-heap.so"
PROGRAMS = BUILD / "tests" / "heap_programs"
OTHER_HOOK = PROGRAMS / "torch" / "other_hook.so"
GPU_KIND, LARGE = 6, 512 << 20
GPU_FRAME = 0x7FFF << 48


def library(copy="torch"):
    return str(PROGRAMS / copy / "libc10_cuda.so")


@pytest.fixture
def receiver(tmp_path):
    one = heap_table.Receiver(tmp_path)
    yield one
    one.close()


def run(receiver, way, *more, copy="torch", preload=(LIBRARY,)):
    """Runs the test program. Returns the program's heap tables and its own counts: live bytes, and the numbers of
    blocks and failures that were forwarded to the original report functions."""
    env = environment({"LD_PRELOAD": ":".join(map(str, preload)), "EBB_SOCKET": receiver.path,
                       "EBB_HEAP": heap_table.with_filters("")})
    done = subprocess.run([PROGRAMS / "gpus", library(copy), way, *more], env=env, stdout=subprocess.PIPE, text=True,
                          timeout=2 * PATIENCE_S, check=True)
    tables = []
    while True:
        try:
            tables.append(receiver.receive(0.01)[1])
        except (TimeoutError, BlockingIOError):
            return done.stdout.split("\n"), tables


def gpu_samples(table):
    return [s for s in table.live() if s.kind == GPU_KIND]


def gpu_of(table, sample):
    """Returns the GPU index of a sample, which is part of its outermost frame."""
    word = table.stack(sample.site)[-1]
    assert word & ~0xFFFF == GPU_FRAME
    return word & 0xFFFF


def test_sample_of_a_large_gpu_block_has_the_device_index(receiver):
    lines, (table,) = run(receiver, "hold", "6")
    samples = gpu_samples(table)
    assert lines[0] == f"{6 * LARGE} 6 0"
    assert sorted((gpu_of(table, s), s.size) for s in samples) == [(0, LARGE)] * 3 + [(1, LARGE)] * 3


def test_gpu_block_freed_by_another_thread_is_not_reported_as_live(receiver):
    lines, (table,) = run(receiver, "threads")
    live, reached, _ = map(int, lines[0].split())
    allocated, freed = 8 * 4000, 8 * 4000 - live // (1 << 20)
    assert reached == allocated + freed
    estimate = sum(s.size / -math.expm1(-s.size / s.interval) for s in gpu_samples(table))
    most = max((s.interval for s in gpu_samples(table)), default=256 << 20)
    assert abs(estimate - live) < 7 * (most * live) ** 0.5


def test_invalid_gpu_allocator_reports_are_forwarded_but_not_recorded(receiver):
    lines, (table,) = run(receiver, "nonsense")
    assert lines[0] == "0 307 7"
    assert [s.size for s in gpu_samples(table)] == [LARGE]
    assert table.header()["drops"]["gpu"] > 0
    assert table.header()["drops"]["stale"] == 1


def test_forked_child_has_its_own_gpu_block_table(receiver):
    lines, tables = run(receiver, "fork")
    assert int(lines[0].split()[0]) > 4 * LARGE
    assert len(tables) > 1
    children = [t for t in tables if t.header()["pid"] != tables[0].header()["pid"]]
    assert children and all(len(gpu_samples(t)) == 100 for t in children)


def test_gpu_allocator_calls_at_process_exit_cause_no_crash(receiver):
    lines, _ = run(receiver, "exit")
    assert lines[0].split()[1] == "1"


def test_torch_library_is_hooked_again_after_it_is_reloaded(receiver):
    _, (table,) = run(receiver, "unload")
    assert len(gpu_samples(table)) > 0


def test_two_torch_copies_each_receive_their_own_allocator_reports(receiver):
    lines, (table,) = run(receiver, "both", library("torch2"))
    assert lines[0] == "second 5" and lines[1] == f"{3 * LARGE} 3 0"
    assert len(gpu_samples(table)) > 0


def test_torch_library_with_unknown_symbols_is_not_hooked(receiver):
    lines, tables = run(receiver, "hold", "3", copy="torch_other")
    assert lines[0] == f"{3 * LARGE} 3 0"
    assert all(not gpu_samples(t) for t in tables)


def test_gpu_allocation_does_not_block_while_a_library_is_loading(receiver):
    """While the library is loaded, its constructor holds the dynamic linker's lock until the GPU block is allocated."""
    lines, (table,) = run(receiver, "loading", str(PROGRAMS / "torch" / "waits.so"))
    assert lines[0] == f"{LARGE} 1 0"
    assert len(gpu_samples(table)) == 1


def test_gpu_sampling_works_if_another_tool_hooked_torch_before_ebb(receiver):
    lines, (table,) = run(receiver, "hold", "6", preload=(OTHER_HOOK, LIBRARY))
    assert lines[:2] == [f"{6 * LARGE} 6 0", "other 6"]
    assert len(gpu_samples(table)) == 6


def test_gpu_sampling_works_if_another_tool_hooked_torch_after_ebb(receiver):
    lines, (table,) = run(receiver, "hold", "6", preload=(LIBRARY, OTHER_HOOK))
    assert lines[:2] == [f"{6 * LARGE} 0 0", "other 6"]
    assert len(gpu_samples(table)) == 6


def test_gpu_allocation_failure_in_a_forked_child_is_recorded(receiver):
    _, tables = run(receiver, "failfork")
    parent, *children = sorted(tables, key=lambda t: t.header()["pid"])
    assert len(children) == 20
    assert all(t.failures() == (1, 1) for t in children)
    assert parent.failures()[0] > 1


STANDIN = """
import ctypes, sys, time
import ebb
cuda = ctypes.CDLL(sys.argv[1])
cuda.standin_malloc.restype = ctypes.c_uint64
cuda.standin_malloc.argtypes = [ctypes.c_int64, ctypes.c_int]
cuda.standin_free.argtypes = [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int]
cuda.standin_fail.argtypes = [ctypes.c_int64, ctypes.c_int]
cuda.standin_reserve.argtypes = [ctypes.c_uint64, ctypes.c_int]
SIZE = 64 << 20
"""
TRAINING = STANDIN + """
def forward():
    blocks = [cuda.standin_malloc(SIZE, 0) for _ in range(4)]
    for block in blocks:
        cuda.standin_free(block, SIZE, 0)

def keep():
    cuda.standin_malloc(SIZE, 0)

def main():
    for step in range(160):
        forward()
        keep()
        ebb.step(step + 1, epoch=(step + 1) / 40, steps_per_epoch=40)
        time.sleep(0.05)
    cuda.standin_fail(1 << 40, 0)

main()
"""


# Two GPU allocations fail; the script continues and frees its memory.
CAUGHT = STANDIN + """
def keep():
    return cuda.standin_malloc(SIZE, 0)

def ask(size):
    cuda.standin_fail(size, 0)

block = keep()
for step in range(60):
    if step in (20, 40):
        ask(SIZE * step)
    ebb.step(step + 1)
    time.sleep(0.05)
"""

# A job that allocates and frees the same amount in each step, while the memory that torch reserves grows.
PIECES = STANDIN + """
def forward(step):
    cuda.standin_reserve(SIZE * (4 + step), 0)
    block = cuda.standin_malloc(SIZE, 0)
    cuda.standin_free(block, SIZE, 0)

keep = cuda.standin_malloc(SIZE, 0)
for step in range(100):
    forward(step)
    ebb.step(step + 1)
    time.sleep(0.05)
"""

# This torch has a report function, but under a name that ebb does not know.
UNKNOWN = STANDIN + """
import types
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, memory_stats_as_nested_dict=lambda: {
    "allocated_bytes": {"all": {"current": SIZE}}, "reserved_bytes": {"all": {"current": SIZE}}})
sys.modules["torch"] = torch
block = cuda.standin_malloc(SIZE, 0)
heap = bytearray(64 << 20)
for step in range(60):
    ebb.step(step + 1)
    time.sleep(0.05)
"""


# A job that starts when 450 MiB of the GPU's 8 GiB are free, little more than the reserve. It grows by 2 MiB/step and
# resumes from its checkpoint.
NEARLY_FULL = STANDIN + """
import pathlib
saved = pathlib.Path("saved")
start = int(saved.read_text()) if saved.exists() else 0
cuda.standin_malloc((8192 - 450) << 20, 1)
for step in range(start + 1, 61):
    cuda.standin_malloc(2 << 20, 1)
    ebb.step(step)
    if ebb.checkpoint_requested():
        saved.write_text(str(step))
        ebb.checkpoint_done("saved")
    time.sleep(0.05)
"""


def record(folder, text, *options, copy="torch"):
    (folder / "train.py").write_text(text)
    python = str(pathlib.Path(__file__).resolve().parents[2] / "python")
    done = subprocess.run([binary(), "run", "-d", "run", *options, "--", sys.executable, "train.py", library(copy)],
                          cwd=folder,
                          env=environment({"PYTHONPATH": python}), stderr=subprocess.PIPE, text=True,
                          timeout=4 * PATIENCE_S, check=True)
    return folder / "run", " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record(tmp_path_factory.mktemp("gpu"), TRAINING)


def ebb(*arguments):
    return subprocess.run([binary(), *map(str, arguments)], env=environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)


def test_summary_names_the_line_that_leaks_on_the_gpu(recorded):
    _, summary = recorded
    assert "leaking on gpu 0" in summary
    assert "train.py:18 in keep()" in summary
    assert "[gpu-memory]" in summary
    assert "ebb heap --gpu" in summary or "ebb report" in summary


def test_summary_has_the_failed_gpu_allocation_with_a_fix(recorded):
    _, summary = recorded
    assert "out of memory on gpu 0: a request of 1.0 TiB at step 160, 10 GiB allocated of 10 GiB reserved" in summary
    assert "train.py:26 in main" in summary
    assert "fix the leak on this GPU" in summary


def test_summary_has_gpu_allocation_failures_that_the_job_survived(tmp_path):
    folder, summary = record(tmp_path, CAUGHT)
    # The allocation fails between the marks of steps 20 and 21. On a busy machine, mark 21 may be timestamped before
    # the failure.
    assert re.search("out of memory on gpu 0, 2 times; first a request of 1.2 GiB at step 2[01],", summary)
    assert "train.py:16 in ask" in summary
    assert "the line with the most memory at that time, 64 MiB: train.py:13 in keep()" in summary
    assert "lower the batch size" in summary
    process, = [p for p in json.loads((folder / "run.json").read_text())["heap"]["processes"] if "gpus" in p]
    assert (process["gpus"], process["gpu_out_of_memory"]) == (1, 2)


def test_growing_gpu_reserve_at_constant_use_is_called_fragmentation(tmp_path):
    folder, summary = record(tmp_path, PIECES)
    assert "leaking" not in summary  # On a busy machine the verdict on host memory may be undecided.
    assert summary.count("[gpu-fragmentation]") == 1 and "expandable_segments:True" in summary
    diagnosis = json.loads(ebb("diagnose", "--json", folder).stdout)
    assert diagnosis["hypotheses"][0]["code"] == "gpu-fragmentation"
    assert b"expandable_segments" in ebb("explain", "gpu-fragmentation").stdout


def test_summary_explains_why_gpu_memory_has_no_source_lines(tmp_path):
    folder, _ = record(tmp_path, UNKNOWN, copy="torch_other")
    assert b"GPU memory has no call sites: PyTorch's allocator" in ebb("show", folder).stdout


def test_guard_restarts_job_from_a_checkpoint_before_gpu_is_full(tmp_path):
    folder, summary = record(tmp_path, NEARLY_FULL, "--gpu-limit", "8G", "--restart", "--interval", "100ms")
    run = json.loads((folder / "run.json").read_text())
    assert run["end"]["kind"] == "exited" and len(run["segments"]) > 1
    first = [e for e in run["guard"]["events"] if e["segment"] == 0]
    assert [e["act"] for e in first if e["act"] != "warn"] == ["ask", "checkpoint", "term"]
    assert all(e["gpu"] == 1 and e["why"].startswith("gpu 1: ") for e in first if e["act"] != "checkpoint")
    assert "guard: stopping the job: gpu 1: " in summary
    # no checkpoint may be requested from a leftover process of the previous segment
    assert "cannot request a checkpoint" not in summary
    for before, after in zip(run["segments"], run["segments"][1:]):
        assert "gpu 1: " in before["end"]["cause"] and "left of 8.00 GiB" in before["end"]["cause"]
        assert after["first_step"] == before["checkpoint_step"] + 1
    assert run["segments"][-1]["last_step"] == 60


def test_html_ids_in_the_report_of_a_gpu_leak_are_unique(recorded):
    done = ebb("report", "-o", "-", recorded[0])
    page = done.stdout.decode()
    ids = re.findall(r"<[a-z0-9]+ (?:[^<>]* )?id=\"?([\w-]+)", page.split("<script")[0])
    assert {"flame", "flame-gpu"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_verdict_command_exits_with_1_on_a_gpu_leak(recorded):
    done = ebb("verdict", "--json", recorded[0])
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["gpus"][0]["verdict"] == "leaking"
    assert found["gpus"][0]["rate_bytes_per_step"]["value"] == pytest.approx(64 << 20, rel=0.1)


def test_gpu_heap_shows_leaking_line_and_failed_allocation(recorded):
    found = json.loads(ebb("heap", "--gpu", "--json", recorded[0]).stdout)
    row = found["rows"][0]
    assert (row["where"]["function"], row["where"]["line"], row["gpu"]) == ("keep", 18, 0)
    assert found["gpus"][0]["allocated_bytes"] == 160 * (64 << 20)
    failure, = found["out_of_memory"]
    assert found["out_of_memory_count"] == 1
    assert (failure["request_bytes"], failure["where"]["function"]) == (1 << 40, "main")
    assert failure["lines"][0]["where"]["function"] == "keep"


def test_host_heap_excludes_gpu_blocks(recorded):
    found = json.loads(ebb("heap", "--json", recorded[0]).stdout)
    assert found["live"]["high"] < 1 << 30
    assert all("gpu" not in row for row in found["rows"])


def test_exported_gpu_stacks_begin_with_a_frame_for_the_gpu(recorded):
    lines = ebb("export", "--gpu", "--collapsed", recorded[0]).stdout.decode().splitlines()
    assert lines and all(line.startswith("gpu 0;") for line in lines)
    assert any("keep (train.py:18)" in line for line in lines)


def test_gpu_heap_of_a_run_without_gpu_is_refused(tmp_path):
    subprocess.run([binary(), "run", "-q", "-d", tmp_path / "run", "--", sys.executable, "-c",
                    "import time; x = bytearray(8 << 20); time.sleep(2.5)"], env=environment(),
                   timeout=2 * PATIENCE_S, check=True)
    done = ebb("heap", "--gpu", tmp_path / "run")
    assert done.returncode == 2
    assert b"no GPU memory was recorded" in done.stderr
