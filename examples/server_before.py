"""A typical small training server: jobs run in the server's own process, so its memory grows with every
job and is never freed. server.py is the same server with isolated calls.

    uvicorn --app-dir examples server_before:app
"""

import asyncio
import itertools
import os
from typing import Any, Optional

from fastapi import FastAPI, HTTPException, WebSocket
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from server_training import train

app = FastAPI()
numbers = itertools.count(1)


class Order(BaseModel):
    steps: int = 20
    mib_per_step: int = 8


class Job:
    def __init__(self) -> None:
        self.state = "running"
        self.news: "dict[str, Any]" = {}
        self.result: Any = None
        self.error: Optional[str] = None
        self.changed = asyncio.Event()

    def tell(self, news: "dict[str, Any]") -> None:
        self.news = news
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self, state: str, result: Any = None, error: Optional[str] = None) -> None:
        self.state, self.result, self.error = state, result, error
        self.tell(self.news)

    def facts(self) -> "dict[str, Any]":
        return {"state": self.state, "result": self.result, "error": self.error}


jobs: "dict[int, Job]" = {}
tasks: "set[asyncio.Task[None]]" = set()


async def run(job: Job, order: Order) -> None:
    loop = asyncio.get_running_loop()

    def report(step: int) -> None:
        loop.call_soon_threadsafe(job.tell, {"kind": "step", "step": step, "max_steps": order.steps})

    try:
        job.end("done", await run_in_threadpool(train, order.steps, order.mib_per_step, report))
    except Exception as error:
        job.end("failed", error=f"{type(error).__name__}: {error}")


def find(number: int) -> Job:
    if number not in jobs:
        raise HTTPException(404, f"there is no job {number}")
    return jobs[number]


@app.post("/jobs")
async def create(order: Order) -> "dict[str, int]":
    number = next(numbers)
    jobs[number] = Job()
    task = asyncio.create_task(run(jobs[number], order))
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return {"id": number}


@app.get("/jobs/{number}")
async def show(number: int) -> "dict[str, Any]":
    return find(number).facts()


@app.websocket("/jobs/{number}/progress")
async def progress(socket: WebSocket, number: int) -> None:
    """Sends progress while the job runs, and finally the result. A slow viewer receives only the newest progress."""
    await socket.accept()
    job = find(number)
    while job.state == "running":
        changed = job.changed
        if job.news:
            await socket.send_json(job.news)
        await changed.wait()
    await socket.send_json({"kind": "end", **job.facts()})
    await socket.close()


@app.get("/memory")
async def memory() -> "dict[str, int]":
    with open("/proc/self/statm") as file:
        return {"rss_bytes": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
