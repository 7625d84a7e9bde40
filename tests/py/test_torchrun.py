"""Tests torchrun with two agents on this machine. The ranks of both agents run under ebb."""

import json
import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch")

EBB = os.path.abspath(os.environ.get("EBB_BINARY", "build/ebb"))

TRAINER = """
import os, sys, time
import ebb
rank, steps, mib = int(os.environ["RANK"]), int(sys.argv[1]), float(sys.argv[2])
kept = []
for step in range(1, steps + 1):
    if rank == 2:
        kept.append(bytearray(os.urandom(4096)) * int(mib * 256))
    time.sleep(0.02)
    ebb.step(step)
print("rank", rank, "finished", flush=True)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_agents(folder, *command):
    """Starts two agents with two ranks each. Returns their exit statuses and outputs."""
    (folder / "train.py").write_text(TRAINER)
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    nodes = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    nodes.append(f"--master-port={free_port()}")
    agents = []
    for number in range(2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", *nodes, f"--node-rank={number}"]
        agents.append(
            subprocess.Popen(
                [*torchrun, "--no-python", *command],
                cwd=folder,
                env=env,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    outputs = [agent.communicate(timeout=300) for agent in agents]
    return [(agent.returncode, *output) for agent, output in zip(agents, outputs)]


@pytest.fixture(scope="module")
def leaking(tmp_path_factory):
    """A job in which rank 2 leaks until the guard stops it."""
    folder = tmp_path_factory.mktemp("guarded")
    command = [sys.executable, "train.py", "3000", "1"]
    return folder, run_agents(folder, EBB, "run", "--limit", "250M", "--", *command)


def test_two_torchrun_agents_appear_as_two_nodes_of_one_job(leaking):
    folder, _ = leaking
    made = [f for f in (folder / "ebb-runs").iterdir() if not f.is_symlink()]
    assert len(made) == 1
    job = json.loads((made[0] / "job.json").read_text())
    assert (job["launcher"], job["nodes"], job["ranks"]) == ("torchrun", 2, 4)
    ranks = {}
    for name in ("node-00", "node-01"):
        run = json.loads((made[0] / name / "run.json").read_text())
        ranks[name] = sorted(r["rank"] for r in run["ranks"])
    assert ranks == {"node-00": [0, 1], "node-01": [2, 3]}


def test_torchrun_prints_why_the_guard_stopped_a_rank(leaking):
    _, ends = leaking
    assert all(status != 0 for status, _, _ in ends), ends
    assert "ebb: stopped by the guard" in ends[1][2], ends[1][2][-3000:]
    assert "250 MiB" in ends[1][2], ends[1][2][-3000:]
