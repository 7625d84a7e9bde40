"""Tests the Slurm test cluster itself: it runs a step and leaves nothing behind."""

import os

from cluster import SlurmCluster


def test_slurm_test_cluster_runs_a_step_and_removes_its_files():
    with SlurmCluster(nodes=2) as cluster:
        folder = cluster.folder
        result = cluster.srun("-N2", "sh", "-c", "echo $SLURM_NODEID $SLURMD_NODENAME")
        assert sorted(result.stdout.splitlines()) == ["0 n1", "1 n2"], result.stderr + cluster.logs()
    assert not folder.exists()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                assert str(folder).encode() not in f.read()
        except OSError:
            pass
