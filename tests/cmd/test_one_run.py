"""Tests that baseline, growth, rate and peak of a job are the same in the summary, `ebb verdict`, run.json, the report
and the server's API."""

import json
import pathlib
import re
import subprocess

import pytest

from commands import PATIENCE_S, PYTHON, binary, environment, run_ebb
from serving import serving

MIB = 1 << 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE = r"([+-]?[\d.]+) (B|KiB|MiB|GiB)"

# A job that reaches its peak memory before the first step, and then leaks 2 MiB/step.
JOB = """
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def mark(text):
    s.sendto(text.encode(), os.environ["EBB_SOCKET"])
peak = bytearray(os.urandom(1) * (200 << 20))
time.sleep(0.5)
del peak
mark("KIND=begin\\nSTEPS_PER_EPOCH=10")
kept = []
for step in range(1, 61):
    kept.append(bytearray(os.urandom(1) * (2 << 20)))
    time.sleep(0.06)
    mark(f"KIND=step\\nSTEP={step}")
    if step % 10 == 0:
        mark(f"KIND=epoch\\nSTEP={step}")
"""


def sizes(text):
    """Returns all sizes that occur in TEXT, in bytes."""
    return [float(number) * UNITS[unit] for number, unit in re.findall(SIZE, text)]


def shown(bytes_):
    """Returns a value that equals BYTES_ rounded to three significant digits, as ebb prints sizes."""
    return pytest.approx(bytes_, rel=0.006)


def check_verdict(verdict, run):
    """Checks that a verdict has the same values as run.json."""
    tree, said = run["tree"], verdict["tree"]
    assert tree["floor_bytes"] == said["floor_bytes"]
    assert tree["growth_bytes"] == said["floor_bytes"]["last"] - said["floor_bytes"]["first"] > 50 * MIB
    assert tree["rate_bytes_per_min"] == said["rate_bytes_per_min"]["value"] > 0
    assert tree["peak_bytes"] == said["peak_bytes"] >= 200 * MIB


def check_run(folder):
    """Checks that every command prints the same values for the run in FOLDER; returns run.json."""
    run = json.loads((folder / "run.json").read_text())
    tree = run["tree"]
    check_verdict(run["verdict"], run)
    check_verdict(json.loads(run_ebb("verdict", folder, "--json").stdout), run)
    report = json.loads(run_ebb("report", folder, "--json").stdout)
    check_verdict(report["verdict"], run)
    page = run_ebb("report", folder, "-o", "-").stdout
    facts = dict(re.findall("<dt>([^<]*)<dd>(.*?)</div>", page))
    assert sizes(facts["baseline, from start to end"]) == [shown(tree["floor_bytes"][k]) for k in ("first", "last")]
    assert sizes(facts["growth per minute"])[0] == shown(tree["rate_bytes_per_min"])
    assert sizes(facts["peak"]) == [shown(tree["peak_bytes"])]
    own = {(p["pid"], p["start_ticks"]): p for p in report["data"]["processes"]}
    for process in run["processes"]:
        assert own[process["pid"], process["start_ticks"]]["peak_bytes"] == process["peak_bytes"]
    return run


def test_every_command_shows_the_same_baseline_growth_and_peak(tmp_path):
    result = subprocess.run(
        [binary(), "run", "--interval", "50ms", "--run-dir", str(tmp_path / "run"), "--", PYTHON, "-c", JOB],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    tree = check_run(tmp_path / "run")["tree"]
    text = run_ebb("show", tmp_path / "run").stdout
    summary = dict(re.findall(r"^(\w+) +(.*(?:\n +.*)*)", text, re.M))
    first, last, growth, rate = sizes(summary["baseline"])
    assert (first, last) == (shown(tree["floor_bytes"]["first"]), shown(tree["floor_bytes"]["last"]))
    assert (growth, rate) == (shown(tree["growth_bytes"]), shown(tree["rate_bytes_per_min"]))
    assert sizes(re.search("peak [^,]*", summary["memory"]).group()) == [shown(tree["peak_bytes"])]


def test_api_shows_the_same_values_as_the_run_folder_of_a_job():
    with serving("--interval", "50ms") as server:
        number = server.submit(PYTHON, "-c", JOB)
        job = server.wait(number)
        assert job["state"] == "succeeded", job
        answer = server.get(f"/jobs/{number}/run")
        run = check_run(pathlib.Path(job["run_dir"]))
        assert answer.json() == run
        check_verdict(server.get(f"/jobs/{number}/verdict").json(), run)
        assert job["memory"]["peak_bytes"] == run["tree"]["peak_bytes"]
        assert job["verdict"]["rate_bytes_per_min"] == run["tree"]["rate_bytes_per_min"]
