"""Tests the server's Slurm executor with a real Slurm: job states, cancellation, a killed controller and killed
servers."""

import json
import subprocess
import time

import pytest

from executor import torture


class Server:
    def __init__(self, cluster, ebb, folder):
        self.cluster, self.ebb, self.state = cluster, ebb, folder / "state"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [self.ebb, "serve", "--executor", "slurm", "--state-dir", self.state, "--listen", "none"],
            env=self.cluster.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.cluster.wait_for(lambda: self.command("jobs").returncode == 0, 30, "the server")
        return self

    def command(self, *arguments):
        return self.cluster.command(self.ebb, *arguments, env={"EBB_STATE_DIR": str(self.state)})

    def submit(self, *arguments):
        result = self.command("submit", "--memory", "64M", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def job(self, number):
        return json.loads(self.command("show", number, "--json").stdout)

    def wait(self, number, *states, seconds=90):
        self.cluster.wait_for(lambda: self.job(number)["state"] in states, seconds, f"job {number} {states}")
        return self.job(number)

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(cluster, ebb, tmp_path):
    made = Server(cluster, ebb, tmp_path).start()
    yield made
    made.stop()


def test_server_job_runs_in_slurm_and_can_be_cancelled(server, cluster):
    done = server.submit("--slurm", "time=5m", "--", "sh", "-c", "echo in job $SLURM_JOB_ID")
    ended = server.wait(done, "succeeded", "failed", "lost")
    assert ended["state"] == "succeeded", ended
    assert server.command("logs", done).stdout.startswith("in job ")
    running = server.submit("--", "sleep", "600")
    server.wait(running, "running")
    assert server.command("cancel", running, "--reason", "enough").returncode == 0
    assert server.wait(running, "cancelled")["reason"] == "enough"
    cluster.wait_for(lambda: not cluster.command("squeue", "-h", "-o", "%i").stdout.strip(), 60, "an empty queue")


def test_reason_of_a_job_refused_by_slurm_is_the_error_of_sbatch(server):
    job = server.submit("--slurm", "partition=nope", "--", "true")
    assert "Invalid partition name specified" in server.wait(job, "failed")["reason"]


def test_job_cancelled_with_scancel_is_recorded_as_failed(server, cluster):
    job = server.submit("--name", "outside", "--", "sleep", "600")
    server.wait(job, "running")
    listed = cluster.command("squeue", "-h", "-o", "%i %j").stdout.split()
    cluster.command("scancel", listed[0])
    ended = server.wait(job, "failed", "lost", "succeeded", "cancelled")
    assert ended["state"] == "failed", ended


def test_server_killed_repeatedly_submits_every_job_to_slurm_once(cluster, ebb):
    began = time.monotonic()
    wrong, states = torture(cluster, ebb, jobs=20, kills=3, pause_s=2)
    assert not wrong, "\n".join(wrong) + cluster.logs()
    assert states["accepted"] >= 20 and states["succeeded"] > 0, (states, time.monotonic() - began)
