#!/usr/bin/env python3
"""Runs a program that was built with ThreadSanitizer; exits with 77 if its runtime cannot start.

The runtime needs parts of the address space that the kernel's randomisation may already have
used. It starts if randomisation is disabled, but a container may forbid disabling it.

    scripts/run_tsan.py PROGRAM [ARGUMENT...]
"""
import os
import shutil
import subprocess
import sys

SKIPPED = 77
CANNOT_START = ("FATAL: ThreadSanitizer: unexpected memory mapping",
                "FATAL: ThreadSanitizer: failed to",
                "ThreadSanitizer: CHECK failed: sanitizer_")


def run(command):
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=0:exitcode=66")
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", env=environment)
    has_started = "[==========]" in result.stdout
    could_start = has_started or not any(text in result.stdout for text in CANNOT_START)
    return could_start, result


def main():
    command = sys.argv[1:]
    if not command:
        sys.exit(__doc__)
    could_start, result = run(command)
    setarch = shutil.which("setarch")
    if not could_start and setarch:
        again, other = run([setarch, "-R", *command])
        if again and not other.stdout.startswith("setarch:"):
            could_start, result = True, other
    if not could_start:
        print(f"ThreadSanitizer cannot start here: {result.stdout.strip().splitlines()[0]}")
        return SKIPPED
    sys.stdout.write(result.stdout)
    return result.returncode if result.returncode >= 0 else 128 - result.returncode


if __name__ == "__main__":
    sys.exit(main())
