"""Tests jobs on three and four nodes, a killed slurmd, and a requeued job. Takes minutes."""

import json
import os
import pathlib
import sys

import pytest

from cluster import SlurmCluster, free_ports
from ranks import job_folder, node, rank_verdicts

PY_TESTS = pathlib.Path(__file__).resolve().parents[1] / "py"

# A job that trains with the Hugging Face Trainer and gloo; rank 0 writes the final weights.
DISTRIBUTED = """
import os, sys, time
rank, size = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
os.environ.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=os.environ["SLURM_LOCALID"], MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=sys.argv[3])
sys.path.insert(0, sys.argv[1])
import torch
from transformers import TrainerCallback
from trainers import hf_trainer, weights

class Slow(TrainerCallback):
    def on_step_end(self, *_, **__):
        time.sleep(float(sys.argv[4]))

trainer = hf_trainer(sys.argv[2], 400, [Slow()], ddp_backend="gloo")
trainer.train()
if rank == "0":
    torch.save(weights(trainer), sys.argv[2] + ".weights")
    print("trained", trainer.state.global_step, "steps", flush=True)
"""


@pytest.fixture(scope="module")
def cluster():
    with SlurmCluster(nodes=4) as made:
        yield made


@pytest.mark.parametrize("nodes", [3, 4])
def test_leaking_rank_is_named_within_one_and_a_quarter_epochs(cluster, ebb, folder, nodes):
    result = cluster.srun(f"-N{nodes}", "--ntasks-per-node=2", ebb, "run", "--", sys.executable, "train.py", 500, 4, 0.5,
                          400, cwd=folder)
    assert result.returncode == 0, result.stderr
    made = job_folder(cluster, folder)
    assert len(list(made.glob("node-*"))) == nodes
    verdicts = rank_verdicts(made)
    assert verdicts.pop(4) == "leaking", verdicts
    assert "leaking" not in verdicts.values(), verdicts
    assert f"leaking in rank 4 of {2 * nodes}" in result.stderr


def test_slurm_step_continues_when_a_slurmd_is_killed(cluster, ebb, folder):
    step = cluster.start_srun("-N2", "-w", "n1,n2", "--ntasks-per-node=1", ebb, "run", "--", sys.executable, "train.py", 300,
                              -1, 0, cwd=folder)
    cluster.wait_for(lambda: len(list(folder.glob("ebb-runs/[0-9]*/node-*/run.json"))) == 2, 30, "both nodes")
    cluster.kill_node(2)
    try:
        out, err = step.communicate(timeout=120)
    finally:
        cluster.start_node(2)
        cluster.wait_for(cluster.is_up, 120, "the node")
    assert out.count("finished") == 2, err
    made = job_folder(cluster, folder)
    assert all(node(made, name)["end"]["status"] == 0 for name in ("node-00", "node-01"))


def torch_python():
    python = pathlib.Path(os.environ.get("EBB_VENV") or "build/venv") / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no virtual environment with torch: {python}")
    return python.absolute()


def test_requeued_job_reaches_the_weights_of_an_uninterrupted_job(cluster, ebb, folder):
    torch = torch_python()
    (folder / "distributed.py").write_text(DISTRIBUTED)
    port = free_ports(2)

    def command(output, main_port, pause):
        return [str(torch), "-W", "ignore", "distributed.py", str(PY_TESTS), output, str(main_port), str(pause)]

    whole = cluster.srun("-N2", "--ntasks-per-node=1", *command("whole", port, 0), cwd=folder, timeout=300)
    assert "trained 100 steps" in whole.stdout, whole.stderr
    srun = " ".join(["srun", ebb, "run", "--requeue", "--", *command("parts", port + 1, 0.2)])
    job = cluster.sbatch(f"#!/bin/sh\nexec {srun}\n", "-N2", "--ntasks-per-node=1", "--requeue", "--open-mode=append",
                         "--signal=B:USR1@10", "-o", "out.txt", cwd=folder)
    made = folder / "ebb-runs" / f"{job}.0"
    cluster.wait_for(lambda: (made / "node-00" / "heartbeat").exists() and
                     json.loads((made / "node-00" / "heartbeat").read_text() or "{}").get("step", 0) >= 20, 120, "20 steps")
    # With the option --signal of sbatch, Slurm sends this signal shortly before the time limit.
    cluster.command("scancel", "--batch", "--signal=USR1", job)
    # By default, Slurm restarts a requeued job only after two minutes. A restart within the second in which the job was
    # killed would be refused by slurmd, and Slurm would mark the job as failed.
    cluster.wait_for_state(job, "PENDING", 60)
    cluster.command("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    cluster.wait_for_state(job, "COMPLETED", 300)
    text = (folder / "out.txt").read_text()
    assert "trained 100 steps" in text, text
    assert "requeuing job" in text and list((folder / "parts").glob("checkpoint-*")), text
    assert text.count("ebb  returned to Slurm's queue: the time limit is near") == 1, text
    assert "requeued" in [node(made, name)["end"]["cause_kind"] for name in ("node-00", "node-01")]
    again = node(made.with_name(f"{job}.0.r1"), "node-00")
    assert again["segment"] == 1 and again["segments"][0]["first_step"] > 20, again["segments"]
    compare = ("import sys, torch; a, b = (torch.load(p) for p in sys.argv[1:]); "
               "sys.exit(not (a.keys() == b.keys() and all(a[k].equal(b[k]) for k in a)))")
    equal = cluster.command(torch, "-c", compare, "whole.weights", "parts.weights", cwd=folder)
    assert equal.returncode == 0, equal.stderr + text
