"""Tests `ebb serve --executor slurm` with fake Slurm commands that can be made to fail. tests/slurm has the tests with
a real Slurm."""

import contextlib
import importlib.util
import os

import pytest

from commands import ROOT, binary, run_ebb, wait_for
from serving import serving
from slurm_standin import make_slurm

_spec = importlib.util.spec_from_file_location("kill", ROOT / "bench" / "serve" / "kill.py")
kill = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kill)


@pytest.fixture
def slurm(tmp_path):
    return make_slurm(tmp_path / "slurm")


@contextlib.contextmanager
def serving_slurm(slurm, *arguments):
    with serving("--executor", "slurm", *arguments, env=slurm.environment()) as server:
        yield server


def marking(tmp_path, then=""):
    """Returns a command that appends a line to a file each time it runs."""
    return ["sh", "-c", f"echo x >>{tmp_path}/marks; {then}"]


def marks(tmp_path):
    path = tmp_path / "marks"
    return len(path.read_text().split()) if path.exists() else 0


def reason(server, job, text):
    """Waits until TEXT occurs in the reason shown for the job's state."""
    return wait_for(lambda: text in str(server.job(job)["reason"]) and server.job(job), f"the reason {text!r}")


def trouble(server):
    return " ".join(server.get("/health").json()["trouble"])


# ---- jobs ----


def test_job_request_is_translated_to_sbatch_options(slurm, tmp_path):
    with serving_slurm(slurm, "--sbatch-allow", "qos,exclusive") as server:
        job = server.submit("echo", "a b", "$HOME", name="opt", cwd=str(tmp_path), memory="1500K", gpus=2,
                            slurm={"partition": "gpu", "time": "90s", "qos": "high", "exclusive": True})
        server.wait(job)
    (found,) = slurm.jobs()
    options = found["options"]
    assert options["mem"] == "2M" and options["gres"] == "gpu:2" and options["partition"] == "gpu"
    assert options["time"] == "2" and options["qos"] == "high" and "exclusive" in options
    assert options["chdir"] == str(tmp_path) and "no-requeue" in options
    assert found["arguments"][-4:] == ["--", "echo", "a b", "$HOME"]


def test_failed_slurm_job_keeps_its_output_and_exit_status(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("sh", "-c", "echo out; echo err >&2; exit 3", name="x")
        ended = server.wait(job)
        assert ended["state"] == "failed" and ended["status"] == 3 and ended["memory"]["peak_bytes"] > 0
        assert server.ask("GET", f"/api/v1/jobs/{job}/log").body == b"out\nerr\n"
        states = [c["state"] for c in ended["changes"]] if "changes" in ended else []
        assert "lost" not in states


def test_long_log_of_slurm_job_is_sent_completely(slurm, tmp_path):
    text = "".join(f"{i:07}\n" for i in range(400000)).encode()
    with serving_slurm(slurm) as server:
        job = server.submit("seq", "-f", "%07.0f", "0", "399999")
        waits = server.get(f"/jobs/{job}/log?offset=0&wait_s=30")
        assert waits.status == 200 and text.startswith(waits.body)
        assert server.wait(job)["state"] == "succeeded"
        path = f"/jobs/{job}/log"
        assert server.get(path).body == text
        assert server.get(f"{path}?tail=1000000").body == text[-1000000:]
        part = server.get(path, headers={"Range": "bytes=1000-2000999"})
        assert part.status == 206 and part.body == text[1000:2001000]
        assert part.headers["Content-Range"] == f"bytes 1000-2000999/{len(text)}"
        assert server.get(f"{path}?offset=100").body == text[100:]
        assert server.get(f"{path}?offset={len(text)}&wait_s=30").body == b""
        assert server.get(path, headers={"Range": f"bytes={len(text)}-"}).status == 416


def test_running_slurm_job_is_tracked_through_the_run_folder(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("python3", "-c", "import time; b = bytearray(50 << 20); time.sleep(600)")
        server.wait(job, "running")
        wait_for(lambda: ((server.job(job)["memory"] or {}).get("job_bytes") or 0) > 40 << 20,
                 "the memory of the job")
        server.post(f"/jobs/{job}/cancel", {"reason": "enough", "grace_s": 5})
        ended = server.wait(job)
        assert ended["state"] == "cancelled" and ended["reason"] == "enough"
    assert slurm.jobs()[0]["state"] != "RUNNING"


def test_checkpoint_request_reaches_a_slurm_job_through_run_folder(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("sleep", "600", options={"checkpoint-cmd": f"echo x >>{tmp_path}/saved"})
        server.wait(job, "running")
        answer = server.post(f"/jobs/{job}/checkpoint", {})
        assert answer.status == 202, answer
        wait_for(lambda: (tmp_path / "saved").exists(), "the checkpoint")


def test_job_pending_in_slurm_has_a_reason_and_can_be_cancelled(slurm, tmp_path):
    slurm.set("hold")
    with serving_slurm(slurm) as server:
        job = server.submit(*marking(tmp_path))
        assert reason(server, job, "Slurm job 1 is pending: Resources")["state"] == "starting"
        server.post(f"/jobs/{job}/cancel", {"reason": "no more"})
        assert server.wait(job)["state"] == "cancelled"
        assert slurm.jobs()[0]["state"] == "CANCELLED"
        slurm.clear("hold")
    assert marks(tmp_path) == 0


# ---- failures ----


def test_reason_of_a_job_refused_by_slurm_is_the_sbatch_error(slurm, tmp_path):
    slurm.set("refuse", "Invalid partition name specified")
    with serving_slurm(slurm) as server:
        ended = server.wait(server.submit("true"))
        assert ended["state"] == "failed"
        assert ended["reason"] == "Slurm refused the job: Batch job submission failed: Invalid partition name specified"


def test_submitted_job_stays_queued_while_slurm_is_down(slurm, tmp_path):
    slurm.set("down")
    with serving_slurm(slurm) as server:
        job = server.submit(*marking(tmp_path))
        reason(server, job, "not submitted to Slurm yet: Unable to contact slurm controller")
        wait_for(lambda: "Slurm does not respond" in trouble(server), "the server's trouble")
        server.stop(9)
        server.start()
        slurm.clear("down")
        assert server.wait(job)["state"] == "succeeded"
        wait_for(lambda: "Slurm" not in trouble(server), "the end of the trouble")
    assert marks(tmp_path) == 1 and len(slurm.jobs()) == 1


def test_end_of_a_job_is_recorded_while_slurm_is_down(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.05; done")
        server.wait(job, "running")
        slurm.set("down")
        (tmp_path / "go").touch()
        assert server.wait(job)["state"] == "succeeded"
        slurm.clear("down")


def test_slurm_job_is_found_by_name_if_sbatch_printed_no_job_id(slurm, tmp_path):
    slurm.set("mute")
    with serving_slurm(slurm) as server:
        job = server.submit(*marking(tmp_path))
        wait_for(slurm.jobs, "the submission")
        slurm.clear("mute")
        assert server.wait(job)["state"] == "succeeded"
    assert marks(tmp_path) == 1 and len(slurm.jobs()) == 1


def test_restarted_server_waits_for_an_sbatch_that_is_still_running(slurm, tmp_path):
    slurm.set("slow", 3)
    with serving_slurm(slurm) as server:
        job = server.submit(*marking(tmp_path))
        wait_for(lambda: list((server.state / "locks").iterdir()), "sbatch")
        server.stop(9)
        slurm.clear("slow")
        server.start()
        assert server.wait(job)["state"] == "succeeded"
    assert marks(tmp_path) == 1 and len(slurm.jobs()) == 1


def test_job_ended_by_slurm_without_a_record_is_reported_as_lost(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("sleep", "600")
        server.wait(job, "running")
        slurm.end(1, "NODE_FAIL")
        ended = server.wait(job)
        assert ended["state"] == "lost"
        assert ended["reason"] == ("Slurm ended job 1 with state NODE_FAIL, and run.json does not record "
                                   "how the job ended")


@pytest.mark.parametrize("has_accounts", [True, False])
def test_end_of_a_job_purged_from_squeue_is_read_from_sacct(slurm, tmp_path, has_accounts):
    with serving_slurm(slurm) as server:
        job = server.submit("sleep", "600")
        server.wait(job, "running")
        server.stop(9)
        name = slurm.jobs()[0]["name"]
        slurm.end(1, "OUT_OF_MEMORY")
        slurm.purge()
        if has_accounts:
            slurm.set("accounts", f"1|OUT_OF_MEMORY|0:125|{name}")
        server.start()
        ended = server.wait(job)
        known = "Slurm ended job 1 with state OUT_OF_MEMORY" if has_accounts else "Slurm no longer knows job 1"
        assert ended["state"] == "lost"
        assert ended["reason"] == f"{known}, and run.json does not record how the job ended"


def test_job_cancelled_by_scancel_before_start_is_recorded_as_failed(slurm, tmp_path):
    slurm.set("hold")
    with serving_slurm(slurm) as server:
        job = server.submit("true")
        reason(server, job, "pending")
        slurm.change(lambda jobs: jobs["1"].update(state="CANCELLED"))
        ended = server.wait(job)
        assert ended["state"] == "failed"
        assert ended["reason"] == "Slurm ended job 1 with state CANCELLED before the command started"


def test_reason_of_failed_slurm_job_names_missing_working_folder(slurm, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    slurm.set("hold")
    with serving_slurm(slurm) as server:
        job = server.submit("touch", tmp_path / "ran", cwd=str(work))
        reason(server, job, "pending")
        work.rmdir()
        slurm.clear("hold")
        ended = server.wait(job)
        assert ended["state"] == "failed" and str(work) in ended["reason"], ended
        assert not (tmp_path / "ran").exists()


def test_reason_of_failed_slurm_job_names_the_missing_command(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        ended = server.wait(server.submit("no-such-command"))
        assert ended["state"] == "failed" and 'command not found: "no-such-command"' in ended["reason"]


@pytest.mark.parametrize("more, message", [
    ({"slurm": {"qos": "x"}}, 'slurm: the server does not allow the sbatch option "qos"'),
    ({"slurm": {"output": "/etc/x"}}, 'slurm: a request cannot set the sbatch option "output"'),
    ({"slurm": {"partition": ["a"]}}, "slurm: "),
    ({"slurm": {"--partition": "a"}}, 'slurm: a request cannot set the sbatch option "--partition"'),
    ({"env": {"SBATCH_QOS": "x"}}, 'env: "SBATCH_QOS" would set an option of sbatch'),
])
def test_disallowed_sbatch_options_are_refused(slurm, more, message):
    with serving_slurm(slurm) as server:
        answer = server.post("/jobs", {"command": ["true"], **more})
        assert answer.status == 400 and message in answer.message()


def test_server_with_the_local_executor_refuses_slurm_options(tmp_path):
    with serving() as server:
        answer = server.post("/jobs", {"command": ["true"], "slurm": {"partition": "gpu"}})
        assert answer.status == 400 and "runs jobs on its own machine" in answer.message()


# ---- killed servers ----


def test_server_killed_repeatedly_submits_every_job_once(slurm, tmp_path):
    slurm.set("slow", 0.2)
    folder = tmp_path / "torture"
    folder.mkdir()
    env = {**os.environ, **slurm.environment()}
    env.pop("EBB_RUN_DIR", None)
    wrong, states, _ = kill.torture(binary(), folder, kills=3, seed=5, slots=20, jobs=20, pause_s=2,
                                    arguments=("--executor", "slurm"), env=env)
    assert not wrong, "\n".join(wrong)
    assert states["accepted"] >= 20 and states.get("succeeded", 0) > 0


def test_server_with_running_jobs_refuses_a_change_of_executor(slurm, tmp_path):
    with serving_slurm(slurm) as server:
        job = server.submit("sleep", "600")
        server.wait(job, "running")
        server.stop()
        other = run_ebb("serve", "--state-dir", server.state, "--listen", "none", "--check")
        assert other.returncode == 0, other.stderr
        other = run_ebb("serve", "--state-dir", server.state, "--listen", "none")
        assert other.returncode == 2
        assert "1 jobs of this state folder were started with --executor slurm" in other.stderr
        server.start()


def test_server_start_error_names_the_missing_slurm_command(tmp_path):
    result = run_ebb("serve", "--executor", "slurm", "--state-dir", tmp_path / "state", "--listen", "none",
                 env={"PATH": "/nonexistent"})
    assert result.returncode == 2 and "cannot find the command sbatch in $PATH" in result.stderr


def test_option_runs_dir_sets_the_parent_of_all_run_folders(slurm, tmp_path):
    with serving_slurm(slurm, "--runs-dir", tmp_path / "shared" / "runs") as server:
        ended = server.wait(server.submit("true", name="x"))
        assert ended["state"] == "succeeded" and ended["run_dir"] == str(tmp_path / "shared" / "runs" / "1-x")
        assert not (server.state / "runs").exists()
