"""Tests jobs of the server with the real `ebb run`: large and crashing jobs, cancellation in each state, restarts of
the server during jobs, and a killed supervisor, sentinel or server."""

import ctypes
import json
import os
import pathlib
import resource
import signal

import pytest

from commands import IS_SANITIZED, PYTHON, begun_early, plain, recorded, wait_for
from serving import fill, serving, small_disk

PTRACE_ATTACH, WALL = 16, 0x40000000


OPTIONS = ("--slots", "2", "--interval", "100ms", "--grace", "5s", "--memory", "none")


@pytest.fixture
def server():
    with serving(*OPTIONS) as s:
        yield s


def rss_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def lock_of(server, number):
    return server.state / "locks" / str(number)


def sentinel(server, number):
    return int(lock_of(server, number).read_text().split()[0])


def supervisor(server, number):
    return json.loads((server.state / "runs" / f"{number}-hold" / "run.json")
                      .read_text())["supervisor_pid"]


def hold(server, state="running", **more):
    """Starts a job that runs until it is cancelled."""
    number = server.submit("sleep", "600", name="hold", **more)
    assert server.wait(number, state)["state"] == state
    return number


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "XZ"
    except OSError:
        return True


def run_dir(server, number, name):
    return server.state / "runs" / f"{number}-{name}"


def wait_for_run_json(server, number, name="sleep"):
    """Waits until the run.json file shows the end of the job."""
    path = run_dir(server, number, name) / "run.json"
    wait_for(lambda: path.exists() and '"state": "ended"' in path.read_text(), "the job's end")


# ---- many jobs ----

ALLOCATES = """
import os, sys, time
b = bytearray(200 << 20)
b[::4096] = b"x" * len(b[::4096])
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
SEEN = 150 << 20


def run_large_job(server, go):
    """Runs a large job that ends once its memory was sampled."""
    number = server.submit(PYTHON, "-c", ALLOCATES, go, name="large")
    wait_for(lambda: ((server.job(number)["memory"] or {}).get("peak_bytes") or 0) > SEEN, "its memory")
    go.touch()
    return server.wait(number)


@plain
def test_server_memory_and_open_files_do_not_grow_with_large_jobs(server):
    pid = server.process.pid
    first = server.submit("true")
    server.wait(first)
    server.get("/jobs")
    rss, files = rss_bytes(pid), open_files(pid)
    for i in range(3 if IS_SANITIZED else 10):  # sanitizers use too much memory for more jobs
        job = run_large_job(server, server.folder / f"go{i}")
        assert job["state"] == "succeeded", job
        assert job["memory"]["peak_bytes"] > SEEN
        assert isinstance(job["given_back"]["clean"], bool)
        assert (job["memory_from"] == "learned") == (i > 0)
    assert IS_SANITIZED or rss_bytes(pid) - rss < 4 << 20
    wait_for(lambda: open_files(pid) <= files, "files to be closed")
    wait_for(lambda: children(pid) == [], "children to go")
    assert list((server.state / "locks").iterdir()) == []


def test_server_reads_peak_and_memory_request_from_run_json(server):
    hold_and_end = """
import os
ready, said = os.pipe()
hold, release = os.pipe()
for _ in range(20):
    if os.fork() == 0:
        os.close(release)
        kept = bytearray(b"x") * (10 << 20)
        os.write(said, b"x")
        os.read(hold, 1)
        os._exit(0)
got = 0
while got < 20:
    got += len(os.read(ready, 20))
os.close(release)
for _ in range(20):
    os.wait()
"""
    first = server.submit(PYTHON, "-c", hold_and_end, name="brood")
    ended = server.wait(first)
    doc = json.loads((run_dir(server, first, "brood") / "run.json").read_text())
    assert ended["memory"]["peak_bytes"] == doc["tree"]["peak_bytes"]
    if doc["guard"]["cgroup_peak_bytes"] is not None:
        assert doc["ask_bytes"] >= 200 << 20
    second = server.job(server.submit("true", name="brood"))
    assert (second["memory_from"], second["memory_bytes"]) == ("learned", doc["ask_bytes"])


def test_crashing_job_does_not_affect_the_server_or_other_jobs(server):
    neighbour = hold(server)
    crashes = {
        "signal": (PYTHON, "-c", "import os; os.kill(os.getpid(), 11)"),
        "exception": (PYTHON, "-c", "raise ValueError('no')"),
        "exit status": ("sh", "-c", "exit 7"),
        "not started": ("/no/such/program",),
    }
    for kind, command in crashes.items():
        job = server.wait(server.submit(*command))
        assert job["state"] == "failed" and job["cause_kind"] == kind, job
        assert job["reason"], job
    assert server.job(neighbour)["state"] == "running"
    assert server.get("/health").json()["status"] == "ok"


# ---- cancellation ----

def test_job_with_samples_is_not_reported_as_having_no_readings(server):
    number = hold(server)
    wait_for(lambda: (server.job(number)["memory"] or {}).get("job_bytes"), "its memory is known")
    assert (server.job(number)["verdict"] or {}).get("sentence") != "there are no readings"


def test_cancelled_queued_job_never_runs(server):
    hold(server), hold(server)
    number = server.submit("touch", server.folder / "ran")
    assert server.job(number)["state"] == "queued"
    assert server.post(f"/jobs/{number}/cancel", {"reason": "no need"}).status == 202
    job = server.job(number)
    assert job["state"] == "cancelled" and job["reason"] == "no need"
    assert not (server.folder / "ran").exists()


def test_starting_job_can_be_cancelled(server):
    number = server.submit("sleep", "600")
    # The job may already be running when it is cancelled.
    assert server.post(f"/jobs/{number}/cancel", {}).status == 202
    job = server.wait(number)
    assert job["state"] == "cancelled" and job["reason"] == "by request"


def test_job_that_ignores_cancellation_is_killed_if_grace_is_zero(server):
    number = server.submit("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    wait_for(lambda: server.get(f"/jobs/{number}/log").body == b"up\n", "the trap")
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 600}).status == 202
    job = server.wait(number, "stopping")
    assert job["state"] == "stopping"
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 0}).status == 202
    job = server.wait(number)
    assert job["state"] == "cancelled" and job["status"] == 137, job
    assert server.post(f"/jobs/{number}/cancel", {}).status == 409


def test_job_inherits_the_original_resource_limits_of_the_server(server):
    """The server raises its own limit of open files; its jobs get the original limit."""
    ask = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    server.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(given[0], 300), given[1]))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, given)
    number = server.submit(PYTHON, "-c", ask)
    assert server.wait(number)["state"] == "succeeded"
    assert server.get(f"/jobs/{number}/log").body.split() == [b"300", str(given[1]).encode()]
    limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
    assert int(next(line for line in limits if "open files" in line).split()[3]) > 300


# ---- checkpoints ----

def test_checkpoint_request_is_refused_if_the_job_has_no_handler(server):
    number = hold(server)
    wait_for(lambda: server.job(number)["pid"], "news of it")

    def refusal():  # If the supervisor answers too late, the server accepts the request; the test then repeats it.
        answer = server.post(f"/jobs/{number}/checkpoint", {})
        return answer if answer.status == 409 else None

    assert "no rank is connected" in wait_for(refusal, "the supervisor's answer").message()
    assert server.job(number)["state"] == "running"


def test_checkpoint_request_is_accepted_if_a_checkpoint_cmd_is_set(server):
    made = server.folder / "made"
    number = hold(server, options={"checkpoint-cmd": f"touch {made}", "checkpoint-done": str(made)})
    wait_for(lambda: server.job(number)["pid"], "news of it")
    assert server.post(f"/jobs/{number}/checkpoint", {}).status == 202
    wait_for(made.exists, "the checkpoint")
    assert server.job(number)["state"] in ("running", "checkpointing")


def test_job_can_be_cancelled_if_the_supervisor_never_answers(server):
    number = hold(server)
    wait_for(lambda: server.job(number)["pid"], "news of it")
    os.kill(supervisor(server, number), signal.SIGSTOP)
    assert server.post(f"/jobs/{number}/checkpoint", {}).status == 202
    server.post(f"/jobs/{number}/cancel", {"grace_s": 0})
    assert server.wait(number)["state"] == "cancelled"


# ---- a full disk ----

WAITS = 'echo up; while [ ! -e "$1" ]; do sleep 0.05; done; exit "$2"'


def ended_on_a_full_disk(server, disk, status):
    """Returns a job that ended while the disk was full, so that its end is not yet recorded on disk."""
    go = server.folder / "go"
    number = server.submit("sh", "-c", WAITS, "sh", go, status)
    wait_for(lambda: server.get(f"/jobs/{number}/log").body == b"up\n", "the job")
    fill(disk / "filler")
    go.touch()
    wait_for(lambda: "disk space" in (server.job(number)["reason"] or ""), "the reason of the state")
    assert server.job(number)["state"] == "stopping"
    return number


@pytest.mark.parametrize("status, state, word", [(0, "succeeded", "succeeded"), (3, "failed", "failed")])
def test_end_of_a_job_on_a_full_disk_is_recorded_once_space_is_free(tmp_path, status, state, word):
    with small_disk(tmp_path / "small") as disk, serving("--slots", 2, state=disk / "state") as s:
        number = ended_on_a_full_disk(s, disk, status)
        assert word in s.job(number)["reason"]
        s.stop(signal.SIGKILL)
        (disk / "filler").unlink()
        s.start()
        job = s.wait(number)
        assert (job["state"], job["status"]) == (state, status), job
        assert s.get(f"/jobs/{number}/run").json()["end"]["status"] == status


def test_job_waiting_for_disk_space_can_be_cancelled(tmp_path):
    with small_disk(tmp_path / "small") as disk, serving("--slots", 2, state=disk / "state") as s:
        number = ended_on_a_full_disk(s, disk, 0)
        assert s.post(f"/jobs/{number}/cancel", {"grace_s": 0}).status == 202
        assert s.wait(number)["state"] == "cancelled"
        (disk / "filler").unlink()


# ---- killed processes ----

def test_job_of_a_killed_supervisor_is_marked_lost_and_killed(server):
    number = hold(server)
    wait_for(lambda: server.job(number)["pid"], "its pid")
    os.kill(supervisor(server, number), signal.SIGKILL)
    job = server.wait(number)
    assert job["state"] == "lost", job
    wait_for(lambda: is_gone(job["pid"]), "the job's process")


def test_job_is_tracked_until_the_end_if_the_sentinel_is_killed(server):
    number = hold(server)
    os.kill(sentinel(server, number), signal.SIGKILL)
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 1}).status == 202
    assert server.wait(number)["state"] == "cancelled"
    assert not lock_of(server, number).exists()


@pytest.mark.parametrize("who", (["supervisor"], ["sentinel", "supervisor"]))
def test_cancel_request_resumes_a_supervisor_stopped_by_sigstop(server, who):
    number = hold(server)
    for name in who:
        os.kill({"supervisor": supervisor, "sentinel": sentinel}[name](server, number), signal.SIGSTOP)
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 1}).status == 202
    assert server.wait(number)["state"] == "cancelled"
    assert not lock_of(server, number).exists()


STOPS = """
import os, signal, sys, time
until = time.monotonic() + 300
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
while time.monotonic() < until:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(0.001)
"""


@pytest.mark.parametrize("state", ("starting", "running"))
def test_supervisor_stopped_repeatedly_by_sigstop_is_resumed(server, state):
    go = server.folder / "go"
    # The job stops its supervisor at once, usually before the supervisor reports that the job is running.
    if state == "starting":
        go.touch()
    number = server.submit(PYTHON, "-c", STOPS, go)
    if state == "running":
        assert server.wait(number, "running")["state"] == "running"
        go.touch()
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 0}).status == 202
    assert server.wait(number)["state"] == "cancelled"
    assert not lock_of(server, number).exists()


def in_a_debugger(_folder):
    """Cancels a job whose supervisor is stopped by ptrace, as in a debugger. Returns the signal that killed the
    supervisor, the job's state, and whether the job's process has exited."""
    with serving(*OPTIONS) as server:
        number = hold(server)
        job, pid = wait_for(lambda: server.job(number)["pid"], "its pid"), supervisor(server, number)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
            pytest.skip("ptrace is not allowed")
        assert os.WIFSTOPPED(os.waitpid(pid, WALL)[1])
        assert server.post(f"/jobs/{number}/cancel", {"grace_s": 0}).status == 202
        status = wait_for(lambda: os.waitpid(pid, WALL | os.WNOHANG)[1], "its death")
        return os.WTERMSIG(status), server.wait(number)["state"], is_gone(job)


debugged = begun_early(["test_supervisor_stopped_by_a_debugger_is_killed_with_its_job"], in_a_debugger)


def test_supervisor_stopped_by_a_debugger_is_killed_with_its_job(debugged):
    assert debugged.result() == (signal.SIGKILL, "cancelled", True)


FAMILY = """
setsid sleep 600 & echo $!
env -i "$(command -v sleep)" 600 & echo $!
sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' &
echo $$; wait
"""


def family(server):
    """Starts a job with processes that are hard to find or end: in another session, without ebb's environment
    variables, or ignoring SIGTERM. Returns the job's id and the pids of its processes."""
    number = server.submit("sh", "-c", FAMILY, name="hold")
    wait_for(lambda: server.get(f"/jobs/{number}/log").body.count(b"\n") == 4, "its processes")
    return number, [int(line) for line in server.get(f"/jobs/{number}/log").body.split()]


def kill_both(server, number, before=lambda: None):
    """Kills the supervisor and the sentinel in such a way that neither can end the job first. BEFORE is called while
    both are stopped by SIGSTOP."""
    pids = [sentinel(server, number), supervisor(server, number)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    before()
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: all(map(is_gone, pids)), "their end")


def test_job_is_killed_if_its_supervisor_and_sentinel_were_killed(server):
    neighbour = hold(server)
    number, pids = family(server)
    kill_both(server, number)
    job = server.wait(number)
    assert job["state"] == "lost" and "supervisor" in job["reason"], job
    assert all(map(is_gone, pids)), pids
    assert server.get(f"/jobs/{number}/run").json()["end"]["left_behind"] >= 4
    assert server.job(neighbour)["state"] == "running"
    assert not lock_of(server, number).exists()


def test_job_that_kills_its_supervisor_at_start_is_marked_as_lost(server):
    number = server.submit("sh", "-c", "read pid name state sentinel rest < /proc/$PPID/stat; "
                                       "kill -9 $sentinel $PPID", name="hold")
    job = server.wait(number)
    assert job["state"] == "lost" and "supervisor" in job["reason"], job
    assert not lock_of(server, number).exists()


DAEMON = """
(env -i setsid "$(command -v sh)" -c 'echo $$; exec sleep 600' &)
sleep 600
"""


def test_leftover_daemon_without_ebb_variables_is_found_by_cgroup(server):
    number = server.submit("sh", "-c", DAEMON, name="hold")
    wait_for(lambda: server.get(f"/jobs/{number}/log").body.endswith(b"\n"), "the daemon")
    pid = int(server.get(f"/jobs/{number}/log").body)
    groups = server.get(f"/jobs/{number}/run").json()["cgroup"]
    if not groups:
        pytest.skip("jobs have no cgroup of their own on this machine")
    kill_both(server, number)
    assert server.wait(number)["state"] == "lost"
    assert is_gone(pid)
    assert not any(pathlib.Path("/sys/fs/cgroup", group).exists() for group in groups), groups


def test_cleanup_of_a_lost_job_keeps_the_cgroups_of_other_jobs(server):
    neighbour, number = hold(server), hold(server)
    path = run_dir(server, number, "hold") / "run.json"
    own = json.loads(path.read_text())
    other = json.loads((run_dir(server, neighbour, "hold") / "run.json").read_text())
    kill_both(server, number, before=lambda: path.write_text(json.dumps(
        {**own, "cgroup": other["cgroup"], "control": other["control"]})))
    assert server.wait(number)["state"] == "lost"
    assert is_gone(own["pid"])
    assert not is_gone(other["pid"]) and server.job(neighbour)["state"] == "running"
    assert pathlib.Path(other["control"]).exists()
    assert all(pathlib.Path("/sys/fs/cgroup", group).exists() for group in other["cgroup"])


def test_restarted_server_kills_leftover_processes_of_a_lost_job(server):
    number, pids = family(server)
    server.stop(signal.SIGKILL)
    kill_both(server, number)
    assert not any(map(is_gone, pids))
    server.start()
    assert server.wait(number)["state"] == "lost"
    assert all(map(is_gone, pids)), pids


def test_restarted_server_reconnects_to_its_running_jobs(server):
    number, ends = hold(server), server.submit("sleep", "0.5")
    waits = server.submit("true", after=[ends])
    server.stop(signal.SIGKILL)
    wait_for_run_json(server, ends)
    server.start()
    assert server.job(number)["state"] == "running"
    assert server.wait(ends)["state"] == "succeeded"
    assert server.wait(waits)["state"] == "succeeded"
    wait_for(lambda: server.job(number)["memory"], "news of the adopted job")
    assert server.post(f"/jobs/{number}/cancel", {}).status == 202
    assert server.wait(number)["state"] == "cancelled"


def sparks(server, number):
    """Returns the indices of the job's sparkline intervals that contain a sample."""
    return [i for i, value in enumerate(server.job(number)["spark"] or []) if value is not None]


def test_memory_peak_reached_while_server_was_down_is_reported(server):
    go = server.folder / "go"
    number, unseen = hold(server), server.submit("sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done")
    wait_for(lambda: len(sparks(server, number)) >= 4, "the picture of its memory")
    first = sparks(server, number)[0]
    server.stop(signal.SIGKILL)
    folder = run_dir(server, unseen, "sh")
    wait_for(lambda: len({int(o["t"] * 4) for o in recorded(folder) if o["type"] == "sample"}) >= 4,
             "samples in several pieces of its time")
    go.touch()
    wait_for_run_json(server, unseen, "sh")
    server.start()
    wait_for(lambda: len(sparks(server, number)) >= 4, "the same of the adopted job")
    assert sparks(server, number)[0] <= first  # On a busy machine the first sample may be late.
    assert server.wait(unseen)["state"] == "succeeded"
    assert len(sparks(server, unseen)) >= 2  # The server may have merged pairs of intervals of the sparkline.


def test_server_resumed_after_sigstop_notices_that_a_job_ended(server):
    number, ends = hold(server), server.submit("sleep", "0.3")
    server.wait(ends, "running")
    server.process.send_signal(signal.SIGSTOP)
    try:
        wait_for_run_json(server, ends)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert server.wait(ends)["state"] == "succeeded"
    assert server.job(number)["state"] == "running"


def test_server_survives_removal_of_the_folder_of_a_running_job(server):
    number = hold(server)
    wait_for(lambda: server.job(number)["pid"], "news")
    folder = server.state / "runs" / f"{number}-hold"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert server.post(f"/jobs/{number}/cancel", {"grace_s": 1}).status == 202
    assert server.wait(number)["state"] == "cancelled"
    assert server.get("/health").json()["status"] == "ok"


SPEAKS_FOR_ITS_SUPERVISOR = """
import json, os, pathlib, socket, struct, sys, time
file = pathlib.Path(os.environ["EBB_RUN_DIR"]) / "run.json"
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
control = json.loads(file.read_text())["control"]
os.unlink(control)
listener = socket.socket(socket.AF_UNIX)
listener.bind(control)
listener.listen()
pathlib.Path(sys.argv[1]).touch()
server, _ = listener.accept()
for i in range(1200):
    state = {"type": "state", "state": ("running", "checkpointing")[i % 2], "reason": f"look {i}"}
    text = json.dumps(state).encode()
    server.sendall(struct.pack("<cI", b"n", len(text)) + text)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""


def test_flood_of_state_messages_is_rate_limited_in_the_server_log(server, tmp_path):
    number = server.submit(PYTHON, "-c", SPEAKS_FOR_ITS_SUPERVISOR, tmp_path / "listens", tmp_path / "end",
                           tmp_path / "begin")
    wait_for(lambda: server.job(number)["pid"], "the server to be connected to the supervisor")
    (tmp_path / "begin").touch()
    wait_for((tmp_path / "listens").exists, "the job to listen")
    server.stop()
    server.start()  # The new server reconnects to the running job.
    wait_for(lambda: server.job(number)["reason"] == "look 1199", "the last state")
    (tmp_path / "end").touch()
    assert server.wait(number)["state"] == "succeeded"
    lines = [json.loads(line) for line in server.said().splitlines()]
    of_job = [line for line in lines if line.get("job") == number]
    assert len(of_job) < 1020
    assert of_job[-1]["message"] == "succeeded"
