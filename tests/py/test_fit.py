"""Tests that research/fit.py, applied to the stored features, yields the weights of the verdict's
model."""

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


def test_refitting_the_verdict_model_yields_the_built_in_weights(tmp_path):
    features = tmp_path / "features.jsonl"
    features.write_bytes(lzma.decompress((ROOT / "research" / "features.jsonl.xz").read_bytes()))
    done = subprocess.run([sys.executable, ROOT / "research" / "fit.py", "weights", features],
                          capture_output=True, text=True, check=True)
    kept = numbers((ROOT / "src" / "verdict" / "weights.inc").read_text())
    again = numbers(done.stdout)
    assert len(kept) == len(again) > 60
    # the last digits of floating-point sums differ between libraries
    assert again == pytest.approx(kept, rel=0.02, abs=0.02)
