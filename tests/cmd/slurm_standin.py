"""Fake commands of Slurm, which run jobs on this machine and fail on request of a test.

`make_slurm(folder)` makes FOLDER/bin with sbatch, squeue, scancel and sacct. These files in FOLDER change how the
commands behave:

    down      every command fails as if Slurm's controller did not answer
    refuse    sbatch fails with the text of this file
    hold      submitted jobs stay pending
    mute      sbatch submits the job and is killed before it prints the job's number
    slow      each command takes the number of seconds in this file
    accounts  sacct works; if this file is missing, sacct fails as on a cluster without accounting
"""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

COMMANDS = ("sbatch", "squeue", "scancel", "sacct")


class Slurm:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def has(self, name):
        return (self.folder / name).exists()

    def set(self, name, text=""):
        (self.folder / name).write_text(str(text))

    def clear(self, name):
        (self.folder / name).unlink(missing_ok=True)

    def change(self, function):
        """Calls FUNCTION with the jobs, a dict by job number, and saves its changes under a lock. The file is replaced
        atomically, so it stays intact if this process is killed."""
        path, new = self.folder / "jobs.json", self.folder / "jobs.new"
        with open(self.folder / "jobs.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            jobs = json.loads(path.read_text() if path.exists() else "{}")
            result = function(jobs)
            new.write_text(json.dumps(jobs))
            new.replace(path)
            return result

    def jobs(self):
        return self.change(lambda jobs: list(jobs.values()))

    def purge(self):
        """Removes all jobs that have ended, as Slurm does after MinJobAge."""
        def forget(jobs):
            for number in [n for n, j in jobs.items() if j["state"] not in ("PENDING", "RUNNING")]:
                del jobs[number]
        self.change(forget)

    def end(self, number, state):
        """Kills all processes of a job at once, as a node failure would, so that ebb cannot record the end of the
        job."""
        job = self.change(lambda jobs: jobs[str(number)])
        for pid in [job["pid"], *_below(job["pid"])]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.change(lambda jobs: jobs[str(number)].update(state=state))

    def environment(self):
        return {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}


def _below(pid):
    """Returns the pids of all descendants of a process."""
    found, parents = [], {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text()
        except OSError:
            continue
        parents[int(name)] = int(stat.rsplit(")", 1)[1].split()[1])
    todo = [pid]
    while todo:
        parent = todo.pop()
        children = [p for p, of in parents.items() if of == parent]
        found += children
        todo += children
    return found


def make_slurm(folder):
    folder = pathlib.Path(folder)
    (folder / "bin").mkdir(parents=True)
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\nexec {sys.executable} -SE {pathlib.Path(__file__).resolve()} "
                        f"{folder} {name} \"$@\"\n")
        path.chmod(0o755)
    return Slurm(folder)


# ---- sbatch, squeue, scancel and sacct ----


def fail(command, text):
    sys.exit(f"{command}: error: {text}")


def sbatch(slurm, arguments):
    if slurm.has("refuse"):
        print("sbatch: error: Batch job submission failed: " + (slurm.folder / "refuse").read_text(), file=sys.stderr)
        sys.exit(1)
    count = next(i for i, a in enumerate(arguments) if not a.startswith("--"))
    options = dict(a[2:].partition("=")[::2] for a in arguments[:count])

    def add(jobs):
        number = max(map(int, jobs), default=0) + 1
        jobs[str(number)] = {"number": number, "name": options["job-name"], "state": "PENDING", "pid": 0,
                             "options": options, "arguments": arguments}
        return number
    number = slurm.change(add)
    subprocess.Popen([sys.executable, "-SE", __file__, str(slurm.folder), "job", str(number), *arguments[count:]],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     cwd=options["chdir"] if os.path.isdir(options["chdir"]) else "/tmp", start_new_session=True,
                     pass_fds=())
    if slurm.has("mute"):
        os.kill(os.getpid(), signal.SIGKILL)
    print(number, flush=True)


def job(slurm, arguments):
    """Runs the command of one job and records its state from start to end."""
    number, command = arguments[0], arguments[1:]
    os.closerange(3, 256)  # releases the lock inherited from the server

    def state(new, **more):
        def change(jobs):
            if number in jobs and jobs[number]["state"] in ("PENDING", "RUNNING"):
                jobs[number].update(state=new, **more)
                return True
            return False
        return slurm.change(change)
    while slurm.has("hold") or slurm.has("down"):
        time.sleep(0.05)
        if not state("PENDING"):
            return
    options = slurm.change(lambda jobs: jobs[number]["options"])
    if not state("RUNNING"):
        return
    with open(options["error"].replace("%%", "%"), "ab") as error:
        child = subprocess.Popen(["/bin/sh", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=error, env={**os.environ, "SLURM_JOB_ID": number})
    state("RUNNING", pid=child.pid)
    status = child.wait()
    state("COMPLETED" if status == 0 else "FAILED")


def squeue(slurm, arguments):
    assert "--format=%A|%T|%r|%j" in arguments and "--states=all" in arguments
    for j in slurm.jobs():
        reason = "Resources" if j["state"] == "PENDING" else "None"
        print(f"{j['number']}|{j['state']}|{reason}|{j['name']}")


def scancel(slurm, arguments):
    def cancel(jobs):
        j = jobs.get(arguments[0])
        if not j or j["state"] not in ("PENDING", "RUNNING"):
            return 0
        if j["state"] == "PENDING":
            j["state"] = "CANCELLED"
        return j["pid"]
    pid = slurm.change(cancel)
    if pid:
        os.kill(pid, signal.SIGTERM)


def sacct(slurm, arguments):
    if not slurm.has("accounts"):
        sys.exit("Slurm accounting storage is disabled")
    print((slurm.folder / "accounts").read_text())


def main():
    slurm, command = Slurm(sys.argv[1]), sys.argv[2]
    if command in COMMANDS:
        if slurm.has("slow"):
            time.sleep(float((slurm.folder / "slow").read_text()))
        if slurm.has("down"):
            fail(command, "Unable to contact slurm controller (connect failure)")
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sacct": sacct, "job": job}[command](slurm, sys.argv[3:])


if __name__ == "__main__":
    main()
