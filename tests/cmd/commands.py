"""Helpers of the command tests: run ebb, wait for conditions, read output. EBB_BINARY is the path of the ebb
program."""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import struct
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOBODY = 65534
# Upper limit for any wait, in seconds: long enough for a busy machine and a sanitized program.
PATIENCE_S = 180
IS_SANITIZED = os.environ.get("EBB_SANITIZED") == "1"
# Marks tests of memory use or timing. `make test` runs them on the unsanitized program, too.
plain = pytest.mark.plain
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def binary():
    return os.environ.get("EBB_BINARY", str(ROOT / "build" / "ebb"))


def make_recording(table, out, *marks):
    """Creates the recording OUT from the CSV file TABLE and the files MARKS, which contain marks."""
    tool = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build")) / "tests" / "tools" / "table"
    subprocess.run([tool, table, out, *marks], check=True, timeout=PATIENCE_S)
    return out


def wait_for(condition, what, limit_s=PATIENCE_S):
    """Polls CONDITION() and returns its first true value. Tests wait for a condition instead of a fixed time."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {limit_s} s in vain: {what}")


def alive(pid):
    """Returns whether the process exists and is not a zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def is_at_rest(pid):
    """Returns whether the process is sleeping and has no pending signals."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    waits = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["State"].startswith("S") and not waits


def environment(changes=None):
    """Returns the test's environment without EBB_ variables, with a fixed locale and TERM. CHANGES are applied; the
    value None removes a variable."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    env.update({"LC_ALL": "C.UTF-8", "TERM": "xterm"})
    for key, value in (changes or {}).items():
        env.pop(key, None)
        if value is not None:
            env[key] = value
    return env


def run_ebb(*arguments, env=None, program=None, **options):
    """Runs ebb until it exits. In its output, bytes that are not UTF-8 become escapes."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([program or binary(), *map(str, arguments)], env=environment(env),
                          stderr=subprocess.PIPE, encoding="utf-8", errors="backslashreplace",
                          timeout=PATIENCE_S, **options)


def recorded(folder):
    """Returns the records written to a recording so far, or an empty list if it cannot be read."""
    result = run_ebb("export", folder, "--jsonl")
    return list(map(json.loads, result.stdout.splitlines())) if result.returncode == 0 else []


def refused(result, sentence, status=2):
    """Checks that ebb printed exactly this one error message and nothing else."""
    assert result.stderr == f"ebb: {sentence}\n"
    assert (result.returncode, result.stdout) == (status, "")
    return True


def refused_with(result, *parts, status=2):
    """Checks that ebb printed one error message that contains all PARTS, and nothing else."""
    assert result.stderr.startswith("ebb: ") and result.stderr.count("\n") == 1, result.stderr
    for part in parts:
        assert part in result.stderr
    assert (result.returncode, result.stdout) == (status, "")
    return True


class Readers:
    """Records which files of a folder are closed after reading, with inotify."""

    CLOSE_NOWRITE = 0x10
    EVENT = struct.Struct("iIII")

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            return
        if libc.inotify_add_watch(self.fd, os.fsencode(folder), self.CLOSE_NOWRITE) < 0:
            os.close(self.fd)
            self.fd = -1

    def names(self):
        """Returns the name of each file that was closed after reading, or None if this machine allows no inotify
        watch."""
        if self.fd < 0:
            return None
        found, data = [], b""
        try:
            while True:
                data += os.read(self.fd, 1 << 16)
        except BlockingIOError:
            os.close(self.fd)
        while data:
            length = self.EVENT.unpack_from(data)[3]
            found.append(data[self.EVENT.size:self.EVENT.size + length].rstrip(b"\0").decode())
            data = data[self.EVENT.size + length:]
        return found


def begun_early(tests, function):
    """Returns a fixture that starts FUNCTION in a thread when the module's first test begins, and yields a future of
    its result. FUNCTION takes long, so it runs while other tests run. It is started only if one of TESTS is selected.
    The argument of FUNCTION is a folder for its files."""
    @pytest.fixture(scope="module", autouse=True)
    def early(request, tmp_path_factory):
        names = {item.originalname for item in request.session.items if item.module is request.module}
        if not names & set(tests):
            yield None
            return
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            yield pool.submit(function, tmp_path_factory.mktemp("early"))
    return early
