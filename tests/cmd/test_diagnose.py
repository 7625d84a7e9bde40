"""Tests `ebb diagnose`: the true hypothesis comes first if the recording supports it, missing data is reported, the
memory ledger adds up, and bad input is refused."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from commands import (Readers, PATIENCE_S, PYTHON, ROOT, binary, environment, recorded, refused,
                      refused_with, run_ebb, wait_for)

ZOO = ROOT / "zoo" / "recordings"
MIB = 1 << 20
VERSION_AT = 8  # Offset of the version number after the magic bytes (docs/reference/trace-format.md).

# Prepended to jobs, which can then send marks without ebb's Python package.
MARKS = """
import os, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.settimeout(120)
def mark(**kv):
    sock.sendto("".join(f"{k}={v}\\n" for k, v in kv.items()).encode(), os.environ["EBB_SOCKET"])
def make():
    return bytearray(os.urandom(64) * (1 << 14))  # LINE
kept = []
"""
# A job that leaks 1 MiB/step if its second argument is "keep"; otherwise its memory does not grow.
JOB = MARKS + """
def train(steps, keep):
    mark(KIND="begin", STEPS_PER_EPOCH=20, MAX_STEPS=steps)
    for step in range(1, steps + 1):
        one = make()
        if keep:
            kept.append(one)
        time.sleep(0.05)
        mark(KIND="step", STEP=step)
        if step % 20 == 0:
            mark(KIND="epoch", STEP=step)
    mark(KIND="end", STEP=steps)
train(int(sys.argv[1]), sys.argv[2] == "keep")
print("trained", flush=True)
if len(sys.argv) > 3:
    time.sleep(600)
"""


# A job that leaks 3 MiB/step for three seconds, pauses, and then leaks again for one second.
SHORT = MARKS + """
def train(first, last):
    for step in range(first, last):
        kept.extend(make() for _ in range(3))
        time.sleep(0.1)
        mark(KIND="step", STEP=step)
train(1, 31)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
train(31, 46)
"""


def write_job(folder, text=JOB):
    path = folder / "leak.py"
    path.write_text(text)
    return path


def diagnosis(path, *options):
    result = run_ebb("diagnose", path, "--json", *options)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def by_key(doc):
    return {h["key"]: h for h in doc["hypotheses"]}


def diagnosis_of_zoo(name):
    return diagnosis(ZOO / f"{name}.csv", "--marks", ZOO / f"{name}.marks.jsonl")


@pytest.fixture(scope="module")
def leaking(tmp_path_factory):
    """Returns the folder of a run that leaks 1 MiB/step, its summary, and the name of each file that ebb read
    there."""
    folder = tmp_path_factory.mktemp("leaking")
    # At this interval a block of 1 MiB is almost certainly sampled, so the result does not depend on chance.
    job = subprocess.Popen([binary(), "run", "--interval", "100ms", "--heap-interval", "128K",
                            "--run-dir", folder / "run", "--", PYTHON, write_job(folder), "200",
                            "keep"], env=environment(),
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, encoding="utf-8")
    wait_for(lambda: (folder / "run" / "trace.ebb").exists() or job.poll() is not None, "the run")
    readers = Readers(folder / "run")
    summary = job.communicate(timeout=PATIENCE_S)[1]
    assert job.returncode == 0, summary
    return folder / "run", summary, readers.names()


# ---- a recorded job ----

def test_diagnosis_names_leaking_line_first(leaking):
    doc = diagnosis(leaking[0])
    first = doc["hypotheses"][0]
    assert first["key"] == "call_site", first
    assert first["site"]["file"].endswith("leak.py") and first["site"]["function"] == "make"
    assert first["site"]["line"] == JOB[:JOB.index("# LINE")].count("\n") + 1
    assert first["word"] in ("likely", "nearly certain")
    assert doc["grew"] and doc["growth_bytes"] > 100 * MIB


def test_hypotheses_that_contradict_the_data_are_never_rated_likely(leaking):
    found = by_key(diagnosis(leaking[0]))
    for key in ("first_touch", "no_growth", "accumulation", "retention", "mapped_files",
                "launcher"):
        assert found[key]["word"] in ("ruled out", "unlikely"), found[key]
        assert found[key]["against"]
    for key in ("tensors", "pinned"):
        assert found[key]["word"] == "cannot be tested" and found[key]["absent"]
    # Without a census, only a growing container is evidence of Python objects.
    objects = found["python_objects"]
    assert objects["absent"] and (objects["word"] == "cannot be tested" or
                                  any(text.startswith("kept by ") for text in objects["for"])), objects


def test_parts_of_the_memory_ledger_add_up_to_rss(leaking):
    ledger = diagnosis(leaking[0])["ledger"]
    entries = ledger["entries"]
    for moment in ("start", "now"):
        total = sum(e[f"{moment}_bytes"] for e in entries)
        assert abs(total - ledger[f"rss_{moment}_bytes"]) <= len(entries)
    assert all(e["low_bytes"] <= e["now_bytes"] + 1 and e["now_bytes"] <= e["high_bytes"] + 1
               for e in entries)
    # The zoo requires a share of 0.95; this bound is lower because the machine may be busy.
    assert ledger["named_growth_share"] >= 0.9
    assert entries[0]["kind"] == "heap" and entries[0]["site"]["function"] == "make"


def test_run_summary_has_leaking_line_with_fix_and_next_command(leaking):
    assert "  |  memory from one call site grows" in leaking[1]
    assert re.search(r"^ --> leak\.py:\d+ in ", leaking[1], re.M)
    assert re.search(r"^  = help: ", leaking[1], re.M)
    assert "\nnext       ebb report" in leaking[1]


def test_run_summary_does_not_read_the_heap_history_repeatedly(leaking):
    if leaking[2] is None:
        pytest.skip("this machine allows no inotify watch")
    histories = [name for name in leaking[2] if name.endswith(".ebbheap")]
    seconds = json.loads((leaking[0] / "run.json").read_text())["duration_s"]
    # The live verdict reads the heap history every two seconds and at the end; the diagnosis reads it once.
    assert 1 <= len(histories) <= 2 + seconds // 2, histories
    assert leaking[2].count("trace.ebb") == 1


def test_diagnosis_text_and_json_agree(ebb, leaking):
    doc = diagnosis(leaking[0])
    words = " ".join(ebb("diagnose", leaking[0], "--all").stdout.split())
    for h in doc["hypotheses"]:
        assert f"{h['title']} [{h['code']}]: {h['word']}" in words
        for sentence in h["for"] + h["against"] + h["absent"]:
            assert " ".join(sentence.split()) in words
    for advice in doc["advice"]:
        assert " ".join(advice["what"].split()) in words


def test_diagnosis_of_a_restarted_job_uses_the_longest_segment(tmp_path):
    # The job takes ten more steps after its planned restart at step 200.
    job = JOB.replace("train(int(sys.argv[1])",
                      "train(10 if os.environ['EBB_SEGMENT'] == '1' else int(sys.argv[1])").replace(
                          "len(sys.argv) > 3", "os.environ['EBB_SEGMENT'] == '0'")
    result = run_ebb("run", "--interval", "100ms", "--heap-interval", "128K", "--restart-every",
                     "200steps", "--grace", "100ms", "--run-dir", tmp_path / "run", "--", PYTHON,
                     write_job(tmp_path, job), "200", "keep")
    assert result.returncode == 0, result.stderr
    doc = diagnosis(tmp_path / "run")
    assert ": leaking, " in doc["verdict"]
    assert doc["growth_bytes"] > 100 * MIB, doc["process"]
    assert doc["hypotheses"][0]["key"] == "call_site"
    assert doc["hypotheses"][0]["site"]["function"] == "make"


def test_diagnosis_of_a_job_without_growth_names_no_cause(tmp_path):
    result = run_ebb("run", "--interval", "100ms", "--run-dir", tmp_path / "run", "--", PYTHON,
                     write_job(tmp_path), "120", "drop")
    assert result.returncode == 0
    found = by_key(diagnosis(tmp_path / "run"))
    assert found["call_site"]["word"] in ("ruled out", "unlikely", "cannot be tested")
    assert "a call site keeps" not in result.stderr


def test_allocator_retention_is_not_diagnosed_from_one_heap_snapshot(tmp_path):
    # At this interval every block is sampled, so the result does not depend on the machine's speed.
    result = run_ebb("run", "--interval", "100ms", "--heap-interval", "128K", "--run-dir",
                     tmp_path / "run", "--", PYTHON, write_job(tmp_path), "16", "keep")
    assert result.returncode == 0
    found = by_key(diagnosis(tmp_path / "run"))
    assert found["retention"]["word"] not in ("likely", "nearly certain"), found["retention"]


def test_growth_between_heap_snapshots_is_not_allocator_retention(tmp_path):
    folder = tmp_path / "run"
    job = subprocess.Popen([binary(), "run", "-q", "--interval", "100ms", "--heap-interval", "128K",
                            "--run-dir", folder, "--", PYTHON, write_job(tmp_path, SHORT),
                            tmp_path / "go"], env=environment(), stdin=subprocess.DEVNULL)
    wait_for(lambda: sum(r.get("kind") == "step" for r in recorded(folder)) == 30, "30 steps")

    def is_read():  # At most one snapshot per second is added to the heap history.
        doc = json.loads(run_ebb("heap", folder, "--json").stdout)
        return doc["steps"]["last"] == 30 and doc["live"]["bytes"] > 80 * MIB
    wait_for(is_read, "a reading")
    (tmp_path / "go").touch()
    assert job.wait(timeout=PATIENCE_S) == 0
    doc = diagnosis(folder)
    assert by_key(doc)["retention"]["word"] in ("ruled out", "unlikely")
    assert doc["ledger"]["named_growth_share"] > 0.85 and doc["growth_bytes"] > 50 * MIB


def test_diagnose_command_accepts_the_pid_of_a_running_job(tmp_path):
    folder = tmp_path / "run"
    job = subprocess.Popen([binary(), "run", "--interval", "100ms", "--run-dir", folder, "--",
                            PYTHON, write_job(tmp_path), "60", "keep", "stay"], env=environment(),
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(r.get("kind") == "end" for r in recorded(folder)), "the training")
        pid = json.loads((folder / "run.json").read_text())["pid"]
        doc = diagnosis(pid)
        assert doc["running"] and doc["process"]["pid"] == pid
        assert doc["growth_bytes"] > 10 * MIB
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()


# ---- recordings of real programs with only memory samples and marks ----

@pytest.mark.parametrize("name, key", [
    ("lazy_images-plain", "first_touch"),
    ("eval_logits-plain", "eval_spike"),
    ("eval_logits-leak", "eval_step"),
    ("eval_figures-leak", "eval_step"),
    ("kept_loss_graph-fixed", "no_growth"),
    ("leaking_collator-fixed", "no_growth"),
    ("loader_workers-plain", "no_growth"),
])
def test_cause_of_growth_is_found_without_a_heap_profile(tmp_path, name, key):
    doc = diagnosis_of_zoo(name)
    assert doc["hypotheses"][0]["key"] == key
    assert doc["hypotheses"][0]["for"]


@pytest.mark.parametrize("name", ["leaking_collator-leak", "lazy_images-leak", "dict_cache-leak",
                                  "kept_loss_graph-leak"])
def test_call_site_hypothesis_is_untestable_without_heap_profile(tmp_path, name):
    doc = diagnosis_of_zoo(name)
    found = by_key(doc)
    assert found["first_touch"]["word"] == found["no_growth"]["word"] == "ruled out"
    assert found["call_site"]["word"] == "cannot be tested"
    assert not any(h["word"] in ("likely", "nearly certain") for h in doc["hypotheses"])
    assert any("ebb run" in a["what"] for a in doc["advice"])


def test_hypotheses_about_steps_are_untestable_without_marks(tmp_path):
    doc = diagnosis(plain_table(tmp_path))
    found = by_key(doc)
    assert "no marks: steps, epochs and evaluations are unknown" in doc["absent"]
    for key in ("first_touch", "accumulation", "eval_spike", "eval_step"):
        assert found[key]["word"] == "cannot be tested"
        assert found[key]["absent"]


def test_diagnosis_of_a_csv_table_ignores_growth_at_startup(tmp_path):
    doc = diagnosis(plain_table(tmp_path, until=300))
    assert doc["hypotheses"][0]["key"] == "no_growth"
    assert doc["growth_bytes"] < 20 * MIB


def plain_table(folder, until=1200):
    table = folder / "plain.csv"
    table.write_text("t,pid,rss_bytes\n" + "".join(
        f"{t},7,{(100 + min(t, until)) * MIB}\n" for t in range(1200)))
    return table


# ---- bad input ----

def test_diagnose_command_refuses_a_folder_without_recording(ebb, tmp_path):
    assert refused_with(ebb("diagnose", tmp_path), "diagnose: ", "trace.ebb")


def test_diagnose_command_refuses_a_missing_folder(ebb, tmp_path):
    assert refused(ebb("diagnose", tmp_path / "none"),
                   f"diagnose: {tmp_path}/none: No such file or directory; give a run folder or a pid")


def test_diagnose_command_refuses_a_file_that_is_not_a_recording(ebb, tmp_path):
    path = tmp_path / "x.ebb"
    path.write_text("t,rss\n1,2\n")
    assert refused_with(ebb("diagnose", path), "diagnose: ", "x.ebb")


def copy_run(run, folder, keep=("trace.ebb", "run.json")):
    folder.mkdir()
    for entry in pathlib.Path(run).iterdir():
        if entry.is_file() and (entry.name in keep or entry.name.endswith(tuple(keep))):
            (folder / entry.name).write_bytes(entry.read_bytes())
    return folder


def test_diagnose_command_refuses_a_recording_of_newer_version(ebb, leaking, tmp_path):
    folder = copy_run(leaking[0], tmp_path / "newer")
    data = bytearray((folder / "trace.ebb").read_bytes())
    data[VERSION_AT] += 1
    (folder / "trace.ebb").write_bytes(data)
    assert refused_with(ebb("diagnose", folder), "diagnose: ", "newer")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_diagnosis_of_a_truncated_recording_uses_data_before_cut(ebb, leaking, tmp_path, share):
    folder = copy_run(leaking[0], tmp_path / "cut", ("trace.ebb", ".ebbheap"))
    data = (folder / "trace.ebb").read_bytes()
    (folder / "trace.ebb").write_bytes(data[:int(len(data) * share)])
    result = ebb("diagnose", folder, "--json")
    assert result.returncode == 0
    doc = json.loads(result.stdout)
    assert any("run.json" in one for one in doc["absent"])


def test_diagnose_command_skips_damaged_run_json_and_censuses(ebb, leaking, tmp_path):
    folder = copy_run(leaking[0], tmp_path / "broken")
    pid = json.loads((folder / "run.json").read_text())["pid"]
    (folder / "run.json").write_text('{"state": ')
    census = folder / "census"
    census.mkdir()
    (census / f"0001-{pid}-10.json").write_text("[1, 2")
    (census / f"0002-{pid}-20.json").write_text('{"format": 1, "tensors": 3, "objects": {"a": 1}}')
    os.symlink("/dev/zero", census / f"0003-{pid}-30.json")
    found = by_key(diagnosis(folder))
    assert found["python_objects"]["absent"] == ["no census was taken"]


def test_diagnose_command_reports_damaged_heap_history(leaking, tmp_path):
    folder = copy_run(leaking[0], tmp_path / "heap", ("trace.ebb", "run.json", ".ebbheap"))
    for path in folder.glob("*.ebbheap"):
        path.write_bytes(b"nonsense" * 100)
    found = by_key(diagnosis(folder))
    assert found["call_site"]["word"] == "cannot be tested"
    assert "call sites were not recorded: " in found["call_site"]["absent"][0]


def test_diagnosis_escapes_control_codes_in_names(ebb, tmp_path):
    table = tmp_path / "x.csv"
    name = "\x1b[31m<script>alert(1)</script>"
    table.write_text("t,name,rss_bytes\n" + "".join(
        f"{t},{name},{(100 + t % 3) * MIB}\n" for t in range(100)))
    text = ebb("diagnose", table, "--group", "name", "--all").stdout
    assert "\x1b" not in text and "<script>" in text
    assert diagnosis(table, "--group", "name")["process"]["name"].startswith("\x1b")


def test_diagnosis_of_a_process_not_under_ebb_prints_one_error_line(ebb):
    assert refused_with(ebb("diagnose", os.getpid()), f"does not run under ebb; run ebb attach {os.getpid()}, or start the job with `ebb run -- CMD`")


def test_diagnose_command_refuses_an_invalid_pid(ebb):
    assert refused_with(ebb("diagnose", "0"), "diagnose: ", 'invalid process id "0"')


@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled"),
                    reason="this kernel has no transparent huge pages")
def test_diagnosis_uses_the_recorded_huge_page_setting(leaking):
    thp = by_key(diagnosis(leaking[0]))["thp"]
    assert "the kernel's huge-page setting was not recorded" not in thp["absent"]
    assert thp["against"] or thp["for"]
