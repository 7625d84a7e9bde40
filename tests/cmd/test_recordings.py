"""Tests that `ebb export` writes all recorded data and reports damage."""

import csv
import io
import json
import os
import random
import re
import subprocess

import pytest

from commands import PATIENCE_S, ROOT, binary, environment, make_recording, refused, refused_with

TABLE = """t,pid,rss_bytes,step
0,10,1000000,0
0,11,5000,0
1,10,1100000,1
1,11,,1
2.5,10,1250000,2
2.5,11,7000,2
"""
MARKS = """{"t": 0, "kind": "begin"}
{"t": 1.5, "kind": "eval", "step": 1}
{"t": 2.5, "kind": "end"}
"""


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def exported(ebb, path, *options):
    result = ebb("export", path, *options)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture
def recording(tmp_path):
    return make_recording(write(tmp_path / "small.csv", TABLE), tmp_path / "small.ebb")


@pytest.fixture
def large_recording(tmp_path):
    rows = "".join(f"{t},{pid},{1000 * t + pid * 7919 % 4096}\n"
                   for t in range(400) for pid in range(1, 21))
    table = write(tmp_path / "large.csv", "t,pid,rss_bytes\n" + rows)
    return make_recording(table, tmp_path / "large.ebb")


@pytest.fixture
def run_folder(tmp_path, recording):
    folder = tmp_path / "run"
    folder.mkdir()
    recording.rename(folder / "trace.ebb")
    return folder


def test_exported_table_equals_the_table_that_was_imported(ebb, recording):
    def values(rows):
        return sorted((float(r["t"]), int(r["pid"]), int(r["rss_bytes"]), int(r["step"]))
                      for r in rows if r["rss_bytes"])
    rows = rows_of(exported(ebb, recording, "--csv"))
    assert values(rows) == values(rows_of(TABLE))
    # A value that was never sampled is exported as an empty field, not as 0.
    assert all(r["anon_bytes"] == "" for r in rows)


def test_jsonl_export_has_header_processes_samples_and_marks(ebb, tmp_path):
    out = make_recording(write(tmp_path / "x.csv", TABLE), tmp_path / "x.ebb",
                         write(tmp_path / "m.jsonl", MARKS))
    objects = [json.loads(line) for line in exported(ebb, out, "--jsonl").splitlines()]
    assert objects[0]["type"] == "header"
    assert {o["type"] for o in objects} >= {"header", "process", "sample", "mark"}
    assert {"begin", "eval", "end"} <= {o["kind"] for o in objects if o["type"] == "mark"}


def test_export_command_replaces_the_output_file(ebb, tmp_path, recording):
    out = write(tmp_path / "out.csv", "old " * 10000)
    assert exported(ebb, recording, "--csv", "-o", out) == ""
    assert out.read_text() == exported(ebb, recording, "--csv")
    assert exported(ebb, recording, "--csv", "-o", "-") == out.read_text()
    assert exported(ebb, recording, "--csv", "-o", "/dev/stdout") == out.read_text()


def test_export_command_accepts_a_run_folder(ebb, tmp_path, run_folder):
    (tmp_path / "latest").symlink_to(run_folder)
    text = exported(ebb, run_folder / "trace.ebb", "--csv")
    assert exported(ebb, run_folder, "--csv") == text
    assert exported(ebb, tmp_path / "latest", "--csv") == text


def test_export_command_refuses_to_overwrite_the_recording(ebb, tmp_path, run_folder):
    trace = run_folder / "trace.ebb"
    link = tmp_path / "link.csv"
    link.symlink_to(trace)
    before = trace.read_bytes()
    for operand in (run_folder, trace, link):
        for out in (trace, link):
            assert refused(ebb("export", operand, "--csv", "-o", out),
                           f"export: --output: {out} is the recording itself; choose another file")
    assert trace.read_bytes() == before


def test_export_error_names_the_output_that_cannot_be_written(ebb, tmp_path, recording):
    assert refused_with(ebb("export", recording, "--csv", "-o", tmp_path), "Is a directory")
    assert refused_with(ebb("export", recording, "--csv", "-o", tmp_path / "no" / "x"), "no/x")
    assert refused_with(ebb("export", recording, "--csv", "-o", "/dev/full"), "No space left")
    with open("/dev/full", "w") as full:
        result = ebb("export", recording, "--jsonl", stdout=full)
    assert result.returncode == 2 and "No space left" in result.stderr


def test_export_error_names_the_unreadable_recording(ebb_as_nobody, open_folder):
    make_recording(write(open_folder / "x.csv", TABLE), open_folder / "x.ebb").chmod(0)
    assert refused_with(ebb_as_nobody("export", "x.ebb", "--csv"), "x.ebb", "Permission denied")


@pytest.mark.parametrize("content", [
    b"",
    b"t,pid,rss_bytes\n0,1,2\n",
    b"\x7fELF" + b"\0" * 500,
    b"PK\x03\x04" + b"\0" * 500,
    bytes(range(256)) * 64,
])
def test_export_command_refuses_a_file_that_is_not_a_recording(ebb, tmp_path, content):
    path = write(tmp_path / "foreign", content)
    assert refused_with(ebb("export", path, "--csv"), "foreign", "not an ebb recording")


def test_export_command_reports_a_missing_path_or_recording(ebb, tmp_path):
    assert refused_with(ebb("export", tmp_path / "no.ebb", "--csv"), "no.ebb")
    assert refused_with(ebb("export", tmp_path, "--csv"), str(tmp_path))
    assert refused_with(ebb("export", "/dev/null", "--csv"), "/dev/null")


def test_truncated_recording_is_exported_up_to_the_cut(ebb, tmp_path, large_recording):
    whole = large_recording.read_bytes()
    full = exported(ebb, large_recording, "--csv").splitlines()
    cut = tmp_path / "cut.ebb"
    said = 0
    for size in random.Random(1).sample(range(1, len(whole)), 25) + [len(whole) - 1]:
        result = ebb("export", write(cut, whole[:size]), "--csv")
        if result.returncode == 2:
            assert refused_with(result, "cut.ebb")
            continue
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert lines == full[:len(lines)]
        assert result.stderr.count("\n") <= 1
        said += "cut.ebb is damaged; skipped: " in result.stderr
    assert said > 0


def test_damaged_recording_is_exported_in_part_or_refused(ebb, tmp_path, large_recording):
    whole = large_recording.read_bytes()
    chance = random.Random(2)
    for i in range(50):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 3, 50])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        bad = write(tmp_path / "bad.ebb", bytes(data))
        result = ebb("export", bad, "--csv" if i % 2 else "--jsonl")
        assert result.returncode in (0, 2), result.stderr
        assert result.stderr.count("\n") <= 1
        assert not result.stderr or result.stderr.startswith("ebb: export: ")


def test_export_command_exits_silently_if_its_output_pipe_is_closed(large_recording):
    command = [binary(), "export", str(large_recording), "--csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment()) as process:
        assert process.stdout.readline().startswith(b"t,")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=PATIENCE_S) in (-13, 141)


def test_export_command_exits_silently_at_epipe_if_sigpipe_is_ignored(large_recording):
    read, pipe = os.pipe()
    os.close(read)
    result = subprocess.run([binary(), "export", str(large_recording), "--csv"], stdout=pipe,
                            stderr=subprocess.PIPE, env=environment(), restore_signals=False)
    os.close(pipe)
    assert (result.returncode, result.stderr) == (141, b"")


def test_export_error_escapes_control_codes_in_file_names(ebb, tmp_path):
    path = write(tmp_path / "a\x1b[31m\nb.ebb", b"nonsense")
    assert refused_with(ebb("export", path, "--csv"), r"a\e[31m\nb.ebb")


def test_csv_column_numbers_in_the_guide_match_the_export(ebb, recording):
    guide = (ROOT / "docs" / "guide" / "start.md").read_text()
    fields, shown = re.search(r"^\$ cut -d, -f(\S+) run.csv.*\n(.*)$", guide, re.M).groups()
    head = exported(ebb, recording, "--csv").splitlines()[0]
    assert subprocess.run(["cut", "-d,", f"-f{fields}"], input=head, capture_output=True, text=True,
                          check=True).stdout.strip() == shown
