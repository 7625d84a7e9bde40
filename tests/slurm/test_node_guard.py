"""Tests the guard of a job on two nodes."""

import sys

from ranks import job_folder, node

TWO_BY_TWO = ("-N2", "--ntasks-per-node=2")


def times(folder, word):
    """Returns {rank: the times at which it logged WORD}."""
    found = {}
    for path in folder.glob("log.*"):
        for line in path.read_text().splitlines():
            if line.startswith(word + " "):
                found.setdefault(int(path.suffix[1:]), []).append(float(line.split()[1]))
    return found


def test_every_rank_saves_a_checkpoint_before_any_rank_is_stopped(cluster, ebb, folder):
    result = cluster.srun(*TWO_BY_TWO, ebb, "run", "--limit", "300M", "--", sys.executable, "save.py", 5000, 3, 0.5,
                          cwd=folder)
    assert result.returncode == 124, result.stderr
    saved, stopped = times(folder, "saved"), times(folder, "stopped")
    assert sorted(saved) == sorted(stopped) == [0, 1, 2, 3], result.stderr
    assert max(v[0] for v in saved.values()) <= min(v[0] for v in stopped.values()), result.stderr
    made = job_folder(cluster, folder)
    for name in ("node-00", "node-01"):
        run = node(made, name)
        assert len(run["guard"]["checkpoints"]) >= 1, run["guard"]
        assert run["end"]["cause_kind"] == "guard", run["end"]
    assert "node 1: " in node(made, "node-00")["end"]["cause"]
    assert "guard: requesting a checkpoint for node 1" in result.stderr
