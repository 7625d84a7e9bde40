"""Tests that a job behaves the same under `ebb run` as without ebb: streams, exit status, signals and cleanup. Also
tests the recording."""

import csv
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import textwrap

import pytest

from commands import (PATIENCE_S, PYTHON, alive, binary, environment, plain, recorded, refused_with,
                      run_ebb, wait_for)

pytestmark = plain


def script(folder, text, name="job.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def start(folder, *arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([binary(), "run", *map(str, arguments)], cwd=folder, text=True,
                            env=environment(), **options)


def facts(folder):
    return json.loads((folder / "ebb-runs" / "latest" / "run.json").read_text())


# ---- exit status and streams ----

@pytest.mark.parametrize("code", [0, 1, 3, 42, 255])
def test_run_command_exits_with_the_exit_status_of_the_job(tmp_path, ebb, code):
    assert ebb("run", "--", "sh", "-c", f"exit {code}", cwd=tmp_path).returncode == code


def test_run_of_a_killed_job_exits_with_128_plus_the_signal_number(tmp_path, ebb):
    result = ebb("run", "--", "sh", "-c", "kill -SEGV $$", cwd=tmp_path)
    assert result.returncode == 128 + signal.SIGSEGV
    assert facts(tmp_path)["end"]["kind"] == "signalled"
    assert "SEGV" in result.stderr


def test_first_seconds_of_a_job_are_sampled_more_often_by_default(tmp_path, ebb):
    def closest_five_s():
        looks = [o["t"] for o in recorded(tmp_path / "ebb-runs/latest") if o["type"] == "machine"]
        return min((last - first for first, last in zip(looks, looks[4:])), default=99)

    for flags, most in ((), 6), (("--interval", "1s"), 1.01):
        assert ebb("run", *flags, "--", "sleep", "4", cwd=tmp_path).returncode == 0
        # A busy machine delays single samples, but rarely all samples within a second.
        assert (closest_five_s() < 1.5) == (flags == ())
        seen = facts(tmp_path)
        # When processes start or exit, ebb takes additional samples.
        assert seen["cost"]["ticks"] < most * seen["duration_s"] + 5


def test_stdout_and_stderr_stay_separate_and_both_are_logged(tmp_path, ebb):
    result = ebb("run", "-q", "--", "sh", "-c", "echo out; echo err >&2", cwd=tmp_path)
    assert result.stdout == "out\n"
    assert result.stderr == "err\n"
    log = (tmp_path / "ebb-runs/latest/log.txt").read_text()
    assert sorted(log.split()) == ["err", "out"]


def test_ten_megabytes_of_binary_output_are_forwarded_unchanged(tmp_path):
    data = os.urandom(1 << 20) * 10
    (tmp_path / "data").write_bytes(data)
    result = subprocess.run([binary(), "run", "-q", "--", "cat", "data"], cwd=tmp_path,
                            env=environment(), stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert result.stdout == data
    assert (tmp_path / "ebb-runs/latest/log.txt").read_bytes() == data


def test_standard_input_reaches_the_job(tmp_path):
    result = subprocess.run([binary(), "run", "-q", "--", "tr", "a-z", "A-Z"], cwd=tmp_path,
                            env=environment(), input="spring tide\n", text=True,
                            stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert result.stdout == "SPRING TIDE\n"


def test_job_ends_when_its_output_pipe_is_closed_by_the_reader(tmp_path):
    command = f"'{binary()}' run -q -- yes tide | head -n 1"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), text=True,
                            stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert result.stdout == "tide\n"
    assert facts(tmp_path)["end"]["status"] in (128 + signal.SIGPIPE, 1)


def test_job_inherits_working_folder_umask_environment_and_limits(tmp_path):
    look = "pwd; umask; ulimit -n; ulimit -c; echo $MINE; ls /proc/self/fd | tr '\\n' ' '"
    plain = subprocess.run(["sh", "-c", look], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, env=environment({"MINE": "yes"}), umask=0o027)
    ours = subprocess.run([binary(), "run", "-q", "--", "sh", "-c", look], cwd=tmp_path, text=True,
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env=environment({"MINE": "yes"}), umask=0o027, timeout=PATIENCE_S)
    assert ours.stdout == plain.stdout


def test_job_environment_gains_only_documented_variables(tmp_path):
    look = [PYTHON, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
    plain = json.loads(subprocess.check_output(look, cwd=tmp_path, env=environment()))
    ours = json.loads(subprocess.check_output([binary(), "run", "-q", "--", *look], cwd=tmp_path,
                                              env=environment(), timeout=PATIENCE_S))
    added = {key for key in ours if ours[key] != plain.get(key)}
    # EBB_HEAP is documented as well; it is set only if the heap is profiled.
    assert added - {"EBB_HEAP"} == {"EBB_SOCKET", "EBB_RUN_DIR", "EBB_SEGMENT", "EBB_LIMIT_BYTES",
                                    "PYTHONPATH", "LD_PRELOAD"}
    assert not set(plain) - set(ours)


def test_signals_ignored_by_the_shell_stay_ignored_in_the_job(tmp_path):
    look = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    command = f"trap '' USR2; exec '{binary()}' run -q -- sh -c \"{look}\""
    result = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment(), text=True,
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
                            restore_signals=True)
    values = dict(line.split(":\t") for line in result.stdout.splitlines())
    assert int(values["SigBlk"], 16) == 0
    assert int(values["SigIgn"], 16) >> (signal.SIGUSR2 - 1) & 1
    assert not int(values["SigIgn"], 16) >> (signal.SIGPIPE - 1) & 1


def test_job_has_its_own_session_and_process_group(tmp_path, ebb):
    result = ebb("run", "-q", "--", PYTHON, "-c",
                 "import os; print(os.getsid(0), os.getpgrp() == os.getpid())", cwd=tmp_path)
    session, leads = result.stdout.split()
    assert leads == "True"
    assert int(session) != os.getsid(0)


# ---- the recording ----

def test_spawned_processes_that_send_steps_are_recorded_as_ranks(tmp_path):
    """With torch.multiprocessing.spawn on a CPU, ranks have the command line of a worker process."""
    job = script(tmp_path, """
        import multiprocessing, os, socket, time
        def rank(index):
            open(f"rank-{os.getpid()}", "w").close()
            wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            step = 0
            while not os.path.exists("go"):
                step += 1
                wire.sendto(f"KIND=step\\nSTEP={step}\\nRANK={index}\\n".encode(),
                            os.environ["EBB_SOCKET"])
                time.sleep(0.05)
        def worker():
            while not os.path.exists("go"):
                time.sleep(0.05)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            children = [context.Process(target=rank, args=(i,)) for i in range(2)]
            children.append(context.Process(target=worker))
            for child in children:
                child.start()
            for child in children:
                child.join()
    """)

    def roles():
        table = run_ebb("export", tmp_path / "ebb-runs/latest", "--csv").stdout
        return {int(row["pid"]): row["role"] for row in csv.DictReader(io.StringIO(table))}

    def ranks():
        pids = [int(path.name[5:]) for path in tmp_path.glob("rank-*")]
        known = roles()
        return pids if len(pids) == 2 and all(known.get(p) == "main" for p in pids) else None

    process = start(tmp_path, "--interval", "100ms", "--", PYTHON, job)
    pids = wait_for(ranks, "the role of both ranks in the recording")
    (tmp_path / "go").touch()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    doc = facts(tmp_path)
    assert {p["role"] for p in doc["processes"] if p["pid"] in pids} == {"main"}
    judged = [p for p in doc["verdict"]["processes"] if p["pid"] in pids]
    assert all(p["role"] == "main" for p in judged)
    assert {r["role"]: r["count"] for r in doc["roles"]}["data worker"] == 1
    spawned = [p for p in doc["processes"] if "spawn_main" in " ".join(p["command"])]
    assert [p["role"] for p in spawned if p["pid"] not in pids] == ["data worker"]


def test_recorded_memory_equals_the_values_in_proc(tmp_path):
    """The job is a pool of processes. Each prints its RSS from /proc/self/statm while its memory is constant."""
    job = script(tmp_path, """
        import multiprocessing as mp, os, time
        PAGE = os.sysconf("SC_PAGE_SIZE")
        def rss():
            return int(open("/proc/self/statm").read().split()[1]) * PAGE
        def work(megabytes):
            keep = bytearray(megabytes << 20)
            for i in range(0, len(keep), 4096):
                keep[i] = 1
            while not os.path.exists("go"):
                now = rss()
                with open(f"truth-{os.getpid()}", "a") as truth:
                    print(now, file=truth)
                time.sleep(0.5)    # the first looks and sleeps themselves cost pages
        if __name__ == "__main__":
            with mp.Pool(3) as pool:
                pool.map(work, [20, 40, 60], chunksize=1)
    """)

    def seen_of(pid):
        table = run_ebb("export", tmp_path / "ebb-runs/latest", "--csv").stdout
        return {int(row["rss_bytes"]) for row in csv.DictReader(io.StringIO(table))
                if row["pid"] == str(pid) and row["rss_bytes"]}

    def truths():
        printed = {int(path.name[6:]): list(map(int, path.read_text().split()))
                for path in tmp_path.glob("truth-*")}
        held = {pid: figures[-1] for pid, figures in printed.items()
                if len(figures) > 1 and figures[-1] == figures[-2]}
        return held if len(held) == 3 and all(b in seen_of(p) for p, b in held.items()) else None

    process = start(tmp_path, "--interval", "100ms", "--", PYTHON, job)
    held = wait_for(truths, "what each of them holds in the recording")
    (tmp_path / "go").touch()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert all(b > mib << 20 for b, mib in zip(sorted(held.values()), (20, 40, 60)))
    processes = {p["pid"]: p for p in facts(tmp_path)["processes"]}
    for pid, bytes_held in held.items():
        assert processes[pid]["peak_bytes"] >= bytes_held


def test_marks_sent_by_the_job_are_recorded(tmp_path, ebb):
    result = ebb("run", "-q", "--", "sh", "-c",
                 f"for i in 1 2 3; do '{binary()}' mark KIND=step STEP=$i; done; "
                 f"'{binary()}' mark KIND=save STEP=3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = ebb("export", "ebb-runs/latest", "--jsonl", cwd=tmp_path).stdout.splitlines()
    marks = [o for o in map(json.loads, lines) if o["type"] == "mark"]
    assert [(m["kind"], m["step"]) for m in marks] == [("step", 1), ("step", 2), ("step", 3),
                                                       ("save", 3)]
    assert facts(tmp_path)["marks"] == {"received": 4, "bad": 0, "doubled": 0, "steps": 3, "last_step": 3}


def test_recording_stays_below_the_size_limit_in_a_flood_of_marks(tmp_path, ebb):
    job = script(tmp_path, """
        import os, socket
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.connect(os.environ["EBB_SOCKET"])
        for step in range(1, 200001):
            s.send(b"KIND=step\\nSTEP=%d\\nMAX_STEPS=200000\\nLOSS=%.6f\\n" % (step, 1 / step))
            if step % 20000 == 0:
                s.send(b"KIND=epoch\\nEPOCH=%d\\n" % (step // 20000))
    """)
    result = ebb("run", "--", PYTHON, job, cwd=tmp_path)
    doc, run = facts(tmp_path), tmp_path / "ebb-runs" / "latest"
    marks = [o["kind"] for o in recorded(run) if o["type"] == "mark"]
    left_out = doc["recording"]["marks_left_out"]
    assert result.returncode == 0 and doc["marks"]["last_step"] == 200000
    assert len(marks) + left_out == doc["marks"]["received"] == 200010
    assert marks.count("epoch") == 10
    assert result.stderr.count("KiB/s of marks") == (left_out > 0)
    budget = (8 + doc["duration_s"]) * (128 << 10)
    assert (run / "trace.ebb").stat().st_size < budget + (1 << 20)


def largest_peak(folder):
    """Returns the largest process peak recorded so far."""
    result = run_ebb("export", folder / "ebb-runs" / "latest", "--csv")
    rows = csv.DictReader(io.StringIO(result.stdout if result.returncode == 0 else ""))
    return max((int(row["peak_bytes"]) for row in rows if row["peak_bytes"]), default=0)


def test_memory_peak_that_lies_between_two_samples_is_recorded(tmp_path):
    job = script(tmp_path, """
        import os, time
        time.sleep(1.2)
        x = bytearray(150 << 20)
        for i in range(0, len(x), 4096):
            x[i] = 1
        del x
        while not os.path.exists("go"):
            time.sleep(0.05)
    """)
    process = start(tmp_path, "--interval", "4s", "--", PYTHON, job)
    wait_for(lambda: largest_peak(tmp_path) > 150 << 20, "the process to have had its turn")
    (tmp_path / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    doc = facts(tmp_path)
    assert doc["processes"][0]["peak_bytes"] > 150 << 20
    assert doc["ask_bytes"] > 150 << 20


CHILDREN, EACH_MIB = 40, 8


def brood(folder):
    """Returns a job whose children all hold memory until a file appears, or only briefly if the file already exists."""
    return script(folder, f"""
        import os, time
        ready, said = os.pipe()
        hold, release = os.pipe()
        children = []
        for _ in range({CHILDREN}):
            children.append(os.fork())
            if children[-1] == 0:
                os.close(release)
                kept = bytearray(b"x") * ({EACH_MIB} << 20)
                os.write(said, b"x")
                os.read(hold, 1)      # until the parent closes its end
                os._exit(0)
        got = 0
        while got < {CHILDREN}:
            got += len(os.read(ready, {CHILDREN}))
        with open("new", "w") as f:
            for pid in children:
                print(pid, int(open(f"/proc/{{pid}}/statm").read().split()[1]) * 4096, file=f)
        os.rename("new", "ready")
        while not os.path.exists("go"):
            time.sleep(0.05)
        os.close(release)
        for _ in range({CHILDREN}):
            os.wait()
    """)


def test_peak_of_short_lived_children_is_read_from_the_cgroup(tmp_path, ebb):
    (tmp_path / "go").touch()
    result = ebb("run", "--interval", "1h", "--", PYTHON, brood(tmp_path), cwd=tmp_path)
    doc = facts(tmp_path)
    if doc["guard"]["cgroup_peak_bytes"] is None:
        pytest.skip(f"the kernel records no peak: {doc['guard']['cgroup_trouble']}")
    peak = doc["tree"]["peak_bytes"]
    assert result.returncode == 0 and CHILDREN * EACH_MIB << 20 <= peak
    assert doc["segments"][0]["peak_bytes"] == peak <= doc["guard"]["cgroup_peak_bytes"]
    # A job whose limit is the suggested request must survive.
    again = ebb("run", "--limit", f"{doc['ask_bytes'] >> 20}M", "--", PYTHON, brood(tmp_path),
                cwd=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("options", [[], ["--no-unique"]], ids=["unique", "no unique"])
def test_peak_without_a_cgroup_includes_all_processes_of_the_job(tmp_path, options):
    def all_sampled():
        """Returns whether the last sample of each child is at most 1 MiB below the child's final size."""
        seen = {}
        for o in recorded(tmp_path / "ebb-runs" / "latest"):
            if o["type"] == "sample":
                seen[o["pid"]] = o.get("rss_bytes") or 0
        return all(seen.get(pid, 0) > rss - (1 << 20) for pid, rss in held)

    process = start(tmp_path, "--no-cgroup", *options, "--", PYTHON, brood(tmp_path))
    wait_for((tmp_path / "ready").exists, "every child to hold its memory")
    held = [tuple(map(int, line.split())) for line in (tmp_path / "ready").read_text().splitlines()]
    wait_for(all_sampled, "every child to be sampled")
    (tmp_path / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    doc = facts(tmp_path)
    assert doc["guard"]["cgroup"] is None
    assert doc["tree"]["peak_bytes"] >= CHILDREN * EACH_MIB << 20
    assert doc["ask_bytes"] >= doc["tree"]["peak_bytes"]


def test_suggested_memory_request_excludes_the_page_cache_of_a_file(tmp_path, ebb):
    with open(tmp_path / "dataset", "wb") as f:
        f.truncate(512 << 20)
    job = script(tmp_path, """
        with open("dataset", "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass
    """)
    assert ebb("run", "--", PYTHON, job, cwd=tmp_path).returncode == 0
    assert facts(tmp_path)["ask_bytes"] <= 192 << 20


def test_state_in_run_json_is_running_until_the_job_ends(tmp_path):
    process = start(tmp_path, "--name", "my job/..", "--", "sleep", "30")
    path = wait_for(lambda: list(tmp_path.glob("ebb-runs/*/run.json")), "run.json")[0]
    running = json.loads(path.read_text())
    assert running["state"] == "running" and running["command"] == ["sleep", "30"]
    assert "/" not in path.parent.name and path.parent.parent == tmp_path / "ebb-runs"
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    ended = json.loads(path.read_text())
    assert ended["state"] == "ended" and ended["end"]["signal"] == "TERM"
    assert (tmp_path / "ebb-runs/latest").resolve() == path.parent.resolve()


def test_roles_of_launcher_and_main_process_are_recorded(tmp_path):
    job = script(tmp_path, """
        import os, time
        x = bytearray(50 << 20)
        while not os.path.exists("go"):
            time.sleep(0.05)
    """)
    process = start(tmp_path, "--interval", "50ms", "--", "bash", "-c",
                    f"sleep 0.5; '{PYTHON}' '{job}'; true")
    wait_for(lambda: any(o["type"] == "process" and o["comm"].startswith("python") and
                         o["role"] == "main" for o in recorded(tmp_path / "ebb-runs/latest")),
             "the main process in the recording")
    (tmp_path / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    roles = {(p["name"], p["role"]) for p in facts(tmp_path)["processes"]}
    assert ("bash", "launcher") in roles
    assert any(name.startswith("python") and role == "main" for name, role in roles), roles


def test_run_summary_is_text_or_json_or_nothing_as_requested(tmp_path, ebb):
    result = ebb("run", "--", "sleep", "0.3", cwd=tmp_path)
    assert "finished in " in result.stderr
    assert "ebb-runs/sleep-" in result.stderr
    result = ebb("run", "--json", "--", "sleep", "0.1", cwd=tmp_path)
    end = json.loads(result.stderr)["end"]
    assert len(end.pop("last_samples")) >= 1
    assert end == {"kind": "exited", "status": 0, "left_behind": 0, "cause": "finished",
                   "cause_kind": "finished"}
    assert ebb("run", "-q", "--", "true", cwd=tmp_path).stderr == ""


# ---- ends of the job ----

@pytest.mark.parametrize("victim", ["client", "supervisor"])
def test_job_is_ended_if_any_process_of_ebb_is_killed(tmp_path, victim):
    job = script(tmp_path, """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    open(f"grand-{os.getpid()}", "w")
                    time.sleep(600)
                time.sleep(600)
        open("ready", "w")
        time.sleep(600)
    """)
    process = start(tmp_path, "--", PYTHON, job)
    wait_for(lambda: (tmp_path / "ready").exists() and len(list(tmp_path.glob("grand-*"))) == 3,
             "the job and its grandchildren")
    run_json = wait_for(lambda: list(tmp_path.glob("ebb-runs/*-*/run.json")), "run.json")[0]
    doc = json.loads(run_json.read_text())
    pids = [doc["pid"]] + [int(path.name[6:]) for path in tmp_path.glob("grand-*")]
    assert all(map(alive, pids))
    os.kill(process.pid if victim == "client" else doc["supervisor_pid"], signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not any(map(alive, pids + [doc["supervisor_pid"]])), "the end of the job")
    wait_for(lambda: not os.path.exists(os.path.dirname(doc["socket"])), "no socket to be left")
    ended = wait_for(lambda: (lambda d: d if d["state"] == "ended" else None)(
        json.loads(run_json.read_text())), "run.json to say so")
    if victim == "supervisor":
        assert process.returncode == 125
        assert ended["end"]["kind"] == "lost" and ended["end"]["left_behind"] == 7
    else:
        assert ended["end"]["by"] == "the death of ebb run"
    table = run_ebb("export", run_json.parent, "--csv")
    assert table.returncode == 0 and str(doc["pid"]) in table.stdout


def test_ctrl_c_reaches_the_process_group_and_ebb_waits_for_the_job(tmp_path):
    process = start(tmp_path, "--", "bash", "-c",
                    "trap 'echo cleaning; sleep 0.3; echo cleaned; exit 7' INT; "
                    "touch ready; while :; do sleep 0.05; done")
    wait_for(lambda: (tmp_path / "ready").exists(), "the job")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7
    assert out == "cleaning\ncleaned\n"


def test_signal_sent_while_the_job_starts_reaches_the_job(tmp_path):
    job = "trap 'exit 7' INT; kill -INT $(cat client); while :; do sleep 0.05; done"
    command = f"echo $$ > client; exec '{binary()}' run -q --no-record -- sh -c \"$JOB\""
    for _ in range(20):
        result = subprocess.run(["sh", "-c", command], cwd=tmp_path, timeout=PATIENCE_S,
                                env=environment({"JOB": job}), stdin=subprocess.DEVNULL)
        assert result.returncode == 7


# ---- failures of ebb itself ----

def test_full_disk_is_reported_once_and_job_continues(tmp_path, request):
    if os.geteuid() != 0 or subprocess.run(
            ["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("a small file system cannot be mounted on this machine")
    small = tmp_path / "small"
    small.mkdir()
    command = (f"mount -t tmpfs -o size=300k none '{small}' && cd '{small}' && "
               f"'{binary()}' run --interval 50ms --run-dir '{small}/run' -- sh -c "
               f"'head -c 1000000 /dev/zero | tr \"\\\\0\" x; sleep 2; echo; echo done'")
    result = subprocess.run(["unshare", "-m", "bash", "-c", command], env=environment(),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=PATIENCE_S)
    assert result.returncode == 0
    assert result.stdout.endswith("\ndone\n") and result.stdout.count("x") == 1000000
    assert result.stderr.count("No space left") >= 1
    assert result.stderr.count("cannot write the recording") <= 1


def test_job_in_an_unwritable_folder_runs_without_a_recording(open_folder, ebb_as_nobody):
    open_folder.chmod(0o555)
    result = ebb_as_nobody("run", "--", "echo", "fine")
    assert (result.returncode, result.stdout) == (0, "fine\n")
    assert "without a recording" in result.stderr


def test_job_in_a_removed_folder_runs_without_a_recording(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    result = subprocess.run(["sh", "-c", f"cd '{gone}' && rmdir '{gone}' && exec '{binary()}' run "
                             "-q -- echo fine"], env=environment(), capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout) == (0, "fine\n")
    assert "No such file or directory; the job runs without a recording" in result.stderr


def test_existing_run_folder_is_refused_before_the_job_starts(tmp_path, ebb):
    (tmp_path / "there").mkdir()
    result = ebb("run", "--run-dir", tmp_path / "there", "--", "touch", tmp_path / "started")
    assert refused_with(result, str(tmp_path / "there"), status=125)
    assert not (tmp_path / "started").exists()


def test_unwritable_run_folder_is_refused_before_the_job_starts(open_folder, ebb_as_nobody):
    locked = open_folder / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    result = ebb_as_nobody("run", "--run-dir", locked / "run", "--", "touch", open_folder / "x")
    assert refused_with(result, str(locked / "run"), "Permission denied", status=125)
    assert not (open_folder / "x").exists()


def test_run_folder_whose_parent_is_a_file_is_refused(tmp_path, ebb):
    (tmp_path / "file").write_text("")
    result = ebb("run", "--run-dir", tmp_path / "file" / "run", "--", "true")
    assert refused_with(result, str(tmp_path / "file"), status=125)


def test_run_command_works_for_an_unprivileged_user(ebb_as_nobody, open_folder):
    result = ebb_as_nobody("run", "--interval", "50ms", "--", "sleep", "2")
    assert result.returncode == 0, result.stderr
    doc = json.loads((open_folder / "ebb-runs/latest/run.json").read_text())
    assert doc["processes"][0]["peak_bytes"] > 0


# ---- invalid requests ----

def test_run_of_a_missing_program_exits_with_127(tmp_path, ebb):
    result = ebb("run", "--", "no-such-command-anywhere", cwd=tmp_path)
    assert refused_with(result, "no-such-command-anywhere", status=127)
    assert not (tmp_path / "ebb-runs").exists()
    assert refused_with(ebb("run", "--", "./missing", cwd=tmp_path), "./missing", status=127)


def test_unreadable_folder_on_the_search_path_is_skipped(open_folder, ebb_as_nobody):
    (open_folder / "locked").mkdir(mode=0)
    result = ebb_as_nobody("run", "--", "no-such-command-anywhere",
                           env={"PATH": f"{open_folder}/locked:/usr/bin:/bin"})
    (open_folder / "locked").chmod(0o755)
    assert refused_with(result, "command not found", status=127)


def test_run_of_a_non_executable_file_exits_with_126(tmp_path, ebb):
    (tmp_path / "text").write_text("not a program")
    assert refused_with(ebb("run", "--", "./text", cwd=tmp_path), "./text", status=126)
    assert refused_with(ebb("run", "--", "/", cwd=tmp_path), "/", status=126)


def test_run_of_a_program_rejected_by_the_kernel_exits_with_126(tmp_path, ebb):
    bad = tmp_path / "bad"
    bad.write_bytes(b"\x7fELF" + b"\0" * 100)
    bad.chmod(0o755)
    result = ebb("run", "--", "./bad", cwd=tmp_path)
    assert result.returncode == 126
    assert "./bad" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["0", "-1s", "abc", "", "1ms", "2d"])
def test_invalid_interval_is_refused(tmp_path, ebb, value):
    result = ebb("run", "--interval", value, "--", "touch", "started", cwd=tmp_path)
    assert refused_with(result, f'"{value}"', status=125)
    assert not (tmp_path / "started").exists()


def test_run_without_command_or_with_unknown_option_exits_with_125(tmp_path, ebb):
    assert refused_with(ebb("run", cwd=tmp_path), "command missing", status=125)
    assert refused_with(ebb("run", "--bogus", "--", "true", cwd=tmp_path), "--bogus", status=125)


def test_options_after_the_command_are_passed_to_the_job(tmp_path, ebb):
    assert ebb("run", "-q", "echo", "--interval", "-q", cwd=tmp_path).stdout == "--interval -q\n"


# ---- jobs on a terminal ----

@pytest.fixture
def terminal(tmp_path):
    """Starts a separate tmux with one shell."""
    assert shutil.which("tmux"), "tmux is installed by scripts/setup.sh test"
    socket = str(tmp_path / "tmux")

    def tmux(*arguments):
        return subprocess.run(["tmux", "-S", socket, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment(),
                              timeout=PATIENCE_S)

    class Terminal:
        def type(self, text, enter=True):
            tmux("send-keys", "-t", "t", "-l", text)
            if enter:
                tmux("send-keys", "-t", "t", "Enter")

        def key(self, name):
            tmux("send-keys", "-t", "t", name)

        def screen(self):
            return tmux("capture-pane", "-p", "-t", "t").stdout

        def resize(self, columns, lines):
            tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(lines))

        def wait(self, text):
            wait_for(lambda: text in self.screen(), f"{text!r} on the screen:\n{self.screen()}")

    tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "100", "-y", "30",
         "-c", str(tmp_path), "env PS1='$ ' bash --norc --noprofile")
    shell = Terminal()
    shell.wait("$")
    yield shell
    tmux("kill-server")


def test_job_started_on_a_terminal_has_a_controlling_terminal(terminal, tmp_path):
    terminal.type(f"'{binary()}' run -q -- sh -c 'test -t 0 && test -t 1 && test -t 2 && "
                  "echo all-$((40+2))-terminal; tty; stty size'")
    terminal.wait("all-42-terminal")
    terminal.wait("30 100")


def test_interactive_job_reads_typed_input(terminal):
    terminal.type(f"'{binary()}' run -q -- {PYTHON} -i -q")
    terminal.wait(">>>")
    terminal.type("print(6 * 7 * 1000)")
    terminal.wait("42000\n>>>")
    terminal.key("C-d")
    wait_for(lambda: sum(line.startswith("$") for line in terminal.screen().splitlines()) == 2,
             "the shell to be back")
    terminal.type("stty -a | grep -c ' icanon'; echo back-$((1+1))")
    terminal.wait("back-2")
    assert "\n1\nback-2" in terminal.screen()


def test_ctrl_c_on_terminal_interrupts_job_and_prints_summary(terminal, tmp_path):
    terminal.type(f"'{binary()}' run -- sleep 600; echo status-$?")
    wait_for(lambda: list(tmp_path.glob("ebb-runs/*-*/run.json")), "the start")
    terminal.key("C-c")
    terminal.wait(f"status-{128 + signal.SIGINT}")
    assert "INT" in terminal.screen()


def test_ctrl_z_suspends_job_and_ebb_until_fg_resumes_both(terminal, tmp_path):
    # The job must be a single process. If it were a shell, Ctrl-Z could stop the shell's child before exec, and the
    # shell would then wait for that child instead of stopping itself.
    (tmp_path / "loop.py").write_text("import os, time\nprint('begun', flush=True)\n"
                                      "while not os.path.exists('go'):\n    time.sleep(0.05)\n"
                                      "print('finished')\n")
    terminal.type(f"'{binary()}' run -q -- '{PYTHON}' loop.py")
    terminal.wait("begun")
    terminal.key("C-z")
    terminal.wait("Stopped")
    (tmp_path / "go").touch()
    assert "finished" not in terminal.screen()
    terminal.type("fg")
    terminal.wait("finished")


def test_change_of_the_window_size_is_passed_on_to_the_job(terminal):
    terminal.type(f"'{binary()}' run -q -- bash -c 'echo rea\"\"dy; while sleep 0.1; do stty size; "
                  "done'")
    terminal.wait("ready")
    terminal.resize(71, 23)
    terminal.wait("23 71")
    terminal.key("C-c")


def test_escape_codes_in_a_job_name_do_not_reach_the_terminal(tmp_path, ebb):
    evil = tmp_path / "evil\x1b[31m\n) R 1"
    shutil.copy(shutil.which("sleep"), evil)
    evil.chmod(evil.stat().st_mode | stat.S_IXUSR)
    result = ebb("run", "--interval", "50ms", "--", evil, "0.5", cwd=tmp_path)
    assert result.returncode == 0
    assert "\x1b" not in result.stderr
    shown = ebb("show", cwd=tmp_path)
    assert "\x1b" not in shown.stdout and "\\e[31m" in shown.stdout


def test_planned_restart_is_not_reported_as_out_of_memory(ebb, tmp_path):
    job = ('"$0" mark KIND=step STEP=$((2 * EBB_SEGMENT + 1)); '
           'if [ "$EBB_SEGMENT" = 1 ]; then exit 0; fi; '
           '"$0" mark KIND=step STEP=2; exec sleep 600')
    result = ebb("run", "--quiet", "--restart-every", "2steps", "--run-dir", tmp_path / "r", "--",
                 "sh", "-c", job, binary())
    assert result.returncode == 0, result.stderr
    assert "stopping the job: a planned restart is due" in result.stderr
    assert "memory is running out" not in result.stderr
    segments = json.loads((tmp_path / "r" / "run.json").read_text())["segments"]
    assert [s["end"].get("by") for s in segments] == ["a planned restart", None]
