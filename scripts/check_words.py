#!/usr/bin/env python3
"""Finds habits of wording that readers stumble over, in comments, strings, test names and documents.

    scripts/check_words.py            print every place, and fail if there is one
    scripts/check_words.py --counts   print how many there are in each folder, and never fail

CONTRIBUTING.md ("Words") has the reasons. Subjects of the last commits may have at most 72 characters.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

from prose import all_passages

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACES = ["src", "python", "web", "tests", "zoo", "scripts", "fuzz", "bench", "examples", "cmake", "contrib", "docs",
          "README.md", "CONTRIBUTING.md", "CMakeLists.txt", "Makefile", ":!zoo/recordings", ":!tests/data",
          ":!tests/proc-fixtures", ":!fuzz/corpus", ":!scripts/check_words.py", ":!*package-lock.json"]
UNITS = r"(?:(?<![A-Za-z])(?-i:[KMGTP]?i?B|[KMGT])|bytes|%[-+.\d]*l*[a-z]|\}|\d|pages|points|tokens|percent|%%?)"
HABITS = [
    (r"\b(?:told|tell(?:s|ing)?)\b(?! (?:whether|if|(?:\w+ ){0,4}?(?:apart|from))\b)", "report, send, log, publish or print"),
    (r"\bhear(?:s|d|ing)?\b|\bunsa(?:y|ys|id)\b", "receive, read or withdraw"),
    (r"\b(?:is|are|was|were|be) said\b", "is reported, printed or logged"),
    (r"\bto be had\b|\b(?:can|could)(?:not)? be had\b", "is available, exists or is installed"),
    (r"\bwithout it\b", "name the thing, or write (default: X)"),
    (r"\b(?:is|are|was|were) not there\b|\b(?:is|are|was|were) there (?:yet|already)\b", "is missing, does not exist, is not installed"),
    (r"\b(?:come|comes|came) to be\b", "happen, become or exist"),
    (r"\bhead-room\b", "headroom"),
    (r"(?<!there )\b(?:is|are|was|were) no (?!longer|more|less|fewer|later|earlier|larger|smaller|\w+er than)|(?-i:\bis none\b)(?<!there is none)",
     "is not a, is invalid, is missing or has no"),
    (r"\bwho(?:m|se)?ever\b", "name who"),
    (UNITS + r" an? (?:step|minute|second|hour|day|epoch)\b", "a rate is written /step or /min"),
    (r"\b(?:given?|gives|giving|gave) (?:\w+ ){0,2}?back\b", "free, release or return"),
    (r"\bculprits?\b|\bjur(?:y|ies|ors?)\b|\bleavings\b|\blow tide\b", "call site, judge, leftovers, baseline"),
    (r"\b(?:pass|passes) over the data\b|\bfirst pass\b", "epoch"),
    (r"\bnone or a wrong one\b", "missing or invalid"),
    (r"\bnext time ask\b|\broom left\b|\blimit that binds\b", "suggested memory request, headroom, effective limit"),
    (r"\bhow sure\b|%% sure\b|% sure\b", "confidence, % confident"),
    (r"\btakes? turns\b|\bspeakers?\b|\bpurses?\b|\bdesks?\b", "replaced worker, step source, token bucket, buffer"),
    (r"^(?:What|Who|Whom|Whose) (?!\w+(?: \w+)*\?)[^?]*$", "begin with a noun, not with a relative clause"),
]
PATTERNS = [(re.compile(pattern, re.I if not pattern.startswith("^") else 0), advice) for pattern, advice in HABITS]
ALLOWED = [  # Each entry has a path, a phrase and a reason.
    (r"^(?:zoo|bench/peers)/", "culprit", "a key of truth.json and a column of zoo/run.py"),
]
SUBJECT_LENGTH = 72
SUBJECTS = 20


def is_allowed(passage, phrase):
    return any(re.search(path, passage.path) and re.search(text, phrase) for path, text, _ in ALLOWED)


def findings():
    for passage in all_passages(ROOT, PLACES):
        if " " not in passage.text:  # A passage without a space is a key or a name.
            continue
        for pattern, advice in PATTERNS:
            if pattern.pattern.startswith("^") and passage.kind != "comment":
                continue
            for match in pattern.finditer(passage.text):
                context = passage.text[max(0, match.start() - 30):match.end() + 30]
                if not is_allowed(passage, context):
                    yield passage.path, passage.line_at(match.start()), match.group()[:60], advice


def long_subjects():
    """Checks the subjects of the last commits. A shallow clone may contain fewer commits."""
    log = subprocess.run(["git", "-C", str(ROOT), "log", f"-{SUBJECTS}", "--no-merges", "--format=%h %s"],
                         stdout=subprocess.PIPE, text=True)
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > SUBJECT_LENGTH:
            yield f"commit {commit}: the subject has {len(subject)} characters, at most {SUBJECT_LENGTH}: {subject}"


def folder_of(path):
    parts = path.split("/")
    deep = {"src": 2, "tests": 3 if parts[:2] == ["tests", "unit"] else 2}.get(parts[0], 1)
    return "/".join(parts[:min(deep, max(1, len(parts) - 1))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", action="store_true", help="only count, by folder")
    parser.add_argument("paths", nargs="*", help="only places below these")
    arguments = parser.parse_args()
    found = [f for f in findings() if not arguments.paths or f[0].startswith(tuple(arguments.paths))]
    if arguments.counts:
        counts = collections.Counter(folder_of(path) for path, *_ in found)
        for folder, count in sorted(counts.items()):
            print(f"{count:6} {folder}")
        return 0
    for path, line, phrase, advice in found:
        print(f'{path}:{line}: "{phrase}": {advice}')
    subjects = list(long_subjects())
    print(*subjects, sep="\n", end="\n" if subjects else "")
    return 1 if found or subjects else 0


if __name__ == "__main__":
    sys.exit(main())
