#!/usr/bin/env python3
"""Checks Python files: syntax of the oldest supported Python, width, and pyflakes.

    scripts/check_python.py FILE...
    scripts/check_python.py <FILES     (FILES has paths, each followed by a NUL)

Use standard input while tests are running: some tests would mistake a Python process with lightning.py on its command
line for a training job.

Prints FILE:LINE for each problem and exits 1 if there is one. Problems that pyflakes finds on a line
with `# noqa` are ignored. If pyflakes is not installed, its checks are skipped with a message.
"""

import ast
import io
import re
import sys

OLDEST = (3, 9)
WIDTH = 100


def problems_of(path, text):
    """Yields (line, problem) for one file."""
    try:
        ast.parse(text, path, feature_version=OLDEST)
    except SyntaxError as error:
        yield error.lineno or 1, f"not Python {OLDEST[0]}.{OLDEST[1]}: {error.msg}"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH:
            yield number, f"{len(line)} columns, more than {WIDTH}"


def pyflakes(texts):
    """Yields (path, line, problem) for all files."""
    try:
        from pyflakes import api, reporter
    except ImportError:
        print("pyflakes is not installed (scripts/setup.sh lint): its checks are left out")
        return
    for path, text in texts.items():
        said = io.StringIO()
        count = api.check(text, path, reporter.Reporter(said, said))
        found = re.findall(r"^(.+?):(\d+):(?:\d+:?)? (.*)$", said.getvalue(), re.MULTILINE)
        if count and not found:
            yield path, 1, said.getvalue().strip()
        for _, number, what in found:
            lines = text.splitlines()
            if int(number) > len(lines) or "# noqa" not in lines[int(number) - 1]:
                yield path, int(number), what


def main():
    texts = {}
    for path in sys.argv[1:] or filter(None, sys.stdin.read().split("\0")):
        with open(path, encoding="utf-8", newline="") as file:
            texts[path] = file.read()
    found = [(path, *problem) for path, text in texts.items() for problem in problems_of(path, text)]
    found.extend(pyflakes(texts))
    for path, number, what in sorted(found):
        print(f"{path}:{number}: {what}")
    return 1 if found or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
