"""Runs a program of the zoo, and records its steps and pauses for bench/attach/peers.py.

    steps.py OUTPUT zoo/NAME/main.py [ARGUMENT]...

OUTPUT receives a line "step TIME CPU" at the end of each step. A second thread sleeps for 1 ms at a time; if it slept
for more than 5 ms, OUTPUT receives a line "pause TIME LENGTH". Times are in seconds."""

import os
import pathlib
import runpy
import sys
import threading
import time

BEAT_S, PAUSE_S = 0.001, 0.005

output = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
sys.argv = sys.argv[2:]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "zoo"))

import common  # noqa: E402  pylint: disable=wrong-import-position


def beat():
    last = time.monotonic()
    while True:
        time.sleep(BEAT_S)
        now = time.monotonic()
        if now - last > PAUSE_S:
            os.write(output, f"pause {now} {now - last}\n".encode())
        last = now


def timed(step):
    def run(self, *arguments):
        step(self, *arguments)
        os.write(output, f"step {time.monotonic()} {time.process_time()}\n".encode())
    return run


common.Job.step = timed(common.Job.step)
threading.Thread(target=beat, daemon=True).start()
runpy.run_path(sys.argv[0], run_name="__main__")
