"""Tests ebb as PID 1 of a container: orphans, signals, the termination log, and the manifests in contrib/kubernetes."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from commands import ROOT, binary, environment, refused_with, run_ebb, wait_for

# Prepended to a command, which then runs as PID 1 of a new pid namespace with its own /proc.
CONTAINER = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--pid", "--fork", "--mount-proc",
             "--kill-child"]


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    if subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no pid namespaces")


def start(tmp_path, *arguments, env=None):
    """Starts ebb in a container. Returns the unshare process, and the pid of ebb as seen from outside."""
    process = subprocess.Popen([*CONTAINER, binary(), "run", *map(str, arguments)], cwd=tmp_path,
                               env=environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    return process, wait_for(lambda: children_of(process.pid), "the container")[0]


def children_of(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(stat[1]) == pid:
            found.append(int(name))
    return found


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def test_ebb_as_container_init_reaps_orphans(tmp_path):
    process, init = start(tmp_path, "--", "sh", "-c", f"touch {tmp_path}/up; exec sleep 600")
    try:
        wait_for((tmp_path / "up").exists, "the job")
        # Like `kubectl exec`, this starts a process in the namespace; the parent of the process then exits.
        enter = ["nsenter", *([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]), "--target", str(init),
                 "--pid", "sh", "-c", f"(sh -c 'touch {tmp_path}/in; sleep 0.2' >/dev/null 2>&1 &)"]
        if subprocess.run(enter, capture_output=True).returncode:
            pytest.skip("this machine does not allow nsenter")
        wait_for((tmp_path / "in").exists, "the orphan")
        # the remaining child is ebb's sentinel
        wait_for(lambda: len(children_of(init)) == 1, "the end of the orphan")
        assert "Z" not in map(state_of, children_of(init))
    finally:
        os.kill(init, signal.SIGKILL)
        process.communicate(timeout=30)


def test_ebb_as_container_init_forwards_sigterm_and_exit_status(tmp_path):
    process, init = start(tmp_path, "--", "sh", "-c", f"trap 'exit 7' TERM; touch {tmp_path}/up; "
                                                      "while :; do sleep 0.05; done")
    wait_for((tmp_path / "up").exists, "the job")
    os.kill(init, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_termination_log_has_a_summary_of_at_most_4_kib(tmp_path):
    log = tmp_path / "log"
    log.write_text("x" * 9000)
    result = run_ebb("run", "--quiet", "--termination-log", log, "--", sys.executable, "-c",
                     "import time; time.sleep(0.5)", cwd=tmp_path)
    assert result.returncode == 0 and result.stderr == ""
    text = log.read_text()
    assert text.startswith("ebb  ") and "finished in" in text and len(text.encode()) <= 4096


def test_termination_log_has_a_verdict_if_the_container_is_killed(tmp_path):
    log = tmp_path / "log"
    process, init = start(tmp_path, "--termination-log", log, "--", sys.executable, "-c",
                          "import time\nb = bytearray(80 << 20)\nwhile 1: time.sleep(0.1)")
    wait_for(lambda: log.exists() and "job memory" in log.read_text(), "the first version")
    os.kill(init, signal.SIGKILL)  # kills all processes of the namespace, as the OOM killer does with a container
    process.communicate(timeout=60)
    assert log.read_text().startswith("the job was killed together with ebb; ")


def test_run_with_an_unwritable_termination_log_is_refused(tmp_path):
    refused_with(run_ebb("run", "--termination-log", tmp_path / "none" / "x", "--", "true", cwd=tmp_path),
                 "--termination-log: cannot write", status=125)


def test_termination_log_is_written_by_default_in_a_pod(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount another /dev")
    script = f"""set -e
mkdir {tmp_path}/dev && mount -t tmpfs none {tmp_path}/dev
for name in null zero urandom random tty; do
    touch {tmp_path}/dev/$name && mount --bind /dev/$name {tmp_path}/dev/$name
done
mkdir {tmp_path}/dev/shm {tmp_path}/dev/pts
touch {tmp_path}/dev/termination-log
mount --rbind {tmp_path}/dev /dev
{binary()} run -q -- true
cat /dev/termination-log
KUBERNETES_SERVICE_HOST=10.0.0.1 {binary()} run -q -- true
cat /dev/termination-log
"""
    result = subprocess.run(["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, env=environment(),
                            capture_output=True, text=True, timeout=60)
    if "mount" in result.stderr:
        pytest.skip("this machine allows no mounts")
    assert result.stdout.count("ebb  ") == 1 and "finished in" in result.stdout, result


# ---- manifests ----


def test_kubernetes_manifests_match_their_schemas():
    python = pathlib.Path(os.environ.get("EBB_CLUSTER", ROOT / "build" / "cluster")) / "bin" / "python"
    if not python.exists():
        pytest.skip("the Kubernetes schemas are not installed (scripts/setup.sh cluster)")
    manifests = sorted((ROOT / "contrib" / "kubernetes").glob("*.yaml"))
    assert manifests
    result = subprocess.run([python, "-c", CHECK, *manifests], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


CHECK = """
import sys, yaml, kubernetes_validate
for path in sys.argv[1:]:
    for document in yaml.safe_load_all(open(path)):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
"""
