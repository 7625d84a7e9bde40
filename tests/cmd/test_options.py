"""Command lines that are wrong: one sentence with the value, the right status, nothing else."""

import os
import subprocess

import pytest

from commands import binary, environment, refused, refused_with

NOT_A_TIME = "is not a time; write it like 500ms, 10s or 5m"


@pytest.mark.parametrize("arguments, sentence", [
    (["wach"], 'there is no command "wach"; did you mean watch?'),
    (["vesrion"], 'there is no command "vesrion"; did you mean version?'),
    (["frobnicate"], 'there is no command "frobnicate"; `ebb help` lists them'),
    ([""], 'there is no command ""; `ebb help` lists them'),
    (["--frob"], "there is no option --frob; options come behind a command, and `ebb help` lists "
                 "the commands"),
    (["watch", "--intervall", "3s"],
     "watch: there is no option --intervall; did you mean --interval?"),
    (["watch", "--intervall=3s"],
     "watch: there is no option --intervall; did you mean --interval?"),
    (["export", "--frobnicate"],
     "export: there is no option --frobnicate; `ebb help export` lists them"),
    (["export", "-x"], "export: there is no option -x; `ebb help export` lists them"),
    (["export", "-csv", "x"], "export: there is no option -csv; did you mean --csv?"),
    (["report", "--col"], "report: --column needs a value: --column NAME"),
    (["export", "x", "--output"], "export: --output needs a value: --output FILE"),
    (["export", "x", "-o"], "export: --output needs a value: --output FILE"),
    (["export", "x", "--csv=yes"], 'export: --csv takes no value, but "yes" was given'),
    (["export", "x", "--csv="], 'export: --csv takes no value, but "" was given'),
    (["export", "--csv", "x", "-o", ""],
     'export: --output: "" is empty; write it like --output FILE'),
    (["export", "--csv"],
     "export: RUN_DIR|FILE.ebb|FILE.ebbheap is missing; "
     "write ebb export [OPTION…] RUN_DIR|FILE.ebb|FILE.ebbheap"),
    (["export", "--csv", "a", "b"],
     'export: "b" is one too many; it takes RUN_DIR|FILE.ebb|FILE.ebbheap'),
    (["version", "a"], 'version: "a" is one too many; it takes options only'),
    (["doctor", "a"], 'doctor: "a" is one too many; it takes options only'),
    (["export", "x"],
     "export: no format is given; give --csv, --jsonl, --pprof, --collapsed or --speedscope"),
    (["export", "x", "--csv", "--jsonl"], "export: several formats are given; give one"),
    (["export", "x", "--csv", "--pprof"], "export: several formats are given; give one"),
    (["export", "x", "--csv", "--pid", "3"],
     "export: --pid is for --pprof, --collapsed and --speedscope"),
    (["watch", "--interval", "0"],
     'watch: --interval: "0" has no unit; write it like 500ms, 10s or 5m'),
    (["watch", "--interval", "0s"], 'watch: --interval: "0s" is too short; the least is 50ms'),
    (["watch", "--interval", "-1s"], f'watch: --interval: "-1s" {NOT_A_TIME}'),
    (["watch", "--interval", "abc"], f'watch: --interval: "abc" {NOT_A_TIME}'),
    (["watch", "--interval="], f'watch: --interval: "" {NOT_A_TIME}'),
    (["watch", "--for", "abc"], f'watch: --for: "abc" {NOT_A_TIME}'),
])
def test_a_wrong_command_line_is_one_sentence_and_status_2(ebb, arguments, sentence):
    assert refused(ebb(*arguments), sentence)


@pytest.mark.parametrize("arguments, sentence", [
    (["--intervall", "3s", "--", "true"],
     "run: there is no option --intervall; did you mean --interval?"),
    (["--interval", "abc", "--", "true"], f'run: --interval: "abc" {NOT_A_TIME}'),
    (["--interval"], "run: --interval needs a value: --interval TIME"),
])
def test_run_says_the_same_with_status_125(ebb, arguments, sentence, tmp_path):
    assert refused(ebb("run", *arguments, cwd=tmp_path), sentence, status=125)
    assert list(tmp_path.iterdir()) == []


def test_run_without_a_command_is_refused(ebb, tmp_path):
    assert refused_with(ebb("run", cwd=tmp_path), "ebb: run: ", status=125)


def test_an_option_may_be_cut_short_while_it_is_clear(ebb):
    assert ebb("version", "--js").stdout == ebb("version", "--json").stdout != ""


def test_options_may_come_behind_operands_and_a_double_dash_ends_them(ebb):
    assert refused_with(ebb("export", "/nonexistent/x.ebb", "--csv"), "/nonexistent/x.ebb")
    assert refused_with(ebb("export", "--csv", "--", "--nonexistent"), "--nonexistent")


def test_what_a_person_typed_cannot_drive_the_terminal(ebb):
    result = ebb("\x1b[31mred\n\u202eevil")
    assert refused_with(result, r"\e[31mred\n\u{202e}evil")
    result = subprocess.run([binary(), b"--\xff\x9b"], capture_output=True, env=environment())
    assert result.stderr.startswith(b"ebb: there is no option --\\xff\\x9b;")


def test_a_very_long_word_is_cut_and_the_advice_stays(ebb):
    assert refused_with(ebb("x" * 5000), "`ebb help` lists them")
    assert refused_with(ebb("export", "--" + "x" * 5000), "`ebb help export` lists them")
    assert refused_with(ebb("watch", "--interval", "9" * 5000), "has no unit")


def test_a_pipe_that_is_closed_ends_quietly():
    read, write = os.pipe()
    os.close(read)
    for restore in (True, False):  # with SIGPIPE as it should be, and ignored as from nohup
        result = subprocess.run([binary(), "help"], stdout=write, stderr=subprocess.PIPE,
                                env=environment(), restore_signals=restore)
        assert result.returncode == (-13 if restore else 141)
        assert result.stderr == b""
    os.close(write)


def test_a_full_disk_under_the_output_is_said(ebb):
    with open("/dev/full", "w") as full:
        result = ebb("help", stdout=full)
    assert result.returncode == 2
    assert result.stderr == "ebb: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("locale", ["C", "POSIX", "nonsense", ""])
def test_text_is_utf8_in_every_locale(ebb, locale):
    assert "[OPTION…]" in ebb("help", env={"LC_ALL": locale}).stdout
