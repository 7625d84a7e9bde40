"""The page of `ebb serve` in a browser, before a stand-in of the server that says what jobs do.

Needs node, npm, chromium and a way to fetch playwright-core; skips with the reason where one is
missing. EBB_PICTURES=FOLDER keeps pictures of the page there.
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
    """The folder of the built page."""
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


def test_what_it_computes(web):
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


def test_only_its_own_server_is_asked(seen):
    assert seen["foreign"] == []


def test_no_error_but_those_of_answers_that_refuse(seen):
    assert seen["errors"] == []
    refused = re.compile(r"error: Failed to load resource: the server responded with a status of "
                         r"40[01] ")
    assert [m for m in seen["quiet"] if not refused.match(m)] == []


def test_the_token_is_sent_once_and_kept_nowhere(seen):
    assert "not a token" in seen["login"]["refused"]
    kept = seen["login"]["kept"]
    assert "token" not in kept["url"]
    assert kept["cookie"] == "" and "the-token" not in kept["stored"]
    assert "key_of_" in kept["stored"]
    assert seen["logout"] == {"sessions": 0, "streams": 0, "stored": 0}


def test_a_row_says_how_the_job_is(seen):
    name, state, progress, memory, verdict, _ = seen["useList"]["leaker"]
    assert name.startswith("62 leaker") and state == "running"
    assert progress == "step 250 of 1,000, 6 min left"
    assert memory.startswith("3.23 GiB, peak 3.23 GiB of 6.00 GiB") and seen["useList"]["spark"]
    assert verdict == "leakingout of memory in 20 min to 25 min"


def test_the_list_is_kept_current_by_the_stream_alone(seen):
    assert seen["useList"]["started"] == "running" and "63" in seen["useList"]["told"]


def test_what_is_at_work_comes_first(seen):
    assert seen["useList"]["first"] == "/jobs/62"


def test_jobs_are_filtered_and_come_in_pages(seen):
    assert (seen["useList"]["rows"], seen["useList"]["older"]) == (50, 13)
    assert seen["useList"]["failed"] == "/jobs/61"
    assert seen["useList"]["url"] == "?name=leaker"


def test_a_job_is_submitted_with_the_keyboard_alone(seen):
    assert seen["submit"]["ring"] != "none"
    assert seen["submit"]["body"] == {"command": ["python", "train.py", "--name", "a b"],
                                      "limit": "6G"}


def test_what_the_server_refuses_is_told_at_its_field(seen):
    assert "lots" in seen["submit"]["error"]
    assert seen["submit"]["invalid"] == ["field-limit", "true"]


def test_a_page_that_was_there_first_shows_the_job_from_its_beginning(seen):
    assert seen["begin"]["log"] == ["the first words", ""]
    assert seen["begin"]["plot"] == [{"time": "4 s", "job": "5.00 GiB"}]


def test_the_plots_are_there_and_move(seen):
    job = seen["useJob"]
    assert job["plots"] == ["Memory of the job", "Memory by process", "GPU memory"]
    assert job["keys"] == ["epoch", "evaluation", "checkpoint"]
    assert job["before"][0]["job"] == "3.23 GiB" and job["after"][0]["job"] == "5.00 GiB"
    assert job["after"][0]["time"] == "21:00 min"


def test_a_part_is_looked_at_more_closely(seen):
    asked = {key: float(value) for key, value in
             (pair.split("=") for pair in seen["useJob"]["part"].lstrip("?").split("&"))}
    whole = 1198 + 1500 * 1.05  # with what is to come, until the limit is met
    assert whole / 16 < asked["from_s"] < whole / 8 < whole * 3 / 8 < asked["to_s"] < 1198
    minutes, seconds = map(int, seen["useJob"]["closer"][0]["time"].split()[0].split(":"))
    assert whole * 3 / 8 < minutes * 60 + seconds <= asked["to_s"]


def test_the_diagnosis_says_what_is_for_and_what_to_do(seen):
    text = seen["useJob"]["diagnosis"]
    for part in ("nearly certain, 60 % of it", "the graph is kept", "for it", "keep numbers"):
        assert part in text


def test_the_log_is_plain_text_that_can_be_paused(seen):
    log = seen["useLog"]
    assert log["first"] == ["first line", " 2%"]
    assert log["live"] == ["first line", "second <b>line</b>", ""]
    assert "third" not in log["paused"]
    assert log["bytes"][:2] == ["ok \ufffd\ufffd", "after bytes"]


def test_the_log_does_not_grow(seen):
    assert seen["useLog"]["many"] <= 2001


def test_buttons_do_what_they_say_and_cancel_asks_first(seen):
    act = seen["act"]
    assert act["before"] == 0 and act["reason"] == "enough"
    assert "checkpointing" in act["told"]
    assert act["buttons"] == ["Run again", "Change and run"]
    assert act["again"].endswith("leaker") and act["history"] == "/jobs/62"
    assert any("asked to: enough" in row for row in act["changes"])


def test_text_of_others_is_shown_and_not_run(seen):
    assert "<script>window.injected=true</script>" in seen["useList"]["hostile"]
    assert "\u202e" not in seen["useList"]["hostile"] and "\x1b" not in seen["useList"]["hostile"]
    assert not seen["useJob"]["injected"] and not seen["looks"]["injected"]


def test_after_a_restart_of_the_server_nothing_is_missing(seen):
    assert "does not answer" in seen["restart"]["away"]
    assert seen["restart"]["log"] == ["before", "after", ""]


def test_a_hidden_page_has_no_stream_and_reads_what_it_missed(seen):
    assert seen["sleep"]["found"] == "failed"
    assert seen["sleep"]["asked"].count("GET live") == 1


def test_a_stream_that_died_in_silence_is_noticed(seen):
    assert seen["silence"]["found"] == "lost"


def test_without_a_live_stream_the_server_is_asked(seen):
    assert "no live stream" in seen["withoutLive"]["mode"]
    assert "asked for" in seen["withoutLive"]["found"]


def test_the_machine_is_shown(seen):
    assert any(text.startswith("Slots1 of 2") for text in seen["looks"]["machine"])
    assert seen["looks"]["missing"] == "there is no job 4711"


def test_every_page_fits_a_telephone_and_the_dark(seen):
    assert not any(seen["wide"].values()), seen["wide"]
    assert sum(map(int, re.findall(r"\d+", seen["looks"]["dark"])[:3])) < 200
