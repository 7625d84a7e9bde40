"""Tests unusual run folders of a job: not shared by the nodes, not writable, or used by two steps."""

import json
import sys

from ranks import job_folder, node

TWO_BY_TWO = ("-N2", "--ntasks-per-node=2")


def test_each_node_records_its_own_ranks_without_a_shared_folder(cluster, ebb, folder):
    script = f"mkdir -p $SLURMD_NODENAME; cd $SLURMD_NODENAME && exec {ebb} run -- {sys.executable} ../train.py 50 -1 0"
    result = cluster.srun(*TWO_BY_TWO, "sh", "-c", script, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("share this folder and each records its own ranks") == 1, result.stderr
    for place, name in (("n1", "node-00"), ("n2", "node-01")):
        made = job_folder(cluster, folder / place)
        assert [f.name for f in made.glob("node-*")] == [name]
        assert len(node(made, name)["ranks"]) == 2


def test_ranks_run_if_the_job_folder_cannot_be_written(cluster, ebb, folder):
    (folder / "ebb-runs").write_text("a file is in the way")
    result = cluster.srun(*TWO_BY_TWO, ebb, "run", "--", sys.executable, "train.py", 20, -1, 0, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("finished") == 4
    sentences = [line for line in result.stderr.splitlines() if "its ranks run without a recording" in line]
    assert len(sentences) == 2, result.stderr
    assert (folder / "ebb-runs").read_text() == "a file is in the way"


def test_slurm_steps_of_one_job_have_separate_run_folders(cluster, ebb, folder):
    step = f"srun --exact -N2 -n2 {ebb} run -q -- {sys.executable} train.py 30 -1 0"
    job = cluster.sbatch(f"#!/bin/sh\n{step} &\n{step} &\nwait\n", "-N2", "--ntasks-per-node=2", cwd=folder)
    cluster.wait_for_state(job, "COMPLETED", 60)
    for name in (f"{job}.0", f"{job}.1"):
        for part in ("node-00", "node-01"):
            run = node(folder / "ebb-runs" / name, part)
            assert [r["status"] for r in run["ranks"]] == [0], run


def test_rank_that_starts_late_is_recorded_with_its_node(cluster, ebb, folder):
    script = ("[ $SLURM_PROCID = 0 ] || while [ ! -e ebb-runs/latest/node-00/run.json ]; do sleep 0.1; done; "
              f"exec {ebb} run -q -- {sys.executable} train.py 60 -1 0")
    result = cluster.srun(*TWO_BY_TWO, "sh", "-c", script, cwd=folder)
    assert result.returncode == 0, result.stderr
    made = job_folder(cluster, folder)
    ranks = {name: sorted(r["rank"] for r in node(made, name)["ranks"]) for name in ("node-00", "node-01")}
    assert ranks == {"node-00": [0, 1], "node-01": [2, 3]}
    assert json.loads((made / "node-01" / "heartbeat").read_text())["state"] == "ended"


def test_restart_option_is_refused_for_jobs_with_several_ranks(cluster, ebb, folder):
    result = cluster.srun("-N1", "-n2", ebb, "run", "--restart", "--", "true", cwd=folder)
    assert result.returncode == 125
    assert ("run: --restart requires a single ebb run that starts all ranks, "
            "but this ebb run starts only 1 of the 2 ranks"
            in result.stderr)
