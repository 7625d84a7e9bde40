"""Tests the pytest plugin: tests that leak fail and name the leaking line; healthy tests pass."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from jobs import PACKAGE, PATIENCE_S

SOUND = """
import ctypes, functools, gc, logging, random, warnings
import pytest

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
held = []

@pytest.mark.no_leak
def test_nothing():
    pass

@pytest.mark.no_leak
def test_output_and_logs_and_warnings():
    print("x" * 1000)
    logging.getLogger("t").warning("%s", "y" * 1000)
    warnings.warn("z")

@pytest.mark.no_leak
def test_cycle():
    a = [bytes(5000)]
    a.append(a)

@functools.lru_cache(400)
def cached(key):
    return bytes(1000)

@pytest.mark.no_leak
def test_cache_that_fills():
    cached(random.random())

@pytest.mark.no_leak
def test_number_kept_for_a_log():
    held.append(random.random())

@pytest.mark.no_leak
def test_other_size_each_time():
    held[:] = [bytes(random.randrange(1 << 20))]

@pytest.mark.no_leak
def test_native_that_is_freed():
    libc.free(libc.malloc(random.randrange(1 << 20)))

def test_loop(ebb_loop):
    for _ in ebb_loop(steps=100):
        held[:] = [object()]

class TestMethod:
    @pytest.mark.no_leak
    def test_method(self, tmp_path):
        (tmp_path / "f").write_bytes(bytes(1000))
"""

LEAKS = """
import ctypes, random
import pytest

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
kept = []

@pytest.mark.no_leak
def test_object():
    kept.append(bytes(1000))  # line of test_object

@pytest.mark.no_leak(steps=128)
def test_native():
    libc.malloc(1000)

def test_buffer(ebb_loop):
    buffer = bytearray()
    for _ in ebb_loop:
        buffer += bytes(1024)  # line of test_buffer

def test_noise(ebb_loop):
    for _ in ebb_loop:
        other = bytes(random.randrange(1 << 18))
        kept.append(bytes(1000))  # line of test_noise

def helper():
    kept.append({"a": bytearray(1000)})  # line of test_called

@pytest.mark.no_leak(steps=200)
def test_called():
    helper()
"""


@pytest.fixture
def tested(tmp_path):
    def run(text, *options, **settings):
        (tmp_path / "test_it.py").write_text(text)
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), **settings}
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "ebb.pytest", "-ra",
                               "-p", "no:cacheprovider", "--color=no", *options, "test_it.py"],
                              cwd=tmp_path, env=env, text=True, timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout
    return run


def outcomes(output):
    return {word: int(count) for count, word in
            re.findall(r"(\d+) (passed|failed|skipped|errors?)", output.splitlines()[-1])}


def line_of(text, name):
    return next(i for i, line in enumerate(text.splitlines(), 1) if f"line of {name}" in line)


def test_healthy_tests_pass_with_the_ebb_option(tested):
    status, output = tested(SOUND, "--ebb")
    assert (status, outcomes(output)) == (0, {"passed": 9}), output


def test_leaking_tests_fail_and_the_report_shows_line_and_growth(tested):
    status, output = tested(LEAKS, "--ebb")
    assert (status, outcomes(output)) == (1, {"failed": 5}), output
    parts = re.split(r"^_+ (test_\w+) _+$", output, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2]))
    for name in ("test_object", "test_buffer", "test_noise", "test_called"):
        assert f"--> test_it.py:{line_of(LEAKS, name)} " in found[name], found[name]
    for name, text in found.items():
        number, unit = re.search(r"leaking: \+([\d.]+) (B|KiB)/iteration", text).groups()
        rate = float(number) * (1024 if unit == "KiB" else 1)
        assert 900 <= rate <= 1500, text
    assert "the memory is native; to see the call site, run" in found["test_native"]


def test_tests_marked_no_leak_run_once_without_the_ebb_option(tested):
    text = LEAKS + "\ndef test_count():\n    assert len(kept) == 3\n"
    status, output = tested(text)
    assert (status, outcomes(output)) == (0, {"passed": 6}), output


UNDECIDED = """
def test_left(ebb_loop):
    for _ in ebb_loop:
        break
"""


def test_undecided_test_is_skipped_by_default_and_fails_on_request(tested):
    status, output = tested(UNDECIDED, "--ebb")
    assert status == 0 and outcomes(output)["skipped"] == 1, output
    assert "the loop over ebb_loop ended early" in output
    status, output = tested(UNDECIDED, "--ebb", "--ebb-undecided=fail")
    assert status == 1, output


def test_test_whose_growth_slows_down_is_undecided(tested):
    text = """
import math
import pytest
kept, count = [], 0

@pytest.mark.no_leak(steps=400)
def test_slows():
    global count
    count += 1
    while len(kept) < 1000 * (1 - math.exp(-count / 150)):
        kept.append(bytes(10000))
"""
    status, output = tested(text, "--ebb", "--ebb-undecided=fail")
    assert status == 1 and "undecided after 400 iterations" in output, output


def test_exception_in_an_iteration_fails_the_repeated_test(tested):
    text = """
def test_raises(ebb_loop):
    for n in ebb_loop:
        print("iteration", n)
        assert n < 5, "broken"
"""
    status, output = tested(text, "--ebb")
    assert outcomes(output) == {"failed": 1} and "AssertionError: broken" in output, output


@pytest.mark.parametrize("arguments, sentence", [
    ("steps=3", "ebb: steps=3: give a number of at least 24"),
    ("steps='x'", "ebb: steps='x': give a number of at least 24"),
    ("7", "ebb: no_leak: unknown argument 7; the only argument is steps=N"),
    ("stepz=7", "ebb: no_leak: unknown argument stepz; the only argument is steps=N"),
])
def test_invalid_argument_of_the_no_leak_marker_prints_one_line(tested, arguments, sentence):
    status, output = tested(
        f"import pytest\n@pytest.mark.no_leak({arguments})\ndef test_it(): pass\n", "--ebb")
    assert status == 1 and sentence in output.splitlines(), output


def test_junit_file_of_pytest_contains_the_leak_verdict(tested, tmp_path):
    tested(SOUND, "--ebb", "--junit-xml=out.xml", "-k", "nothing")
    tree = xml.etree.ElementTree.parse(tmp_path / "out.xml")
    values = [p.get("value") for p in tree.iter("property") if p.get("name") == "ebb"]
    assert values == ["sound after 64 iterations"]


@pytest.mark.parametrize("text, expected", [(SOUND, {"passed": 9}), (LEAKS, {"failed": 5})])
def test_xdist_does_not_change_the_leak_verdicts_of_tests(tested, text, expected):
    pytest.importorskip("xdist")
    _, output = tested(text, "--ebb", "-n", "2")
    assert outcomes(output) == expected, output


def test_async_test_marked_no_leak_is_repeated(tested):
    text = """
import asyncio
import pytest
kept = []

@pytest.mark.no_leak(steps=100)
async def test_async():
    kept.append(bytes(1000))
"""
    pytest.importorskip("pytest_asyncio")
    _, output = tested(text, "--ebb", "-o", "asyncio_mode=auto")
    assert "leaking: +1" in output, output


def test_plugin_reports_the_line_that_keeps_a_tensor(tested):
    pytest.importorskip("torch")
    text = """
import torch
model = torch.nn.Linear(16, 16)
losses = []

def test_step(ebb_loop):
    for _ in ebb_loop(steps=64):
        loss = model(torch.ones(8, 16)).sum()
        losses.append(loss)
"""
    _, output = tested(text, "--ebb", OMP_NUM_THREADS="1")
    assert "--> test_it.py:8 " in output, output
    sound = text.replace("losses.append(loss)", "losses.append(loss.item())")
    status, output = tested(sound, "--ebb", OMP_NUM_THREADS="1")
    assert status == 0, output
