"""Tests `ebb census`: object counts taken by the processes of a run, and errors if no census is available."""

import json
import os
import socket
import subprocess

import pytest

from commands import (PATIENCE_S, PYTHON, ROOT, binary, environment, refused, refused_with, run_ebb,
                      wait_for)

# A job that runs steps until the file named by its last argument exists; with --idle it runs only one step.
JOB = """
import os, sys, time
import ebb
kept, n = [], 0
while not os.path.exists(sys.argv[-1]):
    kept.append(bytearray(40000))
    if n == 0 or "--idle" not in sys.argv:
        n += 1
        ebb.step(n)
    time.sleep(0.02)
"""

RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(r)})
         for r in (0, 1)]
sys.exit(sum(r.wait() for r in ranks))
"""

# A program that accepts census requests as ebb's Python package does. Its argument selects the kind of response.
DEAF = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(f"{os.environ['EBB_SOCKET']}.{os.getpid()}")
open(sys.argv[2], "w").close()
if sys.argv[1] == "die":
    s.recv(100)
    os._exit(0)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.02)
"""


@pytest.fixture
def job(tmp_path):
    """Starts jobs under ebb and ends them after the test."""
    started = []

    class Job:
        folder = tmp_path / "run"
        stop = tmp_path / "stop"

        def start(self, *command, env=None):
            self.process = subprocess.Popen(
                [binary(), "run", "--run-dir", self.folder, "--", *map(str, command)],
                env=environment({"PYTHONPATH": str(ROOT / "python"), **(env or {})}),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            started.append(self.process)
            wait_for(lambda: self.facts().get("pid"), "the job to start")
            return self

        def facts(self):
            try:
                return json.loads((self.folder / "run.json").read_text())
            except (OSError, ValueError):
                return {}

        def listeners(self):
            base = self.facts()["socket"]
            folder, name = os.path.split(base)
            return [int(f[len(name) + 1:]) for f in os.listdir(folder)
                    if f.startswith(name + ".") and f[len(name) + 1:].isdigit()]

        def wait_for_listeners(self, n=1):
            wait_for(lambda: len(self.listeners()) >= n, "somebody who listens")
            return self

        def end(self):
            self.stop.touch()
            return self.process.wait(timeout=PATIENCE_S)

    yield Job()
    (tmp_path / "stop").touch()
    for process in started:
        try:
            process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(timeout=PATIENCE_S)


def blocks(census):
    """Returns the number of blocks that the job keeps alive, according to a census."""
    return sum(o["count"] for o in census["objects"] if o["type"] == "bytearray")


def census_json(*arguments):
    result = run_ebb("census", *arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout), result.returncode


def test_census_of_job_with_steps_is_taken_at_step_end(job):
    job.start(PYTHON, "-c", JOB, job.stop).wait_for_listeners()
    first, status = census_json(job.folder)
    [one] = first["processes"]
    assert status == 0 and one["error"] is None and one["census"]["cost_s"] > 0
    assert one["since"] is None and one["growth"] == []
    assert os.path.dirname(one["path"]) == str(job.folder / "census")

    def by_step():  # If no step ends within two seconds, a helper thread takes the census.
        doc, _ = census_json(job.folder)
        return doc if doc["processes"][0]["census"]["at"] == "step" else None

    first = wait_for(by_step, "a census at the end of a step")["processes"][0]["census"]

    def second_with_growth():
        doc = by_step()
        return doc if doc and blocks(doc["processes"][0]["census"]) > blocks(first) else None

    second = wait_for(second_with_growth, "growth")
    [one] = second["processes"]
    grown = next(g for g in one["growth"] if g["name"] == "bytearray")
    assert grown["kind"] == "object" and grown["count"] > 0
    assert grown["bytes"] == pytest.approx(40057 * grown["count"], rel=0.01)
    assert one["since"]["step"] < one["census"]["step"]

    def census_text():
        text = run_ebb("census", job.folder, "--top", "3").stdout
        assert f"process {job.facts()['pid']}, step " in text
        is_whole = "at the end of the step, at a cost of" in text and "__main__.kept[" in text
        # A census that reaches its time limit does not list the names that refer to the objects.
        return text if is_whole else None

    text = wait_for(census_text, "a census at the end of a step, in words")
    assert "torch is not imported in this process" in text and "since the census at step" in text
    assert job.end() == 0


def test_census_of_job_without_steps_is_taken_by_a_helper_thread(job):
    job.start(PYTHON, "-c", JOB, "--idle", job.stop).wait_for_listeners()

    def by_thread():  # The first census may be taken when the only step ends.
        doc, status = census_json(job.facts()["pid"])
        [one] = doc["processes"]
        assert (status, doc["run"]) == (0, str(job.folder))
        return one["census"] if one["census"]["at"] == "thread" else None

    assert wait_for(by_thread, "a census by the thread")["step"] == 1


def test_census_of_a_launcher_shows_one_table_per_rank(job):
    job.start(PYTHON, "-c", RANKS, "-c", JOB, job.stop).wait_for_listeners(2)
    doc, status = census_json(job.process.pid)  # The pid of `ebb run` itself is also accepted.
    assert status == 0
    assert sorted(p["census"]["rank"] for p in doc["processes"]) == [0, 1]
    text = run_ebb("census", job.folder).stdout
    assert "(rank 0)" in text and "(rank 1)" in text
    rank = max(job.listeners())
    doc, _ = census_json(rank)
    assert [p["pid"] for p in doc["processes"]] == [rank]


def test_census_of_a_job_that_is_not_python_prints_one_error_line(job):
    job.start("sleep", "1000")
    try:
        for operand in (job.folder, job.facts()["pid"]):
            assert refused_with(run_ebb("census", operand), "accepts census requests yet")
    finally:
        job.process.terminate()


def test_census_error_names_the_process_that_timed_out(job, tmp_path):
    job.start(PYTHON, "-c", DEAF, "wait", tmp_path / "up", job.stop)
    wait_for((tmp_path / "up").exists, "the socket")
    doc, status = census_json(job.folder, "--timeout", "200ms")
    assert status == 2
    assert [p["pid"] for p in doc["processes"]] == [job.facts()["pid"]]
    assert "no answer in time" in doc["processes"][0]["error"]
    assert not [f for f in os.listdir(os.path.dirname(job.facts()["socket"])) if "census" in f]


def test_census_command_does_not_wait_for_an_exiting_process(job, tmp_path):
    job.start(PYTHON, "-c", DEAF, "die", tmp_path / "up")
    wait_for((tmp_path / "up").exists, "the socket")
    doc, status = census_json(job.folder, "--timeout", "10m")
    assert status == 2 and "the process exited before it answered" in doc["processes"][0]["error"]


def test_census_command_ignores_the_socket_of_an_exited_process(job):
    job.start(PYTHON, "-c", JOB, job.stop).wait_for_listeners()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(job.facts()["socket"] + ".999999999")
    doc, status = census_json(job.folder)
    assert status == 0
    assert [p["pid"] for p in doc["processes"]] == [job.facts()["pid"]]


# ---- census of a finished run ----

def test_census_command_shows_last_stored_census_of_a_finished_run(job):
    job.start(PYTHON, "-c", JOB, job.stop, env={"EBB_CENSUS_EVERY": "5"})
    wait_for(lambda: (job.folder / "census").exists() and
             len(list((job.folder / "census").glob("*.json"))) >= 2, "two censuses")
    assert job.end() == 0
    kept = sorted(os.listdir(job.folder / "census"))
    doc, status = census_json(job.folder)
    assert status == 0
    [one] = doc["processes"]
    assert os.path.basename(one["path"]) == kept[-1]
    assert os.path.basename(one["since"]["path"]) == kept[-2]
    before, after = (json.loads((job.folder / "census" / name).read_text()) for name in kept[-2:])
    grown = sum(g["count"] for g in one["growth"] if g["name"] == "bytearray")
    assert grown == blocks(after) - blocks(before)
    # If counting all objects would take too long, a census counts only a sample of them.
    if not before["is_sampled"] and not after["is_sampled"]:
        assert grown == 5


def test_census_of_an_ended_run_without_a_census_prints_advice(job):
    job.start("true")
    job.process.wait(timeout=PATIENCE_S)
    assert refused(run_ebb("census", job.folder),
                   f"census: the run in {job.folder} has ended and has no census; `ebb "
                   "census` takes one while a job runs, and EBB_CENSUS_EVERY=100 in the "
                   "environment of `ebb run` takes one every 100 steps")


@pytest.mark.parametrize("content", ["", "[]", "{", "{\"tensors\": 3, \"objects\": {}}",
                                     "{\"tensors\": [1, {\"shape\": \"x\"}], \"objects\": [null]}"])
def test_damaged_census_file_is_skipped(job, content):
    job.start("true")
    job.process.wait(timeout=PATIENCE_S)
    (job.folder / "census").mkdir()
    (job.folder / "census" / "0001-7-1.json").write_text(content)
    (job.folder / "census" / "0002-7-2.json").write_text(content)
    (job.folder / "census" / "nonsense-x.json").write_text("{}")
    result = run_ebb("census", job.folder)
    assert result.returncode in (0, 2) and result.stdout.startswith("process 7")


# ---- refused requests ----

def test_census_of_a_nonexistent_pid_is_refused():
    assert refused_with(run_ebb("census", "2147483646"), "census: ", "no process 2147483646")


def test_census_of_a_process_not_under_ebb_prints_one_error_line():
    assert refused(run_ebb("census", os.getpid()),
                   f"census: process {os.getpid()} does not run under ebb; run ebb attach {os.getpid()}, or start the job with `ebb run -- CMD`")


@pytest.mark.parametrize("pid", ["0", "99999999999"])
def test_census_command_refuses_an_invalid_pid(pid):
    assert refused(run_ebb("census", pid), f'census: invalid process id "{pid}"')


def test_census_command_refuses_a_folder_without_run_json(tmp_path):
    assert refused_with(run_ebb("census", tmp_path), "is not a run folder")


def test_census_command_refuses_a_missing_path(tmp_path):
    assert refused(run_ebb("census", tmp_path / "none"),
                   f"census: {tmp_path}/none: No such file or directory; give a run folder or a pid")


@pytest.mark.parametrize("content", ["", "[]", "{\"state\": 3, \"socket\": [], \"pid\": \"x\"}",
                                     "{\"state\": \"running\", \"socket\": \"marks\", \"pid\": 1}"])
def test_census_command_refuses_a_damaged_run_json(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    assert refused_with(run_ebb("census", tmp_path), "census: ")
