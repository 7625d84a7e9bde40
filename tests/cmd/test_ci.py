"""Tests the gates for CI: --fail-on, --junit, --markdown, `ebb compare`, and the CI templates in contrib."""

import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree

import pytest

from commands import PATIENCE_S, PYTHON, ROOT, binary, environment, refused
from heap_jobs import not_sanitized

# A job that leaks 1 MiB/step if its argument is "leak".
JOB = """
import os, socket, sys, time
marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
kept = []
for n in range(1, 161):
    block = bytearray(b"x" * (1 << 20))
    if sys.argv[1] == "leak":
        kept.append(block)
    marks.sendto(f"KIND=step\\nSTEP={n}\\nEPOCH={n / 32}".encode(), os.environ["EBB_SOCKET"])
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.py"
    path.write_text(JOB)
    return path


@pytest.fixture
def run(ebb, tmp_path):
    def start(*command, options=()):
        return ebb("run", "-d", tmp_path / "run", "--junit", tmp_path / "out.xml",
                   "--markdown", tmp_path / "out.md", *options, "--", *command, cwd=tmp_path)
    return start


def case_of(folder):
    suite = xml.etree.ElementTree.parse(folder / "out.xml").getroot().find("testsuite")
    assert suite.get("tests") == "1"
    return suite.find("testcase")


@not_sanitized
def test_leaking_job_exits_with_3_if_fail_on_leak_is_set(run, job, tmp_path):
    result = run(PYTHON, job, "leak", options=["--fail-on", "leak"])
    assert result.returncode == 3, result.stderr
    assert result.stderr.endswith("ebb: exit status 3 because of --fail-on leak\n")
    case = case_of(tmp_path)
    assert case.find("failure").get("message").startswith("leaking: +1.")
    assert "job.py:6" in case.find("system-out").text
    markdown = (tmp_path / "out.md").read_text()
    assert markdown.startswith("leaking: +1.") and "job.py:6" in markdown


def test_healthy_job_exits_with_0_if_fail_on_undecided_is_set(run, job, tmp_path):
    result = run(PYTHON, job, "sound", options=["--fail-on", "undecided", "-q"])
    assert (result.returncode, result.stderr) == (0, "")
    assert [child.tag for child in case_of(tmp_path)] == ["system-out"]
    assert (tmp_path / "out.md").read_text().startswith("no leak: ")


def test_junit_file_marks_an_undecided_job_as_skipped(run, tmp_path):
    assert run("true", options=["--fail-on", "leak"]).returncode == 0
    case = case_of(tmp_path)
    assert case.find("skipped").get("message").startswith("undecided: ")


def test_short_job_exits_with_3_if_fail_on_undecided_is_set(run):
    assert run("true", options=["--fail-on", "undecided"]).returncode == 3


def test_failed_job_keeps_its_status_if_fail_on_undecided_is_set(run, tmp_path):
    assert run("sh", "-c", "exit 7", options=["--fail-on", "undecided"]).returncode == 7
    error = case_of(tmp_path).find("error")
    assert "exited with status 7" in error.get("message")


def test_junit_file_has_an_error_if_the_job_cannot_start(run, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/nowhere/interpreter\n")
    program.chmod(0o755)
    assert run(program).returncode == 127
    assert case_of(tmp_path).find("error") is not None


def test_junit_file_escapes_markup_in_the_job_name(run, tmp_path):
    run("true", options=["--name", "a\"<b>&\x1b]0;c\x07"])
    assert case_of(tmp_path).get("name").startswith('a"<b>&\\e')


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_unwritable_junit_file_is_refused_before_the_job_starts(ebb, tmp_path, option):
    started = tmp_path / "started"
    result = ebb("run", option, "/proc/nowhere/file", "--", "touch", started, cwd=tmp_path)
    assert refused(result, f'run: {option}: cannot write "/proc/nowhere/file": '
                           "No such file or directory", status=125)
    assert not started.exists()


def test_unknown_value_of_option_fail_on_is_refused(ebb, tmp_path):
    assert refused(ebb("run", "--fail-on", "leek", "--", "true", cwd=tmp_path),
                   'run: --fail-on: "leek" is not one of leak|undecided', status=125)


# ---- compare ----


def table(path, rate, level=1000, rows=400):
    lines = ["step,mib"] + [f"{n},{level + rate * n + (n * 7919 % 13) / 13}"
                            for n in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def compare(ebb, tmp_path):
    def start(base, head, *options):
        paths = [table(tmp_path / f"{i}.csv", *side) for i, side in enumerate((base, head))]
        return ebb("compare", *paths, "--step-column", "step", "--column", "mib", "--unit", "MiB",
                   *options)
    return start


def test_compare_command_fails_if_the_newer_run_leaks(compare):
    result = compare((0,), (0.2,), "--peak", "1G")
    assert result.returncode == 1, result.stdout
    assert result.stdout.startswith("worse: The change made it worse")


def test_compare_command_fails_if_the_newer_run_has_a_higher_peak(compare):
    result = compare((0,), (0, 1200))
    assert result.returncode == 1
    assert result.stdout.startswith("worse: The peak is higher.")
    assert "allowed increase: 100 MiB" in result.stdout


def test_compare_command_accepts_an_allowed_increase_of_the_peak(compare):
    assert compare((0,), (0, 1200), "--peak", "300M").returncode == 0


def test_compare_command_exits_with_0_for_equal_and_better_runs(compare):
    assert compare((0,), (0,)).returncode == 0
    assert compare((0.2,), (0,)).returncode == 0


def test_comparison_of_short_runs_is_undecided(compare):
    result = compare((0,), (10, 1000, 12), "--peak", "1G")
    assert (result.returncode, result.stdout.split(":")[0]) == (3, "undecided")


def test_compare_json_has_the_reasons_why_a_run_is_worse(compare):
    gate = json.loads(compare((0,), (0.2, 1200), "--json").stdout)["gate"]
    assert gate["result"] == "worse" and gate["growth_is_worse"] and gate["peak_is_worse"]


def test_compare_markdown_shows_both_runs(compare):
    text = compare((0,), (0.2,), "--markdown").stdout
    assert text.startswith("worse: ") and "Before and after" in text


def test_compare_command_refuses_a_single_run_or_an_unreadable_run(ebb, tmp_path):
    assert refused(ebb("compare", "a"),
                   "compare: HEAD is missing; usage: ebb compare [OPTION…] BASE HEAD")
    assert refused(ebb("compare", tmp_path / "a", tmp_path / "b"),
                   f"compare: {tmp_path}/a: No such file or directory; give a run folder or a "
                   "recording")


# ---- CI templates ----


def shell(script, tmp_path, **variables):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "ebb").symlink_to(os.path.abspath(binary()))
    env = environment({"PATH": f"{bin_folder}:{os.environ['PATH']}", **variables})
    return subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=env, text=True,
                          timeout=PATIENCE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


@pytest.mark.parametrize("command, status", [("exit 0", 3), ("exit 9", 9)])
def test_github_action_returns_the_exit_status_and_shows_the_summary(tmp_path, command, status):
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "contrib/github-action/action.yml").read_text())
    step, = action["runs"]["steps"]
    assert set(step["env"]) == {"COMMAND", "FAIL_ON", "RUN_DIR", "BASE", "PEAK"}
    done = shell(step["run"], tmp_path, COMMAND=command, FAIL_ON="undecided", RUN_DIR="run",
                 BASE="", PEAK="10%", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == status, done.stdout
    assert (tmp_path / "summary.md").read_text() == (tmp_path / "run.md").read_text() != ""


@pytest.mark.parametrize("fail_on, status", [("undecided", 3), ("leak", 0)])
def test_gitlab_template_turns_variable_ebb_fail_on_into_an_option(tmp_path, fail_on, status):
    yaml = pytest.importorskip("yaml")
    template = yaml.safe_load((ROOT / "contrib/gitlab-ci.yml").read_text())[".ebb"]
    done = shell("\n".join(template["script"]), tmp_path, EBB_COMMAND="exit 0", EBB_BASE="",
                 EBB_FAIL_ON=fail_on, EBB_PEAK="10%")
    assert done.returncode == status, done.stdout
    assert pathlib.Path(tmp_path / template["artifacts"]["reports"]["junit"]).exists()
