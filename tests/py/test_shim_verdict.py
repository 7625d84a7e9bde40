"""Tests that a job can request its own verdict, and that no other process receives the answer."""

import json
import subprocess
import sys

from jobs import PACKAGE, PATIENCE_S, environment

WAIT = """
import json, time
import ebb
until = time.monotonic() + 200
answer = ebb.verdict()
while not (answer and answer["peak_bytes"]) and time.monotonic() < until:
    time.sleep(0.05)
    answer = ebb.verdict()
print(json.dumps(answer))
"""


def test_job_that_requests_a_verdict_receives_its_own_verdict(run_job):
    run = run_job(sys.executable, "-c", WAIT)
    answer = json.loads(run.stdout)
    # The verdict is undecided, unless the machine is so slow that ebb sees flat memory.
    assert answer["verdict"] in ("undecided", "stable", "spiking", "plateaued")
    assert answer["leak"] is (None if answer["verdict"] == "undecided" else False)
    assert answer["peak_bytes"] > 0 and answer["samples"] >= 1
    assert run.marks() == []  # requests for a verdict are not recorded


def test_verdict_request_outside_a_run_returns_nothing():
    result = subprocess.run([sys.executable, "-c", "import ebb; print(ebb.verdict())"], text=True,
                            env=environment({"PYTHONPATH": PACKAGE}), stdout=subprocess.PIPE,
                            timeout=PATIENCE_S)
    assert result.stdout == "None\n"


QUESTIONS = """
import os, select, socket, tempfile
marks = os.environ["EBB_SOCKET"]
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.settimeout(100)

def listen(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)
    return s

def ask(text):
    out.sendto(text.encode(), marks)

folder = os.path.dirname(marks)
elsewhere = tempfile.mkdtemp()
outside = listen(os.path.join(elsewhere, "reply"))
os.mkdir(os.path.join(folder, "below"))
below = listen(os.path.join(folder, "below", "reply"))
beside = listen(os.path.join(folder, "reply"))
up = f"{folder}/../{os.path.basename(folder)}/reply"
ask(f"KIND=query\\nNAME=verdict\\nREPLY={elsewhere}/reply")
ask(f"KIND=query\\nNAME=verdict\\nREPLY={folder}/below/reply")
ask(f"KIND=query\\nNAME=verdict\\nREPLY={up}")
ask(f"KIND=query\\nNAME=verdict\\nREPLY=reply")
ask(f"KIND=query\\nNAME=verdict\\nREPLY={marks}")
ask(f"KIND=query\\nNAME=verdict\\nREPLY={folder}/nobody")
ask("KIND=query\\nNAME=verdict")
ask(f"KIND=query\\nNAME=weather\\nREPLY={folder}/reply")
ask(f"KIND=query\\nNAME=verdict\\nREPLY={folder}/reply")
print(bool(select.select([beside], [], [], 100)[0]))
beside.recv(1 << 20)
print(select.select([outside, below, beside], [], [], 0)[0])
os.unlink(os.path.join(folder, "below", "reply"))
os.rmdir(os.path.join(folder, "below"))
"""


def test_verdict_is_sent_only_to_sockets_next_to_the_mark_socket(run_job):
    run = run_job(sys.executable, "-c", QUESTIONS)
    assert (run.status, run.stdout, run.stderr) == (0, "True\n[]\n", "")
    assert run.marks() == []
    facts = json.loads((run.folder / "run.json").read_text())
    assert facts["marks"]["bad"] == 0
