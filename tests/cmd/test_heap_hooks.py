"""Tests that programs behave the same with and without the preloaded heap library, and that the heap table is
correct."""

import math
import os
import pathlib
import socket
import subprocess

import pytest

import heap_table
from commands import PATIENCE_S, binary, environment

BUILD = pathlib.Path(os.environ.get("EBB_BUILD_DIR", pathlib.Path(binary()).parent))
LIBRARY = BUILD / "libebb-heap.so"
PROGRAMS = BUILD / "tests" / "heap_programs"
MALLOC, NEW, MAP, SHARED, POOL = 0, 1, 2, 4, 5
# Accepted error of an estimate, in standard deviations. With about a hundred estimates per run, even an error of five
# standard deviations occurs in only one of 17,000 runs.
SURE = 7


class Job:
    """Runs a program with the preloaded library; collects the heap tables of the program and its children."""

    def __init__(self, folder):
        self.receiver = heap_table.Receiver(folder)

    def environment(self, settings="", behind=""):
        preload = f"{LIBRARY}:{behind}" if behind else str(LIBRARY)
        return environment({"LD_PRELOAD": preload, "EBB_SOCKET": self.receiver.path,
                            "EBB_HEAP": heap_table.with_filters(settings)})

    def run(self, name, *arguments, settings="", **options):
        return subprocess.run([PROGRAMS / name, *map(str, arguments)], stdout=subprocess.PIPE,
                              env=self.environment(settings), text=True, timeout=4 * PATIENCE_S,
                              **options)

    def tables(self):
        """Returns all heap tables received so far, in order. The process must have exited, so no more will arrive."""
        found = []
        while True:
            try:
                found.append(self.receiver.receive(0.01))
            except (TimeoutError, BlockingIOError):
                return found

    def table(self):
        (_, table), = self.tables()
        return table


@pytest.fixture
def job(tmp_path):
    one = Job(tmp_path)
    yield one
    one.receiver.close()


def weight(sample):
    return sample.size / -math.expm1(-sample.size / sample.interval)


def live_bytes(table, kind=None):
    return sum(weight(s) for s in table.live() if kind is None or s.kind == kind)


def is_consistent(table):
    """Checks that every sample is live, has ended or was dropped."""
    header = table.header()
    drops = header["drops"]
    gone = header["ends"] + drops["live"] + drops["thinned"] + drops["stale"]
    return header["samples"] - gone == len(table.live())


def plain(name, *arguments):
    return subprocess.run([PROGRAMS / name, *arguments], stdout=subprocess.PIPE, text=True,
                          env=environment(), timeout=PATIENCE_S, check=True).stdout


@pytest.mark.parametrize("interval", [1, 4096, 512 << 10, 1 << 40])
def test_hooked_allocation_functions_behave_as_in_glibc(job, interval):
    result = job.run("calls", settings=f"interval={interval}", check=True)
    assert result.stdout == plain("calls")
    assert "malloc(huge): NULL, errno 12" in result.stdout
    if interval == 1:
        assert job.table().header()["samples"] > 50


def test_heap_table_of_an_exited_process_has_a_complete_header(job):
    job.run("execs", "0", settings="interval=100000,python=0", check=True)
    (pid, table), = job.tables()
    header = table.header()
    assert header["pid"] == pid
    assert header["version"] == 2
    assert header["base_interval"] == 100000
    assert header["table_bytes"] == table.size
    assert header["is_ended"]
    assert table.is_sealed
    assert any(table.module_path(i).endswith("/execs") for i in range(header["modules"]))


def test_few_live_samples_remain_after_64_threads_free_all_blocks(job):
    result = job.run("churn", settings="interval=4096", check=True)
    table = job.table()
    header = table.header()
    assert result.stdout == "0\n"
    assert header["samples"] > 100
    assert is_consistent(table)
    # Each of 64 threads allocated and freed 4000 blocks of 10 KB. Up to 1 % of these bytes may still be listed as live,
    # because the profiler misses some frees until later. Memory that malloc allocates per thread may be sampled, too.
    few = 3 * max((s.interval for s in table.live()), default=0)
    assert live_bytes(table, MALLOC) < 64 * 4000 * 10000 / 100 + few


@pytest.mark.parametrize("way", ["fork", "raw", "threads"])
def test_forked_child_has_its_own_heap_table(job, way):
    result = job.run("forks", way, 30, settings="interval=65536", check=True)
    parent, *children = map(int, result.stdout.split())
    tables = dict(job.tables())
    assert set(tables) == {parent, *children}
    for pid, table in tables.items():
        assert table.header()["pid"] == pid
        assert is_consistent(table), (pid == parent, table.header())
    interval = max(s.interval for s in tables[parent].live())
    assert_near(live_bytes(tables[parent], MALLOC), 32 << 20, interval)
    for pid in children:
        interval = max(s.interval for s in tables[pid].live())
        assert_near(live_bytes(tables[pid], MALLOC), 24 << 20, interval)


def test_allocations_of_a_vfork_child_are_in_the_table_of_the_parent(job):
    result = job.run("forks", "vfork", 30, settings="interval=65536", check=True)
    parent = int(result.stdout.split()[0])
    (pid, table), = job.tables()
    assert pid == parent == table.header()["pid"]
    assert is_consistent(table)
    assert_near(live_bytes(table, MALLOC), 32 << 20, max(s.interval for s in table.live()))


def test_program_started_by_exec_is_profiled(job):
    job.run("execs", 20, settings="interval=100000", check=True)
    tables = job.tables()
    assert len(tables) == 21
    assert len({pid for pid, _ in tables}) == 1
    assert all(table.header()["samples"] > 0 for _, table in tables)


def test_heap_table_stays_consistent_while_libraries_load_and_unload(job):
    result = job.run("plugins", PROGRAMS / "module_plugin.so", settings="interval=1000")
    table = job.table()
    assert (result.returncode, result.stdout) == (0, "300\n")
    assert table.header()["samples"] >= 20
    assert is_consistent(table)
    assert live_bytes(table) < 1 << 20


def test_signal_handlers_can_allocate_on_small_stacks(job):
    result = job.run("handlers", settings="interval=64")
    assert (result.returncode, result.stdout) == (0, "300\n")
    table = job.table()
    assert is_consistent(table)
    assert table.header()["is_ended"]
    # Memory freed by a destructor that runs later than the destructor of ebb's library must still be recorded.
    assert live_bytes(table, MAP) == 0


def test_thread_is_never_cancelled_inside_profiled_malloc(job):
    result = job.run("cancelled", settings="interval=1048576", check=True)
    assert result.stdout == "20 1\n"
    assert job.table().header()["samples"] > 0


def test_job_that_sets_no_new_privs_is_not_profiled(job):
    assert job.run("confined", "sandbox", settings="interval=1000000", check=True).stdout == "0\n"
    assert job.tables() == []


def test_job_with_a_low_file_size_limit_runs_without_profiling(job):
    assert job.run("confined", "limit", settings="interval=1000000", check=True).stdout == "0\n"
    assert job.tables() == []


def test_profiled_job_has_no_extra_file_descriptors(job):
    assert job.run("confined", "not", settings="interval=100000", check=True).stdout == "0\n"
    assert job.table().header()["samples"] > 0


@pytest.mark.parametrize("settings", ["0", "nonsense,interval=x,python=7,,="])
def test_invalid_profiler_settings_are_replaced_by_defaults(job, settings):
    job.run("execs", "0", settings=settings, check=True)
    tables = job.tables()
    assert len(tables) == (0 if settings == "0" else 1)
    for _, table in tables:
        assert table.header()["base_interval"] == 512 << 10


def test_profiled_job_runs_if_the_profiler_socket_has_no_listener(job):
    job.receiver.close()
    assert job.run("confined", "not", settings="interval=1000", check=True).stdout == "0\n"


def test_full_profiler_socket_does_not_block_the_job(job, tmp_path):
    full = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    full.bind(str(tmp_path / "full.heap"))
    full.listen(0)
    waiting = []
    with full, pytest.raises(BlockingIOError):
        while True:
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            waiting[-1].setblocking(False)
            waiting[-1].connect(str(tmp_path / "full.heap"))
    full = job.environment("interval=1000") | {"EBB_SOCKET": str(tmp_path / "full")}
    result = subprocess.run([PROGRAMS / "confined", "not"], env=full, stdout=subprocess.PIPE,
                            timeout=PATIENCE_S, text=True, check=True)
    assert result.stdout == "0\n"
    for one in waiting:
        one.close()


def test_allocation_by_a_custom_operator_new_is_counted_once(job):
    env = job.environment("interval=262144", behind=PROGRAMS / "module_allocator.so")
    with subprocess.Popen([PROGRAMS / "news"], env=env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        table = job.table()
        live = table.live()
        interval = max(s.interval for s in live)
        assert {s.kind for s in live} == {MALLOC, NEW}
        assert_near(live_bytes(table, NEW), 56 << 20, interval)
        assert_near(live_bytes(table, MALLOC), 16 << 20, interval)
        # operator new[] of this allocator calls malloc, so its block must be recorded only once, as a malloc block.
        assert {s.kind for s in live if s.size == 4096 + 16} == {MALLOC}
        assert table.header()["drops"]["stale"] == 0
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def assert_near(estimate, truth, interval):
    """Checks that an estimate is within its sampling error. The check is valid only if each block is much smaller than
    the sampling interval."""
    deviation = math.sqrt(interval * truth)
    assert abs(estimate - truth) <= SURE * deviation, (estimate, truth, deviation)


def site_names(table, sites, name):
    """Returns a function that maps a call site to the name of the function in program NAME that contains it."""
    module = 1 + next(i for i in range(table.header()["modules"])
                      if table.module_path(i).endswith("/" + name))

    def find(site):
        for word in table.stack(site):
            at = word & ((1 << 48) - 1)
            if word >> 48 == module:
                return next((n for n, (start, end, *_) in sites.items() if start <= at < end), None)
        return None
    return find


def test_sampled_mappings_are_live_until_munmap(job):
    job.run("maps", settings="interval=64", check=True)
    mib = 1 << 20
    found = sorted((s.kind, s.size // mib) for s in job.table().live() if s.size >= mib)
    assert found == [(MAP, 2), (SHARED, 3), (SHARED, 3), (SHARED, 5), (POOL, 6), (POOL, 90)]


def test_estimated_bytes_of_each_call_site_are_close_to_the_truth(job):
    output = job.run("truth", settings="interval=262144", check=True).stdout
    sites = {}
    for line in output.splitlines():
        name, start, end, total, *by_size = line.split()
        sites[name] = (int(start), int(end), int(total), list(map(int, by_size)))
    table = job.table()
    find = site_names(table, sites, "truth")
    estimates = dict.fromkeys(sites, 0)
    for sample in table.live():
        name = find(sample.site)
        if name:
            estimates[name] += weight(sample)
    interval = max(s.interval for s in table.live())
    assert sum(t[2] for t in sites.values()) > 50 << 20
    for name, (_, _, truth, by_size) in sites.items():
        variance = sum(n * size_variance(2 << i, interval) for i, n in enumerate(by_size))
        assert abs(estimates[name] - truth) <= SURE * math.sqrt(variance), (name, estimates, sites)
    assert is_consistent(table)
    assert estimates["churned"] == 0


def size_variance(size, interval):
    """Returns the variance of the size estimate of one block, s²·(1 − P)/P with sampling probability P."""
    p = -math.expm1(-size / interval)
    return size * size * (1 - p) / p
