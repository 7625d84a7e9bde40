"""Runs jobs with `ebb serve --executor slurm` on the test cluster while the server is killed at random moments
(bench/serve/kill.py)."""

import importlib.util
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("kill", ROOT / "bench" / "serve" / "kill.py")
kill = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kill)


def torture(cluster, ebb, jobs, kills, pause_s):
    """Returns all violations, and the number of jobs in each state."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="torture-", dir=cluster.folder))
    env = {k: v for k, v in cluster.env.items() if not k.startswith("EBB_")}
    wrong, states, _ = kill.torture(ebb, folder, kills=kills, seed=7, slots=1000, jobs=jobs, pause_s=pause_s,
                                    arguments=("--executor", "slurm"), env=env, more={"memory": "64M"})
    return wrong, states
