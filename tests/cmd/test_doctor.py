"""`ebb doctor`: what is true of this machine, with and without rights."""

import json
import os
import platform
import re
import resource

import pytest

LEVELS = {"ok", "note", "problem"}
ALWAYS = {"kernel", "process tree", "other processes", "unique memory", "memory pressure", "cgroup",
          "effective limit", "memory", "swap", "address space", "overcommit", "huge pages",
          "/dev/shm", "ptrace", "pidfd", "subreaper", "open files", "GPU", "malloc", "Python"}


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


def leftovers():
    """Groups that a look at cgroups has left behind."""
    return [os.path.join(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup")
            for name in names if name.startswith("ebb-doctor-")]


def test_json_holds_every_check_and_the_facts_of_this_machine(ebb):
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


def test_without_rights_it_works_and_leaves_nothing(ebb_as_nobody):
    found = findings(ebb_as_nobody("doctor", "--json"))
    assert ALWAYS <= set(found)
    if os.geteuid() == 0:  # nobody may not write into root's cgroup
        assert found["cgroup"]["level"] == "note" and found["cgroup"]["advice"]
    assert leftovers() == []


def test_a_cgroup_that_can_be_made_is_removed_again(ebb):
    found = findings(ebb("doctor", "--json"))
    assert found["cgroup"]["data"] is None or "can_create" in found["cgroup"]["data"]
    assert leftovers() == []


def test_text_is_aligned_and_plain_and_has_the_same_checks_as_json(ebb):
    result = ebb("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    *lines, empty, total = result.stdout.splitlines()
    assert empty == "" and "\x1b" not in result.stdout
    assert re.fullmatch(r"\d+ ok, \d+ notes?, \d+ problems?", total)
    assert all(len(line) <= 80 or " " not in line[26:] for line in lines)
    starts = [line for line in lines if not line.startswith(" ")]
    assert all(re.match(r"(ok       |note     |problem  )\S.{15} \S", line) for line in starts)
    assert {line[9:26].strip() for line in starts} == set(findings(ebb("doctor", "--json")))


def test_malloc_settings_are_shown_harmlessly(ebb):
    env = {"MALLOC_ARENA_MAX": "2", "PYTHONMALLOC": "\x1b[31mmalloc"}
    found = findings(ebb("doctor", "--json", env=env))
    assert found["malloc"]["data"]["MALLOC_ARENA_MAX"] == "2"
    assert found["malloc"]["data"]["PYTHONMALLOC"] == "\x1b[31mmalloc"
    text = ebb("doctor", env=env).stdout
    assert "MALLOC_ARENA_MAX=2" in text and "\x1b" not in text and r"\e[31mmalloc" in text


def test_few_open_files_come_with_advice(ebb):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
    found = findings(ebb("doctor", "--json", preexec_fn=lower))
    assert found["open files"]["level"] == "note"
    assert found["open files"]["data"] == {"soft": 256, "hard": 512}
    assert "ulimit" in found["open files"]["advice"]


@pytest.mark.parametrize("inside", ["lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_torch_is_found_beside_the_python_on_the_path(ebb, tmp_path, inside):
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


def test_no_python_is_no_trouble(ebb, tmp_path):
    found = findings(ebb("doctor", "--json", env={"PATH": str(tmp_path)}))
    assert found["Python"]["fact"] == "none on PATH" and "torch" not in found
