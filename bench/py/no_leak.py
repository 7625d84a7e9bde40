#!/usr/bin/env python3
"""Measures how often the pytest plugin is wrong, and how long it takes.

    bench/py/no_leak.py [SOUND] [LEAKS]        (default: 1000 100)

Runs SOUND tests of healthy code that allocates irregularly, and LEAKS tests of code that keeps 1 KiB per iteration.
All tests of one block run in one pytest process. Exits 1 if a healthy test fails or a leak passes. Blocks that need a
missing package are left out.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"

PREAMBLE = """
import collections, ctypes, functools, json, logging, queue, random, re, threading, warnings
import pytest
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
{imports}

@pytest.mark.parametrize("run", range({runs}))
def test_it(ebb_loop, run):
    state = {state}
    random.seed({seed} + run)
    for n in ebb_loop:
        {block}
"""

# Each block has required packages, code before the loop, and code of the loop.
SOUND = [
    ("", "[]", "pass"),
    ("", "[]", "state[:] = [object() for _ in range(random.randrange(100))]"),
    ("", "[]", "state[:] = [bytes(random.randrange(1 << 20))]"),
    ("", "[]", "a = {'k': bytes(1000)}; a['a'] = a"),
    ("", "collections.deque(maxlen=300)", "state.append(bytes(1000))"),
    ("", "functools.lru_cache(500)(lambda x: bytes(1000))", "state(random.random())"),
    ("", "functools.lru_cache(None)(lambda x: bytes(1000))", "state(random.randrange(300))"),
    ("", "[]", "state.append(bytes(1000)) if len(state) < 200 else state.clear()"),
    ("", "{}", "state[random.randrange(100)] = bytes(random.randrange(5000))"),
    ("", "[]", "state.append(random.random())"),
    ("", "re", "state.sub('a%d' % random.randrange(1000), 'b', 'abc')"),
    ("", "json", "state.loads(state.dumps({'a': [random.random()] * random.randrange(100)}))"),
    ("", "None", "print('x' * 1000); logging.warning('%s', 'y' * 1000); warnings.warn('z')"),
    ("", "None", "t = threading.Thread(target=bytes, args=(10000,)); t.start(); t.join()"),
    ("", "queue.Queue()", "state.put(bytes(1000)); state.get()"),
    ("", "libc", "state.free(state.malloc(random.randrange(1 << 18)))"),
    ("", "[]", "state.append(libc.malloc(1000)); len(state) > 50 and state and "
               "[libc.free(p) for p in state] and state.clear()"),
    ("numpy", "[]", "state[:] = [numpy.zeros(random.randrange(1, 10000))]"),
    ("numpy", "[]", "numpy.linalg.svd(numpy.ones((20, 20)))"),
    ("torch", "torch.nn.Linear(32, 32)", "state(torch.ones(16, 32)).sum().backward()"),
]
LEAKS = [
    ("", "[]", "state.append(bytes(1000))"),
    ("", "{}", "state[n] = bytearray(1000)"),
    ("", "bytearray()", "state += bytes(1024)"),
    ("", "[]", "state.extend(object() for _ in range(50))"),
    ("", "[]", "other = bytes(random.randrange(1 << 18)); state.append(bytes(1000))"),
    ("", "libc", "state.malloc(1000)"),
    ("", "libc", "state.free(state.malloc(random.randrange(1 << 18))); state.malloc(1000)"),
    ("", "[]", "a = [bytes(1000)]; a.append(a); state.append(a)"),
    ("numpy", "[]", "state.append(numpy.zeros(128))"),
    ("torch", "[]", "state.append(torch.ones(256))"),
]


def available(blocks):
    return [b for b in blocks if not b[0] or importlib.util.find_spec(b[0])]


def results(folder, block, runs, seed):
    """Yields the outcome and the duration in seconds of each test."""
    imports, state, text = block
    (folder / "test_it.py").write_text(PREAMBLE.format(
        imports=f"import {imports}" if imports else "", runs=runs, state=state, block=text,
        seed=seed))
    env = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "ebb.pytest", "--ebb",
                    "-p", "no:cacheprovider", "--junit-xml=out.xml", "test_it.py"],
                   cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   check=False)
    for case in xml.etree.ElementTree.parse(folder / "out.xml").iter("testcase"):
        word = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
        yield word, float(case.get("time"))


def measure(title, blocks, total):
    counts, slowest, wrong = {}, 0.0, {}
    expected = "passed" if title == "sound" else "failure"
    with tempfile.TemporaryDirectory() as folder:
        for i, block in enumerate(blocks):
            share = total // len(blocks) + (i < total % len(blocks))
            for word, seconds in results(pathlib.Path(folder), block, share, i):
                counts[word] = counts.get(word, 0) + 1
                slowest = max(slowest, seconds)
                if word != expected:
                    wrong.setdefault(block[2], []).append(word)
    print(f"{title}: {sum(counts.values())} tests, " + ", ".join(f"{n} {w}" for w, n in sorted(counts.items()))
          + f"; slowest {slowest:.1f} s")
    for text, words in wrong.items():
        print(f"  {len(words)} × {'/'.join(sorted(set(words)))}: {text}")
    return counts


def main():
    sound, leaks = (int(a) for a in (sys.argv[1:] + ["1000", "100"][len(sys.argv) - 1:])[:2])
    found = measure("sound", available(SOUND), sound)
    missed = measure("leaks of 1 KiB per iteration", available(LEAKS), leaks)
    return 1 if found.get("failure", 0) + found.get("error", 0) or set(missed) != {"failure"} else 0


if __name__ == "__main__":
    sys.exit(main())
