"""Tests that an invalid command line prints one error that names the value, and exits with the right status."""

import os
import subprocess

import pytest

from commands import binary, environment, refused, refused_with

NOT_A_TIME = "is not a time; write it like 500ms, 10s or 5m"


@pytest.mark.parametrize("arguments, sentence", [
    (["wach"], 'unknown command "wach"; did you mean watch?'),
    (["vesrion"], 'unknown command "vesrion"; did you mean version?'),
    (["frobnicate"], 'unknown command "frobnicate"; `ebb help` lists all commands'),
    ([""], 'unknown command ""; `ebb help` lists all commands'),
    (["--frob"], "unknown option --frob; options follow a command, and `ebb help` lists "
                 "the commands"),
    (["watch", "--intervall", "3s"],
     "watch: unknown option --intervall; did you mean --interval?"),
    (["watch", "--intervall=3s"],
     "watch: unknown option --intervall; did you mean --interval?"),
    (["export", "--frobnicate"],
     "export: unknown option --frobnicate; `ebb help export` lists all options"),
    (["export", "-x"], "export: unknown option -x; `ebb help export` lists all options"),
    (["export", "-csv", "x"], "export: unknown option -csv; did you mean --csv?"),
    (["report", "--col"], "report: --column requires a value: --column NAME"),
    (["export", "x", "--output"], "export: --output requires a value: --output FILE"),
    (["export", "x", "-o"], "export: --output requires a value: --output FILE"),
    (["export", "x", "--csv=yes"], 'export: --csv takes no value, but "yes" was given'),
    (["export", "x", "--csv="], 'export: --csv takes no value, but "" was given'),
    (["export", "--csv", "x", "-o", ""],
     'export: --output: the value is empty; write it like --output FILE'),
    (["logs"], "logs: ID is missing; usage: ebb logs [OPTION…] ID"),
    (["export", "--csv", "a", "b"],
     'export: unexpected operand "b"; usage: ebb export [OPTION…] [RUN_DIR|FILE.ebb|FILE.ebbheap]'),
    (["version", "a"], 'version: unexpected operand "a"; usage: ebb version [OPTION…]'),
    (["doctor", "a"], 'doctor: unexpected operand "a"; usage: ebb doctor [OPTION…]'),
    (["export", "x"],
     "export: no format given; use --csv, --jsonl, --pprof, --collapsed or --speedscope"),
    (["export", "x", "--csv", "--jsonl"], "export: several formats given; use one"),
    (["export", "x", "--csv", "--pprof"], "export: several formats given; use one"),
    (["export", "x", "--csv", "--pid", "3"],
     "export: --pid requires --pprof, --collapsed or --speedscope"),
    (["watch", "--interval", "0"],
     'watch: --interval: "0" has no unit; write it like 500ms, 10s or 5m'),
    (["watch", "--interval", "0s"], 'watch: --interval: "0s" is too short; the minimum is 50ms'),
    (["watch", "--interval", "-1s"], f'watch: --interval: "-1s" {NOT_A_TIME}'),
    (["watch", "--interval", "abc"], f'watch: --interval: "abc" {NOT_A_TIME}'),
    (["watch", "--interval="], f'watch: --interval: "" {NOT_A_TIME}'),
    (["watch", "--for", "abc"], f'watch: --for: "abc" {NOT_A_TIME}'),
])
def test_invalid_command_line_prints_one_line_and_exits_with_2(ebb, arguments, sentence):
    assert refused(ebb(*arguments), sentence)


@pytest.mark.parametrize("arguments, sentence", [
    (["--intervall", "3s", "--", "true"],
     "run: unknown option --intervall; did you mean --interval?"),
    (["--interval", "abc", "--", "true"], f'run: --interval: "abc" {NOT_A_TIME}'),
    (["--interval"], "run: --interval requires a value: --interval TIME"),
])
def test_invalid_option_of_ebb_run_exits_with_status_125(ebb, arguments, sentence, tmp_path):
    assert refused(ebb("run", *arguments, cwd=tmp_path), sentence, status=125)
    assert list(tmp_path.iterdir()) == []


def test_run_without_a_command_is_refused(ebb, tmp_path):
    assert refused_with(ebb("run", cwd=tmp_path), "ebb: run: ", status=125)


def test_unambiguous_option_prefix_is_accepted(ebb):
    assert ebb("version", "--js").stdout == ebb("version", "--json").stdout != ""


def test_options_after_operands_are_accepted_until_a_double_dash(ebb):
    assert refused_with(ebb("export", "/nonexistent/x.ebb", "--csv"), "/nonexistent/x.ebb")
    assert refused_with(ebb("export", "--csv", "--", "--nonexistent"), "--nonexistent")


def test_control_characters_of_arguments_are_escaped_in_errors(ebb):
    result = ebb("\x1b[31mred\n\u202eevil")
    assert refused_with(result, r"\e[31mred\n\u{202e}evil")
    result = subprocess.run([binary(), b"--\xff\x9b"], capture_output=True, env=environment())
    assert result.stderr.startswith(b"ebb: unknown option --\\xff\\x9b;")


def test_error_about_a_long_argument_still_prints_the_advice(ebb):
    assert refused_with(ebb("x" * 5000), "`ebb help` lists all commands")
    assert refused_with(ebb("export", "--" + "x" * 5000), "`ebb help export` lists all options")
    assert refused_with(ebb("watch", "--interval", "9" * 5000), "has no unit")


def test_closed_output_pipe_ends_ebb_without_an_error():
    read, write = os.pipe()
    os.close(read)
    # SIGPIPE has its default action in the first run, and is ignored in the second, as under nohup.
    for restore in (True, False):
        result = subprocess.run([binary(), "help"], stdout=write, stderr=subprocess.PIPE,
                                env=environment(), restore_signals=restore)
        assert result.returncode == (-13 if restore else 141)
        assert result.stderr == b""
    os.close(write)


def test_full_disk_at_standard_output_is_reported_as_an_error(ebb):
    with open("/dev/full", "w") as full:
        result = ebb("help", stdout=full)
    assert result.returncode == 2
    assert result.stderr == "ebb: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("locale", ["C", "POSIX", "nonsense", ""])
def test_output_is_utf8_in_every_locale_setting(ebb, locale):
    assert "[OPTION…]" in ebb("help", env={"LC_ALL": locale}).stdout
