#!/usr/bin/env python3
"""Builds the unit tests for other targets with zig, the compiler of the wheels, and runs them. The tests for aarch64
run under qemu's user emulation. The tests for musl are linked statically, so this machine can run them directly.

    scripts/test_targets.py [--build FOLDER] [--target aarch64|musl]… [--only REGEX]

Tests that cannot pass under the emulator are listed in this file, with the reason. The heap profiler requires glibc, so
the musl build has neither the library nor its tests.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import wheels

TARGETS = {"aarch64": "aarch64-linux-gnu.2.17", "musl": "x86_64-linux-musl"}
LIMIT_S = 600  # in the emulator, some programs take a minute, or longer on a busy machine
# Test programs that cannot finish in the emulator, with the reason. They must pass on a real aarch64 machine.
LEFT_OUT = {
    r"server_jobs\.test_jobs|proc\.test_unique$":
        "they start programs of the target, and the kernel cannot execute these without binfmt",
    r"server_http\.test_children": "posix_spawn under qemu does not report that the program is missing",
    r"proc\.test_unique_kinds": "/proc/PID/maps of other processes shows the mappings of the emulator",
}
HANDLERS = "/proc/PID/status shows the name and signal handlers of the emulator"
SUBREAPER = "qemu refuses PR_SET_CHILD_SUBREAPER"
DESCRIPTORS = "qemu doubles the buffer for descriptors and leaves descriptors open that did not fit"
# Tests that cannot pass in the emulator, with the reason.
EMULATED = {
    "process_without_a_signal_handler_gets_no_checkpoint_signal": HANDLERS,
    "save_mark_completes_a_checkpoint_requested_by_signal": HANDLERS,
    "running_checkpoint_command_is_not_started_again": "the previous test failed and left its process behind",
    "reflex_thread_is_named_and_blocks_signals": "qemu never blocks SIGSEGV",
    "daemon_ignoring_sigterm_is_killed": SUBREAPER,
    "process_group_can_be_signalled_after_its_leader_was_reaped": SUBREAPER,
    "sentinel_ends_processes_of_a_killed_supervisor": SUBREAPER,
    "orphan_stays_in_the_process_tree_with_a_new_parent": SUBREAPER,
    "daemon_stays_in_the_tree_as_a_child_of_the_subreaper": SUBREAPER,
    "descriptors_attached_to_a_mark_are_closed": DESCRIPTORS,
    "invalid_hello_of_a_profiler_leaks_no_descriptor": DESCRIPTORS,
    "extra_descriptors_sent_by_a_profiler_are_closed": DESCRIPTORS,
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
              "-DWITH_STATIC_LIB=ON", "-DWITH_EXAMPLES=OFF")
    target.do("cmake", "--build", "build")
    target.do("cmake", "--install", "build")
    # Shared libraries require musl's dynamic loader, which this machine lacks.
    for shared in target.prefix.glob("lib/libcmocka.so*"):
        shared.unlink()
    (target.prefix / "lib/libcmocka-static.a").rename(target.prefix / "lib/libcmocka.a")
    done.touch()


def chosen_tests(only: str, target: wheels.Target) -> list[tuple[str, str]]:
    """Returns the folder and name of each test program to build and run."""
    left_out = {r"heap\.": "the heap profiler requires glibc"} if "musl" in target.name else {}
    if target.arch != os.uname().machine:
        left_out = LEFT_OUT
    found = [(path.parent.name, path.stem) for path in sorted((wheels.ROOT / "tests/unit").glob("*/test_*.c"))]
    found = [(folder, name) for folder, name in found if re.search(only, f"{folder}.{name}")]
    for pattern, reason in left_out.items():
        dropped = [pair for pair in found if re.match(pattern, ".".join(pair))]
        found = [pair for pair in found if pair not in dropped]
        if dropped:
            say(f"  skipped: {', '.join('.'.join(pair) for pair in dropped)}: {reason}")
    return found


def check_names() -> None:
    """Checks that each name in EMULATED is a test. If a test was renamed, its failures in the emulator would no longer
    be excused."""
    texts = [path.read_text() for path in (wheels.ROOT / "tests/unit").glob("*/test_*.c")]
    for name in EMULATED:
        if not any(f"void {name}(" in text for text in texts):
            raise wheels.Failure(f"EMULATED of scripts/test_targets.py names {name}, which is not a test")


def tools_of(target: wheels.Target) -> str:
    """Returns a PATH with the target's strip and objcopy, which the symbol tests call."""
    folder = target.folder / "binutils"
    folder.mkdir(exist_ok=True)
    for name in ("strip", "objcopy"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(shutil.which(f"{target.arch}-linux-gnu-{name}") or shutil.which(name))
    return f"{folder}:{os.environ['PATH']}"


def adopt_orphans() -> None:
    """Makes orphaned daemons children of this process, because a test in the emulator cannot adopt them itself."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def end_orphans() -> None:
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_tests(tree: pathlib.Path, run_by: list[str], path: str, built: list[tuple[str, str]]) -> list[str]:
    """Returns the names of the failed programs. PATH is the search path for commands."""
    failed = []
    env = {**os.environ, "EBB_BINARY": str(tree / "ebb"), "EBB_BUILD_DIR": str(tree), "EBB_SANITIZED": "0",
           "PATH": path}
    emulated = set(EMULATED) if run_by else set()
    programs = [tree / "tests" / folder / name for folder, name in built]
    if run_by:
        adopt_orphans()
    for program in programs:
        name = f"{program.parent.name}.{program.name}"
        with (tree / f"{name}.log").open("wb") as log:
            try:
                status = subprocess.run([*run_by, program], cwd=wheels.ROOT, env=env, stdout=log,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        timeout=LIMIT_S, check=False).returncode
            except subprocess.TimeoutExpired:
                status = -1
        end_orphans()
        if status:
            text = (tree / f"{name}.log").read_text(errors="replace")
            cases = set(re.findall(r"\[  FAILED  \] (\w+)$", text, re.M))
            if not cases or cases - emulated:
                failed.append(f"{name}: {', '.join(sorted(cases - emulated)) or f'status {status}'}")
            else:
                for case in sorted(cases):
                    say(f"  skipped: {name}: {case}: {EMULATED[case]}")
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
                   # the symbol tests read their own executable
                   options=("-DEBB_TESTS=ON", "-DEBB_WEB=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                            "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--build-id=sha1"))
    run_by = wheels.emulator(target)
    if program:
        say(" ".join(wheels.output([*run_by, tree / "ebb", "version"]).split()[:6]))
    return run_tests(tree, run_by, tools_of(target), built)


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
        check_names()
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
