"""Tests `ebb watch` with real processes: lines, JSON and the screen."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from attach_part import Installation
from commands import NOBODY, PATIENCE_S, binary, environment, wait_for


# ---- processes to watch, and their values in /proc ----

@contextlib.contextmanager
def job(*command, **options):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def python(code, *arguments, **options):
    """Starts a Python process. The code prints "ready" and, optionally, more words; ready() waits for that line."""
    return job(sys.executable, "-c", textwrap.dedent(code), *arguments, **options)


def ready(process):
    line = process.stdout.readline().decode()
    assert line.startswith("ready"), line
    return line.split()[1:]


QUIET = "import time; print('ready', flush=True); time.sleep(600)"

FAMILY = """
    import subprocess, sys, time
    hold = "import sys, time; x = b'x' * (int(sys.argv[1]) << 20); print(flush=True); time.sleep(600)"
    kids = [subprocess.Popen([sys.executable, "-c", hold, str(n)], stdout=subprocess.PIPE)
            for n in (5, 60, 20)]
    for kid in kids:
        kid.stdout.readline()
    print("ready", *(kid.pid for kid in kids), flush=True)
    time.sleep(600)
"""

# A program that sets its process name by prctl(PR_SET_NAME), at most 15 bytes.
NAMED = """
    import ctypes, sys, time
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode("latin-1"), 0, 0, 0)
    print("ready", flush=True)
    time.sleep(600)
"""


def rss_bytes(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def sleeps(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def watched_while_still(ebb, pids, *options):
    """Watches PIDS[0] while the RSS of all PIDS is constant; returns the result and the values from /proc. The values
    may change shortly after the start: the interpreter touches a few pages after a print, and the kernel may reclaim
    some."""
    def look():
        if not all(map(sleeps, pids)):
            return None
        before = {pid: rss_bytes(pid) for pid in pids}
        result = ebb("watch", "--pid", pids[0], *options)
        return (result, before) if before == {pid: rss_bytes(pid) for pid in pids} else None
    return wait_for(look, "processes that hold still")


def ticks_of(result):
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [o["type"] for o in objects[:-1]] == ["tick"] * (len(objects) - 1)
    assert objects[-1]["type"] == "summary"
    return objects[:-1], objects[-1]


# ---- lines and JSON ----

def test_watch_without_a_terminal_prints_one_line_per_sample(ebb):
    with python(FAMILY) as process:
        kids = ready(process)
        result = ebb("watch", "--pid", process.pid, "--interval", "100ms", "--for", "3s")
    lines = result.stdout.splitlines()
    looks = [line for line in lines if re.match(r"\d+\.\d s  job ", line)]
    assert result.returncode == 0, result.stderr
    assert 2 <= len(looks) <= 32
    assert all("4 processes" in line for line in looks)
    assert all(f"largest {kids[1]} " in line for line in looks)
    assert "the job is still running" in result.stdout and "stopped by --for" in result.stdout
    assert len(lines) - len(looks) <= 25


def test_first_line_of_watch_has_no_verdict(ebb):
    with python(QUIET) as process:
        ready(process)
        text = ebb("watch", "--pid", process.pid, "--for", "500ms").stdout.splitlines()[0]
        tick = json.loads(ebb("watch", "--pid", process.pid, "--for", "500ms", "--json").stdout.splitlines()[0])
    assert re.match(r"\d+\.\d s  job ", text) and "verdict" not in text
    assert tick["tree"]["verdict"] is None


def test_watch_json_of_an_idle_process_matches_proc(ebb):
    with python(QUIET) as process:
        ready(process)
        result, truth = watched_while_still(ebb, [process.pid], "--interval", "100ms", "--for",
                                            "500ms", "--json")
    before = truth[process.pid]
    ticks, summary = ticks_of(result)
    for tick in ticks:
        (row,) = tick["processes"]
        assert row["pid"] == process.pid
        assert row["rss_bytes"] == before
        assert row["peak_bytes"] >= before
        assert row["anon_bytes"] + row["file_bytes"] + row["shmem_bytes"] == before
        assert row["command"][0] == sys.executable
    assert summary["processes"][0]["peak_bytes"] >= before
    assert summary["end"] == {"kind": "watch_ended", "by": "--for"}


def test_watch_json_of_a_process_tree_matches_proc(ebb):
    with python(FAMILY) as process:
        kids = [int(kid) for kid in ready(process)]
        result, truth = watched_while_still(ebb, [process.pid, *kids], "--interval", "100ms",
                                            "--for", "500ms", "--json")
    ticks, _ = ticks_of(result)
    seen = {row["pid"]: row for row in ticks[-1]["processes"]}
    assert {pid: row["rss_bytes"] for pid, row in seen.items()} == truth
    assert all(seen[kid]["ppid"] == process.pid for kid in kids)
    tree = ticks[-1]["tree"]
    assert max(truth.values()) <= tree["low_bytes"] <= tree["high_bytes"] <= sum(truth.values())


def test_watch_of_several_pids_shows_a_process_tree_for_each_pid(ebb):
    with python(QUIET) as one, python(QUIET) as two:
        ready(one), ready(two)
        result = ebb("watch", "--pid", one.pid, "--pid", two.pid, "--pid", one.pid, "--for",
                     "200ms", "--json")
    ticks, _ = ticks_of(result)
    assert sorted(row["pid"] for row in ticks[0]["processes"]) == sorted([one.pid, two.pid])


def test_watch_command_exits_when_the_job_exits():
    with python(QUIET) as process:
        ready(process)
        with subprocess.Popen([binary(), "watch", "--pid", str(process.pid), "-i", "50ms"],
                              env=environment(), stdout=subprocess.PIPE, text=True) as watch:
            assert " job " in watch.stdout.readline()
            process.kill()
            assert "the job ended" in watch.stdout.read()
            assert watch.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("signo, words", [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_ends_watch_with_summary(signo, words):
    with python(QUIET) as process:
        ready(process)
        with subprocess.Popen([binary(), "watch", "--pid", str(process.pid), "-i", "50ms"],
                              env=environment(), stdout=subprocess.PIPE, text=True) as watch:
            assert " job " in watch.stdout.readline()
            watch.send_signal(signo)
            rest = watch.stdout.read()
            assert watch.wait(PATIENCE_S) == 0
    assert f"stopped by {words}" in rest
    assert "memory     start" in rest


def test_closed_output_pipe_ends_watch_without_an_error():
    with python(QUIET) as process:
        ready(process)
        with subprocess.Popen([binary(), "watch", "--pid", str(process.pid), "-i", "50ms"],
                              env=environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as watch:
            watch.stdout.readline()
            watch.stdout.close()
            assert watch.wait(PATIENCE_S) == 0
            assert watch.stderr.read() == ""


def test_option_system_of_watch_shows_all_processes_of_the_machine(ebb):
    with python(QUIET) as process:
        ready(process)
        result = ebb("watch", "--system", "--for", "1200ms", "--json")
    ticks, summary = ticks_of(result)
    pids = {row["pid"] for row in ticks[-1]["processes"]}
    assert {process.pid, os.getpid()} <= pids
    assert ticks[-1]["tree"]["high_bytes"] is None
    assert "tree" not in summary
    meminfo = pathlib.Path("/proc/meminfo").read_text()
    total = int(re.search(r"MemTotal:\s+(\d+) kB", meminfo)[1]) * 1024
    assert ticks[-1]["machine"]["total_bytes"] == total


def test_option_record_of_watch_writes_a_recording(ebb, tmp_path):
    folder = tmp_path / "deep" / "run"
    with python(QUIET) as process:
        ready(process)
        result = ebb("watch", "--pid", process.pid, "-i", "50ms", "--for", "500ms", "--run-dir",
                     folder)
    assert result.returncode == 0, result.stderr
    doc = json.loads((folder / "run.json").read_text())
    assert doc["state"] == "ended" and doc["watched"] == [process.pid]
    assert doc["command"][0] == sys.executable
    assert (folder / "trace.ebb").stat().st_size > 100
    assert f"recording  {folder}" in result.stdout


def test_recording_made_by_watch_has_the_command_of_an_exited_job(ebb, tmp_path):
    folder = tmp_path / "run"
    with python(QUIET) as process:
        ready(process)
        watching = subprocess.Popen([binary(), "watch", "--pid", str(process.pid), "-i", "50ms", "--run-dir", folder],
                                    stdout=subprocess.PIPE, env=environment())
        assert b" 1 process " in watching.stdout.readline()
        process.kill()
        process.wait()
        watching.communicate(timeout=PATIENCE_S)
    doc = json.loads((folder / "run.json").read_text())
    assert doc["end"]["kind"] == "gone" and doc["command"][0] == sys.executable


def test_option_record_of_watch_creates_a_folder_in_ebb_runs(ebb, tmp_path):
    with python(QUIET) as process:
        ready(process)
        result = ebb("watch", "--pid", process.pid, "--for", "200ms", "--record", cwd=tmp_path)
    (folder,) = [f for f in (tmp_path / "ebb-runs").iterdir() if f.name != "latest"]
    assert (folder / "run.json").exists()
    assert f"recording  ebb-runs/{folder.name}" in result.stdout


# ---- launchers and training jobs ----

def test_watch_of_a_launcher_follows_its_training_process(ebb):
    code = "import time; print('ready', flush=True); time.sleep(600)"
    with job("bash", "-c", f'{sys.executable} -c "{code}" ; true') as shell:
        ready(shell)
        child = int(pathlib.Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        result = ebb("watch", "--pid", shell.pid, "--for", "200ms", "--json")
    ticks, _ = ticks_of(result)
    assert [row["pid"] for row in ticks[0]["processes"]] == [child]
    assert result.stderr.startswith(f"ebb: process {shell.pid} is `bash`, a launcher; following process {child}")


@pytest.fixture
def trainers(tmp_path):
    """Starts Python processes whose command lines look like training jobs."""
    script = tmp_path / "train_lora.py"
    script.write_text(QUIET)
    with contextlib.ExitStack() as stack:
        def start():
            process = stack.enter_context(job(sys.executable, str(script)))
            ready(process)
            return process
        yield start


@pytest.fixture
def quiet_machine(ebb):
    """Skips the test if another training job runs on this machine, because `ebb watch` would find it, too."""
    result = ebb("watch", "--find-training", "--for", "100ms")
    if result.returncode == 0 or "look like a training job" in result.stderr:
        pytest.skip("another training job runs on this machine")


def test_watch_command_lists_training_jobs_if_several_are_running(ebb, quiet_machine, trainers):
    one, two = trainers(), trainers()
    result = ebb("watch", "--find-training", "--for", "200ms")
    assert result.returncode == 2
    assert result.stdout == ""
    for process in (one, two):
        assert re.search(rf"^ *{process.pid} .*train_lora.py", result.stderr, re.M)
    assert "training script on its command line" in result.stderr
    assert re.search(r"Choose one, .*ebb watch --pid \d+$", result.stderr, re.M)


def test_watch_command_follows_the_only_training_job_on_the_machine(ebb, quiet_machine, trainers):
    process = trainers()
    result = ebb("watch", "--find-training", "--for", "200ms", "--json")
    if set(pids_shown(result.stderr)) - {process.pid}:
        pytest.skip("another training job has begun on this machine")
    ticks, _ = ticks_of(result)
    assert ticks[0]["processes"][0]["pid"] == process.pid
    assert f"watching {process.pid} (" in result.stderr
    assert "training script on its command line" in result.stderr


# ---- bad input ----

def gone_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("arguments, words", [
    ([], ["--pid", "--find-training", "--system"]),
    (["--system", "--find-training"], ["--pid", "--find-training", "--system"]),
    (["--pid", "abc"], ["--pid", "abc"]),
    (["--pid", "0"], ["--pid", "0"]),
    (["--pid", "-5"], ["--pid", "-5"]),
    (["--pid", "99999999999"], ["--pid", "99999999999"]),
    (["--pid", ""], ["--pid"]),
    (["--system", "--interval", "0"], ["--interval", "0"]),
    (["--system", "--interval", "-1s"], ["--interval", "-1s"]),
    (["--system", "--interval", "abc"], ["--interval", "abc"]),
    (["--system", "--interval", "49ms"], ["--interval", "49ms"]),
    (["--system", "--interval", "2h"], ["--interval", "2h"]),
    (["--system", "--for", "5"], ["--for", "5"]),
    (["--system", "4711"], ["4711"]),
])
def test_error_for_an_invalid_watch_option_names_the_value(ebb, arguments, words):
    result = ebb("watch", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("ebb: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_watch_command_refuses_a_nonexistent_pid(ebb):
    pid = gone_pid()
    result = ebb("watch", "--pid", pid)
    assert result.returncode == 2
    assert str(pid) in result.stderr and result.stderr.count("\n") == 1


def test_watch_command_refuses_a_zombie(ebb):
    zombie = subprocess.Popen(["true"])
    try:
        wait_for(lambda: ") Z " in pathlib.Path(f"/proc/{zombie.pid}/stat").read_text(), "a zombie")
        result = ebb("watch", "--pid", zombie.pid)
    finally:
        zombie.wait()
    assert result.returncode == 2
    assert str(zombie.pid) in result.stderr


def test_watch_error_names_a_pid_that_exits_during_the_first_scan(ebb):
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
        result = ebb("watch", "--pid", process.pid, "-i", "50ms")
        process.wait()
        assert result.returncode in (0, 2)
        assert result.returncode == 0 or str(process.pid) in result.stderr


def test_watch_of_a_process_of_another_user_prints_one_error_line(ebb_as_nobody):
    options = {} if os.geteuid() != 0 else {"user": NOBODY - 1, "group": NOBODY - 1,
                                            "extra_groups": []}
    if os.geteuid() != 0:
        pid = 1
        result = ebb_as_nobody("watch", "--pid", pid)
    else:
        with job("sleep", "600", **options) as process:
            pid = process.pid
            result = ebb_as_nobody("watch", "--pid", pid, "--for", "200ms")
    assert result.returncode == 2
    assert result.stdout == ""
    assert str(pid) in result.stderr and result.stderr.count("\n") == 1


def test_watch_command_refuses_an_existing_run_folder(ebb, tmp_path):
    with python(QUIET) as process:
        ready(process)
        result = ebb("watch", "--pid", process.pid, "--run-dir", tmp_path)
    assert result.returncode == 2
    assert str(tmp_path) in result.stderr
    assert list(tmp_path.iterdir()) == []


# ---- hostile names ----

HOSTILE = ["x\n) R 1 2 3", "\x1b[2J\x1b[31m", ") Z 1 (", "\x9b31m\xff\r", "%s%n%d"]


@pytest.mark.parametrize("name", HOSTILE)
def test_watch_command_escapes_control_codes_in_process_name(name):
    with python(NAMED, name) as process:
        ready(process)
        result = subprocess.run(
            [binary(), "watch", "--pid", str(process.pid), "--for", "200ms", "-i", "50ms"],
            env=environment(), capture_output=True, timeout=PATIENCE_S)
        shown = subprocess.run(
            [binary(), "watch", "--pid", str(process.pid), "--for", "200ms", "--json"],
            env=environment(), capture_output=True, timeout=PATIENCE_S)
    assert result.returncode == 0
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", result.stdout + result.stderr)
    result.stdout.decode()
    ticks = [json.loads(line) for line in shown.stdout.splitlines()]
    expected = name.encode("latin-1")[:15].decode("utf-8", "replace")
    assert ticks[0]["processes"][0]["name"] == expected


def test_watch_command_escapes_control_codes_in_command_line(ebb):
    with job("\x1b[2Jx\ny", "600", executable=shutil.which("sleep")) as process:
        wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "exec")
        result = ebb("watch", "--pid", process.pid, "--for", "200ms", "-i", "50ms")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "\\e[2Jx\\ny 600" in result.stdout


# ---- the screen ----

class Terminal:
    """A tmux with its own socket and one window."""

    def __init__(self, folder, columns=120, lines=30, env=None):
        self.command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.env = environment(env)
        self.env.pop("TMUX", None)
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(lines), "sh")
        self.tmux("set-option", "-g", "status", "off")
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))
        self.keys("PS1='$ '; clear", "Enter")
        self.shows(r"\A\$$")

    def tmux(self, *arguments):
        return subprocess.run([*self.command, *arguments], env=self.env, check=True, timeout=PATIENCE_S,
                              capture_output=True, encoding="utf-8").stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def shows(self, pattern):
        """Waits until the screen matches PATTERN; returns the screen."""
        def look():
            text = self.screen()
            return text if re.search(pattern, text, re.M) else None
        try:
            return wait_for(look, pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen is\n{self.screen()}") from None

    def watch(self, *arguments):
        self.keys(" ".join([binary(), "watch", *map(str, arguments)]), "Enter")

    def close(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.tmux("kill-server")


@pytest.fixture
def terminal(tmp_path):
    with contextlib.ExitStack() as stack:
        def start(**options):
            t = Terminal(tmp_path, **options)
            stack.callback(t.close)
            return t
        yield start


def pids_shown(text):
    return [int(pid) for pid in re.findall(r"^ *(\d+) ", text, re.M)]


def in_order(head, pids):
    """Returns a pattern that matches HEAD followed by the rows of PIDS in this order. The screen may be read while it
    is being drawn."""
    return head + "".join(rf"[^\n]*\n *{pid} " for pid in pids)


def test_attach_key_of_watch_attaches_ebb_until_watch_quits(terminal, tmp_path):
    t = terminal()
    part = Installation(tmp_path)
    code = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"
    with python(code) as process:
        ready(process)
        t.keys(f"cd {tmp_path}; {part.program} watch --pid {process.pid} -i 100ms", "Enter")
        t.shows(rf"^ *{process.pid} .*python")
        t.keys("A")
        t.shows(rf"^attached to process {process.pid} \(python[^)]*\) at \d\d:\d\d$")
        t.keys("q")
        t.shows(r"^ebb: paused the job for .* to detach$")
        t.shows(r"^\$$")
        assert part.notes() == [f"start {process.pid}", f"stop {process.pid}"]


def test_attach_key_of_watch_shows_why_an_attach_was_refused(terminal):
    t = terminal()
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        t.watch("--pid", sleeper.pid, "-i", "100ms")
        t.shows(rf"^ *{sleeper.pid} .*sleep")
        t.keys("A")
        t.shows(rf"^attach: process {sleeper.pid} \(sleep\) is not Python")
        t.keys("q")
        t.shows(r"^\$$")
    finally:
        sleeper.kill()
        sleeper.wait()


def test_watch_screen_sorts_processes_and_restores_the_terminal(terminal):
    t = terminal()
    with python(FAMILY) as process:
        small, large, middle = map(int, ready(process))
        t.watch("--pid", process.pid, "-i", "100ms")
        text = t.shows(r"└─ ")
        assert re.search(rf"^ebb pid {process.pid} ", text)
        assert re.search(r"^job +\d.*4 processes", text, re.M)
        assert re.search(r"^machine .*available", text, re.M)
        assert re.search(r" PID +ROLE +RSS▼ +ANON +UNIQUE +PEAK +RATE/min +TREND +NAME", text)
        text = t.shows(in_order(r"RSS▼", [process.pid, large, middle, small]))
        assert re.search(rf"^ *{large} .*├─ ", text, re.M)

        t.keys("p")
        t.shows(in_order(r"PID▲", [process.pid, *sorted([small, large, middle])]))
        t.keys("p")
        t.shows(in_order(r"PID▼", [process.pid, *sorted([small, large, middle])[::-1]]))

        t.keys("m")
        t.keys("t")
        t.shows(rf"^ *{large} .*\n *{middle} ")
        t.keys("t")
        t.keys("Space")
        t.shows(r"\(\+3 folded\)")
        wait_for(lambda: pids_shown(t.screen()) == [process.pid], "the others to go")
        t.keys("+")
        t.shows(r"└─ ")
        t.keys("c")
        t.shows(r"├─ .*python\S* -c ")

        t.keys("?")
        t.shows(r"Keys \(any key closes this\)")
        t.keys("x")
        wait_for(lambda: "any key closes" not in t.screen(), "the help to close")

        t.keys("P")
        t.shows(r"PAUSED")
        t.keys("P")
        wait_for(lambda: "PAUSED" not in t.screen(), "going on")

        t.keys("q")
        text = t.shows(r"the job is still running.* stopped by q")
        t.shows(r"^\$$")  # Keys typed before the shell prints its prompt would be echoed elsewhere on the screen.
        t.keys("stty -a | grep -c -w -e '-icanon' -e '-echo'; echo back $?", "Enter")
        t.shows(r"^0\nback 1$")
        assert "RSS▼" not in t.screen()


def test_ctrl_c_on_watch_screen_prints_summary(terminal):
    t = terminal(columns=100)
    with python(QUIET) as process:
        ready(process)
        t.watch("--pid", process.pid)
        t.shows(r"RSS▼")
        t.keys("C-c")
        t.shows(r"the job is still running.* stopped by Ctrl-C")
        t.shows(r"^\$$")
        t.keys("echo status $?", "Enter")
        t.shows(r"^status 0$")


def test_watch_screen_shows_a_launcher_notice_until_a_key_is_pressed(terminal):
    t = terminal()
    with job("bash", "-c", f"{sys.executable} -c \"{QUIET}\" ; true") as shell:
        ready(shell)
        t.watch("--pid", shell.pid, "-i", "100ms")
        t.shows(rf"^process {shell.pid} is `bash`, a launcher; following process \d+")
        t.keys("Down")
        wait_for(lambda: "a launcher" not in t.screen(), "the notice to go")


@pytest.mark.parametrize("columns, lines", [(20, 5), (40, 8), (10, 3), (2, 2)])
def test_watch_screen_survives_a_tiny_terminal_window(terminal, columns, lines):
    t = terminal(columns=80, lines=24)
    with python(FAMILY) as process:
        ready(process)
        t.watch("--pid", process.pid, "-i", "50ms")
        t.shows(r"└─ ")
        t.tmux("resize-window", "-x", str(columns), "-y", str(lines))
        wait_for(lambda: len(t.screen().splitlines()) <= lines and "ebb"[:columns] in t.screen(),
                 "the tiny window")
        for key in ("?", "x", "Down", "End", "NPage", "c", "t", "-", "+"):
            t.keys(key)
        time.sleep(0.3)
        t.tmux("resize-window", "-x", "110", "-y", "30")
        t.shows(r"RSS▼ +ANON +UNIQUE")
        t.keys("q")
        t.shows(r"the job is still running")


def test_watch_command_draws_with_ascii_characters_in_an_ascii_locale(terminal):
    t = terminal(env={"LC_ALL": "C"})
    with python(FAMILY) as process:
        ready(process)
        t.watch("--pid", process.pid, "-i", "100ms")
        text = t.shows(r"`- ")
        assert "RSSv" in text
        assert text.isascii()
        t.keys("q")


def test_watch_command_refuses_an_unknown_terminal_type(terminal):
    t = terminal()
    with python(QUIET) as process:
        ready(process)
        t.keys("TERM=nonesuch ", binary(), f" watch --pid {process.pid}; echo status $?", "Enter")
        t.shows(r"'nonesuch' is unknown")
        t.shows(r"^status 2$")


def test_hostile_process_name_stays_in_one_row_of_the_watch_screen(terminal):
    t = terminal()
    with python(NAMED, "\x1b[2Jx\ny) R 1") as process:
        ready(process)
        t.watch("--pid", process.pid, "-i", "100ms")
        text = t.shows(rf"^ *{process.pid} .*\\e\[2Jx\\ny\) R 1")
        assert re.search(r"^ebb pid ", text)
        t.keys("q")


def test_watch_screen_closes_with_a_summary_when_the_job_ends(terminal):
    t = terminal()
    with python(QUIET) as process:
        ready(process)
        t.watch("--pid", process.pid, "-i", "100ms")
        t.shows(r"RSS▼")
        process.kill()
        t.shows(r"^run +the job ended")
