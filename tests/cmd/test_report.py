"""Tests `ebb report`: its formats (HTML page, text, Markdown), comparisons of two runs, and hostile or damaged run
folders."""

import html
import json
import os
import pathlib
import re
import struct
import subprocess

import pytest

from commands import (PATIENCE_S, PYTHON, Readers, binary, environment, make_recording, refused, refused_with,
                      run_ebb)

HOSTILE = "</script><script>window.injected=true</script>"
MIB = 1 << 20

# A job that sends marks with a hostile name, and leaks argv[1] bytes in each step.
JOB = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def mark(text):
    s.sendto(text.encode(), os.environ["EBB_SOCKET"])
kept = []
mark("KIND=begin\\nSTEPS_PER_EPOCH=10\\nTORCH_VERSION=9.8.7")
for step in range(1, 41):
    kept.append(bytearray(os.urandom(1) * int(sys.argv[1])))
    time.sleep(0.06)
    mark(f"KIND=step\\nSTEP={step}")
    if step % 10 == 0:
        mark(f"KIND=phase\\nNAME={sys.argv[2]}\\nSTATE=begin")
        mark(f"KIND=eval\\nSTEP={step}")
        mark(f"KIND=phase\\nNAME={sys.argv[2]}\\nSTATE=end")
        mark(f"KIND=epoch\\nSTEP={step}")
"""


def record(folder, kept, name="eval"):
    """Records a run of JOB in FOLDER."""
    result = subprocess.run(
        [binary(), "run", "--interval", "50ms", "--run-dir", str(folder), "--name", name, "--",
         PYTHON, "-c", JOB, str(kept), name],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def leak(tmp_path_factory):
    return record(tmp_path_factory.mktemp("runs") / "leak", 2 * MIB, HOSTILE)


def page_of(*arguments):
    result = run_ebb("report", *arguments, "-o", "-")
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def table(folder, rows, marks=None):
    """Creates a recording from the rows of a CSV table."""
    (folder / "table.csv").write_text("t,pid,rss_bytes\n" + "".join(rows))
    (folder / "marks.jsonl").write_text("".join(json.dumps(m) + "\n" for m in marks or []))
    make_recording(folder / "table.csv", folder / "trace.ebb", *[folder / "marks.jsonl"] * bool(marks))
    return folder


def growing(count=200):
    return [f"{t},7,{100 * MIB + t * MIB}\n" for t in range(count)]


def day_of(folder, ticks):
    """Creates a recording of the first TICKS seconds of a simulated day of training; skips the test if the tool is
    missing."""
    tool = pathlib.Path(os.environ.get("EBB_BUILD_DIR", "build")) / "tests" / "tools" / "day"
    if not tool.exists():
        pytest.skip("tests/tools/day was not built, because cmocka is missing")
    subprocess.run([tool, folder, str(ticks)], check=True, timeout=300)
    return folder


# ---- the page ----

def test_report_writes_page_into_run_folder_and_prints_its_path(leak):
    result = run_ebb("report", leak)
    assert result.returncode == 0
    assert result.stdout.startswith(f"{leak}/report.html (")
    assert (leak / "report.html").read_text().startswith("<!doctype html>")


def test_report_page_loads_no_external_resources(leak):
    page = page_of(leak)
    assert "default-src 'none'" in page
    markup = page.split("<script nonce")[0]
    for reference in re.findall(r"""(?:src|href)\s*=\s*["']?([^"'> ]+)""", markup):
        assert reference == "data:,"
    assert "@import" not in page and "url(" not in page


def test_report_page_shows_the_verdict(leak):
    verdict = json.loads(run_ebb("verdict", leak, "--json").stdout)["tree"]
    text = html.unescape(re.sub(r"<[^>]+>", "", page_of(leak).split("<script")[0]))
    assert verdict["verdict"] in text
    for reason in verdict["evidence"]:
        assert reason in text


def test_report_page_escapes_markup_in_names(leak):
    page = page_of(leak)
    assert HOSTILE not in page and html.escape(HOSTILE) in page
    data = re.search(r'<script type="application/json" id=data>(.*?)</script>', page)
    if data:  # The page contains the data only if the build had npm.
        assert not set("<>&") & set(data.group(1))
        assert json.loads(data.group(1))["phases"][0]["name"] == HOSTILE
    assert page.count("<script") == (2 if data else 0)


def test_report_command_opens_the_recording_once(leak):
    readers = Readers(leak)
    page_of(leak)
    names = readers.names()
    if names is None:
        pytest.skip("this machine allows no inotify watch")
    assert names.count("trace.ebb") == 1


def test_each_report_page_has_a_new_nonce(leak):
    nonces = {re.search(r"script-src 'nonce-(\w+)'", page_of(leak)).group(1) for _ in range(2)}
    assert len(nonces) == 2 and all(len(n) == 32 for n in nonces)


def test_report_page_of_a_full_day_is_smaller_than_2_mb(tmp_path):
    page = page_of(day_of(tmp_path / "day", 86400))
    assert len(page.encode()) < 1.5e6
    doc = json.loads(page_of(tmp_path / "day", "--json"))
    data = doc["data"]
    assert doc["trouble"] == [] and data["steps_seen"] == 43200 and len(data["segments"]) == 1
    assert (data["guard_seen"], len(data["guard"]), data["processes_seen"]) == (288, 200, 108)
    assert {s["of"] for s in data["series"]} == {"job", "process", "machine", "gpu", "figure"}
    assert doc["verdict"]["tree"]["verdict"] == "leaking" and len(doc["heap"]["rows"]) == 25
    # Evaluations cause short spikes, which the page must show although it has fewer points than the recording.
    main = next(s for s in data["series"] if s.get("pid") == 4001 and s["field"] == "rss")
    # The kernel's peak includes memory used between two samples.
    peak = next(p["peak_bytes"] for p in data["processes"] if p["pid"] == 4001)
    assert 0 <= peak - max(main["v"]) <= 5 * MIB
    assert "180 earlier actions" in page and "288 actions in all; the table lists the newest" in page
    assert "52 smaller processes" in page


def test_report_page_of_a_day_with_many_processes_stays_small(tmp_path):
    rows = [f"{t},{pid},{pid * 100 * MIB + (t * 7919 + pid) % MIB * 64}\n"
            for t in range(0, 86400, 4) for pid in range(1, 13)]
    marks = [{"t": t + 0.5, "kind": "step", "step": t} for t in range(0, 86400, 4)]
    table(tmp_path, rows, marks)
    result = run_ebb("report", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "report.html").stat().st_size < 1.5e6


def test_report_command_shows_a_repeated_event_once(tmp_path):
    rows = [f"{t},1,{100 * MIB}\n" for t in range(40)]
    marks = [{"t": t + 0.5, "kind": "step", "step": t} for t in range(40)]
    # The job sends the first epoch mark; after the evaluation, the Python package sends it again for the same step.
    for step in (10, 20, 30):
        marks += [{"t": step + 0.6, "kind": "epoch", "step": step}, {"t": step + 0.7, "kind": "eval", "step": step},
                  {"t": step + 4.5, "kind": "epoch", "step": step}]
    table(tmp_path, rows, sorted(marks, key=lambda mark: mark["t"]))
    kinds = [e["kind"] for e in json.loads(page_of(tmp_path, "--json"))["data"]["events"]]
    assert (kinds.count("epoch"), kinds.count("evaluation")) == (3, 3)


# ---- other formats ----

def test_report_json_has_every_documented_part(leak):
    doc = json.loads(page_of(leak, "--json"))
    data = doc["data"]
    assert doc["trouble"] == [] and doc["title"] == HOSTILE
    assert data["steps_seen"] == 40 and data["versions"] == {"torch": "9.8.7"}
    kinds = [e["kind"] for e in data["events"]]
    assert (kinds.count("evaluation"), kinds.count("epoch"), len(data["phases"])) == (4, 4, 4)
    job = next(s for s in data["series"] if s["of"] == "job")
    rss = next(s for s in data["series"] if s["of"] == "process" and s["field"] == "rss")
    assert len(job["t"]) == len(job["v"]) > 5 and max(rss["v"]) > 50 * MIB
    assert data["processes"][0]["peak_bytes"] == max(rss["v"])


def test_report_text_has_a_plot_and_no_control_characters(leak):
    text = page_of(leak, "--text")
    assert re.search("[\u2801-\u28ff]", text) and "memory of the job" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", text)


def test_report_markdown_lists_versions_and_escapes_markup(leak):
    text = page_of(leak, "--markdown")
    assert "| torch | 9.8.7 |" in text and "| ebb |" in text
    assert text.count("```") % 2 == 0
    outside = "".join(text.split("```")[::2])
    assert "<script" not in outside


def test_report_command_refuses_two_formats_at_once(leak):
    assert refused(run_ebb("report", leak, "--text", "--json"),
                   "report: several formats given; use one of --text, --markdown and --json")


# ---- comparison of two runs ----

@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Creates two recordings from tables: one leaks 1 MiB/step, the other does not grow."""
    marks = [{"t": t, "kind": "step", "step": t} for t in range(600)]
    marks.insert(0, {"t": 0, "kind": "begin", "steps_per_epoch": 50})
    folders = [tmp_path_factory.mktemp("two") / name for name in ("before", "after")]
    for folder, rate in zip(folders, (MIB, 0)):
        folder.mkdir()
        rows = [f"{t},7,{100 * MIB + t * rate + t * 7919 % 4096}\n" for t in range(600)]
        table(folder, rows, marks)
    return folders


def test_report_compare_shows_a_fixed_leak_in_every_format(two, tmp_path):
    doc = json.loads(page_of("--compare", *two, "--json"))
    assert (doc["answer"], doc["by"], doc["before"]["verdict"]) == ("fixed", "step", "leaking")
    assert doc["before"]["rate_bytes_per_step"]["low"] > doc["after"]["rate_bytes_per_step"]["high"]
    for form in ("--text", "--markdown"):
        assert doc["sentence"] in " ".join(page_of("--compare", *two, form).split())
    output = tmp_path / "both.html"
    result = run_ebb("report", two[0], "--compare", two[1], "-o", output)
    assert result.stdout.startswith(doc["sentence"] + "\n")
    assert doc["sentence"] in html.unescape(output.read_text())


def test_comparison_page_is_written_into_the_second_run_folder(two):
    result = run_ebb("report", "--compare", *two)
    assert f"{two[1]}/compare.html (" in result.stdout
    assert (two[1] / "compare.html").exists()


def test_swapping_the_compared_runs_turns_a_fix_into_a_regression(two):
    assert json.loads(page_of("--compare", *reversed(two), "--json"))["answer"] == "worse"
    assert json.loads(page_of("--compare", two[0], two[0], "--json"))["answer"] == "same"


def recorded(folder, steps, rate, pass_steps=50):
    """Creates a run of STEPS steps, one per second, that leaks RATE bytes/step."""
    folder.mkdir()
    marks = [{"t": 0, "kind": "begin", "steps_per_epoch": pass_steps}]
    marks += [{"t": t, "kind": "step", "step": t} for t in range(1, steps + 1)]
    rows = [f"{t},7,{100 * MIB + t * rate + t * 7919 % 4096}\n" for t in range(steps + 1)]
    return table(folder, rows, marks)


# before and after: (leaked bytes per step, number of steps).
@pytest.mark.parametrize("before, after, answer, sentence", [
    ((MIB, 600), (0, 300), "fixed", "The fix worked: the first run was leaking, the second is "),
    ((MIB, 300), (0, 2000), "fixed", "The fix worked"),
    ((MIB, 600), (MIB // 2, 300), "less", "growth fell by 50 %, and the second run is still"),
    ((MIB // 2, 300), (MIB, 600), "worse", "The change made it worse: the second run grows faster"),
    ((0, 600), (MIB, 300), "worse", "The change made it worse"),
    ((MIB, 600), (MIB, 200), "same", "No measurable difference"),
    ((MIB, 600), (MIB * 51 // 50, 600), "same", "No measurable difference"),
    ((0, 600), (0, 300), "same", "Neither run leaks"),
    ((MIB, 600), (0, 9), "unknown",
     "the second run is only 8 steps long, and at that point the first run was not known to leak either"),
    ((MIB, 600), (2 * MIB, 30), "unknown", "the second run is filling"),
    ((MIB, 30), (0, 600), "unknown", "the first run is filling"),
])
def test_comparison_states_whether_growth_changed_between_runs(tmp_path, before, after, answer, sentence):
    folders = [recorded(tmp_path / name, steps, rate)
               for name, (rate, steps) in (("a", before), ("b", after))]
    doc = json.loads(page_of("--compare", *folders, "--json"))
    assert (doc["answer"], sentence in doc["sentence"]) == (answer, True), doc["sentence"]
    assert sentence in html.unescape(page_of("--compare", *folders))


def late(folder, seconds, leaks_from):
    """Creates a run without marks whose leak begins after LEAKS_FROM seconds."""
    folder.mkdir()
    rows = [f"{t},7,{100 * MIB + max(t - leaks_from, 0) * MIB + t * 7919 % 4096}\n"
            for t in range(seconds)]
    return table(folder, rows)


def test_change_of_growth_is_unknown_if_a_compared_run_is_too_short(tmp_path):
    before = late(tmp_path / "a", 1800, 900)
    short, long = late(tmp_path / "b", 600, 9999), late(tmp_path / "c", 1800, 9999)
    doc = json.loads(page_of("--compare", before, short, "--json"))
    assert (doc["before"]["verdict"], doc["after"]["verdict"]) == ("leaking", "stable")
    assert doc["answer"] == "unknown" and "only 9 min 59 s long" in doc["sentence"]
    assert json.loads(page_of("--compare", before, long, "--json"))["answer"] == "fixed"


def test_report_requires_one_run_and_report_compare_requires_two(two):
    assert refused_with(run_ebb("report", "--compare", two[0]), "--compare requires two runs")
    assert refused_with(run_ebb("report", *two), "unexpected operand", "--compare")


# ---- bad input ----

def test_report_of_empty_folder_prints_one_error_line(tmp_path):
    assert refused_with(run_ebb("report", tmp_path), "report: ", "trace.ebb")
    assert os.listdir(tmp_path) == []


def test_report_of_missing_folder_prints_one_error_line(tmp_path):
    assert refused_with(run_ebb("report", tmp_path / "no"), str(tmp_path / "no"))


def test_report_without_a_recording_shows_data_from_run_json(leak, tmp_path):
    (tmp_path / "run.json").write_bytes((leak / "run.json").read_bytes())
    doc = json.loads(page_of(tmp_path, "--json"))
    assert doc["data"] is None and doc["verdict"]["tree"]
    assert len(doc["trouble"]) == 1 and "trace.ebb" in doc["trouble"][0]
    page = page_of(tmp_path)
    assert "id=processes" in page and "trace.ebb" in page


def test_report_of_a_run_without_marks_has_no_step_axis(tmp_path):
    page = page_of(table(tmp_path, growing()))
    assert "id=by-step" not in page
    assert json.loads(page_of(tmp_path, "--json"))["data"]["steps_seen"] == 0


@pytest.mark.parametrize("part", [0.3, 0.7, 0.95])
def test_report_command_shows_truncated_recording_up_to_the_cut(leak, tmp_path, part):
    whole = (leak / "trace.ebb").read_bytes()
    # A short run has a single sealed block. The file is cut inside this block, so that data is lost.
    block = whole.index(b"\x28\xb5\x2f\xfd")
    (tmp_path / "trace.ebb").write_bytes(whole[:block + int((len(whole) - block) * part)])
    (tmp_path / "run.json").write_text('{"state": "running", "name": "half"')
    result = run_ebb("report", tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    doc = json.loads(result.stdout)
    assert any("run.json" in t for t in doc["trouble"])
    assert any("damaged" in t for t in doc["trouble"])
    assert "damaged" in page_of(tmp_path)


def test_report_command_names_a_damaged_heap_file(tmp_path):
    run = day_of(tmp_path / "day", 7200)
    for heap in run.glob("heap.*.ebbheap"):
        os.truncate(heap, heap.stat().st_size * 3 // 4)
    doc = json.loads(page_of(run, "--json"))
    assert len(doc["trouble"]) == 1 and "ebbheap is damaged; skipped: " in doc["trouble"][0]
    assert "ebbheap is damaged" in page_of(run)
    for heap in run.glob("heap.*.ebbheap"):
        heap.write_bytes(b"<script>" * 99)
    doc = json.loads(page_of(run, "--json"))
    assert "is not a heap history" in doc["heap_trouble"] and doc["data"]["processes"]
    assert "is not a heap history" in page_of(run)


@pytest.mark.parametrize("make", [lambda p: p.write_bytes(b""), lambda p: p.mkdir(),
                                  lambda p: p.write_text("{}"), lambda p: p.symlink_to(p),
                                  lambda p: os.mkfifo(p)])
def test_report_command_refuses_a_file_that_is_not_a_recording(leak, tmp_path, make):
    make(tmp_path / "trace.ebb")
    assert refused_with(run_ebb("report", tmp_path), "report: ", str(tmp_path))
    assert refused_with(run_ebb("report", "--compare", leak, tmp_path), "report: ", str(tmp_path))
    (tmp_path / "run.json").write_bytes((leak / "run.json").read_bytes())
    doc = json.loads(page_of(tmp_path, "--json"))
    assert len(doc["trouble"]) == 1 and doc["verdict"]["tree"]


def test_report_error_names_the_version_of_a_newer_recording(leak, tmp_path):
    raw = bytearray((leak / "trace.ebb").read_bytes())
    struct.pack_into("<H", raw, 8, 99)
    (tmp_path / "trace.ebb").write_bytes(raw)
    assert refused_with(run_ebb("report", tmp_path), "newer")
    (tmp_path / "run.json").write_bytes((leak / "run.json").read_bytes())
    assert "newer" in json.loads(page_of(tmp_path, "--json"))["trouble"][0]


# A name with markup, a mention, escape sequences for colour and terminal title, and bidirectional control characters.
NASTY = "<b>@x|`\x1b[7m\x1b]0;t\x07\u202eevil\u2066"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NASTY_JOB = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def mark(text):
    s.sendto(text.encode(), os.environ["EBB_SOCKET"])
nasty = sys.argv[1]
open("/proc/self/comm", "w").write("<i>\\u202e\\x1b[7m")
mark(f"KIND=begin\\nTORCH_VERSION={nasty}")
for step in range(30):
    mark(f"KIND=phase\\nNAME={nasty}\\nSTATE={'end' if step % 2 else 'begin'}")
    mark(f"KIND=series\\nNAME={nasty}\\nVALUE={step}")
    for _ in range(2):
        mark(f"KIND=step\\nSTEP={step + 1}")
    time.sleep(0.05)
"""


def strings_of(doc):
    if isinstance(doc, str):
        yield doc
    elif isinstance(doc, (list, dict)):
        for one in doc.values() if isinstance(doc, dict) else doc:
            yield from strings_of(one)


def test_report_command_makes_bidi_and_control_characters_visible(tmp_path):
    result = subprocess.run(
        [binary(), "run", "--interval", "50ms", "--run-dir", str(tmp_path / NASTY), "--name", NASTY,
         "--", PYTHON, "-c", NASTY_JOB, NASTY],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    run = tmp_path / NASTY
    page, text, markdown = (page_of(run, *form) for form in ([], ["--text"], ["--markdown"]))
    for one in (page, text, markdown):
        assert "evil" in one and not HARMFUL.search(one)
    markup = page.split("<script")[0]
    assert "<b>@" not in markup and "&lt;b&gt;@x|`" in markup
    data = re.search(r'<script type="application/json" id=data>(.*?)</script>', page)
    if data:  # The page contains the data only if the build had npm.
        names = list(strings_of(json.loads(data.group(1))))
        assert any("evil" in n for n in names) and not any(HARMFUL.search(n) for n in names)
    outside = "".join(markdown.split("```")[::2])
    assert "<b>" not in outside and not re.search(r"(^|\W)@\w", outside)
    assert "| steps | 30 |" in markdown  # Two senders reported each step; it is counted once.


@pytest.mark.parametrize("content", ["", "[]", "7", "nonsense",
                                     pytest.param('{"a":' * 100000, id="deep"),
                                     '{"tree": 5, "processes": {}}',
                                     '{"command": [1, null], "segments": [1, {}, []], "limit": []}',
                                     '{"end": {"cause": 5}, "gpus": [3], "guard": {"events": 1}}'])
def test_report_is_written_for_any_content_of_run_json(tmp_path, content):
    table(tmp_path, growing())
    (tmp_path / "run.json").write_text(content)
    for form in ([], ["--text"], ["--markdown"], ["--json"]):
        assert page_of(tmp_path, *form)


def test_report_into_an_unwritable_folder_is_refused(ebb_as_nobody, open_folder):
    inner = open_folder / "run"
    inner.mkdir()
    table(inner, growing())
    inner.chmod(0o555)
    for file in inner.iterdir():
        file.chmod(0o444)
    assert refused_with(ebb_as_nobody("report", inner), "cannot write", "-o FILE")
    result = ebb_as_nobody("report", inner, "-o", "-")
    assert result.returncode == 0 and result.stdout.startswith("<!doctype html>")
    inner.chmod(0o755)
