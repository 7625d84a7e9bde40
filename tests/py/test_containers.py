"""Tests the detection of containers that gain entries while memory grows: KIND=kept marks, and
metrics."""

import asyncio
import gc
import json
import mmap
import queue
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from functools import lru_cache

import pytest

from ebb import _containers, _memory, _referrers, _tap, _weight, _wire
from jobs import PATIENCE_S, binary, listening

MIB = 1 << 20
SEEN = []  # a module variable, to which tests add entries
# resident memory in MiB after each step; its growth triggers a scan at every step from the second
# on
RESIDENT = [0, 100, 124, 148, 196, 292]


class Store:
    shared = []

    def __init__(self):
        self.cache = OrderedDict()


class Clip:
    def __init__(self, pixels):
        self.pixels = pixels

    @lru_cache(maxsize=None)
    def loudness(self):
        return 0.5


class Sent(list):
    """Collects marks and, separately, the metrics of each scan as {name: value}."""

    def __init__(self):
        self.figures = []


@pytest.fixture
def sent(monkeypatch):
    """Returns the list to which sent marks are appended."""
    found = Sent()

    class Wire:
        is_there = True

        def mark(self, kind, must_arrive, **values):
            found.append({"kind": kind, **values})

        def send_figures(self, text):
            values = [line.partition("=")[2] for line in text.split("\n")[1:]]
            found.figures.append(dict(zip(values[::2], map(int, values[1::2]))))

    monkeypatch.setattr(_containers, "figures_wire", Wire)
    for name, value in (("_last", None), ("_kept", None), ("_base", None), ("_next_s", 0.0),
                        ("_first_graphs", {}), ("_graphs_rss", None), ("_is_reported", False),
                        ("_spent_s", 0.0), ("_scan_s", 0.0), ("_step_s", 0.0),
                         ("_is_off", None), ("_names", {}), ("_grown", {}),
                        ("_follower", _containers._Follower()), ("_INTERVAL_S", 0.0),
                        ("_variables_s", 0.0), ("_VARIABLES_SHARE", 1e12),
                         ("_BUDGET_S", PATIENCE_S),
                        ("_YOUNG_SHARE", 1e12),
                        ("_SHARE", 1e12), ("_NAMES_S", PATIENCE_S), ("_WALL_S", PATIENCE_S)):
        monkeypatch.setattr(_containers, name, value)
    return found


@pytest.fixture
def resident(monkeypatch):
    """Returns a function that sets the resident memory that the package reads."""
    def put(mib):
        monkeypatch.setattr(_containers._memory, "rss_bytes", lambda: mib * MIB)
    return put


def grow(resident, add, steps=4):
    """Calls ADD once per step while memory grows."""
    for step in range(1, steps + 1):
        add(step)
        resident(RESIDENT[step])
        _containers.at_step(step)


def named(sent):
    return [mark for mark in sent if "name" in mark]


def test_growing_container_is_reported_with_its_owner_and_growth(sent, resident):
    store = Store()

    def add(step):
        for i in range(10):
            store.cache[step, i] = bytearray(MIB)

    grow(resident, add)
    last = named(sent)[-1]
    assert last["name"] == f"{__name__}.Store.cache"
    assert (last["type"], last["added"], last["since"], last["step"]) == ("OrderedDict", 10, 3, 4)
    assert 10 * MIB <= last["bytes"] < 11 * MIB


def test_report_of_a_growing_list_names_the_variable(sent, resident):
    held, plain = deque(), {}  # gc does not track the second container, which contains only bytes.

    def add(step):
        SEEN.extend(bytearray(2 * MIB) for _ in range(4))
        held.extend(bytearray(MIB) for _ in range(4))

    try:
        for step in range(1, 5):
            plain.update({(step * 4 + i): bytearray(MIB) for i in range(4)})
            add(step)
            resident(RESIDENT[step])
            _containers.at_step(step)
    finally:
        SEEN.clear()
    names = {mark["name"].split(" (")[0] for mark in named(sent)}
    where = test_report_of_a_growing_list_names_the_variable.__qualname__
    assert names == {f"{__name__}.SEEN", "plain", f"held of {__name__}.{where}.<locals>.add"}


def test_report_of_a_growing_class_attribute_names_the_class(sent, resident):
    try:
        grow(resident, lambda step: Store.shared.extend(bytearray(20 * MIB) for _ in range(3)))
    finally:
        Store.shared.clear()
    assert {mark["name"] for mark in named(sent)} == {f"{__name__}.Store.shared"}


def test_container_with_a_small_share_of_the_growth_is_not_reported(sent, resident):
    grow(resident, lambda step: SEEN.extend(bytearray(MIB) for _ in range(2)))
    SEEN.clear()
    assert named(sent) == [] and len(sent) == 2


def test_report_of_a_growing_lru_cache_names_the_function(sent, resident):
    def add(step):
        for _ in range(4):
            Clip(bytearray(MIB)).loudness()

    try:
        grow(resident, add)
    finally:
        Clip.loudness.cache_clear()
    assert f"lru_cache of {__name__}.Clip.loudness" in {mark["name"] for mark in named(sent)}


def test_report_of_a_container_is_withdrawn_once_growth_stops(sent, resident):
    store = Store()
    grow(resident, lambda step: step < 4 and store.cache.update(
        {(step, i): bytearray(MIB) for i in range(4)}))
    assert named(sent)[-1]["step"] == 3
    assert sent[-1] == {"kind": "kept", "step": 4, "since": 3}


def test_progress_listeners_get_no_marks_about_growing_containers(monkeypatch):
    heard = []
    with listening(monkeypatch), _tap.tap_thread(lambda text, must_arrive: heard.append(text)):
        _wire.wire().mark("kept", True, step=1, since=None)
        _wire.wire().mark("other", value=1)
    assert heard == ["KIND=other\nVALUE=1"]


def test_containers_are_not_scanned_while_memory_is_flat(sent, resident, monkeypatch):
    monkeypatch.setattr(_containers, "_scan", lambda *_: pytest.fail("it scanned"))
    for step in range(1, 10):
        resident(1000)
        _containers.at_step(step)


def figures_of(sent, name):
    return [f[f"container:{name}"] for f in sent.figures if f"container:{name}" in f]


def test_metrics_of_growing_containers_are_sent(sent, resident):
    store, local, lists = Store(), {}, {i: [] for i in range(8)}

    def add(step):
        local[step] = local[-step] = bytearray(MIB // 4)
        SEEN.append(bytearray(MIB // 4))
        Store.shared.append([bytearray(MIB // 8)])
        store.cache[step] = bytearray(MIB // 2)
        Clip(bytearray(MIB)).loudness()
        for one in lists.values():
            one.append(bytearray(MIB // 16))

    try:
        for step in range(1, 9):
            add(step)
            resident(100 + step)  # memory grows by 1 % per step
            _containers.at_step(step)
    finally:
        SEEN.clear()
        Store.shared.clear()
        Clip.loudness.cache_clear()
    assert named(sent) == []  # Memory grows too little for KIND=kept marks.
    # names of metrics are cut after 62 characters
    test = "test_metrics_of_growing_containers_are_sent"
    assert figures_of(sent, f"{__name__}.SEEN") == [3, 4, 5, 6, 7, 8]
    assert figures_of(sent, f"{__name__}.Store.shared") == [3, 4, 5, 6, 7, 8]
    assert figures_of(sent, f"{__name__}.Store.cache")[-1] == 8
    assert figures_of(sent, f"lru_cache of {__name__}.Clip.loudness")[-1] == 8
    assert figures_of(sent, f"local of {test}()")[-1] == 16
    assert figures_of(sent, f"lists of {test}()[…]")[-1] == 64
    size = sent.figures[-1][f"container_bytes:{__name__}.SEEN"]
    assert 2 * MIB <= size < 3 * MIB


def test_metrics_of_an_emptied_container_have_zero_entries(sent, resident):
    for step in range(1, 9):
        if step < 7:
            SEEN.append(bytearray(MIB))
        else:
            SEEN.clear()
        resident(100 + step)
        _containers.at_step(step)
    assert figures_of(sent, f"{__name__}.SEEN") == [3, 4, 5, 6, 0, 0]


def test_containers_of_a_job_without_steps_are_scanned_by_a_thread(sent, resident):
    kept = []
    for i in range(6):
        kept.append(bytearray(MIB))
        resident(100 + 2 * i)
        thread = threading.Thread(target=_containers.without_steps)
        thread.start()
        thread.join()
    name = "kept of test_containers_of_a_job_without_steps_are_scanned_by_a_thread()"
    assert figures_of(sent, name[:61] + "…")[-1] == 6


def test_container_scan_thread_never_calls_gc_get_objects(sent, resident, monkeypatch):
    """A list of all objects would refer to tuples that the job is still creating, and make the
    job's call of tuple() fail."""
    def fail():
        raise AssertionError("gc.get_objects by the thread")

    monkeypatch.setattr(_containers.gc, "get_objects", fail)
    for i in range(6):
        resident(100 + 64 * i)
        _containers.without_steps()
    assert _containers._is_off is False  # After a failed scan, _is_off would be True.


def test_no_marks_are_sent_if_memory_grows_outside_containers(sent, resident):
    for mib in RESIDENT[1:]:
        resident(mib)
        _containers.without_steps()
    assert sent == []


def test_container_scan_thread_is_idle_while_steps_arrive(sent, resident, monkeypatch):
    resident(100)
    _containers.at_step(1)
    monkeypatch.setattr(_containers, "_scan", lambda *_: pytest.fail("it scanned"))
    resident(200)
    _containers.without_steps()


def test_container_scan_triggers_no_garbage_collection(sent, resident):
    crowd = [[i, i] for i in range(100_000)]
    store, collected = Store(), []

    def add(step):
        store.cache.update({(step, i): bytearray(MIB) for i in range(9)})
        gc.collect()
        collected.append(gc.get_stats()[1]["collections"])

    grow(resident, add)
    assert len(crowd) == 100_000 and named(sent)[-1]["name"].endswith(".Store.cache")
    # If a scan created an object per container, it would cause dozens of garbage collections.
    assert collected[-1] - collected[0] <= 2


def test_container_scan_time_is_bounded(sent, resident, monkeypatch):
    scans = []
    monkeypatch.setattr(_containers, "_scan", lambda step, rss, is_grown: scans.append(step))
    monkeypatch.setattr(_containers, "_spent_s", PATIENCE_S)
    monkeypatch.setattr(_containers, "_SHARE", 0.01)
    grow(resident, lambda step: None)
    assert scans == []


def test_job_is_not_scanned_for_containers_right_after_its_start(sent, resident, monkeypatch):
    scans, ran_s = [], 0.0
    monkeypatch.setattr(_containers, "_scan", lambda step, rss, is_grown: scans.append(step))
    monkeypatch.setattr(_containers, "_SHARE", 0)
    monkeypatch.setattr(_containers, "_YOUNG_SHARE", 0.05)
    monkeypatch.setattr(_containers.time, "monotonic", lambda: 1000 + ran_s)
    # for this many blocks, a full scan is estimated to take 0.1 s
    monkeypatch.setattr(_containers.sys, "getallocatedblocks", lambda: 1_000_000)
    resident(100)
    _containers.at_step(1)
    for step, ran_s in enumerate((1.0, 1.9, 2.1), 2):
        resident(100 + 100 * step)
        _containers.at_step(step)
    assert scans == [4]


def test_failed_container_scan_is_not_repeated(sent, resident, monkeypatch):
    def fail(step, rss, is_grown):
        raise RuntimeError("no")

    monkeypatch.setattr(_containers, "_scan", fail)
    grow(resident, lambda step: None)
    assert _containers._is_off is True and sent == []


@pytest.mark.parametrize("reason", ["EBB_KEEPERS", "objects"])
def test_container_scan_is_skipped_if_disabled_or_if_heap_is_huge(
        sent, resident, monkeypatch, reason):
    if reason == "objects":
        monkeypatch.setattr(_containers, "_OBJECTS_MAX", 1)
    else:
        monkeypatch.setenv("EBB_KEEPERS", "0")
    store = Store()
    grow(resident, lambda step: store.cache.update({(step, i): bytearray(MIB) for i in range(9)}))
    assert sent == []


def test_container_scan_runs_no_job_code_and_keeps_no_object_alive(sent, resident):
    class Meta(type):
        def __hash__(cls):
            raise AssertionError("hashed")

    class Odd(list, metaclass=Meta):
        def __len__(self):
            raise AssertionError("asked for its length")

    kept = [Odd([1, 2, 3])]
    grow(resident, lambda step: SEEN.append(bytearray(MIB)))
    SEEN.clear()
    assert _containers._is_off is False and kept
    assert not [r for r in gc.get_referrers(kept) if type(r) is list]


def graph_job():
    """Returns a model, and a function that computes a loss. The graph of each loss keeps about 8
    MiB alive."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Linear(64, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1)
    model = torch.nn.Sequential(*layers)
    return model, lambda: model(torch.ones(2048, 64)).sum()


@pytest.mark.parametrize("key", [None, "loss"])
def test_sum_of_losses_is_reported_with_its_autograd_graph(sent, resident, key):
    _, loss_of = graph_job()
    total, sums = 0, {"loss": 0}

    def add(_):
        nonlocal total
        loss = loss_of()
        if key:
            sums[key] = sums[key] + loss
        else:
            total = total + loss

    grow(resident, add)
    last = named(sent)[-1]
    name = "sums['loss']" if key else "total"
    assert last["name"].startswith(f"{name} (a variable of ")
    assert (last["type"], last["graph"], last["library"]) == ("Tensor", 1, None)
    assert 7 * MIB <= last["bytes"] <= 9 * MIB


def test_sum_of_losses_is_reported_if_its_variable_is_created_late(sent, resident, monkeypatch):
    _, loss_of = graph_job()
    total, now = None, 0

    def add(step):
        nonlocal total, now
        loss, now = loss_of(), step
        total = None if step < 3 else loss if total is None else total + loss

    monkeypatch.setattr(_containers, "_is_time", lambda ran_s, is_grown: now in (2, 4))
    grow(resident, add)
    assert named(sent)[-1]["name"].startswith("total (a variable of ")


def test_sum_of_losses_is_reported_without_any_full_scan(sent, resident, monkeypatch):
    _, loss_of = graph_job()
    total = 0

    def add(step):
        nonlocal total
        total = loss_of() + (total if step < 4 else 0)

    monkeypatch.setattr(_containers, "_is_time", lambda ran_s, is_grown: False)
    grow(resident, add, 3)
    last = named(sent)[-1]
    assert last["name"].startswith("total (a variable of ")
    assert (last["type"], last["graph"], last["since"], last["step"]) == ("Tensor", 1, 1, 3)
    add(4)
    resident(RESIDENT[3])
    _containers.at_step(4)
    assert "name" not in sent[-1]  # a mark without a name withdraws the report


def test_list_of_losses_is_reported_with_bytes_of_autograd_graphs(sent, resident):
    _, loss_of = graph_job()
    losses = []
    grow(resident, lambda step: losses.extend(loss_of() for _ in range(4)))
    last = named(sent)[-1]
    assert last["name"].startswith("losses ")
    assert (last["type"], last["graph"]) == ("list", 1)
    assert 28 * MIB <= last["bytes"] <= 36 * MIB


def test_losses_without_a_live_autograd_graph_are_not_reported(sent, resident):
    model, loss_of = graph_job()
    losses, outputs = [], []

    def add(_):
        loss = loss_of()
        loss.backward()
        losses.append(loss)
        for _ in range(4):
            outputs.append(model[0].weight.detach().repeat(32, 1))

    grow(resident, add)
    found = named(sent)
    assert [mark["name"].partition(" ")[0] for mark in found] == ["outputs"] * len(found)
    assert found and all(mark["graph"] is None for mark in found)


@pytest.mark.parametrize("make, add, limit", [
    (lambda: deque(maxlen=50), deque.append, 50),
    (deque, deque.append, None),
    (lambda: queue.Queue(60), queue.Queue.put, 60),
    (queue.PriorityQueue, queue.Queue.put, None),
    (lambda: asyncio.Queue(70), asyncio.Queue.put_nowait, 70),
])
def test_container_metrics_include_the_maximum_number_of_entries(sent, resident, make, add, limit):
    held = make()
    grow(resident, lambda step: [add(held, bytes(i) * MIB) for i in range(2)])
    found = {key.partition(":")[0]: value for key, value in sent.figures[-1].items()}
    assert found["container"] == 8 and found.get("container_limit") == limit


def test_container_in_a_library_object_is_named_after_a_user_variable(sent, resident):
    store = Store()
    store.cache = queue.Queue()
    grow(resident, lambda step: [store.cache.put(bytearray(MIB)) for _ in range(2)])
    assert f"container:{__name__}.Store.cache.queue" in sent.figures[-1]


def longer_tensor(tensor):
    torch = pytest.importorskip("torch")
    more = torch.zeros(MIB // 4)
    return more if tensor is None else torch.cat([tensor, more])


def longer_array(array):
    numpy = pytest.importorskip("numpy")
    more = numpy.zeros(MIB // 8)
    return more if array is None else numpy.append(array, more)


@pytest.mark.parametrize("longer", [
    longer_tensor, longer_array, lambda text: (text or "") + "x" * MIB,
    lambda data: (data or bytearray()) + bytearray(MIB),
])
def test_array_or_text_that_grows_is_treated_as_a_container(sent, resident, longer):
    store = Store()
    store.cache = None

    def add(_):
        store.cache = longer(store.cache)

    grow(resident, add)
    name = f"{__name__}.Store.cache"
    assert sent.figures[-1] == {f"container:{name}": 4 * MIB, f"container_bytes:{name}": 4 * MIB}


def new_pages():
    """Returns memory that the kernel has not backed with pages yet. malloc could return memory that
    was used before."""
    return mmap.mmap(-1, 64 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def large_array():
    return pytest.importorskip("numpy").frombuffer(new_pages(), "u1")


def large_tensor():
    torch = pytest.importorskip("torch")
    return torch.frombuffer(new_pages(), dtype=torch.uint8)


@pytest.mark.parametrize("make", [large_array, large_tensor])
def test_full_size_of_a_preallocated_array_is_sent_as_the_limit(
        sent, resident, make):
    store = Store()
    store.cache = make()

    def add(step):
        store.cache[(step - 1) * 8 * MIB:step * 8 * MIB] = 1

    grow(resident, add)
    name = f"{__name__}.Store.cache"
    assert sent.figures[-1][f"container_limit:{name}"] == 64 * MIB
    written = sent.figures[-1][f"container_bytes:{name}"]
    assert 31 * MIB < written < 34 * MIB
    store.cache = make()[:48 * MIB].repeat(2)  # replaces the array by a longer one
    _containers.at_step(5)
    assert sent.figures[-1][f"container_limit:{name}"] == 0


def limits_sent(sent):
    return [{key.partition(":")[2]: value for key, value in figures.items()
             if key.startswith("container_limit:")} for figures in sent.figures]


def test_no_limit_is_sent_for_an_array_replaced_by_a_longer_array(sent, resident):
    store = Store()
    store.cache = large_array()

    def add(step):
        if step == 4:
            store.cache = store.cache.repeat(2)
        store.cache[(step - 1) * 8 * MIB:step * 8 * MIB] = 1

    grow(resident, add)
    for step in range(5, 9):
        add(step)
        _containers.at_step(step)
    limits = [one[f"{__name__}.Store.cache"] for one in limits_sent(sent)]
    assert limits[0] == 64 * MIB and set(limits[1:]) == {0}, limits


def test_limit_metric_of_arrays_with_one_name_is_the_sum_of_the_sizes(sent, resident):
    stores = first, second = Store(), Store()
    for store in stores:
        store.cache = large_array()

    def add(step):
        for store in stores:
            store.cache[(step - 1) * 4 * MIB:step * 4 * MIB] = 1

    grow(resident, add)
    assert [set(one.values()) for one in limits_sent(sent)] == [{128 * MIB}] * len(sent.figures)
    assert sent.figures and first is not second


def test_mapped_file_counts_as_fully_written_even_if_partly_resident(tmp_path):
    numpy = pytest.importorskip("numpy")
    (tmp_path / "data").write_bytes(bytes(4 * MIB))
    data = numpy.asarray(numpy.memmap(tmp_path / "data", "u1", "r"))
    assert data[:MIB].sum() == 0  # makes part of the file resident
    assert _memory.written_bytes(_weight.address_of(data), data.nbytes) == data.nbytes


def test_metrics_of_an_lru_cache_of_dicts_include_the_maxsize(sent, resident):
    @lru_cache(80)
    def record(number):
        return {"pixels": bytearray(MIB)}

    grow(resident, lambda step: [record(10 * step + i) for i in range(10)])
    found = {key.partition(":")[0]: value for key, value in sent.figures[-1].items()
             if "lru_cache of" in key}
    assert (found["container"], found["container_limit"]) == (40, 80)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_tensor_does_not_break_container_scans(sent, resident):
    torch = pytest.importorskip("torch")
    store = Store()
    store.matrix = torch.sparse_coo_tensor(torch.zeros(1, 2 * MIB, dtype=torch.long),
                                           torch.zeros(2 * MIB), (4,))
    grow(resident, lambda step: store.cache.update({step: bytearray(MIB)}))
    assert f"container:{__name__}.Store.cache" in sent.figures[-1]


def test_metrics_of_a_freed_container_are_zero(sent, resident):
    store = Store()
    store.cache = deque(maxlen=50)
    grow(resident, lambda step: store.cache.extend(bytearray(MIB) for _ in range(2)), 3)
    assert sent.figures[-1][f"container_limit:{__name__}.Store.cache"] == 50
    store.cache = None
    _containers.at_step(4)
    assert sent.figures[-1] == {f"container:{__name__}.Store.cache": 0,
                                f"container_bytes:{__name__}.Store.cache": 0,
                                f"container_limit:{__name__}.Store.cache": 0}


def test_metrics_of_an_lru_cache_include_the_size_of_its_results(sent, resident):
    @lru_cache(80)
    def pixels(number):
        return bytearray(2 * MIB)

    grow(resident, lambda step: [pixels(10 * step + i) for i in range(10)])
    name = f"lru_cache of {__name__}.{pixels.__qualname__}"[:61]
    sizes = {key: value for key, value in sent.figures[-1].items() if name[:30] in key}
    found = {key.partition(":")[0]: value for key, value in sizes.items()}
    assert found["container_limit"] == 80 and found["container"] == 40
    assert 80 * MIB <= found["container_bytes"] < 88 * MIB


def test_container_that_lost_entries_is_not_reported(sent, resident):
    log, rows = [], []

    def add(step):
        rows.extend(bytearray(MIB) for _ in range(12))
        log.extend(bytearray(MIB) for _ in range(12))
        if step == 4:
            del log[5:]

    grow(resident, add, 5)
    test = "test_container_that_lost_entries_is_not_reported"
    assert figures_of(sent, f"log of {test}()") == [36, 5, 17]
    assert [mark["name"].split(" ")[0] for mark in named(sent) if mark["step"] == 5] == ["rows"]


def test_container_report_includes_the_maximum_number_of_entries(sent, resident):
    held = deque(maxlen=500)
    grow(resident, lambda step: held.extend(bytearray(MIB) for _ in range(20)))
    assert {mark["limit"] for mark in named(sent)} == {500}


def test_memory_shared_by_container_entries_is_counted_once():
    shared = bytearray(64 * MIB)
    entries = [[shared, bytearray(MIB)] for _ in range(2)]
    assert MIB <= _weight.of_one(entries, entries, set())[0] < 2 * MIB


def test_size_of_an_entry_excludes_the_container_that_holds_the_entry():
    entries = []
    entries += [{"all": entries, "own": bytearray(MIB)} for _ in range(8)]
    assert MIB <= _weight.of_one(entries[-4:], entries, set())[0] < 2 * MIB


def test_container_owner_search_returns_nothing_at_the_time_limit():
    assert _referrers.owner(SEEN, [], time.monotonic() - 1) is None


JOB = """
import ebb, time
from ebb import _containers
_containers._SHARE, _containers._NAMES_S, _containers._WALL_S = 1e12, 100.0, 100.0  # on any machine

class Store:
    def __init__(self):
        self.cache = {}

store = Store()
for step in range(1, 61):
    store.cache[step] = bytearray(b"x") * (2 << 20)
    ebb.step(step)
    time.sleep(0.1)
"""


def test_heap_and_diagnose_commands_print_the_growing_container(run_job):
    run = run_job(sys.executable, "-c", JOB)
    assert run.status == 0, run.stderr
    name = "Store.cache"
    for command in ("heap", "diagnose"):
        sent = subprocess.run([binary(), command, run.folder, "--json"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=True).stdout
        kept = json.loads(sent)["kept_by"]
        assert [k["name"] for k in kept] == [name], command
        assert kept[0]["type"] == "dict" and 2 * MIB < kept[0]["bytes"] <= 120 * MIB
        assert kept[0]["since_step"] < kept[0]["step"] <= 60
        text = subprocess.run([binary(), command, run.folder], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True).stdout
        assert "kept by" in text and name in " ".join(text.split()), text


@pytest.mark.parametrize("name, is_library", [
    ("__main__.seen", False),
    ("Features.cache", False),
    ("losses (a variable of train() in /job/train.py:3)", False),
    ("lru_cache of json.decoder.scan", True),
    ("json.decoder.Scanner.memo['x']", True),
    ("seen (a variable of f() in /v/lib/site-packages/torch/a.py:3)", True),
])
def test_container_names_from_library_modules_are_recognized(name, is_library):
    assert _referrers.is_library_name(name) is is_library


def has_dictionary(o):
    return any(type(r) is dict for r in gc.get_referents(o))


class Loader:
    limit = 2

    def __init__(self):
        self.items, self.limit = [1], 3
        self._hidden = None

    @property
    def hidden(self):
        raise AssertionError("a scan called a property")

    @hidden.setter
    def hidden(self, value):
        self._hidden = value

    def hide(self, value):
        self.hidden = value


needs_inline = pytest.mark.skipif(not _referrers._HAS_INLINE, reason="attributes have a dictionary")


@needs_inline
def test_scan_reads_attributes_without_creating_a_dictionary(sent, resident, monkeypatch):
    loader = Loader()
    monkeypatch.setattr(sys.modules[__name__], "LOADER", loader, raising=False)
    assert id(loader.items) in _referrers.named_objects()
    grow(resident, loader.items.append)
    assert not has_dictionary(loader)
    assert _referrers.attributes(loader) == {"items": loader.items, "limit": 3, "_hidden": None}
    assert not has_dictionary(loader)


@needs_inline
def test_attribute_assigned_after_many_names_is_found_without_a_dictionary():
    lines = "".join(f"    x.a{i}\n" for i in range(300))
    space = {}
    exec(f"def assign(x, is_long):\n  if is_long:\n{lines}  x.last = 1\n", space)
    long = type("Long", (), {"assign": space["assign"]})()
    long.assign(False)
    assert _referrers.attributes(long) == {"last": 1} and not has_dictionary(long)


def test_attribute_that_no_method_assigns_is_found():
    loader = Loader()
    setattr(loader, "extra", [3])
    assert _referrers.attributes(loader)["extra"] == [3]


def test_attributes_in_slots_and_a_dictionary_are_found():
    class Slotted(Loader):
        __slots__ = ("place",)

    slotted = Slotted()
    slotted.place = [4]
    slotted.other = 5
    assert _referrers.attributes(slotted)["other"] == 5


@needs_inline
def test_scan_of_an_object_calls_no_code_of_the_program():
    class Meta(type):
        def __getattribute__(cls, name):
            raise AssertionError(f"a scan read {name} through the metaclass")

    class Patched(metaclass=Meta):
        def assign(self):
            self.value = 1

    def circular(self):
        self.other = 2

    circular.__wrapped__ = circular
    patched = object.__new__(Patched)
    type.__setattr__(Patched, "circular", circular)
    type.__dict__["__dict__"].__get__(Patched)["assign"](patched)
    assert _referrers.attributes(patched) == {"value": 1}
    type.__setattr__(Patched, "value", property(lambda self: 1 / 0, lambda self, value: None))
    assert _referrers.attributes(patched) == {"value": 1}


@needs_inline
def test_search_for_an_owner_creates_no_dictionary_in_an_ordered_dict():
    kept = [object()]
    hooks = OrderedDict(first={"kept": kept})
    _referrers.owner(kept, [], time.monotonic() + PATIENCE_S)
    assert [r for r in gc.get_referents(hooks) if r == {}] == []
