"""Tests the guard of `ebb run`: its actions at low headroom, checkpoint requests, and restarts from a checkpoint."""

import json
import shutil
import signal

import pytest

from commands import PYTHON, binary, plain, recorded, run_ebb, wait_for
from guarded import (LEAK, LINES, TRAINER, acts, enough_memory, guarded, neighbours, script,
                     trainer)

pytestmark = plain
STOPPED = 124


def stopped_by_guard(doc):
    return doc["end"]["by"] == "the guard" and doc["end"]["cause_kind"] == "guard"


# ---- order of the actions ----

def test_guard_warns_then_requests_a_checkpoint_then_stops_the_job(guarded):
    result = guarded.run(*LINES, *trainer("steps=3000", "save_ms=300", "checkpoint=saved"))
    doc = guarded.facts()
    assert result.returncode == STOPPED, result.stderr
    assert acts(doc) == ["warn", "ask", "checkpoint", "term"]
    assert {event["trigger"] for event in doc["guard"]["events"]} <= {"level", "pace", "forecast"}
    assert all(event["why"] and event["segment"] == 0 and not event["dry_run"]
               for event in doc["guard"]["events"])
    times = [event["t_s"] for event in doc["guard"]["events"]]
    assert times == sorted(times) and times[0] > 0
    assert stopped_by_guard(doc) and doc["end"]["status"] == STOPPED
    assert doc["end"]["signal"] == "TERM" and doc["end"]["cause"].startswith("stopped by the guard")
    assert "not_restarted" not in doc["guard"]
    assert "guard: stopping the job" in result.stderr


def test_guard_actions_are_in_run_json_and_recording(guarded):
    guarded.run(*LINES, *trainer("steps=3000", "save_ms=300", "checkpoint=saved"))
    doc = guarded.facts()
    guard = doc["guard"]
    assert guard["on"] and not guard["dry_run"] and guard["limit_is_given"]
    assert guard["limit_bytes"] == 200 << 20 and guard["reserve_bytes"] == 100 << 20
    assert guard["kernel_limit"] == (guard["cgroup"] is not None
                                     and guard["cgroup_trouble"] is None)
    assert guarded.notes("guard") == guard["events"]
    saved = int((guarded.folder / "saved").read_text())
    checkpoint, = guard["checkpoints"]
    assert checkpoint["id"] == 1 and checkpoint["segment"] == 0
    assert checkpoint["heard_by"] == "mark" and checkpoint["path"] == "saved"
    assert checkpoint["step"] == saved and checkpoint["took_s"] >= 0.3
    segment, = doc["segments"]
    assert segment["checkpoint_step"] == saved and segment["first_step"] == 1
    assert segment["last_step"] >= saved and segment["end"] == doc["end"]
    assert 90 << 20 <= segment["peak_bytes"] < 200 << 20
    assert len(doc["end"]["last_samples"]) > 1


def test_run_json_has_the_memory_freed_at_job_end(guarded):
    guarded.run(*LINES, *trainer("steps=10", "base_mib=90"))
    given = guarded.facts()["given_back"]
    assert given["gpus"] is not None
    for figure in (given["host"], given["shm"]):
        assert figure["before_bytes"] > 0 and figure["after_bytes"] > 0
        assert figure["peak_bytes"] >= figure["before_bytes"]
        assert figure["freed_bytes"] == max(0, figure["peak_bytes"] - figure["after_bytes"])


def test_job_that_ignores_sigterm_is_killed_after_grace_period(guarded):
    result = guarded.run(*LINES, "--grace", "500ms", *trainer("steps=3000", "ignore_term=1"))
    doc = guarded.facts()
    assert result.returncode == STOPPED
    assert acts(doc)[-2:] == ["term", "kill"] and stopped_by_guard(doc)
    assert doc["end"]["signal"] == "KILL"


def test_job_that_exits_during_a_checkpoint_keeps_its_exit_status(guarded):
    result = guarded.run(*LINES, "--restart",
                         *trainer("steps=3000", "save_ms=300", "die=1", "checkpoint=saved"))
    doc = guarded.facts()
    assert result.returncode == 3 and doc["end"]["kind"] == "exited"
    assert doc["end"]["cause_kind"] == "exit status" and "by" not in doc["end"]
    assert "ask" in acts(doc) and not {"checkpoint", "term", "kill"} & set(acts(doc))
    assert doc["guard"]["checkpoints"] == [] and len(doc["segments"]) == 1
    assert not (guarded.folder / "saved").exists()


def test_checkpoint_request_without_a_response_times_out(guarded):
    result = guarded.run(*LINES, "--checkpoint-wait", "1s", *trainer("steps=3000", "mute=1"))
    doc = guarded.facts()
    assert result.returncode == STOPPED and acts(doc) == ["warn", "ask", "term"]
    assert "no checkpoint within" in doc["end"]["cause"]
    assert doc["guard"]["checkpoints"] == [] and doc["segments"][0]["checkpoint_step"] is None


def test_job_whose_checkpoint_failed_is_stopped_at_the_limit(guarded):
    result = guarded.run(*LINES, *trainer("steps=3000", "fail=1"))
    doc = guarded.facts()
    assert result.returncode == STOPPED
    assert acts(doc) == ["warn", "ask", "checkpoint failed", "term"]
    assert doc["guard"]["checkpoints"] == []
    assert "checkpoint failed: the job reported a failure" in result.stderr


def test_job_that_starts_above_its_limit_is_stopped_at_once(guarded):
    result = guarded.run("--limit", "50M", "--no-cgroup", "--interval", "100ms", "--restart",
                         *trainer("steps=3000", "base_mib=150"))
    doc = guarded.facts()
    assert result.returncode == STOPPED and stopped_by_guard(doc)
    assert {"term", "kill"} & set(acts(doc))
    assert len(doc["segments"]) <= 2
    assert "not restarted" in result.stderr and doc["guard"]["not_restarted"]


def test_job_that_starts_above_its_cgroup_limit_is_stopped(guarded):
    result = guarded.run("--limit", "50M", "--interval", "100ms",
                         *trainer("steps=3000", "base_mib=150"))
    doc = guarded.facts()
    by_kernel = (128 + signal.SIGKILL, "cgroup out of memory")
    assert (result.returncode, doc["end"]["cause_kind"]) in ((STOPPED, "guard"), by_kernel)


def stops_without_cgroup(result, doc):
    assert result.returncode == STOPPED, result.stderr
    assert acts(doc) == ["warn", "ask", "checkpoint", "term"] and stopped_by_guard(doc)
    assert not doc["guard"]["kernel_limit"]
    assert doc["guard"]["cgroup"] is None and doc["guard"]["cgroup_trouble"]
    return True


def test_guard_actions_are_the_same_under_option_no_cgroup(guarded):
    result = guarded.run(*LINES, "--no-cgroup", *trainer("steps=3000"))
    doc = guarded.facts()
    assert stops_without_cgroup(result, doc)
    assert doc["guard"]["cgroup_trouble"] == "--no-cgroup"


def test_guard_actions_are_the_same_if_no_cgroup_can_be_created(guarded, open_folder, ebb_as_nobody):
    program = shutil.copy(TRAINER, open_folder / "trainer")
    result = ebb_as_nobody("run", *LINES, "--", program, *LEAK, "steps=3000",
                           env=guarded.changes())
    doc = json.loads((open_folder / "ebb-runs/latest/run.json").read_text())
    guarded.seen.add(doc["supervisor_pid"])
    if doc["guard"]["cgroup"] is not None:
        pytest.skip(f"this user may create cgroups: {doc['guard']['cgroup']}")
    assert stops_without_cgroup(result, doc)


@pytest.mark.parametrize("where", [[], ["--no-cgroup"]], ids=["cgroup", "no cgroup"])
def test_guard_detects_growth_of_a_job_with_short_lived_processes(guarded, where):
    job = script(guarded.folder, """
        import os, sys, time
        kept, begun = [bytearray(b"x") * (60 << 20)], time.monotonic()
        until, last = begun + 150, begun
        for _ in range(10000):
            now = time.monotonic()
            if now > until:
                break
            pid = os.fork()
            if pid == 0:
                if os.fork() == 0:    # nobody waits for this one
                    os._exit(0)
                os._exit(0)
            # 20 MiB/s, however long a fork takes
            kept.append(bytearray(b"x") * int(min((now - last) * (20 << 20), 4 << 20)))
            last = now
            time.sleep(0.005)
            os.waitpid(pid, 0)
        sys.exit("the guard did not stop it")
    """)
    result = guarded.run(*LINES, *where, "--", PYTHON, job)
    doc = guarded.facts()
    assert result.returncode == STOPPED, result.stderr
    assert stopped_by_guard(doc) and acts(doc)[:1] == ["warn"]
    assert doc["processes_seen"] > 1
    # The peak of a single process is measured by the kernel.
    assert 60 << 20 < doc["peak_process_bytes"] < 200 << 20
    # Without a cgroup the peak is only an upper bound: pages that a running child shares with its parent are counted
    # twice.
    if doc["guard"]["cgroup"]:
        assert doc["segments"][0]["peak_bytes"] < 200 << 20


# ---- disabled actions ----

# A trainer that grows to 140 MiB, where its headroom is below the reserve but above the SIGTERM threshold, and that
# ends once the file "enough" exists.
FINISHES = ("steps=100", "leak_kib=512", "until=enough")


def run_until(guarded, said, *arguments):
    """Runs a job and ends it once ebb has printed the text SAID."""
    with open(guarded.folder / "said", "w") as stderr:
        client = guarded.start(*arguments, stderr=stderr)
    wait_for(lambda: said in (guarded.folder / "said").read_text() or client.poll() is not None, said)
    (guarded.folder / "enough").touch()
    result = guarded.end(client)
    result.stderr = (guarded.folder / "said").read_text()
    return result


def test_guard_in_dry_run_prints_its_actions_but_takes_none(guarded):
    result = run_until(guarded, "guard: (dry run) stopping the job", *LINES, "--dry-run",
                       *trainer("steps=150", "leak_kib=512", "save_ms=100", "checkpoint=saved",
                                "until=enough"))
    doc = guarded.facts()
    assert result.returncode == 0 and doc["end"]["cause_kind"] == "finished"
    assert {"warn", "ask", "term"} <= set(acts(doc)) and "checkpoint" not in acts(doc)
    assert doc["guard"]["dry_run"] and not doc["guard"]["kernel_limit"]
    assert all(event["dry_run"] for event in doc["guard"]["events"])
    assert "guard: (dry run) requesting a checkpoint" in result.stderr
    assert not (guarded.folder / "saved").exists()


def test_guard_takes_no_action_when_it_is_switched_off(guarded):
    result = guarded.run("--no-guard", *trainer("steps=50", "save_ms=100", "checkpoint=saved"))
    doc = guarded.facts()
    assert result.returncode == 0 and not doc["guard"]["on"]
    assert doc["guard"]["events"] == [] and guarded.notes("guard") == []
    assert not (guarded.folder / "saved").exists()


def test_guard_does_not_warn_when_warnings_are_disabled(guarded):
    guarded.run(*LINES, "--no-warn", *trainer("steps=3000"))
    assert acts(guarded.facts()) == ["ask", "checkpoint", "term"]


def test_guard_requests_no_checkpoint_when_checkpoints_are_disabled(guarded):
    result = guarded.run(*LINES, "--no-checkpoint",
                         *trainer("steps=3000", "leak_kib=512", "checkpoint=saved"))
    assert result.returncode == STOPPED and acts(guarded.facts()) == ["warn", "term"]
    assert not (guarded.folder / "saved").exists()


def test_guard_sends_sigkill_at_once_when_sigterm_is_disabled(guarded):
    result = guarded.run(*LINES, "--no-term", *trainer("steps=3000"))
    doc = guarded.facts()
    assert result.returncode == STOPPED and doc["end"]["signal"] == "KILL"
    assert acts(doc) == ["warn", "ask", "checkpoint", "kill"]


def test_job_that_ignores_sigterm_finishes_when_sigkill_is_disabled(guarded):
    result = run_until(guarded, "guard: stopping the job", *LINES, "--no-kill",
                       *trainer(*FINISHES, "ignore_term=1"))
    doc = guarded.facts()
    assert result.returncode == 0 and doc["end"]["cause_kind"] == "finished"
    assert "term" in acts(doc) and "kill" not in acts(doc)


def looks_at_level(folder):
    """Returns the number of samples in which a process has more than 120 MiB."""
    return sum(o.get("rss_bytes", 0) > 120 << 20 for o in recorded(folder))


def test_low_headroom_has_no_effect_if_every_trigger_is_disabled(guarded):
    client = guarded.start(*LINES, "--no-level", "--no-forecast", *trainer(*FINISHES))
    run, = wait_for(guarded.run_dirs, "run.json")
    wait_for(lambda: looks_at_level(run.parent) > 3, "looks at a high level")
    (guarded.folder / "enough").touch()
    result = guarded.end(client)
    assert result.returncode == 0 and acts(guarded.facts()) == []


# ---- ways to request a checkpoint ----

def one_checkpoint(guarded, result, by):
    doc = guarded.facts()
    assert result.returncode == STOPPED, result.stderr
    assert acts(doc) == ["warn", "ask", "checkpoint", "term"]
    assert [c["heard_by"] for c in doc["guard"]["checkpoints"]] == [by]
    return True


def test_checkpoint_requested_by_signal_is_confirmed_by_a_mark(guarded):
    result = guarded.run(*LINES, "--checkpoint-signal", "USR1",
                         *trainer("steps=3000", "usr1=1", "hello=0", "checkpoint=saved"))
    assert one_checkpoint(guarded, result, "mark")
    assert int((guarded.folder / "saved").read_text()) > 0


def test_checkpoint_requested_by_signal_is_confirmed_by_a_file(guarded):
    result = guarded.run(*LINES, "--checkpoint-signal", "USR1", "--checkpoint-done", "saved",
                         *trainer("steps=3000", "usr1=1", "marks=0", "checkpoint=saved"))
    assert one_checkpoint(guarded, result, "file")


def test_checkpoint_signal_is_not_sent_to_a_job_without_a_handler(guarded):
    result = guarded.run(*LINES, "--checkpoint-signal", "USR1",
                         *trainer("steps=3000", "hello=0", "leak_kib=512"))
    doc = guarded.facts()
    assert "has no handler for SIGUSR1" in result.stderr
    assert result.returncode == STOPPED and doc["end"]["signal"] == "TERM"
    assert doc["guard"]["checkpoints"] == []


def test_exit_of_the_checkpoint_command_confirms_the_checkpoint(guarded):
    result = guarded.run(*LINES, "--checkpoint-cmd", "echo $EBB_CHECKPOINT_ID > asked",
                         *trainer("steps=3000", "hello=0"))
    assert one_checkpoint(guarded, result, "command")
    assert (guarded.folder / "asked").read_text() == "1\n"


def test_checkpoint_is_complete_if_done_file_appears_after_command_exit(guarded):
    result = guarded.run(*LINES, "--checkpoint-cmd", "(sleep 0.5; touch made) &",
                         "--checkpoint-done", "made", *trainer("steps=3000", "hello=0"))
    assert one_checkpoint(guarded, result, "file")


def test_failing_checkpoint_command_is_recorded_as_a_failure(guarded):
    result = guarded.run(*LINES, "--checkpoint-cmd", "exit 3",
                         *trainer("steps=3000", "hello=0", "leak_kib=512"))
    assert result.returncode == STOPPED
    assert acts(guarded.facts()) == ["warn", "ask", "checkpoint failed", "term"]


# ---- restarts ----

MORE = 10  # Enough steps for the test, but too few for another planned restart.


def in_segments(count, *settings, first=":"):
    """Returns a trainer for COUNT segments. MORE is the number of steps of the last segment; each earlier segment
    trains until it is stopped. FIRST is a shell command executed before each segment."""
    steps = f"""
        if [ "$EBB_SEGMENT" -lt {count - 1} ]; then steps=100000
        else [ -e steps ] || echo $(($(cat saved) + {MORE})) > steps; steps=$(cat steps); fi
    """
    return ["--", "sh", "-c", f"{first}; {steps} exec '{TRAINER}' {' '.join(settings)} "
            "checkpoint=saved steps=$steps", "sh"]


def steps_in_all(guarded):
    return int((guarded.folder / "steps").read_text())


def environments(guarded):
    return [line.split(",") for line in (guarded.folder / "environments").read_text().splitlines()]


def test_leaking_job_finishes_after_several_restarts(guarded):
    note = 'echo "$EBB_SEGMENT,$EBB_RESUME,$EBB_LIMIT_BYTES,$*" >> environments'
    result = guarded.run(*LINES, "--restart", "--resume-args", "--resume 'two words'",
                         *in_segments(3, *LEAK, "save_ms=100", first=note))
    doc = guarded.facts()
    segments = doc["segments"]
    assert result.returncode == 0, result.stderr
    last = steps_in_all(guarded)
    assert len(segments) >= 3 and f"trainer: done, {last} steps" in result.stdout
    assert environments(guarded)[0] == ["0", "", str(200 << 20), ""]
    assert environments(guarded)[1:] == [[str(n), "1", str(200 << 20), "--resume two words"]
                                 for n in range(1, len(segments))]
    assert [s["segment"] for s in segments] == list(range(len(segments)))
    for before, after in zip(segments, segments[1:]):
        assert before["end"]["by"] == "the guard" and before["end"]["cause_kind"] == "guard"
        assert after["first_step"] == before["checkpoint_step"] + 1
        assert f"trainer: from step {before['checkpoint_step']}" in result.stdout
    assert segments[-1]["last_step"] == last and segments[-1]["end"] == doc["end"]
    assert doc["end"]["cause_kind"] == "finished" and doc["segment"] == len(segments) - 1
    assert doc["pid"] == segments[-1]["pid"] and doc["marks"]["last_step"] == last
    assert [note["segment"] for note in guarded.notes("segment")] == list(range(1, len(segments)))
    assert guarded.notes("guard") == doc["guard"]["events"]


def test_recorded_verdict_of_a_restarted_job_equals_live_verdict(guarded):
    guarded.run(*LINES, "--restart", *in_segments(2, *LEAK, "save_ms=100"))
    doc = guarded.facts()
    assert len(doc["segments"]) >= 2
    again = run_ebb("verdict", "--json", guarded.run_dirs()[0].parent)
    assert json.loads(again.stdout) == doc["verdict"]
    last = len(doc["segments"]) - 1
    assert doc["verdict"]["segment"] == last
    assert f"· measured in segment {last}" in run_ebb("verdict", guarded.run_dirs()[0].parent).stdout


def test_job_is_not_restarted_more_often_than_max_restarts(guarded):
    result = guarded.run(*LINES, "--restart", "--max-restarts", "1",
                         *trainer("steps=3000", "checkpoint=saved"))
    doc = guarded.facts()
    assert result.returncode == STOPPED and len(doc["segments"]) == 2
    assert doc["guard"]["not_restarted"] == "the job was already restarted 1 time (--max-restarts)"
    assert "ebb: not restarted: the job was already restarted 1 time" in result.stderr


def test_job_without_progress_since_a_restart_is_not_restarted(guarded):
    result = guarded.run(*LINES, "--restart", "--", "sh", "-c",
                         f"'{binary()}' mark KIND=step STEP=5; "
                         f"exec '{TRAINER}' base_mib=160 marks=0 steps=3000")
    doc = guarded.facts()
    assert result.returncode == STOPPED and len(doc["segments"]) == 2
    assert (doc["guard"]["not_restarted"] ==
            "segment 1 made no progress: it reached step 5, but an earlier segment reached step 5")


def test_job_stopped_without_checkpoint_is_not_restarted(guarded):
    result = guarded.run(*LINES, "--restart", *trainer("base_mib=160", "marks=0", "steps=3000"))
    doc = guarded.facts()
    assert result.returncode == STOPPED and len(doc["segments"]) == 1
    assert "before its first step or checkpoint" in doc["guard"]["not_restarted"]


@pytest.mark.parametrize("every, leak", [
    ("20steps", ("base_mib=10",)),
    ("1s", ("base_mib=10",)),
    ("60M", ("base_mib=20", "leak_kib=1024")),
])
def test_job_with_planned_restarts_completes_all_steps(guarded, every, leak):
    result = guarded.run("--restart-every", every, "--max-restarts", "100", "--interval", "100ms",
                         *in_segments(3, *leak, "save_ms=20"))
    doc = guarded.facts()
    assert result.returncode == 0, result.stderr
    assert len(doc["segments"]) >= 3
    assert doc["segments"][-1]["last_step"] == steps_in_all(guarded)
    for segment in doc["segments"][:-1]:
        assert segment["end"]["by"] == "a planned restart"
        assert segment["checkpoint_step"] is not None
    assert {event["trigger"] for event in doc["guard"]["events"]} == {"plan"}


def test_ctrl_c_ends_the_job_without_another_restart(guarded):
    client = guarded.start("--restart-every", "20steps", "--interval", "100ms", "--", "sh", "-c",
                           'if [ "$EBB_SEGMENT" = 1 ]; then touch second; exec sleep 300; fi; '
                           f"exec '{TRAINER}' steps=3000")
    guarded.wait_for_file("second")
    client.send_signal(signal.SIGINT)
    result = guarded.end(client)
    doc = guarded.facts()
    assert result.returncode == 128 + signal.SIGINT
    assert len(doc["segments"]) == 2 and "not_restarted" not in doc["guard"]
    assert doc["end"]["cause_kind"] == "operator"
