"""Tests the census: memory of each storage counted once, objects by type, references to the
largest, and requests answered between steps."""

import gc
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import ebb.torch  # noqa: E402
from ebb import _census, _control, _referrers, _wire  # noqa: E402
from jobs import PATIENCE_S, listening, wait_for  # noqa: E402


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("content",)


held_by_the_module = {}


def take():
    """Takes a census with enough time for all objects even on a busy machine."""
    return ebb.torch.census(keep=False, budget_s=PATIENCE_S)


def row(census, **wanted):
    found = [t for t in census.tensors if all(getattr(t, k) == v for k, v in wanted.items())]
    assert len(found) <= 1
    return found[0] if found else None


# ---- objects ----


def test_census_counts_objects_that_the_garbage_collector_ignores(monkeypatch):
    for limit in ("_PLAIN_MAX", "_ROWS_MAX"):  # a test process may exceed these limits
        monkeypatch.setattr(_census, limit, sys.maxsize)
    before = take()
    kept = [bytearray(100_000) for _ in range(50)]
    things = [Thing(number=i) for i in range(30)]
    grown = ebb.torch.census_diff(before, take(), top=100)
    by_name = {g.name: g for g in grown}
    # Other modules may have created a few small objects in the meantime.
    assert len(kept) <= by_name["bytearray"].count <= len(kept) + 5
    assert 50 * 100_000 <= by_name["bytearray"].bytes <= 50 * 101_000
    assert grown[0].name == "bytearray"
    assert by_name[f"{Thing.__module__}.Thing"].count == len(things)


def test_census_can_be_stored_as_json_and_has_the_cost_of_the_census():
    c = take()
    assert c.cost_s > 0 and c.pid == os.getpid()
    again = json.loads(json.dumps(c.to_dict()))
    assert again["object_count"] == c.object_count > 1000
    assert "objects:" in str(c) and "taken in" in str(c)
    assert ebb.torch.census_diff(again, c) == []


def test_census_extrapolates_the_count_from_part_of_a_long_list():
    before = take()
    kept = [b"%d" % i * 20 for i in range(100_000)]
    grown = ebb.torch.census_diff(before, take(), top=100)
    found = next(g for g in grown if g.name == "bytes")
    assert 0.8 * len(kept) < found.count < 1.2 * len(kept)


def test_census_that_runs_out_of_time_estimates_sizes():
    c = _census.take(budget_s=0.0)
    assert c.is_sampled
    assert "estimated" in str(c)
    assert all("no time" in h.chain for h in c.largest)


def test_census_survives_an_object_whose_sizeof_method_fails():
    class Hostile:
        def __sizeof__(self):
            raise RuntimeError("no")

        @property
        def __class__(self):
            raise RuntimeError("no")

    kept = [Hostile() for _ in range(5000)]
    c = take()
    assert c.object_count > len(kept) and not c.is_sampled
    assert [o.count for o in c.objects if o.type.endswith("Hostile")] in ([], [len(kept)])


def test_census_works_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "del sys.modules['torch']\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'torch': raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import ebb.torch\n"
        "c = ebb.torch.census()\n"
        "assert not c.has_torch and c.object_count > 1000 and 'torch is not imported' in str(c)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


# ---- chains of references ----


def chain(o):
    return _referrers.chain(o, [], time.monotonic() + PATIENCE_S)


def test_reference_chain_includes_globals_keys_and_attributes():
    o = Thing()
    slotted = Slotted()
    slotted.content = o
    held_by_the_module["seen"] = [None, Thing(inner=slotted)]
    del slotted
    try:
        assert chain(o) == f"{__name__}.held_by_the_module['seen'][1].inner.content"
    finally:
        held_by_the_module.clear()


def test_reference_chain_includes_a_local_of_a_running_function():
    def keeper():
        box = [Thing()]
        return chain(box[0])

    assert keeper().startswith("box[0] (a variable of keeper() in ")


def test_search_for_references_keeps_no_variable_alive():
    import weakref

    thing = Thing()
    watched = weakref.ref(thing)
    other = Thing()
    chain(other)
    del thing
    gc.collect()
    assert watched() is None


def test_object_found_by_a_reference_search_can_be_freed_afterwards():
    import weakref

    def keeper():
        box = [Thing()]
        ours = [box[0]]  # the test refers to the object from a list, as the census does
        _referrers.chain(ours[0], [ours], time.monotonic() + 5)
        _referrers.owner(ours[0], [ours], time.monotonic() + 5)
        return weakref.ref(box[0])

    gc.collect()
    gc.disable()
    try:
        assert keeper()() is None
    finally:
        gc.enable()


def test_search_for_references_does_not_change_function_locals():
    def user(number):
        seen = locals()
        chain(Thing())
        return seen["number"]

    assert user(7) == 7


def test_reference_chain_ends_at_the_time_limit():
    assert "out of time" in _referrers.chain(Thing(), [], time.monotonic() - 1)


# ---- tensors ----


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def test_storage_shared_by_several_tensors_is_counted_once(torch):
    base = torch.zeros(1003, 17)
    views = [base[1:], base.t(), base.detach(), base.view(-1)]
    c = take()
    shapes = {tuple(v.shape) for v in (base, *views)}
    rows = [t for t in c.tensors if tuple(t.shape) in shapes]
    assert sum(t.bytes for t in rows) == 1003 * 17 * 4
    assert sum(t.count for t in rows) == 5
    assert row(c, shape=[1002, 17]).bytes == 0


def test_small_view_is_counted_with_all_bytes_of_the_storage(torch):
    part = torch.empty(0).set_(torch.zeros(1009, 1000).untyped_storage(), 0, (1, 1000))
    c = take()
    assert row(c, shape=[1, 1000]).bytes == 1009 * 1000 * 4
    assert part.shape[0] == 1


def test_census_groups_tensors_by_dtype_and_requires_grad(torch):
    kept = [
        torch.zeros(31, 7),
        torch.zeros(31, 7, dtype=torch.float16),
        torch.zeros(31, 7, requires_grad=True),
    ]
    c = take()
    found = [t for t in c.tensors if t.shape == [31, 7]]
    assert {(t.dtype, t.requires_grad, t.count, t.bytes) for t in found} == {
        ("float32", False, 1, 868), ("float16", False, 1, 434), ("float32", True, 1, 868)}
    assert len(kept) == 3


def test_census_separates_computed_tensors_from_parameters(torch):
    weight = torch.nn.Parameter(torch.zeros(37, 5))
    made = weight * 2
    c = take()
    assert {(t.requires_grad, t.is_leaf, t.count) for t in c.tensors if t.shape == [37, 5]} == {
        (True, True, 1), (True, False, 1)}
    assert made.requires_grad


def test_gradients_without_a_python_object_are_counted(torch):
    model = torch.nn.Linear(211, 13)
    model(torch.ones(2, 211)).sum().backward()
    c = take()
    weight = row(c, shape=[13, 211], is_grad=False)
    gradient = row(c, shape=[13, 211], is_grad=True)
    assert weight.requires_grad and weight.bytes == gradient.bytes == 13 * 211 * 4
    assert gradient.count == 1


def test_tensors_without_storage_are_counted_with_zero_bytes(torch):
    meta = torch.zeros(5000, 5000, device="meta")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(5001, 5001)
    c = take()
    assert row(c, shape=[5000, 5000]).bytes == 0 == row(c, shape=[5001, 5001]).bytes
    assert meta is not None and fake is not None


def test_sparse_tensor_is_counted_with_the_bytes_of_its_parts(torch):
    sparse = torch.sparse_coo_tensor([[0, 1, 2]], [1.0, 2.0, 3.0], (7919,))
    found = row(take(), shape=[7919])
    assert found.count == 1 and 0 < found.bytes <= 3 * 8 + 3 * 4
    assert sparse.is_sparse


def test_census_survives_a_tensor_subclass_whose_methods_fail(torch):
    class Hostile(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args, **kwargs):
            raise RuntimeError("no")

    kept = torch.zeros(41, 43).as_subclass(Hostile)
    c = take()
    with torch._C.DisableTorchFunctionSubclass():
        assert row(c, shape=list(kept.shape)).bytes == 41 * 43 * 4


def test_largest_tensors_are_listed_with_the_variable_holding_them(torch):
    held_by_the_module["cache"] = [torch.ones(997, 499) for _ in range(60)]
    try:
        c = take()
    finally:
        held_by_the_module.clear()
    first = next(h for h in c.largest if "[997, 499]" in h.what)
    assert (first.count, first.bytes) == (60, 60 * 997 * 499 * 4)
    assert first.chain.startswith(f"{__name__}.held_by_the_module['cache'][")


def test_growth_between_censuses_is_sorted_by_bytes(torch):
    before = take()
    kept = [torch.zeros(1013, 101) for _ in range(4)]
    grown = ebb.torch.census_diff(before, take())
    assert (grown[0].name, grown[0].count) == ("cpu float32 [1013, 101]", len(kept))
    assert grown[0].bytes == 4 * 1013 * 101 * 4


def test_census_leaves_no_objects_behind(torch):
    kept = [torch.zeros(11, 11) for _ in range(200)]
    take()
    gc.collect()
    counts = []
    for _ in range(3):
        take()
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 100
    assert len(kept) == 200


# ---- census in a run ----


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Provides a run folder and a socket for marks."""
    monkeypatch.setenv("EBB_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("EBB_TRUTH", "0")
    for name, value in (("_pid", 0), ("_is_started", False), ("_every", None), ("_step", None)):
        monkeypatch.setattr(_control, name, value)
    monkeypatch.setattr(_census, "_kept", 0)
    # Threads may end late on a busy machine, so the test waits long.
    monkeypatch.setattr(_control, "_FORK_PATIENCE_S", PATIENCE_S)
    with listening(monkeypatch) as marks:
        path = marks.getsockname()
        yield Thing(folder=tmp_path, socket=path, marks=marks, short=os.path.dirname(path))
    # A thread left by a test might poll a descriptor that has become another socket, and would keep
    # that socket open.
    wait_for(lambda: not threads(), "the end of the thread that listened")


def ask(run, id="77"):
    replies = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    replies.bind(f"{run.short}/asker{id}")
    replies.settimeout(PATIENCE_S)
    replies.sendto(f"CENSUS={id}\nREPLY={run.short}/asker{id}\n".encode(),
                   f"{run.socket}.{os.getpid()}")
    return replies


def answer(replies):
    return dict(line.split("=", 1) for line in replies.recv(8192).decode().splitlines())


def kept(run):
    return sorted(p.name for p in (run.folder / "census").glob("*.json"))


def test_census_request_is_answered_at_the_end_of_a_step(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", PATIENCE_S)
    ebb.step(4)
    with ask(run) as replies:
        until = time.monotonic() + PATIENCE_S
        n = 4
        while not select.select([replies], [], [], 0.01)[0] and time.monotonic() < until:
            n += 1
            ebb.step(n)
        assert answer(replies)["STATUS"] == "started"
        done = answer(replies)
    assert (done["KIND"], done["ID"], done["STATUS"]) == ("ack", "77", "done")
    assert done["PID"] == str(os.getpid())
    document = json.loads(pathlib.Path(done["PATH"]).read_text())
    assert (document["at"], document["step"]) == ("step", n)
    assert kept(run) == [f"0001-{os.getpid()}-{n}.json"]


def test_census_request_is_answered_by_a_thread_if_no_step_ends(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", 0.01)
    ebb.step(4)
    assert [t for t in threading.enumerate() if t.name == "ebb-control" and t.daemon]
    with ask(run) as replies:
        assert answer(replies)["STATUS"] == "started"
        done = answer(replies)
    document = json.loads(pathlib.Path(done["PATH"]).read_text())
    assert (document["at"], document["step"]) == ("thread", 4)


def test_census_thread_does_not_answer_checkpoint_requests(run):
    ebb.step(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"CHECKPOINT=5\n", f"{run.socket}.{os.getpid()}")
    wait_for(ebb.checkpoint_requested, "the request")
    ebb.checkpoint_done()


def test_census_request_fails_if_the_census_cannot_be_written(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", 0.01)
    (run.folder / "census").write_text("not a folder")
    ebb.step(1)
    with ask(run) as replies:
        assert answer(replies)["STATUS"] == "started"
        assert answer(replies)["STATUS"] == "failed"


def test_census_is_written_every_n_steps(run):
    ebb.torch.census_every(10)
    for n in range(1, 31):
        ebb.step(n)
        ebb.step(n)
    assert kept(run) == [f"000{i}-{os.getpid()}-{i}0.json" for i in (1, 2, 3)]
    ebb.torch.census_every(0)
    ebb.step(40)
    assert len(kept(run)) == 3


def test_census_files_of_an_earlier_process_with_same_pid_are_kept(run):
    (run.folder / "census").mkdir()
    (run.folder / "census" / f"0003-{os.getpid()}-9.json").write_text("{}")
    (run.folder / "census" / "0007-1-9.json").write_text("{}")
    ebb.torch.census_every(1)
    ebb.step(1)
    assert f"0004-{os.getpid()}-1.json" in kept(run) and len(kept(run)) == 3


def test_variable_ebb_census_every_enables_periodic_censuses(run, monkeypatch):
    monkeypatch.setenv("EBB_CENSUS_EVERY", "7")
    for n in range(1, 8):
        ebb.step(n)
    assert kept(run) == [f"0001-{os.getpid()}-7.json"]


def test_periodic_censuses_become_rarer_in_a_long_run(run, monkeypatch):
    monkeypatch.setattr(_control, "_DOUBLE_AFTER", 4)
    monkeypatch.setattr(
        _census, "take", lambda step, at, budget: _census.Census(1, None, 0.0, step, at))
    ebb.torch.census_every(1)
    for n in range(1, 65):
        ebb.step(n)
    assert 8 < len(kept(run)) <= 20


def test_forked_child_takes_no_census(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", PATIENCE_S)
    ebb.torch.census_every(1)
    ebb.step(1)
    child = os.fork()
    if child == 0:
        for n in range(2, 5):
            ebb.step(n)
        os._exit(0)
    os.waitpid(child, 0)
    assert kept(run) == [f"0001-{os.getpid()}-1.json"]


def threads():
    return [t for t in threading.enumerate() if t.name == "ebb-control"]


def test_census_thread_is_restarted_after_fork(run):
    code = """
import os, threading
counts = []
# those registered first are called last
os.register_at_fork(before=lambda: counts.append(len(os.listdir("/proc/self/task"))))
import ebb
from ebb import _control
_control._FORK_PATIENCE_S = 100  # the thread has all the time to end that a busy machine takes
ebb.step(1)
assert len(os.listdir("/proc/self/task")) == 2
descriptors = len(os.listdir("/proc/self/fd"))
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if threading.active_count() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
assert counts == [1, 1, 1], counts
assert [t.name for t in threading.enumerate()] == ["MainThread", "ebb-control"]
assert len(os.listdir("/proc/self/fd")) == descriptors
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


def test_census_request_pending_during_a_fork_is_answered_afterwards(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", PATIENCE_S)
    ebb.step(4)
    with ask(run) as replies:
        wait_for(lambda: _control._pending, "the request")
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        [thread] = [t for t in threads() if t is _control._thread]
        assert thread.is_alive() and _control._pending
        ebb.step(5)
        assert answer(replies)["STATUS"] == "started"
        assert answer(replies)["STATUS"] == "done"


def test_census_thread_started_after_a_fork_answers_pending_requests(run, monkeypatch):
    monkeypatch.setattr(_control, "_STEP_PATIENCE_S", PATIENCE_S)
    ebb.step(4)
    with ask(run) as replies:
        wait_for(lambda: _control._pending, "the request")
        monkeypatch.setattr(_control, "_due", 0.0)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert answer(replies)["STATUS"] == "started"
        assert answer(replies)["STATUS"] == "done"


# With an interval of 0, steps are held back for the helper thread; otherwise they are sent
# immediately.
@pytest.mark.parametrize("every", [0, 1000])
def test_census_thread_ends_when_the_mark_socket_is_closed(run, every):
    ebb.torch.census_every(every)
    ebb.step(1)
    assert threads()
    _wire.reset()
    wait_for(lambda: not threads(), "the end of the thread")


def test_waiting_census_thread_does_not_keep_the_process_alive(run):
    code = "import ebb; ebb.step(1)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


def test_census_outside_a_run_starts_no_thread(tmp_path, monkeypatch):
    monkeypatch.delenv("EBB_SOCKET", raising=False)
    monkeypatch.delenv("EBB_RUN_DIR", raising=False)
    monkeypatch.setattr(_control, "_is_started", False)
    monkeypatch.setattr(_control, "_pid", 0)
    _wire.reset()
    before = set(threading.enumerate())
    _control.start()
    _control.at_step(1)
    # threads of earlier tests may end during this test
    assert set(threading.enumerate()) <= before
    assert ebb.torch.census().object_count > 0
    assert _control._pid == 0
