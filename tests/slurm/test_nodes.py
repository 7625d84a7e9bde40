"""Tests `srun ebb run` on two nodes with two ranks each."""

import json
import os
import re
import signal
import sys

from ranks import job_folder, kill_supervisor, node, parent_of, rank_verdicts

TWO_BY_TWO = ("-N2", "--ntasks-per-node=2")


def lines(text):
    """Returns the sorted output lines of a step, without the parts that differ between identical steps."""
    text = re.sub(r"StepId=[0-9.]+", "StepId=N", text)
    return sorted(line for line in text.splitlines() if not line.startswith("srun: job "))


def test_run_on_two_nodes_is_recorded_with_its_leaking_rank(cluster, ebb, folder):
    result = cluster.srun(*TWO_BY_TWO, ebb, "run", "--", sys.executable, "train.py", 240, 3, 2, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert lines(result.stdout) == [f"rank {n} finished" for n in range(4)]
    made = job_folder(cluster, folder)
    job = json.loads((made / "job.json").read_text())
    assert (job["nodes"], job["ranks"], job["launcher"]) == (2, 4, "slurm")
    assert made.name == f"{job['job_id']}.{job['step_id']}"
    assert [f.name for f in sorted(made.glob("node-*"))] == ["node-00", "node-01"]
    for name, ranks in (("node-00", [0, 1]), ("node-01", [2, 3])):
        run = node(made, name)
        assert run["state"] == "ended" and run["end"]["status"] == 0, run["end"]
        assert sorted(r["rank"] for r in run["ranks"]) == ranks
        assert all(r["state"] == "ended" and r["status"] == 0 for r in run["ranks"])
        assert run["marks"]["steps"] == 480 and (made / name / "trace.ebb").stat().st_size > 0
        assert len(run["heap"]["processes"]) == 2, "one heap profile per rank"
    verdicts = rank_verdicts(made)
    assert verdicts.pop(3) == "leaking"
    assert "leaking" not in verdicts.values(), verdicts
    assert result.stderr.count("ebb  ") == 1, "one summary: " + result.stderr
    assert "ebb  leaking in rank 3 of 4" in result.stderr
    shown = cluster.command("scontrol", "show", "job", job["job_id"]).stdout
    assert "Comment=ebb: leaking in rank 3 of 4" in shown


def test_slurm_step_has_the_same_output_and_status_as_without_ebb(cluster, ebb, folder):
    command = ["sh", "-c", "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2; cat; exit $SLURM_PROCID"]
    plain = cluster.srun(*TWO_BY_TWO, *command, cwd=folder)
    under = cluster.srun(*TWO_BY_TWO, ebb, "run", "-q", "--", *command, cwd=folder)
    assert under.returncode == plain.returncode == 3
    assert lines(under.stdout) == lines(plain.stdout)
    assert lines(under.stderr) == lines(plain.stderr)
    run = node(job_folder(cluster, folder), "node-01")
    assert {r["rank"]: r["status"] for r in run["ranks"]} == {2: 2, 3: 3}


def test_killed_rank_ends_the_slurm_step_as_it_does_without_ebb(cluster, ebb, folder):
    command = ["sh", "-c", "[ $SLURM_PROCID != 1 ] || kill -9 $$"]
    plain = cluster.srun(*TWO_BY_TWO, *command, cwd=folder)
    under = cluster.srun(*TWO_BY_TWO, ebb, "run", "-q", "--", *command, cwd=folder)
    assert under.returncode == plain.returncode == 137
    assert lines(under.stderr) == lines(plain.stderr)
    run = node(job_folder(cluster, folder), "node-00")
    assert {r["rank"]: r.get("signal") for r in run["ranks"]} == {0: None, 1: 9}


def test_each_rank_of_a_slurm_step_receives_each_signal_once(cluster, ebb, folder):
    step = cluster.start_srun(*TWO_BY_TWO, ebb, "run", "-q", "--", sys.executable, "count.py", cwd=folder)
    cluster.wait_for(lambda: len(list(folder.glob("ready.*"))) == 4, 30, "ranks")
    made = job_folder(cluster, folder)
    cluster.wait_for(lambda: node(made, "node-00").get("ranks"), 30, "run.json")
    one = node(made, "node-00")["ranks"][0]

    def seen(rank):
        return sorted((folder / f"seen.{rank}").read_text().split())

    # Slurm sends a signal to every process of the step; a user may send one to a single `ebb run`.
    for number in ("USR1", "USR2"):
        cluster.command("scancel", "--signal", number, made.name.split(".")[0])
    cluster.wait_for(lambda: all(len(seen(n)) >= 2 for n in range(4)), 30, "signals from Slurm")
    os.kill(parent_of(one["pid"]), signal.SIGTERM)
    cluster.wait_for(lambda: "SIGTERM" in seen(one["rank"]), 30, "a signal to one rank")
    (folder / "stop").touch()
    _, err = step.communicate(timeout=60)
    assert step.returncode == 0, err
    expected = {n: ["SIGUSR1", "SIGUSR2"] for n in range(4)}
    expected[one["rank"]].insert(0, "SIGTERM")
    assert {n: seen(n) for n in range(4)} == expected


def test_ranks_of_a_slurm_step_continue_if_the_supervisor_is_killed(cluster, ebb, folder):
    step = cluster.start_srun(*TWO_BY_TWO, ebb, "run", "--", sys.executable, "train.py", 150, -1, 0, cwd=folder)
    cluster.wait_for(lambda: len(list(folder.glob("ebb-runs/[0-9]*/node-*/run.json"))) == 2, 30, "both nodes")
    made = job_folder(cluster, folder)
    cluster.wait_for(lambda: len(node(made, "node-01").get("ranks", [])) == 2, 30, "ranks of node 1")
    kill_supervisor(node(made, "node-01"))
    out, err = step.communicate(timeout=60)
    assert step.returncode == 0, err
    assert lines(out) == [f"rank {n} finished" for n in range(4)]
    assert node(made, "node-01")["end"]["kind"] == "lost"
    assert sorted(r["rank"] for r in node(made, "node-01")["ranks"]) == [2, 3]
    assert node(made, "node-00")["end"]["status"] == 0
    assert "the supervisor of node 1 was killed; its ranks continue" in err


def test_node_is_lost_if_its_supervisor_and_sentinel_are_killed(cluster, ebb, folder):
    step = cluster.start_srun(*TWO_BY_TWO, ebb, "run", "--", sys.executable, "count.py", cwd=folder)
    cluster.wait_for(lambda: len(list(folder.glob("ready.*"))) == 4, 30, "ranks")
    made = job_folder(cluster, folder)
    cluster.wait_for(lambda: len(node(made, "node-01").get("ranks", [])) == 2, 30, "ranks of node 1")
    run = node(made, "node-01")
    os.kill(parent_of(run["supervisor_pid"]), signal.SIGKILL)
    kill_supervisor(run)
    cluster.wait_for(lambda: node(made, "node-01")["state"] == "ended", 30, "the end of node 1")
    assert node(made, "node-01")["end"]["kind"] == "lost"
    assert sorted(r["rank"] for r in node(made, "node-01")["ranks"]) == [2, 3]
    assert not [n for n in range(4) if (folder / f"seen.{n}").read_text()], "ranks continue"
    (folder / "stop").touch()
    _, err = step.communicate(timeout=60)
    assert step.returncode == 0, err
    assert "ebb  node 1 (" in err and "): its supervisor was killed" in err, err


def test_killing_one_ebb_run_ends_only_its_own_rank(cluster, ebb, folder):
    step = cluster.start_srun(*TWO_BY_TWO, ebb, "run", "-q", "--", sys.executable, "count.py", cwd=folder)
    cluster.wait_for(lambda: len(list(folder.glob("ready.*"))) == 4, 30, "ranks")
    made = job_folder(cluster, folder)
    cluster.wait_for(lambda: len(node(made, "node-01").get("ranks", [])) == 2, 30, "run.json")
    one, other = node(made, "node-01")["ranks"]
    os.kill(parent_of(one["pid"]), signal.SIGKILL)
    cluster.wait_for(lambda: not os.path.exists(f"/proc/{one['pid']}"), 30, "the end of one rank")
    assert os.path.exists(f"/proc/{other['pid']}")
    (folder / "stop").touch()
    step.communicate(timeout=60)
    assert step.returncode == 137
    states = {r["rank"]: r.get("status") for r in node(made, "node-01")["ranks"]}
    assert states == {one["rank"]: None, other["rank"]: 0}
