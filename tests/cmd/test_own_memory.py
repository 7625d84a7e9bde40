"""Tests with `ebb run --fail-on leak` that ebb's own memory does not grow: neither in a server that handles many
requests and jobs, nor in the engine at a high sample rate. The programs that send the requests and drive the engine
report each iteration as a step."""

import json
import sys

import pytest

from commands import ROOT, binary
from heap_jobs import not_sanitized

STEPS = """
import os, socket, subprocess, sys
sys.path.insert(0, {folder!r})
marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

def step(n):
    marks.sendto(f"KIND=step\\nSTEP={{n}}\\nEPOCH={{n / {epoch}}}".encode(), os.environ["EBB_SOCKET"])
"""

SERVER = STEPS + """
from serving import serving
with serving() as server:
    job = server.submit("true", name="first")
    server.wait(job)
    for n in range(1, {steps} + 1):
        for _ in range(30):
            for path in ("/jobs", f"/jobs/{{job}}", "/machine", f"/jobs/{{job}}/log"):
                server.get(path)
        server.ask("GET", "/metrics")
        server.get("/no-such-path")
        step(n)
"""

ENGINE = STEPS + """
watch = subprocess.Popen([{binary!r}, "watch", "--pid", str(os.getpid()), "--interval", "50ms",
                          "--json"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
for n in range(1, {steps} + 1):
    watch.stdout.readline()
    subprocess.run(["true"])  # a process that comes and goes
    step(n)
watch.terminate()
watch.wait()
"""


@not_sanitized
@pytest.mark.parametrize("driver", [SERVER, ENGINE], ids=["server", "engine"])
def test_memory_of_the_server_and_the_engine_does_not_grow(ebb, tmp_path, driver):
    script = tmp_path / "driver.py"
    script.write_text(driver.format(folder=str(ROOT / "tests/cmd"), binary=binary(), steps=200,
                                    epoch=40))
    # the interval is short, because a fast machine finishes the 200 steps in less than two seconds
    result = ebb("run", "--fail-on", "leak", "-d", tmp_path / "run", "--no-heap", "--interval",
                 "50ms", "--", sys.executable, script, env={"EBB_BINARY": binary()})
    assert result.returncode == 0, result.stderr
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["marks"]["steps"] == 200
    judged = {p["name"]: p for p in run["verdict"]["processes"]}["ebb"]
    assert judged["leak"] is not True, judged
    # A leak of 22 bytes per request, or of 2.6 KiB per sampled process, would exceed the bound of 512 KiB.
    assert judged["floor_bytes"]["last"] - judged["floor_bytes"]["first"] <= 512 << 10, judged
