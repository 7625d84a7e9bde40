"""Tests that jobs of many types exit in the same way with and without `ebb run`, and are profiled if possible."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess

import pytest

from commands import PATIENCE_S, PYTHON, binary, refused_with, run_ebb, wait_for
from heap_jobs import (LIBRARY, compiled, facts, heap, heap_files, held, line_of, needs_library,
                       not_sanitized, run_job, run_python, start_job, where, write)

pytestmark = needs_library

MIB = 1 << 20
# C code that keeps 20 MiB in two blocks, each almost certainly sampled.
HOLDS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *volatile kept[2];
static void hold(void)
{
    for (int i = 0; i < 2; i++) {
        kept[i] = malloc(10 << 20);
        memset(kept[i], 1, 10 << 20);
    }
}
"""


def near(bytes, mib):
    """Compares within 20 %. All blocks are large and almost certainly sampled, so the estimates vary little."""
    return abs(bytes - mib * MIB) < mib * MIB * 0.2


# ---- types of programs ----

def test_heap_of_a_c_program_names_the_allocating_function(tmp_path):
    program = compiled(tmp_path, HOLDS + "int main(void) { hold(); return 7; }\n")
    result = run_job(tmp_path, program)
    assert result.returncode == 7, result.stderr
    first = heap(result.run)["rows"][0]
    assert first["where"]["function"] == "hold" and near(first["live"]["bytes"], 20)
    assert first["where"]["kind"] == "native"
    assert heap(result.run)["cost"]["python"]["version"] is None


def test_statically_linked_program_is_reported_as_unprofiled(tmp_path):
    program = compiled(tmp_path, HOLDS + 'int main(void) { hold(); puts("well"); }\n', "-static")
    result = run_job(tmp_path, program)
    assert (result.returncode, result.stdout) == (0, "well\n")
    # The text occurs twice: in a message and in the JSON of the summary.
    assert result.stderr.count("statically linked") == 2
    doc = facts(result.run)["heap"]
    assert (doc["on"], doc["trouble"]) == (False, "the program is statically linked")
    assert refused_with(run_ebb("heap", result.run), "has no heap profile: the program is statically linked")


def test_statically_linked_child_of_profiled_program_runs_normally(tmp_path):
    program = compiled(tmp_path, HOLDS + 'int main(void) { hold(); puts("well"); }\n', "-static")
    result = run_job(tmp_path, "sh", "-c", f"{program}; {program}; exit 3")
    assert (result.returncode, result.stdout) == (3, "well\nwell\n")


@pytest.mark.parametrize("shebang", [f"#!{PYTHON}", f"#!/usr/bin/env -S {PYTHON} -u"])
def test_script_started_by_shebang_is_profiled(tmp_path, shebang):
    path = write(tmp_path, f"{shebang}\nkeep = bytes(20 << 20)\n", "script")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    result = run_job(tmp_path, path)
    assert result.returncode == 0, result.stderr
    assert where(heap(result.run)["rows"][0]) == (str(path), 2)


PRELOADED = """
#include <stdlib.h>
#include <stddef.h>
extern void *__libc_malloc(size_t size);
size_t own_mallocs;
void *malloc(size_t size) { own_mallocs++; return __libc_malloc(size); }
"""


@not_sanitized
def test_job_with_preloaded_allocator_is_profiled(tmp_path):
    library = compiled(tmp_path, PRELOADED, "-shared", "-fPIC", name="own.so")
    program = compiled(tmp_path, HOLDS + """
        extern size_t own_mallocs __attribute__((weak));
        int main(void) { hold(); printf("%s\\n%d\\n", getenv("LD_PRELOAD"), own_mallocs >= 2); }
        """, "-Wl,--unresolved-symbols=ignore-all")
    result = run_job(tmp_path, program, env={"LD_PRELOAD": str(library)})
    assert result.returncode == 0, result.stderr
    preload, below = result.stdout.splitlines()
    assert preload == f"{LIBRARY}:{library}" and below == "1"
    assert heap(result.run)["rows"][0]["where"]["function"] == "hold"


def test_program_that_unsets_ld_preload_before_exec_is_not_profiled(tmp_path):
    text = "import os, sys\n" \
           "if 'again' not in sys.argv:\n" \
           "    del os.environ['LD_PRELOAD']\n" \
           "    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n" \
           "keep = bytes(20 << 20)\nprint('ebb-heap' in open('/proc/self/maps').read())\n"
    result, path = run_python(tmp_path, text)
    assert (result.returncode, result.stdout) == (0, "False\n")
    for name in heap_files(result.run):
        assert held(heap(result.run), path, 5) == 0, name


# ---- sandboxes ----

SECCOMP = HOLDS + """
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define FORBID(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), \\
                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
/* A system call that no library can see. */
static long instruction(long number, ...)
{
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long);
    va_end(rest);
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long r = number;
    __asm__ volatile("syscall" : "+a"(r) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number, r __asm__("x0") = a, x1 __asm__("x1") = b,
                  x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    __asm__ volatile("svc #0" : "+r"(r) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
#endif
    return r;
}
static int confine(const char *way)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(SYS_getpid), FORBID(SYS_memfd_create), FORBID(SYS_socket), FORBID(SYS_connect), FORBID(SYS_sendmsg),
        FORBID(SYS_openat), FORBID(SYS_ftruncate), FORBID(SYS_madvise),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (strcmp(way, "prctl") == 0)
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? 0 : errno;
    long (*call)(long, ...) = strcmp(way, "syscall") == 0 ? syscall : instruction;
    return call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) == 0 &&
           call(SYS_seccomp, (long)SECCOMP_SET_MODE_FILTER, 0L, &program, 0L, 0L) == 0 ? 0 : 1;
}
static char buffer[1 << 16];
int main(int argc, char **argv)
{
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (argc > 1 && strcmp(argv[1], "late") == 0)
        hold();
    int refused = confine(argc > 2 ? argv[2] : "prctl");
    if (refused)
        return 100;
    hold();
    for (int i = 0; i < 100000; i++)
        free(malloc((size_t)(i % 5000) * 10));
    puts("well");
    return 0;
}
"""


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("way", ["prctl", "syscall", "instruction"])
def test_profiled_job_that_installs_a_strict_seccomp_filter_survives(tmp_path, when, way):
    program = compiled(tmp_path, SECCOMP)
    result = run_job(tmp_path, program, when, way)
    if result.returncode == 100:
        pytest.skip("this machine allows no seccomp filters")
    assert (result.returncode, result.stdout) == (0, "well\n"), result.stderr
    assert len(heap_files(result.run)) == 1  # The heap table was created before the seccomp filter.
    assert heap(result.run)["rows"][0]["where"]["function"] == "hold"


@pytest.mark.parametrize("way", ["prctl", "syscall"])
def test_child_of_a_profiled_job_with_a_strict_seccomp_filter_survives(tmp_path, way):
    program = compiled(tmp_path, SECCOMP)
    result = run_job(tmp_path, "/bin/sh", "-c", f"{program} early {way}; exit $?")
    if result.returncode == 100:
        pytest.skip("this machine allows no seccomp filters")
    assert (result.returncode, result.stdout) == (0, "well\n"), result.stderr
    assert heap_files(result.run) == []


CHROOT = """
import os, sys
keep = bytes(20 << 20)
os.chroot(sys.argv[1])
os.chdir("/")
later = bytes(20 << 20)  # inside
print("well", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may call chroot")
def test_heap_of_a_job_in_a_chroot_names_the_allocating_line(tmp_path):
    (tmp_path / "empty").mkdir()
    path = write(tmp_path, CHROOT)
    result = run_job(tmp_path, PYTHON, path, tmp_path / "empty")
    if "PermissionError" in result.stderr:
        pytest.skip("this machine does not allow chroot")
    assert (result.returncode, result.stdout) == (0, "well\n"), result.stderr
    assert near(held(heap(result.run), path, line_of(path, "# inside")), 20)


# ---- how jobs end ----

KILLED = """
import os, signal
keep = [bytes(10 << 20) for _ in range(10)]  # held
os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_job_killed_by_signal_leaves_complete_heap_file(tmp_path, name):
    result, path = run_python(tmp_path, KILLED.format(signal=name))
    assert result.returncode == 128 + getattr(signal, name)
    assert near(held(heap(result.run), path, line_of(path, "# held")), 100)


def test_heap_of_very_short_job_is_recorded(tmp_path):
    program = compiled(tmp_path, HOLDS + "void _exit(int);\nint main(void) { hold(); _exit(5); }\n")
    result = run_job(tmp_path, program)
    assert result.returncode == 5
    assert near(heap(result.run)["rows"][0]["live"]["bytes"], 20)


OOM = """
import os, sys, time
for name in sys.argv[1:]:
    with open(name, "w") as file:
        file.write(str(os.getpid()))
keep = []
for _ in range(60):
    keep.append(bytearray(b"x" * (4 << 20)))  # held
    time.sleep(0.01)
time.sleep(0 if sys.argv[1:] else 60)
print("limit not kept")
"""


def own_cgroups():
    """Yields the paths of the test's own memory cgroups, each with the control files to write."""
    limits = {"memory.limit_in_bytes": "120M", "memory.max": "120M", "memory.swap.max": "0"}
    for line in open("/proc/self/cgroup", encoding="ascii"):
        _, names, path = line.rstrip("\n").split(":", 2)
        if "memory" in names.split(","):
            yield pathlib.Path("/sys/fs/cgroup/memory" + path), limits
        elif names == "":
            yield pathlib.Path("/sys/fs/cgroup" + path), limits


@pytest.fixture
def small_cgroup():
    """Creates a cgroup with a limit of 120 MiB; skips the test if that fails."""
    for parent, limits in own_cgroups():
        folder = parent / f"ebb-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        found = [name for name in limits if (folder / name).exists()]
        try:
            for name in found:
                (folder / name).write_text(limits[name])
            if found:
                yield folder
                return
        except OSError:
            pass
        finally:
            wait_for(lambda: remove(folder), "the cgroup to be empty")
    pytest.skip("no cgroup with a memory limit can be created")


def remove(folder):
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def test_oom_killed_job_leaves_complete_heap_file(tmp_path, small_cgroup):
    path = write(tmp_path, OOM)
    result = run_job(tmp_path, PYTHON, path, small_cgroup / "cgroup.procs", flags=["--no-guard"])
    if "limit not kept" in result.stdout or "Error" in result.stderr:
        pytest.skip("the kernel did not enforce the limit of 120 MiB")
    assert result.returncode == 128 + signal.SIGKILL, result.stderr
    assert 60 * MIB < held(heap(result.run), path, line_of(path, "# held")) < 240 * MIB


def test_job_killed_by_guard_leaves_complete_heap_file(tmp_path):
    # The job has no cgroup, because on a busy machine the kernel might enforce the limit of a cgroup before the guard
    # acts.
    result, path = run_python(tmp_path, OOM, flags=["--limit", "120M", "--pressure", "off",
                                                    "--no-cgroup"])
    assert result.returncode == 124, result.stderr
    assert 30 * MIB < held(heap(result.run), path, line_of(path, "# held")) < 250 * MIB


def test_heap_history_is_readable_if_the_supervisor_was_killed(tmp_path):
    path = write(tmp_path, "keep = bytes(20 << 20)\nprint('ready', flush=True)\ninput()\n")
    job = start_job(tmp_path, PYTHON, path)
    try:
        assert job.stdout.readline() == "ready\n"
        # At most one snapshot per second is added to the heap history.
        wait_for(lambda: near(held(heap(tmp_path / "run"), path, 1), 20), "a reading of all of it")
        os.kill(facts(tmp_path / "run")["supervisor_pid"], signal.SIGKILL)
        job.communicate(timeout=PATIENCE_S)
    finally:
        if job.poll() is None:
            job.kill()
            job.communicate()
    assert near(held(heap(tmp_path / "run"), path, 1), 20)


# ---- several processes ----

def test_150_short_lived_processes_leave_at_most_64_heap_files(tmp_path):
    result = run_job(tmp_path, "sh", "-c",
                     "i=0; while [ $i -lt 150 ]; do /bin/true & i=$((i+1)); done; wait; exit 9")
    assert result.returncode == 9, result.stderr
    doc = facts(result.run)["heap"]
    assert len(heap_files(result.run)) <= 64 and doc["on"] is True
    assert len(doc["processes"]) == len(heap_files(result.run))


EXECS = """
import os, sys
n = int(sys.argv[1])
keep = bytes((20 + n) << 20)  # held
if n:
    os.execv(sys.executable, [sys.executable, __file__, str(n - 1)])
"""


def test_each_program_of_an_exec_chain_has_a_heap_history(tmp_path):
    path = write(tmp_path, EXECS)
    result = run_job(tmp_path, PYTHON, path, "3")
    assert result.returncode == 0, result.stderr
    pid = facts(result.run)["pid"]
    assert heap_files(result.run) == sorted(
        [f"heap.{pid}.ebbheap"] + [f"heap.{pid}-{i}.ebbheap" for i in (2, 3, 4)])
    sizes = sorted(near_mib(result.run / name, path, tmp_path) for name in heap_files(result.run))
    assert sizes == [20, 21, 22, 23]


def near_mib(file, path, folder):
    """Returns the MiB that the line marked "# held" holds according to the heap history FILE."""
    alone = folder / f"only-{file.name}"
    alone.mkdir()
    shutil.copy(file, alone)
    return round(held(heap(alone), path, line_of(path, "# held")) / MIB)


POOL = """
import multiprocessing, os, sys
keep = []
def work(n):
    keep.append(bytes(10 << 20))  # held
    barrier.wait()
    return os.getpid()
def begin(b):
    global barrier
    barrier = b
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    b = context.Barrier(3)
    with context.Pool(3, begin, (b,)) as pool:
        pids = set(pool.map(work, range(6), chunksize=1))
        print(*pids, flush=True)
        pool.close()
        pool.join()
"""


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_each_pool_worker_has_a_heap_history(tmp_path, way):
    path = write(tmp_path, POOL)
    result = run_job(tmp_path, PYTHON, path, way)
    assert result.returncode == 0, result.stderr
    pids = [int(word) for word in result.stdout.split()]
    line = line_of(path, "# held")
    assert len(pids) == 3
    for pid in pids:
        assert near(held(heap(result.run, "--pid", pid), path, line), 20)
    assert held(heap(result.run, "--pid", facts(result.run)["pid"]), path, line) == 0


def test_heap_command_shows_the_largest_process_and_lists_the_rest(tmp_path):
    path = write(tmp_path, POOL)
    result = run_job(tmp_path, PYTHON, path, "fork")
    doc = heap(result.run)
    assert where(doc["rows"][0]) == (str(path), line_of(path, "# held"))
    assert len(doc["others"]) >= 2
    assert all(other["live_bytes"] <= doc["live"]["bytes"] + 1 for other in doc["others"])
    assert "--pid N shows one" in run_ebb("heap", result.run).stdout


THREADS = """
import ctypes, threading
libc = ctypes.CDLL(None)  # releases the GIL in its calls
libc.malloc.restype = libc.malloc_usable_size.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def hold(n):
    for _ in range(20):
        libc.free(libc.malloc(300_000))
    return libc.malloc(n << 20)  # held
def other(n):
    return hold(n)
kept = []
threads = [threading.Thread(target=lambda n=n: kept.append((hold if n % 2 else other)(32)))
           for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert all(kept)
"""


def test_allocation_in_a_thread_without_the_gil_has_a_python_line(tmp_path):
    result, path = run_python(tmp_path, THREADS)
    assert result.returncode == 0, result.stderr
    doc = heap(result.run)
    row = next(r for r in doc["rows"] if where(r) == (str(path), line_of(path, "# held")))
    assert near(row["live"]["bytes"], 256) and row["stacks"] == 2
    assert any("threading.py" in (frame["file"] or "") for frame in row["stack"])


NOT_OURS = """
import os, sys, time
child = os.fork()
if child == 0:
    os.setsid()
    keep = bytes(20 << 20)  # held
    print(os.getpid(), flush=True)
    time.sleep(600)
os.waitpid(child, os.WNOHANG)
sys.stdin.read()
"""


def test_heap_command_accepts_the_pid_of_any_process_of_a_job(tmp_path):
    path = write(tmp_path, NOT_OURS)
    job = start_job(tmp_path, PYTHON, path)
    try:
        pid = int(job.stdout.readline())
        line = line_of(path, "# held")
        wait_for(lambda: near(held(heap(pid), path, line), 20), "the child's own heap")
        assert heap(pid)["pid"] == pid
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not pathlib.Path(f"/proc/{pid}/maps").exists()
                 or not pathlib.Path(f"/proc/{pid}/maps").read_text(), "its end")
        assert near(held(heap(tmp_path / "run", "--pid", pid), path, line), 20)
        job.communicate(timeout=PATIENCE_S)
    finally:
        if job.poll() is None:
            job.kill()
            job.communicate()
    assert job.returncode == 0


def test_heap_profiling_works_for_an_unprivileged_user(open_folder, ebb_as_nobody):
    path = write(open_folder, "keep = bytes(20 << 20)\n")
    shutil.copy(LIBRARY, open_folder)
    os.chmod(open_folder / LIBRARY.name, 0o755)
    path.chmod(0o644)
    result = ebb_as_nobody("run", "-q", "--run-dir", "run", "--", PYTHON, path)
    assert result.returncode == 0, result.stderr
    assert where(heap(open_folder / "run")["rows"][0]) == (str(path), 1)
    shown = ebb_as_nobody("heap", "run", "--json")
    assert json.loads(shown.stdout) == heap(open_folder / "run")


def test_missing_heap_library_is_reported_and_the_job_runs(open_folder):
    program = open_folder / "ebb"
    shutil.copy(binary(), program)
    result = subprocess.run([str(program), "run", "-q", "--run-dir", str(open_folder / "run"), "--",
                             "sh", "-c", "exit 4"], stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert result.returncode == 4
    assert refused_with(run_ebb("heap", open_folder / "run"),
                        "has no heap profile: libebb-heap.so is not installed next to the ebb program")
