"""Runs 200 jobs with the Slurm executor while the server is killed 20 times. No job may be lost or run twice. Takes
minutes."""

from executor import torture


def test_each_of_200_slurm_jobs_runs_once_while_the_server_is_killed(cluster, ebb):
    wrong, states = torture(cluster, ebb, jobs=200, kills=20, pause_s=5)
    print(states)
    assert not wrong, "\n".join(wrong) + cluster.logs()
    assert states["accepted"] >= 200
