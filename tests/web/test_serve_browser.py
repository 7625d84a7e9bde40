"""A real `ebb serve` in a browser: submit, watch the plot move, kill the server, cancel.

Needs node, npm, chromium and a way to fetch playwright-core; skips with the reason where one is
missing. EBB_PICTURES=FOLDER keeps pictures of the page there.
"""

import gzip
import re
import sys

import pytest

import browsing

sys.path.insert(0, str(browsing.HERE.parent / "cmd"))

from commands import PYTHON, binary, environment  # noqa: E402

BROWSE_S = 900
# Says what it does in colour, and keeps 256 KiB at each step until it has 300 MiB or is told to end.
PROGRAM = """
import pathlib, sys, time
kept = []
for i in range(100000):
    if pathlib.Path("enough").exists():
        break
    if i < 1200:
        kept.append(bytearray(b"x") * (256 << 10))
    print(f"\\x1b[32mgrew {i}\\x1b[0m <b>{sys.argv[1]}</b>", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="session")
def seen(tmp_path_factory):
    script = browsing.build_folder() / "web" / "serve.js.gz"
    if not script.exists() or not gzip.decompress(script.read_bytes()):
        pytest.skip("ebb was built without npm: its server has no page")
    tools = browsing.prepare()
    folder = tmp_path_factory.mktemp("serve")
    program = folder / "grow.py"
    program.write_text(PROGRAM)
    return browsing.browse(["browse_serve.mjs", browsing.chromium(), binary(), folder, PYTHON,
                            program, *browsing.pictures("serve")], tools, BROWSE_S,
                           env=environment())


def test_only_its_own_server_is_asked(seen):
    assert seen["foreign"] == []


def test_no_error_but_those_of_answers_that_refuse(seen):
    assert seen["errors"] == []
    refused = re.compile(r"error: Failed to load resource: the server responded with a status of "
                         r"40[014] ")
    assert [m for m in seen["quiet"] if not refused.match(m)] == []


def test_the_page_has_a_live_stream(seen):
    assert seen["login"] == "live"


def test_second_tab_is_logged_in_and_live(seen):
    assert seen["secondTab"] == "live"


def test_cookie_that_another_port_receives_is_worth_nothing(seen):
    assert seen["thief"]["received"] and seen["thief"]["stored"] == 0
    assert seen["thief"]["statuses"] == [401, 401, 401, 401]


def test_what_the_server_refuses_is_told_at_its_field(seen):
    assert "lots" in seen["submit"]["error"] and seen["submit"]["field"] == "field-limit"


def test_the_plot_moves(seen):
    first, second = seen["watch"]["first"], seen["watch"]["second"]
    assert second["s"] > first["s"] and second["mib"] > first["mib"]


def test_the_log_is_the_job_s_as_plain_text(seen):
    assert "grew 0 <b>two words</b>" in seen["watch"]["log"]
    assert not seen["watch"]["injected"]


def test_a_killed_server_comes_back_and_nothing_is_missing(seen):
    assert "does not answer" in seen["restart"]["away"]
    assert seen["restart"]["gaps"] == 0 and seen["restart"]["lines"] > 3


def test_the_job_is_cancelled_with_a_reason(seen):
    assert "seen enough" in seen["cancel"]["history"]
    assert "cancelled" in seen["cancel"]["row"]


def test_it_runs_again_to_its_end_and_has_a_report(seen):
    assert seen["again"]["report"] == [200, True]
    assert not seen["again"]["wide"]


def test_the_machine_is_shown(seen):
    assert any("Memory of the machine" in text for text in seen["machine"])
    assert any(re.search(r"Slots\s*0 of 2", text) for text in seen["machine"])
