"""Tests help, manual page and completions, which are all generated from one table of options."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

import pytest

from commands import binary, environment, refused, refused_with

COMMANDS = ["run", "watch", "attach", "detach", "stack", "show", "verdict", "diagnose", "explain",
            "heap", "census", "report", "compare", "export", "mark", "doctor", "serve", "submit",
            "jobs", "logs", "wait", "cancel", "checkpoint", "rerun", "help", "version"]
EXPECTED = [command for command in COMMANDS if command != "watch"]


def options_in(text):
    return re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text.split("\nOptions:\n")[1], re.M)


@pytest.mark.parametrize("command", EXPECTED)
def test_help_of_each_command_matches_expected_text(ebb, golden, command):
    result = ebb("help", command)
    assert (result.returncode, result.stderr) == (0, "")
    golden(f"help-{command}.txt", result.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_way_to_request_help_prints_the_same_text(ebb, command):
    results = [ebb("help", command), ebb(command, "--help"), ebb(command, "-h")]
    assert all(r.returncode == 0 and r.stderr == "" for r in results)
    assert len({r.stdout for r in results}) == 1
    assert results[0].stdout.startswith(f"Usage: ebb {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_width_and_lists_each_option_once(ebb, command):
    text = ebb("help", command).stdout
    assert max(map(len, text.splitlines())) <= 80
    names = options_in(text)
    assert "help" in names and len(names) == len(set(names))


@pytest.mark.parametrize("arguments", [["help"], ["--help"], ["-h"]])
def test_help_command_lists_every_command(ebb, arguments):
    result = ebb(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", result.stdout, re.M)


def test_ebb_without_arguments_lists_commands_and_exits_with_2(ebb):
    result = ebb()
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == ebb("help").stdout


def on_a_terminal(columns, *arguments):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([binary(), *arguments], stdout=theirs, env=environment(), check=True)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 65536):
            text += chunk
    except OSError:
        pass  # Reading from a closed terminal ends with EIO.
    os.close(ours)
    return text.decode().replace("\r", "")


@pytest.mark.parametrize("columns, width", [(10, 40), (60, 60), (90, 90), (300, 100)])
def test_help_adapts_to_the_terminal_width(columns, width):
    prose = on_a_terminal(columns, "help", "export").split("\nOptions:\n")[0].splitlines()[1:]
    assert width - 15 < max(map(len, prose)) <= width


def test_help_for_an_unknown_command_suggests_a_similar_command(ebb):
    assert refused(ebb("help", "exprot"), 'unknown command "exprot"; did you mean export?')


def test_help_command_refuses_contradicting_options(ebb):
    assert refused_with(ebb("help", "--man", "--completions", "bash"), "mutually exclusive")
    assert refused_with(ebb("help", "--man", "export"), "mutually exclusive")


def test_manual_page_has_every_command_and_option(ebb):
    page = ebb("help", "--man").stdout
    assert page.isascii()
    plain = page.replace("\\-", "-")
    for command in COMMANDS:
        assert f'.SS "ebb {command}"\n' in page
        for option in options_in(ebb("help", command).stdout):
            assert f"\\fB--{option}\\fR" in plain


def test_manual_page_is_valid_roff(ebb, tmp_path):
    text = ebb("help", "--man").stdout
    requests = set(re.findall(r"^[.'](\S*)", text, re.M))
    assert requests <= {'\\"', "TH", "SH", "SS", "TP", "PP", "RS", "RE", "nf", "fi"}
    page = tmp_path / "ebb.1"
    page.write_text(text)
    if shutil.which("groff"):
        result = subprocess.run(["groff", "-ww", "-man", "-Tutf8", page], capture_output=True)
        assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]),
                                          ("fish", ["fish", "--no-execute"])])
def test_completion_scripts_have_valid_syntax(ebb, tmp_path, shell, check):
    result = ebb("help", "--completions", shell)
    assert (result.returncode, result.stderr) == (0, "")
    script = tmp_path / shell
    script.write_text(result.stdout)
    if shutil.which(check[0]):
        done = subprocess.run([*check, script], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_completions_offer_every_option_with_its_help(ebb):
    for command in COMMANDS:
        offers = dict(line.split("\t") for line in ebb("complete", "--", command, "-").stdout.splitlines())
        assert list(offers) == [f"--{option}" for option in options_in(ebb("help", command).stdout)]
        assert all(offers.values())


def complete(ebb, *words):
    """Returns bash's completions of the last of WORDS."""
    script = ebb("help", "--completions", "bash").stdout
    script += 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ebb; printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script, "bash", binary(), *words[1:]], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_commands_and_options_and_programs(ebb, tmp_path):
    script = tmp_path / "ebb.fish"
    script.write_text(ebb("help", "--completions", "fish").stdout)
    (tmp_path / "ebb").symlink_to(os.path.abspath(binary()))
    for line, offers in [("ebb exp", ["explain", "export"]), ("ebb export --j", ["--jsonl"]),
                         ("ebb help --completions ", ["bash", "fish", "zsh"]), ("ebb heap --top ", [])]:
        done = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], text=True,
                              capture_output=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        assert [offer.split("\t")[0] for offer in done.stdout.splitlines()] == offers


def test_bash_completes_commands_and_options_and_values(ebb):
    assert complete(ebb, "ebb", "exp") == ["explain", "export"]
    assert complete(ebb, "ebb", "export", "--j") == ["--jsonl"]
    assert complete(ebb, "ebb", "help", "--completions", "") == ["bash", "zsh", "fish"]
    assert complete(ebb, "ebb", "help", "--completions", "=", "z") == ["zsh"]
    assert complete(ebb, "ebb", "help", "do") == ["doctor"]
    assert complete(ebb, "ebb", "export", "-o", "x") == []  # bash completes file names itself
    assert "bash" in complete(ebb, "ebb", "run", "--", "bas")


def test_completions_for_an_unknown_shell_are_refused(ebb):
    assert refused(ebb("help", "--completions", "tcsh"),
                   'help: --completions: "tcsh" is not one of bash|zsh|fish')
