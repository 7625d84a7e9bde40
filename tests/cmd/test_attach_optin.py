"""Tests `ebb attach` and `ebb detach` of processes that were started with EBB_ATTACH=1. ebb runs unprivileged, and a
seccomp filter refuses ptrace, as in some containers."""

import contextlib
import ctypes
import os
import platform
import signal
import struct
import subprocess
import textwrap

import pytest

from attach_part import Installation
from commands import NOBODY, PYTHON, alive, environment, run_ebb, wait_for
from test_attach import refused

# A program that runs Python code until its standard input is closed.
IDLE = """
    import sys
    import ebb._optin
    print("ready", flush=True)
    sys.stdin.read()
    print("finished", flush=True)
"""
# A program that holds the GIL until its standard input is closed.
LOCKED = """
    import ctypes, sys
    import ebb._optin
    print("ready", flush=True)
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
    sys.stdin.readline()
"""
USER = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
PTRACE = {"x86_64": 101, "aarch64": 117}  # system call number of ptrace
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LIBC = ctypes.CDLL(None)


def forbid_ptrace():
    """Installs a seccomp filter in this process that makes ptrace fail with EPERM."""
    rules = struct.pack("HBBI" * 4, 0x20, 0, 0, 0,  # load the system call number
                        0x15, 0, 1, PTRACE[platform.machine()],
                        0x06, 0, 0, 0x00050001,  # EPERM
                        0x06, 0, 0, 0x7FFF0000)  # allow
    space = ctypes.create_string_buffer(rules)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(space))
    if LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or LIBC.prctl(SET_SECCOMP, FILTER, program, 0, 0):
        os._exit(3)


pytestmark = pytest.mark.skipif(platform.machine() not in PTRACE,
                                reason="the system call number of ptrace is unknown")


@pytest.fixture
def installed(open_folder):
    return Installation(open_folder)


@pytest.fixture
def folder(open_folder):
    """A folder owned by the user that runs the job."""
    path = open_folder / "runtime"
    path.mkdir(mode=0o700)
    if USER:
        os.chown(path, NOBODY, NOBODY)
    return path


@contextlib.contextmanager
def job(installed, folder, *, code=IDLE, opts_in="1"):
    env = environment({"EBB_ATTACH": opts_in, "XDG_RUNTIME_DIR": str(folder),
                       "PYTHONPATH": str(installed.packages)})
    process = subprocess.Popen([PYTHON, "-c", textwrap.dedent(code)], env=env, cwd=folder,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                               start_new_session=True, **USER)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def variables(folder):
    """Returns the environment for ebb. The sanitizer's leak detection needs ptrace, so it is disabled."""
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return {"XDG_RUNTIME_DIR": str(folder), "ASAN_OPTIONS": sanitizer}


def ebb(installed, folder, *arguments):
    return run_ebb(*arguments, program=str(installed.program), cwd=folder, env=variables(folder),
                   preexec_fn=forbid_ptrace, **USER)


def start_ebb(installed, folder, pid):
    return subprocess.Popen([installed.program, "attach", str(pid)], cwd=folder, encoding="utf-8",
                            env=environment(variables(folder)), stderr=subprocess.PIPE,
                            preexec_fn=forbid_ptrace, **USER)


def test_attach_works_without_ptrace_if_the_job_opted_in(installed, folder):
    with job(installed, folder) as process:
        result = ebb(installed, folder, "attach", "--for", "300ms", process.pid)
        assert result.returncode == 0, result.stderr
        assert f"attached to process {process.pid} (" in result.stderr
        assert "was not paused" in result.stderr
        assert installed.notes() == [f"start {process.pid}", f"stop {process.pid}"]
        assert process.communicate()[0] == "finished\n" and process.returncode == 0


def test_attach_without_ptrace_is_refused_if_the_job_did_not_opt_in(installed, folder):
    with job(installed, folder, opts_in="0") as process:
        result = ebb(installed, folder, "attach", process.pid)
        assert refused(result, f"process {process.pid}", "start the job with EBB_ATTACH=1")
        assert installed.notes() == [] and alive(process.pid)


def test_detach_without_ptrace_removes_hooks_left_by_a_killed_ebb(installed, folder):
    with job(installed, folder) as process:
        result = ebb(installed, folder, "detach", process.pid)
        assert result.returncode == 2 and "ebb is not attached to this process" in result.stderr
        with start_ebb(installed, folder, process.pid) as attached:
            assert "attached to" in attached.stderr.readline()
            attached.kill()
        result = ebb(installed, folder, "detach", process.pid)
        assert result.returncode == 0 and result.stderr == "", result.stderr
        assert installed.notes() == [f"start {process.pid}", f"stop {process.pid}"]


def test_ctrl_c_cancels_attach_while_the_job_holds_the_gil(installed, folder):
    with job(installed, folder, code=LOCKED) as process:
        with start_ebb(installed, folder, process.pid) as attached:
            assert "does not answer" in attached.stderr.readline()
            attached.send_signal(signal.SIGINT)
            assert "does not answer" in attached.stderr.read()
        assert attached.returncode == 2
        process.stdin.write("\n")
        process.stdin.flush()
        # The helper thread handles requests in order, so it has answered the attach request once it answers the detach
        # request.
        result = ebb(installed, folder, "detach", process.pid)
        assert "ebb is not attached to this process" in result.stderr
        assert installed.notes() == []


@pytest.mark.parametrize("what", ["open folder", "socket of another process", "left socket"])
def test_attach_ignores_a_socket_that_may_not_belong_to_the_job(what, installed, folder):
    with job(installed, folder) as process, job(installed, folder) as other:
        path = folder / "ebb" / f"attach.{process.pid}"
        wait_for(path.exists, "the socket")
        if what == "open folder":
            (folder / "ebb").chmod(0o777)
        elif what == "left socket":
            other.kill()
            other.wait()
            os.replace(folder / "ebb" / f"attach.{other.pid}", path)
        else:
            os.replace(folder / "ebb" / f"attach.{other.pid}", path)
        result = ebb(installed, folder, "attach", process.pid)
        assert refused(result, "may not be traced")
        assert installed.notes() == []
