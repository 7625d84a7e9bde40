"""Tests detached jobs: start and end, the lock, and the supervisor's messages and requests."""

import json
import os
import pathlib
import signal
import socket
import struct

import pytest

from commands import PYTHON, alive, refused, run_ebb, wait_for
from guarded import LINES, enough_memory, guarded, neighbours, script, trainer
from supervised import Control, Lock, connect, detach

FAST = ("--interval", "50ms")
CALM = ("base_mib=5", "leak_kib=0", "step_ms=20")


def sleeper(folder, text="while [ ! -e go ]; do sleep 0.05; done"):
    return ["--", "sh", script(folder, text, "job.sh")]


# ---- the start ----

def test_lock_of_a_detached_job_is_held_until_the_job_ends(guarded):
    lock = Lock(guarded.folder / "lock")
    result = detach(guarded, *FAST, *sleeper(guarded.folder), lock=lock)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    lock.let_go()
    assert guarded.facts()["state"] == "running"
    pid, start = lock.holder()
    assert pathlib.Path(f"/proc/{pid}/comm").read_text() == "ebb-sentinel\n"
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[19]) == start
    assert lock.is_held()
    (guarded.folder / "go").touch()
    doc = guarded.wait_for_facts()
    assert (doc["end"]["kind"], doc["end"]["status"]) == ("exited", 0)
    wait_for(lambda: not lock.is_held(), "the lock to be free")


def test_detached_job_inherits_no_input_and_no_descriptors_of_ebb(guarded):
    lock = Lock(guarded.folder / "lock")
    job = script(guarded.folder, """
        import os, sys
        print(repr(sys.stdin.read()), sorted(os.listdir("/proc/self/fd")), os.isatty(1))
        for fd in os.listdir("/proc/self/fd"):
            try:
                print(fd, os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2])
            except OSError:
                pass
    """)
    assert detach(guarded, "--", PYTHON, job, lock=lock).returncode == 0
    lock.let_go()
    guarded.wait_for_facts()
    assert guarded.log().startswith("'' ")
    assert "lock" not in guarded.log()
    assert "True" not in guarded.log()


@pytest.mark.parametrize("command, status, words", [
    ("/nonexistent/program", 127, "command not found"),
    ("/etc/passwd", 126, "cannot be executed")])
def test_detached_job_that_cannot_start_is_reported(guarded, command, status, words):
    lock = Lock(guarded.folder / "lock")
    result = detach(guarded, "--", command, lock=lock)
    lock.let_go()
    assert result.returncode == status
    assert words in result.stderr and result.stderr.count("\n") == 1
    assert not lock.is_held()


def test_failed_exec_of_a_detached_job_is_reported_and_lock_is_freed(guarded):
    lock = Lock(guarded.folder / "lock")
    program = guarded.folder / "program"
    program.write_bytes(b"\x7fELF\0 no program at all")
    program.chmod(0o755)
    result = detach(guarded, "--", program, lock=lock)
    lock.let_go()
    assert result.returncode == 126
    assert "cannot be executed" in result.stderr
    assert not lock.is_held()
    assert guarded.facts()["end"]["kind"] == "not_started"


def test_detached_run_refuses_an_existing_run_folder(guarded):
    (guarded.folder / "taken").mkdir()
    result = detach(guarded, "--run-dir", "taken", "--", "true")
    assert result.returncode == 125
    assert "already exists" in result.stderr


@pytest.mark.parametrize("fd", [1, 999])
def test_invalid_lock_fd_is_refused(tmp_path, fd):
    why = f"--lock-fd {fd}: the file descriptor is not open"
    refused(run_ebb("run", "--no-record", "--detached", "--lock-fd", fd, "--", "true"),
            f"run: {why}", 125)
    refused(run_ebb("sweep", "--lock-fd", fd, tmp_path), f"sweep: {why}")
    assert not list(tmp_path.iterdir())


def test_option_lock_fd_is_refused_without_option_detached():
    refused(run_ebb("run", "--no-record", "--lock-fd", 7, "--", "true"),
            "run: --lock-fd 7 requires --detached", 125)


# ---- the end ----

def test_detached_job_can_write_megabytes_without_any_viewer(guarded):
    job = script(guarded.folder, """
        import os, sys
        for i in range(3000):
            os.write(1, (b"%07d " % i) * 1000 + b"\\n")
        open("written", "w").close()
        while not os.path.exists("go"):
            pass
    """)
    assert detach(guarded, "--log-max", "1M", "--", PYTHON, job).returncode == 0
    guarded.wait_for_file("written")
    supervisor = guarded.pid_of("ebb-supervisor")
    status = pathlib.Path(f"/proc/{supervisor}/status").read_text()
    rss_kib = int(status.partition("VmRSS:")[2].split()[0])
    instrumented = "asan" in pathlib.Path(f"/proc/{supervisor}/maps").read_text()
    assert instrumented or rss_kib < 24 << 10
    (guarded.folder / "go").touch()
    doc = guarded.wait_for_facts()
    assert doc["end"]["kind"] == "exited"
    folder = guarded.run_dirs()[0].parent
    pieces = list(folder.glob("log*.txt"))
    assert sum(piece.stat().st_size for piece in pieces) <= 1 << 20
    assert (folder / "log.txt").read_text().startswith("0000000 ")
    newest = max(pieces, key=lambda piece: int((piece.name.split(".")[1:-1] or ["0"])[0]))
    assert newest.read_text().rstrip().endswith("0002999")
    start = int(newest.name.split(".")[1])
    assert start + newest.stat().st_size == doc["log"]["bytes"]


def test_job_is_ended_and_marked_lost_if_the_supervisor_is_killed(guarded):
    lock = Lock(guarded.folder / "lock")
    assert detach(guarded, "--keep-on-exit", *sleeper(guarded.folder), lock=lock).returncode == 0
    lock.let_go()
    job = guarded.facts()["pid"]
    os.kill(guarded.pid_of("ebb-supervisor"), signal.SIGKILL)
    doc = guarded.wait_for_facts()
    assert doc["end"]["kind"] == "lost"
    assert not alive(job)
    wait_for(lambda: not lock.is_held(), "the lock to be free")


def test_guard_restarts_a_detached_job_without_viewers(guarded):
    result = detach(guarded, *LINES, "--restart", "--max-restarts", "1", "--resume-args",
                    "steps=5", *trainer())
    assert result.returncode == 0
    doc = guarded.wait_for_facts()
    assert len(doc["segments"]) == 2
    assert doc["segments"][0]["end"]["by"] == "the guard"


# ---- messages ----

def test_new_control_connection_receives_state_and_samples_and_log(guarded):
    detach(guarded, *FAST, *sleeper(guarded.folder, """
        echo hello
        while [ ! -e more ]; do sleep 0.05; done
        echo again
        while [ ! -e go ]; do sleep 0.05; done
    """))
    doc = guarded.facts()
    control = Control(doc["control"])
    state = control.read()
    assert (state["type"], state["state"], state["reason"]) == ("state", "running", None)
    assert (state["pid"], state["segment"]) == (doc["pid"], 0)
    assert state["started_s"] == doc["started_s"]
    sample = control.until(lambda m: m["type"] == "sample" and m["processes"])[-1]
    assert set(sample) == {"type", "t_s", "job_bytes", "unique_bytes", "rss_sum_bytes",
                           "limit_bytes", "headroom_bytes", "step", "gpus", "processes"}
    assert sample["job_bytes"] > 0
    assert doc["pid"] in [process["pid"] for process in sample["processes"]]
    control.until(lambda m: m["type"] == "log" and m["bytes"] >= len("hello\n"))
    (guarded.folder / "more").touch()
    control.until(lambda m: m["type"] == "log" and m["bytes"] == len("hello\nagain\n"))
    assert guarded.log() == "hello\nagain\n"
    (guarded.folder / "go").touch()
    while control.read():
        pass
    guarded.wait_for_facts()


def test_control_connection_receives_marks_progress_and_verdicts(guarded):
    detach(guarded, *FAST, *trainer("steps=100000", leak=CALM))
    control = connect(guarded)
    mark = control.until(lambda m: m["type"] == "mark" and m["kind"] == "step")[-1]
    assert mark["step"] >= 0
    state = control.until(lambda m: m["type"] == "state" and m["progress"]
                          and m["progress"]["steps_per_s"])[-1]
    assert 0 < state["progress"]["step"]
    verdict = control.until_type("verdict")
    assert "verdict" in verdict["verdict"]
    assert control.ask(do="cancel", grace_s=5)["ok"]
    guarded.wait_for_facts()


def test_oldest_control_connection_is_closed_when_a_ninth_is_opened(guarded):
    detach(guarded, *FAST, *sleeper(guarded.folder))
    path = guarded.facts()["control"]
    listeners = [Control(path) for _ in range(8)]
    assert [listener.read()["type"] for listener in listeners] == ["state"] * 8
    ninth = Control(path)
    assert ninth.read()["type"] == "state"
    while listeners[0].read():
        pass
    for listener in [*listeners[1:], ninth]:
        assert listener.until_type("sample")
    (guarded.folder / "go").touch()
    guarded.wait_for_facts()


def test_stuck_control_connection_does_not_delay_other_connections(guarded):
    detach(guarded, "--interval", "50ms", *trainer("steps=100000", leak=CALM))
    path = guarded.facts()["control"]
    lazy = Control(path)
    lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    busy = Control(path)
    for _ in range(3):
        first = busy.until_type("sample")["t_s"]
        busy.until(lambda m: m["type"] == "sample" and m["t_s"] >= first + 1)
    assert busy.ask(do="cancel", grace_s=5, reason="enough")["ok"]
    state = lazy.until(lambda m: m["type"] == "state" and m["state"] == "stopping")[-1]
    assert state["reason"] == "cancelled: enough"
    guarded.wait_for_facts()


@pytest.mark.parametrize("bytes_sent", [
    b"r" + struct.pack("<I", 0xffffffff) + b"x" * 100,
    b"r" + struct.pack("<I", 1 << 22) + b"x" * (200 << 10),
    os.urandom(1 << 16)], ids=["endless", "too long", "noise"])
def test_invalid_control_request_closes_only_its_own_connection(guarded, bytes_sent):
    detach(guarded, *FAST, *sleeper(guarded.folder))
    path = guarded.facts()["control"]
    bad = Control(path)
    try:
        bad.socket.sendall(bytes_sent)
        bad.socket.shutdown(socket.SHUT_WR)
        while bad.read():
            pass
    except (BrokenPipeError, ConnectionResetError):
        pass
    good = Control(path)
    good.send_frame(b"r", b"[[[")
    assert good.until_type("answer")["ok"] is False
    answer = good.ask(do="dance")
    assert (answer["ok"], answer["error"]) == (False, "unknown request")
    assert good.until_type("sample")
    (guarded.folder / "go").touch()
    assert guarded.wait_for_facts()["end"]["status"] == 0


def test_control_socket_accepts_only_its_owner_and_root(guarded):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    detach(guarded, *FAST, *sleeper(guarded.folder))
    path = guarded.facts()["control"]
    folder = pathlib.Path(path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    os.chmod(path, 0o666)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(0 if Control(path).read() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert Control(path).read()["type"] == "state"
    (guarded.folder / "go").touch()
    guarded.wait_for_facts()


# ---- requests ----

def test_cancelled_job_gets_sigterm_and_is_not_restarted(guarded):
    job = script(guarded.folder, """
        import os, signal, sys, time
        def leave(number, frame):
            time.sleep(0.3)
            print("saved", flush=True)
            sys.exit(7)
        signal.signal(signal.SIGTERM, leave)
        open("ready", "w").close()
        time.sleep(600)
    """)
    detach(guarded, *FAST, "--restart", "--", PYTHON, job)
    guarded.wait_for_file("ready")
    control = connect(guarded)
    answer = control.ask(do="cancel", reason="no longer needed", grace_s=60)
    assert (answer["do"], answer["ok"], answer["error"]) == ("cancel", True, None)
    doc = guarded.wait_for_facts()
    end = doc["end"]
    assert (end["kind"], end["status"]) == ("exited", 7)
    assert end["by"] == end["cause"] == "cancelled: no longer needed"
    assert end["cause_kind"] == "cancelled"
    assert guarded.log() == "saved\n"
    assert len(doc["segments"]) == 1


def test_job_that_ignores_cancellation_is_killed_with_its_children(guarded):
    detach(guarded, *FAST, *sleeper(guarded.folder, """
        trap '' TERM
        (trap '' TERM; setsid sh -c 'trap "" TERM; touch ready; while :; do sleep 1; done' &)
        while :; do sleep 1; done
    """))
    guarded.wait_for_file("ready")
    control = connect(guarded)
    assert control.ask(do="cancel", reason="", grace_s=600)["ok"]
    assert control.ask(do="cancel", grace_s=0.1)["ok"]
    end = guarded.wait_for_facts()["end"]
    assert (end["kind"], end["signal"], end["by"]) == ("signalled", "KILL", "cancelled")


def test_cancelling_an_ended_job_does_not_change_the_end_cause(guarded):
    detach(guarded, *FAST, *sleeper(guarded.folder, """
        (setsid sh -c 'trap "" TERM; touch ready; while :; do sleep 0.1; done' &)
        while [ ! -e ready ]; do sleep 0.05; done
        exit 3
    """))
    control = connect(guarded)
    control.until(lambda m: m["type"] == "state" and m["state"] == "stopping")
    assert control.ask(do="cancel", reason="too late", grace_s=0)["ok"]
    end = guarded.wait_for_facts()["end"]
    assert (end["status"], end["cause"], end.get("by")) == (3, "exit status 3", None)


def test_checkpoint_requested_over_the_control_socket_is_written(guarded):
    detach(guarded, *FAST, *trainer("steps=100000", leak=CALM))
    control = connect(guarded)
    control.until(lambda m: m["type"] == "mark" and m["kind"] == "step")
    before = control.ask(do="checkpoint")
    assert before["ok"], before
    event = control.until(lambda m: m["type"] == "event" and m["act"] == "checkpoint")[-1]
    assert event["why"] == "checkpoint written"
    assert (guarded.folder / "checkpoint").exists()
    control.until(lambda m: m["type"] == "state" and m["state"] == "running")
    assert control.ask(do="cancel", grace_s=10)["ok"]
    doc = guarded.wait_for_facts()
    triggers = [e["trigger"] for e in doc["guard"]["events"] if e["act"] in ("ask", "checkpoint")]
    assert triggers == ["request", "request"]
    assert len(doc["guard"]["checkpoints"]) == 1


def test_checkpoint_request_is_accepted_while_the_guard_is_off(guarded):
    detach(guarded, *FAST, "--no-guard", *trainer("steps=100000", leak=CALM))
    control = connect(guarded)
    control.until(lambda m: m["type"] == "mark" and m["kind"] == "step")
    assert control.ask(do="checkpoint")["ok"]
    control.until(lambda m: m["type"] == "event" and m["act"] == "checkpoint")
    assert control.ask(do="cancel", grace_s=10)["ok"]
    assert len(guarded.wait_for_facts()["guard"]["checkpoints"]) == 1


def test_checkpoint_command_is_complete_once_the_done_file_exists(guarded):
    detach(guarded, *FAST, "--checkpoint-cmd", "sleep 0.1; touch made", "--checkpoint-done", "made",
           *sleeper(guarded.folder))
    control = connect(guarded)
    assert control.ask(do="checkpoint")["ok"]
    control.until(lambda m: m["type"] == "event" and m["act"] == "checkpoint")
    (guarded.folder / "go").touch()
    assert len(guarded.wait_for_facts()["guard"]["checkpoints"]) == 1


def test_checkpoint_request_is_refused_if_no_rank_is_connected(guarded):
    detach(guarded, *FAST, *sleeper(guarded.folder))
    control = connect(guarded)
    answer = control.ask(do="checkpoint")
    assert answer["ok"] is False
    assert "no rank is connected" in answer["error"]
    assert control.ask(do="cancel", grace_s=30)["ok"]
    guarded.wait_for_facts()


# ---- samples ----

def series(folder, *options):
    result = run_ebb("series", folder, *options)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_series_command_prints_samples_of_running_and_ended_jobs(guarded):
    detach(guarded, *FAST, *trainer("steps=100000", leak=CALM))
    folder = guarded.run_dirs()[0].parent
    wait_for(lambda: len(series(folder)["series"]["t_s"]) > 5, "samples of a running job")
    doc = series(folder, "--id", 17)
    assert doc["id"] == 17
    assert abs(doc["t0_s"] - guarded.facts()["started_s"]) < 1e-3
    wait_for(lambda: series(folder)["marks"], "marks of a running job")
    control = connect(guarded)
    assert control.ask(do="cancel", grace_s=10)["ok"]
    facts = guarded.wait_for_facts()
    doc = series(folder, "--points", 16)
    assert len(doc["series"]["t_s"]) <= 16
    assert max(filter(None, doc["series"]["job_high_bytes"])) == facts["tree"]["peak_bytes"] or \
        facts["guard"]["cgroup"]
    assert facts["pid"] in [process["pid"] for process in doc["processes"]]
    part = series(folder, "--from", 0.2, "--to", 0.6)
    assert all(0.15 <= t <= 0.65 for t in part["series"]["t_s"])


@pytest.mark.parametrize("options", [("--points", "15"), ("--from", "-1"), ("--to", "soon"),
                                     ("--from", "nan")])
def test_series_command_refuses_an_invalid_range(tmp_path, options):
    result = run_ebb("series", tmp_path, *options)
    assert result.returncode == 2
    assert options[0] in result.stderr
