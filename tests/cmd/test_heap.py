"""Tests `ebb heap` on recorded and running jobs: the leaking line, selection by step and by name, and every output
format."""

import gzip
import json
import os
import re
import shutil
import subprocess

import pytest

from commands import (PATIENCE_S, PYTHON, binary, environment, refused, refused_with, run_ebb,
                      wait_for)
from heap_jobs import (STEPS, facts, heap, heap_files, held, line_of, needs_library, not_sanitized,
                       run_job, run_python, start_job, where, write)

pytestmark = needs_library

LAST_STEP = 120
KEPT = 1_500_000  # Almost every allocation of this size is sampled.
LEAKING = STEPS + f"""
import time
keep = []
model = [bytes(32 << 20) for _ in range(8)]
def leak():
    keep.append(bytes({KEPT}))  # leaks
def churn():
    return [bytes(200_000) for _ in range(5)]
for n in range(1, {LAST_STEP + 1}):
    leak()
    churn()
    step(n)
    time.sleep(0.04)
"""


class Recorded:
    """A finished run of a job with one leaking line."""

    def __init__(self, folder):
        self.result, self.path = run_python(folder, LEAKING)
        self.run = self.result.run
        self.line = line_of(self.path, "# leaks")


@pytest.fixture(scope="module")
def leaked(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("leaked"))


def test_heap_command_shows_the_leaking_line_in_its_first_row(leaked):
    assert leaked.result.returncode == 0, leaked.result.stderr
    doc = heap(leaked.run)
    first = doc["rows"][0]
    assert where(first) == (str(leaked.path), leaked.line)
    assert first["where"]["function"] == "leak" and first["where"]["kind"] == "python"
    assert first["growth_bytes"] > 4 * first["growth_sigma_bytes"] > 0
    truth = KEPT * LAST_STEP
    assert abs(first["live"]["bytes"] - truth) < 6 * (first["live"]["high"] -
                                                      first["live"]["bytes"]) / 1.96
    assert doc["steps"]["last"] == LAST_STEP and doc["pid"] == facts(leaked.run)["pid"]


def test_stack_in_heap_output_lists_frames_from_allocator_to_main(leaked):
    first = heap(leaked.run)["rows"][0]
    python = [frame["function"] for frame in first["stack"] if frame["kind"] == "python"]
    assert python == ["leak", "<module>"]
    assert first["stack"][-1]["kind"] == "native"


def test_heap_command_reports_the_cpu_cost_of_the_profiler(leaked):
    cost = heap(leaked.run)["cost"]
    assert cost["samples"] > 50 and cost["samples"] >= cost["ends"] > 0
    assert 0 < cost["hook_s"] < 60 and cost["base_interval_bytes"] == 512 << 10
    assert cost["python"]["state"] == "Python frames are read" and cost["python"]["small_objects"]


def test_heap_text_fits_80_columns_and_lists_leaking_line_once(leaked):
    result = run_ebb("heap", leaked.run)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line for line in result.stdout.splitlines() if f"job.py:{leaked.line} leak" in line]
    assert len(rows) == 1 and rows[0].lstrip().startswith("+")
    assert "samples" in result.stdout and "\033" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_run_summary_names_the_leaking_line(leaked):
    doc = json.loads(leaked.result.stderr.splitlines()[-1])
    assert doc["heap"]["on"] is True and doc["heap"]["trouble"] is None
    assert where(doc["heap"]["growing"][0]) == (str(leaked.path), leaked.line)


def test_option_top_of_heap_limits_the_number_of_rows(leaked):
    doc = heap(leaked.run, "--top", "1")
    assert len(doc["rows"]) == 1 < doc["row_count"]
    result = run_ebb("heap", leaked.run, "--top", "1")
    assert f"and {doc['row_count'] - 1} more (--top N)" in result.stdout


@pytest.mark.parametrize("by, name", [("function", "leak"), ("file", "leak"), ("stack", "leak")])
def test_heap_rows_can_be_grouped_by_function_or_file_or_stack(leaked, by, name):
    doc = heap(leaked.run, "--by", by)
    assert doc["rows"][0]["where"]["file"] == str(leaked.path)
    if by != "file":
        assert doc["rows"][0]["where"]["function"] == name
    assert heap(leaked.run)["live"]["bytes"] == pytest.approx(doc["live"]["bytes"])


def test_heap_rows_can_be_grouped_by_library(leaked):
    rows = heap(leaked.run, "--by", "lib")["rows"]
    libraries = [row["native"]["lib"] for row in rows if row["native"]]
    assert len(libraries) == len(set(libraries)) > 0
    assert any("python" in library for library in libraries)


def test_option_stacks_of_heap_shows_the_callers_of_each_row(leaked):
    result = run_ebb("heap", leaked.run, "--stacks", "--top", "1")
    assert re.search(r"job\.py:\d+ <module>", result.stdout)


def branches(node):
    yield node
    for child in node["children"]:
        yield from branches(child)


def test_each_row_of_the_heap_tree_is_the_sum_of_its_children(leaked):
    tree = heap(leaked.run, "--tree")["tree"]
    for node in branches(tree):
        below = sum(child["live_bytes"] for child in node["children"])
        assert abs(below + node["own_bytes"] + node["left_out_bytes"] - node["live_bytes"]) < 9999
    assert any((n.get("file"), n.get("line")) == (str(leaked.path), leaked.line)
               for n in branches(tree))
    result = run_ebb("heap", leaked.run, "--tree")
    lines = result.stdout.splitlines()
    assert lines[1].split()[1:] == ["100", "%", "all"]
    assert any(f"job.py:{leaked.line} leak" in line for line in lines)
    assert max(map(len, lines)) <= 80


def first_step(leaked):
    return heap(leaked.run)["steps"]["first"]


def test_option_since_of_heap_shows_growth_after_the_given_step(leaked):
    begin = first_step(leaked)
    middle = (begin + LAST_STEP) // 2
    doc = heap(leaked.run, "--since", middle)
    first, model = doc["rows"][0], line_of(leaked.path, "model = ")
    assert where(first) == (str(leaked.path), leaked.line)
    assert 0 < first["growth_bytes"] < first["live"]["bytes"]
    assert all(row["growth_bytes"] == 0 for row in doc["rows"]
               if where(row) == (str(leaked.path), model))
    assert "since" in run_ebb("heap", leaked.run, "--since", middle).stdout


def test_option_diff_of_heap_accepts_one_range_or_two_steps(leaked):
    begin = first_step(leaked)
    docs = [heap(leaked.run, "--diff", f"{begin}..{LAST_STEP}"),
            heap(leaked.run, "--diff", begin, LAST_STEP)]
    assert docs[0] == docs[1]
    assert where(docs[0]["rows"][0]) == (str(leaked.path), leaked.line)
    assert docs[0]["rows"][0]["growth_bytes"] > 0
    result = run_ebb("heap", "--diff", begin, LAST_STEP, leaked.run)
    assert result.returncode == 0 and "change" in result.stdout
    back = heap(leaked.run, "--diff", f"{LAST_STEP}..{begin}")
    assert where(back["rows"][-1]) == (str(leaked.path), leaked.line)


def test_option_survivors_of_heap_excludes_blocks_newer_than_a_step(leaked):
    begin = first_step(leaked)
    middle = (begin + LAST_STEP) // 2
    held = []
    for step in (begin, middle, LAST_STEP):
        rows = heap(leaked.run, "--survivors", f"{step}..{LAST_STEP}", "--top", "512")["rows"]
        held += [row["growth_bytes"] for row in rows
                 if where(row) == (str(leaked.path), leaked.line)]
    assert len(held) == 3 and held[0] < held[1] < held[2]


@pytest.mark.parametrize("flags", [["--since", "7777"], ["--diff", "7777..7778"]])
def test_heap_command_refuses_a_step_range_outside_the_run(leaked, flags):
    begin = first_step(leaked)
    assert refused(run_ebb("heap", leaked.run, *flags),
                   "heap: the heap was not read at step 7777: readings cover steps "
                   f"{begin} to {LAST_STEP}")


@pytest.mark.parametrize("flags, said", [
    (["--since", "-1"], '--since: "-1" is not a step number'),
    (["--since", "x"], '--since: "x" is not a step number'),
    (["--since", "99999999999999999999"], '--since: "99999999999999999999" is not a step number'),
    (["--diff", "a..b"], '--diff: "a..b" is not a range of steps like 40..80'),
    (["--diff", "4..-8"], '--diff: "4..-8" is not a range of steps like 40..80'),
    (["--diff", "4.."], '--diff: "4.." is not a range of steps like 40..80'),
    (["--diff", "4"], "--diff requires two steps, such as --diff 40..80"),
    (["--survivors", "4"], "--survivors requires two steps, such as --survivors 40..80"),
    (["--diff", "4..8", "--since", "4"],
     "--since, --diff and --survivors are mutually exclusive"),
    (["another"], "expected one run folder or pid, not 2"),
    (["--by", "colour"], '--by: "colour" is not one of location|function|program|file|lib|stack'),
    (["--top", "0"], '--top: "0" is out of range; expected 1 to 512'),
    (["--every", "1ms"], '--every: "1ms" is too short; the minimum is 500ms'),
])
def test_heap_command_refuses_contradicting_options(leaked, flags, said):
    assert refused(run_ebb("heap", leaked.run, *flags), f"heap: {said}")


def test_option_pid_of_heap_selects_one_process(leaked):
    pid = facts(leaked.run)["pid"]
    assert heap(leaked.run, "--pid", pid) == heap(leaked.run)
    assert refused_with(run_ebb("heap", leaked.run, "--pid", pid + 1),
                        f"no heap history of process {pid + 1}")


def test_heap_can_be_exported_in_every_format(leaked, tmp_path):
    total = heap(leaked.run)["live"]["bytes"]
    lines = run_ebb("export", leaked.run, "--collapsed").stdout.splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == pytest.approx(total, rel=1e-3)
    stack = max(lines, key=lambda line: int(line.rpartition(" ")[2]) if "leak" in line else 0)
    assert stack.index("<module>") < stack.index("leak")
    doc = json.loads(run_ebb("export", leaked.run, "--speedscope").stdout)
    names = {frame["name"] for frame in doc["shared"]["frames"]}
    assert any("leak" in name for name in names)
    assert sum(doc["profiles"][0]["weights"]) == pytest.approx(total, rel=1e-3)
    out = tmp_path / "heap.pb.gz"
    assert run_ebb("export", leaked.run, "--pprof", "-o", out).returncode == 0
    text = gzip.decompress(out.read_bytes())
    assert all(word in text for word in (b"inuse_space", b"leak", b"alloc_space"))
    assert str(leaked.path).encode() in text


# ---- damaged files ----

@pytest.fixture
def copy(leaked, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(leaked.run, folder)
    return folder


def test_truncated_heap_file_is_shown_up_to_the_cut(copy):
    path, = copy.glob("heap.*.ebbheap")
    path.write_bytes(path.read_bytes()[:-100])
    result = run_ebb("heap", copy)
    assert result.returncode == 0 and "job.py" in result.stdout


@pytest.mark.parametrize("content", [b"", b"EBBHEAP\n" + bytes(4096)], ids=["empty", "zeros"])
def test_invalid_heap_file_is_reported(copy, content):
    path, = copy.glob("heap.*.ebbheap")
    path.write_bytes(content)
    assert refused_with(run_ebb("heap", copy), path.name, "is not a heap history")


@pytest.mark.parametrize("at", range(1, 10))
def test_heap_command_survives_a_flipped_byte_in_the_heap_file(copy, at):
    path, = copy.glob("heap.*.ebbheap")
    content = bytearray(path.read_bytes())
    content[len(content) * at // 10] ^= 0x55
    path.write_bytes(content)
    result = run_ebb("heap", copy, "--json")
    assert result.returncode in (0, 2) and "Sanitizer" not in result.stderr
    assert result.returncode == 2 or json.loads(result.stdout)["rows"] is not None


def test_heap_command_ignores_foreign_files_in_the_run_folder(copy, leaked):
    (copy / "heap.1.ebbheap").write_bytes(b"nonsense")
    os.mkfifo(copy / "heap.2.ebbheap")
    (copy / "heap.3.ebbheap").symlink_to("/dev/zero")
    assert where(heap(copy)["rows"][0]) == (str(leaked.path), leaked.line)


def test_heap_is_shown_if_the_recording_is_damaged(copy, leaked):
    (copy / "trace.ebb").write_bytes(b"")
    (copy / "run.json").write_text("{")
    assert where(heap(copy)["rows"][0]) == (str(leaked.path), leaked.line)


# ---- folders and processes without a heap profile ----

def test_heap_command_refuses_a_missing_folder(tmp_path):
    assert refused(run_ebb("heap", tmp_path / "none"),
                   f"heap: {tmp_path / 'none'}: No such file or directory; "
                   "give a run folder or a pid")
    (tmp_path / "file").write_text("")
    assert refused_with(run_ebb("heap", tmp_path / "file"), "Not a directory")


def test_heap_of_folder_without_heap_files_prints_one_error_line(tmp_path):
    assert refused_with(run_ebb("heap", tmp_path), f"heap: {tmp_path}: no heap history found")


def test_heap_of_a_process_not_under_ebb_prints_one_error_line():
    assert refused_with(run_ebb("heap", os.getpid()), f"does not run under ebb; run ebb attach {os.getpid()}, or start the job with `ebb run -- CMD`")


def test_heap_command_refuses_the_pid_of_an_exited_process():
    with subprocess.Popen([PYTHON, "-c", ""], env=environment()) as process:
        process.wait()
    assert refused_with(run_ebb("heap", process.pid), f"heap: there is no process {process.pid}")


@pytest.mark.parametrize("pid", ["0", "99999999999"])
def test_heap_command_refuses_an_invalid_pid(pid):
    assert refused(run_ebb("heap", pid), f'heap: invalid process id "{pid}"')


QUIET = "import time\nkeep = bytes(8 << 20)\n"


@pytest.mark.parametrize("flags, env", [(["--no-heap"], None), ([], {"EBB_HEAP": "0"})])
def test_run_with_profiling_disabled_writes_no_heap_files(tmp_path, flags, env):
    text = "import os\nprint('ebb-heap' in os.environ.get('LD_PRELOAD', ''),\n" \
           "      'libebb-heap' in open('/proc/self/maps').read())\nkeep = bytes(8 << 20)\n"
    result, _ = run_python(tmp_path, text, flags=flags, env=env)
    assert (result.returncode, result.stdout) == (0, "False False\n")
    assert heap_files(result.run) == [] and facts(result.run)["heap"]["on"] is False
    assert refused(run_ebb("heap", result.run),
                   f"heap: {result.run} has no heap profile: the job was run with --no-heap or EBB_HEAP=0")


@pytest.mark.parametrize("size", ["0", "1", "2G", "50%", "x", "-4K"])
def test_invalid_heap_intervals_are_refused(tmp_path, size):
    assert refused(run_ebb("run", "--heap-interval", size, "--", "true", cwd=tmp_path),
                   f'run: --heap-interval: "{size}" is not a size from 4K to 1G', status=125)


def test_option_no_heap_python_disables_profiling_of_small_objects(tmp_path):
    result, _ = run_python(tmp_path, QUIET, flags=["--no-heap-python"])
    doc = heap(result.run)
    assert result.returncode == 0 and doc["cost"]["python"]["small_objects"] is False
    assert doc["cost"]["python"]["state"] == "Python frames are read"


def test_run_without_a_recording_writes_no_heap_file(tmp_path):
    path = write(tmp_path, QUIET)
    result = run_ebb("run", "-q", "--no-record", "--", PYTHON, path, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert os.listdir(tmp_path) == ["job.py"]


# ---- hostile names ----

HOSTILE = r"""
import time
name = "/tmp/\x1b]0;owned\x07\x1b[2J\n\tevil\u202e\udc80 'quote\".py"
code = compile("def fé(n):\n    return bytes(n)\nkeep = [fé(1 << 20) for _ in range(20)]\n", name,
               "exec")
exec(code)
"""


def test_heap_command_escapes_control_codes_in_file_names(tmp_path):
    result, _ = run_python(tmp_path, HOSTILE)
    assert result.returncode == 0, result.stderr
    doc = heap(result.run)
    assert any("evil" in (row["where"]["file"] or "") for row in doc["rows"])
    forms = [["heap", result.run], ["heap", result.run, "--tree"],
             ["heap", result.run, "--stacks"], ["export", result.run, "--collapsed"]]
    for form in forms:
        output = run_ebb(*form).stdout
        assert "evil" in output
        bad = [c for c in output if (ord(c) < 0x20 and c != "\n") or c in "\x7f\x9b\u202e"]
        assert bad == [], (form, bad)
    for line in run_ebb("export", result.run, "--collapsed").stdout.splitlines():
        assert re.fullmatch(r".* \d+", line), line
    json.loads(run_ebb("export", result.run, "--speedscope").stdout)
    assert "\033" not in result.stderr


# ---- running jobs ----

LIVING = """
import sys
keep = []
def leak():
    keep.append(bytes(8 << 20))  # leaks
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        leak()
    print("done", flush=True)
"""


class Living:
    """A running job that allocates blocks of 8 MiB on request. At this size the sampler misses a block only once in a
    million runs."""

    def __init__(self, folder):
        self.path = write(folder, LIVING)
        self.line = line_of(self.path, "# leaks")
        self.run = folder / "run"
        self.job = start_job(folder, PYTHON, self.path)
        assert self.job.stdout.readline() == "ready\n"
        self.pid = json.loads((self.run / "run.json").read_text())["pid"]

    def leak(self, times):
        self.job.stdin.write(f"{times}\n")
        self.job.stdin.flush()
        assert self.job.stdout.readline() == "done\n"

    def held(self, of):
        return held(heap(of), self.path, self.line) >> 20

    def end(self):
        self.job.communicate(timeout=PATIENCE_S)
        assert self.job.returncode == 0


@pytest.fixture
def living(tmp_path):
    one = Living(tmp_path)
    yield one
    if one.job.poll() is None:
        one.job.kill()
        one.job.communicate()


def test_heap_of_a_running_job_shows_current_memory(living):
    for round in range(1, 4):
        living.leak(10)
        # At most one snapshot per second is added to the heap history.
        wait_for(lambda: 70 * round <= living.held(living.run) <= 90 * round, "a new reading")
        assert 70 * round <= living.held(living.pid) <= 90 * round
    assert 210 <= living.held(living.job.pid) <= 270  # The pid of `ebb run` is accepted, too.
    living.end()
    assert 210 <= living.held(living.run) <= 270


def test_option_every_of_heap_prints_tables_until_the_job_ends(living):
    living.leak(10)
    command = [binary(), "heap", str(living.run), "--every",
               "500ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment(), text=True) as watch:
        seen = 0
        for line in watch.stdout:
            seen += f"job.py:{living.line} leak" in line
            if seen == 2:
                living.leak(10)
            if seen == 4:
                living.end()
                break
        rest, said = watch.communicate(timeout=PATIENCE_S)
    assert (watch.returncode, said, seen) == (0, "", 4)
    assert "\033" not in rest


def test_heap_shows_last_saved_table_if_supervisor_is_unreachable(living, tmp_path):
    living.leak(10)
    # At most one snapshot per second is added to the heap history.
    wait_for(lambda: living.held(living.run) >= 70, "a new reading")
    stopped = json.loads((living.run / "run.json").read_text())
    shutil.copytree(living.run, tmp_path / "copy")
    stopped["socket"] = str(tmp_path / "nobody")
    (tmp_path / "nobody").write_text("")
    (tmp_path / "copy" / "run.json").write_text(json.dumps(stopped))
    result = run_ebb("heap", tmp_path / "copy")
    assert result.returncode == 0 and f"job.py:{living.line} leak" in result.stdout
    assert "showing the last reading" in result.stderr
    living.end()


@not_sanitized
def test_job_in_nested_ebb_runs_is_profiled_only_once(tmp_path):
    path = write(tmp_path, QUIET)
    result = run_job(tmp_path, binary(), "run",
                     "-q", "--run-dir", tmp_path / "inner", "--no-shim", "--", PYTHON, path)
    assert result.returncode == 0, result.stderr
    line = line_of(path, "keep = ")
    assert where(heap(tmp_path / "inner")["rows"][0]) == (str(path), line)
    if heap_files(result.run):
        assert held(heap(result.run), path, line) == 0
