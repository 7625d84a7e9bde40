"""Tests verdict, show, report, heap and watch on the run folder of a job that ran on several nodes."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from commands import PATIENCE_S, ROOT, binary, environment, run_ebb, wait_for


def make_job(folder, nodes, ranks, steps, *words):
    """Creates the run folder of a simulated job with NODES nodes and RANKS ranks per node."""
    tool = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build")) / "tests" / "tools" / "cluster"
    folder.parent.mkdir(exist_ok=True)
    subprocess.run([tool, folder, str(nodes), str(ranks), str(steps), *words], check=True, timeout=PATIENCE_S)
    return folder


@pytest.fixture
def job(tmp_path):
    return lambda *given, name="123.0": make_job(tmp_path / "ebb-runs" / name, *given)


def verdict_json(folder, *options):
    done = run_ebb("verdict", "--json", *options, folder)
    return json.loads(done.stdout), done.returncode


def rows_of(doc):
    return {row["rank"]: row for row in doc["ranks"]}


# ---- the verdict ----


def test_leaking_rank_is_reported_as_different_from_other_ranks(job):
    doc, status = verdict_json(job(2, 4, 200, "leak=5"))
    assert status == 1
    assert doc["tree"]["verdict"] == "leaking"
    assert [row["rank"] for row in doc["ranks"]] == [5, 0, 1, 2, 3, 4, 6, 7]
    assert [row["rank"] for row in doc["ranks"] if row["differs"]] == [5]
    assert doc["ranks"][0]["node"] == 1
    assert abs(doc["ranks"][0]["rate_bytes_per_step"]["value"] / 2**20 - 4) < 0.2
    assert doc["peers"]["flat"] == 7 and doc["peers"]["unit"] == "step"
    assert [node["state"] for node in doc["nodes"]] == ["ended", "ended"]


def test_leaking_rank_among_flat_ranks_is_found_in_the_first_epoch(job):
    folder = job(2, 4, 200, "leak=5")
    alone, _ = verdict_json(folder / "node-01", "--until-step", "48")
    together, status = verdict_json(folder, "--until-step", "48")
    assert alone["tree"]["verdict"] == "filling"
    assert together["tree"]["verdict"] == "leaking" and status == 1
    assert "the median of all 8 ranks" in together["tree"]["evidence"][0]


def test_equal_growth_of_all_ranks_in_first_epoch_is_called_filling(job):
    doc, status = verdict_json(job(2, 4, 200, "leak=all"), "--until-step", "48")
    assert doc["tree"]["verdict"] == "filling" and status == 3
    assert not any(row["differs"] for row in doc["ranks"])


def test_no_rank_is_reported_as_different_if_all_ranks_leak(job):
    folder = job(2, 4, 200, "leak=all")
    doc, status = verdict_json(folder)
    assert doc["tree"]["verdict"] == "leaking" and status == 1
    assert not any(row["differs"] for row in doc["ranks"])
    node, _ = verdict_json(folder / "node-00")
    assert doc["tree"]["oom"]["eta_s"]["low"] <= node["tree"]["oom"]["eta_s"]["low"]


def test_verdict_command_exits_with_0_if_no_node_of_a_job_leaks(job):
    doc, status = verdict_json(job(2, 4, 120))
    assert doc["tree"]["leak"] is False and status == 0


def test_growth_of_only_rank_0_in_first_epoch_is_called_filling(job):
    folder = job(2, 4, 200, "leak=0")
    doc, status = verdict_json(folder, "--until-step", "48")
    assert doc["tree"]["verdict"] == "filling" and status == 3
    assert [row["rank"] for row in doc["ranks"] if row["differs"]] == [0]
    assert verdict_json(folder)[0]["tree"]["verdict"] == "leaking"


def test_job_verdict_is_leaking_if_one_gpu_leaks(job):
    folder = job(2, 2, 200, "gpu=1")
    doc, status = verdict_json(folder)
    assert status == 1 and [gpu["node"] for gpu in doc["gpus"]] == [0, 1]
    assert run_ebb("show", folder).stdout.startswith("leaking on gpu 0 of node 1: ")


# ---- output as text ----


@pytest.mark.parametrize(
    "name, given",
    [
        ("leak", (2, 4, 200, "leak=5")),
        ("healthy", (2, 4, 200)),
        ("node-lost", (3, 2, 200, "lost=1")),
        ("node-silent", (3, 2, 200, "silent=1")),
    ],
)
def test_summary_of_a_job_on_several_nodes_matches_expected_text(job, golden, tmp_path, name, given):
    job(*given)
    show, watch = run_ebb("show", "123", cwd=tmp_path), run_ebb("watch", "123", cwd=tmp_path)
    assert show.returncode == watch.returncode == 0
    brief = watch.stdout.partition("\n")[2]
    golden(f"cluster-{name}.txt", f"$ ebb run\n{brief}\n$ ebb show\n{show.stdout}")


def test_slurm_job_is_found_by_job_id_or_step_id_or_folder(job, tmp_path):
    job(2, 2, 60)
    job(2, 2, 60, "leak=1", name="123.1")
    (tmp_path / "ebb-runs" / "latest").symlink_to("123.0")
    show = {name: run_ebb("show", name, cwd=tmp_path).stdout for name in ("123", "123.0", "ebb-runs/123.1")}
    assert show["123"] == show["ebb-runs/123.1"] != show["123.0"]
    assert "ebb-runs/123.0" in show["123.0"]
    assert run_ebb("verdict", cwd=tmp_path).stdout.splitlines()[0] == show["123.0"].splitlines()[0]


def test_report_of_a_job_on_several_nodes_has_a_table_of_ranks(job):
    folder = job(2, 2, 120, "leak=3")
    done = run_ebb("report", folder, "--text")
    assert "leaking in rank 3 of 4" in done.stdout and "outlier" in done.stdout
    assert run_ebb("report", folder).returncode == 0
    assert "table of ranks" in (folder / "report.html").read_text()
    assert json.loads(run_ebb("report", folder, "--json").stdout)["job"]["ranks"][0]["rank"] == 3


def test_heap_command_reads_the_node_folder_of_the_requested_rank(job):
    folder = job(2, 2, 60, "leak=3")
    assert f"{folder}/node-01: no heap history found" in run_ebb("heap", folder).stderr
    assert f"{folder}/node-00: no heap history found" in run_ebb("heap", folder, "--rank", "0").stderr
    assert run_ebb("diagnose", folder).returncode == 0
    done = run_ebb("heap", folder, "--rank", "9")
    assert done.returncode == 2 and done.stderr == f"ebb: heap: {folder} has no rank 9; ebb show lists the ranks\n"
    assert "--rank applies only" in run_ebb("heap", folder / "node-00", "--rank", "0").stderr


def test_suggested_memory_request_of_a_healthy_job_uses_earlier_runs(job, tmp_path):
    job(2, 4, 120)
    job(2, 8, 120, name="124.0")
    job(2, 8, 120, "leak=3", name="125.0")
    show = run_ebb("show", "123", cwd=tmp_path).stdout
    assert "--mem=8G per node, enough for 98 % of the last 2 runs" in " ".join(show.split())


# ---- watching ----


def test_watch_command_prints_the_summary_when_all_nodes_have_ended(job, tmp_path):
    job(2, 4, 200)
    done = run_ebb("watch", "123", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "step 200  2 ended  no leak" in lines[0]
    assert lines[1].startswith("ebb  no leak in 8 ranks") and len(lines) == 3


def test_watch_command_follows_several_nodes_during_the_run(tmp_path):
    folder = tmp_path / "1.0"
    tool = pathlib.Path(os.environ.get("EBB_BUILD_DIR", ROOT / "build")) / "tests" / "tools" / "cluster"
    writer = subprocess.Popen([tool, folder, "2", "4", "150", "leak=5", "live=25"])
    wait_for(lambda: (folder / "node-01" / "trace.ebb").exists(), "the second node")
    watch = subprocess.Popen(
        [binary(), "watch", folder, "--json", "--interval", "200ms"],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    docs = [json.loads(line) for line in watch.stdout]
    assert watch.wait(PATIENCE_S) == 0 and writer.wait(PATIENCE_S) == 0
    assert [node["state"] for node in docs[-1]["nodes"]] == ["ended", "ended"]
    assert docs[-1]["ranks"][0]["rank"] == 5 and docs[-1]["tree"]["verdict"] == "leaking"
    steps = [doc["nodes"][0]["step"] or 0 for doc in docs]
    assert steps == sorted(steps) and len(docs) > 1
    # an incremental reader must reach the same verdicts as a single read of the whole folder
    whole, _ = verdict_json(folder)
    for row in docs[-1]["ranks"]:
        assert rows_of(whole)[row["rank"]]["verdict"] == row["verdict"]


def test_summary_names_the_rank_that_failed_first(job, tmp_path):
    folder = job(2, 2, 60)
    for number, (status, at) in {0: (1, 30.0), 1: (143, 31.5)}.items():
        path = folder / f"node-{number:02}" / "run.json"
        doc = json.loads(path.read_text())
        doc["end"] = {"kind": "exited", "status": status}
        for rank in doc["ranks"]:
            rank.update(status=status, ended_t_s=at + rank["rank"])
        path.write_text(json.dumps(doc))
    text = " ".join(run_ebb("watch", "123", cwd=tmp_path).stdout.split())
    assert "failed: exited with status" in text
    assert "rank 0 exited with status 1, the first of 4 failed ranks" in text


@pytest.mark.parametrize("kind, cause", [("guard", "stopped by the guard: 1 GiB left"),
                                         ("requeued", "returned to Slurm's queue: the time limit is near"),
                                         ("cgroup out of memory", "killed by the kernel: the limit of 24 GiB")])
def test_summary_names_the_failure_that_made_slurm_kill_other_nodes(job, tmp_path, kind, cause):
    folder = job(3, 2, 60)
    killed = {"kind": "signalled", "signal": "TERM", "signal_number": 15, "cause_kind": "signal",
              "cause": "killed by SIGTERM (sender unknown)"}
    for number in range(3):
        path = folder / f"node-{number:02}" / "run.json"
        doc = json.loads(path.read_text())
        doc["end"] = {**killed, "cause_kind": kind, "cause": cause} if number == 1 else killed
        path.write_text(json.dumps(doc))
    text = " ".join(run_ebb("watch", "123", cwd=tmp_path).stdout.split())
    assert cause in text and "sender unknown" not in text


# ---- bad input ----


def test_node_with_a_damaged_recording_is_shown_with_an_error(job):
    folder = job(2, 2, 120, "leak=3")
    path = folder / "node-00" / "trace.ebb"
    path.write_bytes(b"nothing of value" * 100)
    doc, status = verdict_json(folder)
    assert status == 1 and doc["nodes"][0]["error"]
    assert "is not an ebb recording" in run_ebb("show", folder).stdout


def test_node_with_an_empty_folder_is_shown_as_unreadable(job):
    folder = job(2, 2, 60)
    (folder / "node-02").mkdir()
    doc, status = verdict_json(folder)
    assert doc["nodes"][2]["state"] == "unreadable" and status == 0


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"nodes": -1, "ranks": "x"}', '{"nodes": 1e300}'])
def test_nodes_are_shown_if_job_json_is_damaged(job, damage):
    folder = job(2, 2, 60)
    (folder / "job.json").write_text(damage)
    doc, status = verdict_json(folder)
    assert len(doc["nodes"]) == 2 and status == 0


def test_missing_job_json_and_foreign_files_are_ignored(job):
    folder = job(2, 2, 60)
    (folder / "job.json").unlink()
    (folder / "node-xx").mkdir()
    (folder / "node-99999999999999999999").mkdir()
    (folder / "notes.txt").write_text("x")
    (folder / "node-07").symlink_to("node-00")
    doc, status = verdict_json(folder)
    assert [node["node"] for node in doc["nodes"]] == [0, 1] and status == 0
    assert "job.json is missing" in run_ebb("show", folder).stdout


def test_two_folders_with_the_same_node_number_are_reported(job):
    folder = job(2, 2, 60)
    shutil.copytree(folder / "node-01", folder / "node-1")
    doc, _ = verdict_json(folder)
    assert [node["duplicate"] for node in doc["nodes"]] == [False, True]
    assert "several folders have this node number" in run_ebb("show", folder).stdout


def test_newest_folder_of_a_restarted_node_is_used(job):
    folder = job(2, 2, 60, "lost=1")
    shutil.copytree(folder / "node-00", folder / "node-01.1")
    doc, _ = verdict_json(folder)
    assert [node["state"] for node in doc["nodes"]] == ["ended", "ended"]
    assert doc["nodes"][1]["restarts"] == 1


def test_verdict_includes_nodes_that_join_late_or_report_no_steps(job):
    doc, status = verdict_json(job(4, 2, 160, "leak=3", "late=1", "nosteps=2", "skew=3"))
    assert status == 1 and doc["ranks"][0]["rank"] == 3
    assert {node["state"] for node in doc["nodes"]} == {"ended"}
    assert doc["nodes"][2]["step"] is None


def test_nodes_without_a_folder_are_reported_as_missing(job):
    folder = job(3, 2, 60)
    shutil.rmtree(folder / "node-02")
    doc, _ = verdict_json(folder)
    assert [node["state"] for node in doc["nodes"]] == ["ended", "ended", "missing"]
    assert "1 missing" in run_ebb("show", folder).stdout


def test_verdict_before_any_node_has_written_is_undecided(tmp_path):
    (tmp_path / "job.json").write_text('{"format": 1, "job_id": "5", "nodes": 2}')
    done = run_ebb("verdict", tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith("undecided: no node has written anything yet")


@pytest.mark.parametrize(
    "ranks",
    ["[]", "null", "7", '[{"rank": -1, "pid": 0}]', '[{"rank": 1e9, "pid": "x"}]', "[[[]]]", '[{"rank": 0, "pid": 99}]'],
)
def test_invalid_ranks_in_run_json_are_ignored(job, ranks):
    folder = job(1, 2, 60)
    path = folder / "node-00" / "run.json"
    doc = json.loads(path.read_text())
    doc["ranks"] = json.loads(ranks)
    path.write_text(json.dumps(doc))
    assert run_ebb("show", folder).returncode == 0


def test_hostile_host_name_is_escaped(job):
    folder = job(2, 2, 60, "silent=1")
    path = folder / "node-01" / "run.json"
    doc = json.loads(path.read_text())
    doc["host"] = "\x1b[31mn1\n"
    path.write_text(json.dumps(doc))
    assert "\x1b" not in run_ebb("show", folder).stdout


def test_nodes_with_old_heartbeats_are_reported_as_silent(job):
    folder = job(2, 2, 60, "running")
    old = time.time() - 300
    for node in ("node-00", "node-01"):
        os.utime(folder / node / "heartbeat", (old, old))
    doc, _ = verdict_json(folder)
    assert [node["state"] for node in doc["nodes"]] == ["silent", "silent"]
    assert "2 of 2 nodes stopped reporting" in run_ebb("show", folder).stdout


def test_truncated_node_recording_is_read_up_to_the_cut(job):
    folder = job(2, 2, 120, "running")
    path = folder / "node-01" / "trace.ebb"
    data = path.read_bytes()
    for size in (0, 7, 40, len(data) // 3, len(data) - 5):
        path.write_bytes(data[:size])
        assert run_ebb("verdict", folder).returncode in (0, 3)
