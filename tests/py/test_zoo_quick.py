"""Tests eight programs of the zoo with seven seconds of training each. However slow the machine is,
no leaking program may be called stable and no benign program a leak. "undecided" is always
accepted."""

import json
import subprocess
import sys

import pytest

from jobs import PATIENCE_S, ROOT, binary, environment

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("PIL", reason="pillow is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

sys.path.insert(0, str(ROOT / "zoo"))
import judged
import run as zoo


def truth_of(name):
    return next((flags, truth) for variant, flags, truth in zoo.variants(name)
                if variant == zoo.QUICK[name])


@pytest.fixture
def recorded(tmp_path):
    """Returns a function that runs one program of the zoo under ebb. The function returns the run
    folder, and the memory counts that the program wrote."""
    def record(name, flags):
        folder, counts = tmp_path / "run", tmp_path / "counts.jsonl"
        command = [binary(), "run", "-q", "-d", str(folder), "--interval", "200ms", "--",
                   sys.executable, str(ROOT / "zoo" / name / "main.py"), *flags, "--size", "small"]
        result = subprocess.run(command, env=environment({"ZOO_COUNTS": str(counts)}), cwd=tmp_path,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=PATIENCE_S)
        if result.returncode == zoo.common.NOT_HERE:
            pytest.skip(result.stderr.strip())
        assert result.returncode == 0, result.stderr
        return folder, [json.loads(line) for line in counts.read_text().splitlines()]
    return record


@pytest.mark.parametrize("name", zoo.QUICK)
def test_verdict_on_a_zoo_program_never_contradicts_the_truth(name, recorded):
    flags, truth = truth_of(name)
    folder, counts = recorded(name, flags)
    steps = [line["step"] for line in counts]
    assert steps == list(range(1, 101))
    growth = (counts[-1]["live_bytes"] - counts[49]["live_bytes"]) / 50
    known = truth["bytes_per_step"] if truth["leak"] else 0
    assert growth == pytest.approx(known, rel=0.1, abs=1000)

    answer = subprocess.run([binary(), "verdict", str(folder), "--json"], capture_output=True,
                            text=True, env=environment(), timeout=PATIENCE_S)
    assert answer.returncode in (0, 1, 3), answer.stderr
    word = zoo.word_of(json.loads(answer.stdout))
    assert not judged.contradicts(word, truth), f"{word}: {truth['why']}"


def test_quick_zoo_contains_leaks_and_benign_programs():
    truths = [truth_of(name)[1] for name in zoo.QUICK]
    assert len(truths) == 8
    assert sum(truth["leak"] for truth in truths) == 4
    for truth in truths:
        wrong, right = ("stable", "leaking") if truth["leak"] else ("leaking", "stable")
        assert judged.contradicts(wrong, truth)
        assert not judged.contradicts(right, truth)
        assert not judged.contradicts("undecided", truth)
