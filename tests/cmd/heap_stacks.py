"""A program that allocates from many kinds of Python frames and prints the stack of each allocation. Each allocation
has a unique size. Prints one JSON object, {size: [[file, qualified name, line], …]} with the innermost frame first,
then waits until its standard input is closed.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import re
import sys
import threading
import time

# Sizes are BASE plus a multiple of STEP. The blocks are never touched, so they use no physical memory.
STEP, BASE = 4096, 64 << 20
blocks, stacks = [], {}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]


def stack(frame):
    found = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append((code.co_filename, name, frame.f_lineno))
        frame = frame.f_back
    return found


def next_size():
    time.sleep(0.01)  # Above 200 allocations per second, the profiler does not sample all of them.
    return BASE + STEP * len(stacks)


def take():
    size = next_size()
    # noqa: E702 (both statements must be on one line)
    blocks.append(bytes(size)); stacks[size] = stack(sys._getframe())
    return size


def take_without_lock():
    """Allocates without holding the GIL, which ctypes releases during the call."""
    size = next_size()
    # noqa: E702 (both statements must be on one line)
    libc.malloc(size); stacks[size] = stack(sys._getframe())
    return size


def nested():
    def inner():
        def innermost():
            return (
                1,
                take(),
                2,
            )
        return innermost()
    return inner()


def generators():
    def numbers():
        yield 1
        yield take()

    def outer():
        yield from numbers()
    list(outer())
    for _ in outer():
        take()
    sum(take() for _ in range(2))


def coroutines():
    async def leaf():
        await asyncio.sleep(0)
        take()

    async def numbers():
        yield take()

    async def root():
        await leaf()
        await asyncio.gather(leaf(), leaf())
        async for _ in numbers():
            take()
    asyncio.run(root())


def decorated():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            function(*arguments)
            return function(*arguments)
        return wrapper

    @twice
    def worker():
        take()
    worker()


def comprehensions():
    [take() for _ in range(2)]
    {take(): 1 for _ in range(1)}
    [[take() for _ in range(1)] for _ in range(1)]


def classes():
    class Meta(type):
        def __new__(mcs, name, bases, space):
            take()
            return super().__new__(mcs, name, bases, space)

    class Body(metaclass=Meta):
        size = take()

        def __init__(self):
            take()

        @property
        def value(self):
            return take()

        def __del__(self):
            take()

        def __getattr__(self, name):
            return take()

        def __add__(self, other):
            return take()
    body = Body()
    body.value
    body.missing
    body + 1
    del body


def callbacks():
    sorted([2, 1], key=lambda _: take())
    functools.reduce(lambda a, b: take(), [1, 2, 3])
    list(map(lambda _: take(), [1]))
    re.sub("a", lambda _: str(take()), "a")
    functools.partial(take)()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def compare(_, __):
        take()
        return 0
    libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare)


def handlers():
    @contextlib.contextmanager
    def manager():
        take()
        yield
        take()
    with manager():
        take()
    try:
        raise KeyError
    except KeyError:
        take()
    finally:
        take()


def recursion(depth):
    if depth:
        return recursion(depth - 1)
    return take()


def made_up():
    exec(compile("def f(g):\n\n  return g()\nf(g)", "<made up>", "exec"), {"g": take})
    eval("(1,\n g())", {"g": take})
    source = "def größe(f):\n return f()\ndef Размер(f):\n return größe(f)\n"
    source += "def \U00010400(f):\n return Размер(f)\n\U00010400(f)\n"
    exec(compile(source, "файл \U00010400.py", "exec"), {"f": take})
    exec(compile("f()", os.fsdecode(b"not \xff utf-8"), "exec"), {"f": take})
    long = "def long(f):\n" + "".join(f" v{i} = {i}.5\n" for i in range(3000))
    exec(compile(long + " f()\nlong(f)", "<long>", "exec"), {"f": take})


def again_at_the_same_address():
    """Each round frees a code object and creates another one, usually at the same address."""
    for i in range(5):
        exec(compile("\n" * i + "f()", f"<round {i}>", "exec"), {"f": take})


def threads():
    stop = threading.Event()

    def busy():
        while not stop.wait(0):
            sum(range(100))

    def sampled():
        for _ in range(5):
            take_without_lock()
            take()
    others = [threading.Thread(target=busy) for _ in range(2)]
    workers = [threading.Thread(target=sampled)]
    for thread in others + workers:
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()


def main():
    blocks.append(bytes(BASE - STEP))  # The first sample also creates the heap table.
    take()
    nested()
    generators()
    coroutines()
    decorated()
    comprehensions()
    classes()
    callbacks()
    handlers()
    recursion(50)
    recursion(600)
    made_up()
    again_at_the_same_address()
    threads()
    take_without_lock()
    json.dump(stacks, sys.stdout)
    print(flush=True)
    sys.stdin.read()


main()
