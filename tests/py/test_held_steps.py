"""Tests steps that are too fast for one mark each: which steps are held back, and when they are
sent."""

import sys

import pytest

from trainers import our_calls

import ebb
from ebb import _marks, _tap, _wire


class Listener(_wire.Wire):
    """Records marks instead of sending them."""

    def __init__(self):
        super().__init__()
        self._is_dead = False
        self.is_full = False
        self.texts = []
        self.woken = 0

    def _deliver(self, text, patience_s):
        if not self.is_full:
            self.texts.append(text)
        return not self.is_full

    def count_wakes(self):
        self.woken += 1

    def take_texts(self):
        found, self.texts = self.texts, []
        return [text.partition("\nSECONDS=")[0] for text in found]


@pytest.fixture
def wire(monkeypatch):
    """Returns a wire that has sent its first steps and holds back the next ones."""
    monkeypatch.setattr(_wire, "_STEPS_APART_S", 1e6)
    w = Listener()
    w.help(w.count_wakes)
    for n in range(1, _wire._STEPS_AT_ONCE + 1):
        assert w.step(n)
    assert w.take_texts() == [f"KIND=step\nSTEP={n}" for n in range(1, 11)]
    return w


def hurry(w):
    w._step_due = 0.0


def test_consecutive_fast_steps_are_sent_as_one_mark(wire):
    assert [wire.step(n) for n in range(11, 16)] == [False] * 5
    assert wire.take_texts() == [] and wire.woken == 1
    hurry(wire)
    assert wire.step(16)
    assert wire.take_texts() == ["KIND=step\nSTEP=16\nSTEPS=6"]


def test_mark_for_several_fast_steps_has_their_total_duration(wire):
    wire.step(11)
    hurry(wire)
    wire.step(12)
    lines = dict(line.split("=") for line in wire.texts[0].split("\n"))
    assert float(lines["SECONDS"]) >= 0 and lines["STEPS"] == "2"


def test_pending_steps_are_sent_before_any_other_mark(wire):
    wire.step(11)
    wire.step(12)
    wire.mark("save", step=12)
    assert wire.take_texts() == ["KIND=step\nSTEP=12\nSTEPS=2", "KIND=save\nSTEP=12"]
    wire.step(13)
    wire.mark("step", step=14, loss=0.5)
    assert wire.take_texts() == ["KIND=step\nSTEP=13", "KIND=step\nSTEP=14\nLOSS=0.5"]


def test_pending_steps_stay_pending_when_metrics_are_sent(wire):
    wire.step(11)
    wire.send_figures("KIND=series\nHEAP_LIVE_BYTES=1")
    assert wire.take_texts() == ["KIND=series\nHEAP_LIVE_BYTES=1"]


@pytest.mark.parametrize("n", [3, 11, 13, 1000])
def test_step_out_of_sequence_is_sent_immediately(wire, n):
    wire.step(11)
    assert wire.step(n)
    assert wire.take_texts() == ["KIND=step\nSTEP=11", f"KIND=step\nSTEP={n}"]


def test_epoch_end_is_sent_immediately(wire):
    wire.step(20, 1.0)
    assert not wire.step(21, 1.5) and not wire.step(22, 1.9)
    assert wire.step(23, 2.0)
    assert wire.take_texts() == ["KIND=step\nSTEP=20\nEPOCH=1.0",
                                 "KIND=step\nSTEP=22\nEPOCH=1.9\nSTEPS=2",
                                 "KIND=step\nSTEP=23\nEPOCH=2.0"]


def test_last_step_and_step_with_new_max_steps_are_sent_immediately(wire):
    assert not wire.step(11)
    assert wire.step(12, is_last=True)
    assert wire.step(13, tail="\nMAX_STEPS=99") and not wire.step(14, tail="\nMAX_STEPS=99")
    assert wire.take_texts() == ["KIND=step\nSTEP=12\nSTEPS=2", "KIND=step\nSTEP=13\nMAX_STEPS=99"]


def test_one_mark_stands_for_at_most_256_steps(wire):
    sent = [n for n in range(11, 600) if wire.step(n)]
    assert sent == [266, 522]
    assert wire.take_texts() == [f"KIND=step\nSTEP={n}\nSTEPS=256" for n in sent]


def test_pending_steps_are_sent_after_the_maximum_delay(wire):
    wire.step(11)
    assert wire.send_held() and not wire.rest() and wire.take_texts() == []
    hurry(wire)
    assert wire.send_held()
    assert wire.take_texts() == ["KIND=step\nSTEP=11"]
    assert not wire.send_held() and wire.rest()
    wire.step(12)
    assert wire.woken == 2


def test_steps_refused_by_a_full_socket_are_sent_later(wire):
    wire.step(11)
    wire.is_full = True
    hurry(wire)
    wire.send_held()
    wire.is_full = False
    hurry(wire)
    wire.step(12)
    assert wire.take_texts() == ["KIND=step\nSTEP=12\nSTEPS=2"]


def test_pending_steps_are_sent_at_exit(wire):
    wire.step(11)
    wire.send_held(is_exiting=True)
    assert wire.take_texts() == ["KIND=step\nSTEP=11"]


def test_steps_are_not_batched_without_a_helper_thread(wire):
    wire.step(11)
    wire.help(None)
    assert wire.take_texts() == ["KIND=step\nSTEP=11"]
    assert wire.step(12) and wire.step(13)
    assert wire.take_texts() == ["KIND=step\nSTEP=12", "KIND=step\nSTEP=13"]


# ---- fast path ----

TAIL = "\nBY=hook"


@pytest.fixture
def row(wire):
    """Returns a wire that holds back a step, so that the next step may take the fast path."""
    assert wire.step(11, tail=TAIL) and not wire.step(12, tail=TAIL)
    assert wire.take_texts() == ["KIND=step\nSTEP=11\nBY=hook"]
    return wire


def test_step_fast_path_combines_consecutive_steps(row):
    assert [row.hold(n, TAIL) for n in (13, 14)] == [True, True]
    assert row.take_texts() == [] and row.woken == 1
    row.mark("save", step=14)
    assert row.take_texts() == ["KIND=step\nSTEP=14\nBY=hook\nSTEPS=3", "KIND=save\nSTEP=14"]


@pytest.mark.parametrize("n, tail", [(12, TAIL), (14, TAIL), (13, "\nBY=other"), (13, None)])
def test_step_fast_path_accepts_only_the_next_step_of_the_same_epoch(row, n, tail):
    assert not row.hold(n, tail)
    assert row._step[0] == 12


def test_step_fast_path_is_refused_if_no_step_is_pending(row):
    row.mark("save", step=12)
    assert not row.hold(13, TAIL)


def test_step_fast_path_is_refused_when_pending_steps_are_due(row):
    hurry(row)
    assert not row.hold(13, TAIL)


def test_step_fast_path_is_refused_if_the_mark_has_256_steps(row):
    assert [row.hold(n, TAIL) for n in range(13, 268)] == [True] * 254 + [False]
    assert row.step(267, tail=TAIL)
    assert row.take_texts() == ["KIND=step\nSTEP=267\nBY=hook\nSTEPS=256"]


def test_step_fast_path_is_refused_without_a_helper_thread(row):
    row.help(None)
    assert not row.hold(13, TAIL)


def test_step_fast_path_is_refused_in_a_forked_process(row, monkeypatch):
    monkeypatch.setattr(_wire, "_pid", row._pid + 1)
    assert not row.hold(13, TAIL)


@pytest.mark.parametrize("epoch", [None, 0.1, 1.0, 1.3])
def test_step_fast_path_is_refused_after_the_epoch_changes(wire, epoch):
    assert wire.step(11, 0.1, TAIL) and not wire.step(12, 0.2, TAIL)
    assert not wire.hold(13, TAIL, epoch)
    assert wire.hold(13, TAIL, 0.2) and wire.hold(14, TAIL, 0.9)
    wire.mark("save", step=14)
    assert wire.take_texts()[1] == "KIND=step\nSTEP=14\nEPOCH=0.9\nBY=hook\nSTEPS=3"


def test_step_fast_path_is_refused_if_only_the_new_step_has_an_epoch(row):
    assert not row.hold(13, TAIL, 0.5)


def test_step_on_the_fast_path_calls_only_four_ebb_functions(wire, monkeypatch):
    monkeypatch.setattr(_wire, "_wire", wire)
    monkeypatch.setattr(_marks, "_has_hello", True)
    ebb.step(11)
    ebb.step(12)
    assert our_calls(ebb.step, 13) == ["step", "wire", "is_there", "hold"]
    wire.send_held(is_exiting=True)
    assert wire.take_texts() == ["KIND=step\nSTEP=13\nSTEPS=3"]


def test_step_fast_path_wakes_the_helper_thread(row):
    row._is_helped = False
    assert row.hold(13, TAIL)
    assert row.woken == 2


def test_micro_batches_of_a_long_step_are_sent_periodically(wire):
    for n in (11, 11, 12):
        wire.substep(n)
    wire._substep_due = 0.0
    wire.substep(13)
    assert wire.take_texts() == ["KIND=substep\nSTEP=11", "KIND=substep\nSTEP=13"]


def test_listener_in_the_same_process_receives_each_step_separately(wire, monkeypatch):
    heard = []
    monkeypatch.setattr(_tap, "_process_sink", lambda text, must_arrive: heard.append(text))
    wire.__class__ = type("Tapped", (_tap._TappedWire, Listener), {})
    assert wire.step(11) and wire.step(12)
    assert heard == ["KIND=step\nSTEP=11", "KIND=step\nSTEP=12"]


def test_listener_added_during_fast_steps_receives_later_steps(row, monkeypatch):
    row.__class__ = type("Tapped", (_tap._TappedWire, Listener), {})
    assert row.hold(13, TAIL)
    monkeypatch.setattr(_tap, "_process_sink", lambda text, must_arrive: None)
    assert not row.hold(14, TAIL)


def test_signal_handler_may_send_a_step_while_a_step_is_being_sent(wire):
    deliver = wire._deliver

    def interrupted(text, patience_s):
        wire._deliver = deliver
        wire.mark("save", step=10)
        return deliver(text, patience_s)

    wire._deliver = interrupted
    assert wire.step(12)
    assert wire.take_texts()[-1].startswith("KIND=step\nSTEP=12")


# ---- fast steps in real jobs ----

FAST = """
import ebb, os, sys, time
from ebb import _wire
_wire._PATIENCE_S = _wire._STEPS_WAIT_S = 100.0  # ebb may be a while behind on a busy machine
_wire.reset()
for n in range(1, 501):
    ebb.step(n)
"""
FORKED = FAST + """
if os.fork() == 0:
    ebb.step(1000)
    sys.exit(0)
os.wait()
for n in range(501, 601):
    ebb.step(n)
"""
KILLED = FAST + """
until = time.monotonic() + 60
while _wire.wire()._step is not _wire.wire()._sent and time.monotonic() < until:
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("job, last", [(FAST, 500), (FORKED, 600), (KILLED, 500)],
                         ids=["ended", "forked", "killed"])
def test_recording_of_a_fast_loop_contains_every_step(run_job, job, last):
    run = run_job(sys.executable, "-c", job)
    assert run.stderr == ""
    marks = run.marks("step")
    assert [m["step"] for m in marks] == list(range(1, last + 1))
    assert len({m["pid"] for m in marks}) == 1
    assert not any("SECONDS" in str(m).upper() for m in marks)
    times = [m["t"] for m in marks]
    assert times == sorted(times)
