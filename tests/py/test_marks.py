"""Tests the functions of `import ebb` that send marks, with valid, invalid and unusual input."""

import json
import os
import resource
import subprocess
import sys
import threading
import time

import pytest

import ebb
from ebb import _control, _marks, _memory, _truth, _verdict, _wire
from jobs import PACKAGE, PATIENCE_S, environment, listening


@pytest.fixture
def marks(monkeypatch):
    """Stands in for ebb: its socket receives the marks."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EBB_TRUTH", "0")
    for module, name, value in ((_marks, "_has_hello", True), (_marks, "_pending", None),
                                (_marks, "_tail_of", None), (_control, "_is_started", True),
                                (_control, "_is_claimed", False), (_truth, "_is_off", None),
                                (_verdict, "_last", None)):
        monkeypatch.setattr(module, name, value)
    with listening(monkeypatch) as receiver:
        yield receiver


def received(marks):
    found = []
    try:
        while True:
            found.append(marks.recv(65536).decode())
    except BlockingIOError:
        return found


def test_step_phase_and_mark_functions_send_the_documented_text(marks):
    ebb.step(1)
    ebb.step(2, epoch=0.5, steps_per_epoch=4, max_steps=8)
    with ebb.phase("eval"):
        ebb.mark(loss=0.25, is_best=True, nothing=None)
    ebb.mark("save", step=2, path="/ck/2")
    assert received(marks) == [
        "KIND=step\nSTEP=1",
        "KIND=step\nSTEP=2\nEPOCH=0.5\nSTEPS_PER_EPOCH=4\nMAX_STEPS=8",
        "KIND=phase\nNAME=eval\nSTATE=begin",
        "KIND=other\nLOSS=0.25\nIS_BEST=1",
        "KIND=phase\nNAME=eval\nSTATE=end",
        "KIND=save\nSTEP=2\nPATH=/ck/2",
    ]


def test_phase_ended_by_an_exception_sends_an_end_mark(marks):
    with pytest.raises(KeyError):
        with ebb.phase("eval"):
            raise KeyError("x")
    assert received(marks)[-1] == "KIND=phase\nNAME=eval\nSTATE=end"


def test_hello_mark_has_versions_of_imported_packages(marks, monkeypatch):
    class Odd:
        __version__ = "1.0\nKIND=end"

    monkeypatch.setattr(_marks, "_has_hello", False)
    monkeypatch.setitem(sys.modules, "torch", Odd)
    monkeypatch.setitem(sys.modules, "datasets", None)
    ebb.step(1)
    lines = received(marks)[0].splitlines()
    hello = dict(line.split("=", 1) for line in lines)
    # no key of the hello mark occurs twice
    assert hello["KIND"] == "hello" and len(hello) == len(lines)
    assert hello["PYTHON_VERSION"] == sys.version.split()[0]
    assert hello["TORCH_VERSION"].startswith("1.0") and "DATASETS_VERSION" not in hello


def test_checkpoint_remains_requested_until_reported_as_written(marks, monkeypatch):
    monkeypatch.setattr(_marks, "_has_hello", False)
    assert not ebb.checkpoint_requested()
    hello = dict(line.split("=", 1) for line in received(marks)[0].splitlines())
    marks.sendto(b"CHECKPOINT=7\n", hello["REPLY"])
    assert ebb.checkpoint_requested() and ebb.checkpoint_requested()
    ebb.checkpoint_done("/ck/7")
    assert not ebb.checkpoint_requested()
    marks.sendto(b"CHECKPOINT=8\n", hello["REPLY"])
    assert ebb.checkpoint_requested()
    ebb.checkpoint_failed()
    ebb.checkpoint_done("/ck/8")  # has no effect, because the request was already answered
    assert received(marks) == [
        "KIND=ack\nID=7\nSTATUS=started",
        "KIND=ack\nID=7\nSTATUS=done\nPATH=/ck/7",
        "KIND=ack\nID=8\nSTATUS=started",
        "KIND=ack\nID=8\nSTATUS=failed",
    ]


class Unspeakable:
    def __str__(self):
        raise RuntimeError("no")


def test_invalid_characters_in_value_names_are_replaced(marks):
    ebb.mark(**{"train/loss": 1, "a\nKIND=end\nb": 2, "9": 3, "must_arrive": 4, "": 5})
    assert received(marks) == [
        "KIND=other\nTRAIN_LOSS=1\nA_KIND_END_B=2\nX9=3\nMUST_ARRIVE=4\nX=5"
    ]


@pytest.mark.parametrize("value, sent", [
    ("a\nKIND=end\0b", "a KIND=end b"),
    ("\udcff", "?"),
    (b"\xff\n", "b'\\xff\\n'"),
    ("x" * 100_000, "x" * 1024),
    (Unspeakable(), ""),
    (10 ** 5000, ""),
    (float("nan"), "nan"),
], ids=["lines", "surrogate", "bytes", "long", "unspeakable", "large", "nan"])
def test_every_type_of_mark_value_is_sent_on_one_line(marks, value, sent):
    limit = getattr(sys, "get_int_max_str_digits", lambda: 0)()
    if isinstance(value, int) and not limit:
        sent = str(value)[:1024]
    ebb.mark(value=value)
    assert received(marks) == [f"KIND=other\nVALUE={sent}"]


def test_mark_with_too_many_values_keeps_the_first_values(marks):
    ebb.mark(**{f"value_{i}": "ü" * 1000 for i in range(10)})
    (text,) = received(marks)
    assert text.startswith("KIND=other\nVALUE_0=ü") and len(text.encode()) <= 8192
    assert [line[:8] for line in text.splitlines()[1:]] == ["VALUE_0=", "VALUE_1=", "VALUE_2=",
                                                            "VALUE_3="]


@pytest.mark.parametrize("n", [None, "many", float("nan"), float("inf"), [1]])
def test_invalid_step_number_is_ignored(marks, n):
    ebb.step(n)
    assert received(marks) == []


def test_step_number_may_be_text_or_a_float_and_may_decrease(marks):
    ebb.step("5")
    ebb.step(3.0)
    assert received(marks) == ["KIND=step\nSTEP=5", "KIND=step\nSTEP=3"]


def test_thread_that_waits_to_send_does_not_block_other_threads(marks):
    ebb.mark()
    w = _wire.wire()
    fill(w)
    # In a job, another thread would set this timeout while sending a mark that must arrive.
    w._socket.settimeout(0.01)
    assert not w.send("KIND=other")
    w._socket.setblocking(False)
    received(marks)
    assert w.send("KIND=step\nSTEP=1")


def fill(w):
    while w.send("KIND=other"):
        pass


def test_step_waits_until_a_full_socket_has_space(marks, monkeypatch):
    monkeypatch.setattr(_wire, "_PATIENCE_S", float(PATIENCE_S))
    w = _wire.wire()
    fill(w)
    has_waited = []

    def read_when_it_waits():
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not has_waited:
            if w._socket.gettimeout():
                has_waited.append(True)
                marks.recv(65536)
            time.sleep(0.001)

    thread = threading.Thread(target=read_when_it_waits)
    thread.start()
    ebb.step(1)
    has_waited.append(True)
    thread.join()
    assert received(marks)[-1] == "KIND=step\nSTEP=1"


def test_step_waits_only_briefly_for_a_receiver_that_hangs(marks, monkeypatch):
    now, waits = 1000.0, []

    def wait(s, data):
        nonlocal now
        now += _wire._PATIENCE_S
        waits.append(data)
        return False

    monkeypatch.setattr(time, "monotonic", lambda: now)
    _wire.reset()
    w = _wire.wire()
    fill(w)
    monkeypatch.setattr(w, "_send_slowly", wait)
    for _ in range(1000):
        now += 0.1
        ebb.step(1)
    # The first waits take one second in total; later waits may take 2 ms per second of run time.
    assert 5 <= len(waits) <= 7


@pytest.mark.parametrize("name, is_for_ever", [("ENOBUFS", False), ("ENOMEM", False),
                                               ("ECONNREFUSED", True)])
def test_marks_are_sent_after_an_earlier_send_ran_out_of_memory(marks, monkeypatch, name,
                                                               is_for_ever):
    import errno

    class Trouble:
        def send(self, data):
            raise OSError(getattr(errno, name), name)

        def close(self):
            pass

    w = _wire.wire()
    monkeypatch.setattr(w, "_socket", Trouble())
    assert not w.send("KIND=other")
    assert w.is_there != is_for_ever
    monkeypatch.undo()


def test_child_forked_while_the_mark_lock_is_held_does_not_hang(marks):
    w = _wire.wire()
    w.bind()
    with w._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if w.requests("CHECKPOINT") == [] and not ebb.checkpoint_requested() else 1)
    done = threading.Timer(PATIENCE_S, os.kill, (pid, 9))
    done.start()
    assert os.waitpid(pid, 0)[1] == 0
    done.cancel()


def test_verdict_request_fails_without_free_descriptors(marks):
    ebb.mark()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert ebb.verdict() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_verdict_request_succeeds_with_descriptors_above_1024(marks):
    ebb.mark()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"only {hard} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]

    def answer():
        marks.settimeout(PATIENCE_S)
        while True:
            lines = dict(line.split("=", 1) for line in marks.recv(8192).decode().splitlines())
            if lines["KIND"] == "query":
                marks.sendto(b'{"verdict": "flat"}', lines["REPLY"])
                return

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        assert ebb.verdict(timeout=PATIENCE_S) == {"verdict": "flat"}
    finally:
        thread.join()
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_verdict_is_requested_at_most_once_per_second(marks, monkeypatch):
    asked = []

    def ask(timeout):
        asked.append(timeout)
        return {"verdict": "flat"} if len(asked) > 1 else None

    ebb.mark()
    monkeypatch.setattr(_verdict, "_ask", ask)
    # After a failed request, the next call requests the verdict again.
    assert ebb.verdict() is None
    assert ebb.verdict() == {"verdict": "flat"}
    monkeypatch.setattr(_verdict, "_FRESH_S", PATIENCE_S * 10.0)
    assert ebb.verdict() == {"verdict": "flat"} and len(asked) == 2
    monkeypatch.setattr(_verdict, "_FRESH_S", -1.0)
    assert ebb.verdict() == {"verdict": "flat"} and len(asked) == 3


def test_mark_larger_than_a_datagram_is_sent_without_its_last_values(marks):
    ebb.mark("other", **{f"k{n:02}": "é" * 500 for n in range(20)})
    text = marks.recv(1 << 16).decode()
    assert len(text.encode()) <= 8192
    assert text.split("\n") == ["KIND=other"] + [f"K{n:02}=" + "é" * 500 for n in range(8)]


def test_forked_child_and_grandchild_send_no_marks(marks):
    ebb.mark()
    marks.recv(8192)
    child = os.fork()
    if child == 0:
        ebb.mark("child")
        grandchild = os.fork()
        if grandchild == 0:
            ebb.mark("grandchild")
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ebb.mark("parent")
    assert marks.recv(8192) == b"KIND=parent"


SCRIPT = """
import ebb
ebb.step(1)
ebb.step(None)
ebb.mark(loss=1)
with ebb.phase("eval"):
    pass
assert not ebb.checkpoint_requested()
ebb.checkpoint_done()
ebb.checkpoint_failed()
assert ebb.verdict() is None
print("done")
"""


@pytest.mark.parametrize("path", [None, "/nonexistent/marks", "/" + "x" * 200, "bad\udcff"])
def test_ebb_package_outside_a_run_does_nothing(path):
    env = environment({"PYTHONPATH": PACKAGE, "EBB_SOCKET": path})
    result = subprocess.run([sys.executable, "-c", SCRIPT], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_modules_of_rarely_used_functions_are_imported_at_first_use():
    code = ("import sys, ebb\n"
            "assert 'ebb.torch' not in sys.modules and 'ebb.data' not in sys.modules\n"
            "print(ebb.torch.census(keep=False).object_count > 0, ebb.data.LazyImages.__name__,\n"
            "      ebb.isolate.__name__, hasattr(ebb, 'no_such_thing'))\n")
    result = subprocess.run([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE,
                            env=environment({"PYTHONPATH": PACKAGE}), timeout=PATIENCE_S)
    assert result.stdout == "True LazyImages isolate False\n"


def test_logged_memory_peak_is_never_below_current_memory(monkeypatch):
    monkeypatch.setattr(_memory, "rss_bytes", lambda: 300 << 20)
    for peak_mib, sent in ((299, 300), (400, 400)):
        monkeypatch.setattr(_memory, "peak_bytes", lambda: peak_mib << 20)
        logs = _memory.for_logs()
        assert (logs["memory_rss_mib"], logs["memory_rss_peak_mib"]) == (300, sent)


BACKWARDS = """
import ebb
for n in (1, 2, 3, 2, 1, 10**6, 4):
    ebb.step(n)
ebb.step(-1)
ebb.step(10**30)
"""


def test_decreasing_step_numbers_are_recorded_unchanged(run_job):
    run = run_job(sys.executable, "-c", BACKWARDS)
    assert (run.status, run.stderr) == (0, "")
    assert [m["step"] for m in run.marks("step")] == [1, 2, 3, 2, 1, 10 ** 6, 4]
    facts = json.loads((run.folder / "run.json").read_text())
    assert facts["marks"]["bad"] == 2
