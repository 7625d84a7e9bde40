"""Tests the ways in which a job under `ebb run` can end. In each case, none of the job's processes remain, processes
outside the job survive, and run.json has the cause."""

import concurrent.futures
import os
import pathlib
import random
import signal
import subprocess
import time
import uuid

import pytest

from commands import PYTHON, alive, recorded, wait_for
from guarded import LINES, Guarded, enough_memory, guarded, neighbours, script, trainer

# A job that starts ordinary grandchildren, and one grandchild that escapes by a double fork and setsid. Each grandchild
# writes its pid to a file and exits after a while.
FAMILY = """
    note() { echo $1 > pid.$1.tmp; mv pid.$1.tmp pid.$1; }
    sh -c 'sleep 120 & echo $! > pid.$!; wait' &
    note $!
    (setsid sh -c 'echo $$ > pid.$$; sleep 120; :' &)
    note $$
    while [ $(ls pid.* | grep -vc tmp) -lt 4 ]; do sleep 0.02; done
    touch ready
    while [ ! -e go ]; do sleep 0.05; done
"""


def family(folder):
    return ["--", "sh", script(folder, FAMILY, "family.sh")]


# ---- signals to ebb run ----

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_ebb_run_forwards_signals_and_waits_for_the_job_to_clean_up(guarded, number):
    job = script(guarded.folder, """
        import os, signal, subprocess, sys, time
        def leave(number, frame):
            print("cleaning", flush=True)
            time.sleep(0.5)
            print("cleaned", number, flush=True)
            sys.exit(7)
        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        subprocess.Popen(["sleep", "120"], start_new_session=True)
        open("ready", "w").close()
        time.sleep(120)
    """)
    client = guarded.start("--limit", "200M", "--", PYTHON, job)
    guarded.wait_for_file("ready")
    client.send_signal(number)
    result = guarded.end(client)
    assert (result.returncode, result.stdout) == (7, f"cleaning\ncleaned {int(number)}\n")
    doc = guarded.facts()
    assert doc["end"]["status"] == 7 and doc["end"]["left_behind"] == 1
    assert guarded.is_all_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_job_without_signal_handler_is_killed_by_forwarded_signal(guarded, number):
    client = guarded.start(*LINES, "--restart", *trainer("steps=3000", "leak_kib=0"))
    wait_for(lambda: guarded.run_dirs() and guarded.facts().get("pid"), "the job")
    client.send_signal(number)
    result = guarded.end(client)
    end = guarded.facts()["end"]
    assert result.returncode == 128 + number and end["kind"] == "signalled"
    assert end["cause_kind"] == "operator" and number.name in end["cause"]
    assert len(guarded.facts()["segments"]) == 1
    assert guarded.is_all_gone()


# ---- kill -9 ----

def kill_at_some_moment(folder, victim, wait_s):
    """Starts a job and kills VICTIM, a process of ebb. VICTIM is killed WAIT_S seconds after the supervisor has started
    or, if WAIT_S is None, once all processes of the job run. Returns whether WAIT_S is None, and the number of
    grandchildren."""
    folder.mkdir()
    jobs = Guarded(folder)
    try:
        client = jobs.start(*family(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: jobs.pid_of("ebb-supervisor") or client.poll() is not None,
                 "the supervisor")
        if wait_s is None:
            jobs.wait_for_file("ready")
        try:
            client.wait(timeout=wait_s or 0.001)
        except subprocess.TimeoutExpired:
            pass
        pid = client.pid if victim == "client" else jobs.pid_of(f"ebb-{victim}")
        os.kill(pid, signal.SIGKILL)
        if victim == "sentinel":
            jobs.wait_for_file("ready")
            wait_for(lambda: jobs.run_dirs() and jobs.facts().get("pid"), "the job's run.json")
            assert client.poll() is None and alive(jobs.facts()["pid"])
            (folder / "go").touch()
        jobs.end(client)
        expected = {"client": -signal.SIGKILL, "supervisor": 125, "sentinel": 0}[victim]
        assert client.returncode == expected, (victim, wait_s, client.returncode)
        jobs.wait_until_all_is_gone()
        pids = [int(path.name[4:]) for path in folder.glob("pid.*[0-9]")]
        assert not any(map(alive, pids)), (victim, wait_s, pids)
        return wait_s is None, len(pids)
    finally:
        jobs.clean()


def test_ebb_killed_fifty_times_leaves_no_processes_or_files_behind(tmp_path, neighbours, enough_memory):
    moment = random.Random(4)
    plans = [(tmp_path / str(i), moment.choice(["client", "supervisor", "sentinel"]),
              moment.choice([None, moment.uniform(0.001, 0.4)])) for i in range(50)]
    assert {victim for _, victim, _ in plans} == {"client", "supervisor", "sentinel"}
    with concurrent.futures.ThreadPoolExecutor(max_workers=5) as pool:
        fates = list(pool.map(lambda plan: kill_at_some_moment(*plan), plans))
    assert all(count >= 4 for was_ready, count in fates if was_ready)
    assert sum(was_ready for was_ready, _ in fates) >= 10


# ---- processes that outlive the first process of the job ----

def test_five_hundred_grandchildren_do_not_outlive_the_job(guarded):
    result = guarded.run("--limit", "400M", "--", "sh", "-c",
                         "i=0; while [ $i -lt 20 ]; do i=$((i+1)); "
                         "(j=0; while [ $j -lt 25 ]; do j=$((j+1)); sleep 600 & done); done")
    doc = guarded.facts()
    assert result.returncode == 0, result.stderr
    assert doc["end"]["left_behind"] == 500 and doc["end"]["cause_kind"] == "finished"
    assert guarded.is_all_gone()


def test_processes_that_ignore_sigterm_do_not_outlive_the_job(guarded):
    result = guarded.run("--", "sh", "-c",
                         "(trap '' TERM; setsid sh -c 'touch ready; exec sleep 120' &); "
                         "while [ ! -e ready ]; do sleep 0.02; done")
    assert result.returncode == 0 and guarded.facts()["end"]["left_behind"] == 1
    assert guarded.is_all_gone()


# ---- --keep-on-exit ----

KEPT = """
    i=0
    while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); [ $i -ne 5 ] || touch ready
        while [ $i -eq 10 ] && [ ! -e go ]; do sleep 0.05; done; sleep 0.02; done
    exit 5
"""
KEPT_LOG = "".join(f"line {i}\n" for i in range(20))


def kept(guarded):
    client = guarded.start("--keep-on-exit", "--", "sh", script(guarded.folder, KEPT, "kept.sh"),
                           stdout=subprocess.DEVNULL, stderr=open(guarded.folder / "said", "w"))
    guarded.wait_for_file("ready")
    wait_for(lambda: guarded.run_dirs() and guarded.facts().get("pid"), "run.json")
    return client


def test_option_keep_on_exit_lets_the_job_finish_if_ebb_run_is_killed(guarded):
    client = kept(guarded)
    client.kill()
    client.wait()
    assert alive(guarded.facts()["pid"])
    (guarded.folder / "go").touch()
    doc = guarded.wait_for_facts()
    assert guarded.log() == KEPT_LOG and doc["log"]["bytes"] == len(KEPT_LOG)
    assert doc["end"]["kind"] == "exited" and doc["end"]["status"] == 5
    assert doc["end"]["cause_kind"] == "exit status" and doc["processes_seen"] >= 1


def test_option_keep_on_exit_lets_the_job_outlive_a_killed_supervisor(guarded):
    client = kept(guarded)
    os.kill(guarded.facts()["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: "the job continues" in (guarded.folder / "said").read_text(), "a word about it")
    assert alive(guarded.facts()["pid"])
    (guarded.folder / "go").touch()
    assert guarded.end(client).returncode == 125
    doc = guarded.facts()
    assert doc["end"]["kind"] == "exited" and doc["end"]["status"] == 5
    assert doc["end"]["outlived_supervisor"] is True
    log = guarded.log().splitlines()
    assert log[-10:] == KEPT_LOG.splitlines()[-10:] and log == sorted(set(log), key=log.index)


@pytest.mark.parametrize("victim", ["client", "supervisor"])
def test_grandchildren_end_with_the_job_despite_option_keep_on_exit(guarded, victim):
    client = guarded.start("--keep-on-exit", *family(guarded.folder), stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    guarded.wait_for_file("ready")
    wait_for(lambda: guarded.run_dirs() and guarded.facts().get("pid"), "run.json")
    pids = [int(path.name[4:]) for path in guarded.folder.glob("pid.*[0-9]")]
    os.kill(client.pid if victim == "client" else guarded.facts()["supervisor_pid"], signal.SIGKILL)
    assert len(pids) >= 4 and all(map(alive, pids))
    (guarded.folder / "go").touch()
    client.wait()
    doc = guarded.wait_for_facts()
    assert doc["end"]["status"] == 0 and doc["end"]["left_behind"] >= 2
    wait_for(lambda: not any(map(alive, pids)), "the grandchildren's end")


# ---- leftovers in /dev/shm ----

@pytest.fixture
def shm():
    """Returns a function that makes paths in /dev/shm; the files are removed after the test."""
    folder = pathlib.Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("/dev/shm is not writable")
    name = f"ebb-test-{uuid.uuid4().hex}"
    yield lambda which: folder / f"{name}-{which}"
    for path in folder.glob(f"{name}*"):
        path.unlink()


@pytest.mark.parametrize("clean", [False, True], ids=["reported", "cleaned"])
def test_leftovers_in_dev_shm_are_reported_and_removed_on_request(guarded, shm, clean):
    job = script(guarded.folder, f"""
        import os, time
        f = open("{shm('job')}", "wb")
        f.write(b"x" * (1 << 20))
        f.flush()
        open("ready", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.02)
    """)
    shm("before").write_bytes(b"older than the job")
    client = guarded.start("--interval", "50ms", *(["--clean-shm"] if clean else []), "--", PYTHON,
                           job)
    guarded.wait_for_file("ready")
    shm("beside").write_bytes(b"a neighbour's")
    run, = wait_for(guarded.run_dirs, "run.json")
    looks = len(recorded(run.parent))
    wait_for(lambda: len(recorded(run.parent)) > looks + 20, "some looks")
    (guarded.folder / "go").touch()
    result = guarded.end(client)
    left = {o["name"]: o for o in guarded.facts()["left"]["shm"]}
    assert result.returncode == 0
    own = left[shm("job").name]
    assert own["bytes"] == 1 << 20 and own["removed"] == clean
    assert shm("job").exists() != clean
    assert shm("before").name not in left and shm("before").read_bytes() == b"older than the job"
    assert shm("beside").read_bytes() == b"a neighbour's"
    assert shm("beside").name not in left


# ---- the reported cause ----

def cause(guarded, *arguments):
    result = guarded.run(*arguments)
    end = guarded.facts()["end"]
    assert result.returncode == end["status"]
    return result.returncode, end["cause_kind"], end["cause"]


def test_summary_of_a_failed_job_has_the_line_of_its_exception(guarded):
    code = "import json; print('fine'); json.loads('{') if 1 else 0"
    status, kind, text = cause(guarded, "--", PYTHON, "-c", code)
    assert (status, kind) == (1, "exception")
    assert text.startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_python_memory_error_is_reported_as_a_failed_allocation(guarded):
    code = "raise MemoryError('Unable to allocate 3 TiB')"
    status, kind, text = cause(guarded, "--", PYTHON, "-c", code)
    assert (status, kind) == (1, "allocation failed") and "Unable to allocate 3 TiB" in text


def test_summary_of_a_crashed_job_names_the_signal(guarded):
    assert cause(guarded, "--", "sh", "-c", "kill -SEGV $$") == (
        128 + signal.SIGSEGV, "signal", "crashed: SIGSEGV")


def test_sigkill_not_sent_by_ebb_is_reported_with_unknown_sender(guarded):
    assert cause(guarded, "--", "sh", "-c", "kill -KILL $$") == (
        128 + signal.SIGKILL, "signal", "killed by SIGKILL (sender unknown)")


def test_summary_of_a_failed_job_without_output_has_the_exit_status(guarded):
    assert cause(guarded, "--", "sh", "-c", "exit 9") == (9, "exit status", "exit status 9")


def test_oom_kill_in_the_job_cgroup_is_reported_as_the_end_cause(guarded):
    """The guard is disabled, so that the kernel enforces the limit."""
    result = guarded.run("--limit", "100M", "--no-level", "--no-forecast", "--no-term", "--no-kill",
                         "--pressure", "off", *trainer("base_mib=300", "steps=20"))
    doc = guarded.facts()
    if not doc["guard"]["kernel_limit"]:
        pytest.skip(f"the kernel enforces no limit: {doc['guard']['cgroup_trouble']}")
    if result.returncode == 0 and "SwapTotal:              0 kB" not in open("/proc/meminfo").read():
        pytest.skip("the job was swapped out, and its cgroup does not limit swap")
    assert result.returncode == 128 + signal.SIGKILL
    assert doc["end"]["cause_kind"] == "cgroup out of memory"
    assert doc["end"]["cause"] == ("killed by the kernel: the job's cgroup ran out of memory "
                                   "(limit 100 MiB)")


# ---- processes that cannot be killed ----

class Freezer:
    """A cgroup v1 freezer, in which SIGKILL does not end a frozen process."""

    def __init__(self):
        self.path = pathlib.Path("/sys/fs/cgroup/freezer") / f"test-{uuid.uuid4().hex}"
        self.path.mkdir()

    def freeze(self, *pids):
        for pid in pids:
            (self.path / "cgroup.procs").write_text(str(pid))
        (self.path / "freezer.state").write_text("FROZEN")
        wait_for(lambda: (self.path / "freezer.state").read_text() == "FROZEN\n", "the freeze")

    def thaw(self):
        (self.path / "freezer.state").write_text("THAWED")

    def remove(self):
        self.thaw()
        wait_for(lambda: not (self.path / "cgroup.procs").read_text(), "the group to be empty")
        self.path.rmdir()


@pytest.fixture
def freezer():
    try:
        group = Freezer()
    except OSError as error:
        pytest.skip(f"no cgroup v1 freezer: {error}")
    yield group
    group.remove()


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share_of_cpu(pid, seconds=1):
    """Returns the CPU use of a process, as a fraction of one CPU. A busy machine can only lower it."""
    began_s, cpu_before = time.monotonic(), cpu_s(pid)
    time.sleep(seconds)
    return (cpu_s(pid) - cpu_before) / (time.monotonic() - began_s)


def test_ebb_reports_and_waits_for_a_process_that_survives_sigkill(guarded, freezer):
    said = guarded.folder / "stderr"
    client = guarded.start("--grace", "100ms", "--no-heap", "--", "sh", script(guarded.folder, """
        sleep 120 &
        echo $! > hung; touch ready; while [ ! -e go ]; do sleep 0.02; done
    """, "job.sh"), stderr=said.open("w"))
    guarded.wait_for_file("ready")
    hung = int((guarded.folder / "hung").read_text())
    wait_for(lambda: pathlib.Path(f"/proc/{hung}/comm").read_text() == "sleep\n", "sleep")
    freezer.freeze(hung)
    (guarded.folder / "go").touch()
    words = f"ebb: waiting for process {hung} (sleep), which has survived SIGKILL"
    wait_for(lambda: words in said.read_text(), "the name of the process")
    supervisor, sentinel = map(guarded.pid_of, ("ebb-supervisor", "ebb-sentinel"))
    assert share_of_cpu(supervisor) < 0.3
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not alive(supervisor), "the end of the supervisor")
    assert share_of_cpu(sentinel) < 0.3
    freezer.thaw()
    guarded.end(client)
    assert guarded.is_all_gone()
