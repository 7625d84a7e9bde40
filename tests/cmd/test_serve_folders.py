"""Tests the server's runs/ folder: each job gets a new folder there, and folders that the server did not create are
never removed."""

import pytest

from commands import PYTHON, wait_for
from serving import serving

OPTIONS = ("--slots", "2", "--interval", "100ms", "--grace", "5s", "--memory", "none")


@pytest.fixture
def server():
    with serving(*OPTIONS) as s:
        yield s


TAKES_NAMES = """
import json, os, pathlib, time
folder = pathlib.Path(os.environ["EBB_RUN_DIR"])
file = folder / "run.json"
while not file.exists() or not json.loads(file.read_text()).get("supervisor_pid"):
    time.sleep(0.01)
pid = json.loads(file.read_text())["supervisor_pid"]
for i in range(150):
    (folder / f".run.json.tmp.{pid}{'.' * (i > 0)}{i or ''}").symlink_to("/nowhere")
file.unlink()
file.mkdir()
(file / "not-empty").touch()
"""


def test_job_that_creates_a_folder_named_run_json_still_succeeds(server):
    job = server.wait(server.submit(PYTHON, "-c", TAKES_NAMES))
    assert job["state"] == "succeeded", job


def test_foreign_folder_among_the_run_folders_is_left_unchanged():
    with serving(*OPTIONS, "--keep", "1") as server:
        own = server.state / "runs" / "2-true"
        own.mkdir()
        (own / "run.json").write_text('{"state": "ended", "end": {"kind": "exited", "status": 7}}')
        for number in (1, 2, 3):
            job = server.wait(server.submit("true"))
            assert job["id"] == number and job["state"] == "succeeded", job
        wait_for(lambda: server.get("/jobs/2").status == 404, "job 2 to be removed")
        assert [path.name for path in own.iterdir()] == ["run.json"]
        assert not list((server.state / "runs").glob("2-true-*"))


def test_server_creates_a_new_job_database_if_the_old_file_was_moved(server, tmp_path):
    server.wait(server.submit("true"))
    go = tmp_path / "go"
    runs = server.submit("sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done", name="runs")
    assert server.wait(runs, "running")["state"] == "running"
    server.stop()
    for path in server.state.glob("jobs.db*"):
        path.rename(tmp_path / path.name)
    server.start()
    health = server.get("/health").json()
    assert health["status"] == "degraded" and "not in the job store" in health["trouble"][0], health
    for _ in range(4):
        number = server.submit("sh", "-c", "echo new", name="true")
        job = server.wait(number)
        assert number > runs and job["state"] == "succeeded", job
        assert "new" in server.get(f"/jobs/{number}/log").body.decode()
    server.stop()
    for path in server.state.glob("jobs.db*"):
        path.unlink()
    for path in tmp_path.glob("jobs.db*"):
        path.rename(server.state / path.name)
    server.start()
    assert server.job(runs)["state"] == "running"
    go.touch()
    assert server.wait(runs)["state"] == "succeeded"
    assert server.submit("true") > number
