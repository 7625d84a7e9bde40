"""Tests the metrics of one job: --metrics and --metrics-file of `ebb run`."""

import http.client
import os
import re
import socket
import subprocess

import pytest

from commands import PATIENCE_S, binary, environment, refused, refused_with, wait_for

SAMPLE = re.compile(r'^(ebb_[a-z_]+)\{job="(.*?)"(?:,verdict="[a-z]+")?\} \S+$')


@pytest.fixture
def job(tmp_path):
    """Starts `ebb run` with the given options, and a command that waits until its standard input is closed."""
    started = []

    def start(*options, env=None):
        process = subprocess.Popen(
            [binary(), "run", "--no-record", *map(str, options), "--", "sh", "-c",
             "read line"], cwd=tmp_path, env=environment(env),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process
    yield start
    for process in started:
        process.communicate(timeout=PATIENCE_S)


def port_of(process):
    line = process.stderr.readline()
    found = re.fullmatch(r"ebb: metrics on http://127\.0\.0\.1:(\d+)/metrics\n", line)
    assert found, line
    return int(found.group(1))


def ask(port, method="GET", path="/metrics"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.headers["Content-Type"], answer.read().decode()


def names_in(text):
    return {SAMPLE.match(line).group(1) for line in text.splitlines() if not line.startswith("#")}


def test_run_metrics_are_valid_openmetrics_text(job):
    port = port_of(job("--metrics", "0", "--name", "good"))
    text = wait_for(lambda: "ebb_job_memory_bytes{" in ask(port)[2] and ask(port)[2],
                    "a first sample")
    status, kind, _ = ask(port)
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    for line in text.splitlines():
        assert line.startswith(("# HELP ebb_", "# TYPE ebb_", "# EOF")) or SAMPLE.match(line), line
    assert {"ebb_job_memory_bytes", "ebb_job_memory_peak_bytes", "ebb_job_start_time_seconds",
            "ebb_job_memory_limit_bytes"} <= names_in(text)


def test_promtool_accepts_the_metrics_of_a_run(job, promtool):
    text = ask(port_of(job("--metrics", "0")))[2]
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr


def test_markup_in_the_job_name_is_escaped_in_the_metrics_of_a_run(job):
    port = port_of(job("--metrics", "127.0.0.1:0", "--name", 'a"} 1\nb{x="\x1b'))
    text = ask(port)[2]
    labels = {SAMPLE.match(line).group(0) for line in text.splitlines() if line[0] != "#"}
    assert labels and all('{job="a\\"} 1\\\\nb{x=\\"\\\\e"' in label for label in labels), text


def test_metrics_server_refuses_unknown_paths_and_methods(job):
    port = port_of(job("--metrics", "0"))
    assert ask(port, path="/")[0] == 404
    assert ask(port, path="/metricsx")[0] == 404
    assert ask(port, path="/metrics?a=b")[0] == 200
    assert ask(port, method="POST")[0] == 405


def test_idle_or_endless_metrics_request_does_not_block_other_requests(job):
    port = port_of(job("--metrics", "0"))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    endless = socket.create_connection(("127.0.0.1", port))
    endless.settimeout(PATIENCE_S)
    endless.sendall(b"GET /" + b"x" * 5000)
    assert b" 431 " in endless.recv(100)
    assert ask(port)[0] == 200
    for connection in (*idle, endless):
        connection.close()


def test_metrics_file_has_the_metrics_and_is_removed_at_job_end(job, tmp_path):
    path = tmp_path / "ebb.prom"
    process = job("-q", "--metrics-file", path, "--name", "good")
    text = wait_for(lambda: path.exists() and path.read_text(), "the file")
    assert text.endswith("# EOF\n") and 'job="good"' in text
    assert oct(path.stat().st_mode & 0o444) == oct(0o444 & ~current_umask())
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1  # the job's `read` exits with 1 at end of input
    assert list(tmp_path.iterdir()) == []


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_metrics_option_refuses_an_address_in_use(ebb, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(ebb("run", "--metrics", str(port), "--", "true", cwd=tmp_path),
                       f"run: --metrics {port}: cannot listen: Address already in use; choose "
                       "another address", status=125)


def test_metrics_options_refuse_invalid_addresses_and_folders(ebb, tmp_path):
    assert refused_with(ebb("run", "--metrics", "nowhere:x", "--", "true", cwd=tmp_path),
                        'run: --metrics nowhere:x: invalid address "nowhere:x"', status=125)
    assert refused(ebb("run", "--metrics-file", "/proc/no/x", "--", "true", cwd=tmp_path),
                   'run: --metrics-file: cannot write "/proc/no/x": No such file or directory',
                   status=125)
