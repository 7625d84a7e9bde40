"""Tests `ebb serve --executor slurm` while accesses to the shared folder that contains the run folders hang."""

import concurrent.futures
import contextlib
import time

import pytest

from commands import run_ebb, wait_for
from hanging import Hanging
from serving import ENDED, serving
from slurm_standin import make_slurm


@pytest.fixture
def slurm(tmp_path):
    return make_slurm(tmp_path / "slurm")


@pytest.fixture
def hanging(tmp_path):
    made = Hanging(tmp_path / "hangs")
    yield made
    made.end()


@contextlib.contextmanager
def serving_shared(slurm, hanging, tmp_path, *arguments):
    """A server whose run folders are in tmp_path/runs."""
    with serving("--executor", "slurm", "--slots", 10, "--runs-dir", tmp_path / "runs", *arguments,
                 env={**slurm.environment(), **hanging.environment()}) as server:
        try:
            yield server
        finally:
            hanging.end()


def waiting(tmp_path, name):
    """Returns a command that appends a line to the file NAME.ran and then waits until the file NAME exists."""
    return ["sh", "-c", f"echo x >>{tmp_path}/{name}.ran; until test -e {tmp_path}/{name}; do sleep 0.05; done"]


def answers(server, path="/jobs"):
    begun = time.monotonic()
    assert server.get(path).status == 200
    assert time.monotonic() - begun < 5


def test_hanging_run_folder_does_not_stall_server_or_other_jobs(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        one, two = (server.submit(*waiting(tmp_path, name), name=name) for name in ("one", "two"))
        for job in (one, two):
            assert server.wait(job, "running")["state"] == "running"
        hanging.begin(tmp_path / "runs" / f"{one}-one", server.process.pid)
        silent = wait_for(lambda: "has been unreachable since" in str(server.job(one)["reason"]) and server.job(one),
                          "the report of the folder")
        assert silent["state"] == "running"
        (tmp_path / "one").touch()  # The job ends while the server cannot read its run folder.
        (tmp_path / "two").touch()
        assert server.wait(two)["state"] == "succeeded"
        assert server.wait(server.submit("true"))["state"] == "succeeded"
        answers(server)
        assert server.job(one)["state"] == "running"
        hanging.end()
        ended = server.wait(one)
        assert ended["state"] == "succeeded" and not ended["reason"]
        assert (tmp_path / "one.ran").read_text() == "x\n" and len(slurm.jobs()) == 3


def test_job_purged_from_slurm_is_not_lost_while_the_run_folder_hangs(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        job = server.submit(*waiting(tmp_path, "go"), name="x")
        server.wait(job, "running")
        hanging.begin(tmp_path / "runs", server.process.pid)
        (tmp_path / "go").touch()
        wait_for(lambda: slurm.jobs()[0]["state"] == "COMPLETED", "the end of the job")
        slurm.purge()
        wait_for(lambda: "has been unreachable" in str(server.job(job)["reason"]), "the report of the folder")
        assert server.job(job)["state"] == "running"
        hanging.end()
        assert server.wait(job)["state"] == "succeeded"


def test_each_job_submitted_while_the_runs_folder_hangs_is_run_once(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        hanging.begin(tmp_path / "runs", server.process.pid)
        jobs = [server.submit(*waiting(tmp_path, f"j{i}"), name=f"j{i}") for i in range(12)]
        for i in range(12):
            (tmp_path / f"j{i}").touch()
        wait_for(lambda: "is unreachable" in " ".join(server.get("/health").json()["trouble"]), "the trouble")
        answers(server)
        hanging.end()
        assert [server.wait(job)["state"] for job in jobs] == ["succeeded"] * 12
        assert len(slurm.jobs()) == 12
        assert all((tmp_path / f"j{i}.ran").read_text() == "x\n" for i in range(12))


def test_server_can_restart_while_a_run_folder_hangs(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        job = server.submit(*waiting(tmp_path, "go"), name="x")
        server.wait(job, "running")
        folder = tmp_path / "runs" / f"{job}-x"
        hanging.begin(folder, server.process.pid)
        wait_for(lambda: "has been unreachable" in str(server.job(job)["reason"]), "the report of the folder")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 10
        hanging.begin(folder)
        server.start()
        wait_for(lambda: "has been unreachable" in str(server.job(job)["reason"]), "the report of the folder")
        assert server.job(job)["state"] == "running"
        hanging.end()
        (tmp_path / "go").touch()
        assert server.wait(job)["state"] == "succeeded"
        assert (tmp_path / "go.ran").read_text() == "x\n" and len(slurm.jobs()) == 1


def test_server_restarts_while_the_parent_of_all_run_folders_hangs(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        job = server.submit(*waiting(tmp_path, "go"), name="x")
        server.wait(job, "running")
        assert server.stop() == 0
        hanging.begin(tmp_path / "runs")
        server.start()
        assert f"the folder {tmp_path}/runs is unreachable" in server.said()
        trouble = server.get("/health").json()["trouble"]
        assert f"cannot start jobs: the folder {tmp_path}/runs is unreachable" in trouble
        wait_for(lambda: "has been unreachable" in str(server.job(job)["reason"]), "the report of the folder")
        assert server.job(job)["state"] == "running"
        new = server.submit("true")
        assert "is unreachable" in server.job(new)["waits_for"]
        (tmp_path / "go").touch()
        hanging.end()
        assert [server.wait(n)["state"] for n in (job, new)] == ["succeeded"] * 2
        assert server.get("/health").json()["trouble"] == []
        assert (tmp_path / "go.ran").read_text() == "x\n" and len(slurm.jobs()) == 2


def test_first_server_start_is_refused_while_the_runs_folder_hangs(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        server.stop()
        (server.state / "last-id").unlink()
        hanging.begin(tmp_path / "runs")
        refused = run_ebb(*server.arguments, env=server.env)
        assert refused.returncode == 2 and "start the server again once the folder is reachable" in refused.stderr
        hanging.end()
        server.start()


def test_hanging_working_folder_does_not_delay_other_requests(slurm, hanging, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    with serving_shared(slurm, hanging, tmp_path) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = server.wait(server.submit("true", cwd=str(work)))["id"]
        hanging.begin(work, server.process.pid)
        request = {"command": ["true"], "cwd": str(work)}
        submission = pool.submit(server.post, "/jobs", request)
        while not submission.done():
            answers(server)
        assert submission.result().status == 503
        assert submission.result().message() == \
            f'cwd: the folder "{work}" is unreachable; submit the job again later'
        assert "is unreachable" in server.post(f"/jobs/{done}/rerun").message()
        assert server.submit("true", cwd="/") == done + 1, "a refused job has no id"
        hanging.end()
        assert server.wait(server.submit("true", cwd=str(work)))["state"] == "succeeded"


def test_job_with_a_hanging_run_folder_can_be_cancelled(slurm, hanging, tmp_path):
    with serving_shared(slurm, hanging, tmp_path) as server:
        job = server.submit("sleep", "600", name="x")
        server.wait(job, "running")
        hanging.begin(tmp_path / "runs" / f"{job}-x", server.process.pid)
        wait_for(lambda: "has been unreachable" in str(server.job(job)["reason"]), "the report of the folder")
        server.post(f"/jobs/{job}/cancel", {"reason": "enough", "grace_s": 1})
        wait_for(lambda: slurm.jobs()[0]["state"] not in ("PENDING", "RUNNING"), "scancel")
        hanging.end()
        ended = server.wait(job)
        assert ended["state"] == "cancelled" and ended["reason"] == "enough"


def test_request_for_a_file_in_a_hanging_run_folder_is_refused(slurm, hanging, tmp_path):
    paths = ["log", "log?tail=100", "log?offset=0", "run", "events", "verdict", "samples"]
    with serving_shared(slurm, hanging, tmp_path) as server, \
            concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        job = server.submit("echo", "out", name="x")
        assert server.wait(job)["state"] in ENDED
        hanging.begin(tmp_path / "runs" / f"{job}-x", server.process.pid)
        # All requests are sent at the same time, because each takes several seconds to time out.
        for refused in pool.map(lambda path: server.get(f"/jobs/{job}/{path}"), paths):
            assert refused.status == 503 and "is unreachable" in refused.message()
        answers(server)
        hanging.end()
        assert [server.get(f"/jobs/{job}/{path}").status for path in paths] == [200] * len(paths)
