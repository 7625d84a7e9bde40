#!/usr/bin/env python3
"""Checks a program's section ebb_reflex: code in the section must not refer to anything outside the section,
because only the section is locked in memory.

    scripts/check_reflex.py PROGRAM     exits with 0 if correct, 1 if not, 77 if objdump is missing
"""
import re
import shutil
import subprocess
import sys

SECTION = "ebb_reflex"


def objdump(*arguments):
    return subprocess.run(["objdump", *arguments], check=True, capture_output=True, text=True).stdout


def bounds(program):
    for line in objdump("-h", program).splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == SECTION:
            start = int(fields[3], 16)
            return start, start + int(fields[2], 16)
    return None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if shutil.which("objdump") is None:
        print("check_reflex: there is no objdump")
        return 77
    found = bounds(sys.argv[1])
    if found is None:
        print(f"check_reflex: {sys.argv[1]} has no section {SECTION}")
        return 1
    start, stop = found
    instructions = outside = 0
    for line in objdump("-d", "--no-show-raw-insn", "-j", SECTION, sys.argv[1]).splitlines():
        if not re.match(r"\s+[0-9a-f]+:\t", line):
            continue
        instructions += 1
        # objdump shows every address in an instruction as "1f40 <symbol+0x10>".
        named = [int(a, 16) for a in re.findall(r"\b(?:0x)?([0-9a-f]+) <", line)]
        if any(not start <= a < stop for a in named) or re.search(r"\b(call|jmp)\s+\*", line):
            print(f"check_reflex: leaves the section: {line.strip()}")
            outside += 1
    if instructions == 0:
        print(f"check_reflex: section {SECTION} holds no instructions")
        return 1
    print(f"check_reflex: {instructions} instructions, {outside} of which lead outside")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
