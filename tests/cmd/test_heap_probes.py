"""Tests the USDT probes of the preloaded library, which follow OpenTelemetry's conventions."""

import math
import platform
import re
import shutil
import subprocess

import pytest

from test_heap_hooks import LIBRARY, SURE, job  # noqa: F401

INTERVAL = 16384


@pytest.fixture(scope="module")
def notes():
    """Returns the probes by name, parsed from the output of readelf."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    text = subprocess.run(["readelf", "-nW", LIBRARY], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    found = re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (\w+), Base: (\w+), "
                       r"Semaphore: (\w+)\s+Arguments: (.*)", text)
    return {f"{provider}:{name}": {"at": at, "base": int(base, 0), "semaphore": semaphore,
                                   "arguments": arguments.split()}
            for provider, name, at, base, semaphore, arguments in found}


def section(name):
    """Returns address and size of an ELF section of the library."""
    text = subprocess.run(["readelf", "-SW", LIBRARY], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    at, size = re.search(rf" {re.escape(name)} +\w+ +(\w+) \w+ (\w+) ", text).groups()
    return int(at, 16), int(size, 16)


def test_heap_library_has_usdt_probes_for_alloc_and_free(notes):
    assert sorted(notes) == ["otel_memory:alloc", "otel_memory:free"]
    for name, n in (("otel_memory:alloc", 3), ("otel_memory:free", 1)):
        arguments = notes[name]["arguments"]
        assert len(arguments) == n
        assert all(re.fullmatch(r"8@%?[a-z][a-z0-9]+", argument) for argument in arguments)


def test_each_usdt_probe_has_its_own_semaphore(notes):
    start, size = section(".probes")
    semaphores = [int(probe["semaphore"], 0) for probe in notes.values()]
    assert len(set(semaphores)) == 2
    assert all(start <= at < start + size for at in semaphores)
    assert {probe["base"] for probe in notes.values()} == {section(".stapsdt.base")[0]}


def test_usdt_listener_receives_sampled_allocations_and_frees(job, notes):  # noqa: F811
    probes = [notes["otel_memory:alloc"], notes["otel_memory:free"]]
    run = job.run("probes", *(probe[key] for probe in probes for key in ("at", "semaphore")),
                  settings=f"interval={INTERVAL}")
    assert run.returncode == 0, run
    truth, weight, squares, samples, ends, unknown, wrong, later = map(int, run.stdout.split())
    # on other processors, the test program can set the semaphores but not receive probes
    if platform.machine() == "x86_64":
        # At high sample rates the sampling interval grows, and with it the weight of each sample.
        assert abs(weight - truth) <= SURE * math.sqrt(squares), (weight, truth, squares)
        assert samples == ends > 0
        assert (unknown, wrong) == (0, 0)
    assert later == 0  # number of probes hit after the listener has cleared the semaphores


def test_unsampled_malloc_and_free_do_not_read_probe_semaphores(notes):
    """Probes cost nothing for unsampled blocks: malloc, free and calloc do not read the semaphores of the probes."""
    if not shutil.which("objdump") or platform.machine() != "x86_64":
        pytest.skip("objdump for x86_64 is not installed")
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", LIBRARY],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    functions = dict(re.findall(r"^[0-9a-f]+ <([^>]+)>:\n(.*?)(?:\n\n|\Z)", text, re.S | re.M))
    readers = {name for name, code in functions.items()
               for probe in notes.values() if f"# {int(probe['semaphore'], 0):x} " in code}
    assert readers  # the pattern must find the functions that do read a semaphore
    assert not readers & {"malloc", "free", "calloc", "realloc"}
    assert {"malloc", "free"} <= set(functions)
