"""Tests that an invalid option or config file of the guard prints one error, exits with status 125, and starts no
job."""

import os

import pytest

from commands import refused, refused_with

NO_GUARD = "configures the guard, but --no-guard disables it"
NO_CHECKPOINT = "configures checkpoint requests, but --no-checkpoint disables them"
NO_RESTART = "has no effect without --restart or --restart-every"
HALF = "sets the time between SIGTERM and SIGKILL, but"
NOT_A_SIZE = "is not a size; write it like 512M, 24G, 1.5GiB or 80%"
NOT_A_SHARE = "is not a percentage between 0.01% and 100%"
NO_UNIT = "has no unit; write it like 500ms, 10s or 5m"
EVERY = "is not a time, number of steps or size; write it like 2h, 500steps or 20G"
HOW_TO_WRITE_A_SIGNAL = "write it like USR1, SIGUSR2 or 10"
NOT_CLOSED = "has an unclosed quote or ends in a backslash"
TAKEN = "cannot request a checkpoint; use a signal that the job handles, such as USR1"


@pytest.fixture
def job(ebb, tmp_path):
    """Returns a function that runs a job under ebb. The job creates a file; job.ran() returns whether it exists."""
    folder = tmp_path / "job"
    folder.mkdir()

    def run(*arguments):
        return ebb("run", "--quiet", *arguments, "--", "touch", "ran", cwd=folder)
    run.folder = folder
    run.ran = lambda: (folder / "ran").exists()
    return run


def not_started(job):
    """Returns whether neither a job nor a run folder was created."""
    return list(job.folder.iterdir()) == []


@pytest.mark.parametrize("option, value, sentence", [
    ("limit", "0", '"0" is too small; the minimum is 1 byte'),
    ("limit", "200%", f'"200%" {NOT_A_SHARE}'),
    ("limit", "0%", f'"0%" {NOT_A_SHARE}'),
    ("limit", "12X", f'"12X" {NOT_A_SIZE}'),
    ("limit", "", f'"" {NOT_A_SIZE}'),
    ("limit", "-1G", f'"-1G" {NOT_A_SIZE}'),
    ("limit", "1.5", f'"1.5" {NOT_A_SIZE}'),
    ("limit", "99999999P", '"99999999P" is too large; write it like 512M, 24G '
                           "or 80%"),
    ("reserve", "much", f'"much" {NOT_A_SIZE}'),
    ("reserve", "101%", f'"101%" {NOT_A_SHARE}'),
    ("gpu-limit", "80 %", f'"80 %" {NOT_A_SIZE}'),
    ("gpu-limit", "0", '"0" is too small; the minimum is 1 byte'),
    ("grace", "5", f'"5" {NO_UNIT}'),
    ("grace", "0s", '"0s" is too short; the minimum is 1ms'),
    ("grace", "soon", '"soon" is not a time; write it like 500ms, 10s or 5m'),
    ("margin", "2", f'"2" {NO_UNIT}'),
    ("margin", "9d", '"9d" is too long; the maximum is 1d'),
    ("checkpoint-time", "10", f'"10" {NO_UNIT}'),
    ("checkpoint-wait", "8d", '"8d" is too long; the maximum is 7d'),
    ("pressure", "30", '"30" is neither a percentage such as 30% nor "off"'),
    ("pressure", "0.3", '"0.3" is neither a percentage such as 30% nor "off"'),
    ("pressure", "OFF", '"OFF" is neither a percentage such as 30% nor "off"'),
    ("pressure", "101%", f'"101%" {NOT_A_SHARE}'),
    ("pressure", "x%", f'"x%" {NOT_A_SIZE}'),
    ("checkpoint-signal", "USR3", f'unknown signal "USR3"; {HOW_TO_WRITE_A_SIGNAL}'),
    ("checkpoint-signal", "0", f'unknown signal "0"; {HOW_TO_WRITE_A_SIGNAL}'),
    ("checkpoint-signal", "33", f'unknown signal "33"; {HOW_TO_WRITE_A_SIGNAL}'),
    ("checkpoint-signal", "KILL", f'"KILL" {TAKEN}'),
    ("checkpoint-signal", "SIGSTOP", f'"SIGSTOP" {TAKEN}'),
    ("checkpoint-signal", "9", f'"9" {TAKEN}'),
    ("checkpoint-signal", "chld", f'"chld" {TAKEN}'),
    ("checkpoint-signal", "", 'the value is empty; write it like --checkpoint-signal NAME'),
    ("checkpoint-cmd", "", 'the value is empty; write it like --checkpoint-cmd CMD'),
    ("checkpoint-done", "", 'the value is empty; write it like --checkpoint-done PATH'),
    ("max-restarts", "0", '"0" is out of range; expected 1 to 1000000'),
    ("max-restarts", "-1", '"-1" is out of range; expected 1 to 1000000'),
    ("max-restarts", "many", '"many" is not a whole number; expected 1 to 1000000'),
    ("restart-every", "500", '"500" has no unit; write it like 2h, 500steps or 20G'),
    ("restart-every", "0s", '"0s" is too short; the minimum is 1s'),
    ("restart-every", "0steps", '"0" is out of range; expected 1 to '
                                "9223372036854775807"),
    ("restart-every", "1.5steps", '"1.5" is not a whole number; expected 1 to '
                                  "9223372036854775807"),
    ("restart-every", "steps", f'"steps" {EVERY}'),
    ("restart-every", "2 weeks", f'"2 weeks" {EVERY}'),
    ("restart-every", "80%", f'"80%" {EVERY}'),
    ("restart-every", "0G", f'"0G" {EVERY}'),
    ("restart-every", "1" * 60 + "steps", f'"{"1" * 60}steps" {EVERY}'),
    ("resume-args", "'--resume", f"\"'--resume\" {NOT_CLOSED}"),
    ("resume-args", "a \\", f'"a \\\\" {NOT_CLOSED}'),
    ("resume-args", "  ", '"  " contains no arguments'),
    ("resume-args", "", 'the value is empty; write it like --resume-args ARGS'),
])
def test_invalid_guard_option_is_refused_before_job_starts(job, option, value, sentence):
    assert refused(job(f"--{option}={value}"), f"run: --{option}: {sentence}", status=125)
    assert not_started(job)


@pytest.mark.parametrize("option", ["limit", "reserve", "gpu-limit", "margin", "checkpoint-time",
                                    "checkpoint-wait", "grace", "pressure", "checkpoint-signal",
                                    "checkpoint-cmd", "checkpoint-done", "max-restarts",
                                    "restart-every", "resume-args", "config"])
def test_guard_option_without_value_is_refused(ebb, tmp_path, option):
    assert refused_with(ebb("run", f"--{option}", cwd=tmp_path),
                        f"run: --{option} requires a value: --{option} ", status=125)


@pytest.mark.parametrize("arguments, sentence", [
    (["--limit", "2G", "--reserve", "2G"],
     "--reserve: 2.00 GiB is too large; it must be less than --limit, which is 2.00 GiB"),
    (["--limit", "512M", "--reserve", "4G"],
     "--reserve: 4.00 GiB is too large; it must be less than --limit, which is 512 MiB"),
    (["--limit", "24"], '--limit: "24" has no unit; did you mean 24G?'),
    (["--reserve", "100%"], "--reserve: 100% leaves no memory for the job; use a smaller percentage"),
    (["--limit", "2G", "--restart-every", "20G"],
     "--restart-every: 20.0 GiB is too large; it must be less than --limit, which is 2.00 GiB"),
    (["--max-restarts", "3"], f"--max-restarts {NO_RESTART}"),
    (["--resume-args", "-r"], f"--resume-args {NO_RESTART}"),
    (["--no-guard", "--limit", "2G"], f"--limit {NO_GUARD}"),
    (["--no-guard", "--reserve", "2G"], f"--reserve {NO_GUARD}"),
    (["--no-guard", "--gpu-limit", "2G"], f"--gpu-limit {NO_GUARD}"),
    (["--no-guard", "--margin", "2s"], f"--margin {NO_GUARD}"),
    (["--no-guard", "--pressure", "off"], f"--pressure {NO_GUARD}"),
    (["--no-guard", "--grace", "2s"], f"--grace {NO_GUARD}"),
    (["--no-guard", "--checkpoint-signal", "USR1"], f"--checkpoint-signal {NO_GUARD}"),
    (["--no-guard", "--checkpoint-cmd", "true"], f"--checkpoint-cmd {NO_GUARD}"),
    (["--no-guard", "--checkpoint-done", "x"], f"--checkpoint-done {NO_GUARD}"),
    (["--no-guard", "--checkpoint-time", "1s"], f"--checkpoint-time {NO_GUARD}"),
    (["--no-guard", "--checkpoint-wait", "1s"], f"--checkpoint-wait {NO_GUARD}"),
    (["--no-guard", "--dry-run"], f"--dry-run {NO_GUARD}"),
    (["--restart", "--no-guard"], f"--restart {NO_GUARD}"),
    (["--restart-every", "2h", "--no-guard"], f"--restart-every {NO_GUARD}"),
    (["--restart", "--max-restarts", "2", "--no-guard"], f"--restart {NO_GUARD}"),
    (["--no-guard", "--max-restarts", "2"], f"--max-restarts {NO_GUARD}"),
    (["--no-guard", "--resume-args", "x"], f"--resume-args {NO_GUARD}"),
    (["--no-checkpoint", "--checkpoint-signal", "USR1"], f"--checkpoint-signal {NO_CHECKPOINT}"),
    (["--no-checkpoint", "--checkpoint-cmd", "true"], f"--checkpoint-cmd {NO_CHECKPOINT}"),
    (["--no-checkpoint", "--checkpoint-done", "x"], f"--checkpoint-done {NO_CHECKPOINT}"),
    (["--no-checkpoint", "--checkpoint-time", "1s"], f"--checkpoint-time {NO_CHECKPOINT}"),
    (["--no-checkpoint", "--checkpoint-wait", "1s"], f"--checkpoint-wait {NO_CHECKPOINT}"),
    (["--grace", "2s", "--no-term"], f"--grace {HALF} --no-term disables SIGTERM"),
    (["--grace", "2s", "--no-kill"], f"--grace {HALF} --no-kill disables SIGKILL"),
])
def test_contradicting_guard_options_are_refused(job, arguments, sentence):
    assert refused(job(*arguments), f"run: {sentence}", status=125)
    assert not_started(job)


@pytest.mark.parametrize("arguments", [
    ["--limit", "1P", "--reserve", "1G", "--gpu-limit", "90%", "--margin", "1s"],
    ["--checkpoint-signal", "10", "--checkpoint-cmd", "true", "--checkpoint-done", "done"],
    ["--restart", "--max-restarts", "3", "--resume-args", "--resume 'the last'", "--dry-run"],
    ["--restart-every", "500 steps", "--max-restarts", "3"],
    ["--no-guard", "--no-kill", "--keep-on-exit", "--clean-shm", "--no-cgroup"],
])
def test_every_consistent_set_of_guard_options_starts_the_job(job, arguments):
    result = job(*arguments)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert job.ran()


@pytest.mark.parametrize("text, sentence", [
    ("limt = 2G\n", ':1: unknown option "limt"; did you mean "limit"?'),
    ("# rules\n\nfrobnicate = 2G\n",
     ':3: unknown option "frobnicate"; `ebb help run` lists all options'),
    ("config = other.conf\n",
     ':1: unknown option "config"; `ebb help run` lists all options'),
    ("quiet\n", ':1: unknown option "quiet"; `ebb help run` lists all options'),
    ("limit = 12X\n", f':1: limit: "12X" {NOT_A_SIZE}'),
    ("restart\ngrace = 5\n", f':2: grace: "5" {NO_UNIT}'),
    ("checkpoint-signal = KILL", f':1: checkpoint-signal: "KILL" {TAKEN}'),
    ("pressure = x", ':1: pressure: "x" is neither a percentage such as 30% nor "off"'),
    ("restart-every = 500", ':1: restart-every: "500" has no unit; write it like 2h, 500steps or '
                            "20G"),
    ("restart\nresume-args = 'a", f":2: resume-args: \"'a\" {NOT_CLOSED}"),
    ("limit\n", ":1: limit has no value; write it like limit = SIZE|N%"),
    ("restart = perhaps\n", ':1: restart: "perhaps" is neither yes nor no'),
    ("limit = 2G\nlimit = 3G\n", ":2: limit is already set in line 1"),
    ("\0\1\2", " is not a text file; write lines like limit = 24G"),
    ("# x\n" * 20000, " is too large for a config file (maximum 64 KiB)"),
])
def test_invalid_config_file_is_refused_before_job_starts(job, text, sentence):
    (job.folder.parent / "guard.conf").write_text(text)
    assert refused(job("--config", "../guard.conf"), f"run: ../guard.conf{sentence}", status=125)
    assert not_started(job)


def test_unreadable_config_file_is_refused(job, ebb_as_nobody, open_folder):
    assert refused(job("--config", "none.conf"),
                   "run: cannot read none.conf: No such file or directory", status=125)
    assert refused(job("--config", ".."), "run: cannot read ..: Is a directory", status=125)
    assert refused(job("--config", "/dev/zero"),
                   "run: /dev/zero is too large for a config file (maximum 64 KiB)", status=125)
    assert refused(job("--config", ""), 'run: --config: the value is empty; write it like --config FILE',
                   status=125)
    assert not_started(job)
    secret = open_folder / "guard.conf"
    secret.write_text("limit = 2G\n")
    secret.chmod(0)
    assert refused(ebb_as_nobody("run", "--config", secret, "--", "touch", "ran"),
                   f"run: cannot read {secret}: Permission denied", status=125)
    assert not (open_folder / "ran").exists()


@pytest.mark.parametrize("text, arguments, sentence", [
    ("max-restarts = 3\n", [], f"max-restarts (../guard.conf:1) {NO_RESTART}"),
    ("limit = 2G\n\nreserve = 3G\n", [],
     "reserve (../guard.conf:3): 3.00 GiB is too large; it must be less than limit (../guard.conf:1), "
     "which is 2.00 GiB"),
    ("reserve = 3G\n", ["--limit", "2G"],
     "reserve (../guard.conf:1): 3.00 GiB is too large; it must be less than --limit, which is 2.00 GiB"),
    ("no-guard\n", ["--restart"],
     "--restart configures the guard, but no-guard (../guard.conf:1) disables it"),
    ("no-guard = yes\nlimit = 2G", [],
     "limit (../guard.conf:2) configures the guard, but no-guard (../guard.conf:1) disables it"),
])
def test_error_for_contradicting_options_names_config_file_line(job, text, arguments, sentence):
    (job.folder.parent / "guard.conf").write_text(text)
    assert refused(job("--config", "../guard.conf", *arguments), f"run: {sentence}", status=125)
    assert not_started(job)


@pytest.mark.parametrize("text, arguments", [
    ("interval = 2s\nlimit = 900T  # plenty\nreserve = 1G\n\nrestart = no\ngrace = 5s\n", []),
    ("reserve = 3G\n", ["--limit", "2G", "--reserve", "10%", "--dry-run"]),
    ("max-restarts = 3\n", ["--restart"]),
    ("restart\nlimit = 2G\n", ["--no-guard"]),
    ("checkpoint-cmd = 'echo # saved'\n", ["--no-checkpoint"]),
    ("", []),
])
def test_command_line_overrides_config_file(job, text, arguments):
    (job.folder.parent / "guard.conf").write_text(text)
    result = job("--config", "../guard.conf", *arguments)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert job.ran()


def test_config_file_may_be_read_from_a_pipe(ebb, tmp_path):
    read, write = os.pipe()
    os.write(write, b"limt = 2G\n")
    os.close(write)
    result = ebb("run", "--config", f"/dev/fd/{read}", "--", "touch", "ran", cwd=tmp_path,
                 pass_fds=[read])
    os.close(read)
    assert refused(result, f'run: /dev/fd/{read}:1: unknown option "limt"; did you mean "limit"?',
                   status=125)
    assert list(tmp_path.iterdir()) == []


def test_control_characters_are_escaped_in_config_file_errors(job):
    (job.folder.parent / "guard.conf").write_text("\u202elimit = 2G\n")
    assert refused_with(job("--config", "../guard.conf"), r"\u{202e}limit", status=125)
    assert not_started(job)
