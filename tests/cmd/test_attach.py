"""Tests `ebb attach`, `ebb detach` and `ebb stack` on running processes of several Python versions."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import textwrap
import threading

import pytest

from attach_part import Installation
from commands import NOBODY, PYTHON, alive, environment, run_ebb, wait_for
from test_pythons import find_python

VERSIONS = ["system"] + [f"3.{minor}" for minor in range(9, 15)]


@pytest.fixture
def python(request):
    """Returns the path of a Python version's interpreter, or skips the test if it is not installed."""
    found = PYTHON if request.param == "system" else find_python(request.param)
    if not found:
        pytest.skip(f"Python {request.param} is not installed")
    return found


every_python = pytest.mark.parametrize("python", VERSIONS, indirect=True)

# A program whose main thread counts until standard input is closed, and then prints its global names.
BUSY = """
    import os, sys, threading
    print("ready", flush=True)
    done = []
    threading.Thread(target=lambda: done.append(sys.stdin.read()), daemon=True).start()
    def inner():
        n = 0
        while not done:
            n += 1
        return n
    def outer():
        return inner()
    outer()
    print("finished", sorted(k for k in globals() if not k.startswith("__")), flush=True)
"""
# The main thread stays inside a C call until standard input is closed.
IN_C = "import os; print('ready', flush=True); os.read(0, 1); print('finished', flush=True)"


@contextlib.contextmanager
def program(code, *, python=PYTHON, arguments=(), **options):
    process = subprocess.Popen([python, "-c", textwrap.dedent(code), *arguments], env=environment(),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                               start_new_session=True, **options)
    try:
        assert process.stdout.readline().startswith("ready")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def finish(process):
    """Ends the program and returns its remaining output."""
    process.stdin.close()
    text = process.stdout.read()
    assert process.wait() == 0
    process.stdin = open(os.devnull)
    return text


@pytest.fixture
def installed(open_folder):
    return Installation(open_folder)


@pytest.fixture
def attach(installed, open_folder):
    def run(*arguments, **options):
        return run_ebb("attach", *arguments, program=str(installed.program), cwd=open_folder,
                       **options)
    return run


@contextlib.contextmanager
def attached(installed, folder, pid, *arguments):
    """Runs `ebb attach` in the background. The body of the with statement begins once ebb is attached."""
    process = subprocess.Popen([installed.program, "attach", *arguments, str(pid)], cwd=folder,
                               env=environment(), stderr=subprocess.PIPE, encoding="utf-8")
    try:
        line = process.stderr.readline()
        assert f"attached to process {pid}" in line, line
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def refused(result, *words):
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("ebb: attach: ")
    for word in words:
        assert word in result.stderr
    return True


# ---- attaching and detaching ----


@every_python
def test_attach_and_detach_leave_the_program_unchanged(python, attach, installed, open_folder):
    with program(BUSY, python=python) as job:
        result = attach("--for", "1s", job.pid, "--run-dir", open_folder / "run")
        assert result.returncode == 0, result.stderr
        assert f"attached to process {job.pid} (" in result.stderr
        assert installed.notes() == [f"start {job.pid}", f"stop {job.pid}"]
        run = json.loads((open_folder / "run" / "run.json").read_text())
        assert run["attached"] is True and run["state"] == "ended"
        assert run["end"] == {**run["end"], "kind": "watch_ended", "by": "--for"}
        assert run["pid"] == job.pid and run["command"][0] == python
        # ebb executes its code in the namespace of __main__, and must not leave a name there
        names = "['done', 'inner', 'os', 'outer', 'sys', 'threading']"
        assert finish(job) == f"finished {names}\n"


def test_attach_command_exits_when_the_attached_process_exits(attach, installed, open_folder):
    with program(BUSY) as job, attached(installed, open_folder, job.pid) as ebb:
        finish(job)
        text = ebb.stderr.read()
        assert ebb.wait() == 0
        assert "the job ended" in text


def test_attach_command_exits_on_ctrl_c_or_ebb_detach(installed, open_folder):
    with program(BUSY) as job:
        with attached(installed, open_folder, job.pid) as ebb:
            ebb.send_signal(signal.SIGINT)
            text = ebb.stderr.read()
            assert "stopped by Ctrl-C" in text and re.search(r"paused .*s to detach\n", text)
            assert ebb.wait() == 0
        with attached(installed, open_folder, job.pid) as ebb:
            result = run_ebb("detach", job.pid, program=str(installed.program))
            assert result.returncode == 0 and result.stderr == ""
            assert "stopped by ebb detach" in ebb.stderr.read()
        assert installed.notes() == [f"start {job.pid}", f"stop {job.pid}"] * 2


@every_python
def test_detach_removes_hooks_left_by_a_killed_ebb(python, installed, open_folder):
    with program(BUSY, python=python) as job:
        with attached(installed, open_folder, job.pid) as ebb:
            ebb.kill()
        result = run_ebb("detach", job.pid, program=str(installed.program))
        assert result.returncode == 0, result.stderr
        assert installed.notes() == [f"start {job.pid}", f"stop {job.pid}"]
        assert alive(job.pid)


def test_detach_is_refused_if_the_process_was_never_attached(installed):
    with program(BUSY) as job:
        result = run_ebb("detach", job.pid, program=str(installed.program))
        assert result.returncode == 2 and "not attached" in result.stderr


@every_python
def test_detach_of_a_never_attached_process_needs_no_python_code(python, installed):
    with program(IN_C, python=python) as job:
        result = run_ebb("detach", job.pid, program=str(installed.program))
        assert result.returncode == 2 and "not attached" in result.stderr


def test_detach_is_refused_after_a_timed_attach_has_ended(attach, installed):
    with program(BUSY) as job:
        assert attach("--for", "100ms", job.pid).returncode == 0
        result = run_ebb("detach", job.pid, program=str(installed.program))
        assert result.returncode == 2 and "not attached" in result.stderr
        assert installed.notes() == [f"start {job.pid}", f"stop {job.pid}"]


def test_heap_command_accepts_the_pid_of_an_attached_process(installed, open_folder):
    with program(BUSY) as job, attached(installed, open_folder, job.pid):
        result = run_ebb("heap", job.pid, program=str(installed.program))
        assert "does not run under ebb" not in result.stderr
        assert "ebb-runs/" in result.stderr  # the fake package never sends a heap table


def test_attach_to_an_already_attached_process_is_refused(attach, installed, open_folder):
    with program(BUSY) as job, attached(installed, open_folder, job.pid):
        assert refused(attach(job.pid), "already", f"ebb detach {job.pid}")


def test_option_all_of_attach_includes_child_processes(attach, installed):
    code = """
        import os, sys, time
        kids = [os.fork() for _ in range(2)] if len(sys.argv) == 1 else []
        if all(kids):
            print("ready", flush=True)
        while True:
            time.sleep(0.01)
    """
    with program(code) as job:
        result = attach("--all", "--for", "1s", job.pid)
        assert result.returncode == 0, result.stderr
        started = {note.split()[1] for note in installed.notes() if note.startswith("start")}
        assert len(started) >= 3 and str(job.pid) in started
        stopped = {note.split()[1] for note in installed.notes() if note.startswith("stop")}
        assert started == stopped


def test_attach_works_if_the_interpreter_was_renamed_and_deleted(attach, installed, tmp_path):
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("the Python to copy is missing")
    copy = tmp_path / "renamed"
    shutil.copy(os.path.realpath("/usr/bin/python3"), copy)
    with program(BUSY, python=str(copy)) as job:
        copy.unlink()
        result = attach("--for", "500ms", job.pid)
        assert result.returncode == 0, result.stderr
        assert installed.notes()[0] == f"start {job.pid}"


def test_ctrl_c_cancels_attach_while_the_program_is_in_c_code(installed, open_folder):
    with program(IN_C) as job:
        ebb = subprocess.Popen([installed.program, "attach", str(job.pid)], cwd=open_folder,
                               env=environment(), stderr=subprocess.PIPE, encoding="utf-8")
        assert "runs no Python code" in ebb.stderr.readline()
        ebb.send_signal(signal.SIGINT)
        assert "stayed in a C call" in ebb.communicate()[1]
        assert ebb.returncode == 2
        assert finish(job) == "finished\n"
        assert installed.notes() == []  # ebb removed the attach script before the interpreter could run it


def test_attach_reports_a_process_that_dies_during_the_attach(installed, open_folder):
    with program(IN_C) as job:
        ebb = subprocess.Popen([installed.program, "attach", str(job.pid)], cwd=open_folder,
                               env=environment(), stderr=subprocess.PIPE, encoding="utf-8")
        wait_for(lambda: list(open_folder.glob("ebb-runs/*/run.json")), "the recording")
        job.kill()
        job.wait()
        text = ebb.communicate()[1]
        assert ebb.returncode == 2 and "has exited" in text
        assert not list(open_folder.glob("ebb-runs/*")), "the empty run folder stays"


def test_attach_reports_a_process_that_calls_exec_during_the_attach(installed, open_folder):
    code = """
        import os, threading, time
        def start_another():
            os.read(0, 1)
            os.execvp("sleep", ["sleep", "600"])
        threading.Thread(target=start_another).start()
        print("ready", flush=True)
        time.sleep(600)
    """
    with program(code) as job:
        ebb = subprocess.Popen([installed.program, "attach", str(job.pid)], cwd=open_folder,
                               env=environment(), stderr=subprocess.PIPE, encoding="utf-8")
        assert "runs no Python code" in ebb.stderr.readline()
        job.stdin.write("x")
        job.stdin.flush()
        assert "has exited or started another program" in ebb.communicate()[1]
        assert ebb.returncode == 2 and alive(job.pid)


# ---- the guard ----

GROWING = """
    import sys, time
    print("ready", flush=True)
    kept = []
    while len(kept) < 130:
        kept.append(bytearray(4 << 20))
        time.sleep(0.03)
    print("finished", flush=True)
"""


def test_guard_of_an_attached_job_only_warns_by_default(attach):
    with program(GROWING) as job:
        result = attach("--limit", "300M", job.pid)
        assert result.returncode == 0, result.stderr
        assert "guard: memory is running out" in result.stderr
        assert job.wait() == 0 and job.stdout.read() == "finished\n"


def test_option_guard_of_attach_lets_the_guard_stop_the_job(attach):
    with program(GROWING) as job:
        result = attach("--limit", "300M", "--guard", job.pid)
        assert result.returncode == 0, result.stderr
        assert job.wait() in (-signal.SIGTERM, -signal.SIGKILL)
        assert "guard: stopping the job" in result.stderr or "guard: kill" in result.stderr


# ---- refused processes ----


def test_attach_refuses_invalid_pids_and_non_python_programs(attach):
    assert refused(attach("2147483647"), "there is no process")
    assert attach("x").returncode == attach("-1").returncode == attach("0").returncode == 2
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        assert refused(attach(sleeper.pid), "is not Python")
    finally:
        sleeper.kill()
    wait_for(lambda: not alive(sleeper.pid), "the zombie")
    assert refused(attach(sleeper.pid), "has exited")
    sleeper.wait()


def test_attach_command_refuses_a_kernel_thread(attach):
    status = pathlib.Path("/proc/2/status")
    if not status.exists() or "VmSize" in status.read_text():
        pytest.skip("no kernel thread is visible")
    assert refused(attach(2), "is a kernel thread")


def test_attach_command_refuses_ebb_itself(installed, open_folder):
    result = subprocess.run(["sh", "-c", f"exec {installed.program} attach $$"], cwd=open_folder,
                            env=environment(), stderr=subprocess.PIPE, encoding="utf-8")
    assert refused(result, "is ebb itself")


def test_attach_command_refuses_a_thread_id(attach):
    with program(BUSY) as job:
        def other_threads():
            return {int(t) for t in os.listdir(f"/proc/{job.pid}/task")} - {job.pid}
        thread = wait_for(other_threads, "the second thread").pop()
        assert refused(attach(thread), str(job.pid))


def test_attach_command_refuses_a_process_stopped_by_a_signal(attach):
    with program(BUSY) as job:
        job.send_signal(signal.SIGSTOP)
        assert refused(attach(job.pid), "is stopped", f"kill -CONT {job.pid}")


def test_attach_command_refuses_a_traced_process(attach):
    seize, libc = 0x4206, ctypes.CDLL(None, use_errno=True)
    with program(BUSY) as job:
        results = []

        def trace_and_attach():
            if libc.ptrace(seize, job.pid, 0, 0) == 0:
                results.append(attach(job.pid))

        tracer = threading.Thread(target=trace_and_attach)
        tracer.start()
        tracer.join()
        if not results:
            pytest.skip("ptrace is not allowed")
        assert refused(results[0], "is traced by")


def test_attach_command_refuses_a_process_in_a_seccomp_sandbox(attach):
    code = """
        import ctypes, struct
        libc = ctypes.CDLL(None)
        allow = struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000)
        space = ctypes.create_string_buffer(allow)
        program = struct.pack("HxxxxxxP", 1, ctypes.addressof(space))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
            print("readyless", flush=True)
        print("ready", flush=True)
        import time
        time.sleep(600)
    """
    with program(code) as job:
        if "Seccomp:\t2" not in pathlib.Path(f"/proc/{job.pid}/status").read_text():
            pytest.skip("this kernel has no seccomp filters")
        assert refused(attach(job.pid), "seccomp")


def test_attach_command_refuses_a_process_of_another_user(attach, installed):
    if os.geteuid() != 0:
        pytest.skip("requires root, to run as another user")
    with program(BUSY) as job:
        result = attach(job.pid, user=NOBODY, group=NOBODY, extra_groups=[])
        assert refused(result, "belongs to root", "sudo")


def test_root_may_attach_to_a_process_of_another_user(attach, installed):
    if os.geteuid() != 0:
        pytest.skip("requires root")
    with program(BUSY, user=NOBODY, group=NOBODY, extra_groups=[]) as job:
        result = attach("--for", "500ms", job.pid)
        assert result.returncode == 0, result.stderr
        assert installed.notes()[0] == f"start {job.pid}"


@pytest.mark.parametrize("flag,word", [("--mount", "mount namespace"), ("--pid", "pid namespace")])
def test_attach_command_refuses_a_process_in_another_pid_namespace(flag, word, attach, open_folder):
    inner = f"mount -t tmpfs none /tmp && exec {PYTHON} -c 'import time; time.sleep(600)'"
    command = ["unshare", "--fork", flag, "sh", "-c", inner if flag == "--mount" else
               f"exec {PYTHON} -c 'import time; time.sleep(600)'"]
    if subprocess.run(["unshare", flag, "--fork", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this machine allows no new namespaces")
    outer = subprocess.Popen(command, start_new_session=True)
    try:
        def child():
            text = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            found = text and "sleep(600)" in pathlib.Path(f"/proc/{text[0]}/cmdline").read_text()
            return int(text[0]) if found else 0
        pid = wait_for(child, "the program in its namespace")
        wait_for(lambda: "python" in os.readlink(f"/proc/{pid}/exe"), "its interpreter")
        assert refused(attach(pid), word)
    finally:
        os.killpg(outer.pid, signal.SIGKILL)
        outer.wait()


# ---- ebb stack ----


@every_python
def test_stack_command_prints_functions_and_lines(python, installed):
    with program(BUSY, python=python) as job:
        def stacks():
            result = run_ebb("stack", "--json", job.pid, program=str(installed.program))
            assert result.returncode == 0, result.stderr
            threads = json.loads(result.stdout)["threads"]
            frames = [(f["function"].split(".")[-1], f["line"]) for f in threads[0]["frames"]]
            return threads if [f[0] for f in frames] == ["inner", "outer", "<module>"] else None
        threads = wait_for(stacks, "the stack of the main thread")
        main = threads[0]
        assert main["is_main"] and main["tid"] == job.pid
        assert main["frames"][0]["line"] in (7, 8, 9) and main["frames"][0]["file"] == "<string>"
        assert [f["line"] for f in main["frames"][1:]] == [12, 13]
        assert len(threads) == 2
        assert finish(job).startswith("finished")


@every_python
def test_stack_command_prints_whole_stacks_while_threads_start_and_end(python, installed):
    code = """
        import sys, threading
        done = []
        def main():
            print("ready", flush=True)
            while not done:
                threads = [threading.Thread(target=int) for _ in range(4)]
                [t.start() for t in threads]
                [t.join() for t in threads]
            print("finished", flush=True)
        threading.Thread(target=lambda: done.append(sys.stdin.read()), daemon=True).start()
        main()
    """
    with program(code, python=python) as job:
        whole = 0
        for _ in range(50):
            result = run_ebb("stack", "--json", job.pid, program=str(installed.program))
            assert result.returncode == 0, result.stderr
            main = json.loads(result.stdout)["threads"][0]
            if not main["is_cut"]:
                whole += 1
                functions = [f["function"].split(".")[-1] for f in main["frames"]]
                assert functions[-2:] == ["main", "<module>"], functions
        assert whole and finish(job) == "finished\n"


def test_stack_command_escapes_function_names(installed):
    code = r"""
        import time
        exec(compile("def f():\n  print('ready', flush=True)\n  time.sleep(600)\nf()",
                     "a\x1b[31m\u202eé.py", "exec"))
    """
    with program(code) as job:
        def text():
            out = run_ebb("stack", job.pid, program=str(installed.program)).stdout
            return out if ".py:3 in f" in out and "<module>" in out else None
        found = wait_for(text, "the stack")
        assert "\x1b" not in found and "a\\e[31m\\u{202e}é.py:3 in f" in found
