"""Programs that run as ranks under Slurm, and functions that read the run folders of such jobs."""

import json
import os
import signal

# A job whose ranks report steps. The rank whose number is LEAKER also leaks MIB MiB in each step.
TRAINER = """
import os, sys, time
import ebb
steps, leaker, mib = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rank = int(os.environ["SLURM_PROCID"])
base = bytearray(os.urandom(1 << 20)) * 20
kept = []
for step in range(1, steps + 1):
    if rank == leaker:
        kept.append(bytearray(os.urandom(4096)) * int(mib * 256))
    time.sleep(0.02)
    ebb.step(step, steps_per_epoch=int(sys.argv[4]) if len(sys.argv) > 4 else steps // 4)
print("rank", rank, "finished", flush=True)
"""

# A job that runs until the file `stop` exists. Each rank writes the names of the signals that it receives to a file.
COUNTER = """
import os, signal, time
rank = os.environ["SLURM_PROCID"]
seen = open(f"seen.{rank}", "w", buffering=1)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, lambda n, _: print(signal.Signals(n).name, file=seen))
open(f"ready.{rank}", "w").close()
while not os.path.exists("stop"):
    time.sleep(0.02)
"""


def job_folder(cluster, where=None):
    """Returns the newest job folder."""
    runs = (where or cluster.folder) / "ebb-runs"
    folders = [f for f in runs.iterdir() if f.is_dir() and not f.is_symlink()]
    return max(folders, key=lambda f: f.stat().st_mtime_ns)


def node(folder, name):
    return json.loads((folder / name / "run.json").read_text())


def rank_verdicts(folder):
    """Returns {rank: the verdict on its first process}."""
    words = {}
    for path in sorted(folder.glob("node-*/run.json")):
        doc = json.loads(path.read_text())
        by_pid = {p["pid"]: p["verdict"] for p in doc["verdict"]["processes"]}
        words.update({r["rank"]: by_pid.get(r["pid"]) for r in doc["ranks"]})
    return words


def kill_supervisor(run):
    os.kill(run["supervisor_pid"], signal.SIGKILL)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])

# Like TRAINER, but also writes a checkpoint on request. Logs the time of each checkpoint ("saved") and of SIGTERM
# ("stopped").
SAVER = """
import json, os, signal, sys, time
import ebb
steps, leaker, mib = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rank = int(os.environ["SLURM_PROCID"])
log = open(f"log.{rank}", "a", buffering=1)
def stop(*_):
    print("stopped", time.monotonic(), file=log)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
first = 1
if os.environ.get("EBB_RESUME") == "1":
    first = json.load(open(f"saved.{rank}"))["step"] + 1
    print("resumed", first, file=log)
kept = []
for step in range(first, steps + 1):
    if rank == leaker:
        kept.append(bytearray(os.urandom(4096)) * int(mib * 256))
    time.sleep(0.02)
    ebb.step(step)
    if ebb.checkpoint_requested():
        with open(f"saved.{rank}", "w") as f:
            json.dump({"step": step}, f)
        print("saved", time.monotonic(), file=log)
        ebb.checkpoint_done(f"saved.{rank}")
print("finished", file=log)
"""
