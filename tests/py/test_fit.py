"""Tests that the weights of the verdict's model are those that research/fit.py fits to the
stored features."""

import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"= (-?[0-9.e-]+),$|\{(-?[0-9.e-]+),$", re.MULTILINE)


def numbers(text):
    return [float(a or b) for a, b in NUMBER.findall(text)]


def test_fitting_the_verdict_model_again_gives_the_built_in_weights(tmp_path):
    features = tmp_path / "features.jsonl"
    features.write_bytes(lzma.decompress((ROOT / "research" / "features.jsonl.xz").read_bytes()))
    done = subprocess.run([sys.executable, ROOT / "research" / "fit.py", "weights", features],
                          capture_output=True, text=True, check=True)
    kept = numbers((ROOT / "src" / "verdict" / "weights.inc").read_text())
    again = numbers(done.stdout)
    assert len(kept) == len(again) > 60
    # Floating-point sums differ in their last digits from one library to another.
    assert again == pytest.approx(kept, rel=0.02, abs=0.02)
