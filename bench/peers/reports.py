"""Reads the first rows of each tool's own report, and finds out whether the leaking function is among them.

A report is a list of rows (bytes, [(function, file)]); file is None if the tool does not show it. For tools that print
a stack with each row, the whole stack counts; for tools with several reports, the best one counts."""

import ast
import glob
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ROWS = 3
# Lower bound on the size of a row that is accepted as the leak. The programs leak 30 to 130 MB, so a smaller row
# matches only by chance.
LEAST = 10e6
REPORT_S = 240  # Time limit for generating a report from a recording.
SCALENE_UNSURE = 0.95  # Lower bound on the leak probability that scalene must report.


def last_word(function):
    """Some tools leave out the class of a method. A comprehension is treated as part of the function that contains
    it."""
    return re.sub(r"\.<.*", "", function).split(".")[-1]


def is_culprit(frame, truth):
    culprit = truth["culprit"]
    function, file = frame
    for name in (culprit["function"], *culprit.get("made_in", [])):
        if last_word(function) == last_word(name):
            if file is None and "." not in name or file is not None and "zoo/" in file:
                return True
    return False


def row_in(rows, truth):
    """Returns the rank of the function, 1 to 3, or 0 if it is not among the first three rows."""
    for number, (size, frames) in enumerate(rows[:ROWS], 1):
        if size >= LEAST and any(is_culprit(frame, truth) for frame in frames):
            return number
    return 0


def culprit_row(found, truth):
    """Returns the best (lowest) nonzero rank over all reports, or 0 if the function is in none."""
    return min(filter(None, (row_in(rows, truth) for rows in found)), default=0)


def function_at(file, line):
    """Returns the innermost function that contains LINE of a Python file."""
    try:
        with open(os.path.join(ROOT, file), encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError):
        return "?"
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
              and node.lineno <= line <= node.end_lineno]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"


def ask(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=REPORT_S, check=False)
    if done.returncode not in (0, 1, 3):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise ValueError(lines[-1][:100])
    return done.stdout


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def ebb_rows(options, folder):
    rows = json.loads(ask([options.ebb, "heap", f"{folder}/run", "--json", "--top", str(ROWS)]))["rows"]
    places = [(row["where"], row.get("native"), row.get("in_program"), *row.get("callers", [])) for row in rows]
    return [[(row["live"]["bytes"], [(place["function"] or "?", place["file"]) for place in told if place])
             for row, told in zip(rows, places)]]


def memray_rows(options, folder):
    return json.loads(ask([options.python, f"{HERE}/memray_rows.py", f"{folder}/out.bin", str(ROWS)]))


def heaptrack_rows(_, folder):
    path = (glob.glob(f"{folder}/out.zst") + glob.glob(f"{folder}/out.gz"))[0]
    text = ask(["heaptrack_print", "-f", path, "--print-leaks", "1", "--print-allocators", "0",
                "--print-temporary", "0", "--print-peaks", "1", "-n", str(ROWS)])
    return [heaptrack_report(text, words) for words in ("peak memory consumed", "leaked")]


def heaptrack_report(text, words):
    parts = re.split(rf"^([\d.]+)([BKMG]) {words} over [^:\n]*$", text, flags=re.M)[1:]
    factor = {"B": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    return [(float(number) * factor[unit], [(line.strip(), None) for line in section.splitlines()
             if not line.strip().startswith(("in ", "at "))])
            for number, unit, section in zip(parts[::3], parts[1::3], parts[2::3])]


def tracemalloc_rows(_, folder):
    return [[(size, [(function_at(file, line), file)])
             for file, line, size in read_json(f"{folder}/lines.json")]]


def scalene_lines(folder):
    """Returns (peak MB, file, line) for each line in scalene's report."""
    doc = read_json(f"{folder}/scalene.json")
    return [(line["n_peak_mb"], file, line["lineno"]) for file, found in doc["files"].items()
            for line in found["lines"]]


def scalene_rows(_, folder):
    lines = sorted(scalene_lines(folder), reverse=True)[:ROWS]
    return [[(peak * 1e6, [(function_at(file, line), os.path.abspath(file))])
             for peak, file, line in lines]]


def fil_rows(_, folder):
    path = glob.glob(f"{folder}/fil/*/peak-memory.prof")[0]
    stacks = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            stack, _, size = line.rpartition(" ")
            if size.strip().isdigit():
                stacks.append((int(size), stack))
    frame = re.compile(r"(.*):\d+ \((.*)\)")
    top = sorted(stacks, reverse=True)[:ROWS]
    return [[(size, [(found.group(2), found.group(1))
                     for found in map(frame.fullmatch, stack.split(";")) if found])
             for size, stack in top]]


def ebb_verdict(options, folder):
    doc = json.loads(ask([options.ebb, "verdict", f"{folder}/run", "--json"]))
    return doc.get("tree", doc)["verdict"]


def ebb_right(options, folder, truth):
    """Returns the tool's verdict, and whether it is right: "yes", "NO", or "open" if the tool is undecided."""
    word = ebb_verdict(options, folder)
    if word in truth["words"]:
        return "yes", word
    return ("open", word) if word in ("filling", "undecided") else ("NO", word)


def scalene_right(_, folder, truth):
    doc = read_json(f"{folder}/scalene.json")
    leaks = [leak for found in doc["files"].values() for leak in found.get("leaks", {}).values()]
    is_leak = any(leak.get("likelihood", 0) >= SCALENE_UNSURE for leak in leaks)
    return "yes" if is_leak == truth["leak"] else "NO", "leak" if is_leak else "no leak"


def script_right(_, folder, truth):
    try:
        said = read_json(f"{folder}/said.json")
    except OSError:
        return "open", "too few readings"
    return ("yes" if said["leak"] == truth["leak"] else "NO",
            f"{'leak' if said['leak'] else 'no leak'}, {said['grown_mb']:+.0f} MB")
