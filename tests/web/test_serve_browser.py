"""Tests a real `ebb serve` in a browser: submits a job, watches its plot, kills the server, and
cancels the job.

Needs node, npm, chromium and a way to fetch playwright-core; if one of them is missing, the tests are skipped for that
reason. EBB_PICTURES=FOLDER keeps pictures of the page there.
"""

import gzip
import re
import sys

import pytest

import browsing

sys.path.insert(0, str(browsing.HERE.parent / "cmd"))

from commands import PYTHON, binary, environment  # noqa: E402

BROWSE_S = 900
# This program prints its steps in colour, and leaks 256 KiB/step until it has 300 MiB or the file `enough` exists.
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


def test_page_of_a_real_server_sends_no_requests_to_other_hosts(seen):
    assert seen["foreign"] == []


def test_browser_console_shows_no_unexpected_errors(seen):
    assert seen["errors"] == []
    refused = re.compile(r"error: Failed to load resource: the server responded with a status of "
                         r"40[014] ")
    assert [m for m in seen["quiet"] if not refused.match(m)] == []


def test_page_opens_the_live_websocket_stream(seen):
    assert seen["login"] == "live"


def test_second_browser_tab_needs_no_login_and_is_updated_live(seen):
    assert seen["secondTab"] == "live"


def test_cookie_leaked_to_another_port_grants_no_access(seen):
    assert seen["thief"]["received"] and seen["thief"]["stored"] == 0
    assert seen["thief"]["statuses"] == [401, 401, 401, 401]


def test_server_error_about_a_form_field_is_shown_at_the_field(seen):
    assert "lots" in seen["submit"]["error"] and seen["submit"]["field"] == "field-limit"


def test_job_plot_is_updated_live(seen):
    first, second = seen["watch"]["first"], seen["watch"]["second"]
    assert second["s"] > first["s"] and second["mib"] > first["mib"]


def test_page_shows_the_job_log_as_plain_text(seen):
    assert "grew 0 <b>two words</b>" in seen["watch"]["log"]
    assert not seen["watch"]["injected"]


def test_job_plot_and_log_have_no_gap_after_a_server_restart(seen):
    assert "does not answer" in seen["restart"]["away"]
    assert seen["restart"]["gaps"] == 0 and seen["restart"]["lines"] > 3


def test_page_cancels_a_job_with_a_reason(seen):
    assert "seen enough" in seen["cancel"]["history"]
    assert "cancelled" in seen["cancel"]["row"]


def test_job_rerun_from_the_page_has_a_report(seen):
    assert seen["again"]["report"] == [200, True]
    assert not seen["again"]["wide"]


def test_server_page_shows_memory_and_job_slots_of_the_machine(seen):
    assert any("Memory of the machine" in text for text in seen["machine"])
    assert any(re.search(r"Slots\s*0 of 2", text) for text in seen["machine"])
