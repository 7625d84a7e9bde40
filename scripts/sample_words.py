#!/usr/bin/env python3
"""Prints 60 comments, 60 strings that users can see and 40 test names at random, for someone to read.

    scripts/sample_words.py SEED

The same seed on the same tree prints the same sample. A reader marks each entry that had to be read twice.
"""
import argparse
import pathlib
import random
import re

from prose import all_passages

ROOT = pathlib.Path(__file__).resolve().parents[1]
COUNTS = {"comment": 60, "string": 60, "test": 40}
PLACES = {
    "comment": ["src", "python", "web", "tests", "zoo/*.py", "scripts", "fuzz", "bench", "examples", "cmake",
                ":!tests/data", ":!tests/proc-fixtures", ":!fuzz/corpus"],
    "string": ["src/*.c", "python/ebb", "web/src", ":!src/heap"],
    "test": ["tests"],
}
WORDS = 3  # Shorter strings are keys, formats or names.
FORMATS = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]|\\.|\$\{[^}]*\}")
CODE = re.compile(r"CREATE TABLE|SELECT |INSERT |UPDATE |DELETE |PRAGMA|COMP_WORDS|^#[a-z]+ |[{};]\s*$")  # SQL, shell, CSS


def is_prose(passage, kind):
    if passage.kind != kind:
        return False
    if kind == "test":
        return True
    words = re.findall(r"(?:^|(?<=[\s(]))[A-Za-z][a-z']*(?=[\s,.:;?!)]|$)", FORMATS.sub(" ", passage.text))
    is_code = kind == "string" and CODE.search(passage.text)
    return len(words) >= WORDS and not is_code


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    source = random.Random(parser.parse_args().seed)
    for kind, count in COUNTS.items():
        passages = [p for p in all_passages(ROOT, PLACES[kind]) if is_prose(p, kind)]
        print(f"== {kind}s: {count} of {len(passages)}")
        for passage in source.sample(passages, min(count, len(passages))):
            print(f"{passage.path}:{passage.line_at(0)}: {passage.text}")


if __name__ == "__main__":
    main()
