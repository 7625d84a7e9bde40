#!/usr/bin/env python3
"""Checks the includes of every file under src against scripts/include_table.txt.

    scripts/check_includes.py [--table FILE] [ROOT]

Prints FILE:LINE for each violation, and exits with 1 if there is one.
"""

import argparse
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
GENERATED = {"commit.h", "version.h"}  # The build writes these headers, and every folder may include them.


def read_table(path):
    table = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#", 1)[0].strip()
            if line:
                folder, _, allowed = line.partition(":")
                table[folder.strip()] = set(allowed.split())
    return table


def source_files(source):
    for folder, subfolders, names in os.walk(source):
        subfolders.sort()
        for name in sorted(names):
            if name.endswith((".c", ".h", ".inc", ".S")):
                yield os.path.join(folder, name)


def folder_of(path, table):
    """Returns the longest folder in the table that contains PATH; both are relative to src."""
    folder = os.path.dirname(path)
    while folder not in table and "/" in folder:
        folder = os.path.dirname(folder)
    return folder


def violation(path, folder, quote, target, source, table):
    """Describes the error in this include, or returns None if it is allowed."""
    if quote == "<":
        # A header in angle brackets is a system header, unless it exists under src.
        if os.path.exists(os.path.join(source, target)):
            return f"<{target}> is ours: include it with quotes"
        return None
    if target in GENERATED:
        return None
    if ".." in target.split("/"):
        return f'"{target}" leaves its folder: write it from src'
    head = folder_of(target, table)
    if "/" not in target:
        if os.path.exists(os.path.join(os.path.dirname(path), target)):
            return None
        return f'"{target}" is not in {folder}: write it as "FOLDER/{target}"'
    if head == folder:
        return None
    if head not in table:
        return f'"{target}": no folder {head} in the include table'
    allowed = table[folder]
    if "*" in allowed or head in allowed or target in allowed:
        return None
    return f'{folder} may not include "{target}" (it may: {" ".join(sorted(allowed)) or "nothing of ours"})'


def check(root, table):
    source = os.path.join(root, "src")
    problems = []
    files = 0
    for path in source_files(source):
        files += 1
        shown = os.path.relpath(path, root)
        folder = folder_of(os.path.relpath(path, source), table)
        if folder not in table:
            problems.append(f"{shown}:1: no folder {folder} in the include table")
            continue
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if match:
                    why = violation(path, folder, match.group(1), match.group(2), source, table)
                    if why:
                        problems.append(f"{shown}:{number}: {why}")
    return files, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", default=os.path.join(HERE, "include_table.txt"))
    parser.add_argument("root", nargs="?", default=os.path.dirname(HERE))
    arguments = parser.parse_args()
    files, problems = check(arguments.root, read_table(arguments.table))
    for problem in problems:
        print(problem)
    if files == 0:
        print(f"{arguments.root}: no sources under src")
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
