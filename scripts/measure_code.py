#!/usr/bin/env python3
"""Prints counts about the code in src/, in the form of research/2026-11-17-code-size.md.

The counts are taken from the text: fields are names declared directly in a struct, and prototypes are functions
declared in a header.
"""
import argparse
import collections
import pathlib
import re
import sys

BARS = {"lines": 78000, "json": 60, "prototypes": 30, "fields": 40, "names": 30}
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "defined"}


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    return re.sub(r"^[ \t]*#(\\\n|.)*$", "", text, flags=re.M)


def static_names(text):
    """Returns the names of the static functions defined in a source file."""
    pattern = r"^static\s+(?:inline\s+)?[\w\s\*]+?\b(\w+)\s*\([^;{]*?\)\s*\{"
    return {name for name in re.findall(pattern, text, flags=re.M) if name not in KEYWORDS}


def prototypes(text):
    depth_zero = re.sub(r"\{[^{}]*\}", "{}", text)
    while re.search(r"\{[^{}]+\}", depth_zero):
        depth_zero = re.sub(r"\{[^{}]+\}", "{}", depth_zero)
    found = re.findall(r"^[A-Za-z_][\w\s\*]*?\b(\w+)\s*\([^;{}]*\)[^;{}]*;", depth_zero, flags=re.M)
    return [name for name in found if name not in KEYWORDS and "typedef" not in name]


def body_end(text, start):
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return len(text)


def fields(body):
    """Returns the number of names declared directly in a struct; the fields of nested structs are not included."""
    flat, depth = "", 0
    for char in body:
        depth += char == "{"
        if depth == 0:
            flat += char
        depth -= char == "}"
    count = 0
    for declaration in flat.split(";"):
        declaration = re.sub(r"\([^()]*\)", "", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", declaration))
        if declaration.strip():
            count += declaration.count(",") + 1
    return count


def structs(text):
    for match in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
        end = body_end(text, match.end() - 1)
        yield match.group(1), fields(text[match.end():end])


def measure(source):
    files = sorted(path for path in source.rglob("*") if path.suffix in (".c", ".h"))
    texts = {path: path.read_text() for path in files}
    plain = {path: without_comments(text) for path, text in texts.items()}
    where = collections.defaultdict(set)
    for path in files:
        if path.suffix == ".c":
            for name in static_names(plain[path]):
                where[name].add(path)
    headers = [(len(prototypes(plain[path])), path) for path in files if path.suffix == ".h"]
    members = [(count, name, path) for path in files for name, count in structs(plain[path])]
    common = sorted((len(paths), name) for name, paths in where.items() if len(paths) >= 3)
    return {
        "lines": sum(text.count("\n") for text in texts.values()),
        "json": sum(plain[path].count("json_object_get") for path in files if "present" in path.parts),
        "prototypes": max(headers)[0],
        "fields": max(members)[0],
        "names": len(common),
        "largest header": sorted(headers, reverse=True)[:3],
        "largest struct": sorted(members, reverse=True, key=lambda m: m[0])[:3],
        "common names": common[::-1],
        "folders": collections.Counter({
            folder.name: sum(texts[path].count("\n") for path in files if folder in path.parents)
            for folder in source.iterdir() if folder.is_dir()}),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "src")
    parser.add_argument("--names", action="store_true", help="list the static names in three or more files")
    parser.add_argument("--folders", action="store_true", help="list the lines of each folder")
    args = parser.parse_args()
    found = measure(args.source)
    words = {
        "lines": "lines in src/",
        "json": "json_object_get in src/present",
        "prototypes": "prototypes in the largest header",
        "fields": "fields in the largest struct",
        "names": "static function names in three or more files",
    }
    for key, text in words.items():
        print(f"{text:46} {found[key]:7,}   bar {BARS[key]:,}")
    for count, path in found["largest header"]:
        print(f"  {count} prototypes: {path.relative_to(args.source)}")
    for count, name, path in found["largest struct"]:
        print(f"  {count} fields: struct {name}, {path.relative_to(args.source)}")
    if args.folders:
        for name, lines in sorted(found["folders"].items()):
            print(f"  {lines:6,} {name}")
    if args.names:
        for count, name in found["common names"]:
            print(f"  {count} files: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
