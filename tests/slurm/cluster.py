"""A real Slurm cluster on this machine: munged, slurmctld and several slurmd on loopback, without privileges and
without system services. All files are in one temporary folder. At the end of the with statement, all processes are
ended and the folder is removed.

    with SlurmCluster(nodes=2) as cluster:
        result = cluster.srun("-N2", "hostname")

`env` has SLURM_CONF for Slurm's commands; `folder` is shared by all nodes.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue")

FINAL_STATES = ("CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")

CONFIG = """\
ClusterName=mini
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={control_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
MinJobAge=300
SlurmdTimeout=30
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/linux
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed.txt
AccountingStorageType=accounting_storage/none
{more}NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs={cpus} RealMemory={memory_mib}
PartitionName=main Nodes=ALL Default=YES MaxTime=60
"""


def why_not():
    """Returns the reason why no cluster can be started on this machine, or None."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [p for p in PROGRAMS if not shutil.which(p, path=path)]
    if missing:
        return f"not installed: {' '.join(missing)} (scripts/setup.sh slurm)"
    # slurmd exits if no cgroup file system is mounted
    return None if os.path.ismount("/sys/fs/cgroup") else "no file system is mounted on /sys/fs/cgroup"


def free_ports(count):
    """Finds COUNT consecutive free ports; returns the first of them."""
    for first in range(20000 + os.getpid() % 1000 * 10, 31000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()
    raise RuntimeError("no free ports")


class SlurmCluster:
    def __init__(self, nodes=2, cpus=4, memory_mib=4000, more_config=""):
        self.nodes, self.cpus, self.memory_mib, self.more_config = nodes, cpus, memory_mib, more_config
        self.folder = None
        self.env = None
        self._processes = {}

    # ---- start and end ----

    def __enter__(self):
        reason = why_not()
        if reason:
            raise RuntimeError(reason)
        # The path must be short: socket paths below it are limited to 108 bytes.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-slurm-", dir="/tmp"))
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.env:
            subprocess.run(["scancel", "--user", self._user(), "--signal=KILL"], env=self.env, timeout=20,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for name in sorted(self._processes, reverse=True):  # slurmd, slurmctld, munged
            self._end(self._processes[name])
        self._end_steps()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _user():
        import pwd
        return pwd.getpwuid(os.geteuid()).pw_name

    def _configure(self):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        first = free_ports(self.nodes + 1)
        more = self.more_config.strip()
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            control_port=first, user=self._user(), folder=self.folder, nodes=self.nodes,
            host=socket.gethostname(), first_port=first + 1, last_port=first + self.nodes, cpus=self.cpus,
            memory_mib=self.memory_mib, more=more + "\n" if more else ""))
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        # munged refuses folders that other users may write to.
        self.folder.chmod(0o755)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        self.env.update(SLURM_CONF=str(self.folder / "slurm.conf"), PATH=path)

    def _spawn(self, name, *command):
        log = open(self.folder / f"{name}.out", "ab")
        self._processes[name] = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, cwd=self.folder, start_new_session=True)
        log.close()

    def _start(self):
        f = self.folder
        self._spawn("munged", "munged", "--foreground", "--force", f"--key-file={f}/munge.key",
                    f"--socket={f}/munge.socket", f"--pid-file={f}/munged.pid", f"--log-file={f}/munged.log",
                    f"--seed-file={f}/munge.seed", "--num-threads=2")
        self.wait_for(lambda: (f / "munge.socket").exists(), 20, "munged")
        self._spawn("slurmctld", "slurmctld", "-D", "-i")
        for n in range(1, self.nodes + 1):
            self.start_node(n)
        self.wait_for(self.is_up, 60, "Slurm")

    def start_node(self, number):
        self._spawn(f"slurmd.n{number}", "slurmd", "-D", "-N", f"n{number}")

    def is_up(self):
        result = self.command("sinfo", "-h", "-N", "-o", "%T", timeout=10)
        states = result.stdout.split()
        return result.returncode == 0 and len(states) == self.nodes and all(
            s.rstrip("*") in ("idle", "mixed", "allocated") and not s.endswith("*") for s in states)

    def _end(self, process):
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_steps(self):
        """Kills steps and tasks that Slurm left running; they are found by this cluster's name in their environment."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for pid in (p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass

    # ---- commands ----

    def node_pid(self, number):
        return self._processes[f"slurmd.n{number}"].pid

    def kill_node(self, number):
        """Kills slurmd of a node. Its steps continue to run."""
        process = self._processes.pop(f"slurmd.n{number}")
        process.kill()
        process.wait()

    def command(self, *arguments, **options):
        options.setdefault("timeout", 120)
        options.setdefault("cwd", self.folder)
        options["env"] = {**self.env, **options.pop("env", {})}
        return subprocess.run([str(a) for a in arguments], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def srun(self, *arguments, **options):
        return self.command("srun", *arguments, **options)

    def start_srun(self, *arguments, **options):
        options.setdefault("cwd", self.folder)
        options["env"] = {**self.env, **options.pop("env", {})}
        return subprocess.Popen(["srun", *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def sbatch(self, script, *options, **more):
        """Submits SCRIPT, the text of a batch script; returns the job id."""
        path = self.folder / f"job-{time.monotonic_ns()}.sh"
        path.write_text(script)
        result = self.command("sbatch", "--parsable", *options, path, **more)
        if result.returncode:
            raise RuntimeError(f"sbatch: {result.stderr}")
        return result.stdout.strip().split(";")[0]

    def job_state(self, job):
        """Returns Slurm's state of a job, such as PENDING, RUNNING or COMPLETED; "" if it is unknown."""
        shown = self.command("scontrol", "-o", "show", "job", job).stdout
        return next((w[9:] for w in shown.split() if w.startswith("JobState=")), "")

    def wait_for_state(self, job, state, seconds):
        """Waits until a job is in state STATE. Fails at once if the job has ended in another state."""
        def has_state():
            now = self.job_state(job)
            if now in FINAL_STATES and now != state:
                raise RuntimeError(f"job {job} is {now}, not {state}\n{self.logs()}")
            return now == state
        self.wait_for(has_state, seconds, f"job {job} {state}")

    def wait_for(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {seconds} s\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        """Returns the last lines of all log files, for the message of a failed test."""
        texts = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            lines = path.read_text(errors="replace").splitlines()[-8:]
            texts += [f"-- {path.name}", *lines] if lines else []
        return "\n".join(texts)
