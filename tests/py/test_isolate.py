"""Tests ebb.isolate: functions that run in separate processes under the real program."""

import asyncio
import concurrent.futures
import functools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import ebb  # noqa: E402
import isolated_functions as functions  # noqa: E402
from ebb import _isolate, _pickled, _size  # noqa: E402
from ebb._binary import find_ebb  # noqa: E402
from jobs import PATIENCE_S, wait_for  # noqa: E402

GIB = 1 << 30


@pytest.fixture(autouse=True)
def private_tmp(tmp_path, monkeypatch):
    """Checks that a call leaves nothing in the folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("EBB_ISOLATE", *_isolate._OF_A_RUN):
        monkeypatch.delenv(name, raising=False)
    # These timeouts are so long that no call is killed because the machine is busy.
    for name in ("_GRACE_S", "_GONE_S"):
        monkeypatch.setattr(_isolate, name, float(PATIENCE_S))
    yield folder
    assert os.listdir(folder) == []


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                        found.append(int(entry))
            except OSError:
                pass
    return found


def start_and_learn_pid(function, **options):
    """Starts a call that waits forever. Returns the call and the pid of its process."""
    marks = []
    call = ebb.isolate_start(function, on_progress=marks.append, **options)
    wait_for(lambda: marks or call.done(), "the first mark")
    assert marks, call.result()
    return call, marks[0]["pid"]


def script(tmp_path, text, name="program.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


def python(*arguments, env=None, **options):
    path = f"{ROOT / 'python'}:{ROOT / 'tests' / 'py'}"
    changed = dict(os.environ, PYTHONPATH=path, **(env or {}))
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=changed, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


# ---- results ----


def test_isolated_function_runs_in_another_process():
    assert ebb.isolate(functions.add, 2, b=3) == 5
    assert ebb.isolate(functions.where) != os.getpid()


def test_large_result_of_an_isolated_call_is_complete():
    assert ebb.isolate(functions.blob, 40 << 20) == b"\xa5" * (40 << 20)


def test_arrays_in_isolated_calls_bypass_pickle_and_stay_writable():
    numpy = pytest.importorskip("numpy", reason="numpy has buffers to send")
    sent = numpy.arange(1 << 20)
    came = ebb.isolate(numpy.add, sent, 1)
    came[0] = 7
    assert came[0] == 7 and (came[1:] == sent[1:] + 1).all()


def test_truncated_pickle_file_of_an_isolated_call_is_refused(tmp_path):
    path = tmp_path / "object"
    with open(path, "w+b") as file:
        _pickled.dump(file, {"buffer": pickle.PickleBuffer(bytearray(b"x" * 100)), "n": [1]})
        assert _pickled.load(file) == {"buffer": bytearray(b"x" * 100), "n": [1]}
        whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with open(path, "rb") as file:
            assert not _pickled.is_whole(file)


def test_second_dump_to_a_pickle_file_replaces_the_first_object(tmp_path):
    with open(tmp_path / "object", "w+b") as file:
        _pickled.dump(file, "x" * 1000)
        _pickled.dump(file, "y")
        assert _pickled.load(file) == "y"
        with pytest.raises(TypeError):
            _pickled.dump(file, threading.Lock())
        assert not _pickled.is_whole(file)


def test_isolate_can_call_functions_of_the_main_module(tmp_path):
    path = script(tmp_path, """
        import ebb
        class Thing:
            def __init__(self, n): self.n = n
        def twice(thing): return Thing(thing.n * 2)
        if __name__ == "__main__":
            got = ebb.isolate(twice, Thing(21))
            print(type(got) is Thing, got.n)
    """)
    process = python(path)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("True 42\n", "")


def test_isolate_in_a_script_without_a_main_guard_is_an_error(tmp_path):
    path = script(tmp_path, """
        import ebb
        def f(): return 1
        ebb.isolate(f)
    """)
    process = python(path)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert 'RuntimeError' in err and 'if __name__ == "__main__":' in err


def test_isolate_imports_no_main_module_for_a_library_function(tmp_path):
    path = script(tmp_path, """
        import ebb, isolated_functions, os
        print("imported", __name__, flush=True)
        if __name__ == "__main__":
            print(ebb.isolate(isolated_functions.add, 1, 2))
    """)
    out, err = python(path).communicate(timeout=PATIENCE_S)
    assert (out, err) == ("imported __main__\n3\n", "")


def test_output_of_isolated_function_is_passed_through(tmp_path):
    path = script(tmp_path, """
        import ebb, isolated_functions
        ebb.isolate(isolated_functions.say, "hello")
    """)
    out, err = python(path).communicate(timeout=PATIENCE_S)
    assert (out, err) == ("hello\n", "HELLO\n")


def test_unpicklable_function_is_refused_before_a_process_starts(monkeypatch):
    def nothing(*_, **__):
        raise AssertionError("something was started")
    monkeypatch.setattr(subprocess, "Popen", nothing)
    with pytest.raises(TypeError, match="cannot be sent to another process.*top level"):
        ebb.isolate(lambda: 1)
    with pytest.raises(TypeError, match="add or its arguments cannot be sent"):
        ebb.isolate(functions.add, threading.Lock())


def test_isolate_refuses_functions_of_an_interactive_session():
    process = python("-c", "import ebb\ndef f(): pass\nebb.isolate(f)")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err.splitlines()[-1] == ("TypeError: f cannot be sent to another process: "
                                    "the program has no source file that the other process could "
                                    "import")


def test_isolate_can_set_environment_variables(monkeypatch):
    # this variable is set if the tests themselves run under ebb
    monkeypatch.setenv("EBB_RESUME", "1")
    monkeypatch.setenv("TEST_GONE", "x")
    got = ebb.isolate(functions.environment, "TEST_GONE", "TEST_NEW", "EBB_RESUME",
                      env={"TEST_GONE": None, "TEST_NEW": "y"})
    assert got[:2] == [None, "y"] and got[2] != "1"


def test_isolated_process_has_the_import_path_of_the_caller(
        tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "of_the_caller.py").write_text(
        "def f(): import of_the_path; return of_the_path.VALUE")
    (tmp_path / "there" / "of_the_path.py").write_text("VALUE = 'found'")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    import of_the_caller
    assert ebb.isolate(of_the_caller.f, env={"PYTHONPATH": str(tmp_path / "there")}) == "found"


def test_isolate_keeps_the_recording_in_the_given_folder(tmp_path):
    call = ebb.isolate_start(functions.steps, 3, run_dir=tmp_path / "kept", name="three")
    assert call.result(PATIENCE_S) == 3
    assert {"run.json", "trace.ebb", "log.txt"} <= set(os.listdir(tmp_path / "kept"))
    assert call.facts["name"] == "three" and call.facts["marks"]["last_step"] == 3


def test_functools_partial_can_pass_arguments_named_like_options():
    assert ebb.isolate(functools.partial(functions.add, b=4), 3) == 7


# ---- failures ----


def test_exception_of_an_isolated_call_has_the_remote_traceback():
    with pytest.raises(ValueError, match="no such entry") as caught:
        ebb.isolate(functions.fail, "value")
    text = str(caught.value.__cause__)
    assert "in inner_failure" in text and "in fail" in text
    # The exception's __cause__ contains the remote traceback as text.
    assert "KeyError: 'missing'" in text
    assert "_isolated.py" not in text


@pytest.mark.parametrize("kind, shown", [("odd", "Odd('1 and 2')"), ("lock", "WithLock('locked')")])
def test_unpicklable_exception_of_an_isolated_call_is_shown_as_text(kind, shown):
    with pytest.raises(ebb.IsolatedError) as caught:
        ebb.isolate(functions.fail, kind)
    assert str(caught.value) == f"fail raised {shown}"
    assert "in inner_failure" in str(caught.value.__cause__)


def test_sys_exit_in_an_isolated_function_does_not_end_the_caller():
    with pytest.raises(ebb.IsolatedError, match=r"fail raised SystemExit\(7\)"):
        ebb.isolate(functions.fail, "exit")


def test_unpicklable_result_of_an_isolated_call_is_an_error():
    with pytest.raises(TypeError, match="the result cannot be sent back.*lock"):
        ebb.isolate(functions.unpicklable_result)


def test_error_for_a_killed_isolated_process_contains_the_signal():
    with pytest.raises(ebb.IsolatedError, match="die ended without a result: .*SIGKILL") as caught:
        ebb.isolate(functions.die, signal.SIGKILL)
    assert not isinstance(caught.value, ebb.MemoryLimitExceeded)


def test_error_for_a_failed_isolated_process_has_its_exit_status():
    with pytest.raises(ebb.IsolatedError, match="leave ended without a result: .*3"):
        ebb.isolate(functions.leave, 3)


def test_isolated_call_over_its_limit_raises_memory_limit_exceeded():
    with pytest.raises(ebb.MemoryLimitExceeded, match="stopped by the guard") as caught:
        ebb.isolate(functions.grow, 2 * GIB, limit="400M")
    assert isinstance(caught.value, MemoryError)


def test_isolated_function_is_restarted_after_the_guard_stops_it():
    assert ebb.isolate(functions.grow_unless_resumed, 2 * GIB, limit="400M", restart=True) == "1"


@pytest.mark.parametrize("value", ["much", "-1", "0", 0, "24X", "", "120%", 1.5, True, -5])
def test_invalid_isolate_limit_is_refused_before_start(value):
    with pytest.raises(ValueError, match="limit="):
        ebb.isolate(functions.add, 1, limit=value)


@pytest.mark.parametrize("value, expected", [
    ("512M", "536870912"), ("1.5G", "1610612736"), (4096, "4096"), ("80%", "80%"),
    ("2GiB", "2147483648"),
])
def test_isolate_converts_limits_to_the_format_of_the_ebb_program(value, expected):
    assert _size.limit(value) == expected


def test_run_folder_that_isolate_cannot_create_is_an_error(tmp_path, capfd):
    (tmp_path / "taken").mkdir()
    with pytest.raises(ebb.IsolatedError, match="could not start the process \\(status 125"):
        ebb.isolate(functions.add, 1, run_dir=tmp_path / "taken")
    assert "taken" in capfd.readouterr().err


def test_isolate_raises_an_error_if_the_ebb_program_is_missing(monkeypatch):
    monkeypatch.setenv("EBB_BINARY", "/nonexistent/ebb")
    with pytest.raises(FileNotFoundError, match="/nonexistent/ebb"):
        ebb.isolate(functions.add, 1)


# ---- progress ----


def test_progress_marks_are_delivered_in_the_thread_of_the_caller():
    marks, threads = [], set()

    def progress(mark):
        marks.append(mark)
        threads.add(threading.get_ident())
    assert ebb.isolate(functions.steps, 20, on_progress=progress) == 20
    assert marks[:20] == [{"kind": "step", "step": n, "max_steps": 20} for n in range(1, 21)]
    assert marks[20:] == [
        {"kind": "phase", "name": "eval", "state": "begin"},
        {"kind": "other", "loss": 0.25, "note": "as good as it gets", "word": "12a"},
        {"kind": "phase", "name": "eval", "state": "end"},
    ]
    assert threads == {threading.get_ident()}


def test_allocator_metrics_are_not_delivered_as_progress_marks():
    marks = []
    sent = ebb.isolate(functions.figures, on_progress=marks.append)
    assert marks == [{"kind": "series", "name": "queue", "value": 7}, {"kind": "step", "step": 1}]
    series = [text for text in sent if text.startswith("KIND=series\n")]
    assert len(series) == 2 and "GC_COUNT_0=" in series[1]


def test_exception_in_a_progress_listener_ends_the_isolated_call():
    def progress(mark):
        if mark["kind"] == "where":
            raise LookupError(mark["pid"])
    with pytest.raises(LookupError) as caught:
        ebb.isolate(functions.wait_for_ever, on_progress=progress)
    assert not is_alive(caught.value.args[0])


def test_slow_progress_listener_does_not_delay_the_isolated_call():
    """The function returns while the listener is still handling the first mark; the remaining marks
    are lost."""
    seen, ended = [], threading.Event()

    def progress(mark):
        seen.append(mark["step"])
        ended.wait(PATIENCE_S)
    call = ebb.isolate_start(functions.fill_and_burst, 5000, on_progress=progress)
    wait_for(lambda: call._process.poll() is not None, "the end of the process")
    ended.set()
    assert call.result(PATIENCE_S)
    assert seen[0] == 1 and len(seen) < 5000


# ---- early ends ----


def test_isolated_process_has_exited_when_timeout_is_raised():
    call, pid = start_and_learn_pid(functions.wait_for_ever, timeout=PATIENCE_S * 2)
    # the timeout expires, but only after the process has started
    call._until = time.monotonic()
    message = f"wait_for_ever did not return within {2 * PATIENCE_S} s"
    with pytest.raises(TimeoutError, match=message):
        call.result(PATIENCE_S)
    assert not is_alive(pid)


def test_isolate_timeout_may_expire_before_the_function_starts():
    with pytest.raises(TimeoutError, match="add did not return within 0 s"):
        ebb.isolate(functions.wait_for_ever, timeout=0, name="add")


def test_isolated_call_can_be_cancelled():
    call, pid = start_and_learn_pid(functions.wait_for_ever)
    assert not call.done() and is_alive(pid)
    with pytest.raises(TimeoutError, match="still running"):
        call.result(0.01)
    assert call.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        call.result(PATIENCE_S)
    assert call.done() and not is_alive(pid)
    assert not call.cancel()


def test_isolated_call_that_ignores_cancellation_is_killed(monkeypatch):
    monkeypatch.setattr(_isolate, "_GRACE_S", 0.5)
    call, pid = start_and_learn_pid(functions.wait_in_spite_of_signals)
    call.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        call.result(PATIENCE_S)
    assert not is_alive(pid)


def test_child_processes_left_by_an_isolated_function_are_killed():
    assert not is_alive(ebb.isolate(functions.leave_a_child))


CALLER = """
    import ebb, isolated_functions
    def show(mark): print(mark["pid"], flush=True)
    ebb.isolate(isolated_functions.wait_for_ever, on_progress=show)
"""


def test_keyboard_interrupt_of_the_caller_ends_the_isolated_call(tmp_path):
    # If the tests run in a shell's background, SIGINT is ignored here and in all child processes.
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = python(script(tmp_path, hear + textwrap.dedent(CALLER)))
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in err and not is_alive(pid)


def test_killing_the_caller_ends_the_isolated_call(tmp_path):
    folder = tmp_path / "of-the-dead"  # a killed process cannot remove its temporary folder
    folder.mkdir()
    process = python(script(tmp_path, CALLER), env={"TMPDIR": str(folder)})
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not is_alive(pid), "the end of the job")


def test_exit_of_the_program_ends_all_isolated_calls(tmp_path):
    process = python(script(tmp_path, """
        import ebb, isolated_functions, threading
        started = threading.Event()
        def show(mark):
            print(mark["pid"], flush=True)
            started.set()
        call = ebb.isolate_start(isolated_functions.wait_for_ever, on_progress=show)
        started.wait()
    """))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert err == "" and not is_alive(int(out))


def test_exit_of_a_forked_child_does_not_end_calls_of_the_parent(tmp_path):
    process = python(script(tmp_path, """
        import os, sys, threading, warnings
        import ebb, isolated_functions
        # from 3.12 Python warns of a fork in a program with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        started = threading.Event()
        call = ebb.isolate_start(isolated_functions.wait_for_ever,
                                 on_progress=lambda mark: started.set())
        started.wait()
        pid = os.fork()
        if pid == 0:
            sys.exit()  # with everything that is to be done at an exit
        os.waitpid(pid, 0)
        print(call._process.poll(), call.cancel())
    """))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("None True\n", "")


# ---- servers ----


def test_marks_of_isolated_calls_from_several_threads_are_not_mixed():
    marks = {n: [] for n in range(4)}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(
            lambda n: ebb.isolate(functions.steps, n + 1, on_progress=marks[n].append), range(4)))
    assert got == [1, 2, 3, 4]
    for n in range(4):
        assert [m["step"] for m in marks[n] if m["kind"] == "step"] == list(range(1, n + 2))


def test_asyncio_can_await_an_isolated_call():
    async def main():
        threads = set()
        got = await asyncio.gather(
            ebb.isolate_async(functions.steps, 2, limit="80%",
                              on_progress=lambda mark: threads.add(threading.get_ident())),
            ebb.isolate_async(functions.add, 1, b=1))
        return got, threads
    assert asyncio.run(main()) == ([2, 2], {threading.get_ident()})


def test_cancelled_asyncio_task_ends_after_the_isolated_process():
    async def main():
        marks = asyncio.Queue()
        task = asyncio.ensure_future(
            ebb.isolate_async(functions.wait_for_ever, on_progress=marks.put_nowait))
        pid = (await asyncio.wait_for(marks.get(), PATIENCE_S))["pid"]
        assert is_alive(pid)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return is_alive(pid)
    assert asyncio.run(main()) is False


def test_asyncio_can_await_an_isolated_call_started_by_a_thread():
    async def main():
        call = ebb.isolate_start(functions.add, 20, b=22)
        return await call.wait_async(), await call.wait_async()
    assert asyncio.run(main()) == (42, 42)


SERVER = """
    import json, os, sys
    import ebb, isolated_functions

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    calls, keep = int(sys.argv[1]), sys.argv[2] == "keep"
    kept, sizes = [], []
    for n in range(calls):
        marks = []
        got = ebb.isolate(isolated_functions.blob, 2 << 20, on_progress=marks.append)
        if keep:
            kept.append(got)
        got = None
        sizes.append(rss())
    zombies = open(f"/proc/self/task/{os.getpid()}/children").read() \\
        if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else ""
    print(json.dumps({"growth": max(sizes[calls // 2:]) - max(sizes[:10]),
                      "fds": len(os.listdir("/proc/self/fd")), "children": zombies}))
"""
FLAT_BYTES = 8 << 20


def serve(tmp_path, calls, keep):
    process = python(script(tmp_path, SERVER), calls, "keep" if keep else "drop")
    out, err = process.communicate(timeout=PATIENCE_S * 5)
    assert err == ""
    return json.loads(out)


def test_caller_memory_is_flat_over_a_hundred_isolated_calls(tmp_path):
    after = serve(tmp_path, 100, keep=False)
    assert after["growth"] < FLAT_BYTES
    assert after["fds"] == 4  # the standard streams, and the descriptor that listdir uses
    assert after["children"].strip() == ""


def test_caller_memory_grows_if_results_of_isolated_calls_are_kept(tmp_path):
    assert serve(tmp_path, 20, keep=True)["growth"] > FLAT_BYTES


def test_failed_isolated_calls_leave_no_descriptors_or_processes():
    before = len(os.listdir("/proc/self/fd")), children_of(os.getpid())
    for call in (functools.partial(ebb.isolate, functions.die, signal.SIGKILL),
                 functools.partial(ebb.isolate, functions.fail, "value"),
                 functools.partial(ebb.isolate, functions.wait_for_ever, timeout=0.2),
                 functools.partial(ebb.isolate, lambda: 0)):
        with pytest.raises((ebb.IsolatedError, ValueError, TimeoutError, TypeError)):
            call()
    assert (len(os.listdir("/proc/self/fd")), children_of(os.getpid())) == before


# ---- isolation disabled ----


def test_variable_ebb_isolate_can_disable_isolation(monkeypatch):
    monkeypatch.setenv("EBB_ISOLATE", "0")
    marks = []
    assert ebb.isolate(functions.where, limit="1G", timeout=1) == os.getpid()
    assert ebb.isolate(lambda: 5) == 5
    assert ebb.isolate(functions.steps, 2, on_progress=marks.append) == 2
    assert [m.get("step") for m in marks if m["kind"] == "step"] == [1, 2]
    with pytest.raises(ValueError, match="no such entry"):
        ebb.isolate(functions.fail, "value")
    call = ebb.isolate_start(functions.add, 1, b=1)
    assert call.result(PATIENCE_S) == 2 and not call.cancel()


def test_isolated_call_with_isolation_disabled_leaves_no_socket(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    code = "import ebb; ebb.isolate(ebb.step, 1, on_progress=lambda mark: print(mark['step']))"
    env = dict(os.environ, PYTHONPATH=str(ROOT / "python"), EBB_ISOLATE="0")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, text=True,
                          stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
    assert done.stdout == "1\n"
    assert os.listdir(folder) == []


def test_marks_of_unisolated_calls_in_two_threads_are_not_mixed(monkeypatch):
    monkeypatch.setenv("EBB_ISOLATE", "0")
    marks = {1: [], 2: []}
    both = threading.Barrier(2)

    def work(n):
        both.wait(PATIENCE_S)
        ebb.step(n)
        both.wait(PATIENCE_S)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: ebb.isolate(work, n, on_progress=marks[n].append), (1, 2)))
    assert {n: [m["step"] for m in found] for n, found in marks.items()} == {1: [1], 2: [2]}


# ---- finding the program ----


def test_variable_ebb_binary_selects_the_ebb_program(tmp_path, monkeypatch):
    other = tmp_path / "ebb"
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o755)
    monkeypatch.setenv("EBB_BINARY", str(other))
    assert find_ebb() == str(other)


def test_ebb_program_is_searched_in_path_after_all_other_places(tmp_path, monkeypatch):
    other = tmp_path / "ebb"
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o755)
    monkeypatch.delenv("EBB_BINARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ebb._binary._places", lambda: iter([tmp_path / "none"]))
    assert find_ebb() == str(other)
    other.unlink()
    with pytest.raises(FileNotFoundError, match="none or .PATH"):
        find_ebb()


def test_python_dash_m_ebb_execs_the_program(tmp_path):
    """The ebb program replaces the Python process, so no Python process remains as its parent."""
    show = script(tmp_path, "", "unused.py").with_name("ebb")
    show.write_text("#!/bin/sh\necho $$ $*\n")
    show.chmod(0o755)
    process = python("-m", "ebb", "run", "--", "x", env={"EBB_BINARY": str(show)})
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == f"{process.pid} run -- x\n"
