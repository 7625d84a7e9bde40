"""Tests the page of `ebb serve` in a browser, with a fake server that controls the jobs.

Needs node, npm, chromium and a way to fetch playwright-core; if one of them is missing, the tests are skipped for that
reason. EBB_PICTURES=FOLDER keeps pictures of the page there.
"""

import gzip
import re
import subprocess

import pytest

import browsing

BROWSE_S = 900
UNITS_S = 240


@pytest.fixture(scope="session")
def web():
    """Returns the folder of the built page."""
    folder = browsing.build_folder() / "web"
    script = folder / "serve.js.gz"
    if not script.exists() or not gzip.decompress(script.read_bytes()):
        pytest.skip("ebb was built without npm: its server has no page")
    return folder


@pytest.fixture(scope="session")
def seen(web):
    folder = browsing.prepare()
    return browsing.browse(["browse_standin.mjs", browsing.chromium(), web,
                            *browsing.pictures("standin")], folder, BROWSE_S)


def test_unit_tests_of_the_page_scripts_pass(web):
    folder = browsing.prepare()
    bundle = folder / "units.built.mjs"
    subprocess.run(["node", str(web / "node_modules/esbuild/bin/esbuild"),
                    str(browsing.HERE / "units.mjs"), "--bundle", "--platform=node",
                    "--format=esm", "--log-level=warning", f"--outfile={bundle}"],
                   check=True, stdin=subprocess.DEVNULL, timeout=UNITS_S)
    result = subprocess.run(["node", "--test", str(bundle)], stdin=subprocess.DEVNULL, text=True,
                            capture_output=True, timeout=UNITS_S)
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"^# pass (\d+)$", result.stdout, re.M)[1]) == 15


def test_server_page_sends_no_requests_to_other_hosts(seen):
    assert seen["foreign"] == []


def test_browser_console_shows_no_unexpected_errors(seen):
    assert seen["errors"] == []
    refused = re.compile(r"error: Failed to load resource: the server responded with a status of "
                         r"40[01] ")
    assert [m for m in seen["quiet"] if not refused.match(m)] == []


def test_token_is_sent_once_and_not_stored_by_the_page(seen):
    assert "does not accept" in seen["login"]["refused"]
    kept = seen["login"]["kept"]
    assert "token" not in kept["url"]
    assert kept["cookie"] == "" and "the-token" not in kept["stored"]
    assert "key_of_" in kept["stored"]
    assert seen["logout"] == {"sessions": 0, "streams": 0, "stored": 0}


def test_job_row_shows_state_and_memory_and_verdict(seen):
    name, state, progress, memory, verdict, _ = seen["useList"]["leaker"]
    assert name.startswith("62 leaker") and state == "running"
    assert progress == "step 250 of 1,000, 6 min left"
    assert memory.startswith("3.23 GiB, peak 3.23 GiB of 6.00 GiB") and seen["useList"]["spark"]
    assert verdict == "leakingout of memory in about 23 min"


def test_job_list_is_updated_by_live_messages_without_polling(seen):
    assert seen["useList"]["started"] == "running" and "63" in seen["useList"]["announced"]


def test_running_jobs_are_listed_first(seen):
    assert seen["useList"]["first"] == "/jobs/62"


def test_job_list_is_filtered_and_paged(seen):
    assert (seen["useList"]["rows"], seen["useList"]["older"]) == (50, 13)
    assert seen["useList"]["failed"] == "/jobs/61"
    assert seen["useList"]["url"] == "?name=leaker"


def test_job_can_be_submitted_by_keyboard(seen):
    assert seen["submit"]["ring"] != "none"
    assert seen["submit"]["body"] == {"command": ["python", "train.py", "--name", "a b"],
                                      "limit": "6G"}


def test_server_error_about_a_form_field_is_shown_at_the_field(seen):
    assert "lots" in seen["submit"]["error"]
    assert seen["submit"]["invalid"] == ["field-limit", "true"]


def test_page_opened_for_queued_job_shows_first_output_and_samples(seen):
    assert seen["begin"]["log"] == ["the first words", ""]
    assert seen["begin"]["plot"] == [{"time": "4 s", "job": "5.00 GiB"}]


def test_job_plots_are_drawn_and_updated_live(seen):
    job = seen["useJob"]
    assert job["plots"] == ["Memory of the job", "Memory by process", "GPU memory"]
    assert job["keys"] == ["epoch", "evaluation", "checkpoint"]
    assert job["before"][0]["job"] == "3.23 GiB" and job["after"][0]["job"] == "5.00 GiB"
    assert job["after"][0]["time"] == "21:00 min"


def test_zooming_a_job_plot_loads_more_detail(seen):
    asked = {key: float(value) for key, value in
             (pair.split("=") for pair in seen["useJob"]["part"].lstrip("?").split("&"))}
    whole = 1198 + 1500 * 1.05  # The plot includes the forecast, which ends when the limit is reached.
    assert whole / 16 < asked["from_s"] < whole / 8 < whole * 3 / 8 < asked["to_s"] < 1198
    minutes, seconds = map(int, seen["useJob"]["closer"][0]["time"].split()[0].split(":"))
    assert whole * 3 / 8 < minutes * 60 + seconds <= asked["to_s"]


def test_job_page_shows_verdict_site_fix_and_commands_in_this_order(seen):
    parts = ["leaking: +110 MiB/min, out of memory in about 23 min (90 % confident) [graph-kept]",
             "train.py:29 in main()", "help: keep numbers (saves 1 MiB/step)", "Peak", "ebb show 62 · ebb explain graph-kept"]
    places = [seen["useJob"]["order"].find(part) for part in parts]
    assert -1 not in places and places == sorted(places), seen["useJob"]["order"]


def test_job_page_shows_diagnosis_with_evidence_and_advice(seen):
    text = seen["useJob"]["diagnosis"]
    for part in ("nearly certain, 60 % of the growth", "the graph is kept", "evidence for", "keep numbers"):
        assert part in text


def test_job_log_is_shown_as_plain_text_and_can_be_paused(seen):
    log = seen["useLog"]
    assert log["first"] == ["first line", " 2%"]
    assert log["live"] == ["first line", "second <b>line</b>", ""]
    assert "third" not in log["paused"]
    assert log["bytes"][:2] == ["ok \ufffd\ufffd", "after bytes"]


def test_job_log_is_shown_with_a_limited_number_of_lines(seen):
    assert seen["useLog"]["many"] <= 2001


def test_job_page_cancels_only_after_confirmation_and_can_rerun(seen):
    act = seen["act"]
    assert act["before"] == 0 and act["reason"] == "enough"
    assert "checkpointing" in act["announced"]
    assert act["buttons"] == ["Run again", "Edit and run again"]
    assert act["again"].endswith("leaker") and act["history"] == "/jobs/62"
    assert any("asked to: enough" in row for row in act["changes"])


def test_server_page_runs_no_script_from_the_text_of_a_job(seen):
    assert "<script>window.injected=true</script>" in seen["useList"]["hostile"]
    assert "\u202e" not in seen["useList"]["hostile"] and "\x1b" not in seen["useList"]["hostile"]
    assert not seen["useJob"]["injected"] and not seen["looks"]["injected"]


def test_page_shows_all_jobs_after_a_server_restart(seen):
    assert "does not answer" in seen["restart"]["away"]
    assert seen["restart"]["log"] == ["before", "after", ""]


def test_hidden_page_closes_the_live_stream_and_reopens_it_when_shown(seen):
    assert seen["sleep"]["found"] == "failed"
    assert seen["sleep"]["asked"].count("GET live") == 1


def test_page_reconnects_if_the_live_stream_sends_nothing(seen):
    assert seen["silence"]["found"] == "lost"


def test_page_polls_the_api_if_the_live_stream_fails(seen):
    assert "no live stream" in seen["withoutLive"]["mode"]
    assert "asked for" in seen["withoutLive"]["found"]


def test_page_shows_used_job_slots_and_an_error_for_an_unknown_job(seen):
    assert any(text.startswith("Slots1 of 2") for text in seen["looks"]["machine"])
    assert seen["looks"]["missing"] == "no such job: 4711"


def test_every_server_page_fits_a_phone_and_supports_dark_mode(seen):
    assert not any(seen["wide"].values()), seen["wide"]
    assert sum(map(int, re.findall(r"\d+", seen["looks"]["dark"])[:3])) < 200
