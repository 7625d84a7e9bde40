"""Tests the zoo's commands: a mistyped option prints one error line, Ctrl-C ends all child processes, and a full disk
destroys no table."""

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap

import pytest

from commands import PATIENCE_S, ROOT, environment, wait_for

sys.path.insert(0, str(ROOT / "zoo"))
import command
import table

RUN, UNSEEN = "zoo/run.py", "zoo/unseen/run.py"
OVERHEAD, DIAGNOSIS, PEERS = "zoo/overhead.py", "zoo/diagnosis.py", "bench/peers/peers.py"
INSIDE = "zoo/inside.py"


def stand_in(tmp_path, body):
    """Creates a shell script that replaces ebb; $DIR is the run folder."""
    path = tmp_path / "ebb"
    path.write_text(f"#!/bin/sh\n[ \"$1\" = run ] && DIR=$3\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return path


def start(script, *arguments, ebb="/bin/true", **how):
    env = environment({"EBB_BINARY": str(ebb), "ZOO_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"})
    return subprocess.Popen([sys.executable, script, *map(str, arguments)], cwd=ROOT, env=env, text=True,
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how})


def said_by(script, *arguments, **how):
    """Returns (status, stdout, stderr) of a script; checks that it printed no traceback."""
    process = start(script, *arguments, **how)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


@pytest.mark.parametrize("script, option", [
    (RUN, "--jobs"), (UNSEEN, "--jobs"), (OVERHEAD, "--pairs"), (OVERHEAD, "--lanes"), (PEERS, "--jobs"),
    (PEERS, "--rounds"), (PEERS, "--lanes"), (INSIDE, "--rounds"),
])
@pytest.mark.parametrize("number", ["0", "-2", "1.5", "many"])
def test_numeric_options_of_zoo_commands_refuse_values_below_one(script, option, number):
    status, _, err = said_by(script, f"{option}={number}")
    assert status == 2 and f"{option}: {number} is not a whole number from 1 on" in err


@pytest.mark.parametrize("script", [RUN, OVERHEAD, DIAGNOSIS, INSIDE])
def test_error_for_an_unknown_zoo_program_lists_the_known_programs(script):
    status, _, err = said_by(script, "no_such")
    assert status == 1 and "no program called no_such; there are arena_retention," in err
    assert max(map(len, err.splitlines())) <= 80


def test_peer_benchmark_refuses_an_unknown_tool_before_installing_tools():
    status, _, err = said_by(PEERS, "--only", "memray,no_such")
    assert status == 2 and "there is no tool 'no_such'; there are plain, ebb run, memray" in err


def test_missing_zoo_python_is_reported_in_one_line():
    status, _, err = said_by(PEERS, "--python", "/no/python")
    assert status == 2 and "/no/python has no torch" in err


@pytest.mark.parametrize("script", [RUN, UNSEEN, OVERHEAD, DIAGNOSIS, PEERS, INSIDE])
def test_zoo_error_for_a_missing_ebb_names_the_build_command(script):
    status, _, err = said_by(script, ebb="/no/ebb")
    assert status != 0 and "there is no /no/ebb; make builds it" in err


@pytest.mark.parametrize("script", [RUN, UNSEEN])
def test_option_judge_only_of_the_zoo_is_refused_without_recordings(script, tmp_path):
    status, out, err = said_by(script, "--judge-only", "--out", tmp_path / "none")
    assert status == 1 and out == "" and "without --judge-only they are made" in err
    assert not (tmp_path / "none").exists()


def test_zoo_reports_the_number_of_missing_recordings(tmp_path):
    run_dir = tmp_path / "c_buffer-leak"
    run_dir.mkdir()
    (run_dir / "trace.ebb").write_bytes(b"")
    ebb = stand_in(tmp_path, "echo 'ebb: it is empty' >&2; exit 2\n")
    status, _, err = said_by(RUN, "--judge-only", "--out", tmp_path, ebb=ebb)
    assert status == 1 and "59 of 60 have no recording" in err and "c_buffer leak was not judged" in err
    status, _, err = said_by(RUN, "c_buffer", "--judge-only", "--out", tmp_path, ebb=ebb)
    assert status == 1 and "c_buffer fixed has no recording in" in err and "ebb: it is empty" in err


@pytest.mark.parametrize("script, names", [(RUN, ["c_buffer"]), (UNSEEN, ["--only", "dqn_replay"])])
def test_temporary_files_of_a_killed_zoo_program_are_removed(tmp_path, monkeypatch, script, names):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    ebb = stand_in(tmp_path, f"mktemp -d >> {tmp_path}/made; kill -9 $$")
    said_by(script, *names, "--out", tmp_path / "out", ebb=ebb)
    assert str(tmp_path / "tmp") in (tmp_path / "made").read_text()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_interrupted_zoo_program_leaves_no_folder(tmp_path):
    program = ("import signal, sys, time; sys.path.insert(0, 'zoo'); import common\n"
               # The test process may ignore SIGINT, and its children inherit this setting.
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "job = common.Job('about', '--leak', 'leak')\n"
               "print(job.folder, flush=True)\n"
               "time.sleep(600)\n")
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment({"TMPDIR": str(tmp_path)}),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline().startswith(f"{tmp_path}/zoo-")
        process.send_signal(signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script, names", [(RUN, ["c_buffer"]), (UNSEEN, ["--only", "dqn_replay"])])
@pytest.mark.parametrize("body, said", [
    ("echo 'ebb: cannot write the recording: No space left on device' >&2", "is not recorded whole: ebb: cannot"),
    ("echo 'ebb: trace.ebb cannot be written: No space' >&2", "is not recorded whole: ebb: trace.ebb cannot be"),
    ("echo 'ebb: run: no' >&2; exit 125", "ended with status 125: ebb: run: no"),
    ("mkdir -p $DIR; touch $DIR/log.txt; echo 'ImportError: no torch' >&2; exit 3",
     "ended with status 3: ImportError: no torch (see "),
    ("exit 4", "ended with status 4: no output"),
    ("echo 'zoo: not here: no cc' >&2; exit 77", "cannot run here: zoo: not here: no cc"),
])
def test_incomplete_zoo_recording_is_not_judged(tmp_path, script, names, body, said):
    status, out, err = said_by(script, *names, "--out", tmp_path / "out", ebb=stand_in(tmp_path, body))
    assert status == 1 and said in err and out == ""


@pytest.mark.parametrize("script, names", [(RUN, ["c_buffer"]), (UNSEEN, ["--only", "dqn_replay"])])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_zoo_ends_running_programs_and_starts_no_more(tmp_path, script, names, number):
    ebb = stand_in(tmp_path, f"mkdir {tmp_path}/$$\nexec sleep 1000\n")
    process = start(script, *names, "--jobs", "2", "--out", tmp_path / "out", ebb=ebb)

    def begun():
        return [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]

    wait_for(lambda: len(begun()) == 2, "two runs have begun")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and out == ""
    assert "interrupted, and no table is kept" in err and "Traceback" not in err
    assert len(begun()) == 2
    for pid in begun():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("script, names", [(RUN, ["c_buffer"]), (UNSEEN, ["--only", "dqn_replay"])])
def test_zoo_programs_cannot_read_from_the_terminal(tmp_path, script, names):
    master, slave = pty.openpty()
    try:
        ebb = stand_in(tmp_path, "[ -t 0 ] && echo 'ebb: has the keys' >&2; exit 5\n")
        status, _, err = said_by(script, *names, "--out", tmp_path / "out", ebb=ebb, stdin=slave)
    finally:
        os.close(master)
        os.close(slave)
    assert status == 1 and "ended with status 5" in err and "has the keys" not in err


def test_zoo_cleanup_removes_only_folders_of_earlier_runs(tmp_path, monkeypatch):
    mine, old = tmp_path / "mine", tmp_path / "old"
    for folder, file in ((mine, "notes.txt"), (old, "log.txt")):
        folder.mkdir()
        (folder / file).touch()
    command.clear(mine)
    command.clear(old)
    command.clear(tmp_path / "none")
    assert (mine / "notes.txt").exists() and not old.exists()

    def refuse(path):
        raise PermissionError(13, "Permission denied", "heap.1.ebbheap")

    old.mkdir()
    (old / "trace.ebb").touch()
    monkeypatch.setattr(command.shutil, "rmtree", refuse)
    with pytest.raises(OSError) as raised:
        command.clear(old)
    assert (raised.value.filename, raised.value.strerror) == (str(old), "cannot be removed: Permission denied")


def test_zoo_table_prints_no_error_if_the_pager_closes(tmp_path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = start(RUN, "--matrix", stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err == "" and process.returncode == 1


def test_zoo_table_is_printed_in_an_ascii_locale():
    done = subprocess.run([sys.executable, RUN, "--matrix"], cwd=ROOT, capture_output=True, text=True,
                          env=environment({"PYTHONIOENCODING": "ascii"}), timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and done.stderr == "" and "word right" in done.stdout


def test_zoo_table_wider_than_the_terminal_is_folded():
    widths = [10, 5, 20, 30, 8]
    assert command.folded(widths, 2, None) == [[0, 1, 2, 3, 4]]
    assert command.folded(widths, 2, 81) == [[0, 1, 2, 3, 4]]
    assert command.folded(widths, 2, 80) == [[0, 1, 2, 3], [0, 1, 4]]
    assert command.folded(widths, 2, 20) == [[0, 1, 2], [0, 1, 3], [0, 1, 4]]


def test_zoo_table_written_to_a_pipe_is_not_folded(capsys):
    command.print_table([["name", "x" * 90], ["a", "b"]], indent="  ")
    assert capsys.readouterr().out == f"  name  {'x' * 90}\n  a     b\n"


def test_zoo_table_stays_unchanged_if_it_cannot_be_rewritten(tmp_path, monkeypatch):
    path = tmp_path / "expected.json"
    table.keep({"x": {"word": "leaking"}}, path)
    before = path.read_text()

    def full(self, text):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_text", full)
    with pytest.raises(OSError):
        table.keep({"x": {"word": "stable"}}, path)
    assert path.read_text() == before and list(tmp_path.iterdir()) == [path]


PROGRAM = """
import common
job = common.Job("a program", "--fixed", "nothing")
job.begin()
for _ in range(job.max_steps):
    job.step(0)
job.end()
"""


def test_zoo_profiling_measures_all_steps_from_first_to_last(tmp_path):
    folder = tmp_path / "zoo" / "program"
    folder.mkdir(parents=True)
    for name in ("common.py", "place.py"):
        (folder.parent / name).symlink_to(ROOT / "zoo" / name)
    (folder / "main.py").write_text(PROGRAM)
    assert said_by(INSIDE, "--job", folder / "main.py", tmp_path / "found") == (0, "", "")
    found = json.loads((tmp_path / "found").read_text())
    assert found["steps"] == 300 and 0 < found["steps_cpu_ns"] < found["cpu_ns"]
    assert found["ns"]["marks"] > 0 and found["ns"]["hooks"] == found["ns"]["loaders"] == 0


def test_zoo_profiling_reports_a_program_that_cannot_run(tmp_path):
    status, out, _ = said_by(INSIDE, "c_buffer", "--rounds", "1", ebb=stand_in(tmp_path, "exit 3\n"))
    assert status == 1 and out == "c_buffer: cannot run here\n"
