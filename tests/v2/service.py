#!/usr/bin/env python3
"""Tests `ebb serve` and `ebb run` in cgroups like those of systemd on a machine with cgroup v2 only.

    tests/v2/service.py EBB

Requires root and a writable v2 hierarchy with the memory controller; otherwise prints the reason and exits with 77.
Creates the cgroup of a service with Delegate=yes and DelegateSubgroup=server, and the cgroup of a delegated scope.
Both belong to an ordinary user. Checks the cgroup of a job in each. Prints one line per check; exits with 1 if a check
failed.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

CGROUP = pathlib.Path("/sys/fs/cgroup")
USER = 65534
failures = 0


def check(title, ok, detail=""):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {title}{': ' + str(detail) if detail else ''}", flush=True)


def can_delegate():
    """Returns the cgroup in which cgroups with a memory controller can be created, or None."""
    if os.geteuid() != 0 or not (CGROUP / "cgroup.controllers").exists():
        return None
    if "memory" not in (CGROUP / "cgroup.controllers").read_text().split():
        return None
    if "memory" not in (CGROUP / "cgroup.subtree_control").read_text().split():
        try:
            (CGROUP / "cgroup.subtree_control").write_text("+memory")
        except OSError as e:
            # The root cgroup of a container contains processes. Move them into a child cgroup, as systemd does.
            leaf = CGROUP / "init"
            leaf.mkdir(exist_ok=True)
            for pid in (CGROUP / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (leaf / "cgroup.procs").write_text(pid)
            try:
                (CGROUP / "cgroup.subtree_control").write_text("+memory")
            except OSError:
                print(f"no cgroup with a memory controller can be created below {CGROUP}: {e}")
                return None
    return CGROUP


def give_to_user(group):
    for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control", group / "cgroup.threads"):
        os.chown(path, USER, USER)
    os.setxattr(group, "user.delegate", b"1")


@contextlib.contextmanager
def unit(name, subgroup=None):
    """Creates the cgroup of a unit and, if given, the subgroup in which its process starts."""
    group = CGROUP / name
    group.mkdir()
    try:
        give_to_user(group)
        start = group
        if subgroup:
            start = group / subgroup
            start.mkdir()
            give_to_user(start)
        yield group, start
    finally:
        until = time.monotonic() + 20
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        while group.exists() and time.monotonic() < until:
            for path in sorted(group.rglob("*"), reverse=True):
                if path.is_dir():
                    with contextlib.suppress(OSError):
                        path.rmdir()
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.1)
        check(f"{name}: the group can be removed", not group.exists())


def start_in(group, command, **options):
    def enter():
        (group / "cgroup.procs").write_text("0")
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)

    return subprocess.Popen(command, preexec_fn=enter, stdin=subprocess.DEVNULL, **options)


FILL = "b=bytearray(300<<20); b[::4096]=b'x'*len(b[::4096]); import time; time.sleep(1)"
LIMIT = "import os; g=open('/proc/self/cgroup').read().split('::')[1].strip(); " \
        "print(g, open('/sys/fs/cgroup'+g+'/memory.max').read().strip())"


def try_service(ebb, folder):
    state = folder / "state"
    with unit("ebb-try.service", "server") as (_group, start):
        server = start_in(start, [ebb, "serve", "--state-dir", state, "--listen", "none", "--gpus", "0"],
                          cwd=folder, stderr=open(folder / "serve.log", "w"))

        def client(command, *arguments):
            return subprocess.run([ebb, command, "--socket", state / "sock", *arguments], capture_output=True,
                                  text=True, cwd=folder)

        until = time.monotonic() + 30
        while not (state / "sock").exists() and time.monotonic() < until:
            time.sleep(0.05)
        answer = client("submit", "--wait", "--limit", "200M", "--", sys.executable, "-c", LIMIT)
        check("service: the server accepts a job", answer.returncode == 0, answer.stderr.strip())
        logs = client("logs", "1").stdout
        check("service: the job has a cgroup below the unit", "/ebb-try.service/ebb-" in logs, logs.strip())
        check("service: the job's limit is set in the cgroup", logs.split()[-1:] == [str(200 << 20)], logs.strip())
        answer = client("submit", "--wait", "--limit", "200M", "--", sys.executable, "-c", FILL)
        jobs = list(state.glob("runs/2-*/run.json"))
        end = json.loads(jobs[0].read_text())["end"] if jobs else {}
        check("service: a job above its limit is stopped", answer.returncode not in (0, 125),
              {k: end.get(k) for k in ("status", "cause", "reason", "signal")})
        server.terminate()
        check("service: the server stops", server.wait(30) == 0)


def try_scope(ebb, folder):
    with unit("ebb-try.scope") as (_group, start):
        run = start_in(start, [ebb, "run", "-q", "--limit", "200M", "--", sys.executable, "-c", LIMIT],
                       cwd=folder, stdout=subprocess.PIPE, text=True)
        out = run.communicate()[0]
        check("scope: the job has a cgroup below the scope", "/ebb-try.scope/ebb-" in out, out.strip())
        check("scope: the job's limit is set in the cgroup", out.split()[-1:] == [str(200 << 20)], out.strip())


def main():
    ebb = os.path.abspath(sys.argv[1])
    if not can_delegate():
        print("skipped: needs root and a writable cgroup v2 hierarchy with the memory controller")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-v2-"))
    folder.chmod(0o755)
    os.chown(folder, USER, USER)
    try:
        try_service(ebb, folder)
        try_scope(ebb, folder)
    except Exception:
        log = folder / "serve.log"
        print(log.read_text() if log.exists() else "")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'failed' if failures else 'passed'}: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
