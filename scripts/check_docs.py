#!/usr/bin/env python3
"""Checks README and docs/: their length, their links, and whether the commands, options and make targets that they name
exist.

    scripts/check_docs.py [ROOT]
"""
import pathlib
import re
import sys

README_LINES = 150
DOCS_WORDS = 30_000
PARAGRAPH_CHARACTERS = 700
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```")
COMMAND = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*ebb ([a-z]+)\b([^|#]*)")


def slug(title):
    """Returns the anchor that GitHub generates for a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path):
    is_code, found = False, set()
    for line in path.read_text().splitlines():
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code and line.startswith("#"):
            found.add(slug(line.lstrip("#")))
    return found


def prose(text):
    """Yields each line with its number, and whether it is inside a code block."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
            continue
        yield number, line, is_code or line.startswith("    ")


def code_of(text):
    """Yields each code span and each line of a code block, with its line number."""
    for number, line, is_code in prose(text):
        for piece in [line] if is_code else re.findall(r"`([^`]+)`", line):
            yield number, piece


class Checker:
    def __init__(self, root):
        self.root = root
        self.found = 0
        sources = [p.read_text() for folder in ("src/cli", "src/options") for p in (root / folder).glob("*.c")]
        self.commands = {name for text in sources for name in re.findall(r'^    \.name = "([a-z]+)",', text, re.M)}
        self.options = {"help"} | {name for text in sources for name in re.findall(r'"([a-z][a-z0-9-]+)"', text)}
        self.targets = set(re.findall(r"^([a-z][a-z-]*)(?: [a-z -]+)?:", (root / "Makefile").read_text(), re.M))
        for line in re.findall(r"^([a-z][a-z -]*):", (root / "Makefile").read_text(), re.M):
            self.targets |= set(line.split())

    def say(self, path, number, text):
        print(f"{path.relative_to(self.root)}:{number}: {text}")
        self.found += 1

    def check_links(self, path, with_anchors):
        for number, line, is_code in prose(path.read_text()):
            for target in [] if is_code else LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = (path.parent / name).resolve() if name else path
                if not file.exists():
                    self.say(path, number, f"{target} does not exist")
                elif with_anchors and anchor and file.suffix == ".md" and anchor not in anchors(file):
                    self.say(path, number, f"{name or path.name} has no heading #{anchor}")

    def check_commands(self, path):
        for number, piece in code_of(path.read_text()):
            for command, rest in COMMAND.findall(piece):
                if command not in self.commands:
                    self.say(path, number, f"there is no command `ebb {command}`")
                    continue
                for option in re.findall(r"(?:^|\s)--([a-z][a-z0-9-]+)", re.split(r"\s--\s", rest)[0]):
                    if option not in self.options:
                        self.say(path, number, f"`ebb {command}` has no option --{option}")
            for target in re.findall(r"(?:^|\s)make ([a-z][a-z-]+)", piece):
                if target not in self.targets:
                    self.say(path, number, f"the Makefile has no target {target}")

    def check_paragraphs(self, path):
        length, start = 0, 1
        for number, line, is_code in [*prose(path.read_text()), (0, "", False)]:
            if is_code or not line.strip() or line.startswith(("|", "#", "- ", "* ")) or re.match(r"\d+\. ", line):
                if length > PARAGRAPH_CHARACTERS:
                    self.say(path, start, f"a paragraph of {length} characters, {PARAGRAPH_CHARACTERS} at most")
                length = 0
            if not is_code and line.strip() and not line.startswith(("|", "#")):
                start = start if length else number
                length += len(line) + 1

    def run(self):
        readme, docs = self.root / "README.md", sorted((self.root / "docs").rglob("*.md"))
        lines = len(readme.read_text().splitlines())
        if lines > README_LINES:
            self.say(readme, lines, f"{lines} lines, {README_LINES} at most")
        words = sum(len(path.read_text().split()) for path in docs)
        if words > DOCS_WORDS:
            self.say(docs[0], 1, f"docs/ has {words} words, {DOCS_WORDS} at most")
        for path in [readme, *docs]:
            self.check_links(path, True)
            self.check_commands(path)
            self.check_paragraphs(path)
        others = [p for folder in ("research", "zoo", "fuzz", "tests", "examples") for p in (self.root / folder).rglob("*.md")]
        for path in [self.root / "CONTRIBUTING.md", *others]:
            self.check_links(path, False)
        return 1 if self.found else 0


if __name__ == "__main__":
    sys.exit(Checker(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()).run())
