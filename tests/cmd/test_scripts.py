"""Tests the project's own scripts: the include table, setup without privileges, npm downloads, test counts, and the
output of a whole test run."""

import gzip
import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
import run_tests  # noqa: E402


def tree_with(folder, files):
    for name, text in files.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def check_includes(folder):
    return subprocess.run([sys.executable, SCRIPTS / "check_includes.py", folder],
                          capture_output=True, text=True)


def test_include_check_accepts_a_tree_with_only_allowed_includes(tmp_path):
    result = check_includes(tree_with(tmp_path, {
        "base/err.h": "#include <stdint.h>\n",
        "proc/sample.h": '#include "base/err.h"\n',
        "trace/writer.c": '#include "trace/writer.h"\n#include "proc/sample.h"\n',
        "trace/writer.h": "\n",
        "heap/table.h": "#include <stddef.h>\n",
        "profile/read.c": '#include "heap/table.h"\n',
        "cli/main.c": '#include "version.h"\n#include "trace/writer.h"\n',
    }))
    assert (result.stdout, result.returncode) == ("", 0)


@pytest.mark.parametrize("file, include", [
    ("base/err.c", '"proc/sample.h"'),
    ("trace/writer.c", '"proc/tree.h"'),
    ("profile/read.c", '"heap/hooks.h"'),
    ("heap/hooks.c", '"base/err.h"'),
    ("server/http/http.c", '"verdict/series.h"'),
    ("proc/tree.c", '"nowhere/x.h"'),
    ("proc/tree.c", '"../base/err.h"'),
    ("proc/tree.c", '"err.h"'),
    ("verdict/floor.c", "<proc/sample.h>"),
    ("newfolder/x.c", "<stdio.h>"),
])
def test_include_check_names_the_forbidden_include(tmp_path, file, include):
    result = check_includes(tree_with(tmp_path, {
        "proc/sample.h": "\n",
        file: f"/* One sentence. */\n#  include {include}\n",
    }))
    line = 1 if file.startswith("newfolder") else 2
    assert result.returncode == 1
    assert result.stdout.startswith(f"src/{file}:{line}: ")


def test_include_check_fails_in_a_folder_without_sources(tmp_path):
    assert check_includes(tmp_path).returncode == 1


def test_include_table_lists_every_folder_of_src():
    table = {line.split(":")[0] for line in (SCRIPTS / "include_table.txt").read_text().splitlines()
             if line and not line.startswith("#")}
    folders = {str(file.parent.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.c")}
    assert folders == table


def fake_path(folder, **programs):
    """Returns a PATH that contains only the fake PROGRAMS and the real tools that setup.sh needs."""
    folder.mkdir()
    for name, script in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    for name in ("env", "mktemp", "rm", "cp", "mv", "grep", "tail"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return folder


def setup(path, group="build"):
    return subprocess.run(["/bin/bash", SCRIPTS / "setup.sh", group], capture_output=True, text=True,
                          env={"PATH": str(path)}, timeout=300)


def is_debian_like():
    text = pathlib.Path("/etc/os-release").read_text()
    return "debian" in text or "ubuntu" in text


debian_only = pytest.mark.skipif(not is_debian_like(), reason="not a Debian-like distribution")


@debian_only
def test_setup_without_root_prints_the_apt_command_to_run(tmp_path):
    result = setup(fake_path(tmp_path / "bin", id="echo 1000", sudo="exit 1", apt_get="exit 99"))
    lines = result.stdout.splitlines()
    assert (result.returncode, len(lines)) == (1, 1)
    assert result.stderr == ("setup: packages are missing, and only root can install them; "
                             "run this command, then make again:\n")
    assert lines[0].startswith("sudo apt-get install -y ")
    assert {"gcc", "cmake", "ninja-build", "libjansson-dev"} <= set(lines[0].split())


@debian_only
def test_setup_without_sudo_prints_the_apt_command_to_run(tmp_path):
    result = setup(fake_path(tmp_path / "bin", id="echo 1000", apt_get="exit 99"), "test")
    assert result.returncode == 1
    assert result.stdout.startswith("sudo apt-get install -y ")
    assert "libcmocka-dev" in result.stdout.split()


@debian_only
@pytest.mark.parametrize("apt_says, sentence", [
    ("E: Could not get lock /var/lib/dpkg/lock-frontend.", "holds the package manager's lock"),
    ("Err:1 Temporary failure resolving 'archive'", "cannot be reached"),
    ("E: Unable to locate package gcc", "could not install: gcc"),
])
def test_setup_reports_failure_of_apt_in_one_line(tmp_path, apt_says, sentence):
    result = setup(fake_path(tmp_path / "bin", id="echo 0", apt_get=f'echo "{apt_says}"; exit 100'))
    assert result.returncode == 1
    assert sentence in result.stderr.splitlines()[-1]


@debian_only
def test_setup_installs_packages_without_prompting(tmp_path):
    log = tmp_path / "log"
    path = fake_path(tmp_path / "bin", id="echo 0", apt_get=f'echo "$DEBIAN_FRONTEND $*" >>{log}')
    result = setup(path)
    assert "setup: installing gcc" in result.stdout
    last = log.read_text().splitlines()[-1].split()
    assert last[0] == "noninteractive"
    assert {"-y", "install", "--no-install-recommends", "cmake"} <= set(last)
    assert "not usable" in result.stderr  # The fake apt-get installed nothing, and setup.sh must detect that.


@debian_only
def test_setup_does_not_install_snaps(tmp_path):
    path = fake_path(tmp_path / "bin", id="echo 0", npm="", apt_get="""
        case "$*" in *simulate*) echo "Note, selecting 'chromium-browser' instead of 'chromium'"
        echo "Inst snapd (2.62 Ubuntu)"; echo "Inst chromium-browser (1snap1 Ubuntu)" ;; *) exit 99 ;; esac""")
    result = setup(path, "browser")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("setup: chromium is a snap on this system")


def setup_python(folder, **changes):
    """Runs the Python part of setup.sh with an unreachable package index."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "BUILD": str(folder / "build"),
           "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://127.0.0.1:9/", **changes}
    return subprocess.run(["/bin/bash", SCRIPTS / "setup.sh", "python"], capture_output=True,
                          text=True, env=env, timeout=300)


def with_stand_in(folder, name, script):
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / name).chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


DISK = "echo header; echo disk 1 1 {} 1% /"


def no_environment(result, folder, reason):
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1].endswith(f"are skipped: {reason}")
    assert (folder / "build" / "venv.reason").read_text() == f"{reason}\n"
    return not (folder / "build" / "venv").exists()


def test_setup_skips_the_venv_if_the_package_index_is_unreachable(tmp_path):
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python cannot create virtual environments")
    enough = with_stand_in(tmp_path, "df", DISK.format(1 << 20))
    result = setup_python(tmp_path, **enough)
    assert no_environment(result, tmp_path, "the package index cannot be reached")


@pytest.mark.parametrize("pip_says, reason", [
    ("SSLError: CERTIFICATE_VERIFY_FAILED\nERROR: No matching distribution found for torch",
     "the package index has a certificate that pip does not trust"),
    ("ERROR: [Errno 28] No space left on device", "no space left"),
    ("ERROR: No matching distribution found for torch==0",
     "ERROR: No matching distribution found for torch==0"),
])
def test_setup_succeeds_with_a_warning_if_pip_install_fails(tmp_path, pip_says, reason):
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python cannot create virtual environments")
    with_stand_in(tmp_path, "df", DISK.format(1 << 20))
    result = setup_python(tmp_path, **with_stand_in(
        tmp_path, "timeout", f"printf '%s\\n' '{pip_says}'; exit 1"))
    assert no_environment(result, tmp_path, reason)


def test_setup_downloads_nothing_if_disk_space_is_too_low(tmp_path):
    result = setup_python(tmp_path, **with_stand_in(tmp_path, "df", DISK.format(512)))
    assert no_environment(result, tmp_path, "512 MiB are free, 10240 are required")


def test_setup_with_torch_set_to_no_creates_no_virtual_environment(tmp_path):
    result = setup_python(tmp_path, TORCH="no")
    assert no_environment(result, tmp_path, "TORCH=no")


def test_setup_does_not_change_a_complete_virtual_environment(tmp_path):
    venv = tmp_path / "build" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to("/usr/bin/python3")
    version = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True)
    wanted = (ROOT / "tests" / "py" / "requirements.txt").read_text()
    (venv / "complete").write_text(version.stdout + wanted)
    result = setup_python(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert sorted(path.name for path in venv.iterdir()) == ["bin", "complete"]


@pytest.mark.parametrize("text, found", [
    ("import os\n", "'os' imported but unused"),
    ("import os  # noqa: F401\n", None),
    ("x = 1  # " + "x" * 92 + "\n", "101 columns, more than 100"),
    ("match 1:\n    case 1:\n        pass\n", "not Python 3.9: "),
    ("def\n", "not Python 3.9: "),
])
def test_python_check_reports_each_kind_of_problem(tmp_path, text, found):
    file = tmp_path / "a.py"
    file.write_text(text)
    result = subprocess.run(["/usr/bin/python3", SCRIPTS / "check_python.py", file],
                            capture_output=True, text=True)
    if found and "imported" in found and "pyflakes is not installed" in result.stdout:
        pytest.skip("pyflakes is not installed")
    assert result.returncode == (1 if found else 0)
    assert (found or "") in result.stdout
    again = subprocess.run(["/usr/bin/python3", SCRIPTS / "check_python.py"], input=f"{file}\0",
                           capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (result.returncode, result.stdout)


def test_setup_refuses_an_unknown_group_of_packages():
    result = setup("/usr/bin:/bin", "everything")
    assert result.returncode == 1
    assert "everything" in result.stderr


GREEN = """[==========] Running 2 test(s).
[ RUN      ] a
[       OK ] a
[ RUN      ] b
[       OK ] b
[==========] 2 test(s) run.
[  PASSED  ] 2 test(s).
"""
RED = """[==========] Running 2 test(s).
[ RUN      ] a
[       OK ] a
[ RUN      ] b
[  ERROR   ] --- 0x1 != 0x2
[  FAILED  ] b
[==========] 2 test(s) run.
[  PASSED  ] 1 test(s).
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] b

 1 FAILED TEST(S)
"""
SKIPPED = """[==========] Running 2 test(s).
[ RUN      ] a
[       OK ] a
[ RUN      ] b
[  SKIPPED ] b
[==========] 2 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] b
"""
NAMED_GROUP = """[==========] tests: Running 1 test(s).
[ RUN      ] a
[       OK ] a
[==========] tests: 1 test(s) run.
[  PASSED  ] 1 test(s).
"""
CUT = "\n".join(GREEN.splitlines()[:4])


@pytest.mark.parametrize("status, output, expected", [
    ("run", GREEN, (2, 0, 0)),
    ("run", GREEN + GREEN, (4, 0, 0)),
    ("run", NAMED_GROUP, (1, 0, 0)),
    ("fail", RED, (1, 1, 0)),
    ("run", RED, (1, 1, 0)),
    ("run", SKIPPED, (1, 0, 1)),
    ("fail", CUT, (1, 1, 0)),
    ("run", CUT, (1, 1, 0)),
    ("fail", GREEN + "ERROR: LeakSanitizer: detected memory leaks", (2, 1, 0)),
    ("run", "....\n4 passed in 0.02s\n", (4, 0, 0)),
    ("run", "==== 4 passed, 2 skipped, 1 xfailed in 61.02s (0:01:01) ====\n", (4, 0, 3)),
    ("fail", "1 failed, 2 passed, 1 error in 0.10s\n", (2, 2, 0)),
    ("fail", "..", (0, 1, 0)),
    ("fail", "", (0, 1, 0)),
    ("notrun", "", (0, 1, 0)),
    ("skip", "no objdump here\n", (0, 0, 1)),
    ("run", "", (1, 0, 0)),
])
def test_test_summary_counts_each_test_function(status, output, expected):
    counts = run_tests.count_entry(status, output)
    assert (counts.passed, counts.failed, counts.skipped) == expected


def test_reasons_of_failed_tests_are_read_from_the_ctest_log():
    log = ("The following tests FAILED:\n\t  1 - a.slow (Timeout)\n"
           "\t 12 - a.abort (Subprocess aborted)\nErrors while running CTest\n")
    assert run_tests.failure_reasons(log) == {"a.slow": "Timeout", "a.abort": "Subprocess aborted"}


def write_junit(path, *entries):
    cases = "".join(f'<testcase name="t{i}" status="{status}"><system-out>{output}</system-out></testcase>'
                    for i, (status, output) in enumerate(entries))
    path.write_text(f"<testsuite>{cases}</testsuite>")
    return subprocess.run([sys.executable, SCRIPTS / "run_tests.py", "--count", path],
                          capture_output=True, text=True)


def test_passing_test_run_ends_with_a_line_of_counts(tmp_path):
    result = write_junit(tmp_path / "j.xml", ("run", GREEN), ("run", "3 passed in 0.01s"))
    assert (result.stdout, result.returncode) == ("5 passed, 0 failed\n", 0)


def test_output_of_a_failing_ctest_entry_is_shown(tmp_path):
    result = write_junit(tmp_path / "j.xml", ("run", GREEN), ("fail", RED))
    assert result.returncode == 1
    assert "0x1 != 0x2" in result.stdout
    assert result.stdout.splitlines()[-1] == "3 passed, 1 failed"


def test_skipped_ctest_entry_is_not_reported_as_a_missing_program(tmp_path):
    junit = tmp_path / "j.xml"
    case = '<testcase name="t" status="notrun"><skipped message="{}"/></testcase>'
    expected = {"SKIP_RETURN_CODE=77": "0 passed, 0 failed, 1 skipped",
                "Unable to find executable": "0 passed, 1 failed"}
    for message, counts in expected.items():
        junit.write_text(f"<testsuite>{case.format(message)}</testsuite>")
        result = subprocess.run([sys.executable, SCRIPTS / "run_tests.py", "--count", junit],
                                capture_output=True, text=True)
        assert result.stdout.splitlines()[-1] == counts


def test_test_run_without_any_tests_fails(tmp_path):
    result = write_junit(tmp_path / "j.xml")
    assert (result.stdout, result.returncode) == ("0 passed, 0 failed\n", 1)


STUBS = {
    "bin/cmake": '[ "$1" = -S ] && { echo "$*" >>configured; exit; }; nice >>"priorities.$(basename "$2")"\n'
                 '[ ! -e "$2-is-broken" ] || { echo "$2: error"; exit 1; }',
    "bin/ctest": 'grep -q . installed; nice >>priorities.tests\n'
                 'echo "<testsuite><testcase name=\'t\' status=\'run\'/></testsuite>" >"$6"',
    "bin/clang": "[ ! -e no-fuzzer ]",
    "scripts/setup.sh": 'echo "$1 into $BUILD" >installed',
}


@pytest.fixture
def whole_run(tmp_path, monkeypatch):
    """Returns a function that runs run_tests.py with fake build and test programs."""
    for name, text in STUBS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\nset -e\n{text}\n")
        path.chmod(0o755)
    shutil.copy(SCRIPTS / "run_tests.py", tmp_path / "scripts")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def without_headings(output):
        return [line for line in output.splitlines() if line[:2] != "=="]

    def run(*arguments, broken=None, lines=without_headings):
        if broken:
            (tmp_path / f"{broken}-is-broken").parent.mkdir(exist_ok=True)
            (tmp_path / f"{broken}-is-broken").touch()
        result = subprocess.run([sys.executable, tmp_path / "scripts" / "run_tests.py", *arguments],
                                cwd=tmp_path, capture_output=True, text=True)
        assert result.stderr == ""
        return result.returncode, lines(result.stdout)
    return run


def test_test_script_builds_sanitizer_and_clang_trees_at_low_priority(whole_run, tmp_path):
    def priorities(what):
        return [int(n) for n in (tmp_path / f"priorities.{what}").read_text().split()]
    assert whole_run() == (0, ["3 passed, 0 failed"])
    own = priorities("build")[0]
    assert priorities("tests") == [own, own, own]
    assert priorities("asan") == priorities("clang") == [min(own + 10, 19)]


@pytest.mark.parametrize("has_fuzzer, folder, counts", [
    (True, "build/clang", "3 passed, 0 failed"), (False, "build/asan", "2 passed, 0 failed")])
def test_fuzz_targets_are_built_with_gcc_if_clang_has_no_libfuzzer(whole_run, tmp_path, has_fuzzer, folder, counts):
    if not has_fuzzer:
        (tmp_path / "no-fuzzer").touch()
    assert whole_run() == (0, [counts])
    with_fuzz = [line for line in (tmp_path / "configured").read_text().splitlines() if "-DEBB_FUZZ=ON" in line]
    assert [line.split()[3] for line in with_fuzz] == [folder]


@pytest.mark.parametrize("broken, said", [
    ("build", ["build: error", "build did not build", "0 passed, 1 failed"]),
    ("build/asan", ["build/asan: error", "build/asan did not build", "1 passed, 1 failed"]),
    ("build/clang", ["build/clang: error", "build/clang did not build", "2 passed, 1 failed"]),
])
def test_failing_build_configuration_fails_the_whole_test_run(whole_run, broken, said):
    assert whole_run(broken=broken) == (1, said)


# In the fake ctest, the test "t" passes only if it is rerun alone (with -R) and the shell command CONDITION succeeds.
@pytest.mark.parametrize("condition, code, last, unsteady", [
    ("true", 0, "3 passed, 0 failed", 3), ("false", 1, "0 passed, 3 failed", 0)])
def test_failed_test_that_passes_when_rerun_is_listed_as_unsteady(whole_run, tmp_path, condition, code, last, unsteady):
    (tmp_path / "bin/ctest").write_text(f"""#!/bin/sh
status=fail
case "$*" in *" -R ^(t)$"*) {condition} && status=run ;; esac
echo "<testsuite><testcase name='t' status='$status'><system-out>broke</system-out></testcase></testsuite>" >"$6"
[ $status = run ]
""")
    result, lines = whole_run(lines=str)
    assert result == code
    assert lines.splitlines()[-1] == last
    assert lines.count("---- t: Failed; its output:\nbroke") == 3
    assert lines.count("== unsteady: t failed beside other tests and passed alone") == unsteady


def test_failed_tests_are_not_rerun_if_more_than_three_fail(whole_run, tmp_path):
    cases = "".join(f"<testcase name='t{i}' status='fail'/>" for i in range(4))
    (tmp_path / "bin/ctest").write_text(f"""#!/bin/sh
echo called >>calls
echo "<testsuite>{cases}</testsuite>" >"$6"
exit 8
""")
    assert whole_run()[0] == 1
    assert (tmp_path / "calls").read_text() == "called\n" * 3


def test_table_of_test_costs_lists_only_existing_tests():
    lines = [line.split() for line in (ROOT / "cmake" / "test_costs.txt").read_text().splitlines()
             if line[0] != "#"]
    assert len(lines) > 20
    for name, seconds, thirds in lines:
        folder, test = name.split(".")
        assert (name == "heap.tsan" or (folder == "fuzz" and (ROOT / f"fuzz/fuzz_{test}.c").exists()) or list(ROOT.glob(f"tests/{folder}/{test}.py"))
                or list(ROOT.glob(f"tests/unit/{folder}/{test}.c"))), name
        assert int(seconds) > 0 and int(thirds) in (1, 2, 3), name


UNEXPECTED = "FATAL: ThreadSanitizer: unexpected memory mapping 0x5581-0x5582"


@pytest.mark.parametrize("body, code, shown", [
    (f'echo "{UNEXPECTED}"; exit 66', 77, "cannot start here: FATAL"),
    ('echo "[==========] 1 test(s) run."', 0, "1 test(s) run."),
    ('echo "[==========] Running"; echo "WARNING: ThreadSanitizer: data race"; exit 66', 66, "race"),
    ('echo "[==========] Running"; kill -SEGV $$', 139, "Running"),
])
def test_tsan_test_is_skipped_only_if_the_sanitizer_cannot_start(tmp_path, body, code, shown):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    result = subprocess.run([sys.executable, SCRIPTS / "run_tsan.py", program],
                            capture_output=True, text=True)
    assert result.returncode == code
    assert shown in result.stdout


# ---- fuzz targets ----

def fuzz(folder, *arguments, **targets):
    """Runs fuzz.py with shell scripts as fuzz targets."""
    for name, text in targets.items():
        (folder / "corpus" / name).mkdir(parents=True)
        program = folder / f"fuzz_{name}"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return subprocess.run([SCRIPTS / "fuzz.py", "--targets", folder, "--corpus", folder / "corpus", *arguments],
                          capture_output=True, text=True)


FUZZED = """echo "INFO: seed corpus: files: 3"; echo "#9 DONE cov: 42 ft: 50 corp: 3/9b"
echo "stat::number_of_executed_units: 400"; echo "stat::new_units_added: 7"; echo "stat::peak_rss_mb: 31" """


def test_fuzz_script_runs_targets_for_the_given_number_of_executions(tmp_path):
    result = fuzz(tmp_path, "--runs", "1000", "--jobs", "1", mark=FUZZED)
    assert result.returncode == 0, result.stdout + result.stderr
    name, executions, _, added, coverage, peak, crashes = result.stdout.splitlines()[1].split()
    assert (name, executions, added, coverage, peak, crashes) == ("mark", "1200", "21", "42", "31", "0")


def test_fuzz_script_runs_all_targets_and_fails_if_one_crashes(tmp_path):
    result = fuzz(tmp_path, "--seconds", "1", bad=f"{FUZZED}; echo 'heap-buffer-overflow'; exit 77", good=FUZZED)
    assert result.returncode == 1
    assert sorted(line.split()[::6] for line in result.stdout.splitlines()[1:3]) == [["bad", "1"], ["good", "0"]]
    assert "heap-buffer-overflow" in result.stdout


def test_fuzz_script_fails_if_a_target_has_no_seeds(tmp_path):
    result = fuzz(tmp_path, "--seconds", "1", bare='echo "INFO: A corpus is not provided"')
    assert result.returncode == 1 and "has no seeds" in result.stdout


def test_every_fuzz_target_has_seeds_and_a_line_in_the_readme():
    readme = (ROOT / "fuzz" / "README.md").read_text()
    names = {path.stem.removeprefix("fuzz_") for path in (ROOT / "fuzz").glob("fuzz_*.c")}
    assert names == {path.name for path in (ROOT / "fuzz" / "corpus").iterdir()}
    for name in names:
        assert any((ROOT / "fuzz" / "corpus" / name).iterdir()), name
        assert f"`{name}`" in readme, name


# ---- npm downloads ----

def npm_that_fails(folder, times):
    """Creates a fake npm that records its calls, reports a network error TIMES times, and then succeeds."""
    npm = folder / "npm"
    npm.write_text(f"""#!/bin/sh
echo "$*" >> {folder}/calls
if [ $(wc -l < {folder}/calls) -le {times} ]; then
    echo 'npm error network request failed, reason: getaddrinfo EAI_AGAIN' >&2
    exit 1
fi
mkdir -p node_modules
""")
    npm.chmod(0o755)
    return npm


def calls(folder):
    return len((folder / "calls").read_text().splitlines())


def fetch(folder, npm):
    lock = folder / "into" / "package-lock.json"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("{}")
    return subprocess.run([SCRIPTS / "fetch_npm.sh", npm, lock.parent], capture_output=True,
                          text=True)


def test_npm_fetch_is_retried_after_a_network_error(tmp_path):
    npm = npm_that_fails(tmp_path, 2)
    result = fetch(tmp_path, npm)
    assert (result.returncode, result.stdout, calls(tmp_path)) == (0, "", 3)
    # The packages are already installed, so npm is not called again.
    assert fetch(tmp_path, npm).returncode == 0 and calls(tmp_path) == 3


def test_concurrent_npm_fetches_download_only_once(tmp_path):
    npm = npm_that_fails(tmp_path, 0)
    with npm.open("a") as script:
        script.write("sleep 1\n")
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "package-lock.json").write_text("{}")
    both = [subprocess.Popen([SCRIPTS / "fetch_npm.sh", npm, tmp_path / "into"]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0] and calls(tmp_path) == 1


def test_npm_fetch_gives_up_after_retries(tmp_path):
    result = fetch(tmp_path, npm_that_fails(tmp_path, 99))
    assert (result.returncode, calls(tmp_path)) == (1, 3)
    assert result.stdout == "the npm registry cannot be reached, 3 attempts\n"


@pytest.mark.parametrize("how, reason", [("off", "EBB_WEB is off"), ("none", "npm is not installed"),
                                         ("fails", "the npm registry cannot be reached")])
def test_web_build_without_npm_has_no_scripts_and_prints_the_reason(tmp_path, how, reason):
    if how == "fails" and not shutil.which("node"):
        pytest.skip("node is not installed")
    npm = npm_that_fails(tmp_path, 99) if how == "fails" else how
    result = subprocess.run([SCRIPTS / "build_web.sh", tmp_path / "out", npm, "report", "serve"],
                            capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("web: " + reason) and result.stdout.count("\n") == 1
    assert gzip.decompress((tmp_path / "out" / "report.js.gz").read_bytes()) == b""
    style = gzip.decompress((tmp_path / "out" / "report.css.gz").read_bytes())
    assert b"--back" in style and b".flame" in style
    page = gzip.decompress((tmp_path / "out" / "serve.html.gz").read_bytes())
    assert b"without its page" in page and b"/api/v1/jobs" in page and b"<script" not in page
