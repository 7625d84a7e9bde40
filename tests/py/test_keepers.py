"""Who keeps what piles up: the containers that gained, where memory grows, and nowhere else."""

import gc
import json
import subprocess
import sys
import time
from collections import OrderedDict, deque
from functools import lru_cache

import pytest

from ebb import _keepers, _referrers, _tap, _weight, _wire
from jobs import PATIENCE_S, binary, listening

MIB = 1 << 20
SEEN = []  # a module's own
RESIDENT = [0, 100, 124, 148, 196]  # MiB after each step: a look from the second on


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


@pytest.fixture
def told(monkeypatch):
    """What is told, as [{NAME: value}]."""
    found = []

    class Wire:
        is_there = True

        def mark(self, kind, must_arrive, **values):
            found.append({"kind": kind, **values})

    monkeypatch.setattr(_keepers, "wire", Wire)
    for name, value in (("_last", None), ("_base", None), ("_next_s", 0.0), ("_spent_s", 0.0),
                        ("_is_off", None), ("_names", {}), ("_INTERVAL_S", 0.0),
                        ("_look_s", 0.0), ("_YOUNG_SHARE", 0), ("_BUDGET_S", PATIENCE_S),
                        ("_WALL_S", PATIENCE_S)):
        monkeypatch.setattr(_keepers, name, value)
    return found


@pytest.fixture
def resident(monkeypatch):
    """Sets what is resident."""
    def put(mib):
        monkeypatch.setattr(_keepers._memory, "rss_bytes", lambda: mib * MIB)
    return put


def grow(resident, add, steps=4):
    """Steps after each of which something is added and memory has grown."""
    for step in range(1, steps + 1):
        add(step)
        resident(RESIDENT[step])
        _keepers.at_step(step)


def named(told):
    return [mark for mark in told if "name" in mark]


def test_a_container_that_gains_is_named_by_its_owner_with_what_it_gained(told, resident):
    store = Store()

    def add(step):
        for i in range(10):
            store.cache[step, i] = bytearray(MIB)

    grow(resident, add)
    last = named(told)[-1]
    assert last["name"] == f"cache of a {__name__}.Store"
    assert (last["type"], last["added"], last["since"], last["step"]) == ("OrderedDict", 10, 3, 4)
    assert 10 * MIB <= last["bytes"] < 11 * MIB


def test_a_module_s_list_and_a_local_one_are_named_by_their_variables(told, resident):
    held, plain = deque(), {}  # gc does not know of the second, which has nothing but bytes

    def add(step):
        SEEN.extend(bytearray(2 * MIB) for _ in range(4))
        held.extend(bytearray(MIB) for _ in range(4))

    try:
        for step in range(1, 5):
            plain.update({(step * 4 + i): bytearray(MIB) for i in range(4)})
            add(step)
            resident(RESIDENT[step])
            _keepers.at_step(step)
    finally:
        SEEN.clear()
    names = {mark["name"].split(" (")[0] for mark in named(told)}
    where = test_a_module_s_list_and_a_local_one_are_named_by_their_variables.__qualname__
    assert names == {f"{__name__}.SEEN", "plain", f"held of {__name__}.{where}.<locals>.add"}


def test_a_class_s_own_is_named_by_it(told, resident):
    try:
        grow(resident, lambda step: Store.shared.extend(bytearray(20 * MIB) for _ in range(3)))
    finally:
        Store.shared.clear()
    assert {mark["name"] for mark in named(told)} == {f"{__name__}.Store.shared"}


def test_a_small_part_of_the_growth_is_not_told(told, resident):
    grow(resident, lambda step: SEEN.extend(bytearray(MIB) for _ in range(2)))
    SEEN.clear()
    assert named(told) == [] and len(told) == 2


def test_an_lru_cache_is_named_by_what_it_caches(told, resident):
    def add(step):
        for _ in range(4):
            Clip(bytearray(MIB)).loudness()

    try:
        grow(resident, add)
    finally:
        Clip.loudness.cache_clear()
    assert f"lru_cache of {__name__}.Clip.loudness" in {mark["name"] for mark in named(told)}


def test_what_has_stopped_is_over_with_the_next_look(told, resident):
    store = Store()
    grow(resident, lambda step: step < 4 and store.cache.update(
        {(step, i): bytearray(MIB) for i in range(4)}))
    assert named(told)[-1]["step"] == 3
    assert told[-1] == {"kind": "kept", "step": 4, "since": 3}


def test_who_listens_to_the_progress_hears_nothing_of_it(monkeypatch):
    heard = []
    with listening(monkeypatch), _tap.tap_thread(lambda text, must_arrive: heard.append(text)):
        _wire.wire().mark("kept", True, step=1, since=None)
        _wire.wire().mark("other", value=1)
    assert heard == ["KIND=other\nVALUE=1"]


def test_where_memory_does_not_grow_nobody_looks(told, resident, monkeypatch):
    monkeypatch.setattr(_keepers, "_look", lambda *_: pytest.fail("it looked"))
    for step in range(1, 10):
        resident(1000 + step)  # 1 % in all
        _keepers.at_step(step)


def test_a_look_at_many_containers_is_no_reason_to_collect_garbage(told, resident):
    crowd = [[i, i] for i in range(100_000)]
    store, collected = Store(), []

    def add(step):
        store.cache.update({(step, i): bytearray(MIB) for i in range(9)})
        gc.collect()
        collected.append(gc.get_stats()[1]["collections"])

    grow(resident, add)
    assert len(crowd) == 100_000 and named(told)[-1]["name"].startswith("cache of a ")
    assert collected[-1] - collected[0] <= 2  # with something made for each it was dozens


def test_the_time_for_it_is_bounded(told, resident, monkeypatch):
    looks = []
    monkeypatch.setattr(_keepers, "_look", lambda step, rss: looks.append(step))
    monkeypatch.setattr(_keepers, "_spent_s", _keepers._BUDGET_S + 1)
    grow(resident, lambda step: None)
    assert looks == []


def test_a_job_that_has_just_begun_is_not_looked_at(told, resident, monkeypatch):
    looks, ran_s = [], 0.0
    monkeypatch.setattr(_keepers, "_look", lambda step, rss: looks.append(step))
    monkeypatch.setattr(_keepers, "_YOUNG_SHARE", 20)
    monkeypatch.setattr(_keepers.time, "monotonic", lambda: 1000 + ran_s)
    monkeypatch.setattr(_keepers.sys, "getallocatedblocks", lambda: 1_000_000)  # 0.1 s
    resident(100)
    _keepers.at_step(1)
    for step, ran_s in enumerate((1.0, 1.9, 2.1), 2):
        resident(100 + 100 * step)
        _keepers.at_step(step)
    assert looks == [4]


def test_a_look_that_fails_is_the_last(told, resident, monkeypatch):
    def fail(step, rss):
        raise RuntimeError("no")

    monkeypatch.setattr(_keepers, "_look", fail)
    grow(resident, lambda step: None)
    assert _keepers._is_off is True and told == []


@pytest.mark.parametrize("reason", ["EBB_KEEPERS", "objects"])
def test_it_can_be_switched_off_and_keeps_away_from_huge_heaps(told, resident, monkeypatch, reason):
    if reason == "objects":
        monkeypatch.setattr(_keepers, "_OBJECTS_MAX", 1)
    else:
        monkeypatch.setenv("EBB_KEEPERS", "0")
    store = Store()
    grow(resident, lambda step: store.cache.update({(step, i): bytearray(MIB) for i in range(9)}))
    assert told == []


def test_no_object_is_kept_alive_and_no_code_of_the_job_s_is_called(told, resident):
    class Meta(type):
        def __hash__(cls):
            raise AssertionError("hashed")

    class Odd(list, metaclass=Meta):
        def __len__(self):
            raise AssertionError("asked for its length")

    kept = [Odd([1, 2, 3])]
    grow(resident, lambda step: SEEN.append(bytearray(MIB)))
    SEEN.clear()
    assert _keepers._is_off is False and kept
    assert not [r for r in gc.get_referrers(kept) if type(r) is list]


def test_what_entries_share_is_no_part_of_what_one_adds():
    shared = bytearray(64 * MIB)
    entries = [[shared, bytearray(MIB)] for _ in range(2)]
    assert MIB <= _weight.of_one(entries, entries, set()) < 2 * MIB


def test_an_entry_that_leads_back_to_its_container_does_not_take_the_others_along():
    entries = []
    entries += [{"all": entries, "own": bytearray(MIB)} for _ in range(8)]
    assert MIB <= _weight.of_one(entries[-4:], entries, set()) < 2 * MIB


def test_a_search_that_has_no_time_left_names_nobody():
    assert _referrers.owner(SEEN, [], time.monotonic() - 1) is None


JOB = """
import ebb, time
from ebb import _keepers
_keepers._YOUNG_SHARE, _keepers._BUDGET_S, _keepers._WALL_S = 0, 100.0, 100.0  # on any machine

class Store:
    def __init__(self):
        self.cache = {}

store = Store()
for step in range(1, 61):
    store.cache[step] = bytearray(b"x") * (2 << 20)
    ebb.step(step)
    time.sleep(0.1)
"""


def test_ebb_heap_and_ebb_diagnose_say_who_keeps_it(run_job):
    run = run_job(sys.executable, "-c", JOB)
    assert run.status == 0, run.stderr
    name = "cache of a __main__.Store"
    for command in ("heap", "diagnose"):
        told = subprocess.run([binary(), command, run.folder, "--json"], capture_output=True,
                              text=True, timeout=PATIENCE_S, check=True).stdout
        kept = json.loads(told)["kept_by"]
        assert [k["name"] for k in kept] == [name], command
        assert kept[0]["type"] == "dict" and 2 * MIB < kept[0]["bytes"] <= 120 * MIB
        assert kept[0]["since_step"] < kept[0]["step"] <= 60
        text = subprocess.run([binary(), command, run.folder], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True).stdout
        assert "kept by" in text and name in " ".join(text.split()), text
