"""Tests that real output of `ebb show --json` follows its schema, and tests the JSON of `ebb explain`."""

import json
import signal

import pytest

from commands import PYTHON, ROOT, refused
from heap_jobs import not_sanitized

SCHEMA = json.loads((ROOT / "docs/reference/run.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float), "null": type(None)}


def is_of(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def problems(value, schema, where="$"):
    """Yields each violation of SCHEMA, which may use only a subset of JSON Schema. Unlike other validators, this one
    also reports keys that SCHEMA does not define."""
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    unknown = set(schema) - {"$schema", "$defs", "title", "description", "type", "properties",
                             "required", "items", "enum", "minimum", "additionalProperties"}
    assert not unknown, f"this validator does not know {unknown}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_of(value, name) for name in types):
        yield f"{where}: {value!r} is not {types}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield f"{where}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        for key in set(schema.get("required", ())) - set(value):
            yield f"{where}: {key} is missing"
        for key, member in value.items():
            if key in schema.get("properties", {}):
                yield from problems(member, schema["properties"][key], f"{where}.{key}")
            elif "additionalProperties" in schema:
                yield from problems(member, schema["additionalProperties"], f"{where}.{key}")
            elif "properties" in schema:
                yield f"{where}.{key} is not in the schema"
    if isinstance(value, list):
        for i, member in enumerate(value):
            yield from problems(member, schema.get("items", {}), f"{where}[{i}]")


GROWS = """
import time
kept = []
for n in range(100):
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.03)
"""
FILLS = """
import os, socket, time
marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
kept = []
for n in range(1, 101):
    kept.append(bytearray(b"x" * (1 << 20)))
    marks.sendto(f"KIND=step\\nSTEP={n}\\nEPOCH={n / 150}".encode(), os.environ["EBB_SOCKET"])
    time.sleep(0.04)
"""
JOBS = {
    "finished": ([], ["true"]),
    "failed": ([], ["sh", "-c", "exit 3"]),
    "killed": ([], ["sh", "-c", f"kill -{signal.SIGKILL:d} $$"]),
    "growing": ([], [PYTHON, "-c", GROWS]),
    "filling": ([], [PYTHON, "-c", FILLS]),
    "stopped by the guard": (["--limit", "60M", "--restart", "--max-restarts", "1"],
                             [PYTHON, "-c", GROWS]),
    "without parts": (["--no-heap", "--no-guard", "--no-cgroup"], ["true"]),
}


@pytest.mark.parametrize("kind", JOBS)
def test_json_of_the_show_command_matches_the_schema(ebb, tmp_path, kind):
    options, command = JOBS[kind]
    ebb("run", "-q", "-d", tmp_path / "run", *options, "--", *command)
    document = json.loads(ebb("show", "--json", tmp_path / "run").stdout)
    assert list(problems(document, SCHEMA)) == []


@not_sanitized
def test_show_json_of_a_growing_job_has_call_sites_and_diagnosis(ebb, tmp_path):
    ebb("run", "-q", "-d", tmp_path / "run", "--", PYTHON, "-c", GROWS)
    document = json.loads(ebb("show", "--json", tmp_path / "run").stdout)
    assert document["heap"]["growing"] and document["diagnosis"]["hypotheses"]


def test_schema_validator_refuses_wrong_types_and_unknown_keys():
    found = list(problems({"ebb": 3, "new": 1}, SCHEMA))
    assert any("$.ebb: 3 is not" in p for p in found)
    assert any("state is missing" in p for p in found)
    assert "$.new is not in the schema" in found


def test_schema_and_explain_command_list_the_same_codes(ebb):
    hypothesis = SCHEMA["properties"]["diagnosis"]["properties"]["hypotheses"]["items"]
    listed = json.loads(ebb("explain", "--json").stdout)
    assert [entry["code"] for entry in listed] == hypothesis["properties"]["code"]["enum"]


def test_explain_json_has_all_sections_of_each_page(ebb):
    for entry in json.loads(ebb("explain", "--json").stdout):
        page = json.loads(ebb("explain", entry["code"], "--json").stdout)
        assert list(page) == ["code", "title", "meaning", "evidence", "fix", "check"]
        assert {"code": page["code"], "title": page["title"]} == entry
        assert all(text and "**" not in text[:2] for text in page.values())


def test_explain_json_refuses_an_unknown_code(ebb):
    assert refused(ebb("explain", "--json", "graph-kep"),
                   'explain: unknown code "graph-kep"; did you mean graph-kept?')
