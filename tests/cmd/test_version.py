"""`ebb version`: what a bug report needs."""

import json
import re

import pytest


def test_the_text_has_four_lines_of_a_known_shape(ebb):
    result = ebb("version")
    assert (result.returncode, result.stderr) == (0, "")
    first, compiler, libraries, features = result.stdout.splitlines()
    assert re.fullmatch(r"ebb \d+\.\d+\.\d+", first)
    assert re.fullmatch(r"compiler   (gcc|clang) \d.*\S", compiler)
    assert re.fullmatch(r"libraries  jansson [\d.]+, zstd [\d.]+, ncurses [\d.]+", libraries)
    assert re.fullmatch(r"features   [a-z-]+(, [a-z-]+)*", features)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_usual_options_print_the_same(ebb, option):
    assert ebb(option).stdout == ebb("version").stdout


def test_json_says_the_same(ebb):
    document = json.loads(ebb("version", "--json").stdout)
    text = ebb("version").stdout
    assert set(document) == {"version", "compiler", "libraries", "features"}
    assert f"ebb {document['version']}\n" in text
    assert f"compiler   {document['compiler']}\n" in text
    assert set(document["libraries"]) == {"jansson", "zstd", "ncurses"}
    assert f"features   {', '.join(document['features'])}\n" in text
