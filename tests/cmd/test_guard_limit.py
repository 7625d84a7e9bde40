"""--limit holds for every process of the job, for children that nobody has looked at yet, too."""

from commands import PYTHON
from guarded import acts, enough_memory, guarded, neighbours

STOPPED = 124

# Sixteen children at a time, 320 MiB together, which have all of their memory at once and are gone
# before their first second is over: so long the count of pages leaves a newborn alone unless there is
# reason to hurry.
GENERATIONS = """
import mmap, os, time
POPULATE = 0x8000
for _ in range(20):
    for _ in range(16):
        if os.fork() == 0:
            memory = mmap.mmap(-1, 20 << 20,
                               flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | POPULATE)
            time.sleep(0.6)
            os._exit(0)
    for _ in range(16):
        os.wait()
"""

# The same memory in all of them, shared by fork, and some of their own: 160 MiB once, 1.3 GiB as a
# plain sum.
SHARED = """
import mmap, os, subprocess, time
memory = mmap.mmap(-1, 120 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes(120 << 20))
for _ in range(3):
    for _ in range(8):
        if os.fork() == 0:
            memory.seek(0)
            memory.write(b"1" * (5 << 20))
            time.sleep(0.9)
            os._exit(0)
    subprocess.run(["sleep", "0.5"])
    for _ in range(8):
        os.wait()
"""


def test_limit_without_cgroup_counts_children_that_live_for_less_than_a_second(guarded):
    result = guarded.run("--no-cgroup", "--limit", "250M", "--", PYTHON, "-c", GENERATIONS)
    assert result.returncode == STOPPED, result.stderr
    assert guarded.facts()["end"]["cause_kind"] == "guard"


def test_limit_without_cgroup_counts_memory_shared_by_fork_once(guarded):
    result = guarded.run("--no-cgroup", "--limit", "300M", "--", PYTHON, "-c", SHARED)
    assert result.returncode == 0, result.stderr
    assert "term" not in acts(guarded.facts()) and "kill" not in acts(guarded.facts())
