#!/usr/bin/env python3
"""Runs the unit tests of other targets, compiled with zig like the wheels: aarch64 under qemu's user
emulation, and musl, linked statically, which runs on this machine.

    scripts/test_targets.py [--build FOLDER] [--target aarch64|musl]… [--only REGEX]

Tests that cannot pass under the emulator are listed below. The heap profiler requires glibc, so the musl
build has neither the library nor its tests.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys

import wheels

TARGETS = {"aarch64": "aarch64-linux-gnu.2.17", "musl": "x86_64-linux-musl"}
LIMIT_S = 120
# These tests start programs of the target, which the kernel cannot execute without binfmt.
LEFT_OUT = r"^server_(jobs|http)\.|^options\.test_run_options"
# /proc shows the emulator's signal handlers, masks and name instead of the program's. It has not been examined
# whether each of these tests fails for this reason alone. On a real aarch64 machine all of them must pass.
EMULATED = {
    "process_without_handler_is_reported_and_not_signalled",
    "save_mark_of_a_signalled_process_completes_the_request",
    "running_checkpoint_command_is_not_started_again",
    "reflex_thread_is_named_and_blocks_signals",
    "daemon_ignoring_sigterm_is_killed",
    "process_group_is_signalled_after_its_leader_was_reaped",
    "sentinel_ends_processes_of_a_killed_supervisor",
}


def say(text: str) -> None:
    print(f"test-targets: {text}", flush=True)


def build_cmocka(target: wheels.Target) -> None:
    done = target.prefix / "cmocka.done"
    if done.exists():
        return
    target.source, target.log = target.folder / "cmocka", target.folder / "cmocka.log"
    target.archive.unpack("cmocka", target.source)
    target.do("cmake", "-S", ".", "-B", "build", "-G", "Ninja",
              f"-DCMAKE_TOOLCHAIN_FILE={target.toolchain}", "-DCMAKE_BUILD_TYPE=Release",
              f"-DCMAKE_INSTALL_PREFIX={target.prefix}", "-DCMAKE_INSTALL_LIBDIR=lib",
              "-DBUILD_SHARED_LIBS=OFF", "-DWITH_EXAMPLES=OFF", "-DUNIT_TESTING=OFF")
    target.do("cmake", "--build", "build")
    target.do("cmake", "--install", "build")
    done.touch()


def emulator(target: wheels.Target) -> list[str]:
    """The command that runs a program of the target; nothing if this machine can."""
    if target.arch == os.uname().machine:
        return []
    sysroot = target.folder / "sysroot"
    for name in ("libc6", "libgcc-s1"):
        target.archive.package(name, target.arch, sysroot)
    return [f"qemu-{target.arch}-static", "-L", str(sysroot)]


def chosen_tests(only: str, target: wheels.Target) -> list[tuple[str, str]]:
    """Folders and names of the test programs to build and run."""
    left_out = LEFT_OUT if target.arch != os.uname().machine else "^heap\\." if "musl" in target.name else "$^"
    found = [(path.parent.name, path.stem) for path in sorted((wheels.ROOT / "tests/unit").glob("*/test_*.c"))]
    return [(folder, name) for folder, name in found
            if re.search(only, f"{folder}.{name}") and not re.search(left_out, f"{folder}.{name}")]


def run_tests(tree: pathlib.Path, run_by: list[str], built: list[tuple[str, str]]) -> list[str]:
    """The names of the programs that failed."""
    failed = []
    env = {**os.environ, "EBB_BINARY": str(tree / "ebb"), "EBB_BUILD_DIR": str(tree), "EBB_SANITIZED": "0"}
    emulated = EMULATED if run_by else set()
    programs = [tree / "tests" / folder / name for folder, name in built]
    for program in programs:
        name = f"{program.parent.name}.{program.name}"
        with (tree / f"{name}.log").open("wb") as log:
            try:
                status = subprocess.run([*run_by, program], cwd=wheels.ROOT, env=env, stdout=log,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        timeout=LIMIT_S, check=False).returncode
            except subprocess.TimeoutExpired:
                status = -1
        if status:
            text = (tree / f"{name}.log").read_text(errors="replace")
            cases = set(re.findall(r"\[  FAILED  \] (\w+)$", text, re.M))
            if not cases or cases - emulated:
                failed.append(f"{name}: {', '.join(sorted(cases - emulated)) or f'status {status}'}")
            else:
                say(f"  {name}: not shown under the emulator: {', '.join(sorted(cases))}")
    say(f"{len(programs) - len(failed)} of {len(programs)} programs pass")
    return failed


def test_target(name: str, release: pathlib.Path, options: argparse.Namespace) -> list[str]:
    arch = name.partition("-")[0]
    tools = wheels.Tools(release / "tools")
    archive = wheels.Archive(release / "sources", ["x86_64", "aarch64"])
    target = wheels.Target(name, arch, release / name, tools, archive, options.jobs)
    target.libraries()
    build_cmocka(target)
    say(f"building the unit tests for {name}")
    tree = target.folder / "tests"
    built = chosen_tests(options.only, target)
    program = [] if options.only else ["ebb"]
    target.program(tree, *program, *(f"{folder}_{test}" for folder, test in built),
                   options=("-DEBB_TESTS=ON", "-DEBB_WEB=OFF"))
    run_by = emulator(target)
    if program:
        say(" ".join(wheels.output([*run_by, tree / "ebb", "version"]).split()[:6]))
    return run_tests(tree, run_by, built)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the unit tests of other targets.")
    parser.add_argument("--build", type=pathlib.Path, default=wheels.ROOT / "build")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), dest="targets")
    parser.add_argument("--only", default="", metavar="REGEX", help="of FOLDER.test_NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    release = options.build.resolve() / "release"
    release.mkdir(parents=True, exist_ok=True)
    failed = []
    try:
        for name in options.targets or TARGETS:
            failed += test_target(TARGETS[name], release, options)
    except wheels.Failure as failure:
        print(f"test-targets: {failure}", file=sys.stderr)
        return 1
    for text in failed:
        say(f"  failed: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
