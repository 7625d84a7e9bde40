#!/usr/bin/env python3
"""Builds and runs every test and ends with `N passed, N failed`.

Tests of C code run under sanitizers. Tests labelled "plain" (cmake/tests.cmake) run against the program as it is
shipped, and fuzz targets run with clang. Many tests mostly wait, so the next build trees are built while tests run, at
a lower priority.

The final line counts cmocka functions and pytest tests, as read from the output of each ctest entry. An entry that
failed without naming a failed test (a signal, a sanitizer, a timeout, an early exit) counts as one failure.
An entry that failed is run once more alone; if it passes then, it counts as passed and is listed as unsteady.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

RETRIED_MOST = 3  # if more tests fail, none is rerun, because the code is probably broken

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def total(self):
        return self.passed + self.failed + self.skipped

    def line(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


CMOCKA_RUNNING = re.compile(r"\[==========\] (?:[\w ]+: )?Running (\d+) test")
CMOCKA_RUN = re.compile(r"\[ RUN      \] ")
CMOCKA_OK = re.compile(r"\[       OK \] ")
CMOCKA_SKIPPED = re.compile(r"\[  SKIPPED \] (?!\w* ?\d+ test|\d+ test)")
CMOCKA_FAILED = re.compile(r"\[  FAILED  \] (?:[\w ]+: )?(\d+) test")
PYTEST_SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in \d+\.\d+s", re.MULTILINE)


def count_cmocka(output):
    """Returns the counts in the output of one cmocka program, or None if the output is not cmocka's. The program may
    run several groups of tests."""
    announced = sum(int(n) for n in CMOCKA_RUNNING.findall(output))
    if not CMOCKA_RUNNING.search(output):
        return None
    counts = Counts(passed=len(CMOCKA_OK.findall(output)))
    counts.failed = sum(int(n) for n in CMOCKA_FAILED.findall(output))
    # cmocka prints the name of a skipped test when it runs, and again in a list at the end.
    started = len(CMOCKA_RUN.findall(output))
    if CMOCKA_SKIPPED.search(output):
        counts.skipped = max(0, started - counts.passed - counts.failed)
    if counts.total() < announced and counts.failed == 0:
        # The program ended before its last test; this counts as one failure.
        counts.failed = 1
    return counts


def count_pytest(output):
    """Returns the counts in pytest's last line, or None if there is no such line."""
    summaries = PYTEST_SUMMARY.findall(output)
    if not summaries:
        return None
    counts = Counts()
    for number, word in re.findall(r"(\d+) ([a-z]+)", summaries[-1]):
        if word in ("passed", "xpassed"):
            counts.passed += int(number)
        elif word in ("failed", "error", "errors"):
            counts.failed += int(number)
        elif word in ("skipped", "xfailed"):
            counts.skipped += int(number)
    return counts


def count_entry(status, output):
    """Returns the counts of one ctest entry. STATUS is `run` (passed), `fail`, `skip`, or another word if the test did
    not run."""
    if status == "skip":
        return Counts(skipped=1)
    counts = count_cmocka(output) or count_pytest(output)
    if counts is None:
        counts = Counts(passed=1) if status == "run" else Counts()
    if status != "run" and counts.failed == 0:
        counts.failed = 1
    return counts


def read_junit(path):
    """Yields (name, status, output) of each entry in a JUnit file written by ctest."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        status, skipped = case.get("status"), case.find("skipped")
        # ctest gives a test whose program is missing the status of a skipped test. Only tests that were really skipped
        # have this message.
        if skipped is not None and "SKIP_RETURN_CODE" in skipped.get("message", ""):
            status = "skip"
        yield case.get("name"), status, case.findtext("system-out") or ""


def count_junit(path, show=lambda name, output: None):
    counts = Counts()
    for name, status, output in read_junit(path):
        entry = count_entry(status, output)
        if entry.failed:
            show(name, output)
        counts.add(entry)
    return counts


def say(text):
    print(f"== {text}", flush=True)


@dataclass
class Tree:
    title: str
    folder: str
    targets: list
    options: list
    label: str = ""  # Label of the tests to run (default: all tests); "none" runs no tests.


@dataclass
class Outcome:
    ok: bool
    output: str
    seconds: float


def run_commands(commands):
    """Runs (COMMAND, IS_SHOWN) pairs in order until one fails. If IS_SHOWN is false, only errors are printed."""
    start, ok = time.monotonic(), True
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        for command, is_shown in commands:
            ok = ok and subprocess.run(command, stdin=subprocess.DEVNULL, stderr=out,
                                       stdout=out if is_shown else subprocess.DEVNULL).returncode == 0
        out.seek(0)
        return Outcome(ok, out.read(), time.monotonic() - start)


def configure(tree):
    """Wraps a command so that its output is hidden; warnings and errors still go to stderr."""
    command = ["cmake", "-S", ROOT, "-B", tree.folder, "-G", "Ninja", "--log-level=WARNING"]
    return command + tree.options, False


def build(tree, jobs):
    compile_ = ["cmake", "--build", tree.folder, "-j", str(jobs), "--target", *tree.targets]
    return run_commands([configure(tree), (compile_ + ["--", "--quiet"], True)])


def build_first(tree, jobs):
    """Installs the packages for the Python tests during the build, and then configures the tree again, because the set
    of tests depends on the installed packages."""
    install = subprocess.Popen([os.path.join(ROOT, "scripts", "setup.sh"), "python"],
                               stdin=subprocess.DEVNULL, env=dict(os.environ, BUILD=tree.folder))
    built = build(tree, jobs)
    install.wait()
    if built.ok:
        again = run_commands([configure(tree)])
        built = Outcome(again.ok, built.output + again.output, built.seconds + again.seconds)
    return built


def yield_to_others():
    """Lowers the priority of all processes started by this thread: they get about a tenth of a core while tests run,
    and a whole core otherwise."""
    os.nice(10)


def show_failure(name, output, reason="Failed"):
    print(f"---- {name}: {reason}; its output:\n{output.rstrip()}\n----", flush=True)


def failure_reasons(log):
    """Returns {name: reason} from the end of ctest's output; a reason is "Timeout", "SEGFAULT", "Failed"… ctest's XML
    does not contain the reasons."""
    return dict(re.findall(r"^\s+\d+ - (\S+) \((.+)\)", log, re.MULTILINE))


def ctest(folder, jobs, label, names=()):
    """Runs the tests with LABEL, or only those in NAMES. Returns four values: {name: (status, output)} of all tests,
    {name: reason} of the failed tests, the exit status of ctest, and the output of ctest. For the plain label,
    EBB_PLAIN_ONLY restricts suites to their plain tests."""
    with tempfile.TemporaryDirectory() as scratch:
        junit = os.path.join(scratch, "junit.xml")
        # ctest -j counts in thirds of a core (cmake/test_costs.txt). Without the two size options, ctest truncates the
        # output of tests.
        command = ["ctest", "--test-dir", folder, "-j", str(3 * jobs), "--output-junit", junit,
                   "--test-output-size-passed", "67108864", "--test-output-size-failed", "67108864"]
        command += ["-L", f"^{label}$"] if label else []
        command += ["-R", "^(" + "|".join(map(re.escape, names)) + ")$"] if names else []
        env = dict(os.environ, EBB_PLAIN_ONLY="1") if label == "plain" else None
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace", env=env)
        entries = None
        if os.path.exists(junit):
            entries = {name: (status, output) for name, status, output in read_junit(junit)}
        return entries, failure_reasons(result.stdout), result.returncode, result.stdout


def retry_alone(folder, label, entries, failed):
    """Reruns failed tests one at a time, and replaces the entries of those that now pass. Their first failure has
    already been printed. A test that fails only under load indicates a defect, but must not block an unrelated
    change."""
    for name in failed:
        again = ctest(folder, 1, label, [name])[0] or {}
        if name in again and count_entry(*again[name]).failed == 0:
            entries[name] = again[name]
            say(f"unsteady: {name} failed beside other tests and passed alone; please fix it")


def run_ctest(folder, jobs, label):
    entries, reasons, status, output = ctest(folder, jobs, label)
    if entries is None:
        print(f"{output}\nctest wrote no results for {folder}", flush=True)
        return Counts(failed=1)
    failed = [name for name in entries if count_entry(*entries[name]).failed]
    for name in failed:
        show_failure(name, entries[name][1], reasons.get(name, "Failed"))
    if len(failed) <= RETRIED_MOST:
        retry_alone(folder, label, entries, failed)
    counts = Counts()
    for entry in entries.values():
        counts.add(count_entry(*entry))
    if status != 0 and not failed:
        print(f"ctest failed in {folder} with status {status}", flush=True)
        counts.failed = 1
    if counts.total() == 0:
        print(f"no test ran in {folder}", flush=True)
        counts.failed = 1
    return counts


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--werror", default="OFF", choices=("ON", "OFF"), help="for the gcc build")
    parser.add_argument("--count", metavar="JUNIT", help="only count this file of ctest's results")
    return parser.parse_args()


def has_fuzzer():
    """Returns whether clang's runtime library with libFuzzer is installed."""
    with tempfile.TemporaryDirectory() as scratch:
        source = "int LLVMFuzzerTestOneInput(const char *data, long size) { return data && size ? 0 : 0; }"
        command = ["clang", "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", f"{scratch}/probe"]
        return subprocess.run(command, input=source, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0


def trees_of(arguments):
    main_tree = arguments.build
    tests = ["-DEBB_TESTS=ON", f"-DEBB_VENV={os.path.abspath(main_tree)}/venv"]
    can_fuzz = has_fuzzer()
    if not can_fuzz:
        say("clang has no libFuzzer (libclang-rt): the fuzz corpora are only replayed, in the sanitized tree")
    fuzz, no_fuzz = "-DEBB_FUZZ=ON", "-DEBB_FUZZ=OFF"
    return [
        Tree("gcc", main_tree, ["ebb", "ebb_heap_preload", "ebb_printed", "plain_tests", "bench"],
             [*tests, f"-DEBB_WERROR={arguments.werror}"], "plain"),
        Tree("gcc, address and undefined-behaviour sanitizers", f"{main_tree}/asan", ["all"],
             [*tests, "-DEBB_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug", f"-DEBB_WERROR={arguments.werror}",
              no_fuzz if can_fuzz else fuzz]),
        Tree("clang, fuzz targets" if can_fuzz else "clang, build only", f"{main_tree}/clang",
             ["fuzz"] if can_fuzz else ["ebb"],
             [*tests, "-DEBB_WERROR=ON", "-DCMAKE_C_COMPILER=clang", fuzz if can_fuzz else no_fuzz],
             "fuzz" if can_fuzz else "none"),
    ]


def has_built(tree, outcome):
    print(outcome.output, end="", flush=True)
    if not outcome.ok:
        print(f"{tree.folder} did not build", flush=True)
    elif tree.label == "none":
        say(f"{tree.title}: built in {outcome.seconds:.0f} s")
    return outcome.ok


def test_tree(tree, outcome, jobs):
    if tree.label == "none":
        return Counts()
    say(f"{tree.title}: testing")
    start = time.monotonic()
    counts = run_ctest(tree.folder, jobs, tree.label)
    say(f"{tree.title}: {counts.line()} (built in {outcome.seconds:.0f} s, "
        f"tested in {time.monotonic() - start:.0f} s)")
    return counts


def run_all(arguments, beside):
    """Builds and tests all trees. BESIDE is an executor that builds the next trees while the first tree is tested."""
    jobs, total = arguments.jobs, Counts()
    first, *others = trees_of(arguments)
    say(f"{first.title}: building {first.folder}")
    outcome = build_first(first, jobs)
    if not has_built(first, outcome):
        print(Counts(failed=1).line())
        return False
    later = [beside.submit(build, tree, jobs) for tree in others]

    total.add(test_tree(first, outcome, jobs))
    for tree, built in zip(others, later):
        say(f"{tree.title}: building {tree.folder}")
        if not has_built(tree, built.result()):
            total.add(Counts(failed=1))
            break  # The other trees would fail for the same reason.
        total.add(test_tree(tree, built.result(), jobs))
    print(total.line(), flush=True)
    return total.failed == 0 and total.total() > 0


def main():
    arguments = parse_arguments()
    if arguments.count:
        counts = count_junit(arguments.count, show_failure)
        print(counts.line())
        return 1 if counts.failed or counts.total() == 0 else 0

    os.chdir(ROOT)
    beside = ThreadPoolExecutor(max_workers=1, initializer=yield_to_others)
    try:
        return 0 if run_all(arguments, beside) else 1
    finally:
        beside.shutdown(cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
