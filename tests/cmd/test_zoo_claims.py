"""Tests the zoo's check of diagnoses: each argument against a hypothesis must agree with the program's own
counters."""

import sys

import pytest

from commands import ROOT

sys.path.insert(0, str(ROOT / "zoo"))
import claims  # noqa: E402
import diagnosis  # noqa: E402

MIB = 1 << 20
LEDGER = {"start_s": 0, "now_s": 100, "rss_start_bytes": 400 * MIB, "rss_now_bytes": 500 * MIB,
          "entries": []}


def counters(live, events=(), steps_per_epoch=25):
    """Returns counters of a simulated program. LIVE(step) is the live memory in MiB at the end of a step."""
    marks = [{"kind": "begin", "t": 0, "steps_per_epoch": steps_per_epoch}]
    for step in range(1, 101):
        marks.append({"kind": "step", "t": step, "step": step})
        if step in events:
            marks.append({"kind": "eval", "t": step + 0.5, "step": step})
    return claims.Counters(marks, {s: live(s) * MIB for s in range(1, 101)}, LEDGER)


def leaks(step):
    return step


def is_flat(step):
    return 7


def saw_tooth(step):
    return step % 20


def fills_in_one_pass(step):
    return 4 * min(step, 25)


def jumps_at_evaluations(step):
    return 10 * (step // 10)


def wrong(c, sentence, key="call_site"):
    doc = {"hypotheses": [{"key": key, "word": "ruled out", "against": [sentence]},
                          {"key": "true", "word": "likely", "against": []}]}
    return claims.contradicted(doc, c, ["true"])


LIVE = "the live heap changed by {} (± 5.00 MiB) while memory grew by 100 MiB: +1.00 MiB is free"
LET_GO = ("allocations are freed: from the first to the second half of the run, the baseline of the live heap "
          "changed by +100 KiB, but that of resident memory by +50.0 MiB")


@pytest.mark.parametrize("live, sentence", [
    (leaks, "memory did not grow"),
    (leaks, "memory grew by only 20.0 MiB and then stopped: little to ask about"),
    (leaks, "no call site grows; the live heap changed by +1.00 MiB"),
    (leaks, LET_GO),
    (leaks, LIVE.format("+2.00 MiB")),
    (leaks, LIVE.format("+2.00 MiB").replace(" (± 5.00 MiB)", "")),
    (is_flat, LIVE.format("+98.0 MiB")),
    (is_flat, "the live heap grew along with resident memory"),
    (fills_in_one_pass, "80.0 MiB of the growth came after the first epoch"),
    (fills_in_one_pass, "growth ended at step 60, but the first epoch has 25 steps"),
    (leaks, "the growing call site explains only a small part of the growth of 20.0 MiB"),
])
def test_zoo_rejects_a_diagnosis_claim_that_counters_contradict(live, sentence):
    assert len(wrong(counters(live), sentence)) == 1


@pytest.mark.parametrize("live, sentence", [
    (is_flat, "memory did not grow"),
    (fills_in_one_pass, "memory grew by only 90.0 MiB and then stopped: little to ask about"),
    (is_flat, "no call site grows; the live heap changed by +1.00 MiB"),
    (saw_tooth, LET_GO),
    (lambda step: 6 * (step % 20), "memory did not grow"),
    (leaks, LIVE.format("+98.0 MiB")),
    (is_flat, LIVE.format("+2.00 MiB")),
    (leaks, "the live heap grew along with resident memory"),
    (leaks, "80.0 MiB of the growth came after the first epoch"),
    (leaks, "growth ended at step 60, but the first epoch has 25 steps"),
    (leaks, "shared memory changed by +1.00 KiB"),
])
def test_zoo_accepts_a_diagnosis_claim_that_counters_support(live, sentence):
    assert wrong(counters(live), sentence) == []


def test_zoo_rejects_claims_about_evaluations_that_counters_contradict():
    events = set(range(10, 101, 10))
    said = "10 evaluations and checkpoints account for +3.00 MiB of the growth of 100 MiB"
    assert wrong(counters(jumps_at_evaluations, events), said, "eval_step")
    assert not wrong(counters(leaks, events), said, "eval_step")
    none = "no significant spike at 10 evaluations and checkpoints"
    assert not wrong(counters(leaks, events), none, "eval_spike")


def test_zoo_rejects_a_diagnosis_claim_of_an_unknown_type():
    [one] = wrong(counters(is_flat), "the moon was full")
    assert "the moon was full" in one


def test_zoo_rejects_a_diagnosis_that_excludes_the_true_cause():
    doc = {"hypotheses": [{"key": "call_site", "word": "unlikely", "against": []}]}
    assert claims.contradicted(doc, counters(leaks), ["call_site"])
    doc["hypotheses"][0]["word"] = "possible"
    assert not claims.contradicted(doc, counters(leaks), ["call_site"])


def entry(start, now):
    return {"start_bytes": start * MIB, "now_bytes": now * MIB}


def test_zoo_rejects_a_memory_ledger_that_does_not_add_up_to_rss():
    good = dict(LEDGER, entries=[entry(300, 400), entry(100, 100)])
    assert diagnosis.adds_up(good)
    assert not diagnosis.adds_up(dict(LEDGER, entries=[entry(300, 400), entry(100, 101)]))
    assert not diagnosis.adds_up(dict(LEDGER, entries=[entry(401, 400), entry(-1, 100)]))


class Result:
    def __init__(self, right=True, named=1.0, adds_up=True, wrong=()):
        self.right, self.named, self.adds_up, self.wrong = right, named, adds_up, list(wrong)
        self.ledger = LEDGER

    is_unnamed = diagnosis.Judged.is_unnamed


@pytest.mark.parametrize("bad, missed", [
    ([], 0),
    ([Result(right=False)], 0),
    ([Result(right=False), Result(right=False)], 1),
    ([Result(named=0.94)], 1),
    ([Result(adds_up=False)], 1),
    ([Result(wrong=["one"])], 1),
])
def test_zoo_rejects_diagnosis_accuracy_below_the_required_level(bad, missed):
    bars = diagnosis.summary([Result() for _ in range(10)] + bad)
    assert sum(not is_reached for _, is_reached in bars) == missed
