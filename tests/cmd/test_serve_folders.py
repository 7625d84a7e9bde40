"""Whose a folder in runs/ is: jobs get their own, whatever else is there, and nothing else is removed."""

import pytest

from commands import PYTHON
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


def test_job_that_blocks_run_json_is_not_lost(server):
    job = server.wait(server.submit(PYTHON, "-c", TAKES_NAMES))
    assert job["state"] == "succeeded", job
