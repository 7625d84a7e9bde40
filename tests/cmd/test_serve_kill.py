"""Kills the server at random moments under load and tests that no accepted job is lost or run twice.
bench/serve/kill.py repeats this many more times."""

import importlib.util
import os

from commands import ROOT, binary

_spec = importlib.util.spec_from_file_location("kill", ROOT / "bench" / "serve" / "kill.py")
kill = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kill)


def test_server_killed_repeatedly_loses_no_job_and_reruns_none(open_folder):
    os.environ.pop("EBB_RUN_DIR", None)
    wrong, states, _ = kill.torture(binary(), open_folder, kills=10, seed=3, slots=3)
    assert not wrong, "\n".join(wrong)
    assert states["accepted"] > 0 and states.get("succeeded", 0) > 0
