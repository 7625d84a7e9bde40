#!/usr/bin/env python3
"""Finds code in src/ that does not follow the project's dialect of C (CONTRIBUTING.md, "Style")."""
import pathlib
import re
import sys

TYPES = (r"(?:struct|union|enum|const|unsigned|signed|char|short|int|long|float|double|void|bool|[A-Z]\w*|\w+_t|"
         r"sem_t|siginfo_t)\b")
RULES = [
    (re.compile(r"[\w\]] [!=]= NULL\b|\bNULL [!=]="), "do not compare pointers with NULL: `if (!p)`, `bool has = p`"),
    (re.compile(r"\bint (?:\w+, )*rc\b"), "name a result r (or e or result if r is taken)"),
    (re.compile(r"\bsizeof\s*\((?!" + TYPES + r")(?!\()[\w.>\[\]-]+\)(?!\s*->)"), "use parentheses after sizeof for types only"),
    (re.compile(r"\bstruct err \w+ = \{(?!\"|\.)"), 'an empty err is {""}'),
]


def without_comments(line):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', re.sub(r"/\*.*?\*/", "", line)) if "struct err" not in line else line


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = 0
    for path in sorted((root / "src").rglob("*.[ch]")):
        is_comment = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = without_comments(line)
            if is_comment or text.lstrip().startswith(("/*", "* ")):
                is_comment = "*/" not in line
                continue
            for pattern, advice in RULES:
                if pattern.search(text) and not text.startswith("#define"):
                    print(f"{path.relative_to(root)}:{number}: {advice}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
