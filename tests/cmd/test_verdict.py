"""Tests `ebb verdict`: verdict words, exit statuses, JSON, tables of other tools, bad input, recordings of real runs,
and equality of live and recorded verdicts. EBB_TRACES is the folder of recordings that are not in the repository
(default: ../shared/traces); tests whose recording is missing there are skipped."""

import concurrent.futures
import json
import os
import pathlib
import random
import resource
import sys
import textwrap

import pytest

from commands import IS_SANITIZED, ROOT, begun_early, make_recording, plain, refused_with, run_ebb

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
DATA = ROOT / "tests" / "data"
TRACES = pathlib.Path(os.environ.get("EBB_TRACES", ROOT.parent / "shared" / "traces"))
MIB = 1 << 20
WORDS = {"stable": False, "spiking": False, "plateaued": False, "filling": None, "stepping": True,
         "leaking": True, "undecided": None}
STATUS = {True: 1, False: 0, None: 3}


def needs(path):
    return pytest.mark.skipif(not path.exists(), reason=f"{path} does not exist (EBB_TRACES)")


def verdict(path, *options):
    """Returns the JSON verdict, after checking its keys and the exit status."""
    result = run_ebb("verdict", path, *options, "--json")
    assert result.stderr == "" and result.returncode in (0, 1, 3), result.stderr
    doc = json.loads(result.stdout)
    if "verdict" in doc:
        check_one(doc)
        assert result.returncode == STATUS[doc["leak"]]
    else:
        assert {"tree", "processes", "gpus"} <= set(doc)
        for one in [doc["tree"], *doc["processes"], *doc["gpus"]]:
            if one is not None:
                check_one(one)
        if doc["tree"]:
            assert result.returncode == STATUS[doc["tree"]["leak"]]
    return doc


def check_interval(value, keys):
    assert value is None or (set(keys) <= set(value) and
                             all(v is None or isinstance(v, (int, float)) for v in value.values()))


def check_one(one):
    """Checks that every documented key exists; unknown values are null."""
    assert one["leak"] is WORDS[one["verdict"]]
    assert 0 <= one["confidence"] <= 1
    check_interval(one["rate_bytes_per_min"], ["value", "low", "high"])
    check_interval(one["rate_bytes_per_step"], ["value", "low", "high"])
    check_interval(one["floor_bytes"], ["first", "last"])
    assert isinstance(one["samples"], int)
    for key in ("peak_bytes", "mean_bytes"):
        assert one[key] is None or isinstance(one[key], int)
    assert one["growth_ended"] is None or {"t_s", "step", "at"} <= set(one["growth_ended"])
    assert one["forecast"] is None or \
        {"ceiling_bytes", "decided_at_step", "decided_at_s"} <= set(one["forecast"])
    if one["oom"] is not None:
        assert isinstance(one["oom"]["limit_bytes"], int)
        check_interval(one["oom"]["eta_s"], ["low", "high"])
    assert all(isinstance(s, str) and s for s in one["evidence"])


def table(path, rows, header="t,rss"):
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def ramp(seconds, per_second, start=300 * MIB):
    noise = random.Random(7)
    return [(t, start + int(per_second * t) + noise.randrange(MIB)) for t in range(seconds)]


# ---- verdict words and exit statuses ----

def test_leaking_verdict_has_exit_status_1_and_rate_and_time_to_oom(tmp_path):
    doc = verdict(table(tmp_path / "a.csv", ramp(3000, MIB)), "--limit", "8G")
    assert doc["verdict"] == "leaking"
    assert doc["rate_bytes_per_min"]["value"] == pytest.approx(60 * MIB, rel=0.15)
    assert doc["rate_bytes_per_step"] is None
    assert doc["oom"]["limit_bytes"] == 8 << 30
    assert 3000 < doc["oom"]["eta_s"]["low"] <= doc["oom"]["eta_s"]["high"] < 7000
    assert doc["samples"] == 3000


def test_verdict_command_exits_with_0_if_memory_in_table_is_constant(tmp_path):
    doc = verdict(table(tmp_path / "a.csv", ramp(3000, 0)))
    assert (doc["verdict"], doc["oom"]) == ("stable", None)


def test_filling_verdict_has_the_step_at_which_the_verdict_is_known(tmp_path):
    path = table(tmp_path / "a.csv", [(s, 300 * MIB + 20 * MIB * s) for s in range(1, 61)],
                 "step,rss")
    doc = verdict(path, "--steps-per-epoch", 83, "--limit", "24G")
    assert doc["verdict"] == "filling"
    assert doc["forecast"]["decided_at_step"] >= 83
    assert doc["forecast"]["ceiling_bytes"] == pytest.approx((300 + 20 * 83) * MIB, rel=0.1)
    assert doc["rate_bytes_per_min"] is None
    assert doc["rate_bytes_per_step"]["value"] == pytest.approx(20 * MIB, rel=0.1)
    same = verdict(path, "--examples", 663, "--batch", 8, "--limit", "24G")
    assert same["forecast"]["decided_at_step"] == doc["forecast"]["decided_at_step"]


def test_verdict_text_begins_with_the_verdict_word_and_evidence(tmp_path, ebb):
    path = table(tmp_path / "a.csv", ramp(3000, MIB))
    result = ebb("verdict", path, "--limit", "8G")
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("leaking: +")
    assert ", out of memory in about " in " ".join(result.stdout.split())
    assert "\n· " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


# ---- options ----

def test_csv_table_of_another_tool_is_read_with_units_and_groups(tmp_path):
    rows = [(t, gpu, (500 if gpu == "a" else 500 + t)) for t in range(3000) for gpu in "ab"]
    path = table(tmp_path / "g.csv", rows, "when,gpu,used")
    options = ["--time-column", "when", "--column", "used", "--unit", "MiB", "--group", "gpu"]
    result = run_ebb("verdict", path, *options, "--json")
    assert result.returncode == 1  # Each group is judged separately; the worst verdict decides the exit status.
    doc = json.loads(result.stdout)
    assert doc["tree"] is None
    words = {p["name"]: p["verdict"] for p in doc["processes"]}
    assert words == {"a": "stable", "b": "leaking"}
    assert doc["processes"][1]["floor_bytes"]["last"] == 500 * MIB


def test_verdict_of_a_table_does_not_depend_on_its_row_order(tmp_path):
    rows = [(t, pid, 400 * MIB + (t * MIB if pid == 7 else 0)) for t in range(2000)
            for pid in (7, 8)]
    marks = tmp_path / "m.jsonl"
    marks.write_text("".join(json.dumps({"t": t + .5, "kind": "step", "step": t + 1}) + "\n"
                             for t in range(2000)))
    by_time = verdict(table(tmp_path / "t.csv", rows, "t,pid,rss"), "--marks", marks)
    by_pid = verdict(table(tmp_path / "p.csv", sorted(rows, key=lambda r: r[1]), "t,pid,rss"),
                     "--marks", marks)
    assert by_time == by_pid
    assert by_time["tree"]["verdict"] == "leaking"
    assert by_time["tree"]["grower"]["pid"] == 7


def test_option_until_of_verdict_ignores_later_samples(tmp_path):
    path = table(tmp_path / "a.csv", [(1e9 + s, s, 300 * MIB + 20 * MIB * min(s, 83))
                                      for s in range(1, 250)], "t,step,rss")
    whole = verdict(path, "--steps-per-epoch", 83)
    assert (whole["verdict"], whole["growth_ended"]["step"]) == ("plateaued", 83)
    assert whole["growth_ended"]["at"] == "the end of the first epoch"
    for option in (["--until-step", 60], ["--until", 1e9 + 60]):
        early = verdict(path, "--steps-per-epoch", 83, *option)
        assert (early["verdict"], early["samples"]) == ("filling", 60)


def test_epoch_and_phase_columns_of_a_table_become_marks(tmp_path):
    rows, memory = [], 300 * MIB
    for step in range(1, 401):
        is_eval = step % 40 == 0
        rows.append((step, step, (step - 1) // 100, "eval" if is_eval else "train",
                     memory + (200 * MIB if is_eval else 0)))
        memory += 25 * MIB if is_eval else 0
    doc = verdict(table(tmp_path / "a.csv", rows, "t,step,epoch,phase,rss"))
    assert (doc["verdict"], doc["event"]) == ("stepping", "eval")


def test_epoch_length_is_read_from_the_steps_per_epoch_column(tmp_path):
    rows = [(run, n, 8, 0, s, 500 + 20 * min(s, n // 8)) for run, n in (("a", 240), ("b", 800))
            for s in range(1, 90)]
    doc = verdict(table(tmp_path / "a.csv", rows, "run,examples,eff_batch,steps_per_epoch,step,rss_mb"),
                  "--group", "run")
    words = {p["name"]: p["verdict"] for p in doc["processes"]}
    assert words == {"a": "plateaued", "b": "filling"}


def test_verdict_command_refuses_invalid_files_and_options(tmp_path, ebb):
    path = table(tmp_path / "a.csv", ramp(50, 0))
    by_step = table(tmp_path / "s.csv", ramp(50, 0), "step,rss")
    marks = tmp_path / "m.jsonl"
    marks.write_text('{"t": 1, "kind": "step", "step": 1}\n')
    assert refused_with(ebb("verdict", tmp_path / "none.csv"), "none.csv", "No such file")
    assert refused_with(ebb("verdict", tmp_path / "none.ebb"), "none.ebb", "No such file")
    assert refused_with(ebb("verdict", tmp_path), "trace.ebb")
    assert refused_with(ebb("verdict", path, "--limit", "80%"), "--limit", "give a size")
    assert refused_with(ebb("verdict", path, "--limit", "8X"), "8X")
    assert refused_with(ebb("verdict", path, "--until", "soon"), '--until: "soon"')
    assert refused_with(ebb("verdict", path, "--until-step", "5"), "has no steps")
    assert refused_with(ebb("verdict", by_step, "--until", "5"), "--until-step")
    assert refused_with(ebb("verdict", by_step, "--marks", marks), "has no time column")
    assert refused_with(ebb("verdict", path, "--steps-per-epoch", "0"), "--steps-per-epoch")
    assert refused_with(ebb("verdict", path, "--column", "vram"), "vram", "--column")
    assert refused_with(ebb("verdict", path, "--group", "gpu"), "gpu", "--group")
    assert refused_with(ebb("verdict", path, "--unit", "stone"), "stone")
    assert refused_with(ebb("verdict"), "verdict")


# ---- bad input ----

def test_empty_file_is_refused_and_empty_table_is_undecided(tmp_path, ebb):
    empty = tmp_path / "e.csv"
    empty.write_text("")
    assert refused_with(ebb("verdict", empty), "is empty")
    doc = verdict(table(tmp_path / "h.csv", []))
    assert (doc["verdict"], doc["samples"], doc["peak_bytes"]) == ("undecided", 0, None)
    assert doc["evidence"]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_verdict_on_too_few_samples_is_undecided_and_has_a_reason(tmp_path, rows):
    doc = verdict(table(tmp_path / "a.csv", ramp(rows, MIB)), "--limit", "1G")
    assert doc["verdict"] == "undecided" and doc["evidence"]
    assert doc["rate_bytes_per_min"] is None and doc["oom"] is None


def test_table_rows_with_decreasing_times_are_skipped_and_reported(tmp_path):
    rows = ramp(3000, 0)
    rows[1000:1003] = [(10, 900 * MIB), (11, 900 * MIB), (12, 900 * MIB)]
    doc = verdict(table(tmp_path / "a.csv", rows))
    assert doc["verdict"] == "stable"
    assert any("before that of the previous sample" in s for s in doc["evidence"])


def test_gaps_of_hours_in_a_table_are_skipped_and_reported(tmp_path):
    rows = [(t + (36000 if t > 500 else 0), v) for t, v in ramp(2000, 0)]
    doc = verdict(table(tmp_path / "a.csv", rows))
    assert doc["verdict"] == "stable"
    assert any("gap" in s for s in doc["evidence"])


def test_verdict_of_constant_memory_is_stable(tmp_path):
    doc = verdict(table(tmp_path / "a.csv", [(t, 5 * MIB) for t in range(2000)]))
    assert doc["verdict"] == "stable"


@pytest.mark.parametrize("content, parts", [
    (b"t,other\n0,1\n", ["other"]),
    (b"t,rss_bytes\n0,1,2,3\n", ["line 2"]),
    (b"t,rss_bytes\n0,\"1\n", ["line"]),
    (b"\x00\x01\x02\xff\xfe" * 100, []),
    (b"\x1f\x8b\x08" + b"\0" * 50, ["gzip data"]),
    (b"t,\x1b[31mother\n0,1\n", ["\\e[31mother"]),
])
@pytest.mark.parametrize("command", ["verdict", "report", "diagnose"])
def test_verdict_report_and_diagnose_refuse_an_unreadable_table(ebb, tmp_path, command, content, parts):
    (tmp_path / "bad.csv").write_bytes(content)
    result = ebb(command, tmp_path / "bad.csv")
    assert refused_with(result, f"ebb: {command}: ", *parts)
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("cell", ["nan", "-5", "inf", "1e30", "x"])
def test_error_for_an_invalid_table_value_names_the_line(tmp_path, ebb, cell):
    path = table(tmp_path / "a.csv", [(0, 5), (1, cell)])
    assert refused_with(ebb("verdict", path), "line 3", cell)


def test_table_with_invalid_times_is_refused(tmp_path, ebb):
    assert refused_with(ebb("verdict", table(tmp_path / "a.csv", [(0, 5), ("nan", 5)])), "line 3")
    assert refused_with(ebb("verdict", table(tmp_path / "b.csv", [(0, 5), (1e300, 5)])), "line 3")


def test_table_rows_with_the_same_pid_form_one_series_by_default(tmp_path):
    rows = [(t, 7, start, 400 * MIB + (MIB * t if start == 1 else 0))
            for t in range(1500) for start in (1, 2)]
    path = table(tmp_path / "a.csv", rows, "t,pid,start_ticks,rss")
    assert verdict(path)["samples"] == 3000
    apart = verdict(path, "--group", "start_ticks")
    assert {p["name"]: p["verdict"] for p in apart["processes"]} == {"1": "leaking", "2": "stable"}


def test_memory_drop_at_process_exit_is_excluded_from_the_verdict(tmp_path):
    rows = [(t / 5, 500 * MIB + t * MIB // 5) for t in range(6000)]
    exits = [(1200 + t / 5, 1000 * MIB - 100 * t * MIB) for t in range(6)]
    assert verdict(table(tmp_path / "a.csv", rows))["verdict"] == "leaking"
    doc = verdict(table(tmp_path / "b.csv", rows + exits))
    assert (doc["verdict"], doc["samples"]) == ("leaking", 6000)
    # With --until, the drop is not treated as an exit, so its samples are included.
    cut = verdict(tmp_path / "b.csv", "--until", 1201)
    assert cut["samples"] == 6006


def test_samples_during_a_slow_process_exit_are_excluded_from_verdict(tmp_path):
    """Simulates a slow exit on a busy machine: most memory is freed at once, and the rest remains until the table
    ends."""
    rows = [(t / 5, 300 * MIB + t * MIB) for t in range(240)]
    exits = [(48 + t / 5, 450 * MIB) for t in range(30)]
    assert verdict(table(tmp_path / "a.csv", rows))["verdict"] == "undecided"
    doc = verdict(table(tmp_path / "b.csv", rows + exits))
    assert (doc["verdict"], doc["samples"]) == ("undecided", 240)
    goes_on = [(54 + t / 5, 450 * MIB) for t in range(240)]
    doc = verdict(table(tmp_path / "c.csv", rows + exits + goes_on))
    assert doc["leak"] is False and doc["samples"] == 510, "it lived on at that level"


def test_memory_drop_at_process_exit_is_ignored_in_table_with_steps(tmp_path):
    rows = [(i, 300 * MIB + i * 4 * MIB, i * 3) for i in range(200)]
    exited = table(tmp_path / "exited.csv", [*rows, (200, 150 * MIB, 600)], "t,rss,step")
    lived = table(tmp_path / "lived.csv", rows, "t,rss,step")
    doc = verdict(exited, "--steps-per-epoch", "100")
    assert doc["verdict"] == "leaking" and doc == verdict(lived, "--steps-per-epoch", "100")
    again = table(tmp_path / "again.csv", [*rows, (200, 150 * MIB, 600), (201, 1200 * MIB, 603)],
                  "t,rss,step")
    assert verdict(again, "--steps-per-epoch", "100")["samples"] == 202, "it lived on after it"


# Samples (step:MiB) of a run that leaks autograd graphs, with three data workers and 50 steps per epoch. About every
# tenth sample is 220 MiB lower than the others; the low samples grow as well.
KEPT_GRAPH = """1:946 2:968 4:974 6:765 7:985 9:775 10:995 12:844 14:1008 16:1013 17:1018 19:1025 20:1028
    22:1035 24:1043 25:1063 27:1070 29:1077 32:1103 35:1071 37:1200 40:1226 43:1268 45:1291 48:1295
    50:1340 53:1166 55:1421 58:1231 60:1485 63:1544 66:1502 68:1640 71:1683 74:1675 76:1683 79:1478
    81:1700 84:1686 87:1720 89:1727 92:1727 95:1744 97:1754 100:1598 102:1771 105:1778 107:1788
    110:1795 112:1805 115:1846 117:1859 119:1909 122:1951 124:1758 126:1909 128:2019 131:2044
    133:2036 135:2059 138:2101 140:2124 142:2147 145:1988 146:2208 148:2231"""


@pytest.mark.parametrize("step", [60, 70, 80, 90, 100, 110, 120, 130, 140, 148])
def test_leak_hidden_by_a_sawtooth_is_never_called_benign(tmp_path, step):
    pairs = [tuple(map(int, pair.split(":"))) for pair in KEPT_GRAPH.split()]
    path = table(tmp_path / "a.csv", [(at * 0.46, mib * MIB, at) for at, mib in pairs],
                 "t,rss,step")
    doc = verdict(path, "--steps-per-epoch", "50", "--until-step", step)
    assert doc["leak"] is not False, doc["evidence"]


RECORDINGS = sorted(path for path in (ROOT / "zoo" / "recordings").glob("*.csv")
                    if not path.name.endswith(".tree.csv"))


@pytest.mark.parametrize("how", ["steps", "pass", "marks"])
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_leaks_and_benign_programs_of_the_zoo_are_never_confused(path, how):
    options = {"steps": (), "pass": ("--steps-per-epoch", "75"),
               "marks": ("--marks", path.with_suffix(".marks.jsonl"))}[how]
    doc = verdict(path, *options)
    leaks = path.stem.endswith("-leak")
    assert doc["leak"] is not (not leaks), doc["verdict"]
    if path.stem in ("dict_cache-leak", "lazy_images-leak") and how != "steps":
        assert doc["verdict"] == "leaking"


@plain
def test_verdict_of_a_table_with_a_million_groups_uses_little_memory(tmp_path):
    count = 100_000 if IS_SANITIZED else 1_000_000
    path = tmp_path / "a.csv"
    with open(path, "w") as out:
        out.write("t,pid,rss\n")
        for i in range(count):
            out.write(f"{i / 100},{i + 1},{5 * MIB}\n")
    limit = None if IS_SANITIZED else lambda: resource.setrlimit(resource.RLIMIT_AS,
                                                              (400 * MIB, 400 * MIB))
    result = run_ebb("verdict", path, "--json", preexec_fn=limit)
    assert (result.returncode, result.stderr) == (3, "")
    doc = json.loads(result.stdout)
    assert doc["tree"]["verdict"] == "undecided" and doc["tree"]["evidence"]
    assert len(doc["processes"]) + doc["not_judged"] == count


def test_leak_in_one_of_100000_table_groups_is_found(tmp_path):
    path = tmp_path / "a.csv"
    with open(path, "w") as out:
        out.write("t,pid,rss\n")
        for t in range(3000):
            out.write(f"{t},1,{300 * MIB + MIB * t}\n")
            for i in range(33):
                out.write(f"{t},{1000 + 33 * t + i},{MIB}\n")
    doc = verdict(path)
    assert doc["tree"]["verdict"] == "leaking" and doc["tree"]["grower"]["pid"] == 1


def test_verdict_command_escapes_control_codes_in_names(tmp_path, ebb):
    rows = [(t, g, 5 * MIB) for t in range(20) for g in ("a", "\x1b]0;x\x07\x1b[31m")]
    path = table(tmp_path / "a.csv", rows, "t,who,rss")
    result = ebb("verdict", path, "--group", "who")
    assert "\x1b" not in result.stdout and "\x07" not in result.stdout


# ---- equality of live and recorded verdicts ----

JOB = """
    import os, socket, sys, time
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    def mark(**kv):
        sock.sendto("".join(f"{k}={v}\\n" for k, v in kv.items()).encode(), os.environ["EBB_SOCKET"])
    keep = {}
    for step in range(1, 101):
        if step == 1:
            mark(KIND="begin", STEP=0, STEPS_PER_EPOCH=20, MAX_STEPS=100)
        key = step if sys.argv[1] == "leak" else step % 20
        if key not in keep:
            keep[key] = bytearray(b"x" * (4 << 20))
        time.sleep(0.06)
        mark(KIND="step", STEP=step)
        if step % 20 == 0:
            mark(KIND="epoch", STEP=step)
"""


KEEPER = '''
    import time
    keep = []
    for _ in range(40):
        keep.append(bytearray(b"x" * (8 << 20)))
        time.sleep(0.5)
'''


def run_keeper(folder):
    """Runs KEEPER and returns the result; the run folder is FOLDER/out."""
    (folder / "job.py").write_text(textwrap.dedent(KEEPER))
    return run_ebb("run", "--interval", "100ms", "--run-dir", "out", "--", PYTHON, "job.py", cwd=folder)


def run_jobs(folder):
    """Runs JOB as "leak" and as "cache", each with and without the profiler. Returns {name: result}; the run folders
    are FOLDER/NAME."""
    (folder / "job.py").write_text(textwrap.dedent(JOB))
    return {f"{kind}{option}": run_ebb("run", *filter(None, [option]), "--interval", "50ms", "--run-dir",
                                       f"{kind}{option}", "--", PYTHON, "job.py", kind, cwd=folder)
            for kind in ("leak", "cache") for option in ("", "--no-heap")}


def run_all(folder):
    """Runs KEEPER and the other jobs at the same time."""
    for name in ("keeper", "jobs"):
        (folder / name).mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        keeper, jobs = pool.submit(run_keeper, folder / "keeper"), pool.submit(run_jobs, folder / "jobs")
        return folder, keeper.result(), jobs.result()


finished = begun_early(["test_verdict_of_a_recording_equals_the_live_verdict",
                        "test_option_no_marks_of_verdict_ignores_recorded_marks",
                        "test_verdict_command_prints_the_verdict_stored_in_run_json",
                        "test_limit_option_accepts_a_size_or_a_percentage"], run_all)


@pytest.mark.parametrize("option", ["", "--no-heap"], ids=["heap", "no-heap"])
@pytest.mark.parametrize("kind, word", [("leak", "leaking"), ("cache", "plateaued")])
def test_verdict_of_a_recording_equals_the_live_verdict(finished, kind, word, option):
    folder, _, results = finished.result()
    result, out = results[kind + option], folder / "jobs" / (kind + option)
    assert result.returncode == 0
    live = json.loads((out / "run.json").read_text())["verdict"]
    assert live["tree"]["verdict"] == word
    assert f"ebb  {word}: " in result.stderr or f"ebb  no leak: {word} at " in result.stderr
    assert verdict(out) == live
    if option:  # these runs have no heap profile, so the recording alone gives the same verdict
        assert verdict(out / "trace.ebb") == live
    early = verdict(out, "--until-step", 12)
    assert early["tree"]["verdict"] in ("filling", "undecided")
    notes = [json.loads(line) for line in run_ebb("export", out, "--jsonl").stdout.splitlines() if '"note"' in line]
    changes = [n["data"] for n in notes if n["kind"] == "verdict"]
    assert changes and all({"pid", "from", "to", "t", "confidence"} <= set(c) for c in changes)
    assert [c["to"] for c in changes if c["pid"] is None][-1] == word


def test_option_no_marks_of_verdict_ignores_recorded_marks(finished, tmp_path):
    out = finished.result()[0] / "jobs" / "cache"
    doc = verdict(out, "--no-marks")
    assert doc["tree"]["rate_bytes_per_step"] is None
    assert any(s.startswith("no marks: ") for s in doc["tree"]["evidence"])
    assert not any(s.startswith("no marks: ") for s in verdict(out)["tree"]["evidence"])
    assert doc["series"] == []
    path = table(tmp_path / "a.csv", ramp(300, MIB))
    assert refused_with(run_ebb("verdict", path, "--no-marks"), "--no-marks applies only to recordings")


def test_verdict_command_prints_the_verdict_stored_in_run_json(finished):
    folder, result, _ = finished.result()
    out = folder / "keeper" / "out"
    assert result.returncode == 0
    run = json.loads((out / "run.json").read_text())
    assert verdict(out) == run["verdict"]
    assert run["segments"][-1]["verdict"] == run["verdict"]["tree"]["verdict"]
    assert f"ebb  {run['verdict']['tree']['verdict']}: " in result.stderr
    # A leak without a known epoch is reported only after it has been probable for 10 s.
    assert verdict(out, "--until", 8)["tree"]["leak"] is not True
    # On a busy machine the growth may be irregular.
    if run["verdict"]["tree"]["verdict"] == "leaking":
        # Confidence is capped, because a longer first epoch cannot be excluded.
        assert run["verdict"]["tree"]["confidence"] <= 0.9
        assert any(s.startswith("memory grew steadily until the job ended; ") for s in run["verdict"]["tree"]["evidence"])


def test_limit_option_accepts_a_size_or_a_percentage(finished):
    out = finished.result()[0] / "jobs" / "leak"
    whole = verdict(out)["tree"]["oom"]["limit_bytes"]
    half = verdict(out, "--limit", "50%")["tree"]["oom"]["limit_bytes"]
    own = verdict(out, "--limit", "1G")["tree"]["oom"]
    assert half == pytest.approx(whole / 2, abs=10000)
    assert own["limit_bytes"] == 1 << 30
    assert own["eta_s"]["low"] < 600
    refusal = run_ebb("verdict", out, "--group", "pid")
    assert refused_with(refusal, "--group applies only to CSV tables")


def test_table_has_the_same_verdict_before_and_after_import(tmp_path):
    path = table(tmp_path / "a.csv", ramp(3000, MIB))
    assert make_recording(path, tmp_path / "a.ebb")
    assert verdict(tmp_path / "a.ebb")["tree"]["verdict"] == verdict(path)["verdict"] == "leaking"
    steps = table(tmp_path / "s.csv", [(s, 300 * MIB + MIB * min(s, 100)) for s in range(900)],
                  "step,rss")
    assert make_recording(steps, tmp_path / "s.ebb")
    doc = verdict(tmp_path / "s.ebb")["tree"]
    assert (doc["verdict"], doc["rate_bytes_per_min"]) == ("plateaued", None)


def test_verdict_of_a_truncated_recording_uses_data_before_the_cut(tmp_path, ebb):
    path = table(tmp_path / "a.csv", ramp(3000, MIB))
    make_recording(path, tmp_path / "a.ebb")
    whole = (tmp_path / "a.ebb").read_bytes()
    (tmp_path / "cut.ebb").write_bytes(whole[:len(whole) - 7])
    result = ebb("verdict", tmp_path / "cut.ebb", "--json")
    assert result.returncode in (1, 3) and "is damaged" in result.stderr
    json.loads(result.stdout)


# ---- recordings of real runs ----

def h200(name, *options):
    return verdict(DATA / f"h200-{name}.csv", "--marks", DATA / f"h200-{name}.marks.jsonl", *options)


def test_growth_from_lazily_opened_images_is_called_plateaued():
    doc = h200("lazy-pil")
    assert doc["verdict"] == "plateaued"
    assert doc["growth_ended"]["step"] == 83
    assert doc["growth_ended"]["at"] == "the end of the first epoch"


def test_collator_that_keeps_every_image_is_called_leaking():
    doc = h200("leak-collator", "--limit", "64G")
    assert doc["verdict"] == "leaking"
    rate, eta = doc["rate_bytes_per_min"], doc["oom"]["eta_s"]
    room = 64 * 1024 * MIB - doc["floor_bytes"]["last"]
    assert eta["low"] <= 60 * room / rate["high"] * 1.01
    assert eta["high"] >= 60 * room / rate["low"] * 0.99
    assert not any(" 0 B " in s for s in doc["evidence"])


@pytest.mark.parametrize("step", [60, 80])
@pytest.mark.parametrize("name", ["lazy-pil", "leak-collator"])
@pytest.mark.parametrize("is_epoch_given", [True, False])
def test_leak_and_lazy_loading_are_called_filling_in_the_first_epoch(name, step, is_epoch_given):
    options = ["--steps-per-epoch", 83] if is_epoch_given else []
    doc = h200(name, "--until-step", step, *options)
    assert doc["verdict"] == "filling"
    if is_epoch_given:
        assert doc["forecast"]["decided_at_step"] >= 83
        assert doc["forecast"]["ceiling_bytes"] > doc["floor_bytes"]["last"]


def test_memory_of_compile_workers_is_not_called_a_leak():
    doc = h200("compile")
    assert doc["tree"]["leak"] is False
    assert all(p["leak"] is not True for p in doc["processes"])


GARDEN = TRACES / "model-garden" / "first_epoch_fill_traces.csv"


@needs(GARDEN)
def test_model_garden_runs_are_called_plateaued_or_filling():
    doc = verdict(GARDEN, "--group", "run")
    words = {p["name"]: p["verdict"] for p in doc["processes"]}
    assert words.pop("prod_run1") == "filling"
    assert len(words) == 5 and set(words.values()) == {"plateaued"}
    for one in doc["processes"]:
        if one["verdict"] == "plateaued":
            assert one["growth_ended"]["at"] == "the end of the first epoch", one["name"]


@needs(TRACES / "tokenizers-1539.csv")
def test_tokenizer_cache_is_not_called_leaking():
    doc = verdict(TRACES / "tokenizers-1539.csv", "--step-column", "iter")
    assert doc["leak"] is False
    assert any(f"stopped at step {doc['growth_ended']['step']} " in s for s in doc["evidence"])


@pytest.mark.parametrize("step, words", [(40, ["filling"]), (83, ["filling", "plateaued"]), (249, ["plateaued"])])
def test_verdicts_in_the_guided_tour_match_its_recording(step, words):
    folder = ROOT / "examples" / "recordings"
    doc = verdict(folder / "seed-h200.csv", "--marks", folder / "seed-h200.marks.jsonl", "--limit", "32G",
                   "--until-step", step)
    assert doc["verdict"] in words
    if step == 40:
        assert doc["forecast"]["ceiling_bytes"] == pytest.approx(14.8 * 2**30, rel=0.02)
        assert doc["forecast"]["decided_at_step"] == 83
        assert doc["rate_bytes_per_step"]["value"] == pytest.approx(160 * 2**20, rel=0.02)
    if step == 249:
        assert doc["growth_ended"]["step"] == pytest.approx(83, abs=2)
