"""Tests allocator metrics at step ends: correct values, low cost, and recording as series with
verdicts."""

import json
import os
import pathlib
import subprocess
import sys
import time
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from ebb import _truth, _wire  # noqa: E402
from jobs import listening  # noqa: E402

PATIENCE_S = 300
BINARY = os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))

needs_mallinfo2 = pytest.mark.skipif(
    "heap_live_bytes" not in _truth.read(),
    reason="the C library has no mallinfo2, or another malloc is in use")


@pytest.fixture
def marks(monkeypatch):
    monkeypatch.setattr(_truth, "_next", 0.0)
    monkeypatch.setattr(_truth, "_pause_s", 0.0)
    monkeypatch.setattr(_truth, "_is_off", None)
    with listening(monkeypatch) as receiver:
        yield receiver


def received(marks):
    found = []
    try:
        while True:
            text = marks.recv(8192).decode()
            found.append(dict(line.split("=", 1) for line in text.splitlines()))
    except BlockingIOError:
        return found


@needs_mallinfo2
def test_live_heap_metric_rises_and_falls_with_allocated_memory():
    before = _truth.read()["heap_live_bytes"]
    held = [bytearray(4 << 20) for _ in range(16)]
    grown = _truth.read()["heap_live_bytes"] - before
    assert 64 << 20 <= grown < 80 << 20
    del held
    assert abs(_truth.read()["heap_live_bytes"] - before) < 16 << 20


@needs_mallinfo2
def test_freed_memory_below_a_live_block_is_counted_as_free_heap():
    # too small for malloc to use mmap
    held = [bytearray(100 << 10) for _ in range(320)]
    lid = bytearray(100 << 10)
    before = _truth.read()["heap_free_bytes"]
    del held
    assert _truth.read()["heap_free_bytes"] - before > 24 << 20
    del lid


def test_allocator_metrics_are_sent_in_one_mark(marks):
    _truth.at_step(1)
    [mark] = received(marks)
    assert mark.pop("KIND") == "series"
    assert int(mark["GC_THRESHOLD_0"]) >= 0 and int(mark["GC_COUNT_2"]) >= 0
    assert all(int(value) >= 0 for value in mark.values())


def test_allocator_metrics_are_sent_at_most_every_half_second(marks, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for n in range(5):
        _truth.at_step(n)
    assert len(received(marks)) == 1
    now += 0.6
    _truth.at_step(6)
    assert len(received(marks)) == 1


def test_allocator_metrics_that_are_slow_to_read_are_read_less_often(marks, monkeypatch):
    now = 1000.0

    def slow():
        nonlocal now
        now += 0.003
        return {"heap_live_bytes": 1}

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(_truth, "read", slow)
    looks = []
    while now < 1300.0:
        _truth.at_step(1)
        looks += [now] * len(received(marks))
        now += 0.1
    pauses = [round(b - a) for a, b in zip(looks, looks[1:])]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60] and set(pauses[7:]) == {60}
    monkeypatch.setattr(_truth, "read", lambda: {"heap_live_bytes": 1})
    now += 60
    _truth.at_step(2)
    now += 0.6
    _truth.at_step(3)
    assert len(received(marks)) == 2


def test_variable_ebb_truth_can_disable_allocator_metrics(marks, monkeypatch):
    monkeypatch.setenv("EBB_TRUTH", "0")
    _truth.at_step(1)
    assert received(marks) == []


def test_forked_child_sends_no_allocator_metrics(marks):
    _wire.wire()
    child = os.fork()
    if child == 0:
        _truth.at_step(1)
        os._exit(0)
    os.waitpid(child, 0)
    assert received(marks) == []


def test_cuda_metrics_are_read_only_if_cuda_is_initialized(monkeypatch):
    asked = []

    def stats():
        asked.append(1)
        return {"allocated_bytes": {"all": {"current": 5}},
                "reserved_bytes": {"all": {"current": 7}}}

    cuda = types.SimpleNamespace(
        is_initialized=lambda: False, memory_stats_as_nested_dict=stats,
        host_memory_stats=lambda: {"allocated_bytes.current": 9})
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert "cuda_allocated_bytes" not in _truth.read() and not asked
    cuda.is_initialized = lambda: True
    figures = _truth.read()
    assert (figures["cuda_allocated_bytes"], figures["cuda_reserved_bytes"]) == (5, 7)
    assert figures["pinned_host_bytes"] == 9


def stand_in_for_jax(monkeypatch, is_started, arrays, stats):
    """A fake jax. Its functions fail before a backend is started, because the real functions would
    start one."""
    def checked(value):
        assert bridge.backends_are_initialized()
        return value

    bridge = types.SimpleNamespace(backends_are_initialized=lambda: is_started)
    devices = [types.SimpleNamespace(memory_stats=lambda one=one: one) for one in stats]
    live = [types.SimpleNamespace(nbytes=n) for n in arrays]
    jax = types.SimpleNamespace(local_devices=lambda: checked(devices),
                                live_arrays=lambda: checked(live))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    return {name: value for name, value in _truth.read().items() if name.startswith("jax")}


def test_reading_jax_metrics_never_starts_a_backend(monkeypatch):
    def fail():
        raise AssertionError("a backend was started")

    jax = types.SimpleNamespace(local_devices=fail, live_arrays=fail)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    assert not any(name.startswith("jax") for name in _truth.read())
    assert stand_in_for_jax(monkeypatch, False, [4], [{"bytes_in_use": 9}]) == {}


def test_jax_metrics_are_the_sums_of_arrays_and_of_device_memory(monkeypatch):
    stats = [{"bytes_in_use": 9}, {"bytes_in_use": 7}]
    found = stand_in_for_jax(monkeypatch, True, [4, 8], stats)
    assert found == {"jax_device_bytes": 16, "jax_live_bytes": 12}
    # the CPU, which does not report its memory
    assert stand_in_for_jax(monkeypatch, True, [4], [None]) == {"jax_live_bytes": 4}
    too_many = [1] * (_truth._JAX_ARRAYS + 1)
    assert stand_in_for_jax(monkeypatch, True, too_many, stats) == {"jax_device_bytes": 16}


def test_jax_metrics_are_sent_as_soon_as_a_backend_is_in_use():
    """Runs in a separate process, because JAX cannot be unloaded."""
    pytest.importorskip("jax", reason="jax is not installed")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", """
import jax
from ebb import _truth
assert not any(name.startswith("jax") for name in _truth.read())
array = jax.numpy.ones(1 << 20)
assert _truth.read()["jax_live_bytes"] >= array.nbytes
"""], env=env, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_allocator_metric_that_cannot_be_read_is_omitted(monkeypatch):
    def broken():
        raise RuntimeError("driver")

    cuda = types.SimpleNamespace(is_initialized=lambda: True, memory_stats_as_nested_dict=broken)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    figures = _truth.read()
    assert "cuda_allocated_bytes" not in figures and "gc_count_0" in figures


JOB = """
import os, sys, time
import ebb
from ebb import _truth
_truth._SHARE, _truth._SLOW_S = 0, 1e9  # a busy machine must not delay the figures
held = []
until = time.monotonic() + float(sys.argv[1])
n = 0
while time.monotonic() < until or n < 200:  # on a machine that stands still for a while, too
    n += 1
    held.append(bytearray(256 << 10))
    ebb.step(n)
    time.sleep(0.02)
"""


@needs_mallinfo2
@pytest.mark.skipif(not os.path.exists(BINARY), reason="ebb is not built")
def test_live_and_recorded_verdicts_on_allocator_metrics_are_equal(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    env["PYTHONPATH"] = str(ROOT / "python")
    folder = tmp_path / "run"
    subprocess.run([BINARY, "run", "--run-dir", folder, "--interval", "100ms", "--",
                    sys.executable, "-c", JOB, "4"], env=env, check=True, timeout=PATIENCE_S,
                   stdin=subprocess.DEVNULL, capture_output=True)
    live = json.loads((folder / "run.json").read_text())
    [heap] = live["verdict"]["series"]
    assert (heap["name"], heap["label"], heap["alive"]) == ("heap_live_bytes", "heap (live)", False)
    assert heap["pid"] == live["pid"]
    assert heap["peak_bytes"] > 1 << 20
    again = subprocess.run([BINARY, "verdict", folder, "--json"], env=env, timeout=PATIENCE_S,
                           capture_output=True, text=True)
    assert json.loads(again.stdout)["series"] == live["verdict"]["series"]
    text = subprocess.run([BINARY, "verdict", folder], env=env, timeout=PATIENCE_S,
                          capture_output=True, text=True).stdout
    assert f"heap (live) of process {live['pid']}: {heap['verdict']}" in " ".join(text.split())
    lines = subprocess.run([BINARY, "export", folder, "--jsonl"], env=env, timeout=PATIENCE_S,
                           capture_output=True, text=True).stdout.splitlines()
    items = [json.loads(line) for line in lines]
    values = [i["value"] for i in items
              if i["type"] == "series" and i["name"].startswith("heap_live_bytes@")]
    assert len(values) >= 3 and values[-1] - values[0] > 1 << 20
    assert any(i["type"] == "series" and i["name"].startswith("gc_count_0@") for i in items)
    assert any(i["type"] == "series" and i["name"].startswith("heap_free_bytes@") for i in items)
    assert not any(i["type"] == "mark" and i["kind"] == "series" for i in items)
