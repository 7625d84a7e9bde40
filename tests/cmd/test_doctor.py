"""Tests that the findings of `ebb doctor` are true for this machine, with and without
privileges."""

import glob
import json
import os
import platform
import re
import resource

import pytest

LEVELS = {"ok", "note", "problem"}
ALWAYS = {"kernel", "process tree", "other processes", "unique memory", "memory pressure", "cgroup",
          "effective limit", "memory", "swap", "address space", "overcommit", "huge pages",
          "/dev/shm", "ptrace", "pidfd", "subreaper", "open files", "locked memory",
          "GPU", "malloc", "Python", "parts of ebb"}


def findings(result):
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert set(document) == {"count", "checks"}
    assert set(document["count"]) == LEVELS
    for level in LEVELS:
        assert document["count"][level] == sum(c["level"] == level for c in document["checks"])
    for check in document["checks"]:
        assert set(check) == {"name", "level", "fact", "advice", "data"}
        assert check["level"] in LEVELS and check["fact"]
        assert (check["advice"] is None) == (check["level"] == "ok"), check
    return {check["name"]: check for check in document["checks"]}


def groups():
    """Returns all cgroups on this machine that ebb created."""
    return {os.path.join(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup")
            for name in names if name.startswith("ebb-")}


def doctor_and_its_groups(ebb):
    """Runs `ebb doctor`; returns its findings and the cgroups that it left behind. The names of its cgroups contain its
    pid; cgroups with another pid were left by processes that were killed."""
    before = groups()
    read, write = os.pipe()
    try:
        found = findings(ebb("doctor", "--json",
                             preexec_fn=lambda: os.write(write, str(os.getpid()).encode())))
        pid = os.read(read, 16).decode()
    finally:
        os.close(read)
        os.close(write)
    return found, [path for path in groups() - before
                   if os.path.basename(path).startswith(f"ebb-{pid}-")]


def another_job_runs():
    names = glob.glob("/proc/[0-9]*/comm")
    return any(read_if_there(name) == "ebb-supervisor\n" for name in names)


def read_if_there(path):
    try:
        return open(path).read()
    except OSError:
        return ""


def handed_down():
    """Returns the contents of cgroup.subtree_control (the controllers enabled for child cgroups) of each root
    cgroup."""
    paths = [os.path.join(folder, "cgroup.subtree_control")
             for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
    return {path: open(path).read() for path in paths if os.path.exists(path)}


def test_doctor_json_has_every_check_with_values_of_this_machine(ebb):
    found = findings(ebb("doctor", "--json"))
    assert ALWAYS <= set(found)
    assert found["kernel"]["data"]["release"] == platform.release()
    total = int(re.search(r"MemTotal: +(\d+) kB", open("/proc/meminfo").read())[1]) * 1024
    assert found["memory"]["data"]["total_bytes"] == total
    shm = os.statvfs("/dev/shm")
    assert found["/dev/shm"]["data"]["total_bytes"] == shm.f_blocks * shm.f_frsize
    limit = found["effective limit"]["data"]
    assert 0 < limit["limit_bytes"] and limit["headroom_bytes"] <= limit["limit_bytes"]
    assert found["overcommit"]["data"]["mode"] == int(open("/proc/sys/vm/overcommit_memory").read())


def test_doctor_command_runs_unprivileged_and_leaves_no_cgroup_behind(ebb_as_nobody):
    found, left = doctor_and_its_groups(ebb_as_nobody)
    assert ALWAYS <= set(found) and left == []
    if os.geteuid() == 0:  # The user nobody must not have write access to a cgroup of root.
        assert found["cgroup"]["level"] == "note" and found["cgroup"]["advice"]


def test_doctor_command_removes_the_cgroups_created_by_its_checks(ebb):
    before = handed_down()
    found, left = doctor_and_its_groups(ebb)
    data = found["cgroup"]["data"]
    assert left == []
    if handed_down() != before and another_job_runs():
        pytest.skip("another job may have changed the controllers of a cgroup")
    assert handed_down() == before
    if data is not None:
        assert data["can_create"] or not (data["memory_limit"] or data["kill"])
        assert (found["cgroup"]["level"] == "ok") == data["memory_limit"]


def test_doctor_predicts_whether_a_job_gets_a_cgroup_and_a_limit(ebb, tmp_path):
    data = findings(ebb("doctor", "--json"))["cgroup"]["data"]
    result = ebb("run", "--json", "--limit", "1G", "--run-dir", tmp_path / "r", "--", "true")
    assert result.returncode == 0, result.stderr
    guard = json.loads(result.stderr)["guard"]
    assert guard["kernel_limit"] == bool(data and data["memory_limit"]), guard
    assert (guard["cgroup"] is not None) == bool(data and data["can_create"]), guard


def test_doctor_command_gives_advice_if_memory_cannot_be_locked(ebb_as_nobody):
    def forbid():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    found = findings(ebb_as_nobody("doctor", "--json", preexec_fn=forbid))["locked memory"]
    assert found["level"] == "note" and found["data"] == {"locked": False, "limit_bytes": 0}
    assert "ulimit -l" in found["advice"]


def test_doctor_text_is_aligned_and_has_the_same_checks_as_json(ebb):
    result = ebb("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    *lines, empty, total = result.stdout.splitlines()
    assert empty == "" and "\x1b" not in result.stdout
    assert re.fullmatch(r"\d+ ok, \d+ notes?, \d+ problems?", total)
    assert all(len(line) <= 80 or " " not in line[26:] for line in lines)
    starts = [line for line in lines if not line.startswith(" ")]
    assert all(re.match(r"(ok       |note     |problem  )\S.{15} \S", line) for line in starts)
    assert {line[9:26].strip() for line in starts} == set(findings(ebb("doctor", "--json")))


def test_doctor_text_escapes_control_codes_in_malloc_settings(ebb):
    env = {"MALLOC_ARENA_MAX": "2", "PYTHONMALLOC": "\x1b[31mmalloc"}
    found = findings(ebb("doctor", "--json", env=env))
    assert found["malloc"]["data"]["MALLOC_ARENA_MAX"] == "2"
    assert found["malloc"]["data"]["PYTHONMALLOC"] == "\x1b[31mmalloc"
    text = ebb("doctor", env=env).stdout
    assert "MALLOC_ARENA_MAX=2" in text and "\x1b" not in text and r"\e[31mmalloc" in text


def test_doctor_command_warns_about_a_low_limit_on_open_files(ebb):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
    found = findings(ebb("doctor", "--json", preexec_fn=lower))
    assert found["open files"]["level"] == "note"
    assert found["open files"]["data"] == {"soft": 256, "hard": 512}
    assert "ulimit" in found["open files"]["advice"]


@pytest.mark.parametrize("inside", ["lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_doctor_finds_the_torch_of_the_first_python_on_path(ebb, tmp_path, inside):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    torch = tmp_path / inside / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("from typing import Optional\n__version__ = '2.9.1+cpu'\n")
    found = findings(ebb("doctor", "--json", env={"PATH": str(tmp_path / "bin")}))
    assert found["Python"]["data"]["path"] == str(python)
    assert found["torch"]["data"]["version"] == "2.9.1+cpu"
    assert os.path.samefile(found["torch"]["data"]["path"], torch)


@pytest.mark.parametrize("symbol, conf, words", [
    (b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "", None),
    (b"_ZN3c1027reportMemoryUsageToProfilerEPvl", "", "does not call"),
    (b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "backend:cudaMallocAsync", "cudaMallocAsync")])
def test_doctor_reports_whether_gpu_memory_can_be_traced_to_lines(ebb, tmp_path, symbol, conf, words):
    python, torch = tmp_path / "bin" / "python3", tmp_path / "lib" / "python3" / "site-packages" / "torch"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    (torch / "lib").mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.9.1'\n")
    (torch / "lib" / "libc10_cuda.so").write_bytes(b"\0" * 99 + symbol + b"\0")
    found = findings(ebb("doctor", "--json", env={"PATH": str(python.parent), "PYTORCH_CUDA_ALLOC_CONF": conf}))
    assert found["torch"]["data"]["gpu_lines"] == (words is None)
    assert found["torch"]["level"] == ("note" if words else "ok")
    assert not words or words in found["torch"]["advice"]


def test_doctor_command_succeeds_if_python_is_missing(ebb, tmp_path):
    found = findings(ebb("doctor", "--json", env={"PATH": str(tmp_path)}))
    assert found["Python"]["fact"] == "none on PATH" and "torch" not in found


def test_doctor_reports_parts_missing_beside_a_copied_ebb_program(ebb, ebb_as_nobody):
    alone = findings(ebb_as_nobody("doctor", "--json"))["parts of ebb"]
    assert alone["level"] == "note" and alone["data"] == {"shim": None, "heap": None}
    assert "make install" in alone["advice"]
    built = findings(ebb("doctor", "--json"))["parts of ebb"]
    assert (built["level"] == "ok") == all(built["data"].values())
