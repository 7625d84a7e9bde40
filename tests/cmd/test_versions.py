"""Tests that the current program reads files written by released versions; each file format has a test."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

VERSIONS = sorted((pathlib.Path(__file__).resolve().parents[1] / "data" / "versions").glob("[0-9]*"))
every_version = pytest.mark.parametrize("kept", VERSIONS, ids=lambda path: path.name)


@pytest.fixture
def run_folder(kept, tmp_path):
    """Returns a copy of the run folder, so that nothing is written next to the stored files."""
    return shutil.copytree(kept / "run", tmp_path / "run")


def test_current_ebb_version_has_stored_test_data(ebb):
    version = json.loads(ebb("version", "--json").stdout)["version"]
    assert version in [path.name for path in VERSIONS]


def test_newest_stored_run_has_every_file_type_that_a_run_writes(ebb, tmp_path):
    result = ebb("run", "--run-dir", str(tmp_path / "run"), "--", "python3", "-c", "b = bytearray(9_000_000)")
    assert result.returncode == 0
    written, stored = ({path.suffix for path in folder.iterdir()} - {".txt"}  # log.txt is plain text
                       for folder in (tmp_path / "run", VERSIONS[-1] / "run"))
    assert written and written <= stored


def test_newest_stored_run_has_current_file_format_versions(ebb, tmp_path):
    """Compares the first ten bytes of each recording and heap history: the name of the format and its major version."""
    result = ebb("run", "--run-dir", str(tmp_path / "run"), "--", "python3", "-c", "b = bytearray(9_000_000)")
    assert result.returncode == 0
    written, stored = ({path.read_bytes()[:10] for path in folder.iterdir() if path.suffix in (".ebb", ".ebbheap")}
                       for folder in (tmp_path / "run", VERSIONS[-1] / "run"))
    assert len(written) == 2 and written == stored


@every_version
def test_recording_of_each_released_version_is_exported(ebb, run_folder):
    result = ebb("export", str(run_folder), "--jsonl")
    assert (result.returncode, result.stderr) == (0, "")
    steps = [record for record in map(json.loads, result.stdout.splitlines()) if "step" in str(record)]
    assert steps and "59" in result.stdout
    result = ebb("export", str(run_folder), "--csv")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) > 5


@every_version
def test_recording_of_each_released_version_gets_a_verdict(ebb, run_folder):
    result = ebb("verdict", "--json", str(run_folder))
    assert result.returncode in (0, 1, 3) and result.stderr == ""
    assert json.loads(result.stdout)["tree"]["rate_bytes_per_step"]["value"] > 200_000


@every_version
def test_heap_history_of_each_released_version_has_leaking_line(ebb, run_folder):
    result = ebb("heap", str(run_folder))
    assert (result.returncode, result.stderr) == (0, "")
    assert "train.py:4" in result.stdout


@every_version
def test_run_json_of_each_released_version_is_read(ebb, run_folder):
    for command in (["report", "--text"], ["diagnose"]):
        result = ebb(*command, str(run_folder))
        assert (result.returncode, result.stderr) == (0, ""), command
        assert "train.py" in result.stdout


@every_version
def test_job_store_of_each_released_version_is_opened(kept, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    shutil.copy(kept / "jobs.db", state)
    (state / "jobs.db").chmod(0o600)
    server = subprocess.Popen([os.environ["EBB_BINARY"], "serve", "--listen", "none",
                               "--state-dir", state], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=(tmp_path / "server.log").open("wb"))
    try:
        deadline = time.monotonic() + 60
        while True:
            shown = subprocess.run([os.environ["EBB_BINARY"], "jobs", "--all", "--json"], check=False,
                                   capture_output=True, text=True,
                                   env={**os.environ, "EBB_STATE_DIR": str(state)})
            if shown.returncode == 0:
                break
            assert server.poll() is None and time.monotonic() < deadline, (
                shown.stderr + (tmp_path / "server.log").read_text())
            time.sleep(0.1)
        jobs = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [(job["id"], job["name"], job["state"]) for job in jobs] == [(1, "kept", "succeeded")]
    finally:
        server.terminate()
        server.wait(60)
