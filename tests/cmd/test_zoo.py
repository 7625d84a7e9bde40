"""Tests that the zoo's truth.json files are complete, and that results worse than expected are reported."""

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import types

import pytest

from commands import ROOT, environment

sys.path.insert(0, str(ROOT / "zoo"))
import command
import common
import judged
import overhead
import run as zoo
import table

WORDS = {"stable", "spiking", "plateaued", "filling", "stepping", "leaking", "undecided"}
PROGRAMS = sorted(path.parent.name for path in (ROOT / "zoo").glob("*/truth.json"))


def outcome(**changes):
    return {"leak": True, "marks": "leaking", "marks_right": "yes", "no_marks": "undecided",
            "no_marks_right": "unsure", "hypothesis_right": "yes", "culprit_row": 2,
            "culprit_itself": 2, "right_after_epochs": 1.25, **changes}


def place_in(build, env=None):
    """Returns the Python and the ebb that zoo/place.py finds for the build folder BUILD."""
    code = "import place; print(place.interpreter(), place.EBB)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "zoo", text=True, check=True,
                           env=environment({"EBB_BUILD_DIR": str(build), **(env or {})}),
                           stdout=subprocess.PIPE)
    return found.stdout.split()


def test_zoo_uses_the_python_and_ebb_in_the_build_folder(tmp_path):
    assert place_in(tmp_path) == [sys.executable, str(tmp_path / "ebb")]
    python = tmp_path / "zoo-venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert place_in(tmp_path) == [str(python), str(tmp_path / "ebb")]
    assert place_in(tmp_path, {"ZOO_PYTHON": "/other", "EBB_BINARY": "/ebb"}) == ["/other", "/ebb"]


def test_build_folder_is_named_in_only_one_zoo_module():
    for script in (*(ROOT / "zoo").glob("*.py"), ROOT / "zoo" / "unseen" / "run.py"):
        assert script.name == "place.py" or '"build"' not in script.read_text(), script


def test_zoo_has_at_least_24_programs():
    assert len(PROGRAMS) >= 24


@pytest.mark.parametrize("name", PROGRAMS)
def test_zoo_truth_files_are_complete_and_match_their_programs(name):
    source = (ROOT / "zoo" / name / "main.py").read_text()
    for variant, flags, truth in zoo.variants(name):
        assert set(truth["words"]) <= WORDS and truth["words"], variant
        assert {judged.called(word) for word in truth["words"]} == {"leak" if truth["leak"] else "none"}
        assert (truth["bytes_per_step"] > 0) == truth["leak"] or "bytes_per_step_until" in truth
        assert truth["hypotheses"] and truth["why"]
        assert all(f'"{flag}"' in source for flag in flags)
        if truth["culprit"]:
            text = (ROOT / truth["culprit"]["file"]).read_text()
            assert f"{truth['culprit']['function'].split('.')[-1]}(" in text, variant
    leaks = [truth["leak"] for _, _, truth in zoo.variants(name)]
    assert True in leaks or name in ("loader_workers", "huge_pages", "compile_workers")


def test_zoo_table_of_expected_results_has_every_run():
    kept = table.read()
    for name in PROGRAMS:
        for variant, _, truth in zoo.variants(name):
            assert kept[f"{name}-{variant}"]["leak"] == truth["leak"]


@pytest.mark.parametrize("change, said", [
    ({"marks": "stable", "marks_right": "NO"}, "with marks: yes before, NO now"),
    ({"marks": "undecided", "marks_right": "unsure"}, "with marks: yes before, unsure now"),
    ({"no_marks": "stable", "no_marks_right": "NO"}, "without marks: unsure before, NO now"),
    ({"hypothesis_right": "NO"}, "hypothesis: yes before, NO now"),
    ({"culprit_row": 0}, "the true call site was in row 2, now in none"),
    ({"culprit_itself": 0}, "no row names the function that keeps the memory"),
])
def test_zoo_result_worse_than_expected_is_reported(change, said):
    worse = table.regressions({"x": outcome(**change)}, {"x": outcome()})
    assert len(worse) == 1 and said in worse[0]


def test_zoo_result_as_good_as_expected_is_not_reported():
    assert table.regressions({"x": outcome()}, {"x": outcome()}) == []
    lucky = outcome(leak=False)
    assert table.regressions({"x": {**lucky, "culprit_row": 0, "culprit_itself": 0}}, {"x": lucky}) == []
    better = outcome(no_marks="leaking", no_marks_right="yes", culprit_row=1)
    assert table.regressions({"x": better}, {"x": outcome()}) == []


def test_rows_of_the_zoo_table_are_at_most_160_columns_wide(capsys):
    long = outcome(variant="plain", no_marks="undecided", no_marks_right="NO", marks="undecided",
                   marks_right="NO", rate_error=-0.123, right_after_s=123.4, overhead=[-0.24, 0.11, 0.25],
                   culprit_itself=0, hypothesis="workers_flat", hypothesis_right="NO")
    rows = [zoo.row_of(name, long) for name in PROGRAMS]
    command.print_table([zoo.COLUMNS, *rows])
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 160
    assert rows[0][3:5] == ["undecided WRONG", "undecided WRONG"] and "+11% (-24%..+25%)" in rows[0]


def test_failing_zoo_program_does_not_stop_other_programs(monkeypatch, tmp_path):
    runs = [(name, "leak", [], {}) for name in ("good", "bad", "absent")]
    status = {"good": 0, "bad": 3, "absent": zoo.common.NOT_HERE}
    monkeypatch.setattr(zoo, "record", lambda name, *rest: (status[name], ""))
    ran, broken = zoo.record_all(runs, argparse.Namespace(out=tmp_path, jobs=1))
    assert [run[0] for run in ran] == ["good"]
    assert len(broken) == 1 and "bad leak ended with status 3" in broken[0]


@pytest.mark.parametrize("second, fails", [({}, False), ({"marks": "stable", "marks_right": "NO"}, True)])
def test_zoo_result_worse_than_expected_is_reported_only_if_repeated(monkeypatch, tmp_path, second, fails):
    runs = [("good", "leak", [], {}), ("bad", "leak", [], {})]
    recorded = []
    monkeypatch.setattr(zoo, "record", lambda name, *rest: recorded.append(name) or (0, ""))
    monkeypatch.setattr(table, "read", lambda: {"good-leak": outcome(), "bad-leak": outcome()})
    monkeypatch.setattr(zoo, "judge_all", lambda again, args: {"bad-leak": outcome(**second)})
    flipped = outcome(marks="undecided", marks_right="unsure", overhead=[0, 1, 2])
    outcomes = {"good-leak": outcome(), "bad-leak": flipped}
    args = argparse.Namespace(out=tmp_path, jobs=3, overhead=True, size="default")
    assert zoo.look_again(runs, outcomes, args) == []
    assert recorded == ["bad"] and outcomes["bad-leak"]["overhead"] == [0, 1, 2]
    assert bool(zoo.complaints(runs, outcomes, args)) == fails


def test_zoo_cost_is_split_into_startup_and_steps():
    alone = overhead.Cost(all_s=6, before_s=2, steps_s=4, usual_s=3, own_s=0, wall_s=6, steps_wall_s=4)
    watched = overhead.Cost(all_s=7, before_s=2.25, steps_s=4.5, usual_s=3.03, own_s=0.25, wall_s=8,
                            steps_wall_s=4)
    took = overhead.parts(watched, alone, start_and_end_s=0.05)
    assert took["usual"] == pytest.approx(0.01) and took["running"] == pytest.approx(0.01 + 0.1 / 4)
    assert took["once_s"] == pytest.approx(1 - 4 * took["running"]) and took["before_s"] == 0.25
    assert took["steps"] == pytest.approx(0.125) and took["all"] == pytest.approx(1 / 6)


def test_typical_cost_of_a_zoo_step_excludes_the_longest_steps(tmp_path):
    code = ("import json, os; steps = [0.5 if i % 20 == 7 else 0.01 for i in range(40)];"
            "cpu = [2 + sum(steps[:i]) for i in range(41)];"
            "open(os.environ['ZOO_TIMES'], 'w').write(json.dumps({'cpu_s': cpu, 'wall_s': 3}))")
    took = overhead.cost([sys.executable, "-c", code])
    assert took.before_s == 2 and took.steps_s == pytest.approx(1.38) and took.own_s == 0
    assert took.usual_s == pytest.approx(0.38) and took.steps_wall_s == 3
    assert overhead.cost([sys.executable, "-c", "raise SystemExit(1)"]) is None


def pairs(*shares):
    return [dict.fromkeys(overhead.PARTS, share) for share in shares]


def test_zoo_cost_summary_has_medians_with_confidence_intervals():
    # The third measurement of each program is an outlier.
    found = {f"p{i}": pairs(i / 100, i / 100, 9) for i in range(9)}
    low, high = overhead.interval(found, "running")
    assert 0 <= low < 0.04 < high
    lines = overhead.summary(found)
    assert len(lines) == 2 + len(overhead.PARTS) and "median of the 9 programs" in lines[0]
    assert "| +4.0% |" in lines[2] and any("| +0.04 s |" in line for line in lines)


def test_zoo_cost_update_changes_only_costs_in_the_table(tmp_path):
    kept, before = tmp_path / "expected.json", table.read()
    kept.write_text(table.KEPT.read_text())
    overhead.update({"dict_cache": pairs(0.031, 0.02, 0.5)}, kept)
    after = table.read(kept)
    assert after["dict_cache-leak"].pop("overhead") == [0.02, 0.031, 0.5]
    before["dict_cache-leak"].pop("overhead", None)
    assert after == before
    lines = [set(path.read_text().splitlines()) for path in (table.KEPT, kept)]
    assert len(lines[1] - lines[0]) == 1


def frame(function, file="/x/zoo/p/main.py"):
    return {"function": function, "file": file}


@pytest.mark.parametrize("rows, found", [
    ([{"where": frame("draw", "/lib/figure.py"), "in_program": frame("keep"), "callers": []}], (1, 1)),
    ([{"where": frame("keep.<locals>.<listcomp>"), "in_program": frame("keep"), "callers": []}], (1, 1)),
    ([{"where": frame("other"), "in_program": None, "callers": []},
      {"where": frame("make"), "in_program": frame("make"), "callers": [frame("main"), frame("keep")]}], (2, 2)),
    ([{"where": frame("make"), "in_program": frame("make"), "callers": []}], (0, 1)),
    ([{"where": frame("keep", "/lib/figure.py"), "in_program": None, "callers": []}], (0, 0)),
    ([{"where": frame("keep"), "in_program": frame("keep"), "callers": [], "growth_bytes": 0}], (0, 1)),
    ([], (0, 0)),
])
def test_zoo_finds_heap_rows_that_name_the_responsible_functions(rows, found):
    truth = {"culprit": {"file": "zoo/p/main.py", "function": "keep", "made_in": ["make"]}}
    doc = {"rows": [{"growth_bytes": 5e6, **row} for row in rows]}
    assert judged.culprit_rows("run", truth, lambda *_: doc) == found
    assert judged.culprit_rows("run", {"culprit": None}, None) == (None, None)


def test_zoo_run_without_an_expected_result_fails_only_if_wrong():
    assert table.regressions({"new": outcome()}, {}) == []
    assert "not in the kept table" in table.regressions({"new": outcome(marks_right="NO")}, {})[0]


def test_zoo_table_update_keeps_rows_of_other_runs(tmp_path):
    path = tmp_path / "expected.json"
    table.keep({"a": outcome(), "b": outcome()}, path)
    table.keep({"b": outcome(culprit_row=3)}, path)
    kept = json.loads(path.read_text())
    assert (kept["a"]["culprit_row"], kept["b"]["culprit_row"]) == (2, 3)


def test_wilson_confidence_intervals_equal_published_values():
    low, high = table.wilson(0, 10)
    assert low == 0 and high == pytest.approx(0.2775, abs=1e-3)
    low, high = table.wilson(81, 263)
    assert (low, high) == (pytest.approx(0.2553, abs=1e-3), pytest.approx(0.3662, abs=1e-3))
    assert table.wilson(0, 0) == (0.0, 1.0)


def test_zoo_confusion_matrix_counts_each_run_once():
    runs = {"a": outcome(), "b": outcome(marks="stable", marks_right="NO"),
            "c": outcome(leak=False, marks="stable"), "d": outcome(leak=False, marks="stepping"),
            "e": outcome(leak=False, marks="filling", marks_right="unsure")}
    lines = table.matrix(runs)
    assert lines[1].split() == ["leaks", "1", "1", "0"]
    assert lines[2].split() == ["does", "not", "leak", "1", "1", "1"]
    assert any(line.startswith("  false leaks     1/3") for line in lines)


class Ears:
    """Receives the marks that a program sends, and replaces the program's clock."""

    def __init__(self, folder, monkeypatch):
        self.now = 1.0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "marks"))
        self.socket.setblocking(False)
        monkeypatch.setenv("EBB_SOCKET", str(folder / "marks"))
        monkeypatch.setattr(common, "time", types.SimpleNamespace(monotonic=lambda: self.now))

    def heard(self):
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode().split())
        return found


@pytest.fixture
def ears(tmp_path, monkeypatch):
    return Ears(tmp_path, monkeypatch)


def test_zoo_programs_send_slow_steps_in_separate_marks(ears):
    pace_s = min(size["seconds"] / size["epochs"] / size["steps_per_epoch"] for size in common.SIZES.values())
    marks = common.Marks()
    for step in (1, 2, 3):
        ears.now += pace_s
        marks.step(step, step / 4)
    assert ears.heard() == [["KIND=step", f"STEP={step}", f"EPOCH={step / 4}"] for step in (1, 2, 3)]


def test_zoo_programs_send_pending_steps_before_any_other_mark(ears):
    marks = common.Marks()
    for step in range(1, 5):
        ears.now += 0.001
        marks.step(step, 0.5)
    assert ears.heard() == [["KIND=step", "STEP=1", "EPOCH=0.5"]]
    marks.send("save", step=4)
    assert ears.heard() == [["KIND=step", "STEP=4", "EPOCH=0.5", "STEPS=3", "SECONDS=0.003"],
                            ["KIND=save", "STEP=4"]]
    marks.send("end", step=4)
    assert ears.heard() == [["KIND=end", "STEP=4"]]


def test_zoo_mark_combines_at_most_256_steps(ears):
    marks = common.Marks()
    for step in range(1, 300):
        marks.step(step, 0.5)
    assert ears.heard()[1][-2:] == ["STEPS=256", "SECONDS=0.0"]


def test_zoo_programs_can_send_marks_without_ebb(monkeypatch, tmp_path):
    for path in ("", str(tmp_path / "nobody")):
        monkeypatch.setenv("EBB_SOCKET", path)
        marks = common.Marks()
        marks.step(1, 0.5)
        marks.send("end", step=1)
