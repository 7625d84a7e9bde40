"""Tests `ebb explain`: every diagnosis code has a page, and for an unknown code the most similar one is suggested."""

import pathlib
import re

import pytest

from commands import refused

PAGES = pathlib.Path("docs/troubleshooting.md").read_text(encoding="utf-8")
HEADER = pathlib.Path("src/diagnose/hypothesis.h").read_text(encoding="utf-8")
CODES = re.findall(r'X\(\w+, "\w+", "([a-z-]+)"', HEADER)


def test_explain_command_lists_every_code_with_its_title(ebb):
    lines = ebb("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == CODES
    assert all(len(line.split()) > 1 for line in lines)


@pytest.mark.parametrize("code", CODES)
def test_every_explain_page_has_the_four_required_sections(ebb, code):
    assert PAGES.count(f"\n### {code}\n") == 1
    text = ebb("explain", code).stdout
    assert text.startswith(f"{code}: ")
    parts = ["What it means.", "How ebb knows.", "What to do.", "How to check."]
    assert [p for p in parts if f"\n{p}" in text] == parts
    assert "**" not in text and max(map(len, text.splitlines())) <= 80


def test_every_explain_page_belongs_to_a_diagnosis_code():
    codes = PAGES.split("\n## Diagnosis codes\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^### (.*)$", codes, re.M)) == set(CODES)


def test_explain_suggests_a_similar_code_for_an_unknown_code(ebb):
    assert refused(ebb("explain", "graph-kep"),
                   'explain: unknown code "graph-kep"; did you mean graph-kept?')
