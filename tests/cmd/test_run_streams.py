"""Tests `ebb run` with unusual terminals, pipes and limits: no output is lost, and ebb does not hang."""

import collections
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import termios
import threading
import time

import pytest

from commands import IS_SANITIZED, PATIENCE_S, PYTHON, binary, environment, plain, recorded, wait_for


class OnTerminal:
    """Runs a program on a new pseudo-terminal and collects its output."""

    def __init__(self, arguments, cwd):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(arguments[0], arguments, environment({"PS1": "$ "}))
        self.shown = b""

    def read(self, seconds=0.05):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.shown += data
        return bool(data)

    def wait(self, text):
        wait_for(lambda: (self.read(), text in self.shown)[1], f"{text!r} in {self.shown[-2000:]!r}")

    def wait_for_foreground(self):
        """Waits until the shell has given the terminal to the command's process group."""
        wait_for(lambda: (self.read(), os.tcgetpgrp(self.fd) != self.pid)[1], "the foreground")

    def type(self, text):
        while text:
            text = text[os.write(self.fd, text[:1024]):]
            self.read(0)

    def end(self):
        until = time.monotonic() + PATIENCE_S
        while self.read():
            assert time.monotonic() < until, f"still there: {self.shown[-2000:]!r}"
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def end_of(folder):
    return json.loads((folder / "run.json").read_text())["end"]


def run(*arguments, **options):
    return subprocess.run([binary(), "run", *map(str, arguments)], env=environment(),
                          timeout=PATIENCE_S, **options)


# ---- terminals ----

def test_short_job_on_a_terminal_is_recorded_with_its_exit_status(tmp_path):
    """When a terminal is closed, the kernel sends SIGHUP to the session leader."""
    jobs = [(["true"], 0), (["sh", "-c", "echo hi; exit 3"], 3),
            ([PYTHON, "-c", "print(1)"], 0)]
    seen = collections.Counter()
    for i in range(30):
        command, status = jobs[i % len(jobs)]
        folder = tmp_path / str(i)
        job = OnTerminal([binary(), "run", "-q", "-d", str(folder), "--", *command], tmp_path)
        assert job.end() == status
        seen[(end_of(folder)["kind"], end_of(folder)["status"] == status)] += 1
    assert seen == {("exited", True): 30}


def test_job_may_close_and_reopen_its_terminal(tmp_path):
    program = ("import os, time\n"
               "null = os.open('/dev/null', os.O_RDWR)\n"
               "for fd in range(3): os.dup2(null, fd)\n"
               "time.sleep(1.5)\n"
               "os.write(os.open('/dev/tty', os.O_RDWR), b'here ' + b'again')\n"
               "time.sleep(1.5)\n"
               "os._exit(7)\n")
    job = OnTerminal([binary(), "run", "-q", "-d", str(tmp_path / "r"), "--", PYTHON, "-c",
                      program], tmp_path)
    assert job.end() == 7
    assert b"here again" in job.shown


def test_text_pasted_before_the_job_reads_input_is_not_lost(tmp_path):
    program = ("import sys, termios, time, tty\n"
               "before = termios.tcgetattr(0)\n"
               "tty.setraw(0)\n"
               "print('re' + 'ady', end='\\r\\n', flush=True)\n"
               "time.sleep(2)\n"
               "got = 0\n"
               "while got < 200000:\n"
               "    got += len(sys.stdin.buffer.raw.read(65536))\n"
               "print('got', got, end='\\r\\n', flush=True)\n"
               "termios.tcsetattr(0, termios.TCSANOW, before)\n"
               "print('wait' + 'ing', end='\\r\\n', flush=True)\n"
               "time.sleep(600)\n")
    job = OnTerminal([binary(), "run", "-q", "-d", str(tmp_path / "r"), "--", PYTHON, "-c",
                      program], tmp_path)
    job.wait(b"ready")
    job.type(b"x" * 200000)
    job.wait(b"got 200000")
    job.wait(b"waiting")
    job.type(b"\x03")
    assert job.end() == 128 + signal.SIGINT


@pytest.fixture
def shell(tmp_path):
    job = OnTerminal(["bash", "--norc", "--noprofile", "-i"], tmp_path)
    job.wait(b"$ ")
    yield job
    job.kill()


def test_background_run_does_not_change_terminal_settings(shell, tmp_path):
    shell.type(f"'{binary()}' run -q -d r -- sh -c 'sleep 1; echo be\"\"hind; sleep 600' &\n".encode())
    shell.wait(b"behind")
    mode = termios.tcgetattr(shell.fd)
    shell.type(b"echo typed-$((40+2))\n")
    shell.wait(b"typed-42")
    shell.type(b"jobs\n")
    shell.wait(b"Running")
    assert mode[1] & termios.OPOST
    assert b"Stopped" not in shell.shown
    shell.type(b"fg\n")
    shell.wait_for_foreground()
    shell.type(b"\x03")
    wait_for(lambda: (shell.read(), shell.shown.endswith(b"$ "))[1], "the shell to be back")
    shell.type(b"echo back-$((1+1))\n")
    shell.wait(b"back-2")
    assert end_of(tmp_path / "r")["signal"] == "INT"


def test_two_overlapping_runs_restore_the_terminal_settings(tmp_path):
    """The second run starts while the terminal is in the raw mode set by the first run, and ends after the first."""
    program = ("import subprocess, sys, termios, time\n"
               "def mode(): return termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)\n"
               "def start(folder):\n"
               "    return subprocess.Popen([sys.argv[1], 'run', '-q', '-d', folder, '--', 'sh', '-c',\n"
               "                             'echo go-$0; until [ -e end-$0 ]; do sleep 0.1; done', folder])\n"
               "before = mode()\n"
               "first = start('a')\n"
               "while mode() and first.poll() is None: time.sleep(0.05)\n"
               "second = start('b')\n"
               "first.wait()\n"
               "print('one', 'over', flush=True)\n"
               "second.wait()\n"
               "print('same' if before and mode() == before else f'from {before} to {mode()}', flush=True)\n")
    job = OnTerminal([PYTHON, "-c", program, binary()], tmp_path)
    job.wait(b"go-b")
    (tmp_path / "end-a").touch()
    job.wait(b"one over")
    (tmp_path / "end-b").touch()
    assert job.end() == 0
    assert b"same" in job.shown, job.shown


def test_background_job_does_not_consume_shell_input(shell, tmp_path):
    shell.type(f"'{binary()}' run -q -d r -- cat > got &\n".encode())
    wait_for(lambda: (tmp_path / "r" / "run.json").exists(), "the start")
    shell.type(b"echo mine-$((6*7))\n")
    shell.wait(b"mine-42")
    shell.type(b"kill %1; wait; echo over-$((1+1))\n")
    shell.wait(b"over-2")
    assert (tmp_path / "got").read_bytes() == b""


def test_typed_keys_reach_the_job_when_its_output_is_piped(shell):
    shell.type(f"'{binary()}' run -q --no-record -- head -n 1 | tr a-z A-Z\n".encode())
    shell.wait_for_foreground()
    shell.type(b"spring tide\n")
    shell.wait(b"SPRING TIDE")


# ---- stop and continue signals ----

def start_waiting_job(folder):
    """Runs a job that waits for the file "go", prints "fin" and exits. Returns the `ebb run` process and the job's
    pid."""
    process = subprocess.Popen([binary(), "run", "-q", "-d", "r", "--", "sh", "-c",
                                "echo $$ > pid.tmp; mv pid.tmp pid; while [ ! -e go ]; do "
                                "sleep 0.05; done; echo fin"],
                               cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: (folder / "pid").exists(), "the job")
    return process, int((folder / "pid").read_text())


def is_stopped(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T"


def stop(pid, signo):
    os.kill(pid, signo)
    wait_for(lambda: is_stopped(pid), "the stop")


def test_job_finishes_after_it_was_stopped_and_continued_by_signals(tmp_path):
    process, pid = start_waiting_job(tmp_path)
    for signo in (signal.SIGSTOP, signal.SIGTSTP):
        stop(pid, signo)
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "fin\n")


def test_ebb_run_exits_if_the_stopped_job_is_killed(tmp_path):
    process, pid = start_waiting_job(tmp_path)
    stop(pid, signal.SIGTSTP)
    wait_for(lambda: is_stopped(process.pid), "the client to stop with the job")
    os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (128 + signal.SIGKILL, "")


# ---- both streams to the same file ----

# A job that writes lines alternately to stdout and stderr, without pauses.
IN_TURN = ("import os\n"
           "for i in range(1000):\n"
           "    os.write(1 + i % 2, b'line %d\\n' % i)\n")
IN_ORDER = b"".join(b"line %d\n" % i for i in range(1000))

# A job of two processes that write lines of varying length at the same time, one to stdout and one to stderr.
TWO_WRITERS = ("import os\n"
               "child = os.fork()\n"
               "fd, name = (2, b'b') if child == 0 else (1, b'a')\n"
               "for i in range(5000):\n"
               "    os.write(fd, b'%s%d %s\\n' % (name, i, name * (i % 300)))\n"
               "if child: os.waitpid(child, 0)\n")


def lines_of(name):
    return [b"%s%d %s" % (name, i, name * (i % 300)) for i in range(5000)]


@pytest.mark.parametrize("place", ["2>&1 | cat >out", ">out 2>&1", ">>out 2>>out", "terminal"])
def test_output_of_stdout_and_stderr_to_one_file_keeps_its_order(tmp_path, place):
    if place == "terminal":
        job = OnTerminal([binary(), "run", "-q", "--no-terminal", "-d", "r", "--", PYTHON, "-c",
                          IN_TURN], tmp_path)
        assert job.end() == 0
        shown = job.shown.replace(b"\r\n", b"\n")
    else:
        command = f"'{binary()}' run -q -d r -- '{PYTHON}' -c \"$JOB\" {place}"
        subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment({"JOB": IN_TURN}),
                       timeout=PATIENCE_S, check=True)
        shown = (tmp_path / "out").read_bytes()
    assert shown == IN_ORDER
    assert (tmp_path / "r/log.txt").read_bytes() == IN_ORDER


def test_log_of_a_detached_job_keeps_the_order_of_both_streams(tmp_path):
    result = run("--detached", "-d", tmp_path / "r", "--", PYTHON, "-c", IN_TURN)
    assert result.returncode == 0
    wait_for(lambda: json.loads((tmp_path / "r/run.json").read_text())["state"] == "ended", "the end")
    assert (tmp_path / "r/log.txt").read_bytes() == IN_ORDER


def test_lines_of_two_writers_to_one_pipe_are_not_split(tmp_path):
    result = run("-q", "-d", tmp_path / "r", "--", PYTHON, "-c", TWO_WRITERS,
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = (tmp_path / "r/log.txt").read_bytes()
    assert log == result.stdout
    lines = log.splitlines()
    assert [line for line in lines if line.startswith(b"a")] == lines_of(b"a")
    assert [line for line in lines if line.startswith(b"b")] == lines_of(b"b")


def test_lines_of_separate_streams_are_not_split_in_the_log(tmp_path):
    result = run("-q", "-d", tmp_path / "r", "--", PYTHON, "-c", TWO_WRITERS,
                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert result.stdout.splitlines() == lines_of(b"a")
    assert result.stderr.splitlines() == lines_of(b"b")
    assert sorted((tmp_path / "r/log.txt").read_bytes().splitlines()) == sorted(
        lines_of(b"a") + lines_of(b"b"))


def test_streams_opened_separately_on_one_file_overwrite_each_other(tmp_path):
    """The shell opened the file twice, so the second stream overwrites the first, also without ebb."""
    job = "sh -c 'printf aaaaaa; printf bbb >&2'"
    for name, start in ("hand", ""), ("ebb", f"'{binary()}' run -q --no-record -- "):
        subprocess.run(["sh", "-c", f"{start}{job} >{name} 2>{name}"], cwd=tmp_path,
                       env=environment(), timeout=PATIENCE_S, check=True)
        assert len((tmp_path / name).read_bytes()) == 6


# ---- readers of the output ----

def test_output_left_in_pipes_by_an_ended_job_is_delivered(tmp_path):
    """The output exceeds the capacity of the reader's pipe. The job can exit because ebb buffers the rest."""
    process = subprocess.Popen([binary(), "run", "-q", "-d", tmp_path / "r", "--", "sh", "-c",
                                "head -c 110000 /dev/zero; echo; echo last; exit 3"],
                               env=environment(), stdout=subprocess.PIPE)
    facts = tmp_path / "r" / "run.json"
    wait_for(lambda: facts.exists() and json.loads(facts.read_text())["state"] == "ended",
             "the end of the job, with nobody reading")
    out = process.stdout.read()
    assert (len(out), out[-6:], process.wait(timeout=PATIENCE_S)) == (110006, b"\nlast\n", 3)
    assert (tmp_path / "r/log.txt").read_bytes() == out


def test_slow_reader_receives_the_whole_output(tmp_path):
    process = subprocess.Popen([binary(), "run", "-q", "--", "sh", "-c",
                                "head -c 700000 /dev/zero; exit 3"],
                               cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
    wait_for(lambda: (tmp_path / "ebb-runs/latest/run.json").exists(), "the start")
    time.sleep(3)
    got = 0
    while data := process.stdout.read1(65536):
        got += len(data)
    assert (got, process.wait(timeout=PATIENCE_S)) == (700000, 3)


def test_no_output_is_lost_if_a_nonblocking_output_pipe_is_full(tmp_path):
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_NONBLOCK)
    process = subprocess.Popen([binary(), "run", "-q", "--", "head", "-c", "300000", "/dev/zero"],
                               cwd=tmp_path, env=environment(), stdout=write)
    os.close(write)
    time.sleep(1)
    got = 0
    while data := os.read(read, 65536):
        got += len(data)
    os.close(read)
    assert (got, process.wait(timeout=PATIENCE_S)) == (300000, 0)


def test_signal_reaches_the_job_while_the_output_reader_is_stuck(tmp_path):
    process = subprocess.Popen([binary(), "run", "-q", "-d", tmp_path / "r", "--", "yes"],
                               env=environment(), stdout=subprocess.PIPE)
    wait_for(lambda: (tmp_path / "r" / "run.json").exists(), "the start")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: json.loads((tmp_path / "r" / "run.json").read_text())["state"] == "ended",
             "the end of the job, with nobody reading")
    process.stdout.close()
    process.wait(timeout=PATIENCE_S)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_job_exits_when_the_reader_of_stdout_or_stderr_exits(tmp_path, stream):
    loop = f"while :; do echo x >&{stream} || exit 9; sleep 0.05; done"
    process = subprocess.Popen([binary(), "run", "-q", "--no-record", "--", "sh", "-c", loop],
                               cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe = process.stdout if stream == "1" else process.stderr
    pipe.readline()
    pipe.close()
    assert process.wait(timeout=PATIENCE_S) in (9, 128 + signal.SIGPIPE)


@pytest.mark.skipif(not hasattr(os, "splice"), reason="os.splice requires Python 3.10")
def test_pipe_lock_held_by_a_reader_does_not_block_the_supervisor(tmp_path):
    """The reader blocks in splice(), because it writes to a terminal stopped by Ctrl-S. A reader such as pv blocks in
    the same way if its disk hangs."""
    master, slave = pty.openpty()
    termios.tcflow(slave, termios.TCOOFF)
    read, write = os.pipe()
    reader = threading.Thread(target=os.splice, args=(read, slave, 1 << 16))
    reader.start()
    loop = "for i in $(seq 12); do echo line; sleep 0.1; done; while [ ! -e go ]; do sleep 0.1; done"
    process = subprocess.Popen([binary(), "run", "-q", "-d", "r", "--", "sh", "-c", loop],
                               cwd=tmp_path, env=environment(), stdout=write)
    os.close(write)
    log = tmp_path / "r/log.txt"
    try:
        wait_for(lambda: log.exists() and log.read_bytes() == 12 * b"line\n", "the output in the log")
    finally:
        termios.tcflow(slave, termios.TCOON)
        (tmp_path / "go").touch()
        reader.join()
        while os.read(read, 1 << 16):
            pass
        for fd in master, slave, read:
            os.close(fd)
    assert process.wait(timeout=PATIENCE_S) == 0


def test_full_disk_at_stdout_does_not_stop_the_job_or_the_log(tmp_path):
    with open("/dev/full", "w") as full:
        result = run("-q", "--", PYTHON, "-c", "print('lost'); open('fine', 'w')", cwd=tmp_path,
                     stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "fine").exists()
    assert result.stderr.count("No space left") == 1
    assert (tmp_path / "ebb-runs/latest/log.txt").read_text() == "lost\n"


@plain
def test_slow_output_reader_does_not_increase_the_memory_of_ebb_run(tmp_path):
    process = subprocess.Popen([binary(), "run", "-q", "--no-record", "--", "head", "-c",
                                str(100 << 20), "/dev/zero"],
                               cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
    most = got = 0
    while data := process.stdout.read1(4096):
        got += len(data)
        if got % (5 << 20) < 4096:
            time.sleep(0.01)
            pages = int(open(f"/proc/{process.pid}/statm").read().split()[1])
            most = max(most, pages * os.sysconf("SC_PAGE_SIZE"))
    assert (got, process.wait(timeout=PATIENCE_S)) == (100 << 20, 0)
    assert IS_SANITIZED or most < 16 << 20


# ---- folder of ebb's sockets ----

def test_socket_folder_of_a_killed_ebb_is_removed_by_the_next_run(tmp_path):
    """All processes of ebb are killed at once, so none of them can remove the folder."""
    sockets = tmp_path / "tmp"
    sockets.mkdir()
    env = environment({"TMPDIR": str(sockets), "XDG_RUNTIME_DIR": None})
    job = "touch \"${EBB_SOCKET%/*}/file\"; echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600"
    client = subprocess.Popen([binary(), "run", "-q", "-d", "r", "--", "sh", "-c", job],
                              cwd=tmp_path, env=env, stdin=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "r/run.json").exists(), "the job")
    supervisor = json.loads((tmp_path / "r/run.json").read_text())["supervisor_pid"]
    sentinel = int(open(f"/proc/{supervisor}/stat").read().rpartition(")")[2].split()[1])
    pids = [sentinel, supervisor, client.pid]
    for signo in signal.SIGSTOP, signal.SIGKILL:
        for pid in pids:
            os.kill(pid, signo)
    client.wait(timeout=PATIENCE_S)
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids), "their end")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert len(list(sockets.iterdir())) == 1
    subprocess.run([binary(), "run", "-q", "--no-record", "--", "true"], env=env, check=True,
                   timeout=PATIENCE_S)
    assert list(sockets.iterdir()) == []


# ---- closed streams and low limits ----

@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_standard_stream_closed_by_the_caller_is_closed_in_the_job(tmp_path, closed):
    look = tmp_path / "look.c"
    look.write_text("#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
                    "int main(void) { int open = 0; char *volatile p;\n"
                    "for (int fd = 0; fd < 3; fd++) open |= (fcntl(fd, F_GETFD) >= 0) << fd;\n"
                    "for (int i = 0; i < 10000; i++) { p = malloc(1 << 20); *p = 1; free(p); }\n"
                    "for (int fd = 0; fd < 3; fd++) open |= (fcntl(fd, F_GETFD) >= 0) << (fd + 3);\n"
                    "return open; }\n")
    program = tmp_path / "look"
    subprocess.run(["cc", "-o", program, look], check=True)
    statuses = {}
    for name, start in ("hand", ""), ("ebb", f"'{binary()}' run -d '{tmp_path}/r' -- "):
        for job in f"'{program}'", "sh -c 'echo out && echo err >&2 && read line || exit 5'":
            result = subprocess.run(["sh", "-c", f"{start}{job} {closed}"], env=environment(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, timeout=PATIENCE_S)
            statuses.setdefault(name, []).append(result.returncode)
            shutil.rmtree(tmp_path / "r", ignore_errors=True)
    assert statuses["ebb"] == statuses["hand"]


def test_mark_socket_does_not_reuse_the_descriptor_of_closed_stderr(tmp_path):
    program = ("import os, ebb\n"
               "for i in range(3): ebb.step(i)\n"
               "def is_open(fd):\n"
               "    try: os.fstat(fd)\n"
               "    except OSError: return False\n"
               "    return True\n"
               "print(is_open(2))\n")
    result = subprocess.run(["sh", "-c", f"'{binary()}' run -q -d r -- '{PYTHON}' -c \"$JOB\" 2>&-"],
                            cwd=tmp_path, env=environment({"JOB": program}), stdout=subprocess.PIPE,
                            text=True, timeout=PATIENCE_S)
    assert result.stdout == "False\n"
    assert any(o["type"] == "mark" for o in recorded(tmp_path / "r"))


def test_job_with_all_standard_streams_closed_leaves_no_processes(tmp_path):
    command = f"exec '{binary()}' run -d '{tmp_path}/r' -- sh -c 'exit 5'"
    result = subprocess.run(["sh", "-c", command + " <&- >&- 2>&-"], env=environment(),
                            timeout=PATIENCE_S)
    assert result.returncode == 5
    assert (tmp_path / "r/log.txt").read_text() == ""
    assert end_of(tmp_path / "r")["status"] == 5


def test_killed_supervisor_with_closed_stdin_leaves_no_processes(tmp_path):
    command = f"exec '{binary()}' run -q -d '{tmp_path}/r' -- sh -c " \
              "'echo $$ > \"$EBB_RUN_DIR/pid\"; kill -9 $PPID; exec sleep 600' <&-"
    result = subprocess.run(["sh", "-c", command], env=environment(), timeout=PATIENCE_S,
                            stderr=subprocess.PIPE)
    assert result.returncode == 125
    pid = int((tmp_path / "r/pid").read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the job")
    facts = tmp_path / "r" / "run.json"
    wait_for(lambda: facts.exists() and "end" in json.loads(facts.read_text()), "run.json to say so")
    assert end_of(tmp_path / "r")["kind"] == "lost"


def test_file_size_limit_stops_the_recording_but_not_the_job(tmp_path):
    result = subprocess.run(
        [binary(), "run", "-q", "--", "sh", "-c", "echo hi; exit 3", "x" * 3000], cwd=tmp_path,
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
        timeout=PATIENCE_S)
    assert (result.returncode, result.stdout) == (3, "hi\n")
    assert "File too large" in result.stderr


def test_sigpipe_and_sigxfsz_are_not_ignored_in_the_job(tmp_path):
    look = "grep SigIgn /proc/self/status"
    result = subprocess.run([binary(), "run", "-q", "--", "sh", "-c", look], cwd=tmp_path,
                            env=environment(), stdout=subprocess.PIPE, text=True,
                            timeout=PATIENCE_S)
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1 and not ignored >> (signal.SIGXFSZ - 1) & 1


def test_run_exits_with_125_if_the_limit_on_open_files_is_too_low(tmp_path):
    result = subprocess.run(
        [binary(), "run", "-d", tmp_path / "r", "--", "touch", tmp_path / "started"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)),
        timeout=PATIENCE_S)
    assert result.returncode == 125
    assert result.stderr.startswith("ebb: ") and result.stderr.count("\n") == 1, result.stderr
    assert not (tmp_path / "started").exists()


def test_job_with_a_command_line_of_megabytes_exits_normally(tmp_path):
    arguments = ["\x01" * 120000] * 12
    result = run("-q", "-d", tmp_path / "r", "--", "sh", "-c", "exit 3", *arguments)
    assert result.returncode == 3
    assert len((tmp_path / "r/run.json").read_text()) < 1 << 20


@plain
@pytest.mark.skipif(IS_SANITIZED, reason="a sanitized program maps terabytes and cannot start under such a limit")
def test_address_space_used_by_the_job_excludes_ebb_itself(tmp_path):
    program = ("import os, time\n"
               "b = bytearray(b'x') * (600 << 20)\n"
               "while not os.path.exists('go'): time.sleep(0.05)\n")
    process = subprocess.Popen(
        [binary(), "run", "-q", "-i", "100ms", "-d", "r", "--", PYTHON, "-c", program],
        cwd=tmp_path, env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2000 << 20, 2000 << 20)))
    wait_for(lambda: any(o["type"] == "machine" and o.get("limit_used_bytes", 0) > 600 << 20
                         for o in recorded(tmp_path / "r")), "the job's use in the recording")
    (tmp_path / "go").touch()
    assert process.wait(timeout=PATIENCE_S) == 0
