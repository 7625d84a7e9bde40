"""Tests that `ebb version` prints the facts required in a bug report."""

import json
import re

import pytest


def test_version_text_has_one_line_per_documented_fact(ebb):
    result = ebb("version")
    assert (result.returncode, result.stderr) == (0, "")
    first, commit, target, compiler, libraries, features = result.stdout.splitlines()
    assert re.fullmatch(r"ebb \d+\.\d+\.\d+", first)
    assert re.fullmatch(r"commit     ([0-9a-f]{12}|unknown)", commit)
    assert re.fullmatch(r"target     (x86_64|aarch64)-linux-(gnu\.2\.\d+|musl)", target)
    assert re.fullmatch(r"compiler   (gcc|clang) \d.*\S", compiler)
    assert re.fullmatch(r"libraries  jansson [\d.]+, zstd [\d.]+, ncurses [\d.]+", libraries)
    assert re.fullmatch(r"features   [a-z-]+(, [a-z-]+)*", features)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_command_and_version_option_print_the_same_text(ebb, option):
    assert ebb(option).stdout == ebb("version").stdout


def test_version_json_and_version_text_have_the_same_values(ebb):
    document = json.loads(ebb("version", "--json").stdout)
    text = ebb("version").stdout
    assert set(document) == {"version", "commit", "target", "compiler", "libraries", "features"}
    assert f"ebb {document['version']}\n" in text
    assert f"commit     {document['commit']}\n" in text
    assert f"target     {document['target']}\n" in text
    assert f"compiler   {document['compiler']}\n" in text
    assert set(document["libraries"]) == {"jansson", "zstd", "ncurses"}
    assert f"features   {', '.join(document['features'])}\n" in text
