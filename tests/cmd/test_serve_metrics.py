"""Tests /metrics of the server with promtool, and that the files in contrib/ refer only to existing metrics."""

import json
import re
import shutil
import subprocess

import pytest

from commands import ROOT, environment
from serving import serving

NAME = re.compile(r"\b((?:ebb|process)_[a-z_]+)\b")


@pytest.fixture(scope="module")
def metrics():
    """Returns the text of /metrics of a server with finished jobs and one running job."""
    with serving() as server:
        assert server.wait(server.submit("sh", "-c", "sleep 0.1", name="good"))["state"] == "succeeded"
        assert server.wait(server.submit("sh", "-c", "exit 3", name="bad"))["state"] == "failed"
        running = server.submit("sleep", "1000", name='"\n}bad{name="')
        server.wait(running, "running")
        answer = server.ask("GET", "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        server.post(f"/jobs/{running}/cancel", {})
        server.wait(running)
        yield answer.body.decode()


def values(text, name):
    return {labels: float(v) for labels, v in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)}


def test_metrics_have_job_counts_by_state_and_end_cause(metrics):
    states = values(metrics, "ebb_jobs")
    assert states['state="succeeded"'] == 1 and states['state="failed"'] == 1 and states['state="running"'] == 1
    assert values(metrics, "ebb_jobs_submitted_total") == {"": 3}
    assert values(metrics, "ebb_jobs_ended_total") == {'state="succeeded"': 1, 'state="failed"': 1}
    assert values(metrics, "ebb_job_failures_total") == {'cause="exit status"': 1}
    assert sum(values(metrics, "ebb_memory_returns_total").values()) == 2
    assert values(metrics, "ebb_job_start_seconds_count")[""] >= 2
    assert values(metrics, "ebb_slots_used") == {"": 1}


def test_metrics_of_running_jobs_have_only_the_job_id_as_label(metrics):
    assert "bad{" not in metrics and "good" not in metrics
    assert list(values(metrics, "ebb_job_start_time_seconds")) == ['job="3"']


def test_metrics_include_memory_and_open_files_of_the_server(metrics):
    assert 1 << 20 < values(metrics, "process_resident_memory_bytes")[""] < 1 << 30
    assert values(metrics, "process_open_fds")[""] > 3


def test_every_metric_has_a_help_and_a_type_line(metrics):
    typed = set(re.findall(r"^# TYPE (\S+) ", metrics, re.M))
    assert typed == set(re.findall(r"^# HELP (\S+) ", metrics, re.M))
    used = {re.sub(r"_(sum|count)$", "", n) if re.sub(r"_(sum|count)$", "", n) in typed else n
            for n in re.findall(r"^([a-z_]+)[{ ]", metrics, re.M)}
    assert used <= typed


@pytest.mark.parametrize("path", ["contrib/alerts.yml", "contrib/grafana-dashboard.json"])
def test_contrib_files_refer_only_to_existing_metrics(metrics, path):
    text = (ROOT / path).read_text()
    if path.endswith(".json"):
        text = "\n".join(t["expr"] for p in json.loads(text)["panels"] for t in p["targets"])
    typed = set(re.findall(r"^# TYPE (\S+) ", metrics, re.M))
    named = {re.sub(r"_(sum|count)$", "", n) for n in NAME.findall(text)}
    assert named and named <= typed


def test_promtool_accepts_the_metrics(metrics, promtool):
    result = subprocess.run([promtool, "check", "metrics"], input=metrics, text=True, capture_output=True,
                            env=environment())
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_promtool_accepts_the_alert_rules(promtool):
    result = subprocess.run([promtool, "check", "rules", str(ROOT / "contrib" / "alerts.yml")], text=True,
                            capture_output=True, env=environment())
    assert result.returncode == 0, result.stdout + result.stderr


def test_example_configurations_in_contrib_are_valid(ebb, tmp_path):
    text = (ROOT / "contrib" / "serve.conf").read_text().replace("/var/lib/ebb", str(tmp_path / "state"))
    (tmp_path / "serve.conf").write_text(text)
    result = ebb("serve", "--check", "--config", tmp_path / "serve.conf")
    assert result.returncode == 0, result.stderr


def test_systemd_unit_in_contrib_is_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = (ROOT / "contrib" / "ebb.service").read_text().replace("/usr/bin/ebb", "/bin/true")
    (tmp_path / "ebb.service").write_text(unit.replace("User=ebb\n", ""))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "ebb.service")], text=True,
                            capture_output=True, env=environment())
    # systemd before 254 warns about DelegateSubgroup and ignores it.
    wrong = [line for line in (result.stdout + result.stderr).splitlines()
             if "ebb.service" in line and "DelegateSubgroup" not in line]
    assert not wrong, "\n".join(wrong)
