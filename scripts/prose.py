"""Extracts from the sources all text written for people: comments, strings, paragraphs of documents and test names."""
import ast
import io
import pathlib
import re
import subprocess
import tokenize
from dataclasses import dataclass

C_LIKE = {".c", ".h", ".ts", ".tsx", ".js", ".mjs", ".css"}
HASH_COMMENTS = {".sh", ".cmake", ".txt", ".toml", ".yml", ".service", ""}
# A slash after an operator or an opening bracket starts a regular expression; quotes in it do not start a string.
REGULAR_EXPRESSION = r"(?:(?<=[=(,:!&|?\[{;])|(?<=[=(,:!&|?\[{;] )|(?<=return ))/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/"
TOKENS = {
    "c": re.compile(r"/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|\"(?P<string>(?:\\.|[^\"\\\n])*)\"|'(?:\\.|[^'\\\n])'", re.S),
    "script": re.compile(r"/\*(?P<block>.*?)\*/|(?<![:\w])//(?P<line>[^\n]*)|\"(?P<string>(?:\\.|[^\"\\\n])*)\"|"
                         r"'(?P<single>(?:\\.|[^'\\\n])*)'|`(?P<template>(?:\\.|[^`\\])*)`|" + REGULAR_EXPRESSION, re.S),
    "css": re.compile(r"/\*(?P<block>.*?)\*/", re.S),
    "hash": re.compile(r"(?:^|(?<=\s))#(?P<line>[^\n]*)|\"(?P<string>(?:\\.|[^\"\\])*)\"|'(?P<single>[^'\n]*)'", re.M),
}
C_TEST = re.compile(r"^static void ((?!setup|teardown)\w+)\(void \*\*", re.M)
SCRIPT_TEST = re.compile(r"""\btest\(\s*["'`]([^"'`]+)""")


@dataclass
class Passage:
    path: str
    kind: str  # "comment", "string", "text" or "test"
    text: str  # Line breaks and comment signs are replaced by single spaces.
    lines: list  # Line number of each character in text.

    def line_at(self, offset):
        return self.lines[min(offset, len(self.lines) - 1)]


def passage_of(path, kind, raw, line):
    """Joins the lines of RAW, which starts at line LINE, without comment signs and indentation."""
    text, lines = [], []
    for number, part in enumerate(raw.split("\n"), line):
        if kind != "string":
            part = re.sub(r"^\s*(?:\*+(?=\s|$)|#+(?=\s|$)|//+|>)?\s*|\s+$", "", part)
        if text and part:
            text.append(" ")
            lines.append(number)
        text += part
        lines += [number] * len(part)
    return Passage(path, kind, "".join(text), lines) if text else None


def joined(parts):
    """Joins comments on adjacent lines into one passage, and also adjacent string literals."""
    last = None
    for passage, is_continued in parts:
        if last and is_continued and last.kind == passage.kind:
            gap = " " if passage.kind == "comment" else ""
            last.text += gap + passage.text
            last.lines += [passage.lines[0]] * len(gap) + passage.lines
            continue
        if last:
            yield last
        last = passage
    if last:
        yield last


def pieces_of_tokens(path, source, tokens):
    end, last_kind = 0, None
    for match in tokens.finditer(source):
        kind = "comment" if match.lastgroup in ("block", "line") else "string"
        raw = match.group(match.lastgroup) if match.lastgroup else None
        between = source[end:match.start()]
        line_end, end = end, match.end()
        if raw is None:
            last_kind = None
            continue
        line = source.count("\n", 0, match.start(match.lastgroup)) + 1
        if kind == "string":
            raw = raw.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"')
        passage = passage_of(path, kind, raw, line)
        if not passage:
            continue
        if kind == "comment":
            is_continued = match.lastgroup == "line" and not between.strip() and between.count("\n") <= 1
        else:
            is_continued = not re.sub(r"\bPRI\w+\b", "", between).strip()
        yield passage, is_continued and last_kind == match.lastgroup and line_end > 0
        last_kind = match.lastgroup


def pieces_of_python(path, source):
    last_line, last_type, is_statement = -1, None, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            passage = passage_of(path, "comment", token.string.lstrip("#"), token.start[0])
            if passage and not token.string.startswith("#!"):
                yield passage, last_type == tokenize.COMMENT and token.start[0] == last_line + 1
        elif token.type == tokenize.STRING:
            raw = re.sub(r"^\w*(\"\"\"|'''|\"|')(.*)\1$", r"\2", token.string, flags=re.S)
            passage = passage_of(path, "comment" if is_statement else "string", raw.replace("\\n", " "), token.start[0])
            if passage:
                yield passage, last_type == tokenize.STRING
        if token.type in (tokenize.NL,):
            continue
        is_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT) or (
            is_statement and token.type == tokenize.COMMENT)
        last_line, last_type = token.end[0], token.type


def pieces_of_text(path, source):
    """Yields a passage for each paragraph, list item and table row."""
    start, lines = 1, source.split("\n")
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\.)\s?", line):
            passage = passage_of(path, "text", "\n".join(lines[start - 1:number - 1]), start)
            if passage:
                yield passage, False
            start = number


def names_of_tests(path, source):
    """Yields each test name with its line. Tests in programs that are embedded as strings are excluded."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                yield node.name[len("test_"):], node.lineno
        return
    pattern = {".c": C_TEST, ".mjs": SCRIPT_TEST}.get(pathlib.Path(path).suffix)
    for match in pattern.finditer(source) if pattern else ():
        yield match.group(1), source.count("\n", 0, match.start()) + 1


def tests_in(path, source):
    for name, line in names_of_tests(path, source):
        yield Passage(path, "test", name.replace("_", " "), [line] * len(name))


def passages_of(path, source):
    suffix = pathlib.Path(path).suffix
    if suffix in C_LIKE:
        language = {".c": "c", ".h": "c", ".css": "css"}.get(suffix, "script")
        pieces = pieces_of_tokens(path, source, TOKENS[language])
    elif suffix == ".py" or source.startswith("#!/usr/bin/env python3"):
        pieces = pieces_of_python(path, source)
    elif suffix in (".md", ".html") or path.startswith("tests/expected/"):
        pieces = pieces_of_text(path, source)
    elif suffix in HASH_COMMENTS:
        pieces = pieces_of_tokens(path, source, TOKENS["hash"])
    else:
        return
    yield from joined(pieces)
    if path.startswith("tests/"):
        yield from tests_in(path, source)


def tracked_files(root, patterns):
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split("\0")
    return sorted(name for name in set(names) if name and (root / name).is_file() and not (root / name).is_symlink())


def all_passages(root, patterns):
    for name in tracked_files(root, patterns):
        try:
            source = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield from passages_of(name, source)
