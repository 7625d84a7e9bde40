"""Tests that the verdict, diagnosis and heap rows of a run agree, and that the check detects contradictions between
them."""

import importlib.util
import os
import shutil

import pytest

from commands import ROOT


def load_check():
    spec = importlib.util.spec_from_file_location("contradictions", ROOT / "zoo" / "contradictions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load_check()


def explanation(key, word="nearly certain", reason="x"):
    return {"key": key, "title": key, "word": word, "for": [reason]}


def found(leak, hypotheses=(), advice=(), grew=True, rows=()):
    verdict = {"tree": {"leak": leak, "verdict": "leaking" if leak else "stable"}, "gpus": []}
    diagnosis = {"hypotheses": list(hypotheses), "advice": [{"because": key} for key in advice], "grew": grew}
    heap = {"rows": [{"verdict": {"verdict": word}, "where": {"function": "f"}} for word in rows]}
    return list(check.contradictions(verdict, diagnosis, heap))


def test_contradiction_check_accepts_consistent_command_outputs():
    assert found(True, [explanation("call_site"), explanation("retention", "ruled out")], rows=["leaking"]) == []
    assert found(False, [explanation("no_growth")], grew=False, rows=["stable"]) == []


@pytest.mark.parametrize("answers", [
    {"leak": True, "hypotheses": [explanation("retention")]},
    {"leak": True, "advice": ["first_touch"]},
    {"leak": True, "grew": False},
    {"leak": False, "hypotheses": [explanation("processes")]},
    {"leak": False, "hypotheses": [explanation("call_site", reason="a.py:3 holds more: leaking")]},
    {"leak": False, "rows": ["leaking"]},
], ids=lambda answers: "-".join(answers))
def test_contradiction_check_finds_each_kind_of_contradiction(answers):
    assert len(found(**answers)) == 1


def test_commands_agree_on_the_stored_run_of_each_ebb_version(tmp_path):
    ebb = os.environ["EBB_BINARY"]
    for kept in (ROOT / "tests" / "data" / "versions").glob("[0-9]*"):
        run = shutil.copytree(kept / "run", tmp_path / kept.name)
        verdict = check.ask(ebb, "verdict", str(run))
        assert verdict["tree"]["verdict"]
        assert list(check.contradictions(verdict, check.ask(ebb, "diagnose", str(run)),
                                         check.ask(ebb, "heap", str(run)))) == []
