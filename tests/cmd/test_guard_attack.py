"""Tests `ebb run` with hostile jobs and badly timed signals: no job may be stopped or restarted by mistake."""

import fcntl
import json
import os
import re
import pty
import signal
import subprocess
import termios

import pytest

from commands import PATIENCE_S, PYTHON, binary, environment, is_at_rest, wait_for

# Prepended to all jobs of this file.
PREFIX = r"""
import os, signal, socket, sys, time
segment = int(os.environ["EBB_SEGMENT"])
marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def step(n):
    marks.sendto(b"KIND=step\nSTEP=%d\n" % n, os.environ["EBB_SOCKET"])
"""

# A job that exits at SIGTERM. Its child survives and ignores SIGTERM until the file "enough" exists.
LEAVES_A_CHILD = r"""
if segment > 0:
    open("again", "w").close()
    sys.exit(0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
step(1)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: open("terminated", "w").close())
    open("child", "w").close()
    while not os.path.exists("enough"):
        time.sleep(0.02)
    os._exit(0)
while not os.path.exists("child"):
    time.sleep(0.02)
signal.signal(signal.SIGTERM, lambda *_: (open("gone", "w").close(), os._exit(0)))
step(2)
time.sleep(120)
"""


def command(*options, job):
    return [binary(), "run", "--run-dir", "run", *options, "--", PYTHON, "-S", "-c", PREFIX + job]


def run_job(folder, *options, job):
    result = subprocess.run(command(*options, job=job), cwd=folder, env=environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE_S)
    return result, json.loads((folder / "run" / "run.json").read_text())


@pytest.fixture
def start(tmp_path):
    """Starts jobs, which are ended after the test in any case."""
    started = []

    def run(*options, job, **streams):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, **streams}
        process = subprocess.Popen(command(*options, job=job), cwd=tmp_path, env=environment(),
                                   **streams)
        started.append(process)
        return process
    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_planned_restart_is_skipped_once_max_restarts_is_reached(tmp_path):
    result, facts = run_job(tmp_path, "--restart-every", "2steps", "--max-restarts", "1", job="""
for n in (1, 2, 3, 4, 5, 6):
    step(10 * segment + n)
    if n == 2 and segment == 0:
        time.sleep(120)
""")
    assert result.returncode == 0
    assert [s["end"]["status"] for s in facts["segments"]] == [124, 0]
    assert facts["segments"][1]["last_step"] == 16
    assert "planned restarts end, because the job was already restarted 1 time (--max-restarts)" in result.stderr


def test_job_killed_by_the_guard_is_restarted(tmp_path):
    result, facts = run_job(tmp_path, "--restart-every", "2steps", "--max-restarts", "2", "--grace",
                            "100ms", job="""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
step(10 * segment + 1)
step(10 * segment + 2)
if segment < 2:
    time.sleep(120)
""")
    assert result.returncode == 0, result.stderr
    assert [s["end"]["status"] for s in facts["segments"]] == [124, 124, 0]
    assert [e["act"] for e in facts["guard"]["events"]].count("kill") == 2


def test_decreasing_step_number_causes_no_planned_restart(tmp_path):
    result, facts = run_job(tmp_path, "--restart-every", "500steps", job="""
for n in (100, 101, 50, 51, -5, 0):
    step(n)
""")
    assert result.returncode == 0
    assert len(facts["segments"]) == 1 and facts["guard"]["events"] == []
    assert facts["segments"][0]["last_step"] == 0


def test_forwarded_sigusr1_does_not_prevent_restart(start, tmp_path):
    process = start("--restart-every", "2steps", "--max-restarts", "1", job="""
signal.signal(signal.SIGUSR1, lambda *_: open("received", "w").close())
open("ready", "w").close()
step(3 * segment + 1)
while not os.path.exists("received"):
    time.sleep(0.02)
step(3 * segment + 2)
time.sleep(0 if segment else 120)
""")
    wait_for((tmp_path / "ready").exists, "the job")
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=PATIENCE_S)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert process.returncode == 0
    assert len(facts["segments"]) == 2


def let_the_child_go(process, folder):
    """Creates the file "enough", for which the child waits, once ebb has sent SIGTERM to the child and is idle
    again."""
    wait_for((folder / "terminated").exists, "ebb to end what was left")
    pids = process.pid, json.loads((folder / "run" / "run.json").read_text())["supervisor_pid"]
    for _ in range(10):
        wait_for(lambda: all(map(is_at_rest, pids)), "ebb to be at rest")
    (folder / "enough").touch()


def test_sigterm_while_a_job_ends_for_a_restart_prevents_the_restart(start, tmp_path):
    process = start("--restart-every", "2steps", "--grace", f"{PATIENCE_S}s", job=LEAVES_A_CHILD)
    wait_for((tmp_path / "gone").exists, "the end of the first process")
    process.send_signal(signal.SIGTERM)
    let_the_child_go(process, tmp_path)
    process.communicate(timeout=PATIENCE_S)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(facts["segments"]) == 1
    assert facts["segments"][0]["end"]["left_behind"] == 1
    assert process.returncode == 124
    assert not (tmp_path / "again").exists()


def test_ctrl_c_while_a_job_ends_for_a_restart_prevents_the_restart(start, tmp_path):
    master, slave = pty.openpty()
    process = start("--restart-every", "2steps", "--grace", f"{PATIENCE_S}s", job=LEAVES_A_CHILD,
                    stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    wait_for((tmp_path / "gone").exists, "the end of the first process")
    os.write(master, b"\x03")
    let_the_child_go(process, tmp_path)
    try:
        while os.read(master, 4096):
            pass
    except OSError:  # Reading fails once all processes have closed the terminal.
        pass
    os.close(master)
    process.wait(timeout=PATIENCE_S)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(facts["segments"]) == 1
    assert not (tmp_path / "again").exists()


def test_limit_below_the_initial_memory_is_reported_as_end_cause(tmp_path):
    result, facts = run_job(tmp_path, "--limit", "4K", job="")
    if not facts["guard"]["kernel_limit"]:
        pytest.skip(f"the kernel enforces no limit: {facts['guard'].get('cgroup_trouble')}")
    assert result.returncode in (124, 137)
    assert facts["end"]["cause_kind"] in ("cgroup out of memory", "guard")
    answer = " ".join(result.stderr.partition("\nmemory ")[0].split())
    assert re.search(r"ebb (out of memory: .*limit|stopped by the guard: .* left of 4.00 KiB)", answer)
