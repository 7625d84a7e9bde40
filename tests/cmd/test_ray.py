"""Tests `ebb run -- ray start --head --block` with a real Ray: each worker is recorded, and the leaking worker is
named."""

import json
import os
import pathlib
import signal
import socket
import subprocess

import pytest

from commands import IS_SANITIZED, ROOT, binary, environment, run_ebb, wait_for

CLUSTER = pathlib.Path(os.environ.get("EBB_CLUSTER", ROOT / "build" / "cluster"))
SECONDS = 20


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The run folder of a Ray node on which three actors ran."""
    if IS_SANITIZED or not (CLUSTER / "bin" / "ray").exists():
        pytest.skip("Ray is not installed (scripts/setup.sh cluster)")
    folder = tmp_path_factory.mktemp("ray")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {"PATH": f"{CLUSTER}/bin:{os.environ['PATH']}", "RAY_USAGE_STATS_ENABLED": "0",
           "RAY_ADDRESS": f"127.0.0.1:{port}"}
    command = ["ray", "start", "--head", "--block", f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=3",
               "--include-dashboard=false", "--object-store-memory=80000000", f"--temp-dir=/tmp/ray-ebb-{os.getpid()}"]
    with open(folder / "out", "wb") as out:
        ebb = subprocess.Popen([binary(), "run", "--run-dir", folder / "run", "--", *command], cwd=folder,
                               env=environment({**env, "RAY_ADDRESS": None}), stdin=subprocess.DEVNULL, stdout=out,
                               stderr=out)
    try:
        wait_for(lambda: "Ray runtime started" in (folder / "out").read_text() or ebb.poll() is not None, "Ray")
        assert ebb.poll() is None, (folder / "out").read_text()
        subprocess.run([CLUSTER / "bin" / "python", ROOT / "tests" / "cmd" / "ray_actors.py", str(SECONDS)], check=True,
                       env=environment(env), timeout=180, cwd=folder)
    finally:
        ebb.send_signal(signal.SIGINT)
        ebb.wait(60)
        subprocess.run(["rm", "-rf", f"/tmp/ray-ebb-{os.getpid()}"], check=False)
    return folder / "run"


def test_each_ray_worker_is_recorded_with_its_actor_name(recorded):
    processes = json.loads(run_ebb("verdict", "--json", recorded).stdout)["processes"]
    actors = [p for p in processes if p["role"] == "ray worker" and p["name"] in ("ray::Hoarder", "ray::Steady")]
    assert sorted(p["name"] for p in actors) == ["ray::Hoarder", "ray::Steady", "ray::Steady"]
    roles = {p["name"]: p["role"] for p in processes}
    assert roles["raylet"] == "other" and roles["ray"] == "launcher"


def test_leaking_ray_actor_is_reported_with_the_leaking_line(recorded):
    shown = run_ebb("show", recorded).stdout
    assert "ray_actors.py:17 in Hoarder.grow()" in shown, shown
    processes = json.loads(run_ebb("verdict", "--json", recorded).stdout)["processes"]

    def growth(process):
        floor = process["floor_bytes"]
        return floor["last"] - floor["first"] if floor else 0
    assert max(processes, key=growth)["name"] == "ray::Hoarder"
