"""`ebb census`: what processes of a run count in themselves, and errors where there is nothing."""

import json
import os
import socket
import subprocess

import pytest

from commands import (PATIENCE_S, PYTHON, ROOT, binary, environment, refused, refused_with, run_ebb,
                      wait_for)

# Steps until the file named last is there; --idle: none but the first.
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

# Listens as a process with the package does, and does what it is told when it is asked.
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
    """Starts jobs under ebb; they end with the test."""
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
    """How many the job keeps, by its count."""
    return sum(o["count"] for o in census["objects"] if o["type"] == "bytearray")


def census_json(*arguments):
    result = run_ebb("census", *arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout), result.returncode


def test_a_job_that_steps_is_counted_at_the_end_of_a_step_and_growth_is_shown(job):
    job.start(PYTHON, "-c", JOB, job.stop).wait_for_listeners()
    first, status = census_json(job.folder)
    [one] = first["processes"]
    assert status == 0 and one["error"] is None and one["census"]["cost_s"] > 0
    assert one["since"] is None and one["growth"] == []
    assert os.path.dirname(one["path"]) == str(job.folder / "census")

    def by_step():  # a job that does not get its turn for two seconds is counted beside it
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

    def told():
        text = run_ebb("census", job.folder, "--top", "3").stdout
        assert f"process {job.facts()['pid']}, step " in text
        is_whole = "where the step had ended, at a cost of" in text and "__main__.kept[" in text
        return text if is_whole else None  # who keeps what is left out where the time is up

    text = wait_for(told, "a census at the end of a step, in words")
    assert "torch is not imported there" in text and "since the census at step" in text
    assert job.end() == 0


def test_a_job_between_steps_is_counted_beside_what_it_does(job):
    job.start(PYTHON, "-c", JOB, "--idle", job.stop).wait_for_listeners()

    def by_thread():  # the first may come before the only step has ended
        doc, status = census_json(job.facts()["pid"])
        [one] = doc["processes"]
        assert (status, doc["run"]) == (0, str(job.folder))
        return one["census"] if one["census"]["at"] == "thread" else None

    assert wait_for(by_thread, "a census by the thread")["step"] == 1


def test_every_rank_has_its_table_and_a_launcher_leads_to_them(job):
    job.start(PYTHON, "-c", RANKS, "-c", JOB, job.stop).wait_for_listeners(2)
    doc, status = census_json(job.process.pid)  # ebb run itself
    assert status == 0
    assert sorted(p["census"]["rank"] for p in doc["processes"]) == [0, 1]
    text = run_ebb("census", job.folder).stdout
    assert "(rank 0)" in text and "(rank 1)" in text
    rank = max(job.listeners())
    doc, _ = census_json(rank)
    assert [p["pid"] for p in doc["processes"]] == [rank]


def test_a_run_in_which_no_process_takes_requests_gets_one_sentence(job):
    job.start("sleep", "1000")
    try:
        for operand in (job.folder, job.facts()["pid"]):
            assert refused_with(run_ebb("census", operand), "no process takes requests yet")
    finally:
        job.process.terminate()


def test_who_does_not_answer_in_time_is_named(job, tmp_path):
    job.start(PYTHON, "-c", DEAF, "wait", tmp_path / "up", job.stop)
    wait_for((tmp_path / "up").exists, "the socket")
    doc, status = census_json(job.folder, "--timeout", "200ms")
    assert status == 2
    assert [p["pid"] for p in doc["processes"]] == [job.facts()["pid"]]
    assert "no answer in time" in doc["processes"][0]["error"]
    assert not [f for f in os.listdir(os.path.dirname(job.facts()["socket"])) if "census" in f]


def test_who_ends_before_the_answer_is_not_waited_for(job, tmp_path):
    job.start(PYTHON, "-c", DEAF, "die", tmp_path / "up")
    wait_for((tmp_path / "up").exists, "the socket")
    doc, status = census_json(job.folder, "--timeout", "10m")
    assert status == 2 and "it ended before it answered" in doc["processes"][0]["error"]


def test_a_socket_that_somebody_has_left_is_passed_over(job):
    job.start(PYTHON, "-c", JOB, job.stop).wait_for_listeners()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(job.facts()["socket"] + ".999999999")
    doc, status = census_json(job.folder)
    assert status == 0
    assert [p["pid"] for p in doc["processes"]] == [job.facts()["pid"]]


# ---- a run that has ended ----

def test_of_a_run_that_has_ended_the_last_kept_are_shown(job):
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
    if not before["is_sampled"] and not after["is_sampled"]:  # a slow machine's are estimates
        assert grown == 5


def test_of_one_that_kept_none_it_is_said_how_to_get_one(job):
    job.start("true")
    job.process.wait(timeout=PATIENCE_S)
    assert refused(run_ebb("census", job.folder),
                   f"census: the run in {job.folder} has ended and kept no census; "
                   "EBB_CENSUS_EVERY=100 before `ebb run` keeps one every 100 steps, and `ebb "
                   "census` takes one while it runs")


@pytest.mark.parametrize("content", ["", "[]", "{", "{\"tensors\": 3, \"objects\": {}}",
                                     "{\"tensors\": [1, {\"shape\": \"x\"}], \"objects\": [null]}"])
def test_a_census_that_is_damaged_does_no_harm(job, content):
    job.start("true")
    job.process.wait(timeout=PATIENCE_S)
    (job.folder / "census").mkdir()
    (job.folder / "census" / "0001-7-1.json").write_text(content)
    (job.folder / "census" / "0002-7-2.json").write_text(content)
    (job.folder / "census" / "nonsense-x.json").write_text("{}")
    result = run_ebb("census", job.folder)
    assert result.returncode in (0, 2) and result.stdout.startswith("process 7")


# ---- what cannot be done ----

def test_there_must_be_such_a_process():
    assert refused_with(run_ebb("census", "2147483646"), "census: ", "no process 2147483646")


def test_a_process_that_does_not_run_under_ebb_gets_one_sentence():
    assert refused(run_ebb("census", os.getpid()),
                   f"census: process {os.getpid()} does not run under ebb; `ebb run -- CMD` starts "
                   "a job under it")


@pytest.mark.parametrize("pid", ["0", "99999999999"])
def test_a_number_that_cannot_be_a_pid_is_refused(pid):
    assert refused(run_ebb("census", pid), f'census: invalid process id "{pid}"')


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    assert refused_with(run_ebb("census", tmp_path), "is not a run folder")


def test_what_is_not_there_is_refused(tmp_path):
    assert refused(run_ebb("census", tmp_path / "none"),
                   f"census: {tmp_path}/none: No such file or directory; give a run folder or a pid")


@pytest.mark.parametrize("content", ["", "[]", "{\"state\": 3, \"socket\": [], \"pid\": \"x\"}",
                                     "{\"state\": \"running\", \"socket\": \"marks\", \"pid\": 1}"])
def test_a_run_json_that_is_damaged_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    assert refused_with(run_ebb("census", tmp_path), "census: ")
