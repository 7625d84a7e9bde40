"""Tests the unseen programs, on which ebb was not tuned: their truth files are complete, and their results are graded
as documented."""

import importlib.util
import json

import pytest

from commands import ROOT

UNSEEN = ROOT / "zoo" / "unseen"
TRUTHS = json.loads((UNSEEN / "truths.json").read_text())
BENIGN = {"stable", "spiking", "plateaued"}


def load_runner():
    spec = importlib.util.spec_from_file_location("unseen_run", UNSEEN / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = load_runner()


@pytest.mark.parametrize("key", TRUTHS)
def test_truth_files_match_the_unseen_programs_and_are_complete(key):
    truth = TRUTHS[key]
    source = (UNSEEN / f"{truth['program']}.py").read_text()
    assert key == f"{truth['program']}-{truth['variant']}"
    for words in (truth["words"], truth["words_no_marks"]):
        assert words and set(words) <= (set(runner.LEAKS) if truth["leak"] else BENIGN)
    assert (truth["bytes_per_step"] > 0) == truth["leak"]
    assert truth["culprit"] or not truth["leak"]
    assert truth["flag"] is None or f'"{truth["flag"]}"' in source
    names = [name.removesuffix(".<locals>.<listcomp>").split(".")[-1] for name in truth["culprit"]]
    assert all(f"def {name}(" in source or f"class {name}(" in source for name in names)
    assert f"| {truth['program']} |" in (UNSEEN / "README.md").read_text()


def test_each_unseen_program_has_exactly_two_variants():
    programs = [truth["program"] for truth in TRUTHS.values()]
    files = {path.stem for path in UNSEEN.glob("*.py")} - {"run", "_held", "kit", "marks", "tally"}
    assert files == set(programs) and all(programs.count(name) == 2 for name in files)


@pytest.mark.parametrize("word, leak, grade", [
    ("leaking", True, "right"), ("stepping", True, "near"), ("undecided", True, "unsure"),
    ("plateaued", True, "WRONG"), ("stable", False, "right"), ("spiking", False, "near"),
    ("filling", False, "unsure"), ("stepping", False, "WRONG"), ("-", True, "unsure"),
])
def test_verdict_that_confuses_leak_and_benign_is_graded_as_wrong(word, leak, grade):
    assert runner.grade(word, ["leaking"] if leak else ["stable"], leak) == grade


def test_first_right_epoch_and_false_alarms_of_a_verdict_are_reported():
    truth = {"leak": True, "words": ["leaking"], "leak_from_step": 10, "steps_per_epoch": 20}
    looks = [(5, "leaking"), (15, "leaking"), (20, "undecided"), (30, "leaking"), (40, "leaking")]
    assert runner.timing(looks, truth) == {"right_after_epochs": 1.0, "false_alarms": 1}
    assert runner.timing(looks[:3], truth)["right_after_epochs"] is None


@pytest.mark.parametrize("have, want, same", [
    ("Net.forward", "forward", True), ("forward", "Net.forward", True),
    ("Net.forward", "Other.forward", False), (None, "forward", False),
])
def test_function_names_match_with_or_without_a_class_name(have, want, same):
    assert runner.same_function(have, want) == same


def found(**changes):
    return {"run": "x", "word": "leaking", "grade": "right", "culprit_row": 1, "hypothesis": "cow",
            "hypothesis_right": True, **changes}


@pytest.mark.parametrize("change, said", [
    ({"word": "stepping", "grade": "near"}, "leaking before, now stepping (near)"),
    ({"word": "stable", "grade": "WRONG"}, "leaking before, now stable (WRONG)"),
    ({"culprit_row": 0}, "the true call site was in row 1, now in none"),
    ({"hypothesis_right": False}, "the first hypothesis was right, now it is cow"),
    ({"grade": "-"}, "did not come to its end"),
])
def test_unseen_program_with_worse_result_than_expected_is_reported(change, said):
    worse, known = runner.defects([found(**change)], {"x": runner.to_keep(found())})
    assert len(worse) == 1 and said in worse[0] and known == []


def test_wrong_result_that_was_expected_is_called_a_known_defect():
    wrong = found(word="stable", grade="WRONG", culprit_row=0, hypothesis_right=False)
    assert runner.defects([wrong], {"x": runner.to_keep(wrong)}) == ([], ["x: stable is wrong"])
    assert runner.defects([found()], {"x": runner.to_keep(wrong)}) == ([], [])


def test_run_that_is_missing_in_the_kept_table_fails_only_if_its_verdict_is_wrong():
    assert runner.defects([found(grade="unsure")], {}) == ([], [])
    assert "not in the kept table" in runner.defects([found(word="stable", grade="WRONG")], {})[0][0]


def test_table_of_expected_results_has_every_run_of_unseen_programs():
    kept = runner.table.read(runner.KEPT)
    assert set(kept) == {f"{key}-{mode}" for key in TRUTHS for mode in runner.MODES}
    for name, before in kept.items():
        truth = TRUTHS[name.rsplit("-", 1)[0]]
        words = truth["words" if name.endswith("-marks") else "words_no_marks"]
        assert runner.grade(before["word"], words, truth["leak"]) == before["grade"]
