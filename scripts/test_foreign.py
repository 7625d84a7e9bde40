#!/usr/bin/env python3
"""Runs test suites of other projects with and without the heap profiler, and compares test by test.

    scripts/test_foreign.py [--build DIR] [--only SUITE]

jansson and libuv come as source packages of Debian or Ubuntu, numpy with its tests from the index that pip uses; all
are unpacked into DIR/foreign. Every suite runs under `ebb run`, once with --no-heap and once with the profiler at its
finest interval. If outcomes differ, the suite runs up to two more times with and without the profiler, and only tests
that differ again are reported.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

ENOUGH_S = 900
NUMPY = ("multiarray numeric nditer indexing dtype regression mem_policy memmap ufunc shape_base "
         "scalarmath records strings multithreading").split()
PACKAGES = ["numpy", "pytest", "hypothesis"]
WAYS = {"without": ["--no-heap"], "with": ["--heap-interval", "4K"]}


def call(command, **options):
    """Runs a command; shows its output only if it fails."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, timeout=ENOUGH_S,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"foreign: {' '.join(map(str, command))}: status {done.returncode}\n"
                 + "\n".join(done.stdout.splitlines()[-15:]))
    return done.stdout


def archives():
    """Returns apt's deb-src lines for the package archives that the system uses."""
    listed = call(["apt-get", "indextargets", "--format",
                   "$(ORIGIN) $(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"])
    found = {tuple(line.split()[1:]) for line in listed.splitlines()
             if line.split()[0] in ("Debian", "Ubuntu") and len(line.split()) == 4}
    if not found:
        sys.exit("foreign: apt-get has no package lists of Debian or Ubuntu; run apt-get update first")
    return "".join(f"deb-src {uri} {name} {component}\n" for uri, name, component in sorted(found))


def apt(folder, *arguments, **options):
    """Runs apt-get with its own package lists, so that it needs no privileges and leaves the system unchanged."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(archives())
    settings = {"Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-",
                "Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache"}
    flags = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return call(["apt-get", "-q", *flags, *arguments], **options)


def source(folder, package):
    """Downloads and unpacks the source of a package; returns its folder."""
    there = folder / package
    if not there.exists():
        apt(folder / "apt", "update")
        apt(folder / "apt", "source", "--download-only", package, cwd=folder)
        archive = max(folder.glob(f"{package}_*.orig.tar.*"), key=lambda path: len(path.suffixes))
        fresh = folder / f"{package}.new"
        fresh.mkdir()
        call(["tar", "-xf", archive, "-C", fresh, "--strip-components=1"])
        fresh.rename(there)
    return there


def built(folder, package, *flags):
    there = source(folder, package)
    call(["cmake", "-S", there, "-B", there / "b", "-DCMAKE_BUILD_TYPE=Debug", *flags])
    call(["cmake", "--build", there / "b", "-j", os.cpu_count()])
    return there / "b"


def outcome(case):
    words = {child.tag for child in case} & {"failure", "error", "skipped"}
    return words.pop() if words else "passed"


def junit(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    return {f"{case.get('classname')}::{case.get('name')}": outcome(case)
            for case in root.iter("testcase")}


class Jansson:
    name = "jansson"

    def __init__(self, folder):
        self.folder = built(folder, "jansson", "-DJANSSON_BUILD_DOCS=OFF")

    def run(self, wrapped, out, _):
        wrapped(["ctest", "--test-dir", self.folder, "--output-junit", out])
        return junit(out)


class Libuv:
    """The tests print TAP: "ok 7 - fork_signal_to_child"."""
    name = "libuv"

    def __init__(self, folder):
        build = built(folder, "libuv1", "-DLIBUV_BUILD_TESTS=ON")
        self.program = build / "uv_run_tests"

    def run(self, wrapped, _, only):
        lines = []
        for test in only or [None]:
            lines += wrapped([self.program, *([test, test] if test else [])]).splitlines()
        found = {}
        for line in lines:
            words = line.split()
            if words[:1] == ["ok"] and len(words) > 3:
                found[words[3]] = "skipped" if "SKIP" in words[4:] else "passed"
            elif words[:2] == ["not", "ok"] and len(words) > 4:
                found[words[4]] = "failure"
        return found


class Numpy:
    name = "numpy"

    def __init__(self, folder):
        venv = folder / "venv"
        self.python = venv / "bin" / "python"
        if not (venv / "complete").exists():
            call([sys.executable, "-m", "venv", venv])
            call([self.python, "-m", "pip", "-q", "install", *PACKAGES])
            (venv / "complete").write_text("")

    def run(self, wrapped, out, _):
        modules = [f"numpy._core.tests.test_{name}" for name in NUMPY]
        wrapped([self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}",
                 "-m", "not slow", "--pyargs", *modules])
        return junit(out)


def tables(run):
    """Returns the number of profiled processes of a run."""
    heap = json.loads((run / "run.json").read_text())["heap"]
    return len(heap.get("processes", [])) + heap.get("without_file", 0)


def run_suite(suite, ebb, folder, way, only=None):
    """Returns the result of each test, the seconds that the suite took and the number of profiled processes."""
    stem = folder / f"{suite.name}-{way}-{time.time_ns()}"
    runs = []

    def wrapped(command):
        runs.append(stem.with_name(f"{stem.name}-{len(runs)}"))
        whole = [ebb, "run", "-q", "--no-shim", "--no-guard", "--run-dir", runs[-1], *WAYS[way],
                 "--", *command]
        return subprocess.run(list(map(str, whole)), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                              timeout=ENOUGH_S, cwd=folder,
                              env={**os.environ, "UV_RUN_AS_ROOT": "1"}).stdout
    begin = time.monotonic()
    found = suite.run(wrapped, stem.with_name(stem.name + ".xml"), only)
    return found, time.monotonic() - begin, sum(map(tables, runs))


def differing(one, other):
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def counted(found):
    words = ("passed", "skipped", "failure", "error")
    return ", ".join(f"{list(found.values()).count(word)} {word}" for word in words
                     if word in found.values())


def compare(suite, ebb, folder):
    """Returns whether the results are the same with and without the profiler."""
    without, plain_s, none = run_suite(suite, ebb, folder, "without")
    profiled, heap_s, some = run_suite(suite, ebb, folder, "with")
    print(f"{suite.name:8} without: {counted(without)} in {plain_s:.0f} s\n"
          f"{'':8} with:    {counted(profiled)} in {heap_s:.0f} s, {some} processes profiled",
          flush=True)
    for _ in range(2):
        names = differing(without, profiled)
        if not names:
            break
        print(f"{'':8} again, for these differ: {', '.join(names[:10])}", flush=True)
        without.update({n: o for n, o in run_suite(suite, ebb, folder, "without", names)[0].items()
                        if n in names})
        profiled.update({n: o for n, o in run_suite(suite, ebb, folder, "with", names)[0].items()
                         if n in names})
    names = differing(without, profiled)
    for name in names:
        print(f"{'':8} DIFFERS {name}: {without.get(name)} without, {profiled.get(name)} with")
    return not names and len(without) > 100 and none == 0 < some


def main():
    suites = {suite.name: suite for suite in (Jansson, Libuv, Numpy)}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--only", choices=suites)
    options = parser.parse_args()
    folder = options.build.resolve() / "foreign"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [options.only] if options.only else list(suites)
    same = [compare(suites[name](folder), options.build.resolve() / "ebb", folder)
            for name in wanted]
    print("the same results with and without" if all(same) else "NOT the same results")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
